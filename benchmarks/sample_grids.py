"""P3GM's figure 2: images that the models sample, a row of each class."""

from __future__ import annotations

import base64
import zlib

import numpy as np

from skdpgen.utils.atomic import save_figure

from ._image_classifiers import IMAGE_SHAPE
from .images import _load, make_image_synthesizer
from .models import REAL, find_model, verified_epsilon

__all__ = ["draw_samples", "read_samples", "sample_benchmark"]

_ACROSS = 8


def sample_benchmark(
    dataset="mnist", models=("P3GMSynthesizer",), seeds=(0,), *, epsilon=1.0, delta=1e-5, rows=None, device="cpu",
    data=None,
):  # fmt: skip
    """Yield images of each class that a model samples.

    Parameters
    ----------
    dataset, models, seeds, epsilon, delta, rows, device, data
        As for `image_benchmark`.

    Yields
    ------
    dict
        data, model, seed, epsilon (of the card), and ``samples``: ten classes of eight images, which `read_samples`
        reads.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Figure 2.
    """
    bunch = _load(dataset, data)
    X, y = bunch.data[:rows], bunch.target[:rows]
    classes = np.unique(bunch.target_test)
    for seed in seeds:
        for name in models:
            result = {"data": dataset, "model": name, "seed": int(seed), "epsilon": None}
            images, labels = X, y
            if name != REAL:
                synthesizer = make_image_synthesizer(find_model(name), dataset, epsilon, delta, seed, device)
                images, labels = synthesizer.fit(X, y).sample(2_000, random_state=seed)
                result["epsilon"] = verified_epsilon(synthesizer)
            grid = np.zeros((len(classes), _ACROSS, *IMAGE_SHAPE), dtype=np.uint8)
            for row, label in zip(grid, classes):
                found = np.asarray(images)[np.asarray(labels) == label][:_ACROSS]
                row[: len(found)] = np.clip(np.rint(found), 0, 255).reshape(-1, *IMAGE_SHAPE)
            yield {**result, "samples": base64.b64encode(zlib.compress(grid.tobytes(), 9)).decode("ascii")}


def read_samples(text):
    """Images of `sample_benchmark`.

    Returns
    -------
    uint8 array of shape (n_classes, n_images, height, width)
    """
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(-1, _ACROSS, *IMAGE_SHAPE)


def draw_samples(results, path):
    """Draw the first seed of each model and data side by side."""
    from matplotlib.figure import Figure

    first = {}
    for result in results:
        first.setdefault((result["data"], result["model"]), result)
    models = list(dict.fromkeys(model for _, model in first))
    rows = [(data, start) for data in dict.fromkeys(data for data, _ in first) for start in range(0, len(models), 8)]
    canvas = Figure(figsize=(1.8 * min(8, len(models)), 2.5 * len(rows)), layout="constrained")
    panels = canvas.subplots(len(rows), min(8, len(models)), squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()
    for (data, model), result in first.items():
        at = models.index(model)
        panel = panels[rows.index((data, at - at % 8)), at % 8]
        grid = read_samples(result["samples"])
        panel.imshow(grid.transpose(0, 2, 1, 3).reshape(-1, _ACROSS * IMAGE_SHAPE[1]), cmap="gray_r", vmin=0, vmax=255)
        panel.set_title(f"{model}\n{data}", fontsize=8)
    save_figure(canvas, path, dpi=110)
