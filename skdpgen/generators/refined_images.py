"""Images of released Gaussians, moved until their wavelet features have released moments.

Everything here is a function of released values and of synthetic images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..utils.blocks import exact_product
from ..utils.file_checks import check_whole
from .components import spread_components
from .gaussians import MOST_NUMBERS, LinearGenerator

__all__ = ["FeatureSpace", "RefinedImages", "feature_maps", "feature_space"]

# Synthetic images that features are reduced by; features that are kept.
_IMAGES, _MOST_FEATURES = 8_000, 100
# Reduced features are divided by this power of their variance: the noise then hides less of those that vary little.
_POWER = 0.25
# Least variance that this reckons with, relative to the largest.
_LEAST_VARIANCE = 1e-6
# Real images are clipped to so many times the norm within which this share of the synthetic ones lies: they vary more.
_INSIDE, _BEYOND = 0.9, 1.2
# Images whose features are computed at once; of the private ones in double precision.
_BATCH, _EXACT_BATCH = 512, 256
# Features that are summed exactly at once.
_EXACT_TERMS = 4096
# Entries of all features of the synthetic images together: they are kept in memory.
_MOST_ENTRIES = 1 << 26
# Synthetic images of any class that the covariance of a class counts besides its own.
_SHARED = 10


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Reduced wavelet features of images, chosen on synthetic images of the released moments.

    Parameters
    ----------
    image_shape : tuple
    low, high : arrays of shape (n_pixels,)
        Box of scaled rows.
    matrix : array of shape (n_features, k)
    classes : int array of shape (n_images,)
        Of the synthetic images.
    features : array of shape (n_images, k)
        Theirs.
    centers : array of shape (n_classes, k)
        Mean of each class of them.
    radius : float
        Norm to which real images are clipped about the center of their class.
    """

    image_shape: tuple
    low: np.ndarray
    high: np.ndarray
    matrix: np.ndarray
    classes: np.ndarray
    features: np.ndarray
    centers: np.ndarray
    radius: float

    def encode(self, scaled):
        """Reduced features of scaled rows: one and the same function of each row, wherever the row stands."""
        if not len(scaled):
            return np.empty((0, self.matrix.shape[1]))
        apart = (scaled != scaled[-1]).any(axis=1)
        apart[-1] = True  # of rows like the last, as the padding of a chunk, one is enough
        encoded = self._encode(scaled[apart])
        found = np.tile(encoded[-1], (len(scaled), 1))
        found[apart] = encoded
        return found

    def _encode(self, scaled):
        from ..nn._wavelets import wavelet_features

        found = np.zeros((len(scaled), self.matrix.shape[1]))
        for start in range(0, len(scaled), _EXACT_BATCH):
            part = slice(start, start + _EXACT_BATCH)
            images = (scaled[part] - self.low) / (self.high - self.low)
            rows = wavelet_features(images, self.image_shape, exact=True)
            for first in range(0, len(self.matrix), _EXACT_TERMS):  # products of more terms might be rounded
                terms = slice(first, first + _EXACT_TERMS)
                found[part] += exact_product(rows[:, terms], self.matrix[terms])
        return found


def feature_space(generator, image_shape, rng):
    """Draw synthetic images and choose their features: principal components of the wavelet features.

    Parameters
    ----------
    generator : LinearGenerator
    image_shape : tuple
    rng : numpy.random.Generator

    Returns
    -------
    FeatureSpace
    """
    from sklearn.decomposition import PCA  # which loads linear models, of which fits of tables have none

    from ..nn._wavelets import WaveletFeatures

    n_classes = len(generator.mixture.weights) // generator.per_class
    n_features = WaveletFeatures(image_shape).n_features
    n_images = max(min(_IMAGES, _MOST_ENTRIES // n_features), 1000)
    classes = np.sort(spread_components(n_images, np.ones(n_classes), rng))
    low, high = generator.low, generator.high
    images = ((generator.sample(classes, rng) - low) / (high - low)).astype(np.float32)
    found = _features(images, image_shape)
    k = min(_MOST_FEATURES, math.isqrt(MOST_NUMBERS // n_classes), *(side - 1 for side in found.shape))
    pca = PCA(k, svd_solver="randomized", random_state=int(rng.integers(2**31))).fit(found)
    variance = np.maximum(pca.explained_variance_, _LEAST_VARIANCE * pca.explained_variance_[0] + 1e-12)
    matrix = pca.components_.T * (variance / variance[0]) ** -_POWER
    features = found @ matrix
    # of more classes than images some have none
    counts = np.bincount(classes, minlength=n_classes)[:, None]
    centers = np.tile(features.mean(axis=0), (n_classes, 1))
    np.add.at(centers, classes, (features - centers[0]) / counts[classes])
    radius = _BEYOND * float(np.quantile(np.linalg.norm(features - centers[classes], axis=1), _INSIDE))
    return FeatureSpace(image_shape, low, high, matrix, classes, features, centers, max(radius, 1e-9))


def feature_maps(space, latents):
    """For each class the linear map of features about their center that gives them their released covariance.

    Between two normal distributions it is the map that moves points least.

    Parameters
    ----------
    space : FeatureSpace
    latents : ClassLatents
        Of the features of real images.

    Returns
    -------
    array of shape (n_classes, k, k)
        Multiplies rows from the right.
    """
    maps = np.empty((len(space.centers), *2 * space.matrix.shape[1:]))
    k, spreads = space.matrix.shape[1], space.features - space.centers[space.classes]
    shared = spreads.T @ spreads / len(spreads)
    for c in range(len(maps)):
        spread = spreads[space.classes == c]
        now = (spread.T @ spread + _SHARED * shared) / (len(spread) + _SHARED)
        now += (1e-3 * np.trace(now) / k + 1e-12) * np.eye(k)
        real = latents.components @ latents.mixture.covariances[c] @ latents.components.T
        root, inverse = _power(now, 0.5), _power(now, -0.5)
        maps[c] = inverse @ _power(root @ real @ root, 0.5) @ inverse
    return maps


def _power(matrix, exponent):
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, 1e-12) ** exponent) @ vectors.T


class RefinedImages(LinearGenerator):
    """Images of a `LinearGenerator`, moved until their wavelet features have released moments.

    The features of an image of class k should be ``means[k] + (features - centers[k]) @ maps[k]``. Each image moves
    towards them by gradient steps, separately.

    Parameters
    ----------
    *args, **kwargs
        Of a `LinearGenerator`.
    image_shape : tuple
    matrix : array of shape (n_features, k)
        Reduces wavelet features.
    centers, means : arrays of shape (n_classes, k)
        Mean features of the images of the linear generator, and of the real images as released.
    maps : array of shape (n_classes, k, k)
        See `feature_maps`.
    """

    def __init__(self, *args, image_shape, matrix, centers, means, maps, **kwargs):
        super().__init__(*args, **kwargs)
        self.image_shape, self.matrix = tuple(image_shape), matrix
        self.centers, self.means, self.maps = centers, means, maps

    @classmethod
    def of(cls, generator, space, latents):
        """Refine a `LinearGenerator` by its `FeatureSpace` and the released `ClassLatents` there."""
        released = {"matrix": space.matrix, "centers": space.centers, "means": latents.means}
        return cls(*_parts(generator), image_shape=space.image_shape, **released, maps=feature_maps(space, latents))

    def decode_clipped(self, k, latent, rng):
        """Scaled rows of component `k` from its latents, inside the box."""
        width = self.high - self.low
        rows = ((super().decode_clipped(k, latent, rng) - self.low) / width).astype(np.float32)
        for start in range(0, len(rows), _BATCH):
            rows[start : start + _BATCH] = self._moved(rows[start : start + _BATCH], int(k) // self.per_class)
        return np.clip(rows * width + self.low, self.low, self.high)

    def _moved(self, rows, label):
        from ..nn._wavelets import move_to_features

        features = _features(rows, self.image_shape) @ self.matrix
        targets = self.means[label] + (features - self.centers[label]) @ self.maps[label]
        return move_to_features(rows, targets, self.matrix, self.image_shape)

    def to_state(self):
        """Return arrays for a release file."""
        features = {name: getattr(self, name) for name in _OWN}
        return {**super().to_state(), "image_shape": list(self.image_shape), "features": features}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        shape = tuple(check_whole(side, "image_shape", 1, 100_000) for side in state["image_shape"])
        generator = LinearGenerator.from_state(state)
        if len(shape) not in (2, 3) or math.prod(shape) != len(generator.low):
            raise ValueError("the shape of the images does not fit their columns")
        features = {name: state["features"][name] for name in _OWN}
        n_classes, k = len(generator.mixture.weights) // generator.per_class, features["matrix"].shape[-1]
        if [features[name].shape for name in _OWN[1:]] != [(n_classes, k), (n_classes, k), (n_classes, k, k)]:
            raise ValueError("the features of the images do not fit their classes")
        return cls(*_parts(generator), image_shape=shape, **features)


_OWN = ("matrix", "centers", "means", "maps")


def _features(images, image_shape):
    """Wavelet features of images with values in [0, 1], float64."""
    from ..nn._wavelets import wavelet_features

    found = [wavelet_features(images[i : i + _BATCH], image_shape) for i in range(0, len(images), _BATCH)]
    return np.concatenate(found).astype(np.float64)


def _parts(generator):
    """Arguments that a `LinearGenerator` was made with."""
    return (
        generator.space, generator.mixture, generator.component_means, generator.low, generator.high,
        generator.variance_gain, generator.dither, generator.per_class,
    )  # fmt: skip
