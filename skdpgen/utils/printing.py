"""Text from files, made safe to show on one line of a terminal or a page."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["one_line", "printable"]

# Length at which text from a file is cut: a longer one could push what stands before it off the screen.
_MOST_CHARACTERS = 2_000


def printable(text: Any) -> str:
    r"""Return a text with every character that does not show as itself written as JSON writes it.

    Those are control characters (new lines, the escape that starts a terminal's commands), format characters (which
    turn the direction of writing or take no room), surrogates, characters of private use, and unusual spaces: a text
    from a file can then neither begin a new line nor hide what was printed before it.

    Parameters
    ----------
    text : str
        Anything else is turned into one.

    Returns
    -------
    str

    Examples
    --------
    >>> from skdpgen.utils.printing import printable
    >>> print(printable("one row\n  private  yes"))
    one row\n  private  yes
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def one_line(text: Any) -> str:
    """Return a text on one line, printable, with single spaces; of a very long one the beginning."""
    text = " ".join(str(text).split())
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]} [{len(text) - _MOST_CHARACTERS} more characters]"
    return printable(text)
