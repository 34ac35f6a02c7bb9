"""Two releases of structure inside a class: histograms of norms, and moments of sub-clusters of images."""

from __future__ import annotations

import numpy as np

from ..data.scaling import norm_edges
from ..generators.class_structure import class_norms, cut_directions, normal_radius
from ..generators.gaussians import LatentSpace, class_latents, floored
from ..mechanisms import add_gaussian, class_moments, class_norm_histogram, unpack_moments
from ..mechanisms._moments import CLASS_COUNT_WEIGHT, CLASS_MEAN_WEIGHT
from ..utils.blocks import exact_product, map_blocks

__all__ = ["release_class_norms", "release_subclusters", "subcluster_codes", "subcluster_moments"]


def release_class_norms(norms, codes, n_classes, largest, noise_multiplier, rng, neighboring, *, count=None):
    """Release the norm distribution of each class: one histogram, in which a row is in one bin of one class.

    `norms` and `codes` (the class of each row; rows with another code are left out) are private, `largest` and `count`
    (see `learn_norm_bound`) are public or released. Returns `ClassNorms`.
    """
    edges = norm_edges(largest, rng)
    counts = class_norm_histogram(norms, codes, n_classes, edges)
    sd = noise_multiplier * counts.sensitivity(neighboring)
    noisy = add_gaussian(counts, noise_multiplier, rng, neighboring).reshape(n_classes, -1)
    return class_norms(noisy, sd, edges, largest, count)


def release_subclusters(rows, codec, space, latents, noise_multiplier, rng, neighboring):
    """Release the moments of the sub-clusters of each class: one release, because a row is in one sub-cluster.

    A class is cut at its released mean, along its leading released directions. Classes of images are far from
    Gaussian; their parts are less so.

    `rows` (ArrayRows) are private; `space` (LatentSpace) and `latents` (ClassLatents: one Gaussian a class, in that
    space) are released.

    Returns
    -------
    space : LatentSpace
        The same, rotated.
    latents : ClassLatents
        Of the sub-clusters, those of a class consecutive; means are those of the scaled rows, less the center of the
        space.
    n_subclusters : int
        Of each class.
    """
    n_directions = cut_directions(latents.counts, noise_multiplier, latents.mixture.means.shape[1])
    exact = noise_multiplier > 0
    query, centers, radius = subcluster_moments(rows, codec, space, latents.mixture, n_directions, exact=exact)
    d = centers.shape[1]
    released = unpack_moments(add_gaussian(query, noise_multiplier, rng, neighboring), d, radius)
    released = released._replace(count=floored(released.count))
    sd = noise_multiplier * query.sensitivity(neighboring)
    found = class_latents(released, centers, sd * radius**2, sd * radius / CLASS_MEAN_WEIGHT, d)
    rotated = LatentSpace(space.center + space.basis @ found.mean, space.basis @ found.components)
    found = found._replace(means=(found.means - found.mean) @ space.basis.T)
    return rotated, found, len(centers) // len(latents.counts)


def subcluster_moments(rows, codec, space, mixture, n_directions, *, exact=True):
    """Count, sum and second moments of each sub-cluster, about the mean that a normal distribution has there.

    A class is cut along `n_directions` directions, at most as many as the space has; see `release_subclusters`, and
    `class_moments` for `exact`.

    Returns
    -------
    query : BoundedSum
        That of `class_moments`, with sub-clusters in the place of classes.
    centers : array of shape (n_classes * n_subclusters, n_latent)
    radius : float
        Norm to which rows about their center are clipped.
    """
    d = mixture.means.shape[1]
    n_directions = min(n_directions, d)
    values, vectors = np.linalg.eigh(mixture.covariances)
    leading, spread = vectors[:, :, d - n_directions :], np.sqrt(values[:, d - n_directions :])
    signs = 2 * (np.arange(2**n_directions)[:, None] >> np.arange(n_directions) & 1) - 1
    # half of a normal distribution has its mean at sqrt(2 / pi) standard deviations
    centers = mixture.means[:, None] + (2 / np.pi) ** 0.5 * np.einsum("cs,kds,ks->kcd", signs, leading, spread)
    centers = centers.reshape(-1, d)
    radius = normal_radius(mixture.weights, values, spread) if exact else 4.0 * codec.row_norm
    query = class_moments(
        rows.X,
        subcluster_codes(rows, codec, space, mixture.means, leading),
        len(centers),
        l2_bound=radius,
        centers=centers,
        transform=lambda chunk: exact_product(codec.scale(chunk) - space.center, space.basis),
        exact=exact,
        count_weight=CLASS_COUNT_WEIGHT,
        mean_weight=CLASS_MEAN_WEIGHT,
    )
    return query, centers, radius


def subcluster_codes(rows, codec, space, means, leading):
    """Sub-cluster of each row: a function of the row and of released values, which does not depend on other rows.

    It is ``class * 2**n_directions + sum of 2**i`` over the directions i on whose upper side the row lies; -1 for a row
    of no class. `means` (n_classes, n_latent) and `leading` (n_classes, n_latent, n_directions) describe the classes.
    """
    n_classes, _, n_directions = leading.shape
    directions = space.basis @ np.concatenate(leading, axis=1)
    middle = np.einsum("kd,kds->ks", means, leading)
    codes = np.zeros(len(rows.X), dtype=np.int64)
    for part, along in map_blocks(lambda chunk: exact_product(codec.scale(chunk) - space.center, directions), rows.X):
        known = np.maximum(rows.codes[part], 0)
        own = along.reshape(len(along), n_classes, n_directions)[np.arange(len(along)), known]
        codes[part] = (known << n_directions) + (own > middle[known]) @ (1 << np.arange(n_directions))
    return np.where(rows.codes < 0, -1, codes)
