"""Utility of synthetic rows, measured against real ones: for the data holder only, not a private release.

Every docstring has a paragraph **Leak** that says what its publication would reveal; `leak_note` returns it.
"""

from __future__ import annotations

import inspect
import re

from ._display_models import ImageGridDisplay, LatentSpaceDisplay, LedgerDisplay, TSTRCurveDisplay, UtilityCurveDisplay
from ._display_rows import CorrelationDisplay, MarginalsDisplay, PairwiseErrorDisplay
from ._distances import (
    column_distances,
    correlation_difference,
    correlation_matrix,
    marginal_tvd,
    one_way_tvd,
    pairwise_tvd,
    three_way_tvd,
    two_way_tvd,
)
from ._model_terms import ELBOTerms, elbo_terms, reconstruction_error
from ._quality import QualityScore, column_scores, pair_scores, quality_score
from ._refits import refit_errors
from ._tstr import (
    make_tstr_scorer,
    protocol_classifiers,
    protocol_regressors,
    tstr_regression,
    tstr_report,
    tstr_score,
)
from ._two_sample import PMSE, PRDC, detection_auroc, frechet_distance, pmse, prdc
from ._units import rows_per_unit
from ._unseen import UnseenPairs, lost_categories, unseen_pairs

__all__ = [
    "PMSE",
    "PRDC",
    "CorrelationDisplay",
    "ELBOTerms",
    "ImageGridDisplay",
    "LatentSpaceDisplay",
    "LedgerDisplay",
    "MarginalsDisplay",
    "PairwiseErrorDisplay",
    "QualityScore",
    "TSTRCurveDisplay",
    "UnseenPairs",
    "UtilityCurveDisplay",
    "column_distances",
    "column_scores",
    "correlation_difference",
    "correlation_matrix",
    "detection_auroc",
    "elbo_terms",
    "frechet_distance",
    "leak_note",
    "lost_categories",
    "make_tstr_scorer",
    "marginal_tvd",
    "one_way_tvd",
    "pair_scores",
    "pairwise_tvd",
    "pmse",
    "prdc",
    "protocol_classifiers",
    "protocol_regressors",
    "quality_score",
    "reconstruction_error",
    "refit_errors",
    "rows_per_unit",
    "three_way_tvd",
    "tstr_regression",
    "tstr_report",
    "tstr_score",
    "two_way_tvd",
    "unseen_pairs",
]

_UNKNOWN = "Assume that it is computed from private rows without protection; do not publish it."


def leak_note(function):
    """Return what publication of a metric or picture would reveal, as its docstring says.

    Parameters
    ----------
    function : callable
        Of ``skdpgen.metrics``.

    Returns
    -------
    str
        The paragraph "**Leak.**" without its head, on one line; a warning if there is none (``python -OO``).

    Notes
    -----
    **Leak.** Nothing: it reads no rows.
    """
    found = re.search(r"\*\*Leak\.\*\* (.+?)(?:\n\s*\n|$)", inspect.getdoc(function) or "", flags=re.DOTALL)
    return " ".join(found.group(1).split()) if found else _UNKNOWN
