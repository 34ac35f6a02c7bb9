"""What P3GM releases in a fit and at which share of the budget: a function of public parameters alone."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from ..accounting import Phase
from ..utils.validation import as_numbers
from ._presets import paper_settings

__all__ = ["has_class_sizes", "plan_fit", "plan_phases", "resolve_sampling", "resolve_settings"]

# Noise multiplier of the second moments up to which half of their budget is better spent on cells of the classes.
_MOST_NOISE_OF_CELLS = 1.0

# Shares of the budget (encoder, mixture, decoder) by prior and decoder. Where DP-SGD trains the decoder from a mixture
# prior, moments need little; where the moments are the whole model, they get all.
_SPLITS = {
    (False, False): (1.0, 0.0, 0.0),
    (True, False): (0.5, 0.5, 0.0),
    (False, True): (0.6, 0.0, 0.4),
    (True, True): (0.1, 0.15, 0.75),
}


# Parameters that act under one value of another alone.
_ACTS = {
    **dict.fromkeys(("n_mixture", "covariance_type", "em_steps"), ("prior", "mixture")),
    **dict.fromkeys(
        (
            "latent_variance", "likelihood", "n_monte_carlo", "sampling_rate", "steps", "batch_size", "epochs",
            "gradient_bound", "warm_start_steps", "net", "device",
        ),
        ("decoder", "net"),
    ),
}  # fmt: skip


def resolve_settings(parameters, defaults):
    """Return the parameters of a synthesizer as a dict, a preset's in the place of those it concerns.

    Parameters
    ----------
    parameters, defaults : dict
        What was asked for, and the constructor's defaults.

    Raises
    ------
    ValueError
        Parameters that contradict one another, or that would do nothing in this combination.
    """
    settings = {name: value for name, value in parameters.items() if name != "accountant"}
    given = {name for name, value in settings.items() if not _same(value, defaults[name])}
    if settings["preset"] is not None:
        preset = paper_settings(settings["preset"])
        if both := sorted(name for name in given & preset.keys() if not _same(settings[name], preset[name])):
            raise ValueError(f"preset={settings['preset']!r} sets {', '.join(both)}: leave out the one or the other")
        settings.update(preset)
    for name, (switch, value) in _ACTS.items():
        if name in given and settings[switch] != value:
            raise ValueError(f'{name}= is used with {switch}="{value}" alone')
    for name, other in (("sampling_rate", "batch_size"), ("steps", "epochs")):
        if settings[other] is not None and name in given:
            raise ValueError(f"{name} and {other} set the same thing: give one of them")
    if settings["budget_split"] is not None:
        split = as_numbers(settings["budget_split"], "budget_split")
        least = 1e-6 * split.max(initial=0)
        if split.shape != (3,) or not 0 < split.sum() < np.inf or not ((split == 0) | (split >= least)).all():
            raise ValueError(
                "budget_split must be three shares (encoder, mixture, decoder), not negative: each 0, or a millionth "
                "of the largest at least"
            )
        settings["budget_split"] = tuple(split / split.sum())
    if settings["image_shape"] is not None and settings["target"] is not None:
        raise ValueError("image_shape is for arrays, target for DataFrames")
    return settings


def _same(one, other):
    plain = (str, Real, tuple)  # arrays and objects are never a default
    return one is other or (isinstance(one, plain) and isinstance(other, plain) and one == other)


def resolve_sampling(settings, n_rows, neighboring):
    """Return `sampling_rate` and `steps` as `batch_size` and `epochs` set them, where the number of rows is public."""
    batch_size, epochs = settings["batch_size"], settings["epochs"]
    if batch_size is None and epochs is None:
        return {}
    if neighboring != "replace_one":
        raise ValueError(
            "batch_size and epochs need the number of rows, which is private under add_or_remove_one: "
            "give sampling_rate and steps"
        )
    rate = settings["sampling_rate"] if batch_size is None else min(1.0, batch_size / n_rows)
    return {"sampling_rate": rate, "steps": settings["steps"] if epochs is None else math.ceil(epochs / rate)}


def plan_fit(rows, settings, accountant, calibrate):
    """Return the calibrated plan of a fit; where its noise is low enough, classes of images are cut into cells.

    A fit within another, whose phases are planned before its noise is known, has none.

    Parameters
    ----------
    rows, settings
        As for `plan_phases`.
    accountant : PrivacyAccountant
    calibrate : callable
        Phases -> FitPlan; charges nothing.
    """
    plan = calibrate(plan_phases(rows, settings))
    wanted = rows.may_have_subclusters and not accountant.fixed_phases and settings["decoder"] == "released"
    cells = wanted and plan.noise_multipliers["moments"] <= _MOST_NOISE_OF_CELLS
    return calibrate(plan_phases(rows, settings, cells=True)) if cells else plan


def has_class_sizes(rows, settings):
    """Whether norms are released class by class: for Gaussians of rows of numbers; public."""
    return rows.may_have_class_norms and settings["decoder"] == "released" and settings["prior"] != "mixture"


def plan_phases(rows, settings, *, cells=False):
    """Return the phases of a fit, in the order of their releases.

    Parameters
    ----------
    rows : ArrayRows or FrameRows
        Only what is public of them: which facts were declared.
    settings : dict
        With `prior` resolved.
    cells : bool, default=False
        Half of the encoder's share is for the moments of cells of the classes.

    Returns
    -------
    list of Phase
    """
    mixture, net = settings["prior"] == "mixture", settings["decoder"] == "net"
    split = _SPLITS[mixture, net] if settings["budget_split"] is None else tuple(settings["budget_split"])
    for share, used, name in zip(split, (True, mixture, net), ("encoder", "mixture", "decoder")):
        if used and not share > 0:
            raise ValueError(f"budget_split gives nothing to the {name}, which this model has")
        if share > 0 and not used:
            raise ValueError(f"budget_split gives a share to the {name}, which this model does not have")
    learned = rows.phases(settings["bounds_share"])
    rest = (1 - sum(phase.share for phase in learned)) / sum(split)
    if rest <= 0:
        raise ValueError(f"bounds_share={settings['bounds_share']} leaves nothing to the model")
    encoder, em, decoder = (share * rest for share in split)
    sizes = has_class_sizes(rows, settings)
    phases = [*learned, *rows.encoder_phases(encoder / 2 if cells else encoder, class_norms=sizes)]
    if cells:
        phases.append(Phase("cells", encoder / 2))
    if mixture:
        phases.append(Phase("mixture", em, steps=settings["em_steps"]))
    if net:
        phases.append(Phase("decoder", decoder, steps=settings["steps"], sampling_rate=settings["sampling_rate"]))
    return phases
