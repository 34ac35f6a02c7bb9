"""P3GM: a phased private generative model (DP-PCA, a DP mixture in the latent space, a decoder).

The first phase, the moments, is that of `_array_model` and `_frame_model`. The second, the mixture, stands below the
estimator, and the third, a network, is `_p3gm_decoder`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._parameters import ImageFeatures, LatentMixture
from ..accounting import gaussian_mu
from ..data.frames import FrameRows
from ..data.validation import check_likelihood, validate_input
from ..exceptions import InvalidInputError
from ..mixture import dp_em, initial_mixture
from ..utils.blocks import finer_product, mapped_rows
from ..utils.progress import shows_bars
from ..utils.validation import StrOptions
from ._array_model import fit_array_model
from ._base import TRAINING_CONSTRAINTS, LatentTransformerMixin
from ._frame_model import fit_frame_model
from ._moment_base import MOMENT_CONSTRAINTS, BaseMomentSynthesizer
from ._moment_start import moments_state, restore_moments
from ._p3gm_decoder import check_decoder, choose_decoder, decoder_settings, train_network
from ._phases import MomentSettings, moment_split
from ._training import resolve_sampling

# Parameters that act under one value of another alone.
_ACTS = dict.fromkeys(
    (
        "likelihood", "sampling_rate", "steps", "batch_size", "epochs", "gradient_bound", "warm_start_steps", "net",
        "checkpoint", "device",
    ),
    ("decoder", ("net",)),
)  # fmt: skip


class P3GMSynthesizer(LatentTransformerMixin, BaseMomentSynthesizer):
    """P3GM: a generative model from noisy moments, with an optional mixture by DP-EM and an optional decoder by DP-SGD.

    The fit releases the parameters of a generative model, and nothing else. Noisy moments give principal components and
    the distribution of the latents, which DP-EM can refine. The decoder is computed from the moments at no further
    cost, or trained by DP-SGD. All phases are calibrated together and charged before the first one: a fit costs
    (`epsilon`, `delta`).

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget of a fit. ``numpy.inf`` is the non-private reference (the paper's PGM); None spends all that is
        left of `accountant`.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee; None: that of `accountant`, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        Neighbouring relation; None: that of `accountant`, else "add_or_remove_one".
    accountant : PrivacyAccountant or None, default=None
        Accountant that the fit charges; None makes a new one with this budget.
    target : column name or None, default=None
        DataFrames: column on which the model of the other columns is conditional, such as a class label. `sample` then
        returns one frame.
    schema : Schema or None, default=None
        DataFrames: public facts about the columns. The fit learns other facts within the same budget.
    classes : sequence or None, default=None
        Public classes of y or `target`. None: learned, charged to the same budget.
    target_type : {"categorical", "numeric"} or None, default=None
        Kind of y or `target`; None is numeric if its dtype is float.
    constraints : sequence of str or None, default=None
        DataFrames: public conditions that every synthetic row satisfies, in addition to the constraints of `schema`.
        Differences, sums, combinations, mappings and consequences (``"start <= end"``, ``"total == a + b"``,
        ``"combinations(state, city)"``, ``"if dead == 'yes': left is None"``) are satisfied by construction. For other
        conditions, such as ``"age >= 16 or job == 'none'"``, `sample` draws a row again if it violates one; you may
        change these conditions after the fit.
    bounds : pair (low, high), one pair a column, or None, default=None
        Arrays: public bounds of the values, which are clipped to them. None: learned.
    l2_bound : float or None, default=None
        Arrays: public bound of the norm of a row after its columns are scaled to the unit box. None: learned.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: shape of an image, if rows are images. The moments are then those of the low frequencies of a cosine
        basis. A row has its pixels line by line, and the channels of a pixel side by side. Three channels are red,
        green and blue; the differences between them have half as many frequencies along each side.
    on_invalid : {"clip", "raise"}, default="clip"
        What to do with values outside declared bounds and with rows that violate a constraint. "clip": the values are
        clipped, and so are rows that violate a constraint by construction; "raise": the fit refuses them, before the
        charge.
    n_components : int, "auto" or None, default="auto"
        Number of latent dimensions; "auto" is at most 30 for DataFrames, 60 for arrays, and 400 for images without a
        mixture or a `P3GMModule`; None is no reduction. For arrays, at most the number of columns. DataFrames use at
        most as many as they have levels.
    prior : {"auto", "class_conditional", "gaussian", "mixture"} or LatentMixture, default="auto"
        Distribution of the latents. "class_conditional": one distribution for each class of a categorical y, from the
        moments of the class. "gaussian": one Gaussian for all rows. "mixture": a mixture of Gaussians by DP-EM, with y
        as a column like the others, as in the paper; a `LatentMixture` sets its parameters. "auto": "class_conditional"
        with a categorical y, else "gaussian".
    decoder : {"auto", "released", "net", "features"} or ImageFeatures, default="auto"
        How rows are computed from latents:

        - "released": a function of the released moments. For arrays it is the inverse PCA, for tables a log-linear
          decoder fitted to all released one-way and two-way tables.
        - "features", for images without a mixture: the fit also releases the moments of wavelet features. `sample`
          moves each image of the released decoder, by gradient steps, until its features have these moments. An
          `ImageFeatures` sets its parameters.
        - "net": a network trained by DP-SGD. For tables and images without a mixture it refines the released decoder:
          it adds to the logits of a table (trained on the exact log-likelihood of the rows), or to the means of the
          Gaussians of images (trained on the ELBO). It adds nothing before the first step. Images for which "auto" is
          "features" have features too. For other arrays, with a mixture, with `warm_start_steps`, with a Gaussian
          `likelihood` and with a `P3GMModule` in `training`, the network replaces the released decoder, as in the
          paper: it starts from a training on rows sampled from that decoder, and is trained on the ELBO.
        - "auto": "features" for images of at least 16 pixels a side and at most 16,384 values, without a mixture;
          otherwise "released".
    likelihood : {"auto", "bernoulli", "gaussian"}, default="auto"
        "net", arrays: distribution of the values. "auto" is Bernoulli for values that are not negative; "bernoulli"
        needs `bounds` that are not negative. DataFrames have one categorical distribution for each column.
    training : DPSGD or None, default=None
        "net": the training of the network. By default, a network that refines the released decoder takes 150 steps at a
        `sampling_rate` of .1. Its `net` is ``DPNet(TableRefinementModule)``, or ``DPNet(ImageRefinementModule)`` for
        images, with an average of its parameters. A network that replaces the released decoder takes 1000 steps at a
        rate of .005, after 500 `warm_start_steps` on rows sampled from that decoder. Its `net` is ``DPNet(P3GMModule)``
        with the parameters ``module__decoder`` and ``module__latent_variance`` ("zero" is the autoencoder of the
        paper). A model with a decoder module of yours that is no stack of linear layers and ReLU can `sample`, but
        `save` refuses it: save the synthetic rows, or pickle the synthesizer. The `gradient_bound` is 1.
        ``training__steps=200`` sets a parameter.
    checkpoint : str, path or None, default=None
        "net": file (.safetensors) from which the same call resumes a fit whose process was killed; nothing is charged
        again. Needs an `accountant` with a ledger file. The file contains released values alone. When the fit is
        complete, it is the model file, for ``skdpgen.load``.
    budget_split : dict or None, default=None
        Shares of the budget. "bounds", .05 by default, is the share of each kind of fact that is learned (schema, bins
        of numeric columns; bounds, classes). The row norm costs half of it, and the number of rows of a table without
        numbers a fifth. The share of a declared fact goes to the moments. "target": as in `MomentSynthesizer`, without
        mixture and network. "encoder", "mixture" and "decoder" are relative shares of the rest. Their defaults depend
        on prior and decoder: .8 ("encoder") and .2 ("decoder") for a network that refines the released decoder; .5 and
        .5 for "features", whose moments are the share "decoder"; .9 and .1 for a network of images with features, whose
        moments have half of the .9.
    preset : str or None, default=None
        "paper/mnist", "paper/adult", ...: settings of Table IV of the paper, which replace your values of the same
        parameters.
    unit : column name, PrivacyUnit or None, default=None
        What the guarantee protects. None: one row. A column name: a person with several rows, that is, all rows with
        the same identifier in this column of a DataFrame. The column is neither modelled nor sampled. For arrays it is
        only a name, and the identifiers are `groups` of `fit`. A `PrivacyUnit` also sets how the rows of a unit count,
        what happens to rows without an identifier, and which columns are constant within a unit.
    max_rows_per_unit : int or None, default=None
        With `unit`: largest number of rows of a unit that are used; of a unit with more rows, this number is drawn at
        random. Public. None: learned with a part of the budget, and released as `max_rows_per_unit_`.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise: a cryptographic generator, or a faster one.
    random_state : int, RandomState instance or None, default=None
        Seed of initialisation and of the sampling stream. It never seeds the noise: two fits with one seed differ.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar of each phase that takes over a second. "auto": on a terminal and in a notebook,
        unless the fit is one of a search; not in pipes, log files, worker processes and threads.

    Attributes
    ----------
    accountant_ : PrivacyAccountant
        Accountant that the fit charged.
    card_ : PrivacyCard
    classes_ : array
        Released or declared classes, with a class-conditional prior.
    class_ratio_ : array
        Released share of each class.
    rest_ratio_ : dict
        Released share of "other" and of missing values (None) of the target, which are no classes.
    row_count_ : float
        Released number of rows; ``sample()`` draws as many.
    unit_count_ : float
        DataFrames with `unit`: released number of units.
    rows_per_unit_ : Series
        DataFrames with `unit`: released share of the units, by their number of used rows. The index has the smallest
        number of each level.
    schema_ : Schema
        DataFrames: schema with the declared or released bounds and categories; y is the last column.
    summary_ : FitSummary
        DataFrames: what the fit kept and lost of each column, from released values: it may be published.
    bounds_ : array of shape (n_features, 2)
        Arrays: declared or released bounds of each column.
    phases_ : dict
        What ran, from released values and the charge: "encoder" ("moments": always, a PCA of released moments), "prior"
        ("class_conditional", "gaussian" or "mixture", which is by DP-EM) and "decoder" ("released", "features" or
        "net", which is by DP-SGD). "auto" of a parameter is resolved here.
    model_ : object
        Released state: codec, latent space, prior, decoder.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** In addition to the events that `fit` names, it charges one event for each of these
    releases:

    - without a mixture and a network: a second count of numbers and dates of few rows, or else a third one of rare
      categories (.3 of what the other facts and the model of the target leave), a second release of rare facts (twice
      the share "bounds"), and the ranges of numbers far from zero (that share);
    - columns of more than 128 declared categories (twice that share, for all of them together);
    - the moments. For arrays there are three events: mean, norms about the mean, second moments; for images also grey
      pixels, and, if the noise is low, sub-clusters of the classes;
    - interactions of all triples, for tables of 3 to 24 columns beside the target without mixture and network;
    - for such tables with `unit`, tables of the units, their `columns` and their number of rows; and the `shared`
      columns;
    - with "mixture", each step of DP-EM; with "net", each of the `steps`, which are Poisson-sampled;
    - with "features", and with "net" for the same images, the moments of wavelet features;
    - with a model of the target (see `budget_split`), the clipped gradient.

    `sample` draws categories and bins from the distribution of the decoder. It never takes the most probable one.

    References
    ----------
    .. [1] S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, P3GM: Private High-Dimensional Data Release via Privacy
       Preserving Phased Generative Model, ICDE 2021 (here with one joint release for each phase, and correct
       accounting).

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

    _split_names = ("bounds", "target", "encoder", "mixture", "decoder")
    # None: they depend on whether the network refines the released decoder
    _training_defaults = {
        **dict.fromkeys(("sampling_rate", "steps", "batch_size", "epochs", "warm_start_steps", "net")),
        "gradient_bound": 1.0,
        "device": "cpu",
    }
    _parameter_constraints = {
        **MOMENT_CONSTRAINTS,
        **TRAINING_CONSTRAINTS,
        "image_shape": [tuple, list, None],
        "prior": [StrOptions({"auto", "class_conditional", "gaussian", "mixture"}), LatentMixture],
        "decoder": [StrOptions({"released", "net", "features", "auto"}), ImageFeatures],
        "likelihood": [StrOptions({"auto", "bernoulli", "gaussian"})],
        "preset": [str, None],
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
        constraints=None,
        bounds=None,
        l2_bound=None,
        image_shape=None,
        on_invalid="clip",
        n_components="auto",
        prior="auto",
        decoder="auto",
        likelihood="auto",
        training=None,
        checkpoint=None,
        budget_split=None,
        preset=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.constraints = constraints
        self.bounds, self.l2_bound, self.image_shape = bounds, l2_bound, image_shape
        self.on_invalid = on_invalid
        self.n_components, self.prior, self.decoder = n_components, prior, decoder
        self.likelihood, self.training, self.checkpoint = likelihood, training, checkpoint
        self.budget_split, self.preset = budget_split, preset
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    @property
    def phases_(self):
        """dict: which encoder, prior and decoder the fit made; it follows from released values and the charge."""
        check_is_fitted(self)
        model, releases = self.model_, self.card_["fit"]["label"].partition(": ")[2].split(", ")
        prior = "class_conditional" if model.codec.n_classes else "gaussian"
        if "mixture" in releases or (prior == "gaussian" and len(model.component_weights) > 1):
            prior = "mixture"
        return {"encoder": "moments", "prior": prior, "decoder": model.decoder_name}

    def _prepare(self, X, y, accountant, groups=None):
        parameters = self._resolve(presets=paper_settings, acts=_ACTS)
        _name_prior(parameters)
        split = moment_split(parameters["budget_split"])
        rows = self._read(X, y, groups, parameters)
        refines, features = choose_decoder(parameters, rows)
        decoder = decoder_settings(parameters, self._seed(), refines)
        if decoder is not None:
            training = resolve_sampling(decoder.training, len(rows), self._relation(accountant), **parameters)
            decoder = replace(decoder, training=training)
        how = (parameters["n_components"], shows_bars(parameters["progress"]), parameters["mixture"], decoder)
        model, plan = self._plan(rows, MomentSettings(*how, features=features), accountant, split=split)
        if decoder is not None:
            check_decoder(decoder, rows, model, cells="cells" in plan.noise_multipliers)
        return (rows, model), plan

    def _read(self, X, y, groups, parameters):
        """Validate the data; what is private stays in the object that comes back, and goes with it."""
        prior = parameters["prior"]
        rows = validate_input(self, X, y, groups, conditional=prior in ("auto", "class_conditional"))
        check_likelihood(parameters["likelihood"], rows)
        if isinstance(rows, FrameRows):
            if not rows.source.in_memory and (prior == "mixture" or parameters["decoder"] == "net"):
                raise InvalidInputError(
                    'prior="mixture" and decoder="net" need the rows in memory, as one DataFrame, such as '
                    "pandas.concat(chunks)"
                )
            classes = rows.target is not None
        else:
            classes = rows.conditional and rows.labels is not None and not rows.numeric_target
            rows.check_components(parameters["n_components"])
        if prior == "class_conditional" and not classes:
            raise InvalidInputError('prior="class_conditional" needs a categorical y or target')
        return rows

    def _release(self, rows, settings, fit):
        """Release the moments; the sums of DP-EM; the steps of DP-SGD: each if the model has that phase."""
        model = fit.facts(
            lambda: _release_moments(rows, settings, fit),
            moments_state,
            lambda state: restore_moments(rows, state),
        )
        if settings.features is not None:
            model.generator.progress = self.progress
        if settings.decoder is not None:
            train_network(rows, model, settings.decoder, fit)
        return model


def _name_prior(parameters):
    """Set "prior" to its name, and "mixture" to the LatentMixture that it is, or None."""
    given = parameters["prior"]
    mixture = LatentMixture() if given == "mixture" else given if isinstance(given, LatentMixture) else None
    parameters.update(mixture=mixture, prior=given if mixture is None else "mixture")


# ---- the releases before the training -----------------------------------------------------------------------------
def _release_moments(rows, settings, fit):
    """Release the moments, and the sums of DP-EM if the model has a mixture; return the model without a network."""
    if isinstance(rows, FrameRows):
        model = fit_frame_model(rows, settings, fit)
        if settings.mixture is not None:
            model.mixture = _release_frame_mixture(rows, model, settings.mixture, fit)
        return model
    model = fit_array_model(rows, settings, fit)
    if settings.mixture is not None:
        model = model.with_mixture(_release_array_mixture(rows, model, settings.mixture, fit))
    return model


# ---- the second phase: a mixture of Gaussians by DP-EM in the latent space ------------------------------------------
def _release_array_mixture(rows, model, mixture, fit):
    """DP-EM, initialised by draws from the one Gaussian of the moments."""
    space, covariance = model.generator.space, model.generator.mixture.covariances[0]
    radius = 2 * float(np.trace(covariance)) ** 0.5
    floor = 1e-2 * float(np.trace(covariance)) / len(covariance)
    latent = mapped_rows(
        lambda chunk: space.encode(model.codec.scale(chunk), finer_product), rows.X, space.basis.shape[1]
    )
    kind = {"radius": radius, "min_variance": floor, "unit_sizes": rows.unit_sizes}
    return _release_mixture(latent, covariance, mixture, fit, **kind)


def _release_frame_mixture(rows, model, mixture, fit):
    """DP-EM where the latents' columns have released variance 1: the ball of radius 2 sqrt(k) is public."""
    codes, k = rows.codes(model.codec), model.n_latent
    latent = mapped_rows(lambda chunk: model.latent_model.encode(model.codec.one_hot(chunk), finer_product), codes, k)
    kind = {"radius": 2 * k**0.5, "min_variance": 1e-2, "unit_sizes": rows.unit_sizes}
    return _release_mixture(latent, np.eye(k), mixture, fit, **kind)


def _release_mixture(latent, covariance, mixture, fit, *, unit_sizes, **kind):
    """One release (`mixture`) for each step of DP-EM on private latents."""
    initial = initial_mixture(
        np.zeros(len(covariance)),
        covariance,
        mixture.n_components,
        fit.stream,
        covariance_type=mixture.covariance_type,
        **kind,
    )
    return dp_em(
        latent,
        initial,
        n_iter=mixture.n_iter,
        noise_multiplier=fit.noise["mixture"],
        rng=fit.rng,
        neighboring=fit.neighboring,
        unit_sizes=unit_sizes,
        **kind,
    )


# ---- the settings of the paper --------------------------------------------------------------------------------------
# Table IV: noise multiplier, epochs, batch size; training rows of the paper (9/10 of N); None: no reduction by PCA.
P3GM_PAPER_ROWS = {
    "credit": {"noise_multiplier": 2.1, "epochs": 15, "batch_size": 100, "rows": 256_326, "n_components": None},
    "adult": {"noise_multiplier": 1.4, "epochs": 5, "batch_size": 200, "rows": 40_700, "n_components": 10},
    "isolet": {"noise_multiplier": 1.6, "epochs": 2, "batch_size": 100, "rows": 7_017, "n_components": 10},
    "esr": {"noise_multiplier": 1.4, "epochs": 2, "batch_size": 100, "rows": 10_350, "n_components": 10},
    "mnist": {"noise_multiplier": 1.4, "epochs": 4, "batch_size": 300, "rows": 63_000, "n_components": 10},
    "fashion_mnist": {"noise_multiplier": 1.4, "epochs": 4, "batch_size": 300, "rows": 63_000, "n_components": 10},
}


def paper_settings(preset):
    """Parameters of P3GMSynthesizer that the paper's Table IV sets for a data set.

    The split is that of the paper at (1, 1e-5): epsilon .1 for the PCA, the noise multiplier of Table IV for DP-SGD,
    and the rest for EM; all three are then scaled together to the budget asked for.

    `preset`: "paper/adult" and so on; "paper" alone is "paper/mnist".

    Reference: Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Table IV.
    """
    kind, _, name = preset.partition("/")
    row = P3GM_PAPER_ROWS.get(name or "mnist")
    if kind != "paper" or row is None:
        raise ValueError(
            f"preset must be 'paper' or one of {', '.join(f'paper/{n}' for n in P3GM_PAPER_ROWS)}; got {preset!r}"
        )
    rate = row["batch_size"] / row["rows"]
    steps = round(row["epochs"] / rate)
    whole = gaussian_mu(1.0, 1e-5) ** 2
    encoder = gaussian_mu(0.1, 1e-5) ** 2 / whole
    decoder = rate**2 * steps * math.expm1(row["noise_multiplier"] ** -2) / whole
    return {
        "prior": LatentMixture(3, covariance_type="diag", n_iter=20),
        "n_components": row["n_components"],
        "decoder": "net",
        "sampling_rate": rate,
        "steps": steps,
        "budget_split": {"encoder": encoder, "mixture": max(1 - encoder - decoder, 0.05), "decoder": decoder},
    }
