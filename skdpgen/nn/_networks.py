"""Networks that the modules are built from, and the check of saved arrays against a network."""

from __future__ import annotations

import itertools
import numbers
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# Range of the log-variances that an encoder gives. The standard deviations, 0.0025 to 7.4, surround that of the prior,
# and neither an exponential nor its gradient overflows.
LOG_VARIANCES = (-12.0, 4.0)
# Images of at least this height and width may be made at half their sides.
_FINE_SIDE = 16


def mlp(n_in, n_hidden, n_out, *, layer=nn.Linear):
    """Return dense layers with ReLU between them.

    Parameters
    ----------
    n_in, n_out : int
        Widths of input and output.
    n_hidden : int or sequence of int
        Widths of the hidden layers: one number is one layer, the papers' encoder and decoder; none is a linear map.
    layer : Module class, default=torch.nn.Linear
        Class of a dense layer.
    """
    widths = [n_in, *([n_hidden] if isinstance(n_hidden, numbers.Integral) else n_hidden), n_out]
    first, *others = (layer(one, other) for one, other in itertools.pairwise(widths))
    return nn.Sequential(first, *(part for dense in others for part in (nn.ReLU(), dense)))


def layers_of_mlp(network):
    """Weights and biases of a network of `mlp`, as arrays; None for anything else."""
    parts, kinds = list(network) if isinstance(network, nn.Sequential) else [], (nn.Linear, nn.ReLU)
    if len(parts) % 2 == 0 or not all(isinstance(part, kinds[i % 2]) for i, part in enumerate(parts)):
        return None
    return [tuple(value.detach().cpu().numpy().copy() for value in (part.weight, part.bias)) for part in parts[::2]]


# ---- images given as rows: three 4 x 4 convolutions of stride 2, GroupNorm, ReLU -------------------------------------
class ToImage(nn.Module):
    """Rows to images, (batch, channels, height, width), padded with zeros.

    `multiple`: height and width are padded to multiples of it.
    """

    def __init__(self, image_shape, multiple=8):
        super().__init__()
        self.shape = (*image_shape, 1)[:3]
        self.low, self.padded = _padding(self.shape, multiple)

    def forward(self, x):
        height, width, channels = self.shape
        top, left = self.low
        image = x.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        return F.pad(image, (left, self.padded[1] - width - left, top, self.padded[0] - height - top))


class FromImage(nn.Module):
    """The inverse of `ToImage`."""

    def __init__(self, image_shape, multiple=8):
        super().__init__()
        self.shape = (*image_shape, 1)[:3]
        self.low, _ = _padding(self.shape, multiple)

    def forward(self, image):
        height, width, _ = self.shape
        top, left = self.low
        return image[:, :, top : top + height, left : left + width].permute(0, 2, 3, 1).flatten(1)


def _padding(shape, multiple=8):
    padded = [-(-side // multiple) * multiple for side in shape[:2]]
    return [(p - side) // 2 for p, side in zip(padded, shape)], padded


def conv_encoder(image_shape, n_out, n_channels=32):
    """Return a network from rows of images to `n_out` numbers: channels f, 2f, 4f, then a dense layer.

    Reference: Mathieu et al., ICML 2019, with GroupNorm in place of BatchNorm, which mixes records.
    """
    f, (height, width) = n_channels, _padding((*image_shape, 1)[:3])[1]
    channels = (*image_shape, 1)[2]
    return nn.Sequential(
        ToImage(image_shape),
        nn.Conv2d(channels, f, 4, 2, 1), nn.GroupNorm(_groups(f), f), nn.ReLU(),
        nn.Conv2d(f, 2 * f, 4, 2, 1), nn.GroupNorm(_groups(f), 2 * f), nn.ReLU(),
        nn.Conv2d(2 * f, 4 * f, 4, 2, 1), nn.GroupNorm(_groups(f), 4 * f), nn.ReLU(),
        nn.Flatten(), nn.Linear(4 * f * (height // 8) * (width // 8), n_out),
    )  # fmt: skip


def conv_decoder(image_shape, n_in, n_channels=32):
    """Return the mirror image of `conv_encoder`, from `n_in` numbers to rows of images."""
    f, (height, width) = n_channels, _padding((*image_shape, 1)[:3])[1]
    channels, left = (*image_shape, 1)[2], (height // 8, width // 8)
    return nn.Sequential(
        nn.Linear(n_in, 4 * f * left[0] * left[1]), nn.Unflatten(1, (4 * f, *left)),
        nn.GroupNorm(_groups(f), 4 * f), nn.ReLU(),
        nn.ConvTranspose2d(4 * f, 2 * f, 4, 2, 1), nn.GroupNorm(_groups(f), 2 * f), nn.ReLU(),
        nn.ConvTranspose2d(2 * f, f, 4, 2, 1), nn.GroupNorm(_groups(f), f), nn.ReLU(),
        nn.ConvTranspose2d(f, channels, 4, 2, 1), FromImage(image_shape),
    )  # fmt: skip


def coarse_decoder(image_shape, n_in, n_channels=32):
    """Return a network from `n_in` numbers to rows of images, which it makes at half their sides and interpolates.

    Images of fewer than 16 pixels on a side are made at their full size. For images of 28 x 28, a training step takes
    less than half the time of a `conv_decoder` with as many parameters: a convolution whose channels become pixels is
    faster on a CPU than a transposed convolution. `n_channels` is even.
    """
    if n_channels % 2:
        raise ValueError(f"n_channels must be even; got {n_channels}")
    by, channels = _coarseness(image_shape), (*image_shape, 1)[2]
    height, width = (side // (2 * by) for side in _padding(image_shape, 2 * by)[1])
    layers = [
        nn.Linear(n_in, n_channels * height * width), nn.Unflatten(1, (n_channels, height, width)),
        nn.GroupNorm(_groups(n_channels), n_channels), nn.ReLU(),
        nn.Conv2d(n_channels, 2 * n_channels, 3, padding=1), nn.PixelShuffle(2),
        nn.GroupNorm(_groups(n_channels // 2), n_channels // 2), nn.ReLU(),
        nn.Conv2d(n_channels // 2, channels, 3, padding=1),
    ]  # fmt: skip
    if by > 1:
        layers.append(nn.Upsample(scale_factor=by, mode="bilinear", align_corners=False))
    return nn.Sequential(*layers, FromImage(image_shape, 2 * by))


def coarse_pixels(image_shape):
    """Return a map from rows of images to averages over 2 x 2 pixels, and the number of its outputs.

    Images of fewer than 16 pixels on a side are not averaged.
    """
    by = _coarseness(image_shape)
    to_image = ToImage(image_shape, 2 * by)
    height, width = to_image.padded
    layers = [nn.AvgPool2d(by)] if by > 1 else []
    return nn.Sequential(to_image, *layers, nn.Flatten()), (*image_shape, 1)[2] * (height // by) * (width // by)


def _coarseness(image_shape):
    """Side of the squares of pixels that are averaged: 2, or 1 for images of few pixels."""
    return 2 if min(image_shape[:2]) >= _FINE_SIDE else 1


def _groups(channels):
    return next(g for g in (8, 4, 2, 1) if channels % g == 0)


# ---- sparse latents --------------------------------------------------------------------------------------------------
class SparseEncoder(nn.Module):
    """Encoder whose latents a divergence of single latent dimensions can make sparse.

    Such a divergence is small where some latents of each record are large, and also where *all* latents of some records
    are large. A variance or a length that changes with the record is enough for the second, which is found first and is
    not sparse. Here the variance is one constant, and the means of a record are normalised to one length, so a heavy
    tail in every dimension means a few large latents in every record. The means are signed squares, so that some
    latents are large from the first step.

    The rows pass through fixed random features. Only the last layer is trained, so noise falls on few parameters.

    Parameters
    ----------
    n_features, n_latent : int
    image_shape : (height, width), default=None
        Images are averaged over 2 x 2 pixels first.
    n_hidden : int, default=100
        Number of random features.
    scale : float, default=0.47
        Root mean square of a record's means; with the variance this is that of `SparsePrior`.
    log_variance : float, default=-4.5
        Log-variance of every latent: below that of `SparsePrior`'s spikes, whose spread is then that of the means.
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


# ---- model files -----------------------------------------------------------------------------------------------------
def check_module_arrays(make, arrays):
    """Raise ValueError unless the arrays have the names and shapes of the network that `make` builds without memory."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers without width
        wanted = {name: tuple(value.shape) for name, value in make().state_dict().items()}
    if wanted != {name: np.shape(array) for name, array in arrays.items()}:
        raise ValueError("the arrays do not fit the network that the file describes")
