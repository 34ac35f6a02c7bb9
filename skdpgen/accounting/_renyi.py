"""Renyi differential privacy (RDP) of releases: at the one order of the privacy filter, or at the best of many orders.

In this order: closed forms, one sampled step by integration, a repetition (repeat-and-select), and sums of releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from ._events import SUBSET_MECHANISMS, Release, Repetition
from ._subset_sampling import subset_rdp, subset_variance

# ---- orders --------------------------------------------------------------------------------------
# Every order gives a valid bound. The lists differ because each is a part of figures that are already published:
# the epsilon on a card that stands beside that by PLD,
_CARD_ORDERS = (
    *(1 + k / 10 for k in range(1, 10)),
    *(2 + k / 4 for k in range(32)),
    *range(10, 33, 1),
    *range(34, 65, 3),
    *(80, 100, 128, 180, 256, 512, 1024),
)
# the same where there are more than MOST_GROUPS kinds of sampled steps, each of which takes time at every order,
_FEW_ORDERS = (1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 512)
# the epsilon of a search, which has no other figure: these are finer,
_SEARCH_ORDERS = tuple(sorted({*(1 + 0.1 * 1.06**k for k in range(160)), *(2 + k / 4 for k in range(160))}))
# and the RDP curve of one run of a search, with half orders where the curve of sampled steps bends.
_RUN_ORDERS = tuple(sorted({*(1 + 0.05 * 1.1**k for k in range(112)), *(2 + k / 2 for k in range(80))}))

# Kinds of sampled steps up to which each is integrated; of more, RDP is bounded in closed form.
MOST_GROUPS = 64
# Whole orders above have the bound without sampling: the closed form is a sum of as many terms.
_MOST_ORDER = 10_000
# Points of one quadrature; where it takes more (noise multipliers of a few hundredths), the closed form replaces it.
_MOST_POINTS = 200_000
# Points of the quadrature of one step of "one_of_k".
_SUBSET_POINTS = 20_001
# The quadrature is exact to about 1e-12; this makes it an upper bound.
_MARGIN = 1 + 1e-9
# Alternatives of a run that are all integrated; of more, as many as this number of points at one order allows.
_FEW_ALTERNATIVES = 8
_MOST_RUN_POINTS = 1_000_000

# mu of all Gaussians, and groups of sampled steps: (rate, noise multiplier, steps, mechanism)
Combined = tuple[float, tuple[tuple[float, float, int, str], ...]]


# ---- closed forms -------------------------------------------------------------------------------
def conversion_cost(alpha: float, delta: float) -> float:
    """c in "RDP rho at order alpha gives (rho + c, delta)-DP"; decreases in delta.

    Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020, Proposition 12.
    """
    if delta <= 0:
        return math.inf
    return math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)


def contribution_distance(mechanism: str, neighboring: str) -> float:
    """How far a unit moves a step in which it takes part, in what the noise multiplier is a multiple of."""
    if mechanism in SUBSET_MECHANISMS:
        return 2.0 if mechanism == "poisson_subsets" else 1.0
    return 1.0 if neighboring == "add_or_remove_one" else 2.0


def _unsampled_rdp(mechanism: str, noise_multiplier: float, alpha: float, neighboring: str) -> float:
    """RDP, at order alpha, of one step in which every unit takes part: sampling only lowers it."""
    return alpha * (contribution_distance(mechanism, neighboring) / noise_multiplier) ** 2 / 2


def closed_form_rdp(mechanism: str, sampling_rate: float, noise_multiplier: float, alpha: float, neighboring: str):
    """Upper bound of the RDP, at order alpha, of one sampled Gaussian step.

    Parameters
    ----------
    mechanism : str
        "poisson_gaussian" or one of `SUBSET_MECHANISMS`.
    sampling_rate : float
        Delta of the guarantee, in (0, 1).
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
    >>> from skdpgen.accounting._renyi import closed_form_rdp
    >>> round(closed_form_rdp("poisson_gaussian", 0.01, 1.0, 2.0, "add_or_remove_one"), 6)
    0.000172
    """
    most = _unsampled_rdp(mechanism, noise_multiplier, alpha, neighboring)
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


# ---- one sampled step ---------------------------------------------------------------------------
@lru_cache(maxsize=4096)
def poisson_rdp(sampling_rate: float, noise_multiplier: float, alpha: float, neighboring: str, fineness: int = 1):
    """RDP, at order alpha, of one Poisson-sampled Gaussian step, by the trapezoid rule on its dominating pair.

    Parameters
    ----------
    sampling_rate : float
        Delta of the guarantee, in (0, 1).
    noise_multiplier : float
        Standard deviation over the bound of one unit's contribution.
    alpha : float
        Order, > 1.
    neighboring : {"add_or_remove_one", "replace_one"}
        Add or remove: (1-q) N(0) + q N(1) against N(0). Replace: (1-q) N(0) + q N(1) against
        (1-q) N(0) + q N(-1). Both orders of the pair are computed and the larger one is returned.
    fineness : int, default=1
        Divisor of the grid interval, to test the convergence.

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
    apart = contribution_distance("poisson_gaussian", neighboring)
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
    return min(value * _MARGIN, _unsampled_rdp("poisson_gaussian", z, alpha, neighboring))


def _grid(z, alpha, neighboring, fineness=1):
    """Number of points of a quadrature, and how far they reach to both sides."""
    apart = contribution_distance("poisson_gaussian", neighboring)
    # the integrand's modes lie in [-2 alpha, 2 alpha]; 13 standard deviations beyond are below 1e-36
    reach = apart * alpha + 13 * z + 1
    return 2 * reach / (min(z, z * z) / (8 * fineness)), reach


def quadrature_points(row: Release, alpha: float, neighboring: str) -> float:
    """Evaluations of a density that the RDP of a release takes at one order; 0 where it is a formula."""
    if row.sampling_rate in (None, 1.0) or row.mechanism == "index_revealed":
        return 0
    if row.mechanism == "one_of_k":
        return _SUBSET_POINTS
    relation = "replace_one" if row.mechanism == "poisson_subsets" else neighboring
    points, _ = _grid(row.noise_multiplier, alpha, relation)
    # the closed form is a sum of up to so many terms
    return points if points <= _MOST_POINTS else 4 * alpha


def points_at_many_orders(row: Release, neighboring: str) -> float:
    """Evaluations, about, that the RDP of a release takes at all orders of `epsilon_by_rdp` or of `epsilon_of_rows`."""
    return 8 * math.fsum(quadrature_points(row, alpha, neighboring) for alpha in _CARD_ORDERS[::8])


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


def shares_of(parts: Sequence[tuple[Release, ...]], alpha: float | None, neighboring: str) -> list[float]:
    """Return the share of each part of a ledger or fit, as a plan states it: of the squared Gaussian-DP parameter mu.

    NaN everywhere where the mu of a release is not known, or not finite.
    """
    squares = [math.fsum(_mu_squared(row, alpha, neighboring) for row in part) for part in parts]
    total = math.fsum(squares)
    return [square / total if 0 < total < math.inf else math.nan for square in squares]


def _mu_squared(row: Release, alpha: float | None, neighboring: str) -> float:
    """Square of mu, by which plans split a budget; of a repetition, that of Gaussian noise of equal RDP at `alpha`."""
    if row.mechanism == "non_private":
        return math.inf
    if row.repeated is not None:
        return math.nan if alpha is None else 2 * rdp_at((row,), alpha, neighboring) / alpha
    if row.sampling_rate is None:
        return row.count / row.noise_multiplier**2
    return row.count * subset_variance(row.mechanism, row.sampling_rate, row.noise_multiplier)


def _subset_rdp(row: Release, alpha: float) -> float:
    """RDP of one step on drawn subsets: the same under both relations."""
    q, z = row.sampling_rate, row.noise_multiplier
    if row.mechanism == "poisson_subsets":
        return 4 * alpha / (2 * z**2) if q == 1.0 else poisson_rdp(q, z, alpha, "replace_one")
    return alpha / (2 * z**2) if q == 1.0 else subset_rdp(row.mechanism, q, z, alpha)


# ---- repetition ---------------------------------------------------------------------------------
# No privacy loss distribution of a repetition is known: its cost is in RDP alone.
@lru_cache(maxsize=4096)
def _curve(alternatives, neighboring: str) -> tuple[np.ndarray, np.ndarray]:
    """RDP of one run, whichever alternative it is, at many orders."""
    rdp = [_one_run(alternatives, order, neighboring) for order in _RUN_ORDERS]
    return np.array(_RUN_ORDERS), np.array(rdp)


def _one_run(alternatives, alpha, neighboring):
    """Largest RDP of the alternatives of a run.

    Of many, those with the largest bounds in closed form are integrated first, until no other bound is above the
    largest RDP found: most are never integrated. Where even those take too long, the largest bound of the rest is used.
    """
    if len(alternatives) <= _FEW_ALTERNATIVES:
        return max(rdp_at(rows, alpha, neighboring) for rows in alternatives)
    bounds = [_closed_form_at(rows, alpha, neighboring) for rows in alternatives]
    most, points = 0.0, 0.0
    for k in np.argsort(bounds)[::-1]:
        if bounds[k] <= most:
            break
        points += sum(quadrature_points(row, alpha, neighboring) for row in alternatives[k])
        if points > _MOST_RUN_POINTS:
            return max(most, bounds[k])
        most = max(most, rdp_at(alternatives[k], alpha, neighboring))
    return most


def repetition_points(repetition: Repetition, neighboring: str) -> float:
    """Upper bound of the evaluations that the RDP of a repetition takes at all orders."""
    total = 0.0
    for alpha in _RUN_ORDERS[::4]:
        points = sum(quadrature_points(row, alpha, neighboring) for rows in repetition.alternatives for row in rows)
        total += 4 * (points if len(repetition.alternatives) <= _FEW_ALTERNATIVES else min(points, _MOST_RUN_POINTS))
    return total


@lru_cache(maxsize=65536)
def repetition_rdp(repetition: Repetition, alpha: float, neighboring: str) -> float:
    """RDP, at order alpha, of a repetition.

    Reference: N. Papernot, T. Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022: Theorem 6
    (Poisson) and Theorem 2 (logarithmic: truncated negative binomial of shape 0).
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
    """Parameter gamma of the logarithmic distribution with this mean: (1 / gamma - 1) / log(1 / gamma)."""
    if mean == 1:
        return 1.0

    def excess(log_gamma):  # falls with gamma
        return math.expm1(-log_gamma) / -log_gamma - mean

    low = -1.0
    while excess(low) < 0:
        low *= 2
    return math.exp(brentq(excess, low, -1e-12, xtol=1e-14)) * (1 - 1e-12)


def run_probabilities(runs: str, mean: float) -> np.ndarray:
    """Probabilities of 0, 1, 2, ... runs, down to the smallest that double precision distinguishes from 0.

    Examples
    --------
    >>> from skdpgen.accounting._renyi import run_probabilities
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


# ---- epsilon and delta of many releases ---------------------------------------------------------
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
    orders = list(_CARD_ORDERS if len(combined[1]) <= MOST_GROUPS else _FEW_ORDERS)
    if combined[0] > 0 and delta < 1:  # large orders matter where epsilon is small
        orders.append(1 + max(math.sqrt(2 * math.log(1 / delta)) / combined[0], 1e-6))
    return max(0.0, min(rdp(order) + conversion_cost(order, delta) for order in orders)) if any(combined) else 0.0


def delta_of_combined(combined: Combined, epsilon: float, neighboring: str) -> float:
    """Delta of combined releases at epsilon: the inverse of `epsilon_of_combined`."""
    orders = _CARD_ORDERS if len(combined[1]) <= MOST_GROUPS else _FEW_ORDERS
    return _delta_at(_rdp_of_combined(combined, neighboring), orders, epsilon)


def _rdp_of_combined(combined, neighboring):
    """RDP of combined releases, a function of the order."""
    mu, groups = combined
    rows = tuple(Release(mechanism, z, q, count) for q, z, count, mechanism in groups)
    if len(groups) <= MOST_GROUPS:
        return lambda order: order * mu * mu / 2 + rdp_at(rows, order, neighboring)
    return lambda order: order * mu * mu / 2 + _closed_form_at(rows, order, neighboring)


def _closed_form_at(rows: tuple[Release, ...], alpha: float, neighboring: str) -> float:
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


@lru_cache(maxsize=1024)
def epsilon_of_rows(rows: tuple[Release, ...], delta: float, neighboring: str) -> float:
    """Epsilon by RDP, at the best of many orders, of releases that include repetitions."""
    if delta <= 0:
        return math.inf

    def cost(k):
        return rdp_at(rows, _SEARCH_ORDERS[k], neighboring) + conversion_cost(_SEARCH_ORDERS[k], delta)

    # any order gives a valid figure: the best of every eighth, then the best near it
    near = min(range(0, len(_SEARCH_ORDERS), 8), key=cost)
    return max(0.0, min(cost(k) for k in range(max(near - 8, 0), min(near + 9, len(_SEARCH_ORDERS)))))


def delta_of_rows(rows: tuple[Release, ...], epsilon: float, neighboring: str) -> float:
    """Delta at epsilon of releases that include repetitions: the inverse of the same conversion."""
    return _delta_at(lambda order: rdp_at(rows, order, neighboring), _SEARCH_ORDERS, epsilon)


def _delta_at(rdp, orders, epsilon):
    exponents = ((order - 1) * (rdp(order) - epsilon + math.log1p(-1 / order)) - math.log(order) for order in orders)
    return min(1.0, math.exp(min(0.0, *exponents)))
