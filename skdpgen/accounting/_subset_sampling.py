"""What a Gaussian step on drawn subsets of the records costs: its privacy profile, loss distribution and RDP.

The clipped mean gradient of a subset may be any vector in a ball of radius C, before and after one of its records
changes, so that the contributions of two neighbours are up to 2 C apart under *both* relations.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import log_ndtr

from ._gaussian_losses import gaussian_distribution


def _log_delta(epsilon, mu):
    """Log of delta(epsilon) of one Gaussian release whose sensitivity is `mu` standard deviations."""
    above = log_ndtr(-epsilon / mu + mu / 2)
    below = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = above + np.log1p(-np.exp(np.minimum(below - above, -1e-300)))
    return np.where(np.isfinite(out), out, -np.inf)


def _profile(mechanism, q, mu, epsilon):
    """Privacy profile delta(epsilon) of one step, epsilon of either sign."""
    e = np.abs(epsilon)
    inner = e
    if mechanism == "one_of_k":
        # tight envelope over all configurations of the other subsets (advanced joint convexity)
        inner = np.where(e < 30, np.log1p(np.expm1(np.minimum(e, 30)) / q), e - math.log(q))
    delta = q * np.exp(_log_delta(inner, mu))
    return np.clip(np.where(epsilon >= 0, delta, -np.expm1(-e) + np.exp(-e) * delta), 0.0, 1.0)


def subset_distribution(mechanism, q, z, interval, log_tail):
    """Privacy loss distribution of one step, rounded up on a grid.

    `q`, `z`: rate in (0, 1), noise multiplier. `interval`: of the grid. `log_tail`: exp(-log_tail) is the mass that may
    be counted as infinite loss.

    Reference: Y. Zhu, J. Dong, Y.-X. Wang, "Optimal accounting of differential privacy via characteristic function",
    AISTATS 2022: a privacy profile that bounds all pairs composes adaptively. For Poisson-sampled subsets the pair is
    (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1).
    """
    if mechanism == "poisson_subsets":
        relation = NeighboringRelation.REPLACE_ONE
        return gaussian_distribution(z, interval, sampling_rate=q, log_tail=log_tail, relation=relation)
    mu = 1 / z
    points = int((mu * mu / 2 + math.sqrt(2 * log_tail) * mu + 1) / interval) + 2
    k = np.arange(-points, points + 1)
    deltas = _profile(mechanism, q, mu, k * interval)
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, k, deltas))


def subset_variance(mechanism, q, z):
    """Rough variance of the privacy loss of one step: for the choice of grids and shares, not for a cost.

    For "poisson_gaussian" it is that of Bu, Dong, Long and Su 2020, Corollary 5.4.
    """
    if mechanism == "poisson_subsets":
        return 4 * q * q * math.sinh(min(1 / z**2, 50.0))
    if mechanism in ("one_of_k", "poisson_gaussian"):
        return q * q * math.expm1(min(1 / z**2, 50.0))
    return q / z**2


def sampled_noise_multiplier(mechanism, q, steps, mu_squared):
    """Noise multiplier at which `steps` have about `mu_squared`: the inverse of `subset_variance`."""
    if mechanism == "poisson_subsets":
        return 1 / math.sqrt(math.asinh(mu_squared / (4 * q * q * steps)))
    if mechanism in ("one_of_k", "poisson_gaussian"):
        return 1 / math.sqrt(math.log1p(mu_squared / (q * q * steps)))
    return math.sqrt(steps * q / mu_squared)


@lru_cache(maxsize=4096)
def subset_rdp(mechanism, q, z, alpha):
    """RDP, at order alpha, of one step of "one_of_k" or "index_revealed"; q in (0, 1).

    The Renyi divergence of a profile is ``exp((a-1) D) = 1 + a (a-1) int_1^inf (g^(a-2) + g^(-a-1)) delta(log g) dg``.
    For "one_of_k", g = 1 + q (e^u - 1) turns it into an integral over the profile delta_G(u) of the Gaussian.
    """
    mu = 1 / z
    if mechanism == "index_revealed":
        exponent = alpha * (alpha - 1) * mu * mu / 2
        if exponent > 1:
            return float(np.logaddexp(math.log1p(-q), math.log(q) + exponent)) / (alpha - 1)
        # with much noise 1 - q + q e^x is 1 up to rounding, and its logarithm might be negative
        return math.log1p(q * math.expm1(exponent)) / (alpha - 1)
    if not 1e-3 <= z <= 1e5:  # beyond what doubles integrate: the bound without sampling
        return alpha * mu * mu / 2
    u = np.linspace(0.0, mu * mu * (alpha + 1) + 14 * mu, 20_001)
    log_g = np.where(u < 30, np.log1p(q * np.expm1(np.minimum(u, 30))), u + math.log(q))
    log_term = np.logaddexp((alpha - 2) * log_g, -(alpha + 1) * log_g) + u + _log_delta(u, mu)
    weights = np.ones(len(u))
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0  # Simpson's rule
    top = float(log_term.max())
    log_integral = top + math.log(float(np.sum(weights * np.exp(log_term - top))) * (u[1] - u[0]) / 3)
    log_integral += 2 * math.log(q) + math.log(alpha * (alpha - 1))
    return min(float(np.logaddexp(0.0, log_integral)) / (alpha - 1) * (1 + 1e-7), alpha * mu * mu / 2)
