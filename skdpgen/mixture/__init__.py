"""Gaussian mixtures from released sums."""

from __future__ import annotations

from ._dp_gaussian_mixture import DPGaussianMixture
from ._em import GaussianMixtureParameters, class_gaussians, dp_em, em_step, initial_mixture

__all__ = [
    "DPGaussianMixture",
    "GaussianMixtureParameters",
    "class_gaussians",
    "dp_em",
    "em_step",
    "initial_mixture",
]
