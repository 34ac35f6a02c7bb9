"""Epsilon and delta of releases that were all fixed in advance: closed forms, privacy loss distributions, RDP.

All Gaussian releases are folded into one, exactly. Poisson-sampled steps are composed numerically by dp-accounting,
with pessimistic rounding: a figure may be a little too large, and never too small. A bare Gaussian always goes through
ADD_OR_REMOVE_ONE, because its multiplier is already over the sensitivity under the relation in force (dp-accounting
has two readings of it under REPLACE_ONE).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from dp_accounting import DpEvent, NeighboringRelation
from scipy.optimize import brentq
from scipy.special import log_ndtr

from .._types import check_neighboring
from ..utils.printing import shown
from ._events import SUBSET_MECHANISMS, Charge, Release, releases
from ._gaussian_losses import gaussian_distribution
from ._renyi import (
    MOST_GROUPS,
    Combined,
    contribution_distance,
    delta_of_combined,
    delta_of_rows,
    epsilon_by_rdp,
    epsilon_of_combined,
    epsilon_of_rows,
    points_at_many_orders,
    quadrature_points,
    repetition_points,
)
from ._subset_sampling import subset_distribution, subset_variance

# ---- Gaussian releases ---------------------------------------------------------------------------
# Any number of them is one release of mu = sqrt(sum of 1 / noise_multiplier^2).
# Beyond this mu, the bound of concentrated differential privacy: above the exact figure by less than 2e-7 of it.
_LARGE_MU = 1e7


def _log_delta(mu: float, epsilon: float) -> float:
    """log of Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)."""
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    gap = lower - upper
    if gap >= 0:  # rounding, where delta is far below every double of interest
        return -math.inf
    return upper + math.log(-math.expm1(gap))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta of Gaussian releases at a given epsilon.

    Parameters
    ----------
    mu : float
        Root-sum-square of sensitivity over standard deviation, >= 0.
    epsilon : float
        At least 0.

    Returns
    -------
    float

    References
    ----------
    Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.

    Examples
    --------
    >>> from skdpgen.accounting import gaussian_delta
    >>> print(f"{gaussian_delta(0.2681, 1.0):.1e}")
    1.0e-05
    """
    if mu == 0:
        return 0.0
    return math.exp(_log_delta(mu, epsilon))


@lru_cache(maxsize=4096)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of Gaussian releases at a given delta; the inverse of `gaussian_delta`.

    Parameters
    ----------
    mu : float
        Root-sum-square of sensitivity over standard deviation, >= 0.
    delta : float
        Probability; at or below 0 only ``mu == 0`` has a finite answer.

    Returns
    -------
    float
        Rounded up in the tenth digit.

    Examples
    --------
    >>> from skdpgen.accounting import gaussian_epsilon
    >>> round(gaussian_epsilon(0.2681, 1e-5), 3)
    1.0
    """
    if mu == 0:
        return 0.0
    if delta <= 0 or not math.isfinite(mu):
        return math.inf
    target = math.log(delta)
    if mu > _LARGE_MU:
        return mu * mu / 2 + mu * math.sqrt(-2 * target)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    high = max(mu, mu * mu)
    while _log_delta(mu, high) > target:
        high *= 2
    root = brentq(lambda e: max(_log_delta(mu, e), -1e6) - target, 0.0, high, xtol=1e-15, rtol=1e-13)
    return root * (1 + 1e-10) + 1e-14


@lru_cache(maxsize=4096)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest sensitivity over standard deviation that keeps a Gaussian release (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float
        Delta of the guarantee, in (0, 1).

    Returns
    -------
    float
        Rounded down in the ninth digit.

    Raises
    ------
    ValueError
        For values outside these ranges.

    Examples
    --------
    >>> from skdpgen.accounting import gaussian_mu
    >>> round(gaussian_mu(1.0, 1e-5), 4)
    0.2681
    """
    if not (0 <= epsilon < math.inf and 0 < delta < 1):
        raise ValueError(f"epsilon must be finite and >= 0, and delta in (0, 1); got {epsilon!r} and {delta!r}")
    target = math.log(delta)

    def gap(log_mu):
        return max(_log_delta(math.exp(log_mu), epsilon), -1e6) - target

    low, high = np.log(1e-3), 0.0
    while gap(low) > 0:
        low -= 2.0
    while gap(high) < 0:
        high += 1.0
    return math.exp(brentq(gap, low, high, xtol=1e-14)) * (1 - 1e-9)


# ---- privacy loss distributions ------------------------------------------------------------------
_RELATIONS = {
    "add_or_remove_one": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": NeighboringRelation.REPLACE_ONE,
}
# Grid intervals. Connect-the-dots adds about dx**2/6 to the variance of each step's loss, which moves epsilon up by
# about steps * order * dx**2/12, where order - 1 is the slope of -log(delta) in epsilon (measured: within a factor of 2
# over both relations, rates of 1e-4 to .5, multipliers of .5 to 20 and up to 38,000 steps). A coarse grid, at _ROUGH
# times one step's root-mean-square loss, gives epsilon to about 1 % and the order; from them follows the final one.
FINE, COARSE = "fine", "coarse"
_ERROR = 2e-4
_ROUGH = 0.3
_ROUGH_POINTS = 1e4
_MOST_POINTS = 4e6

# Beyond this, and beyond MOST_GROUPS, epsilon is by Renyi differential privacy: the grid of a distribution grows with
# the root of the number of sampled steps (a million take seconds and up to 0.7 GB), and every rate and noise multiplier
# needs a separate one.
_MOST_STEPS = 1_000_000
# So it is for sampled steps with next to no noise, of which one costs an epsilon of thousands and takes seconds, and
# with so much that their losses are lost in the rounding of a grid.
_NOISE_ON_GRIDS = (0.02, 1e5)
# Points of the grid of the whole, and of those of single steps together.
_MOST_WHOLE, _MOST_SINGLE = 5e6, 3e7
# Span that stands for the grid of a profile, of which a point takes more time than one of the other grids.
_PROFILE_SPAN = 20.0


def combine(rows: tuple[Release, ...], neighboring: str) -> Combined | None:
    """Fold releases into (mu of all Gaussians, groups of sampled steps); None when one of them is not private."""
    mu_squared = 0.0
    groups: dict[tuple[float, float, str], int] = {}
    for row in sorted(rows, key=lambda row: row[:1] + (row[2] or 0.0, row[1] or 0.0) + row[3:4]):
        if row.mechanism == "non_private":
            return None
        if row.repeated is not None:
            raise ValueError("a repetition has no privacy loss distribution: its cost is in RDP")
        if row.mechanism == "gaussian":
            mu_squared += row.count / row.noise_multiplier**2
        elif row.sampling_rate == 1.0:
            # every unit is in every step: Gaussian; two contributions are up to twice a bound apart
            mu_squared += contribution_distance(row.mechanism, neighboring) ** 2 * row.count / row.noise_multiplier**2
        else:
            key = (row.sampling_rate, row.noise_multiplier, row.mechanism)
            groups[key] = groups.get(key, 0) + row.count
    return math.sqrt(mu_squared), tuple((*key[:2], count, key[2]) for key, count in sorted(groups.items()))


def _too_large(combined: Combined | None, neighboring: str) -> bool:
    """Whether a distribution takes too long: epsilon is then by Renyi differential privacy, an upper bound."""
    if combined is None or not combined[1]:
        return False
    groups = combined[1]
    if len(groups) > MOST_GROUPS or _steps(groups) > _MOST_STEPS:
        return True
    if not all(_NOISE_ON_GRIDS[0] <= group[1] <= _NOISE_ON_GRIDS[1] for group in groups):
        return True
    return _too_long(combined, neighboring, _coarse_interval(combined, neighboring))


def _too_long(combined: Combined, neighboring: str, interval: float) -> bool:
    """Whether grids at an interval, by rough estimates of their lengths, take too much time and memory."""
    whole, single = _grid_spans(combined, neighboring)
    return whole > _MOST_WHOLE * interval or single > _MOST_SINGLE * interval


def _grid_spans(combined: Combined, neighboring: str) -> tuple[float, float]:
    """Rough estimates of the losses that the grid of the whole spans, and those of single steps together."""
    variance, single = combined[0] ** 2, 0.0
    for q, z, count, mechanism in combined[1]:
        gap = contribution_distance(mechanism, neighboring) / z
        # the loss is near gap^2 / 2 where the unit takes part, else near 0; the second is of much noise
        variance += count * min(q * (gap**4 / 4 + gap**2), gap**2 * z**2 * q * q * math.expm1(min(1 / z**2, 50.0)))
        if mechanism in ("one_of_k", "index_revealed"):
            single += _PROFILE_SPAN
        single += min(gap**2 / 2 + 9 * gap, math.log1p(q * math.expm1(min(gap**2 / 2 + 9 * gap, 500.0))) + 1e-3)
    return 20 * math.sqrt(variance), 2 * single


def _round_down(interval: float) -> float:
    """1, 2 or 5 times a power of ten: few different grids, the same on every machine."""
    power = 10.0 ** math.floor(math.log10(interval))
    return power * max(step for step in (1, 2, 5) if step * power <= interval * (1 + 1e-9))


def _coarse_interval(combined: Combined, neighboring: str) -> float:
    mu, groups = combined
    variance = mu * mu
    for q, z, n, mechanism in groups:
        if mechanism in SUBSET_MECHANISMS:
            variance += n * subset_variance(mechanism, q, z)
        else:
            variance += contribution_distance(mechanism, neighboring) ** 2 * q * q * n * math.expm1(min(1 / z**2, 50.0))
    interval = min(_ROUGH * math.sqrt(variance / _steps(groups)), 2e-3)
    # where one step's loss has a long tail, rounding matters less and the grid may be shorter
    span = max(
        8 / z + 0.5 / z**2
        if mechanism == "index_revealed"
        else math.log1p(q * math.expm1(min(8 / z + 0.5 / z**2, 500.0)))
        for q, z, _, mechanism in groups
    )
    return _round_down(max(interval, span / _ROUGH_POINTS, _least_interval(combined, neighboring)))


def _least_interval(combined: Combined, neighboring: str) -> float:
    """Keep the grid in memory where the noise is absurdly small: the loss of one release spans about this much."""
    widest = max(
        [combined[0]] + [contribution_distance(mechanism, neighboring) / z for _, z, _, mechanism in combined[1]]
    )
    return (widest**2 / 2 + 10 * widest) / _MOST_POINTS


def _fine_interval(combined: Combined, neighboring: str, epsilon: float, order: float) -> float:
    """Interval at which epsilon is off by about _ERROR of itself."""
    interval = math.sqrt(12 * _ERROR * epsilon / (_steps(combined[1]) * order))
    interval = min(interval, 1e-4 * max(1.0, epsilon))
    return _round_down(max(interval, _least_interval(combined, neighboring)))


def _steps(groups) -> int:
    return sum(group[2] for group in groups)


@lru_cache(maxsize=4)
def _distribution(combined: Combined, neighboring: str, interval: float, log_tail: float):
    """PLD of combined releases; exp(-log_tail) is the mass of each step that may be counted as infinite loss."""
    mu, groups = combined
    whole = None
    for q, z, count, mechanism in groups:
        if mechanism in SUBSET_MECHANISMS:
            step = subset_distribution(mechanism, q, z, interval, log_tail)
        else:
            relation = _RELATIONS[neighboring]
            step = gaussian_distribution(z, interval, sampling_rate=q, log_tail=log_tail, relation=relation)
        with np.errstate(over="ignore"):  # of dp-accounting's bounds of the tail, those that overflow are not used
            part = step.self_compose(count)
        whole = part if whole is None else whole.compose(part)
    if mu > 0:
        whole = whole.compose(gaussian_distribution(1 / mu, interval))
    return whole


def _log_tail(groups, delta: float) -> float:
    """Tails that take at most exp(-10) of delta away, over all steps: shorter grids, and always pessimistic."""
    return float(math.ceil(10 + math.log(_steps(groups)) - math.log(delta)))


def _order(distribution, epsilon: float) -> float:
    """1 + slope of -log(delta) at epsilon."""
    gap = 0.02 * epsilon
    low, high = (float(distribution.get_delta_for_epsilon(epsilon + side)) for side in (-gap, gap))
    if not 0 < high < low:
        return 1e3
    return 1 + math.log(low / high) / (2 * gap)


@lru_cache(maxsize=4096)
def epsilon_of(combined: Combined | None, delta: float, neighboring: str, resolution: str = FINE) -> float:
    """Epsilon of combined releases at `delta`; infinite when not private or nothing is left of delta."""
    if combined is None:
        return math.inf
    mu, groups = combined
    if not groups:
        return gaussian_epsilon(mu, delta)
    if delta <= 0:
        return math.inf
    if _too_large(combined, neighboring):
        return epsilon_of_combined(combined, delta, neighboring)
    tail = _log_tail(groups, delta)
    rough = _distribution(combined, neighboring, _coarse_interval(combined, neighboring), tail)
    epsilon = float(rough.get_epsilon_for_delta(delta))
    if resolution == COARSE or not 0 < epsilon < math.inf:
        return epsilon
    return float(_fine_distribution(combined, neighboring, epsilon, rough, tail).get_epsilon_for_delta(delta))


@lru_cache(maxsize=4096)
def _delta_of(combined: Combined | None, epsilon: float, neighboring: str) -> float:
    """Delta of combined releases at `epsilon`."""
    if combined is None:
        return 1.0
    mu, groups = combined
    if not groups:
        return gaussian_delta(mu, epsilon)
    if _too_large(combined, neighboring):
        return delta_of_combined(combined, epsilon, neighboring)
    rough = _distribution(combined, neighboring, _coarse_interval(combined, neighboring), 50.0)
    if not 0 < epsilon < math.inf:
        return min(1.0, float(rough.get_delta_for_epsilon(epsilon)))
    fine = _fine_distribution(combined, neighboring, epsilon, rough, 50.0)
    return min(1.0, float(fine.get_delta_for_epsilon(epsilon)))


def _fine_distribution(combined, neighboring, epsilon, rough, tail):
    """The distribution at the final resolution, about an epsilon that the rough one gives."""
    interval = _fine_interval(combined, neighboring, epsilon, _order(rough, epsilon))
    while _too_long(combined, neighboring, interval):
        interval *= 2
    return _distribution(combined, neighboring, interval, tail)


# ---- limit of the work of a file ----------------------------------------------------------------
# Evaluations of a density that the events of a card or of a ledger file may take: about 25 seconds of processor time,
# so that a whole card ends within about a minute. And the least that one kind of sampled step counts for.
MOST_WORK = 1e8
_LEAST_WORK = 5e4
# What a point of a grid counts for, in each composition of two grids, and in the distribution of one step.
_WHOLE_WORK, _SINGLE_WORK = 0.5, 2.0
# How many times finer the final grid is than the coarse one (measured: 6 to 9).
_FINER = 10


def check_work(charges: Iterable[Charge], alpha: float | None, neighboring: str) -> None:
    """Refuse releases whose cost takes too long to compute: a file must not occupy the machine that checks it."""
    kinds = {row._replace(count=1) for charge in charges for row in charge.releases}
    sampled = [row for row in kinds if row.sampling_rate is not None]
    repeated = [row.repeated for row in kinds if row.repeated is not None]
    # where there are few kinds, or a search is among them, RDP is integrated at many orders
    many_orders = bool(repeated) or len(sampled) <= MOST_GROUPS
    work = 0.0
    for part in (
        *(repetition_points(repetition, neighboring) for repetition in repeated),
        *(
            _LEAST_WORK
            + quadrature_points(row, alpha or 2.0, neighboring)
            + (points_at_many_orders(row, neighboring) if many_orders else 0.0)
            for row in sampled
        ),
    ):
        work += part
        if work > MOST_WORK:
            break
    rows = tuple(row for charge in charges for row in charge.releases)
    if work <= MOST_WORK and not _repeated(rows):
        work += _grid_work(combine(rows, neighboring), neighboring)
    if work > MOST_WORK:
        raise ValueError(
            f"its events take more than {MOST_WORK:.0e} evaluations of a density: too many different sampled "
            "releases, or too many steps of them, to be verified"
        )


def work_alone(charge: Charge, neighboring: str) -> float:
    """Evaluations of a density that the epsilon of one charge takes, about; 0 where there is a closed form."""
    rows = charge.releases
    if _repeated(rows):
        return float(sum(repetition_points(row.repeated, neighboring) for row in rows if row.repeated is not None))
    combined = combine(rows, neighboring)
    if combined is None or not combined[1]:
        return 0.0
    return _LEAST_WORK + _grid_work(combined, neighboring)


def _grid_work(combined: Combined | None, neighboring: str) -> float:
    """Work of the privacy loss distribution of combined releases; 0 where there is none."""
    if _too_large(combined, neighboring) or combined is None or not combined[1]:
        return 0.0
    interval = _coarse_interval(combined, neighboring)
    whole, single = _grid_spans(combined, neighboring)
    whole = whole / interval + min(_FINER * whole / interval, _MOST_WHOLE)
    single = single / interval + min(_FINER * single / interval, _MOST_SINGLE)
    return _WHOLE_WORK * len(combined[1]) * whole + _SINGLE_WORK * single


# ---- events, charges and plans -------------------------------------------------------------------
def check_epsilon(epsilon: float) -> float:
    """Return epsilon as a float; ValueError unless it is a number > 0 (infinity is: no privacy)."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, numbers.Real) or not epsilon > 0:
        raise ValueError(f"epsilon must be a number > 0; got {shown(epsilon)}")
    return float(epsilon)


def check_delta(delta: float, name: str = "delta") -> float:
    """Return delta as a float; ValueError unless it lies in (0, 1)."""
    if isinstance(delta, bool) or not isinstance(delta, numbers.Real) or not 0 < delta < 1:
        raise ValueError(f"{name} must lie in (0, 1); got {shown(delta)}")
    return float(delta)


def _gather(what: DpEvent | Charge | Iterable) -> tuple[tuple[Release, ...], float]:
    """All releases, and the sum of the extra deltas, of events, charges or plans."""
    what = getattr(what, "charge", what)  # a FitPlan
    if isinstance(what, Charge):
        return what.releases, what.extra_delta
    if isinstance(what, DpEvent):
        return releases(what), 0.0
    parts = [_gather(part) for part in what]
    return tuple(row for rows, _ in parts for row in rows), math.fsum(extra for _, extra in parts)


def _repeated(rows: tuple[Release, ...]) -> bool:
    """Whether a repetition, which has no privacy loss distribution, is among releases that are all private."""
    kinds = {row.mechanism for row in rows}
    return "repeat_and_select" in kinds and "non_private" not in kinds


def why_bounded(charges_or_events, neighboring: str) -> str | None:
    """Return why `epsilon_pld` is an upper bound by RDP though a distribution exists; None where it is not."""
    rows, _ = _gather(charges_or_events)
    if _repeated(rows) or not _too_large(combine(rows, neighboring), neighboring):
        return None
    return (
        f"more than {_MOST_STEPS:,} sampled steps, more than {MOST_GROUPS} kinds of them, or next to no noise: epsilon "
        "is an upper bound by Renyi differential privacy"
    )


def _epsilon(epsilon_of_combined, charges_or_events, delta, neighboring):
    """Epsilon of releases, by a function of what `combine` returns; of repetitions by Renyi differential privacy."""
    check_delta(delta), check_neighboring(neighboring)
    rows, extra = _gather(charges_or_events)
    if extra >= delta:
        return math.inf
    if _repeated(rows):
        return epsilon_of_rows(rows, float(delta) - extra, neighboring)
    return epsilon_of_combined(combine(rows, neighboring), float(delta) - extra, neighboring)


def epsilon_pld(charges_or_events, delta: float, neighboring: str) -> float:
    """Epsilon of releases that were all fixed in advance, by privacy loss distributions.

    Parameters
    ----------
    charges_or_events : event, Charge, FitPlan, or iterable of them
        Releases to compose. The extra deltas of charges are subtracted from `delta` first.
    delta : float
        Delta of the guarantee, in (0, 1).
    neighboring : {"add_or_remove_one", "replace_one"}

    Returns
    -------
    float
        Never below the true value and above it by less than 0.1 %; closed form when all is Gaussian; by RDP where
        a repetition is among the releases, which has no privacy loss distribution, and where there are more than a
        million sampled steps, more than 64 rates and noise multipliers of them, or next to no noise, so that a
        distribution would take too long.
        0.0 for nothing; infinity when something is not private or the extra deltas exhaust `delta`.

    Raises
    ------
    ValueError
        For a delta outside (0, 1), an unknown relation, or an event whose cost is not known.

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_pld, poisson_gaussian_event
    >>> steps = poisson_gaussian_event(300 / 63000, 1.4, steps=840)
    >>> round(epsilon_pld(steps, 1e-5, "add_or_remove_one"), 3)
    0.413
    >>> round(epsilon_pld(steps, 1e-5, "replace_one"), 3)
    0.732
    """
    return _epsilon(epsilon_of, charges_or_events, delta, neighboring)


def delta_pld(charges_or_events, epsilon: float, neighboring: str) -> float:
    """Delta of releases that were all fixed in advance; see `epsilon_pld`.

    Parameters
    ----------
    charges_or_events : event, Charge, FitPlan, or iterable of them
    epsilon : float
        At least 0.
    neighboring : {"add_or_remove_one", "replace_one"}

    Returns
    -------
    float
        Extra deltas included; 1.0 when something is not private.

    Examples
    --------
    >>> from skdpgen.accounting import delta_pld, gaussian_event
    >>> delta_pld(gaussian_event(3.73), 1.0, "replace_one") < 1.01e-5
    True
    """
    check_neighboring(neighboring)
    if isinstance(epsilon, bool) or not isinstance(epsilon, numbers.Real) or not epsilon >= 0:
        raise ValueError(f"epsilon must be a number >= 0; got {shown(epsilon)}")
    rows, extra = _gather(charges_or_events)
    if _repeated(rows):
        return min(1.0, delta_of_rows(rows, float(epsilon), neighboring) + extra)
    return min(1.0, _delta_of(combine(rows, neighboring), float(epsilon), neighboring) + extra)


def delta_curve(charges_or_events, neighboring: str) -> Callable[[float], float]:
    """Return delta as a function of epsilon >= 0, all of it from one distribution; see `delta_pld`, which is finer."""
    check_neighboring(neighboring)
    rows, extra = _gather(charges_or_events)
    if _repeated(rows):
        return lambda epsilon: min(1.0, delta_of_rows(rows, epsilon, neighboring) + extra)
    combined = combine(rows, neighboring)
    if combined is None:
        return lambda epsilon: 1.0
    if not combined[1]:
        return lambda epsilon: min(1.0, gaussian_delta(combined[0], epsilon) + extra)
    if _too_large(combined, neighboring):
        return lambda epsilon: min(1.0, delta_of_combined(combined, epsilon, neighboring) + extra)
    # rounding adds about steps * interval**2 / 12 of the variance to it: a thousandth at a third of the coarse interval
    interval = _round_down(max(_coarse_interval(combined, neighboring) / 3, _least_interval(combined, neighboring)))
    while _too_long(combined, neighboring, interval):
        interval *= 2
    whole = _distribution(combined, neighboring, interval, 50.0)
    return lambda epsilon: min(1.0, float(whole.get_delta_for_epsilon(epsilon)) + extra)


def epsilon_rdp(charges_or_events, delta: float, neighboring: str) -> float | None:
    """Epsilon by Renyi differential privacy, to stand beside `epsilon_pld`; it is not charged.

    Parameters
    ----------
    charges_or_events : event, Charge, FitPlan, or iterable of them
    delta : float
        Delta of the guarantee, in (0, 1).
    neighboring : {"add_or_remove_one", "replace_one"}

    Returns
    -------
    float or None
        None for Poisson-sampled steps under replace_one, for which dp-accounting has no RDP.

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_rdp, poisson_gaussian_event
    >>> round(epsilon_rdp(poisson_gaussian_event(300 / 63000, 1.4, 840), 1e-5, "add_or_remove_one"), 2)
    0.54
    """
    return _epsilon(epsilon_by_rdp, charges_or_events, delta, neighboring)
