"""PriVAE beside P3GM and DP-VAE: classifiers trained on synthetic rows, tested on real ones."""

from __future__ import annotations

__all__ = ["MODELS", "privae_tstr_benchmark"]

MODELS = ("PriVAESynthesizer", "DPVAESynthesizer", "P3GMSynthesizer")


def privae_tstr_benchmark(
    dataset="adult", models=MODELS, *, seeds=(0,), epsilon=1.0, delta=1e-5, data=None, quick=False, classifiers=None
):
    """Yield the results of the protocols of P3GM's paper for PriVAE with MMD, DP-VAE and P3GM, at defaults.

    Parameters
    ----------
    dataset : {"adult", "fashion_mnist"}, default="adult"
    models : sequence of str
        Names of `MODELS`.
    seeds : iterable of int, default=(0,)
    epsilon, delta : float, default=1.0, 1e-5
    data : str or path, default=None
        Folder of the data.
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

    makers = {name: _maker(name, quick) for name in models}
    if dataset == "adult":
        options = {"seeds": seeds, "epsilon": epsilon, "delta": delta, "data": data, "classifiers": classifiers}
        yield from table_benchmark("adult", tuple(makers.values()), **options)
        return
    for make in makers.values():

        def image_maker(epsilon, delta, seed):
            shape = {"image_shape": (28, 28)} if make.name == "P3GMSynthesizer" else {}  # noqa: B023
            return make(epsilon=epsilon, delta=delta, bounds=(0, 255), random_state=seed, **shape)  # noqa: B023

        size = {"n_samples": 2_000, "epochs": 1} if quick else {}
        yield from image_benchmark(
            dataset, image_maker, seeds, epsilon=epsilon, delta=delta, data=data, progress=False, **size
        )


def _maker(name, quick):
    from .. import synthesizers

    def make(**parameters):
        if name != "P3GMSynthesizer":
            parameters["noise"] = "fast"
            if quick:
                parameters["steps"] = 20
        if name == "PriVAESynthesizer":
            parameters["divergence"] = "mmd"
        return getattr(synthesizers, name)(**parameters)

    make.name = name
    return make
