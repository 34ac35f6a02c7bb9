"""The third phase of P3GM, a network trained by DP-SGD: its choice by public facts, its checks and its training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._parameters import ImageFeatures
from ..data.frames import FrameRows
from ..exceptions import InvalidInputError
from ..generators.gaussians import MOST_SUBCLUSTERS, LatentSpace
from ..generators.leading import MOST_SLOPES, LeadingDirections
from ..generators.refined_table import RefinedTable, refinement_inputs
from ..generators.shifted_images import ShiftedImages
from ..mixture import GaussianMixtureParameters
from ..utils.blocks import map_blocks
from ._moment_start import draw_rows, train_on_rows
from ._phases import suits_features
from ._released import NetGenerator
from ._training import Network, Training, counted_rows, encode_rows, have_class, with_labels
from ._vae_model import make_likelihood

# Synthetic rows that the network is initialised on, how many of them are in one of those steps, their rate and number.
_WARM_ROWS, _WARM_BATCH, _WARM_RATE, _WARM_STEPS = 20_000, 256, 1e-3, 500
# (sampling_rate, steps) of a whole network, and of one that refines the released decoder: few steps of large batches.
_SAMPLING, _REFINING = (0.005, 1000), (0.1, 150)
# Step size of a network that refines a table, or images, and the decay of the average of its parameters. Of images a
# larger one improves the ELBO more, and samples get worse (Fashion-MNIST, epsilon 10: .857 at the start, .835 by .001).
_REFINING_RATE, _IMAGES_RATE, _REFINING_DECAY = 5e-3, 2e-4, 0.95
# Latents of a network that refines images: so many of the widest directions of each Gaussian, at most.
_IMAGES_LATENTS = 20


@dataclass(frozen=True, eq=False)
class DecoderSettings:
    """A network that refines the released decoder or takes its place."""

    training: Training
    network: Network
    likelihood: str
    warm_start_steps: int
    refines: bool = False


# ---- the decoder that is meant, by public facts alone ---------------------------------------------------------------
def choose_decoder(parameters, rows):
    """The decoder that resolved parameters mean for these rows, of which only what is public is used.

    Returns `refines`: whether a network refines the released decoder; `features`: wavelet features whose moments are
        released, where there are any.
    Raises InvalidInputError: "features" are asked for where rows are no images, or have no Gaussian of their own class.
    Raises ValueError: from `_refines`.
    """
    given, obstacle = parameters["decoder"], _obstacle_to_features(parameters, rows)
    asked = given == "features" or isinstance(given, ImageFeatures)
    if asked and obstacle:
        name = "ImageFeatures()" if isinstance(given, ImageFeatures) else f'"{given}"'
        raise InvalidInputError(f"decoder={name} {obstacle}")
    if isinstance(given, ImageFeatures) and given.upright and rows.bounds is None:
        raise InvalidInputError("ImageFeatures(upright=True) needs bounds=: the range of the pixels, such as (0, 255)")
    refines = _refines(parameters, rows)
    usual = not obstacle and suits_features(rows.image_shape) and (given == "auto" or refines)
    if not (asked or usual):
        return refines, None
    return refines, given if isinstance(given, ImageFeatures) else ImageFeatures()


def decoder_settings(parameters, seed, refines):
    """The settings of the network that resolved parameters ask for, or None."""
    if parameters["decoder"] != "net":
        return None
    usual = dict(zip(("sampling_rate", "steps"), _REFINING if refines else _SAMPLING), warm_start_steps=_WARM_STEPS)
    rate, steps, warm = (default if parameters[name] is None else parameters[name] for name, default in usual.items())
    training = Training(rate, steps, parameters["gradient_bound"])
    return DecoderSettings(training, Network.of(parameters, seed), parameters["likelihood"], warm, refines)


def _obstacle_to_features(parameters, rows):
    """Why wavelet features cannot be released, and what to give: rows must be images, with a Gaussian of their class.

    Public. Returns text that follows the name of the decoder, or None.
    """
    prior = parameters["prior"]
    if isinstance(rows, FrameRows):
        return (
            "needs images, one in each row of an array: give X.to_numpy() in place of the DataFrame, and image_shape="
        )
    if rows.image_shape is None:
        return "needs image_shape=, the height and the width of the images, such as (28, 28)"
    if prior == "mixture":
        return 'takes no mixture: leave out prior="mixture"'
    if prior == "gaussian" and rows.labels is not None:
        return 'needs a Gaussian of each class where y is given: leave out prior="gaussian", or y'
    return None


def _refines(parameters, rows):
    """Whether a network refines the released decoder, rather than takes its place; public.

    Raises ValueError: a module that refines tables or images is asked for where it cannot be, or with parameters of a
    network of another kind.
    """
    if parameters["decoder"] != "net":
        return False
    from ..nn import ImageRefinementModule, TableRefinementModule

    if isinstance(rows, FrameRows):
        kind, possible = TableRefinementModule, parameters["prior"] != "mixture"
    else:
        kind = ImageRefinementModule
        possible = not _obstacle_to_features(parameters, rows) and parameters["likelihood"] != "gaussian"
    warm = parameters["warm_start_steps"] is not None
    if parameters["net"] is None:
        return possible and not warm
    module = getattr(parameters["net"], "module", None)
    module = module if isinstance(module, type) else type(module)
    uses = {
        TableRefinementModule: "DataFrames without a mixture prior",
        ImageRefinementModule: 'images. It needs no mixture prior, another likelihood than "gaussian" and, with '
        'classes, another prior than "gaussian"',
    }
    asked = next((known for known in uses if issubclass(module, known)), None)
    if asked is None:
        return False
    if not possible or asked is not kind:
        raise InvalidInputError(f"net=DPNet({asked.__name__}) is for {uses[asked]}")
    if warm:
        raise ValueError(f"warm_start_steps would do nothing with net=DPNet({asked.__name__}): leave it out")
    return True


# ---- checks before the charge ---------------------------------------------------------------------------------------
def check_decoder(decoder, rows, model, *, cells):
    """Refuse, before anything is charged, a network that cannot be trained privately, or at all.

    `rows`: only what is public of them. `cells`: whether the classes of images may have sub-clusters.
    """
    decoder.network.check()
    n_features, n_latent, exact = rows.network_shape(model.n_components)
    if not decoder.refines:
        unknown = isinstance(rows, FrameRows) and not rows.levels_are_public
        _check_network(decoder, n_features, n_latent, exact, unknown)
    elif isinstance(rows, FrameRows):
        points = {"features": np.zeros((1, 3, n_latent)), "logits": np.zeros((1, 3, n_features))}
        rest = {"widths": (n_features,), "shares": np.ones(1), "n_labels": 0}
        _check_refinement(_make_refinement("frame", decoder, **points, **rest), n_features)
    else:
        n_gaussians, n_latent = _most_gaussians(rows, cells), min(_IMAGES_LATENTS, n_latent)
        if n_gaussians * n_latent * n_features > MOST_SLOPES:
            raise InvalidInputError(
                f"the slopes of {n_latent} latents of {n_gaussians} Gaussians of {n_features} pixels are more than "
                f'{MOST_SLOPES:,} numbers: lower n_components, or use decoder="features"'
            )
        columns = dict.fromkeys(("location", "deviation"), np.ones((1, n_features)))
        columns["slopes"] = np.zeros((1, n_latent, n_features))
        _check_refinement(_make_refinement("array", decoder, **columns, n_labels=0), n_features + n_latent)


def _most_gaussians(rows, cells):
    """Largest possible number of Gaussians of images; two classes are assumed where they are learned. Public."""
    n_classes = len(rows.labels.classes or (0, 1)) if rows.conditional and rows.labels is not None else 1
    return n_classes * (MOST_SUBCLUSTERS if cells else 1)


def _check_refinement(net, n_features):
    """Refuse a network that refines, given rows of `n_features` columns; see `check_decoder`."""
    from ..nn._networks import layers_of_mlp

    _check_parts(net)
    if layers_of_mlp(net.module_.network) is None:
        name = type(net.module_).__name__
        raise InvalidInputError(f"the module {name} has linear layers with ReLU between them alone: set n_hidden")
    net.check(np.zeros((4, n_features), dtype=np.float32))


def _check_parts(net):
    """Refuse an optimizer and a module that cannot be trained privately; make the module."""
    from ..dpsgd import check_module, check_optimizer

    check_optimizer(net.optimizer)
    net.initialize()
    check_module(net.module_)


def _check_network(decoder, n_features, n_latent, exact, unknown):
    """Refuse, before anything is charged, a network that cannot be trained privately, or at all.

    `n_features`, `n_latent`: columns and latents of the network.
    `exact`: whether they are those of the fit; if not, they are the least ones.
    `unknown`: whether the number of columns follows from releases: a network of the user's own that has a fixed number
        of them is refused.
    Raises ValueError for what is no DPNet, BatchNorm, LBFGS, a module of other shapes, a device that is not there.
    """
    from ..nn import P3GMModule
    from ..nn._networks import layers_of_mlp
    from ..nn._parameters import check_unknown_width, check_widths

    def make(columns):
        prior = GaussianMixtureParameters(np.ones(1), np.zeros((1, n_latent)), np.eye(n_latent)[None], "full")
        space = LatentSpace(np.zeros(columns), np.eye(columns)[:, :n_latent])
        likelihood = "gaussian" if decoder.likelihood == "auto" else decoder.likelihood
        return _make_net(decoder, space, prior, make_likelihood(likelihood), 0)

    def check(columns, net=None):
        (make(columns) if net is None else net).check(np.zeros((4, columns), dtype=np.float32))

    net = make(n_features)
    _check_parts(net)
    decoder.network.check_saved(layers_of_mlp(net.module_.decoder) is not None)
    if unknown and decoder.network.has_own_layers(P3GMModule):
        named = "module__decoder= or module__variance= of net="
        check_unknown_width(check, n_features, named, "or give a module class that takes the number of columns")
    elif not (unknown or exact):
        variance, own = ("module__variance", net.module_.variance), ("module__decoder", net.module_.decoder)
        check_widths(n_features, rows=[variance], outputs=[own])
    elif exact:
        try:
            check(n_features, net)
        except RuntimeError as error:  # shapes that do not fit one another
            raise ValueError(
                f"the network does not fit {n_latent} latents and {n_features} columns: {error}. Check "
                "module__decoder= (latents to columns) and module__variance= (columns to latents) of net="
            ) from None


# ---- the training ---------------------------------------------------------------------------------------------------
def train_network(rows, model, decoder, fit):
    """Train the network, and put what may be released of it into the model of the moments."""
    if decoder.refines and model.kind == "array":
        model.generator = _refine_on_images(rows, model, decoder, fit)
    elif decoder.refines:
        model.latent_model = _refine_on_frame(rows, model, decoder, fit)
    elif model.kind == "frame":
        model.net = _train_in_place(rows, model, decoder, fit)
    else:
        model.generator = _train_in_place(rows, model, decoder, fit)


def decoder_plan(training, fit, model):
    """The DP-SGD plan of a charged fit; its denominator, of rows or of units that count 1, is public or released."""
    from ..dpsgd._plan import plan_of_fit

    size = fit.step_size(model.row_count, model.counted)
    return fit.cover(plan_of_fit(training, fit.plan, fit.noise["decoder"], size, l2_bound=training.gradient_bound))


def _train_in_place(rows, model, decoder, fit):
    """Train a network in the place of the released decoder; return what may be released of it."""
    synthetic = with_labels(*draw_rows(model, fit.stream, _WARM_ROWS), model.codec)
    x, _, likelihood, widths = encode_rows(rows, model.codec, decoder)
    x, units = counted_rows(rows, have_class(x, model.codec.n_classes), x)
    space, mixture = _latents(model)
    return train_decoder(
        x,
        decoder_plan(decoder.training, fit, model),
        space,
        mixture,
        decoder=decoder,
        likelihood=likelihood,
        widths=widths,
        n_labels=model.codec.n_classes,
        warm_rows=synthetic,
        fit=fit,
        units=units,
    )


def _latents(model):
    """The released latent space, and the distribution of the latents."""
    if model.kind == "array":
        return model.generator.space, model.generator.mixture
    table, mixture = model.latent_model, model.mixture
    if mixture is None:
        weights = np.maximum(table.class_counts, 1e-9)
        covariances = table.class_covariances + 1e-3 * np.eye(model.n_latent)
        mixture = GaussianMixtureParameters(weights / weights.sum(), table.class_means, covariances, "full")
    return LatentSpace(table.mean, table.components.T / table.scale), mixture


def _refine_on_frame(rows, model, decoder, fit):
    """Train the network that refines the released decoder; return what may be released of both."""
    codec, table = model.codec, model.latent_model
    features, logits = refinement_inputs(table)
    released = {"features": features, "logits": logits, "widths": codec.n_levels, "shares": model.class_ratio}
    x = rows.one_hot_with_labels(codec)
    return RefinedTable.of(table, *_train_refinement(x, rows, model, decoder, fit, released, codec.n_classes))


def _refine_on_images(rows, model, decoder, fit):
    """Train the network that shifts the means of the released Gaussians; return what may be released of all of them."""
    # declared classes were checked before the charge; many learned classes may leave room for fewer latents
    room = MOST_SLOPES // len(model.generator.component_means) // rows.X.shape[1]
    leading = LeadingDirections.of(model.generator, max(1, min(_IMAGES_LATENTS, model.n_latent, room)))
    unit = np.empty(rows.X.shape, dtype=np.float32)
    for part, scaled in map_blocks(model.codec.scale, rows.X):
        unit[part] = model.codec.box.to_unit(scaled)
    gaussians = leading.nearest(unit, rows.codes)  # the Gaussian of each row; negative for rows of no class
    n_labels = leading.n_labels(model.codec.n_classes)
    labels = gaussians[:, None] == np.arange(n_labels)
    x = np.concatenate([unit, leading.encode(unit, gaussians), labels], axis=1, dtype=np.float32)
    del unit
    released = dict(zip(("location", "slopes", "deviation"), leading.columns()))
    layers, noise = _train_refinement(x, rows, model, decoder, fit, released, n_labels)
    return ShiftedImages(leading, layers, n_labels, noise)


def _train_refinement(x, rows, model, decoder, fit, released, n_labels):
    """Train a network that refines on encoded rows; return its layers, and the source of the noise."""
    from ..nn._networks import layers_of_mlp

    plan = decoder_plan(decoder.training, fit, model)
    net = _make_refinement(model.kind, decoder, plan, fit.progress_text, **released, n_labels=n_labels)
    net.fit_file = fit.checkpoint
    net.initialize()
    x, units = counted_rows(rows, have_class(x, n_labels), x)
    net.partial_fit(x, groups=units)
    return layers_of_mlp(net.module_.cpu().network), (net.noise_description_, net.noise_private_)


def _make_refinement(kind, decoder, plan=None, progress_text="", **released):
    """The net of the settings that refines a released table ("frame") or images ("array"), or the default one."""
    from ..nn import DPNet, ImageRefinementModule, ParameterAverage, TableAnchor, TableRefinementModule

    average = ("average", ParameterAverage(_REFINING_DECAY))
    module, rate, callbacks = {
        "frame": (TableRefinementModule, _REFINING_RATE, [("anchor", TableAnchor()), average]),
        "array": (ImageRefinementModule, _IMAGES_RATE, [average]),
    }[kind]
    return decoder.network.make(lambda: DPNet(module, lr=rate, callbacks=callbacks), plan, progress_text, **released)


def train_decoder(rows, plan, space, mixture, *, decoder, likelihood, widths, n_labels, warm_rows, fit, units=None):
    """Train P3GM's network on private rows under a plan that was charged; returns what may be released of it.

    `rows` (n_samples, n_features [+ n_labels]), float32: private; trailing one-hot columns say which component of the
        prior a row belongs to.
    `mixture`: the released prior.
    `likelihood`: "bernoulli" or "gaussian" or "table".
    `widths`: number of levels of each block, for "table".
    `warm_rows`: synthetic rows from the released prior and decoder.
    `units` (n_samples,): unit of each row, for a plan of units.
    """
    import torch

    from ..nn._networks import layers_of_mlp

    likely = make_likelihood(likelihood, widths)
    net = _make_net(decoder, space, mixture, likely, n_labels, plan=plan, progress_text=fit.progress_text)
    net.fit_file = fit.checkpoint
    net.initialize()
    if decoder.warm_start_steps and fit.starts_training:
        _warm_start(net.module_, torch.from_numpy(warm_rows), decoder.warm_start_steps, decoder.network.seed)
    net.partial_fit(rows, groups=units)
    module = net.module_.cpu().eval()
    generator = NetGenerator(space, mixture, layers_of_mlp(module.decoder), likelihood, widths, module)
    generator.noise = (net.noise_description_, net.noise_private_)
    return generator


def _make_net(decoder, space, mixture, likelihood, n_labels, *, plan=None, progress_text=""):
    """The net of the settings, or the default, given what was released."""
    from ..nn import DPNet, MixturePrior, P3GMModule

    return decoder.network.make(
        lambda: DPNet(P3GMModule),
        plan,
        progress_text,
        basis=space.basis.copy(),  # eigenvectors may lie backwards in memory, which torch refuses
        center=space.center.copy(),
        prior=MixturePrior(mixture.weights, mixture.means, mixture.covariances),
        likelihood=likelihood,
        n_labels=n_labels,
    )


def _warm_start(module, rows, steps, seed):
    """Ordinary training on synthetic rows; draws, dropout's too, follow the seed alone."""
    import torch

    shape, generator = getattr(module, "noise_shape", None), torch.Generator().manual_seed(seed)

    def loss_of(batch, normals):
        return module(batch, None if shape is None else normals(_WARM_BATCH, *shape)).mean()

    train_on_rows(module, rows, steps, generator, loss_of, batch_size=_WARM_BATCH, rate=_WARM_RATE)
