"""One frozen plan couples the sampler, the clip, the noise and the number of steps of a DP-SGD run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .._types import check_neighboring
from ..utils.validation import convert_fields
from ._charged import ChargedPlan, PlanUse

__all__ = ["DPSGDPlan"]


@dataclass(frozen=True)
class DPSGDPlan(ChargedPlan):
    """What a DP-SGD run is allowed to do, fixed before its first step.

    Each step includes every record independently with probability `sampling_rate`, clips the
    gradient of each record, and releases ``sum + N(0, noise_std**2 I)``. What that costs is
    computed from `sampling_rate`, `steps`, `noise_multiplier` and `neighboring` alone, so a
    run that follows its plan costs what was charged for the plan: ``accountant.charge(plan, "my training")``, which
    lets this plan object be followed once, in this process (see `ChargedPlan`).

    Parameters
    ----------
    sampling_rate : float in (0, 1]
        Probability with which a record takes part in a step; public.
    steps : int
        Number of steps; public. Empty batches are steps too.
    l2_bound : float
        Bound of one record's contribution to the sum. `noise_std` is derived from it; gradients
        are clipped a little below (`clip_norm`).
    noise_multiplier : float
        ``noise_std / l2_bound``, under both relations (only
        the accounting of Poisson-sampled steps differs). **0 is the non-private reference: no noise and no clipping.**
    expected_batch_size : float
        ``sampling_rate`` times the public or released number of rows: the constant denominator
        of every step. Never the realised batch size.
    neighboring : {"add_or_remove_one", "replace_one"}, default="add_or_remove_one"
        Relation under which the plan is charged, and `epsilon` is told.
    max_physical_batch : int, default=None
        Rows computed at once. A larger batch is accumulated over several of these, a smaller
        one is padded, so that every pass has one shape. None: two standard deviations above
        `expected_batch_size`, at most 1024.

    Raises
    ------
    ValueError
        If a number is outside its range.

    Examples
    --------
    >>> plan = DPSGDPlan(sampling_rate=0.005, steps=840, l2_bound=1.0, noise_multiplier=1.4,
    ...                  expected_batch_size=300)
    >>> plan.noise_std, plan.physical_batch
    (1.4, 335)
    """

    sampling_rate: float
    steps: int
    l2_bound: float
    noise_multiplier: float
    expected_batch_size: float
    neighboring: str = "add_or_remove_one"
    max_physical_batch: int | None = None
    _use: PlanUse = field(default_factory=PlanUse, init=False, repr=False, compare=False)

    def __post_init__(self):
        convert_fields(self)
        check_neighboring(self.neighboring)
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate must be in (0, 1]; got {self.sampling_rate!r}")
        if int(self.steps) != self.steps or self.steps < 1:
            raise ValueError(f"steps must be a positive whole number; got {self.steps!r}")
        if not 1e-30 <= self.l2_bound <= 1e30:
            raise ValueError(f"l2_bound must be positive and finite in float32 (1e-30 to 1e30); got {self.l2_bound!r}")
        if not (self.noise_multiplier >= 0 and math.isfinite(self.noise_multiplier)):
            raise ValueError(f"noise_multiplier must be non-negative and finite; got {self.noise_multiplier!r}")
        if not (self.expected_batch_size > 0 and math.isfinite(self.expected_batch_size)):
            raise ValueError(f"expected_batch_size must be positive and finite; got {self.expected_batch_size!r}")
        size = self.max_physical_batch
        if size is not None and (int(size) != size or size < 1):
            raise ValueError(f"max_physical_batch must be a positive whole number or None; got {size!r}")

    @property
    def event(self):
        """What the plan costs: all its steps, composed."""
        from ..accounting import non_private_event, poisson_gaussian_event

        if not self.private:
            return non_private_event()
        return poisson_gaussian_event(self.sampling_rate, self.noise_multiplier, int(self.steps))

    def epsilon(self, delta) -> float:
        """Return what the plan costs alone at `delta`, under `neighboring`."""
        from ..accounting import epsilon_pld

        return epsilon_pld(self.event, delta, self.neighboring)

    @property
    def private(self) -> bool:
        """Whether steps are clipped and noised."""
        return self.noise_multiplier > 0

    @property
    def needs_groups(self) -> bool:
        """Whether the loss has a term of groups of records, so that the module must have ``group_losses``."""
        return False

    def make_aggregate(self, root, rng, *, path="fast", **groups):
        """Make what turns a batch into the sum that the plan allows to be released: a `ClippedSum`.

        Plans with terms of groups of records take `group_root`, `group_path` and `group_noise_shape` too, and draw the
        groups from `rng`.
        """
        from ._clipping import ClippedSum

        return ClippedSum(root, self.l2_bound, clip_norm=self.clip_norm, path=path)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on the sum."""
        return self.noise_multiplier * self.l2_bound

    @property
    def slack(self) -> float:
        """Relative distance kept between the clip and `l2_bound`, for arithmetic that is not exact.

        In float32 the sum's other terms may be rounded differently once a record joins, for it
        moves their places in the batch. Each term's relative error is taken as 2**-20 (a few
        units in the last place, after some layers of backpropagation), and they may all point
        one way, so the batch moves by at most ``batch * 2**-20 * clip``. Rounding to the noise's
        lattice of about ``2**-30 * noise_std`` adds ``2**-30 * noise_multiplier * sqrt(parameters)``, below
        ``2**-15 * noise_multiplier`` up to a billion parameters. At least 1 %.
        """
        batch = self.expected_batch_size + 8 * math.sqrt(self.expected_batch_size)
        return max(0.01, batch * 2.0**-20 + self.noise_multiplier * 2.0**-15)

    @property
    def clip_norm(self) -> float:
        """Norm to which a record's gradient is clipped: ``l2_bound / (1 + slack)``; infinite without noise."""
        return self.l2_bound / (1 + self.slack) if self.private else math.inf

    @property
    def physical_batch(self) -> int:
        """Rows of one forward pass, padding included."""
        if self.max_physical_batch is not None:
            return int(self.max_physical_batch)
        return min(1024, math.ceil(self.expected_batch_size + 2 * math.sqrt(self.expected_batch_size)))

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which a record takes part once on average; public."""
        return max(1, round(1 / self.sampling_rate))
