"""What may be concluded from a noisy histogram: names above a threshold, and the range of cells that holds the rows."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.special import expit, ndtri

from .._types import unit_of
from ..utils.watching import tell_kept
from ._gaussian import add_gaussian
from ._histogram import N_OCTAVE_CELLS, octave_edges

# Probabilities, over all columns, that an empty bin passes for an occupied one (see `outermost_bins`).
_FALSE_ALARMS = (0.001, 0.05)
# Penalty of a run of cells in `occupied_cells`: less accepts noise far from the rows, more cuts off their thin tails.
_CAUTION = 3.0
# Longest gap, in `sure_range`, between the rows and their thin ends, as a share of the range of the others.
_GAP = 0.25
# For `octave_ranges`: probability, over all columns, that a cell far from all others is taken although it is empty; how
# many octaves beyond the largest likely one may lie; and the probability of being occupied from which the cell beside
# the range is taken. One octave too many costs a factor of two, one too few loses all the rows in it.
_FALSE_ALARM, _NEAR, _MAYBE = 0.001, 2, 0.05
# Most octaves that the rows of a column are summed over, where single ones do not stand above the noise.
_WINDOW = 4
# Of `with_hidden_signs`. Probability, over all columns, of a sign that no row has; the bins then show that it is empty,
# which does little harm. And standard deviations by which the rows of a sign exceed those of its cells in the range.
_FALSE_SIGN, _MISSED = 0.01, 2.0
# Probability that the rows of a sign end before the range, where each of their cells is hidden.
_END = 0.9
# Columns whose runs are in memory together.
_AT_ONCE = 32


# -- names above a threshold: charged with a delta ----------------------------------------------------------------


def selection_threshold(sd, delta, n_columns=1, unit=None):
    """Noisy count above which a category whose name is private may be released.

    A category that only one record has has count 1. It passes in any of `n_columns` columns with probability at
    most `delta`: 1 + sd * Phi^-1((1 - delta)^(1 / n_columns)). Of units the threshold is the larger of two (see Notes).

    Parameters
    ----------
    sd : float
        Standard deviation of the noise on one count.
    delta : float
        Charged beside the Gaussian event; 0 < delta < 1.
    n_columns : int, default=1
        Columns whose categories are selected in the same query (one record has one category in each).
    unit : BoundedUnit or None, default=None
        Whose rows may bring a category; None: one row.

    Notes
    -----
    A unit may have up to k = `max_rows` categories of a column to itself, with counts of c_1, c_2, ... that sum to at
    most w, its `weight`. None of them passes with probability exp(-sum f(c_i)), where f(c) = -log Phi((T - c) / sd) is
    convex. So the sum is largest where one category has all of w, or where k categories have w / k each: T is the
    larger of the two thresholds w + sd Phi^-1((1 - delta)^(1 / n)) and w / k + sd Phi^-1((1 - delta)^(1 / (k n))).
    Fewer than k rows, with weights of 1 / m, are between them: m f(1 / m) is convex in m.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1); got {delta!r}")
    weight, most = (1, 1) if unit is None else (unit.weight, unit.max_rows)

    def passed_by(count, n):
        # -Phi^-1(p) with the upper tail p = 1 - (1 - delta)^(1/n), which 1 - x would round away
        tail = -np.expm1(np.log1p(-delta) / n)
        return count + float(sd) * -ndtri(tail)

    return max(passed_by(float(weight), n_columns), passed_by(weight / most, most * n_columns))


def select_above(noisy_counts, sd, delta, n_columns=1, unit=None):
    """Return the boolean mask of the categories whose noisy count passes `selection_threshold`.

    Parameters
    ----------
    noisy_counts : array of shape (n_categories,)
    sd, delta, n_columns, unit
        As in `selection_threshold`.
    """
    return np.asarray(noisy_counts) > selection_threshold(sd, delta, n_columns, unit)


def above_threshold(noisy, counts, sd, delta, n_columns=1, unit=None):
    """Return the mask of what passes `select_above` by a step of the lattice to which the noise was rounded.

    With this step, rounding does not raise the probability of passing. Arguments as in `select_above`; `counts` is the
    BoundedSum.
    """
    if counts.weighted and unit is None:
        raise ValueError("these are counts of units: their threshold needs the unit")
    return select_above(noisy - counts.lattice, sd, delta, n_columns, unit)


def release_kept(counts, noise_multiplier, delta, rng, neighboring):
    """Release which of the observed categories of one column many rows share.

    Parameters
    ----------
    counts : BoundedSum
        `histogram` of the categories observed, each of which is private.
    noise_multiplier : float
        0 (no privacy) keeps all.
    delta : float
        Probability that a category of one record is released; charged beside the Gaussian event.
    rng : NoiseGenerator
    neighboring : str

    Returns
    -------
    mask : bool array of shape (n_categories,)
        Its true entries are the release; their positions among the others are private.
    """
    noisy = add_gaussian(counts, noise_multiplier, rng, neighboring)
    if noise_multiplier == 0:
        return np.ones(noisy.shape, dtype=bool)
    sd = noise_multiplier * counts.sensitivity(neighboring)
    return above_threshold(noisy, counts, sd, delta, 1, unit_of(neighboring))


def release_names(names, counts, noise_multiplier, delta, rng, neighboring):
    """Release which of the observed categories of one column many rows share, by name.

    Parameters
    ----------
    names : sequence
        The categories observed, private, in an order that depends on the names alone.
    counts, noise_multiplier, delta, rng, neighboring
        As in `release_kept`; one count for each name.

    Returns
    -------
    list
        The names that passed.
    """
    named = replace(counts, keys={0: tuple(names)})
    kept = release_kept(named, noise_multiplier, delta, rng, neighboring)
    return list(tell_kept(dict.fromkeys(name for name, keep in zip(names, kept) if keep)))


# -- ranges and densities: post-processing of a release, which costs nothing ---------------------------------------


def outermost_bins(noisy_counts, sd, n_columns=1):
    """Return the first and last bin that stand above the noise, or None if none does.

    Parameters
    ----------
    noisy_counts : array of shape (n_bins,)
    sd : float
        Standard deviation of the noise on one count; with 0 any count above 0 stands out.
    n_columns : int, default=1
        Columns that share the probability that an empty bin passes for an occupied one. It is a thousandth of all
        fits, because such a bin stretches a range by many octaves; a twentieth in a column where nothing stands so
        high.

    Returns
    -------
    (int, int) or None
    """
    noisy_counts = np.asarray(noisy_counts)
    for failure in _FALSE_ALARMS:
        above = np.flatnonzero(noisy_counts > sd * -ndtri(failure / n_columns / noisy_counts.size))
        if above.size:
            return int(above[0]), int(above[-1])
    return None


def denoise(noisy, measure, noise_sd):
    """Estimate the counts behind a noisy histogram as a mixture of piecewise constant densities.

    `noisy` (n_cells,): counts with Gaussian noise. `measure` (n_cells,): width of each cell. `noise_sd`: standard
    deviation of the noise; 0 returns the counts. Returns an array of shape (n_cells,).

    Every way to cut the cells into runs that are empty or of constant density is weighted by its likelihood, a factor
    n_cells^-1/2 for each run and a further n_cells^-1/4 for each run that is not empty, and the estimates are averaged
    (exponential weights; the sum over all partitions is a forward and a backward recursion). A spike needs two cuts, so
    it survives where it is significant, and empty stretches are pooled to almost nothing. Both ends are cut off at the
    outermost cells that are more likely occupied than empty.
    """
    noisy, measure = np.asarray(noisy, dtype=np.float64), np.asarray(measure, dtype=np.float64)
    n = len(noisy)
    if noise_sd <= 0 or n < 2:
        return np.maximum(noisy, 0.0)
    density, occupied = _runs(noisy, measure, noise_sd)
    estimate = _over_cells(occupied * density, n) * measure / measure.max()
    likely = np.flatnonzero(_over_cells(occupied, n) > 0.5)
    if likely.size:
        estimate[: likely[0]] = estimate[likely[-1] + 1 :] = 0.0
    return estimate


def sure_range(noisy, measure, noise_sd, n_columns=1):
    """Return the first and last of the `occupied_cells`: the range that noise alone cannot explain.

    Likely occupied cells near them belong to the range. All cells are returned where nothing stands out or there is no
    noise.
    """
    n = len(noisy)
    if noise_sd <= 0 or n < 2:
        return 0, n - 1
    surely = np.flatnonzero(occupied_cells(noisy, measure, noise_sd, n_columns) > 0.5)
    if not surely.size:
        return 0, n - 1
    likely = _over_cells(_runs(noisy, measure, noise_sd)[1], n) > 0.5
    return widened(surely[0], surely[-1], likely, _GAP)


def widened(first, last, occupied, gap=0.0):
    """Widen a range of cells to both sides by the cells of the mask `occupied` that follow it.

    No gap is longer than a share `gap` of the range: near cells are likely its thin end, far cells are not.
    """
    cells = np.flatnonzero(occupied)
    while True:
        reach = 1 + int(gap * (last - first + 1))
        low = cells[(cells < first) & (cells >= first - reach)].min(initial=first)
        high = cells[(cells > last) & (cells <= last + reach)].max(initial=last)
        if (low, high) == (first, last):
            return int(first), int(last)
        first, last = low, high


def occupied_cells(noisy, measure, noise_sd, n_columns=1, caution=_CAUTION):
    """Probability that each cell is occupied, by the mixture of `denoise` with a larger penalty on occupied runs.

    With the penalty that estimates counts best, one empty stretch in five or more has a run that passes for occupied.
    With this one (smaller by a factor e^-caution / n_columns), it is a few in a hundred for one column, and fewer for
    several. A `caution` of 0 is for cells that rows are as likely in as not.
    """
    occupied = _runs(noisy, measure, noise_sd, caution + np.log(n_columns))[1]
    return _over_cells(occupied, np.shape(noisy)[-1])


def unevenness(noisy, measure, noise_sd, n_cells):
    """Return the log odds that several densities explain the counts of some cells, and not one density.

    `noisy` (n_part,): counts of adjacent cells, with noise.
    `measure` (n_part,): width of each cell.
    `noise_sd`: standard deviation of the noise; above 0.
    `n_cells`: cells of the whole histogram, on which the penalties of `denoise` depend.
    Returns: log likelihood of the mixture of `denoise`, with weights that sum to 1, less that of one density.
    """
    n = len(noisy)
    fit = _scores(_gains(noisy, measure, noise_sd, n_cells)[1], n, n_cells)
    weights = _scores(np.full(n * (n + 1) // 2, -_occupied(n_cells)), n, n_cells)  # those of the runs, without counts
    one_density = fit[0, -1] - weights[0, -1]
    return float(_forward(fit)[n] - _forward(weights)[n] - one_density)


def octave_ranges(noisy, noise_sd, n_columns=1, common=None, alike=True):
    """Return the first and last cell of the octaves that each column's numbers lie in.

    Noise may hide single octaves and not all of them together: numbers are spread over several octaves, on both sides
    of zero. So the cells are judged by densities as well as one by one. A cell that noise cannot explain is taken
    wherever it is; a likely occupied cell, near such a cell; and the next cell on both sides, if it may be occupied.

    Parameters
    ----------
    noisy : array of shape (n_cols, n_cells)
        Counts of `octave_cells`, with noise.
    noise_sd : float
        Standard deviation of the noise on one count.
    n_columns : int, default=1
        Columns that share the probability of a cell too many, as in `outermost_bins`.
    common : (int, int), default=None
        Range of all columns together. A column in which no cell is certain then has likely cells far beyond this range
        only if noise explains them in none of the columns: one such cell in a few of hundreds of columns makes the
        noise of all columns useless.
    alike : bool, default=True
        Whether the columns have one unit, as pixels do. Columns of a table have different ones: in them such a cell is
        also taken where the sum of up to four adjacent cells stands above the noise.

    Returns
    -------
    list of (int, int) or None
        None for a column in which nothing stands out.
    """
    ranges = []
    for part in np.array_split(noisy, -(-len(noisy) // _AT_ONCE)):
        occupied = part > 0 if noise_sd == 0 else occupied_cells(part, _octave_widths(), noise_sd)
        ranges += [_octave_range(*column, noise_sd, n_columns, common, alike) for column in zip(part, occupied)]
    return ranges


def with_hidden_signs(cells, noisy, noise_sd, signs, signs_sd, n_columns=1, common=None):
    """Widen the range of octaves of one column by a sign that its cells hide, and the counts of both signs show.

    A thin tail on the other side of zero is spread over many octaves, and noise hides each of them. Its rows together
    may stand out. How far the tail reaches is then unknown: the range is taken to be as wide as on the first side.
    Bounds that are too wide clip nothing. Where nothing but zero stands out, as of amounts that most rows do not have,
    there is no such side: the range ends where the rows of the sign most likely end, and not far beyond `common`, if
    that is a range of more than zero.

    `cells`: range that `octave_ranges` found.
    `noisy` (n_cells,): counts of `octave_cells`, with noise of standard deviation `noise_sd`.
    `signs` (2,): numbers of negative and of positive values, with noise of standard deviation `signs_sd`.
    `n_columns`: columns that share the probability of a sign too many, a hundredth.
    `common`: range of all columns together, as in `octave_ranges`, or None.
    """
    if cells is None or noise_sd == 0:
        return cells
    zero, (first, last) = len(noisy) // 2, cells
    surely = np.asarray(signs) > signs_sd * -ndtri(_FALSE_SIGN / n_columns / 2)
    missed = [
        count - side.sum() > _MISSED * (signs_sd**2 + side.size * noise_sd**2) ** 0.5
        for count, side in zip(signs, (noisy[first:zero], noisy[max(first, zero + 1) : last + 1]))
    ]
    size = max(zero - first, last - zero)
    sizes = (size, size)
    if size <= 1:
        sides = noisy[:zero][::-1], noisy[zero + 1 :]
        reach = 0 if common is None else max(zero - common[0], common[1] - zero)
        most = min(zero, reach + _NEAR) if reach > _NEAR else zero  # no less than this is a range of numbers
        sizes = [min(_likely_end(side, noise_sd, max(count, signs_sd)), most) for side, count in zip(sides, signs)]
    if surely[0] and (missed[0] or first >= zero):
        first = zero - sizes[0]
    if surely[1] and (missed[1] or last <= zero):
        last = zero + sizes[1]
    return first, last


def _likely_end(noisy, noise_sd, count):
    """Number of cells of one sign, from zero on, within which `count` rows lie, whose cells the noise hides.

    The rows are taken to be equally many in each cell of a run, of which any is as likely as another of its length.
    """
    n = len(noisy)
    sums = np.concatenate([[0.0], np.cumsum(noisy)])
    starts, ends = (places[np.arange(n)[:, None] <= np.arange(n)] for places in np.indices((n, n)))
    lengths = ends - starts + 1
    mean = count / lengths
    logs = mean * (sums[ends + 1] - sums[starts] - mean * lengths / 2) / noise_sd**2 - 2 * np.log(lengths)
    likely = np.exp(logs - logs.max())
    share = np.cumsum(np.bincount(ends, likely, minlength=n)) / likely.sum()
    return int(np.searchsorted(share, _END)) + 1


def _octave_widths():
    return np.diff([octave_edges(cell) for cell in range(N_OCTAVE_CELLS)], axis=1)[:, 0]


def _octave_range(noisy, occupied, noise_sd, n_columns, common, alike):
    cells = np.flatnonzero(occupied > 1 - _FALSE_ALARM / n_columns)
    cells = np.append(cells, outermost_bins(noisy, noise_sd, n_columns) or ()).astype(int)
    likely = np.flatnonzero(occupied > 0.5)
    size = np.abs(np.arange(len(occupied)) - len(occupied) // 2)  # in octaves: -1 is as near to 2 as 1 is
    if not cells.size:
        cells = likely
        if common is not None and size[cells].max(initial=0) > size[list(common)].max() + _NEAR:
            certain = occupied_cells(noisy, _octave_widths(), noise_sd, n_columns)[cells] > 0.5
            if not alike:
                certain |= _in_full_windows(noisy, noise_sd, n_columns)[cells]
            cells = cells[(size[cells] <= size[list(common)].max() + _NEAR) | certain]
    if not cells.size:
        return None
    largest = -1
    while size[cells].max() > largest:
        largest = size[cells].max()
        cells = np.append(cells, likely[size[likely] <= largest + _NEAR])
    first, last = int(cells.min()), int(cells.max())
    first -= first > 0 and occupied[first - 1] > _MAYBE
    last += last < len(occupied) - 1 and occupied[last + 1] > _MAYBE
    return int(first), int(last)


def _in_full_windows(noisy, noise_sd, n_columns):
    """Which cells are in a window of adjacent ones whose sum stands above the noise; see `outermost_bins`."""
    found = np.zeros(len(noisy), dtype=bool)
    for width in range(2, _WINDOW + 1):
        least = noise_sd * width**0.5 * -ndtri(_FALSE_ALARMS[-1] / n_columns / len(noisy))
        above = np.convolve(noisy, np.ones(width), "valid") > least
        found |= np.convolve(above, np.ones(width)) > 0
    return found


def _runs(noisy, measure, noise_sd, caution=0.0):
    """Density of each run of cells, in the order of ``triu_indices``, and the probability that it is an occupied run.

    `noisy` has the cells on its last axis; the histograms on the axes before it are treated one by one.
    """
    n = np.shape(noisy)[-1]
    density, gain = _gains(noisy, measure, noise_sd, n, caution)
    score = _scores(gain, n, n)
    forward, backward = _forward(score), np.zeros((*score.shape[:-2], n + 1))
    for start in range(n - 1, -1, -1):
        backward[..., start] = _log_sum(score[..., start, start:] + backward[..., start + 1 :])
    first, last, _ = _upper(n)
    weight = np.exp(forward[..., first] + score[..., first, last] + backward[..., last + 1] - forward[..., n, None])
    return density, weight * expit(gain)  # posterior probability of the run, and of being occupied


def _gains(noisy, measure, noise_sd, n_cells, caution=0.0):
    """Density of each run, and its log likelihood less that of an empty run and less the penalty of an occupied one."""
    noisy, measure = np.asarray(noisy, dtype=np.float64), np.asarray(measure, dtype=np.float64)
    n = noisy.shape[-1]
    measure = np.maximum(measure / measure.max(), 1e-100)  # whose square is still a number
    first, last, below = _upper(n)
    # sums over runs, row by row: differences of one cumulative sum would lose the narrow cells
    product, square = (
        np.cumsum(np.where(below, 0.0, x[..., None, :]), axis=-1)[..., first, last]
        for x in (noisy * measure, measure**2)
    )
    density = np.maximum(product, 0.0) / square
    return density, (product * density - 0.5 * density**2 * square) / noise_sd**2 - _occupied(n_cells) - caution


@lru_cache(maxsize=8)
def _upper(n):
    """First and last cell of each run, as ``triu_indices``, and where a square of runs has none; not to be changed."""
    below = np.tri(n, k=-1, dtype=bool)
    parts = (*np.nonzero(~below), below)
    for part in parts:
        part.flags.writeable = False
    return parts


def _occupied(n_cells):
    return 0.25 * np.log(n_cells)


def _scores(gain, n, n_cells):
    """Log weights of the runs, of shape (..., n, n): first and last cell."""
    score = np.full((*gain.shape[:-1], n, n), -np.inf)
    first, last, _ = _upper(n)
    score[..., first, last] = np.logaddexp(0.0, gain) - 0.5 * np.log(n_cells)
    return score


def _forward(score):
    """Log of the summed weights of all ways to cut the first cells into runs, for each number of cells."""
    n = score.shape[-1]
    forward = np.zeros((*score.shape[:-2], n + 1))
    for stop in range(1, n + 1):
        forward[..., stop] = _log_sum(forward[..., :stop] + score[..., :stop, stop - 1])
    return forward


def _log_sum(logs):
    """Log of the sum over the last axis; several times as fast as ``logaddexp.reduce``."""
    largest = logs.max(axis=-1)
    return largest + np.log(np.exp(logs - largest[..., None]).sum(axis=-1))


def _over_cells(values, n_cells):
    """Sum the values of all runs, in the order of ``triu_indices``, over the runs that hold each cell."""
    table = np.zeros((*values.shape[:-1], n_cells, n_cells))
    first, last, _ = _upper(n_cells)
    table[..., first, last] = values
    # first <= cell and last >= cell: additions alone, so that narrow cells lose nothing
    over = np.cumsum(np.cumsum(table, axis=-2)[..., ::-1], axis=-1)[..., ::-1]
    return np.diagonal(over, axis1=-2, axis2=-1).copy()
