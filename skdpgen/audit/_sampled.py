"""Lower bounds of what sampled steps of DP-SGD cost, from the scores of canaries that took part and of others.

The score of a canary is its log-likelihood ratio, summed over all steps, under the noise and the sampling rate that are
claimed: the most powerful statistic there is for them. In each step, of rate q, a canary that is among the records adds
1 with chance q and 0 otherwise, in units of its clipped gradient, and the noise has standard deviation z. So the mean
and the variance of a score are known integrals, at whatever noise was really drawn. The distance of the two means, in
standard deviations, falls as that noise grows. The largest noise at which it is as long as the one that was measured,
less its error, bounds epsilon from below. All canaries are counted, and not only on which side of a threshold they lie.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy import optimize, stats

# Standard normal, on a grid on which the trapezoidal rule is exact to rounding.
_GRID = np.linspace(-12.0, 12.0, 2401)
_WEIGHTS = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()
# Largest ratio, to both sides, of the noise that was drawn to the noise that is claimed.
MOST_NOISE = 16.0
# Standard errors by which the scores of canaries that took part may be spread differently than sampled steps spread
# them, before the distance of the means is no longer relied on.
_TOO_FAR = 5.0


def scores_of_steps(gradient, noise, rate):
    """Log-likelihood ratio of one step for each canary.

    `gradient`: released gradient along each canary, in units of what a canary adds to it. `noise`: standard deviation
    of its noise in the same units, as claimed. `rate`: probability of a record to take part in the step.
    """
    ratio = (gradient - 0.5) / noise**2
    # a record that was not drawn adds nothing
    return ratio if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


class SampledScores:
    """Moments of the scores of steps on Poisson samples, at any noise.

    `noise`: as claimed, in units of what a canary adds: scores are computed with it.
    """

    def __init__(self, rate, steps, noise):
        self.rate, self.steps, self.noise = float(rate), int(steps), float(noise)

    def moments(self, scale):
        """Mean and variance of a score without the canary, and with it, where the noise is `scale` times the claim."""
        drawn = scale * self.noise * _GRID
        without, within = (scores_of_steps(drawn + added, self.noise, self.rate) for added in (0.0, 1.0))
        mean, q = _WEIGHTS @ without, self.rate
        shift = q * (_WEIGHTS @ within - mean)
        variance = _WEIGHTS @ (without - mean) ** 2
        spread = (1 - q) * variance + q * (_WEIGHTS @ (within - mean) ** 2) - shift**2
        return self.steps * mean, self.steps * variance, self.steps * (mean + shift), self.steps * spread

    def distance(self, scale):
        """Distance of the two means in standard deviations without the canary."""
        mean, variance, with_it, _ = self.moments(scale)
        return (with_it - mean) / math.sqrt(variance)

    def bound(self, without, within, confidence=0.95):
        """Bound the noise that was drawn from above.

        `without`, `within`: scores of canaries that were left out, and of those that were among the records.
        Returns: ``noise_upper``: upper bound of the noise over the claim, None where nothing is shown. ``distance``:
            lower bound of the distance of the means, in standard deviations. ``spread_off``: standard errors between
            the variance of the scores with a canary, over that without, and the one that sampled steps have at the
            noise that fits best. ``fits``: whether these are few. Where they are many, steps are not sampled as the
            claim says, for instance because the same records are drawn again and again, and the other numbers mean
            nothing.
        """
        without, within = (np.asarray(side, dtype=np.float64) for side in (without, within))
        measured, error = _distance(without, within)
        freedom = min(len(without), len(within)) - 1
        lower = measured - float(stats.t.ppf(confidence, freedom)) * error
        off, upper = self._spread_off(without, within, measured), self._scale_at(lower)
        return {
            "noise_upper": upper if math.isfinite(upper) else None,
            "distance": max(lower, 0.0),
            "spread_off": off,
            "fits": bool(abs(off) <= _TOO_FAR),
        }

    def epsilon(self, noise_upper, plan, delta):
        """Epsilon that a plan has if its noise is this instead; 0 where nothing is shown."""
        if noise_upper is None:
            return 0.0
        return dataclasses.replace(plan, noise_multiplier=noise_upper * self.noise).epsilon(delta)

    def _scale_at(self, distance):
        """Scale of the noise at which the means are this far apart; the distance falls as noise grows."""
        if not distance > self.distance(MOST_NOISE):
            return math.inf
        if distance >= self.distance(1 / MOST_NOISE):
            return 1 / MOST_NOISE
        gap = lambda log_scale: self.distance(math.exp(log_scale)) - distance  # noqa: E731
        return math.exp(optimize.brentq(gap, -math.log(MOST_NOISE), math.log(MOST_NOISE), xtol=1e-4))

    def _spread_off(self, without, within, measured):
        scale = min(self._scale_at(measured), MOST_NOISE)
        _, variance, _, spread = self.moments(scale)
        ratio, error = _ratio_of_variances(without, within)
        return (ratio - spread / variance) / error if error > 0 else 0.0


def _distance(without, within):
    """Distance of the means in standard deviations of `without`, and its standard error."""
    deviation = without.std(ddof=1)
    if not deviation > 0:
        return (math.inf, 0.0) if within.mean() > without.mean() else (0.0, 0.0)
    distance = (within.mean() - without.mean()) / deviation
    own = (without - without.mean()) / deviation
    # first-order influence of each score: on the means, and on the deviation that they are measured in
    influence = -own - distance / 2 * (own**2 - 1)
    error = influence.var() / len(without) + within.var(ddof=1) / deviation**2 / len(within)
    return distance, math.sqrt(error)


def _ratio_of_variances(without, within):
    """Variance of `within` over that of `without`, and its standard error."""
    squares = [(side - side.mean()) ** 2 for side in (without, within)]
    below, above = (part.mean() for part in squares)
    if not below > 0:
        return 1.0, 0.0
    relative = [part.var() / len(part) / max(part.mean(), 1e-300) ** 2 for part in squares]
    return above / below, above / below * math.sqrt(sum(relative))
