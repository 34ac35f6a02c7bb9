"""The query of what a schema lacks: rows counted by magnitude, sign and decimals, by year and step, or by value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._types import BoundedSum
from ..mechanisms import N_OCTAVE_CELLS, joint_histogram, octave_cells
from ._columns import Categorical, Datetime, Numeric, group_value, prefix_lengths, unit_microseconds
from ._dtypes import output_dtype
from ._formats import form_of
from ._frames import check_columns, factorize, numeric_values
from ._schema import Schema

# Weights of the octave, the sign and the resolution of a number, and of the year and the resolution of a datetime. The
# squares sum to 1, so that a row moves a column by 1, as with octaves or years alone. A sign has about a third of the
# squares, since a few rows in a hundred may be spread over 20 octaves. A resolution has an
# eighth: nearly all rows lie in one of its few cells.
_WEIGHTS = {
    (Numeric, False): (0.8, 0.6),
    (Numeric, True): (0.8, 0.48, 0.36),
    (Datetime, False): (1.0,),
    (Datetime, True): (0.936, 0.352),
}
# Weights of the count of a code, and of the counts of all its groups together, where a `hierarchy` is numbers of first
# characters. Groups have many rows, so they need less.
_CODE, _GROUPS = 0.8, 0.6
# Datetimes are counted by decade and, from 1900 to 2099, by year; earlier and later ones in the outermost cells.
YEARS = np.array([*range(1500, 1900, 10), *range(1900, 2100), *range(2100, 2201, 10)])
# Most decimals that are counted: more say that a number was measured or computed, not written by a person.
_MOST_DECIMALS = 3
# Relative error, in the epsilon of its dtype, of a number that was written with decimals and then scaled.
_WRITTEN_ERROR = 4
# Coarser steps of a datetime that are counted.
_STEPS = ("D", "h", "min")


@dataclass(frozen=True, eq=False)
class SchemaHistogram:
    """One joint histogram over the columns whose bounds or categories are unknown.

    Parameters
    ----------
    schema : Schema
        The incomplete schema.
    bounded_sum : BoundedSum
        Counts, the columns one after another, with the weights of `cell_weights`; sensitivity sqrt(d), or sqrt(2 d),
        for d columns.
    keys : dict of column name -> tuple
        Observed categories, one for each count, sorted: private, as is their number. `schema_from_histogram` releases
        only those above its threshold. Of a column with a `hierarchy` of first characters, pairs: (i, group) for the
        i-th number of characters, then (number of them, category).
    sizes : tuple of int
        Number of counts of each column.
    """

    schema: Schema
    bounded_sum: BoundedSum = field(repr=False)
    keys: dict = field(repr=False)
    sizes: tuple = field(repr=False)

    @property
    def query(self) -> BoundedSum:
        """`bounded_sum` with the names of its counts: the query that noise is added to."""
        starts = np.cumsum([0, *self.sizes]).tolist()
        names = {start: self.keys[name] for name, start in zip(self.schema.incomplete, starts) if name in self.keys}
        return replace(self.bounded_sum, keys=names or None)

    @property
    def needs_delta(self) -> bool:
        """Whether categories are learned, so that `delta` of `schema_from_histogram` must be charged; public."""
        return any(isinstance(self.schema[name], Categorical) for name in self.schema.incomplete)


def schema_histogram(frame, schema, unit_sizes=None) -> SchemaHistogram:
    """Count the rows by order of magnitude, sign and decimals (numbers), by year and step (datetimes), or by value.

    Parameters
    ----------
    frame : DataFrame or array of numbers, shape (n_rows, n_columns)
    schema : Schema
        Its incomplete columns are counted; missing values have a separate cell.
    unit_sizes : array of int of shape (n_rows,), default=None
        As in `joint_histogram`.

    Returns
    -------
    SchemaHistogram

    Raises
    ------
    SchemaError
        The frame does not fit the schema.
    ValueError
        The schema is complete: there is nothing to learn.
    """
    if schema.complete:
        raise ValueError("the schema is complete: there is nothing to learn")
    frame = check_columns(frame, schema)
    keys, codes, sizes, weights, totals = {}, [], [], [], []
    for name in schema.incomplete:
        column = schema[name]
        if isinstance(column, Categorical):
            found, uniques = factorize(frame[name], column)
            order = sorted(range(len(uniques)), key=uniques.__getitem__)
            own = tuple(uniques[order].tolist())
            found = np.append(np.argsort(order), -1)[found]
            keys[name], parts = _with_groups(own, found, column)
            parts.append((np.where(found < 0, len(own), found), len(own) + 1))
        else:
            parts = _number_cells(numeric_values(frame[name], column), column)
        codes += [cells for cells, _ in parts]
        sizes += [size for _, size in parts]
        weights += column_weights(column)
        totals.append(sum(size for _, size in parts))
    counts = joint_histogram(codes, sizes, weights if any(w != 1 for w in weights) else None, unit_sizes)
    return SchemaHistogram(schema, counts, keys, tuple(totals))


def _with_groups(categories, found, column):
    """Keys of a column of categories, and cells of the rows in the counts of its groups of first characters.

    A row is in one cell of each number of characters, which its value alone decides, beside the cell of its category.
    The squares of the weights sum to 1 (see `cell_weights`), so it moves the weighted counts of the column by at most
    1, as without groups.

    `found` (n_rows,): place of the value of each row; -1 is missing.
    """
    lengths = prefix_lengths(column)
    if not lengths:
        return categories, []
    keys, parts = [], []
    for depth, length in enumerate(lengths):
        groups = [group_value(value, length) for value in categories]
        own = sorted({group for group in groups if group is not None})
        place = {group: k for k, group in enumerate(own)}
        parts.append((np.array([*(place.get(group, -1) for group in groups), -1])[found], len(own)))
        keys += [(depth, group) for group in own]
    return (*keys, *((len(lengths), value) for value in categories)), parts


def cell_weights(schema, sizes, keys):
    """Return the weights of the counts of a `SchemaHistogram`: a number, or an array of shape (sum(sizes),).

    A number is counted in its octave (weight .8), by its sign (negative, positive; .48) and by its decimals (.36).
    Where the column is one of integers, or has a `step` or `decimals`, there are none to learn, and the sign has weight
    .6. A datetime is counted in its year (.936) and by its step (.352). A code is counted by itself (.8) and in
    its groups of first characters (.6 together). The squares sum to 1, so a row moves the weighted counts of every
    column by at most 1.

    `keys`: those of the histogram.
    """
    columns = [schema[name] for name in schema.incomplete]
    if all(column_weights(column) == (1.0,) for column in columns):
        return 1.0
    parts = (part_sizes(c, size, keys.get(c.name)) for c, size in zip(columns, sizes))
    return np.concatenate([np.repeat(column_weights(c), part) for c, part in zip(columns, parts)])


def column_weights(column):
    """Weights of the counts of a column; of one of categories, those of its groups and then of the categories."""
    if isinstance(column, Categorical) and (lengths := prefix_lengths(column)):
        return (*([_GROUPS / len(lengths) ** 0.5] * len(lengths)), _CODE)
    return _WEIGHTS.get((type(column), learns_resolution(column)), (1.0,))


class SelectedCounts(NamedTuple):
    """The counts whose names are released above a threshold, of the columns whose categories are learned."""

    n: int = 0  # number of counts: a row is in one cell of each
    fewest: int = 0  # the same of one column, at least
    least: float = 1.0  # least weight of the count of a category
    largest: float = 1.0

    @classmethod
    def of(cls, columns):
        """Of the open columns of a schema; public."""
        weights = [column_weights(column) for column in columns if isinstance(column, Categorical)]
        if not weights:
            return cls()
        own = [w[-1] for w in weights]
        return cls(sum(map(len, weights)), min(map(len, weights)), min(own), max(own))


def part_sizes(column, size, keys=None):
    """Split the number of cells of a column into those of its counts.

    `keys`: of a column of categories.
    """
    if isinstance(column, Categorical) and prefix_lengths(column):
        depths = np.bincount([depth for depth, _ in keys], minlength=len(column_weights(column))).tolist()
        return [*depths[:-1], depths[-1] + 1]  # a last cell is that of missing values
    rest = ([2] if isinstance(column, Numeric) else []) + (
        [len(resolutions_of(column)) + 1] if learns_resolution(column) else []
    )
    return [size - sum(rest), *rest]


def learns_resolution(column):
    """Whether the step or the decimals of a column are counted: neither its schema nor its dtype gives them."""
    if isinstance(column, Datetime):
        return column.resolution != "D" and form_of(column.dtype) is None
    return (
        isinstance(column, Numeric) and not column.whole and column.decimals is None and form_of(column.dtype) is None
    )


def resolutions_of(column):
    """Return the resolutions that are counted, the coarsest first; a last cell holds the rows that need a finer one."""
    if isinstance(column, Datetime):
        return [
            step for step in _STEPS if unit_microseconds(replace(column, resolution=step)) > unit_microseconds(column)
        ]
    return list(range(_MOST_DECIMALS + 1))


# ---- cells of the rows: each a function of its value alone ----------------------------------------------------------
def _number_cells(values, column):
    """Return pairs (cells of the rows, number of cells), one for each count of a numeric or datetime column."""
    if isinstance(column, Datetime):
        first, size = _year_cells(values, column), len(YEARS) - 1
    else:
        first, size = np.where(np.isnan(values), -1, octave_cells(values)), N_OCTAVE_CELLS
    parts = [(np.where(first < 0, size, first), size + 1)]
    if isinstance(column, Numeric):
        parts.append((_sign_cells(values), 2))
    if learns_resolution(column):
        parts.append((_step_cells if isinstance(column, Datetime) else _decimal_cells)(values, column))
    return parts


def _sign_cells(values):
    """Cell 0 for negative numbers, 1 for positive ones, none (-1) for zero and missing values."""
    return np.select([values < 0, values > 0], [0, 1], -1)


def _decimal_cells(values, column):
    """Cells by the decimals that a number needs; none (-1) for missing values and for zero, which never needs any.

    A cell depends on its value alone: a number has d decimals if it is, up to the precision of the column's dtype, the
    nearest one with d decimals.
    """
    dtype = output_dtype(column.dtype)
    error = _WRITTEN_ERROR * max(np.finfo(kind).eps for kind in (getattr(dtype, "numpy_dtype", dtype), np.float64))
    cells = np.full(len(values), _MOST_DECIMALS + 1)
    for decimals in range(_MOST_DECIMALS, -1, -1):
        with np.errstate(over="ignore", invalid="ignore"):  # numbers beyond the largest float have no decimals
            scaled = values * 10.0**decimals
            cells[np.abs(np.rint(scaled) - scaled) <= error * np.abs(scaled)] = decimals
    return np.where(np.isnan(values) | (values == 0), -1, cells), _MOST_DECIMALS + 2


def _step_cells(values, column):
    """Cells by the coarsest step of time that a datetime is a multiple of, on the wall clock; none if missing."""
    resolutions, unit = resolutions_of(column), unit_microseconds(column)
    cells = np.full(len(values), len(resolutions))
    for i in reversed(range(len(resolutions))):
        cells[np.nan_to_num(values) % (unit_microseconds(replace(column, resolution=resolutions[i])) // unit) == 0] = i
    return np.where(np.isnan(values), -1, cells), len(resolutions) + 1


def _year_cells(values, column):
    steps = pd.Timedelta(1, unit=column.resolution) // pd.Timedelta(1, unit="us")
    moments = (np.nan_to_num(values).astype(np.int64) * steps).view("datetime64[us]")
    years = moments.astype("datetime64[Y]").astype(np.int64) + 1970
    cells = np.searchsorted(YEARS[1:-1], years, side="right")
    return np.where(np.isnan(values), -1, cells)
