"""Small checks of public facts, and the only place that imports what scikit-learn keeps private."""

from __future__ import annotations

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, _fit_context
from sklearn.utils._param_validation import HasMethods, Hidden, Interval, InvalidParameterError, Options, StrOptions
from sklearn.utils.validation import _check_feature_names, _get_feature_names, _num_samples, validate_data

from ..exceptions import InvalidInputError

__all__ = [
    "ClassNamePrefixFeaturesOutMixin",
    "HasMethods",
    "Hidden",
    "Interval",
    "InvalidParameterError",
    "Options",
    "StrOptions",
    "check_classes",
    "check_feature_names",
    "encode_labels",
    "fit_context",
    "get_feature_names",
    "num_samples",
    "validate_data",
]

fit_context = _fit_context
check_feature_names = _check_feature_names
get_feature_names = _get_feature_names
num_samples = _num_samples


def check_classes(classes):
    """Return declared classes as a sorted array without repeats.

    Raises
    ------
    InvalidInputError
        If there is none, or the same one twice.
    """
    given = np.asarray(classes)
    if given.ndim != 1 or given.size == 0:
        raise InvalidInputError(f"classes must be a list of at least one class; got shape {given.shape}")
    kept = np.unique(given)
    if kept.size != given.size:
        raise InvalidInputError("classes holds the same class twice")
    return kept


def encode_labels(y, classes):
    """Return the code of each label in the sorted `classes`.

    Raises
    ------
    InvalidInputError
        If a label is missing or is not among the classes (the message does not say which).
    """
    y = np.asarray(y)
    if y.dtype.kind == "O" and classes.dtype.kind != "O":
        y = y.astype(str) if classes.dtype.kind in "US" else y
    try:
        codes = np.clip(np.searchsorted(classes, y), 0, len(classes) - 1)
        known = classes[codes] == y
    except TypeError:
        known = np.False_
    if not np.all(known):
        raise InvalidInputError("y holds a label that is not among the declared classes; no label is shown here")
    return codes
