"""Facts about columns that the person at the command line declares public: they are copied from the values."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

from ..exceptions import PrivacyLeakWarning, SchemaError
from ..tabular import Categorical, Datetime
from ..utils.callers import warn_user
from ..utils.printing import listed


def declare_public(schema, frame, names):
    """Complete columns of a schema from the values of a frame, which the caller knows to be public.

    The smallest and largest value, or the distinct values, of the columns `names` are copied without noise.

    Raises SchemaError: a column does not exist, or has fewer than two values to take bounds from. Warns
    PrivacyLeakWarning: the schema, and every model fitted with it, contains those values.
    """
    if absent := [name for name in names if name not in schema]:
        raise SchemaError(f"not columns of the table: {listed(absent)}; it has {listed(schema)}")
    columns = [_complete(schema[name], frame[name].dropna()) for name in names if not schema[name].complete]
    if columns:
        warn_user(
            "the bounds or categories of "
            + ", ".join(repr(column.name) for column in columns)
            + " are those of the file, without noise, and every model and card made with this schema publishes them: "
            "leave them in the schema only if they are public knowledge",
            PrivacyLeakWarning,
        )
    return schema.replace(*columns)


def listed_codes(path, name, separator, *, whole):
    """Read the codes of a column from a public file: the first field of each line, in the order of the file.

    A first line whose first field is the name of the column is a header; empty lines are left out.

    `separator`: of the fields. `whole`: whether the column has whole numbers; else it has text.
    """
    where = f"--categories {name}={path}"
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [(reader.line_num, row[0].strip()) for reader in [csv.reader(file, delimiter=separator)]
                     for row in reader if row and row[0].strip()]  # fmt: skip
    except OSError as error:
        raise ValueError(f"{where}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{where}: the file is no text in UTF-8 with one code in each line") from None
    if lines and lines[0][1] == str(name):
        lines = lines[1:]
    if not lines:
        raise ValueError(f"{where}: the file has no code")
    places = {}
    for line, text in lines:
        if whole and not re.fullmatch(r"[+-]?\d{1,18}", text):
            header = f"; a header must be the name of the column, {name}" if (line, text) == lines[0] else ""
            raise ValueError(f"{where}: line {line} has {text!r}, and the column has whole numbers{header}")
        code = int(text) if whole else text
        if code in places:
            raise ValueError(f"{where}: {code!r} is in line {places[code]} and in line {line}: list each code once")
        places[code] = line
    return tuple(places)


def _complete(column, values):
    if isinstance(column, Categorical):
        if values.empty:
            raise SchemaError(f"column {column.name!r}: has no value; write its categories into the schema")
        return replace(column, categories=tuple(sorted(values.unique().tolist())))
    if values.nunique() < 2:
        raise SchemaError(
            f"column {column.name!r}: all values are equal, which gives no bounds: write bounds into the schema"
        )
    low, high = values.min(), values.max()
    if isinstance(column, Datetime):
        low, high = low.isoformat(), high.isoformat()
    return replace(column, bounds=(low, high))
