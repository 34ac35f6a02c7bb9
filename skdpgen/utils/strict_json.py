"""Files from outside: strict readers of JSON and of safetensors.

RFC 8259 leaves open what an object with the same key twice means. A reader that takes the last one, and a digest of
what was read, then vouch for another text than the one that people see. Such objects are refused here.
"""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

# Largest JSON file that is read, unless the caller states another limit.
MOST_BYTES = 64 * 2**20
# Lists and objects inside one another.
MOST_DEPTH = 64
# Lists and objects in all: an empty one takes 64 bytes of memory, and 3 in the file.
_MOST_CONTAINERS = 2_000_000
# Digits of an integer: with more it may be no float.
_MOST_DIGITS = 300
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(text: str | bytes, *, most_bytes: int = MOST_BYTES, finite: bool = True) -> Any:
    """Return the value of a JSON text that came from outside.

    `finite`: whether NaN and infinities are refused.
    Raises ValueError: the text is not JSON in UTF-8; an object has the same key twice; a number is NaN, infinite or
        beyond floats; a string is no Unicode; lists and objects are more than 64 deep or more than two million; the
        text is too long.

    Examples
    --------
    >>> from skdpgen.utils.strict_json import read_json
    >>> read_json('{"epsilon": 1.0}')
    {'epsilon': 1.0}
    >>> read_json('{"epsilon": 1.0, "epsilon": 9.0}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'epsilon' occurs twice in one object
    """
    if len(text) > most_bytes:
        raise ValueError(f"longer than {most_bytes} bytes")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("not UTF-8 text") from None
    if text.count("[") + text.count("{") > _MOST_CONTAINERS:
        raise ValueError(f"more than {_MOST_CONTAINERS} lists and objects")
    numbers = {"parse_constant": _constant, "parse_float": _float} if finite else {}
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_int=_integer, **numbers)
    except RecursionError:
        raise ValueError(f"lists and objects more than {MOST_DEPTH} deep") from None
    _check_depth(value)
    if _SURROGATE.search(text):
        _check_unicode(value)
    return value


def read_json_file(path: str | os.PathLike, *, most_bytes: int = MOST_BYTES) -> Any:
    """Return the value of a JSON file; OSError if it cannot be read, ValueError as `read_json`."""
    with Path(path).open("rb") as file:
        return read_json(file.read(most_bytes + 1), most_bytes=most_bytes)


def _object(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return found


def _constant(name):
    raise ValueError(f"{name} is not a number of JSON")


def _float(digits):
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large for a float")
    return value


def _integer(digits):
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number is too large for a float")
    return int(digits)


def _check_depth(value):
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [part for item in level if isinstance(item, dict | list) for part in _parts(item)]
        if not level:
            return
    raise ValueError(f"lists and objects more than {MOST_DEPTH} deep")


def _parts(item):
    return item.values() if isinstance(item, dict) else item


def _check_unicode(value):
    level = [value]
    while level:
        keys = [key for item in level if isinstance(item, dict) for key in item]
        for text in (item for item in (*level, *keys) if isinstance(item, str)):
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError("a string is no Unicode (lone surrogates)") from None
        level = [part for item in level if isinstance(item, dict | list) for part in _parts(item)]


# ---- safetensors ---------------------------------------------------------------------------------------------------
# Largest file that is read, and its largest header: the format itself allows no longer header.
_MOST_FILE_BYTES = 4 * 2**30
_MOST_HEADER = 100_000_000


def read_safetensors(path, kind: str, *, whole: bool = True) -> tuple[Any, bytes]:
    """Return what the header says under "skdpgen", and the content, for safetensors to read.

    `kind`: what the file should be, for messages.
    `whole`: False: the content is empty, and the tensors are not read.
    Raises ValueError for a file that is too long, or whose header is not one of safetensors, or that promises larger
        arrays than the file.
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MOST_FILE_BYTES:
            raise ValueError(f"{path}: not {kind}: longer than {_MOST_FILE_BYTES} bytes")
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
