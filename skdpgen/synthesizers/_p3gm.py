"""P3GM: a phased private generative model (DP-PCA, a DP mixture in the latent space, a decoder)."""

from __future__ import annotations

import inspect
from numbers import Integral, Real

import numpy as np
import pandas as pd
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._base import PRIVACY_CONSTRAINTS
from ..data.frames import FrameRows
from ..data.validation import public_assumptions, validate_input
from ..exceptions import InvalidInputError
from ..tabular import Schema
from ..utils.validation import (
    MOST_UNITS,
    ClassNamePrefixFeaturesOutMixin,
    Interval,
    StrOptions,
    fit_context,
    validate_data,
    validate_rows,
)
from ._array_model import ArrayModel, fit_array_model
from ._base import BaseSynthesizer
from ._decoder import check_network
from ._frame_model import FrameModel, fit_frame_model
from ._planning import plan_fit, resolve_sampling, resolve_settings

__all__ = ["P3GMSynthesizer"]


class P3GMSynthesizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseSynthesizer):
    """Phased private generative model: what one release of moments teaches, and a decoder on top.

    Releases the parameters of a generative model of the rows, and nothing else: noisy moments give a DP-PCA and the
    law of the latents, optionally refined by DP-EM; the decoder follows from them for free, or is trained by DP-SGD.
    All phases are calibrated together, so that a fit costs exactly (`epsilon`, `delta`), and charged at once.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What a fit costs. ``numpy.inf`` is the non-private reference (the paper's PGM); None is all that is left of
        `accountant`.
    delta : float or None, default=None
        None is the accountant's, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        None is the accountant's, else "add_or_remove_one".
    accountant : PrivacyAccountant or None, default=None
        The books to charge; None: books of its own, with this budget.
    target : column name or None, default=None
        DataFrames: the column that the others are modelled by. `sample` then gives one frame.
    schema : Schema or None, default=None
        DataFrames: public facts. What it leaves open is learned under the same budget.
    classes : sequence or None, default=None
        Public classes of y or `target`. None: learned.
    target_type : {"categorical", "numeric"} or None, default=None
        None: numeric if its dtype is float.
    bounds : pair (low, high), one pair a column, or None, default=None
        Arrays: public bounds of the values, which are clipped to them. None: learned.
    l2_bound : float or None, default=None
        Arrays: public bound of the norm of a row after its columns are scaled to the unit box. None: learned.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: rows are images. Their moments are taken over the low frequencies of a cosine basis.
    bounds_share : float, default=0.05
        Share of the budget for each kind of fact that is learned: schema, bins of numeric columns; bounds, classes.
        Half of it for the row norm, a fifth for the number of rows of a table without numbers. Whatever is declared
        leaves its share to the moments.
    on_invalid : {"clip", "raise"}, default="clip"
        What to do with values outside declared bounds.
    n_components : int, "auto" or None, default="auto"
        Latent dimensions; "auto" is at most 30 for DataFrames, 60 for arrays, and 400 for images without a
        network or a mixture; None is no reduction.
        Arrays refuse more than they have columns; DataFrames, whose levels may be learned, have as many as there are.
    prior : {"auto", "class_conditional", "gaussian", "mixture"}, default="auto"
        Law of the latents: of each class of a categorical y, from class-conditional moments ("auto" with such a y); of
        all rows ("auto" without); or a mixture of Gaussians by DP-EM, y a column like the others, as in the paper.
    n_mixture : int, default=3
        Gaussians of the "mixture".
    covariance_type : {"full", "diag"}, default="full"
        Of the "mixture".
    em_steps : int, default=8
        Steps of DP-EM, each one release.
    decoder : {"released", "net"}, default="released"
        "released" is a function of the released moments: for arrays the inverse PCA, for tables a log-linear decoder
        fitted to all released one-way and two-way tables. "net" is a network trained by DP-SGD on the ELBO,
        warm-started on rows sampled from the former.
    latent_variance : {"learned", "zero"}, default="learned"
        "net": the encoder's variance; "zero" is the paper's AE.
    likelihood : {"auto", "bernoulli", "gaussian"}, default="auto"
        "net" on arrays; "auto" is Bernoulli for values that are not negative; "bernoulli" needs
        `bounds` that say so. DataFrames have one
        categorical law a column.
    n_monte_carlo : int, default=1
        "net": latent samples a record.
    sampling_rate : float, default=0.005
        "net": probability of a record to take part in a step; public.
    steps : int, default=1000
        "net": steps of DP-SGD; public.
    batch_size, epochs : int or None, default=None
        Under "replace_one" alone, where the number of rows is public: set `sampling_rate` and `steps` by it.
    gradient_bound : float, default=1.0
        "net": norm to which the gradient of one record is clipped.
    warm_start_steps : int, default=500
        "net": ordinary steps on synthetic rows before the private ones.
    net : DPNet or None, default=None
        "net": a template, cloned, for ``net__lr``, ``net__optimizer``, ``net__module__n_hidden``,
        ``net__module__decoder``. None: ``DPNet(P3GMModule)``.
    budget_split : (float, float, float) or None, default=None
        Shares of encoder, mixture and decoder in the squared Gaussian-DP parameter; None depends on prior and decoder.
    preset : str or None, default=None
        "paper/mnist", "paper/adult", ...: settings of the paper's Table IV, in place of the parameters they concern.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise.
    device : str, default="cpu"
        "net": where torch trains.
    random_state : int, RandomState instance or None, default=None
        Of initialisation and of the sampling stream. Never of the noise: two fits with one seed differ.
    progress : bool, default=False
        Bars on stderr.

    Attributes
    ----------
    accountant_ : PrivacyAccountant
        What the fit charged.
    card_ : PrivacyCard
    classes_ : array
        Released or declared classes, with a class-conditional prior.
    class_ratio_ : array
        Released share of each class.
    row_count_ : float
        Released number of rows: what ``sample()`` draws.
    schema_ : Schema
        Of DataFrames: declared or released bounds and categories, y last.
    bounds_ : array of shape (n_features, 2)
        Of arrays: declared or released bounds of each column.
    model_ : object
        Released state: codec, latent space, prior, decoder.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Sampling draws levels of categorical columns and bins from the decoder's distribution, never their maximum.

    References
    ----------
    .. [1] S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, P3GM: Private High-Dimensional Data Release via Privacy
       Preserving Phased Generative Model, ICDE 2021 (with one joint release a phase, and accounting that holds).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import P3GMSynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = P3GMSynthesizer(epsilon=3.0, bounds=(0, 16), classes=range(10), image_shape=(8, 8)).fit(X, y)
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
        "l2_bound": [Interval(Real, 0, None, closed="neither"), None],
        "image_shape": [tuple, list, None],
        "bounds_share": [Interval(Real, 1e-6, 1, closed="left")],
        "on_invalid": [StrOptions({"clip", "raise"})],
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both"), StrOptions({"auto"}), None],
        "prior": [StrOptions({"auto", "class_conditional", "gaussian", "mixture"})],
        "n_mixture": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "covariance_type": [StrOptions({"full", "diag"})],
        "em_steps": [Interval(Integral, 1, None, closed="left")],
        "decoder": [StrOptions({"released", "net"})],
        "latent_variance": [StrOptions({"learned", "zero"})],
        "likelihood": [StrOptions({"auto", "bernoulli", "gaussian"})],
        "n_monte_carlo": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "sampling_rate": [Interval(Real, 1e-6, 1, closed="both")],
        "steps": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "epochs": [Interval(Integral, 1, None, closed="left"), None],
        "gradient_bound": [Interval(Real, 1e-12, 1e12, closed="both")],
        "warm_start_steps": [Interval(Integral, 0, None, closed="left")],
        "net": "no_validation",
        "budget_split": ["array-like", None],
        "preset": [str, None],
        "device": [str],
        "progress": ["boolean"],
    }

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
        image_shape=None,
        bounds_share=0.05,
        on_invalid="clip",
        n_components="auto",
        prior="auto",
        n_mixture=3,
        covariance_type="full",
        em_steps=8,
        decoder="released",
        latent_variance="learned",
        likelihood="auto",
        n_monte_carlo=1,
        sampling_rate=0.005,
        steps=1000,
        batch_size=None,
        epochs=None,
        gradient_bound=1.0,
        warm_start_steps=500,
        net=None,
        budget_split=None,
        preset=None,
        noise="secure",
        device="cpu",
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
        self.image_shape = image_shape
        self.bounds_share = bounds_share
        self.on_invalid = on_invalid
        self.n_components = n_components
        self.prior = prior
        self.n_mixture = n_mixture
        self.covariance_type = covariance_type
        self.em_steps = em_steps
        self.decoder = decoder
        self.latent_variance = latent_variance
        self.likelihood = likelihood
        self.n_monte_carlo = n_monte_carlo
        self.sampling_rate = sampling_rate
        self.steps = steps
        self.batch_size = batch_size
        self.epochs = epochs
        self.gradient_bound = gradient_bound
        self.warm_start_steps = warm_start_steps
        self.net = net
        self.budget_split = budget_split
        self.preset = preset
        self.noise = noise
        self.device = device
        self.random_state = random_state
        self.progress = progress

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Release a generative model of the rows.

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
        InvalidInputError, SchemaError
            The data do not fit what was declared; nothing was charged.
        BudgetExceededError
            The accountant does not allow the fit; nothing was charged.

        Notes
        -----
        **Privacy.** The unit is one row, under `neighboring`. Charged before anything is released, as one composed
        event that costs (`epsilon`, `delta`): one Gaussian event for each kind of fact not declared (at its part of
        `bounds_share`; learned categories also spend a tenth of `delta`); one for the moments (three for arrays: mean,
        norms about it, second moments; of images grey pixels too, and cells of the classes where noise is low); with
        "mixture", `em_steps` more; with "net", `steps` Poisson-sampled ones.
        """
        with self._fitting():
            accountant = self._resolve_accountant()
            (rows, settings), plan = self._prepare(X, y, accountant)
            rng = self._charge(accountant, plan)
            settings["receipt"] = self._receipt
            fit_model = fit_frame_model if isinstance(rows, FrameRows) else fit_array_model
            self._set_model(fit_model(rows, settings, plan, rng, accountant.neighboring, self._sampling_stream))
            self._issue_card(plan, rng, public_assumptions(self, rows), self.model_.gradient_noise)
        return self

    def _prepare(self, X, y, accountant):
        settings = {**resolve_settings(self.get_params(deep=False), self._defaults()), "seed": self._seed()}
        rows = self._read(X, y, settings)
        settings.update(resolve_sampling(settings, len(rows), accountant.neighboring))
        extra = 0.1 if rows.learns_classes else 0.0
        plan = plan_fit(
            rows, settings, accountant, lambda phases: self._calibrate(accountant, phases, extra_delta_share=extra)
        )
        if settings["decoder"] == "net":
            check_network(settings, *rows.network_shape(settings["n_components"]))
        return (rows, settings), plan

    @classmethod
    def _defaults(cls):
        return {name: p.default for name, p in inspect.signature(cls.__init__).parameters.items() if name != "self"}

    def _read(self, X, y, settings):
        """Validate the data; what is private stays in the object that comes back, and goes with it."""
        conditional = settings["prior"] in ("auto", "class_conditional")
        rows = validate_input(self, X, y, conditional=conditional)
        if isinstance(rows, FrameRows):
            if settings["likelihood"] != "auto":
                raise ValueError("likelihood= is for arrays: a DataFrame has one categorical law a column")
            if not rows.source.in_memory and (settings["prior"] == "mixture" or settings["decoder"] == "net"):
                raise InvalidInputError('prior="mixture" and decoder="net" need the rows in memory, as one DataFrame')
            classes = rows.target is not None
        else:
            lowest = None if rows.bounds is None else rows.bounds[0]
            if settings["likelihood"] == "bernoulli" and (lowest is None or not (lowest >= 0).all()):
                raise ValueError('likelihood="bernoulli" needs declared bounds that are not negative, and no numeric y')
            classes = rows.conditional and rows.labels is not None and not rows.numeric_target
            rows.check_components(settings["n_components"])
        if settings["prior"] == "class_conditional" and not classes:
            raise InvalidInputError('prior="class_conditional" needs a categorical y or target')
        if settings["prior"] == "auto":
            settings["prior"] = "class_conditional" if classes else "gaussian"
        return rows

    # ---- using the model -------------------------------------------------------------------------------------
    def transform(self, X):
        """Return the latent of rows, shape (n_samples, n_components).

        A value for each record given: private, and not a release.
        """
        check_is_fitted(self)
        return self.model_.encode(self._rows_like_fit(X))

    def inverse_transform(self, X):
        """Return rows (a DataFrame where one was fitted) from latents; levels are drawn from their distribution."""
        check_is_fitted(self)
        latent = np.asarray(X, dtype=np.float64)
        if latent.ndim != 2 or latent.shape[1] != self.model_.n_latent:
            raise ValueError(f"expected an array of shape (n_samples, {self.model_.n_latent}); got {latent.shape}")
        return self.model_.decode(latent, self._sampling_stream)

    def score(self, X, y=None):
        """Return the mean log-likelihood of rows, or the ELBO with "net" (higher is better).

        The rows are read unpaid: what comes back is private, and is not to be published.
        """
        check_is_fitted(self)
        return float(np.mean(self.model_.score_samples(self._rows_like_fit(X), y)))

    def _rows_like_fit(self, X):
        if isinstance(X, pd.DataFrame) and self.model_.kind == "frame":
            validate_data(self, X, reset=False, skip_check_array=True)
            return X
        if self.model_.kind == "frame":
            raise InvalidInputError("fitted on a DataFrame: expected one")
        return validate_rows(self, X, reset=False)

    @staticmethod
    def _model_from_state(state):
        return {"array": ArrayModel, "frame": FrameModel}[state["kind"]].from_state(state)

    @property
    def _n_features_out(self):
        return self.model_.n_latent

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = False
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags
