"""What showing a figure would tell: the sentence of its own docstring, for whoever shows it."""

from __future__ import annotations

import inspect
import re

__all__ = ["leak_note"]

_UNKNOWN = "Take it to read real rows without noise: not to be shown to anyone but the data holder."


def leak_note(function):
    """Return what a metric or picture says in its docstring of showing it to others.

    Parameters
    ----------
    function : callable
        Of ``skdpgen.metrics``.

    Returns
    -------
    str
        The paragraph "**Leak.**" without its head, on one line; a warning where there is none (``python -OO``).

    Notes
    -----
    **Leak.** Nothing: it reads no rows.
    """
    found = re.search(r"\*\*Leak\.\*\* (.+?)(?:\n\s*\n|$)", inspect.getdoc(function) or "", flags=re.DOTALL)
    return " ".join(found.group(1).split()) if found else _UNKNOWN
