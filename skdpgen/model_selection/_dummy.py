"""Dummy rows from public facts alone: for the trial of a scorer, and for the model of a search without a run."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..data.labels import with_dtype
from ..tabular._dtypes import holds_missing, output_dtype

# Enough for several rows of each class in the trial of a search, and so few that the trial takes a moment.
_ROWS = 60


def dummy_rows(X, y, estimator):
    """Return dummy (X, y) with the columns, dtypes and declared facts of the data, and none of their values.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        Read for its columns and dtypes.
    y : array, Series or None
        Read for its dtype and name.
    estimator : estimator
        Read for what it declares: `schema`, `bounds`, `classes`, `target`.

    Returns
    -------
    X, y : DataFrame or array, array or None
        The same for the same public facts.
    """
    rng = np.random.default_rng(0)
    parameters = estimator.get_params(deep=False)
    classes = parameters.get("classes")
    labels = None
    if y is not None:
        labels = _column(with_dtype(y).dtype, classes, parameters.get("target_type"), rng)
        if isinstance(y, pd.Series):
            labels = pd.Series(labels, name=y.name)
    if not isinstance(X, pd.DataFrame):
        d = np.asarray(X).shape[1]
        bounds = parameters.get("bounds")
        low, high = (-1.0, 1.0) if bounds is None else np.broadcast_to(np.asarray(bounds, float), (d, 2)).T
        return low + (np.asarray(high) - low) * rng.random((_ROWS, d)), labels
    schema, target = parameters.get("schema"), parameters.get("target")
    columns = {}
    for name in X.columns:
        declared = schema[name] if schema is not None and name in schema else None
        values = getattr(declared, "categories", None)
        if values is None and name == target:
            values = classes
        bounds = getattr(declared, "bounds", None)
        dtype = X[name].dtype
        shows_kind = declared is None or values is not None or not _is_text(dtype)
        drawn = _column(dtype if shows_kind else _dtype_of(declared), values, None, rng, bounds)
        if not shows_kind:
            # as CSV files hold them: dates as text, numbers and truth values in a column of objects
            drawn = drawn.dt.strftime("%Y-%m-%d").astype(object) if drawn.dtype.kind == "M" else drawn.astype(object)
        columns[name] = drawn
    return pd.DataFrame(columns), labels


def with_missing(rows, labels):
    """Return dummy rows and labels with one more record, in which every value is missing that may be.

    Only a DataFrame has missing values. With one of them numpy turns a column of integers into floats.
    """

    def more(values):
        values = values.iloc[[*range(len(values)), 0]].reset_index(drop=True)
        last = pd.Series(np.arange(len(values)) == len(values) - 1)
        return values.mask(last) if holds_missing(values.dtype) else values

    if isinstance(rows, pd.DataFrame):
        rows = pd.DataFrame({name: more(column) for name, column in rows.items()})
        labels = more(labels) if isinstance(labels, pd.Series) else labels
    if labels is not None and len(labels) < len(rows):
        labels = np.append(labels, labels[:1])
    return rows, labels


def _column(dtype, values, kind, rng, bounds=None):
    if values is not None and kind != "numeric":
        values = list(values)
        drawn = pd.Series([values[k] for k in rng.integers(0, len(values), _ROWS)])
        return drawn if isinstance(dtype, pd.CategoricalDtype) else _cast(drawn, dtype)
    if pd.api.types.is_datetime64_any_dtype(dtype):
        low, high = ("2000-01-01", "2001-01-01") if bounds is None else bounds
        low, high = pd.Timestamp(low), pd.Timestamp(high)
        return pd.Series([low + (high - low) * share for share in rng.random(_ROWS)])
    if pd.api.types.is_bool_dtype(dtype) and not isinstance(dtype, pd.CategoricalDtype):
        return _cast(pd.Series(rng.integers(0, 2, _ROWS).astype(bool)), dtype)
    if pd.api.types.is_numeric_dtype(dtype):
        low, high = (0, 2) if bounds is None else bounds
        drawn = low + (high - low) * rng.random(_ROWS)
        if pd.api.types.is_integer_dtype(dtype):
            drawn = np.clip(np.floor(drawn), low, high)
        return _cast(pd.Series(drawn), dtype)
    return pd.Series(np.array(["a", "b"], dtype=object)[rng.integers(0, 2, _ROWS)])


def _is_text(dtype):
    return dtype == np.dtype(object) or isinstance(dtype, pd.StringDtype)


def _dtype_of(column):
    """Dtype in which a declared column is drawn."""
    kind = type(column).__name__
    if kind == "Identifier":
        return output_dtype(column.dtype)
    if kind == "Categorical" and column.categories is None and column.dtype not in (None, "str", "object", "category"):
        declared = output_dtype(column.dtype)
        if pd.api.types.is_numeric_dtype(declared):  # codes, or truth values
            return np.dtype(bool if pd.api.types.is_bool_dtype(declared) else int)
    if kind == "Numeric" and column.integer:
        return np.dtype(int)
    return np.dtype({"Numeric": float, "Categorical": object, "Boolean": bool, "Datetime": "datetime64[ns]"}[kind])


def _cast(series, dtype):
    if isinstance(dtype, np.dtype) and dtype.kind in "US":  # the dtype would show the length of the longest text
        return series.astype(object)
    try:
        return series.astype(dtype)
    except (TypeError, ValueError):  # the declared values are of another type than the column
        return series


def rows_like(schema):
    """Return dummy rows of a table of which only the schema is known.

    Parameters
    ----------
    schema : Schema

    Returns
    -------
    DataFrame
    """
    rng = np.random.default_rng(0)
    columns = {}
    for column in schema.columns:
        bounds = getattr(column, "bounds", None)
        columns[column.name] = _column(_dtype_of(column), getattr(column, "categories", None), None, rng, bounds)
    return pd.DataFrame(columns)
