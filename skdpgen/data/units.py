"""Contribution bounding: which rows of a unit (a person, say) a fit uses, and how they are counted.

Of each unit at most `max_rows` rows are used, drawn uniformly among its own. The draw is a function of a key of the
fit, of the identifier and of the places of the rows within their unit. So a unit that joins or leaves changes no other
unit's rows, for every key: the guarantee does not rest on the key being secret, or on the quality of the hash.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from .._types import BoundedUnit
from ..exceptions import InvalidInputError
from ..mechanisms import total
from ..utils.categories import inexact_bits, kinds
from ..utils.foreign_tables import only_column
from ..utils.printing import listed
from ..utils.table_checks import holds_nul, reading
from ..utils.validation import is_unicode
from .sources import CHUNK_ROWS, ChunkSource, DaskSource, MemorySource, add_sums

# Weyl constant and multipliers of the finaliser of splitmix64.
_GOLDEN, _FIRST, _SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True, eq=False)
class UnitIds:
    """The identifiers of rows, validated; private."""

    unit: BoundedUnit
    # int (n_rows,); place of the unit of each row among `values`; -1 for a row without an identifier, which is a
    # separate unit
    codes: np.ndarray
    values: object  # array; identifiers, each once

    def __len__(self):
        return len(self.codes)

    def rows_per_unit(self):
        """Yield the number of rows of each unit, before any is left out."""
        yield n_rows_of_units(self.codes)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """The rows of a fit that are used; private."""

    rows: np.ndarray  # int (n_kept,); their places, in ascending order
    # int (n_kept,); number of rows used of the unit of each of them, where units count 1; None where rows do
    unit_sizes: np.ndarray | None
    n_per_unit: np.ndarray  # int (n_units,); number of rows used of each unit
    codes: np.ndarray  # int (n_kept,); number of the unit of each of them, for steps that sample units


def read_ids(values, n_rows, unit, missing):
    """Validate identifiers, before the charge.

    `values` (n_rows,): of any dtype whose values can be compared for equality; all of one kind (`kinds`).
    `missing`: what to do with a row without an identifier: refuse the fit, or take it for a separate unit.
    Raises InvalidInputError: the message holds no identifier.
    """
    try:
        if not isinstance(values, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
            # numpy would make text of the numbers of a list in which one entry is text
            values = np.asarray(values, dtype=object if isinstance(values, list | tuple) else None)
            values = values.astype(object) if values.dtype.kind in "US" else values
        if np.shape(values) != (n_rows,):
            raise InvalidInputError(
                f"the identifiers of {unit.name!r} must have shape ({n_rows},), one for each row; got "
                f"{np.shape(values)}"
            )
        codes, found = _factorized(_decoded(values))
    except (InvalidInputError, MemoryError):
        raise
    except Exception:  # of Arrow's errors, some have no other base
        raise InvalidInputError(
            f"the identifiers of {unit.name!r} must be numbers, text, dates or other values that can be compared"
        ) from None
    with reading(f"{unit.name!r}"):
        has_nul, texts = holds_nul(values, np.asarray(found, dtype=object)), _canonical(found, values, unit)
    if has_nul:
        raise InvalidInputError(f"{unit.name!r} holds text with the character NUL (\\0): remove it")
    if missing == "refuse" and (codes < 0).any():
        raise InvalidInputError(
            f"{unit.name!r} lacks an identifier in some rows. If each of them is known to be of another person, give "
            'unit=PrivacyUnit(..., missing="own") (--missing-unit own), which takes each for a separate unit; else '
            "leave them out. Nothing was charged"
        )
    return UnitIds(unit, codes.astype(np.int64), texts)


def _decoded(values):
    """Identifiers of a dictionary of Arrow as what they stand for: it may list one of them twice, and NaN.

    pandas takes the places in the dictionary for the distinct values.
    """
    arrow = getattr(getattr(values, "dtype", None), "pyarrow_dtype", None)
    return values.astype(pd.ArrowDtype(arrow.value_type)) if hasattr(arrow, "index_type") else values


def _factorized(values):
    """Return `pandas.factorize` of identifiers, of which to Arrow NaN is a value, and -0.0 and 0.0 are two.

    NaN is missing, and the zeros are one.
    """
    codes, found = pd.factorize(values)
    if pd.api.types.is_float_dtype(getattr(found, "dtype", None)):
        same = pd.factorize(np.asarray(found, dtype=np.float64))[0]  # to numpy NaN is missing, and zero is one
        first = np.unique(same, return_index=True)[1][int((same < 0).any()) :]
        codes, found = np.append(same, -1)[codes], found[first]
    return codes, found


def _canonical(found, values, unit):
    """Distinct identifiers as text: of each value alone, so that no other identifier changes it.

    The dtype of a column may depend on one row: a missing identifier makes floats of integers, and a text objects.
    `found`: the distinct ones of `values`. pandas has no index of half-precision floats, so its dtype may be another.
    """
    dtype, given = getattr(found, "dtype", None), getattr(values, "dtype", None)
    if isinstance(dtype, pd.CategoricalDtype):
        found, dtype = found.astype(dtype.categories.dtype), dtype.categories.dtype
    if pd.api.types.is_integer_dtype(dtype):
        unsigned = pd.api.types.is_unsigned_integer_dtype(dtype)
        return np.asarray(found, dtype=np.uint64 if unsigned else np.int64).astype(str).astype(object)
    if pd.api.types.is_float_dtype(dtype):
        bits = inexact_bits(np.asarray(found, dtype=np.float64), dtype, given)
    else:
        # of all rows: among objects, a float is not distinct from an integer that it equals
        bits = inexact_bits(np.asarray(values if pd.api.types.is_object_dtype(given) else found, dtype=object))
    if bits:
        raise InvalidInputError(
            f"{unit.name!r} holds floats of 2**{bits} or more, which are one number for several integers: give "
            "the identifiers as integers or as text. Nothing was charged"
        )
    found = np.asarray(found, dtype=object)
    _check_one_kind(kinds(found), unit)
    texts = np.empty(len(found), dtype=object)
    texts[:] = [_text(value) for value in found]
    if not is_unicode(texts):
        raise InvalidInputError(f"{unit.name!r} holds text that is no Unicode (lone surrogates)")
    return texts


def _check_one_kind(found, unit):
    """Refuse identifiers of several kinds, of all chunks together: nobody can tell which of them are one person."""
    if len(found) > 1:
        raise InvalidInputError(
            f"{unit.name!r} holds identifiers of several kinds, such as text and numbers: 7, '7' and '007' may be one "
            "person, who would count as several. Give them one type, as by dtype={"
            f"{unit.name!r}: str}} of pandas.read_csv. Nothing was charged"
        )


def _text(value):
    """Text of an identifier: 1, 1.0 and "1" have the same."""
    if isinstance(value, float | np.floating):
        value = float(value)
        return str(int(value) if value.is_integer() else value)
    return str.__str__(value) if isinstance(value, str) else str(value)


def take_groups(estimator, X, groups):
    """Return rows of numbers and their identifiers, which may be the column `unit` of a DataFrame."""
    column = estimator._asked_unit.name
    if column is None or not isinstance(X, pd.DataFrame) or column not in X.columns:
        return X, groups
    if groups is not None:
        raise InvalidInputError(f"unit={column!r} is a column of the frame: leave out groups=, or the column")
    return X.drop(columns=column), X[column]


def read_groups(groups, n_rows, unit, missing):
    """Return the validated identifiers of rows, which may be a table of one column; None where a row is the unit."""
    if unit is None:
        return None
    if groups is None:
        raise InvalidInputError(
            f"unit={unit.name!r} of an array needs its identifiers: fit(X, y, groups=ids), one for each row; of a "
            "DataFrame it names their column. Nothing was charged"
        )
    return read_ids(only_column(groups), n_rows, unit, missing)


def keep_rows(ids, key):
    """Choose the rows that are used: of each unit at most `max_rows`, drawn uniformly among its own.

    `key`: drawn once for a fit, from the generator of its noise.

    Privacy asks one thing of the choice: that the rows kept of a unit are a function of that unit alone (and of the
    key). Numbers made by a keyed hash of the identifier and of the place within the unit order its rows.
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
    rows = rows[ascending]
    return KeptRows(rows, unit_sizes[ascending] if weighted else None, used, codes[rows])


def n_rows_of_units(codes):
    """Number of rows of each unit, from the codes of `UnitIds`; private."""
    absent = codes < 0
    return np.concatenate([np.bincount(codes[~absent]), np.ones(int(absent.sum()), dtype=np.int64)])


def draw_key(rng):
    """Draw the key of a fit, from the generator of its noise: once."""
    return int(rng.integers(2**62))


def _hashes(values, key):
    """One 64-bit number for each identifier, which follows from it and the key alone."""
    if not len(values):
        return np.zeros(0, dtype=np.uint64)
    return pd.util.hash_array(values, hash_key=f"{key:016x}", categorize=False)


def _mixed(numbers):
    """The finaliser of splitmix64: a bijection of 64-bit numbers."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    return numbers ^ (numbers >> np.uint64(31))


def unknown_unit(column, head):
    """Return the error of a unit that is no column; of the frame only the names are used."""
    if column in head.index.names:
        how = "it is the index, which X.reset_index() makes a column"
    else:
        how = f"it has {listed(head.columns)}"
    return InvalidInputError(f"unit={column!r} is not a column of the frame: {how}; nothing was charged")


class UnitSource:
    """The rows of a source, of each unit as many as may be used: nothing is summed before they are chosen.

    `source`: the rows of chunks that come sorted by unit, in ascending order, are read in one pass: a unit is then
        whole before the next begins. For others see `ScatteredUnits`; the rows used, and all sums, are the same.
    `missing`: "refuse" or "own".
    `column`: column of the identifiers; it is left out of the rows. None: they are `groups`.
    `groups` (n_rows,): identifiers of rows in memory.
    """

    def __init__(self, source, unit, missing, column=None, groups=None):
        if column is not None and column not in source.head.columns:
            raise unknown_unit(column, source.head)
        self._unit, self._missing, self._column, self._key = unit, missing, column, None
        self.in_memory, self.one_slice, self.kinds_of = source.in_memory, source.one_slice, source.kinds_of
        self.attrs, self._sizes, self._codes, self._n_per_unit = source.attrs, None, None, None
        self._all, self._scattered = source, None
        self._n_rows = self._sorted = None  # of rows that are not in memory, once they were read
        if self.in_memory:
            frame = source.frame
            values = frame[column] if groups is None else only_column(groups)
            self._ids = read_ids(values, len(frame), unit, missing)
            self._all = source if column is None else source.without([column])
        elif groups is not None:
            raise InvalidInputError("groups= needs rows in memory: name the column of identifiers by unit=")

    @property
    def head(self):
        """The frame without rows, and without the identifiers."""
        head = self._all.head
        return head.drop(columns=self._column) if self._column in head.columns else head

    @property
    def frame(self):
        """The rows that are used, where they lie in memory."""
        self._check_chosen()
        return self._all.frame

    def without(self, names):
        """Leave these columns out, before the rows are chosen."""
        self._all = self._all.without(names)
        return self

    def inspect(self, function, combine):
        """Apply `function` to all rows, chunk by chunk, for validation before the charge: nothing may be released."""
        if self.in_memory:
            return self._all.reduce(function, combine)
        if isinstance(self._all, DaskSource):
            self._look()
            return self._all.without([self._column]).reduce(function, combine)
        total, order = None, _Order(self._unit, self._missing)
        for chunk in self._all.checked_chunks():
            order.check(chunk[self._column])
            total = _over(chunk.drop(columns=self._column), None, function, combine, total)
        self._n_rows, self._sorted = order.n_rows, order.ascending
        self._all.check_beginning()
        return self._all.whole(total)

    def _look(self):
        """Check the identifiers, if no pass did; find whether they come in order."""
        if self._n_rows is None:
            order = _Order(self._unit, self._missing)
            for values in self._all.column(self._column):
                order.check(values)
            self._n_rows, self._sorted = order.n_rows, order.ascending and isinstance(self._all, ChunkSource)

    def _units_anywhere(self):
        """What chooses among rows that do not come sorted by unit; None for others."""
        if self._scattered is None and not self.in_memory:
            self._look()
            if not self._sorted:
                self._scattered = ScatteredUnits(self._all, self._unit, self._missing, self._column, self._n_rows)
        return self._scattered

    def choose(self, key):
        """Choose the rows that are used; after the charge, before anything is summed."""
        self._key = key
        if self.in_memory:
            kept = keep_rows(self._ids, self._key)
            self._all = MemorySource(self._all.frame.iloc[kept.rows])
            self._sizes, self._n_per_unit, self._ids = kept.unit_sizes, kept.n_per_unit, None
            self._codes = kept.codes
        elif scattered := self._units_anywhere():
            scattered.choose(self._unit, self._key)

    def rows_per_unit(self):
        """Yield the number of rows of each unit, before any is left out; after the charge."""
        if self.in_memory:
            yield n_rows_of_units(self._ids.codes)
            return
        if scattered := self._units_anywhere():
            yield from scattered.rows_per_unit()
            return
        for pieces in self._whole_units():
            yield n_rows_of_units(self._ids_of(pieces).codes)

    def settle(self, unit):
        """Use this number of rows of a unit, which was learned."""
        self._unit = unit
        if self.in_memory:
            self._ids = replace(self._ids, unit=unit)

    def _check_chosen(self):
        if self._key is None:
            raise RuntimeError("rows of units are summed only after at most max_rows_per_unit of each were chosen")

    def reduce(self, function, combine):
        """Apply `function` to every chunk of the rows that are used, and `combine` the results two by two.

        Where units count 1, it is called with ``unit_sizes=``: the number of rows used of the unit of each row.
        """
        self._check_chosen()
        if scattered := self._units_anywhere():
            sizes = "unit_sizes" if self._unit.weighting == "units" else None
            return scattered.reduce(function, combine, sizes=sizes)
        total = None
        for part, sizes, _ in self._parts():
            total = _over(part, sizes, function, combine, total)
        return self._all.whole(total)

    @property
    def unit_sizes(self):
        """Of rows in memory, where units count 1, the number of rows used of the unit of each row; else None."""
        self._check_chosen()
        return self._sizes

    @property
    def unit_codes(self):
        """Of rows in memory, the number of the unit of each row that is used."""
        self._check_chosen()
        return self._codes

    def row_count(self):
        """Number of rows that are used, a BoundedSum of one contribution per unit."""
        self._check_chosen()
        if scattered := self._units_anywhere():
            return scattered.row_count()
        counts = (total(n_rows, self._unit.max_rows, of_units=True) for *_, n_rows in self._parts())
        summed = next(counts)
        for count in counts:
            summed = add_sums(summed, count)
        return summed

    def reduce_units(self, function, combine):
        """Apply `function` to the units, a chunk of them at a time, and `combine` the results two by two.

        It is called with a frame of one row of each unit, the first in the order of the table among those that are
        used, and with ``sizes=``, the number of rows used of each. Both follow from the rows of that unit alone.
        """
        self._check_chosen()
        if scattered := self._units_anywhere():
            return scattered.reduce(function, combine, first=True, sizes="sizes")
        total = None
        for rows, sizes in self._first_rows():
            for at in range(0, len(rows), CHUNK_ROWS):
                found = function(rows.iloc[at : at + CHUNK_ROWS], sizes=sizes[at : at + CHUNK_ROWS])
                total = found if total is None else combine(total, found)
        return self._all.whole(total)

    @property
    def whole_units(self):
        """Whether the rows of a unit come together: in memory, or in chunks that are sorted by unit."""
        return self._units_anywhere() is None

    def reduce_pairs(self, encode, count, combine):
        """Apply `count` to two rows of each unit that has two, and `combine` the results of its calls two by two.

        They are the first two of the rows used, in the order of the table. `encode` maps a frame to an array of its
        rows, each of which follows from that row alone; `count` is called with those of the first and of the second.
        """
        self._check_chosen()
        total = None
        for parts, units in self._used_units():
            if not len(units):  # before the first unit of a chunk
                continue
            encoded = np.concatenate([encode(part) for part in parts if len(part)])
            order = np.argsort(units, kind="stable")
            begins = np.append(True, np.diff(units[order]) != 0)
            first = np.flatnonzero(begins[:-1] & ~begins[1:])  # of units of two rows at least
            found = count(encoded[order[first]], encoded[order[first + 1]])
            total = found if total is None else combine(total, found)
        return self._all.whole(total)

    def _used_units(self):
        """Yield lists of frames of the rows used of whole units, and the number of the unit of each row."""
        if self.in_memory:
            frame = self._all.frame
            yield [frame.iloc[at : at + CHUNK_ROWS] for at in range(0, len(frame), CHUNK_ROWS)], self._codes
            return
        for pieces in self._whole_units():
            kept = keep_rows(self._ids_of(pieces), self._key)
            yield [rows for rows, _ in self._rows_of(pieces, kept.rows)], kept.codes

    def _first_rows(self):
        """Yield frames of the first row used of each unit, and the number of rows used of each."""
        if self.in_memory:
            first, sizes = _first_of_each(self._codes)
            yield self._all.frame.iloc[first], sizes
            return
        for pieces in self._whole_units():
            kept = keep_rows(self._ids_of(pieces), self._key)
            first, sizes = _first_of_each(kept.codes)
            for rows, here in self._rows_of(pieces, kept.rows[first]):
                yield rows, sizes[here]

    def _parts(self):
        """Yield frames of rows that are used, their unit sizes or None, and the rows used of the units that begin."""
        if self.in_memory:
            yield self._all.frame, self._sizes, self._n_per_unit
            return
        for pieces in self._whole_units():
            kept = keep_rows(self._ids_of(pieces), self._key)
            begun = kept.n_per_unit
            for rows, here in self._rows_of(pieces, kept.rows):
                yield rows, None if kept.unit_sizes is None else kept.unit_sizes[here], begun
                begun = begun[:0]

    def _rows_of(self, pieces, numbers):
        """Yield the frames of some rows, by their numbers in all `pieces`, and the place of each frame among them."""
        start = 0
        for piece in pieces:
            here = slice(*np.searchsorted(numbers, [start, start + len(piece)]))
            yield piece.drop(columns=self._column).iloc[numbers[here] - start], here
            start += len(piece)

    def _ids_of(self, pieces):
        """The identifiers of frames that hold whole units."""
        values = pd.concat(_of_one_dtype([piece[self._column] for piece in pieces]), ignore_index=True)
        return _read(values, self._unit, self._missing)

    def _whole_units(self):
        """Yield lists of frames that hold all rows of their units: the last unit of a chunk waits for the next."""
        order, waiting, last = _Order(self._unit, self._missing), [], None
        for chunk in self._all.checked_chunks():
            order.check(chunk[self._column])
            order.must_ascend()
            of_last = (chunk[self._column] == order.last).to_numpy(dtype=bool, na_value=False)
            if not of_last.any():  # rows without an identifier, each a separate unit
                yield [chunk]
                continue
            if order.last == last:  # and so is every row with an identifier: the unit goes on
                waiting.append(chunk)
                continue
            first = int(of_last.argmax())
            yield [*waiting, chunk.iloc[:first]]
            waiting, last = [chunk.iloc[first:]], order.last
        if waiting:
            yield waiting


def _first_of_each(codes):
    """Place of the first row of each unit, ascending, and its number of rows, from the number of the unit of each."""
    _, first, sizes = np.unique(codes, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], sizes[order]


def _of_one_dtype(parts):
    """Parts of a column as one dtype, which might else be floats: of two large integers one number."""
    if any(isinstance(part.dtype, pd.CategoricalDtype) for part in parts) or len({part.dtype for part in parts}) > 1:
        return [part.astype(object) for part in parts]
    return parts


class _Order:
    """Identifiers that must be of one kind, chunk by chunk; whether they come in ascending order."""

    def __init__(self, unit, missing):
        self.unit, self.missing, self.last, self.kinds = unit, missing, None, set()
        self.n_rows, self.ascending = 0, True

    def check(self, values):
        """Check the identifiers of the next chunk."""
        _read(values, self.unit, self.missing)
        self.n_rows += len(values)
        known = values.dropna()
        if not len(known):
            return
        known = known.astype(object) if isinstance(known.dtype, pd.CategoricalDtype) else known
        self.kinds |= kinds(known if known.dtype == object else known.iloc[:1].astype(object))
        _check_one_kind(self.kinds, self.unit)
        try:
            goes_on = known.is_monotonic_increasing and (self.last is None or bool(self.last <= known.iloc[0]))
        except TypeError:
            goes_on = False
        self.ascending, self.last = self.ascending and goes_on, known.iloc[-1]

    def must_ascend(self):
        """Refuse a later pass that has another order than the first."""
        if not self.ascending:
            raise InvalidInputError(
                f"the rows were sorted by {self.unit.name!r} in the first pass and are not in a later one: each pass "
                "must return the same rows in the same order"
            )


def _over(frame, sizes, function, combine, total):
    """Apply a query to the slices of a frame, and add to what there is."""
    for at in range(0, len(frame), CHUNK_ROWS):
        part, more = frame.iloc[at : at + CHUNK_ROWS], {}
        if sizes is not None:
            more["unit_sizes"] = sizes[at : at + CHUNK_ROWS]
        found = function(part, **more)
        total = found if total is None else combine(total, found)
    return total


# ---- units whose rows lie anywhere in a source -----------------------------------------------------------------------
# Identifiers that are in memory at a time, about: those of one slice of the units.
HELD_ROWS = 8 * CHUNK_ROWS


class ScatteredUnits:
    """Chooses the rows that are used, and sums over them, where the rows of a unit lie anywhere in the source.

    The rows are read several times, and none is written anywhere. The passes before the first sum read the identifiers
    alone: each of them looks at one slice of the units, so that the identifiers of a bounded number of rows are in
    memory. What is kept is one small number for each row of the table. The sums then take one pass each, as without
    units.

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
    codes, found = _factorized(_decoded(values))
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
