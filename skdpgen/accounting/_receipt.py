"""What a charge entitles to: a receipt for the releases, steps taken from a ledger file, and training that resumes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .. import __version__
from .._types import in_words
from ..exceptions import LedgerError
from ..utils.clock import today
from ..utils.forks import ForkSafeLock, process_identity
from ..utils.strict_json import read_safetensors
from ._events import Charge, Release, releases
from ._filter import PrivacyFilter
from ._ledger import FileLedger
from ._ledger_records import FitSteps


class Receipt:
    """Proof that releases were charged, in this process; each of them may be made once.

    `PrivacyAccountant.charge` returns it. A plan of steps (`DPSGDPlan`, `SubsetPlan`) can be followed once a receipt
    covers it. The releases that it covers are then used up: the same charge covers no second plan of them.

    Attributes
    ----------
    label : str
        Label of the charge.
    event : dp_accounting.DpEvent
        Event that was charged.
    day : str
        Day of the charge in UTC, such as "2024-12-31".

    Notes
    -----
    Copies are the receipt itself. In a pickle or in a forked child it covers nothing.

    Examples
    --------
    >>> from skdpgen.accounting import PrivacyAccountant
    >>> from skdpgen.dpsgd import DPSGDPlan
    >>> plan = DPSGDPlan(sampling_rate=0.01, steps=100, l2_bound=1.0, noise_multiplier=1.5, expected_batch_size=50)
    >>> receipt = PrivacyAccountant(1.0).charge(plan.event, "my training")
    >>> plan = receipt.cover(plan)
    >>> receipt.cover(DPSGDPlan(0.01, 100, 1.0, 1.5, 50))
    Traceback (most recent call last):
        ...
    RuntimeError: the charge 'my training' does not cover ...
    """

    def __init__(self, charge: Charge, steps: ChargedSteps | None = None):
        self._charge = charge
        self._steps = steps  # of a ledger file: a training with a checkpoint takes its steps from there
        self._left = list(charge.releases)
        self._process = process_identity()
        self._lock = ForkSafeLock()
        self._day = today()

    @property
    def label(self) -> str:
        return self._charge.label

    @property
    def event(self):
        return self._charge.event

    @property
    def day(self) -> str:
        return self._day

    def cover(self, plan):
        """Allow a plan to be followed, once, in this process; its releases are used up.

        Parameters
        ----------
        plan : DPSGDPlan or SubsetPlan
            Its event must be among the releases of the charge: the same mechanism, noise multiplier and sampling rate,
            and no more steps than are left. A plan without noise needs no receipt, and uses nothing up.

        Returns
        -------
        plan
            The same object. Another one of equal numbers is another plan.

        Raises
        ------
        RuntimeError
            Where the charge does not hold the releases, or they are used up; for a plan that is covered already; in
            another process than that of the charge; for a plan that protects another unit than the charge.
        """
        if not plan.private:
            return plan
        if self._process != process_identity():
            raise RuntimeError(
                f"the charge {self.label!r} was made in another process (or the receipt was pickled), which alone may "
                "train for it: charge in the process that trains"
            )
        if (unit := unit_of_plan(plan)) != self._charge.unit:
            raise RuntimeError(
                f"the charge {self.label!r} is for {in_words(self._charge.unit)}, and the plan for {in_words(unit)}: a "
                "step that samples the one does not protect the other"
            )
        with self._lock:
            left = _without(self._left, releases(plan.event))
            if left is None:
                raise RuntimeError(
                    f"the charge {self.label!r} does not cover this plan: its releases were not charged, or another "
                    "plan has used them up; charge again for each training"
                )
            plan._bind()  # refuses, and then nothing is used up
            self._left = left
            if self._steps is not None and _same_training(plan, self._charge):
                plan._use.record = self._steps
        return plan

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _void, (self._charge,)

    def __repr__(self):
        return f"Receipt({self.label!r})"


def _void(charge: Charge) -> Receipt:
    """Return the receipt of a pickle: its releases may have been made in the process that it comes from."""
    receipt = Receipt(charge)
    receipt._process = None
    return receipt


def _without(left: list[Release], wanted: tuple[Release, ...]) -> list[Release] | None:
    """Return the releases that are left without those wanted; None where some of them are missing."""
    left = list(left)
    for row in wanted:
        count = row.count
        for k, there in enumerate(left):
            if there._replace(count=1) == row._replace(count=1):
                taken = min(count, there.count)
                left[k] = there._replace(count=there.count - taken)
                count -= taken
        if count:
            return None
    return [row for row in left if row.count]


# ---- steps of one training -----------------------------------------------------------------------
class ChargedSteps(NamedTuple):
    """The steps of one training, alone or in a fit with a checkpoint, charged by record `number` of a ledger file.

    Only the ledger counts the steps taken. Processes, forks and copies of a checkpoint therefore never run more steps
    than were charged. Steps that were taken and not run, because their process died, are lost.
    """

    ledger: FileLedger
    rule: PrivacyFilter
    number: int

    @property
    def identity(self) -> tuple[str, int]:
        """Identity of the ledger and number of the record, which a checkpoint names."""
        return self.ledger.identity, self.number

    def take(self, count: int, *, begins: bool) -> tuple[int, int]:
        """Take steps; return how many were granted, and how many all have taken. See `FileLedger.take_steps`."""
        return self.ledger.take_steps(self.number, count, self.rule, begins=begins)

    def take_of_fit(self, count: int, *, known: int, file: str) -> tuple[int, int]:
        """Take steps of a fit with a checkpoint: see `FileLedger.take_fit_steps`."""
        return self.ledger.take_fit_steps(self.number, count, self.rule, known=known, file=file)

    def end_fit(self, *, known: int, file: str) -> None:
        """End a fit at a checkpoint: see `FileLedger.end_fit`."""
        self.ledger.end_fit(self.number, self.rule, known=known, file=file)

    def of_fit(self) -> FitSteps:
        """Return what the ledger knows of a fit with a checkpoint now."""
        return self.ledger.fit_steps_of(self.number, self.rule)


def resume(plan, path, ledger, rule: PrivacyFilter):
    """Allow a plan to be followed for the remaining steps of an earlier training: see `PrivacyAccountant.resume`."""
    if ledger.path is None:
        raise ValueError(
            "a training is resumed from a ledger file, which holds the steps that were taken: this accountant has none"
        )
    header = read_header(path)
    if header.ledger != ledger.identity:
        raise LedgerError(f"{path} is the checkpoint of a training charged to another ledger than {ledger.path}")
    with plan._use.lock:
        plan._check_free()
        try:
            charge, steps, taken = ledger.steps_of(header.record, rule)
        except ValueError as error:
            raise LedgerError(f"{path} does not fit the ledger {ledger.path}: {error}") from None
        if unit_of_plan(plan) != charge.unit or not _same_training(plan, charge) or header.plan != plan.numbers:
            raise RuntimeError(
                f"{path} is the checkpoint of a training under another plan, charged as {charge.label!r}: give the "
                "plan the same numbers"
            )
        if not taken:
            raise RuntimeError(
                f"the training charged as {charge.label!r} was not begun with a checkpoint: how many of its steps were "
                "run is not known, so none can be run again"
            )
        if header.steps > taken:
            raise LedgerError(
                f"{path} contains {header.steps} steps, and the ledger {ledger.path} knows of {taken}: the ledger was "
                "restored to an earlier state; use the latest ledger file"
            )
        if taken >= steps:
            raise RuntimeError(
                f"all {steps} steps charged as {charge.label!r} were taken: nothing is left to train; "
                "DPNet.load_checkpoint reads the parameters"
            )
        plan._bind()
        plan._use.resume(ChargedSteps(ledger, rule, header.record), taken)
    return plan


def unit_of_plan(plan) -> str | None:
    """Return who the steps of a plan protect: all rows of one unit, by name; None: one row."""
    unit = getattr(plan, "unit", None)
    return None if unit is None else unit.name


def _same_training(plan, charge: Charge) -> bool:
    """Whether a charge is that of all steps of a DP-SGD plan, and of nothing else."""
    rows = charge.releases
    return len(rows) == 1 and rows[0].mechanism == "poisson_gaussian" and rows == releases(plan.event)


# ---- the header of a checkpoint ------------------------------------------------------------------
_FORMAT = "skdpgen-checkpoint/1"
_KIND = "a checkpoint of skdpgen"
_FIELDS = {"format", "version", "ledger", "record", "plan", "steps", "optimizer"}


class CheckpointHeader(NamedTuple):
    """Header of a checkpoint."""

    ledger: str  # identity of the ledger file that was charged
    record: int  # number of the charge in it
    plan: dict[str, Any]  # numbers of the plan, its steps among them
    steps: int  # steps taken until the file was written: the ledger may count more
    # numbers in the state of the optimiser, by parameter and name; its tensors are in the rest of the file
    optimizer: dict[str, dict[str, Any]]


def header_text(header: CheckpointHeader) -> str:
    """Return the header as text of the file."""
    return json.dumps({"format": _FORMAT, "version": __version__, **header._asdict()}, allow_nan=False)


def read_header(path) -> CheckpointHeader:
    """Return the header of a checkpoint; ValueError for anything else, FileNotFoundError where there is none."""
    return _header(path, read_safetensors(path, _KIND, whole=False)[0])


def read_whole(path) -> tuple[CheckpointHeader, bytes]:
    """Return the header and the whole content, to be read by safetensors; errors as `read_header`."""
    header, content = read_safetensors(path, _KIND)
    return _header(path, header), content


def _header(path, found) -> CheckpointHeader:
    if not isinstance(found, dict) or found.get("format") != _FORMAT or set(found) != _FIELDS:
        raise ValueError(f"{path}: not {_KIND}, or of a newer version")
    header = CheckpointHeader(*(found[name] for name in CheckpointHeader._fields))
    numbers = (header.record, header.steps)
    if (
        any(type(number) is not int or number < 0 for number in numbers)
        or not isinstance(header.ledger, str)
        or not isinstance(header.plan, dict)
        or not isinstance(header.optimizer, dict)
        or not all(isinstance(part, dict) for part in header.optimizer.values())
    ):
        raise ValueError(f"{path}: not {_KIND}: its header holds values of other types")
    return header
