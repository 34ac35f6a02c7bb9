"""Renyi differential privacy of sampled Gaussian steps in closed form: an upper bound that costs next to nothing.

It prices events that are too large for numerical integration, and events from files that are not trusted.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

__all__ = ["closed_form_rdp", "unsampled_rdp"]

# Orders above have the bound without sampling: the sum below has as many terms.
_MOST_ORDER = 10_000


def unsampled_rdp(mechanism: str, noise_multiplier: float, alpha: float, neighboring: str) -> float:
    """RDP, at order alpha, of one step in which every unit takes part: sampling only lowers it."""
    if mechanism == "poisson_gaussian":
        apart = 1.0 if neighboring == "add_or_remove_one" else 2.0
    else:
        apart = 2.0 if mechanism == "poisson_subsets" else 1.0
    return alpha * (apart / noise_multiplier) ** 2 / 2


def closed_form_rdp(mechanism: str, sampling_rate: float, noise_multiplier: float, alpha: float, neighboring: str):
    """Upper bound of the RDP, at order alpha, of one sampled Gaussian step.

    Parameters
    ----------
    mechanism : str
        "poisson_gaussian" or one of `subset_sampling.SUBSET_MECHANISMS`.
    sampling_rate : float
        In (0, 1).
    noise_multiplier : float
    alpha : float
        Order, > 1.
    neighboring : {"add_or_remove_one", "replace_one"}

    Returns
    -------
    float

    Notes
    -----
    *Whole orders, adding or removing one.* The moment of (1-q) N(0) + q N(1) against N(0) is a binomial sum, and the
    other order of the pair has a smaller one [1]_. *Between whole orders* (alpha - 1) times the RDP is convex in alpha
    and 0 at 1, so the line between its neighbours lies above it. *Replacing one* goes by way of N(0): the RDP of the
    pair is at most (alpha - 1/2) / (alpha - 1) times that of one side at order 2 alpha plus that of the other at order
    2 alpha - 1 [2]_. *Exactly one of K subsets* has the bound without sampling.

    References
    ----------
    .. [1] Mironov, Talwar and Zhang, "Renyi differential privacy of the sampled Gaussian mechanism", 2019, Theorem 5
       and Section 3.3.
    .. [2] Mironov, "Renyi differential privacy", CSF 2017, Proposition 11.

    Examples
    --------
    >>> from skdpgen.accounting._rdp_bound import closed_form_rdp
    >>> round(closed_form_rdp("poisson_gaussian", 0.01, 1.0, 2.0, "add_or_remove_one"), 6)
    0.000172
    """
    most = unsampled_rdp(mechanism, noise_multiplier, alpha, neighboring)
    if mechanism not in ("poisson_gaussian", "poisson_subsets"):
        return most
    if mechanism == "poisson_gaussian" and neighboring == "add_or_remove_one":
        return min(_one_sided(sampling_rate, noise_multiplier, alpha), most)
    through = (alpha - 0.5) / (alpha - 1) * _one_sided(sampling_rate, noise_multiplier, 2 * alpha)
    return min(through + _one_sided(sampling_rate, noise_multiplier, 2 * alpha - 1), most)


def _one_sided(q, z, alpha):
    if alpha > _MOST_ORDER:
        return alpha / (2 * z * z)
    below, above = math.floor(alpha), math.ceil(alpha)
    if below == above:
        return _log_moment(q, z, below) / (alpha - 1)
    share = alpha - below
    return ((1 - share) * _log_moment(q, z, below) + share * _log_moment(q, z, above)) / (alpha - 1)


@lru_cache(maxsize=65536)
def _log_moment(q: float, z: float, order: int) -> float:
    """Log of the moment of a whole order: (order - 1) times the RDP, rounded up."""
    if order == 1:
        return 0.0
    j = np.arange(2, order + 1)
    log_binomial = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    # j(j - 1) / (2 z^2) is 0 for j < 2, where binomial probabilities are left: 1 + sum of (exp(...) - 1)
    exponent = j * (j - 1) / (2 * z * z)
    log_weight = log_binomial + (order - j) * math.log1p(-q) + j * math.log(q)
    grown = exponent + np.log(-np.expm1(-exponent))
    return float(np.logaddexp(0.0, logsumexp(log_weight + grown))) * (1 + 1e-9)
