"""Forks while threads are at a ledger: no child hangs, and none spends what is its parent's."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from _forks import in_a_fork, start_in_a_fork

from skdpgen.accounting import PrivacyAccountant, gaussian_event, repeat_and_select_event
from skdpgen.accounting import _ledger as ledger
from skdpgen.accounting._ledger import turn
from skdpgen.accounting._reservation import Reservation
from skdpgen.exceptions import LedgerError

EVENT = gaussian_event(200.0)


@contextlib.contextmanager
def in_a_thread(work):
    """Repeat a call in another thread, from before the block until after it."""
    over, began = threading.Event(), threading.Event()

    def run():
        while not over.is_set():
            work()
            began.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    began.wait(20)
    try:
        yield
    finally:
        over.set()
        thread.join(20)


def test_no_child_hangs_that_was_forked_while_a_thread_charged(tmp_path):
    accountant = PrivacyAccountant(float("inf"), ledger=tmp_path / "budget.db")
    with in_a_thread(lambda: accountant.charge(EVENT, "thread")):
        said = [in_a_fork(lambda: accountant.charge(EVENT, "child")) for _ in range(6)]
    assert said == [""] * 6
    assert [charge.label for charge in accountant.charges].count("child") == 6
    assert accountant.verify()["charges"] == len(accountant.charges)


def test_a_fork_waits_for_the_turn_of_a_thread_and_says_so_where_it_cannot(tmp_path, monkeypatch):
    accountant = PrivacyAccountant(5.0, ledger=tmp_path / "budget.db")
    held, over = threading.Event(), threading.Event()

    def hold():
        with turn(time.monotonic() + 5):
            held.set()
            over.wait(20)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert held.wait(20)
    monkeypatch.setattr(ledger, "_FORK_SECONDS", 0.05)
    assert "was forked while a ledger file was in use" in in_a_fork(lambda: accountant.charge(EVENT, "child"))
    with monkeypatch.context() as patch:
        patch.setattr("skdpgen.accounting._ledger._SECONDS", 0.05)
        with pytest.raises(LedgerError, match="other threads of this process"):
            accountant.charge(EVENT, "too late")
    monkeypatch.setattr(ledger, "_FORK_SECONDS", 20.0)
    threading.Timer(0.2, over.set).start()
    assert not in_a_fork(lambda: accountant.charge(EVENT, "child"))
    thread.join(20)
    accountant.charge(EVENT, "parent")
    assert [charge.label for charge in accountant.charges] == ["child", "parent"]


def test_a_process_that_forks_within_its_own_turn_does_not_wait_for_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "_FORK_SECONDS", 90.0)  # what it would wait
    accountant = PrivacyAccountant(5.0, ledger=tmp_path / "budget.db")
    with turn(time.monotonic() + 5):
        start = time.monotonic()
        assert "was forked while" in in_a_fork(lambda: accountant.charge(EVENT, "child"))
        assert time.monotonic() - start < 60
    accountant.charge(EVENT, "parent")


def test_children_forked_at_once_never_overspend():
    with tempfile.TemporaryDirectory() as folder:
        accountant = PrivacyAccountant(1.0, ledger=Path(folder) / "budget.db")

        def spend():
            with contextlib.suppress(ValueError):
                for k in range(20):
                    accountant.charge(gaussian_event(20.0), f"{k}")

        children = [start_in_a_fork(spend) for _ in range(4)]
        assert [wait() for wait in children] == [""] * 4
        alone = PrivacyAccountant(1.0)
        with contextlib.suppress(ValueError):
            for k in range(99):
                alone.charge(gaussian_event(20.0), f"{k}")
        assert len(accountant.charges) == len(alone.charges)
        assert accountant.verify()["charges"] == len(alone.charges)


def test_a_ledger_in_memory_cannot_be_spent_by_a_child_and_does_not_hang_it():
    accountant = PrivacyAccountant(float("inf"))
    accountant.charge(EVENT, "before")
    with in_a_thread(lambda: accountant.charge(EVENT, "thread")), accountant._ledger._lock:
        for call in (lambda: accountant.charge(EVENT, "child"), lambda: accountant.plan([])):
            assert in_a_fork(call).startswith(("DetachedAccountantError", "ValueError"))
        assert not in_a_fork(lambda: accountant.remaining() and accountant.report() is not None and accountant.charges)
    assert all(charge.label != "child" for charge in accountant.charges)


def test_fits_that_were_charged_together_are_void_in_a_child_and_do_not_hang_it():
    event = repeat_and_select_event([gaussian_event(20.0)], "poisson", 2)
    with Reservation(PrivacyAccountant(5.0)) as paid:
        paid.charge(event, "search")
        with paid._lock:
            said = in_a_fork(lambda: paid.draw_runs("poisson", 2, rng=np.random.default_rng(0)))
        assert said.startswith("BudgetExceededError")
        assert paid.draw_runs("poisson", 2, rng=np.random.default_rng(0)) >= 0
