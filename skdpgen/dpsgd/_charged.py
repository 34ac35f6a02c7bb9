"""Plans that are charged: one charge, one training, in one process."""

from __future__ import annotations

from dataclasses import fields

from ..utils.forks import ForkSafeLock, process_identity

__all__ = ["ChargedPlan", "PlanUse"]


class PlanUse:
    """What has become of a plan: in which process it was charged, who follows it, and how many steps were taken.

    Lists, as appending to one is a single act: of several threads, one is the first.

    Steps come from the charge in memory, all of them, or, for a training with a checkpoint, in blocks from the ledger
    file (`from_ledger`), once and for all: a ledger that did not know of some of the steps would grant them again.
    """

    def __init__(self):
        self.lock = ForkSafeLock()  # held while the plan is being charged, and while steps are taken from the ledger
        self.record = None  # ChargedSteps, where the plan is the whole of a charge to a ledger file
        self.from_ledger = False
        self.before = 0  # steps that the ledger knew of when the training was resumed
        self.granted = 0  # steps taken from the ledger for this object
        self.known = 0  # steps taken from the ledger by all, when last seen
        self.charged: list[tuple[int, int]] = []
        self.users: list[object] = []
        self.steps: list[None] = []

    def resume(self, record, taken):
        """Note that the steps go on from `taken`, in the ledger."""
        self.record, self.from_ledger, self.before, self.known = record, True, taken, taken

    def __deepcopy__(self, memo):
        return PlanUse()  # of a copy that is no plan: `dataclasses.asdict` makes one


class ChargedPlan:
    """Base of frozen plans, with a field ``_use``: they are followed once, by the training that was charged.

    The plan *object* is what is charged. Copies are the object itself; `dataclasses.replace` and pickles make other
    plans, which are not charged; a fork takes the plan along and may not follow it. A plan without noise costs nothing
    and may be followed as often as one likes.
    """

    def _bind(self):
        """Note that this process was charged for the plan: by a `Receipt` alone."""
        self._check_free()
        self._use.charged.append(process := process_identity())
        if self._use.charged[0] is not process:
            raise RuntimeError("another charge covers this plan already: a plan is charged once")

    def _check_free(self):
        """Refuse a plan that was charged before: to be called before it is charged again."""
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
                "are plans of their own)"
            )
        if self._use.charged[0] != process_identity():
            raise RuntimeError(
                "the plan was charged in another process, which alone may train for it: after a fork, charge a new "
                "plan in the process that trains"
            )

    def claim(self, user):
        """Use the plan up for `user` (any object, the same for one training, which may go on after an interruption).

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
        """Steps trained under the plan so far, whichever copies of a net took them; not counted without noise.

        Of a training with a checkpoint those count, too, that others took from the ledger, as far as is known here.
        """
        use = self._use
        return min(use.known - use.granted + len(use.steps), int(self.steps))

    @property
    def steps_resumed(self) -> int:
        """Steps that an interrupted training had taken before this plan went on with it."""
        return self._use.before

    @property
    def steps_granted(self) -> int:
        """Steps that were taken from the ledger and can be run."""
        return max(self._use.granted - len(self._use.steps), 0)

    @property
    def block_size(self) -> int:
        """Steps taken from the ledger at once, about 2 %: as many are lost at most when a process dies."""
        return max(1, int(self.steps) // 50)

    @property
    def numbers(self) -> dict:
        """Kind and numbers of the plan as JSON holds them; without the size of physical batches, a matter of memory."""
        names = [f.name for f in fields(self) if f.init and f.name != "max_physical_batch"]
        return {"kind": type(self).__name__, **{name: _plain(getattr(self, name)) for name in names}}

    def take_block(self) -> int:
        """Take the next steps from the ledger that was charged, before they run; return how many were granted.

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
            # even where the ledger does not answer: it may have written, and all steps then come from it
            use.from_ledger = True
            if begins and use.steps:
                raise RuntimeError("the training began without a checkpoint: the ledger does not know of its steps")
            granted, use.known = use.record.take(self.block_size, begins=begins)
            use.granted += granted
        return granted

    def take_step(self) -> None:
        """Count one step, before it is taken; RuntimeError if all have been.

        Copies of a net share the plan and this count with it, so that together they run the steps that were charged.
        """
        if self.private:
            self.check_charged()
            self._use.steps.append(None)  # counted before it is asked
            if self._use.from_ledger and len(self._use.steps) > self._use.granted:
                raise RuntimeError("all steps that were taken from the ledger have been run: more are taken in blocks")
            if len(self._use.steps) > self.steps:
                raise RuntimeError(f"all {self.steps} steps of the plan have been taken; more were not charged")

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _anew, (type(self), {f.name: getattr(self, f.name) for f in fields(self) if f.init})


def _plain(value):
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.item() if hasattr(value, "item") else value


def _anew(cls, values):
    """A plan out of a pickle: one of the same numbers, which has not been charged."""
    return cls(**values)
