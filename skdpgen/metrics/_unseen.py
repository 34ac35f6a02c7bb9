"""Values that were lost and pairs of values that were invented: categories, and impossible combinations."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..utils.printing import plain_number
from ._quality import CATEGORY, category_counts, tame_numbers
from ._samples import ColumnCells, column_cells, column_kind, paired_frames

# Combinations that a table lists; their number is counted whole.
_MOST_PAIRS = 1_000


class UnseenPairs(NamedTuple):
    """Pairs of values that occur in synthetic rows and never in real ones.

    Attributes
    ----------
    share : float
        Share of synthetic rows with such a pair, one at least.
    count : int
        Number of such pairs of values.
    columns : DataFrame
        Where they are: ``first``, ``second`` (two columns), ``count`` (pairs of values) and ``synthetic`` (rows).
    pairs : DataFrame
        The commonest: ``first``, ``value``, ``second``, ``other`` (two columns and a value of each), ``synthetic``
        (rows that have both), ``real_value``, ``real_other`` (real rows that have either), and ``expected``: real rows
        that would have both if the two columns were unrelated. Where this is large, the pair is missing for a reason.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.
    """

    share: float
    count: int
    columns: pd.DataFrame
    pairs: pd.DataFrame


def lost_categories(real, synthetic, schema=None):
    """Categories that occur in real rows and in no synthetic row.

    Parameters
    ----------
    real, synthetic, schema
        As for ``column_scores``.

    Returns
    -------
    lost : DataFrame
        One row a category, the commonest first: ``column``, ``category``, ``real`` (rows that have it) and ``expected``
        (rows of as many synthetic ones, at the same share). Below an expected number of about 3, chance alone may lose
        it.

    Notes
    -----
    **Leak.** Lists values of real rows with their exact counts, rare ones among them. Do not publish it.
    """
    real, synthetic = paired_frames(real, synthetic, schema)
    rows = []
    for name in real.columns:
        if column_kind(real[name], None if schema is None else schema[name]) != "category":
            continue
        counts = category_counts(real[name])
        lost = counts[~counts.index.isin(category_counts(synthetic[name]).index)]
        scale = len(synthetic) / len(real)
        rows += [(name, str(value), int(count), float(count * scale)) for value, count in lost.items()]
    rows.sort(key=lambda row: -row[2])
    return pd.DataFrame(rows, columns=["column", "category", "real", "expected"])


def unseen_pairs(real, synthetic, schema=None, *, n_bins=10, max_levels=200):
    """Pairs of values of two columns that synthetic rows have and no real row has: impossible ones stand out.

    Parameters
    ----------
    real, synthetic, schema
        As for ``column_scores``; two columns at least.
    n_bins : int, default=10
        Numbers and dates are cut into bins of about equally many real rows; of at most as many different values, each
        is a bin. Missing values are a value.
    max_levels : int, default=200
        Columns of more categories are left out: no two rows share a name.

    Returns
    -------
    UnseenPairs
        ``share``, ``count``, ``columns`` and ``pairs``. A value that no real row has by itself makes no pair.

    Notes
    -----
    **Leak.** Says which pairs of values no real row has, and how many real rows have each value. Do not publish it.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpgen.metrics import unseen_pairs
    >>> real = pd.DataFrame({"sex": ["f", "f", "m", "m"], "pregnant": ["yes", "no", "no", "no"]})
    >>> other = pd.DataFrame({"sex": ["f", "m", "m", "f"], "pregnant": ["yes", "yes", "no", "no"]})
    >>> unseen_pairs(real, other).pairs[["value", "other", "synthetic"]].values.tolist()
    [['m', 'yes', 1]]
    """
    real, synthetic = paired_frames(real, synthetic, schema)
    return unseen(value_cells(real, synthetic, schema, n_bins=n_bins, max_levels=max_levels))


def value_cells(real, synthetic, schema=None, *, n_bins=10, max_levels=200):
    """Return the columns of two frames as cells, as `unseen_pairs` compares them; new values are -1."""
    cells = (
        _values(real[name], synthetic[name], None if schema is None else schema[name], n_bins) for name in real.columns
    )
    return [column for column in cells if column.size <= max_levels + 1]


def split_cells(columns, first):
    """Return cells of two parts of the real rows, as `unseen` takes them: the flagged rows, and the others."""
    parts = []
    for column in columns:
        known = np.zeros(column.size, dtype=bool)
        known[column.real[first]] = True
        other = column.real[~first]
        other = np.where(known[other], other, -1)
        parts.append(replace(column, real=column.real[first], synthetic=other))
    return parts


def _values(real, synthetic, declared, n_bins):
    """Cells of a column: its categories, or bins of about equally many real rows; new values are -1."""
    kind = column_kind(real, declared)
    if kind == "category":
        cells = column_cells(real, synthetic, CATEGORY)
        known = np.bincount(cells.real, minlength=cells.size) > 0
        made = np.where(known[cells.synthetic], cells.synthetic, -1)
        return ColumnCells(cells.name, kind, cells.real, made, cells.size, cells.labels)
    numbers = [tame_numbers(column) for column in (real, synthetic)]
    known = numbers[0][~np.isnan(numbers[0])]
    if not len(known):
        return ColumnCells(real.name, kind, *(np.zeros(len(values), dtype=int) for values in numbers), 1, ("missing",))
    values = np.unique(known)
    if len(values) <= n_bins:
        edges, labels = values, [_shown(value, kind) for value in values]
        codes = [np.clip(np.searchsorted(values, part), 0, len(values) - 1) for part in numbers]
        codes[1] = np.where(values[codes[1]] == numbers[1], codes[1], -1)
    else:
        edges = np.unique(np.quantile(known, np.linspace(0, 1, n_bins + 1)[:-1], method="higher"))
        ends = [
            *(values[np.searchsorted(values, edge) - 1] for edge in edges[1:]),
            values[-1],
        ]  # largest real value of a bin
        labels = [_span(low, high, kind) for low, high in zip(edges, ends)]
        codes = [np.clip(np.searchsorted(edges, part, side="right") - 1, 0, None) for part in numbers]
    codes = [np.where(np.isnan(part), len(edges), code) for part, code in zip(numbers, codes)]
    if not np.isnan(numbers[0]).any():
        codes[1] = np.where(codes[1] == len(edges), -1, codes[1])
    return ColumnCells(real.name, kind, *codes, len(edges) + 1, (*labels, "missing"))


def _shown(value, kind):
    return f"{pd.Timestamp(int(value)):%Y-%m-%d}" if kind == "date" else plain_number(value, 6)


def _span(low, high, kind):
    low, high = _shown(low, kind), _shown(high, kind)
    return low if low == high else f"{low} to {high}"


def unseen(columns):
    """Return `UnseenPairs` of columns as `value_cells` gives them."""
    sizes = [len(codes) for codes in (columns[0].real, columns[0].synthetic)] if columns else (1, 1)
    flagged, where, joint = np.zeros(sizes[1], dtype=bool), [], np.empty(sizes[0], dtype=np.intp)
    found = [[np.zeros(0, dtype=int)] for _ in range(5)]
    for i, j in combinations(range(len(columns)), 2):
        one, other = columns[i], columns[j]
        size = one.size * other.size
        occur = np.zeros(size, dtype=bool)
        np.multiply(one.real, other.size, out=joint)
        joint += other.real
        occur[joint] = True
        both = one.synthetic * other.size + other.synthetic
        new = (one.synthetic >= 0) & (other.synthetic >= 0)
        new &= ~occur[np.where(new, both, 0)]
        if not new.any():
            continue
        flagged |= new
        made = np.bincount(both[new], minlength=size)
        pairs = np.flatnonzero(made)
        where.append((one.name, other.name, len(pairs), int(new.sum())))
        pairs = pairs[np.argsort(-made[pairs], kind="stable")][:_MOST_PAIRS]
        first, second = np.divmod(pairs, other.size)
        parts = np.full(len(pairs), i), first, np.full(len(pairs), j), second, made[pairs]
        for listed, part in zip(found, parts):
            listed.append(part)
    listed = [np.concatenate(parts) for parts in found]
    most = np.argsort(-listed[-1], kind="stable")[:_MOST_PAIRS]
    table = _pairs_table(columns, sizes[0], *(part[most] for part in listed))
    where = pd.DataFrame(sorted(where, key=lambda row: -row[3]), columns=["first", "second", "count", "synthetic"])
    return UnseenPairs(float(flagged.sum() / max(len(flagged), 1)), int(where["count"].sum()), where, table)


def _pairs_table(columns, n_real, first, value, second, other, made):
    shares = [np.bincount(column.real, minlength=column.size) for column in columns]
    either = [
        np.array([int(shares[i][k]) for i, k in zip(at, which)], dtype=int)
        for at, which in ((first, value), (second, other))
    ]
    return pd.DataFrame(
        {
            "first": [columns[i].name for i in first],
            "value": [columns[i].labels[k] for i, k in zip(first, value)],
            "second": [columns[j].name for j in second],
            "other": [columns[j].labels[k] for j, k in zip(second, other)],
            "synthetic": made,
            "real_value": either[0],
            "real_other": either[1],
            "expected": either[0] * (either[1] / n_real),
        }
    )
