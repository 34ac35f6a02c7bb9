"""Classes of images cut into cells, each with a Gaussian law of its own: one more release where noise is low."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ..generators.gaussians import COUNT_WEIGHT, MEAN_WEIGHT, MOST_NUMBERS, LatentSpace, class_latents, floored
from ..mechanisms import add_gaussian, class_moments, unpack_moments
from ..utils.blocks import exact_product, map_blocks

__all__ = ["cell_codes", "cell_moments", "n_cell_signs", "release_cells"]

# A class is cut along at most so many of its leading directions, and into no more cells than have so many rows for each
# unit of noise.
_MOST_SIGNS, _ROWS_OF_CELL = 3, 700
# Share of normal rows that are not clipped; rows of images have heavier tails.
_INSIDE = 0.85


def n_cell_signs(counts, noise_multiplier, d):
    """Directions to cut classes along, by their released counts: 3 (8 cells) where they have rows enough, to 0.

    Fewer where the cells' covariances in `d` dimensions would be large together.
    """
    cells = float(np.mean(counts)) / (_ROWS_OF_CELL * max(noise_multiplier, 0.1))
    cells = min(cells, MOST_NUMBERS / (len(counts) * d**2))
    return int(np.clip(np.floor(np.log2(max(cells, 1.0))), 0, _MOST_SIGNS))


def release_cells(rows, codec, space, latents, noise_multiplier, rng, neighboring):
    """Moments of the cells of each class, in the space of the components: one release, for a row is in one cell alone.

    A cell is where a row lies on either side of its class's mean along the leading directions of the class, all of them
    released: classes of images are far from Gaussian, and halves of them are less far.

    Parameters
    ----------
    rows : ArrayRows
    codec : ArrayCodec
    space : LatentSpace
        Released.
    latents : ClassLatents
        Released: one Gaussian a class, in that space.
    noise_multiplier : float
    rng : NoiseGenerator
    neighboring : str

    Returns
    -------
    space : LatentSpace
        The same, turned.
    latents : ClassLatents
        Of the cells, those of a class side by side; means are those of the scaled rows, less the center of the space.
    cells : int
        Of each class.
    """
    n_signs = n_cell_signs(latents.counts, noise_multiplier, latents.mixture.means.shape[1])
    query, centers, radius = cell_moments(rows, codec, space, latents.mixture, n_signs, exact=noise_multiplier > 0)
    d = centers.shape[1]
    released = unpack_moments(add_gaussian(query, noise_multiplier, rng, neighboring), d, radius)
    released = released._replace(count=floored(released.count))
    sd = noise_multiplier * query.sensitivity(neighboring)
    found = class_latents(released, centers, sd * radius**2, sd * radius / MEAN_WEIGHT, d)
    turned = LatentSpace(space.center + space.basis @ found.mean, space.basis @ found.components)
    found = found._replace(means=(found.means - found.mean) @ space.basis.T)
    return turned, found, len(centers) // len(latents.counts)


def cell_moments(rows, codec, space, mixture, n_signs, *, exact=True):
    """Count, sum and second moments of the cells of each class, about where a normal law has the mean of a cell.

    Parameters
    ----------
    rows, codec, space
        As in `release_cells`.
    mixture : GaussianMixtureParameters
        Released: one component a class.
    n_signs : int
        Directions that a class is cut along; at most so many as there are.
    exact : bool, default=True
        As in `class_moments`.

    Returns
    -------
    query : BoundedSum
        As of `class_moments`: the cells in the place of the classes.
    centers : array of shape (n_classes * n_cells, n_latent)
    radius : float
        Norm that rows about their center are clipped to.
    """
    d = mixture.means.shape[1]
    n_signs = min(n_signs, d)
    values, vectors = np.linalg.eigh(mixture.covariances)
    leading, spread = vectors[:, :, d - n_signs :], np.sqrt(values[:, d - n_signs :])
    signs = 2 * (np.arange(2**n_signs)[:, None] >> np.arange(n_signs) & 1) - 1
    # half of a normal law has its mean at sqrt(2 / pi) deviations
    centers = mixture.means[:, None] + (2 / np.pi) ** 0.5 * np.einsum("cs,kds,ks->kcd", signs, leading, spread)
    centers = centers.reshape(-1, d)
    radius = _radius(mixture.weights, values, spread) if exact else 4.0 * codec.row_norm
    query = class_moments(
        rows.X,
        cell_codes(rows, codec, space, mixture.means, leading),
        len(centers),
        l2_bound=radius,
        centers=centers,
        transform=lambda chunk: exact_product(codec.scale(chunk) - space.center, space.basis),
        exact=exact,
        count_weight=COUNT_WEIGHT,
        mean_weight=MEAN_WEIGHT,
    )
    return query, centers, radius


def _radius(weights, values, spread):
    """Norm to clip rows about the center of their cell to, by the released covariances of their classes alone.

    That which a share of `_INSIDE` of normal rows have, and at least the root mean square of the widest class, however
    few are in it.
    """
    within = values.sum(axis=1) - (2 / np.pi) * np.square(spread).sum(axis=1)
    deviation = np.sqrt(2 * np.square(values).sum(axis=1))
    squares = within[:, None] + deviation[:, None] * ndtri(np.linspace(0.005, 0.995, 100))
    order = np.argsort(squares, axis=None)
    share = np.cumsum(np.repeat(np.maximum(weights, 0.0), squares.shape[1])[order])
    at = np.searchsorted(share, _INSIDE * share[-1])
    return max(float(squares.ravel()[order[at]]), float(within.max())) ** 0.5


def cell_codes(rows, codec, space, means, leading):
    """Cell of each row: a function of the row and of what was released, wherever the row stands.

    Parameters
    ----------
    rows : ArrayRows
    codec : ArrayCodec
    space : LatentSpace
    means : array of shape (n_classes, n_latent)
        Of the classes.
    leading : array of shape (n_classes, n_latent, n_signs)
        Directions of the classes.

    Returns
    -------
    int array of shape (n_samples,)
        ``class * 2**n_signs + sum of 2**i`` over the directions i on whose upper side the row lies; -1 for a row of no
        class.
    """
    n_classes, _, n_signs = leading.shape
    directions = space.basis @ np.concatenate(leading, axis=1)
    middle = np.einsum("kd,kds->ks", means, leading)
    cells = np.zeros(len(rows.X), dtype=np.int64)
    for part, along in map_blocks(lambda chunk: exact_product(codec.scale(chunk) - space.center, directions), rows.X):
        known = np.maximum(rows.codes[part], 0)
        own = along.reshape(len(along), n_classes, n_signs)[np.arange(len(along)), known]
        cells[part] = (known << n_signs) + (own > middle[known]) @ (1 << np.arange(n_signs))
    return np.where(rows.codes < 0, -1, cells)
