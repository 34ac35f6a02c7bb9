"""Wide tables: a latent Gaussian behind ordered levels, fitted to released second moments of scores.

Where columns are too many, or rows too few, for two-way tables to exceed the noise, far fewer numbers describe how
columns depend on each other: the score of the bin of a number, the indicators of a category. Their class means and
second moments are one release. Its principal components span the latent Gaussians, and a decoder without further
parameters gives every column its released marginal.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import ndtr

from ..data.scores import Scores
from ..mechanisms import Moments
from ..mechanisms._moments import CLASS_COUNT_WEIGHT, CLASS_MEAN_WEIGHT
from .gaussians import class_latents
from .product_mixture import ProductMixture, antithetic, root, with_undrawn

# Support points of a class; fewer where all classes together would have more than the second number.
_MOST_POINTS, _ALL_POINTS, _FEWEST_POINTS = 800, 1600, 100
# Least standard deviation of a score of variance 1, given the latent.
_SMALLEST_SPREAD = 0.2


@dataclass(frozen=True, eq=False)
class ScoreModel(ProductMixture):
    """Released state: a Gaussian a class in the space of the principal components of the scores."""

    # n_levels, class_counts: see `TableModel`
    n_levels: np.ndarray
    class_counts: np.ndarray
    scores: Scores  # with edges such that the model has the released share of each ordered level
    mean: np.ndarray  # (n_scores,)
    components: np.ndarray  # (n_latent, n_scores); of the weighted scores
    spread: np.ndarray  # (n_scores,); standard deviation of a score given the latent
    present: np.ndarray  # bool (n_columns_encoded,); levels that may be drawn
    # (n_classes, n_points, n_latent); support points, drawn from the Gaussian of each class; "particles" in a release
    # file
    points: np.ndarray

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
        """Probability of each level at each support point of class `k`, shape (n_points, n_columns_encoded)."""
        return self.decode(self.points[k])

    def to_state(self):
        """Return arrays for a release file."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        state["particles"] = state.pop("points")
        return {**state, "scores": {field.name: getattr(self.scores, field.name) for field in fields(self.scores)}}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        own = {"points" if name == "particles" else name: value for name, value in state.items()}
        return cls(**{**own, "scores": Scores(**state["scores"])})


def fit_scores(released, noise_sd, scores, rng, *, optional, n_components, undrawn=None):
    """Fit the model to released moments of the scores: post-processing.

    `released`: with a leading axis of classes.
    `noise_sd`: noise multiplier times sensitivity: standard deviation of a diagonal second moment, in units of
        ``l2_bound ** 2``.
    `rng`: draws the support points.
    `optional` (n_columns_encoded,): levels that the data need not have: absent where their released share is below
        three standard deviations.
    `undrawn` (n_columns_encoded,): levels that are never drawn, by another release.
    """
    counts = np.where(released.count > 3 * noise_sd / CLASS_COUNT_WEIGHT, released.count, 0.0)
    if not counts.any():  # the noise hides every class: all of them stay
        counts = np.maximum(released.count, 1.0)
    present = np.flatnonzero(counts)
    # at least its noise, so that a count that the noise hides does not blow up what is divided by it
    divisor = np.maximum(counts[present], noise_sd / CLASS_COUNT_WEIGHT)
    moments = Moments(divisor, released.sum[present], released.second[present])
    mean_sd, width = noise_sd * scores.l2_bound / CLASS_MEAN_WEIGHT, scores.matrix.shape[1]
    second_sd = noise_sd * scores.l2_bound**2
    latents = class_latents(moments, np.zeros_like(moments.sum), second_sd, mean_sd, min(n_components, width))
    mean = np.clip(latents.mean / scores.weights, scores.matrix.min(axis=0), scores.matrix.max(axis=0))
    basis, points = _draw_points(latents, present, len(counts), rng)
    shares = np.zeros(len(counts))
    shares[present] = latents.mixture.weights
    # shape (n_classes, n_points, n_scores), less the mean
    drawn = points @ (basis.T / scores.weights).astype(np.float32)
    explained = np.einsum("c,cps->s", shares / points.shape[1], np.square(drawn))
    total = np.einsum("css->s", moments.second) / divisor.sum() / scores.weights**2 - mean**2
    spread = _spread_within(scores, total, explained)
    # standard deviation of the share of a level, over all classes
    share_sd = mean_sd * len(present) ** 0.5 / divisor.sum() / scores.weights[scores.first]
    allowed = _present_levels(scores, mean, np.repeat(share_sd, scores.n_levels), optional)
    if undrawn is not None:
        allowed = ~with_undrawn(~allowed, undrawn, scores.n_levels)
    scores = replace(scores, edges=_calibrated(scores, drawn + mean, shares, spread))
    return ScoreModel(scores.n_levels, counts, scores, mean, basis.T, spread, allowed, points)


def _draw_points(latents, present, n_classes, rng):
    """Basis of the latent space, and support points of each class drawn from its Gaussian there."""
    share, gap = latents.mixture.weights, latents.means - latents.mean
    # the principal components are those within classes: the directions between class means are added
    basis = latents.components
    beyond = gap - (gap @ basis) @ basis.T
    _, size, more = np.linalg.svd(np.sqrt(share)[:, None] * beyond, full_matrices=False)
    basis = np.concatenate([basis, more[size > 1e-6].T], axis=1)
    n_points = int(np.clip(_ALL_POINTS // n_classes, _FEWEST_POINTS, _MOST_POINTS))
    points = np.zeros((n_classes, n_points, basis.shape[1]), dtype=np.float32)
    common = np.tensordot(share, latents.mixture.covariances, 1)
    for k in range(n_classes):  # a class that the noise hides has the common Gaussian
        at = np.flatnonzero(present == k)
        covariance = latents.mixture.covariances[at[0]] if len(at) else common
        white = antithetic(rng, n_points, len(covariance))
        points[k, :, : len(covariance)] = white @ root(covariance).T
        if len(at):
            points[k] += gap[at[0]] @ basis
    return basis, points


def _spread_within(scores, total, explained):
    """Standard deviation of each score given the latent, by its variance and the part that the latent explains."""
    known = np.ones(len(total))
    starts = np.concatenate([[0], np.cumsum(scores.n_levels)])
    for first, start in zip(scores.first, starts):
        known[first] = 1.0 if not np.isnan(scores.shares[start]) else np.clip(total[first], 0.05, 3.0)
    return np.sqrt(np.maximum(known - explained, _SMALLEST_SPREAD**2))


def _present_levels(scores, mean, share_sd, optional):
    """Levels that may be drawn: not optional, or with a released share that the noise does not hide.

    The shares of ordered levels are not released: where all of them may be noise, all may be drawn.
    """
    starts = np.concatenate([[0], np.cumsum(scores.n_levels)])
    shown, optional = np.zeros(starts[-1]), np.array(optional, dtype=bool)
    for bins, start in zip(scores.bins, starts):
        optional[start : start + bins] &= not optional[start : start + bins].all()
    for first, bins, start, stop in zip(scores.first, scores.bins, starts, starts[1:]):
        if not bins:
            shown[start:stop] = mean[first : first + stop - start]
        elif stop - start > bins:
            shown[stop - 1] = mean[first + 1]
    present = ~(optional & (shown < np.maximum(3 * share_sd, 1e-9)))
    for start, stop in itertools.pairwise(starts):  # of levels that may all be absent, the likeliest stays
        present[start + np.argmax(shown[start:stop])] |= not present[start:stop].any()
    return present


def _calibrated(scores, drawn, shares, spread):
    """Upper ends of ordered levels at which the model's share of each level is the released one."""
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
