"""How far each column of synthetic rows is from its real one, and each correlation from its own."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import wasserstein_distance

from ._cells import declared_column, table_cells
from ._samples import as_frame, column_kind, paired_frames, to_numbers

__all__ = ["column_distances", "correlation_difference", "correlation_matrix"]


def column_distances(real, synthetic, schema=None, *, n_bins=10, bounds=None):
    """Distance of each column's distribution: total variation, Wasserstein, and the shares of missing values.

    Parameters
    ----------
    real, synthetic, schema, n_bins, bounds
        As for ``marginal_tvd``.

    Returns
    -------
    distances : DataFrame
        One row a column, in order: ``kind`` ("number", "date" or "category"); ``tvd`` over its cells, in [0, 1];
        ``wasserstein``, of numbers and dates alone, in units of the width of the bounds (else of the real range), so
        that 1 is a whole range; ``missing_real`` and ``missing_synthetic``, shares of rows.

    Notes
    -----
    **Leak.** Computed from real rows without noise: showing it to anyone but the data holder leaks about them, and no
    budget is charged for it. Shares of missing values are shown exactly.
    """
    real, synthetic = paired_frames(real, synthetic)
    rows = []
    for at, cells in enumerate(table_cells(real, synthetic, schema, bounds=bounds, n_bins=n_bins)):
        pair = real[cells.name], synthetic[cells.name]
        wasserstein = np.nan
        if cells.kind != "category":
            wasserstein = _wasserstein(*pair, declared_column(cells.name, at, schema, bounds))
        rows.append((cells.kind, cells.distance(), wasserstein, *(float(column.isna().mean()) for column in pair)))
    names = ["kind", "tvd", "wasserstein", "missing_real", "missing_synthetic"]
    return pd.DataFrame(rows, columns=names, index=list(real.columns))


def _wasserstein(real, synthetic, declared):
    values = [to_numbers(column) for column in (real, synthetic)]
    values = [column[np.isfinite(column)] for column in values]
    if not all(map(len, values)):
        return np.nan
    bounds = getattr(declared, "bounds", None)
    if bounds is None:
        low, high = values[0].min(), values[0].max()
    else:
        low, high = (pd.Timestamp(b).as_unit("ns").value if isinstance(b, (str, pd.Timestamp)) else b for b in bounds)
    width = float(high - low) or 1.0
    return float(wasserstein_distance(*((column - low) / width for column in values)))


def correlation_matrix(rows, schema=None):
    """Association of every two columns, of any kinds, between -1 and 1.

    Pearson's correlation of two numbers (dates are numbers); the correlation ratio eta of a category and a number;
    Cramer's V, corrected for its bias at independence, of two categories. Missing and infinite numbers are left out
    pair by pair; a missing category is a category.

    Parameters
    ----------
    rows : DataFrame, array of shape (n_rows, n_columns), or pair (X, y)
    schema : Schema, default=None
        Says which columns are categories; None tells it from the dtypes.

    Returns
    -------
    matrix : DataFrame of shape (n_columns, n_columns)
        Symmetric, 1 on the diagonal; 0 where a column is constant.

    Notes
    -----
    **Leak.** Computed from the rows without noise: of real rows, showing it to anyone but the data holder leaks about
    them, and no budget is charged for it.

    References
    ----------
    W. Bergsma, "A bias-correction for Cramer's V and Tschuprow's T", Journal of the Korean Statistical Society, 2013.
    """
    frame = as_frame(rows)
    names, columns = list(frame.columns), []
    for name in names:
        kind = column_kind(frame[name], None if schema is None else schema[name])
        if kind == "category":
            columns.append((True, pd.factorize(frame[name].astype(object), use_na_sentinel=False)[0]))
        else:
            columns.append((False, to_numbers(frame[name], finite=True)))
    matrix = np.eye(len(names))
    numeric = [i for i, (categorical, _) in enumerate(columns) if not categorical]
    if len(numeric) > 1:
        matrix[np.ix_(numeric, numeric)] = _pearson(np.column_stack([columns[i][1] for i in numeric]))
    for i, j in combinations(range(len(names)), 2):
        (first, one), (second, other) = columns[i], columns[j]
        if first or second:
            matrix[i, j] = matrix[j, i] = (
                _cramers_v(one, other)
                if first and second
                else _correlation_ratio(one, other)
                if first
                else _correlation_ratio(other, one)
            )
    return pd.DataFrame(matrix, index=names, columns=names)


def correlation_difference(real, synthetic, schema=None):
    """Mean absolute difference of the association of two columns, over all pairs.

    Parameters
    ----------
    real, synthetic : DataFrame, array of shape (n_rows, n_columns), or pair (X, y)
        With the same columns, two at least.
    schema : Schema, default=None
        Says which columns are categories; None tells it from the dtypes of `real`.

    Returns
    -------
    difference : float
        0 where all agree, at most 2; associations are those of ``correlation_matrix``.

    Notes
    -----
    **Leak.** Computed from real rows without noise: showing it to anyone but the data holder leaks about them, and no
    budget is charged for it.
    """
    real, synthetic = paired_frames(real, synthetic)
    if real.shape[1] < 2:
        raise ValueError("correlations need at least two columns")
    kinds = schema if schema is not None else _Kinds(real)
    one, other = (correlation_matrix(rows, kinds).to_numpy() for rows in (real, synthetic))
    pairs = np.triu_indices(len(one), 1)
    return float(np.abs(one - other)[pairs].mean())


class _Kinds:
    """The kinds of a frame's columns, for another frame: what its own dtypes say may differ."""

    def __init__(self, frame):
        self._kinds = {name: column_kind(frame[name]) for name in frame.columns}

    def __getitem__(self, name):
        return _Category if self._kinds[name] == "category" else _Number


class _Category:
    categories = ()


class _Number:
    bounds = ()


def _pearson(values):
    if np.isnan(values).any():
        return pd.DataFrame(values).corr(min_periods=2).fillna(0.0).to_numpy() * (1 - np.eye(values.shape[1])) + np.eye(
            values.shape[1]
        )
    centered = values - values.mean(axis=0)
    norms = np.linalg.norm(centered, axis=0)
    # rounding leaves a trace of variance in a constant column
    scaled = np.divide(centered, norms, out=np.zeros_like(centered), where=norms > 1e-12 * np.abs(values).max(axis=0))
    matrix = np.clip(scaled.T @ scaled, -1.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _correlation_ratio(codes, values):
    known = np.isfinite(values)
    codes, values = codes[known], values[known]
    if len(values) < 2:
        return 0.0
    counts = np.bincount(codes)
    means = np.bincount(codes, values) / np.maximum(counts, 1)
    total = np.square(values - values.mean()).sum()
    between = (counts * np.square(means - values.mean())).sum()
    return float(np.sqrt(np.clip(between / total, 0.0, 1.0))) if total > 0 else 0.0


def _cramers_v(one, other):
    n, rows, columns = len(one), int(one.max()) + 1, int(other.max()) + 1
    if n < 2:
        return 0.0
    # chi squared over n from the cells that occur: names and identifiers have too many others
    cells, counts = np.unique(one.astype(np.int64) * columns + other, return_counts=True)
    expected = np.bincount(one)[cells // columns] * (np.bincount(other)[cells % columns] / n)
    phi2 = float((counts * (counts / expected)).sum()) / n - 1.0
    phi2 = max(0.0, phi2 - (rows - 1) * (columns - 1) / (n - 1))
    smaller = min(rows - (rows - 1) ** 2 / (n - 1), columns - (columns - 1) ** 2 / (n - 1)) - 1
    return float(np.sqrt(np.clip(phi2 / smaller, 0.0, 1.0))) if smaller > 0 else 0.0
