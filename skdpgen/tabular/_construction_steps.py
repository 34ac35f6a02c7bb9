"""Steps of a construction: one constraint each, from rows to what the model sees of them and back."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..exceptions import SchemaError
from ..utils.callers import warn_user
from ..utils.printing import quoted
from ._columns import Categorical, Datetime, Numeric
from ._constraint_forms import Conditional, Lookup
from ._constraints import known_values
from ._construction_columns import (
    MOST_FLOAT,
    as_read,
    filled,
    filled_codes,
    filled_series,
    inside,
    keep_presence,
    number_of,
    only_presence,
    read_levels,
    restore_unbounded,
    restored,
    typed,
    unit_of,
    with_bounds,
    with_values,
    without_rounding_errors,
    without_start,
)
from ._dtypes import output_dtype
from ._frames import factorize, numeric_bounds, numeric_values, restore

# Missing values may take the place of values of a declared combination: most combinations that this makes.
_MOST_COMBINATIONS = 10_000
# Decimals of a product: a float has no more digits.
_MOST_DECIMALS = 15


def _text_of(row):
    return json.dumps(row, ensure_ascii=False, allow_nan=False)


class _Step:
    """One constraint, or a part of one, by construction.

    `outputs` are the columns that are constructed, `inputs` those that they need. `declare` changes the columns that
    the model sees, `encode` its rows, `settle` its columns once bounds and categories were learned; `release` gives
    the complete columns of the rows that come out, and `decode` the rows.
    """

    def violated(self, outer, table):
        """Which rows violate the constraint, bool array; a missing value violates nothing."""
        raise NotImplementedError

    def facts(self, columns):
        """Add to the columns of the table what the constraint declares about them."""

    def settle(self, columns):
        """Change what was learned to what the constraint allows."""


@dataclass(frozen=True, eq=False)
class Gap(_Step):
    """``low <= end - start <= high``: the model sees one of the two columns, and the difference in place of the other.

    The difference counts numbers, or steps of the finer resolution of two dates; `unit` is that resolution in
    microseconds (1 for numbers).
    """

    texts: tuple
    start: object
    end: object
    low: float
    high: float
    made: object
    unit: int
    integer: bool

    @property
    def text(self):
        return " and ".join(self.texts)

    @property
    def base(self):
        return self.start if self.made == self.end else self.end

    @property
    def inputs(self):
        return (self.base,)

    @property
    def outputs(self):
        return (self.made,)

    @property
    def _sign(self):
        return 1 if self.made == self.end else -1

    def _scale(self, column):
        return unit_of(column) // self.unit if isinstance(column, Datetime) else unit_of(column)

    def _numbers(self, series, column, on_invalid="clip"):
        return numeric_values(series, column, on_invalid) * self._scale(column)

    def declare(self, columns):
        made, base = columns[self.made], columns[self.base]
        known = math.isfinite(self.low) and math.isfinite(self.high)
        bounds = (self.low, self.high) if known else None
        decimals = [getattr(column, "decimals", None) for column in (made, base)]
        columns[self.made] = Numeric(
            self.made,
            bounds and tuple(map(int, bounds)) if self.integer else bounds,
            integer=self.integer,
            missing=made.missing,
            decimals=None if self.integer or None in decimals else max(decimals),
        )

    def violated(self, outer, table):
        start, end = (self._numbers(outer[name], replace(table[name], bounds=None)) for name in (self.start, self.end))
        return (end - start < self.low) | (end - start > self.high)

    def encode(self, outer, seen, table, on_invalid):
        base, made = (self._numbers(outer[name], table[name], on_invalid) for name in (self.base, self.made))
        # without a start there is no difference, but the end is there: it is drawn from other rows when rows come out
        nearest = min(max(0.0, self.low), self.high)
        gap = np.where(np.isnan(base) & ~np.isnan(made), nearest, (made - base) * self._sign)
        seen[self.made] = pd.Series(np.clip(gap, self.low, self.high), index=outer[self.made].index)

    def settle(self, columns):
        column = columns[self.made]
        columns[self.made] = with_bounds(column, *inside(column.bounds, (self.low, self.high)))

    def release(self, columns, seen, table):
        made, base = table[self.made], columns[self.base]
        if made.complete:
            columns[self.made] = made
            return
        low, high = (bound * self._scale(base) for bound in numeric_bounds(base))
        shortest, longest = numeric_bounds(seen[self.made])
        low, high = (low + shortest, high + longest) if self._sign > 0 else (low - longest, high - shortest)
        scale = self._scale(made)
        low, high = (math.floor(low / scale), math.ceil(high / scale)) if made.whole else (low / scale, high / scale)
        if not made.whole and made.decimals is None:
            known = [column.decimals for column in (base, seen[self.made]) if column.decimals is not None]
            made = replace(made, decimals=max(known)) if len(known) == 2 else made
        columns[self.made] = with_bounds(made, low, high)

    def base_range(self, low, high, made, seen):
        """Range that the base has where the other column is in one."""
        base, scale = seen[self.base], self._scale(made)
        shortest, longest = numeric_bounds(seen[self.made])
        edges = (longest, shortest) if self._sign > 0 else (-shortest, -longest)
        low, high = ((end * scale - edge) / self._scale(base) for end, edge in zip((low, high), edges))
        (first, last) = numeric_bounds(base)
        # a step more on each side: values are rounded to their column
        return min(max(math.floor(low) - 1.0, first), last), min(max(math.ceil(high) + 1.0, first), last)

    def decode(self, outer, frame, seen, released, rng):
        column, base_column = released[self.made], released[self.base]
        base = self._numbers(outer[self.base], base_column)
        gap = frame[self.made].to_numpy(dtype=np.float64, na_value=np.nan)
        base, gap = without_start(base, gap, rng)
        base = filled(base, rng, np.mean(numeric_bounds(base_column)) * self._scale(base_column))
        values = self._rounded(base + self._sign * gap, base + self._sign * self.low, column)
        outer[self.made] = restore(values, column).set_axis(frame.index)

    def _rounded(self, values, edge, column):
        """Values in steps of their own column, rounded so that the least difference is kept."""
        scale = self._scale(column)
        values, edge = values / scale, edge / scale
        if column.whole:
            step, rounded = 1.0, np.rint(values)
        elif column.decimals is not None:
            step, rounded = 10.0**-column.decimals, np.round(values, column.decimals)
        else:
            return values
        if not math.isfinite(self.low):
            return rounded
        near = 1e-9 * (1 + np.abs(edge)) if self.low else 0.0  # the sum of two decimals is none of a float
        return np.where(self._sign * (edge - rounded) > near, rounded + self._sign * step, rounded)


@dataclass(frozen=True, eq=False)
class Computed(_Step):
    """``column == expression``: the model does not see the column, or whether it is missing alone.

    The expression is `constant` and a sum of columns, each times its weight. Beside dates, numbers are days: `units` of
    the columns are then microseconds. Those of dates are 1: what a number of one counts is its resolution, which may be
    learned, so that it is asked of each schema.
    """

    text: str
    column: object
    weights: dict
    constant: float
    units: dict

    @property
    def inputs(self):
        return tuple(self.weights)

    @property
    def outputs(self):
        return (self.column,)

    def declare(self, columns):
        only_presence(columns, self.column)

    def _unit(self, column):
        return self.units[column.name] * (unit_of(column) if isinstance(column, Datetime) else 1)

    def _values(self, parts, columns):
        """Values of the expression in steps of the column, from numbers of its parts in steps of theirs.

        `columns`: the column and the parts by name, with the resolutions of these numbers.
        """
        total = self.constant * self.units[None]
        for name, part in parts.items():
            total = total + self.weights[name] * self._unit(columns[name]) * part
        return total / self._unit(columns[self.column])

    def violated(self, outer, table):
        parts = {name: numeric_values(outer[name], table[name]) for name in self.inputs}
        column = replace(table[self.column], bounds=None)
        found = numeric_values(outer[self.column], column)
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = self._values(parts, table)
            return np.abs(found - wanted) > self._rounding(wanted, column)

    @staticmethod
    def _rounding(values, column):
        """What a value of the column may differ from the computed one, because it is rounded."""
        if column.whole:
            return 0.5
        if column.decimals is not None:
            return 0.5000001 * 10.0**-column.decimals
        dtype = output_dtype(column.dtype)
        return max(1e-9, 4 * float(np.finfo(getattr(dtype, "numpy_dtype", dtype)).eps)) * (1 + np.abs(values))

    def encode(self, outer, seen, table, on_invalid):
        keep_presence(outer, seen, table[self.column])

    def release(self, columns, seen, table):
        column = table[self.column]
        if not column.complete:
            ends = self._ends({name: columns[name] for name in self.inputs}, column)
            decimals = self._decimals([columns[name] for name in self.inputs])
            if not column.whole and column.decimals is None and decimals is not None:
                column = replace(column, decimals=decimals)
            column = with_bounds(column, *np.clip(ends, -MOST_FLOAT, MOST_FLOAT).tolist())
        columns[self.column] = column

    def _ends(self, parts, column):
        """Least and largest value of the expression, in steps of `column`, within the bounds of its parts: columns."""
        bounds, columns = {name: numeric_bounds(part) for name, part in parts.items()}, {**parts, self.column: column}
        return [
            self._values({name: bounds[name][(w > 0) == upper] for name, w in self.weights.items()}, columns)
            for upper in (False, True)
        ]

    def misses_bounds(self, schema):
        """Whether the expression has no value within the declared bounds of its column, from parts within theirs."""
        if not all(schema[name].complete for name in (self.column, *self.inputs)):
            return False
        low, high = numeric_bounds(schema[self.column])
        least, most = self._ends({name: schema[name] for name in self.inputs}, schema[self.column])
        rounding = np.max(self._rounding(np.array([low, high]), schema[self.column]))
        return most < low - rounding or least > high + rounding

    def advice(self, rows, table):
        """What to declare where no row can satisfy the constraint, in words; None if the rows do not show that."""
        return None

    def may_leave_bounds(self, released):
        """Whether the expression has values outside the bounds of its column, from parts within theirs."""
        low, high = numeric_bounds(released[self.column])
        least, most = self._ends({name: released[name] for name in self.inputs}, released[self.column])
        return not low <= least <= most <= high  # NaN of an overflow, too

    @staticmethod
    def _decimals(parts):
        """Decimals of values of the expression, None where they are not known."""
        decimals = [getattr(part, "decimals", None) for part in parts]
        return None if None in decimals else max(decimals)

    def decode(self, outer, frame, seen, released, rng):
        parts = {}
        for name in self.inputs:
            part = numeric_values(outer[name], released[name])
            parts[name] = filled(part, rng, np.mean(numeric_bounds(released[name])))
        column = released[self.column]
        with np.errstate(over="ignore", invalid="ignore"):  # the bounds of the column are those of floats
            values = self._values(parts, released)
        values = values if column.whole else without_rounding_errors(values)
        values = np.clip(values if column.missing else np.nan_to_num(values), *numeric_bounds(column))
        if self.column in seen:
            values = np.where(frame[self.column].to_numpy(dtype=bool), values, np.nan)
        outer[self.column] = restore(values, column).set_axis(frame.index)


@dataclass(frozen=True, eq=False)
class Product(Computed):
    """``column == factor * one * other / third**2``: as `Computed`, of columns of numbers; `constant` is the factor.

    `weights` names the columns, each with its exponent, a whole number. Where the denominator is 0 there is no value:
    such a row has a missing one, or is drawn again.
    """

    def encode(self, outer, seen, table, on_invalid):
        """The model sees which values are missing for another reason than a denominator of 0, where they follow."""
        super().encode(outer, seen, table, on_invalid)
        if self.column in seen:
            parts = {name: numeric_values(outer[name], table[name]) for name in self.inputs}
            seen[self.column] = seen[self.column] | self._undefined(parts)

    def _values(self, parts, columns=None):
        above, below = np.float64(self.constant), np.float64(1.0)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            for name, part in parts.items():
                for _ in range(abs(self.weights[name])):  # zero times infinity is no number
                    if self.weights[name] > 0:
                        above = np.clip(above * self.units[name] * part, -MOST_FLOAT, MOST_FLOAT)
                    else:
                        below = np.clip(below * self.units[name] * part, -MOST_FLOAT, MOST_FLOAT)
            values = above / self.units[self.column] / below
            return np.where(below == 0, np.nan, np.clip(values, -MOST_FLOAT, MOST_FLOAT))

    def violated(self, outer, table):
        parts = {name: numeric_values(outer[name], table[name]) for name in self.inputs}
        present = ~np.isnan(numeric_values(outer[self.column], replace(table[self.column], bounds=None)))
        return super().violated(outer, table) | (present & self._undefined(parts))

    def _undefined(self, parts):
        """Which rows have a denominator of 0, and all numbers."""
        return np.isnan(self._values(parts)) & ~np.any([np.isnan(part) for part in parts.values()], axis=0)

    def _ends(self, parts, column):
        ends = np.full(2, self.constant / self.units[self.column])
        for name, part in parts.items():
            low, high = numeric_bounds(part)
            found = [low, high]
            if low <= 0 <= high and self.weights[name] > 0:
                found.append(0.0)  # of an even power, the least value is there
            elif low <= 0 <= high:
                found = [end for end in (low, max(low, -1.0), min(high, 1.0), high) if end and part.whole]
                if not found:
                    return [-math.inf, math.inf]
            with np.errstate(over="ignore"):
                powers = np.clip(
                    (self.units[name] * np.array(found)) ** float(self.weights[name]), -MOST_FLOAT, MOST_FLOAT
                )
                corners = np.clip(np.outer(ends, [powers.min(), powers.max()]), -MOST_FLOAT, MOST_FLOAT)
            ends = np.array([corners.min(), corners.max()])
        return ends.tolist()

    def advice(self, rows, table):
        if not self._undefined({name: numeric_values(rows[name], table[name]) for name in self.inputs}).all():
            return None
        below = " or ".join(repr(name) for name in self.inputs if self.weights[name] < 0)
        return (
            f"{self.column!r} has no value where its denominator is 0, which it is in all these rows; declare "
            f"missing=True of {self.column!r}, or bounds of {below} that leave out 0"
        )

    def may_leave_bounds(self, released):
        below = (numeric_bounds(released[name]) for name, exponent in self.weights.items() if exponent < 0)
        return any(low <= 0 <= high for low, high in below) or super().may_leave_bounds(released)

    def _decimals(self, parts):
        decimals = [0 if part.integer else part.decimals for part in parts]
        exponents = self.weights.values()
        if None in decimals or self.constant % 1 or min(exponents) < 0:
            return None
        return min(sum(own * exponent for own, exponent in zip(decimals, exponents)), _MOST_DECIMALS)


@dataclass(frozen=True, eq=False)
class Looked(_Step):
    """``column == {...}[key]``: as `Computed`, by a declared mapping."""

    text: str
    lookup: Lookup

    @property
    def inputs(self):
        return (self.lookup.key,)

    @property
    def outputs(self):
        return (self.lookup.dependent,)

    def facts(self, columns):
        key, dependent = columns[self.lookup.key], columns[self.lookup.dependent]
        if isinstance(key, Numeric) or not key.complete:
            facts = {"missing": key.missing, "dtype": key.dtype, "hierarchy": getattr(key, "hierarchy", None)}
            columns[key.name] = Categorical(key.name, tuple(self.lookup.table), **facts)
        columns[dependent.name] = with_values(dependent, list(self.lookup.table.values()))
        if absent := [value for value in columns[key.name].values if value not in self.lookup.table]:
            raise ValueError(
                f"the constraint {quoted(self.text)} maps no value {absent[0]!r}, which {key.name!r} may have"
            )

    def declare(self, columns):
        only_presence(columns, self.lookup.dependent)

    def _numbers(self, dependent):
        values = self.lookup.table.values()
        return np.array([np.nan if value is None else number_of(value, dependent) for value in values])

    def _codes(self, series, column):
        codes, uniques = factorize(series, column)
        place = {value: i for i, value in enumerate(self.lookup.table)}
        return np.append([place.get(value, -1) for value in uniques.tolist()], -1).astype(np.intp)[codes]

    def violated(self, outer, table):
        key, dependent = table[self.lookup.key], table[self.lookup.dependent]
        codes = self._codes(outer[key.name], key)
        known = codes >= 0
        values = list(self.lookup.table.values())
        if isinstance(dependent, Numeric):
            found = numeric_values(outer[dependent.name], replace(dependent, bounds=None))
            wanted = self._numbers(dependent)[codes]
            broken = found != wanted
            missing = np.isnan(found)
        else:
            theirs, uniques = read_levels(outer[dependent.name], dependent)
            place = {value: i for i, value in enumerate(uniques[:-1])}
            wanted = np.array([-1 if value is None else place.get(value, -2) for value in values])[codes]
            broken, missing = theirs != wanted, theirs < 0
        return known & ~missing & broken

    def encode(self, outer, seen, table, on_invalid):
        keep_presence(outer, seen, table[self.lookup.dependent])

    def release(self, columns, seen, table):
        columns[self.lookup.dependent] = table[self.lookup.dependent]

    def decode(self, outer, frame, seen, released, rng):
        key, dependent = released[self.lookup.key], released[self.lookup.dependent]
        codes = self._codes(filled_series(outer[key.name], key, rng), key)
        values = list(self.lookup.table.values())
        if isinstance(dependent, Numeric):
            found = self._numbers(dependent)[codes]
        else:
            levels = list(dependent.values)
            found = np.array([len(levels) if v is None else levels.index(v) for v in values], dtype=np.intp)[codes]
        if dependent.name in seen:
            absent = np.nan if isinstance(dependent, Numeric) else len(dependent.values)
            found = np.where(frame[dependent.name].to_numpy(dtype=bool), found, absent)
        outer[dependent.name] = restore(found, dependent).set_axis(frame.index)


@dataclass(frozen=True, eq=False)
class Merged(_Step):
    """Columns whose combinations are one categorical column for the model, under the name of the first of them.

    A category is the JSON text of the values, null for a missing one.
    """

    text: str
    outputs: tuple
    values: tuple | None
    is_function: bool

    inputs = ()

    @property
    def name(self):
        return self.outputs[0]

    def facts(self, columns):
        for at, name in enumerate(self.outputs):
            if self.values is not None:
                columns[name] = with_values(columns[name], [row[at] for row in self.values])

    def declare(self, columns):
        categories = None
        if self.values is not None:
            may = [at for at, name in enumerate(self.outputs) if columns[name].missing]
            masks = [set(s) for n in range(len(may) + 1) for s in itertools.combinations(may, n)]
            if len(masks) * len(self.values) > _MOST_COMBINATIONS:
                raise SchemaError(
                    f"the constraint {quoted(self.text)} allows more than {_MOST_COMBINATIONS:,} combinations with "
                    "missing values: declare missing=False where no value is missing"
                )
            listed = zip(*(as_read([row[at] for row in self.values], columns[n]) for at, n in enumerate(self.outputs)))
            rows = [[None if i in mask else v for i, v in enumerate(row)] for row in listed for mask in masks]
            categories = tuple(dict.fromkeys(map(_text_of, rows)))
        columns[self.name] = Categorical(self.name, categories, dtype="str")
        for name in self.outputs[1:]:
            del columns[name]

    def violated(self, outer, table):
        return np.zeros(len(outer[self.name]), dtype=bool)  # `encode` refuses what is not declared

    def encode(self, outer, seen, table, on_invalid):
        combined, parts = np.zeros(len(outer[self.name]), dtype=np.int64), []
        for name in self.outputs:
            column, series = table[name], outer[name]
            if isinstance(column, Numeric):
                values = numeric_values(series, column, on_invalid)
                series = restore_unbounded(values, column).set_axis(series.index)
            codes, values = read_levels(series, column)
            parts.append((codes, values))
            combined = pd.factorize(combined * len(parts[-1][1]) + codes + 1)[0].astype(np.int64)
        first = np.unique(combined, return_index=True)[1]
        rows = zip(*([values[code] for code in codes[first].tolist()] for codes, values in parts))
        texts = np.array([_text_of(list(row)) for row in rows], dtype=object)
        if self.values is not None and not set(texts.tolist()) <= self._declared(table):
            raise SchemaError(f"rows have combinations that the constraint {quoted(self.text)} does not list")
        seen[self.name] = pd.Series(texts[combined], index=outer[self.name].index, dtype=object)
        for name in self.outputs[1:]:
            del seen[name]

    def _declared(self, table):
        columns = {name: table[name] for name in self.outputs}
        self.declare(columns)
        return set(columns[self.name].categories)

    def settle(self, columns):
        rows = self._rows(columns[self.name])
        if self.is_function and rows != self._as_function(rows):
            warn_user(
                f"the released combinations hold several values for one {self.name!r}, against the constraint "
                f"{quoted(self.text)}: of each, rows have the first alone"
            )

    @staticmethod
    def _as_function(rows):
        """Combinations with the first of the values that others with the same key have; missing ones stay missing."""
        first = {}
        for key, *rest in rows:
            for at, value in enumerate(rest):
                if key is not None and value is not None:
                    first.setdefault((key, at), value)
        return [
            [key, *(None if value is None else first.get((key, at), value) for at, value in enumerate(rest))]
            for key, *rest in rows
        ]

    def _rows(self, column):
        """Released combinations, lists of values; ValueError where they are none."""
        rows = [json.loads(text) for text in column.categories]
        if any(not isinstance(row, list) or len(row) != len(self.outputs) for row in rows):
            raise ValueError(f"the categories of {self.name!r} are not combinations of {len(self.outputs)} values")
        return rows

    def release(self, columns, seen, table):
        rows = self._rows(seen[self.name])
        for at, name in enumerate(self.outputs):
            columns[name] = with_values(table[name], [row[at] for row in rows], learned=True)

    def released_rows(self, column, released):
        """Values that rows with each combination have, in the types of the released columns."""
        rows = self._rows(column)
        rows = self._as_function(rows) if self.is_function else rows
        parts = [as_read([row[at] for row in rows], released[name]) for at, name in enumerate(self.outputs)]
        return list(zip(*parts))

    def decode(self, outer, frame, seen, released, rng):
        column = seen[self.name]
        rows = self.released_rows(column, released)
        place = {text: i for i, text in enumerate(column.categories)}
        codes, uniques = pd.factorize(frame[self.name])
        codes = np.append([place.get(text, -1) for text in uniques], -1).astype(np.intp)[codes]
        # "other" is no combination: another row's takes its place
        codes = filled_codes(codes, len(rows), rng)
        for at, name in enumerate(self.outputs):
            outer[name] = restored([row[at] for row in rows], codes, released[name]).set_axis(frame.index)


@dataclass(frozen=True, eq=False)
class Overwritten(_Step):
    """``if condition: column == value``: the value is set where the condition holds, on the way in and out."""

    text: str
    conditional: Conditional
    shared: frozenset = frozenset()  # its columns that another step constructs

    @property
    def inputs(self):
        return self.conditional.condition.columns

    @property
    def outputs(self):
        return tuple(self.conditional.values)

    def facts(self, columns):
        for name, value in self.conditional.values.items():
            column = columns[name]
            if isinstance(column, Datetime) and column.complete and value is not None:
                low, high = numeric_bounds(column)
                if not low <= number_of(value, column) <= high:
                    raise ValueError(f"the constraint {quoted(self.text)}: {value!r} is outside the bounds of {name!r}")

    def declare(self, columns):
        pass

    def _where(self, outer, table):
        parts = {name: typed(outer[name], table[name]) for name in self.inputs}
        return self.conditional.where(pd.DataFrame(parts))

    def violated(self, outer, table):
        where, broken = self._where(outer, table), np.zeros(len(next(iter(outer.values()))), dtype=bool)
        for name, value in self.conditional.values.items():
            series = outer[name]
            if value is None:
                broken |= series.notna().to_numpy()
            elif isinstance(table[name], Numeric | Datetime):
                values = numeric_values(series, replace(table[name], bounds=None))
                broken |= ~np.isnan(values) & (values != number_of(value, table[name]))
            else:
                codes, values = read_levels(series, table[name])
                broken |= (codes >= 0) & (codes != (values.index(value) if value in values else -2))
        return where & broken

    def overwrite(self, outer, table):
        where = self._where(outer, table)
        for name, value in self.conditional.values.items():
            column, series = table[name], outer[name]
            if isinstance(column, Numeric | Datetime):
                values = numeric_values(series, replace(column, bounds=None))
                values = np.where(where, np.nan if value is None else number_of(value, column), values)
                outer[name] = restore_unbounded(values, column).set_axis(series.index)
            else:
                codes, values = read_levels(series, column)
                values = np.array(values, dtype=object)[codes]
                values[where] = value
                outer[name] = pd.Series(values, index=series.index, dtype=object)

    def encode(self, outer, seen, table, on_invalid):
        pass  # `overwrite` comes before all steps

    def settle(self, columns):
        for name, value in self.conditional.values.items():
            column = columns.get(name)
            if value is None or column is None or name in self.shared:
                continue
            if isinstance(column, Categorical) and value not in column.values:
                columns[name] = replace(column, categories=(*column.categories, value))
            elif isinstance(column, Numeric | Datetime):
                (low, high), number = numeric_bounds(column), number_of(value, column)
                if not low <= number <= high:
                    columns[name] = with_bounds(column, min(low, number), max(high, number))

    def release(self, columns, seen, table):
        columns.update({name: seen[name] for name in self.outputs if name not in self.shared})

    def decode(self, outer, frame, seen, released, rng):
        for name in self.outputs:
            if name not in outer:
                outer[name] = frame[name]
        rows = pd.DataFrame({name: outer[name] for name in self.inputs})
        where = self.conditional.where(known_values(rows, released))
        for name, value in self.conditional.values.items():
            series, column = outer[name], released[name]
            if isinstance(column, Numeric | Datetime):
                code = np.nan if value is None else number_of(value, column)
            else:
                code = len(column.values) if value is None else column.values.index(value)
            joined = pd.concat([series, restore(np.array([code]), column)], ignore_index=True)
            taken = joined.iloc[np.where(where, len(series), np.arange(len(series)))]
            outer[name] = taken.set_axis(frame.index)
