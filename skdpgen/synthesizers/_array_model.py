"""Models of arrays from released moments: the releases, the Gaussians made of them, and the released model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from ..data.arrays import in_colour
from ..data.scaling import learn_norm_bound, norm_edges
from ..generators.conditioning import ArraysGiven
from ..generators.gaussians import (
    MOST_NUMBERS,
    SMALLEST_SIDE,
    LatentSpace,
    LinearGenerator,
    class_latents,
    class_norms,
    class_weights,
    cut_directions,
    floored,
    hides_shapes,
    image_contrast,
    normal_radius,
    scale_mixture,
    shared_latents,
    shrink_centers,
)
from ..generators.refined_images import ClassCuts, RefinedImages, feature_space, released_targets
from ..generators.shifted_images import ShiftedImages
from ..mechanisms import (
    add_gaussian,
    class_first_moments,
    class_moments,
    class_norm_histogram,
    clip_rows,
    shared_moments,
    total,
    unpack_moments,
    unpack_shared_moments,
)
from ..mechanisms._gaussian import Count, upper_bound
from ..mechanisms._moments import CLASS_COUNT_WEIGHT, CLASS_MEAN_WEIGHT, SHARED_MEAN_WEIGHT
from ..mixture import GaussianMixtureParameters
from ..mixture._em import clip_covariances
from ..utils.blocks import exact_product, map_blocks, mapped_rows
from ..utils.callers import warn_user
from ..utils.progress import progress_bar
from ._released import NetGenerator, ReleasedModel

# Principal components. Images are drawn in (nearly) all: a classifier trained on images without any variance in some
# direction leans on where the classes lie along it.
_MOST_COMPONENTS, _MOST_OF_IMAGES = 60, 400
# Colour is kept in so many times fewer cosines along each side than brightness, as in JPEG: it has less detail, and
# noise falls with their number. Otherwise there is noise in each channel by itself, as speckles of all colours.
_COARSER = 2
# The second moments of the features of a class are released where it has so many rows for every unit of noise, on
# average; else only those of all classes together, of which each class then has a tenth of the noise, where there are
# ten.
_ROWS_APART = 3_000
# Rows that the sub-clusters of a class have in the space of the features for every unit of noise, on average. Of fewer
# rows (at epsilon 1, 140) the noise of their means costs MNIST .004 of its accuracy.
_ROWS_OF_PART = 1_000
# Of the declared range of pixels: the means of images that have it rarely all lie so near to its lower end.
_DARK = 0.01
# And the mean share of it from which images are said to be bright: that of ink on white paper is about .85, that of
# photographs about .5.
_BRIGHT = 0.7
# Share of the noise in the squares of a released mean image from which the noise hides it.
_MOSTLY_NOISE = 0.5
# An eigenvalue of released second moments shows a direction if it exceeds the norm of the noise by this factor.
_CLEAR = 1.1
# Generators by their name in a release file.
KINDS = {LinearGenerator: "linear", NetGenerator: "net", RefinedImages: "refined", ShiftedImages: "shifted"}
# Of these, the ones that have a network.
_NETWORKS = (NetGenerator, ShiftedImages)


class ArrayModel(ReleasedModel):
    """Released state of P3GM and Moment on arrays.

    `component_weights` (n_components,): of classes, where the model has them, else of the Gaussians of the prior.
    `residual_variance`: mean variance of a scaled row in the directions left out, and the least in any other when rows
        are scored.
    `counted`, a Count: released sum of the weights of the rows, for the training of a network alone: no file has it.
    """

    def __init__(self, codec, generator, row_count, component_weights, residual_variance, counted=None):
        super().__init__(codec, row_count, component_weights)
        self.generator, self.residual_variance = generator, residual_variance
        self.counted = Count(row_count, row_count) if counted is None else counted

    @property
    def n_latent(self):
        """Number of latent dimensions."""
        return self.generator.space.basis.shape[1]

    @property
    def gradient_noise(self):
        """Source of the noise of DP-SGD and whether it was private, where there was any."""
        return self.generator.noise if isinstance(self.generator, _NETWORKS) else None

    @property
    def decoder_name(self):
        """How rows are computed from latents: "released", "features" or "net", as `decoder` of P3GM."""
        if isinstance(self.generator, _NETWORKS):
            return "net"
        return "features" if isinstance(self.generator, RefinedImages) else "released"

    def with_mixture(self, mixture):
        """The model with a released mixture as its prior."""
        old = self.generator
        means, dither = old.space.decode(mixture.means), float(old.dither[0])
        generator = LinearGenerator(old.space, mixture, means, *old.box, old.variance_gain, dither)
        rest = self.residual_variance, self.counted
        return ArrayModel(self.codec, generator, self.row_count, mixture.weights, *rest)

    def draw(self, components, rng):
        """Scaled rows of given components."""
        return self.generator.sample(components, rng)

    def given(self, given):
        """The model of rows that have some of their columns as asked for."""
        if isinstance(self.generator, _NETWORKS):
            raise ValueError('given= of an array needs decoder="released": a network has no distribution given a value')
        if self.codec.upright:
            raise ValueError("given= names pixels, which a model of upright images (upright=True) does not have")
        return ArraysGiven(self, given)

    def encode(self, X):
        """Latent of rows, in blocks of one shape (see `map_blocks`)."""
        return mapped_rows(self.generator.space.encode, self._scale(X)[0], self.n_latent)

    def decode(self, latent, rng):
        """Rows from latents; the columns of y are left out."""
        generator = self.generator
        scaled = generator.decode(latent) if isinstance(generator, NetGenerator) else generator.space.decode(latent)
        scaled = np.clip(scaled, *self.codec.box)
        rows = self.codec.without_poses(self.codec.scaling.inverse_transform(scaled))
        return rows[:, : self.codec.n_features]

    def score_samples(self, X, y=None):
        """Log-likelihood of each row (ELBO with a network), y left out."""
        if isinstance(self.generator, NetGenerator):
            return self.generator.elbo(*self._scale(X, y))
        scaled, _ = self._scale(X)
        if isinstance(self.generator, ShiftedImages):
            return self.generator.score_samples(scaled)
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

    def _scale(self, X, y=None):
        """Scaled rows, columns of y that X lacks at their released mean; and class codes or None."""
        X = self.codec.with_poses(X)
        n_missing = len(self.codec.scaling.lower) - X.shape[1]
        mean = self.codec.scaling.inverse_transform(self.generator.space.center)
        return self.vectors_like_fit(X, y, filler=mean[len(mean) - n_missing :])

    def _state(self):
        return {
            "generator_kind": KINDS[type(self.generator)],
            "generator": self.generator.to_state(),
            "residual_variance": self.residual_variance,
        }

    @classmethod
    def _restore(cls, codec, state):
        generator = {kind: made for made, kind in KINDS.items()}[state["generator_kind"]]
        shared = (state["row_count"], state["component_weights"], state["residual_variance"])
        generator = generator.from_state(state["generator"])
        if len(generator.space.center) != len(codec.scaling.lower):
            raise ValueError("the columns of the generator are not those of the rows")
        return cls(codec, generator, *shared)


@dataclass(frozen=True, eq=False)
class _Gaussians:
    """The Gaussians that rows are drawn from, and how they are drawn; every field is released."""

    space: LatentSpace
    mixture: GaussianMixtureParameters
    means: np.ndarray  # of scaled rows, of each component
    residual: float | np.ndarray
    dither: float | np.ndarray
    gain: float | np.ndarray | None = 1.0  # of all columns, or of each
    beyond: np.ndarray | float = 0.0  # part of the means outside the latent space
    cells: int = 1  # components of a class


# ---- the fit: what is released, in this order --------------------------------------------------------------------
def fit_array_model(rows, model, fit):
    """Make the releases of arrays: facts that were not declared, then the moments, and what images need beside them."""
    basis = {} if rows.image_shape is None else basis_sizes(rows.image_shape, fit.noise_of_rows("moments"))
    if model.features is not None:
        basis["upright"] = model.features.upright
    codec = rows.learn(fit.noise, fit.plan.extra_delta, fit.rng, fit.neighboring, **basis)
    latents, norms, most = _release_moments(rows, codec, model, fit)
    weight = fit.row_count(len(rows.X), latents.counts.sum())  # of units, where each of them counts 1
    gaussians = _class_gaussians(codec, latents)
    if rows.image_shape is not None:
        gaussians = _release_contrast(rows, codec, model, gaussians, weight, fit)
        _point_out_dark_images(codec, gaussians.means)
        _point_out_bright_images(codec, gaussians.means)
    if "cells" in fit.noise:
        gaussians = _release_sub_clusters(rows, codec, latents, gaussians, fit)
    if norms is not None:
        gaussians = _scaled_by_norms(gaussians, latents, norms)
    generator = LinearGenerator(
        gaussians.space, gaussians.mixture, gaussians.means, *codec.box, gaussians.gain, gaussians.dither,
        gaussians.cells, _cleaned(rows, model, gaussians),
    )  # fmt: skip
    weights = class_weights(gaussians.mixture.weights, gaussians.cells)
    if model.features is not None:
        generator = refine_images(rows, codec, generator, weight, model.features, fit, progress=model.progress)
    sizes = fit.sample_size(rows, weight), weights
    return ArrayModel(codec, generator, *sizes, gaussians.residual, Count(weight, most))


def n_frequencies(image_shape, noise_multiplier):
    """Cosines to keep along each side: half of 28 at the noise of epsilon 1, more where there is less; public."""
    side = min(image_shape[:2])
    most = max(image_shape[:2])
    wanted = most if noise_multiplier == 0 else 14 * (4 / noise_multiplier) ** 0.18
    return int(np.clip(round(wanted), min(side, 7), most))


def basis_sizes(image_shape, noise_multiplier):
    """Arguments of `lowpass_basis`; public."""
    n = n_frequencies(image_shape, noise_multiplier)
    halved = in_colour(image_shape) and noise_multiplier > 0
    return {"n_frequencies": n, "n_colour": -(-n // _COARSER) if halved else None}


def _release_moments(rows, codec, model, fit):
    """Three releases: class means (`mean`), distances from them (`norm`), second moments about them (`moments`).

    Returns `latents`; `norms`: distribution of the norms in each class, where the model has one; `most`: upper bound of
    the sum of the weights of the rows.
    """
    noise, rng, neighboring = fit.noise, fit.rng, fit.neighboring
    classes = max(codec.n_classes, 1)
    query = {"transform": codec.encode, "exact": noise["moments"] > 0, "unit_sizes": rows.unit_sizes}
    bound = codec.row_norm
    first = class_first_moments(rows.X, rows.codes, classes, l2_bound=bound, count_weight=CLASS_COUNT_WEIGHT, **query)
    sd_of_sums = noise["mean"] * first.sensitivity(neighboring) * bound
    first = add_gaussian(first, noise["mean"], rng, neighboring)
    centers = clip_rows(first[:, 1:] * bound / floored(first[:, :1]), bound)
    row_count, noise_of_rows = float(first[:, 0].sum()), fit.noise_of_rows("moments")
    shared = model.has_class_norms(rows) and hides_shapes(row_count, classes, centers.shape[1], noise_of_rows)
    if shared:
        centers = shrink_centers(centers, floored(first[:, 0]), sd_of_sums)
    radius, norms = _release_norms(rows, codec, model, centers, row_count, fit)
    if shared:
        latents, most = _release_shared(rows, model, centers, norms, query, fit)
        return latents, norms, most
    weights = {"count_weight": CLASS_COUNT_WEIGHT, "mean_weight": CLASS_MEAN_WEIGHT}
    second = class_moments(rows.X, rows.codes, classes, l2_bound=radius, centers=centers, **weights, **query)
    released = unpack_moments(add_gaussian(second, noise["moments"], rng, neighboring), centers.shape[1], radius)
    sd = noise["moments"] * second.sensitivity(neighboring)
    most = upper_bound(released.count, sd / CLASS_COUNT_WEIGHT)
    # rows are longer than the clipped ones, by the distribution of their norms where there is one
    squares = np.ones(classes) if norms is None else norms.squares()
    longer = np.ones(classes) if norms is None else squares / norms.squares(clipped=True)
    released = released._replace(count=floored(released.count), second=longer[:, None, None] * released.second)
    noise_sds = longer * sd * radius**2, sd * radius / CLASS_MEAN_WEIGHT
    if rows.image_shape is not None:
        means = centers + released.sum / released.count[:, None]
        _point_out_hidden_images(codec, means, released.count, noise_sds[1], rows.undeclared)
    k = _n_components(rows, model, centers.shape)
    if model.mixture is not None:
        _point_out_hidden_components(released, noise_sds[0], k)
    return class_latents(released, centers, *noise_sds, k, squares), norms, most


def _release_shared(rows, model, centers, norms, query, fit):
    """The release `moments` of wide rows, whose second moments are those of all classes together; and `most`."""
    (classes, d), noise, radius = centers.shape, fit.noise["moments"], norms.bound
    private = shared_moments(rows.X, rows.codes, classes, l2_bound=radius, centers=centers, **query)
    released = unpack_shared_moments(add_gaussian(private, noise, fit.rng, fit.neighboring), classes, d, radius)
    sd = noise * private.sensitivity(fit.neighboring)
    most = upper_bound(released.count, sd / CLASS_COUNT_WEIGHT)
    released = released._replace(count=floored(released.count))
    # rows divided by the bound of their class have this mean square, by the distribution of their norms
    traces = released.count * norms.squares(clipped=True) / radius**2
    latents = shared_latents(
        released._replace(second=released.second[0] / traces.sum()),
        traces / traces.sum(),
        centers,
        sd / traces.sum(),
        sd * radius / SHARED_MEAN_WEIGHT,
        _n_components(rows, model, centers.shape),
        norms.squares(),
    )
    return latents, most


def _release_norms(rows, codec, model, centers, count, fit):
    """Norm to clip rows about their center to: of each class with the distribution of its norms; or of all, None."""
    private, largest = rows.residual_norms(codec, centers), 2 * codec.row_norm
    how = fit.noise["norm"], fit.rng, fit.neighboring
    if model.has_class_norms(rows):
        sizes = rows.unit_sizes
        norms = release_class_norms(private, rows.codes, len(centers), largest, *how, count=count, unit_sizes=sizes)
        return norms.bound, norms
    known = rows.codes >= 0
    sizes = None if rows.unit_sizes is None else rows.unit_sizes[known]
    return learn_norm_bound(private[known], largest, *how, count=count, unit_sizes=sizes, about_mean=True), None


def _release_contrast(rows, codec, model, gaussians, row_count, fit):
    """One release (`greys`): the number of grey pixels, which sets the contrast of images."""
    grey = total(rows.grey_pixels(codec), rows.n_features, rows.unit_sizes)
    released = add_gaussian(grey, fit.noise["greys"], fit.rng, fit.neighboring)
    gain = image_contrast(float(released[0]) / (row_count * rows.n_features))
    if gain is not None and codec.n_pose_columns:  # poses are no pixels
        gain = np.repeat([gain, 1.0], [rows.n_features, codec.n_pose_columns])
    dither = 0.0  # to convolutions white noise is no likeness of what was not released
    space = gaussians.space
    inside, beyond = space.decode(space.encode(gaussians.means)), 0.0 * gaussians.means
    left_out = codec.lowpass.shape[1] - space.basis.shape[1]
    if left_out and _draws_images(rows, model):
        # of few components class means are most of what distinguishes classes, also beyond the span; with noise there
        beyond = gaussians.means - inside
        dither = math.sqrt(gaussians.residual * left_out / len(codec.lowpass))
    return replace(gaussians, means=inside + beyond, gain=gain, dither=dither, beyond=beyond)


def _release_sub_clusters(rows, codec, latents, gaussians, fit):
    """One release (`cells`): the moments of the sub-clusters of each class."""
    space, halved, cells = release_subclusters(
        rows, codec, gaussians.space, latents, fit.noise["cells"], fit.rng, fit.neighboring, fit.noise_of_rows("cells")
    )
    means = space.center + halved.means
    means = means + np.repeat(gaussians.beyond, cells, axis=0)
    return replace(gaussians, space=space, mixture=halved.mixture, means=means, cells=cells)


# ---- functions of what was released -------------------------------------------------------------------------------
def _class_gaussians(codec, latents):
    """One Gaussian a class, in the space of the principal components."""
    space, means = LatentSpace(latents.mean, latents.components), latents.means
    if codec.lowpass is not None:
        space = LatentSpace(codec.lowpass @ latents.mean, codec.lowpass @ latents.components)
        means = latents.means @ codec.lowpass.T
    return _Gaussians(space, latents.mixture, means, latents.residual_variance, latents.dither)


def _point_out_hidden_images(codec, means, counts, sd, undeclared):
    """Warn, from released values and their known noise alone, of classes whose mean image is noise for the most part.

    `means` (n_classes, d): released, encoded. `counts` (n_classes,): released. `sd`: of the noise on an entry of a sum.
    `undeclared`: public: names of parameters.
    """
    n = codec.n_features
    shares = codec.box.to_unit(means @ codec.lowpass.T)[:, :n]
    noise = np.square(sd / counts) * np.square(codec.lowpass / codec.box.width[:, None])[:n].sum()
    hidden = int(np.count_nonzero(np.square(shares).sum(axis=1) < noise / _MOSTLY_NOISE))
    if hidden and not _are_dark(shares):
        which = f"the images of {hidden} of {len(means)} classes" if len(means) > 1 else "the images"
        advice = f"; declare {' and '.join(undeclared)}, if public" if undeclared else ""
        warn_user(
            f"the noise hides {which}: more than half of what their released means show is noise. Take more rows or a "
            f"larger epsilon, or smaller images{advice}"
        )


def _point_out_hidden_components(released, sd, n_components):
    """Warn, from released moments and their known noise alone, where the latents of a mixture are directions of noise.

    `released`: moments about the centers. `sd`: of the noise on an entry of the sum of squares. Symmetric noise of d
    columns has eigenvalues of up to sd sqrt(2 d).
    """
    d, count = released.second.shape[-1], released.count.sum()
    k = min(n_components or d, d)
    noise = float(np.max(sd)) * math.sqrt(2 * d) / count
    visible = int(np.count_nonzero(np.linalg.eigvalsh(released.second.sum(axis=0) / count)[-k:] > _CLEAR * noise))
    if 1 < k < d and visible <= 1:
        which = "all" if visible == 0 else f"all but one of the {k}"
        warn_user(
            f"the noise hides {which} latent directions of the mixture: the released variance along them is that of "
            f"noise ({noise:.2g}), and the decoder is trained on such latents. Take more rows, a larger epsilon, or a "
            'larger share "encoder" of budget_split= (the presets of the paper have their own split); or leave out '
            "preset= and prior=, whose defaults need far fewer rows"
        )


def _point_out_dark_images(codec, means):
    """Warn, from the released means of the classes alone, of images that use next to nothing of the declared range."""
    n = codec.n_features
    if _are_dark(codec.box.to_unit(means)[:, :n]):
        low, high = codec.scaling.lower[:n].min(), codec.scaling.upper[:n].max()
        warn_user(
            f"nearly all released means of pixels lie within {100 * _DARK:g} % of the lower end of "
            f"bounds=({low:g}, {high:g}): if the pixels have a smaller range, such as (0, 1), declare it as bounds=, "
            "because the contrast of images is released relative to it"
        )


def _point_out_bright_images(codec, means):
    """Warn, from the released means of the classes alone, of bright images, which are far from the lower bound."""
    n = codec.n_features
    share = float(codec.box.to_unit(means)[:, :n].mean())
    if share > _BRIGHT and (codec.scaling.offset[:n] == codec.scaling.lower[:n]).all():
        low, high = codec.scaling.lower[0], codec.scaling.upper[0]
        one = (codec.scaling.lower[:n] == low).all() and (codec.scaling.upper[:n] == high).all()
        negative = f"{low + high:g} - X" if one else "the sum of both bounds less X"
        warn_user(
            f"the released mean of all pixels is at {share:.0%} of the range of bounds=: if the pixels have a wider "
            "range, such as (0, 255), declare it, because values beyond bounds= are clipped. Noise grows with the "
            f"distance of images from the lower bound, so bright images have much more of it. Fit {negative}, and "
            "subtract the samples likewise"
        )


def _are_dark(shares):
    """Whether nearly all pixels of the released means, as shares of the declared range, are near its lower end."""
    return np.mean(shares < _DARK) > 1 - _DARK


def _scaled_by_norms(gaussians, latents, norms):
    """Gaussians of several scales a class, by the released distribution of the norms."""
    most = MOST_NUMBERS // gaussians.mixture.covariances.size
    mixture, squares, cells = scale_mixture(latents, norms, most)
    return replace(
        gaussians,
        mixture=mixture,
        means=np.repeat(gaussians.means, cells, axis=0),
        dither=gaussians.dither * np.sqrt(squares),
        residual=gaussians.residual * squares,
        cells=cells,
    )


def _draws_images(rows, model):
    """Whether the released Gaussians themselves are to look like images."""
    return rows.image_shape is not None and model.draws_gaussians


def _cleaned(rows, model, gaussians):
    """Shape of images whose single pixels are cleaned: those with a raised contrast that are not tiny; or None."""
    raised = _draws_images(rows, model) and gaussians.gain is not None
    return rows.image_shape if raised and min(rows.image_shape[:2]) >= SMALLEST_SIDE else None


def _n_components(rows, model, shape):
    """Number of principal components of centers of this shape."""
    images = _draws_images(rows, model)
    most = min(_MOST_OF_IMAGES, math.isqrt(MOST_NUMBERS // shape[0])) if images else _MOST_COMPONENTS
    wanted = {"auto": most}.get(model.n_components, model.n_components)
    return min(wanted or shape[1], shape[1])


# ---- releases of structure inside a class ---------------------------------------------------------------------------
def release_class_norms(
    norms, codes, n_classes, largest, noise_multiplier, rng, neighboring, *, count=None, unit_sizes=None
):
    """Release the norm distribution of each class: one histogram, in which a row is in one bin of one class.

    `norms` and `codes` (the class of each row; rows with another code are left out) are private, `largest` and `count`
    (see `learn_norm_bound`) are public or released; `unit_sizes` as in `joint_histogram`. Returns `ClassNorms`.
    """
    edges = norm_edges(largest, rng)
    counts = class_norm_histogram(norms, codes, n_classes, edges, unit_sizes)
    sd = noise_multiplier * counts.sensitivity(neighboring)
    noisy = add_gaussian(counts, noise_multiplier, rng, neighboring).reshape(n_classes, -1)
    return class_norms(noisy, sd, edges, largest, count)


def release_subclusters(rows, codec, space, latents, noise_multiplier, rng, neighboring, noise_of_rows=None):
    """Release the moments of the sub-clusters of each class: one release, because a row is in one sub-cluster.

    A class is cut at its released mean, along its leading released directions. Classes of images are far from Gaussian;
    their parts are less so.

    `rows` (ArrayRows) are private; `space` (LatentSpace) and `latents` (ClassLatents: one Gaussian a class, in that
    space) are released. `noise_of_rows` is the noise relative to what a row adds; None: `noise_multiplier`.

    Returns `space`: the same, rotated; `latents`: of the sub-clusters, those of a class consecutive; means are those of
    the scaled rows, less the center of the space; `n_subclusters`: of each class.
    """
    noise = noise_multiplier if noise_of_rows is None else noise_of_rows
    n_directions = cut_directions(latents.counts, noise, latents.mixture.means.shape[1])
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

    Returns `query`: that of `class_moments`, with sub-clusters in the place of classes; `centers` (n_classes *
    n_subclusters, n_latent); `radius`: norm to which rows about their center are clipped.
    """
    d = mixture.means.shape[1]
    n_directions = min(n_directions, d)
    values, vectors = np.linalg.eigh(mixture.covariances)
    leading, spread = vectors[:, :, d - n_directions :], np.sqrt(values[:, d - n_directions :])
    signs = 2 * (np.arange(2**n_directions)[:, None] >> np.arange(n_directions) & 1) - 1
    # half of a normal distribution has its mean at sqrt(2 / pi) standard deviations
    centers = mixture.means[:, None] + (2 / np.pi) ** 0.5 * np.einsum("cs,kds,ks->kcd", signs, leading, spread)
    centers = centers.reshape(-1, d)
    middles = np.einsum("kd,kds->ks", mixture.means, leading)
    cuts = ClassCuts(space.center, 1.0, space.basis @ leading, middles)
    radius = normal_radius(mixture.weights, values, spread) if exact else 4.0 * codec.row_norm
    query = class_moments(
        rows.X,
        cuts.codes(rows.X, rows.codes, codec.scale),
        len(centers),
        l2_bound=radius,
        centers=centers,
        transform=lambda chunk: exact_product(codec.scale(chunk) - space.center, space.basis),
        exact=exact,
        count_weight=CLASS_COUNT_WEIGHT,
        mean_weight=CLASS_MEAN_WEIGHT,
        unit_sizes=rows.unit_sizes,
    )
    return query, centers, radius


# ---- the release of wavelet features of images ---------------------------------------------------------------------
def refine_images(rows, codec, generator, row_count, features, fit, progress=False):
    """One release (`features`): the moments of the wavelet features, which images are moved to.

    `rows`: private. `generator`: of the released moments of pixels. `row_count`: public or released. `progress`:
    whether to show bars.
    """
    noise, noise_of_rows, n_classes = fit.noise["features"], fit.noise_of_rows("features"), max(codec.n_classes, 1)
    apart = row_count >= _ROWS_APART * n_classes * noise_of_rows
    how = {"n_features": features.n_features, "n_scales": features.n_scales, "progress": progress}
    space = feature_space(generator, codec.image_shape, fit.stream, **how)
    k = space.centers.shape[1]
    space = space.cut(cut_directions(np.full(n_classes, row_count / n_classes), noise_of_rows, k, _ROWS_OF_PART))
    n_groups = n_classes if apart else 1
    query = feature_moments(rows, codec, space, n_groups=n_groups, exact=noise > 0, progress=progress)
    values = add_gaussian(query, noise, fit.rng, fit.neighboring)
    radius, sd = space.radius, noise * query.sensitivity(fit.neighboring)
    released = unpack_shared_moments(values, *space.centers.shape, radius, n_groups)
    released = released._replace(count=floored(released.count), second=released.second * radius**2)
    noise_sds = sd * radius**2, sd * radius / CLASS_MEAN_WEIGHT
    centers, space = space.centers, space.at_shares(released.count)
    means, maps = released_targets(space, centers, released, *noise_sds, apart=apart)
    own = {"n_steps": features.n_steps, "deformation": features.deformation}
    refined = RefinedImages.of(generator, space, means, maps, **own)
    return refined.aimed(generator, fit.stream, apart=apart, progress=progress)


def feature_moments(rows, codec, space, *, n_groups=1, exact=True, progress=False):
    """Count and sum of the features of each sub-cluster about the mean of its synthetic images, and second moments.

    The second moments are those of each of `n_groups` groups of sub-clusters: all of them together, or those of each
    class. See `class_moments` for `exact`.

    The query is that of `shared_moments`: a row is in one sub-cluster, and clipped to the radius of `space` about its
    center.
    """
    features = np.empty((len(rows.X), space.matrix.shape[1]))
    blocks = map_blocks(lambda chunk: space.encode(codec.scale(chunk)), rows.X)
    with progress_bar(phase="features of images", shown=progress, total=10, unit="tenth") as bar:
        for part, encoded in blocks:
            features[part] = encoded
            bar.update(10 * part.stop // len(rows.X) - bar.n)  # tenths: the number of rows is private
    return shared_moments(
        features,
        space.codes_of(features, rows.codes),
        len(space.centers),
        l2_bound=space.radius,
        centers=space.centers,
        exact=exact,
        count_weight=CLASS_COUNT_WEIGHT,
        mean_weight=CLASS_MEAN_WEIGHT,
        unit_sizes=rows.unit_sizes,
        n_groups=n_groups,
    )
