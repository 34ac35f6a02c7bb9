"""The released codec of a table: how rows become level codes, and codes become rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..tabular import Binning, Schema, TableEncoder
from ..utils.file_checks import MOST_CLASSES, check_size

__all__ = ["FrameCodec"]


@dataclass(frozen=True, eq=False)
class FrameCodec:
    """Public or released: the schema and bins by which rows become level codes, and codes become rows.

    Parameters
    ----------
    encoder : TableEncoder
        Laid out for all columns, the target among them.
    target : column name, tuple of them, or None
        The categorical column that the model is conditional on. Of several, every combination of levels is a class.
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
    def targets(self):
        """Names of the columns that the model is conditional on."""
        if self.target is None:
            return ()
        return self.target if isinstance(self.target, tuple) else (self.target,)

    @property
    def _targets_at(self):
        names = self.encoder.schema_.names
        return [names.index(name) for name in self.targets]

    @property
    def blocks(self):
        """The blocks that are modelled within a class."""
        at = self._targets_at
        return [block for i, block in enumerate(self.encoder.blocks_) if i not in at]

    @property
    def target_blocks(self):
        """Those of the targets, in the order of `targets`."""
        return [self.encoder.blocks_[i] for i in self._targets_at]

    @property
    def n_levels(self):
        """Number of levels of every block but the targets', array of shape (n_blocks,)."""
        return np.array([block.size for block in self.blocks], dtype=np.int64)

    @property
    def optional_levels(self):
        """Levels that there need not be (missing, other, far away), bool array of shape (n_levels.sum(),)."""
        return np.concatenate([np.zeros(0, dtype=bool), *(self._optional(block) for block in self.blocks)])

    @property
    def optional_classes(self):
        """The same of the classes, shape (n_classes,)."""
        grids = np.meshgrid(*(self._optional(block) for block in self.target_blocks), indexing="ij")
        return np.any(grids, axis=0).ravel()

    def _optional(self, block):
        column = self.encoder.schema_[block.name]
        other = getattr(column, "other", None)
        optional = np.array([level is None or (other is not None and level == other) for level in block.levels])
        if (binning := self.encoder.binnings_.get(block.name)) is not None:
            optional[list(binning.doubtful)] = True
        return optional

    @property
    def row_norm(self):
        """Norm of every encoded row: one level in each block."""
        return len(self.blocks) ** 0.5

    @property
    def class_shape(self):
        """Number of levels of each target."""
        return tuple(block.size for block in self.target_blocks)

    @property
    def n_classes(self):
        """Levels of the target (combinations of levels of several); 0 without one."""
        return int(np.prod(self.class_shape)) if self.targets else 0

    def codes(self, frame):
        """Level codes (n_samples, n_blocks) and class codes (n_samples,), or None without a target."""
        codes = self.encoder.codes(frame)
        if not self.targets:
            return codes, None
        at = self._targets_at
        classes = np.ravel_multi_index(tuple(codes[:, i].astype(np.int64) for i in at), self.class_shape)
        return np.delete(codes, at, axis=1), classes

    def one_hot(self, codes):
        """Encoded rows of shape (n_samples, n_levels.sum()), float32."""
        sizes = self.n_levels
        matrix = np.zeros((len(codes), int(sizes.sum())), dtype=np.float32)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        matrix[np.arange(len(codes))[:, None], codes + offsets] = 1.0
        return matrix

    def decode(self, codes, class_codes, rng):
        """A frame, or (frame, y), from level codes; values inside bins are drawn from `rng`."""
        if self.targets:
            at = self._targets_at
            full = np.empty((len(codes), len(self.encoder.blocks_)), dtype=np.int64)
            full[:, at] = np.stack(np.unravel_index(class_codes, self.class_shape), axis=1)
            full[:, [i for i in range(full.shape[1]) if i not in at]] = codes
            codes = full
        return self.part(self.encoder.decode(codes, rng=rng))

    def part(self, frame):
        """A frame of all columns as it goes out: itself, or (frame, y) where y came apart."""
        if self.y == "none":
            return frame
        y = frame[frame.columns[-1]]
        return frame[frame.columns[:-1]], y.rename(self.y_name) if self.y == "series" else y.to_numpy()

    def class_codes(self, y):
        """Codes of the classes asked for at sampling; ValueError for one that the model does not have."""
        if isinstance(self.target, tuple):
            wanted = y[list(self.target)] if isinstance(y, pd.DataFrame) else pd.DataFrame(list(map(tuple, y)))
            if wanted.shape[1] != len(self.target):
                raise ValueError(f"y must have {len(self.target)} columns, one a target; got {wanted.shape[1]}")
            parts = [_level_codes(wanted.iloc[:, i], block) for i, block in enumerate(self.target_blocks)]
            return np.ravel_multi_index(tuple(parts), self.class_shape)
        return _level_codes(y, self.target_blocks[0])

    @property
    def classes(self):
        """Values of the target's levels, tuples of them for several targets; None stands for a missing one."""
        if isinstance(self.target, tuple):
            grids = np.indices(self.class_shape).reshape(len(self.target), -1).T
            return [tuple(b.levels[i] for b, i in zip(self.target_blocks, row)) for row in grids.tolist()]
        return self.target_blocks[0].levels

    def to_state(self):
        """Return plain values for a release file."""
        return {
            "kind": "frame",
            "schema": self.encoder.schema_.to_dict(),
            # a list of pairs, since a column's name need not be a string
            "binnings": [[name, binning.to_dict()] for name, binning in self.encoder.binnings_.items()],
            "target": list(self.target) if isinstance(self.target, tuple) else self.target,
            "y": self.y,
            "y_name": self.y_name,
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        binnings = {name: Binning.from_dict(content) for name, content in state["binnings"]}
        encoder = TableEncoder(Schema.from_dict(state["schema"]), binnings=binnings).fit()
        target = tuple(state["target"]) if isinstance(state["target"], list) else state["target"]
        if state["y"] not in ("none", "series", "array"):
            raise ValueError("y must be one of none, series and array")
        codec = cls(encoder, target, state["y"], state["y_name"])
        check_size(*codec.class_shape, most=MOST_CLASSES)
        return codec


def _level_codes(values, block):
    levels = pd.Index(np.array(block.levels, dtype=object), dtype=object)
    codes = levels.get_indexer(pd.Index(np.asarray(values, dtype=object), dtype=object))
    if (codes < 0).any():
        raise ValueError("y holds a class that the model does not have; see classes_")
    return codes
