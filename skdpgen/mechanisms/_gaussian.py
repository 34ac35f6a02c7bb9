"""The Gaussian mechanism: rows clipped to a ball, and the one place where noise meets a private sum."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .._types import BoundedSum, check_neighboring, unit_of
from ..utils.watching import Query, tell_release

# Columns whose squares are added at once; the buffer of numpy holds 8,192 numbers.
_NORM_COLUMNS = 4096
# Gaussian noise exceeds so many standard deviations with a probability below e**-36.
_MARGIN = 8.2


class Count(NamedTuple):
    """A public or released number of rows, or of units.

    `value`: the number.
    `most`: upper bound of the exact number, from `upper_bound`; equal to `value` if that is public.
    """

    value: float
    most: float


def upper_bound(released, noise_sd) -> float:
    """Return a bound that the sum of exact counts exceeds with a probability below e**-36.

    `released`: the counts with noise. `noise_sd`: standard deviation of the noise on each.
    """
    return float(np.sum(released)) + _MARGIN * float(noise_sd) * math.sqrt(np.size(released))


def add_gaussian(bounded_sum, noise_multiplier, rng, neighboring):
    """Release a bounded sum with Gaussian noise.

    Parameters
    ----------
    bounded_sum : BoundedSum
        Private sum of arrays. An integer `value` counts steps of its lattice.
    noise_multiplier : float
        Standard deviation over sensitivity of the weighted sum; 0 adds no noise.
    rng : NoiseGenerator
    neighboring : {"add_or_remove_one", "replace_one"} or UnitRelation

    Returns
    -------
    array of the shape of ``bounded_sum.value``, float64
        In the units of the value (weights undone): entry j has noise of standard deviation
        ``noise_multiplier * sensitivity / weights[j]``.

    Raises
    ------
    TypeError
        If `bounded_sum` is not a `BoundedSum`: without a stated sensitivity, noise proves nothing.
    ValueError
        If the noise multiplier is negative or not finite, or the relation is not that of the unit that the fit of
        `rng` protects: noise for a row would be too small for a person.

    Notes
    -----
    Where the sum has a lattice, the noise is rounded to it and the two are added as integers. The low-order bits of the
    result then reveal nothing about the sum (Mironov 2012; Holohan and Braghin 2021).

    References
    ----------
    I. Mironov, On significance of the least significant bits for differential privacy, CCS 2012.
    """
    if not isinstance(bounded_sum, BoundedSum):
        raise TypeError(f"noise is added to a BoundedSum, which states a sensitivity; got {type(bounded_sum).__name__}")
    noise_multiplier = float(noise_multiplier)
    if not (np.isfinite(noise_multiplier) and noise_multiplier >= 0):
        raise ValueError(f"noise_multiplier must be a finite number of at least 0; got {noise_multiplier!r}")
    unit = unit_of(neighboring)
    check_neighboring(getattr(neighboring, "neighboring", neighboring))
    if getattr(rng, "unit", None) != unit:
        raise ValueError(f"this fit protects {rng.unit or 'one row'}, and the noise was asked for {unit or 'one row'}")
    observed = {"query": Query(bounded_sum, noise_multiplier, neighboring), "seeded": not getattr(rng, "private", True)}
    if noise_multiplier == 0:
        return tell_release(exact_value(bounded_sum), 0.0, **observed)
    value = np.asarray(bounded_sum.value)
    sd = noise_multiplier * bounded_sum.sensitivity(neighboring) / np.asarray(bounded_sum.weights, dtype=np.float64)
    lattice = bounded_sum.lattice
    if lattice is None:
        return tell_release(value + rng.standard_normal(value.shape) * sd, sd, **observed)
    steps = value if value.dtype.kind in "iu" else np.rint(value / lattice)
    released = steps.astype(np.int64) + _lattice_noise(sd / lattice, value.shape, rng)
    return tell_release(released.astype(np.float64) * float(lattice), sd, **observed)


def mean_of_releases(first, second, noises):
    """Return the mean of two releases of one query, weighted by their inverse variances.

    `noises`: noise multiplier of each, or standard deviation of its noise.
    """
    one, other = (np.square(noise) for noise in noises)
    return first if one + other == 0 else (first * other + second * one) / (one + other)


def noise_of_mean(noises):
    """Return the noise multiplier, or the standard deviation of the noise, of `mean_of_releases`."""
    one, other = noises
    return 0.0 if one == 0 or other == 0 else one * other / math.hypot(one, other)


def _lattice_noise(sd, shape, rng):
    """Draw whole-number Gaussian noise; `sd` in steps, a number or an array broadcast to `shape`.

    A double holds 53 bits, so noise of very many steps would be a multiple of 2, 4, ... and would not cover the low
    bits of the sum. From 2^44 steps on, the low bits are drawn separately: next to the standard deviation they are
    negligible. Their number depends on the standard deviation of the entry itself: as many uniform bits as another
    entry needs could exceed the noise of this one.
    """
    sd = np.asarray(sd, dtype=np.float64)
    low_bits = np.maximum(np.ceil(np.log2(np.maximum(sd, 1.0))) - 44, 0).astype(np.int64)
    noise = np.rint(rng.standard_normal(shape) * np.ldexp(sd, -low_bits)).astype(np.int64)
    most = int(np.max(low_bits))
    if most > 12:  # more than 62 bits in all: Python's integers have room
        noise, low_bits = noise.astype(object), low_bits.astype(object)
    for drawn in range(0, most, 20):
        piece = np.clip(low_bits - drawn, 0, 20)
        noise = (noise << piece) + (rng.integers(1 << 20, shape) & ((1 << piece) - 1))
    return noise


def exact_value(bounded_sum):
    """Return the sum without noise as float64: private, for noise multiplier 0 and for tests."""
    value = np.asarray(bounded_sum.value)
    if value.dtype.kind in "iu" and bounded_sum.lattice is not None:
        return value * float(bounded_sum.lattice)
    return np.array(value, dtype=np.float64)


# ---- rows clipped, and truncated to a lattice on which their sums are exact ------------------------------------------
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


def row_norms(rows):
    """Return the Euclidean norm of each row: one and the same function of it, however many rows there are.

    numpy adds the squares of a single row of more columns than its buffer holds in another order than those of the same
    row beside others. So no more columns than that are added at once.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features), float64

    Returns
    -------
    array of shape (n_samples,), float64
    """
    rows = np.ascontiguousarray(rows)
    squares = np.zeros(len(rows))
    for first in range(0, rows.shape[1], _NORM_COLUMNS):
        part = rows[:, first : first + _NORM_COLUMNS]
        squares += np.einsum("ij,ij->i", part, part)
    return np.sqrt(squares)


def _clip_in_place(rows, bound):
    with np.errstate(over="ignore", invalid="ignore"):
        norms = row_norms(rows)
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
