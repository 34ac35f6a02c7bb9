"""PriVAE's network: a variational autoencoder with a term of each record and a term of groups of records."""

from __future__ import annotations

import torch
from torch import nn

from ._conv import conv_decoder, conv_encoder
from ._divergences import GroupLatents, make_divergence
from ._latent_priors import NormalPrior, log_q, monte_carlo_kl, sample_with_log_prob

__all__ = ["PriVAEModule"]


class PriVAEModule(nn.Module):
    """Per-record loss ``-log p(x|z) + beta KL(q(z|x) || p(z))`` and per-group loss ``alpha D(q(z), p(z))``.

    Parameters
    ----------
    n_features : int
        Columns of a row, without labels.
    n_latent : int
    likelihood : module with ``log_prob(output, x)`` and ``mean(output)``
    prior : module, default=None
        See `skdpgen.nn.NormalPrior`; None is the standard normal.
    divergence : {"mmd", "kl_prior"}, callable or None, default=None
        See `skdpgen.nn.UserDivergence` for what a callable may depend on.
    alpha, beta : float, default=1.0
    expected_group_size : float, default=1.0
        A constant of "kl_prior".
    n_labels : int, default=0
        Number of trailing one-hot label columns of a row: the decoder is given them, the encoder is not.
    n_monte_carlo : int, default=1
        Latent samples a record (the paper's augmentation), of which groups use the first.
    n_prior_samples : int, default=32
        Samples of the prior a group.
    image_shape : tuple, default=None
        Rows are images: convolutional nets.
    n_hidden : int, default=200
        Units of the one hidden layer of encoder and decoder, ReLU; without `image_shape`.
    n_channels : int, default=32
        Of the first convolution.
    encoder, decoder : module, default=None
        Replacements: (batch, n_features) -> (batch, 2 n_latent), means then log-variances; (batch, n_latent + n_labels)
        -> (batch, outputs). No batch normalisation.

    References
    ----------
    Takahashi, Takagi, Ono, Komatsu, "Differentially Private Variational Autoencoders with Term-wise Gradient
    Aggregation", 2020, equations 7, 12 and 13.
    """

    def __init__(
        self,
        n_features,
        n_latent,
        likelihood,
        *,
        prior=None,
        divergence=None,
        alpha=1.0,
        beta=1.0,
        expected_group_size=1.0,
        n_labels=0,
        n_monte_carlo=1,
        n_prior_samples=32,
        image_shape=None,
        n_hidden=200,
        n_channels=32,
        encoder=None,
        decoder=None,
    ):
        super().__init__()
        self.n_features, self.n_latent, self.n_labels = n_features, n_latent, n_labels
        self.n_monte_carlo, self.alpha, self.beta = n_monte_carlo, float(alpha), float(beta)
        self.likelihood = likelihood
        self.prior = NormalPrior() if prior is None else prior
        self.divergence = None if divergence is None else make_divergence(divergence, expected_group_size)
        self.architecture = None  # of modules of the user's own, which a file cannot hold
        if encoder is None and decoder is None:
            self.architecture = {"image_shape": image_shape, "n_hidden": n_hidden, "n_channels": n_channels}
        if encoder is None:
            encoder = (
                _mlp(n_features, n_hidden, 2 * n_latent)
                if image_shape is None
                else conv_encoder(image_shape, 2 * n_latent, n_channels)
            )
        if decoder is None:
            decoder = (
                _mlp(n_latent + n_labels, n_hidden, n_features)
                if image_shape is None
                else conv_decoder(image_shape, n_latent + n_labels, n_channels)
            )
        self.encoder, self.decoder = encoder, decoder
        # one draw a record and Monte-Carlo sample, made by the training loop's own generator
        self.noise_shape = (n_monte_carlo, n_latent)
        self.group_noise_shape = (n_prior_samples, 2, n_latent)

    def encode(self, x):
        """Mean and log-variance of the latent Gaussian of rows (without labels), each (batch, n_latent)."""
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        return mean, log_variance.clamp(-12.0, 4.0)

    def decode(self, z, labels=None):
        """Outputs of the decoder for latents of shape (batch, n_latent)."""
        return self.decoder(z if labels is None else torch.cat([z, labels], dim=-1))

    def terms(self, x, noise):
        """Reconstruction log-likelihood and KL divergence of each record, each (batch,), in one pass over samples."""
        x, labels = self._split(x)
        mean, log_variance = self.encode(x)
        z = mean[:, None] + torch.exp(0.5 * log_variance)[:, None] * noise
        reconstruction = self._log_likelihood(x, labels, z).mean(1)
        if not self.beta:
            return reconstruction, torch.zeros_like(reconstruction)
        if hasattr(self.prior, "kl"):
            return reconstruction, self.prior.kl(mean, log_variance)
        return reconstruction, monte_carlo_kl(self.prior, z, mean, log_variance)

    def forward(self, x, noise):
        """Loss of each record, shape (batch,)."""
        reconstruction, divergence = self.terms(x, noise)
        return self.beta * divergence - reconstruction

    def group_losses(self, x, members, noise, group_noise):
        """Loss of each group.

        Parameters
        ----------
        x : tensor of shape (n_groups, length, n_features + n_labels)
        members : tensor of shape (n_groups, length)
            1.0 for records, 0.0 for padding.
        noise : tensor of shape (n_groups, length, n_monte_carlo, n_latent)
        group_noise : tensor of shape (n_groups, n_prior_samples, 2, n_latent)

        Returns
        -------
        tensor of shape (n_groups,)
        """
        x, _ = self._split(x)
        mean, log_variance = (t.view(*x.shape[:2], -1) for t in self.encode(x.flatten(0, 1)))
        z = mean + torch.exp(0.5 * log_variance) * noise[:, :, 0]
        samples, log_prob = sample_with_log_prob(self.prior, group_noise)
        return self.alpha * self.divergence(GroupLatents(z, mean, log_variance, members), samples, log_prob)

    def importance_bound(self, x, noise):
        """Importance-weighted bound of the log-likelihood of each record: the log-mean of the weights of its samples.

        References
        ----------
        Burda, Grosse, Salakhutdinov, "Importance weighted autoencoders", ICLR 2016.
        """
        x, labels = self._split(x)
        mean, log_variance = self.encode(x)
        z = mean[:, None] + torch.exp(0.5 * log_variance)[:, None] * noise
        weights = self._log_likelihood(x, labels, z) + self.prior.log_prob(z) - log_q(z, mean, log_variance)
        return torch.logsumexp(weights, dim=1) - torch.log(torch.tensor(float(noise.shape[1])))

    def _split(self, x):
        return (x, None) if not self.n_labels else (x[..., : -self.n_labels], x[..., -self.n_labels :])

    def _log_likelihood(self, x, labels, z):
        """Log-likelihood of x for latents of shape (batch, n, n_latent), shape (batch, n)."""
        batch, n, _ = z.shape
        if labels is not None:
            labels = labels[:, None].expand(batch, n, self.n_labels).flatten(0, 1)
        output = self.decode(z.flatten(0, 1), labels)
        return self.likelihood.log_prob(output.view(batch, n, -1), x[:, None, :])


def _mlp(n_in, n_hidden, n_out):
    return nn.Sequential(nn.Linear(n_in, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_out))
