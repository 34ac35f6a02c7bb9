"""Columns of many categories: their released profiles, and the groups of categories that are made of these.

Tables of two columns with thousands of categories are noise in the main. So a column of many categories is modelled by
groups of them: two-way tables are those of the groups, and the categories of a group follow their own counts. One
release, `levels`, counts for each such column its categories, and each category together with a few cells of every
other column: its profile. The groups join categories of similar profile, as far as it exceeds the noise. Of a column
whose groups are declared (`hierarchy` of `Categorical`) it counts the categories alone. Everything after the release is
a function of it and of public facts.

Of columns of many declared categories, or of declared groups, `levels` is a phase of the plan. How many categories a
fit will learn is not public before it, so learned ones without declared groups have no phase: the charge of the moments
covers them (see `noise_with_levels`).
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from ..mechanisms import joint_histogram, split_histogram
from ..tabular import Categorical, TableEncoder
from ..tabular._frames import column_levels
from ..tabular._level_groups import LevelGroups, declared_groups, divided_groups, has_subgroups

# Declared categories of a column above which it is modelled by groups, and the most and fewest groups. Of learned ones
# the table has room for a number of them (see `frames._room`), above which there are so many groups.
GROUPED_ABOVE, MOST_GROUPS, _FEWEST_GROUPS = 128, 128, 8
# Most cells of another column in a profile.
_CELLS = 8
# Squared weights of the counts of categories and of the profiles against the target; the rest is for the others.
_COUNT_SQUARE, _TARGET_SQUARE = 0.4, 0.3
# Most directions in which profiles differ; support of the distribution of sizes, and steps that fit it.
_DIRECTIONS, _SIZES, _STEPS_OF_SIZES = 12, 80, 200
# Least noise, in rows, where there is none; share of a cell below which it counts no more.
_LEAST_NOISE, _RARE = 0.5, 0.02
# Copies of the counts that a fit holds at its peak.
_COPIES = 6
# Most learned categories of a column that is modelled by groups, and the memory that the profiles of all such columns
# may take.
_MOST_LEARNED, _MOST_BYTES = 10_000, 1 << 30
# Share of the charge of the moments that is for `levels` of learned columns, and by how much the noise of both parts
# is rounded up, so that they never cost more than the charge.
_SHARE_OF_MOMENTS, _ROUNDING = 0.125, 1e-12


def groups_above_noise(ratio):
    """Number of groups of a column, from what the noise of the two-way tables leaves visible (see `plan_bins`)."""
    return int(np.clip(round((2 * ratio) ** (2 / 3)), _FEWEST_GROUPS, MOST_GROUPS))


def grouped_columns(schema, targets):
    """Names of the columns that are modelled by groups of their categories: public facts alone.

    They have declared groups, or many declared categories.
    """
    return tuple(
        column.name
        for column in schema.columns
        if isinstance(column, Categorical)
        and column.name not in targets
        and (column.hierarchy is not None or (column.complete and len(column.categories) > GROUPED_ABOVE))
    )


def square_of_levels(schema, columns):
    """Square of the sensitivity of `levels` when a row joins: profiles of columns with declared groups are not counted.

    `columns`: those that are grouped.
    """
    return sum(1.0 if schema[name].hierarchy is None else _COUNT_SQUARE for name in columns)


def most_learned(n_learned, n_columns, room):
    """Most learned categories of a column beside the target, from public facts alone.

    `n_learned`, `n_columns`: columns of categories that are learned, beside the target, and all columns. `room`: most
    categories of a column without groups, which are as many as it has at least.
    """
    fitting = _MOST_BYTES // (max(n_learned, 1) * bytes_of_profiles([1], n_columns))
    return max(room, min(fitting, _MOST_LEARNED))


def noise_with_levels(noise_multipliers, grouped):
    """Noise multipliers of a fit in which the charge of the moments covers `levels` too, where that has none.

    Gaussian releases with noise multipliers z / sqrt(s) and z / sqrt(1 - s) compose to exactly one with z, whatever the
    second one asks after the first. So the charge of the moments covers both, and released values may decide on it.

    `noise_multipliers`: as they were charged. `grouped`: of columns that are modelled by groups; empty for none.
    """
    if not grouped or "levels" in noise_multipliers:
        return noise_multipliers
    whole = noise_multipliers["moments"] * (1 + _ROUNDING)
    levels, moments = whole / _SHARE_OF_MOMENTS**0.5, whole / (1 - _SHARE_OF_MOMENTS) ** 0.5
    return {**noise_multipliers, "levels": levels, "moments": moments}


def bytes_of_profiles(sizes, n_columns):
    """Memory that the release takes at its peak, from the numbers of levels of the columns that are grouped."""
    return 8 * sum(sizes) * (_COPIES * _CELLS * n_columns + 3 * (_SIZES + 1))


def error_of_a_level(noise_sd):
    """Standard deviation of the noise on the count of a level, from that on a count of weight 1."""
    return noise_sd / _COUNT_SQUARE**0.5


class LevelProfiles:
    """The query `levels` of a table, and the groups that its released counts give.

    `schema`: complete. `binnings`: of its numbers, released or public. `columns`: those that are grouped.
    """

    def __init__(self, schema, binnings, columns, targets):
        self.encoder = TableEncoder(schema, binnings=binnings).fit()
        self.blocks = {block.name: block for block in self.encoder.blocks_}
        self.columns, self.targets = columns, targets
        self._cells = {name: self._coarse(block) for name, block in self.blocks.items()}
        profiled = [name for name in columns if schema[name].hierarchy is None]
        self._pairs = [(name, other) for name in profiled for other in self.blocks if other != name]

    def _coarse(self, block):
        """Cell of each level of a column: runs of levels of about equal mass, or number; "missing" is alone."""
        column, binning = self.encoder.schema_[block.name], self.encoder.binnings_.get(block.name)
        n = block.size - bool(column.missing)
        mass = np.full(n, 1 / n) if binning is None else np.asarray(binning.bin_mass)
        if n <= _CELLS:
            cells = np.arange(n)
        else:
            middle = (np.cumsum(mass) - mass / 2) / max(mass.sum(), 1e-12)
            cells = np.unique(np.clip(np.floor(_CELLS * middle), 0, _CELLS - 1), return_inverse=True)[1]
        return np.append(cells, cells.max() + 1) if column.missing else cells

    @property
    def _sizes(self):
        """Number of counts of each table: those of the categories, then the profiles."""
        own = [self.blocks[name].size for name in self.columns]
        return [*own, *(self.blocks[name].size * (self._cells[other].max() + 1) for name, other in self._pairs)]

    @property
    def weights(self):
        """Weight of each table; their squares sum to 1 for each column with profiles (see `square_of_levels`)."""
        squares = [_COUNT_SQUARE] * len(self.columns)
        others = len(self.blocks) - 1
        n_targets = len(self.targets)
        for _, other in self._pairs:
            of_targets = _TARGET_SQUARE if 0 < n_targets < others else (1 - _COUNT_SQUARE) if n_targets else 0.0
            if other in self.targets:
                squares.append(of_targets / n_targets)
            else:
                squares.append((1 - _COUNT_SQUARE - of_targets) / max(others - n_targets, 1))
        return np.sqrt(squares)

    def query(self, frame, unit_sizes=None):
        """Count the rows of a frame: a BoundedSum of the cells of the tables, see `joint_histogram`."""
        codes = dict(zip(self.blocks, self.encoder.codes(frame).T.astype(np.int64)))
        return joint_histogram(
            _Cells(codes, self.columns, self._pairs, self._cells), self._sizes, self.weights, unit_sizes
        )

    def groups(self, noisy, noise_sd, most=MOST_GROUPS, room=None):
        """Form groups from the released counts.

        `noisy`: `query` with noise.
        `noise_sd`: standard deviation of the noise on a count of weight 1.
        `most`: most groups of a column, beside those of "other" and of missing values. Declared groups without groups
            in them may be more.
        `room`: the same for single columns, in which the largest levels are alone in half of the groups. Of declared
            groups, the smallest ones beyond it are joined.
        """
        tables = split_histogram(noisy, self._sizes)
        sds = noise_sd / self.weights
        n_columns, found = len(self.columns), {}
        for i, name in enumerate(self.columns):
            column, n = self.encoder.schema_[name], self.blocks[name].size
            if column.hierarchy is not None:
                sizes = posterior_sizes(tables[i], sds[i])
                found[name] = _of_hierarchy(column, sizes, most, (room or {}).get(name))
                continue
            profiles = [
                (table.reshape(n, -1), sd)
                for (of, _), table, sd in zip(self._pairs, tables[n_columns:], sds[n_columns:])
                if of == name
            ]
            own = (room or {}).get(name)
            limits = (most, 0) if own is None else (own, own // 2)
            found[name] = _grouped(column, tables[i], sds[i], profiles, *limits)
        return found


class _Cells:
    """Cells of the rows in each table, one table at a time: those of all pairs of columns would take much memory."""

    def __init__(self, codes, columns, pairs, coarse):
        self._codes, self._columns, self._pairs, self._coarse = codes, columns, pairs, coarse

    def __len__(self):
        return len(self._columns) + len(self._pairs)

    def __iter__(self):
        for name in self._columns:
            yield self._codes[name]
        for name, other in self._pairs:
            cells = self._coarse[other]
            yield self._codes[name] * (cells.max() + 1) + cells[self._codes[other]]


def _grouped(column, counts, sd, profiles, most, n_alone):
    """Groups of the levels of one column from released counts and profiles; the `n_alone` largest levels are alone."""
    levels = column_levels(column)
    alone = np.array([level is None or (column.other is not None and level == column.other) for level in levels])
    sizes = posterior_sizes(counts, sd)
    own = np.flatnonzero(~alone)
    places = _places(sizes[own], [(table[own], noise) for table, noise in profiles])
    labels = _clusters(places, np.maximum(sizes[own], 1e-9), most, n_alone)
    # numbered by their first level
    first = np.unique(labels, return_index=True)[1]
    rank = np.empty(labels.max() + 1, dtype=np.int64)
    rank[np.unique(labels)[np.argsort(first)]] = np.arange(len(first))
    group = np.empty(len(levels), dtype=np.int64)
    group[own] = rank[labels]
    group[alone] = len(first) + np.arange(np.count_nonzero(alone))
    return _with_sizes(group, sizes)


def _with_sizes(group, sizes):
    mass = sizes / max(sizes.sum(), 1e-12)
    return LevelGroups(tuple(group.tolist()), tuple(mass.tolist()))


def _of_hierarchy(column, sizes, most, room=None):
    """Declared groups of the levels of a column: divided up to `most` of them where they have groups.

    Of more than `room`, the smallest by released sizes are joined.
    """
    group, n_categories = np.array(declared_groups(column)), len(column.categories)
    if has_subgroups(column):
        group = np.array(divided_groups(column, sizes, most if room is None else min(most, room)))
    n_groups = len(np.unique(group[:n_categories]))
    if room is not None and n_groups > room:
        totals = np.bincount(group[:n_categories], sizes[:n_categories])
        rank = np.empty(n_groups, dtype=np.int64)
        rank[np.argsort(-totals, kind="stable")] = np.arange(n_groups)
        group[:n_categories] = np.minimum(rank[group[:n_categories]], room - 1)
        group[n_categories:] += room - n_groups
    return _with_sizes(group, sizes)


def _clusters(places, weights, most, n_alone=0):
    """Cluster of each place, at most so many; the same in every process. Those of the largest weights are alone."""
    if n_alone:
        order = np.argsort(-weights, kind="stable")
        labels = np.empty(len(places), dtype=np.int64)
        labels[order[:n_alone]] = np.arange(min(n_alone, len(places)))
        labels[order[n_alone:]] = n_alone + _clusters(places[order[n_alone:]], weights[order[n_alone:]], most - n_alone)
        return labels
    if not places.shape[1]:  # the noise hides all differences
        return np.zeros(len(places), dtype=np.int64)
    from sklearn.cluster import KMeans  # 200 ms, which fits without such columns need not wait for

    n_clusters = min(most, len(np.unique(places, axis=0)))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of places that are nearly equal: fewer clusters will do
        means = KMeans(n_clusters, n_init=2, max_iter=50, random_state=0)
        return means.fit(places, sample_weight=weights).labels_


def posterior_sizes(counts, sd):
    """Expected numbers of rows given noisy ones, by the distribution of sizes under which these are most likely.

    Few large categories among many empty ones, and thousands of about equal size, are both usual: the distribution of
    the sizes (the nonparametric maximum likelihood estimate on a grid, by EM) tells them apart.
    """
    counts = np.asarray(counts, dtype=np.float64)
    if sd == 0:
        return np.maximum(counts, 0.0)
    top = max(counts.max(), sd)
    support = np.concatenate([[0.0], np.geomspace(min(sd / 8, top / 2), top, _SIZES)])
    likelihood = -0.5 * ((counts[:, None] - support) / sd) ** 2
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    weights = np.full(len(support), 1 / len(support))
    for _ in range(_STEPS_OF_SIZES):
        joint = likelihood * weights
        weights = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
    joint = likelihood * weights
    return (joint @ support) / joint.sum(axis=1)


def _places(sizes, profiles):
    """Expected profiles of levels, where they differ by more than the noise.

    The counts of a level of n rows are n times its profile, and the noise. In units of the noise, directions in which
    profiles differ are eigenvectors of the counts' second moments, and noise alone has eigenvalues below a known edge.
    Along each of the others a profile is drawn towards the mean, the more so the fewer rows its level has.
    """
    if not profiles:
        return np.zeros((len(sizes), 0))
    parts, scales = [], []
    for table, sd in profiles:
        mean = np.maximum(table.sum(axis=0), 0.0)
        mean = mean / mean.sum() if mean.sum() > 0 else np.full(len(mean), 1 / len(mean))
        sd = max(sd, _LEAST_NOISE)
        parts.append((table - sizes[:, None] * mean) / sd)
        # distances are those of chi-squared, in which rare cells count more, up to a point
        scales.append(sd / np.sqrt(np.maximum(mean, _RARE)))
    residual, scale = np.concatenate(parts, axis=1), np.concatenate(scales)
    n, d = residual.shape
    values, vectors = np.linalg.eigh(residual.T @ residual - n * np.eye(d))
    kept = np.flatnonzero(values > 2 * (n * d) ** 0.5 + d)[-_DIRECTIONS:]
    signal, along = values[kept] / max((sizes**2).sum(), 1e-12), vectors[:, kept]
    shrunk = sizes[:, None] * signal / (sizes[:, None] ** 2 * signal + 1)
    # in the basis of the directions after scaling: as far apart as in all cells, with fewer coordinates
    return (residual @ along) * shrunk @ np.linalg.qr(scale[:, None] * along, mode="r").T
