"""The privacy card: the releases of a fit and what they cost, in a file that anyone can recompute."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from numbers import Real
from pathlib import Path
from typing import Any

from .. import __version__
from .._types import BoundedUnit, UnitRelation, check_neighboring, in_words
from ..utils.atomic import write_atomically
from ..utils.clock import is_day, today
from ..utils.strict_json import read_json
from ._accountant import PrivacyAccountant, detached_accountant
from ._calibration import FitPlan
from ._events import Charge, mechanisms, releases_from_json, releases_to_json
from ._facts import plain
from ._filter import STATUSES, Entry, PrivacyFilter, proves_privacy
from ._pricing import check_delta, check_work, epsilon_pld, epsilon_rdp, why_bounded

_FORMAT, _OLD_FORMAT = "skdpgen-privacy-card-2", "skdpgen-privacy-card-1"
_OLD_FIELDS = (
    *("format", "private", "neighboring", "unit", "model", "fit", "ledger", "sampler", "public_assumptions"),
    *("noise", "versions", "digest"),
)
_FIELDS = (*_OLD_FIELDS, "date", "columns", "declared", "files")
# What `with_dataset` adds, and its longest text.
_DATASET, _MOST_OF_DATASET = "dataset", 1_000
# What a card may state the SHA-256 of, in words.
FILES = {"synthetic": "synthetic rows", "model": "model", "units": "table of synthetic units"}
_OPTIONS = {"synthetic": "--data", "model": "--model", "units": "--units"}
_FIT_FIELDS = ("label", "epsilon", "epsilon_asked", "epsilon_rdp", "delta", "charges")
_LEDGER_FIELDS = (
    *("budget_epsilon", "delta", "delta_reserve", "alpha", "epsilon_spent", "epsilon_if_fixed_in_advance"),
    *("rule", "charges"),
)
_RULES = {
    "none": "no charge",
    "one_batch": "privacy loss distribution of one batch fixed in advance",
    "one_batch_rdp": "Renyi differential privacy of one batch fixed in advance",
    "filter": "Renyi privacy filter: the guarantee is the budget, the epsilon spent is the value of the filter",
    "unlimited": "no limit: privacy loss distribution as if all had been fixed in advance",
}
# What a charge may have become since a card was written.
_STATUSES_AFTER = {"planned": ("charged", "seeded"), "charged": (), "seeded": ()}
# Texts of saved cards that say the same.
_OLD_RULES = {"Renyi privacy filter: the guarantee is the budget, epsilon_spent is the book value": _RULES["filter"]}
_SAMPLERS = {
    "gaussian": "none: no draw is hidden; each Gaussian release charged counts as one in which every unit takes part",
    "poisson_gaussian": "poisson: every unit takes part in a step independently, with probability sampling_rate",
    "poisson_subsets": "poisson over subsets of the records: each takes part in a step with probability sampling_rate",
    "one_of_k": "exactly one subset of the records a step, drawn uniformly: sampling_rate is one over their number",
    "index_revealed": "drawn subsets of the records, accounted as if the draws were public",
    "non_private": "not private: a release without noise",
    "repeat_and_select": "repeat and select: a random number of runs, of which the best alone is released",
}

NOT_PRIVATE = "NOT PRIVATE: without noise, or with noise that can be repeated; publish nothing that this made"
ALONE = (
    "this ledger saw this fit alone: any other fit to the same rows adds to the cost, unless all of them are charged "
    "to one ledger"
)
# Epsilon above which a guarantee allows far more than is usual.
_LARGE = 10

# Limits of a card that is read; the page on verifying in the documentation names them.
_MOST_BYTES = 16 * 2**20
_MOST_CHARGES = 20_000
# How far above the recomputed figure an epsilon may be stated: a coarser grid overstates it by less.
_TOLERANCE = 5e-4
# What follows the unit on a card: see `BoundedUnit`.
_OF_A_UNIT = r", at most [1-9][0-9]{0,5} of them used(, which together count 1)?"
# How far below: another processor's rounding, and no more.
_ROUNDING = 1e-6


def remark_on_epsilon(epsilon: float | str, unit: str | None = None) -> str:
    """Return what an epsilon means that protects hardly anybody, in one sentence; "" for a smaller one.

    `unit` is the name of the unit that is protected; None: one row.
    """
    epsilon = float(epsilon)
    if math.isinf(epsilon):
        return NOT_PRIVATE
    if epsilon <= _LARGE:
        return ""
    return (
        f"epsilon {epsilon:.4g} is above {_LARGE}, and protects hardly anybody: what is published may raise the odds "
        f"of a correct guess about {in_words(unit)} by a factor of up to e^{epsilon:.4g}"
        + (f" (about {math.exp(epsilon):.1g})" if epsilon < 700 else "")
    )


def value_of_filter(fixed: float) -> str:
    """Return why the value of the privacy filter is more than the epsilon of the same charges, in sentences.

    `fixed` is the epsilon of the charges if all had been fixed in advance.
    """
    return (
        "a later fit may have been chosen by earlier results, so all are added up by a rule that was fixed for the "
        "whole budget, the privacy filter. The rule overstates a small part of the budget. Fixed in advance, these "
        f"fits would cost {fixed:.4g}. What is left is not reduced by the difference."
    )


def check_dataset(text: str) -> str:
    """Return the name and description of a data set for a card; ValueError unless it is one line of printable text."""
    if not isinstance(text, str):
        raise ValueError(f"the description of a data set must be text; got {type(text).__name__}")
    if not text.strip() or len(text) > _MOST_OF_DATASET or not text.isprintable():
        raise ValueError(
            f"the description of a data set must be one line of 1 to {_MOST_OF_DATASET:,} printable characters; it has "
            f"{len(text):,} characters"
        )
    return text


class PrivacyCard:
    """Statement of the releases of one fit, of their cost, and of the ledger that was charged.

    `build` makes a card; `load` and `from_json` read one.

    Parameters
    ----------
    content : mapping
        Fields of the card. Their presence and types are checked here, their values by `verify`.

    Raises
    ------
    ValueError
        When fields are missing, unknown or of another type.

    Notes
    -----
    The digest shows that a card was changed by accident. It is no signature: the publisher vouches that the events
    are those that ran.

    Examples
    --------
    >>> from skdpgen.accounting import Phase, PrivacyAccountant, PrivacyCard
    >>> accountant = PrivacyAccountant(1.0)
    >>> plan = accountant.calibrate([Phase("moments", 1.0)], label="DPPCA")
    >>> receipt = accountant.charge(plan.event, plan.label)
    >>> card = PrivacyCard.build(plan, accountant, model="DPPCA", parameters={"n_components": 2}, noise="secure")
    >>> PrivacyCard.from_json(card.to_json()).verify()["fit"]
    {'epsilon': 0.99999..., 'delta': 1e-05}
    """

    def __init__(self, content: Mapping[str, Any]):
        old = isinstance(content, Mapping) and content.get("format") == _OLD_FORMAT
        named = isinstance(content, Mapping) and not old and _DATASET in content
        fields = _OLD_FIELDS if old else (*_FIELDS, _DATASET) if named else _FIELDS
        _check_fields(content, fields, "not a privacy card of skdpgen")
        _check_fields(content["model"], ("name", "parameters"), "model")
        _check_fields(content["fit"], _FIT_FIELDS, "fit")
        _check_fields(content["ledger"], _LEDGER_FIELDS, "ledger")
        content = json.loads(_canonical(content))
        _check_kinds(content)
        self._content = content

    @classmethod
    def build(
        cls,
        plan: FitPlan,
        accountant: PrivacyAccountant,
        *,
        model: str,
        parameters: Mapping[str, Any],
        unit: str = "one row",
        public_assumptions: Sequence[str] = (),
        noise: str,
        private: bool = True,
        versions: Mapping[str, str] | None = None,
        date: str | None = None,
        columns: Sequence[Any] | Mapping[str, Any] | None = None,
        declared: Mapping[str, Any] | None = None,
    ) -> PrivacyCard:
        """Write the card of a fit that has been charged.

        Parameters
        ----------
        plan : FitPlan
        accountant : PrivacyAccountant
            The one that was charged for the plan.
        model : str
            Name of the estimator.
        parameters : mapping
            Public parameters of the estimator; those that JSON cannot hold are shown by their type alone.
        unit : str, default="one row"
            Unit that is added, removed or replaced between neighbouring data sets; of a plan with a unit, that of the
            plan.
        public_assumptions : sequence of str
            Facts that the caller declared public, so that they were not charged.
        noise : str
            Source of the noise, in words.
        private : bool, default=True
            False when something outside the accounting voids the guarantee, such as seeded noise.
        versions : mapping of str to str, default=None
            Versions of software; None: of the interpreter, this package, numpy, scipy and dp-accounting.
        date : str, default=None
            Day of the charge in UTC, such as "2024-12-31"; None: today. It holds no time of day, because that would
            say how long a fit took.
        columns : list or dict, default=None
            Columns of the data, with the facts declared of each, or their number; None: not stated.
        declared : mapping, default=None
            Parameters that declare facts about the data, and these facts: bounds, classes and the like.

        Returns
        -------
        PrivacyCard

        Raises
        ------
        ValueError
            When the accountant's ledger does not hold the plan's charge.
        """
        entries = accountant.entries
        if plan.charge not in [entry.charge for entry in entries if entry.used]:
            raise ValueError(f"the plan {plan.label!r} was not charged to this accountant")
        content = {
            "format": _FORMAT,
            "private": bool(private) and proves_privacy(entries),
            "neighboring": plan.neighboring,
            "unit": unit if plan.unit is None else str(plan.unit),
            "model": {"name": model, "parameters": plain(dict(parameters))},
            "fit": _fit_to_json(plan),
            "ledger": _ledger_to_json(accountant._filter, entries),
            "sampler": [_SAMPLERS[mechanism] for mechanism in mechanisms(plan.releases)],
            "public_assumptions": [str(text) for text in public_assumptions],
            "noise": str(noise),
            "versions": dict(default_versions() if versions is None else versions),
            "date": today() if date is None else date,
            "columns": columns,
            "declared": dict(declared or {}),
            "files": {},
        }
        return cls({**content, "digest": digest(content)})

    def with_files(self, **files: str | os.PathLike) -> PrivacyCard:
        """Return the card with the SHA-256 of files that are published with it.

        Parameters
        ----------
        **files : str or path
            ``synthetic=``, the synthetic rows, ``model=``, the released model, and ``units=``, the table of synthetic
            units, each as written.

        Returns
        -------
        PrivacyCard
            Another card of the same fit; files that this one states stay.

        Raises
        ------
        TypeError
            For other names of files.
        OSError
            When a file cannot be read.
        """
        found = {_known_file(name): _file_digest(path) for name, path in files.items()}
        return self._changed(files={**self._content.get("files", {}), **found})

    def check_files(self, **files: str | os.PathLike) -> None:
        """Check that files are those that the card was written with.

        Parameters
        ----------
        **files : str or path
            As in `with_files`.

        Raises
        ------
        ValueError
            For a file with another SHA-256 than the card states, or of which it states none.
        OSError
            When a file cannot be read.
        """
        for name, path in files.items():
            kind = FILES[_known_file(name)]
            stated = self._content.get("files", {}).get(name)
            if stated is None:
                raise ValueError(
                    f"{path}: cannot be checked, because the card states no SHA-256 of the {kind}: the two were not "
                    "written together"
                )
            found = _file_digest(path)
            if found != stated:
                other = next((key for key, known in self["files"].items() if known == found), None)
                meant = "" if other is None else f"; it is the {FILES[other]}: check it by {_OPTIONS[other]}"
                raise ValueError(
                    f"{path}: not the {kind} that the card was written with{meant}: its digest is {found}, and the "
                    f"card states {stated}"
                )

    def with_assumptions(self, *texts: str) -> PrivacyCard:
        """Return the card with more facts that the caller declared public; texts that it has are not repeated."""
        known = self["public_assumptions"]
        return self._changed(public_assumptions=[*known, *(text for text in texts if text not in known)])

    def with_dataset(self, text: str) -> PrivacyCard:
        """Return the card with the name of the data set, and what one row is, in the publisher's words.

        Parameters
        ----------
        text : str
            One line of at most 1,000 printable characters, such as "Visits to the emergency department, 2023; one row
            is one visit". Public: write nothing that you know from the rows alone. It replaces an earlier text.

        Raises
        ------
        ValueError
            For any other text, and for a card of an earlier version.
        """
        return self._changed(**{_DATASET: check_dataset(text)})

    def same_fit(self, other: PrivacyCard) -> bool:
        """Whether two cards are of one fit: they may differ in their files and the name of the data set alone."""
        contents = [{**card._content, "files": {}, _DATASET: "", "digest": ""} for card in (self, other)]
        return contents[0] == contents[1]

    def _changed(self, **fields: Any) -> PrivacyCard:
        if self["format"] == _OLD_FORMAT and (other := [name for name in ("files", _DATASET) if name in fields]):
            raise ValueError(f"a card of an earlier version states no {other[0]}: it stays as it was written")
        content = {**self._content, **fields}
        del content["digest"]
        return type(self)({**content, "digest": digest(content)})

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Charges of the fit, as `membership_advantage` and `epsilon_pld` take them."""
        return tuple(_charge_from_json(item, "fit") for item in self["fit"]["charges"])

    @property
    def relation(self) -> str | UnitRelation:
        """The relation that the noise of the fit follows: between rows, or between all rows of a unit."""
        unit = self.charges[0].unit
        if unit is None:
            return self["neighboring"]
        _check_unit(self["unit"], {unit})
        rest = self["unit"].removeprefix(in_words(unit))
        weighting = "rows" if rest.endswith("used") else "units"
        return UnitRelation(self["neighboring"], BoundedUnit(unit, int(re.search("[0-9]+", rest)[0]), weighting))

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or `default` where the card has none, as one of an earlier version."""
        return self._content.get(name, default)

    def __getitem__(self, name: str):
        if name not in self:
            raise KeyError(f"a privacy card has no field {name!r}: this one has {', '.join(self._content)}")
        return self._content[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._content

    def __iter__(self):
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def keys(self):
        """Return the names of the fields: ``dict(card)`` is a dict of them."""
        return self._content.keys()

    def __eq__(self, other):
        return isinstance(other, PrivacyCard) and self._content == other._content

    __hash__ = None

    def __repr__(self):
        fit = self["fit"]
        warned = "" if self["private"] else "NOT PRIVATE, "
        epsilon = f"{fit['epsilon']:.4g}" if isinstance(fit["epsilon"], float) else fit["epsilon"]
        return f"PrivacyCard({self['model']['name']}, {warned}epsilon={epsilon}, delta={fit['delta']})"

    def _repr_html_(self):
        from ._card_html import card_html

        return card_html(self)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences that a reader of the figures must know: no privacy, a large epsilon, a ledger of one fit."""
        if not self["private"]:
            return (NOT_PRIVATE,)
        large = remark_on_epsilon(self["fit"]["epsilon"], self.charges[0].unit)
        alone = len(self["ledger"]["charges"]) == 1
        return (*((large,) if large else ()), *((ALONE,) if alone else ()))

    def to_json(self) -> str:
        """Return the card as JSON text."""
        return json.dumps(self._content, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> PrivacyCard:
        """Read a card from JSON text; ValueError if it is none.

        Keys that occur twice in an object, NaN and infinity, and more than 16 MiB are refused: see `utils.strict_json`.
        """
        try:
            content = read_json(text, most_bytes=_MOST_BYTES)
        except ValueError as error:
            raise ValueError(f"not a privacy card, which is JSON: {error}") from None
        return cls(content)

    def save(self, path: str | os.PathLike) -> None:
        """Write the card to a file."""
        write_atomically(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike) -> PrivacyCard:
        """Read a card from a file; OSError if it cannot be read, ValueError if it is no card."""
        with Path(path).open("rb") as file:
            return cls.from_json(file.read(_MOST_BYTES + 1))

    def verify(self) -> dict[str, Any]:
        """Recompute every figure from the events alone.

        Returns
        -------
        dict
            private, neighboring; under "fit" and "ledger" the recomputed epsilon and delta, and of the ledger also
            budget_epsilon, epsilon_if_fixed_in_advance and rule; under "bounded" why an epsilon is an upper bound by
            Renyi differential privacy, where the exact figure takes too long, or None. After several batches of
            charges, the epsilon of the ledger is the value of the privacy filter, and the guarantee is the budget.

        Raises
        ------
        ValueError
            At the first field that is not correct; the message names it. Also for a card whose events take too long.
        """
        card = self._content
        if card["format"] not in (_FORMAT, _OLD_FORMAT):
            raise ValueError(f"the card's format is {card['format']!r}; this version reads {_FORMAT!r}")
        content = {name: value for name, value in card.items() if name != "digest"}
        if card["digest"] != digest(content):
            raise ValueError("the card was changed after it was written: its digest does not match its content")
        neighboring = check_neighboring(card["neighboring"])
        fit = self._verify_fit(card["fit"], neighboring)
        ledger, entries = self._verify_ledger(card["ledger"], neighboring)
        charged = Counter(entry.charge for entry in entries if entry.used)
        for charge in fit["charges"]:
            if not charged[charge]:
                raise ValueError(f"the fit's charge {charge.label!r} is not in the ledger")
            charged[charge] -= 1
        _check_unit(card["unit"], {charge.unit for charge in fit["charges"]})
        found = mechanisms(row for charge in fit["charges"] for row in charge.releases)
        if card["sampler"] != [_SAMPLERS[mechanism] for mechanism in found]:
            raise ValueError("the sampler stated is not that of the fit's events")
        if card["private"] and (math.isinf(ledger["epsilon"]) or not proves_privacy(entries)):
            raise ValueError("the card says that the fit is private, and its ledger says that it is not")
        _check_candidates(fit["charges"], card["fit"]["label"], card["public_assumptions"])
        return {
            "private": card["private"],
            "neighboring": neighboring,
            "fit": {"epsilon": fit["epsilon"], "delta": fit["delta"]},
            "ledger": ledger,
            "bounded": why_bounded([entry.charge for entry in entries], neighboring),
        }

    def check_ledger(self, accountant: PrivacyAccountant) -> None:
        """Check that a ledger begins with the charges of the ledger on the card; it may hold later ones.

        Parameters
        ----------
        accountant : PrivacyAccountant

        Raises
        ------
        ValueError
            For a ledger of another unit, relation, budget or delta, or with other charges; the message names the first
            difference. A ledger with equal charges is accepted: a card does not name its file.
        LedgerError
            When the ledger cannot be read.
        """
        where = accountant.ledger or "the accountant"
        known = self.accountant()
        names = ("unit", "neighboring", "delta", "epsilon", "delta_reserve")
        for name in names:
            stated, found = getattr(known, name), getattr(accountant, name)
            if stated != found:
                if name == "unit":
                    stated, found = in_words(stated), in_words(found)
                raise ValueError(
                    f"{where}: not the ledger that the fit of the card was charged to: {name} is {stated} on the card, "
                    f"and {found} in this ledger"
                )
        charged = accountant.entries
        for number, entry in enumerate(known.entries, 1):
            there = charged[number - 1] if number <= len(charged) else None
            if there is None:
                why = f"the card lists {len(known.entries)} charges, and this ledger holds {len(charged)}"
            elif there.charge.label != entry.charge.label:
                why = (
                    f"charge {number} is {entry.charge.label!r} on the card, and {there.charge.label!r} in this ledger"
                )
            elif there.charge != entry.charge:
                why = f"charge {number}, {entry.charge.label!r}, is of other releases on the card than in this ledger"
            elif there.batch != entry.batch or there.status not in (entry.status, *_STATUSES_AFTER[entry.status]):
                why = (
                    f"charge {number}, {entry.charge.label!r}, is {entry.status!r} in batch {entry.batch} on the card, "
                    f"and {there.status!r} in batch {there.batch} in this ledger"
                )
            else:
                continue
            raise ValueError(f"{where}: not the ledger that the fit of the card was charged to: {why}")

    def accountant(self) -> PrivacyAccountant:
        """Return the ledger that the fit was charged to, as a detached accountant: it can be read, not charged.

        Raises
        ------
        ValueError
            When the ledger on the card is not consistent; see `verify`.
        """
        ledger = self["ledger"]
        entries = self._verify_ledger(ledger, check_neighboring(self["neighboring"]))[1]
        budget = _read_float(ledger["budget_epsilon"], "ledger: budget_epsilon")
        unit = entries[0].charge.unit if entries else None
        rule = (budget, ledger["delta"], self["neighboring"], ledger["delta_reserve"], unit)
        return detached_accountant(entries, rule)

    @staticmethod
    def _verify_fit(fit: Mapping[str, Any], neighboring: str) -> dict[str, Any]:
        charges = [_charge_from_json(item, "fit") for item in _read_list(fit["charges"], "fit")]
        check_work(charges, None, neighboring)
        if not charges:
            raise ValueError("fit: there are no charges")
        if fit["label"] not in [charge.label for charge in charges]:
            raise ValueError(f"fit: its label {fit['label']!r} is not that of a charge")
        delta = fit["delta"]
        epsilon = epsilon_pld(charges, delta, neighboring)
        by_rdp = epsilon_rdp(charges, delta, neighboring)
        _agree(fit["epsilon"], epsilon, "fit: epsilon")
        _agree(fit["epsilon_rdp"], by_rdp, "fit: epsilon_rdp")
        asked = _read_float(fit["epsilon_asked"], "fit: epsilon_asked")
        if not epsilon <= asked * (1 + _ROUNDING):
            raise ValueError(f"fit: the events cost epsilon {epsilon:.6g}, more than the {asked:.6g} asked for")
        if by_rdp is not None and not epsilon <= 1.001 * by_rdp:
            raise ValueError(f"fit: epsilon by PLD, {epsilon:.6g}, is above that by RDP, {by_rdp:.6g}")
        return {"epsilon": epsilon, "delta": delta, "charges": charges}

    @staticmethod
    def _verify_ledger(ledger: Mapping[str, Any], neighboring: str) -> tuple[dict[str, Any], list[Entry]]:
        charged = _read_list(ledger["charges"], "ledger")
        rule = PrivacyFilter(
            _read_float(ledger["budget_epsilon"], "ledger: budget_epsilon"),
            ledger["delta"],
            neighboring,
            ledger["delta_reserve"],
            charged[0].get("unit") if charged else None,
        )
        _agree(ledger["alpha"], rule.alpha, "ledger: alpha", _ROUNDING)
        entries: list[Entry] = []
        for item in charged:
            batch, status = item.get("batch"), item.get("status")
            last = entries[-1].batch if entries else 0
            if status not in STATUSES or type(batch) is not int or batch not in (max(last, 1), last + 1):
                raise ValueError("ledger: the batch and status of a charge are not valid")
            rest = {name: value for name, value in item.items() if name not in ("batch", "status")}
            entries.append(Entry(_charge_from_json(rest, "ledger"), batch, status))
        check_work([entry.charge for entry in entries], rule.alpha, neighboring)
        _replay(rule, entries)
        spent, total = rule.spent(entries), epsilon_pld([entry.charge for entry in entries], rule.delta, neighboring)
        _agree(ledger["epsilon_spent"], spent, "ledger: epsilon_spent")
        _agree(ledger["epsilon_if_fixed_in_advance"], total, "ledger: epsilon_if_fixed_in_advance")
        applied = _RULES[_rule_of(rule, entries)]
        if _OLD_RULES.get(ledger["rule"], ledger["rule"]) != applied:
            raise ValueError("ledger: the rule stated is not the one that applied")
        figures = {"epsilon": spent, "delta": rule.delta, "budget_epsilon": rule.epsilon}
        return {**figures, "epsilon_if_fixed_in_advance": total, "rule": applied}, entries


def default_versions() -> dict[str, str]:
    """Versions of the interpreter and of the packages that decide the figures on a card."""
    packages = {name: _installed(name) for name in ("numpy", "scipy", "dp-accounting")}
    return {"python": platform.python_version(), "skdpgen": __version__, **packages}


@lru_cache
def _installed(name: str) -> str:
    """Version of a package. It is cached: a look-up parses the whole description of the package."""
    return metadata.version(name)


def rule_of(accountant: PrivacyAccountant) -> str:
    """Return the rule by which all charges of a ledger are added up, in words."""
    return _RULES[_rule_of(accountant._filter, accountant.entries)]


def _rule_of(rule: PrivacyFilter, entries: Sequence[Entry]) -> str:
    if not entries:
        return "none"
    if rule.alpha is None:
        return "unlimited"
    if len({entry.batch for entry in entries}) > 1:
        return "filter"
    charges = [entry.charge for entry in entries]
    repeated = any("repeat_and_select" in mechanisms(charge.releases) for charge in charges)
    return "one_batch_rdp" if repeated or why_bounded(charges, rule.neighboring) else "one_batch"


# ---- checks --------------------------------------------------------------------------------------
def _check_kinds(content: Mapping[str, Any]) -> None:
    """Refuse fields of another type than `build` writes: later code prints them and assumes their type."""
    for name in ("format", "neighboring", "unit", "noise", "digest"):
        _check_text(content[name], name)
    if not isinstance(content["private"], bool):
        raise ValueError(f"private must be true or false; got {content['private']!r}")
    _check_text(content["model"]["name"], "model: name")
    for name, value in (("model: parameters", content["model"]["parameters"]), ("versions", content["versions"])):
        if not isinstance(value, dict):
            raise ValueError(f"{name}: expected a JSON object, found {type(value).__name__}")
    for name, version in content["versions"].items():
        _check_text(version, f"versions: {name}")
    for name in ("sampler", "public_assumptions"):
        _check_texts(content[name], name)
    _check_text(content["fit"]["label"], "fit: label")
    _check_text(content["ledger"]["rule"], "ledger: rule")
    n_charges = 0
    for name in ("fit", "ledger"):
        check_delta(content[name]["delta"], f"{name}: delta")
        n_charges += len(_read_list(content[name]["charges"], name))
    if n_charges > _MOST_CHARGES:
        raise ValueError(f"a card of more than {_MOST_CHARGES:,} charges is not read; this one has {n_charges:,}")
    reserve = content["ledger"]["delta_reserve"]
    if isinstance(reserve, bool) or not isinstance(reserve, int | float):
        raise ValueError(f"ledger: delta_reserve must be a number; got {reserve!r}")
    if content["format"] != _OLD_FORMAT:
        _check_facts(content)


def _check_facts(content: Mapping[str, Any]) -> None:
    """Refuse what `build` and `with_files` do not write of a day, of columns, declared facts and files."""
    if not is_day(content["date"]):
        raise ValueError(f"date must be a day such as 2024-12-31; got {content['date']!r}")
    if not isinstance(content["columns"], list | dict | None):
        raise ValueError("columns must be a list, an object or null")
    for column in content["columns"] if isinstance(content["columns"], list) else ():
        name = column.get("name") if isinstance(column, dict) else column
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise ValueError("columns: each must have a name, which is text or a whole number")
    if _DATASET in content:
        check_dataset(content[_DATASET])
    if not isinstance(content["declared"], dict):
        raise ValueError("declared must be an object")
    files = content["files"]
    if not isinstance(files, dict) or not set(files) <= set(FILES):
        raise ValueError(f"files must be an object with {', '.join(FILES)} alone")
    for name, stated in files.items():
        if not isinstance(stated, str) or re.fullmatch(r"sha256:[0-9a-f]{64}", stated) is None:
            raise ValueError(f"files: that of {name} must be sha256: and 64 hexadecimal digits")


def _check_unit(stated: str, units: set[str | None]) -> None:
    """Refuse a card whose words on who is protected are not those of the charges of the fit.

    Earlier versions wrote other words for charges that protect rows; these stay as they are.
    """
    if len(units) > 1:
        raise ValueError("the charges of the fit protect different units")
    unit = next(iter(units))
    if unit is None:
        agrees = not stated.startswith("all rows of one ")
    else:
        agrees = re.fullmatch(re.escape(in_words(unit)) + _OF_A_UNIT, stated) is not None
    if not agrees:
        raise ValueError(f"the unit is stated as {stated!r}, and the charges of the fit protect {in_words(unit)}")


def _replay(rule: PrivacyFilter, entries: Sequence[Entry]) -> None:
    """Refuse a ledger whose batches the privacy filter would not have accepted in their order.

    Batches after the first never lower the sums that the rule limits: it would have refused one of them if and only if
    it refuses all of them together.
    """
    first = [entry for entry in entries if entry.batch == entries[0].batch]
    later = [entry.charge for entry in entries[len(first) :]]
    try:
        if first:
            rule.check([], [entry.charge for entry in first])
        if later:
            rule.check(first, later)
    except ValueError as error:
        which = f"batch {entries[-1].batch}" if later else "its first batch"
        raise ValueError(f"ledger: its rule would have refused {which}, or one before it: {error}") from None


def _check_candidates(charges: Sequence[Charge], label: str, assumptions: Sequence[str]) -> None:
    """Refuse the card of a search that does not list all candidates: the cost assumes a list fixed in advance.

    A search is what made a random number of runs: its event says so, whatever its label is. Candidates with equal
    releases are one alternative of that event, and the score is another, so there are at least as many candidates as
    alternatives but one.
    """
    repeated = [row.repeated for charge in charges for row in charge.releases if row.repeated is not None]
    # where the search has learned how many rows of a unit it uses, the name of the estimator comes last
    named = re.fullmatch(r"PrivateSearchCV(?: \([^:]*\))?: .*, (\d+) candidates( of .*)?", label, flags=re.DOTALL)
    if named is None and not repeated:
        return
    listed = [m for text in assumptions if (m := re.match(r"candidate (\d{1,9}) of (\d{1,9}): ", text))]
    fewest = max([1, *(len(repetition.alternatives) - 1 for repetition in repeated)])
    n = max(len(listed), fewest) if named is None else int(named[1])
    if len(listed) != n or n < fewest or any((int(m[1]), int(m[2])) != (k, n) for k, m in enumerate(listed, start=1)):
        at_least = "at least " * (named is None)
        raise ValueError(f"the search had {at_least}{n} candidates, and the card does not list each of them")


# ---- JSON ----------------------------------------------------------------------------------------
def _canonical(content: Any) -> str:
    """Return JSON text that is the same for equal contents; ValueError for what JSON cannot hold."""
    try:
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a card holds what JSON cannot: {error}") from None


def digest(content: Mapping[str, Any]) -> str:
    """Return the digest of a card's content."""
    return "sha256:" + hashlib.sha256(_canonical(content).encode("utf-8")).hexdigest()


def _known_file(name: str) -> str:
    if name not in FILES:
        raise TypeError(f"the files of a card are {', '.join(FILES)}; got {name}")
    return name


def _file_digest(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file as it lies on disk."""
    found = hashlib.sha256()
    with Path(path).open("rb") as file:
        while part := file.read(2**20):
            found.update(part)
    return f"sha256:{found.hexdigest()}"


def _finite_or_inf(value: float | None) -> float | str | None:
    """Return the number, or "inf" for infinity."""
    return "inf" if value is not None and math.isinf(value) else value


def _read_float(value: Any, name: str) -> float:
    """Read what `_finite_or_inf` wrote; ValueError for anything else."""
    if isinstance(value, str) and value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number or 'inf'; got {value!r}")
    return float(value)


def _agree(stated: Any, computed: float | None, name: str, most_above: float = _TOLERANCE) -> None:
    """Raise ValueError unless a stated figure is the computed one, or at most `most_above` of it more: never less."""
    if computed is None or stated is None:
        same = computed is None and stated is None
    else:
        value = _read_float(stated, name)
        low, high = computed * (1 - _ROUNDING) - 1e-9, computed * (1 + most_above) + 1e-9
        same = value == computed or low <= value <= high < math.inf
    if not same:
        raise ValueError(f"{name} is stated as {stated!r}, and the events give {computed!r}")


def _check_fields(value: Any, wanted: Sequence[str], name: str) -> None:
    """Raise ValueError unless an object has the fields wanted, and no other."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected a JSON object, found {type(value).__name__}")
    missing, unknown = sorted(set(wanted) - set(value)), sorted(map(str, set(value) - set(wanted)))
    if missing or unknown:
        raise ValueError(f"{name}: missing fields {missing}, unknown fields {unknown}")


def _check_text(value: Any, name: str) -> None:
    """Raise ValueError unless a value is text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; got {type(value).__name__}")


def _check_texts(value: Any, name: str) -> None:
    """Raise ValueError unless a value is a list of texts."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{name} must be a list of texts")


def _read_list(value: Any, name: str) -> list[Mapping[str, Any]]:
    """Return a list of objects; ValueError for anything else."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError(f"{name}: charges must be a list of JSON objects")
    return value


def _fit_to_json(plan: FitPlan) -> dict[str, Any]:
    """Return what a card says of a fit alone."""
    return {
        "label": plan.label,
        "epsilon": _finite_or_inf(epsilon_pld(plan, plan.delta, plan.neighboring)),
        "epsilon_asked": _finite_or_inf(plan.epsilon),
        "epsilon_rdp": _finite_or_inf(epsilon_rdp(plan, plan.delta, plan.neighboring)),
        "delta": plan.delta,
        "charges": [_charge_to_json(plan.charge)],
    }


def _ledger_to_json(rule: PrivacyFilter, entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what a card says of the ledger that the fit was charged to."""
    everything = [entry.charge for entry in entries]
    return {
        "budget_epsilon": _finite_or_inf(rule.epsilon),
        "delta": rule.delta,
        "delta_reserve": rule.delta_reserve,
        "alpha": rule.alpha,
        "epsilon_spent": _finite_or_inf(rule.spent(entries)),
        "epsilon_if_fixed_in_advance": _finite_or_inf(epsilon_pld(everything, rule.delta, rule.neighboring)),
        "rule": _RULES[_rule_of(rule, entries)],
        "charges": [
            {**_charge_to_json(entry.charge), "batch": entry.batch, "status": entry.status} for entry in entries
        ],
    }


def _charge_to_json(charge: Charge) -> dict[str, Any]:
    """Return a charge as plain values."""
    unit = {} if charge.unit is None else {"unit": charge.unit}
    event = releases_to_json(charge.releases)
    return {"label": charge.label, "event": event, "extra_delta": charge.extra_delta, **unit}


def _charge_from_json(value: Mapping[str, Any], name: str) -> Charge:
    """Read what `_charge_to_json` wrote; ValueError for anything else."""
    fields = ("label", "event", "extra_delta", *(("unit",) if isinstance(value, Mapping) and "unit" in value else ()))
    _check_fields(value, fields, f"{name}: charge")
    return Charge(value["label"], releases_from_json(value["event"]), value["extra_delta"], value.get("unit"))
