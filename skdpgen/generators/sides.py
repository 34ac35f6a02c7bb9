"""Two-way tables from the sides of the middles of columns on which rows are: post-processing of few rows.

The sum of the products of the sides of two columns, less what independent columns have, is the medial correlation
(Blomqvist 1950) times the rows. It has far less noise than a two-way table. What it says of the other levels follows if
the columns depend on each other as normal ones of the same ranks do.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import ndtri

# Largest square of an eigenvalue of noise alone, over the number of columns: 4 of many columns, and a margin.
_EDGE = 4.8
# Terms of the series of two normal variables, the largest correlation for which they are enough, and the steps in which
# a correlation is found.
_TERMS, _MOST, _HALVINGS = 20, 0.95, 30
# Least share of the rows on the smaller side of a column.
_SMALLEST = 0.05
# Standard deviations from which a single pair surely depends on each other, whatever the other pairs show.
_SURE = 4.5


def pairs_from_sides(released, noise_sd, contrasts, sides, counts, marginals):
    """Return released values and their noise with two-way tables; without, where no columns seem to be dependent.

    `released`, `noise_sd`: with `sides`, without `pairs`.
    `sides` (n_columns_encoded,): see `ResidualPlan`.
    `counts`, `marginals` (n_classes,), (n_classes, n_columns_encoded): estimated rows of the classes, and their
        distributions over the levels.
    Returns `released`, `noise_sd`: `pairs` is None, or the estimated contrasts of the two-way tables; contrasts of
        which nothing is known have infinite noise.
    """
    sd = np.maximum(noise_sd.sides[0], 0.5)  # an exact sum is a whole number
    # distribution of each column over its levels, and its mean side, of all rows and of each class
    overall = counts @ marginals / max(counts.sum(), 1.0)
    starts = contrasts.level_starts[:-1]
    means = np.add.reduceat(marginals * sides, starts, axis=1)
    smaller = np.minimum(*(np.add.reduceat(overall * (sides == side), starts) for side in (-1, 1)))
    divided = smaller > _SMALLEST
    measured = divided & divided[:, None] & ~np.eye(len(divided), dtype=bool)
    estimate = _beyond_independence(released.sides, sd, counts, means, measured)
    released, noise_sd = (residuals._replace(sides=None) for residuals in (released, noise_sd))
    if not estimate.any():
        return released, noise_sd
    normal = _NormalLevels(contrasts, sides, overall, measured.any(axis=1))
    block = contrasts.block
    across, centred = block[:, None] != block, marginals @ contrasts.matrix
    pairs = np.empty((len(counts), len(block), len(block)))
    for k, contrast in enumerate(centred):
        pairs[k] = counts[k] * np.outer(contrast, contrast)
        if counts[k] > 0:
            pairs[k] += counts[k] * normal.tables(normal.correlations(estimate[k] * sd / counts[k]))
    # all contrasts of two columns together weigh as much as the sum of their products that was released
    spread = np.where(measured, sd * np.sqrt(np.outer(normal.size, normal.size)), np.inf)
    known = np.outer(normal.known, normal.known) & across
    spread = np.where(known, spread[np.ix_(block, block)], np.inf)
    return released._replace(pairs=np.where(across, pairs, 0.0)), noise_sd._replace(pairs=spread[None])


def _beyond_independence(products, sd, counts, means, measured):
    """Estimate the sums of the products of sides beyond those of independent columns, in `sd`; zero where noise is all.

    `products` (n_classes, n_blocks, n_blocks): released.
    `sd` (n_blocks, n_blocks): standard deviations of their noise.
    `counts`, `means` (n_classes,), (n_classes, n_blocks): rows of each class, and the mean sides of its columns.
    `measured` (n_blocks, n_blocks): two columns both of which have rows on either side.
    Returns an array of shape (n_classes, n_blocks, n_blocks).
    """
    total, seen = max(counts.sum(), 1.0), np.flatnonzero(counts > 0)
    independent = counts[:, None, None] * means[:, :, None] * means[:, None, :]
    found = np.divide(products - independent, sd, out=np.zeros_like(independent), where=measured)
    # classes are alike as far as nothing else is seen: what they have in common is estimated first
    common = _above_noise(found[seen].sum(axis=0) / max(len(seen), 1) ** 0.5, measured) * max(len(seen), 1) ** 0.5
    estimate = np.zeros_like(found)
    for k in seen:
        estimate[k] = counts[k] / total * common
        if len(seen) > 1:
            estimate[k] += _above_noise(found[k] - estimate[k], measured)
    # no more than of columns of which each says all of the other
    deviation = np.sqrt(np.maximum(1 - means**2, 0.0))
    largest = counts[:, None, None] * deviation[:, :, None] * deviation[:, None, :] / sd
    return np.clip(estimate, -largest, largest)


class _NormalLevels:
    """Levels of columns as intervals of standard normal variables, each with its share of the rows.

    The table of two such columns of correlation r, less that of independent ones, is ``sum_n r^n h_n g_n'``, where h_n
    and g_n are the integrals of the n-th normalised Hermite polynomial over the levels (Mehler's formula).

    `profiles` (n_terms, n_contrasts): contrasts of these integrals.
    `products` (n_terms, n_blocks): their sums by sides.
    `size` (n_blocks,): squared norm of the first profile, for one unit of its sum by sides.
    `known`: shape (n_contrasts,).
    """

    def __init__(self, contrasts, sides, shares, divided):
        self.block = contrasts.block
        profiles, self.products = [], np.zeros((_TERMS, len(divided)))
        for i, (start, stop) in enumerate(itertools.pairwise(contrasts.level_starts)):
            side = sides[start:stop]
            integrals = np.zeros((_TERMS, stop - start))
            if divided[i]:
                integrals[:, side != 0] = _hermite_integrals(np.maximum(shares[start:stop], 0.0)[side != 0])
            self.products[:, i] = integrals @ side
            profiles.append(integrals @ contrasts.matrices[i])
        self.profiles = np.concatenate(profiles, axis=1)
        self.known = divided[self.block]
        self.size = np.array([np.sum(profile[0] ** 2) for profile in profiles])
        self.size = np.divide(self.size, self.products[0] ** 2, out=self.size, where=divided)

    def correlations(self, products):
        """Correlation of every two columns whose products of sides have this mean above that of independence."""
        low, high = np.full_like(products, -_MOST), np.full_like(products, _MOST)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            more = self._sums(self.products, middle) < products
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        known = (self.products[0] > 0) & (products != 0)
        return np.where(known & known.T, (low + high) / 2, 0.0)

    def tables(self, correlations):
        """Contrasts of the tables of every two columns, less those of independence, for one row."""
        return self._sums(self.profiles, correlations[np.ix_(self.block, self.block)])

    @staticmethod
    def _sums(terms, correlations):
        total, power = np.zeros_like(correlations), np.ones_like(correlations)
        for term in terms:
            power = power * correlations
            total += power * np.outer(term, term)
        return total


def _hermite_integrals(shares):
    """Integrals of the Hermite polynomials 1 to _TERMS, normalised, over levels of these shares in their order."""
    cumulative = np.cumsum(shares)[:-1] / max(shares.sum(), 1e-12)
    at = ndtri(np.clip(cumulative, 1e-6, 1 - 1e-6))
    density, before, polynomial = np.exp(-(at**2) / 2) / (2 * np.pi) ** 0.5, np.zeros_like(at), np.ones_like(at)
    found = []
    for n in range(1, _TERMS + 1):
        found.append(-np.diff(polynomial * density, prepend=0.0, append=0.0) / n**0.5)
        before, polynomial = polynomial, (at * polynomial - (n - 1) ** 0.5 * before) / n**0.5
    return np.array(found)


def _above_noise(z, measured):
    """Estimate of symmetric values of which `z` has noise of variance 1; nothing where noise explains them.

    First what few common factors of all columns explain: eigenvalues beyond those of noise, shrunk as is best for the
    squared error. Of the rest, single large values stay, and all others are shrunk by the share of noise in them.
    """
    values, vectors = np.linalg.eigh(np.where(measured, z, 0.0))
    edge = _EDGE * measured.sum(axis=1).max(initial=0)
    values = np.sign(values) * np.sqrt(np.maximum(values**2 - edge, 0.0))
    factors = np.where(measured, (vectors * values) @ vectors.T, 0.0)
    rest = np.where(measured, z - factors, 0.0)
    sure = np.abs(rest) > _SURE
    others = measured & ~sure
    n_pairs = np.count_nonzero(others) / 2
    square = np.sum(rest[others] ** 2) / max(2 * n_pairs, 1)
    # mean square of noise alone, and the standard deviation of it
    noise = 1 + (2 / max(n_pairs, 1)) ** 0.5
    kept = max(0.0, 1 - noise / square) if square > 0 else 0.0
    return factors + np.where(sure, rest - np.divide(1.0, rest, out=np.zeros_like(rest), where=sure), kept * rest)
