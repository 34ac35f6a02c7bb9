"""How fine the tables of a DataFrame are, and whether they fit into memory: by public facts and released counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..exceptions import InvalidInputError
from ..mechanisms import residual_plan
from ..mechanisms._contrasts import Contrasts
from ..mechanisms._one_hot import most_rows_of_tables
from ..mechanisms._residual_plan import bytes_of_plan
from ..tabular import Boolean, Categorical
from ..tabular._level_groups import declared_groups, has_subgroups
from ..utils.validation import physical_memory
from .level_groups import MOST_GROUPS, bytes_of_profiles, grouped_columns

# Bytes of two-way tables above which a fit is refused.
_MOST_BYTES = 2 << 30
# Copies of the two-way tables that a fit holds at its peak: of all classes together, and of each class (measured at
# 1,200 to 5,000 levels and 1 to 8 classes, Linux, numpy 2).
_COPIES_OF_ALL, _COPIES_OF_CLASSES = 8.0, 6.0
# Noise of a one-way count over the rows of an average level of a class; above it, scores replace tables.
_ROUGH = 0.3
# Smallest visible correlation from which the noise hides much of the two-way tables, and from which there are none
# (2,000 rows of Adult have .6 at epsilon 1, 1,000 rows 1.2: there a model without them is better by .03 AUROC).
SEEN, _LEAST_SEEN = 0.4, 0.8
# Correlation that the bins of a numeric column are to show, and the least number of bins.
_WEAKEST, _FEWEST_BINS = 0.25, 4
# Columns above which scores show more than tables that the noise nearly hides, and of numbers alone, which depend on
# one another more. Of fewer columns, one-way tables of the most bins are nearer to the rows (Adult, 1,000 rows, epsilon
# 1: two-way TVD .20, by scores .40).
_MANY_COLUMNS, _MANY_NUMBERS = 40, 20
# Share of the noise of interactions that counts when the budget is divided: a fit averages over them, and shrinks
# them towards independence, all the more where the noise hides much of them.
_KEPT, _KEPT_HIDDEN = 0.1, 0.02
# Columns with a middle up to which the products of sides are measured: the two-way tables that follow take memory.
_MOST_DIVIDED = 200
# Cells of a column of few integers: its bins are learned where those of other columns are not.
_FEW_CELLS = 64
# Most (bins of a numeric column, learned categories of a column): the first pair that fits into _MOST_BYTES is used.
_ROOM = ((16, 200), (16, 150), (16, 100), (16, 70), (16, 50), (12, 35), (8, 25), (4, 12))
# What to do about columns of too many categories.
_FEWER_LEVELS = "merge categories, drop the column, or declare it as an Identifier if it holds keys"


# ---- how fine the tables are ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TableSize:
    """Sizes and noise that decide how fine the tables of a DataFrame are."""

    n_rows: float  # released, or assumed
    # n_blocks, n_classes, n_numbers: columns but the targets, classes of the targets, and columns of numbers and dates
    n_blocks: int
    n_classes: int
    n_numbers: int
    noise: float  # noise multiplier of the release of the tables, relative to one row
    most_bins: int = 16  # of a numeric column
    divided: bool = False  # whether all columns have a middle, and tables are released

    @classmethod
    def of(cls, schema, targets, n_rows, noise, *, most_bins=16, tables=True):
        """Take the sizes from a schema. A target whose categories are still to be learned counts as one class."""
        known = [column for column in schema.columns if column.name in targets and column.complete]
        n_numbers = sum(not isinstance(column, Categorical | Boolean) for column in schema.columns)
        return cls(
            n_rows=n_rows,
            n_blocks=len(schema) - len(targets),
            n_classes=int(np.prod([size_of_column(column) for column in known])),
            n_numbers=n_numbers,
            noise=noise,
            most_bins=most_bins,
            divided=tables and all(has_middle(column) for column in schema.columns if column.name not in targets),
        )


def plan_bins(size):
    """Choose the bins of a numeric column, and whether two-way tables are released.

    A correlation rho between two columns of k bins has a singular value of about ``n rho / k`` in the pair table of a
    class of n rows. That of the noise is ``2 sd sqrt(k)`` with sd = noise * sqrt(number of pairs). k is the largest
    number at which rho = `_WEAKEST` still exceeds the noise. Where the noise exceeds most correlations, two-way tables
    are not released. If all columns have a middle, they are not released from .4 on: the products of sides show more.

    Returns `n_bins`; `seen`: smallest correlation that exceeds the noise at that number of bins; infinite without
    two-way tables.
    """
    ratio = correlation_over_noise(size)
    n_bins = int(np.clip(round((_WEAKEST * ratio) ** (2 / 3)), _FEWEST_BINS, size.most_bins))
    seen = n_bins**1.5 / ratio
    if seen <= SEEN or (seen <= _LEAST_SEEN and size.n_blocks <= _MANY_COLUMNS and not size.divided):
        return n_bins, float(seen)
    return n_bins, np.inf


def correlation_over_noise(size):
    """Ratio of a correlation of 1 to the noise in a two-way table of one bin a column; see `plan_bins`."""
    noise = 2 * max(size.noise, 1e-12) * np.sqrt(max(size.n_blocks * (size.n_blocks - 1) / 2, 1))
    return max(size.n_rows / max(size.n_classes, 1), 1.0) / noise


def prefers_scores(size, n_bins, learned_bins):
    """Tell whether scores describe a table better than its one-way tables, where two-way tables are left out.

    `n_bins`: of a numeric column. `learned_bins`: see `has_learned_bins`; or there are no columns of numbers.
    """
    if size.n_blocks <= (_MANY_NUMBERS if size.n_numbers == size.n_blocks else _MANY_COLUMNS):
        return False
    # noise of a one-way count of a class over the rows of an average level
    rough = size.noise * size.n_blocks**0.5 * n_bins * size.n_classes / max(size.n_rows, 1.0)
    return rough > _ROUGH or learned_bins


def has_learned_bins(binnings):
    """Whether any column of many values has learned bins; where noise hides the values, bins have equal widths."""
    binnings = {name: binning for name, binning in binnings.items() if len(binning.mass) > _FEW_CELLS}
    widths = {name: np.diff(binning.edges) for name, binning in binnings.items()}
    return any(not np.allclose(b.mass, widths[name] / widths[name].sum()) for name, b in binnings.items())


def plan_tables(codec, seen, importance, middles=None, ratio=1.0):
    """Choose contrasts and weights of the tables.

    `seen`: see `plan_bins`. `importance`: shape (n_blocks,). `middles`: see `sides_of`, which take the place of two-way
    tables that the noise hides. Without it the plan has the same weights. `ratio`: see `ClassContrasts`.
    """
    blocks = codec.blocks
    sides = None if np.isfinite(seen) else sides_of(codec, middles or {})
    return residual_plan(
        codec.n_levels,
        codec.n_bins([block.name for block in blocks]),
        max(codec.n_classes, 1),
        pairs=np.isfinite(seen),
        importance=importance,
        kept=_KEPT if seen <= SEEN else _KEPT_HIDDEN,
        sides=sides,
        ratio=ratio,
    )


# ---- middles of columns ---------------------------------------------------------------------------------------------
def has_middle(column):
    """Whether the levels of a column have a middle: numbers, dates, and categories where there are two.

    Of columns of learned categories, those that were learned.
    """
    if isinstance(column, Categorical):
        return column.complete and len(column.categories) == 2 and column.hierarchy is None
    return True


def sides_of(codec, middles):
    """Side of the middle of its column on which each level is: of bins, and of the two categories of a column.

    `middles`: number of bins below the middle; half of them for columns that are not named.
    Returns an array of shape (n_columns_encoded,): -1 below, 1 above; 0 of missing values, and of columns of more
        categories, which have no middle. None where fewer than two columns have one, or too many.
    """
    sides, divided = [], 0
    for block in codec.blocks:
        side, binning = np.zeros(block.size, dtype=np.int64), codec.encoder.binnings_.get(block.name)
        if binning is not None:
            side[: binning.n_bins] = 1
            side[: middles.get(block.name, binning.n_bins // 2)] = -1
        elif has_middle(codec.encoder.schema_[block.name]):
            side[codec.named(block)] = -1, 1
        has_both = side.min() == -1 and side.max() == 1  # one bin has no middle
        divided += has_both
        sides.append(side * has_both)
    return np.concatenate(sides) if 1 < divided <= _MOST_DIVIDED else None


# ---- memory ---------------------------------------------------------------------------------------------------------
def room_for_tables(schema, targets):
    """Most bins and learned categories of a column, from public facts alone; refuse tables beyond the memory."""
    declared = {
        c.name: size_of_column(c) for c in schema.columns if isinstance(c, Categorical | Boolean) and c.complete
    }
    grouped = grouped_columns(schema, targets)
    # "other" and missing are alone; of learned categories as many groups are made as there is room for
    known = {**declared, **{name: MOST_GROUPS + 2 for name in grouped if name in declared}}
    known.update(sizes_of_hierarchies(schema, grouped))
    largest = sorted(known, key=declared.get, reverse=True)[:5]
    largest = ", ".join(f"{name!r} ({declared[name]})" for name in largest)
    advice = _FEWER_LEVELS + (f"; the columns with the most levels are {largest}" if largest else "")
    for bins, categories in _ROOM:
        sizes = {
            c.name: known.get(c.name, (categories + 1 if isinstance(c, Categorical) else bins) + c.missing)
            for c in schema.columns
        }
        classes = int(np.prod([sizes.pop(name) for name in targets]))
        if 8 * classes * sum(sizes.values()) ** 2 <= _MOST_BYTES:
            break
    else:
        raise InvalidInputError(
            f"the two-way tables of {classes} classes and {sum(sizes.values())} levels would take more than "
            f"{_MOST_BYTES >> 30} GiB: {advice}"
        )
    # of the declared levels: learned categories may be fewer
    levels = sum(size for name, size in known.items() if name not in targets)
    needed, memory = 8 * levels**2 * (_COPIES_OF_ALL + _COPIES_OF_CLASSES * classes), physical_memory()
    needed = max(needed, bytes_of_plan(len(sizes)))
    needed = max(needed, bytes_of_profiles([declared[n] for n in grouped if n in declared], len(schema)))
    if memory is not None and needed > memory:
        raise InvalidInputError(
            f"the fit would take about {needed / 2**30:.0f} GiB of memory, and this machine has "
            f"{memory / 2**30:.0f} GiB: {advice}"
        )
    return bins, categories


def check_exact_tables(schema, targets, bins, categories, n_rows, weighted):
    """Refuse, before the charge, more rows than two-way tables of these columns count exactly.

    `bins`, `categories`: from `room_for_tables`. `weighted`: whether rows have the weights of units.
    """
    entries, of_classes = largest_entries(schema, targets, bins, categories)
    worst = max(entries, key=entries.get)
    most = most_rows_of_tables(entries[worst], of_classes, weighted)
    if n_rows > most:
        raise InvalidInputError(
            f"at most {most:,} rows can be counted exactly in two-way tables of these columns: merge categories of "
            f"{worst!r}, which has the most, or classes, or fit on a random part of the rows; nothing was charged"
        )


def largest_entries(schema, targets, bins, categories):
    """Largest whole number that a contrast of each column may have, and one of the classes; from public facts alone."""
    grouped = grouped_columns(schema, targets)
    groups, known, most = sizes_of_hierarchies(schema, grouped), {}, {}
    for column in schema.columns:
        if isinstance(column, Categorical | Boolean) and column.complete and column.name not in grouped:
            known[column.name] = size_of_column(column)
        elif isinstance(column, Categorical):
            of_learned = categories + 1 + column.missing
            most[column.name] = groups.get(column.name, MOST_GROUPS + 2) if column.complete else of_learned
    # of so many levels, or fewer, the halves differ by one; a missing value may be apart from all bins
    entries = {c.name: (most[c.name] + 1) // 2 if c.name in most else bins for c in schema.columns}
    entries.update({name: _largest_entry(size) for name, size in known.items()})
    n_classes = int(np.prod([known.get(name) or most[name] for name in targets]))
    of_classes = _largest_entry(n_classes) if known.keys() >= set(targets) else (n_classes + 1) // 2
    return {name: entry for name, entry in entries.items() if name not in targets}, of_classes


def _largest_entry(size):
    return Contrasts([size], [0]).largest


def size_of_column(column):
    """Number of levels of a column of declared categories, that of missing values too."""
    return len(column.values) + column.missing


def sizes_of_hierarchies(schema, columns, divided=True):
    """Numbers of groups of the columns of declared categories and groups, those of "other" and missing values too.

    Of columns whose groups have groups: the most that a fit may form, or those of the coarsest groups.
    """
    sizes = {}
    for column in (schema[name] for name in columns):
        if column.hierarchy is None or not column.complete:
            continue
        coarsest = sizes[column.name] = max(declared_groups(column)) + 1
        if divided and has_subgroups(column):
            n_alone = (column.other is not None) + column.missing
            most = min(max(coarsest - n_alone, MOST_GROUPS), len(column.categories))
            sizes[column.name] = most + n_alone
    return sizes
