"""Empirical lower bounds of epsilon: whether a fit loses less than it claims."""

from __future__ import annotations

from ._audit import AuditPlan, AuditResult, audit, audit_neighbours, audit_one_run, audit_training, plan_audit
from ._bounds import epsilon_from_counts, epsilon_from_guesses, mu_from_counts, mu_from_scale, mu_from_shift
from ._trainings import audit_trainings

__all__ = [
    "AuditPlan",
    "AuditResult",
    "audit",
    "audit_neighbours",
    "audit_one_run",
    "audit_training",
    "audit_trainings",
    "epsilon_from_counts",
    "epsilon_from_guesses",
    "mu_from_counts",
    "mu_from_scale",
    "mu_from_shift",
    "plan_audit",
]
