"""How far the rows of each class lie from its mean: one histogram, from which clip bounds and scale mixtures follow."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import label
from scipy.special import gammainc, ndtr

from ..data.scaling import NORM_CELL, bound_of_norms, norm_edges
from ..mechanisms import add_gaussian, class_norm_histogram

__all__ = ["ClassSizes", "learn_class_sizes", "scale_mixture"]

# Share of the rows of a class that its own bound leaves unclipped. The noise falls with the square of the bound; what
# clipping takes of the second moments, the law of the sizes gives back, but not what it takes of the means.
_UNCLIPPED = 0.7
# The public family of laws are normal ones of the logarithm.
_WIDTHS, _PRIOR_WIDTH = (0.25, 0.5, 1.0), 1.5  # octaves
# Most rows are shorter than what nine in ten are.
_TYPICAL = 0.75
_WINDOW = 5
# Levels of one class in the mixture, and steps of the EM algorithm that weighs them.
_MOST_LEVELS, _EM_STEPS = 8, 300


@dataclass(frozen=True, eq=False)
class ClassSizes:
    """Released law of the distance of the rows of each class from its center.

    Parameters
    ----------
    sizes : array of shape (n_cells,)
        Middle of each cell of the histogram.
    law : array of shape (n_classes, n_cells)
        Probabilities.
    bound : array of shape (n_classes,)
        Norm that rows about their center are clipped to.
    """

    sizes: np.ndarray
    law: np.ndarray
    bound: np.ndarray

    def squares(self, *, clipped=False):
        """Mean square of the distances in each class; of the clipped ones if asked for."""
        sizes = np.minimum(self.sizes, self.bound[:, None]) if clipped else self.sizes
        return (self.law * np.square(sizes)).sum(axis=1)


def learn_class_sizes(norms, codes, n_classes, largest, noise_multiplier, rng, neighboring, *, count=None):
    """Release the law of the norms of each class: one histogram, for a row is in one cell of one class.

    Parameters
    ----------
    norms : array of shape (n_samples,)
        Private.
    codes : int array of shape (n_samples,)
        Class of each row; rows with another code are left out.
    n_classes : int
    largest : float
        Public or released; norms above it count in the last cell.
    noise_multiplier : float
    rng : NoiseGenerator
    neighboring : str
    count : float, default=None
        As in `learn_norm_bound`.

    Returns
    -------
    ClassSizes

    Notes
    -----
    A class of so many rows that its cells stand above the noise has its own law. One of few rows has a law of the
    public family, averaged over where and how wide it may be, by how well that agrees with its noisy cells and how near
    it is to where the rows of all classes are; between the two, a mean of both.
    """
    edges = norm_edges(largest, rng)
    counts = class_norm_histogram(norms, codes, n_classes, edges)
    sd = noise_multiplier * counts.sensitivity(neighboring)
    noisy = add_gaussian(counts, noise_multiplier, rng, neighboring).reshape(n_classes, -1)
    pooled = bound_of_norms(noisy.sum(axis=0), sd * n_classes**0.5, edges, largest, count)
    sizes = np.append(edges, edges[-1] * 2**NORM_CELL) * 2 ** (-NORM_CELL / 2)
    if noise_multiplier == 0:
        law = noisy / np.maximum(noisy.sum(axis=1, keepdims=True), 1.0)
        law[law.sum(axis=1) == 0, np.searchsorted(edges, pooled)] = 1.0  # a class without a row
        last = law.shape[1] - 1 - np.argmax(law[:, ::-1] > 0, axis=1)
        return ClassSizes(sizes, law, edges[np.minimum(last, len(edges) - 1)])
    typical = np.log2(_TYPICAL * pooled / sizes[0]) / NORM_CELL
    family = _family(noisy.shape[1])
    law = np.array([_law(row, sd, typical, *family) for row in noisy])
    at = (np.cumsum(law, axis=1) < _UNCLIPPED).sum(axis=1)
    return ClassSizes(sizes, law, edges[np.minimum(at, len(edges) - 1)])


def _family(n_cells):
    """Places and probabilities of the public family of laws."""
    cells = np.arange(n_cells)
    places, widths = (side.ravel()[:, None] for side in np.meshgrid(cells, np.array(_WIDTHS) / NORM_CELL))
    return places[:, 0], ndtr((cells + 0.5 - places) / widths) - ndtr((cells - 0.5 - places) / widths)


def _law(noisy, sd, typical, places, family):
    """Probability of each cell, of the noisy counts of one class."""
    # the likelihood at the number of rows that fits best, and a normal prior of the place
    fit = np.maximum(family @ noisy, 0.0) / np.linalg.norm(family, axis=1)
    log_weight = 0.5 * (fit / sd) ** 2 - 0.5 * np.square((places - typical) * NORM_CELL / _PRIOR_WIDTH)
    weight = np.exp(log_weight - log_weight.max())
    guess = weight @ family / (weight @ family).sum()
    own, seen = _above_noise(noisy, sd)
    if not seen.any():
        return guess
    signal = max(float(np.square(noisy[seen]).sum()) - seen.sum() * sd**2, 0.0)
    share = signal / (signal + seen.sum() * sd**2)
    return share * own / own.sum() + (1 - share) * guess


def _above_noise(noisy, sd):
    """Counts that are no less than zero, and where they are: runs of cells that stand above the noise somewhere."""
    sums = np.convolve(noisy, np.ones(_WINDOW), "same") / (sd * _WINDOW**0.5)
    runs, n_runs = label(sums > 1.5)
    sure = [k for k in range(1, n_runs + 1) if sums[runs == k].max() > 4.0]
    seen = np.isin(runs, sure) & (noisy > 0 if sure else False)
    return np.where(seen, noisy, 0.0), seen


def scale_mixture(latents, sizes, most):
    """Give each class several levels of size in the place of one: the same Gaussian at several scales.

    Parameters
    ----------
    latents : ClassLatents
        Their covariances have the mean squares of `sizes`.
    sizes : ClassSizes
    most : int
        Levels of a class at most.

    Returns
    -------
    mixture : GaussianMixtureParameters
        The levels of a class side by side.
    scales : array of shape (n_classes * levels,)
        Mean square distance of each level's rows.
    levels : int
        Of each class.
    """
    mixture, squares = latents.mixture, sizes.squares()
    most = max(1, min(_MOST_LEVELS, most))
    found = [_levels(law, sizes.sizes, covariance, most) for law, covariance in zip(sizes.law, mixture.covariances)]
    levels = max(len(weights) for weights, _ in found)
    weights, scales = (np.zeros((len(found), levels)) for _ in range(2))
    for k, (weight, scale) in enumerate(found):
        weights[k, : len(weight)] = weight
        scales[k] = squares[k]  # of levels that nothing is drawn of
        scales[k, : len(weight)] = scale * squares[k] / (weight @ scale)
    covariances = (scales / squares[:, None])[:, :, None, None] * mixture.covariances[:, None]
    return (
        replace(
            mixture,
            weights=(mixture.weights[:, None] * weights).ravel(),
            means=np.repeat(mixture.means, levels, axis=0),
            covariances=covariances.reshape(-1, *mixture.covariances.shape[1:]),
        ),
        scales.ravel(),
        levels,
    )


def _levels(law, sizes, covariance, most):
    """Weights and squared scales of a mixture of Gaussians of one shape whose norms follow `law`: deconvolved by EM."""
    values = np.maximum(np.linalg.eigvalsh(covariance), 0.0)
    values /= max(values.max(), 1e-300)
    freedom = values.sum() ** 2 / np.square(values).sum()  # of the chi-square like the squared norm
    within = np.flatnonzero(law > 1e-6)
    scales = sizes[max(within[0] - 4, 0) : within[-1] + 5 : 2] ** 2
    edges = np.square(sizes) * 2**NORM_CELL
    reach = gammainc(freedom / 2, freedom / 2 * edges[:, None] / scales)
    chance = np.diff(reach, axis=0, prepend=0.0)
    weights = np.full(len(scales), 1 / len(scales))
    for _ in range(_EM_STEPS):
        weights = weights * ((law / np.maximum(chance @ weights, 1e-300)) @ chance)
    kept = weights > 1e-3 * weights.sum()
    weights, scales = weights[kept] / weights[kept].sum(), scales[kept]
    while len(weights) > most:  # the two neighbours that are nearest become one
        pair = weights[:-1] * weights[1:] / (weights[:-1] + weights[1:]) * np.square(np.diff(np.log(scales)))
        i = int(np.argmin(pair))
        both = weights[i] + weights[i + 1]
        scales[i] = (weights[i : i + 2] @ scales[i : i + 2]) / both
        weights[i] = both
        weights, scales = np.delete(weights, i + 1), np.delete(scales, i + 1)
    return weights, scales
