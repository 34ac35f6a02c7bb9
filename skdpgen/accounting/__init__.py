"""Privacy accounting: events and their cost, calibration, the accountant with its ledger, and the privacy card."""

from __future__ import annotations

from ._accountant import PrivacyAccountant
from ._budget_plan import BudgetPlan, PlannedCounts
from ._calibration import FitPlan, Phase, calibrate, noise_multiplier_for
from ._card import PrivacyCard
from ._events import (
    Charge,
    compose_events,
    describe_event,
    event_from_json,
    event_to_json,
    gaussian_event,
    non_private_event,
    poisson_gaussian_event,
    repeat_and_select_event,
    subset_gaussian_event,
)
from ._filter import PrivacyFilter
from ._pricing import delta_pld, epsilon_pld, epsilon_rdp, gaussian_delta, gaussian_epsilon, gaussian_mu
from ._receipt import Receipt
from ._risk import membership_advantage, true_positive_rate

__all__ = [
    "BudgetPlan",
    "Charge",
    "FitPlan",
    "Phase",
    "PlannedCounts",
    "PrivacyAccountant",
    "PrivacyCard",
    "PrivacyFilter",
    "Receipt",
    "calibrate",
    "compose_events",
    "delta_pld",
    "describe_event",
    "epsilon_pld",
    "epsilon_rdp",
    "event_from_json",
    "event_to_json",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_event",
    "gaussian_mu",
    "membership_advantage",
    "noise_multiplier_for",
    "non_private_event",
    "poisson_gaussian_event",
    "repeat_and_select_event",
    "subset_gaussian_event",
    "true_positive_rate",
]
