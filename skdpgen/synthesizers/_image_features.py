"""The moments of wavelet features of images: one release."""

from __future__ import annotations

from ..generators.gaussians import class_latents, floored
from ..generators.refined_images import RefinedImages, class_maps, common_map, feature_space
from ..mechanisms import add_gaussian, class_moments, shared_moments, unpack_moments, unpack_shared_moments
from ..mechanisms._moments import CLASS_COUNT_WEIGHT, CLASS_MEAN_WEIGHT

__all__ = ["feature_moments", "refine_images"]

# The second moments of a class are released where it has so many rows for every unit of noise, on average; else only
# those of all classes together, of which each class then has a tenth of the noise, where there are ten.
_ROWS_APART = 3_000


def refine_images(rows, codec, generator, row_count, features, fit):
    """One release (`features`): the moments of the wavelet features, which images are moved to.

    Parameters
    ----------
    rows : ArrayRows
        Private.
    codec : ArrayCodec
    generator : LinearGenerator
        Of the released moments of pixels.
    row_count : float
        Public or released.
    features : ImageFeatures
    fit : ChargedFit

    Returns
    -------
    RefinedImages
    """
    space = feature_space(
        generator, codec.image_shape, fit.stream, n_features=features.n_features, n_scales=features.n_scales
    )
    noise, (n_classes, k), radius = fit.noise["features"], space.centers.shape, space.radius
    apart = row_count >= _ROWS_APART * n_classes * fit.noise_of_rows("features")
    query = feature_moments(rows, codec, space, apart=apart, exact=noise > 0)
    values = add_gaussian(query, noise, fit.rng, fit.neighboring)
    if apart:
        released = unpack_moments(values, k, radius)
    else:
        released = unpack_shared_moments(values, n_classes, k, radius)
        released = released._replace(second=released.second * radius**2)
    released = released._replace(count=floored(released.count))
    sd = noise * query.sensitivity(fit.neighboring)
    noise_sds = sd * radius**2, sd * radius / CLASS_MEAN_WEIGHT
    if apart:
        latents = class_latents(released, space.centers, *noise_sds, k)
        moved = latents.means, class_maps(space, latents)
    else:
        moved = common_map(space, released, *noise_sds)
    return RefinedImages.of(generator, space, *moved, n_steps=features.n_steps)


def feature_moments(rows, codec, space, *, apart=True, exact=True):
    """Count and sum of the features of each class about the mean of its synthetic images, and second moments.

    These are those of each class if `apart`, else those of all classes together. See `class_moments` for `exact`.

    Returns
    -------
    BoundedSum
        That of `class_moments` or `shared_moments`: a row is in one class, and clipped to the radius of `space` about
        the center of that.
    """
    query = class_moments if apart else shared_moments
    return query(
        rows.X,
        rows.codes,
        len(space.centers),
        l2_bound=space.radius,
        centers=space.centers,
        transform=lambda chunk: space.encode(codec.scale(chunk)),
        exact=exact,
        count_weight=CLASS_COUNT_WEIGHT,
        mean_weight=CLASS_MEAN_WEIGHT,
        unit_sizes=rows.unit_sizes,
    )
