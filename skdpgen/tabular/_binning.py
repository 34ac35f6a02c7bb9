"""Bins of a numeric column: a fine public grid, its denoised masses, and the bins merged from it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from scipy.special import ndtri

from .._types import BoundedSum
from ..mechanisms import joint_histogram, split_histogram
from ..mechanisms._selection import denoise, occupied_cells, sure_range, unevenness
from ._columns import MOST_WRITTEN, Datetime, Numeric
from ._frames import check_columns, numeric_bounds, numeric_values

# A cell [v, next number after v) holds one value: a point, of which numbers may have a spike (zero, a bound).
_TINY = np.finfo(np.float64).tiny
# Numbers up to which each has a cell, and steps of a datetime: more cells lose thin ends, and dates have few spikes.
MAX_UNIT_CELLS, _MAX_UNIT_MOMENTS = 512, 256
# Integers (or multiples of a step) up to which a column has few values; the probability, over all columns, that one
# value stands out although no row has it; and the probability from which a value is in a run that stands out. With .5,
# .7, .9 and none of these runs, the mean distance of 1,000 rows with 1 to 7 is .12, .14, .22 and .59 (noise 60, bounds
# 0 and 7), and a column of 1 and 2 alone has 0 or 3 in up to 6 %, 2 %, 0 and 0 of the fits.
_FEW_VALUES, _FALSE_ALARM, _OCCUPIED = 16, 0.001, 0.7
# An end is cut off only if its values together hold at most this share of the rows, or so it seems at one standard
# deviation of their noise.
_CUT = 0.25
# Of a column of so many integers or part of it with declared bounds, one value on each side of those that stand out is
# like a declared category: it is drawn as often as its noisy count says. Without it, the lowest of 16 values of Adult,
# .2 % of 22,600 rows, is lost in a fourth of the fits at epsilon 1.
_VALUES_A_NEIGHBOUR = 8
# Log odds from which a histogram shows that bins are too coarse. Of even, normal or otherwise smooth columns whose rows
# are 12 to 80 standard deviations of the noise on a cell, 0 to 3 in 100 have as much.
_CLEARLY = 7.0
# Share of the bins that lies evenly over the bounds, whatever the histogram shows, and the cost of a bin in standard
# deviations of the noise. The tables measure each bin with less noise than the histogram, so that more bins are better:
# with 0 and 5, 0 and 1, .2 and 1, .2 and .3, the mean distance of twelve kinds of columns is .225, .164, .144 and .125
# where the rows are 20 standard deviations, .089, .070, .061 and .058 at 40, and .034 to .039 at 80. With .3, columns
# of few rows say less about a target.
_EVEN, _COST = 0.2, 1.0
# Least density at an end, in parts of that in the next bin, and the log-likelihood that it may cost. With 1/2, 1/4 and
# 1/10 the mean Kolmogorov distance of ages (8 columns of 3,000 rows, epsilon 1) is .081, .063 and .064; without .089.
_THIN, _UNLIKELY = 0.25, 2.0


@dataclass(frozen=True)
class Binning:
    """Bins of a numeric column, each a run of fine cells, with the distribution of values inside.

    All of it is public: it follows from bounds and, where masses were learned, from a noisy histogram.

    Parameters
    ----------
    edges : tuple of float, length n_cells + 1
        Increasing; cell i is ``[edges[i], edges[i + 1])``, the last one closed.
    starts : tuple of int, length n_bins
        First cell of each bin.
    mass : tuple of float, length n_cells
        Probability of each cell, summing to 1; inside a cell values are uniform.
    integer : bool, default=False
        Cells hold integers: their edges are integers, the last edge one more than the upper bound.
    doubtful : tuple of int, default=()
        Bins that may be noise: those far from all others, or all bins, where the histogram shows nothing. A model draws
        from them only what another release confirms.
    """

    edges: tuple
    starts: tuple
    mass: tuple
    integer: bool = False
    doubtful: tuple = ()

    @property
    def n_bins(self) -> int:
        """Number of bins."""
        return len(self.starts)

    @property
    def bin_edges(self):
        """Edges of the bins, array of shape (n_bins + 1,)."""
        return np.array(self.edges)[[*self.starts, len(self.edges) - 1]]

    @property
    def bin_mass(self):
        """Probability of each bin, array of shape (n_bins,)."""
        return np.add.reduceat(np.array(self.mass), self.starts)

    @property
    def labels(self) -> tuple:
        """Lowest and highest value of each bin, as pairs."""
        edges = self.bin_edges.tolist()
        if self.integer:
            return tuple((int(a), int(b) - 1) for a, b in itertools.pairwise(edges))
        return tuple((a, a if _is_point(a, b) else b) for a, b in itertools.pairwise(edges))

    def codes(self, values):
        """Return the bin of each value, array of intp; values outside the edges get the nearest bin."""
        found = np.searchsorted(self.bin_edges[1:-1], values, side="right")
        return np.minimum(found, self.n_bins - 1)

    def sample(self, codes, rng):
        """Draw one value for each bin code: a cell by its mass, then uniform inside it.

        Parameters
        ----------
        codes : array of int of shape (n_rows,)
        rng : object with ``random(size)``

        Returns
        -------
        array of shape (n_rows,), float64
            Integers where the cells hold integers.
        """
        codes = np.asarray(codes)
        edges, mass = np.array(self.edges), np.array(self.mass)
        stops = np.array([*self.starts[1:], len(mass)])
        starts = np.array(self.starts)
        empty = np.repeat(self.bin_mass <= 0, stops - starts)
        mass = np.where(empty, measure_of(edges), mass / max(mass.sum(), _TINY))
        cells = draw_in_runs(mass, starts[codes], stops[codes], rng.random(len(codes)))
        a, b = edges[cells], edges[cells + 1]
        values = a + rng.random(len(codes)) * (b - a)
        if self.integer:
            return np.clip(np.floor(values), a, b - 1)
        # the point at the upper bound is the last number before it and the bound itself
        point = np.where(cells == len(mass) - 1, b, a)
        return np.where(_is_point(a, b), point, np.clip(values, a, np.nextafter(b, -np.inf)))

    def to_dict(self) -> dict:
        """Return the binning as plain lists and numbers."""
        return {
            "edges": list(self.edges),
            "starts": list(self.starts),
            "mass": list(self.mass),
            "integer": self.integer,
            "doubtful": list(self.doubtful),
        }

    @classmethod
    def from_dict(cls, content) -> Binning:
        """Return the binning that :meth:`to_dict` wrote; ValueError where it is none."""
        edges, starts, mass = (tuple(content[key]) for key in ("edges", "starts", "mass"))
        doubtful = tuple(content.get("doubtful", ()))
        if any(isinstance(x, bool) or not isinstance(x, Real) or not math.isfinite(x) for x in (*edges, *mass)):
            raise ValueError("edges and masses of bins must be finite numbers")
        if any(type(i) is not int for i in (*starts, *doubtful)):
            raise ValueError("the first cells of bins must be whole numbers")
        if len(mass) != len(edges) - 1 or not starts or starts[0] != 0 or starts[-1] >= len(mass):
            raise ValueError("edges, masses and first cells of bins do not match in length")
        if any(a >= b for a, b in (*itertools.pairwise(edges), *itertools.pairwise(starts))) or min(mass) < 0:
            raise ValueError("edges and first cells of bins must increase, and masses must not be negative")
        if any(not 0 <= k < len(starts) for k in doubtful):
            raise ValueError("doubtful must hold numbers of bins")
        return cls(edges, starts, mass, bool(content["integer"]), doubtful)

    @classmethod
    def equal_width(cls, column, n_bins=16) -> Binning:
        """Return at most `n_bins` bins of equal width over the bounds of a column: nothing is learned."""
        low, high = numeric_bounds(column)
        top = high + 1 if column.whole else high
        edges = np.linspace(low, top, n_bins + 1)
        edges = np.unique(np.rint(edges)) if column.whole else np.unique(edges)
        width = np.diff(edges)
        return cls(
            tuple(edges.tolist()), tuple(range(len(width))), tuple((width / width.sum()).tolist()), bool(column.whole)
        )


def draw_in_runs(mass, starts, stops, uniforms):
    """Draw one entry of a run for each row, by the mass of the entries.

    `mass`: shape (n_entries,). `starts`, `stops` (n_rows,): first entry of the run of each row, and the one behind its
    last. `uniforms` (n_rows,): in [0, 1). Returns an array of shape (n_rows,).
    """
    total = np.concatenate([[0.0], np.cumsum(mass)])
    low, high = total[starts], total[stops]
    found = np.searchsorted(total, low + uniforms * (high - low), side="right") - 1
    return np.clip(found, starts, stops - 1)


def stratified_uniforms(codes, rng):
    """Uniform numbers, of which those of the n rows of a code lie in one n-th of [0, 1) each."""
    n_rows = np.bincount(codes)
    order = np.lexsort((rng.random(len(codes)), codes))
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    return (rank + rng.random(len(codes))) / n_rows[codes]


def _is_point(low, high):
    return high <= np.nextafter(low, np.inf) + _TINY


def measure_of(edges):
    """Return the size of each cell; a point has next to none."""
    width = np.diff(edges)
    point = _is_point(edges[:-1], edges[1:])
    return np.where(point, 1e-6 * np.min(width, where=~point, initial=np.inf), width)


def fine_grid(column):
    """Return the public fine grid of a numeric or datetime column: edges that depend on its bounds alone.

    `column`: with bounds.
    Returns an array of shape (n_cells + 1,): up to 512 integers (or multiples of `step`, or numbers of so many
        `decimals`) have a cell each: numbers with few values pile up at some of them. Else the grid is the union of 64
        cells of equal width and 72 to 96 whose width grows with the distance from zero (from the lower bound, where
        zero is outside), with zero and the two bounds as separate points: amounts of money are often zero, and clipped
        values pile up at a bound. Declared `spikes` are points too. Datetimes of more than 256 steps have 128 cells of
        equal width and the two bounds.
    """
    low, high = map(float, numeric_bounds(column))
    datetime = isinstance(column, Datetime)
    if column.whole and high - low < (_MAX_UNIT_MOMENTS if datetime else MAX_UNIT_CELLS):
        return np.arange(low, high + 2)
    if not datetime and 0 < (column.decimals or 0) <= MOST_WRITTEN:
        unit = 10.0**-column.decimals
        if 1 <= (high - low) / unit < MAX_UNIT_CELLS:
            # halfway between two numbers as they are rounded, whatever the bounds are
            halfway = (np.arange(math.floor(low / unit), math.ceil(high / unit) + 1) + 0.5) * unit
            return np.concatenate([[low], halfway[(halfway > low) & (halfway < high)], [high]])
    edges = [np.linspace(low, high, 129 if datetime else 65)]
    if datetime:
        pass  # no point in time is nearer to zero than others
    elif low >= 0 or high <= 0:
        edges.append(_log_edges(low, high, (32, 16, 24)))
    else:
        edges += [_log_edges(0.0, high, (32, 0, 16)), _log_edges(low, 0.0, (32, 0, 16))]
    points = [low, high] + ([0.0] if low < 0 < high and not datetime else [])
    points += [spike for spike in _spikes(column) if low < spike < high]
    if column.whole:
        edges += [[point, point + 1] for point in points]
        return np.unique(np.clip(np.rint(np.concatenate(edges)), low, high + 1))
    edges += [[point, np.nextafter(point, np.inf) if point else _TINY] for point in points[:1] + points[2:]]
    edges += [[np.nextafter(high, -np.inf) if high else -_TINY, high]]
    return np.unique(np.clip(np.concatenate(edges), low, high))


def _spikes(column):
    """Declared point masses, in the numbers that are binned."""
    return [float(np.rint(spike / column.step)) if column.step else float(spike) for spike in column.spikes or ()]


def _log_edges(low, high, counts):
    """Return edges towards the end nearest to zero: by quarters of an octave, then halves, then whole ones."""
    steps = np.repeat([0.25, 0.5, 1.0], counts)
    distance = (high - low) * 2.0 ** -np.cumsum(steps)
    return low + distance if abs(low) <= abs(high) else high - distance


def is_uneven(noisy, column, noise_sd, binning):
    """Whether a noisy histogram shows that rows are uneven inside bins: spikes, or skewed amounts.

    The rows of each bin are measured again with less noise, so that differences between bins are no evidence.

    `noisy` (n_cells,): counts on `fine_grid`. `noise_sd`: standard deviation of the noise on one cell; above 0.
    `binning`: the bins, for instance `Binning.equal_width`.
    """
    edges = fine_grid(column)
    starts = np.unique(np.searchsorted(binning.bin_edges[1:-1], edges[:-1], side="right"), return_index=True)[1][1:]
    parts = zip(*(np.split(values, starts) for values in (noisy, measure_of(edges))))
    return sum(unevenness(*part, noise_sd, len(noisy)) for part in parts) > _CLEARLY


def learned_binning(noisy, column, noise_sd, max_bins, n_columns=1, *, learned_bounds=False, single_values=False):
    """Return the binning that a noisy histogram on `fine_grid` gives: post-processing, no other input.

    `noisy`: shape (n_cells,).
    `noise_sd`: standard deviation of the noise on one cell.
    `n_columns`: columns that share the probability that noise far from the rows passes for rows.
    `learned_bounds`: whether the bounds are learned: they may be wider than the rows. Of a column of few integers, the
        ends that noise alone explains are then cut off.
    `single_values`: whether each value of a column of few integers is a bin: for tables of one column, which have
        little noise.
    """
    edges = fine_grid(column)
    measure = measure_of(edges)
    mass = denoise(noisy, measure, noise_sd)
    few = column.whole and len(mass) <= _FEW_VALUES and noise_sd > 0
    first, last = sure_range(noisy, measure, noise_sd, n_columns)
    if few and learned_bounds:
        # Each value is like a category: 0 and 3 beside 1 and 2 would be as wrong as a category that no row has.
        first, last = _range_of_values(noisy, measure, noise_sd, n_columns)
        mass[:first] = mass[last + 1 :] = 0.0
    # 0 and 1, or two declared values, are like two categories: the tables measure the rarer one with less noise
    binary = column.whole and len(mass) == 2 and (not learned_bounds or edges[0] == 0)
    if binary or (few and single_values):
        starts = list(range(len(mass)))
    else:
        inside = slice(int(first), int(last) + 1) if few and learned_bounds else slice(0, len(mass))
        # The ends that noise alone explains have bins too: the tables, which have less of it, tell which have rows.
        below, above = list(range(inside.start)), list(range(inside.stop, len(mass)))
        if len(mass) > max_bins:
            below, above = below[:1], above[:1]
        even = mass[inside].sum() * measure[inside] / measure[inside].sum()
        own = merge((1 - _EVEN) * mass[inside] + _EVEN * even, noise_sd, max_bins - len(below) - len(above))
        starts = [*below, *(inside.start + start for start in own), *above]
    # A little mass far out moves a mean a lot: bins outside the range are doubtful, and other bins have no mass there.
    stops = [*starts[1:], len(mass)]
    if few and not learned_bounds and last > first:
        beside = -(-len(mass) // _VALUES_A_NEIGHBOUR)
        first, last = max(first - beside, 0), min(last + beside, len(mass) - 1)
    doubtful = [] if binary else [k for k, (a, b) in enumerate(zip(starts, stops)) if b <= first or a > last]
    far = np.ones(len(mass), dtype=bool)
    far[first : last + 1] = False
    for k in doubtful:
        far[starts[k] : stops[k]] = False
    mass[far] = 0.0
    total = mass.sum()
    # nothing above the noise: uniform over the bounds
    mass = mass / total if total > 0 else np.diff(edges) / (edges[-1] - edges[0])
    if noise_sd > 0 and not (few and learned_bounds):
        certain = [k for k in range(len(starts)) if k not in doubtful]
        if len(certain) > 1:
            _thin_out(mass, noisy, measure, noise_sd, *(slice(starts[k], stops[k]) for k in certain[:2]))
            ends = (slice(starts[k], stops[k]) for k in certain[:-3:-1])
            # the other end, from the far side
            turned = (slice(len(mass) - end.stop, len(mass) - end.start) for end in ends)
            _thin_out(mass[::-1], noisy[::-1], measure[::-1], noise_sd, *turned)
    return Binning(tuple(edges.tolist()), tuple(starts), tuple(mass.tolist()), bool(column.whole), tuple(doubtful))


def _thin_out(mass, noisy, measure, noise_sd, outer, inner):
    """Let the values of the first bin, `outer`, reach further towards the bound, in place.

    A tail that is thinner than the noise has no cells in a histogram, and its rows would all lie at its near end. So
    they are spread evenly over more cells, as far as their density is at least _THIN of that in the next bin, `inner`,
    and the histogram does not contradict it.
    """
    measure = measure / measure.max()
    own, width = mass[outer], measure[outer]
    held, beside = np.flatnonzero(own), mass[inner] > 0
    rows = max(noisy.sum(), 1.0)
    if not held.size or held[0] == 0 or not beside.any() or own.sum() * rows < noise_sd:
        return  # no tail, or rows that noise alone may have made
    first, last = held[0], held[-1]
    density = mass[inner].sum() / measure[inner][beside].sum()
    found = noisy[outer] / rows

    def from_cell(values):
        """Sums over the cells from each candidate for the first one to the last."""
        return np.cumsum(values[last::-1])[::-1][:first]

    size = from_cell(width)
    even = own.sum() / size
    squares = -2 * even * from_cell(found * width) + even**2 * from_cell(width**2)
    before = np.sum((own - found) ** 2) - np.sum(found**2)
    allowed = 2 * _UNLIKELY * (noise_sd / rows) ** 2
    possible = np.flatnonzero((even >= _THIN * density) & (squares <= before + allowed))
    if possible.size:
        at = possible[0]
        own[:] = 0.0
        own[at : last + 1] = even[at] * width[at : last + 1]


def _range_of_values(noisy, measure, noise_sd, n_columns):
    """First and last value that stands out of the noise, by itself or as a part of a run of them; all if none does."""
    alone = noisy > noise_sd * -ndtri(_FALSE_ALARM / n_columns)
    found = np.flatnonzero(alone | (occupied_cells(noisy, measure, noise_sd, n_columns) > _OCCUPIED))
    first, last = (found[0], found[-1]) if found.size else (0, len(noisy) - 1)
    # rows may be spread over values that the noise hides one by one
    most = _CUT * max(noisy.sum(), 0.0)
    below, above = noisy[:first], noisy[last + 1 :]
    first, last = (
        end if part.sum() + noise_sd * part.size**0.5 <= most else outer
        for end, part, outer in ((first, below, 0), (last, above, len(noisy) - 1))
    )
    return first, last


def merge(mass, noise_sd, max_bins):
    """Merge adjacent cells into bins of about equal mass.

    `mass` (n_cells,): denoised counts.
    Returns: first cell of each bin: the partition into at most `max_bins` runs that minimises sum(mass of the bin ^ 2)
        + (_COST noise_sd)^2 * number of bins. A spike stays alone, because joining it to another cell is costly;
        neighbours that are small against the noise are joined.
    """
    n = len(mass)
    total = np.concatenate([[0.0], np.cumsum(mass)])
    cost = (total[None, :] - total[:, None]) ** 2 + (_COST * noise_sd) ** 2
    cost[np.tril_indices(n + 1)] = np.inf
    best, choice = cost[0].copy(), []
    history = [best]
    for _ in range(min(max_bins, n) - 1):
        options = best[:, None] + cost
        choice.append(options.argmin(axis=0))
        best = options.min(axis=0)
        history.append(best)
    count = int(np.argmin([h[n] for h in history]))
    starts, stop = [], n
    for level in range(count, 0, -1):
        stop = int(choice[level - 1][stop])
        starts.append(stop)
    return [0, *sorted(starts)]


# Rows, in standard deviations of the noise on one cell, below which a fine histogram is too noisy.
_NOISY_BELOW = 100
# The same for columns of few cells, and the cells from which a column has many.
_FEW_CELLS_NOISY_BELOW, _MANY_CELLS = 10, 80


def bins_histogram(frame, schema, unit_sizes=None) -> BoundedSum:
    """Count the rows in the cells of the fine public grids of all numeric and datetime columns.

    Parameters
    ----------
    frame : DataFrame or array of numbers, shape (n_rows, n_columns)
    schema : Schema
        Complete; values outside its bounds count at the bound.
    unit_sizes : array of int of shape (n_rows,), default=None
        As in `joint_histogram`.

    Returns
    -------
    BoundedSum
        Counts, the columns one after another, a missing value in a last cell of its column; sensitivity sqrt(d),
        or sqrt(2 d), for d numeric and datetime columns.

    Raises
    ------
    SchemaError
        The frame does not fit the schema.
    ValueError
        The schema has no numeric and no datetime column, or is incomplete.
    """
    frame = check_columns(frame, schema)
    columns, sizes = _numeric_columns(schema)
    codes = []
    for column, size in zip(columns, sizes):
        values = numeric_values(frame[column.name], column)
        cells = np.searchsorted(fine_grid(column)[1:-1], values, side="right")
        codes.append(np.where(np.isnan(values), size - 1, cells))
    return joint_histogram(codes, sizes, unit_sizes=unit_sizes)


def bins_from_histogram(noisy, schema, noise_sd, max_bins=32, *, learned=(), single_values=False) -> dict[str, Binning]:
    """Derive the bins of all numeric and datetime columns from the released counts.

    Parameters
    ----------
    noisy : array
        `bins_histogram` with noise.
    schema : Schema
        The one it was counted for.
    noise_sd : float
        Standard deviation of the noise on one count.
    max_bins : int, default=32
    learned : sequence of column names, default=()
        Columns whose bounds are learned, and may be wider than the rows.
    single_values : bool, default=False
        Whether each value of a column of at most 16 integers (or steps) is a bin.

    Returns
    -------
    dict of column name -> Binning
        `Binning.equal_width` where the rows are too few for the noise (a histogram that is noise alone would put spikes
        anywhere), unless the histogram clearly shows that these are too coarse.
    """
    columns, sizes = _numeric_columns(schema)
    n_rows, binnings = np.sum(noisy) / len(columns), {}
    for column, counts in zip(columns, split_histogram(noisy, sizes)):
        cells, enough = counts[:-1], enough_rows(len(counts) - 1) * noise_sd
        if n_rows < enough:
            even = Binning.equal_width(column, max_bins)
            if not is_uneven(cells, column, noise_sd, even):
                # the histogram does not show which of them hold rows
                binnings[column.name] = replace(even, doubtful=tuple(range(even.n_bins)))
                continue
        options = {"learned_bounds": column.name in learned, "single_values": single_values}
        binnings[column.name] = learned_binning(cells, column, noise_sd, max_bins, len(columns), **options)
    return binnings


def middles_from_histogram(noisy, schema, noise_sd, binnings) -> dict[str, int]:
    """Number of bins below the middle of each column: where about half of the rows are, by the released counts.

    `noisy`, `schema`, `noise_sd`: as in `bins_from_histogram`. `binnings`: from the same counts. Returns dict of column
    name -> int of the columns of at least two bins; at least one bin is on either side.
    """
    columns, sizes = _numeric_columns(schema)
    middles = {}
    for column, counts in zip(columns, split_histogram(noisy, sizes)):
        edges, binning = fine_grid(column), binnings[column.name]
        if binning.n_bins > 1:
            below = np.cumsum(binning.bin_mass)[:-1]
            if len(binning.doubtful) == binning.n_bins:  # as if half of the rows were even, of bins of equal width
                total = np.cumsum(denoise(counts[:-1], measure_of(edges), noise_sd))
                found = total[np.searchsorted(edges, binning.bin_edges[1:-1]) - 1] / max(total[-1], 1e-12)
                below = (below + found) / 2 if total[-1] > 0 else below
            middles[column.name] = 1 + int(np.argmin(np.abs(below - 0.5)))
    return middles


def enough_rows(n_cells):
    """Return the rows, in standard deviations of the noise on one cell, from which a fine histogram is learned.

    A column of few integers has few cells, and many rows in each: 1 and 2 stand out from 0 and 3 long before one age
    does from the next.
    """
    return max(_FEW_CELLS_NOISY_BELOW, _NOISY_BELOW * min(1.0, n_cells / _MANY_CELLS))


def _numeric_columns(schema):
    columns = [column for column in schema.columns if isinstance(column, Numeric | Datetime)]
    if not columns:
        raise ValueError("the schema has no numeric and no datetime column: there are no bins to learn")
    if open_ := [repr(column.name) for column in columns if not column.complete]:
        raise ValueError(f"bounds are missing: {', '.join(open_)}; learn the schema first")
    # edges, less one, plus the cell of missing values
    return columns, [len(fine_grid(column)) for column in columns]
