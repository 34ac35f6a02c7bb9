"""Utility of synthetic tables, measured against real rows: evaluation for the data holder, not a private release."""

from __future__ import annotations

from ._marginals import one_way_tvd, two_way_tvd
from ._tstr import protocol_classifiers, tstr_report, tstr_score

__all__ = ["one_way_tvd", "protocol_classifiers", "tstr_report", "tstr_score", "two_way_tvd"]
