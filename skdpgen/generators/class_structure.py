"""Structure inside a class, from released values alone: the class-wise norm distribution and sub-clusters of images."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import label
from scipy.special import gammainc, ndtr, ndtri

from ..data.scaling import NORM_CELL, bound_of_norms
from .gaussians import MOST_NUMBERS

__all__ = ["ClassNorms", "class_norms", "cut_directions", "normal_radius", "scale_mixture"]

# Share of the rows of a class that its bound leaves unclipped. The noise falls with the square of the bound. The norm
# distribution corrects the second moments for the clipping; nothing corrects the means.
_UNCLIPPED = 0.7
# The public family: normal distributions of the logarithm of the norm, and the prior width of their place, in octaves.
_WIDTHS, _PRIOR_WIDTH = (0.25, 0.5, 1.0), 1.5
# Centre of that prior, as a share of the norm that nine rows in ten do not exceed: most rows are shorter.
_TYPICAL = 0.75
# Histogram cells that are added before they are compared with the noise.
_WINDOW = 5
# Scales of one class in the mixture, and steps of the EM algorithm that weighs them.
_MOST_SCALES, _EM_STEPS = 8, 300

# A class is cut along at most so many directions, and into at most as many sub-clusters as have so many rows each for
# every unit of noise.
_MOST_DIRECTIONS, _ROWS_OF_SUBCLUSTER = 3, 700
# Share of normally distributed rows that are not clipped; rows of images have heavier tails.
_INSIDE = 0.85


@dataclass(frozen=True, eq=False)
class ClassNorms:
    """Released distribution of the distance between the rows of each class and its center.

    Parameters
    ----------
    norms : array of shape (n_cells,)
        Middle of each cell of the histogram.
    probabilities : array of shape (n_classes, n_cells)
    bound : array of shape (n_classes,)
        Norm to which rows about their center are clipped.
    """

    norms: np.ndarray
    probabilities: np.ndarray
    bound: np.ndarray

    def squares(self, *, clipped=False):
        """Mean square distance in each class; of the clipped rows if `clipped`."""
        norms = np.minimum(self.norms, self.bound[:, None]) if clipped else self.norms
        return (self.probabilities * np.square(norms)).sum(axis=1)


def class_norms(noisy, sd, edges, largest, count=None):
    """Estimate the norm distribution of each class from its noisy histogram.

    A class with many rows has the shape of its noisy histogram where that exceeds the noise. A class with few rows has
    an average over the public family, weighted by how well each distribution agrees with the noisy counts and how near
    it is to the norms of all classes. In between, the two are averaged.

    Parameters
    ----------
    noisy : array of shape (n_classes, n_edges + 1)
        Released.
    sd, edges, largest, count
        See `bound_of_norms`.

    Returns
    -------
    ClassNorms
    """
    pooled = bound_of_norms(noisy.sum(axis=0), sd * len(noisy) ** 0.5, edges, largest, count)
    norms = np.append(edges, edges[-1] * 2**NORM_CELL) * 2 ** (-NORM_CELL / 2)
    if sd == 0:
        found = noisy / np.maximum(noisy.sum(axis=1, keepdims=True), 1.0)
        found[found.sum(axis=1) == 0, np.searchsorted(edges, pooled)] = 1.0  # a class without a row
        last = found.shape[1] - 1 - np.argmax(found[:, ::-1] > 0, axis=1)
        return ClassNorms(norms, found, edges[np.minimum(last, len(edges) - 1)])
    typical = np.log2(_TYPICAL * pooled / norms[0]) / NORM_CELL
    family = _family(noisy.shape[1])
    found = np.array([_norm_probabilities(row, sd, typical, *family) for row in noisy])
    at = (np.cumsum(found, axis=1) < _UNCLIPPED).sum(axis=1)
    return ClassNorms(norms, found, edges[np.minimum(at, len(edges) - 1)])


def _family(n_cells):
    """Places and probabilities of the public family of distributions."""
    cells = np.arange(n_cells)
    places, widths = (side.ravel()[:, None] for side in np.meshgrid(cells, np.array(_WIDTHS) / NORM_CELL))
    return places[:, 0], ndtr((cells + 0.5 - places) / widths) - ndtr((cells - 0.5 - places) / widths)


def _norm_probabilities(noisy, sd, typical, places, family):
    """Probability of each cell from the noisy counts of one class."""
    # the likelihood at the number of rows that fits best, and a normal prior of the place
    fit = np.maximum(family @ noisy, 0.0) / np.linalg.norm(family, axis=1)
    log_weight = 0.5 * (fit / sd) ** 2 - 0.5 * np.square((places - typical) * NORM_CELL / _PRIOR_WIDTH)
    weight = np.exp(log_weight - log_weight.max())
    guess = weight @ family / (weight @ family).sum()
    counts, seen = _above_noise(noisy, sd)
    if not seen.any():
        return guess
    signal = max(float(np.square(noisy[seen]).sum()) - seen.sum() * sd**2, 0.0)
    share = signal / (signal + seen.sum() * sd**2)
    return share * counts / counts.sum() + (1 - share) * guess


def _above_noise(noisy, sd):
    """Non-negative counts, and the cells that have them: runs of cells that exceed the noise somewhere."""
    sums = np.convolve(noisy, np.ones(_WINDOW), "same") / (sd * _WINDOW**0.5)
    runs, n_runs = label(sums > 1.5)
    sure = [k for k in range(1, n_runs + 1) if sums[runs == k].max() > 4.0]
    seen = np.isin(runs, sure) & (noisy > 0 if sure else False)
    return np.where(seen, noisy, 0.0), seen


def scale_mixture(latents, norms, most):
    """Replace the Gaussian of each class by a mixture of the same Gaussian at several scales.

    The covariances of `latents` (ClassLatents) have the mean squares of `norms` (ClassNorms). A class has `most`
    scales or fewer.

    Returns
    -------
    mixture : GaussianMixtureParameters
        The scales of a class are consecutive components.
    squares : array of shape (n_classes * n_scales,)
        Mean square distance of the rows of each component.
    n_scales : int
        Components of each class.
    """
    mixture, squares = latents.mixture, norms.squares()
    most = max(1, min(_MOST_SCALES, most))
    found = [
        _scales(p, norms.norms, covariance, most) for p, covariance in zip(norms.probabilities, mixture.covariances)
    ]
    n_scales = max(len(weights) for weights, _ in found)
    weights, scales = (np.zeros((len(found), n_scales)) for _ in range(2))
    for k, (weight, scale) in enumerate(found):
        weights[k, : len(weight)] = weight
        scales[k] = squares[k]  # of components without weight
        scales[k, : len(weight)] = scale * squares[k] / (weight @ scale)
    covariances = (scales / squares[:, None])[:, :, None, None] * mixture.covariances[:, None]
    return (
        replace(
            mixture,
            weights=(mixture.weights[:, None] * weights).ravel(),
            means=np.repeat(mixture.means, n_scales, axis=0),
            covariances=covariances.reshape(-1, *mixture.covariances.shape[1:]),
        ),
        scales.ravel(),
        n_scales,
    )


def _scales(probabilities, norms, covariance, most):
    """Weights and squared scales of a mixture of one Gaussian whose norms have the given distribution, by EM."""
    values = np.maximum(np.linalg.eigvalsh(covariance), 0.0)
    values /= max(values.max(), 1e-300)
    freedom = values.sum() ** 2 / np.square(values).sum()  # of the chi-square distribution like the squared norm
    within = np.flatnonzero(probabilities > 1e-6)
    scales = norms[max(within[0] - 4, 0) : within[-1] + 5 : 2] ** 2
    edges = np.square(norms) * 2**NORM_CELL
    reach = gammainc(freedom / 2, freedom / 2 * edges[:, None] / scales)
    chance = np.diff(reach, axis=0, prepend=0.0)
    weights = np.full(len(scales), 1 / len(scales))
    for _ in range(_EM_STEPS):
        weights = weights * ((probabilities / np.maximum(chance @ weights, 1e-300)) @ chance)
    kept = weights > 1e-3 * weights.sum()
    weights, scales = weights[kept] / weights[kept].sum(), scales[kept]
    while len(weights) > most:  # the two nearest neighbours become one
        pair = weights[:-1] * weights[1:] / (weights[:-1] + weights[1:]) * np.square(np.diff(np.log(scales)))
        i = int(np.argmin(pair))
        both = weights[i] + weights[i + 1]
        scales[i] = (weights[i : i + 2] @ scales[i : i + 2]) / both
        weights[i] = both
        weights, scales = np.delete(weights, i + 1), np.delete(scales, i + 1)
    return weights, scales


def cut_directions(counts, noise_multiplier, d):
    """Number of directions to cut classes along, 0 to 3 (8 sub-clusters), from the released counts of the classes.

    Classes with few rows are cut less. So are classes whose covariances in `d` dimensions would need much memory.
    """
    subclusters = float(np.mean(counts)) / (_ROWS_OF_SUBCLUSTER * max(noise_multiplier, 0.1))
    subclusters = min(subclusters, MOST_NUMBERS / (len(counts) * d**2))
    return int(np.clip(np.floor(np.log2(max(subclusters, 1.0))), 0, _MOST_DIRECTIONS))


def normal_radius(weights, values, spread):
    """Norm to clip rows about the center of their sub-cluster to, from the released covariances of the classes.

    A share of `_INSIDE` of normally distributed rows is within it. It is at least the root mean square distance of the
    widest class, however few rows that class has.
    """
    within = values.sum(axis=1) - (2 / np.pi) * np.square(spread).sum(axis=1)
    deviation = np.sqrt(2 * np.square(values).sum(axis=1))
    squares = within[:, None] + deviation[:, None] * ndtri(np.linspace(0.005, 0.995, 100))
    order = np.argsort(squares, axis=None)
    share = np.cumsum(np.repeat(np.maximum(weights, 0.0), squares.shape[1])[order])
    at = np.searchsorted(share, _INSIDE * share[-1])
    return max(float(squares.ravel()[order[at]]), float(within.max())) ** 0.5
