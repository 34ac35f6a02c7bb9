"""The sum of one bounded number a row."""

from __future__ import annotations

import numpy as np

from .._types import BoundedSum

__all__ = ["total"]


def total(counts, largest):
    """Sum of whole numbers between 0 and a public largest one, one a row.

    Parameters
    ----------
    counts : array of int of shape (n_samples,)
        Values outside 0 .. `largest` are clipped to it.
    largest : int
        Public; positive.

    Returns
    -------
    BoundedSum
        `value` of shape (1,): the sum itself, with weight ``1 / largest``. A row moves the weighted sum by at most 1,
        and so does replacing one.
    """
    largest = int(largest)
    if largest < 1:
        raise ValueError(f"largest must be at least 1; got {largest}")
    summed = np.clip(np.asarray(counts), 0, largest).sum(dtype=np.int64)
    # in whole units, so that the sum and the rounded noise add exactly; the weight brings the bound to 1
    return BoundedSum(
        np.array([float(summed)]), l2_bound=1.0, difference_bound=1.0, weights=1 / largest, lattice=2.0**-20
    )
