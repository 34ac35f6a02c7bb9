"""Checks of DataFrames, and of what is given beside them: all of them come before a charge."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

from ..exceptions import InvalidInputError, SchemaError
from ..tabular import Categorical, Datetime, Numeric, validate_frame
from ..tabular._constraint_forms import read_constraint
from ..tabular._constraints import constraint_texts
from ..tabular._construction import Construction, check_equalities, refuse_violations, warn_of_contradictions
from ..tabular._dtypes import output_dtype
from ..tabular._formats import form_of, time_zone, type_of_objects
from ..tabular._frames import declared_family, factorize
from ..tabular._identifiers import are_row_numbers, likely_codes, likely_identifiers
from ..utils.callers import warn_user
from ..utils.categories import family, inexact_bits
from ..utils.printing import listed
from ..utils.table_checks import is_missing
from ..utils.validation import Interval, python_value
from .other_notations import readings_of
from .sources import KINDS_FROM_VALUES

# Importance of a column. The noise of tables differs by about the cube root of the ratio of their importance; outside
# this interval one table would have no noise and another nothing else.
_IMPORTANCE = Interval(Real, 1e-6, 1e6, closed="both")


def check_chunk(chunk, schema, on_invalid, whole, apart, construction, conditions, texts=()):
    """Number of rows, the kinds of values in columns of unknown categories if chunks may differ in them, and readings.

    With `apart` each chunk is made separately, so that its dtypes may depend on its rows. The readings are those of the
    columns `texts` as numbers or dates; a column without values in this chunk has none here. Last are the kinds again:
    `joined_checks` keeps those of the first chunk.
    """
    chunk = validate_frame(chunk, schema, on_invalid)
    if apart:
        _check_text(chunk, schema)
        _check_large_codes(chunk, schema)
        _check_zones(chunk, schema)
    if construction is not None:
        validate_frame(construction.encode(chunk, on_invalid), construction.seen)
    if on_invalid == "raise":
        refuse_violations(chunk, schema, conditions)
    open_ = [schema[name] for name in schema.incomplete if isinstance(schema[name], Categorical)]
    written = {c.name: set(map(family, _written(construction, c))) for c in open_}
    open_ = [column for column in open_ if written[column.name] or not whole]
    kinds = {c.name: written[c.name] | set(map(family, factorize(chunk[c.name], c)[1].tolist())) for c in open_}
    readings = {name: _readings(chunk[name].dropna()) for name in texts}
    return len(chunk), kinds, {name: found for name, found in readings.items() if found is not None}, kinds


def _readings(values):
    """Readings of the values of a column as numbers or dates; None where whole numbers are all it has."""
    if values.empty:
        return None
    if not all(isinstance(value, str) for value in values.iloc[:1]) or infer_dtype(values, skipna=True) != "string":
        return ()
    texts = values.astype("string")
    if readings := readings_of(texts, iso=True, placeholders=0)[0]:
        return readings
    return None if texts.str.fullmatch(r"[+-]?(?:[1-9]\d*|0)").all() else ()


def _written(construction, column):
    """Values that constraints set in a column: learned categories are to be of their kind."""
    if construction is None:
        return []
    return [value for value in construction.written(column.name) if value is not None]


def kinds_of_objects(chunk, names):
    """Type of the objects of each column, "" for other types and None where all are missing."""
    return {
        name: type_of_objects(chunk[name]) or (None if is_missing(chunk[name], f"column {name!r}").all() else "")
        for name in names
    }


def common_kinds(one, other):
    return {
        name: other[name] if kind is None else kind if other[name] in (None, kind) else "" for name, kind in one.items()
    }


def _check_text(chunk, schema):
    """Refuse numbers and truth values where the schema has text, and truth values where it has numbers.

    A reader that finds only digits in a chunk turns 007 into 7. If 7 were turned into text here, one row with a letter
    would decide whether the category of all other rows is 7 or 007.
    """
    for column in schema.columns:
        wanted = declared_family(column) if isinstance(column, Categorical) else None
        if wanted not in ("text", "number"):
            continue
        values = chunk[column.name].dropna()
        listed = values.dtype.categories if isinstance(values.dtype, pd.CategoricalDtype) else values
        kind = infer_dtype(listed, skipna=True) if len(values) else "empty"
        if kind == "boolean" or (wanted == "text" and kind not in ("string", "empty")):
            raise SchemaError(
                f"column {column.name!r} holds {wanted}s in the schema and something else in a chunk, which no longer "
                "shows how the values were written: give it one dtype in all chunks, as by dtype= of pandas.read_csv"
            )


def _check_large_codes(chunk, schema):
    """Refuse categories that are floats of 2**53 or more, each of which is one number for several integers.

    One missing value makes floats of all integers of its chunk, and one text makes texts of them, which are read as
    floats: it would so change the categories of all other rows.
    """
    for column in schema.columns:
        if not isinstance(column, Categorical):
            continue
        values = chunk[column.name].dropna()
        values = values.dtype.categories if isinstance(values.dtype, pd.CategoricalDtype) else values
        kind = infer_dtype(values, skipna=True)
        if kind == "string" and declared_family(column) == "number":
            floats = pd.to_numeric(values.unique(), errors="coerce")
        elif kind in ("floating", "mixed-integer-float"):
            floats = values
        else:
            continue
        of_objects = pd.api.types.is_object_dtype(floats.dtype)
        if bits := inexact_bits(pd.Series(floats).to_numpy(object if of_objects else np.float64, na_value=np.nan)):
            raise SchemaError(
                f"column {column.name!r} holds floats of 2**{bits} or more in a chunk, or texts of such numbers. Each "
                "is one number for several integers: a missing value or a text may have made floats or texts of the "
                f"integers of the chunk. Give it one dtype in all chunks, as by dtype={{{column.name!r}: 'Int64'}} of "
                "pandas.read_csv, or declare its categories as text and read them as str; nothing was charged"
            )


def _check_zones(chunk, schema):
    """Refuse datetimes without a time zone where the schema has one: texts without one are read as UTC.

    A reader that parses all dates of a chunk gives datetimes, which are on the clock of the column, and gives texts if
    it cannot parse one of them: this row would move all others by their offset from UTC.
    """
    for column in schema.columns:
        if not isinstance(column, Datetime) or time_zone(output_dtype(column.dtype)) is None:
            continue
        dtype = chunk[column.name].dtype
        moments = isinstance(dtype, pd.PeriodDtype) or pd.api.types.is_datetime64_any_dtype(dtype)
        if moments and time_zone(dtype) is None and chunk[column.name].notna().any():
            raise SchemaError(
                f"column {column.name!r} has a time zone in the schema and none in a chunk: a date that the reader "
                "cannot parse may make texts of all dates of a chunk, which are then read as UTC. Give it a time zone "
                f"in each chunk, as by .dt.tz_localize({str(time_zone(output_dtype(column.dtype)))!r}), or declare a "
                "dtype without one; nothing was charged"
            )


def joined_checks(one, other):
    readings = {**one[2], **other[2]}
    for name in one[2].keys() & other[2].keys():
        readings[name] = tuple(reading for reading in one[2][name] if reading in other[2][name])
    return one[0] + other[0], {name: one[1][name] | other[1][name] for name in one[1]}, readings, one[3]


def texts_of(schema, head, settled):
    """Names of the columns of text whose kind nothing but their dtype states.

    A categorical dtype, an entry of the schema, or given classes declare categories, whatever they look like.
    """

    def text(dtype):
        return pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype)

    open_ = [column.name for column in schema.columns if isinstance(column, Categorical) and not column.complete]
    return tuple(name for name in open_ if name not in settled and name in head and text(head[name].dtype))


def check_first_chunk(first, families, schema, head):
    """Refuse learned categories whose kind neither the schema nor the first chunk states, but other chunks alone.

    One text makes texts of all numbers of its chunk. Where no other chunk has values, nothing shows it.
    """
    for name, found in families.items():
        if first[name] or not found or declared_family(schema[name]) is not None:
            continue
        if (kind := _kind_of_dtype(head[name].dtype) if name in head else None) is not None:
            found.add(kind)  # another kind is then refused
            continue
        raise SchemaError(
            f"column {name!r} has no value in the first chunk, whose kinds of values are taken for public: give it a "
            f"dtype in the schema, as by Categorical({name!r}, dtype='str'), or 'Int64', or 'boolean'; nothing was "
            "charged"
        )


def _kind_of_dtype(dtype):
    """Kind of the categories that a dtype alone states, or None."""
    if pd.api.types.is_bool_dtype(dtype):
        return "flag"
    if pd.api.types.is_numeric_dtype(dtype):
        return "number"
    text = pd.api.types.is_string_dtype(dtype) and not pd.api.types.is_object_dtype(dtype)
    return "text" if text else None


def check_families(families):
    for name, found in families.items():
        if len(found) > 1:
            raise SchemaError(
                f"column {name!r} is of different kinds in different chunks, or a constraint sets a value of another "
                f"kind ({', '.join(sorted(map(str, found)))}): give it one dtype, or declare it in the schema"
            )


def check_importance(importance, schema, table):
    importance = {} if importance is None else dict(importance)
    if unknown := [repr(name) for name in importance if name not in table]:
        raise InvalidInputError(f"importance= names columns that are not in the table: {', '.join(unknown)}")
    if unseen := [repr(name) for name in importance if name not in schema]:
        raise InvalidInputError(
            f"importance= names columns that constraints construct from others: {', '.join(unseen)}; name the others, "
            "or the first column of a combination"
        )
    for name, value in importance.items():
        if not _IMPORTANCE.is_satisfied_by(value):
            raise ValueError(f"importance= of {name!r} must be {_IMPORTANCE}; columns that are not named have 1")
    return {name: python_value(value) for name, value in importance.items()}


def as_classes(column):
    """Return a target of whole numbers of which a schema states the kind alone as categories.

    The dtype of an integer target means classes where there is no schema, and `skdpgen schema` writes no more than
    that dtype. Bounds declare a quantity, and time spans and times of the day are quantities.
    """
    whole = isinstance(column, Numeric) and column.integer and form_of(column.dtype) not in ("span", "time")
    if whole and not column.complete:
        return Categorical(column.name, missing=column.missing, dtype=column.dtype)
    return column


def point_out_kinds(schema, settled, unit=None):
    """Warn of columns that are identifiers or codes by their names and dtypes: no value is read.

    `unit` is the column that says whose row it is, where there is one.
    """
    keys, codes = ([n for n in find(schema) if n not in settled] for find in (likely_identifiers, likely_codes))
    if numbers := [name for name in keys if are_row_numbers(name)]:
        warn_user(
            f"row numbers, by their names: {listed(numbers, 5)}, as DataFrame.to_csv writes the index. They are "
            "modelled like any other column, which costs budget: leave them out, by read_csv(..., index_col=0) or "
            f"X.drop(columns={numbers[:5]!r}), or --drop"
        )
    if keys := [name for name in keys if name not in numbers]:
        persons = (
            ""
            if unit is not None
            else "If one person (or household, or device) may have several rows, give the column of their identifiers "
            f"as unit={keys[0]!r} (--unit): the guarantee is then for all rows of a person, and not for one row. "
        )
        warn_user(
            f"identifiers, by their names: {listed(keys, 5)}. {persons}They are modelled like any other column, which "
            "costs budget and gives keys that mean nothing. For fresh keys declare them in the schema: "
            f"Schema.from_kinds(X).replace(Identifier({keys[0]!r})), or skdpgen schema --id; else drop them, by "
            f"X.drop(columns=[{keys[0]!r}]) or --drop. Columns that the schema declares are not named here"
        )
    if codes:
        warn_user(
            f"codes, by their names, of whole numbers: {listed(codes, 5)}. They are modelled as quantities: if they "
            "are codes, declare them as Categorical in the schema (Schema.from_kinds(X, categorical="
            f"[{codes[0]!r}]), or skdpgen schema --categorical)"
        )


def point_out_lost_orders(head, schema):
    """Warn of ordered categoricals whose categories are learned: the order is part of what the dtype lists.

    `head`: only its dtypes are used, of which names and the flag `ordered` are public. Intervals have their own order.
    """
    learned = [c.name for c in schema.columns if isinstance(c, Categorical) and c.categories is None]
    dtypes = {name: head[name].dtype for name in learned}
    lost = [name for name, dtype in dtypes.items() if _is_ordered(dtype) and not _is_of_intervals(dtype)]
    if lost:
        warn_user(
            f"ordered categoricals that lose their order: {listed(lost, 5)}. The fit learns their categories, and not "
            "the order that their dtype lists, which may come from the rows. To keep it, declare the categories in the "
            f"schema: schema=Schema([Categorical({lost[0]!r}, [...], ordered=True)])"
        )


def point_out_fractions(head, schema):
    """Warn of whole numbers that the schema declares as numbers with fractions; of the frame only its dtypes are used.

    The dtypes of a CSV file that was read with the schema may follow from the values: then there is no warning.
    """
    if schema is None or KINDS_FROM_VALUES in head.attrs:
        return
    found = [
        column.name
        for column in schema.columns
        if isinstance(column, Numeric)
        and not column.whole
        and column.decimals is None
        and form_of(column.dtype) is None
        and column.name in head.columns
        and pd.api.types.is_integer_dtype(head[column.name].dtype)
    ]
    if found:
        warn_user(
            f"whole numbers by their dtypes, which the schema declares as numbers with fractions: {listed(found, 5)}. "
            f"A sample will have fractions: give integer=True, as in Numeric({found[0]!r}, (0, 100), integer=True), or "
            "keep what the dtypes say, by Schema.from_kinds(X).declare("
            f"{found[0]!r}, bounds=(0, 100)). If fractions are meant: X.astype({{{found[0]!r}: float}})"
        )


def point_out_index(head):
    """Warn that dates of the index are left out; of the index only its type and its name are used."""
    if isinstance(head.index, pd.DatetimeIndex | pd.PeriodIndex):
        warn_user(
            "the index of the DataFrame holds dates, and an index is not modelled: X.reset_index() makes a column of "
            "it, and X.reset_index(drop=True) leaves it out without this warning"
        )


def _is_ordered(dtype):
    return bool(getattr(getattr(dtype, "pyarrow_dtype", dtype), "ordered", False))


def _is_of_intervals(dtype):
    return isinstance(dtype, pd.CategoricalDtype) and isinstance(dtype.categories.dtype, pd.IntervalDtype)


def point_out_narrow_keys(keys):
    """Warn of keys whose dtype is too narrow for most samples; by the schema alone."""
    for key in keys:
        if not key.within_unit and key.most_keys is not None and key.most_keys < 256:  # those of one byte
            warn_user(
                f"the keys of {key.name!r} have dtype {key.dtype}, which has {key.most_keys} different ones: no sample "
                "can have more rows. Declare a wider dtype in the schema, such as int64"
            )


def point_out_hierarchies(table, seen, targets):
    """Warn of declared groups that the model does not have, by public facts alone."""

    def declared(schema, name):
        return name in schema and getattr(schema[name], "hierarchy", None) is not None

    if names := [n for n in table if declared(table, n) and (n in targets or not declared(seen, n))]:
        warn_user(
            f"a hierarchy is not used: {listed(names)}. Every category of a target is a class, and a column that "
            "constraints construct, or combine with others, has no groups"
        )


def construction_of(schema, constraints, targets, constant=()):
    """The construction of the constraints of a schema, and of those others that it can satisfy, and what is left.

    Returns `construction`; `conditions`: those for which rows are drawn again.
    """
    given = constraint_texts(constraints)
    declared = schema.constraints
    if not given and not declared:
        return None, ()
    construction = Construction.of(schema.constrain(*given), targets, constant)
    check_equalities(construction)
    warn_of_contradictions(construction)
    conditions = tuple(read_constraint(text, schema.names) for text in construction.left)
    kept = [text for text in construction.table.constraints if text in declared or text in construction.texts]
    if len(kept) < len(construction.table.constraints):  # what is drawn again may change after the fit
        construction = Construction.of(replace(schema, constraints=tuple(kept)), targets, constant)
    return construction if kept else None, conditions
