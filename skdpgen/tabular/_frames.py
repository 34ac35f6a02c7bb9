"""Columns of a frame to numbers or level codes, and back; errors name the column, never a value."""

from __future__ import annotations

import contextlib
import re
import warnings

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import SchemaError
from ..utils.categories import canonical, family, number_text
from ..utils.printing import listed, shown
from ..utils.table_checks import holds_nul, is_unicode, reading
from ._columns import (
    Boolean,
    Categorical,
    Datetime,
    Identifier,
    prefix_lengths,
    rounded_to,
    standing_for,
    step_range,
    unit_microseconds,
)
from ._dtypes import fit_dtype, output_dtype
from ._formats import form_of, form_of_strptime, from_form, interval_texts, time_zone, to_form, to_intervals
from ._schema import check_unique

ON_INVALID = ("clip", "raise")
_WORDS = {
    "mixed-integer": "numbers and text mixed: make them all text, as reading them with dtype=str does",
    "mixed": "values of mixed types: make them all text, or all numbers",
    "bytes": "bytes",
    "date": "dates: declare it as Datetime with dtype 'date'",
    "datetime": "datetimes: declare it as Datetime",
    "datetime64": "datetimes: declare it as Datetime",
    "timedelta": "time spans: declare it as Numeric with dtype 'timedelta64[us]'",
    "time": "times of the day: declare it as Numeric with dtype 'time'",
    "decimal": "Decimal objects: declare it as Numeric",
    "interval": "intervals: declare a dtype such as 'interval[float64, right]'",
    "period": "periods: give it a dtype such as 'period[M]'",
    "complex": "complex numbers",
}
_INFINITE = (
    "holds infinite values (inf): replace them by missing values, or by a bound that is known without the rows, before "
    "the fit"
)
_SEVERAL = ", several values in a cell: make a column of each value, or one text of them"
_CONTAINERS = {
    list | tuple: "lists" + _SEVERAL,
    dict: "dicts" + _SEVERAL,
    set | frozenset: "sets" + _SEVERAL,
    np.ndarray: "arrays" + _SEVERAL,
}
# A number of more steps of its column than a float holds becomes this.
_LARGEST = float(np.finfo(np.float64).max)
# Texts of which pandas makes the moment at which it reads them.
_CLOCK = ("now", "today")
# What pandas.api.types.infer_dtype may answer for an object column that is read as categories.
_NUMBERS = {"integer", "floating", "mixed-integer-float"}
_CATEGORIES = {"string", "boolean", "empty"} | _NUMBERS


def validate_frame(frame, schema, on_invalid="clip"):
    """Check a table against a schema, value by value.

    Parameters
    ----------
    frame : DataFrame or array of numbers, shape (n_rows, n_columns)
        An array is read by position.
    schema : Schema
        May be incomplete: bounds and categories that are not known yet are not checked.
    on_invalid : {"clip", "raise"}, default="clip"
        Whether values outside bounds (and fractions in integer columns) are clipped (rounded) later, or refused.

    Returns
    -------
    DataFrame
        `frame`, or the array as a frame of the schema's columns.

    Raises
    ------
    SchemaError
        Names the first column that does not fit, and the reason. The message is for the data holder alone, and even
        so holds no value of a cell.
    """
    frame = check_columns(frame, schema)
    for column in schema.columns:
        if isinstance(column, Identifier):
            continue  # its values are never read
        if isinstance(column, Categorical | Boolean):
            level_codes(frame[column.name], column)
        else:
            numeric_values(frame[column.name], column, on_invalid)
    return frame


def column_difference(names, wanted):
    """Text of the names that are missing, and of those that are not wanted; empty where there is none of either."""
    missing = [repr(name) for name in wanted if name not in names]
    unexpected = [repr(name) for name in names if name not in wanted]
    found = {"missing": missing, "unexpected": unexpected}
    return "; ".join(f"{word}: {', '.join(listed)}" for word, listed in found.items() if listed)


def check_columns(frame, schema):
    """Return `frame` as a DataFrame whose columns are the schema's; SchemaError shows the difference."""
    if not isinstance(frame, pd.DataFrame):
        array = np.asarray(frame)
        if array.dtype.kind not in "biuf":
            raise SchemaError(
                f"expected a DataFrame or an array of numbers; got {type(frame).__name__} of {array.dtype}"
            )
        if array.ndim != 2:
            raise SchemaError(f"expected two dimensions; got {array.ndim}")
        if array.shape[1] != len(schema):
            raise SchemaError(f"the array has {array.shape[1]} columns, the schema {len(schema)}")
        frame = pd.DataFrame(array, columns=list(schema.names))
    check_unique(frame.columns)
    names = list(frame.columns)
    if difference := column_difference(names, schema.names):
        raise SchemaError(f"the columns are not those of the schema; {difference}")
    if names != list(schema.names):
        place, ours, theirs = next((i, a, b) for i, (a, b) in enumerate(zip(schema.names, names)) if a != b)
        raise SchemaError(
            f"the columns are those of the schema in another order: column {place} is {theirs!r}, not {ours!r}; "
            "frame[list(schema.names)] puts them in order"
        )
    if not len(frame):
        # scikit-learn's words, which its own checks and users' handlers look for
        raise SchemaError(f"Found array with 0 sample(s) (shape={frame.shape}) while a minimum of 1 is required.")
    return frame


def _refuse(column, message):
    raise SchemaError(f"column {column.name!r} {message}")


def _check_missing(absent, column):
    if not column.missing and absent.any():
        _refuse(column, "holds missing values (NaN), which its schema does not allow: declare missing=True")


# -- numbers and datetimes: one float64 a row, NaN where missing --------------------------------------------------


def numeric_bounds(column):
    """Return the bounds of a numeric or datetime column as numbers.

    Datetimes count steps of their resolution from 1970, and numbers with a `step` count steps from zero.
    """
    if isinstance(column, Datetime):
        return tuple(_steps(np.array(bound, dtype="datetime64[us]"), column) for bound in column.bounds)
    return column.bounds if column.step is None else step_range(*column.bounds, column.step)


def numeric_values(series, column, on_invalid="clip"):
    """Return the values of a numeric or datetime column as float64, clipped to its bounds.

    `column`: datetimes are counted in steps of the resolution from 1970 on the wall clock, numbers with a `step` in
        steps.
    `on_invalid`: "clip" or "raise".
    Returns an array of shape (n_rows,): NaN where missing.
    Raises SchemaError: the values are not numbers (datetimes), are infinite, or are missing where the schema does not
        allow it; with ``on_invalid="raise"``, are out of bounds, or not integers or multiples of `step`.
    """
    if on_invalid not in ON_INVALID:
        raise ValueError(f"on_invalid must be 'clip' or 'raise'; got {shown(on_invalid)}")
    with reading(f"column {column.name!r}"):
        values = _read_datetimes(series, column) if isinstance(column, Datetime) else _read_numbers(series, column)
    values = values + 0.0  # a reader makes 0 of "-0" among whole numbers, and -0.0 beside a fraction
    absent = np.isnan(values)
    _check_missing(absent, column)
    if np.isinf(values).any():
        _refuse(column, _INFINITE)
    if column.integer:
        rounded = np.rint(values)
        if on_invalid == "raise" and not np.array_equal(rounded, values, equal_nan=True):
            _refuse(column, "holds numbers that are not integers, but its schema says integer=True")
        values = rounded
    if column.step is not None:
        with np.errstate(over="ignore"):  # a warning would follow from a row
            values = np.clip(values / column.step, -_LARGEST, _LARGEST)
        rounded = np.rint(values)
        if on_invalid == "raise" and not np.allclose(rounded, values, rtol=1e-9, atol=1e-6, equal_nan=True):
            _refuse(column, f"holds numbers that are no multiples of its step {column.step}")
        values = rounded
    if column.bounds is None:
        return values
    low, high = numeric_bounds(column)
    if on_invalid == "raise" and ((values < low) | (values > high)).any():
        _refuse(column, f"holds values outside its bounds ({column.bounds[0]}, {column.bounds[1]})")
    return np.clip(values, low, high)


def _read_numbers(series, column):
    values = from_form(series, column.dtype)
    if values is not None:
        return values
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        series = pd.Series(dtype.categories).reindex(series.cat.codes)  # whose -1 is missing
        dtype = series.dtype
    if pdt.is_complex_dtype(dtype):
        # scikit-learn's words
        _refuse(column, "is refused. Complex data not supported")
    if pdt.is_numeric_dtype(dtype):  # includes bool
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if pdt.is_object_dtype(dtype) or pdt.is_string_dtype(dtype):
        kind = pdt.infer_dtype(series, skipna=True)
        if kind not in _CATEGORIES:
            _refuse(column, f"is numeric in its schema, but holds {_in_words(kind, series)}")
        values = _numbers_of(series)
        if (np.isnan(values) & series.notna().to_numpy()).any():
            _refuse(
                column,
                "is numeric in its schema, but holds text that is no number (declare na_values when reading it?)",
            )
        return values
    return _refuse(column, f"is numeric in its schema, but of dtype {str(dtype)!r}")


def _numbers_of(texts):
    """Numbers of a Series of texts, NaN for what is none: the same of each text, whatever the other texts are.

    pandas before 3.1 rounds a whole number of 2^53 or more in one way if all texts are whole numbers, and in another
    way beside a fraction: one row would move the last bit of all others. And "-0" is 0 in the one case, else -0.0.
    """
    values = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    for place in np.flatnonzero(np.abs(values) >= 2.0**53):
        text = texts.iloc[place]
        if isinstance(text, str):
            with contextlib.suppress(ValueError):  # pandas knows some texts that Python does not
                values[place] = float(text)
    return values + 0.0  # which is 0.0 for -0.0


def _read_datetimes(series, column):
    dtype, target = series.dtype, output_dtype(column.dtype)
    if isinstance(dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
        dtype = series.dtype
    if pdt.is_object_dtype(dtype) or pdt.is_string_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype):
        text = series.astype(object)
        if pdt.infer_dtype(text, skipna=True) not in ("string", "date", "datetime", "datetime64", "empty"):
            _refuse(column, "is a datetime in its schema, but holds other things than dates and times")
        text = text.where(~text.isin(_CLOCK), "")  # which is refused: each pass would read another moment
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)  # pandas 2 on several time zones
                series = pd.to_datetime(
                    text, errors="coerce", format="ISO8601", utc=time_zone(target) is not None or None
                )
        except (ValueError, FutureWarning):
            series = pd.Series(pd.NaT, index=text.index)
        if (series.isna() & text.notna()).any():
            how = (
                ""
                if column.format is None
                else f"; convert it first: pandas.to_datetime(..., format={form_of_strptime(column.format)!r})"
            )
            _refuse(column, f"is a datetime in its schema, but holds text that is no ISO 8601 date or time{how}")
        dtype = series.dtype
    if not pdt.is_datetime64_any_dtype(dtype):
        _refuse(column, f"is a datetime in its schema, but of dtype {str(dtype)!r}")
    if str(dtype).startswith(("date32", "date64")):  # days of Arrow's calendar
        series = series.astype("datetime64[us]")
    if series.dt.tz is not None:
        if time_zone(target) is None:
            _refuse(column, f"has a time zone, which its dtype {column.dtype!r} in the schema has not")
        series = series.dt.tz_convert(time_zone(target)).dt.tz_localize(None)
    return _steps(_microseconds(series), column)


def _microseconds(series):
    """Moments in microseconds; those beyond the range of 64 bits (290,000 years) count as its ends."""
    coarse = re.match(r"(?:datetime64|timestamp)\[(s|ms)\]", str(series.dtype))
    if coarse is None:
        return series.to_numpy(dtype="datetime64[us]")
    moments = series.to_numpy(dtype=f"datetime64[{coarse[1]}]")
    most = np.iinfo(np.int64).max // {"s": 10**6, "ms": 10**3}[coarse[1]]
    clipped = np.clip(moments.astype(np.int64), -most, most).astype(moments.dtype)
    return np.where(np.isnat(moments), moments, clipped).astype("datetime64[us]")


def _steps(moments, column):
    """Count the steps of the column's resolution from 1970 to each moment; NaN where there is none."""
    counts = moments.astype(np.int64) // unit_microseconds(column)
    return np.where(np.isnat(moments), np.nan, counts.astype(np.float64))[()]


# -- levels: one small integer a row ------------------------------------------------------------------------------


def column_levels(column):
    """Return the levels of a categorical or boolean column: values, then None for missing."""
    return (*column.values, None) if column.missing else tuple(column.values)


def level_codes(series, column):
    """Return the level of each row of a categorical or boolean column.

    `column`: with categories None, only the types of the values are checked and the result is None.
    Returns an array of shape (n_rows,): position in `column_levels`: a category, then "other", then missing.
    Raises SchemaError: undeclared categories (where there is no "other"), missing values where there may be none, mixed
        types.
    """
    codes, uniques = factorize(series, column)
    if column.values is None:
        return None
    found = pd.Index(np.array(column.categories, dtype=object), dtype=object).get_indexer(
        pd.Index(uniques, dtype=object)
    )
    other = getattr(column, "other", None)
    if other is not None and prefix_lengths(column):
        found = _in_groups(found, uniques, column)
    if other is None and (found < 0).any():
        _refuse(
            column,
            f"holds values that are not among its declared categories ({listed(column.categories)}); the rows are "
            f"frame[~frame[{column.name!r}].isin(schema[{column.name!r}].categories)]",
        )
    # code -1 is "missing", and takes the last entry of this table
    table = np.append(np.where(found < 0, len(column.categories), found), len(column.values))
    return table[codes]


def _in_groups(found, uniques, column):
    """Places of distinct values among the categories: one that is none of them has the place of its finest group."""
    place = {value: i for i, value in enumerate(column.categories)}
    found = found.copy()
    for i in np.flatnonzero(found < 0):
        found[i] = place.get(standing_for(uniques[i], column, place), -1)
    return found


def factorize(series, column):
    """Return (codes, distinct values as an object array) of a column of categories; -1 is missing.

    Values come from the rows alone: a category that the dtype lists and no row has is not among them. The type of a
    value depends on the value and on the schema, not on other rows and not on the dtype of this chunk: a missing value
    elsewhere in a chunk turns its integers into floats.
    """
    apart = _apart(series, column)
    if apart is not None and apart.any():
        codes = np.empty(len(series), dtype=np.intp)
        codes[~apart], uniques = factorize(series.astype(object)[~apart], column)
        codes[apart] = len(uniques)
        return codes, np.append(uniques, column.other)
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        listed = series.cat.codes.to_numpy()
        used, codes = np.unique(listed, return_inverse=True)
        codes = codes.astype(np.intp) - np.count_nonzero(used < 0)
        uniques = dtype.categories.to_numpy(dtype=object)[used[used >= 0]]
    elif isinstance(dtype, pd.IntervalDtype):
        codes, uniques = pd.factorize(series)
        uniques = np.asarray(uniques, dtype=object)
    elif pdt.is_datetime64_any_dtype(dtype) or pdt.is_timedelta64_dtype(dtype) or pdt.is_complex_dtype(dtype):
        _refuse(column, f"is categorical in its schema, but of dtype {str(dtype)!r}")
    else:
        if pdt.is_object_dtype(dtype):
            _check_family(series, column)
        with reading(f"column {column.name!r}"):
            codes, uniques = _without_nan(*pd.factorize(series))
    if form_of(column.dtype) == "interval":
        uniques = interval_texts(uniques)
    kind = pdt.infer_dtype(uniques, skipna=True)
    _check_family(uniques, column)
    if kind in _NUMBERS and not _finite(uniques):
        _refuse(column, _INFINITE)
    if kind == "string" and not is_unicode(uniques):
        _refuse(column, "holds text that is no Unicode (lone surrogates)")
    if kind == "string" and holds_nul(uniques if isinstance(dtype, pd.CategoricalDtype) else series, uniques):
        _refuse(column, "holds text with the character NUL (\\0): remove it")
    _check_missing(codes < 0, column)
    uniques = _as_declared(_as_family(canonical(uniques), declared_family(column), column.categories), column)
    if column.categories is None:
        if pd.isna(uniques).any() or not fit_dtype(uniques.tolist(), column.dtype):
            _refuse(column, f"holds values that its dtype {column.dtype!r} in the schema cannot hold")
        # values that differ by their type alone become one
        merged, uniques = pd.factorize(uniques)
        codes = np.append(merged, -1)[codes]
    return codes, uniques


def _without_nan(codes, uniques):
    """Codes and distinct values of which NaN is none, but missing: pandas keeps it in dtypes that are not numpy's."""
    uniques = np.asarray(uniques, dtype=object)
    absent = np.array([isinstance(value, float) and value != value for value in uniques], dtype=bool)
    places = np.where(absent, -1, np.cumsum(~absent) - 1)
    return np.append(places, -1)[codes], uniques[~absent]


def _apart(series, column):
    """Rows with the declared `other` where it is text beside numbers or truth values; None where there are none.

    Each value decides for itself: in a column of text alone, this text is no number either.
    """
    other, wanted = getattr(column, "other", None), declared_family(column) if column.categories else None
    listed = series.dtype.categories if isinstance(series.dtype, pd.CategoricalDtype) else series
    if wanted in (None, "text") or not isinstance(other, str) or not pdt.is_object_dtype(listed.dtype):
        return None
    if not pd.isna(_as_family(np.array([other], dtype=object), wanted, column.categories)).all():
        return None  # text such as "7", which is read as a number
    return np.fromiter((isinstance(value, str) and value == other for value in series), bool, len(series))


def _finite(numbers):
    try:
        return np.isfinite(numbers.astype(np.float64)).all()
    except OverflowError:  # an integer of hundreds of digits
        return False


def _check_family(values, column):
    kind = pdt.infer_dtype(values, skipna=True)
    if kind not in _CATEGORIES:
        _refuse(column, f"is categorical in its schema, but holds {_in_words(kind, values)}")


def _in_words(kind, values):
    """What values of a kind of pandas are that no column can have: their type, and never a value."""
    found = (word for of, word in _CONTAINERS.items() if kind == "mixed" and any(isinstance(x, of) for x in values))
    return next(found, _WORDS.get(kind, kind))


def declared_family(column):
    """Return the family that values of a column must have by its schema, None if any will do."""
    if column.categories:
        return family(column.categories[0])
    if column.dtype is None or column.dtype in ("object", "category"):
        return None
    if column.dtype == "str":
        return "text"
    dtype = output_dtype(column.dtype)
    return "flag" if pdt.is_bool_dtype(dtype) else "number" if pdt.is_numeric_dtype(dtype) else "text"


def _as_declared(uniques, column):
    """Convert distinct numbers to the type of the schema's dtype: 1 is 1.0 in a column of floats."""
    if column.dtype in (None, "str", "object", "category"):
        return uniques
    dtype = output_dtype(column.dtype)
    if pdt.is_float_dtype(dtype):
        return _each(uniques, float)
    if pdt.is_integer_dtype(dtype):
        # `canonical` gives large integers as floats; values with a fraction are refused where categories are learned
        return _each(uniques, lambda value: int(value) if value == value // 1 else value)
    return uniques


def _each(uniques, convert):
    values = [convert(value) if family(value) == "number" and value == value else value for value in uniques.tolist()]
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _as_family(uniques, wanted, categories):
    """Convert distinct values to the type that the schema declares: a CSV reader may have changed it.

    Values that cannot be converted become None or NaN.
    """
    found = {"string": "text", "boolean": "flag", "empty": None}.get(pdt.infer_dtype(uniques), "number")
    if wanted in (found, None) or found is None:
        return uniques
    if wanted == "number":
        return _numbers_of(pd.Series(uniques)).astype(object)
    if found == "number":
        # 1.0 is "1", as it was before a missing value made floats of a column, unless "1.0" is declared
        text = np.array([number_text(value, categories or ()) for value in uniques], dtype=object)
    else:
        text = np.array([str(value) for value in uniques], dtype=object)
    if wanted == "text":
        return text
    text = pd.Index(text).str.strip().str.lower()
    return np.where(text.isin(["true", "1", "1.0"]), True, np.where(text.isin(["false", "0", "0.0"]), False, None))


# -- back: numbers and codes to a Series --------------------------------------------------------------------------


def restore(values, column, decimals=None):
    """Return a Series of the column's dtype.

    `values` (n_rows,): for categorical and boolean columns level codes; else numbers as in `numeric_bounds`, NaN where
        missing.
    `decimals`: decimals of numbers for which the column declares none.
    The values are inside the bounds; integers, decimals and resolution follow the column.
    """
    dtype = output_dtype(column.dtype)
    if isinstance(column, Categorical | Boolean):
        return _restore_levels(np.asarray(values), column, dtype)
    low, high = numeric_bounds(column)
    values = np.clip(np.asarray(values, dtype=np.float64), low, high)
    decimals = decimals if column.decimals is None else column.decimals
    if column.whole:
        values = np.rint(values)
        if column.step is not None:
            values = rounded_to(values * column.step, column.step)
            low, high = column.bounds
    elif decimals is not None:
        values = np.clip(np.round(values, decimals), low, high)
    absent = np.isnan(values)
    if isinstance(column, Datetime):
        return _restore_datetimes(values, absent, column, dtype)
    if form_of(column.dtype) is not None:
        return to_form(values, absent, column.dtype, 0 if column.integer else decimals)
    if pdt.is_integer_dtype(dtype):
        whole = pd.Series(np.where(absent, 0, values).astype(np.int64)).astype(dtype)
        return whole.mask(pd.Series(absent)) if absent.any() else whole
    narrow = np.dtype(getattr(dtype, "numpy_dtype", dtype))
    if narrow.itemsize < 8:
        # learned bounds may lie beyond the dtype, and rounding to fewer bits may cross a bound
        limits = np.finfo(narrow)
        rounded = np.clip(values, float(limits.min), float(limits.max)).astype(narrow)
        above, below = rounded.astype(np.float64) > high, rounded.astype(np.float64) < low
        rounded[above] = np.nextafter(rounded[above], narrow.type(-np.inf))
        rounded[below] = np.nextafter(rounded[below], narrow.type(np.inf))
        values = rounded
    series = pd.Series(values)
    return series.astype("Float64").astype(dtype) if not isinstance(dtype, np.dtype) else series.astype(dtype)


def _restore_levels(codes, column, dtype):
    values = list(column.values)
    absent = codes >= len(values)
    if isinstance(dtype, pd.CategoricalDtype):
        return pd.Series(pd.Categorical.from_codes(np.where(absent, -1, codes), values, column.ordered))
    if isinstance(dtype, pd.IntervalDtype):
        texts = values if dtype.subtype.kind == "i" else [*values, ""]  # which names no interval
        return pd.Series(to_intervals(texts, dtype).take(np.where(absent, len(values), codes)))
    table = np.empty(len(values) + 1, dtype=object)
    table[:-1] = values
    table[-1] = None if pdt.is_object_dtype(dtype) or not isinstance(dtype, np.dtype) else np.nan
    return pd.Series(table[np.where(absent, len(values), codes)], dtype=object).astype(dtype)


def _restore_datetimes(values, absent, column, dtype):
    moments = (np.where(absent, 0, values).astype(np.int64) * unit_microseconds(column)).view("datetime64[us]")
    series = pd.Series(np.where(absent, np.datetime64("NaT", "us"), moments))
    if isinstance(dtype, pd.PeriodDtype):
        return series.dt.to_period(dtype.freq)
    if column.dtype == "date":
        return series.dt.date.astype(object).where(~pd.Series(absent), None)
    zone = time_zone(dtype)
    if zone is not None:
        # Wall-clock times that a change of the clocks skips move forward; repeated ones are the later of the two.
        series = series.dt.tz_localize(zone, ambiguous=np.zeros(len(series), dtype=bool), nonexistent="shift_forward")
    return series.astype(dtype)
