"""PriVAE, a private variational autoencoder with a divergence of random groups of records; and DP-VAE, without one."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from .._parameters import DPSGD, UNIT_CONSTRAINTS, GroupDivergence
from ..data.validation import check_likelihood, read_vectors
from ..generators.components import join_chunks
from ..utils.foreign_tables import to_library
from ..utils.numerics import usual_numerics
from ..utils.validation import MOST_UNITS, HasMethods, Interval, StrOptions
from ._base import DATA_CONSTRAINTS, TRAINING_CONSTRAINTS, BaseSynthesizer, LatentTransformerMixin
from ._training import network_shape
from ._vae_model import (
    VAEModel,
    check_network,
    fit_vae_model,
    resolve_training,
    vae_settings,
)

VAE_CONSTRAINTS = {
    **DATA_CONSTRAINTS,
    **TRAINING_CONSTRAINTS,
    **UNIT_CONSTRAINTS,
    "image_shape": [tuple, list, None],
    "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
    "beta": [Interval(Real, 0, None, closed="left")],
    "likelihood": [StrOptions({"auto", "bernoulli", "gaussian", "laplace"})],
}
# Of the training of a VAE; see `flat_parameters`.
VAE_TRAINING = {
    **dict.fromkeys(("batch_size", "epochs", "net")),
    "sampling_rate": 0.02,
    "steps": 500,
    "gradient_bound": 1.0,
    "device": "cpu",
}
_WARM_TRAINING = {**VAE_TRAINING, "warm_start_steps": None}  # None: by the kind of the rows, which is public
# Of tables and of images; see `_default_start`.
_START_STEPS = 2000


class LikelihoodSynthesizer(BaseSynthesizer):
    """Base of the synthesizers whose model bounds the likelihood of rows: input validation and scores."""

    def _read(self, X, y, groups=None, *, images=False):
        """Validate the data; what is private stays in the object that comes back, and goes with it.

        `images` says whether moments of images are released.
        """
        rows = read_vectors(self, X, y, groups, images=images)
        check_likelihood(self.likelihood, rows)
        return rows

    @usual_numerics()
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
        It is computed from the rows given without protection: do not publish it.
        """
        check_is_fitted(self)
        return self.model_.score_samples(self._rows_like_fit(X), y, n_importance)

    def score(self, X, y=None):
        """Return the mean of `score_samples` (higher is better): private, and not to be published."""
        return float(np.mean(self.score_samples(X, y)))


class BaseVAESynthesizer(LatentTransformerMixin, LikelihoodSynthesizer):
    """Base of the private variational autoencoders; a subclass has the constructor's parameters."""

    _model_class = VAEModel

    def _prepare(self, X, y, accountant, groups=None):
        parameters = self._resolve()
        if parameters["warm_start_steps"] is None:
            parameters["warm_start_steps"] = self._default_start(isinstance(X, pd.DataFrame))
        rows = self._read(X, y, groups, images=bool(parameters["warm_start_steps"]))
        settings = vae_settings(parameters, self._seed())
        settings = resolve_training(settings, len(rows), self._relation(accountant), **parameters)
        plan = self._plan_training(accountant, rows, settings)
        check_network(settings, *network_shape(rows))
        return (rows, settings), plan

    def _default_start(self, is_frame):
        """Steps on synthetic rows of released moments before the private ones, by public facts.

        Tables and images have them. Whoever gives another prior than the normal one wants latents of that form, and
        rows drawn from moments do not have it.
        """
        prior = getattr(self, "prior", "normal")
        images = self.image_shape is not None and isinstance(prior, str) and prior == "normal"
        return _START_STEPS if is_frame or images else 0

    def _release(self, rows, settings, fit):
        return fit_vae_model(rows, settings, fit)

    def _card_parameters(self):
        parameters = super()._card_parameters()
        training = parameters["training"]
        if isinstance(training, DPSGD) and training.warm_start_steps is None:
            steps = self._default_start(self.model_.kind == "frame")
            parameters["training"] = DPSGD(**{**training.get_params(deep=False), "warm_start_steps": steps})
        return parameters

    @usual_numerics()
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
            The columns of X; levels of tables are drawn from their distribution, and keys are fresh.
        """
        check_is_fitted(self)
        rows = self.model_.reconstruct(self._rows_like_fit(X), y, self._sampling_stream)
        return to_library(join_chunks(self._with_keys([rows])), self._library)


class PriVAESynthesizer(BaseVAESynthesizer):
    """PriVAE: a VAE by term-wise DP-SGD, whose loss has a divergence of the latents of many records from a prior.

    The fit releases encoder, decoder and prior, trained by term-wise DP-SGD. Each step sums the clipped gradients of
    single records (reconstruction and KL) and of random groups of records (the divergence). It adds noise to this sum
    for the largest change that one record can cause in both parts. All phases are calibrated together and charged
    before the first one: a fit costs (`epsilon`, `delta`).

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, random_state, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the sources of randomness.
    divergence : {"mmd", "kl_prior"}, callable, GroupDivergence or None, default="mmd"
        Divergence D of the batch-wise term ``alpha D(q(z), p(z))``, where q is the distribution of the latents of a
        random group; a `GroupDivergence` sets its parameters. None: the ordinary loss of a VAE, as in
        `DPVAESynthesizer`.
    prior : {"normal", "sparse", "mixture"} or module, default="normal"
        Prior of the latents: standard normal; spike and slab; a mixture of Gaussians with learned means; or a module
        such as ``skdpgen.nn.GaussianMixturePrior(means, variance)``.
    n_components : int, default=10
        Number of latent dimensions.
    beta : float, default=1.0
        Weight of KL(q(z|x) || p(z)) of each record.
    likelihood : {"auto", "bernoulli", "gaussian", "laplace"}, default="auto"
        Distribution of the values of arrays. "auto" is Bernoulli for values that are not negative, else Gaussian;
        "bernoulli" needs `bounds` that are not negative. DataFrames have one categorical distribution for each column.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: public facts about the data. With a categorical y or `target`, the decoder is
        conditional on the class. A numeric target is a column like the others.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: shape of an image, if rows are images. Without `warm_start_steps` the networks are then convolutional,
        except a `SparseEncoder`. A row has its pixels line by line, and the channels of a pixel side by side.
    budget_split : dict or None, default=None
        Shares of the budget. "bounds", .05 by default, is the share of each kind of fact that is learned (schema, bins
        of numeric columns; bounds, classes).
    training : DPSGD or None, default=None
        Training of the networks. Default: 500 steps at a `sampling_rate` of .02, a `gradient_bound` of 1 (C1 of the
        paper), and 2000 `warm_start_steps` for DataFrames, and for images with the normal prior; other arrays have no
        warm start. In a warm start, the networks are first trained without noise on 40,000 synthetic rows of released
        moments (those of `MomentSynthesizer`). These moments cost four fifths of the budget. The samples are then far
        better, and the fit takes longer. In the warm start the decoder of a table is also fitted to the likelihood of
        the synthetic rows under the prior. Networks for images are then dense, and `image_shape` is that of the
        moments. Default `net`: a `DPNet` of `PriVAEModule` with Adam at 5e-3 and a `ParameterAverage` of .99. After a
        warm start it has 300 hidden units, and steps of 3e-4 (tables) or 1e-3 (arrays). With a divergence,
        ``prior="sparse"`` and three latents or more, its encoder is a `skdpgen.nn.SparseEncoder`.
    checkpoint : str, path or None, default=None
        File (.safetensors) from which the same call resumes a fit whose process was killed; nothing is charged again.
        Needs an `accountant` with a ledger file. The file contains released values alone. When the fit is complete, it
        is the model file, for ``skdpgen.load``.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected if a person may have several rows, and how many rows are used. The
        gradient of a unit is the sum over its rows, or their mean with ``weighting="units"``. It is clipped once. A
        group of the divergence has all rows of its units, or one random row of each unit with "units".

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** In addition to the events that `fit` names, it charges one Gaussian event for the counts of the classes
    (or of all rows, if there are no classes; none if it needs only the public number of rows). With `warm_start_steps`,
    it charges the events of the moments instead. It also charges `steps` Poisson-sampled steps, which sample units.

    A record changes a step by at most ``C1/B + 2 C2/b`` (B is the expected batch size, b the number of groups). The
    paper has C2 instead of 2 C2, which is too small: see the page "PriVAE" of the documentation.

    References
    ----------
    .. [1] T. Takahashi, S. Takagi, H. Ono, T. Komatsu, Differentially Private Variational Autoencoders with Term-wise
       Gradient Aggregation, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DPSGD, PriVAESynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = PriVAESynthesizer(3.0, prior="sparse", bounds=(0, 16), classes=range(10),
    ...                           training=DPSGD(20, sampling_rate=0.05)).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape, synth.transform(X).shape
    ((500, 64), (500,), (1797, 10))
    """

    _training_defaults = _WARM_TRAINING
    _parameter_constraints = {
        **VAE_CONSTRAINTS,
        "divergence": [StrOptions({"mmd", "kl_prior"}), GroupDivergence, callable, None],
        "prior": [StrOptions({"normal", "sparse", "mixture"}), HasMethods(["log_prob", "sample"])],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        divergence="mmd",
        prior="normal",
        n_components=10,
        beta=1.0,
        likelihood="auto",
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        on_invalid="clip",
        image_shape=None,
        budget_split=None,
        training=None,
        checkpoint=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.image_shape = bounds, image_shape
        self.budget_split, self.on_invalid = budget_split, on_invalid
        self.n_components, self.beta, self.likelihood = n_components, beta, likelihood
        self.divergence, self.prior = divergence, prior
        self.training, self.checkpoint = training, checkpoint
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress


class DPVAESynthesizer(BaseVAESynthesizer):
    """Variational autoencoder trained by DP-SGD: `PriVAESynthesizer` without divergence, under a standard normal prior.

    Releases encoder, decoder and prior: each step sums the clipped gradients of single records and adds noise.

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, random_state, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the sources of randomness.
    target, schema, classes, target_type, bounds, on_invalid, image_shape, unit, max_rows_per_unit
        As in `PriVAESynthesizer`: what is public of the data, and who is protected.
    n_components : int, default=10
        Number of latent dimensions.
    beta : float, default=1.0
        Weight of KL(q(z|x) || p(z)) of each record.
    likelihood, budget_split, training, checkpoint
        As in `PriVAESynthesizer`.

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** As in `PriVAESynthesizer`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DPSGD, DPVAESynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> training = DPSGD(20, sampling_rate=0.05)  # few steps: an example
    >>> synth = DPVAESynthesizer(3.0, bounds=(0, 16), classes=range(10), training=training).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _training_defaults = _WARM_TRAINING
    _parameter_constraints = VAE_CONSTRAINTS

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        n_components=10,
        beta=1.0,
        likelihood="auto",
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        on_invalid="clip",
        image_shape=None,
        budget_split=None,
        training=None,
        checkpoint=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.image_shape = bounds, image_shape
        self.budget_split, self.on_invalid = budget_split, on_invalid
        self.n_components, self.beta, self.likelihood = n_components, beta, likelihood
        self.training, self.checkpoint = training, checkpoint
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress
