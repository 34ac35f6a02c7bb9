"""Orthogonal contrasts of the levels of columns: tables as sums of parts each of which is measured once."""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

# Ordered levels from which coarse differences have other noise than fine ones.
_FEWEST_ORDERED = 4


class OneHotMoments(NamedTuple):
    """Tables of counts; the first axis is that of the classes.

    Attributes
    ----------
    count : array of shape (n_classes,)
    one_way : array of shape (n_classes, n_columns_encoded)
        Counts of each level of each block, blocks side by side.
    pairs : array of shape (n_classes, n_columns_encoded, n_columns_encoded)
        Symmetric; entries inside a block are structural (one level excludes the others) and are left zero. None
        where the two-way tables were left out.
    """

    count: np.ndarray
    one_way: np.ndarray
    pairs: np.ndarray | None


class Residuals(NamedTuple):
    """Tables in orthonormal contrasts, released, or the standard deviations of their noise; first axis: classes.

    Attributes
    ----------
    count : array of shape (n_classes,)
    one_way : array of shape (n_classes, n_contrasts)
        Contrasts of the one-way tables, blocks side by side.
    pairs : array of shape (n_classes, n_contrasts, n_contrasts)
        Contrasts of the two-way tables in both of their columns. Symmetric; entries inside a block are zero. None
        where the two-way tables were left out.
    sides : array of shape (n_classes, n_blocks, n_blocks), default=None
        Sums over the rows of the products of the sides of two columns. Symmetric; the diagonal is zero. None where they
        were not measured.
    """

    count: np.ndarray
    one_way: np.ndarray
    pairs: np.ndarray | None
    sides: np.ndarray | None = None


class ClassContrasts:
    """The sum of tables of classes, and the differences between classes, which may have less weight.

    The squared weights of the orthonormal contrasts of the classes have a mean of 1: a table of one row has the same
    norm, whatever the ratio is.

    Parameters
    ----------
    n_classes : int, default=1
    ratio : float, default=1.0
        Squared weight of the sum over that of the differences, at least 1. 1 is one measurement of each class.

    Attributes
    ----------
    of_sum, of_differences : float
        Squared weights of the orthonormal contrasts.
    variance : float
        Variance of the noise on each class, over that at ratio 1.
    """

    def __init__(self, n_classes=1, ratio=1.0):
        if not (1 <= ratio < math.inf and n_classes >= 1):
            raise ValueError(f"there must be a class, and a finite ratio of at least 1; got {n_classes}, {ratio!r}")
        self.n_classes = n_classes = int(n_classes)
        self.ratio = float(ratio) if n_classes > 1 else 1.0
        self.of_differences = n_classes / (self.ratio + n_classes - 1)
        self.of_sum = self.ratio * self.of_differences
        self.variance = (1 / self.of_sum + (n_classes - 1) / self.of_differences) / n_classes

    @functools.cached_property
    def _splits(self):
        return Contrasts([self.n_classes], [0])

    @property
    def equal(self):
        """Whether each class is measured alone."""
        return self.ratio == 1

    @property
    def largest(self):
        """Largest entry of the contrasts in whole numbers."""
        return 1 if self.equal else self._splits.largest

    @property
    def weights(self):
        """Weight of each whole number that is measured of an entry, shape (n_classes,)."""
        if self.equal:
            return np.ones(self.n_classes)
        return np.append((self.of_sum / self.n_classes) ** 0.5, self.of_differences**0.5 / self._splits.norms)

    @property
    def product(self):
        """Inner product of the weighted contrasts of two classes; that of a class with itself is 1."""
        return (self.of_sum - self.of_differences) / self.n_classes

    def measure(self, tables):
        """Whole numbers that are measured, of tables of shape (n_classes, ...)."""
        if self.equal:
            return tables
        differences = self._splits.of_levels(np.moveaxis(tables, 0, -1))
        return np.concatenate([tables.sum(axis=0)[None], np.moveaxis(differences, -1, 0)])

    def tables(self, measured):
        """Tables of the classes from what `measure` returns."""
        if self.equal:
            return measured
        differences = measured[1:].reshape(self.n_classes - 1, -1) / self._splits.norms[:, None]
        return measured[0] / self.n_classes + (self._splits.matrix @ differences).reshape(measured.shape)

    def correlated(self, draws):
        """Noise as that of the release from independent draws of each class, both of unit variance."""
        sums, differences = ((part * self.variance) ** -0.5 for part in (self.of_sum, self.of_differences))
        return self._apply(sums, differences, draws)

    def weighted(self, errors):
        """Errors times the inverse of the covariance of that noise."""
        return self._apply(self.variance * self.of_sum, self.variance * self.of_differences, errors)

    def _apply(self, on_sum, on_differences, tables):
        if self.equal:
            return tables
        return on_differences * tables + (on_sum - on_differences) * tables.mean(axis=0)


class Contrasts:
    """Orthonormal contrasts of the levels of each block: a tree halves the levels, and each split is a contrast.

    A contrast is constant on either side of its split, zero elsewhere, and sums to zero; up to its norm its entries are
    whole numbers. The parts of a block are the groups of contrasts that have the same noise: those of one depth of the
    tree, where levels are ordered, and all others together.

    Parameters
    ----------
    n_levels : sequence of int
    bins : sequence of int
        Number of levels of each block that are ordered, which come first; 0 for categories.

    Attributes
    ----------
    n_levels, bins : arrays of int of shape (n_blocks,)
    level_starts, starts : arrays of int of shape (n_blocks + 1,)
        First level, and first contrast, of each block, and the end of the last one.
    splits : array of int of shape (n_contrasts, 3)
        First level of either side of a split, and the end of the second one, over all blocks.
    block, part : arrays of int of shape (n_contrasts,)
        Of each contrast: its block, and its part within the block.
    n_parts : array of int of shape (n_blocks,)
    norms : array of shape (n_contrasts,)
        Of the contrasts in whole numbers.
    """

    def __init__(self, n_levels, bins):
        self.n_levels, self.bins = np.asarray(n_levels, dtype=np.int64), np.asarray(bins, dtype=np.int64)
        if self.bins.shape != self.n_levels.shape or ((self.bins < 0) | (self.bins > self.n_levels)).any():
            raise ValueError(f"bins needs a part of the levels of each column; got {bins} for {n_levels}")
        self.level_starts = np.concatenate([[0], np.cumsum(self.n_levels)])
        splits = [_splits(int(m), int(k)) for m, k in zip(self.n_levels, self.bins)]
        self.n_parts = np.array([max((part for *_, part in one), default=-1) + 1 for one in splits], dtype=np.int64)
        sizes = [len(one) for one in splits]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.block = np.repeat(np.arange(len(splits)), sizes)
        flat = np.array([split for one in splits for split in one], dtype=np.int64).reshape(-1, 4)
        self.part = flat[:, 3]
        self.splits = flat[:, :3] + self.level_starts[self.block][:, None]
        left, right = np.diff(self.splits, axis=1).T
        common = np.gcd(left, right)
        # whole numbers that sum to zero over the split
        self._entries = np.stack([right // common, left // common], axis=1)
        self.norms = np.sqrt(left * self._entries[:, 0] ** 2.0 + right * self._entries[:, 1] ** 2.0)

    @property
    def part_of_all(self):
        """Part of each contrast, where the parts of all blocks are numbered one after another."""
        return (np.cumsum(self.n_parts) - self.n_parts)[self.block] + self.part

    @property
    def largest(self):
        """Largest entry of the contrasts in whole numbers."""
        return int(self._entries.max(initial=1))

    @functools.cached_property
    def matrix(self):
        """Sparse matrix of shape (n_columns_encoded, n_contrasts)."""
        first, middle, end = self.splits.T
        sides = np.stack([middle - first, end - middle], axis=1).ravel()
        entries = np.repeat((self._entries * (1, -1) / self.norms[:, None]).ravel(), sides)
        starts = np.append(0, np.cumsum(end - first))
        levels = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, end - first)
        shape = int(self.level_starts[-1]), len(self.norms)
        return sparse.csc_matrix((entries, levels, starts), shape=shape).tocsr()

    @functools.cached_property
    def matrices(self):
        """Of each block, the dense matrix of shape (levels of the block, contrasts of the block)."""
        pairs = zip(itertools.pairwise(self.level_starts), itertools.pairwise(self.starts))
        return [self.matrix[a:b, c:d].toarray() for (a, b), (c, d) in pairs]

    @functools.cached_property
    def across(self):
        """Rows and columns of the pairs of contrasts of two blocks, each pair once."""
        return np.nonzero(self.block[:, None] < self.block)

    def of_levels(self, table):
        """Contrasts, in whole numbers, of the last axis of a table."""
        first, middle, end = self.splits.T
        total = np.zeros((*table.shape[:-1], table.shape[-1] + 1), dtype=table.dtype)
        np.cumsum(table, axis=-1, out=total[..., 1:])
        left, right = self._entries.T
        return left * (total[..., middle] - total[..., first]) - right * (total[..., end] - total[..., middle])

    def tables(self, residuals):
        """The tables of residuals: each is the sum of the parts of its columns, so that all agree."""
        return self._sum_of_parts(residuals, self.matrix, 1 / self.n_levels)

    def table_variances(self, noise_sd):
        """Variances of the noise on the entries of these tables.

        `noise_sd`: standard deviations of independent noise.
        """
        variances = Residuals(*(None if part is None else np.square(part) for part in noise_sd))
        return self._sum_of_parts(variances, self.matrix.power(2), 1 / self.n_levels**2)

    def _sum_of_parts(self, parts, matrix, even):
        """Tables from their parts: what a part leaves out is spread evenly over the levels, `even` of it to each."""
        count, even = np.asarray(parts.count), np.repeat(even, self.n_levels)
        own = np.asarray(parts.one_way) @ matrix.T
        one_way = count[:, None] * even + own
        if parts.pairs is None:
            return OneHotMoments(count, one_way, None)
        pairs = np.stack([matrix @ (matrix @ both).T for both in parts.pairs])
        pairs += one_way[:, :, None] * even + own[:, None, :] * even[:, None]
        block = np.repeat(np.arange(len(self.n_levels)), self.n_levels)
        pairs[:, block[:, None] == block] = 0.0
        return OneHotMoments(count, one_way, pairs)


def _splits(n_levels, n_ordered):
    """Splits of one block, a list of (first level, middle, end, part); of ordered levels, a part for each depth."""
    if n_ordered < _FEWEST_ORDERED:
        return _halves(0, n_levels, lambda depth: 0)
    found = _halves(0, n_ordered, lambda depth: depth)
    if n_ordered < n_levels:  # missing values, and the like: a separate part
        beside = 1 + max(part for *_, part in found)
        found += [(0, n_ordered, n_levels, beside), *_halves(n_ordered, n_levels, lambda depth: beside)]
    return found


def _halves(first, end, part, depth=0):
    """Splits that halve a run of levels until every level is alone; `part` maps their depth to their part."""
    if end - first < 2:
        return []
    middle = (first + end + 1) // 2
    halves = _halves(first, middle, part, depth + 1) + _halves(middle, end, part, depth + 1)
    return [(first, middle, end, part(depth)), *halves]
