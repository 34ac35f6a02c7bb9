"""Every bound of an audit holds at its confidence: simulated where it is hardest, with a twin that does not hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from skdpgen.accounting import gaussian_event
from skdpgen.audit import epsilon_from_counts, epsilon_from_guesses, mu_from_counts, mu_from_scale, mu_from_shift
from skdpgen.audit._audit import _least_miss
from skdpgen.audit._bounds import error_bounds, mu_from_pairs
from skdpgen.audit._runs import bounds_of_distances


def at_most_five_percent(failures, repetitions):
    """Assert that a bound of 95 % fails no more often than that, by three standard deviations."""
    assert failures <= 0.05 * repetitions + 3 * math.sqrt(0.05 * 0.95 * repetitions), f"{failures} of {repetitions}"


@pytest.mark.parametrize(("mu", "repetitions"), [(0.02, 1000), (1.5, 300)])
def test_the_bound_by_shift_holds_at_its_confidence(mu, repetitions):
    """Where the canary is hardly seen, a statistic that falls by chance must not count as one that rises."""
    rng = np.random.default_rng(1)
    without, within = rng.normal(size=(repetitions, 8)), rng.normal(mu, 1, size=(repetitions, 8))
    found = np.array([mu_from_shift(*pair) for pair in zip(without, within)])
    at_most_five_percent((found > mu).sum(), repetitions)


def test_the_bound_by_shift_is_exact():
    rng = np.random.default_rng(2)
    without, within = rng.normal(size=(400, 8)), rng.normal(1.5, 1, size=(400, 8))
    assert np.mean([mu_from_shift(*pair) > 1.5 for pair in zip(without, within)]) > 0.02
    assert mu_from_shift([1.0, 1.0], [2.0, 2.0]) == math.inf
    assert mu_from_shift([2.0, 2.0], [1.0, 1.0]) == 0  # on the wrong side, however far


@pytest.mark.parametrize("cancels", [1.0, 0.9, 0.0])
def test_the_bound_by_pairs_holds_at_its_confidence(cancels):
    """Of very few runs: the noise of a pair is the same, or nearly, or independent."""
    rng, mu, repetitions, n_pairs = np.random.default_rng(3), 0.7, 300, 3
    without, within = rng.normal(size=(repetitions, 12)), rng.normal(size=(repetitions, 12))
    own = math.sqrt(1 - cancels**2)
    within[:, :n_pairs] = cancels * without[:, :n_pairs] + own * within[:, :n_pairs]
    found = np.array([mu_from_pairs(*pair, n_pairs) for pair in zip(without, within + mu)])
    at_most_five_percent((found > mu).sum(), repetitions)
    assert (found > mu).mean() > (0.01 if cancels == 1 else 0.0)


def test_a_few_pairs_show_a_shift_that_is_far_below_the_noise():
    rng = np.random.default_rng(11)
    without, within = rng.normal(size=(2, 200))
    within[:40] = without[:40]
    assert mu_from_shift(without, within[40:] + 0.1) < 0.05
    assert 0.085 < mu_from_pairs(without, within + 0.1, 40) < 0.1
    assert mu_from_pairs(without, within - 0.1, 40) == 0
    assert mu_from_pairs(without, within + 0.1, 1) == mu_from_shift(without, within[1:] + 0.1)
    assert mu_from_pairs([0.0] * 4, [1.0] * 4, 2) == math.inf


def test_the_bound_by_likelihood_holds_at_its_confidence():
    """Of very few runs, where a degree of freedom counts; the noise is half as large as is stated."""
    rng = np.random.default_rng(4)
    repetitions, added = 300, 0.7
    noise = 0.5 * rng.normal(size=(repetitions, 2, 3))
    sides = np.stack([added + noise, np.full_like(noise, added)], axis=-1)
    found = [bounds_of_distances(one, other, 0.95) for one, other in sides]
    at_most_five_percent(sum(each["mu_lower"] > 2 * added for each in found), repetitions)
    assert sum(each["mu_lower"] > 2 * added for each in found) > 0.02 * repetitions


def test_fits_without_noise_that_do_not_describe_the_noisy_ones_are_not_relied_on():
    """They say that the canary adds 3, and it adds nothing: fits of either data set release the same."""
    released = np.random.default_rng(5).normal(size=(2, 200))
    one, other = (np.stack([side, np.full(200, 3.0)], axis=1) for side in (3.0 - released[0], released[1]))
    found = bounds_of_distances(one, other, 0.95)
    assert found["mu_lower"] == found["mu_by_shift"] < 0.5


def test_the_bound_by_scale_holds_at_its_confidence():
    rng = np.random.default_rng(6)
    directions = [(np.zeros(4), np.array([1.0, 0, 0, 0]), np.full(4, 0.5))]
    found = np.array([mu_from_scale(directions, noise, 0.95) for noise in rng.normal(size=(2000, 5))])
    at_most_five_percent((found > 2.0).sum(), len(found))
    assert (found > 2.0).mean() > 0.02


def failures_of_counts(bound, claim, alarm, miss, n, repetitions=20_000):
    """How often a bound from counts exceeds a claim that holds, each pair of counts looked at once."""
    rng = np.random.default_rng(7)
    counts = np.stack([rng.binomial(n, chance, repetitions) for chance in (alarm, miss)], axis=1)
    pairs, times = np.unique(counts, axis=0, return_counts=True)
    return sum(int(time) for pair, time in zip(pairs.tolist(), times) if bound(*pair, n) > claim)


@pytest.mark.parametrize("threshold", [0.5, 2.5])
def test_the_bound_by_counts_holds_at_its_confidence(threshold):
    alarm, miss = stats.norm.sf(threshold), stats.norm.cdf(threshold - 1.0)
    at_most_five_percent(failures_of_counts(mu_from_counts, 1.0 + 1e-9, alarm, miss, 30), 20_000)


def test_the_bound_by_errors_alone_holds_at_its_confidence():
    """Randomised response: both logarithms that the bound looks at are as large as they may be."""
    error = 1 / (1 + math.exp(2.0))
    bound = lambda alarms, misses, n: epsilon_from_counts(alarms, misses, n, 0.0)  # noqa: E731
    at_most_five_percent(failures_of_counts(bound, 2.0, error, error, 60), 20_000)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_bound_by_errors_alone_holds_where_delta_gives_the_canary_away(epsilon):
    """With chance delta the canary is published, and else randomised response answers: (epsilon, delta)-DP, exactly."""
    delta, answers = 0.1, 1 / (1 + math.exp(epsilon))
    bound = lambda alarms, misses, n: epsilon_from_counts(alarms, misses, n, delta)  # noqa: E731
    # one test believes what is published alone, the other one believes the answers too
    at_most_five_percent(failures_of_counts(bound, epsilon, 0.0, 1 - delta, 200), 20_000)
    at_most_five_percent(failures_of_counts(bound, epsilon, answers, (1 - delta) * answers, 200), 20_000)


def test_the_bound_by_guesses_holds_where_delta_gives_canaries_away():
    """With chance m delta / r all of r guesses are right: delta-DP of each of m canaries, and epsilon is 0."""
    m, r, delta, repetitions = 1000, 10, 1e-3, 4000
    rng = np.random.default_rng(8)
    given = rng.random(repetitions) < m * delta / r
    correct = np.where(given, r, rng.binomial(r, 0.5, repetitions))
    bounds = np.array([epsilon_from_guesses(k, r, m, delta) for k in range(r + 1)])
    at_most_five_percent((bounds[correct] > 0).sum(), repetitions)


def test_the_bound_by_guesses_holds_for_randomised_response():
    r, epsilon, repetitions = 100, 1.0, 4000
    correct = np.random.default_rng(9).binomial(r, 1 / (1 + math.exp(-epsilon)), repetitions)
    bounds = np.array([epsilon_from_guesses(k, r, 1000, 1e-9) for k in range(r + 1)])
    at_most_five_percent((bounds[correct] > epsilon).sum(), repetitions)
    assert (bounds[correct] > epsilon).mean() > 0.02


def test_lines_under_a_trade_off_curve_are_never_above_it():
    for noise in (0.5, 4.0):
        alarm = stats.norm.sf(0.5 / noise)
        curve = stats.norm.cdf(stats.norm.isf(alarm) - 1 / noise)
        found = _least_miss(gaussian_event(noise), alarm, "add_or_remove_one")
        assert found <= curve + 1e-6
        assert found == pytest.approx(curve, abs=0.01)  # where errors are equal a line touches it


def test_error_bounds_of_both_sides_hold_together():
    """Of many runs, where counts are nearly continuous and the bounds nearly exact."""
    rng = np.random.default_rng(10)
    counts = np.stack([rng.binomial(4000, 0.1, 1500), rng.binomial(3000, 0.3, 1500)], axis=1)
    bounds = [error_bounds(alarms, 4000, misses, 3000, 0.95) for alarms, misses in counts.tolist()]
    at_most_five_percent(sum(a < 0.1 or b < 0.3 for a, b in bounds), 1500)
