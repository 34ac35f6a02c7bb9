"""Plans for tests of training: charged, as every plan must be, to a budget without a limit."""

from __future__ import annotations

import math

from skdpgen.accounting import PrivacyAccountant

__all__ = ["charged"]


def charged(plan):
    """Charge a plan and give it back."""
    if plan.private:
        unit = None if getattr(plan, "unit", None) is None else plan.unit.name
        PrivacyAccountant(math.inf, neighboring=getattr(plan, "neighboring", None), unit=unit).charge(plan, "test")
    return plan
