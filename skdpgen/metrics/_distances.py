"""Distances of columns, of correlations and of marginal tables between synthetic and real rows."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
from scipy.stats import wasserstein_distance

from ._samples import as_frame, column_kind, declared_column, paired_frames, table_cells, to_numbers


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
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it. Shares of
    missing values are shown exactly.
    """
    real, synthetic = paired_frames(real, synthetic, schema)
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
        Declares which columns are categories; None infers it from the dtypes.

    Returns
    -------
    matrix : DataFrame of shape (n_columns, n_columns)
        Symmetric, 1 on the diagonal; 0 where a column is constant.

    Notes
    -----
    **Leak.** Computed from the rows without protection, and no budget is charged: if the rows are private, do not
    publish it.

    References
    ----------
    W. Bergsma, "A bias-correction for Cramer's V and Tschuprow's T", Journal of the Korean Statistical Society, 2013.
    """
    frame = as_frame(rows)
    return associations(frame, column_kinds(frame, schema))


def column_kinds(frame, schema=None):
    """Return the kind of each column by its name, as declared or by its dtype."""
    return {name: column_kind(frame[name], None if schema is None else schema[name]) for name in frame.columns}


def associations(frame, kinds):
    """Return `correlation_matrix` of a frame for given kinds of columns."""
    names, columns = list(frame.columns), []
    for name in names:
        if kinds[name] == "category":
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
        Declares which columns are categories; None infers it from the dtypes of `real`.

    Returns
    -------
    difference : float
        0 where all agree, at most 2; associations are those of ``correlation_matrix``.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.
    """
    real, synthetic = paired_frames(real, synthetic, schema)
    if real.shape[1] < 2:
        raise ValueError("correlations need at least two columns")
    kinds = column_kinds(real, schema)
    one, other = (associations(frame, kinds).to_numpy() for frame in (real, synthetic))
    pairs = np.triu_indices(len(one), 1)
    return float(np.abs(one - other)[pairs].mean())


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


# ---- marginal tables -----------------------------------------------------------------------------------------------
# Tables whose cells would be counted densely; beyond it, the cells that occur are numbered first.
_MOST_CELLS = 1 << 20


def one_way_tvd(real, synthetic, schema=None, *, n_bins=10, bounds=None):
    """Total variation distance of the columns' distributions, averaged over all columns.

    Parameters
    ----------
    real, synthetic, schema, n_bins, bounds
        As for ``marginal_tvd``.

    Returns
    -------
    distance : float
        Between 0 (equal) and 1 (disjoint).

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.
    """
    return marginal_tvd(real, synthetic, schema, n_way=1, n_bins=n_bins, bounds=bounds)


def two_way_tvd(real, synthetic, schema=None, *, n_bins=10, bounds=None):
    """Total variation distance of the two-way tables, averaged over all column pairs.

    Parameters
    ----------
    real, synthetic, schema, n_bins, bounds
        As for ``marginal_tvd``; two columns at least.

    Returns
    -------
    distance : float
        Between 0 (equal) and 1 (disjoint). Two halves of one table are not at 0 but at the
        distance that chance alone gives.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.

    References
    ----------
    S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, "P3GM", ICDE 2021, Table VIII.
    """
    return marginal_tvd(real, synthetic, schema, n_way=2, n_bins=n_bins, bounds=bounds)


def three_way_tvd(real, synthetic, schema=None, *, n_bins=10, bounds=None, max_tables=None, random_state=None):
    """Total variation distance of the three-way tables, averaged over column triples.

    Parameters
    ----------
    real, synthetic, schema, n_bins, bounds, max_tables, random_state
        As for ``marginal_tvd``; three columns at least.

    Returns
    -------
    distance : float
        Between 0 (equal) and 1 (disjoint). Two halves of one table are further apart than in their pairs: there are
        more cells, and chance fills each.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.
    """
    return marginal_tvd(
        real,
        synthetic,
        schema,
        n_way=3,
        n_bins=n_bins,
        bounds=bounds,
        max_tables=max_tables,
        random_state=random_state,
    )


def marginal_tvd(real, synthetic, schema=None, *, n_way=2, n_bins=10, bounds=None, max_tables=None, random_state=None):
    """Total variation distance of the `n_way` tables of counts, averaged over all sets of `n_way` columns.

    Parameters
    ----------
    real, synthetic : DataFrame, array of shape (n_rows, n_columns), or pair (X, y)
        Tables with the same columns; the numbers of rows may differ.
    schema : Schema, default=None
        Public bounds and categories. None: the bins follow the range and values of `real`, so figures cannot be
        compared between tables.
    n_way : int, default=2
    n_bins : int, default=10
        Equal bins of a numeric or date column over its bounds. Missing values are a separate cell.
    bounds : pair, or one pair a column, default=None
        Public bounds of the columns of an array, instead of a schema.
    max_tables : int, default=None
        Largest number of tables to average over, drawn at random; None: all tables.
    random_state : int or None, default=None
        Seed of the draw of tables.

    Returns
    -------
    distance : float
        Between 0 (equal) and 1 (disjoint).

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen.metrics import marginal_tvd
    >>> one, other = np.array([[0.1, 0.9], [0.9, 0.1]]), np.array([[0.1, 0.1], [0.9, 0.9]])
    >>> [marginal_tvd(one, other, bounds=(0, 1), n_way=n) for n in (1, 2)]
    [0.0, 1.0]
    """
    real, synthetic = paired_frames(real, synthetic, schema)
    columns = table_cells(real, synthetic, schema, bounds=bounds, n_bins=n_bins)
    if not 1 <= n_way <= len(columns):
        counted = {2: "two-way tables need at least two columns", 3: "three-way tables need at least three columns"}
        raise ValueError(counted.get(n_way, f"n_way must be between 1 and {len(columns)}; got {n_way}"))
    chosen = _subsets(len(columns), n_way, max_tables, random_state)
    return float(np.mean([_table_distance([columns[i] for i in subset]) for subset in chosen]))


def pairwise_tvd(real, synthetic, schema=None, *, n_bins=10, bounds=None):
    """Total variation distance of each two-way table, and of each column on the diagonal.

    Parameters
    ----------
    real, synthetic, schema, n_bins, bounds
        As for ``marginal_tvd``.

    Returns
    -------
    distances : DataFrame of shape (n_columns, n_columns)
        Symmetric; the mean above the diagonal is ``two_way_tvd``.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.
    """
    real, synthetic = paired_frames(real, synthetic, schema)
    columns = table_cells(real, synthetic, schema, bounds=bounds, n_bins=n_bins)
    matrix = np.diag([column.distance() for column in columns])
    for i, j in combinations(range(len(columns)), 2):
        matrix[i, j] = matrix[j, i] = _table_distance([columns[i], columns[j]])
    names = list(real.columns)
    return pd.DataFrame(matrix, index=names, columns=names)


def _subsets(n_columns, n_way, max_tables, random_state):
    n_tables = comb(n_columns, n_way)
    if max_tables is None or n_tables <= max_tables:
        return combinations(range(n_columns), n_way)
    if max_tables < 1:
        raise ValueError(f"max_tables must be at least 1; got {max_tables}")
    rng = np.random.default_rng(random_state)
    chosen = set()
    while len(chosen) < max_tables:
        chosen.add(tuple(sorted(rng.choice(n_columns, n_way, replace=False).tolist())))
    return sorted(chosen)


def _table_distance(columns):
    real, synthetic, size = columns[0].real, columns[0].synthetic, columns[0].size
    for column in columns[1:]:
        real, synthetic = real * column.size + column.real, synthetic * column.size + column.synthetic
        size *= column.size
        if size > _MOST_CELLS:
            seen, codes = np.unique(np.concatenate([real, synthetic]), return_inverse=True)
            real, synthetic, size = codes[: len(real)], codes[len(real) :], len(seen)
    p = np.bincount(real, minlength=size) / len(real)
    q = np.bincount(synthetic, minlength=size) / len(synthetic)
    return 0.5 * float(np.abs(p - q).sum())
