"""Models of disjoint parts of the records, trained as one network: parallel composition without an event of its own.

The parameters of all the models are one vector. The gradient of a record is zero outside the block of the model of its
own part, so its norm, clipped, bounds what the record does to all of them: one sum, one draw of noise, one sampling
rate and one number of steps for all parts, whatever their sizes, and the price of one model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_map

from ._clipping import ClippedSum
from ._plan import DPSGDPlan

__all__ = ["PartedPlan", "PartedSum"]

_MOST_ROWS = 1024


@dataclass(frozen=True)
class PartedPlan(DPSGDPlan):
    """A DP-SGD plan for a network of several models, one for each part of the records.

    Which part a record is in follows from the record and from what was released before (the centres of clusters, for
    example), never from other records. `sampling_rate` and `steps` are those of all parts: a rate that followed from
    the exact size of a part would tell it.

    Parameters
    ----------
    sampling_rate, steps, l2_bound, noise_multiplier, expected_batch_size, neighboring, max_physical_batch
        As in `DPSGDPlan`, of all records together.
    part_batch_sizes : tuple of float
        Records of each part to be expected in a step: public, or `sampling_rate` times a released count.

    Notes
    -----
    A step is one Poisson-sampled Gaussian release, as without parts. A record that joins changes the block of one
    model: all parts together cost what one costs (the largest price of a part, not the sum of them). A record that
    replaces another may change two blocks: the contributions before and after are two vectors of norm at most
    `l2_bound`, here orthogonal, while the pair that is charged has them opposite.

    References
    ----------
    F. McSherry, "Privacy integrated queries", SIGMOD 2009, Theorem 4 (for records that join or leave).
    """

    part_batch_sizes: tuple = ()

    def __post_init__(self):
        super().__post_init__()
        if not self.part_batch_sizes or not all(0 < size < math.inf for size in self.part_batch_sizes):
            raise ValueError(f"part_batch_sizes must be positive and finite; got {self.part_batch_sizes!r}")

    def make_aggregate(self, root, rng, *, path="fast"):
        """Make the `PartedSum` of this plan."""
        return PartedSum(root, self, path=path)


class PartedSum(ClippedSum):
    """`ClippedSum` of a network of models, each of which sees the records of its own part alone.

    Parameters
    ----------
    root : Module
        ``root.module`` is the network: ``part_of(X)`` gives the part of each row, and within ``only(part)`` the losses
        are those of one model.
    plan : PartedPlan
    path : {"fast", "vmap", "loop"}, default="fast"

    Notes
    -----
    The same sum as `ClippedSum` finds when all models see all records, in a fraction of the time. Rows of a part
    are computed in batches of one shape, padded with zeros.
    """

    def __init__(self, root, plan, *, path="fast"):
        super().__init__(root, plan.l2_bound, clip_norm=plan.clip_norm, path=path)
        self._rows = [min(_MOST_ROWS, math.ceil(size + 2 * math.sqrt(size))) for size in plan.part_batch_sizes]

    def add(self, *inputs, mask=None):
        """Add the records of one physical batch, each to the block of its part."""
        network, X = self.root.module, inputs[0]
        if mask is None:
            mask = torch.ones(len(X), dtype=torch.bool, device=X.device)
        parts = network.part_of(X)
        for part, size in enumerate(self._rows):
            of_part = torch.nonzero(mask & (parts == part)).flatten()
            with network.only(part):
                for rows in of_part.split(size):
                    if len(rows):
                        taken = tree_map(lambda x: _padded(x, rows, size), inputs)  # noqa: B023
                        super().add(*taken, mask=torch.arange(size, device=X.device) < len(rows))


def _padded(x, rows, size):
    out = x.new_zeros((size, *x.shape[1:]))
    out[: len(rows)] = x[rows]
    return out
