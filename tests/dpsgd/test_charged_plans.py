"""A plan is followed once it was charged: once, in the process of the charge, whoever holds a copy of what."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
import pickle
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from _forks import in_a_fork

from skdpgen.accounting import (
    Charge,
    PrivacyAccountant,
    Receipt,
    compose_events,
    gaussian_event,
    poisson_gaussian_event,
)
from skdpgen.dpsgd import DPSGDPlan, TermwisePlan
from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.exceptions import BudgetExceededError, DetachedAccountantError
from skdpgen.nn import DPNet

X = np.random.default_rng(0).random((30, 4)).astype("float32")
KINDS = {
    "DP-SGD": lambda **changes: DPSGDPlan(**{**_SHARED, "l2_bound": 1.0, **changes}),
    "term-wise": lambda **changes: TermwisePlan(**{**_SHARED, "n_groups": 2, **changes}),
    "subsets": lambda **changes: SubsetPlan(**{"n_subsets": 5, "steps": 3, "noise_multiplier": 1.0, **changes}),
    "balanced": lambda **changes: SubsetPlan(
        **{"n_subsets": 5, "steps": 3, "noise_multiplier": 1.0, "sampler": "balanced", **changes}
    ),
}
_SHARED = {"sampling_rate": 0.5, "steps": 3, "noise_multiplier": 1.0, "expected_batch_size": 15.0}


class Squares(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return (x - self.w).square().sum(1)


def make_net(plan):
    return DPNet(Squares, plan=plan, verbose=0)


def claim(plan):
    return plan.claim(object())


@pytest.fixture(params=KINDS)
def make(request):
    return KINDS[request.param]


@pytest.fixture
def accountant():
    return PrivacyAccountant(50.0)


# ---- one charge, one training ------------------------------------------------------------------------------------
def a_plan_that_was_not_charged_is_not_followed(kind):
    make, accountant = KINDS[kind], PrivacyAccountant(50.0)
    plan = make()
    with pytest.raises(RuntimeError, match=r"was not charged: call accountant.charge\(plan, label\)"):
        claim(plan)
    assert isinstance(accountant.charge(plan, "training"), Receipt)
    claim(plan)
    with pytest.raises(RuntimeError, match="used by another training"):
        claim(plan)
    with pytest.raises(RuntimeError, match="charged before: make a new plan"):
        accountant.charge(plan, "again")
    assert [charge.label for charge in accountant.charges] == ["training"]
    claim(make(noise_multiplier=0.0))  # costs nothing


def test_copies_are_the_plan_and_other_plans_are_not(make, accountant):
    plan = make()
    accountant.charge(plan, "training")
    assert copy.copy(plan) is copy.deepcopy(plan) is plan
    for other in (dataclasses.replace(plan), pickle.loads(pickle.dumps(plan)), make()):
        assert other == plan
        with pytest.raises(RuntimeError, match="was not charged"):
            claim(other)
    claim(plan)


def test_a_charged_plan_does_not_train_beyond_a_fork(accountant):
    plan = KINDS["DP-SGD"]()
    accountant.charge(plan, "training")
    for _ in range(3):
        assert "charged in another process" in in_a_fork(lambda: make_net(plan).fit(X))
    assert make_net(plan).fit(X).steps_taken_ == 3
    assert len(accountant.charges) == 1


def no_plan_is_claimed_or_continued_beyond_a_fork(kind):
    make, accountant = KINDS[kind], PrivacyAccountant(50.0)
    plan, token = make(), object()
    receipt = accountant.charge(compose_events([plan.event, gaussian_event(9.0)]), "fit")
    assert "another process" in in_a_fork(lambda: claim(receipt.cover(plan)))
    assert not in_a_fork(lambda: claim(make(noise_multiplier=0.0)))
    receipt.cover(plan).claim(token)
    plan.take_step()
    assert "another process" in in_a_fork(plan.take_step)
    assert "another process" in in_a_fork(lambda: plan.claim(token))  # as an interrupted training goes on
    plan.claim(token)


def a_child_charges_a_file_for_itself_and_a_ledger_in_memory_not_at_all(kind):
    def train(books):
        plan = KINDS[kind]()
        books.charge(plan, "child")
        claim(plan)

    with tempfile.TemporaryDirectory() as folder:
        shared, alone = PrivacyAccountant(50.0, ledger=Path(folder) / "budget.db"), PrivacyAccountant(50.0)
        assert not in_a_fork(lambda: train(shared))
        assert [charge.label for charge in shared.charges] == ["child"]
        assert in_a_fork(lambda: train(alone)).startswith(DetachedAccountantError.__name__)
        assert not alone.charges


def test_of_two_threads_one_trains_on_a_plan_and_one_charge_is_made(make, accountant):
    for _ in range(20):
        plan, barrier, done, before = make(noise_multiplier=400.0), threading.Barrier(4), [], len(accountant.charges)

        def train(plan=plan, barrier=barrier, done=done):
            barrier.wait()
            with contextlib.suppress(RuntimeError):
                accountant.charge(plan, "training")
            with contextlib.suppress(RuntimeError):
                claim(plan)
                done.append(1)

        threads = [threading.Thread(target=train) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        claimed = bool(done) or not _refused(claim, plan)  # every thread may have come before the charge
        assert claimed
        assert len(done) <= 1
        assert len(accountant.charges) == before + 1


class _Interleaved(list):
    """A list at whose `at`-th use another thread runs, after the list has answered."""

    def __init__(self, at, other):
        super().__init__()
        self._left, self._other = at, other

    def _then_the_other(self, answer):
        self._left -= 1
        if self._left == 0:
            self._other()
        return answer

    def __len__(self):
        return self._then_the_other(super().__len__())

    def __getitem__(self, index):
        return self._then_the_other(super().__getitem__(index))

    def append(self, value):
        return self._then_the_other(super().append(value))


def two_threads_take_no_step_and_no_plan_twice_wherever_they_meet(kind):
    uses = {"steps": lambda plan: plan.take_step(), "users": claim, "charged": lambda plan: plan._bind()}
    for (kept, take), at in itertools.product(uses.items(), range(1, 6)):
        plan, taken = KINDS[kind](noise_multiplier=400.0, steps=1), []
        if kept != "charged":
            PrivacyAccountant(50.0).charge(plan, "training")

        def try_to_take(plan=plan, take=take, taken=taken):
            with contextlib.suppress(RuntimeError):
                take(plan)
                taken.append(1)

        setattr(plan._use, kept, _Interleaved(at, try_to_take))
        try_to_take()
        assert len(taken) <= 1, f"two threads that meet at use {at} of {kept} both take it"


def _refused(call, *arguments):
    try:
        call(*arguments)
    except RuntimeError:
        return True
    return False


# ---- receipts ----------------------------------------------------------------------------------------------------
def a_receipt_covers_what_was_charged_and_each_release_once(kind):
    make, accountant = KINDS[kind], PrivacyAccountant(50.0)
    plan, noisier, longer = make(), make(noise_multiplier=0.9), make(steps=30)
    receipt = accountant.charge(compose_events([gaussian_event(9.0), plan.event]), "fit")
    others = [noisier, longer]
    if kind != "balanced":  # its releases have no rate
        rates = {"n_subsets": 4} if kind == "subsets" else {"sampling_rate": 0.6}
        others.append(make(**rates))  # more of the records, or of the subsets, in a step
    for other in others:
        with pytest.raises(RuntimeError, match="'fit' does not cover this plan"):
            receipt.cover(other)
    assert receipt.cover(plan) is plan
    with pytest.raises(RuntimeError, match="does not cover"):
        receipt.cover(make())
    claim(plan)
    assert copy.deepcopy(receipt) is receipt
    assert repr(receipt) == "Receipt('fit')"


def one_charge_covers_one_plan_wherever_two_threads_meet(kind):
    """The second comes while the first binds its plan: it waits, and finds the releases used up."""
    first, second, done = KINDS[kind](), KINDS[kind](), []
    receipt = PrivacyAccountant(50.0).charge(first.event, "fit")
    others = []

    def cover(plan):
        with contextlib.suppress(RuntimeError):
            done.append(receipt.cover(plan))

    class Meeting(list):
        """The charges of the first plan: the other thread runs before one is noted."""

        def append(self, charge):
            others.append(threading.Thread(target=cover, args=(second,)))
            others[0].start()
            others[0].join(0.2)  # it ends within this time, unless it waits
            super().append(charge)

    first._use.charged = Meeting()
    cover(first)
    others[0].join()
    assert len(done) == 1, "one charge covers two plans"


def test_a_receipt_out_of_a_pickle_covers_nothing(make, accountant):
    again = pickle.loads(pickle.dumps(accountant.charge(make().event, "fit")))
    with pytest.raises(RuntimeError, match="made in another process"):
        again.cover(make())


def test_steps_of_a_charge_may_be_shared_by_plans_and_never_exceeded(accountant):
    receipt = accountant.charge(poisson_gaussian_event(0.5, 1.0, 5), "five steps")
    make = KINDS["DP-SGD"]
    receipt.cover(make(steps=3)), receipt.cover(make(steps=2))
    with pytest.raises(RuntimeError, match="does not cover"):
        receipt.cover(make(steps=1))


def test_two_charges_cover_a_plan_no_more_than_one_does(make, accountant):
    plan = make()
    accountant.charge(plan, "one")
    other = accountant.charge(plan.event, "other")
    with pytest.raises(RuntimeError, match="charged before"):
        other.cover(plan)
    other.cover(make())  # what was refused was not used up


def test_a_refused_charge_leaves_the_plan_uncharged(make):
    plan = make(noise_multiplier=0.1)
    with pytest.raises(BudgetExceededError):
        PrivacyAccountant(1.0).charge(plan, "too much")
    with pytest.raises(RuntimeError, match="was not charged"):
        claim(plan)
    PrivacyAccountant(math.inf).charge(plan, "enough")
    claim(plan)


def test_a_declared_charge_gives_its_receipt_when_it_is_used(make, accountant):
    plan = make()
    assert accountant.plan([Charge("training", plan.event)]) is None
    accountant.charge(plan, "training")
    claim(plan)
    assert [entry.status for entry in accountant.entries] == ["charged"]


CLAIMS = [
    a_plan_that_was_not_charged_is_not_followed,
    no_plan_is_claimed_or_continued_beyond_a_fork,
    a_child_charges_a_file_for_itself_and_a_ledger_in_memory_not_at_all,
    a_receipt_covers_what_was_charged_and_each_release_once,
    two_threads_take_no_step_and_no_plan_twice_wherever_they_meet,
    one_charge_covers_one_plan_wherever_two_threads_meet,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("claimed", CLAIMS, ids=lambda function: function.__name__)
def test_charged_plans_are_what_they_claim(claimed, kind):
    claimed(kind)


def test_a_plan_for_another_relation_is_refused_before_the_charge():
    accountant = PrivacyAccountant(10.0, neighboring="replace_one")
    with pytest.raises(ValueError, match="this ledger for 'replace_one'"):
        accountant.charge(DPSGDPlan(0.1, 5, 1.0, 2.0, 10.0), "training")
    assert not accountant.charges
