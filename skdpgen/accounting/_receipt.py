"""Receipt: what a charge gives back, good for one training of each release that was charged."""

from __future__ import annotations

from ..utils.forks import ForkSafeLock, process_identity
from ._charged_steps import ChargedSteps, same_training
from ._events import Charge, Release, releases

__all__ = ["Receipt"]


class Receipt:
    """Shows that releases were charged, in this process, and lets each of them be made once.

    Given by `PrivacyAccountant.charge`. A plan of steps (`DPSGDPlan`, `SubsetPlan`) can be followed once a receipt
    covers it. What it covers is used up: the same charge covers no second plan, whatever its numbers.

    Attributes
    ----------
    label : str
        Of the charge.
    event : dp_accounting.DpEvent
        What was charged.

    Notes
    -----
    Copies are the receipt itself. One that was pickled, or that went through a fork, covers nothing.

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
        self._left = list(releases(charge.event))
        self._process = process_identity()
        self._lock = ForkSafeLock()

    @property
    def label(self) -> str:
        return self._charge.label

    @property
    def event(self):
        return self._charge.event

    def cover(self, plan):
        """Let a plan be followed, once, in this process; the releases that it makes are used up.

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
            another process than that of the charge.
        """
        if not plan.private:
            return plan
        if self._process != process_identity():
            raise RuntimeError(
                f"the charge {self.label!r} was made in another process (or the receipt was pickled), which alone may "
                "train for it: charge in the process that trains"
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
            if self._steps is not None and same_training(plan, self._charge):
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
    """A receipt out of a pickle: what was charged may have been made where it comes from."""
    receipt = Receipt(charge)
    receipt._process = None
    return receipt


def _without(left: list[Release], wanted: tuple[Release, ...]) -> list[Release] | None:
    """Return the releases that are left once those wanted are taken off; None where they are not all there."""
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
