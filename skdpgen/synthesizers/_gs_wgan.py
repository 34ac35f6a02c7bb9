"""GS-WGAN: critics on disjoint subsets of the rows, and a generator that learns from their noisy gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from ..accounting._calibration import check_noise_of_steps
from ..utils.validation import MOST_UNITS, Interval
from ._critic_model import BaseCriticSynthesizer, CriticReleases, critic_constraints


@dataclass(frozen=True)
class GradientReleases(CriticReleases):
    """The steps, in which critics give their clipped gradients."""

    gradient_bound: float

    def bound(self, noise_multiplier):
        """Norm of the clipped gradients of one critic at all generated rows of a step, at most."""
        check_noise_of_steps(noise_multiplier)
        return self.gradient_bound * math.sqrt(self.generated_rows)

    def votes(self, seed=0):
        """The clipped gradients themselves."""
        from ..nn._critics import ClippedGradients

        return ClippedGradients()


class GSWGANSynthesizer(BaseCriticSynthesizer):
    """GS-WGAN: critics on disjoint subsets of the rows, and a generator that learns from their noisy gradients.

    Each of `n_critics` critics tells the rows of its own random subset from generated ones, and is trained without
    noise. In each of `steps` steps, `generated_rows` generated rows are shown to critics. Releases the sum of the
    gradients of the critics at these rows, each clipped row by row, with noise. The generator learns from these
    releases alone. Critics never leave the fit. A baseline: other synthesizers are better (the documentation's page on
    GANs).

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the source of the noise.
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
        of images. A row has its pixels line by line, and the channels of a pixel side by side.
    n_frequencies : int or None, default=None
        With `image_shape`: cosines along each side of an image that are used; None is 8. The noise grows with it.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of each kind of fact that is learned (schema, bins of numeric
        columns; bounds, classes), and the default.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected, where a person may have several rows, and how many of them are used.
        All rows of a unit are in one subset. With ``weighting="units"`` each unit counts 1 for the critics too.
    random_state : int, RandomState instance or None, default=None
        Seed of initialisation, of the generated rows of the training and of the sampling stream. It never seeds the
        noise, the subsets or their rows: two fits with one seed differ.

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** Beside the events that `fit` names, it charges one Gaussian event for the counts of the classes (of all
    rows, without classes; none where only the public number of rows is needed), and `steps` for the sums over critics
    at generated rows. The generator costs nothing: it is a function of what was released.

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
        **critic_constraints("critic"),
        "critics_per_step": [Interval(Integral, 1, MOST_UNITS, closed="both"), None],
        "gradient_bound": [Interval(Real, 1e-12, 1e12, closed="both")],
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

    def _settings(self):
        per_step = self.n_critics if self.critics_per_step is None else self.critics_per_step
        if per_step > self.n_critics:
            raise ValueError(f"critics_per_step={per_step} must be at most n_critics={self.n_critics}")
        training = GradientReleases(
            self.n_critics, per_step, self.steps, self.generated_rows, float(self.gradient_bound)
        )
        return self._shared_settings(training, "critic", "GS-WGAN", "wasserstein")
