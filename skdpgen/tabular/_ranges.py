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
# Numbers are far from zero where the largest is at most so many times the smallest: those of one or two octaves. Beside
# one octave that stands out of the noise, the next on either side may be taken for occupied too.
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
# Share of the rows that the noise may hide outside, by the counts outside or those inside, whichever have less noise;
# and of whole numbers where the range becomes so many times narrower: years are spread over little of 1024 to 2047.
_HIDDEN, _HIDDEN_YEARS, _TIMES = 0.2, 0.45, 8


def far_from_zero(column, lowest, highest, least, most):
    """Tell whether numbers in the octaves from `lowest` to `highest` are worth a release of their range.

    `column`: with its learned bounds. `lowest`, `highest`: outer edges of the octaves that stand out of the noise.
    `least`, `most`: the same of all that may have numbers.
    """
    one_octave = _ratio(lowest, highest) <= 2
    if _ratio(least, most) > (4 * _FAR if one_octave else _FAR):
        return False
    low, high = numeric_bounds(column)
    # few whole numbers have a bin each
    return not column.whole or high - low >= MAX_UNIT_CELLS


def _ratio(lowest, highest):
    """How many times as far from zero one edge is as the other; infinite where zero is between them."""
    near, far = sorted((abs(lowest), abs(highest)))
    return math.inf if lowest < 0 < highest or near == 0 else far / near


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


def narrowed_ranges(noisy, schema, names, noise_sd, n_rows):
    """Return the range that the released grids show of each column, no wider than its bounds.

    `noisy`: `range_histogram` with noise.
    `schema`, `names`: as they were counted.
    `noise_sd`: standard deviation of the noise on a count of weight 1.
    `n_rows`: number of rows, as far as released counts show it.
    The ranges are in the units of `numeric_bounds`; whole where the column is. Columns that need no narrower range are
        left out.
    """
    found, parts = {}, split_histogram(noisy, _SIZES * len(names))
    for k, name in enumerate(names):
        column, grids = schema[name], parts[k * len(_SIZES) : (k + 1) * len(_SIZES)]
        first, last = _occupied(grids, noise_sd / _WEIGHT, len(names), n_rows, column.whole)
        if (first, last) == (0, _SIZES[-1]):
            continue
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


def _occupied(grids, sd, n_columns, n_rows, whole):
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
        noise = sd * (len(inside) - (b - a)) ** 0.5
        if outside > _OUTSIDE * max(float(inside.sum()), 0.0) + _OUTSIDE_SDS * noise:
            break
        hidden = min(outside + noise, n_rows - float(inside[a:b].sum()) + sd * (b - a) ** 0.5)
        if hidden > n_rows * (_HIDDEN_YEARS if whole and (b - a) * width * _TIMES <= last - first else _HIDDEN):
            break
        if (b - a) * width > _WORTH * (last - first):
            continue
        if _show_rows_outside(grids, sd, (first, last), ((start + a) * width, (start + b) * width)):
            break
        first, last = max(first, (start + a) * width), min(last, (start + b) * width)
    return first, last


def _show_rows_outside(grids, sd, range_, narrower):
    """Whether the cells of a coarser grid beside a narrower range show rows: a few cells have less noise than many."""
    for counts, size in zip(grids, _SIZES):
        width = _SIZES[-1] // size
        begin = np.arange(size) * width
        inside = (begin + width > range_[0]) & (begin < range_[1])
        beside = counts[inside & ((begin + width <= narrower[0]) | (begin >= narrower[1]))]
        most = _OUTSIDE * max(float(counts[inside].sum()), 0.0) + _OUTSIDE_SDS * sd * beside.size**0.5
        if beside.sum() > most:
            return True
    return False
