"""Releases: what a fit does to the data, as plain tuples, as dp-accounting events and as JSON.

A tuple of `Release` describes a mechanism fully: every epsilon in the package is computed from it alone. Events of
dp-accounting are the public form of the same description.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.dp_event import RepeatAndSelectDpEvent

from ..utils.printing import shown
from ..utils.strict_json import read_json

# Ranges of the numbers in a release. Beyond them an epsilon overflows or is lost in rounding; a fit uses far less.
NOISE_RANGE = (1e-12, 1e18)
LEAST_RATE = 1e-12
# Equal releases of one kind, steps among them.
MOST_COUNT = 10**12
# Different releases in one event.
MOST_RELEASES = 100_000
# Mean number of runs of a repetition, and the different events that one of its runs may be.
MOST_RUNS = 1e6
MOST_ALTERNATIVES = 1_000

# Mechanism of steps on subsets of the records, and what its noise multiplier is a multiple of.
SUBSET_MECHANISMS = {
    "poisson_subsets": "the bound C of one subset's contribution; every subset takes part with probability q",
    "one_of_k": "2 C; exactly one of K subsets takes part, q = 1 / K, and encoders do not depend on which",
    "index_revealed": "2 C; a subset takes part with probability q, and the drawn subset counts as public",
}
# Distribution of the number of runs, and its shape parameter in dp-accounting.
RUNS = {"poisson": math.inf, "logarithmic": 0.0}


class Release(NamedTuple):
    """One primitive of an event: `count` equal releases. It is hashable, so figures can be cached by it."""

    mechanism: str
    noise_multiplier: float | None
    sampling_rate: float | None
    count: int
    repeated: Repetition | None = None  # for "repeat_and_select" alone


class Repetition(NamedTuple):
    """A random number of runs, of which the best is released; `alternatives` are the releases that one run may be."""

    runs: str
    mean: float
    alternatives: tuple[tuple[Release, ...], ...]


@dataclass(frozen=True)
class OneOfDpEvent(DpEvent):
    """One of several events takes place; the choice does not depend on the data.

    A mixture over a public draw (which candidate is tried), or releases of disjoint sets of units (a unit is in the
    rows of the fit or in those of the score). Its RDP is the largest at each order: the divergence is quasi-convex.
    """

    events: tuple[DpEvent, ...]


@dataclass(frozen=True)
class SubsetSampledDpEvent(DpEvent):
    """A Gaussian release of the subsets that a sampler draws; a record changes the contribution of its subset."""

    mechanism: str  # a key of `SUBSET_MECHANISMS`
    sampling_rate: float  # probability that a given subset takes part
    event: DpEvent  # its noise multiplier is a multiple of what `SUBSET_MECHANISMS` says


# ---- making events -------------------------------------------------------------------------------
def gaussian_event(noise_multiplier: float, count: int = 1) -> DpEvent:
    """Describe `count` Gaussian releases of one noise multiplier.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the L2 sensitivity *under the relation in force*, in [1e-12, 1e18].
        The caller applies the relation to the sensitivity; the cost of the event does not depend on it.
    count : int, default=1
        Number of releases, at most 1e12.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For a multiplier or a count out of range (without noise, use `non_private_event`).

    Examples
    --------
    >>> from skdpgen.accounting import describe_event, gaussian_event
    >>> describe_event(gaussian_event(4.0, count=3))
    [{'mechanism': 'gaussian', 'noise_multiplier': 4.0, 'sampling_rate': None, 'count': 3}]
    """
    return event_of((checked_release("gaussian", noise_multiplier, None, count, "count"),))


def poisson_gaussian_event(sampling_rate: float, noise_multiplier: float, steps: int) -> DpEvent:
    """Describe `steps` Gaussian releases, each of a fresh Poisson sample of the units.

    Parameters
    ----------
    sampling_rate : float
        Probability, in [1e-12, 1], that a unit takes part in a step; independent over units and steps.
    noise_multiplier : float
        Standard deviation of the noise over the L2 bound of *one unit's contribution*, under both
        relations, in [1e-12, 1e18]. (Under replace_one the cost accounts for the two contributions.)
    steps : int
        Number of steps, at most 1e12; an empty sample is a step too.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For a rate, a multiplier or a number of steps out of range.

    Examples
    --------
    >>> from skdpgen.accounting import describe_event, poisson_gaussian_event
    >>> describe_event(poisson_gaussian_event(0.01, 1.5, steps=100))
    [{'mechanism': 'poisson_gaussian', 'noise_multiplier': 1.5, 'sampling_rate': 0.01, 'count': 100}]
    """
    return event_of((checked_release("poisson_gaussian", noise_multiplier, sampling_rate, steps),))


def subset_gaussian_event(mechanism: str, sampling_rate: float, noise_multiplier: float, steps: int) -> DpEvent:
    """Describe `steps` Gaussian releases, each of the subsets that a sampler draws.

    Parameters
    ----------
    mechanism : {"poisson_subsets", "one_of_k", "index_revealed"}
    sampling_rate : float
        Probability, in [1e-12, 1], that a given subset takes part in a step; 1 / K, K an integer, for "one_of_k".
    noise_multiplier : float
        Standard deviation over the bound C of a subset's contribution ("poisson_subsets"), or over 2 C, in
        [1e-12, 1e18]; the same under both relations, and so is the cost.
    steps : int
        At most 1e12.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For an unknown mechanism, or a number out of range.

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_pld, subset_gaussian_event
    >>> event = subset_gaussian_event("poisson_subsets", 1 / 2500, 0.375, 10_000)
    >>> round(epsilon_pld(event, 1e-5, "add_or_remove_one"), 1)
    10.0
    """
    if mechanism not in SUBSET_MECHANISMS:
        raise ValueError(f"mechanism must be one of {', '.join(map(repr, SUBSET_MECHANISMS))}; got {shown(mechanism)}")
    return event_of((checked_release(mechanism, noise_multiplier, sampling_rate, steps),))


def non_private_event() -> DpEvent:
    """Describe a release without any guarantee (no noise).

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_pld, non_private_event
    >>> epsilon_pld(non_private_event(), 1e-5, "replace_one")
    inf
    """
    return NonPrivateDpEvent()


def repeat_and_select_event(one_of: Sequence[DpEvent], runs: str, mean: float) -> DpEvent:
    """Describe a random number of runs, of which only the best, with its score, is released.

    Parameters
    ----------
    one_of : sequence of dp_accounting.DpEvent
        The events that a run may be, at most 1,000. They are fixed in advance, and the choice among them does not
        depend on the data.
    runs : {"poisson", "logarithmic"}
        Distribution of the number of runs. Poisson may draw zero; a fixed public result then stands for the best.
    mean : float
        Mean number of runs, from 1 to 1e6.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For no event, one that is not private or is itself a repetition, an unknown distribution, a mean below 1.

    References
    ----------
    N. Papernot, T. Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022, Theorems 2 and 6.

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_pld, gaussian_event, repeat_and_select_event
    >>> search = repeat_and_select_event([gaussian_event(5.0)], "poisson", 5)
    >>> round(epsilon_pld(search, 1e-5, "add_or_remove_one"), 2)
    1.35
    """
    return event_of((_repetition([releases(event) for event in one_of], runs, mean, 1),))


def compose_events(events: Iterable[DpEvent]) -> DpEvent:
    """Join events, all fixed before the first of them runs, into one.

    Parameters
    ----------
    events : iterable of dp_accounting.DpEvent
        At least one. Nesting is flattened; the order is kept.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        If there is no event, or one of an unknown kind.

    Examples
    --------
    >>> from skdpgen.accounting import compose_events, describe_event, gaussian_event
    >>> whole = compose_events([gaussian_event(4.0), gaussian_event(8.0, count=2)])
    >>> [row["count"] for row in describe_event(whole)]
    [1, 2]
    """
    return event_of(_composed(releases(event) for event in events))


def describe_event(event: DpEvent) -> list[dict[str, Any]]:
    """List the primitive releases of an event, each as a plain dict.

    Parameters
    ----------
    event : dp_accounting.DpEvent

    Returns
    -------
    list of dict
        Keys mechanism, noise_multiplier, sampling_rate (None without sampling) and count; for a repetition also runs,
        mean and one_of, the rows of each event that a run may be.

    Raises
    ------
    ValueError
        For an event of an unknown kind.
    """
    return [_describe(row) for row in releases(event)]


def _describe(row: Release) -> dict[str, Any]:
    fields = row._asdict()
    repeated = fields.pop("repeated")
    if repeated is not None:
        fields.update(runs=repeated.runs, mean=repeated.mean)
        fields["one_of"] = [[_describe(part) for part in rows] for rows in repeated.alternatives]
    return fields


def mechanisms(rows: Iterable[Release]) -> list[str]:
    """Return the kinds of release, those within a repetition included, in alphabetical order."""
    rows = list(rows)
    rows += [part for row in rows if row.repeated is not None for inner in row.repeated.alternatives for part in inner]
    return sorted({row.mechanism for row in rows})


# ---- checked releases ----------------------------------------------------------------------------
def checked_release(mechanism: str, noise_multiplier: Any, sampling_rate: Any, count: Any, name="steps") -> Release:
    """Return a release whose numbers lie in their ranges; ValueError for others."""
    if mechanism != "gaussian":
        sampling_rate = _positive(sampling_rate, "sampling_rate")
        if sampling_rate > 1:
            raise ValueError(f"sampling_rate must lie in (0, 1]; got {sampling_rate!r}")
        if sampling_rate < LEAST_RATE:
            raise ValueError(f"sampling_rate must be at least {LEAST_RATE:g}; got {sampling_rate!r}")
        if mechanism == "one_of_k" and abs(round(1 / sampling_rate) * sampling_rate - 1) > 1e-9:
            raise ValueError(
                f"sampling_rate of 'one_of_k' must be 1 / K for a whole number K of subsets; got {sampling_rate!r}"
            )
    noise_multiplier = _positive(noise_multiplier, "noise_multiplier")
    low, high = NOISE_RANGE
    if not low <= noise_multiplier <= high:
        raise ValueError(f"noise_multiplier must lie in [{low:g}, {high:g}]; got {noise_multiplier!r}")
    return Release(mechanism, noise_multiplier, sampling_rate, _count(count, name))


def _repetition(alternatives: Iterable[tuple[Release, ...]], runs: Any, mean: Any, count: Any) -> Release:
    """Return a repetition whose parts may be repeated; ValueError for others."""
    if runs not in RUNS:
        raise ValueError(f"runs must be one of {', '.join(map(repr, RUNS))}; got {shown(runs)}")
    if isinstance(mean, bool) or not isinstance(mean, numbers.Real) or not 1 <= mean < math.inf:
        raise ValueError(f"the mean number of runs must be a finite number, at least 1; got {shown(mean)}")
    if mean > MOST_RUNS:
        raise ValueError(f"the mean number of runs must be at most {MOST_RUNS:g}; got {mean!r}")
    alternatives = tuple(dict.fromkeys(alternatives))
    if any(row.mechanism in ("non_private", "repeat_and_select") for rows in alternatives for row in rows):
        raise ValueError("a run must be private, and not a repetition itself")
    if not alternatives:
        raise ValueError("repeat_and_select needs at least one event")
    if len(alternatives) > MOST_ALTERNATIVES or sum(map(len, alternatives)) > MOST_RELEASES:
        raise ValueError(
            f"a run may be one of at most {MOST_ALTERNATIVES} events, of {MOST_RELEASES} releases in all; got "
            f"{len(alternatives)} events"
        )
    repetition = Repetition(runs, float(mean), alternatives)
    return Release("repeat_and_select", None, None, _count(count, "count"), repetition)


def _composed(parts: Iterable[tuple[Release, ...]]) -> tuple[Release, ...]:
    rows = tuple(row for part in parts for row in part)
    if not rows:
        raise ValueError("an event must hold at least one release")
    if len(rows) > MOST_RELEASES:
        raise ValueError(f"an event may hold at most {MOST_RELEASES} different releases; this one has {len(rows)}")
    return rows


def _positive(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a positive finite number; got {shown(value)}")
    try:
        value = float(value)
    except OverflowError:  # of an integer
        raise ValueError(f"{name} must be a positive finite number; this one is too large") from None
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive finite number; got {shown(value)}")
    return value


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1; got {shown(value)}")
    if value > MOST_COUNT:
        raise ValueError(f"{name} must be at most {MOST_COUNT:g}")
    return int(value)


# ---- dp-accounting events ------------------------------------------------------------------------
def releases(event: DpEvent) -> tuple[Release, ...]:
    """Flatten an event into its primitive releases, in order; ValueError for an event whose cost is not known."""
    if isinstance(event, NonPrivateDpEvent):
        return (Release("non_private", 0.0, None, 1),)
    if isinstance(event, GaussianDpEvent):
        return (checked_release("gaussian", event.noise_multiplier, None, 1),)
    if isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        return (checked_release("poisson_gaussian", event.event.noise_multiplier, event.sampling_probability, 1),)
    if isinstance(event, SubsetSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        if event.mechanism in SUBSET_MECHANISMS:
            return (checked_release(event.mechanism, event.event.noise_multiplier, event.sampling_rate, 1),)
        raise ValueError(f"unknown mechanism of steps on subsets: {event.mechanism!r}")
    if isinstance(event, SelfComposedDpEvent):
        return _times(releases(event.event), _count(event.count, "count"))
    if isinstance(event, ComposedDpEvent):
        return _composed(releases(part) for part in event.events)
    if isinstance(event, RepeatAndSelectDpEvent):
        runs = [name for name, shape in RUNS.items() if shape == event.shape]
        if not runs:
            raise ValueError(f"unknown distribution of the number of runs: shape {event.shape!r}, not {RUNS}")
        one_of = event.event.events if isinstance(event.event, OneOfDpEvent) else (event.event,)
        return (_repetition([releases(part) for part in one_of], runs[0], event.mean, 1),)
    raise ValueError(
        f"the cost of an event of type {type(event).__name__} is not known; use gaussian_event, "
        "poisson_gaussian_event, subset_gaussian_event, non_private_event and compose_events"
    )


def _checked(rows: tuple[Any, ...]) -> tuple[Release, ...]:
    """Return releases that were given as such; ValueError for others than `releases` makes, whose cost is not known."""
    if not all(isinstance(row, Release) and row == _made_again(row) for row in rows):
        raise ValueError("the cost of these releases is not known: give an event")
    return _composed([rows])


def _made_again(row: Release) -> Release | None:
    if row.mechanism == "gaussian":
        return checked_release("gaussian", row.noise_multiplier, None, row.count)
    if row.mechanism in ("poisson_gaussian", *SUBSET_MECHANISMS):
        return checked_release(row.mechanism, row.noise_multiplier, row.sampling_rate, row.count)
    if row.mechanism == "repeat_and_select" and isinstance(row.repeated, Repetition):
        alternatives = [_checked(part) for part in row.repeated.alternatives]
        return _repetition(alternatives, row.repeated.runs, row.repeated.mean, row.count)
    return Release("non_private", 0.0, None, 1)


def _times(rows: tuple[Release, ...], count: int) -> tuple[Release, ...]:
    if any(row.mechanism == "non_private" for row in rows):
        return rows
    return tuple(row._replace(count=_count(row.count * count, "count")) for row in rows)


def event_of(rows: tuple[Release, ...]) -> DpEvent:
    """Return the event of releases: the inverse of `releases`."""
    if not rows:
        raise ValueError("an event must hold at least one release")
    events = [_event_of_row(row) for row in rows]
    return events[0] if len(events) == 1 else ComposedDpEvent(events)


def _event_of_row(row: Release) -> DpEvent:
    if row.mechanism == "non_private":
        return NonPrivateDpEvent()
    if row.repeated is not None:
        parts = tuple(event_of(part) for part in row.repeated.alternatives)
        inner = parts[0] if len(parts) == 1 else OneOfDpEvent(parts)
        event = RepeatAndSelectDpEvent(inner, row.repeated.mean, RUNS[row.repeated.runs])
    else:
        event = GaussianDpEvent(row.noise_multiplier)
        if row.mechanism == "poisson_gaussian":
            event = PoissonSampledDpEvent(row.sampling_rate, event)
        elif row.mechanism in SUBSET_MECHANISMS:
            event = SubsetSampledDpEvent(row.mechanism, row.sampling_rate, event)
    return event if row.count == 1 else SelfComposedDpEvent(event, row.count)


# ---- JSON ----------------------------------------------------------------------------------------
_FIELDS = {
    "gaussian": {"noise_multiplier", "count"},
    "poisson_gaussian": {"sampling_rate", "noise_multiplier", "steps"},
    **{key: {"sampling_rate", "noise_multiplier", "steps"} for key in SUBSET_MECHANISMS},
    "non_private": set(),
    "repeat_and_select": {"runs", "mean", "one_of", "count"},
    "composed": {"events"},
}


def event_to_json(event: DpEvent) -> dict[str, Any]:
    """Turn an event into plain dicts, lists and numbers; every float survives the round trip.

    Parameters
    ----------
    event : dp_accounting.DpEvent

    Returns
    -------
    dict
        Ready for `json.dumps`.

    Raises
    ------
    ValueError
        For an event of an unknown kind.

    Examples
    --------
    >>> from skdpgen.accounting import event_to_json, gaussian_event
    >>> event_to_json(gaussian_event(4.0))
    {'type': 'gaussian', 'noise_multiplier': 4.0, 'count': 1}
    """
    return releases_to_json(releases(event))


def event_from_json(value: str | Mapping[str, Any]) -> DpEvent:
    """Read an event written by `event_to_json`; any other content is refused.

    Parameters
    ----------
    value : dict or str
        The dict, or its JSON text.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For malformed JSON, an unknown type, a missing or unknown field, or a number out of range.

    Examples
    --------
    >>> from skdpgen.accounting import event_from_json
    >>> event_from_json('{"type": "gaussian", "noise_multiplier": 4.0, "count": 1}')
    GaussianDpEvent(noise_multiplier=4.0)
    """
    return event_of(releases_from_json(value))


def releases_to_json(rows: tuple[Release, ...]) -> dict[str, Any]:
    """Return plain dicts, lists and numbers."""
    parts = [_row_to_json(row) for row in rows]
    return parts[0] if len(parts) == 1 else {"type": "composed", "events": parts}


def _row_to_json(row: Release) -> dict[str, Any]:
    if row.mechanism == "non_private":
        return {"type": "non_private"}
    if row.mechanism == "gaussian":
        return {"type": "gaussian", "noise_multiplier": row.noise_multiplier, "count": row.count}
    if row.repeated is not None:
        one_of = [releases_to_json(part) for part in row.repeated.alternatives]
        return {
            "type": "repeat_and_select",
            "runs": row.repeated.runs,
            "mean": row.repeated.mean,
            "one_of": one_of,
            "count": row.count,
        }
    return {
        "type": row.mechanism,
        "sampling_rate": row.sampling_rate,
        "noise_multiplier": row.noise_multiplier,
        "steps": row.count,
    }


def releases_from_json(value: str | Mapping[str, Any]) -> tuple[Release, ...]:
    """Read what `releases_to_json` wrote, or its JSON text; ValueError for anything else."""
    if isinstance(value, str):
        return _releases_from_text(value)
    kind = value.get("type") if isinstance(value, Mapping) else value
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ValueError(f"unknown event type {kind!r}; known are {', '.join(sorted(_FIELDS))}")
    given, wanted = set(value) - {"type"}, _FIELDS[kind]
    if given != wanted:
        missing, extra = sorted(wanted - given), sorted(map(str, given - wanted))
        raise ValueError(f"event of type {kind!r}: missing fields {missing}, unknown fields {extra}")
    if kind == "non_private":
        return (Release("non_private", 0.0, None, 1),)
    if kind == "gaussian":
        return (checked_release(kind, value["noise_multiplier"], None, value["count"], "count"),)
    if kind == "repeat_and_select":
        return (_repetition_from_json(value),)
    if kind != "composed":
        return (checked_release(kind, value["noise_multiplier"], value["sampling_rate"], value["steps"]),)
    if not isinstance(value["events"], list):
        raise ValueError("event of type 'composed': events must be a list")
    return _composed(releases_from_json(_object(part)) for part in value["events"])


def _repetition_from_json(value: Mapping[str, Any]) -> Release:
    if not isinstance(value["one_of"], list):
        raise ValueError("event of type 'repeat_and_select': one_of must be a list")
    if not isinstance(value["runs"], str):
        raise ValueError(f"event of type 'repeat_and_select': runs must be a string; got {value['runs']!r}")
    one_of = [releases_from_json(_object(part)) for part in value["one_of"]]
    return _repetition(one_of, value["runs"], value["mean"], value["count"])


def _object(value: Any) -> Mapping[str, Any]:
    """Return a part of an event; ValueError for text, which is JSON at the outside alone."""
    return value if isinstance(value, Mapping) else {"type": value}


@lru_cache(maxsize=4096)
def _releases_from_text(text: str) -> tuple[Release, ...]:
    try:
        value = read_json(text)
    except ValueError as error:
        raise ValueError(f"an event is not valid JSON: {error}") from None
    return releases_from_json(_object(value))


# ---- charges -------------------------------------------------------------------------------------
def check_unit_name(unit: str | None) -> str | None:
    """Return the name of a unit, or None for rows; ValueError for anything else."""
    if unit is not None and (not isinstance(unit, str) or not unit.strip()):
        raise ValueError(f"unit must be None (one row) or text that is not empty; got {shown(unit)}")
    return unit


# Longest text of an accountant in the label of a fit.
_MOST_OF_NOTE = 100


def check_note(text: Any) -> str:
    """Return the text that an accountant writes beside the name of the model; ValueError unless a label can hold it."""
    if not isinstance(text, str):
        raise ValueError(f"the label of an accountant must be text; got {type(text).__name__}")
    if not text.strip() or len(text) > _MOST_OF_NOTE or not text.isprintable() or ":" in text:
        raise ValueError(
            f"the label of an accountant must be one line of 1 to {_MOST_OF_NOTE} printable characters without a colon"
        )
    return text


def fit_label(model: str, accountant: Any, releases: str) -> str:
    """Return the label of a fit in the ledger: the model, the text of the accountant, and the names of the releases.

    `accountant`: or what stands for it while a fit is planned or goes on.
    """
    note = "" if accountant.label is None else f" ({accountant.label})"
    return f"{model}{note}: {releases}"


@dataclass(frozen=True, init=False)
class Charge:
    """One entry of a ledger: a name for the reader, and the releases that are charged.

    Parameters
    ----------
    label : str
        Name of the charge in the ledger; not empty, and public.
    event : dp_accounting.DpEvent
        What is released. The charge holds its releases, so that equal mechanisms compare equal. A tuple of releases
        is checked as an event is.
    extra_delta : float, default=0.0
        Probability, in [0, 1), that a threshold rule spends beside the event.
    unit : str, default=None
        Who is protected: all rows of one `unit`, which is the name of a column of identifiers. None: one row.

    Attributes
    ----------
    label : str
    releases : tuple of Release
    extra_delta : float
    unit : str or None

    Raises
    ------
    ValueError
        For an empty label, an event whose cost is not known, or an extra_delta outside [0, 1).

    Examples
    --------
    >>> from skdpgen.accounting import Charge, gaussian_event
    >>> charge = Charge("DPPCA", gaussian_event(4.0))
    >>> charge.event
    GaussianDpEvent(noise_multiplier=4.0)
    """

    label: str
    releases: tuple[Release, ...]
    extra_delta: float
    unit: str | None

    def __init__(
        self, label: str, event: DpEvent | tuple[Release, ...], extra_delta: float = 0.0, unit: str | None = None
    ):
        if not isinstance(label, str) or not label.strip():
            raise ValueError(f"label must be a non-empty string; got {shown(label)}")
        if isinstance(extra_delta, bool) or not isinstance(extra_delta, numbers.Real):
            raise ValueError(f"extra_delta must be a number in [0, 1); got {shown(extra_delta)}")
        if not 0 <= extra_delta < 1:
            raise ValueError(f"extra_delta must lie in [0, 1); got {extra_delta!r}")
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "releases", _checked(event) if type(event) is tuple else releases(event))
        object.__setattr__(self, "extra_delta", float(extra_delta))
        object.__setattr__(self, "unit", check_unit_name(unit))

    @property
    def event(self) -> DpEvent:
        """The releases as an event of dp-accounting."""
        return event_of(self.releases)
