"""The ledger file: shared by processes, surviving their deaths, and refused when it cannot be trusted."""

import concurrent.futures
import contextlib
import errno
import multiprocessing
import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from functools import partial
from pathlib import Path

import joblib
import pytest

from skdpgen.accounting import (
    Charge,
    Phase,
    PrivacyAccountant,
    gaussian_event,
    poisson_gaussian_event,
)
from skdpgen.accounting import (
    _ledger as ledgers,
)
from skdpgen.accounting import (
    _pricing as pricing,
)
from skdpgen.exceptions import BudgetExceededError, LedgerError

EVENT = gaussian_event(20.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


def edit(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize("reader", ["read_json", "link"])
def test_the_traceback_of_an_interrupt_locks_no_file(path, monkeypatch, reader):
    """A notebook keeps it, and with it whatever was read in the middle of the parameters, or of the records."""
    for label in ("one", "two", "three"):
        PrivacyAccountant(5.0, ledger=path).charge(EVENT, label)
    accountant, kept = PrivacyAccountant(5.0, ledger=path), []

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledgers, reader, interrupt)
        patch.setattr(ledgers, "_SECONDS", 1.0)
        try:
            accountant.charge(EVENT, "interrupted")
        except KeyboardInterrupt as error:
            kept.append(error)  # and the frames
    assert len(kept) == 1
    monkeypatch.setattr(ledgers, "_SECONDS", 1.0)
    PrivacyAccountant(5.0, ledger=path).charge(EVENT, "after")
    assert [charge.label for charge in PrivacyAccountant(ledger=path).charges] == ["one", "two", "three", "after"]


def test_books_outlive_the_object(path):
    first = PrivacyAccountant(2.0, 1e-6, "replace_one", ledger=path, delta_reserve=0.1)
    plan = first.calibrate(
        [Phase("a", 0.5), Phase("b", 0.5, 30, 0.01)], label="fit", epsilon=0.5, extra_delta_share=0.05
    )
    first.charge(plan.event, plan.label, plan.extra_delta)
    first.plan([Charge("soon", EVENT)])
    again = PrivacyAccountant(2.0, 1e-6, "replace_one", ledger=str(path), delta_reserve=0.1)
    opened = PrivacyAccountant(ledger=path)
    for other in (again, opened):
        assert other.entries == first.entries
        assert other.epsilon_spent() == first.epsilon_spent()
        assert (other.epsilon, other.delta, other.neighboring, other.delta_reserve) == (2.0, 1e-6, "replace_one", 0.1)
        assert other.alpha == first.alpha
    opened.charge(EVENT, "soon")
    assert [entry.status for entry in first.entries] == ["charged", "charged"]
    assert os.path.isabs(first.ledger)


def test_an_infinite_budget_round_trips(path):
    PrivacyAccountant(float("inf"), ledger=path).charge(EVENT, "x")
    assert PrivacyAccountant(ledger=path).epsilon == float("inf")


@pytest.mark.parametrize(
    "other", [{"epsilon": 2.0}, {"delta": 1e-6}, {"neighboring": "replace_one"}, {"delta_reserve": 0.1}]
)
def test_other_parameters_are_refused_by_name(path, other):
    PrivacyAccountant(1.0, 1e-5, ledger=path)
    (name,) = other
    with pytest.raises(LedgerError, match=f"was created with {name}="):
        PrivacyAccountant(**{"epsilon": 1.0, "ledger": path, **other})


def test_opening_needs_a_ledger_that_is_there(path):
    with pytest.raises(LedgerError, match="does not exist"):
        PrivacyAccountant(ledger=path)
    assert not path.exists()
    with pytest.raises(LedgerError, match="cannot create"):
        PrivacyAccountant(1.0, ledger=path / "no" / "folder.db")


@pytest.mark.parametrize(
    "content", [b"", b"not a database, but long enough to be read as one" * 40, b"SQLite format 3\0"]
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="ledger"):
        PrivacyAccountant(1.0, ledger=path)
    assert path.read_bytes() == content


def test_a_damaged_ledger_refuses_charges(path):
    accountant = PrivacyAccountant(1.0, ledger=path)
    accountant.charge(EVENT, "a")
    accountant.charge(EVENT, "b")
    intact = path.read_bytes()
    for statement in (
        "DELETE FROM records WHERE id = 2",
        "DELETE FROM records WHERE id = 1",
        "UPDATE records SET record = replace(record, '20.0', '2000.0')",
        "UPDATE records SET record = replace(record, '\"b\"', '\"a\"') WHERE id = 2",
        "UPDATE records SET record = '{}' WHERE id = 1",
        "UPDATE records SET hash = 'x' WHERE id = 1",
        "UPDATE head SET length = 1",
        "UPDATE head SET hash = 'x'",
        "DELETE FROM head",
        "DROP TABLE records",
        "DELETE FROM parameters WHERE name = 'format'",
        "UPDATE parameters SET value = 'x'",
        "UPDATE parameters SET value = '\"100.0\"' WHERE name = 'epsilon'",
    ):
        edit(path, statement)
        for holder in (
            accountant,
            pickle.loads(pickle.dumps(accountant)),
        ):  # one that has seen it, and one that has not
            with pytest.raises(LedgerError, match=r"damaged|is not a ledger"):
                holder.charge(EVENT, "c")
            with pytest.raises(LedgerError, match=r"damaged|is not a ledger"):
                holder.verify()
        path.write_bytes(intact)
    path.write_bytes(intact[: len(intact) // 2])
    with pytest.raises(LedgerError, match=r"damaged|is not a ledger"):
        accountant.charge(EVENT, "c")
    path.write_bytes(intact)
    assert len(accountant.charges) == 2
    assert accountant.verify()["charges"] == 2


def test_a_ledger_deleted_or_made_again_is_not_taken_for_the_old_one(path):
    accountant = PrivacyAccountant(1.0, ledger=path)
    accountant.charge(EVENT, "a")
    data = pickle.dumps(accountant)
    path.unlink()
    for holder in (accountant, pickle.loads(data)):
        with pytest.raises(LedgerError, match="does not exist"):
            holder.charge(EVENT, "b")
        assert "does not exist" in holder._repr_html_()
        assert repr(holder) == "PrivacyAccountant(1, 1e-05)"
    PrivacyAccountant(1.0, ledger=path)
    for holder in (accountant, pickle.loads(data)):
        with pytest.raises(LedgerError, match="is not the ledger that this accountant"):
            holder.charge(EVENT, "b")


def test_a_read_only_ledger_can_be_read_and_not_charged():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "budget.db"
        accountant = PrivacyAccountant(1.0, ledger=path)
        accountant.charge(EVENT, "a")
        path.chmod(0o444)
        os.chmod(folder, 0o555)
        root = os.geteuid() == 0
        if root:  # root may write whatever the mode says
            os.seteuid(65534)
        try:
            assert len(accountant.charges) == 1
            with pytest.raises(LedgerError, match="read-only; nothing was charged"):
                accountant.charge(EVENT, "b")
        finally:
            if root:
                os.seteuid(0)
            os.chmod(folder, 0o755)
        assert len(accountant.charges) == 1


def test_a_locked_ledger_is_an_error_and_not_a_charge(path, monkeypatch):
    accountant = PrivacyAccountant(1.0, ledger=path)
    monkeypatch.setattr("skdpgen.accounting._ledger._SECONDS", 0.05)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="stayed locked"):
            accountant.charge(EVENT, "a")
        holder.execute("ROLLBACK")
    assert accountant.charges == ()


def test_a_pickle_re_attaches_and_does_not_change_with_charges(path):
    accountant = PrivacyAccountant(1.0, ledger=path)
    before = pickle.dumps(accountant)
    other = pickle.loads(before)
    other.charge(EVENT, "other")
    assert not other.detached
    assert accountant.charges == other.charges
    assert pickle.dumps(accountant) == before
    assert joblib.hash(accountant) == joblib.hash(other)


def test_a_label_goes_with_an_accountant_and_not_with_its_file(path):
    labelled = PrivacyAccountant(1.0, ledger=path, label="one")
    other = PrivacyAccountant(ledger=path, label="other")
    assert [pickle.loads(pickle.dumps(one)).label for one in (labelled, other)] == ["one", "other"]
    assert PrivacyAccountant(ledger=path).label is None
    for text in (3, " ", "a: b"):
        with pytest.raises(ValueError, match="label of an accountant must be"):
            PrivacyAccountant(ledger=path, label=text)


def test_a_relative_path_is_kept_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    accountant = PrivacyAccountant(1.0, ledger="budget #1 100%.db")
    data = pickle.dumps(accountant)
    monkeypatch.chdir("/")
    pickle.loads(data).charge(EVENT, "x")
    assert len(accountant.charges) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["budget #1 100%.db"]


def test_sixteen_processes_never_overspend(path):
    accountant = PrivacyAccountant(1.0, ledger=path)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["skdpgen.accounting"])
    accepted = refused = 0
    with concurrent.futures.ProcessPoolExecutor(16, mp_context=context) as pool:
        for future in [pool.submit(accountant.charge, EVENT, f"charge {k}") for k in range(64)]:
            try:
                future.result()
                accepted += 1
            except BudgetExceededError:
                refused += 1
    alone = PrivacyAccountant(1.0)
    with contextlib.suppress(BudgetExceededError):
        for k in range(64):
            alone.charge(EVENT, f"charge {k}")
    assert accepted == len(accountant.charges) == len(alone.charges)
    assert refused == 64 - accepted > 0
    assert accountant.epsilon_spent() == alone.epsilon_spent() <= 1.0


def test_a_killed_process_loses_no_charge_and_leaves_no_half_of_one(path):
    accountant = PrivacyAccountant(1.0, ledger=path)
    program = textwrap.dedent(
        """
        import os, pickle, signal, sys
        from skdpgen.accounting import gaussian_event

        accountant = pickle.loads(bytes.fromhex(sys.argv[1]))
        if os.fork() == 0:  # dies inside the transaction, after the row is written and before the commit
            from skdpgen.accounting import ledger
            write = ledger._append
            ledger._append = lambda *rows: write(*rows) and os.kill(os.getpid(), signal.SIGKILL)
            accountant.charge(gaussian_event(20.0), "inside")
        os.wait()
        accountant.charge(gaussian_event(20.0), "paid")
        os.kill(os.getpid(), signal.SIGKILL)  # dies in the middle of its fit
        """
    )
    done = subprocess.run([sys.executable, "-c", program, pickle.dumps(accountant).hex()], check=False)
    assert done.returncode == -9
    assert [charge.label for charge in accountant.charges] == ["paid"]
    accountant.charge(EVENT, "after")
    assert len(accountant.charges) == 2


def test_charges_are_on_the_disk_before_they_are_confirmed():
    """A computer that loses its power after a charge, and not only a process that is killed, forgets none."""
    found = []

    class Watched(sqlite3.Connection):
        def execute(self, statement, *rest):
            if statement == "COMMIT":
                found.append(super().execute("PRAGMA synchronous").fetchone()[0])
            return super().execute(statement, *rest)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        accountant = PrivacyAccountant(1.0, ledger=Path(folder, "budget.db"))
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
        accountant.plan([Charge("soon", EVENT)])
        accountant.charge(EVENT, "soon")
        number = accountant.charge(poisson_gaussian_event(0.1, 50.0, 4), "steps")._steps.number
        accountant._ledger.take_steps(number, 2, accountant._filter, begins=True)
    assert found
    assert set(found) == {3}  # EXTRA: the file, and the folder once its journal is removed


def test_of_two_that_create_one_ledger_the_second_leaves_it_alone():
    """Both looked for the file before one of them made it: the charges of the first stay, and both charge them."""
    looked = Path.exists
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "budget.db")
        first = PrivacyAccountant(1.0, ledger=path)
        first.charge(gaussian_event(6.0), "most")
        entries = first.entries
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "exists", lambda self: self.name != path.name and looked(self))
            second = PrivacyAccountant(1.0, ledger=path)
        assert second.entries == entries
        with pytest.raises(BudgetExceededError):
            second.charge(gaussian_event(4.0), "most")
        first.charge(gaussian_event(90.0), "a little")
        assert [item.name for item in path.parent.iterdir()] == [path.name]  # no draft is left


def test_of_two_that_create_one_ledger_without_hard_links_the_second_leaves_it_alone():
    """The other process makes the file, and charges it, between any two calls of the first one."""

    def no_link(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def stand_between(name):
        call = getattr(os, name)

        def called(*args, **kwargs):
            nonlocal charged
            if charged is None and path in args:
                charged = ()
                with contextlib.suppress(LedgerError):  # the name is taken, and the file behind it is not complete
                    other = PrivacyAccountant(1.0, ledger=path)
                    other.charge(gaussian_event(6.0), "most")
                    charged = other.entries
            return call(*args, **kwargs)

        return called

    for name in ("open", "replace"):
        charged = None
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            path = Path(folder, "budget.db")
            patch.setattr(os, "link", no_link)
            patch.setattr(os, name, stand_between(name))
            first = PrivacyAccountant(1.0, ledger=path)
            assert charged is not None
            assert bool(charged) == (name == "open")  # while an empty file has the name, nobody charges
            assert first.entries == tuple(charged)
            assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_many_small_charges_build_few_distributions(path, monkeypatch):
    built, build = [], pricing._distribution
    monkeypatch.setattr(pricing, "_distribution", lambda *args: built.append(args) or build(*args))
    accountant = PrivacyAccountant(5.0, ledger=path)
    for k in range(50):
        accountant.charge(poisson_gaussian_event(0.001, 4.0, 10), f"fit {k}")
    PrivacyAccountant(ledger=path).remaining()
    assert len(built) <= 5
