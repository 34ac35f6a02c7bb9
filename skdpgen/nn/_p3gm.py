"""P3GM's network: a variational autoencoder whose encoder mean is the released PCA."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["P3GMModule", "mlp"]


def mlp(n_in, n_hidden, n_out):
    """Return one hidden layer with ReLU, the papers' encoder and decoder."""
    return nn.Sequential(nn.Linear(n_in, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_out))


class P3GMModule(nn.Module):
    """Per-record loss of P3GM's second phase: minus the ELBO of equation 7, with the released prior.

    The encoder's mean is ``(x - center) @ basis``, fixed and released; what is trained is the decoder
    and, unless the latent variance is zero, the encoder's variance.

    Parameters
    ----------
    basis : tensor of shape (n_features, n_latent)
    center : tensor of shape (n_features,)
    prior : MixturePrior
    likelihood : module with ``log_prob(output, x)``
    n_labels : int, default=0
        Number of trailing one-hot label columns of `x` that say which component of the prior a record belongs to.
    n_hidden : int, default=1000
    latent_variance : {"learned", "zero"}, default="learned"
        "zero" is the paper's AE: the loss is the reconstruction alone.
    n_monte_carlo : int, default=1
        Latent samples a record (L of equation 7).
    decoder, variance : module, default=None
        Replacements for the networks: latent -> output, row -> log-variance. No batch normalisation. The decoder gets
        (batch, n_latent), or (batch, n_monte_carlo, n_latent) where there are several samples a record.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM: Private High-Dimensional Data Release via Privacy Preserving
    Phased Generative Model", ICDE 2021, equation 7 and section IV.
    """

    def __init__(
        self,
        basis,
        center,
        prior,
        likelihood,
        *,
        n_labels=0,
        n_hidden=1000,
        latent_variance="learned",
        n_monte_carlo=1,
        decoder=None,
        variance=None,
    ):
        super().__init__()
        self.register_buffer("basis", torch.as_tensor(basis, dtype=torch.float32))
        self.register_buffer("center", torch.as_tensor(center, dtype=torch.float32))
        n_features, n_latent = self.basis.shape
        self.prior, self.likelihood = prior, likelihood
        self.n_labels, self.n_monte_carlo, self.latent_variance = n_labels, n_monte_carlo, latent_variance
        self.decoder = mlp(n_latent, n_hidden, n_features) if decoder is None else decoder
        if latent_variance == "learned":
            self.variance = mlp(n_features, n_hidden, n_latent) if variance is None else variance
            # one draw a record and Monte-Carlo sample, made by the training loop's own generator: a draw made
            # here would shift when another record joins the batch
            self.noise_shape = (n_monte_carlo, n_latent)
        else:
            self.variance = None

    def encode(self, x):
        """Mean and log-variance of the latent Gaussian, each (batch, n_latent); log-variance None when it is zero."""
        mean = (x - self.center) @ self.basis
        return mean, None if self.variance is None else self.variance(x).clamp(-12.0, 4.0)

    def elbo_terms(self, x, noise=None):
        """Reconstruction log-likelihood and KL divergence, each of shape (batch,)."""
        label = None
        if self.n_labels:
            x, label = x[:, : -self.n_labels], x[:, -self.n_labels :]
        mean, log_variance = self.encode(x)
        if log_variance is None:
            return self.likelihood.log_prob(self.decoder(mean), x), torch.zeros_like(mean[:, 0])
        if self.n_monte_carlo == 1:  # no axis of samples: a decoder of convolutions takes (batch, n_latent)
            latent = mean + torch.exp(0.5 * log_variance) * noise[:, 0]
            return self.likelihood.log_prob(self.decoder(latent), x), self.prior.kl(mean, log_variance, label)
        latent = mean[:, None, :] + torch.exp(0.5 * log_variance)[:, None, :] * noise
        reconstruction = self.likelihood.log_prob(self.decoder(latent), x[:, None, :]).mean(dim=1)
        return reconstruction, self.prior.kl(mean, log_variance, label)

    def forward(self, x, noise=None):
        """Loss of each record, shape (batch,)."""
        reconstruction, divergence = self.elbo_terms(x, noise)
        return divergence - reconstruction
