"""Sub-clusters of classes: the rows of a class on one side of its middle along each of a few directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..utils.blocks import exact_product, map_blocks

# Most directions along which a class of a release file is cut.
_MOST_DIRECTIONS = 8


@dataclass(frozen=True, eq=False)
class ClassCuts:
    """Directions along which each class is cut in two, and where; every field is public or released."""

    center: np.ndarray  # (d,); subtracted from rows before they are projected
    reach: float  # what rows are divided by after that: their entries are then at most 4
    directions: np.ndarray  # (n_classes, d, n_directions)
    middles: np.ndarray  # (n_classes, n_directions); where the class is cut along each direction, of the divided rows

    @property
    def n_parts(self):
        """Sub-clusters of each class."""
        return 1 << self.directions.shape[2]

    def along(self, rows):
        """Place of rows along the directions of every class, shape (n_rows, n_classes, n_directions).

        It is one and the same function of each row: no place of a row and no other row changes it.
        """
        n_classes, d, n_directions = self.directions.shape
        flat = np.moveaxis(self.directions, 0, 1).reshape(d, -1)
        found = exact_product((rows - self.center) / self.reach, flat)
        return found.reshape(len(rows), n_classes, n_directions)

    def codes(self, rows, classes, transform=None):
        """Sub-cluster of each row: a function of the row and of released values, which does not depend on other rows.

        It is ``class * n_parts + sum of 2**i`` over the directions i on whose upper side the row lies; -1 for a row of
        no class.

        `rows`: shape (n_rows, n). `classes` (n_rows,): negative: no class. `transform`: map of a chunk of rows to rows
        of d columns.
        """
        bits = 1 << np.arange(self.directions.shape[2])
        codes = np.zeros(len(rows), dtype=np.int64)
        for part, along in map_blocks(lambda chunk: self.along(transform(chunk) if transform else chunk), rows):
            known = np.maximum(classes[part], 0)
            own = along[np.arange(len(along)), known]
            codes[part] = known * self.n_parts + (own > self.middles[known]) @ bits
        return np.where(classes < 0, -1, codes)

    def to_state(self):
        """Return arrays for a release file."""
        return {name: getattr(self, name) for name in ("center", "reach", "directions", "middles")}

    @classmethod
    def from_state(cls, state, n_classes, d):
        """Rebuild from `to_state`; ValueError where it is not one of so many classes and columns."""
        center, directions, middles = (
            np.asarray(state[name], dtype=np.float64) for name in ("center", "directions", "middles")
        )
        reach, n_directions = float(state["reach"]), middles.shape[-1] if middles.ndim else 0
        shapes = [(d,), (n_classes, d, n_directions), (n_classes, n_directions)]
        fits = [each.shape for each in (center, directions, middles)] == shapes
        if not fits or not 1 <= n_directions <= _MOST_DIRECTIONS:
            raise ValueError("the sub-clusters of the classes do not fit the classes and their features")
        if not (reach > 0 and np.isfinite(reach)):
            raise ValueError("the reach of the sub-clusters must be positive")
        return cls(center, reach, directions, middles)
