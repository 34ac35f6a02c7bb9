"""Columns of decimals, dates, times of the day, time spans, periods and intervals: to plain columns, and back.

The name of its dtype says what a column holds. Objects of Python have no such dtype, so they have a name here.
"""

from __future__ import annotations

import datetime
import re
from decimal import Context, Decimal

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import SchemaError
from ..utils.table_checks import reading

# Names of columns of Python objects: decimal.Decimal, datetime.date, datetime.time.
OBJECTS = ("decimal", "date", "time")
# Answers of pandas.api.types.infer_dtype for objects of one of these types.
_OF_OBJECTS = {"decimal": "decimal", "date": "date", "time": "time"}
_DECIMAL = re.compile(r"decimal(128|256)\((\d{1,2}), ?(\d{1,2})\)\[pyarrow\]")
_TIME = re.compile(r"time(?:32\[(?:s|ms)\]|64\[(?:us|ns)\])\[pyarrow\]")
_SPAN = re.compile(
    r"(?:timedelta64|m8)\[(?:s|ms|us|ns)\]|[<>=]m8\[(?:s|ms|us|ns)\]|duration\[(?:s|ms|us|ns)\]\[pyarrow\]"
)
_PERIOD = re.compile(r"period\[([A-Za-z]{1,3}(?:-[A-Z]{3})?)\]")
_INTERVAL = re.compile(r"interval\[(?:int64|float64), (?:left|right|both|neither)\]")
_ENDS = re.compile(r"[\[(](-?[\d.e+-]+|-?inf), (-?[\d.e+-]+|-?inf)[\])]")
# What is said of %z and %Z, which read the zone of each row: all rows of a column share one.
NO_ZONES = (
    "%z and %Z are not supported: convert the column to UTC, or to the zone in which days begin at midnight, first; an "
    "offset that all rows share is part of the format, such as %Y-%m-%dT%H:%M:%S+01:00"
)
# Parts of a format of dates, and those of names in capitals: %^b is DEC where %b is Dec.
_DIRECTIVE = re.compile(r"%\^[aAbBp]|%.|[^%]+|%", re.DOTALL)
_CAPITALS = re.compile(r"%\^[aAbBp]")
_DAY = 86_400
# Seconds of the longest span: 285 years, the range of nanoseconds.
_LONGEST = 9_000_000_000
# Units of a second in the types of times of Arrow.
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Whole numbers below this, and powers of ten up to that exponent, are floats without rounding.
_EXACT, _EXACT_EXPONENT = 2**53, 22


def is_date_format(form):
    """Whether a text is a format that reads days with their year, without a time zone.

    Formats are those of `datetime.strptime`, and of names also ``%^b``, ``%^B``, ``%^a``, ``%^A`` and ``%^p``: as those
    without ``^``, but written in capitals, such as DEC. The case of what is read is ignored.
    """
    day = datetime.datetime(2001, 12, 23, 17, 45, 6)
    try:
        form = form_of_strptime(form)
        read = pd.to_datetime(day.strftime(form), format=form)
    except (ValueError, TypeError):
        return False
    return bool(not pd.isna(read) and read.year == day.year and read.tzinfo is None)


def has_zone(form):
    """Whether a format of dates has the zone of each row: it is none that a column can have."""
    return isinstance(form, str) and bool({"%z", "%Z"} & set(_DIRECTIVE.findall(form)))


def form_of_strptime(form):
    """Return a format of dates as `datetime.strptime` knows it, without the marks of capitals."""
    return "".join("%" + part[2:] if _CAPITALS.fullmatch(part) else part for part in _DIRECTIVE.findall(form))


def dates_as_text(moments, form):
    """Write datetimes or periods, a Series, in a format; the inverse of reading them, capitals included."""
    if not any(map(_CAPITALS.fullmatch, _DIRECTIVE.findall(form))):
        return moments.dt.strftime(form)
    whole = None
    for part in _DIRECTIVE.findall(form):
        texts = moments.dt.strftime(form_of_strptime(part))
        texts = texts.str.upper() if _CAPITALS.fullmatch(part) else texts
        whole = texts if whole is None else whole + texts
    return whole


def form_of(name):
    """Return "decimal", "date", "time", "span", "period" or "interval" for the name of such a dtype, else None."""
    if name is None or name in OBJECTS:
        return name
    for form, pattern in (
        ("decimal", _DECIMAL),
        ("time", _TIME),
        ("span", _SPAN),
        ("period", _PERIOD),
        ("interval", _INTERVAL),
    ):
        if pattern.fullmatch(name):
            return form
    return None


def parse_form(name):
    """Return the pandas dtype of a name that has a form; TypeError if its parts make no dtype."""
    if name in OBJECTS:
        return np.dtype(object)
    if found := _DECIMAL.fullmatch(name):
        import pyarrow as pa

        width, precision, scale = map(int, found.groups())
        if scale > precision:
            raise TypeError("more decimals than digits")
        try:
            return pd.ArrowDtype((pa.decimal128 if width == 128 else pa.decimal256)(precision, scale))
        except ValueError as error:
            raise TypeError(str(error)) from None
    try:
        return pdt.pandas_dtype(name)
    except ValueError as error:
        raise TypeError(str(error)) from None


def range_of_form(name):
    """Return the smallest and largest number of a column of decimals, spans or times of the day (both in seconds)."""
    form = form_of(name)
    if form == "time":
        return 0.0, _DAY - 1e-6
    if form == "span":
        return -_LONGEST, _LONGEST
    found = _DECIMAL.fullmatch(name)
    largest = np.finfo(np.float64).max if found is None else float(Decimal(10) ** (int(found[2]) - int(found[3])) - 1)
    return -largest, largest


def scale_of(dtype):
    """Return the decimals of an Arrow decimal."""
    return int(_DECIMAL.fullmatch(str(dtype))[3])


def resolution_of_period(dtype):
    """Return the resolution of the first moments of periods, such as "D" for months."""
    unit = _PERIOD.fullmatch(str(dtype))[1]
    return {"ns": "us"}.get(unit, unit if unit in ("h", "min", "s", "ms", "us") else "D")


def time_zone(dtype):
    """Return the time zone of a dtype of datetimes, of pandas or Arrow, or None."""
    if isinstance(dtype, pd.ArrowDtype):
        return getattr(dtype.pyarrow_dtype, "tz", None)
    return getattr(dtype, "tz", None)


def type_of_objects(series):
    """Return the name in `OBJECTS` of the type that all objects of a column have, or None."""
    return _OF_OBJECTS.get(pdt.infer_dtype(series, skipna=True))


# -- to numbers and text ------------------------------------------------------------------------------------------


def from_form(series, name):
    """Return the numbers of a column whose dtype has the form `name` (a span or time in seconds), or None for others.

    Returns None where the values are not of that form.
    """
    dtype, form = series.dtype, form_of(name)
    if pdt.is_object_dtype(dtype):
        kind = pdt.infer_dtype(series, skipna=True)
        if kind == "decimal":
            try:
                return series.astype("float64").to_numpy()
            except (TypeError, ValueError):
                raise SchemaError(
                    f"column {series.name!r} holds pandas.NA, or a signaling NaN, beside decimals: give None where a "
                    "value is missing"
                ) from None
        if form == "time" and kind in ("time", "empty"):
            codes, times = pd.factorize(series)
            return np.append([seconds(time) for time in times], np.nan)[codes]
        if form == "span" and kind in ("timedelta", "empty"):
            return from_form(pd.to_timedelta(series), name)
        return None
    if form_of(str(dtype)) == "decimal":
        return _numbers_of_decimals(series)
    if form == "span" and form_of(str(dtype)) == "span":
        return series.astype("timedelta64[us]").dt.total_seconds().to_numpy()
    if form == "time" and form_of(str(dtype)) == "time":
        return _seconds_of_arrow(series)
    return None


def _seconds_of_arrow(series):
    """Seconds since midnight of times of Arrow, as `seconds` of each: to whole microseconds."""
    import pyarrow as pa

    kind = series.dtype.pyarrow_dtype
    counts = series.astype(pd.ArrowDtype(pa.int32() if pa.types.is_time32(kind) else pa.int64()))
    whole, rest = np.divmod(counts.to_numpy(dtype=np.int64, na_value=0), _UNITS[kind.unit])
    micro = rest // 1000 if kind.unit == "ns" else rest * (10**6 // _UNITS[kind.unit])
    return np.where(series.isna().to_numpy(), np.nan, whole + micro * 1e-6)


def _numbers_of_decimals(series):
    """The floats nearest to decimals of Arrow. Each depends on its decimal alone."""
    counts, small = _counts_of_decimals(series)
    absent = series.isna().to_numpy()
    small &= scale_of(series.dtype) <= _EXACT_EXPONENT
    # one division of floats without rounding; Arrow's own conversion rounds more often
    numbers = np.where(small, counts, 0) / 10.0 ** min(scale_of(series.dtype), _EXACT_EXPONENT)
    rest = ~small & ~absent
    if rest.any():
        numbers[rest] = series[rest].to_numpy(dtype=np.float64)
    return np.where(absent, np.nan, numbers)


def _counts_of_decimals(series):
    """Return decimals of Arrow as int64 counts of their last digit, and which are small enough to be floats."""
    import pyarrow as pa

    array = pa.array(series.array)
    words = series.dtype.pyarrow_dtype.bit_width // 64
    parts = [
        np.frombuffer(part.buffers()[1], "<i8", len(part) * words, part.offset * words * 8).reshape(-1, words)
        for part in getattr(array, "chunks", [array])
        if len(part)
    ]
    whole = np.concatenate(parts or [np.empty((0, words), dtype=np.int64)])
    counts = whole[:, 0]
    small = (whole[:, 1:] == (counts >> 63)[:, None]).all(axis=1)  # the words above continue the sign
    return counts, small & (counts > -_EXACT) & (counts < _EXACT)


def seconds(time):
    """Return the seconds since midnight of a time of the day."""
    return time.hour * 3600 + time.minute * 60 + time.second + time.microsecond * 1e-6


def interval_texts(uniques):
    """Return distinct intervals as text, an object array; what is no interval stays as it is.

    The text does not depend on the type of the ends: (0, 1] and (0.0, 1.0] are one interval.
    """
    out = np.empty(len(uniques), dtype=object)
    out[:] = [_text(value) if isinstance(value, pd.Interval) else value for value in uniques]
    return out


def _text(interval):
    left, right = (int(end) if float(end).is_integer() else float(end) for end in (interval.left, interval.right))
    opened = "[" if interval.closed in ("left", "both") else "("
    return f"{opened}{left}, {right}{']' if interval.closed in ('right', 'both') else ')'}"


def plain_forms(frame):
    """Return a frame whose columns with a form are plain: numbers (spans and times in seconds), datetimes, or text.

    For comparisons of real and synthetic rows, which know no other columns.
    """
    plain = {}
    for name in frame.columns if frame.columns.is_unique else ():
        with reading(f"column {name!r}"):
            plain[name] = _plain(frame[name])
    changed = {name: column for name, column in plain.items() if column.dtype != frame[name].dtype}
    if not changed:
        return frame
    frame = frame.copy(deep=False)
    for name, column in changed.items():
        frame[name] = column
    return frame


def _plain(series):
    dtype = series.dtype
    form = form_of(str(dtype)) or (type_of_objects(series) if pdt.is_object_dtype(dtype) else None)
    if form in ("decimal", "span", "time"):
        name = str(dtype) if form_of(str(dtype)) else "time" if form == "time" else "decimal"
        return pd.Series(from_form(series, name), index=series.index, name=series.name)
    if form == "period":
        return series.dt.to_timestamp()
    if form == "interval":
        return series.astype(object).map(_text, na_action="ignore").astype("string")
    if form == "date":
        return pd.to_datetime(series)
    if isinstance(dtype, pd.ArrowDtype) and pdt.is_datetime64_any_dtype(dtype):
        return series.astype("datetime64[us]" if time_zone(dtype) is None else f"datetime64[us, {time_zone(dtype)}]")
    return series


# -- and back -----------------------------------------------------------------------------------------------------


def to_form(values, absent, name, decimals=None):
    """Return a Series of decimals, spans or times of the day.

    `values` (n_rows,): spans and times in seconds. `absent`: shape (n_rows,). `name`: name of the dtype. `decimals`: of
    decimals; None writes as many as a number has.
    """
    form, dtype = form_of(name), parse_form(name)
    if form == "span":
        spans = np.rint(np.where(absent, 0.0, values) * 1e6).astype(np.int64).view("timedelta64[us]")
        return pd.Series(np.where(absent, np.timedelta64("NaT", "us"), spans)).astype(dtype)
    values = np.where(absent, 0.0, values)
    if form == "time":
        micro = np.minimum(np.rint(values * 1e6).astype(np.int64), _DAY * 1_000_000 - 1)
        return _times(micro, absent, dtype)
    if isinstance(dtype, pd.ArrowDtype):
        decimals = scale_of(dtype)
        counts, sure = _counts(values, decimals)
        if sure.all() and np.abs(counts).max(initial=0) < 10**dtype.pyarrow_dtype.precision:
            return _arrow_decimals(counts, absent, dtype)
    distinct, codes = np.unique(values, return_inverse=True)
    made = [Decimal(repr(value)) for value in distinct.tolist()] if decimals is None else _decimals(distinct, decimals)
    objects = _taken(made, absent, codes)
    return pd.Series(objects, dtype=object) if name in OBJECTS else pd.Series(pd.array(objects, dtype=dtype))


def _taken(made, absent, codes):
    """Return the objects that codes name, None where absent."""
    table = np.empty(len(made) + 1, dtype=object)
    table[:-1], table[-1] = made, None
    return table[np.where(absent, len(made), codes)]


def _decimals(values, decimals):
    """Return Decimal objects of numbers, written with so many decimals."""
    decimals = max(decimals, 0)
    counts, sure = _counts(values, decimals)
    sure &= (counts != 0) | ~np.signbit(values)  # a text keeps the sign of zero
    multiply, digit = Context().multiply, Decimal((0, (1,), -decimals))
    return [
        multiply(count, digit) if known else Decimal(f"{value:.{decimals}f}")
        for count, known, value in zip(counts.tolist(), sure.tolist(), values.tolist())
    ]


def _times(micro, absent, dtype):
    """Return a Series of times of the day from microseconds since midnight."""
    if not isinstance(dtype, pd.ArrowDtype):
        distinct, codes = np.unique(micro, return_inverse=True)
        moments = distinct.astype("datetime64[us]").tolist()
        return pd.Series(_taken([moment.time() for moment in moments], absent, codes), dtype=object)
    import pyarrow as pa

    kind = dtype.pyarrow_dtype
    units = _UNITS[kind.unit]
    counts = micro * (units // 10**6) if units >= 10**6 else micro // (10**6 // units)
    counts = pa.array(counts, mask=absent, type=pa.int64())
    whole = counts.cast(pa.int32()) if pa.types.is_time32(kind) else counts
    return pd.Series(pd.array(whole.cast(kind), dtype=dtype))


def _counts(values, decimals):
    """Return numbers in units of the last of their decimals, rounded, and where this is how they are written as text.

    A text rounds the exact value of a float: near the middle of two counts the product may lie on the other side.
    """
    with np.errstate(over="ignore"):
        exact = values * 10.0**decimals
    counts = np.rint(exact)
    sure = (np.abs(exact) < _EXACT / 8) & (np.abs(exact - counts) < 0.25)
    return np.where(sure, counts, 0).astype(np.int64), sure & (decimals <= _EXACT_EXPONENT)


def _arrow_decimals(counts, absent, dtype):
    """Return a Series of decimals of Arrow from counts of their last digit, None where absent."""
    import pyarrow as pa

    kind = dtype.pyarrow_dtype
    words = np.repeat((counts >> 63)[:, None], kind.bit_width // 64, axis=1)
    words[:, 0] = counts
    valid = pa.array(~absent).buffers()[1]
    made = pa.Array.from_buffers(kind, len(counts), [valid, pa.py_buffer(words)])
    return pd.Series(pd.array(made, dtype=dtype))


def to_intervals(texts, dtype):
    """Return an array of the intervals that texts such as "(0, 1]" name; texts that name none are missing."""
    convert = int if dtype.subtype.kind == "i" else float
    made = []
    for text in texts:
        found = _ENDS.fullmatch(text)
        made.append(pd.Interval(*map(convert, found.groups()), closed=dtype.closed) if found else None)
    return pd.arrays.IntervalArray(made, dtype=dtype)
