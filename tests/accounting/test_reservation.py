"""A fit within a search: planned, charged as a part of it, then made once and not otherwise."""

import contextlib
import copy
import pickle

import numpy as np
import pytest
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen import DPPCA, PrivacyAccountant
from skdpgen.accounting import gaussian_event, repeat_and_select_event
from skdpgen.accounting._reservation import PhaseRecorder, Reservation, calibrate_by_rdp, plan_at
from skdpgen.exceptions import BudgetExceededError, DetachedAccountantError

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
X = np.random.default_rng(0).normal(size=(300, 2))


class _Runs:
    """A noise generator whose one draw makes so many runs, or almost."""

    def __init__(self, u=0.9):
        self.u = u

    def random(self):
        return self.u


def _paid(mu=0.5, u=0.9):
    """An open block with a few runs drawn."""
    accountant = PrivacyAccountant(5.0)
    request = DPPCA(1)._requested(X, None, accountant)
    plan = plan_at(request, mu, accountant, alpha=10.0)
    reservation = Reservation(accountant).__enter__()
    reservation.charge(repeat_and_select_event([plan.event, gaussian_event(1 / mu)], "poisson", 4), "search")
    return accountant, reservation, plan, reservation.draw_runs("poisson", 4, _Runs(u))


def _fit(reservation, plan, pca=None):
    return (pca or DPPCA(1))._fit_reserved(X, None, plan, reservation)


def test_planning_charges_nothing():
    accountant = PrivacyAccountant(5.0)
    request = DPPCA(1)._requested(X, None, accountant)
    assert [phase.label for phase in request.phases] == ["bounds", "l2_bound", "moments"]
    recorder = PhaseRecorder(accountant)
    assert not hasattr(recorder, "charge")
    with pytest.raises(ValueError, match="accountant"):  # it is no accountant: no fit can be made with it
        DPPCA(1, accountant=recorder).fit(X)
    assert not accountant.charges


def test_a_reservation_pays_for_the_fit_that_was_paid_for_and_once():
    accountant, reservation, plan, n_runs = _paid()
    assert n_runs >= 4
    pca = _fit(reservation, plan)
    assert pca.accountant is None
    assert [charge.event for charge in pca.accountant_.charges] == [plan.event]
    assert len(accountant.charges) == 1
    for other in (DPPCA(1, bounds=(-4, 4)), DPPCA(1, budget_split={"bounds": 0.2}), DPPCA(1, centering="two_round")):
        with pytest.raises(BudgetExceededError, match="other phases"):
            _fit(reservation, plan, other)
        assert not hasattr(other, "accountant_")
    for _ in range(n_runs - 1):  # a fit that was refused used up none
        _fit(reservation, plan)
    with pytest.raises(BudgetExceededError, match="no run is left"):
        _fit(reservation, plan)


def as_many_fits_as_runs_were_drawn():
    """Not one more, and none once the block has ended, in which the charge was made."""
    for u in (0.01, 0.5, 0.99):
        accountant, reservation, plan, n_runs = _paid(u=u)
        for _ in range(n_runs):
            reservation.take(plan)
        with pytest.raises(BudgetExceededError, match="no run is left"):
            reservation.take(plan)
        with pytest.raises(BudgetExceededError, match="drawn once"):
            reservation.draw_runs("poisson", 4, _Runs(0.99))
        assert len(accountant.charges) == 1
    assert n_runs > 5
    _, reservation, plan, _ = _paid()
    reservation.__exit__(None, None, None)
    with pytest.raises(BudgetExceededError, match="is over"):
        reservation.take(plan)
    with pytest.raises(BudgetExceededError, match="is over"):
        _fit(reservation, plan)
    with pytest.raises(BudgetExceededError, match="not fitted again"):
        reservation.__enter__()


def an_entry_of_the_books_pays_for_no_fit():
    """A charge that something else made, before or now, opens nothing; the law of the runs is that of the charge."""
    accountant, first, plan, _ = _paid()
    first.__exit__(None, None, None)
    (charge,) = accountant.charges
    with Reservation(accountant) as again:
        for attempt in (lambda: again.take(plan), lambda: again.draw_runs("poisson", 4, _Runs())):
            with pytest.raises(BudgetExceededError):
                attempt()
    assert accountant.charges == (charge,)
    with Reservation(PrivacyAccountant(5.0)) as reservation:
        reservation.charge(charge.event, "search")
        for law in (("poisson", 40), ("logarithmic", 4)):
            with pytest.raises(BudgetExceededError, match="another number of runs"):
                reservation.draw_runs(*law, _Runs())
        with pytest.raises(BudgetExceededError, match="one charge"):
            reservation.charge(charge.event, "search")
    with pytest.raises(BudgetExceededError, match="inside the block"):
        Reservation(PrivacyAccountant(5.0)).charge(charge.event, "search")


def _end_by(reservation, error):
    """The rest of a block that was entered before."""
    with contextlib.ExitStack() as block:
        block.push(reservation)
        raise error


def an_error_ends_a_reservation():
    """Whatever ends the block: no run that is left is made afterwards, and none is taken."""
    for error in (KeyError, KeyboardInterrupt, GeneratorExit, BudgetExceededError):
        accountant, reservation, plan, _ = _paid()
        with pytest.raises(error):
            _end_by(reservation, error)
        assert not reservation.open
        with pytest.raises(BudgetExceededError, match="is over"):
            reservation.take(plan)
        with pytest.raises(BudgetExceededError, match="is over"):
            _fit(reservation, plan)
        assert len(accountant.charges) == 1


def test_a_reservation_covers_what_was_charged_and_nothing_louder():
    accountant, reservation, plan, _ = _paid()
    request = DPPCA(1)._requested(X, None, accountant)
    louder = plan_at(request, 0.6, accountant, alpha=10.0)
    with pytest.raises(BudgetExceededError, match="not among the runs"):
        reservation.take(louder)
    with pytest.raises(BudgetExceededError, match="not among the runs"):
        _fit(reservation, louder)
    receipt, alone = reservation.take(plan)  # of this fit alone: it shares nothing with the charge of the search
    assert receipt.event == plan.event
    assert alone.charges == (plan.charge,)
    assert (alone.neighboring, alone.delta) == (accountant.neighboring, accountant.delta)
    for attempt in (lambda: alone.charge(plan.event, plan.label), lambda: alone.plan([plan])):
        with pytest.raises(DetachedAccountantError):
            attempt()
    assert len(accountant.charges) == 1


def test_a_refused_charge_opens_nothing():
    _, _, plan, _ = _paid()
    with Reservation(PrivacyAccountant(0.01)) as reservation:
        with pytest.raises(BudgetExceededError):
            reservation.charge(repeat_and_select_event([plan.event], "poisson", 4), "search")
        assert not reservation.open
        with pytest.raises(BudgetExceededError):
            reservation.take(plan)


def test_a_reservation_is_neither_copied_nor_pickled():
    _, reservation, _, _ = _paid()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):  # a copy would count runs of its own
        with pytest.raises(TypeError, match="neither copied"):
            attempt(reservation)


def a_declared_search_is_paid_once():
    """Whatever share of the budget it takes: its own entry in the books does not make it dearer."""

    def event(mu):
        return repeat_and_select_event([gaussian_event(1 / mu)], "logarithmic", 5)

    terms = {"label": "search", "delta": None, "extra_delta": 1e-6}
    for share in (0.3, 0.45, 0.5, 0.9):
        accountant = PrivacyAccountant(1.0)
        _, plan = calibrate_by_rdp(accountant, event, epsilon=share, **terms)
        accountant.plan([plan])
        _, again = calibrate_by_rdp(accountant, event, epsilon=share, **terms)
        accountant.charge(again.event, again.label, again.extra_delta)
        assert [entry.status for entry in accountant.entries] == ["charged"]
        assert accountant.epsilon_spent() <= share


CLAIMED = [Claim(f) for f in (as_many_fits_as_runs_were_drawn, an_entry_of_the_books_pays_for_no_fit)]
ONCE = Claim(a_declared_search_is_paid_once)
ENDED = Claim(an_error_ends_a_reservation)
MUTANTS = [
    ("fits are not counted", CLAIMED[:1], (Reservation.take, ("self._left -= 1", "pass"))),
    (
        "fits after the end",
        CLAIMED[:1],
        (Reservation.open, ("self._open and $charged and $same", "$charged and $same")),
    ),
    (
        "a reservation that an error leaves open",
        [ENDED],
        (Reservation.__exit__, ("self._open = False", "self._open = __import__('sys').exc_info()[0] is not None")),
    ),
    (
        "runs of another law",
        CLAIMED[1:],
        (Reservation.draw_runs, ("self._distribution() != ($runs, float($mean))", "False")),
    ),
    (
        "two draws of the number of runs",
        CLAIMED[:1],
        (Reservation.draw_runs, ("not self.open or self._left is not None", "not self.open")),
    ),
    (
        "the entry that was declared is forgotten",
        [ONCE],
        (
            calibrate_by_rdp,
            (
                "not $declared and ($asked is None or not $rule.accepts($entries, [$asked]))",
                "$asked is None or not $rule.accepts($entries, [$asked])",
            ),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_reservations_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])


@pytest.mark.parametrize("claim", [*CLAIMED, ONCE, ENDED], ids=str)
def test_reservations_are_what_they_claim(claim):
    claim.holds_unpatched()


def test_the_scale_found_costs_what_was_asked_for_and_no_more():
    def event(mu):
        return repeat_and_select_event([gaussian_event(1 / mu)], "poisson", 3)

    terms = {"label": "search", "delta": None, "extra_delta": 1e-6}
    accountant = PrivacyAccountant(2.0)
    _, plan = calibrate_by_rdp(accountant, event, epsilon=1.0, **terms)
    assert 0.998 <= plan.epsilon <= 1.0
    accountant.charge(plan.event, plan.label, plan.extra_delta)
    _, rest = calibrate_by_rdp(accountant, event, epsilon=None, **terms)
    accountant.charge(rest.event, rest.label, rest.extra_delta)  # the filter lets it pass, and little is left
    assert accountant.remaining() < 0.2
    with pytest.raises(BudgetExceededError, match="no amount of noise"):
        calibrate_by_rdp(accountant, event, epsilon=None, **terms)
    with pytest.raises(BudgetExceededError, match="no amount of noise brings search to epsilon = 1e-06"):
        calibrate_by_rdp(PrivacyAccountant(1.0), event, epsilon=1e-6, **terms)
