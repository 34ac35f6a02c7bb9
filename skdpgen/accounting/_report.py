"""The books, to be read: as a table and in a notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..utils.printing import printable
from ._cost import epsilon_pld
from ._events import releases
from ._filter import Entry, PrivacyFilter, proves_privacy
from ._renyi import rdp_at

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ledger_frame", "ledger_html", "ledger_totals"]

_COLUMNS = [
    "label", "release", "mechanism", "noise_multiplier", "sampling_rate", "count", "extra_delta", "rdp", "share",
    "status",
]  # fmt: skip


def ledger_totals(entries: Sequence[Entry], rule: PrivacyFilter) -> dict[str, Any]:
    """Figures of the books as a whole."""
    charges = [entry.charge for entry in entries]
    return {
        "budget_epsilon": rule.epsilon,
        "budget_delta": rule.delta,
        "neighboring": rule.neighboring,
        "alpha": rule.alpha,
        "epsilon_spent": rule.spent(entries),
        "epsilon_if_fixed_in_advance": epsilon_pld(charges, rule.delta, rule.neighboring),
        "remaining": rule.remaining(entries),
        "private": proves_privacy(entries),
    }


def ledger_frame(entries: Sequence[Entry], rule: PrivacyFilter) -> pd.DataFrame:
    """One row a primitive release; the totals are in `attrs`."""
    import pandas as pd

    rows = []
    for entry in entries:
        found = releases(entry.charge.event)
        label, names = _names(printable(entry.charge.label), len(found))
        for k, row in enumerate(found):
            rdp = math.nan if rule.alpha is None else rdp_at((row,), rule.alpha, rule.neighboring)
            rate = math.nan if row.sampling_rate is None else row.sampling_rate
            extra = 0.0 if k else entry.charge.extra_delta
            noise = math.nan if row.noise_multiplier is None else row.noise_multiplier
            line = (label, names[k], row.mechanism, noise, rate, row.count, extra, rdp, 0.0)
            rows.append((*line, entry.status))
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    frame["share"] = frame["rdp"].astype(float) / (frame["rdp"].sum() or math.nan)
    frame.attrs = ledger_totals(entries, rule)
    return frame


def _names(label, n_releases):
    """Label and names of the releases, of a charge whose label is "label: name, name"; else empty names."""
    head, colon, tail = label.partition(": ")
    names = tail.split(", ")
    return (head, names) if colon and len(names) == n_releases else (label, [""] * n_releases)


def ledger_html(entries: Sequence[Entry], rule: PrivacyFilter, *, path: str | None, detached: bool) -> str:
    """Totals in one sentence, and the table."""
    frame = ledger_frame(entries, rule)
    totals = frame.attrs
    left = "detached copy" if detached else f"{totals['remaining']:.4g} left for one more fit"
    text = (
        f"<b>PrivacyAccountant</b>: spent &epsilon; = {totals['epsilon_spent']:.4g} of {rule.epsilon:.4g} "
        f"at &delta; = {rule.delta:.3g} ({rule.neighboring}); {left}; had all been fixed in advance: "
        f"{totals['epsilon_if_fixed_in_advance']:.4g}"
    )
    if rule.alpha is not None and len({entry.batch for entry in entries}) > 1:
        used = 1 - rule.rdp_left(entries) / rule.limit(entries)
        text += f"; {used:.1%} of the filter is used (epsilons of separate fits do not add up: their squares nearly do)"
    if not totals["private"]:
        seeded = any(entry.status == "seeded" for entry in entries)
        why = "a fit had noise that is known (seeded)" if seeded else "a release without noise was charged"
        text += f"; <b>not private: {why}</b>"
    if path is not None:
        text += f"; ledger {html.escape(path)}"
    return f"<div><p>{text}</p>{frame.to_html(index=False, na_rep='', float_format='{:.4g}'.format)}</div>"
