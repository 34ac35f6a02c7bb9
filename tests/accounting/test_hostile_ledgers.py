"""Ledger files from anybody: refused in little time, with one line and exit code 2."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest
from _command_line import refused
from _watchdog import ends

from skdpgen import PrivacyAccountant
from skdpgen.accounting import _ledger as ledger
from skdpgen.accounting import gaussian_event
from skdpgen.accounting._ledger_records import first_link, link
from skdpgen.exceptions import LedgerError

TOTALS = {"batches": 1, "planned": 0, "rdp": "1/1", "extra": "0/1", "first_rdp": "1/1", "first_extra": "0/1"}
GAUSSIAN = {"type": "gaussian", "noise_multiplier": 50.0, "count": 1}


@pytest.fixture
def path(tmp_path):
    PrivacyAccountant(3.0, ledger=tmp_path / "budget.db")
    return tmp_path / "budget.db"


def execute(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)


def record(event, batch=1, **changed):
    return json.dumps(
        {
            "batch": batch, "status": "charged", "label": "fit", "event": event, "extra_delta": 0.0, "totals": TOTALS,
            **changed,
        }
    )  # fmt: skip


def chain(path, texts):
    """Write records with a valid chain, as anybody can."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        head = first_link({name: json.loads(v) for name, v in connection.execute("SELECT name, value FROM parameters")})
        for number, text in enumerate(texts, 1):
            head = link(head, text)
            connection.execute("INSERT INTO records VALUES (?, ?, ?)", (number, text, head))
        connection.execute("UPDATE head SET length = ?, hash = ?", (len(texts), head))


def test_too_many_records_are_refused_when_read_and_when_written(path, monkeypatch, capsys):
    monkeypatch.setattr(ledger, "_MOST_RECORDS", 3)
    accountant = PrivacyAccountant(ledger=path)
    for label in "abc":
        accountant.charge(gaussian_event(50.0), label)
    with pytest.raises(LedgerError, match="larger than 3 records: begin a new one; nothing was charged"):
        accountant.charge(gaussian_event(50.0), "d")
    assert accountant.verify()["charges"] == 3  # what was accepted can be read
    monkeypatch.setattr(ledger, "_MOST_RECORDS", 2)
    assert "larger than 2 records" in refused(capsys, "verify", "--ledger", str(path))


def test_a_record_that_is_too_long_is_refused(path, monkeypatch, capsys):
    monkeypatch.setattr(ledger, "_MOST_RECORD", 2**20)
    chain(path, [record(GAUSSIAN, label="x" * 2**20)])
    assert "no text of up to 1 MiB" in refused(capsys, "verify", "--ledger", str(path))


def test_a_file_that_is_too_large_is_refused_before_it_is_opened(path, capsys):
    with path.open("r+b") as file:
        file.truncate(ledger._MOST_BYTES + 1)  # a hole: it takes no space
    assert "larger than 256 MiB" in refused(capsys, "verify", "--ledger", str(path))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW records AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, "
        "'x' AS record, 'x' AS hash FROM n",
        "CREATE TABLE records (id INTEGER PRIMARY KEY, record TEXT GENERATED ALWAYS AS (zeroblob(1000000000)), hash)",
    ],
    ids=["view", "computed column"],
)
def test_a_file_that_computes_its_rows_is_refused(path, statement, capsys):
    execute(path, "DROP TABLE records", statement)
    with ends():
        assert "more than plain tables" in refused(capsys, "verify", "--ledger", str(path))


def _sampled(k):
    return {"type": "poisson_gaussian", "sampling_rate": 0.01, "noise_multiplier": 1 + k / 1000, "steps": 1}


def test_events_that_take_too_long_are_refused(path, capsys):
    chain(path, [record({"type": "composed", "events": [_sampled(k) for k in range(6000)]})])
    with ends():
        assert "evaluations of a density" in refused(capsys, "verify", "--ledger", str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 10**6, "too deep"),
        (record(GAUSSIAN, totals={**TOTALS, "rdp": "9" * 700 + "/1"}), "larger than a float"),
        (record(GAUSSIAN, totals={**TOTALS, "first_extra": "1/0"}), "a total is"),
        (record(GAUSSIAN, extra_delta=float("nan")), "extra_delta"),
        (record(GAUSSIAN, batch=10**500), "batch"),
        (record({"type": "composed", "events": [{"type": "composed", "events": []}]}), "at least one release"),
    ],
    ids=["deep", "large total", "no total", "nan", "batch", "empty"],
)
def test_records_of_any_content_are_refused_with_one_line(path, text, message, capsys):
    chain(path, [text])
    assert message in refused(capsys, "verify", "--ledger", str(path))


@pytest.mark.parametrize("value", ["[" * 500, '"' + "x" * 2000 + '"', '{"a": 1}', "1", "null", "NaN"])
@pytest.mark.parametrize("name", ["epsilon", "delta", "neighboring", "id", "format"])
def test_parameters_of_any_content_are_refused_with_one_line(path, name, value, capsys):
    execute(path, ("UPDATE parameters SET value = ? WHERE name = ?", (value, name)))
    refused(capsys, "verify", "--ledger", str(path))
