"""Mappings of constraints that are read from a public file: ``region == {regions.csv}[postcode]``."""

from __future__ import annotations

import csv
import math
import re

_FILE = re.compile(r"\{\s*([^{}'\"]*\.csv)\s*\}", re.IGNORECASE)
_HOW = "a file stands for a mapping, as in 'region == {regions.csv}[postcode]'"


def names_file(text):
    """Whether a constraint has the name of a file in the place of a mapping."""
    return _FILE.search(text) is not None


def with_mappings(texts, schema, separator):
    """Return constraints with the pairs of public files in the place of the names of these files.

    `separator`: of the fields of the files. ValueError: a file cannot be read, or has values that a column cannot have.
    """
    return [_with_mapping(text, schema, separator) if names_file(text) else text for text in texts]


def _with_mapping(text, schema, separator):
    from ..tabular._constraint_forms import Lookup, read_constraint

    path, where = _FILE.search(text).group(1), f"--constraint {text}"
    try:
        form = read_constraint(_FILE.sub("{0: 0}", text), schema.names)
    except ValueError as error:
        raise ValueError(
            f"{where}: {error}" if "no column of the table" in str(error) else f"{where}: {_HOW}"
        ) from None
    if not isinstance(form, Lookup) or len(_FILE.findall(text)) > 1:
        raise ValueError(f"{where}: {_HOW}")
    key, dependent = schema[form.key], schema[form.dependent]
    known = getattr(key, "values", None)
    pairs, places = {}, {}
    for line, *fields in _rows(path, separator, (str(key.name), str(dependent.name)), where):
        one, other = (_value(field, column, f"{where}: line {line}") for field, column in zip(fields, (key, dependent)))
        if one is None:
            raise ValueError(f"{where}: line {line} has no {key.name}")
        if known is not None and one not in known:
            continue  # a list of a whole country, and a column that declares a part of it
        if pairs.setdefault(one, other) != other:
            raise ValueError(f"{where}: lines {places[one]} and {line} map {one!r} to two values")
        places.setdefault(one, line)
    if not pairs:
        raise ValueError(f"{where}: the file maps no value of {key.name!r}")
    return _FILE.sub(lambda _: "{" + ", ".join(f"{one!r}: {other!r}" for one, other in pairs.items()) + "}", text)


def _rows(path, separator, names, where):
    """Yield the number of each line, and its fields in two columns."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=separator)
            header = [field.strip() for field in next(reader, [])]
            if missing := [name for name in names if header.count(name) != 1]:
                raise ValueError(
                    f"{where}: the first line of {path} must name the columns {' and '.join(names)}, each once, with "
                    f"the separator {separator!r} of the table; it lacks {missing[0]}"
                )
            places = [header.index(name) for name in names]
            for fields in reader:
                if any(field.strip() for field in fields):
                    if len(fields) <= max(places):
                        raise ValueError(f"{where}: line {reader.line_num} has {len(fields)} fields")
                    yield reader.line_num, *(fields[place].strip() for place in places)
    except OSError as error:
        raise ValueError(f"{where}: {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{where}: {path} is no CSV file in UTF-8") from None


def _value(field, column, place):
    """The value of a field, of the kind of the column; None where it is empty."""
    from pandas.api.types import is_integer_dtype

    from ..tabular import Boolean, Categorical, Numeric
    from ..tabular._dtypes import output_dtype

    if not field:
        return None
    if isinstance(column, Categorical | Boolean):
        known = {str(value): value for value in column.values or ()}
        if field in known:
            return known[field]
        dtype = None if column.dtype is None else output_dtype(column.dtype)
        if dtype is None or not is_integer_dtype(dtype):
            return field
    elif not isinstance(column, Numeric):
        raise ValueError(f"{place}: a mapping takes categories and numbers, and {column.name!r} has none")
    try:
        number = int(field) if re.fullmatch(r"[+-]?\d{1,18}", field) else float(field)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{place} has {field!r}, which is no number, and {column.name!r} has numbers")
    return number
