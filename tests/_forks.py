"""Calls in a forked child, which never outlives its test."""

from __future__ import annotations

import os
import signal
import warnings

__all__ = ["in_a_fork", "start_in_a_fork"]


def in_a_fork(call, seconds=20):
    """Return what a call in a forked child raised, as text: empty if nothing; "hung" if it did not end in time."""
    return start_in_a_fork(call, seconds)()


def start_in_a_fork(call, seconds=20):
    """Begin a call in a forked child; what is returned waits for it, and answers as `in_a_fork`."""
    back, front = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the process has threads, of torch for example
        child = os.fork()
    if child == 0:
        said = b""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        try:
            call()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}".encode()
        finally:
            os.write(front, said)
            os._exit(0)
    os.close(front)

    def wait():
        with os.fdopen(back, "rb") as answer:
            said = answer.read().decode()
        _, status = os.waitpid(child, 0)
        return "hung" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else said

    return wait
