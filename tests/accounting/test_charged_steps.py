"""Steps of a training in a ledger file: taken in blocks, never more than were charged, and checked by every reader."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from test_ledger_chain import books, new_ledger, rewrite

from skdpgen.accounting import Charge, PrivacyAccountant, compose_events, gaussian_event, poisson_gaussian_event
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.exceptions import LedgerError

STEPS = 5
EVENT = poisson_gaussian_event(0.01, 4.0, STEPS)


def take(accountant, number, count, begins=False):
    return accountant._ledger.take_steps(number, count, accountant._filter, begins=begins)


@contextlib.contextmanager
def charged():
    """A ledger of three charges, the second of which is a training of five steps."""
    with new_ledger("a") as (path, accountant):
        accountant.charge(EVENT, "training")
        accountant.charge(gaussian_event(20.0), "c")
        yield path, accountant


def test_steps_taken_together_are_those_that_were_charged():
    with charged() as (path, accountant):
        other = PrivacyAccountant(ledger=path)
        before = accountant.report(), accountant.epsilon_spent(), accountant.remaining(), books(accountant)
        assert take(accountant, 2, 2, begins=True) == (2, 2)
        assert take(other, 2, 2) == (2, 4)
        assert take(accountant, 2, 2) == (1, 5)
        assert take(other, 2, 2) == (0, 5)
        for each in (accountant, other, PrivacyAccountant(ledger=path)):
            assert each.report().equals(before[0])
            assert (each.epsilon_spent(), each.remaining(), books(each)) == before[1:]
            found = each.verify()
            assert (found["charges"], found["head"][:2]) == (3, "6:")  # three blocks
        other.charge(gaussian_event(20.0), "d")
        assert accountant.verify()["charges"] == 4


def test_a_training_is_begun_once():
    with charged() as (_, accountant):
        with pytest.raises(LedgerError, match="has not begun; nothing was taken"):
            take(accountant, 2, 1)
        take(accountant, 2, 1, begins=True)
        with pytest.raises(LedgerError, match=r"1 steps .* begun once, and resumed after that"):
            take(accountant, 2, 1, begins=True)
        assert take(accountant, 2, 1) == (1, 2)


def test_steps_are_taken_from_nothing_but_the_charge_of_one_training():
    with new_ledger("a", 9.0) as (_, accountant):
        accountant.plan([Charge("planned", EVENT)])
        accountant.charge(compose_events([EVENT, gaussian_event(20.0)]), "two releases")
        for number in (0, 1, 2, 3, 4, 10**9):
            with pytest.raises(ValueError, match=r"is no charge|not charged for one training"):
                take(accountant, number, 1, begins=True)
        accountant.charge(EVENT, "planned")  # the record of its use is the fourth
        assert take(accountant, 2, 1, begins=True) == (1, 1)
        with pytest.raises(ValueError, match="is no charge"):
            take(accountant, 4, 1, begins=True)
        assert accountant.verify()["charges"] == 3


def steps_that_were_not_charged_do_not_verify(change, message):
    change = dict(change)
    with charged() as (path, accountant):
        take(accountant, 2, 2, begins=True), take(accountant, 2, 1)
        rewrite(path, lambda records: [*records[:-1], {**records[-1], **change}])
        with pytest.raises(LedgerError, match=message):
            PrivacyAccountant(ledger=path).verify()
        with pytest.raises(LedgerError, match=message):
            assert PrivacyAccountant(ledger=path).charges


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"takes": 4}, "entry 5 takes more steps than entry 2 was charged for"),
        ({"takes": 10**30}, "more steps"),
        ({"takes": 0}, "where none were charged"),
        ({"of": 1}, "where none were charged"),
        ({"of": 4}, "where none were charged"),
        ({"of": 99}, "where none were charged"),
        ({"takes": 1.5}, "whole number"),
        ({"takes": -1}, "whole number"),
        ({"of": True}, "whole number"),
        ({"status": "charged"}, "fields"),
    ],
)
def test_records_of_steps_are_checked(change, message):
    steps_that_were_not_charged_do_not_verify(change, message)


def test_sums_that_change_with_steps_do_not_verify():
    def understate(records):
        records[-1]["totals"]["rdp"] = "0/1"
        return records

    with charged() as (path, accountant):
        take(accountant, 2, 2, begins=True)
        rewrite(path, understate)
        with pytest.raises(LedgerError, match="the totals of entry 4"):
            PrivacyAccountant(ledger=path).verify()


def test_no_step_is_run_that_was_not_taken_from_the_ledger():
    with tempfile.TemporaryDirectory() as folder:
        accountant = PrivacyAccountant(50.0, ledger=Path(folder) / "budget.db")
        plan = DPSGDPlan(0.5, 101, 1.0, 10.0, 15.0)
        accountant.charge(plan, "training")
        assert (plan.block_size, plan.take_block(), plan.steps_granted) == (2, 2, 2)
        plan.take_step(), plan.take_step()
        assert (plan.steps_taken, plan.steps_granted) == (2, 0)
        with pytest.raises(RuntimeError, match="all steps that were taken from the ledger have been run"):
            plan.take_step()
        begun = DPSGDPlan(0.5, 101, 1.0, 10.0, 15.0)
        accountant.charge(begun, "another")
        begun.take_step()
        with pytest.raises(RuntimeError, match="began without a checkpoint"):
            begun.take_block()
        assert take(accountant, 1, 1000) == (99, 101)


def test_plans_that_are_not_the_whole_of_a_charge_take_no_steps_from_the_ledger(tmp_path):
    accountant = PrivacyAccountant(50.0, ledger=tmp_path / "budget.db")
    part, beside = DPSGDPlan(0.5, 3, 1.0, 10.0, 15.0), DPSGDPlan(0.5, 3, 1.0, 10.0, 15.0)
    subsets, alone = SubsetPlan(n_subsets=5, steps=3, noise_multiplier=10.0), DPSGDPlan(0.5, 3, 1.0, 10.0, 15.0)
    accountant.charge(poisson_gaussian_event(0.5, 10.0, 5), "five steps").cover(part)
    accountant.charge(compose_events([beside.event, gaussian_event(9.0)]), "fit").cover(beside)
    accountant.charge(subsets, "subsets")
    PrivacyAccountant(50.0).charge(alone, "in memory")
    for plan in (part, beside, subsets, alone):
        with pytest.raises(RuntimeError, match="cannot be taken from a ledger file"):
            plan.take_block()
        plan.take_step()  # from memory, as ever
