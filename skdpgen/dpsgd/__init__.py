"""DP-SGD: Poisson batches, clipped sums of example gradients without the gradients themselves, and noise."""

from __future__ import annotations

from .checks import check_module, check_optimizer, choose_path
from .clipping import ClippedSum, LossModule, clipped_sum
from .loader import Batch, Chunk, PoissonLoader, poisson_batches
from .noise import GradientNoise
from .parts import PartedPlan, PartedSum
from .plan import DPSGDPlan
from .termwise import TermwiseAggregate, TermwisePlan
from .whole_batch import WholeBatchAggregate, WholeBatchPlan

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
