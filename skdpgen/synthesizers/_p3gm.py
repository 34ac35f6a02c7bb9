"""P3GM: a phased private generative model (DP-PCA, a DP mixture in the latent space, a decoder).

The first phase, the moments, is that of `_array_model` and `_frame_model`; the other two stand below the estimator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._parameters import ImageFeatures, LatentMixture
from ..data.frames import FrameRows
from ..data.validation import check_likelihood, validate_input
from ..exceptions import InvalidInputError
from ..generators.gaussians import MOST_SUBCLUSTERS, LatentSpace, LinearGenerator
from ..generators.leading import MOST_SLOPES, LeadingDirections
from ..generators.refined_table import RefinedTable, refinement_inputs
from ..generators.shifted_images import ShiftedImages
from ..mixture import GaussianMixtureParameters, dp_em, initial_mixture
from ..utils.blocks import map_blocks
from ..utils.progress import shows_bars
from ..utils.validation import StrOptions
from ._array_model import ArrayModel, fit_array_model
from ._base import TRAINING_CONSTRAINTS, LatentTransformerMixin
from ._before_training import encode_rows, with_labels
from ._budget import (
    MomentSettings,
    Network,
    Training,
    moment_split,
    paper_settings,
    resolve_sampling,
    suits_features,
)
from ._frame_model import fit_frame_model
from ._moment_base import MOMENT_CONSTRAINTS, BaseMomentSynthesizer
from ._moment_start import draw_rows, model_of, train_on_rows
from ._released import NetGenerator

__all__ = ["P3GMSynthesizer"]

# Parameters that act under one value of another alone.
_ACTS = dict.fromkeys(
    (
        "likelihood", "sampling_rate", "steps", "batch_size", "epochs", "gradient_bound", "warm_start_steps", "net",
        "checkpoint", "device",
    ),
    ("decoder", ("net",)),
)  # fmt: skip
# Synthetic rows that the network is initialised on, how many of them are in one of those steps, their rate and number.
_WARM_ROWS, _WARM_BATCH, _WARM_RATE, _WARM_STEPS = 20_000, 256, 1e-3, 500
# (sampling_rate, steps) of a whole network, and of one that refines the released decoder: few steps of large batches.
_SAMPLING, _REFINING = (0.005, 1000), (0.1, 150)
# Step size of a network that refines a table, or images, and the decay of the average of its parameters. Of images a
# larger one improves the ELBO more, and samples get worse (Fashion-MNIST, epsilon 10: .857 at the start, .835 by .001).
_REFINING_RATE, _IMAGES_RATE, _REFINING_DECAY = 5e-3, 2e-4, 0.95
# Latents of a network that refines images: so many of the widest directions of each Gaussian, at most.
_IMAGES_LATENTS = 20


@dataclass(frozen=True, eq=False)
class DecoderSettings:
    """The third phase: a network trained by DP-SGD, which refines the released decoder or takes its place."""

    training: Training
    network: Network
    likelihood: str
    warm_start_steps: int
    refines: bool = False


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
        paper). The `gradient_bound` is 1. ``training__steps=200`` sets a parameter.
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
        Whether to show progress bars on stderr. "auto": only if stderr is a terminal, and the fit is not one of a
        search.

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
    model_ : object
        Released state: codec, latent space, prior, decoder.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** In addition to the events that `fit` names, it charges one event for each of these
    releases:

    - without a mixture and a network: a second release of rare facts (twice the share "bounds"), and the ranges of
      numbers far from zero (that share);
    - columns of more than 128 declared categories (twice that share, for all of them together);
    - the moments. For arrays there are three events: mean, norms about the mean, second moments; for images also grey
      pixels, and, if the noise is low, sub-clusters of the classes;
    - interactions of all triples, for tables of 3 to 24 columns beside the target without mixture and network;
    - for such tables with `unit`, tables of the units, their `columns` and their number of rows; and the `shared`
      columns;
    - with "mixture", each step of DP-EM; with "net", each of the `steps`, which are Poisson-sampled;
    - with "features", and with "net" for the same images, the moments of wavelet features;
    - with "target" in `budget_split`, the clipped gradient.

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

    def _prepare(self, X, y, accountant, groups=None):
        parameters = self._resolve(presets=paper_settings, acts=_ACTS)
        _name_prior(parameters)
        split = moment_split(parameters["budget_split"])
        rows = self._read(X, y, groups, parameters)
        given = parameters["decoder"]
        parameters["decoder"], refines = _decoder(parameters, rows), _refines(parameters, rows)
        features = None
        if parameters["decoder"] == "features" or (refines and _images_with_features(rows)):
            features = given if isinstance(given, ImageFeatures) else ImageFeatures()
        model = _settings(parameters, self._seed(), refines, features)
        if model.decoder is not None:
            training = resolve_sampling(model.decoder.training, len(rows), self._relation(accountant), **parameters)
            model = replace(model, decoder=replace(model.decoder, training=training))
        model, plan = self._plan(rows, model, accountant, split=split)
        if model.decoder is not None:
            _check_decoder(model.decoder, rows, model, cells="cells" in plan.noise_multipliers)
        return (rows, model), plan

    def _read(self, X, y, groups, parameters):
        """Validate the data; what is private stays in the object that comes back, and goes with it."""
        prior = parameters["prior"]
        rows = validate_input(self, X, y, groups, conditional=prior in ("auto", "class_conditional"))
        check_likelihood(parameters["likelihood"], rows)
        if isinstance(rows, FrameRows):
            if not rows.source.in_memory and (prior == "mixture" or parameters["decoder"] == "net"):
                raise InvalidInputError('prior="mixture" and decoder="net" need the rows in memory, as one DataFrame')
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
            lambda found: {**found.to_state(), "counted": float(found.counted)},
            lambda state: _restore_moments(rows, state),
        )
        if settings.features is not None:
            model.generator.progress = self.progress
        if settings.decoder is None:
            return model
        if settings.decoder.refines and model.kind == "array":
            model.generator = _refine_on_images(rows, model, settings.decoder, fit)
        elif settings.decoder.refines:
            model.latent_model = _refine_on_frame(rows, model, settings.decoder, fit)
        elif model.kind == "frame":
            model.net = _train_in_place(rows, model, settings.decoder, fit)
        else:
            model.generator = _train_in_place(rows, model, settings.decoder, fit)
        return model


def _name_prior(parameters):
    """Set "prior" to its name, and "mixture" to the LatentMixture that it is, or None."""
    given = parameters["prior"]
    mixture = LatentMixture() if given == "mixture" else given if isinstance(given, LatentMixture) else None
    parameters.update(mixture=mixture, prior=given if mixture is None else "mixture")


def _settings(parameters, seed, refines, features):
    """The settings of a model, from resolved parameters of the synthesizer; `features` are None where it has none."""
    decoder = None
    if parameters["decoder"] == "net":
        rate, steps = _REFINING if refines else _SAMPLING
        warm = parameters["warm_start_steps"]
        decoder = DecoderSettings(
            Training(
                rate if parameters["sampling_rate"] is None else parameters["sampling_rate"],
                steps if parameters["steps"] is None else parameters["steps"],
                parameters["gradient_bound"],
            ),
            Network.of(parameters, seed),
            parameters["likelihood"],
            _WARM_STEPS if warm is None else warm,
            refines,
        )
    return MomentSettings(
        parameters["n_components"],
        shows_bars(parameters["progress"]),
        parameters["mixture"],
        decoder,
        features=features,
    )


def _decoder(parameters, rows):
    """The decoder that is meant, by public facts alone.

    Raises
    ------
    InvalidInputError
        "features" are asked for where rows are no images, or have no Gaussian of their own class.
    """
    given = parameters["decoder"]
    wanted = "features" if isinstance(given, ImageFeatures) else given
    possible = _may_have_features(parameters, rows)
    if wanted == "features" and not possible:
        raise InvalidInputError(
            'decoder="features" needs image_shape=, no mixture, and with classes no prior="gaussian"'
        )
    if wanted == "auto":
        return "features" if possible and suits_features(rows.image_shape) else "released"
    return wanted


def _may_have_features(parameters, rows):
    """Whether rows are images, with a Gaussian of their own class; public."""
    images, prior = not isinstance(rows, FrameRows) and rows.image_shape is not None, parameters["prior"]
    return images and prior != "mixture" and (prior != "gaussian" or rows.labels is None)


def _images_with_features(rows):
    """Whether rows are images whose features are released by default; public."""
    return not isinstance(rows, FrameRows) and suits_features(rows.image_shape)


def _refines(parameters, rows):
    """Whether a network refines the released decoder, rather than takes its place; public.

    Raises
    ------
    ValueError
        A module that refines tables or images is asked for where it cannot be, or with parameters of a network of
        another kind.
    """
    if parameters["decoder"] != "net":
        return False
    from ..nn import ImageRefinementModule, TableRefinementModule

    if isinstance(rows, FrameRows):
        kind, possible = TableRefinementModule, parameters["prior"] != "mixture"
    else:
        kind = ImageRefinementModule
        possible = _may_have_features(parameters, rows) and parameters["likelihood"] != "gaussian"
    warm = parameters["warm_start_steps"] is not None
    if parameters["net"] is None:
        return possible and not warm
    module = getattr(parameters["net"], "module", None)
    module = module if isinstance(module, type) else type(module)
    uses = {
        TableRefinementModule: "DataFrames without a mixture prior",
        ImageRefinementModule: 'images. It needs no mixture prior, another likelihood than "gaussian" and, with '
        'classes, another prior than "gaussian"',
    }
    asked = next((known for known in uses if issubclass(module, known)), None)
    if asked is None:
        return False
    if not possible or asked is not kind:
        raise InvalidInputError(f"net=DPNet({asked.__name__}) is for {uses[asked]}")
    if warm:
        raise ValueError(f"warm_start_steps would do nothing with net=DPNet({asked.__name__}): leave it out")
    return True


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
        model = _with_mixture(model, _release_array_mixture(rows, model, settings.mixture, fit))
    return model


def _restore_moments(rows, state):
    """What `_release_moments` returned, by the releases in a checkpoint."""
    state = dict(state)
    counted = state.pop("counted", None)  # no model has it, and steps are divided by it
    model = model_of(state)
    if model.kind == "array" and counted is not None:
        model.counted = counted
    rows.follow(model.codec)
    return model


# ---- the second phase: a mixture of Gaussians by DP-EM in the latent space ------------------------------------------
def _release_array_mixture(rows, model, mixture, fit):
    """DP-EM, initialised by draws from the one Gaussian of the moments."""
    space, covariance = model.generator.space, model.generator.mixture.covariances[0]
    radius = 2 * float(np.trace(covariance)) ** 0.5
    floor = 1e-2 * float(np.trace(covariance)) / len(covariance)
    latent = np.empty((len(rows.X), space.basis.shape[1]))
    for part, encoded in map_blocks(lambda chunk: space.encode(model.codec.scale(chunk)), rows.X):
        latent[part] = encoded
    kind = {"radius": radius, "min_variance": floor, "unit_sizes": rows.unit_sizes}
    return _release_mixture(latent, covariance, mixture, fit, **kind)


def _release_frame_mixture(rows, model, mixture, fit):
    """DP-EM where the latents' columns have released variance 1: the ball of radius 2 sqrt(k) is public."""
    codes, k = rows.codes(model.codec), model.n_latent
    latent = np.empty((len(codes), k))
    for part, encoded in map_blocks(lambda chunk: model.latent_model.encode(model.codec.one_hot(chunk)), codes):
        latent[part] = encoded
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


def _with_mixture(model, mixture):
    """The model of arrays with a released mixture as its prior."""
    old = model.generator
    means, dither = old.space.decode(mixture.means), float(old.dither[0])
    generator = LinearGenerator(old.space, mixture, means, old.low, old.high, old.variance_gain, dither)
    rest = model.residual_variance, model.counted
    return ArrayModel(model.codec, generator, model.row_count, mixture.weights, *rest)


# ---- the third phase: a network trained by DP-SGD -------------------------------------------------------------------
def _train_in_place(rows, model, decoder, fit):
    """Train a network in the place of the released decoder; return what may be released of it."""
    synthetic = with_labels(*draw_rows(model, fit.stream, _WARM_ROWS), model.codec)
    x, _, likelihood, widths = encode_rows(rows, model.codec, decoder)
    space, mixture = _latents(model)
    return train_decoder(
        x,
        decoder_plan(decoder.training, fit, fit.step_size(model.row_count, model.counted)),
        space,
        mixture,
        decoder=decoder,
        likelihood=likelihood,
        widths=widths,
        n_labels=model.codec.n_classes,
        warm_rows=synthetic,
        progress_text=f"epsilon {fit.plan.epsilon:.3g}",
        checkpoint=fit.checkpoint,
        units=rows.unit_codes,
    )


def _latents(model):
    """The released latent space, and the distribution of the latents."""
    if model.kind == "array":
        return model.generator.space, model.generator.mixture
    table, mixture = model.latent_model, model.mixture
    if mixture is None:
        weights = np.maximum(table.class_counts, 1e-9)
        covariances = table.class_covariances + 1e-3 * np.eye(model.n_latent)
        mixture = GaussianMixtureParameters(weights / weights.sum(), table.class_means, covariances, "full")
    return LatentSpace(table.mean, table.components.T / table.scale), mixture


def _refine_on_frame(rows, model, decoder, fit):
    """Train the network that refines the released decoder; return what may be released of both."""
    codec, table = model.codec, model.latent_model
    features, logits = refinement_inputs(table)
    plan = decoder_plan(decoder.training, fit, fit.step_size(model.row_count, model.counted))
    net = _make_refinement(
        decoder,
        plan,
        f"epsilon {fit.plan.epsilon:.3g}",
        features=features,
        logits=logits,
        widths=codec.n_levels,
        shares=model.class_ratio,
        n_labels=codec.n_classes,
    )
    net.fit_file = fit.checkpoint
    net.initialize()
    net.partial_fit(rows.one_hot_with_labels(codec), groups=rows.unit_codes)
    noise = (net.noise_description_, net.noise_private_)
    return RefinedTable.of(table, _layers(net.module_.cpu().network), noise)


def _refine_on_images(rows, model, decoder, fit):
    """Train the network that shifts the means of the released Gaussians; return what may be released of all of them."""
    # declared classes were checked before the charge; many learned classes may leave room for fewer latents
    room = MOST_SLOPES // len(model.generator.component_means) // rows.X.shape[1]
    leading = LeadingDirections.of(model.generator, max(1, min(_IMAGES_LATENTS, model.n_latent, room)))
    low, high = model.codec.box
    unit = np.empty(rows.X.shape, dtype=np.float32)
    for part, scaled in map_blocks(model.codec.scale, rows.X):
        unit[part] = (scaled - low) / np.maximum(high - low, 1e-300)
    gaussians = leading.nearest(unit, rows.codes)  # the Gaussian of each row; negative for rows of no class
    n_labels = leading.n_labels(model.codec.n_classes)
    labels = gaussians[:, None] == np.arange(n_labels)
    x = np.concatenate([unit, leading.encode(unit, gaussians), labels], axis=1, dtype=np.float32)
    del unit
    plan = decoder_plan(decoder.training, fit, fit.step_size(model.row_count, model.counted))
    location, slopes, deviation = leading.columns()
    net = _make_image_refinement(
        decoder,
        plan,
        f"epsilon {fit.plan.epsilon:.3g}",
        location=location,
        slopes=slopes,
        deviation=deviation,
        n_labels=n_labels,
    )
    net.fit_file = fit.checkpoint
    net.initialize()
    net.partial_fit(x, groups=rows.unit_codes)
    noise = (net.noise_description_, net.noise_private_)
    return ShiftedImages(leading, _layers(net.module_.cpu().network), n_labels, noise)


def _make_refinement(decoder, plan, progress_text, **released):
    """The net of the settings that refines a released table, or the default one, given what was released."""
    from ..nn import DPNet, ParameterAverage, TableAnchor, TableRefinementModule

    def default():
        callbacks = [("anchor", TableAnchor()), ("average", ParameterAverage(_REFINING_DECAY))]
        return DPNet(TableRefinementModule, lr=_REFINING_RATE, callbacks=callbacks)

    return decoder.network.make(default, plan, progress_text, **released)


def _make_image_refinement(decoder, plan, progress_text, **released):
    """The net of the settings that refines released images, or the default one, given what was released."""
    from ..nn import DPNet, ImageRefinementModule, ParameterAverage

    def default():
        return DPNet(ImageRefinementModule, lr=_IMAGES_RATE, callbacks=[("average", ParameterAverage(_REFINING_DECAY))])

    return decoder.network.make(default, plan, progress_text, **released)


def _check_decoder(decoder, rows, model, *, cells):
    """Refuse, before anything is charged, a network that cannot be trained privately, or at all.

    Parameters
    ----------
    decoder : DecoderSettings
    rows : ArrayRows or FrameRows
        Only what is public of them.
    model : MomentSettings
    cells : bool
        Whether the classes of images may have sub-clusters.
    """
    decoder.network.check()
    n_features, n_latent, exact = rows.network_shape(model.n_components)
    if not decoder.refines:
        unknown = isinstance(rows, FrameRows) and not rows.levels_are_public
        _check_network(decoder, n_features, n_latent, exact, unknown)
    elif isinstance(rows, FrameRows):
        points = {"features": np.zeros((1, 3, n_latent)), "logits": np.zeros((1, 3, n_features))}
        rest = {"widths": (n_features,), "shares": np.ones(1), "n_labels": 0}
        _check_refinement(_make_refinement(decoder, None, "", **points, **rest), n_features)
    else:
        n_gaussians, n_latent = _most_gaussians(rows, cells), min(_IMAGES_LATENTS, n_latent)
        if n_gaussians * n_latent * n_features > MOST_SLOPES:
            raise InvalidInputError(
                f"the slopes of {n_latent} latents of {n_gaussians} Gaussians of {n_features} pixels are more than "
                f'{MOST_SLOPES:,} numbers: lower n_components, or use decoder="features"'
            )
        columns = dict.fromkeys(("location", "deviation"), np.ones((1, n_features)))
        columns["slopes"] = np.zeros((1, n_latent, n_features))
        _check_refinement(_make_image_refinement(decoder, None, "", **columns, n_labels=0), n_features + n_latent)


def _most_gaussians(rows, cells):
    """Largest possible number of Gaussians of images; two classes are assumed where they are learned. Public."""
    n_classes = len(rows.labels.classes or (0, 1)) if rows.conditional and rows.labels is not None else 1
    return n_classes * (MOST_SUBCLUSTERS if cells else 1)


def _check_refinement(net, n_features):
    """Refuse a network that refines, given rows of `n_features` columns; see `_check_decoder`."""
    from ..dpsgd import check_module, check_optimizer

    check_optimizer(net.optimizer)
    net.initialize()
    check_module(net.module_)
    if _layers(net.module_.network) is None:
        name = type(net.module_).__name__
        raise InvalidInputError(f"the module {name} has linear layers with ReLU between them alone: set n_hidden")
    net.check(np.zeros((4, n_features), dtype=np.float32))


def decoder_plan(training, fit, row_count):
    """The DP-SGD plan of a charged fit; its denominator, of rows or of units that count 1, is public or released."""
    from ..dpsgd._plan import plan_of_fit

    expected = max(1.0, training.sampling_rate * row_count)
    return fit.cover(plan_of_fit(training, fit.plan, fit.noise["decoder"], expected, l2_bound=training.gradient_bound))


def train_decoder(
    rows,
    plan,
    space,
    mixture,
    *,
    decoder,
    likelihood,
    widths,
    n_labels,
    warm_rows,
    progress_text,
    checkpoint=None,
    units=None,
):
    """Train P3GM's network on private rows under a plan that was charged; returns what may be released of it.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features [+ n_labels]), float32
        Private; trailing one-hot columns say which component of the prior a row belongs to.
    plan : DPSGDPlan
    space : LatentSpace
    mixture : GaussianMixtureParameters
        The released prior.
    decoder : DecoderSettings
    likelihood : {"bernoulli", "gaussian", "table"}
    widths : array of int or None
        Number of levels of each block, for "table".
    n_labels : int
    warm_rows : array like `rows`
        Synthetic rows from the released prior and decoder.
    progress_text : str
    checkpoint : FitCheckpoint or None
    units : int array of shape (n_samples,), default=None
        Unit of each row, for a plan of units.

    Returns
    -------
    NetGenerator
    """
    import torch

    net = _make_net(decoder, space, mixture, likelihood, widths, n_labels, plan=plan, progress_text=progress_text)
    net.fit_file = checkpoint
    net.initialize()
    if decoder.warm_start_steps and (checkpoint is None or checkpoint.training is None):
        _warm_start(net.module_, torch.from_numpy(warm_rows), decoder.warm_start_steps, decoder.network.seed)
    net.partial_fit(rows, groups=units)
    module = net.module_.cpu().eval()
    generator = NetGenerator(space, mixture, _layers(module.decoder), likelihood, widths, module)
    generator.noise = (net.noise_description_, net.noise_private_)
    return generator


def _make_net(decoder, space, mixture, likelihood, widths, n_labels, *, plan, progress_text):
    """The net of the settings, or the default, given what was released."""
    from ..nn import BernoulliLikelihood, DPNet, GaussianLikelihood, MixturePrior, P3GMModule, TableLikelihood

    likelihoods = {"bernoulli": BernoulliLikelihood, "gaussian": GaussianLikelihood}
    return decoder.network.make(
        lambda: DPNet(P3GMModule),
        plan,
        progress_text,
        basis=space.basis.copy(),  # eigenvectors may lie backwards in memory, which torch refuses
        center=space.center.copy(),
        prior=MixturePrior(mixture.weights, mixture.means, mixture.covariances),
        likelihood=TableLikelihood(widths) if likelihood == "table" else likelihoods[likelihood](),
        n_labels=n_labels,
    )


def _check_network(decoder, n_features, n_latent, exact, unknown):
    """Refuse, before anything is charged, a network that cannot be trained privately, or at all.

    Parameters
    ----------
    decoder : DecoderSettings
    n_features, n_latent : int
        Columns and latents of the network.
    exact : bool
        Whether they are those of the fit; if not, they are the least ones.
    unknown : bool
        Whether the number of columns follows from releases: a network of the user's own that has a fixed number of
        them is refused.

    Raises
    ------
    ValueError
        For what is no DPNet, BatchNorm, LBFGS, a module of other shapes, a device that is not there.
    """
    from ..dpsgd import check_module, check_optimizer
    from ..nn import P3GMModule
    from ..nn._parameters import check_unknown_width, check_widths

    def make(columns):
        prior = GaussianMixtureParameters(np.ones(1), np.zeros((1, n_latent)), np.eye(n_latent)[None], "full")
        space = LatentSpace(np.zeros(columns), np.eye(columns)[:, :n_latent])
        likelihood = "gaussian" if decoder.likelihood == "auto" else decoder.likelihood
        return _make_net(decoder, space, prior, likelihood, None, 0, plan=None, progress_text="")

    def check(columns, net=None):
        (make(columns) if net is None else net).check(np.zeros((4, columns), dtype=np.float32))

    net = make(n_features)
    check_optimizer(net.optimizer)
    net.initialize()
    check_module(net.module_)
    decoder.network.check_saved(_layers(net.module_.decoder) is not None)
    if unknown and decoder.network.has_own_layers(P3GMModule):
        named = "module__decoder= or module__variance= of net="
        check_unknown_width(check, n_features, named, "or give a module class that takes the number of columns")
    elif not (unknown or exact):
        variance, own = ("module__variance", net.module_.variance), ("module__decoder", net.module_.decoder)
        check_widths(n_features, rows=[variance], outputs=[own])
    elif exact:
        try:
            check(n_features, net)
        except RuntimeError as error:  # shapes that do not fit one another
            raise ValueError(
                f"the network does not fit {n_latent} latents and {n_features} columns: {error}. Check "
                "module__decoder= (latents to columns) and module__variance= (columns to latents) of net="
            ) from None


def _warm_start(module, rows, steps, seed):
    """Ordinary training on synthetic rows; draws, dropout's too, follow the seed alone."""
    import torch

    shape, generator = getattr(module, "noise_shape", None), torch.Generator().manual_seed(seed)

    def loss_of(batch, normals):
        return module(batch, None if shape is None else normals(_WARM_BATCH, *shape)).mean()

    train_on_rows(module, rows, steps, generator, loss_of, batch_size=_WARM_BATCH, rate=_WARM_RATE)


def _layers(decoder):
    """Weights of a stack of linear layers with ReLU between them, None for anything else."""
    from torch import nn

    if not isinstance(decoder, nn.Sequential):
        return None
    parts = list(decoder)
    if (
        not all(isinstance(part, nn.ReLU if i % 2 else nn.Linear) for i, part in enumerate(parts))
        or len(parts) % 2 == 0
    ):
        return None
    return [tuple(value.detach().cpu().numpy().copy() for value in (part.weight, part.bias)) for part in parts[::2]]
