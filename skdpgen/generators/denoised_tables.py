"""Denoised two-way tables: post-processing of one release.

A model that is fitted to noisy tables describes a part of their noise, most of all where two columns hardly depend on
each other. Tables with independent noise show how much. One release gives both, by data thinning (Neufeld et al., JMLR
2024): if e is the noise of the release, and f is drawn from the same distribution, then ``e + c f`` and ``e - f / c``
are independent. Each restart has a different draw of f. It is fitted to tables with the first noise, and compared with
tables with the second noise. The comparison estimates the inner product of the interactions of the model and the true
ones. Divided by the squared norm of the interactions of the model, it is the factor that brings them nearest to the
true ones. (The initial points of a restart depend on e. This raises the factor by .01 at most.)

With little noise, a model misses more than the noise explains. This part is added to the tables.
"""

from __future__ import annotations

import numpy as np

# c: the tables to which a restart is fitted have 1 + c^2 times the variance of the noise.
_THINNING = 0.5
# Prior weight of the factor of two columns for that of two of their parts, and of the factor of all columns for that of
# two columns: a sum of squared interactions, each divided by the variance of its noise.
_PRIOR = 5.0


class ThinnedTables:
    """Two-way tables in contrasts, whose noise is divided in two for each restart, by a different draw.

    `pairs`, `noise_sd` (n_classes, n_contrasts, n_contrasts), broadcast: released, and the finite standard deviation of
        its noise.
    `classes`: how the noise of the classes is correlated.
    `n_restarts`: at least two. Their draws sum to zero, so that their mean has the noise of the release alone.
    """

    def __init__(self, pairs, noise_sd, contrasts, classes, n_restarts, rng):
        drawn = rng.standard_normal((n_restarts, *pairs.shape))
        for table in drawn.reshape(-1, *pairs.shape[1:]):
            upper = np.triu(table, 1)
            table[:] = upper + upper.T
        for of_restart in drawn:
            of_restart[:] = classes.correlated(of_restart)
        drawn *= np.where(_across(contrasts), noise_sd, 0.0)
        drawn -= drawn.mean(axis=0)
        drawn *= (n_restarts / (n_restarts - 1)) ** 0.5
        self.contrasts, self._classes, self._pairs, self._drawn = contrasts, classes, pairs, drawn

    def to_fit(self, restart):
        """The tables to which a restart is fitted."""
        return self._pairs + _THINNING * self._drawn[restart]

    def to_compare(self, restart):
        """Tables whose noise is independent of that of `to_fit`."""
        return self._pairs - self._drawn[restart] / _THINNING

    def denoised(self, expected, counts, marginals, weight, visible):
        """The mean of the tables of all restarts, shrunk towards independent columns, and what they miss beyond noise.

        `expected` (n_classes, n_contrasts, n_contrasts): tables of the restarts, each fitted to its tables `to_fit`.
        `counts`, `marginals` (n_classes,), (n_classes, n_columns_encoded): rows, and shares of the levels, of each
            class.
        `weight` (n_contrasts, n_contrasts): inverse variances of the noise of a class.
        `visible`: the classes that have rows.
        Returns an array of shape (n_classes, n_contrasts, n_contrasts).
        """
        centred = marginals @ self.contrasts.matrix
        independent = counts[:, None, None] * centred[:, :, None] * centred[:, None, :]
        independent = np.where(_across(self.contrasts), independent, 0.0)
        mean, product, n_restarts = np.zeros_like(independent), np.zeros_like(independent), len(self._drawn)
        for restart, tables in enumerate(expected):
            found = tables - independent
            mean += found / n_restarts
            product += found * self._classes.weighted(self.to_compare(restart) - independent) / n_restarts
        square = mean * self._classes.weighted(mean)
        factors = self._factors(*((part[visible].sum(axis=0) * weight) for part in (product, square)))
        shrunk = independent + factors * mean
        missed = self._pairs - shrunk
        # mean square, divided by the variance of the noise: 1 if all of it is noise
        size = np.sum((missed * self._classes.weighted(missed))[visible] * weight)
        size /= max(len(visible) * np.count_nonzero(weight), 1)
        return shrunk + max(0.0, 1 - 1 / max(size, 1e-300)) * missed

    def _factors(self, product, square):
        """Factor of each entry: that of its two parts, shrunk towards that of their columns and that of all."""
        n_parts, part = self.contrasts.n_parts, self.contrasts.part_of_all
        of_part = (part[:, None] == np.arange(n_parts.sum())).astype(float)
        owner = np.repeat(np.arange(len(n_parts)), n_parts)
        of_block = (owner[:, None] == np.arange(len(n_parts))).astype(float)
        sums = [of_part.T @ entries @ of_part for entries in (product, square)]
        columns = [of_block.T @ entries @ of_block for entries in sums]
        of_all = np.clip(columns[0].sum() / max(columns[1].sum(), 1e-300), 0.0, 1.0)
        of_columns = (columns[0] + _PRIOR * of_all) / (columns[1] + _PRIOR)
        of_parts = (sums[0] + _PRIOR * of_columns[np.ix_(owner, owner)]) / (sums[1] + _PRIOR)
        return np.clip(of_parts, 0.0, 1.0)[np.ix_(part, part)]


def _across(contrasts):
    """Whether two contrasts are of two columns."""
    return contrasts.block[:, None] != contrasts.block
