"""Blocks of the encoded matrix, and the draw of levels from what a model says about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Block", "sample_levels"]


@dataclass(frozen=True)
class Block:
    """The columns of the matrix that stand for one column of the table.

    Parameters
    ----------
    name : str or int
        Column of the table.
    kind : {"levels", "value"}
        One-hot levels; or one number in [-1, 1], and where values may be missing a flag after it.
    start, stop : int
        Its columns of the matrix.
    levels : tuple
        Of a "levels" block: categories, or pairs (lowest, highest) of bins; then `other` where there is one; then
        None where values may be missing. Of a "value" block: ("value",) or ("value", None).
    """

    name: str | int
    kind: str
    start: int
    stop: int
    levels: tuple

    @property
    def size(self) -> int:
        """Number of columns of the matrix."""
        return self.stop - self.start


def sample_levels(weights, rng):
    """Draw one level a row from non-negative weights, by inverting the distribution function.

    Parameters
    ----------
    weights : array of shape (n_rows, n_levels)
        Negative and non-finite entries count as 0; a row of zeros is uniform.
    rng : object with ``random(size)``

    Returns
    -------
    array of shape (n_rows,), intp
    """
    weights = np.asarray(weights, dtype=np.float64)
    weights = np.where(np.isfinite(weights) & (weights > 0), weights, 0.0)
    largest = weights.max(axis=1, keepdims=True)
    # scaled by the largest, so that sums neither overflow nor vanish
    weights = np.divide(weights, largest, out=np.ones_like(weights), where=largest > 0)
    cumulative = np.cumsum(weights, axis=1)
    drawn = rng.random(len(weights)) * cumulative[:, -1]
    drawn = np.minimum(drawn, np.nextafter(cumulative[:, -1], 0.0))
    return (cumulative <= drawn[:, None]).sum(axis=1)
