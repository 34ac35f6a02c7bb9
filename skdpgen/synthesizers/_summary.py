"""What a fit to a table kept and lost, column by column: computed from released values and public facts alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pandas as pd

from .._types import unit_of
from ..accounting import PrivacyCard
from ..data.level_groups import noise_with_levels
from ..data.table_plan import SEEN
from ..generators.components import spread_components
from ..generators.product_mixture import TableModel
from ..generators.refined_table import RefinedTable
from ..mechanisms import noise_of_mean
from ..tabular import Boolean, Categorical, Datetime
from ..tabular._columns import bin_decimals, rounded_to, unit_microseconds
from ..tabular._schema_cells import SelectedCounts
from ..utils.printing import plain_number, printable, table_lines
from ._count_errors import KeptSizes, count_errors, joint_sd, kept_sizes, seen_by_tables, smallest_seen, weighs_units

# Rows that are drawn to see the share of "other", and the share above which a fit warns.
_DRAWN, _MUCH = 10_000, 0.05
# Learned classes that are numbers, above which a fit asks whether they are a quantity.
_MANY = 20
# Columns that a printed summary shows, and that a warning names.
_SHOWN, _NAMED = 60, 5
# A tail or a spike is visible from this share of the rows on, of so many standard deviations of its noise, and rows.
_VISIBLE, _SURE, _FEWEST = 0.002, 5.0, 10
# Share of the rows at an end from which a possible cut is reported, also if the noise may be the cause.
_LARGE = 0.05
# An end stands out where its rows are this many times as dense as those of the cells beside it.
_DENSE, _BESIDE = 5.0, 3
# Probability of a level, up to which it counts as one that is never drawn.
_LEAST = 1e-7
# Share of the rows in one cell and the two beside it, from which a column counts as one value.
_NEARLY_ALL = 0.95
# What else is said of the ends of columns, in words.
_ENDS = {
    "cut": "the learned bounds cut off values at this end",
    "maybe cut": "the learned bounds may cut off values at this end, and the noise would hide it",
    "smeared": "many rows lie together at this end; if they have one value, an interval is drawn in its place",
    "one value": "nearly all rows have about this value, or the noise hides the others",
}
# Bounds that exclude no number: float32 has none beyond 3.4e38.
_ANY_NUMBER = 1e38
# Share of missing values from which a column is said to have no others.
_MISSING = 0.99


@dataclass(frozen=True)
class ColumnSummary:
    """What the model holds of one column.

    Attributes
    ----------
    name : str or int
    kind : {"category", "number", "date", "target"}
    learned : bool or None
        Whether bounds or categories were learned; None for a model file of an earlier version, which does not tell.
    bounds : tuple or None
        Of a number or date.
    categories : int or None
        Number of categories without "other" and missing; of a number, None.
    other : float or None
        Share of the synthetic rows that have "other"; None for a column without it.
    count_error : float or None
        Standard error of the number of rows at one category or bin, in rows, or in units where each of them counts 1;
        None where the model is not made of counts, and for a column that a constraint constructs, of which nothing is
        counted.
    count_error_percent : float or None
        The same in percent of all rows, or of all units.
    ends : tuple of str
        "cut low", "cut high": learned bounds cut off values; "maybe cut low", "maybe cut high": they may, and the noise
        hides it; "smeared low", "smeared high": many equal values at an end of the column are drawn from an interval;
        "hidden low", "hidden high": nothing is drawn at this end of the bounds, where there are no rows, or so few that
        the noise hides them; "one value": nearly all rows are at one value, and others may be lost; "one category": a
        single category was learned, and others may be lost; "missing": nearly all values are missing.
    other_value : str, number or None
        What "other" is in the synthetic rows: a column of numbers has a number for it.
    drawn : tuple or None
        Of a number or date, the lowest and the highest value that `sample` can draw. They lie within `bounds`: beyond
        them there are no rows, or the noise hides them. None for a column that a constraint constructs.
    missing : float or None
        Share of the synthetic rows in which the value is missing; None for a column that is never missing, and for one
        that a constraint constructs.
    replaced : float or None
        Share of the synthetic rows whose combination of values was not kept, so that one that was kept takes its place,
        as often as in the other rows; None for a column that is in no combination.
    """

    name: str | int
    kind: str
    learned: bool | None
    bounds: tuple | None
    categories: int | None
    other: float | None
    count_error: float | None
    count_error_percent: float | None
    ends: tuple = ()
    other_value: object = None
    drawn: tuple | None = None
    missing: float | None = None
    replaced: float | None = None


@dataclass(frozen=True, repr=False)
class FitSummary:
    """What a fit to a table kept and lost: post-processing of its release, which costs nothing and may be published.

    Attributes
    ----------
    columns : tuple of ColumnSummary
    n_rows : float
        Released number of rows.
    smallest_kept : float or None
        Rows, or units, of the smallest category that is kept with probability .95, where categories were learned; of
        columns that hide many rows, smaller ones are kept too, if they are not below `usually_lost`.
    counted : {"rows", "units"}, default="rows"
        What was counted: rows, or units where each of them counts 1. Errors and `smallest_kept` are in these.
    n_counted : float or None
        Released number of them; None: `n_rows`.
    smallest_correlation : float or None
        Smallest correlation of two columns that the noise does not hide, where it hides much of the two-way tables, or
        they are left out; 1 where the noise hides all of them, and columns are modelled as independent. None elsewhere.
    usually_lost : float or None
        Rows, or units, of learned categories below which they are lost more often than not.
    """

    columns: tuple
    n_rows: float
    smallest_kept: float | None
    _spikes: dict = field(default_factory=dict, compare=False)
    counted: str = "rows"
    n_counted: float | None = None
    smallest_correlation: float | None = None
    usually_lost: float | None = None
    _rows_of_unit: int = field(default=1, compare=False)

    def to_frame(self):
        """Return the columns as a DataFrame, one row each."""
        return pd.DataFrame([asdict(column) for column in self.columns]).set_index("name")

    def __repr__(self):
        head = ("column", "kind", "bounds or categories", "", "drawn", "other", "missing", "error of a count")
        head += ("at its ends",)
        lines = [_line(column) for column in self.columns[:_SHOWN]]
        more = len(self.columns) - len(lines)
        words = [
            *([f"and {more} more columns: see to_frame()"] if more else []),
            *self._numbers_in_words(),
            *([f"learned categories: {self._kept_in_words()}"] if self.smallest_kept else []),
            *self._replaced_in_words(),
            *self._ranges_in_words(),
            *self._relations_in_words(),
        ]
        return "\n".join([*table_lines(head, lines), *words])

    def _kept_in_words(self):
        return KeptSizes(self.usually_lost, self.smallest_kept).in_words(self.counted)

    def _replaced_in_words(self):
        if not (found := [f"{c.name} {c.replaced:.1%}" for c in self.columns if c.replaced]):
            return []
        return [
            f"rows with a combination that was not kept have one that was kept, which is then too frequent: "
            f"{_named(found)} of the rows"
        ]

    def _numbers_in_words(self):
        if self.counted == "rows":
            errors = "errors are standard errors, in rows and in percent of them"
            words = [f"{self.n_rows:.0f} rows by the released count; {errors}"]
            if self._rows_of_unit > 1:
                words.append(
                    f"weighting of rows: rows; a unit may have {self._rows_of_unit} of them, so errors are about "
                    f"{self._rows_of_unit} times those of a fit for one row; with weighting='units' of PrivacyUnit "
                    "(--unit-weighting units) they do not grow with this number"
                )
            return words
        return [
            f"{self.n_counted:.0f} units, which have {self.n_rows:.0f} of the rows used, by the released counts",
            "errors are standard errors, in units and in percent of them: a unit counts 1, shared by its rows",
            "weighting of rows: units; a sample of rows has fewer rows of large units than the rows used",
        ]

    def _ranges_in_words(self):
        ranges = [column for column in self.columns if column.drawn is not None]
        words = (
            ["drawn: the lowest and the highest value that sample can draw; beyond them the noise hides all rows"]
            if ranges
            else []
        )
        if any(end.startswith("hidden") for column in ranges for end in column.ends):
            words.append(
                "hidden low, hidden high: nothing is drawn at this end of the bounds: no row is there, or so few that "
                "the noise hides them"
            )
        ends = [end for column in ranges for end in column.ends]
        words += [f"{mark}: {said}" for mark, said in _ENDS.items() if any(end.startswith(mark) for end in ends)]
        if any(column.learned and column.kind == "number" for column in ranges):
            words.append(
                "learned bounds of numbers are rough, like powers of two: declare bounds in the schema, if they are "
                "public, such as (0, 120) for an age; the fit then spends nothing on them, and its bins are finer"
            )
        return words

    def _relations_in_words(self):
        least = self.smallest_correlation
        if least is None:
            return []
        advice = "a larger epsilon, more rows or fewer columns show more"
        if least >= 1:
            return [f"the noise hides how columns depend on one another: they are modelled as independent; {advice}"]
        return [
            f"the noise hides correlations of two columns below about {least:.2f}, and larger ones are weaker than in "
            f"the rows; {advice}"
        ]

    def _repr_html_(self):
        return self.to_frame().to_html()

    def warnings(self):
        """Yield what a user should do something about, in words: lost categories, cut tails, smeared spikes."""
        hidden = [c for c in self.columns if c.learned and c.other is not None and c.other > _MUCH]
        if lost := [c for c in hidden if c.categories]:
            named = _named([f"{c.name!r} ({c.other:.0%})" for c in lost])
            said = (
                f"of categories, {self._kept_in_words()}" if self.smallest_kept else "categories are lost in the noise"
            )
            yield (
                f'the synthetic rows have "other" in much of {named}: {said}. Declare the categories in the schema, if '
                "they are public, or merge rare ones"
            )
        # a target of many learned numbers may be a quantity, which has a wrong value in each row with "other"
        many = [c for c in self.columns if c.learned and c.kind == "target" and (c.categories or 0) > _MANY and c.other]
        numbers = [c for c in self.columns if c in hidden or c in many]
        if written := [c for c in numbers if c.other_value is not None and not isinstance(c.other_value, str)]:
            named = _named([f"{c.other_value!r} in {c.name!r}" for c in written])
            yield (
                f'"other" is written as a number that is no category: {named}. If such a column is a quantity, it must '
                'not be one of categories: declare it as Numeric, and for a target set target_type="numeric"'
            )
        if replaced := [c for c in self.columns if (c.replaced or 0.0) > _MUCH]:
            named = _named([f"{c.name!r} ({c.replaced:.0%})" for c in replaced])
            yield (
                f"learned combinations were not kept in many rows, which have more frequent ones instead: {named}"
                ". Declare the combinations in the constraint, if they are public, or leave the constraint out"
            )
        if cut := [c for c in self.columns if any(end.startswith("cut") for end in c.ends)]:
            yield (
                f"the learned bounds cut off values of {_with_bounds(cut)}: the released histogram piles up at an "
                "end. Declare the bounds in the schema, if they are public"
            )
        if cut := [c for c in self.columns if any(end.startswith("maybe cut") for end in c.ends)]:
            yield (
                f"the learned bounds may cut off values of {_with_bounds(cut)}: the noise would hide them. "
                "Declare the bounds in the schema, if they are public"
            )
        if same := [c for c in self.columns if "one value" in c.ends]:
            values = [f"{c.name!r} (about {self._spikes[c.name][0]})" for c in same]
            yield (
                f"nearly all rows of {_named(values)} are at one value: leave out a constant column; of any other the "
                "noise or the learned bounds hide the other values: declare its bounds in the schema, if public"
            )
        single = [c for c in self.columns if "one category" in c.ends]
        if targets := [c for c in single if c.kind == "target"]:
            named = _named([f"{c.name!r} ({self._spikes[c.name][0]})" for c in targets])
            rest = f": {self._kept_in_words()}" if self.smallest_kept else ""
            yield (
                f"one class alone was learned of the target {named}, so the model shows no difference between "
                f"classes{rest}. Declare the classes, if they are public, by classes=[...], or the schema"
            )
        if single := [c for c in single if c.kind != "target"]:
            named = _named([f"{c.name!r} ({self._spikes[c.name][0]})" for c in single])
            yield (
                f"one category alone was learned of {named}, and every synthetic row has it: {self._kept_in_words()}. "
                "Declare the categories in the schema, if they are public; leave out a constant column"
            )
        # of learned columns there was a warning where they were learned
        if empty := [c for c in self.columns if "missing" in c.ends and not c.learned]:
            named = _named([repr(c.name) for c in empty])
            yield f"nearly all values of {named} are missing: drop a column without values"
        if smeared := [c for c in self.columns if any(end.startswith("smeared") for end in c.ends)]:
            spikes = [f"{c.name!r} (about {', '.join(self._spikes[c.name])})" for c in smeared]
            yield (
                f"many rows lie together at an end of {_named(spikes)}; if that is one value, an interval is drawn in "
                "its place: declare bounds that end at this value, if it is public"
            )


def _line(column):
    if column.bounds is not None:
        held = _interval(column.bounds)
    else:
        held = "" if column.categories is None else str(column.categories)
    drawn = "" if column.drawn is None else _interval(column.drawn)
    source = {True: "learned", False: "declared", None: ""}[column.learned]
    other, missing = ("" if share is None else f"{share:.1%}" for share in (column.other, column.missing))
    error = "" if column.count_error is None else f"{column.count_error:.3g} ({column.count_error_percent:.2g} %)"
    ends = ", ".join(column.ends)
    return printable(column.name), column.kind, held, source, drawn, other, missing, error, ends


def _interval(ends):
    if all(not isinstance(end, str) and abs(end) > _ANY_NUMBER for end in ends):
        return "any number"  # a ratio, for example, whose denominator may be next to 0
    return " to ".join(map(_short, ends))


def _short(bound):
    return bound.removesuffix("T00:00:00") if isinstance(bound, str) else f"{bound:.10g}"


def _with_bounds(columns):
    """Names of columns with their bounds, those from 0 to 1 last: most of them hold nothing else."""
    last = sorted(columns, key=lambda column: tuple(column.bounds) == (0, 1))
    return _named([f"{column.name!r} {column.bounds}" for column in last])


def _named(texts):
    return ", ".join(texts[:_NAMED]) + (f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else "")


# ---- from a released model ----------------------------------------------------------------------------------------
def summarize(model, card: PrivacyCard, importance=None):
    """Summarize a released model of a table: post-processing, which charges nothing.

    `model`: with a FrameCodec. `card`: of its fit: the noise of each release. `importance`: public weights of columns,
    as the fit was given them.
    """
    codec, n_rows = model.codec, float(model.row_count)
    counts_units = weighs_units(card.relation)
    n_counted = _n_units(model) if counts_units else n_rows
    noise, delta = _noise_of(card)
    if "moments" in noise:
        noise = dict(noise_with_levels(noise, codec.encoder.groups_))
    for label in getattr(model, "respent", ()):
        if "moments" in noise and label in noise:
            noise["moments"] = noise_of_mean((noise["moments"], noise[label]))
    errors = _errors(model, noise, card.relation, importance or {}, n_counted)
    position = {block.name: i for i, block in enumerate(codec.blocks)}
    shares = _shares_of_levels(model)
    sd = joint_sd(len(codec.encoder.binnings_), noise.get("bins", 0.0), card.relation)
    visible = max(_VISIBLE, max(_SURE * sd, _FEWEST) / max(n_counted, 1.0))
    sizes = None
    if codec.learned:
        schema = codec.encoder.schema_
        selected = SelectedCounts.of(schema[name] for name in codec.learned)
        sizes = kept_sizes(len(codec.learned), selected, noise, delta, card.relation)
    lost, kept = (None, None) if sizes is None else sizes
    hides = lost is not None and lost > _LARGE * n_counted
    present, empty, columns, spikes = _present_levels(model), _mostly_missing(model), [], {}
    for column in codec.drawn_schema.columns:
        error = math.nan
        if errors is not None:
            error = errors.one_way[position[column.name]] if column.name in position else errors.of_class
        summary, values = _column_of(column, codec, shares, error, n_counted, visible, present, column.name in empty)
        columns.append(summary)
        if values:
            spikes[column.name] = values
        elif _is_one_category(summary) and (hides or summary.kind == "target"):
            columns[-1] = replace(summary, ends=("one category",))
            spikes[column.name] = [repr(value) for value in column.categories]
    what = {"counted": "units", "n_counted": n_counted} if counts_units else {}
    unit = unit_of(card.relation)
    return FitSummary(
        tuple(columns),
        n_rows,
        kept,
        spikes,
        smallest_correlation=_smallest_correlation(model, noise, card.relation, n_counted),
        usually_lost=lost,
        _rows_of_unit=1 if unit is None else unit.weight,
        **what,
    )


def _smallest_correlation(model, noise, neighboring, n_counted):
    """See `FitSummary`: of models that are made of released tables."""
    latent = _tables_alone(model, noise)
    if not isinstance(latent, TableModel) or len(model.codec.n_levels) < 2:
        return None
    if latent.points.shape[2] == 1:  # one support point a class: the columns are independent
        return 1.0
    seen = _seen_of(model, noise, neighboring, n_counted)
    least = smallest_seen(model.codec, seen, noise["moments"], neighboring, n_counted)
    return min(least, 1.0) if seen > SEEN else None


def _present_levels(model):
    """Mask of the levels that `sample` can draw, by column: of models that know some to be absent."""
    latent, codec = getattr(model, "latent_model", None), model.codec
    if latent is None:
        return {}
    starts, levels = np.cumsum(codec.n_levels)[:-1], np.asarray(latent.present)
    if isinstance(latent, TableModel) and model.mixture is None and model.net is None:
        levels = levels & _likely(latent)
    present = dict(zip((block.name for block in codec.blocks), np.split(levels, starts)))
    if (units := getattr(model, "units", None)) is not None:  # the columns of units have separate tables
        places = codec.places(units.columns)
        of_units = np.split(_likely(units.latent), np.cumsum(units.latent.n_levels)[:-1])
        for place, levels in zip(places, of_units):
            name = codec.encoder.blocks_[place].name
            present[name] = present.get(name, levels) | levels
    return present


def _mostly_missing(model):
    """Names of the columns nearly all of whose values are missing, by released counts or tables."""
    latent, codec = getattr(model, "latent_model", None), model.codec
    if not isinstance(latent, TableModel) or model.mixture is not None or model.net is not None:
        return set(codec.empty)
    weights = latent.class_counts / max(latent.class_counts.sum(), 1e-12)
    shares = sum(w * latent.mixture(k).mean(axis=0) for k, w in enumerate(weights) if w > 0)
    ends = np.cumsum(codec.n_levels) - 1  # where the missing values are
    columns = codec.encoder.schema_
    return set(codec.empty) | (
        {
            block.name
            for block, end in zip(codec.blocks, ends)
            if columns[block.name].missing and block.name not in codec.encoder.groups_ and shares[end] > _MISSING
        }
        if np.ndim(shares)
        else set()
    )


def _likely(latent):
    """Mask of the levels of a TableModel of some probability in any class: where noise hides a level, it has 1e-9."""
    kept = np.flatnonzero(latent.class_counts) if latent.class_counts.any() else range(len(latent.class_counts))
    return np.any([latent.mixture(k).mean(axis=0) > _LEAST for k in kept], axis=0)


def _column_of(column, codec, shares, error, n_counted, visible, present, empty):
    """Summary of a column, and the values at its ends that are smeared over their bins."""
    name, made = column.name, codec.construction is not None and column.name in codec.construction.constructed
    learned = None if codec.learned is None else name in codec.learned
    if made and learned is not None:
        # its bounds or categories follow from what was learned of others
        learned = not codec.construction.table[name].complete
    categorical, ends, drawn = isinstance(column, Categorical | Boolean), {}, None
    if not categorical and not made:
        binning = codec.encoder.binnings_[name]
        ends = _ends(binning, bool(learned), visible)
        drawn = _drawn(column, binning, present.get(name))
    ends = {"missing": None} if empty and not made else ends | _hidden(column, drawn, ends)
    kind = "category" if categorical else "date" if isinstance(column, Datetime) else "number"
    known = not made and not math.isnan(error)
    merged = codec.construction.merged_with(name) if made else None
    summary = ColumnSummary(
        name,
        "target" if name in codec.targets else kind,
        learned,
        None if categorical else column.bounds,
        len(column.categories) if categorical else None,
        None if made else shares["other"].get(name),
        float(error) if known else None,
        float(100 * error / max(n_counted, 1.0)) if known else None,
        tuple(ends),
        getattr(column, "other", None),
        drawn,
        None if made else shares["missing"].get(name),
        None if merged is None else shares["other"].get(merged),
    )
    return summary, [_value(column, value) for end, value in ends.items() if end.startswith(("smeared", "one value"))]


def _is_one_category(summary):
    """Whether a single category or class was learned, and nothing says that others were lost."""
    alone = summary.kind in ("category", "target") and summary.learned and summary.categories == 1
    return bool(alone and summary.other is not None and summary.other <= _MUCH and not summary.ends)


def _hidden(column, drawn, ends):
    """The ends of the bounds at which nothing is drawn, where nothing else is said of them."""
    if drawn is None or "one value" in ends:
        return {}
    sides = zip(("low", "high"), map(_number, column.bounds), map(_number, drawn), (1, -1))
    return {
        f"hidden {side}": None
        for side, bound, value, sign in sides
        if sign * (value - bound) > 0 and not {f"cut {side}", f"maybe cut {side}"} & set(ends)
    }


def _number(bound):
    """A bound as a number that can be compared; dates as days."""
    return pd.Timestamp(bound).timestamp() if isinstance(bound, str) else float(bound)


def _drawn(column, binning, present):
    """Lowest and highest value that is drawn, as `bounds` has them."""
    present = np.ones(binning.n_bins, dtype=bool) if present is None else present[: binning.n_bins]
    if not present.any():  # all rows are missing values
        return None
    edges, starts = np.array(binning.edges), [*binning.starts, len(binning.mass)]
    sizes = np.diff(starts)
    # a bin without mass is drawn from as a whole
    cells = np.repeat(present, sizes) & ((np.array(binning.mass) > 0) | np.repeat(binning.bin_mass <= 0, sizes))
    at = np.flatnonzero(cells)
    ends = np.array([edges[at[0]], edges[at[-1] + 1] - binning.integer])
    if isinstance(column, Datetime):
        moments = ends.astype(np.int64) * unit_microseconds(column)
        return tuple(moment.isoformat() for moment in moments.astype("datetime64[us]").tolist())
    if column.step is not None:
        ends = rounded_to(ends * column.step, column.step)
    decimals = bin_decimals(column) if column.decimals is None else column.decimals
    if decimals is not None and not column.whole:
        ends = np.round(ends, decimals)
    ends = np.clip(ends, *column.bounds)
    return tuple((np.rint(ends).astype(np.int64) if column.integer else ends).tolist())


def _n_units(model):
    """Released number of units, where each of them counts 1: the sum of the counts of the classes."""
    latent = getattr(model, "latent_model", None)
    return float((model.component_weights if latent is None else latent.class_counts).sum())


def _noise_of(card):
    """Noise multiplier of each release of a fit, by its label, and the delta of its thresholds; of a search, none."""
    charge = card.charges[0]
    labels = charge.label.partition(": ")[2].split(", ")
    if len(charge.releases) == 1 and charge.releases[0].mechanism == "non_private":
        return dict.fromkeys(labels, 0.0), charge.extra_delta
    if len(labels) != len(charge.releases):
        return {}, charge.extra_delta
    return {label: row.noise_multiplier for label, row in zip(labels, charge.releases)}, charge.extra_delta


def _errors(model, noise, neighboring, importance, n_counted):
    """Errors of the counts of a model that is made of them alone; None for any other."""
    latent = _tables_alone(model, noise)
    if latent is None:
        return None
    weights = np.array([importance.get(block.name, 1.0) for block in model.codec.blocks])
    if isinstance(latent, TableModel):
        seen = _seen_of(model, noise, neighboring, n_counted)
        return count_errors(model.codec, noise, neighboring, weights, seen=seen, ratio=model.ratio)
    return count_errors(model.codec, noise, neighboring, weights, scores=latent.scores)


def _seen_of(model, noise, neighboring, n_counted):
    """Smallest correlation by which the tables were planned; of a file that does not say it, an estimate."""
    if model.seen is None:
        return math.inf
    if not math.isnan(model.seen):
        return model.seen
    if model.latent_model.points.shape[2] == 1:  # one support point a class: surely no two-way tables, or of no use
        return math.inf
    return seen_by_tables(model.codec, noise["moments"], neighboring, n_counted)


def _tables_alone(model, noise):
    """The part of a model that is made of released tables or scores, where it is all of the model; else None."""
    latent = getattr(model, "latent_model", None)
    if latent is None or model.mixture is not None or model.net is not None or "moments" not in noise:
        return None
    return None if isinstance(latent, RefinedTable) else latent


def _shares_of_levels(model):
    """Shares of "other" and of missing values in each column that has them, in a sample that is always the same one."""
    codec = model.codec
    at = {"other": {}, "missing": {}}
    for block in codec.encoder.blocks_:
        for level, place in (("other", _place_of_other(codec, block)), ("missing", _place_of_missing(codec, block))):
            if place is not None:
                at[level][block.name] = place
    shares = {level: {} for level in at}
    wanted = set().union(*at.values())
    if not wanted:
        return shares
    of_blocks = {}
    if codec.n_classes:
        ratio = np.asarray(model.class_ratio).reshape(codec.class_shape)
        for i, name in enumerate(codec.targets):
            of_blocks[name] = np.moveaxis(ratio, i, 0).reshape(codec.class_shape[i], -1).sum(axis=1)
    if any(block.name in wanted for block in codec.blocks):
        rng = np.random.default_rng(0)
        codes = model.draw(spread_components(_DRAWN, model.component_weights, rng), rng)
        for i, block in enumerate(codec.blocks):
            if block.name in wanted:
                of_blocks[block.name] = np.bincount(codes[:, i].astype(np.int64), minlength=block.size) / len(codes)
    for level, places in at.items():
        shares[level] = {name: float(of_blocks[name][place]) for name, place in places.items() if name in of_blocks}
    return shares


def _place_of_other(codec, block):
    column = codec.encoder.schema_[block.name]
    if getattr(column, "other", None) is None:
        return None
    groups = codec.encoder.groups_.get(block.name)
    return len(column.categories) if groups is None else groups.group[len(column.categories)]


def _place_of_missing(codec, block):
    """Place of the missing values among the levels of a block; None without them, and where a group has others too."""
    if not codec.encoder.schema_[block.name].missing:
        return None
    groups = codec.encoder.groups_.get(block.name)
    if groups is None:
        return block.size - 1
    last = groups.group[-1]
    return last if np.count_nonzero(np.asarray(groups.group) == last) == 1 else None


# ---- ends of a released histogram ---------------------------------------------------------------------------------
def _ends(binning, learned, visible):
    """What is lost at the ends of a column of numbers: a dict of words -> value there."""
    found = {}
    if binning.integer and len(binning.mass) == 2 and binning.edges[0] == 0:  # each value is a bin: none is smeared
        return {"maybe cut high": 1} if learned and visible > _LARGE else found
    for side, step in (("low", 1), ("high", -1)):
        edges, mass = np.array(binning.edges)[::step] * step, np.array(binning.mass)[::step]
        single = _hold_one_value(edges, binning.integer)
        bound = binning.edges[0] if side == "low" else binning.edges[-1] - binning.integer
        # zero is often a frequent value, and bounds are widened to it
        if (
            learned
            and bound != 0
            and single[0]
            and mass[0] >= min(visible, _LARGE)
            and mass[0] > _DENSE * mass[1 : 1 + _BESIDE].max(initial=0.0)
        ):
            found[f"cut {side}" if mass[0] >= visible else f"maybe cut {side}"] = bound
            continue
        if not (mass >= visible).any():
            continue
        at = int(np.argmax(mass >= visible))
        if single[at] or mass[:at].sum() > mass[at] / _DENSE:
            continue
        # noise may have spread a spike over the cells beside its own
        if _density(mass, edges, single, at, at + _BESIDE) > _DENSE * _density(
            mass, edges, single, at + _BESIDE, at + 3 * _BESIDE
        ):
            found[f"smeared {side}"] = float(step * (edges[at] + edges[at + 1]) / 2)
    if (found or (learned and visible > _LARGE)) and (value := _one_value(binning, visible)) is not None:
        return {"one value": value}
    return found


def _one_value(binning, visible):
    """The place of nearly all rows, where they lie in one cell and those beside it; None elsewhere.

    A cell of one whole number beside it holds other rows, if it has more than the noise explains.
    """
    mass = np.array(binning.mass)
    at = int(mass.argmax())
    beside = slice(max(at - 1, 0), at + 2)
    if mass[beside].sum() < _NEARLY_ALL * mass.sum():
        return None
    if np.diff(binning.edges)[at] <= 1 and binning.integer and (mass[beside] >= visible).sum() > 1:
        return None
    place = float((binning.edges[at] + binning.edges[at + 1] - binning.integer) / 2)
    return 0.0 if abs(place) < np.finfo(np.float64).tiny else place  # zero is a cell of this width


def _density(mass, edges, single, start, stop):
    """Mass over width of a run of cells, without those of one value; infinite where it has no other."""
    wide = ~single[start:stop]
    width = np.diff(edges)[start:stop][wide].sum()
    return mass[start:stop][wide].sum() / width if width else np.inf


def _hold_one_value(edges, integer):
    """Mask of the cells that hold one value."""
    widths = np.diff(edges)
    return widths <= (1 if integer else np.spacing(np.abs(edges).max()))


def _value(column, value):
    if isinstance(column, Datetime):
        return str(pd.Timestamp(int(value), unit=column.resolution if column.resolution != "min" else "m").date())
    return plain_number(value)
