"""Attack risk: equal to the closed forms of a Gaussian mechanism, and an upper bound of real tests elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from skdpgen.accounting import (
    BudgetPlan,
    Charge,
    Phase,
    PrivacyAccountant,
    calibrate,
    compose_events,
    delta_pld,
    epsilon_pld,
    epsilon_rdp,
    gaussian_event,
    gaussian_mu,
    membership_advantage,
    non_private_event,
    poisson_gaussian_event,
    repeat_and_select_event,
    subset_gaussian_event,
    true_positive_rate,
)
from skdpgen.accounting._pricing import delta_curve

ADD, REPLACE = RELATIONS = ("add_or_remove_one", "replace_one")
RATES = (1e-6, 0.01, 0.3, 0.9)


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.73, 50.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_risk_of_a_gaussian_mechanism_is_its_closed_form(noise, relation):
    mu, event = 1 / noise, gaussian_event(noise)
    assert membership_advantage(event, relation) == pytest.approx(2 * norm.cdf(mu / 2) - 1, rel=1e-12)
    for rate in RATES:
        exact = norm.cdf(norm.ppf(rate) + mu)
        assert exact * (1 - 1e-9) <= true_positive_rate(event, rate, relation) <= exact * (1 + 1e-6)
    assert true_positive_rate(event, 0.0, relation) < 1e-9
    assert true_positive_rate(event, 1.0, relation) == 1.0


def test_several_gaussian_releases_are_one_with_the_sum_of_their_squares():
    together = compose_events([gaussian_event(3.0), gaussian_event(4.0)])
    assert membership_advantage(together, ADD) == pytest.approx(membership_advantage(gaussian_event(2.4), ADD))
    assert true_positive_rate(together, 0.01, ADD) == pytest.approx(true_positive_rate(gaussian_event(2.4), 0.01, ADD))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_sampled_step_is_bounded_closely_by_its_exact_tests(rate):
    z, event = 1.2, poisson_gaussian_event(rate, 1.2, 1)
    exact = rate * (2 * norm.cdf(0.5 / z) - 1)
    assert exact * (1 - 1e-9) <= membership_advantage(event, ADD) <= 1.003 * exact
    for a in (0.01, 0.1):  # the likelihood ratio is monotone: the best test is a threshold
        added = (1 - rate) * a + rate * norm.cdf(norm.ppf(a) + 1 / z)
        grid = np.linspace(-8, 8, 20_001)
        wrong = (1 - rate) * norm.cdf(grid) + rate * norm.cdf(grid - 1 / z)
        removed = np.interp(a, wrong, norm.cdf(grid))
        found = true_positive_rate(event, a, ADD)
        assert max(added, removed) * (1 - 1e-6) <= found <= 1.01 * max(added, removed)


def test_many_sampled_steps_approach_a_gaussian_mechanism_from_within():
    event = poisson_gaussian_event(0.01, 2.0, 2000)
    alone = gaussian_mu(epsilon_pld(event, 1e-5, ADD), 1e-5)  # the Gaussian mechanism of the same epsilon and delta
    assert 0.9 * (2 * norm.cdf(alone / 2) - 1) < membership_advantage(event, ADD) < 2 * norm.cdf(alone / 2) - 1
    mu = 0.01 * math.sqrt(2000 * math.expm1(0.25))  # limit of Bu, Dong, Long and Su 2020
    assert membership_advantage(event, ADD) == pytest.approx(2 * norm.cdf(mu / 2) - 1, rel=0.02)


@pytest.mark.parametrize(
    "event",
    [
        gaussian_event(2.0),
        poisson_gaussian_event(0.02, 1.5, 300),
        subset_gaussian_event("one_of_k", 0.02, 2.0, 50),
        repeat_and_select_event([gaussian_event(6.0)], "poisson", 5),
    ],
    ids=["gaussian", "poisson", "subsets", "search"],
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_risk_is_below_that_of_one_epsilon_and_delta_alone(event, relation):
    epsilon, delta = epsilon_pld(event, 1e-5, relation), 1e-5
    advantage = membership_advantage(event, relation)
    assert 0 < advantage < (math.exp(epsilon) - 1 + 2 * delta) / (math.exp(epsilon) + 1)
    before = 0.0
    for rate in RATES:
        found = true_positive_rate(event, rate, relation)
        assert max(rate, before) <= found <= min(rate * math.exp(epsilon) + delta, 1)
        assert found <= rate + advantage + 1e-12
        before = found


def test_thresholds_add_their_delta_and_no_noise_is_no_protection():
    event = gaussian_event(4.0)
    plain, charged = membership_advantage(event, ADD), membership_advantage(Charge("fit", event, 0.01), ADD)
    assert plain + 0.009 < charged <= plain + 0.01 + 1e-12
    assert true_positive_rate(Charge("fit", event, 0.01), 0.01, ADD) > true_positive_rate(event, 0.01, ADD)
    assert membership_advantage(non_private_event(), ADD) == true_positive_rate(non_private_event(), 0.01, ADD) == 1.0
    assert membership_advantage([], ADD) == 0.0
    assert true_positive_rate([], 0.01, ADD) == pytest.approx(0.01)


# one of each way in which a curve is computed
KINDS = {
    "closed form": gaussian_event(4.0),
    "distribution": poisson_gaussian_event(0.05, 1.5, 40),
    "search": repeat_and_select_event([gaussian_event(9.0)], "poisson", 3),
    "RDP of many steps": poisson_gaussian_event(1e-3, 20.0, 2_000_000),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_delta_of_thresholds_is_in_every_delta_and_epsilon(kind):
    event = KINDS[kind]
    fit, curves = Charge("fit", event, 0.01), [delta_curve(what, ADD) for what in (event, Charge("fit", event, 0.01))]
    for epsilon in (0.5, 2.0):
        deltas = [curve(epsilon) for curve in curves]
        assert deltas[1] == pytest.approx(min(1.0, deltas[0] + 0.01), abs=1e-12)
        assert delta_pld(fit, epsilon, ADD) == pytest.approx(min(1.0, delta_pld(event, epsilon, ADD) + 0.01), abs=1e-12)
    assert epsilon_pld(fit, 0.01 + 1e-5, ADD) == pytest.approx(epsilon_pld(event, 1e-5, ADD), rel=1e-6)
    assert epsilon_rdp(fit, 0.01 + 1e-5, ADD) == pytest.approx(epsilon_rdp(event, 1e-5, ADD), rel=1e-6)


def test_the_delta_of_thresholds_is_in_the_planned_curve_and_in_the_list_of_fits():
    plan = calibrate([Phase("a", 1.0)], 1.0, 1e-5, ADD, label="fit", extra_delta=2e-6)
    curve = dict(BudgetPlan.of(plan, 1000).curve)
    assert curve[1e-6] == math.inf
    assert curve[1e-5] == pytest.approx(1.0, rel=1e-6)
    accountant = PrivacyAccountant(1.0)
    accountant.charge(plan.event, plan.label, plan.extra_delta)
    assert accountant.fits()["epsilon_alone"].tolist() == [pytest.approx(1.0, rel=1e-6)]
    assert epsilon_pld(plan.event, 1e-5, ADD) < 0.99


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, True, "0.01"])
def test_a_rate_that_is_no_share_is_refused(rate):
    with pytest.raises(ValueError, match="false_positive_rate"):
        true_positive_rate(gaussian_event(1.0), rate, ADD)
