"""Records of a ledger file: JSON text, each sealed by a hash of itself and of everything before it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ..utils.clock import is_day
from ._events import SUBSET_MECHANISMS, Charge, releases_from_json, releases_to_json
from ._filter import STATUSES, Entry, PrivacyFilter, Totals

# Relative tolerance for another processor's rounding, in a sum that is computed again.
_TOLERANCE = 1e-6
_SUMS = ("rdp", "extra", "first_rdp", "first_extra")
_CHARGE_FIELDS = {"batch", "status", "label", "event", "extra_delta", "totals"}
_UNIT_CHARGE_FIELDS = {*_CHARGE_FIELDS, "unit"}
_USE_FIELDS = {"uses", "status", "totals"}
_TAKE_FIELDS = {"of", "takes", "totals"}
_FIT_TAKE_FIELDS = {*_TAKE_FIELDS, "file"}
_END_FIELDS = {"of", "ends", "totals"}
# Mechanisms of the steps of a training; a fit has one of them at most, beside plain Gaussian releases.
_SAMPLED = ("poisson_gaussian", *SUBSET_MECHANISMS)


class Record(NamedTuple):
    """One record: an entry that was accepted, the use of a planned one (`uses` is its number), or steps to be run.

    Steps of DP-SGD are taken from the entry in record `of`, `takes` of them, before they run. `totals` are those after
    the record; taking steps changes none of them, as the entry was charged for all its steps. Of a fit with a
    checkpoint, `file` is the SHA-256 of the checkpoint from which the steps go on, and one last record `ends` the fit
    at the checkpoint from which its model is made. `day` is that of the record of a charge in UTC; files of earlier
    formats hold none.
    """

    entry: Entry | None
    uses: int | None
    status: str | None
    totals: Totals
    of: int | None = None
    takes: int = 0
    file: str | None = None
    ends: bool = False
    day: str | None = None


class FitSteps(NamedTuple):
    """The steps of a fit with a checkpoint, as a ledger file knows them."""

    charge: Charge
    status: str  # of the entry
    # steps, taken: charged, and taken so far
    steps: int
    taken: int
    files: frozenset[str]  # SHA-256 of every checkpoint from which steps were taken
    end: str | None  # that of the checkpoint at which the fit was ended; None while it goes on
    day: str | None  # day of the charge in UTC; None in files of earlier formats


# ---- writing -----------------------------------------------------------------------------------------------------
def charge_record(charge: Charge, batch: int, status: str, totals: Totals, day: str | None = None) -> str:
    """Return the text of an accepted entry, with the totals after it, and the day in files that hold days."""
    return _text(
        {
            **_on(day),
            "batch": batch,
            "status": status,
            "label": charge.label,
            "event": releases_to_json(charge.releases),
            "extra_delta": charge.extra_delta,
            **({} if charge.unit is None else {"unit": charge.unit}),
            "totals": _totals_to_json(totals),
        }
    )


def use_record(number: int, status: str, totals: Totals, day: str | None = None) -> str:
    """Return the text for the use of the planned entry in record `number`."""
    return _text({**_on(day), "uses": number, "status": status, "totals": _totals_to_json(totals)})


def take_record(number: int, count: int, totals: Totals, file: str | None = None) -> str:
    """Return the text for `count` steps taken from the entry in record `number`; `file` as in `Record`."""
    of_fit = {} if file is None else {"file": file}
    return _text({"of": number, "takes": count, "totals": _totals_to_json(totals), **of_fit})


def end_record(number: int, file: str, totals: Totals) -> str:
    """Return the text for the end of the fit in record `number`, at a checkpoint of hash `file`."""
    return _text({"of": number, "ends": file, "totals": _totals_to_json(totals)})


def _on(day: str | None) -> dict[str, str]:
    return {} if day is None else {"day": day}


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _totals_to_json(totals: Totals) -> dict[str, Any]:
    sums = {name: _sum_to_text(getattr(totals, name)) for name in _SUMS}
    return {"batches": totals.batches, "planned": totals.planned, **sums}


def _sum_to_text(value: Fraction | float) -> str:
    return f"{value.numerator}/{value.denominator}" if isinstance(value, Fraction) else "inf"


# ---- the chain ---------------------------------------------------------------------------------------------------
def first_link(parameters: Mapping[str, Any]) -> str:
    """Return the hash that the chain begins with: that of what the file was created with."""
    return link("", _text(parameters))


def link(previous: str, text: str) -> str:
    """Return the hash of a record and of everything before it."""
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


# ---- reading -----------------------------------------------------------------------------------------------------
def parse(text: str) -> Record:
    """Read a record; ValueError for anything but what is written above."""
    content = _load(text)
    if set(content) in (_TAKE_FIELDS, _FIT_TAKE_FIELDS):
        of, takes = _whole(content["of"], "of"), _whole(content["takes"], "takes")
        file = _hash(content["file"]) if "file" in content else None
        return Record(None, None, None, _totals_from_json(content["totals"]), of, takes, file)
    if set(content) == _END_FIELDS:
        totals = _totals_from_json(content["totals"])
        return Record(None, None, None, totals, _whole(content["of"], "of"), 0, _hash(content["ends"]), True)
    day = content.pop("day", None)
    if day is not None and not is_day(day):
        raise ValueError(f"its day is {day!r}")
    status = content.get("status")
    if status not in STATUSES:
        raise ValueError(f"its status is {status!r}")
    totals = _totals_from_json(content.get("totals"))
    if set(content) == _USE_FIELDS:
        if status == "planned":
            raise ValueError("a use cannot be planned")
        return Record(None, _whole(content["uses"], "uses"), status, totals, day=day)
    if set(content) not in (_CHARGE_FIELDS, _UNIT_CHARGE_FIELDS):
        raise ValueError(f"it has the fields {sorted(content)}")
    releases = releases_from_json(content["event"])
    charge = Charge(content["label"], releases, content["extra_delta"], content.get("unit"))
    return Record(Entry(charge, _whole(content["batch"], "batch"), status, day), None, status, totals, day=day)


def totals_of(text: str) -> Totals:
    """Return the totals of a record, without the rest of it."""
    return _totals_from_json(_load(text).get("totals"))


def entries_of(records: Sequence[Record]) -> list[Entry]:
    """Return the entries, in the order of their acceptance, with the status that they have by now.

    Raises ValueError for a use of what was not planned, and for steps taken of what was not charged for them.
    """
    entries: list[Entry] = []
    places: dict[int, int] = {}
    taken: dict[int, int] = {}
    of_fits: dict[int, bool] = {}
    ended: set[int] = set()
    for number, record in enumerate(records, 1):
        if record.of is not None:
            place, of_fit = places.get(record.of), record.file is not None
            steps = 0 if place is None else _steps(entries[place], of_fit=of_fit)
            taken[record.of] = taken.get(record.of, 0) + record.takes
            if not steps or not (record.takes or record.ends):
                raise ValueError(f"entry {number} takes steps where none were charged")
            if of_fits.setdefault(record.of, of_fit) != of_fit:
                raise ValueError(f"entry {number} takes steps of a fit for another training, or the reverse")
            if taken[record.of] > steps:
                raise ValueError(f"entry {number} takes more steps than entry {record.of} was charged for")
            if record.of in ended or (record.ends and taken[record.of] < steps):
                raise ValueError(f"entry {number} goes on with a fit after its end, or ends it before its last step")
            ended.update({record.of} if record.ends else ())
            continue
        if record.entry is not None:
            places[number] = len(entries)
            entries.append(record.entry)
            continue
        place = places.get(record.uses)
        if place is None or entries[place].status != "planned":
            raise ValueError(f"entry {number} uses what was not planned")
        entries[place] = Entry(entries[place].charge, entries[place].batch, record.status, record.day)
    return entries


def steps_of(records: Sequence[Record], number: int) -> tuple[Charge, int, int]:
    """Return the charge in record `number`, the steps that it was charged for, and how many of them were taken.

    Raises ValueError where the record is not the charge of one training by DP-SGD, and of nothing beside it, or waits
    for its use.
    """
    entry = _charged(records, number)
    steps = _steps(entry)
    if not steps or any(later.of == number and later.file is not None for later in records):
        raise ValueError(f"entry {number} was not charged for one training by DP-SGD alone")
    return entry.charge, steps, sum(later.takes for later in records if later.of == number)


def fit_steps_of(records: Sequence[Record], number: int) -> FitSteps:
    """Return what is known of the fit in record `number`, whose charge may hold other releases beside its steps.

    Raises ValueError where the record is not the charge of one fit with steps, or its steps were taken without a
    checkpoint of a fit.
    """
    entry = _charged(records, number)
    steps = _steps(entry, of_fit=True)
    own = [later for later in records if later.of == number]
    if not steps or any(later.file is None for later in own):
        raise ValueError(f"entry {number} was not charged for one fit with a checkpoint")
    files = frozenset(later.file for later in own if not later.ends)
    end = next((later.file for later in own if later.ends), None)
    return FitSteps(entry.charge, entry.status, steps, sum(later.takes for later in own), files, end, entry.day)


def _charged(records: Sequence[Record], number: int) -> Entry:
    """Return the entry in record `number`, with the status that it has by now."""
    record = records[number - 1] if 1 <= number <= len(records) else None
    if record is None or record.entry is None:
        raise ValueError(f"entry {number} is no charge")
    used = next((later for later in records if later.uses == number), record)
    return Entry(record.entry.charge, record.entry.batch, used.status, used.day)


def _steps(entry: Entry, *, of_fit: bool = False) -> int:
    """Steps that can be taken from an entry one by one; 0 for one that is planned, or of other releases.

    A training is charged alone. A fit is charged with the releases before its training, which its checkpoint holds.
    """
    rows = entry.charge.releases
    if of_fit:
        beside = [row for row in rows if row.mechanism == "gaussian"]
        rows = [row for row in rows if row.mechanism in _SAMPLED]
        one_training = len(rows) == 1 and len(beside) == len(entry.charge.releases) - 1
    else:
        one_training = len(rows) == 1 and rows[0].mechanism == "poisson_gaussian"
    return rows[0].count if one_training and entry.status != "planned" else 0


def agree(stated: Totals, computed: Totals) -> bool:
    """Whether the totals that a record states are those computed from the entries, up to rounding."""
    if (stated.batches, stated.planned) != (computed.batches, computed.planned):
        return False
    pairs = [(float(getattr(stated, name)), float(getattr(computed, name))) for name in _SUMS]
    return all(math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-300) for one, other in pairs)


def _load(text: Any) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ValueError("it is not text")
    # not the strict reader: a label may be any text, and a charge must stay readable
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("its lists and objects are too deep") from None
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def _unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field occurs twice")
    return found


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number; got {value!r}")
    return value


def _hash(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError("a hash of a file is no SHA-256")
    return value


def _totals_from_json(value: Any) -> Totals:
    if not isinstance(value, dict) or set(value) != {"batches", "planned", *_SUMS}:
        raise ValueError("its totals are missing")
    counts = {name: _whole(value[name], name) for name in ("batches", "planned")}
    return Totals(**counts, **{name: _sum_from_text(value[name]) for name in _SUMS})


def _sum_from_text(text: Any) -> Fraction | float:
    if text == "inf":
        return math.inf
    found = re.fullmatch(r"([0-9]{1,800})/([1-9][0-9]{0,799})", text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"a total is {text!r}")
    total = Fraction(int(found[1]), int(found[2]))
    if total > 1e300:
        raise ValueError("a total is larger than a float")
    return total


def replay(records: Sequence[Record], rule: PrivacyFilter) -> None:
    """Recompute every total from the entries, and accept every batch again.

    Raises ValueError at the first record that is not so (of which `BudgetExceededError` is one kind).
    """
    entries_of(records)  # what was used had been planned
    batches: dict[int, list[Charge]] = {}
    for record in records:
        if record.entry is not None:
            batches.setdefault(record.entry.batch, []).append(record.entry.charge)
    totals = Totals()
    for number, record in enumerate(records, 1):
        if record.uses is not None:
            totals = totals.used()
        elif record.entry is not None:
            if record.entry.batch != totals.batches:
                rule.check(totals, batches[record.entry.batch])
            totals = rule.add(totals, record.entry.charge, record.entry.batch, record.status)
        if not agree(record.totals, totals):
            raise ValueError(f"the totals of entry {number} are not those of the entries up to it")
