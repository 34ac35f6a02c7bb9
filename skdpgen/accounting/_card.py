"""The privacy card: what was released and what it cost, in a file that anyone can recompute."""

from __future__ import annotations

import json
import math
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._types import check_neighboring
from ..utils.atomic import write_atomically
from ..utils.strict_json import read_json
from ._calibration import FitPlan
from ._card_checks import MOST_BYTES, charge_key, check_candidates, check_kinds, check_work, replay
from ._card_json import (
    ROUNDING,
    agree,
    agree_upward,
    canonical,
    charge_from_json,
    charge_to_json,
    check_fields,
    digest,
    finite_or_inf,
    plain,
    read_float,
    read_list,
)
from ._cost import epsilon_pld, epsilon_rdp, why_bounded
from ._events import mechanisms
from ._filter import STATUSES, Entry, PrivacyFilter, proves_privacy

if TYPE_CHECKING:
    from ._accountant import PrivacyAccountant

__all__ = ["PrivacyCard", "default_versions"]

_FORMAT = "skdpgen-privacy-card-1"
_FIELDS = (
    *("format", "private", "neighboring", "unit", "model", "fit", "ledger", "sampler", "public_assumptions"),
    *("noise", "versions", "digest"),
)
_FIT_FIELDS = ("label", "epsilon", "epsilon_asked", "epsilon_rdp", "delta", "charges")
_LEDGER_FIELDS = (
    *("budget_epsilon", "delta", "delta_reserve", "alpha", "epsilon_spent", "epsilon_if_fixed_in_advance"),
    *("rule", "charges"),
)
_RULES = {
    "none": "no charge",
    "one_batch": "privacy loss distribution of one batch fixed in advance",
    "one_batch_rdp": "Renyi differential privacy of one batch fixed in advance",
    "filter": "Renyi privacy filter: the guarantee is the budget, epsilon_spent is the book value",
    "unlimited": "no limit: privacy loss distribution as if all had been fixed in advance",
}
_SAMPLERS = {
    "gaussian": "none: no draw is hidden; each Gaussian release charged counts as one in which every unit takes part",
    "poisson_gaussian": "poisson: every unit takes part in a step independently, with probability sampling_rate",
    "poisson_subsets": "poisson over subsets of the records: each takes part in a step with probability sampling_rate",
    "one_of_k": "exactly one subset of the records a step, drawn uniformly: sampling_rate is one over their number",
    "index_revealed": "drawn subsets of the records, accounted as if the draws were public",
    "non_private": "not private: a release without noise",
    "repeat_and_select": "repeat and select: a random number of runs, of which the best alone is released",
}


class PrivacyCard:
    """States what one fit released and cost, and the ledger that it was charged to.

    Made by `build`, read by `load` or `from_json`.

    Parameters
    ----------
    content : mapping
        The card's fields; they are checked for presence, and by `verify` for truth.

    Raises
    ------
    ValueError
        When fields are missing or unknown, or of another kind than they are on a card.

    Notes
    -----
    The digest shows that a card was changed by accident or by a careless hand. It is no
    signature: that the events are those that ran is what the publisher vouches for.

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
        check_fields(content, _FIELDS, "card")
        check_fields(content["model"], ("name", "parameters"), "model")
        check_fields(content["fit"], _FIT_FIELDS, "fit")
        check_fields(content["ledger"], _LEDGER_FIELDS, "ledger")
        content = json.loads(canonical(content))
        check_kinds(content)
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
    ) -> PrivacyCard:
        """Write the card of a fit that has been charged.

        Parameters
        ----------
        plan : FitPlan
        accountant : PrivacyAccountant
            That paid for the plan.
        model : str
            Name of the estimator.
        parameters : mapping
            Its public parameters; what JSON cannot hold is named by its type alone.
        unit : str, default="one row"
            What is added, removed or replaced between neighbouring data sets.
        public_assumptions : sequence of str
            What the caller declared public, and so was not paid for.
        noise : str
            Source of the noise, in words.
        private : bool, default=True
            False when something outside the accounting voids the guarantee, such as seeded noise.
        versions : mapping of str to str, default=None
            None is those of the interpreter, this package, numpy, scipy and dp-accounting.

        Returns
        -------
        PrivacyCard

        Raises
        ------
        ValueError
            When the accountant's books do not hold the plan's charge.
        """
        entries = accountant.entries
        if plan.charge not in [entry.charge for entry in entries if entry.used]:
            raise ValueError(f"the plan {plan.label!r} was not charged to this accountant")
        rule = PrivacyFilter(accountant.epsilon, accountant.delta, accountant.neighboring, accountant.delta_reserve)
        everything = [entry.charge for entry in entries]
        content = {
            "format": _FORMAT,
            "private": bool(private) and proves_privacy(entries),
            "neighboring": plan.neighboring,
            "unit": unit,
            "model": {"name": model, "parameters": plain(dict(parameters))},
            "fit": {
                "label": plan.label,
                "epsilon": finite_or_inf(epsilon_pld(plan, plan.delta, plan.neighboring)),
                "epsilon_asked": finite_or_inf(plan.epsilon),
                "epsilon_rdp": finite_or_inf(epsilon_rdp(plan, plan.delta, plan.neighboring)),
                "delta": plan.delta,
                "charges": [charge_to_json(plan.charge)],
            },
            "ledger": {
                "budget_epsilon": finite_or_inf(rule.epsilon),
                "delta": rule.delta,
                "delta_reserve": rule.delta_reserve,
                "alpha": rule.alpha,
                "epsilon_spent": finite_or_inf(rule.spent(entries)),
                "epsilon_if_fixed_in_advance": finite_or_inf(epsilon_pld(everything, rule.delta, rule.neighboring)),
                "rule": _RULES[_rule_of(rule, entries)],
                "charges": [
                    {**charge_to_json(entry.charge), "batch": entry.batch, "status": entry.status} for entry in entries
                ],
            },
            "sampler": [_SAMPLERS[mechanism] for mechanism in mechanisms(plan.event)],
            "public_assumptions": [str(text) for text in public_assumptions],
            "noise": str(noise),
            "versions": dict(default_versions() if versions is None else versions),
        }
        return cls({**content, "digest": digest(content)})

    def __getitem__(self, name: str):
        return self._content[name]

    def __eq__(self, other):
        return isinstance(other, PrivacyCard) and self._content == other._content

    __hash__ = None

    def __repr__(self):
        fit = self["fit"]
        return f"PrivacyCard({self['model']['name']}, epsilon={fit['epsilon']}, delta={fit['delta']})"

    def to_json(self) -> str:
        """Return the card as JSON text."""
        return json.dumps(self._content, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> PrivacyCard:
        """Read a card from JSON text; ValueError if it is none.

        Keys that occur twice in an object, NaN and infinity, and more than 16 MiB are refused: see `utils.strict_json`.
        """
        try:
            content = read_json(text, most_bytes=MOST_BYTES)
        except ValueError as error:
            raise ValueError(f"a privacy card is JSON, and this is not: {error}") from None
        return cls(content)

    def save(self, path: str | os.PathLike) -> None:
        """Write the card to a file."""
        write_atomically(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike) -> PrivacyCard:
        """Read a card from a file; OSError if it cannot be read, ValueError if it is no card."""
        with Path(path).open("rb") as file:
            return cls.from_json(file.read(MOST_BYTES + 1))

    def verify(self) -> dict[str, Any]:
        """Recompute every figure from the events alone.

        Returns
        -------
        dict
            private, neighboring, and under "fit" and "ledger" the epsilon and delta recomputed; under "bounded" what
            was bounded by Renyi differential privacy because the exact figure would take too long, or None.

        Raises
        ------
        ValueError
            At the first thing on the card that is not so; the message names it.
        """
        card = self._content
        if card["format"] != _FORMAT:
            raise ValueError(f"the card's format is {card['format']!r}; this version reads {_FORMAT!r}")
        content = {name: value for name, value in card.items() if name != "digest"}
        if card["digest"] != digest(content):
            raise ValueError("the card was changed after it was written: its digest does not match its content")
        neighboring = check_neighboring(card["neighboring"])
        fit = self._verify_fit(card["fit"], neighboring)
        ledger, entries = self._verify_ledger(card["ledger"], neighboring)
        paid = Counter(charge_key(entry.charge) for entry in entries if entry.used)
        for charge in fit["charges"]:
            if not paid[charge_key(charge)]:
                raise ValueError(f"the fit's charge {charge.label!r} is not in the ledger")
            paid[charge_key(charge)] -= 1
        found = sorted({mechanism for charge in fit["charges"] for mechanism in mechanisms(charge.event)})
        if card["sampler"] != [_SAMPLERS[mechanism] for mechanism in found]:
            raise ValueError("the sampler stated is not that of the fit's events")
        if card["private"] and (math.isinf(ledger["epsilon"]) or not proves_privacy(entries)):
            raise ValueError("the card says that the fit is private, and its ledger says that it is not")
        check_candidates(card["fit"]["label"], card["public_assumptions"])
        return {
            "private": card["private"],
            "neighboring": neighboring,
            "fit": {"epsilon": fit["epsilon"], "delta": fit["delta"]},
            "ledger": ledger,
            "bounded": why_bounded([entry.charge for entry in entries], neighboring),
        }

    def accountant(self) -> PrivacyAccountant:
        """Return the books that the fit was charged to, as a detached accountant: they can be read, not charged.

        Raises
        ------
        ValueError
            When the ledger on the card is not consistent; see `verify`.
        """
        from ._accountant import detached_accountant

        ledger = self["ledger"]
        entries = self._verify_ledger(ledger, check_neighboring(self["neighboring"]))[1]
        budget = read_float(ledger["budget_epsilon"], "ledger: budget_epsilon")
        return detached_accountant(entries, (budget, ledger["delta"], self["neighboring"], ledger["delta_reserve"]))

    @staticmethod
    def _verify_fit(fit: Mapping[str, Any], neighboring: str) -> dict[str, Any]:
        charges = [charge_from_json(item, "fit") for item in read_list(fit["charges"], "fit")]
        check_work(charges, None, neighboring)
        if not charges:
            raise ValueError("fit: there are no charges")
        if fit["label"] not in [charge.label for charge in charges]:
            raise ValueError(f"fit: its label {fit['label']!r} is not that of a charge")
        delta = fit["delta"]
        epsilon = epsilon_pld(charges, delta, neighboring)
        by_rdp = epsilon_rdp(charges, delta, neighboring)
        agree_upward(fit["epsilon"], epsilon, "fit: epsilon")
        agree_upward(fit["epsilon_rdp"], by_rdp, "fit: epsilon_rdp")
        asked = read_float(fit["epsilon_asked"], "fit: epsilon_asked")
        if not epsilon <= asked * (1 + ROUNDING):
            raise ValueError(f"fit: the events cost epsilon {epsilon:.6g}, more than the {asked:.6g} asked for")
        if by_rdp is not None and not epsilon <= 1.001 * by_rdp:
            raise ValueError(f"fit: epsilon by PLD, {epsilon:.6g}, is above that by RDP, {by_rdp:.6g}")
        return {"epsilon": epsilon, "delta": delta, "charges": charges}

    @staticmethod
    def _verify_ledger(ledger: Mapping[str, Any], neighboring: str) -> tuple[dict[str, Any], list[Entry]]:
        rule = PrivacyFilter(
            read_float(ledger["budget_epsilon"], "ledger: budget_epsilon"),
            ledger["delta"],
            neighboring,
            ledger["delta_reserve"],
        )
        agree(ledger["alpha"], rule.alpha, "ledger: alpha")
        entries: list[Entry] = []
        for item in read_list(ledger["charges"], "ledger"):
            batch, status = item.get("batch"), item.get("status")
            last = entries[-1].batch if entries else 0
            if status not in STATUSES or type(batch) is not int or batch not in (max(last, 1), last + 1):
                raise ValueError("ledger: a charge has no lawful batch and status")
            rest = {name: value for name, value in item.items() if name not in ("batch", "status")}
            entries.append(Entry(charge_from_json(rest, "ledger"), batch, status))
        check_work([entry.charge for entry in entries], rule.alpha, neighboring)
        replay(rule, entries)
        spent, total = rule.spent(entries), epsilon_pld([entry.charge for entry in entries], rule.delta, neighboring)
        agree_upward(ledger["epsilon_spent"], spent, "ledger: epsilon_spent")
        agree_upward(ledger["epsilon_if_fixed_in_advance"], total, "ledger: epsilon_if_fixed_in_advance")
        if ledger["rule"] != _RULES[_rule_of(rule, entries)]:
            raise ValueError("ledger: the rule stated is not the one that applied")
        return {"epsilon": spent, "delta": rule.delta, "budget_epsilon": rule.epsilon}, entries


def default_versions() -> dict[str, str]:
    """Versions of the interpreter and of the packages that decide the figures on a card."""
    from .. import __version__

    packages = {name: _installed(name) for name in ("numpy", "scipy", "dp-accounting")}
    return {"python": platform.python_version(), "skdpgen": __version__, **packages}


@lru_cache
def _installed(name: str) -> str:
    """Version of a package: read once, for each reading parses the package's whole description."""
    return metadata.version(name)


def _rule_of(rule: PrivacyFilter, entries: Sequence[Entry]) -> str:
    if not entries:
        return "none"
    if rule.alpha is None:
        return "unlimited"
    if len({entry.batch for entry in entries}) > 1:
        return "filter"
    charges = [entry.charge for entry in entries]
    repeated = any("repeat_and_select" in mechanisms(charge.event) for charge in charges)
    return "one_batch_rdp" if repeated or why_bounded(charges, rule.neighboring) else "one_batch"
