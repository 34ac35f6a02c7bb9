"""What the rows of a file suggest to its owner: whom several rows belong to, codes of missing values, columns to omit.

It is computed from the rows without protection: commands print it for the data holder alone, and put none of it into a
schema.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..data.other_notations import are_few

UNIT_HINT = "if one person (or household, or device) may have several rows, protect persons and not rows"
# Fewer different values are hardly those of identifiers.
_FEWEST = 20
# Share of the rows with different texts from which a column is free text.
_FREE_TEXT = 0.2
# Digits from which whole numbers without gaps may count rows, those from which equal ones may be codes, and most codes.
_DIGITS_OF_A_COUNTER, _DIGITS_OF_A_CODE, _MOST_CODES = 4, 5, 1000
# Digits of short codes, and the largest share of the numbers of their range that are codes.
_SHORT, _FILLED = (3, 4), 0.25
# Two numbers in one text, the fewest different ones of each, and numbers that may be years.
_TWO_NUMBERS, _FEWEST_NUMBERS, _YEAR = r"(\d+(?:[.,]\d+)?)\s?([/|;x*\u00d7])\s?(\d+(?:[.,]\d+)?)", 10, r"[12]\d{3}"
# Numbers in any notation.
_LIKE_NUMBER = r"\s*[+-]?\d[\d.,'\s]*(?:[eE][+-]?\d+)?\s*"
# Share of the rows with different values from which a column may be one of keys, and the smallest of long numbers.
_KEYS, _LONG = 0.95, 10**9
# Rows for each value of a code, on average, from which it is no chance that another code follows from it.
_ROWS_OF_A_CODE = 10
# Different values from which codes are many, the share of them that have a digit, and the most groups of the coarsest
# level and the fewest codes of a group on average.
_MANY_CODES, _WITH_DIGIT, _COARSE_GROUPS, _CODES_OF_A_GROUP = 50, 0.9, 40, 3
# Rows with dates of which hardly any day of the week is lacking by chance, or so many hours.
_ROWS_OF_WEEKDAYS, _ROWS_OF_HOURS, _LACKING_HOURS = 200, 500, 4
# Numbers that surveys and registers write for a missing value.
_POSITIVE = (99, 999, 9999, 99999, 999999)
_NEGATIVE = (*range(-1, -10, -1), -66, -77, -88, *range(-95, -100, -1), -997, -998, -999, -9999, -99999)


def likely_units(frame):
    """Return the columns that identify persons with several rows: by their names, and because values repeat.

    `frame`: private rows.
    """
    from ..tabular._identifiers import names_units

    found = []
    for name in frame.columns:
        if not names_units(name):
            continue
        values = frame[name].dropna()
        # a column that may have missing values is read as floats
        whole = pdt.is_float_dtype(values.dtype) and bool((values % 1 == 0).all())
        known = whole or pdt.is_integer_dtype(values.dtype) or pdt.is_string_dtype(values.dtype)
        if known and max(_FEWEST, len(values) / 1000) <= values.nunique() < len(values):
            found.append(name)
    return found


def row_numbers(frame, unit):
    """Return the columns that number the rows of each unit from 1, such as the visits of a patient.

    `frame`: private rows. `unit`: of the identifiers of the units, several of which have several rows.
    """
    codes = pd.factorize(frame[unit])[0]
    sizes = np.bincount(codes + 1)[codes + 1]
    found = []
    for name in frame.columns:
        values = frame[name]
        if name == unit or not pdt.is_integer_dtype(values.dtype) or values.isna().any():
            continue
        numbers = values.to_numpy(dtype=np.int64)
        within = (codes >= 0) & (numbers >= 1) & (numbers <= sizes)
        if within.all() and len(np.unique(np.stack([codes, numbers]), axis=1).T) == len(frame):
            found.append(name)
    return found


def codes_of_missing_values(values):
    """Return the numbers of a column that may stand for a missing value, such as -9 or 999; none of other columns.

    They are negative codes of surveys, where no other number is negative, or whole numbers of nines that are further
    above all others than these are from one another. A scale such as -2 to 2 has no such codes: -1 is one of them only
    if other numbers are large.

    `values`: private values.
    """
    if not pdt.is_numeric_dtype(values.dtype) or pdt.is_bool_dtype(values.dtype):
        return []
    numbers = np.unique(values.dropna().to_numpy(dtype=np.float64))
    rest = numbers[~np.isin(numbers, _NEGATIVE + _POSITIVE)]
    if len(rest) < 2:
        return []
    low, high = rest[0], rest[-1]
    negative = numbers[np.isin(numbers, _NEGATIVE)]
    apart = low >= 0 and len(negative) and (negative.max() < -1 or high > -2 * negative.min())
    codes = [code for code in _NEGATIVE if apart] + [code for code in _POSITIVE if code > 2 * high - low]
    return [code for code in codes if code in numbers]


def lacking_times(frame):
    """Return the columns of dates that leave out days of the week, and those that leave out hours, two lists.

    A shop that is closed on Sundays and at night has such dates. In fewer rows they may be lacking by chance.
    """
    days, hours = [], []
    for name in frame.columns:
        if not pdt.is_datetime64_any_dtype(frame[name].dtype):
            continue
        dates = frame[name].dropna()
        if str(dates.dtype).startswith(("date32", "date64")):  # days of Arrow's calendar have no hours
            dates = dates.astype("datetime64[us]")
        # dates of one or two days of the week, such as the first days of weeks, are no working days
        if len(dates) >= _ROWS_OF_WEEKDAYS and 3 <= dates.dt.day_of_week.nunique() < 7:
            days.append(name)
        if len(dates) >= _ROWS_OF_HOURS and 3 <= dates.dt.hour.nunique() <= 24 - _LACKING_HOURS:
            hours.append(name)
    return days, hours


def constants(frame):
    """Return the columns that have one value in all rows of a DataFrame of private rows."""
    return [name for name in frame.columns if len(frame) >= _FEWEST and frame[name].nunique(dropna=False) == 1]


def free_texts(frame):
    """Return the columns of text that few rows share: the fit can learn no category of them.

    Not those of numbers beside a few texts, which are numbers once these are read as missing values.
    """
    texts = [name for name in frame.columns if _is_text(frame[name].dtype)]
    texts = [name for name in texts if len(frame) >= _FEWEST and are_free_text(frame[name].dropna())]
    return [name for name in texts if not _are_numbers_beside_texts(frame[name].dropna())]


def _are_numbers_beside_texts(values):
    different = pd.Series(values.unique()).astype(str)
    n_others = int((~different.str.fullmatch(_LIKE_NUMBER)).sum())
    return 0 < n_others and are_few(n_others, len(different))


def alike_texts(frame):
    """Return the columns of text some of whose categories differ in spaces at their ends or in upper case alone."""
    found = []
    for name in frame.columns:
        if not _is_text(frame[name].dtype) or are_free_text(values := frame[name].dropna()):
            continue
        different = pd.Series(values.unique()).astype(str)
        if different.str.strip().str.casefold().nunique() < len(different):
            found.append(name)
    return found


def likely_keys(frame):
    """Return the columns of texts, of long whole numbers and of counters that hardly any two rows of a DataFrame share.

    Counters have few gaps, and as many digits in all rows or the order of the rows.
    """
    found = []
    for name in frame.columns:
        values = frame[name].dropna()
        if len(values) < _FEWEST or values.nunique() < _KEYS * len(values):
            continue
        if pdt.is_integer_dtype(values.dtype):
            likely = bool((values >= _LONG).all()) or _counts_rows(values)
        else:  # words, and moments, which a notation did not read, are no keys
            likely = _is_text(values.dtype) and values.astype(str).str.fullmatch(r"[\w-]*\d[\w-]*").all()
        if likely:
            found.append(name)
    return found


def _counts_rows(values):
    low, high = int(values.min()), int(values.max())
    if low < 0 or high - low >= 2 * len(values) or not values.is_unique:
        return False
    years = low >= 1800 and high < 2200
    return not years and (_digits(values) >= _DIGITS_OF_A_COUNTER or values.is_monotonic_increasing)


def _digits(values):
    """The number of digits that all whole numbers have; 0 if they differ in it."""
    low, high = int(values.min()), int(values.max())
    return len(str(low)) if low >= 0 and len(str(low)) == len(str(high)) else 0


def distinct_numbers(frame):
    """Return the columns of whole numbers no two of which are equal: they may be keys, or quantities."""
    whole = [name for name in frame.columns if pdt.is_integer_dtype(frame[name].dtype) and len(frame) >= _FEWEST]
    return [name for name in whole if frame[name].notna().all() and frame[name].is_unique]


def codes_of_one_length(frame):
    """Return the columns of whole numbers that may be codes: all of one length, long, and few different ones."""
    found = []
    for name in frame.columns:
        values = frame[name].dropna()
        if len(values) < _FEWEST or not pdt.is_integer_dtype(values.dtype) or _digits(values) < _DIGITS_OF_A_CODE:
            continue
        rounded = bool((values % 10 == 0).all())  # as amounts are
        if not rounded and 2 < values.nunique() <= min(_MOST_CODES, len(values) / _ROWS_OF_A_CODE):
            found.append(name)
    return found


def short_codes(frame):
    """Return the columns of whole numbers of three or four digits that may be codes with groups of first digits.

    These have gaps: far fewer values than their range has. Years and measurements have few gaps, and amounts mostly
    end in the same digit, or in 0 and 5.
    """
    found = []
    for name in frame.columns:
        values = frame[name].dropna()
        if len(values) < _FEWEST or not pdt.is_integer_dtype(values.dtype):
            continue
        if _digits(values) not in _SHORT or values.nunique() * _ROWS_OF_A_CODE > len(values):
            continue
        codes = np.unique(values.to_numpy(dtype=np.int64))
        gaps = _FEWEST <= len(codes) <= _FILLED * (codes[-1] - codes[0] + 1)
        last = np.bincount(codes % 10, minlength=10) / len(codes)
        first = len(np.unique(codes // 10 ** (_digits(values) - 1)))
        if gaps and last.max() <= 0.5 and last[[0, 5]].sum() <= 0.5 and 3 <= first <= len(codes) / _CODES_OF_A_GROUP:
            found.append(name)
    return found


def constant_within(frame, unit):
    """Return the columns that have one value in all rows of each unit, of units with several rows, and several values.

    `frame`: private rows. `unit`: of the identifiers of the units.
    """
    codes = pd.factorize(frame[unit])[0]
    several = np.bincount(codes + 1)[codes + 1] > 1
    rows, codes = frame[several & (codes >= 0)], codes[several & (codes >= 0)]
    found = []
    if len(np.unique(codes)) < _FEWEST:
        return found
    for name in frame.columns.drop(unit):
        try:
            own, values = pd.factorize(rows[name])
        except TypeError:  # lists, as Parquet files may have
            continue
        pairs = np.unique(np.stack([codes, own]), axis=1)
        if len(values) > 1 and pairs.shape[1] == len(np.unique(codes)):
            found.append(name)
    return found


def two_numbers(frame):
    """Return the columns of text whose values are two numbers with one mark between them, such as 120/80."""
    return [name for name in frame.columns if _is_text(frame[name].dtype) and are_two_numbers(frame[name].dropna())]


def are_two_numbers(values):
    """Whether private values of text, none of them missing, are two numbers with one mark between them.

    A month or a season with a year, as 01/2024 and 2019/20, is none, nor are scores such as 8/10.
    """
    different = pd.Series(values.unique(), dtype="string")
    parts = different.str.extract(_TWO_NUMBERS) if different.str.fullmatch(_TWO_NUMBERS).all() else None
    if parts is None or parts.empty or parts[1].nunique() > 1:
        return False
    return all(parts[k].nunique() >= _FEWEST_NUMBERS and not parts[k].str.fullmatch(_YEAR).all() for k in (0, 2))


def _is_text(dtype):
    return pdt.is_string_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype)


def are_free_text(values):
    """Whether private values of text, none of them missing, look like free text."""
    return bool(values.nunique() > _FREE_TEXT * len(values))


def code_systems(frame):
    """Return the columns of many codes that may belong together by their first characters, as those of ICD-10 do.

    A dict of the numbers of first characters, one or two of them, by column.
    """
    found = {}
    for name in frame.columns:
        if not _is_text(frame[name].dtype) or are_free_text(values := frame[name].dropna()):
            continue
        codes = pd.Series(values.unique()).astype(str)
        # dates and times of the day
        other = codes.str.contains(r"\s") | codes.str.fullmatch(r"\d+([./:-])\d+\1\d+|\d{1,3}:\d{2}")
        if len(codes) < _MANY_CODES or other.any() or codes.str.contains(r"\d").mean() < _WITH_DIGIT:
            continue
        groups = {n: codes.str[:n].nunique() for n in range(1, int(codes.str.len().median()))}
        coarse = next((n for n, k in groups.items() if 3 <= k <= _COARSE_GROUPS), None)
        if coarse is None or groups[coarse] * _CODES_OF_A_GROUP > len(codes):
            continue
        most = len(codes) / _CODES_OF_A_GROUP
        fine = {n: k for n, k in groups.items() if n > coarse and 2 * groups[coarse] <= k <= most}
        found[name] = [coarse, *([max(fine, key=fine.get)] if fine else [])]  # of equal ones the shortest
    return found


def copies(frame):
    """Return pairs of columns with equal values in all rows, the first of them first in the table.

    Columns of fewer than three values may be equal by chance.
    """
    first, found = {}, []
    for name in frame.columns:
        try:
            codes, values = pd.factorize(frame[name])
        except TypeError:  # lists, as Parquet files may have
            continue
        if len(values) < 3:
            continue
        key = hash(codes.tobytes())
        if key in first and frame[first[key]].equals(frame[name]):
            found.append((first[key], name))
        first.setdefault(key, name)
    return found


def nested(frame, codes=()):
    """Return columns of text that follow from another one, as regions follow from districts: a dict of lists by it.

    Every column is named once: with the column of most values from which it follows. `codes`: columns of numbers that
    are categories.
    """
    texts = [name for name in frame.columns if name in codes or _is_text(frame[name].dtype)]
    coded = {name: pd.factorize(frame[name]) for name in texts}
    sizes = {name: len(values) for name, (_, values) in coded.items()}
    found, taken = {}, set()
    for fine in sorted(texts, key=sizes.get, reverse=True):
        if fine in taken or not 2 < sizes[fine] <= len(frame) / _ROWS_OF_A_CODE:
            continue
        rest = [name for name in texts if name not in taken and 1 < sizes[name] < sizes[fine]]
        if rest := [name for name in rest if _follows(coded[fine][0], coded[name][0], sizes[fine])]:
            found[fine] = rest
            taken.update(rest)
    return found


def _follows(fine, coarse, n_values):
    both = np.unique(fine.astype(np.int64) * (int(coarse.max()) + 2) + coarse)
    return len(both) == n_values + bool(np.any(fine < 0))
