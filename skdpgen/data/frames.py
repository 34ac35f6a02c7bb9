"""Tables going into a fit: the private rows while it lasts, checked first, then binned and counted."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
import pandas as pd

from ..accounting import Phase
from ..exceptions import InvalidInputError, SchemaError, UtilityWarning
from ..mechanisms import add_gaussian, histogram, one_hot_moments
from ..tabular import (
    Boolean,
    Categorical,
    Schema,
    TableEncoder,
    bins_from_histogram,
    bins_histogram,
    schema_from_histogram,
    schema_histogram,
    validate_frame,
)
from ..tabular._frames import declared_family, factorize
from ..utils.categories import family
from ..utils.validation import Interval, check_row_count, is_extension, python_value
from .bins import plan_bins
from .frame_codec import FrameCodec
from .labels import is_numeric_target
from .scores import score_moments
from .sources import MemorySource, add_sums

__all__ = ["PUBLIC_ASSUMPTIONS", "FrameRows"]

# Key of `DataFrame.attrs` under which a reader of files says what it took for public, for the privacy card.
PUBLIC_ASSUMPTIONS = "public_assumptions"

# Levels of a declared column that draw a warning, and bytes of two-way tables beyond which a frame is refused.
_MANY_LEVELS = 500
_MOST_BYTES = 2 << 30
# Of a column. The noise of tables differs by the cube root of the ratio of their importance, and beyond these it would
# be nothing in one table and all in another.
_IMPORTANCE = Interval(Real, 1e-6, 1e6, closed="both")
# Noise of a one-way count beside the rows of an average level of a class, above which scores tell more than tables.
_ROUGH = 0.3
# (bins of a numeric column, learned categories of a column), at most: the first that fits into _MOST_BYTES.
_ROOM = ((16, 200), (16, 150), (16, 100), (16, 70), (16, 50), (12, 35), (8, 25), (4, 12))


class FrameRows:
    """The private rows of one fit, validated; dropped when the fit ends.

    Parameters
    ----------
    source : DataFrame or source of them
        See `open_source`.
    y : array-like of shape (n_samples,) or None
        Appended as the last column; for DataFrames in memory.
    target, schema, classes, target_type, on_invalid
        Parameters of the synthesizer.
    conditional : bool, default=True
        Whether the model has one prior a class; else a categorical target is a block like the others.
    importance : dict, default=None
        Of columns: how much more than 1 their tables matter.
    """

    may_have_cells = may_have_sizes = False  # see `ArrayRows`

    def __init__(
        self, source, y, *, target, schema, classes, target_type, on_invalid, conditional=True, importance=None
    ):
        if isinstance(source, pd.DataFrame):
            source = MemorySource(source)
        self.y, self.y_name = "none", None
        self.public_assumptions = list(source.attrs.get(PUBLIC_ASSUMPTIONS, ()))
        if source.kinds_of is not None:
            self.public_assumptions.append(f"kinds (dtypes) of the columns: those of {source.kinds_of}")
        if y is not None:
            if target is not None:
                raise InvalidInputError("give the labels as y or as the column `target`, not both")
            if not source.in_memory:
                raise InvalidInputError("y is for rows in memory: make it a column of every chunk, named as target")
            frame, target = self._append(source.frame, y)
            source = MemorySource(frame)
        head = source.head
        several = isinstance(target, list | tuple)
        targets = tuple(target) if several else () if target is None else (target,)
        self._check_targets(targets, head, several, classes, target_type)
        numeric = [is_numeric_target(head[name], target_type) for name in targets]
        schema = Schema.from_kinds(
            head, schema, categorical=[n for n, as_number in zip(targets, numeric) if not as_number]
        )
        # the schema's word, and datetimes, which are modelled as numbers whatever their dtype suggests
        numeric = [not isinstance(schema[name], Categorical | Boolean) for name in targets]
        wanted = {None: None, "numeric": True, "categorical": False}[target_type]
        if wanted is not None and numeric[0] != wanted:
            kind = type(schema[target]).__name__
            raise InvalidInputError(f"target_type={target_type!r}, but the target {target!r} is {kind}")
        if classes is not None:
            schema = self._declare(schema, target, numeric[0], classes)
        targets = tuple(name for name, as_number in zip(targets, numeric) if conditional and not as_number)
        self.schema, self.source, self.importance = schema, source, _checked_importance(importance, schema)
        self.target = (targets if several else targets[0]) if targets else None
        self._targets = targets
        if len(targets) == len(schema):
            raise InvalidInputError("the frame has no column beside the target")
        self.most_bins, self.most_categories = _room(schema, targets)
        checked = functools.partial(
            _checked, schema=schema, on_invalid=on_invalid, whole=source.one_slice, apart=not source.in_memory
        )
        self.n_rows, families = source.reduce(checked, _both_checked)
        check_row_count(self.n_rows)
        _check_families(families)

    @property
    def frame(self):
        """The rows, where they lie in memory."""
        return self.source.frame

    @staticmethod
    def _check_targets(targets, head, several, classes, target_type):
        if absent := [name for name in targets if name not in head.columns]:
            named = f"the target {absent[0]!r} is" if len(absent) == 1 else f"the targets {absent!r} are"
            raise InvalidInputError(f"{named} not a column of the frame")
        if len(set(targets)) < len(targets):
            raise InvalidInputError("target= names a column twice")
        given = classes is not None or target_type is not None
        if not targets and given:
            raise InvalidInputError("classes= and target_type= are used with y or a target alone")
        if several and given:
            raise InvalidInputError("classes= and target_type= are for one target: declare several in the schema")

    def _append(self, frame, y):
        self.y = "series" if isinstance(y, pd.Series) else "array"
        # the dtype of y is public; the one that numpy makes of an array of pandas' hangs on a single missing value
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
            raise InvalidInputError(f"y has the name {name!r} of a column of X")
        # by position: the index of y says nothing
        column = pd.Series(values.array if self.y == "series" else values, index=frame.index, name=name)
        return pd.concat([frame, column], axis=1), name

    @staticmethod
    def _declare(schema, target, numeric, classes):
        if numeric:
            raise InvalidInputError("classes= needs a categorical target")
        if schema[target].complete:
            raise InvalidInputError("classes= and a schema that has the target's categories: give one of them")
        return schema.replace(replace(schema[target], categories=tuple(classes)))

    def __len__(self):
        return self.n_rows

    def network_shape(self, n_components):
        """Stand-ins for columns and latents of the network, which follow from what is not learned yet."""
        return 2 * len(self.schema), 2, False

    @property
    def learns_classes(self):
        """Whether categories are learned, so that a threshold's delta is charged; public."""
        return any(isinstance(self.schema[name], Categorical) for name in self.schema.incomplete)

    def phases(self, share):
        """Return the releases that `learn` makes."""
        numbers = any(not isinstance(column, Categorical | Boolean) for column in self.schema.columns)
        return [
            *([] if self.schema.complete else [Phase("schema", share)]),
            # The number of rows, by which the moments are planned, comes from cells of a public grid alone: learned
            # categories have as many cells as there are distinct values, which the noise of their sum would tell.
            Phase("bins", share) if numbers else Phase("rows", share / 5),
        ]

    def encoder_phases(self, share, *, sizes=False):
        """Return the release of the moments: one."""
        return [Phase("moments", share)]

    def learn(self, noise_multipliers, extra_delta, rng, neighboring, *, scores=False):
        """Release what was not declared, and the bins of numeric columns; returns the codec and the moments' plan.

        Parameters
        ----------
        noise_multipliers, extra_delta, rng, neighboring
            As they were charged.
        scores : bool, default=False
            Whether the model may be one of scores where the noise hides two-way tables: bins then cost nothing.

        Returns
        -------
        FrameCodec, float
            The float is the one-way tables' share of the moments (see `plan_bins`); 0: no tables, moments of scores.
        """
        schema, source = self.schema, self.source
        if not schema.complete:
            counts = source.reduce(functools.partial(schema_histogram, schema=schema), _merge_histograms)
            noisy, sd = _release(counts.query, noise_multipliers["schema"], rng, neighboring)
            schema = schema_from_histogram(noisy, counts, sd, extra_delta, self.most_categories)
        if "rows" in noise_multipliers:
            rows = source.reduce(_count_rows, add_sums)
            row_count = float(add_gaussian(rows, noise_multipliers["rows"], rng, neighboring)[0])
        numbers = [c for c in schema.columns if not isinstance(c, Categorical | Boolean)]
        classes = int(np.prod([_size(schema[name]) for name in self._targets]))
        n_blocks = len(schema) - len(self._targets)
        if numbers:
            cells = source.reduce(functools.partial(bins_histogram, schema=schema), add_sums)
            noisy, sd = _release(cells, noise_multipliers["bins"], rng, neighboring)
            row_count = float(noisy.sum()) / len(numbers)
        noise_of_tables = noise_multipliers.get("moments", 0.0)  # a model without tables has the most bins
        n_bins, one_way_share = plan_bins(row_count, n_blocks, classes, noise_of_tables, most=self.most_bins)
        binnings = bins_from_histogram(noisy, schema, sd, n_bins) if numbers else None
        if scores and one_way_share == 1 and n_blocks > 1:
            # noise of a one-way count of a class beside the rows of an average level
            rough = noise_of_tables * n_blocks**0.5 * n_bins * classes / max(row_count, 1.0)
            if rough > _ROUGH or not numbers or _learned(binnings):
                one_way_share = 0.0
                if numbers:  # more bins cost nothing
                    binnings = bins_from_histogram(noisy, schema, sd, self.most_bins)
        codec = FrameCodec(TableEncoder(schema, binnings=binnings).fit(), self.target, self.y, self.y_name)
        return codec, one_way_share

    def moments(self, codec, one_way_share):
        """One-way and two-way tables, of each class where the model has classes: a BoundedSum."""
        query = functools.partial(
            _tables, codec=codec, one_way_share=one_way_share, importance=self.importance_of(codec)
        )
        return self.source.reduce(query, add_sums)

    def importance_of(self, codec):
        """How much the errors of each block matter, shape (n_blocks,); public."""
        return np.array([self.importance.get(block.name, 1.0) for block in codec.blocks])

    def score_moments(self, codec, scores):
        """Moments of the scores of each class: a BoundedSum, and its only alternative to `moments`."""
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


# ---- what is done with a chunk of rows ----------------------------------------------------------------------------
def _checked(chunk, schema, on_invalid, whole, apart):
    """Number of rows, and the kinds of values in columns of unknown categories, where chunks may differ in them.

    With `apart` each chunk was made by itself, so that its dtypes may follow from its rows.
    """
    chunk = validate_frame(chunk, schema, on_invalid)
    if apart:
        _check_text(chunk, schema)
    open_ = [schema[name] for name in schema.incomplete if isinstance(schema[name], Categorical) and not whole]
    return len(chunk), {c.name: set(map(family, factorize(chunk[c.name], c)[1].tolist())) for c in open_}


def _check_text(chunk, schema):
    """Refuse numbers and truth values where the schema has text, and truth values where it has numbers.

    A reader that finds digits alone in a chunk makes 7 of 007. If that were text again here, one row with a letter
    would decide whether the category of all others is 7 or 007.
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
                f"column {column.name!r} holds {wanted}s in the schema and something else in a chunk, where how it was "
                "written is lost: give it one dtype in all chunks, as by dtype= of pandas.read_csv"
            )


def _both_checked(one, other):
    return one[0] + other[0], {name: one[1][name] | other[1][name] for name in one[1]}


def _check_families(families):
    for name, found in families.items():
        if len(found) > 1:
            raise SchemaError(
                f"column {name!r} is of different kinds in different chunks ({', '.join(sorted(map(str, found)))}): "
                "give it one dtype in all of them, or declare it in the schema"
            )


def _count_rows(chunk):
    return histogram(np.zeros(len(chunk), dtype=np.int64), 1)


def _tables(chunk, codec, one_way_share, importance):
    codes, class_codes = codec.codes(chunk)
    options = {"one_way_share": one_way_share, "importance": importance}
    return one_hot_moments(codes, codec.n_levels, class_codes, max(codec.n_classes, 1), **options)


def _score_moments(chunk, codec, scores):
    codes, class_codes = codec.codes(chunk)
    class_codes = np.zeros(len(codes), dtype=np.int64) if class_codes is None else class_codes
    return score_moments(codes, scores, class_codes, max(codec.n_classes, 1))


def _merge_histograms(one, other):
    """Schema histogram of disjoint rows: cells of numbers add up, categories are matched by value.

    Each category has one type in all chunks, which `factorize` takes from the schema: which chunk comes first says
    nothing.
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
    total = replace(one.bounded_sum, value=np.concatenate(counts))
    return replace(one, bounded_sum=total, keys=keys, sizes=tuple(sizes))


def _learned(binnings):
    """Whether the masses of any bins come from the rows; else all are of equal width, since the noise hid them."""
    widths = {name: np.diff(binning.edges) for name, binning in binnings.items()}
    return any(not np.allclose(b.mass, widths[name] / widths[name].sum()) for name, b in binnings.items())


# ---- public facts -------------------------------------------------------------------------------------------------
def _checked_importance(importance, schema):
    importance = {} if importance is None else dict(importance)
    if unknown := [repr(name) for name in importance if name not in schema]:
        raise InvalidInputError(f"importance= names what is no column: {', '.join(unknown)}")
    for name, value in importance.items():
        if not _IMPORTANCE.is_satisfied_by(value):
            raise ValueError(f"importance= of {name!r} must be {_IMPORTANCE}, beside 1 for columns that are not named")
    return {name: python_value(value) for name, value in importance.items()}


def _size(column):
    return len(column.values) + column.missing


def _room(schema, targets):
    """Return bins and learned categories a column may have, from public facts alone; refuse what would not fit."""
    known = {c.name: _size(c) for c in schema.columns if isinstance(c, Categorical | Boolean) and c.complete}
    many = sorted((name for name in known if known[name] > _MANY_LEVELS), key=known.get, reverse=True)
    told = ", ".join(f"{name!r} ({known[name]})" for name in many[:5])
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
            f"{_MOST_BYTES >> 30} GiB: drop columns, or merge categories"
            + (f"; those with the most are {told}" if told else "")
        )
    if many:
        warnings.warn(
            f"columns with more than {_MANY_LEVELS} declared categories: {told}. Each is one more thing to hide: the "
            "fit is slow, and rare ones drown in the noise; merge them, or drop the column",
            UtilityWarning,
            stacklevel=2,
        )
    return bins, categories


def _release(bounded_sum, noise_multiplier, rng, neighboring):
    sd = noise_multiplier * bounded_sum.sensitivity(neighboring)
    return add_gaussian(bounded_sum, noise_multiplier, rng, neighboring), sd
