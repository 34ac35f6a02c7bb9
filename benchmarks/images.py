"""The image benchmark of P3GM: fit privately on the training images, train a CNN on synthetic ones, test on real."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from ._image_classifiers import IMAGE_SHAPE, cnn_accuracy
from .models import CLASSIFIER, REAL, Model, find_model, verified_epsilon

__all__ = ["IMAGE_DATASETS", "image_benchmark"]

IMAGE_DATASETS = ("mnist", "fashion_mnist")


def image_benchmark(
    dataset="mnist",
    models=("P3GMSynthesizer",),
    seeds=(0,),
    *,
    epsilon=1.0,
    delta=1e-5,
    data=None,
    rows=None,
    n_samples=60_000,
    epochs=10,
    development=False,
    device="cpu",
    progress=True,
):
    """Yield one result per seed and model of P3GM's image protocol.

    A synthesizer is fitted on the 60,000 training images and their labels, `n_samples` synthetic
    images are drawn, and the CNN of `fit_cnn` trained on them for a fixed number of epochs is
    tested once on the 10,000 test images.

    Parameters
    ----------
    dataset : {"mnist", "fashion_mnist"}, default="mnist"
        Which images.
    models : sequence of str, Model or callable, default=("P3GMSynthesizer",)
        Names of `benchmarks.models` or of synthesizers in `skdpgen.synthesizers`, which are given as public
        what they take of ``bounds=(0, 255)``, ``image_shape=(28, 28)`` and the ten classes; "real data" is what the
        judge reaches without any synthesis, "DPNetClassifier" a dense net that DP-SGD trains on the images, in the
        judge's place. A callable is called as ``make(epsilon, delta, seed)`` and returns an
        unfitted synthesizer with ``fit(X, y)`` and ``sample(n) -> (X, y)``; it may stand alone.
    seeds : iterable of int, default=(0,)
        One fit and one result each.
    epsilon, delta : float, default=1.0, 1e-5
        Budget of each fit.
    data : str or path, default=None
        Folder of the data files; None is what the loaders choose.
    rows : int, default=None
        Training images at most, the first ones. None is all.
    n_samples : int, default=60000
        Synthetic images.
    epochs : int, default=10
        Epochs of the CNN.
    development : bool, default=False
        Fit on five sixths of the training images and test on the rest, in place of the test images: for choosing
        settings.
    device : str, default="cpu"
        Where the CNN, and the models of `MODELS` that train a net, are trained.
    progress : bool, default=True
        Whether the CNN draws a bar on stderr.

    Yields
    ------
    dict
        data, seed, model, accuracy, epsilon (recomputed from the fit's card; None without one) and delta,
        epsilon_asked, rows, n_samples, development, fit_seconds, sample_seconds, judge_seconds.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Table VII.
    """
    from skdpgen.nn import DPNetClassifier

    bunch = _load(dataset, data)
    models = (models,) if callable(models) else models
    for seed in seeds:
        X, y, X_test, y_test = bunch.data[:rows], bunch.target[:rows], bunch.data_test, bunch.target_test
        if development:
            order = np.random.default_rng(seed).permutation(len(y))
            kept, held_out = np.split(order, [len(y) * 5 // 6])
            X, y, X_test, y_test = X[kept], y[kept], X[held_out], y[held_out]
        for model in models:
            start = perf_counter()
            if model == CLASSIFIER:
                classifier = DPNetClassifier(
                    epsilon, delta, bounds=(0, 255), classes=range(10), device=device, random_state=seed
                ).fit(X, y)
                yield {
                    "data": dataset,
                    "seed": int(seed),
                    "model": model,
                    "accuracy": float(classifier.score(X_test, y_test)),
                    "epsilon": verified_epsilon(classifier),
                    "delta": delta,
                    "epsilon_asked": epsilon,
                    "fit_seconds": round(perf_counter() - start, 2),
                    "rows": len(y),
                    "development": bool(development),
                }
                continue
            if model == REAL:
                name, images, labels, cost = REAL, X, y, {"epsilon": None, "delta": None, "epsilon_asked": None}
            else:
                model = find_model(model) if isinstance(model, str) else model
                synthesizer = make_image_synthesizer(model, dataset, epsilon, delta, seed, device).fit(X, y)
                fitted = perf_counter()
                images, labels = synthesizer.sample(n_samples)
                name = getattr(model, "name", type(synthesizer).__name__)
                cost = {
                    "epsilon": verified_epsilon(synthesizer),
                    "delta": delta,
                    "epsilon_asked": epsilon,
                    "fit_seconds": round(fitted - start, 2),
                    "sample_seconds": round(perf_counter() - fitted, 2),
                }
            sampled = perf_counter()
            accuracy = cnn_accuracy(
                images,
                labels,
                X_test,
                y_test,
                epochs=epochs,
                random_state=seed,
                progress=progress,
                device=device,
            )
            yield {
                "data": dataset,
                "seed": int(seed),
                "model": name,
                "accuracy": accuracy,
                **cost,
                "rows": len(y),
                "n_samples": len(labels),
                "development": bool(development),
                "judge_seconds": round(perf_counter() - sampled, 2),
            }


def make_image_synthesizer(model, dataset, epsilon, delta, seed, device="cpu"):
    """Return an unfitted synthesizer of images: of a `Model`, or of a callable ``make(epsilon, delta, seed)``."""
    if not isinstance(model, Model):
        return model(epsilon, delta, seed)
    return model.make(
        dataset,
        epsilon=epsilon,
        device=device,
        delta=delta,
        bounds=(0, 255),
        image_shape=IMAGE_SHAPE,
        classes=list(range(10)),
        random_state=seed,
    )


def _load(dataset, data):
    if dataset not in IMAGE_DATASETS:
        raise ValueError(f"dataset must be one of {', '.join(IMAGE_DATASETS)}; got {dataset!r}")
    from skdpgen import datasets

    return getattr(datasets, f"load_{dataset}")(data)
