"""DP-Sinkhorn: a generator whose rows move towards private ones by optimal transport."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

from ..data.validation import read_vectors
from ..utils.validation import MOST_UNITS, Interval, check_model_size
from ._base import TRAINING_CONSTRAINTS, BaseSynthesizer
from ._generator_model import GENERATOR_CONSTRAINTS, CoordinateSettings, GeneratorModel, learn_rows, n_weights
from ._training import Training, counted_rows, network_shape, resolve_sampling

# Generated rows of a step, and steps at once: the memory of an update grows with their product.
_MOST_GENERATED, _MOST_AT_ONCE = 2**12, 2**12
# Defaults of latents, frequencies and regularisation; that of images is this share of the number of their values. With
# those of images a classifier that learns from generated images of MNIST for ten epochs gains .045 at epsilon 10.
_LATENTS, _LATENTS_OF_IMAGES, _FREQUENCIES = 8, 4, 10
_BLUR, _BLUR_OF_IMAGES = 0.05, 1 / 40


@dataclass(frozen=True, eq=False, kw_only=True)
class SinkhornSettings(CoordinateSettings):
    """The generator, the divergence and the training."""

    generated_rows: int
    blur: float | None
    l1_weight: float
    steps_at_once: int


class DPSinkhornSynthesizer(BaseSynthesizer):
    """DP-Sinkhorn: a generator trained by the Sinkhorn divergence between generated and private rows.

    Each step is for one class, whose rows among a Poisson sample of the private ones are compared with generated rows.
    Releases the noisy gradient of the divergence by the batch of generated rows, in each step, and a
    generator that is a function of these releases. The gradient by the *whole* generated batch is clipped as one vector
    to a bound C: whatever the private rows of a step are, its norm is at most C, so any change of them moves
    it by at most 2 C. All phases are calibrated together and charged before the first of them: a fit costs (`epsilon`,
    `delta`).

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the source of the noise.
    n_components : int or None, default=None
        Number of latent dimensions of the generator; None is 8, and 4 with `image_shape`.
    hidden_layer_sizes : sequence of int, default=(128,)
        Widths of the hidden layers of the generator.
    generated_rows : int, default=10
        Rows generated in each step, all of one class; public, and the same in all steps.
    blur : float or None, default=None
        Regularisation of the transport plan, in units of the cost; None is .05, and of images a
        fortieth of the number of their values.
    l1_weight : float, default=0.0
        The cost of moving one row to another is the squared Euclidean distance, and `l1_weight` times the city-block
        one. Arrays are scaled to -1 to 1; rows of tables are one-hot.
    steps_at_once : int, default=40
        Steps of the training between two updates of the generator, which takes the mean of their noisy gradients.
    learning_rate : float, default=0.003
        Initial learning rate of Adam; it falls linearly.
    average : float, default=0.998
        Decay of the exponential average of the generator's parameters over updates, which is released; 0 releases the
        last ones.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` the generator is
        conditional on the class; a numeric one is a column like the others.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: shape of an image, if rows are images. Costs, gradients and noise are then of the lowest frequencies of
        images. A row has its pixels line by line, and the channels of a pixel side by side.
    n_frequencies : int or None, default=None
        With `image_shape`: cosines along each side of an image that are used; None is 10. The noise grows with it.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of each kind of fact that is learned (schema, bins of numeric
        columns; bounds, classes), and the default.
    training : DPSGD or None, default=None
        Steps of the training. Default: 200,000 steps at a `sampling_rate` of .001 and a `gradient_bound` of .5 (C
        above, of the gradient by all generated rows). The noise does not depend on how many rows take part: about five
        of a class are enough, and more make the gradient less random, but weaken the amplification by sampling. The
        noise of a step grows slowly with their number, so that more steps are better. It takes no `net`,
        `warm_start_steps` and `device`.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected, where a person may have several rows, and how many of them are used.
        The noise of the training is the same with both weightings.
    random_state : int, RandomState instance or None, default=None
        Seed of initialisation, of the latents of the training and of the sampling stream. It never seeds the noise: two
        fits with one seed differ.

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** Beside the events that `fit` names, it charges one Gaussian event for the counts of the classes (of all
    rows, without classes; none where only the public number of rows is needed), and `steps` Poisson-sampled ones, which
    sample units where there are units.

    Under "add_or_remove_one" a step is a Poisson-sampled Gaussian release: given the other rows of the step, the row
    that joined takes part with probability `sampling_rate`, and then moves the mean by at most 2 C. The noise
    multiplier is the standard deviation over 2 C. Under "replace_one" the old and the new row each move the mean by at
    most 2 C from where it is without them, and the pair that is charged has the two moves opposite, 4 C apart. Two
    gradients are never more than 2 C apart, so that the charge is an upper bound.

    Against the public code: the number of generated rows is fixed (there it follows the number of private rows of the
    step, which it reveals), a step is for one class (there for all, with a cost for moving a row to another class),
    classes of steps follow released shares, the generator moves along the mean of the gradients of many steps, the
    model of the last step is released (there the one with the best accuracy on test rows), the divergence takes all
    rows of a second draw of the generator (there a fifth), images are low-pass filtered before the clip, and the number
    of rows is released with noise.

    References
    ----------
    .. [1] T. Cao, A. Bie, A. Vahdat, S. Fidler, K. Kreis, "Don't generate me: Training differentially private
       generative models with Sinkhorn divergence", NeurIPS 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DPSGD, DPSinkhornSynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> training = DPSGD(20, sampling_rate=0.05)  # few steps: an example
    >>> synth = DPSinkhornSynthesizer(3.0, bounds=(0, 16), classes=range(10), training=training).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _model_class = GeneratorModel
    _training_defaults = {
        **dict.fromkeys(("batch_size", "epochs")),
        "sampling_rate": 0.001,
        "steps": 200_000,
        "gradient_bound": 0.5,
    }
    _parameter_constraints = {
        **GENERATOR_CONSTRAINTS,
        "training": TRAINING_CONSTRAINTS["training"],
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both"), None],
        "generated_rows": [Interval(Integral, 2, _MOST_GENERATED, closed="both")],
        "blur": [Interval(Real, 1e-6, 1e6, closed="both"), None],
        "l1_weight": [Interval(Real, 0, 1e6, closed="both")],
        "steps_at_once": [Interval(Integral, 1, _MOST_AT_ONCE, closed="both")],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        n_components=None,
        hidden_layer_sizes=(128,),
        generated_rows=10,
        blur=None,
        l1_weight=0.0,
        steps_at_once=40,
        learning_rate=0.003,
        average=0.998,
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        on_invalid="clip",
        image_shape=None,
        n_frequencies=None,
        budget_split=None,
        training=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.image_shape, self.n_frequencies = bounds, image_shape, n_frequencies
        self.budget_split, self.on_invalid = budget_split, on_invalid
        self.n_components, self.hidden_layer_sizes = n_components, hidden_layer_sizes
        self.generated_rows, self.blur, self.l1_weight = generated_rows, blur, l1_weight
        self.steps_at_once = steps_at_once
        self.training, self.learning_rate, self.average = training, learning_rate, average
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    def _prepare(self, X, y, accountant, groups=None):
        parameters = self._resolve()
        settings = _settings(parameters, self._seed())
        rows = read_vectors(self, X, y, groups)
        training = resolve_sampling(settings.training, len(rows), self._relation(accountant), **parameters)
        settings = replace(settings, training=training).fitted_to(rows, self.n_frequencies)
        if settings.blur is None:
            settings = replace(settings, blur=_BLUR_OF_IMAGES * math.prod(settings.image_shape))
        _check_size(settings, rows)
        return (rows, settings), self._plan_training(accountant, rows, settings)

    def _release(self, rows, settings, fit):
        return fit_sinkhorn_model(rows, settings, fit)


def _settings(given, seed):
    """The settings of the parameters; ValueError for parameters that would do nothing in this combination."""
    images = given["image_shape"] is not None
    return SinkhornSettings.of(
        given,
        seed,
        n_frequencies=_FREQUENCIES,
        **{name: given[name] for name in ("generated_rows", "l1_weight", "steps_at_once")},
        n_components=given["n_components"] or (_LATENTS_OF_IMAGES if images else _LATENTS),
        blur=given["blur"] if images or given["blur"] is not None else _BLUR,
        training=Training(given["sampling_rate"], given["steps"], given["gradient_bound"]),
    )


def _check_size(settings, rows):
    """Refuse a network, a basis or an update too large for memory; by public numbers alone."""
    width, n_labels, _ = network_shape(rows)
    sizes = (settings.n_components + n_labels, *settings.hidden_layer_sizes, width)
    check_model_size(n_weights(*sizes), n_components=settings.n_components, hidden_layer_sizes=sizes[1:-1])
    at_once, generated = settings.steps_at_once, settings.generated_rows
    check_model_size(4 * at_once * generated * max(sizes), generated_rows=generated, steps_at_once=at_once)


# ---- the fit ------------------------------------------------------------------------------------------------------
def fit_sinkhorn_model(rows, settings, fit):
    """Make all releases of DP-Sinkhorn: facts that were not declared, counts of the classes, and noisy gradients."""
    from ..dpsgd import WholeBatchPlan
    from ..dpsgd._plan import plan_of_fit
    from ..nn._sinkhorn import train_by_transport

    codec, x, classes, n_levels, row_count, weights, step_size = learn_rows(rows, fit)
    training = settings.training
    own = {"gradient_bound": training.gradient_bound}
    plan = plan_of_fit(training, fit.plan, fit.noise["training"], step_size, WholeBatchPlan, **own)
    generator, coordinates = settings.make_generator(codec, x.shape[1], n_levels)
    x, classes, units = counted_rows(rows, classes >= 0, x, classes)
    noise = train_by_transport(
        generator,
        x,
        classes,
        weights,
        fit.cover(plan),
        fit.rng,
        **coordinates,
        units=units,
        n_rows=settings.generated_rows,
        at_once=settings.steps_at_once,
        blur=settings.blur,
        l1_weight=settings.l1_weight,
        learning_rate=settings.learning_rate,
        average=settings.average,
        seed=settings.seed,
        progress=settings.progress,
        progress_text=fit.progress_text,
    )
    return GeneratorModel.of_coordinates(codec, generator, row_count, weights, coordinates, noise)
