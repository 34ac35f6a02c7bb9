"""Smooth random deformations of images: an augmentation of sampled images by public random numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

# Width of the Gaussian that smooths the displacements, as a share of a side: pixels nearer than this move together.
_SMOOTH = 1 / 7
# Standard deviation of the angle by which an image turns, in radians, as a multiple of that of the displacement.
_TURN = 3.4
# Pixels that are displaced at once.
_BATCH = 512 * 784


def deform(images, image_shape, displacement, rng):
    """Displace the pixels of each image at random: smoothly, and by a turn about its middle.

    Simard, Steinkraus, Platt (2003), "Best practices for convolutional neural networks applied to visual document
    analysis". Beyond the frame, the pixels of the border are repeated.

    `images` (n_images, n_pixels): values in [0, 1].
    `displacement`: standard deviation of the displacement of a pixel along each axis, as a share of the side.
    `rng`: numpy Generator.
    Returns an array of shape (n_images, n_pixels), float32.
    """
    height, width, channels = (*image_shape, 1)[:3]
    smooth = [_smoothing(side) for side in (height, width)]
    down, across = (np.linspace(-1, 1, side, dtype=np.float32) for side in (height, width))
    found = np.empty((len(images), height * width * channels), dtype=np.float32)
    step = max(1, _BATCH // (height * width))
    for start in range(0, len(images), step):
        pixels = torch.from_numpy(np.array(images[start : start + step], dtype=np.float32))
        n = len(pixels)
        angle = (_TURN * displacement * rng.standard_normal((n, 1, 1))).astype(np.float32)
        moves = rng.standard_normal((2, n, height, width), dtype=np.float32)
        moves = 2 * displacement * (smooth[0] @ moves @ smooth[1].T)  # a side has the length 2
        x = np.cos(angle) * across - np.sin(angle) * down[:, None] + moves[0]
        y = np.sin(angle) * across + np.cos(angle) * down[:, None] + moves[1]
        moved = nn.functional.grid_sample(
            pixels.reshape(n, height, width, channels).permute(0, 3, 1, 2),
            torch.from_numpy(np.stack([x, y], axis=-1)),
            mode="bicubic", padding_mode="border", align_corners=True,
        )  # fmt: skip
        found[start : start + n] = moved.clamp_(0.0, 1.0).permute(0, 2, 3, 1).reshape(n, -1).numpy()
    return found


def _smoothing(side):
    """Matrix that smooths along a side; independent normals become ones of variance 1."""
    places = np.arange(side)
    kernel = np.exp(-0.5 * ((places[:, None] - places) / (_SMOOTH * side)) ** 2)
    return (kernel / np.linalg.norm(kernel, axis=1, keepdims=True)).astype(np.float32)
