"""Fits that go on after an interruption: what their charge still entitles to, and their plan as a checkpoint holds it.

A fit with a checkpoint takes the steps of its training from the ledger file in blocks, each before it runs, and the
ledger notes the hash of the checkpoint from which the block goes on. Four rules follow, which the ledger enforces:

- a step is taken once: those that an interrupted process took and did not run are lost, and none runs twice;
- only files that the fit wrote are accepted: the hash of any other is not in the ledger;
- one process at a time goes on: whoever takes steps must know of all that were taken before;
- one charge is one model: the end of a fit names the checkpoint from which the model is made, and nothing follows it.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from .._types import BoundedUnit
from ..exceptions import LedgerError
from ._calibration import FitPlan, Phase, check_phases
from ._events import Charge
from ._ledger_records import FitSteps
from ._receipt import ChargedSteps, Receipt

_PHASE_FIELDS = ("label", "share", "steps", "sampling_rate", "mechanism", "signal")


def ledger_steps(accountant, number=None, receipt=None) -> ChargedSteps:
    """Return the steps of a fit in the ledger file of an accountant: of a record, or of a receipt for its charge.

    Raises ValueError for an accountant without a ledger file.
    """
    if accountant.ledger is None:
        raise ValueError(
            "checkpoint= needs a ledger file, which counts the steps that were taken: give "
            "accountant=PrivacyAccountant(..., ledger=path); nothing was charged"
        )
    number = receipt._steps.number if number is None else number
    return ChargedSteps(accountant._ledger, accountant._filter, number)


class ResumedFit:
    """Stands for the accountant in a fit that goes on: it plans and charges nothing, and answers as the charge was.

    `accountant`: that was charged. `plan`: of the checkpoint. `found`: of the ledger. Raises LedgerError: the plan is
    not what was charged.
    """

    fixed_phases = True

    def __init__(self, accountant, plan: FitPlan, found: FitSteps):
        self.neighboring, self.delta, self.label = accountant.neighboring, accountant.delta, accountant.label
        self._plan, self._found = plan, found
        self.charged_labels = frozenset(plan.noise_multipliers)
        if plan.charge != found.charge or plan.neighboring != accountant.neighboring:
            raise LedgerError("the plan in the checkpoint is not the one that was charged")

    def calibrate(self, phases, *, label, epsilon=None, delta=None, extra_delta_share=0.0, unit=None) -> FitPlan:
        """Return the plan that was charged; ValueError where the fit asks for other phases."""
        if check_phases(phases) != self._plan.phases or (label, unit) != (self._plan.label, self._plan.unit):
            raise ValueError(
                f"the checkpoint is of another fit, charged as {self._plan.label!r} with other phases (steps, rates or "
                "shares of the budget) or another label: give the same data and parameters; nothing was charged"
            )
        return self._plan

    def charge(self, event, label, extra_delta=0.0, *, private=True, unit=None) -> Receipt:
        """Return the receipt of the charge that was made; it covers the steps of the training, and nothing else."""
        if Charge(label, event, extra_delta, unit) != self._plan.charge:
            raise ValueError(f"the fit was charged as {self._plan.label!r}, and not for this; nothing was charged")
        if private != (self._found.status == "charged"):
            raise ValueError(
                "a fit goes on with noise of the kind that it began with: secret, or seeded in a test; nothing was "
                "charged"
            )
        receipt = Receipt(self._plan.charge)
        receipt._left = [row for row in receipt._left if row.mechanism != "gaussian"]
        receipt._day = self._found.day or receipt._day  # the card has the day of the charge
        return receipt


# ---- the plan in a checkpoint --------------------------------------------------------------------
def plan_to_json(plan: FitPlan) -> dict[str, Any]:
    """Return a plan as JSON holds it."""
    return {
        "label": plan.label,
        "phases": [{name: getattr(phase, name) for name in _PHASE_FIELDS} for phase in plan.phases],
        "noise_multipliers": dict(plan.noise_multipliers),
        "extra_delta": plan.extra_delta,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "neighboring": plan.neighboring,
        **({} if plan.unit is None else {"unit": asdict(plan.unit)}),
    }


def plan_from_json(content: Any) -> FitPlan:
    """Return the plan that `plan_to_json` wrote; ValueError for anything else."""
    try:
        phases = check_phases(Phase(**entry) for entry in content["phases"])
        noise = {phase.label: float(content["noise_multipliers"][phase.label]) for phase in phases}
        rows = tuple(phase._release(noise[phase.label]) for phase in phases)
        rest = (content["extra_delta"], content["epsilon"], content["delta"], content["neighboring"])
        if set(content["noise_multipliers"]) != set(noise) or not all(map(math.isfinite, rest[:3])):
            raise ValueError("other numbers")
        Charge(content["label"], rows, rest[0])
        unit = BoundedUnit(**content["unit"]) if "unit" in content else None
        return FitPlan(content["label"], phases, MappingProxyType(noise), rows, *rest, unit=unit)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"not the plan of a fit: {error}") from None
