"""Privacy loss distributions of Gaussian steps: those of dp-accounting to the last bit, for all losses at once."""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

# Points up to which dp-accounting keeps the probabilities of a distribution one by one.
_FEW_POINTS = 1000


class _GaussianLoss(GaussianPrivacyLoss):
    """The loss of sensitivity 1, whose inverse is taken of all losses together."""

    def get_delta_for_epsilon(self, epsilon):
        """Hockey-stick divergence of the step at each epsilon of an array."""
        q, delta, inside = self.sampling_prob, np.zeros(len(epsilon)), np.full(len(epsilon), True)
        if q < 1 and self.adjacency_type == AdjacencyType.ADD:
            inside = epsilon < -math.log1p(-q)
        elif q < 1 and self.adjacency_type == AdjacencyType.REMOVE:
            inside = epsilon > math.log1p(-q)
            delta[~inside] = -np.expm1(epsilon[~inside])
        cut = self._inverse(epsilon[inside])
        delta[inside] = self.mu_upper_cdf(cut) - np.exp(epsilon[inside] + self.mu_lower_log_cdf(cut))
        return np.clip(delta, 0, 1)

    def _inverse(self, loss):
        if self.adjacency_type == AdjacencyType.REPLACE:  # an odd function
            sizes, at = np.unique(np.abs(loss), return_inverse=True)
            return np.sign(loss) * self._inverse_of_replaced(sizes)[at]
        adds = self.adjacency_type == AdjacencyType.ADD
        if self.sampling_prob < 1:
            loss = _without_sampling(loss, -1 if adds else 1, self.sampling_prob)
        cut = -0.5 - loss * self.standard_deviation**2
        return 1 + cut if adds else cut

    def _inverse_of_replaced(self, sizes):
        """The inverse at losses >= 0 where a row is replaced: arcsinh(-sinh(loss / 2) alpha) - loss / 2, times z^2."""
        q, z, found = self.sampling_prob, self.standard_deviation, np.zeros(len(sizes))
        above = sizes > 0
        loss = sizes[above]
        if q == 1.0:
            found[above] = -loss * z**2 / 2
            return found
        log_alpha = 0.5 * (1 / z) ** 2 + math.log1p(-q) - math.log(q)
        # numpy's logarithms and exponentials have other last bits than those of `math` on some processors
        log_sinh = loss / 2 + np.array([math.log1p(-math.exp(-x)) for x in loss.tolist()]) - math.log(2)
        term = log_alpha + log_sinh
        found[above] = z**2 * (-np.logaddexp(0.5 * np.logaddexp(0, 2 * term), term) - loss / 2)
        return found


def _without_sampling(loss, sign, q):
    """The losses that become given ones where a row takes part with probability q; `sign` is -1 for a joining row."""
    offset, limit = 1 - 1 / q, sign * math.log(1 - q)
    above = sign * loss + np.log(1 / q)
    with np.errstate(divide="ignore"):
        found = above + np.log1p(-np.exp(np.minimum(np.log(-offset) - above, 0.0)))
    found[loss == 0] = np.log(1 / q + offset)
    found[np.abs(loss - limit) <= 1e-9 * np.maximum(np.abs(loss), abs(limit))] = -np.inf
    return sign * found


def gaussian_distribution(
    z, interval, *, sampling_rate=1.0, log_tail=50.0, relation=NeighboringRelation.ADD_OR_REMOVE_ONE
):
    """Privacy loss distribution of one Gaussian step, rounded up on a grid: `from_gaussian_mechanism`, but fast.

    `z`: noise multiplier. `interval`: of the grid. `log_tail`: exp(-log_tail) is the mass that may be counted as
    infinite loss.
    """

    def of(adjacency):
        loss = _GaussianLoss(
            z, sensitivity=1, log_mass_truncation_bound=-log_tail, sampling_prob=sampling_rate, adjacency_type=adjacency
        )
        bounds = loss.connect_dots_bounds()
        ends = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
        return _connected(interval, *ends, loss.get_delta_for_epsilon(np.arange(ends[0], ends[1] + 1) * interval))

    if relation == NeighboringRelation.REPLACE_ONE:
        return PrivacyLossDistribution(of(AdjacencyType.REPLACE))
    if sampling_rate == 1.0:
        return PrivacyLossDistribution(of(AdjacencyType.REMOVE))
    return PrivacyLossDistribution(of(AdjacencyType.REMOVE), of(AdjacencyType.ADD))


def _connected(interval, lower, upper, delta):
    """The probabilities by which the dots are connected, of losses `lower` to `upper` times the interval."""
    few = upper - lower < _FEW_POINTS
    if few or np.any(np.diff(delta) > 0):
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, lower, upper, delta)
    gaps, p = np.diff(delta), np.empty(len(delta))
    p[0] = 1 - delta[0] + gaps[0] / math.expm1(interval)
    p[1:-1] = (gaps[1:] - gaps[:-1] * math.exp(interval)) / math.expm1(interval)
    p[-1] = gaps[-1] / math.expm1(-interval)
    return pld_pmf.DensePLDPmf(interval, lower, np.maximum(0.0, p), delta[-1], True)
