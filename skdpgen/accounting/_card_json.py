"""Parts of a privacy card as JSON, and back: what is missing, unknown or out of range is refused."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from ._event_json import event_from_json, event_to_json
from ._events import Charge

__all__ = [
    "TOLERANCE",
    "agree",
    "agree_upward",
    "canonical",
    "charge_from_json",
    "charge_to_json",
    "check_fields",
    "check_text",
    "check_texts",
    "digest",
    "finite_or_inf",
    "plain",
    "read_float",
    "read_list",
]

# How far above the figure recomputed an epsilon may be stated: a coarser grid overstates it by less.
TOLERANCE = 5e-4
# How far below: another processor's rounding, and no more.
ROUNDING = 1e-6


def canonical(content: Any) -> str:
    """Return JSON text that is the same for equal contents; ValueError for what JSON cannot hold."""
    try:
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a card holds what JSON cannot: {error}") from None


def digest(content: Mapping[str, Any]) -> str:
    """Return the digest of a card's content."""
    return "sha256:" + hashlib.sha256(canonical(content).encode("utf-8")).hexdigest()


def finite_or_inf(value: float | None) -> float | str | None:
    """Return the number, and "inf" for an infinite one."""
    return "inf" if value is not None and math.isinf(value) else value


def read_float(value: Any, name: str) -> float:
    """Read what `finite_or_inf` wrote; ValueError for anything else."""
    if isinstance(value, str) and value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number or 'inf'; got {value!r}")
    return float(value)


def agree(stated: Any, computed: float | None, name: str) -> None:
    """Raise ValueError unless a figure stated is the one computed, up to rounding."""
    _agree(stated, computed, name, ROUNDING)


def agree_upward(stated: Any, computed: float | None, name: str) -> None:
    """Raise ValueError unless an epsilon stated is the one computed, or a little more: never less."""
    _agree(stated, computed, name, TOLERANCE)


def _agree(stated, computed, name, most_above):
    if computed is None or stated is None:
        same = computed is None and stated is None
    else:
        told = read_float(stated, name)
        low, high = computed * (1 - ROUNDING) - 1e-9, computed * (1 + most_above) + 1e-9
        same = told == computed or low <= told <= high < math.inf
    if not same:
        raise ValueError(f"{name} is stated as {stated!r}, and the events give {computed!r}")


def check_fields(value: Any, wanted: Sequence[str], name: str) -> None:
    """Raise ValueError unless an object has the fields wanted, and no other."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected a JSON object, found {type(value).__name__}")
    missing, unknown = sorted(set(wanted) - set(value)), sorted(map(str, set(value) - set(wanted)))
    if missing or unknown:
        raise ValueError(f"{name}: missing fields {missing}, unknown fields {unknown}")


def check_text(value: Any, name: str) -> None:
    """Raise ValueError unless a value is text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; got {type(value).__name__}")


def check_texts(value: Any, name: str) -> None:
    """Raise ValueError unless a value is a list of texts."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{name} must be a list of texts")


def read_list(value: Any, name: str) -> list[Mapping[str, Any]]:
    """Return a list of objects; ValueError for anything else."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError(f"{name}: charges must be a list of JSON objects")
    return value


def charge_to_json(charge: Charge) -> dict[str, Any]:
    """Return a charge as plain values."""
    return {"label": charge.label, "event": event_to_json(charge.event), "extra_delta": charge.extra_delta}


def charge_from_json(value: Mapping[str, Any], name: str) -> Charge:
    """Read what `charge_to_json` wrote; ValueError for anything else."""
    check_fields(value, ("label", "event", "extra_delta"), f"{name}: charge")
    return Charge(value["label"], event_from_json(value["event"]), value["extra_delta"])


def plain(value: Any) -> Any:
    """Parameters as JSON. Objects are named by type: their repr might show data or a memory address."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return plain(value.item())
    return f"<{type(value).__name__}>"
