"""Stops what hangs: a bound on processor time that no machine comes near, and so no measure of speed."""

from __future__ import annotations

import contextlib
import signal

__all__ = ["ends"]


@contextlib.contextmanager
def ends(seconds=100):
    """Fail once the process has computed for so many seconds inside the block."""

    def stop(*_):
        raise AssertionError(f"still computing after {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
