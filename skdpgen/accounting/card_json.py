"""Parts of a privacy card as JSON, and back: what is missing, unknown or out of range is refused."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from .event_json import event_from_json, event_to_json
from .events import Charge

__all__ = [
    "TOLERANCE",
    "agree",
    "canonical",
    "charge_from_json",
    "charge_to_json",
    "check_fields",
    "digest",
    "finite_or_inf",
    "plain",
    "read_float",
    "read_list",
]

# Room for another processor's rounding.
TOLERANCE = 5e-4


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
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number or 'inf'; got {value!r}")
    return float(value)


def agree(stated: Any, computed: float | None, name: str) -> None:
    """Raise ValueError unless a figure stated is the one computed."""
    if computed is None or stated is None:
        same = computed is None and stated is None
    else:
        same = math.isclose(read_float(stated, name), computed, rel_tol=TOLERANCE, abs_tol=1e-7)
    if not same:
        raise ValueError(f"{name} is stated as {stated!r}, and the events give {computed!r}")


def check_fields(value: Any, wanted: Sequence[str], name: str) -> None:
    """Raise ValueError unless an object has the fields wanted, and no other."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected a JSON object, found {type(value).__name__}")
    missing, unknown = sorted(set(wanted) - set(value)), sorted(map(str, set(value) - set(wanted)))
    if missing or unknown:
        raise ValueError(f"{name}: missing fields {missing}, unknown fields {unknown}")


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
