"""Epsilon and delta of releases fixed in advance, by privacy loss distributions (PLD).

All Gaussian releases are folded into one, exactly; Poisson-sampled steps are composed numerically by
dp-accounting, with pessimistic rounding, so that a figure may be a little too large and never too small.
A bare Gaussian always goes through ADD_OR_REMOVE_ONE, because its multiplier is already over the
sensitivity under the relation in force (dp-accounting reads it in two ways under REPLACE_ONE).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld

from ._events import Release
from ._gaussian import gaussian_delta, gaussian_epsilon
from ._subset_sampling import SUBSET_MECHANISMS, subset_distribution, subset_variance

__all__ = ["COARSE", "FINE", "MOST_GROUPS", "MOST_STEPS", "combine", "delta_of", "epsilon_of", "too_large"]

RELATIONS = {
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

# Beyond these, prices are by Renyi differential privacy: the grid of a distribution grows with the root of the number
# of sampled steps (a million take seconds and up to 0.7 GB), and every rate and noise multiplier needs a separate one.
MOST_STEPS = 1_000_000
MOST_GROUPS = 64
# So are those of sampled steps with next to no noise, of which one costs an epsilon of thousands and takes seconds, and
# with so much that their losses are lost in the rounding of a grid.
_NOISE_ON_GRIDS = (0.02, 1e5)
# Points of the grid of the whole, and of those of single steps together.
_MOST_WHOLE, _MOST_SINGLE = 5e6, 3e7
# What the grid of a profile spans however much noise there is, in the time that the others take for it.
_PROFILE_SPAN = 20.0

# mu of all Gaussians, and groups of sampled steps: (rate, noise multiplier, steps, mechanism)
Combined = tuple[float, tuple[tuple[float, float, int, str], ...]]


def combine(rows: tuple[Release, ...], neighboring: str) -> Combined | None:
    """Fold releases into (mu of all Gaussians, groups of sampled steps); None when one of them is not private."""
    mu_squared = 0.0
    groups: dict[tuple[float, float, str], int] = {}
    for row in sorted(rows, key=lambda row: row[:1] + (row[2] or 0.0, row[1] or 0.0) + row[3:4]):
        if row.mechanism == "non_private":
            return None
        if row.repeated is not None:
            raise ValueError("a repetition has no privacy loss distribution: its price is in RDP")
        if row.mechanism == "gaussian":
            mu_squared += row.count / row.noise_multiplier**2
        elif row.sampling_rate == 1.0:
            # every unit is in every step: Gaussian; two contributions are up to twice a bound apart
            mu_squared += _apart(row.mechanism, neighboring) ** 2 * row.count / row.noise_multiplier**2
        else:
            key = (row.sampling_rate, row.noise_multiplier, row.mechanism)
            groups[key] = groups.get(key, 0) + row.count
    return math.sqrt(mu_squared), tuple((*key[:2], count, key[2]) for key, count in sorted(groups.items()))


def _apart(mechanism: str, neighboring: str) -> float:
    """How far a unit moves a release in which it takes part, over what the noise multiplier is a multiple of."""
    if mechanism in SUBSET_MECHANISMS:
        return 2.0 if mechanism == "poisson_subsets" else 1.0
    return 1.0 if neighboring == "add_or_remove_one" else 2.0


def too_large(combined: Combined | None, neighboring: str) -> bool:
    """Whether combined releases are priced by Renyi differential privacy, an upper bound that takes little time."""
    if combined is None or not combined[1]:
        return False
    groups = combined[1]
    if len(groups) > MOST_GROUPS or _steps(groups) > MOST_STEPS:
        return True
    if not all(_NOISE_ON_GRIDS[0] <= group[1] <= _NOISE_ON_GRIDS[1] for group in groups):
        return True
    return _too_long(combined, neighboring, _coarse_interval(combined, neighboring))


def _too_long(combined: Combined, neighboring: str, interval: float) -> bool:
    """Whether grids at an interval, by rough estimates of their lengths, take too much time and memory."""
    variance, single = combined[0] ** 2, 0.0
    for q, z, count, mechanism in combined[1]:
        gap = _apart(mechanism, neighboring) / z
        # the loss is near gap^2 / 2 where the unit takes part, else near 0; the second is of much noise
        variance += count * min(q * (gap**4 / 4 + gap**2), gap**2 * z**2 * q * q * math.expm1(min(1 / z**2, 50.0)))
        if mechanism in ("one_of_k", "index_revealed"):
            single += _PROFILE_SPAN
        single += min(gap**2 / 2 + 9 * gap, math.log1p(q * math.expm1(min(gap**2 / 2 + 9 * gap, 500.0))) + 1e-3)
    return 20 * math.sqrt(variance) > _MOST_WHOLE * interval or 2 * single > _MOST_SINGLE * interval


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
            variance += _apart(mechanism, neighboring) ** 2 * q * q * n * math.expm1(min(1 / z**2, 50.0))
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
    widest = max([combined[0]] + [_apart(mechanism, neighboring) / z for _, z, _, mechanism in combined[1]])
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
            step = pld.from_gaussian_mechanism(
                z,
                sampling_prob=q,
                value_discretization_interval=interval,
                log_mass_truncation_bound=-log_tail,
                neighboring_relation=RELATIONS[neighboring],
            )
        with np.errstate(over="ignore"):  # of dp-accounting's bounds of the tail, those that overflow are not used
            part = step.self_compose(count)
        whole = part if whole is None else whole.compose(part)
    if mu > 0:
        whole = whole.compose(pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval))
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
    if too_large(combined, neighboring):
        from ._renyi import epsilon_of_combined

        return epsilon_of_combined(combined, delta, neighboring)
    tail = _log_tail(groups, delta)
    rough = _distribution(combined, neighboring, _coarse_interval(combined, neighboring), tail)
    epsilon = float(rough.get_epsilon_for_delta(delta))
    if resolution == COARSE or not 0 < epsilon < math.inf:
        return epsilon
    interval = _fine_interval(combined, neighboring, epsilon, _order(rough, epsilon))
    while _too_long(combined, neighboring, interval):
        interval *= 2
    return float(_distribution(combined, neighboring, interval, tail).get_epsilon_for_delta(delta))


@lru_cache(maxsize=4096)
def delta_of(combined: Combined | None, epsilon: float, neighboring: str) -> float:
    """Delta of combined releases at `epsilon`."""
    if combined is None:
        return 1.0
    mu, groups = combined
    if not groups:
        return gaussian_delta(mu, epsilon)
    if too_large(combined, neighboring):
        from ._renyi import delta_of_combined

        return delta_of_combined(combined, epsilon, neighboring)
    rough = _distribution(combined, neighboring, _coarse_interval(combined, neighboring), 50.0)
    if not 0 < epsilon < math.inf:
        return min(1.0, float(rough.get_delta_for_epsilon(epsilon)))
    interval = _fine_interval(combined, neighboring, epsilon, _order(rough, epsilon))
    while _too_long(combined, neighboring, interval):
        interval *= 2
    return min(1.0, float(_distribution(combined, neighboring, interval, 50.0).get_delta_for_epsilon(epsilon)))
