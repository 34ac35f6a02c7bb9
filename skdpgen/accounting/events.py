"""What a fit did to the data, as dp-accounting events, and those events as JSON.

An event is the full description of a mechanism: every epsilon in the package is computed from events
alone. Three kinds of release are understood: Gaussian, Poisson-sampled Gaussian, and not private at all.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Mapping
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

__all__ = [
    "Charge",
    "Release",
    "compose_events",
    "describe_event",
    "event_from_json",
    "event_to_json",
    "gaussian_event",
    "non_private_event",
    "poisson_gaussian_event",
    "releases",
]

_FIELDS = {
    "gaussian": {"noise_multiplier", "count"},
    "poisson_gaussian": {"sampling_rate", "noise_multiplier", "steps"},
    "non_private": set(),
    "composed": {"events"},
}


class Release(NamedTuple):
    """One primitive of an event: `count` equal releases. Hashable, so figures can be remembered by it."""

    mechanism: str
    noise_multiplier: float
    sampling_rate: float | None
    count: int


def _positive(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")
    value = float(value)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")
    return value


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")
    return int(value)


def _repeat(event: DpEvent, count: int) -> DpEvent:
    return event if count == 1 else SelfComposedDpEvent(event, count)


def gaussian_event(noise_multiplier: float, count: int = 1) -> DpEvent:
    """Describe `count` Gaussian releases of one noise multiplier.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the L2 sensitivity *under the relation in force*, > 0.
        The sensitivity's dependence on the relation is the caller's; the event's price has none.
    count : int, default=1
        How often the release is made.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For a multiplier that is not positive and finite (use `non_private_event`), or a count below 1.

    Examples
    --------
    >>> from skdpgen.accounting import describe_event, gaussian_event
    >>> describe_event(gaussian_event(4.0, count=3))
    [{'mechanism': 'gaussian', 'noise_multiplier': 4.0, 'sampling_rate': None, 'count': 3}]
    """
    return _repeat(GaussianDpEvent(_positive(noise_multiplier, "noise_multiplier")), _whole(count, "count"))


def poisson_gaussian_event(sampling_rate: float, noise_multiplier: float, steps: int) -> DpEvent:
    """Describe `steps` Gaussian releases, each of a fresh Poisson sample of the units.

    Parameters
    ----------
    sampling_rate : float
        Probability, in (0, 1], that a unit takes part in a step; independent over units and steps.
    noise_multiplier : float
        Standard deviation of the noise over the L2 bound of *one unit's contribution*, under both
        relations, > 0. (Under replace_one the price accounts for the two contributions.)
    steps : int
        Number of steps; an empty sample is a step too.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For a rate outside (0, 1], a multiplier that is not positive and finite, or fewer than 1 step.

    Examples
    --------
    >>> from skdpgen.accounting import describe_event, poisson_gaussian_event
    >>> describe_event(poisson_gaussian_event(0.01, 1.5, steps=100))
    [{'mechanism': 'poisson_gaussian', 'noise_multiplier': 1.5, 'sampling_rate': 0.01, 'count': 100}]
    """
    rate = _positive(sampling_rate, "sampling_rate")
    if rate > 1:
        raise ValueError(f"sampling_rate must lie in (0, 1]; got {rate!r}")
    step = PoissonSampledDpEvent(rate, GaussianDpEvent(_positive(noise_multiplier, "noise_multiplier")))
    return _repeat(step, _whole(steps, "steps"))


def non_private_event() -> DpEvent:
    """Describe a release without any guarantee (no noise).

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_pld, non_private_event
    >>> epsilon_pld(non_private_event(), 1e-5, "replace_one")
    inf
    """
    return NonPrivateDpEvent()


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
        If there is no event, or one of a kind that is not understood.

    Examples
    --------
    >>> from skdpgen.accounting import compose_events, describe_event, gaussian_event
    >>> whole = compose_events([gaussian_event(4.0), gaussian_event(8.0, count=2)])
    >>> [row["count"] for row in describe_event(whole)]
    [1, 2]
    """
    return _from_releases(tuple(row for event in events for row in releases(event)))


def _from_releases(rows: tuple[Release, ...]) -> DpEvent:
    if not rows:
        raise ValueError("an event must hold at least one release")
    makers = {
        "gaussian": lambda row: gaussian_event(row.noise_multiplier, row.count),
        "poisson_gaussian": lambda row: poisson_gaussian_event(row.sampling_rate, row.noise_multiplier, row.count),
        "non_private": lambda row: non_private_event(),
    }
    events = [makers[row.mechanism](row) for row in rows]
    return events[0] if len(events) == 1 else ComposedDpEvent(events)


def releases(event: DpEvent) -> tuple[Release, ...]:
    """Flatten an event into its primitive releases, in order.

    Parameters
    ----------
    event : dp_accounting.DpEvent
        Built of Gaussian, Poisson-sampled Gaussian, non-private, composed and self-composed events.

    Returns
    -------
    tuple of Release

    Raises
    ------
    ValueError
        For any other event: what cannot be priced cannot be charged.
    """
    if isinstance(event, NonPrivateDpEvent):
        return (Release("non_private", 0.0, None, 1),)
    if isinstance(event, GaussianDpEvent):
        return (Release("gaussian", _positive(event.noise_multiplier, "noise_multiplier"), None, 1),)
    if isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        # built anew, so that the numbers pass the same checks
        rate = _positive(event.sampling_probability, "sampling_rate")
        if rate > 1:
            raise ValueError(f"sampling_rate must lie in (0, 1]; got {rate!r}")
        return (Release("poisson_gaussian", _positive(event.event.noise_multiplier, "noise_multiplier"), rate, 1),)
    if isinstance(event, SelfComposedDpEvent):
        count = _whole(event.count, "count")
        rows = releases(event.event)
        if any(row.mechanism == "non_private" for row in rows):
            return rows
        return tuple(row._replace(count=row.count * count) for row in rows)
    if isinstance(event, ComposedDpEvent):
        rows = tuple(row for part in event.events for row in releases(part))
        if rows:
            return rows
        raise ValueError("an event must hold at least one release")
    kind = type(event).__name__
    raise ValueError(
        f"cannot price an event of type {kind}; use gaussian_event, poisson_gaussian_event, "
        "non_private_event and compose_events"
    )


def describe_event(event: DpEvent) -> list[dict[str, Any]]:
    """Say what an event is made of, one plain dict a primitive release.

    Parameters
    ----------
    event : dp_accounting.DpEvent

    Returns
    -------
    list of dict
        Keys mechanism, noise_multiplier, sampling_rate (None without sampling) and count.

    Raises
    ------
    ValueError
        For an event of a kind that is not understood.

    Examples
    --------
    >>> from skdpgen.accounting import describe_event, non_private_event
    >>> describe_event(non_private_event())[0]["mechanism"]
    'non_private'
    """
    return [row._asdict() for row in releases(event)]


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
        For an event of a kind that is not understood.

    Examples
    --------
    >>> from skdpgen.accounting import event_to_json, gaussian_event
    >>> event_to_json(gaussian_event(4.0))
    {'type': 'gaussian', 'noise_multiplier': 4.0, 'count': 1}
    """
    parts: list[dict[str, Any]] = []
    for row in releases(event):
        if row.mechanism == "non_private":
            parts.append({"type": "non_private"})
        elif row.mechanism == "gaussian":
            parts.append({"type": "gaussian", "noise_multiplier": row.noise_multiplier, "count": row.count})
        else:
            parts.append(
                {
                    "type": "poisson_gaussian",
                    "sampling_rate": row.sampling_rate,
                    "noise_multiplier": row.noise_multiplier,
                    "steps": row.count,
                }
            )
    return parts[0] if len(parts) == 1 else {"type": "composed", "events": parts}


def event_from_json(value: str | Mapping[str, Any]) -> DpEvent:
    """Read an event written by `event_to_json`; anything unexpected is refused.

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
    if isinstance(value, str):
        return _event_from_text(value)
    return _from_releases(releases(_parse(value)))


@lru_cache(maxsize=4096)
def _event_from_text(text: str) -> DpEvent:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"an event is not valid JSON: {error}") from None
    return event_from_json(value if isinstance(value, Mapping) else {"type": value})


def _parse(value: Any) -> DpEvent:
    kind = value.get("type") if isinstance(value, Mapping) else value
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ValueError(f"unknown event type {kind!r}; known are {', '.join(sorted(_FIELDS))}")
    given, wanted = set(value) - {"type"}, _FIELDS[kind]
    if given != wanted:
        missing, extra = sorted(wanted - given), sorted(map(str, given - wanted))
        raise ValueError(f"event of type {kind!r}: missing fields {missing}, unknown fields {extra}")
    if kind == "gaussian":
        return gaussian_event(value["noise_multiplier"], value["count"])
    if kind == "poisson_gaussian":
        return poisson_gaussian_event(value["sampling_rate"], value["noise_multiplier"], value["steps"])
    if kind == "non_private":
        return non_private_event()
    if not isinstance(value["events"], list):
        raise ValueError("event of type 'composed': events must be a list")
    return compose_events([_parse(part) for part in value["events"]])


@dataclass(frozen=True)
class Charge:
    """One entry of the books: what was done, in the caller's words and in the accountant's.

    Parameters
    ----------
    label : str
        Who charges, for the reader of the ledger; not empty, and public.
    event : dp_accounting.DpEvent
        What is released. Stored in its flattened form, so that equal mechanisms compare equal.
    extra_delta : float, default=0.0
        Probability, in [0, 1), spent outright by a threshold rule beside the event.

    Raises
    ------
    ValueError
        For an empty label, an event that cannot be priced, or an extra_delta outside [0, 1).

    Examples
    --------
    >>> from skdpgen.accounting import Charge, gaussian_event
    >>> Charge("DPPCA", gaussian_event(4.0))
    Charge(label='DPPCA', event=GaussianDpEvent(noise_multiplier=4.0), extra_delta=0.0)
    """

    label: str
    event: DpEvent
    extra_delta: float = 0.0

    def __post_init__(self):
        if not isinstance(self.label, str) or not self.label.strip():
            raise ValueError(f"label must be a non-empty string; got {self.label!r}")
        if isinstance(self.extra_delta, bool) or not isinstance(self.extra_delta, numbers.Real):
            raise ValueError(f"extra_delta must be a number in [0, 1); got {self.extra_delta!r}")
        if not 0 <= self.extra_delta < 1:
            raise ValueError(f"extra_delta must lie in [0, 1); got {self.extra_delta!r}")
        object.__setattr__(self, "extra_delta", float(self.extra_delta))
        object.__setattr__(self, "event", _from_releases(releases(self.event)))
