"""Utility of synthetic rows, measured against real ones: evaluation for the data holder, not a private release.

Every docstring has a paragraph **Leak** that says what showing the figure to others would tell; `leak_note` reads it.
"""

from __future__ import annotations

from ._columns import column_distances, correlation_difference, correlation_matrix
from ._detection import PMSE, detection_auroc, pmse
from ._leaks import leak_note
from ._manifold import PRDC, frechet_distance, prdc
from ._marginals import marginal_tvd, one_way_tvd, pairwise_tvd, three_way_tvd, two_way_tvd
from ._model_terms import ELBOTerms, elbo_terms, reconstruction_error
from ._plot._curves import TSTRCurveDisplay, UtilityCurveDisplay
from ._plot._marginals import MarginalsDisplay
from ._plot._matrices import CorrelationDisplay, PairwiseErrorDisplay
from ._plot._models import ImageGridDisplay, LatentSpaceDisplay, LedgerDisplay
from ._tstr import make_tstr_scorer, protocol_classifiers, tstr_report, tstr_score

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
    "TSTRCurveDisplay",
    "UtilityCurveDisplay",
    "column_distances",
    "correlation_difference",
    "correlation_matrix",
    "detection_auroc",
    "elbo_terms",
    "frechet_distance",
    "leak_note",
    "make_tstr_scorer",
    "marginal_tvd",
    "one_way_tvd",
    "pairwise_tvd",
    "pmse",
    "prdc",
    "protocol_classifiers",
    "reconstruction_error",
    "three_way_tvd",
    "tstr_report",
    "tstr_score",
    "two_way_tvd",
]
