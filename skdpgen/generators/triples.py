"""Released interactions of triples of columns: the quarters they are of, and those that a model of pairs misses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import chi2

from ..mechanisms import CONTRASTS, N_QUARTERS, triples_of

# Chance that noise alone makes any triple stand out, and the most triples that a fit takes in.
_TRIPLE_TOO_MANY, _MOST_TRIPLES = 1e-3, 10
# Triples whose sums are one product of matrices.
_BLOCK = 16
# Share of the rows below which a level does not make two quarters of a half.
_PRESENT = 1e-3


@dataclass(frozen=True, eq=False)
class Quarters:
    """The levels of each block in four quarters of about equally many rows; adjacent levels are together."""

    columns: np.ndarray  # int (n_columns,); blocks that have two halves at least
    of_level: list  # list of arrays of int; quarter, 0 to 3, of each level of each of these
    fine: np.ndarray  # bool (n_columns,); whether a half of the column has two quarters

    def of_codes(self, codes):
        """Quarter of each column of rows of level codes, shape (n_samples, n_columns)."""
        return np.stack([of[codes[:, i]] for i, of in zip(self.columns, self.of_level)], axis=1)


def quarters_of_levels(shares, n_levels):
    """Divide the levels of each block by their released shares.

    `shares` (n_columns_encoded,): share of the rows at each level, blocks side by side. `n_levels`: shape (n_blocks,).
    """
    columns, of_level, fine = [], [], []
    for i, part in enumerate(np.split(np.asarray(shares, dtype=np.float64), np.cumsum(n_levels)[:-1])):
        part = np.maximum(part, 0) / max(np.maximum(part, 0).sum(), 1e-12)
        middle = np.cumsum(part) - part / 2  # of the level, among all rows
        quarter = np.clip(np.floor(N_QUARTERS * middle), 0, N_QUARTERS - 1).astype(np.int64)
        there = set(quarter[part > _PRESENT].tolist())
        if there & {0, 1} and there & {2, 3}:
            columns.append(i)
            of_level.append(quarter)
            fine.append({0, 1} <= there or {2, 3} <= there)
    return Quarters(np.array(columns, dtype=np.intp), of_level, np.array(fine, dtype=bool))


@dataclass(frozen=True, eq=False)
class ReleasedTriples:
    """Released sums of products of three contrasts, in each class."""

    triples: np.ndarray  # int (n_triples, 3); columns, among those of `contrasts`
    # (n_columns_encoded, n_columns, 3); from the distribution over all levels to the mean contrasts of each column
    contrasts: np.ndarray
    value: np.ndarray  # (n_classes, n_triples, 3, 3, 3)
    precision: np.ndarray  # (n_triples, 3, 3, 3); inverse variance of the noise; 0 where quarters are not distinguished

    def expected(self, p, rows):
        """Sums over so many rows at equally likely points with these distributions, shape (n_triples, 3, 3, 3)."""
        p = np.asarray(p, dtype=np.float64)
        return rows / len(p) * _sums(*(matrix.T @ p.T for matrix in self._matrices(p.dtype)))

    def missed_by(self, mixtures, counts):
        """The triples whose interactions a model misses by more than the noise; at most ten, those that it misses most.

        `mixtures`: for each class, an array (n_points, n_columns_encoded): distribution over the levels at each point.
        `counts` (n_classes,): rows of each class.
        """
        missed = self.value - np.stack([self.expected(p, n) for p, n in zip(mixtures, counts)])
        square = (missed**2 * self.precision).sum(axis=(0, 2, 3, 4))
        freedom = len(counts) * np.count_nonzero(self.precision, axis=(1, 2, 3))
        limit = chi2.isf(_TRIPLE_TOO_MANY / len(self.triples), freedom)
        most = np.argsort(limit - square, kind="stable")[:_MOST_TRIPLES]
        return self._take(np.sort(most[square[most] > limit[most]]))

    def _take(self, chosen):
        """These triples, and their columns."""
        columns, triples = np.unique(self.triples[chosen], return_inverse=True)
        return replace(
            self,
            triples=triples.reshape(-1, 3),
            contrasts=self.contrasts[:, columns],
            value=self.value[:, chosen],
            precision=self.precision[chosen],
        )

    def gradient(self, p, k, rows):
        """Gradient of half the squared error of class `k`, weighted by the precision, with respect to `p`."""
        matrices = self._matrices(p.dtype)
        a, b, c = (matrix.T @ p.T for matrix in matrices)
        each = p.dtype.type(rows / len(p))
        error = each * ((each * _sums(a, b, c) - self.value[k]) * self.precision).astype(p.dtype)
        found = np.zeros_like(p.T)
        # of each column: the products of the two others, times the error
        parts = ((b, c, error), (a, c, error.transpose(0, 2, 1, 3)), (a, b, error.transpose(0, 3, 1, 2)))
        for matrix, (one, other, of_pairs) in zip(matrices, parts):
            found += matrix @ (_block_diagonal(of_pairs.reshape(len(error), 3, 9)) @ _pairs(one, other))
        return found.T

    def _matrices(self, dtype):
        """From distributions to mean contrasts, of each of the three columns: (n_columns_encoded, 3 * n_triples)."""
        by_contrast = self.contrasts.transpose(0, 2, 1).astype(dtype)
        return [by_contrast[:, :, at].reshape(len(by_contrast), -1) for at in self.triples.T]


def released_triples(value, sd, quarters, n_levels):
    """Join released sums with what is public of them.

    `value`: shape (n_classes, n_triples, 3, 3, 3). `sd` (n_triples, 3, 3, 3): of the noise. `n_levels`: shape
    (n_blocks,).
    """
    starts = np.concatenate([[0], np.cumsum(n_levels)])
    contrasts = np.zeros((starts[-1], len(quarters.columns), CONTRASTS.shape[1]))
    for at, (i, of) in enumerate(zip(quarters.columns, quarters.of_level)):
        contrasts[starts[i] : starts[i + 1], at] = CONTRASTS[of]
    contrasts[:, ~quarters.fine, 1:] = 0.0
    triples = triples_of(len(quarters.columns))
    counted = np.ones((len(quarters.fine), CONTRASTS.shape[1]), dtype=bool)
    counted[~quarters.fine, 1:] = False
    counted = counted[triples]
    counted = counted[:, 0, :, None, None] & counted[:, 1, None, :, None] & counted[:, 2, None, None, :]
    # an exact sum is a whole number: half a row as the least noise keeps weights finite without privacy
    precision = np.where(counted, 1 / np.maximum(sd, 0.5) ** 2, 0.0)
    return ReleasedTriples(triples, contrasts, np.asarray(value), precision)


# Mean contrasts have one row for each contrast and triple, the triples of one contrast side by side, and one column for
# each point: sums over points are products of matrices.
def _pairs(one, other):
    """Products of the contrasts of two columns, shape (9 * n_triples, n_points)."""
    one, other = (part.reshape(3, -1, part.shape[1]) for part in (one, other))
    return (one[:, None] * other).reshape(-1, one.shape[-1])


def _sums(a, b, c):
    """Sums over the points of the products of three columns, shape (n_triples, 3, 3, 3)."""
    n_triples = len(a) // 3
    a, b, c = (part.reshape(3, n_triples, -1) for part in (a, b, c))
    sums = np.empty((n_triples, 3, 3, 3), dtype=a.dtype)
    for at in range(0, n_triples, _BLOCK):  # each triple with each, of which those with themselves are wanted
        one, other, third = (part[:, at : at + _BLOCK].reshape(-1, part.shape[-1]) for part in (a, b, c))
        size = len(third) // 3
        every = (_pairs(one, other) @ third.T).reshape(9, size, 3, size)
        sums[at : at + size] = every[:, np.arange(size), :, np.arange(size)].reshape(size, 3, 3, 3)
    return sums


def _block_diagonal(blocks):
    """Matrix of shape (3 * n_triples, 9 * n_triples) that acts within each triple as its block, (3, 9), does."""
    n_triples = len(blocks)
    whole = np.zeros((3, n_triples, 9, n_triples), dtype=blocks.dtype)
    whole[:, np.arange(n_triples), :, np.arange(n_triples)] = blocks
    return whole.reshape(3 * n_triples, 9 * n_triples)
