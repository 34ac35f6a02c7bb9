"""A privacy card for people: one self-contained page of HTML, and the same in short for a terminal."""

from __future__ import annotations

import textwrap

from .. import __version__
from ..utils.printing import one_line
from ._card_words import state
from ._page import bullets, details, page, paragraph, section, table

# Rows of a table on the page; a card may hold twenty thousand charges.
_MOST_ROWS = 2_000
# Items of a list in a terminal, and width of its lines.
_MOST_ITEMS, _WIDTH = 12, 100


def card_page(card) -> str:
    """Return one page of HTML that says in plain sentences what a privacy card says.

    What was protected, what the guarantee means (with the risk of an attack), what was assumed public, what may be
    published and what not, and how to verify it. The page holds public facts and figures recomputed from the events:
    it may be published with the card. It fetches nothing.

    Parameters
    ----------
    card : PrivacyCard
        It is verified. All its texts are escaped.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        The card is not consistent, or its events take too long.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen import DPPCA
    >>> from skdpgen.report import card_page
    >>> model = DPPCA(2, epsilon=10.0, bounds=(0, 1)).fit(np.random.default_rng(0).random((500, 3)))
    >>> card_page(model.card_)[:15]
    '<!DOCTYPE html>'
    """
    said = state(card)
    sections = []
    for part in said.parts:
        tables = [table(caption, header, rows) for caption, header, rows in part.tables]
        folded = []
        for caption, header, rows in part.folded:
            cut = [tuple(_short(value) for value in row) for row in rows[:_MOST_ROWS]]
            note = f"The first {_MOST_ROWS:,} of {len(rows):,}; the card holds all." if len(rows) > _MOST_ROWS else None
            shown = table(caption, header, cut) + ("" if note is None else paragraph(note))
            folded.append(details(caption, shown, opened=len(rows) <= 40))
        items = bullets(map(_short, part.items)) if part.items else ""
        words = [paragraph(_short(sentence)) for sentence in part.sentences]
        after = [paragraph(_short(sentence)) for sentence in part.after]
        sections.append(section(part.key, part.title, *words, items, *tables, *after, *folded))
    footer = (
        f"Made by skdpgen {__version__} from the privacy card alone; nothing on this page is fetched from a network."
    )
    banner = [_short(line) for line in said.banner]
    kind = "Guarantee" if said.private else "Not private"
    return page(_short(said.title), banner, sections, footer, label=kind, css="calm" if said.private else "")


def card_text(card) -> str:
    """Return what a privacy card says, in short, for a terminal; see `card_page`.

    Parameters
    ----------
    card : PrivacyCard
        It is verified. No text of it can send a command to the terminal, or begin a line.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        As `card_page`.
    """
    said = state(card)
    lines = [_short(said.title), "", *(line for text in said.banner for line in _wrapped(text))]
    for part in said.parts:
        lines += ["", part.title]
        for sentence in part.sentences:
            lines += _wrapped(sentence, "  ")
        for _, header, rows in part.tables:
            for row in rows if len(rows) > 1 else ():
                figures = (f"{name}: {value}" for name, value in zip(header[1:], row[1:]))
                lines += _wrapped(f"{row[0]}: {'; '.join(figures)}", "  - ")
        for item in part.items[:_MOST_ITEMS]:
            lines += _wrapped(item, "  - ")
        if len(part.items) > _MOST_ITEMS:
            lines.append(f"  and {len(part.items) - _MOST_ITEMS:,} more, on the card and its page")
        for sentence in part.after:
            lines += _wrapped(sentence, "  ")
    return "\n".join(lines) + "\n"


def _wrapped(text, indent=""):
    inner = " " * len(indent)
    return textwrap.wrap(_short(text), _WIDTH, initial_indent=indent, subsequent_indent=inner, break_on_hyphens=False)


def _short(value):
    """A text of the card on one line, of a very long one the beginning; numbers as they are."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else one_line(value)
