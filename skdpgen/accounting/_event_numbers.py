"""Checks of the numbers that events are made of, and the ranges in which they can be priced."""

from __future__ import annotations

import math
import numbers
from typing import Any

from dp_accounting import DpEvent, SelfComposedDpEvent

__all__ = [
    "MOST_ALTERNATIVES",
    "MOST_COUNT",
    "MOST_RELEASES",
    "MOST_RUNS",
    "NOISE_RANGE",
    "noise_multiplier",
    "positive",
    "repeat",
    "sampling_rate",
    "whole",
]

# Beyond these a price overflows or is lost in rounding; what a fit can use lies far inside.
NOISE_RANGE = (1e-12, 1e18)
LEAST_RATE = 1e-12
# Equal releases of one kind, steps among them.
MOST_COUNT = 10**12
# Different releases in one event.
MOST_RELEASES = 100_000
# Of a repetition: the mean number of runs, and the things that a run may be.
MOST_RUNS = 1e6
MOST_ALTERNATIVES = 1_000


def positive(value: Any, name: str) -> float:
    """Return a positive finite number as a float; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")
    try:
        value = float(value)
    except OverflowError:  # of an integer
        raise ValueError(f"{name} must be a positive finite number; this one is too large") from None
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")
    return value


def noise_multiplier(value: Any) -> float:
    """Return a noise multiplier as a float; ValueError outside `NOISE_RANGE`."""
    value = positive(value, "noise_multiplier")
    low, high = NOISE_RANGE
    if not low <= value <= high:
        raise ValueError(f"noise_multiplier must lie in [{low:g}, {high:g}]; got {value!r}")
    return value


def sampling_rate(value: Any) -> float:
    """Return a sampling rate as a float; ValueError outside [`LEAST_RATE`, 1]."""
    value = positive(value, "sampling_rate")
    if value > 1:
        raise ValueError(f"sampling_rate must lie in (0, 1]; got {value!r}")
    if value < LEAST_RATE:
        raise ValueError(f"sampling_rate must be at least {LEAST_RATE:g}; got {value!r}")
    return value


def whole(value: Any, name: str) -> int:
    """Return a whole number of 1 to `MOST_COUNT` as an int; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")
    if value > MOST_COUNT:
        raise ValueError(f"{name} must be at most {MOST_COUNT:g}")
    return int(value)


def repeat(event: DpEvent, count: int) -> DpEvent:
    """Return the event of `count` equal ones."""
    return event if count == 1 else SelfComposedDpEvent(event, count)
