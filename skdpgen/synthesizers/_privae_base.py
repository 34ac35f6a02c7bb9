"""What PriVAE and its baseline share: the flow of a fit, and the use of the released model."""

from __future__ import annotations

import inspect
from numbers import Integral, Real

import numpy as np
import pandas as pd
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._base import PRIVACY_CONSTRAINTS
from ..data.arrays import ArrayRows, check_image_shape
from ..data.frames import FrameRows
from ..data.validation import public_assumptions
from ..exceptions import InvalidInputError
from ..tabular import Schema
from ..tabular._schema import check_unique
from ..utils.validation import (
    MOST_UNITS,
    ClassNamePrefixFeaturesOutMixin,
    Interval,
    StrOptions,
    fit_context,
    validate_data,
    validate_rows,
)
from ._base import BaseSynthesizer
from ._privae_model import PriVAEModel, fit_privae_model
from ._privae_planning import check_groups, check_network, plan_phases, resolve_settings

__all__ = ["VAE_CONSTRAINTS", "BaseVAESynthesizer", "LikelihoodSynthesizer"]

VAE_CONSTRAINTS = {
    **PRIVACY_CONSTRAINTS,
    "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
    "beta": [Interval(Real, 0, None, closed="left")],
    "n_monte_carlo": [Interval(Integral, 1, MOST_UNITS, closed="both")],
    "likelihood": [StrOptions({"auto", "bernoulli", "gaussian", "laplace"})],
    "l2_bound_sample": [Interval(Real, 1e-12, 1e12, closed="both")],
    "target": "no_validation",
    "schema": [Schema, None],
    "classes": ["array-like", range, None],
    "target_type": [StrOptions({"categorical", "numeric"}), None],
    "bounds": ["array-like", None],
    "on_invalid": [StrOptions({"clip", "raise"})],
    "image_shape": [tuple, list, None],
    "bounds_share": [Interval(Real, 1e-6, 1, closed="left")],
    "sampling_rate": [Interval(Real, 1e-6, 1, closed="both")],
    "steps": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left"), None],
    "epochs": [Interval(Integral, 1, None, closed="left"), None],
    "net": "no_validation",
    "device": [str],
    "progress": ["boolean"],
}


class LikelihoodSynthesizer(BaseSynthesizer):
    """Base of the synthesizers whose model bounds the likelihood of rows: how rows are read, and their scores."""

    def _read(self, X, y, settings):
        """Validate the data; what is private stays in the object that comes back, and goes with it."""
        shared = {name: getattr(self, name) for name in ("classes", "target_type", "on_invalid")}
        if isinstance(X, pd.DataFrame):
            self._refuse(("bounds", "image_shape"), "for arrays; a DataFrame takes a schema")
            if self.likelihood != "auto":
                raise ValueError("likelihood= is for arrays: a DataFrame has one categorical law a column")
            check_unique(X.columns)
            validate_data(self, X, skip_check_array=True)
            return FrameRows(X, y, target=self.target, schema=self.schema, **shared)
        self._refuse(("schema", "target"), "for DataFrames; an array takes bounds and y")
        X = validate_rows(self, X, order=None)
        settings["image_shape"] = check_image_shape(self.image_shape, X.shape[1])
        # no row is clipped as a whole, its gradient is: the norm bound is that of the unit box
        box = float(X.shape[1] + 1) ** 0.5
        rows = ArrayRows(X, y, bounds=self.bounds, l2_bound=box, image_shape=None, **shared)
        if settings["image_shape"] is not None and rows.numeric_target:
            raise InvalidInputError("images take classes as y, not numbers")
        lowest = None if rows.bounds is None else rows.bounds[0]
        if self.likelihood == "bernoulli" and (lowest is None or not (lowest >= 0).all()):
            raise ValueError('likelihood="bernoulli" needs declared bounds that are not negative, and no numeric y')
        return rows

    def _refuse(self, names, why):
        refused = [name for name in names if getattr(self, name) is not None]
        if refused:
            raise InvalidInputError(f"{', '.join(refused)}: {why}")

    def score_samples(self, X, y=None, *, n_importance=1):
        """Return the importance-weighted bound of the log-likelihood of each row, shape (n_samples,).

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            None sums over the classes, where the model has them.
        n_importance : int, default=1
            Samples; 1 is an estimate of the ELBO, more are nearer to the log-likelihood.

        Notes
        -----
        The rows are read unpaid: what comes back is private, and is not to be published.
        """
        check_is_fitted(self)
        return self.model_.score_samples(self._rows_like_fit(X), y, n_importance)

    def score(self, X, y=None):
        """Return the mean of `score_samples` (higher is better): private, and not to be published."""
        return float(np.mean(self.score_samples(X, y)))

    def _rows_like_fit(self, X):
        if isinstance(X, pd.DataFrame) and self.model_.kind == "frame":
            validate_data(self, X, reset=False, skip_check_array=True)
            return X
        if self.model_.kind == "frame":
            raise InvalidInputError("fitted on a DataFrame: expected one")
        return validate_rows(self, X, reset=False)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = False
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags


class BaseVAESynthesizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LikelihoodSynthesizer):
    """Base of the private variational autoencoders; a subclass has the constructor's parameters.

    `_fixed` holds the parameters that a subclass does not have, at their values.
    """

    _fixed = {}

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Release a generative model of the rows: encoder, decoder and prior.

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
            Parameters contradict one another, or the data do not fit what was declared; nothing was charged.
        BudgetExceededError
            The accountant does not allow the fit; nothing was charged.

        Notes
        -----
        **Privacy.** The unit is one row, under `neighboring`. Charged before anything is released, as one composed
        event that costs (`epsilon`, `delta`): one Gaussian event for each kind of fact not declared (at its part of
        `bounds_share`; learned categories also spend a tenth of `delta`), one for the counts of the classes (of all
        rows, without classes; none where only the public number of rows is needed), and `steps` Poisson-sampled ones.
        """
        with self._fitting():
            accountant = self._resolve_accountant()
            (rows, settings), plan = self._prepare(X, y, accountant)
            rng = self._charge(accountant, plan)
            settings["receipt"] = self._receipt
            self._set_model(fit_privae_model(rows, settings, plan, rng, accountant.neighboring))
            self._issue_card(plan, rng, public_assumptions(self, rows), self.model_.gradient_noise)
        return self

    def _prepare(self, X, y, accountant):
        defaults = {name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()}
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name != "accountant"}
        settings = {**resolve_settings({**parameters, **self._fixed}, defaults), "seed": self._seed()}
        rows = self._read(X, y, settings)
        check_groups(settings, len(rows), accountant.neighboring)
        phases = plan_phases(rows, settings, accountant.neighboring)
        plan = self._calibrate(accountant, phases, extra_delta_share=0.1 if rows.learns_classes else 0.0)
        if isinstance(rows, FrameRows):
            shape = (2 * len(rows.schema), 2 if rows.target is not None else 0, False)
        else:
            classes = rows.labels is not None and not rows.numeric_target
            shape = (rows.X.shape[1], len(rows.labels.classes or (0, 1)) if classes else 0, True)
        check_network(settings, *shape)
        return (rows, settings), plan

    # ---- using the model -------------------------------------------------------------------------------------
    def transform(self, X):
        """Return the latent of rows, shape (n_samples, n_components): the mean of the encoder's Gaussian.

        The encoder is released; what it makes of a record is a value for that record: private, and not a release.
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

    def reconstruct(self, X, y=None):
        """Return rows encoded and decoded again: private values of these rows, and not a release.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            Their classes, if the model has them; None takes the most likely ones.

        Returns
        -------
        DataFrame or array
            The columns of X; levels of tables are drawn from their distribution.
        """
        check_is_fitted(self)
        return self.model_.reconstruct(self._rows_like_fit(X), y, self._sampling_stream)

    @staticmethod
    def _model_from_state(state):
        return PriVAEModel.from_state(state)

    @property
    def _n_features_out(self):
        return self.model_.n_latent
