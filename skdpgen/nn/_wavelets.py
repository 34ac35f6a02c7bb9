"""Wavelet features of images, and the descent that moves images towards given features."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# Gaussian widths, in pixels, and centre frequencies of the wavelets; sides of their kernels.
_SCALES = ((0.8, 3 * math.pi / 4, 7), (1.6, 3 * math.pi / 8, 13), (3.2, 3 * math.pi / 16, 25))
# Gaussian width of the local averages, in places of a map. With 2 in its place the network of P3GM's paper, trained on
# synthetic images at epsilon 1, loses .002 of MNIST and .008 of Fashion-MNIST (mean of two development splits).
_WIDTH = 1.4
# Distances of the averages: in an image, and in the maps of half its sides.
_DISTANCES = (4, 2)
# Bits after the point of what is convolved, of a wavelet and of the average along one side: sums of their products are
# then exact.
_PIXEL_BITS, _WAVELET_BITS, _AVERAGE_BITS = 16, 16, 12
# Most results of one window: with more of them, more products are with zero; with fewer, there are more windows.
_WINDOW = 8
# Columns: mean of red, green and blue with the weights of YCoCg, and the differences of red and blue, and of green and
# both. All are in [-1, 1], and whole numbers of quarters.
_COLOUR = ((0.25, 0.5, -0.25), (0.5, 0.0, 0.5), (0.25, -0.5, -0.25))
# Decay rates of Adam: of the running mean of gradients and of that of their squares.
_DECAYS = (0.8, 0.99)
# Gradients far below this do not move a pixel: an image whose features are at their target stays as it is.
_STILL = 1e-3


class WaveletFeatures(nn.Module):
    """First-order scattering coefficients: local averages of an image, and of its moduli after wavelets.

    One to three scales, and `n_angles` directions. Averages are taken every four pixels. The map is public: nothing in
    it depends on data.

    Parameters
    ----------
    image_shape : (height, width) or (height, width, channels)
    n_scales : {1, 2, 3}, default=2
    width : float, default=1.4
        Gaussian width of the averages.
    n_angles : int, default=8
    colour : bool, default=False
        Images of three channels: features are those of the mean of the channels, and of two differences between them.
        Edges and texture are in all channels of photographs at one place; features of each channel do not show this.

    References
    ----------
    Bruna and Mallat, "Invariant scattering convolution networks", IEEE TPAMI 2013.
    """

    def __init__(self, image_shape, *, n_scales=2, width=_WIDTH, n_angles=8, colour=False):
        super().__init__()
        self.shape = (*image_shape, 1)[:3]
        self.register_buffer("colour", torch.tensor(_COLOUR, dtype=torch.float64) if colour else None)
        self.n_scales, self.width, self.n_angles = n_scales, width, n_angles
        for i, (reach, frequency, side) in enumerate(_SCALES[:n_scales]):
            angles = math.pi * np.arange(n_angles) / n_angles
            kernels = np.stack([_wavelet(side, reach, frequency, angle) for angle in angles])
            both = _by_phase(_rounded(np.concatenate([kernels.real, kernels.imag]), _WAVELET_BITS))
            self.register_buffer(f"wavelets{i}", torch.from_numpy(both))
            self.register_buffer(f"backwards{i}", torch.from_numpy(_of_gradients(both)))
        for side, length in enumerate(self.shape[:2]):
            for distance in _DISTANCES:
                n = length if distance == _DISTANCES[0] else -(-length // 2)
                matrix = _rounded(_averages(n, -(-length // 4), distance, width), _AVERAGE_BITS)
                self.register_buffer(f"average{side}{distance}", torch.from_numpy(matrix))

    @property
    def n_features(self):
        """Number of features of an image."""
        height, width, channels = self.shape
        return channels * (1 + self.n_scales * self.n_angles) * -(-height // 4) * -(-width // 4)

    def forward(self, rows, *, exact=False):
        """Features of rows of images with values in [0, 1], shape (n_samples, n_features).

        `rows`: shape (n_samples, height * width * channels).
        `exact`: round what is convolved, so that no partial sum of the double precision module is rounded. The features
            of a row are then one and the same function of it, wherever the row stands.
        """
        height, width, channels = self.shape
        images = (_round(rows) if exact else rows).reshape(-1, height, width, channels)
        if self.colour is not None:
            images = images @ self.colour  # the sums of rounded pixels, in quarters, are exact
            images = _round(images) if exact else images
        images = images.permute(0, 3, 1, 2).reshape(-1, 1, height, width)
        parts = [self._averages(images, _DISTANCES[0])]
        # every other place of the convolution of an image is a convolution of its four phases: in torch several times
        # faster than a stride of 2
        phases = F.pixel_unshuffle(_of_even_sides(images), 2)
        for i in range(self.n_scales):
            wavelets = getattr(self, f"wavelets{i}")
            if exact:
                moduli = _round(_moduli(_convolved_in_double(phases, wavelets)))
            else:
                moduli = _Moduli.apply(phases, wavelets, getattr(self, f"backwards{i}"))
            parts.append(self._averages(moduli, _DISTANCES[1]))
        return torch.cat(parts, 1).flatten(1).reshape(len(rows), -1)

    def _averages(self, maps, distance):
        rows, columns = (getattr(self, f"average{side}{distance}") for side in (0, 1))
        return rows @ maps @ columns.T


class _Moduli(torch.autograd.Function):
    """Moduli of convolutions with complex wavelets, whose real parts stand before their imaginary parts.

    The gradient by the four phases of an image is a convolution with four output channels, which fill a quarter of a
    vector register of the processor. Here one convolution with a stride of 2 gives the phases of these phases: 16
    channels, in a third of the time.
    """

    @staticmethod
    def forward(ctx, phases, wavelets, backwards):
        found = F.conv2d(phases, wavelets, padding=wavelets.shape[-1] // 2)
        moduli = _moduli(found)
        ctx.save_for_backward(found, moduli, backwards)
        return moduli

    @staticmethod
    def backward(ctx, gradient):
        found, moduli, backwards = ctx.saved_tensors
        height, width = gradient.shape[2:]
        gradient = (found.unflatten(1, (2, -1)) * (gradient / moduli)[:, None]).flatten(1, 2)
        moved = F.conv2d(_of_even_sides(gradient), backwards, stride=2, padding=backwards.shape[-1] // 2 - 1)
        return F.pixel_shuffle(moved, 2)[:, :, :height, :width], None, None


def _moduli(found):
    real, imaginary = found.chunk(2, 1)
    return (real * real).add_(imaginary * imaginary).add_(1e-6).sqrt_()


def _convolved_in_double(maps, kernels):
    """Convolution as a product of matrices: in double precision several times faster than that of torch.

    A window of some rows of the maps gives several neighbouring results at once.
    """
    (n_maps, n_inputs, side, _), width = kernels.shape, maps.shape[3]
    n_windows = -(-width // _WINDOW)
    n_results = -(-width // n_windows)
    wide, reach = n_results + side - 1, side // 2
    band = kernels.new_zeros(n_maps, n_results, n_inputs, side, wide)
    for place in range(n_results):
        band[:, place, :, :, place : place + side] = kernels
    padded = F.pad(maps, (reach, n_windows * n_results - width + reach, reach, reach))
    windows = padded.unfold(2, side, 1).unfold(3, wide, n_results).permute(0, 2, 3, 1, 4, 5).flatten(3)
    found = (windows @ band.flatten(0, 1).flatten(1).T).unflatten(3, (n_maps, n_results))
    return found.permute(0, 3, 1, 2, 4).flatten(3)[..., :width]


def _of_even_sides(maps):
    height, width = maps.shape[2:]
    return F.pad(maps, (0, width % 2, 0, height % 2)) if height % 2 or width % 2 else maps


def _by_phase(kernels):
    """Kernels of odd sides as those of the four phases of an image, shape (n_kernels, 4, side, side).

    Phase 2 * b + d has the pixels at rows of remainder b and columns of remainder d by 2.
    """
    reach = kernels.shape[-1] // 2
    first = -((reach + 1) // 2)
    side = 1 - 2 * first
    found = np.zeros((len(kernels), 2, 2, side, side))
    for b, d in np.ndindex(2, 2):
        rows, columns = (np.arange(-reach + (reach + rest) % 2, reach + 1, 2) for rest in (b, d))
        places = np.ix_((rows - b) // 2 - first, (columns - d) // 2 - first)
        found[:, b, d][(slice(None), *places)] = kernels[:, rows + reach][:, :, columns + reach]
    return found.reshape(len(kernels), 4, side, side)


def _of_gradients(kernels):
    """Kernels of the convolution of stride 2 that maps a gradient by the output to the phases of that by the input.

    `kernels`: of the convolution itself, shape (n_maps, n_inputs, side, side). Returns an array of shape
    (n_inputs * 4, n_maps, new, new), where new is the first even number above the side.
    """
    n_maps, n_inputs, side, _ = kernels.shape
    new = side // 2 * 2 + 2
    found = np.zeros((n_inputs, 2, 2, n_maps, new, new))
    for b, d in np.ndindex(2, 2):
        rows, columns = (slice(new - 1 + rest - side, new - 1 + rest) for rest in (b, d))
        found[:, b, d, :, rows, columns] = kernels[:, :, ::-1, ::-1].swapaxes(0, 1)
    return found.reshape(n_inputs * 4, n_maps, new, new)


def _averages(n, n_averages, distance, width):
    """Matrix of Gaussian averages over n places, shape (n_averages, n)."""
    gaps = np.arange(n) - (np.arange(n_averages)[:, None] * distance + (distance - 1) / 2)
    weights = np.exp(-(gaps**2) / (2 * width**2))
    return weights / np.exp(-(np.arange(-99, 100) ** 2) / (2 * width**2)).sum()


def _wavelet(side, width, frequency, angle):
    """Morlet wavelet of a direction, complex; it is longer than it is wide."""
    at = np.arange(side) - side // 2
    x, y = np.meshgrid(at, at)
    along = np.cos(angle) * x + np.sin(angle) * y
    across = np.cos(angle) * y - np.sin(angle) * x
    envelope = np.exp(-(along**2 + across**2 / 4) / (2 * width**2))
    wave = envelope * np.exp(1j * frequency * along)
    return (wave - wave.sum() / envelope.sum() * envelope) / (4 * np.pi * width**2)


def _rounded(array, bits):
    return np.rint(array * 2.0**bits) * 2.0**-bits


def _round(tensor):
    return torch.round(tensor * 2.0**_PIXEL_BITS) * 2.0**-_PIXEL_BITS


def wavelet_features(images, image_shape, *, exact=False, **wavelets):
    """Features of images with values in [0, 1], in single precision; exactly those of each row in double precision.

    `wavelets` are ``n_scales``, ``width`` and ``colour`` of `WaveletFeatures`.
    """
    module = WaveletFeatures(image_shape, **wavelets)
    with torch.inference_mode():
        return (module if exact else module.float())(torch.from_numpy(images), exact=exact).numpy()


def move_to_features(rows, targets, matrix, image_shape, *, n_steps, rate, **wavelets):
    """Move images until their reduced wavelet features are near the targets.

    Each image moves by itself, by the gradient of the squared distance of its features from their target (Adam, with a
    step size that falls to zero), and stays in the box.

    `rows` (n_samples, n_pixels): images with values in [0, 1].
    `targets`: shape (n_samples, k).
    `matrix` (n_features, k): reduces features.
    `rate`: of the first step; it falls to zero.
    **wavelets: ``n_scales``, ``width`` and ``colour`` of `WaveletFeatures`.
    Returns an array of shape (n_samples, n_pixels).
    """
    features = WaveletFeatures(image_shape, **wavelets).float()
    matrix, targets = (torch.from_numpy(np.asarray(a, dtype=np.float32)) for a in (matrix, targets))
    moved = torch.from_numpy(np.array(rows, dtype=np.float32)).requires_grad_(True)
    mean, square = torch.zeros_like(moved), torch.zeros_like(moved)
    for step in range(n_steps):
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad((features(moved) @ matrix - targets).square().sum(), moved)
        # Adam; the first optimizer of torch in a process loads its compiler, which takes longer than many images
        mean.lerp_(gradient, 1 - _DECAYS[0])
        square.mul_(_DECAYS[1]).addcmul_(gradient, gradient, value=1 - _DECAYS[1])
        of_mean, of_square = (1 - decay ** (step + 1) for decay in _DECAYS)
        size = (square.sqrt() / math.sqrt(of_square)).add_(_STILL)
        with torch.no_grad():
            moved.addcdiv_(mean, size, value=-rate * (1 - step / n_steps) / of_mean).clamp_(0.0, 1.0)
    return moved.detach().numpy()
