"""Where the books are kept: in memory, or in an SQLite file that several processes share."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from ..exceptions import DetachedAccountantError, LedgerError
from .event_json import event_from_json, event_to_json
from .events import Charge
from .filter import STATUSES, Entry, PrivacyFilter

__all__ = ["FileLedger", "MemoryLedger", "create_ledger_file"]

Check = Callable[[Sequence[Entry], Sequence[Charge]], None]
_FORMAT = "skdpgen-ledger-1"
_SECONDS = 60.0
_SCHEMA = """
CREATE TABLE parameters (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE charges (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    batch INTEGER NOT NULL,
    status TEXT NOT NULL,
    label TEXT NOT NULL,
    event TEXT NOT NULL,
    extra_delta REAL NOT NULL
);
"""


def _next_batch(entries: Sequence[Entry]) -> int:
    return 1 + max((entry.batch for entry in entries), default=0)


def _planned(entries: Sequence[Entry], charge: Charge) -> int | None:
    """Index of the first planned entry that `charge` uses up."""
    for k, entry in enumerate(entries):
        if entry.status == "planned" and entry.charge == charge:
            return k
    return None


class MemoryLedger:
    """Books of one process; threads share them, processes do not.

    `detached` books are a copy that travelled with a pickle: they can be read and not added to.
    """

    path = None

    def __init__(self, entries: Sequence[Entry] = (), detached: bool = False):
        self._entries = list(entries)
        self._detached = detached
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @property
    def detached(self) -> bool:
        """Whether the books are a copy: unpickled, or on the far side of a fork."""
        return self._detached or os.getpid() != self._pid

    def read(self) -> list[Entry]:
        """All entries, in the order of their acceptance."""
        return list(self._entries)

    def add(self, charges: Sequence[Charge], status: str, check: Check) -> None:
        """Append `charges` as one batch if `check` lets them pass; a planned charge is used up instead."""
        if self.detached:
            raise DetachedAccountantError(
                "this accountant is a copy (unpickled, loaded or forked) without a ledger file: it cannot be charged, "
                "because the original would not know; give PrivacyAccountant a ledger file to charge in workers"
            )
        with self._lock:
            if status != "planned" and len(charges) == 1:
                k = _planned(self._entries, charges[0])
                if k is not None:
                    self._entries[k] = Entry(charges[0], self._entries[k].batch, status)
                    return
            check(self._entries, charges)
            batch = _next_batch(self._entries)
            self._entries.extend(Entry(charge, batch, status) for charge in charges)


def create_ledger_file(path: str | os.PathLike, rule: PrivacyFilter) -> bool:
    """Create an empty ledger file; False if one was there already (it is left alone).

    The file appears under its name complete, so that no process can see it half made.
    """
    path = Path(path)
    if path.exists():
        return False
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    parameters = {"format": _FORMAT, "id": uuid.uuid4().hex, **_parameters(rule)}
    try:
        with contextlib.closing(sqlite3.connect(draft)) as connection, connection:
            connection.executescript(_SCHEMA)
            rows = [(name, json.dumps(value)) for name, value in parameters.items()]
            connection.executemany("INSERT INTO parameters VALUES (?, ?)", rows)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links: the rename is complete too, only not exclusive
            if path.exists():
                return False
            os.replace(draft, path)
        return True
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"cannot create the ledger {path}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _parameters(rule: PrivacyFilter) -> dict[str, object]:
    # repr of a float round-trips, and "inf" is legal there where JSON has no infinity
    return {
        "epsilon": repr(rule.epsilon),
        "delta": repr(rule.delta),
        "neighboring": rule.neighboring,
        "delta_reserve": repr(rule.delta_reserve),
    }


class FileLedger:
    """Books in a file. Every call opens it anew, so threads, forks and pickles are all the same to it.

    Parameters
    ----------
    path : str or path
        Of an existing ledger.
    identity : str, default=None
        Identity that the file must have; None takes the one found. It keeps a file that was
        deleted and made again, with empty books, from passing for the one that was charged.

    Raises
    ------
    LedgerError
        When the file is missing, not a ledger, damaged, or another one than it was.
    """

    detached = False

    def __init__(self, path: str | os.PathLike, identity: str | None = None):
        self.path = os.path.abspath(os.fspath(path))
        self.identity = identity
        if identity is None:
            self.identity = self.parameters()["id"]

    def parameters(self) -> dict[str, str]:
        """Parameters that the file was created with, and its identity."""
        with self._open() as connection:
            return self._check_parameters(connection)

    def rule(self) -> PrivacyFilter:
        """Filter that the file was created with."""
        found = self.parameters()
        try:
            return PrivacyFilter(
                float(found["epsilon"]), float(found["delta"]), found["neighboring"], float(found["delta_reserve"])
            )
        except (KeyError, ValueError, TypeError) as error:
            raise LedgerError(f"{self.path} is damaged: {error}") from error

    def read(self) -> list[Entry]:
        """All entries, in the order of their acceptance."""
        with self._open() as connection:
            connection.execute("BEGIN")  # one snapshot for all that is read
            self._check_parameters(connection)
            return [entry for _, entry in self._entries(connection)]

    def add(self, charges: Sequence[Charge], status: str, check: Check) -> None:
        """Append `charges` as one batch if `check` lets them pass; a planned charge is used up instead.

        Reading, checking and appending happen under the file's write lock, and the change is on the
        disk when the call returns.
        """
        if not os.access(self.path, os.W_OK) and os.path.exists(self.path):
            raise LedgerError(f"the ledger {self.path} is read-only; nothing was charged")
        with self._open() as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._check_parameters(connection)
                rows = self._entries(connection)
                entries = [entry for _, entry in rows]
                k = _planned(entries, charges[0]) if status != "planned" and len(charges) == 1 else None
                if k is not None:
                    connection.execute("UPDATE charges SET status = ? WHERE id = ?", (status, rows[k][0]))
                else:
                    check(entries, charges)
                    batch = _next_batch(entries)
                    connection.executemany(
                        "INSERT INTO charges (batch, status, label, event, extra_delta) VALUES (?, ?, ?, ?, ?)",
                        [(batch, status, c.label, json.dumps(event_to_json(c.event)), c.extra_delta) for c in charges],
                    )
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _open(self):
        if not os.path.exists(self.path):
            raise LedgerError(f"the ledger {self.path} is not there; an empty one is not made in its place")
        try:
            # mode=rw: never create. isolation_level=None: transactions are written out above.
            uri = Path(self.path).as_uri() + "?mode=rw"
            with contextlib.closing(
                sqlite3.connect(uri, uri=True, timeout=_SECONDS, isolation_level=None)
            ) as connection:
                yield connection
        except sqlite3.Error as error:
            text = str(error)
            if "readonly" in text:
                raise LedgerError(f"the ledger {self.path} is read-only; nothing was charged") from error
            if "locked" in text:
                raise LedgerError(
                    f"the ledger {self.path} stayed locked for {_SECONDS:g} s; nothing was charged"
                ) from error
            if "unable to open" in text:
                raise LedgerError(f"cannot open the ledger {self.path}: {text}; nothing was charged") from error
            raise LedgerError(f"{self.path} is not a ledger, or is damaged ({text}); nothing was charged") from error

    def _check_parameters(self, connection) -> dict[str, str]:
        try:
            found = {
                name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM parameters")
            }
        except (ValueError, TypeError) as error:
            raise LedgerError(f"{self.path} is damaged: its parameters cannot be read") from error
        if found.get("format") != _FORMAT or not isinstance(found.get("id"), str):
            raise LedgerError(f"{self.path} is not a ledger of this version of skdpgen")
        if self.identity is not None and found["id"] != self.identity:
            raise LedgerError(f"{self.path} is another ledger than the one that this accountant was charged to")
        return found

    def _entries(self, connection) -> list[tuple[int, Entry]]:
        rows = list(connection.execute("SELECT id, batch, status, label, event, extra_delta FROM charges ORDER BY id"))
        last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'charges'").fetchone()
        if [row[0] for row in rows] != list(range(1, (last[0] if last else 0) + 1)):
            raise LedgerError(f"{self.path} is damaged: charges have been removed from it")
        entries = []
        for number, batch, status, label, event, extra_delta in rows:
            if status not in STATUSES:
                raise LedgerError(f"{self.path} is damaged: entry {number} has status {status!r}")
            try:
                charge = Charge(label, event_from_json(event), extra_delta)
            except (ValueError, TypeError) as error:
                raise LedgerError(f"{self.path} is damaged: entry {number}: {error}") from error
            entries.append((number, Entry(charge, batch, status)))
        return entries
