"""Frozen plans of trainings: what a training may do, what it costs, and the proof that it was charged once."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields

from .._parameters import PrivacyUnit
from .._types import BoundedUnit, check_neighboring
from ..accounting import epsilon_pld, non_private_event, poisson_gaussian_event
from ..accounting._calibration import check_noise_of_steps
from ..utils.forks import ForkSafeLock, process_identity
from ..utils.printing import shown
from ..utils.validation import convert_fields
from ._clipping import ClippedSum, PartedSum
from ._layers import SUMMED_TOGETHER
from ._places import MOST_ROWS, batches_of_records, batches_of_units

# Relative error of the gradient of a unit, whose rows may cancel (see `_layers`).
_ROUNDING_OF_UNITS = 2.0**-15
# Relative error of two sums by one float32 addition in each.
_ADDITION = 2.0**-23
# Numbers of a plan on which its cost and its denominator do not depend.
_OF_PLACES = ("max_physical_batch", "batch_margin", "part_batch_margin")


class PlanUse:
    """State of a plan: the process in which it was charged, the training that follows it, and the steps taken.

    The state is in lists, because appending is atomic: of several threads, one is the first.

    Steps come from the charge in memory, all of them at once, or, for a training with a checkpoint, in blocks from the
    ledger file (`from_ledger`). A plan does not change from one to the other: a ledger that did not record some of the
    steps would grant them again.
    """

    def __init__(self):
        self.lock = ForkSafeLock()  # held while the plan is being charged, and while steps are taken from the ledger
        self.record = None  # ChargedSteps, where the plan is the whole of a charge to a ledger file
        self.from_ledger = False
        self.before = 0  # steps in the ledger when the training was resumed
        self.granted = 0  # steps taken from the ledger for this object
        self.known = 0  # steps taken from the ledger by all objects, when last read
        self.charged: list[tuple[int, int]] = []
        self.users: list[object] = []
        self.steps: list[None] = []

    def resume(self, record, taken):
        """Note that the training continues after `taken` steps (of a fit, also 0), with steps from the ledger."""
        self.record, self.from_ledger, self.before, self.known = record, True, taken, taken

    def __deepcopy__(self, memo):
        return PlanUse()  # of a copy that is no plan: `dataclasses.asdict` makes one


class ChargedPlan:
    """Base class of frozen plans: the training that was charged follows its plan once.

    Plans have a ``noise_multiplier``, the ``l2_bound`` that it is a multiple of, ``steps`` and a field ``_use``.

    The plan *object* is what is charged. Copies are the object itself. `dataclasses.replace` and pickles make other
    plans, which are not charged. A forked process has the plan but may not follow it. A plan without noise costs
    nothing and may be followed any number of times.
    """

    @property
    def private(self) -> bool:
        """Whether steps are clipped and noised."""
        return self.noise_multiplier > 0

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on the sum."""
        return self.noise_multiplier * self.l2_bound

    def _bind(self):
        """Note that this process was charged for the plan; only a `Receipt` calls this."""
        self._check_free()
        self._use.charged.append(process := process_identity())
        if self._use.charged[0] is not process:
            raise RuntimeError("another charge covers this plan already: a plan is charged once")

    def _check_free(self):
        """Refuse a plan that was charged before; called before a charge."""
        if self._use.charged:
            raise RuntimeError("this plan was charged before: make a new plan for another training")

    def check_charged(self):
        """Raise RuntimeError unless the plan was charged in this process."""
        if not self.private:
            return
        if not self._use.charged:
            raise RuntimeError(
                "the plan was not charged: call accountant.charge(plan, label) before the training, or receipt.cover("
                "plan) where a charge of several releases holds this one (copies by dataclasses.replace and pickles "
                "are other plans)"
            )
        if self._use.charged[0] != process_identity():
            raise RuntimeError(
                "the plan was charged in another process, which alone may train for it: after a fork, charge a new "
                "plan in the process that trains"
            )

    def claim(self, user):
        """Reserve the plan for `user`: any object, the same one while a training continues after interruptions.

        Raises
        ------
        RuntimeError
            Where the plan was not charged in this process, or another training has used it.
        """
        self.check_charged()
        self._use.users.append(user)
        if self.private and self._use.users[0] is not user:
            raise RuntimeError("the plan was used by another training: one charge is one training; charge a new plan")

    @property
    def steps_taken(self) -> int:
        """Steps taken under the plan so far by all copies of a net; without noise they are not counted.

        In a training with a checkpoint, steps that others took from the ledger count too, as far as known here.
        """
        use = self._use
        return min(use.known - use.granted + len(use.steps), int(self.steps))

    @property
    def steps_resumed(self) -> int:
        """Steps that an interrupted training had taken before this plan continued it."""
        return self._use.before

    @property
    def steps_granted(self) -> int:
        """Steps that were taken from the ledger and have not run yet."""
        return max(self._use.granted - len(self._use.steps), 0)

    @property
    def block_size(self) -> int:
        """Steps taken from the ledger at once, about 2 %: at most so many are lost when a process dies."""
        return max(1, int(self.steps) // 50)

    @property
    def numbers(self) -> dict:
        """Kind and numbers of the plan as JSON holds them, without what sets the places of a step alone."""
        names = [f.name for f in fields(self) if f.init and f.name not in _OF_PLACES and f.name != "unit"]
        numbers = {"kind": type(self).__name__, **{name: _plain(getattr(self, name)) for name in names}}
        if getattr(self, "unit", None) is not None:
            numbers["unit"] = asdict(self.unit)
        return numbers

    def take_block(self, file=None) -> int:
        """Take the next steps from the ledger that was charged, before they run; return how many were granted.

        Parameters
        ----------
        file : str, default=None
            In a fit with a checkpoint: SHA-256 of the checkpoint from which they go on.

        Raises
        ------
        LedgerError
            When the ledger cannot be read or written.
        RuntimeError
            For a plan that is not the whole of a charge to a ledger file, or whose training began without a checkpoint.
        """
        self.check_charged()
        use = self._use
        if use.record is None:
            raise RuntimeError("the steps of this plan cannot be taken from a ledger file")
        with use.lock:
            begins = not (use.granted or use.before)
            # set even if the ledger then fails to answer: it may have written, so all steps must come from it
            use.from_ledger = True
            if begins and use.steps:
                raise RuntimeError("the training began without a checkpoint: the ledger has no record of its steps")
            if file is None:
                granted, use.known = use.record.take(self.block_size, begins=begins)
            else:
                granted, use.known = use.record.take_of_fit(self.block_size, known=use.known, file=file)
            use.granted += granted
        return granted

    def take_step(self) -> None:
        """Count one step, before it is taken; RuntimeError if no step is left.

        Copies of a net share the plan and this count, so that together they run the steps that were charged.
        """
        if self.private:
            self.check_charged()
            self._use.steps.append(None)  # counted before the comparison, so that threads cannot share a step
            if self._use.from_ledger and len(self._use.steps) > self._use.granted:
                raise RuntimeError("all steps that were taken from the ledger have been run: more are taken in blocks")
            if len(self._use.steps) > self.steps:
                raise RuntimeError(f"all {self.steps} steps of the plan have been taken; more were not charged")

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _make_uncharged, (type(self), {f.name: getattr(self, f.name) for f in fields(self) if f.init})


def _plain(value):
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.item() if hasattr(value, "item") else value


def _make_uncharged(cls, values):
    """Make the plan that a pickle describes: one of the same numbers, which has not been charged."""
    return cls(**values)


def slack_of_sums(n_terms, noise_multiplier, error=None) -> float:
    """Relative distance between the clip norm and the bound, for arithmetic that is not exact; at least 1 %.

    A record that joins must not change the gradients of the others. Each is a function of the record alone, but float32
    may round it differently at another place of the batch, and where the loss has a kink, one unit in the last place
    can turn a gradient around. So a record stands at a place drawn out of a public number of places, which is larger
    than a step needs (`room_for`): any choice of different places is equally likely. One that joins takes any of the
    free places, and all others stay.

    What is left is the rounding of additions, which depends on all terms. A term passes through k float32 additions,
    each of which errs by up to 2**-24 of what it adds up. So a sum errs by at most ``k * 2**-24`` of the sum of the
    norms of its terms, and two sums that are compared by twice that: ``n_terms * k * 2**-23 * clip``. Rounding to the
    noise's lattice of ``2**-30 * noise_std`` adds a step of the lattice in each parameter, at most ``2**-15 *
    noise_multiplier`` of the bound C for up to a billion (2**30) parameters. With the two relative errors a and b, the
    clip must satisfy ``clip * (1 + a) + b * C <= C``: b is a share of the bound, not of the clip.

    `n_terms`: expected number of terms of a sum; eight standard deviations of a Poisson number are added.
    `noise_multiplier`: standard deviation of the noise over the bound of the sum.
    `error`: relative error of a term, ``k * 2**-23``. None: the terms are added one after the other.
    Raises InvalidInputError: the noise is so large that the lattice would leave gradients less than half of the bound.
    """
    check_noise_of_steps(noise_multiplier)
    most_terms = n_terms + 8 * math.sqrt(n_terms)
    of_terms = most_terms * (most_terms * _ADDITION if error is None else error)
    of_lattice = noise_multiplier * 2.0**-15
    return max(0.01, (1 + of_terms) / (1 - of_lattice) - 1)


def additions_of(n_rows):
    """Float32 additions that a gradient passes through in a pass of so many rows (see `add_product`)."""
    return SUMMED_TOGETHER + -(-max(n_rows, MOST_ROWS) // SUMMED_TOGETHER)


@dataclass(frozen=True)
class DPSGDPlan(ChargedPlan):
    """What a DP-SGD run may do, fixed before its first step.

    Each step includes every record independently with probability `sampling_rate`, clips the gradient of each record,
    and releases ``sum + N(0, noise_std**2 I)``. Its cost follows from `sampling_rate`, `steps`, `noise_multiplier` and
    `neighboring` alone, so a run that follows its plan costs what was charged for the plan.
    ``accountant.charge(plan, "my training")`` lets this plan object be followed once, in this process (see
    `ChargedPlan`).

    Parameters
    ----------
    sampling_rate : float in (0, 1]
        Probability with which a record takes part in a step; public.
    steps : int
        Number of steps; public. Empty batches are steps too.
    l2_bound : float
        Bound of one record's contribution to the sum. `noise_std` is a multiple of it; gradients are clipped slightly
        below it, to `clip_norm`.
    noise_multiplier : float
        ``noise_std / l2_bound``, under both relations: they differ in the accounting of Poisson-sampled steps alone.
        **0 is the non-private reference: no noise and no clipping.**
    expected_batch_size : float
        ``sampling_rate`` times the public or released number of rows: the constant denominator of every step, and what
        the number of places follows from. Never the realised batch size, and not a much smaller number.
    neighboring : {"add_or_remove_one", "replace_one"}, default="add_or_remove_one"
        Relation under which the plan is charged and `epsilon` is computed.
    max_physical_batch : int, default=None
        Rows computed at once. A larger batch is accumulated over several of these and a smaller one is padded, so that
        every pass has one shape. None: room for almost any step (see `room_for`), in equal parts of at most 1024. For
        units it is a limit, 4096 by default (see `batches_of_units`).
    unit : PrivacyUnit, default=None
        What a "record" is above, where it is not a row: all rows of a person, for example. Each step then includes
        every unit independently; the gradient of a unit is the sum ("rows") or the mean ("units") over its rows, and is
        clipped once to `l2_bound`. `expected_batch_size` is that of rows, or of units, so that the loss is a mean.
    batch_margin : float, default=0
        By how much the mean number of records in a step may exceed `expected_batch_size`, because the number of rows
        was released with noise. Steps have places for these records too. In fits of the package it is ``sampling_rate``
        times 8.2 standard deviations of the noise.

    Raises
    ------
    ValueError
        If a number is outside its range.

    Examples
    --------
    >>> plan = DPSGDPlan(sampling_rate=0.005, steps=840, l2_bound=1.0, noise_multiplier=1.4,
    ...                  expected_batch_size=300)
    >>> plan.noise_std, plan.physical_batch
    (1.4, 459)
    """

    sampling_rate: float
    steps: int
    l2_bound: float
    noise_multiplier: float
    expected_batch_size: float
    neighboring: str = "add_or_remove_one"
    max_physical_batch: int | None = None
    unit: PrivacyUnit | BoundedUnit | None = field(default=None, kw_only=True)
    batch_margin: float = field(default=0.0, kw_only=True)
    _use: PlanUse = field(default_factory=PlanUse, init=False, repr=False, compare=False)

    def __post_init__(self):
        convert_fields(self)
        check_neighboring(self.neighboring)
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate must be in (0, 1]; got {shown(self.sampling_rate)}")
        if int(self.steps) != self.steps or self.steps < 1:
            raise ValueError(f"steps must be a positive whole number; got {shown(self.steps)}")
        if not 1e-30 <= self.l2_bound <= 1e30:
            raise ValueError(
                f"l2_bound must be positive and finite in float32 (1e-30 to 1e30); got {shown(self.l2_bound)}"
            )
        if not (self.noise_multiplier >= 0 and math.isfinite(self.noise_multiplier)):
            raise ValueError(f"noise_multiplier must be non-negative and finite; got {shown(self.noise_multiplier)}")
        check_noise_of_steps(self.noise_multiplier)
        if not (self.expected_batch_size > 0 and math.isfinite(self.expected_batch_size)):
            raise ValueError(f"expected_batch_size must be positive and finite; got {shown(self.expected_batch_size)}")
        _check_margin("batch_margin", self.batch_margin)
        size = self.max_physical_batch
        if size is not None and (int(size) != size or size < 1):
            raise ValueError(f"max_physical_batch must be a positive whole number or None; got {shown(size)}")
        if isinstance(self.unit, PrivacyUnit):
            object.__setattr__(self, "unit", self.unit.of_plan())
        if self.unit is not None and not isinstance(self.unit, BoundedUnit):
            raise ValueError(f"unit must be a PrivacyUnit or None; got {type(self.unit).__name__}")
        if self.unit is not None and size is not None and size < self.unit.max_rows:
            raise ValueError(
                f"max_physical_batch={size} is less than the {self.unit.max_rows} rows of a unit, which are computed "
                "together: raise it, or lower max_rows of the unit"
            )

    @property
    def event(self):
        """Privacy event of all steps, composed."""
        if not self.private:
            return non_private_event()
        return poisson_gaussian_event(self.sampling_rate, self.noise_multiplier, int(self.steps))

    def epsilon(self, delta) -> float:
        """Return the epsilon of the plan alone at `delta`, under `neighboring`."""
        return epsilon_pld(self.event, delta, self.neighboring)

    @property
    def needs_groups(self) -> bool:
        """Whether the loss has a term of groups of records, so that the module must have ``group_losses``."""
        return False

    def make_aggregate(self, root, rng, *, path="fast", **groups):
        """Make the aggregate that turns a batch into the sum that the plan allows to be released: a `ClippedSum`.

        Plans with terms of groups of records take `group_root`, `group_path` and `group_noise_shape` too, and draw the
        groups from `rng`.
        """
        return ClippedSum(root, self.l2_bound, clip_norm=self.clip_norm, path=path, weighting=self.weighting)

    @property
    def weighting(self) -> str | None:
        """How the rows of a unit count in its gradient; None where a row is the unit."""
        return None if self.unit is None else self.unit.weighting

    @property
    def largest_batch_size(self) -> float:
        """Mean number of records in a step, at most: places and slack follow from it."""
        return self.expected_batch_size + self.batch_margin

    @property
    def slack(self) -> float:
        """Relative distance between `clip_norm` and `l2_bound` (see `slack_of_sums`)."""
        of_unit = 0.0 if self.unit is None else _ROUNDING_OF_UNITS
        error = max(self._additions * _ADDITION, of_unit)
        return slack_of_sums(self.largest_batch_size, self.noise_multiplier, error)

    @property
    def _additions(self) -> int:
        """Float32 additions that the gradient of a record passes through in one pass (see `add_product`)."""
        return additions_of(self.physical_batch)

    @property
    def clip_norm(self) -> float:
        """Norm to which a record's gradient is clipped: ``l2_bound / (1 + slack)``; infinite without noise."""
        return self.l2_bound / (1 + self.slack) if self.private else math.inf

    @property
    def physical_batches(self):
        """Number and places of the physical batches of a step, all public: a `PhysicalBatches`."""
        limit = None if self.max_physical_batch is None else int(self.max_physical_batch)
        if self.unit is None:
            return batches_of_records(self.largest_batch_size, limit)
        return batches_of_units(self.largest_batch_size, self.unit, limit)

    @property
    def physical_batch(self) -> int:
        """Rows of one forward pass, padding included; a unit that is computed alone has passes of its size."""
        return self.physical_batches.size

    @property
    def places(self) -> int:
        """Places of all physical batches of a step."""
        size, number, _ = self.physical_batches
        return size * number

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which a record takes part once on average; public."""
        return max(1, round(1 / self.sampling_rate))


@dataclass(frozen=True)
class PartedPlan(DPSGDPlan):
    """A DP-SGD plan for a network of several models, one for each part of the records: parallel composition.

    The part of a record follows from the record and from earlier releases (the centres of clusters, for example), never
    from other records. `sampling_rate` and `steps` are those of all parts: a rate that followed from the exact size of
    a part would reveal it.

    Parameters
    ----------
    sampling_rate, steps, l2_bound, noise_multiplier, expected_batch_size, neighboring, max_physical_batch, unit
    batch_margin
        As in `DPSGDPlan`, of all records together. The rows of a unit may lie in several parts.
    part_batch_sizes : tuple of float
        Expected number of records of each part in a step: public, or `sampling_rate` times a released count.
    part_batch_margin : float, default=0
        As `batch_margin`, of the records of each part.

    Notes
    -----
    The parameters of all models are one vector. The gradient of a record is zero outside the block of its model, so its
    clipped norm bounds what the record does to all models: one sum, one draw of noise. A step is one Poisson-sampled
    Gaussian release, as without parts. A record that joins changes the block of one model, so all parts together cost
    what one model costs. A record that replaces another may change two blocks: the contributions before and after are
    two vectors of norm at most `l2_bound`, here orthogonal, while the pair that is charged has them opposite.

    References
    ----------
    F. McSherry, "Privacy integrated queries", SIGMOD 2009, Theorem 4 (for records that join or leave).
    """

    part_batch_sizes: tuple = ()
    part_batch_margin: float = field(default=0.0, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        if not self.part_batch_sizes or not all(0 < size < math.inf for size in self.part_batch_sizes):
            raise ValueError(f"part_batch_sizes must be positive and finite; got {shown(self.part_batch_sizes)}")
        _check_margin("part_batch_margin", self.part_batch_margin)

    @property
    def largest_part_sizes(self) -> tuple:
        """Mean number of records of each part in a step, at most."""
        return tuple(size + self.part_batch_margin for size in self.part_batch_sizes)

    def make_aggregate(self, root, rng, *, path="fast"):
        """Make the `PartedSum` of this plan."""
        return PartedSum(root, self, path=path, rng=rng)


def _check_margin(name, margin):
    if not (margin >= 0 and math.isfinite(margin)):
        raise ValueError(f"{name} must be non-negative and finite; got {shown(margin)}")


def plan_of_fit(training, charged, noise_multiplier, count, kind=DPSGDPlan, least=1.0, **own):
    """The plan of the DP-SGD steps of a fit: rate and steps of its settings, relation and unit of what was charged.

    `training`: with `sampling_rate` and `steps`.
    `count`: `Count` of what steps sample; public or released.
    `least`: of the expected number in a step; public, or follows from a released number.
    **own: further fields of `kind`, such as `l2_bound`.
    """
    expected = max(least, training.sampling_rate * count.value)
    return kind(
        sampling_rate=training.sampling_rate,
        steps=training.steps,
        noise_multiplier=noise_multiplier,
        expected_batch_size=expected,
        batch_margin=max(0.0, training.sampling_rate * count.most - expected),
        neighboring=charged.neighboring,
        unit=charged.unit,
        **own,
    )
