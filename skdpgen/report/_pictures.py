"""Sections of what two tables alone do not show: images, the latent space of a released model, results by epsilon."""

from __future__ import annotations

import numpy as np

from .. import metrics
from ..exceptions import InvalidInputError
from ..metrics._plot._models import released_mixture
from ..metrics._samples import to_numbers
from ._page import figure, leak, paragraph, section, table
from ._results import SCORES

__all__ = ["check_images", "images", "latent_space", "mixture_of", "rows_of_model", "utility"]

_CLASSES = 10
_DRAWN = 5_000
_NEIGHBOURS = 1_000
_PRDC = {
    "precision": "share of synthetic images near real ones",
    "recall": "share of real images near synthetic ones",
    "density": "real neighbourhoods about a synthetic image, over their expectation",
    "coverage": "share of real images with a synthetic one in their neighbourhood",
}


# ---- images ----------------------------------------------------------------------------------------------
def check_images(real, image_shape, target):
    """Return the names of the pixels, in order; the columns of a table must be those of an image, and its label."""
    sides = tuple(image_shape)
    if len(sides) not in (2, 3) or any(side != int(side) or side < 1 for side in sides):
        raise ValueError(f"the shape of an image is height and width, positive; got {' '.join(map(str, sides))}")
    pixels = [name for name in real.columns if name != target]
    n_pixels = int(np.prod(sides))
    if len(pixels) != n_pixels:
        shape = " x ".join(map(str, sides))
        hint = ": name the column of the label as the target" if len(pixels) == n_pixels + 1 else ""
        raise InvalidInputError(
            f"images of {shape} have {n_pixels} pixels, and the table {len(pixels)} columns"
            f"{'' if target is None else ' beside the target'}{hint}"
        )
    return pixels


def images(writer, pixels, image_shape, target):
    """Return real beside synthetic images, and how near the ones are to the others."""
    frames = writer.real, writer.synthetic
    stacks = [_pixels(frame, pixels) for frame in frames]
    declared = None if writer.schema is None else [getattr(writer.schema[name], "bounds", None) for name in pixels]
    bounds = None
    if declared is not None and None not in declared:
        bounds = min(float(low) for low, _ in declared), max(float(high) for _, high in declared)
    labels = [None, None] if target is None else [frame[target].fillna("missing").astype(str) for frame in frames]
    n_classes = 10 if target is None else min(_CLASSES, labels[0].nunique())
    pairs = [stack if label is None else (stack, label.to_numpy()) for stack, label in zip(stacks, labels)]
    which = "The first images" if target is None else f"The first images of each {target}"
    if target is not None and labels[0].nunique() > _CLASSES:
        which += f", of the first {_CLASSES} of {labels[0].nunique()}"

    def draw(ax):
        shape = tuple(image_shape)
        metrics.ImageGridDisplay.from_samples(*pairs, image_shape=shape, n_rows=n_classes, bounds=bounds, ax=ax)
        ax.figure.get_layout_engine().set(wspace=0.06)  # or both grids look like one

    picture = figure(
        draw,
        (11.0, 0.6 + 0.53 * n_classes * image_shape[0] / image_shape[1]),
        f"Two grids of images: real ones on the left, synthetic ones on the right, {n_classes} rows of 10.",
        f"{which}: real on the left, synthetic on the right.",
    )
    words = [
        "The rows are images. Left out are the figures and pictures of single columns, of their pairs and triples, "
        "and pMSE: of pixels they say little."
    ]
    shown = [metrics.ImageGridDisplay]
    first, second = (_pixels(half, pixels) for half in writer.halves)
    n = min(len(first), len(second), len(stacks[1]), _NEIGHBOURS)
    if n > 10:
        parts = [writer.rng.permutation(part)[:n] for part in (stacks[0], stacks[1], first, second)]
        near, half = metrics.prdc(*parts[:2]), metrics.prdc(*parts[2:])
        for key, what in _PRDC.items():
            writer.add(key, f"{key}: {what}", getattr(near, key), "1", getattr(half, key))
        words.append(
            f"Precision, recall, density and coverage, in the summary, are of the pixels of {n:,} images each."
        )
        shown.append(metrics.prdc)
    return section("images", "Images", *map(paragraph, words), picture, leak(*shown))


def _pixels(frame, names):
    values = np.column_stack([to_numbers(frame[name]) for name in names])
    if not np.isfinite(values).all():
        raise InvalidInputError("the rows are to be images, and a pixel is missing or infinite in one of the tables")
    return values


# ---- the latent space ------------------------------------------------------------------------------------
def mixture_of(model):
    """Return the released mixture of a model, or None where there is none of two dimensions to draw."""
    try:
        mixture = released_mixture(model)
    except ValueError:
        return None
    return mixture if mixture.means.shape[1] >= 2 and hasattr(model, "transform") else None


def rows_of_model(model, real, target):
    """Return the columns of a frame of real rows that a model was fitted on, in its order and container.

    Raises
    ------
    InvalidInputError
        The model was fitted on other columns.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        if missing := [str(name) for name in names if name not in real.columns]:
            raise InvalidInputError(f"the model is of another table: the real one has no {missing}")
        return real[list(names)]
    # rows of an array are written with their label last, as y
    columns = [name for name in real.columns if name != ("y" if target is None else target)]
    columns = columns if len(columns) == model.n_features_in_ else list(real.columns)
    if len(columns) != model.n_features_in_:
        raise InvalidInputError(
            f"the model is of another table: it was fitted on arrays of {model.n_features_in_} columns"
        )
    return np.column_stack([to_numbers(real[name]) for name in columns])


def latent_space(model, rows, labels, rng):
    """Return the latents of real rows with the released mixture; the mixture alone where the rows do not fit."""
    name, mixture = type(model).__name__, mixture_of(model)
    if mixture is None:
        words = f"{name} has released no mixture of two latent dimensions, so there is nothing to draw."
        return section("latent", "Latent space", paragraph(words))
    n_rows = len(rows)
    chosen = np.sort(rng.permutation(n_rows)[:_DRAWN])
    rows = rows.iloc[chosen] if hasattr(rows, "iloc") else rows[chosen]
    labels = None if labels is None else labels[chosen]
    try:
        latent = np.asarray(model.transform(rows), dtype=float)
        which = f"All {n_rows:,} real rows" if len(latent) == n_rows else f"{len(latent):,} of {n_rows:,} real rows"
        words = f"{which}, where the model's encoder puts them: each point is one."
    except (ValueError, TypeError):  # the message may hold a cell
        latent, labels = None, None
        words = "The real rows cannot be encoded (a missing value, or one that was not declared): the release alone."
    n = np.count_nonzero(np.asarray(mixture.weights) > 0)
    picture = figure(
        lambda ax: metrics.LatentSpaceDisplay.from_samples(latent, mixture, labels, ax=ax),
        (7.5, 5.5),
        f"Latent space in two dimensions: {'no' if latent is None else len(latent)} points of real rows, and ellipses "
        f"of the {n} Gaussians that were released.",
        f"The first two of {mixture.means.shape[1]} latent dimensions; ellipses at one and two standard deviations of "
        f"the {n} released Gaussians, the heavier the wider the line.",
    )
    return section("latent", "Latent space", paragraph(words), picture, leak(metrics.LatentSpaceDisplay))


# ---- utility against epsilon -----------------------------------------------------------------------------
def utility(results):
    """Return a picture and a table of each set of data in results of benchmarks."""
    parts = [
        paragraph(
            "Results of skdpgen bench, which are not of the tables above: means and standard deviations over the fits "
            "of a model at an epsilon; broken lines are without privacy."
        )
    ]
    for data, rows in results.groupby("data", sort=False):
        scores = [score for score in SCORES if score in rows and rows[score].notna().any()]
        score, drawn = scores[0], rows[rows[scores[0]].notna()]
        n_lines = drawn["model"].nunique()
        values = drawn.loc[np.isfinite(drawn["epsilon"]), "epsilon"]
        span = f"epsilon {values.min():g} to {values.max():g}" if len(values) else "no epsilon"

        def draw(ax, drawn=drawn, score=score):
            display = metrics.UtilityCurveDisplay.from_results(drawn, score=score, model="model", ax=ax)
            display.ax_.set_ylabel(SCORES[score])
            # beside the lines: there may be many
            display.ax_.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)

        caption = f"{data}: {SCORES[score]} against epsilon."
        alt = f"{SCORES[score]} against epsilon on {data}, {n_lines} lines, {span}; the table below has the numbers."
        parts.append(figure(draw, (9.5, max(3.6, 0.8 + 0.19 * n_lines)), alt, caption))
        lines = [
            (model, float(epsilon), len(fits), *(float(fits[name].mean()) for name in scores), float(fits[score].std()))
            for model, line in rows.groupby("model", sort=False)
            for epsilon, fits in line.groupby("epsilon")
        ]
        header = ("model", "epsilon", "fits", *(SCORES[name] for name in scores), f"deviation of {SCORES[score]}")
        parts.append(table(f"Means on {data}", header, lines))
    return section("utility", "Utility against epsilon", *parts, leak(metrics.UtilityCurveDisplay))
