"""Counts and sums of the rows nearest to each of some centres: one iteration of k-means as one query."""

from __future__ import annotations

import numpy as np

from ..utils.blocks import exact_product, map_blocks
from ._moments import class_first_moments

__all__ = ["CLUSTER_COUNT_WEIGHT", "cluster_sums", "nearest_centers"]

# Weight of the counts beside sums of rows of norm 1: noise of the counts, against 4 % more on the sums.
CLUSTER_COUNT_WEIGHT = 0.3
# Rows at a time, and entries of their images.
_MOST_ROWS, _ENTRIES = 4096, 1 << 20


def nearest_centers(X, centers, transform):
    """Number of the nearest of public or released centres to each row; of two equally near, the first.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    centers : array of shape (n_clusters, d)
    transform : callable
        Public map of rows to rows, shape (n, n_features) to (n, d).

    Returns
    -------
    int64 array of shape (n_samples,)
        Each a function of its own row and of the centres alone: a row that joins or leaves moves no other one.
    """
    centers = np.asarray(centers, dtype=np.float64)
    half = 0.5 * np.square(centers).sum(axis=1)
    codes = np.empty(len(X), dtype=np.int64)
    size = _block(centers.shape[1])
    for part, scores in map_blocks(lambda rows: exact_product(transform(rows), centers.T) - half, X, size):
        codes[part] = scores.argmax(axis=1)
    return codes


def cluster_sums(X, transform, centers=None, *, exact=True):
    """Sum (1, f(x)) over the rows nearest to each centre: one query, for a row is nearest to one centre alone.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    transform : callable
        Public map f of rows to rows; images of norm above 1 are clipped to it.
    centers : array of shape (n_clusters, d), default=None
        Public or released; None takes all rows together, as one cluster.
    exact : bool, default=True
        On a lattice on which sums are exact; False only without noise.

    Returns
    -------
    BoundedSum
        `value` of shape (n_clusters, 1 + d). With w = `CLUSTER_COUNT_WEIGHT`, adding a row moves it by at most
        sqrt(w^2 + 1). Replacing one moves it by at most max(2, sqrt(2 (w^2 + 1))): the new row is nearest to the same
        centre and at most twice as far away as it is long, or it is nearest to another one, and the two are orthogonal.
    """
    codes, n_clusters = np.zeros(len(X), dtype=np.int64), 1
    if centers is not None:
        codes, n_clusters = nearest_centers(X, centers, transform), len(centers)
    size = _block(transform(np.zeros((1, X.shape[1]))).shape[1])
    return class_first_moments(
        X, codes, n_clusters, count_weight=CLUSTER_COUNT_WEIGHT, transform=transform, exact=exact, chunk_rows=size
    )


def _block(width):
    return max(16, min(_MOST_ROWS, _ENTRIES // max(width, 1)))
