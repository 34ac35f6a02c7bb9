"""Facts that the caller declared public, as a card holds them: whole where they are short, else a count and a digest.

The digest of a long list is the SHA-256 of its JSON text: ASCII, keys sorted, no spaces. Whoever has the list can
compare: ``hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from numbers import Integral, Real
from typing import Any

# Parameters of estimators that declare facts about the data.
_DECLARING = ("schema", "classes", "bounds", "l2_bound", "image_shape", "importance", "constraints", "means_init")
# JSON text of one fact (a list of categories, say), and of all columns together. A card may have 16 MiB.
_MOST_OF_FACT = 4096
_MOST_OF_COLUMNS = 2**20
# Values of a list that is looked at: a range may be longer than memory.
_MOST_VALUES = 1_000_000


def plain(value: Any) -> Any:
    """Parameters as JSON. Objects are named by type: their repr might show data or a memory address."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)) or (isinstance(value, range) and len(value) <= _MOST_VALUES):
        return [plain(item) for item in value]
    if isinstance(value, date):  # a datetime too
        return value.isoformat()
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return plain(value.item())
    return f"<{type(value).__name__}>"


def list_digest(values: Sequence[Any]) -> str:
    """Return the digest of a list that a card does not hold whole: the SHA-256 of its JSON text."""
    return "sha256:" + hashlib.sha256(_text(values).encode("ascii")).hexdigest()


def declared_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that parameters of an estimator declare public, as JSON holds them.

    `parameters`: constructor parameters.
    Returns: name of the parameter -> fact. A fact whose JSON text is longer than 4 KiB is ``{"count": ..., "sha256":
        ...}``. An object that JSON cannot hold is named by its type: its repr might show data. Of a schema it is the
        number of columns that it declares; `table_columns` lists them.
    """
    facts = {}
    for name in _DECLARING:
        value = parameters.get(name)
        if value is not None:
            facts[name] = {"columns": len(value)} if hasattr(value, "to_dict") else _fact(value)
    return facts


def table_columns(
    columns: Sequence[Mapping[str, Any]], declared: Iterable[Any], from_values: Iterable[Any] = ()
) -> list[Any] | dict[str, Any]:
    """Return the columns of a table, each with its kind and the facts that were declared of it.

    `columns`: as a schema writes them (its ``to_dict()["columns"]``), before anything was learned: bounds or categories
        that are None were learned, and charged.
    `declared`: names of the columns that a schema of the caller's declares. The kinds of the others are those of their
        dtypes.
    `from_values`: names of the columns whose dtypes were read from the values of a file.
    Returns: the names alone, without those of keys, where the facts of all columns are longer than 1 MiB; their count
        and digest where these are.
    """
    sources = dict.fromkeys(from_values, "values") | dict.fromkeys(declared, "schema")
    rows = [
        {
            **{key: plain(value) if key == "name" else _fact(value) for key, value in column.items()},
            "from": sources.get(column["name"], "dtype"),
        }
        for column in columns
    ]
    if len(_text(rows)) <= _MOST_OF_COLUMNS:
        return rows
    return _bounded([row["name"] for row in rows if row["kind"] != "id"], _MOST_OF_COLUMNS)


def array_columns(n_features: int | None, names: Sequence[Any] | None) -> list[Any] | dict[str, Any] | None:
    """Return the names of the columns of an array, or their number where they have none; None where it is not known."""
    if names is not None:
        return _bounded([str(name) for name in names], _MOST_OF_COLUMNS)
    return None if n_features is None else {"count": int(n_features)}


def _fact(value: Any) -> Any:
    """Return a declared value as JSON, bounded."""
    if isinstance(value, range) and len(value) > _MOST_VALUES:
        return {"count": len(value), "first": value[0], "step": value.step}
    if hasattr(value, "tolist"):
        value = value.tolist()
    return _bounded(plain(value), _MOST_OF_FACT)


def _bounded(value: Any, most: int) -> Any:
    if not isinstance(value, list | dict | str):
        return value
    if len(_text(value)) <= most:
        return value
    return {"count": len(value), "sha256": list_digest(value)}


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
