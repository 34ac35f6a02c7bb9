"""DataFrames in: the private rows of a fit, and their queries."""

from __future__ import annotations

import functools
from dataclasses import replace
from numbers import Integral
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._types import unit_of
from ..accounting import Phase
from ..exceptions import InvalidInputError
from ..mechanisms import (
    add_gaussian,
    histogram,
    mean_of_releases,
    noise_of_mean,
    one_hot_moments,
    sum_of_rows,
    triple_interactions,
    unit_pairs,
    unit_tables,
)
from ..tabular import (
    Boolean,
    Categorical,
    Identifier,
    Numeric,
    Schema,
    TableEncoder,
    bins_from_histogram,
    bins_histogram,
    schema_histogram,
)
from ..tabular._binning import middles_from_histogram
from ..tabular._constraints import constraint_texts
from ..tabular._construction import within_reach
from ..tabular._identifiers import split_keys
from ..tabular._learning import (
    Unlearned,
    hides_ranges,
    joined_categories,
    joined_numbers,
    lacks_many,
    most_categories,
    number_columns,
    schema_and_candidates,
    shown_rows,
    with_ranges,
)
from ..tabular._ranges import narrowed_ranges, range_histogram
from ..tabular._schema import column_of_objects
from ..tabular._schema_cells import cell_weights
from ..utils.callers import warn_user
from ..utils.foreign_tables import check_arrow_type
from ..utils.printing import listed, shown
from ..utils.table_checks import is_missing, reading
from ..utils.validation import check_row_count, is_extension, python_value
from .frame_checks import (
    as_classes,
    check_chunk,
    check_families,
    check_first_chunk,
    check_importance,
    common_kinds,
    construction_of,
    joined_checks,
    kinds_of_objects,
    point_out_fractions,
    point_out_hierarchies,
    point_out_index,
    point_out_kinds,
    point_out_lost_orders,
    point_out_narrow_keys,
    texts_of,
)
from .frame_codec import FrameCodec
from .labels import is_numeric_target, with_dtype
from .level_groups import (
    LevelProfiles,
    grouped_columns,
    groups_above_noise,
    most_learned,
    noise_with_levels,
)
from .other_notations import refusal_of_columns
from .rows_per_unit import max_rows_phases, row_count_phases
from .scores import score_moments
from .sources import KINDS_FROM_VALUES, PUBLIC_ASSUMPTIONS, MemorySource, add_sums
from .table_plan import (
    TableSize,
    check_exact_tables,
    correlation_over_noise,
    has_learned_bins,
    plan_bins,
    prefers_scores,
    room_for_tables,
    size_of_column,
    sizes_of_hierarchies,
)
from .units import UnitSource

# Columns beside the target up to which the interactions of all triples are released: 2,024 triples.
_MOST_COLUMNS = 24


class LearnedTable(NamedTuple):
    """What a fit to a DataFrame has released before its model."""

    codec: FrameCodec
    # smallest correlation that the noise does not hide (see `plan_bins`), infinite where the two-way tables are left
    # out; None stands for moments of scores, not tables
    seen: float | None
    unspent: tuple  # labels of charged releases that the fit does not need: it releases the moments once more instead
    middles: dict  # see `middles_from_histogram`
    row_count: float  # released number of rows; of units, where each of them counts 1


class FrameRows:
    """The private rows of one fit, validated; dropped when the fit ends.

    `source`: see `open_source`.
    `y` (n_samples,) or (n_samples, 1): becomes the last column; for DataFrames in memory only.
    `target`, `schema`, `classes`, `target_type`, `on_invalid`: parameters of the synthesizer.
    `conditional`: whether the model has one prior for each class; otherwise a categorical target is a block like the
        others.
    `importance`: column name -> weight of the errors of its tables; 1 for columns that are not named.
    `constraints`: beside those of the schema: what can be constructed is, the others are for the sampling.
    `units`: further arguments of `UnitSource`, where a row is not the unit: `choose` then comes before all queries.
    `schema`: of what the model sees: the columns of the table, but for those that constraints construct.
    `table`: of the rows, without keys: what is declared of them, and their constraints.
    `kinds_from_values`: columns whose kinds the reader of the file took from their values.
    `unlearned`: columns of which `learn` learned nothing.
    """

    may_have_subclusters = may_have_class_norms = False  # see `ArrayRows`

    def __init__(
        self, source, y, *, target, schema, classes, target_type, on_invalid, conditional=True, importance=None,
        constraints=(), units=None, constant=(),
    ):  # fmt: skip
        self.unlearned, self.unit = Unlearned(), None if units is None else units[0]
        source, target = self._open(source, y, target, units)
        head, schema = source.head, self._with_objects(source, schema)
        several = isinstance(target, list | tuple)
        targets = tuple(target) if several else () if target is None else (target,)
        self._check_targets(targets, head, several, classes, target_type)
        point_out_fractions(head, schema)
        declared = () if schema is None else schema.names
        if target_type is not None:
            declared = (*declared, *targets)
        schema = self._schema_of(head, schema, targets, target_type)
        point_out_kinds(schema, {*declared, *targets}, self.unit)
        point_out_lost_orders(head, schema)
        point_out_index(head)
        schema.constrain(*constraint_texts(constraints))  # refuses keys, which it no longer knows afterwards
        source, schema = self._without_keys(source, schema)
        # the schema decides; datetimes are modelled as numbers, whatever their dtype suggests
        numeric = [not isinstance(schema[name], Categorical | Boolean) for name in targets]
        if targets:
            schema = self._with_classes(schema, targets[0], numeric[0], classes, target_type)
        targets = tuple(name for name, as_number in zip(targets, numeric) if conditional and not as_number)
        schema = self._construct(schema, targets, constraints, constant)
        self.source, self.importance = source, check_importance(importance, schema, self.table)
        self.target = (targets if several else targets[0]) if targets else None
        self.targets = self.unlearned.targets = targets
        if len(targets) == len(schema):
            raise InvalidInputError("the frame has no column except the target: add columns to model")
        self.grouped = grouped_columns(schema, targets)
        point_out_hierarchies(self.table, schema, targets)
        # a class stands for its own rows alone: groups of first characters are not learned either
        alone = (n for n in targets if not schema[n].complete and schema[n].hierarchy is not None)
        self.schema = schema = schema.replace(*(replace(schema[n], hierarchy=None) for n in alone))
        self.most_bins, self.most_categories = room_for_tables(schema, targets)
        self.learned = tuple(
            c.name for c in schema.columns if isinstance(c, Categorical) and not c.complete and c.name not in targets
        )
        self.most_learned = most_learned(len(self.learned), len(schema), self.most_categories)
        self._check_rows(on_invalid, texts_of(self.table, head, declared))

    def _open(self, source, y, target, units):
        """The source of the rows used, with y as its last column, and the target."""
        if isinstance(source, pd.DataFrame):
            source = MemorySource(source)
        self.y, self.y_name = "none", None
        self.public_assumptions = list(source.attrs.get(PUBLIC_ASSUMPTIONS, ()))
        self.kinds_from_values = tuple(source.attrs.get(KINDS_FROM_VALUES, ()))
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
        for name, dtype in source.head.dtypes.items():
            check_arrow_type(f"column {name!r}", dtype)
        return source if units is None else UnitSource(source, *units), target

    @staticmethod
    def _schema_of(head, schema, targets, target_type):
        """The schema of all columns: what is declared, and kinds by dtypes; targets that are no numbers are classes."""
        numeric = [is_numeric_target(head[name], target_type) for name in targets]
        schema = Schema.from_kinds(
            head, schema, categorical=[n for n, as_number in zip(targets, numeric) if not as_number]
        )
        if target_type is None:
            schema = schema.replace(*(as_classes(schema[name]) for name in targets))
        if keys := [name for name in targets if isinstance(schema[name], Identifier)]:
            raise InvalidInputError(f"the target {keys[0]!r} is an identifier in the schema, which is not modelled")
        return schema

    def _without_keys(self, source, schema):
        """Leave out the columns of identifiers: no value of one is read."""
        schema, self.keys = split_keys(schema)
        point_out_narrow_keys(key for _, key in self.keys)
        numbered = [key.name for _, key in self.keys if key.within_unit]
        if numbered and self.unit is None:
            raise InvalidInputError(
                f"{numbered[0]!r} numbers the rows of a unit (within_unit=True in the schema), and this fit has no "
                "unit: give unit= (--unit), the column of its identifiers. Nothing was charged"
            )
        return source.without([key.name for _, key in self.keys]) if self.keys else source, schema

    def _with_classes(self, schema, target, numeric, classes, target_type):
        """The schema with the declared classes of the target, whose kind is the one that was asked for."""
        wanted = {None: None, "numeric": True, "categorical": False}[target_type]
        if wanted is not None and numeric != wanted:
            kind = type(schema[target]).__name__
            raise InvalidInputError(f"target_type={target_type!r}, but the target {target!r} is {kind}")
        return schema if classes is None else self._declare(schema, target, numeric, classes)

    def _construct(self, schema, targets, constraints, constant):
        """The schema of what the model sees: what constraints construct is left out."""
        self.construction, self.conditions = construction_of(schema, constraints, targets, constant)
        self.table = schema
        constructed, left = (), [condition.text for condition in self.conditions]
        if self.construction is not None:
            schema, self.table = self.construction.seen, self.construction.table
            self.unlearned.constructed = tuple(self.construction.changed)
            constructed, left = self.construction.texts, [*self.construction.left, *left]
        self.public_assumptions += [
            f"constraint, satisfied by {'construction' if text in constructed else 'drawing again'}: {text}"
            for text in dict.fromkeys((*constructed, *left))
        ]
        return schema

    def _check_rows(self, on_invalid, texts):
        """Check all rows against the schema, chunk by chunk."""
        checked = functools.partial(
            check_chunk,
            schema=self.table,
            on_invalid=on_invalid,
            whole=self.source.one_slice,
            apart=not self.source.in_memory,
            construction=self.construction,
            conditions=self.conditions,
            texts=texts,
        )
        self.n_rows, families, self._readings, first = self.source.inspect(checked, joined_checks)
        check_row_count(self.n_rows)
        weighted = self.unit is not None and self.unit.weighting == "units"
        check_exact_tables(self.schema, self.targets, self.most_bins, self.most_categories, self.n_rows, weighted)
        if not self.source.in_memory:
            check_first_chunk(first, families, self.table, self.source.head)
        check_families(families)

    def refuse_readings(self):
        """Refuse columns of text that are numbers in another notation, or dates; before the charge.

        Almost nothing would be learned from them.

        Another row may decide it: so a run of a search, which comes after the charge, does not call this.
        """
        if found := {name: ways for name, ways in self._readings.items() if ways}:
            raise InvalidInputError(refusal_of_columns(found))

    def _with_objects(self, source, schema):
        """Declare the columns of objects that are all decimals, dates or times of the day; see `type_of_objects`."""
        head, declared = source.head, () if schema is None else schema.names
        names = [n for n in head.columns if n not in declared and pd.api.types.is_object_dtype(head[n].dtype)]
        if not names:
            return schema
        kinds = source.inspect(functools.partial(kinds_of_objects, names=names), common_kinds)
        columns = [column_of_objects(name, kind) for name, kind in kinds.items() if kind]
        if columns:
            listed = ", ".join(f"{column.name!r} {column.dtype}" for column in columns)
            self.public_assumptions.append(f"types of the objects in columns of objects: {listed}")
        if not columns:
            return schema
        return Schema(columns) if schema is None else replace(schema, columns=(*schema.columns, *columns))

    @property
    def frame(self):
        """The rows, where they lie in memory."""
        return self.source.frame

    @staticmethod
    def _check_targets(targets, head, several, classes, target_type):
        if absent := [name for name in targets if name not in head.columns]:
            several = f"the targets {shown(absent)} are" if len(absent) <= 5 else f"{len(absent)} of the targets are"
            named = f"the target {absent[0]!r} is" if len(absent) == 1 else several
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
        if isinstance(y, pd.DataFrame) and y.shape[1] == 1:
            y = y.iloc[:, 0]
        self.y = "series" if isinstance(y, pd.Series) else "array"
        # the dtype of y is public; the dtype that numpy gives to a pandas array depends on a single missing value
        y = with_dtype(y)
        values = y if self.y == "series" or is_extension(y) else np.asarray(y)
        if np.shape(values) == (len(frame), 1):
            values = values[:, 0]
        if np.ndim(values) != 1 or len(values) != len(frame):
            named = ": a column of the DataFrame is named by target= of the estimator" if np.ndim(values) == 0 else ""
            raise InvalidInputError(f"y must have shape ({len(frame)},); got {np.shape(values)}{named}")
        self.y_name = python_value(getattr(y, "name", None))  # numpy's integers do not go into a model file
        name = "target" if self.y_name is None else self.y_name
        names = list(frame.columns)
        if all(isinstance(n, str) for n in names):  # scikit-learn refuses names of several types
            name = str(name)
        elif isinstance(name, str) and all(isinstance(n, Integral) for n in names):
            name = max(names) + 1
        if name in names:
            raise InvalidInputError(f"y has the name {name!r} of a column of X: rename one of them")
        if values.dtype == object:
            is_missing(values, "y")  # refuses what some versions of pandas cannot copy
        # by position: the index of y has no meaning
        with reading("y"):
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
        single = sum(size < 2 for size in sizes_of_hierarchies(self.schema, self.grouped, divided=False).values())
        return 2 * len(self.schema) - single, 2, False

    @property
    def least_levels(self):
        """Least levels of all columns but the targets together, and least classes: those that are declared; public."""
        sizes = {
            c.name: size_of_column(c) if isinstance(c, Categorical | Boolean) and c.complete else 2
            for c in self.schema.columns
        }
        sizes.update(sizes_of_hierarchies(self.schema, self.grouped, divided=False))
        classes = int(np.prod([sizes.pop(name) for name in self.targets])) if self.targets else 0
        return sum(sizes.values()), classes

    @property
    def levels_are_public(self):
        """Whether the levels of all columns are declared, so that the number of columns of a network is public."""
        declared = all(isinstance(c, Categorical | Boolean) and c.complete for c in self.schema.columns)
        return declared and not self.grouped

    @property
    def may_have_triples(self):
        """Whether the columns are enough, and not too many, for interactions of all triples of them; public."""
        return 3 <= len(self.schema) - len(self.targets) <= _MOST_COLUMNS

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

    @property
    def may_count_again(self):
        """Whether numbers and dates may be counted again, whose bounds are learned; public."""
        return bool(number_columns(self.schema))

    def phases(self, share, *, twice=False, again=0.0):
        """Return the releases that `learn` makes.

        `twice`: whether there may be second ones, see `may_look_twice`. `again`: share of a second count of numbers and
        dates; see `may_count_again`.
        """
        numbers = any(not isinstance(column, Categorical | Boolean) for column in self.schema.columns)
        return [
            *max_rows_phases(self.unit, share),
            *([] if self.schema.complete else [Phase("schema", share)]),
            *([Phase("numbers", again)] if again else []),
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

        `noise_multipliers`, `extra_delta`, `rng`, `neighboring`: as they were charged.
        `tables`: whether tables are released. Two-way tables have the most bins: their fine differences get a small
            part of the budget (see `residual_plan`), and coarse ones are not noisier for it. And their charge covers
            `levels` of columns of many learned categories, where there is no other charge (see `noise_with_levels`).
            The warning of `unlearned` is left to the caller, who knows what else the noise hides.
        `scores`: whether the model may be one of scores where the noise hides two-way tables. More bins then cost
            nothing.
        `noise_of_model`: noise multiplier of the release that bins are made for. None: that of the moments, where there
            are any.
        Returns a LearnedTable.
        """
        has_groups = tables or "levels" in noise_multipliers
        schema, unspent = self._complete_schema(noise_multipliers, extra_delta, rng, neighboring, has_groups=has_groups)
        if not tables:
            self.unlearned.warn()
        many = ()
        if has_groups:  # more learned categories than there is room for, which released names alone decide
            learned = (n for n in self.learned if n not in self.grouped)
            many = tuple(n for n in learned if len(schema[n].categories) > self.most_categories)
            noise_multipliers = noise_with_levels(noise_multipliers, (*self.grouped, *many))
        numbers = [c for c in schema.columns if not isinstance(c, Categorical | Boolean)]
        if numbers:
            cells = self.source.reduce(self._of_seen(bins_histogram, schema), add_sums)
            noisy, sd = _release(cells, noise_multipliers["bins"], rng, neighboring)
            row_count = float(noisy.sum()) / len(numbers)
        else:
            rows = self.source.reduce(_count_rows, add_sums)
            row_count = float(add_gaussian(rows, noise_multipliers["rows"], rng, neighboring)[0])
        # a model without tables has the most bins; noise relative to a row, of which a unit may have several
        noise_of_tables = noise_multipliers.get("moments", 0.0) if noise_of_model is None else noise_of_model
        for label in unspent:
            noise_of_tables = noise_of_mean((noise_of_tables, noise_multipliers[label]))
        noise_of_tables *= 1 if self.unit is None else self.unit.weight
        size = TableSize.of(schema, self.targets, row_count, noise_of_tables, most_bins=self.most_bins, tables=tables)
        n_bins, seen = plan_bins(size)
        binnings, middles = None, {}
        if numbers:
            options = {"learned": self.schema.incomplete, "single_values": tables and np.isinf(seen)}
            binnings = bins_from_histogram(noisy, schema, sd, self.most_bins if tables else n_bins, **options)
            middles = middles_from_histogram(noisy, schema, sd, binnings)
        if scores and np.isinf(seen):
            learned = not numbers or has_learned_bins(binnings)
            if prefers_scores(size, n_bins, learned):
                seen = None
        visible = correlation_over_noise(size)
        groups = self._grouped(schema, many, binnings, visible, noise_multipliers, rng, neighboring)
        encoder = TableEncoder(schema, binnings=binnings, groups=groups).fit()
        facts = {"keys": self.keys, "learned": self.schema.incomplete, "construction": self.construction}
        facts["empty"] = self.unlearned.empty
        codec = FrameCodec(encoder, self.target, self.y, self.y_name, **facts)
        return LearnedTable(codec, seen, unspent, middles, row_count)

    def _complete_schema(self, noise_multipliers, extra_delta, rng, neighboring, *, has_groups):
        """Return the schema with all facts, within reach of constraints and conditions, and `unspent` of `learn`."""
        schema, unspent, changed = self.schema, (), ()
        if not schema.complete:
            most = dict.fromkeys(schema.incomplete, self.most_categories)
            if has_groups:
                set_ = {} if self.construction is None else self.construction.set_values()
                columns = (schema[name] for name in self.learned)
                most |= {c.name: most_categories(c, self.most_learned, len(set_.get(c.name, ()))) for c in columns}
            schema, unspent = self._learn_schema(noise_multipliers, extra_delta, most, rng, neighboring)
        if self.construction is not None:
            _warn_of_times(self.construction.times_beside_days(schema))
            schema, changed = self.construction.settled(schema), self.construction.changed
        return within_reach(schema, self.conditions, set(self.schema.incomplete) - set(changed)), unspent

    def _learn_schema(self, noise_multipliers, extra_delta, most, rng, neighboring):
        """Release what the schema does not declare; return the complete schema, and `unspent` of `learn`.

        There may be further releases. One counts all numbers and dates again, where the rows are so few that the noise
        hides much of their ranges. One is of the columns alone that hide many rows in rare categories: fewer columns
        have less noise, and half of the delta is for either threshold. If one of these columns still lacks many rows,
        and the numbers were not counted again, the columns are counted at that charge too. The last is of the numbers
        that lie so far from zero that their bounds are too wide.
        """
        schema, unspent, unit = self.schema, [], unit_of(neighboring)
        twice = "categories" in noise_multipliers
        terms = (extra_delta / 2 if twice else extra_delta, most)
        values = None if self.construction is None else self.construction.set_values()
        counts = self.source.reduce(self._of_seen(schema_histogram, schema), _merge_histograms)
        noisy, sd = _release(counts.query, noise_multipliers["schema"], rng, neighboring)
        options = {"unit": unit, "values": values, "unlearned": self.unlearned}
        numbers_sd = None
        if "numbers" in noise_multipliers and hides_ranges(noisy, counts, sd):
            query = self.source.reduce(self._of_seen(_counts_of_numbers, schema), _merge_histograms).query
            second, second_sd = _release(query, noise_multipliers["numbers"], rng, neighboring)
            noisy, numbers_sd = joined_numbers(noisy, second, counts, (sd, second_sd))
        elif "numbers" in noise_multipliers:
            unspent.append("numbers")
        n_rows = shown_rows(noisy, counts, sd, numbers_sd)
        learned, hidden, far = schema_and_candidates(
            noisy, counts, sd, *terms, **options, again=twice, numbers_sd=numbers_sd
        )
        if twice and hidden:
            columns = [schema[name] for name in hidden]
            query = self._of_seen(schema_histogram, learned.replace(*columns))
            counts = self.source.reduce(query, _merge_histograms)
            noisy, sd = _release(counts.query, noise_multipliers["categories"], rng, neighboring)
            # if there may be a third threshold, it and the second one share half of the delta
            terms = (extra_delta / 4 if "numbers" in noise_multipliers else extra_delta / 2, most)
            shown = {}
            second = schema_and_candidates(noisy, counts, sd, *terms, **options, again=False, shown=shown)[0]
            if (third := "numbers") in unspent and lacks_many(second, shown, n_rows):
                unspent.remove(third)
                noisy, sd = _averaged((noisy, sd), counts.query, noise_multipliers[third], rng, neighboring)
                self.unlearned.forget(hidden)
                second = schema_and_candidates(noisy, counts, sd, *terms, **options, again=False)[0]
            learned = joined_categories(learned, second, columns, most, values)
        elif twice:
            unspent.append("categories")
        if "ranges" in noise_multipliers and far:
            query = self._of_seen(functools.partial(range_histogram, names=tuple(far)), learned)
            counts = self.source.reduce(query, add_sums)
            noisy, sd = _release(counts, noise_multipliers["ranges"], rng, neighboring)
            learned = with_ranges(learned, narrowed_ranges(noisy, learned, tuple(far), sd, n_rows), far, values)
        elif "ranges" in noise_multipliers:
            unspent.append("ranges")
        return learned, tuple(unspent)

    def _grouped(self, schema, many, binnings, visible, noise_multipliers, rng, neighboring):
        """Groups of the levels of the columns of many declared or learned categories, from their release."""
        columns = (*self.grouped, *many)
        if not columns:
            return {}
        profiles = LevelProfiles(schema, binnings, columns, self.targets)
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
def _warn_of_times(pairs):
    """Warn, from released resolutions alone, of dates that are computed from days and have a time of the day."""
    for made, base in pairs:
        warn_user(
            f"{made!r} is computed from {base!r}, whose released dates are days, and has times of the day in synthetic "
            "rows: if its dates are days too, declare that of both (another fit is charged again): schema=Schema."
            f"from_kinds(X).declare({base!r}, resolution='D').declare({made!r}, resolution='D')"
        )


def _seen(chunk, query, schema, construction, **unit_sizes):
    return query(chunk if construction is None else construction.encode(chunk), schema, **unit_sizes)


def _counts_of_numbers(chunk, schema, unit_sizes=None):
    names = list(number_columns(schema))
    return schema_histogram(chunk[names], schema.select(names), unit_sizes)


def _profiles(chunk, profiles, construction, **unit_sizes):
    return profiles.query(chunk if construction is None else construction.encode(chunk), **unit_sizes)


def _count_rows(chunk, unit_sizes=None):
    return histogram(np.zeros(len(chunk), dtype=np.int64), 1, unit_sizes)


def _tables(chunk, codec, plan, unit_sizes=None):
    codes, class_codes = codec.codes(chunk)
    return one_hot_moments(codes, plan, class_codes, unit_sizes=unit_sizes)


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
    weights = cell_weights(one.schema, sizes, {**one.keys, **keys})
    total = replace(one.bounded_sum, value=np.concatenate(counts), weights=weights)
    return replace(one, bounded_sum=total, keys=keys, sizes=tuple(sizes))


def _release(bounded_sum, noise_multiplier, rng, neighboring):
    sd = noise_multiplier * bounded_sum.sensitivity(neighboring)
    return add_gaussian(bounded_sum, noise_multiplier, rng, neighboring), sd


def _averaged(first, bounded_sum, noise_multiplier, rng, neighboring):
    """Release a query once more: the average of both releases by their noise, as `_release` returns one."""
    noisy, sd = first
    again, again_sd = _release(bounded_sum, noise_multiplier, rng, neighboring)
    return mean_of_releases(noisy, again, (sd, again_sd)), noise_of_mean((sd, again_sd))
