"""What a model file must keep to be loaded: finite arrays, numbers in their ranges, and a sample that is finite."""

from __future__ import annotations

import math
import warnings
from numbers import Real

import numpy as np
import pandas as pd

# Arrays in which NaN stands for "not known", by the end of their names.
_OPEN = ("scores.shares",)
_INFINITE = ("scores.edges",)
# Rows of the trial sample, at least; there is one of every class.
_TRIAL = 20
MOST_CLASSES = 1_000_000
_MOST_ROWS = 1e15


def check_arrays(arrays):
    """Raise ValueError unless all arrays of a file are numbers or truth values, and finite."""
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise ValueError(f"the array {name} holds no numbers")
        if array.dtype.kind != "f" or name.endswith(_OPEN):
            continue
        if np.isnan(array).any() or (np.isinf(array).any() and not name.endswith(_INFINITE)):
            raise ValueError(f"the array {name} holds NaN or infinity")


def check_whole(value, name, low=0, high=10_000_000):
    """Return a whole number of a file; ValueError outside its range."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}; got {value!r:.40}")
    return value


def check_size(*sides, most=1 << 26):
    """Raise ValueError for an array that a file asks for beside those in it, and that would be too large."""
    if math.prod(check_whole(side, "a size") for side in sides) > most:
        raise ValueError("the file asks for an array that is too large")


def check_mixture(mixture):
    """Raise ValueError unless the weights and variances of a mixture are those of one; return it."""
    if (mixture.weights < 0).any() or not 0.999 < mixture.weights.sum() < 1.001:
        raise ValueError("the weights of the mixture are no shares")
    covariances = mixture.covariances
    variances = covariances if mixture.covariance_type == "diag" else np.diagonal(covariances, axis1=1, axis2=2)
    if (variances < 0).any():
        raise ValueError("the mixture has negative variances")
    return mixture


def check_loaded(estimator):
    """Raise ValueError unless a loaded model has a row count and shares of classes, and a sample of it is finite."""
    model = estimator.model_
    count, weights = model.row_count, np.asarray(model.component_weights)
    if isinstance(count, bool) or not isinstance(count, Real) or not 0 <= count <= _MOST_ROWS:
        raise ValueError("the row count must be a number from 0 to 1e15")
    # all are zero where noise hides every row: rows are then drawn of all classes alike
    if weights.ndim != 1 or not 1 <= len(weights) <= MOST_CLASSES or not 0 <= weights.min() <= weights.sum() < np.inf:
        raise ValueError("the shares of the classes must be a list of numbers, none negative")
    if model.codec.n_classes and len(weights) != model.codec.n_classes:
        raise ValueError("there must be one share for each class")
    components = np.resize(np.arange(len(weights)), max(_TRIAL, len(weights)))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        frames = [model.sample(components, np.random.default_rng(0))]
        if getattr(model, "units", None) is not None:
            frames.append(model.try_units(_TRIAL, np.random.default_rng(0)))
        frames = [estimator.as_frame(frame) for frame in frames]
    for frame in frames:
        _check_sample(frame, getattr(model.codec, "drawn_schema", None))


def _check_sample(frame, schema):
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        may_miss = schema is not None and schema.columns[min(place, len(schema) - 1)].missing
        numbers = pd.api.types.is_float_dtype(column.dtype)
        if (column.isna().any() and not may_miss) or (numbers and np.isinf(column.astype("float64")).any()):
            raise ValueError(f"the sample of column {name!r} is not finite")
