"""Encoders and decoders of DP2-VAE, and the likelihoods of what they decode, as gradients: no loss is ever formed."""

from __future__ import annotations

import copy
import itertools
import math

import torch
from torch import nn

__all__ = ["ARCHITECTURES", "LIKELIHOODS", "SCRATCH", "check_modules", "in_patch_order", "make_decoder", "make_encoder"]

ARCHITECTURES = ("patches", "mlp", "conv_28", "conv_faces")
# Sizes of the "patches" decoder that stage 1 trains beside each encoder and throws away.
SCRATCH = {"n_hidden": 32, "n_channels": 8}
_CHANNELS = {"conv_28": (512, 256), "conv_faces": (512, 256, 128)}  # of the paper, MNIST and CelebA
_SMALLEST_LOG_SCALE, _LARGEST_LOG_SCALE = -5.0, 1.0


# ---- likelihoods ----------------------------------------------------------------------------------------------------
class Bernoulli:
    """Independent columns in [0, 1]; the decoder gives logits."""

    outputs_per_column = 1

    @staticmethod
    def gradient(output, x):
        """Gradient of minus the log-likelihood of `x` in the decoder's output, of its shape."""
        return torch.sigmoid(output).sub_(x)


class Gaussian:
    """Independent normal columns; the decoder gives means, then log-scales."""

    outputs_per_column = 2

    @staticmethod
    def gradient(output, x):
        """As `Bernoulli.gradient`."""
        mean, log_scale = output.chunk(2, dim=-1)
        inside = (log_scale > _SMALLEST_LOG_SCALE) & (log_scale < _LARGEST_LOG_SCALE)
        log_scale = log_scale.clamp(_SMALLEST_LOG_SCALE, _LARGEST_LOG_SCALE)
        gap = (mean - x) * torch.exp(-2 * log_scale)
        # beyond the clamp the scale may come back inside, and go no further
        slope = 1 - (mean - x) * gap
        outside = torch.where(log_scale < 0, slope.clamp(max=0.0), slope.clamp(min=0.0))
        return torch.cat([gap, torch.where(inside, slope, outside)], dim=-1)


class Table:
    """One categorical law a block of one-hot columns; the decoder gives logits.

    Parameters
    ----------
    widths : sequence of int
        Number of levels of each block.
    """

    outputs_per_column = 1

    def __init__(self, widths):
        block = torch.repeat_interleave(torch.arange(len(widths)), torch.as_tensor(list(widths)))
        self.block, self.n_blocks = block, len(widths)

    def gradient(self, output, x):
        """As `Bernoulli.gradient`."""
        block = self.block.to(output.device).expand(output.shape)
        shape = (*output.shape[:-1], self.n_blocks)
        top = torch.full(shape, -math.inf, dtype=output.dtype, device=output.device)
        top = top.scatter_reduce(-1, block, output, "amax")
        part = torch.exp(output - top.gather(-1, block))
        total = torch.zeros(shape, dtype=output.dtype, device=output.device).scatter_add(-1, block, part)
        # a row that holds no level of a block has no gradient there
        held = torch.zeros(shape, dtype=output.dtype, device=output.device).scatter_add(-1, block, x.expand_as(output))
        return part / total.gather(-1, block) * held.gather(-1, block) - x


LIKELIHOODS = {"bernoulli": Bernoulli, "gaussian": Gaussian, "table": Table}


# ---- networks -------------------------------------------------------------------------------------------------------
class _Dense(nn.Module):
    """`torch.nn.Linear` whose weight has shape (in, out): of a stack of them, gradients come in its memory order."""

    def __init__(self, n_in, n_out, bias=True):
        super().__init__()
        bound = 1 / math.sqrt(max(n_in, 1))
        self.weight = nn.Parameter(torch.empty(n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_out).uniform_(-bound, bound)) if bias else None

    def forward(self, x):
        return x @ self.weight if self.bias is None else x @ self.weight + self.bias


class _Conditional(nn.Module):
    """Concatenates the label to the input of a network of one argument."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, label):
        return self.body(torch.cat([x, label], dim=-1))


class PatchEncoder(nn.Module):
    """Images to numbers: one convolution whose stride is its size (4 x 4), two dense layers; label beside the last.

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


class _PatchGrid:
    """Rows of images cut into patches of 4 x 4 (padded with zeros where the sides are no multiples), and back.

    Where `ordered` is set, the pixels of a row come, and go, patch by patch already (see `in_patch_order`).
    """

    side, ordered = 4, False

    def __init__(self, image_shape):
        self.shape = (*image_shape, 1)[:3]
        self.cells = tuple(-(-size // self.side) for size in self.shape[:2])
        self.n_patches, self.width = math.prod(self.cells), self.side**2 * self.shape[2]

    def split(self, x):
        """(batch, pixels) to (batch, n_patches, width)."""
        if self.ordered:
            return x.reshape(-1, self.n_patches, self.width)
        height, width, channels = self.shape
        side, (down, across) = self.side, self.cells
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
        side, (down, across) = self.side, self.cells
        image = patches.reshape(-1, down, across, side, side, channels).permute(0, 1, 3, 2, 4, 5)
        image = image.reshape(-1, down * side, across * side, channels)
        return image[:, :height, :width].reshape(-1, height * width * channels)


def in_patch_order(encoder, decoder, likelihood):
    """Networks that take and give pixels patch by patch, which saves cutting and joining images at every step.

    Parameters
    ----------
    encoder, decoder : Module
    likelihood : object
        Of pixels one by one, or it has an order of its own.

    Returns
    -------
    encoder, decoder : Module
        Copies with the same parameters.
    order : int64 tensor of shape (n_pixels,) or None
        To put pixels into that order; None: these networks have no such form, and are returned as they are.
    """
    fits = isinstance(encoder, PatchEncoder) and isinstance(decoder, PatchDecoder) and isinstance(likelihood, Bernoulli)
    if not fits or encoder.grid.n_patches * encoder.grid.width != math.prod(encoder.grid.shape):
        return encoder, decoder, None
    order = encoder.grid.split(torch.arange(math.prod(encoder.grid.shape))).flatten()
    encoder, decoder = copy.deepcopy(encoder), copy.deepcopy(decoder)
    encoder.grid.ordered = decoder.grid.ordered = True
    return encoder, decoder, order


class ConvEncoder(nn.Module):
    """The paper's: convolutions of stride 2, leaky ReLU, a dense layer; the label as planes beside the image."""

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
        self.start, channels = (channels[-1], *sides[-1]), [*channels[::-1], self.shape[2]]
        self.into, layers = nn.Linear(n_in, math.prod(self.start)), []
        for i, (n, after) in enumerate(itertools.pairwise(channels)):
            target, source = sides[-2 - i], sides[-1 - i]
            odd = tuple(t - (2 * s - 1) for t, s in zip(target, source))
            layers += [nn.LeakyReLU(), nn.ConvTranspose2d(n, after, 3, 2, 1, output_padding=odd)]
        self.body = nn.Sequential(*layers)

    def forward(self, z, label):
        image = self.body(self.into(torch.cat([z, label], dim=-1)).reshape(-1, *self.start))
        return image.permute(0, 2, 3, 1).flatten(1)


def make_encoder(architecture, n_features, n_classes, n_latent, *, image_shape=None, n_hidden=32, n_channels=8):
    """Return a network (row, one-hot label) -> means and log-variances of the latent, each `n_latent` numbers.

    Parameters
    ----------
    architecture : {"patches", "mlp", "conv_28", "conv_faces"}
    n_features, n_classes, n_latent : int
    image_shape : tuple, default=None
        For all but "mlp".
    n_hidden, n_channels : int
        Of "patches" and "mlp".
    """
    if architecture == "mlp":
        return _Conditional(_mlp(n_features + n_classes, n_hidden, 2 * n_latent))
    if architecture == "patches":
        return PatchEncoder(image_shape, n_classes, 2 * n_latent, n_channels, n_hidden)
    return ConvEncoder(image_shape, n_classes, 2 * n_latent, _CHANNELS[architecture])


def make_decoder(architecture, n_outputs, n_classes, n_latent, *, image_shape=None, n_hidden=128, n_channels=16):
    """Return a network (latent, one-hot label) -> `n_outputs` numbers; parameters as in `make_encoder`."""
    if architecture == "mlp":
        return _Conditional(_mlp(n_latent + n_classes, n_hidden, n_outputs))
    if architecture == "patches":
        return PatchDecoder(image_shape, n_latent + n_classes, n_channels, n_hidden)
    return ConvDecoder(image_shape, n_latent + n_classes, _CHANNELS[architecture])


def _mlp(n_in, n_hidden, n_out):
    return nn.Sequential(_Dense(n_in, n_hidden), nn.ReLU(), _Dense(n_hidden, n_out))


def check_modules(encoder, decoder):
    """Refuse modules that mix the records of several subsets, or draw what is not keyed by subset and step.

    Parameters
    ----------
    encoder, decoder : Module
        Templates: every subset gets a copy of the encoder of its own.

    Raises
    ------
    ValueError
        For BatchNorm and other buffers that training changes, dropout, and parameters that both networks have.
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
            raise ValueError(f"{role} has nothing to train")
    if shared := {id(p) for p in encoder.parameters()} & {id(p) for p in decoder.parameters()}:
        raise ValueError(
            f"encoder and decoder share {len(shared)} parameters: what is shared would be common to all encoders, and "
            "every gradient would depend on every subset"
        )
