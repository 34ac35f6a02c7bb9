"""A generator trained by optimal transport: its rows move towards private ones along clipped and noised gradients."""

from __future__ import annotations

import contextlib
import itertools
import math

import numpy as np
import torch

from .._types import BoundedSum
from ..dpsgd import GradientNoise, PoissonLoader
from ..dpsgd._clipping import clip_factors
from ..utils.progress import progress_bar
from ._generated_rows import GeneratedRows
from ._generators import ParameterMeans

# The regularisation falls by this factor an iteration, from the largest possible cost to its final value; then further
# iterations at that value. So the number of iterations is public.
_FALL, _LAST = 0.2, 3
# Share of the learning rate that is left at the end.
_LEAST_RATE = 0.05
# Standard deviations by which the private rows of a step may exceed their mean before some are left out, and the most
# that are used at all.
_SPREAD, _MOST_ROWS = 3.0, 512


# ---- optimal transport from small batches to others -----------------------------------------------------------------
def transport_cost(x, y, l1_weight=0.0):
    """Squared Euclidean distances, and `l1_weight` times city-block ones, of (..., n, d) and (..., m, d)."""
    square = x.square().sum(-1)[..., None] + y.square().sum(-1)[..., None, :] - 2 * (x @ y.mT)
    cost = square.clamp_(min=0)
    return cost + l1_weight * torch.cdist(x, y, p=1.0) if l1_weight else cost


def transport_plan(cost, blur, log_weights, largest):
    """Return the plan that moves rows of equal weights to those of another batch: rows of sum 1.

    It minimises ``sum(plan * cost) / n + blur * KL(plan / n || product of the weights)``, by averaged updates of the
    two potentials in the log domain, while the regularisation falls from `largest` to `blur`. Batches of one call do
    not meet: the plan of each is a function of its own costs and weights, to the last bit.

    `cost`: shape (..., n, m).
    `log_weights` (..., m): logarithms of the weights of the second batch, which sum to 1; minus infinity for places
        without a row.
    `largest`: a bound of the costs; public, for the number of iterations follows from it.
    Returns a tensor of shape (..., n, m).

    Reference: J. Feydy et al., "Interpolating between optimal transport and MMD using Sinkhorn divergences", AISTATS
    2019.
    """
    back, equal = cost.mT.contiguous(), cost.new_full(cost.shape[-2:-1], -math.log(cost.shape[-2]))
    first, second = cost.new_zeros(cost.shape[:-1]), cost.new_zeros(log_weights.shape)
    largest = max(largest, blur)
    falling = math.ceil(math.log(largest / blur) / -math.log(_FALL))
    for k in range(falling + _LAST + 1):
        strength = max(largest * _FALL**k, blur)
        left = _soft_minimum(second[..., None, :] - cost, log_weights, strength)
        right = _soft_minimum(first[..., None, :] - back, equal, strength)
        first, second = (first.lerp(left, 0.5), second.lerp(right, 0.5)) if k else (left, right)
    return torch.softmax((second[..., None, :] - cost).div_(blur).add_(log_weights[..., None, :]), dim=-1)


def _soft_minimum(gap, log_weights, strength):
    gap = gap.div_(strength).add_(log_weights[..., None, :])
    top = gap.amax(-1, keepdim=True)
    # exp is many times slower where its result underflows, and most of these would
    return gap.sub_(top).clamp_(min=-80.0).exp_().sum(-1).log_().add_(top[..., 0]).mul_(-strength)


def transport_gradient(x, y, log_weights, largest, *, blur, l1_weight=0.0):
    """Gradient, by the rows of `x`, of the regularised costs of moving them to other batches; each row weighs 1 / n.

    The plan counts as constant (the envelope theorem). Arguments as in `transport_cost` and `transport_plan`; the shape
    is (..., n, d).
    """
    plan = transport_plan(transport_cost(x, y, l1_weight), blur, log_weights, largest)
    gradient = 2 * (x - plan @ y)
    if l1_weight:
        with torch.enable_grad():
            rows = x.expand(*y.shape[:-2], *x.shape[-2:]).detach().clone().requires_grad_()
            moved = (plan * torch.cdist(rows, y, p=1.0)).sum()
            gradient = gradient + l1_weight * torch.autograd.grad(moved, rows)[0]
    return gradient / x.shape[-2]


# ---- what is released of a step -------------------------------------------------------------------------------------
class SinkhornGradients:
    """Gradients of the Sinkhorn divergences between generated and private rows of a class, each as one vector.

    `plan`: its `gradient_bound` C bounds the norm of the gradient over all generated rows of a release together.
    `largest`: a public bound of the costs.

    The number of generated rows is public, so the shape of a release is. The gradient has norm at most C whatever the
    private rows of the step are, none of them included. So any change of the private rows of a step moves it by at most
    2 C, and two opposite gradients attain that.

    Several steps are computed at once, for speed. Each has its own sample of private rows, and its gradient is a
    function of that sample and of public rows alone, to the last bit: all have one shape, the number of iterations is
    public, and no number goes from one to another.
    """

    def __init__(self, plan, largest, *, blur, l1_weight=0.0):
        self.plan, self.largest, self.options = plan, largest, {"blur": blur, "l1_weight": l1_weight}
        self._clip = plan.gradient_bound / (1 + plan.slack) if plan.private else math.inf

    @torch.no_grad()
    def __call__(self, generated, fresh, private, log_weights) -> list[BoundedSum]:
        """Return B times each clipped gradient, B = ``plan.expected_batch_size``: noise is added, and B divides.

        `generated` (k, n, d): rows of k steps.
        `fresh` (k, n, d): other draws of the generator, which take off the bias of the entropy: public, as `generated`
            is.
        `private` (k, m, d): places for the private rows of each step.
        `log_weights` (k, m): logarithms of their weights; minus infinity for places without a row. The gradient of a
            step without rows is zero.
        """
        batches, weights, some = _stacked(private, log_weights, fresh)
        moves = transport_gradient(generated[:, None], batches, weights, self.largest, **self.options)
        gradients = self._clipped(2 * (moves[:, 0] - moves[:, 1]), some) * self.plan.expected_batch_size
        bound = self.plan.l2_bound
        return [
            BoundedSum([value], add_or_remove_one=bound, replace_one=bound, unit="batch")
            for value in gradients.unbind()
        ]

    def _clipped(self, gradients, some):
        """Each whole gradient with norm at most C; zero without private rows, or if its clip factor is 0."""
        norms = torch.linalg.vector_norm(gradients.flatten(1), dim=1, dtype=torch.float64)
        factors = clip_factors(norms, self._clip).to(gradients.dtype)[:, None, None]
        here = some[:, None, None] & (factors > 0)
        return torch.where(here, gradients * factors, torch.zeros_like(gradients))


def _stacked(private, log_weights, fresh):
    """Both batches at one length, for one pass over both, logarithms of their weights, and which steps have rows."""
    (k, m, d), n = private.shape, fresh.shape[1]
    batches, weights = private.new_zeros(k, 2, max(m, n), d), private.new_full((k, 2, max(m, n)), -math.inf)
    batches[:, 0, :m], batches[:, 1, :n] = private, fresh
    weights[:, 0, :m], weights[:, 1, :n] = log_weights, -math.log(n)
    some = (log_weights > -math.inf).any(1)
    weights[:, 0, 0] = torch.where(some, weights[:, 0, 0], 0.0)
    return batches, weights, some


# ---- the training ---------------------------------------------------------------------------------------------------
def train_by_transport(
    generator, x, labels, class_ratio, plan, rng, *, basis=None, gains=1.0, units=None, n_rows=10, at_once=40,
    blur=0.05, l1_weight=0.0, learning_rate=3e-3, average=0.995, seed=0, progress=False, progress_text="",
):  # fmt: skip
    """Train a generator with noise for all steps of a plan that was charged.

    `generator`: changed in place; at the end it has the average of its parameters. With `basis` its outputs are
        coordinates of the log-odds of rows (see `GeneratedRows`).
    `x` (n_samples, n_features): private rows: in [0, 1], or one-hot levels.
    `labels` (n_samples,): codes of their classes, negative for rows of no class; zeros without classes.
    `class_ratio` (n_classes,): public or released: classes of steps follow it.
    `rng`: draws batches and noise.
    `basis` (n_features, n_outputs): public orthonormal basis: costs, gradients and noise are of coordinates in it.
    `gains` (n_outputs,) or float: public factors of the generator's outputs.
    `units` (n_samples,): unit of each row, for a plan with `unit`: a unit is sampled with all its rows.
    `n_rows`: generated rows in a step; public.
    `at_once`: steps of the plan between two updates of the generator.
    `seed`: of the latents and classes, which are public.
    Returns: source of the noise in words, and whether it was private.
    """
    plan.claim(object())
    draws = torch.Generator().manual_seed(int(seed))
    generate = GeneratedRows(generator, class_ratio, draws, basis=basis, gains=gains)
    private = PrivateRows(generate, x, labels, plan, n_rows)
    gradients_of = SinkhornGradients(
        plan, _largest_cost(generator, x.shape[1], l1_weight), blur=blur, l1_weight=l1_weight
    )
    means = ParameterMeans(generator, average)
    optimizer = torch.optim.Adam(means.parameters, lr=learning_rate, fused=True)
    released = torch.zeros(at_once, n_rows, private.width)
    batches = iter(PoissonLoader(private.places, plan=plan, rng=rng, units=units))
    with contextlib.ExitStack() as exits:
        shape = released.shape[1:]
        noise = GradientNoise([shape], plan.noise_multiplier, rng, steps=plan.steps, ahead=False)
        exits.enter_context(noise)
        text = f"DP-Sinkhorn {progress_text}".strip()
        bar = exits.enter_context(progress_bar(None, shown=progress, phase=text, total=plan.steps, unit="step"))
        exits.enter_context(torch.enable_grad())
        for first in range(0, plan.steps, at_once):
            k = min(at_once, plan.steps - first)
            # steps come in pairs of one class: the rows of each are the fresh ones of the other
            codes = generate.codes(-(-k // 2)).repeat_interleave(2)
            points = generate(len(codes) * n_rows, codes.repeat_interleave(n_rows))[:, : private.width]
            pairs = points.detach().view(-1, 2, n_rows, private.width)
            own, fresh = pairs.flatten(0, 1)[:k], pairs.flip(1).flatten(0, 1)[:k]
            totals = gradients_of(own, fresh, *private.of_steps(itertools.islice(batches, k), codes[:k]))
            for total, out in zip(totals, released):
                plan.take_step()
                noise.release(total, divisor=plan.expected_batch_size, out=[out])
            optimizer.zero_grad()
            points[: k * n_rows].backward(released[:k].flatten(0, 1) / k)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * (1 - (1 - _LEAST_RATE) * first / plan.steps)
            optimizer.step()
            means.follow(first // at_once)
            bar.update(k)
        means.give()
        return noise.description, noise.private


def _largest_cost(generator, width, l1_weight):
    """The largest cost between two rows: of values in [-1, 1], or of one-hot levels."""
    if generator.n_levels is not None:
        return 2.0 * (1 + l1_weight) * len(generator.n_levels)
    return (4.0 + 2.0 * l1_weight) * width


class PrivateRows:
    """Private rows as points, and the places in which those of a class stand in a step.

    `generate`: encodes them.
    `x`, `labels`: as in `train_by_transport`.
    `n_rows`: generated rows of a step.
    `width`: columns by which gradients are taken.
    `n_places`: of the rows of a step; a function of public or released numbers. Where a step has more rows, those at
        equal distances in their order are used, a choice that depends on them alone.
    """

    def __init__(self, generate, x, labels, plan, n_rows):
        codes = torch.from_numpy(np.asarray(labels))
        points = generate.encoded(torch.from_numpy(x), codes)
        self.width = points.shape[1] - generate.generator.n_classes
        self.points, self.labels = points[:, : self.width].contiguous(), np.asarray(labels)
        self.places, self._weighting = torch.arange(len(x)), plan.weighting
        share = torch.diff(generate.cumulative_, prepend=torch.zeros(1)).max()
        most = 1 if plan.unit is None else plan.unit.max_rows
        mean = plan.expected_batch_size * float(share)
        self.n_places = min(_MOST_ROWS, max(n_rows, math.ceil(mean + _SPREAD * math.sqrt(mean * most) + most)))

    def of_steps(self, batches, codes):
        """Rows of the class of each step, and the logarithms of their weights: minus infinity in places without one."""
        k = len(codes)
        index, weights = np.zeros((k, self.n_places), dtype=np.int64), np.zeros((k, self.n_places))
        for step, (batch, code) in enumerate(zip(batches, codes.tolist(), strict=True)):
            rows, shares = self._of_step(batch, code)
            index[step, : len(rows)], weights[step, : len(rows)] = rows, shares
        weights = torch.from_numpy(weights)
        points, used = torch.zeros(*index.shape, self.width), weights > 0
        points[used] = self.points[torch.from_numpy(index)[used]]
        return points, weights.log().float()

    def _of_step(self, batch, code):
        rows, weights = _rows_of(batch, self._weighting)
        here = np.flatnonzero(self.labels[rows] == code)
        if len(here) > self.n_places:
            here = here[np.arange(self.n_places) * len(here) // self.n_places]
        weights = weights[here]
        return rows[here], weights / weights.sum() if len(here) else weights


def _rows_of(batch, weighting):
    """The places of the private rows of a step, and their weights: equal, or of sum 1 for each unit."""
    rows, weights = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for chunk in batch:
        mask = chunk.mask.numpy()
        rows.append(chunk.X.numpy()[mask])
        found = chunk.units[mask] if weighting == "units" else None  # a unit is never split between chunks
        weights.append(np.ones(len(rows[-1])) if found is None else 1 / np.bincount(found)[found])
    return np.concatenate(rows), np.concatenate(weights)
