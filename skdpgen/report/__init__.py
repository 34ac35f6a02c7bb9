"""Pages of HTML: synthetic rows beside real ones, for the data holder alone; a privacy card in plain words, for all."""

from __future__ import annotations

from ..utils.lazy import lazy_names

# Imported on first use: the page of a card needs no metrics.
_HOMES = {
    "Report": "_report",
    "build_report": "_report",
    "card_page": "_card_page",
    "card_text": "_card_page",
    "read_results": "_inputs",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
