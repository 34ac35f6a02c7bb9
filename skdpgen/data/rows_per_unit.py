"""Rows of units, learned: how many of each a fit uses, a released quantile; and the phase that counts all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._types import BoundedUnit, in_words
from ..accounting import Phase
from ..mechanisms import add_gaussian, histogram_of_units
from ..utils.callers import warn_user
from .units import draw_key, keep_rows

# Numbers that may be chosen; public.
_CHOICES = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
# Part of the share of a learned fact: a quantile needs little.
_SHARE = 0.2
# Part of the units all of whose rows are used, at least. Where rows count 1, a larger number makes all noise larger;
# where units do, it does not, and leaves more rows to learn from.
_QUANTILES = {"rows": 0.8, "units": 0.95}
# Cells within so many standard deviations of their noise are taken for empty: else the noise of ten cells would be a
# tail of large units.
_SURE = 2.0
# What a plan assumes of the number that the fit will learn.
_ASSUMED = 5
# Part of the share of a learned fact that counts the rows, where units count 1.
_ROW_COUNT_SHARE = 0.2
LABEL = "unit_rows"


@dataclass(frozen=True)
class OpenUnit(BoundedUnit):
    """A unit of which the number of rows used is learned; until then `max_rows` is the largest that may be chosen."""

    @classmethod
    def of(cls, name, weighting):
        """Make the unit of a name and a weighting."""
        return cls(name, _CHOICES[-1], weighting)

    def closed(self, max_rows=_ASSUMED):
        """Return the unit with a number of rows: the one that was released, or, in plans, an assumed one."""
        return BoundedUnit(self.name, max_rows, self.weighting)

    def __str__(self):
        count = "" if self.weighting == "rows" else ", which together count 1"
        return f"{in_words(self.name)}, a learned number of them used at most (here: {_ASSUMED}){count}"


def max_rows_phases(unit, share):
    """Return the phase that learns how many rows of a unit are used; none where that is declared."""
    return [Phase(LABEL, _SHARE * share)] if isinstance(unit, OpenUnit) else []


def row_count_phases(unit, share):
    """Return the phase that counts the rows, where the other sums count units; none where they count rows."""
    return [Phase("row_count", _ROW_COUNT_SHARE * share)] if unit is not None and unit.weighting == "units" else []


def release_max_rows(rows, noise_multiplier, rng, relation):
    """Release how many rows of a unit the fit uses, after the charge and before the rows are chosen.

    `relation`: of an `OpenUnit`.

    One histogram: the number of units by their number of rows, in cells that end at the choices; units with more than
    the last are in its cell. A unit is in one cell, whatever the weighting: the sensitivity is 1, or sqrt(2) where a
    unit is replaced. The choice follows from the released counts alone: the least at which a public share of the units
    has no more rows.
    """
    counts = histogram_of_units([_cells(sizes) for sizes in rows.rows_per_unit()], len(_CHOICES))
    released = add_gaussian(counts, noise_multiplier, rng, relation)
    sd = noise_multiplier * counts.sensitivity(relation)
    kept = np.where(released > _SURE * sd, released, 0.0)
    if not kept.any():
        warn_user(
            f"too few units for this noise to learn max_rows_per_unit, so {_CHOICES[0]} is used. Declare "
            "max_rows_per_unit= from public knowledge of such tables"
        )
        return relation.unit.closed(_CHOICES[0])
    shares = np.cumsum(kept) / kept.sum()
    return relation.unit.closed(_CHOICES[int(np.argmax(shares >= _QUANTILES[relation.unit.weighting]))])


def settle_ids(ids, plan, rng):
    """Learn how many rows of a unit are used, where that is not declared: the first release of a fit to numbers.

    `plan`: charged. Returns `ids`; `plan`: both with the number of rows of a unit that are used; what was given, where
    it is declared.
    """
    if not isinstance(plan.unit, OpenUnit):
        return ids, plan
    unit = release_max_rows(ids, plan.noise_multipliers[LABEL], rng, plan.relation)
    rng.unit = unit  # all further noise is for so many rows
    return replace(ids, unit=unit), replace(plan, unit=unit)


def _cells(sizes):
    return np.minimum(np.searchsorted(_CHOICES, sizes), len(_CHOICES) - 1)


class LearnedRowsMixin:
    """For a `PrivateEstimator` that learns `max_rows_per_unit` where it is not declared."""

    def _learned_unit(self, asked):
        return OpenUnit.of(asked.label, asked.weighting)

    def _keep_rows(self, ids, plan, rng):
        """Return which rows of an array are used (`KeptRows`), and the plan with their number in a unit."""
        ids, plan = settle_ids(ids, plan, rng)
        self.max_rows_per_unit_ = plan.unit.max_rows
        return keep_rows(ids, draw_key(rng)), plan
