"""One network of several variational autoencoders, each for the records of its own part."""

from __future__ import annotations

import contextlib
import copy

import torch
from skorch.callbacks import Callback
from torch import nn

from ._privae import PriVAEModule

__all__ = ["PartitionedVAEModule", "ScaledParts"]


class PartitionedVAEModule(nn.Module):
    """`n_parts` variational autoencoders of one shape; the last column of a row says which one it belongs to.

    Parameters
    ----------
    n_parts : int
    n_features, n_latent, likelihood, beta, n_labels, n_monte_carlo, image_shape, n_hidden, n_channels
        Of each autoencoder, as in `PriVAEModule`; its prior is the standard normal.
    encoder, decoder : module, default=None
        As in `PriVAEModule`; each autoencoder has copies of its own.

    Attributes
    ----------
    parts : ModuleList of PriVAEModule
    """

    def __init__(
        self,
        n_parts,
        n_features,
        n_latent,
        likelihood,
        *,
        beta=1.0,
        n_labels=0,
        n_monte_carlo=1,
        image_shape=None,
        n_hidden=200,
        n_channels=32,
        encoder=None,
        decoder=None,
    ):
        super().__init__()
        self.parts = nn.ModuleList(
            PriVAEModule(
                n_features,
                n_latent,
                copy.deepcopy(likelihood),
                beta=beta,
                n_labels=n_labels,
                n_monte_carlo=n_monte_carlo,
                image_shape=image_shape,
                n_hidden=n_hidden,
                n_channels=n_channels,
                encoder=copy.deepcopy(encoder),
                decoder=copy.deepcopy(decoder),
            )
            for _ in range(n_parts)
        )
        self.noise_shape = self.parts[0].noise_shape
        self._only = None

    def part_of(self, X):
        """Part of each row, int64, shape (batch,)."""
        return torch.round(X[:, -1]).long()

    @contextlib.contextmanager
    def only(self, part):
        """Within the block, all rows are taken to be of one part, and no other autoencoder is run."""
        self._only = part
        try:
            yield
        finally:
            self._only = None

    def forward(self, X, noise):
        """Loss of each record under the autoencoder of its part, shape (batch,); 0 for a part that there is not."""
        rows = X[:, :-1]
        if self._only is not None:
            return self.parts[self._only](rows, noise)
        of_part, losses = self.part_of(X), 0.0
        for k, part in enumerate(self.parts):
            losses = losses + torch.where(of_part == k, part(rows, noise), 0.0)
        return losses


class ScaledParts(Callback):
    """Multiply the released gradients of each part, so that each is a mean over its own records: post-processing.

    Parameters
    ----------
    scales : sequence of float
        Public or released: records to be expected in a step over those of the part.
    """

    def __init__(self, scales):
        self.scales = scales

    def on_grad_computed(self, net, **kwargs):
        for part, scale in zip(net.module_.parts, self.scales):
            for p in part.parameters():
                if p.requires_grad:
                    p.grad.mul_(scale)
