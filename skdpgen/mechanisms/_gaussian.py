"""The Gaussian mechanism: the one place where noise meets a private sum."""

from __future__ import annotations

import numpy as np

from .._types import BoundedSum, check_neighboring
from ..utils.watching import Query, tell_release

__all__ = ["add_gaussian", "exact_value"]


def add_gaussian(bounded_sum, noise_multiplier, rng, neighboring):
    """Release a bounded sum with Gaussian noise.

    Parameters
    ----------
    bounded_sum : BoundedSum
        Private sum of arrays. An integer `value` counts steps of its lattice.
    noise_multiplier : float
        Standard deviation over sensitivity of the weighted sum; 0 adds no noise.
    rng : NoiseGenerator
    neighboring : {"add_or_remove_one", "replace_one"}

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
        If the noise multiplier is negative or not finite.

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
    check_neighboring(neighboring)
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
