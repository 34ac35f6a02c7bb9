"""Counts of public cells: of columns, one or several in a query, of magnitudes, norms and votes; and bounded totals."""

from __future__ import annotations

import numpy as np

from .._types import BoundedSum

# Counts are integers; noise is rounded to a millionth of a record.
LATTICE = 2.0**-20
_STEPS = 1 << 20

# The public grid on which unknown bounds are searched: octaves of each sign around zero, for magnitudes from 2^-32 to
# 2^48. Smaller and larger magnitudes count in the innermost and outermost cells of their sign.
_SMALLEST, _OCTAVES = -32, 80
N_OCTAVE_CELLS = 2 * _OCTAVES + 1
LARGEST = 2.0 ** (_SMALLEST + _OCTAVES)


def histogram(codes, n_bins, unit_sizes=None):
    """Count the rows of each cell of one column.

    Parameters
    ----------
    codes : array of int of shape (n_samples,)
        Cell of each row, 0 to ``n_bins - 1``; rows with another code are not counted.
    n_bins : int
        Public.
    unit_sizes : array of int of shape (n_samples,), default=None
        As in `joint_histogram`.

    Returns
    -------
    BoundedSum
        `value` of shape (n_bins,), float64; sensitivity 1, or sqrt(2) when a row is replaced.
    """
    return joint_histogram([codes], [n_bins], unit_sizes=unit_sizes)


def histogram_of_units(parts, n_bins):
    """Count the units of each cell, where a unit has several rows and lies in one cell.

    Parameters
    ----------
    parts : iterable of arrays of int of shape (n_units,)
        Cell of each unit, 0 to ``n_bins - 1``; the units of all parts are different.
    n_bins : int
        Public.

    Returns
    -------
    BoundedSum
        `value` of shape (n_bins,), float64; sensitivity 1, or sqrt(2) when a unit is replaced.
    """
    counts = sum((_count(np.asarray(cells), n_bins) for cells in parts), np.zeros(n_bins))
    return BoundedSum(counts, add_or_remove_one=1.0, replace_one=2**0.5, lattice=LATTICE, unit="unit")


def joint_histogram(codes, n_bins, weights=None, unit_sizes=None):
    """Count the rows of each cell of several columns in one query.

    Parameters
    ----------
    codes : sequence of arrays of int of shape (n_samples,)
        One array for each column; a row counts in at most one cell of each column.
    n_bins : sequence of int
        Public number of cells of each column.
    weights : sequence of float, default=None
        Weight w of each column: its counts have noise smaller by 1/w than with weight 1. None is 1 for all.
    unit_sizes : array of int of shape (n_samples,), default=None
        Number of rows m of the unit of each row: a row counts `row_weights`, about 1/m. None: each row counts 1.

    Returns
    -------
    BoundedSum
        `value` of shape (sum(n_bins),), the columns one after another (see `split_histogram`), float64. A row adds its
        weights once for each column, so the sensitivity is the root of the sum of their squares: sqrt(d) for d columns
        without weights. It is sqrt(2) times that when a row is replaced.
    """
    if len(codes) != len(n_bins) or not len(codes):
        raise ValueError(f"codes and n_bins need one entry for each column; got {len(codes)} and {len(n_bins)}")
    lengths = {np.shape(column) for column in codes}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        raise ValueError(f"columns of codes must have one length; got shapes {sorted(lengths)}")
    own = None if unit_sizes is None else row_weights(unit_sizes)
    counts = np.concatenate([_count(np.asarray(column), int(n), own) for column, n in zip(codes, n_bins)])
    if weights is None:
        d, per_cell = len(codes), 1.0
    else:
        d, per_cell = float(np.sum(np.square(weights))), np.repeat(np.asarray(weights, dtype=np.float64), n_bins)
    return BoundedSum(
        counts,
        add_or_remove_one=d**0.5,
        replace_one=(2 * d) ** 0.5,
        weights=per_cell,
        lattice=LATTICE,
        weighted=own is not None,
    )


def split_histogram(released, n_bins):
    """Split a released joint histogram into one array of counts for each column."""
    return np.split(np.asarray(released), np.cumsum(n_bins)[:-1])


def _count(codes, n_bins, own=None):
    inside = (codes >= 0) & (codes < n_bins)
    own = None if own is None else own[inside]  # multiples of the lattice, whose sums are exact
    return np.bincount(codes[inside].astype(np.int64), own, minlength=n_bins).astype(np.float64)


def row_weights(unit_sizes):
    """Weight of a row of a unit of m rows: 1/m, rounded down to the lattice, so that a unit weighs at most 1.

    Parameters
    ----------
    unit_sizes : array of int of shape (n_samples,)

    Returns
    -------
    float64 array of shape (n_samples,)
        Multiples of the lattice of counts.
    """
    return (_STEPS // np.asarray(unit_sizes, dtype=np.int64)) * LATTICE


def by_weight(codes, unit_sizes):
    """Yield the rows of each weight, and the weight: rows are counted in whole numbers, and weighted afterwards."""
    if unit_sizes is None:
        yield codes, 1.0
        return
    for size in np.unique(unit_sizes):
        yield codes[unit_sizes == size], float(row_weights(size))


# -- magnitudes ---------------------------------------------------------------------------------------------------


def octave_cells(values):
    """Return the cell of each number: ``_OCTAVES`` is zero, cells above hold [2^k, 2^(k+1)), cells below mirror them.

    Parameters
    ----------
    values : array of float
        NaN has no cell: its result is arbitrary.

    Returns
    -------
    array of int64, of the same shape, in ``0 .. N_OCTAVE_CELLS - 1``
    """
    values = np.asarray(values, dtype=np.float64)
    _, exponent = np.frexp(values)  # value = m 2^exponent with 1/2 <= m < 1
    size = np.clip(exponent.astype(np.int64) - 1 - _SMALLEST, 0, _OCTAVES - 1) + 1
    return _OCTAVES + np.sign(np.nan_to_num(values)).astype(np.int64) * size


def octave_edges(cell):
    """Return the lower and upper edge of a cell; the cells next to zero begin at zero."""
    size = abs(cell - _OCTAVES)
    if size == 0:
        return 0.0, 0.0
    low, high = (0.0 if size == 1 else 2.0 ** (size - 1 + _SMALLEST)), 2.0 ** (size + _SMALLEST)
    return (low, high) if cell > _OCTAVES else (-high, -low)


# -- row norms ----------------------------------------------------------------------------------------------------


def norm_histogram(norms, edges, unit_sizes=None):
    """Count the rows by norm on public edges: one cell below the first edge, one above the last.

    Parameters
    ----------
    norms : array of shape (n_samples,)
    edges : array of shape (n_edges,)
        Increasing, public. Cell j holds norms in (edges[j-1], edges[j]].
    unit_sizes : array of int of shape (n_samples,), default=None
        As in `joint_histogram`.

    Returns
    -------
    BoundedSum
        `value` of shape (n_edges + 1,); sensitivity 1, or sqrt(2) when a row is replaced.
    """
    return histogram(_norm_cells(norms, edges), len(edges) + 1, unit_sizes)


def class_norm_histogram(norms, codes, n_classes, edges, unit_sizes=None):
    """Count the rows of each class by norm on public edges, as `norm_histogram` does.

    Parameters
    ----------
    norms : array of shape (n_samples,)
    codes : array of int of shape (n_samples,)
        Class of each row, 0 to ``n_classes - 1``; rows with another code are left out.
    n_classes : int
        Public.
    edges : array of shape (n_edges,)
    unit_sizes : array of int of shape (n_samples,), default=None
        As in `joint_histogram`.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes * (n_edges + 1),), the classes one after another. A row is in one bin of one class:
        sensitivity 1, or sqrt(2) when a row is replaced.
    """
    codes, n_cells = np.asarray(codes), len(edges) + 1
    known = (codes >= 0) & (codes < n_classes)
    codes = np.where(known, codes, 0).astype(np.int64)  # a product of narrow integers would wrap around
    cells = np.where(known, codes * n_cells + _norm_cells(norms, edges), -1)
    return histogram(cells, n_classes * n_cells, unit_sizes)


def _norm_cells(norms, edges):
    return np.searchsorted(edges, np.asarray(norms, dtype=np.float64), side="left")


# -- totals -------------------------------------------------------------------------------------------------------


def total(counts, largest, unit_sizes=None, *, of_units=False):
    """Sum one whole number per row, each between 0 and a public largest one.

    Parameters
    ----------
    counts : array of int of shape (n_samples,)
        Values outside 0 .. `largest` are clipped to that range.
    largest : int
        Public; positive.
    unit_sizes : array of int of shape (n_samples,), default=None
        As in `joint_histogram`.
    of_units : bool, default=False
        Whether `counts` has one number per unit, and not one per row.

    Returns
    -------
    BoundedSum
        `value` of shape (1,): the sum itself, with weight ``1 / largest``. Adding a row moves the weighted sum by at
        most 1, and so does replacing one.
    """
    largest = int(largest)
    if largest < 1:
        raise ValueError(f"largest must be at least 1; got {largest}")
    counts = np.clip(np.asarray(counts), 0, largest)
    summed = counts.sum(dtype=np.int64) if unit_sizes is None else float((counts * row_weights(unit_sizes)).sum())
    # in whole units, so that the sum and the rounded noise add exactly; the weight brings the bound to 1
    return BoundedSum(
        np.array([float(summed)]),
        add_or_remove_one=1.0,
        replace_one=1.0,
        weights=1 / largest,
        lattice=LATTICE,
        unit="unit" if of_units else "record",
        weighted=unit_sizes is not None,
    )


def count_votes(votes, *, of_units=False):
    """Count the votes for each row.

    Parameters
    ----------
    votes : bool array of shape (n_teachers, n_rows)
        Each line is a function of one teacher's subset of the records, and of nothing else that is private.
    of_units : bool, default=False
        Whether subsets are made of whole units of several rows.

    Returns
    -------
    BoundedSum
        `value` of shape (n_rows,), float64. A record, or a unit, lies in one subset and changes one line, each of
        whose entries moves by at most 1: the sensitivity is sqrt(n_rows), whether it joins, leaves or is replaced.
        Votes against are no second release: they are the public number of teachers less the votes for.
    """
    votes = np.asarray(votes, dtype=bool)
    bound = votes.shape[1] ** 0.5
    counts = votes.sum(axis=0, dtype=np.int64).astype(np.float64)
    unit = "unit" if of_units else "record"
    return BoundedSum(counts, add_or_remove_one=bound, replace_one=bound, lattice=LATTICE, unit=unit, additive=False)
