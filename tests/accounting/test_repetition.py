"""The price of a random number of runs: against dp-accounting, against a direct computation, and in the books."""

import json
import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy import optimize, stats

from skdpgen.accounting import (
    PrivacyAccountant,
    compose_events,
    delta_pld,
    describe_event,
    epsilon_pld,
    epsilon_rdp,
    event_from_json,
    event_to_json,
    gaussian_event,
    non_private_event,
    poisson_gaussian_event,
    repeat_and_select_event,
)
from skdpgen.accounting import (
    _renyi as renyi,
)
from skdpgen.accounting._calibration import FitPlan
from skdpgen.accounting._events import releases
from skdpgen.accounting._renyi import rdp_at, run_probabilities, stopping_probability

BOTH = ["add_or_remove_one", "replace_one"]
STEPS = poisson_gaussian_event(300 / 63000, 1.053, 840)
SEARCH = repeat_and_select_event([gaussian_event(5.0, 2), STEPS], "poisson", 5)


@pytest.mark.parametrize(("runs", "shape"), [("poisson", math.inf), ("logarithmic", 0.0)])
@pytest.mark.parametrize("mean", [1, 5, 10])
@pytest.mark.parametrize("event", [STEPS, gaussian_event(3.73)], ids=["steps", "gaussian"])
def test_the_price_is_that_of_dp_accounting(event, runs, shape, mean):
    ours = epsilon_pld(repeat_and_select_event([event], runs, mean), 1e-5, "add_or_remove_one")
    reference = RdpAccountant()
    reference.compose(RepeatAndSelectDpEvent(event, mean, shape))
    # lower where our orders are finer, never higher by more than 1e-3
    assert -3e-3 * ours <= reference.get_epsilon(1e-5) - ours + 1e-3 * ours
    assert ours == pytest.approx(reference.get_epsilon(1e-5), rel=3e-3)


@pytest.mark.parametrize(("runs", "mean", "expected"), [("poisson", 5, 1.45), ("logarithmic", 10, 1.72)])
def test_epsilon_one_becomes_what_the_derivations_say(runs, mean, expected):
    assert epsilon_pld(repeat_and_select_event([STEPS], runs, mean), 1e-5, "add_or_remove_one") == pytest.approx(
        expected, abs=6e-3
    )


def test_the_poisson_price_is_the_theorem_computed_by_hand():
    z, mean, delta = 5.0, 4.0, 1e-5

    def at(order):  # Papernot and Steinke 2022, Theorem 6, with the conversion of Canonne et al. for delta_hat
        rho, target = order / (2 * z * z), math.log1p(1 / (order - 1))

        def exponent(a):
            return (a - 1) * (a / (2 * z * z) - target + math.log1p(-1 / a)) - math.log(a)

        best = optimize.minimize_scalar(lambda t: exponent(1 + math.exp(t)), bounds=(-3, 7), method="bounded").fun
        total = rho + mean * math.exp(best) + math.log(mean) / (order - 1)
        return total + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    by_hand = optimize.minimize_scalar(lambda t: at(1 + math.exp(t)), bounds=(0, 6), method="bounded").fun
    ours = epsilon_pld(repeat_and_select_event([gaussian_event(z)], "poisson", mean), delta, "replace_one")
    assert ours == pytest.approx(by_hand, rel=1e-3)


def test_no_selection_of_gaussian_runs_loses_more_than_it_is_charged():
    """The exact law of the best score of a Poisson number of runs, on the pair that one Gaussian run is tight for."""
    z, mean = 2.0, 4.0
    charged = repeat_and_select_event([gaussian_event(z)], "poisson", mean)
    x = np.linspace(-12, 12, 48_001)
    p, q = (mean * stats.norm.pdf(x, m) * np.exp(-mean * stats.norm.sf(x, m)) for m in (0.0, 1 / z))
    for epsilon in (0.5, 1.0, 2.0):
        lost = max(np.sum(np.maximum(a - math.exp(epsilon) * b, 0)) * (x[1] - x[0]) for a, b in ((p, q), (q, p)))
        assert lost <= delta_pld(charged, epsilon, "add_or_remove_one")
    one = gaussian_event(z)
    lost = np.sum(np.maximum(q - math.exp(1.0) * p, 0)) * (x[1] - x[0])
    assert lost > delta_pld(one, 1.0, "add_or_remove_one")  # it does cost more than one run


@pytest.mark.parametrize("runs", ["poisson", "logarithmic"])
@pytest.mark.parametrize("mean", [1.0, 2.5, 30.0])
def test_the_law_of_the_number_of_runs_has_the_mean_that_is_charged(runs, mean):
    chances = run_probabilities(runs, mean)
    assert chances.sum() == pytest.approx(1, abs=1e-9)
    assert (chances * np.arange(len(chances))).sum() == pytest.approx(mean, rel=1e-6)
    if runs == "poisson":
        assert chances[:8] == pytest.approx(stats.poisson.pmf(np.arange(8), mean), rel=1e-9)
    else:
        gamma = stopping_probability(mean)
        assert chances[0] == 0
        if mean > 1:
            assert chances[1:8] == pytest.approx(stats.logser.pmf(np.arange(1, 8), 1 - gamma), rel=1e-6)


@pytest.mark.parametrize("neighboring", BOTH)
def test_the_largest_alternative_at_each_order_is_charged(neighboring):
    parts = [gaussian_event(5.0, 2), STEPS]
    alone = [epsilon_pld(repeat_and_select_event([part], "poisson", 5), 1e-5, neighboring) for part in parts]
    assert epsilon_pld(SEARCH, 1e-5, neighboring) >= max(alone) * (1 - 1e-12)
    for order in (1.5, 8.0, 40.0):
        rows = [rdp_at(releases(part), order, neighboring) for part in parts]
        assert rdp_at(releases(SEARCH), order, neighboring) > max(rows)


@pytest.mark.parametrize("neighboring", BOTH)
def test_alternatives_too_many_to_integrate_are_charged_no_less(neighboring, monkeypatch):
    """Where integrals would take too long, a bound of the rest stands for them: never nothing."""
    monkeypatch.setattr(renyi, "_MOST_RUN_POINTS", 0)
    alternatives = tuple(releases(poisson_gaussian_event(0.01 + 0.001 * k, 1.0, 100)) for k in range(12))
    for alpha in (1.5, 4.0, 30.0):
        largest = max(rdp_at(rows, alpha, neighboring) for rows in alternatives)
        assert renyi._one_run(alternatives, alpha, neighboring) >= largest * (1 - 1e-9)  # rounding


def test_json_and_description_keep_everything():
    whole = compose_events([SEARCH, gaussian_event(9.0), SEARCH])
    text = json.dumps(event_to_json(whole), allow_nan=False)
    assert event_from_json(text) == whole
    assert event_from_json(json.loads(text)) == whole
    rows = describe_event(whole)
    assert [row["mechanism"] for row in rows] == ["repeat_and_select", "gaussian", "repeat_and_select"]
    assert rows[0]["runs"] == "poisson"
    assert rows[0]["mean"] == 5.0
    assert [part["mechanism"] for inner in rows[0]["one_of"] for part in inner] == ["gaussian", "poisson_gaussian"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": "geometric"}, "runs must be one of"),
        ({"runs": 0}, "runs must be a string"),
        ({"mean": 0.5}, "at least 1"),
        ({"mean": "5"}, "at least 1"),
        ({"one_of": []}, "at least one event"),
        ({"one_of": {}}, "must be a list"),
        ({"one_of": [{"type": "non_private"}]}, "must be private"),
        ({"more": 1}, "unknown fields"),
        ({"count": 0}, "count must be a whole number"),
        ({"count": 1.5}, "count must be a whole number"),
    ],
)
def test_a_damaged_repetition_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        event_from_json({**event_to_json(SEARCH), **change})


@pytest.mark.parametrize("path", [None, "books.jsonl"])
def test_a_repetition_made_twice_is_one_charge_in_any_books(path, tmp_path):
    """Its count survives a file, so that a planned search is known again when it is charged, and not paid twice."""
    twice = SelfComposedDpEvent(SEARCH, 2)
    assert event_to_json(twice)["count"] == 2
    assert event_from_json(json.dumps(event_to_json(twice))) == twice
    assert epsilon_pld(event_from_json(event_to_json(twice)), 1e-5, "replace_one") == epsilon_pld(
        compose_events([SEARCH, SEARCH]), 1e-5, "replace_one"
    )
    accountant = PrivacyAccountant(20.0, ledger=None if path is None else tmp_path / path)
    plan = FitPlan("searches", (), {}, releases(twice), 0.0, 5.0, 1e-5, "add_or_remove_one")
    accountant.plan([plan])
    accountant.charge(plan.event, plan.label)
    assert [entry.status for entry in accountant.entries] == ["charged"]


def test_what_cannot_be_priced_is_refused():
    for event, message in (
        (RepeatAndSelectDpEvent(GaussianDpEvent(1.0), 3, 1.0), "unknown distribution of the number of runs"),
        (RepeatAndSelectDpEvent(SEARCH, 3, 0.0), "not a repetition itself"),
    ):
        with pytest.raises(ValueError, match=message):
            describe_event(event)
    with pytest.raises(ValueError, match="must be private"):
        repeat_and_select_event([non_private_event()], "poisson", 2)


def test_repetitions_compose_in_the_books_and_pass_the_filter():
    accountant = PrivacyAccountant(5.0)
    accountant.charge(SEARCH, "search")
    first = accountant.epsilon_spent()
    assert first == epsilon_pld(SEARCH, 1e-5, "add_or_remove_one") == epsilon_rdp(SEARCH, 1e-5, "add_or_remove_one")
    accountant.charge(gaussian_event(8.0), "fit")
    assert first < accountant.epsilon_spent() <= 5.0
    frame = accountant.report()
    assert list(frame["mechanism"]) == ["repeat_and_select", "gaussian"]
    assert frame["share"].sum() == pytest.approx(1)
    assert epsilon_pld([SEARCH, non_private_event()], 1e-5, "replace_one") == math.inf
    assert delta_pld(SEARCH, first, "add_or_remove_one") == pytest.approx(1e-5, rel=1e-3)
