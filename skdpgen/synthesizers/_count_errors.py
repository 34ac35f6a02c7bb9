"""What the noise of a plan means in rows: the smallest category that is kept, and the standard errors of counts.

Everything here follows from the noise of a plan and from public or released facts. A budget plan asks it before a fit,
with assumed sizes in the place of what is to be learned; `summary_` asks it after the fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from pandas.api import types as pdt
from scipy.special import ndtri

from .._types import BoundedSum, unit_of
from ..accounting import PlannedCounts
from ..data.frame_codec import FrameCodec
from ..data.level_groups import error_of_a_level, grouped_columns, groups_above_noise, square_of_levels
from ..data.rows_per_unit import OpenUnit
from ..data.scores import Scores, score_moments
from ..data.table_plan import (
    TableSize,
    correlation_over_noise,
    plan_bins,
    plan_tables,
    prefers_scores,
    size_of_column,
)
from ..generators.target_step import ratio_of_classes
from ..mechanisms import noise_of_mean, selection_threshold
from ..mechanisms._moments import CLASS_COUNT_WEIGHT, CLASS_MEAN_WEIGHT
from ..tabular import Boolean, Categorical, Datetime, Numeric, TableEncoder
from ..tabular._binning import enough_rows, fine_grid
from ..tabular._dtypes import parse_dtype
from ..tabular._learning import are_few
from ..tabular._level_groups import LevelGroups, declared_groups, divided_groups, has_subgroups
from ..tabular._schema_cells import SelectedCounts
from ..utils.callers import warn_user
from ..utils.printing import listed

# Probability with which a category of the size stated is kept.
_KEPT = 0.95
# What a plan assumes of facts that the fit will learn.
ASSUMED_CATEGORIES, ASSUMED_CLASSES = 10, 2
# Releases that a fit may not make: their shares then buy the moments again.
RESPENT = ("numbers", "categories", "ranges", "triples", "target")
# Standard deviations below which a class counts as absent: see `consistent_marginals` and `fit_scores`.
_HIDDEN = 3.0


@dataclass(frozen=True, eq=False)
class CountErrors:
    """Standard deviations of the noise on counts of all rows; NaN where the model is not made of counts.

    Where each unit counts 1, "rows" here and below are units: a unit counts 1, shared by its rows.
    """

    one_way: np.ndarray  # (n_blocks,); of the rows at one level of a column
    # (n_blocks,); of the rows at one level of this column and one of another: the median over the others
    two_way: np.ndarray
    of_class: float  # of the rows of one class
    smallest_class: float  # rows of the smallest class that the noise does not hide with probability .95


def smallest_kept(n_columns, n_selected, noise_multiplier, delta, neighboring, weight=1.0):
    """Number of rows of the smallest category that is kept with probability .95, where categories are learned.

    `n_columns`: columns of which bounds or categories are learned: they share one histogram.
    `n_selected`: counts in it that share the delta of the threshold; see `SelectedCounts`.
    `noise_multiplier`: of that histogram.
    `delta`: of the threshold.
    `weight`: of the count of a category.
    Returns: 0 without noise: every category is kept. A column keeps its 10,000 largest at most, whatever their size, or
        fewer (see `FrameRows.learn`).
    """
    if noise_multiplier == 0 or not n_selected:
        return 0.0
    sd = joint_sd(n_columns, noise_multiplier, neighboring) / weight
    return selection_threshold(sd, delta, n_selected, unit_of(neighboring)) + float(ndtri(_KEPT)) * sd


class KeptSizes(NamedTuple):
    """Rows, or units, of learned categories that are lost and kept; see `kept_sizes`."""

    lost: float  # smaller categories are lost more often than not
    kept: float  # categories of so many are kept with probability .95

    def in_words(self, what="rows"):
        """Return both numbers as a clause."""
        least = f"those of fewer than {self.lost:.0f} {what} are usually lost"
        return f"{least}, those of {self.kept:.0f} or more almost never"


def kept_sizes(n_columns, selected, noise, delta, neighboring):
    """Return the sizes of learned categories that a fit loses and keeps, from its plan alone.

    A category is kept if a noisy count of it is above a threshold. Where the fit may look a second time at columns that
    hide many rows, a category of such a column has a second count, with less noise, and perhaps a third one.

    `n_columns`, `neighboring`: as for `smallest_kept`. `selected`: SelectedCounts of these columns.
    `noise`: noise multipliers of the releases, by label: "schema", and "categories" where there may be a second look;
        with "numbers" there may be a third.
    `delta`: of the thresholds of all looks together.
    Returns None where no categories are learned, or there is no noise.
    """
    if not selected.n or not noise.get("schema"):
        return None
    delta = delta / (2 if "categories" in noise else 1)
    looks = [(n_columns, selected.n, noise["schema"], delta)]
    if "categories" in noise:  # it may be at one column alone
        again = [noise[label] for label in ("categories", "numbers") if label in noise]
        looks.append((1, selected.fewest, sum(z**-2.0 for z in again) ** -0.5, delta / len(again)))
    unit, most = unit_of(neighboring), selected.largest
    lost = min(selection_threshold(joint_sd(n, z, neighboring) / most, d, n_own, unit) for n, n_own, z, d in looks)
    return KeptSizes(lost, smallest_kept(*looks[0][:3], delta, neighboring, selected.least))


def seen_by_tables(codec, noise_multiplier, neighboring, n_rows):
    """Return the smallest correlation that the noise of two-way tables would not hide: see `plan_bins`.

    `noise_multiplier`: of the moments. `n_rows`: released number of rows. Returns: infinite where two-way tables would
    be left out.
    """
    relative = noise_multiplier * _weight(neighboring)
    return plan_bins(TableSize.of(codec.encoder.schema_, codec.targets, n_rows, relative))[1]


def smallest_seen(codec, seen, noise_multiplier, neighboring, n_rows):
    """Return the smallest correlation that the noise of two-way tables, or of sides, does not hide.

    Of the products of sides it is that of normal columns whose mean product, over the rows of all classes, is as large
    as its noise.

    `seen`: that of two-way tables, infinite where they were left out. `noise_multiplier`: of the moments. `n_rows`:
    released number of rows. Returns: infinite where nothing shows any.
    """
    if np.isfinite(seen):
        return seen
    plan = plan_tables(codec, seen, np.ones(len(codec.n_levels)))
    if plan.sides is None:
        return np.inf
    noise = plan.noise_sd_of_sum(_scale(plan, noise_multiplier, neighboring)).sides[0]
    mean = float(np.median(noise[plan.across])) / max(n_rows, 1.0)
    return float(np.sin(np.pi / 2 * mean)) if mean < 1 else np.inf


def count_errors(codec, noise, neighboring, importance, *, seen=None, scores=None, ratio=1.0):
    """Return the errors of counts in a model of released tables or scores.

    `noise`: noise multiplier of each release of the fit, by label.
    `importance`: shape (n_blocks,).
    `seen`: smallest correlation by which the tables were, or would be, planned: see `plan_tables`.
    `scores`: of a model that is made of their moments, not of tables.
    `ratio`: see `plan_tables`.
    """
    if scores is not None:
        errors = _errors_of_scores(codec, scores, noise, neighboring)
    else:
        plan = plan_tables(codec, seen, importance, ratio=ratio)
        errors = _errors_of_tables(codec, noise["moments"], neighboring, plan)
    return _with_grouped(errors, codec, noise, neighboring)


def _with_grouped(errors, codec, noise, neighboring):
    """Levels of a column that is modelled by groups have their own counts; two-way errors are those of a group."""
    grouped = codec.encoder.groups_
    if not grouped or "levels" not in noise:
        return errors
    square = square_of_levels(codec.encoder.schema_, grouped)
    of_level = error_of_a_level(joint_sd(square, noise["levels"], neighboring))
    at = [block.name in grouped for block in codec.blocks]
    return replace(errors, one_way=np.where(at, of_level, errors.one_way))


def _errors_of_tables(codec, noise_multiplier, neighboring, plan):
    """Those of the tables that are the sums of their parts: means over the levels of a column."""
    n_blocks = len(codec.n_levels)
    scale = _scale(plan, noise_multiplier, neighboring)
    if scale == 0:
        zero = np.zeros(n_blocks)
        return CountErrors(zero, zero, 0.0, 0.0)
    variances = plan.contrasts.table_variances(plan.noise_sd_of_sum(scale))
    starts = plan.contrasts.level_starts[:-1]
    one_way = np.add.reduceat(variances.one_way[0], starts) / codec.n_levels
    two_way = np.full(n_blocks, np.nan)
    if plan.pairs:
        sums = np.add.reduceat(np.add.reduceat(variances.pairs[0], starts, axis=0), starts, axis=1)
        mean = sums / np.outer(codec.n_levels, codec.n_levels)
        np.fill_diagonal(mean, np.nan)
        two_way = np.nanmedian(mean**0.5, axis=1)
    of_class = float(plan.noise_sd(scale).count[0])
    return CountErrors(one_way**0.5, two_way, of_class, (_HIDDEN + float(ndtri(_KEPT))) * of_class)


def _scale(plan, noise_multiplier, neighboring):
    """Standard deviation of the noise on the weighted query of a plan."""
    joint = BoundedSum(0.0, plan.add_or_remove_one, plan.replace_one, weighted=weighs_units(neighboring))
    return noise_multiplier * joint.sensitivity(neighboring)


def _errors_of_scores(codec, scores, noise, neighboring):
    """Indicators of categories are counts. Shares of bins are those of their own release, where bins were learned."""
    n_classes, n_blocks = max(codec.n_classes, 1), len(codec.n_levels)
    nobody = np.zeros((0, n_blocks), dtype=np.int64)
    empty = np.zeros(0, dtype=np.int64)
    query = score_moments(nobody, scores, empty, min(n_classes, 2), empty if weighs_units(neighboring) else None)
    sd = noise["moments"] * query.sensitivity(neighboring)
    weights = scores.weights[scores.first]
    one_way = n_classes**0.5 * sd * scores.l2_bound / CLASS_MEAN_WEIGHT / weights
    categories = scores.bins == 0
    binnings = codec.encoder.binnings_
    for i, block in enumerate(codec.blocks):
        if not categories[i]:
            learned = not np.isnan(scores.shares[codec.n_levels[:i].sum()]) and "bins" in noise
            one_way[i] = _error_of_a_bin(binnings[block.name], len(binnings), noise, neighboring) if learned else np.nan
    # an entry off the diagonal of the second moments has half the variance of one on it
    pair = n_classes**0.5 * sd * scores.l2_bound**2 / 2**0.5 / np.outer(weights, weights)
    pair[:, ~categories] = np.nan
    pair[~categories] = np.nan
    np.fill_diagonal(pair, np.nan)
    known = ~np.isnan(pair).all(axis=1)
    two_way = np.full(n_blocks, np.nan)
    two_way[known] = np.nanmedian(pair[known], axis=1)
    of_class = float(sd / CLASS_COUNT_WEIGHT)
    return CountErrors(one_way, two_way, of_class, (_HIDDEN + float(ndtri(_KEPT))) * of_class)


def _error_of_a_bin(binning, n_columns, noise, neighboring):
    """Of the bin of average size in cells: the sum of the noise of its cells."""
    return joint_sd(n_columns, noise["bins"], neighboring) * (len(binning.mass) / binning.n_bins) ** 0.5


def joint_sd(n_columns, noise_multiplier, neighboring):
    """Noise of one count of weight 1 of a histogram over several columns, in rows; of weights, their squares sum up."""
    return noise_multiplier * _sensitivity(n_columns, neighboring)


def _sensitivity(square, neighboring):
    """Sensitivity of counts of which a row adds one to each of so many histograms."""
    joint = BoundedSum(0.0, square**0.5, (2 * square) ** 0.5, weighted=weighs_units(neighboring))
    return joint.sensitivity(neighboring)


def weighs_units(neighboring):
    """Whether sums count units, and not rows."""
    unit = unit_of(neighboring)
    return unit is not None and unit.weighting == "units"


def _weight(neighboring):
    """Largest weight of the rows of a unit."""
    unit = unit_of(neighboring)
    return 1 if unit is None else unit.weight


# ---- before a fit -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PlannedTable:
    """The public facts of a table from which a plan tells errors in rows."""

    schema: object  # Schema; as declared: what is open will be learned
    targets: tuple  # column names; on which the model is conditional
    importance: tuple  # tuple of float; one for each other column
    most_bins: int
    # whether the model is made of released tables or scores alone; the errors of one that is trained are not known
    tables: bool

    @classmethod
    def of(cls, rows, settings):
        """From validated rows, of which public facts alone are taken, and the settings of the fit."""
        importance = tuple(rows.importance.get(name, 1.0) for name in rows.schema.names if name not in rows.targets)
        return cls(rows.schema, rows.targets, importance, rows.most_bins, getattr(settings, "moments_alone", False))

    def assumptions(self, plan):
        """What is assumed of facts that the fit will learn, and of releases that it may not make, in words."""
        open_ = [name for name in self.schema.incomplete if isinstance(self.schema[name], Categorical)]
        said = []
        if any(name not in self.targets for name in open_):
            said.append(f"{ASSUMED_CATEGORIES} categories in a column of learned categories")
        if any(name in self.targets for name in open_):
            said.append(f"{ASSUMED_CLASSES} classes in a learned target")
        if self.tables and (maybe := [label for label in RESPENT if label in plan.noise_multipliers]):
            others = "those of two-way counts may be larger without target" if "target" in maybe else ""
            said.append(
                f"{', '.join(maybe)} released (else the share is spent on the moments: errors of counts are at most "
                f"these{'; ' if others else ''}{others})"
            )
        return tuple(said)

    def counts(self, plan, n_rows):
        """Return the errors for each kind of column, a tuple of PlannedCounts.

        `n_rows`: assumed.
        """
        noise, neighboring = plan.noise_multipliers, _assumed_relation(plan)
        sizes = _learned_sizes(self.schema, plan, neighboring)
        lost, kept = (0.0, 0.0) if sizes is None else sizes
        noise = {**noise, "moments": _moments_noise(self.schema, noise, neighboring, n_rows)} if self.tables else noise
        codec, errors = self._errors(noise, neighboring, n_rows)
        position = {block.name: i for i, block in enumerate(codec.blocks)}
        names = {}
        for column in self.schema.columns:
            names.setdefault(_kind(column, self.targets), []).append(column.name)
        counts, fit = [], plan.label.partition(":")[0]
        for kind in sorted(names, key=_KINDS.index):
            at = [position[name] for name in names[kind] if name in position]
            if at:
                smallest = {"learned category": kept, "declared category": 0.0}.get(kind)
                stated = smallest, _largest(errors.one_way[at]), _largest(errors.two_way[at])
            else:
                stated = _errors_of_classes(errors, kept if kind == "learned target" else 0.0, codec.n_classes)
            seldom = lost or None if kind.startswith("learned") else None
            counts.append(PlannedCounts(fit, kind, len(names[kind]), *stated, seldom))
        return tuple(counts)

    def _errors(self, noise, neighboring, n_rows):
        """The codec that the fit is assumed to make, and the errors of its counts."""
        columns = [self._assumed(column) for column in self.schema.columns]
        schema = self.schema.replace(*columns)
        numbers = [column for column in columns if not isinstance(column, Categorical | Boolean)]
        moments = noise.get("moments", 0.0) * _weight(neighboring)
        size = TableSize.of(schema, self.targets, n_rows, moments, most_bins=self.most_bins, tables=self.tables)
        n_bins, seen = plan_bins(size)
        as_scores = False
        if self.tables and np.isinf(seen):
            enough = min((enough_rows(len(fine_grid(column)) - 1) for column in numbers), default=0.0)
            learned = not numbers or n_rows >= enough * joint_sd(len(numbers), noise["bins"], neighboring)
            as_scores = prefers_scores(size, n_bins, learned)
        n_bins = self.most_bins if self.tables or np.isfinite(seen) else n_bins
        target = (self.targets if len(self.targets) > 1 else self.targets[0]) if self.targets else None
        groups = self._assumed_groups(schema, correlation_over_noise(size))
        codec = FrameCodec(TableEncoder(schema, groups=groups, n_bins=n_bins).fit(), target)
        unknown = np.full(size.n_blocks, np.nan)
        if not self.tables:
            return codec, CountErrors(unknown, unknown, np.nan, np.nan)
        importance = np.array(self.importance)
        scores = Scores.of_codec(codec, importance) if as_scores else None
        tables = {"seen": seen, "scores": scores, "ratio": ratio_of_classes(noise, n_rows, neighboring)}
        return codec, count_errors(codec, noise, neighboring, importance, **tables)

    def _assumed_groups(self, schema, visible):
        """Groups of declared levels, as many as the fit would make, and declared groups."""
        groups = {}
        for name in grouped_columns(self.schema, self.targets):
            n = size_of_column(schema[name])
            if schema[name].hierarchy is not None:
                declared = declared_groups(schema[name])
                if has_subgroups(schema[name]):
                    declared = divided_groups(schema[name], np.ones(n), groups_above_noise(visible))
                groups[name] = LevelGroups(tuple(declared), (1 / n,) * n)
                continue
            at = np.arange(n) * min(groups_above_noise(visible), n) // n
            groups[name] = LevelGroups(tuple(at.tolist()), (1 / n,) * n)
        return groups

    def _assumed(self, column):
        """The column as the fit may complete it: its levels are counted, its values never used."""
        if column.complete:
            return column
        if isinstance(column, Categorical):
            size = ASSUMED_CLASSES if column.name in self.targets else ASSUMED_CATEGORIES
            names = tuple(map(str, range(size)))
            facts = {"missing": column.missing, "hierarchy": column.hierarchy}
            return Categorical(column.name, categories=names, other="other", **facts)
        if isinstance(column, Datetime):
            return replace(column, bounds=("2000-01-01", "2029-12-31"))
        return Numeric(column.name, (0, 1000), missing=column.missing)


_KINDS = ("learned category", "declared category", "number", "date", "learned target", "declared target")


def _kind(column, targets):
    if column.name in targets:
        return "declared target" if column.complete else "learned target"
    if isinstance(column, Categorical | Boolean):
        return "declared category" if column.complete else "learned category"
    return "date" if isinstance(column, Datetime) else "number"


def _errors_of_classes(errors, kept, n_classes):
    """Rows of the smallest class that is kept, the error of the rows of a class, and that of a level within a class."""
    smallest = (kept or None) if np.isnan(errors.smallest_class) else max(kept, errors.smallest_class)
    return smallest, _number(errors.of_class), _largest(errors.one_way / max(n_classes, 1) ** 0.5)


def _largest(errors):
    known = errors[~np.isnan(errors)]
    return float(known.max()) if known.size else None


def _number(error):
    return None if np.isnan(error) else float(error)


# ---- warnings, by public facts, of what the noise hides -------------------------------------------------------------
# Rows of a class that a user expects to find: where classes of so many may be lost, or combinations of so many usually
# are, a fit warns before the charge.
_RARE_CLASS = 100


def point_out_few_rows(rows, settings, plan):
    """Warn, by public facts, of what the noise of a plan hides in so few rows; of it there is no later warning.

    `rows`: their number is used under "replace_one" between rows alone, which makes it public.
    """
    if plan.neighboring != "replace_one" or plan.unit is not None:
        return
    n_rows, lost = len(rows), []
    sizes = _learned_sizes(rows.schema, plan, plan.relation)
    if sizes is not None and sizes.lost > n_rows:
        rows.unlearned.expects_categories = False
        lost.append(f"all learned categories ({sizes.in_words()})")
    noise = _moments_noise(rows.schema, plan.noise_multipliers, plan.relation, n_rows)
    if getattr(settings, "moments_alone", False) and _hides_relations(rows, n_rows, noise):
        rows.unlearned.expects_relations = False
        lost.append(
            "all two-way tables: columns of more than two categories are modelled as independent, and others by one "
            "noisy correlation of each pair, if it shows any"
        )
    if lost:
        warn_user(
            f"{n_rows} rows are too few for epsilon={plan.epsilon:.3g} and {len(rows.schema)} columns: the noise hides "
            f"{', and '.join(lost)}. Take a larger epsilon, more rows or fewer columns, and declare categories and "
            "bounds in the schema, if they are public. Nothing was charged before this warning"
        )


def point_out_hidden_classes(model, codes):
    """Warn where a sample asks for classes of which the released counts show no row, so that their rows are noise.

    `model`: or the model given some columns, which refuses classes without a row. `codes`: of the classes that are
    asked for.
    """
    ratio = getattr(model, "class_ratio", None)
    if ratio is None:
        return
    shares = np.asarray(ratio).ravel()
    if len(shares) == model.codec.n_classes and (hidden := np.unique(codes[shares[codes] <= 0])).size:
        warn_user(
            f"rows of the classes {listed([model.codec.classes[code] for code in hidden], 5)} are mostly noise, and do "
            "not show how these classes differ from the others: the released counts show no row of them, because there "
            "are none, or because the noise hides them"
        )


def point_out_learned_classes(rows, plan):
    """Warn, by the noise of a plan alone, that rare classes of a target will be lost where they are learned.

    Nothing of the rows is read: the sizes follow from the budget and the number of columns to learn.
    """
    open_ = [
        name for name in rows.targets if isinstance(rows.schema[name], Categorical) and not rows.schema[name].complete
    ]
    sizes = _learned_sizes(rows.schema, plan, _assumed_relation(plan)) if open_ else None
    dtypes = {name: rows.schema[name].dtype for name in open_}
    whole = [name for name, dtype in dtypes.items() if dtype is not None and pdt.is_integer_dtype(parse_dtype(dtype))]
    one, how = "", "declare them in the schema as Numeric(name, (low, high), integer=True)"
    if len(rows.targets) == 1:
        one, how = "classes=[...], or ", 'give target_type="numeric" (--set target_type=numeric)'
    quantity = f"if the whole numbers of {listed(whole)} are a quantity, and no classes, {how}; else " if whole else ""
    _warn_of_learned_classes(f"the target {listed(open_)}", sizes, plan, f"{one}the schema", quantity)


def point_out_learned_labels(labels, plan, *, may_be_quantity):
    """Do the same for the y of an array, whose classes have a histogram by themselves.

    `labels`: of rows whose classes are learned. `may_be_quantity`: False where y can be no quantity.
    """
    noise, relation = plan.noise_multipliers["classes"], _assumed_relation(plan)
    sizes = None
    if noise:
        lost = selection_threshold(joint_sd(1, noise, relation), plan.extra_delta, 1, unit_of(relation))
        sizes = KeptSizes(lost, smallest_kept(1, 1, noise, plan.extra_delta, relation))
    whole = may_be_quantity and pdt.is_integer_dtype(labels.dtype)
    quantity = 'if y is a quantity, and no classes, give target_type="numeric"; else ' if whole else ""
    _warn_of_learned_classes("y", sizes, plan, "classes=[...]", quantity)


def _assumed_relation(plan):
    """The relation of a plan, with an assumed number of rows of a unit where the fit learns it."""
    relation = plan.relation
    return replace(relation, unit=plan.unit.closed()) if isinstance(plan.unit, OpenUnit) else relation


def _warn_of_learned_classes(target, sizes, plan, how, quantity):
    if sizes is None or sizes.kept < _RARE_CLASS:
        return
    what, assumed = "units" if weighs_units(plan.relation) else "rows", ""
    if isinstance(plan.unit, OpenUnit):
        assumed = f" (with {plan.unit.closed().max_rows} rows of a unit; the fit learns how many are used)"
    warn_user(
        f"{quantity}the classes of {target} are learned: {sizes.in_words(what)}{assumed}. If the classes are public, "
        f"declare them, by {how}: much smaller classes are then kept, and nothing is spent on the list of classes. "
        "Nothing was charged before this warning"
    )


def point_out_learned_combinations(rows, plan):
    """Warn, by the noise of a plan alone, that rare combinations of columns are replaced by frequent ones."""
    learned = () if rows.construction is None else rows.construction.learned_combinations
    sizes = _learned_sizes(rows.schema, plan, plan.relation) if learned else None
    if sizes is None or sizes.lost < _RARE_CLASS:
        return
    what = "units" if weighs_units(plan.relation) else "rows"
    warn_user(
        f"the combinations of {'; '.join(map(listed, learned))} are learned: {sizes.in_words(what)}, and these {what} "
        "have more frequent combinations instead. If the combinations are public, declare them: (a, b) in [...]; or "
        "declare all codes of the finest column, with a hierarchy, and the others as mappings of it. Nothing was "
        "charged before this warning"
    )


def _learned_sizes(schema, plan, neighboring):
    """Rows of learned categories that are lost and kept; None where none are learned."""
    open_ = schema.incomplete
    selected = SelectedCounts.of(schema[name] for name in open_)
    return kept_sizes(len(open_), selected, plan.noise_multipliers, plan.extra_delta, neighboring)


def _moments_noise(schema, noise, neighboring, n_rows):
    """Noise multiplier of the moments, which are released again at the charge of `numbers` where rows are not few."""
    moments = noise.get("moments", 0.0)
    if "numbers" not in noise or are_few(n_rows, joint_sd(len(schema.incomplete), noise["schema"], neighboring)):
        return moments
    return noise_of_mean((moments, noise["numbers"]))


def _hides_relations(rows, n_rows, noise_multiplier):
    """Whether the model will have neither two-way tables nor scores, however few classes are learned."""
    size = TableSize.of(rows.schema, rows.targets, n_rows, noise_multiplier, most_bins=rows.most_bins)
    n_bins, seen = plan_bins(size)
    return size.n_blocks > 1 and np.isinf(seen) and not prefers_scores(size, n_bins, True)
