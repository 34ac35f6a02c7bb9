"""Synthetic units of several rows: their columns and their number of rows, and rows given the columns of their unit.

Two models make them. That of units is fitted to the released tables of units: of the columns that are constant within
a unit, and of its number of rows. That of rows is the model of the table. A synthetic unit is drawn from the first; its
rows are drawn from the second, given the columns of the unit, independently but for balanced counts of all rows. All of
it is post-processing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from numbers import Integral
from types import SimpleNamespace

import numpy as np
import pandas as pd

from ..mechanisms import likeness, size_starts
from ..tabular import Categorical, Datetime, Numeric
from ..tabular._frames import numeric_values
from ..utils.printing import listed, shown
from .balanced_rows import draw_levels
from .constraints import draw_kept, joined, keep_constraints, unsatisfied
from .product_mixture import ProductMixture, TableModel, consistent_marginals, fit_tables

# Correlation that the noise of a two-way table must not exceed: above it, the two columns are independent in the model.
_SEEN = 0.4
# Least probability of a level of a unit at a support point of the rows: a level that the rows lack excludes no point.
_SMALLEST = 1e-9
# Pairs of rows that are drawn to see how alike they are, and how often.
_PAIRS, _ROUNDS = 4000, 8
# Entries of a matrix of units and support points that are in memory at once.
_MOST_ENTRIES = 1 << 22
# Units that are drawn in vain before an error is raised: so many, and so many for each unit that satisfies the
# constraints.
_MOST_IN_VAIN, _IN_VAIN = 200, 20


@dataclass(frozen=True, eq=False)
class UnitModel:
    """Released state of synthetic units."""

    name: object  # column name; of the identifiers, in a sample
    # column names; that are constant within a synthetic unit; those that constraints construct are constructed from one
    # another
    columns: tuple
    max_rows: int  # most rows of a unit
    # of units: one block for each of `columns` that the model of rows sees, then that of the number of rows
    latent: TableModel
    shared: tuple = ()  # column names; in which the rows of a unit are more alike than those of two units
    # of each of them, the probability that a row has the level of the hidden row of its unit; see
    # `RowsOfUnits`
    copied: tuple = ()

    @property
    def starts(self):
        """Least number of rows of each of its levels."""
        return size_starts(self.max_rows)

    @property
    def n_units(self):
        """Released number of units."""
        return max(float(self.latent.class_counts.sum()), 1.0)

    @property
    def size_shares(self):
        """Released share of the units at each level of the number of rows."""
        shares = self.latent.mixture(0)[:, -len(self.starts) :].mean(axis=0, dtype=np.float64)
        return shares / shares.sum()

    @property
    def mean_size(self):
        """Mean number of rows of a synthetic unit."""
        ends = np.append(self.starts[1:], self.max_rows + 1)
        return float(self.size_shares @ ((self.starts + ends - 1) / 2))

    def sample(self, n_units, rng):
        """Draw the levels of the columns of units, shape (n_units, n_columns), and their numbers of rows."""
        codes = self.latent.sample(np.zeros(n_units, dtype=np.int64), rng)
        ends = np.append(self.starts[1:], self.max_rows + 1)
        level = codes[:, -1]
        return codes[:, :-1], rng.integers(self.starts[level], ends[level])

    def to_state(self):
        """Return plain values and arrays for a release file."""
        kept = {"name": self.name, "columns": list(self.columns), "max_rows": self.max_rows}
        shared = {"shared": list(self.shared), "copied": list(self.copied)} if self.shared else {}
        return {**kept, "model": self.latent.to_state(), **shared}

    @classmethod
    def from_state(cls, state, codec):
        """Rebuild from `to_state`; ValueError where it does not fit the codec of the rows."""
        columns, most = tuple(state["columns"]), state["max_rows"]
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= 1 << 16:
            raise ValueError("the most rows of a unit must be a whole number from 1 to 65536")
        if isinstance(state["name"], bool) or not isinstance(state["name"], str | int):
            raise ValueError("the name of the identifiers of units must be text or a whole number")
        known = codec.drawn_schema
        if state["name"] in codec.schema or len({n for n in columns if n in known}) < len(columns):
            raise ValueError("the columns of units must be those of the rows, each once")
        if codec.construction is not None and not codec.construction.separates(columns):
            raise ValueError("the columns of units must be constructed from one another alone")
        latent = TableModel.from_state(state["model"])
        levels = [codec.encoder.blocks_[i].size for i in codec.places(columns)]
        if list(latent.n_levels) != [*levels, len(size_starts(most))] or np.shape(latent.class_counts) != (1,):
            raise ValueError("the tables of units do not fit the columns of the rows")
        shared, copied = tuple(state.get("shared", ())), tuple(state.get("copied", ()))
        seen = [name for name in codec.encoder.schema_.names if name not in columns]
        if len({name for name in shared if name in seen}) < len(shared) or len(copied) != len(shared):
            raise ValueError("the columns that rows of units share must be others of the rows, each once")
        if not all(isinstance(p, float) and 0 <= p <= 1 for p in copied):
            raise ValueError("the shares of rows of units that are alike must be numbers from 0 to 1")
        return cls(state["name"], columns, most, latent, shared, copied)


def fit_units(released, noise_sd, contrasts, codec, columns, rng):
    """Fit a model to the released tables of units: post-processing.

    `released`, `noise_sd`: tables in contrasts, and the standard deviation of the noise on each. `codec`: of the rows.
    """
    blocks = [codec.encoder.blocks_[i] for i in codec.places(columns)]
    n_sizes = contrasts.n_levels[-1]
    optional = np.concatenate([*(codec.optional(block) for block in blocks), np.zeros(n_sizes, dtype=bool)])
    if released.pairs is not None:
        released = released._replace(pairs=_without_hidden(released, noise_sd, contrasts, optional))
    undrawn = np.concatenate([*(codec.undrawn(block) for block in blocks), np.zeros(n_sizes, dtype=bool)])
    return fit_tables(released, noise_sd, contrasts, rng, optional=optional, undrawn=undrawn)


def _without_hidden(released, noise_sd, contrasts, optional):
    """The interactions of columns; where noise would hide a correlation, two columns are as if independent."""
    counts, marginals, _ = consistent_marginals(released, noise_sd, contrasts, optional)
    pairs, share = released.pairs.copy(), marginals[0]
    centred = share @ contrasts.matrix
    levels = [slice(*ends) for ends in itertools.pairwise(contrasts.level_starts)]
    own = [slice(*ends) for ends in itertools.pairwise(contrasts.starts)]
    for (one, a), (other, b) in itertools.combinations(zip(levels, own), 2):
        if a.start == a.stop or b.start == b.stop:
            continue
        # of a table with equally frequent levels, see `plan_bins`; rare levels make it smaller in effect
        effective = np.prod([np.exp(-np.sum(p * np.log(np.maximum(p, 1e-300)))) for p in (share[one], share[other])])
        roots = (one.stop - one.start) ** 0.5 + (other.stop - other.start) ** 0.5
        noise = noise_sd.pairs[0, a.start, b.start] * roots * effective**0.5
        if noise > _SEEN * max(counts[0], 1.0):
            pairs[0, a, b] = counts[0] * np.outer(centred[a], centred[b])
            pairs[0, b, a] = pairs[0, a, b].T
    return pairs


def fit_shared(model, shared, alike, rng):
    """Let the rows of a synthetic unit be as alike as was released: post-processing.

    `model`: with `units`. `alike` (n_shared,): mean `likeness` of two rows of a unit.

    Two rows are equal in a column if both copy it, with probability p^2. Others are alike by chance, as much as pairs
    drawn from the model show. That depends on what else is copied, so p is found in a few rounds: half a step in each,
    because the columns would else overtake one another.
    """
    units, both = replace(model.units, shared=shared, copied=(0.0,) * len(shared)), np.zeros(len(shared))
    for _ in range(_ROUNDS):
        copied, found = UnitSampler(model, [], units).pairs(_PAIRS, rng)
        by_chance = (found * ~copied).sum(axis=0) / np.maximum((~copied).sum(axis=0), 1)
        both = (both + np.clip((alike - by_chance) / np.maximum(1 - by_chance, 1e-9), 0.0, 1.0)) / 2
        units = replace(units, copied=tuple((both**0.5).tolist()))
    return units


class _Points(ProductMixture):
    """Support points of all classes of a model of rows together: every column is a block, the targets too.

    `p` (n_points, n_columns_encoded): probability of each level, in the order of ``codec.encoder.blocks_``. `weights`:
    shape (n_points,).
    """

    def __init__(self, model):
        codec, latent = model.codec, model.latent_model
        blocks, targets = codec.encoder.blocks_, codec.places(codec.targets)
        self.n_levels = np.array([block.size for block in blocks], dtype=np.int64)
        counts = np.maximum(np.asarray(latent.class_counts, dtype=np.float64), 0.0)
        shares = counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))
        levels = np.unravel_index(np.arange(len(counts)), codec.class_shape) if targets else ()
        parts, weights = [], []
        for k in np.flatnonzero(shares):
            mixture = latent.mixture(k)
            own = iter(np.split(mixture, np.cumsum(latent.n_levels)[:-1], axis=1))
            of_class = {
                at: np.eye(self.n_levels[at], dtype=mixture.dtype)[level[k]] for at, level in zip(targets, levels)
            }
            row = [
                np.broadcast_to(of_class[i], (len(mixture), len(of_class[i]))) if i in of_class else next(own)
                for i in range(len(blocks))
            ]
            parts.append(np.concatenate(row, axis=1))
            weights.append(np.full(len(mixture), shares[k] / len(mixture)))
        self.p, self.weights = np.concatenate(parts), np.concatenate(weights)

    def given(self, at, codes):
        """Draw support points by the levels `codes` of the columns `at`.

        Returns a function: uniform numbers, shape (n_rows,), and the row of `codes` of each -> support points. A code
        of -1 is any level.
        """
        kinds, which = (
            np.unique(codes, axis=0, return_inverse=True) if len(at) else (codes[:1], np.zeros(len(codes), int))
        )
        which, size = which.ravel(), len(self.p)
        logs = [
            np.log(np.maximum(self.p[:, s : s + n], _SMALLEST)) for s, n in zip(self.offsets[at], self.n_levels[at])
        ]

        def draw(uniform, units):
            points = np.empty(len(units), dtype=np.int64)
            own, kind = np.unique(which[units], return_inverse=True)
            step = max(1, _MOST_ENTRIES // size)
            for start in range(0, len(own), step):
                part = kinds[own[start : start + step]]
                chance = np.zeros((len(part), size))
                for j, log in enumerate(logs):
                    chance += np.where(part[:, j, None] < 0, 0.0, log[:, part[:, j]].T)
                chance = self.weights * np.exp(chance - chance.max(axis=1, keepdims=True))
                rows = np.flatnonzero((kind >= start) & (kind < start + step))
                points[rows] = draw_levels(chance, kind[rows] - start, uniform[rows])
            return points

        return draw

    def sample_at(self, points, rng):
        """Draw level codes of all columns of rows with given support points."""
        order = np.argsort(points, kind="stable")
        codes = np.empty((len(points), len(self.n_levels)), dtype=np.int64)
        codes[order] = self._draw(self.p, points[order], rng)
        return codes


class RowsOfUnits:
    """A model of the rows of some synthetic units, for `keep_constraints`: a component is a unit.

    `at`: places of the columns of units.
    `codes` (n_units, n_columns): their levels.
    `values`: their values, which all rows of a unit have.
    `shared`: places of the columns in which rows of a unit are alike.
    `copied` (n_shared,): probability that a row copies one of these levels.

    Each unit has a hidden row, drawn from the model given its columns. A row copies the level of each shared column
    from it, or not, by independent draws, and has the other levels from the model given its columns and what was
    copied. So each row alone has the distribution of the model, however much is copied: the hidden row has it, and what
    is copied does not depend on the levels. The rows of a unit are exchangeable.

    `constraints`: that hidden rows satisfy too. Where none does, `hopeless` (n_units,) is True; `hopeless_rows` are
    hidden rows of these units.
    """

    def __init__(self, codec, points, at, codes, values, shared, copied, rng, constraints=()):
        self.codec, self._points, self._at, self._codes, self._values = codec, points, at, codes, values
        self._draw_points, self._shared, self._copied = points.given(at, codes), shared, np.asarray(copied)
        self.hopeless, self.hopeless_rows = np.zeros(len(codes), dtype=bool), None
        if shared:
            self._hidden = self._hidden_levels(constraints, rng)[:, shared]

    def _hidden_levels(self, constraints, rng):
        units = np.arange(len(self._codes))
        if not constraints:
            return self._levels(units, self._draw_points, rng)
        model = _WithLevels(lambda units: self._free_rows(units, rng), self.codec.drawn_schema)
        rows, broken = draw_kept(model, constraints, units, True, rng)
        levels, values = model.parts(rows)
        self.hopeless[broken], self.hopeless_rows = True, values.iloc[broken]
        return levels

    def _free_rows(self, units, rng):
        codes = self._levels(units, self._draw_points, rng)
        return codes, joined(self._decoded(codes, units, rng), self.codec.drawn_schema.names)

    def _levels(self, units, draw_points, rng):
        codes = self._points.sample_at(draw_points(rng.random(len(units)), units), rng)
        codes[:, self._at] = self._codes[units]
        return codes

    def draw(self, units, rng):
        """Levels of rows of given units, and which of the shared ones are copied, shape (n_rows, n_shared)."""
        if not self._shared:
            return self._levels(units, self._draw_points, rng), np.zeros((len(units), 0), dtype=bool)
        copies, hidden = rng.random((len(units), len(self._shared))) < self._copied, self._hidden[units]
        known = np.column_stack([self._codes[units], np.where(copies, hidden, -1)])
        given = self._points.given([*self._at, *self._shared], known)
        codes = self._levels(units, lambda uniform, _: given(uniform, np.arange(len(uniform))), rng)
        codes[:, self._shared] = np.where(copies, hidden, codes[:, self._shared])
        return codes, copies

    def sample(self, units, rng):
        """A frame, or (frame, y), of rows of given units."""
        codes, _ = self.draw(units, rng)
        return self._decoded(codes, units, rng)

    def _decoded(self, codes, units, rng):
        exact = {name: self._values[name].iloc[units] for name in self._values.columns}
        return self.codec.decode(*self.codec.split(codes), rng, exact=exact)


class UnitSampler:
    """Draws synthetic units and their rows.

    `model`: with `units`. `constraints`: of rows that are drawn again, for `keep_constraints`. `units`: in place of
    that of the model.
    """

    def __init__(self, model, constraints, units=None):
        self._codec, self._units = model.codec, model.units if units is None else units
        self._points, self._at = _Points(model), self._codec.places(self._units.columns)
        self._shared = self._codec.places(self._units.shared)
        known = set(self._units.columns)
        self._of_units = [c for c in constraints if set(getattr(c, "columns", ())) <= known and hasattr(c, "columns")]
        self._of_rows = [c for c in constraints if c not in self._of_units]

    def sample(self, n_units, rng, most_rows=None):
        """Draw units; return their rows, a frame or (frame, y), and the unit of each row, 0 to ``n_units - 1``.

        Of each unit at most `most_rows` rows are drawn; None is all.
        """
        if self._of_rows:
            return self._sample_kept(n_units, rng, most_rows)
        rows, units = self._rows(n_units, rng, most_rows)
        return rows.sample(units, rng), units

    def _rows(self, n_units, rng, most_rows):
        """The model of the rows of some units that are drawn, and the unit of each row."""
        codes, sizes, values = self._draw_units(n_units, rng)
        rows = self._rows_of(codes, values, rng, self._of_rows)
        return rows, np.repeat(np.arange(n_units), sizes if most_rows is None else np.minimum(sizes, most_rows))

    def _sample_kept(self, n_units, rng, most_rows):
        """Draw units with rows that satisfy the constraints: a unit of which a row never does is drawn again, whole."""
        kept, wanted, in_vain = [], np.arange(n_units), 0
        while len(wanted):
            rows, units = self._rows(len(wanted), rng, most_rows)
            units, lost = units[~rows.hopeless[units]], rows.hopeless.copy()
            whole, broken = draw_kept(rows, self._of_rows, units, True, rng)
            lost[units[broken]] = True
            good = ~lost[units]
            kept.append((whole[good], wanted[units[good]]))
            in_vain, wanted = in_vain + lost.sum(), wanted[lost]
            if len(wanted) and in_vain > _MOST_IN_VAIN + _IN_VAIN * (n_units - len(wanted)):
                which = f"{in_vain} of {in_vain + n_units - len(wanted)} units that were drawn have rows that"
                rest = whole.iloc[broken] if len(broken) else rows.hopeless_rows
                raise unsatisfied(rows, self._of_rows, rest, which)
        units = np.concatenate([own for _, own in kept])
        order = np.argsort(units, kind="stable")
        whole = pd.concat([frame for frame, _ in kept], ignore_index=True).iloc[order].reset_index(drop=True)
        return self._codec.part(whole), units[order]

    def _rows_of(self, codes, values, rng, constraints=()):
        shared = self._shared, self._units.copied
        return RowsOfUnits(self._codec, self._points, self._at, codes, values, *shared, rng, constraints)

    def pairs(self, n_units, rng):
        """Of two rows of units that have two: which shared levels both copy, and how alike they are.

        Returns `copied` (n_units, n_shared); `alike` (n_units, n_shared): see `likeness`.
        """
        codes, sizes = self._units.sample(4 * n_units, rng)
        codes = codes[sizes > 1][:n_units]
        codes = codes if len(codes) else self._units.sample(n_units, rng)[0]
        rows = self._rows_of(codes, None, rng)
        drawn = [rows.draw(np.arange(len(codes)), rng) for _ in range(2)]
        (one, by_one), (other, by_other) = ((levels[:, self._shared], copies) for levels, copies in drawn)
        return by_one & by_other, likeness(one, other, self._codec.n_bins(self._units.shared))

    def _draw_units(self, n_units, rng):
        """Levels, numbers of rows and values of the columns of units, which satisfy the constraints on them alone."""
        model = _WithLevels(lambda units: self._draw_freely(len(units), rng), self._codec.drawn_schema)
        if self._of_units:
            drawn = keep_constraints(model, self._of_units, np.zeros(n_units, dtype=np.int64), True, rng)
        else:
            drawn = model.sample(np.zeros(n_units, dtype=np.int64), rng)
        levels, values = model.parts(drawn)
        return levels[:, :-1], levels[:, -1], values

    def _draw_freely(self, n_units, rng):
        codes, sizes = self._units.sample(n_units, rng)
        return np.column_stack([codes, sizes]), self._values(codes, rng)

    def _values(self, codes, rng):
        """Values of the columns of units with given levels."""
        full = np.zeros((len(codes), len(self._codec.encoder.blocks_)), dtype=np.int64)
        full[:, self._at] = codes
        return self._codec.decode_columns(full, self._units.columns, rng)


class _WithLevels:
    """Rows of values with levels in further columns, for `draw_kept`.

    `draw`: components -> levels, values. `schema`: of the rows.
    """

    _MARK = "\0level "  # no column of a table begins with it

    def __init__(self, draw, schema):
        self._draw = draw
        self.codec = SimpleNamespace(drawn_schema=schema, part=lambda frame: frame)

    def sample(self, components, rng):
        levels, values = self._draw(components)
        return pd.concat([values, pd.DataFrame(levels, index=values.index).add_prefix(self._MARK)], axis=1)

    def parts(self, frame):
        """Levels and values."""
        marked = [isinstance(name, str) and name.startswith(self._MARK) for name in frame.columns]
        return frame.loc[:, marked].to_numpy(np.int64), frame.loc[:, np.logical_not(marked)]


def column_of_order(schema, constant, name=None):
    """Return the column by which the rows of a synthetic unit are sorted, or None where they are as drawn.

    `schema`: of the rows. `constant`: names of the columns of units. `name`: of the column; None is the first column of
    dates that is no column of units.
    ValueError: the column has no order, or is the same in all rows of a unit.
    """
    own = schema.names
    if name is None:
        dates = (schema[name] for name in own if name not in constant and isinstance(schema[name], Datetime))
        return next(dates, None)
    if not isinstance(name, str | Integral) or name not in own:
        raise ValueError(f"order_by= names {shown(name)}, which is no column of the rows: {listed(own, 20)}")
    column = schema[name]
    if name in constant:
        raise ValueError(f"order_by= names {name!r}, which is the same in all rows of a unit")
    if not isinstance(column, Numeric | Datetime) and not getattr(column, "ordered", False):
        raise ValueError(
            f"order_by= names {name!r}, whose values have no order: it takes dates, numbers, and categories that are "
            "declared with ordered=True"
        )
    return column


def in_order(rows, units, column):
    """Sort the rows of each unit by a column, missing values last: post-processing of exchangeable rows.

    `rows`: a frame, or (frame, y). `units` (n_rows,): unit of each row, in ascending order. `column`: of a schema.
    """
    frame, *y = rows if isinstance(rows, tuple) else (rows,)
    series = frame[column.name]
    if isinstance(column, Categorical):
        ranks = series.cat.codes.to_numpy(dtype=np.float64, copy=True)
        ranks[ranks < 0] = np.inf
    else:
        ranks = numeric_values(series, column)
    order = np.lexsort([np.where(np.isnan(ranks), np.inf, ranks), units])
    frame = frame.iloc[order].set_axis(frame.index)
    y = [part.iloc[order].set_axis(part.index) if hasattr(part, "iloc") else part[order] for part in y]
    return (frame, *y) if y else frame


def with_ids(rows, ids, name):
    """Insert the identifiers of synthetic units as the first column of a frame, or of the frame of (frame, y)."""
    frame, *y = rows if isinstance(rows, tuple) else (rows,)
    frame = frame.copy(deep=False)
    frame.insert(0, name, ids)
    return (frame, *y) if y else frame
