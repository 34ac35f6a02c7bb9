"""A privacy card in plain sentences: what a privacy officer asks of a release, in that order.

Every figure is recomputed from the events on the card. Texts of the card are data: whoever shows them makes them safe.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from .. import __version__
from .._types import in_words
from ..accounting import membership_advantage, true_positive_rate
from ..accounting._accountant import names_of_releases
from ..accounting._card import FILES, remark_on_epsilon, value_of_filter
from ..utils.printing import one_line, without_middle
from ._page import bullets, details, page, paragraph, section, table

# False positive rate at which the true positive rate is stated.
FALSE_POSITIVES = 0.01
# Columns that a sentence names, and values of a column's fact that the page shows.
_NAMED, _SHOWN = 12, 50
# Characters of an assumption from which its middle is left out, such as the pairs of a mapping; and those at its ends.
_LONG, _ENDS = 1_000, 360
_RELEASES = ["label", "release", "mechanism", "noise_multiplier", "sampling_rate", "count", "share", "status"]


@dataclass
class Part:
    """A section: sentences, then a list, then tables of (caption, header, rows).

    `folded` tables are long, and shown on the page alone; `lines` stand for them on a terminal.
    """

    key: str
    title: str
    sentences: list[str]
    items: list[str] = field(default_factory=list)
    tables: list[tuple[str, list[str], list[tuple]]] = field(default_factory=list)
    folded: list[tuple[str, list[str], list[tuple]]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


@dataclass
class Statement:
    """All that is said of a card: a title, what everyone must read first, and the sections."""

    title: str
    private: bool
    banner: list[str]
    parts: list[Part]


def state(card) -> Statement:
    """Verify a card, and say in sentences what it says.

    Raises ValueError: the card is not consistent, or its events take too long.
    """
    found = card.verify()
    private = bool(found["private"])
    fit = found["fit"]
    day = card.get("date")
    title = f"Privacy card of {card['model']['name']}" + (f", {day}" if day else "")
    if private:
        banner = [
            f"This release is differentially private: epsilon {fit['epsilon']:.4g} at delta {fit['delta']:.3g}, for "
            f"{card['unit']}.",
            "Epsilon was recomputed from the events on the card. The publisher vouches that these events are the ones "
            "that ran.",
        ]
        if large := remark_on_epsilon(fit["epsilon"], card.charges[0].unit):
            banner.append(f"{large[0].upper()}{large[1:]}.")
    else:
        banner = [
            "NOT PRIVATE: this release protects nobody.",
            "It was made without noise, or with noise that somebody can repeat and subtract. Do not publish it.",
        ]
    entries = card.accountant().entries
    parts = [
        _protected(card),
        _meaning(card, found, [entry.charge for entry in entries]),
        _ledger(card, found, entries),
        _public(card),
        _publish(private, card),
        _check(card),
    ]
    return Statement(title, private, banner, parts)


# ---- the sections ------------------------------------------------------------------------------------------------
def _protected(card) -> Part:
    replaced, noun = card["neighboring"] == "replace_one", _noun(card)
    change = f"were replaced by any other; the number of {noun}s is public" if replaced else "were added or removed"
    unit = card.charges[0].unit
    protected = card["unit"] if unit is None else f"{in_words(unit)} together, called a unit here"
    sentences = [
        *_data(card),
        f"What is protected is {protected}: the results would be nearly as likely if any one {noun} {change}.",
    ]
    if unit is None:
        sentences += [
            "If one person has several rows in the data, the protection of that person is weaker than stated here. Ask "
            "whether the rows of a person were joined into one before the fit.",
        ]
    else:
        used = card.relation.unit.max_rows
        sentences += [
            f"{unit!r} is the column that says whose row it is. The rows are modelled without it; where synthetic "
            "rows have this column, its values are invented, too.",
            f"However many rows a {noun} has in the data, the fit used at most {used} of them, drawn at random among "
            f"its own. Ask whether {unit!r} is the same in all rows of one person: a person with several identifiers "
            "is protected less than stated here.",
        ]
    return Part("protected", "What was protected", sentences)


def _noun(card) -> str:
    """The unit without its article: "row" of "one row"."""
    unit = card["unit"]
    return unit[4:] if unit.startswith("one ") and unit[4:].isalpha() else "unit"


def _data(card) -> list[str]:
    named, words = card.get("dataset"), []
    if named is not None:
        words = [f"The data, in the words of the publisher: {named}" + "." * (named[-1] not in ".!?")]
    return [*words, *_columns(card)]


def _columns(card) -> list[str]:
    columns = card.get("columns")
    if columns is None:
        return [] if card.get("date") else ["This card is of an earlier version, which did not list the columns."]
    if isinstance(columns, dict):
        count = columns.get("count")
        return [f"{_counted(count)} without names {_were(count)} modelled."] if isinstance(count, int) else []
    keys = [column for column in columns if _is_key(column)]
    modelled = [column for column in columns if not _is_key(column)]
    said = [f"{_counted(len(modelled))} {_were(len(modelled))} modelled: {_names(modelled)}."]
    if keys:
        said.append(
            f"Besides, {_counted(len(keys))} of the synthetic rows {'holds' if len(keys) == 1 else 'hold'} invented "
            f"keys: {_names(keys)}. The fit never read the real keys."
        )
    return said


def _is_key(column) -> bool:
    return isinstance(column, dict) and column.get("kind") == "id"


def _counted(count) -> str:
    return f"{count:,} column{'' if count == 1 else 's'}"


def _were(count) -> str:
    return "was" if count == 1 else "were"


def _names(columns) -> str:
    more = f" and {len(columns) - _NAMED:,} more, which are listed below" if len(columns) > _NAMED else ""
    return ", ".join(str(_name(column)) for column in columns[:_NAMED]) + more


def _meaning(card, found, charges) -> Part:
    title = "What the guarantee means"
    if not found["private"]:
        return Part("meaning", title, ["There is no guarantee: an attacker may learn any record."])
    relation, own, noun = card["neighboring"], card.charges, _noun(card)
    fit, ledger = found["fit"], found["ledger"]
    rows = [_risk("this release", fit["epsilon"], own, relation)]
    if len(charges) > len(own):
        fixed = ledger["epsilon_if_fixed_in_advance"]
        rows.append(_risk(f"all {len(charges):,} charges of the ledger", fixed, charges, relation))
    _, _, advantage, right, caught = rows[0]
    question = f"which of two {noun}s was in the data" if relation == "replace_one" else f"whether one {noun} was in it"
    sentences = [
        f"Epsilon {fit['epsilon']:.4g} at delta {fit['delta']:.3g} bounds how much the results can depend on one "
        f"{noun}, whatever else an attacker knows, and whatever they compute from the results. "
        + _of_delta(fit["delta"]),
        f"Suppose that an attacker knows all the rest of the data and every setting, and must decide {question}. "
        "An attacker who guesses is right in 50 of 100 cases. With all that was released, no attacker is right in more "
        f"than {right} of 100 cases. (The advantage, which is the true positive rate less the false positive rate, is "
        f"at most {advantage}.)",
        f"An attacker who takes 1 of 100 {noun}s outside the data for members recognises at most {caught} of 100 "
        f"{noun}s inside it. An attacker who guesses recognises 1.",
        "These figures are upper bounds for every attack. They follow from the privacy loss distribution of the events "
        "on the card.",
        f"The guarantee is about single {noun}s. What is true of many people alike can still be learned from the "
        "results: that is their purpose.",
    ]
    if str(card["model"]["name"]).endswith("Synthesizer"):
        sentences.append(
            "A synthetic row may equal a real one by chance, most often where many rows are alike. It reveals no more "
            f"than these figures allow: rows like it would be drawn nearly as often if this {noun} had not been in the "
            "data."
        )
    if found["bounded"]:
        sentences.append(f"Here less exact bounds were used: {found['bounded']}.")
    header = ["", "epsilon", "advantage", "right in 100 decisions", "recognised of 100, with 1 false alarm in 100"]
    after = []
    if len({charge["batch"] for charge in card["ledger"]["charges"]}) > 1:
        after = [
            "The figures for all charges, and their epsilon, hold for charges that were fixed in advance. Where later "
            "fits were chosen after earlier results, the guarantee is the whole budget: epsilon "
            f"{ledger['budget_epsilon']:.4g}.",
        ]
    if filtered(card):
        after += [
            f"The value of the privacy filter is epsilon {ledger['epsilon']:.4g}, and no guarantee: "
            + value_of_filter(ledger["epsilon_if_fixed_in_advance"]),
        ]
    tables = [(f"Risk to one {noun}, at most", header, rows)]
    return Part("meaning", title, sentences, tables=tables, after=after)


def filtered(card) -> bool:
    """Whether the epsilon of the ledger is the value of the privacy filter: after several batches of charges."""
    ledger = card["ledger"]
    return ledger["alpha"] is not None and len({charge["batch"] for charge in ledger["charges"]}) > 1


def _of_delta(delta) -> str:
    if not delta > 0:
        return "Delta is 0: this bound holds for every result."
    return (
        "Delta is an allowance: any result may be more probable than this bound allows, by at most "
        f"1 in {1 / delta:,.0f}."
    )


def _risk(name, epsilon, charges, relation) -> tuple:
    advantage = membership_advantage(charges, relation)
    caught = true_positive_rate(charges, FALSE_POSITIVES, relation)
    return name, f"{epsilon:.4g}", _up(advantage, 3), _up(50 * (1 + advantage), 1), _up(100 * caught, 1)


def _up(value: float, digits: int) -> str:
    """A bound, rounded up."""
    scale = 10**digits
    return f"{math.ceil(value * scale - 1e-9) / scale:.{digits}f}"


def _ledger(card, found, entries) -> Part:
    ledger = found["ledger"]
    budget = ledger["budget_epsilon"]
    value = " (the value of the privacy filter)" if filtered(card) else ""
    sentences = [
        f"The ledger records what was spent on these data: {len(entries):,} charge{'s' if len(entries) > 1 else ''}, "
        f"epsilon {ledger['epsilon']:.4g}{value} of a budget of {budget:.4g} at delta {ledger['delta']:.3g}.",
        (
            "This ledger saw this fit alone. If the same rows were used in other fits, under other ledgers, the costs "
            "add up, and this card does not know of them. Ask for one ledger for all fits on the same data."
            if len(entries) == 1
            else "It knows of the fits that were charged to it alone. Ask whether the rows were used under another one."
        ),
    ]
    sentences.append(
        "The card lists every release. The noise multiplier is the standard deviation of its noise, divided by the "
        f"most that one {_noun(card)} can change it. The share of a release is its share of what was spent: the "
        "shares of all releases of the ledger add up to 1, whatever is left of the budget. As in a plan, they are "
        "shares of the squared Gaussian-DP parameter mu."
    )
    report = card.accountant().report()
    rows = [tuple(_cell(value) for value in line) for line in report[_RELEASES].itertuples(index=False)]
    header = ["fit", "release", "mechanism", "noise multiplier", "sampling rate", "count", "share", "status"]
    items = _released(card)
    if items:
        sentences.append("The releases of this fit:")
    return Part("ledger", "What was spent", sentences, items, folded=[("Every release", header, rows)])


# What releases are, by their names, in words for readers who know none of the methods.
_OF_ALL = {
    "unit_rows": "how many rows a unit has, to learn how many of them are used",
    "bounds": "counts of magnitudes, from which bounds were learned",
    "l2_bound": "counts of lengths of rows, from which a limit was learned",
    "classes": "counts of the classes, from which the list of classes was learned",
    "mean": "sums of the rows",
    "moments": "counts and sums that show how values are distributed, and how columns go together",
}
_OF_MODELS = {
    "schema": "counts of magnitudes, years and categories, from which bounds and categories were learned",
    "numbers": "the counts of numbers and dates once more, to see more of them",
    "categories": "the counts of categories once more, to find rarer ones",
    "ranges": "finer counts of numbers far from zero, such as years",
    "bins": "fine counts of the values of numbers and dates",
    "rows": "the number of rows",
    "row_count": "the number of rows",
    "levels": "counts of the categories of columns with very many of them",
    "triples": "how each three columns go together",
    "target": "one step that improves a model of the target",
    "units": "counts of what is constant within a unit",
    "unit_pairs": "how alike the rows of a unit are",
    "norm": "counts of distances from the means",
    "greys": "how many pixels are neither dark nor bright",
    "cells": "counts and sums of parts of each class",
    "features": "sums that show strokes and textures of images",
    "mixture": "sums of each step of fitting groups of similar rows",
    "decoder": "sums of each step of training a network",
}
_WORDS_OF_RELEASES = {
    **dict.fromkeys(("P3GMSynthesizer", "MomentSynthesizer"), _OF_ALL | _OF_MODELS),
    "DPPCA": _OF_ALL,
    "DPGaussianMixture": _OF_ALL | {"em": "sums of each step of fitting groups of similar rows"},
}
# Those that a fit replaces by `moments` once more where they would show nothing.
_OR_MOMENTS = {"numbers", "categories", "ranges", "triples", "target"}


def _released(card) -> list[str]:
    """The releases of the fit that have words here, each once; `numbers` and others may be other counts once more."""
    known = _WORDS_OF_RELEASES.get(str(card["model"]["name"]), {})
    names = dict.fromkeys(
        name for charge in card.charges for name in names_of_releases(charge.label, len(charge.releases))[1]
    )
    said = [f"{name}: {known[name]}" for name in names if name in known]
    if any(name in _OR_MOMENTS for name in names if name in known):
        listed = ", ".join(name for name in names if name in _OR_MOMENTS & set(known))
        said.append(
            f"where one of {listed} would show nothing, the fit measured others of this list again in its place"
        )
    return said


def _public(card) -> Part:
    sentences = [
        "These facts were not protected: they were taken as public. A fact is public if everybody may know it without "
        "these data. A fact that was read off the data, such as the largest income, is not public. Check each one."
    ]
    declared = card.get("declared", {})
    twice = {f"{name}: declared public by the caller" for name in declared}
    stated = [text for text in card["public_assumptions"] if str(text).startswith("constraint, ")]
    if stated and all(any(str(one) in text for text in stated) for one in _listed(declared.get("constraints"))):
        declared = {name: fact for name, fact in declared.items() if name != "constraints"}
    items = [
        *(_assumption(text, card) for text in card["public_assumptions"] if text not in twice),
        *(f"{name}, declared by the caller: {_declared(fact, card)}" for name, fact in declared.items()),
    ]
    if not items:
        items = ["none"]
    folded, lines, after, columns = [], [], [], card.get("columns")
    if isinstance(columns, list) and columns:
        header = ["column", "kind", "facts, taken as public or learned", "source of the public ones"]
        rows = [_column(column) for column in columns]
        folded = [("Columns and the facts of each", header, rows)]
        lines = [_line(*row) for row in rows]
        if any(isinstance(column, dict) and None in column.values() for column in columns):
            after = ["Facts that were learned cost a part of epsilon: they are protected like all results."]
    return Part("public", "What was assumed public", sentences, items, folded=folded, lines=lines, after=after)


def _line(name, kind, facts, source) -> str:
    more = f" ({source})" if source else ""
    return f"{name}: {'; '.join(text for text in (kind, facts) if text)}{more}"


# Where the public facts of a column are from, in words.
_SOURCES = {
    "schema": "declared by the caller",
    "dtype": "type of the column",
    "values": "read from the values of the CSV file, declared public by the caller",
}
# Kinds of columns, where their name in a schema does not say it.
_KINDS = {"id": "invented keys"}


def _column(column) -> tuple:
    if not isinstance(column, dict):
        return str(column), "", "", ""
    known = {key: value for key, value in column.items() if key not in ("name", "kind", "from")}
    facts = [_fact(key, value) for key, value in known.items()]
    source = _SOURCES.get(str(column.get("from")), "")
    kind = str(column.get("kind", ""))
    return str(_name(column)), _KINDS.get(kind, kind), "; ".join(facts), source


def _listed(fact) -> list:
    return fact if isinstance(fact, list) else [fact]


def _fact(key, value) -> str:
    """A fact of a column in words."""
    if value is None:
        return f"{key} learned, and charged"
    if key == "dtype":
        return f"stored as {_words(value)}"
    if key == "hierarchy" and isinstance(value, dict):
        return f"{len(value)} declared groups: {_first(list(value))}"
    if isinstance(value, list) and len(value) > _SHOWN:
        return f"{len(value)} {key}: {_first(value)}"
    return _TRUTHS.get((key, value if isinstance(value, bool) else None)) or f"{key} {_words(value)}"


def _first(values) -> str:
    more = f" and {len(values) - _SHOWN} more, which the card lists" if len(values) > _SHOWN else ""
    return _words(values[:_SHOWN]) + more


# Columns of a unit among the assumptions: the parameter that names them, and what is assumed of them.
_OF_UNIT = {
    "columns of the unit": ("columns", "equal in all rows of a unit"),
    "shared columns of the unit": ("shared", "similar in the rows of a unit"),
}


def _assumption(text, card) -> str:
    """An assumption in words; a number that the fit learned is set apart, and columns of a unit are named."""
    text = str(text)
    unit = (card["model"].get("parameters") or {}).get("unit")
    parameter, what = _OF_UNIT.get(text.removesuffix(": declared public by the caller"), (None, ""))
    names = unit.get(parameter) if isinstance(unit, dict) else None
    if isinstance(names, list):
        return f"columns that are {what}, declared by the caller: {', '.join(map(str, names)) or 'none'}"
    learned = re.sub(
        r"^(most rows used of one unit: \d+), learned by this fit; (which rows .*)$",
        r"\2 (\1; this number was learned, and charged)",
        text,
        flags=re.DOTALL,
    )
    return shortened(learned)


def shortened(text: str) -> str:
    """A text without the middle of a very long one, such as a constraint with a mapping of thousands of values."""
    return text if len(text) <= _LONG else without_middle(text, _ENDS, "more characters, which the card has")


def _declared(fact, card) -> str:
    """A declared fact in words; of a schema, also how many of its columns the rows do not have."""
    columns, said = card.get("columns"), _words(fact)
    if not (isinstance(fact, dict) and set(fact) == {"columns"} and isinstance(columns, list)):
        return said
    more = fact["columns"] - len(columns) if isinstance(fact["columns"], int) else 0
    return said if more <= 0 else f"{said}, and of these {more:,} that the rows do not have, as that of the unit"


def _publish(private, card) -> Part:
    if not private:
        return Part(
            "publish", "What may be published", ["Nothing: neither the rows, nor the model, nor figures of either."]
        )
    sentences = ["May be published, with no further cost, as often as you like:"]
    items = [
        "the synthetic rows, and any statistic of them",
        *(["the table of synthetic units"] if "units" in (card.get("files") or {}) else []),
        "the released model, and more rows drawn from it",
        "this card and this page",
    ]
    after = [
        "Must not be published: the real rows; scores, pictures or reports that compare synthetic with real rows; "
        "predictions or transformed values of real rows; error messages, log files and running times of the fit; the "
        "choice among several fits that was made by such scores."
    ]
    return Part("publish", "What may be published, and what not", sentences, items, after=after)


def _check(card) -> Part:
    files = card.get("files") or {}
    options = "".join(f" {option} {word}" for name, option, word in _OPTIONS if name in files)
    sentences = [
        f"Install skdpgen and run: skdpgen verify card.json{options}",
        "The command recomputes epsilon from the events on the card, repeats each decision of the ledger, and fails if "
        "the card was changed after it was written. The card is not signed: get it from the publisher by a way that "
        "you trust.",
    ]
    items = [f"SHA-256 of the {FILES[name]}: {stated.removeprefix('sha256:')}" for name, stated in files.items()]
    if not files:
        sentences.append(
            "The card states no SHA-256 of a file, so it cannot show which rows or which model it is about."
        )
    rows = [
        ("digest of the card", card["digest"]),
        ("noise", card["noise"]),
        *((f"version of {name}", version) for name, version in card["versions"].items()),
    ]
    return Part("verify", "How to verify it", sentences, items, folded=[("Provenance", ["", "as stated"], rows)])


# Facts of a column that are true or false, in words.
_TRUTHS = {
    ("missing", True): "values may be missing",
    ("missing", False): "no value is missing",
    ("integer", True): "whole numbers",
    ("integer", False): "numbers with decimals",
    ("within_unit", True): "numbers of the rows of a unit",
}
_OPTIONS = (("synthetic", "--data", "ROWS"), ("units", "--units", "UNITS"), ("model", "--model", "MODEL"))


# ---- values ------------------------------------------------------------------------------------------------------
def _name(column) -> Any:
    return column.get("name", "") if isinstance(column, dict) else column


def _words(fact) -> str:
    """A declared fact in words."""
    if isinstance(fact, dict) and "sha256" in fact:
        return f"a list of {fact.get('count')} values, {fact['sha256']}"
    if isinstance(fact, dict) and set(fact) == {"columns"}:
        return f"{fact['columns']} columns declared, which the card lists"
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, list) and not any(isinstance(value, list | dict) for value in fact):
        return ", ".join(map(str, fact))
    return fact if isinstance(fact, str) else json.dumps(fact)


def _cell(value) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    return value.item() if hasattr(value, "item") else value


# ---- the page, and the same in short for a terminal -----------------------------------------------------------------
# Rows of a table on the page; a card may hold twenty thousand charges.
_MOST_ROWS = 2_000
# Items of a list in a terminal, and width of its lines.
_MOST_ITEMS, _MOST_LINES, _WIDTH = 12, 100, 100


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
        for items, most in ((part.items, _MOST_ITEMS), (part.lines, _MOST_LINES)):
            for item in items[:most]:
                lines += _wrapped(item, "  - ")
            if len(items) > most:
                lines.append(f"  and {len(items) - most:,} more, on the card and its page")
        for sentence in part.after:
            lines += _wrapped(sentence, "  ")
    return "\n".join(lines) + "\n"


def _wrapped(text, indent=""):
    inner = " " * len(indent)
    return textwrap.wrap(_short(text), _WIDTH, initial_indent=indent, subsequent_indent=inner, break_on_hyphens=False)


def _short(value):
    """A text of the card on one line, of a very long one the beginning; numbers as they are."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else one_line(value)
