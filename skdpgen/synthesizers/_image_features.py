"""The moments of wavelet features of images: one release."""

from __future__ import annotations

from ..generators.gaussians import class_latents, floored
from ..generators.refined_images import RefinedImages, feature_space
from ..mechanisms import add_gaussian, class_moments, unpack_moments
from ..mechanisms._moments import CLASS_COUNT_WEIGHT, CLASS_MEAN_WEIGHT

__all__ = ["feature_moments", "refine_images"]


def refine_images(rows, codec, generator, fit):
    """One release (`features`): the moments of the wavelet features of each class, which images are moved to.

    Parameters
    ----------
    rows : ArrayRows
        Private.
    codec : ArrayCodec
    generator : LinearGenerator
        Of the released moments of pixels.
    fit : ChargedFit

    Returns
    -------
    RefinedImages
    """
    space = feature_space(generator, codec.image_shape, fit.stream)
    noise = fit.noise["features"]
    query = feature_moments(rows, codec, space, exact=noise > 0)
    k, radius = space.matrix.shape[1], space.radius
    released = unpack_moments(add_gaussian(query, noise, fit.rng, fit.neighboring), k, radius)
    released = released._replace(count=floored(released.count))
    sd = noise * query.sensitivity(fit.neighboring)
    latents = class_latents(released, space.centers, sd * radius**2, sd * radius / CLASS_MEAN_WEIGHT, k)
    return RefinedImages.of(generator, space, latents)


def feature_moments(rows, codec, space, *, exact=True):
    """Count, sum and second moments of the features of each class, about the mean of its synthetic images.

    See `class_moments` for `exact`.

    Returns
    -------
    BoundedSum
        That of `class_moments`: a row is in one class, and clipped to the radius of `space` about the center of that.
    """
    return class_moments(
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
