"""Settings and budgets of fits: which releases a model makes, at which share; the published settings of P3GM.

Everything here follows from public parameters alone, except `ChargedFit`, which a charge hands to the releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from sklearn.base import clone

from .._parameters import DPSGD, LatentMixture
from .._types import UnitRelation
from ..accounting import FitPlan, Phase, gaussian_mu
from ..mechanisms import add_gaussian
from ..utils.progress import shows_bars
from ..utils.validation import as_numbers

# Share of the budget for the number of rows and the counts of the classes, where no moments hold them. Gradients are
# divided by them, and `sample` draws by them.
COUNT_SHARE = 0.02

# Share of the budget of the tables for the interactions of triples of columns.
_TRIPLES_SHARE = 0.01

# Noise multiplier of the second moments up to which half of their budget is better spent on sub-clusters of classes.
_MOST_NOISE_OF_CELLS = 1.0

# Shares of the budget (encoder, mixture, decoder) by prior and decoder. Where DP-SGD trains the decoder from a mixture
# prior, moments need little; where the moments are the whole model, they get all.
_SPLITS = {
    (False, False): (1.0, 0.0, 0.0),
    (True, False): (0.5, 0.5, 0.0),
    (False, True): (0.6, 0.0, 0.4),
    (True, True): (0.1, 0.15, 0.75),
}
# Where the network refines the decoder of the moments, they remain most of the model.
_REFINED_SPLIT = (0.8, 0.0, 0.2)
# Where it refines images, half of the moments' share is for their features.
_REFINED_IMAGES_SPLIT = (0.9, 0.0, 0.1)
# The moments of features are as important as those of the pixels.
_FEATURES_SPLIT = (0.5, 0.0, 0.5)
# Images whose features are released by default: on those of 8 x 8 pixels it gains nothing, and on far larger ones than
# it was measured on (28 x 28) sampling would take long.
_SMALLEST_SIDE, _MOST_PIXELS = 16, 1 << 14


# ---- what a fit carries -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Training:
    """DP-SGD: what one record may do to a step, and how often."""

    sampling_rate: float  # probability of a record to take part in a step
    steps: int
    gradient_bound: float  # norm to which the gradient of one record is clipped

    def phase(self, label, share):
        """The phase of these steps."""
        return Phase(label, share, steps=self.steps, sampling_rate=self.sampling_rate)


@dataclass(frozen=True, eq=False)
class Network:
    """How networks are trained, whatever they model."""

    template: object | None  # DPNet or None; cloned; None is the default of the synthesizer
    noise: str
    device: str
    seed: int  # of the initialisation
    progress: bool
    has_checkpoint: bool = False  # whether the fit has a checkpoint, which becomes the file of the released model

    @classmethod
    def of(cls, parameters, seed):
        """From the parameters of a synthesizer."""
        own = (parameters.get("net"), parameters["noise"], parameters["device"])
        return cls(*own, seed, shows_bars(parameters["progress"]), parameters.get("checkpoint") is not None)

    def has_own_layers(self, usual):
        """Whether the module is of another class than the usual one, or gets modules as its parameters."""
        from torch import nn

        if self.template is None:
            return False
        given = self.template.get_params_for("module").values()
        return self.template.module is not usual or any(isinstance(value, nn.Module) for value in given)

    def check_saved(self, can_be_saved):
        """Refuse a checkpoint of a model that cannot be saved; before the charge."""
        if self.has_checkpoint and not can_be_saved:
            raise ValueError(
                "checkpoint= is for models that can be saved, and files of models hold no code: leave out "
                "checkpoint=, or your own modules"
            )

    def check(self):
        """Refuse a template that is no `DPNet`, and a device that torch does not have."""
        from ..nn._dp_net import check_template

        check_template(self.template)
        check_device(self.device)

    def make(self, default, plan, progress_text, **module):
        """The net of one fit: the template, or ``default()``, with a plan and parameters of its module.

        Raises ValueError: a template that sets one of these parameters itself, or whose module does not take it.
        """
        net = default()
        if self.template is not None:
            from ..nn._parameters import check_made

            check_made(self.template, module, net.module)
            net = clone(self.template)
        return net.set_params(
            plan=plan,
            noise=self.noise,
            device=self.device,
            random_state=self.seed,
            progress_text=progress_text,
            verbose=2 if self.progress else 0,
            **{f"module__{name}": value for name, value in module.items()},
        )


@dataclass(frozen=True)
class MomentSettings:
    """What is made of released moments: of P3GM, Moment, and the initialisation of DP2-VAE."""

    n_components: int | str | None = "auto"  # latent dimensions; None is no reduction
    progress: bool = False
    mixture: object | None = None  # LatentMixture or None; prior by DP-EM; None is the Gaussians of the moments
    # DecoderSettings or None; trained by DP-SGD; None is the function of the released moments
    decoder: object | None = None
    units: object | None = None  # UnitSettings or None; what is released of units of several rows; None is nothing
    # ImageFeatures or None; images: the wavelet features whose moments are released too, and to which samples are
    # moved; None is neither
    features: object | None = None
    # DataFrames: share of the budget of the gradient that corrects the model of the target; 0 is no such model
    target_share: float = 0.0

    @property
    def moments_alone(self):
        """Whether the released moments are the whole model."""
        return self.mixture is None and self.decoder is None

    @property
    def draws_gaussians(self):
        """Whether rows are drawn by the released Gaussians, perhaps shifted by a network that refines them."""
        return self.mixture is None and (self.decoder is None or self.decoder.refines)

    def has_class_norms(self, rows):
        """Whether norms are released class by class: for Gaussians of rows of numbers; public."""
        return rows.may_have_class_norms and self.moments_alone

    def has_second_look(self, rows):
        """Whether categories and ranges may have a second release; the moments get what it does not need; public."""
        return rows.may_look_twice and self.moments_alone

    def has_triples(self, rows):
        """Whether interactions of triples of columns are released after the tables; public."""
        return rows.may_have_triples and self.moments_alone


@dataclass(frozen=True, eq=False)
class ChargedFit:
    """What the releases of a fit need, once it is charged."""

    plan: FitPlan  # as it was charged
    rng: object  # NoiseGenerator; the noise of all releases
    neighboring: object  # str or UnitRelation; the relation that the noise of the releases follows
    receipt: object  # Receipt; covers the plans of DP-SGD
    # for what needs no privacy: initialisation of EM, synthetic rows. It may follow `random_state`.
    stream: np.random.Generator
    checkpoint: object | None = None  # FitCheckpoint or None; where the fit is written, and what it goes on from

    @property
    def noise(self):
        """Noise multiplier of each release, by its label; of a fit that goes on, of the training alone."""
        noise = self.plan.noise_multipliers
        if self.checkpoint is None or not self.checkpoint.resumed:
            return noise
        return {phase.label: noise[phase.label] for phase in self.plan.phases if phase.sampling_rate is not None}

    @property
    def progress_text(self):
        """What a progress bar says of the training."""
        return f"epsilon {self.plan.epsilon:.3g}"

    @property
    def starts_training(self):
        """Whether the training begins, rather than goes on from the checkpoint."""
        return self.checkpoint is None or self.checkpoint.training is None

    def facts(self, release, state, restore):
        """Make the releases before the training; a fit that goes on has them from its checkpoint.

        Arguments as in `FitCheckpoint.facts`; a fit without a checkpoint calls `release` alone.
        """
        return release() if self.checkpoint is None else self.checkpoint.facts(release, state, restore)

    def cover(self, plan):
        """Let the training follow a plan, from its beginning or from the checkpoint on."""
        plan = self.receipt.cover(plan)
        if self.checkpoint is not None:
            self.checkpoint.follow(plan)
        return plan

    def row_count(self, n_rows, released):
        """Number of rows: the exact one where it is public, else a released one."""
        return float(n_rows) if self.neighboring == "replace_one" else float(released)

    def step_size(self, row_count, counted):
        """Released number of what a step of DP-SGD samples: rows, or units where each of them counts 1.

        `row_count`: public or released number of rows. `counted`: released sum of the weights of the rows: the number
        of units where each of them counts 1.
        """
        unit = self.plan.unit
        return float(counted if unit is not None and unit.weighting == "units" else row_count)

    def sample_size(self, rows, released):
        """Number of rows to sample, as `row_count`; where units count 1, a separate release (`row_count`)."""
        noise = self.plan.noise_multipliers
        if "row_count" not in noise:
            return self.row_count(len(rows), released)
        return once(
            self.checkpoint,
            "row_count",
            lambda: max(float(add_gaussian(rows.kept_rows(), noise["row_count"], self.rng, self.neighboring)[0]), 1.0),
        )

    def noise_of_rows(self, label):
        """Noise of a release relative to what one row adds: a unit may add several."""
        unit = self.plan.unit
        return self.noise[label] * (1 if unit is None else unit.weight)


def once(checkpoint, name, make):
    """Make a number of a fit by units; a fit that goes on has it from its checkpoint (see `FitCheckpoint.once`)."""
    return make() if checkpoint is None else checkpoint.once(name, make)


# ---- parameters ---------------------------------------------------------------------------------------------------
def resolve_parameters(parameters, defaults, *, named=(), presets=None, acts=None):
    """Return the parameters of a synthesizer, a preset's in the place of those it concerns.

    `parameters`, `defaults`: what was asked for, and the defaults, as `flat_parameters` gives them.
    `named`: parameters that were given, even where the value is the default.
    `presets`: name of a preset -> its parameters; ValueError for an unknown one.
    `acts`: name of a parameter -> (name of another, its values under which the first has an effect).
    Raises ValueError: parameters that contradict one another, or that would do nothing in this combination.
    """
    settings = {name: value for name, value in parameters.items() if name != "accountant"}
    given = {name for name in settings if name in defaults and not _same(settings[name], defaults[name])}
    given |= set(named)
    if settings.get("preset") is not None:
        preset = dict(presets(settings["preset"]))
        split = settings["budget_split"]
        if split is not None and not split.keys() & preset.get("budget_split", {}).keys():
            preset["budget_split"] = {**split, **preset.get("budget_split", {})}  # such as the share of "bounds"
            given -= {"budget_split"}
        if both := sorted(name for name in given & preset.keys() if not _same(settings[name], preset[name])):
            raise ValueError(f"preset={settings['preset']!r} sets {', '.join(both)}: leave out the one or the other")
        settings.update(preset)
    for name, (switch, values) in (acts or {}).items():
        if name in given and settings[switch] not in values:
            of = " of training=" if name in DPSGD._get_param_names() else ""
            raise ValueError(f"{name}={of} is used only with {switch}={' or '.join(map(repr, values))}")
    for name, other in (("sampling_rate", "batch_size"), ("steps", "epochs")):
        if "epochs" in settings and settings[other] is not None and name in given:
            raise ValueError(f"{name} and {other} set the same thing: give one of them")
    if settings["image_shape"] is not None and settings["target"] is not None:
        raise ValueError("image_shape is for arrays, target for DataFrames")
    return settings


def _same(one, other):
    plain = (str, Real, tuple)  # other arrays and objects are never a default
    one, other = _as_tuple(one), _as_tuple(other)
    return one is other or (isinstance(one, plain) and isinstance(other, plain) and one == other)


def _as_tuple(value):
    """Sizes as a tuple, where they are a list or an array; anything else as it is."""
    listed = isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return tuple(value) if listed and all(isinstance(size, Real) for size in value) else value


def resolve_sampling(training, n_rows, relation, /, *, batch_size=None, epochs=None, **others):
    """Return a `Training` as `batch_size` and `epochs` set it, where the number of rows is public.

    Between units it is private under both relations: a unit may have any number of rows. The other parameters of a
    synthesizer may come along, and have no effect.
    """
    if batch_size is None and epochs is None:
        return training
    if isinstance(relation, UnitRelation):
        raise ValueError(
            "batch_size and epochs need the number of rows, which is private with units, as a unit may have any number "
            "of them: give sampling_rate and steps; nothing was charged"
        )
    if relation != "replace_one":
        raise ValueError(
            "batch_size and epochs need the number of rows, which is private under add_or_remove_one: "
            "give sampling_rate and steps"
        )
    rate = training.sampling_rate if batch_size is None else min(1.0, batch_size / n_rows)
    steps = training.steps if epochs is None else math.ceil(epochs / rate)
    return replace(training, sampling_rate=rate, steps=steps)


def check_device(device):
    """Raise ValueError for a device that torch does not have."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r} cannot be used: {str(error).splitlines()[0]}") from None


# ---- phases -------------------------------------------------------------------------------------------------------
def remaining_share(learned, message):
    """Share of the budget that the phases of learned facts leave; ValueError with `message` where that is nothing."""
    rest = 1 - sum(phase.share for phase in learned)
    if rest <= 0:
        raise ValueError(message)
    return rest


def moment_split(budget_split):
    """Return `budget_split` of P3GM as three shares that sum to 1, or None."""
    split = relative_shares(budget_split, ("encoder", "mixture", "decoder"))
    if split is None:
        return None
    if not 0 < split.sum() < np.inf or not ((split == 0) | (split >= 1e-6 * split.max())).all():
        raise ValueError(
            '"encoder", "mixture" and "decoder" of budget_split must be finite and not negative: each 0, or a '
            "millionth of the largest at least"
        )
    return tuple(split / split.sum())


def relative_shares(budget_split, names):
    """Return the relative shares of a `budget_split` as an array, 0 for a name that it lacks; None without any."""
    split = budget_split or {}
    if not any(name in split for name in names):
        return None
    shares = as_numbers([split.get(name, 0.0) for name in names], "budget_split")
    if shares.shape != (len(names),):
        raise ValueError("budget_split must hold one number for each name")
    return shares


def plan_moments(rows, model, bounds_share, accountant, calibrate, *, split=None):
    """Return the calibrated plan of a fit of P3GM or Moment; at low noise, classes of images have sub-clusters.

    A fit within another, whose phases are planned before its noise is known, has none.

    `rows`, `model`, `bounds_share`, `split`: as for `moment_phases`. `calibrate`: phases -> FitPlan; charges nothing.
    """

    def phases_of(cells):
        return moment_phases(rows, model, bounds_share, split=split, cells=cells)

    possible = rows.may_have_subclusters and (model.decoder is None or model.decoder.refines)
    return plan_with_cells(phases_of, accountant, calibrate) if possible else calibrate(phases_of(False))


def plan_with_cells(phases_of, accountant, calibrate):
    """Return the calibrated plan of a fit of images, whose classes have sub-clusters where the noise is low.

    `phases_of`: whether there is the release `cells` -> phases. `accountant`, `calibrate`: as for `plan_moments`.
    """
    if accountant.charged_labels is not None:  # of a fit that goes on
        return calibrate(phases_of("cells" in accountant.charged_labels))
    plan = calibrate(phases_of(False))
    weight = 1 if plan.unit is None else plan.unit.weight
    cells = not accountant.fixed_phases and weight * plan.noise_multipliers["moments"] <= _MOST_NOISE_OF_CELLS
    return calibrate(phases_of(True)) if cells else plan


def suits_features(image_shape):
    """Whether the moments of wavelet features are released by default of images of this shape; public."""
    return min(image_shape[:2]) >= _SMALLEST_SIDE and math.prod(image_shape) <= _MOST_PIXELS


def moment_phases(rows, model, bounds_share, *, split=None, cells=False):
    """Return the phases of a fit of P3GM or Moment, in the order of their releases.

    `rows`: only what is public of them: which facts were declared.
    `model`: which phases the model has.
    `bounds_share`: share of each kind of fact that is learned.
    `split`: shares of encoder, mixture and decoder in the rest; None depends on which of them there are.
    `cells`: half of the encoder's share is for the moments of sub-clusters of the classes. With a network beside
        features, half of it is for the features first.
    """
    shares = _shares_of_parts(model, split)
    learned = rows.phases(bounds_share, twice=True) if model.has_second_look(rows) else rows.phases(bounds_share)
    gradient = [Phase("target", model.target_share)] if model.target_share else []
    target = f', with "target": {model.target_share:g},' if gradient else ""
    message = f'"bounds": {bounds_share:g}{target} of budget_split leaves nothing to the model'
    rest = remaining_share([*learned, *gradient], message) / sum(shares)
    encoder, mixture, decoder = (share * rest for share in shares)
    features = decoder
    if model.features is not None and model.decoder is not None:
        encoder, features = encoder / 2, encoder / 2
    phases = [*learned, *_encoder_phases(rows, model, encoder, cells)]
    if model.mixture is not None:
        phases.append(Phase("mixture", mixture, steps=model.mixture.n_iter))
    if model.features is not None:
        phases.append(Phase("features", features))
    if model.decoder is not None:
        phases.append(model.decoder.training.phase("decoder", decoder))
    return [*phases, *gradient]


def _shares_of_parts(model, split):
    """Return the shares of encoder, mixture and decoder: `split`, or the default of such a model."""
    mixture, net, features = (part is not None for part in (model.mixture, model.decoder, model.features))
    if split is None:
        split = _REFINED_SPLIT if net and model.decoder.refines else _SPLITS[mixture, net]
        split = (_REFINED_IMAGES_SPLIT if net else _FEATURES_SPLIT) if features else split
    for share, used, name in zip(split, (True, mixture, net or features), ("encoder", "mixture", "decoder")):
        if used and not share > 0:
            of = ' (of images, their features; decoder="released" has none)' if name == "decoder" and features else ""
            raise ValueError(f"budget_split gives nothing to the {name}, which this model has{of}")
        if share > 0 and not used:
            raise ValueError(f"budget_split gives a share to the {name}, which this model does not have")
    return split


def _encoder_phases(rows, model, share, cells):
    """Divide the share of the encoder between the moments, or tables, and what is released beside them."""
    triples = share * _TRIPLES_SHARE if model.has_triples(rows) else 0.0
    units = 0.0 if model.units is None else share * model.units.share
    pairs = share * model.units.pair_share if units else 0.0
    left = (share / 2 if cells else share) - triples - units - pairs
    beside = {"triples": triples, "units": units, "unit_pairs": pairs, "cells": share / 2 if cells else 0.0}
    return [
        *rows.encoder_phases(left, class_norms=model.has_class_norms(rows)),
        *(Phase(label, part) for label, part in beside.items() if part),
    ]


# ---- published settings of P3GM -----------------------------------------------------------------------------------
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
