"""Divergences of the latents of a group of records from the prior: the batch-wise terms of PriVAE."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from torch import nn

from ..dpsgd._checks import check_layers

# Distances that the kernels tell apart: from a fifth of the standard deviation of a normal prior to ten of them.
_SCALES = (0.2, 0.4, 1.0, 2.0, 4.0, 10.0)
# Kernels computed at once: on a CPU so many that they fit in its caches and that the cost of a call is small, on a GPU
# so many that they take 1.3 GB.
_PIECE, _GPU_PIECE = 2**17, 2**26


class GroupLatents(NamedTuple):
    """Latents of groups: z, mean and log-variance of shape (n_groups, length, n_latent), members (n_groups, length)."""

    z: torch.Tensor
    mean: torch.Tensor
    log_variance: torch.Tensor
    members: torch.Tensor


class CauchyMMD:
    """Dimension-wise MMD with a sum of Cauchy kernels ``s**2 / (s**2 + (x - y)**2)``, averaged over dimensions.

    The estimate is unbiased: it has no pair of a latent with itself. A group of one record has no pair and counts as
    zero. Where latents are trained and the prior is not, the term of the prior alone is omitted: it has no gradient.

    Parameters
    ----------
    scales : sequence of float, default=(.2, .4, 1, 2, 4, 10)
    """

    min_group_size = 2

    def __init__(self, scales=_SCALES):
        self.squares = tuple(float(s) ** 2 for s in scales)

    def __call__(self, latents, samples, log_prob):
        """Divergence of each group, shape (n_groups,).

        Parameters
        ----------
        latents : GroupLatents
        samples : tensor of shape (n_groups, n, n_latent)
            Samples of the prior.
        log_prob : tensor of shape (n_groups, n)
            Their log-densities.
        """
        z, members, size, n = latents.z, latents.members > 0, latents.members.sum(1), samples.shape[1]
        if samples.shape != (len(z), n, z.shape[2]) or not n:
            raise ValueError(
                f"samples of the prior must have shape ({len(z)}, n, {z.shape[2]}), n > 0; got {tuple(samples.shape)}"
            )
        dtype = torch.promote_types(z.dtype, samples.dtype)
        z, samples = z.to(dtype), samples.to(dtype)
        enough = size >= self.min_group_size
        safe = torch.where(enough, size, 2.0)
        value = _PairSums.apply(z, members, self.squares) * 2 / (safe * (safe - 1))
        value = value - 2 * _CrossSums.apply(z, members, samples, self.squares) / (safe * n)
        if samples.requires_grad or not z.requires_grad:
            everyone = torch.ones(samples.shape[:2], dtype=torch.bool, device=samples.device)
            value = value + _PairSums.apply(samples, everyone, self.squares) * 2 / max(n * (n - 1), 1)
        return torch.where(enough, value, 0.0)


class _PairSums(torch.autograd.Function):
    """Sum of the kernels of all pairs of members of each group, each pair once; the forward pass finds the gradient."""

    @staticmethod
    def forward(ctx, z, members, squares):
        sizes = members.sum(1)
        largest_first = sizes.argsort(descending=True)
        group, place = members[largest_first].nonzero(as_tuple=True)
        group = largest_first[group]
        values, slopes = _pair_sums(z[group, place], sizes[group], squares, with_slope=ctx.needs_input_grad[0])
        slope = torch.zeros_like(z)
        slope[group, place] = slopes
        ctx.save_for_backward(slope)
        return z.new_zeros(len(z)).index_add_(0, group, values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return ctx.saved_tensors[0] * grad[:, None, None], None, None


class _CrossSums(torch.autograd.Function):
    """Sum of the kernels of all pairs of a member of a group and a prior sample of the group, with its gradients."""

    @staticmethod
    def forward(ctx, z, members, samples, squares):
        group, place = members.nonzero(as_tuple=True)
        slope_needed, _, opposite_needed, _ = ctx.needs_input_grad
        values, slopes, opposite = _cross_sums(
            z[group, place], group, samples, squares, with_slope=slope_needed, with_opposite=opposite_needed
        )
        slope = torch.zeros_like(z)
        slope[group, place] = slopes
        ctx.save_for_backward(slope, opposite)
        return z.new_zeros(len(z)).index_add_(0, group, values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        slope, opposite = (saved * grad[:, None, None] for saved in ctx.saved_tensors)
        return slope, None, opposite, None


def _pair_sums(rows, size, squares, *, with_slope=True):
    """Sum of ``sum_s s / (s + gap**2)``, averaged over dimensions, over the pairs of each group, given by its rows.

    `rows` (n_rows, n_latent): rows of one group are adjacent; those of the largest group come first.
    `size` (n_rows,): size of the row's group.
    `squares`: squared scales of the kernels.
    `with_slope`: whether to compute the derivative; without, it is zero.
    Returns `value` (n_rows,): the sum over the rows of a group is the sum over its pairs; `slope`.

    Row i of a group is paired with row i + d, cyclically, for d up to half of the size: each pair once. At step d, row
    i is also the partner of row i - d, so its part of the derivative is a lookup and no scatter.
    """
    n_rows, width = rows.shape
    value, slope = rows.new_zeros(n_rows), torch.zeros_like(rows)
    if not n_rows:
        return value, slope
    row = torch.arange(n_rows, device=rows.device)
    run_start = torch.cat([row[:1], 1 + (size[1:] != size[:-1]).nonzero()[:, 0]])  # of adjacent groups of one size
    place = (row - run_start[torch.searchsorted(run_start, row, right=True) - 1]) % size
    group_start = row - place
    half = int(size[0]) // 2
    at_once = _how_many_at_once(rows, n_rows * width, half)
    kernel = _Kernel(rows, at_once * n_rows * width, squares, with_slope)
    for d in range(1, half + 1, at_once):
        m = int((size >= 2 * d).sum())
        step = torch.arange(d, min(d + at_once, half + 1), device=rows.device)[:, None]
        kernels, slopes = kernel(rows[:m], rows, group_start[:m] + (place[:m] + step) % size[:m])
        # 1; 1/2 at half the size, where both rows of a pair find it; 0 beyond, because several steps are taken at once
        weight = (torch.sign(size[:m] - 2 * step) + 1).to(rows.dtype) / 2
        # steps are added one by one, so that rounding within a group does not depend on the sizes of others
        for of_step in torch.where(weight > 0, kernels.sum(2) * weight, 0.0):
            value[:m] += of_step
        if with_slope:
            slopes *= weight[:, :, None]
            met_by = group_start[:m] + (place[:m] - step) % size[:m]
            met_by += torch.arange(0, met_by.numel(), m, device=rows.device)[:, None]
            among = slope[:m]
            for of_step in slopes - kernel.look_up(slopes.flatten(0, 1), met_by):
                among += of_step
    return value / width, slope * (-2 / width)


def _cross_sums(rows, group, samples, squares, *, with_slope=True, with_opposite=True):
    """As `_pair_sums`, over the pairs of a row and a sample of its group, with the derivatives by both.

    `rows`: shape (n_rows, n_latent).
    `group`: shape (n_rows,).
    `samples`: shape (n_groups, n_samples, n_latent).
    `with_slope`, `with_opposite`: whether to compute the derivatives by rows and by samples; without, they are zero.
    Returns `value` (n_rows,); `slope`, `opposite`.
    """
    (n_rows, width), n = rows.shape, samples.shape[1]
    value, slope, opposite = rows.new_zeros(n_rows), torch.zeros_like(rows), torch.zeros_like(samples)
    at_once = _how_many_at_once(rows, n * width, n_rows)
    kernel = _Kernel(rows, at_once * n * width, squares, with_slope or with_opposite)
    places, flat_samples = torch.arange(n, device=rows.device), samples.flatten(0, 1)
    for i in range(0, n_rows, at_once):
        part = slice(i, i + at_once)
        kernels, slopes = kernel(rows[part, None], flat_samples, group[part, None] * n + places)
        value[part] = kernels.sum((1, 2))
        if with_slope:
            slope[part] = slopes.sum(1)
        if with_opposite:
            opposite.index_add_(0, group[part], slopes, alpha=-1)
    return value / width, slope * (-2 / width), opposite * (-2 / width)


def _how_many_at_once(rows, entries, most):
    """Number of parts, of `most`, that are computed at once; each has `entries` kernels."""
    return max(1, min(most, (_GPU_PIECE if rows.is_cuda else _PIECE) // max(entries, 1)))


class _Kernel:
    """``sum_s s / (s + gap**2)``, and its derivative by the gap over -2, in buffers that the next call overwrites."""

    def __init__(self, like, entries, squares, with_slope):
        self.buffers, self.squares, self.with_slope = like.new_empty((5, entries)), squares, with_slope

    def __call__(self, one, others, places):
        """Values at the gap ``one - others[places]``; `places` has two axes, and the results have one more."""
        other = self.look_up(others, places)
        square, gap, part, total, slope = self.buffers[:, : other.numel()]  # `square` overwrites what was looked up
        torch.sub(one, other, out=gap.view(other.shape))
        torch.mul(gap, gap, out=square)
        total.zero_()
        slope.zero_()
        for s in self.squares:
            torch.add(square, s, out=part).reciprocal_()
            total.add_(part, alpha=s)
            if self.with_slope:
                slope.addcmul_(part, part, value=s)
        return total.view(other.shape), slope.mul_(gap).view(other.shape)

    def look_up(self, rows, places):
        """``rows[places]``, in the first buffer."""
        out = self.buffers[0, : places.numel() * rows.shape[-1]].view(-1, rows.shape[-1])
        return torch.index_select(rows, 0, places.flatten(), out=out).view(*places.shape, rows.shape[-1])


class KLFromPrior:
    """KL(p || q) by samples of the prior, q the mean of the encoder's Gaussians over a group.

    ``mean_j log p(z_j) - log( 1/m sum_i q(z_j | x_i) )`` with the constant m, the expected size of a group. An empty
    group counts as zero.

    Parameters
    ----------
    expected_group_size : float
        Expected number of records of a group; public.
    """

    min_group_size = 1

    def __init__(self, expected_group_size):
        self.expected_group_size = float(expected_group_size)

    def __call__(self, latents, samples, log_prob):
        """Divergence of each group, shape (n_groups,); see `CauchyMMD`."""
        mean, log_variance, members = latents.mean[:, None], latents.log_variance[:, None], latents.members
        gap = (samples[:, :, None, :] - mean).square() / log_variance.exp()
        log_q = -0.5 * (gap + log_variance + math.log(2 * math.pi)).sum(-1)  # (n_groups, n, length)
        occupied = members.sum(1) > 0
        log_q = torch.where(members[:, None, :] > 0, log_q, -torch.inf)
        log_q = torch.where(occupied[:, None, None], log_q, 0.0)  # the gradient of an empty logsumexp is nan
        mixture = torch.logsumexp(log_q, dim=2) - math.log(self.expected_group_size)
        return torch.where(occupied, (log_prob - mixture).mean(1), 0.0)


class UserDivergence:
    """Divergence by a function of the user's, called with one group at a time.

    Parameters
    ----------
    function : callable
        ``function(z, prior_samples)`` -> one number (a tensor of one entry): z holds the latents of the members of one
        group, shape (size, n_latent), prior_samples has shape (n, n_latent). It may depend on these two, including the
        size of the group, and on public constants alone. It must not store anything between calls: with a value of
        another group, a record would move the gradients of two groups, for which no noise was added. An attribute
        `min_group_size` (default 1) is the number of records that it needs; smaller groups count as zero.

    Notes
    -----
    The function gets copies, which share neither memory nor graph with other rows of the batch. The function object is
    copied too, so that its attributes do not outlive the fit; the user is responsible for variables that it closes
    over. A value or gradient that is not finite counts as zero, and so does an error: which groups cause one is
    private, and a fit that fails would reveal it.
    """

    strict = False

    def __init__(self, function):
        self.function = copy.deepcopy(function)
        self.min_group_size = int(getattr(function, "min_group_size", 1))
        if self.min_group_size < 1:
            raise ValueError(f"min_group_size of a divergence must be at least 1; got {self.min_group_size}")
        if isinstance(function, nn.Module):
            check_layers(function)
            if any(parameter.requires_grad for parameter in function.parameters()):
                raise ValueError("a divergence is not trained: set requires_grad_(False) on its parameters")

    def __call__(self, latents, samples, log_prob):
        """Divergence of each group, shape (n_groups,); see `CauchyMMD`."""
        z, members = latents.z, latents.members > 0
        values = []
        for j in range(len(z)):
            rows = z[j][members[j]]
            # a zero that depends on the latents, with gradient zero
            values.append(0 * z[j].sum() if len(rows) < self.min_group_size else self._one(rows, samples[j]))
        return torch.stack(values)

    def _one(self, rows, samples):
        apart = [rows.detach().clone().requires_grad_(), samples.detach().clone().requires_grad_()]
        try:
            with torch.enable_grad():
                value = self.function(*apart)
                check_value(value)
                gradients = torch.autograd.grad(value.reshape(()), apart, allow_unused=True)
        except Exception:
            if self.strict:
                raise
            return 0 * rows.sum()
        linear = sum(
            ((x - a.detach()) * g).sum() for x, a, g in zip((rows, samples), apart, gradients) if g is not None
        )
        return value.detach().reshape(()) + linear  # has this value and these gradients


def check_value(value):
    """Refuse a value that is not one number, or does not depend on the latents."""
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        shape = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(f"a divergence must return one number, a tensor of one entry; got {shape}")
    if not value.requires_grad:
        raise ValueError("a divergence must be a differentiable function of its latents")


def make_divergence(divergence, expected_group_size=1.0):
    """Return the divergence for a name or a function.

    `divergence`: "mmd" or "kl_prior". `expected_group_size`: as in `KLFromPrior`.
    """
    if divergence == "mmd":
        return CauchyMMD()
    if divergence == "kl_prior":
        return KLFromPrior(expected_group_size)
    if type(divergence) in (CauchyMMD, KLFromPrior, UserDivergence):
        return copy.deepcopy(divergence)
    if isinstance(divergence, (CauchyMMD, KLFromPrior, UserDivergence)):
        raise ValueError(
            f"divergence is a {type(divergence).__name__}, a subclass of a divergence that gets all groups at once: "
            "pass a function of (latents of a group, prior samples)"
        )
    return UserDivergence(divergence)


def check_divergence(divergence, n_latent):
    """Try a divergence on dummy latents, before a charge.

    Raises ValueError if it does not return one finite number that depends on the latents, for small groups and larger
    ones.
    """
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn((1, 8, n_latent), generator=generator)
    divergence = copy.copy(divergence)
    divergence.strict = True  # dummy latents: an error reveals nothing about the data
    for size in sorted({*range(divergence.min_group_size, divergence.min_group_size + 5), 12, 64}):
        mean = torch.randn((1, size, n_latent), generator=generator).requires_grad_()
        latents = GroupLatents(mean, mean, torch.zeros_like(mean), torch.ones(1, size))
        value = divergence(latents, samples, torch.zeros(1, 8))
        (gradient,) = torch.autograd.grad(value.sum(), mean)
        if not bool(torch.isfinite(value).all()) or not bool(torch.isfinite(gradient).all()):
            raise ValueError(f"the divergence or its gradient is not finite on a dummy group of {size} latents")


def cauchy_mmd(one, other, scales=_SCALES):
    """Return the dimension-wise MMD between two samples, averaged over dimensions (biased, so never negative).

    Parameters
    ----------
    one, other : tensors of shape (n, n_latent) and (m, n_latent)
    scales : sequence of float

    Returns
    -------
    float
        The square of the distance.
    """
    squares, n, m = CauchyMMD(scales).squares, len(one), len(other)
    if not n or not m or one.shape[1:] != other.shape[1:] or one.dim() != 2:
        shapes = f"{tuple(one.shape)} and {tuple(other.shape)}"
        raise ValueError(f"one and other must be samples of one width, not empty; got shapes {shapes}")
    one, other = one.detach().double(), other.detach().double()
    within = []
    for x in (one, other):
        together = torch.full((len(x),), len(x), device=x.device)
        pairs = float(_pair_sums(x, together, squares, with_slope=False)[0].sum())
        within.append((2 * pairs + len(x) * len(squares)) / len(x) ** 2)  # with itself each scale's kernel is 1
    group = torch.zeros(n, dtype=torch.int64, device=one.device)
    across = _cross_sums(one, group, other[None], squares, with_slope=False, with_opposite=False)[0]
    return sum(within) - 2 * float(across.sum()) / (n * m)
