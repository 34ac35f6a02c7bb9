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
    "validate_rows",
]

fit_context = _fit_context
check_feature_names = _check_feature_names
get_feature_names = _get_feature_names
num_samples = _num_samples


# Sums of more rows would leave the integers that hold them exactly.
_MAX_ROWS = 1 << 24


def validate_rows(estimator, X, **options):
    """Validate an array of numbers as scikit-learn does, without showing a cell in a message.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features)
    **options
        Of scikit-learn's `validate_data`.

    Returns
    -------
    array of shape (n_samples, n_features)

    Raises
    ------
    InvalidInputError
        For text, complex numbers, or more rows than can be summed exactly; before anything is charged.
    """
    try:
        X = validate_data(estimator, X, dtype="numeric", **options)
    except ValueError as error:
        text = str(error)
        if "could not convert" in text:  # numpy's message holds the value
            raise InvalidInputError(
                "X holds values that are not numbers; P3GMSynthesizer takes a table of them as a DataFrame"
            ) from None
        if text.startswith("Complex data not supported"):  # and scikit-learn's the array
            raise InvalidInputError("Complex data not supported") from None
        raise
    if len(X) > _MAX_ROWS:
        raise InvalidInputError(f"at most {_MAX_ROWS} rows can be summed exactly: fit on a random part of them")
    return X


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
