"""Sums of rows in one query: count, sum and second moments of all rows, of each class, or of each cluster."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .._types import BoundedSum
from ..utils.blocks import block_rows, exact_product, map_blocks
from ._gaussian import check_bound, lattice_rows

# Weights of a count, or of a sum, beside the rest of its query, whose norm is 1. The noise on the count is sd / w, and
# the weight raises the sensitivity, and so the noise on the rest, by the factor sqrt(1 + w^2).
# One set of rows: the count is far above its noise, so it may cost .1 %, and the sum 5 %. These are the weights a and b
# of the moments' sensitivities below.
COUNT_WEIGHT, MEAN_WEIGHT = 0.05, 0.1**0.5
# Classes: a class of a few hundred rows needs a better count, for 1.1 %; and the sum about a released center corrects
# the noise of that center, for 14 %. For class moments, moments of scores and mean embeddings.
CLASS_COUNT_WEIGHT, CLASS_MEAN_WEIGHT = 0.15, 0.3**0.5
# Where second moments are shared, class means alone distinguish classes: their sum weighs as much as the rest.
SHARED_MEAN_WEIGHT = 1.0
# Clusters in k-means: every iteration divides by the counts, so they may cost 4.4 %.
CLUSTER_COUNT_WEIGHT = 0.3
# A mean score: terms lie in [-1/2, 1/2], and their sum is divided by the count, which costs 12 %.
SCORE_COUNT_WEIGHT = 0.25

# Rows are multiples of 2^-18 in the unit ball, products of 2^-36; a chunk of at most 2^16 rows sums to less than
# 2^52 steps of 2^-36, so that every partial sum of every BLAS is exact in double precision, whatever its order.
ROW_STEP = 2.0**-18
LATTICE = ROW_STEP**2
_STEPS = 1 << 36  # of the lattice, in 1
_MAX_CHUNK = 1 << 16
_CHUNK_ENTRIES = 1 << 22
_MAX_ROWS = 1 << 26
# Rows of a chunk of `cluster_sums`, and entries of the chunk after its transform.
_CLUSTER_ROWS, _CLUSTER_ENTRIES = 1 << 12, 1 << 20


class Moments(NamedTuple):
    """Released moments in the units of the rows; with a leading axis of classes where there are labels.

    Attributes
    ----------
    count : array of shape (...)
        Noisy number of rows.
    sum : array of shape (..., n_features)
    second : array of shape (..., n_features, n_features)
        Symmetric sum of outer products.
    """

    count: np.ndarray
    sum: np.ndarray
    second: np.ndarray


def moments(
    X,
    *,
    l2_bound=1.0,
    count_weight=COUNT_WEIGHT,
    mean_weight=MEAN_WEIGHT,
    transform=None,
    exact=True,
    chunk_rows=None,
    unit_sizes=None,
):
    """Sum (1, x, x x^T) over the rows, each clipped to `l2_bound` and divided by it.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Any numeric dtype; converted chunk by chunk, never copied whole.
    l2_bound : float, default=1.0
        Public bound of the norm of a (transformed) row; longer rows are clipped.
    count_weight, mean_weight : float
        Weights a and b of the count and the sum. The noise on count and sum falls with them, that on the rest rises.
    transform : callable or None, default=None
        Public map of a chunk of rows to rows, applied before clipping (scaling, offset, projection).
    exact : bool, default=True
        Truncate rows to a lattice on which the sum is exact. False only for fits without noise.
    chunk_rows : int or None, default=None
        Rows of a chunk, at most 65,536; None takes chunks of about 32 MB.
    unit_sizes : array of int of shape (n_samples,), default=None
        Number of rows m of the unit of each row: the contribution of a row has the weight s^2, with the largest
        multiple s of 2^-18 for which s^2 is at most 1/m. None: each row counts 1.

    Returns
    -------
    BoundedSum
        `value` of shape (1 + d + d (d + 1) / 2,): count, sum, and the upper triangle by rows, in integer steps of
        the lattice when `exact`. The weights are (a, b, ..., 1 on the diagonal and sqrt(2) off it): the Frobenius
        isometry. One row moves the weighted sum by at most sqrt(a^2 + b^2 + 1), and replacing one by at most
        (2 + b^2) / sqrt(2) if b^2 <= 2, else 2 b (the count cancels).
    """
    total = _accumulate(X, None, 1, l2_bound, transform, exact, chunk_rows, unit_sizes=unit_sizes)
    a2, b2 = count_weight**2, mean_weight**2
    return BoundedSum(
        total[0],
        add_or_remove_one=(a2 + b2 + 1) ** 0.5,
        replace_one=_same_class_difference(b2) ** 0.5,
        weights=_weights(_width(total.shape[1]), count_weight, mean_weight),
        lattice=LATTICE if exact else None,
        weighted=unit_sizes is not None,
    )


def class_moments(
    X,
    y_codes,
    n_classes,
    *,
    l2_bound=1.0,
    count_weight=COUNT_WEIGHT,
    mean_weight=MEAN_WEIGHT,
    transform=None,
    centers=None,
    exact=True,
    chunk_rows=None,
    unit_sizes=None,
):
    """Sum (1, x, x x^T) over the rows of each class: one query, since a row is in one class alone.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    y_codes : array of int of shape (n_samples,)
        Class of each row, 0 to ``n_classes - 1``; rows with another code are left out.
    n_classes : int
        Public.
    l2_bound : float or array of shape (n_classes,), default=1.0
        As in `moments`; public or released. An array holds one bound for each class.
    count_weight, mean_weight, transform, exact, chunk_rows, unit_sizes
        As in `moments`.
    centers : array of shape (n_classes, d) or None, default=None
        Public or released; subtracted from the (transformed) rows of each class before they are clipped: the second
        round of two-round centring.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes, 1 + d + d (d + 1) / 2). Adding a row moves it as in `moments`; replacing one by
        sqrt(max(2 (a^2 + b^2 + 1), (2 + b^2)^2 / 2)), with 4 b^2 for the last term when b^2 > 2.
    """
    options = {"centers": centers, "unit_sizes": unit_sizes}
    total = _accumulate(X, np.asarray(y_codes), int(n_classes), l2_bound, transform, exact, chunk_rows, **options)
    a2, b2 = count_weight**2, mean_weight**2
    one = a2 + b2 + 1
    # Two classes are orthogonal; with a single one the other row can at most be left out (a code outside it).
    apart = 2 * one if n_classes > 1 else one
    return BoundedSum(
        total,
        add_or_remove_one=one**0.5,
        replace_one=max(apart, _same_class_difference(b2)) ** 0.5,
        weights=_weights(_width(total.shape[1]), count_weight, mean_weight),
        lattice=LATTICE if exact else None,
        weighted=unit_sizes is not None,
    )


def shared_moments(
    X,
    y_codes,
    n_classes,
    *,
    l2_bound=1.0,
    count_weight=CLASS_COUNT_WEIGHT,
    mean_weight=SHARED_MEAN_WEIGHT,
    transform=None,
    centers=None,
    exact=True,
    chunk_rows=None,
    unit_sizes=None,
    n_groups=1,
):
    """Sum (1, x) over the rows of each class, and x x^T over the rows of all classes of a group: one query.

    Its sensitivity is that of `class_moments`, and noise is added to the second moments once for each group of classes,
    not once for each class.

    Parameters
    ----------
    X, y_codes, n_classes, l2_bound, count_weight, mean_weight, transform, centers, exact, chunk_rows, unit_sizes
        As in `class_moments`. Rows are divided by the bound of their class before they are summed.
    n_groups : int, default=1
        Groups of equally many consecutive classes; one is of all classes.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes * (1 + d) + n_groups * d (d + 1) / 2,): count and sum of each class, then the upper
        triangle of each group by rows. Adding a row moves it as in `class_moments`: a row has one class. Replacing one
        also: between rows x and z of different classes counts and sums are orthogonal. The squared change of the second
        moments is ``|x x^T - z z^T|^2`` in one group, and ``|x|^4 + |z|^4`` in two: at most 2 in either.
    """
    if n_groups < 1 or n_classes % n_groups:
        raise ValueError(f"n_groups must divide the number of classes; got {n_groups} and {n_classes}")
    query = class_moments(
        X,
        y_codes,
        n_classes,
        l2_bound=l2_bound,
        count_weight=count_weight,
        mean_weight=mean_weight,
        transform=transform,
        centers=centers,
        exact=exact,
        chunk_rows=chunk_rows,
        unit_sizes=unit_sizes,
    )
    own = 1 + X.shape[1] if transform is None else 1 + transform(np.zeros((1, X.shape[1]))).shape[1]
    total, weights = query.value, query.weights
    seconds = total[:, own:].reshape(n_groups, n_classes // n_groups, -1)
    return BoundedSum(
        np.concatenate([total[:, :own].ravel(), seconds.sum(axis=1).ravel()]),
        add_or_remove_one=query.add_or_remove_one,
        replace_one=query.replace_one,
        weights=np.concatenate([np.tile(weights[:own], n_classes), np.tile(weights[own:], n_groups)]),
        lattice=query.lattice,
        weighted=query.weighted,
    )


def second_moments(X, *, l2_bound=1.0, transform=None, exact=True, chunk_rows=None, unit_sizes=None):
    """Sum x x^T alone over the rows clipped to `l2_bound`: the second round of two-round centring.

    Parameters
    ----------
    X, l2_bound, transform, exact, chunk_rows, unit_sizes
        As in `moments`.

    Returns
    -------
    BoundedSum
        As `moments`, of shape (d (d + 1) / 2,), for rows divided by `l2_bound`: bound 1, difference sqrt(2).
    """
    total = _accumulate(X, None, 1, l2_bound, transform, exact, chunk_rows, unit_sizes=unit_sizes)[0]
    d = _width(total.size)
    return BoundedSum(
        total[1 + d :],
        add_or_remove_one=1.0,
        replace_one=2**0.5,
        weights=_weights(d, 1.0, 1.0)[1 + d :],
        lattice=LATTICE if exact else None,
        weighted=unit_sizes is not None,
    )


def first_moments(
    X, *, l2_bound=1.0, count_weight=COUNT_WEIGHT, transform=None, exact=True, chunk_rows=None, unit_sizes=None
):
    """Sum (1, x) alone over the rows clipped to `l2_bound`: the first round of two-round centring.

    Parameters
    ----------
    X, l2_bound, count_weight, transform, exact, chunk_rows, unit_sizes
        As in `moments`.

    Returns
    -------
    BoundedSum
        `value` of shape (1 + d,) for rows divided by `l2_bound`, weights (a, 1, ...): sensitivity sqrt(a^2 + 1), or 2
        when a row is replaced (the count cancels).
    """
    options = {"sums": _first_sums, "unit_sizes": unit_sizes}
    total = _accumulate(X, None, 1, l2_bound, transform, exact, chunk_rows, **options)[0]
    return BoundedSum(
        total,
        add_or_remove_one=(count_weight**2 + 1) ** 0.5,
        replace_one=2.0,
        weights=_first_weights(total.size - 1, count_weight),
        lattice=LATTICE if exact else None,
        weighted=unit_sizes is not None,
    )


def sum_of_rows(X, *, l2_bound=1.0, transform=None, exact=True, chunk_rows=None, unit_sizes=None):
    """Sum the rows clipped to `l2_bound`, without their count.

    Parameters
    ----------
    X, l2_bound, transform, exact, chunk_rows, unit_sizes
        As in `moments`.

    Returns
    -------
    BoundedSum
        `value` of shape (d,) for rows divided by `l2_bound`: sensitivity 1, or 2 when a row is replaced.
    """
    total = _accumulate(X, None, 1, l2_bound, transform, exact, chunk_rows, sums=_RowSums(), unit_sizes=unit_sizes)[0]
    return BoundedSum(
        total,
        add_or_remove_one=1.0,
        replace_one=2.0,
        lattice=LATTICE if exact else None,
        weighted=unit_sizes is not None,
    )


def class_first_moments(
    X,
    y_codes,
    n_classes,
    *,
    l2_bound=1.0,
    count_weight=COUNT_WEIGHT,
    transform=None,
    exact=True,
    chunk_rows=None,
    unit_sizes=None,
):
    """Sum (1, x) over the rows of each class, clipped to `l2_bound`: one query for all classes.

    Parameters
    ----------
    X, y_codes, n_classes, l2_bound, count_weight, transform, exact, chunk_rows, unit_sizes
        As in `class_moments`.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes, 1 + d). Adding a row moves it by at most sqrt(a^2 + 1); replacing one by
        sqrt(max(2 (a^2 + 1), 4)): in two classes the two rows are orthogonal, in one they may be opposite.
    """
    options = {"sums": _first_sums, "unit_sizes": unit_sizes}
    total = _accumulate(X, np.asarray(y_codes), int(n_classes), l2_bound, transform, exact, chunk_rows, **options)
    one = count_weight**2 + 1
    return BoundedSum(
        total,
        add_or_remove_one=one**0.5,
        replace_one=max(2 * one, 4.0) ** 0.5,
        weights=_first_weights(total.shape[1] - 1, count_weight),
        lattice=LATTICE if exact else None,
        weighted=unit_sizes is not None,
    )


def unpack_moments(released, n_features, l2_bound=1.0):
    """Return released moments in their shapes and in the units of the rows.

    Parameters
    ----------
    released : array of shape (..., 1 + d + d (d + 1) / 2)
        What `add_gaussian` returned for `moments` or `class_moments`; for `second_moments`, of shape
        (d (d + 1) / 2,), count and sum are None.
    n_features : int
    l2_bound : float or array of shape (n_classes,), default=1.0
        As given to the query.

    Returns
    -------
    Moments
    """
    released = np.asarray(released, dtype=np.float64)
    rows, columns = np.triu_indices(n_features)
    count = total = None
    triangle = released
    if released.shape[-1] != rows.size:
        count, total, triangle = np.split(released, [1, 1 + n_features], axis=-1)
        count, total = count[..., 0], total * np.asarray(l2_bound)[..., None]
    second = np.empty((*released.shape[:-1], n_features, n_features))
    second[..., rows, columns] = triangle
    second[..., columns, rows] = triangle
    second *= np.square(l2_bound)[..., None, None]
    return Moments(count, total, second)


def unpack_shared_moments(released, n_classes, n_features, l2_bound=1.0, n_groups=1):
    """Return what was released of `shared_moments`.

    Parameters
    ----------
    released : array of shape (n_classes * (1 + d) + n_groups * d (d + 1) / 2,)
    n_classes, n_features : int
    l2_bound : float or array of shape (n_classes,), default=1.0
        As given to the query.
    n_groups : int, default=1
        As given to the query.

    Returns
    -------
    Moments
        `count` and `sum` of each class, the sum in the units of the rows; `second`, of shape (n_groups, d, d), of rows
        divided by the bound of their class.
    """
    released = np.asarray(released, dtype=np.float64)
    own = n_classes * (1 + n_features)
    firsts = released[:own].reshape(n_classes, -1)
    bound = np.broadcast_to(np.asarray(l2_bound, dtype=np.float64), n_classes)
    second = unpack_moments(released[own:].reshape(n_groups, -1), n_features).second
    return Moments(firsts[:, 0], firsts[:, 1:] * bound[:, None], second)


def nearest_centers(X, centers, transform):
    """Return the index of the center nearest to each row; of two equally near, the first.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    centers : array of shape (n_clusters, d)
        Public or released.
    transform : callable
        Public map of rows to rows, shape (n, n_features) to (n, d).

    Returns
    -------
    int64 array of shape (n_samples,)
        Each entry depends on its row and on the centers alone: a row that joins or leaves moves no other row.
    """
    centers = np.asarray(centers, dtype=np.float64)
    half = 0.5 * np.square(centers).sum(axis=1)
    codes = np.empty(len(X), dtype=np.int64)
    size = _cluster_rows(centers.shape[1])
    for part, scores in map_blocks(lambda rows: exact_product(transform(rows), centers.T) - half, X, size):
        codes[part] = scores.argmax(axis=1)
    return codes


def cluster_sums(X, transform, centers=None, *, exact=True, unit_sizes=None):
    """Sum (1, f(x)) over the rows nearest to each center: one iteration of k-means as one query.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    transform : callable
        Public map f of rows to rows; images of norm above 1 are clipped to it.
    centers : array of shape (n_clusters, d), default=None
        Public or released; None takes all rows together, as one cluster.
    exact, unit_sizes
        As in `moments`.

    Returns
    -------
    BoundedSum
        `value` of shape (n_clusters, 1 + d). With w = `CLUSTER_COUNT_WEIGHT`, adding a row moves it by at most
        sqrt(w^2 + 1). Replacing one moves it by at most max(2, sqrt(2 (w^2 + 1))): a new row with the same center is
        at a distance of at most 2, and the contributions of rows with different centers are orthogonal.
    """
    codes, n_clusters = np.zeros(len(X), dtype=np.int64), 1
    if centers is not None:
        codes, n_clusters = nearest_centers(X, centers, transform), len(centers)
    size = _cluster_rows(transform(np.zeros((1, X.shape[1]))).shape[1])
    return class_first_moments(
        X,
        codes,
        n_clusters,
        count_weight=CLUSTER_COUNT_WEIGHT,
        transform=transform,
        exact=exact,
        chunk_rows=size,
        unit_sizes=unit_sizes,
    )


def _same_class_difference(b2):
    """Square of the largest change of (b x, M(x)) between two unit rows: max over c of 2 b^2 (1-c) + 2 (1-c^2)."""
    return (2 + b2) ** 2 / 2 if b2 <= 2 else 4 * b2


def _weights(d, count_weight, mean_weight):
    if not (0 < count_weight < np.inf and 0 < mean_weight < np.inf):
        raise ValueError("count_weight and mean_weight must be positive and finite")
    rows, columns = np.triu_indices(d)
    return np.concatenate([[count_weight], np.full(d, mean_weight), np.where(rows == columns, 1.0, 2**0.5)])


def _first_weights(d, count_weight):
    """Weights of count and sum, without the d^2 entries of the second moments."""
    return np.append(_weights(0, count_weight, 1.0), np.ones(d))


def _width(packed):
    """Number of features d whose packed moments have ``packed`` = 1 + d + d (d + 1) / 2 entries."""
    return round(((8 * packed + 1) ** 0.5 - 3) / 2)


def _accumulate(X, codes, n_classes, l2_bound, transform, exact, chunk_rows, sums=None, centers=None, unit_sizes=None):
    """Packed sums of each class, shape (n_classes, p): int64 steps of the lattice when `exact`, else float64."""
    if n_classes < 1:
        raise ValueError(f"n_classes must be at least 1; got {n_classes}")
    bounds = [check_bound(bound) for bound in np.broadcast_to(l2_bound, n_classes)]
    n, width = X.shape
    if n > _MAX_ROWS:
        raise ValueError(f"at most {_MAX_ROWS} rows can be summed exactly; got {n}")
    if codes is not None and codes.shape != (n,):
        raise ValueError(f"y_codes must have shape ({n},); got {codes.shape}")
    most = _MAX_CHUNK
    if transform is not None:  # blocks are small, as few rows are padded to one; the width is that of a row's image
        most, width = block_rows(width), transform(np.zeros((1, width))).shape[1]
    step = min(chunk_rows or max(256, _CHUNK_ENTRIES // max(width, 1)), most)
    sums = sums or _AllSums(width)
    roots = None if unit_sizes is None else weight_roots(unit_sizes, exact)
    total = np.zeros((n_classes, sums.size(width)), dtype=np.int64 if exact else np.float64)
    chunks = ((slice(i, i + step), X[i : i + step]) for i in range(0, n, step))
    for where, rows in chunks if transform is None else map_blocks(transform, X, step):
        if centers is not None:  # a code outside the classes is left out below, whatever is subtracted here
            rows = rows - centers[np.clip(codes[where], 0, n_classes - 1)]
        for k, mine in _by_class(None if codes is None else codes[where], n_classes):
            part = lattice_rows(rows[mine], bounds[k], ROW_STEP if exact else None)
            root = None
            if roots is not None:
                root = roots[where][mine]
                part *= root[:, None]  # exact: 18 bits times 18 bits
                part = np.trunc(part * (1 / ROW_STEP)) * ROW_STEP if exact else part
            for piece, entries in sums(part, root):
                if exact:  # a whole number of steps by construction: the cast loses nothing
                    entries = (entries * (1 / LATTICE)).astype(np.int64)
                total[k, piece] += entries
    return total


def weight_roots(unit_sizes, exact=True):
    """Factor s of a row of a unit of m rows: s^2 is its weight, and m s^2 is at most 1.

    The row s x, truncated to the lattice, is s times a row x' of the unit ball, as truncation shrinks every entry. So
    (s^2, s (s x'), (s x') (s x')^T) is s^2 times the contribution of x', and all its entries lie on the lattice.

    `unit_sizes`: shape (n_samples,). `exact`: whether s is a multiple of 2^-18; else it is the root of 1/m.
    """
    unit_sizes = np.asarray(unit_sizes, dtype=np.int64)
    if not exact:
        return unit_sizes**-0.5
    distinct, place = np.unique(unit_sizes, return_inverse=True)
    return (np.array([math.isqrt(_STEPS // int(m)) for m in distinct], dtype=np.float64) * ROW_STEP)[place]


def _by_class(codes, n_classes):
    """Yield each class that has rows, and which they are."""
    if codes is None:
        yield 0, slice(None)
        return
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(n_classes + 1))
    for k in range(n_classes):
        if edges[k] < edges[k + 1]:
            yield k, order[edges[k] : edges[k + 1]]


class _FirstSums:
    """Count and sum of a chunk of rows."""

    def size(self, d):
        return 1 + d

    def __call__(self, rows, roots=None):
        roots = np.ones(len(rows)) if roots is None else roots
        yield slice(0, 1), np.array([roots @ roots])
        yield slice(1, 1 + rows.shape[1]), roots @ rows


class _RowSums:
    """Sum of a chunk of rows alone."""

    def size(self, d):
        return d

    def __call__(self, rows, roots=None):
        yield slice(None), (np.ones(len(rows)) if roots is None else roots) @ rows


class _AllSums(_FirstSums):
    """Count, sum and the upper triangle of the second moments of a chunk of rows."""

    def __init__(self, d):
        self.upper = np.triu_indices(d)

    def size(self, d):
        return 1 + d + self.upper[0].size

    def __call__(self, rows, roots=None):
        yield from super().__call__(rows, roots)
        yield slice(1 + rows.shape[1], None), (rows.T @ rows)[self.upper]


_first_sums = _FirstSums()


def _cluster_rows(width):
    return max(16, min(_CLUSTER_ROWS, _CLUSTER_ENTRIES // max(width, 1)))
