"""Fit a model of the target to synthetic rows, and correct it by one private gradient.

The released tables show how the target depends on each pair of columns. Their noise looks like interactions that the
rows do not have. Two models are fitted to synthetic rows, which is post-processing: an additive logistic regression
with a few pairs and triples of columns, and boosted trees. The first model is the additive one with a part of the pairs
and triples. One clipped gradient of its log-likelihood over the private rows shows where it is wrong, and how much of
the trees it should have. The gradient is released in those directions in which the noise does not hide a change of the
expected size, and the model makes a Newton step along it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from .._types import BoundedSum
from ..tabular._encoder import one_hot
from ..utils.blocks import map_blocks
from .oblivious_trees import boosted_trees
from .target_model import LARGEST_WEIGHT, ColumnCells, TargetModel, covered_classes, looked_up

# Ridge of columns, for 20,000 synthetic rows: the first number, and the second one times the square of the noise of the
# gradient, divided by its bound and by the number of rows: weights describe the noise of the tables, too. Log-loss on
# real rows with it and without: churn .408 and .422 (epsilon 1), Adult .361 and .403 (epsilon .1). Ridge of pairs and
# triples; most steps.
_RIDGE, _RIDGE_OF_NOISE, _RIDGE_OF_TERMS, _MOST_STEPS = 2.0, 5e7, 20.0, 60
# Factor of the pairs and triples in the first model: some of them come from noise. That of the trees is 0, because they
# fit the noise of few rows. With half of them, the log-loss of the corrected model is .444 (churn), .453 (insurance)
# and .486 (loans) in place of .426, .441 and .479; with many rows it is about the same.
_OF_TERMS = 0.25
# Quantile of the norms of the gradients of synthetic rows that is the clipping bound.
_CLIPPED = 0.95
# Expected size of corrections: standard deviations of the weight of a cell and of the two factors.
# With less noise than the last number, the first one is larger: rare cells, which then are seen, change more.
_CHANGE_OF_CELL, _LARGEST_CHANGE, _CHANGE_OF_FACTOR, _USUAL_NOISE = 0.25, 2.0, 0.7, 0.002
# Least variance of a class in a row of the Hessian: real rows are less certain than those to which the model is fitted,
# and a Newton step would be too long.
_LEAST_VARIANCE = 0.1
# Share of the variance of the weight of a cell of numbers, and of its change, that neighbouring cells have in common,
# and the share of the cells of a column beyond which this falls to 1/e. With independent weights in the first
# model, cells of few rows keep the noise of the tables: AUPRC of Adult is .004 less, of churn .007, of insurance .003.
_COMMON, _REACH = 0.8, 0.3
# Squared weight of two-way tables of all classes over that of the differences between classes. Against 1, the two-way
# TVD of Adult, police stops, churn and insurance, and of Adult at epsilon .3, is 4 to 8 % less, and AUROC changes by
# less than .003, which is chance.
_RATIO = 3.0
# Largest noise of a gradient, over its bound and the number of rows, with which the model is made. With a tenth of the
# budget at epsilon 1 these are 1,500 rows.
_MOST_NOISE = 0.008


def hides_target(counts, noise):
    """Whether the noise hides all classes but one, or the gradient: then there is no model of the target.

    `counts` (n_classes,): released row counts. `noise`: standard deviation of the noise of the gradient over its
    clipping bound.
    """
    covered = covered_classes(counts / max(counts.sum(), 1e-12))
    return len(covered) < 2 or hides_gradient(counts[covered].sum(), noise)


def hides_gradient(n_rows, noise):
    """Whether the noise hides the gradient of so many rows; see `hides_target`."""
    return noise > _MOST_NOISE * n_rows


def ratio_of_classes(noise_multipliers, n_rows, neighboring):
    """Weight of the two-way tables of all classes, in which a model of the target tells the classes apart.

    `noise_multipliers`: of each release of the fit, by label. `n_rows`: released, or assumed. Returns the `ratio` of
    `ClassContrasts`, 1 where no model of the target is to be expected (`hides_target` decides later, by released counts
    of the classes).
    """
    noise = noise_multipliers.get("target")
    return 1.0 if noise is None or hides_gradient(n_rows, gradient_noise(noise, neighboring)) else _RATIO


def gradient_noise(noise_multiplier, neighboring):
    """Standard deviation of the noise of the gradient over its clipping bound; public."""
    return noise_multiplier * BoundedSum(0.0, add_or_remove_one=1.0).sensitivity(neighboring)


@dataclass(frozen=True, eq=False)
class TargetStep:
    """A model fitted to synthetic rows, and scale and bound of the private gradient: functions of releases alone."""

    model: TargetModel  # fitted to synthetic rows
    # (model.cells.all_sizes.sum(), 2 * n_covered); what each cell adds to the logits of the pairs and triples, and to
    # those by which the trees differ from the additive model. The first model has a part of the former, and the step
    # may add of both.
    combinations: np.ndarray
    # (n_cells_of_columns + 2 * n_covered, n_directions); from the features of a row (its cells, and its combinations)
    # to the directions of the release
    scale: np.ndarray
    # energy, hessian: (n_directions,); share of each direction in the mean square of the gradients, and the Hessian of
    # the synthetic rows for a change of the expected size
    energy: np.ndarray
    hessian: np.ndarray
    bound: float  # norm to which the gradient of a row is clipped

    def rows(self, values, class_codes):
        """Cells of rows and the place of their class, in one matrix, as `gradients` takes them: shape (n_rows, n + 1).

        The numbers are whole. They are floats because `sum_of_rows` takes one matrix of rows.
        """
        return np.column_stack([self.model.cells.codes(values), self.model.places(class_codes)]).astype(np.float64)

    def gradients(self, rows):
        """Gradient of the log-likelihood of each row, shape (n_rows, n_directions * n_covered).

        A row whose class is not covered has the gradient 0.

        It is a function of the row alone, to the last bit.
        """
        codes, at = rows[:, :-1].astype(np.int64), rows[:, -1].astype(np.int64)
        residual = -softmax(self.model.logits(codes), axis=1)
        known = np.flatnonzero(at >= 0)
        residual[known, at[known]] += 1.0
        residual[at < 0] = 0.0
        return (self._directions(codes)[:, :, None] * residual[:, None, :]).reshape(len(rows), -1)

    def _directions(self, codes):
        """Features of rows in the directions, shape (n_rows, n_directions)."""
        cells = self.model.cells
        n = len(cells.edges)
        found = looked_up(codes[:, :n], cells.sizes, self.scale)
        combined = looked_up(codes, cells.all_sizes, self.combinations)
        for column, row in zip(combined.T, self.scale[int(cells.sizes.sum()) :]):
            found += column[:, None] * row
        return found

    def corrected(self, gradient, sd, row_count):
        """The model after a Newton step along a released gradient.

        `gradient` (n_directions * n_covered,): noisy sum of the clipped gradients, in their units. `sd`: standard
        deviation of the noise on each entry. `row_count`: released number of rows.
        """
        k = len(self.model.classes)
        gradient = gradient.reshape(-1, k) / row_count
        gradient = gradient - gradient.mean(axis=1, keepdims=True)
        # the posterior mean, where changes have their expected size and the noise is known
        noise = (k - 1) / k * (sd / row_count) ** 2
        gain = self.hessian / (self.energy * self.hessian + noise)
        # moving the logits of all classes alike changes nothing: of two classes the steps of both count, each for half
        step = (k - 1) / k * self.scale @ (gain[:, None] * gradient)
        n = int(self.model.cells.sizes.sum())
        weights = self.model.weights + self.combinations @ step[n:]
        weights[:n] += step[:n]
        return replace(self.model, weights=np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT))


def initial_step(values, class_codes, covered, is_number, n_levels, noise):
    """Fit a model of the target to synthetic rows, and prepare the private step: post-processing.

    `values` (n_rows, n_columns): of synthetic rows: numbers, NaN where missing, and levels of categories.
    `class_codes`: shape (n_rows,).
    `covered`: codes of the covered classes. With one class, all gradients are 0.
    `is_number`: shape (n_columns,).
    `n_levels` (n_columns,): of the columns of categories.
    `noise`: standard deviation of the noise of the release over the clipping bound and the released number of rows.
    """
    inside = np.isin(class_codes, covered)
    values, labels = values[inside], np.searchsorted(covered, class_codes[inside])
    hot = np.eye(len(covered))[labels]
    ridge = _RIDGE + _RIDGE_OF_NOISE * noise**2
    model, combinations = _first_model(values, hot, covered, is_number, n_levels, ridge)
    codes = model.cells.codes(values)
    n = len(model.cells.edges)
    chances = softmax(model.logits(codes), axis=1)
    combined = looked_up(codes, model.cells.all_sizes, combinations).astype(np.float32)
    features = np.concatenate([one_hot(codes[:, :n], model.cells.sizes), combined], axis=1)
    least = _LEAST_VARIANCE if len(covered) > 1 else 0.0
    variances = np.maximum(chances * (1 - chances), least).sum(axis=1).astype(np.float32) / len(covered)
    hessian = ((features * variances[:, None]).T @ features / len(features)).astype(np.float64)
    scale, energy, hessian = _directions(hessian, _expected_changes(model.cells, combined.shape[1], noise), noise)
    step = TargetStep(model, combinations, scale, energy, hessian, 1.0)
    rows = step.rows(values, covered[labels])
    norms = [np.linalg.norm(part, axis=1) for _, part in map_blocks(step.gradients, rows, 1024)]
    return replace(step, bound=max(float(np.quantile(np.concatenate(norms), _CLIPPED)), 1e-12))


def _first_model(values, hot, covered, is_number, n_levels, ridge):
    """The first model, and the `combinations` of which it has a part."""
    k = len(covered)
    cells = ColumnCells.of_rows(values, is_number, n_levels)
    prior = np.log((hot.sum(axis=0) + 1) / (len(hot) + k))
    codes = cells.codes(values)
    columns = one_hot(codes, cells.sizes)
    # weights are `root` times independent ones, and the ridge is on the latter
    root = _correlation_root(cells)
    weights = root @ _logistic(columns @ root.astype(np.float32), hot, np.broadcast_to(prior, hot.shape), ridge)
    logits = prior + columns @ weights
    chances = softmax(logits, axis=1)
    cells = cells.with_terms(codes, hot - chances, chances * (1 - chances))
    n, leaves = len(cells.edges), np.zeros((0, k))
    terms = one_hot(cells.codes(values)[:, n:], cells.all_sizes[n:])
    interactions = _logistic(terms, hot, logits, _RIDGE_OF_TERMS)
    if n and k > 1:
        trees, leaves = boosted_trees(codes, _ranks(cells, weights), hot, prior)
        cells = replace(cells, trees=trees)
    of_terms = np.concatenate([np.zeros_like(weights), interactions, np.zeros_like(leaves)])
    of_trees = np.concatenate([-weights, np.zeros_like(interactions), leaves])
    whole = np.concatenate([weights, np.zeros_like(interactions), np.zeros_like(leaves)])
    model = TargetModel(covered, cells, prior, whole + _OF_TERMS * of_terms)
    return model, np.concatenate([part - part.mean(axis=1, keepdims=True) for part in (of_terms, of_trees)], axis=1)


def _ranks(cells, weights):
    """Rank of each cell of each column: numbers as they are, categories by what they add to the logits."""
    starts, ranks = np.cumsum(cells.sizes) - cells.sizes, []
    for edges, start, size in zip(cells.edges, starts, cells.sizes):
        rank = np.arange(size)
        if edges is None:
            mine = weights[start : start + size] - weights[start : start + size].mean(axis=0)
            along = mine @ np.linalg.svd(mine, full_matrices=False)[2][0]
            rank[np.argsort(along, kind="stable")] = np.arange(size)
        ranks.append(rank)
    return tuple(ranks)


def _expected_changes(cells, n_combined, noise):
    """Root of the covariance of the changes of weights that are expected: those of close numbers are alike."""
    root = _correlation_root(cells)
    n = len(root)
    changes = np.eye(n + n_combined) * _CHANGE_OF_FACTOR
    changes[:n, :n] = root * min(_CHANGE_OF_CELL * max(_USUAL_NOISE / max(noise, 1e-12), 1.0) ** 1.5, _LARGEST_CHANGE)
    return changes


def _correlation_root(cells):
    """Root of the correlation matrix of the weights of all cells of columns, as it is expected."""
    root, start = np.eye(int(cells.sizes.sum())), 0
    for edges, size in zip(cells.edges, cells.sizes):
        if edges is not None:
            numbers = np.arange(size - 1)  # the last cell is that of missing values
            apart = np.abs(numbers[:, None] - numbers) / max(size - 2, 1)
            correlations = _COMMON * np.exp(-apart / _REACH) + (1 - _COMMON) * np.eye(size - 1)
            root[start : start + size - 1, start : start + size - 1] = np.linalg.cholesky(correlations)
        start += size
    return root


def _directions(hessian, changes, noise):
    """Directions of the release: `scale`, `energy` and `hessian` of a `TargetStep`.

    Directions are the eigenvectors of the Hessian for changes of the expected size, with eigenvalues h. The mean square
    of the gradient of a row is 1, and direction i has the share e_i of it. The step then loses sum(h s^2 / (s^2 + e h))
    to the noise s, which is least where e_i is max(0, c - s^2 / h_i) (water-filling). Directions in which the noise
    hides a change of the expected size are left out, and the noise of the others is smaller.
    """
    h, vectors = np.linalg.eigh(changes.T @ hessian @ changes)
    # the cells of a column sum to 1: others are no directions, and single precision is not exact
    kept = h > 1e-5 * max(h.max(), 1e-300)
    if not kept.any():
        return np.zeros((len(changes), 1)), np.ones(1), np.ones(1)
    h, vectors = h[kept], vectors[:, kept]
    hidden = np.minimum(noise**2 / h, 1e12)  # of any more, 1 could not be distinguished from rounding
    ordered = np.sort(hidden)
    levels = (1 + np.cumsum(ordered)) / np.arange(1, len(h) + 1)
    energy = np.maximum(levels[np.flatnonzero(levels > ordered)[-1]] - hidden, 0.0)
    kept = energy > 0
    h, vectors, energy = h[kept], vectors[:, kept], energy[kept]
    return changes @ vectors * np.sqrt(energy / h), energy, h


def _logistic(features, hot, offset, ridge):
    """Weights of a multinomial logistic regression with an offset, by L-BFGS."""
    n, d, k = len(hot), features.shape[1], hot.shape[1]
    if d == 0:
        return np.zeros((0, k))
    scale = 1 / np.sqrt(features.mean(axis=0, dtype=np.float64) + 1e-3)  # rare cells move as fast as frequent ones
    features, penalty = features * scale.astype(np.float32), ridge / n * np.square(scale)[:, None]

    def loss(flat):
        weights = flat.reshape(d, k)
        logits = offset + features @ weights.astype(np.float32)
        top = logits.max(axis=1, keepdims=True)
        exponentials = np.exp(logits - top)
        total = exponentials.sum(axis=1, keepdims=True)
        fit = np.mean(top[:, 0] + np.log(total[:, 0]) - (logits * hot).sum(axis=1))
        gradient = features.T @ (exponentials / total - hot).astype(np.float32) / n + penalty * weights
        return float(fit + 0.5 * np.sum(penalty * weights**2)), gradient.ravel().astype(np.float64)

    found = minimize(loss, np.zeros(d * k), jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS})
    return found.x.reshape(d, k) * scale[:, None]
