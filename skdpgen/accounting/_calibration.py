"""From a budget to noise: one joint calibration of everything that a fit will release."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dp_accounting import DpEvent
from scipy.optimize import brentq

from .._types import BoundedUnit, UnitRelation, check_neighboring
from ..exceptions import InvalidInputError
from ._events import SUBSET_MECHANISMS, Charge, Release, checked_release, event_of, non_private_event, releases
from ._pricing import COARSE, FINE, check_delta, check_epsilon, combine, epsilon_of, gaussian_mu
from ._renyi import rdp_at
from ._subset_sampling import sampled_noise_multiplier

# Relative distance below the budget that the search aims at, and that it accepts.
_AIM, _ACCEPT = 2.5e-4, 1e-3
_MOST_FINE = 4
_FARTHEST = 35.0
# Largest noise of a step of DP-SGD, in the bound of its sum. Sums are rounded to a lattice that widens with the noise:
# see `slack_of_sums` in `dpsgd._plan`, which sets gradients aside half of their bound at this noise.
_MOST_NOISE_OF_STEPS = 2.0**14
# Step in which the bracket of a search by RDP grows.
_STRIDE = 0.5


@dataclass(frozen=True)
class Phase:
    """One planned kind of release of a fit, and its share of the budget.

    Parameters
    ----------
    label : str
        Name of the phase; unique within a fit.
    share : float
        Share, > 0, of the fit's squared Gaussian-DP parameter mu**2. Shares are relative; they need not sum to 1.
    steps : int, default=1
        Number of equal releases.
    sampling_rate : float, default=None
        Probability, in (0, 1], that a unit takes part in a step; None: plain Gaussian releases.
    mechanism : str, default="poisson_gaussian"
        Sampler of the steps: of the units independently, or of subsets of them (see `subset_gaussian_event`).
    signal : float, default=None
        Largest possible sum of a step, relative to its sensitivity; None: the expected number of rows in the step.

    Raises
    ------
    ValueError
        For an empty label, or a share, steps or sampling_rate out of range.

    Notes
    -----
    At scale mu a Gaussian phase gets noise multiplier ``sqrt(steps / (share mu^2))``, and a Poisson-sampled one
    ``1 / sqrt(log1p(share mu^2 / (sampling_rate^2 steps)))``: the central limit of its privacy loss (Bu, Dong, Long and
    Su 2020, Corollary 5.4). Only the split uses that limit; epsilon is computed without it.

    Examples
    --------
    >>> from skdpgen.accounting import Phase
    >>> Phase("decoder", share=0.7, steps=840, sampling_rate=300 / 63000).noise_multiplier(1.0)
    0.5...
    """

    label: str
    share: float
    steps: int = 1
    sampling_rate: float | None = None
    mechanism: str = "poisson_gaussian"
    signal: float | None = None

    def __post_init__(self):
        if not isinstance(self.label, str) or not self.label.strip():
            raise ValueError(f"the label of a phase must be a non-empty string; got {self.label!r}")
        if not (isinstance(self.share, numbers.Real) and 0 < self.share < math.inf):
            raise ValueError(f"phase {self.label!r}: share must be a positive number; got {self.share!r}")
        if isinstance(self.steps, bool) or not isinstance(self.steps, numbers.Integral) or self.steps < 1:
            raise ValueError(f"phase {self.label!r}: steps must be a whole number, at least 1; got {self.steps!r}")
        rate = self.sampling_rate
        if rate is not None and not (isinstance(rate, numbers.Real) and 0 < rate <= 1):
            raise ValueError(f"phase {self.label!r}: sampling_rate must be None or lie in (0, 1]; got {rate!r}")
        if self.mechanism != "poisson_gaussian" and (rate is None or self.mechanism not in SUBSET_MECHANISMS):
            raise ValueError(f"phase {self.label!r}: no such mechanism of sampled steps: {self.mechanism!r}")
        object.__setattr__(self, "share", float(self.share))
        object.__setattr__(self, "steps", int(self.steps))
        object.__setattr__(self, "sampling_rate", None if rate is None else float(rate))

    def noise_multiplier(self, mu: float) -> float:
        """Noise multiplier of each step when the fit's scale is `mu`."""
        squared = self.share * mu * mu
        if self.sampling_rate is None:
            return math.sqrt(self.steps / squared)
        return sampled_noise_multiplier(self.mechanism, self.sampling_rate, self.steps, squared)

    def _release(self, noise_multiplier: float) -> Release:
        """Return the phase's release at a given noise multiplier."""
        mechanism = "gaussian" if self.sampling_rate is None else self.mechanism
        return checked_release(mechanism, noise_multiplier, self.sampling_rate, self.steps)

    def event(self, noise_multiplier: float) -> DpEvent:
        """Return the phase's event at a given noise multiplier."""
        return event_of((self._release(noise_multiplier),))


@dataclass(frozen=True)
class FitPlan:
    """Noise and charge of a fit, fixed before it touches the data.

    Attributes
    ----------
    label : str
    phases : tuple of Phase
    noise_multipliers : mapping of str to float
        Noise multiplier of each phase, by label; 0.0 when epsilon is infinite.
    releases : tuple of Release
        Releases of all phases; `event` is their dp-accounting event.
    epsilon, delta, extra_delta : float
        Cost of the fit alone; extra_delta is the part of delta that threshold rules spend.
    neighboring : {"add_or_remove_one", "replace_one"}
    table : object or None
        Of a fit to a table, its public facts: with them `BudgetPlan` tells the errors of counts in rows.
    unit : BoundedUnit or None
        Who is protected; None: one row.
    """

    label: str
    phases: tuple[Phase, ...]
    noise_multipliers: Mapping[str, float] = field(hash=False)
    releases: tuple[Release, ...]
    extra_delta: float
    epsilon: float
    delta: float
    neighboring: str
    table: Any = field(default=None, compare=False, repr=False)
    unit: BoundedUnit | None = None

    @property
    def charge(self) -> Charge:
        """The entry that this plan makes in a ledger."""
        return Charge(self.label, self.releases, self.extra_delta, None if self.unit is None else self.unit.name)

    @property
    def relation(self) -> str | UnitRelation:
        """The relation that the noise of the releases follows: between rows, or between all rows of a unit."""
        return self.neighboring if self.unit is None else UnitRelation(self.neighboring, self.unit)

    @property
    def event(self) -> DpEvent:
        """The releases as an event of dp-accounting."""
        return event_of(self.releases)

    def __str__(self):
        from ._budget_plan import plan_in_words

        return plan_in_words(self)

    def _repr_html_(self):
        from ._budget_plan import plan_html

        return plan_html(self)

    def __reduce__(self):
        parts = (self.label, self.phases, dict(self.noise_multipliers), self.releases)
        rest = (self.extra_delta, self.epsilon, self.delta, self.neighboring, self.table, self.unit)
        return _restore_plan, (*parts, *rest)


def _restore_plan(label, phases, noise_multipliers, *rest):
    return FitPlan(label, phases, MappingProxyType(noise_multipliers), *rest)


# ---- the search ---------------------------------------------------------------------------------
def _largest_scale(cost: Callable[[float, str], float], target: float, start: float) -> float:
    """Find the largest scale whose epsilon is at most `target`, to 0.1 % of `target`.

    `cost(scale, resolution)` is the epsilon, and increases with scale. At most four are computed at the final
    resolution; of those within the target the largest is returned.
    """
    t, slope = _coarse_scale(cost, target, start)
    # epsilon at the final resolution is a little lower everywhere: follow the slope, then the secant
    best, upper, last = -math.inf, math.inf, None
    for _ in range(_MOST_FINE):
        value = math.log(max(cost(math.exp(t), FINE), 1e-300) / target)
        if value <= 0:
            best = max(best, t)
            if value >= -_ACCEPT * 0.9:
                break
        else:
            upper = min(upper, t)
        if last is not None and abs(t - last[0]) > 1e-6:
            slope = min(max((value - last[1]) / (t - last[0]), slope / 3), 3 * slope)
        last = (t, value)
        t += (-_AIM - value) / slope
        if math.isfinite(best) and math.isfinite(upper) and not best < t < upper:
            t = (best + upper) / 2
    while best == -math.inf:  # not reached in practice; the result is never above the target all the same
        t -= 0.01
        if cost(math.exp(t), FINE) <= target:
            best = t
    return math.exp(best)


def _coarse_scale(cost: Callable[[float, str], float], target: float, start: float) -> tuple[float, float]:
    """Find the logarithm of the scale whose epsilon at the coarse resolution is `target`, and the slope there."""
    logs: dict[float, float] = {}

    def coarse(t):
        if abs(t) > _FARTHEST:
            raise ValueError(
                f"no amount of noise brings the cost to epsilon = {target:g} at this delta: raise epsilon or delta"
            )
        if t not in logs:
            logs[t] = math.log(max(cost(math.exp(t), COARSE), 1e-300) / target)
        return logs[t]

    # bracket, then regula falsi (Illinois) on log epsilon against log scale, which is nearly a straight line
    low = high = math.log(start)
    stride = 0.25
    if coarse(low) > 0:
        while coarse(low) > 0:
            high, low, stride = low, low - stride, 2 * stride
    else:
        while coarse(high) <= 0:
            low, high, stride = high, high + stride, 2 * stride
    f_low, f_high, t = coarse(low), coarse(high), low
    for _ in range(60):
        finite = math.isfinite(f_low) and math.isfinite(f_high) and f_low > -600
        t = low - f_low * (high - low) / (f_high - f_low) if finite else (low + high) / 2
        value = coarse(t)
        if abs(value) < 3e-3 or high - low < 1e-4:
            break
        if value > 0:
            high, f_high, f_low = t, value, f_low / 2
        else:
            low, f_low, f_high = t, value, f_high / 2
    return t, _slope(logs, t)


def _slope(logs: dict[float, float], t: float) -> float:
    """d log epsilon / d log scale near t, from the points already computed; between 0.1 and 10."""
    near = sorted((point for point in logs if abs(logs[point]) < 50), key=lambda point: abs(point - t))
    # the epsilons of close points may come from two grids, a percent apart
    far = [point for point in near if abs(point - near[0]) > 0.1]
    if not far:
        return 1.0
    return min(max((logs[far[0]] - logs[near[0]]) / (far[0] - near[0]), 0.1), 10.0)


def noise_multiplier_for(
    make_event: Callable[[float], DpEvent], epsilon: float, delta: float, neighboring: str, extra_delta: float = 0.0
) -> float:
    """Find the least noise for which an event costs at most (epsilon, delta).

    Parameters
    ----------
    make_event : callable
        Function that maps a noise multiplier to an event; more noise must lower the cost.
    epsilon : float
        Epsilon to reach; positive and finite.
    delta : float
        Delta of the guarantee, in (0, 1).
    neighboring : {"add_or_remove_one", "replace_one"}
    extra_delta : float, default=0.0
        Part of `delta` that threshold rules spend beside the event.

    Returns
    -------
    float
        The event costs at most `epsilon`, and at least 0.999 of it.

    Raises
    ------
    ValueError
        For parameters out of range.

    Examples
    --------
    >>> from skdpgen.accounting import gaussian_event, noise_multiplier_for
    >>> round(noise_multiplier_for(gaussian_event, 1.0, 1e-5, "add_or_remove_one"), 2)
    3.73
    """
    epsilon, net = check_epsilon(epsilon), _net_delta(delta, extra_delta)
    check_neighboring(neighboring)
    if math.isinf(epsilon):
        raise ValueError("epsilon must be finite: no amount of noise costs infinity")

    def cost(scale, resolution):
        return epsilon_of(combine(releases(make_event(1 / scale)), neighboring), net, neighboring, resolution)

    return 1 / _largest_scale(cost, epsilon, 1.0)


def _net_delta(delta: float, extra_delta: float) -> float:
    check_delta(delta)
    if not (isinstance(extra_delta, numbers.Real) and 0 <= extra_delta < delta):
        raise ValueError(f"extra_delta must lie in [0, delta = {delta!r}); got {extra_delta!r}")
    return float(delta) - float(extra_delta)


def _phase_releases(phases: tuple[Phase, ...], mu: float) -> tuple[Release, ...]:
    """Return the releases of all phases at scale `mu`."""
    return tuple(phase._release(phase.noise_multiplier(mu)) for phase in phases)


@lru_cache(maxsize=1024)
def _scale(phases: tuple[Phase, ...], epsilon: float, net_delta: float, neighboring: str) -> float:
    mu = gaussian_mu(epsilon, net_delta) / math.sqrt(math.fsum(phase.share for phase in phases))
    if all(phase.sampling_rate is None for phase in phases):
        return mu  # exact: the shares sum to mu**2

    def cost(scale, resolution):
        return epsilon_of(combine(_phase_releases(phases, scale), neighboring), net_delta, neighboring, resolution)

    return _largest_scale(cost, epsilon, mu)


def scale_for_rdp(phases: tuple[Phase, ...], rdp: float, alpha: float, neighboring: str) -> float:
    """Find the scale at which the phases' RDP at order `alpha` is `rdp`, less rounding."""

    def gap(log_mu):
        return math.log(rdp_at(_phase_releases(phases, math.exp(log_mu)), alpha, neighboring) / rdp)

    start = 0.5 * math.log(2 * rdp / alpha / math.fsum(phase.share for phase in phases))
    found = scale_of_rdp(gap, start, tolerance=1e-10)
    if found is None:
        raise ValueError("no amount of noise brings these phases within the budget: raise epsilon or delta")
    return found


def scale_of_rdp(
    gap: Callable[[float], float], start: float, *, tolerance: float, farthest: float = _FARTHEST
) -> float | None:
    """Find the scale at which a cost by RDP, which is cheap to compute, is what is allowed.

    Costs by privacy loss distributions take convolutions: `_largest_scale` is for these.

    `gap`: log scale -> log of the cost over what is allowed; increases.
    `start`: log scale near the result.
    `tolerance`: by which the log scale may be too small.
    `farthest`: from `start`, on the log scale.
    Returns None where even far more noise than at `start` costs too much.
    """
    low = high = start
    while gap(low) > 0:
        low -= _STRIDE
        if start - low > farthest:
            return None
    while gap(high) <= 0:
        high += _STRIDE
    log_scale = brentq(gap, low, high, xtol=tolerance, rtol=1e-12)
    while gap(log_scale) > 0:
        log_scale -= tolerance
    return math.exp(log_scale)


def make_plan(
    phases: tuple[Phase, ...],
    mu: float,
    *,
    label: str,
    extra_delta: float,
    epsilon: float,
    delta: float,
    neighboring: str,
    unit: BoundedUnit | None = None,
) -> FitPlan:
    """Make the plan of phases at scale `mu`; infinite mu is no noise at all."""
    if math.isinf(mu):
        noise, rows = {phase.label: 0.0 for phase in phases}, releases(non_private_event())
    else:
        noise = {phase.label: phase.noise_multiplier(mu) for phase in phases}
        rows = _phase_releases(phases, mu)
    return FitPlan(label, phases, MappingProxyType(noise), rows, extra_delta, epsilon, delta, neighboring, unit=unit)


def check_phases(phases: Iterable[Phase]) -> tuple[Phase, ...]:
    """Return the phases as a tuple; ValueError if there is none or two have the same label."""
    phases = tuple(phases)
    if not phases or not all(isinstance(phase, Phase) for phase in phases):
        raise ValueError("phases must hold at least one Phase, and nothing else")
    labels = [phase.label for phase in phases]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ValueError(f"phase labels must differ; found twice: {twice}")
    return phases


def check_noise_of_steps(noise_multiplier):
    """Refuse noise so large that gradient sums, rounded to its lattice, may move by more than their bound."""
    if not noise_multiplier <= _MOST_NOISE_OF_STEPS:
        raise InvalidInputError(
            f"noise of {noise_multiplier:.2g} times the bound of a step is too large for gradients, which are lost "
            f"where sums are rounded (at most {_MOST_NOISE_OF_STEPS:.0f}): raise epsilon or delta, or reduce steps or "
            "sampling_rate"
        )


def calibrate(
    phases: Iterable[Phase],
    epsilon: float,
    delta: float,
    neighboring: str,
    *,
    label: str,
    extra_delta: float = 0.0,
    unit: BoundedUnit | None = None,
) -> FitPlan:
    """Find the noise of every phase of a fit so that the whole costs the given (epsilon, delta).

    Parameters
    ----------
    phases : iterable of Phase
        Phases of the fit, with different labels.
    epsilon : float
        Epsilon of the fit; positive. Infinity gives a plan without noise, whose event is not private.
    delta : float
        Delta of the guarantee, in (0, 1).
    neighboring : {"add_or_remove_one", "replace_one"}
    label : str
        Name of the fit in the ledger.
    extra_delta : float, default=0.0
        Part of `delta` that threshold rules spend.
    unit : BoundedUnit, default=None
        Who is protected; None: one row. The noise multipliers do not depend on it: the sensitivities do.

    Returns
    -------
    FitPlan
        Its joint epsilon by PLD is at most `epsilon`, and at least 0.999 of it.

    Raises
    ------
    ValueError
        For parameters out of range.

    Examples
    --------
    >>> from skdpgen.accounting import Phase, calibrate, epsilon_pld
    >>> plan = calibrate([Phase("mean", 0.2), Phase("covariance", 0.8)], 1.0, 1e-5, "replace_one", label="demo")
    >>> {name: round(z, 2) for name, z in plan.noise_multipliers.items()}
    {'mean': 8.34, 'covariance': 4.17}
    >>> round(epsilon_pld(plan, 1e-5, "replace_one"), 4)
    1.0
    """
    phases, epsilon = check_phases(phases), check_epsilon(epsilon)
    check_neighboring(neighboring)
    net = _net_delta(delta, extra_delta)
    mu = math.inf if math.isinf(epsilon) else _scale(phases, epsilon, net, neighboring)
    return make_plan(
        phases,
        mu,
        label=label,
        extra_delta=float(extra_delta),
        epsilon=epsilon,
        delta=float(delta),
        neighboring=neighboring,
        unit=unit,
    )
