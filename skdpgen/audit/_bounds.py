"""Lower bounds of epsilon, with confidence, from the errors and guesses of an adversary."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, stats

from ..accounting import gaussian_epsilon, gaussian_mu

# Of so many runs of each data set one is of a pair with the same noise; of the two, one counts where noise is measured.
RUNS_OF_A_PAIR = 5


def _upper(errors, trials, confidence):
    """Clopper and Pearson's upper bound of a probability."""
    if errors >= trials:
        return 1.0
    return float(stats.beta.ppf(confidence, errors + 1, trials - errors))


def error_bounds(false_positives, without, false_negatives, within, confidence):
    """Upper bounds of the chances of a false alarm and of a miss, which hold jointly with this confidence."""
    side = 1 - (1 - confidence) / 2
    return _upper(false_positives, without, side), _upper(false_negatives, within, side)


def mu_from_counts(false_positives, false_negatives, n_runs, confidence=0.95):
    """Lower bound of the Gaussian-DP parameter from the errors of a test fixed in advance.

    Parameters
    ----------
    false_positives, false_negatives : int
        Among `n_runs` without the canary, and `n_runs` with it.
    n_runs : int
    confidence : float

    Returns
    -------
    float
        At least 0. Holds for every test of a mechanism that is Gaussian-DP.

    References
    ----------
    M. Nasr et al., "Tight auditing of differentially private machine learning", USENIX Security 2023.

    Examples
    --------
    >>> from skdpgen.audit import mu_from_counts
    >>> round(mu_from_counts(16, 16, 100), 2)
    1.37
    """
    a, b = error_bounds(false_positives, n_runs, false_negatives, n_runs, confidence)
    if a + b >= 1:
        return 0.0
    return max(0.0, float(-stats.norm.ppf(a) - stats.norm.ppf(b)))


def epsilon_from_counts(false_positives, false_negatives, n_runs, delta, confidence=0.95):
    """Lower bound of epsilon from the errors of a test, for any mechanism: it assumes nothing about the noise.

    Parameters
    ----------
    false_positives, false_negatives, n_runs, confidence
        As in `mu_from_counts`.
    delta : float

    Returns
    -------
    float
    """
    a, b = error_bounds(false_positives, n_runs, false_negatives, n_runs, confidence)
    gains = [math.log((1 - miss - delta) / alarm) for miss, alarm in ((b, a), (a, b)) if 1 - miss > delta and alarm > 0]
    return max([0.0, *gains])


def mu_from_shift(without, within, confidence=0.95):
    """Lower bound of the Gaussian-DP parameter from the shift of a statistic whose noise is Gaussian.

    Parameters
    ----------
    without, within : array of shape (n_runs,)
        The statistic of runs without the canary, and with it. It was chosen beforehand to be *larger* with the canary:
        a statistic that turns out smaller shows nothing, however far away it is.
    confidence : float

    Returns
    -------
    float
        At least 0. Exact where the statistic is Gaussian with one variance, as a linear function of a single release
        of the Gaussian mechanism is: by the noncentral t distribution.
    """
    without, within = (np.asarray(side, dtype=np.float64) for side in (without, within))
    m, n = len(without), len(within)
    freedom = m + n - 2
    pooled = ((m - 1) * without.var(ddof=1) + (n - 1) * within.var(ddof=1)) / freedom
    shift = float(within.mean() - without.mean())
    if not pooled > 0:
        return math.inf if shift > 0 else 0.0
    scale = math.sqrt(m * n / (m + n))
    t = shift / math.sqrt(pooled) * scale

    def excess(mu):
        return float(stats.nct.sf(t, freedom, mu * scale)) - (1 - confidence)

    if t <= 0 or excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0 and high < 1e3:
        high *= 1.5
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-6)) if excess(high) >= 0 else high / 1.5


def mu_from_pairs(without, within, n_pairs, confidence=0.95):
    """Lower bound of the Gaussian-DP parameter from the shift, where some runs have the same noise two by two.

    `without`, `within`, `confidence`: as in `mu_from_shift`.
    `n_pairs`: the first so many runs of both have the same noise, two by two; all else is independent.
    Returns: at least 0. The noise of a pair cancels in its difference, so a few pairs show the shift; all other runs
        measure the noise. Where the noise does not cancel, `mu_from_shift` of the independent runs is larger.

    Each run of a pair by itself is like any other run, so the differences have the shift as their expected value,
    however the noise of the two depends on each other. A tenth of the chance to fail is that of `mu_from_shift`, a
    tenth that of the shift of the pairs, and the rest that of the noise.
    """
    without, within = (np.asarray(side, dtype=np.float64) for side in (without, within))
    if n_pairs < 2:
        return mu_from_shift(without, within[n_pairs:], confidence)
    gaps, alone, fails = within[:n_pairs] - without[:n_pairs], within[n_pairs:], 1 - confidence
    error = stats.t.isf(0.1 * fails, n_pairs - 1) * float(gaps.std(ddof=1)) / math.sqrt(n_pairs)
    freedom = len(without) + len(alone) - 2
    square = len(without) * without.var() + len(alone) * alone.var()
    noise = math.sqrt(square / stats.chi2.ppf(0.8 * fails, freedom))
    shift = float(gaps.mean()) - error
    by_pairs = shift / noise if noise > 0 else math.inf if shift > 0 else 0.0
    return max(by_pairs, mu_from_shift(without, alone, 1 - 0.1 * fails))


def mu_from_scale(directions, noise, confidence=0.95, freedom=None):
    """Lower bound of the Gaussian-DP parameter from what a canary adds and the noise that was measured.

    Parameters
    ----------
    directions : list of (base, difference, sd)
        What the canary adds to each release, and the standard deviation that the mechanism states.
    noise : array
        Noise of releases over that standard deviation.
    confidence : float
    freedom : int or None, default=None
        Degrees of freedom of the noise; None: as many as numbers. Fewer where means were taken off.

    Returns
    -------
    float
        Norm of the differences over their noise, at the chi-squared upper bound of the noise.
    """
    whole = sum(float(np.sum((d / np.maximum(sd, 1e-300)) ** 2)) for _, d, sd in directions)
    freedom = np.size(noise) if freedom is None else freedom
    variance = float(np.sum(np.square(noise))) / stats.chi2.ppf(1 - confidence, freedom)
    return math.inf if variance == 0 else math.sqrt(whole / variance)


def epsilon_from_guesses(correct, guesses, canaries, delta, confidence=0.95):
    """Lower bound of epsilon from one run with many canaries, each included with probability 1/2, independently.

    Parameters
    ----------
    correct, guesses : int
        How many guesses were made, and how many were right; for the other canaries nothing was guessed.
    canaries : int
    delta : float
    confidence : float

    Returns
    -------
    float

    References
    ----------
    T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, Theorem 5.2.

    Examples
    --------
    >>> from skdpgen.audit import epsilon_from_guesses
    >>> round(epsilon_from_guesses(95, 100, 1000, 1e-5), 1)
    2.2
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(f"0 <= correct <= guesses <= canaries must hold; got {correct}, {guesses}, {canaries}")

    def chance(epsilon):
        """Bound of the probability of so many right guesses at epsilon."""
        tail = stats.binom.sf(np.arange(correct, -1, -1) - 1, guesses, 1 / (1 + math.exp(-epsilon)))
        gains = (tail[1:] - tail[0]) / np.arange(1, correct + 1)
        return tail[0] + 2 * canaries * delta * (gains.max() if len(gains) else 0.0)

    if guesses == 0 or chance(0.0) >= 1 - confidence:
        return 0.0
    high = 1.0
    while chance(high) < 1 - confidence and high < 60:
        high += 1.0
    return float(optimize.brentq(lambda e: chance(e) - (1 - confidence), 0.0, high, xtol=1e-6)) if high < 60 else high


def expected_bound(epsilon, delta, n_runs, confidence=0.95):
    """Lower bound that an audit of an honest Gaussian mechanism may expect, by counts at the middle threshold."""
    errors = round(n_runs * stats.norm.sf(gaussian_mu(epsilon, delta) / 2))
    return gaussian_epsilon(mu_from_counts(errors, errors, n_runs, confidence), delta)


def expected_bound_of_scale(epsilon, delta, n_runs, confidence=0.95):
    """Lower bound that an audit by likelihood may expect of an honest mechanism whose canary is tight."""
    freedom = 2 * n_runs - n_runs // RUNS_OF_A_PAIR - 2
    return gaussian_epsilon(
        gaussian_mu(epsilon, delta) * math.sqrt(stats.chi2.ppf(1 - confidence, freedom) / freedom), delta
    )


def least_claim(delta, n_runs, confidence=0.95):
    """Smallest claim at which so many runs can be expected to say anything at all."""
    low, high = 1e-3, 100.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if expected_bound(middle, delta, n_runs, confidence) > 0 else (middle, high)
    return high
