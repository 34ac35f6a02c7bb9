"""Renyi differential privacy (RDP): one order for the privacy filter, many orders to stand beside the PLD."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp

from .events import Release
from .privacy_loss import Combined
from .selection import repetition_rdp
from .subset_sampling import SUBSET_MECHANISMS, subset_rdp

__all__ = [
    "conversion_cost",
    "delta_of_repetitions",
    "epsilon_by_rdp",
    "epsilon_of_repetitions",
    "poisson_rdp",
    "rdp_at",
]

# Orders of the epsilon that stands beside the PLD's.
_ORDERS = (
    *(1 + k / 10 for k in range(1, 10)),
    *(2 + k / 4 for k in range(32)),
    *range(10, 33, 1),
    *range(34, 65, 3),
    *(80, 100, 128, 180, 256, 512, 1024),
)
_MOST_POINTS = 2_000_000
# The quadrature is exact to about 1e-12; this makes it an upper bound.
_MARGIN = 1 + 1e-9


def conversion_cost(alpha: float, delta: float) -> float:
    """c in "RDP rho at order alpha gives (rho + c, delta)-DP"; decreases in delta.

    References
    ----------
    Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020, Proposition 12.
    """
    if delta <= 0:
        return math.inf
    return math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)


@lru_cache(maxsize=4096)
def poisson_rdp(sampling_rate: float, noise_multiplier: float, alpha: float, neighboring: str, fineness: int = 1):
    """RDP, at order alpha, of one Poisson-sampled Gaussian step, by the trapezoid rule on its dominating pair.

    Parameters
    ----------
    sampling_rate : float
        In (0, 1).
    noise_multiplier : float
        Standard deviation over the bound of one unit's contribution.
    alpha : float
        Order, > 1.
    neighboring : {"add_or_remove_one", "replace_one"}
        Add or remove: (1-q) N(0) + q N(1) against N(0). Replace: (1-q) N(0) + q N(1) against
        (1-q) N(0) + q N(-1). Both orders of the pair are computed and the larger one is returned.
    fineness : int, default=1
        Divides the grid interval; the tests use it.

    Returns
    -------
    float
        An upper bound: where the grid would be too long, that of the step without sampling.

    Notes
    -----
    A pair that dominates in every hockey-stick divergence, both orders, dominates in every
    f-divergence, hence in Renyi divergence of every order (Zhu, Dong and Wang, AISTATS 2022).
    The integrand is analytic with Gaussian tails, so the error of the trapezoid rule is far below rounding.
    """
    q, z = sampling_rate, noise_multiplier
    apart = 1.0 if neighboring == "add_or_remove_one" else 2.0
    unsampled = alpha * (apart / z) ** 2 / 2
    # the integrand's modes lie in [-2 alpha, 2 alpha]; 13 standard deviations beyond are below 1e-36
    reach = apart * alpha + 13 * z + 1
    interval = min(z, z * z) / (8 * fineness)
    points = 2 * reach / interval
    if points > _MOST_POINTS * fineness:
        return unsampled
    x = np.linspace(-reach, reach, int(points) + 2)
    log_width = math.log(x[1] - x[0]) - math.log(z) - 0.5 * math.log(2 * math.pi)

    def log_density(*terms):
        parts = [math.log(weight) - (x - centre) ** 2 / (2 * z * z) for weight, centre in terms]
        return parts[0] if len(parts) == 1 else np.logaddexp(*parts)

    upper = log_density((1 - q, 0.0), (q, 1.0))
    lower = log_density((1.0, 0.0)) if apart == 1 else log_density((1 - q, 0.0), (q, -1.0))
    value = max(_divergence(upper, lower, alpha, log_width), _divergence(lower, upper, alpha, log_width))
    return min(value * _MARGIN, unsampled)


def _divergence(log_p: np.ndarray, log_q: np.ndarray, alpha: float, log_width: float) -> float:
    """Renyi divergence of p from q, both on one equidistant grid."""
    loss = log_p - log_q
    exponent = log_q + log_width + alpha * loss
    if exponent.max() > 30.0:
        return float(logsumexp(exponent)) / (alpha - 1)
    # E[exp(alpha loss)] - 1 with the mean of exp(loss) - 1, which is 0, taken off: every term is >= 0 and nothing
    # cancels, however small the sampling rate. Written in p and q so that neither factor overflows.
    log_base = log_q + log_width
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        direct = np.exp(exponent) - np.exp(log_base) - alpha * (np.exp(log_p + log_width) - np.exp(log_base))
        small = np.exp(log_base) * (np.expm1(alpha * loss) - alpha * np.expm1(loss))
    terms = np.where(np.abs(alpha * loss) < 1.0, small, direct)
    return math.log1p(float(np.sum(terms))) / (alpha - 1)


def rdp_at(rows: tuple[Release, ...], alpha: float, neighboring: str) -> float:
    """RDP of releases at one order: the sum over them; infinite when one is not private."""
    total = []
    for row in rows:
        if row.mechanism == "non_private":
            return math.inf
        if row.mechanism == "gaussian":
            total.append(alpha * row.count / (2 * row.noise_multiplier**2))
        elif row.repeated is not None:
            total.append(row.count * repetition_rdp(row.repeated, alpha, neighboring))
        elif row.mechanism in SUBSET_MECHANISMS:
            total.append(row.count * _subset_rdp(row, alpha))
        elif row.sampling_rate == 1.0:
            factor = 1.0 if neighboring == "add_or_remove_one" else 4.0
            total.append(factor * alpha * row.count / (2 * row.noise_multiplier**2))
        else:
            total.append(row.count * poisson_rdp(row.sampling_rate, row.noise_multiplier, alpha, neighboring))
    return math.fsum(total)


def _subset_rdp(row: Release, alpha: float) -> float:
    """RDP of one step on drawn subsets: the same under both relations."""
    q, z = row.sampling_rate, row.noise_multiplier
    if row.mechanism == "poisson_subsets":
        return 4 * alpha / (2 * z**2) if q == 1.0 else poisson_rdp(q, z, alpha, "replace_one")
    return alpha / (2 * z**2) if q == 1.0 else subset_rdp(row.mechanism, q, z, alpha)


@lru_cache(maxsize=256)
def epsilon_by_rdp(combined: Combined | None, delta: float, neighboring: str) -> float | None:
    """Epsilon of combined releases by RDP, at the best of many orders; None for Poisson steps under replace_one."""
    if combined is None or delta <= 0:
        return math.inf
    mu, groups = combined
    if neighboring == "replace_one" and any(group[3] == "poisson_gaussian" for group in groups):
        return None
    rows = [Release(mechanism, z, q, count) for q, z, count, mechanism in groups]
    if mu > 0:
        rows.append(Release("gaussian", 1 / mu, None, 1))
    orders = list(_ORDERS)
    if mu > 0 and delta < 1:  # large orders matter where epsilon is small
        orders.append(1 + math.sqrt(2 * math.log(1 / delta)) / mu)
    best = min(rdp_at(tuple(rows), order, neighboring) + conversion_cost(order, delta) for order in orders)
    return max(0.0, best) if rows else 0.0


# ---- what has no privacy loss distribution --------------------------------------------------------
# Finer than the orders above: here the figure is the price.
_FINE_ORDERS = tuple(sorted({*(1 + 0.1 * 1.06**k for k in range(160)), *(2 + k / 4 for k in range(160))}))


@lru_cache(maxsize=1024)
def epsilon_of_repetitions(rows: tuple[Release, ...], delta: float, neighboring: str) -> float:
    """Epsilon, by RDP at the best of many orders, of releases among which there are repetitions."""
    if delta <= 0:
        return math.inf

    def cost(k):
        return rdp_at(rows, _FINE_ORDERS[k], neighboring) + conversion_cost(_FINE_ORDERS[k], delta)

    # any order gives a valid figure: the best of every eighth, then the best near it
    near = min(range(0, len(_FINE_ORDERS), 8), key=cost)
    return max(0.0, min(cost(k) for k in range(max(near - 8, 0), min(near + 9, len(_FINE_ORDERS)))))


def delta_of_repetitions(rows: tuple[Release, ...], epsilon: float, neighboring: str) -> float:
    """Delta at epsilon of releases among which there are repetitions: the inverse of the same conversion."""
    exponents = (
        (order - 1) * (rdp_at(rows, order, neighboring) - epsilon + math.log1p(-1 / order)) - math.log(order)
        for order in _FINE_ORDERS
    )
    return min(1.0, math.exp(min(0.0, *exponents)))
