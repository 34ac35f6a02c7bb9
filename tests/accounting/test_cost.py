"""Prices of releases fixed in advance: regression values, closed forms, and independent computations."""

import math
from functools import partial

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, stats

from skdpgen.accounting import (
    Charge,
    compose_events,
    delta_pld,
    epsilon_pld,
    epsilon_rdp,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_event,
    gaussian_mu,
    non_private_event,
    poisson_gaussian_event,
    subset_gaussian_event,
)
from skdpgen.accounting._events import releases
from skdpgen.accounting._renyi import conversion_cost, poisson_rdp, rdp_at

BOTH = ["add_or_remove_one", "replace_one"]
MNIST = poisson_gaussian_event(300 / 63000, 1.4, 840)


@pytest.mark.parametrize(("neighboring", "epsilon"), [("add_or_remove_one", 0.4128), ("replace_one", 0.732)])
def test_mnist_steps_cost_the_regression_value(neighboring, epsilon):
    assert epsilon_pld(MNIST, 1e-5, neighboring) == pytest.approx(epsilon, abs=1e-3)


@pytest.mark.parametrize(
    ("make", "neighboring"),
    [
        (poisson_gaussian_event, "add_or_remove_one"),
        (poisson_gaussian_event, "replace_one"),
        (partial(subset_gaussian_event, "poisson_subsets"), "add_or_remove_one"),
        (lambda rate, noise, steps: gaussian_event(noise, steps), "replace_one"),
    ],
    ids=["Poisson", "Poisson, replaced", "subsets", "Gaussian"],
)
def test_a_release_is_charged_at_its_noise_and_rate_to_the_last_digits(make, neighboring):
    """Rounded noise or a rounded rate would charge too little for one release in two."""
    rate, noise, steps = 0.0123456789, 4.3215678, 10
    event, quieter = make(rate, noise, steps), make(rate, noise * (1 + 1e-7), steps)
    rarer = make(rate * (1 - 1e-7), noise, steps)
    for cost in (
        lambda event: epsilon_pld(event, 1e-5, neighboring),
        lambda event: rdp_at(releases(event), 17.8, neighboring),
    ):
        assert cost(quieter) < cost(event)
        assert cost(rarer) < cost(event) or event == rarer  # a Gaussian release has no rate


def test_p3gm_on_mnist_costs_the_regression_value():
    whole = [gaussian_event(30.75), gaussian_event(18.659, 20), MNIST]
    assert epsilon_pld(whole, 1e-5, "add_or_remove_one") == pytest.approx(0.9998, abs=1e-3)
    assert epsilon_pld(compose_events(whole), 1e-5, "add_or_remove_one") == epsilon_pld(
        whole, 1e-5, "add_or_remove_one"
    )


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(0.1, 0.0325), (0.3, 0.0890), (1, 0.2681), (2, 0.5016), (5, 1.121), (10, 2.000)]
)
def test_gaussian_mu_is_the_table_of_the_derivations(epsilon, mu):
    assert gaussian_mu(epsilon, 1e-5) == pytest.approx(mu, rel=2e-3)
    assert gaussian_epsilon(gaussian_mu(epsilon, 1e-5), 1e-5) == pytest.approx(epsilon, rel=1e-7)
    assert gaussian_epsilon(gaussian_mu(epsilon, 1e-5), 1e-5) <= epsilon


@pytest.mark.parametrize("mu", [1e-4, 0.03, 0.3, 2.0, 30.0])
def test_closed_form_delta_is_the_integral_of_the_hockey_stick(mu):
    for epsilon in (0.1 * mu, mu, mu * mu / 2 + mu):
        direct = stats.norm.sf(epsilon / mu - mu / 2) - math.exp(epsilon) * stats.norm.sf(epsilon / mu + mu / 2)
        assert gaussian_delta(mu, epsilon) == pytest.approx(direct, rel=1e-6, abs=1e-14)


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
def test_pld_of_a_gaussian_agrees_with_the_closed_form(mu):
    numeric = pld.from_gaussian_mechanism(1 / mu).get_epsilon_for_delta(1e-5)
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(numeric, rel=1e-3)


@pytest.mark.parametrize("neighboring", BOTH)
def test_gaussian_releases_fold_into_one_and_do_not_read_the_relation(neighboring):
    parts = [gaussian_event(3.0), gaussian_event(4.0, 2)]
    mu = math.sqrt(1 / 9 + 2 / 16)
    assert epsilon_pld(parts, 1e-5, neighboring) == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-9)


@pytest.mark.parametrize(("neighboring", "factor"), [("add_or_remove_one", 1), ("replace_one", 2)])
def test_sampling_everyone_is_the_gaussian_of_the_relations_sensitivity(neighboring, factor):
    steps = poisson_gaussian_event(1.0, 5.0, 4)
    assert epsilon_pld(steps, 1e-5, neighboring) == pytest.approx(gaussian_epsilon(factor * 2 / 5, 1e-5), rel=1e-9)
    nearly = epsilon_pld(poisson_gaussian_event(0.9999, 5.0, 4), 1e-5, neighboring)
    assert nearly == pytest.approx(gaussian_epsilon(factor * 2 / 5, 1e-5), rel=2e-3)


@pytest.mark.parametrize(
    ("q", "z", "steps", "neighboring"),
    [
        (3.9e-4, 1.1, 38449, BOTH[1]),
        (5e-3, 0.7, 300, BOTH[0]),
        (0.05, 6.0, 400, BOTH[0]),
        (0.05, 6.0, 400, BOTH[1]),
        (0.5, 3.0, 3, BOTH[1]),
    ],
)
def test_the_grid_is_fine_enough(q, z, steps, neighboring):
    from dp_accounting import NeighboringRelation

    relation = NeighboringRelation[neighboring.upper()]
    one = q * math.sqrt(math.expm1(1 / z**2))
    fine = pld.from_gaussian_mechanism(
        z, sampling_prob=q, value_discretization_interval=min(1e-4, 0.025 * one), neighboring_relation=relation
    )
    reference = fine.self_compose(steps).get_epsilon_for_delta(1e-5)
    assert epsilon_pld(poisson_gaussian_event(q, z, steps), 1e-5, neighboring) == pytest.approx(reference, rel=8e-4)


@pytest.mark.parametrize(
    "what", [MNIST, [gaussian_event(10.0), MNIST], gaussian_event(0.5), poisson_gaussian_event(0.2, 0.8, 30)]
)
def test_pld_is_at_most_rdp(what):
    assert epsilon_pld(what, 1e-5, "add_or_remove_one") <= 1.001 * epsilon_rdp(what, 1e-5, "add_or_remove_one")


def test_rdp_is_absent_for_poisson_steps_under_replace_one_only():
    assert epsilon_rdp(MNIST, 1e-5, "replace_one") is None
    assert epsilon_rdp(gaussian_event(4.0), 1e-5, "replace_one") == epsilon_rdp(gaussian_event(4.0), 1e-5, BOTH[0])


def test_rdp_epsilon_agrees_with_dp_accounting():
    accountant = RdpAccountant([1 + k / 4 for k in range(4, 200)])
    accountant.compose(GaussianDpEvent(10.0))
    accountant.compose(PoissonSampledDpEvent(300 / 63000, GaussianDpEvent(1.4)), 840)
    ours = epsilon_rdp([gaussian_event(10.0), MNIST], 1e-5, "add_or_remove_one")
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)


@pytest.mark.parametrize(("q", "z"), [(300 / 63000, 1.4), (0.01, 0.5), (4e-4, 5.0), (0.5, 2.0), (0.2, 0.08)])
@pytest.mark.parametrize("order", [2.0, 17.0])
def test_quadrature_agrees_with_dp_accounting_for_add_or_remove(q, z, order):
    accountant = RdpAccountant([order])
    accountant.compose(PoissonSampledDpEvent(q, GaussianDpEvent(z)))
    assert poisson_rdp(q, z, order, "add_or_remove_one") == pytest.approx(accountant._rdp[0], rel=1e-7)


@pytest.mark.parametrize("neighboring", BOTH)
@pytest.mark.parametrize(
    ("q", "z", "order"), [(300 / 63000, 1.4, 17.8), (0.1, 0.7, 3.3), (0.3, 4.0, 40.0), (1e-4, 1.0, 9.1)]
)
def test_quadrature_agrees_with_a_fine_one_and_with_adaptive_integration(q, z, order, neighboring):
    value = poisson_rdp(q, z, order, neighboring)
    assert value == pytest.approx(poisson_rdp(q, z, order, neighboring, fineness=16), rel=1e-8)

    def excess(x, sign):
        p = (1 - q) * stats.norm.pdf(x, 0, z) + q * stats.norm.pdf(x, 1, z)
        r = stats.norm.pdf(x, 0, z)
        if neighboring == "replace_one":
            r = (1 - q) * r + q * stats.norm.pdf(x, -1, z)
        if sign < 0:
            p, r = r, p
        return (p / r) ** order * r - r - order * (p - r)

    ends, middle = (-order - 12 * z, order + 12 * z), [-1.0, 0.0, 1.0, order - 1, order]
    found = max(
        math.log1p(integrate.quad(excess, *ends, args=(sign,), points=middle, limit=400)[0]) / (order - 1)
        for sign in (1, -1)
    )
    assert value == pytest.approx(found, rel=1e-5)


def test_rdp_with_absurdly_small_noise_falls_back_to_no_sampling():
    assert poisson_rdp(0.1, 1e-4, 17.8, "replace_one") == pytest.approx(17.8 * 4 / 2 * 1e8)


def test_conversion_cost_is_the_formula():
    a, d = 17.8, 1e-5
    assert conversion_cost(a, d) == pytest.approx(math.log((a - 1) / a) - (math.log(d) + math.log(a)) / (a - 1))


@pytest.mark.parametrize("neighboring", BOTH)
@pytest.mark.parametrize("what", [gaussian_event(2.0), [gaussian_event(9.0), MNIST]], ids=["closed form", "pld"])
def test_delta_is_the_inverse_of_epsilon(what, neighboring):
    for delta in (1e-3, 1e-6):
        epsilon = epsilon_pld(what, delta, neighboring)
        assert delta_pld(what, epsilon, neighboring) == pytest.approx(delta, rel=1e-2)


def test_extra_delta_is_taken_off_first():
    charge = Charge("x", gaussian_event(4.0), 4e-6)
    assert epsilon_pld(charge, 1e-5, BOTH[0]) == epsilon_pld(gaussian_event(4.0), 6e-6, BOTH[0])
    assert delta_pld(charge, 1.0, BOTH[0]) == pytest.approx(delta_pld(gaussian_event(4.0), 1.0, BOTH[0]) + 4e-6)
    assert epsilon_pld([charge, charge, charge], 1e-5, BOTH[0]) == math.inf
    assert epsilon_rdp([charge, charge, charge], 1e-5, BOTH[0]) == math.inf


def test_nothing_costs_nothing_and_no_privacy_costs_infinity():
    assert epsilon_pld([], 1e-5, BOTH[0]) == 0.0
    assert epsilon_rdp([], 1e-5, BOTH[0]) == 0.0
    assert delta_pld([], 0.0, BOTH[0]) == 0.0
    assert epsilon_pld([gaussian_event(9.0), non_private_event()], 1e-5, BOTH[0]) == math.inf
    assert delta_pld(non_private_event(), 3.0, BOTH[0]) == 1.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, float("nan"), "1e-5", None])
def test_delta_outside_the_unit_interval_is_refused(delta):
    with pytest.raises(ValueError, match="delta must lie in"):
        epsilon_pld(gaussian_event(1.0), delta, BOTH[0])


def test_price_falls_with_noise_and_rises_with_steps():
    costs = [epsilon_pld(poisson_gaussian_event(0.01, z, 100), 1e-5, BOTH[1]) for z in np.geomspace(0.9, 8, 5)]
    assert costs == sorted(costs, reverse=True)
    costs = [epsilon_pld(poisson_gaussian_event(0.01, 1.0, n), 1e-5, BOTH[1]) for n in (1, 10, 100, 1000)]
    assert costs == sorted(costs)
