"""The private rows of a search: which of them are held out, and which of those are scored. A unit is never split."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..data.rows_per_unit import settle_ids
from ..data.units import draw_key, keep_rows, read_groups, take_groups
from ..utils.validation import is_extension, num_samples


class HeldOut(NamedTuple):
    """The rows of one search, split: the same in all of its runs; private."""

    fit: tuple  # (X, y, identifiers or None)
    score: tuple  # (X, y)
    unit_sizes: np.ndarray | None  # where units count 1, the number of rows scored of the unit of each


class SearchRows:
    """The rows of a search, without the column of identifiers.

    `estimator`: whose parameters name the column. `X`, `y`, `groups`: arguments of `fit`. `unit`: None where a row is
    the unit. `groups`: identifiers, where a row is not the unit.
    """

    def __init__(self, estimator, X, y, groups, unit):
        self.X, self.y, self.groups, self._ids = X, y, None, None
        self.n_units = num_samples(X)
        if unit is None:
            return
        self.X, groups = take_groups(estimator, X, groups)
        # numpy would make text of the numbers of a list in which one entry is text
        self.groups = np.asarray(groups, dtype=object) if isinstance(groups, list | tuple) else groups
        self._ids = read_groups(self.groups, num_samples(self.X), unit, estimator._asked_unit.missing)
        absent = self._ids.codes < 0
        named = len(self._ids.values)
        self._codes = np.where(absent, named + np.cumsum(absent) - 1, self._ids.codes)
        self.n_units = named + int(absent.sum())

    def settle(self, plan, rng):
        """Learn how many rows of a unit are used, where that is not declared; return the plan with the number."""
        self._ids, plan = settle_ids(self._ids, plan, rng)
        return plan

    def first(self, n):
        """Return the first rows, as arguments of `fit`."""
        return self._taken(np.arange(n))

    def split(self, share, rng):
        """Hold out each unit with probability `share`, independently of all others, with all its rows.

        The rows that are scored are chosen as those of a fit are: of each unit at most `max_rows`, at random.
        """
        held_out = rng.random(self.n_units) < share
        scored, sizes = held_out, None
        if self._ids is not None:
            held_out = held_out[self._codes]
            kept = keep_rows(self._ids, draw_key(rng))
            chosen = held_out[kept.rows]
            scored = kept.rows[chosen]
            sizes = None if kept.unit_sizes is None else kept.unit_sizes[chosen]
        return HeldOut(self._taken(~held_out), self._taken(scored)[:2], sizes)

    def _taken(self, rows):
        return tuple(take(part, rows) for part in (self.X, self.y, self.groups))


def take(X, rows):
    """Return some of the rows of X, which may be None."""
    if hasattr(X, "iloc"):
        return X.iloc[rows].reset_index(drop=True)
    if is_extension(X):  # numpy would turn integers into floats where one is missing
        return X[rows]
    return None if X is None else np.asarray(X)[rows]
