"""A latent mixture for tables as it is released: encoding, sampling, conditional sampling and scoring.

The prior of a class is a mixture of equally likely latent points ("particles"); a decoder maps a point to one
distribution a block, a softmax of an affine map. Given the point the blocks are independent, so the model's expected
pair tables of a class of n rows are n P^T P / n_particles exactly: sampling levels from the decoder's distribution
loses nothing. There are several decoders ("members"), each with particles of its own, and the model is their mixture.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import logsumexp, ndtri
from threadpoolctl import threadpool_limits

__all__ = [
    "ABSENT",
    "MixtureOfProducts",
    "ParticleModel",
    "antithetic",
    "block_of_level",
    "block_softmax",
    "root",
]

_SMALLEST_PROBABILITY = 1e-4  # of a level where the decoder starts
_MOST_PRODUCTS = 2e11  # of a fit, in multiplications of its larger products; some seconds
_FEWEST_STEPS = 60
_LEVEL_TOO_MANY = 1e-3  # chance that the noise makes any of the optional levels, all of them empty, look present
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


def fit_particles(
    released,
    noise_sd,
    n_levels,
    rng,
    *,
    optional=None,
    n_components=30,
    n_members=5,
    n_particles=300,
    n_iter=300,
    learning_rate=0.08,
    particle_budget=2400,
    progress=None,
):
    """Fit prior and decoder to released tables.

    Parameters
    ----------
    released, noise_sd : OneHotMoments
        Noisy counts, and the standard deviation of the noise on each.
    n_levels : array of int of shape (n_blocks,)
    rng : numpy.random.Generator
        Initial particles only; the noise is already in `released`.
    optional : array of bool of shape (n_columns_encoded,), default=None
        Levels that the data need not have ("missing", "other", bins far from all others): where the released count,
        over all classes, is below three standard deviations of its noise (up to four where such levels are many), the
        level is taken for absent and never drawn.
    n_components : int, default=30
        Latent dimensions, at most the number of levels less that of blocks.
    n_members : int, default=5
        Fits from different starts; fewer where levels are many.
    n_particles : int, default=300
        Of a class and member; fewer where all classes together would exceed `particle_budget`.
    n_iter, learning_rate
        Steps of Adam, fewer where levels are many; the rate falls to 3/10 after half of them and to 1/10 after four
        fifths.
    progress : callable, default=None
        Wraps the iterable of steps (a tqdm bar).

    Returns
    -------
    ParticleModel
    """
    n_levels = np.asarray(n_levels, dtype=np.int64)
    counts, marginals, absent = consistent_marginals(released, noise_sd, n_levels, optional)
    n_classes = len(counts)
    share = counts / counts.sum() if counts.sum() > 0 else np.full(n_classes, 1 / n_classes)
    mean = share @ marginals
    n_components = int(np.clip(n_components, 1, max(1, len(mean) - len(n_levels))))
    components, class_means, class_covariances = _gaussian_prior(
        released, counts, marginals, share, n_components, n_levels, absent
    )
    second = np.einsum("c,cii->i", share, class_covariances) + share @ class_means**2
    # a direction whose variance drowned would otherwise blow the latents of real rows up
    scale = np.sqrt(np.maximum(second, max(1e-3 * second.max(), 1e-9)))
    class_means, class_covariances = class_means / scale, class_covariances / np.outer(scale, scale)
    size = int(np.clip(particle_budget // n_classes, 50, n_particles))
    # half the first-order expansion of log(mean + components^T z) about the mean: its exponential stays tame
    weight = (0.5 * components * scale[:, None] / np.maximum(mean, 0.02)).astype(np.float32)
    bias = np.log(np.maximum(mean, _SMALLEST_PROBABILITY)).astype(np.float32)
    if released.pairs is None or len(n_levels) < 2:
        members = [_one_particle_a_class(marginals, class_means)]
        _silence(members, absent)
    else:
        affordable = int(_MOST_PRODUCTS / (2 * n_classes * size * len(mean) ** 2))
        n_members = int(np.clip(affordable // n_iter, 1, n_members))
        n_iter = min(n_iter, max(affordable, _FEWEST_STEPS))
        members = []
        for _ in range(n_members):
            starts = zip(class_means, class_covariances)
            drawn = [m + antithetic(rng, size, n_components) @ root(s).T for m, s in starts]
            members.append((np.stack(drawn).astype(np.float32), weight.copy(), bias.copy()))
        _silence(members, absent)
        loss = _TableLoss(released, noise_sd, n_levels, counts)
        steps = range(n_members * n_iter)
        # Small products, thousands of them: threads that wait for one another cost more than they save.
        with threadpool_limits(1, "blas"):
            for step in steps if progress is None else progress(steps):
                member, at = divmod(step, n_iter)
                if at == 0:
                    descent = _Adam(members[member], learning_rate, n_iter)
                descent.move(at, loss.gradients(*members[member]))
    particles, weight, bias = (np.stack(parts) for parts in zip(*members))
    return ParticleModel(
        n_levels, counts, mean, components, scale, class_means, class_covariances, particles, weight, bias
    )


def _silence(members, absent):
    for _, weight, bias in members:
        weight[:, absent], bias[absent] = 0.0, ABSENT


def consistent_marginals(released, noise_sd, n_levels, optional=None):
    """Class counts, class marginals, every block of which sums to one, and the `optional` levels taken for absent.

    Of shapes (n_classes,), (n_classes, n_columns_encoded) and (n_columns_encoded,), the last one bool.
    The marginal of a block is the inverse-variance mean of its one-way table and of the row sums of its two-way tables,
    projected on the simplex; the class count that of the direct count and of the blocks' totals.
    """
    starts = np.concatenate([[0], np.cumsum(n_levels)])
    block = block_of_level(n_levels)
    precision = 1 / _variance(noise_sd.one_way[0])
    value = released.one_way * precision
    if released.pairs is not None:
        variance = _variance(noise_sd.pairs[0])
        for j, (start, stop) in enumerate(itertools.pairwise(starts)):
            weight = np.where(block != j, 1 / (variance[:, start] * n_levels[j]), 0.0)
            value = value + released.pairs[:, :, start:stop].sum(axis=2) * weight
            precision = precision + weight
    estimate = value / precision
    totals = np.add.reduceat(estimate, starts[:-1], axis=1)
    total_precision = 1 / np.add.reduceat(1 / precision, starts[:-1])
    count_precision = 1 / _variance(noise_sd.count[0])
    counts = (totals @ total_precision + released.count * count_precision) / (total_precision.sum() + count_precision)
    # A class that the noise hides is taken for absent, unless all are. Two blocks share the noise of their pair table,
    # so that the variance is up to twice that of independent totals.
    variance = (1 if released.pairs is None else 2) / (total_precision.sum() + count_precision)
    hidden = counts < 3 * variance**0.5
    counts = np.where(hidden & ~hidden.all(), 0.0, np.maximum(counts, 0.0))
    absent = np.zeros(len(block), dtype=bool)
    if optional is not None:
        deviations = max(3.0, -ndtri(_LEVEL_TOO_MANY / max(np.count_nonzero(optional), 1)))
        noise = deviations * (len(counts) / precision) ** 0.5
        noise = np.where(noise_sd.one_way[0] > 0, noise, 0.5)  # exact counts are whole
        over_classes = estimate.sum(axis=0)
        absent = np.asarray(optional, dtype=bool) & (over_classes < noise)
        for start, stop in itertools.pairwise(starts):
            if absent[start:stop].all():
                absent[start + np.argmax(over_classes[start:stop])] = False
    marginals = np.zeros_like(estimate)
    for k in range(len(counts)):
        for start, stop in itertools.pairwise(starts):
            kept = start + np.flatnonzero(~absent[start:stop])
            marginals[k, kept] = _to_simplex(estimate[k, kept] / max(counts[k], 1.0))
    return counts, marginals, absent


def _gaussian_prior(released, counts, marginals, share, n_components, n_levels, absent):
    """DP-PCA of the one-hot table and one Gaussian a class in its space; entries within a block are structural."""
    block = block_of_level(n_levels)
    same = block[:, None] == block[None, :]
    covariances = []
    for k, p in enumerate(marginals):
        outer = np.outer(p, p)
        cross = 0.0 if released.pairs is None else released.pairs[k] / max(counts[k], 1.0) - outer
        covariances.append(np.where(same, np.diag(p) - outer, cross))
    covariances = np.where(absent[:, None] | absent, 0.0, np.array(covariances))
    shift = marginals - share @ marginals
    _, vectors = np.linalg.eigh(np.tensordot(share, covariances, 1) + (shift.T * share) @ shift)
    components = np.ascontiguousarray(vectors[:, ::-1][:, :n_components].T)
    roots = [root(s) for s in components @ covariances @ components.T]
    return components, shift @ components.T, np.array([root @ root.T for root in roots])


def _one_particle_a_class(marginals, class_means):
    """One particle a class and the decoder that gives the class's marginals there: all that one-way tables say."""
    log_p = np.log(np.maximum(marginals, 1e-9))
    affine = np.column_stack([class_means, np.ones(len(class_means))])
    solution = np.linalg.lstsq(affine, log_p, rcond=None)[0]
    return class_means[:, None, :], solution[:-1], solution[-1]


class _TableLoss:
    """Squared error of expected against released tables, weighted by the known noise."""

    def __init__(self, released, noise_sd, n_levels, counts):
        self.offsets, self.block = np.concatenate([[0], np.cumsum(n_levels)]), block_of_level(n_levels)
        self.counts = counts
        self.one_way, self.pairs = released.one_way.astype(np.float32), released.pairs.astype(np.float32)
        self.one_way_weight = (1 / _variance(noise_sd.one_way[0])).astype(np.float32)
        inside = self.block[:, None] == self.block
        self.pair_weight = np.where(inside, 0.0, 1 / _variance(noise_sd.pairs[0])).astype(np.float32)

    def gradients(self, particles, weight, bias):
        """Of the loss, with respect to the three."""
        moved = [np.zeros_like(particles), np.zeros_like(weight), np.zeros_like(bias)]
        for k, z in enumerate(particles):
            each = np.float32(max(self.counts[k], 1.0)) / len(z)  # rows that one particle stands for
            p = block_softmax(z @ weight + bias, self.offsets, self.block)
            gradient = each * (p @ ((each * (p.T @ p) - self.pairs[k]) * self.pair_weight))
            gradient += each * self.one_way_weight * (each * p.sum(axis=0) - self.one_way[k])
            gradient = p * (gradient - np.add.reduceat(p * gradient, self.offsets[:-1], axis=1)[:, self.block])
            moved[0][k] = gradient @ weight.T
            moved[1] += z.T @ gradient
            moved[2] += gradient.sum(axis=0)
        return moved


class _Adam:
    """Moves parameters in place; the rate falls after half of the steps, and again after four fifths."""

    def __init__(self, parameters, rate, n_iter):
        self.parameters, self.rate, self.n_iter = parameters, rate, n_iter
        self.averages = [(np.zeros_like(q), np.zeros_like(q)) for q in parameters]

    def move(self, step, gradients):
        done = step / self.n_iter
        rate = self.rate * (1.0 if done < 0.5 else 0.3 if done < 0.8 else 0.1)
        correction = np.float32(rate * np.sqrt(1 - 0.99 ** (step + 1)) / (1 - 0.9 ** (step + 1)))
        for q, g, (first, second) in zip(self.parameters, gradients, self.averages):
            first += 0.1 * (g - first)
            second += 0.01 * (g * g - second)
            q -= correction * first / (np.sqrt(second) + np.float32(1e-12))


def _variance(sd):
    # an exact count still is a whole number: half a row as the least noise keeps weights finite without privacy
    return np.maximum(np.asarray(sd, dtype=np.float64), 0.5) ** 2


def _to_simplex(x):
    """Nearest probability vector."""
    ordered = np.sort(x)[::-1]
    excess = np.cumsum(ordered) - 1
    last = np.flatnonzero(ordered - excess / np.arange(1, len(x) + 1) > 0)[-1]
    return np.maximum(x - excess[last] / (last + 1), 0.0)


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
