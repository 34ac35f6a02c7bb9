"""DataFrames in and out of P3GM: the rows while a fit lasts, and the released codec that decodes samples."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
import pandas as pd

from skdpgen.accounting import Phase
from skdpgen.exceptions import InvalidInputError, UtilityWarning
from skdpgen.mechanisms import add_gaussian, histogram, one_hot_moments
from skdpgen.tabular import (
    Binning,
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
from skdpgen.utils.validation import check_row_count

from ._labels import is_numeric_target
from ._particles import plan_bins

__all__ = ["PUBLIC_ASSUMPTIONS", "FrameCodec", "FrameRows"]

# Key of `DataFrame.attrs` under which a reader of files says what it took for public, for the privacy card.
PUBLIC_ASSUMPTIONS = "public_assumptions"

# Levels of a declared column that draw a warning, and bytes of two-way tables beyond which a frame is refused.
_MANY_LEVELS = 500
_MOST_BYTES = 2 << 30
# (bins of a numeric column, learned categories of a column), at most: the first that fits into _MOST_BYTES.
_ROOM = ((16, 200), (16, 150), (16, 100), (16, 70), (16, 50), (12, 35), (8, 25), (4, 12))


@dataclass(frozen=True, eq=False)
class FrameCodec:
    """Public or released: the schema and bins by which rows become level codes, and codes become rows.

    Parameters
    ----------
    encoder : TableEncoder
        Laid out for all columns, the target among them.
    target : column name or None
        The categorical column that the model is conditional on.
    y : {"none", "series", "array"}, default="none"
        Whether the last column came as y, and how it goes out.
    y_name : str or int, default=None
        The name under which a series goes out.
    """

    encoder: TableEncoder
    target: object = None
    y: str = "none"
    y_name: object = None

    @property
    def _target_at(self):
        return None if self.target is None else self.encoder.schema_.names.index(self.target)

    @property
    def n_levels(self):
        """Number of levels of every block but the target's, array of shape (n_blocks,)."""
        at = self._target_at
        return np.array([block.size for i, block in enumerate(self.encoder.blocks_) if i != at], dtype=np.int64)

    @property
    def optional_levels(self):
        """Levels that stand for a missing or for another value, bool array of shape (n_levels.sum(),)."""
        at = self._target_at
        levels = [self._optional(block) for i, block in enumerate(self.encoder.blocks_) if i != at]
        return np.concatenate([np.zeros(0, dtype=bool), *levels])

    @property
    def optional_classes(self):
        """The same of the target, shape (n_classes,)."""
        return self._optional(self.encoder.blocks_[self._target_at])

    def _optional(self, block):
        column = self.encoder.schema_[block.name]
        other = getattr(column, "other", None)
        return np.array([level is None or (other is not None and level == other) for level in block.levels])

    @property
    def row_norm(self):
        """Norm of every encoded row: one level in each block."""
        return len(self.n_levels) ** 0.5

    @property
    def n_classes(self):
        """Levels of the target; 0 without one."""
        return 0 if self.target is None else self.encoder.blocks_[self._target_at].size

    def codes(self, frame):
        """Level codes (n_samples, n_blocks) and class codes (n_samples,), or None without a target."""
        codes = self.encoder.codes(frame)
        if self.target is None:
            return codes, None
        return np.delete(codes, self._target_at, axis=1), codes[:, self._target_at]

    def one_hot(self, codes):
        """Encoded rows of shape (n_samples, n_levels.sum()), float32."""
        sizes = self.n_levels
        matrix = np.zeros((len(codes), int(sizes.sum())), dtype=np.float32)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        matrix[np.arange(len(codes))[:, None], codes + offsets] = 1.0
        return matrix

    def decode(self, codes, class_codes, rng):
        """A frame, or (frame, y), from level codes; values inside bins are drawn from `rng`."""
        if self.target is not None:
            codes = np.insert(codes, self._target_at, class_codes, axis=1)
        frame = self.encoder.decode(codes, rng=rng)
        if self.y == "none":
            return frame
        y = frame[frame.columns[-1]]
        return frame[frame.columns[:-1]], y.rename(self.y_name) if self.y == "series" else y.to_numpy()

    def class_codes(self, y):
        """Codes of the classes asked for at sampling; ValueError for one that the model does not have."""
        levels = pd.Index(np.array(self.classes, dtype=object), dtype=object)
        codes = levels.get_indexer(pd.Index(np.asarray(y, dtype=object), dtype=object))
        if (codes < 0).any():
            raise ValueError("y holds a class that the model does not have; see classes_")
        return codes

    @property
    def classes(self):
        """Values of the target's levels; None stands for a missing one."""
        return self.encoder.blocks_[self._target_at].levels

    def to_state(self):
        """Return plain values for a release file."""
        return {
            "kind": "frame",
            "schema": self.encoder.schema_.to_dict(),
            # a list of pairs, since a column's name need not be a string
            "binnings": [[name, binning.to_dict()] for name, binning in self.encoder.binnings_.items()],
            "target": self.target,
            "y": self.y,
            "y_name": self.y_name,
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        binnings = {name: Binning.from_dict(content) for name, content in state["binnings"]}
        encoder = TableEncoder(Schema.from_dict(state["schema"]), binnings=binnings).fit()
        return cls(encoder, state["target"], state["y"], state["y_name"])


class FrameRows:
    """The private rows of one fit, validated; dropped when the fit ends.

    Parameters
    ----------
    frame : DataFrame
    y : array-like of shape (n_samples,) or None
        Appended as the last column.
    target, schema, classes, target_type, on_invalid
        Parameters of the synthesizer.
    conditional : bool, default=True
        Whether the model has one prior a class; else a categorical target is a block like the others.
    """

    def __init__(self, frame, y, *, target, schema, classes, target_type, on_invalid, conditional=True):
        check_row_count(len(frame))
        self.y, self.y_name = "none", None
        self.public_assumptions = list(frame.attrs.get(PUBLIC_ASSUMPTIONS, ()))
        if y is not None:
            if target is not None:
                raise InvalidInputError("give the labels as y or as the column `target`, not both")
            frame, target = self._append(frame, y)
        elif target is not None and target not in frame.columns:
            raise InvalidInputError(f"the target {target!r} is not a column of the frame")
        if target is None and (classes is not None or target_type is not None):
            raise InvalidInputError("classes= and target_type= are used with y or a target alone")
        numeric = target is None or is_numeric_target(frame[target], target_type)
        schema = Schema.from_kinds(frame, schema, categorical=() if numeric else (target,))
        if target is not None:
            # the schema's word, and datetimes, which are modelled as numbers whatever their dtype suggests
            numeric = not isinstance(schema[target], Categorical | Boolean)
            wanted = {None: numeric, "numeric": True, "categorical": False}[target_type]
            if numeric != wanted:
                kind = type(schema[target]).__name__
                raise InvalidInputError(f"target_type={target_type!r}, but the target {target!r} is {kind}")
        if classes is not None:
            schema = self._declare(schema, target, numeric, classes)
        self.schema, self.target = schema, target if conditional and not numeric else None
        self.most_bins, self.most_categories = _room(schema, self.target)
        self.frame = validate_frame(frame, schema, on_invalid)

    def _append(self, frame, y):
        self.y = "series" if isinstance(y, pd.Series) else "array"
        values = np.asarray(y) if self.y == "array" else y
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
        column = pd.Series(values if self.y == "array" else y.array, index=frame.index, name=name)
        return pd.concat([frame, column], axis=1), name

    @staticmethod
    def _declare(schema, target, numeric, classes):
        if numeric:
            raise InvalidInputError("classes= needs a categorical target")
        if schema[target].complete:
            raise InvalidInputError("classes= and a schema that has the target's categories: give one of them")
        return schema.replace(replace(schema[target], categories=tuple(classes)))

    def __len__(self):
        return len(self.frame)

    def network_shape(self, settings, plan):
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

    def encoder_phases(self, share):
        """Return the release of the moments: one."""
        return [Phase("moments", share)]

    def learn(self, noise_multipliers, extra_delta, rng, neighboring):
        """Release what was not declared, and the bins of numeric columns; returns the codec and the moments' plan.

        Returns
        -------
        FrameCodec, float
            The float is the one-way tables' share of the moments (see `plan_bins`).
        """
        schema = self.schema
        if not schema.complete:
            query = schema_histogram(self.frame, schema)
            noisy, sd = _release(query.bounded_sum, noise_multipliers["schema"], rng, neighboring)
            schema = schema_from_histogram(noisy, query, sd, extra_delta, self.most_categories)
        if "rows" in noise_multipliers:
            rows = histogram(np.zeros(len(self.frame), dtype=np.int64), 1)
            row_count = float(add_gaussian(rows, noise_multipliers["rows"], rng, neighboring)[0])
        numbers = [c for c in schema.columns if not isinstance(c, Categorical | Boolean)]
        classes = 1 if self.target is None else _size(schema[self.target])
        n_blocks = len(schema) - (self.target is not None)
        if numbers:
            noisy, sd = _release(bins_histogram(self.frame, schema), noise_multipliers["bins"], rng, neighboring)
            row_count = float(noisy.sum()) / len(numbers)
        n_bins, one_way_share = plan_bins(
            row_count, n_blocks, classes, noise_multipliers["moments"], most=self.most_bins
        )
        binnings = bins_from_histogram(noisy, schema, sd, n_bins) if numbers else None
        codec = FrameCodec(TableEncoder(schema, binnings=binnings).fit(), self.target, self.y, self.y_name)
        self.codes, class_codes = codec.codes(self.frame)
        self.class_codes = np.zeros(len(self.frame), dtype=np.int64) if class_codes is None else class_codes
        return codec, one_way_share

    def moments(self, codec, one_way_share):
        """One-way and two-way tables, of each class where the model has classes: a BoundedSum."""
        classes = max(codec.n_classes, 1)
        return one_hot_moments(self.codes, codec.n_levels, self.class_codes, classes, one_way_share=one_way_share)

    def one_hot_with_labels(self, codec):
        """Encoded rows, float32, with one-hot classes at the end where conditional."""
        matrix = codec.one_hot(self.codes)
        if not codec.n_classes:
            return matrix
        return np.concatenate([matrix, np.eye(codec.n_classes, dtype=np.float32)[self.class_codes]], axis=1)


def _size(column):
    return len(column.values) + column.missing


def _room(schema, target):
    """Return bins and learned categories a column may have, from public facts alone; refuse what would not fit."""
    known = {c.name: _size(c) for c in schema.columns if isinstance(c, Categorical | Boolean) and c.complete}
    many = sorted((name for name in known if known[name] > _MANY_LEVELS), key=known.get, reverse=True)
    told = ", ".join(f"{name!r} ({known[name]})" for name in many[:5])
    for bins, categories in _ROOM:
        sizes = {
            c.name: known.get(c.name, (categories + 1 if isinstance(c, Categorical) else bins) + c.missing)
            for c in schema.columns
        }
        classes = 1 if target is None else sizes.pop(target)
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
