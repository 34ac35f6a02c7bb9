"""Rows clipped to a ball, and truncated to a lattice on which their sums are exact."""

from __future__ import annotations

import numpy as np

__all__ = ["check_bound", "clip_rows", "lattice_rows"]


def check_bound(bound, name="l2_bound"):
    """Return `bound` as a float if it is positive and finite, raise ValueError otherwise."""
    bound = float(bound)
    if not 1e-100 <= bound <= 1e100:
        raise ValueError(f"{name} must be a positive finite number (1e-100 to 1e100); got {bound!r}")
    return bound


def clip_rows(X, l2_bound=1.0):
    """Return the rows of `X`, scaled down where needed so that no norm exceeds `l2_bound`.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Any numeric dtype. A row with a NaN or an infinity becomes zero: after the charge nothing may raise.
    l2_bound : float, default=1.0
        Largest norm, in the units of `X`.

    Returns
    -------
    array of shape (n_samples, n_features), float64
        A new array in the units of `X`. The bound holds for the exact norm, not only for the computed one.
    """
    return _clip_in_place(np.array(X, dtype=np.float64, order="C"), check_bound(l2_bound))


def lattice_rows(X, l2_bound, step):
    """Return the rows of `X` clipped, divided by `l2_bound`, and truncated toward zero to multiples of `step`.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    l2_bound : float
    step : float or None
        Power of two; None does not truncate (for fits without noise).

    Returns
    -------
    array of shape (n_samples, n_features), float64
        Rows of norm at most 1. Truncation shrinks every entry, so the bound still holds. A truncated row is itself a
        row of the unit ball, so every bound proved for such rows holds for it.
    """
    rows = np.array(X, dtype=np.float64, order="C")
    rows = _clip_in_place(rows, check_bound(l2_bound))
    if l2_bound != 1.0:
        rows /= l2_bound
    if step is not None:
        rows *= 1 / step
        np.trunc(rows, out=rows)
        rows *= step
    return rows


def _clip_in_place(rows, bound):
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    # The computed norm is off by at most half of (n_features + 2) units in the last place.
    limit = bound * (1 - 1e-12 - rows.shape[1] * 2.0**-52)
    long = norms > limit
    for i in np.flatnonzero(~np.isfinite(norms)):
        largest = np.abs(rows[i]).max()
        if np.isfinite(largest):  # the squares overflow, the row does not
            rows[i] /= largest
            norms[i], long[i] = np.linalg.norm(rows[i]), True
        else:
            rows[i], long[i] = 0.0, False
    long = np.flatnonzero(long)
    if long.size:
        rows[long] *= (limit / norms[long])[:, None]
    return rows
