"""Bounds and categories from released counts; the caller adds the noise between query and result."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd

from ..mechanisms import (
    LARGEST,
    N_OCTAVE_CELLS,
    mean_of_releases,
    noise_of_mean,
    octave_edges,
    octave_ranges,
    outermost_bins,
    selection_threshold,
    split_histogram,
)
from ..mechanisms._selection import above_threshold, occupied_cells, widened, with_hidden_signs
from ..utils.callers import warn_user
from ..utils.categories import family
from ..utils.printing import listed
from ..utils.watching import tell_kept
from ._columns import (
    MAX_INTEGER,
    MOST_WRITTEN,
    Categorical,
    Datetime,
    Numeric,
    group_value,
    prefix_lengths,
    rounded_to,
    unit_microseconds,
    written_decimals,
)
from ._dtypes import dtype_range, fit_dtype, output_dtype
from ._ranges import far_from_zero
from ._schema import Schema
from ._schema_cells import YEARS, SelectedCounts, column_weights, learns_resolution, part_sizes, resolutions_of

# Bounds of a column in which nothing stands above the noise.
DEFAULT_BOUNDS = {"numeric": (0, 1), "datetime": ("1920-01-01", "2049-12-31T23:59:59.999999")}
# Most learned categories of one column that is not modelled by groups of them.
MAX_CATEGORIES = 200
# Standard deviations of the noise by which the rows of a column exceed those of its learned categories, where a second
# release looks for more of them; and fewer of them, where these are at least such a share of all rows, and of the rows
# of the column that lacks most.
_HIDDEN_ABOVE, _LIKELY_HIDDEN, _MUCH, _COMPARABLE = 3.0, 1.5, 0.05, 0.5
# Share of the rows in categories that neither look shows, from which a third count looks for more of them.
_MANY_LOST = 0.1
# Rows are few below this many standard deviations of the noise on a count: numbers and dates are then counted again.
_FEW = 30.0
# The same by which the rows of a single year show in a column of dates.
_YEAR_ABOVE = 4.0
# Standard deviations by which a group of first characters exceeds its released categories, where it has other rows.
_EMPTY = 2.0
# A range is widened to zero where zero is this many times nearer than its far end.
_GAP = 4
# A sign whose numbers are at most this part of the far end of the other sign is cut off: clipping moves them by less.
_TINY_SIDE = 2.0**-20
# The year in which datetimes in nanoseconds begin.
_NANOSECONDS = 1677
# Probability of being occupied from which a cell next to the range of years is added to it: the ends of sparse rows
# are not sharp, and bounds that are too wide clip nothing.
_MAYBE_OCCUPIED = 0.05
# Most columns that a warning names.
_NAMED = 20
# A resolution is learned where the counted rows exceed this many standard deviations of the noise on one of its
# cells. It is the coarsest one that all rows but this share have, and this many standard deviations.
# With fewer rows, it is learned where more rows have it than need a finer one, by so many standard deviations: numbers
# with missing values are floats, and would else be drawn with decimals.
_CLEAR, _FINER, _FINER_SDS, _COARSER_SDS = 12, 0.01, 3.0, 4.0


def schema_from_histogram(
    noisy, histogram, noise_sd, delta, max_categories=MAX_CATEGORIES, *, unit=None, values=None
) -> Schema:
    """Complete the schema from the released counts.

    Parameters
    ----------
    noisy : array
        ``histogram.bounded_sum`` with noise.
    histogram : SchemaHistogram
    noise_sd : float
        Standard deviation of the noise on a count of weight 1. With 0 (no privacy) every category is kept.
    delta : float
        Probability that a category of one row is released; charged beside the Gaussian event. Not used where
        `histogram.needs_delta` is False.
    max_categories : int or dict of column name -> int, default=200
        Most categories of one column, or of each: those with the largest released counts are kept.
    unit : BoundedUnit or None, default=None
        Whose rows were counted, where a row is not the unit: the threshold follows from it.
    values : dict of column name -> list, default=None
        Public: values that a column is to have, such as those that constraints set. Steps and decimals are learned no
        coarser than these and the spikes of the column.

    Returns
    -------
    Schema
        Complete. Bounds are the outer edges of the octaves that numbers lie in
        (`skdpgen.mechanisms.octave_ranges`), widened to the other side of zero where the counts of signs show numbers
        that noise hides in every octave, and to zero where zero is near beside their range; of datetimes, of the
        outermost years that may hold rows, by all years together.
        Categories are those above the threshold, sorted; everything else is the level "other" (a number not
        among the categories, -1 if it can be, where they are numbers). A column with nothing above the noise
        gets `DEFAULT_BOUNDS`, or "other" alone. A column that is not of integers gets ``step=1`` where its released
        counts say that its numbers are whole, or as many `decimals`, up to three, as they say that its numbers have.
        Where they do not tell, its learned bounds do: their distance has four significant digits, but two decimals at
        least. A datetime column gets the resolution of a day, an hour or a minute where the counts say so.

    Warns
    -----
    UtilityWarning
        Names the columns of which nothing was learned, and those that reach the end of the grid on which bounds are
        learned: known from the released counts alone.
    """
    return _complete(noisy, histogram, noise_sd, delta, max_categories, unit, values)[0]


def schema_and_candidates(
    noisy, histogram, noise_sd, delta, max_categories=MAX_CATEGORIES, *, unit=None, values=None, again=True,
    unlearned=None, numbers_sd=None, shown=None,
):  # fmt: skip
    """Complete the schema, and name the columns that are worth a second release.

    `noisy`, `histogram`, `noise_sd`, `delta`, `max_categories`, `unit`, `values`: as for `schema_from_histogram`.
    `again`: whether there is a second release: of the columns that it is for, there is no warning yet.
    `unlearned`: takes the columns of which nothing was learned, in place of a warning.
    `numbers_sd`: `noise_sd` of the columns of numbers and dates, where it is another.
    `shown`: takes the number of rows that each column of categories shows, by its released counts.
    Returns `schema`; `hidden`: columns of categories that more rows lack than the noise explains: the released counts
        of their learned categories and of missing values sum to less than those of another column of categories, or
        than the rows that columns of numbers show; `far`: columns of numbers in one or two octaves (see
        `far_from_zero`), as they were before they got bounds.
    """
    terms = (delta, max_categories, unit, values, again, unlearned, numbers_sd, shown)
    return _complete(noisy, histogram, noise_sd, *terms)


def number_columns(schema):
    """Names of the columns of numbers and dates whose bounds are not declared; public."""
    return tuple(name for name in schema.incomplete if not isinstance(schema[name], Categorical))


def hides_ranges(noisy, histogram, noise_sd):
    """Whether the rows are so few that the noise hides much of the ranges of numbers and dates.

    It follows from the released counts alone; arguments as for `schema_from_histogram`.
    """
    return are_few(shown_rows(noisy, histogram, noise_sd), noise_sd)


def shown_rows(noisy, histogram, noise_sd, numbers_sd=None):
    """Number of rows by the counts of numbers and dates; see `schema_and_candidates` for the arguments."""
    sd = noise_sd if numbers_sd is None else numbers_sd
    sds = dict.fromkeys(histogram.schema.incomplete, sd)
    return _rows_of_numbers(noisy, histogram, sds)[0]


def lacks_many(schema, shown, n_rows):
    """Whether a column still lacks many rows after some of its categories were learned, by released values alone.

    `schema`: complete. `shown`: rows that columns of categories show; see `schema_and_candidates`. `n_rows`: number of
    rows by other releases.
    """
    return any(
        n_rows - rows > _MANY_LOST * n_rows
        for name, rows in shown.items()
        # there is something to look for, and no groups have the other rows
        if schema[name].categories and not prefix_lengths(schema[name])
    )


def are_few(n_rows, noise_sd):
    """Whether rows are so few that numbers and dates are counted again; `noise_sd`: on a count of the first release."""
    return n_rows < _FEW * noise_sd


def joined_numbers(first, second, histogram, sds):
    """Average the counts of numbers and dates of two releases by their noise.

    `first`: counts of `histogram`, with noise. `second`: those of its columns of numbers and dates alone. `sds`:
    standard deviation of the noise on a count of weight 1 of either.
    Returns the counts of `histogram`, and the standard deviation of the noise on those of numbers and dates.
    """
    numbers = number_columns(histogram.schema)
    of_numbers = np.repeat([name in numbers for name in histogram.schema.incomplete], histogram.sizes)
    found = np.array(first)
    found[of_numbers] = mean_of_releases(found[of_numbers], second, sds)
    return found, noise_of_mean(sds)


def with_ranges(schema, ranges, far, values=None):
    """Give columns of numbers the ranges that a second release shows; see `narrowed_ranges`.

    `schema`: complete. `far`: the columns, without bounds; see `schema_and_candidates`. `values`: see
    `schema_from_histogram`.
    """
    return schema.replace(
        *(_bounded(far[n], _bounds_of(far[n], *r), _declared(far[n], values)) for n, r in ranges.items())
    )


def joined_categories(first, second, columns, max_categories=MAX_CATEGORIES, values=None):
    """Add the categories of a second release to those of the first; where they are too many, the second's go first.

    `first`, `second`: complete. `columns`: those of the second release, as they were declared. `values`: see
    `schema_from_histogram`.
    """
    # groups of first characters are those of the second release: of the first, they may have no other codes left
    own = {c: [v for v in first[c.name].categories if len(str(v)) not in prefix_lengths(c)] for c in columns}
    both = {c: dict.fromkeys([*second[c.name].categories, *own[c]]) for c in columns}
    most = {c: list(kept)[: _most(max_categories, c)] for c, kept in both.items()}
    return first.replace(*(_with_categories(c, kept, _declared(c, values)) for c, kept in most.items()))


def most_categories(column, most, n_declared=0):
    """Most learned categories of a column whose dtype must hold `n_declared` other values and "other" too; public."""
    dtype = None if column.dtype is None else output_dtype(column.dtype)
    if dtype is None or not pd.api.types.is_integer_dtype(dtype):
        return most
    low, high = dtype_range(column.dtype)
    return int(min(most, high - low - n_declared))


def _most(max_categories, column):
    return max_categories[column.name] if isinstance(max_categories, dict) else max_categories


def _complete(
    noisy, histogram, noise_sd, delta, max_categories, unit, values, again=False, unlearned=None, numbers_sd=None,
    rows_shown=None,
):  # fmt: skip
    """See `schema_and_candidates`; with `again` there is no warning of hidden columns."""
    schema, learned, nothing, beyond, shown, empty, far = histogram.schema, [], {}, [], {}, [], {}
    names = schema.incomplete
    numbers = dict.fromkeys(number_columns(schema), noise_sd if numbers_sd is None else numbers_sd)
    sds = dict.fromkeys(names, noise_sd) | numbers
    n_categorical = sum(isinstance(schema[name], Categorical) for name in names)
    n_selected = SelectedCounts.of(schema[name] for name in names).n
    common = _common_range(noisy, histogram, sds)
    for name, counts in zip(names, split_histogram(noisy, histogram.sizes)):
        column, sd = schema[name], sds[name]
        parts = split_histogram(counts, part_sizes(column, len(counts), histogram.keys.get(name)))
        # the last cell of the first count, or of that of the categories, holds the rows without a value
        first_weight = column_weights(column)[-1 if isinstance(column, Categorical) else 0]
        missing, counts = float(parts[-1 if isinstance(column, Categorical) else 0][-1]), parts[0][:-1]
        if isinstance(column, Categorical):
            terms = (histogram, sd, delta, n_selected, _most(max_categories, column), unit)
            kept, groups = _kept_categories(column, parts, *terms)
            shown[name] = missing + math.fsum(kept.values()), (1 + len(kept)) / first_weight**2
            column = _with_categories(column, {**groups, **kept}, _declared(column, values))
            found = bool(column.categories)
            if not found:
                empty.append(name)
        else:
            outermost = _outermost_cells(column, parts, sd, len(names) - n_categorical, common)
            declared = _declared(column, values)
            if learns_resolution(column):
                column = _with_resolution(column, parts[-1], sd / column_weights(column)[-1], declared)
            open_, column = column, _with_bounds(column, outermost, declared)
            found = outermost is not None
            if found and isinstance(column, Numeric):
                sure = outermost_bins(counts, sd / first_weight, len(names) - n_categorical) or outermost
                if far_from_zero(column, *_octaves(sure), *_octaves(outermost)):
                    far[name] = open_
            if found and (outermost[0] == 0 or outermost[1] == len(counts) - 1):
                beyond.append(column)
        learned.append(column)
        if not found:
            absent = missing > _CLEAR * sd / first_weight
            absent = absent and not _shows_numbers(column, parts, sd)
            nothing[column] = _hidden_rows(column, sd, delta, n_selected, unit) if absent else None
    if rows_shown is not None:
        rows_shown.update((name, rows) for name, (rows, _) in shown.items())
    hidden = _hidden(shown, empty, noise_sd, *_rows_of_numbers(noisy, histogram, sds))
    found = Unlearned() if unlearned is None else unlearned
    for column, hidden_rows in nothing.items():
        if not (again and column.name in hidden):
            found.add(column, hidden_rows)
    if unlearned is None:
        found.warn()
    _warn_of_the_end(beyond)
    return schema.replace(*learned), hidden, far


def _declared(column, values):
    return [*(getattr(column, "spikes", None) or ()), *(values or {}).get(column.name, ())]


# ---- categories -----------------------------------------------------------------------------------------------------
def _kept_categories(column, parts, histogram, noise_sd, delta, n_selected, most, unit):
    """Released categories of a column with their noisy counts, and released groups of the others.

    Groups are first characters that enough rows have (see `SchemaHistogram.keys`): each such count has a threshold, for
    the noise of its weight, and the thresholds of all counts of all columns share the delta. A group that has no rows
    beside those of its released categories and groups, by the noisy counts alone, is left out.
    """
    keys, lengths, weights = histogram.keys[column.name], prefix_lengths(column), column_weights(column)
    room, masks = most, []
    for depth, (counts, weight) in enumerate(zip(parts, weights)):
        counts = counts[:-1] if depth == len(lengths) else counts
        limit = room if depth == len(lengths) else most // (2 * len(lengths))
        masks.append(_mask_of_categories(counts, histogram, noise_sd / weight, delta, n_selected, limit, unit))
        room -= np.count_nonzero(masks[-1])
    counts = np.concatenate(parts)[:-1]
    kept = tell_kept({key: count for key, count, keep in zip(keys, counts, np.concatenate(masks)) if keep})
    if not lengths:
        return kept, {}
    *groups, kept = [{key: count for (at, key), count in kept.items() if at == depth} for depth in range(len(weights))]
    return kept, _with_rows_of_others(kept, groups, lengths, [(noise_sd / weight) ** 2 for weight in weights])


def _with_rows_of_others(kept, groups, lengths, variances):
    """Released groups whose noisy counts exceed those of the released categories and groups in them by their noise."""
    parts, left = [(key, count, variances[-1]) for key, count in kept.items()], {}
    for length, own, variance in reversed(list(zip(lengths, groups, variances))):
        inside = {group: [] for group in own}
        for part in parts:
            inside.setdefault(group_value(part[0], length), []).append(part)
        parts = []
        for group, members in inside.items():
            noise = _EMPTY * math.sqrt(variance + math.fsum(of_part for *_, of_part in members))
            if group in own and own[group] - math.fsum(count for _, count, _ in members) > noise:
                left[group] = own[group]
                parts.append((group, own[group], variance))
            else:
                parts += members
    return left


def _mask_of_categories(counts, histogram, noise_sd, delta, n_columns, max_categories, unit=None):
    """Return which categories of a column are released: at most `max_categories`, the largest above the threshold."""
    if noise_sd > 0:
        kept = above_threshold(counts, histogram.bounded_sum, noise_sd, delta, n_columns, unit)
    else:
        kept = counts > 0
    if max_categories < 1:
        return np.zeros(len(counts), dtype=bool)
    if np.count_nonzero(kept) > max_categories:
        kept &= counts >= np.sort(counts[kept])[-max_categories]
        kept[np.flatnonzero(kept)[max_categories:]] = False  # of equal counts, the first of the sorted keys
    return kept


def _hidden(shown, empty, noise_sd, n_rows, rows_sd):
    """Names of the columns that show fewer rows than the one that shows most, or than `n_rows`, or no category.

    `shown`: rows and cells of each column. `empty`: columns without a learned category. `n_rows`: rows by the columns
    of numbers, with noise of `rows_sd`.
    """
    most, cells = max(shown.values(), default=(0.0, 0))
    lacking = {}
    for name, (rows, own) in shown.items():
        noise = noise_sd * math.sqrt(cells + own), math.hypot(noise_sd * math.sqrt(own), rows_sd)
        lacking[name] = [(most - rows, noise[0]), (n_rows - rows, noise[1])]
    much = max([_MUCH * max(most, n_rows)] + [_COMPARABLE * lost for found in lacking.values() for lost, _ in found])
    return tuple(
        name
        for name, found in lacking.items()
        if name in empty
        or any(lost > (_LIKELY_HIDDEN if lost >= much else _HIDDEN_ABOVE) * noise for lost, noise in found)
    )


def _with_categories(column, kept, declared=()):
    """The column with the released categories; its kind, its dtype and "other" suit the declared values too."""
    families = {family(key) for key in (*kept, *declared)}
    dtype = None if column.dtype is None else output_dtype(column.dtype)
    if families == {"flag"} or (dtype is not None and pd.api.types.is_bool_dtype(dtype)):
        # one released truth value implies the other
        return replace(column, categories=(False, True))
    kept = tuple(sorted(kept))
    if families == {"number"} or (dtype is not None and pd.api.types.is_numeric_dtype(dtype)):
        both = tuple(sorted({*kept, *declared}))
        dtype = column.dtype or _number_dtype(both, column.missing)
        return replace(column, categories=kept, other=_free_number(both, dtype), dtype=dtype)
    taken = {*kept, *declared}
    other = next(name for name in ("other", *(f"other_{i}" for i in range(len(taken) + 1))) if name not in taken)
    return replace(column, categories=kept, other=other)


def _number_dtype(kept, missing):
    """Return the first dtype that holds all categories, and one more number, exactly."""
    whole = [name.capitalize().replace("Ui", "UI") if missing else name for name in ("int64", "uint64")]
    names = ["float64"] if any(isinstance(value, float) for value in kept) else whole
    return next((name for name in names if fit_dtype(kept, name)), "object")


def _free_number(kept, dtype):
    """Return a number of a dtype that is no category: there are at most `most_categories` of them."""
    options = (-1, *((int(kept[0]) - 1, int(kept[-1]) + 1) if kept else ()), *range(len(kept) + 1))
    if dtype not in ("object", "category") and pd.api.types.is_integer_dtype(output_dtype(dtype)):
        low, high = dtype_range(dtype)
        options = itertools.chain(options, range(low, high + 1))
    return next(option for option in options if option not in kept and fit_dtype((option,), dtype))


# ---- bounds and resolutions -----------------------------------------------------------------------------------------
def _rows_of_numbers(noisy, histogram, sds):
    """Number of rows by the counts of the columns of numbers and dates, and the standard deviation of its noise.

    A number is negative, positive, zero or missing, and a date has a year or is missing. The cells are those of public
    grids.
    """
    total = precision = 0.0
    for name, counts in zip(histogram.schema.incomplete, split_histogram(noisy, histogram.sizes)):
        column = histogram.schema[name]
        if isinstance(column, Categorical) or sds[name] == 0:
            continue
        first, *rest = split_histogram(counts, part_sizes(column, len(counts)))
        cells = [first]
        if isinstance(column, Numeric):
            zero = (len(first) - 1) // 2
            cells = [first[[zero, -1]], rest[0]]  # zero and missing; both signs
        variance = sum(len(part) * (sds[name] / weight) ** 2 for part, weight in zip(cells, column_weights(column)))
        total += sum(part.sum() for part in cells) / variance
        precision += 1 / variance
    return (total / precision, precision**-0.5) if precision else (0.0, math.inf)


def _common_range(noisy, histogram, sds):
    """Range of the octaves of all columns of numbers together; of zero alone where noise hides that too, or None.

    With few rows noise hides the octaves of a column, and in one such column of a hundred makes cells far from all
    numbers likely: it would have bounds of 10^12, and no warning.
    """
    schema, total = histogram.schema, []
    for name, counts in zip(schema.incomplete, split_histogram(noisy, histogram.sizes)):
        if isinstance(schema[name], Numeric):
            total.append(counts[: part_sizes(schema[name], len(counts))[0] - 1])
            sd = sds[name] / column_weights(schema[name])[0]
    if len(total) < 2:
        return None
    found = octave_ranges(np.sum(total, axis=0, keepdims=True), sd * math.sqrt(len(total)))[0]
    return found or (N_OCTAVE_CELLS // 2,) * 2


def _outermost_cells(column, parts, noise_sd, n_columns, common):
    counts, first_sd = parts[0][:-1], noise_sd / column_weights(column)[0]
    if isinstance(column, Datetime):
        return _outermost_years(counts, first_sd, n_columns)
    cells = octave_ranges(counts[None], first_sd, n_columns, common, alike=False)[0]
    absent, zero = parts[0][-1] > _CLEAR * first_sd, len(counts) // 2
    if cells is None and not absent:
        return None
    signs = parts[1], noise_sd / column_weights(column)[1], n_columns, common
    found = with_hidden_signs(cells or (zero, zero), counts, first_sd, *signs)
    # of results that few rows have, a sign may stand out where no octave does
    return None if cells is None and found == (zero, zero) else found


def _outermost_years(counts, noise_sd, n_columns):
    """Return the first and last cell of the years that the rows are in, or None if the noise hides them.

    Rows are spread over many years, while numbers lie in few octaves: the cells are judged together.
    """
    if noise_sd == 0:
        return outermost_bins(counts, noise_sd)
    occupied = occupied_cells(counts, np.ones(len(counts)), noise_sd, n_columns)
    likely = np.flatnonzero(occupied > 0.5)
    return widened(likely[0], likely[-1], occupied > _MAYBE_OCCUPIED) if likely.size else None


def _with_resolution(column, counts, noise_sd, declared=()):
    """Give a column the coarsest resolution that its released counts show; leave it as it is where they do not tell.

    A resolution that does not have all `declared` values would round them, or refuse them after the charge.
    """
    coarse, size = np.cumsum(counts)[:-1], np.arange(1, len(counts))
    finer = counts.sum() - coarse  # rows that need a finer resolution, for each resolution
    hidden = _FINER * counts.sum() + _FINER_SDS * noise_sd * np.sqrt(size[::-1])
    clear = coarse > np.maximum(finer, 0.0) + _COARSER_SDS * noise_sd * np.sqrt(size)
    clear |= counts.sum() > _CLEAR * noise_sd
    fits = [r for r, fit in zip(resolutions_of(column), clear & (finer <= hidden)) if fit and _has(column, r, declared)]
    if not fits:
        return column
    resolution = fits[0]
    if isinstance(column, Datetime):
        return replace(column, resolution=resolution)
    return replace(column, step=1) if resolution == 0 else replace(column, decimals=resolution)


def _has(column, resolution, declared):
    """Whether a column of this resolution has the declared values."""
    if isinstance(column, Datetime):
        moments = pd.to_datetime(declared).to_numpy(dtype="datetime64[us]").astype(np.int64)
        return not (moments % unit_microseconds(replace(column, resolution=resolution))).any()
    return all(round(float(value), resolution) == value for value in declared)


def _with_bounds(column, outermost, declared=()):
    return _bounded(
        column, (_year_bounds if isinstance(column, Datetime) else _octave_bounds)(column, outermost), declared
    )


def _bounded(column, bounds, declared):
    column = replace(column, bounds=bounds)
    if column.whole or column.decimals is not None:
        return column
    written = max(map(written_decimals, declared), default=0)
    if written > MOST_WRITTEN:  # a computed value, which is kept as it is
        return column
    return replace(column, decimals=max(2, 3 - math.floor(math.log10(bounds[1] - bounds[0])), written))


def _octave_bounds(column, outermost):
    lowest, highest = DEFAULT_BOUNDS["numeric"] if outermost is None else _octaves(outermost)
    # A first bin far below the last is a gap that only thin bins left: zero costs little and clips nothing.
    if 0 < lowest <= highest / _GAP:
        lowest = 0.0
    elif 0 > highest >= lowest / _GAP:
        highest = 0.0
    elif lowest < 0 and -lowest <= _TINY_SIDE * highest:
        lowest = 0.0
    elif highest > 0 and highest <= _TINY_SIDE * -lowest:
        highest = 0.0
    if column.whole:
        # bins hold their edge nearer to zero, not the other one
        lowest = np.floor(lowest) + 1 if lowest < 0 else np.ceil(lowest)
        highest = np.ceil(highest) - 1 if highest > 0 else np.floor(highest)
    return _bounds_of(column, lowest, highest)


def _octaves(outermost):
    return octave_edges(outermost[0])[0], octave_edges(outermost[1])[1]


def _bounds_of(column, lowest, highest):
    """Bounds of a column, within what its dtype holds and around its spikes, from a range in its steps."""
    smallest, largest = _range_in_steps(column)
    lowest, highest = max(lowest, smallest), min(highest, largest)
    if lowest >= highest:  # where 1 alone is seen, 0 is likelier than 2
        lowest, highest = (lowest, lowest + 1) if lowest < largest and lowest != 1 else (highest - 1, highest)
    if column.step is not None:
        lowest, highest = rounded_to((lowest * column.step, highest * column.step), column.step).tolist()
    spikes = column.spikes or (lowest,)
    lowest, highest = min(lowest, spikes[0]), max(highest, spikes[-1])  # which are declared values of the column
    return (int(lowest), int(highest)) if column.integer else (float(lowest), float(highest))


def _range_in_steps(column):
    """Range of a column's dtype, in steps where it has them: those that float64 holds."""
    smallest, largest = dtype_range(column.dtype)
    if not column.whole:
        return smallest, largest
    step = column.step or 1
    most = MAX_INTEGER // step if column.integer else MAX_INTEGER
    low, high = math.ceil(max(smallest / step, -most)), math.floor(min(largest / step, most))
    return low, high


def _year_bounds(column, outermost):
    if outermost is None:
        return DEFAULT_BOUNDS["datetime"]
    first, last = outermost
    low = f"{YEARS[first]}-01-01"
    if "[ns" in str(column.dtype):  # which begins in the decade of 1670: what is before may be full by noise alone
        begin = int(np.searchsorted(YEARS, _NANOSECONDS, side="right")) - 1
        first, last = max(first, begin), max(last, begin)
        low = f"{_NANOSECONDS}-09-22" if first == begin else f"{YEARS[first]}-01-01"
    return low, f"{YEARS[last + 1] - 1}-12-31T23:59:59.999999"


# ---- what the noise hides -------------------------------------------------------------------------------------------
def _shows_numbers(column, parts, noise_sd):
    """Whether the counts of signs show that a column has numbers, also where each octave has too few of them."""
    return isinstance(column, Numeric) and parts[1].sum() > _sure_sum(column, noise_sd)


def _sure_sum(column, noise_sd):
    return _HIDDEN_ABOVE * math.sqrt(2) * noise_sd / column_weights(column)[1]


def _hidden_rows(column, noise_sd, delta, n_selected, unit):
    """Rows that the noise hides about as often as not: those with a number, or of one category or year; public."""
    if noise_sd == 0:
        return 1.0
    if isinstance(column, Numeric):
        return _sure_sum(column, noise_sd)
    if isinstance(column, Categorical):
        return selection_threshold(noise_sd / column_weights(column)[-1], delta, n_selected, unit)
    return _YEAR_ABOVE * noise_sd / column_weights(column)[0]


class Unlearned:
    """Columns of which the noise hides the bounds or all categories, by released counts alone: for one warning.

    `expects_categories`, `expects_relations`: False where a warning before the charge, by public facts, has said that
    the noise hides them.
    `constructed`: columns that constraints construct from others, which decide about their missing values.
    `targets`: columns that the model is conditional on.
    """

    def __init__(self):
        self._columns, self._missing, self.constructed, self.targets = {}, {}, (), ()
        self.expects_categories = self.expects_relations = True

    def __bool__(self):
        return bool(self._columns)

    def add(self, column, hidden_rows):
        """Note a column.

        `hidden_rows`: where the released counts clearly show missing values, and nothing else: the number of rows with
            values that the noise may hide. Else None.
        """
        if hidden_rows is not None or self.expects_categories or not isinstance(column, Categorical):
            self._columns[column.name] = column
        if hidden_rows is not None:
            self._missing[column.name] = hidden_rows

    def forget(self, names):
        """Leave out columns that are counted once more."""
        for name in names:
            self._columns.pop(name, None)
            self._missing.pop(name, None)

    @property
    def empty(self):
        """Names of the columns of numbers and dates of which the released counts show missing values alone.

        Of categories, the tables say how many rows have a value that is not among the released ones.
        """
        columns = (self._columns[name] for name in self._missing if name not in self.constructed)
        return tuple(c.name for c in columns if not isinstance(c, Categorical) and c.missing)

    def warn(self, also=None):
        """Warn of them, and of what `also` says."""
        if self or also:
            warn_user("; ".join([*self._texts(), *([also] if also else [])]))

    def _texts(self):
        """What is lost, in words, and what to do about it."""
        hidden = [name for name in self._columns if name not in self._missing]
        if targets := [name for name in hidden if name in self.targets]:
            dtype = self._columns[targets[0]].dtype if len(self.targets) == 1 else None
            yield hidden_classes(", ".join(map(repr, targets)), dtype, len(self.targets))
        hidden = [name for name in hidden if name not in self.targets]
        if hidden:
            texts = [name for name in hidden if isinstance(self._columns[name], Categorical)]
            yield (
                f"too few rows or too little budget to learn the bounds or categories of "
                f"{listed(hidden, _NAMED)}: declare them, if they are public"
                + (
                    f". In {listed(texts, _NAMED)} no value is shared by enough rows: drop a column of unique values "
                    "(ids, free text), which cannot be released privately"
                    if texts
                    else ""
                )
            )
        if self._missing:
            absent = [name for name in self._columns if name in self._missing]
            numbers = "; numbers and dates are missing in all synthetic rows" if self.empty else ""
            if numbers and self.constructed:
                numbers += ", and columns that constraints construct from them are lost"
            yield (
                f"of {listed(absent, _NAMED)} the released counts show missing values and nothing else: drop the "
                "column if all its values are missing, else declare its bounds or categories, if they are public. "
                f"Values of fewer than {max(self._missing.values()):.0f} rows cannot be distinguished from noise "
                f"here{numbers}"
            )


def hidden_classes(name, dtype, n_targets=1):
    """What is lost where the noise hides every class of a target, and what to do about it.

    `dtype`: name of that of the target; None where it can be no quantity.
    """
    advice = "declare classes=" if n_targets == 1 else "declare their categories in the schema"
    if dtype is not None and pd.api.types.is_integer_dtype(output_dtype(dtype)):
        advice = (
            'whole numbers are taken for classes: if they are a quantity, fit again with target_type="numeric", or '
            f"give them as floats (another fit is charged again); else {advice}"
        )
    advice = advice[0].upper() + advice[1:]
    return f"the noise hides every class of {name}, so the model has a single class. {advice}, if they are public"


def _warn_of_the_end(beyond):
    """Warn, from released counts alone, of columns at the end of the grid."""
    if beyond:
        whole = [column.name for column in beyond if isinstance(column, Numeric) and column.integer]
        times = ""
        if whole:
            times = f". Of nanoseconds since 1970, say, make dates: pandas.to_datetime(X[{whole[0]!r}], unit='ns')"
        warn_user(
            f"the rows reach the end of the range in which the fit looks for bounds (numbers to {LARGEST:.2g}, dates "
            f"from {YEARS[0]} to {YEARS[-1] - 1}), and values beyond it are clipped: declare the bounds of "
            f"{', '.join(repr(column.name) for column in beyond)}{times}"
        )
