"""Dtypes of columns by name: those that a schema may have, and what numbers they hold."""

from __future__ import annotations

import re
from functools import lru_cache
from zoneinfo import available_timezones

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ._formats import form_of, parse_form, range_of_form

# Only these names of dtypes reach pandas, which opens files for some other names: it passes a time zone such as
# ``dateutil/../../etc/passwd`` on to dateutil, which reads that file.
# Names whose meaning depends on the version of pandas are kept as they are.
TEXT_DTYPES = ("str", "object", "category")

_PLAIN = re.compile(
    r"u?int(?:8|16|32|64)?|U?Int(?:8|16|32|64)|float(?:16|32|64|96|128)?|longdouble|complex(?:64|128)?|Float(?:32|64)|[<>=|]?[iuf](?:1|2|4|8|16)"
    r"|bool|boolean|object|category|str|string(?:\[(?:python|pyarrow|pyarrow_numpy)\])?"
)
_ARROW = re.compile(
    r"(?:u?int(?:8|16|32|64)|float(?:16|32|64)?|halffloat|double|string|large_string|string_view|utf8|large_utf8"
    r"|bool|boolean|date32|date64|date32\[day\]|date64\[ms\])\[pyarrow\]"
)
_MOMENT = re.compile(r"(?:datetime64|M8)\[(?:s|ms|us|ns)(?:, ?([^\[\]]+))?\]|[<>=]M8\[(?:s|ms|us|ns)\]")
_ARROW_MOMENT = re.compile(r"timestamp\[(?:s|ms|us|ns)(?:, ?tz=([^\[\]]+))?\]\[pyarrow\]")
_OFFSET = re.compile(r"(?:UTC)?[+-](?:[01]\d|2[0-3]):?[0-5]\d")


def output_dtype(name: str):
    """Return the pandas dtype of a dtype name of a schema; "str" is pandas' own default for text.

    Raises TypeError: the name is none of the dtypes that a column may have: numbers, bools, text, objects, categories
    and datetimes of numpy, pandas and Arrow, the last with a time zone of the IANA database, UTC or an offset such as
    +02:00.
    """
    if form_of(name) is not None:
        return parse_form(name)
    if name == "str":
        # pandas 2 keeps text in object columns, pandas 3 in its str dtype; one schema serves both.
        return pd.Series(["a"]).dtype
    return parse_dtype(name)


def parse_dtype(name: str):
    """Return the pandas dtype of a name from a file; TypeError for any that is not on the list."""
    if not isinstance(name, str) or not _known(name):
        raise TypeError("not on the list of dtypes that a column may have")
    if form_of(name) is not None:
        return parse_form(name)
    return pdt.pandas_dtype(name)


def name_of_dtype(dtype) -> str:
    """Return the name from which `output_dtype` gives a dtype back.

    Arrow's text and pandas' own with Arrow's storage are both named string[pyarrow], which pandas reads as the latter.
    """
    name = str(dtype)
    return "utf8[pyarrow]" if isinstance(dtype, pd.ArrowDtype) and name == "string[pyarrow]" else name


def _known(name):
    if _PLAIN.fullmatch(name) or _ARROW.fullmatch(name) or form_of(name) is not None:
        return True
    found = _MOMENT.fullmatch(name) or _ARROW_MOMENT.fullmatch(name)
    return found is not None and (found[1] is None or _known_zone(found[1]))


def _known_zone(zone):
    return zone in ("UTC", "tzlocal()") or _OFFSET.fullmatch(zone) is not None or zone in _zones()


_zones = lru_cache(available_timezones)


def holds_missing(dtype) -> bool:
    """Return whether a dtype can hold missing values."""
    return not (isinstance(dtype, np.dtype) and dtype.kind in "biu")


def dtype_range(name: str) -> tuple[float, float]:
    """Return the smallest and largest number that a numeric dtype holds."""
    if form_of(name) is not None:
        return range_of_form(name)
    dtype = output_dtype(name)
    dtype = np.dtype(getattr(dtype, "numpy_dtype", dtype))
    info = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    return plain_value(info.min), plain_value(info.max)


def fit_dtype(values, name: str | None) -> bool:
    """Return whether the dtype `name` holds every number of `values` exactly; True for text and objects."""
    dtype = None if name in (None, *TEXT_DTYPES) else output_dtype(name)
    if dtype is None or not pdt.is_numeric_dtype(dtype) or pdt.is_bool_dtype(dtype):
        return True
    (low, high), number = dtype_range(name), np.dtype(getattr(dtype, "numpy_dtype", dtype)).type
    # .item(): numpy would round `value` to the narrow dtype before it compares
    return all(low <= value <= high and number(value).item() == value for value in values)


def plain_value(value):
    """Turn numpy scalars into Python ones, so that a schema is hashable and JSON holds it."""
    return value.item() if isinstance(value, np.generic) else value
