"""Numbers and level codes of one column back to a Series of the dtype that its schema says."""

from __future__ import annotations

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ._columns import Boolean, Categorical, Datetime, output_dtype, unit_microseconds
from ._frames import numeric_bounds

__all__ = ["restore"]


def restore(values, column):
    """Return a Series of the column's dtype.

    Parameters
    ----------
    values : array of shape (n_rows,)
        For categorical and boolean columns level codes; else numbers (steps for datetimes), NaN where missing.
    column : Numeric, Categorical, Boolean or Datetime

    Returns
    -------
    Series
        Inside the bounds; integers, decimals and resolution as the column says.
    """
    dtype = output_dtype(column.dtype)
    if isinstance(column, Categorical | Boolean):
        return _restore_levels(np.asarray(values), column, dtype)
    low, high = numeric_bounds(column)
    values = np.clip(np.asarray(values, dtype=np.float64), low, high)
    if column.integer:
        values = np.rint(values)
    elif column.decimals is not None:
        values = np.clip(np.round(values, column.decimals), low, high)
    absent = np.isnan(values)
    if isinstance(column, Datetime):
        return _restore_datetimes(values, absent, column, dtype)
    if pdt.is_integer_dtype(dtype):
        whole = pd.Series(np.where(absent, 0, values).astype(np.int64)).astype(dtype)
        return whole.mask(pd.Series(absent)) if absent.any() else whole
    narrow = np.dtype(getattr(dtype, "numpy_dtype", dtype))
    if narrow.itemsize < 8:
        # rounding to fewer bits may cross a bound
        rounded = values.astype(narrow)
        above, below = rounded.astype(np.float64) > high, rounded.astype(np.float64) < low
        rounded = np.where(above, np.nextafter(rounded, narrow.type(-np.inf)), rounded)
        values = np.where(below, np.nextafter(rounded, narrow.type(np.inf)), rounded)
    series = pd.Series(values)
    return series.astype("Float64").astype(dtype) if not isinstance(dtype, np.dtype) else series.astype(dtype)


def _restore_levels(codes, column, dtype):
    values = list(column.values)
    absent = codes >= len(values)
    if isinstance(dtype, pd.CategoricalDtype):
        return pd.Series(pd.Categorical.from_codes(np.where(absent, -1, codes), values, column.ordered))
    table = np.empty(len(values) + 1, dtype=object)
    table[:-1] = values
    table[-1] = None if pdt.is_object_dtype(dtype) or not isinstance(dtype, np.dtype) else np.nan
    return pd.Series(table[np.where(absent, len(values), codes)], dtype=object).astype(dtype)


def _restore_datetimes(values, absent, column, dtype):
    moments = (np.where(absent, 0, values).astype(np.int64) * unit_microseconds(column)).view("datetime64[us]")
    series = pd.Series(np.where(absent, np.datetime64("NaT", "us"), moments))
    zone = getattr(dtype, "tz", None)
    if zone is not None:
        # Wall-clock times that a change of the clocks skips move forward; repeated ones are the later of the two.
        series = series.dt.tz_localize(zone, ambiguous=np.zeros(len(series), dtype=bool), nonexistent="shift_forward")
    return series.astype(dtype)
