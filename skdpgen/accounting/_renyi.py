"""Renyi differential privacy (RDP): one order for the privacy filter, many orders to stand beside the PLD."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp

from ._events import Release
from ._privacy_loss import MOST_GROUPS, Combined
from ._rdp_bound import closed_form_rdp, unsampled_rdp
from ._selection import repetition_rdp
from ._subset_sampling import SUBSET_MECHANISMS, subset_rdp

__all__ = [
    "closed_form_at",
    "conversion_cost",
    "delta_of_combined",
    "delta_of_repetitions",
    "epsilon_by_rdp",
    "epsilon_of_combined",
    "epsilon_of_repetitions",
    "poisson_rdp",
    "quadrature_points",
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
# Of releases of many kinds.
_FEW_ORDERS = (1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 512)
# Points of one quadrature; where it would take more (noise multipliers of a few hundredths), the closed form stands in.
_MOST_POINTS = 200_000
# Points of that of one step of "one_of_k".
_SUBSET_POINTS = 20_001
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
        An upper bound: where the grid would be too long, that in closed form.

    Notes
    -----
    A pair that dominates in every hockey-stick divergence, both orders, dominates in every
    f-divergence, hence in Renyi divergence of every order (Zhu, Dong and Wang, AISTATS 2022).
    The integrand is analytic with Gaussian tails, so the error of the trapezoid rule is far below rounding.
    """
    q, z = sampling_rate, noise_multiplier
    apart = 1.0 if neighboring == "add_or_remove_one" else 2.0
    unsampled = unsampled_rdp("poisson_gaussian", z, alpha, neighboring)
    points, reach = _grid(z, alpha, neighboring, fineness)
    if points > _MOST_POINTS * fineness:
        return closed_form_rdp("poisson_gaussian", q, z, alpha, neighboring)
    x = np.linspace(-reach, reach, int(points) + 2)
    log_width = math.log(x[1] - x[0]) - math.log(z) - 0.5 * math.log(2 * math.pi)

    def log_density(*terms):
        parts = [math.log(weight) - (x - centre) ** 2 / (2 * z * z) for weight, centre in terms]
        return parts[0] if len(parts) == 1 else np.logaddexp(*parts)

    upper = log_density((1 - q, 0.0), (q, 1.0))
    lower = log_density((1.0, 0.0)) if apart == 1 else log_density((1 - q, 0.0), (q, -1.0))
    value = max(_divergence(upper, lower, alpha, log_width), _divergence(lower, upper, alpha, log_width))
    return min(value * _MARGIN, unsampled)


def _grid(z, alpha, neighboring, fineness=1):
    """Number of points of a quadrature, and how far they reach to both sides."""
    apart = 1.0 if neighboring == "add_or_remove_one" else 2.0
    # the integrand's modes lie in [-2 alpha, 2 alpha]; 13 standard deviations beyond are below 1e-36
    reach = apart * alpha + 13 * z + 1
    return 2 * reach / (min(z, z * z) / (8 * fineness)), reach


def quadrature_points(row: Release, alpha: float, neighboring: str) -> float:
    """Evaluations that the RDP of a release takes at one order; 0 where it is a formula."""
    if row.sampling_rate in (None, 1.0) or row.mechanism == "index_revealed":
        return 0
    if row.mechanism == "one_of_k":
        return _SUBSET_POINTS
    relation = "replace_one" if row.mechanism == "poisson_subsets" else neighboring
    points, _ = _grid(row.noise_multiplier, alpha, relation)
    # the closed form is a sum of up to so many terms
    return points if points <= _MOST_POINTS else 4 * alpha


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
    return max(math.log1p(float(np.sum(terms))), 0.0) / (alpha - 1)  # rounding may leave less than nothing


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
    if neighboring == "replace_one" and any(group[3] == "poisson_gaussian" for group in combined[1]):
        return None
    return epsilon_of_combined(combined, delta, neighboring)


def epsilon_of_combined(combined: Combined, delta: float, neighboring: str) -> float:
    """Epsilon of combined releases by RDP, at the best of many orders; in closed form where there are many groups."""
    rdp = _rdp_of_combined(combined, neighboring)
    orders = list(_ORDERS if len(combined[1]) <= MOST_GROUPS else _FEW_ORDERS)
    if combined[0] > 0 and delta < 1:  # large orders matter where epsilon is small
        orders.append(1 + max(math.sqrt(2 * math.log(1 / delta)) / combined[0], 1e-6))
    return max(0.0, min(rdp(order) + conversion_cost(order, delta) for order in orders)) if any(combined) else 0.0


def delta_of_combined(combined: Combined, epsilon: float, neighboring: str) -> float:
    """Delta of combined releases at epsilon: the inverse of `epsilon_of_combined`."""
    orders = _ORDERS if len(combined[1]) <= MOST_GROUPS else _FEW_ORDERS
    return _delta_at(_rdp_of_combined(combined, neighboring), orders, epsilon)


def _rdp_of_combined(combined, neighboring):
    """RDP of combined releases, a function of the order."""
    mu, groups = combined
    rows = tuple(Release(mechanism, z, q, count) for q, z, count, mechanism in groups)
    if len(groups) <= MOST_GROUPS:
        return lambda order: order * mu * mu / 2 + rdp_at(rows, order, neighboring)
    return lambda order: order * mu * mu / 2 + closed_form_at(rows, order, neighboring)


def closed_form_at(rows: tuple[Release, ...], alpha: float, neighboring: str) -> float:
    """Upper bound of `rdp_at` of sampled releases, in closed form."""
    return math.fsum(
        row.count
        * (
            closed_form_rdp(row.mechanism, row.sampling_rate, row.noise_multiplier, alpha, neighboring)
            if row.sampling_rate not in (None, 1.0)
            else rdp_at((row._replace(count=1),), alpha, neighboring)
        )
        for row in rows
    )


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
    return _delta_at(lambda order: rdp_at(rows, order, neighboring), _FINE_ORDERS, epsilon)


def _delta_at(rdp, orders, epsilon):
    exponents = ((order - 1) * (rdp(order) - epsilon + math.log1p(-1 / order)) - math.log(order) for order in orders)
    return min(1.0, math.exp(min(0.0, *exponents)))
