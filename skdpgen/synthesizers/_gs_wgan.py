"""GS-WGAN: critics on disjoint subsets of the rows, and a generator that learns from their noisy gradients."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from .._parameters import UNIT_CONSTRAINTS
from ..data.validation import read_vectors
from ..utils.progress import shows_bars
from ..utils.validation import MOST_UNITS, Interval, as_sizes, check_model_size, fit_context
from ._base import DATA_CONSTRAINTS, BaseSynthesizer
from ._generator_model import FREQUENCIES, Coordinates, GeneratorModel, training_rows
from ._vae_model import learn_codec, network_shape, plan_phases, release_class_counts, sizes_by_counts

__all__ = ["GSWGANSynthesizer"]

# Generated rows in a step: the memory of a step grows with them.
_MOST_GENERATED = 2**14
# Of the one-hot class that critics see beside a row.
_LABEL_SCALE = 10.0


# ---- settings and the estimator -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class GradientReleases:
    """The steps: how many critics there are, and what is released of them."""

    n_critics: int
    critics_per_step: int
    steps: int
    generated_rows: int
    gradient_bound: float

    def plan(self, noise_multiplier=0.0, unit=None):
        """The plan of these steps at some noise, which protects a row or a `BoundedUnit`."""
        from ..dpsgd._subsets import SubsetPlan

        every = self.critics_per_step == self.n_critics
        return SubsetPlan(
            n_subsets=self.n_critics,
            steps=self.steps,
            noise_multiplier=noise_multiplier,
            per_step=self.critics_per_step,
            gradient_bound=self.gradient_bound * math.sqrt(self.generated_rows),
            sampler="balanced" if every else "poisson",
            encoder_update="round_robin",  # critics learn whichever of them is drawn
            unit=unit,
        )

    def phase(self, label, share):
        """The phase of the releases in a joint calibration."""
        return self.plan().phase(label, share)


@dataclass(frozen=True, eq=False)
class GSWGANSettings(Coordinates):
    """The critics, the generator and the steps."""

    n_components: int
    hidden_layer_sizes: tuple
    critic_sizes: tuple
    critic_steps: int
    warm_start_steps: int
    batch_size: int
    critic_learning_rate: float
    gradient_penalty: float
    learning_rate: float
    average: float
    image_shape: tuple | None
    n_frequencies: int | None
    training: GradientReleases
    seed: int
    progress: bool


class GSWGANSynthesizer(BaseSynthesizer):
    """GS-WGAN: critics on disjoint subsets of the rows, and a generator that learns from their noisy gradients.

    Each of `n_critics` critics tells the rows of its own random subset from generated ones, and is trained without
    noise. In each of `steps` steps, `generated_rows` generated rows are shown to critics. Releases the sum of the
    gradients of the critics at these rows, each clipped row by row, with noise. The generator learns from these
    releases alone. Critics never leave the fit. A baseline: other synthesizers are better (the documentation's page on
    GANs).

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget of a fit. ``numpy.inf`` is the non-private reference; None spends all that is left of
        `accountant`.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee; None: that of `accountant`, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        Neighbouring relation; None: that of `accountant`, else "add_or_remove_one".
    accountant : PrivacyAccountant or None, default=None
        Accountant that the fit charges; None makes a new one with this budget.
    n_critics : int, default=1000
        Number of subsets; public. The noise of a sum of gradients does not depend on it, so the noise of their mean
        falls with it, while each critic has fewer rows to learn from.
    critics_per_step : int or None, default=None
        Expected number of critics in a step: each takes part with the same probability. None: all take part in every
        step, which has no less noise in the mean, and no amplification to rely on.
    steps : int, default=600
        Steps of the generator; public. Each is charged.
    generated_rows : int, default=20
        Generated rows of a step, at which gradients are released; public. The noise of a gradient grows with their
        root.
    gradient_bound : float, default=1.0
        C: norm to which the gradient of one critic at one row is clipped; about 1 by the gradient penalty.
    n_components : int, default=8
        Number of latent dimensions of the generator.
    hidden_layer_sizes, critic_sizes : sequence of int, default=(256, 256) and (32,)
        Widths of the hidden layers of the generator, and of each critic.
    critic_steps, warm_start_steps : int, default=2 and 200
        Steps of every critic before each release, and against the untrained generator before the first one. They cost
        nothing but time.
    batch_size : int, default=8
        Rows of its own subset in a step of a critic, drawn with replacement.
    gradient_penalty : float, default=10.0
        Weight of the penalty that keeps the slopes of critics near 1.
    learning_rate, critic_learning_rate : float, default=0.0005 and 0.005
        Learning rates of Adam; that of the generator falls linearly.
    average : float, default=0.99
        Decay of the exponential average of the generator's parameters, which is released; 0 releases the last ones.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` all networks are
        conditional on the class; a numeric one is a column like the others.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: shape of an image, if rows are images. Critics, gradients and noise are then of the lowest frequencies
        of images.
    n_frequencies : int or None, default=None
        With `image_shape`: cosines along each side of an image that are used; None is 8. The noise grows with it.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of each kind of fact that is learned (schema, bins of numeric
        columns; bounds, classes), and the default.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected, where a person may have several rows, and how many of them are used.
        All rows of a unit are in one subset. With ``weighting="units"`` each unit counts 1 for the critics too.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise: a cryptographic generator, or a faster one.
    random_state : int, RandomState instance or None, default=None
        Seed of initialisation, of the generated rows of the training and of the sampling stream. It never seeds the
        noise, the subsets or their rows: two fits with one seed differ.
    progress : bool or "auto", default="auto"
        Whether to show progress bars on stderr. "auto": where it is a terminal, and the fit is not one of a search.

    Attributes
    ----------
    accountant_ : PrivacyAccountant
        Accountant that the fit charged.
    card_ : PrivacyCard
    classes_, class_ratio_ : arrays
        Released or declared classes and their released shares, with a categorical y or `target`.
    rest_ratio_ : dict
        Released share of "other" and of missing values (None) of the target, which are no classes.
    row_count_ : float
        Released number of rows; ``sample()`` draws as many.
    schema_ : Schema
        DataFrames: schema with the declared or released bounds and categories; y is the last column.
    summary_ : FitSummary
        DataFrames: what the fit kept and lost of each column, from released values: it may be published.
    bounds_ : array of shape (n_features, 2)
        Arrays: declared or released bounds of each column.
    model_ : object
        Released state: codec and generator.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    A record, or a unit, lies in one subset, which is drawn for it independently of all others. So it changes one
    critic, whose clipped gradient at each of the m rows of a step may turn from any vector of norm C to any other: all
    m together move by at most 2 C sqrt(m), under both relations. With all critics in every step this is one Gaussian
    release of that sensitivity. With `critics_per_step` it is charged as subsets that are sampled; that holds because
    all critics learn before every step, whichever of them are drawn, so that no critic knows its draws.

    Against the paper [1]_ and its code: its accountant composes the m rows of a step as m releases, each amplified by
    the draw of the critic. They come from one critic, and a record moves all of them. With its noise of 1.07, 32 rows
    and 20,000 steps, it says epsilon 10 where the cost is about 330. Its critics learn when they are drawn, which
    leaves no amplification by sampling that is proved. Here critics are small, see images in their lowest frequencies,
    and are compared with generated rows of their own rows' classes. Before the first step they learn from the untrained
    generator, which is public, where the paper trains each critic beside a separate throw-away generator.

    References
    ----------
    .. [1] D. Chen, T. Orekondy, M. Fritz, "GS-WGAN: A gradient-sanitized approach for learning differentially private
       generators", NeurIPS 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import GSWGANSynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = GSWGANSynthesizer(3.0, bounds=(0, 16), classes=range(10), n_critics=20, steps=5).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _parameter_constraints = {
        **DATA_CONSTRAINTS,
        **UNIT_CONSTRAINTS,
        "n_critics": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "critics_per_step": [Interval(Integral, 1, MOST_UNITS, closed="both"), None],
        "steps": [Interval(Integral, 1, None, closed="left")],
        "generated_rows": [Interval(Integral, 1, _MOST_GENERATED, closed="both")],
        "gradient_bound": [Interval(Real, 1e-12, 1e12, closed="both")],
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "hidden_layer_sizes": ["array-like"],
        "critic_sizes": ["array-like"],
        "critic_steps": [Interval(Integral, 0, None, closed="left")],
        "warm_start_steps": [Interval(Integral, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "gradient_penalty": [Interval(Real, 0, 1e6, closed="both")],
        "learning_rate": [Interval(Real, 1e-12, 1, closed="both")],
        "critic_learning_rate": [Interval(Real, 1e-12, 1, closed="both")],
        "average": [Interval(Real, 0, 1, closed="left")],
        "image_shape": [tuple, list, None],
        "n_frequencies": [Interval(Integral, 1, 1024, closed="both"), None],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        n_critics=1000,
        critics_per_step=None,
        steps=600,
        generated_rows=20,
        gradient_bound=1.0,
        n_components=8,
        hidden_layer_sizes=(256, 256),
        critic_sizes=(32,),
        critic_steps=2,
        warm_start_steps=200,
        batch_size=8,
        gradient_penalty=10.0,
        learning_rate=0.0005,
        critic_learning_rate=0.005,
        average=0.99,
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        on_invalid="clip",
        image_shape=None,
        n_frequencies=None,
        budget_split=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.n_critics, self.critics_per_step, self.steps = n_critics, critics_per_step, steps
        self.generated_rows, self.gradient_bound = generated_rows, gradient_bound
        self.n_components, self.hidden_layer_sizes, self.critic_sizes = n_components, hidden_layer_sizes, critic_sizes
        self.critic_steps, self.warm_start_steps, self.batch_size = critic_steps, warm_start_steps, batch_size
        self.gradient_penalty, self.average = gradient_penalty, average
        self.learning_rate, self.critic_learning_rate = learning_rate, critic_learning_rate
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.image_shape, self.n_frequencies = bounds, image_shape, n_frequencies
        self.budget_split, self.on_invalid = budget_split, on_invalid
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, groups=None):
        """Release a generator of rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Rows, one for each person, or with `unit` several. Arrays hold finite numbers.
        y : array-like of shape (n_samples,), default=None
            Labels; `sample` then returns (X, y). Not allowed with `target`.
        groups : array-like of shape (n_samples,), default=None
            Identifiers of the units of the rows, of any dtype; a DataFrame may have them in its column `unit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, InvalidInputError, SchemaError
            Parameters or data do not fit what was declared; nothing was charged.
        BudgetExceededError
            The accountant does not allow the fit; nothing was charged.

        Notes
        -----
        **Privacy.** The unit is one row, or all rows of one `unit`, under `neighboring`. Charged before anything is
        released, as one composed event that costs (`epsilon`, `delta`): one Gaussian event for each kind of fact not
        declared (at its part of `budget_split`; learned categories also spend a tenth of `delta`), one for the counts
        of the classes (of all rows, without classes; none where only the public number of rows is needed), one for the
        number of rows where each unit counts 1, and `steps` for the gradients of critics at generated rows. The
        generator costs nothing: it is a function of what was released.
        """
        return self._fit(X, y, groups)

    def _prepare(self, X, y, accountant, groups=None):
        settings = self._settings()
        rows, relation = read_vectors(self, X, y, groups), self._relation(accountant)
        settings = settings.fitted_to(rows, self.n_frequencies)
        _check_size(settings, rows)
        return (rows, settings), self._calibrate_phases(
            accountant, rows, plan_phases(rows, settings, self._share("bounds"), relation, label="gradients")
        )

    def _settings(self):
        """The settings of the parameters; ValueError for parameters that contradict one another."""
        if self.image_shape is not None and self.target is not None:
            raise ValueError("image_shape is for arrays, target for DataFrames")
        Coordinates.check(self.image_shape, self.n_frequencies)
        per_step = self.n_critics if self.critics_per_step is None else self.critics_per_step
        if per_step > self.n_critics:
            raise ValueError(f"critics_per_step={per_step} must be at most n_critics={self.n_critics}")
        names = (
            "n_components", "critic_steps", "warm_start_steps", "batch_size", "critic_learning_rate",
            "gradient_penalty", "learning_rate", "average", "image_shape",
        )  # fmt: skip
        return GSWGANSettings(
            **{name: getattr(self, name) for name in names},
            **{name: as_sizes(getattr(self, name), name) for name in ("hidden_layer_sizes", "critic_sizes")},
            n_frequencies=self.n_frequencies or FREQUENCIES,
            training=GradientReleases(
                self.n_critics, per_step, self.steps, self.generated_rows, float(self.gradient_bound)
            ),
            seed=self._seed(),
            progress=shows_bars(self.progress),
        )

    def _release(self, rows, settings, fit):
        return fit_gswgan_model(rows, settings, fit)

    @staticmethod
    def _model_from_state(state):
        return GeneratorModel.from_state(state)


def _check_size(settings, rows):
    """Refuse networks and steps too large for memory; by public numbers alone."""
    width, n_labels, _ = network_shape(rows)
    sizes = (settings.n_components, *settings.hidden_layer_sizes, width)
    generator = sum(a * b for a, b in itertools.pairwise(sizes)) + settings.training.generated_rows * width
    check_model_size(generator, n_components=sizes[0], hidden_layer_sizes=sizes[1:-1])
    if settings.image_shape is not None:
        width = min(width, settings.n_frequencies**2 * (*settings.image_shape, 1)[2])
    sizes, k = (width + n_labels, *settings.critic_sizes, 1), settings.training.n_critics
    each = sum((a + 1) * b for a, b in itertools.pairwise(sizes))
    check_model_size(4 * k * each, n_critics=k, critic_sizes=settings.critic_sizes)
    points = 256 * max(settings.training.generated_rows, 4 * settings.batch_size) * (max(sizes) + width)
    check_model_size(points, generated_rows=settings.training.generated_rows, batch_size=settings.batch_size)


# ---- the fit ------------------------------------------------------------------------------------------------------
def fit_gswgan_model(rows, settings, fit):
    """Make all releases of GS-WGAN: facts that were not declared, counts of the classes, and the noisy gradients.

    Parameters
    ----------
    rows : ArrayRows or FrameRows
    settings : GSWGANSettings
    fit : ChargedFit

    Returns
    -------
    GeneratorModel
    """
    from ..dpsgd._seeding import torch_seeded
    from ..nn._critics import train_by_critics
    from ..nn._generated_rows import emphasize_classes, to_rows
    from ..nn._generators import ConditionalGenerator

    codec = learn_codec(rows, fit)
    x, classes, n_levels = training_rows(rows, codec)
    counts = release_class_counts(codec, len(x), classes if codec.n_classes else None, fit, rows.unit_sizes)
    row_count, weights, _ = sizes_by_counts(counts, rows, fit)
    plan = fit.cover(settings.training.plan(fit.noise["gradients"], fit.plan.unit))
    basis, gains = settings.basis(), settings.gains() if n_levels is None else 1.0
    with torch_seeded(settings.seed):
        generator = ConditionalGenerator(
            settings.n_components,
            codec.n_classes,
            x.shape[1] if basis is None else basis.shape[1],
            n_hidden=settings.hidden_layer_sizes,
            n_levels=n_levels,
        )
    emphasize_classes(generator)
    noise = train_by_critics(
        generator,
        lambda points: _make_critics(x, classes, rows, points, settings, fit.rng),
        plan,
        fit.rng,
        weights,
        n_rows=settings.training.generated_rows,
        basis=basis,
        gains=gains,
        label_scale=_LABEL_SCALE,
        learning_rate=settings.learning_rate,
        average=settings.average,
        seed=settings.seed,
        progress=settings.progress,
        progress_text=f"epsilon {fit.plan.epsilon:.3g}",
    )
    generator = generator if n_levels is not None else to_rows(generator, basis, gains)
    model = GeneratorModel(codec, generator.eval(), row_count, weights)
    model.gradient_noise = noise
    return model


def _make_critics(x, classes, rows, points, settings, rng):
    """Critics of subsets that are drawn for each record, or for each unit with all its rows; private."""
    import torch

    from ..dpsgd._subsets import assign_subsets
    from ..nn._critics import Critics, CriticTraining
    from ..nn._dp2vae_training import SubsetRows

    k, n_classes = settings.training.n_critics, points.generator.n_classes
    key = bytes(rng.random_bytes(16))  # before the subsets: a row that joins does not shift it
    subsets = assign_subsets(len(x), k, rng, units=rows.unit_codes)
    known = classes >= 0 if n_classes else np.ones(len(x), dtype=bool)  # a row of no released class is in no subset
    codes, counted = np.asarray(classes)[known], None if rows.unit_sizes is None else rows.unit_codes[known]
    encoded = points.encoded(torch.from_numpy(x[known]), torch.from_numpy(codes))
    n_columns = encoded.shape[1] - n_classes
    own = SubsetRows(encoded[:, :n_columns].numpy(), codes, n_classes, subsets[known], k, units=counted)
    training = CriticTraining(
        key=key,
        sizes=settings.critic_sizes,
        learning_rate=settings.critic_learning_rate,
        penalty=settings.gradient_penalty,
        batch_size=settings.batch_size,
        steps=settings.critic_steps,
        warm_start_steps=settings.warm_start_steps,
    )
    return Critics(own, n_columns, points.label_scale, training, settings.seed)
