"""One-way and two-way tables of columns in one query, in which no part is measured twice."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from scipy import sparse

from .._types import BoundedSum
from ._contrasts import Residuals
from ._histogram import LATTICE, by_weight
from ._residual_plan import residual_plan

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
    # a fit has refused so many rows before its charge (see `check_exact_tables`)
    if n > (most := most_rows_of_tables(contrasts.largest, plan.classes.largest, unit_sizes is not None)):
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


def most_rows_of_tables(largest, largest_of_classes, weighted):
    """Return how many rows `one_hot_moments` counts exactly, in all parts together.

    Parameters
    ----------
    largest, largest_of_classes : int
        Largest whole number in a contrast of the levels of a column, and of the classes.
    weighted : bool
        Whether rows have the weights of units.
    """
    return int(_MOST_STEPS * (LATTICE if weighted else _ROW_LATTICE)) // (largest**2 * largest_of_classes)


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


# ---- tables of units of several rows, and how alike two rows of a unit are: one contribution for each unit -----------
# Levels of the number of rows of a unit; up to so many rows each number is a level.
_MOST_SIZES = 24


def size_starts(max_rows):
    """Return the least number of rows of each level of it: public, ascending.

    The last level is `max_rows` alone, where all units with as many rows or more are. Above 24 rows, levels grow with
    the number.
    """
    if max_rows <= _MOST_SIZES:
        return np.arange(1, max_rows + 1)
    return np.unique(np.round(np.geomspace(1, max_rows, _MOST_SIZES)).astype(np.int64))


def unit_tables(codes, n_levels, sizes, max_rows):
    """Count the units at each level of each column and of their number of rows, and at each pair of levels.

    Parameters
    ----------
    codes : array of int of shape (n_units, n_columns)
        Level of each column of a unit; a function of the rows of this unit alone.
    n_levels : sequence of int of length n_columns
        Public.
    sizes : array of int of shape (n_units,)
        Number of rows used of each unit; numbers outside 1 .. `max_rows` are clipped to that range.
    max_rows : int
        Public.

    Returns
    -------
    BoundedSum
        `value` as that of `one_hot_moments` with one class; the last block is that of the numbers of rows. A unit has
        one contribution: it is at one level of each block, whatever its number of rows. So the bounds are those of a
        row of such a table (see `residual_plan`). The weighting of the rows has no part in them.
    """
    starts = size_starts(max_rows)
    size = np.searchsorted(starts, np.clip(np.asarray(sizes), 1, max_rows), side="right") - 1
    codes = np.column_stack([np.asarray(codes).reshape(len(size), -1), size])
    return replace(one_hot_moments(codes, unit_plan(n_levels, max_rows)), unit="unit")


def unit_plan(n_levels, max_rows):
    """The `ResidualPlan` of `unit_tables`, whose arguments these are."""
    return residual_plan([*n_levels, len(size_starts(max_rows))])


def likeness(first, second, n_bins):
    """Say how alike pairs of rows are in each column, from 0 to 1; 1 where they are at the same level.

    Parameters
    ----------
    first, second : arrays of int of shape (n_pairs, n_columns)
        Levels of the two rows of each pair.
    n_bins : sequence of int of length n_columns
        Number of levels of each column that are bins of numbers, which come first, in their order; 0 of categories.

    Returns
    -------
    array of shape (n_pairs, n_columns)
        0 at two categories; at two bins, 1 less the square of their distance, relative to that of the outermost: its
        mean tells how far the bins of two rows are correlated. Multiples of the lattice of counts.
    """
    first, second, last = (np.asarray(part, dtype=np.int64) for part in (first, second, n_bins))
    near = np.floor((1 - ((first - second) / np.maximum(last - 1, 1)) ** 2) / LATTICE) * LATTICE
    return np.where(first == second, 1.0, np.where(np.maximum(first, second) < last, near, 0.0))


def unit_pairs(first, second, n_bins):
    """Count the units with two rows, and add up how alike their two rows are in each column.

    Parameters
    ----------
    first, second, n_bins
        As in `likeness`: two rows of each unit that has two, a function of the rows of this unit alone.

    Returns
    -------
    BoundedSum
        `value` of shape (1 + n_columns,): the number of units, and the sums. A unit adds nothing, if it has one row, or
        1 to the first entry and a number from 0 to 1 to each other one: a vector of squared norm 1 + n_columns at most.
        The difference of two units is no longer: where both have two rows, the first entry cancels. So the bound is the
        same under both relations, and attained by a unit of equal rows in the place of one with one row. The weighting
        of the rows and their number have no part in it.
    """
    alike = likeness(first, second, n_bins)
    bound = float(1 + alike.shape[1]) ** 0.5
    value = np.append(float(len(alike)), alike.sum(axis=0))
    return BoundedSum(value, add_or_remove_one=bound, replace_one=bound, lattice=LATTICE, unit="unit")


# ---- interactions of all triples of columns in one query: what two-way tables cannot show ---------------------------
N_QUARTERS = 4
# Of each quarter: its half; the quarter within the lower half; the quarter within the upper half.
CONTRASTS = np.array([[-1, -1, 0], [-1, 1, 0], [1, 0, -1], [1, 0, 1]])
CONTRASTS.setflags(write=False)
# Squared weights of the three, where quarters are distinguished: their sum over a row is 1, as that of halves alone is.
_SQUARES = np.array([0.75, 0.25, 0.25])
# A sum over so many rows, in steps of the lattice of 2**-20, is below 2**60.
_MAX_ROWS = 1 << 40
# Rows of a chunk: whole numbers below 2^24 are exact in single precision.
_CHUNK_ROWS = 1 << 16


def triples_of(n_columns):
    """Every three columns, in ascending order: array of int of shape (n_triples, 3)."""
    return np.array(list(itertools.combinations(range(n_columns), 3)), dtype=np.intp).reshape(-1, 3)


def triple_interactions(quarters, fine, y_codes=None, n_classes=1, *, unit_sizes=None):
    """Sum, in each class, the products of the contrasts of every three columns.

    Parameters
    ----------
    quarters : array of int of shape (n_samples, n_columns)
        Quarter of each column, 0 to 3; a row with another code counts in no triple of that column.
    fine : sequence of bool of length n_columns
        Whether the quarters of a column are distinguished; otherwise its halves alone are. Public or released.
    y_codes : array of int of shape (n_samples,), default=None
        Class of each row; rows with a code outside ``0 .. n_classes - 1`` are left out. None: all in class 0.
    n_classes : int, default=1
    unit_sizes : array of int of shape (n_samples,), default=None
        As in `joint_histogram`.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes, n_triples, 3, 3, 3): whole numbers, times the weights of rows where there are any,
        for the triples of `triples_of`, with one axis for the contrasts of each column; zero for quarters that are not
        distinguished. A row has norm 1 in each of the T triples, so its norm is sqrt(T). The inner product of two rows
        of one class in a triple is the product of those in its columns. These are 1 at most, and -3/4 at least, or -1
        with halves alone. The sum over all triples is linear in the number of each column, so it is least where each
        of them is either 1 or at its least.
    """
    quarters, fine = np.asarray(quarters), np.asarray(fine, dtype=bool)
    n, n_columns = quarters.shape
    if fine.shape != (n_columns,) or n_columns < 3:
        raise ValueError(f"fine needs one entry for each of at least 3 columns; got {fine.shape} for {n_columns}")
    if n > _MAX_ROWS:
        raise ValueError(f"at most {_MAX_ROWS} rows can be counted exactly; got {n}")
    y_codes = np.zeros(n, dtype=np.int64) if y_codes is None else np.asarray(y_codes)
    triples = triples_of(n_columns)
    value = np.zeros((n_classes, len(triples), 3, 3, 3))
    for k in range(n_classes):
        of_class = y_codes == k
        for mine, weight in by_weight(quarters[of_class], None if unit_sizes is None else unit_sizes[of_class]):
            value[k] += weight * _products(mine, fine, triples)
    square = np.where(fine[:, None], _SQUARES, 1.0)[triples]
    weights = np.sqrt(square[:, 0, :, None, None] * square[:, 1, None, :, None] * square[:, 2, None, None, :])
    add_or_remove_one, replace_one = triple_bounds(fine)
    weighted = unit_sizes is not None
    return BoundedSum(value, add_or_remove_one, replace_one, weights=weights, lattice=LATTICE, weighted=weighted)


def triple_bounds(fine):
    """L2 sensitivity of `triple_interactions` where a row joins or leaves, and where one is replaced.

    Parameters
    ----------
    fine : array of bool of shape (n_columns,)
    """
    n_fine, n_triples = np.count_nonzero(fine), math.comb(len(fine), 3)
    least = min(0.0, _least_inner_product(n_fine, len(fine) - n_fine))
    return n_triples**0.5, (2 * (n_triples - least)) ** 0.5


def _least_inner_product(n_fine, n_coarse):
    """Of two rows of one class: over all numbers of columns of each kind in which they are as far apart as can be."""
    found = []
    for fine, coarse in itertools.product(range(n_fine + 1), range(n_coarse + 1)):
        same = n_fine + n_coarse - fine - coarse
        first, second, third = (same + fine * (-_SQUARES[0]) ** p + coarse * (-1.0) ** p for p in (1, 2, 3))
        found.append((first**3 - 3 * first * second + 2 * third) / 6)  # sum of the products of every three
    return float(min(found))


def _products(quarters, fine, triples):
    """Sums over the rows of one class, shape (n_triples, 3, 3, 3)."""
    n_columns, n_contrasts = len(fine), CONTRASTS.shape[1]
    table = np.vstack([CONTRASTS, np.zeros((1, n_contrasts), dtype=int)]).astype(np.float32)  # the last: no quarter
    sums = np.zeros((n_columns, n_contrasts, n_columns, n_contrasts, n_columns, n_contrasts))
    for at in range(0, len(quarters), _CHUNK_ROWS):
        codes = quarters[at : at + _CHUNK_ROWS]
        rows = table[np.where((codes >= 0) & (codes < N_QUARTERS), codes, N_QUARTERS)]
        rows[:, ~fine, 1:] = 0.0
        for i in range(n_columns - 2):
            rest = rows[:, i + 1 :].reshape(len(rows), -1)
            shape = (n_columns - i - 1, n_contrasts)
            for quarter in range(N_QUARTERS):  # rows of one quarter have the same contrasts in column i
                mine = rest[codes[:, i] == quarter]
                contrasts = CONTRASTS[quarter] * [1, fine[i], fine[i]]
                sums[i, :, i + 1 :, :, i + 1 :] += np.multiply.outer(contrasts, (mine.T @ mine).reshape(*shape, *shape))
    i, j, k = triples.T
    return sums[i, :, j, :, k]
