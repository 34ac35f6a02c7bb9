"""Forks: which process this is, and locks that no child inherits in a locked state."""

from __future__ import annotations

import os
import threading
import weakref

_forks = 0
_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def process_identity() -> tuple[int, int]:
    """Return an identity that no parent and no child of this process has.

    The number of forks behind it stands beside the process number, which a child in a separate container may share
    with its parent.
    """
    return os.getpid(), _forks


class ForkSafeLock:
    """A lock that is free in a child, whoever held it in the parent at the moment of the fork.

    What it guards may be half changed in the child: guard what a child must not use anyway.
    """

    def __init__(self):
        self._lock = self._held = threading.Lock()
        _locks.add(self)

    def __enter__(self):
        lock = self._lock
        lock.acquire()
        self._held = lock  # which a fork within the block does not exchange
        return self

    def __exit__(self, *_):
        self._held.release()


def _after_fork_in_child():
    global _forks
    _forks += 1
    for lock in list(_locks):
        lock._lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_after_fork_in_child)
