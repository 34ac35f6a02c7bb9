"""Figures in images: their place, size and slant, and images in which all figures stand alike.

Everything here is a public map of each image by itself: the same function of it, whatever other images there are. Only
operations whose rounding is fixed take part, so that no last bit depends on the place of an image either.
"""

from __future__ import annotations

import numpy as np

from ..utils.blocks import exact_product

# Lowest and highest of each number of a pose: the center (across, down), in halves of a side; the slant, as the shift
# across per step down; the sizes (across, down), relative to `_TYPICAL`.
LOWEST, HIGHEST = np.array([-0.3, -0.3, -0.8, 0.5, 0.5]), np.array([0.3, 0.3, 0.8, 1.75, 1.75])
N_POSE = len(LOWEST)
# Scaled poses are so many times as long as scaled pixels: a pose tells more than a pixel, and the noise is equal in all
# directions.
POSE_WEIGHT = 3.0
# Standard deviations of the brightness of an upright figure across and down, in halves of a side. Those of digits are
# about so large; other figures are drawn larger or smaller, within the limits above.
_TYPICAL = 0.26, 0.41
_UPRIGHT = np.array([0.0, 0.0, 0.0, 1.0, 1.0])
# Mean difference from the background below which an image shows no figure.
_EMPTY = 1e-3
# Places that are added at both ends of an axis, so that four neighbours lie within it wherever a place is.
_ENDS = 4
# Pixels that are resampled at once.
_BATCH_PIXELS = 1 << 17


def poses_of(images, image_shape):
    """Measure the pose of the figure in each image by the moments of its difference from the background.

    `images` (n_images, n_pixels): values in [0, 1]. The background is the median of the border of an image.
    Returns an array of shape (n_images, 5), between `LOWEST` and `HIGHEST`.
    """
    height, width, channels = (*image_shape, 1)[:3]
    pixels = np.asarray(images, dtype=np.float64).reshape(-1, height, width, channels)
    weights = np.abs(pixels - _background(pixels)[:, None, None]).mean(axis=3).reshape(len(pixels), -1)
    down, across = (part.ravel() for part in np.meshgrid(_places(height), _places(width), indexing="ij"))
    powers = np.column_stack([np.ones_like(down), across, down, across * across, across * down, down * down])
    moments = exact_product(weights, powers)
    shown = moments[:, 0] > _EMPTY * height * width
    mass = np.where(shown, moments[:, 0], 1.0)
    x, y, xx, xy, yy = (moments[:, i] / mass for i in range(1, 6))
    xx, xy, yy = xx - x * x, xy - x * y, np.maximum(yy - y * y, 1e-4)
    slant = np.clip(xy / yy, LOWEST[2], HIGHEST[2])
    sizes = np.sqrt(np.maximum(xx - slant * xy, 1e-4)) / _TYPICAL[0], np.sqrt(yy) / _TYPICAL[1]
    found = np.clip(np.column_stack([x, y, slant, *sizes]), LOWEST, HIGHEST)
    return np.where(shown[:, None], found, _UPRIGHT)


def stand_upright(images, poses, image_shape):
    """Images whose figures stand in the middle, without slant and in the typical size; values in [0, 1].

    Beyond the frame of an image is its background.
    """
    x, y, slant, wide, high = (poses[:, i, None] for i in range(N_POSE))
    places = _places(image_shape[0]), _places(image_shape[1])
    from_middle = high * places[0]
    across = (x + slant * from_middle)[:, :, None] + wide[:, :, None] * places[1]
    return _resampled(images, y + from_middle, across, image_shape)


def posed(images, poses, image_shape):
    """Undo `stand_upright`, but for the detail that is lost by resampling."""
    x, y, slant, wide, high = (poses[:, i, None] for i in range(N_POSE))
    places = _places(image_shape[0]), _places(image_shape[1])
    from_middle = places[0] - y
    across = (places[1] - (x + slant * from_middle)[:, :, None]) / wide[:, :, None]
    return _resampled(images, from_middle / high, across, image_shape)


def _background(pixels):
    """Median of the border of each image, shape (n_images, channels)."""
    edges = (pixels[:, [0, -1]], pixels[:, 1:-1, [0, -1]])
    border = np.concatenate([edge.reshape(len(pixels), -1, pixels.shape[3]) for edge in edges], axis=1)
    return np.median(border, axis=1)


def _places(side):
    """Middle of each pixel along a side, from -1 to 1."""
    return (2.0 * np.arange(side) - (side - 1)) / max(side - 1, 1)


def _resampled(images, down, across, image_shape):
    """Images at other places: first along each column, then along each row.

    `down` (n_images, height), `across` (n_images, height, width): place of each new row, and of each new pixel in it.
    """
    height, width, channels = shape = (*image_shape, 1)[:3]
    found = np.empty((len(images), height * width * channels))
    step = max(1, _BATCH_PIXELS // (height * width * channels))
    for start in range(0, len(images), step):
        part = slice(start, start + step)
        pixels = np.asarray(images[part], dtype=np.float64).reshape(-1, *shape)
        beyond = _background(pixels)[:, :, None, None]
        columns = _between(pixels.transpose(0, 3, 2, 1), _index(down[part], height)[:, None, None], beyond)
        rows = _between(columns.transpose(0, 1, 3, 2), _index(across[part], width)[:, None], beyond)
        found[part] = np.clip(rows.transpose(0, 2, 3, 1), 0.0, 1.0).reshape(len(pixels), -1)
    return found


def _index(places, side):
    """Places from -1 to 1 as indices of pixels, with fractions."""
    return (places * (side - 1) + (side - 1)) / 2


def _between(values, index, beyond):
    """Values between the entries of the last axis, by cubic convolution; `beyond` its ends.

    `index`, `beyond`: broadcast against `values` along all other axes.
    """
    shape = np.broadcast_shapes(values.shape[:-1], index.shape[:-1]) + index.shape[-1:]
    n = values.shape[-1]
    ends = np.broadcast_to(beyond, (*values.shape[:-1], _ENDS))
    values = np.concatenate([ends, values, ends], axis=-1)
    first = np.floor(index)
    t = index - first
    # Keys' kernel with a = -1/2: exact for parabolas
    weights = (
        ((2.0 - t) * t - 1.0) * t / 2,
        ((3.0 * t - 5.0) * t * t + 2.0) / 2,
        ((4.0 - 3.0 * t) * t + 1.0) * t / 2,
        (t - 1.0) * t * t / 2,
    )
    starts = np.arange(0, values.size, n + 2 * _ENDS).reshape(*values.shape[:-1], 1)
    at = starts + (np.clip(first, 1 - _ENDS, n + _ENDS - 3).astype(np.intp) + _ENDS)
    found, values = np.zeros(shape), values.ravel()
    for offset, weight in zip((-1, 0, 1, 2), weights):
        found += weight * values.take(at + offset)
    return found
