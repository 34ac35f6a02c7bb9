"""Files of safetensors from outside: limits, and a header that two readers cannot understand differently."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from .strict_json import read_json

__all__ = ["read_safetensors"]

# Of a file that is read, and of its header: the format itself allows no longer one.
_MOST_BYTES = 4 * 2**30
_MOST_HEADER = 100_000_000


def read_safetensors(path, kind: str, *, whole: bool = True) -> tuple[Any, bytes]:
    """Return what the header says under "skdpgen", and the content, for safetensors to read.

    Parameters
    ----------
    path : str or Path
    kind : str
        What the file should be, for messages.
    whole : bool, default=True
        False: the content is empty, and the tensors are not read.

    Raises
    ------
    ValueError
        For a file that is too long, or whose header is not one of safetensors, or that promises larger arrays than
        the file.
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MOST_BYTES:
            raise ValueError(f"{path}: not {kind}: longer than {_MOST_BYTES} bytes")
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > min(_MOST_HEADER, size - 8):
            raise ValueError(f"{path}: not {kind}")
        text = file.read(length)
        try:
            outer = read_json(text, most_bytes=_MOST_HEADER)
            header = read_json(outer["__metadata__"]["skdpgen"], most_bytes=_MOST_HEADER)
            _check_shapes(outer, size)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{path}: not {kind}") from None
        return header, start + text + file.read() if whole else b""


def _check_shapes(outer, size):
    """Refuse arrays that are longer than the file: an empty one may have sides without end."""
    for name, entry in outer.items():
        if name != "__metadata__" and math.prod(side or 1 for side in entry["shape"]) > size:
            raise ValueError(f"the array {name} is larger than the file")
