"""One-way and two-way tables of columns in one query, in which no part is measured twice."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from .._types import BoundedSum
from ._contrasts import Residuals
from ._histogram import LATTICE, by_weight

# Steps of the lattice are added up in int64.
_MOST_STEPS = 1 << 62
# Lattice of whole rows: fine enough for noise of less than a row.
_ROW_LATTICE = 2.0**-10
# Levels per column below which a dense product of the encoded rows is faster than a sparse one.
_DENSE = 20
# Rows and entries of a chunk.
_EXACT_ROWS = 1 << 20
_MOST_ENTRIES = 1 << 24


def one_hot_moments(codes, plan, y_codes=None, *, unit_sizes=None):
    """Measure, in each class, how the rows are spread over the levels of each column and of each two columns.

    Parameters
    ----------
    codes : array of int of shape (n_samples, n_blocks)
        Level of each column; a code that is no level of its column counts nowhere in it.
    plan : ResidualPlan
        Public.
    y_codes : array of int of shape (n_samples,), default=None
        Class of each row; rows with a code that is no class of the plan are left out. None: all in class 0.
    unit_sizes : array of int of shape (n_samples,), default=None
        As in `joint_histogram`.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes, p), in steps of the lattice: count, contrasts of the one-way tables, contrasts of
        the two-way tables (upper block triangle), or sums of the products of sides. The tables are an orthogonal map of
        the contrasts. Those of two-way tables are in contrasts of the classes too, as the plan says: the sum of all
        classes, then their differences. The bounds are those of the plan.
    """
    codes = np.asarray(codes)
    contrasts, n_levels = plan.contrasts, plan.contrasts.n_levels
    n, n_blocks = codes.shape
    if n_levels.shape != (n_blocks,):
        raise ValueError(f"the plan is one of {len(n_levels)} columns; got {n_blocks}")
    lattice, n_classes = _ROW_LATTICE if unit_sizes is None else LATTICE, plan.classes.n_classes
    most = int(_MOST_STEPS * lattice) // (contrasts.largest**2 * plan.classes.largest)
    if n > most:
        raise ValueError(f"at most {most} rows can be counted exactly; got {n}")
    y_codes = np.zeros(n, dtype=np.int64) if y_codes is None else np.asarray(y_codes)
    rows, columns = plan.across
    width = len(contrasts.norms)
    value = np.zeros((n_classes, 1 + width + rows.size), dtype=np.int64)
    for k in range(n_classes):
        of_class = y_codes == k
        for mine, weight in by_weight(codes[of_class], None if unit_sizes is None else unit_sizes[of_class]):
            one_way, both = _tables(mine, n_levels, pairs=plan.pairs)
            steps = round(weight / lattice)
            value[k, 0] += steps * len(mine)
            value[k, 1 : 1 + width] += steps * contrasts.of_levels(_whole(one_way))
            if plan.sides is not None:
                value[k, 1 + width :] += steps * _products_of_sides(mine, n_levels, plan.sides)[rows, columns]
            elif rows.size:
                both = contrasts.of_levels(contrasts.of_levels(_whole(both)).T)
                value[k, 1 + width :] += steps * both[rows, columns]
    value[:, 1 + width :] = plan.classes.measure(value[:, 1 + width :])
    return BoundedSum(
        value,
        add_or_remove_one=plan.add_or_remove_one,
        replace_one=plan.replace_one,
        weights=plan.weights,
        lattice=lattice,
        weighted=unit_sizes is not None,
    )


def unpack_one_hot_moments(packed, plan):
    """Return what was released in orthonormal contrasts.

    Parameters
    ----------
    packed : array of shape (n_classes, p)
    plan : ResidualPlan

    Returns
    -------
    Residuals
        `pairs` and `sides` are None where they were not measured.
    """
    packed, norms = np.asarray(packed, dtype=np.float64), plan.contrasts.norms
    count, one_way = packed[:, 0], packed[:, 1 : 1 + len(norms)] / norms
    rows, columns = plan.across
    if plan.sides is not None:
        sides = np.zeros((len(packed), *plan.inverse[2].shape))
        sides[:, rows, columns] = packed[:, 1 + len(norms) :]
        return Residuals(count, one_way, None, sides + sides.transpose(0, 2, 1))
    if not plan.pairs:
        return Residuals(count, one_way, None)
    pairs = np.zeros((len(packed), len(norms), len(norms)))
    pairs[:, rows, columns] = plan.classes.tables(packed[:, 1 + len(norms) :]) / (norms[rows] * norms[columns])
    return Residuals(count, one_way, pairs + pairs.transpose(0, 2, 1))


def _whole(counts):
    return np.asarray(np.rint(counts.toarray() if sparse.issparse(counts) else counts), dtype=np.int64)


def _tables(codes, n_levels, pairs, *, chunk_rows=None):
    """Exact counts of levels, and of pairs of levels (None without `pairs`), of the rows of one class."""
    width = int(n_levels.sum())
    one_way, both = np.zeros(width), np.zeros((width, width)) if pairs else None
    dense = width < _DENSE * len(n_levels)
    size = chunk_rows or max(min(_MOST_ENTRIES // max(width, 1), _EXACT_ROWS), 256)
    for at in range(0, len(codes), size):
        encoded = _encode(codes[at : at + size], n_levels)
        one_way += np.asarray(encoded.sum(axis=0)).ravel()
        if pairs and dense:  # whole numbers below 2^24 are exact in single precision, in whatever order they are added
            part = encoded.astype(np.float32).toarray()
            both += part.T @ part
        elif pairs:
            both += encoded.T @ encoded
    return one_way, both


def _products_of_sides(codes, n_levels, sides):
    """Sums over the rows of one class of the products of the sides of two columns, exact."""
    total = np.zeros((len(n_levels), len(n_levels)))
    offsets = np.cumsum(n_levels) - n_levels
    size = max(_MOST_ENTRIES // max(len(n_levels), 1), 1)
    for at in range(0, len(codes), size):  # whole numbers below 2^24 are exact in single precision
        part = codes[at : at + size]
        inside = (part >= 0) & (part < n_levels)
        here = np.where(inside, sides[np.where(inside, part + offsets, 0)], 0).astype(np.float32)
        total += here.T @ here
    return _whole(total)


def _encode(codes, n_levels):
    """Sparse one-hot matrix of shape (n_samples, sum(n_levels))."""
    inside = (codes >= 0) & (codes < n_levels)
    offsets = np.concatenate([[0], np.cumsum(n_levels)[:-1]])
    indices = (codes + offsets)[inside]
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
    return sparse.csr_matrix((np.ones(indices.size), indices, pointer), shape=(len(codes), int(n_levels.sum())))
