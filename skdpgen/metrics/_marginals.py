"""Total variation distance between the marginal tables of two frames."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

__all__ = ["one_way_tvd", "two_way_tvd"]


def one_way_tvd(real, synthetic, schema=None, *, n_bins=10):
    """Total variation distance of the columns' distributions, averaged over all columns.

    The number is computed from real rows without noise: showing it to anyone but the data
    holder leaks about them, and no budget is charged for it.

    Parameters
    ----------
    real, synthetic : DataFrame
        Frames with the same columns; rows need not be as many.
    schema : Schema, default=None
        Public bounds and categories. None takes the range and values of `real` itself.
    n_bins : int, default=10
        Equal bins of a numeric column over its bounds.

    Returns
    -------
    distance : float
        Between 0 (equal) and 1 (disjoint).
    """
    columns = [_codes(real[name], synthetic[name], schema, n_bins) for name in _shared_columns(real, synthetic)]
    return float(np.mean([_distance(a, b, size) for a, b, size in columns]))


def two_way_tvd(real, synthetic, schema=None, *, n_bins=10):
    """Total variation distance of the two-way tables, averaged over all column pairs.

    The number is computed from real rows without noise: showing it to anyone but the data
    holder leaks about them, and no budget is charged for it.

    Parameters
    ----------
    real, synthetic : DataFrame
        Frames with the same columns, two at least; rows need not be as many.
    schema : Schema, default=None
        Public bounds and categories. None takes the range and values of `real` itself.
    n_bins : int, default=10
        Equal bins of a numeric column over its bounds.

    Returns
    -------
    distance : float
        Between 0 (equal) and 1 (disjoint). Two halves of one table are not at 0 but at the
        distance that chance alone gives.

    References
    ----------
    S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, "P3GM", ICDE 2021, Table VIII.
    """
    columns = [_codes(real[name], synthetic[name], schema, n_bins) for name in _shared_columns(real, synthetic)]
    if len(columns) < 2:
        raise ValueError("two-way tables need at least two columns")
    distances = [
        _distance(a * size_2 + a_2, b * size_2 + b_2, size * size_2)
        for (a, b, size), (a_2, b_2, size_2) in combinations(columns, 2)
    ]
    return float(np.mean(distances))


def _shared_columns(real, synthetic):
    if list(real.columns) != list(synthetic.columns):
        different = set(map(str, real.columns)) ^ set(map(str, synthetic.columns))
        raise ValueError(f"the frames' columns differ (or their order): {sorted(different) or 'order'}")
    if not len(real) or not len(synthetic):
        raise ValueError("the frames need at least one row each")
    return list(real.columns)


def _distance(a, b, size):
    p = np.bincount(a, minlength=size) / len(a)
    q = np.bincount(b, minlength=size) / len(b)
    return 0.5 * np.abs(p - q).sum()


def _codes(real, synthetic, schema, n_bins):
    """Cell numbers of one column in both frames, and how many cells there are (the last one: missing)."""
    declared = None if schema is None else schema[real.name]
    categories = getattr(declared, "categories", None)
    bounds = getattr(declared, "bounds", None)
    if bounds is None and (categories is not None or not _is_ordered(real)):
        return _category_codes(real, synthetic, categories)
    real, synthetic = _as_float(real), _as_float(synthetic)
    if bounds is None:
        bounds = (np.nanmin(real), np.nanmax(real)) if np.isfinite(real).any() else (0.0, 1.0)
    low, high = (pd.Timestamp(bound).value if isinstance(bound, (str, pd.Timestamp)) else bound for bound in bounds)
    return _bin_codes(real, low, high, n_bins), _bin_codes(synthetic, low, high, n_bins), n_bins + 1


def _is_ordered(column):
    is_datetime = pd.api.types.is_datetime64_any_dtype(column)
    return is_datetime or (pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column))


def _as_float(column):
    if pd.api.types.is_datetime64_any_dtype(column):
        values = column.astype("datetime64[ns]").astype("int64").to_numpy(dtype=float, copy=True)
        values[column.isna().to_numpy()] = np.nan
        return values
    return pd.to_numeric(column).to_numpy(dtype=float, na_value=np.nan)


def _bin_codes(values, low, high, n_bins):
    width = (high - low) or 1.0
    missing = np.isnan(values)
    cell = np.floor((np.where(missing, low, values) - low) / width * n_bins)
    return np.where(missing, n_bins, np.clip(cell, 0, n_bins - 1)).astype(np.int64)


def _category_codes(real, synthetic, categories):
    # values outside the declared categories get cells of their own: they count as differences
    observed = pd.concat([real.astype(object), synthetic.astype(object)])
    values = pd.unique(observed.dropna())
    if categories is not None:
        values = pd.unique(pd.Series([*categories, *values], dtype=object))
    index = pd.Index(values, dtype=object)
    codes = index.get_indexer(observed.to_numpy(dtype=object))
    codes = np.where(codes < 0, len(index), codes)
    return codes[: len(real)], codes[len(real) :], len(index) + 1
