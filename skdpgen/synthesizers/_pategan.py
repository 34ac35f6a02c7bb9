"""PATE-GAN: teachers on disjoint subsets vote on generated rows, and a generator learns from noisy counts of votes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from .._parameters import UNIT_CONSTRAINTS
from ..accounting import Phase
from ..data.validation import read_vectors
from ..mechanisms import add_gaussian, count_votes
from ..utils.progress import progress_bar, shows_bars
from ..utils.validation import MOST_UNITS, Interval, as_sizes, check_model_size
from ._base import DATA_CONSTRAINTS, BaseSynthesizer
from ._generator_model import GeneratorModel, learn_rows, n_weights
from ._training import network_shape

# Numbers (1 GB) in the table of the rows of all teachers.
_MOST_NUMBERS = 2**28
# Standard deviations by which the size of a subset may exceed its mean before rows of it are left out.
_SPREAD = 6.0
# Rows labelled in a round; a teacher says which of them lie above its median, so there are two at least.
_LABELLED = (2, 2**14)


# ---- settings and the estimator -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rounds:
    """The rounds of votes."""

    steps: int
    labelled_rows: int

    def phase(self, label, share):
        """The phase of their releases: plain Gaussian ones, for no round is sampled."""
        return Phase(label, share, steps=self.steps)


@dataclass(frozen=True)
class VoteSettings:
    """The teachers, the student, the generator and the rounds."""

    n_teachers: int
    n_components: int
    generator_sizes: tuple
    student_sizes: tuple
    training: Rounds
    seed: int
    progress: bool


class PATEGANSynthesizer(BaseSynthesizer):
    """PATE-GAN: teachers on disjoint subsets of the rows vote, and a generator learns from noisy counts of their votes.

    In each of `steps` rounds, `labelled_rows` generated rows are shown to `n_teachers` classifiers, each trained on its
    own random subset of the private rows. Releases, for each of these rows, the number of teachers that vote for it,
    with noise. A student, a discriminator that the generator is trained against, learns from these counts alone.
    Teachers never leave the fit. A baseline: other synthesizers are better (the documentation's page on GANs).

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the source of the noise.
    n_teachers : int, default=4000
        Number of subsets; public. The noise of a count does not depend on it, so the noise of a share falls with it,
        while each teacher has fewer rows to learn from.
    steps : int, default=100
        Rounds of votes; public.
    labelled_rows : int, default=100
        Generated rows that are voted on in a round; public. Every label is charged.
    n_components : int, default=32
        Number of latent dimensions of the generator.
    generator_sizes, student_sizes : sequence of int, default=(256,) and (128,)
        Widths of the hidden layers.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` all networks are
        conditional on the class; a numeric one is a column like the others.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of each kind of fact that is learned (schema, bins of numeric
        columns; bounds, classes), and the default.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected, where a person may have several rows, and how many of them are used.
        All rows of a unit are in one subset. With ``weighting="units"`` each unit counts 1 for the teachers too.
    random_state : int, RandomState instance or None, default=None
        Seed of initialisation, of the generated rows of the training and of the sampling stream. It never seeds the
        noise, or the subsets: two fits with one seed differ.

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** Beside the events that `fit` names, it charges one Gaussian event for the counts of the classes (of all
    rows, without classes; none where only the public number of rows is needed), and `steps` for the counts of votes.
    Student and generator cost nothing: they are functions of what was released.

    A record, or a unit, lies in one subset, which is drawn for it independently of all others. So it changes one vote
    for each labelled row: the m counts of a round move by at most sqrt(m), under both relations, and a round is one
    Gaussian release of that sensitivity. No amplification is claimed, as teachers see all their rows in every round.
    The cost does not depend on the votes.

    Against the paper [1]_: its analysis (PATE's moments accountant) charges less where most teachers agree; that bound
    is a function of the private votes, and it is published without noise. Of six public implementations none
    reproduced the published utility, and 19 privacy violations were found in them [2]_. Here every label is charged
    alike. Teachers say whether a row looks more private than the median of the rows of the round: against a fixed
    threshold all of them reject every row of a generator that is not yet good, and it learns nothing. The student
    learns the noisy share of votes itself, where the paper takes its majority. Labels of generated rows follow
    released shares of the classes.

    References
    ----------
    .. [1] J. Jordon, J. Yoon, M. van der Schaar, "PATE-GAN: Generating synthetic data with differential privacy
       guarantees", ICLR 2019.
    .. [2] G. Ganev, M. Annamalai, E. De Cristofaro, "The elusive pursuit of reproducing PATE-GAN: Benchmarking,
       auditing, debugging", TMLR 2025.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skdpgen import PATEGANSynthesizer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> synth = PATEGANSynthesizer(3.0, bounds=(0, 5000), classes=[0, 1], n_teachers=50, steps=5).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 30), (500,))
    """

    _model_class = GeneratorModel
    _parameter_constraints = {
        **DATA_CONSTRAINTS,
        **UNIT_CONSTRAINTS,
        "n_teachers": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "steps": [Interval(Integral, 1, None, closed="left")],
        "labelled_rows": [Interval(Integral, *_LABELLED, closed="both")],
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "generator_sizes": ["array-like"],
        "student_sizes": ["array-like"],
    }
    image_shape = None  # of `read_vectors`: rows are taken as they are

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        n_teachers=4000,
        steps=100,
        labelled_rows=100,
        n_components=32,
        generator_sizes=(256,),
        student_sizes=(128,),
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        on_invalid="clip",
        budget_split=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.n_teachers, self.steps, self.labelled_rows = n_teachers, steps, labelled_rows
        self.n_components, self.generator_sizes, self.student_sizes = n_components, generator_sizes, student_sizes
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.budget_split, self.on_invalid = bounds, budget_split, on_invalid
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    def _prepare(self, X, y, accountant, groups=None):
        sizes = {name: as_sizes(getattr(self, name), name) for name in ("generator_sizes", "student_sizes")}
        rounds = Rounds(self.steps, self.labelled_rows)
        settings = VoteSettings(
            self.n_teachers, self.n_components, *sizes.values(), rounds, self._seed(), shows_bars(self.progress)
        )
        rows = read_vectors(self, X, y, groups)
        self._check_size(sizes, *network_shape(rows)[:2])
        return (rows, settings), self._plan_training(accountant, rows, settings, "votes")

    def _check_size(self, sizes, width, n_labels):
        """Refuse networks and teachers too large for memory; by public numbers alone."""
        for name, start, end in (("generator_sizes", self.n_components, width), ("student_sizes", width, 1)):
            numbers = n_weights(start + n_labels, *sizes[name], end)
            check_model_size(numbers, n_components=self.n_components, **{name: sizes[name]})
        scores = self.n_teachers * (1 + n_labels) * (width + self.labelled_rows)
        check_model_size(scores, n_teachers=self.n_teachers, labelled_rows=self.labelled_rows)

    def _release(self, rows, settings, fit):
        return fit_pategan_model(rows, settings, fit)


# ---- the fit ------------------------------------------------------------------------------------------------------
def most_rows(row_count, n_teachers, width, max_rows=1):
    """Rows of a subset that its teacher uses, at most: by public or released numbers alone.

    `row_count`: public, or released. `max_rows`: rows of a unit, which are in one subset.
    """
    each = row_count / n_teachers
    most = math.ceil(each + _SPREAD * math.sqrt(each * max_rows) + max_rows)
    return max(1, min(most, _MOST_NUMBERS // (n_teachers * width)))


def fit_pategan_model(rows, settings, fit):
    """Make all releases of PATE-GAN: facts that were not declared, counts of the classes, and counts of votes."""
    from ..dpsgd._seeding import torch_seeded
    from ..dpsgd._subsets import assign_subsets
    from ..nn._gan import DiscriminatorModule, Teachers, rows_by_subset, train_by_votes
    from ..nn._generators import ConditionalGenerator

    codec, x, classes, n_levels, row_count, weights, _ = learn_rows(rows, fit)
    k, n_classes, unit = settings.n_teachers, codec.n_classes, fit.plan.unit
    subsets = assign_subsets(len(x), k, fit.rng, units=rows.unit_codes)
    if n_classes:
        subsets = np.where(classes >= 0, subsets, -1)  # a row of a class that was not released is in no subset
    most = most_rows(row_count, k, x.shape[1] + n_classes, 1 if unit is None else unit.max_rows)
    own = None if rows.unit_sizes is None else 1 / rows.unit_sizes
    teachers = Teachers(x, classes, n_classes, rows_by_subset(subsets, k, most), own)
    with torch_seeded(settings.seed):
        generator = ConditionalGenerator(
            settings.n_components, n_classes, x.shape[1], n_hidden=settings.generator_sizes, n_levels=n_levels
        )
        student = DiscriminatorModule(x.shape[1], n_classes, n_hidden=settings.student_sizes)

    def release(votes):
        counted = count_votes(votes, of_units=unit is not None)
        return add_gaussian(counted, fit.noise["votes"], fit.rng, fit.neighboring) / k

    rounds, text = settings.training, f"PATE-GAN epsilon {fit.plan.epsilon:.3g}"
    with progress_bar(range(rounds.steps), phase=text, shown=settings.progress, unit="round") as bar:
        train_by_votes(
            generator, student, teachers, release, weights,
            n_rows=rounds.labelled_rows, rounds=bar, seed=settings.seed,
        )  # fmt: skip
    return GeneratorModel(codec, generator.eval(), row_count, weights)
