"""Fits within a search: planned together, charged as one repetition, and each made once on a reservation."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from dp_accounting import DpEvent

from .._types import BoundedUnit
from ..exceptions import BudgetExceededError
from ..utils.forks import ForkSafeLock, process_identity
from ._accountant import PrivacyAccountant, detached_accountant
from ._calibration import FitPlan, Phase, check_phases, make_plan, scale_for_rdp, scale_of_rdp
from ._events import Charge, Repetition, releases
from ._filter import Entry
from ._pricing import check_delta, check_epsilon, epsilon_rdp, gaussian_mu
from ._receipt import Receipt
from ._renyi import rdp_at, run_probabilities

# Relative distance below its target at which the search for the noise ends.
_TOLERANCE = 1e-4


class FitRequest(NamedTuple):
    """Phases of the releases of a fit, and the share of delta for its thresholds."""

    label: str
    phases: tuple[Phase, ...]
    extra_delta_share: float
    unit: BoundedUnit | None = None


class PhaseRecorder:
    """Stands for the accountant while a fit is planned, and records the phases that the fit asks it to calibrate.

    `accountant`: its relation and delta hold for the plan. `request`: of the last `calibrate`.
    """

    fixed_phases, charged_labels, label = True, None, None

    def __init__(self, accountant: PrivacyAccountant):
        self.neighboring, self.delta = accountant.neighboring, accountant.delta
        self.request: FitRequest | None = None

    def calibrate(self, phases, *, label, epsilon=None, delta=None, extra_delta_share=0.0, unit=None) -> FitPlan:
        """Record the request; return a plan with an arbitrary noise."""
        self.request = FitRequest(label, check_phases(phases), float(extra_delta_share), unit)
        terms = {"neighboring": self.neighboring, "delta": self.delta, "epsilon": 1.0 if epsilon is None else epsilon}
        extra_delta = 0.5 * extra_delta_share * self.delta
        return make_plan(self.request.phases, 1.0, label=label, extra_delta=extra_delta, unit=unit, **terms)


class CalibratedFit:
    """Stands for the accountant while a fit is prepared whose plan a search has calibrated: it returns that plan."""

    fixed_phases, charged_labels, label = True, None, None

    def __init__(self, plan: FitPlan):
        self.neighboring, self.delta, self._plan = plan.neighboring, plan.delta, plan

    def calibrate(self, phases, *, label, epsilon=None, delta=None, extra_delta_share=0.0, unit=None) -> FitPlan:
        """Return the plan; BudgetExceededError where the fit asks for other phases, or protects another unit."""
        if check_phases(phases) != self._plan.phases or (label, unit) != (self._plan.label, self._plan.unit):
            raise BudgetExceededError(f"this fit was planned as {self._plan.label!r} with other phases or another unit")
        return self._plan


class Reservation:
    """The charge of a repeated fit, and its fits: as many as its distribution draws, until the block ends.

    A context manager. Its `charge` replaces the accountant's, once. Only fits that *this object* charged can be made:
    another entry of the ledger covers no fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen.accounting import PrivacyAccountant, gaussian_event, repeat_and_select_event
    >>> from skdpgen.accounting._reservation import Reservation
    >>> event = repeat_and_select_event([gaussian_event(9.0)], "poisson", 2)
    >>> with Reservation(PrivacyAccountant(1.0)) as reservation:
    ...     receipt = reservation.charge(event, "search")
    ...     n_runs = reservation.draw_runs("poisson", 2, rng=np.random.default_rng(0))
    """

    def __init__(self, accountant: PrivacyAccountant):
        self.accountant = accountant
        self._lock, self._process = ForkSafeLock(), process_identity()
        self._open, self._charge, self._left = False, None, None

    def __enter__(self):
        if self._charge is not None:
            raise BudgetExceededError(f"{self._charge.label!r} is over: it is not fitted again")
        self._open = True
        return self

    def __exit__(self, *_):
        self._open = False

    @property
    def open(self) -> bool:
        """Whether fits may still be made on the charge: in its block, in the process that made it."""
        return self._open and self._charge is not None and process_identity() == self._process

    def charge(
        self,
        event: DpEvent,
        label: str,
        extra_delta: float = 0.0,
        *,
        private: bool = True,
        unit: str | None = None,
    ) -> Receipt:
        """Charge the accountant, and return its receipt, as its `charge` does; a second charge is refused."""
        charge = Charge(label, event, extra_delta, unit)
        with self._lock:
            if not self._open or self._charge is not None:
                raise BudgetExceededError(f"{label!r}: one charge is made here, inside the block")
            receipt = self.accountant.charge(event, label, extra_delta, private=private, unit=unit)
            self._charge = charge
            return receipt

    def draw_runs(self, runs: str, mean: float, rng) -> int:
        """Draw, once, the number of fits; as many can then be taken.

        `mean`: the distribution: that of the charge (for a charge without noise, any).
        """
        with self._lock:
            if not self.open or self._left is not None:
                raise BudgetExceededError("the number of runs is drawn once, on a charge that was made here")
            if self._private and self._distribution() != (runs, float(mean)):
                raise BudgetExceededError(f"{self._charge.label!r} was charged for another number of runs")
            cumulative = np.cumsum(run_probabilities(runs, mean))
            self._left = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
            return self._left

    def take(self, plan: FitPlan, *, private: bool = True) -> tuple[Receipt, PrivacyAccountant]:
        """Use up one fit; BudgetExceededError where none is left, or the charge does not cover `plan`.

        `private`: as in `PrivacyAccountant.charge`. Returns `receipt`: covers the releases of `plan`; `accountant`:
        holds the charge of `plan` alone, for the card of the fit; nothing more can be charged to it.
        """
        with self._lock:
            if not self.open:
                raise BudgetExceededError(f"{plan.label!r}: its reservation is over (or was never charged)")
            if not self._left:
                raise BudgetExceededError(f"{self._charge.label!r}: no run is left of those that were drawn")
            if self._private and not self._covers(plan):
                raise BudgetExceededError(f"{plan.label!r} is not among the runs that {self._charge.label!r} covers")
            self._left -= 1
        search, entry = self.accountant, Entry(plan.charge, 1, "charged" if private else "seeded")
        rule = (math.inf, search.delta, search.neighboring, search.delta_reserve, search.unit)
        return Receipt(plan.charge), detached_accountant((entry,), rule)

    def _covers(self, plan):
        """Whether the releases of a run begin with those of the fit (a score may follow)."""
        rows, repeated = plan.releases, [row.repeated for row in self._charge.releases if row.repeated]
        begins = any(part[: len(rows)] == rows for repetition in repeated for part in repetition.alternatives)
        return begins and plan.extra_delta <= self._charge.extra_delta and plan.charge.unit == self._charge.unit

    @property
    def _private(self):
        # without noise there is nothing to cover, and the ledger says so
        return all(row.mechanism != "non_private" for row in self._charge.releases)

    def _distribution(self):
        rows = [row for row in self._charge.releases if row.repeated is not None]
        single = len(rows) == 1 and rows[0].count == 1 and isinstance(rows[0].repeated, Repetition)
        return (rows[0].repeated.runs, rows[0].repeated.mean) if single else None

    def __reduce__(self):
        raise TypeError("a reservation is neither copied nor sent to another process")


def plan_at(
    request: FitRequest,
    mu: float,
    accountant: PrivacyAccountant,
    *,
    alpha: float,
    extra_delta: float = 0.0,
    epsilon: float = 1.0,
) -> FitPlan:
    """Return the plan of a fit that has, at order `alpha`, the RDP of one Gaussian release of parameter `mu`.

    `mu`: infinite: no noise.
    `accountant`: its relation holds.
    `alpha`: order, > 1; for Gaussian phases alone it does not matter.
    `extra_delta`: part of delta that the thresholds of this fit may spend.
    `epsilon`: epsilon of the whole search, for the card.
    """
    scale = mu
    if math.isfinite(mu):
        scale = scale_for_rdp(request.phases, alpha * mu * mu / 2, alpha, accountant.neighboring)
    terms = {"epsilon": epsilon, "delta": accountant.delta, "neighboring": accountant.neighboring}
    return make_plan(request.phases, scale, label=request.label, extra_delta=extra_delta, unit=request.unit, **terms)


def calibrate_by_rdp(
    accountant: PrivacyAccountant,
    make_event: Callable[[float], DpEvent],
    *,
    label: str,
    epsilon: float | None,
    delta: float | None,
    extra_delta: float,
    advice: str = "",
    unit: BoundedUnit | None = None,
) -> tuple[float, FitPlan]:
    """Find the largest scale mu at which an event costs `epsilon`, by RDP, and the accountant accepts it.

    `make_event`: maps mu to an event; a larger mu costs more.
    `epsilon`: cost of the event alone; None: all that is left.
    `delta`: delta of that cost; None: the accountant's.
    `extra_delta`: part of delta that thresholds spend.
    `advice`: text added to the message where no noise is enough.
    `unit`: who is protected; None: one row.
    Returns `mu`, `plan`: without phases: they are those of the parts.
    Raises BudgetExceededError when no amount of noise brings the cost within the budget.
    """
    delta = accountant.delta if delta is None else check_delta(delta)
    entries, rule = accountant.entries, accountant._filter
    rule.check_unit(None if unit is None else unit.name, label)
    net, target = delta - extra_delta, math.inf if epsilon is None else check_epsilon(epsilon)
    if epsilon is None and not entries:
        target = accountant.epsilon
    if math.isinf(target) and (math.isinf(accountant.epsilon) or not entries):
        raise ValueError("epsilon must be finite here")
    alpha, relation = rule.alpha, accountant.neighboring

    def excess(log_mu, by_filter):
        event = make_event(math.exp(log_mu))
        if by_filter:
            return math.log(rdp_at(releases(event), alpha, relation) / max(rule.rdp_left(entries), 1e-300)) + _TOLERANCE
        return math.log(max(epsilon_rdp(event, net, relation), 1e-300) / target) + _TOLERANCE

    def search(by_filter, start):
        terms = {"tolerance": _TOLERANCE / 2, "farthest": 8.0}
        found = scale_of_rdp(lambda log_mu: excess(log_mu, by_filter), math.log(start), **terms)
        if found is None:
            what = f"epsilon = {target:g} at delta = {delta:g}" if not by_filter else "what is left of this budget"
            raise BudgetExceededError(f"no amount of noise brings {label} to {what}{advice}; nothing was charged")
        return found

    start = gaussian_mu(min(target, accountant.epsilon, 1e3), net)
    mu = math.inf if math.isinf(target) else search(False, start)
    if entries and math.isfinite(accountant.epsilon):
        name = None if unit is None else unit.name
        asked = None if math.isinf(mu) else Charge(label, make_event(mu), extra_delta, name)
        # a declared search is charged already: it uses up its entry
        declared = any(entry.status == "planned" and entry.charge == asked for entry in entries)
        refused = not declared and (asked is None or not rule.accepts(entries, [asked]))
        if refused and (math.isinf(target) or target <= rule.remaining(entries)):
            mu = search(True, start)
    event = make_event(mu)
    cost = max(epsilon_rdp(event, net, relation), 0.0)
    return mu, FitPlan(label, (), MappingProxyType({}), releases(event), extra_delta, cost, delta, relation, unit=unit)
