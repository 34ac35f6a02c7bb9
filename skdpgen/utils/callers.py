"""The line of the caller's code that a warning names."""

from __future__ import annotations

import sys

# Packages whose frames are between the caller's code and the function that warns.
_BETWEEN = ("skdpgen", "sklearn", "joblib", "contextlib")


def caller_level() -> int:
    """Return the `stacklevel` by which ``warnings.warn`` names the line of the user's code, in the calling function.

    That is the first frame outside of this package and scikit-learn; 2, the caller of the function, where there is
    none, as in a worker process. (``skip_file_prefixes`` of `warnings.warn` needs Python 3.12.)
    """
    frame, level = sys._getframe(1), 1
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _BETWEEN:
            return level
        frame, level = frame.f_back, level + 1
    return 2
