"""The rule by which a shared ledger accepts or refuses a charge, as pure functions of its entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.optimize import minimize_scalar

from .._types import check_neighboring, in_words
from ..exceptions import BudgetExceededError
from ..utils.printing import shown
from ._events import Charge, check_unit_name
from ._pricing import check_delta, check_epsilon, epsilon_pld, gaussian_epsilon
from ._renyi import conversion_cost, rdp_at

# Status that an entry of a ledger may have; see `Entry`.
STATUSES = ("planned", "charged", "seeded")

# Share of the limit that counts as nothing: rounding leaves it of a budget that is fully spent.
_NEGLIGIBLE = 1e-8


@dataclass(frozen=True)
class Entry:
    """An entry of a ledger: a charge, the batch it was declared in, and its status.

    `batch` counts declarations from 1: entries of one batch were fixed together. `status` is
    "planned" (accepted and charged, not yet run), "charged", or "seeded": charged for a fit whose noise can be
    reproduced, so that the ledger guarantees nothing. `day` is that of the charge in UTC, where the ledger holds days.
    """

    charge: Charge
    batch: int
    status: str
    day: str | None = field(default=None, compare=False)

    @property
    def used(self) -> bool:
        """Whether it has been run."""
        return self.status != "planned"


def proves_privacy(entries: Sequence[Entry]) -> bool:
    """Whether a ledger guarantees privacy: every release had noise, and nobody can reproduce it."""
    without_noise = any(row.mechanism == "non_private" for entry in entries for row in entry.charge.releases)
    return not without_noise and all(entry.status != "seeded" for entry in entries)


@dataclass(frozen=True)
class Totals:
    """Running sums over the entries of a ledger: all that the filter needs of the past.

    The sums are exact fractions, so they do not depend on the order of addition. An infinite one is a float.
    """

    batches: int = 0  # batches so far
    planned: int = 0  # number of planned entries that are not used yet
    # rdp, extra: RDP at the order of the filter (0 without one), and extra deltas, of all charges
    rdp: Fraction | float = Fraction(0)
    extra: Fraction | float = Fraction(0)
    # first_rdp, first_extra: those of the first batch alone
    first_rdp: Fraction | float = Fraction(0)
    first_extra: Fraction | float = Fraction(0)

    def __bool__(self):
        return self.batches > 0

    def used(self) -> Totals:
        """Return the totals once a planned entry has been used: it was counted when it was planned."""
        return replace(self, planned=self.planned - 1)


@dataclass(frozen=True)
class PrivacyFilter:
    """A privacy filter for one budget: which charges may be added, whatever was released before.

    Parameters
    ----------
    epsilon : float
        Budget, > 0; infinity accepts every charge.
    delta : float
        Budget, in (0, 1).
    neighboring : {"add_or_remove_one", "replace_one"}
    delta_reserve : float, default=0.2
        Share of delta, in [0, 1), reserved for the extra deltas of all charges.
    unit : str, default=None
        Who is protected by every charge: all rows of one `unit`; None: one row.

    Notes
    -----
    *Rule.* The first batch (one charge, or those of one plan) is accepted iff its joint epsilon by PLD,
    at delta less its own extra deltas, is at most epsilon. Every later batch is accepted iff the RDP of
    **all** batches at the order alpha sums to at most ``epsilon - c(alpha, delta - held)``, and all extra
    deltas sum to at most ``held``. Here alpha maximises ``(epsilon - c(a, (1 - delta_reserve) delta)) / a``, the
    squared noise ratio that Gaussian releases may use, and ``held`` is the larger of ``delta_reserve * delta``
    and the first batch's extra deltas. Both are known before anything is released.

    *Why it is sound.* When the first batch is declared nothing has been released, so its parameters, and with them
    which of two cases holds, do not depend on the data. (1) Its RDP alone exceeds the limit: then nothing is ever
    accepted after it, and the PLD of what was fixed in advance proves (epsilon, delta). (2) Otherwise every sequence
    of charges that the rule can accept, however each was chosen from earlier releases, has a sum of RDP, at one
    order fixed beforehand, within the limit: a Renyi filter [1]_, hence (epsilon, delta - held)-DP by the
    conversion that defines c [2]_; the threshold rules fail with probability at most ``held`` in all. The PLD plays
    no part in case 2.

    *Within a batch* the order, and dropping a release, may depend on earlier releases: the rest of the batch
    is dominated by the same composition whatever comes next (by induction, composition being commutative), and not
    running a mechanism is a post-processing of running it.

    *Meaning of the epsilon spent.* When charges were chosen adaptively, the guarantee is the budget: an
    RDP sum that stopped lower is what was counted, not a separate guarantee.

    References
    ----------
    .. [1] Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", 2021, Theorem 4.3 with constant
       bounds; Lecuyer, "Practical privacy filters and odometers with Renyi DP", 2021.
    .. [2] Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020, Proposition 12.
    """

    epsilon: float
    delta: float
    neighboring: str
    delta_reserve: float = 0.2
    unit: str | None = None

    def __post_init__(self):
        check_unit_name(self.unit)
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))
        check_neighboring(self.neighboring)
        if isinstance(self.delta_reserve, bool) or not 0 <= self.delta_reserve < 1:
            raise ValueError(f"delta_reserve must lie in [0, 1); got {shown(self.delta_reserve)}")
        object.__setattr__(self, "delta_reserve", float(self.delta_reserve))

    @cached_property
    def alpha(self) -> float | None:
        """The order of the filter; None for an infinite budget. 17.8 at (1, 1e-5) without a reserve."""
        if math.isinf(self.epsilon):
            return None
        net = self.delta * (1 - self.delta_reserve)

        def loss(log_excess):  # in log(alpha - 1); alpha = 1/delta always leaves something
            alpha = 1 + math.exp(log_excess)
            return -(self.epsilon - conversion_cost(alpha, net)) / alpha

        # several humps are impossible in practice, but a grid costs nothing and makes the search certain
        grid = np.linspace(math.log(1e-3), math.log(10 / net), 400)
        k = int(np.argmin([loss(t) for t in grid]))
        bounds = (grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)])
        best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
        # four digits: the same order on every machine
        return float(f"{1 + math.exp(best.x):.4g}")

    def rdp(self, charges: Sequence[Charge]) -> float:
        """RDP of charges at the filter's order."""
        if self.alpha is None:
            return math.nan
        return _rounded(sum((self._rdp(charge) for charge in charges), Fraction(0)))

    def _rdp(self, charge: Charge) -> Fraction | float:
        return Fraction(0) if self.alpha is None else _exact(rdp_at(charge.releases, self.alpha, self.neighboring))

    def add(self, totals: Totals, charge: Charge, batch: int, status: str) -> Totals:
        """Return the totals with one more entry; ValueError unless its batch is the last one or the next."""
        if batch not in (max(totals.batches, 1), totals.batches + 1):
            raise ValueError(f"batch {batch} does not follow batch {totals.batches}")
        rdp, extra = self._rdp(charge), Fraction(charge.extra_delta)
        return Totals(
            batches=batch,
            planned=totals.planned + (status == "planned"),
            rdp=totals.rdp + rdp,
            extra=totals.extra + extra,
            first_rdp=totals.first_rdp + rdp if batch == 1 else totals.first_rdp,
            first_extra=totals.first_extra + extra if batch == 1 else totals.first_extra,
        )

    def totals(self, past: Past) -> Totals:
        """Return the running sums over the past; totals are given back as they are."""
        if isinstance(past, Totals):
            return past
        totals = Totals()
        for entry in past:
            totals = self.add(totals, entry.charge, entry.batch, entry.status)
        return totals

    # ``past``: the entries accepted before, or their totals, which give the same answers in constant time
    def held(self, past: Past) -> float:
        """Part of delta that extra deltas may use, fixed once the first batch is known."""
        return max(self.delta_reserve * self.delta, float(self.totals(past).first_extra))

    def thresholds_left(self, past: Past) -> float:
        """Part of `held` that is left."""
        totals = self.totals(past)
        return max(self.held(totals) - float(totals.extra), 0.0)

    def limit(self, past: Past) -> float:
        """RDP that all charges together may reach once there is a second batch."""
        if self.alpha is None:
            return math.inf
        return self.epsilon - conversion_cost(self.alpha, self.delta - self.held(past))

    def rdp_left(self, past: Past) -> float:
        """RDP that the next batch may take; 0 when nothing more is accepted."""
        if self.alpha is None:
            return math.inf
        totals = self.totals(past)
        limit = self.limit(totals)
        left = limit - _rounded(totals.rdp)
        return left if left > _NEGLIGIBLE * abs(limit) else 0.0

    def check(self, past: Past, new: Sequence[Charge]) -> None:
        """Raise BudgetExceededError unless `new` may be added, as one batch, to what was accepted before.

        ValueError for a charge that protects another unit: of the two together, only the weaker guarantee would hold.
        """
        for charge in new:
            self.check_unit(charge.unit, charge.label)
        if math.isinf(self.epsilon):
            return
        if any(row.mechanism == "non_private" for charge in new for row in charge.releases):
            raise BudgetExceededError(
                f"a release that is not private cannot be charged to a finite budget (epsilon = {self.epsilon:g}); "
                "use an accountant with epsilon = inf; nothing was charged"
            )
        asked, extra = ", ".join(repr(charge.label) for charge in new), _extra(new)
        totals = self.totals(past)
        if not totals:
            if extra >= self.delta:
                raise BudgetExceededError(
                    f"{asked} spends {extra:.3g} of delta on thresholds, and the budget's delta is {self.delta:.3g}; "
                    "nothing was charged"
                )
            cost = epsilon_pld(new, self.delta, self.neighboring)
            if not cost <= self.epsilon:
                raise BudgetExceededError(
                    f"{asked} costs epsilon {cost:.6g} at delta {self.delta:.3g}, and the budget is {self.epsilon:g}; "
                    "nothing was charged"
                )
            return
        # the sum of all against all that is held, so that the tolerance of rounding is granted once
        if extra > 0 and float(totals.extra) + extra > self.held(totals) * (1 + 1e-12):
            left = self.thresholds_left(totals)
            raise BudgetExceededError(
                f"{asked} spends {extra:.3g} of delta on thresholds; of the {self.held(totals):.3g} that this ledger "
                f"reserves for them {left:.3g} are left: declare the categories, or create the ledger with a larger "
                "delta_reserve=; nothing was charged"
            )
        total, limit = _rounded(sum((self._rdp(charge) for charge in new), totals.rdp)), self.limit(totals)
        if not total <= limit:
            left, cost = self.remaining(totals), epsilon_pld(new, self.delta, self.neighboring)
            first = _rounded(totals.first_rdp) > limit
            amount = f"about {left:.4g}" if left else "nothing"
            words = f"{amount} of {self.epsilon:g} is left for a charge chosen after earlier ones"
            words += ": the first charge alone spent it" if first else ""
            advice = "epsilon=None spends what is left, and " if left else ""
            raise BudgetExceededError(
                f"{asked} costs epsilon {cost:.4g} alone, and {words}; {advice}accountant.plan shares a budget among "
                f"fits fixed in advance; nothing was charged (RDP at order {self.alpha:g}: {total:.4g} of at most "
                f"{limit:.4g})"
            )

    def check_unit(self, unit: str | None, label: str) -> None:
        """Raise ValueError unless charges for `unit` belong to this budget."""
        if unit != self.unit:
            raise ValueError(
                f"{label!r} protects {in_words(unit)}, and this ledger {in_words(self.unit)}: together they would "
                "guarantee the weaker of the two alone, so a ledger has one unit; give the fit the unit of the ledger, "
                "or an accountant with its own unit=; nothing was charged"
            )

    def accepts(self, past: Past, new: Sequence[Charge]) -> bool:
        """Whether `check` lets `new` pass."""
        try:
            self.check(past, new)
        except BudgetExceededError:
            return False
        return True

    def spent(self, entries: Sequence[Entry], delta: float | None = None) -> float:
        """Epsilon spent, at the budget's delta or another: PLD for one batch, the filter's sum for more."""
        delta = self.delta if delta is None else check_delta(delta)
        charges = [entry.charge for entry in entries]
        if self.alpha is None or len({entry.batch for entry in entries}) <= 1:
            return epsilon_pld(charges, delta, self.neighboring)
        net = min(delta * (1 - self.held(entries) / self.delta), delta - _extra(charges))
        return max(0.0, self.rdp(charges) + conversion_cost(self.alpha, net))

    def remaining(self, past: Past) -> float:
        """Epsilon that one more Gaussian fit may cost, alone, at the budget's delta."""
        if not past or self.alpha is None:
            return self.epsilon
        left = self.rdp_left(past)
        if not left > 0:
            return 0.0
        return gaussian_epsilon(math.sqrt(2 * left / self.alpha), self.delta) * (1 - 1e-9)


Past = Sequence[Entry] | Totals


def _exact(value: float) -> Fraction | float:
    """Return a number that adds up without rounding; infinity stays a float."""
    return Fraction(value) if math.isfinite(value) else value


def _rounded(value: Fraction | float) -> float:
    """Return an exact sum as a float; infinity where it is beyond one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _extra(charges: Sequence[Charge]) -> float:
    return math.fsum(charge.extra_delta for charge in charges)
