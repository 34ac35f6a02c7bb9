"""Networks that refine released models: the products of tables, and the Gaussians of images."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from skorch.callbacks import Callback
from torch import nn

from ._dp2vae import Conditional, ReleasedDecoder
from ._likelihoods import BernoulliLikelihood
from ._modules import DRAWS, fixed_normals, in_double
from ._networks import mlp
from ._parameters import check_size, check_sizes

# Variance of the encoder of images; the latents of all images have a variance of about 1. A larger one draws the slopes
# of the decoder towards zero.
_LATENT_VARIANCE = 0.01


class ImageRefinementModule(nn.Module):
    """Released Gaussians of images whose means a network shifts; the loss is minus the ELBO of equation 7 of P3GM.

    The latents are the coordinates of an image along the widest directions of the Gaussian of its class, or of a part
    of its class: the encoder is released, like the PCA of the paper, and its variance is fixed. The decoder is a
    `ReleasedDecoder`. The last layer of its network starts at zero, so before the first step the model is exactly the
    released one.

    Parameters
    ----------
    location, deviation : arrays of shape (n_gaussians, n_pixels)
    slopes : array of shape (n_gaussians, n_latent, n_pixels)
        Released. Given latent z, a pixel is normally distributed about ``location + z @ slopes``, with standard
        deviation `deviation`, and clipped to [0, 1].
    n_labels : int, default=0
        Number of trailing one-hot columns of a row, which say its Gaussian: 0 or `n_gaussians`. The columns before them
        are the pixels in [0, 1], then the latents.
    n_hidden : int or sequence of int, default=()
        Units of the hidden layers (ReLU); an empty sequence is a linear map, which has far less noise.
    n_monte_carlo : int, default=1
        Latents that are drawn for a record (L of equation 7).
    """

    def __init__(self, location, slopes, deviation, *, n_labels=0, n_hidden=(), n_monte_carlo=1):
        super().__init__()
        n_hidden, n_labels = check_sizes("n_hidden", n_hidden), check_size("n_labels", n_labels, 0)
        n_monte_carlo = check_size("n_monte_carlo", n_monte_carlo)
        location, slopes, deviation = (torch.as_tensor(x, dtype=torch.float32) for x in (location, slopes, deviation))
        self.n_labels, (_, self.n_latent, self.n_pixels) = n_labels, slopes.shape
        network = Conditional(mlp(self.n_latent + n_labels, n_hidden, self.n_pixels))
        self.decoder, self.likelihood = ReleasedDecoder(network, location, slopes, deviation), BernoulliLikelihood()
        # the training loop draws for each place of the batch: a draw made here would shift when a record joins
        self.noise_shape = (n_monte_carlo, self.n_latent)

    @property
    def network(self):
        """Latents and one-hot label to what is added to the mean of each pixel."""
        return self.decoder.network.body

    def forward(self, x, noise):
        """Loss of each record, shape (batch,); 0 for a record that has no Gaussian."""
        pixels, mean, label = x.split((self.n_pixels, self.n_latent, self.n_labels), -1)
        latent = (mean[:, None] + _LATENT_VARIANCE**0.5 * noise).flatten(0, 1)
        labels = label.repeat_interleave(noise.shape[1], 0)
        output = self.decoder(latent, labels).view(len(x), noise.shape[1], -1)
        reconstruction = self.likelihood.log_prob(output, pixels[:, None]).mean(1)
        constant = self.n_latent * (_LATENT_VARIANCE - 1 - math.log(_LATENT_VARIANCE))
        divergence = 0.5 * (mean.square().sum(-1) + constant)
        return (divergence - reconstruction) * (label.sum(-1) if self.n_labels else 1.0)


def image_elbos(layers, location, slopes, deviation, n_labels):
    """Return the function of rows to their ELBOs, by the same draws for all rows, of a network of given layers.

    `layers`: arrays, of an `ImageRefinementModule`. `location`, `slopes`, `deviation`, `n_labels`: of that module.
    Returns: array of shape (n_rows, n_columns) to one of shape (n_rows,), float64.
    """
    n_hidden = [len(bias) for _, bias in layers[:-1]]
    module = ImageRefinementModule(location, slopes, deviation, n_labels=n_labels, n_hidden=n_hidden)
    with torch.no_grad():
        for parameter, value in zip(module.network.parameters(), (value for layer in layers for value in layer)):
            parameter.copy_(torch.from_numpy(np.array(value)))
    module, draws = in_double(module), fixed_normals(DRAWS, module.noise_shape)

    def elbos(rows):
        x = torch.from_numpy(rows)
        with torch.inference_mode():
            return -torch.stack([module(x, draw.expand(len(x), *draw.shape)) for draw in draws]).mean(0).numpy()

    return elbos


class TableRefinementModule(nn.Module):
    """Mixture of product distributions whose released decoder a network refines; the loss is minus the log-likelihood.

    The support points of a class are equally likely, and given a point the blocks of a row are independent. The logits
    of their levels are ``logits + network(features)``. The last layer of the network starts at zero, so before the
    first step the model is exactly the released one.

    The points of a row are drawn from their distribution given the row and its class, under the current parameters. By
    Fisher's identity the gradient of minus the log-probability of the row at such points, which is the loss, has the
    gradient of minus the log-likelihood as its expected value: there is no encoder to train, and the bound is tight.

    Parameters
    ----------
    features : array of shape (n_classes, n_points, n_features)
        Input of the network at each support point; released.
    logits : array of shape (n_classes, n_points, n_columns_encoded)
        Output of the released decoder there.
    widths : sequence of int
        Number of levels of each block.
    shares : array of shape (n_classes,), default=None
        Released share of each class, for `anchor_loss`; None: all equal.
    n_labels : int, default=0
        Number of trailing one-hot label columns of a row, which say the class: 0 or `n_classes`.
    n_hidden : int or sequence of int, default=100
        Units of the hidden layers (ReLU); an empty sequence is a linear map.
    n_monte_carlo : int, default=2
        Points that are drawn for a record. The gradient of their mean is clipped, so more of them cost no privacy.
    """

    def __init__(self, features, logits, widths, *, shares=None, n_labels=0, n_hidden=100, n_monte_carlo=2):
        super().__init__()
        n_hidden, n_labels = check_sizes("n_hidden", n_hidden), check_size("n_labels", n_labels, 0)
        n_monte_carlo = check_size("n_monte_carlo", n_monte_carlo)
        features, logits = (torch.as_tensor(x, dtype=torch.float32) for x in (features, logits))
        self.n_points, self.n_labels = features.shape[1], n_labels
        self.widths = tuple(int(width) for width in widths)
        self.register_buffer("features", features.flatten(0, 1))
        self.register_buffer("logits", logits.flatten(0, 1))
        self.register_buffer("starts", torch.tensor([0, *self.widths]).cumsum(0)[:-1])
        shares = torch.full((len(features),), 1 / len(features)) if shares is None else torch.as_tensor(shares)
        self.register_buffer("shares", shares.float())
        self.network = mlp(features.shape[-1], n_hidden, logits.shape[-1])
        nn.init.zeros_(self.network[-1].weight)
        nn.init.zeros_(self.network[-1].bias)
        # the training loop draws for each place of the batch: a draw made here would shift when a record joins
        self.noise_shape = (n_monte_carlo,)
        self._known = self._released = None

    def forward(self, x, noise):
        """Loss of each record, shape (batch,)."""
        rows = x[:, : x.shape[1] - self.n_labels]
        codes = torch.stack([block.argmax(-1) for block in rows.split(self.widths, -1)], -1) + self.starts
        point = self._draw_points(codes, x[:, rows.shape[1] :], noise)
        logs = self._log_softmax(self.logits[point] + self.network(self.features[point]))
        return -logs.gather(-1, codes[:, None].expand(-1, noise.shape[1], -1)).sum(-1).mean(-1)

    def log_probabilities(self):
        """Log-probability of each level at each support point, shape (n_classes * n_points, n_columns_encoded)."""
        with torch.no_grad():
            return self._log_softmax(self.logits + self.network(self.features))

    def anchor_loss(self):
        """Squared distance between the one-way and two-way tables of the refined and of the released model, in shares.

        A function of the parameters and of released values alone.
        """
        if self._released is None:
            with torch.no_grad():
                self._released = self._probabilities(self.logits)
        refined, released = self._probabilities(self.logits + self.network(self.features)), self._released
        blocks = zip(refined.split(self.widths, -1), released.split(self.widths, -1))
        pairs = _product_distance(refined, released) - sum(_product_distance(*block) for block in blocks)
        one_way = (refined.mean(1) - released.mean(1)).square().sum(-1)
        # a pair of blocks has two tables, one the transpose of the other
        return self.shares.square() @ (pairs / (2 * self.n_points**2) + one_way)

    def _probabilities(self, logits):
        """Of each level at each point, shape (n_classes, n_points, n_columns_encoded)."""
        return torch.exp(self._log_softmax(logits)).view(-1, self.n_points, logits.shape[1])

    @torch.no_grad()
    def _draw_points(self, codes, labels, noise):
        """Support points of records given their levels and classes, shape (batch, n_monte_carlo).

        A draw is a step function of the record. Sums of the same terms in the same order, row by row, keep it from
        depending on what else is in the batch, where a product of matrices might round otherwise.
        """
        table, n = self._table(), self.n_points
        classes = labels.argmax(-1) if self.n_labels else torch.zeros_like(codes[:, 0])
        chosen = torch.empty(noise.shape, dtype=torch.int64, device=codes.device)
        for k in range(len(self.logits) // n):
            own = torch.nonzero(classes == k)[:, 0]
            if len(own):
                scores = F.embedding_bag(codes[own], table[k], mode="sum")
                reached = torch.softmax(scores, -1).cumsum_(-1)
                uniforms = torch.special.ndtr(noise[own]) * reached[:, -1:]
                chosen[own] = torch.searchsorted(reached, uniforms).clamp_(max=n - 1) + k * n
        return chosen

    def _table(self):
        """Log-probabilities by class, level and point; a function of released parameters, computed once a step."""
        version = tuple((id(p), p._version) for p in self.network.parameters())
        if self._known is None or self._known[0] != version:
            logs = self.log_probabilities().view(-1, self.n_points, self.logits.shape[1])
            self._known = version, logs.transpose(1, 2).contiguous()
        return self._known[1]

    def _log_softmax(self, logits):
        return torch.cat([F.log_softmax(block, -1) for block in logits.split(self.widths, -1)], -1)


def _product_distance(one, other):
    """Squared distance between ``p^T p`` of two stacks of matrices, shape (n,), by the smaller of their products."""
    if one.shape[-1] <= one.shape[-2]:
        return (one.mT @ one - other.mT @ other).square().sum((-2, -1))
    squares = [(left @ right.mT).square().sum((-2, -1)) for left, right in ((one, one), (other, other), (one, other))]
    return squares[0] + squares[1] - 2 * squares[2]


class TableAnchor(Callback):
    """Keep the tables of a refined model near those of the released one, while DP-SGD trains its network.

    The released model has the released two-way tables, without much of their noise. The gradient of
    ``weight * anchor_loss()`` of a `TableRefinementModule` is added to the noisy gradient of each step:
    post-processing.

    Parameters
    ----------
    weight : float, default=5.0
        0 adds nothing.
    """

    def __init__(self, weight=5.0):
        self.weight = weight

    def on_grad_computed(self, net, **kwargs):
        """Add the gradient."""
        parameters = list(net.module_.network.parameters())
        gradients = torch.autograd.grad(self.weight * net.module_.anchor_loss(), parameters)
        for p, gradient in zip(parameters, gradients):
            p.grad.add_(gradient)
