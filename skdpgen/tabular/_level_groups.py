"""Groups of the levels of a column with many categories, as a model sees them, and the way back to categories."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from ._binning import draw_in_runs


def declared_groups(column) -> list:
    """Return the group of each level of a complete column with a `hierarchy`, numbered by their first levels.

    "Other" and missing values are groups by themselves. With a number of characters, categories that are not text count
    as they are written: of learned ones, only released names decide.
    """
    if isinstance(column.hierarchy, int):
        names = [str(value)[: column.hierarchy] for value in column.categories]
    else:
        of = {value: name for name, members in column.hierarchy for value in members}
        names = [of[value] for value in column.categories]
    number = {name: k for k, name in enumerate(dict.fromkeys(names))}
    n_alone = (column.other is not None) + column.missing
    return [*map(number.get, names), *range(len(number), len(number) + n_alone)]


@dataclass(frozen=True)
class LevelGroups:
    """Groups of the levels of a column, with the distribution of the levels in each.

    All of it is public: it follows from a schema and from released counts.

    Parameters
    ----------
    group : tuple of int, length n_levels
        Group of each level: 0 to n_groups - 1, each of which has one level at least. Levels are the categories, then
        "other" and missing, where there are such.
    mass : tuple of float, length n_levels
        Probability of each level, summing to 1.
    """

    group: tuple
    mass: tuple

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return max(self.group) + 1

    def labels(self, levels) -> tuple:
        """Return the levels of each group: a tuple of them, or the level itself where it is alone."""
        members = [[] for _ in range(self.n_groups)]
        for level, k in zip(levels, self.group):
            members[k].append(level)
        return tuple(tuple(found) if len(found) > 1 else found[0] for found in members)

    def codes(self, levels):
        """Return the group of each level code."""
        return np.array(self.group)[levels]

    def sample(self, codes, rng):
        """Draw one level for each group code, by its probability.

        The rows of a group have stratified uniforms, in a random order: the level of a row has its probability, and the
        shares of the levels in all rows vary less than those of independent draws.

        Parameters
        ----------
        codes : array of int of shape (n_rows,)
        rng : object with ``random(size)``

        Returns
        -------
        array of shape (n_rows,), intp
        """
        codes, (group, mass) = np.asarray(codes), self._filled(1.0)
        order = np.lexsort((mass > 0, group))  # a level without mass comes before those that have some
        ends = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=self.n_groups))])
        return order[draw_in_runs(mass[order], ends[codes], ends[codes + 1], _stratified(codes, rng))]

    def given(self, shares):
        """Return the share of each group that fulfils a condition, and the groups under it.

        Parameters
        ----------
        shares : array of shape (n_levels,)
            Share of each level that fulfils it.
        """
        group, mass = self._filled(1e-12)
        kept = mass * np.asarray(shares, dtype=np.float64)
        share = np.bincount(group, kept, self.n_groups) / np.bincount(group, mass, self.n_groups)
        return share, LevelGroups(self.group, tuple((kept / max(kept.sum(), 1e-300)).tolist()))

    def _filled(self, value):
        """Group and probability of each level; a group that is empty by its counts is uniform, of this value."""
        group, mass = np.array(self.group), np.array(self.mass)
        empty = np.bincount(group, mass, self.n_groups) <= 0
        return group, np.where(empty[group], value, mass)

    def to_dict(self) -> dict:
        """Return the groups as plain lists."""
        return {"group": list(self.group), "mass": list(self.mass)}

    @classmethod
    def from_dict(cls, content) -> LevelGroups:
        """Return the groups that :meth:`to_dict` wrote; ValueError where they are none."""
        group, mass = tuple(content["group"]), tuple(content["mass"])
        if any(type(k) is not int for k in group) or set(group) != set(range(len(set(group)))) or not group:
            raise ValueError("groups of levels must be numbered from 0, each with a level")
        if any(isinstance(x, bool) or not isinstance(x, Real) or not math.isfinite(x) or x < 0 for x in mass):
            raise ValueError("probabilities of levels must be finite numbers, not negative")
        if len(mass) != len(group):
            raise ValueError("groups and probabilities of levels do not match in length")
        return cls(group, mass)


def _stratified(codes, rng):
    """Uniform numbers, of which those of the n rows of a code lie in one n-th of [0, 1) each."""
    n_rows = np.bincount(codes)
    order = np.lexsort((rng.random(len(codes)), codes))
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    return (rank + rng.random(len(codes))) / n_rows[codes]
