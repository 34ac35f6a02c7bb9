"""Latent priors: a released mixture of Gaussians, and the KL divergence of an encoder's Gaussian to it."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["MixturePrior"]


class MixturePrior(nn.Module):
    """A fixed mixture of Gaussians over the latent space; its parameters are released values.

    Parameters
    ----------
    weights : tensor of shape (n_mixture,)
    means : tensor of shape (n_mixture, n_latent)
    covariances : tensor of shape (n_mixture, n_latent, n_latent) or (n_mixture, n_latent)
        Full or diagonal.
    """

    def __init__(self, weights, means, covariances):
        super().__init__()
        # in double precision: rounding to float32 first could make a narrow covariance indefinite
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
