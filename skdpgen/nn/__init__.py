"""Networks: plain modules with per-record losses, and the one trainer that makes them private."""

from __future__ import annotations

from ._callbacks import ParameterAverage, StepCheckpoint
from ._dp_net import DPNet, PerExampleLoss
from ._likelihoods import BernoulliLikelihood, GaussianLikelihood, TableLikelihood
from ._p3gm import P3GMModule, mlp
from ._priors import MixturePrior

__all__ = [
    "BernoulliLikelihood",
    "DPNet",
    "GaussianLikelihood",
    "MixturePrior",
    "P3GMModule",
    "ParameterAverage",
    "PerExampleLoss",
    "StepCheckpoint",
    "TableLikelihood",
    "mlp",
]
