"""The second phase of P3GM: a mixture of Gaussians by DP-EM in the latent space, which is the prior of the model."""

from __future__ import annotations

import numpy as np

from ..generators.gaussians import LinearGenerator
from ..mixture import dp_em, initial_mixture
from ..utils.blocks import map_blocks
from ._array_model import ArrayModel

__all__ = ["release_array_mixture", "release_frame_mixture", "with_mixture"]


def release_array_mixture(rows, model, mixture, fit):
    """DP-EM, initialised by draws from the one Gaussian of the moments."""
    space, covariance = model.generator.space, model.generator.mixture.covariances[0]
    radius = 2 * float(np.trace(covariance)) ** 0.5
    floor = 1e-2 * float(np.trace(covariance)) / len(covariance)
    latent = np.empty((len(rows.X), space.basis.shape[1]))
    for part, encoded in map_blocks(lambda chunk: space.encode(model.codec.scale(chunk)), rows.X):
        latent[part] = encoded
    kind = {"radius": radius, "min_variance": floor, "unit_sizes": rows.unit_sizes}
    return _release_mixture(latent, covariance, mixture, fit, **kind)


def release_frame_mixture(rows, model, mixture, fit):
    """DP-EM where the latents' columns have released variance 1: the ball of radius 2 sqrt(k) is public."""
    codes, k = rows.codes(model.codec), model.n_latent
    latent = np.empty((len(codes), k))
    for part, encoded in map_blocks(lambda chunk: model.latent_model.encode(model.codec.one_hot(chunk)), codes):
        latent[part] = encoded
    kind = {"radius": 2 * k**0.5, "min_variance": 1e-2, "unit_sizes": rows.unit_sizes}
    return _release_mixture(latent, np.eye(k), mixture, fit, **kind)


def _release_mixture(latent, covariance, mixture, fit, *, unit_sizes, **kind):
    """One release (`mixture`) for each step of DP-EM on private latents."""
    initial = initial_mixture(
        np.zeros(len(covariance)),
        covariance,
        mixture.n_components,
        fit.stream,
        covariance_type=mixture.covariance_type,
        **kind,
    )
    return dp_em(
        latent,
        initial,
        n_iter=mixture.n_iter,
        noise_multiplier=fit.noise["mixture"],
        rng=fit.rng,
        neighboring=fit.neighboring,
        unit_sizes=unit_sizes,
        **kind,
    )


def with_mixture(model, mixture):
    """The model of arrays with a released mixture as its prior."""
    old = model.generator
    means, dither = old.space.decode(mixture.means), float(old.dither[0])
    generator = LinearGenerator(old.space, mixture, means, old.low, old.high, old.variance_gain, dither)
    rest = model.residual_variance, model.counted
    return ArrayModel(model.codec, generator, model.row_count, mixture.weights, *rest)
