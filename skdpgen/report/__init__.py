"""Pages of HTML: synthetic rows beside real ones, for the data holder alone; a privacy card in plain words, for all."""

from __future__ import annotations

import importlib

# Imported on first use: the page of a card needs no metrics.
_HOMES = {
    "Report": "_report",
    "build_report": "_report",
    "card_page": "_card_page",
    "card_text": "_card_page",
    "read_results": "_inputs",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_HOMES])
