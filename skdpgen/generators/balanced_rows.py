"""Rows whose counts are nearer to what a model expects than those of independent draws.

Independent draws of rows miss the expected count of a cell by about its square root. Here two rows that are as likely
to have each other's level of a column, or class, exchange them if this brings the counts of their cells nearer to what
the model expects. Exchanges change no one-way count, so a few rows draw a level again first. Each row keeps its
distribution, or very nearly. All of this is post-processing.
"""

from __future__ import annotations

import itertools

import numpy as np

from ..tabular._binning import stratified_uniforms

# Pairs of rows that are judged together, from so many rows on twice as many, and the share of them that may exchange,
# those that gain most: many rows that enter a cell together would overshoot.
_TOGETHER, _MANY_ROWS, _EXCHANGING = 64, 10_000, 0.25
# Rounds over all columns, and over all rows for classes.
_ROUNDS_OF_LEVELS, _ROUNDS_OF_CLASSES = 2, 8
# Expected count, or variance of the count of a class, from which a cell takes part: the nearest whole number to the
# counts of rarer cells is most often 0, and they would lose rows.
_LEAST = 4.0
# Rows from which draws are balanced.
_FEWEST_ROWS = 500
# Rows that exchange classes are among so many neighbours in the order of their probabilities, at most, and of few rows
# this share of them: the less the probabilities of two rows differ, the better each row keeps its own.
_NEIGHBOURS, _SHARE_OF_NEIGHBOURS = 64, 0.02
# Most rows that draw a level again to bring one-way counts to the expected ones, and the parts in which they do.
_DRAWN_AGAIN, _PARTS_OF_DRAWN = 4096, 8
# Most cells of rows that exchange in a round, and that are counted; most entries of the two-way tables, and
# multiplications for the expected ones: each takes less than a second. Beyond the last three, levels do not exchange.
_MOST_EXCHANGED, _MOST_COUNTED, _MOST_ENTRIES, _MOST_PRODUCTS = 1.5e7, 1e8, 1 << 22, 2e10


# ---- levels of a mixture of products -------------------------------------------------------------------------------
def draw_levels(p, points, uniforms):
    """Level of each row in one column: the first at which the distribution function of its point exceeds a number.

    `p` (n_points, n_levels): weight of each level. `points` (n_rows,): of each row. `uniforms` (n_rows,): in [0, 1).
    """
    cumulative = np.cumsum(p, axis=1, dtype=np.float64)
    cumulative /= np.maximum(cumulative[:, -1:], 1e-300)
    # one search over all points: the distribution function of the next one begins where this one ends
    edges = (cumulative + np.arange(len(p))[:, None]).ravel()
    found = np.searchsorted(edges, points + uniforms, side="right") - points * p.shape[1]
    return np.clip(found, 0, p.shape[1] - 1)


def balanced_levels(codes, points, p, n_levels, rng):
    """Bring one-way and two-way tables of rows nearer to what a mixture of products expects.

    A few rows draw a level again, for the one-way counts. Then rows of the same point exchange levels.

    `codes` (n_rows, n_blocks): levels; the columns are drawn independently given the points.
    `points` (n_rows,): support point of each row. `p` (n_points, n_columns_encoded): weight of each level there.
    Returns an array of the shape of `codes`.
    """
    n, n_blocks = codes.shape
    if n < _FEWEST_ROWS:
        return codes
    levels, starts = codes.copy(), np.concatenate([[0], np.cumsum(n_levels)])
    columns = [slice(*ends) for ends in itertools.pairwise(starts)]
    share = np.concatenate([p[:, own] / np.maximum(p[:, own].sum(axis=1, keepdims=True), 1e-30) for own in columns], 1)
    of_points = np.bincount(points, minlength=len(p))
    for i, own in enumerate(columns):
        _draw_again(levels[:, i], share[:, own], points, of_points, rng)
    width = int(starts[-1])
    affordable = width**2 <= min(_MOST_ENTRIES, _MOST_PRODUCTS / len(p)) and n * n_blocks**2 <= _MOST_COUNTED
    if n_blocks < 2 or of_points.max() < 2 or not affordable:
        return levels
    expected = share.T @ (share * of_points[:, None])
    for own in columns:
        expected[own, own] = 0.0
    if expected.max() < _LEAST:
        return levels
    weight, cells = _weights(expected), levels + starts[:-1]
    rounding = np.triu(_rounding(rng, expected.shape))
    excess = _counts(levels, columns) - expected - rounding - np.triu(rounding, 1).T
    excess = (weight * excess).astype(np.float32)
    for i in np.concatenate([rng.permutation(n_blocks) for _ in range(_ROUNDS_OF_LEVELS)]):
        own = columns[i]
        pairs = _pairs(points, rng, int(_MOST_EXCHANGED / n_blocks**2 / 2))
        excess[own] = _exchanged(levels[:, i], cells, pairs, excess[own], weight[own])
        excess[:, own] = excess[own].T
        cells[:, i] = levels[:, i] + starts[i]
    return levels


def _draw_again(levels, share, points, of_points, rng):
    """Draw levels again, in place, where this brings the counts of levels nearer to the expected ones."""
    expected = of_points @ share
    often = expected >= _LEAST
    excess = np.bincount(levels, minlength=len(expected)) - expected - _rounding(rng, len(expected))
    rows = rng.permutation(len(levels))[:_DRAWN_AGAIN]
    new = draw_levels(share, points[rows], rng.random(len(rows)))
    for row, level in zip(*(np.array_split(part, _PARTS_OF_DRAWN) for part in (rows, new))):
        out, into = np.round(excess), np.round(-excess)
        able = often[levels[row]] & often[level] & (out[levels[row]] > 0) & (into[level] > 0)
        row, level = row[able], level[able]
        old = levels[row]
        able = (_rank(old) < out[old]) & (_rank(level) < into[level])
        row, level, old = row[able], level[able], old[able]
        np.subtract.at(excess, old, 1)
        np.add.at(excess, level, 1)
        levels[row] = level


def _rank(values):
    """How many equal values stand before each one."""
    order = np.argsort(values, kind="stable")
    ordered, rank = values[order], np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return rank


def _counts(levels, columns):
    """Two-way counts, shape (n_columns_encoded, n_columns_encoded); 0 within a column."""
    counts, levels = np.zeros((columns[-1].stop, columns[-1].stop)), np.ascontiguousarray(levels.T)
    for (i, one), (j, other) in itertools.combinations(enumerate(columns), 2):
        sides = one.stop - one.start, other.stop - other.start
        found = np.bincount(levels[i] * sides[1] + levels[j], minlength=sides[0] * sides[1]).reshape(sides)
        counts[one, other], counts[other, one] = found, found.T
    return counts


# ---- classes -------------------------------------------------------------------------------------------------------
def balanced_classes(cells, chances, rng):
    """Draw classes from their probabilities, with counts near what these expect.

    `cells` (n_rows, n): for each row, cells in which the rows of each class are counted: different whole numbers.
    `chances` (n_rows, n_classes): probability of each class.
    Returns an int array of shape (n_rows,).
    """
    (n, k), width = chances.shape, int(cells.max(initial=0)) + 1
    # rows of nearly the same probabilities are neighbours
    likeliest = np.argsort(-chances, axis=1, kind="stable")[:, :2]
    order = np.lexsort((chances.max(axis=1), *likeliest.T[::-1]))
    near = 2 * round(np.clip(_SHARE_OF_NEIGHBOURS * n, 4, _NEIGHBOURS) / 2)
    drawn = np.empty(n, dtype=np.int64)
    drawn[order] = _spread_classes(chances[order], near, rng)
    if n < _FEWEST_ROWS or k < 2 or k * width > _MOST_ENTRIES:
        return drawn
    excess, variance = (np.empty((k, width)) for _ in range(2))
    for c, chance in enumerate(chances.T):
        excess[c] = _sums(cells, (drawn == c) - chance, width)
        variance[c] = _sums(cells, chance * (1 - chance), width)
    weight = _weights(variance)
    excess = (weight * (excess - _rounding(rng, excess.shape))).astype(np.float32)
    for _ in range(_ROUNDS_OF_CLASSES):
        group = np.empty(n, dtype=np.int64)
        group[order] = (np.arange(n) + rng.integers(near)) // near
        pairs = _pairs(group, rng)
        # neighbours have nearly the same probabilities; what they differ by decides how often they exchange
        (one, other), (mine, theirs) = pairs.T, drawn[pairs].T
        exchanged, now = chances[one, theirs] * chances[other, mine], chances[one, mine] * chances[other, theirs]
        excess = _exchanged(drawn, cells, pairs[rng.random(len(pairs)) * now < exchanged], excess, weight)
    return drawn


def _spread_classes(chances, near, rng):
    """Classes of rows in the order of their probabilities, by uniform numbers that are stratified among `near` rows."""
    uniforms = stratified_uniforms(np.arange(len(chances)) // near, rng)
    cumulative = np.cumsum(chances, axis=1)
    return np.minimum((cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(axis=1), chances.shape[1] - 1)


def _sums(cells, of_rows, width):
    """Sum of a number of each row over the rows of each cell."""
    return np.bincount(cells.ravel(), np.repeat(of_rows, cells.shape[1]), width)


# ---- both ----------------------------------------------------------------------------------------------------------
def _rounding(rng, shape):
    """What is added to expected counts, so that each of the nearest whole numbers is drawn as often as it should be."""
    return rng.random(shape) - 0.5


def _weights(variance):
    return np.where(variance >= _LEAST, 1 / np.maximum(variance, _LEAST), 0.0).astype(np.float32)


def _pairs(group, rng, most=None):
    """At most so many random pairs of rows of the same group, shuffled: int array (n_pairs, 2), no row in two of them.

    Of many rows (eight or more for each wanted pair), at most half are looked at.
    """
    rows = None if most is None or len(group) < 8 * most else rng.permutation(len(group))[: 4 * most]
    of_rows = group if rows is None else group[rows]
    order = np.argsort(of_rows + rng.random(len(of_rows)), kind="stable")
    pairs = order[: len(order) // 2 * 2].reshape(-1, 2)
    pairs = rng.permutation(pairs[of_rows[pairs[:, 0]] == of_rows[pairs[:, 1]]])[:most]
    return pairs if rows is None else rows[pairs]


def _exchanged(levels, cells, pairs, excess, weight):
    """Let pairs of rows exchange their levels where the weighted squared excess falls; return the excess after it.

    `levels` (n_rows,): changed in place. `cells` (n_rows, n): of each row, those that its level is counted in.
    `pairs` (n_pairs, 2): no row is in two of them.
    `excess`, `weight` (n_levels, n_cells): excess of each level in each cell, times its weight.
    """
    pairs = pairs[levels[pairs[:, 0]] != levels[pairs[:, 1]]]
    width, weight = excess.shape[1], weight.ravel()
    # one look-up finds both: a complex number is two that lie side by side
    both = (excess.ravel() + 1j * weight).astype(np.complex64)
    excess = both.real
    together = 2 * _TOGETHER if len(levels) >= _MANY_ROWS else _TOGETHER
    for at in range(0, len(pairs), together):
        pair = pairs[at : at + together]
        own, level = cells[pair], levels[pair][:, :, None] * width
        left, entered = own + level, own + level[:, ::-1]
        apart = own[:, 0] != own[:, 1]  # in a cell that they share, nothing changes
        of_left, of_entered = both.take(left), both.take(entered)
        gain = 2 * (of_left.real - of_entered.real) - of_left.imag - of_entered.imag
        gain = (gain.sum(axis=1) * apart).sum(axis=1)
        taking = np.argsort(-gain, kind="stable")[: max(1, int(_EXCHANGING * len(pair)))]
        taking = taking[gain[taking] > 0]
        apart = np.broadcast_to(apart[taking, None], left[taking].shape)
        left, entered = left[taking][apart], entered[taking][apart]
        np.subtract.at(excess, left, weight[left])
        np.add.at(excess, entered, weight[entered])
        levels[pair[taking]] = levels[pair[taking, ::-1]]
    return excess.reshape(-1, width)
