"""Scores of the levels of a wide table, and the query of their class-conditional moments.

Where columns are too many, or rows too few, for two-way tables to exceed the noise, each number has one score (that of
its bin) and each category has its indicators. Their second moments are far fewer than all pairs of levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag
from scipy.special import ndtri

from ..mechanisms import class_moments
from ..mechanisms._moments import CLASS_COUNT_WEIGHT, CLASS_MEAN_WEIGHT
from ..tabular import Boolean, Categorical

# Their second moments and principal components still take seconds.
_MOST_SCORES = 4000
# Score at the upper end of the last level.
_BEYOND = 1e6


@dataclass(frozen=True, eq=False)
class Scores:
    """A public or released map from levels to scores."""

    n_levels: np.ndarray  # int (n_blocks,)
    matrix: np.ndarray  # (n_columns_encoded, n_scores); scores of each level; every block has separate columns
    first: np.ndarray  # int (n_blocks,); first score of each block
    # int (n_blocks,); number of ordered levels, at the beginning of a block; 0 for a block of categories
    bins: np.ndarray
    edges: np.ndarray  # (n_columns_encoded,); score at the upper end of each ordered level
    shares: np.ndarray  # (n_columns_encoded,); released share of each ordered level; NaN where none is released
    weights: np.ndarray  # (n_scores,); factor of each score in the sums; a larger factor means less noise
    l2_bound: float  # norm to which the weighted scores of a row are clipped

    @classmethod
    def of_codec(cls, codec, importance):
        """Return the scores of the blocks of a codec, or None if there would be too many.

        The score of a bin is the normal quantile of the middle of its released mass (its place between the bounds if
        bins have equal widths), scaled to mean 0 and variance 1. A missing number has score 0 and a flag. A category
        has one indicator for each level. With the bound, few rows are clipped. The weights are the fourth roots of the
        `importance` of the blocks, shape (n_blocks,). Of all weights with the same sum of squares, they minimise the
        errors of the second moments, each weighted by the product of two importances.
        """
        schema, binnings = codec.encoder.schema_, codec.encoder.binnings_
        parts, bins, edges, shares, weights, expected = [], [], [], [], [], 0.0
        for block, weight in zip(codec.blocks, np.asarray(importance, dtype=np.float64) ** 0.25):
            column = schema[block.name]
            if isinstance(column, Categorical | Boolean):
                parts.append(np.eye(block.size))
                bins.append(0)
                edges.append(np.full(block.size, _BEYOND))
                shares.append(np.full(block.size, np.nan))
                weights.append(np.full(block.size, weight))
                expected += weight**2
                continue
            flag = [_BEYOND] if column.missing else []
            score, edge, share = _of_bins(binnings[block.name])
            part = np.zeros((block.size, 1 + len(flag)))
            part[: len(score), 0] = score
            if flag:
                part[-1, 1] = 1.0
            parts.append(part)
            bins.append(len(score))
            edges.append(np.concatenate([edge, flag]))
            shares.append(np.concatenate([share, [np.nan] * len(flag)]))
            weights.append(np.full(part.shape[1], weight))
            expected += weight**2 * (1.0 + 0.1 * len(flag))
        width = sum(part.shape[1] for part in parts)
        if width > _MOST_SCORES:
            return None
        first = np.concatenate([[0], np.cumsum([part.shape[1] for part in parts])[:-1]])
        matrix, bound = block_diag(*parts), float(np.sqrt(1.2 * expected))
        edges, shares, weights = (np.concatenate(listed) for listed in (edges, shares, weights))
        return cls(codec.n_levels, matrix, first, np.array(bins), edges, shares, weights, bound)

    def of_codes(self, codes):
        """Weighted scores of rows given by their level codes, shape (n_samples, n_scores)."""
        codes = np.asarray(codes).astype(np.intp, copy=False)
        out = np.zeros((len(codes), self.matrix.shape[1]))
        stops = np.append(self.first[1:], out.shape[1])
        starts = np.concatenate([[0], np.cumsum(self.n_levels)])
        for i, (first, stop) in enumerate(zip(self.first, stops)):
            out[:, first:stop] = self.matrix[starts[i] : starts[i + 1], first:stop][codes[:, i]]
        return out * self.weights


def _of_bins(binning):
    """Score of each bin, score at its upper end, and its released share (NaN for bins of equal widths)."""
    if binning.n_bins == 1:
        return np.zeros(1), np.full(1, _BEYOND), np.ones(1)
    edges, mass = binning.bin_edges, binning.bin_mass
    width = np.diff(edges) / (edges[-1] - edges[0])
    if np.allclose(mass, width):
        upper = np.append(np.cumsum(width)[:-1], _BEYOND)
        size = 12**-0.5  # standard deviation of the uniform distribution
        return (np.cumsum(width) - width / 2 - 0.5) / size, (upper - 0.5) / size, np.full(len(mass), np.nan)
    mass = np.maximum(mass, 1e-4) / np.maximum(mass, 1e-4).sum()
    upper = np.cumsum(mass)
    middle = ndtri(upper - mass / 2)
    mean = mass @ middle
    size = np.sqrt(mass @ (middle - mean) ** 2)
    return (middle - mean) / size, np.append((ndtri(upper[:-1]) - mean) / size, _BEYOND), mass


def score_moments(codes, scores, class_codes, n_classes, unit_sizes=None):
    """Count, sum and second moments of the scores in each class: a BoundedSum (see `class_moments`)."""
    return class_moments(
        codes,
        class_codes,
        n_classes,
        l2_bound=scores.l2_bound,
        count_weight=CLASS_COUNT_WEIGHT,
        mean_weight=CLASS_MEAN_WEIGHT,
        transform=scores.of_codes,
        unit_sizes=unit_sizes,
    )
