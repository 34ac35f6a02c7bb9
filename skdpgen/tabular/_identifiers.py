"""Columns of keys: kept apart from the rows that are modelled, made anew in a sample, and recognised by their names."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import SchemaError
from ._columns import Categorical, Identifier, Numeric
from ._schema import Schema

# Words of a name, the last of which says that the column identifies a row or a person.
_KEYS = {"id", "ids", "uid", "uuid", "guid", "key", "identifier", "ssn", "nhs", "mrn", "iban", "email", "mail", "phone"}
_KEYS |= {"passport", "username", "login", "pid", "caseid", "npi", "rownames", "surname", "lastname", "telefon"}
_KEYS |= {"pseudonym", "kennung", "bsn", "personnummer", "pesel", "cpf", "dni"}
_KEYS |= {"hid", "hhid", "idhh", "hhnr", "hhnum", "persid", "persnr"}  # of households and persons in surveys
# Whom rows may belong to, several to one.
_PERSONS = {"patient", "subject", "person", "customer", "client", "account", "user", "member", "employee", "student"}
_PERSONS |= {
    "participant",
    "respondent",
    "resident",
    "citizen",
    "household",
    "family",
    "applicant",
    "borrower",
    "donor",
}
_PERSONS |= {"driver", "passenger", "guest", "owner", "tenant", "worker", "pupil", "teacher", "doctor", "physician"}
_PERSONS |= {"kunde", "kunden", "mitglied", "mitarbeiter", "patienten", "personen", "probanden"}
# A word for a number makes a key of these and of persons: patient_nr, but not visit_nr, which may count.
_NUMBERED = {*_PERSONS, "case", "invoice", "record", "contract", "policy", "card", "license", "licence", "insurance"}
_NUMBERED |= {"pat", "versicherten", "versicherungs", "vertrags", "konto", "rechnungs", "personal"}
_NUMBERS = {"no", "nr", "nbr", "num", "number", "nummer"}
# Both in one word: patientid, customernumber, Fallnummer ("fall" alone may count falls).
_JOINED = re.compile(rf"(?:{'|'.join(sorted({*_NUMBERED, 'fall'}))})(?:ids?|key|{'|'.join(sorted(_NUMBERS))})")
# What identifies a person directly. The name of a thing may be among them.
_DIRECT = {"name", "names", "firstname", "forename", "fullname", "surname", "lastname", "vorname", "nachname", "phone"}
_DIRECT |= {"address", "addr", "street", "telephone", "tel", "telefon", "mobile", "fax", "email", "mail"}
_DIRECT |= {"ssn", "passport", "iban", "username", "login", "ip", "signature", "nhs", "mrn"}
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
    return Schema(rest, schema.constraints, schema.notation), keys


def merge_keys(schema, keys):
    """Return the schema of the whole table: the inverse of `split_keys`."""
    columns = list(schema.columns)
    for place, column in keys:
        columns.insert(place, column)
    return Schema(columns, schema.constraints, schema.notation) if keys else schema


def insert_keys(chunks, keys):
    """Yield chunks of a sample with fresh keys: no key occurs twice in all chunks together.

    `keys`: places in the whole table, in increasing order.
    """
    start = 0
    for chunk in chunks:
        yield with_keys(chunk, keys, start)
        start += len(chunk[0] if isinstance(chunk, tuple) else chunk)


def with_keys(chunk, keys, start, units=None):
    """Insert fresh keys into a chunk of a sample.

    `keys`: places in the whole table, in increasing order.
    `start`: number of rows before this chunk: counters go on after it.
    `units` (n_rows,): unit of each row, in ascending order, of a chunk of whole units: counters within a unit start at
        1 in each.
    """
    if not keys:
        return chunk
    frame, *y = chunk if isinstance(chunk, tuple) else (chunk,)
    columns, names = [frame[name] for name in frame.columns], list(frame.columns)
    places = np.arange(1, len(frame) + 1)
    for place, column in keys:
        apart = column.within_unit and units is not None
        numbers = places - np.searchsorted(units, units) if apart else start + places
        columns.insert(place, column.keys(numbers).set_axis(frame.index))
        names.insert(place, column.name)
    frame = pd.concat(columns, axis=1, keys=names)
    return (frame, *y) if y else frame


def likely_identifiers(schema):
    """Return the names of columns, of numbers or text, that are identifiers by their names alone."""
    return [
        column.name
        for column in schema.columns
        if isinstance(column, Numeric | Categorical) and _names_keys(column.name) and not _of_floats(column)
    ]


def are_row_numbers(name):
    """Whether a name is the one that pandas gives to the index that it wrote into a file without a name."""
    return isinstance(name, str) and _INDEX.fullmatch(name) is not None


def _names_keys(name):
    if not isinstance(name, str):
        return False
    before, last = ["", "", *_words(name)][-2:]
    numbered = last in _NUMBERS and before in _NUMBERED
    return numbered or any((last in _KEYS, _JOINED.fullmatch(last), are_row_numbers(name)))


def identifies_persons(column):
    """Whether a column, of numbers or text, is a name, an address or the like by its name alone."""
    may_be = isinstance(column, Numeric | Categorical) and not _of_floats(column)
    return may_be and _last_word(column.name) in _DIRECT


def names_units(name):
    """Whether a name is that of identifiers, or the word for a person."""
    return _names_keys(name) or _last_word(name) in _PERSONS


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
    words = _words(name)
    return words[-1] if words else None


def _words(name):
    words = _WORD.findall(name) if isinstance(name, str) else []
    return [word.lower() for word in words if not word.isdigit()]


def identifier_of(name, dtype, pattern=None):
    """Return the identifier whose fresh keys have the dtype of a column, integers or text; text with a pattern.

    Integers have 64 bits: a sample may have more rows than a narrower dtype has numbers.
    """
    text = pdt.is_object_dtype(dtype) or pdt.is_string_dtype(dtype)
    keeps = text or (pdt.is_integer_dtype(dtype) and pattern is None)
    wide = re.sub(r"(?<=nt)(?:8|16|32)\b", "64", str(dtype))
    return Identifier(name, pattern=pattern, dtype=wide if keeps else None)
