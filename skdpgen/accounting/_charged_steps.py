"""Steps of one training that a ledger file was charged for: taken from it before they run, whoever runs them."""

from __future__ import annotations

from typing import NamedTuple

from ..exceptions import LedgerError
from ._checkpoint import read_header
from ._events import Charge, releases
from ._filter import PrivacyFilter
from ._ledger import FileLedger

__all__ = ["ChargedSteps", "resume", "same_training"]


class ChargedSteps(NamedTuple):
    """Record `number` of a ledger file, which was charged for the steps of one training.

    The ledger alone says how many steps were taken. Processes, forks and copies of a checkpoint therefore never run
    more steps than were charged; steps that were taken and not run, because their process died, are lost.
    """

    ledger: FileLedger
    rule: PrivacyFilter
    number: int

    @property
    def identity(self) -> tuple[str, int]:
        """What a checkpoint names: the identity of the ledger, and the number of the record."""
        return self.ledger.identity, self.number

    def take(self, count: int, *, begins: bool) -> tuple[int, int]:
        """Take steps; return how many were granted, and how many all have taken. See `FileLedger.take_steps`."""
        return self.ledger.take_steps(self.number, count, self.rule, begins=begins)


def resume(plan, path, ledger, rule: PrivacyFilter):
    """Let a plan be followed for the steps of an earlier training that are left: `PrivacyAccountant.resume`."""
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
        if not same_training(plan, charge) or header.plan != plan.numbers:
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
                f"{path} holds {header.steps} steps, and the ledger {ledger.path} knows of {taken}: the ledger was put "
                "back to an earlier state"
            )
        if taken >= steps:
            raise RuntimeError(
                f"all {steps} steps charged as {charge.label!r} were taken: nothing is left to train; "
                "DPNet.load_checkpoint reads the parameters"
            )
        plan._bind()
        plan._use.resume(ChargedSteps(ledger, rule, header.record), taken)
    return plan


def same_training(plan, charge: Charge) -> bool:
    """Whether a charge is that of all steps of a DP-SGD plan, and of nothing beside it."""
    rows = releases(charge.event)
    return len(rows) == 1 and rows[0].mechanism == "poisson_gaussian" and rows == releases(plan.event)
