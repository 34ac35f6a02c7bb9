"""Facts about columns that the person at the command line declares public: they are copied from the values."""

from __future__ import annotations

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
