"""Helpers of the checks: their list, accountants, watched noise, and the attributes of a fit."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager

import numpy as np
from sklearn.base import clone

from ..accounting import PrivacyAccountant
from ..utils.noise import NoiseGenerator

# A prime, so that no parameter or shape of a model equals it by chance.
N_ROWS = 211
CHECKS = []


def check(function):
    """Add a check to the list: a function of an estimator and of ``data(n_rows, seed)``."""
    CHECKS.append(function)
    return function


class Watched(NoiseGenerator):
    """A noise generator that calls a function at each draw."""

    def __init__(self, on_draw):
        super().__init__("fast")
        self._on_draw = on_draw

    def _words(self, n):
        self._on_draw()
        return super()._words(n)


def accountant_of(estimator, epsilon):
    return PrivacyAccountant(epsilon, neighboring=estimator.get_params()["neighboring"])


def fresh(estimator):
    return clone(estimator).set_params(accountant=None)


def charging(estimator, accountant):
    return clone(estimator).set_params(accountant=accountant)


def fitted_attributes(estimator):
    return {name: value for name, value in vars(estimator).items() if name not in estimator.get_params(deep=False)}


def numbers(fitted):
    """Numeric arrays among the fitted attributes."""
    arrays = {name: value for name, value in fitted_attributes(fitted).items() if name.endswith("_")}
    if "best_estimator_" in arrays:  # of a search: what it released is in there
        arrays.update(fitted_attributes(arrays["best_estimator_"]))
    if hasattr(fitted, "sample"):
        arrays["sample"] = sampled(fitted, 0)
    return {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}


def sampled(fitted, random_state):
    drawn = fitted.sample(20, random_state=random_state)
    return np.asarray(drawn[0] if isinstance(drawn, tuple) else drawn)


def of_length(value, n, path, *, numbers, seen=None):
    """Yield the paths at which `value` holds anything with n entries along an axis, or (`numbers`) the number n."""
    seen = set() if seen is None else seen
    if id(value) in seen or value is None or isinstance(value, str | bytes | bool):
        return
    seen.add(id(value))
    if isinstance(value, int | float | np.number):
        if numbers and value == n:
            yield path
        return
    if hasattr(value, "shape") and not isinstance(value.shape, float):  # of an event, not of an array
        # an array or a tensor without axes is a number
        if n in (shape := tuple(value.shape)) or (numbers and not shape and value == n):
            yield path
        return
    if isinstance(value, list | tuple | set | frozenset) and len(value) == n:
        yield path
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list | tuple | set | frozenset):
        children = enumerate(value)
    elif dataclasses.is_dataclass(value):
        children = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    elif type(value).__module__.startswith(("numpy", "builtins")) or callable(value):
        return
    else:
        children = getattr(value, "__dict__", {}).items()
    for name, child in children:
        yield from of_length(child, n, f"{path}.{name}", numbers=numbers, seen=seen)


@contextmanager
def raises(error):
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")
