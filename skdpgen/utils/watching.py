"""Who is told of each release: an audit, and nobody else. What it is told is the release, never the sum under it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

__all__ = ["tell_release", "watch_releases", "watched"]

# Of one thread: the releases of a fit in another are none of its business.
_watcher = ContextVar("watcher", default=None)


@contextmanager
def watch_releases(watcher):
    """Tell ``watcher(released, sd, kind)`` of each release that this thread makes in the block.

    Parameters
    ----------
    watcher : callable
        `released` is an array, `sd` the standard deviation of its noise as the mechanism states it (0 for none),
        `kind` "plain" or "gradient" (one step of DP-SGD, flattened, before it is divided by the batch size). Returns
        None, or what to go on with in the place of a plain release: an audit follows one data set along the releases
        of another.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def watched():
    """Tell whether there is a watcher."""
    return _watcher.get() is not None


def tell_release(released, sd, kind="plain"):
    """Pass a release on to the watcher, if there is one, and return it, or what the watcher puts in its place."""
    watcher = _watcher.get()
    if watcher is not None:
        value = np.array(released, dtype=np.float64)
        answer = watcher(value, np.broadcast_to(np.asarray(sd, dtype=np.float64), value.shape), kind)
        if answer is not None:
            return answer
    return released
