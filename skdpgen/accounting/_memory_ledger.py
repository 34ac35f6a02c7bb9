"""A ledger in memory: that of one process, shared by its threads."""

from __future__ import annotations

from collections.abc import Sequence

from ..exceptions import DetachedAccountantError
from ..utils.forks import ForkSafeLock, process_identity
from ._events import Charge
from ._filter import Entry, PrivacyFilter, Totals

__all__ = ["MemoryLedger", "find_planned"]


def find_planned(entries: Sequence[Entry], charge: Charge) -> int | None:
    """Index of the first planned entry that `charge` uses up."""
    for k, entry in enumerate(entries):
        if entry.status == "planned" and entry.charge == charge:
            return k
    return None


class MemoryLedger:
    """Ledger of one process; threads share it, processes do not.

    A `detached` ledger is a copy, made by a pickle or a fork: it can be read and not added to, for the original would
    not know of the charge.
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
        """Whether this is a copy: unpickled, or on the far side of a fork."""
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
                k = find_planned(self._entries, charges[0])
                if k is not None:
                    self._entries[k] = Entry(charges[0], self._entries[k].batch, status)
                    self._totals = totals.used()
                    return
            rule.check(totals, charges)
            new = [Entry(charge, totals.batches + 1, status) for charge in charges]
            for entry in new:
                totals = rule.add(totals, entry.charge, entry.batch, status)
            self._entries.extend(new)
            self._totals = totals

    def verify(self, rule: PrivacyFilter, head: str | None = None) -> dict[str, object]:
        """Nothing to check: the entries never left the process. A noted `head` is that of a file."""
        if head is not None:
            raise ValueError("a ledger in memory has no head: head= is for a ledger file")
        return {"head": None, "unchained": 0}
