"""DP2-VAE: encoders trained on private rows without noise and deleted, a decoder trained with noise and kept."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from .._parameters import UNIT_CONSTRAINTS, ImageFeatures, SubsetSGD
from ..accounting import Phase
from ..accounting._calibration import check_noise_of_steps
from ..data.frames import FrameRows
from ..data.validation import validate_input
from ..exceptions import InvalidInputError
from ..generators.gaussians import MOST_SUBCLUSTERS
from ..generators.leading import MOST_SLOPES
from ..utils.containers import CHUNK_READERS
from ..utils.foreign_tables import to_pandas
from ..utils.numerics import usual_numerics
from ..utils.progress import shows_bars
from ..utils.validation import MOST_UNITS, Interval, StrOptions
from ._base import DATA_CONSTRAINTS, BaseSynthesizer
from ._dp2vae_model import (
    DP2VAEModel,
    NetworkSettings,
    fit_dp2vae_model,
    likelihood_of,
    make_auxiliary,
    make_networks,
    may_cut_classes,
    shifts_gaussians,
)
from ._phases import plan_with_cells, relative_shares, suits_features
from ._training import check_device, has_classes, plan_facts

# (moments, features, decoder): the decoder's steps refine what the moments initialise.
_SPLIT, _FEATURES_SPLIT = (0.5, 0.0, 0.5), (0.4, 0.4, 0.2)
_DEFAULT_PER_STEP = 50
# Memory of one number among the slopes of released Gaussians: copies of both stages, and temporaries.
_BYTES_OF_SLOPES = 24
# Names of the networks that the package has.
ARCHITECTURES = frozenset({"auto", "patches", "mlp", "conv_28", "conv_faces"})

_PAPER = {
    "n_subsets": 2500, "sampler": "one_of_k", "encoder_update": "on_query", "warm_start_steps": 0, "steps": 20_000,
}  # fmt: skip
PRESETS = {
    "paper/mnist": {**_PAPER, "architecture": "conv_28", "n_components": 8},
    "paper/fashion_mnist": {**_PAPER, "architecture": "conv_28", "n_components": 8},
    "paper/celeba": {**_PAPER, "architecture": "conv_faces", "n_components": 16},
}


# ---- settings -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class DP2VAESettings:
    """What a fit of DP2-VAE does."""

    subsets: object  # SubsetPlan of stage 2, without its noise
    pretrain_steps: int  # of the encoders in stage 1, without noise; nothing is kept of them
    batch_size: int  # of the encoders, in stage 1 and where stage 2 refreshes them
    networks: NetworkSettings
    learning_rate: float  # of stage 2
    # steps on synthetic rows of released moments; None: no moments are released, networks are initialised at random
    initial_steps: int | None
    split: tuple | None  # relative shares of moments, features and decoder; None is the default of the rows
    device: str
    progress: bool
    max_memory: float  # GiB
    chunks: tuple = (1, 1)  # tuple of two ints; subsets at once in stage 1 and in stage 2
    features: ImageFeatures | None = None  # images: wavelet features whose moments are released too; None is none


def dp2vae_settings(given, seed):
    """Return the `DP2VAESettings` of resolved parameters of a synthesizer.

    Raises ValueError: parameters that contradict one another, or that would do nothing in this combination.
    """
    from ..dpsgd._subsets import SubsetPlan

    from_moments = given["warm_start_steps"] > 0
    if given["l2_bound"] is not None and not from_moments:
        raise ValueError("l2_bound= is used only with warm_start_steps of training=, for which moments are released")
    architecture, encoder, decoder = _networks(given["architecture"])
    if given["checkpoint"] is not None and decoder is not None:
        raise ValueError(
            "checkpoint= is for models that can be saved: a model file holds no code, and architecture= has your own "
            "decoder"
        )
    if given["checkpoint"] is not None and given["sampler"] == "balanced":
        raise ValueError(
            'checkpoint= is not for sampler="balanced": a fit that goes on draws the subset of each row anew, and a '
            "row could then take part in more steps of the public schedule than are charged"
        )
    per_step = given["subsets_per_step"]
    if per_step is None:
        per_step = min(1 if given["sampler"] == "one_of_k" else _DEFAULT_PER_STEP, given["n_subsets"])
    split = relative_shares(given["budget_split"], ("moments", "features", "decoder"))
    if split is not None:
        if not from_moments:
            raise ValueError(
                '"moments", "features" and "decoder" of budget_split= are used only with warm_start_steps of '
                "training=, for which moments are released"
            )
        used = [split[0], split[2], *([split[1]] if split[1] else [])]
        if not 0 < sum(split) < np.inf or not 0 < 1e-6 * max(used) <= min(used):
            raise ValueError(
                'budget_split must have positive shares "moments" and "decoder", and for images "features" may have '
                "one; none may be a millionth of another"
            )
        split = tuple(float(share) for share in split)
    fields = {name: given[name] for name in ("n_subsets", "steps", "sampler", "encoder_update", "gradient_bound")}
    subsets = SubsetPlan(noise_multiplier=0.0, per_step=per_step, **fields)  # refuses what cannot be drawn
    fields = ("n_components", "image_shape", "likelihood")
    return DP2VAESettings(
        subsets,
        given["pretrain_steps"],
        given["batch_size"],
        NetworkSettings(architecture, encoder, decoder, *(given[name] for name in fields), seed),
        given["learning_rate"],
        given["warm_start_steps"] if from_moments else None,
        split,
        given["device"],
        shows_bars(given["progress"]),
        given["max_memory"],
    )


def _networks(architecture):
    """Name of the architecture, and your encoder and decoder or None, of the parameter `architecture`."""
    if isinstance(architecture, str):
        return architecture, None, None
    if len(architecture) != 2 or not all(isinstance(p, str) or hasattr(p, "named_parameters") for p in architecture):
        raise ValueError("architecture= is a name, or a pair (encoder, decoder) of modules and names")
    if kinds := [part.__name__ for part in architecture if isinstance(part, type)]:
        raise ValueError(f"architecture= takes modules, and {kinds[0]} is a class: make an instance of it")
    names = [part for part in architecture if isinstance(part, str)]
    if unknown := [name for name in names if name not in ARCHITECTURES]:
        raise ValueError(f"architecture= must be one of {', '.join(sorted(ARCHITECTURES))}; got {unknown[0]!r}")
    if len(set(names)) > 1:
        raise ValueError("architecture= must not have two names: give one, or a pair with your own module")
    encoder, decoder = (None if isinstance(part, str) else part for part in architecture)
    return names[0] if names else "auto", encoder, decoder


def with_split(settings, rows):
    """The settings with the shares of the phases, and the features of images, by public facts of the rows.

    Raises ValueError: a share of features that are not released of such rows.
    """
    possible, split = shifts_gaussians(rows, settings), settings.split
    if split is None:
        split = _FEATURES_SPLIT if possible and suits_features(rows.image_shape) else _SPLIT
    elif split[1] and not possible:
        raise ValueError(
            '"features" of budget_split= are those of images that start from released moments: give image_shape=, '
            "and not your own decoder"
        )
    return replace(settings, split=split, features=ImageFeatures() if split[1] else None)


# ---- budget -------------------------------------------------------------------------------------------------------
def plan_phases(rows, settings, bounds_share, relation, *, cells=False):
    """Return the phases of a fit, in the order of their releases; with sub-clusters of classes of images if `cells`."""
    from_moments = settings.initial_steps is not None
    phases, rest = plan_facts(rows, bounds_share, relation, from_moments)
    moments, features, decoder = settings.split if from_moments else (0.0, 0.0, 1.0)
    rest /= moments + features + decoder
    if from_moments:
        pixels = moments * rest / (2 if cells else 1)
        phases += rows.encoder_phases(pixels, class_norms=rows.may_have_class_norms)
    if cells:
        phases.append(Phase("cells", moments * rest / 2))
    if features:
        phases.append(Phase("features", features * rest))
    return [*phases, settings.subsets.phase("decoder", decoder * rest)]


# ---- the estimator ------------------------------------------------------------------------------------------------
class DP2VAESynthesizer(BaseSynthesizer):
    """DP2-VAE: a conditional VAE that trains encoders on private subsets without noise and releases the decoder alone.

    The rows are split into subsets. Stage 1 trains one encoder on each subset, without noise. Stage 2 trains one
    decoder with noise: a step draws subsets, clips the mean gradient of each subset, and releases the noisy sum of
    these gradients. The encoders only compute the inputs of the decoder, and are deleted before `fit` returns. All
    releases are calibrated together and charged before the first one: a fit costs (`epsilon`, `delta`).

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, random_state, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the sources of randomness.
    training : SubsetSGD or None, default=None
        Training of both stages: the number of subsets, the steps, how subsets are drawn. None: ``SubsetSGD()``.
        ``training__steps=500`` sets a parameter of it.
    id_column : column name (DataFrames), column number (arrays) or None, default=None
        Column of ids: a hash of the id with a secret key assigns each record to a subset. The column is not modelled.
        Ids must be unique, independent of the rest of the record, and not row numbers. The unit of privacy is still one
        row. Not allowed with `unit`, nor under "replace_one", where a changed id would change two subsets. None: every
        record, or every unit, draws its subset at random.
    budget_split : dict or None, default=None
        Shares of the budget. "bounds" is the share of each kind of fact that is learned. With `warm_start_steps`,
        "moments" and "decoder" are relative shares of the rest, and for images also "features", the moments of their
        wavelet features. None: .05, .5 and .5. For images of at least 16 pixels a side and at most 16,384 values,
        unless you give a decoder: .05, .4 and .2, with .4 for "features".
    n_components : int, default=20
        Number of latent dimensions.
    likelihood : {"auto", "bernoulli", "gaussian"}, default="auto"
        Distribution of the values of arrays; "auto" is "bernoulli" for images, else "gaussian" with a learned scale.
        DataFrames have one categorical distribution for each column.
    architecture : {"auto", "patches", "mlp", "conv_28", "conv_faces"} or pair (encoder, decoder), default="auto"
        "patches" (images) is a convolution of 4 x 4 patches and two dense layers, small enough for thousands of
        encoders on a laptop. "mlp" has one hidden layer. The others are those of the paper for images of 28 x 28 pixels
        and for faces. In a pair, each part is such a name or your own Module, which the fit copies: ``encoder(rows,
        one_hot)`` returns means and log-variances of `n_components` latents, and ``decoder(latents, one_hot)`` returns
        the parameters of the likelihood. No BatchNorm, no dropout, no shared parameters.
    target, schema, classes, target_type, bounds, image_shape, on_invalid
        As in `P3GMSynthesizer`: public facts about the data. With a categorical y or `target` the decoder is
        conditional on the class.
    l2_bound : float or None, default=None
        Arrays, with `warm_start_steps`: public bound of the norm of a row after its columns are scaled to the unit box.
        None: learned.
    preset : {"paper/mnist", "paper/fashion_mnist", "paper/celeba"} or None, default=None
        Settings of the paper, charged at their true cost.
    checkpoint : str, path or None, default=None
        File (.safetensors) from which the same call resumes a fit whose process was killed; nothing is charged again.
        Needs an `accountant` with a ledger file. The file contains released values alone. When the fit is complete, it
        is the model file, for ``skdpgen.load``. A resumed fit assigns subsets and trains encoders again, because the
        file never contains them. Not for the sampler "balanced".
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected if a person may have several rows, and how many rows are used. All
        rows of a unit are in one subset. With ``weighting="units"``, the batches of the subset contain the rows of each
        unit equally often. With both weightings, the noise of the steps is that of a fit for one row.

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    n_features_in_, feature_names_in_
        As in scikit-learn, without `id_column`.

    Notes
    -----
    **Images.** With `warm_start_steps`, the decoder of images is the released Gaussian of the class, or of a part of
    the class. A network shifts its mean. The latents are the `n_components` widest directions of the Gaussian; the
    other directions are drawn at random. The output of the network is zero at first, and stage 2 trains it. `sample`
    then moves each image until its wavelet features have their released moments, as `P3GMSynthesizer` does.

    **Privacy.** In addition to the events that `fit` names, it charges the moments, or the counts of the classes; and
    stage 2, in which the unit is a subset. A row, or all rows of a unit, are in one subset. They may change its
    gradient to any other gradient of norm at most `gradient_bound` of `training`.

    There is no `transform`: encoders are trained without noise and deleted.

    References
    ----------
    .. [1] D. Jiang, G. Zhang, M. Karami, X. Chen, Y. Shao, Y. Yu, DP2-VAE: Differentially Private Pre-trained
       Variational Autoencoders, 2022 (here with correct accounting).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DP2VAESynthesizer, SubsetSGD
    >>> X, y = load_digits(return_X_y=True)
    >>> public = {"bounds": (0, 16), "classes": range(10), "image_shape": (8, 8)}
    >>> training = SubsetSGD(100, steps=20, warm_start_steps=300)  # few steps: an example
    >>> synth = DP2VAESynthesizer(3.0, training=training, **public)
    >>> X_new, y_new = synth.fit(X, y).sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _model_class = DP2VAEModel
    _split_names = ("bounds", "moments", "features", "decoder")
    _training_defaults = SubsetSGD().get_params(deep=False)
    _parameter_constraints = {
        **DATA_CONSTRAINTS,
        **UNIT_CONSTRAINTS,
        "l2_bound": [Interval(Real, 0, None, closed="neither"), None],
        "image_shape": [tuple, list, None],
        "id_column": "no_validation",
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "likelihood": [StrOptions({"auto", "bernoulli", "gaussian"})],
        "training": [SubsetSGD, None],
        "architecture": [StrOptions(ARCHITECTURES), tuple, list],
        "preset": [str, None],
        "checkpoint": [str, os.PathLike, None],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        training=None,
        id_column=None,
        budget_split=None,
        n_components=20,
        likelihood="auto",
        architecture="auto",
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        l2_bound=None,
        image_shape=None,
        on_invalid="clip",
        preset=None,
        checkpoint=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.training, self.id_column = training, id_column
        self.budget_split, self.n_components, self.likelihood = budget_split, n_components, likelihood
        self.architecture = architecture
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.l2_bound, self.image_shape = bounds, l2_bound, image_shape
        self.on_invalid = on_invalid
        self.preset, self.checkpoint = preset, checkpoint
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    def _prepare(self, X, y, accountant, groups=None):
        if self.id_column is not None and self._unit is not None:
            raise ValueError(
                f"id_column= is for rows that are units: with unit={self._unit.name!r} all rows of a unit lie in one "
                "subset, which the unit draws; leave out id_column=. Nothing was charged"
            )
        settings = dp2vae_settings(self._resolve(presets=PRESETS), self._seed())
        if self.id_column is not None and accountant.neighboring == "replace_one":
            raise ValueError(
                "id_column= is for add_or_remove_one: a record that replaces another may have another id, and then two "
                "subsets change, where one is charged; leave it out (each record then draws its subset)"
            )
        X, ids = split_ids(X, self.id_column)
        rows = self._read(X, y, settings, groups)
        rows.ids = ids
        settings = with_split(settings, rows)
        facts = rows, settings, self._share("bounds"), self._relation(accountant)

        def phases_of(cells):
            return plan_phases(*facts, cells=cells)

        def calibrate(phases):
            return self._calibrate_phases(accountant, rows, phases)

        if may_cut_classes(rows, settings):
            plan = plan_with_cells(phases_of, accountant, calibrate)
        else:
            plan = calibrate(phases_of(False))
        check_noise_of_steps(plan.noise_multipliers["decoder"])
        cells = "cells" in plan.noise_multipliers
        settings = replace(settings, chunks=check_networks(settings, rows, cells=cells))
        return (rows, settings), plan

    def _read(self, X, y, settings, groups):
        """Validate the data; what is private stays in the object that comes back, and goes with it."""
        rows = validate_input(self, X, y, groups)
        if isinstance(rows, FrameRows):
            if settings.networks.likelihood != "auto":
                raise ValueError("likelihood= is for arrays: a DataFrame has one categorical distribution a column")
            if not rows.source.in_memory:
                raise InvalidInputError(
                    "DP2-VAE needs the rows in memory, as one DataFrame, such as pandas.concat(chunks). Tables in "
                    f"chunks are read by {CHUNK_READERS}"
                )
        elif settings.initial_steps is None:
            # no row is clipped as a whole, gradients are: the norm bound is that of the unit box
            rows.l2_bound = float(rows.X.shape[1]) ** 0.5
        return rows

    def _release(self, rows, settings, fit):
        model = fit_dp2vae_model(rows, settings, fit)
        if settings.features is not None:
            model.leading.generator.progress = self.progress
        return model

    def _public_assumptions(self, rows):
        ids = [] if rows.ids is None else ["ids: unique, say nothing of a record, and are no row numbers"]
        return [*super()._public_assumptions(rows), *ids]

    # ---- using the model -------------------------------------------------------------------------------------
    @usual_numerics()
    def score(self, X, y=None):
        """Return the mean log-likelihood of rows by latents drawn from the prior, a bound from below.

        It is computed from the rows given without protection: do not publish it.
        """
        check_is_fitted(self)
        if self.model_.kind == "array":
            X = split_ids(X, self.id_column, check=False)[0]
        elif isinstance(X := to_pandas(X), pd.DataFrame) and self.id_column in X.columns:
            X = X.drop(columns=self.id_column)
        return float(np.mean(self.model_.score_samples(self._rows_like_fit(X), y)))


def split_ids(X, id_column, check=True):
    """Take the column of ids, which is not modelled, off the rows; ids None without one.

    Raises InvalidInputError: no such column, or, with `check`, ids that would not do (see `hash_subsets`).
    """
    if id_column is None:
        return X, None
    if isinstance(X, pd.DataFrame):
        if id_column not in X.columns:
            raise InvalidInputError(f"id_column={id_column!r} is not a column of the frame")
        ids, rest = X[id_column], X.drop(columns=id_column)
    else:
        X = np.asarray(X)
        if X.ndim != 2 or isinstance(id_column, bool) or not isinstance(id_column, int | np.integer):
            raise InvalidInputError("id_column= of an array is the number of a column")
        if not 0 <= id_column < X.shape[1]:
            raise InvalidInputError(f"id_column={id_column} is not a column of {X.shape[1]}")
        ids, rest = X[:, id_column], np.delete(X, id_column, axis=1)
    if not check:
        return rest, None
    from ..dpsgd._subsets import check_ids

    try:
        check_ids(ids)
    except ValueError as error:
        raise InvalidInputError(f"id_column={id_column!r}: {error}") from None
    return rest, np.asarray(ids, dtype=object)


# ---- what is refused before the charge ----------------------------------------------------------------------------
def check_networks(settings, rows, *, cells=False):
    """Refuse, before anything is charged, what cannot be trained privately, or at all, or not in this memory.

    With `cells` the labels of networks may be those of sub-clusters.

    Returns: subsets at once in stage 1 and in stage 2. Raises ValueError: BatchNorm, dropout, shared modules, shapes
    that do not fit, a device that is not there, too little memory.
    """
    import torch

    from ..dpsgd._seeding import torch_seeded
    from ..nn._dp2vae import LIKELIHOODS, check_modules
    from ..nn._parameters import check_unknown_width

    check_device(settings.device)
    networks = settings.networks
    own = not (networks.encoder is None and networks.decoder is None)
    if isinstance(rows, FrameRows) and rows.levels_are_public:
        (n_features, n_classes), exact = rows.least_levels, True
    elif isinstance(rows, FrameRows):  # as many levels as there is room for
        n_features = len(rows.schema) * (max(rows.most_bins, rows.most_categories + 1) + 1)
        n_classes, exact = (2 if rows.target is not None else 0), False
        if own:
            fit_columns = functools.partial(_fit_columns, networks, n_classes)
            check_unknown_width(fit_columns, rows.least_levels[0], "architecture=", 'or give "mlp"')
    else:
        n_features, exact = rows.X.shape[1], not rows.learns_classes
        n_classes = len(rows.labels.classes or (0, 1)) if has_classes(rows) else 0
        n_classes *= MOST_SUBCLUSTERS if cells else 1
    per_column = LIKELIHOODS[likelihood_of(networks, rows)].outputs_per_column
    if per_column > 1 and networks.decoder is None and (name := networks.resolved_architecture) != "mlp":
        raise ValueError(
            f"architecture={name!r} gives one number a pixel, and likelihood={networks.likelihood!r} takes "
            f'{per_column}: use likelihood="bernoulli", architecture="mlp" or your own decoder'
        )
    n_outputs = n_features * per_column
    with torch_seeded(networks.seed):
        check_modules(*(template or torch.nn.Linear(1, 1) for template in (networks.encoder, networks.decoder)))
    encoder, decoder = make_networks(networks, n_features, n_classes, n_outputs)
    if exact or not own:
        _check_shapes(encoder, decoder, networks.n_components, n_features, n_classes, n_outputs)
    auxiliary = make_auxiliary(networks, n_outputs, n_classes) or decoder
    sizes = [sum(p.numel() for p in net.parameters()) for net in (encoder, auxiliary, decoder)]
    more = 0
    if shifts_gaussians(rows, settings):
        _check_gaussians(settings, max(n_classes, 1), n_features)
        more = max(n_classes, 1) * networks.n_components + 2 * n_features
    return _chunks(settings, *sizes, n_features + more)


def _check_gaussians(settings, n_gaussians, n_features):
    """Refuse released Gaussians whose slopes (of latents, columns and components) do not fit into memory."""
    from ..nn._dp2vae_training import readable

    n_latent, limit = settings.networks.n_components, settings.max_memory * 2**30
    numbers = n_gaussians * n_latent * n_features
    if (held := numbers * _BYTES_OF_SLOPES) > limit or numbers > MOST_SLOPES:
        raise ValueError(
            f"n_components={n_latent} latents of {n_gaussians} Gaussians of {n_features} pixels take {readable(held)}, "
            f"and at most max_memory={settings.max_memory:g} GiB and {MOST_SLOPES:,} numbers are allowed: lower "
            "n_components"
        )


def _chunks(settings, encoder_size, auxiliary_size, decoder_size, row_size):
    """Subsets at once in each stage, by memory; ValueError where the encoders do not fit."""
    from ..nn._dp2vae_training import bytes_needed, default_chunk, readable

    subsets, limit = settings.subsets, settings.max_memory * 2**30
    held = bytes_needed(encoder_size, subsets.n_subsets, subsets.encoder_update)
    if held > limit:
        fits = int(limit // bytes_needed(encoder_size, 1, subsets.encoder_update))
        raise ValueError(
            f"{subsets.n_subsets} encoders of {encoder_size} parameters take {readable(held)} in stage 2, more than "
            f"max_memory={settings.max_memory:g} GiB: at most {fits} fit"
        )
    shared = (settings.device, limit, settings.batch_size, row_size)
    first = default_chunk(encoder_size, auxiliary_size, *shared)[0]
    # stage 2 holds a gradient of the decoder itself for each subset of a chunk
    return first, min(first, default_chunk(encoder_size, decoder_size, *shared)[0])


def _fit_columns(networks, n_classes, n_features):
    """Raise RuntimeError where the user's networks do not take and give rows of a table of so many columns."""
    own = make_networks(networks, n_features, n_classes, n_features)
    _check_shapes(*own, networks.n_components, n_features, n_classes, n_features, error_class=RuntimeError)


def _check_shapes(encoder, decoder, n_latent, n_features, n_classes, n_outputs, *, error_class=ValueError):
    import torch

    from ..dpsgd._seeding import generator_states, torch_seeded

    with torch.no_grad(), torch_seeded(0):
        before = generator_states()[0]
        for role, net, n_in, n_out in (
            ("encoder", encoder, n_features, 2 * n_latent),
            ("decoder", decoder, n_latent, n_outputs),
        ):
            try:
                found = tuple(net(torch.zeros(3, n_in), torch.zeros(3, n_classes)).shape)
            except (RuntimeError, TypeError) as error:
                why = str(error).splitlines()[0]
                raise error_class(f"the {role} does not take rows of {n_in} and {n_classes} numbers: {why}") from None
            if found != (3, n_out):
                raise error_class(f"the {role} must give {n_out} numbers a row; it gave shape {found} for 3 rows")
            if not torch.equal(generator_states()[0], before):
                raise ValueError(f"the {role} draws random numbers, which would not be keyed by subset and step")
