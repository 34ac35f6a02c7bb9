"""DP-SGD: Poisson batches, clipped sums of example gradients without the gradients themselves, and noise."""

from __future__ import annotations

from ._checks import check_module, check_optimizer, choose_path
from ._clipping import ClippedSum, LossModule, PartedSum, clipped_sum
from ._loader import Batch, Chunk, PoissonLoader, poisson_batches
from ._noise import GradientNoise
from ._plan import DPSGDPlan, PartedPlan
from ._termwise import TermwiseAggregate, TermwisePlan, WholeBatchAggregate, WholeBatchPlan

__all__ = [
    "Batch",
    "Chunk",
    "ClippedSum",
    "DPSGDPlan",
    "GradientNoise",
    "LossModule",
    "PartedPlan",
    "PartedSum",
    "PoissonLoader",
    "TermwiseAggregate",
    "TermwisePlan",
    "WholeBatchAggregate",
    "WholeBatchPlan",
    "check_module",
    "check_optimizer",
    "choose_path",
    "clipped_sum",
    "poisson_batches",
]
