"""Which rows of units are used, where the rows of a unit lie anywhere in chunks, Parquet files or partitions.

The rows are read several times, and none is written anywhere. The passes before the first sum read the identifiers
alone: each of them looks at one slice of the units, so that the identifiers of a bounded number of rows are in memory.
What is kept is one small number for each row of the table. The sums then take one pass each, as without units.
"""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd

from ..exceptions import InvalidInputError
from ..mechanisms import total
from .sources import CHUNK_ROWS, add_sums
from .units import _first_of_each, _hashes, _mixed, _of_one_dtype, keep_rows, n_rows_of_units, read_ids

# Identifiers that are in memory at a time, about: those of one slice of the units.
HELD_ROWS = 8 * CHUNK_ROWS


class ScatteredUnits:
    """Chooses the rows that are used, and sums over them.

    `source`: with the column of identifiers. `missing`: "refuse" or "own". `n_rows`: private.

    A unit is in one slice with all its rows, in the order of the table, and `keep_rows` chooses among them. So the rows
    used of a unit are those of the same table in memory, whatever the slices, and follow from this unit and the key.

    The choice is by the places of the rows. So they must come in the same order at each pass: a sum over the keyed
    hashes of the identifiers and their places shows whether they did, before anything of the pass is released.
    """

    def __init__(self, source, unit, missing, column, n_rows):
        self._source, self._unit, self._missing, self._column, self._n_rows = source, unit, missing, column, n_rows
        self._key = self._marks = self._lengths = self._signature = self._row_count = None

    def rows_per_unit(self):
        """Yield the number of rows of each unit, a slice of the units at a time."""
        for _, values in self._slices():
            yield n_rows_of_units(_read(values, self._unit, self._missing).codes)

    def choose(self, unit, key):
        """Choose the rows that are used of each unit."""
        self._unit, self._key = unit, key
        # of each row: 0 if it is not used, else the number of rows used of its unit, negative for the first of them
        self._marks = np.zeros(self._n_rows, dtype=np.min_scalar_type(-unit.max_rows - 1))
        for places, values in self._slices():
            kept = keep_rows(_read(values, unit, self._missing), key)
            places = places[kept.rows]
            self._marks[places] = kept.n_per_unit[kept.codes]
            first, _ = _first_of_each(kept.codes)
            self._marks[places[first]] *= -1
            count = total(kept.n_per_unit, unit.max_rows, of_units=True)
            self._row_count = count if self._row_count is None else add_sums(self._row_count, count)

    def row_count(self):
        """Number of rows that are used, a BoundedSum of one contribution per unit."""
        return self._row_count

    def reduce(self, function, combine, *, first=False, sizes=None):
        """Apply `function` to the rows that are used, and `combine` the results two by two.

        `first`: whether to take the first row used of each unit alone. `sizes`: name of the argument of `function` for
        the number of rows used of the unit of each row.
        """
        query = functools.partial(
            _of_part, column=self._column, of_ids=self._of_ids(), first=first, sizes=sizes, function=function,
            combine=combine,
        )  # fmt: skip
        found, seen = self._source.reduce_with(
            self._marks, self._lengths, query, functools.partial(_both, combine=combine)
        )
        self._check(seen)
        return self._source.whole(found)

    def _check(self, seen):
        """Refuse a table that has other rows, or another order, than at the pass before."""
        if self._key is None:
            return
        if self._signature is None and seen[0] == self._n_rows:
            self._signature = seen
        if seen != self._signature:
            raise _other_rows(self._column)

    def _of_ids(self):
        return functools.partial(_seen, key=self._key, unit=self._unit, missing=self._missing)

    def _slices(self):
        """Yield the places of the rows of a part of the units, ascending, and their identifiers."""
        n_slices = -(-self._n_rows // HELD_ROWS)
        for number in range(n_slices):
            places, parts, seen, lengths = [], [], (0, 0), []
            for values in self._source.column(self._column):
                start = seen[0]
                inside = _slice_of(values, start, n_slices) == number
                places.append(start + np.flatnonzero(inside))
                parts.append(values[inside])
                lengths.append(len(values))
                seen = _add(seen, self._of_ids()(values, start))
            self._lengths = lengths
            self._check(seen)
            if any(map(len, parts)):
                yield np.concatenate(places), pd.concat(_of_one_dtype(parts), ignore_index=True)


def _slice_of(values, start, n_slices):
    """Number of the slice of the unit of each row; the choice of rows does not depend on it.

    Python's hashes of equal values are equal, whatever the dtypes of the parts; those of text differ between processes.
    """
    if n_slices == 1:
        return np.zeros(len(values), dtype=np.uint64)
    codes, found = pd.factorize(values)
    found = np.asarray(found.astype(object), dtype=object)
    numbers = np.fromiter(map(hash, found), dtype=np.int64, count=len(found)).view(np.uint64)
    own = _mixed(np.arange(start, start + len(values), dtype=np.uint64))  # a row without an identifier
    return np.where(codes < 0, own, _mixed(np.append(numbers, np.uint64(0)))[codes]) % np.uint64(n_slices)


def _read(values, unit, missing):
    return read_ids(values, len(values), unit, missing)


def _seen(values, start, key, unit, missing):
    """Number of the rows, and a sum over their keyed hashes with their places, modulo 2^64; 0 without a key."""
    if key is None:
        return len(values), 0
    ids = _read(values, unit, missing)
    of_rows = np.append(_hashes(ids.values, key), np.uint64(key))[ids.codes]
    places = _mixed(np.arange(start, start + len(values), dtype=np.uint64))
    return len(values), int(_mixed(of_rows ^ places).sum(dtype=np.uint64))


def _add(one, other):
    return one[0] + other[0], (one[1] + other[1]) % (1 << 64)


def _of_part(part, marks, start, *, column, of_ids, first, sizes, function, combine):
    """What `function` says of the rows of a part that are used, and `_seen` of all of them."""
    if len(marks) != len(part):
        raise _other_rows(column)
    seen, found = of_ids(part[column], start), None
    used = np.flatnonzero(marks < 0 if first else marks)
    rows, numbers = part.drop(columns=column).iloc[used], np.abs(marks[used].astype(np.int64))
    for at in range(0, len(rows), CHUNK_ROWS):
        given = {} if sizes is None else {sizes: numbers[at : at + CHUNK_ROWS]}
        more = function(rows.iloc[at : at + CHUNK_ROWS], **given)
        found = more if found is None else combine(found, more)
    return found, seen


def _both(one, other, combine):
    (found, seen), (more, also) = one, other
    both = more if found is None else found if more is None else combine(found, more)
    return both, _add(seen, also)


def _other_rows(column):
    return InvalidInputError(
        f"X gave other rows than at an earlier pass, or in another order: {column!r} shows it. Each pass must give the "
        "same rows in the same order, as the rows that are used of a unit are chosen by their places"
    )
