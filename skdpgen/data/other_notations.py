"""Texts that are numbers or dates, in another notation than the one in which a table is read."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..tabular._formats import form_of_strptime
from ..utils.printing import listed
from .notation import USUAL_NOTATION

# Values that are compared with a pattern before all others: they rule out most columns.
_FEW = 1000
# Most different texts without a digit that may stand for missing values among numbers or dates.
_MOST_PLACEHOLDERS = 3
# Share of the different texts that may be such, where this is more.
_SHARE_OF_PLACEHOLDERS = 0.05
# Marks of decimals and of thousands. The first pair that reads all texts is named first.
_MARKS = ((".", ","), (",", None), (".", None), (",", "."), (".", "'"), (",", "'"), (".", "space"), (",", "space"))
# Signs that belong to numbers. Others, as in 1+ or #3, are of codes as well.
_SIGNS = ("$", "€", "£", "¥", "%", "EUR", "USD", "GBP", "CHF")
# Of results beyond a limit of measurement, such as <5, among numbers: categories such as <30 and >30 are no numbers.
_LIMITS = {"<=": "<=", ">=": ">=", "<": "<(?!=)", ">": ">(?!=)", "≤": "≤", "≥": "≥"}
SIGNS_OF_LIMITS = tuple(_LIMITS)
# Units after all numbers of a column. They are a fixed list, because a message shows none of the texts of a column.
_UNITS = ("mg/L", "mg/l", "mg/dL", "mg/dl", "g/L", "g/l", "g/dL", "g/dl", "ng/mL", "ng/ml", "pg/mL", "pg/ml", "µg/L")
_UNITS += ("mmol/L", "mmol/l", "µmol/L", "µmol/l", "nmol/L", "nmol/l", "mEq/L", "U/L", "U/l", "IU/L", "mmHg", "mm Hg")
_UNITS += ("g", "kg", "mg", "µg", "t", "m", "cm", "mm", "km", "mi", "ft", "in", "lb", "lbs", "m²", "l", "L", "ml", "mL")
_UNITS += ("s", "sec", "min", "h", "days", "weeks", "months", "years", "°C", "°F", "bpm", "/min", "km/h", "mph", "kWh")
# Fewer different numbers beside signs of limits or units may be categories.
_FEWEST_NUMBERS = 10
_DAYS = tuple(
    form.replace("-", mark) for form in ("%d-%m-%Y", "%m-%d-%Y", "%Y-%m-%d", "%d-%m-%y", "%m-%d-%y") for mark in "./-"
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %I:%M%p", " %I:%M:%S%p")
_DATES = tuple(day + clock for clock in _CLOCKS for day in _DAYS if (day, clock) != ("%Y-%m-%d", ""))
_ISO_DAY = "%Y-%m-%d"
# What only Python reads: an offset of each row, and times without a day, in the formats of `datetime.strptime`.
_LIKE_ZONED = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})"
# The fit sees days and hours on the clock of the column: in UTC, the midnights of other zones are hours of the day.
_LOCAL = ", and of this .dt.tz_convert('Europe/Berlin'), or to another zone in which days begin at midnight"
_LIKE_MOMENTS = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}\.\d{1,9}"
_TIMES = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
_LIKE_TIMES = r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?"
# Hours from 1 to 12 have AM or PM behind them, as spreadsheets and databases write them: 01/02/2020 12:00:00 AM.
_HALF_DAY = r"(?: ?[AaPp][Mm])?"
_LIKE_DATES = rf"\d{{1,4}}([./-])\d{{1,2}}\1\d{{1,4}}(?:[T ]\d{{1,2}}:\d{{2}}(?::\d{{2}})?{_HALF_DAY})?"
# With English names of months, as statistical programs write them: 24JUN2023, 24-Jun-2023, 24JUN2023:13:45:00; and with
# the month first: Jun 24, 2023.
_NAMED = tuple(day.replace(" ", mark) for mark in ("", "-", " ", ".") for day in ("%d %b %Y", "%d %B %Y", "%d %b %y"))
_MONTH_FIRST = ("%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y")
_NAMED_DATES = tuple(day + clock for day in (*_NAMED, *_MONTH_FIRST) for clock in (*_CLOCKS, ":%H:%M", ":%H:%M:%S"))
_LIKE_NAMED = (
    r"(?:\d{1,2}([ .-]?)[A-Za-z]{3,9}\1(?:\d{4}|\d{2})|[A-Za-z]{3,9} {1,2}\d{1,2},? \d{4})"
    rf"(?:[T :]\d{{1,2}}:\d{{2}}(?::\d{{2}})?{_HALF_DAY})?"
)
# What programs write for a missing value: R, SAS, SPSS and Stata, Python, databases and spreadsheets.
_USUAL_MARKS = frozenset(("NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", ".", "#N/A", "<NA>", "NaT"))
# Codes such as 01,02: a number does not begin with a zero before another digit.
_CODE = r"\D{0,4}0\d.*"


@dataclass(frozen=True)
class Reading:
    """A notation that reads all texts of a column, in the words of its options."""

    # decimal, thousands: marks that differ from those of the table; None is no difference
    decimal: str | None = None
    thousands: str | None = None
    signs: tuple = ()  # tuple of str; signs that the table does not leave out
    date: str | None = None  # format of dates; None for numbers
    missing: tuple = ()  # tuple of str; texts of missing values that the table does not know
    python: str | None = None  # what reads it in Python, where no option of the command line does

    def options(self):
        """Return the options of the command line."""
        given = [("decimal", self.decimal), ("thousands", self.thousands), ("dates", self.date)]
        given += [("sign", sign) for sign in self.signs] + [("missing", mark) for mark in self.missing]
        return " ".join(f"--{name} {_quoted(value)}" for name, value in given if value is not None)

    def in_pandas(self):
        """Return what reads such numbers or dates in Python."""
        if self.python is not None:
            return self.python
        if self.date is not None:
            return f"pandas.to_datetime(..., format={form_of_strptime(self.date)!r})"
        given = [("decimal", self.decimal), ("thousands", {"space": " "}.get(self.thousands, self.thousands))]
        marks = ", ".join(f"{name}={value!r}" for name, value in given if value is not None)
        read = f"pandas.read_csv(..., {marks})" if marks else ""
        signs = f"without {' '.join(self.signs)}" if self.signs else ""
        return " and ".join(filter(None, (read, signs)))


def marks_among(texts):
    """Return the usual marks of missing values among texts, a tuple; () if they are all of them.

    `texts`: values that are not missing.
    """
    different = set(texts)
    found = tuple(sorted(text for text in different if text.strip() in _USUAL_MARKS))
    return found if len(found) < len(different) else ()


def _quoted(text):
    return text if re.fullmatch(r"[\w.,%/:-]+", text) else '"\'"' if text == "'" else f"'{text}'"


def readings_of(texts, notation=USUAL_NOTATION, *, dates=True, iso=False, placeholders=_MOST_PLACEHOLDERS):
    """Return the readings of a column that its notation takes for text; none for texts, codes, and usual numbers.

    `texts`: values that are not missing.
    `notation`: of the table.
    `dates`: whether dates are looked for, too.
    `iso`: whether days in ISO 8601 are among these dates, and date-times with a zone and times without a day, which no
        option reads: a CSV file has them in its usual notation or as text, a DataFrame has neither.
    `placeholders`: most different texts without a digit that may stand for missing values (more of them among very many
        texts); 0: none.
    Returns `readings`: each of them reads all texts that contain a digit. The first two are the likeliest; `marked`:
        whether other texts stand for missing values: a few without a digit.
    """
    first = texts.iloc[:_FEW]
    forms = () if not dates else (_ISO_DAY, *_DATES) if iso else _DATES
    if first.empty or not _some_reading(first[_with_digit(first)], notation, forms):
        return (), False
    texts = pd.Series(texts.unique(), dtype="string").str.strip()
    digits = _with_digit(texts)
    n_others = int((~digits).sum())
    if n_others and not (placeholders and are_few(n_others, len(texts), placeholders)):
        return (), False
    return _some_reading(texts[digits], notation, forms), n_others > 0


def are_few(n_others, n_texts, most=_MOST_PLACEHOLDERS):
    """Whether so few of different texts are no numbers or dates that they may stand for missing values."""
    return n_others <= max(min(most, n_texts // 2), _SHARE_OF_PLACEHOLDERS * n_texts)


def _with_digit(texts):
    return texts.str.contains(r"\d", regex=True).fillna(False).astype(bool)


def _some_reading(texts, notation, forms):
    """Readings of texts as numbers, else as dates in some of `forms` or with names of months; none without `forms`."""
    texts = texts.str.strip()
    if texts.empty or texts.str.fullmatch(notation.number).all():
        return ()
    if texts.str.fullmatch(_CODE).any():
        return _dates(texts, notation, forms)
    return _numbers(texts, notation) or _dates(texts, notation, forms)


def _numbers(texts, notation):
    signs = tuple(sign for sign in _SIGNS if sign not in notation.signs and texts.str.contains(sign, regex=False).any())
    signs += _limits(texts, notation) + _unit(texts, notation)
    found = []
    for decimal, thousands in _MARKS:
        other = replace(notation, decimal=decimal, thousands=thousands, signs=(*notation.signs, *signs))
        if texts.str.fullmatch(other.number).all() and not _leading_zero(texts, thousands):
            same = (decimal == notation.decimal, thousands == notation.thousands)
            found.append(Reading(None if same[0] else decimal, None if same[1] else thousands, signs))
    # a mark that no text has is no part of the notation
    return tuple(one for one in found if not any(_is_part(other, one) for other in found))


def _limits(texts, notation):
    """Signs of limits of measurement among texts most of which are numbers without them."""
    found = {sign: texts.str.contains(like, regex=True) for sign, like in _LIMITS.items() if sign not in notation.signs}
    found = {sign: rows for sign, rows in found.items() if rows.any()}
    if not found:
        return ()
    without = texts[~np.any([rows.to_numpy(dtype=bool) for rows in found.values()], axis=0)]
    return tuple(found) if without.nunique() >= max(_FEWEST_NUMBERS, texts.nunique() / 2) else ()


def _unit(texts, notation):
    """The unit after the numbers of all texts, a tuple; () if there is none."""
    if texts.nunique() < _FEWEST_NUMBERS:
        return ()
    last = texts.iloc[0]
    units = [unit for unit in _UNITS if unit not in notation.signs and last.endswith(unit)]
    return tuple(unit for unit in units if texts.str.fullmatch(rf".*\d\s?{re.escape(unit)}").all())


def _leading_zero(texts, thousands):
    """Whether 0,123 is among the texts: then the comma does not mark thousands."""
    marks = {".": r"\.", ",": ",", "'": "['\u2019]", "space": r"\s"}
    return thousands is not None and bool(texts.str.contains(rf"(?<!\d)0{marks[thousands]}\d", regex=True).any())


def _is_part(one, other):
    pairs = [(one.decimal, other.decimal), (one.thousands, other.thousands)]
    return one != other and all(part is None or part == whole for part, whole in pairs)


def _dates(texts, notation, forms):
    for like, known in ((_LIKE_DATES, forms), (_LIKE_NAMED, _NAMED_DATES if forms else ())):
        if known and texts.str.fullmatch(like).all():
            if known is _NAMED_DATES and (texts == texts.str.upper()).all():
                known = [form.replace("%b", "%^b").replace("%B", "%^B") for form in known]
            # a few texts rule out most formats
            known = [form for form in known if form not in notation.dates and _all_read(texts.iloc[:_FEW], form)]
            return tuple(Reading(date=form) for form in known if _all_read(texts, form))
    return _in_python(texts) if _ISO_DAY in forms else ()


def _in_python(texts):
    """Readings of moments with a zone or with fractions of a second, and of times of the day."""
    for like, how in ((_LIKE_ZONED, f"format='ISO8601', utc=True){_LOCAL}"), (_LIKE_MOMENTS, "format='ISO8601')")):
        if texts.str.fullmatch(like).all():
            moments = pd.to_datetime(texts.astype(object), errors="coerce", format="ISO8601", utc=True)
            return (Reading(python=f"pandas.to_datetime(..., {how}"),) if moments.notna().all() else ()
    if not texts.str.fullmatch(_LIKE_TIMES).all():
        return ()
    return tuple(
        Reading(python=f"pandas.to_datetime(..., format={form!r}).dt.time") for form in _TIMES if _all_read(texts, form)
    )


def _all_read(texts, form):
    return bool(pd.to_datetime(texts.astype(object), errors="coerce", format=form_of_strptime(form)).notna().all())


# What is written for a missing value, for messages that advise --missing.
FIRST_IS_WRITTEN = (
    "synthetic rows have the first TEXT of --missing in all columns, and with --missing '' first empty fields"
)


# ---- what is said of them ------------------------------------------------------------------------------------------
def refusal_of_file(found):
    """Return the message for columns of a file: their names and the options that read them.

    An option may contain a usual mark of missing values, such as NA; the message has no other value.

    `found`: as `readings_of` gives them.
    """
    names, ways = list(found), {}
    for name, (readings, marked) in found.items():
        missing = " and --missing TEXT, for each text of a missing value," if marked else ""
        ways.setdefault(" or ".join(one.options() for one in readings[:2]) + missing, []).append(name)
    said = "; ".join(f"give {way} for {listed(of)}" for way, of in ways.items())
    columns = _quoted_names(names)
    if any(marked or any(one.missing for one in readings) for readings, marked in found.values()):
        said += f"; {FIRST_IS_WRITTEN}"
    return (
        "columns that would be taken for text, although their values look like numbers or dates in another notation: "
        f"{said}. If such a column is one of categories, declare it by skdpgen schema --categorical {columns}, and "
        f"give the schema as --schema; or leave it out by --drop {columns}; nothing was charged"
    )


def _quoted_names(names):
    text = ",".join(map(str, names))
    return text if re.fullmatch(r"[\w.,-]+", text) else f"'{text}'"


def refusal_of_columns(found):
    """Return the message for columns of a DataFrame: their names and what reads them, and no value."""
    ways = {}
    for name, readings in found.items():
        ways.setdefault(" or ".join(one.in_pandas() for one in readings[:2]), []).append(name)
    said = "; ".join(f"{listed(of, 5)}: {way}" for way, of in ways.items())
    first = next(iter(found))
    return (
        f"columns of text whose values all look like numbers, dates or times, to be read as such: {said}. If such "
        f"a column is one of categories, say so: X.astype({{{first!r}: 'category'}}), or declare it as Categorical in "
        "the schema. Nothing was charged"
    )
