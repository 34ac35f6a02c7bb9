"""One self-contained HTML page on synthetic rows beside real ones: for the data holder, never to be published."""

from __future__ import annotations

from ._inputs import read_results
from ._report import Report, build_report

__all__ = ["Report", "build_report", "read_results"]
