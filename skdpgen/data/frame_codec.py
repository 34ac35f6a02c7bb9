"""DataFrames out: the released codec of a table, which encodes rows as levels and decodes samples."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..tabular import (
    Binning,
    Schema,
    TableEncoder,
)
from ..tabular._construction import Construction, as_recorded, by_presence
from ..tabular._encoder import one_hot
from ..tabular._frames import numeric_values
from ..tabular._identifiers import insert_keys, merge_keys, split_keys
from ..tabular._level_groups import LevelGroups
from ..utils.file_checks import MOST_CLASSES, check_size
from ..utils.printing import listed
from .labels import label_codes, one_column


@dataclass(frozen=True, eq=False)
class FrameCodec:
    """The public or released schema and bins that turn rows into level codes and codes into rows."""

    encoder: TableEncoder  # fitted to all columns, including the target, as the model sees them
    # column name, tuple of them, or None; categorical column that the model is conditional on. For a tuple, every
    # combination of levels is a class.
    target: object = None
    y: str = "none"  # "none" or "series" or "array"; container of the last column if it was given as y, else "none"
    y_name: object = None  # str or int; name of a series y
    # tuple of (int, Identifier); columns of keys, which the encoder does not know, and their places in the table; see
    # `with_keys`
    keys: tuple = ()
    # columns whose bounds or categories were learned, and not declared. None: not known, for models that an earlier
    # version wrote.
    learned: tuple | None = None
    # from rows to what the model sees of them and back, where constraints are satisfied by construction
    construction: Construction | None = None
    # columns of numbers and dates of which the released counts show missing values alone: samples have none, also if a
    # few rows have one
    empty: tuple = ()

    @functools.cached_property
    def schema(self):
        """The complete schema of the whole table."""
        return merge_keys(self.drawn_schema, self.keys)

    @functools.cached_property
    def drawn_schema(self):
        """The complete schema of the rows before keys are inserted."""
        seen = self.encoder.schema_
        return seen if self.construction is None else self.construction.released(seen)

    def with_keys(self, chunks):
        """Chunks of a sample with fresh keys in the columns of identifiers."""
        return insert_keys(chunks, self.keys) if self.keys else chunks

    @property
    def targets(self):
        """Names of the columns that the model is conditional on."""
        if self.target is None:
            return ()
        return self.target if isinstance(self.target, tuple) else (self.target,)

    def places(self, columns):
        """Places of columns among those that the model sees, targets too; one that is constructed may have none."""
        names = self.encoder.schema_.names
        return [names.index(name) for name in columns if name in names]

    def n_bins(self, columns):
        """Number of bins of each of some columns that the model sees; 0 of categories."""
        binnings = self.encoder.binnings_
        return [binnings[name].n_bins if name in binnings else 0 for name in columns]

    @property
    def _targets_at(self):
        return self.places(self.targets)

    @property
    def blocks(self):
        """The blocks that are modelled within a class."""
        at = self._targets_at
        return [block for i, block in enumerate(self.encoder.blocks_) if i not in at]

    @property
    def target_blocks(self):
        """Blocks of the targets, in the order of `targets`."""
        return [self.encoder.blocks_[i] for i in self._targets_at]

    @property
    def n_levels(self):
        """Number of levels of each of `blocks`, array of shape (n_blocks,)."""
        return np.array([block.size for block in self.blocks], dtype=np.int64)

    @property
    def is_number(self):
        """Which of `blocks` are of numbers or dates, in bins; bool array of shape (n_blocks,)."""
        return np.array([block.name in self.encoder.binnings_ for block in self.blocks], dtype=bool)

    @property
    def optional_levels(self):
        """Levels that the data need not have (missing, other, far bins), bool array of shape (n_levels.sum(),)."""
        return np.concatenate([np.zeros(0, dtype=bool), *(self.optional(block) for block in self.blocks)])

    @property
    def undrawn_levels(self):
        """Levels that are never drawn (the bins of the columns of `empty`), bool array of shape (n_levels.sum(),)."""
        return np.concatenate([np.zeros(0, dtype=bool), *(self.undrawn(block) for block in self.blocks)])

    def undrawn(self, block):
        """Levels of a block that are never drawn, bool array of shape (block.size,)."""
        return np.array([block.name in self.empty and level is not None for level in block.levels])

    @property
    def optional_classes(self):
        """Classes that the data need not have, bool array of shape (n_classes,)."""
        grids = np.meshgrid(*(self.optional(block) for block in self.target_blocks), indexing="ij")
        return np.any(grids, axis=0).ravel()

    def named(self, block):
        """Levels of a block that are values: not "other" and not missing; bool array of shape (block.size,).

        Where noise hides every value of a target, "other" is the one class.
        """
        other = getattr(self.encoder.schema_[block.name], "other", None)
        named = np.array([level is not None and (other is None or level != other) for level in block.levels])
        return named if named.any() else np.array([level is not None for level in block.levels])

    @property
    def named_classes(self):
        """Classes all of whose targets are `named`, bool array of shape (n_classes,)."""
        return np.all(np.meshgrid(*map(self.named, self.target_blocks), indexing="ij"), axis=0).ravel()

    def optional(self, block):
        """Levels of a block that the data need not have, bool array of shape (block.size,)."""
        column = self.encoder.schema_[block.name]
        groups, other = self.encoder.groups_.get(block.name), getattr(column, "other", None)
        levels = block.levels if groups is None else self.encoder.levels_of(block.name)
        optional = np.array([level is None or (other is not None and level == other) for level in levels])
        if (binning := self.encoder.binnings_.get(block.name)) is not None:
            optional[list(binning.doubtful)] = True
        if self.construction is not None:
            optional |= self.construction.optional(block.name, levels)
        if groups is not None:  # a group is optional if all its levels are
            return np.bincount(groups.group, optional, groups.n_groups) == np.bincount(groups.group)
        return optional

    @property
    def row_norm(self):
        """Norm of every encoded row, which has one level in each block."""
        return len(self.blocks) ** 0.5

    @property
    def class_shape(self):
        """Number of levels of each target."""
        return tuple(block.size for block in self.target_blocks)

    @property
    def n_classes(self):
        """Number of levels of the target (of combinations, for several targets); 0 without a target."""
        return int(np.prod(self.class_shape)) if self.targets else 0

    def codes(self, frame):
        """Level codes (n_samples, n_blocks) and class codes (n_samples,), or None without a target."""
        return self.split(self.level_codes(frame))

    def level_codes(self, frame):
        """Level codes of all columns that the model sees, the targets too, in the order of ``encoder.blocks_``."""
        return self.encoder.codes(self.seen(frame))

    def split(self, codes):
        """Split level codes of all columns into those of `blocks` and the class codes, or None without a target."""
        if not self.targets:
            return codes, None
        at = self._targets_at
        classes = np.ravel_multi_index(tuple(codes[:, i].astype(np.int64) for i in at), self.class_shape)
        return np.delete(codes, at, axis=1), classes

    def one_hot(self, codes):
        """Encoded rows of shape (n_samples, n_levels.sum()), float32."""
        return one_hot(codes, self.n_levels)

    def decode(self, codes, class_codes, rng, exact=None):
        """A frame, or (frame, y), from level codes; `rng` draws values within bins.

        `exact` holds Series for columns whose values are known: of one value that all rows have, or of one each.
        """
        return self.complete(self.decode_seen(codes, class_codes, rng, exact), rng, exact)

    def decode_seen(self, codes, class_codes, rng, exact=None):
        """A frame of what the model sees from level codes: `decode` before constraints construct the other columns."""
        if self.targets:
            at = self._targets_at
            full = np.empty((len(codes), len(self.encoder.blocks_)), dtype=np.int64)
            full[:, at] = np.stack(np.unravel_index(class_codes, self.class_shape), axis=1)
            full[:, [i for i in range(full.shape[1]) if i not in at]] = codes
            codes = full
        frame = self._decode_levels(codes, rng)
        for name, value in self._known(exact, frame, made=False).items():
            frame[name] = value
        return frame

    def _decode_levels(self, codes, rng):
        if self.empty:  # a network knows no levels that are never drawn
            at = self.places(self.empty)
            codes = np.array(codes)
            codes[:, at] = [self.encoder.blocks_[i].size - 1 for i in at]
        return self.encoder.decode(codes, rng=rng)

    def complete(self, frame, rng, exact=None):
        """A frame, or (frame, y), of all columns from one of what the model sees."""
        if self.construction is not None:
            known = self._known(exact, frame, made=True)
            frame = self.construction.decode(frame, self.encoder.schema_, self.drawn_schema, rng, known)
        return self.part(frame)

    def _known(self, exact, frame, made):
        """The columns of `exact` that constraints construct, or else the others: one value for each row of a frame."""
        constructed = () if self.construction is None else self.construction.changed
        known = {}
        for name, value in (exact or {}).items():
            if (name in constructed) == made:
                value = pd.Series(value)
                value = value if len(value) == len(frame) else value.repeat(len(frame))
                known[name] = value.set_axis(frame.index)
        return known

    def seen(self, frame):
        """What the model sees of a frame of rows."""
        frame = frame.drop(columns=[key.name for _, key in self.keys], errors="ignore")
        return frame if self.construction is None else self.construction.encode(frame)

    def seen_values(self, frame):
        """Values of the columns of `blocks`, and class codes, from a frame of what the model sees.

        Returns `values` (n_rows, n_blocks): numbers, dates as in `numeric_values`, NaN where missing; of categories the
        levels; `class_codes` (n_rows,), or None without a target.
        """
        codes, class_codes = self.split(self.encoder.codes(frame))
        values = codes.astype(np.float64)
        for i in np.flatnonzero(self.is_number):
            name = self.blocks[i].name
            values[:, i] = numeric_values(frame[name], self.encoder.schema_[name])
        return values, class_codes

    def set_classes(self, frame, class_codes, rng):
        """Return a frame of what the model sees with these classes, in the dtypes of the targets."""
        first = np.zeros((self.n_classes, len(self.blocks)), dtype=np.int64)
        labels = self.decode_seen(first, np.arange(self.n_classes), rng)
        frame = frame.copy(deep=False)
        for name in self.targets:
            frame[name] = labels[name].take(class_codes).set_axis(frame.index)  # of an array, pandas infers a dtype
        return frame

    def decode_columns(self, codes, names, rng):
        """A frame of some columns, which are constructed from one another alone, from level codes of all columns."""
        frame = self._decode_levels(codes, rng)
        if self.construction is None:
            return frame[list(names)]
        return self.construction.decode(frame, self.encoder.schema_, self.drawn_schema, rng, names=list(names))

    def part(self, frame):
        """Return a frame of all columns as it is, or as (frame, y) if y was given separately."""
        if self.y == "none":
            return frame
        y = frame[frame.columns[-1]]
        return frame[frame.columns[:-1]], y.rename(self.y_name) if self.y == "series" else y.to_numpy()

    def class_codes(self, y):
        """Codes of the classes of `y`; ValueError for a class that the model does not have."""
        y = one_column(y)
        if isinstance(self.target, tuple):
            wanted = y[list(self.target)] if isinstance(y, pd.DataFrame) else pd.DataFrame(list(map(tuple, y)))
            if wanted.shape[1] != len(self.target):
                raise ValueError(f"y must have {len(self.target)} columns, one for each target; got {wanted.shape[1]}")
            parts = [_level_codes(wanted.iloc[:, i], block) for i, block in enumerate(self.target_blocks)]
            return np.ravel_multi_index(tuple(parts), self.class_shape)
        return _level_codes(y, self.target_blocks[0])

    @property
    def classes(self):
        """Values of the levels of the target, tuples for several targets; None is a missing value."""
        if isinstance(self.target, tuple):
            grids = np.indices(self.class_shape).reshape(len(self.target), -1).T
            return [tuple(b.levels[i] for b, i in zip(self.target_blocks, row)) for row in grids.tolist()]
        return self.target_blocks[0].levels

    def to_state(self):
        """Return plain values for a release file."""
        whole = {"schema": self.schema.to_dict()}
        if self.construction is not None:
            # what the model sees, and the table from whose constraints its construction follows
            table = merge_keys(self.construction.table, self.keys)
            whole = {"schema": self.encoder.schema_.to_dict(), "table": table.to_dict()}
            whole["differences"] = [list(pair) for pair in self.construction.differences]
            if self.construction.constant:
                whole["constant"] = list(self.construction.constant)
        groups = [[name, groups.to_dict()] for name, groups in self.encoder.groups_.items()]
        groups = {"groups": groups} if groups else {}
        return {
            "kind": "frame",
            **whole,
            # a list of pairs, since a column's name need not be a string
            "binnings": [[name, binning.to_dict()] for name, binning in self.encoder.binnings_.items()],
            **groups,
            "target": list(self.target) if isinstance(self.target, tuple) else self.target,
            "y": self.y,
            "y_name": self.y_name,
            "learned": None if self.learned is None else list(self.learned),
            **({"empty": list(self.empty)} if self.empty else {}),
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        binnings = {name: Binning.from_dict(content) for name, content in state["binnings"]}
        schema, keys = split_keys(Schema.from_dict(state["schema"]))
        groups = {name: LevelGroups.from_dict(content) for name, content in state.get("groups", ())}
        encoder = TableEncoder(schema, binnings=binnings, groups=groups).fit()
        target = tuple(state["target"]) if isinstance(state["target"], list) else state["target"]
        if state["y"] not in ("none", "series", "array"):
            raise ValueError("y must be one of none, series and array")
        construction = None
        if "table" in state:
            table, keys = split_keys(Schema.from_dict(state["table"]))
            fixed = target if isinstance(target, tuple) else () if target is None else (target,)
            constant = state.get("constant", [])
            if not isinstance(constant, list) or not all(name in table for name in constant):
                raise ValueError("constant must be a list of columns of the table")
            construction = Construction.of(table, fixed, constant, _choice(state.get("differences"), table))
            construction.check_seen(encoder.schema_)
        learned = state.get("learned")
        if learned is not None and not (isinstance(learned, list) and all(n in encoder.schema_ for n in learned)):
            raise ValueError("learned must be a list of columns of the schema")
        learned = None if learned is None else tuple(learned)
        empty = state.get("empty", [])
        if not isinstance(empty, list) or not all(n in binnings and encoder.schema_[n].missing for n in empty):
            raise ValueError("empty must be a list of columns of numbers or dates that may be missing")
        codec = cls(encoder, target, state["y"], state["y_name"], keys, learned, construction, tuple(empty))
        check_size(*codec.class_shape, most=MOST_CLASSES)
        return codec


def _choice(differences, table):
    """Which columns of differences were made, for `Construction.of`; files of earlier versions do not say it."""
    if differences is None:
        return by_presence
    pairs = isinstance(differences, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in differences)
    if not pairs or not all(name in table for pair in differences for name in pair):
        raise ValueError("differences must be a list of pairs of columns of the table")
    return as_recorded(differences)


def _level_codes(values, block):
    codes = label_codes(values, block.levels)
    if (codes < 0).any():
        raise ValueError(f"y contains a class that the model does not have; {block.name!r} has {listed(block.levels)}")
    return codes
