"""The accountant: what it accepts, what it says, and how it survives scikit-learn."""

import copy
import math
import os
import pickle
import threading

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdpgen.accounting import (
    Charge,
    Phase,
    PrivacyAccountant,
    epsilon_pld,
    gaussian_event,
    gaussian_mu,
    non_private_event,
    poisson_gaussian_event,
)
from skdpgen.accounting import (
    _pricing as pricing,
)
from skdpgen.accounting._ledger import FileLedger
from skdpgen.exceptions import BudgetExceededError, DetachedAccountantError

BOTH = ["add_or_remove_one", "replace_one"]
SMALL = gaussian_event(50.0)
MNIST = [Phase("pca", 0.1), Phase("mixture", 0.15, 20), Phase("decoder", 0.75, 840, 300 / 63000)]


class Charging(BaseEstimator):
    """The least estimator that pays for its fits."""

    def __init__(self, accountant=None, z=200.0):
        self.accountant = accountant
        self.z = z

    def fit(self, X, y=None):
        self.accountant.charge(gaussian_event(self.z), "fit")
        self.fitted_ = True
        return self

    def transform(self, X):
        return X

    def score(self, X, y=None):
        return 0.0


def test_budget_is_kept_and_a_refused_charge_changes_nothing():
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(BudgetExceededError, match="the budget is 1; nothing was charged"):
        accountant.charge(gaussian_event(1.0), "greedy")
    assert accountant.charges == ()
    assert accountant.epsilon_spent() == 0.0
    assert accountant.remaining() == 1.0
    accountant.charge(gaussian_event(5.0), "modest")
    before = accountant.charges, accountant.epsilon_spent()
    with pytest.raises(BudgetExceededError):
        accountant.charge(gaussian_event(5.0), "again")
    assert (accountant.charges, accountant.epsilon_spent()) == before


@pytest.mark.parametrize("neighboring", BOTH)
def test_a_fit_may_spend_the_whole_of_a_fresh_accountant(neighboring):
    accountant = PrivacyAccountant(1.0, 1e-5, neighboring)
    plan = accountant.calibrate(MNIST, label="P3GM", extra_delta_share=0.1)
    accountant.charge(plan.event, plan.label, plan.extra_delta)
    assert plan.extra_delta == pytest.approx(1e-6)
    assert 0.999 <= accountant.epsilon_spent() <= 1.0
    assert accountant.remaining() == 0.0


@pytest.mark.parametrize("neighboring", BOTH)
@pytest.mark.parametrize("phases", [[Phase("a", 1.0)], MNIST], ids=["gaussian", "sampled"])
def test_epsilon_none_spends_exactly_what_is_left(phases, neighboring):
    accountant = PrivacyAccountant(2.0, 1e-5, neighboring)
    accountant.charge(gaussian_event(8.0), "first")
    plan = accountant.calibrate(phases, label="rest")
    assert plan.epsilon == epsilon_pld(plan, 1e-5, neighboring)
    accountant.charge(plan.event, plan.label)
    assert accountant.epsilon_spent() == pytest.approx(2.0, rel=1e-6)
    assert accountant.epsilon_spent() <= 2.0
    assert accountant.remaining() == 0.0
    with pytest.raises(BudgetExceededError, match="nothing is left"):
        accountant.calibrate(phases, label="more")
    with pytest.raises(BudgetExceededError, match="chosen after earlier ones"):
        accountant.charge(SMALL, "more")


def test_remaining_can_be_spent_by_a_later_fit():
    accountant = PrivacyAccountant(2.0)
    accountant.charge(gaussian_event(6.0), "first")
    plan = accountant.calibrate([Phase("a", 1.0)], label="second", epsilon=accountant.remaining())
    accountant.charge(plan.event, plan.label)
    assert accountant.remaining() < 1e-2


@pytest.mark.parametrize("neighboring", BOTH)
def test_remaining_can_be_spent_by_sampled_steps_too(neighboring):
    # calibrated by PLD alone their RDP at the filter's order would be many times the limit
    accountant = PrivacyAccountant(2.0, 1e-5, neighboring)
    accountant.charge(gaussian_event(8.0), "first")
    asked = 0.7 * accountant.remaining()
    plan = accountant.calibrate(MNIST, label="second", epsilon=asked)
    accountant.charge(plan.event, plan.label)
    assert 0.5 * asked < plan.epsilon <= asked
    assert plan.epsilon == pytest.approx(epsilon_pld(plan, 1e-5, neighboring), rel=1e-3)


def test_a_fit_that_closes_the_books_says_why_nothing_follows():
    accountant = PrivacyAccountant(2.0)
    plan = accountant.calibrate(MNIST, label="P3GM", epsilon=1.0)
    assert plan.epsilon == 1.0
    accountant.charge(plan.event, plan.label)
    assert accountant.remaining() == 0.0
    with pytest.raises(BudgetExceededError, match=r"first charge alone .* accountant\.plan"):
        accountant.charge(SMALL, "more")


def test_another_delta_is_read_at_the_accountants():
    accountant = PrivacyAccountant(1.0, 1e-5)
    plan = accountant.calibrate([Phase("a", 1.0)], label="x", epsilon=0.9, delta=1e-6)
    assert (plan.delta, plan.epsilon) == (1e-6, 0.9)
    accountant.charge(plan.event, plan.label)
    assert accountant.epsilon_spent(1e-6) == pytest.approx(0.9)
    assert accountant.epsilon_spent() < 0.9
    whole = PrivacyAccountant(1.0, 1e-5).calibrate([Phase("a", 1.0)], label="x", delta=1e-6)
    assert whole.epsilon > 1.0
    assert epsilon_pld(whole, 1e-5, BOTH[0]) == pytest.approx(1.0)


def test_planned_charges_are_priced_jointly_and_used_up_once():
    half = gaussian_event(math.sqrt(2) / gaussian_mu(1.0, 1e-5))
    accountant = PrivacyAccountant(1.0)
    accountant.plan([Charge("a", half), Charge("b", half)])
    assert accountant.epsilon_spent() == pytest.approx(1.0)
    accountant.charge(half, "b")
    accountant.charge(half, "a")
    assert list(accountant.report()["status"]) == ["charged", "charged"]
    assert accountant.epsilon_spent() == pytest.approx(1.0)
    with pytest.raises(BudgetExceededError):
        accountant.charge(half, "a")


@pytest.mark.parametrize("ledger", [None, "budget.db"])
def test_a_plan_is_matched_by_event_label_and_extra_delta(ledger, tmp_path):
    accountant = PrivacyAccountant(3.0, ledger=None if ledger is None else tmp_path / ledger)
    accountant.plan([Charge("a", gaussian_event(20.0), 1e-7)])
    accountant.charge(gaussian_event(20.0), "a")
    accountant.charge(gaussian_event(20.0), "b", 1e-7)
    accountant.charge(gaussian_event(21.0), "a", 1e-7)
    assert [entry.status for entry in accountant.entries] == ["planned", "charged", "charged", "charged"]
    accountant.charge(gaussian_event(20.0), "a", 1e-7)
    assert len(accountant.charges) == 4


def test_a_declared_fit_is_calibrated_as_it_was_declared():
    # as a charge of its own the filter would refuse it; what is paid for keeps its noise
    accountant = PrivacyAccountant(2.0)
    first, second = (accountant.calibrate(MNIST, label=name, epsilon=1.0) for name in ("first", "second"))
    accountant.plan([first, second])
    for name in ("second", "first"):
        plan = accountant.calibrate(MNIST, label=name, epsilon=1.0)
        accountant.charge(plan.event, plan.label)
    assert set(accountant.report()["status"]) == {"charged"}


def test_plan_is_all_or_nothing_and_takes_fit_plans():
    accountant = PrivacyAccountant(1.0)
    plan = accountant.calibrate([Phase("a", 1.0)], label="fit", epsilon=0.8)
    with pytest.raises(BudgetExceededError):
        accountant.plan([plan, plan])
    assert accountant.charges == ()
    accountant.plan([plan])
    accountant.charge(plan.event, plan.label)
    for bad in ([], [gaussian_event(3.0)], ["fit"]):
        with pytest.raises(ValueError, match="plan takes"):
            accountant.plan(bad)


def test_a_release_without_noise_needs_an_infinite_budget():
    finite = PrivacyAccountant(1.0)
    with pytest.raises(BudgetExceededError, match="not private"):
        finite.charge(non_private_event(), "reference")
    accountant = PrivacyAccountant(np.inf)
    plan = accountant.calibrate(MNIST, label="reference")
    accountant.charge(plan.event, plan.label)
    assert plan.noise_multipliers["decoder"] == 0.0
    assert accountant.epsilon_spent() == math.inf
    assert not accountant.report().attrs["private"]
    assert "not private" in accountant._repr_html_()


def test_an_infinite_budget_still_prices_private_fits():
    accountant = PrivacyAccountant(np.inf)
    for _ in range(2):
        plan = accountant.calibrate([Phase("a", 1.0)], label="x", epsilon=1.0)
        accountant.charge(plan.event, plan.label)
    assert accountant.remaining() == math.inf
    assert accountant.epsilon_spent() == pytest.approx(epsilon_pld(accountant.charges, 1e-5, BOTH[0]))
    assert accountant.report().attrs["private"]


def test_clone_copy_and_deepcopy_are_the_same_books():
    accountant = PrivacyAccountant(1.0)
    for same in (clone(Charging(accountant)).accountant, copy.copy(accountant), copy.deepcopy([accountant])[0]):
        assert same is accountant
    assert not hasattr(accountant, "get_params")


def test_pipelines_and_grid_searches_charge_the_same_books():
    X = np.zeros((12, 2))
    accountant = PrivacyAccountant(3.0)
    make_pipeline(Charging(accountant), Charging(accountant)).fit(X)
    assert len(accountant.charges) == 2
    GridSearchCV(Charging(accountant), {"z": [100.0, 200.0]}, cv=3, error_score="raise").fit(X)
    assert len(accountant.charges) == 2 + 7


def test_threads_never_overspend():
    accountant, event = PrivacyAccountant(1.0), gaussian_event(20.0)
    refused = []

    def work():
        for _ in range(10):
            try:
                accountant.charge(event, "thread")
            except BudgetExceededError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert refused
    assert len(accountant.charges) + len(refused) == 80
    assert accountant.epsilon_spent() <= 1.0
    with pytest.raises(BudgetExceededError):
        accountant.charge(event, "one more")


class _Gate:
    """A lock that two threads must both be about to take before one of them gets it."""

    def __init__(self, lock, both):
        self.lock, self.both = lock, both

    def __enter__(self):
        self.both.wait()
        return self.lock.__enter__()

    def __exit__(self, *error):
        return self.lock.__exit__(*error)


def only_one_of_two_charges_of_the_whole_budget_is_accepted(ledger):
    """Whatever two threads read before either has its turn: what decides is read within the turn."""
    accountant = PrivacyAccountant(1.0, ledger=ledger)
    event, found = accountant.calibrate([Phase("all", 1.0)], label="all").event, []
    accountant.remaining()  # a file is as both threads have seen it
    gate, run = threading.Barrier(2, timeout=20), FileLedger._run

    def gated(self, work, *, write=False):
        if write:
            gate.wait()
        return run(self, work, write=write)

    def work(label):
        try:
            accountant.charge(event, label)
            found.append("charged")
        except BudgetExceededError:
            found.append("refused")

    with pytest.MonkeyPatch.context() as patch:
        if ledger is None:
            patch.setattr(accountant._ledger, "_lock", _Gate(accountant._ledger._lock, gate))
        patch.setattr(FileLedger, "_run", gated)
        threads = [threading.Thread(target=work, args=(label,)) for label in "ab"]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert sorted(found) == ["charged", "refused"]
    assert len(accountant.charges) == 1


@pytest.mark.parametrize("ledger", [None, "budget.db"])
def test_the_past_is_read_within_the_turn_that_adds_to_it(ledger, tmp_path):
    only_one_of_two_charges_of_the_whole_budget_is_accepted(ledger and tmp_path / ledger)


@pytest.mark.parametrize("transport", ["pickle", "joblib"])
def test_a_pickle_without_a_file_is_detached_and_readable(transport, tmp_path):
    accountant = PrivacyAccountant(1.0, 1e-6, "replace_one", delta_reserve=0.1)
    accountant.charge(gaussian_event(9.0), "before", 1e-8)
    if transport == "pickle":
        copied = pickle.loads(pickle.dumps(accountant))
    else:
        joblib.dump(accountant, tmp_path / "a.joblib")
        copied = joblib.load(tmp_path / "a.joblib")
    assert copied.detached
    assert not accountant.detached
    assert copied.charges == accountant.charges
    assert copied.epsilon_spent() == accountant.epsilon_spent()
    assert (copied.epsilon, copied.delta, copied.neighboring, copied.delta_reserve) == (1.0, 1e-6, "replace_one", 0.1)
    for call in (lambda: copied.charge(SMALL, "x"), lambda: copied.plan([Charge("x", SMALL)])):
        with pytest.raises(DetachedAccountantError, match="ledger file"):
            call()
    assert pickle.loads(pickle.dumps(copied)).detached
    assert "detached copy" in copied._repr_html_()


def test_an_interrupt_between_an_entry_and_the_sums_loses_no_charge():
    class Interrupted(list):
        def extend(self, entries):
            super().extend(entries)
            raise KeyboardInterrupt

    accountant = PrivacyAccountant(1.0)
    accountant.charge(SMALL, "before")
    accountant._ledger._entries = Interrupted(accountant._ledger._entries)
    with pytest.raises(KeyboardInterrupt):
        accountant.charge(SMALL, "interrupted")
    accountant._ledger._entries = list(accountant._ledger._entries)
    again = PrivacyAccountant(1.0)
    for label in ("before", "interrupted"):
        again.charge(SMALL, label)
    assert accountant.charges == again.charges
    assert accountant.remaining() == again.remaining()


def test_books_in_memory_are_detached_beyond_a_fork(monkeypatch):
    accountant = PrivacyAccountant(1.0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(DetachedAccountantError):
        accountant.charge(SMALL, "child")


def test_report_names_the_releases_that_a_label_lists():
    accountant = PrivacyAccountant(2.0)
    plan = accountant.calibrate(MNIST, label="P3GM: pca, mixture, decoder", epsilon=0.5)
    accountant.charge(plan.event, plan.label)
    accountant.charge(gaussian_event(30.0), "look: one, two")
    frame = accountant.report()
    assert list(frame["label"]) == ["P3GM"] * 3 + ["look: one, two"]
    assert list(frame["release"]) == ["pca", "mixture", "decoder", ""]


def test_report_has_a_row_for_each_primitive_release():
    accountant = PrivacyAccountant(2.0)
    plan = accountant.calibrate(MNIST, label="P3GM", epsilon=0.5, extra_delta_share=0.1)
    accountant.charge(plan.event, plan.label, plan.extra_delta)
    accountant.charge(gaussian_event(30.0), "later")
    frame = accountant.report()
    assert list(frame["label"]) == ["P3GM"] * 3 + ["later"]
    assert list(frame["release"]) == [""] * 4
    assert list(frame["mechanism"]) == ["gaussian", "gaussian", "poisson_gaussian", "gaussian"]
    assert list(frame["count"]) == [1, 20, 840, 1]
    assert frame["extra_delta"].sum() == pytest.approx(1e-6)
    assert frame["share"].sum() == pytest.approx(1.0)
    assert set(frame["status"]) == {"charged"}
    totals = frame.attrs
    assert totals["epsilon_spent"] == accountant.epsilon_spent()
    assert totals["remaining"] == accountant.remaining()
    assert 0.5 < totals["epsilon_if_fixed_in_advance"] < totals["epsilon_spent"] <= 2.0
    assert totals["private"]
    assert "% of the filter is used" in accountant._repr_html_()


def test_an_empty_accountant_reports_and_prints():
    accountant = PrivacyAccountant(1.0)
    frame = accountant.report()
    assert frame.empty
    assert frame.attrs["remaining"] == 1.0
    assert "spent" in accountant._repr_html_()


def test_notebook_table_escapes_labels_and_repr_is_short():
    accountant = PrivacyAccountant(1.0)
    accountant.charge(SMALL, "<script>")
    assert "<script>" not in accountant._repr_html_()
    for epsilon in (1, 0.123456, 12345.678, np.inf):
        for delta in (1e-5, 1.2345e-7, 0.25):
            assert len(repr(PrivacyAccountant(epsilon, delta))) <= 30
    assert repr(accountant) == "PrivacyAccountant(1, 1e-05)"


def test_small_charges_build_few_distributions(monkeypatch):
    built, build = [], pricing._distribution
    monkeypatch.setattr(pricing, "_distribution", lambda *args: built.append(args) or build(*args))
    accountant = PrivacyAccountant(5.0)
    for k in range(50):
        accountant.charge(poisson_gaussian_event(0.001 * (1 + k % 3), 4.0, 10), f"fit {k}")
    assert len(built) <= 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "epsilon must be given"),
        ({"epsilon": 0}, "epsilon must be a number > 0"),
        ({"epsilon": -2}, "epsilon must be a number > 0"),
        ({"epsilon": float("nan")}, "epsilon must be a number > 0"),
        ({"epsilon": 1, "delta": 0}, "delta must lie in"),
        ({"epsilon": 1, "delta": 1.0}, "delta must lie in"),
        ({"epsilon": 1, "neighboring": "bounded"}, "neighboring must be one of add_or_remove_one, replace_one"),
        ({"epsilon": 1, "delta_reserve": 1}, "delta_reserve must lie in"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PrivacyAccountant(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phases": []}, "at least one Phase"),
        ({"label": ""}, "label"),
        ({"epsilon": 0.0}, "epsilon must be a number > 0"),
        ({"delta": 2.0}, "delta must lie in"),
        ({"extra_delta_share": 1.0}, "extra_delta_share must lie in"),
    ],
)
def test_bad_calibrations_are_refused(change, message):
    call = {"phases": [Phase("a", 1.0)], "label": "x", **change}
    with pytest.raises(ValueError, match=message):
        PrivacyAccountant(1.0).calibrate(call.pop("phases"), **call)


def _thresholds(accountant, epsilon=0.05):
    return accountant.calibrate([Phase("x", 1.0)], label="fit", epsilon=epsilon, extra_delta_share=0.1)


def test_fits_chosen_one_after_another_take_half_of_what_is_kept_for_thresholds():
    accountant = PrivacyAccountant(1.0, 1e-5)
    for k in range(6):
        plan = _thresholds(accountant)
        assert plan.extra_delta == pytest.approx(1e-6 / 2**k)
        accountant.charge(plan.event, plan.label, plan.extra_delta)
    rest = _thresholds(accountant, None)
    assert rest.extra_delta == pytest.approx(1e-6 / 2**6)
    accountant.charge(rest.event, rest.label, rest.extra_delta)


def test_a_planned_fit_keeps_the_threshold_that_it_was_planned_with():
    accountant = PrivacyAccountant(1.0, 1e-5)
    first = _thresholds(accountant)
    accountant.charge(first.event, first.label, first.extra_delta)
    one, other = _thresholds(accountant, 0.1), _thresholds(accountant, 0.2)
    accountant.plan([one, other])
    for plan, epsilon in ((one, 0.1), (other, 0.2)):
        again = _thresholds(accountant, epsilon)
        assert again == plan
        accountant.charge(again.event, again.label, again.extra_delta)
    assert [entry.status for entry in accountant.entries] == ["charged"] * 3


def test_books_without_a_reserve_say_what_helps():
    accountant = PrivacyAccountant(1.0, 1e-5, delta_reserve=0.0)
    accountant.charge(gaussian_event(20.0), "first")
    plan = _thresholds(accountant)
    with pytest.raises(BudgetExceededError, match="declare the categories, or create the ledger with a larger delta"):
        accountant.charge(plan.event, plan.label, plan.extra_delta)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_fits_that_learn_and_fits_that_do_not_use_up_each_its_own_plan(order):
    accountant = PrivacyAccountant(1.0, 1e-5)
    shares = (0.0, 0.1)
    plans = [
        accountant.calibrate([Phase("x", 1.0)], label="fit", epsilon=0.3, extra_delta_share=share) for share in shares
    ]
    accountant.plan(plans)
    for k in order:
        again = accountant.calibrate([Phase("x", 1.0)], label="fit", epsilon=0.3, extra_delta_share=shares[k])
        assert again == plans[k]
        accountant.charge(again.event, again.label, again.extra_delta)
    assert {entry.status for entry in accountant.entries} == {"charged"}


def test_a_fit_at_a_smaller_delta_is_not_one_that_was_planned():
    accountant = PrivacyAccountant(1.0, 1e-5)
    accountant.plan([_thresholds(accountant, 0.5)])
    plan = accountant.calibrate([Phase("x", 1.0)], label="fit", epsilon=0.3, delta=1e-7, extra_delta_share=0.1)
    assert plan.extra_delta == pytest.approx(1e-8)
