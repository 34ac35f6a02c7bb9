"""What a privacy card must keep to be believed: kinds of its fields, limits of its size, the rule of its ledger."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..exceptions import BudgetExceededError
from ._card_json import check_text, check_texts, read_list
from ._cost import check_delta
from ._events import Charge, releases
from ._filter import Entry, PrivacyFilter
from ._renyi import quadrature_points
from ._selection import repetition_points

__all__ = ["MOST_BYTES", "charge_key", "check_candidates", "check_kinds", "check_work", "replay"]

# Limits of a card that is read; the page on verifying in the documentation names them.
MOST_BYTES = 16 * 2**20
_MOST_CHARGES = 20_000
# Evaluations of a density that its events take (a few seconds for 1e8); one kind of sampled step counts for so many
# at least.
_MOST_POINTS = 4e8
_LEAST_POINTS = 1e5


def check_kinds(content: Mapping[str, Any]) -> None:
    """Refuse fields of another kind than `build` writes: what follows prints them, and counts on their kind."""
    for name in ("format", "neighboring", "unit", "noise", "digest"):
        check_text(content[name], name)
    if not isinstance(content["private"], bool):
        raise ValueError(f"private must be true or false; got {content['private']!r}")
    check_text(content["model"]["name"], "model: name")
    for name, value in (("model: parameters", content["model"]["parameters"]), ("versions", content["versions"])):
        if not isinstance(value, dict):
            raise ValueError(f"{name}: expected a JSON object, found {type(value).__name__}")
    for name, version in content["versions"].items():
        check_text(version, f"versions: {name}")
    for name in ("sampler", "public_assumptions"):
        check_texts(content[name], name)
    check_text(content["fit"]["label"], "fit: label")
    check_text(content["ledger"]["rule"], "ledger: rule")
    n_charges = 0
    for name in ("fit", "ledger"):
        check_delta(content[name]["delta"], f"{name}: delta")
        n_charges += len(read_list(content[name]["charges"], name))
    if n_charges > _MOST_CHARGES:
        raise ValueError(f"a card of more than {_MOST_CHARGES:,} charges is not read; this one has {n_charges:,}")
    reserve = content["ledger"]["delta_reserve"]
    if isinstance(reserve, bool) or not isinstance(reserve, int | float):
        raise ValueError(f"ledger: delta_reserve must be a number; got {reserve!r}")


def check_work(charges: Sequence[Charge], alpha: float | None, neighboring: str) -> None:
    """Refuse events that take too long to price: a file must not occupy the machine that checks it."""
    rows = {row._replace(count=1) for charge in charges for row in releases(charge.event)}
    points = 0.0
    for row in rows:
        if row.repeated is not None:
            points += repetition_points(row.repeated, neighboring)
        elif row.sampling_rate is not None:
            points += _LEAST_POINTS + quadrature_points(row, alpha or 2.0, neighboring)
        if points > _MOST_POINTS:
            raise ValueError(
                f"its events take more than {_MOST_POINTS:.0e} evaluations of a density to price: too many different "
                "sampled releases for a card to be verified"
            )


def charge_key(charge):
    """What makes two charges the same, hashable."""
    return charge.label, releases(charge.event), charge.extra_delta


def replay(rule: PrivacyFilter, entries: Sequence[Entry]) -> None:
    """Refuse a ledger whose batches the privacy filter would not have accepted in their order.

    What batches after the first add to the sums that the rule limits is never negative: it would have refused one of
    them if and only if it refuses all of them together.
    """
    first = [entry for entry in entries if entry.batch == entries[0].batch]
    later = [entry.charge for entry in entries[len(first) :]]
    try:
        if first:
            rule.check([], [entry.charge for entry in first])
        if later:
            rule.check(first, later)
    except BudgetExceededError as error:
        which = f"batch {entries[-1].batch}" if later else "its first batch"
        raise ValueError(f"ledger: its rule would have refused {which}, or one before it: {error}") from None


def check_candidates(label: str, assumptions: Sequence[str]) -> None:
    """A search is priced for a list that was fixed in advance: its card holds the whole of it."""
    named = re.fullmatch(r"PrivateSearchCV: .*, (\d+) candidates", label, flags=re.DOTALL)
    if named is None:
        return
    n = int(named[1])
    listed = [m for text in assumptions if (m := re.match(r"candidate (\d{1,9}) of (\d{1,9}): ", text))]
    if len(listed) != n or any((int(m[1]), int(m[2])) != (k, n) for k, m in enumerate(listed, start=1)):
        raise ValueError(f"the search had {n} candidates, and the card does not list each of them")
