"""What DP2-VAE releases in a fit, and what it refuses before: functions of public parameters alone."""

from __future__ import annotations

import copy
import math

import numpy as np
import pandas as pd

from ..accounting import Phase
from ..data.frames import FrameRows
from ..exceptions import InvalidInputError
from ..utils.validation import as_numbers

__all__ = [
    "PRESETS",
    "check_networks",
    "make_networks",
    "make_scratch",
    "plan_phases",
    "resolve_settings",
    "split_ids",
    "subset_plan",
]

# Share of the budget for the number of rows and the counts of the classes, where no moments tell them.
_COUNT_SHARE = 0.02
# (moments, decoder): the decoder's steps polish what the moments start.
_SPLIT = (0.5, 0.5)
_DEFAULT_PER_STEP = 50

_PAPER = {
    "n_subsets": 2500, "sampler": "one_of_k", "encoder_update": "on_query", "start": "random", "steps": 20_000,
    "refine_steps": 1,
}  # fmt: skip
PRESETS = {
    "paper/mnist": {**_PAPER, "architecture": "conv_28", "n_components": 8},
    "paper/fashion_mnist": {**_PAPER, "architecture": "conv_28", "n_components": 8},
    "paper/celeba": {**_PAPER, "architecture": "conv_faces", "n_components": 16},
}

# Parameters that act under some values of another alone.
_ACTS = {
    "start_steps": ("start", ("moments",)),
    "l2_bound": ("start", ("moments",)),
    "budget_split": ("start", ("moments",)),
    "refine_steps": ("encoder_update", ("stateless", "round_robin", "on_query")),
}


def resolve_settings(parameters, defaults):
    """Return the parameters as a dict, a preset's in the place of those it concerns.

    Raises
    ------
    ValueError
        Parameters that contradict one another, or that would do nothing in this combination.
    """
    from ..dpsgd._subsets import SubsetPlan

    settings = {name: value for name, value in parameters.items() if name != "accountant"}
    given = {name for name, value in settings.items() if not _same(value, defaults[name])}
    if settings["preset"] is not None:
        if settings["preset"] not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(map(repr, PRESETS))}; got {settings['preset']!r}")
        preset = PRESETS[settings["preset"]]
        if both := sorted(name for name in given & preset.keys() if not _same(settings[name], preset[name])):
            raise ValueError(f"preset={settings['preset']!r} sets {', '.join(both)}: leave out the one or the other")
        settings.update(preset)
    for name, (switch, values) in _ACTS.items():
        if name in given and settings[switch] not in values:
            told = " or ".join(map(repr, values))
            raise ValueError(f"{name}= is used with {switch}={told} alone")
    custom = [role for role in ("encoder", "decoder") if settings[role] is not None]
    if len(custom) == 2 and settings["architecture"] != "auto":
        raise ValueError("architecture= does nothing beside encoder= and decoder=")
    if settings["subsets_per_step"] is None:
        most = 1 if settings["sampler"] == "one_of_k" else _DEFAULT_PER_STEP
        settings["subsets_per_step"] = min(most, settings["n_subsets"])
    split = _SPLIT if settings["budget_split"] is None else as_numbers(settings["budget_split"], "budget_split")
    if np.shape(split) != (2,) or not 0 < sum(split) < np.inf or not 0 < 1e-6 * max(split) <= min(split):
        raise ValueError("budget_split must be two positive shares (moments, decoder), none a millionth of the other")
    settings["budget_split"] = tuple(float(share) for share in split)
    if settings["image_shape"] is not None and settings["target"] is not None:
        raise ValueError("image_shape is for arrays, target for DataFrames")
    fields = ("n_subsets", "steps", "sampler", "encoder_update")
    SubsetPlan(
        **{name: settings[name] for name in fields},
        noise_multiplier=0.0,
        per_step=settings["subsets_per_step"],
        gradient_bound=settings["gradient_bound"],
    )
    return settings


def _same(one, other):
    return one is other or (type(one) is type(other) and isinstance(one, str | int | float) and one == other)


def subset_plan(settings, noise_multiplier=0.0):
    """Stage 2's plan."""
    from ..dpsgd._subsets import SubsetPlan

    return SubsetPlan(
        n_subsets=settings["n_subsets"],
        steps=settings["steps"],
        noise_multiplier=noise_multiplier,
        per_step=settings["subsets_per_step"],
        gradient_bound=settings["gradient_bound"],
        sampler=settings["sampler"],
        encoder_update=settings["encoder_update"],
    )


def plan_phases(rows, settings, neighboring):
    """Return the phases of a fit, in the order of their releases."""
    learned = list(rows.phases(settings["bounds_share"]))
    from_moments = settings["start"] == "moments"
    if not from_moments and (neighboring != "replace_one" or has_classes(rows)):
        learned.append(Phase("counts", _COUNT_SHARE))
    rest = 1 - sum(phase.share for phase in learned)
    if rest <= 0:
        raise ValueError(f"bounds_share={settings['bounds_share']} leaves nothing to the training")
    moments, decoder = settings["budget_split"] if from_moments else (0.0, 1.0)
    rest /= moments + decoder
    phases = (
        [*learned, *rows.encoder_phases(moments * rest, class_norms=rows.may_have_class_norms)]
        if from_moments
        else learned
    )
    return [*phases, subset_plan(settings).phase("decoder", decoder * rest)]


def has_classes(rows):
    """Whether the model is conditional on classes; public."""
    if isinstance(rows, FrameRows):
        return rows.target is not None
    return rows.labels is not None and not rows.numeric_target


def split_ids(X, id_column, check=True):
    """Take the column of ids, which is not modelled, off the rows; ids None without one.

    Raises
    ------
    InvalidInputError
        No such column, or, with `check`, ids that would not do (see `hash_subsets`).
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


# ---- networks -----------------------------------------------------------------------------------------------------
def architecture_of(settings):
    """Name of the architecture: that of images where rows are images."""
    name = settings["architecture"]
    if name == "auto":
        return "patches" if settings["image_shape"] is not None else "mlp"
    if name != "mlp" and settings["image_shape"] is None:
        raise ValueError(f"architecture={name!r} is for images: give image_shape=")
    return name


def make_networks(settings, n_features, n_classes, n_outputs):
    """Encoder and decoder of the settings: initialised by the seed, or copies of the user's own."""
    from ..dpsgd._seeding import torch_seeded
    from ..nn._dp2vae import make_decoder, make_encoder

    kind = {"image_shape": _shape(settings)}
    with torch_seeded(settings["seed"]):
        name = architecture_of(settings)
        encoder, decoder = settings["encoder"], settings["decoder"]
        if encoder is None:
            encoder = make_encoder(name, n_features, n_classes, settings["n_components"], **kind)
        if decoder is None:
            decoder = make_decoder(name, n_outputs, n_classes, settings["n_components"], **kind)
    # deepcopy: a template of the user's keeps its parameters
    return copy.deepcopy(encoder), copy.deepcopy(decoder)


def make_scratch(settings, n_outputs, n_classes):
    """The decoder that stage 1 trains beside each encoder and throws away; None where it is a copy of the decoder.

    It is trained on the rows of one subset, 24 of 60,000: of "patches" a small one serves as well, and thousands of
    them take a fraction of the time.
    """
    from ..dpsgd._seeding import torch_seeded
    from ..nn._dp2vae import AUXILIARY, make_decoder

    if settings["decoder"] is not None or architecture_of(settings) != "patches":
        return None
    with torch_seeded(settings["seed"] + 1):
        return make_decoder(
            "patches", n_outputs, n_classes, settings["n_components"], image_shape=_shape(settings), **AUXILIARY
        )


def _shape(settings):
    return None if settings["image_shape"] is None else tuple(int(side) for side in settings["image_shape"])


def likelihood_of(settings, rows):
    """Name of the likelihood."""
    if isinstance(rows, FrameRows):
        return "table"
    if settings["likelihood"] != "auto":
        return settings["likelihood"]
    return "gaussian" if settings["image_shape"] is None else "bernoulli"


def check_networks(settings, rows):
    """Refuse, before anything is charged, what cannot be trained privately, or at all, or not in this memory.

    Returns
    -------
    int, int
        Subsets at once in stage 1 and in stage 2.

    Raises
    ------
    ValueError
        BatchNorm, dropout, shared modules, shapes that do not fit, a device that is not there, too little memory.
    """
    import torch

    from ..dpsgd._seeding import torch_seeded
    from ..nn._dp2vae import LIKELIHOODS, check_modules
    from ..nn._dp2vae_training import bytes_needed, default_chunk, readable

    try:
        torch.zeros(1, device=settings["device"])
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={settings['device']!r} cannot be used: {str(error).splitlines()[0]}") from None
    if isinstance(rows, FrameRows):  # levels may be learned: as many as there is room for
        n_features = len(rows.schema) * (max(rows.most_bins, rows.most_categories + 1) + 1)
        n_classes, exact = (2 if rows.target is not None else 0), False
    else:
        n_features, exact = rows.X.shape[1], True
        n_classes = len(rows.labels.classes or (0, 1)) if has_classes(rows) else 0
        exact = not rows.learns_classes
    per_column = LIKELIHOODS[likelihood_of(settings, rows)].outputs_per_column
    if per_column > 1 and settings["decoder"] is None and (name := architecture_of(settings)) != "mlp":
        raise ValueError(
            f"architecture={name!r} gives one number a pixel, and likelihood={settings['likelihood']!r} takes "
            f'{per_column}: use likelihood="bernoulli", architecture="mlp" or a decoder of your own'
        )
    n_outputs = n_features * per_column
    with torch_seeded(settings["seed"]):
        check_modules(*(settings[role] or torch.nn.Linear(1, 1) for role in ("encoder", "decoder")))
    encoder, decoder = make_networks(settings, n_features, n_classes, n_outputs)
    if exact or (settings["encoder"] is None and settings["decoder"] is None):
        _check_shapes(encoder, decoder, settings["n_components"], n_features, n_classes, n_outputs)
    scratch = make_scratch(settings, n_outputs, n_classes) or decoder
    sizes = [sum(p.numel() for p in net.parameters()) for net in (encoder, scratch)]
    limit = settings["max_memory"] * 2**30
    held = bytes_needed(sizes[0], settings["n_subsets"], settings["encoder_update"])
    if held > limit:
        fits = int(limit // bytes_needed(sizes[0], 1, settings["encoder_update"]))
        raise ValueError(
            f"{settings['n_subsets']} encoders of {sizes[0]} parameters take {readable(held)} in stage 2, more than "
            f"max_memory={settings['max_memory']:g} GiB: at most {fits} fit"
        )
    chosen, most = default_chunk(*sizes, settings["device"], limit, settings["batch_size"], n_features)
    if settings["chunk_size"] is not None and settings["chunk_size"] > most:
        raise ValueError(
            f"chunk_size={settings['chunk_size']} encoders at once would take more than "
            f"max_memory={settings['max_memory']:g} GiB: at most {most} fit"
        )
    first = settings["chunk_size"] or chosen
    # stage 2 holds a gradient of the decoder itself for each subset of a chunk
    decoder_size = sum(p.numel() for p in decoder.parameters())
    second = default_chunk(sizes[0], decoder_size, settings["device"], limit, settings["batch_size"], n_features)
    return first, min(first, second[0] if settings["chunk_size"] is None else second[1])


def _check_shapes(encoder, decoder, n_latent, n_features, n_classes, n_outputs):
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
                raise ValueError(f"the {role} does not take rows of {n_in} and {n_classes} numbers: {why}") from None
            if found != (3, n_out):
                raise ValueError(f"the {role} must give {n_out} numbers a row; it gave shape {found} for 3 rows")
            if not torch.equal(generator_states()[0], before):
                raise ValueError(f"the {role} draws random numbers, which would not be keyed by subset and step")


def expected_empty(n_subsets, row_count):
    """Share of the subsets that no row falls into, on average."""
    return math.exp(-row_count / n_subsets)
