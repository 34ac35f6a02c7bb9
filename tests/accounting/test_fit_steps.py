"""Steps of a fit with a checkpoint in a ledger file: one process at a time, known files alone, one end."""

from __future__ import annotations

import contextlib
import hashlib

import pytest
from test_ledger_chain import books, new_ledger, rewrite

from skdpgen.accounting import (
    Charge,
    PrivacyAccountant,
    compose_events,
    gaussian_event,
    poisson_gaussian_event,
    subset_gaussian_event,
)
from skdpgen.exceptions import LedgerError

STEPS = 5
TRAINING = poisson_gaussian_event(0.01, 4.0, STEPS)
FIT = compose_events([gaussian_event(20.0, 3), TRAINING])
FILES = [hashlib.sha256(bytes([k])).hexdigest() for k in range(9)]


def take(accountant, known, count=2, file=0, number=2):
    ledger, rule = accountant._ledger, accountant._filter
    return ledger.take_fit_steps(number, count, rule, known=known, file=FILES[file])


def end(accountant, known, file=0, number=2):
    accountant._ledger.end_fit(number, accountant._filter, known=known, file=FILES[file])


def found(accountant, number=2):
    return accountant._ledger.fit_steps_of(number, accountant._filter)


@contextlib.contextmanager
def charged():
    """A ledger of three charges, the second of which is a fit with a training of five steps."""
    with new_ledger("a") as (path, accountant):
        accountant.charge(FIT, "fit")
        accountant.charge(gaussian_event(20.0), "c")
        yield path, accountant


def steps_of_a_fit_are_those_that_were_charged_and_it_ends_once():
    with charged() as (path, accountant):
        other = PrivacyAccountant(ledger=path)
        before = accountant.report(), accountant.epsilon_spent(), accountant.remaining(), books(accountant)
        assert take(accountant, 0) == (2, 2)
        assert take(other, 2, file=1) == (2, 4)  # the same fit, in another process
        assert take(other, 4, file=2) == (1, 5)
        assert take(other, 5) == (0, 5)
        known = found(accountant)
        assert (known.charge.label, known.status, known.steps, known.taken) == ("fit", "charged", 5, 5)
        assert (known.files, known.end) == (frozenset(FILES[:3]), None)
        end(other, 5, file=3)
        assert found(accountant).end == FILES[3]
        for each in (accountant, other, PrivacyAccountant(ledger=path)):
            assert each.report().equals(before[0])
            assert (each.epsilon_spent(), each.remaining(), books(each)) == before[1:]
            assert (each.verify()["charges"], each.verify()["head"][:2]) == (3, "7:")  # three blocks and the end
        with pytest.raises(LedgerError, match="has ended it: one charge is one model"):
            end(accountant, 5, file=4)
        with pytest.raises(LedgerError, match="has ended it: one charge is one model"):
            take(accountant, 5)


def test_steps_of_a_fit():
    steps_of_a_fit_are_those_that_were_charged_and_it_ends_once()


def one_process_at_a_time_goes_on():
    with charged() as (path, accountant):
        other = PrivacyAccountant(ledger=path)
        take(accountant, 0)
        take(other, 2)
        with pytest.raises(LedgerError, match=r"another process went on with the fit .* nothing was taken"):
            take(accountant, 2)
        with pytest.raises(LedgerError, match="another process went on with the fit"):
            take(accountant, 0)
        assert found(other).taken == 4


def test_whoever_does_not_know_of_all_steps_does_not_go_on():
    one_process_at_a_time_goes_on()


def test_a_fit_does_not_end_before_its_last_step():
    with charged() as (_, accountant):
        take(accountant, 0)
        with pytest.raises(LedgerError, match="before its last step"):
            end(accountant, 2)
        assert accountant.verify()["charges"] == 3


def test_steps_are_taken_from_a_charge_with_one_training_beside_gaussian_releases():
    with new_ledger("a", 90.0) as (_, accountant):
        subsets = subset_gaussian_event("poisson_subsets", 0.1, 4.0, STEPS)
        accountant.charge(compose_events([gaussian_event(20.0), subsets]), "2")
        accountant.charge(compose_events([TRAINING, subsets]), "two trainings: 3")
        accountant.charge(gaussian_event(20.0), "none: 4")
        accountant.plan([Charge("planned: 5", FIT)])
        for number in (0, 1, 3, 4, 5, 99):
            with pytest.raises(ValueError, match=r"is no charge|not charged for one fit"):
                take(accountant, 0, number=number)
        assert take(accountant, 0) == (2, 2)
        accountant.charge(FIT, "planned: 5")
        assert take(accountant, 0, number=5) == (2, 2)
        assert accountant.verify()["charges"] == 5


def test_a_training_of_its_own_and_a_fit_do_not_share_steps():
    with new_ledger("a", 90.0) as (_, accountant):
        for _ in range(2):
            accountant.charge(TRAINING, "training")
        ledger, rule = accountant._ledger, accountant._filter
        take(accountant, 0)
        with pytest.raises(ValueError, match="not charged for one training"):
            ledger.take_steps(2, 1, rule, begins=False)
        ledger.take_steps(3, 1, rule, begins=True)
        with pytest.raises(ValueError, match="not charged for one fit with a checkpoint"):
            take(accountant, 1, number=3)


def records_that_no_fit_wrote_do_not_verify(change, message):
    with charged() as (path, accountant):
        for known in (0, 2, 4):
            take(accountant, known)
        end(accountant, 5)
        rewrite(path, lambda records: [*records[:-2], *change(*records[-2:])])
        with pytest.raises(LedgerError, match=message):
            PrivacyAccountant(ledger=path).verify()
        with pytest.raises(LedgerError, match=message):
            assert PrivacyAccountant(ledger=path).charges


CHANGES = {
    "more steps than charged": (lambda last, end: [{**last, "takes": 2}, end], "more steps than entry 2"),
    "no steps": (lambda last, end: [{**last, "takes": 0}, end], "where none were charged"),
    "steps of another charge": (lambda last, end: [{**last, "of": 3}, end], "where none were charged"),
    "a block without a file": (
        lambda last, end: [{name: value for name, value in last.items() if name != "file"}, end],
        "where none were charged",
    ),
    "no hash": (lambda last, end: [{**last, "file": "x"}, end], "no SHA-256"),
    "an end without a hash": (lambda last, end: [last, {**end, "ends": 1}], "no SHA-256"),
    "steps after the end": (lambda last, end: [end, last], "before its last step"),
    "two ends": (lambda last, end: [last, end, end], "after its end"),
    "an end of another charge": (lambda last, end: [last, {**end, "of": 1}], "where none were charged"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_records_that_no_fit_wrote(name):
    records_that_no_fit_wrote_do_not_verify(*CHANGES[name])
