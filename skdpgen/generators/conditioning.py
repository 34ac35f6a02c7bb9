"""Models conditioned on the values of some columns: `sample(given=...)` for tables and for arrays."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
import pandas as pd

from ..data.frame_codec import FrameCodec
from ..tabular import Binning, Boolean, Categorical, Datetime, TableEncoder
from ..tabular._columns import ISO_DATE
from ..tabular._formats import form_of
from ..tabular._frames import level_codes, numeric_bounds, numeric_values, restore
from ..utils.printing import listed, shown
from .components import spread_components
from .gaussians import class_weights, full_covariances
from .product_mixture import root

_TINY = np.finfo(np.float64).tiny


# ---- tables --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Conditions:
    """The values given for some columns, as a mixture of product distributions takes them."""

    # (n_columns_encoded,); share of each level of the blocks within a class that fulfils the conditions
    levels: np.ndarray
    classes: np.ndarray  # (n_classes,); 1 for the classes that fulfil them, 0 for others; of shape (1,) without classes
    codec: FrameCodec  # its bins are cut to the values given
    exact: dict  # column name -> the one value given, in the dtype of the column


def _conditions(codec, given):
    """The conditions on what the model sees, and those on columns that constraints construct."""
    schema, seen, construction = _schema_of(codec, given), codec.encoder.schema_, codec.construction
    changed = () if construction is None else construction.changed
    blocks, groups = {block.name: block for block in codec.encoder.blocks_}, dict(codec.encoder.groups_)
    of_column = {name: codec.encoder.levels_of(name) if name in groups else b.levels for name, b in blocks.items()}
    levels = {name: np.ones(len(of)) for name, of in of_column.items()}
    binnings, exact, left = dict(codec.encoder.binnings_), {}, []
    for name, wanted in given.items():
        column = schema[name]
        if name in changed:
            condition = _Wanted(column, wanted)
            if (merged := construction.merged_with(name)) is None:
                left.append(condition)
                _narrow(levels, binnings, of_column, condition, construction, seen, given)
            else:
                levels[merged] *= construction.shares(name, seen, of_column[merged], condition.of_values)
        elif isinstance(column, Categorical | Boolean):
            levels[name] = _level_shares(wanted, of_column[name], name)
        else:
            levels[name], binnings[name], value = _bin_shares(wanted, column, binnings[name])
            if value is not None:
                exact[name] = restore(np.array([value]), column)
    for name in groups:
        levels[name], groups[name] = groups[name].given(levels[name])
    classes = np.ones(1)
    for name in codec.targets:
        classes = np.outer(classes, levels[name]).ravel()
    flat = np.concatenate([np.zeros(0), *(levels[block.name] for block in codec.blocks)])
    cut = replace(codec, encoder=TableEncoder(seen, binnings=binnings, groups=groups).fit())
    return _Conditions(flat, classes, cut, exact), left


def _narrow(levels, binnings, of_column, condition, construction, seen, given):
    """Cut what the model sees to what a condition on a constructed column needs: fewer rows are drawn again."""
    name = condition.column.name
    found = construction.implied(name, condition.allows, *condition.range, seen)
    if found is None or (found[0] != name and found[0] in given):
        return
    at, low, high = found
    if isinstance(seen[at], Categorical | Boolean):
        levels[at] *= condition.of_values(of_column[at])
        return
    if low is not None:
        share, binnings[at] = _cut(binnings[at], low, high)
        levels[at][: len(share)] *= share


def _schema_of(codec, given):
    if not isinstance(given, Mapping) or not given:
        raise ValueError("given must be a dict of column name -> value, with at least one column")
    schema = codec.drawn_schema
    if unknown := [repr(name) for name in given if name not in schema]:
        raise ValueError(
            f"given names columns that the model does not have: {', '.join(unknown)}; it has {listed(schema.names)}"
        )
    return schema


class _Wanted:
    """A condition of `given` on rows that are drawn: for columns whose distribution the model does not hold."""

    def __init__(self, column, wanted):
        self.column, self.range = column, (None, None)
        if isinstance(column, Categorical | Boolean):
            levels = (*column.values, None) if column.missing else column.values
            self._shares = _level_shares(wanted, levels, column.name)
            self._levels = [level for level, share in zip(levels, self._shares) if share]
        else:
            self.range = _range(wanted, column) or (None, None)

    def holds(self, frame):
        """Return which rows fulfil the condition, bool array."""
        series = frame[self.column.name]
        if isinstance(self.column, Categorical | Boolean):
            return self._shares[level_codes(series, self.column)] > 0
        values = numeric_values(series, self.column)
        return np.isnan(values) if self.range[0] is None else (values >= self.range[0]) & (values <= self.range[1])

    def allows(self, value):
        """Whether a value fulfils the condition; None is missing."""
        if isinstance(self.column, Categorical | Boolean):
            return value in self._levels
        if value is None or self.range[0] is None:
            return value is None and self.range[0] is None
        return self.range[0] <= _number(value, self.column) <= self.range[1]

    def of_values(self, values):
        """1 for the values of a list that fulfil the condition, 0 for others."""
        return np.array([self.allows(value) for value in values], dtype=float)


def conditions_on_units(model, given):
    """Return the conditions of `given` on synthetic units, for `UnitSampler`: on columns of units alone.

    `model`: with `units`. ValueError for other columns, and for values that the model does not have.
    """
    schema, known = _schema_of(model.codec, given), model.units.columns
    if of_rows := [name for name in given if name not in known]:
        raise ValueError(
            f"given= with units= is for columns of units, {listed(known) if known else 'of which this fit has none'} "
            f"(columns= of PrivacyUnit); {of_rows[0]!r} differs between the rows of a unit: leave out units=, or "
            "choose among the units that were drawn"
        )
    conditions = [_Wanted(schema[name], wanted) for name, wanted in given.items()]
    for condition in conditions:
        condition.columns = (condition.column.name,)  # by which a sampler tells them from conditions on rows
    return conditions


class FramesChecked:
    """A model of tables whose rows are drawn again until they have the values given for some columns.

    `model`: with a mixture or a network, which hold no distribution given a value. `given`: as for `FramesGiven`.
    `conditions_left`: for `keep_constraints`.
    """

    def __init__(self, model, given):
        schema = _schema_of(model.codec, given)
        self.codec, self.row_count, self.component_weights = model.codec, model.row_count, model.component_weights
        self.conditions_left = [_Wanted(schema[name], wanted) for name, wanted in given.items()]
        self.sample = model.sample


class FramesGiven:
    """A model of tables, conditioned on the values of some columns.

    `model`: of a released decoder, without mixture and network.
    `given`: column name -> a value; a list or set of values; a pair (low, high) for numbers and dates, None for an open
        end; None for a missing value.
    Raises ValueError: the model does not have a column or a value, or never draws such rows.
    `conditions_left`: conditions on columns that constraints construct, for `keep_constraints`.
    """

    def __init__(self, model, given):
        self._conditions, self.conditions_left = _conditions(model.codec, given)
        self.codec, self.row_count = model.codec, model.row_count
        self._model = model.latent_model
        levels, classes = self._conditions.levels, self._conditions.classes
        chance = self._model.likelihood(levels).mean(axis=1) if len(levels) else 1.0
        weights = model.component_weights * chance
        self._rows = None if model.target_model is None else self._rows_of_classes(model, weights)
        if self._rows is not None:
            weights = self._rows.shares(weights, np.random.default_rng(0))
        self._possible = classes * weights > 0
        self.component_weights = classes * weights
        if not self.component_weights.sum() > 0:
            together = " together" * (len(given) > 1)
            raise ValueError(
                f"the model has no rows with {_in_words(given)}{together}: there are none in the data, or the noise "
                "hides them. Give other values, or fewer columns"
            )

    def sample(self, components, rng):
        """A frame, or (frame, y), of rows of given components."""
        if not self._possible[components].all():
            left = [value for value, possible in zip(self.codec.classes, self._possible) if possible]
            raise ValueError(
                f"y or class_ratio contains classes that given excludes: it leaves {listed(left)}; change one of them"
            )
        codec, exact = self._conditions.codec, self._conditions.exact
        if self._rows is not None:
            return codec.complete(self._rows.sample(components, rng), rng, exact)
        codes = self._model.sample(components, rng, self._conditions.levels)
        return codec.decode(codes, components if self.codec.n_classes else None, rng, exact=exact)

    def _rows_of_classes(self, model, weights):
        conditions = self._conditions

        def draw(classes, rng):
            codes = self._model.sample(classes, rng, conditions.levels)
            return conditions.codec.decode_seen(codes, classes, rng, conditions.exact)

        return RowsOfClasses(model.target_model, model.codec, draw, weights)


def _in_words(given):
    return ", ".join(f"{name!r}: {shown(value)}" for name, value in given.items())


def _level_shares(wanted, levels, name):
    """1 for the levels of a block that are among the values given, 0 for others."""
    values = list(wanted) if isinstance(wanted, list | tuple | Set | np.ndarray | pd.Index | pd.Series) else [wanted]
    share = np.zeros(len(levels))
    for value in values:
        value = None if value is None or (np.ndim(value) == 0 and pd.isna(value)) else value
        at = [i for i, level in enumerate(levels) if level is value or (level is not None and level == value)]
        if not at:
            # an array may be a column of the rows
            asked = f"level of {shown(wanted)}" if hasattr(wanted, "dtype") else f"level {shown(value)}"
            raise ValueError(
                f"given[{name!r}] contains a value that the model does not have: no {asked}; it has "
                f"{listed(levels, 20)}"
            )
        share[at] = 1.0
    return share


def _bin_shares(wanted, column, binning):
    """Share of each bin (and of "missing", if there is one), the bins cut to the values given, and a single value."""
    n_levels = binning.n_bins + bool(column.missing)
    ends = _range(wanted, column)
    if ends is None:
        return np.append(np.zeros(binning.n_bins), 1.0), binning, None
    low, high = ends
    share, cut = _cut(binning, low, high)
    return np.append(share, np.zeros(n_levels - len(share))), cut, low if low == high else None


def _range(wanted, column):
    """Lowest and highest number that are given for a column; None where a missing value is."""
    if wanted is None or (np.ndim(wanted) == 0 and pd.isna(wanted)):
        if not column.missing:
            raise ValueError(
                f"given[{column.name!r}] is missing, which the schema does not allow: give a value within its bounds "
                f"{column.bounds}"
            )
        return None
    pair = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    if len(pair) != 2:
        raise ValueError(f"given[{column.name!r}] must be a value or a pair (low, high); got {shown(wanted)}")
    bounds = numeric_bounds(column)
    low, high = (edge if end is None else _number(end, column) for end, edge in zip(pair, bounds))
    if not bounds[0] <= low <= high <= bounds[1]:
        raise ValueError(
            f"given[{column.name!r}] must lie within its bounds {column.bounds}, lowest first; got {shown(wanted)}"
        )
    return low, high


def _number(value, column):
    if isinstance(column, Datetime) and isinstance(value, str) and not ISO_DATE.match(value):
        raise ValueError(f"given[{column.name!r}]: write the date {value!r} as in 2020-12-31 (ISO 8601)")
    series = pd.Series([value]) if not isinstance(column, Datetime) else pd.Series(pd.to_datetime([value]))
    unbounded = replace(column, bounds=None)  # values outside the bounds are refused, not clipped
    try:
        return float(numeric_values(series, unbounded)[0])
    except ValueError:
        kind = "date" if isinstance(column, Datetime) else "number"
        if form_of(column.dtype) == "time":
            kind = "time of the day, such as datetime.time(9, 30), and no number of seconds"
        raise ValueError(
            f"given[{column.name!r}]: {shown(value)} is no {kind}; give one, or a pair (low, high), None for no limit; "
            f"the column has bounds {column.bounds}"
        ) from None


def _cut(binning, low, high):
    """Share of each bin that lies in [low, high], and the binning without the mass outside."""
    edges, mass = np.array(binning.edges), np.array(binning.mass)
    top = np.floor(high) + 1 if binning.integer else max(np.nextafter(high, np.inf), high + _TINY)
    inside = np.clip([np.ceil(low) if binning.integer else low, top], edges[0], edges[-1])
    starts = np.array(binning.starts)
    width = np.diff(edges)
    empty = np.repeat(binning.bin_mass <= 0, np.diff([*starts, len(mass)]))
    mass = np.where(empty, 1e-12 * width / width.sum(), mass)
    cells = np.unique(np.concatenate([edges, inside]))
    old = np.searchsorted(edges, cells[:-1], side="right") - 1
    part = mass[old] * np.diff(cells) / width[old]
    kept = np.where((cells[:-1] >= inside[0]) & (cells[1:] <= inside[1]), part, 0.0)
    if not kept.any():  # a single value, whose width vanishes beside that of its cell
        at = np.clip(np.searchsorted(cells, low, side="right") - 1, 0, len(part) - 1)
        kept[at] = part[at]
    first = np.searchsorted(cells, edges[starts])
    share = np.add.reduceat(kept, first) / np.maximum(np.add.reduceat(part, first), 1e-300)
    if low == high:  # only the bin that contains it matters
        share = (share > 0).astype(float)
    total = kept.sum()
    return share, Binning(tuple(cells.tolist()), tuple(first.tolist()), tuple((kept / total).tolist()), binning.integer)


# ---- arrays --------------------------------------------------------------------------------------------------------
class ArraysGiven:
    """A model of arrays, conditioned on the values of some columns.

    The values are taken for those of the linear decoder before it clips to the box, with white noise of the model's
    dither (at least a hundredth of the width of the column). Latents given the values are Gaussian, and the likelihood
    of the values under each class changes its share.

    `model`: of a linear generator. `given`: within the bounds.
    """

    def __init__(self, model, given):
        codec, generator = model.codec, model.generator
        self.codec, self.row_count, self._model = codec, model.row_count, model
        self._columns, self._values = _check_array_values(given, codec)
        scaling, at = codec.scaling, self._columns
        target = (self._values - scaling.offset[at]) / scaling.scale[at]
        width = generator.box.width[at]
        noise = np.maximum(generator.dither[:, None], 0.01) ** 2 * np.maximum(width, 1e-12) ** 2
        self._means, posterior, scores = [], [], []
        for k, covariance in enumerate(full_covariances(generator.mixture)):
            seen = generator.gain[k, at, None] * generator.space.basis[at]
            spread = seen @ covariance @ seen.T + np.diag(noise[k])
            pull = np.linalg.solve(spread, seen @ covariance).T
            gap = target - generator.location[k, at]
            self._means.append(pull @ gap)
            posterior.append(covariance - pull @ seen @ covariance)
            scores.append(-0.5 * (gap @ np.linalg.solve(spread, gap) + np.linalg.slogdet(spread)[1]))
        self._roots = [root(covariance) for covariance in posterior]
        scores = np.array(scores).reshape(-1, generator.per_class)
        scores[generator.mixture.weights.reshape(scores.shape) <= 0] = -np.inf  # components without weight
        best = scores.max(axis=1, keepdims=True)  # by class: a user may ask for a class under which values are unlikely
        self._weights = generator.mixture.weights * np.exp(scores - best).ravel()
        self.component_weights = class_weights(self._weights, generator.per_class) * np.exp(best[:, 0] - best.max())

    def sample(self, classes, rng):
        """Rows, or (rows, y), of given classes."""
        generator = self._model.generator
        rows = np.empty((len(classes), len(generator.box.low)), dtype=np.float32)
        components = generator.draw_components(classes, rng, self._weights)
        for k in np.unique(components):
            where = np.flatnonzero(components == k)
            latent = self._means[k] + rng.standard_normal((len(where), len(self._roots[k]))) @ self._roots[k].T
            rows[where] = generator.decode_clipped(k, latent, rng)
        drawn = self.codec.decode(rows, classes, rng)
        rows, *y = drawn if isinstance(drawn, tuple) else (drawn,)
        rows[:, self._columns] = self._values
        return (rows, *y) if y else rows


def _check_array_values(given, codec):
    if not isinstance(given, Mapping) or not given:
        raise ValueError("given must be a dict of column index -> value, with at least one column")
    columns, values = list(given), list(given.values())
    n = codec.n_features
    if not all(isinstance(c, Integral) and not isinstance(c, bool) and 0 <= c < n for c in columns):
        raise ValueError(f"given names the columns of an array by their index, 0 to {n - 1}; got {listed(columns)}")
    if not all(isinstance(v, Real) for v in values):
        got = ", ".join(map(shown, values[:10]))
        raise ValueError(f"given takes one number for each column of an array; got {got}")
    columns, values = np.array(columns, dtype=np.intp), np.array(values, dtype=np.float64)
    low, high = codec.scaling.lower[columns], codec.scaling.upper[columns]
    if (outside := ~((low <= values) & (values <= high))).any():
        k = int(outside.argmax())
        raise ValueError(
            f"given[{columns[k]}]: {values[k]:g} is outside the bounds of its column, {low[k]:g} to {high[k]:g}"
        )
    return columns, values


# ---- rows of given classes, where a model of the target decides the class of each row --------------------------------
# Fewest and most rows of one draw. An error is raised where all draws would need more rows than the third number (a few
# seconds), and than the fourth for each row that is wanted: a covered class has at least a thousandth of the rows.
_FEWEST_ROWS, _MOST_ROWS, _ALL_ROWS, _ROWS_FOR_ONE = 256, 50_000, 500_000, 2_000


class RowsOfClasses:
    """Rows of a table model whose target is drawn by a `TargetModel`.

    The other columns have the distribution of the table model over the covered classes. The class of a row is drawn
    given them. Rows of a wanted class are the drawn rows that have this class. With classes in their released shares,
    the rows have the joint distribution, as the prior of the target's model follows these shares.

    `draw`: class codes, generator -> a frame of what the model sees. `weights` (n_classes,): of the classes under the
    table model.
    """

    def __init__(self, target_model, codec, draw, weights):
        self._model, self._codec, self._draw = target_model, codec, draw
        self._covered = np.zeros(len(weights), dtype=bool)
        self._covered[target_model.classes] = True
        self._weights = np.where(self._covered, weights, 0.0)

    def sample(self, class_codes, rng):
        """A frame of what the model sees, of rows of given classes.

        Raises ValueError: a wanted class has almost no probability.
        """
        own = np.flatnonzero(~self._covered[class_codes])
        frames, places = [self._draw(class_codes[own], rng)], [own]
        wanted = np.flatnonzero(self._covered[class_codes])
        wanted = wanted[np.argsort(class_codes[wanted], kind="stable")]  # by class, and in order within it
        n, most = len(wanted), max(_ALL_ROWS, _ROWS_FOR_ONE * len(wanted))
        rows_left = most
        while len(wanted) and n <= rows_left:
            n = int(np.clip(n, _FEWEST_ROWS, _MOST_ROWS))
            rows_left -= n
            frame = self._draw(spread_components(n, self._weights, rng), rng)
            drawn, chances = self._model.draw(self._codec.seen_values(frame)[0], rng)
            taken, left = _matched(drawn, class_codes[wanted])
            frames.append(self._codec.set_classes(frame.take(taken[0]), drawn[taken[0]], rng))
            places.append(wanted[taken[1]])
            wanted = wanted[left]
            n = self._rows_needed(chances.mean(axis=0), class_codes[wanted])
        if len(wanted):
            rare = self._codec.classes[class_codes[wanted[0]]]
            raise ValueError(
                f"the model of the target draws almost no row of class {rare!r}: {len(wanted):,} of the rows that were "
                f"asked for are not among {most - rows_left:,} drawn ones, and they would need more than {most:,}. Ask "
                "for fewer of them or for other classes, or relax given"
            )
        frames = [frame for frame in frames if len(frame)] or frames[:1]
        order = np.argsort(np.concatenate(places))
        return pd.concat(frames, ignore_index=True).take(order).reset_index(drop=True)

    def _rows_needed(self, shares, wanted):
        """Rows to be drawn until all that are wanted are there, by the shares of the classes in the last draw."""
        if not len(wanted):
            return 0
        classes, counts = np.unique(wanted, return_counts=True)
        share = shares[np.searchsorted(self._model.classes, classes)]
        return float(1.1 * np.max(counts / np.maximum(share, 1e-300)))

    def relabelled(self, class_codes, rng):
        """A frame of rows of the table model, with classes drawn given the other columns."""
        frame = self._draw(class_codes, rng)
        drawn, _ = self._model.draw(self._codec.seen_values(frame)[0], rng)
        return self._codec.set_classes(frame, np.where(self._covered[class_codes], drawn, class_codes), rng)

    def shares(self, weights, rng, n_rows=2_000):
        """Weights of all classes where the target's model draws them, estimated from rows."""
        weights, total = np.array(weights, dtype=np.float64), self._weights.sum()
        if total > 0:
            frame = self._draw(spread_components(n_rows, self._weights, rng), rng)
            chances = self._model.probabilities(self._codec.seen_values(frame)[0]).mean(axis=0)
            weights[self._model.classes] = total * chances
        return weights


def _matched(drawn, wanted):
    """Rows and places that have the same class, one to one, and the places that are left; `wanted` is sorted."""
    rows, places, left = [], [], []
    for code in np.unique(wanted):
        mine, here = np.flatnonzero(drawn == code), np.flatnonzero(wanted == code)
        n = min(len(mine), len(here))
        rows.append(mine[:n])
        places.append(here[:n])
        left.append(here[n:])
    return (np.concatenate(rows), np.concatenate(places)), np.concatenate(left)
