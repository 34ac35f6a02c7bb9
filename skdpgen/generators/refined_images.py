"""Images of released Gaussians, moved until their wavelet features have released moments.

Everything here is a function of released values and of synthetic images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..data.arrays import in_colour
from ..data.scaling import Box
from ..mechanisms import Moments
from ..utils.blocks import exact_product
from ..utils.file_checks import check_whole
from ..utils.progress import progress_bar, shows_bars
from ..utils.validation import MOST_MOVES
from .components import spread_components
from .gaussians import MOST_NUMBERS, LinearGenerator, class_latents

__all__ = ["FeatureSpace", "RefinedImages", "class_maps", "common_map", "feature_space"]

# Synthetic images that features are reduced by.
_IMAGES = 8_000
# Reduced features are divided by this power of their variance: the noise then hides less of those that vary little.
_POWER = 0.25
# Least variance that this reckons with, relative to the largest.
_LEAST_VARIANCE = 1e-6
# Real images are clipped to so many times the norm within which this share of the synthetic ones lies: they vary more.
_INSIDE, _BEYOND = 0.9, 1.2
# Pixels of the images whose features are computed at once; of the private ones in double precision.
_BATCH, _EXACT_BATCH = 512 * 784, 256 * 784
# Size of the gradient steps of images.
_RATE = 0.1
# Entries of all features of the synthetic images together: they are kept in memory.
_MOST_ENTRIES = 1 << 26
# Images from which on sampling shows a bar, where bars are shown.
_BAR_ROWS = 1_000
# Synthetic images of any class that the covariance of a class counts besides its own.
_SHARED = 10
# Most synthetic images, fewer of more than 784 pixels, that are moved once to see what moves miss of their targets; and
# how much of what the covariances lack is then added to the targets (of what the means lack, all).
_TRIED, _ADDED = 6_000, 0.7


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Reduced wavelet features of images, chosen on synthetic images of the released moments.

    Parameters
    ----------
    image_shape : tuple
    wavelets : dict
        Arguments ``n_scales``, ``width`` and ``colour`` of `WaveletFeatures`.
    box : Box
        Of scaled rows.
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
    wavelets: dict
    box: Box
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
        for part in _batches(scaled, _EXACT_BATCH):
            rows = wavelet_features(self.box.to_unit(scaled[part]), self.image_shape, exact=True, **self.wavelets)
            found[part] = exact_product(rows, self.matrix)
        return found


def feature_space(generator, image_shape, rng, *, n_features, n_scales):
    """Draw synthetic images and choose their features: principal components of the wavelet features.

    Parameters
    ----------
    generator : LinearGenerator
    image_shape : tuple
    rng : numpy.random.Generator
    n_features : int
        Components that are kept, at most.
    n_scales : {1, 2, 3}
        Of the wavelets.

    Returns
    -------
    FeatureSpace
    """
    from sklearn.decomposition import PCA  # which loads linear models, of which fits of tables have none

    from ..nn._wavelets import WaveletFeatures

    colour = in_colour(image_shape)
    module = WaveletFeatures(image_shape, n_scales=n_scales, colour=colour)
    wavelets = {"n_scales": n_scales, "width": module.width, "colour": colour}
    n_classes = len(generator.mixture.weights) // generator.per_class
    n_images = max(min(_IMAGES, _MOST_ENTRIES // module.n_features), 1000)
    classes = np.sort(spread_components(n_images, np.ones(n_classes), rng))
    images = generator.box.to_unit(generator.sample(classes, rng)).astype(np.float32)
    found = _features(images, image_shape, wavelets)
    k = min(n_features, math.isqrt(MOST_NUMBERS // n_classes), *(side - 1 for side in found.shape))
    pca = PCA(k, svd_solver="randomized", random_state=int(rng.integers(2**31))).fit(found)
    variance = np.maximum(pca.explained_variance_, _LEAST_VARIANCE * pca.explained_variance_[0] + 1e-12)
    matrix = pca.components_.T * (variance / variance[0]) ** -_POWER
    features = found @ matrix
    # of more classes than images some have none
    counts = np.bincount(classes, minlength=n_classes)[:, None]
    centers = np.tile(features.mean(axis=0), (n_classes, 1))
    np.add.at(centers, classes, (features - centers[0]) / counts[classes])
    radius = _BEYOND * float(np.quantile(np.linalg.norm(features - centers[classes], axis=1), _INSIDE))
    return FeatureSpace(image_shape, wavelets, generator.box, matrix, classes, features, centers, max(radius, 1e-9))


def class_maps(space, latents):
    """For each class the linear map of features about their center that gives them their released covariance.

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
    spreads = space.features - space.centers[space.classes]
    shared = spreads.T @ spreads / len(spreads)
    for c in range(len(maps)):
        spread = spreads[space.classes == c]
        now = (spread.T @ spread + _SHARED * shared) / (len(spread) + _SHARED)
        real = latents.components @ latents.mixture.covariances[c] @ latents.components.T
        maps[c] = _map_between(now, real)
    return maps


def common_map(space, moments, noise_sd, mean_noise_sd):
    """Mean features of each class, and one linear map for all: it gives features their released covariance in classes.

    Classes of synthetic images keep the differences between their covariances: the noise would hide those of the real.

    Parameters
    ----------
    space : FeatureSpace
    moments : Moments
        Released, of the features of real images less the center of their class; second moments of all classes together.
    noise_sd : float
        Standard deviation of the noise on a diagonal entry of ``moments.second``.
    mean_noise_sd : float
        Standard deviation of the noise on an entry of ``moments.sum``.

    Returns
    -------
    means : array of shape (n_classes, k)
    maps : array of shape (n_classes, k, k)
        As `class_maps` returns them; all the same.
    """
    counts = np.maximum(moments.count, 1.0)
    # the center of a class is a guess of its mean that has no noise: the distance is shrunk, as James and Stein do
    shift = moments.sum / counts[:, None]
    noise = max(len(counts) - 2, 0) * float(np.mean((mean_noise_sd / counts) ** 2))
    shift = shift * np.clip(1 - noise / np.maximum((shift**2).sum(axis=0), 1e-300), 0.0, 1.0)
    within = moments.second - (counts[:, None] * shift).T @ shift
    one = Moments(counts.sum(keepdims=True), np.zeros((1, len(within))), within[None])
    latents = class_latents(one, np.zeros((1, len(within))), noise_sd, mean_noise_sd, len(within))
    spread = space.features - space.centers[space.classes]
    now = spread.T @ spread / len(spread)
    values = np.diag(latents.mixture.covariances[0])
    values = np.maximum(values, min(latents.residual_variance, float(np.trace(now)) / len(now)))
    real = (latents.components * values) @ latents.components.T
    # so is what the covariance differs by: of few rows the noise may be larger than all of it
    gap = within / counts.sum() - now
    noise = 0.5 * len(gap) * (len(gap) + 1) * (noise_sd / counts.sum()) ** 2
    kept = max(0.0, 1 - noise / max(float(np.square(gap).sum()), 1e-300))
    found = _map_between(now, now + kept * (real - now))
    return space.centers + shift, np.tile(found, (len(counts), 1, 1))


def _map_between(now, wanted):
    """Map that gives rows of one covariance another; of normal distributions it moves points least."""
    now = now + (1e-3 * np.trace(now) / len(now) + 1e-12) * np.eye(len(now))
    root, inverse = _power(now, 0.5), _power(now, -0.5)
    return inverse @ _power(root @ wanted @ root, 0.5) @ inverse


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
    wavelets : dict
        Arguments ``n_scales``, ``width`` and ``colour`` of `WaveletFeatures`.
    moves : dict
        ``n_steps``, the number of gradient steps of an image, and their ``rate``.
    matrix : array of shape (n_features, k)
        Reduces wavelet features.
    centers, means : arrays of shape (n_classes, k)
        Mean features of the images of the linear generator, and of the real images as released.
    maps : array of shape (n_classes, k, k)
        See `class_maps` and `common_map`.
    """

    progress = "auto"  # whether `sample` shows a bar; no file has it

    def __init__(self, *args, image_shape, wavelets, moves, matrix, centers, means, maps, **kwargs):
        super().__init__(*args, **kwargs)
        self.image_shape, self.wavelets, self.moves = tuple(image_shape), wavelets, moves
        self.matrix, self.centers, self.means, self.maps = matrix, centers, means, maps

    @classmethod
    def of(cls, generator, space, means, maps, *, n_steps):
        """Refine a `LinearGenerator` by its `FeatureSpace`, and the released means and maps of the classes there."""
        own = {"matrix": space.matrix, "centers": space.centers, "means": means, "maps": maps}
        own |= {"wavelets": space.wavelets, "moves": {"n_steps": n_steps, "rate": _RATE}}
        return cls(*_parts(generator), image_shape=space.image_shape, **own)

    def aimed(self, rng, *, apart):
        """Return one with other targets: those at which moved images have the released moments, or nearly.

        A few gradient steps inside the box stop short of their targets: variances of features stay about a fifth below
        the released ones. Some synthetic images are moved, and what their features lack of the moments of their targets
        is added to the targets. No private image has a part in this.

        Parameters
        ----------
        rng : numpy.random.Generator
        apart : bool
            Whether each class has a separate map; else the common map is corrected for all of them.

        Returns
        -------
        RefinedImages
        """
        n_classes = len(self.centers)
        n_images = min(_TRIED, max(_TRIED * 784 // len(self.box.low), 500))
        classes = np.sort(spread_components(n_images, np.ones(n_classes), rng))
        rows = self.box.to_unit(self.unmoved().sample(classes, rng)).astype(np.float32)
        targets, found = (np.empty((len(rows), self.matrix.shape[1])) for _ in range(2))
        for part in _batches(rows, _BATCH):
            targets[part] = self._targets(rows[part], classes[part])
            moved = self._moved(rows[part], classes[part])
            found[part] = _features(moved, self.image_shape, self.wavelets) @ self.matrix
        means = _class_means(targets - found, classes, n_classes)
        spreads = [each - _class_means(each, classes, n_classes)[classes] for each in (found, targets)]
        pairs = [spread.T @ spread / len(spread) for spread in spreads]
        maps = np.empty_like(self.maps)
        for c in range(n_classes):
            own = classes == c
            covariances = [
                (spread[own].T @ spread[own] + _SHARED * shared) / (own.sum() + _SHARED) if apart else shared
                for spread, shared in zip(spreads, pairs)
            ]
            maps[c] = self.maps[c] @ ((1 - _ADDED) * np.eye(maps.shape[1]) + _ADDED * _map_between(*covariances))
        own = {"matrix": self.matrix, "centers": self.centers, "means": self.means + means, "maps": maps}
        own |= {"wavelets": self.wavelets, "moves": self.moves}
        return RefinedImages(*_parts(self), image_shape=self.image_shape, **own)

    def unmoved(self):
        """The generator of the images before they are moved."""
        return LinearGenerator(*_parts(self))

    def bar(self, n_rows):
        """A progress bar of `sample`: moving many images takes minutes."""
        shown = n_rows >= _BAR_ROWS and shows_bars(self.progress)
        return progress_bar(total=n_rows, phase="moving images", shown=shown, unit="image")

    def decode_clipped(self, k, latent, rng, shift=0.0):
        """Scaled rows of component `k` from its latents, inside the box; `shift` is added before images are moved."""
        rows = self.box.to_unit(super().decode_clipped(k, latent, rng, shift)).astype(np.float32)
        for part in _batches(rows, _BATCH):
            labels = np.full(len(rows[part]), int(k) // self.per_class)
            rows[part] = self._moved(rows[part], labels)
        return np.clip(self.box.from_unit(rows), *self.box)

    def _targets(self, rows, labels):
        """Features that images of given classes are to have."""
        features = _features(rows, self.image_shape, self.wavelets) @ self.matrix
        targets = np.empty_like(features)
        for label in np.unique(labels):
            own = labels == label
            targets[own] = self.means[label] + (features[own] - self.centers[label]) @ self.maps[label]
        return targets

    def _moved(self, rows, labels):
        from ..nn._wavelets import move_to_features

        targets = self._targets(rows, labels)
        return move_to_features(rows, targets, self.matrix, self.image_shape, **self.moves, **self.wavelets)

    def to_state(self):
        """Return arrays for a release file."""
        features = {name: getattr(self, name) for name in _OWN}
        about = {"image_shape": list(self.image_shape), "wavelets": {**self.wavelets, **self.moves}}
        return {**super().to_state(), **about, "features": features}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        shape = tuple(check_whole(side, "image_shape", 1, 100_000) for side in state["image_shape"])
        generator = LinearGenerator.from_state(state)
        if len(shape) not in (2, 3) or math.prod(shape) != len(generator.box.low):
            raise ValueError("the shape of the images does not fit their columns")
        features = {name: state["features"][name] for name in _OWN}
        n_classes, k = len(generator.mixture.weights) // generator.per_class, features["matrix"].shape[-1]
        if [features[name].shape for name in _OWN[1:]] != [(n_classes, k), (n_classes, k), (n_classes, k, k)]:
            raise ValueError("the features of the images do not fit their classes")
        wavelets, moves = _read_wavelets(state.get("wavelets", _EARLIER), shape)
        if len(features["matrix"]) != _n_features(shape, wavelets):
            raise ValueError("the features of the images are not those of their wavelets")
        return cls(*_parts(generator), image_shape=shape, wavelets=wavelets, moves=moves, **features)


_OWN = ("matrix", "centers", "means", "maps")
# What files of earlier versions do not say.
_EARLIER = {"n_scales": 2, "width": 2.0, "n_steps": 12, "rate": 0.08}


def _read_wavelets(state, image_shape):
    """Wavelets and moves as a file has them."""
    width, rate = float(state["width"]), float(state["rate"])
    if not 0.1 <= width <= 100:
        raise ValueError("the width of the averages of images must be between .1 and 100")
    if not 0 < rate <= 1:
        raise ValueError("the rate at which images move must be above 0 and at most 1")
    scales, steps = (
        check_whole(state["n_scales"], "n_scales", 1, 3),
        check_whole(state["n_steps"], "n_steps", 1, MOST_MOVES),
    )
    colour = state.get("colour", False)  # files of earlier versions have features of each channel
    if not isinstance(colour, bool) or (colour and not in_colour(image_shape)):
        raise ValueError("features of colour are those of images of three channels")
    return {"n_scales": scales, "width": width, "colour": colour}, {"n_steps": steps, "rate": rate}


def _n_features(image_shape, wavelets):
    from ..nn._wavelets import WaveletFeatures

    return WaveletFeatures(image_shape, **wavelets).n_features


def _class_means(features, classes, n_classes):
    """Mean of each class, which counts some images of any class besides its own."""
    sums = np.tile(_SHARED * features.mean(axis=0), (n_classes, 1))
    np.add.at(sums, classes, features)
    return sums / (np.bincount(classes, minlength=n_classes) + _SHARED)[:, None]


def _batches(images, n_pixels):
    """Slices of images that have about so many pixels together."""
    step = max(1, n_pixels // images.shape[1])
    return [slice(start, start + step) for start in range(0, len(images), step)]


def _features(images, image_shape, wavelets):
    """Wavelet features of images with values in [0, 1], float64."""
    from ..nn._wavelets import wavelet_features

    found = [wavelet_features(images[part], image_shape, **wavelets) for part in _batches(images, _BATCH)]
    return np.concatenate(found).astype(np.float64)


def _parts(generator):
    """Arguments that a `LinearGenerator` was made with."""
    return (
        generator.space, generator.mixture, generator.component_means, *generator.box,
        generator.variance_gain, generator.dither, generator.per_class, generator.cleaned,
    )  # fmt: skip
