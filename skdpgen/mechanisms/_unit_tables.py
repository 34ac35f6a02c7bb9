"""Tables of units of several rows, and how alike two rows of a unit are: one contribution for each unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._types import BoundedSum
from ._histogram import LATTICE
from ._one_hot import one_hot_moments
from ._residual_plan import residual_plan

# Levels of the number of rows of a unit; up to so many rows each number is a level.
_MOST_SIZES = 24


def size_starts(max_rows):
    """Return the least number of rows of each level of it: public, ascending.

    The last level is `max_rows` alone, where all units with as many rows or more are. Above 24 rows, levels grow with
    the number.
    """
    if max_rows <= _MOST_SIZES:
        return np.arange(1, max_rows + 1)
    return np.unique(np.round(np.geomspace(1, max_rows, _MOST_SIZES)).astype(np.int64))


def unit_tables(codes, n_levels, sizes, max_rows):
    """Count the units at each level of each column and of their number of rows, and at each pair of levels.

    Parameters
    ----------
    codes : array of int of shape (n_units, n_columns)
        Level of each column of a unit; a function of the rows of this unit alone.
    n_levels : sequence of int of length n_columns
        Public.
    sizes : array of int of shape (n_units,)
        Number of rows used of each unit; numbers outside 1 .. `max_rows` are clipped to that range.
    max_rows : int
        Public.

    Returns
    -------
    BoundedSum
        `value` as that of `one_hot_moments` with one class; the last block is that of the numbers of rows. A unit has
        one contribution: it is at one level of each block, whatever its number of rows. So the bounds are those of a
        row of such a table (see `residual_plan`). The weighting of the rows has no part in them.
    """
    starts = size_starts(max_rows)
    size = np.searchsorted(starts, np.clip(np.asarray(sizes), 1, max_rows), side="right") - 1
    codes = np.column_stack([np.asarray(codes).reshape(len(size), -1), size])
    return replace(one_hot_moments(codes, unit_plan(n_levels, max_rows)), unit="unit")


def unit_plan(n_levels, max_rows):
    """The `ResidualPlan` of `unit_tables`, whose arguments these are."""
    return residual_plan([*n_levels, len(size_starts(max_rows))])


def likeness(first, second, n_bins):
    """Say how alike pairs of rows are in each column, from 0 to 1; 1 where they are at the same level.

    Parameters
    ----------
    first, second : arrays of int of shape (n_pairs, n_columns)
        Levels of the two rows of each pair.
    n_bins : sequence of int of length n_columns
        Number of levels of each column that are bins of numbers, which come first, in their order; 0 of categories.

    Returns
    -------
    array of shape (n_pairs, n_columns)
        0 at two categories; at two bins, 1 less the square of their distance, relative to that of the outermost: its
        mean tells how far the bins of two rows are correlated. Multiples of the lattice of counts.
    """
    first, second, last = (np.asarray(part, dtype=np.int64) for part in (first, second, n_bins))
    near = np.floor((1 - ((first - second) / np.maximum(last - 1, 1)) ** 2) / LATTICE) * LATTICE
    return np.where(first == second, 1.0, np.where(np.maximum(first, second) < last, near, 0.0))


def unit_pairs(first, second, n_bins):
    """Count the units with two rows, and add up how alike their two rows are in each column.

    Parameters
    ----------
    first, second, n_bins
        As in `likeness`: two rows of each unit that has two, a function of the rows of this unit alone.

    Returns
    -------
    BoundedSum
        `value` of shape (1 + n_columns,): the number of units, and the sums. A unit adds nothing, if it has one row, or
        1 to the first entry and a number from 0 to 1 to each other one: a vector of squared norm 1 + n_columns at most.
        The difference of two units is no longer: where both have two rows, the first entry cancels. So the bound is the
        same under both relations, and attained by a unit of equal rows in the place of one with one row. The weighting
        of the rows and their number have no part in it.
    """
    alike = likeness(first, second, n_bins)
    bound = float(1 + alike.shape[1]) ** 0.5
    value = np.append(float(len(alike)), alike.sum(axis=0))
    return BoundedSum(value, add_or_remove_one=bound, replace_one=bound, lattice=LATTICE, unit="unit")
