"""DP-SGD for losses with a term of several records: of random groups (term-wise), or of the whole batch.

Term-wise DP-SGD adds clipped gradients of records and of random groups in one sum with one draw of noise. The other two
ways, with which it is compared, release one vector of norm at most C that may change as a whole when a record joins or
is replaced. Their sensitivity is 2 C under both relations: no averaging over records makes the noise smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils._pytree import tree_map

from .._types import BoundedSum
from ..utils.validation import convert_fields
from ._clipping import Aggregate, ClippedSum, clip_factors, first_leaf, square_norm
from ._places import room_for
from ._plan import DPSGDPlan, additions_of
from ._units import RowUnits

# Groups are padded to a common length, a multiple of this number, so that few shapes occur.
_LENGTH = 4


@dataclass(frozen=True)
class TermwisePlan(DPSGDPlan):
    """A DP-SGD plan whose loss has a term of each record, and a term of each of `n_groups` random groups of records.

    A step includes every record with probability `sampling_rate`, draws a group for each of them independently,
    and releases, with B = `expected_batch_size` and b = `n_groups`,
    ``1/B sum_i clip(grad phi_i, C1) + 1/b sum_j clip(grad psi_j, C2) + N(0, sd**2 I)``: one noise draw,
    ``sd = noise_multiplier * (C1/B + 2 C2/b)``.

    Parameters
    ----------
    sampling_rate, steps, noise_multiplier, expected_batch_size, neighboring, max_physical_batch, unit, batch_margin
        As in `DPSGDPlan`. A unit lies in one group as a whole.
    sample_bound : float, default=1.0
        C1: bound of the norm of a record's gradient.
    group_bound : float, default=0.1
        C2: bound of the norm of a group's gradient.
    n_groups : int, default=16
        b: number of groups, at most `expected_batch_size`.

    Attributes
    ----------
    l2_bound : float
        ``C1 + 2 C2 B/b``: bound of the change of the sum, before it is divided by B, when one record joins. Derived.

    Notes
    -----
    Why 2 C2: a record that joins a group changes its gradient from one vector of norm C2 to another one, which may
    point the other way. The groups of the other records are independent draws and do not change. B and b are constants:
    denominators counted from the batch would change every term.

    References
    ----------
    Takahashi, Takagi, Ono, Komatsu, "Differentially Private Variational Autoencoders with Term-wise Gradient
    Aggregation", 2020, Algorithm 1, with the true sensitivity (the paper's Lemma 2 has C2 in place of 2 C2), and one
    draw of noise in place of two.

    Examples
    --------
    >>> plan = TermwisePlan(sampling_rate=0.01, steps=100, noise_multiplier=1.0, expected_batch_size=256,
    ...                     sample_bound=0.05, group_bound=0.005, n_groups=16)
    >>> round(plan.l2_bound / 256, 6)  # C1/B + 2 C2/b
    0.00082
    """

    l2_bound: float = field(init=False)
    sample_bound: float = 1.0
    group_bound: float = 0.1
    n_groups: int = 16

    def __post_init__(self):
        convert_fields(self)
        for name in ("sample_bound", "group_bound"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be positive and finite; got {value!r}")
        if int(self.n_groups) != self.n_groups or self.n_groups < 1:
            raise ValueError(f"n_groups must be a positive whole number; got {self.n_groups!r}")
        # the term of the record, and twice that of its group, on the scale of the sum
        object.__setattr__(self, "l2_bound", self.sample_bound + 2 * self.group_bound * self.group_weight)
        super().__post_init__()
        if self.n_groups > self.expected_batch_size:
            raise ValueError(
                f"n_groups={self.n_groups} is more than the expected batch size, {self.expected_batch_size:.4g}: most "
                "groups would be empty; lower n_groups"
            )

    @property
    def _additions(self) -> int:
        # all groups are in one pass, and their sum is added to that of the records
        return additions_of(max(self.physical_batch, self.n_groups)) + 2

    @property
    def group_weight(self) -> float:
        """Weight of a group's gradient in the sum, relative to a record's: B/b, of public constants."""
        return self.expected_batch_size / self.n_groups

    @property
    def group_places(self) -> int:
        """Places of a group for its records: more come with a probability below e**-36 (see `room_for`)."""
        most = self.unit.max_rows if self.weighting == "rows" else 1
        return room_for(self.largest_batch_size / self.n_groups, most, self.n_groups)

    @property
    def difference_bound(self) -> float:
        """Bound of the change of the sum when a record is replaced: the new one has its place and its group."""
        return 2 * self.sample_bound + 2 * self.group_bound * self.group_weight

    @property
    def needs_groups(self) -> bool:
        """Whether the module must have ``group_losses``."""
        return True

    def make_aggregate(self, root, rng, *, path="fast", group_root=None, group_path="fast", group_noise_shape=None):
        """Make the `TermwiseAggregate` of this plan."""
        return TermwiseAggregate(
            root, group_root, self, rng, path=path, group_path=group_path, group_noise_shape=group_noise_shape
        )


class _GroupAggregate(Aggregate):
    """Base class of aggregates whose term of several records is computed when the batch is complete.

    Parameters
    ----------
    root : Module
        ``root(*inputs)`` gives the losses of the records, shape (batch,).
    group_root : Module
        ``group_root(*inputs, groups)`` gives the loss of each group, shape (n_groups,), a function of its members
        alone: inputs have the shape (n_groups, length, ...); ``groups["members"]`` is 1.0 for records and 0.0 for
        padding, shape (n_groups, length); ``groups["noise"]``, with `group_noise_shape`, has the shape (n_groups,
        *group_noise_shape). An empty group's loss has no gradient. Trainable parameters are those of `root`, in the
        same order.
    plan : TermwisePlan or WholeBatchPlan
    rng : NoiseGenerator
        Source of the groups, and of the noise of `group_noise_shape`.
    group_noise_shape : tuple of int, default=None
        Shape of the standard normals that each group gets.
    """

    def __init__(self, root, group_root, plan, rng, group_noise_shape):
        super().__init__(root)
        if [id(p) for p in self.parameters] != [id(p) for p in group_root.parameters() if p.requires_grad]:
            raise ValueError("root and group_root must have one list of trainable parameters")
        self.group_root, self.plan = group_root, plan
        self._rng, self._noise_shape = rng, group_noise_shape
        self._parts = []

    def reset(self):
        """Forget what was added."""
        self._parts = []

    def _rows_for_groups(self, units, mask):
        """Rows that terms of several records get: all, or one row of each unit at random where each unit counts 1."""
        if self.plan.weighting == "rows":
            return mask
        return torch.from_numpy(one_row_of_each(units, self._rng)).to(mask.device)


class TermwiseAggregate(_GroupAggregate):
    """Weighted sum of the clipped gradients of records and of groups, with its sensitivity; used as `ClippedSum` is.

    The gradient of a group is that of one "example" whose rows are its records, so its norm is found by the same rules,
    in one pass over all groups.

    Parameters
    ----------
    root, group_root, plan, rng, group_noise_shape
        As in `_GroupAggregate`.
    path, group_path : {"fast", "vmap", "loop"}, default="fast"
        See `skdpgen.dpsgd.choose_path`.
    """

    def __init__(self, root, group_root, plan, rng, *, path="fast", group_path="fast", group_noise_shape=None):
        super().__init__(root, group_root, plan, rng, group_noise_shape)
        slack = 1 + plan.slack
        clips = (plan.sample_bound / slack, plan.group_bound / slack) if plan.private else (math.inf, math.inf)
        self._samples = ClippedSum(root, plan.sample_bound, clip_norm=clips[0], path=path, weighting=plan.weighting)
        self._groups = ClippedSum(group_root, plan.group_bound, clip_norm=clips[1], path=group_path)

    def reset(self):
        """Forget what was added."""
        super().reset()
        self._samples.reset()

    def add(self, *inputs, mask=None, units=None):
        """Add the records of one physical batch: their terms now, those of the groups when the batch is complete."""
        mask = self._mask(inputs, mask)
        if (size := len(mask)) == 0:
            return
        self._samples.add(*inputs, mask=mask, units=units)
        labels = draw_groups(size, self.plan.n_groups, self._rng)
        if units is not None:
            units = RowUnits(units, mask)
            # one draw for each unit; the number of draws is that of the rows, padding included
            labels = labels[np.maximum(units.codes, 0)]
            mask = self._rows_for_groups(units, mask)
        self._parts.append((inputs, mask, labels))

    def result(self) -> BoundedSum:
        """Return the weighted sum of everything added since `reset`."""
        total = self._samples.result().value
        parts, self._parts = self._parts, []
        if parts:
            inputs, mask, labels = _join(parts)
            inputs, members = gather_groups(inputs, mask, labels, self.plan.n_groups, self.plan.group_places)
            self._groups.reset()
            self._groups.add(*inputs, group_draws(members, self._noise_shape, self._rng))
            for out, term in zip(total, self._groups.result().value):
                out.add_(term, alpha=self.plan.group_weight)
        return BoundedSum(
            total, add_or_remove_one=self.plan.l2_bound, replace_one=self.plan.difference_bound, unit="group"
        )


def one_row_of_each(units, rng):
    """Draw one row of each unit, bool array of shape (batch,): the choice depends on no other unit."""
    chosen = (rng.random(len(units.codes))[: len(units)] * units.sizes).astype(np.int64)
    order = np.argsort(units.codes, kind="stable")[len(units.codes) - int(units.sizes.sum()) :]
    out = np.zeros(len(units.codes), dtype=bool)
    out[order[np.cumsum(units.sizes) - units.sizes + chosen]] = True
    return out


def group_draws(members, noise_shape, rng):
    """Return what a group's loss gets beside the rows: the members, and normals where a shape is given."""
    if noise_shape is None:
        return {"members": members}
    normals = torch.from_numpy(rng.standard_normal((len(members), *noise_shape)))
    return {"members": members, "noise": normals.to(members.device, members.dtype)}


def draw_groups(n_records, n_groups, rng) -> np.ndarray:
    """Group of each record, int64 of shape (n_records,): independent draws, so that no record changes another's group.

    A split of a shuffled batch into groups of equal sizes is no replacement: one more record would move others.
    """
    return rng.integers(n_groups, n_records)


def gather_groups(inputs, mask, labels, n_groups, places=1):
    """Return the rows of a batch by group, padded with zeros.

    `places`: public: least number of places of each group. A record that joins must not change the shape of all groups.

    `mask`: shape (batch,). `labels`: shape (batch,). Returns `inputs` (n_groups, length, ...); `members` (n_groups,
    length): 1.0 for records, 0.0 for padding; of the floating dtype of the inputs.
    """
    rows = np.flatnonzero(mask.cpu().numpy())
    groups = np.asarray(labels)[rows]
    order = np.argsort(groups, kind="stable")
    rows, groups = rows[order], groups[order]
    counts = np.bincount(groups, minlength=n_groups)
    length = _LENGTH * -(-max(places, int(counts.max())) // _LENGTH)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    index = np.zeros((n_groups, length), dtype=np.int64)
    present = np.zeros((n_groups, length), dtype=bool)
    index[groups, place] = rows
    present[groups, place] = True
    device, dtype = mask.device, first_leaf(inputs).dtype
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    index, present = torch.from_numpy(index).to(device), torch.from_numpy(present).to(device)

    def gather(x):
        gathered = x[index]
        # a padded place must not carry another record's values: 0 * nan is nan
        empty = ~present.view(*present.shape, *[1] * (x.dim() - 1))
        return gathered.masked_fill_(empty, 0)

    return tree_map(gather, inputs), present.to(dtype)


def _join(parts):
    """Return one batch of several physical ones."""
    if len(parts) == 1:
        return parts[0]
    inputs = tree_map(lambda *xs: torch.cat(xs), *(part[0] for part in parts))
    return inputs, torch.cat([part[1] for part in parts]), np.concatenate([part[2] for part in parts])


@dataclass(frozen=True)
class WholeBatchPlan(DPSGDPlan):
    """A DP-SGD plan whose gradient depends on the whole batch: ``v + N(0, (noise_multiplier * 2 C)**2 I)``, |v| <= C.

    Parameters
    ----------
    sampling_rate, steps, noise_multiplier, expected_batch_size, neighboring, max_physical_batch, unit, batch_margin
        As in `DPSGDPlan`. The clip is that of the whole vector, so it holds for units as for rows; where each unit
        counts 1, one row of each is drawn for a step.
    gradient_bound : float, default=1.0
        C: bound of the norm of v.
    aggregation : {"batch", "micro"}, default="batch"
        "batch": v is the clipped gradient of ``mean_i phi_i + psi(batch)``. "micro": v is the mean over the batch of
        the clipped gradients of ``phi_i + psi(batch)``, each of which depends on every record.

    Attributes
    ----------
    l2_bound : float
        ``2 C B``, on the scale of a sum that is divided by B = `expected_batch_size`. Derived.

    References
    ----------
    Takahashi, Takagi, Ono, Komatsu, 2020, Propositions 2 and 3, whose sensitivities C and B C must be 2 C and 2 B C.
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


class WholeBatchAggregate(_GroupAggregate):
    """B times a vector of norm at most C, found from the whole batch; used as `ClippedSum` is.

    Parameters
    ----------
    root, group_root, plan, rng, group_noise_shape
        As in `_GroupAggregate`; the batch is the one group.
    path : {"fast", "vmap", "loop"}, default="fast"
        See `skdpgen.dpsgd.choose_path`.
    """

    def __init__(self, root, group_root, plan, rng, *, path="fast", group_noise_shape=None):
        super().__init__(root, group_root, plan, rng, group_noise_shape)
        self._clip = plan.gradient_bound / (1 + plan.slack) if plan.private else math.inf
        self._clipped = ClippedSum(root, plan.gradient_bound, clip_norm=self._clip, path=path)

    def add(self, *inputs, mask=None, units=None):
        """Add the records of one physical batch."""
        mask = self._mask(inputs, mask)
        if (units is None) != (self.plan.unit is None):
            raise ValueError("units of rows come with a plan that has a unit")
        if units is not None:
            mask = self._rows_for_groups(RowUnits(units, mask), mask)
        if bool(mask.any()):
            self._parts.append((tree_map(lambda x: x[mask], inputs), mask[mask], mask[mask].cpu().numpy()))

    def result(self) -> BoundedSum:
        """Return ``B v`` for everything added since `reset`; zero for an empty batch."""
        parts, self._parts = self._parts, []
        if parts:
            vector = self._micro(parts) if self.plan.aggregation == "micro" else self._batch(parts)
            # this clip bounds the norm in both cases: a mean of clipped vectors exceeds C by rounding alone
            factor = float(clip_factors(torch.tensor(square_norm(vector), dtype=torch.float64).sqrt(), self._clip))
            value = [torch.nan_to_num(v, 0.0, 0.0, 0.0).mul_(factor * self.plan.expected_batch_size) for v in vector]
        else:
            value = [torch.zeros_like(p) for p in self.parameters]
        bound = self.plan.l2_bound
        return BoundedSum(value, add_or_remove_one=bound, replace_one=bound, unit="batch")

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
