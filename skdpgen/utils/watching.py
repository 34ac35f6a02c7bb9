"""Observers of each release: an audit or a test of the package.

An audit is told the release, never the sum under it. A test that follows the queries of a fit (`QueryWatcher`, behind
`skdpgen.testing.check_noninterference`) is shown that sum too, and for that reason only of fits whose noise is seeded:
their cards say ``private: false``.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Query", "QueryWatcher", "tell_kept", "tell_release", "watch_releases", "watched"]

# Of one thread: the releases of a fit in another are none of its business.
_watcher = ContextVar("watcher", default=None)


@dataclass(frozen=True, eq=False)
class Query:
    """What a release was made of.

    Parameters
    ----------
    bounded_sum : BoundedSum
        Exact, and so private.
    noise_multiplier : float
    neighboring : str or None
        The relation that the noise was scaled for; None for steps of DP-SGD, whose plan knows it.
    divisor : float, default=1.0
        Of a step of DP-SGD.
    """

    bounded_sum: Any
    noise_multiplier: float
    neighboring: str | None = None
    divisor: float = 1.0


class QueryWatcher:
    """A watcher that sees the queries too, and may put something in the place of every release."""

    def release(self, released, sd, kind, query):
        """Return what to go on with in the place of `released`; arguments as in `watch_releases`, and the `Query`."""
        raise NotImplementedError

    def kept(self, keys):
        """Return what to go on with in the place of `keys`, the list of the names that passed a threshold."""
        raise NotImplementedError


@contextmanager
def watch_releases(watcher):
    """Tell ``watcher(released, sd, kind)`` of each release that this thread makes in the block.

    Parameters
    ----------
    watcher : callable or QueryWatcher
        `released` is an array, `sd` the standard deviation of its noise as the mechanism states it (0 for none),
        `kind` "plain" or "gradient" (one step of DP-SGD, flattened, before it is divided by the batch size). Returns
        None, or what to go on with in the place of a plain release: an audit follows one data set along the releases
        of another. A `QueryWatcher` is for fits with seeded noise alone.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def watched():
    """Tell whether there is a watcher."""
    return _watcher.get() is not None


def tell_release(released, sd, kind="plain", *, query=None, seeded=False):
    """Pass a release on to the watcher, if there is one, and return it, or what the watcher puts in its place.

    Parameters
    ----------
    released, sd, kind
        As in `watch_releases`.
    query : Query, default=None
    seeded : bool, default=False
        Whether the noise could be drawn again by anybody.

    Raises
    ------
    RuntimeError
        A `QueryWatcher` watches a fit whose noise is not seeded: the sum under a private release is nobody's to see.
    """
    watcher = _watcher.get()
    if watcher is None:
        return released
    value = np.array(released, dtype=np.float64)
    sd = np.broadcast_to(np.asarray(sd, dtype=np.float64), value.shape)
    if isinstance(watcher, QueryWatcher):
        if not seeded:
            raise RuntimeError("queries are followed under seeded noise alone")
        return watcher.release(value, sd, kind, query)
    answer = watcher(value, sd, kind)
    return released if answer is None or kind == "gradient" else answer


def tell_kept(keys):
    """Pass on which private names (categories, classes) were released, as a list; see `tell_release`."""
    watcher = _watcher.get()
    return watcher.kept(keys) if isinstance(watcher, QueryWatcher) else keys
