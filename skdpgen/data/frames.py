"""DataFrames in: the private rows of a fit, and their queries."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
import pandas as pd

from .._types import unit_of
from ..accounting import Phase
from ..exceptions import InvalidInputError, SchemaError, UtilityWarning
from ..mechanisms import (
    add_gaussian,
    histogram,
    one_hot_moments,
    residual_plan,
    sum_of_rows,
    triple_interactions,
    unit_pairs,
    unit_tables,
)
from ..mechanisms._one_hot import bytes_of_plan
from ..tabular import (
    Boolean,
    Categorical,
    Identifier,
    Numeric,
    Schema,
    TableEncoder,
    bins_from_histogram,
    bins_histogram,
    schema_from_histogram,
    schema_histogram,
    validate_frame,
)
from ..tabular._constraints import constraint_texts
from ..tabular._construction import Construction, check_equalities, warn_of_contradictions
from ..tabular._formats import type_of_objects
from ..tabular._frames import declared_family, factorize
from ..tabular._identifiers import likely_codes, likely_identifiers, split_keys
from ..tabular._learning import cell_weights, joined_categories, schema_and_candidates, with_ranges
from ..tabular._level_groups import declared_groups
from ..tabular._ranges import narrowed_ranges, range_histogram
from ..tabular._schema import column_of_objects
from ..utils.categories import family
from ..utils.printing import listed
from ..utils.validation import Interval, check_row_count, is_extension, physical_memory, python_value
from .frame_codec import FrameCodec
from .labels import is_numeric_target
from .level_groups import (
    MOST_GROUPS,
    LevelProfiles,
    bytes_of_profiles,
    grouped_columns,
    groups_above_noise,
    most_learned,
    noise_with_levels,
)
from .rows_per_unit import max_rows_phases, row_count_phases
from .scores import score_moments
from .sources import PUBLIC_ASSUMPTIONS, MemorySource, add_sums
from .units import UnitSource

__all__ = ["SEEN", "FrameRows", "correlation_over_noise", "plan_bins", "plan_tables", "prefers_scores"]

# Bytes of two-way tables above which a fit is refused.
_MOST_BYTES = 2 << 30
# Copies of the two-way tables that a fit holds at its peak: of all classes together, and of each class (measured at
# 1,000 to 2,500 levels and 1 to 12 classes, Linux, numpy 2).
_COPIES_OF_ALL, _COPIES_OF_CLASSES = 8.0, 3.5
# Importance of a column. The noise of tables differs by about the cube root of the ratio of their importance; outside
# this interval one table would have no noise and another nothing else.
_IMPORTANCE = Interval(Real, 1e-6, 1e6, closed="both")
# Noise of a one-way count over the rows of an average level of a class; above it, scores replace tables.
_ROUGH = 0.3
# Smallest visible correlation from which two-way tables are drawn towards independence, and from which there are none
# (2,000 rows of Adult have .6 at epsilon 1, 1,000 rows 1.2: there a model without them is better by .03 AUROC).
SEEN, _LEAST_SEEN = 0.4, 0.8
# Columns above which scores show more than tables that the noise nearly hides, and of numbers alone, which depend on
# one another more. Of fewer columns, one-way tables of the most bins are nearer to the rows (Adult, 1,000 rows, epsilon
# 1: two-way TVD .20, by scores .40).
_MANY_COLUMNS, _MANY_NUMBERS = 40, 20
# Share of the noise of interactions that counts when the budget is divided: a fit averages over them, and all the more
# where they are drawn towards independence.
_KEPT, _KEPT_SHRUNK = 0.1, 0.02
# Columns beside the target up to which the interactions of all triples are released: 2,024 triples.
_MOST_COLUMNS = 24
# Cells of a column of few integers: its bins are learned where those of other columns are not.
_FEW_CELLS = 64
# Most (bins of a numeric column, learned categories of a column): the first pair that fits into _MOST_BYTES is used.
_ROOM = ((16, 200), (16, 150), (16, 100), (16, 70), (16, 50), (12, 35), (8, 25), (4, 12))


class FrameRows:
    """The private rows of one fit, validated; dropped when the fit ends.

    Parameters
    ----------
    source : DataFrame or source of them
        See `open_source`.
    y : array-like of shape (n_samples,) or None
        Becomes the last column; for DataFrames in memory only.
    target, schema, classes, target_type, on_invalid
        Parameters of the synthesizer.
    conditional : bool, default=True
        Whether the model has one prior for each class; otherwise a categorical target is a block like the others.
    importance : dict, default=None
        Column name -> weight of the errors of its tables; 1 for columns that are not named.
    constraints : sequence of str, default=()
        Beside those of the schema: what can be constructed is, the others are for the sampling.
    units : tuple, default=None
        Further arguments of `UnitSource`, where a row is not the unit: `choose` then comes before all queries.

    Attributes
    ----------
    schema : Schema
        Of what the model sees: the columns of the table, but for those that constraints construct.
    table : Schema
        Of the rows, without keys: what is declared of them, and their constraints.
    construction : Construction or None
    """

    may_have_subclusters = may_have_class_norms = False  # see `ArrayRows`

    def __init__(
        self, source, y, *, target, schema, classes, target_type, on_invalid, conditional=True, importance=None,
        constraints=(), units=None, constant=(),
    ):  # fmt: skip
        if isinstance(source, pd.DataFrame):
            source = MemorySource(source)
        self.y, self.y_name = "none", None
        self.public_assumptions = list(source.attrs.get(PUBLIC_ASSUMPTIONS, ()))
        if source.kinds_of is not None:
            self.public_assumptions.append(f"kinds (dtypes) of the columns: those of {source.kinds_of}")
        if y is not None:
            if target is not None:
                raise InvalidInputError("give the labels as y or as a column by target=, not both")
            if not source.in_memory:
                raise InvalidInputError(
                    "y needs rows in memory: make it a column of every chunk, and give its name as target="
                )
            frame, target = self._append(source.frame, y)
            source = MemorySource(frame)
        if units is not None:
            source = UnitSource(source, *units)
        self.unit = None if units is None else units[0]
        head = source.head
        schema = self._with_objects(source, schema)
        several = isinstance(target, list | tuple)
        targets = tuple(target) if several else () if target is None else (target,)
        self._check_targets(targets, head, several, classes, target_type)
        numeric = [is_numeric_target(head[name], target_type) for name in targets]
        declared = () if schema is None else schema.names
        schema = Schema.from_kinds(
            head, schema, categorical=[n for n, as_number in zip(targets, numeric) if not as_number]
        )
        if target_type is None:
            schema = schema.replace(*(_as_classes(schema[name]) for name in targets))
        if keys := [name for name in targets if isinstance(schema[name], Identifier)]:
            raise InvalidInputError(f"the target {keys[0]!r} is an identifier in the schema, which is not modelled")
        _point_out(schema, {*declared, *targets})
        schema.constrain(*constraint_texts(constraints))  # refuses keys, which it no longer knows afterwards
        # no value of an identifier is read: the columns are left out before anything else is done
        schema, self.keys = split_keys(schema)
        if self.keys:
            source = source.without([key.name for _, key in self.keys])
        # the schema decides; datetimes are modelled as numbers, whatever their dtype suggests
        numeric = [not isinstance(schema[name], Categorical | Boolean) for name in targets]
        wanted = {None: None, "numeric": True, "categorical": False}[target_type]
        if wanted is not None and numeric[0] != wanted:
            kind = type(schema[target]).__name__
            raise InvalidInputError(f"target_type={target_type!r}, but the target {target!r} is {kind}")
        if classes is not None:
            schema = self._declare(schema, target, numeric[0], classes)
        targets = tuple(name for name, as_number in zip(targets, numeric) if conditional and not as_number)
        self.construction, table = _construction(schema, constraints, targets, constant), schema
        if self.construction is not None:
            schema, table = self.construction.seen, self.construction.table
            self.public_assumptions += [
                f"constraint, satisfied by {'construction' if text in self.construction.texts else 'drawing again'}: "
                + text
                for text in dict.fromkeys((*self.construction.texts, *self.construction.left))
            ]
        self.table = table
        self.schema, self.source, self.importance = schema, source, _checked_importance(importance, schema, table)
        self.target = (targets if several else targets[0]) if targets else None
        self._targets = targets
        if len(targets) == len(schema):
            raise InvalidInputError("the frame has no column except the target: add columns to model")
        self.grouped = grouped_columns(schema, targets)
        _point_out_hierarchies(table, schema, targets)
        self.most_bins, self.most_categories = _room(schema, targets)
        self.learned = tuple(
            c.name for c in schema.columns if isinstance(c, Categorical) and not c.complete and c.name not in targets
        )
        self.most_learned = most_learned(len(self.learned), len(schema), self.most_categories)
        checked = functools.partial(
            _checked,
            schema=table,
            on_invalid=on_invalid,
            whole=source.one_slice,
            apart=not source.in_memory,
            construction=self.construction,
        )
        self.n_rows, families = source.inspect(checked, _both_checked)
        check_row_count(self.n_rows)
        _check_families(families)

    def _with_objects(self, source, schema):
        """Declare the columns of objects that are all decimals, dates or times of the day; see `type_of_objects`."""
        head, declared = source.head, () if schema is None else schema.names
        names = [n for n in head.columns if n not in declared and pd.api.types.is_object_dtype(head[n].dtype)]
        if not names:
            return schema
        kinds = source.inspect(functools.partial(_kinds_of_objects, names=names), _common_kinds)
        columns = [column_of_objects(name, kind) for name, kind in kinds.items() if kind]
        if columns:
            listed = ", ".join(f"{column.name!r} {column.dtype}" for column in columns)
            self.public_assumptions.append(f"types of the objects in columns of objects: {listed}")
        return schema if not columns else Schema([*(() if schema is None else schema.columns), *columns])

    @property
    def frame(self):
        """The rows, where they lie in memory."""
        return self.source.frame

    @staticmethod
    def _check_targets(targets, head, several, classes, target_type):
        if absent := [name for name in targets if name not in head.columns]:
            named = f"the target {absent[0]!r} is" if len(absent) == 1 else f"the targets {absent!r} are"
            raise InvalidInputError(f"{named} not a column of the frame; it has {listed(head.columns)}")
        if len(set(targets)) < len(targets):
            raise InvalidInputError(f"target= names a column twice; got {listed(targets)}")
        given = classes is not None or target_type is not None
        if not targets and given:
            raise InvalidInputError("classes= and target_type= need y or target=")
        if several and given:
            raise InvalidInputError(
                "classes= and target_type= take one target: declare the classes of several in the schema"
            )

    def _append(self, frame, y):
        self.y = "series" if isinstance(y, pd.Series) else "array"
        # the dtype of y is public; the dtype that numpy gives to a pandas array depends on a single missing value
        values = y if self.y == "series" or is_extension(y) else np.asarray(y)
        if np.ndim(values) != 1 or len(values) != len(frame):
            raise InvalidInputError(f"y must have shape ({len(frame)},); got {np.shape(values)}")
        self.y_name = getattr(y, "name", None)
        name = "target" if self.y_name is None else self.y_name
        names = list(frame.columns)
        if all(isinstance(n, str) for n in names):  # scikit-learn refuses names of several types
            name = str(name)
        elif isinstance(name, str) and all(isinstance(n, Integral) for n in names):
            name = max(names) + 1
        if name in names:
            raise InvalidInputError(f"y has the name {name!r} of a column of X: rename one of them")
        # by position: the index of y has no meaning
        column = pd.Series(values.array if self.y == "series" else values, index=frame.index, name=name)
        return pd.concat([frame, column], axis=1), name

    @staticmethod
    def _declare(schema, target, numeric, classes):
        if numeric:
            raise InvalidInputError(
                'classes= needs a categorical target: leave classes= out, or give target_type="categorical"'
            )
        if schema[target].complete:
            raise InvalidInputError("classes= and the schema both declare categories of the target: give one of them")
        return schema.replace(replace(schema[target], categories=tuple(classes)))

    def __len__(self):
        return self.n_rows

    def choose(self, key):
        """Choose the rows that are used, where a row is not the unit; after the charge, before all queries."""
        if self.unit is not None:
            self.source.choose(key)

    @property
    def unit_sizes(self):
        """Where units count 1, the number of rows used of the unit of each row in memory; else None."""
        return None if self.unit is None else self.source.unit_sizes

    @property
    def unit_codes(self):
        """Where a row is not the unit, the number of the unit of each row in memory that is used; else None."""
        return None if self.unit is None else self.source.unit_codes

    def rows_per_unit(self):
        """Yield the number of rows of each unit, before any is left out."""
        yield from self.source.rows_per_unit()

    def settle(self, unit):
        """Use as many rows of a unit as was learned; before they are chosen."""
        self.unit = unit
        self.source.settle(unit)

    def kept_rows(self):
        """Number of rows that are used: a BoundedSum of one contribution per unit."""
        return self.source.row_count()

    def network_shape(self, n_components):
        """Least numbers of columns and latents of the network; the exact ones depend on what is not learned yet."""
        single = sum(size < 2 for size in _sizes_of_hierarchies(self.schema, self.grouped).values())
        return 2 * len(self.schema) - single, 2, False

    @property
    def least_levels(self):
        """Least levels of all columns but the targets together, and least classes: those that are declared; public."""
        sizes = {
            c.name: _size(c) if isinstance(c, Categorical | Boolean) and c.complete else 2 for c in self.schema.columns
        }
        sizes.update(_sizes_of_hierarchies(self.schema, self.grouped))
        classes = int(np.prod([sizes.pop(name) for name in self._targets])) if self._targets else 0
        return sum(sizes.values()), classes

    @property
    def levels_are_public(self):
        """Whether the levels of all columns are declared, so that the number of columns of a network is public."""
        declared = all(isinstance(c, Categorical | Boolean) and c.complete for c in self.schema.columns)
        return declared and not self.grouped

    @property
    def may_have_triples(self):
        """Whether the columns are enough, and not too many, for interactions of all triples of them; public."""
        return 3 <= len(self.schema) - len(self._targets) <= _MOST_COLUMNS

    @property
    def learns_classes(self):
        """Whether categories are learned, so that the delta of a threshold is charged; public."""
        return any(isinstance(self.schema[name], Categorical) for name in self.schema.incomplete)

    @property
    def learns_numbers(self):
        """Whether bounds of numbers are learned; public."""
        return any(isinstance(self.schema[name], Numeric) for name in self.schema.incomplete)

    @property
    def may_look_twice(self):
        """Whether a second release may be needed: of rare categories, or of numbers far from zero; public."""
        return self.learns_classes or self.learns_numbers

    def phases(self, share, *, twice=False):
        """Return the releases that `learn` makes; `twice` where there may be second ones, see `may_look_twice`."""
        numbers = any(not isinstance(column, Categorical | Boolean) for column in self.schema.columns)
        return [
            *max_rows_phases(self.unit, share),
            *([] if self.schema.complete else [Phase("schema", share)]),
            *([Phase("categories", 2 * share)] if twice and self.learns_classes else []),
            *([Phase("ranges", share)] if twice and self.learns_numbers else []),
            # The number of rows, by which the moments are planned, is a sum over cells of a public grid. Learned
            # categories have as many cells as there are distinct values, and the noise of their sum would show it.
            Phase("bins", share) if numbers else Phase("rows", share / 5),
            # the part of profiles is spent on the counts of categories where groups are declared
            *([Phase("levels", 2 * share)] if self.grouped else []),
            *row_count_phases(self.unit, share),
        ]

    def encoder_phases(self, share, *, class_norms=False):
        """Return the one release of the moments."""
        return [Phase("moments", share)]

    def learn(
        self, noise_multipliers, extra_delta, rng, neighboring, *, tables=False, scores=False, noise_of_model=None
    ):
        """Release what was not declared, and the bins of numeric columns.

        Parameters
        ----------
        noise_multipliers, extra_delta, rng, neighboring
            As they were charged.
        tables : bool, default=False
            Whether tables are released. Two-way tables have the most bins: their fine differences get a small part of
            the budget (see `residual_plan`), and coarse ones are not noisier for it. And their charge covers `levels`
            of columns of many learned categories, where there is no other charge (see `noise_with_levels`).
        scores : bool, default=False
            Whether the model may be one of scores where the noise hides two-way tables. More bins then cost nothing.
        noise_of_model : float, default=None
            Noise multiplier of the release that bins are made for. None: that of the moments, where there are any.

        Returns
        -------
        codec : FrameCodec
        seen : float or None
            Smallest correlation that the noise does not hide (see `plan_bins`), infinite where the two-way tables are
            left out; None stands for moments of scores, not tables.
        unspent : tuple of str
            Labels of charged releases that nothing was asked of: the moments are released once more instead.
        """
        schema, source, unspent = self.schema, self.source, ()
        has_groups = tables or "levels" in noise_multipliers
        if not schema.complete:
            most = dict.fromkeys(schema.incomplete, self.most_categories)
            if has_groups:
                most.update(dict.fromkeys(self.learned, self.most_learned))
            schema, unspent = self._learn_schema(noise_multipliers, extra_delta, most, rng, neighboring)
        if self.construction is not None:
            schema = self.construction.settled(schema)
        many = ()
        if has_groups:  # more learned categories than there is room for, which released names alone decide
            learned = (n for n in self.learned if n not in self.grouped)
            many = tuple(n for n in learned if len(schema[n].categories) > self.most_categories)
            noise_multipliers = noise_with_levels(noise_multipliers, (*self.grouped, *many))
        if "rows" in noise_multipliers:
            rows = source.reduce(_count_rows, add_sums)
            row_count = float(add_gaussian(rows, noise_multipliers["rows"], rng, neighboring)[0])
        numbers = [c for c in schema.columns if not isinstance(c, Categorical | Boolean)]
        classes = int(np.prod([_size(schema[name]) for name in self._targets]))
        n_blocks = len(schema) - len(self._targets)
        if numbers:
            cells = source.reduce(self._of_seen(bins_histogram, schema), add_sums)
            noisy, sd = _release(cells, noise_multipliers["bins"], rng, neighboring)
            row_count = float(noisy.sum()) / len(numbers)
        # a model without tables has the most bins; noise relative to a row, of which a unit may have several
        noise_of_tables = noise_multipliers.get("moments", 0.0) if noise_of_model is None else noise_of_model
        noise_of_tables *= 1 if self.unit is None else self.unit.weight
        n_bins, seen = plan_bins(row_count, n_blocks, classes, noise_of_tables, most=self.most_bins)
        binnings = bins_from_histogram(noisy, schema, sd, self.most_bins if tables else n_bins) if numbers else None
        if scores and np.isinf(seen):
            learned = not numbers or _learned(binnings)
            if prefers_scores(row_count, n_blocks, classes, noise_of_tables, n_bins, learned, len(numbers)):
                seen = None
        visible = correlation_over_noise(row_count, n_blocks, classes, noise_of_tables)
        groups = self._grouped(schema, many, binnings, visible, noise_multipliers, rng, neighboring)
        encoder = TableEncoder(schema, binnings=binnings, groups=groups).fit()
        facts = {"keys": self.keys, "learned": self.schema.incomplete, "construction": self.construction}
        return FrameCodec(encoder, self.target, self.y, self.y_name, **facts), seen, unspent

    def _learn_schema(self, noise_multipliers, extra_delta, most, rng, neighboring):
        """Release what the schema does not declare; return the complete schema, and `unspent` of `learn`.

        There may be second releases. One is of the columns alone that hide many rows in rare categories: fewer columns
        have less noise, and half of the delta is for either threshold. The other is of the numbers that lie so far
        from zero that their bounds are too wide.
        """
        schema, unspent, unit = self.schema, [], unit_of(neighboring)
        twice = "categories" in noise_multipliers
        terms = (extra_delta / 2 if twice else extra_delta, most)
        values = None if self.construction is None else self.construction.set_values()
        counts = self.source.reduce(self._of_seen(schema_histogram, schema), _merge_histograms)
        noisy, sd = _release(counts.query, noise_multipliers["schema"], rng, neighboring)
        learned, hidden, far = schema_and_candidates(noisy, counts, sd, *terms, unit=unit, values=values, again=twice)
        if twice and hidden:
            columns = [schema[name] for name in hidden]
            query = self._of_seen(schema_histogram, learned.replace(*columns))
            counts = self.source.reduce(query, _merge_histograms)
            noisy, sd = _release(counts.query, noise_multipliers["categories"], rng, neighboring)
            second = schema_from_histogram(noisy, counts, sd, *terms, unit=unit)
            learned = joined_categories(learned, second, columns, most)
        elif twice:
            unspent.append("categories")
        if "ranges" in noise_multipliers and far:
            query = self._of_seen(functools.partial(range_histogram, names=tuple(far)), learned)
            counts = self.source.reduce(query, add_sums)
            noisy, sd = _release(counts, noise_multipliers["ranges"], rng, neighboring)
            learned = with_ranges(learned, narrowed_ranges(noisy, learned, tuple(far), sd), far, values)
        elif "ranges" in noise_multipliers:
            unspent.append("ranges")
        return learned, tuple(unspent)

    def _grouped(self, schema, many, binnings, visible, noise_multipliers, rng, neighboring):
        """Groups of the levels of the columns of many declared or learned categories, from their release."""
        columns = (*self.grouped, *many)
        if not columns:
            return {}
        profiles = LevelProfiles(schema, binnings, columns, self._targets)
        query = functools.partial(_profiles, profiles=profiles, construction=self.construction)
        noisy, sd = _release(self.source.reduce(query, add_sums), noise_multipliers["levels"], rng, neighboring)
        room = dict.fromkeys((*many, *(n for n in self.grouped if n in self.learned)), self.most_categories)
        return profiles.groups(noisy, sd, groups_above_noise(visible), room)

    def follow(self, codec):
        """Nothing to do: frames are encoded by their codec, released now or before, without a change to the rows."""

    def _of_seen(self, query, schema):
        """A query of the columns that the model sees, as one of a chunk of rows."""
        return functools.partial(_seen, query=query, schema=schema, construction=self.construction)

    def moments(self, codec, plan):
        """One-way and two-way tables of each class, as planned by `plan_tables`: a BoundedSum."""
        return self.source.reduce(functools.partial(_tables, codec=codec, plan=plan), add_sums)

    def unit_tables(self, codec, columns):
        """Tables of the units: of these columns, by the first row used of each unit, and of its number of rows."""
        query = functools.partial(_unit_tables, codec=codec, columns=columns, max_rows=self.unit.max_rows)
        return self.source.reduce_units(query, add_sums)

    def unit_pairs(self, codec, columns):
        """How many units have two rows, and how alike these are in each of some columns."""
        at, count = codec.places(columns), functools.partial(unit_pairs, n_bins=codec.n_bins(columns))
        return self.source.reduce_pairs(lambda rows: codec.level_codes(rows)[:, at], count, add_sums)

    def triples(self, codec, quarters):
        """Interactions of all triples of columns in each class: a BoundedSum."""
        return self.source.reduce(functools.partial(_triples, codec=codec, quarters=quarters), add_sums)

    def target_gradients(self, codec, step):
        """Clipped gradient of the log-likelihood of the target, summed over the rows: a BoundedSum."""
        return self.source.reduce(functools.partial(_target_gradients, codec=codec, step=step), add_sums)

    def importance_of(self, codec):
        """Weight of the errors of each block, shape (n_blocks,); public."""
        return np.array([self.importance.get(block.name, 1.0) for block in codec.blocks])

    def score_moments(self, codec, scores):
        """Moments of the scores of each class: a BoundedSum, in place of `moments`."""
        return self.source.reduce(functools.partial(_score_moments, codec=codec, scores=scores), add_sums)

    def codes(self, codec):
        """Level codes of every row, shape (n_samples, n_blocks); for rows in memory."""
        return codec.codes(self.frame)[0]

    def one_hot_with_labels(self, codec):
        """Encoded rows, float32, with one-hot classes at the end where conditional."""
        codes, class_codes = codec.codes(self.frame)
        matrix = codec.one_hot(codes)
        if not codec.n_classes:
            return matrix
        return np.concatenate([matrix, np.eye(codec.n_classes, dtype=np.float32)[class_codes]], axis=1)


# ---- queries of a chunk of rows ----------------------------------------------------------------------------------
def _seen(chunk, query, schema, construction, **unit_sizes):
    return query(chunk if construction is None else construction.encode(chunk), schema, **unit_sizes)


def _profiles(chunk, profiles, construction, **unit_sizes):
    return profiles.query(chunk if construction is None else construction.encode(chunk), **unit_sizes)


def _checked(chunk, schema, on_invalid, whole, apart, construction):
    """Number of rows, and the kinds of values in columns of unknown categories if chunks may differ in them.

    With `apart` each chunk is made separately, so that its dtypes may depend on its rows.
    """
    chunk = validate_frame(chunk, schema, on_invalid)
    if apart:
        _check_text(chunk, schema)
    if construction is not None:
        validate_frame(construction.encode(chunk, on_invalid), construction.seen)
    open_ = [schema[name] for name in schema.incomplete if isinstance(schema[name], Categorical)]
    written = {c.name: set(map(family, _written(construction, c))) for c in open_}
    open_ = [column for column in open_ if written[column.name] or not whole]
    return len(chunk), {
        c.name: written[c.name] | set(map(family, factorize(chunk[c.name], c)[1].tolist())) for c in open_
    }


def _written(construction, column):
    """Values that constraints set in a column: learned categories are to be of their kind."""
    if construction is None:
        return []
    return [value for value in construction.written(column.name) if value is not None]


def _kinds_of_objects(chunk, names):
    """Type of the objects of each column, "" for other types and None where all are missing."""
    return {name: type_of_objects(chunk[name]) or (None if chunk[name].isna().all() else "") for name in names}


def _common_kinds(one, other):
    return {
        name: other[name] if kind is None else kind if other[name] in (None, kind) else "" for name, kind in one.items()
    }


def _check_text(chunk, schema):
    """Refuse numbers and truth values where the schema has text, and truth values where it has numbers.

    A reader that finds only digits in a chunk turns 007 into 7. If 7 were turned into text here, one row with a letter
    would decide whether the category of all other rows is 7 or 007.
    """
    for column in schema.columns:
        wanted = declared_family(column) if isinstance(column, Categorical) else None
        if wanted not in ("text", "number"):
            continue
        values = chunk[column.name].dropna()
        listed = values.dtype.categories if isinstance(values.dtype, pd.CategoricalDtype) else values
        kind = pd.api.types.infer_dtype(listed, skipna=True) if len(values) else "empty"
        if kind == "boolean" or (wanted == "text" and kind not in ("string", "empty")):
            raise SchemaError(
                f"column {column.name!r} holds {wanted}s in the schema and something else in a chunk, which no longer "
                "shows how the values were written: give it one dtype in all chunks, as by dtype= of pandas.read_csv"
            )


def _both_checked(one, other):
    return one[0] + other[0], {name: one[1][name] | other[1][name] for name in one[1]}


def _check_families(families):
    for name, found in families.items():
        if len(found) > 1:
            raise SchemaError(
                f"column {name!r} is of different kinds in different chunks, or a constraint sets a value of another "
                f"kind ({', '.join(sorted(map(str, found)))}): give it one dtype, or declare it in the schema"
            )


def _count_rows(chunk, unit_sizes=None):
    return histogram(np.zeros(len(chunk), dtype=np.int64), 1, unit_sizes)


def _tables(chunk, codec, plan, unit_sizes=None):
    codes, class_codes = codec.codes(chunk)
    return one_hot_moments(codes, plan, class_codes, max(codec.n_classes, 1), unit_sizes=unit_sizes)


def _unit_tables(first_rows, sizes, codec, columns, max_rows):
    at = codec.places(columns)
    levels = [codec.encoder.blocks_[i].size for i in at]
    return unit_tables(codec.level_codes(first_rows)[:, at], levels, sizes, max_rows)


def _triples(chunk, codec, quarters, unit_sizes=None):
    codes, class_codes = codec.codes(chunk)
    cells = quarters.of_codes(codes), quarters.fine, class_codes, max(codec.n_classes, 1)
    return triple_interactions(*cells, unit_sizes=unit_sizes)


def _target_gradients(chunk, codec, step, unit_sizes=None):
    rows = step.rows(*codec.seen_values(codec.seen(chunk)))
    return sum_of_rows(rows, transform=step.gradients, l2_bound=step.bound, unit_sizes=unit_sizes)


def _score_moments(chunk, codec, scores, unit_sizes=None):
    codes, class_codes = codec.codes(chunk)
    class_codes = np.zeros(len(codes), dtype=np.int64) if class_codes is None else class_codes
    return score_moments(codes, scores, class_codes, max(codec.n_classes, 1), unit_sizes)


def _merge_histograms(one, other):
    """Schema histogram of disjoint rows: cells of numbers add up, categories are matched by value.

    `factorize` gives each category one type in all chunks, that of the schema. The order of the chunks has no effect.
    """
    keys, counts, sizes, at, their_at = {}, [], [], 0, 0
    for name, size, their_size in zip(one.schema.incomplete, one.sizes, other.sizes):
        mine = one.bounded_sum.value[at : at + size]
        theirs = other.bounded_sum.value[their_at : their_at + their_size]
        at, their_at = at + size, their_at + their_size
        if name in one.keys:
            keys[name] = tuple(sorted({*one.keys[name], *other.keys[name]}))
            place = {key: i for i, key in enumerate(keys[name])}
            merged = np.zeros(len(place) + 1)
            for found, their_counts in ((one.keys[name], mine), (other.keys[name], theirs)):
                merged[[place[key] for key in found]] += their_counts[:-1]
                merged[-1] += their_counts[-1]
            mine = merged
        else:
            mine = mine + theirs
        counts.append(mine)
        sizes.append(len(mine))
    weights = cell_weights(one.schema, sizes)
    total = replace(one.bounded_sum, value=np.concatenate(counts), weights=weights)
    return replace(one, bounded_sum=total, keys=keys, sizes=tuple(sizes))


def _learned(binnings):
    """Whether any column of many values has learned bins; where noise hides the values, bins have equal widths."""
    binnings = {name: binning for name, binning in binnings.items() if len(binning.mass) > _FEW_CELLS}
    widths = {name: np.diff(binning.edges) for name, binning in binnings.items()}
    return any(not np.allclose(b.mass, widths[name] / widths[name].sum()) for name, b in binnings.items())


# ---- public facts -------------------------------------------------------------------------------------------------
def plan_bins(n_rows, n_blocks, n_classes, noise_multiplier, *, weakest=0.25, most=16, least=4):
    """Choose the bins of a numeric column, and whether two-way tables are released, from a released row count.

    A correlation rho between two columns of k bins has a singular value of about ``n rho / k`` in the pair table of a
    class of n rows. That of the noise is ``2 sd sqrt(k)`` with sd = noise_multiplier * sqrt(number of pairs). k is the
    largest number at which rho = `weakest` still exceeds the noise. Where only larger correlations do, from .4 on,
    two-way tables are drawn towards independence by their noise (see `fit_tables`). Where ever fewer of them would show
    anything, they are not released.

    Returns
    -------
    n_bins : int
    seen : float
        Smallest correlation that exceeds the noise at that number of bins; infinite without two-way tables.
    """
    ratio = correlation_over_noise(n_rows, n_blocks, n_classes, noise_multiplier)
    n_bins = int(np.clip(round((weakest * ratio) ** (2 / 3)), least, most))
    seen = n_bins**1.5 / ratio
    if seen <= SEEN or (seen <= _LEAST_SEEN and n_blocks <= _MANY_COLUMNS):
        return n_bins, float(seen)
    return n_bins, np.inf


def plan_tables(codec, seen, importance):
    """Choose contrasts and weights of the tables.

    Parameters
    ----------
    codec : FrameCodec
    seen : float
        See `plan_bins`.
    importance : array of shape (n_blocks,)

    Returns
    -------
    ResidualPlan
    """
    bins = codec.n_bins([block.name for block in codec.blocks])
    return residual_plan(
        codec.n_levels,
        bins,
        codec.n_classes,
        pairs=np.isfinite(seen),
        importance=importance,
        kept=_KEPT if seen <= SEEN else _KEPT_SHRUNK,
    )


def correlation_over_noise(n_rows, n_blocks, n_classes, noise_multiplier):
    """Ratio of a correlation of 1 to the noise in a two-way table of one bin a column; see `plan_bins`."""
    noise = 2 * max(noise_multiplier, 1e-12) * np.sqrt(max(n_blocks * (n_blocks - 1) / 2, 1))
    return max(n_rows / max(n_classes, 1), 1.0) / noise


def _as_classes(column):
    """Return a target of whole numbers of which a schema states the kind alone as categories.

    The dtype of an integer target means classes where there is no schema, and `skdpgen schema` writes no more than
    that dtype. Bounds declare a quantity.
    """
    if isinstance(column, Numeric) and column.integer and not column.complete:
        return Categorical(column.name, missing=column.missing, dtype=column.dtype)
    return column


def _point_out(schema, settled):
    """Warn of columns that are identifiers or codes by their names and dtypes: no value is read."""
    keys, codes = ([n for n in find(schema) if n not in settled] for find in (likely_identifiers, likely_codes))
    if keys:
        warnings.warn(
            f"identifiers, by their names: {listed(keys, 5)}. They are modelled like any other column, which costs "
            "budget and gives keys that mean nothing. For fresh keys declare them in the schema: "
            f"Schema.from_kinds(X).replace(Identifier({keys[0]!r})), or skdpgen schema --id; else drop them, by "
            f"X.drop(columns=[{keys[0]!r}]) or --drop. Columns that the schema declares are not named here",
            UtilityWarning,
            stacklevel=2,
        )
    if codes:
        warnings.warn(
            f"codes, by their names, of whole numbers: {listed(codes, 5)}. They are modelled as quantities: if they "
            "are codes, declare them as Categorical in the schema (Schema.from_kinds(X, categorical="
            f"[{codes[0]!r}]), or skdpgen schema --categorical)",
            UtilityWarning,
            stacklevel=2,
        )


def prefers_scores(n_rows, n_blocks, n_classes, noise_multiplier, n_bins, learned_bins, n_numbers):
    """Tell whether scores describe a table better than its one-way tables, where two-way tables are left out."""
    if n_blocks <= (_MANY_NUMBERS if n_numbers == n_blocks else _MANY_COLUMNS):
        return False
    # noise of a one-way count of a class over the rows of an average level
    rough = noise_multiplier * n_blocks**0.5 * n_bins * n_classes / max(n_rows, 1.0)
    return rough > _ROUGH or learned_bins


def _construction(schema, constraints, targets, constant=()):
    """The construction of the constraints of a schema, and of those others that it can satisfy; None without any."""
    given = constraint_texts(constraints)
    declared = schema.constraints
    if not given and not declared:
        return None
    construction = Construction.of(schema.constrain(*given), targets, constant)
    check_equalities(construction)
    warn_of_contradictions(construction)
    kept = [text for text in construction.table.constraints if text in declared or text in construction.texts]
    if len(kept) < len(construction.table.constraints):  # what is drawn again may change after the fit
        construction = Construction.of(replace(schema, constraints=tuple(kept)), targets, constant)
    return construction if kept else None


def _checked_importance(importance, schema, table):
    importance = {} if importance is None else dict(importance)
    if unknown := [repr(name) for name in importance if name not in table]:
        raise InvalidInputError(f"importance= names columns that are not in the table: {', '.join(unknown)}")
    if unseen := [repr(name) for name in importance if name not in schema]:
        raise InvalidInputError(
            f"importance= names columns that constraints construct from others: {', '.join(unseen)}; name the others, "
            "or the first column of a combination"
        )
    for name, value in importance.items():
        if not _IMPORTANCE.is_satisfied_by(value):
            raise ValueError(f"importance= of {name!r} must be {_IMPORTANCE}; columns that are not named have 1")
    return {name: python_value(value) for name, value in importance.items()}


def _size(column):
    return len(column.values) + column.missing


def _sizes_of_hierarchies(schema, columns):
    """Numbers of groups of the columns of declared categories and groups, those of "other" and missing values too."""
    found = (schema[name] for name in columns)
    return {c.name: max(declared_groups(c)) + 1 for c in found if c.hierarchy is not None and c.complete}


def _point_out_hierarchies(table, seen, targets):
    """Warn of declared groups that the model does not have, by public facts alone."""

    def declared(schema, name):
        return name in schema and getattr(schema[name], "hierarchy", None) is not None

    if names := [n for n in table if declared(table, n) and (n in targets or not declared(seen, n))]:
        warnings.warn(
            f"a hierarchy is not used: {listed(names)}. Every category of a target is a class, and a column that "
            "constraints construct, or combine with others, has no groups",
            UtilityWarning,
            stacklevel=2,
        )


# What to do about columns of too many categories.
_FEWER_LEVELS = "merge categories, drop the column, or declare it as an Identifier if it holds keys"


def _room(schema, targets):
    """Most bins and learned categories of a column, from public facts alone; refuse tables beyond the memory."""
    declared = {c.name: _size(c) for c in schema.columns if isinstance(c, Categorical | Boolean) and c.complete}
    grouped = grouped_columns(schema, targets)
    # "other" and missing are alone; of learned categories as many groups are made as there is room for
    known = {**declared, **{name: MOST_GROUPS + 2 for name in grouped if name in declared}}
    known.update(_sizes_of_hierarchies(schema, grouped))
    largest = sorted(known, key=declared.get, reverse=True)[:5]
    largest = ", ".join(f"{name!r} ({declared[name]})" for name in largest)
    for bins, categories in _ROOM:
        sizes = {
            c.name: known.get(c.name, (categories + 1 if isinstance(c, Categorical) else bins) + c.missing)
            for c in schema.columns
        }
        classes = int(np.prod([sizes.pop(name) for name in targets]))
        if 8 * classes * sum(sizes.values()) ** 2 <= _MOST_BYTES:
            break
    else:
        raise InvalidInputError(
            f"the two-way tables of {classes} classes and {sum(sizes.values())} levels would take more than "
            f"{_MOST_BYTES >> 30} GiB: {_FEWER_LEVELS}"
            + (f"; the columns with the most levels are {largest}" if largest else "")
        )
    # of the declared levels: learned categories may be fewer
    levels = sum(size for name, size in known.items() if name not in targets)
    needed, memory = 8 * levels**2 * (_COPIES_OF_ALL + _COPIES_OF_CLASSES * classes), physical_memory()
    needed = max(needed, bytes_of_plan(len(sizes)))
    needed = max(needed, bytes_of_profiles([declared[n] for n in grouped if n in declared], len(schema)))
    if memory is not None and needed > memory:
        raise InvalidInputError(
            f"the fit would take about {needed / 2**30:.0f} GiB of memory, and this machine has "
            f"{memory / 2**30:.0f} GiB: {_FEWER_LEVELS}"
            + (f"; the columns with the most levels are {largest}" if largest else "")
        )
    return bins, categories


def _release(bounded_sum, noise_multiplier, rng, neighboring):
    sd = noise_multiplier * bounded_sum.sensitivity(neighboring)
    return add_gaussian(bounded_sum, noise_multiplier, rng, neighboring), sd
