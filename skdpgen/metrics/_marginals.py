"""Total variation distance between the marginal tables of two samples."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pandas as pd

from ._cells import table_cells
from ._samples import paired_frames

__all__ = ["marginal_tvd", "one_way_tvd", "pairwise_tvd", "three_way_tvd", "two_way_tvd"]

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
    **Leak.** Computed from real rows without noise: showing it to anyone but the data holder leaks about them, and no
    budget is charged for it.
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
    **Leak.** Computed from real rows without noise: showing it to anyone but the data holder leaks about them, and no
    budget is charged for it.

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
    **Leak.** Computed from real rows without noise: showing it to anyone but the data holder leaks about them, and no
    budget is charged for it.
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
    """Total variation distance of the `n_way` tables of counts, averaged over all sets of so many columns.

    Parameters
    ----------
    real, synthetic : DataFrame, array of shape (n_rows, n_columns), or pair (X, y)
        With the same columns; rows need not be as many.
    schema : Schema, default=None
        Public bounds and categories. Where there is none, bins follow the range and values of `real` itself: the
        figure is then another one for other data, and comparisons between tables mean little.
    n_way : int, default=2
    n_bins : int, default=10
        Equal bins of a numeric or date column over its bounds. Missing values are a cell of their own.
    bounds : pair, or one pair a column, default=None
        Public bounds of an array's columns, in place of a schema.
    max_tables : int, default=None
        Average over so many tables, drawn at random, where there are more; None takes all.
    random_state : int or None, default=None
        Of that draw.

    Returns
    -------
    distance : float
        Between 0 (equal) and 1 (disjoint).

    Notes
    -----
    **Leak.** Computed from real rows without noise: showing it to anyone but the data holder leaks about them, and no
    budget is charged for it.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen.metrics import marginal_tvd
    >>> one, other = np.array([[0.1, 0.9], [0.9, 0.1]]), np.array([[0.1, 0.1], [0.9, 0.9]])
    >>> [marginal_tvd(one, other, bounds=(0, 1), n_way=n) for n in (1, 2)]
    [0.0, 1.0]
    """
    real, synthetic = paired_frames(real, synthetic)
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
    **Leak.** Computed from real rows without noise: showing it to anyone but the data holder leaks about them, and no
    budget is charged for it.
    """
    real, synthetic = paired_frames(real, synthetic)
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
