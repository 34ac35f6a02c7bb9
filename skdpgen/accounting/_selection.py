"""Running a mechanism a random number of times and letting only the best run out: the event and its price.

The price is in Renyi differential privacy (RDP) alone: no privacy loss distribution of it is known.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from ._events import Repetition

__all__ = ["repetition_points", "repetition_rdp", "run_probabilities", "stopping_probability"]

# Orders at which the curve of one run is known; half orders where the curve of sampled steps bends.
_ORDERS = tuple(sorted({*(1 + 0.05 * 1.1**k for k in range(112)), *(2 + k / 2 for k in range(80))}))

# So many things that a run may be are all integrated numerically; of more, as many as these points at one order allow.
_FEW = 8
_MOST_POINTS = 1_000_000


@lru_cache(maxsize=4096)
def _curve(alternatives, neighboring: str) -> tuple[np.ndarray, np.ndarray]:
    """RDP of one run, whichever it is, at many orders."""
    return np.array(_ORDERS), np.array([_one_run(alternatives, order, neighboring) for order in _ORDERS])


def _one_run(alternatives, alpha, neighboring):
    """Largest RDP of what a run may be.

    Of many, those with the largest bounds in closed form are integrated first, until no other bound is above what was
    found: most are never integrated. Where even those take too long, the largest bound of the rest stands for them.
    """
    from ._renyi import closed_form_at, quadrature_points, rdp_at

    if len(alternatives) <= _FEW:
        return max(rdp_at(rows, alpha, neighboring) for rows in alternatives)
    bounds = [closed_form_at(rows, alpha, neighboring) for rows in alternatives]
    most, points = 0.0, 0.0
    for k in np.argsort(bounds)[::-1]:
        if bounds[k] <= most:
            break
        points += sum(quadrature_points(row, alpha, neighboring) for row in alternatives[k])
        if points > _MOST_POINTS:
            return max(most, bounds[k])
        most = max(most, rdp_at(alternatives[k], alpha, neighboring))
    return most


def repetition_points(repetition: Repetition, neighboring: str) -> float:
    """Evaluations, at most, that the RDP of a repetition takes at all orders."""
    from ._renyi import quadrature_points

    total = 0.0
    for alpha in _ORDERS[::4]:
        points = sum(quadrature_points(row, alpha, neighboring) for rows in repetition.alternatives for row in rows)
        total += 4 * (points if len(repetition.alternatives) <= _FEW else min(points, _MOST_POINTS))
    return total


@lru_cache(maxsize=65536)
def repetition_rdp(repetition: Repetition, alpha: float, neighboring: str) -> float:
    """RDP, at order alpha, of a repetition.

    References
    ----------
    N. Papernot, T. Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022: Theorem 6 (Poisson)
    and Theorem 2 (logarithmic: truncated negative binomial of shape 0).
    """
    orders, base = _curve(repetition.alternatives, neighboring)
    own = _one_run(repetition.alternatives, alpha, neighboring)
    orders, base = np.append(orders, alpha), np.append(base, own)
    extra = math.log(repetition.mean) / (alpha - 1)
    if repetition.runs == "poisson":
        epsilon = math.log1p(1 / (alpha - 1))
        return own + repetition.mean * _delta_by_rdp(orders, base, epsilon) + extra
    stop = stopping_probability(repetition.mean)
    constant = float(np.min((1 - 1 / orders) * base - math.log(stop) / orders))
    above = orders >= alpha  # RDP grows with its order: a bound at a larger one holds here too
    return float(np.min(base[above] + math.log(repetition.mean) / (orders[above] - 1))) + constant


def _delta_by_rdp(orders, rdp, epsilon):
    """Delta of one run at epsilon: Canonne et al. 2020, Proposition 12, or Bretagnolle and Huber where it is less."""
    with np.errstate(divide="ignore"):
        wide = 0.5 * np.log(-np.expm1(-rdp))
    narrow = (orders - 1) * (rdp - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    return min(1.0, math.exp(float(np.min(np.minimum(wide, narrow)))))


@lru_cache(maxsize=256)
def stopping_probability(mean: float) -> float:
    """Parameter gamma of the logarithmic law with this mean: (1 / gamma - 1) / log(1 / gamma)."""
    if mean == 1:
        return 1.0

    def excess(log_gamma):  # falls with gamma
        return math.expm1(-log_gamma) / -log_gamma - mean

    low = -1.0
    while excess(low) < 0:
        low *= 2
    return math.exp(brentq(excess, low, -1e-12, xtol=1e-14)) * (1 - 1e-12)


def run_probabilities(runs: str, mean: float) -> np.ndarray:
    """Probability of 0, 1, 2, ... runs, as far as double precision tells it from 0.

    Examples
    --------
    >>> from skdpgen.accounting._selection import run_probabilities
    >>> [round(float(p), 3) for p in run_probabilities("poisson", 2)[:3]]
    [0.135, 0.271, 0.271]
    """
    if runs == "poisson":
        k = np.arange(int(mean + 12 * math.sqrt(mean) + 40))
        log = -mean + k * math.log(mean) - np.concatenate([[0.0], np.cumsum(np.log(k[1:]))])
        return np.exp(log)
    gamma = stopping_probability(mean)
    if gamma >= 1 - 1e-9:
        return np.array([0.0, 1.0])
    k = np.arange(1, int(40 / -math.log1p(-gamma)) + 2)
    return np.concatenate([[0.0], np.exp(k * math.log1p(-gamma)) / (k * -math.log(gamma))])
