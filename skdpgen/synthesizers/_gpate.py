"""G-PATE: teachers on disjoint subsets of the rows vote on projections of their gradients at generated rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

from ..utils.validation import Interval, StrOptions, check_model_size
from ._critic_model import BaseCriticSynthesizer, CriticReleases, critic_constraints


@dataclass(frozen=True)
class HistogramReleases(CriticReleases):
    """The steps, in which all teachers vote for bins of projections of their gradients."""

    n_projections: int
    n_bins: int
    reach: float
    vote: str
    threshold: float

    def check_size(self, n_at_once, n_columns):
        """Refuse histograms of the votes of some teachers at once, or directions, that are too large for memory."""
        sizes = {name: getattr(self, name) for name in ("generated_rows", "n_projections", "n_bins")}
        numbers = self.generated_rows * self.n_projections * max(n_at_once * self.n_bins, n_columns)
        check_model_size(2 * numbers, **sizes)  # whole numbers take twice the memory

    def votes(self, seed=0):
        """The bins; the seed is that of the directions, which are public."""
        from ..nn._gradient_votes import ProjectedVotes

        return ProjectedVotes(self.n_projections, self.n_bins, self.reach, self.vote, self.threshold, seed + 1)


class GPATESynthesizer(BaseCriticSynthesizer):
    """G-PATE: teachers on disjoint subsets of the rows vote on projections of their gradients at generated rows.

    Each of `n_teachers` discriminators tells the rows of its own random subset from generated ones, and is trained
    without noise. In each of `steps` steps, `generated_rows` generated rows are shown to all teachers. Each projects
    its gradient at each of these rows on `n_projections` public random directions, and votes for one of `n_bins` bins
    of each of these numbers. Releases the histograms of the votes, with noise. The generator learns from these releases
    alone. Teachers never leave the fit. A baseline: other synthesizers are better (the documentation's page on GANs).

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the source of the noise.
    target, schema, classes, target_type, bounds, on_invalid, image_shape, n_frequencies, unit, max_rows_per_unit
        As in `GSWGANSynthesizer`: what is public of the data, and who is protected.
    budget_split, random_state
        As in `GSWGANSynthesizer`.
    n_teachers : int, default=1000
        Number of subsets; public. The noise of a sum of votes does not depend on it, so the noise of their mean falls
        with it, while each teacher has fewer rows to learn from.
    steps : int, default=600
        Steps of the generator; public. Each is charged.
    generated_rows : int, default=20
        Generated rows of a step, on which teachers vote; public. The noise of a vote grows with their root.
    n_projections : int, default=10
        Directions on which a gradient at one row is projected: random, public and new in each step. The noise grows
        with their root.
    n_bins : int, default=2
        Bins of a histogram, of equal width. Fewer bins say less of a gradient, and their mean has less noise; 2 are its
        signs. The paper has 10.
    gradient_range : float, default=2.0
        Where the outermost bins end, in units of the root of the mean square of the entries of a teacher's gradient.
        What is beyond is in them.
    vote : {"mean", "largest"}, default="mean"
        Whether a generated row moves by the mean of the bins, by their noisy counts, or by the bin of the largest one,
        as in the paper. Either costs nothing.
    threshold : float, default=0.0
        With ``vote="largest"``: share of the teachers that the largest noisy count must reach, for the row to move. It
        costs nothing, as it reads what was released.
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
    teacher, whose vote in each of the n_projections m histograms of a step, for m rows, may move from one bin to
    another: two counts of each histogram move by 1, and all together by sqrt(2 n_projections m), under both relations.
    A step is one Gaussian release of that sensitivity. No amplification is claimed, and the cost does not depend on the
    votes.

    Against the paper [1]_: its budget rests on a bound of PATE that depends on the data, namely on how far teachers
    agree. That bound is a function of the private votes, and the epsilon that is published with it is itself a private
    number. Without it the published noise allows about 2,000 generated images in all at epsilon 10. The paper releases
    the bin of the largest count, and before it whether that count is above a threshold, with separate noise. Here the
    histogram with its noise is what is charged, and both are read from it: a separate check would be one more charge,
    and would save nothing where each histogram costs the same. Teachers are small, see images in their lowest
    frequencies, and are compared with generated rows of their own rows' classes; a gradient is measured by its own
    length, and not cut at a fixed one. The generator takes one step along the votes, where the paper takes some towards
    rows that were moved by them.

    References
    ----------
    .. [1] Y. Long, B. Wang, Z. Yang, B. Kailkhura, A. Zhang, C. A. Gunter, B. Li, "G-PATE: Scalable differentially
       private data generator via private aggregation of teacher discriminators", NeurIPS 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import GPATESynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = GPATESynthesizer(3.0, bounds=(0, 16), classes=range(10), n_teachers=20, steps=5).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _parameter_constraints = {
        **critic_constraints("teacher"),
        "n_projections": [Interval(Integral, 1, 1024, closed="both")],
        "n_bins": [Interval(Integral, 2, 1024, closed="both")],
        "gradient_range": [Interval(Real, 1e-3, 1e3, closed="both")],
        "vote": [StrOptions({"mean", "largest"})],
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
        n_projections=10,
        n_bins=2,
        gradient_range=2.0,
        vote="mean",
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
        self.n_projections, self.n_bins, self.gradient_range = n_projections, n_bins, gradient_range
        self.vote, self.threshold = vote, threshold
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
        if self.vote == "mean" and self.threshold:
            raise ValueError('threshold= is used only with vote="largest": leave it out')
        k = self.n_teachers
        training = HistogramReleases(
            k, k, self.steps, self.generated_rows, self.n_projections, self.n_bins, float(self.gradient_range),
            self.vote, float(self.threshold),
        )  # fmt: skip
        return self._shared_settings(training, "teacher", "G-PATE", "logistic")
