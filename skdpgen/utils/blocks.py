"""Rows in blocks of one shape: what BLAS returns for a row must not hang on how many rows there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

__all__ = ["map_blocks"]

_BLOCK = 4096


def map_blocks(function: Callable, X, size: int = _BLOCK) -> Iterator[tuple[slice, np.ndarray]]:
    """Apply a map of rows to rows, block by block, the last block padded with rows of zeros.

    A matrix product of few rows takes another kernel, which rounds otherwise. Without padding, one row that joins
    could change the last bits of many others: of nothing in value, but of everything on the edge of a histogram's cell.

    Parameters
    ----------
    function : callable
        Maps an array of shape (n, d) to one of shape (n, k), row by row.
    X : array of shape (n_samples, d)
    size : int, default=4096

    Yields
    ------
    (slice, array)
        Rows of `X`, and their image.
    """
    for start in range(0, len(X), size):
        rows = X[start : start + size]
        n = len(rows)
        if n < size:
            rows = np.concatenate([rows, np.zeros((size - n, X.shape[1]), dtype=rows.dtype)])
        yield slice(start, start + n), function(rows)[:n]
