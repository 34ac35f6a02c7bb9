"""Two hooks at every release, for one thread: an observer, and a replay of the releases of another fit.

An observer (`watch_releases`) receives a copy of each release. It cannot change what the fit goes on with, and it never
receives the exact sum under the noise. A replay (`replay_releases`, which `skdpgen.testing` offers) receives the exact
sum and substitutes releases. It is refused unless the noise is seeded: cards of such fits say ``private: false``.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

# Context variables: a fit in another thread is neither observed nor replayed.
_observer = ContextVar("observer", default=None)
_replay = ContextVar("replay", default=None)


@dataclass(frozen=True, eq=False)
class Query:
    """What a release was made of."""

    bounded_sum: Any  # BoundedSum; exact, and so private
    noise_multiplier: float
    # the relation that the noise was scaled for; None for steps of DP-SGD, whose plan knows it
    neighboring: str | None = None
    divisor: float = 1.0  # of a step of DP-SGD


class Replay:
    """Base of replays: a subclass sees the exact sums, and returns what the fit goes on with."""

    def release(self, released, sd, kind, query):
        """Return the substitute for `released`; arguments as in `watch_releases`, and the `Query`."""
        raise NotImplementedError

    def kept(self, names):
        """Return the substitute for `names`, those that passed a threshold (see `tell_kept`)."""
        return names


@contextmanager
def watch_releases(observer):
    """Call ``observer(released, sd, kind)`` with a copy of each release that this thread makes in the block.

    `observer`: `released` is an array, `sd` the standard deviation of its noise as the mechanism states it (0 for
    none), `kind` "plain" or "gradient" (one step of DP-SGD, flattened, before it is divided by the batch size). Its
    return value is ignored. It may raise, which ends the fit.
    """
    with _set(_observer, observer):
        yield


@contextmanager
def replay_releases(replay):
    """Let a `Replay` substitute each release that this thread makes in the block; for fits with seeded noise only."""
    with _set(_replay, replay):
        yield


@contextmanager
def unwatched():
    """Make fits in the block, of dummy rows, invisible to the hooks of the blocks around it."""
    with _set(_observer, None), _set(_replay, None):
        yield


@contextmanager
def _set(variable, value):
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def watched():
    """Tell whether there is an observer or a replay."""
    return _observer.get() is not None or _replay.get() is not None


def tell_release(released, sd, kind="plain", *, query=None, seeded=False):
    """Show a release to the hooks, and return it, or its substitute in a replay.

    `released`, `sd`, `kind`: as in `watch_releases`.
    `query`: for a replay only.
    `seeded`: whether the noise is seeded, so that anybody could draw it again.
    Raises RuntimeError in a replay of a fit whose noise is not seeded: the exact sum under a private release is never
        shown.
    """
    observer, replay = _observer.get(), _replay.get()
    if observer is None and replay is None:
        return released
    sd = np.broadcast_to(np.asarray(sd, dtype=np.float64), np.shape(released))
    if replay is not None:
        if not seeded:
            raise RuntimeError("releases are replayed under seeded noise alone")
        released = replay.release(np.array(released, dtype=np.float64), sd, kind, query)
    if observer is not None:
        observer(np.array(released, dtype=np.float64), sd, kind)
    return released


def tell_kept(names):
    """Return the private names (categories, classes) that passed a threshold, or their substitute in a replay.

    `names` is a dict of name -> noisy count, or None where the fit goes on with the names alone.
    """
    replay = _replay.get()
    return names if replay is None else replay.kept(names)
