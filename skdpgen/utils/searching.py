"""Whether a fit is one of a search of scikit-learn's, whose scores are exact functions of private rows."""

from __future__ import annotations

import sys

__all__ = ["EXACT_SCORES", "OWN_BOOKS", "inside_search"]

_MODULES = ("sklearn.model_selection._validation", "sklearn.model_selection._search")

EXACT_SCORES = (
    "fitted inside a search or a cross-validation of scikit-learn: every fit is charged, but cv_results_, best_score_, "
    "best_params_ and the scores of a cross-validation are exact functions of private rows that nobody pays for, and "
    "are not to be published; skdpgen.PrivateSearchCV pays for its choice"
)
OWN_BOOKS = "; without accountant= each fit has books of its own, which nobody adds up"


def inside_search():
    """Tell whether GridSearchCV, cross_validate or the like is among the callers (scikit-learn has no other sign)."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_MODULES):
            return True
        frame = frame.f_back
    return False
