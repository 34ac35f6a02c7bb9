"""The image benchmark of P3GM: fit privately on the training images, train a CNN on synthetic ones, test on real."""

from __future__ import annotations

from time import perf_counter

from ._image_classifiers import IMAGE_SHAPE, cnn_accuracy

__all__ = ["IMAGE_DATASETS", "image_benchmark", "image_real_row"]

IMAGE_DATASETS = ("mnist", "fashion_mnist")


def image_benchmark(
    dataset="mnist",
    make_synthesizer=None,
    seeds=(0,),
    *,
    epsilon=1.0,
    delta=1e-5,
    data=None,
    n_samples=60_000,
    epochs=10,
    progress=True,
):
    """Yield one result per seed of P3GM's image protocol.

    A synthesizer is fitted on the 60,000 training images and their labels, `n_samples` synthetic
    images are drawn, and the CNN of `fit_cnn` trained on them for a fixed number of epochs is
    tested once on the 10,000 test images.

    Parameters
    ----------
    dataset : {"mnist", "fashion_mnist"}, default="mnist"
        Which images.
    make_synthesizer : callable, default=None
        Called as ``make_synthesizer(epsilon, delta, seed)``; returns an unfitted synthesizer with
        ``fit(X, y)`` and ``sample(n) -> (X, y)``. None is
        ``P3GMSynthesizer(epsilon=epsilon, delta=delta, bounds=(0, 255), image_shape=(28, 28), random_state=seed)``.
    seeds : iterable of int, default=(0,)
        One fit and one result each.
    epsilon, delta : float, default=1.0, 1e-5
        Budget of each fit.
    data : str or path, default=None
        Folder of the data files; None is what the loaders choose.
    n_samples : int, default=60000
        Synthetic images.
    epochs : int, default=10
        Epochs of the CNN.
    progress : bool, default=True
        Whether the CNN draws a bar on stderr.

    Yields
    ------
    dict
        dataset, seed, model, accuracy, epsilon and delta (asked), epsilon_card (recomputed from the
        fit's card, None without one), n_samples, fit_seconds, sample_seconds, judge_seconds.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Table VII.
    """
    bunch = _load(dataset, data)
    make = _default_synthesizer if make_synthesizer is None else make_synthesizer
    for seed in seeds:
        start = perf_counter()
        synthesizer = make(epsilon, delta, seed).fit(bunch.data, bunch.target)
        fitted = perf_counter()
        images, labels = synthesizer.sample(n_samples)
        sampled = perf_counter()
        accuracy = _judge(images, labels, bunch, epochs=epochs, seed=seed, progress=progress)
        yield {
            "dataset": dataset,
            "seed": seed,
            "model": type(synthesizer).__name__,
            "accuracy": accuracy,
            "epsilon": epsilon,
            "delta": delta,
            "epsilon_card": _card_epsilon(synthesizer),
            "n_samples": n_samples,
            "fit_seconds": round(fitted - start, 2),
            "sample_seconds": round(sampled - fitted, 2),
            "judge_seconds": round(perf_counter() - sampled, 2),
        }


def image_real_row(dataset="mnist", seeds=(0,), *, data=None, epochs=10, progress=True):
    """Yield the row of the real training images: what the judge reaches without any synthesis.

    Parameters are those of `image_benchmark`.

    Yields
    ------
    dict
        dataset, seed, model "real data", accuracy, n_samples, judge_seconds.
    """
    bunch = _load(dataset, data)
    for seed in seeds:
        start = perf_counter()
        accuracy = _judge(bunch.data, bunch.target, bunch, epochs=epochs, seed=seed, progress=progress)
        yield {
            "dataset": dataset,
            "seed": seed,
            "model": "real data",
            "accuracy": accuracy,
            "n_samples": len(bunch.target),
            "judge_seconds": round(perf_counter() - start, 2),
        }


def _default_synthesizer(epsilon, delta, seed):
    from ..synthesizers import P3GMSynthesizer

    return P3GMSynthesizer(epsilon=epsilon, delta=delta, bounds=(0, 255), image_shape=IMAGE_SHAPE, random_state=seed)


def _judge(images, labels, bunch, *, epochs, seed, progress):
    return cnn_accuracy(
        images,
        labels,
        bunch.data_test,
        bunch.target_test,
        epochs=epochs,
        random_state=seed,
        progress=progress,
    )


def _card_epsilon(synthesizer):
    """Epsilon recomputed from the events of the fit's own card, None for a model without a card."""
    card = getattr(synthesizer, "card_", None)
    return None if card is None else card.verify()["fit"]["epsilon"]


def _load(dataset, data):
    if dataset not in IMAGE_DATASETS:
        raise ValueError(f"dataset must be one of {', '.join(IMAGE_DATASETS)}; got {dataset!r}")
    from .. import datasets

    return getattr(datasets, f"load_{dataset}")(data)
