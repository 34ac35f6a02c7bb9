"""Class Gaussians of released moments and norms, and the linear decoder: functions of released values alone."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.ndimage import label
from scipy.special import gammainc, ndtr, ndtri

from ..data.image_poses import N_POSE
from ..data.scaling import NORM_CELL, Box, bound_of_norms
from ..mixture import GaussianMixtureParameters
from ..utils.file_checks import check_mixture, check_whole
from ..utils.progress import progress_bar

# Most numbers in all covariances together: they are kept in memory and released.
MOST_NUMBERS = 1 << 24
_SMALLEST_VARIANCE = 1e-9
# Rows that are decoded at a time.
_CHUNK_ROWS = 8192

# Columns from which second moments are most of what is released, and noise most of what they hold.
_WIDE = 100
# Noise in the second moments of a class of average size, as a share of their trace, above which the shapes of classes
# are not distinguished. At epsilon 1, tables of 617 (.044) and 784 columns (.049) are then modelled better; one of 178
# columns (.016), whose classes differ most in their covariances, keeps a covariance of each class.
_HIDDEN = 0.03

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
MOST_SUBCLUSTERS = 2**_MOST_DIRECTIONS
# Share of normally distributed rows that are not clipped; rows of images have heavier tails.
_INSIDE = 0.85


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """A released affine map between scaled rows and latents."""

    center: np.ndarray  # (n_features,); in the unit box
    basis: np.ndarray  # (n_features, n_latent); orthonormal columns

    def encode(self, scaled, product=np.matmul):
        """Latent of scaled rows, shape (n_samples, n_latent); `product`: of rows less the center, and the basis."""
        return product(scaled - self.center, self.basis)

    def decode(self, latent):
        """Scaled rows, shape (n_samples, n_features); not clipped."""
        return latent @ self.basis.T + self.center


def latent_state(space, mixture):
    """Return the arrays of a space and of a mixture in it, for a release file."""
    return {
        "center": space.center,
        "basis": space.basis,
        "weights": mixture.weights,
        "means": mixture.means,
        "covariances": mixture.covariances,
        "covariance_type": mixture.covariance_type,
    }


def latent_of(state):
    """Rebuild the space and the mixture from `latent_state`; ValueError unless the mixture is one."""
    mixture = GaussianMixtureParameters(
        state["weights"], state["means"], state["covariances"], state["covariance_type"]
    )
    return LatentSpace(state["center"], state["basis"]), check_mixture(mixture)


class ClassLatents(NamedTuple):
    """Released Gaussian of the rows of each class."""

    counts: np.ndarray  # (n_classes,); at least 1
    means: np.ndarray  # (n_classes, d)
    mean: np.ndarray  # (d,)
    components: np.ndarray  # (d, n_components); leading eigenvectors of the pooled covariance within classes
    mixture: GaussianMixtureParameters  # one component a class in that space, about `mean`
    # mean variance of the directions left out, at least what the noise could hide, in units of the mean square
    # distances `squares` (see `class_latents`)
    residual_variance: float
    # standard deviation that any direction may have in addition to what is released: what the noise could hide, at most
    # a tenth of the variance of an average direction; in units of the roots of `squares`. 0 without noise.
    dither: float


def floored(counts):
    """Return noisy counts, raised to at least a twentieth of their mean and to at least 1."""
    return np.maximum(counts, max(1.0, 0.05 * float(np.mean(counts))))


def class_latents(moments, centers, noise_sd, mean_noise_sd, n_components, squares=1.0):
    """Compute principal components and one Gaussian a class from class moments, shrunk by their known noise.

    `moments`: released, with a leading axis of classes; of rows less the center of their class.
    `centers` (n_classes, d): released.
    `noise_sd`, one or (n_classes,): standard deviation of the noise on a diagonal entry of ``moments.second``; off the
        diagonal it is smaller by sqrt(2).
    `mean_noise_sd`, one or (n_classes,): standard deviation of the noise on an entry of ``moments.sum``.
    `squares`, one or (n_classes,): released mean square distance of the rows of each class from its center. Covariances
        are divided by it before they are compared, so that a class of long rows does not dominate the others.

    Eigenvalues of a noisy symmetric matrix are too spread; each is moved back by twice the noise variance times the
    Hilbert transform of the spectrum (the oracle estimator for additive Wigner noise of Bun, Allez, Bouchaud and
    Potters, "Rotational invariant estimator for general noisy matrices", 2016). The difference between the covariance
    of a class and the pooled one is shrunk entry by entry, by empirical Bayes with one variance learned over all
    entries. The difference between its mean and the common mean is shrunk column by column.
    """
    counts = np.maximum(moments.count, 1.0)
    share = counts / counts.sum()
    squares = np.broadcast_to(np.asarray(squares, dtype=np.float64), counts.shape)
    shift = moments.sum / counts[:, None]
    covariances = moments.second / counts[:, None, None] - shift[:, :, None] * shift[:, None, :]
    covariances /= squares[:, None, None]
    means = shrink_means(centers + shift, share, mean_noise_sd / counts)
    mean = share @ means
    sd = noise_sd / counts / squares
    vectors, covariances, residual, dither = _class_covariances(covariances, sd, share, n_components)
    covariances = covariances * squares[:, None, None]
    mixture = GaussianMixtureParameters(share, (means - mean) @ vectors, covariances, "full")
    return ClassLatents(counts, means, mean, vectors, mixture, residual, dither)


def _class_covariances(covariances, sd, share, n_components):
    """Principal components, the shrunk covariances in their space, and the variance and dither of what is left out."""
    pooled = np.tensordot(share, covariances, 1)
    pooled_variance = float(((share * sd) ** 2).sum())
    vectors, cleaned = _leading(pooled, pooled_variance, n_components)
    k = vectors.shape[1]
    # the noise on a variance is the least variance that a direction is known to have
    residual = max(float(cleaned[k:].mean()) if k < len(cleaned) else 0.0, pooled_variance**0.5, 1e-6)
    dither = min(pooled_variance**0.5, 0.1 * float(cleaned.mean())) ** 0.5
    common = np.diag(cleaned[:k])
    own = vectors.T @ (covariances - pooled) @ vectors
    return vectors, _positive(common + _shrink(own, common, sd, share, pooled_variance)), residual, dither


def _leading(second, variance, n_components):
    """Leading eigenvectors, and all eigenvalues without the effect of noise of `variance` on a diagonal entry."""
    values, vectors = np.linalg.eigh(second)
    return np.ascontiguousarray(vectors[:, ::-1][:, :n_components]), clean_eigenvalues(values[::-1], variance / 2)


def shrink_means(means, share, sd):
    """Shrink class means to the common mean, column by column, by the part of their spread that is noise.

    This is the estimator of James and Stein; it needs four classes.
    """
    n_classes = len(means)
    if n_classes < 4:
        return means
    mean = share @ means
    gap = means - mean
    noise = (n_classes - 3) * float(np.mean(sd**2))
    return mean + gap * np.clip(1 - noise / np.maximum((gap**2).sum(axis=0), 1e-300), 0.0, 1.0)


def clean_eigenvalues(values, variance):
    """Eigenvalues without the effect of noise of `variance` on each off-diagonal entry; decreasing and positive."""
    d = len(values)
    if variance > 0 and d > 1:
        width = 2 * np.sqrt(variance * d) * d**-0.5
        gaps = values[:, None] - values[None, :]
        values = values - 2 * variance * (gaps / (gaps * gaps + width * width)).sum(axis=1)
    return np.minimum.accumulate(np.maximum(values, _SMALLEST_VARIANCE))


def _shrink(own, common, sd, share, pooled_variance):
    """Shrink the differences of class covariances from the pooled one by the part of them that is noise."""
    diagonal = np.eye(len(common), dtype=bool)
    noise = (sd**2 * (1 - 2 * share) + pooled_variance)[:, None, None] * np.where(diagonal, 1.0, 0.5)
    if not noise.min() > 0:
        return own
    size = np.maximum(np.diag(common), _SMALLEST_VARIANCE)
    scale = np.outer(size, size) * np.where(diagonal, 2.0, 1.0)
    ratio = scale / noise
    weight = (ratio / ratio.max()) ** 2
    spread = max(float((weight * (own**2 - noise) / scale).sum() / weight.sum()), 0.0)
    return own * (spread * scale / (spread * scale + noise))


def _positive(covariances):
    values, vectors = np.linalg.eigh((covariances + np.swapaxes(covariances, 1, 2)) / 2)
    floor = np.maximum(values.max(axis=1, keepdims=True) * 1e-6, _SMALLEST_VARIANCE)
    return (vectors * np.maximum(values, floor)[:, None, :]) @ np.swapaxes(vectors, 1, 2)


# ---- one common shape of all classes, for wide rows --------------------------------------------------------------
def hides_shapes(row_count, n_classes, d, noise_of_rows):
    """Whether the noise would hide how the covariances of classes differ: then one is released for all of them.

    The largest eigenvalue of the noise in the second moments of a class is about `noise_of_rows` times sqrt(2 d), where
    a row adds at most 1 to their trace.

    `row_count`: released. `n_classes`, `d`: public or released: numbers of classes and of columns. `noise_of_rows`:
    standard deviation of the noise, relative to what a row adds.
    """
    of_class = max(row_count, 1.0) / n_classes
    return n_classes > 1 and d >= _WIDE and noise_of_rows * math.sqrt(2 * d) > _HIDDEN * of_class


def shrink_centers(centers, counts, noise_sd):
    """Shrink noisy class means to the mean of all rows, each by the part of its distance from it that is noise.

    Rows are then nearer to the center of their class where its noise is longer than its distance from the others.

    `centers`: shape (n_classes, d). `counts` (n_classes,): positive. `noise_sd`: standard deviation of the noise on an
    entry of a sum.
    """
    mean = counts @ centers / counts.sum()
    gap = centers - mean
    noise = centers.shape[1] * np.square(noise_sd / counts)
    kept = np.clip(1 - noise / np.maximum(np.square(gap).sum(axis=1), 1e-300), 0.0, 1.0)
    return mean + kept[:, None] * gap


def shared_latents(moments, share, centers, noise_sd, mean_noise_sd, n_components, squares):
    """Compute principal components and class Gaussians that differ in mean and mean square alone.

    `moments`: released: `count` (at least 1) and `sum` of each class, about its center; `second` of shape (d, d), the
        mean of x x^T over all rows, each divided by the root mean square of its class.
    `share` (n_classes,): part of each class in `second`; sums to 1.
    `centers` (n_classes, d): released.
    `noise_sd`: standard deviation of the noise on a diagonal entry of ``moments.second``; off the diagonal it is
        smaller by sqrt(2).
    `mean_noise_sd` (n_classes,): standard deviation of the noise on an entry of ``moments.sum``.
    `squares` (n_classes,): released mean square distance of the rows of each class from its center.
    Returns ClassLatents: every direction has the variance that is left over: `dither`, which the components are drawn
        in addition to.
    """
    counts = moments.count
    shift = moments.sum / counts[:, None]
    between = np.einsum("k,ki,kj->ij", share / squares, shift, shift, optimize=True)
    means = shrink_means(centers + shift, counts / counts.sum(), mean_noise_sd / counts)
    vectors, cleaned = _leading(moments.second - between, noise_sd**2, n_components)
    k = vectors.shape[1]
    residual = max(float(cleaned[k:].mean()) if k < len(cleaned) else float(cleaned[-1]), 1e-6)
    own = np.diag(np.maximum(cleaned[:k] - residual, 1e-3 * residual))
    weights = counts / counts.sum()
    mean = weights @ means
    # distances from the center of the class are longer than those from its mean
    apart = np.maximum(np.square(shift).sum(axis=1) - shift.shape[1] * np.square(mean_noise_sd / counts), 0.0)
    within = np.maximum(squares - apart, 0.2 * squares)
    covariances = (within / max(float(cleaned.sum()), 1e-6))[:, None, None] * own
    mixture = GaussianMixtureParameters(weights, (means - mean) @ vectors, covariances, "full")
    return ClassLatents(counts, means, mean, vectors, mixture, residual, residual**0.5)


# ---- the linear decoder ------------------------------------------------------------------------------------------
def column_variances(space, mixture):
    """Variance of each scaled column in each component, shape (n_components, n_features)."""
    # as products of matrices, which take a tenth of the time of one sum over all indices
    return np.array([((space.basis @ each) * space.basis).sum(axis=1) for each in full_covariances(mixture)])


def class_weights(weights, per_class):
    """Weight of each class, whose `per_class` components are consecutive in `weights`."""
    return weights.reshape(-1, per_class).sum(axis=1)


def image_contrast(grey_share):
    """Choose `variance_gain` for images from the released share of pixels that are neither near black nor near white.

    Pen strokes (on MNIST 9 % of the pixels are grey) are sharp where the variance after clipping is three times that of
    the latent Gaussians. Photographs and clothes (40 % and more) need no gain: None.
    """
    gain = 0.25 / max(grey_share, 1e-6)
    return None if gain <= 1 else min(gain, 3.0)


class LinearGenerator:
    """Sample a latent Gaussian of the row's component, decode it through the inverse PCA, clip to the unit box.

    Clipping pulls means away from the bounds and shrinks variances. The normal distribution of each column is therefore
    changed first, component by component, so that after clipping it has the released mean and variance. On images this
    turns grey areas into strokes.

    `component_means` (n_components, n_features): released mean of the scaled rows of each component.
    `low`, `high` (n_features,): the box of scaled rows.
    `variance_gain`, one or (n_features,): variance after clipping divided by that of the latent Gaussian; more than 1
        raises the contrast. None: normal distributions are clipped without a change.
    `dither`, one or (n_components,): standard deviation of white noise on every column. It stands for the variance that
        the noise of the release may have hidden: a model trained on rows that lack all variance in a direction would
        rely on that direction.
    `per_class`: components of each class (scales or sub-clusters), consecutive in the mixture.
    `cleaned`: the first columns are images of this shape: pixels that stand out from all their neighbours are drawn to
        them (see `without_speckles`). A raised contrast turns little noise into such pixels. None: they stay.
    """

    def __init__(
        self, space, mixture, component_means, low, high, variance_gain=1.0, dither=0.0, per_class=1, cleaned=None
    ):
        self.cleaned = None if cleaned is None else tuple(cleaned)
        self.space, self.mixture, self.component_means = space, mixture, component_means
        self.box, self.variance_gain, self.per_class = Box(low, high), variance_gain, per_class
        self.dither = np.broadcast_to(np.asarray(dither, dtype=np.float64), len(component_means))
        if variance_gain is None:
            self.location, self.gain = component_means, np.ones_like(component_means)
            return
        box, width, variance = self.box, self.box.width, column_variances(space, mixture)
        location, deviation = match_clipped_normal(box.to_unit(component_means), variance_gain * variance / width**2)
        self.location = box.from_unit(location)
        self.gain = deviation * width / np.sqrt(np.maximum(variance, 1e-300))

    def unmoved(self):
        """The generator without moves to features: itself, as it has none."""
        return self

    def draw_components(self, classes, rng, weights=None):
        """Draw the component of each row of given classes; `weights` replace those of the mixture."""
        if self.per_class == 1:
            return classes
        weights = np.asarray(self.mixture.weights if weights is None else weights).reshape(-1, self.per_class)
        bounds = np.cumsum(weights, axis=1)
        drawn = rng.random(len(classes)) * bounds[classes, -1]
        at = (drawn[:, None] >= bounds[classes]).sum(axis=1)
        return classes * self.per_class + np.minimum(at, self.per_class - 1)

    def sample(self, classes, rng):
        """Draw scaled rows of shape (n_samples, n_features), float32, for rows of given classes."""
        components = self.draw_components(classes, rng)
        rows = np.empty((len(components), len(self.box.low)), dtype=np.float32)
        roots = np.linalg.cholesky(full_covariances(self.mixture))
        with self.bar(len(rows)) as bar:
            for k in np.unique(components):
                where = np.flatnonzero(components == k)
                for part in np.split(where, np.arange(_CHUNK_ROWS, len(where), _CHUNK_ROWS)):
                    latent = rng.standard_normal((len(part), len(roots[k]))) @ roots[k].T
                    rows[part] = self.decode_clipped(k, latent, rng)
                    bar.update(len(part))
        return rows

    def bar(self, n_rows):
        """A progress bar of `sample`; where decoding is a product of matrices, there is none to see."""
        return progress_bar(total=n_rows, phase="drawing", shown=False)

    def decode_clipped(self, k, latent, rng, shift=0.0):
        """Scaled rows of component `k` from its latents, inside the box; `shift` is added before they are clipped."""
        drawn = self.location[k] + self.gain[k] * (latent @ self.space.basis.T)
        drawn += shift
        np.clip(drawn, *self.box, out=drawn)
        if self.dither[k] > 0:
            drawn += self.dither[k] * rng.standard_normal(drawn.shape)
        np.clip(drawn, *self.box, out=drawn)
        if self.cleaned is None:
            return drawn
        unit, n_pixels = self.box.to_unit(drawn), math.prod(self.cleaned)
        unit[:, :n_pixels] = without_speckles(unit[:, :n_pixels], self.cleaned)
        return self.box.from_unit(unit)

    def to_state(self):
        """Return arrays for a release file."""
        return {
            **latent_state(self.space, self.mixture),
            "component_means": self.component_means,
            "low": self.box.low,
            "high": self.box.high,
            "variance_gain": self.variance_gain,
            "dither": self.dither,
            "cells": self.per_class,
            "cleaned": None if self.cleaned is None else list(self.cleaned),
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        space, mixture = latent_of(state)
        box = (state["low"], state["high"])
        look = (state["variance_gain"], state["dither"], state.get("cells", 1))
        cleaned = state.get("cleaned")
        if cleaned is not None:
            cleaned = tuple(check_whole(side, "cleaned", 1, 100_000) for side in cleaned)
            if (
                len(cleaned) not in (2, 3)
                or len(box[0]) - math.prod(cleaned) not in (0, N_POSE)
                or max(cleaned[:2]) < 2
            ):
                raise ValueError("the shape of the images does not fit their columns")
        return cls(space, mixture, state["component_means"], *box, *look, cleaned)


def full_covariances(mixture):
    """Covariance of each component, shape (n_components, n_latent, n_latent)."""
    if mixture.covariance_type == "full":
        return mixture.covariances
    return np.stack([np.diag(row) for row in mixture.covariances])


def match_clipped_normal(mean, variance):
    """Find location and deviation of the normal distributions that have given moments after clipping to [0, 1].

    The moments, arrays of one shape, are first moved into the range that a distribution on [0, 1] can have.
    """
    mean = np.clip(mean, 1e-3, 1 - 1e-3)
    variance = np.clip(variance, 1e-6, 0.95 * mean * (1 - mean))
    narrow, wide = np.full(mean.shape, np.log(1e-3)), np.full(mean.shape, np.log(3.0))
    for _ in range(22):  # bisection of the deviation, and inside it of the location
        deviation = np.exp((narrow + wide) / 2)
        location = _locate(mean, deviation)
        less = _clipped_moments(location, deviation)[1] < variance
        narrow, wide = np.where(less, np.log(deviation), narrow), np.where(less, wide, np.log(deviation))
    return location, deviation


def _locate(mean, deviation):
    low, high = -6 * deviation, 1 + 6 * deviation
    for _ in range(25):
        location = (low + high) / 2
        less = _clipped_moments(location, deviation)[0] < mean
        low, high = np.where(less, location, low), np.where(less, high, location)
    return location


def _clipped_moments(location, deviation):
    """Mean and variance of clip(N(location, deviation^2), 0, 1)."""
    a, b = -location / deviation, (1 - location) / deviation
    density_a, density_b = (np.exp(-0.5 * t * t) / np.sqrt(2 * np.pi) for t in (a, b))
    inside, above = ndtr(b) - ndtr(a), ndtr(-b)
    mean = location * inside + deviation * (density_a - density_b) + above
    square = (
        (location**2 + deviation**2) * inside
        + 2 * location * deviation * (density_a - density_b)
        + deviation**2 * (a * density_a - b * density_b)
        + above
    )
    return mean, np.maximum(square - mean**2, 0.0)


# ---- structure inside a class: the class-wise norm distribution, and sub-clusters of images ------------------
@dataclass(frozen=True, eq=False)
class ClassNorms:
    """Released distribution of the distance between the rows of each class and its center."""

    norms: np.ndarray  # (n_cells,); middle of each cell of the histogram
    probabilities: np.ndarray  # (n_classes, n_cells)
    bound: np.ndarray  # (n_classes,); norm to which rows about their center are clipped

    def squares(self, *, clipped=False):
        """Mean square distance in each class; of the clipped rows if `clipped`."""
        norms = np.minimum(self.norms, self.bound[:, None]) if clipped else self.norms
        return (self.probabilities * np.square(norms)).sum(axis=1)


def class_norms(noisy, sd, edges, largest, count=None):
    """Estimate the norm distribution of each class from its noisy histogram.

    A class with many rows has the shape of its noisy histogram where that exceeds the noise. A class with few rows has
    an average over the public family, weighted by how well each distribution agrees with the noisy counts and how near
    it is to the norms of all classes. In between, the two are averaged.

    `noisy` (n_classes, n_edges + 1): released. `sd`, `edges`, `largest`, `count`: see `bound_of_norms`.
    """
    pooled = bound_of_norms(noisy.sum(axis=0), sd * len(noisy) ** 0.5, edges, largest, count, about_mean=True)
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

    The covariances of `latents` (ClassLatents) have the mean squares of `norms` (ClassNorms). A class has `most` scales
    or fewer.

    Returns `mixture`: the scales of a class are consecutive components; `squares` (n_classes * n_scales,): mean square
    distance of the rows of each component; `n_scales`: components of each class.
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


def cut_directions(counts, noise_multiplier, d, rows_of_subcluster=_ROWS_OF_SUBCLUSTER):
    """Number of directions to cut classes along, 0 to 3 (8 sub-clusters), from the released counts of the classes.

    Classes with few rows are cut less: sub-clusters have `rows_of_subcluster` for every unit of noise, on average. So
    are classes whose second moments in `d` dimensions would need much memory.
    """
    subclusters = float(np.mean(counts)) / (rows_of_subcluster * max(noise_multiplier, 0.1))
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


# ---- single pixels that stand out from all their neighbours ---------------------------------------------------------
# On smaller images one pixel may be a part of what they show.
SMALLEST_SIDE = 16


def without_speckles(images, image_shape):
    """Clip each pixel to the range of its eight neighbours in the same channel.

    Edges, strokes and areas stay as they are: a pixel of them has a neighbour at least as bright and one at least as
    dark. On MNIST this changes one pixel in two hundred, by a fiftieth of the range on average.

    `images`: shape (n_images, height * width * channels). `image_shape`: at least two pixels high or wide. Returns an
    array of shape (n_images, height * width * channels).
    """
    height, width, _ = shape = (*image_shape, 1)[:3]
    pixels = images.reshape(-1, *shape)
    low, high = np.full_like(pixels, np.inf), np.full_like(pixels, -np.inf)
    for down, across in itertools.product((-1, 0, 1), repeat=2):
        if down or across:
            here = _overlap(height, down), _overlap(width, across)
            there = _overlap(height, -down), _overlap(width, -across)
            neighbours = pixels[:, there[0], there[1]]
            for found, extreme in ((low, np.minimum), (high, np.maximum)):
                part = found[:, here[0], here[1]]
                extreme(part, neighbours, out=part)
    return np.clip(pixels, low, high).reshape(images.shape)


def _overlap(n, shift):
    """Places of n whose neighbour, `shift` places before, is one of them too."""
    return slice(max(shift, 0), n + min(shift, 0))
