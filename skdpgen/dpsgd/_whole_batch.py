"""The two ways of DP-SGD with a batch-wise term that term-wise aggregation is compared with, at true sensitivities.

Both release one vector of norm at most C that may change as a whole when a record joins or is replaced, so the
sensitivity is 2 C under both relations: no averaging over records makes the noise smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_map

from .._types import BoundedSum
from ..utils.validation import convert_fields
from ._clipping import ClippedSum, square_norm
from ._plan import DPSGDPlan
from ._termwise import _join, _leaf, group_draws

__all__ = ["WholeBatchAggregate", "WholeBatchPlan"]


@dataclass(frozen=True)
class WholeBatchPlan(DPSGDPlan):
    """A DP-SGD plan whose gradients hang on the whole batch: ``v + N(0, (noise_multiplier * 2 C)**2 I)``, |v| <= C.

    Parameters
    ----------
    sampling_rate, steps, noise_multiplier, expected_batch_size, neighboring, max_physical_batch
        As in `DPSGDPlan`.
    gradient_bound : float, default=1.0
        C.
    aggregation : {"batch", "micro"}, default="batch"
        "batch": v is the clipped gradient of ``mean_i phi_i + psi(batch)``. "micro": v is the mean over the batch of
        the clipped gradients of ``phi_i + psi(batch)``, each of which every record moves.

    Attributes
    ----------
    l2_bound : float
        ``2 C B``, on the scale of a sum that is divided by B = `expected_batch_size`.

    References
    ----------
    Takahashi, Takagi, Ono, Komatsu, 2020, Propositions 2 and 3: C and B C there, 2 C and 2 B C in truth.
    """

    l2_bound: float = field(init=False)
    gradient_bound: float = 1.0
    aggregation: str = "batch"

    def __post_init__(self):
        convert_fields(self)
        if not (self.gradient_bound > 0 and math.isfinite(self.gradient_bound)):
            raise ValueError(f"gradient_bound must be positive and finite; got {self.gradient_bound!r}")
        if self.aggregation not in ("batch", "micro"):
            raise ValueError(f"aggregation must be 'batch' or 'micro'; got {self.aggregation!r}")
        object.__setattr__(self, "l2_bound", 2 * self.gradient_bound * self.expected_batch_size)
        super().__post_init__()

    @property
    def needs_groups(self) -> bool:
        """Whether the module must have ``group_losses``: the whole batch is its one group."""
        return True

    def make_aggregate(self, root, rng, *, path="fast", group_root=None, group_path="fast", group_noise_shape=None):
        """Make the `WholeBatchAggregate` of this plan."""
        return WholeBatchAggregate(root, group_root, self, rng, path=path, group_noise_shape=group_noise_shape)


class WholeBatchAggregate:
    """B times a vector of norm at most C, found from the whole batch; used as `ClippedSum` is.

    Parameters
    ----------
    root, group_root, rng, path, group_noise_shape
        As in `TermwiseAggregate`; the batch is the one group.
    plan : WholeBatchPlan
    """

    def __init__(self, root, group_root, plan, rng, *, path="fast", group_noise_shape=None):
        self.root, self.group_root, self.plan = root, group_root, plan
        self.parameters = [p for p in root.parameters() if p.requires_grad]
        self.names = [name for name, p in root.named_parameters() if p.requires_grad]
        if [id(p) for p in self.parameters] != [id(p) for p in group_root.parameters() if p.requires_grad]:
            raise ValueError("records and groups must share one list of trainable parameters")
        self._clip = plan.gradient_bound / (1 + plan.slack) if plan.private else math.inf
        self._clipped = ClippedSum(root, plan.gradient_bound, clip_norm=self._clip, path=path)
        self._rng, self._noise_shape = rng, group_noise_shape
        self._parts = []

    def __call__(self, *inputs, mask=None) -> BoundedSum:
        """Return the sum over one batch; see `ClippedSum`."""
        self.reset()
        self.add(*inputs, mask=mask)
        return self.result()

    def reset(self):
        """Forget what was added."""
        self._parts = []

    def add(self, *inputs, mask=None):
        """Add the records of one physical batch."""
        if mask is None:
            mask = torch.ones(len(_leaf(inputs)), dtype=torch.bool, device=self.parameters[0].device)
        if bool(mask.any()):
            self._parts.append((tree_map(lambda x: x[mask], inputs), mask[mask], mask[mask].cpu().numpy()))

    def result(self) -> BoundedSum:
        """``B v`` for everything added since `reset`; zero if nothing was."""
        parts, self._parts = self._parts, []
        if parts:
            vector = self._micro(parts) if self.plan.aggregation == "micro" else self._batch(parts)
            # the last word on the norm: a mean of clipped vectors is inside already, up to rounding
            factor = self._factor(square_norm(vector))
            value = [torch.nan_to_num(v, 0.0, 0.0, 0.0).mul_(factor * self.plan.expected_batch_size) for v in vector]
        else:
            value = [torch.zeros_like(p) for p in self.parameters]
        bound = self.plan.l2_bound
        return BoundedSum(value, l2_bound=bound, difference_bound=bound, unit="batch")

    def _factor(self, square):
        """Clip factor of a vector; zero if it is not finite."""
        norm = math.sqrt(square) if math.isfinite(square) else math.inf
        if math.isinf(norm):
            return 0.0
        return 1.0 if norm <= self._clip else self._clip / norm

    def _of_batch(self, parts):
        """Gradient of psi(batch)."""
        inputs, mask, _ = _join(parts)
        groups = group_draws(mask[None].to(self.parameters[0].dtype), self._noise_shape, self._rng)
        loss = self.group_root(*tree_map(lambda x: x[None], inputs), groups)
        return self._gradients(loss.sum())

    def _gradients(self, loss):
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, found)]

    def _batch(self, parts):
        size = sum(int(mask.sum()) for _, mask, _ in parts)
        total = self._of_batch(parts)
        for inputs, _, _ in parts:
            for out, g in zip(total, self._gradients(self.root(*inputs).sum())):
                out.add_(g, alpha=1 / size)
        return total

    def _micro(self, parts):
        """Mean of the clipped ``grad phi_i + G``, G the gradient of psi(batch)."""
        shared = self._of_batch(parts)
        if not math.isfinite(square_norm(shared)):
            return shared
        self._clipped.reset()
        for inputs, mask, _ in parts:
            self._clipped.add(*inputs, mask=mask, shift=shared)
        size = sum(int(mask.sum()) for _, mask, _ in parts)
        return [total / size for total in self._clipped.result().value]
