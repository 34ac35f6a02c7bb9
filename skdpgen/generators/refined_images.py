"""Images of released Gaussians, moved until their wavelet features have released moments.

Everything here is a function of released values and of synthetic images.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import numpy as np

from ..data.arrays import in_colour
from ..data.image_poses import N_POSE
from ..data.scaling import Box
from ..mechanisms import Moments
from ..utils.blocks import exact_product, map_blocks
from ..utils.file_checks import check_whole
from ..utils.progress import progress_bar, shows_bars
from ..utils.validation import MOST_DEFORMATION, MOST_MOVES
from .components import spread_components
from .gaussians import MOST_NUMBERS, LinearGenerator, class_latents

# ---- sub-clusters of classes ----------------------------------------------------------------------------------------
# Most directions along which a class of a release file is cut.
_MOST_DIRECTIONS = 8


@dataclass(frozen=True, eq=False)
class ClassCuts:
    """Directions along which each class is cut in two, and where; every field is public or released."""

    center: np.ndarray  # (d,); subtracted from rows before they are projected
    reach: float  # what rows are divided by after that: their entries are then at most 4
    directions: np.ndarray  # (n_classes, d, n_directions)
    middles: np.ndarray  # (n_classes, n_directions); where the class is cut along each direction, of the divided rows

    @property
    def n_parts(self):
        """Sub-clusters of each class."""
        return 1 << self.directions.shape[2]

    def along(self, rows):
        """Place of rows along the directions of every class, shape (n_rows, n_classes, n_directions).

        It is one and the same function of each row: no place of a row and no other row changes it.
        """
        n_classes, d, n_directions = self.directions.shape
        flat = np.moveaxis(self.directions, 0, 1).reshape(d, -1)
        found = exact_product((rows - self.center) / self.reach, flat)
        return found.reshape(len(rows), n_classes, n_directions)

    def codes(self, rows, classes, transform=None):
        """Sub-cluster of each row: a function of the row and of released values, which does not depend on other rows.

        It is ``class * n_parts + sum of 2**i`` over the directions i on whose upper side the row lies; -1 for a row of
        no class.

        `rows`: shape (n_rows, n). `classes` (n_rows,): negative: no class. `transform`: map of a chunk of rows to rows
        of d columns.
        """
        bits = 1 << np.arange(self.directions.shape[2])
        codes = np.zeros(len(rows), dtype=np.int64)
        for part, along in map_blocks(lambda chunk: self.along(transform(chunk) if transform else chunk), rows):
            known = np.maximum(classes[part], 0)
            own = along[np.arange(len(along)), known]
            codes[part] = known * self.n_parts + (own > self.middles[known]) @ bits
        return np.where(classes < 0, -1, codes)

    def to_state(self):
        """Return arrays for a release file."""
        return {name: getattr(self, name) for name in ("center", "reach", "directions", "middles")}

    @classmethod
    def from_state(cls, state, n_classes, d):
        """Rebuild from `to_state`; ValueError where it is not one of so many classes and columns."""
        center, directions, middles = (
            np.asarray(state[name], dtype=np.float64) for name in ("center", "directions", "middles")
        )
        reach, n_directions = float(state["reach"]), middles.shape[-1] if middles.ndim else 0
        shapes = [(d,), (n_classes, d, n_directions), (n_classes, n_directions)]
        fits = [each.shape for each in (center, directions, middles)] == shapes
        if not fits or not 1 <= n_directions <= _MOST_DIRECTIONS:
            raise ValueError("the sub-clusters of the classes do not fit the classes and their features")
        if not (reach > 0 and np.isfinite(reach)):
            raise ValueError("the reach of the sub-clusters must be positive")
        return cls(center, reach, directions, middles)


# Synthetic images whose features are compared with the real ones, and about how many of them choose the reduction.
_IMAGES, _REDUCED = 24_000, 8_000
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
# Share of the synthetic images of a class that a side of a cut has at least.
_LEAST_SIDE = 0.02
# Most synthetic images, fewer of more than 784 pixels, that are moved once to see what moves miss of their targets; and
# how much of what the covariances lack is then added to the targets (of what the means lack, all).
_TRIED, _ADDED = 6_000, 0.7


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Reduced wavelet features of images, chosen on synthetic images of the released moments."""

    image_shape: tuple
    wavelets: dict  # arguments ``n_scales``, ``width`` and ``colour`` of `WaveletFeatures`
    box: Box  # of scaled rows
    matrix: np.ndarray  # (n_features, k)
    codes: np.ndarray  # int (n_images,); class of each synthetic image, or its sub-cluster
    features: np.ndarray  # (n_images, k); those of the synthetic images
    centers: np.ndarray  # (n_parts, k); mean of the synthetic images of each class, or sub-cluster
    radius: float  # norm to which real images are clipped about their center
    cuts: ClassCuts | None = None  # the sub-clusters; None: the classes are whole

    @property
    def per_class(self):
        """Sub-clusters of each class; 1: the classes are whole."""
        return 1 if self.cuts is None else self.cuts.n_parts

    def codes_of(self, features, classes):
        """Class, or sub-cluster, of rows of given features and classes; -1 of no class."""
        return classes if self.cuts is None else self.cuts.codes(features, classes)

    def cut(self, n_directions):
        """Cut each class at its center along the widest directions of its synthetic images.

        Returns FeatureSpace: the same with ``2**n_directions`` sub-clusters of each class.
        """
        if n_directions == 0:
            return self
        directions = np.empty((len(self.centers), len(self.matrix.T), n_directions))
        for c, center in enumerate(self.centers):
            spread = self.features[self.codes == c] - center
            directions[c] = np.linalg.eigh(spread.T @ spread)[1][:, ::-1][:, :n_directions]
        middle = self.centers.mean(axis=0)
        middles = np.einsum("ck,cks->cs", (self.centers - middle) / self.radius, directions)
        return self._parted(ClassCuts(middle, self.radius, directions, middles), self.codes)

    def at_shares(self, counts):
        """Move the cuts so that as large a share of the synthetic images lies on each side as of the real ones.

        `counts` (n_parts,): released: real images of each sub-cluster; positive.
        """
        if self.cuts is None:
            return self
        n_directions = self.cuts.directions.shape[2]
        upper = np.arange(self.per_class)[:, None] >> np.arange(n_directions) & 1
        counts = counts.reshape(-1, self.per_class)
        shares = np.clip(counts @ upper / counts.sum(axis=1, keepdims=True), _LEAST_SIDE, 1 - _LEAST_SIDE)
        classes, along = self.codes // self.per_class, self.cuts.along(self.features)
        middles = self.cuts.middles.copy()
        for c in np.unique(classes):
            own = along[classes == c, c]
            middles[c] = [np.quantile(own[:, i], 1 - share) for i, share in enumerate(shares[c])]
        return self._parted(replace(self.cuts, middles=middles), classes)

    def _parted(self, cuts, classes):
        """The same with given cuts of the classes; a center counts some images of the mean of its class."""
        codes = cuts.codes(self.features, classes)
        whole = _centers(self.features, classes, len(cuts.directions))
        centers = np.repeat(_SHARED * whole, cuts.n_parts, axis=0)
        np.add.at(centers, codes, self.features)
        centers /= (np.bincount(codes, minlength=len(centers)) + _SHARED)[:, None]
        return replace(self, codes=codes, centers=centers, radius=_radius(self.features, centers[codes]), cuts=cuts)

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
            images = self.box.to_unit(scaled[part])[:, : math.prod(self.image_shape)]
            rows = wavelet_features(images, self.image_shape, exact=True, **self.wavelets)
            found[part] = exact_product(rows, self.matrix)
        return found


def feature_space(generator, image_shape, rng, *, n_features, n_scales, progress=False):
    """Draw synthetic images and choose their features: principal components of the wavelet features.

    `n_features`: components that are kept, at most. `n_scales`: of the wavelets. `progress`: whether to show a bar.
    """
    from sklearn.decomposition import PCA  # which loads linear models, of which fits of tables have none

    from ..nn._wavelets import WaveletFeatures

    colour = in_colour(image_shape)
    module = WaveletFeatures(image_shape, n_scales=n_scales, colour=colour)
    wavelets = {"n_scales": n_scales, "width": module.width, "colour": colour}
    n_classes = len(generator.mixture.weights) // generator.per_class
    n_images = max(min(_IMAGES, _MOST_ENTRIES // module.n_features), 1000)
    classes = np.sort(spread_components(n_images, np.ones(n_classes), rng))
    images = _images(generator, generator.sample(classes, rng), image_shape)
    found = _features(images, image_shape, wavelets, progress)
    some = found[:: max(len(found) // _REDUCED, 1)]
    k = min(n_features, math.isqrt(MOST_NUMBERS // n_classes), *(side - 1 for side in some.shape))
    pca = PCA(k, svd_solver="randomized", random_state=int(rng.integers(2**31))).fit(some)
    variance = np.maximum(pca.explained_variance_, _LEAST_VARIANCE * pca.explained_variance_[0] + 1e-12)
    matrix = pca.components_.T * (variance / variance[0]) ** -_POWER
    features = found @ matrix
    centers = _centers(features, classes, n_classes)
    radius = _radius(features, centers[classes])
    return FeatureSpace(image_shape, wavelets, generator.box, matrix, classes, features, centers, radius)


def _centers(features, classes, n_classes):
    """Mean of each class; of more classes than images some have none, and the mean of all."""
    counts = np.bincount(classes, minlength=n_classes)[:, None]
    centers = np.tile(features.mean(axis=0), (n_classes, 1))
    np.add.at(centers, classes, (features - centers[0]) / counts[classes])
    return centers


def _radius(features, centers):
    """Norm to which real images are clipped about their center."""
    return max(_BEYOND * float(np.quantile(np.linalg.norm(features - centers, axis=1), _INSIDE)), 1e-9)


def released_targets(space, centers, moments, noise_sd, mean_noise_sd, *, apart):
    """Compute what the features of synthetic images should be from the released moments of those of real ones.

    `centers` (n_parts, k): what ``moments`` are about.
    `moments`: released, of the features of real images less their center: count and sum of each sub-cluster; second
        moments of each class, or of all classes together, shape (n_classes, k, k) or (1, k, k).
    `noise_sd`: standard deviation of the noise on a diagonal entry of ``moments.second``.
    `mean_noise_sd`: standard deviation of the noise on an entry of ``moments.sum``.
    `apart`: whether the second moments are those of each class, as the noise does not hide what they differ by.
    Returns `means` (n_parts, k): mean features of each sub-cluster; `maps` (n_classes, k, k): for each class the linear
        map of features about the center of their sub-cluster that gives them their released covariance. It multiplies
        rows from the right.
    """
    counts, k = np.maximum(moments.count, 1.0), centers.shape[1]
    shift = _shift(moments.sum, counts, mean_noise_sd, space.per_class)
    n_groups, n_classes = len(moments.second), len(centers) // space.per_class
    shifts, of = shift.reshape(n_groups, -1, k), counts.reshape(n_groups, -1)
    within = moments.second - np.swapaxes(of[:, :, None] * shifts, 1, 2) @ shifts
    zero = np.zeros((n_groups, k))
    latents = class_latents(Moments(of.sum(axis=1), zero, within), zero, noise_sd, mean_noise_sd, k)
    spreads = space.features - space.centers[space.codes]
    if apart:
        return centers + shift, _class_maps(spreads, space.codes // space.per_class, latents)
    found = _common_map(spreads, within[0] / counts.sum(), latents, noise_sd / counts.sum())
    return centers + shift, np.tile(found, (n_classes, 1, 1))


def _shift(sums, counts, noise_sd, per_class):
    """Distance of the mean of each sub-cluster from its center, without what of it may be noise.

    The centers are guesses that have no noise. So the distance of a class is shrunk, as James and Stein do. What the
    distances of its sub-clusters differ from it by has more noise, and is shrunk by itself: by the variance of these
    differences over all sub-clusters, less that of their noise.
    """
    of = counts.reshape(-1, per_class, 1)
    sums, total = sums.reshape(len(of), per_class, -1), of.sum(axis=1, keepdims=True)
    common = sums.sum(axis=1, keepdims=True) / total
    own = sums / of - common
    noise = max(len(of) - 2, 0) * float(np.mean(noise_sd**2 * per_class / total**2))
    common = common * np.clip(1 - noise / np.maximum((common**2).sum(axis=0), 1e-300), 0.0, 1.0)
    if per_class > 1 and noise_sd > 0:
        noise = noise_sd**2 * (1 / of**2 - 2 / (of * total) + per_class / total**2)
        weights = np.square(noise.min() / noise)
        signal = np.maximum((weights * (own**2 - noise)).sum(axis=(0, 1)) / weights.sum(), 0.0)
        own = own * (signal / (signal + noise))
    return (common + own).reshape(len(counts), -1)


def _class_maps(spreads, classes, latents):
    """For each class the map of synthetic features about their centers, which gives them their released covariance."""
    shared = spreads.T @ spreads / len(spreads)
    maps = np.empty((len(latents.counts), *shared.shape))
    for c in range(len(maps)):
        spread = spreads[classes == c]
        now = (spread.T @ spread + _SHARED * shared) / (len(spread) + _SHARED)
        real = latents.components @ latents.mixture.covariances[c] @ latents.components.T
        maps[c] = _map_between(now, real)
    return maps


def _common_map(spreads, covariance, latents, noise_sd):
    """One map for all classes, which gives features their released covariance in classes.

    Classes of synthetic images keep the differences between their covariances: the noise would hide those of the real.
    `covariance` is the released one before it was cleaned, and `noise_sd` that of a diagonal entry of it.
    """
    now = spreads.T @ spreads / len(spreads)
    values = np.diag(latents.mixture.covariances[0])
    values = np.maximum(values, min(latents.residual_variance, float(np.trace(now)) / len(now)))
    real = (latents.components * values) @ latents.components.T
    # of few rows the noise may be larger than all that the two covariances differ by
    gap = covariance - now
    noise = 0.5 * len(gap) * (len(gap) + 1) * noise_sd**2
    kept = max(0.0, 1 - noise / max(float(np.square(gap).sum()), 1e-300))
    return _map_between(now, now + kept * (real - now))


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

    The features of an image of class c and sub-cluster k should be ``means[k] + (features - centers[k]) @ maps[c]``.
    Each image moves towards them by gradient steps, separately.

    *args, `**kwargs`: of a `LinearGenerator`.
    `wavelets`: arguments ``n_scales``, ``width`` and ``colour`` of `WaveletFeatures`.
    `moves`: ``n_steps``, the number of gradient steps of an image, and their ``rate``.
    `matrix` (n_features, k): reduces wavelet features.
    `centers`, `means` (n_parts, k): mean features of the images of the linear generator, and of the real images as
        released. Without cuts, a class is one sub-cluster.
    `maps` (n_classes, k, k): see `released_targets`.
    `cuts`: sub-clusters of the classes in the space of the features; None: the classes are whole.
    `deformation`: standard deviation of the random displacements of the pixels after that, as a share of the side.
    """

    progress = "auto"  # whether `sample` shows a bar; no file has it

    def __init__(
        self, *args, image_shape, wavelets, moves, matrix, centers, means, maps, cuts=None, deformation=0.0, **kwargs
    ):
        super().__init__(*args, **kwargs)
        self.image_shape, self.wavelets, self.moves = tuple(image_shape), wavelets, moves
        self.matrix, self.centers, self.means, self.maps, self.cuts = matrix, centers, means, maps, cuts
        self.deformation = deformation

    @classmethod
    def of(cls, generator, space, means, maps, *, n_steps, deformation=0.0):
        """Refine a `LinearGenerator` by its `FeatureSpace`, and the released means and maps of the classes there."""
        own = {"matrix": space.matrix, "centers": space.centers, "means": means, "maps": maps, "cuts": space.cuts}
        own |= {"wavelets": space.wavelets, "moves": {"n_steps": n_steps, "rate": _RATE}}
        return cls(*_parts(generator), image_shape=space.image_shape, deformation=deformation, **own)

    def aimed(self, unmoved, rng, *, apart, progress=False):
        """Return one with other targets: those at which moved images have the released moments, or nearly.

        A few gradient steps inside the box stop short of their targets: variances of features stay about a fifth below
        the released ones. Some synthetic images are moved, and what their features lack of the moments of their targets
        is added to the targets. No private image has a part in this.

        `unmoved`: of the images before they are moved. `apart`: whether each class has a separate map; else the common
        map is corrected for all of them. `progress`: whether to show a bar.
        """
        n_classes = len(self.mixture.weights) // self.per_class
        n_images = min(_TRIED, max(_TRIED * 784 // math.prod(self.image_shape), 500))
        classes = np.sort(spread_components(n_images, np.ones(n_classes), rng))
        rows = _images(self, unmoved.sample(classes, rng), self.image_shape)
        targets, found = (np.empty((len(rows), self.matrix.shape[1])) for _ in range(2))
        codes = np.empty(len(rows), dtype=np.int64)
        for part in progress_bar(_batches(rows, _BATCH), phase="moving images", shown=progress, unit="batch"):
            targets[part], codes[part] = self._targets(rows[part], classes[part])
            found[part] = self._features(self._moved(rows[part], classes[part]))
        n_parts = len(self.centers)
        means = _class_means(targets - found, codes, n_parts)
        spreads = [each - _class_means(each, codes, n_parts)[codes] for each in (found, targets)]
        pairs = [spread.T @ spread / len(spread) for spread in spreads]
        maps = np.empty_like(self.maps)
        for c in range(n_classes):
            own = classes == c
            covariances = [
                (spread[own].T @ spread[own] + _SHARED * shared) / (own.sum() + _SHARED) if apart else shared
                for spread, shared in zip(spreads, pairs)
            ]
            maps[c] = self.maps[c] @ ((1 - _ADDED) * np.eye(maps.shape[1]) + _ADDED * _map_between(*covariances))
        found = copy.copy(self)
        found.means, found.maps = self.means + means, maps
        return found

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
        images = rows[:, : math.prod(self.image_shape)]
        for part in _batches(images, _BATCH):
            labels = np.full(len(images[part]), int(k) // self.per_class)
            images[part] = self._deformed(self._moved(images[part], labels), rng)
        return np.clip(self.box.from_unit(rows), *self.box)

    def _features(self, rows):
        """Reduced features of images."""
        return _features(rows, self.image_shape, self.wavelets) @ self.matrix

    def _targets(self, rows, classes):
        """Features that images of given classes are to have, and the sub-cluster of each."""
        features = self._features(rows)
        codes = classes if self.cuts is None else self.cuts.codes(features, classes)
        targets = np.empty_like(features)
        for c in np.unique(classes):
            own, of = classes == c, codes[classes == c]
            targets[own] = self.means[of] + (features[own] - self.centers[of]) @ self.maps[c]
        return targets, codes

    def _moved(self, rows, classes):
        from ..nn._wavelets import move_to_features

        targets, _ = self._targets(rows, classes)
        return move_to_features(rows, targets, self.matrix, self.image_shape, **self.moves, **self.wavelets)

    def _deformed(self, images, rng):
        if self.deformation == 0:
            return images
        from ..nn._deformations import deform

        return deform(images, self.image_shape, self.deformation, rng)

    def to_state(self):
        """Return arrays for a release file."""
        features = {name: getattr(self, name) for name in _OWN}
        if self.cuts is not None:
            features["cuts"] = self.cuts.to_state()
        about = {"image_shape": list(self.image_shape), "wavelets": {**self.wavelets, **self.moves}}
        if self.deformation:
            about["deformation"] = self.deformation
        return {**super().to_state(), **about, "features": features}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        shape = tuple(check_whole(side, "image_shape", 1, 100_000) for side in state["image_shape"])
        generator = LinearGenerator.from_state(state)
        if len(shape) not in (2, 3) or len(generator.box.low) - math.prod(shape) not in (0, N_POSE):
            raise ValueError("the shape of the images does not fit their columns")
        features = {name: state["features"][name] for name in _OWN}
        n_classes, k = len(generator.mixture.weights) // generator.per_class, features["matrix"].shape[-1]
        cuts = None
        if "cuts" in state["features"]:  # files of earlier versions have whole classes
            cuts = ClassCuts.from_state(state["features"]["cuts"], n_classes, k)
        n_parts = n_classes * (1 if cuts is None else cuts.n_parts)
        if [features[name].shape for name in _OWN[1:]] != [(n_parts, k), (n_parts, k), (n_classes, k, k)]:
            raise ValueError("the features of the images do not fit their classes")
        wavelets, moves = _read_wavelets(state.get("wavelets", _EARLIER), shape)
        if len(features["matrix"]) != _n_features(shape, wavelets):
            raise ValueError("the features of the images are not those of their wavelets")
        own = {"wavelets": wavelets, "moves": moves, "cuts": cuts, "deformation": float(state.get("deformation", 0.0))}
        if not 0 <= own["deformation"] <= MOST_DEFORMATION:
            raise ValueError(f"the deformation of images must be between 0 and {MOST_DEFORMATION}")
        return cls(*_parts(generator), image_shape=shape, **own, **features)


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


def _images(generator, scaled, image_shape):
    """The images of scaled rows with values in [0, 1], without the columns after them."""
    return generator.box.to_unit(scaled)[:, : math.prod(image_shape)].astype(np.float32)


def _batches(images, n_pixels):
    """Slices of images that have about so many pixels together."""
    step = max(1, n_pixels // images.shape[1])
    return [slice(start, start + step) for start in range(0, len(images), step)]


def _features(images, image_shape, wavelets, progress=False):
    """Wavelet features of images with values in [0, 1], float64."""
    from ..nn._wavelets import wavelet_features

    parts = progress_bar(_batches(images, _BATCH), phase="features of synthetic images", shown=progress, unit="batch")
    found = [wavelet_features(images[part], image_shape, **wavelets) for part in parts]
    return np.concatenate(found).astype(np.float64)


def _parts(generator):
    """Arguments that a `LinearGenerator` was made with."""
    return (
        generator.space, generator.mixture, generator.component_means, *generator.box,
        generator.variance_gain, generator.dither, generator.per_class, generator.cleaned,
    )  # fmt: skip
