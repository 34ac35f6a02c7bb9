"""One-way and two-way tables of columns of rows, or of units, in one query, in which no part is measured twice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from .._types import BoundedSum
from ._contrasts import Contrasts, Residuals
from ._histogram import LATTICE, row_weights

__all__ = [
    "ResidualPlan",
    "by_weight",
    "bytes_of_plan",
    "likeness",
    "one_hot_moments",
    "residual_plan",
    "size_starts",
    "unit_pairs",
    "unit_plan",
    "unit_tables",
    "unpack_one_hot_moments",
]

# Steps of the lattice are added up in int64.
_MOST_STEPS = 1 << 62
# Lattice of whole rows: fine enough for noise of less than a row.
_ROW_LATTICE = 2.0**-10
# Levels per column below which a dense product of the encoded rows is faster than a sparse one.
_DENSE = 20
# Rows and entries of a chunk.
_EXACT_ROWS = 1 << 20
_MOST_ENTRIES = 1 << 24
# Rounds of the search for the weights, and the change at which it ends.
_ROUNDS, _SETTLED = 100, 1e-6
# Parts of all columns together from which ordered levels are taken for categories, which have one part: time and memory
# of the search grow with the square.
_MOST_PARTS = 2_000
# Parts of 16 bins and missing values; matrices of all parts that are held at a time.
_PARTS_OF_BINS, _COPIES = 5, 12
# Slopes of tangents that are tried for the product of two rows.
_SLOPES = 101
# Numbers of ordered levels to which a two-way table is reduced in the error that is minimised, beside the table itself.
_COARSE = (4, 8, 16, 32)
# Weight of the table itself, where there are coarser ones, over that of each of these.
_FINE = 0.2
# Part of the squared norm of a row that is of the products of sides: the noise of one-way tables grows by 5 %.
_SIDES = 0.1
# Levels of the number of rows of a unit; up to so many rows each number is a level.
_MOST_SIZES = 24


@dataclass(frozen=True, eq=False)
class ResidualPlan:
    """What is public of the query of `one_hot_moments`: its contrasts, weights and sensitivity.

    Parameters
    ----------
    contrasts : Contrasts
    pairs : bool
        Whether there are two-way tables.
    classes : bool
        Whether there may be more than one class.
    inverse : tuple of arrays
        Squared weight of the count, of every part of every block, shape (n_parts,), and of every two parts, shape
        (n_parts, n_parts), zero within a block; the parts of all blocks side by side. Where there are sides, the last
        is that of the sides of every two blocks, shape (n_blocks, n_blocks).
    add_or_remove_one, replace_one : float
    sides : array of int of shape (n_columns_encoded,), default=None
        Side of the middle of its column on which each level is, -1 or 1; 0 of levels, and columns, without one. The
        products of the sides of two columns are then measured in place of their table.
    """

    contrasts: Contrasts
    pairs: bool
    classes: bool
    inverse: tuple
    add_or_remove_one: float
    replace_one: float
    sides: np.ndarray | None = None

    @property
    def weights(self):
        """Weight of every entry of the query, contrasts in whole numbers."""
        part, norms = self._parts, self.contrasts.norms
        count, one_way, both = self.inverse
        found = [[count], one_way[part] / norms**2]
        if self.pairs:
            rows, columns = self.contrasts.across
            found.append(both[part[rows], part[columns]] / (norms[rows] * norms[columns]) ** 2)
        elif self.sides is not None:
            found.append(both[self.across])
        return np.sqrt(np.concatenate(found))

    def noise_sd(self, scale):
        """Noise of the parts where that of the weighted query is `scale`: Residuals of one class."""
        count, one_way, both = (scale / np.sqrt(np.where(part > 0, part, np.inf)) for part in self.inverse)
        part = self._parts
        pairs = both[np.ix_(part, part)][None] if self.pairs else None
        sides = both[None] if self.sides is not None else None
        return Residuals(np.array([count]), one_way[part][None], pairs, sides)

    @property
    def across(self):
        """Rows and columns of what is measured of two blocks, each pair once: of contrasts, or of sides."""
        if self.sides is None:
            return self.contrasts.across if self.pairs else np.zeros((2, 0), dtype=np.intp)
        return np.nonzero(np.triu(self.inverse[2]))

    @property
    def _parts(self):
        """Part of every contrast, over all blocks."""
        return (np.cumsum(self.contrasts.n_parts) - self.contrasts.n_parts)[self.contrasts.block] + self.contrasts.part


def one_hot_moments(codes, plan, y_codes=None, n_classes=1, *, unit_sizes=None):
    """Measure, in each class, how the rows are spread over the levels of each column and of each two columns.

    Parameters
    ----------
    codes : array of int of shape (n_samples, n_blocks)
        Level of each column; a code that is no level of its column counts nowhere in it.
    plan : ResidualPlan
        Public; made for more than one class if there are such.
    y_codes : array of int of shape (n_samples,), default=None
        Class of each row; rows with a code outside ``0 .. n_classes - 1`` are left out. None: all in class 0.
    n_classes : int, default=1
    unit_sizes : array of int of shape (n_samples,), default=None
        As in `joint_histogram`.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes, p), in steps of the lattice: count, contrasts of the one-way tables, contrasts of
        the two-way tables (upper block triangle), or sums of the products of sides. The tables are an orthogonal map of
        the contrasts. The bounds are those of the plan.
    """
    codes = np.asarray(codes)
    contrasts, n_levels = plan.contrasts, plan.contrasts.n_levels
    n, n_blocks = codes.shape
    if n_levels.shape != (n_blocks,):
        raise ValueError(f"the plan is one of {len(n_levels)} columns; got {n_blocks}")
    if n_classes > 1 and not plan.classes:
        raise ValueError(f"the plan is one of a single class; got {n_classes}")
    lattice = _ROW_LATTICE if unit_sizes is None else LATTICE
    most = int(_MOST_STEPS * lattice) // contrasts.largest**2
    if n > most:
        raise ValueError(f"at most {most} rows can be counted exactly; got {n}")
    y_codes = np.zeros(n, dtype=np.int64) if y_codes is None else np.asarray(y_codes)
    rows, columns = plan.across
    width = len(contrasts.norms)
    value = np.zeros((n_classes, 1 + width + rows.size), dtype=np.int64)
    for k in range(n_classes):
        of_class = y_codes == k
        for mine, weight in by_weight(codes[of_class], None if unit_sizes is None else unit_sizes[of_class]):
            one_way, both = _tables(mine, n_levels, pairs=plan.pairs)
            steps = round(weight / lattice)
            value[k, 0] += steps * len(mine)
            value[k, 1 : 1 + width] += steps * contrasts.of_levels(_whole(one_way))
            if plan.sides is not None:
                value[k, 1 + width :] += steps * _products_of_sides(mine, n_levels, plan.sides)[rows, columns]
            elif rows.size:
                both = contrasts.of_levels(contrasts.of_levels(_whole(both)).T)
                value[k, 1 + width :] += steps * both[rows, columns]
    return BoundedSum(
        value,
        add_or_remove_one=plan.add_or_remove_one,
        replace_one=plan.replace_one,
        weights=plan.weights,
        lattice=lattice,
        weighted=unit_sizes is not None,
    )


def by_weight(codes, unit_sizes):
    """Yield the rows of one weight, and it: whole numbers of them are counted, and weighted afterwards."""
    if unit_sizes is None:
        yield codes, 1.0
        return
    for size in np.unique(unit_sizes):
        yield codes[unit_sizes == size], float(row_weights(size))


def unpack_one_hot_moments(packed, plan):
    """Return what was released in orthonormal contrasts.

    Parameters
    ----------
    packed : array of shape (n_classes, p)
    plan : ResidualPlan

    Returns
    -------
    Residuals
        `pairs` and `sides` are None where they were not measured.
    """
    packed, norms = np.asarray(packed, dtype=np.float64), plan.contrasts.norms
    count, one_way = packed[:, 0], packed[:, 1 : 1 + len(norms)] / norms
    rows, columns = plan.across
    if plan.sides is not None:
        sides = np.zeros((len(packed), *plan.inverse[2].shape))
        sides[:, rows, columns] = packed[:, 1 + len(norms) :]
        return Residuals(count, one_way, None, sides + sides.transpose(0, 2, 1))
    if not plan.pairs:
        return Residuals(count, one_way, None)
    pairs = np.zeros((len(packed), len(norms), len(norms)))
    pairs[:, rows, columns] = packed[:, 1 + len(norms) :] / (norms[rows] * norms[columns])
    return Residuals(count, one_way, pairs + pairs.transpose(0, 2, 1))


def _whole(counts):
    return np.asarray(np.rint(counts.toarray() if sparse.issparse(counts) else counts), dtype=np.int64)


def _tables(codes, n_levels, pairs, *, chunk_rows=None):
    """Exact counts of levels, and of pairs of levels (None without `pairs`), of the rows of one class."""
    width = int(n_levels.sum())
    one_way, both = np.zeros(width), np.zeros((width, width)) if pairs else None
    dense = width < _DENSE * len(n_levels)
    size = chunk_rows or max(min(_MOST_ENTRIES // max(width, 1), _EXACT_ROWS), 256)
    for at in range(0, len(codes), size):
        encoded = _encode(codes[at : at + size], n_levels)
        one_way += np.asarray(encoded.sum(axis=0)).ravel()
        if pairs and dense:  # whole numbers below 2^24 are exact in single precision, in whatever order they are added
            part = encoded.astype(np.float32).toarray()
            both += part.T @ part
        elif pairs:
            both += encoded.T @ encoded
    return one_way, both


def _products_of_sides(codes, n_levels, sides):
    """Sums over the rows of one class of the products of the sides of two columns, exact."""
    total = np.zeros((len(n_levels), len(n_levels)))
    offsets = np.cumsum(n_levels) - n_levels
    size = max(_MOST_ENTRIES // max(len(n_levels), 1), 1)
    for at in range(0, len(codes), size):  # whole numbers below 2^24 are exact in single precision
        part = codes[at : at + size]
        inside = (part >= 0) & (part < n_levels)
        here = np.where(inside, sides[np.where(inside, part + offsets, 0)], 0).astype(np.float32)
        total += here.T @ here
    return _whole(total)


def _encode(codes, n_levels):
    """Sparse one-hot matrix of shape (n_samples, sum(n_levels))."""
    inside = (codes >= 0) & (codes < n_levels)
    offsets = np.concatenate([[0], np.cumsum(n_levels)[:-1]])
    indices = (codes + offsets)[inside]
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
    return sparse.csr_matrix((np.ones(indices.size), indices, pointer), shape=(len(codes), int(n_levels.sum())))


# ---- weights and sensitivity ---------------------------------------------------------------------------------------
def residual_plan(n_levels, bins=None, n_classes=1, *, pairs=True, importance=None, kept=0.1, sides=None):
    """Choose the weights of the parts of the tables, and prove the sensitivity of their sum.

    Parameters
    ----------
    n_levels : sequence of int of length n_blocks
        Public.
    bins : sequence of int of length n_blocks, default=None
        Levels of each column that are ordered, which come first. Public; None is none.
    n_classes : int, default=1
    pairs : bool, default=True
        Whether there are two-way tables.
    importance : array of shape (n_blocks,), default=None
        Public, positive weights of the error in tables of each column, multiplied over the columns of a table. None
        is 1 for all.
    kept : float in (0, 1], default=0.1
        Share of the variance of the interactions of two columns that a model of the tables keeps: a fit averages
        over many of them, and not over the one-way tables.
    sides : array of int of shape (n_columns_encoded,), default=None
        Side of the middle of its column on which each level is, -1, 0 or 1: public. With it, the products of the sides
        of two columns are measured in place of the two-way tables, which `pairs` must leave out then. They get _SIDES
        of the squared norm of a row, and the one-way tables all the rest as if there were no more.

    Returns
    -------
    ResidualPlan

    Notes
    -----
    A row is a vector of the contrasts at its levels: 1; u_i(x_i); u_i(x_i) u_j(x_j). With squared weights v its squared
    norm is ``v_0 + sum v_i,a l_i,a(x_i) + sum v_ia,jb l_i,a(x_i) l_j,b(x_j)``, where l_i,a(x) is the sum over the
    contrasts of part a of their squares at level x; over all parts of a column it is 1 - 1/m. The bound takes for each
    block the level at which its parts, and half of its parts with each other block, are largest. The side of a level,
    s_i(x_i), is one more function of it, with weights of products alone: all that follows holds for it as well.

    Two rows of different classes differ by two orthogonal vectors. The counts of two rows of one class cancel, and the
    other products of their parts may be negative. Let g be the vector of all G_i,a = <u_i,a(x_i), u_i,a(x'_i)>. The
    two-way parts are g' V g / 2 with V zero within blocks. For any block-diagonal D and vector w that make V + D - w w'
    positive semi-definite this is at least (w' g)^2 / 2 - g' D g / 2, and so at least t w' g - t^2 / 2 - g' D g / 2 for
    any number t: a sum over blocks, of which each is least at some pair of levels.

    At a code outside its column all contrasts, and the side, are zero. Its products with any level are zero: they are
    among those over which the least is taken.
    """
    n_levels = np.asarray(n_levels, dtype=np.int64)
    importance = np.ones(len(n_levels)) if importance is None else np.asarray(importance, dtype=np.float64)
    if importance.shape != n_levels.shape or not (np.isfinite(importance) & (importance > 0)).all():
        raise ValueError("importance needs one positive number for each column")
    if not 0 < kept <= 1:
        raise ValueError(f"kept must be in (0, 1]; got {kept!r}")
    contrasts, classes = Contrasts(n_levels, np.zeros_like(n_levels) if bins is None else bins), n_classes > 1
    if len(n_levels) * contrasts.n_parts.max(initial=1) > _MOST_PARTS:
        contrasts = Contrasts(n_levels, np.zeros_like(n_levels))
    if sides is not None:
        sides = np.asarray(sides, dtype=np.int64)
        if pairs or sides.shape != (n_levels.sum(),) or not np.isin(sides, (-1, 0, 1)).all():
            raise ValueError("sides take the place of two-way tables, and need -1, 0 or 1 for each level")
    pairs = bool(pairs and np.count_nonzero(contrasts.n_parts) > 1)
    blocks = _Blocks(contrasts, sides)
    relative = importance / np.exp(np.mean(np.log(importance))) if len(importance) else importance
    if sides is None:
        inverse = _best_weights(blocks, classes, pairs, relative, kept)
    else:
        inverse = _weights_with_sides(blocks, classes, relative)
    added = _largest_norm(blocks, inverse)
    alone = 2 * (added - _least_product(blocks, inverse))
    # at least as far as from a row that counts nowhere
    replaced = max(alone, added, 2 * added if classes else 0.0)
    return ResidualPlan(contrasts, pairs, classes, blocks.flat(inverse), added**0.5, replaced**0.5, sides)


def bytes_of_plan(n_columns):
    """Memory that `residual_plan` takes for so many columns, at most, of 16 bins and missing values."""
    parts = max(n_columns, min(_PARTS_OF_BINS * n_columns, _MOST_PARTS)) + n_columns  # the sides are one more
    return 8 * _COPIES * parts**2


class _Blocks:
    """The parts of each block, arrays over blocks of different sizes filled up with zeros.

    Attributes
    ----------
    functions : list of (array of shape (n_levels, n_functions), array of int of shape (n_functions,))
        For each block, its contrasts at each level, and its side where there are sides, and the part of each. The sides
        are the last part, which is not `present`: it has no one-way table.
    squares : array of shape (n_blocks, most levels, most parts)
        Sum of the squared contrasts of each part at each level.
    present : bool array of shape (n_blocks, most parts)
    cells : array of shape (n_blocks, most resolutions)
        Entries of the one-way table of each resolution, by its weight; the finest is the last.
    even : array of shape (n_blocks, most resolutions)
        Mean variance of an entry, of unit variance of the count.
    spread : array of shape (n_blocks, most resolutions, most parts)
        Mean variance of an entry, of unit variance of the contrasts of a part.
    """

    def __init__(self, contrasts, sides=None):
        self.contrasts, n = contrasts, len(contrasts.n_levels)
        self.has_sides = sides is not None
        n_parts = max(contrasts.n_parts.max(initial=0), 1) + self.has_sides
        self.functions = [(m, contrasts.part[contrasts.block == i]) for i, m in enumerate(contrasts.matrices)]
        if self.has_sides:
            of_block = np.split(sides, contrasts.level_starts[1:-1])
            self.functions = [
                (np.column_stack([matrix, side]), np.append(part, n_parts - 1))
                for (matrix, part), side in zip(self.functions, of_block)
            ]
        merged = [_resolutions(int(m), int(k)) for m, k in zip(contrasts.n_levels, contrasts.bins)]
        most = max(map(len, merged), default=1)
        self.squares = np.zeros((n, contrasts.n_levels.max(initial=1), n_parts))
        self.present = np.arange(n_parts) < contrasts.n_parts[:, None]
        self.level = np.arange(self.squares.shape[1]) < contrasts.n_levels[:, None]
        self.cells, self.even, self.spread = np.zeros((n, most)), np.ones((n, most)), np.zeros((n, most, n_parts))
        for i, ((matrix, part), codes) in enumerate(zip(self.functions, merged)):
            member = (part[:, None] == np.arange(n_parts)).astype(float)
            self.squares[i, : len(matrix)] = matrix**2 @ member
            for at, code in zip(range(most - len(codes), most), codes):
                size = code[-1] + 1
                sums = np.zeros((size, matrix.shape[1]))
                np.add.at(sums, code, matrix)
                self.cells[i, at] = size * (_FINE if code is codes[-1] and len(codes) > 1 else 1.0)
                self.even[i, at] = np.mean((np.bincount(code) / len(matrix)) ** 2)
                self.spread[i, at] = (sums**2 @ member).mean(axis=0)
            self.cells[i] /= len(codes) - (1 - _FINE) * (len(codes) > 1)

    def flat(self, inverse):
        """Squared weights with the parts of all blocks side by side."""
        count, one_way, both = inverse
        at = self.present.ravel()
        size = at.size
        both = both[:, -1, :, -1] if self.has_sides else both.reshape(size, size)[np.ix_(at, at)]
        return float(count), one_way.ravel()[at], both


def _resolutions(n_levels, n_ordered):
    """Entry of each level in the coarser one-way tables of a block, and in the table itself."""
    coarse = [size for size in _COARSE if 4 <= size < n_ordered]
    rest = np.arange(n_levels - n_ordered)
    return [np.append(np.arange(n_ordered) * size // n_ordered, size + rest) for size in coarse] + [np.arange(n_levels)]


def _best_weights(blocks, classes, pairs, importance, kept):
    """Squared weights of count, parts and two parts, that minimise the mean total variation for one unit of cost.

    The mean absolute value of noise is proportional to its standard deviation, so the error of a table is its size
    times the root of the mean variance of its entries. Each round takes for each root its tangent: then the best
    variance of a part of cost p whose tangent is g is ``sqrt(p / g)``. The cost is that of a mean row; how often it is
    at each level is found along with the weights, so that rows at rare levels do not cost more than others.
    """
    n, n_parts = blocks.present.shape
    even, spread, cells = blocks.even, blocks.spread, blocks.cells * importance[:, None]
    finest = blocks.contrasts.n_levels * importance
    # the count is in all tables that hold the target
    of_count = float(n * n if classes else n) or 1.0
    off = ~np.eye(n, dtype=bool)
    both = (blocks.present[:, :, None, None] & blocks.present & off[:, None, :, None]) & pairs
    often = blocks.level / blocks.contrasts.n_levels[:, None]
    count, one_way, two_way = 1.0, np.ones((n, n_parts)), np.where(both, 1.0, 0.0)
    before = np.inf
    for _ in range(_ROUNDS):
        own = np.einsum("ird,id->ir", spread, one_way)
        alone = count * even[:, -1] + own[:, -1]
        tangent = finest / (2 * np.sqrt(np.maximum(alone, 1e-300)))
        of_one = tangent[:, None] * spread[:, -1]
        slope = of_count / (2 * count**0.5) + tangent @ even[:, -1]
        error = of_count * count**0.5 + finest @ np.sqrt(alone)
        if pairs:
            mean = np.einsum("ira,iajb->irjb", spread, kept * two_way)
            mean = np.einsum("irjb,jsb->irjs", mean, spread)
            mean += count * even[:, :, None, None] * even
            mean += own[:, :, None, None] * even + even[:, :, None, None] * own
            size = cells[:, :, None, None] * cells * off[:, None, :, None]
            error += (size * np.sqrt(mean)).sum() / 2
            tangent = size / (2 * np.sqrt(mean))
            slope += np.einsum("irjs,ir,js->", tangent, even, even) / 2
            of_one += np.einsum("irjs,ira,js->ia", tangent, spread, even)
            of_both = np.einsum("irjs,ira->iajs", tangent, spread)
            of_both = kept * np.einsum("iajs,jsb->iajb", of_both, spread)
        cost = np.einsum("ix,ixa->ia", often, blocks.squares)
        count = (1 / slope) ** 0.5
        one_way = np.sqrt(np.divide(cost, of_one, out=np.ones_like(cost), where=of_one > 0))
        total = 1 / count + (cost / one_way).sum()
        if pairs:
            of_two = np.where(both, cost[:, :, None, None] * cost, 0.0)
            two_way = np.sqrt(np.divide(of_two, of_both, out=np.zeros_like(of_two), where=both))
            total += np.divide(of_two, two_way, out=np.zeros_like(of_two), where=both).sum() / 2
        count, one_way, two_way = count * total, one_way * total, two_way * total
        inverse = _inverse(blocks, count, one_way, two_way, both)
        at_level = np.einsum("ixa,ia->ix", blocks.squares, inverse[1] + np.einsum("iajb,jb->ia", inverse[2], cost))
        often = often * np.sqrt(np.where(blocks.level, at_level, 0.0))
        often = np.where(blocks.level, np.maximum(often, 1e-12), 0.0)
        often /= often.sum(axis=1, keepdims=True)
        if abs(before - error) < _SETTLED * error:
            break
        before = error
    return inverse


def _weights_with_sides(blocks, classes, importance):
    """Squared weights of the one-way tables, and of the products of sides: all alike, but for the importance."""
    count, one_way, _ = _best_weights(_Blocks(blocks.contrasts), classes, False, importance, 1.0)
    one_way = np.pad(one_way, ((0, 0), (0, 1)))
    both = np.zeros((*one_way.shape, *one_way.shape))
    # the weights of least error at the same cost, where errors are weighted by the product of two importances
    has_side = importance ** (2 / 3) * blocks.squares[:, :, -1].any(axis=1)
    both[:, -1, :, -1] = np.outer(has_side, has_side) * ~np.eye(len(has_side), dtype=bool)
    norms = _largest_norm(blocks, (count, one_way, 0 * both)), _largest_norm(blocks, (0.0, 0 * one_way, both))
    if norms[1] == 0:
        return count, one_way, both
    own = (1 - _SIDES) / norms[0]
    return own * count, own * one_way, _SIDES / norms[1] * both


def _inverse(blocks, count, one_way, two_way, both):
    of_one = np.where(blocks.present, 1 / one_way, 0.0)
    return 1 / count, of_one, np.divide(1.0, two_way, out=np.zeros_like(two_way), where=both)


def _largest_norm(blocks, inverse):
    """Bound of the squared norm of a row: see `residual_plan`."""
    count, one_way, both = inverse
    total = float(count)
    for i, squares in enumerate(blocks.squares):
        here = blocks.level[i]
        mine = np.einsum("xa,ajb->xjb", squares[here], both[i])
        largest = np.where(blocks.level, np.einsum("xjb,jyb->xjy", mine, blocks.squares), 0.0).max(axis=2)
        total += float((squares[here] @ one_way[i] + largest.sum(axis=1) / 2).max(initial=0.0))
    return total


def _least_product(blocks, inverse):
    """Lower bound of the product of two rows of one class: see `residual_plan`."""
    count, one_way, both = inverse
    n, n_parts = one_way.shape
    v, added = _rank_one(both.reshape(n * n_parts, n * n_parts), n_parts)
    slopes = np.linspace(-1.0, 1.0, _SLOPES) * v.sum()
    total = count - slopes**2 / 2
    for i, (matrix, part) in enumerate(blocks.functions):
        products = [(matrix[:, part == a] @ matrix[:, part == a].T).ravel() for a in range(n_parts)]
        # zeros: those of a code outside the column
        products = np.unique(np.vstack([np.stack(products, axis=-1), np.zeros(n_parts)]), axis=0)
        here = slice(i * n_parts, (i + 1) * n_parts)
        square = np.einsum("xa,ab,xb->x", products, added[here, here], products)
        linear = (products @ one_way[i])[:, None] + np.outer(products @ v[here], slopes)
        total = total + (linear - square[:, None] / 2).min(axis=0)
    return float(total.max())


def _rank_one(both, n_parts):
    """Vector v and block-diagonal D with V + D - v v' positive semi-definite; D is small where V is near v v'."""
    size, found = len(both), np.zeros_like(both)
    v, used = np.zeros(size), np.flatnonzero(both.any(axis=1))
    if not len(used):
        return v, found
    block = np.arange(size) // n_parts
    outside = (block[:, None] != block).astype(float)
    v[used] = np.sqrt(both.max(axis=1)[used])
    for _ in range(20):
        v = np.sqrt(v * (both @ v) / np.maximum(outside @ v**2, 1e-300))
    product = np.outer(v, v)
    found = np.where(outside, 0.0, product)
    scale = v[used]
    rest = (both + found - product)[np.ix_(used, used)] / np.outer(scale, scale)
    # what the eigenvalues of a matrix of floating point numbers may lack
    missing = max(-float(np.linalg.eigvalsh(rest)[0]), 0.0) + 1e-9 * len(used)
    found[used, used] += missing * scale**2
    return v, found


# ---- units of several rows: their columns and their number of rows, one contribution for each unit -----------------
def size_starts(max_rows):
    """Return the least number of rows of each level of it: public, ascending.

    The last level is `max_rows` alone, where all units with as many rows or more are. Above 24 rows, levels grow with
    the number.
    """
    if max_rows <= _MOST_SIZES:
        return np.arange(1, max_rows + 1)
    return np.unique(np.round(np.geomspace(1, max_rows, _MOST_SIZES)).astype(np.int64))


def unit_tables(codes, n_levels, sizes, max_rows):
    """Count the units at each level of each column and of their number of rows, and at each pair of levels.

    Parameters
    ----------
    codes : array of int of shape (n_units, n_columns)
        Level of each column of a unit; a function of the rows of this unit alone.
    n_levels : sequence of int of length n_columns
        Public.
    sizes : array of int of shape (n_units,)
        Number of rows used of each unit; numbers outside 1 .. `max_rows` are clipped to that range.
    max_rows : int
        Public.

    Returns
    -------
    BoundedSum
        `value` as that of `one_hot_moments` with one class; the last block is that of the numbers of rows. A unit has
        one contribution: it is at one level of each block, whatever its number of rows. So the bounds are those of a
        row of such a table (see `residual_plan`). The weighting of the rows has no part in them.
    """
    starts = size_starts(max_rows)
    size = np.searchsorted(starts, np.clip(np.asarray(sizes), 1, max_rows), side="right") - 1
    codes = np.column_stack([np.asarray(codes).reshape(len(size), -1), size])
    return replace(one_hot_moments(codes, unit_plan(n_levels, max_rows)), unit="unit")


def unit_plan(n_levels, max_rows):
    """The `ResidualPlan` of `unit_tables`, whose arguments these are."""
    return residual_plan([*n_levels, len(size_starts(max_rows))])


def likeness(first, second, n_bins):
    """Say how alike pairs of rows are in each column, from 0 to 1; 1 where they are at the same level.

    Parameters
    ----------
    first, second : arrays of int of shape (n_pairs, n_columns)
        Levels of the two rows of each pair.
    n_bins : sequence of int of length n_columns
        Number of levels of each column that are bins of numbers, which come first, in their order; 0 of categories.

    Returns
    -------
    array of shape (n_pairs, n_columns)
        0 at two categories; at two bins, 1 less the square of their distance, relative to that of the outermost: its
        mean tells how far the bins of two rows are correlated. Multiples of the lattice of counts.
    """
    first, second, last = (np.asarray(part, dtype=np.int64) for part in (first, second, n_bins))
    near = np.floor((1 - ((first - second) / np.maximum(last - 1, 1)) ** 2) / LATTICE) * LATTICE
    return np.where(first == second, 1.0, np.where(np.maximum(first, second) < last, near, 0.0))


def unit_pairs(first, second, n_bins):
    """Count the units with two rows, and add up how alike their two rows are in each column.

    Parameters
    ----------
    first, second, n_bins
        As in `likeness`: two rows of each unit that has two, a function of the rows of this unit alone.

    Returns
    -------
    BoundedSum
        `value` of shape (1 + n_columns,): the number of units, and the sums. A unit adds nothing, if it has one row, or
        1 to the first entry and a number from 0 to 1 to each other one: a vector of squared norm 1 + n_columns at most.
        The difference of two units is no longer: where both have two rows, the first entry cancels. So the bound is the
        same under both relations, and attained by a unit of equal rows in the place of one with one row. The weighting
        of the rows and their number have no part in it.
    """
    alike = likeness(first, second, n_bins)
    bound = float(1 + alike.shape[1]) ** 0.5
    value = np.append(float(len(alike)), alike.sum(axis=0))
    return BoundedSum(value, add_or_remove_one=bound, replace_one=bound, lattice=LATTICE, unit="unit")
