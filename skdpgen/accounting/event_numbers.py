"""Checks of the numbers that events are made of."""

from __future__ import annotations

import math
import numbers
from typing import Any

from dp_accounting import DpEvent, SelfComposedDpEvent

__all__ = ["positive", "repeat", "whole"]


def positive(value: Any, name: str) -> float:
    """Return a positive finite number as a float; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")
    value = float(value)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")
    return value


def whole(value: Any, name: str) -> int:
    """Return a whole number of at least 1 as an int; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")
    return int(value)


def repeat(event: DpEvent, count: int) -> DpEvent:
    """Return the event of `count` equal ones."""
    return event if count == 1 else SelfComposedDpEvent(event, count)
