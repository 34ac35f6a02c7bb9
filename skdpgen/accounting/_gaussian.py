"""Closed forms for Gaussian releases: any number of them is one release of mu = sqrt(sum of 1/z**2)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_mu"]

# Beyond it, the bound of concentrated differential privacy: above the exact figure by less than 2e-7 of it.
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
        In (0, 1).

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
