"""What the checkpoint of a training says of itself: the plan, the charge, and the steps behind its parameters."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .. import __version__
from ..utils.strict_json import read_safetensors

__all__ = ["CheckpointHeader", "header_text", "read_header", "read_whole"]

_FORMAT = "skdpgen-checkpoint/1"
_KIND = "a checkpoint of skdpgen"
_FIELDS = {"format", "version", "ledger", "record", "plan", "steps", "optimizer"}


class CheckpointHeader(NamedTuple):
    """Header of a checkpoint.

    Attributes
    ----------
    ledger : str
        Identity of the ledger file that was charged.
    record : int
        Number of the charge in it.
    plan : dict
        Numbers of the plan, its steps among them.
    steps : int
        Taken until the file was written: the ledger may know of more.
    optimizer : dict
        Numbers in the state of the optimiser, by parameter and name; its tensors are in the file itself.
    """

    ledger: str
    record: int
    plan: dict[str, Any]
    steps: int
    optimizer: dict[str, dict[str, Any]]


def header_text(header: CheckpointHeader) -> str:
    """Return the header as it stands in the file."""
    return json.dumps({"format": _FORMAT, "version": __version__, **header._asdict()}, allow_nan=False)


def read_header(path) -> CheckpointHeader:
    """Return the header of a checkpoint; ValueError for anything else, FileNotFoundError where there is none."""
    return _header(path, read_safetensors(path, _KIND, whole=False)[0])


def read_whole(path) -> tuple[CheckpointHeader, bytes]:
    """Return the header and the whole content, to be read by safetensors; errors as `read_header`."""
    header, content = read_safetensors(path, _KIND)
    return _header(path, header), content


def _header(path, found) -> CheckpointHeader:
    if not isinstance(found, dict) or found.get("format") != _FORMAT or set(found) != _FIELDS:
        raise ValueError(f"{path}: not {_KIND}, or of a newer version")
    header = CheckpointHeader(*(found[name] for name in CheckpointHeader._fields))
    numbers = (header.record, header.steps)
    if (
        any(type(number) is not int or number < 0 for number in numbers)
        or not isinstance(header.ledger, str)
        or not isinstance(header.plan, dict)
        or not isinstance(header.optimizer, dict)
        or not all(isinstance(part, dict) for part in header.optimizer.values())
    ):
        raise ValueError(f"{path}: not {_KIND}: its header holds values of other types")
    return header
