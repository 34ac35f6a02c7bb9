"""The chain of a ledger file: edits, rollbacks and exchanges are noticed, sums are recomputed, old ledgers are read."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import tempfile
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from _forks import in_a_fork

from skdpgen.accounting import (
    Charge,
    PrivacyAccountant,
    PrivacyFilter,
    gaussian_event,
    poisson_gaussian_event,
)
from skdpgen.accounting import (
    _ledger as ledger,
)
from skdpgen.accounting._filter import Totals
from skdpgen.accounting._ledger import FileLedger
from skdpgen.accounting._ledger_records import charge_record, first_link, link
from skdpgen.exceptions import BudgetExceededError, LedgerError

EVENT = gaussian_event(20.0)
OLD = Path(__file__).parent / "data" / "ledger-1.db"  # written by the first version: 4 entries, in 3 batches
OLD_BOOKS = [("first", 1, "charged"), ("later", 1, "planned"), ("chosen", 2, "charged"), ("search", 3, "seeded")]


@contextlib.contextmanager
def new_ledger(labels="ab", epsilon=2.0):
    """A path, and an accountant that has charged it for each label."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "budget.db"
        accountant = PrivacyAccountant(epsilon, ledger=path)
        for label in labels:
            accountant.charge(EVENT, label)
        yield path, accountant


def edit(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def rewrite(path, change):
    """Change the records as one who knows the format would: with a chain that is whole again."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        parameters = {
            name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM parameters")
        }
        records = [json.loads(text) for (text,) in connection.execute("SELECT record FROM records ORDER BY id")]
        records = change(records)
        connection.execute("DELETE FROM records")
        head = first_link(parameters)
        for number, record in enumerate(records, 1):
            text = json.dumps(record, sort_keys=True, separators=(",", ":"))
            head = link(head, text)
            connection.execute("INSERT INTO records VALUES (?, ?, ?)", (number, text, head))
        connection.execute("UPDATE head SET length = ?, hash = ?", (len(records), head))


def books(accountant):
    return [(entry.charge.label, entry.batch, entry.status) for entry in accountant.entries]


# ---- what is noticed -----------------------------------------------------------------------------------------------
def test_a_ledger_put_back_to_an_earlier_state_is_refused():
    with new_ledger() as (path, accountant):
        earlier = path.read_bytes()
        head = accountant.verify()["head"]
        accountant.charge(EVENT, "c")
        later = accountant.verify()["head"]
        path.write_bytes(earlier)
        for use in (lambda: accountant.charge(EVENT, "d"), accountant.remaining, accountant.verify, accountant.report):
            with pytest.raises(LedgerError, match=r"restored to an earlier state: it has 2 records, and .* seen 3"):
                use()
        # one that has not seen the later state can only be told of it
        fresh = PrivacyAccountant(ledger=path)
        assert fresh.verify(head)["charges"] == 2
        for part in (head[:2], head[:30], head[:-1], f"{head}0", head.upper(), f"0{head}", f"1:{later[2:]}", ":", ""):
            with pytest.raises(LedgerError, match="never had the head"):
                fresh.verify(part)
        with pytest.raises(LedgerError, match="never had the head 3:"):
            fresh.verify(later)


def test_another_past_of_the_same_length_or_longer_is_refused():
    with new_ledger() as (path, accountant):
        earlier = path.read_bytes()
        accountant.charge(EVENT, "c")
        path.write_bytes(earlier)
        other = PrivacyAccountant(ledger=path)
        for label in ("x", "y"):
            other.charge(EVENT, label)
            with pytest.raises(LedgerError, match="other entries than those"):
                accountant.charge(EVENT, "d")
            with pytest.raises(LedgerError, match="other entries than those"):
                accountant.verify()
        assert other.verify()["charges"] == 4


def test_records_exchanged_by_sql_are_noticed():
    with new_ledger("abc") as (path, accountant):
        edit(
            path,
            "UPDATE records SET id = 9 WHERE id = 1",
            "UPDATE records SET id = 1 WHERE id = 2",
            "UPDATE records SET id = 2 WHERE id = 9",
        )
        for holder in (accountant, PrivacyAccountant(ledger=path)):
            with pytest.raises(LedgerError, match="entry 1 was changed"):
                assert holder.entries


@pytest.mark.parametrize("name", ["rdp", "extra", "first_rdp", "first_extra", "planned", "batches"])
def test_sums_that_understate_the_past_do_not_verify(name):
    with new_ledger("", 3.0) as (path, accountant):
        accountant.plan([Charge("a", EVENT, 1e-7), Charge("b", EVENT, 1e-7)])
        accountant.charge(EVENT, "c")
        assert accountant.verify()["charges"] == 3
        rewrite(path, lambda records: records)
        assert accountant.verify()["charges"] == 3  # the rewriting alone changes nothing

        def understate(records):
            value = records[-1]["totals"][name]
            half = value + 1 if isinstance(value, int) else Fraction(value) / 2
            records[-1]["totals"][name] = half if isinstance(value, int) else f"{half.numerator}/{half.denominator}"
            return records

        rewrite(path, understate)
        with pytest.raises(LedgerError, match="the totals of entry 3"):
            PrivacyAccountant(ledger=path).verify()


def test_a_ledger_that_its_rule_would_have_refused_does_not_verify():
    def dearer(records):  # with sums that are those of its entries
        totals, rule = Totals(), PrivacyFilter(2.0, 1e-5, "add_or_remove_one")
        for batch, record in enumerate(records, 1):
            totals = rule.add(totals, Charge(record["label"], gaussian_event(4.0)), batch, "charged")
            yield json.loads(charge_record(Charge(record["label"], gaussian_event(4.0)), batch, "charged", totals))

    with new_ledger("abcd") as (path, accountant):
        rewrite(path, lambda records: list(dearer(records)))
        with pytest.raises(LedgerError, match="does not verify: 'd' costs epsilon"):
            PrivacyAccountant(ledger=path).verify()
        with pytest.raises(LedgerError, match="other entries than those"):
            accountant.verify()


@pytest.mark.parametrize("batch", [1, 2])
def test_charges_of_a_batch_that_fit_one_by_one_alone_do_not_verify(batch):
    """The charges of a batch are accepted together: each alone within the budget says nothing."""
    charges = [Charge(label, gaussian_event(5.0)) for label in "bcd"]

    def declared_together(records):  # with sums that are those of its entries
        rule = PrivacyFilter(1.0, 1e-5, "add_or_remove_one")
        before = [Charge("a", gaussian_event(20.0))] if batch == 2 else []
        totals, whole = Totals(), [(charge, 1) for charge in before] + [(charge, batch) for charge in charges]
        for charge, at in whole:
            totals = rule.add(totals, charge, at, "charged")
            yield json.loads(charge_record(charge, at, "charged", totals))

    assert all(PrivacyFilter(1.0, 1e-5, "add_or_remove_one").accepts([], [charge]) for charge in charges)
    with new_ledger("", 1.0) as (path, _):
        rewrite(path, lambda records: list(declared_together(records)))
        with pytest.raises(LedgerError, match="does not verify: 'b', 'c', 'd' costs epsilon"):
            PrivacyAccountant(ledger=path).verify()


@pytest.mark.parametrize(
    "change",
    [
        {"uses": 1, "status": "charged"},
        {"status": "planned"},
        {"batch": -1},
        {"label": ""},
        {"event": {"type": "gaussian"}},
        {"totals": {}},
        {"note": "unknown field"},
    ],
)
def test_records_of_another_form_are_damage(change):
    with new_ledger() as (path, _):
        rewrite(path, lambda records: [records[0], {**records[1], **change}])
        with pytest.raises(LedgerError, match=r"damaged|does not verify"):
            PrivacyAccountant(ledger=path).verify()


def test_a_field_that_is_there_twice_is_damage():
    with new_ledger() as (path, _):
        text = '{"label": "x", "label": "y"}'
        edit(path, f"UPDATE records SET record = '{text}', hash = (SELECT 'x') WHERE id = 2")
        with pytest.raises(LedgerError, match="damaged"):
            PrivacyAccountant(ledger=path).verify()
        with pytest.raises(ValueError, match="twice"):
            ledger.parse(text)


# ---- running sums --------------------------------------------------------------------------------------------------
def test_a_charge_reads_the_last_record_alone_where_nobody_else_wrote(monkeypatch):
    with new_ledger("abc") as (path, accountant):
        with monkeypatch.context() as patch:
            patch.setattr(FileLedger, "_rows", lambda *_: pytest.fail("the whole chain was read"))
            accountant.charge(EVENT, "d")
            assert accountant.remaining() > 0
        PrivacyAccountant(ledger=path).charge(EVENT, "of another")
        accountant.charge(EVENT, "e")
        assert accountant.verify()["charges"] == 6


def test_a_charge_of_another_process_right_after_ones_own_is_not_overlooked():
    """Between the write and the look at the file that it left, another process may have changed both."""
    with new_ledger("") as (path, accountant):
        other, run = PrivacyAccountant(ledger=path), FileLedger._run

        def then_another(self, work, *, write=False):
            found = run(self, work, write=write)
            if write and self is accountant._ledger and len(other.entries) == 1:
                other.charge(EVENT, "of another")
            return found

        with patch.object(FileLedger, "_run", then_another):
            accountant.charge(EVENT, "own")
        assert accountant.remaining() == other.remaining() == PrivacyAccountant(ledger=path).remaining()
        accountant.charge(EVENT, "next")
        assert [label for label, *_ in books(accountant)] == ["own", "of another", "next"]
        assert accountant.verify()["charges"] == 3


def _accepted(accountant, charge):
    try:
        accountant.charge(charge.event, charge.label, charge.extra_delta)
    except BudgetExceededError:
        return False
    return True


def test_a_file_accepts_what_a_ledger_in_memory_accepts():
    rng = np.random.default_rng(3)
    with new_ledger("", 1.5) as (_, shared):
        alone, answers = PrivacyAccountant(1.5), []
        for k in range(30):
            noise, extra = float(rng.uniform(8, 60)), float(rng.choice([0.0, 4e-7]))
            event = poisson_gaussian_event(0.01, 2.0, 20) if k == 1 else gaussian_event(noise)
            answers.append([])
            for accountant in (shared, alone):
                try:
                    if k % 7 == 0:
                        accountant.plan([Charge(f"{k}", event, extra), Charge(f"{k} more", event)])
                    else:
                        accountant.charge(event, f"{k}", extra)
                    answers[-1].append("accepted")
                except BudgetExceededError as error:
                    answers[-1].append(str(error))
        assert all(one == other for one, other in answers)
        assert {"accepted"} < {one for one, _ in answers}
        assert shared.entries == alone.entries
        assert shared.remaining() == alone.remaining()
        assert shared.epsilon_spent() == alone.epsilon_spent()
        assert shared.verify()["charges"] == len(alone.charges)
        for charge in [entry.charge for entry in alone.entries if entry.status == "planned"][::-1]:
            for accountant in (shared, alone):
                assert _accepted(accountant, charge), "what was declared is charged already"
                _accepted(accountant, charge)  # once more is a charge of its own
        assert shared.entries == alone.entries
        assert all(entry.status == "charged" for entry in alone.entries)
        assert float(shared._ledger.totals(shared._filter).rdp) == shared._filter.rdp(shared.charges)
        assert shared.verify()["epsilon_spent"] == alone.epsilon_spent()


def test_a_label_of_any_text_is_kept():
    label = "\ud800 lone, \x1b[2J, \n and \0"
    with new_ledger("") as (path, accountant):
        accountant.charge(EVENT, label)
        assert PrivacyAccountant(ledger=path).charges[0].label == label


# ---- failures of the disk and of processes ---------------------------------------------------------------------------
def test_a_full_disk_is_named_and_nothing_is_charged(monkeypatch):
    with new_ledger() as (path, accountant):
        connect = FileLedger._connect

        def full(file_ledger):
            connection = connect(file_ledger)
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
            return connection

        with monkeypatch.context() as patch:
            patch.setattr(FileLedger, "_connect", full)

            def fill():
                for k in range(1000):
                    accountant.charge(gaussian_event(1e4), f"{'long ' * 100} {k}")

            with pytest.raises(LedgerError, match=r"cannot grow: database or disk is full; nothing was charged"):
                fill()
        charged = len(accountant.charges)
        accountant.charge(EVENT, "after")
        assert len(PrivacyAccountant(ledger=path).charges) == charged + 1
        assert accountant.verify()["charges"] == charged + 1


def _die_before_the_commit(accountant):
    write = ledger._append

    def die(*rows):
        write(*rows)
        os.kill(os.getpid(), signal.SIGKILL)

    ledger._append = die
    accountant.charge(EVENT, "lost")


def test_a_process_killed_before_its_commit_leaves_the_chain_whole():
    with new_ledger() as (_, accountant):
        in_a_fork(lambda: _die_before_the_commit(accountant))
        assert [charge.label for charge in accountant.charges] == ["a", "b"]
        accountant.charge(EVENT, "c")
        assert accountant.verify()["charges"] == 3


# ---- ledgers of the first version ------------------------------------------------------------------------------------
@pytest.fixture
def old(tmp_path):
    return Path(shutil.copy(OLD, tmp_path / "budget.db"))


def test_an_old_ledger_is_read_as_it_is(old):
    accountant = PrivacyAccountant(3.0, 1e-5, "replace_one", ledger=old, delta_reserve=0.25)
    assert books(accountant) == OLD_BOOKS
    assert accountant.epsilon_spent() == pytest.approx(1.71491114958557)
    assert accountant.remaining() == pytest.approx(2.3459639338402973)
    assert accountant.verify()["unchained"] == 4
    assert accountant.verify()["head"] is None
    with pytest.raises(BudgetExceededError):
        accountant.charge(gaussian_event(0.5), "too much")
    assert old.read_bytes() == OLD.read_bytes()


def test_an_old_ledger_is_chained_by_its_first_charge(old):
    accountant, other = PrivacyAccountant(ledger=old), PrivacyAccountant(ledger=old)
    spent = other.epsilon_spent()
    accountant.charge(poisson_gaussian_event(0.01, 2.0, 100), "later", 1e-6)
    used = [(label, batch, "charged" if label == "later" else status) for label, batch, status in OLD_BOOKS]
    assert books(accountant) == books(other) == used
    assert other.epsilon_spent() == spent
    found = other.verify()
    assert (found["unchained"], found["head"][:2], found["private"]) == (4, "5:", False)
    other.charge(EVENT, "more")
    assert accountant.verify()["charges"] == 5
    edit(old, "UPDATE records SET record = replace(record, '6.0', '7.0') WHERE id = 1")
    with pytest.raises(LedgerError, match="entry 1 was changed"):
        accountant.charge(EVENT, "even more")


def test_an_old_ledger_survives_a_kill_while_it_is_chained(old):
    accountant = PrivacyAccountant(ledger=old)
    in_a_fork(lambda: _die_before_the_commit(accountant))
    assert books(accountant) == OLD_BOOKS
    accountant.charge(EVENT, "after")
    assert accountant.verify()["charges"] == 5


def test_an_old_ledger_shortened_after_it_was_seen_is_refused(old):
    accountant = PrivacyAccountant(ledger=old)
    assert accountant.remaining() > 0
    edit(old, "DELETE FROM charges WHERE id > 2", "UPDATE sqlite_sequence SET seq = 2")
    with pytest.raises(LedgerError, match="earlier state"):
        accountant.charge(EVENT, "x")
