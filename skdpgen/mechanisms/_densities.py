"""Where the mass behind a noisy histogram lies: all ways to cut it into runs of constant density, weighed.

Post-processing of a release: it costs nothing.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ._octaves import N_OCTAVE_CELLS, octave_edges
from ._selection import outermost_bins

__all__ = ["denoise", "full_cells", "octave_ranges", "sure_range", "widened"]

# Of `full_cells`: less is let through by noise far from the rows, more cuts off their thin tails.
_CAUTION = 3.0
# Longest gap between rows and the thin ends of them, as a share of the range that the others are in.
_GAP = 0.25

# Of `octave_ranges`. Chance, over all columns, that a cell far from all others is taken though it is empty; how many
# octaves beyond the largest one that is likely full may lie; and the chance of being full from which the cell beside
# the range is taken. One octave too many costs a factor of two, one too few all the rows in it.
_FALSE_ALARM, _NEAR, _MAYBE = 0.001, 2, 0.05
# Columns whose runs are in memory together.
_AT_ONCE = 32


def denoise(noisy, measure, noise_sd):
    """Estimate the counts behind a noisy histogram as a mixture of piecewise constant densities.

    Parameters
    ----------
    noisy : array of shape (n_cells,)
        Counts with Gaussian noise.
    measure : array of shape (n_cells,)
        Width of each cell.
    noise_sd : float
        Standard deviation of the noise; 0 returns the counts.

    Returns
    -------
    array of shape (n_cells,), non-negative

    Notes
    -----
    Every way to cut the cells into runs that are empty or of constant density is weighted by its likelihood, a
    factor n_cells^-1/2 for each run and n_cells^-1/4 more for each that is not empty, and the estimates are
    averaged (exponential weights; the sum over all partitions is a forward and a backward recursion). A spike
    costs two cuts, so it survives where it is significant, and empty stretches are pooled to next to nothing;
    both ends are cut off at the outermost cells that are more likely full than empty.
    """
    noisy, measure = np.asarray(noisy, dtype=np.float64), np.asarray(measure, dtype=np.float64)
    n = len(noisy)
    if noise_sd <= 0 or n < 2:
        return np.maximum(noisy, 0.0)
    density, full = _runs(noisy, measure, noise_sd)
    estimate = _over_cells(full * density, n) * measure / measure.max()
    likely = np.flatnonzero(_over_cells(full, n) > 0.5)
    if likely.size:
        estimate[: likely[0]] = estimate[likely[-1] + 1 :] = 0.0
    return estimate


def sure_range(noisy, measure, noise_sd, n_columns=1):
    """Return the first and last cell of the rows that noise cannot have made: the outermost `full_cells`.

    Cells near them that are likely full belong to them. All cells, where nothing stands out or there is no noise.
    """
    n = len(noisy)
    if noise_sd <= 0 or n < 2:
        return 0, n - 1
    surely = np.flatnonzero(full_cells(noisy, measure, noise_sd, n_columns) > 0.5)
    if not surely.size:
        return 0, n - 1
    likely = _over_cells(_runs(noisy, measure, noise_sd)[1], n) > 0.5
    return widened(surely[0], surely[-1], likely, _GAP)


def widened(first, last, full, gap=0.0):
    """Widen a range of cells to both sides by what follows it; `full` is a mask of the cells.

    No gap is longer than a share `gap` of the range: what is near is likely to be its thin end, what is far is not.
    """
    cells = np.flatnonzero(full)
    while True:
        reach = 1 + int(gap * (last - first + 1))
        low = cells[(cells < first) & (cells >= first - reach)].min(initial=first)
        high = cells[(cells > last) & (cells <= last + reach)].max(initial=last)
        if (low, high) == (first, last):
            return int(first), int(last)
        first, last = low, high


def full_cells(noisy, measure, noise_sd, n_columns=1):
    """Chance that each cell is not empty, by the mixture of `denoise` and a dearer price of not being empty.

    At the price by which counts are estimated best, one empty stretch in five or more has a run that passes for full.
    At this one (e^-3 / n_columns more) a few in a hundred have, of one column alone, and fewer of several.
    """
    full = _runs(noisy, measure, noise_sd, _CAUTION + np.log(n_columns))[1]
    return _over_cells(full, np.shape(noisy)[-1])


def octave_ranges(noisy, noise_sd, n_columns=1):
    """Return the first and last cell of the octaves that each column's numbers lie in.

    One octave may drown where all of them together do not: numbers are spread over several, on both sides of zero. So
    the cells are judged by densities as well as one by one. What noise cannot have made is taken wherever it is; what
    is likely full, near that; and the next cell on both sides, where it may well be.

    Parameters
    ----------
    noisy : array of shape (n_cols, n_cells)
        Counts of `octave_cells`, with noise.
    noise_sd : float
        Standard deviation of the noise on one count.
    n_columns : int, default=1
        Columns that share the chance of a cell too many, as in `outermost_bins`.

    Returns
    -------
    list of (int, int) or None
        None for a column of which nothing stands out.
    """
    ranges = []
    for part in np.array_split(noisy, -(-len(noisy) // _AT_ONCE)):
        full = part > 0 if noise_sd == 0 else full_cells(part, _octave_widths(), noise_sd)
        ranges += [_octave_range(*column, noise_sd, n_columns) for column in zip(part, full)]
    return ranges


def _octave_widths():
    return np.diff([octave_edges(cell) for cell in range(N_OCTAVE_CELLS)], axis=1)[:, 0]


def _octave_range(noisy, full, noise_sd, n_columns):
    cells = np.flatnonzero(full > 1 - _FALSE_ALARM / n_columns)
    cells = np.append(cells, outermost_bins(noisy, noise_sd, n_columns) or ()).astype(int)
    likely = np.flatnonzero(full > 0.5)
    if not cells.size:
        cells = likely
    if not cells.size:
        return None
    size = np.abs(np.arange(len(full)) - len(full) // 2)  # in octaves: -1 is as near to 2 as 1 is
    largest = -1
    while size[cells].max() > largest:
        largest = size[cells].max()
        cells = np.append(cells, likely[size[likely] <= largest + _NEAR])
    first, last = int(cells.min()), int(cells.max())
    first -= first > 0 and full[first - 1] > _MAYBE
    last += last < len(full) - 1 and full[last + 1] > _MAYBE
    return int(first), int(last)


def _runs(noisy, measure, noise_sd, caution=0.0):
    """Density of each run of cells, in the order of ``triu_indices``, and the chance that it is one, and not empty.

    `noisy` has the cells on its last axis; histograms before it are treated one by one.
    """
    noisy, measure = np.asarray(noisy, dtype=np.float64), np.asarray(measure, dtype=np.float64)
    n = noisy.shape[-1]
    measure = np.maximum(measure / measure.max(), 1e-100)  # whose square is still a number
    first, last = np.triu_indices(n)
    # sums over runs, row by row: differences of one cumulative sum would lose the narrow cells
    product, square = (
        np.cumsum(np.triu(np.broadcast_to(x[..., None, :], (*x.shape[:-1], n, n))), axis=-1)[..., first, last]
        for x in (noisy * measure, measure**2)
    )
    density = np.maximum(product, 0.0) / square
    # log likelihood of run [first, last], less that of an empty run, and the price of not being empty
    gain = (product * density - 0.5 * density**2 * square) / noise_sd**2 - 0.25 * np.log(n) - caution
    score = np.full((*noisy.shape, n), -np.inf)
    score[..., first, last] = np.logaddexp(0.0, gain) - 0.5 * np.log(n)
    forward = np.zeros((*noisy.shape[:-1], n + 1))
    for stop in range(1, n + 1):
        forward[..., stop] = _log_sum(forward[..., :stop] + score[..., :stop, stop - 1])
    backward = np.zeros_like(forward)
    for start in range(n - 1, -1, -1):
        backward[..., start] = _log_sum(score[..., start, start:] + backward[..., start + 1 :])
    weight = np.exp(forward[..., first] + score[..., first, last] + backward[..., last + 1] - forward[..., n, None])
    return density, weight * expit(gain)  # posterior chances of the run, and that it is not empty


def _log_sum(logs):
    """Log of the sum over the last axis; several times as fast as ``logaddexp.reduce``."""
    largest = logs.max(axis=-1)
    return largest + np.log(np.exp(logs - largest[..., None]).sum(axis=-1))


def _over_cells(values, n_cells):
    """Sum the values of all runs, in the order of ``triu_indices``, over the runs that hold each cell."""
    table = np.zeros((*values.shape[:-1], n_cells, n_cells))
    first, last = np.triu_indices(n_cells)
    table[..., first, last] = values
    # first <= cell and last >= cell: additions alone, so that narrow cells lose nothing
    over = np.cumsum(np.cumsum(table, axis=-2)[..., ::-1], axis=-1)[..., ::-1]
    return np.diagonal(over, axis1=-2, axis2=-1).copy()
