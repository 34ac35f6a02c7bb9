"""Networks: plain modules with per-record losses, and the one trainer that makes them private."""

from __future__ import annotations

from ._callbacks import ParameterAverage, StepCheckpoint
from ._classifier import ClassifierModule, DPNetClassifier
from ._divergences import CauchyMMD, KLFromPrior, UserDivergence, cauchy_mmd
from ._dp_net import DPNet, PerExampleLoss
from ._latent_priors import GaussianMixturePrior, NormalPrior, SparsePrior
from ._likelihoods import BernoulliLikelihood, GaussianLikelihood, LaplaceLikelihood, TableLikelihood
from ._p3gm import P3GMModule, mlp
from ._partitioned import PartitionedVAEModule, ScaledParts
from ._priors import MixturePrior
from ._privae import PriVAEModule
from ._sparse_encoder import SparseEncoder

__all__ = [
    "BernoulliLikelihood",
    "CauchyMMD",
    "ClassifierModule",
    "DPNet",
    "DPNetClassifier",
    "GaussianLikelihood",
    "GaussianMixturePrior",
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
    "TableLikelihood",
    "UserDivergence",
    "cauchy_mmd",
    "mlp",
]
