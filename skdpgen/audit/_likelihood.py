"""The "likelihood" method: how far releases of many fits lie from what the neighbour releases without noise."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from ..accounting import describe_event
from ._bounds import mu_from_scale, mu_from_shift
from ._runs import follow_path, noise_scaled, released_by

__all__ = ["bounds_of_distances", "claimed_mu", "fit_distances"]

# Deviations between the measured and the computed distance beyond which the fits without noise describe no noisy fit.
_TOO_FAR = 5.0


def fit_distances(estimator, one, other, n_runs, *, n_releases, gradient=False, noise_scale=1.0, tick=lambda: None):
    """Fit both data sets again and again, each fit up to its last release, and measure all releases together.

    For a known pair of data sets, the log-likelihood ratio of Gaussian releases is linear in them: what was released,
    minus what the neighbour releases without noise *after the same earlier releases*, along what the canary adds. The
    releases enter with fixed weights, those of one fit made before, so that their sum is Gaussian however much a
    canary adds in another fit.

    Parameters
    ----------
    estimator
        Of `with_public_seed`.
    one, other : tuple
        Arguments of ``fit``: neighbours.
    n_runs : int
        Fits of each.
    n_releases : int
        How many releases a fit makes until the last that is judged.
    gradient : bool, default=False
        Whether the last of them is the first gradient.
    noise_scale : float, default=1.0
        Of the noise of these fits, over what they state.
    tick : callable, default does nothing
        Called after each fit.

    Returns
    -------
    of_one, of_other : arrays of shape (n_runs, 2)
        Distances of fits of `one` from `other`, and of `other` from `one`, in units of the noise that the mechanisms
        state; and the same without any noise: what the canary adds, which is at most mu, and mu where it attains the
        sensitivity.
    each : int
        Fits for each distance.
    """
    pilot = follow_path(estimator, one, one, other, gradient, n_releases)
    weights = np.array([_norm((moved - base) / _positive(sd)) for _, base, moved, sd, _ in pilot.steps])
    if not weights.any():
        raise ValueError("the canary adds nothing to any release: it lies where the estimator does not look")
    weights /= _norm(weights)
    sides = []
    for data, from_one in ((one, False), (other, True)):
        found = []
        for _ in range(n_runs):
            with noise_scaled(noise_scale):
                steps = _steps(estimator, data, one, other, gradient, n_releases, pilot)
            found.append(_distance(steps, weights, from_one))
            tick()
        sides.append(np.array(found))
    return *sides, 1 if pilot.fixed else 3


def _steps(estimator, data, one, other, gradient, n_releases, pilot):
    """Releases of one noisy fit, with what both data sets release there without noise."""
    if not pilot.fixed:
        return follow_path(estimator, data, one, other, gradient, n_releases).steps
    _, seen = released_by(estimator, data, n_releases=n_releases)
    if len(seen) != 1 or seen[0][0].shape != pilot.steps[0][0].shape:
        raise ValueError("fits of neighbouring data released different things: give statistic")
    return [(seen[0][0], *pilot.steps[0][1:])]


def _distance(steps, weights, from_one):
    distance = reach = 0.0
    for (released, base, moved, sd, _), weight in zip(steps, weights):
        direction = (moved - base) / _positive(sd)
        norm = _norm(direction)
        if norm > 0:
            way = released - base if from_one else moved - released
            distance += weight * float(np.sum(way / _positive(sd) * direction)) / norm
            reach += weight * norm
    return distance, reach


def _norm(values):
    return math.sqrt(float(np.sum(np.square(values))))


def _positive(sd):
    return np.maximum(sd, 1e-300)


def bounds_of_distances(of_one, of_other, confidence):
    """Two lower bounds of mu from what `fit_distances` returns, and whether their assumptions hold.

    Returns
    -------
    dict
        ``mu_lower``: what the canary adds, over the upper bound of the noise measured about it. ``mu_by_shift``: from
        the shift between fits of the two data sets alone, which takes many more fits. ``mu_added``: what the canary
        adds over the noise stated. ``noise_measured``: over the noise stated. ``normality``: p-value of a
        Kolmogorov-Smirnov test.

    Notes
    -----
    Where the measured shift is not that of the fits without noise, these tell nothing of the noisy ones, and
    ``mu_lower`` is ``mu_by_shift``.
    """
    # both from `one` without noise: what the canary is computed to add is in neither
    without, within = of_one[:, 1] - of_one[:, 0], of_other[:, 0]
    by_shift = mu_from_shift(without, within, confidence)
    noise = np.concatenate([side[:, 0] - side[:, 1] - (side[:, 0] - side[:, 1]).mean() for side in (of_one, of_other)])
    both, freedom = np.concatenate([of_one, of_other]), len(noise) - 2
    added, deviation = float(both[:, 1].mean()), math.sqrt(float(np.sum(noise**2)) / freedom)
    found = {"mu_by_shift": by_shift, "mu_added": added, "noise_measured": deviation}
    spread = deviation * math.sqrt(1 / len(without) + 1 / len(within))
    if deviation == 0 or abs(within.mean() - without.mean() - added) > _TOO_FAR * spread:
        return {**found, "mu_lower": by_shift, "normality": 0.0}
    directions = [(0.0, np.array([added]), np.ones(1))]
    normality = float(stats.kstest(noise / deviation, "norm", method="asymp").pvalue)
    return {**found, "mu_lower": mu_from_scale(directions, noise, confidence, freedom), "normality": normality}


def claimed_mu(charges):
    """Gaussian-DP parameter that was charged: of releases in which every record takes part; inf without noise."""
    rows = [row for charge in charges for row in describe_event(charge.event)]
    if any(row["noise_multiplier"] == 0 for row in rows):
        return math.inf
    return math.sqrt(math.fsum(row["count"] / row["noise_multiplier"] ** 2 for row in rows))
