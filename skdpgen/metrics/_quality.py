"""Scores from 0 to 1 of columns and of their pairs; where SDMetrics has the same measure, it has its name here."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..exceptions import InvalidInputError
from ._distances import _table_distance
from ._samples import ColumnCells, column_cells, column_kind, paired_frames, to_numbers


class _Declared(NamedTuple):
    """What makes `column_cells` count values as categories."""

    categories: tuple = ()
    bounds: tuple | None = None


# Any value is one, whatever the schema lists.
CATEGORY = _Declared()
# Bins of a number beside a category: those of ContingencySimilarity.
_BINS = 10
# Numbers beyond it are taken for it, and those below its inverse for zero: sums and differences stay finite.
_LARGEST = 1e300


class QualityScore(NamedTuple):
    """Means of scores, each between 0 and 1.

    Attributes
    ----------
    columns : float
        Mean of ``column_scores``: what SDMetrics calls Column Shapes.
    pairs : float
        Mean of ``pair_scores``: what SDMetrics calls Column Pair Trends, over all pairs; NaN of one column.
    overall : float
        Mean of the two, as in SDMetrics' quality report.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.
    """

    columns: float
    pairs: float
    overall: float


def column_scores(real, synthetic, schema=None):
    """Score of each column: the agreement of its two distributions, and what of it was kept.

    Parameters
    ----------
    real, synthetic : DataFrame, array of shape (n_rows, n_columns), or pair (X, y)
        Tables with the same columns; the numbers of rows may differ.
    schema : Schema, default=None
        Declares which columns are categories; None infers it from the dtypes of `real`. The columns that it declares
        as identifiers are left out: fresh keys are not meant to be like the real ones.

    Returns
    -------
    scores : DataFrame
        One row a column, in order: ``kind`` ("number", "date" or "category"); ``measure`` and ``score``, KSComplement
        of numbers and dates (1 less the Kolmogorov-Smirnov distance) and TVComplement of categories (1 less the total
        variation distance), missing values left out; ``coverage``, RangeCoverage or CategoryCoverage: the share of the
        real range, or of the real categories, that the synthetic rows reach; ``adherence``, BoundaryAdherence or
        CategoryAdherence: the share of synthetic values within the real range, or among the real categories;
        ``missing``, MissingValueSimilarity: 1 less the difference of the shares of missing values. NaN where a score
        has no meaning.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.

    References
    ----------
    The measures of these names in SDMetrics, docs.sdv.dev/sdmetrics, version 0.32.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpgen.metrics import column_scores
    >>> real = pd.DataFrame({"size": [1, 2, 3, 4], "kind": ["a", "a", "b", "c"]})
    >>> other = pd.DataFrame({"size": [1, 2, 3, 3], "kind": ["a", "a", "b", "b"]})
    >>> column_scores(real, other)["score"].tolist()
    [0.75, 0.75]
    """
    real, synthetic = paired_frames(real, synthetic, schema)
    rows = []
    for name in real.columns:
        pair = real[name], synthetic[name]
        kind = column_kind(real[name], None if schema is None else schema[name])
        agree = _total_variation(*map(category_counts, pair)) if kind == "category" else _kolmogorov_smirnov(*pair)
        found = "TVComplement" if kind == "category" else "KSComplement", 1.0 - agree, *kept(*pair, kind)
        shares = [float(column.isna().mean()) for column in pair]
        rows.append((kind, *found, 1.0 - abs(shares[0] - shares[1])))
    names = ["kind", "measure", "score", "coverage", "adherence", "missing"]
    return pd.DataFrame(rows, columns=names, index=list(real.columns))


def _kolmogorov_smirnov(real, synthetic):
    values = [tame_numbers(column) for column in (real, synthetic)]
    values = [np.sort(column[~np.isnan(column)]) for column in values]
    if not all(map(len, values)):
        return np.nan
    points = np.concatenate(values)
    below = [np.searchsorted(column, points, side="right") / len(column) for column in values]
    return float(np.abs(below[0] - below[1]).max())


def _total_variation(real, synthetic):
    if not real.sum() or not synthetic.sum():
        return np.nan
    # values of several types have no order, which an alignment of the two would ask for
    made = synthetic.reindex(real.index, fill_value=0).to_numpy() / synthetic.sum()
    return 0.5 * float(np.abs(real.to_numpy() / real.sum() - made).sum() + max(0.0, 1.0 - made.sum()))


def tame_numbers(column):
    """Return a column as `to_numbers` does, NaN where infinite, of sizes with which float64 can compute further."""
    values = np.clip(to_numbers(column, finite=True), -_LARGEST, _LARGEST)
    return np.where(np.abs(values) < 1 / _LARGEST, 0.0, values)


def category_counts(column):
    """Return the number of rows of each value that occurs, a Series by value; missing values are left out."""
    try:
        counts = column.value_counts()
        set(counts.index)  # pandas counts what has no hash, and cannot compare it
    except TypeError:  # its message may hold a cell
        raise InvalidInputError(f"column {column.name!r}: holds objects that are no categories") from None
    counts.index = pd.Index(counts.index, dtype=object)
    return counts[counts > 0].astype(np.int64)


def kept(real, synthetic, kind):
    """Return the coverage and the adherence of a column, as `column_scores` has them: fast for any number of rows."""
    if kind == "category":
        one, other = category_counts(real), category_counts(synthetic)
        if not len(one) or not len(other):
            return np.nan, np.nan
        known = other.index.isin(one.index)
        allowed = int(other[known].sum()) + (int(synthetic.isna().sum()) if real.isna().any() else 0)
        return float(known.sum() / len(one)), allowed / len(synthetic)
    known, made = (tame_numbers(column) for column in (real, synthetic))
    n_made, has_missing = len(made), np.isnan(known).any()
    known, made = known[~np.isnan(known)], made[~np.isnan(made)]
    if not len(known) or not len(made):
        return np.nan, np.nan
    low, high, lowest, highest = known.min(), known.max(), made.min(), made.max()
    coverage = np.nan
    if high > low:
        coverage = max(0.0, 1.0 - max(lowest - low, 0.0) / (high - low) - max(high - highest, 0.0) / (high - low))
    # a missing value is outside where the real column has none
    inside = int(((made >= low) & (made <= high)).sum())
    return float(coverage), inside / (len(made) if has_missing else n_made)


def pair_scores(real, synthetic, schema=None):
    """Score of each pair of columns: the agreement of what binds the two.

    Of two numbers (dates are numbers) CorrelationSimilarity, 1 less half the difference of Pearson's correlations; of
    others ContingencySimilarity, 1 less the total variation distance of the two-way tables, numbers in ten equal bins
    over the real range (the outer ones open), missing values in a separate cell.

    Parameters
    ----------
    real, synthetic, schema
        As for ``column_scores``.

    Returns
    -------
    scores : DataFrame of shape (n_columns, n_columns)
        Symmetric, 1 on the diagonal. NaN where a number is constant, for it has no correlation.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.

    SDMetrics' quality report (0.32) differs from its measures in two points: it bins a number beside a category over
    the range of each table by itself, and its mean leaves out pairs that are weakly associated in the real rows. Here,
    as in ContingencySimilarity with ``continuous_column_names``, both tables are binned alike, and all pairs count.

    References
    ----------
    The measures of these names in SDMetrics, docs.sdv.dev/sdmetrics, version 0.32.
    """
    real, synthetic = paired_frames(real, synthetic, schema)
    cells, numbers = [], {}
    for at, name in enumerate(real.columns):
        pair = real[name], synthetic[name]
        if column_kind(real[name], None if schema is None else schema[name]) == "category":
            cells.append(column_cells(*pair, CATEGORY))
        else:
            numbers[at] = [tame_numbers(column) for column in pair]
            cells.append(_binned(name, *numbers[at]))
    scores = np.eye(len(cells))
    at = list(numbers)
    if at:
        one, other = (_correlations(np.column_stack([numbers[k][part] for k in at])) for part in (0, 1))
        scores[np.ix_(at, at)] = 1.0 - np.abs(one - other) / 2
        np.fill_diagonal(scores, 1.0)
    for i, j in combinations(range(len(cells)), 2):
        if not (i in numbers and j in numbers):
            scores[i, j] = scores[j, i] = 1.0 - _table_distance([cells[i], cells[j]])
    names = list(real.columns)
    return pd.DataFrame(scores, index=names, columns=names)


def _binned(name, real, synthetic):
    known = real[~np.isnan(real)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    edges = np.linspace(low, high, _BINS + 1) if high > low else np.linspace(low - 0.5, high + 0.5, _BINS + 1)
    codes = [np.searchsorted(edges[1:-1], values, side="right") for values in (real, synthetic)]
    codes = [np.where(np.isnan(values), _BINS, code) for values, code in zip((real, synthetic), codes)]
    return ColumnCells(name, "number", *codes, _BINS + 1)


def _correlations(values):
    """Pearson's correlations over the rows that have both values; NaN where one of them is constant."""
    sizes = np.nanmax(np.abs(values), axis=0, initial=0.0)
    values = values / np.where(sizes > 0, sizes, 1.0)  # or squares overflow
    if np.isnan(values).any():
        return pd.DataFrame(values).corr(min_periods=2).to_numpy()
    norms = np.linalg.norm(values - values.mean(axis=0), axis=0)
    norms[(values.max(axis=0) == values.min(axis=0)) | (norms == 0)] = np.nan
    scaled = (values - values.mean(axis=0)) / norms
    return np.clip(scaled.T @ scaled, -1.0, 1.0)


def quality_score(real, synthetic, schema=None):
    """One score of a table: the mean of its columns' scores and of its pairs' scores.

    Parameters
    ----------
    real, synthetic, schema
        As for ``column_scores``.

    Returns
    -------
    QualityScore
        ``columns``, ``pairs`` and ``overall``, a named tuple of floats.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.

    A high score is easily had: the columns drawn one by one, each for itself, often score .9. Compare it with the score
    of two halves of the real rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpgen.metrics import quality_score
    >>> X = load_iris(as_frame=True).data
    >>> round(quality_score(X.iloc[::2], X.iloc[1::2]).overall, 2)
    0.93
    """
    real, synthetic = paired_frames(real, synthetic, schema)
    return score_of(column_scores(real, synthetic, schema), pair_scores(real, synthetic, schema))


def score_of(columns, pairs):
    """Return the `QualityScore` of the scores of columns and of pairs, which may be of a part of the columns."""
    of_columns = _mean(columns["score"].to_numpy(dtype=float))
    of_pairs = _mean(pairs.to_numpy(dtype=float)[np.triu_indices(len(pairs), 1)])
    return QualityScore(of_columns, of_pairs, _mean(np.array([of_columns, of_pairs])))


def _mean(values):
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan
