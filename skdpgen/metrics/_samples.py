"""Real and synthetic rows in any container: as frames of the same columns, as numbers, as cells of tables of counts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from pandas.api import types as pdt
from sklearn.preprocessing import OneHotEncoder

from ..exceptions import InvalidInputError
from ..tabular._columns import Identifier
from ..tabular._formats import plain_forms
from ..utils.foreign_tables import to_pandas
from ..utils.printing import plain_number

# Indicators of one column for a classifier, or for a distance: rarer categories share the last one.
MOST_LEVELS = 200


def as_frame(rows, like=None):
    """Return rows as a DataFrame.

    `rows` (n_samples, ...), or pair (X, y): arrays of more dimensions (images) are flattened to one row each. y becomes
        the last column.
    `like`: gives its column names to an array of as many columns.
    Returns: columns x0, x1, ... for an array, "y" for labels without a name. Decimals, spans, periods and the like are
        plain columns (see `plain_forms`).
    """
    if isinstance(rows, tuple) and len(rows) == 2:
        X, y = rows
        frame = as_frame(X)
        name = "y" if getattr(y, "name", None) is None else y.name
        while name in frame.columns:
            name = f"{name}_"
        frame = frame.assign(**{str(name): y.array if isinstance(y := to_pandas(y), pd.Series) else np.asarray(y)})
    elif isinstance(rows := to_pandas(rows), pd.DataFrame):
        return plain_forms(rows)
    elif isinstance(rows, pd.Series):
        return rows.to_frame("x0" if rows.name is None else rows.name)
    else:
        array = np.asarray(rows)
        if array.ndim < 2:
            raise InvalidInputError(f"expected a DataFrame, an array of rows or a pair (X, y); got {array.ndim}D")
        array = array.reshape(len(array), -1)
        frame = pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])
    if like is not None and frame.shape[1] == like.shape[1]:
        frame.columns = like.columns
    return frame


def without_keys(rows, schema):
    """Leave out the identifiers of a schema: fresh keys are not meant to be like the real ones."""
    rows = to_pandas(rows)
    if schema is None or not hasattr(rows, "columns"):
        return rows
    return rows.drop(columns=[c for c in rows.columns if c in schema and isinstance(schema[c], Identifier)])


def paired_frames(real, synthetic, schema=None):
    """Return both as frames with the same columns in the same order, without the identifiers of a schema.

    Raises ValueError: the columns differ, there is none, or one has no rows.
    """
    real = as_frame(real)
    synthetic = as_frame(synthetic, like=real)
    had_columns = real.shape[1] > 0
    real, synthetic = (without_keys(rows, schema) for rows in (real, synthetic))
    if had_columns and not real.shape[1]:
        raise ValueError("the schema declares all columns as identifiers, which are compared with nothing")
    if list(real.columns) != list(synthetic.columns):
        different = set(map(str, real.columns)) ^ set(map(str, synthetic.columns))
        raise ValueError(
            "real and synthetic rows must have the same columns in one order; "
            + (f"only in one of them: {sorted(different)}" if different else "their order differs")
        )
    if not len(real) or not len(synthetic):
        raise ValueError("real and synthetic rows need at least one row each")
    return real, synthetic


def column_kind(column, declared=None):
    """Return "number", "date" or "category": as declared, else by the dtype of the column, never by its values.

    `column`: real rows. `declared`: entry of a schema: with `bounds` a number or a date, with `categories` a category.
    """
    date = pdt.is_datetime64_any_dtype(column)
    if getattr(declared, "bounds", None) is None and getattr(declared, "categories", None) is not None:
        return "category"
    if date:
        return "date"
    if getattr(declared, "bounds", None) is not None:
        return "number"
    numeric = pdt.is_numeric_dtype(column) and not pdt.is_bool_dtype(column)
    return "number" if numeric else "category"


def to_numbers(column, *, finite=False):
    """Return a column of numbers or dates as float64, NaN where missing; dates in nanoseconds.

    `finite`: take infinities for missing: for what computes with the values. Raises InvalidInputError for text where
    numbers are expected; the message names the column and shows no value.
    """
    if pdt.is_datetime64_any_dtype(column):
        values = column.dt.tz_localize(None) if getattr(column.dt, "tz", None) is not None else column
        values = values.astype("datetime64[ns]").astype("int64").to_numpy(dtype=float, copy=True)
        values[column.isna().to_numpy()] = np.nan
        return values
    try:
        values = pd.to_numeric(column)
    except (TypeError, ValueError):  # pandas' message holds a cell
        raise InvalidInputError(f"column {column.name!r}: numbers in one table and text in the other") from None
    values = values.to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan) if finite else values


def numeric_matrices(real, synthetic, schema=None):
    """Encode both frames as numbers, by rules learned from the real rows.

    Numbers and dates are standardised, with missing ones at the mean and a column of flags; categories are one-hot, the
    `MOST_LEVELS` commonest of the real rows, and one column for all others.

    `real`, `synthetic`: of the same columns. Returns `real`, `synthetic` (n_rows, n_encoded).
    """
    parts = ([], [])
    for name in real.columns:
        columns = real[name], synthetic[name]
        if column_kind(real[name], None if schema is None else schema[name]) == "category":
            encoded = _one_hot(*columns)
        else:
            encoded = _standardised(*columns)
        for part, matrix in zip(parts, encoded):
            part.append(matrix)
    return tuple(np.concatenate(part, axis=1) for part in parts)


def _standardised(real, synthetic):
    values = [to_numbers(column, finite=True) for column in (real, synthetic)]
    known = values[0][~np.isnan(values[0])]
    mean, spread = (known.mean(), known.std()) if len(known) else (0.0, 1.0)
    flagged = any(np.isnan(column).any() for column in values)
    out = []
    for column in values:
        scaled = np.nan_to_num((column - mean) / (spread or 1.0), nan=0.0)[:, None]
        out.append(np.column_stack([scaled, np.isnan(column)]) if flagged else scaled)
    return out


def _one_hot(real, synthetic):
    columns = [each_distinct(column, text_of, missing="")[:, None] for column in (real, synthetic)]
    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_LEVELS, sparse_output=False, dtype=np.float64
    ).fit(columns[0])
    encoded = [encoder.transform(column) for column in columns]
    # values that the real rows lack are a separate column: they differ between the tables
    unseen = [(matrix.sum(axis=1) == 0)[:, None].astype(float) for matrix in encoded]
    return [np.column_stack([matrix, flag]) for matrix, flag in zip(encoded, unseen)]


def text_of(value):
    """Return a category as text: a truth value is no text, and no number."""
    return f"{type(value).__name__[:1]}{value}" if isinstance(value, bool) else str(value)


def each_distinct(column, function, missing=None):
    """Apply a function of one value to a column, once for each distinct value.

    `missing`: what stands for a missing value. Returns an array of shape (n_rows,).
    """
    if pdt.is_object_dtype(column.dtype) and pdt.infer_dtype(column, skipna=True) != "string":
        known = column.notna().to_numpy()  # 1, 1.0 and True are equal, and need not be the same to the function
        values = [function(value) if here else missing for value, here in zip(column, known)]
        return _objects(values)
    places, distinct = pd.factorize(column)
    return _objects([*map(function, pd.Series(distinct).astype(object)), missing])[places]


def _objects(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


# ---- cells ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class ColumnCells:
    """Cell numbers of one column in both tables."""

    name: object  # column name
    kind: str  # "number" or "date" or "category"
    # real, synthetic: int (n_rows,)
    real: np.ndarray
    synthetic: np.ndarray
    size: int  # number of cells; the last is that of missing values
    labels: tuple = ()  # tuple of str; one a cell, for pictures

    def shares(self):
        """Return the share of each cell in the real and in the synthetic rows, two arrays of shape (size,)."""
        return tuple(np.bincount(codes, minlength=self.size) / len(codes) for codes in (self.real, self.synthetic))

    def distance(self):
        """Total variation distance of the two."""
        p, q = self.shares()
        return 0.5 * float(np.abs(p - q).sum())


def declared_column(name, at, schema=None, bounds=None):
    """Return what was declared of one column: an entry of the schema, or the bounds of an array's column."""
    if schema is not None:
        if bounds is not None:
            raise ValueError("give a schema or bounds, not both")
        return schema[name]
    if bounds is None:
        return None
    pairs = np.asarray(bounds, dtype=float)
    if pairs.shape != (2,) and (pairs.ndim != 2 or pairs.shape[1] != 2):
        raise ValueError(f"bounds must be a pair, or one pair a column; got shape {pairs.shape}")
    if pairs.ndim == 2 and at >= len(pairs):  # labels appended after the columns of X
        return None
    return _Bounds(tuple(pairs if pairs.shape == (2,) else pairs[at]))


@dataclass(frozen=True)
class _Bounds:
    bounds: tuple


def table_cells(real, synthetic, schema=None, *, bounds=None, n_bins=10):
    """Return the cells of every column, a list of ColumnCells; frames of the same columns."""
    return [
        column_cells(real[name], synthetic[name], declared_column(name, at, schema, bounds), n_bins)
        for at, name in enumerate(real.columns)
    ]


def column_cells(real, synthetic, declared=None, n_bins=10):
    """Return the cells of one column.

    `declared`: with `bounds` or `categories`; without, the range or the values of `real` are taken, which is not
    public. `n_bins`: equal bins of numbers and dates over the bounds; values outside count in the outer bins.
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1; got {n_bins}")
    kind = column_kind(real, declared)
    if kind == "category":
        return _categories(real, synthetic, getattr(declared, "categories", None))
    numbers = to_numbers(real), to_numbers(synthetic)
    bounds = getattr(declared, "bounds", None)
    if bounds is None:
        finite = numbers[0][np.isfinite(numbers[0])]
        bounds = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    low, high = (_number(bound) for bound in bounds)
    edges = np.linspace(low, high if high > low else low + 1.0, n_bins + 1)
    labels = [_interval(a, b, kind) for a, b in pairwise(edges)]
    codes = [_bins(values, low, high, n_bins) for values in numbers]
    return ColumnCells(real.name, kind, *codes, n_bins + 1, (*labels, "missing"))


def _number(bound):
    if not isinstance(bound, (str, pd.Timestamp, np.datetime64)):
        return float(bound)
    moment = pd.Timestamp(bound)
    return float((moment.tz_localize(None) if moment.tzinfo else moment).as_unit("ns").value)


def _interval(low, high, kind):
    if kind == "date":
        return f"{pd.Timestamp(int(low)):%Y-%m-%d}"
    return f"{plain_number(low)} to {plain_number(high)}"


def _bins(values, low, high, n_bins):
    width = (high - low) or 1.0
    missing = np.isnan(values)
    cell = np.floor(np.clip((np.where(missing, low, values) - low) / width, 0.0, 1.0) * n_bins)
    return np.where(missing, n_bins, np.clip(cell, 0, n_bins - 1)).astype(np.int64)


def _categories(real, synthetic, categories):
    # values outside the declared categories get separate cells: they count as differences
    columns = [column.astype(object).to_numpy() for column in (real, synthetic)]
    observed = np.concatenate(columns)
    try:
        values = pd.unique(observed[~pd.isna(observed)])
    except TypeError:
        raise InvalidInputError(f"column {real.name!r}: holds objects that are no categories") from None
    if categories is not None:
        values = pd.unique(np.array([*categories, *values], dtype=object))
    index = pd.Index(values, dtype=object)
    codes = index.get_indexer(pd.Index(observed, dtype=object))
    codes = np.where(codes < 0, len(index), codes).astype(np.int64)
    labels = (*map(str, values), "missing")
    return ColumnCells(real.name, "category", codes[: len(real)], codes[len(real) :], len(index) + 1, labels)
