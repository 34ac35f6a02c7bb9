"""The values of the texts of a CSV file: numbers, truth values, dates, codes, or text."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pandas as pd

from ..tabular import Boolean, Datetime, Numeric
from ..tabular._dtypes import output_dtype
from ..tabular._formats import form_of, form_of_strptime, time_zone
from ..utils.callers import warn_user
from ..utils.categories import family, number_text
from .notation import AS_NEGATIVE, NEGATIVE_MARKS, USUAL_NOTATION
from .other_notations import FIRST_IS_WRITTEN, Reading, are_few, marks_among, readings_of

DATE = r"\d{4}-\d{2}-\d{2}"
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
# Of ISO 8601, one of which all values of a column have: resolution, pattern and format of strptime. Times of UTC keep
# the text that says so.
_CLOCKS = (("min", r"\d{2}:\d{2}", "%H:%M"), ("s", r"\d{2}:\d{2}:\d{2}", "%H:%M:%S"))
_CLOCKS += (("us", r"\d{2}:\d{2}:\d{2}\.\d{1,6}", "%H:%M:%S.%f"),)
_ISO = (
    ("D", DATE, "%Y-%m-%d"),
    *(
        (resolution, DATE + mark + pattern + re.escape(zone), f"%Y-%m-%d{mark}{clock}{zone}")
        for resolution, pattern, clock in _CLOCKS
        for mark in "T "
        for zone in ("", "Z", "+00:00")
    ),
)
ISO_FORMATS = frozenset(form for _, _, form in _ISO)
# Columns of these resolutions are written in these formats if no format is known.
_USUAL = {"D": "%Y-%m-%d", "s": "%Y-%m-%d %H:%M:%S", "us": "%Y-%m-%d %H:%M:%S.%f"}
# Numbers with signs or separators, and dates in other formats: they are read as text, from which little is learned.
# EUR is a sign, but SKU-1 a code.
_SIGN = r"(?:[^\w\s]|\b[A-Z]{3}\b(?!-))?"
_DIGITS = r"(?:(?:\d{1,3}(?:[.,' \u00a0]\d{3})+|\d+)(?:[.,]\d+)?|[.,]\d+)"
_FORMATTED = rf"[+-]?{_SIGN}\s?[+-]?(?:\d{{1,3}}(?:[.,' \u00a0]\d{{3}})+|\d+)(?:[.,]\d+)?\s?{_SIGN}"
# Negative numbers that no option reads: (26.42) of accounts, 26.42- of other programs, and other dashes than "-".
_DASH = f"[{re.sub('[()]', '', NEGATIVE_MARKS)}]"
_NEGATIVE = (
    rf"{_SIGN}\s?\(\s?{_SIGN}\s?{_DIGITS}\s?{_SIGN}\s?\)\s?{_SIGN}"
    rf"|{_SIGN}\s?{_DASH}\s?{_SIGN}\s?{_DIGITS}\s?{_SIGN}"
    rf"|{_SIGN}\s?{_DIGITS}\s?{_SIGN}\s?(?:-|{_DASH})"
)
_OTHER_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?:[T ].*)?"
_DAY_PARTS = r"\d+([./-])\d+([./-])\d+([T ])?.*"  # what all dates of one format have in common
_ZONED = DATE + r"[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})"
_TIME = r"\d{1,3}:\d{2}(?::\d{2})?"
_LOOKS_LIKE = {
    _NEGATIVE: "numbers with parentheses or dashes that mark negative ones (no option reads them, and --missing would "
    f"leave them out: {AS_NEGATIVE})",
    _FORMATTED: "numbers with signs or separators (--decimal, --thousands and --sign say how numbers are written: for "
    "$1,250.50 give --thousands , --sign '$')",
    _OTHER_DATE: "dates in another format (--dates says how they are written: for 31.12.2024 give --dates %d.%m.%Y)",
    _TIME: 'times of the day, or durations (declare times of the day in the schema file, by "kind": "numeric" and '
    '"dtype": "time"; write durations as minutes first, such as 90 for 1:30)',
}
_OFFSETS_DIFFER = (
    "date-times whose UTC offsets differ between rows, as in summer time (no option reads them, and --dates has no %z: "
    "convert the column to UTC, or to the zone in which days begin at midnight, first, as by pandas.to_datetime(..., "
    "format='ISO8601', utc=True).dt.tz_convert('Europe/Berlin').dt.tz_localize(None))"
)
_OFFSET_SHARED = (
    "date-times with a UTC offset that all rows share (--dates says how they are written, with the offset as part of "
    "the format, such as %Y-%m-%dT%H:%M:%S+01:00)"
)
_SEVERAL_FORMATS = (
    "dates in several formats in one column (no option reads them: rewrite the column in one format first)"
)
_IN_ANOTHER_NOTATION = "numbers or dates in another notation"
_MARKED = " and --missing TEXT, for each text of a missing value"
# Values that are compared with a pattern before all others: they rule out most columns.
_FEW = 1000
# Share of the different whole numbers with a leading zero from which numbers of several lengths are codes.
_LEADING_ZEROS = 0.05
# Most negative numbers among codes: those from -1 to -9, of surveys.
_MOST_MARKS = 9


def resolution_of(form):
    """Return the resolution of dates in a format of strptime."""
    for resolution, directives in {"us": ("%f",), "s": ("%S",), "min": ("%M",), "h": ("%H", "%I")}.items():
        if any(directive in form for directive in directives):
            return resolution
    return "D"


class _Texts:
    """A column of texts whose distinct texts are read, each once: most columns have few.

    Reading takes one text to one value, and a column's kind depends on which texts occur, not on how often or where. A
    missing text is one of the distinct ones, because pandas chooses some kinds by whether one is missing.
    """

    def __init__(self, written):
        self.index, self.name = written.index, written.name
        self._places, distinct = pd.factorize(written, use_na_sentinel=False)
        self.distinct = pd.Series(distinct, dtype=written.dtype)

    def rows(self, values):
        """Return the values of the distinct texts as those of the rows."""
        return pd.Series(values.array.take(self._places), index=self.index, name=self.name)


# ---- columns in a declared notation --------------------------------------------------------------------------------


def with_notation(frame, names, notation):
    """Convert the columns `names` of text that contain only dates, numbers or truth values in a notation.

    Returns the frame, and a dict of the columns of dates and their formats.
    """
    columns, formats = {}, {}
    for name in names:
        texts = _Texts(frame[name])
        values = texts.distinct.dropna()
        if values.empty:
            continue
        for form in notation.dates:
            read = form_of_strptime(form)
            moments = pd.to_datetime(texts.distinct.astype(object), errors="coerce", format=read)
            if moments.notna().sum() == len(values):
                columns[name], formats[name] = texts.rows(moments.astype("datetime64[us]")), form
                break
        if name in columns:
            continue
        if _all_match(values, notation.number):
            try:
                numbers = pd.to_numeric(notation.to_plain(texts.distinct), dtype_backend="numpy_nullable")
            except ValueError:  # more digits than a number can have; newer releases of pandas keep the text
                continue
            if pd.api.types.is_numeric_dtype(numbers.dtype):
                columns[name] = texts.rows(numbers)
        elif values.str.lower().isin(["true", "false"]).all():
            columns[name] = texts.rows(texts.distinct.str.lower().eq("true").astype("boolean"))
    return frame.assign(**columns), formats


def _all_match(values, pattern):
    return bool(values.iloc[:_FEW].str.fullmatch(pattern).all() and values.str.fullmatch(pattern).all())


# ---- columns of a declared kind: each value is read separately, and no value changes how another is read -----------

_DAY_OR_TIME = DATE + r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)?"
_TIME_OF_DAY = r"^([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d{1,9})?))?$"
_FLAGS = dict.fromkeys(("true", "t", "yes", "y", "1", "1.0"), True)
_FLAGS |= dict.fromkeys(("false", "f", "no", "n", "0", "0.0"), False)


def as_kind(written, column, notation=USUAL_NOTATION):
    """Read the texts of a column as values of its declared kind.

    Returns the values, and the rows whose text is not a value of that kind: they are missing among the values.
    """
    texts = _Texts(written)
    values = _values(texts.distinct, column, notation)
    return texts.rows(values), texts.rows(values.isna() & texts.distinct.notna())


def _values(written, column, notation):
    kind = _kind(column)
    if kind == "text":
        return _as_declared(written, column.categories or ())
    if kind == "moment":
        formats = notation.dates if column.format is None else (column.format, *notation.dates)
        return _moments(written, formats, time_zone(output_dtype(column.dtype)) is not None)
    if kind == "flag":
        return written.str.strip().str.lower().map(_FLAGS).astype("boolean")
    plain = notation.to_plain(written.str.strip().where(written.str.strip().str.fullmatch(notation.number)))
    if isinstance(column, Numeric):
        numbers = pd.Series(_floats(plain))
        return numbers if form_of(column.dtype) != "time" else numbers.fillna(_seconds(written.str.strip()))
    # categories: large integers stay distinct
    return pd.Series([None if pd.isna(text) else _number(text) for text in plain], dtype=object)


def _floats(texts):
    return texts.to_numpy(dtype=object, na_value="nan").astype(np.float64)


def _seconds(written):
    """Seconds since midnight of times of the day as 13:45, 13:45:30 or 13:45:30.25; NaN of other texts."""
    parts = written.str.extract(_TIME_OF_DAY)
    hours, minutes, seconds = (_floats(parts[place]) for place in range(3))
    return pd.Series(3600 * hours + 60 * minutes + np.nan_to_num(seconds))


def undeclared(values, unread, column):
    """Replace texts that `as_kind` could not read by a value that is no declared category.

    That value becomes "other" or is refused. The values of the other rows do not change: one text must not decide how
    they are distinguished. The categories of `column` are numbers or truth values.
    """
    if _kind(column) == "flag":  # there is no third truth value
        return values.map({True: "true", False: "false"}).astype("string").mask(unread, "neither")
    number = next(k for k in itertools.count() if k not in column.categories)
    return values.astype(object).mask(unread, number)


def _kind(column):
    if isinstance(column, Datetime):
        return "moment"
    if isinstance(column, Numeric):
        return "number"
    if isinstance(column, Boolean):
        return "flag"
    if column.categories:
        return family(column.categories[0])
    if column.dtype in (None, "str", "object", "category"):
        return "text"
    dtype = output_dtype(column.dtype)
    if pd.api.types.is_bool_dtype(dtype):
        return "flag"
    return "number" if pd.api.types.is_numeric_dtype(dtype) else "text"


def _number(text):
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)


def _moments(written, forms, zoned):
    # nanoseconds in one row would make pandas store all rows in nanoseconds, which cannot represent the year 9999
    short = written.str.replace(r"(\.\d{6})\d+", r"\1", regex=True).astype(object)
    short = short.where(~short.isin(["now", "today"]))  # the clock of the reader, whatever the format
    rest, values = short, pd.Series(pd.NaT, index=written.index, dtype="datetime64[us]")
    for form in forms:
        texts = rest if "%f" in form else written.astype(object).where(rest.notna())
        found = pd.to_datetime(texts, errors="coerce", format=form_of_strptime(form))
        values = values.fillna(found.astype("datetime64[us]"))
        rest = rest.where(found.isna())
    if zoned:
        found = pd.to_datetime(rest, errors="coerce", format="ISO8601", utc=True)
        return found if values.isna().all() else values.dt.tz_localize("UTC").fillna(found)
    rest = rest.where(written.str.fullmatch(_DAY_OR_TIME).fillna(False).astype(bool))
    return values.fillna(pd.to_datetime(rest, errors="coerce", format="ISO8601").astype("datetime64[us]"))


# ---- text and codes ------------------------------------------------------------------------------------------------


def _as_declared(written, categories):
    """Replace undeclared texts by the declared category that is the same number or truth value.

    Many programs write 1.0 for 1 if another value is missing; some write TRUE.
    """
    same = {}
    for text in written.dropna().unique():
        if text in categories:
            continue
        plain = text.strip()
        if re.fullmatch(NUMBER, plain):
            same[text] = number_text(int(plain) if re.fullmatch(r"[+-]?\d+", plain) else float(plain), categories)
        elif plain.lower() in ("true", "false"):
            same[text] = plain.capitalize() if plain.capitalize() in categories else plain.lower()
        else:
            same[text] = plain
    same = {text: other for text, other in same.items() if other in categories}
    return written.replace(same) if same else written


def are_codes(written, all_rows=True):
    """Whether texts of whole numbers are codes, which lose their leading zeros if they are read as numbers.

    Codes have digits alone, and leading zeros: in one of them if all have the same length, else in a twentieth of the
    different ones, such as 01, 011 and 0111 of a hierarchy. A few negative numbers stand for missing values among them,
    as in surveys: -8 beside 0110.

    `written`: values that are not missing. `all_rows`: whether these are all rows; else the answer is whether the
    column may be one of codes, by some of its rows.
    """
    different = pd.Series(written.unique(), dtype="string")
    codes = different[~different.str.fullmatch(r"-\d+")]
    if len(different) - len(codes) > _MOST_MARKS:
        return False
    if codes.empty:
        return not all_rows
    if not codes.str.fullmatch(r"\d+").all():
        return False
    n_zeros = int(codes.str.fullmatch(r"0\d+").sum())
    same = codes.str.len().nunique() == 1 and len(codes.iloc[0]) > 1
    if all_rows:
        return n_zeros > 0 if same else n_zeros >= _LEADING_ZEROS * len(codes)
    return same or n_zeros > 0


# ---- dates ---------------------------------------------------------------------------------------------------------


def with_dates(frame, declared, notation=USUAL_NOTATION, refuse=None):
    """Convert text columns that contain only ISO dates; warn of other columns that look like numbers or dates.

    `declared` columns stay as they are. `refuse` takes the columns that another notation reads, a dict of column name
    to what `readings_of` gives. Returns the frame, a dict of the columns of dates and their resolutions, and a dict of
    those that are not written in the usual format, and their formats.
    """
    resolutions, formats, almost, formatted, others = {}, {}, [], {}, {}
    for name in frame.columns:
        if name in declared or not pd.api.types.is_string_dtype(frame[name].dtype):
            continue
        texts = _Texts(frame[name])
        values = texts.distinct.dropna()
        if values.empty:
            continue
        resolution, form = _iso_form(values)
        if resolution is not None:
            moments = pd.to_datetime(texts.distinct.astype(object), errors="coerce", format=form)
            if moments.notna().sum() == len(values):
                frame[name] = texts.rows(moments.astype("datetime64[us]"))
                resolutions[name] = resolution
                formats |= {} if _USUAL.get(resolution) == form else {name: form}
                continue
        odd = _no_number(values) if notation.plain else ~values.str.fullmatch(notation.number)
        n_odd = values[odd].nunique()
        looks = _look(values)
        if n_odd and _are_some_negative(values):
            looks = _NEGATIVE
        readings, marked = readings_of(values, notation) if n_odd else ((), False)
        if not readings and (marks := marks_among(values)) and _reads(values[~values.isin(marks)], notation):
            readings = (Reading(missing=marks),)
        if readings:
            others[name] = readings, marked
            options = " or ".join(one.options() for one in readings[:2])
            formatted[repr(name)] = looks or f"{_IN_ANOTHER_NOTATION} ({options}{_MARKED if marked else ''})"
        elif looks == _NEGATIVE:
            formatted[repr(name)] = looks
        elif not odd.all() and n_odd == 1:
            almost.append(repr(name))
        elif n_odd and looks:
            formatted[repr(name)] = looks
        elif n_odd and are_few(n_odd, values.nunique()):
            almost.append(repr(name))
    if others and refuse is not None:
        refuse(others)  # those that it accepts are meant as text
        formatted = {name: looks for name, looks in formatted.items() if name not in map(repr, others)}
    if almost:
        warn_user(
            f"read as text, although all values but one text, or a few, are numbers: {', '.join(almost)}. If these "
            f"texts stand for a missing value, give each as --missing TEXT ({FIRST_IS_WRITTEN})",
            UserWarning,
        )
    if formatted:
        ways = {}
        for name, looks in formatted.items():
            ways.setdefault(_LOOKS_LIKE.get(looks, looks), []).append(name)
        warn_user(
            f"read as text, from which almost nothing can be learned: {', '.join(formatted)}. All values "
            + "; those ".join(f"of {', '.join(names)} look like {way}" for way, names in ways.items()),
            UserWarning,
        )
    return frame, resolutions, formats


def _look(values):
    """What all texts of a column look like, in words or a key of `_LOOKS_LIKE`; None: none of it."""
    look = next((like for like in _LOOKS_LIKE if _all_match(values, like)), None)
    if look != _OTHER_DATE:
        return look
    if _all_match(values, _ZONED):
        return _OFFSET_SHARED if values.str.extract(_ZONED)[0].nunique() == 1 else _OFFSETS_DIFFER
    return _SEVERAL_FORMATS if len(values.str.extract(_DAY_PARTS).drop_duplicates()) > 1 else look


def _are_some_negative(values):
    """Whether texts are all numbers, some of them marked as negative in another way than by a leading "-"."""
    numbers = _all_match(values, rf"{_NEGATIVE}|{_FORMATTED}|{NUMBER}")
    return numbers and bool(values.str.fullmatch(_NEGATIVE).any())


def _reads(values, notation):
    """Whether texts are all numbers in a notation, or all dates in one ISO 8601 format."""
    numbers = not _no_number(values).any() if notation.plain else _all_match(values, notation.number)
    return bool(numbers or _iso_form(values)[0] is not None)


def _iso_form(values):
    return next(((resolution, form) for resolution, like, form in _ISO if _all_match(values, like)), (None, None))


def _no_number(values):
    return pd.to_numeric(values, errors="coerce").isna()
