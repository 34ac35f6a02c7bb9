"""Convolutional encoder and decoder of images given as rows: three 4 x 4 convolutions of stride 2, GroupNorm, ReLU."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

__all__ = ["FromImage", "ToImage", "conv_decoder", "conv_encoder"]


class ToImage(nn.Module):
    """Rows to images, (batch, channels, height, width), padded with zeros to multiples of 8.

    Parameters
    ----------
    image_shape : (height, width) or (height, width, channels)
    """

    def __init__(self, image_shape):
        super().__init__()
        self.shape = (*image_shape, 1)[:3]
        self.low, self.padded = _padding(self.shape)

    def forward(self, x):
        height, width, channels = self.shape
        top, left = self.low
        image = x.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        return F.pad(image, (left, self.padded[1] - width - left, top, self.padded[0] - height - top))


class FromImage(nn.Module):
    """The inverse of `ToImage`."""

    def __init__(self, image_shape):
        super().__init__()
        self.shape = (*image_shape, 1)[:3]
        self.low, _ = _padding(self.shape)

    def forward(self, image):
        height, width, _ = self.shape
        top, left = self.low
        return image[:, :, top : top + height, left : left + width].permute(0, 2, 3, 1).flatten(1)


def _padding(shape):
    padded = [-(-side // 8) * 8 for side in shape[:2]]
    return [(p - side) // 2 for p, side in zip(padded, shape)], padded


def conv_encoder(image_shape, n_out, n_channels=32):
    """Rows of images to `n_out` numbers: channels f, 2f, 4f, then a dense layer (a convolution of all that is left).

    References
    ----------
    Mathieu et al., ICML 2019, with GroupNorm in place of BatchNorm, which mixes records.
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
    """The mirror image of `conv_encoder`."""
    f, (height, width) = n_channels, _padding((*image_shape, 1)[:3])[1]
    channels, left = (*image_shape, 1)[2], (height // 8, width // 8)
    return nn.Sequential(
        nn.Linear(n_in, 4 * f * left[0] * left[1]), nn.Unflatten(1, (4 * f, *left)),
        nn.GroupNorm(_groups(f), 4 * f), nn.ReLU(),
        nn.ConvTranspose2d(4 * f, 2 * f, 4, 2, 1), nn.GroupNorm(_groups(f), 2 * f), nn.ReLU(),
        nn.ConvTranspose2d(2 * f, f, 4, 2, 1), nn.GroupNorm(_groups(f), f), nn.ReLU(),
        nn.ConvTranspose2d(f, channels, 4, 2, 1), FromImage(image_shape),
    )  # fmt: skip


def _groups(channels):
    return next(g for g in (8, 4, 2, 1) if channels % g == 0)
