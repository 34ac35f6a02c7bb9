"""A generator trained by optimal transport: its rows move towards private ones along a clipped and noised gradient."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import torch

from .._types import BoundedSum
from ..dpsgd import GradientNoise, PoissonLoader
from ..utils.progress import progress_bar
from ._generated_rows import GeneratedRows

__all__ = [
    "SinkhornGradient",
    "train_by_transport",
    "transport_cost",
    "transport_gradient",
    "transport_plan",
]

# The regularisation falls by this factor an iteration, from the largest cost to its final value; then further
# iterations at that value.
_FALL, _LAST = 0.2, 3
# Share of the learning rate that is left at the end.
_LEAST_RATE = 0.05


# ---- optimal transport from one small batch to several --------------------------------------------------------------
def transport_cost(x, y, l1_weight=0.0):
    """Squared Euclidean distances and `l1_weight` times city-block ones: (n, d) and (..., m, d) give (..., n, m)."""
    square = x.square().sum(1)[:, None] + y.square().sum(-1)[..., None, :] - 2 * (x @ y.mT)
    cost = square.clamp_(min=0)
    return cost + l1_weight * torch.cdist(x.expand(*y.shape[:-2], *x.shape), y, p=1.0) if l1_weight else cost


def transport_plan(cost, blur, log_weights):
    """Return the plan that moves rows of equal weights to those of another batch: rows of sum 1.

    It minimises ``sum(plan * cost) / n + blur * KL(plan / n || product of the weights)``, by averaged updates of the
    two potentials in the log domain, while the regularisation falls from the largest cost to `blur`.

    Parameters
    ----------
    cost : tensor of shape (..., n, m)
    blur : float
    log_weights : tensor of shape (..., m)
        Logarithms of the weights of the second batch, which sum to 1; minus infinity for places without a row.

    Returns
    -------
    tensor of shape (..., n, m)

    References
    ----------
    J. Feydy et al., "Interpolating between optimal transport and MMD using Sinkhorn divergences", AISTATS 2019.
    """
    back, equal = cost.mT, cost.new_full(cost.shape[-2:-1], -math.log(cost.shape[-2]))
    first, second = cost.new_zeros(cost.shape[:-1]), cost.new_zeros(log_weights.shape)
    largest = float(cost.max())
    largest = max(largest, blur) if math.isfinite(largest) else blur
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


def transport_gradient(x, y, log_weights, *, blur, l1_weight=0.0):
    """Gradient, by the rows of `x`, of the regularised costs of moving them to other batches; each row weighs 1 / n.

    The plan counts as constant (the envelope theorem). Arguments as in `transport_cost` and `transport_plan`; the shape
    is (..., n, d).
    """
    plan = transport_plan(transport_cost(x, y, l1_weight), blur, log_weights)
    gradient = 2 * (x - plan @ y)
    if l1_weight:
        with torch.enable_grad():
            rows = x.expand(*y.shape[:-2], *x.shape).detach().clone().requires_grad_()
            moved = (plan * torch.cdist(rows, y, p=1.0)).sum()
            gradient = gradient + l1_weight * torch.autograd.grad(moved, rows)[0]
    return gradient / len(x)


# ---- what is released of a step -------------------------------------------------------------------------------------
class SinkhornGradient:
    """Gradient of the Sinkhorn divergence between generated and private rows by all generated rows, as one vector.

    Parameters
    ----------
    plan : WholeBatchPlan
        Its `gradient_bound` C bounds the norm of the gradient over all generated rows together.
    n_columns : int
        Leading columns, by which the gradient is taken: those of labels follow.
    blur, l1_weight : float

    Notes
    -----
    The number of generated rows is public, so the shape of a release is. The gradient has norm at most C whatever the
    private rows of the step are, none of them included. So any change of the private rows of a step moves it by at most
    2 C, and two opposite gradients attain that.
    """

    def __init__(self, plan, n_columns, *, blur, l1_weight=0.0):
        self.plan, self.n_columns, self.blur, self.l1_weight = plan, n_columns, blur, l1_weight
        self._clip = plan.gradient_bound / (1 + plan.slack) if plan.private else math.inf

    @torch.no_grad()
    def __call__(self, generated, fresh, private, log_weights=None) -> BoundedSum:
        """Return B times the clipped gradient, B = ``plan.expected_batch_size``: noise is added to it, and B divides.

        Parameters
        ----------
        generated : tensor of shape (n, n_columns + n_labels)
        fresh : tensor of shape (n, n_columns + n_labels)
            Other draws of the generator, which take off the bias of the entropy: public, as `generated` is.
        private : tensor of shape (m, n_columns + n_labels)
            Rows of the step; with none of them the gradient is zero.
        log_weights : tensor of shape (m,), default=None
        """
        value = torch.zeros_like(generated[:, : self.n_columns])
        if len(private):
            batches, weights = _stacked(private, log_weights, fresh)
            options = {"blur": self.blur, "l1_weight": self.l1_weight}
            towards, apart = transport_gradient(generated, batches, weights, **options)
            gradient = 2 * (towards - apart)[:, : self.n_columns]
            value = self._clipped(gradient) * self.plan.expected_batch_size
        bound = self.plan.l2_bound
        return BoundedSum([value], add_or_remove_one=bound, replace_one=bound, unit="batch")

    def _clipped(self, gradient):
        """The whole gradient with norm at most C; zero if it is not finite."""
        norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
        if not math.isfinite(norm):
            return torch.zeros_like(gradient)
        return gradient if norm <= self._clip else gradient * (self._clip / norm)


def _stacked(private, log_weights, fresh):
    """Both batches at one length, for one pass over both, and the logarithms of the weights of their rows."""
    length = max(len(private), len(fresh))
    batches, weights = private.new_zeros(2, length, private.shape[1]), private.new_full((2, length), -math.inf)
    for k, rows in enumerate((private, fresh)):
        batches[k, : len(rows)] = rows
        weights[k, : len(rows)] = -math.log(len(rows))
    if log_weights is not None:
        weights[0, : len(private)] = log_weights
    return batches, weights


# ---- the training ---------------------------------------------------------------------------------------------------
def train_by_transport(
    generator, x, labels, class_ratio, plan, rng, *, basis=None, gains=1.0, units=None, n_rows=50, blur=0.05,
    l1_weight=0.0, label_scale=15.0, learning_rate=1e-3, average=0.995, seed=0, progress=False, progress_text="",
):  # fmt: skip
    """Train a generator with noise for all steps of a plan that was charged.

    Parameters
    ----------
    generator : ConditionalGenerator
        Changed in place; at the end it has the average of its parameters. With `basis` its outputs are coordinates of
        the log-odds of rows (see `GeneratedRows`).
    x : float32 array of shape (n_samples, n_features)
        Private rows: in [0, 1], or one-hot levels.
    labels : int array of shape (n_samples,)
        Codes of their classes, negative for rows of no class.
    class_ratio : array of shape (n_classes,)
        Public or released: labels of generated rows follow it.
    plan : WholeBatchPlan
    rng : NoiseGenerator
        Draws batches and noise.
    basis : array of shape (n_features, n_outputs), default=None
        Public orthonormal basis: costs, gradients and noise are of coordinates in it.
    gains : array of shape (n_outputs,) or float, default=1.0
        Public factors of the generator's outputs.
    units : int array of shape (n_samples,), default=None
        Unit of each row, for a plan with `unit`: a unit is sampled with all its rows.
    n_rows : int, default=50
        Generated rows in a step; public.
    blur, l1_weight, label_scale, learning_rate, average : float
    seed : int
        Of the latents and labels, which are public.
    progress : bool
    progress_text : str

    Returns
    -------
    str, bool
        Source of the noise in words, and whether it was private.
    """
    plan.claim(object())
    draws = torch.Generator().manual_seed(int(seed))
    generate = GeneratedRows(generator, class_ratio, draws, basis=basis, gains=gains, label_scale=label_scale)
    x, labels = torch.from_numpy(x), torch.from_numpy(np.asarray(labels))
    private = generate.encoded(x, labels)
    n_columns = private.shape[1] - generator.n_classes
    gradient_of = SinkhornGradient(plan, n_columns, blur=blur, l1_weight=l1_weight)
    parameters = list(generator.parameters())
    averages = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True)
    released = torch.zeros(n_rows, n_columns)
    loader = PoissonLoader(private, plan=plan, rng=rng, units=units)
    with contextlib.ExitStack() as exits:
        noise = exits.enter_context(GradientNoise([released.shape], plan.noise_multiplier, rng, steps=plan.steps))
        text = f"DP-Sinkhorn {progress_text}".strip()
        bar = exits.enter_context(progress_bar(None, shown=progress, phase=text, total=plan.steps, unit="step"))
        exits.enter_context(torch.enable_grad())
        for step, batch in enumerate(loader):
            plan.take_step()
            points = generate(n_rows)
            with torch.no_grad():
                fresh = generate(n_rows)
            total = gradient_of(points.detach(), fresh, *_rows_of(batch, private, plan))
            noise.release(total, divisor=plan.expected_batch_size, out=[released])
            optimizer.zero_grad()
            points[:, :n_columns].backward(released)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * (1 - (1 - _LEAST_RATE) * step / plan.steps)
            optimizer.step()
            _move_towards(averages, parameters, 1 - min(average, (1 + step) / (10 + step)))
            bar.update()
        for p, mean in zip(parameters, averages):
            p.grad = None
            p.data.copy_(mean)
        return noise.description, noise.private


def _rows_of(batch, private, plan):
    """The private rows of a step, and the logarithms of their weights where units count 1."""
    rows, units = [private[:0]], []
    for chunk in batch:
        rows.append(chunk.X[chunk.mask])
        if chunk.units is not None:
            found = chunk.units[chunk.mask.numpy()]
            units.append(1 / np.bincount(found)[found])  # a unit is never split between chunks
    rows = torch.cat(rows)
    if plan.weighting != "units" or not len(rows):
        return rows, None
    weights = np.concatenate(units)
    return rows, torch.from_numpy(np.log(weights / weights.sum())).float()


@torch.no_grad()
def _move_towards(averages, parameters, share):
    for mean, p in zip(averages, parameters):
        mean.lerp_(p, share)
