"""Fits within a fit that is paid as a whole: planned together, calibrated together, and each run on a voucher."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from dp_accounting import DpEvent
from scipy.optimize import brentq

from ..exceptions import BudgetExceededError
from ..utils.forks import ForkSafeLock, process_identity
from ._accountant import PrivacyAccountant
from ._calibration import FitPlan, Phase, check_phases, make_plan, scale_for_rdp
from ._cost import check_delta, check_epsilon, epsilon_rdp
from ._events import Charge, releases
from ._filter import PrivacyFilter
from ._gaussian import gaussian_mu
from ._ledger import MemoryLedger
from ._renyi import rdp_at
from ._selection import run_probabilities

__all__ = ["PaidFits", "PlanningAccountant", "Voucher", "calibrate_by_rdp", "plan_at"]

# How far below its target the search for the noise ends, relative to it.
_TOLERANCE = 1e-4


class FitRequest(NamedTuple):
    """What a fit asked of its accountant: the phases of its releases, and the share of delta for thresholds."""

    label: str
    phases: tuple[Phase, ...]
    extra_delta_share: float


class PlanningAccountant(PrivacyAccountant):
    """Learns what a fit would release; refuses every charge.

    Parameters
    ----------
    accountant : PrivacyAccountant
        Whose relation and deltas the fit is planned under.

    Attributes
    ----------
    request : FitRequest or None
        Of the last `calibrate`.
    """

    fixed_phases = True

    def __init__(self, accountant: PrivacyAccountant):
        self._filter = PrivacyFilter(math.inf, accountant.delta, accountant.neighboring, accountant.delta_reserve)
        self._ledger = MemoryLedger()
        self.request: FitRequest | None = None

    def calibrate(self, phases, *, label, epsilon=None, delta=None, extra_delta_share=0.0) -> FitPlan:
        """Note the request, and answer with a plan at an arbitrary noise."""
        self.request = FitRequest(label, check_phases(phases), float(extra_delta_share))
        terms = {"neighboring": self.neighboring, "delta": self.delta, "epsilon": 1.0 if epsilon is None else epsilon}
        return make_plan(
            self.request.phases, 1.0, label=label, extra_delta=0.5 * extra_delta_share * self.delta, **terms
        )

    def charge(self, event, label, extra_delta=0.0, *, private=True):
        """Refuse: nothing is paid while a fit is planned."""
        raise BudgetExceededError(f"{label!r} was only planned: nothing may be charged or released")

    plan = charge

    def __reduce__(self):
        raise TypeError("an accountant for planning does not leave the process")


class PaidFits:
    """Makes the charge of a repeated fit, and hands out its fits: as many as its law draws, until the block ends.

    A context manager. Its `charge` stands in for the accountant's, once; only what was charged *by it* can be fitted,
    so an entry of the books, however it came there, pays for no fit a second time.

    Parameters
    ----------
    accountant : PrivacyAccountant

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen.accounting import PrivacyAccountant, gaussian_event, repeat_and_select_event
    >>> from skdpgen.accounting._prepaid import PaidFits
    >>> event = repeat_and_select_event([gaussian_event(9.0)], "poisson", 2)
    >>> with PaidFits(PrivacyAccountant(1.0)) as paid:
    ...     paid.charge(event, "search")
    ...     n_runs = paid.draw_runs("poisson", 2, rng=np.random.default_rng(0))
    """

    def __init__(self, accountant: PrivacyAccountant):
        self._accountant, self._lock, self._process = accountant, ForkSafeLock(), process_identity()
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

    def charge(self, event: DpEvent, label: str, extra_delta: float = 0.0, *, private: bool = True) -> None:
        """Charge the accountant, as its own `charge`; a second charge is refused."""
        charge = Charge(label, event, extra_delta)
        with self._lock:
            if not self._open or self._charge is not None:
                raise BudgetExceededError(f"{label!r}: one charge is made here, inside the block")
            self._accountant.charge(event, label, extra_delta, private=private)
            self._charge = charge

    def draw_runs(self, runs: str, mean: float, rng) -> int:
        """Draw, once, how many fits there are; that many vouchers can be had.

        Parameters
        ----------
        runs : str
        mean : float
            The law: that of the charge (of one without noise, any).
        rng : NoiseGenerator
        """
        with self._lock:
            if not self.open or self._left is not None:
                raise BudgetExceededError("the number of runs is drawn once, on a charge that was made here")
            if self._private and self._law() != (runs, float(mean)):
                raise BudgetExceededError(f"{self._charge.label!r} was charged for another number of runs")
            chances = np.cumsum(run_probabilities(runs, mean))
            self._left = int(np.searchsorted(chances, rng.random() * chances[-1], side="right"))
            return self._left

    def take(self, plan: FitPlan) -> None:
        """Use up one fit; BudgetExceededError where none is left, or `plan` is not among those that were paid for."""
        with self._lock:
            if not self.open:
                raise BudgetExceededError(f"{plan.label!r}: what it was paid by is over (or was never charged)")
            if not self._left:
                raise BudgetExceededError(f"{self._charge.label!r}: no run is left of those that were drawn")
            rows = releases(plan.event)
            covered = [
                part for row in releases(self._charge.event) if row.repeated for part in row.repeated.alternatives
            ]
            cheap = plan.extra_delta <= self._charge.extra_delta
            if self._private and not (cheap and any(_starts(part, rows) for part in covered)):
                raise BudgetExceededError(f"{plan.label!r} is not among the runs that {self._charge.label!r} paid for")
            self._left -= 1

    @property
    def accountant(self) -> PrivacyAccountant:
        """Whose books hold the charge."""
        return self._accountant

    @property
    def _private(self):
        # without noise there is nothing to cover, and the books say so
        return all(row.mechanism != "non_private" for row in releases(self._charge.event))

    def _law(self):
        rows = releases(self._charge.event)
        single = len(rows) == 1 and rows[0].count == 1 and rows[0].repeated is not None
        return (rows[0].repeated.runs, rows[0].repeated.mean) if single else None

    def __reduce__(self):
        raise TypeError("paid fits are neither copied nor sent to another process")


class Voucher(PrivacyAccountant):
    """Pays for one fit that is part of a charge just made; used up by it, and void once the charge's block has ended.

    Parameters
    ----------
    paid : PaidFits
        Open, with a run left.
    plan : FitPlan
        Of the fit: its event must be one of those that the repetition was charged for.

    Raises
    ------
    BudgetExceededError
        When `paid` is over, has no run left, or does not cover `plan`.
    """

    fixed_phases = True

    def __init__(self, paid: PaidFits, plan: FitPlan):
        paid.take(plan)
        accountant = paid.accountant
        rule = (math.inf, accountant.delta, accountant.neighboring, accountant.delta_reserve)
        self._filter, self._ledger = PrivacyFilter(*rule), MemoryLedger()
        self._plan, self._paid, self._lock = plan, paid, ForkSafeLock()

    def calibrate(self, phases, *, label, epsilon=None, delta=None, extra_delta_share=0.0) -> FitPlan:
        """Return the plan that was paid for; another fit is refused."""
        if check_phases(phases) != self._plan.phases or label != self._plan.label:
            raise BudgetExceededError(f"this fit was paid for as {self._plan.label!r} with other phases")
        return self._plan

    def charge(self, event, label, extra_delta=0.0, *, private=True):
        """Take the one charge that was paid for; a second, or another, is refused."""
        charge = Charge(label, event, extra_delta)
        with self._lock:
            if not self._paid.open:
                raise BudgetExceededError(f"{label!r}: what it was paid by is over")
            if self._ledger.totals(self._filter) or charge != self._plan.charge:
                raise BudgetExceededError(f"{label!r}: one fit was paid for, and not this one (or not twice)")
            return super().charge(event, label, extra_delta, private=private)

    def plan(self, charges):
        """Refuse: the one fit is planned already."""
        raise BudgetExceededError("a fit within a paid one declares nothing")

    def __reduce__(self):
        raise TypeError("a voucher for one fit does not leave the process")


def _starts(part, rows):
    """Whether the releases of a run begin with those of the fit (a score may follow)."""
    return part[: len(rows)] == rows


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

    Parameters
    ----------
    request : FitRequest
    mu : float
        Infinite: no noise.
    accountant : PrivacyAccountant
        Whose relation holds.
    alpha : float
        Order, > 1; for Gaussian phases alone it does not matter.
    extra_delta : float
        What thresholds may spend in this fit.
    epsilon : float
        Of the whole that the fit is part of, for its card.
    """
    scale = mu
    if math.isfinite(mu):
        scale = scale_for_rdp(request.phases, alpha * mu * mu / 2, alpha, accountant.neighboring)
    terms = {"epsilon": epsilon, "delta": accountant.delta, "neighboring": accountant.neighboring}
    return make_plan(request.phases, scale, label=request.label, extra_delta=extra_delta, **terms)


def calibrate_by_rdp(
    accountant: PrivacyAccountant,
    make_event: Callable[[float], DpEvent],
    *,
    label: str,
    epsilon: float | None,
    delta: float | None,
    extra_delta: float,
    advice: str = "",
) -> tuple[float, FitPlan]:
    """Find the largest scale mu at which an event costs what is asked for, by RDP, and the books accept it.

    Parameters
    ----------
    accountant : PrivacyAccountant
    make_event : callable
        From mu to an event; a larger mu costs more.
    label : str
    epsilon : float or None
        What the event may cost alone; None is all that is left.
    delta : float or None
        None is the accountant's.
    extra_delta : float
        Part of delta that thresholds spend.
    advice : str
        Added to the message where no noise is enough.

    Returns
    -------
    mu, plan : float, FitPlan
        Without phases: they are those of the parts.

    Raises
    ------
    BudgetExceededError
        When no amount of noise brings the price within the budget.
    """
    delta = accountant.delta if delta is None else check_delta(delta)
    entries, rule = accountant.entries, accountant._filter
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
        low = high = math.log(start)
        while excess(high, by_filter) < 0:
            low, high = high, high + 0.3
        while excess(low, by_filter) > 0:
            low, high = low - 0.3, low
            if low < math.log(start) - 8:
                what = f"epsilon = {target:g} at delta = {delta:g}" if not by_filter else "what is left of this budget"
                raise BudgetExceededError(f"no amount of noise brings {label} to {what}{advice}; nothing was charged")
        return math.exp(brentq(excess, low, high, args=(by_filter,), xtol=4e-5, rtol=1e-9) - 4e-5)

    start = gaussian_mu(min(target, accountant.epsilon, 1e3), net)
    mu = math.inf if math.isinf(target) else search(False, start)
    if entries and math.isfinite(accountant.epsilon):
        asked = None if math.isinf(mu) else Charge(label, make_event(mu), extra_delta)
        # one that was declared is paid for already: it uses its own entry up
        declared = any(entry.status == "planned" and entry.charge == asked for entry in entries)
        refused = not declared and (asked is None or not rule.accepts(entries, [asked]))
        if refused and (math.isinf(target) or target <= rule.remaining(entries)):
            mu = search(True, start)
    event = make_event(mu)
    cost = epsilon_rdp(event, net, relation)
    return mu, FitPlan(label, (), MappingProxyType({}), event, extra_delta, max(cost, 0.0), delta, relation)
