"""DP-CGAN: a conditional generator, and a discriminator trained by DP-SGD."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
import pandas as pd

from .._parameters import DPSGD, UNIT_CONSTRAINTS, flat_parameters
from ..data.validation import read_vectors
from ..utils.validation import MOST_UNITS, Interval, as_sizes, check_model_size
from ._base import DATA_CONSTRAINTS, TRAINING_CONSTRAINTS, BaseSynthesizer
from ._generator_model import ACTIVATIONS_OF_A_PIXEL, GeneratorModel, image_sizes, learn_rows, make_generator, n_weights
from ._training import Network, Training, check_device, counted_rows, network_shape, resolve_sampling

# Of rows and of images: number of generated ones in a step.
_GENERATED_ROWS, _GENERATED_IMAGES = 256, 128
# Decay of the average of the generator's parameters: of arrays, of images and of tables.
_AVERAGE, _AVERAGE_OF_IMAGES, _AVERAGE_OF_TABLES = 0.99, 0.999, 0.995
# Decay of the discriminator's weights, of tables: its noise is forgotten after about 1 / (rate * decay) steps. See
# benchmarks/FINDINGS.md.
_WEIGHT_DECAY_OF_TABLES = 0.5
# What None stands for: of arrays and presets, and of tables.
_OF_ARRAYS = {"sampling_rate": 0.01, "steps": 3000, "learning_rate": 0.005, "generator_learning_rate": 0.001}
_OF_TABLES = {"sampling_rate": 0.06, "steps": 1500, "learning_rate": 0.02, "generator_learning_rate": 0.002}
# Numbers in memory for each parameter: itself, its gradient, two averages of Adam and the generator's own average.
_COPIES = 5

# Published networks and their one step of the discriminator for each of the generator; 600 of 60,000 rows in a step.
_PAPER = {
    "n_components": 100,
    "generator_sizes": (128,),
    "discriminator_sizes": (128,),
    "n_critic": 1,
    "gradient_bound": 1.1,
    "sampling_rate": 0.01,
    "steps": 10_000,
}
PRESETS = {"paper/mnist": _PAPER, "paper/fashion_mnist": _PAPER}

# Parameters that act under some values of another alone.
_ACTS = {"generator_sizes": ("image_shape", (None,))}


# ---- settings -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class GANSettings:
    """A generator, its discriminator, and their training."""

    n_components: int  # latent dimensions
    # generator_sizes, discriminator_sizes: tuple of int; widths of the hidden layers. Images do not use
    # `generator_sizes`.
    generator_sizes: tuple
    discriminator_sizes: tuple
    image_shape: tuple | None
    n_critic: int  # steps of the discriminator for each of the generator
    learning_rates: tuple  # tuple of two floats; of the discriminator and of the generator
    weight_decay: float  # of the discriminator (AdamW); 0 is Adam
    average: float  # decay of the average of the generator's parameters
    training: Training
    network: Network


def gan_settings(given, seed, *, table):
    """Return the `GANSettings` of resolved parameters of a synthesizer; `table` says whether rows are a DataFrame.

    Raises ValueError: parameters that contradict one another, or that would do nothing in this combination.
    """
    if given["preset"] is not None and given["image_shape"] is not None:
        raise ValueError("preset= has dense networks: leave out image_shape=")
    sizes = {name: as_sizes(given[name], name) for name in ("generator_sizes", "discriminator_sizes")}
    for name, widths in sizes.items():
        numbers = n_weights(given["n_components"], *widths, 1)
        check_model_size(numbers, n_components=given["n_components"], **{name: widths})
    of_table = table and given["preset"] is None
    usual = _OF_TABLES if of_table else _OF_ARRAYS
    given = {name: usual.get(name) if value is None else value for name, value in given.items()}
    average = _AVERAGE if given["image_shape"] is None else _AVERAGE_OF_IMAGES
    return GANSettings(
        given["n_components"],
        *sizes.values(),
        None if given["image_shape"] is None else as_sizes(given["image_shape"], "image_shape"),
        given["n_critic"],
        (given["learning_rate"], given["generator_learning_rate"]),
        _WEIGHT_DECAY_OF_TABLES if of_table else 0.0,
        _AVERAGE_OF_TABLES if of_table else average,
        Training(given["sampling_rate"], given["steps"], given["gradient_bound"]),
        Network.of(given, seed),
    )


# ---- the estimator ------------------------------------------------------------------------------------------------
class DPCGANSynthesizer(BaseSynthesizer):
    """DP-CGAN: a conditional GAN whose discriminator is trained by DP-SGD.

    Releases the discriminator of every step: each sums the clipped gradients of single private rows and adds noise. The
    generator, and generated rows, learn from these alone: no row and no label of the data reaches them otherwise. Of a
    table the networks see the levels of all columns (DP-GAN, DP-CTGAN); for images the generator is convolutional.

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the source of the noise.
    n_components : int, default=32
        Number of latent dimensions of the generator.
    generator_sizes, discriminator_sizes : sequence of int, default=(256,) and (128,)
        Widths of the hidden layers; `generator_sizes` not with `image_shape`. A smaller discriminator has less noise.
    n_critic : int, default=1
        Steps of the discriminator for each of the generator: they cost privacy, and those of the generator do not.
    learning_rate, generator_learning_rate : float or None, default=None
        Learning rates of Adam, of the discriminator and of the generator. None: .02 and .002 of tables, .005 and .001
        of arrays and with a `preset`.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` both networks are
        conditional on the class; a numeric one is a column like the others.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: shape of an image, if rows are images. The generator is then convolutional. Images of 16 pixels and more
        on each side are made at half their sides, and the discriminator sees averages over 2 x 2 pixels. A row has its
        pixels line by line, and the channels of a pixel side by side.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of each kind of fact that is learned (schema, bins of numeric
        columns; bounds, classes), and the default.
    training : DPSGD or None, default=None
        Training of the discriminator. Default: 1500 steps at a `sampling_rate` of .06 of tables, 3000 at .01 of arrays,
        and a `gradient_bound` of 1, to which the gradient of all parameters together is clipped. It takes no `net` and
        no `warm_start_steps`.
    preset : {"paper/mnist", "paper/fashion_mnist"} or None, default=None
        Networks and steps of the paper, charged at their true cost; without its decaying rate of plain SGD.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected, where a person may have several rows, and how many of them are used.
        With ``weighting="units"`` the gradient of a unit is the mean over its rows, else their sum; it is clipped once.
    random_state : int, RandomState instance or None, default=None
        Seed of initialisation, of the generated rows of the training and of the sampling stream. It never seeds the
        noise: two fits with one seed differ.

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** Beside the events that `fit` names, it charges one Gaussian event for the counts of the classes (of all
    rows, without classes; none where only the public number of rows is needed), and `steps` Poisson-sampled ones for
    the discriminator. Generated rows and the steps of the generator cost nothing: they are functions of what was
    released before.

    Against the paper [1]_ and its code: the gradient of all parameters is clipped as one vector, where the code clips
    each of the four tensors, so that a row moves a step by up to twice the bound; the noise multiplier is the standard
    deviation over that bound, where the code gives its accountant the standard deviation itself (at the step at which
    it says epsilon 9.6 the true one is about 72); batches are drawn by Poisson sampling, as the accounting needs;
    labels of generated rows are drawn by released shares, where the code takes those of the private batch; the counts
    of the classes are released with noise. Many steps of the discriminator for each of the generator are due to [2]_.

    References
    ----------
    .. [1] R. Torkzadehmahani, P. Kairouz, B. Paten, "DP-CGAN: Differentially private synthetic data and label
       generation", CVPR Workshops 2019.
    .. [2] A. Bie, G. Kamath, G. Zhang, "Private GANs, revisited", TMLR 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DPSGD, DPCGANSynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> training = DPSGD(20, sampling_rate=0.05)  # few steps: an example
    >>> synth = DPCGANSynthesizer(3.0, bounds=(0, 16), classes=range(10), training=training).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _model_class = GeneratorModel
    _training_defaults = {
        **dict.fromkeys(("batch_size", "epochs", "sampling_rate", "steps")),  # None: by the kind of rows
        "gradient_bound": 1.0,
        "device": "cpu",
    }
    _parameter_constraints = {
        **DATA_CONSTRAINTS,
        "training": TRAINING_CONSTRAINTS["training"],
        **UNIT_CONSTRAINTS,
        "image_shape": [tuple, list, None],
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "generator_sizes": ["array-like"],
        "discriminator_sizes": ["array-like"],
        "n_critic": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 1e-12, 1, closed="both"), None],
        "generator_learning_rate": [Interval(Real, 1e-12, 1, closed="both"), None],
        "preset": [str, None],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        n_components=32,
        generator_sizes=(256,),
        discriminator_sizes=(128,),
        n_critic=1,
        learning_rate=None,
        generator_learning_rate=None,
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        on_invalid="clip",
        image_shape=None,
        budget_split=None,
        training=None,
        preset=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.image_shape = bounds, image_shape
        self.budget_split, self.on_invalid = budget_split, on_invalid
        self.n_components, self.n_critic = n_components, n_critic
        self.generator_sizes, self.discriminator_sizes = generator_sizes, discriminator_sizes
        self.learning_rate, self.generator_learning_rate = learning_rate, generator_learning_rate
        self.training, self.preset = training, preset
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    def _prepare(self, X, y, accountant, groups=None):
        parameters = self._resolve(presets=PRESETS, acts=_ACTS)
        settings = gan_settings(parameters, self._seed(), table=isinstance(X, pd.DataFrame))
        rows = read_vectors(self, X, y, groups)
        training = resolve_sampling(settings.training, len(rows), self._relation(accountant), **parameters)
        settings = replace(settings, training=training)
        plan = self._plan_training(accountant, rows, settings)
        check_device(settings.network.device)
        _check_networks(settings, *network_shape(rows)[:2])
        return (rows, settings), plan

    def _release(self, rows, settings, fit):
        return fit_dpcgan_model(rows, settings, fit)

    def _card_parameters(self):
        parameters, flat = super()._card_parameters(), flat_parameters(self)
        if all(flat[name] is None for name in ("preset", "batch_size", "epochs")):
            usual = _OF_TABLES if self.model_.kind == "frame" else _OF_ARRAYS
            training = {name: flat[name] for name in self._training_defaults}
            stated = {name: usual.get(name) if value is None else value for name, value in training.items()}
            parameters["training"] = DPSGD(**stated)
        return parameters


# ---- networks -----------------------------------------------------------------------------------------------------
def _make_net(settings, n_features, n_labels, *, plan=None, callbacks=(), progress_text=""):
    import torch

    from ..nn import DPNet
    from ..nn._gan import ADAM_BETAS, DiscriminatorModule

    def default():
        options = {"lr": settings.learning_rates[0], "optimizer__betas": ADAM_BETAS}
        if settings.weight_decay:
            options |= {"optimizer": torch.optim.AdamW, "optimizer__weight_decay": settings.weight_decay}
        return DPNet(DiscriminatorModule, callbacks=list(callbacks), **options)

    sizes = {"n_hidden": settings.discriminator_sizes, "image_shape": settings.image_shape}
    return settings.network.make(default, plan, progress_text, n_features=n_features, n_labels=n_labels, **sizes)


def _make_generator(settings, n_features, n_classes, n_levels):
    sizes = {"n_hidden": settings.generator_sizes}
    if settings.image_shape is not None:
        sizes = {"image_shape": settings.image_shape, "coarse": True}
    public = settings.network.seed, settings.network.device
    return make_generator(settings.n_components, n_classes, n_features, *public, n_levels=n_levels, **sizes)


def _dense(*widths):
    """Number of parameters of dense layers."""
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


def _check_networks(settings, n_features, n_labels):
    """Make both networks once before the charge; their sizes are public, or the least that may be learned."""
    names, n_seen, numbers = ["n_components", "discriminator_sizes"], n_features, _GENERATED_ROWS * n_features
    if settings.image_shape is None:
        names.append("generator_sizes")
        numbers += _COPIES * _dense(settings.n_components + n_labels, *settings.generator_sizes, n_features)
    else:
        generator, n_seen, n_pixels = image_sizes(settings.n_components, n_labels, settings.image_shape)
        numbers += _COPIES * generator + _GENERATED_IMAGES * ACTIVATIONS_OF_A_PIXEL * n_pixels
    numbers += _COPIES * _dense(n_seen, *settings.discriminator_sizes, 1 + n_labels)
    check_model_size(numbers, **{name: getattr(settings, name) for name in names})
    net = _make_net(settings, n_features, n_labels)
    net.check(np.zeros((4, n_features + n_labels), np.float32))
    _make_generator(settings, n_features, n_labels, None)


# ---- the fit ------------------------------------------------------------------------------------------------------
def fit_dpcgan_model(rows, settings, fit):
    """Make all releases of DP-CGAN: facts that were not declared, counts of classes, steps of the discriminator."""
    from ..dpsgd._plan import plan_of_fit
    from ..nn._gan import GeneratorTraining

    codec, x, classes, n_levels, row_count, weights, step_size = learn_rows(rows, fit)
    training = settings.training
    plan = plan_of_fit(training, fit.plan, fit.noise["training"], step_size, l2_bound=training.gradient_bound)
    generator = _make_generator(settings, x.shape[1], codec.n_classes, n_levels)
    images = settings.image_shape is not None
    adversary = GeneratorTraining(
        generator, weights, n_critic=settings.n_critic, learning_rate=settings.learning_rates[1],
        n_rows=_GENERATED_IMAGES if images else _GENERATED_ROWS, seed=settings.network.seed,
        average=settings.average,
    )  # fmt: skip
    net = _make_net(
        settings, x.shape[1], codec.n_classes, plan=fit.cover(plan), callbacks=[("generator", adversary)],
        progress_text=fit.progress_text,
    )  # fmt: skip
    net.initialize()
    if codec.n_classes:
        x = np.concatenate([x, (classes[:, None] == np.arange(codec.n_classes)).astype(np.float32)], axis=1)
    x, units = counted_rows(rows, classes >= 0, x)
    net.partial_fit(x, groups=units)
    model = GeneratorModel(codec, generator, row_count, weights)
    model.gradient_noise = (net.noise_description_, net.noise_private_)
    return model
