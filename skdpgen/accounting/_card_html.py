"""What a notebook shows of a privacy card: the guarantee, the releases of the fit, and what was taken as public."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..utils.printing import one_line, printable
from ._accountant import names_of_releases
from ._pricing import check_work
from ._renyi import shares_of

if TYPE_CHECKING:
    from ._card import PrivacyCard

# Public facts that are listed; the card has all of them.
_MOST_FACTS = 20
_COLUMNS = ["release", "mechanism", "noise multiplier", "sampling rate", "count", "share of the fit"]


def card_html(card: PrivacyCard) -> str:
    """Return the card in short. Its figures are shown as stated: `PrivacyCard.verify` recomputes them.

    `card`: perhaps from a file, and not consistent: all its texts are data, and are escaped.
    """
    fit = card["fit"]
    day = f", {card['date']}" if card.get("date") else ""
    guarantee = f"&epsilon; = {_figure(fit['epsilon'])} at &delta; = {_figure(fit['delta'])}"
    if not card["private"]:
        guarantee = f"<b>not private</b> ({guarantee})"
    parts = [
        f"<b>Privacy card</b> of {_text(card['model']['name'])}{_text(day)}: {guarantee}, for {_text(card['unit'])} "
        f"({_text(card['neighboring'])}). <code>verify()</code> recomputes the figures."
    ]
    if card.get("dataset"):
        parts.append(f"Data: {_text(card['dataset'])}")
    parts += [f"{_text(remark[0].upper() + remark[1:])}." for remark in _remarks(card)]
    try:
        releases = _releases(card).to_html(index=False, na_rep="", float_format="{:.4g}".format)
    except (ValueError, OverflowError) as error:
        releases = f"<p>The releases cannot be shown: {_text(error)}</p>"
    declared = (f"{name}: declared public by the caller" for name in card.get("declared", {}))
    facts = list(dict.fromkeys([*card["public_assumptions"], *declared]))
    shown = [f"<li>{_text(fact)}</li>" for fact in facts[:_MOST_FACTS]]
    if len(facts) > _MOST_FACTS:
        shown.append(f"<li>and {len(facts) - _MOST_FACTS} more, which the card lists</li>")
    public = f"<p>Taken as public:</p><ul>{''.join(shown)}</ul>" if shown else "<p>Nothing was taken as public.</p>"
    return f"<div>{''.join(f'<p>{part}</p>' for part in parts)}{releases}{public}</div>"


def _remarks(card: PrivacyCard) -> tuple[str, ...]:
    try:
        return card.remarks
    except (TypeError, ValueError, IndexError):  # a card that is not consistent: `verify` says why
        return ()


def _releases(card: PrivacyCard) -> pd.DataFrame:
    """One row for each release of the fit; ValueError where the card's events are not valid."""
    charges, relation, alpha = card.charges, card["neighboring"], card["ledger"]["alpha"]
    if alpha is not None and not (isinstance(alpha, int | float) and 1 < alpha < math.inf):
        raise ValueError("the order of the ledger must be a number above 1")
    check_work(charges, alpha, relation)
    rows, parts = [], []
    for charge in charges:
        found = charge.releases
        _, names = names_of_releases(printable(charge.label), len(found))
        for name, release in zip(names, found):
            parts.append((release,))
            noise, rate = (
                math.nan if value is None else value for value in (release.noise_multiplier, release.sampling_rate)
            )
            rows.append((name, release.mechanism, noise, rate, release.count, math.nan))
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    frame[_COLUMNS[-1]] = shares_of(parts, alpha, relation)
    return frame.dropna(axis="columns", how="all")


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else _text(value)


def _text(value: Any) -> str:
    return html.escape(one_line(value))
