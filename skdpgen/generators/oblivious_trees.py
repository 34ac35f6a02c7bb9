"""Boosted trees of several classes: fitted to synthetic rows, they find how columns act together.

All nodes of a level of a tree have one split (oblivious trees, as in CatBoost). So a tree is a few columns with
thresholds, and a table of what its leaves add to the logits of the classes.

References
----------
Prokhorenkova, Gusev, Vorobev, Dorogush, Gulin, "CatBoost: unbiased boosting with categorical features", NeurIPS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

# Splits of a tree, trees, and the factor of each tree.
_DEPTH, _N_TREES, _LEARNING_RATE = 6, 40, 0.2
# Added to the Hessian of a leaf, which draws its value towards 0.
_RIDGE = 5.0
# Columns that a tree may split: of more columns, each tree may split others.
_MOST_COLUMNS = 24
# Most splits and trees in a file.
_MOST_DEPTH, _MOST_TREES = 10, 1000


@dataclass(frozen=True, eq=False)
class ObliviousTrees:
    """Splits of trees."""

    # of each column, an int array: the rank of each cell, an order in which splits are sensible
    ranks: tuple
    # columns, thresholds: int (n_trees, depth); a row is in the upper half of a split if its rank in the column is at
    # least the threshold
    columns: np.ndarray
    thresholds: np.ndarray

    @classmethod
    def none(cls):
        """No trees."""
        return cls((), *np.zeros((2, 0, 0), dtype=np.int64))

    @property
    def sizes(self):
        """Number of leaves of each tree."""
        return np.full(len(self.columns), 1 << self.columns.shape[1], dtype=np.int64)

    def leaves(self, codes):
        """Leaf of each row in each tree, from the cells of the columns: a list of int arrays of shape (n_rows,)."""
        ranked = [rank[code] for rank, code in zip(self.ranks, codes)]
        found = []
        for columns, thresholds in zip(self.columns, self.thresholds):
            leaf = 0
            for column, threshold in zip(columns, thresholds):
                leaf = 2 * leaf + (ranked[column] >= threshold)
            found.append(leaf)
        return found

    def to_state(self):
        """Return plain values and arrays for a release file."""
        ranks = {str(i): rank for i, rank in enumerate(self.ranks)}
        return {"ranks": ranks, "columns": self.columns, "thresholds": self.thresholds}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        ranks = tuple(np.asarray(state["ranks"][str(i)]) for i in range(len(state["ranks"])))
        return cls(ranks, np.asarray(state["columns"]), np.asarray(state["thresholds"]))

    def check(self, sizes):
        """Refuse trees of a file that do not fit columns of so many cells."""
        splits = (self.columns, self.thresholds)
        if any(of.ndim != 2 or of.dtype.kind not in "iu" or of.shape != self.columns.shape for of in splits):
            raise ValueError("the trees of the target's model have no columns and thresholds")
        n_trees, depth = self.columns.shape
        if n_trees > _MOST_TREES or depth > _MOST_DEPTH or (n_trees and not depth):
            raise ValueError("the target's model has too many trees, or trees of too many splits")
        if n_trees and (len(self.ranks) != len(sizes) or self.columns.min() < 0 or self.columns.max() >= len(sizes)):
            raise ValueError("the trees of the target's model are not of its columns")
        for rank, size in zip(self.ranks, sizes):
            if rank.shape != (size,) or rank.dtype.kind not in "iu":
                raise ValueError("the ranks of the target's model are not those of its cells")


def boosted_trees(codes, ranks, hot, logits):
    """Boost the log-likelihood of classes.

    `codes` (n_rows, n_columns): cells of the columns, of which there is one or more.
    `ranks`: see `ObliviousTrees`.
    `hot` (n_rows, n_classes): classes in one-hot form.
    `logits` (n_classes,): where boosting starts.
    Returns `trees`; `values` (n_trees * n_leaves, n_classes): what the leaves add to the logits.
    """
    (n, width), k, n_leaves = codes.shape, hot.shape[1], 1 << _DEPTH
    ranked = [rank[code] for rank, code in zip(ranks, codes.T)]
    sizes = [int(rank.max()) + 1 for rank in ranks]
    logits, values, splits = np.broadcast_to(logits, (n, k)).copy(), [], []
    for tree in range(_N_TREES):
        chances = softmax(logits, axis=1)
        residuals, variances = hot - chances, chances * (1 - chances)
        # splits are those of one class, which is another one in each tree; of two classes they are the same
        of_class = tree % k
        among = np.unique((tree * _MOST_COLUMNS + np.arange(min(_MOST_COLUMNS, width))) % width)
        found, leaf = _grown(ranked, sizes, among, residuals[:, of_class], variances[:, of_class])
        table = np.stack([_sums(leaf, n_leaves, residual) for residual in residuals.T], axis=1)
        table /= np.stack([_sums(leaf, n_leaves, variance) for variance in variances.T], axis=1) + _RIDGE
        splits.append(found)
        values.append(_LEARNING_RATE * table)
        logits += values[-1][leaf]
    splits = np.array(splits, dtype=np.int64)
    return ObliviousTrees(tuple(ranks), splits[:, :, 0], splits[:, :, 1]), np.concatenate(values)


def _grown(ranked, sizes, among, residual, variance):
    """Columns and thresholds of one tree, and the leaf of each row."""
    leaf, splits = np.zeros(len(residual), dtype=np.int64), []
    for level in range(_DEPTH):
        best = (-np.inf, among[0], 1)
        for column in among:
            size, n = sizes[column], sizes[column] << level
            if size > 1:
                cell = leaf * size + ranked[column]
                gain = _gains_of_splits(*(_sums(cell, n, x).reshape(-1, size) for x in (residual, variance)))
                at = int(gain.argmax())
                best = max(best, (float(gain[at]), column, at + 1))
        splits.append(best[1:])
        leaf = 2 * leaf + (ranked[best[1]] >= best[2])
    return splits, leaf


def _gains_of_splits(residual, variance):
    """Gain of each threshold of a column from sums of each leaf and rank."""
    gain = 0.0
    for of in (slice(None), slice(None, None, -1)):
        below, spread = (np.cumsum(x[:, of], axis=1)[:, :-1][:, of] for x in (residual, variance))
        gain = gain + np.sum(below**2 / (spread + _RIDGE), axis=0)
    return gain


def _sums(codes, size, weights):
    return np.bincount(codes, weights, minlength=size)
