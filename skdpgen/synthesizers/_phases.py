"""Releases of models of moments, and their shares of the budget: functions of public parameters alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..accounting import Phase
from ..utils.validation import as_numbers

# Share of the budget for the number of rows and the counts of the classes, where no moments hold them. Gradients are
# divided by them, and `sample` draws by them.
COUNT_SHARE = 0.02

# Share of the budget of the tables for the interactions of triples of columns.
_TRIPLES_SHARE = 0.01

# Share of what the other learned facts and the model of the target leave, for a second count of numbers and dates where
# rows are few (see `hides_ranges`); where they are not, categories are counted a third time at this charge if many rows
# are still in rare ones, and else the moments are released again.
_AGAIN_SHARE = 0.3

# Noise multiplier of the second moments up to which half of their budget is better spent on sub-clusters of classes.
_MOST_NOISE_OF_CELLS = 1.0

# Shares of the budget (encoder, mixture, decoder) by what a model has beside its moments (see `_kind_of`). Where DP-SGD
# trains the decoder from a mixture prior, moments need little; where the moments are the whole model, they get all.
_SPLITS = {
    "moments": (1.0, 0.0, 0.0),
    "mixture": (0.5, 0.5, 0.0),
    "network": (0.6, 0.0, 0.4),
    "mixture and network": (0.1, 0.15, 0.75),
    "refining network": (0.8, 0.0, 0.2),  # it refines the decoder of the moments, which remain most of the model
    "features": (0.5, 0.0, 0.5),  # as important as the moments of the pixels
    "features and network": (0.9, 0.0, 0.1),  # half of the moments' share is for their features
}
# Images whose features are released by default: on those of 8 x 8 pixels it gains nothing, and on far larger ones than
# it was measured on (28 x 28) sampling would take long.
_SMALLEST_SIDE, _MOST_PIXELS = 16, 1 << 14


@dataclass(frozen=True)
class MomentSettings:
    """What is made of released moments: of P3GM, Moment, and the initialisation of DP2-VAE."""

    n_components: int | str | None = "auto"  # latent dimensions; None is no reduction
    progress: bool = False
    mixture: object | None = None  # LatentMixture, the prior by DP-EM; None is the Gaussians of the moments
    # DecoderSettings, trained by DP-SGD; None is the function of the released moments
    decoder: object | None = None
    units: object | None = None  # UnitSettings: what is released of units of several rows; None is nothing
    # ImageFeatures of images: the wavelet features whose moments are released too, and to which samples are
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
    twice = {"twice": True} if rows.may_look_twice and model.moments_alone else {}
    learned = rows.phases(bounds_share, **twice)
    gradient = [Phase("target", model.target_share)] if model.target_share else []
    target = f', with "target": {model.target_share:g},' if gradient else ""
    message = f'"bounds": {bounds_share:g}{target} of budget_split leaves nothing to the model'
    rest = remaining_share([*learned, *gradient], message)
    if rows.may_count_again and model.moments_alone:
        learned = rows.phases(bounds_share, **twice, again=_AGAIN_SHARE * rest)
        rest *= 1 - _AGAIN_SHARE
    rest /= sum(shares)
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
    split = _SPLITS[_kind_of(model)] if split is None else split
    for share, used, name in zip(split, (True, mixture, net or features), ("encoder", "mixture", "decoder")):
        if used and not share > 0:
            of = ' (of images, their features; decoder="released" has none)' if name == "decoder" and features else ""
            raise ValueError(f"budget_split gives nothing to the {name}, which this model has{of}")
        if share > 0 and not used:
            raise ValueError(f"budget_split gives a share to the {name}, which this model does not have")
    return split


def _kind_of(model):
    """What a model has beside its moments, as `_SPLITS` names it."""
    if model.features is not None:
        return "features" if model.decoder is None else "features and network"
    if model.decoder is None:
        return "moments" if model.mixture is None else "mixture"
    if model.decoder.refines:
        return "refining network"
    return "network" if model.mixture is None else "mixture and network"


def _encoder_phases(rows, model, share, cells):
    """Divide the share of the encoder between the moments, or tables, and what is released beside them."""
    triples = share * _TRIPLES_SHARE if rows.may_have_triples and model.moments_alone else 0.0
    units = 0.0 if model.units is None else share * model.units.share
    pairs = share * model.units.pair_share if units else 0.0
    left = (share / 2 if cells else share) - triples - units - pairs
    beside = {"triples": triples, "units": units, "unit_pairs": pairs, "cells": share / 2 if cells else 0.0}
    return [
        *rows.encoder_phases(left, class_norms=model.has_class_norms(rows)),
        *(Phase(label, part) for label, part in beside.items() if part),
    ]
