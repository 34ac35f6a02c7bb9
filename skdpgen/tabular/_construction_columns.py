"""What the steps of a construction do with one column: its public facts, and its values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from ..utils.categories import family
from ._columns import Boolean, Categorical, Datetime, Numeric, rounded_to, standing_for, unit_microseconds
from ._dtypes import dtype_range, output_dtype
from ._formats import form_of
from ._frames import factorize, numeric_bounds, numeric_values, restore

_MOST_INTEGER = 2**53
MOST_FLOAT = 8e307
# Microseconds from 1970 of the first and last moments of datetimes in nanoseconds, and of others.
_NANOSECONDS = (-9_223_372_036_000_000, 9_223_372_036_000_000)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)


# ---- public facts of columns ----------------------------------------------------------------------------------------
def inside(bounds, limits):
    return max(bounds[0], limits[0]), min(bounds[1], limits[1])


def with_bounds(column, low, high):
    """The column with bounds in its own numbers, within its dtype and at least one step apart."""
    if isinstance(column, Datetime):
        return _with_moments(column, low, high)
    smallest, largest = dtype_range(column.dtype)
    if column.step is not None:
        return _with_steps(column, low, high, smallest, largest)
    if column.integer:
        smallest, largest = max(smallest, -_MOST_INTEGER), min(largest, _MOST_INTEGER)
        low, high = math.floor(low), math.ceil(high)
    else:
        smallest, largest = max(smallest, -MOST_FLOAT), min(largest, MOST_FLOAT)
    low = min(max(low, smallest), largest)
    step = 1 if column.integer else max(1e-6, 1e-6 * abs(low))
    low = min(low, largest - step)
    return _bounded(column, low, min(max(high, low + step), largest))


def _with_steps(column, low, high, smallest, largest):
    """As `with_bounds`, of a column with a step; steps are counted from zero."""
    step = column.step
    most = _MOST_INTEGER // step if column.integer else _MOST_INTEGER
    first, last = math.ceil(max(smallest / step, -most)), math.floor(min(largest / step, most))
    low = min(max(math.floor(low), first), last - 1)
    high = min(max(math.ceil(high), low + 1), last)
    return _bounded(column, *(float(rounded_to(bound * step, step)) for bound in (low, high)))


def _bounded(column, low, high):
    """The column with bounds, and with the spikes that lie within them."""
    spikes = tuple(spike for spike in column.spikes or () if low <= spike <= high) or None
    return replace(column, bounds=(low, high), spikes=spikes)


def _with_moments(column, low, high):
    unit = unit_microseconds(column)
    first, last = _NANOSECONDS if "[ns" in column.dtype else _MICROSECONDS
    low = min(max(int(low), -(-first // unit)), last // unit - 1)
    high = max(min(int(high), last // unit), low + 1)
    return replace(column, bounds=tuple(str(np.datetime64(int(bound * unit), "us")) for bound in (low, high)))


def with_values(column, values, learned=False):
    """The column with the values that it may have, where nothing else declares them."""
    if column.complete:
        return column
    values = [value for value in dict.fromkeys(as_read(values, column)) if value is not None]
    if isinstance(column, Numeric):
        scale = unit_of(column)
        return with_bounds(column, min(values, default=0) / scale, max(values, default=scale) / scale)
    if not values:
        number = column.dtype is not None and pd.api.types.is_numeric_dtype(output_dtype(column.dtype))
        return replace(column, categories=(), other=0 if number else "other")
    return replace(column, categories=tuple(sorted(values) if learned else values), other=None)


def only_presence(columns, name):
    """The model sees whether the column is missing, where it may be, and nothing else of it."""
    if columns[name].missing:
        columns[name] = Boolean(name)
    else:
        del columns[name]


def keep_presence(outer, seen, column):
    if column.missing:
        seen[column.name] = outer[column.name].notna()
    else:
        del seen[column.name]


# ---- values ---------------------------------------------------------------------------------------------------------
def read_levels(series, column):
    """Level codes of a column, -1 where missing, and its distinct values, None at the end."""
    if isinstance(column, Numeric):
        column = Categorical(column.name, missing=column.missing, dtype=column.dtype)
    codes, uniques = factorize(series, column)
    uniques, other = uniques.tolist(), getattr(column, "other", None)
    if other is not None and column.categories:
        standing = (standing_for(value, column, column.categories) for value in uniques)
        uniques = [other if value is None else value for value in standing]
    return codes, [*uniques, None]


def typed(series, column):
    """Values of a column in the types of its schema: the dtype of a chunk follows from all of its rows."""
    if isinstance(column, Numeric | Datetime):
        values = restore_unbounded(numeric_values(series, replace(column, bounds=None)), column)
        if isinstance(column, Numeric) and form_of(column.dtype) == "span":
            values = pd.to_timedelta(values, unit="s")
        return values.set_axis(series.index)
    codes, values = read_levels(series, column)
    if {family(value) for value in values[:-1]} == {"number"}:
        values = [np.nan if value is None else float(value) for value in values]
        return pd.Series(np.array(values)[codes], index=series.index)
    return pd.Series(np.array(values, dtype=object)[codes], index=series.index, dtype=object)


def as_read(values, column):
    """Values of a list as `read_levels` gives them; None is missing."""
    codes, uniques = read_levels(
        pd.Series(values, dtype=object), replace(column, missing=column.missing or None in values)
    )
    return [uniques[code] for code in codes.tolist()]


def number_of(value, column):
    """A value of a constraint as a number of a numeric or datetime column."""
    series = pd.Series(pd.to_datetime([value]) if isinstance(column, Datetime) else [value])
    return float(numeric_values(series, replace(column, bounds=None))[0])


def unit_of(column):
    """What one number of a column, as `numeric_values` reads it, counts: microseconds of dates, steps of numbers."""
    return unit_microseconds(column) if isinstance(column, Datetime) else column.step or 1


def restore_unbounded(values, column):
    """Numbers of a numeric or datetime column as a Series that `numeric_values` reads."""
    if not isinstance(column, Datetime):
        return pd.Series(values if column.step is None else rounded_to(values * column.step, column.step))
    absent = np.isnan(values)
    moments = (np.where(absent, 0, values).astype(np.int64) * unit_microseconds(column)).view("datetime64[us]")
    return pd.Series(np.where(absent, np.datetime64("NaT", "us"), moments))


def restored(values, codes, column):
    """A Series of the column's dtype: of row i, the value at ``codes[i]``."""
    if not values:
        nothing = None if column.missing else column.bounds[0] if isinstance(column, Numeric) else column.values[0]
        values, codes = [nothing], np.zeros(len(codes), dtype=np.intp)
    values = as_read(values, column)
    if isinstance(column, Numeric):
        found = np.array([np.nan if value is None else value for value in values], dtype=np.float64) / unit_of(column)
    else:
        levels = list(column.values)
        found = np.array([len(levels) if value is None else levels.index(value) for value in values], dtype=np.intp)
    return restore(found[codes], column)


def without_rounding_errors(values):
    """Numbers to 15 digits: 3 * 49.95 is 149.85, and not 149.85000000000002."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = 10.0 ** (14 - np.floor(np.log10(np.abs(values))))
        rounded = np.rint(values * scale) / scale
    # zero has no digits, and very large and small numbers leave the range of floats
    return np.where(np.isfinite(rounded) & (np.abs(values) < _MOST_INTEGER), rounded, values)


def without_start(base, gap, rng):
    """Numbers and differences with those of other rows where the number is missing and the difference is not.

    Their difference is none: see `Gap.encode`. Unchanged where no row has both.
    """
    absent, whole = np.isnan(base) & ~np.isnan(gap), np.flatnonzero(~np.isnan(base) & ~np.isnan(gap))
    if not absent.any() or not len(whole):
        return base, gap
    base, gap, taken = base.copy(), gap.copy(), rng.choice(whole, int(absent.sum()))
    base[absent], gap[absent] = base[taken], gap[taken]
    return base, gap


def filled(values, rng, default):
    """Numbers with those of other rows in the place of missing ones; `default` where all are missing."""
    absent = np.isnan(values)
    if not absent.any():
        return values
    if absent.all():
        return np.full(len(values), float(default))
    out = values.copy()
    out[absent] = rng.choice(values[~absent], int(absent.sum()))
    return out


def filled_series(series, column, rng):
    """A column with the values of other rows in the place of missing ones; all are missing: with its first value."""
    absent = series.isna().to_numpy()
    if not absent.any():
        return series
    taken = np.arange(len(series))
    if absent.all():
        first = np.zeros(1) if isinstance(column, Categorical | Boolean) else np.array([numeric_bounds(column)[0]])
        first = restore(first.astype(np.intp) if isinstance(column, Categorical | Boolean) else first, column)
        return first.iloc[np.zeros(len(series), dtype=np.intp)].set_axis(series.index)
    taken[absent] = rng.choice(np.flatnonzero(~absent), int(absent.sum()))
    return series.iloc[taken].set_axis(series.index)


def filled_codes(codes, n, rng):
    absent = codes < 0
    if not absent.any() or not n:
        return codes
    codes = codes.copy()
    codes[absent] = rng.integers(n, size=absent.sum()) if absent.all() else rng.choice(codes[~absent], absent.sum())
    return codes
