"""PriVAE beside P3GM and DP-VAE: classifiers trained on synthetic rows, tested on real ones."""

from __future__ import annotations

from .models import Model

__all__ = ["MODELS", "privae_tstr_benchmark"]

MODELS = ("PriVAESynthesizer", "DPVAESynthesizer", "P3GMSynthesizer")


def privae_tstr_benchmark(
    dataset="adult", models=MODELS, *, seeds=(0,), epsilon=1.0, delta=1e-5, data=None, device="cpu", quick=False,
    classifiers=None,
):  # fmt: skip
    """Yield the results of the protocols of P3GM's paper for PriVAE with MMD, DP-VAE and P3GM, at defaults.

    Parameters
    ----------
    dataset : {"adult", "fashion_mnist"}, default="adult"
    models : sequence of str
        PriVAESynthesizer, DPVAESynthesizer, P3GMSynthesizer.
    seeds : iterable of int, default=(0,)
    epsilon, delta : float, default=1.0, 1e-5
    data : str or path, default=None
        Folder of the data.
    device : str, default="cpu"
        Where PriVAE, DP-VAE and the classifier of images are trained.
    quick : bool, default=False
        20 steps; images: 2,000 synthetic ones and one epoch of the classifier.
    classifiers : dict, default=None
        Of tables; None is the protocol's four.

    Yields
    ------
    dict
        As `table_benchmark` and `image_benchmark` do.
    """
    from .images import image_benchmark
    from .tables import table_benchmark

    made = [_model(name, quick) for name in models]
    options = {"seeds": seeds, "epsilon": epsilon, "delta": delta, "data": data, "device": device}
    if dataset == "adult":
        yield from table_benchmark("adult", made, classifiers=classifiers, **options)
        return
    size = {"n_samples": 2_000, "epochs": 1} if quick else {}
    yield from image_benchmark(dataset, made, progress=False, **options, **size)


def _model(name, quick):
    """A model at its defaults but for the source of the noise; of images, dense nets (see the page "PriVAE")."""
    if name not in MODELS:
        raise ValueError(f"models must be of {', '.join(MODELS)}; got {name!r}")
    if name == "P3GMSynthesizer":
        return Model(name, name)
    settings = {"noise": "fast", "image_shape": None}
    if name == "PriVAESynthesizer":
        settings["divergence"] = "mmd"
    if quick:
        settings["steps"] = 20
    return Model(name, name, settings, trains=True)
