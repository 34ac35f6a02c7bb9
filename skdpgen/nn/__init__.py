"""Networks: plain modules with one loss for each record, and the one trainer that makes them private.

`DPNet` (`_dp_net`) follows a plan of `skdpgen.dpsgd` that was charged. Modules (`_modules`) are made of networks
(`_networks`), priors (`_priors`), likelihoods (`_likelihoods`) and divergences (`_divergences`).
"""

from __future__ import annotations

from ._callbacks import ParameterAverage, ScaledParts, StepCheckpoint
from ._classifier import ClassifierModule, DPNetClassifier
from ._divergences import CauchyMMD, KLFromPrior, UserDivergence, cauchy_mmd
from ._dp_net import DPNet, PerExampleLoss
from ._likelihoods import BernoulliLikelihood, GaussianLikelihood, LaplaceLikelihood, TableLikelihood
from ._modules import P3GMModule, PartitionedVAEModule, PriVAEModule
from ._networks import SparseEncoder, mlp
from ._priors import GaussianMixturePrior, MixturePrior, NormalPrior, SparsePrior
from ._refinement import ImageRefinementModule, TableAnchor, TableRefinementModule

__all__ = [
    "BernoulliLikelihood",
    "CauchyMMD",
    "ClassifierModule",
    "DPNet",
    "DPNetClassifier",
    "GaussianLikelihood",
    "GaussianMixturePrior",
    "ImageRefinementModule",
    "KLFromPrior",
    "LaplaceLikelihood",
    "MixturePrior",
    "NormalPrior",
    "P3GMModule",
    "ParameterAverage",
    "PartitionedVAEModule",
    "PerExampleLoss",
    "PriVAEModule",
    "ScaledParts",
    "SparseEncoder",
    "SparsePrior",
    "StepCheckpoint",
    "TableAnchor",
    "TableLikelihood",
    "TableRefinementModule",
    "UserDivergence",
    "cauchy_mmd",
    "mlp",
]
