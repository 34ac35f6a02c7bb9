"""What is public of the query of one-way and two-way tables: the weights of its parts, and their sensitivity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._contrasts import ClassContrasts, Contrasts, Residuals

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


@dataclass(frozen=True, eq=False)
class ResidualPlan:
    """What is public of the query of `one_hot_moments`: its contrasts, weights and sensitivity.

    Parameters
    ----------
    contrasts : Contrasts
    pairs : bool
        Whether there are two-way tables.
    classes : ClassContrasts
        How the classes of two-way tables are measured; their sides are measured in each class.
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
    classes: ClassContrasts
    inverse: tuple
    add_or_remove_one: float
    replace_one: float
    sides: np.ndarray | None = None

    @property
    def weights(self):
        """Weight of every entry of the query, contrasts in whole numbers: broadcast to (n_classes, p)."""
        part, norms = self.contrasts.part_of_all, self.contrasts.norms
        count, one_way, both = self.inverse
        found = [[count], one_way[part] / norms**2]
        if self.pairs:
            rows, columns = self.contrasts.across
            found.append(both[part[rows], part[columns]] / (norms[rows] * norms[columns]) ** 2)
        elif self.sides is not None:
            found.append(both[self.across])
        weights = np.sqrt(np.concatenate(found))
        if self.classes.equal:
            return weights
        of_classes = np.ones((self.classes.n_classes, len(weights)))
        of_classes[:, 1 + len(norms) :] = self.classes.weights[:, None]
        return weights * of_classes

    def noise_sd(self, scale):
        """Noise of the parts where that of the weighted query is `scale`: Residuals of one class."""
        return self._noise_sd(scale, 1.0, self.classes.variance)

    def noise_sd_of_sum(self, scale):
        """The same of the sums over all classes."""
        n_classes = self.classes.n_classes
        return self._noise_sd(scale, n_classes, n_classes / self.classes.of_sum)

    def _noise_sd(self, scale, alone, of_pairs):
        count, one_way, both = (scale / np.sqrt(np.where(part > 0, part, np.inf)) for part in self.inverse)
        part = self.contrasts.part_of_all
        pairs = of_pairs**0.5 * both[np.ix_(part, part)][None] if self.pairs else None
        sides = alone**0.5 * both[None] if self.sides is not None else None
        return Residuals(alone**0.5 * np.array([count]), alone**0.5 * one_way[part][None], pairs, sides)

    @property
    def across(self):
        """Rows and columns of what is measured of two blocks, each pair once: of contrasts, or of sides."""
        if self.sides is None:
            return self.contrasts.across if self.pairs else np.zeros((2, 0), dtype=np.intp)
        return np.nonzero(np.triu(self.inverse[2]))


def residual_plan(
    n_levels, bins=None, n_classes=1, *, pairs=True, importance=None, kept=0.1, sides=None, ratio=1.0
):  # fmt: skip
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
    ratio : float, default=1.0
        Of two-way tables: squared weight of the sum of all classes over that of the differences between classes; see
        `ClassContrasts`.

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

    Two rows of different classes differ by two vectors that are orthogonal, but for the two-way tables where the sum of
    the classes weighs more: their inner product there is that of `ClassContrasts` times that of one class, which is
    bounded below like the whole. The counts of two rows of one class cancel, and the
    other products of their parts may be negative. Let g be the vector of all G_i,a = <u_i,a(x_i), u_i,a(x'_i)>. The
    two-way parts are g' V g / 2 with V zero within blocks. For any block-diagonal D and vector w that make V + D - w w'
    positive semi-definite this is at least (w' g)^2 / 2 - g' D g / 2, and so at least t w' g - t^2 / 2 - g' D g / 2 for
    any number t: a sum over blocks, of which each is least at some pair of levels.

    At a code outside its column all contrasts, and the side, are zero. Its products with any level are zero: they are
    among those over which the least is taken.
    """
    n_levels, importance, sides = _checked(n_levels, importance, kept, pairs, sides)
    contrasts = Contrasts(n_levels, np.zeros_like(n_levels) if bins is None else bins)
    if len(n_levels) * contrasts.n_parts.max(initial=1) > _MOST_PARTS:
        contrasts = Contrasts(n_levels, np.zeros_like(n_levels))
    pairs = bool(pairs and np.count_nonzero(contrasts.n_parts) > 1)
    several, classes = n_classes > 1, ClassContrasts(n_classes, ratio if pairs else 1.0)
    blocks = _Blocks(contrasts, sides)
    relative = importance / np.exp(np.mean(np.log(importance))) if len(importance) else importance
    if sides is None:
        inverse = _best_weights(blocks, several, pairs, relative, kept)
    else:
        inverse = _weights_with_sides(blocks, several, relative)
    added = _largest_norm(blocks, inverse)
    alone = 2 * (added - _least_product(blocks, inverse))
    apart = 0.0
    if several:
        of_pairs = 0.0 if classes.equal else _least_product(blocks, (0.0, 0 * inverse[1], inverse[2]))
        apart = 2 * added - 2 * classes.product * of_pairs
    # at least as far as from a row that counts nowhere
    replaced = max(alone, added, apart)
    # a row leaves and another one joins
    replaced = min(replaced, 4 * added)
    return ResidualPlan(contrasts, pairs, classes, blocks.flat(inverse), added**0.5, replaced**0.5, sides)


def _checked(n_levels, importance, kept, pairs, sides):
    """Arguments of `residual_plan` as arrays, those that are given; ValueError for others than it takes."""
    n_levels = np.asarray(n_levels, dtype=np.int64)
    importance = np.ones(len(n_levels)) if importance is None else np.asarray(importance, dtype=np.float64)
    if importance.shape != n_levels.shape or not (np.isfinite(importance) & (importance > 0)).all():
        raise ValueError("importance needs one positive number for each column")
    if not 0 < kept <= 1:
        raise ValueError(f"kept must be in (0, 1]; got {kept!r}")
    if sides is not None:
        sides = np.asarray(sides, dtype=np.int64)
        if pairs or sides.shape != (n_levels.sum(),) or not np.isin(sides, (-1, 0, 1)).all():
            raise ValueError("sides take the place of two-way tables, and need -1, 0 or 1 for each level")
    return n_levels, importance, sides


def bytes_of_plan(n_columns):
    """Memory that `residual_plan` takes for so many columns, at most, of 16 bins and missing values."""
    parts = max(n_columns, min(_PARTS_OF_BINS * n_columns, _MOST_PARTS)) + n_columns  # the sides are one more
    return 8 * _COPIES * parts**2


class _Blocks:
    """The parts of each block, arrays over blocks of different sizes filled up with zeros.

    `functions`: for each block, two arrays: its contrasts at each level, and its side where there are sides, of shape
        (n_levels, n_functions), and the part of each, of shape (n_functions,). The sides are the last part, which is
        not `present`: it has no one-way table.
    `squares` (n_blocks, most levels, most parts): sum of the squared contrasts of each part at each level.
    `present`: shape (n_blocks, most parts).
    `cells` (n_blocks, most resolutions): entries of the one-way table of each resolution, by its weight; the finest is
        the last.
    `even` (n_blocks, most resolutions): mean variance of an entry, of unit variance of the count.
    `spread` (n_blocks, most resolutions, most parts): mean variance of an entry, of unit variance of the contrasts of a
        part.
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
