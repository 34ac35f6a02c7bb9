"""Modules with one loss for each record: of P3GM, of PriVAE, of disjoint parts of the records, and of audits."""

from __future__ import annotations

import contextlib
import copy

import torch
from torch import nn

from ._divergences import GroupLatents, make_divergence
from ._networks import LOG_VARIANCES, SparseEncoder, conv_decoder, conv_encoder, mlp
from ._parameters import check_network, check_number, check_size, check_sizes
from ._priors import NormalPrior, log_q, monte_carlo_kl, sample_with_log_prob

# Latent draws of a score: each pass over the rows costs one decoder call.
DRAWS = 8


class P3GMModule(nn.Module):
    """Variational autoencoder whose encoder mean is the released PCA; its loss is minus the ELBO of equation 7.

    The encoder's mean is ``(x - center) @ basis``, fixed and released. The decoder is trained and, unless the latent
    variance is zero, the encoder's variance.

    Parameters
    ----------
    basis : tensor of shape (n_features, n_latent)
    center : tensor of shape (n_features,)
    prior : MixturePrior
    likelihood : module with ``log_prob(output, x)``
    n_labels : int, default=0
        Number of trailing one-hot label columns of `x` that say which component of the prior a record belongs to.
    n_hidden : int, default=1000
        Units of the hidden layer.
    latent_variance : {"learned", "zero"}, default="learned"
        Variance of the encoder; "zero" is the paper's AE, whose loss is the reconstruction alone.
    n_monte_carlo : int, default=1
        Latent samples of a record (L of equation 7).
    decoder, variance : module, default=None
        Replacements for the networks: latent -> output, row -> log-variance. No batch normalisation. The decoder gets
        (batch, n_latent), or (batch, n_monte_carlo, n_latent) where there are several samples of a record.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM: Private High-Dimensional Data Release via Privacy Preserving
    Phased Generative Model", ICDE 2021, equation 7 and section IV.
    """

    def __init__(
        self, basis, center, prior, likelihood, *, n_labels=0, n_hidden=1000, latent_variance="learned",
        n_monte_carlo=1, decoder=None, variance=None,
    ):  # fmt: skip
        super().__init__()
        n_hidden, n_labels = check_sizes("n_hidden", n_hidden), check_size("n_labels", n_labels, 0)
        n_monte_carlo = check_size("n_monte_carlo", n_monte_carlo)
        if latent_variance not in ("learned", "zero"):
            raise ValueError(f'latent_variance must be "learned" or "zero"; got {latent_variance!r:.60}')
        check_network("decoder", decoder)
        check_network("variance", variance)
        self.register_buffer("basis", torch.as_tensor(basis, dtype=torch.float32))
        self.register_buffer("center", torch.as_tensor(center, dtype=torch.float32))
        n_features, n_latent = self.basis.shape
        self.prior, self.likelihood = prior, likelihood
        self.n_labels, self.n_monte_carlo, self.latent_variance = n_labels, n_monte_carlo, latent_variance
        self.decoder = mlp(n_latent, n_hidden, n_features) if decoder is None else decoder
        if latent_variance == "learned":
            self.variance = mlp(n_features, n_hidden, n_latent) if variance is None else variance
            # the training loop draws for each place of the batch: a draw made here would shift when a record joins
            self.noise_shape = (n_monte_carlo, n_latent)
        else:
            self.variance = None

    def encode(self, x):
        """Mean and log-variance of the latent Gaussian, each (batch, n_latent); log-variance None when it is zero."""
        mean = (x - self.center) @ self.basis
        return mean, None if self.variance is None else self.variance(x).clamp(*LOG_VARIANCES)

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


class PriVAEModule(nn.Module):
    """Variational autoencoder with the loss ``-log p(x|z) + beta KL(q(z|x) || p(z))`` for each record.

    The loss of a group of records is ``alpha D(q(z), p(z))``.

    Parameters
    ----------
    n_features : int
        Columns of a row, without labels.
    n_latent : int
    likelihood : module with ``log_prob(output, x)`` and ``mean(output)``
    prior : module, default=None
        Distribution of the latents, see `skdpgen.nn.NormalPrior`; None is the standard normal.
    divergence : {"mmd", "kl_prior"}, callable or None, default=None
        D; see `skdpgen.nn.UserDivergence` for what a callable may depend on.
    alpha, beta : float, default=1.0
        Weights of the group's and of the record's divergence.
    expected_group_size : float, default=1.0
        Expected number of records of a group, a constant of "kl_prior".
    n_labels : int, default=0
        Number of trailing one-hot label columns of a row. The decoder gets them, the encoder does not.
    n_monte_carlo : int, default=1
        Latent samples of a record (the paper's augmentation), of which groups use the first.
    n_prior_samples : int, default=32
        Samples of the prior for a group.
    image_shape : tuple, default=None
        Shape of a row that is an image; the networks are then convolutional.
    n_hidden : int, default=200
        Units of the hidden layer (ReLU) of encoder and decoder; without `image_shape`.
    n_channels : int, default=32
        Channels of the first convolution.
    encoder : module or "sparse", default=None
        In place of that encoder: (batch, n_features) -> (batch, 2 n_latent), means then log-variances; "sparse" is a
        `SparseEncoder`. No batch normalisation.
    decoder : module, default=None
        In place of that decoder: (batch, n_latent + n_labels) -> (batch, outputs). No batch normalisation.

    References
    ----------
    Takahashi, Takagi, Ono, Komatsu, "Differentially Private Variational Autoencoders with Term-wise Gradient
    Aggregation", 2020, equations 7, 12 and 13.
    """

    def __init__(
        self, n_features, n_latent, likelihood, *, prior=None, divergence=None, alpha=1.0, beta=1.0,
        expected_group_size=1.0, n_labels=0, n_monte_carlo=1, n_prior_samples=32, image_shape=None, n_hidden=200,
        n_channels=32, encoder=None, decoder=None,
    ):  # fmt: skip
        super().__init__()
        n_hidden, n_channels = check_sizes("n_hidden", n_hidden), check_size("n_channels", n_channels)
        n_monte_carlo = check_size("n_monte_carlo", n_monte_carlo)
        n_prior_samples = check_size("n_prior_samples", n_prior_samples)
        self.n_features, self.n_latent, self.n_labels = n_features, n_latent, check_size("n_labels", n_labels, 0)
        self.n_monte_carlo = n_monte_carlo
        self.alpha, self.beta = check_number("alpha", alpha), check_number("beta", beta)
        expected_group_size = check_number("expected_group_size", expected_group_size, above=True)
        self.likelihood = likelihood
        self.prior = NormalPrior() if prior is None else prior
        self.divergence = None if divergence is None else make_divergence(divergence, expected_group_size)
        self.architecture = None  # of the user's networks, which a file cannot hold
        if not (
            encoder is None or isinstance(encoder, nn.Module) or (isinstance(encoder, str) and encoder == "sparse")
        ):
            raise ValueError(f'encoder must be a module, "sparse" or None; got {encoder!r}')
        check_network("decoder", decoder)
        if decoder is None and not isinstance(encoder, nn.Module):
            sizes = {"image_shape": image_shape, "n_hidden": n_hidden, "n_channels": n_channels}
            self.architecture = sizes if encoder is None else {**sizes, "encoder": encoder}
        if isinstance(encoder, str):
            grey = image_shape is not None and len(image_shape) == 2 and min(image_shape) >= 2
            encoder = SparseEncoder(n_features, n_latent, image_shape=image_shape if grey else None)
        n_in, n_out = n_latent + n_labels, 2 * n_latent
        if image_shape is None:
            self.encoder = mlp(n_features, n_hidden, n_out) if encoder is None else encoder
            self.decoder = mlp(n_in, n_hidden, n_features) if decoder is None else decoder
        else:
            self.encoder = conv_encoder(image_shape, n_out, n_channels) if encoder is None else encoder
            self.decoder = conv_decoder(image_shape, n_in, n_channels) if decoder is None else decoder
        # the training loop draws for each place of the batch and each group (see `P3GMModule`)
        self.noise_shape = (n_monte_carlo, n_latent)
        self.group_noise_shape = (n_prior_samples, 2, n_latent)

    def encode(self, x):
        """Mean and log-variance of the latent Gaussian of rows (without labels), each (batch, n_latent)."""
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        return mean, log_variance.clamp(*LOG_VARIANCES)

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


class PartitionedVAEModule(nn.Module):
    """`n_parts` variational autoencoders of one shape; the last column of a row says which one it belongs to.

    Parameters
    ----------
    n_parts : int
    n_features, n_latent, likelihood, beta, n_labels, n_monte_carlo, image_shape, n_hidden, n_channels
        As in `PriVAEModule`, for each autoencoder; the prior is the standard normal.
    encoder, decoder : module, default=None
        As in `PriVAEModule`; each autoencoder has copies.

    Attributes
    ----------
    parts : ModuleList of PriVAEModule
    """

    def __init__(
        self, n_parts, n_features, n_latent, likelihood, *, beta=1.0, n_labels=0, n_monte_carlo=1, image_shape=None,
        n_hidden=200, n_channels=32, encoder=None, decoder=None,
    ):  # fmt: skip
        super().__init__()
        self.parts = nn.ModuleList(
            PriVAEModule(
                n_features, n_latent, copy.deepcopy(likelihood), beta=beta, n_labels=n_labels,
                n_monte_carlo=n_monte_carlo, image_shape=image_shape, n_hidden=n_hidden, n_channels=n_channels,
                encoder=copy.deepcopy(encoder), decoder=copy.deepcopy(decoder),
            )
            for _ in range(n_parts)
        )  # fmt: skip
        self.noise_shape = self.parts[0].noise_shape
        self._only = None

    def part_of(self, X):
        """Part of each row, int64, shape (batch,)."""
        return torch.round(X[:, -1]).long()

    @contextlib.contextmanager
    def only(self, part):
        """Within the block, treat all rows as records of one part, and run no other autoencoder."""
        self._only = part
        try:
            yield
        finally:
            self._only = None

    def forward(self, X, noise):
        """Loss of each record under the autoencoder of its part, shape (batch,); 0 for a part that does not exist."""
        rows = X[:, :-1]
        if self._only is not None:
            return self.parts[self._only](rows, noise)
        of_part, losses = self.part_of(X), 0.0
        for k, part in enumerate(self.parts):
            losses = losses + torch.where(of_part == k, part(rows, noise), 0.0)
        return losses


class CanaryModule(nn.Module):
    """Losses of an audit whose gradients are orthogonal: record k's lies along parameter k, at any parameters.

    `n_canaries`: number of canaries, each with one parameter, so that none hides another. `reach`: norm of a gradient
    before it is clipped.

    Records are of shape (batch, 1), the number of a canary. A group's loss is the sum of its members' losses.
    """

    def __init__(self, n_canaries, reach):
        super().__init__()
        self.table, self.reach = nn.Embedding(n_canaries, 1), reach

    def forward(self, x):
        return self.reach * self.table(x)[:, 0, 0]

    def group_losses(self, x, members):
        return self.reach * (self.table(x)[:, :, 0, 0] * members).sum(1)


class TurningModule(nn.Module):
    """Losses of an audit with one canary, which turns the gradient of its group round; of one parameter.

    `reach`: size of a gradient before it is clipped.

    Records are of shape (batch, 1): 1 for the canary, 0 for the others, whose own gradients are zero. The gradient of a
    group is `reach` with the canary and ``-reach`` without it: as far apart as two clipped gradients can be.
    """

    def __init__(self, reach):
        super().__init__()
        self.table, self.reach = nn.Embedding(1, 1), reach

    def forward(self, x):
        return self.reach * x[:, 0] * self._parameter(x)

    def group_losses(self, x, members):
        occupied, turned = members.amax(1), (x[:, :, 0] * members).amax(1)
        return self.reach * (2 * turned - occupied) * self._parameter(x)

    def _parameter(self, x):
        return self.table(x.new_zeros(len(x), dtype=torch.int64))[:, 0]


# ---- scores ----------------------------------------------------------------------------------------------------------
def fixed_normals(n_draws, shape, seed=0):
    """Standard normals for each of several draws, shape (n_draws, *shape), float64: antithetic pairs.

    All records are scored with the same draws, so the score of a record is a function of that record alone. One stream
    consumed record by record would give a record other draws when another record joins before it, and a sum of scores
    would then move by far more than the term of one record.

    `n_draws`: number of draws; where it is odd, the last pair is cut. `shape`: shape of the draws of one record.
    `seed`: public seed.
    """
    half = torch.randn(
        ((n_draws + 1) // 2, *shape), generator=torch.Generator().manual_seed(int(seed)), dtype=torch.float64
    )
    return torch.cat([half, -half])[:n_draws]


def in_double(module):
    """Copy a network to double precision: in single, the last bits of a score depend on the other rows of a batch."""
    return copy.deepcopy(module).double()
