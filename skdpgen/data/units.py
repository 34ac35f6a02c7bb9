"""Contribution bounding: which rows of a unit (a person, say) a fit uses, and how they are counted.

Of each unit at most `max_rows` rows are used, drawn uniformly among its own. The draw is a function of a key of the fit,
of the identifier and of the places of the rows within their unit. So a unit that joins or leaves changes no other
unit's rows, for every key: the guarantee does not rest on the key being secret, or on the quality of the hash.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from .._types import PrivacyUnit
from ..exceptions import InvalidInputError
from ..utils.categories import canonical
from ..utils.validation import is_unicode
from .sources import add_sums, count_rows_of_units

__all__ = ["KeptRows", "UnitIds", "UnitSource", "keep_rows", "read_ids", "release_row_count"]

# Weyl constant and multipliers of the finaliser of splitmix64.
_GOLDEN, _FIRST, _SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True, eq=False)
class UnitIds:
    """The identifiers of rows, validated; private.

    Parameters
    ----------
    unit : PrivacyUnit
    codes : int64 array of shape (n_rows,)
        Place of the unit of each row among `values`; -1 for a row without an identifier, which is a unit of its own.
    values : array
        Identifiers, each once.
    """

    unit: PrivacyUnit
    codes: np.ndarray
    values: object

    def __len__(self):
        return len(self.codes)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """The rows of a fit that are used; private.

    Parameters
    ----------
    rows : int64 array of shape (n_kept,)
        Their places, in ascending order.
    unit_sizes : int64 array of shape (n_kept,), or None
        Number of rows used of the unit of each of them, where units count 1; None where rows do.
    n_per_unit : int64 array of shape (n_units,)
        Number of rows used of each unit.
    """

    rows: np.ndarray
    unit_sizes: np.ndarray | None
    n_per_unit: np.ndarray


def read_ids(values, n_rows, unit, missing):
    """Validate identifiers, before the charge.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        Of any dtype whose values can be compared for equality.
    n_rows : int
    unit : PrivacyUnit
    missing : {"refuse", "own"}
        What to do with a row without an identifier: refuse the fit, or take it for a unit of its own.

    Returns
    -------
    UnitIds

    Raises
    ------
    InvalidInputError
        The message holds no identifier.
    """
    try:
        if not isinstance(values, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
            values = np.asarray(values)
            values = values.astype(object) if values.dtype.kind in "US" else values
        if np.shape(values) != (n_rows,):
            raise InvalidInputError(
                f"the identifiers of {unit.name!r} must have shape ({n_rows},), one for each row; got "
                f"{np.shape(values)}"
            )
        codes, found = pd.factorize(values)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"the identifiers of {unit.name!r} must be numbers, text, dates or other values that can be compared"
        ) from None
    if missing == "refuse" and (codes < 0).any():
        raise InvalidInputError(
            f"{unit.name!r} lacks an identifier in some rows. If each of them is known to be of another person, give "
            'missing_unit="own", which takes each for a unit of its own; else leave them out. Nothing was charged'
        )
    found = np.asarray(found) if getattr(found, "dtype", None) != object else np.asarray(found, dtype=object)
    if found.dtype.kind not in "biufmM":
        found = np.array([str(value) for value in canonical(found.astype(object))], dtype=object)
        if not is_unicode(found):
            raise InvalidInputError(f"{unit.name!r} holds text that is no Unicode (lone surrogates)")
    return UnitIds(unit, codes.astype(np.int64), found)


def keep_rows(ids, key):
    """Choose the rows that are used: of each unit at most `max_rows`, drawn uniformly among its own.

    Parameters
    ----------
    ids : UnitIds
    key : int
        Drawn once for a fit, from the generator of its noise.

    Returns
    -------
    KeptRows
    """
    n_named, absent = len(ids.values), ids.codes < 0
    codes = np.where(absent, n_named + np.cumsum(absent) - 1, ids.codes)
    hashes = _mixed(_hashes(ids.values, key) ^ np.uint64(key))
    order = np.argsort(codes, kind="stable")
    grouped = codes[order]
    first = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1])[: len(grouped)])
    sizes = np.diff(np.append(first, len(grouped)))
    place = np.arange(len(grouped)) - np.repeat(first, sizes)  # within the unit, from 0
    # a unit without an identifier has one row, which is kept whatever its number
    own = hashes[np.minimum(grouped, n_named - 1)] if n_named else np.zeros(len(grouped), dtype=np.uint64)
    number = _mixed(own + (place.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    drawn = np.lexsort((number, grouped))  # the units stay where they are: `place` is now the rank of the number
    used = np.minimum(sizes, ids.unit.max_rows)
    mask = place < ids.unit.max_rows
    rows, unit_sizes = order[drawn][mask], np.repeat(used, used)
    ascending = np.argsort(rows)
    weighted = ids.unit.weighting == "units"
    return KeptRows(rows[ascending], unit_sizes[ascending] if weighted else None, used)


def _hashes(values, key):
    """One 64-bit number for each identifier, which follows from it and the key alone."""
    if not len(values):
        return np.zeros(0, dtype=np.uint64)
    return pd.util.hash_array(np.asarray(values), hash_key=f"{key:016x}", categorize=False)


def _mixed(numbers):
    """The finaliser of splitmix64: a bijection of 64-bit numbers."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    return numbers ^ (numbers >> np.uint64(31))
