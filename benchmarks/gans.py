"""GANs and their relatives on images: published figures, independent ones, and ours with accounting that holds."""

from __future__ import annotations

import math
from time import perf_counter

from skdpgen import DPSGD

from .dp2vae import draw_grid, feature_map, frechet, judge
from .models import REAL, Model, verified_epsilon

__all__ = ["MODELS", "gans_benchmark", "models"]

# Every model of the table; with other networks or a paper's settings one stands a second time.
MODELS = {
    model.name: model
    for model in (
        Model("DPCGANSynthesizer", "DPCGANSynthesizer", trains=True),
        Model("DP-CGAN(dense)", "DPCGANSynthesizer", {"image_shape": None}, trains=True),
        Model("DP-CGAN(paper)", "DPCGANSynthesizer", {"preset": "paper/{data}", "image_shape": None}, trains=True),
        Model("DPSinkhornSynthesizer", "DPSinkhornSynthesizer"),
        Model("GSWGANSynthesizer", "GSWGANSynthesizer"),
        Model("DataLensSynthesizer", "DataLensSynthesizer"),
        Model("GPATESynthesizer", "GPATESynthesizer"),
        Model("DPMERFSynthesizer", "DPMERFSynthesizer"),
        Model("DP-MERF(dense)", "DPMERFSynthesizer", {"image_shape": None}),
        Model("DPVAESynthesizer", "DPVAESynthesizer", {"image_shape": None}, trains=True),
        Model("P3GMSynthesizer", "P3GMSynthesizer"),
    )
}
_PUBLIC = {"bounds": (0, 255), "image_shape": (28, 28), "classes": list(range(10))}
_QUICK_ROWS = 2_000
# The default of images, which trains no network.
_UNTRAINED = ("P3GMSynthesizer",)


def gans_benchmark(
    dataset="mnist",
    models=tuple(MODELS),
    *,
    seeds=(0,),
    epsilon=(10.0, 1.0),
    delta=1e-5,
    data=None,
    device="cpu",
    n_samples=60_000,
    epochs=10,
    development=False,
    quick=False,
    figure=None,
):
    """Yield one result a budget, seed and model.

    A model is fitted on the 60,000 training images and their labels; logistic regression, an MLP and a CNN are trained
    on `n_samples` synthetic images for a fixed number of epochs, and tested once on the 10,000 test images.

    Parameters
    ----------
    dataset : {"mnist", "fashion_mnist"}, default="mnist"
    models : sequence of str
        Names of `MODELS`, or "real data".
    seeds : iterable of int, default=(0,)
    epsilon : float, default=(10.0, 1.0)
        Budgets, one after the other.
    delta : float, default=1e-5
    data : str or path, default=None
        Folder of the data.
    device : str, default="cpu"
        Where networks are trained.
    n_samples : int, default=60000
    epochs : int, default=10
        Of MLP and CNN.
    development : bool, default=False
        Fit on five sixths of the training images, test on the others: for choosing settings.
    quick : bool, default=False
        2,000 rows, 2,000 synthetic ones, one epoch.
    figure : str or path, default=None
        A grid of samples of the first seed is drawn to this file.

    Yields
    ------
    dict
        dataset, model, seed, epsilon, epsilon_card (recomputed from the card), lr, mlp, cnn (accuracies), frechet (on
        the features of a CNN trained on the real images for an epoch, not Inception's), fit_seconds, judge_seconds.
    """
    bunch, drawn = _load(dataset, data, development), {}
    rows = slice(0, _QUICK_ROWS if quick else None)
    n_samples, epochs = (_QUICK_ROWS, 1) if quick else (n_samples, epochs)
    X, y = bunch.data[rows], bunch.target[rows]
    features = feature_map(X, y, device)
    for budget in epsilon if isinstance(epsilon, tuple | list) else (epsilon,):
        for seed in seeds:
            for name in models:
                start, model = perf_counter(), None
                images, labels = X[:n_samples], y[:n_samples]
                if name != REAL:
                    options = {"epsilon": budget, "delta": delta, "device": device, "random_state": seed}
                    model = MODELS[name].make(dataset, **options, **_PUBLIC)
                    known = model.get_params(deep=False)
                    if quick and "steps" in known:
                        model.set_params(steps=20)
                    elif quick and name not in _UNTRAINED and not known.get("preset"):
                        model.set_params(training=DPSGD(20, device=None if device == "cpu" else device))
                    model.fit(X, y)
                fitted = perf_counter()
                if model is not None:
                    images, labels = model.sample(n_samples)
                drawn.setdefault(name, (images, labels))
                yield {
                    "dataset": dataset,
                    "model": name,
                    "seed": seed,
                    "epsilon": math.inf if model is None else budget,
                    "epsilon_card": None if model is None else verified_epsilon(model),
                    "development": bool(development),
                    **judge(images, labels, bunch, epochs, seed, device),
                    "frechet": frechet(features, bunch.data_test, images),
                    "fit_seconds": round(fitted - start, 1),
                    "judge_seconds": round(perf_counter() - fitted, 1),
                }
    if figure is not None:
        draw_grid(drawn, figure)


def models():
    """Names that the benchmark takes."""
    return (*MODELS, REAL)


def _load(dataset, data, development):
    """The images; for development, the last sixth of the training images in place of the test images."""
    from skdpgen import datasets

    bunch = getattr(datasets, f"load_{dataset}")(data)
    if development:
        cut = len(bunch.data) * 5 // 6
        bunch.data_test, bunch.target_test = bunch.data[cut:], bunch.target[cut:]
        bunch.data, bunch.target = bunch.data[:cut], bunch.target[:cut]
    return bunch
