"""Wide tables: one score a number, second moments of the scores, and a latent Gaussian behind ordered levels.

Where columns are too many, or rows too few, for tables of two columns to stand above the noise, far fewer numbers tell
what columns have to do with one another: of a number the score of its bin, of a category its indicators. Their class
means and second moments are one release, whose principal components carry the latent Gaussians; a
decoder without parameters of its own gives every column the marginal that is known of it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import ndtr

from ..data.scores import COUNT_WEIGHT, MEAN_WEIGHT, Scores
from ..mechanisms import Moments
from .gaussians import class_latents
from .product_mixture import ProductMixture, antithetic, root

__all__ = ["ScoreModel", "fit_scores"]

_MOST_PARTICLES, _ALL_PARTICLES = 800, 1600  # of a class, of all
_SMALLEST_SPREAD = 0.2  # of a score of variance 1, given the latent


@dataclass(frozen=True, eq=False)
class ScoreModel(ProductMixture):
    """Released state: a Gaussian a class in the space of the principal components of the scores.

    Parameters
    ----------
    n_levels, class_counts
        As in `TableModel`.
    scores : Scores
        With the edges by which the model has the released share of each ordered level.
    mean : array of shape (n_scores,)
    components : array of shape (n_latent, n_scores)
        Of the weighted scores.
    spread : array of shape (n_scores,)
        Standard deviation of a score given the latent.
    present : array of bool of shape (n_columns_encoded,)
        Levels that may be drawn.
    particles : array of shape (n_classes, n_particles, n_latent)
        Draws of the class's Gaussian.
    """

    n_levels: np.ndarray
    class_counts: np.ndarray
    scores: Scores
    mean: np.ndarray
    components: np.ndarray
    spread: np.ndarray
    present: np.ndarray
    particles: np.ndarray

    def encode(self, one_hot):
        """Latent of encoded rows, shape (n_samples, n_latent)."""
        return ((one_hot @ self.scores.matrix - self.mean) * self.scores.weights) @ self.components.T

    def decode(self, latent):
        """Probability of each level, shape (n_samples, n_columns_encoded)."""
        drawn, offsets = latent @ self.components / self.scores.weights + self.mean, self.offsets
        p = np.empty((len(latent), offsets[-1]), dtype=np.float32)
        for i, (first, bins) in enumerate(zip(self.scores.first, self.scores.bins)):
            start, stop = offsets[i], offsets[i + 1]
            if bins:
                gap = self.scores.edges[start : start + bins] - drawn[:, first, None]
                part = np.diff(ndtr(gap / self.spread[first]), axis=1, prepend=0.0)
                if stop - start > bins:
                    absent = np.clip(drawn[:, first + 1, None], 0.0, 1.0)
                    part = np.concatenate([part * (1 - absent), absent], axis=1)
            else:
                part = np.maximum(drawn[:, first : first + stop - start], 0.0)
            allowed = self.present[start:stop]
            part = part * allowed + 1e-9 * allowed
            p[:, start:stop] = part / part.sum(axis=1, keepdims=True)
        return p

    def mixture(self, k):
        """Probability of each level in each particle of class `k`, shape (n_particles, n_columns_encoded)."""
        return self.decode(self.particles[k])

    def to_state(self):
        """Return arrays for a release file."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own, "scores": {field.name: getattr(self.scores, field.name) for field in fields(self.scores)}}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        return cls(**{**state, "scores": Scores(**state["scores"])})


def fit_scores(released, noise_sd, scores, rng, *, optional, n_components):
    """Fit the model to released moments of the scores: post-processing.

    Parameters
    ----------
    released : Moments
        With a leading axis of classes.
    noise_sd : float
        Noise multiplier times sensitivity: of the noise on a diagonal second moment, in units of ``l2_bound ** 2``.
    scores : Scores
    rng : numpy.random.Generator
        Of the particles.
    optional : array of bool of shape (n_columns_encoded,)
        Levels that the data need not have: absent, where their released share is below three deviations of its noise.
    n_components : int

    Returns
    -------
    ScoreModel
    """
    radius, n_classes = scores.l2_bound, len(released.count)
    counts = np.where(released.count > 3 * noise_sd / COUNT_WEIGHT, released.count, 0.0)
    if not counts.any():  # the noise hides every class: all of them are kept
        counts = np.maximum(released.count, 1.0)
    kept = np.flatnonzero(counts)
    # a count that the noise hides divides no noise by next to nothing
    divisor = np.maximum(counts[kept], noise_sd / COUNT_WEIGHT)
    some = Moments(divisor, released.sum[kept], released.second[kept])
    centers, mean_sd = np.zeros_like(some.sum), noise_sd * radius / MEAN_WEIGHT
    width = scores.matrix.shape[1]
    latents = class_latents(some, centers, noise_sd * radius**2, mean_sd, min(n_components, width))
    share = latents.mixture.weights
    weights = scores.weights
    mean = np.clip(latents.mean / weights, scores.matrix.min(axis=0), scores.matrix.max(axis=0))
    # class means leave the principal components of what is within classes: their directions join the space
    basis = latents.components
    gap = latents.means - latents.mean
    beyond = gap - (gap @ basis) @ basis.T
    _, size, more = np.linalg.svd(np.sqrt(share)[:, None] * beyond, full_matrices=False)
    basis = np.concatenate([basis, more[size > 1e-6].T], axis=1)
    n_particles = int(np.clip(_ALL_PARTICLES // n_classes, 100, _MOST_PARTICLES))
    particles = np.zeros((n_classes, n_particles, basis.shape[1]), dtype=np.float32)
    common = np.tensordot(share, latents.mixture.covariances, 1)
    for k in range(n_classes):  # a class that the noise hides is like the common one
        at = np.flatnonzero(kept == k)
        covariance = latents.mixture.covariances[at[0]] if len(at) else common
        white = antithetic(rng, n_particles, len(covariance))
        particles[k, :, : len(covariance)] = white @ root(covariance).T
        if len(at):
            particles[k] += gap[at[0]] @ basis
    shares = np.zeros(n_classes)
    shares[kept] = share
    # shape (n_classes, n_particles, n_scores), less the mean
    drawn = particles @ (basis.T / weights).astype(np.float32)
    told = np.einsum("c,cps->s", shares / n_particles, np.square(drawn))
    total = np.einsum("css->s", some.second) / divisor.sum() / weights**2 - mean**2
    known = np.ones(width)
    starts = np.concatenate([[0], np.cumsum(scores.n_levels)])
    for first, start in zip(scores.first, starts):
        known[first] = 1.0 if not np.isnan(scores.shares[start]) else np.clip(total[first], 0.05, 3.0)
    spread = np.sqrt(np.maximum(known - told, _SMALLEST_SPREAD**2))
    # what the noise leaves of the share of a level, over all classes
    share_sd = mean_sd * len(kept) ** 0.5 / divisor.sum() / np.repeat(weights[scores.first], scores.n_levels)
    shown = np.zeros(starts[-1])
    for first, bins, start, stop in zip(scores.first, scores.bins, starts, starts[1:]):
        if not bins:
            shown[start:stop] = mean[first : first + stop - start]
        elif stop - start > bins:
            shown[stop - 1] = mean[first + 1]
    present = ~(np.asarray(optional, dtype=bool) & (shown < np.maximum(3 * share_sd, 1e-9)))
    for start, stop in itertools.pairwise(starts):  # of levels that may all be absent, the likeliest stays
        present[start + np.argmax(shown[start:stop])] |= not present[start:stop].any()
    scores = replace(scores, edges=_calibrated(scores, drawn + mean, shares, spread))
    return ScoreModel(scores.n_levels, counts, scores, mean, basis.T, spread, present, particles)


def _calibrated(scores, drawn, shares, spread):
    """Upper ends of ordered levels, such that the model's share of each is the released one."""
    edges = scores.edges.copy()
    weights = np.repeat(shares / drawn.shape[1], drawn.shape[1])
    start = 0
    for first, bins, size in zip(scores.first, scores.bins, scores.n_levels):
        known = scores.shares[start : start + bins]
        if bins > 1 and not np.isnan(known).any():
            values = drawn[:, :, first].ravel()
            grid = np.linspace(values.min() - 5 * spread[first], values.max() + 5 * spread[first], 100)
            below = weights @ ndtr((grid - values[:, None]) / spread[first])
            edges[start : start + bins - 1] = np.interp(np.cumsum(known)[:-1], below, grid)
        start += size
    return edges
