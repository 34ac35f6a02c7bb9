"""Mixtures of product distributions for tables: sampling and scoring, and the fit to released tables.

The prior of a class is a mixture of equally likely points of a latent space (support points). A decoder maps a point to
one distribution a block: a softmax of an affine map. Given the point, the blocks are independent, so the expected pair
tables of a class of n rows are exactly n P^T P / n_points: sampling levels from the decoder's distributions loses
nothing. The fit starts several times; each restart has its own points and decoder, and the model is their mixture.

Fitting is post-processing. The latent space is that of the DP-PCA of the one-hot table, and the points of a class start
as draws of its Gaussian there. Points and decoder then minimise the squared error of the released tables, weighted by
the known noise. What a fit makes of the noise depends on where it starts; what it makes of the rows does not. The mean
of several restarts is therefore nearer to the rows than any one of them. Their mixture is then fitted to denoised
tables (see `ThinnedTables`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import logsumexp, ndtri

from ..mechanisms import ClassContrasts
from ..mechanisms._selection import occupied_cells
from ..tabular._binning import stratified_uniforms
from ..utils.numerics import one_blas_thread
from .balanced_rows import balanced_levels, draw_levels
from .sides import pairs_from_sides

# Bias of a level that is never drawn: its softmax, and so its gradient, is exactly 0.
_ABSENT = -1e4
# Least probability of a level in the initial decoder.
_SMALLEST_PROBABILITY = 1e-4
# Support points of a class and restart; fewer where all classes together would have more than the second number.
_MOST_POINTS, _ALL_POINTS, _FEWEST_POINTS = 300, 2400, 50
# Log odds between the halves of a column of a triple, and their mean, a unit of latent space apart, at the start.
_SPREAD = 2.0
# Step sizes of Adam, for noisy and for denoised tables; each falls to 3/10 after half of the steps and to 1/10 after
# four fifths.
_LEARNING_RATE, _LAST_RATE = 0.08, 0.05
# Multiplications of a fit in its larger products, about ten seconds; and the fewest steps, whatever they take.
_MOST_PRODUCTS, _FEWEST_STEPS = 2e11, 60
# Chance that the noise makes any of the optional levels look present when all of them are empty.
_LEVEL_TOO_MANY = 1e-3


class ProductMixture:
    """A mixture, in each class, of distributions under which the blocks are independent.

    A subclass has `n_levels`, `class_counts` and ``mixture(k)``: the probability of each level at each support point of
    class k, shape (n_points, n_columns_encoded). All points of a class are equally likely.
    """

    @property
    def offsets(self):
        """First column of each block, and the end."""
        return _offsets(self.n_levels)

    def likelihood(self, levels):
        """Probability that a row of each support point has given levels in every block, shape (n_classes, n_points).

        `levels`, shape (n_columns_encoded,), is the share of each level that counts, 0 to 1.
        """
        starts = self.offsets[:-1]
        restricted = np.add.reduceat(levels < 1, starts) > 0  # the other blocks have probability 1
        rows = []
        for k in range(len(self.class_counts)):
            chance = np.add.reduceat(self.mixture(k) * levels, starts, axis=1)
            rows.append(np.prod(chance[:, restricted], axis=1, dtype=np.float64))
        return np.stack(rows)

    def sample(self, class_codes, rng, levels=None):
        """Draw level codes of shape (n_samples, n_blocks) for rows of given classes.

        Every support point of a class is drawn as often as its share says. Levels are balanced: the tables of such a
        sample are nearer to the model's than those of independent draws. With `levels` (see `likelihood`), rows are
        drawn conditionally on having those levels.
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

    def _draw(self, p, points, rng):
        """Levels of rows whose support points are `points`, sorted."""
        n, offsets = len(points), self.offsets
        codes = np.empty((n, len(self.n_levels)), dtype=np.int64)
        for i in range(len(self.n_levels)):
            codes[:, i] = draw_levels(p[:, offsets[i] : offsets[i + 1]], points, stratified_uniforms(points, rng))
        return balanced_levels(codes, points, p, self.n_levels, rng)

    def score_samples(self, codes, class_codes, chunk_rows=2048):
        """Exact log-likelihood of rows and their classes, shape (n_samples,)."""
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
class TableModel(ProductMixture):
    """Released state of a model fitted to tables: encoding, sampling and scoring need nothing else."""

    n_levels: np.ndarray  # int (n_blocks,)
    class_counts: np.ndarray  # (n_classes,); released row counts, non-negative
    mean: np.ndarray  # (n_columns_encoded,)
    # (n_latent, n_columns_encoded); the latent of a one-hot row x is ``(x - mean) @ components.T / scale``
    components: np.ndarray
    scale: np.ndarray  # (n_latent,)
    # class_means, class_covariances: (n_classes, n_latent), (n_classes, n_latent, n_latent); one Gaussian a class in
    # that space
    class_means: np.ndarray
    class_covariances: np.ndarray
    points: np.ndarray  # (n_restarts, n_classes, n_points, n_latent); support points; "particles" in a release file
    # weight, bias: (n_restarts, n_latent, n_columns_encoded), (n_restarts, n_columns_encoded); decoder of each restart:
    # block softmax of ``z @ weight + bias``
    weight: np.ndarray
    bias: np.ndarray

    @property
    def present(self):
        """Levels that may be drawn: bool array of shape (n_columns_encoded,)."""
        return np.asarray(self.bias[0]) > _ABSENT / 2

    def encode(self, one_hot, product=np.matmul):
        """Latent of encoded rows, shape (n_samples, n_latent); `product`: of rows less the mean, and a matrix."""
        return product(one_hot - self.mean, self.components.T / self.scale)

    def decode(self, latent):
        """Probability of each level, shape (n_samples, n_columns_encoded)."""
        offsets, block = self.offsets, block_of_level(self.n_levels)
        total = sum(block_softmax(latent @ w + b, offsets, block) for w, b in zip(self.weight, self.bias))
        return total / len(self.weight)

    def mixture(self, k):
        """Probability of each level at each point of class `k`, shape (n_restarts * n_points, n_columns_encoded)."""
        offsets, block = self.offsets, block_of_level(self.n_levels)
        restarts = zip(self.points[:, k], self.weight, self.bias)
        return np.concatenate([block_softmax(z @ w + b, offsets, block) for z, w, b in restarts])

    def to_state(self):
        """Return arrays for a release file."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"particles" if name == "points" else name: value for name, value in state.items()}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        return cls(**{"points" if name == "particles" else name: value for name, value in state.items()})


# ---- the fit -------------------------------------------------------------------------------------------------------
def fit_tables(
    released, noise_sd, contrasts, rng, *, classes=None, optional=None, n_components=30, n_restarts=5, n_iter=200,
    progress=None, triples=None, sides=None, undrawn=None,
):  # fmt: skip
    """Fit prior and decoder to released one-way and two-way tables, and interactions: post-processing.

    `released`, `noise_sd`: tables in contrasts, and the standard deviation of the noise on each.
    `rng`: draws the initial support points and the noise of `ThinnedTables`; the noise of the release is in `released`.
    `classes`: how the classes of the two-way tables were measured. None: each of them alone.
    `optional`, `undrawn` (n_columns_encoded,): levels that the data need not have, and those that are never drawn; see
        `consistent_marginals`.
    `n_components`: latent dimensions; at most the number of levels less that of blocks.
    `n_restarts`: fits from different initial points; fewer where levels are many.
    `n_iter`: steps of Adam in each restart, and again of all restarts together (in each of them, if there are no
        denoised tables); fewer where levels are many.
    `progress`: wraps the iterable of steps (a tqdm bar).
    `triples`: interactions of three columns. Those that a fit to the tables alone misses by more than the noise take
        part in the fit.
    `sides` (n_columns_encoded,): see `residual_plan`.
    """
    n_levels = contrasts.n_levels
    classes = ClassContrasts(len(released.count)) if classes is None else classes
    counts, marginals, absent = consistent_marginals(released, noise_sd, contrasts, optional, undrawn)
    measured = released.pairs is not None
    if released.sides is not None:
        released, noise_sd = pairs_from_sides(released, noise_sd, contrasts, sides, counts, marginals)
    prior = _gaussian_prior(contrasts.tables(released), counts, marginals, n_components, n_levels, absent)
    if released.pairs is None or len(n_levels) < 2:
        restarts = [_one_point_a_class(marginals, prior.class_means, counts)]
        _silence(restarts, absent)
    else:
        size, n_restarts, n_iter, denoise = _effort(len(counts), len(absent), n_restarts, n_iter, measured)
        restarts = _initial_restarts(prior, size, n_restarts, rng)
        _silence(restarts, absent)
        loss = _TableLoss(released, noise_sd, contrasts, classes, counts)
        tables = released.pairs, noise_sd.pairs, contrasts, classes
        thinned = ThinnedTables(*tables, n_restarts, rng) if denoise else None
        fitted = 0 if triples is None else _find_triples(triples, restarts, loss, thinned, n_iter, progress, rng)
        steps = _steps((n_restarts - fitted + n_restarts * denoise) * n_iter, progress)
        _descend_each(restarts[fitted:], loss, thinned, n_iter, steps, first=fitted)
        if denoise:
            expected = (loss.expected(*restart) for restart in restarts)
            loss.set_pairs(thinned.denoised(expected, counts, marginals, loss.pair_weight, loss.classes))
            thinned = None  # its draws take memory
            _descend_together(restarts, loss, n_iter, steps)
        next(steps, None)  # which ends the bar
    points, weight, bias = (np.stack(parts) for parts in zip(*restarts))
    moments = (prior.mean, prior.components, prior.scale, prior.class_means, prior.class_covariances)
    return TableModel(n_levels, counts, *moments, points, weight, bias)


def _effort(n_classes, n_columns_encoded, n_restarts, n_iter, measured):
    """Support points, restarts, steps, and whether tables are denoised: as time allows.

    They are denoised if two-way tables were `measured`, and there is time for two restarts.
    """
    size = int(np.clip(_ALL_POINTS // n_classes, _FEWEST_POINTS, _MOST_POINTS))
    affordable = int(_MOST_PRODUCTS / (2 * n_classes * size * n_columns_encoded**2))
    if measured and n_restarts > 1 and affordable // 2 >= 2 * _FEWEST_STEPS:
        n_restarts = int(np.clip(affordable // 2 // n_iter, 2, n_restarts))
        return size, n_restarts, min(n_iter, affordable // 2 // n_restarts), True
    n_iter *= 2
    n_restarts = 1 if measured else int(np.clip(affordable // n_iter, 1, n_restarts))
    return size, n_restarts, min(n_iter, max(affordable, _FEWEST_STEPS)), False


def _find_triples(triples, restarts, loss, thinned, n_iter, progress, rng):
    """Fit the first restart, and let the triples that it misses take part in the loss; return how many are fitted."""
    first = tuple(part.copy() for part in restarts[0])
    steps = _steps(n_iter, progress)
    _descend_each([first], loss, thinned, n_iter, steps)
    next(steps, None)
    missed = triples.missed_by(_mixtures(first, loss.n_levels), loss.counts)
    if not len(missed.triples):
        restarts[0] = first
        return 1
    loss.triples = missed
    _spread_columns(restarts, missed, rng)
    return 0


def _steps(n, progress):
    """Iterator over so many steps, which a bar counts."""
    return iter(range(n) if progress is None else progress(range(n)))


def _descend_each(restarts, loss, thinned, n_iter, steps, first=0):
    """Minimise the loss of each restart to its tables, in place; `first` is the number of the first one."""
    with one_blas_thread():
        for number, restart in enumerate(restarts, first):
            if thinned is not None:
                loss.set_pairs(thinned.to_fit(number))
            descent = _Adam(restart, n_iter, _LEARNING_RATE)
            for at, _ in enumerate(itertools.islice(steps, n_iter)):
                descent.move(at, *loss.gradients([restart]))


def _descend_together(restarts, loss, n_iter, steps):
    """Minimise the loss of the mixture of all restarts, in place: a step for each of them at once."""
    descents = [_Adam(restart, n_iter, _LAST_RATE) for restart in restarts]
    with one_blas_thread():
        for at in range(n_iter):
            if not list(itertools.islice(steps, len(restarts))):
                break
            for descent, gradients in zip(descents, loss.gradients(restarts)):
                descent.move(at, gradients)


def _initial_restarts(prior, size, n_restarts, rng):
    """Support points drawn from the Gaussians of the classes, and one decoder for all restarts."""
    # half the first-order expansion of log(mean + components^T z) about the mean: its exponential stays small
    weight = (0.5 * prior.components * prior.scale[:, None] / np.maximum(prior.mean, 0.02)).astype(np.float32)
    bias = np.log(np.maximum(prior.mean, _SMALLEST_PROBABILITY)).astype(np.float32)
    restarts = []
    for _ in range(n_restarts):
        gaussians = zip(prior.class_means, prior.class_covariances)
        drawn = [mean + antithetic(rng, size, len(mean)) @ root(covariance).T for mean, covariance in gaussians]
        restarts.append((np.stack(drawn).astype(np.float32), weight.copy(), bias.copy()))
    return restarts


def _spread_columns(restarts, triples, rng):
    """Let the halves of the columns of triples differ from point to point, in separate latent directions.

    Where two columns of a triple are the same at all points, its gradient with respect to the third is zero: columns
    that are independent in pairs would stay as they are.
    """
    halves = triples.contrasts[:, :, 0]
    for _, weight, _ in restarts:
        low = np.arange(len(weight) // 2, len(weight))  # those of least variance
        directions = rng.standard_normal((len(low), halves.shape[1]))
        if halves.shape[1] <= len(low):
            directions = np.linalg.qr(directions)[0]
        directions /= np.linalg.norm(directions, axis=0)
        weight[low] += (_SPREAD * directions @ halves.T).astype(np.float32)


def _mixtures(restart, n_levels):
    """Probability of each level at each point, one array a class."""
    points, weight, bias = restart
    return [block_softmax(z @ weight + bias, _offsets(n_levels), block_of_level(n_levels)) for z in points]


def _one_point_a_class(marginals, class_means, counts):
    """One support point a class, and the decoder that gives the marginals of the class there."""
    log_p = np.log(np.maximum(marginals, 1e-9))
    affine = np.column_stack([class_means, np.ones(len(class_means))])
    # where the latents are too few for all classes, those that the noise hides give way
    weight = np.where(counts > 0, 1.0, 1e-6)[:, None]
    solution = np.linalg.lstsq(weight * affine, weight * log_p, rcond=None)[0]
    return class_means[:, None, :], solution[:-1], solution[-1]


def _silence(restarts, absent):
    for _, weight, bias in restarts:
        weight[:, absent], bias[absent] = 0.0, _ABSENT


def with_undrawn(absent, undrawn, n_levels):
    """The absent levels: those of `absent`, but in a block with levels of `undrawn` exactly the latter."""
    block = block_of_level(n_levels)
    return np.where(np.bincount(block, undrawn)[block] > 0, undrawn, absent)


def consistent_marginals(released, noise_sd, contrasts, optional=None, undrawn=None):
    """Estimate class counts and class marginals, every block of which sums to one, and find the absent levels.

    Every part of the tables is released once, so nothing is averaged: the one-way tables are those of their parts,
    projected onto the simplex.

    `released`, `noise_sd`, `contrasts`: see `fit_tables`.
    `optional` (n_columns_encoded,): levels that the data need not have ("missing", "other", bins that may be noise).
        Where the released count over all classes is below three standard deviations of its noise (up to four where such
        levels are many), the level is absent: it is never drawn. Ordered levels also stay where the counts of a run of
        them show rows. One level of each block stays.
    `undrawn` (n_columns_encoded,): levels that are never drawn, by another release: absent, whatever the tables show.
    Returns `counts` (n_classes,); `marginals` (n_classes, n_columns_encoded); `absent` (n_columns_encoded,).
    """
    starts = contrasts.level_starts
    estimate = contrasts.tables(released._replace(pairs=None)).one_way
    counts = np.asarray(released.count, dtype=np.float64)
    # a class that the noise hides is absent, unless all are
    hidden = counts < 3 * _variance(noise_sd.count[0]) ** 0.5
    counts = np.where(hidden & ~hidden.all(), 0.0, np.maximum(counts, 0.0))
    absent = np.zeros(starts[-1], dtype=bool)
    if optional is not None:
        noise = (len(counts) * contrasts.table_variances(noise_sd._replace(pairs=None)).one_way[0]) ** 0.5
        absent = _absent(estimate.sum(axis=0), noise, np.asarray(optional, dtype=bool), contrasts)
    if undrawn is not None:
        absent = with_undrawn(absent, undrawn, contrasts.n_levels)
    marginals = np.zeros_like(estimate)
    for k in range(len(counts)):
        for start, stop in itertools.pairwise(starts):
            kept = start + np.flatnonzero(~absent[start:stop])
            marginals[k, kept] = _to_simplex(estimate[k, kept] / max(counts[k], 1.0))
    return counts, marginals, absent


def _absent(totals, noise, optional, contrasts):
    """Optional levels that have no rows as far as the counts over all classes show; see `consistent_marginals`.

    A level is judged by its own count, and an ordered one also together with its neighbours: the rows beside a spike
    may be spread over many bins, each of which the noise hides.
    """
    deviations = max(3.0, -ndtri(_LEVEL_TOO_MANY / max(np.count_nonzero(optional), 1)))
    # exact counts are whole
    absent = optional & (totals < np.where(noise > 0, deviations * noise, 0.5))
    ordered = [
        (start, start + bins)
        for start, bins in zip(contrasts.level_starts, contrasts.bins)
        if absent[start : start + bins].any()
    ]
    for start, stop in ordered:
        sd = noise[start:stop].mean()
        if sd > 0:
            # where all bins may be noise, some of them hold the rows; bins far from all others hold few, if any
            prior = {"caution": 0.0} if optional[start:stop].all() else {"n_columns": len(ordered)}
            occupied = occupied_cells(totals[start:stop], np.ones(stop - start), sd, **prior)
            absent[start:stop] &= occupied < 0.5
    for start, stop in itertools.pairwise(contrasts.level_starts):
        if absent[start:stop].all():
            absent[start + np.argmax(totals[start:stop])] = False
    return absent


@dataclass(frozen=True, eq=False)
class _GaussianPrior:
    """One Gaussian a class in the latent space; see `TableModel` for the arrays."""

    mean: np.ndarray
    components: np.ndarray
    scale: np.ndarray
    class_means: np.ndarray
    class_covariances: np.ndarray


def _gaussian_prior(released, counts, marginals, n_components, n_levels, absent):
    """DP-PCA of the one-hot table, and one Gaussian a class in its space; entries within a block are structural."""
    share = counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))
    mean = share @ marginals
    n_components = int(np.clip(n_components, 1, max(1, len(mean) - len(n_levels))))
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
    class_means, class_covariances = shift @ components.T, np.array([r @ r.T for r in roots])
    second = np.einsum("c,cii->i", share, class_covariances) + share @ class_means**2
    # a direction whose variance the noise hides would otherwise make the latents of real rows very large
    scale = np.sqrt(np.maximum(second, max(1e-3 * second.max(), 1e-9)))
    return _GaussianPrior(mean, components, scale, class_means / scale, class_covariances / np.outer(scale, scale))


class _TableLoss:
    """Squared error of expected against released tables, in contrasts, weighted by the known noise."""

    def __init__(self, released, noise_sd, contrasts, classes, counts):
        self.offsets, self.block = contrasts.level_starts, block_of_level(contrasts.n_levels)
        self.member = (self.block == np.arange(len(contrasts.n_levels))[:, None]).astype(np.float32)
        self.counts, self.triples, self.noise_of_classes = counts, None, classes
        # a class that the noise hides has no rows to describe: its points stay where its Gaussian put them
        self.classes = np.flatnonzero(counts) if np.any(counts) else np.arange(len(counts))
        levels = (slice(*ends) for ends in itertools.pairwise(contrasts.level_starts))
        own = (slice(*ends) for ends in itertools.pairwise(contrasts.starts))
        self.contrasts = list(zip(levels, own, (matrix.astype(np.float32) for matrix in contrasts.matrices)))
        self.n_levels, self.one_way = contrasts.n_levels, released.one_way.astype(np.float32)
        self.set_pairs(released.pairs)
        self.one_way_weight = (1 / _variance(noise_sd.one_way[0])).astype(np.float32)
        across = contrasts.block[:, None] != contrasts.block
        self.pair_weight = np.where(across, 1 / _variance(noise_sd.pairs[0]), 0.0).astype(np.float32)

    def set_pairs(self, pairs):
        """Take other two-way tables, of the same noise."""
        self.pairs = pairs.astype(np.float32)

    def expected(self, points, weight, bias):
        """Two-way tables of one restart in contrasts, shape (n_classes, n_contrasts, n_contrasts)."""
        tables = np.zeros(self.pairs.shape)
        for k in self.classes:
            centred = self._centred(self._probabilities(weight.T @ points[k].T + bias[:, None]))
            tables[k] = max(self.counts[k], 1.0) / len(points[k]) * (centred @ centred.T)
        return np.where(self.pair_weight > 0, tables, 0.0)

    def gradients(self, restarts):
        """Gradients of the loss of the mixture of restarts: (points, weight, bias) of each."""
        found = [tuple(np.zeros_like(part) for part in restart) for restart in restarts]
        probabilities, centred, errors = {}, {}, -self.pairs
        for k in self.classes:
            probabilities[k] = np.concatenate(
                [self._probabilities(weight.T @ points[k].T + bias[:, None]) for points, weight, bias in restarts],
                axis=1,
            )
            centred[k] = self._centred(probabilities[k])
            errors[k] += self._rows_of_a_point(k, centred[k]) * (centred[k] @ centred[k].T)
        errors = self.noise_of_classes.weighted(errors)
        for k, p in probabilities.items():
            each = self._rows_of_a_point(k, p)
            error = each * ((errors[k] * self.pair_weight) @ centred[k])
            error += (each * self.one_way_weight * (each * centred[k].sum(axis=1) - self.one_way[k]))[:, None]
            gradient = np.empty_like(p)
            for levels, own, matrix in self.contrasts:
                gradient[levels] = matrix @ error[own]
            if self.triples is not None:
                gradient += self.triples.gradient(p.T, k, self.counts[k]).T
            gradient *= p
            gradient -= p * (self.member @ gradient)[self.block]
            for (points, weight, _), of_restart, part in zip(
                restarts, found, np.split(gradient, len(restarts), axis=1)
            ):
                of_restart[0][k] = (weight @ part).T
                of_restart[1][:] += (part @ points[k]).T
                of_restart[2][:] += part.sum(axis=1)
        return found

    def _rows_of_a_point(self, k, p):
        """Rows of a class for which one of its points stands."""
        return np.float32(max(self.counts[k], 1.0)) / p.shape[1]

    def _centred(self, p):
        """Contrasts of the probabilities of the levels at each point."""
        centred = np.empty((len(self.one_way_weight), p.shape[1]), dtype=p.dtype)
        for levels, own, matrix in self.contrasts:
            centred[own] = matrix.T @ p[levels]
        return centred

    def _probabilities(self, logits):
        """Softmax within each block, shape (n_levels, n_points): sums over few levels are fast along the points."""
        top = np.stack([logits[start:stop].max(axis=0) for start, stop in itertools.pairwise(self.offsets)])
        p = np.exp(logits - top[self.block])
        p /= (self.member @ p)[self.block]
        return p


class _Adam:
    """Adam with a falling step size; moves parameters in place."""

    def __init__(self, parameters, n_iter, rate):
        self.parameters, self.n_iter, self.rate = parameters, n_iter, rate
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
    # an exact count is a whole number: half a row as the least noise keeps weights finite without privacy
    return np.maximum(np.asarray(sd, dtype=np.float64), 0.5) ** 2


def _to_simplex(x):
    """Nearest probability vector."""
    ordered = np.sort(x)[::-1]
    excess = np.cumsum(ordered) - 1
    last = np.flatnonzero(ordered - excess / np.arange(1, len(x) + 1) > 0)[-1]
    return np.maximum(x - excess[last] / (last + 1), 0.0)


# ---- shared by the models of tables and of scores ------------------------------------------------------------------
def _offsets(n_levels):
    return np.concatenate([[0], np.cumsum(n_levels)])


def block_of_level(n_levels):
    """Block of each column of the encoded matrix."""
    return np.repeat(np.arange(len(n_levels)), n_levels)


def block_softmax(logits, offsets, block):
    """Softmax within each block, shape of `logits`."""
    starts = offsets[:-1]
    p = np.exp(logits - np.maximum.reduceat(logits, starts, axis=1)[:, block])
    return p / np.add.reduceat(p, starts, axis=1)[:, block]


def root(covariance):
    """Matrix R such that R R^T is the nearest positive semi-definite matrix."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def antithetic(rng, size, n_components):
    """Standard normal draws in pairs of opposites, shape (size, n_components)."""
    half = rng.standard_normal(((size + 1) // 2, n_components))
    return np.concatenate([half, -half])[:size]


def _spread(n, size, weights, rng):
    """Support point of each of n rows, sorted: in equal numbers, or as `weights` say, within a row of each share."""
    if weights is None or not weights.sum() > 0:
        return np.sort(rng.permutation(size)[np.arange(n) % size])
    shares = np.cumsum(weights / weights.sum())
    order = np.searchsorted(shares, (np.arange(n) + rng.random()) / max(n, 1), side="right")
    return np.minimum(order, size - 1)


# ---- denoised two-way tables: post-processing of one release ---------------------------------------------------------
# c: the tables to which a restart is fitted have 1 + c^2 times the variance of the noise.
_THINNING = 0.5
# Prior weight of the factor of two columns for that of two of their parts, and of the factor of all columns for that of
# two columns: a sum of squared interactions, each divided by the variance of its noise.
_PRIOR = 5.0


class ThinnedTables:
    """Two-way tables in contrasts, whose noise is divided in two for each restart, by a different draw.

    A model that is fitted to noisy tables describes a part of their noise, most of all where two columns hardly depend
    on each other. Tables with independent noise show how much. One release gives both, by data thinning (Neufeld et
    al., JMLR 2024): if e is the noise of the release, and f is drawn from the same distribution, then ``e + c f`` and
    ``e - f / c`` are independent. Each restart has a different draw of f. It is fitted to tables with the first noise,
    and compared with tables with the second noise. The comparison estimates the inner product of the interactions of
    the model and the true ones. Divided by the squared norm of the interactions of the model, it is the factor that
    brings them nearest to the true ones. (The initial points of a restart depend on e. This raises the factor by .01 at
    most.)

    With little noise, a model misses more than the noise explains. This part is added to the tables.

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
