"""Interactions of all triples of columns in one query: what two-way tables cannot show."""

from __future__ import annotations

import itertools
import math

import numpy as np

from .._types import BoundedSum
from ._histogram import LATTICE, by_weight

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
