"""Latent priors: distributions that give samples by reparameterisation, densities, and KL divergences.

A prior of PriVAE is a module with ``log_prob(z)``, (batch, n, n_latent) -> (batch, n), and ``sample(normals)``,
(batch, n, 2, n_latent) -> (batch, n, n_latent). The caller gives the standard normals: they come from the private
generator, separately for each group of records.
"""

from __future__ import annotations

import math

import torch
from torch import nn

_LOG_2PI = math.log(2 * math.pi)


def _log_normal(gap, variance):
    """Log-density of N(0, variance) at `gap`, entry by entry."""
    return -0.5 * (gap.square() / variance + math.log(variance) + _LOG_2PI)


def _uniforms(normals):
    """The second half of a prior's normals, as uniforms of (0, 1)."""
    return torch.special.ndtr(normals[..., 1, :])


class NormalPrior(nn.Module):
    """Standard normal distribution."""

    def log_prob(self, z):
        """Log-density, shape ``z.shape[:-1]``."""
        return _log_normal(z, 1.0).sum(-1)

    def sample(self, normals):
        """Samples from `normals` of shape (..., 2, n_latent)."""
        return normals[..., 0, :]

    def kl(self, mean, log_variance):
        """KL(N(mean, exp(log_variance)) || N(0, 1)), shape (batch,)."""
        return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


class SparsePrior(nn.Module):
    """Spike and slab: each coordinate is N(0, `spike_variance`) with probability `sparsity`, else N(0, 1).

    Parameters
    ----------
    sparsity : float in (0, 1), default=0.8
        Probability of the spike.
    spike_variance : float, default=0.05
        Variance of the spike.

    References
    ----------
    Mathieu et al., "Disentangling Disentanglement in Variational Autoencoders", ICML 2019.
    """

    def __init__(self, sparsity=0.8, spike_variance=0.05):
        super().__init__()
        if not 0 < sparsity < 1 or not spike_variance > 0:
            raise ValueError(
                f"sparsity must be in (0, 1) and spike_variance positive; got {sparsity!r} and {spike_variance!r}"
            )
        self.sparsity, self.spike_variance = float(sparsity), float(spike_variance)

    def log_prob(self, z):
        """Log-density, shape ``z.shape[:-1]``."""
        spike = math.log(self.sparsity) + _log_normal(z, self.spike_variance)
        slab = math.log1p(-self.sparsity) + _log_normal(z, 1.0)
        return torch.logaddexp(spike, slab).sum(-1)

    def sample(self, normals):
        """Samples from `normals` of shape (..., 2, n_latent)."""
        spike = _uniforms(normals) < self.sparsity
        return normals[..., 0, :] * torch.where(spike, self.spike_variance**0.5, 1.0)


class GaussianMixturePrior(nn.Module):
    """Mixture of equally likely Gaussians of one variance, whose means are fixed or learned.

    Parameters
    ----------
    means : array-like of shape (n_mixture, n_latent)
        Public means; with `learned`, their initialisation.
    variance : float, default=1.0
        Variance of each component.
    learned : bool, default=False
        Whether the means are trained with the net, by the same private gradients.
    """

    def __init__(self, means, variance=1.0, learned=False):
        super().__init__()
        means = torch.as_tensor(means, dtype=torch.float32).clone()
        if means.ndim != 2 or not bool(torch.isfinite(means).all()) or not variance > 0:
            raise ValueError("means must be finite and of shape (n_mixture, n_latent), and variance positive")
        self.n_mixture, self.variance, self.learned = len(means), float(variance), bool(learned)
        if self.learned:
            # an embedding, because the fast path of DP-SGD supports layers and no bare parameters
            self.table = nn.Embedding.from_pretrained(means, freeze=False)
        else:
            self.register_buffer("means", means)

    def component_means(self, batch):
        """Means, shape (batch, n_mixture, n_latent)."""
        if not self.learned:
            return self.means.expand(batch, -1, -1)
        rows = torch.arange(self.n_mixture, device=self.table.weight.device)
        return self.table(rows.expand(batch, self.n_mixture))

    def log_prob(self, z):
        """Log-density of z of shape (batch, n, n_latent), shape (batch, n)."""
        return self._log_prob(z, self.component_means(z.shape[0]))

    def sample(self, normals):
        """Samples from `normals` of shape (batch, n, 2, n_latent)."""
        return self._sample(normals, self.component_means(normals.shape[0]))

    def sample_with_log_prob(self, normals):
        """Samples and their log-densities."""
        means = self.component_means(normals.shape[0])
        samples = self._sample(normals, means)
        return samples, self._log_prob(samples, means)

    def _log_prob(self, z, means):
        gap = z[:, :, None, :] - means[:, None, :, :]
        return torch.logsumexp(_log_normal(gap, self.variance).sum(-1), dim=-1) - math.log(self.n_mixture)

    def _sample(self, normals, means):
        component = (_uniforms(normals)[..., 0] * self.n_mixture).long().clamp_max(self.n_mixture - 1)
        chosen = torch.gather(means, 1, component[..., None].expand(*component.shape, means.shape[-1]))
        return chosen + self.variance**0.5 * normals[..., 0, :]


class MixturePrior(nn.Module):
    """Fixed mixture of Gaussians over the latent space; its parameters are released values.

    Parameters
    ----------
    weights : tensor of shape (n_mixture,)
    means : tensor of shape (n_mixture, n_latent)
    covariances : tensor of shape (n_mixture, n_latent, n_latent) or (n_mixture, n_latent)
        Full or diagonal.
    """

    def __init__(self, weights, means, covariances):
        super().__init__()
        # in double precision: rounding to float32 first can make a narrow covariance indefinite
        weights, means, covariances = (torch.as_tensor(a, dtype=torch.float64) for a in (weights, means, covariances))
        if covariances.ndim == 2:
            covariances = torch.diag_embed(covariances)
        values, vectors = torch.linalg.eigh(covariances)
        values = values.clamp_min(1e-12)
        self.register_buffer("log_weights", torch.log(weights.clamp_min(1e-12)).float())
        self.register_buffer("means", means.float())
        # x^T P x as the squared norm of F^T x, P = F F^T: positive by construction in float32
        factors = vectors / values.sqrt()[:, None, :]
        self.register_buffer("factors", factors.float())
        self.register_buffer("precision_diagonals", factors.square().sum(-1).float())
        self.register_buffer("log_dets", values.log().sum(-1).float())

    def component_kl(self, mean, log_variance):
        """KL(N(mean, diag(exp(log_variance))) || component b), shape (batch, n_mixture)."""
        gap = torch.einsum("bmk,mkj->bmj", mean[:, None, :] - self.means, self.factors)
        trace = torch.exp(log_variance) @ self.precision_diagonals.T
        entropy = log_variance.sum(-1, keepdim=True)
        return 0.5 * (trace + gap.square().sum(-1) + self.log_dets - entropy - mean.shape[-1])

    def kl(self, mean, log_variance, label=None):
        """Hershey and Olsen's (2007) variational approximation of the KL divergence to the mixture, shape (batch,).

        With one Gaussian on the left it is ``-log sum_b w_b exp(-KL_b)``. With `label`, a one-hot tensor
        of shape (batch, n_mixture), it is the exact KL divergence to that component alone.
        """
        component = self.component_kl(mean, log_variance)
        if label is not None:
            return (label * component).sum(-1)
        return -torch.logsumexp(self.log_weights - component, dim=-1)

    def log_prob(self, latent):
        """Log-density of the mixture, shape ``latent.shape[:-1]``."""
        gap = torch.einsum("...mk,mkj->...mj", latent[..., None, :] - self.means, self.factors)
        constant = latent.shape[-1] * math.log(2 * math.pi) + self.log_dets
        return torch.logsumexp(self.log_weights - 0.5 * (gap.square().sum(-1) + constant), dim=-1)


def sample_with_log_prob(prior, normals):
    """Return samples of any prior and their log-densities."""
    if hasattr(prior, "sample_with_log_prob"):
        return prior.sample_with_log_prob(normals)
    samples = prior.sample(normals)
    return samples, prior.log_prob(samples)


def monte_carlo_kl(prior, z, mean, log_variance):
    """Return KL(q(z|x) || p) of each record, estimated from its samples: the mean of ``log q(z|x) - log p(z)``.

    `z` (batch, n, n_latent): samples of ``N(mean, exp(log_variance))``. `mean`, `log_variance`: shape (batch,
    n_latent). Returns a tensor of shape (batch,).
    """
    return (log_q(z, mean, log_variance) - prior.log_prob(z)).mean(1)


def log_q(z, mean, log_variance):
    """Log-density of ``N(mean, exp(log_variance))`` at z of shape (batch, n, n_latent), shape (batch, n)."""
    gap = (z - mean[:, None]).square() / log_variance.exp()[:, None]
    return -0.5 * (gap + log_variance[:, None] + _LOG_2PI).sum(-1)


def check_prior(prior, n_latent):
    """Refuse a prior whose samples or densities do not have the shapes of `n_latent` dimensions; uses no data."""
    try:
        normals = torch.zeros(2, 3, 2, n_latent)
        samples = prior.sample(normals)
        densities = prior.log_prob(torch.zeros(2, 3, n_latent))
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"the prior does not have {n_latent} dimensions: {str(error).splitlines()[0]}") from None
    if samples.shape != (2, 3, n_latent) or densities.shape != (2, 3):
        raise ValueError(
            f"the prior does not have {n_latent} dimensions: samples of shape {tuple(samples.shape)} for "
            f"(2, 3, {n_latent}), densities of shape {tuple(densities.shape)} for (2, 3)"
        )
    if not bool(torch.isfinite(densities).all()):
        raise ValueError("the prior's density at zero is not finite")
