"""Columns of keys: kept apart from the rows that are modelled, made anew in a sample, and recognised by their names."""

from __future__ import annotations

import re

import pandas as pd
from pandas.api import types as pdt

from ..exceptions import SchemaError
from ._columns import Categorical, Identifier, Numeric
from ._schema import Schema

__all__ = ["identifier_of", "insert_keys", "likely_codes", "likely_identifiers", "merge_keys", "split_keys"]

# Words of a name, the last of which says that the column identifies a row or a person.
_KEYS = {"id", "ids", "uuid", "guid", "key", "identifier", "ssn", "nhs", "mrn", "iban", "email", "mail", "phone"}
_KEYS |= {"passport", "username", "login", "pid", "caseid", "npi", "rownames", "surname", "lastname", "telefon"}
# The name that pandas gives to the index of a file that was written with it.
_INDEX = re.compile(r"Unnamed: \d+")
# Of codes: numbers that name something, and do not count or measure.
_CODES = {"code", "codes", "type", "class", "category", "status", "zip", "zipcode", "postcode", "postal", "flag"}
_CODES |= {"group", "grp", "kind", "label", "icd", "naics", "isic"}
# Words of one name: customerID, customer_id, customer id.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def split_keys(schema):
    """Return the schema of the columns that are modelled, and the identifiers with their places, a tuple of pairs."""
    keys = tuple((place, column) for place, column in enumerate(schema.columns) if isinstance(column, Identifier))
    if not keys:
        return schema, ()
    rest = [column for column in schema.columns if not isinstance(column, Identifier)]
    if not rest:
        raise SchemaError("every column of the schema is an identifier: there is none to model")
    return Schema(rest, schema.constraints), keys


def merge_keys(schema, keys):
    """Return the schema of the whole table: the inverse of `split_keys`."""
    columns = list(schema.columns)
    for place, column in keys:
        columns.insert(place, column)
    return Schema(columns, schema.constraints) if keys else schema


def insert_keys(chunks, keys):
    """Yield chunks of a sample with fresh keys: no key occurs twice in all chunks together.

    Parameters
    ----------
    chunks : iterable of DataFrame or of (DataFrame, y)
    keys : sequence of (int, Identifier)
        Places in the whole table, in increasing order.
    """
    start = 0
    for chunk in chunks:
        frame, *y = chunk if isinstance(chunk, tuple) else (chunk,)
        columns = [frame[name] for name in frame.columns]
        names = list(frame.columns)
        for place, column in keys:
            columns.insert(place, column.keys(start, len(frame)).set_axis(frame.index))
            names.insert(place, column.name)
        start += len(frame)
        frame = pd.concat(columns, axis=1, keys=names)
        yield (frame, *y) if y else frame


def likely_identifiers(schema):
    """Return the names of columns, of numbers or text, that are identifiers by their names alone."""
    return [
        column.name
        for column in schema.columns
        if isinstance(column, Numeric | Categorical) and _names_keys(column.name) and not _of_floats(column)
    ]


def _names_keys(name):
    return _last_word(name) in _KEYS or (isinstance(name, str) and _INDEX.fullmatch(name) is not None)


def likely_codes(schema):
    """Return the names of columns of whole numbers that are codes by their names alone."""
    return [
        column.name
        for column in schema.columns
        if isinstance(column, Numeric) and column.integer and not column.complete and _last_word(column.name) in _CODES
    ]


def _of_floats(column):
    return isinstance(column, Numeric) and not column.integer


def _last_word(name):
    words = [word for word in _WORD.findall(name) if not word.isdigit()] if isinstance(name, str) else []
    return words[-1].lower() if words else None


def identifier_of(name, dtype):
    """Return the identifier whose fresh keys have the dtype of a column: integers, or text."""
    text = pdt.is_object_dtype(dtype) or pdt.is_string_dtype(dtype)
    return Identifier(name, dtype=str(dtype) if text or pdt.is_integer_dtype(dtype) else None)
