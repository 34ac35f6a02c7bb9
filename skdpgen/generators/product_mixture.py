"""A latent mixture for tables as it is released: encoding, sampling, conditional sampling and scoring.

The prior of a class is a mixture of equally likely latent points ("particles"); a decoder maps a point to one
distribution a block, a softmax of an affine map. Given the point the blocks are independent, so the model's expected
pair tables of a class of n rows are n P^T P / n_particles exactly: sampling levels from the decoder's distribution
loses nothing. There are several decoders ("members"), each with particles of its own, and the model is their mixture.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import logsumexp

__all__ = [
    "ABSENT",
    "MixtureOfProducts",
    "ParticleModel",
    "antithetic",
    "block_of_level",
    "block_softmax",
    "root",
]

ABSENT = -1e4  # bias of a level that is never drawn: its softmax is 0 exactly, and so is its gradient


class MixtureOfProducts:
    """A mixture, in each class, of laws under which the blocks are independent: what any such model can do.

    A subclass has `n_levels`, `class_counts` and ``mixture(k)``, the probability of each level in each particle of
    class k, shape (n_particles, n_columns_encoded); all particles of a class are equally likely.
    """

    @property
    def offsets(self):
        """First column of each block, and the end."""
        return np.concatenate([[0], np.cumsum(self.n_levels)])

    def likelihood(self, levels):
        """Chance that a row of each particle has the levels asked for in every block.

        Parameters
        ----------
        levels : array of shape (n_columns_encoded,)
            Share of each level that is asked for, 0 to 1.

        Returns
        -------
        array of shape (n_classes, n_particles)
        """
        starts = self.offsets[:-1]
        asked = np.add.reduceat(levels < 1, starts) > 0  # blocks of which nothing is asked have chance 1
        rows = []
        for k in range(len(self.class_counts)):
            chance = np.add.reduceat(self.mixture(k) * levels, starts, axis=1)
            rows.append(np.prod(chance[:, asked], axis=1, dtype=np.float64))
        return np.stack(rows)

    def sample(self, class_codes, rng, levels=None):
        """Draw level codes of shape (n_samples, n_blocks) for rows of given classes.

        Every particle of a class is used as often as its share says, and the levels of a block are drawn by stratified
        uniforms within a particle: the sample's tables are nearer to the model's than those of independent draws.
        With `levels` (see `likelihood`), rows are drawn from the law of those that have them.
        """
        codes = np.empty((len(class_codes), len(self.n_levels)), dtype=np.int64)
        chances = None if levels is None else self.likelihood(levels)
        for k in np.unique(class_codes):
            rows = rng.permutation(np.flatnonzero(class_codes == k))
            p, chance = self.mixture(k), None
            if levels is not None:
                p, chance = p * levels, chances[k]
            codes[rows] = self._draw(p, _spread(len(rows), len(p), chance, rng), rng)
        return codes

    def _draw(self, p, who, rng):
        """Levels of rows whose particles are `who`, sorted."""
        n, offsets = len(who), self.offsets
        per = np.bincount(who, minlength=len(p))
        start = np.concatenate([[0], np.cumsum(per)[:-1]])
        codes = np.empty((n, len(self.n_levels)), dtype=np.int64)
        rank, place = np.empty(n), np.arange(n)
        for i in range(len(self.n_levels)):
            rank[np.argsort(who + rng.random(n), kind="stable")] = place  # a shuffle inside each particle
            u = (rank - start[who] + rng.random(n)) / per[who]
            cumulative = np.cumsum(p[:, offsets[i] : offsets[i + 1]], axis=1)
            cumulative /= np.maximum(cumulative[:, -1:], 1e-300)
            # one search over all particles: the distribution function of the next one begins where this one ends
            edges = (cumulative + np.arange(len(p))[:, None]).ravel()
            found = np.searchsorted(edges, who + u, side="right") - who * self.n_levels[i]
            codes[:, i] = np.clip(found, 0, self.n_levels[i] - 1)
        return codes

    def score_samples(self, codes, class_codes, chunk_rows=2048):
        """Exact log-likelihood of rows, class included, shape (n_samples,)."""
        share = np.log(np.maximum(self.class_counts, 1e-12) / max(self.class_counts.sum(), 1e-12))
        scores = np.empty(len(codes))
        for k in np.unique(class_codes):
            rows = np.flatnonzero(class_codes == k)
            log_p = np.log(np.maximum(self.mixture(k), 1e-30)).T
            for part in np.split(rows, np.arange(chunk_rows, len(rows), chunk_rows)):
                total = sum(log_p[offset + codes[part, i]] for i, offset in enumerate(self.offsets[:-1]))
                scores[part] = logsumexp(total, axis=1) - np.log(total.shape[1]) + share[k]
        return scores


@dataclass(frozen=True, eq=False)
class ParticleModel(MixtureOfProducts):
    """Released state: encoding, sampling and scoring need nothing else.

    Parameters
    ----------
    n_levels : array of int of shape (n_blocks,)
    class_counts : array of shape (n_classes,)
        Released row counts, non-negative.
    mean : array of shape (n_columns_encoded,)
    components : array of shape (n_latent, n_columns_encoded)
        The latent of a one-hot row x is ``(x - mean) @ components.T / scale``.
    scale : array of shape (n_latent,)
    class_means, class_covariances : arrays of shape (n_classes, n_latent), (n_classes, n_latent, n_latent)
        One Gaussian a class in that space.
    particles : array of shape (n_members, n_classes, n_particles, n_latent)
    weight, bias : arrays of shape (n_members, n_latent, n_columns_encoded), (n_members, n_columns_encoded)
        Decoder of each member: block softmax of ``z @ weight + bias``.
    """

    n_levels: np.ndarray
    class_counts: np.ndarray
    mean: np.ndarray
    components: np.ndarray
    scale: np.ndarray
    class_means: np.ndarray
    class_covariances: np.ndarray
    particles: np.ndarray
    weight: np.ndarray
    bias: np.ndarray

    @property
    def present(self):
        """Levels that may be drawn: bool array of shape (n_columns_encoded,)."""
        return np.asarray(self.bias[0]) > ABSENT / 2

    def encode(self, one_hot):
        """Latent of encoded rows, shape (n_samples, n_latent)."""
        return (one_hot - self.mean) @ (self.components.T / self.scale)

    def decode(self, latent):
        """Probability of each level, shape (n_samples, n_columns_encoded)."""
        offsets, block = self.offsets, block_of_level(self.n_levels)
        total = sum(block_softmax(latent @ w + b, offsets, block) for w, b in zip(self.weight, self.bias))
        return total / len(self.weight)

    def mixture(self, k):
        """Probability of each level in each particle of class `k`, shape (n_members * n_particles, n_encoded)."""
        offsets, block = self.offsets, block_of_level(self.n_levels)
        members = zip(self.particles[:, k], self.weight, self.bias)
        return np.concatenate([block_softmax(z @ w + b, offsets, block) for z, w, b in members])

    def to_state(self):
        """Return arrays for a release file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        return cls(**state)


def block_of_level(n_levels):
    """Block of each column of the encoded matrix."""
    return np.repeat(np.arange(len(n_levels)), n_levels)


def block_softmax(logits, offsets, block):
    """Softmax within each block, shape of `logits`."""
    starts = offsets[:-1]
    p = np.exp(logits - np.maximum.reduceat(logits, starts, axis=1)[:, block])
    return p / np.add.reduceat(p, starts, axis=1)[:, block]


def root(covariance):
    """Matrix R with R R^T the nearest positive semi-definite matrix."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def antithetic(rng, size, n_components):
    """Standard normal draws in pairs of opposites, shape (size, n_components)."""
    half = rng.standard_normal(((size + 1) // 2, n_components))
    return np.concatenate([half, -half])[:size]


def _spread(n, size, weights, rng):
    """Particle of each of n rows, sorted: equally often, or as `weights` say, each within a row of its share."""
    if weights is None or not weights.sum() > 0:
        return np.sort(rng.permutation(size)[np.arange(n) % size])
    shares = np.cumsum(weights / weights.sum())
    order = np.searchsorted(shares, (np.arange(n) + rng.random()) / max(n, 1), side="right")
    return np.minimum(order, size - 1)
