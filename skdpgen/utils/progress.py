"""Progress bars on stderr: the phase, its steps and the seconds left, never a loss or anything else of the rows."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar

_HIDDEN = ContextVar("hidden", default=False)


@contextmanager
def without_bars():
    """Hide the bars of fits with ``progress="auto"``: for what makes many fits, and has one bar or none."""
    token = _HIDDEN.set(True)
    try:
        yield
    finally:
        _HIDDEN.reset(token)


def shows_bars(progress):
    """Tell whether a fit shows bars.

    Parameters
    ----------
    progress : bool or "auto"
        "auto": where stderr is a terminal, and the fit is not one of many (a search, a cross-validation, an audit).
        Pipes, log files and notebooks are no terminals.

    Returns
    -------
    bool
    """
    if progress != "auto":
        return bool(progress)
    if _HIDDEN.get() or sys.stderr is None or not sys.stderr.isatty():
        return False
    from .validation import inside_search

    return not inside_search()


def progress_bar(steps=None, *, phase, shown, **options):
    """Return a bar around steps, or one of `total` steps counted by ``update``; see tqdm.

    Parameters
    ----------
    steps : iterable, default=None
    phase : str
        What is being done, on the left of the bar.
    shown : bool
    **options
        Of tqdm.
    """
    from tqdm import tqdm

    return tqdm(steps, desc=phase, disable=not shown, file=sys.stderr, leave=False, **{"unit": "step", **options})
