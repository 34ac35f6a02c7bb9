"""DataLens: teachers on disjoint subsets of the rows, and a generator that learns from noisy votes of gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real

from ..utils.validation import MOST_UNITS, Interval
from ._critic_model import BaseCriticSynthesizer, CriticReleases, critic_constraints


@dataclass(frozen=True)
class SignReleases(CriticReleases):
    """The steps, in which all teachers send the signs of the largest entries of their gradients."""

    n_largest: int
    threshold: float

    def fitted_to(self, n_columns):
        """These releases for gradients of a released number of columns: no more signs than these."""
        return replace(self, n_largest=min(self.n_largest, n_columns))

    def votes(self, seed=0):
        """The signs of the largest entries."""
        from ..nn._gradient_votes import LargestSigns

        return LargestSigns(self.n_largest, self.threshold)


class DataLensSynthesizer(BaseCriticSynthesizer):
    """DataLens: teachers on disjoint subsets of the rows, and a generator that learns from noisy votes of gradients.

    Each of `n_teachers` discriminators tells the rows of its own random subset from generated ones, and is trained
    without noise. In each of `steps` steps, `generated_rows` generated rows are shown to all teachers. Each sends, for
    each of these rows, the signs of the `n_largest` largest entries of its gradient. Releases the sum of these signs
    over the teachers, with noise. The generator learns from these releases alone. Teachers never leave the fit. A
    baseline: other synthesizers are better (the documentation's page on GANs).

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the source of the noise.
    target, schema, classes, target_type, bounds, on_invalid, image_shape, n_frequencies, unit, max_rows_per_unit
        As in `GSWGANSynthesizer`: what is public of the data, and who is protected.
    budget_split, random_state
        As in `GSWGANSynthesizer`.
    n_teachers : int, default=1000
        Number of subsets; public. The noise of a sum of signs does not depend on it, so the noise of their mean falls
        with it, while each teacher has fewer rows to learn from.
    steps : int, default=600
        Steps of the generator; public. Each is charged.
    generated_rows : int, default=20
        Generated rows of a step, on which teachers vote; public. The noise of a vote grows with their root.
    n_largest : int, default=32
        Entries of its gradient whose signs a teacher sends; the others count 0. The noise grows with its root. Where a
        row has fewer columns, the signs of all are sent.
    threshold : float, default=0.0
        Share of the teachers that the noisy sum of an entry must reach, up or down, for the generated row to move
        there: it then moves by its sign. 0: the row moves by the noisy sum itself. Either costs nothing.
    n_components, hidden_layer_sizes, warm_start_steps, batch_size, learning_rate, average
        As in `GSWGANSynthesizer`, with teachers in the place of critics.
    teacher_sizes : sequence of int, default=(32,)
        Widths of the hidden layers of each teacher.
    teacher_steps : int, default=2
        Steps of every teacher before each release. They cost nothing but time.
    teacher_learning_rate : float, default=0.005
        Learning rate of Adam.
    gradient_penalty : float, default=30.0
        Weight of the penalty on the slopes of teachers, without which they overfit their few rows.

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** Beside the events that `fit` names, it charges one Gaussian event for the counts of the classes (of all
    rows, without classes; none where only the public number of rows is needed), and `steps` for the sums over teachers
    at generated rows. The generator costs nothing: it is a function of what was released.

    A record, or a unit, lies in one subset, which is drawn for it independently of all others. So it changes one
    teacher, whose signs at each of the m rows of a step may become any others. The two are farthest apart where they
    are signs of the same entries, all of them opposite: by 2 sqrt(n_largest) at one row, and by 2 sqrt(n_largest m) at
    all m together, under both relations. A step is one Gaussian release of that sensitivity. No amplification is
    claimed, and the cost does not depend on the votes.

    Against the paper [1]_: its budget rests on a bound of PATE that depends on the data, namely on how far teachers
    agree. That bound is a function of the private votes, and the epsilon that is published with it is itself a private
    number; besides, the bound is one for the largest of several counts, and not for a vector of them. Without it the
    published noise allows about 2,100 generated images in all at epsilon 10. The published accuracy is the best of 600
    on the test images. Here teachers are small, see images in their lowest frequencies (a public projection, which the
    paper has as an option), and are compared with generated rows of their own rows' classes. Signs are not drawn at
    random. The generator takes one step along the votes, where the paper takes some towards rows that were moved by
    them.

    References
    ----------
    .. [1] B. Wang, F. Wu, Y. Long, L. Rimanic, C. Zhang, B. Li, "DataLens: Scalable privacy preserving training via
       gradient compression and aggregation", CCS 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DataLensSynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = DataLensSynthesizer(3.0, bounds=(0, 16), classes=range(10), n_teachers=20, steps=5).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _parameter_constraints = {
        **critic_constraints("teacher"),
        "n_largest": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "threshold": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        n_teachers=1000,
        steps=600,
        generated_rows=20,
        n_largest=32,
        threshold=0.0,
        n_components=8,
        hidden_layer_sizes=(256, 256),
        teacher_sizes=(32,),
        teacher_steps=2,
        warm_start_steps=200,
        batch_size=8,
        gradient_penalty=30.0,
        learning_rate=0.0005,
        teacher_learning_rate=0.005,
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
        self.n_teachers, self.steps, self.generated_rows = n_teachers, steps, generated_rows
        self.n_largest, self.threshold = n_largest, threshold
        self.n_components, self.hidden_layer_sizes, self.teacher_sizes = n_components, hidden_layer_sizes, teacher_sizes
        self.teacher_steps, self.warm_start_steps, self.batch_size = teacher_steps, warm_start_steps, batch_size
        self.gradient_penalty, self.average = gradient_penalty, average
        self.learning_rate, self.teacher_learning_rate = learning_rate, teacher_learning_rate
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.image_shape, self.n_frequencies = bounds, image_shape, n_frequencies
        self.budget_split, self.on_invalid = budget_split, on_invalid
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    def _settings(self):
        k = self.n_teachers
        training = SignReleases(k, k, self.steps, self.generated_rows, self.n_largest, float(self.threshold))
        return self._shared_settings(training, "teacher", "DataLens", "logistic")
