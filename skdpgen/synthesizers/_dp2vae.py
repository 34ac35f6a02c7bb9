"""DP2-VAE: encoders trained on private rows without noise and thrown away, a decoder trained with noise and kept."""

from __future__ import annotations

import inspect
from numbers import Integral, Real

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from .._base import PRIVACY_CONSTRAINTS
from ..data.frames import FrameRows
from ..data.validation import public_assumptions, validate_input
from ..exceptions import InvalidInputError
from ..tabular import Schema
from ..utils.validation import MOST_UNITS, Interval, StrOptions, fit_context, validate_data, validate_rows
from ._base import BaseSynthesizer
from ._dp2vae_model import DP2VAEModel, fit_dp2vae_model
from ._dp2vae_planning import check_networks, plan_phases, resolve_settings, split_ids

__all__ = ["DP2VAESynthesizer"]


class DP2VAESynthesizer(BaseSynthesizer):
    """Conditional VAE of which the decoder alone is private, and alone is released.

    The rows are split into subsets. Stage 1 trains an encoder on each, without noise. Stage 2 trains one decoder with
    noise: a step draws subsets, clips the mean gradient of each, and releases their noisy sum; the encoders only feed
    it, and are gone when `fit` returns. All releases are calibrated together, so that a fit costs exactly
    (`epsilon`, `delta`), and charged at once.

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
    n_subsets : int, default=2500
        K; public, and not to be derived from the number of rows. The noise on a step falls with it.
    id_column : column name (DataFrames), column number (arrays) or None, default=None
        Puts each record into a subset by a hash of its id under a secret key, and leaves the column out of the model.
        Ids are unique, say nothing of the record and are no row numbers; the unit stays one row. Not under
        replace_one, where a changed id would move two subsets. None: every record draws its subset.
    sampler : {"poisson", "one_of_k", "balanced"}, default="poisson"
        Subsets of a step: each with probability `subsets_per_step` / K; exactly one; or a public schedule.
    subsets_per_step : int or None, default=None
        None is 50 (all there are, if fewer), and 1 for "one_of_k".
    encoder_update : {"stateless", "frozen", "round_robin", "on_query"}, default="stateless"
        What becomes of an encoder in stage 2: refined for `refine_steps` on a copy that is dropped; nothing; refreshed
        in turn, whatever was drawn; or trained whenever its subset is drawn. The last is the paper's, and has no
        amplification by sampling (see the page "DP2-VAE" of the documentation): much more noise.
    refine_steps : int, default=1
        Steps of one refreshment; not with "frozen".
    pretrain_steps : int, default=20
        Stage 1, each encoder.
    pretrain_lr : float, default=1e-3
        Of Adam in stage 1 and in refreshments.
    batch_size : int, default=8
        Rows of a subset in one gradient, drawn with replacement.
    steps : int, default=200
        Stage 2; public. A decoder that starts from random parameters wants more.
    lr : float, default=2e-4
        Of Adam on the noisy gradient; it falls linearly to zero.
    gradient_bound : float, default=1.0
        Norm to which gradients are clipped: of the decoder, the mean over a batch of one subset.
    averaging : float, default=0.99
        Decay of the exponential average of the decoder that is released; 0: none.
    start : {"moments", "random"}, default="moments"
        Where decoder and encoders start: from training on synthetic rows drawn by released class moments (a part of the
        budget), or from random parameters, as in the paper. Of arrays the latents of these rows are known: the decoder
        learns the row of a latent, the encoder the latent of a row.
    start_steps : int, default=3000
        "moments": steps of that training, which costs nothing more.
    budget_split : (float, float) or None, default=None
        "moments": shares of moments and decoder; None is (.5, .5).
    n_components : int, default=20
        Latent dimensions.
    likelihood : {"auto", "bernoulli", "gaussian"}, default="auto"
        Of arrays: "bernoulli" for images, else "gaussian" with a learned scale. DataFrames have one categorical law a
        column.
    architecture : {"auto", "patches", "mlp", "conv_28", "conv_faces"}, default="auto"
        "patches" (images) is a convolution of 4 x 4 patches and two dense layers, small enough for thousands of
        encoders on a laptop; "mlp" one hidden layer; the others are the paper's for 28 x 28 and for faces.
    encoder, decoder : Module or None, default=None
        Templates of your own, copied: ``encoder(rows, one_hot)`` gives means and log-variances of `n_components`
        latents, ``decoder(latents, one_hot)`` what the likelihood takes. No BatchNorm, no dropout, nothing shared.
    target, schema, classes, target_type, bounds, image_shape, bounds_share, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` the decoder is
        conditional on the class.
    l2_bound : float or None, default=None
        "moments", arrays: bound of the norm of a scaled row; None is learned.
    preset : {"paper/mnist", "paper/fashion_mnist", "paper/celeba"} or None, default=None
        The paper's settings, at their true price.
    chunk_size : int or None, default=None
        Encoders at once; None is chosen by cache or memory. The result does not hang on it.
    max_memory : float, default=4.0
        GiB that encoders may take.
    n_jobs : int or None, default=None
        Of stage 1: joblib's, with whatever backend is active.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise.
    device : str, default="cpu"
        Where torch trains.
    random_state : int, RandomState instance or None, default=None
        Of initialisation and of the sampling stream. Never of the noise: two fits with one seed differ.
    progress : bool, default=False
        Bars on stderr.

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
        Released state: codec and decoder.
    n_features_in_, feature_names_in_
        As in scikit-learn, without `id_column`.

    Notes
    -----
    There is no `transform`: encoders are trained without noise, and nothing of them is kept.

    References
    ----------
    .. [1] D. Jiang, G. Zhang, M. Karami, X. Chen, Y. Shao, Y. Yu, DP2-VAE: Differentially Private Pre-trained
       Variational Autoencoders, 2022 (with accounting that holds).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DP2VAESynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> public = {"bounds": (0, 16), "classes": range(10), "image_shape": (8, 8)}
    >>> synth = DP2VAESynthesizer(3.0, n_subsets=100, steps=20, start_steps=300, **public)  # few steps: an example
    >>> X_new, y_new = synth.fit(X, y).sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _parameter_constraints = {
        **PRIVACY_CONSTRAINTS,
        "n_subsets": [Interval(Integral, 1, None, closed="left")],
        "id_column": "no_validation",
        "sampler": [StrOptions({"poisson", "one_of_k", "balanced"})],
        "subsets_per_step": [Interval(Integral, 1, None, closed="left"), None],
        "encoder_update": [StrOptions({"stateless", "frozen", "round_robin", "on_query"})],
        "refine_steps": [Interval(Integral, 1, None, closed="left")],
        "pretrain_steps": [Interval(Integral, 0, None, closed="left")],
        "pretrain_lr": [Interval(Real, 1e-12, 1, closed="both")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "steps": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 1e-12, 1, closed="both")],
        "gradient_bound": [Interval(Real, 1e-12, 1e12, closed="both")],
        "averaging": [Interval(Real, 0, 1, closed="left")],
        "start": [StrOptions({"moments", "random"})],
        "start_steps": [Interval(Integral, 0, None, closed="left")],
        "budget_split": ["array-like", None],
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "likelihood": [StrOptions({"auto", "bernoulli", "gaussian"})],
        "architecture": [StrOptions({"auto", "patches", "mlp", "conv_28", "conv_faces"})],
        "encoder": "no_validation",
        "decoder": "no_validation",
        "target": "no_validation",
        "schema": [Schema, None],
        "classes": ["array-like", range, None],
        "target_type": [StrOptions({"categorical", "numeric"}), None],
        "bounds": ["array-like", None],
        "l2_bound": [Interval(Real, 0, None, closed="neither"), None],
        "image_shape": [tuple, list, None],
        "bounds_share": [Interval(Real, 1e-6, 1, closed="left")],
        "on_invalid": [StrOptions({"clip", "raise"})],
        "preset": [str, None],
        "chunk_size": [Interval(Integral, 1, None, closed="left"), None],
        "max_memory": [Interval(Real, 0, None, closed="neither")],
        "n_jobs": [Interval(Integral, 1, 4096, closed="both"), Interval(Integral, -4096, -1, closed="both"), None],
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
        n_subsets=2500,
        id_column=None,
        sampler="poisson",
        subsets_per_step=None,
        encoder_update="stateless",
        refine_steps=1,
        pretrain_steps=20,
        pretrain_lr=1e-3,
        batch_size=8,
        steps=200,
        lr=2e-4,
        gradient_bound=1.0,
        averaging=0.99,
        start="moments",
        start_steps=3000,
        budget_split=None,
        n_components=20,
        likelihood="auto",
        architecture="auto",
        encoder=None,
        decoder=None,
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        l2_bound=None,
        image_shape=None,
        bounds_share=0.05,
        on_invalid="clip",
        preset=None,
        chunk_size=None,
        max_memory=4.0,
        n_jobs=None,
        noise="secure",
        device="cpu",
        random_state=None,
        progress=False,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring = neighboring
        self.accountant = accountant
        self.n_subsets = n_subsets
        self.id_column = id_column
        self.sampler = sampler
        self.subsets_per_step = subsets_per_step
        self.encoder_update = encoder_update
        self.refine_steps = refine_steps
        self.pretrain_steps = pretrain_steps
        self.pretrain_lr = pretrain_lr
        self.batch_size = batch_size
        self.steps = steps
        self.lr = lr
        self.gradient_bound = gradient_bound
        self.averaging = averaging
        self.start = start
        self.start_steps = start_steps
        self.budget_split = budget_split
        self.n_components = n_components
        self.likelihood = likelihood
        self.architecture = architecture
        self.encoder = encoder
        self.decoder = decoder
        self.target = target
        self.schema = schema
        self.classes = classes
        self.target_type = target_type
        self.bounds = bounds
        self.l2_bound = l2_bound
        self.image_shape = image_shape
        self.bounds_share = bounds_share
        self.on_invalid = on_invalid
        self.preset = preset
        self.chunk_size = chunk_size
        self.max_memory = max_memory
        self.n_jobs = n_jobs
        self.noise = noise
        self.device = device
        self.random_state = random_state
        self.progress = progress

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Release a generative model of the rows: a decoder.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Arrays hold finite numbers.
        y : array-like of shape (n_samples,), default=None
            Labels; `sample` then gives (X, y). With `target`, an error.

        Returns
        -------
        self

        Raises
        ------
        ValueError, InvalidInputError, SchemaError
            Parameters contradict one another, or the data do not fit what was declared; nothing was charged.
        BudgetExceededError
            The accountant does not allow the fit; nothing was charged.

        Notes
        -----
        **Privacy.** The unit is one row, under `neighboring`. Charged before anything is released, as one composed
        event that costs (`epsilon`, `delta`): one Gaussian event for each kind of fact not declared (learned categories
        also spend a tenth of `delta`); the moments, or the counts of the classes; and stage 2, whose unit is a subset
        (a row is in one subset, which it may change from any gradient of norm `gradient_bound` to any other).
        """
        with self._fitting():
            accountant = self._resolve_accountant()
            (rows, settings, ids, chunks), plan = self._prepare(X, y, accountant)
            rng = self._charge(accountant, plan)
            settings["receipt"] = self._receipt
            stream = self._sampling_stream
            model = fit_dp2vae_model(rows, settings, plan, rng, accountant.neighboring, stream, ids, chunks)
            self._set_model(model)
            assumed = public_assumptions(self, rows)
            if ids is not None:
                assumed.append("ids: unique, say nothing of a record, and are no row numbers")
            self._issue_card(plan, rng, assumed, model.gradient_noise)
        return self

    def _prepare(self, X, y, accountant):
        defaults = {name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()}
        settings = {**resolve_settings(self.get_params(deep=False), defaults), "seed": self._seed()}
        if self.id_column is not None and accountant.neighboring == "replace_one":
            raise ValueError(
                "id_column= is for add_or_remove_one: a record that replaces another may have another id, and then two "
                "subsets change, where one is paid for; leave it out (each record then draws its subset)"
            )
        X, ids = split_ids(X, self.id_column)
        rows = self._read(X, y, settings)
        chunks = check_networks(settings, rows)
        phases = plan_phases(rows, settings, accountant.neighboring)
        plan = self._calibrate(accountant, phases, extra_delta_share=0.1 if rows.learns_classes else 0.0)
        return (rows, settings, ids, chunks), plan

    def _read(self, X, y, settings):
        """Validate the data; what is private stays in the object that comes back, and goes with it."""
        rows = validate_input(self, X, y)
        if isinstance(rows, FrameRows):
            if settings["likelihood"] != "auto":
                raise ValueError("likelihood= is for arrays: a DataFrame has one categorical law a column")
            if not rows.source.in_memory:
                raise InvalidInputError("DP2-VAE needs the rows in memory, as one DataFrame")
        elif settings["start"] == "random":
            # no row is clipped as a whole, gradients are: the norm bound is that of the unit box
            rows.l2_bound = float(rows.X.shape[1]) ** 0.5
        return rows

    # ---- using the model -------------------------------------------------------------------------------------
    def score(self, X, y=None):
        """Return the mean log-likelihood of rows by latents drawn from the prior, a bound from below.

        The rows are read unpaid: what comes back is private, and is not to be published.
        """
        check_is_fitted(self)
        if self.model_.kind == "frame":
            if not isinstance(X, pd.DataFrame):
                raise InvalidInputError("fitted on a DataFrame: expected one")
            X = X.drop(columns=self.id_column) if self.id_column in X.columns else X
            validate_data(self, X, reset=False, skip_check_array=True)
        else:
            X = validate_rows(self, split_ids(X, self.id_column, check=False)[0], reset=False)
        return float(np.mean(self.model_.score_samples(X, y)))

    @staticmethod
    def _model_from_state(state):
        return DP2VAEModel.from_state(state)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = False
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags
