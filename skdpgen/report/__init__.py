"""Pages of HTML: synthetic rows beside real ones, for the data holder alone; a privacy card in plain words, for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..utils.lazy import lazy_names

# Imported on first use: the page of a card needs no metrics.
_HOMES = {
    "Report": "_report",
    "build_report": "_report",
    "card_page": "_card_words",
    "card_text": "_card_words",
    "read_results": "_inputs",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:  # type checkers and editors do not follow names that are imported on first use
    from ._card_words import card_page as card_page
    from ._card_words import card_text as card_text
    from ._inputs import read_results as read_results
    from ._report import Report as Report
    from ._report import build_report as build_report

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
