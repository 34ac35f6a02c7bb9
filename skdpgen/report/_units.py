"""The section on units of several rows: how many rows they have, and how similar the rows of one unit are."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .. import metrics
from ..metrics._samples import to_numbers
from ._page import details, leak, paragraph, section, table

# Rows of units that are listed one by one; units with more are one line.
_MOST_LISTED = 20
# Similarity of two rows of a unit from which the page says that rows are no independent draws.
_SIMILAR = 0.05


class UnitColumn:
    """Identifiers of the rows of both tables, which are compared with nothing.

    `real`, `synthetic`: None where a table lacks the column. `most`: largest number of rows of a unit that the fit
    used, by its card.
    """

    def __init__(self, name, real, synthetic, most=None):
        self.name, self.real, self.synthetic, self.most = name, real, synthetic, most


def split_units(frame, name):
    """Return a frame without its column of identifiers, and that column; None where it has none."""
    if name not in frame.columns:
        return frame, None
    return frame.drop(columns=[name]), frame[name].reset_index(drop=True)


def units_section(writer, units, kinds):
    """Return the section, and add its figures.

    `kinds`: of the columns that are compared.
    """
    of_real = _similarities(writer.whole[0], units.real, kinds)
    words = _said_of_real(units, of_real)
    if units.synthetic is None or units.synthetic.isna().all():
        words.append(
            f"The synthetic rows have no column {units.name}: nothing can be compared here. A fit with --unit and "
            "skdpgen sample --units write rows of synthetic units."
        )
        header = ("column", "similarity of two rows of a unit, real")
        rows = [(str(name), value) for name, value in of_real.items()]
        listed = details("Similarity of the rows of a unit", table("Columns", header, rows))
        return section("units", "Units", *map(paragraph, words), listed, leak(metrics.rows_per_unit))
    shares = _shares(units)
    distance = float(abs(shares["real"] - shares["synthetic"]).sum() / 2)
    writer.add("rows_per_unit_tvd", "rows of a unit, total variation distance", distance, "0")
    of_synthetic = _similarities(writer.whole[1], units.synthetic, kinds)
    both = pd.DataFrame({"real": of_real, "synthetic": of_synthetic}).dropna()
    if len(both):
        difference = float(abs(both["real"] - both["synthetic"]).mean())
        name = "similarity of the rows of a unit, mean difference over columns"
        writer.add("unit_similarity_difference", name, difference, "0")
    counted = table("Units by their number of rows", ("rows", "share, real", "share, synthetic"), _lines(shares))
    header = ("column", "similarity, real", "similarity, synthetic")
    rows = [(str(name), of_real[name], of_synthetic[name]) for name in kinds]
    listed = table("Similarity of two rows of a unit", header, rows)
    return section("units", "Units", *map(paragraph, words), counted, listed, leak(metrics.rows_per_unit))


def _said_of_real(units, similarities):
    sizes = units.real.value_counts()
    words = [
        f"{len(sizes):,} real units ({units.name}) have {sizes.mean():.2f} rows on average, at most {sizes.max():,}. "
        "The identifiers themselves are not compared. The similarity of two rows of a unit is 0 where they are as "
        "different as rows of two units, and 1 where they are equal: of numbers and dates the intraclass correlation, "
        "of categories the agreement beyond chance."
    ]
    similar = [name for name, value in similarities.items() if value > _SIMILAR]
    if similar:
        named = ", ".join(map(str, similar[:10])) + (f" and {len(similar) - 10} more" if len(similar) > 10 else "")
        words.append(
            f"The rows of a unit are similar in {named}: they are no independent draws. The two real halves consist of "
            "whole units: compare with their figures. All other figures on this page compare rows, and ignore units."
        )
    return words


def _shares(units):
    frames = (pd.DataFrame({"unit": ids}) for ids in (units.real, units.synthetic))
    return metrics.rows_per_unit(*frames, "unit", units.most)


def _lines(shares):
    few = shares[shares.index <= _MOST_LISTED]
    lines = [(str(n), float(real), float(synthetic)) for n, real, synthetic in few.itertuples()]
    if len(few) < len(shares):
        rest = shares[shares.index > _MOST_LISTED].sum()
        lines.append((f"more than {_MOST_LISTED}", float(rest["real"]), float(rest["synthetic"])))
    return lines


def _similarities(frame, ids, kinds):
    """Similarity of two rows of a unit, by column; NaN where no unit has two rows, or a column has one value."""
    codes = pd.factorize(ids)[0]
    return {name: _similarity(frame[name].reset_index(drop=True), codes, kind) for name, kind in kinds.items()}


def _similarity(column, codes, kind):
    if kind == "category":
        levels, names = pd.factorize(column)
        kept = (codes >= 0) & (levels >= 0)
        values = [(levels[kept] == k).astype(float) for k in range(min(len(names), 200))]
    else:
        numbers = to_numbers(column, finite=True)
        kept = (codes >= 0) & np.isfinite(numbers)
        values = [numbers[kept]]
    parts = [_variances(one, pd.factorize(codes[kept])[0]) for one in values]
    between, total = np.nansum(parts, axis=0) if parts else (np.nan, np.nan)
    return float(np.clip(between / total, 0.0, 1.0)) if total > 0 else np.nan


def _variances(values, codes):
    """Variance between units, and in all, by the analysis of variance of one factor; NaN where no unit has two rows."""
    n_rows, n_units = len(values), int(codes.max()) + 1 if len(codes) else 0
    if not 1 < n_units < n_rows:
        return np.nan, np.nan
    counts = np.bincount(codes)
    centred = values - values.mean()
    means = np.bincount(codes, centred) / counts
    within = ((centred - means[codes]) ** 2).sum() / (n_rows - n_units)
    usual = (n_rows - (counts**2).sum() / n_rows) / (n_units - 1)
    between = max(0.0, ((counts * means**2).sum() / (n_units - 1) - within) / usual)
    return between, between + within
