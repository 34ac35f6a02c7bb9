"""The day, for cards and ledgers: the day alone, because a time of day would say how long a fit took."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date, datetime, timezone

_held: ContextVar[str | None] = ContextVar("held day", default=None)


def today() -> str:
    """Return the day in UTC, as in ISO 8601: 2024-12-31."""
    return _held.get() or datetime.now(timezone.utc).date().isoformat()


@contextmanager
def one_day() -> Iterator[None]:
    """Hold the day still, for fits that are compared with one another around midnight."""
    token = _held.set(today())
    try:
        yield
    finally:
        _held.reset(token)


def is_day(value) -> bool:
    """Whether a value from a file is a day as `today` writes it."""
    if not isinstance(value, str) or re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value) is None:
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True
