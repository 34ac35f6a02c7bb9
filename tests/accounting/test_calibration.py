"""From a budget to noise: exact, never above, and quick."""

import copy
import math
import pickle

import pytest

from skdpgen.accounting import (
    Phase,
    calibrate,
    compose_events,
    epsilon_pld,
    gaussian_event,
    gaussian_mu,
    noise_multiplier_for,
    non_private_event,
    poisson_gaussian_event,
)
from skdpgen.accounting import _calibration as module
from skdpgen.accounting import (
    _pricing as pricing,
)

BOTH = ["add_or_remove_one", "replace_one"]
MNIST = [Phase("pca", 0.1), Phase("mixture", 0.15, 20), Phase("decoder", 0.75, 840, 300 / 63000)]


@pytest.mark.parametrize("neighboring", BOTH)
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
def test_fit_costs_what_was_asked_for_within_a_thousandth_and_never_more(epsilon, neighboring):
    plan = calibrate(MNIST, epsilon, 1e-5, neighboring, label="fit")
    assert 0.999 * epsilon <= epsilon_pld(plan, 1e-5, neighboring) <= epsilon


@pytest.mark.parametrize("neighboring", BOTH)
@pytest.mark.parametrize(
    "phase",
    [
        Phase("one step", 1.0, 1, 0.05),
        Phase("half the rows", 1.0, 10, 0.5),
        Phase("everyone", 1.0, 100, 1.0),
        Phase("many", 1.0, 10_000, 0.002),
    ],
    ids=lambda phase: phase.label,
)
def test_far_from_the_central_limit_the_price_is_still_right(phase, neighboring):
    plan = calibrate([phase], 1.0, 1e-5, neighboring, label="fit")
    assert 0.999 <= epsilon_pld(plan, 1e-5, neighboring) <= 1.0


def test_gaussian_plans_use_the_closed_form(monkeypatch):
    built = count_distributions(monkeypatch)
    for epsilon in (0.01, 0.1, 1.0, 7.5, 100.0):
        plan = calibrate([Phase("a", 0.25), Phase("b", 0.75, 12)], epsilon, 1e-6, "replace_one", label="fit")
        mu = math.sqrt(plan.noise_multipliers["a"] ** -2 + 12 * plan.noise_multipliers["b"] ** -2)
        assert mu == pytest.approx(gaussian_mu(epsilon, 1e-6), rel=1e-9)
        assert epsilon * (1 - 1e-6) <= epsilon_pld(plan, 1e-6, "replace_one") <= epsilon
    assert not built


def test_shares_are_shares_of_squared_mu_and_need_not_sum_to_one():
    plan = calibrate([Phase("a", 1.0), Phase("b", 3.0, 2)], 1.0, 1e-5, "add_or_remove_one", label="fit")
    a, b = plan.noise_multipliers["a"] ** -2, 2 * plan.noise_multipliers["b"] ** -2
    assert b / a == pytest.approx(3.0)
    doubled = calibrate([Phase("a", 2.0), Phase("b", 6.0, 2)], 1.0, 1e-5, "add_or_remove_one", label="fit")
    assert doubled.noise_multipliers["a"] == pytest.approx(plan.noise_multipliers["a"])


def test_the_plans_event_is_its_phases_in_order():
    plan = calibrate(MNIST, 1.0, 1e-5, "add_or_remove_one", label="fit", extra_delta=1e-6)
    z = plan.noise_multipliers
    steps = poisson_gaussian_event(300 / 63000, z["decoder"], 840)
    assert plan.event == compose_events([gaussian_event(z["pca"]), gaussian_event(z["mixture"], 20), steps])
    assert (plan.charge.event, plan.charge.label, plan.charge.extra_delta) == (plan.event, "fit", 1e-6)
    assert 0.999 <= epsilon_pld(plan.event, 9e-6, "add_or_remove_one") <= 1.0


def test_few_fine_prices_and_remembered(monkeypatch):
    seen = []
    inner = module.epsilon_of

    def counting(combined, delta, neighboring, resolution):
        seen.append(resolution)
        return inner(combined, delta, neighboring, resolution)

    monkeypatch.setattr(module, "epsilon_of", counting)
    phases = [Phase("a", 0.3), Phase("b", 0.7, 321, 0.0123)]
    first = calibrate(phases, 0.77, 1e-5, "add_or_remove_one", label="fit")
    assert 1 <= seen.count(module.FINE) <= 4
    seen.clear()
    again = calibrate(phases, 0.77, 1e-5, "add_or_remove_one", label="another")
    assert not seen
    assert dict(again.noise_multipliers) == dict(first.noise_multipliers)


@pytest.mark.parametrize(
    "phases",
    [[Phase("pca", 0.21), Phase("decoder", 0.79, 840, 300 / 63000)], [Phase("decoder", 1.0, 10_000, 4e-4)]],
    ids=["840 steps", "10000 steps"],
)
def test_calibration_builds_few_distributions(phases, monkeypatch):
    built = count_distributions(monkeypatch)
    calibrate(phases, 0.93, 1e-5, BOTH[0], label="fit")
    assert 1 <= len(built) <= 14  # they take nearly all of the time


def count_distributions(monkeypatch):
    built, build = [], pricing._distribution
    monkeypatch.setattr(pricing, "_distribution", lambda *args: built.append(args) or build(*args))
    return built


def test_infinite_epsilon_is_no_noise_and_says_so():
    plan = calibrate(MNIST, math.inf, 1e-5, "replace_one", label="reference")
    assert set(plan.noise_multipliers.values()) == {0.0}
    assert epsilon_pld(plan, 1e-5, "replace_one") == math.inf


@pytest.mark.parametrize("neighboring", BOTH)
def test_noise_multiplier_for_any_event(neighboring):
    def make(z):
        return compose_events([gaussian_event(4 * z, 3), poisson_gaussian_event(0.02, z, 150)])

    z = noise_multiplier_for(make, 0.8, 1e-5, neighboring, extra_delta=2e-6)
    assert 0.999 * 0.8 <= epsilon_pld(make(z), 8e-6, neighboring) <= 0.8
    assert noise_multiplier_for(gaussian_event, 1.0, 1e-5, neighboring) == pytest.approx(1 / 0.2681, rel=2e-3)


def test_a_price_that_noise_cannot_reach_is_an_error_and_not_an_endless_search():
    for constant in (gaussian_event(1.0), gaussian_event(1e6), non_private_event()):
        with pytest.raises(ValueError, match="no amount of noise"):
            noise_multiplier_for(lambda z, constant=constant: constant, 1.0, 1e-5, "replace_one")


def test_plans_survive_pickle_and_copy():
    plan = calibrate(MNIST, 1.0, 1e-5, "add_or_remove_one", label="fit")
    for other in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan), copy.copy(plan)):
        assert other == plan
    with pytest.raises(TypeError):
        plan.noise_multipliers["pca"] = 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", 1.0), "label of a phase"),
        (("a", 0.0), "share must be a positive number"),
        (("a", float("nan")), "share must be a positive number"),
        (("a", 1.0, 0), "steps must be a whole number"),
        (("a", 1.0, 2.5), "steps must be a whole number"),
        (("a", 1.0, 1, 0.0), "sampling_rate must be None or lie in"),
        (("a", 1.0, 1, 1.5), "sampling_rate must be None or lie in"),
    ],
)
def test_bad_phases_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Phase(*arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phases": []}, "at least one Phase"),
        ({"phases": [Phase("a", 1.0), Phase("a", 2.0)]}, "labels must differ"),
        ({"epsilon": 0}, "epsilon must be a number > 0"),
        ({"epsilon": -1.0}, "epsilon must be a number > 0"),
        ({"epsilon": float("nan")}, "epsilon must be a number > 0"),
        ({"epsilon": "1"}, "epsilon must be a number > 0"),
        ({"delta": 0.0}, "delta must lie in"),
        ({"delta": 1}, "delta must lie in"),
        ({"neighboring": "swap"}, "neighboring must be one of"),
        ({"extra_delta": 1e-5}, "extra_delta must lie in"),
        ({"extra_delta": -1e-7}, "extra_delta must lie in"),
    ],
)
def test_bad_budgets_are_refused(change, message):
    call = {"phases": [Phase("a", 1.0)], "epsilon": 1.0, "delta": 1e-5, "neighboring": "replace_one", "label": "x"}
    with pytest.raises(ValueError, match=message):
        calibrate(**{**call, **change})
