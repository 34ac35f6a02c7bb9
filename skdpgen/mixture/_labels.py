"""Labels and containers: the classes of y, declared or released, and samples in the containers of the data."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from sklearn.utils.validation import column_or_1d

from ..exceptions import InvalidInputError
from ..mechanisms import histogram, release_names
from ..utils.categories import canonical_rows, family
from ..utils.validation import check_names, is_extension

__all__ = ["frame_like", "labels_of", "learn_classes", "series_like"]


def frame_like(X):
    """Return a maker of frames with the columns of `X`, or None if `X` is no DataFrame."""
    return partial(_frame, columns=X.columns) if isinstance(X, pd.DataFrame) else None


def series_like(y):
    """Return a maker of series with the name and dtype of `y`, or None if `y` is no Series."""
    if not isinstance(y, pd.Series):
        return None
    # the categories of a categorical are private, and so is their dtype: that of the released classes is kept
    return partial(_series, name=y.name, dtype=None if isinstance(y.dtype, pd.CategoricalDtype) else y.dtype)


def labels_of(y, n_samples):
    """Return y as an array of labels that can be sorted.

    Raises
    ------
    InvalidInputError
        If there are missing labels, another number of them than rows, other objects than text, truth values and
        numbers, or numbers with a fraction's dtype: whether y is a class is told by its dtype, never by its values.
    """
    if isinstance(y, pd.Series):
        check_names([y.name], "y")
    if isinstance(y, pd.Series) or is_extension(y):
        missing = y.isna().any()
        y = np.asarray(y.astype(object) if is_extension(y) else y)
        if missing:
            raise InvalidInputError("Input y contains NaN; nothing was charged")
    y = column_or_1d(y, warn=True)
    if len(y) != n_samples:
        raise InvalidInputError(f"X has {n_samples} rows and y {len(y)}; nothing was charged")
    if y.dtype.kind in "mM":
        raise InvalidInputError("y must hold text, numbers or truth values; give dates as text; nothing was charged")
    if y.dtype.kind in "fc":
        raise InvalidInputError(
            f"y must hold class labels; its dtype {y.dtype} says that it holds numbers. Give y as integers or strings "
            "to fit one Gaussian a class, or leave it out"
        )
    if y.dtype.kind == "O":
        if pd.isna(y).any():
            raise InvalidInputError("Input y contains NaN; nothing was charged")
        kinds = {family(label) for label in y}
        if len(kinds) > 1:
            raise InvalidInputError("y mixes labels of several types; nothing was charged")
        if None in kinds:
            raise InvalidInputError("y must hold text, numbers or truth values; nothing was charged")
        return canonical_rows(y)
    return y


def learn_classes(labels, plan, rng, neighboring):
    """Release the classes that stand above the threshold; the rows of others are left out (code -1)."""
    observed, codes = np.unique(labels, return_inverse=True)
    counts = histogram(codes.ravel(), len(observed))
    observed, noise = observed.tolist(), plan.noise_multipliers["classes"]
    kept = release_names(observed, counts, noise, plan.extra_delta, rng, neighboring)
    if not kept:  # nothing is known of y: one component without a name for all rows
        return np.array([]), np.zeros(len(labels), dtype=np.int64)
    # built anew: the dtype of all observed strings would tell the length of a label that was not kept
    place = {label: k for k, label in enumerate(kept)}
    return np.array(kept), np.array([place.get(label, -1) for label in observed])[codes.ravel()]


def _frame(rows, columns):
    return pd.DataFrame(rows, columns=columns)


def _series(labels, name, dtype):
    labels = pd.Series(labels, name=name)
    return labels if dtype is None else labels.astype(dtype)
