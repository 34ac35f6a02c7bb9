"""Cells of one column: bins of numbers over public bounds, categories, and one cell for missing values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from ..exceptions import InvalidInputError
from ._samples import column_kind, to_numbers

__all__ = ["ColumnCells", "column_cells", "declared_column", "table_cells"]


@dataclass(frozen=True, eq=False)
class ColumnCells:
    """Cell numbers of one column in both tables.

    Parameters
    ----------
    name : column name
    kind : {"number", "date", "category"}
    real, synthetic : int arrays of shape (n_rows,)
    size : int
        Number of cells; the last is that of missing values.
    labels : tuple of str
        One a cell, for pictures.
    """

    name: object
    kind: str
    real: np.ndarray
    synthetic: np.ndarray
    size: int
    labels: tuple = ()

    def shares(self):
        """Return the share of each cell in the real and in the synthetic rows, two arrays of shape (size,)."""
        return tuple(np.bincount(codes, minlength=self.size) / len(codes) for codes in (self.real, self.synthetic))

    def distance(self):
        """Total variation distance of the two."""
        p, q = self.shares()
        return 0.5 * float(np.abs(p - q).sum())


def declared_column(name, at, schema=None, bounds=None):
    """Return what was declared of one column: an entry of the schema, or the bounds of an array's column.

    Parameters
    ----------
    name, at : column name and position
    schema : Schema or mapping, default=None
    bounds : pair, or one pair a column, default=None
    """
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

    Parameters
    ----------
    real, synthetic : Series
    declared : object, default=None
        With `bounds` or `categories`; without, the range or the values of `real` are taken, which is not public.
    n_bins : int, default=10
        Equal bins of numbers and dates over the bounds; values outside count in the outer bins.
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
    return f"{low:.4g} to {high:.4g}"


def _bins(values, low, high, n_bins):
    width = (high - low) or 1.0
    missing = np.isnan(values)
    cell = np.floor(np.clip((np.where(missing, low, values) - low) / width, 0.0, 1.0) * n_bins)
    return np.where(missing, n_bins, np.clip(cell, 0, n_bins - 1)).astype(np.int64)


def _categories(real, synthetic, categories):
    # values outside the declared categories get cells of their own: they count as differences
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
