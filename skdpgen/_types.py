"""Types of all rooms: the neighbouring relation, the unit of privacy, and a sum whose sensitivity is known."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

NEIGHBORING: tuple[str, ...] = ("add_or_remove_one", "replace_one")
# Smallest and largest epsilon and delta of a fit; an epsilon may also be infinite.
EPSILONS, DELTAS = (1e-6, 1e3), (1e-100, 0.1)
# What becomes of a row without an identifier: refused, or a separate unit.
MISSING_UNITS: tuple[str, ...] = ("refuse", "own")
# How the rows of a unit are counted; see `BoundedUnit`.
WEIGHTINGS: tuple[str, ...] = ("rows", "units")
# Of one unit; the weight 1 / m of a row is then at least 16 steps of the lattice of counts.
MOST_ROWS_PER_UNIT = 1 << 16


def check_neighboring(neighboring: str) -> str:
    """Return `neighboring` if it is one of the two relations, raise ValueError otherwise."""
    if not isinstance(neighboring, str) or neighboring not in NEIGHBORING:
        got = repr(neighboring) if isinstance(neighboring, str) else f"a {type(neighboring).__name__}"
        raise ValueError(f"neighboring must be one of {', '.join(NEIGHBORING)}; got {got}")
    return neighboring


@dataclass(frozen=True)
class BoundedUnit:
    """Who is protected, where that is not one row: all rows of one person, say, of which a fit uses a few."""

    name: str  # name of the column of identifiers; public
    max_rows: int  # rows of a unit that a fit uses, at most; public
    # "rows": every row used counts 1. "units": every unit counts 1, and each of its m rows used counts 1/m.
    weighting: str = "rows"

    def __post_init__(self):
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValueError(f"the name of a unit must be text that is not empty; got {self.name!r}")
        whole = isinstance(self.max_rows, Integral) and not isinstance(self.max_rows, bool)
        if not whole or not 1 <= self.max_rows <= MOST_ROWS_PER_UNIT:
            raise ValueError(
                f"max_rows, the largest number of used rows of a unit, must be a whole number from 1 to "
                f"{MOST_ROWS_PER_UNIT}; got {self.max_rows!r}"
            )
        if self.weighting not in WEIGHTINGS:
            raise ValueError(f"the weighting must be one of {', '.join(WEIGHTINGS)}; got {self.weighting!r}")
        object.__setattr__(self, "max_rows", int(self.max_rows))

    @property
    def weight(self) -> int:
        """Largest sum of the weights of the rows of one unit: `max_rows`, or 1 where each unit counts 1."""
        return 1 if self.weighting == "units" else self.max_rows

    def __str__(self):
        text = f"{in_words(self.name)}, at most {self.max_rows} of them used"
        return text if self.weighting == "rows" else f"{text}, which together count 1"


@dataclass(frozen=True)
class UnitRelation:
    """A neighbouring relation between data sets that differ by all rows of one unit.

    It is passed where the relation between rows is a text. A unit may have any number of rows, so the number of rows is
    private under both relations: this is no text, and equal to none.
    """

    neighboring: str
    unit: BoundedUnit

    def __post_init__(self):
        check_neighboring(self.neighboring)


def unit_of(relation: str | UnitRelation) -> BoundedUnit | None:
    """Return the unit of a relation; None where it is a row."""
    return relation.unit if isinstance(relation, UnitRelation) else None


def in_words(unit: str | None) -> str:
    """Return who is protected, in words, from the name of a unit."""
    return "one row" if unit is None else f"all rows of one {unit}"


@dataclass(frozen=True, eq=False)
class BoundedSum:
    """A sum of one contribution per unit (record, group, subset), and how far one unit can move it.

    Parameters
    ----------
    value : array or tensor
        Sum; private until noise is added.
    add_or_remove_one : float
        L2 sensitivity where a unit joins or leaves: bound of ``norm(weights * c)`` over every possible contribution c
        of one unit.
    replace_one : float, default=None
        L2 sensitivity where a unit is replaced: bound of ``norm(weights * (c - c'))`` over every two possible
        contributions; None is the triangle inequality's ``2 * add_or_remove_one``.
    weights : float or array broadcast to `value`, default=1.0
        The bounds hold for ``weights * value``; noise on `value` is divided by them.
        Keeping the weights out of the sum keeps the sum on its lattice.
    lattice : float, default=None
        Power of two of which every entry of `value` is an exact multiple, so that adding
        noise rounded to it is exact (floating point: no low-order bits leak).
    unit : {"record", "unit", "group", "batch", "subset"}, default="record"
        Unit of a contribution. With "record" each record has a separate one, which the others do not change; with
        "unit" all rows of a `BoundedUnit` have one together; with "group" and "batch" the bounds are nevertheless
        stated for one record; with "subset" they are those of a subset, whose contribution a joining record changes.
    keys : dict of int -> tuple, default=None
        Names of entries that come from the rows, as observed categories do: position of the first entry of a run ->
        names. These are private, and so is the shape.
    weighted : bool, default=False
        Whether the rows of a unit have weights that sum to at most 1.
    additive : bool, default=True
        Whether the contribution of a record, or of a unit, is a function of it alone. Where it is not, as with a vote
        of a teacher that has further rows, the bounds hold for any change of one record, or with "unit" of one unit,
        and there is no bound for several records.
    """

    value: Any
    add_or_remove_one: float
    replace_one: float | None = None
    weights: Any = 1.0
    lattice: float | None = None
    unit: str = "record"
    keys: dict | None = None
    weighted: bool = False
    additive: bool = True

    def sensitivity(self, neighboring: str | UnitRelation) -> float:
        """L2 sensitivity of ``weights * value`` under `neighboring`.

        Notes
        -----
        Let D and R be the two bounds of a row: of any contribution, and of the difference of any two. The rows of a
        unit that are used have weights of sum W, at most w: w = 1 with `weighted`, else `max_rows`. A unit that joins
        moves the sum by at most W D. Of two units with sums W >= V, match the weight V of both, row by row: the
        difference is at most V R + (W - V) D, and so at most w max(R, D). Both are attained, by w equal rows.
        """
        unit = unit_of(neighboring)
        relation = check_neighboring(neighboring if unit is None else neighboring.neighboring)
        added = self.add_or_remove_one
        replaced = 2 * self.add_or_remove_one if self.replace_one is None else self.replace_one
        if unit is None or self.unit == "unit":
            if self.weighted or (self.unit == "unit") != (unit is not None):
                raise ValueError("this sum is one of units: its noise follows the relation between units")
            return added if relation == "add_or_remove_one" else replaced
        if not self.additive:
            raise ValueError(
                f"the contribution of a record to this sum depends on other records: the sum has no bound for {unit}"
            )
        if self.unit != "record":
            raise ValueError(f"a sum of one contribution per {self.unit} has no bound for {unit}")
        if self.weighted != (unit.weighting == "units"):
            raise ValueError(f"the rows of this sum {'have' if self.weighted else 'lack'} the weights of units")
        return unit.weight * (added if relation == "add_or_remove_one" else max(added, replaced))

    def reach_of_a_record(self, neighboring: str | UnitRelation) -> float:
        """Largest change of ``weights * value`` by one record; with unit "subset" it changes one contribution."""
        return self.sensitivity("replace_one" if self.unit == "subset" else neighboring)
