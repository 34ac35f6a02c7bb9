"""An encoder whose latents can be made sparse by a divergence of each latent dimension alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["SparseEncoder"]


class SparseEncoder(nn.Module):
    """Means of one length for every record, through a signed square; one constant variance.

    A divergence of each latent dimension alone is met by records some of whose latents are large, and as well by some
    records *all* of whose latents are large: the second takes nothing but a variance, or a length, that changes with
    the record, is found first, and is not sparse. Here neither can change. The means of a record are normalised, so a
    heavy tail in every dimension is a few large latents in every record; squares (with their signs) make some of the
    latents large from the start.

    The rows go through fixed random features: trainable is the last layer, so that noise falls on few parameters.

    Parameters
    ----------
    n_features, n_latent : int
    image_shape : (height, width), default=None
        Images are averaged over 2 x 2 pixels first.
    n_hidden : int, default=100
        Random features.
    scale : float, default=0.47
        Root mean square of a record's means; with the variance this is that of `SparsePrior`.
    log_variance : float, default=-4.5
        Of every latent: below that of `SparsePrior`'s spikes, whose spread is then the means' own.
    """

    def __init__(self, n_features, n_latent, *, image_shape=None, n_hidden=100, scale=0.47, log_variance=-4.5):
        super().__init__()
        self.n_latent, self.image_shape = n_latent, image_shape
        self.scale, self.log_variance = float(scale), float(log_variance)
        if image_shape is not None:
            n_features = (image_shape[0] // 2) * (image_shape[1] // 2)
        self.features = nn.Linear(n_features, n_hidden).requires_grad_(False)
        self.means = nn.Linear(n_hidden, n_latent)

    def forward(self, x):
        """Means, then log-variances, shape (batch, 2 n_latent)."""
        if self.image_shape is not None:
            x = F.avg_pool2d(x.reshape(-1, 1, *self.image_shape), 2).flatten(1)
        hidden = self.features(F.layer_norm(x, x.shape[-1:]))
        means = self.means(torch.tanh(F.layer_norm(hidden, hidden.shape[-1:])))
        means = self.scale * F.layer_norm(means * means.abs(), (self.n_latent,))
        return torch.cat([means, torch.full_like(means, self.log_variance)], dim=-1)
