"""Class Gaussians of one common shape, for wide rows: functions of released values alone."""

from __future__ import annotations

import math

import numpy as np

from ..mixture import GaussianMixtureParameters
from .gaussians import ClassLatents, clean_eigenvalues, shrink_means

__all__ = ["hides_shapes", "shared_latents", "shrink_centers"]

# Columns from which second moments are most of what is released, and noise most of what they hold.
_WIDE = 100
# Noise in the second moments of a class of average size, as a share of their trace, above which the shapes of classes
# are not distinguished. At epsilon 1, tables of 617 (.044) and 784 columns (.049) are then modelled better; one of 178
# columns (.016), whose classes differ most in their covariances, keeps a covariance of each class.
_HIDDEN = 0.03


def hides_shapes(row_count, n_classes, d, noise_of_rows):
    """Whether the noise would hide how the covariances of classes differ: then one is released for all of them.

    The largest eigenvalue of the noise in the second moments of a class is about `noise_of_rows` times sqrt(2 d), where
    a row adds at most 1 to their trace.

    Parameters
    ----------
    row_count : float
        Released.
    n_classes, d : int
        Public or released: numbers of classes and of columns.
    noise_of_rows : float
        Standard deviation of the noise, relative to what a row adds.
    """
    of_class = max(row_count, 1.0) / n_classes
    return n_classes > 1 and d >= _WIDE and noise_of_rows * math.sqrt(2 * d) > _HIDDEN * of_class


def shrink_centers(centers, counts, noise_sd):
    """Shrink noisy class means to the mean of all rows, each by the part of its distance from it that is noise.

    Rows are then nearer to the center of their class where its noise is longer than its distance from the others.

    Parameters
    ----------
    centers : array of shape (n_classes, d)
    counts : array of shape (n_classes,)
        Positive.
    noise_sd : float
        Standard deviation of the noise on an entry of a sum.
    """
    mean = counts @ centers / counts.sum()
    gap = centers - mean
    noise = centers.shape[1] * np.square(noise_sd / counts)
    kept = np.clip(1 - noise / np.maximum(np.square(gap).sum(axis=1), 1e-300), 0.0, 1.0)
    return mean + kept[:, None] * gap


def shared_latents(moments, share, centers, noise_sd, mean_noise_sd, n_components, squares):
    """Compute principal components and class Gaussians that differ in mean and mean square alone.

    Parameters
    ----------
    moments : Moments
        Released: `count` (at least 1) and `sum` of each class, about its center; `second` of shape (d, d), the mean of
        x x^T over all rows, each divided by the root mean square of its class.
    share : array of shape (n_classes,)
        Part of each class in `second`; sums to 1.
    centers : array of shape (n_classes, d)
        Released.
    noise_sd : float
        Standard deviation of the noise on a diagonal entry of ``moments.second``; off the diagonal it is smaller by
        sqrt(2).
    mean_noise_sd : array of shape (n_classes,)
        Standard deviation of the noise on an entry of ``moments.sum``.
    n_components : int
    squares : array of shape (n_classes,)
        Released mean square distance of the rows of each class from its center.

    Returns
    -------
    ClassLatents
        Every direction has the variance that is left over: `dither`, which the components are drawn in addition to.
    """
    counts = moments.count
    shift = moments.sum / counts[:, None]
    between = np.einsum("k,ki,kj->ij", share / squares, shift, shift, optimize=True)
    means = shrink_means(centers + shift, counts / counts.sum(), mean_noise_sd / counts)
    values, vectors = np.linalg.eigh(moments.second - between)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1][:, :n_components])
    cleaned = clean_eigenvalues(values, noise_sd**2 / 2)
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
