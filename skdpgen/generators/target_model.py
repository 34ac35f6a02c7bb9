"""A model of the target given the other columns: the logits of a row are a sum over cells.

The cells are those of each column, of a few pairs and triples of columns, and the leaves of boosted trees. The model
covers the classes that have enough rows (`covered_classes`). Rows of the other classes stay as the tables give them.
`target_step` fits such a model.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import softmax

from ..tabular._encoder import one_hot
from .balanced_rows import balanced_classes
from .oblivious_trees import ObliviousTrees

# Most cells of a column of numbers and of categories, and of all columns together, about.
_MOST_BINS, _MOST_LEVELS, _MOST_CELLS = 32, 128, 512
# Synthetic rows that a category needs for a separate cell.
_FREQUENT = 50
# Parts of a column in a pair and in a triple of columns; how many of them the model has, and the columns up to which
# triples are looked for.
_PAIR_PARTS, _TRIPLE_PARTS, _N_PAIRS, _N_TRIPLES, _MOST_OF_TRIPLES = 4, 2, 12, 6, 24
# Columns in pairs of which the drawn classes of rows are counted, at most, and their parts.
_COUNTED_COLUMNS, _COUNTED_PARTS = 15, 16
# Most rows whose classes are drawn together, which bounds memory.
_DRAWN_TOGETHER = 50_000
# Expected variance of the target in a cell of a pair or triple below which it does not count.
_LEAST_VARIANCE = 5.0
# Largest weight of a cell and largest prior, in logits; and updates of the prior to the shares of the classes.
LARGEST_WEIGHT, _UPDATES_OF_PRIOR = 30.0, 4
# Least share of the rows of a covered class, and the most covered classes.
_LEAST_SHARE, _MOST_COVERED = 1e-3, 20


def covered_classes(shares):
    """Codes of the classes that the model covers: the largest one, and others with a thousandth of the rows or more."""
    largest = np.argsort(-np.asarray(shares), kind="stable")[:_MOST_COVERED]
    return np.sort(largest[(np.asarray(shares)[largest] >= _LEAST_SHARE) | (largest == largest[0])])


# ---- cells of columns ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class ColumnCells:
    """Cells of the columns, of some pairs and triples of columns, and the leaves of trees."""

    # of each column of numbers, an array between whose entries its cells lie; None for categories
    edges: tuple
    # of each column of categories, an int array: the cell of each level; None for numbers
    levels: tuple
    parts: tuple = ()  # of each column, an int array: part of each cell, `_PAIR_PARTS` of them
    # pairs, triples: int (n_pairs, 2), (n_triples, 3); columns whose parts make further cells. A triple has halves of
    # columns.
    pairs: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    triples: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    # their leaves are the last cells. Models of earlier versions have none.
    trees: ObliviousTrees = field(default_factory=ObliviousTrees.none)

    @property
    def sizes(self):
        """Number of cells of each column: for numbers, one more for missing values."""
        pairs = zip(self.edges, self.levels)
        return np.array([len(e) + 2 if e is not None else int(of.max()) + 1 for e, of in pairs], dtype=np.int64)

    @property
    def all_sizes(self):
        """The same, with the pairs, the triples and the trees."""
        more = [_PAIR_PARTS**2] * len(self.pairs) + [_TRIPLE_PARTS**3] * len(self.triples)
        return np.concatenate([self.sizes, np.array(more, dtype=np.int64), self.trees.sizes])

    def codes(self, values):
        """Cell of each row in each column, pair, triple and tree: int array of shape (n_rows, n)."""
        columns = []
        for value, edges, levels in zip(values.T, self.edges, self.levels):
            if edges is None:
                columns.append(levels[value.astype(np.int64)])
            else:
                found = np.searchsorted(edges, np.nan_to_num(value), side="right")
                columns.append(np.where(np.isnan(value), len(edges) + 1, found))
        if len(self.pairs) or len(self.triples):
            part = [of[column] for of, column in zip(self.parts, columns)]
            for a, b in self.pairs:
                columns.append(part[a] * _PAIR_PARTS + part[b])
            half = [p * _TRIPLE_PARTS // _PAIR_PARTS for p in part]
            for a, b, c in self.triples:
                columns.append((half[a] * _TRIPLE_PARTS + half[b]) * _TRIPLE_PARTS + half[c])
        columns.extend(self.trees.leaves(columns))
        return np.stack(columns, axis=1).astype(np.int64) if columns else np.zeros((len(values), 0), dtype=np.int64)

    @classmethod
    def of_rows(cls, values, is_number, n_levels):
        """Cells of about equal numbers of synthetic rows; frequent values and categories have separate ones."""
        wanted = np.where(is_number, _MOST_BINS, np.minimum(n_levels, _MOST_LEVELS))
        # as many as there is room for, the same number where columns want more
        room = next((m for m in range(_MOST_LEVELS, 2, -1) if np.minimum(wanted, m).sum() <= _MOST_CELLS), 2)
        bins, most = min(room, _MOST_BINS), room
        edges, levels = [], []
        for value, number, size in zip(values.T, is_number, n_levels):
            edges.append(_edges(value[~np.isnan(value)], bins) if number else None)
            levels.append(None if number else _cells_of_levels(value.astype(np.int64), int(size), most))
        return cls(tuple(edges), tuple(levels))

    def with_terms(self, codes, residuals, variances):
        """Add the pairs and triples of columns whose residuals stand out in synthetic rows."""
        parts = tuple(_parts(column, size) for column, size in zip(codes.T, self.sizes))
        of_row = np.stack([part[column] for part, column in zip(parts, codes.T)], axis=1)
        pairs = _pairs_that_stand_out(of_row, residuals, variances)
        triples = _triples_that_stand_out(of_row * _TRIPLE_PARTS // _PAIR_PARTS, residuals, variances)
        return replace(self, parts=parts, pairs=pairs, triples=triples)

    def to_state(self):
        """Return plain values and arrays for a release file."""
        columns = {}
        for i, (edges, levels) in enumerate(zip(self.edges, self.levels)):
            columns[str(i)] = {"levels": levels} if edges is None else {"edges": edges}
            columns[str(i)]["parts"] = self.parts[i]
        return {"columns": columns, "pairs": self.pairs, "triples": self.triples, "trees": self.trees.to_state()}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        columns = [state["columns"][str(i)] for i in range(len(state["columns"]))]
        edges, levels, parts = (tuple(c.get(name) for c in columns) for name in ("edges", "levels", "parts"))
        trees = ObliviousTrees.from_state(state["trees"]) if "trees" in state else ObliviousTrees.none()
        made = cls(edges, levels, parts, np.asarray(state["pairs"]), np.asarray(state["triples"]), trees)
        made._check()
        trees.check(made.sizes)
        return made

    def _check(self):
        """Refuse cells of a file that do not fit one another."""
        for edges, levels, parts in zip(self.edges, self.levels, self.parts):
            known = edges if edges is not None else levels
            if (edges is None) == (levels is None) or (edges is None and not len(levels)):
                raise ValueError("a column of the target's model has edges or levels, one of them")
            whole = edges is not None or (levels.dtype.kind in "iu" and levels.min(initial=0) >= 0)
            if known.ndim != 1 or not whole or (edges is not None and (np.diff(edges) <= 0).any()):
                raise ValueError("the cells of the target's model are no cells of its columns")
            size = len(edges) + 2 if edges is not None else int(levels.max()) + 1
            if parts.shape != (size,) or parts.dtype.kind not in "iu" or not _within(parts, _PAIR_PARTS):
                raise ValueError("the parts of the target's model are not those of its cells")
        for terms, width in ((self.pairs, 2), (self.triples, 3)):
            shaped = terms.ndim == 2 and terms.shape[1] == width and terms.dtype.kind in "iu"
            if not shaped or len(terms) > _MOST_CELLS or not _within(terms, len(self.edges)):
                raise ValueError("the pairs and triples of the target's model are not of its columns")


def _within(codes, size):
    return bool((codes >= 0).all() and (codes < size).all())


def _edges(values, bins):
    """Edges of cells of about equal numbers of rows; a value of as many rows has a separate cell."""
    distinct, counts = np.unique(values, return_counts=True)
    frequent = distinct[counts > len(values) / bins]
    rest = values[~np.isin(values, frequent)]
    between = np.quantile(rest, np.linspace(0, 1, bins + 1)[1:-1]) if len(rest) > 2 * _FREQUENT else np.zeros(0)
    return np.unique(np.concatenate([between, frequent, np.nextafter(frequent, np.inf)]))


def _cells_of_levels(codes, n_levels, most):
    """Cell of each level: the frequent ones have separate cells, the last cell is that of all others."""
    counts = np.bincount(codes, minlength=n_levels)
    own = np.argsort(-counts, kind="stable")[: most - 1]
    own = own[counts[own] >= _FREQUENT]
    cells = np.full(n_levels, len(own), dtype=np.int64)
    cells[own] = np.arange(len(own))
    return cells


def _parts(codes, size):
    """Part of each cell in a pair of columns."""
    return _equal_parts(np.bincount(codes, minlength=size), _PAIR_PARTS)


def _equal_parts(counts, n_parts):
    """Part of each cell: of about equal numbers of rows, in the order of the cells."""
    middle = (np.cumsum(counts) - counts / 2) / max(counts.sum(), 1)
    return np.minimum((middle * n_parts).astype(np.int64), n_parts - 1)


def _pairs_that_stand_out(parts, residuals, variances):
    n_columns = parts.shape[1]
    of_parts = one_hot(parts, np.full(n_columns, _PAIR_PARTS))
    gain = _gains(of_parts, of_parts, residuals, variances)
    gain = gain.reshape(n_columns, _PAIR_PARTS, n_columns, _PAIR_PARTS).sum(axis=(1, 3))
    first, second = np.triu_indices(n_columns, 1)
    best = np.argsort(-gain[first, second], kind="stable")[:_N_PAIRS]
    return np.stack([first[best], second[best]], axis=1)


def _triples_that_stand_out(halves, residuals, variances):
    n_columns = halves.shape[1]
    if not 3 <= n_columns <= _MOST_OF_TRIPLES:
        return np.zeros((0, 3), dtype=np.int64)
    first, second = np.triu_indices(n_columns, 1)
    quarters = halves[:, first] * _TRIPLE_PARTS + halves[:, second]
    of_pairs = one_hot(quarters, np.full(len(first), _TRIPLE_PARTS**2))
    gain = _gains(of_pairs, one_hot(halves, np.full(n_columns, _TRIPLE_PARTS)), residuals, variances)
    gain = gain.reshape(len(first), _TRIPLE_PARTS**2, n_columns, _TRIPLE_PARTS).sum(axis=(1, 3))
    pair, third = np.nonzero(np.arange(n_columns) > second[:, None])
    best = np.argsort(-gain[pair, third], kind="stable")[:_N_TRIPLES]
    return np.stack([first[pair[best]], second[pair[best]], third[best]], axis=1)


def _gains(one, other, residuals, variances):
    """Sum over the classes of (residual in a cell)^2 / (its variance), for every pair of cells."""
    gain = 0.0
    for residual, variance in zip(residuals.T.astype(np.float32), variances.T.astype(np.float32)):
        spread = one.T @ (other * variance[:, None])
        found = np.square(one.T @ (other * residual[:, None])) / np.maximum(spread, 1e-9)
        gain = gain + np.where(spread > _LEAST_VARIANCE, found, 0.0)
    return gain


# ---- the model -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class TargetModel:
    """Released state: probabilities of classes given the other columns."""

    classes: np.ndarray  # int (n_covered,); codes of the covered classes, sorted
    cells: ColumnCells
    prior: np.ndarray  # (n_covered,); logits without any column
    weights: np.ndarray  # (cells.all_sizes.sum(), n_covered); what each cell adds to the logits

    def logits(self, codes):
        """Logits of rows from their cells, shape (n_rows, n_covered): each row's sum is in the order of the columns."""
        return looked_up(codes, self.cells.all_sizes, self.weights) + self.prior

    def probabilities(self, values):
        """Probability of each covered class, shape (n_rows, n_covered)."""
        return softmax(self.logits(self.cells.codes(values)), axis=1)

    def draw(self, values, rng):
        """Class codes of rows, and the probabilities from which they are drawn: see `balanced_classes`."""
        drawn, chances = [], []
        for part in np.split(values, range(_DRAWN_TOGETHER, len(values), _DRAWN_TOGETHER)):
            codes = self.cells.codes(part)
            chances.append(softmax(self.logits(codes), axis=1))
            drawn.append(self.classes[balanced_classes(self._counted(codes), chances[-1], rng)])
        return np.concatenate(drawn), np.concatenate(chances)

    def _counted(self, codes):
        """Cells of rows in which the rows of each class are counted: of all rows, of columns, and of pairs of columns.

        Returns an int array of shape (n_rows, n); no two of its columns have a cell in common. The columns are those
        whose weights differ most from row to row.
        """
        if not len(codes):
            return np.zeros((0, 1), dtype=np.int64)
        sizes, weights = self.cells.sizes, np.split(self.weights, np.cumsum(self.cells.sizes))
        columns = list(zip(codes.T, sizes, weights))
        spread = [-of[column].var(axis=0).sum() for column, _, of in columns]
        parts, n = [], min(len(columns), _COUNTED_COLUMNS)
        for at, i in enumerate(np.sort(np.argsort(spread, kind="stable")[:n])):
            counts = np.bincount(columns[i][0], minlength=columns[i][1])
            parts.append(1 + at * _COUNTED_PARTS + _equal_parts(counts, _COUNTED_PARTS)[columns[i][0]])
        width = 1 + n * _COUNTED_PARTS
        pairs = (one * width + other for one, other in itertools.combinations(parts, 2))
        return np.stack([np.zeros(len(codes), dtype=np.int64), *parts, *pairs], axis=1)

    def with_shares(self, values, shares):
        """Return the model with another prior: the classes have nearly these shares in the given synthetic rows."""
        model, logits = self, self.logits(self.cells.codes(values))
        for _ in range(_UPDATES_OF_PRIOR):
            found = softmax(logits + (model.prior - self.prior), axis=1).mean(axis=0)
            prior = model.prior + np.log(np.maximum(shares, 1e-12) / np.maximum(found, 1e-12))
            model = replace(model, prior=np.clip(prior, -LARGEST_WEIGHT, LARGEST_WEIGHT))
        return model

    def log_probability(self, values, class_codes):
        """Log-probability of the class of each row among the covered ones; 0 for other classes."""
        logs = np.log(np.maximum(self.probabilities(values), 1e-300))
        at = self.places(class_codes)
        return np.where(at >= 0, logs[np.arange(len(logs)), at], 0.0)

    def places(self, class_codes):
        """Place of each class among the covered ones; -1 for a class that is not covered."""
        at = np.searchsorted(self.classes, class_codes).clip(max=len(self.classes) - 1)
        return np.where(self.classes[at] == class_codes, at, -1)

    def to_state(self):
        """Return plain values and arrays for a release file."""
        arrays = {"classes": self.classes, "prior": self.prior, "weights": self.weights}
        return {"cells": self.cells.to_state(), **arrays}

    @classmethod
    def from_state(cls, state, is_number, n_levels, n_classes):
        """Rebuild from `to_state`; ValueError where it does not fit a table of such columns and so many classes."""
        classes = state["classes"]
        if classes.dtype.kind not in "iu" or classes.ndim != 1 or not _within(classes, n_classes):
            raise ValueError("the classes of the target's model are not those of the table")
        classes, k = classes.astype(np.int64), len(classes)
        if k < 2 or (np.diff(classes) <= 0).any():
            raise ValueError("the classes of the target's model are not two or more in their order")
        made = cls(classes, ColumnCells.from_state(state["cells"]), state["prior"], state["weights"])
        if max(np.abs(made.prior).max(initial=0), np.abs(made.weights).max(initial=0)) > LARGEST_WEIGHT:
            raise ValueError(f"the weights of the target's model are beyond {LARGEST_WEIGHT:g}")
        shapes = made.prior.shape == (k,) and made.weights.shape == (int(made.cells.all_sizes.sum()), k)
        columns = zip(made.cells.levels, is_number, n_levels)
        same = len(made.cells.edges) == len(is_number) and all(
            (of is None) == bool(number) and (of is None or len(of) == size) for of, number, size in columns
        )
        if not (same and shapes):
            raise ValueError("the target's model does not have the columns of the table")
        return made


def looked_up(codes, sizes, table):
    """Sum over columns of cells of the rows of `table` that belong to them; the order of addition is fixed."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    total = np.zeros((len(codes), table.shape[1]))
    for column, start in zip(codes.T, starts):
        total += np.take(table, start + column, axis=0)
    return total
