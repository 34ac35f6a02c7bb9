"""P3GM on arrays: release the moments, shape the latent space, and keep what sampling needs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.special import logsumexp

from ..data.arrays import ArrayCodec
from ..data.labels import label_codes
from ..data.scaling import learn_norm_bound
from ..generators.class_structure import scale_mixture
from ..generators.components import spread_components
from ..generators.conditioning import ArraysGiven
from ..generators.gaussians import (
    COUNT_WEIGHT,
    MEAN_WEIGHT,
    MOST_NUMBERS,
    LatentSpace,
    LinearGenerator,
    class_latents,
    class_weights,
    floored,
    image_contrast,
)
from ..mechanisms import add_gaussian, class_first_moments, class_moments, clip_rows, total, unpack_moments
from ..mixture import dp_em, initial_mixture
from ..mixture._em import clip_covariances
from ..utils.blocks import map_blocks
from ._class_structure import release_class_norms, release_subclusters
from ._decoder import NetGenerator, decoder_plan, train_decoder
from ._planning import has_class_sizes

__all__ = ["ArrayModel", "fit_array_model"]

# Principal components. Images are drawn in (nearly) all: a classifier trained on images without any variance in some
# direction leans on where the classes lie along it.
_MOST_COMPONENTS, _MOST_OF_IMAGES = 60, 400
_WARM_ROWS = 20_000


class ArrayModel:
    """Released state of P3GM on arrays.

    Parameters
    ----------
    codec : ArrayCodec
    generator : LinearGenerator or NetGenerator
    row_count : float
    component_weights : array of shape (n_components,)
        Of classes, where the model has them, else of the Gaussians of the prior.
    residual_variance : float or array of one for each Gaussian
        Mean variance of a scaled row in the directions left out, and the least in any other when rows are scored.
    """

    kind = "array"

    def __init__(self, codec, generator, row_count, component_weights, residual_variance):
        self.codec, self.generator = codec, generator
        self.row_count, self.component_weights = row_count, component_weights
        self.residual_variance = residual_variance

    @property
    def n_latent(self):
        """Number of latent dimensions."""
        return self.generator.space.basis.shape[1]

    @property
    def gradient_noise(self):
        """Source of the noise of DP-SGD and whether it was private, where there was any."""
        return self.generator.noise if isinstance(self.generator, NetGenerator) else None

    @property
    def class_ratio(self):
        """Released share of each class."""
        return self.component_weights / self.component_weights.sum()

    def sample(self, components, rng):
        """Rows, or (rows, y), of given components."""
        return self.codec.decode(self.generator.sample(components, rng), components, rng)

    def given(self, given):
        """The model, conditioned on the values of some columns."""
        return ArraysGiven(self, given)

    def encode(self, X):
        """Latent of rows."""
        return self.generator.space.encode(self._scale(X))

    def decode(self, latent, rng):
        """Rows from latents; the columns of y are left out."""
        generator = self.generator
        scaled = generator.decode(latent) if isinstance(generator, NetGenerator) else generator.space.decode(latent)
        scaled = np.clip(scaled, *self.codec.box)
        return self.codec.scaling.inverse_transform(scaled)[:, : self.codec.n_features]

    def score_samples(self, X, y=None):
        """Log-likelihood of each row (ELBO with a network), y left out."""
        scaled = self._scale(X)
        if isinstance(self.generator, NetGenerator):
            known = y is not None and self.codec.n_classes
            return self.generator.elbo(scaled, label_codes(y, self.codec.classes) if known else None)
        space, mixture = self.generator.space, self.generator.mixture
        latent = space.encode(scaled)
        left = np.square(scaled - space.decode(latent)).sum(axis=1)
        rest = scaled.shape[1] - self.n_latent
        variance = np.broadcast_to(self.residual_variance, mixture.n_components)
        covariances = clip_covariances(mixture.covariances, variance, np.inf, mixture.covariance_type)
        logs = replace(mixture, covariances=covariances).component_log_prob(latent)
        if rest:
            logs -= 0.5 * (left[:, None] / variance + rest * np.log(2 * np.pi * variance))
        return logsumexp(logs, axis=1)

    def _scale(self, X):
        """Scaled rows; columns of y that X lacks are at their released mean."""
        missing = len(self.codec.scaling.lower) - X.shape[1]
        if missing:
            mean = self.codec.scaling.inverse_transform(self.generator.space.center)[-missing:]
            X = np.column_stack([X, np.broadcast_to(mean, (len(X), missing))])
        return self.codec.scale(X)

    def to_state(self):
        """Return plain values and arrays for a release file."""
        return {
            "kind": self.kind,
            "codec": self.codec.to_state(),
            "generator_kind": "net" if isinstance(self.generator, NetGenerator) else "linear",
            "generator": self.generator.to_state(),
            "row_count": self.row_count,
            "component_weights": self.component_weights,
            "residual_variance": self.residual_variance,
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        generator = NetGenerator if state["generator_kind"] == "net" else LinearGenerator
        return cls(
            ArrayCodec.from_state(state["codec"]),
            generator.from_state(state["generator"]),
            state["row_count"],
            state["component_weights"],
            state["residual_variance"],
        )


def fit_array_model(rows, settings, plan, rng, neighboring, stream):
    """Make all releases of the fit, after its charge.

    Parameters
    ----------
    rows : ArrayRows
    settings : dict
        Parameters of the synthesizer.
    plan : FitPlan
        Charged.
    rng : NoiseGenerator
    neighboring : str
    stream : numpy.random.Generator
        For what needs no privacy: starts of EM, synthetic rows for the warm start.

    Returns
    -------
    ArrayModel
    """
    noise = plan.noise_multipliers
    frequencies = None if rows.image_shape is None else n_frequencies(rows.image_shape, noise["moments"])
    codec = rows.learn(noise, plan.extra_delta, rng, neighboring, n_frequencies=frequencies)
    latents, space, sizes = _release_moments(rows, codec, settings, noise, rng, neighboring)
    row_count = float(len(rows.X)) if neighboring == "replace_one" else float(latents.counts.sum())
    gain, dither, residual = 1.0, latents.dither, latents.residual_variance
    mixture, cells = latents.mixture, 1
    component_means = latents.means if codec.lowpass is None else latents.means @ codec.lowpass.T
    if rows.image_shape is not None:
        released = add_gaussian(total(rows.grey_pixels(codec), rows.n_features), noise["greys"], rng, neighboring)
        gain = image_contrast(float(released[0]) / (row_count * rows.n_features))
        dither = 0.0  # to convolutions white noise is no likeness of what was not released
        inside, beyond = space.decode(space.encode(component_means)), 0.0 * component_means
        left_out = codec.lowpass.shape[1] - space.basis.shape[1]
        if left_out and _draws_images(rows, settings):
            # of few components class means are most of what tells classes apart, also beyond the span; with noise there
            beyond = component_means - inside
            dither = math.sqrt(residual * left_out / len(codec.lowpass))
        component_means = inside + beyond
    if "cells" in noise:
        space, halved, cells = release_subclusters(rows, codec, space, latents, noise["cells"], rng, neighboring)
        mixture, component_means = halved.mixture, space.center + halved.means
        component_means = component_means + np.repeat(beyond, cells, axis=0)
    if sizes is not None:
        most = MOST_NUMBERS // mixture.covariances.size
        mixture, squares, cells = scale_mixture(latents, sizes, most)
        component_means = np.repeat(component_means, cells, axis=0)
        dither, residual = dither * np.sqrt(squares), residual * squares
    if settings["prior"] == "mixture":
        mixture = _release_mixture(rows, codec, space, mixture, settings, noise, rng, neighboring, stream)
        component_means = space.decode(mixture.means)
    generator = LinearGenerator(space, mixture, component_means, *codec.box, gain, dither, cells)
    if settings["decoder"] == "net":
        generator = _train(rows, codec, generator, row_count, settings, plan, neighboring, stream)
    return ArrayModel(codec, generator, row_count, class_weights(mixture.weights, cells), residual)


def n_frequencies(image_shape, noise_multiplier):
    """Cosines to keep along each side: half of 28 at the noise of epsilon 1, more where there is less; public."""
    side = min(image_shape[:2])
    most = max(image_shape[:2])
    wanted = most if noise_multiplier == 0 else 14 * (4 / noise_multiplier) ** 0.18
    return int(np.clip(round(wanted), min(side, 7), most))


def _release_moments(rows, codec, settings, noise, rng, neighboring):
    """Three releases: class means, the norms of rows about them, second moments about them."""
    classes = max(codec.n_classes, 1)
    query = {"transform": codec.encode, "exact": noise["moments"] > 0}
    bound = codec.row_norm
    first = class_first_moments(rows.X, rows.codes, classes, l2_bound=bound, count_weight=COUNT_WEIGHT, **query)
    first = add_gaussian(first, noise["mean"], rng, neighboring)
    centers = clip_rows(first[:, 1:] * bound / floored(first[:, :1]), bound)
    count = float(first[:, 0].sum())
    radius, sizes = _release_norms(rows, codec, centers, count, settings, noise["norm"], rng, neighboring)
    weights = {"count_weight": COUNT_WEIGHT, "mean_weight": MEAN_WEIGHT}
    second = class_moments(rows.X, rows.codes, classes, l2_bound=radius, centers=centers, **weights, **query)
    released = unpack_moments(add_gaussian(second, noise["moments"], rng, neighboring), centers.shape[1], radius)
    sd = noise["moments"] * second.sensitivity(neighboring)
    # rows are longer than the clipped ones, by the law of their norms where there is one
    squares = np.ones(classes) if sizes is None else sizes.squares()
    longer = np.ones(classes) if sizes is None else squares / sizes.squares(clipped=True)
    released = released._replace(count=floored(released.count), second=longer[:, None, None] * released.second)
    noise_sds = longer * sd * radius**2, sd * radius / MEAN_WEIGHT
    latents = class_latents(released, centers, *noise_sds, _n_components(rows, settings, centers.shape), squares)
    space = LatentSpace(latents.mean, latents.components)
    if codec.lowpass is not None:
        space = LatentSpace(codec.lowpass @ latents.mean, codec.lowpass @ latents.components)
    return latents, space, sizes


def _release_norms(rows, codec, centers, count, settings, noise_multiplier, rng, neighboring):
    """Norm to clip rows about their center to, of each class with the law of its norms; or of all rows, and None."""
    norms, largest = rows.residual_norms(codec, centers), 2 * codec.row_norm
    how = noise_multiplier, rng, neighboring
    if has_class_sizes(rows, settings):
        sizes = release_class_norms(norms, rows.codes, len(centers), largest, *how, count=count)
        return sizes.bound, sizes
    return learn_norm_bound(norms[rows.codes >= 0], largest, *how, count=count), None


def _draws_images(rows, settings):
    """Whether the released Gaussians themselves are to look like images."""
    return rows.image_shape is not None and settings["decoder"] == "released" and settings["prior"] != "mixture"


def _n_components(rows, settings, shape):
    """Number of principal components of centers of this shape."""
    images = _draws_images(rows, settings)
    most = min(_MOST_OF_IMAGES, math.isqrt(MOST_NUMBERS // shape[0])) if images else _MOST_COMPONENTS
    wanted = {"auto": most}.get(settings["n_components"], settings["n_components"])
    return min(wanted or shape[1], shape[1])


def _release_mixture(rows, codec, space, gaussian, settings, noise, rng, neighboring, stream):
    """DP-EM in the latent space, from a start drawn from the one Gaussian of the moments."""
    latent = np.empty((len(rows.X), space.basis.shape[1]))
    for part, encoded in map_blocks(lambda chunk: space.encode(codec.scale(chunk)), rows.X):
        latent[part] = encoded
    covariance = gaussian.covariances[0]
    radius = 2 * float(np.trace(covariance)) ** 0.5
    floor = 1e-2 * float(np.trace(covariance)) / len(covariance)
    kind = {"radius": radius, "min_variance": floor}
    start = initial_mixture(
        np.zeros(len(covariance)),
        covariance,
        settings["n_mixture"],
        stream,
        covariance_type=settings["covariance_type"],
        **kind,
    )
    return dp_em(
        latent,
        start,
        n_iter=settings["em_steps"],
        noise_multiplier=noise["mixture"],
        rng=rng,
        neighboring=neighboring,
        **kind,
    )


def _train(rows, codec, generator, row_count, settings, plan, neighboring, stream):
    components = spread_components(_WARM_ROWS, generator.mixture.weights, stream)
    warm = generator.sample(components, stream)
    if codec.n_classes:
        warm = np.concatenate([warm, np.eye(codec.n_classes, dtype=np.float32)[components]], axis=1)
    likelihood = settings["likelihood"]
    if likelihood == "auto":
        likelihood = "bernoulli" if (codec.box[0] >= 0).all() else "gaussian"
    return train_decoder(
        rows.scaled_with_labels(codec),
        decoder_plan(settings, plan, row_count, neighboring),
        generator.space,
        generator.mixture,
        settings=settings,
        likelihood=likelihood,
        widths=None,
        n_labels=codec.n_classes,
        warm_rows=warm,
        progress_text=f"epsilon {plan.epsilon:.3g}",
    )
