"""Names of dtypes that a schema may hold: only these reach pandas, which opens files for some other names.

pandas passes a time zone such as ``dateutil/../../etc/passwd`` on to dateutil, which reads that file.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pandas as pd
from pandas.api import types as pdt

__all__ = ["TEXT_DTYPES", "output_dtype", "parse_dtype"]

# Names that stand for themselves: what they mean depends on the version of pandas.
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

    Raises
    ------
    TypeError
        The name is none of the dtypes that a column may have: numbers, bools, text, objects, categories and datetimes
        of numpy, pandas and Arrow, the last with a time zone of the IANA database, UTC or an offset such as +02:00.
    """
    if name == "str":
        # pandas 2 keeps text in object columns, pandas 3 in its str dtype; one schema serves both.
        return pd.Series(["a"]).dtype
    return parse_dtype(name)


def parse_dtype(name: str):
    """Return the pandas dtype of a name from a file; TypeError for any that is not on the list."""
    if not isinstance(name, str) or not _known(name):
        raise TypeError("not on the list of dtypes that a column may have")
    return pdt.pandas_dtype(name)


def _known(name):
    if _PLAIN.fullmatch(name) or _ARROW.fullmatch(name):
        return True
    found = _MOMENT.fullmatch(name) or _ARROW_MOMENT.fullmatch(name)
    return found is not None and (found[1] is None or _known_zone(found[1]))


def _known_zone(zone):
    return zone in ("UTC", "tzlocal()") or _OFFSET.fullmatch(zone) is not None or zone in _zones()


@lru_cache
def _zones():
    from zoneinfo import available_timezones

    return available_timezones()
