"""Rows in blocks of one shape: the result of BLAS for a row must not depend on the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

# Rows of a block, fewer of more columns: enough for full speed of a matrix product, few enough to stay in the cache.
_MOST_ROWS, _LEAST_ROWS, _ENTRIES = 4096, 256, 2**18
# Bits after the point of rows and of a matrix whose entries are at most 1: products then have 40. Entries of rows are
# at most 4, so that a sum of 2**11 products is a whole number of at most 2**53 steps, which float64 holds exactly.
_ROW_BITS, _MATRIX_BITS, _LARGEST, _TERMS = 18, 22, 4.0, 2**11


def block_rows(n_columns: int) -> int:
    """Rows of a block of so many columns."""
    return min(max(_ENTRIES // max(n_columns, 1), _LEAST_ROWS), _MOST_ROWS)


def map_blocks(function: Callable, X, size: int | None = None) -> Iterator[tuple[slice, np.ndarray]]:
    """Apply a map of rows to rows, block by block, the last block padded with rows of zeros.

    A matrix product of few rows takes another kernel, which rounds otherwise. Without padding, one row that joins could
    change the last bits of many others: of nothing in value, but of everything on the edge of a histogram's cell. A
    row's place within a block may still show in its last bits: if a histogram cell depends on these bits, use
    `exact_product`.

    `function`: maps an array of shape (n, d) to one of shape (n, k), row by row. `X`: shape (n_samples, d). Yields
    (slice, array): rows of `X`, and their image. `size`: rows of a block; None: so many as the columns of `X` allow.
    """
    size = size or block_rows(X.shape[1])
    for start in range(0, len(X), size):
        rows = X[start : start + size]
        n = len(rows)
        if n < size:
            rows = np.concatenate([rows, np.zeros((size - n, X.shape[1]), dtype=rows.dtype)])
        yield slice(start, start + n), function(rows)[:n]


def mapped_rows(function: Callable, X, n_columns: int) -> np.ndarray:
    """Images of all rows by `map_blocks`, float64 of shape (n_samples, n_columns)."""
    found = np.empty((len(X), n_columns))
    for part, rows in map_blocks(function, X):
        found[part] = rows
    return found


def exact_product(rows, matrix):
    """Product with a public matrix that is one and the same function of each row, wherever the row stands.

    BLAS adds in an order that may follow a row's place, so that a row that joins could change the last bits of many
    others. Here entries are rounded to so few bits that every partial sum of 2**11 products is exact: no order shows.
    The sums of further products are added one after the other, for every row in the same order.

    `rows` (n, d): rounded to multiples of 2**-18. Rows of the unit box about a point of it, or features, have entries
        of at most 2; entries beyond 4 count as 4.
    `matrix` (d, k): public; rounded to multiples of 2**-22 of the next power of two above its largest entry.
    Returns an array of shape (n, k).
    """
    # times a power of two, which is exact
    rounded = _rounded(matrix) * 2.0**-_ROW_BITS
    rows = np.asarray(rows, dtype=np.float64) * 2.0**_ROW_BITS
    np.rint(rows, out=rows)
    np.clip(rows, -_LARGEST * 2.0**_ROW_BITS, _LARGEST * 2.0**_ROW_BITS, out=rows)
    found = rows[:, :_TERMS] @ rounded[:_TERMS]
    for first in range(_TERMS, len(rounded), _TERMS):
        found += rows[:, first : first + _TERMS] @ rounded[first : first + _TERMS]
    return found


def finer_product(rows, matrix):
    """As `exact_product`, with about 40 bits: both factors are taken apart, and their parts have exact products.

    `rows` (n, d): entries beyond 4 count as 4. `matrix` (d, k): public or released. Returns an array of shape (n, k).
    """
    rows, matrix = np.clip(np.asarray(rows, dtype=np.float64), -_LARGEST, _LARGEST), np.asarray(matrix)
    coarse, of_matrix = np.rint(rows * 2.0**_ROW_BITS) * 2.0**-_ROW_BITS, _rounded(matrix)
    rest = exact_product((rows - coarse) * 2.0**_ROW_BITS, of_matrix) * 2.0**-_ROW_BITS
    return exact_product(coarse, of_matrix) + (exact_product(coarse, matrix - of_matrix) + rest)


def _rounded(matrix):
    unit = 2.0 ** (np.ceil(np.log2(max(float(np.abs(matrix).max(initial=0.0)), 1e-300))) - _MATRIX_BITS)
    return np.rint(np.asarray(matrix, dtype=np.float64) / unit) * unit
