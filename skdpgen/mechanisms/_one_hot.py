"""All one-way and two-way tables of one-hot encoded columns in one query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from .._types import BoundedSum
from ._histogram import LATTICE, row_weights

__all__ = ["COUNT_SQUARE", "OneHotMoments", "one_hot_moments", "table_weights", "unpack_one_hot_moments"]

# A count of so many rows, in steps of the lattice of 2**-20, is below 2**60: it stays within int64.
_MAX_ROWS = 1 << 40
# Levels per column below which a dense product of the encoded rows is faster than a sparse one.
_DENSE = 20
# Rows and entries of a chunk.
_EXACT_ROWS = 1 << 20
_MOST_ENTRIES = 1 << 24
# Squared weight of the label count beside a mean of 1 for a two-way table.
COUNT_SQUARE = 1.0


class OneHotMoments(NamedTuple):
    """Released tables, or the standard deviations of their noise; the first axis is that of the classes.

    Attributes
    ----------
    count : array of shape (n_classes,)
    one_way : array of shape (n_classes, n_columns_encoded)
        Counts of each level of each block, blocks side by side.
    pairs : array of shape (n_classes, n_columns_encoded, n_columns_encoded)
        Symmetric; entries inside a block are structural (one level excludes the others) and are left zero. None
        where the two-way tables were left out.
    """

    count: np.ndarray
    one_way: np.ndarray
    pairs: np.ndarray | None


def one_hot_moments(codes, n_levels, y_codes=None, n_classes=1, *, one_way_share=0.1, importance=None, unit_sizes=None):
    """Count, in each class, the rows at each level of each column and at each pair of levels of two columns.

    Parameters
    ----------
    codes : array of int of shape (n_samples, n_blocks)
        Level of each column; a code outside ``0 .. n_levels - 1`` counts nowhere in its column.
    n_levels : sequence of int of length n_blocks
        Public.
    y_codes : array of int of shape (n_samples,), default=None
        Class of each row; rows with a code outside ``0 .. n_classes - 1`` are left out. None: all in class 0.
    n_classes : int, default=1
    one_way_share : float in (0, 1], default=0.1
        Share of the squared weights for the one-way tables; they also follow from the two-way tables by summing.
        1 leaves the two-way tables out.
    importance : array of shape (n_blocks,), default=None
        Public, positive weights of the error in tables of each column, multiplied over the columns of a table. None
        is 1 for all.
    unit_sizes : array of int of shape (n_samples,), default=None
        As in `joint_histogram`.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes, p): count, one-way tables, two-way tables (upper block triangle). One row
        touches one class, one level of each block and one entry of each pair of blocks, so the squared l2 bound is
        the sum of the squared weights, one for each table, and exactly twice that when a row is replaced. Entries
        inside a block and the number of classes add nothing. Weights of two-way tables are the optimum for mean total
        variation distance, (k_i k_j)^(1/3), with mean square 1.
    """
    codes = np.asarray(codes)
    n_levels = np.asarray(n_levels, dtype=np.int64)
    n, n_blocks = codes.shape
    if n_levels.shape != (n_blocks,):
        raise ValueError(f"n_levels needs one entry for each column; got {n_levels.shape} for {n_blocks} columns")
    if n > _MAX_ROWS:
        raise ValueError(f"at most {_MAX_ROWS} rows can be counted exactly; got {n}")
    y_codes = np.zeros(n, dtype=np.int64) if y_codes is None else np.asarray(y_codes)
    width = int(n_levels.sum())
    pairs = one_way_share < 1 and n_blocks > 1
    rows, columns = _cross_block_pairs(n_levels) if pairs else np.zeros((2, 0), dtype=np.intp)
    value = np.zeros((n_classes, 1 + width + rows.size))
    for k in range(n_classes):
        of_class = y_codes == k
        for mine, weight in _by_weight(codes[of_class], None if unit_sizes is None else unit_sizes[of_class]):
            one_way, both = _tables(mine, n_levels, pairs=rows.size > 0)
            value[k, 0] += weight * len(mine)
            value[k, 1 : 1 + width] += weight * one_way
            if rows.size:
                value[k, 1 + width :] += weight * np.asarray(both[rows, columns]).ravel()
    weights, square = _weights(n_levels, one_way_share, importance)
    return BoundedSum(
        value,
        add_or_remove_one=square**0.5,
        replace_one=(2 * square) ** 0.5,
        weights=weights,
        lattice=LATTICE,
        weighted=unit_sizes is not None,
    )


def _by_weight(codes, unit_sizes):
    """Yield the rows of one weight, and it: whole numbers of them are counted, and weighted afterwards."""
    if unit_sizes is None:
        yield codes, 1.0
        return
    for size in np.unique(unit_sizes):
        yield codes[unit_sizes == size], float(row_weights(size))


def unpack_one_hot_moments(packed, n_levels):
    """Return packed tables, released or standard deviations of their noise, in their shapes.

    Parameters
    ----------
    packed : array of shape (n_classes, p)
    n_levels : sequence of int

    Returns
    -------
    OneHotMoments
        `pairs` is None where the two-way tables were left out.
    """
    packed = np.asarray(packed, dtype=np.float64)
    n_levels = np.asarray(n_levels, dtype=np.int64)
    width = int(n_levels.sum())
    if packed.shape[1] == 1 + width:
        return OneHotMoments(packed[:, 0], packed[:, 1:], None)
    rows, columns = _cross_block_pairs(n_levels)
    pairs = np.zeros((len(packed), width, width))
    pairs[:, rows, columns] = packed[:, 1 + width :]
    pairs[:, columns, rows] = packed[:, 1 + width :]
    return OneHotMoments(packed[:, 0], packed[:, 1 : 1 + width], pairs)


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


def _encode(codes, n_levels):
    """Sparse one-hot matrix of shape (n_samples, sum(n_levels))."""
    inside = (codes >= 0) & (codes < n_levels)
    offsets = np.concatenate([[0], np.cumsum(n_levels)[:-1]])
    indices = (codes + offsets)[inside]
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
    return sparse.csr_matrix((np.ones(indices.size), indices, pointer), shape=(len(codes), int(n_levels.sum())))


def _cross_block_pairs(n_levels):
    block = np.repeat(np.arange(len(n_levels)), n_levels)
    return np.nonzero(block[:, None] < block[None, :])


def table_weights(n_levels, one_way_share, importance=None):
    """Return the squared weights of the tables in the query of `one_hot_moments`, whose arguments these are.

    Returns
    -------
    one_way : array of shape (n_blocks,)
        The count of rows has weight 1.
    pairs : array of shape (n_blocks, n_blocks) or None
        Off its diagonal; None where the two-way tables are left out.
    square : float
        Sum of the squared weights of all tables: the squared sensitivity when a row is added or removed. When one is
        replaced it is twice as large.
    """
    if not 0 < one_way_share <= 1:
        raise ValueError(f"one_way_share must be in (0, 1]; got {one_way_share!r}")
    n_levels = np.asarray(n_levels, dtype=np.int64)
    importance = np.ones(len(n_levels)) if importance is None else np.asarray(importance, dtype=np.float64)
    if importance.shape != n_levels.shape or not (np.isfinite(importance) & (importance > 0)).all():
        raise ValueError("importance needs one positive number for each column")
    one_way = np.cbrt(n_levels * importance) ** 2
    pair = np.outer(one_way, one_way)
    upper = np.triu_indices(len(n_levels), 1)
    n_pairs = len(upper[0])
    if one_way_share == 1 or n_pairs == 0:
        one_way_square, pair_square, pair = float(len(n_levels)), 0.0, None
    else:
        pair /= pair[upper].mean()
        one_way_square, pair_square = n_pairs * one_way_share / (1 - one_way_share), float(n_pairs)
    one_way *= one_way_square / one_way.sum()
    return one_way, pair, COUNT_SQUARE + one_way_square + pair_square


def _weights(n_levels, one_way_share, importance=None):
    """Weight of every entry, and the sum of squares over tables (not over entries)."""
    one_way, pairs, square = table_weights(n_levels, one_way_share, importance)
    block, entries = np.repeat(np.arange(len(n_levels)), n_levels), np.zeros(0)
    if pairs is not None:
        rows, columns = _cross_block_pairs(n_levels)
        entries = pairs[block[rows], block[columns]]
    return np.sqrt(np.concatenate([[COUNT_SQUARE], one_way[block], entries])), square
