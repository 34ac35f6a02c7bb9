"""Progress bars on stderr: the phase, its steps and the seconds left, never a loss or anything else of the rows."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import warnings
from contextlib import contextmanager
from contextvars import ContextVar

_HIDDEN = ContextVar("hidden", default=False)
# Seconds after which a phase that still runs gets a bar.
_DELAY = 1.0


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

    `progress`: "auto": where somebody watches. That is where stderr is a terminal, or the process runs a notebook; and
    the fit is not one of many: in a search, a cross-validation, an audit, a worker process or a thread. Pipes and log
    files are neither terminals nor notebooks.
    """
    if progress != "auto":
        return bool(progress)
    if _HIDDEN.get() or sys.stderr is None or not (_in_notebook() or sys.stderr.isatty()):
        return False
    if multiprocessing.parent_process() is not None or threading.current_thread() is not threading.main_thread():
        return False
    from .validation import inside_search

    return not inside_search()


def progress_bar(steps=None, *, phase, shown, **options):
    """Return a bar around steps, or one of `total` steps counted by ``update``; see tqdm.

    It appears where the phase takes more than a second, and disappears at its end. In a notebook it is a widget, if
    ipywidgets is installed, and text elsewhere.

    `phase`: what is being done, on the left of the bar. **options: of tqdm. A notebook keeps what its bars last showed:
    ``total`` must be no count of private rows.
    """
    options = {"unit": "step", "delay": _DELAY, **options}
    return _kind_of_bar(shown)(steps, desc=phase, disable=not shown, file=sys.stderr, leave=False, **options)


def _kind_of_bar(shown):
    """The class of tqdm: a widget in a notebook where there are widgets, else text."""
    if shown and _in_notebook():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without widgets tqdm warns, and returns text
            from tqdm.autonotebook import tqdm
    else:
        from tqdm import tqdm
    return tqdm


def _in_notebook():
    """Whether this process is the kernel of a notebook, by what tqdm goes by; a shell of IPython is a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config
