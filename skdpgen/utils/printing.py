"""Text from files, made safe to show on one line of a terminal or a page; and tables of text."""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import date, time, timedelta
from numbers import Number
from typing import Any

# Length at which text from a file is cut: a longer one could push what stands before it off the screen.
_MOST_CHARACTERS = 2_000
# Characters of a text, and entries of a list or tuple, that a message shows of a parameter.
_SHOWN_CHARACTERS, _SHOWN_ENTRIES = 200, 5


def printable(text: Any) -> str:
    r"""Return a text with every character that does not show as itself written as JSON writes it.

    Those are control characters (new lines, the escape that starts a terminal's commands), format characters (which
    turn the direction of writing or take no room), surrogates, characters of private use, and unusual spaces: a text
    from a file can then neither begin a new line nor hide what was printed before it.

    `text`: anything else is turned into one.

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


def listed(values: Any, most: int = 10) -> str:
    """Return declared or released values as a text for a message: the first `most`, and how many more; None is missing.

    Examples
    --------
    >>> from skdpgen.utils.printing import listed
    >>> print(listed(["no", "yes", None]))
    'no', 'yes', missing
    """
    values = list(values)
    shown = ", ".join("missing" if value is None else quoted(value) for value in values[:most])
    return shown + (f" and {len(values) - most} more" if len(values) > most else "")


def plain_number(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits; from 10,000 to a billion in full, with commas.

    Examples
    --------
    >>> from skdpgen.utils.printing import plain_number
    >>> print(plain_number(0.80531), plain_number(1283140.2), plain_number(2.5e12))
    0.8053 1,283,140 2.5e+12
    """
    size = abs(value)
    if not 1e4 - 0.5 <= size < 1e9:  # years have no comma
        return f"{value:.{digits}g}"
    return f"{value:,.0f}" if size >= 10**digits - 0.5 else f"{value:,.{digits}g}"


def shown(value: Any) -> str:
    """Return a parameter as a text for a message: of what may be private rows the type and the size alone.

    A number, a date, a short text, and a short list or tuple of them is written as it is. A table, an array, a long
    list or any other object may hold rows that were given in the place of a parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen.utils.printing import shown
    >>> print(shown((0, 1)), "and", shown(np.zeros((40, 3))), "and", shown([7] * 40))
    (0, 1) and an ndarray of shape (40, 3) and a list of length 40
    """
    if isinstance(value, list | tuple) and len(value) <= _SHOWN_ENTRIES and all(map(_is_plain, value)):
        return repr(value)
    if _is_plain(value):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = type_and_shape(value)
    if isinstance(value, str | bytes | list | tuple | dict | set | frozenset):
        text += f" of length {len(value)}"
    return f"{'an' if text.startswith((*'aeiouAEIOU', 'nd')) else 'a'} {text}"


def _is_plain(value):
    """Whether a value is one number, one date, None or a short text; a record of numpy is not."""
    import numpy as np  # the command line prints its help without it

    if isinstance(value, str):
        return len(value) <= _SHOWN_CHARACTERS
    scalar = isinstance(value, np.generic) and not isinstance(value, np.void)
    return value is None or scalar or isinstance(value, Number | date | time | timedelta)


def type_and_shape(value: Any) -> str:
    """Return the name of the type of a value and, where it has one, its shape; never what it contains."""
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")


def one_line(text: Any) -> str:
    """Return a text on one line, printable, with single spaces; of a very long one the beginning."""
    text = " ".join(str(text).split())
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]} [{len(text) - _MOST_CHARACTERS} more characters]"
    return printable(text)


def without_middle(text: str, most: int = 200, what: str = "more characters") -> str:
    """Return a text without the middle where it has more than about `most` characters.

    Examples
    --------
    >>> from skdpgen.utils.printing import without_middle
    >>> print(without_middle("density == {" + "'A': 1, " * 100 + "'B': 2}[area]", 40))
    density == {'A': 1, 'A': 1, 'A': 1 ... [785 more characters] ... [area]
    """
    if len(text) <= most:
        return text
    last = most // 6
    first = most - last
    return f"{text[:first]} ... [{len(text) - first - last:,} {what}] ... {text[-last:]}"


def quoted(value: Any) -> str:
    """Return a declared value, such as the text of a constraint, as Python writes it; of a long one both ends.

    Examples
    --------
    >>> from skdpgen.utils.printing import quoted
    >>> print(quoted("start <= end"), quoted(3))
    'start <= end' 3
    """
    return without_middle(repr(value))


def table_lines(head, rows):
    """Return the lines of a table of text: two spaces between columns, each as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in (head, *rows)]


def say(text: Any) -> None:
    """Print a message of the command line to stderr."""
    show(f"skdpgen: {text}")


def show(text: Any) -> None:
    """Print a text to stderr. Where that is closed or full, the command goes on: it may have to write a charged fit."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr)
