"""The two ledgers: in the memory of one process, or in an SQLite file that several processes share.

The records of a file are chained by hashes, and a charge takes constant time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..exceptions import DetachedAccountantError, LedgerError
from ..utils.clock import today
from ..utils.forks import ForkSafeLock, process_identity
from ..utils.strict_json import read_json
from ._events import Charge, releases_from_json
from ._filter import STATUSES, Entry, PrivacyFilter, Totals
from ._ledger_records import (
    FitSteps,
    Record,
    charge_record,
    end_record,
    entries_of,
    first_link,
    fit_steps_of,
    link,
    parse,
    replay,
    steps_of,
    take_record,
    totals_of,
    use_record,
)
from ._pricing import check_work


# ---- in memory -------------------------------------------------------------------------------------
class MemoryLedger:
    """Ledger of one process; threads share it, processes do not.

    A `detached` ledger is a copy, made by a pickle or a fork. It cannot be charged, because the original would not
    know of the charge.
    """

    path = None

    def __init__(self, entries: Sequence[Entry] = (), detached: bool = False):
        self._entries = list(entries)
        self._totals: Totals | None = None
        self._detached = detached
        self._lock = ForkSafeLock()
        self._process = process_identity()

    @property
    def detached(self) -> bool:
        """Whether this is a copy: unpickled, or in a forked child."""
        return self._detached or process_identity() != self._process

    def read(self, rule: PrivacyFilter) -> list[Entry]:
        """All entries, in the order of their acceptance."""
        return list(self._entries)

    def totals(self, rule: PrivacyFilter) -> Totals:
        """Return the running sums over all entries."""
        known = self._totals
        return rule.totals(self.read(rule)) if known is None else known

    def add(self, charges: Sequence[Charge], status: str, rule: PrivacyFilter) -> None:
        """Append `charges` as one batch if `rule` lets them pass; a planned charge is used up instead."""
        if self.detached:
            raise DetachedAccountantError(
                "this accountant is a copy (unpickled, loaded or forked) without a ledger file: it cannot be charged, "
                "because the original would not know; give PrivacyAccountant a ledger file to charge in workers"
            )
        with self._lock:
            totals = self.totals(rule)
            if status != "planned" and len(charges) == 1 and totals.planned:
                planned = [k for k, entry in enumerate(self._entries) if entry.status == "planned"]
                k = next((k for k in planned if self._entries[k].charge == charges[0]), None)
                if k is not None:
                    self._entries[k] = Entry(charges[0], self._entries[k].batch, status, today())
                    self._totals = totals.used()
                    return
            rule.check(totals, charges)
            new = [Entry(charge, totals.batches + 1, status, today()) for charge in charges]
            for entry in new:
                totals = rule.add(totals, entry.charge, entry.batch, status)
            self._totals = None  # an interrupt between the two must not leave sums that lack an entry
            self._entries.extend(new)
            self._totals = totals

    def verify(self, rule: PrivacyFilter, head: str | None = None) -> dict[str, object]:
        """Check nothing, as the entries never left the process; refuse a `head`, which is that of a file."""
        if head is not None:
            raise ValueError("a ledger in memory has no head: head= is for a ledger file")
        return {"head": None, "unchained": 0}


# ---- turns at SQLite -------------------------------------------------------------------------------
# One thread of a process at a time, and none during a fork. A child inherits the locks of SQLite as they were at the
# moment of the fork. If another thread held one, the child would wait for it for ever. So a fork waits until no thread
# uses a ledger file, and a thread waits until a fork is over.

# Seconds that a fork waits for a thread that uses a ledger file; such a turn takes milliseconds.
_FORK_SECONDS = 10.0


class _Turns:
    """The lock of this process, how often it is held, and whether the process began in the middle of a turn."""

    def __init__(self):
        self.lock = threading.RLock()  # a thread that forks within its turn does not wait for itself
        self.depth = 0
        self.broken = False
        self.fork = threading.local()


_turns = _Turns()


@contextlib.contextmanager
def turn(deadline: float):
    """Hold the turn; LedgerError once `deadline` (of `time.monotonic`) has passed, or where it can never come."""
    if _turns.broken:
        raise LedgerError(
            "this process was forked while a ledger file was in use, so it cannot use ledger files; start workers with "
            'multiprocessing.get_context("spawn") or with joblib; nothing was charged'
        )
    lock = _turns.lock
    if not lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
        raise LedgerError(
            "timed out, because other threads of this process use ledger files: try again; nothing was charged"
        )
    _turns.depth += 1
    try:
        yield
    finally:
        _turns.depth -= 1
        lock.release()


def _before_fork():
    state = _turns.fork
    state.held = state.clean = False
    state.held = _turns.lock.acquire(timeout=_FORK_SECONDS)
    state.clean = state.held and _turns.depth == 0


def _after_fork_in_parent():
    if _turns.fork.held:
        _turns.lock.release()


def _after_fork_in_child():
    broken = _turns.broken or not _turns.fork.clean
    _turns.lock, _turns.depth, _turns.broken = threading.RLock(), 0, broken


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


# ---- in a file -------------------------------------------------------------------------------------
_FORMAT = "skdpgen-ledger-3"
_UNIT_FORMAT = "skdpgen-ledger-4"  # of a unit other than a row: an earlier version refuses it, and cannot charge rows
_UNDATED_FORMAT = "skdpgen-ledger-2"  # its records hold no day, and it stays so: an earlier version can go on with it
_OLD_FORMAT = "skdpgen-ledger-1"  # without a chain: one table of entries, whose status was changed in place
# Limits of a file that is read; see `FileLedger`. A release takes about 100 bytes and a charge holds at most 100,000.
_MOST_BYTES = 256 * 2**20
_MOST_RECORDS = 200_000
_MOST_RECORD = 16 * 2**20
# Seconds that a call waits for others to release the file.
_SECONDS = 60.0
# Seconds that SQLite itself waits for another process while this one holds its turn; then the call begins anew.
_WAIT = 0.25
_TABLES = (
    "CREATE TABLE records (id INTEGER PRIMARY KEY, record TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE head (length INTEGER NOT NULL, hash TEXT NOT NULL)",
)
_PARAMETERS = "CREATE TABLE parameters (name TEXT PRIMARY KEY, value TEXT NOT NULL)"


class _Seen(NamedTuple):
    """What an object remembers of its file: its length, and its last hash (None: of the old format)."""

    length: int
    hash: str | None
    totals: Totals
    stamp: tuple[int, ...] | None  # of the file itself, when all of it had been checked


def create_ledger_file(path: str | os.PathLike, rule: PrivacyFilter) -> bool:
    """Create an empty ledger file; False if one was there already (it is left alone).

    The file appears under its name when it is complete, so that no process sees a part of it.
    """
    path = Path(path)
    if path.exists():
        return False
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    form = _FORMAT if rule.unit is None else _UNIT_FORMAT
    parameters = {"format": form, "id": uuid.uuid4().hex, **_parameters(rule)}
    try:
        with turn(time.monotonic() + _SECONDS), contextlib.closing(sqlite3.connect(draft)) as connection, connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN")
            connection.execute(_PARAMETERS)
            rows = [(name, json.dumps(value)) for name, value in parameters.items()]
            connection.executemany("INSERT INTO parameters VALUES (?, ?)", rows)
            _begin_chain(connection, parameters)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            return _move_exclusively(draft, path)
        return True
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"cannot create the ledger {path}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _move_exclusively(draft, path):
    """Give a draft its name without a hard link; False if another process took the name.

    An empty file takes the name first, because a move replaces whatever is there: also a ledger with charges. Others
    refuse the empty file, so nothing is charged to it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return False
    os.replace(draft, path)
    return True


def _begin_chain(connection, parameters):
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO head VALUES (0, ?)", (first_link(parameters),))


def _parameters(rule: PrivacyFilter) -> dict[str, str]:
    # repr of a float round-trips, and "inf" is legal there where JSON has no infinity
    return {
        "epsilon": repr(rule.epsilon),
        "delta": repr(rule.delta),
        "neighboring": rule.neighboring,
        "delta_reserve": repr(rule.delta_reserve),
        **({} if rule.unit is None else {"unit": rule.unit}),
    }


class FileLedger:
    """Ledger in a file. Every call opens the file anew, so threads, forks and pickles can share it.

    Records are only ever added, each with a hash of itself and of all before it, and with the running sums that the
    next charge needs. The object remembers the length and the last hash that it has seen, and refuses a file with a
    shorter or another past. A charge checks the whole chain where the file was changed by others since, and reads the
    last record alone where it was not.

    Parameters
    ----------
    path : str or path
        Of an existing ledger.
    identity : str, default=None
        Identity that the file must have; None accepts any. With it a file that was deleted and created again,
        without entries, is refused.

    Raises
    ------
    LedgerError
        When the file is missing, not a ledger, damaged, exchanged, or beyond the limits below.

    Notes
    -----
    A file may come from anybody, so it is read within limits: 256 MiB, 200,000 records, 16 MiB a record, tables without
    views, triggers or computed columns. Charges are refused before a ledger passes the second, or half of the first.
    `verify` also limits the time that its events take; see `check_work`.
    """

    detached = False

    def __init__(self, path: str | os.PathLike, identity: str | None = None):
        self.path = os.path.abspath(os.fspath(path))
        self.identity = identity
        self._seen: _Seen | None = None
        self._parsed: list[tuple[str, Record]] = []  # what was read before, by its hash
        if identity is None:
            self.identity = self.parameters()["id"]

    def parameters(self) -> dict[str, Any]:
        """Parameters that the file was created with, and its identity."""
        return self._run(self._check_parameters)

    def rule(self) -> PrivacyFilter:
        """Filter that the file was created with."""
        found = self.parameters()
        try:
            return PrivacyFilter(
                float(found["epsilon"]),
                float(found["delta"]),
                found["neighboring"],
                float(found["delta_reserve"]),
                found.get("unit"),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise self._damaged(error) from error

    def read(self, rule: PrivacyFilter) -> list[Entry]:
        """All entries, in the order of their acceptance."""

        def work(connection):
            found = self._check_parameters(connection, rule)
            if found["format"] == _OLD_FORMAT:
                return self._old_entries(connection)
            return self._entries(self._records(connection, found, seen))

        seen = self._seen
        return self._run(work)

    def totals(self, rule: PrivacyFilter) -> Totals:
        """Return the running sums over all entries, as the last record states them."""
        seen = self._seen
        now = self._run(
            lambda connection: self._state(connection, self._check_parameters(connection, rule), seen, rule)
        )
        self._remember(now)
        return now.totals

    def add(self, charges: Sequence[Charge], status: str, rule: PrivacyFilter) -> int:
        """Append `charges` as one batch if `rule` lets them pass; a planned charge is used up instead.

        Reading, checking and appending happen under the file's write lock, and the change is on the disk when the call
        returns.

        Returns: number of the record of the (first) charge.
        """

        def work(connection):
            found = self._check_parameters(connection, rule)
            if found["format"] == _OLD_FORMAT:
                found = self._migrate(connection, found, seen, rule)
            now = self._state(connection, found, None if seen is None or seen.hash is None else seen, rule)
            totals, texts = now.totals, []
            day = None if found["format"] == _UNDATED_FORMAT else today()
            number = None
            if status != "planned" and len(charges) == 1 and totals.planned:
                number = self._planned(self._records(connection, found, None), charges[0])
            if number is not None:
                totals = totals.used()
                texts.append(use_record(number, status, totals, day))
            else:
                rule.check(totals, charges)
                batch = totals.batches + 1
                for charge in charges:
                    totals = rule.add(totals, charge, batch, status)
                    texts.append(charge_record(charge, batch, status, totals, day))
            length, head = self._write(connection, now.length, now.hash, texts)
            return _Seen(length, head, totals, None), number or now.length + 1

        self._check_writable()
        seen = self._seen
        now, number = self._run(work, write=True)
        self._remember(now._replace(stamp=self._stamp()))
        return number

    def steps_of(self, number: int, rule: PrivacyFilter) -> tuple[Charge, int, int]:
        """Return the charge in record `number`, its steps, and how many were taken; see `_ledger_records.steps_of`."""
        return self._of_records(rule, lambda records: steps_of(records, number))

    def take_steps(self, number: int, count: int, rule: PrivacyFilter, *, begins: bool) -> tuple[int, int]:
        """Take steps of the training that record `number` was charged for, before they run.

        `begins`: whether these are the first steps of the training that was charged.
        Returns `granted`, `taken`: steps that may now be run: at most `count`, and none once all were taken. Steps
            taken so far by all.
        Raises LedgerError also where a training begins of which steps were taken, or goes on of which none were taken.
        """

        def record_of(records):
            _, steps, taken = steps_of(records, number)
            if begins != (taken == 0):
                raise LedgerError(
                    f"{taken} steps of entry {number} in the ledger {self.path} were taken before: the training "
                    f"{'is begun once, and resumed after that' if begins else 'has not begun'}; nothing was taken"
                )
            granted = min(count, steps - taken)
            if granted <= 0:
                return None, 0, taken
            return take_record(number, granted, records[-1].totals), granted, taken + granted

        return self._append(rule, record_of)

    def fit_steps_of(self, number: int, rule: PrivacyFilter) -> FitSteps:
        """Return what is known of the steps of the fit in record `number`; see `_ledger_records.fit_steps_of`."""
        return self._of_records(rule, lambda records: fit_steps_of(records, number))

    def _of_records(self, rule, function):
        """Return what a function says of all records, whose chain is checked."""

        def work(connection):
            return function(self._chained(connection, self._check_parameters(connection, rule), seen))

        seen = self._seen
        return self._run(work)

    def take_fit_steps(self, number: int, count: int, rule: PrivacyFilter, *, known: int, file: str) -> tuple[int, int]:
        """Take steps of a fit with a checkpoint, before they run; one process at a time goes on with a fit.

        `known`: steps taken so far, as the caller knows. Where others have taken steps since, the caller does not go
            on.
        `file`: SHA-256 of the checkpoint from which the steps go on: from then on the ledger vouches for that file.
        Returns `granted`, `taken`: as in `take_steps`.
        Raises LedgerError also where the fit has ended, or another process has gone on with it.
        """
        return self._write_fit(
            number, rule, known, lambda found: min(count, found.steps - found.taken), lambda *of: take_record(*of, file)
        )

    def end_fit(self, number: int, rule: PrivacyFilter, *, known: int, file: str) -> None:
        """End a fit whose steps were all taken: its model is made from the checkpoint of hash `file`, and no other.

        Raises LedgerError also where the fit has ended at another checkpoint, or another process has gone on with it.
        """
        self._write_fit(
            number, rule, known, lambda found: 0, lambda of, _, totals: end_record(of, file, totals), ends=True
        )

    def _write_fit(self, number, rule, known, count, text, *, ends=False):
        """Append a record of a fit with a checkpoint; return how many steps it takes, and how many all have taken."""

        def record_of(records):
            fit = fit_steps_of(records, number)
            if fit.end is not None or fit.taken != known:
                raise LedgerError(
                    f"another process went on with the fit charged as {fit.charge.label!r} (entry {number} in the "
                    f"ledger {self.path}), and has {'ended it' if fit.end is not None else 'taken steps of it'}: one "
                    "charge is one model, so this process stops; nothing was taken"
                )
            if ends and fit.taken < fit.steps:
                raise LedgerError(f"the fit charged as {fit.charge.label!r} is not ended before its last step")
            granted = count(fit)
            if granted <= 0 and not ends:
                return None, 0, fit.taken
            return text(number, granted, records[-1].totals), granted, fit.taken + granted

        return self._append(rule, record_of)

    def _append(self, rule, record_of):
        """Append a record of steps, by ``record_of(records)``: its text, or None; steps granted; all steps taken."""

        def work(connection):
            records = self._chained(connection, self._check_parameters(connection, rule), seen)
            text, *result = record_of(records)
            if text is None:
                return None, *result
            length, head = self._write(connection, len(records), self._head(connection)[1], [text])
            return _Seen(length, head, records[-1].totals, None), *result

        self._check_writable()
        seen = self._seen
        now, granted, taken = self._run(work, write=True)
        if now is not None:
            self._remember(now._replace(stamp=self._stamp()))
        return granted, taken

    def verify(self, rule: PrivacyFilter, head: str | None = None) -> dict[str, Any]:
        """Check the chain from its beginning, and recompute every running sum from the entries alone.

        `head`: "length:hash", noted earlier: the ledger must have had it. Returns: head ("length:hash" now; None for
        the old format, which has no chain), unchained (entries that were written before there was a chain).
        """

        def work(connection):
            found = self._check_parameters(connection, rule)
            if found["format"] == _OLD_FORMAT:
                return _chainless(self._old_entries(connection), rule), [], 0
            records = self._records(connection, found, seen)
            rows = _select(connection, "SELECT hash FROM records ORDER BY id")
            return records, [first_link(found), *(row[0] for row in rows)], found.get("unchained", 0)

        seen = self._seen
        try:
            records, hashes, unchained = self._run(work)
            check_work([record.entry.charge for record in records if record.entry], rule.alpha, rule.neighboring)
            replay(records, rule)
        except ValueError as error:
            raise LedgerError(f"the ledger {self.path} does not verify: {error}") from error
        if head is not None:
            length, _, noted = head.partition(":")
            if length not in map(str, range(len(hashes))) or hashes[int(length)] != noted:
                raise LedgerError(
                    f"the ledger {self.path} never had the head {head}: earlier entries were changed, or the head is "
                    "that of another ledger"
                )
        if not hashes:
            return {"head": None, "unchained": len(records)}
        return {"head": f"{len(records)}:{hashes[-1]}", "unchained": unchained}

    def _check_writable(self):
        if not os.access(self.path, os.W_OK) and os.path.exists(self.path):
            raise LedgerError(f"the ledger {self.path} is read-only; nothing was charged")

    # ---- at the file -----------------------------------------------------------------------------
    def _run(self, work: Callable, *, write: bool = False):
        """Do `work` in one transaction on a new connection; wait for other processes up to a limit."""
        deadline = time.monotonic() + _SECONDS
        while True:
            if not os.path.exists(self.path):
                raise LedgerError(
                    f"the ledger {self.path} does not exist, and no empty ledger is created in its place: restore the "
                    "file, or name another one"
                )
            if os.path.getsize(self.path) > _MOST_BYTES:
                raise self._too_large(f"{_MOST_BYTES // 2**20} MiB")
            try:
                with turn(deadline), contextlib.closing(self._connect()) as connection:
                    # on the disk when a charge returns, and so is the removal of the journal
                    connection.execute("PRAGMA synchronous = EXTRA")
                    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                    try:
                        self._check_tables(connection)
                        found = work(connection)
                        connection.execute("COMMIT")
                    except BaseException:
                        if connection.in_transaction:
                            with contextlib.suppress(sqlite3.Error):  # closing rolls back too
                                connection.execute("ROLLBACK")
                        raise
                    return found
            except sqlite3.Error as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise LedgerError(self._meaning(str(error))) from error
            time.sleep(0.005)

    def _connect(self):
        # mode=rw: never create. isolation_level=None: transactions are written out above.
        uri = Path(self.path).as_uri() + "?mode=rw"
        return sqlite3.connect(uri, uri=True, timeout=min(_WAIT, _SECONDS), isolation_level=None)

    def _meaning(self, text: str) -> str:
        """Return the message for an error of SQLite: what it means for the charge."""
        ledger = f"the ledger {self.path}"
        if "readonly" in text:
            return f"{ledger} is read-only; nothing was charged"
        if "locked" in text:
            return f"{ledger} stayed locked for {_SECONDS:g} s; nothing was charged"
        if "full" in text:
            return f"{ledger} cannot grow: {text}; nothing was charged"
        if "unable to open" in text:
            return f"cannot open {ledger}: {text}; nothing was charged"
        if "disk I/O" in text:
            return f"{ledger} cannot be read or written ({text}); no charge was confirmed, so nothing may be released"
        return f"{self.path} is not a ledger, or is damaged ({text}); nothing was charged"

    def _damaged(self, why) -> LedgerError:
        return LedgerError(f"{self.path} is damaged: {why}; nothing was charged")

    def _too_large(self, limit: str) -> LedgerError:
        return LedgerError(f"the ledger {self.path} is larger than {limit}: begin a new one; nothing was charged")

    def _check_tables(self, connection):
        """Refuse whatever computes rows: they take any time and memory, however small the file is."""
        for kind, statement in _select(connection, "SELECT type, sql FROM sqlite_master"):
            computes = kind in ("view", "trigger") or re.search(r"\bAS\b|\bVIRTUAL\b", statement or "", re.IGNORECASE)
            if computes:
                raise self._damaged("it holds more than plain tables")

    def _stamp(self) -> tuple[int, ...]:
        found = os.stat(self.path)
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _remember(self, now: _Seen):
        if self._seen is None or now.length >= self._seen.length:
            self._seen = now

    def _check_parameters(self, connection, rule: PrivacyFilter | None = None) -> dict[str, Any]:
        try:
            rows = _select(connection, "SELECT name, value FROM parameters LIMIT 100")
            found = {name: read_json(value, most_bytes=1000) for name, value in rows}
        except (ValueError, TypeError, AttributeError) as error:
            raise self._damaged("its parameters cannot be read") from error
        formats = (_FORMAT, _UNIT_FORMAT, _UNDATED_FORMAT, _OLD_FORMAT)
        if found.get("format") not in formats or not isinstance(found.get("id"), str):
            raise LedgerError(f"{self.path} is not a ledger of this version of skdpgen")
        if ("unit" in found) != (found["format"] == _UNIT_FORMAT):
            raise self._damaged("its format is not that of its unit")
        if self.identity is not None and found["id"] != self.identity:
            raise LedgerError(f"{self.path} is not the ledger that this accountant was charged to")
        if rule is not None:
            for name, value in {"unit": None, **_parameters(rule)}.items():
                if found.get(name) != value:
                    raise self._damaged(f"it was created with {name}={value}, and holds {found.get(name)!r}")
        return found

    # ---- the chain -------------------------------------------------------------------------------
    def _state(self, connection, found, seen: _Seen | None, rule: PrivacyFilter) -> _Seen:
        """Length, last hash and totals; the chain is checked unless the file is as this object left it."""
        if found["format"] == _OLD_FORMAT:
            entries = self._old_entries(connection)
            self._check_length(len(entries), seen)
            return _Seen(len(entries), None, self._old_totals(entries, rule), None)
        stamp = self._stamp()
        if seen is not None and seen.stamp == stamp and self._head(connection) == (seen.length, seen.hash):
            return seen
        rows = self._rows(connection, found, seen)
        try:
            totals = totals_of(rows[-1][0]) if rows else Totals()
        except ValueError as error:
            raise self._damaged(f"entry {len(rows)}: {error}") from error
        return _Seen(len(rows), rows[-1][1] if rows else first_link(found), totals, stamp)

    def _head(self, connection) -> tuple[int, str]:
        heads = _select(connection, "SELECT length, hash FROM head LIMIT 2")
        if len(heads) != 1:
            raise self._damaged("its head is missing")
        return heads[0]

    def _rows(self, connection, found, seen: _Seen | None) -> list[tuple[str, str]]:
        """Text and hash of every record, once the chain has been checked from its beginning."""
        length, head = self._head(connection)
        rows, previous = [], first_link(found)
        query = "SELECT id, record, hash FROM records ORDER BY id LIMIT ?"
        for number, text, stated in _select(connection, query, _MOST_RECORDS + 1):
            if number != len(rows) + 1:
                raise self._damaged("charges have been removed from it")
            if number > _MOST_RECORDS:
                raise self._too_large(f"{_MOST_RECORDS:,} records")
            if not isinstance(text, str) or len(text) > _MOST_RECORD:
                raise self._damaged(f"entry {number} is no text of up to {_MOST_RECORD // 2**20} MiB")
            if link(previous, text) != stated:
                raise self._damaged(f"entry {number} was changed")
            rows.append((text, stated))
            previous = stated
        if (length, head) != (len(rows), previous):
            raise self._damaged("charges have been removed from it")
        self._check_length(length, seen)
        if seen is not None and seen.hash is not None:
            then = rows[seen.length - 1][1] if seen.length else first_link(found)
            if then != seen.hash:
                raise LedgerError(
                    f"the ledger {self.path} has other entries than those that this accountant has seen: the file was "
                    "exchanged or changed; restore the file; nothing was charged"
                )
        return rows

    def _check_length(self, length: int, seen: _Seen | None):
        if seen is not None and length < seen.length:
            raise LedgerError(
                f"the ledger {self.path} was restored to an earlier state: it has {length} records, and this "
                f"accountant has seen {seen.length}; use the latest file; nothing was charged"
            )

    def _records(self, connection, found, seen: _Seen | None) -> list[Record]:
        rows, known, parsed = self._rows(connection, found, seen), self._parsed, []
        for number, (text, stated) in enumerate(rows, 1):
            if number <= len(known) and known[number - 1][0] == stated:
                parsed.append(known[number - 1])
                continue
            try:
                parsed.append((stated, parse(text)))
            except (ValueError, TypeError) as error:
                raise self._damaged(f"entry {number}: {error}") from error
        self._parsed = parsed
        return [record for _, record in parsed]

    def _chained(self, connection, found, seen: _Seen | None) -> list[Record]:
        """All records, checked, of a ledger that has a chain."""
        if found["format"] == _OLD_FORMAT:
            raise LedgerError(f"the ledger {self.path} is of the first version, which holds no steps")
        records = self._records(connection, found, seen)
        self._entries(records)
        return records

    def _entries(self, records: Sequence[Record]) -> list[Entry]:
        try:
            return entries_of(records)
        except ValueError as error:
            raise self._damaged(error) from error

    def _planned(self, records: Sequence[Record], charge: Charge) -> int | None:
        """Number of the first record of a planned charge, equal to this one, that has not been used."""
        used = {record.uses for record in records}
        for number, record in enumerate(records, 1):
            waits = record.entry is not None and record.status == "planned" and number not in used
            if waits and record.entry.charge == charge:
                return number
        return None

    def _write(self, connection, length: int, head: str, texts: Sequence[str]) -> tuple[int, str]:
        """Append records within the limits of a file; return the new length and hash."""
        if length + len(texts) > _MOST_RECORDS:
            raise self._too_large(f"{_MOST_RECORDS:,} records")
        longest, total = max(map(len, texts), default=0), sum(map(len, texts))
        if longest > _MOST_RECORD or os.path.getsize(self.path) + total > _MOST_BYTES // 2:
            raise self._too_large(f"{_MOST_BYTES // 2**21} MiB, or a record than {_MOST_RECORD // 2**20} MiB")
        return _append(connection, length, head, texts)

    # ---- the old format --------------------------------------------------------------------------
    def _old_entries(self, connection) -> list[Entry]:
        query = "SELECT id, batch, status, label, event, extra_delta FROM charges ORDER BY id LIMIT ?"
        rows = _select(connection, query, _MOST_RECORDS + 1)
        if len(rows) > _MOST_RECORDS:
            raise self._too_large(f"{_MOST_RECORDS:,} records")
        last = next(iter(_select(connection, "SELECT seq FROM sqlite_sequence WHERE name = 'charges'")), None)
        if [row[0] for row in rows] != list(range(1, (last[0] if last else 0) + 1)):
            raise self._damaged("charges have been removed from it")
        entries = []
        for number, batch, status, label, event, extra_delta in rows:
            if status not in STATUSES:
                raise self._damaged(f"entry {number} has status {status!r}")
            try:
                entries.append(Entry(Charge(label, releases_from_json(event), extra_delta), batch, status))
            except (ValueError, TypeError) as error:
                raise self._damaged(f"entry {number}: {error}") from error
        return entries

    def _old_totals(self, entries: Sequence[Entry], rule: PrivacyFilter) -> Totals:
        try:
            return rule.totals(entries)
        except (ValueError, TypeError) as error:
            raise self._damaged(error) from error

    def _migrate(self, connection, found, seen: _Seen | None, rule: PrivacyFilter) -> dict[str, Any]:
        """Chain the entries of an old version, in the transaction of the first charge by this one."""
        entries = self._old_entries(connection)
        self._check_length(len(entries), seen)
        self._old_totals(entries, rule)
        found = {**found, "format": _FORMAT, "unchained": len(entries)}
        connection.execute("UPDATE parameters SET value = ? WHERE name = 'format'", (json.dumps(_FORMAT),))
        connection.execute("INSERT INTO parameters VALUES ('unchained', ?)", (json.dumps(len(entries)),))
        connection.execute("DROP TABLE charges")
        _begin_chain(connection, found)
        texts = [
            charge_record(record.entry.charge, record.entry.batch, record.status, record.totals)
            for record in _chainless(entries, rule)
        ]
        self._write(connection, 0, first_link(found), texts)
        return found


def _chainless(entries: Sequence[Entry], rule: PrivacyFilter) -> list[Record]:
    """Entries of the old format as records."""
    records, totals = [], Totals()
    for entry in entries:
        totals = rule.add(totals, entry.charge, entry.batch, entry.status)
        records.append(Record(entry, None, entry.status, totals))
    return records


def _select(connection, query: str, *values) -> list[tuple]:
    """Return all rows of a query.

    A cursor in the middle of its rows would lock the file for as long as the traceback of an interrupt refers to it.
    """
    return connection.execute(query, values).fetchall()


def _append(connection, length: int, head: str, texts: Sequence[str]) -> tuple[int, str]:
    """Write records and the new head; return the new length and hash."""
    rows = []
    for text in texts:
        head, length = link(head, text), length + 1
        rows.append((length, text, head))
    connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
    connection.execute("UPDATE head SET length = ?, hash = ?", (length, head))
    return length, head
