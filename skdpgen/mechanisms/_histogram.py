"""Counts of public cells, one column or several in one query."""

from __future__ import annotations

import numpy as np

from .._types import BoundedSum

__all__ = ["histogram", "joint_histogram", "split_histogram"]

# Counts are integers; noise is rounded to a millionth of a record.
LATTICE = 2.0**-20


def histogram(codes, n_bins):
    """Count the rows of each cell of one column.

    Parameters
    ----------
    codes : array of int of shape (n_samples,)
        Cell of each row, 0 to ``n_bins - 1``; rows with another code are not counted.
    n_bins : int
        Public.

    Returns
    -------
    BoundedSum
        `value` of shape (n_bins,), float64; sensitivity 1, or sqrt(2) when a row is replaced.
    """
    return joint_histogram([codes], [n_bins])


def joint_histogram(codes, n_bins):
    """Count the rows of each cell of several columns in one query.

    Parameters
    ----------
    codes : sequence of arrays of int of shape (n_samples,)
        One for each column; a row counts in at most one cell of each column.
    n_bins : sequence of int
        Public number of cells of each column.

    Returns
    -------
    BoundedSum
        `value` of shape (sum(n_bins),), the columns one after another (see `split_histogram`), float64;
        sensitivity sqrt(d), or sqrt(2 d) when a row is replaced, for d columns.
    """
    if len(codes) != len(n_bins) or not len(codes):
        raise ValueError(f"codes and n_bins need one entry a column; got {len(codes)} and {len(n_bins)}")
    lengths = {np.shape(column) for column in codes}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        raise ValueError(f"columns of codes must be of one length; got shapes {sorted(lengths)}")
    counts = np.concatenate([_count(np.asarray(column), int(n)) for column, n in zip(codes, n_bins)])
    d = len(codes)
    return BoundedSum(counts, l2_bound=d**0.5, difference_bound=(2 * d) ** 0.5, lattice=LATTICE)


def split_histogram(released, n_bins):
    """Split a released joint histogram into one array of counts a column."""
    return np.split(np.asarray(released), np.cumsum(n_bins)[:-1])


def _count(codes, n_bins):
    inside = codes[(codes >= 0) & (codes < n_bins)]
    return np.bincount(inside.astype(np.int64), minlength=n_bins).astype(np.float64)
