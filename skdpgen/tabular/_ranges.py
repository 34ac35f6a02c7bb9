"""Ranges of numbers that lie far from zero: octaves show where they begin, a second release where they end.

Octaves are the only grid that fits all numbers, and a coarse one: years are between 1024 and 2048, and the temperature
of a body is between 32 and 64. A grid on such bounds has a few cells with rows in them, and no bin can tell these rows
apart. So the columns of one or two octaves are counted once more, on grids within their bounds, ever finer.
Everything after the release is a function of it and of public facts.
"""

from __future__ import annotations

import math

import numpy as np

from ..mechanisms import joint_histogram, outermost_bins, split_histogram
from ._binning import MAX_UNIT_CELLS
from ._frames import numeric_bounds, numeric_values

# Cells of the grids on the bounds of a column. Of years, which lie between 1024 and 2048, the finest has quarters.
_SIZES = (8, 64, 512, 4096)
# Weight of each grid. The squares sum to 1, so that a row moves a column by 1.
_WEIGHT = 0.5
# Numbers are far from zero where the largest is at most so many times the smallest: those of one or two octaves.
_FAR = 4
# A narrower range has so much of the range of the occupied cells beside it on either side: for thin ends that the noise
# hides. Normal numbers stand out up to about 1.5 standard deviations, and 2 % of them lie beyond 2.3.
_MARGIN = 0.5
# A range is replaced only by one of at most this part of its width: a smaller gain is not worth clipping thin ends.
_WORTH = 0.5
# Rows of an occupied cell, in standard deviations of the noise, below which a finer grid is not read.
_CLEAR = 10
# Share of the rows that may lie outside, beyond what so many standard deviations of the noise explain.
_OUTSIDE, _OUTSIDE_SDS = 0.005, 3.0


def far_from_zero(column, lowest, highest):
    """Tell whether numbers in the octaves from `lowest` to `highest` are worth a release of their range.

    `column`: with its learned bounds. `lowest`, `highest`: outer edges of the octaves that the numbers are in.
    """
    if lowest < 0 < highest or min(abs(lowest), abs(highest)) * _FAR < max(abs(lowest), abs(highest)):
        return False
    low, high = numeric_bounds(column)
    # few whole numbers have a bin each
    return not column.whole or high - low >= MAX_UNIT_CELLS


def range_histogram(frame, schema, names, unit_sizes=None):
    """Count the rows of some numeric columns on grids within their bounds, from 8 to 4,096 cells.

    `schema`: with bounds of these columns, beyond which numbers are clipped.
    `unit_sizes` (n_rows,): as in `joint_histogram`.
    Returns: the grids of a column one after another, each of weight 1/2. A missing value has no cell. Sensitivity
        sqrt(d), or sqrt(2 d), for d columns.
    """
    codes = []
    for name in names:
        column = schema[name]
        low, span = _grid(column)
        values = numeric_values(frame[name], column)
        finest = np.clip(np.floor((np.nan_to_num(values, nan=low) - low) / span * _SIZES[-1]), 0, _SIZES[-1] - 1)
        finest = finest.astype(np.int16)  # of many columns at once
        codes += [np.where(np.isnan(values), np.int16(-1), finest // (_SIZES[-1] // size)) for size in _SIZES]
    return joint_histogram(codes, _SIZES * len(names), [_WEIGHT] * len(codes), unit_sizes)


def narrowed_ranges(noisy, schema, names, noise_sd):
    """Return the range that the released grids show of each column, no wider than its bounds.

    `noisy`: `range_histogram` with noise.
    `schema`, `names`: as they were counted.
    `noise_sd`: standard deviation of the noise on a count of weight 1.
    The ranges are in the units of `numeric_bounds`; whole where the column is. Columns that need no narrower range are
        left out.
    """
    found, parts = {}, split_histogram(noisy, _SIZES * len(names))
    for k, name in enumerate(names):
        first, last = _occupied(parts[k * len(_SIZES) : (k + 1) * len(_SIZES)], noise_sd / _WEIGHT, len(names))
        if (first, last) == (0, _SIZES[-1]):
            continue
        column = schema[name]
        low, span = _grid(column)
        lower, upper = low + span * first / _SIZES[-1], low + span * last / _SIZES[-1]
        if column.whole:
            lower, upper = math.floor(lower), math.ceil(upper) - 1
        bounds = numeric_bounds(column)
        found[name] = max(lower, bounds[0]), min(upper, bounds[1])
    return found


def _grid(column):
    low, high = map(float, numeric_bounds(column))
    return low, high - low + (1.0 if column.whole else 0.0)


def _occupied(grids, sd, n_columns):
    """First cell of the finest grid that the numbers are in, and the end of the last one."""
    first, last = 0, _SIZES[-1]
    for counts, size in zip(grids, _SIZES):
        width = _SIZES[-1] // size
        start, stop = first // width, -(-last // width)
        inside = counts[start:stop]
        cells = outermost_bins(inside, sd, n_columns * len(_SIZES))
        if cells is None or inside.sum() < _CLEAR * sd * (cells[1] - cells[0] + 1):
            break
        margin = max(1, math.ceil(_MARGIN * (cells[1] - cells[0] + 1)))
        a, b = max(cells[0] - margin, 0), min(cells[1] + 1 + margin, len(inside))
        outside = float(inside.sum() - inside[a:b].sum())
        explained = _OUTSIDE * max(float(inside.sum()), 0.0) + _OUTSIDE_SDS * sd * (len(inside) - (b - a)) ** 0.5
        if outside > explained:
            break
        if (b - a) * width > _WORTH * (last - first):
            continue
        first, last = max(first, (start + a) * width), min(last, (start + b) * width)
    return first, last
