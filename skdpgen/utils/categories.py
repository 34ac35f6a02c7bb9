"""Categories and labels in one canonical form, which depends on the value alone and on no row."""

from __future__ import annotations

from datetime import datetime
from numbers import Integral, Number, Real

import numpy as np
import pandas as pd

# Integers below it are equal as int64, float and text in every version of numpy and pandas.
_INT64 = 2**63


def family(value) -> str | None:
    """Return "text", "flag" or "number": values of different families cannot be categories of one column."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return "flag"
    if isinstance(value, Real):
        return "number"
    return None


def kinds(values) -> set:
    """Return the kinds of identifiers: text, bytes, numbers of any type, moments, and every other type by itself.

    Of two kinds in one column, 7 and "7" for example, nobody can tell whether they are one person or two.
    """
    groups = (str, bytes, Number, datetime)
    return {
        Number if issubclass(found, np.bool_) else next((group for group in groups if issubclass(found, group)), found)
        for found in set(map(type, values))
    }


def inexact_bits(values, *dtypes):
    """Return up to how many bits floats hold whole numbers exactly, if one of `values` has more; else None.

    A larger float is one number for several integers, which may be the identifiers of several persons. `values` are
    floats of one dtype, or objects, of which other types are left out. `dtypes`: which they had before.
    """
    if values.dtype.kind != "f":
        types = {type(value) for value in values if isinstance(value, float | np.floating)}
        parts = (np.array([float(value) for value in values if type(value) is found]) for found in types)
        return next((bits for bits in map(inexact_bits, parts, map(np.dtype, types)) if bits), None)
    bits = min(_exact_bits(dtype) for dtype in (values.dtype, *dtypes))
    return bits if (np.abs(values[np.isfinite(values)]) >= 2.0**bits).any() else None


def _exact_bits(dtype):
    """Bits of the whole numbers that a dtype holds exactly; text of identifiers is made of float64."""
    plain = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))
    return min(np.finfo(plain).nmant + 1, 53) if isinstance(plain, np.dtype) and plain.kind == "f" else 53


def canonical(values):
    """Return an object array in which equal values are the same: 1.0 is 1, -0.0 is 0, subclasses of str are str.

    Which of several equal values comes first, and the type of the numbers beside it, depend on single rows. The
    released form of a category must not.

    `values`: text, truth values, numbers; missing values stay as they are.
    """
    out = np.empty(len(values), dtype=object)
    out[:] = [_canonical(value) for value in values]
    return out


def canonical_rows(values):
    """Return `canonical` of an array of many rows and few distinct values."""
    codes, distinct = pd.factorize(np.asarray(values, dtype=object), use_na_sentinel=False)
    return canonical(distinct)[codes]


def _canonical(value):
    kind = family(value)
    if kind == "text":
        return str.__str__(value)
    if kind == "flag":
        return bool(value)
    return _number(value) if kind == "number" else value


def _number(value):
    if isinstance(value, Integral):
        value = int(value)
        if abs(value) < _INT64:
            return value
        try:  # a float may be equal to it
            return float(value) if float(value) == value else value
        except OverflowError:
            return value
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < _INT64 else value


def number_text(value, categories=()):
    """Return the text of a number: 1.0 is "1", unless "1.0" is among the categories and "1" is not."""
    value = _number(value)
    text = str(value)
    # two large integers with the same float are different
    if isinstance(value, int) and text not in categories and abs(value) < _INT64 and float(value) == value:
        with_point = str(float(value))
        return with_point if with_point in categories else text
    return text
