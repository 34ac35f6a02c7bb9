"""DP-SGD: Poisson batches, clipped sums of the gradients of single examples, and noise.

A plan (`_plan`) is what is charged; `GradientNoise.release` (`_noise`) is the one place that adds noise. Between them,
`_loader` draws the batches, to places that `_places` counts, and `_clipping`, by the rules of `_layers`, bounds the
contribution of each record.
"""

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
