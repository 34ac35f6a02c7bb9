"""Encoders and decoders of DP2-VAE, and the checks of networks that a user gives."""

from __future__ import annotations

import copy
import itertools
import math

import torch
from torch import nn

from ._likelihoods import BernoulliLikelihood, ScaledGaussianLikelihood, TableLikelihood
from ._networks import mlp

ARCHITECTURES = ("patches", "mlp", "conv_28", "conv_faces")
# Sizes of the auxiliary "patches" decoder that stage 1 trains beside each encoder and discards.
AUXILIARY = {"n_hidden": 32, "n_channels": 8}
LIKELIHOODS = {"bernoulli": BernoulliLikelihood, "gaussian": ScaledGaussianLikelihood, "table": TableLikelihood}
# Of columns of released Gaussians: the distance of their mean from 0 and 1, at least, and their least deviation.
_SURE, _LEAST_DEVIATION = 0.01, 0.02
_DENSITY = (2 * math.pi) ** -0.5
# Of encoders with random parameters: how far the means of latents of dummy rows are apart, and the log-variance of all
# latents. The usual initialisation gives .02 and 0: a decoder can learn nothing from such latents.
_SPREAD, _LOG_VARIANCE, _DUMMY_ROWS = 0.5, -3.0, 256
_CHANNELS = {"conv_28": (512, 256), "conv_faces": (512, 256, 128)}  # of the paper, MNIST and CelebA


class _Dense(nn.Module):
    """`torch.nn.Linear` whose weight has shape (in, out): gradients of a stack of them come in its memory order."""

    def __init__(self, n_in, n_out, bias=True):
        super().__init__()
        bound = 1 / math.sqrt(max(n_in, 1))
        self.weight = nn.Parameter(torch.empty(n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_out).uniform_(-bound, bound)) if bias else None

    def forward(self, x):
        return x @ self.weight if self.bias is None else x @ self.weight + self.bias


class Conditional(nn.Module):
    """Network of one argument that gets the label as further columns of its input."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, label):
        return self.body(torch.cat([x, label], dim=-1))


class PatchEncoder(nn.Module):
    """Images to numbers: one convolution whose stride is its size (4 x 4), then two dense layers that get the label.

    A convolution without overlap is one matrix product, which batches over many encoders.
    """

    def __init__(self, image_shape, n_classes, n_out, n_channels, n_hidden):
        super().__init__()
        self.grid = _PatchGrid(image_shape)
        self.patch = _Dense(self.grid.width, n_channels)
        self.hidden = _Dense(self.grid.n_patches * n_channels + n_classes, n_hidden)
        self.out = _Dense(n_hidden, n_out)

    def forward(self, x, label):
        patches = torch.relu(self.patch(self.grid.split(x))).flatten(1)
        return self.out(torch.relu(self.hidden(torch.cat([patches, label], dim=-1))))


class PatchDecoder(nn.Module):
    """Latent and label to images: two dense layers, then a transposed convolution whose stride is its size (4 x 4)."""

    def __init__(self, image_shape, n_in, n_channels, n_hidden):
        super().__init__()
        self.grid, self.n_channels = _PatchGrid(image_shape), n_channels
        self.hidden = _Dense(n_in, n_hidden)
        self.spread = _Dense(n_hidden, self.grid.n_patches * n_channels)
        self.patch = _Dense(n_channels, self.grid.width, bias=False)
        self.bias = nn.Parameter(torch.zeros(self.grid.n_patches, self.grid.width))

    def forward(self, z, label):
        spread = torch.relu(self.spread(torch.relu(self.hidden(torch.cat([z, label], dim=-1)))))
        return self.grid.join(self.patch(spread.reshape(-1, self.grid.n_patches, self.n_channels)) + self.bias)


class ReleasedDecoder(nn.Module):
    """Latent and label to logits of columns: a released Gaussian of the class, whose mean a network shifts.

    Given latent z and class k, a column is clip(N(m, s^2), 0, 1), where m = location + z slopes + network(z, k), and
    the logit of its mean comes out. The last layer of the network is set to zero, so that the training begins with the
    released Gaussian itself.

    `network`: (latent, one-hot class) to one number a column.
    `location`: shape (n_components, n_columns).
    `slopes`: shape (n_components, n_latent, n_columns).
    `deviation` (n_components, n_columns): as `LeadingDirections.columns` returns them. Labels are those of the
        components; with one alone there are none.
    """

    def __init__(self, network, location, slopes, deviation):
        super().__init__()
        self.network = network
        for name, value in (("location", location), ("slopes", slopes), ("deviation", deviation)):
            self.register_buffer(name, value.flatten(0, 1) if name == "slopes" else value)
        for p in _last_layer(network).parameters(recurse=False):
            nn.init.zeros_(p)

    def forward(self, z, label):
        given = label if label.shape[-1] else z.new_ones(*z.shape[:-1], 1)
        of_class = (given.unsqueeze(-1) * z.unsqueeze(-2)).flatten(-2)
        m = given @ self.location + of_class @ self.slopes + self.network(z, label)
        mean, slope = _clipped_mean(m.detach(), (given @ self.deviation).clamp(min=_LEAST_DEVIATION))
        mean = mean + slope * (m - m.detach())
        return torch.logit(_SURE + (1 - 2 * _SURE) * mean)

    def columns_in_order(self, order):
        """Put the columns of the released Gaussians in another order, in place."""
        for name in ("location", "slopes", "deviation"):
            setattr(self, name, getattr(self, name)[:, order])


def _last_layer(network):
    return [part for part in network.modules() if isinstance(getattr(part, "weight", None), nn.Parameter)][-1]


def _clipped_mean(m, s):
    """Mean of clip(N(m, s^2), 0, 1), and its derivative by m."""
    low, high = -m / s, (1 - m) / s
    below, under = torch.special.ndtr(low), torch.special.ndtr(high)
    density = s * _DENSITY * (torch.exp(-0.5 * low * low) - torch.exp(-0.5 * high * high))
    inside = under - below
    return (m * inside + density + 1 - under).clamp(0.0, 1.0), inside


class _PatchGrid:
    """Rows of images cut into patches of 4 x 4 (padded with zeros where the sides are no multiples), and back.

    With `ordered`, the pixels of a row are in the order of the patches already (see `in_patch_order`).
    """

    side, ordered = 4, False

    def __init__(self, image_shape):
        self.shape = (*image_shape, 1)[:3]
        self.counts = tuple(-(-size // self.side) for size in self.shape[:2])
        self.n_patches, self.width = math.prod(self.counts), self.side**2 * self.shape[2]

    def split(self, x):
        """(batch, pixels) to (batch, n_patches, width)."""
        if self.ordered:
            return x.reshape(-1, self.n_patches, self.width)
        height, width, channels = self.shape
        side, (down, across) = self.side, self.counts
        image = x.reshape(-1, height, width, channels)
        if (down * side, across * side) != (height, width):
            image = nn.functional.pad(image, (0, 0, 0, across * side - width, 0, down * side - height))
        image = image.reshape(-1, down, side, across, side, channels).permute(0, 1, 3, 2, 4, 5)
        return image.reshape(-1, self.n_patches, self.width)

    def join(self, patches):
        """The inverse of `split`."""
        if self.ordered:
            return patches.flatten(1)
        height, width, channels = self.shape
        side, (down, across) = self.side, self.counts
        image = patches.reshape(-1, down, across, side, side, channels).permute(0, 1, 3, 2, 4, 5)
        image = image.reshape(-1, down * side, across * side, channels)
        return image[:, :height, :width].reshape(-1, height * width * channels)


def in_patch_order(encoder, decoder, likelihood):
    """Return networks that take and give pixels patch by patch, which saves cutting and joining images at every step.

    `likelihood`: the order of the pixels may change under `BernoulliLikelihood` alone, which treats them one by one.
    Returns `encoder`, `decoder`: copies with the same parameters; `order` (n_pixels,): index of the pixels in that
        order. None: these networks have no such form and are returned unchanged.
    """
    network = decoder.network if isinstance(decoder, ReleasedDecoder) else decoder
    pairs = ((encoder, PatchEncoder), (network, PatchDecoder), (likelihood, BernoulliLikelihood))
    fits = all(isinstance(part, kind) for part, kind in pairs)
    if not fits or encoder.grid.n_patches * encoder.grid.width != math.prod(encoder.grid.shape):
        return encoder, decoder, None
    order = encoder.grid.split(torch.arange(math.prod(encoder.grid.shape))).flatten()
    encoder, decoder = copy.deepcopy(encoder), copy.deepcopy(decoder)
    if isinstance(decoder, ReleasedDecoder):
        decoder.columns_in_order(order)
    encoder.grid.ordered = getattr(decoder, "network", decoder).grid.ordered = True
    return encoder, decoder, order


class ConvEncoder(nn.Module):
    """The paper's encoder: convolutions of stride 2, leaky ReLU, a dense layer; the label is planes of the image."""

    def __init__(self, image_shape, n_classes, n_out, channels):
        super().__init__()
        self.shape, layers, n_in = (*image_shape, 1)[:3], [], (*image_shape, 1)[2] + n_classes
        side = self.shape[:2]
        for n in channels:
            layers += [nn.Conv2d(n_in, n, 3, 2, 1), nn.LeakyReLU()]
            n_in, side = n, tuple(-(-s // 2) for s in side)
        self.body, self.out = nn.Sequential(*layers, nn.Flatten()), nn.Linear(n_in * math.prod(side), n_out)

    def forward(self, x, label):
        height, width, channels = self.shape
        image = x.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        planes = label[:, :, None, None].expand(-1, -1, height, width)
        return self.out(self.body(torch.cat([image, planes], dim=1)))


class ConvDecoder(nn.Module):
    """The mirror image of `ConvEncoder`."""

    def __init__(self, image_shape, n_in, channels):
        super().__init__()
        self.shape = (*image_shape, 1)[:3]
        sides = [self.shape[:2]]
        for _ in channels:
            sides.append(tuple(-(-s // 2) for s in sides[-1]))
        self.first_shape, channels = (channels[-1], *sides[-1]), [*channels[::-1], self.shape[2]]
        self.into, layers = nn.Linear(n_in, math.prod(self.first_shape)), []
        for i, (n, after) in enumerate(itertools.pairwise(channels)):
            target, source = sides[-2 - i], sides[-1 - i]
            odd = tuple(t - (2 * s - 1) for t, s in zip(target, source))
            layers += [nn.LeakyReLU(), nn.ConvTranspose2d(n, after, 3, 2, 1, output_padding=odd)]
        self.body = nn.Sequential(*layers)

    def forward(self, z, label):
        image = self.body(self.into(torch.cat([z, label], dim=-1)).reshape(-1, *self.first_shape))
        return image.permute(0, 2, 3, 1).flatten(1)


def make_encoder(architecture, n_features, n_classes, n_latent, *, image_shape=None, n_hidden=32, n_channels=8):
    """Return a network (row, one-hot label) -> means and log-variances of the latent, each `n_latent` numbers.

    `architecture`: "patches" or "mlp" or "conv_28" or "conv_faces".
    `image_shape`: shape of a row that is an image; needed by all architectures except "mlp".
    `n_hidden`, `n_channels`: units of the hidden layer of "patches" and "mlp"; channels of the convolution of
        "patches".
    """
    if architecture == "mlp":
        return Conditional(mlp(n_features + n_classes, n_hidden, 2 * n_latent, layer=_Dense))
    if architecture == "patches":
        return PatchEncoder(image_shape, n_classes, 2 * n_latent, n_channels, n_hidden)
    return ConvEncoder(image_shape, n_classes, 2 * n_latent, _CHANNELS[architecture])


def make_decoder(architecture, n_outputs, n_classes, n_latent, *, image_shape=None, n_hidden=128, n_channels=16):
    """Return a network (latent, one-hot label) -> `n_outputs` numbers; parameters as in `make_encoder`."""
    if architecture == "mlp":
        return Conditional(mlp(n_latent + n_classes, n_hidden, n_outputs, layer=_Dense))
    if architecture == "patches":
        return PatchDecoder(image_shape, n_latent + n_classes, n_channels, n_hidden)
    return ConvDecoder(image_shape, n_latent + n_classes, _CHANNELS[architecture])


@torch.no_grad()
def spread_latents(encoder, n_features, n_classes, seed):
    """Scale the last layer of an encoder of `make_encoder` in place, so that latents differ from row to row.

    All encoders of subsets begin as copies of this one, so that they agree on what a latent means, and a decoder can
    learn it from the first step. The scale is that of dummy rows, uniform in [0, 1]: it does not depend on the data.

    `seed`: of the dummy rows.
    """
    rows = torch.rand(_DUMMY_ROWS, n_features, generator=torch.Generator().manual_seed(seed))
    means = encoder(rows, rows.new_zeros(len(rows), n_classes)).chunk(2, dim=-1)[0]
    last, n_latent, gain = _last_layer(encoder), means.shape[1], _SPREAD / means.std(0).mean().clamp(min=1e-6)
    weight = last.weight.T if isinstance(last, _Dense) else last.weight  # (outputs, inputs)
    weight[:n_latent] *= gain
    weight[n_latent:] = 0.0
    last.bias[:n_latent] = gain * (last.bias[:n_latent] - means.mean(0))
    last.bias[n_latent:] = _LOG_VARIANCE


def check_modules(encoder, decoder):
    """Refuse modules that mix the records of several subsets, or whose draws are not keyed by subset and step.

    `encoder`, `decoder`: templates: every subset gets a separate copy of the encoder. Raises ValueError for BatchNorm
    and other buffers that training changes, dropout, and parameters that both networks share.
    """
    for role, module in (("encoder", encoder), ("decoder", decoder)):
        if not isinstance(module, nn.Module):
            raise ValueError(f"{role}= must be a torch module; got {type(module).__name__}")
        for name, part in module.named_modules():
            where = f"{role}.{name}" if name else role
            if isinstance(part, nn.modules.batchnorm._NormBase):
                raise ValueError(
                    f"{where} is {type(part).__name__}: its statistics run over records of all subsets; use GroupNorm "
                    "or LayerNorm"
                )
            if isinstance(part, nn.modules.dropout._DropoutNd):
                raise ValueError(f"{where} is {type(part).__name__}: its draws would not be keyed by subset and step")
        if not any(p.requires_grad for p in module.parameters()):
            raise ValueError(f"{role} has nothing to train: set requires_grad on its parameters")
    if shared := {id(p) for p in encoder.parameters()} & {id(p) for p in decoder.parameters()}:
        raise ValueError(
            f"encoder and decoder share {len(shared)} parameters: they would be common to all encoders, and "
            "every gradient would depend on every subset"
        )
