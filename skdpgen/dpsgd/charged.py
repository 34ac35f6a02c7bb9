"""Plans that are charged: one charge, one training, in one process."""

from __future__ import annotations

from dataclasses import fields

from ..utils.forks import ForkSafeLock, process_identity

__all__ = ["ChargedPlan", "PlanUse"]


class PlanUse:
    """What has become of a plan: in which process it was charged, who follows it, and how many steps were taken.

    Lists, as appending to one is a single act: of several threads, one is the first.
    """

    def __init__(self):
        self.lock = ForkSafeLock()  # held while the plan is being charged
        self.charged: list[tuple[int, int]] = []
        self.users: list[object] = []
        self.steps: list[None] = []

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
        """Steps trained under the plan so far, whichever copies of a net took them; not counted without noise."""
        return len(self._use.steps)

    def take_step(self) -> None:
        """Count one step, before it is taken; RuntimeError if all have been.

        Copies of a net share the plan and this count with it, so that together they run the steps that were charged.
        """
        if self.private:
            self.check_charged()
            self._use.steps.append(None)  # counted before it is asked
            if len(self._use.steps) > self.steps:
                raise RuntimeError(f"all {self.steps} steps of the plan have been taken; more were not charged")

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _anew, (type(self), {f.name: getattr(self, f.name) for f in fields(self) if f.init})


def _anew(cls, values):
    """A plan out of a pickle: one of the same numbers, which has not been charged."""
    return cls(**values)
