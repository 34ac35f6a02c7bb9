"""Bins of numbers and dates learned from fine histograms; the caller adds the noise between query and result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._types import BoundedSum
from ..mechanisms import joint_histogram, split_histogram
from ..mechanisms._selection import denoise
from ._binning import Binning, fine_grid, is_uneven, learned_binning, measure_of
from ._columns import Datetime, Numeric
from ._frames import check_columns, numeric_values

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
