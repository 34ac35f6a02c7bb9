"""Class Gaussians in the space of the released principal components, and the linear decoder: post-processing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ..mixture import GaussianMixtureParameters
from ..utils.file_checks import check_mixture

__all__ = [
    "MOST_NUMBERS",
    "ClassLatents",
    "LatentSpace",
    "LinearGenerator",
    "class_latents",
    "class_weights",
    "floored",
    "full_covariances",
    "image_contrast",
    "match_clipped_normal",
]

# Most numbers in all covariances together: they are kept in memory and released.
MOST_NUMBERS = 1 << 24
_SMALLEST_VARIANCE = 1e-9
# Rows that are decoded at a time.
_CHUNK_ROWS = 8192


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """A released affine map between scaled rows and latents.

    Parameters
    ----------
    center : array of shape (n_features,)
        In the unit box.
    basis : array of shape (n_features, n_latent)
        Orthonormal columns.
    """

    center: np.ndarray
    basis: np.ndarray

    def encode(self, scaled):
        """Latent of scaled rows, shape (n_samples, n_latent)."""
        return (scaled - self.center) @ self.basis

    def decode(self, latent):
        """Scaled rows, shape (n_samples, n_features); not clipped."""
        return latent @ self.basis.T + self.center


class ClassLatents(NamedTuple):
    """Released Gaussian of the rows of each class.

    Attributes
    ----------
    counts : array of shape (n_classes,)
        At least 1.
    means : array of shape (n_classes, d)
    mean : array of shape (d,)
    components : array of shape (d, n_components)
        Leading eigenvectors of the pooled covariance within classes.
    mixture : GaussianMixtureParameters
        One component a class in that space, about `mean`.
    residual_variance : float
        Mean variance of the directions left out, at least what the noise could hide, in units of the mean square
        distances `squares` (see `class_latents`).
    dither : float
        Standard deviation that any direction may have in addition to what is released: what the noise could hide, at
        most a tenth of the variance of an average direction; in units of the roots of `squares`. 0 without noise.
    """

    counts: np.ndarray
    means: np.ndarray
    mean: np.ndarray
    components: np.ndarray
    mixture: GaussianMixtureParameters
    residual_variance: float
    dither: float


def floored(counts):
    """Return noisy counts, raised to at least a twentieth of their mean and to at least 1."""
    return np.maximum(counts, max(1.0, 0.05 * float(np.mean(counts))))


def class_latents(moments, centers, noise_sd, mean_noise_sd, n_components, squares=1.0):
    """Compute principal components and one Gaussian a class from class moments, shrunk by their known noise.

    Parameters
    ----------
    moments : Moments
        Released, with a leading axis of classes; of rows less the center of their class.
    centers : array of shape (n_classes, d)
        Released.
    noise_sd : float or array of shape (n_classes,)
        Standard deviation of the noise on a diagonal entry of ``moments.second``; off the diagonal it is smaller by
        sqrt(2).
    mean_noise_sd : float or array of shape (n_classes,)
        Standard deviation of the noise on an entry of ``moments.sum``.
    n_components : int
    squares : float or array of shape (n_classes,), default=1.0
        Released mean square distance of the rows of each class from its center. Covariances are divided by it before
        they are compared, so that a class of long rows does not dominate the others.

    Returns
    -------
    ClassLatents

    Notes
    -----
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
    means = _shrink_means(centers + shift, share, mean_noise_sd / counts)
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
    values, vectors = np.linalg.eigh(pooled)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1][:, :n_components])
    cleaned = _clean_eigenvalues(values, pooled_variance / 2)
    k = vectors.shape[1]
    # the noise on a variance is the least variance that a direction is known to have
    residual = max(float(cleaned[k:].mean()) if k < len(cleaned) else 0.0, pooled_variance**0.5, 1e-6)
    dither = min(pooled_variance**0.5, 0.1 * float(cleaned.mean())) ** 0.5
    common = np.diag(cleaned[:k])
    own = vectors.T @ (covariances - pooled) @ vectors
    return vectors, _positive(common + _shrink(own, common, sd, share, pooled_variance)), residual, dither


def _shrink_means(means, share, sd):
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


def _clean_eigenvalues(values, variance):
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


def column_variances(space, mixture):
    """Variance of each scaled column in each component, shape (n_components, n_features)."""
    return np.einsum("dk,mkl,dl->md", space.basis, full_covariances(mixture), space.basis, optimize=True)


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

    Parameters
    ----------
    space : LatentSpace
    mixture : GaussianMixtureParameters
    component_means : array of shape (n_components, n_features)
        Released mean of the scaled rows of each component.
    low, high : arrays of shape (n_features,)
        The box of scaled rows.
    variance_gain : float or None, default=1.0
        Variance after clipping divided by that of the latent Gaussian; more than 1 raises the contrast. None: normal
        distributions are clipped without a change.
    dither : float or array of shape (n_components,), default=0.0
        Standard deviation of white noise on every column. It stands for the variance that the noise of the release may
        have hidden: a model trained on rows that lack all variance in a direction would rely on that direction.
    per_class : int, default=1
        Components of each class (scales or sub-clusters), consecutive in the mixture.
    """

    def __init__(self, space, mixture, component_means, low, high, variance_gain=1.0, dither=0.0, per_class=1):
        self.space, self.mixture, self.component_means = space, mixture, component_means
        self.low, self.high, self.variance_gain, self.per_class = low, high, variance_gain, per_class
        self.dither = np.broadcast_to(np.asarray(dither, dtype=np.float64), len(component_means))
        if variance_gain is None:
            self.location, self.gain = component_means, np.ones_like(component_means)
            return
        width = high - low
        variance = column_variances(space, mixture)
        location, deviation = match_clipped_normal((component_means - low) / width, variance_gain * variance / width**2)
        self.location = location * width + low
        self.gain = deviation * width / np.sqrt(np.maximum(variance, 1e-300))

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
        rows = np.empty((len(components), len(self.low)), dtype=np.float32)
        roots = np.linalg.cholesky(full_covariances(self.mixture))
        for k in np.unique(components):
            where = np.flatnonzero(components == k)
            for part in np.split(where, np.arange(_CHUNK_ROWS, len(where), _CHUNK_ROWS)):
                latent = rng.standard_normal((len(part), len(roots[k]))) @ roots[k].T
                rows[part] = self.decode_clipped(k, latent, rng)
        return rows

    def decode_clipped(self, k, latent, rng):
        """Scaled rows of component `k` from its latents, inside the box."""
        drawn = self.location[k] + self.gain[k] * (latent @ self.space.basis.T)
        np.clip(drawn, self.low, self.high, out=drawn)
        if self.dither[k] > 0:
            drawn += self.dither[k] * rng.standard_normal(drawn.shape)
        return np.clip(drawn, self.low, self.high)

    def to_state(self):
        """Return arrays for a release file."""
        return {
            "center": self.space.center,
            "basis": self.space.basis,
            "weights": self.mixture.weights,
            "means": self.mixture.means,
            "covariances": self.mixture.covariances,
            "covariance_type": self.mixture.covariance_type,
            "component_means": self.component_means,
            "low": self.low,
            "high": self.high,
            "variance_gain": self.variance_gain,
            "dither": self.dither,
            "cells": self.per_class,
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        mixture = check_mixture(
            GaussianMixtureParameters(state["weights"], state["means"], state["covariances"], state["covariance_type"])
        )
        space = LatentSpace(state["center"], state["basis"])
        box = (state["low"], state["high"])
        look = (state["variance_gain"], state["dither"], state.get("cells", 1))
        return cls(space, mixture, state["component_means"], *box, *look)


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
