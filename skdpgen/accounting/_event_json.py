"""Events as JSON, and back: every float survives, and anything unexpected is refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dp_accounting import DpEvent

from ..utils.strict_json import read_json
from ._event_numbers import repeat, whole
from ._events import (
    Repetition,
    compose_events,
    compose_releases,
    gaussian_event,
    non_private_event,
    poisson_gaussian_event,
    releases,
    repeat_and_select_event,
    subset_gaussian_event,
)
from ._subset_sampling import SUBSET_MECHANISMS

__all__ = ["event_from_json", "event_to_json"]

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
        elif row.mechanism == "repeat_and_select":
            parts.append({**_repetition_to_json(row.repeated), "count": row.count})
        else:
            parts.append(
                {
                    "type": row.mechanism,
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
    return compose_releases(releases(_parse(value)))


@lru_cache(maxsize=4096)
def _event_from_text(text: str) -> DpEvent:
    try:
        value = read_json(text)
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
    if kind in SUBSET_MECHANISMS:
        return subset_gaussian_event(kind, value["sampling_rate"], value["noise_multiplier"], value["steps"])
    if kind == "non_private":
        return non_private_event()
    if kind == "repeat_and_select":
        return _repetition_from_json(value)
    if not isinstance(value["events"], list):
        raise ValueError("event of type 'composed': events must be a list")
    return compose_events([_parse(part) for part in value["events"]])


def _repetition_to_json(repetition: Repetition) -> dict[str, Any]:
    """Return plain dicts, lists and numbers."""
    one_of = [event_to_json(compose_releases(rows)) for rows in repetition.alternatives]
    return {"type": "repeat_and_select", "runs": repetition.runs, "mean": repetition.mean, "one_of": one_of}


def _repetition_from_json(value: Mapping[str, Any]) -> DpEvent:
    """Read what `repetition_to_json` wrote; the fields are known to be there."""
    if not isinstance(value["one_of"], list):
        raise ValueError("event of type 'repeat_and_select': one_of must be a list")
    event = repeat_and_select_event([event_from_json(part) for part in value["one_of"]], *_law(value))
    return repeat(event, whole(value["count"], "count"))


def _law(value):
    runs, mean = value["runs"], value["mean"]
    if not isinstance(runs, str):
        raise ValueError(f"event of type 'repeat_and_select': runs must be a string; got {runs!r}")
    return runs, mean
