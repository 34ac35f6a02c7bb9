"""DP-MERF: one noisy mean embedding in random features, and a generator fitted to it."""

from __future__ import annotations

from numbers import Integral, Real

from .._base import PRIVACY_CONSTRAINTS
from ..accounting import Phase
from ..data.validation import public_assumptions, validate_input
from ..tabular import Schema
from ..utils.validation import MOST_UNITS, Interval, StrOptions, as_sizes, check_model_size, fit_context
from ._base import BaseSynthesizer
from ._merf_model import MERFModel, fit_merf_model

__all__ = ["DPMERFSynthesizer"]


class DPMERFSynthesizer(BaseSynthesizer):
    """Kernel mean embedding with random features: one release for all classes, then a generator for free.

    Releases, for each class, the noisy sum of random Fourier features of its rows, and nothing else: a network is
    fitted to it by the maximum mean discrepancy, as post-processing.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What a fit costs. ``numpy.inf`` is the non-private reference; None is all that is left of `accountant`.
    delta : float or None, default=None
        None is the accountant's, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        None is the accountant's, else "add_or_remove_one".
    accountant : PrivacyAccountant or None, default=None
        The books to charge; None: books of its own, with this budget.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` there is one embedding a
        class; a numeric one is a column like the others.
    l2_bound : float or None, default=None
        Arrays: about the largest norm of a row after its columns are scaled to the unit box, the unit of
        `length_scale`; nothing is clipped to it. None: learned.
    bounds_share : float, default=0.05
        Share of the budget for each kind of fact that is learned: schema, bins of numeric columns; bounds, classes.
        Half of it for the row norm.
    n_frequencies : int, default=500
        Random frequencies, the same in every fit; twice as many features.
    length_scale : float, default=1.0
        Of the kernel, over the norm of a row (for tables: the root of the number of columns).
    n_latent : int, default=10
        Of the generator.
    hidden_layer_sizes : sequence of int, default=(200, 200)
        Of the generator.
    steps : int, default=1000
        Of the generator's training on what was released; they cost nothing.
    learning_rate : float, default=0.003
        Of Adam, at the start.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise.
    random_state : int, RandomState instance or None, default=None
        Of the generator and the sampling stream. Never of the noise: two fits with one seed differ.
    progress : bool, default=False
        A bar on stderr.

    Attributes
    ----------
    accountant_ : PrivacyAccountant
        What the fit charged.
    card_ : PrivacyCard
    classes_, class_ratio_ : arrays
        Released or declared classes and their released shares, with a categorical y or `target`.
    row_count_ : float
        Released number of rows: what ``sample()`` draws.
    schema_ : Schema
        Of DataFrames: declared or released bounds and categories, y last.
    bounds_ : array of shape (n_features, 2)
        Of arrays: declared or released bounds of each column.
    model_ : object
        Released state: codec and generator.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Against the paper: sums and counts in one query in place of means by a public number of rows, a length scale that
    is not read off the data, bounds and bins that are paid for, an unbiased discrepancy, and for tables the exact
    features of the levels that are drawn.

    References
    ----------
    .. [1] F. Harder, K. Adamczewski, M. Park, DP-MERF: Differentially private mean embeddings with random features for
       practical privacy-preserving data generation, AISTATS 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DPMERFSynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = DPMERFSynthesizer(3.0, bounds=(0, 16), l2_bound=4.5, classes=range(10), steps=20).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _parameter_constraints = {
        **PRIVACY_CONSTRAINTS,
        "target": "no_validation",
        "schema": [Schema, None],
        "classes": ["array-like", range, None],
        "target_type": [StrOptions({"categorical", "numeric"}), None],
        "bounds": ["array-like", None],
        "l2_bound": [Interval(Real, 1e-12, 1e12, closed="both"), None],
        "bounds_share": [Interval(Real, 1e-6, 1, closed="left")],
        "on_invalid": [StrOptions({"clip", "raise"})],
        "n_frequencies": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "length_scale": [Interval(Real, 1e-6, 1e6, closed="both")],
        "n_latent": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "hidden_layer_sizes": ["array-like"],
        "steps": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 1e-12, 1, closed="both")],
        "progress": ["boolean"],
    }
    image_shape = None  # of `validate_input`: rows are taken as they are

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        l2_bound=None,
        bounds_share=0.05,
        on_invalid="clip",
        n_frequencies=500,
        length_scale=1.0,
        n_latent=10,
        hidden_layer_sizes=(200, 200),
        steps=1000,
        learning_rate=0.003,
        noise="secure",
        random_state=None,
        progress=False,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring = neighboring
        self.accountant = accountant
        self.target = target
        self.schema = schema
        self.classes = classes
        self.target_type = target_type
        self.bounds = bounds
        self.l2_bound = l2_bound
        self.bounds_share = bounds_share
        self.on_invalid = on_invalid
        self.n_frequencies = n_frequencies
        self.length_scale = length_scale
        self.n_latent = n_latent
        self.hidden_layer_sizes = hidden_layer_sizes
        self.steps = steps
        self.learning_rate = learning_rate
        self.noise = noise
        self.random_state = random_state
        self.progress = progress

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Release the mean embeddings of the rows, and fit a generator to them.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            One row a person. Arrays hold finite numbers.
        y : array-like of shape (n_samples,), default=None
            Labels; `sample` then gives (X, y). With `target`, an error.

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
        **Privacy.** The unit is one row, under `neighboring`. Charged before anything is released, as one composed
        event that costs (`epsilon`, `delta`): one Gaussian event for the embeddings of all classes, and one for each
        kind of fact not declared (at its part of `bounds_share`; learned categories also spend a tenth of `delta`).
        """
        with self._fitting():
            accountant = self._resolve_accountant()
            (rows, settings), plan = self._prepare(X, y, accountant)
            rng = self._charge(accountant, plan)
            self._set_model(fit_merf_model(rows, settings, plan, rng, accountant.neighboring))
            self._issue_card(plan, rng, public_assumptions(self, rows))
        return self

    def _prepare(self, X, y, accountant):
        sizes = as_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
        settings = {**self.get_params(deep=False), "hidden_layer_sizes": sizes, "seed": self._seed()}
        rows = validate_input(self, X, y)
        numbers = sum(a * b for a, b in zip((self.n_latent, *sizes), (*sizes, 1)))
        check_model_size(numbers, n_latent=self.n_latent, hidden_layer_sizes=sizes)
        learned = list(rows.phases(self.bounds_share))
        rest = 1 - sum(phase.share for phase in learned)
        if rest <= 0:
            raise ValueError(f"bounds_share={self.bounds_share} leaves nothing to the embedding")
        phases = [*learned, Phase("embedding", rest)]
        plan = self._calibrate(accountant, phases, extra_delta_share=0.1 if rows.learns_classes else 0.0)
        return (rows, settings), plan

    @staticmethod
    def _model_from_state(state):
        return MERFModel.from_state(state)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = False
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags
