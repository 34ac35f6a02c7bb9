"""Warnings that name the line of the user's code."""

from __future__ import annotations

import sys
import warnings

from ..exceptions import UtilityWarning

# Packages whose frames are between the user's code and the function that warns.
_BETWEEN = ("skdpgen", "sklearn", "joblib", "contextlib")


def warn_user(message: str, category: type[Warning] = UtilityWarning) -> None:
    """Warn at the line of the user's code: of the first frame outside of this package and scikit-learn.

    Where there is none, as in a worker process, it is the caller of the function that warns. (``skip_file_prefixes`` of
    `warnings.warn` needs Python 3.12.)
    """
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=3 if frame is None else level)
