"""Arrays scaled to the unit box: bounds and row norms, declared public or learned under differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..accounting import Phase
from ..exceptions import InvalidInputError
from ..mechanisms import (
    LARGEST,
    N_OCTAVE_CELLS,
    add_gaussian,
    clip_rows,
    joint_histogram,
    norm_histogram,
    octave_cells,
    octave_edges,
    octave_ranges,
    split_histogram,
)
from ..mechanisms._gaussian import row_norms
from ..utils.blocks import map_blocks
from ..utils.callers import warn_user
from ..utils.validation import as_numbers

# Grid of row norms: cells of an eighth of an octave, shifted at random (see `norm_edges`), below the largest norm.
_NORM_CELLS, NORM_CELL = 128, 1 / 8
# Share of the rows that a learned norm bound does not clip. Noise falls with the square of the bound, and clipped rows
# retain their direction.
_UNCLIPPED = 0.9


class Box(NamedTuple):
    """Lowest and highest scaled value of each column, and the map of scaled rows to [0, 1].

    Networks, wavelets and contrasts of images take each column in [0, 1], whatever its sign.
    """

    # low, high: (n_features,)
    low: np.ndarray
    high: np.ndarray

    @property
    def width(self):
        """Distance of the two in each column, positive also in a model file that says otherwise."""
        return np.maximum(self.high - self.low, 1e-300)

    def to_unit(self, scaled):
        """Map scaled rows to [0, 1]; those outside the box stay outside."""
        return (scaled - self.low) / self.width

    def from_unit(self, unit):
        """Undo `to_unit`."""
        return unit * self.width + self.low


@dataclass(frozen=True)
class RowScaling:
    """The public or released map of rows to the unit box, and the norm bound of scaled rows."""

    # lower, upper: (n_features,); values outside are clipped
    lower: np.ndarray
    upper: np.ndarray
    l2_bound: float  # bound of the norm of a scaled row; longer rows are clipped by the mechanisms
    weight: np.ndarray | float = 1.0  # public; of all columns, or of each: scaled values lie in [-weight, weight]

    @property
    def offset(self):
        """Point within the bounds nearest to zero; it is mapped to zero, so that sparse rows stay sparse."""
        return np.clip(0.0, self.lower, self.upper)

    @property
    def scale(self):
        """Largest distance of a value from the offset: scaled values lie in [-1, 1], with one sign in [0, 1]."""
        return np.maximum(self.upper - self.offset, self.offset - self.lower) / self.weight

    @property
    def corner(self):
        """Largest norm of a scaled row."""
        return float(np.square(np.broadcast_to(self.weight, len(self.lower))).sum() ** 0.5)

    @property
    def box(self):
        """Lowest and highest scaled value of each column."""
        return Box((self.lower - self.offset) / self.scale, (self.upper - self.offset) / self.scale)

    def transform(self, X):
        """Clip to the bounds and scale; X of shape (n_samples, n_features), any numeric dtype."""
        return (np.clip(np.asarray(X, dtype=np.float64), self.lower, self.upper) - self.offset) / self.scale

    def inverse_transform(self, Z):
        """Return scaled rows in the units of the data, inside the bounds."""
        return np.clip(np.asarray(Z, dtype=np.float64) * self.scale + self.offset, self.lower, self.upper)

    def clip(self, X):
        """Return rows in their own units, clipped to the bounds of the columns and to the norm bound."""
        return self.inverse_transform(clip_rows(self.transform(X), self.l2_bound))


def check_bounds(bounds, n_features):
    """Return declared bounds as (lower, upper), arrays of shape (n_features,); None stays None.

    `bounds` is one pair for all columns, or one pair for each column (shape (n_features, 2)).
    """
    if bounds is None:
        return None
    pairs = as_numbers(bounds, "bounds")
    if pairs.shape == (2,):
        pairs = np.broadcast_to(pairs, (n_features, 2))
    if pairs.shape != (n_features, 2):
        swapped = ": for two arrays of lower and upper bounds, give numpy.column_stack((low, high))"
        raise InvalidInputError(
            f"bounds must be a pair, or one pair for each of {n_features} columns; got shape {pairs.shape}"
            + (swapped if pairs.shape == (2, n_features) else "")
        )
    if not np.isfinite(pairs).all() or not (pairs[:, 0] < pairs[:, 1]).all():
        raise InvalidInputError("bounds must be finite, with the lower below the upper in every column")
    if np.abs(pairs).max() > 1e100:
        raise InvalidInputError("bounds beyond 1e100 cannot be squared: rescale the columns")
    if (pairs[:, 1] - pairs[:, 0]).min(initial=1.0) < 1e-100:
        raise InvalidInputError("bounds less than 1e-100 apart cannot be squared: rescale the columns")
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def check_inside(X, bounds):
    """Raise InvalidInputError where values lie outside declared bounds, as `check_bounds` returns them."""
    if bounds is not None and ((bounds[0] > X) | (bounds[1] < X)).any():
        raise InvalidInputError("X holds values outside the declared bounds; nothing was charged")


def scaling_phases(bounds, l2_bound, share):
    """Return the phases of `learn_scaling`: one for each of bounds and norm bound that is not declared."""
    complete = bounds is not None and np.isfinite(as_numbers(bounds, "bounds")).all()
    unknown = [name for name, known in (("bounds", complete), ("l2_bound", l2_bound is not None)) if not known]
    # one histogram of norms needs less budget than one of the magnitudes of every column
    return [Phase(name, share if name == "bounds" else share / 2) for name in unknown]


def learn_scaling(
    X, bounds, l2_bound, noise_multipliers, rng, neighboring, *, project=None, unit_sizes=None, weight=1.0
):
    """Release the bounds and the norm bound that were not declared; the caller charged them.

    `X` (n_samples, n_features): finite.
    `bounds`: as `check_bounds` returns them; None, or the columns where they are NaN, are learned: one joint histogram
        of magnitudes over those columns.
    `l2_bound`: None is learned: one histogram of the norms of the scaled rows.
    `noise_multipliers`: of the phases named by `scaling_phases`.
    `project`: public map of scaled rows to the rows whose norm is bounded.
    `unit_sizes` (n_samples,): as in `joint_histogram`. `weight`: as in `RowScaling`.
    """
    if bounds is None:
        bounds = (np.full(X.shape[1], np.nan),) * 2
    unknown = np.isnan(bounds[0])
    if unknown.any():
        learned = _learn_bounds(X[:, unknown], noise_multipliers["bounds"], rng, neighboring, unit_sizes)
        bounds = tuple(side.copy() for side in bounds)
        for side, found in zip(bounds, learned):
            side[unknown] = found
    scaling = RowScaling(*bounds, 1.0, weight)
    if l2_bound is None:
        norms = _norms(X, scaling, project)
        how = noise_multipliers["l2_bound"], rng, neighboring
        l2_bound = learn_norm_bound(norms, scaling.corner, *how, unit_sizes=unit_sizes)
    return RowScaling(*bounds, float(l2_bound), weight)


def _learn_bounds(X, noise_multiplier, rng, neighboring, unit_sizes=None):
    n_features = X.shape[1]
    sizes = [N_OCTAVE_CELLS] * n_features
    counts = joint_histogram([octave_cells(column) for column in X.T], sizes, unit_sizes=unit_sizes)
    sd = noise_multiplier * counts.sensitivity(neighboring)
    columns = split_histogram(add_gaussian(counts, noise_multiplier, rng, neighboring), sizes)
    # A column that the noise hides takes the range of all columns together.
    pooled = octave_ranges(np.sum(columns, axis=0, keepdims=True), sd * n_features**0.5)[0]
    ranges = [found or pooled for found in octave_ranges(np.array(columns), sd, n_features, pooled)]
    if None in ranges:
        warn_user("the noise hides the range of every column, so the fit uses (-1, 1): declare bounds=")
        ranges = [octave_cells([-0.5, 0.5])] * n_features  # the cells that end at -1 and 1
    if any(first == 0 or last == N_OCTAVE_CELLS - 1 for first, last in ranges):
        warn_user(
            f"rows reach the end of the range in which bounds are learned, -{LARGEST:.2g} to {LARGEST:.2g}, and values "
            "beyond this range are clipped: declare bounds="
        )
    lower = np.array([octave_edges(first)[0] for first, _ in ranges])
    upper = np.array([octave_edges(last)[1] for _, last in ranges])
    return lower, np.where(upper > lower, upper, lower + 1.0)


def learn_norm_bound(
    norms, largest, noise_multiplier, rng, neighboring, *, count=None, unit_sizes=None, about_mean=False
):
    """Release a bound that holds for about nine rows in ten: one histogram of norms on a public grid.

    `norms` (n_samples,): private.
    `largest`: public or released; norms above it count in the last cell.
    `count`: released number of rows; None takes the histogram's own sum.
    `unit_sizes` (n_samples,): as in `joint_histogram`. `about_mean`: see `bound_of_norms`.
    Returns: at most one cell above `largest`; ``largest / 2`` where the noise hides everything. Without noise, no row
        is clipped.
    """
    edges = norm_edges(largest, rng)
    counts = norm_histogram(norms, edges, unit_sizes)
    noisy = add_gaussian(counts, noise_multiplier, rng, neighboring)
    return bound_of_norms(noisy, noise_multiplier * counts.sensitivity(neighboring), edges, largest, count, about_mean)


def norm_edges(largest, rng):
    """Return the edges of the histogram of norms, eight in each octave, up to a cell above `largest`.

    They are shifted at random, so that no row lies on an edge: rounding cannot move a row to another cell.
    """
    return largest * 2.0 ** ((np.arange(-_NORM_CELLS + 1, 1) + float(rng.random(1)[0])) * NORM_CELL)


def bound_of_norms(noisy, sd, edges, largest, count=None, about_mean=False):
    """Return the norm that about nine rows in ten do not exceed, from their noisy histogram: post-processing.

    `noisy`: shape (n_edges + 1,). `sd`: of the noise on each count. `edges`: shape (n_edges,). `largest`, `count`: as
    in `learn_norm_bound`. `about_mean`: whether the norms are of rows less their released mean.
    """
    if sd == 0:
        return edges[min(np.flatnonzero(noisy)[-1], len(edges) - 1)]
    tail = np.cumsum(noisy[::-1])[::-1]
    # Rows above edge j are tail[j + 1]; move down while they are fewer than the share that may be clipped, noise aside.
    rows = max(tail[0] if count is None else count, 0.0)
    noise = 2 * sd * np.sqrt(np.arange(len(tail), 0, -1))
    # Where the noise of the cells above may be half of the rows, the bound could be far too small.
    above = np.flatnonzero((tail > (1 - _UNCLIPPED) * rows + noise) & (noise < 0.5 * rows))
    if not above.size:
        if about_mean:
            text = (
                "the noise hides the norms of the rows about their mean, so the fit uses half the largest possible "
                "norm: take more rows or a larger epsilon, or declare a smaller l2_bound= if the norms allow it"
            )
        else:
            text = (
                "the noise hides the norms of the rows, so the fit uses half the largest possible norm: declare "
                "l2_bound="
            )
        warn_user(text)
        return largest / 2
    return edges[min(above[-1], len(edges) - 1)]


def _norms(X, scaling, project):
    norms = np.empty(len(X))
    encode = scaling.transform if project is None else lambda rows: project(scaling.transform(rows))
    for part, rows in map_blocks(encode, X):
        norms[part] = row_norms(rows)
    return norms
