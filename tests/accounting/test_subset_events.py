"""Events whose unit is a subset: prices against the published table, closed forms and brute force."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from scipy import stats
from scipy.integrate import quad

from skdpgen.accounting import (
    Phase,
    calibrate,
    describe_event,
    epsilon_pld,
    epsilon_rdp,
    event_from_json,
    event_to_json,
    gaussian_epsilon,
    gaussian_event,
    poisson_gaussian_event,
    subset_gaussian_event,
)
from skdpgen.accounting import (
    _pricing as pricing,
)
from skdpgen.accounting._events import SUBSET_MECHANISMS, SubsetSampledDpEvent
from skdpgen.accounting._renyi import poisson_rdp
from skdpgen.accounting._subset_sampling import _profile, subset_rdp

K, T, DELTA = 2500, 10_000, 1e-5


def _price(sampler, sd, n_subsets=K, steps=T):
    """Epsilon at noise of `sd` times C."""
    if sampler == "balanced":
        event = gaussian_event(sd / 2, math.ceil(steps / n_subsets))
    else:
        event = subset_gaussian_event(sampler, 1 / n_subsets, sd if sampler == "poisson_subsets" else sd / 2, steps)
    return epsilon_pld(event, DELTA, "add_or_remove_one")


# noise needed for K = 2500, T = 10,000: with the last digit's rounding below it costs at least epsilon, above at most
@pytest.mark.parametrize(
    ("sampler", "epsilon", "low", "high"),
    [
        ("poisson_subsets", 10, 0.3745, 0.3755),
        ("poisson_subsets", 1, 0.6235, 0.6250),
        ("one_of_k", 10, 0.7490, 0.7505),
        ("one_of_k", 1, 1.2430, 1.2500),
        ("balanced", 10, 1.995, 2.005),
        ("balanced", 1, 14.85, 14.95),
        ("index_revealed", 10, 2.690, 2.705),
        ("index_revealed", 1, 18.45, 18.55),
    ],
)
def test_the_noise_that_each_sampler_needs_is_that_of_the_table(sampler, epsilon, low, high):
    assert _price(sampler, high) <= epsilon <= _price(sampler, low)


def _forget_prices():
    """A price that was remembered would hide a changed event."""
    pricing.epsilon_of.cache_clear()
    pricing._distribution.cache_clear()


def test_poisson_subsets_cost_under_both_relations_what_replacing_a_unit_costs():
    _forget_prices()
    steps = {"sampling_rate": 0.01, "noise_multiplier": 0.8, "steps": 200}
    event = subset_gaussian_event("poisson_subsets", **steps)
    expected = epsilon_pld(poisson_gaussian_event(**steps), DELTA, "replace_one")
    for relation in ("add_or_remove_one", "replace_one"):
        assert epsilon_pld(event, DELTA, relation) == pytest.approx(expected, rel=1e-3)
    assert expected > 1.1 * epsilon_pld(poisson_gaussian_event(**steps), DELTA, "add_or_remove_one")


def test_a_revealed_index_costs_the_mixture_over_its_visits():
    _forget_prices()
    q, z, steps = 0.02, 1.1, 60
    visits = np.arange(1, steps + 1)
    weights = stats.binom.pmf(visits, steps, q)

    def delta(epsilon):
        mu = np.sqrt(visits) / z
        one = stats.norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * stats.norm.cdf(-epsilon / mu - mu / 2)
        return float(weights @ one)

    epsilon = epsilon_pld(subset_gaussian_event("index_revealed", q, z, steps), DELTA, "replace_one")
    assert delta(epsilon) <= DELTA <= delta(epsilon * 0.997)


def test_the_profile_of_one_of_k_bounds_every_configuration_and_is_attained():
    """Two centres of the differing subset and one of the rest, anywhere in the ball: no divergence is larger."""
    q, sd = 0.25, 0.6
    x, rest = np.linspace(-9, 9, 60_001), np.linspace(-1, 1, 5)
    density = {c: stats.norm.pdf(x, c, sd) for c in rest}
    for epsilon in (0.05, 0.4, 1.0, 2.0):
        bound = float(_profile("one_of_k", q, 2 / sd, np.array([epsilon]))[0])
        worst = 0.0
        for r in rest:
            for a in rest:
                for b in rest:
                    p, other = ((1 - q) * density[r] + q * density[c] for c in (a, b))
                    worst = max(worst, np.sum(np.maximum(p - math.exp(epsilon) * other, 0)) * (x[1] - x[0]))
        assert 0.99 * bound <= worst <= bound * (1 + 1e-6)


@pytest.mark.parametrize("alpha", [1.5, 4.0, 9.0])
def test_rdp_of_a_profile_is_its_integral(alpha):
    q, z = 0.01, 0.7
    for mechanism in ("one_of_k", "index_revealed"):

        def term(e, mechanism=mechanism):
            delta = float(_profile(mechanism, q, 1 / z, np.array([e]))[0])
            return (math.exp((alpha - 1) * e) + math.exp(-alpha * e)) * delta

        parts = [quad(term, a, b, limit=200)[0] for a, b in ((0, 0.05), (0.05, 2), (2, 12), (12, 45))]
        expected = math.log1p(alpha * (alpha - 1) * sum(parts)) / (alpha - 1)
        assert subset_rdp(mechanism, q, z, alpha) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("mechanism", SUBSET_MECHANISMS)
def test_pld_is_below_rdp_and_a_drawn_subset_below_one_that_is_always_there(mechanism):
    event = subset_gaussian_event(mechanism, 0.05, 1.0, 50)
    for relation in ("add_or_remove_one", "replace_one"):
        assert epsilon_pld(event, DELTA, relation) <= 1.001 * epsilon_rdp(event, DELTA, relation)
    always = epsilon_pld(subset_gaussian_event(mechanism, 1.0, 1.0, 50), DELTA, "add_or_remove_one")
    assert epsilon_pld(event, DELTA, "add_or_remove_one") < always
    mu = 50**0.5 * (2 if mechanism == "poisson_subsets" else 1)
    assert always == pytest.approx(gaussian_epsilon(mu, DELTA))


@pytest.mark.parametrize("mechanism", SUBSET_MECHANISMS)
def test_events_survive_json_and_are_described(mechanism):
    event = subset_gaussian_event(mechanism, 0.1, 1.25, 7)
    assert event_from_json(json.dumps(event_to_json(event))) == event
    row = {"mechanism": mechanism, "noise_multiplier": 1.25, "sampling_rate": 0.1, "count": 7}
    assert describe_event(event) == [row]


def test_bad_numbers_and_unknown_mechanisms_are_refused():
    with pytest.raises(ValueError, match="mechanism must be one of"):
        subset_gaussian_event("shuffled", 0.1, 1.0, 1)
    with pytest.raises(ValueError, match="sampling_rate"):
        subset_gaussian_event("one_of_k", 1.5, 1.0, 1)
    for rate in (0.4, 0.9, 0.3334, 3 / 2500):  # of exactly one of K, K a whole number, none has such a chance
        with pytest.raises(ValueError, match="1 / K"):
            subset_gaussian_event("one_of_k", rate, 1.0, 1)
        with pytest.raises(ValueError, match="1 / K"):
            describe_event(SubsetSampledDpEvent("one_of_k", rate, GaussianDpEvent(1.0)))
    for k in (1, 3, 7, 2500, 999_983):
        assert subset_gaussian_event("one_of_k", 1 / k, 1.0, 1).sampling_rate == 1 / k
    with pytest.raises(ValueError, match="noise_multiplier"):
        describe_event(SubsetSampledDpEvent("one_of_k", 0.5, GaussianDpEvent(-1.0)))
    with pytest.raises(ValueError, match="no such mechanism"):
        Phase("x", 1.0, 5, 0.1, "shuffled")


@pytest.mark.parametrize("mechanism", SUBSET_MECHANISMS)
def test_a_joint_calibration_spends_the_budget(mechanism):
    phases = [Phase("moments", 0.5), Phase("decoder", 0.5, 100, 0.02, mechanism)]
    plan = calibrate(phases, 2.0, DELTA, "add_or_remove_one", label="fit")
    assert 0.999 * 2.0 <= epsilon_pld(plan, DELTA, "add_or_remove_one") <= 2.0


@pytest.mark.parametrize("alpha", [1.001, 1.5, 17.8, 1000.0])
@pytest.mark.parametrize("rate", [6.230940817959088e-05, 1.3e-4, 0.3])
def test_a_step_with_much_noise_has_no_negative_price(rate, alpha):
    """The sum of the books would fall with every charge, and make room for others."""
    for z in (1e3, 1e6, 1e12, 1e18):
        rdp = subset_rdp("index_revealed", rate, z, alpha)
        assert rate * alpha / (2 * z * z) * (1 - 1e-9) <= rdp <= alpha / (2 * z * z)
    for z in (136927.36, 759099072987997.2):
        assert all(poisson_rdp(q, z, alpha, "replace_one") >= 0 for q in (2.8e-10, rate, 0.999999999999))
