"""The rule for charges chosen after a release."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from skdpgen.accounting import (
    Charge,
    PrivacyFilter,
    epsilon_pld,
    gaussian_epsilon,
    gaussian_event,
    gaussian_mu,
    subset_gaussian_event,
)
from skdpgen.accounting import poisson_gaussian_event as steps
from skdpgen.accounting._events import SUBSET_MECHANISMS
from skdpgen.accounting._filter import STATUSES, Entry
from skdpgen.accounting._renyi import conversion_cost, rdp_at
from skdpgen.exceptions import BudgetExceededError

BOTH = ["add_or_remove_one", "replace_one"]


def gaussian(mu, label="fit", extra=0.0):
    return Charge(label, gaussian_event(1 / mu), extra)


def book(rule, entries, *charges):
    """Entries after the charges, as one batch, were accepted."""
    rule.check(entries, charges)
    batch = 1 + max((entry.batch for entry in entries), default=0)
    return [*entries, *(Entry(charge, batch, "charged") for charge in charges)]


def test_order_is_that_of_the_specification():
    assert PrivacyFilter(1.0, 1e-5, BOTH[0], 0.0).alpha == pytest.approx(17.8, abs=0.1)
    assert PrivacyFilter(1.0, 1e-5, BOTH[0]).alpha == pytest.approx(18.1, abs=0.2)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_order_leaves_the_most_noise_budget(epsilon, delta):
    rule = PrivacyFilter(epsilon, delta, BOTH[0], 0.0)
    best = (epsilon - conversion_cost(rule.alpha, delta)) / rule.alpha
    assert best > 0
    for alpha in 1 + np.geomspace(1e-3, 10 / delta, 300):
        assert best >= (epsilon - conversion_cost(alpha, delta)) / alpha * (1 - 1e-6)


def test_first_charge_may_cost_the_whole_budget_and_then_nothing_follows():
    rule = PrivacyFilter(1.0, 1e-5, BOTH[0])
    entries = book(rule, [], gaussian(gaussian_mu(1.0, 1e-5)))
    assert rule.spent(entries) == pytest.approx(1.0)
    assert rule.remaining(entries) == 0.0
    with pytest.raises(BudgetExceededError, match="first charge alone"):
        book(rule, entries, gaussian(1e-6))


def test_first_charge_above_the_budget_is_refused():
    rule = PrivacyFilter(1.0, 1e-5, BOTH[0])
    with pytest.raises(BudgetExceededError, match=r"'fit' costs epsilon 1\.0"):
        rule.check([], [gaussian(gaussian_mu(1.0, 1e-5) * 1.001)])


@pytest.mark.parametrize("neighboring", BOTH)
@pytest.mark.parametrize(
    "make", [lambda z: gaussian_event(4 * z), lambda z: steps(0.05, z, 10)], ids=["plain", "sampled"]
)
def test_later_charges_obey_rdp_at_the_order_fixed_at_creation(make, neighboring):
    rule = PrivacyFilter(1.0, 1e-5, neighboring, 0.0)
    alpha, entries = rule.alpha, []
    for _ in range(100):
        try:
            entries = book(rule, entries, Charge("fit", make(4.0)))
        except BudgetExceededError:
            break
    else:
        pytest.fail("the budget never ended")
    total = rule.rdp([entry.charge for entry in entries])
    one = rule.rdp([entries[0].charge])
    assert total <= 1.0 - conversion_cost(alpha, 1e-5) < total + one
    assert rule.alpha == alpha
    # the filter is stricter than composition in advance, which would be unsound here
    assert epsilon_pld([entry.charge for entry in entries], 1e-5, neighboring) < rule.spent(entries) <= 1.0


SAMPLED = {"poisson_gaussian": steps, **{name: partial(subset_gaussian_event, name) for name in SUBSET_MECHANISMS}}


@pytest.mark.parametrize("neighboring", BOTH)
@pytest.mark.parametrize("rate", [0.01, 0.25, 1.0])
@pytest.mark.parametrize("mechanism", SAMPLED)
def test_no_order_takes_less_from_the_filter_than_a_charge_costs_in_advance(mechanism, rate, neighboring):
    """The RDP of a charge proves an epsilon at every order, and never one below that of its loss distribution.

    A rate of 1, at which every unit takes part, is no exception, under neither relation.
    """
    charge = Charge("fit", SAMPLED[mechanism](rate, 2.0, 40))
    proved = [
        rdp_at(charge.releases, alpha, neighboring) + conversion_cost(alpha, 1e-5)
        for alpha in 1 + np.geomspace(0.05, 200, 24)
    ]
    cost = epsilon_pld(charge, 1e-5, neighboring)
    assert cost * (1 - 1e-3) <= min(proved) <= 2 * cost


@pytest.mark.parametrize("neighboring", BOTH)
@pytest.mark.parametrize("mechanism", SAMPLED)
def test_what_a_charge_takes_from_the_filter_grows_with_its_rate_and_its_steps(mechanism, neighboring):
    def taken(rate, count):
        return PrivacyFilter(1.0, 1e-5, neighboring).rdp([Charge("fit", SAMPLED[mechanism](rate, 4.0, count))])

    rates = [taken(1 / k, 3) for k in (1000, 10, 3, 2, 1)]
    assert rates == sorted(rates)
    assert taken(1.0, 3) == pytest.approx(3 * taken(1.0, 1))


def test_the_fully_adaptive_counterexample_is_refused():
    # after a first release of mu = .2 one outcome would take what completes it to (1, 1e-5) by plain steps,
    # the other by sampled ones: each completion alone is within the budget by PLD
    rule = PrivacyFilter(1.0, 1e-5, BOTH[0])
    first = gaussian(0.2)
    entries = book(rule, [], first)
    rest = gaussian(math.sqrt(gaussian_mu(1.0, 1e-5) ** 2 - 0.2**2))
    assert epsilon_pld([first, rest], 1e-5, BOTH[0]) <= 1.0
    with pytest.raises(BudgetExceededError):
        rule.check(entries, [rest])


def test_price_of_adaptivity_is_seven_to_eight_percent_of_mu():
    rule = PrivacyFilter(1.0, 1e-5, BOTH[0], 0.0)
    total = math.sqrt(2 * rule.limit([]) / rule.alpha)
    assert 0.92 <= total / gaussian_mu(1.0, 1e-5) <= 0.93


@pytest.mark.parametrize("first", [0.0, 1e-6, 5e-6])
def test_extra_deltas_and_rdp_never_use_more_than_delta(first):
    rule = PrivacyFilter(1.0, 1e-5, BOTH[0], 0.2)
    entries = book(rule, [], gaussian(0.05, extra=first))
    held = max(2e-6, first)
    left = held - first
    assert rule.limit(entries) == pytest.approx(1.0 - conversion_cost(rule.alpha, 1e-5 - held))
    with pytest.raises(BudgetExceededError, match="of delta on thresholds"):
        rule.check(entries, [gaussian(0.01, extra=left + 1e-8)])
    if left:
        entries = book(rule, entries, gaussian(0.01, extra=left))
    book(rule, entries, gaussian(0.01))
    with pytest.raises(BudgetExceededError, match="of delta on thresholds"):
        rule.check(entries, [gaussian(0.01, extra=1e-8)])


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("status", STATUSES)
def test_every_sum_counts_an_entry_whatever_its_status(status, batch):
    """A declared fit is charged when it is declared: its noise and its thresholds, in the first batch and later."""
    rule = PrivacyFilter(1.0, 1e-5, BOTH[0])
    fit, first = gaussian(0.05, extra=1e-6), Entry(gaussian(0.05), 1, "charged")
    past = [Entry(fit, 1, status)] if batch == 1 else [first, Entry(fit, 2, status)]
    charged, found = (rule.totals([replace(entry, status=s) for entry in past]) for s in ("charged", status))
    assert replace(found, planned=0) == charged
    assert found.planned == (status == "planned") * len(past)
    assert rule.thresholds_left(past) == pytest.approx(1e-6)
    with pytest.raises(BudgetExceededError, match="of delta on thresholds"):
        rule.check(past, [gaussian(0.01, extra=1.01e-6)])


def test_first_charge_with_thresholds_beyond_delta_is_refused():
    rule = PrivacyFilter(1.0, 1e-5, BOTH[0])
    with pytest.raises(BudgetExceededError, match="on thresholds"):
        rule.check([], [gaussian(0.01, extra=1e-5)])


def test_a_batch_is_priced_jointly():
    rule, half = PrivacyFilter(1.0, 1e-5, BOTH[0]), gaussian_mu(1.0, 1e-5) / math.sqrt(2)
    entries = book(rule, [], gaussian(half), gaussian(half, "other"))
    assert rule.spent(entries) == pytest.approx(1.0)
    with pytest.raises(BudgetExceededError):
        rule.check([], [gaussian(half), gaussian(half), gaussian(0.01)])


def test_remaining_is_exactly_what_one_more_gaussian_may_cost():
    rule = PrivacyFilter(2.0, 1e-5, BOTH[1])
    entries = book(rule, [], gaussian(0.3))
    left = rule.remaining(entries)
    assert 0 < left < 2
    rule.check(entries, [gaussian(gaussian_mu(left, 1e-5))])
    with pytest.raises(BudgetExceededError):
        rule.check(entries, [gaussian(gaussian_mu(left * 1.001, 1e-5))])


def test_the_books_read_at_another_delta():
    rule = PrivacyFilter(2.0, 1e-5, BOTH[0])
    one = book(rule, [], gaussian(0.2))
    assert rule.spent(one, 1e-7) == pytest.approx(gaussian_epsilon(0.2, 1e-7))
    two = book(rule, one, gaussian(0.1, extra=1e-6))
    values = [rule.spent(two, delta) for delta in (1e-4, 1e-5, 1.5e-6)]
    assert values == sorted(values)
    assert values[1] == rule.spent(two)
    assert rule.spent(two, 1e-6) == math.inf
    for delta, value in zip((1e-4, 1e-5, 1.5e-6), values, strict=True):
        assert value >= gaussian_epsilon(math.hypot(0.2, 0.1), delta - 1e-6)


def test_more_charges_never_cost_less():
    rule, entries, spent = PrivacyFilter(3.0, 1e-5, BOTH[0]), [], [0.0]
    for mu in (0.2, 0.01, 0.3, 0.1):
        entries = book(rule, entries, gaussian(mu))
        spent.append(rule.spent(entries))
    assert spent == sorted(spent)
    assert spent[-1] <= 3.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a number > 0"),
        ({"epsilon": float("nan")}, "epsilon must be a number > 0"),
        ({"delta": 0}, "delta must lie in"),
        ({"delta": 1.0}, "delta must lie in"),
        ({"neighboring": "add"}, "neighboring must be one of"),
        ({"delta_reserve": 1.0}, "delta_reserve must lie in"),
        ({"delta_reserve": -0.1}, "delta_reserve must lie in"),
    ],
)
def test_bad_parameters_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        PrivacyFilter(**{"epsilon": 1.0, "delta": 1e-5, "neighboring": "replace_one", **change})


def test_what_rounding_forgives_of_the_extra_deltas_is_forgiven_once():
    rule = PrivacyFilter(1.0, 1e-5, "add_or_remove_one")
    tiny = Charge("thresholds", gaussian_event(1e9), 0.9e-12 * rule.held([]))
    entries = [Entry(Charge("first", gaussian_event(50.0)), 1, "charged")]
    entries.append(Entry(Charge("all of it", gaussian_event(1e9), rule.held(entries)), 2, "charged"))
    for batch in range(3, 6):
        if rule.accepts(entries, [tiny]):
            entries.append(Entry(tiny, batch, "charged"))
    assert sum(entry.charge.extra_delta for entry in entries) <= rule.held(entries) * (1 + 1e-12)
