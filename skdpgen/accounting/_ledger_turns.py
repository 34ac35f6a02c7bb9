"""Turns at SQLite: one thread of a process at a time, and none during a fork.

A child inherits SQLite's locks as they were at the moment of the fork. If another thread held one, the child would wait
for it for ever. So a fork waits until no thread is at a ledger, and a thread waits until a fork is over.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from ..exceptions import LedgerError

__all__ = ["turn"]

# How long a fork waits for a thread that is at a ledger; such a turn takes milliseconds.
_FORK_SECONDS = 10.0


class _Turns:
    """The lock of this process, who is behind it, and whether the process began in the middle of a turn."""

    def __init__(self):
        self.lock = threading.RLock()  # a thread that forks within its own turn does not wait for itself
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
        raise LedgerError("other threads of this process kept ledger files in use all the time; nothing was charged")
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
