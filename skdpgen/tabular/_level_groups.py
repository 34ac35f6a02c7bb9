"""Groups of the levels of a column with many categories, as a model sees them, and the way back to categories."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from ._binning import draw_in_runs, stratified_uniforms
from ._columns import has_named_groups, paths_of_members

# Least rows of a part of a group over the rows of an average group, and their factor as long as groups are too many. 1
# leaves fewer groups than the noise allows: of 800 codes in two levels, 40,000 rows at epsilon 1, a mean distance of
# tables of the code with another column of .150; 1/2 .126; 1/4 .125.
_LEAST_PART, _COARSER = 0.5, 1.2


def has_subgroups(column) -> bool:
    """Whether the groups of a column with a `hierarchy` have groups."""
    if not has_named_groups(column.hierarchy):
        return isinstance(column.hierarchy, tuple)
    return any(len(path) > 1 for path, _ in paths_of_members(column.hierarchy))


def _declared_paths(column) -> list:
    """Return the declared groups of each category of a complete column with a `hierarchy`, the coarsest one first.

    With a number of characters, categories that are not text count as they are written: of learned ones, only released
    names decide.
    """
    if has_named_groups(column.hierarchy):
        of = {value: path for path, value in paths_of_members(column.hierarchy)}
        return [of[value] for value in column.categories]
    lengths = column.hierarchy if isinstance(column.hierarchy, tuple) else (column.hierarchy,)
    return [tuple(str(value)[:length] for length in lengths) for value in column.categories]


def declared_groups(column) -> list:
    """Return the coarsest group of each level of a complete column with a `hierarchy`, numbered by their first levels.

    "Other" and missing values are groups by themselves.
    """
    return _numbered(column, [path[0] for path in _declared_paths(column)])


def divided_groups(column, sizes, most) -> list:
    """Return the groups of the levels of a complete column whose groups have groups, where released counts divide them.

    A group is divided into those of its groups, or of its categories, that have enough rows; the other ones stay
    together. Enough is 1 / (2 `most`) of all rows, or more where that gives more than `most` groups. The coarsest
    groups are kept, also where they are more.

    `sizes` (n_levels,): released numbers of rows.
    """
    paths = [(*path, (value,)) for path, value in zip(_declared_paths(column), column.categories)]
    sizes = np.asarray(sizes, dtype=np.float64)[: len(paths)]
    coarsest = {}
    for k, path in enumerate(paths):
        coarsest.setdefault(path[0], []).append(k)
    least = _LEAST_PART * max(sizes.sum(), 1e-12) / most
    while True:
        groups = [group for members in coarsest.values() for group in _divided(members, 1, paths, sizes, least)]
        if len(groups) <= max(most, len(coarsest)):
            break
        least *= _COARSER
    name = {k: i for i, group in enumerate(groups) for k in group}
    return _numbered(column, [name[k] for k in range(len(paths))])


def _divided(members, depth, paths, sizes, least):
    """Lists of categories into which a group is divided; its categories have common names up to `depth`."""
    parts = {}
    for k in members:
        parts.setdefault(paths[k][depth] if depth < len(paths[k]) else k, []).append(k)
    large = [part for part in parts.values() if sizes[part].sum() >= least]
    if len(members) == 1 or not large:
        return [members]
    rest = [k for part in parts.values() if sizes[part].sum() < least for k in part]
    divided = [group for part in large for group in _divided(part, depth + 1, paths, sizes, least)]
    return [*divided, *([rest] if rest else [])]


def _numbered(column, names):
    """Numbers of named groups by their first levels; "other" and missing values are groups by themselves."""
    number = {name: k for k, name in enumerate(dict.fromkeys(names))}
    n_alone = (column.other is not None) + column.missing
    return [*map(number.get, names), *range(len(number), len(number) + n_alone)]


@dataclass(frozen=True)
class LevelGroups:
    """Groups of the levels of a column, with the distribution of the levels in each.

    All of it is public: it follows from a schema and from released counts.
    """

    # tuple of int, length n_levels; group of each level: 0 to n_groups - 1, each of which has one level at least.
    # Levels are the categories, then "other" and missing, where there are such.
    group: tuple
    mass: tuple  # tuple of float, length n_levels; probability of each level, summing to 1

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

        `codes`: shape (n_rows,). Returns an array of shape (n_rows,).
        """
        codes, (group, mass) = np.asarray(codes), self._filled(1.0)
        order = np.lexsort((mass > 0, group))  # a level without mass comes before those that have some
        ends = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=self.n_groups))])
        return order[draw_in_runs(mass[order], ends[codes], ends[codes + 1], stratified_uniforms(codes, rng))]

    def given(self, shares):
        """Return the share of each group that fulfils a condition, and the groups under it.

        `shares` (n_levels,): share of each level that fulfils it.
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
