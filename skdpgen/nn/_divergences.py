"""Divergences of the latents of a group of records from the prior: the batch-wise terms of PriVAE."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from torch import nn

from ..dpsgd.checks import check_layers

__all__ = ["CauchyMMD", "GroupLatents", "KLFromPrior", "UserDivergence", "cauchy_mmd", "make_divergence"]

_SCALES = (0.2, 0.4, 1.0, 2.0, 4.0, 10.0)
# Entries of kernels found at once on a CPU.
_PIECE = 2**15


class GroupLatents(NamedTuple):
    """Latents of groups: z, mean and log-variance of shape (n_groups, length, n_latent), members (n_groups, length)."""

    z: torch.Tensor
    mean: torch.Tensor
    log_variance: torch.Tensor
    members: torch.Tensor


class CauchyMMD:
    """Dimension-wise MMD with a sum of Cauchy kernels ``s**2 / (s**2 + (x - y)**2)``, averaged over dimensions.

    Unbiased (no pair of a latent with itself); a group of one record has none, and counts as zero. Where latents are
    trained and the prior is not, the term of the prior alone is left out: it has no gradient.

    Parameters
    ----------
    scales : sequence of float, default=(.2, .4, 1, 2, 4, 10)
    """

    min_group_size = 2

    def __init__(self, scales=_SCALES):
        self.squares = tuple(float(s) ** 2 for s in scales)

    def __call__(self, latents, samples, log_prob):
        """Shape (n_groups,), from `GroupLatents`, and prior samples of shape (n_groups, n, n_latent)."""
        members, (n_groups, length, _) = latents.members > 0, latents.z.shape
        z, size, n = latents.z.flatten(0, 1), latents.members.sum(1), samples.shape[1]
        enough = size >= self.min_group_size
        safe = torch.where(enough, size, 2.0)
        # pairs that there are, and each once: groups are padded to the longest of them
        group, one, other = (members[:, :, None] & members[:, None, :]).triu(1).nonzero(as_tuple=True)
        first, second = (z.index_select(0, group * length + place) for place in (one, other))
        within = self._sums(first - second, group, n_groups) * 2 / (safe * (safe - 1))
        group, one = members.nonzero(as_tuple=True)
        gap = z.index_select(0, group * length + one)[:, None] - samples.index_select(0, group)
        value = within - 2 * self._sums(gap, group, n_groups) / (safe * n)
        if samples.requires_grad or not latents.z.requires_grad:
            one, other = torch.triu_indices(n, n, 1, device=samples.device)
            value = value + self._kernel(samples[:, one] - samples[:, other]).sum(1) * 2 / max(n * (n - 1), 1)
        return torch.where(enough, value, 0.0)

    def _kernel(self, gap):
        return _CauchyKernel.apply(gap, self.squares)

    def _sums(self, gap, group, n_groups):
        """Kernels of gaps, shape (m, ..., n_latent), added up by group."""
        kernel = self._kernel(gap).flatten(1).sum(1) if gap.dim() > 2 else self._kernel(gap)
        return kernel.new_zeros(n_groups).index_add(0, group, kernel)


class _CauchyKernel(torch.autograd.Function):
    """Mean over the last axis of ``sum_s s / (s + gap**2)``, its derivative found along the way."""

    @staticmethod
    def forward(ctx, gap, squares):
        gap = gap.contiguous()
        width = gap.shape[-1]
        value, slope = gap.new_empty(gap.shape[:-1]), torch.empty_like(gap)
        # pieces that stay in a core's cache, where there is one, in buffers that they share
        rows = max(1, gap.numel() // width if gap.is_cuda else _PIECE // width)
        buffers = gap.new_empty((3, min(rows, value.numel()), width))
        flat = (gap.view(-1, width), value.view(-1), slope.view(-1, width))
        for g, v, d in zip(*(x.split(rows) for x in flat)):
            square, total, part = buffers[:, : len(g)]
            torch.mul(g, g, out=square)
            total.zero_(), d.zero_()
            for s in squares:
                torch.add(square, s, out=part).reciprocal_()
                total.add_(part, alpha=s)
                d.addcmul_(part, part, value=-2 * s / width)
            d.mul_(g)
            torch.mean(total, -1, out=v)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return ctx.saved_tensors[0] * grad.unsqueeze(-1), None


class KLFromPrior:
    """KL(p || q) by samples of the prior, q the mean of the encoder's Gaussians over a group.

    ``mean_j log p(z_j) - log( 1/m sum_i q(z_j | x_i) )`` with the constant m, the expected size of a group; an empty
    group counts as zero.

    Parameters
    ----------
    expected_group_size : float
    """

    min_group_size = 1

    def __init__(self, expected_group_size):
        self.expected_group_size = float(expected_group_size)

    def __call__(self, latents, samples, log_prob):
        """Shape (n_groups,); see `CauchyMMD`."""
        mean, log_variance, members = latents.mean[:, None], latents.log_variance[:, None], latents.members
        gap = (samples[:, :, None, :] - mean).square() / log_variance.exp()
        log_q = -0.5 * (gap + log_variance + math.log(2 * math.pi)).sum(-1)  # (n_groups, n, length)
        some = members.sum(1) > 0
        log_q = torch.where(members[:, None, :] > 0, log_q, -torch.inf)
        log_q = torch.where(some[:, None, None], log_q, 0.0)  # logsumexp of nothing has no gradient but nan
        mixture = torch.logsumexp(log_q, dim=2) - math.log(self.expected_group_size)
        return torch.where(some, (log_prob - mixture).mean(1), 0.0)


class UserDivergence:
    """A function of the user's own, given one group at a time.

    Parameters
    ----------
    function : callable
        ``function(z, prior_samples)`` -> one number (a tensor of one entry): z holds the latents of the members of one
        group, shape (size, n_latent), prior_samples has shape (n, n_latent). It may depend on these two and on public
        constants alone, on the size of the group as well. It must not remember what it was called with: what it knows
        of another group would let a record move that group's gradient too, for which no noise was added. An attribute
        `min_group_size` (default 1) says how many records it needs; smaller groups are left out.

    Notes
    -----
    What the function gets are copies, with no way to the other rows of the batch: neither memory nor graph is shared;
    an object is copied too, so that what it remembers goes with the fit (the variables that a function closes over are
    yours to keep clean). A value or gradient that is not finite counts as zero, and so does an error: which groups
    make one is private, and is not told by a fit that fails.
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
        """Shape (n_groups,); see `CauchyMMD`."""
        z, members = latents.z, latents.members > 0
        values = []
        for j in range(len(z)):
            rows = z[j][members[j]]
            # a zero that still hangs on the latents, with gradient zero
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
        return value.detach().reshape(()) + linear  # this value, and these gradients


def check_value(value):
    """Refuse what is no number that hangs on the latents."""
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        shape = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(f"a divergence must return one number, a tensor of one entry; got {shape}")
    if not value.requires_grad:
        raise ValueError("a divergence must be a differentiable function of the latents it is given")


def make_divergence(divergence, expected_group_size):
    """Return the divergence of a name, or of a function.

    Parameters
    ----------
    divergence : {"mmd", "kl_prior"} or callable
    expected_group_size : float
    """
    if divergence == "mmd":
        return CauchyMMD()
    if divergence == "kl_prior":
        return KLFromPrior(expected_group_size)
    if type(divergence) in (CauchyMMD, KLFromPrior, UserDivergence):
        return copy.deepcopy(divergence)
    if isinstance(divergence, (CauchyMMD, KLFromPrior, UserDivergence)):
        raise ValueError(
            f"divergence is a {type(divergence).__name__}, a class derived from one that is given all groups at once: "
            "pass a function of (latents of a group, prior samples)"
        )
    return UserDivergence(divergence)


def check_divergence(divergence, n_latent):
    """Try a divergence on made-up latents, before anything is charged.

    Raises
    ------
    ValueError
        If it returns anything but one finite number that hangs on the latents, for a small group or a larger one.
    """
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn((1, 8, n_latent), generator=generator)
    divergence = copy.copy(divergence)
    divergence.strict = True  # here an error is told: nothing of the data is in it
    for size in sorted({*range(divergence.min_group_size, divergence.min_group_size + 5), 12, 64}):
        mean = torch.randn((1, size, n_latent), generator=generator).requires_grad_()
        latents = GroupLatents(mean, mean, torch.zeros_like(mean), torch.ones(1, size))
        value = divergence(latents, samples, torch.zeros(1, 8))
        (gradient,) = torch.autograd.grad(value.sum(), mean)
        if not bool(torch.isfinite(value).all()) or not bool(torch.isfinite(gradient).all()):
            raise ValueError(f"the divergence is not finite on a made-up group of {size} latents")


def cauchy_mmd(one, other, scales=_SCALES, chunk=512):
    """Dimension-wise MMD between two samples, averaged over dimensions (biased, so never negative).

    Parameters
    ----------
    one, other : tensors of shape (n, n_latent) and (m, n_latent)
    scales : sequence of float
    chunk : int
        Rows at once.

    Returns
    -------
    float
        The square of the distance.
    """
    kernel = CauchyMMD(scales)._kernel

    def mean(x, y):
        parts = [kernel(x[i : i + chunk, None] - y[None]).sum().double() for i in range(0, len(x), chunk)]
        return float(sum(parts)) / (len(x) * len(y))

    return mean(one, one) - 2 * mean(one, other) + mean(other, other)
