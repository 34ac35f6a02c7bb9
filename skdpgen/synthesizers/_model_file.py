"""Release files: one .safetensors file of released state, with schema, parameters and card as JSON in its header."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np

from .. import __version__
from ..utils.atomic import Draft, write_atomically
from ..utils.file_checks import check_arrays
from ..utils.strict_json import read_safetensors

__all__ = ["load", "save_state"]

_FORMAT = "skdpgen-model/1"


def save_state(path, model, state):
    """Write released state to one file.

    Parameters
    ----------
    path : str, Path or Draft
        Ends in .safetensors.
    model : str
        Class name of the synthesizer.
    state : dict
        Nested dicts of arrays and of what JSON holds; released or public values alone.
    """
    from safetensors.numpy import save

    name = Path(path.target if isinstance(path, Draft) else path).name
    if not name.endswith(".safetensors"):
        raise ValueError(f"a model file ends in .safetensors; got {name!r}")
    arrays = {}
    header = {"format": _FORMAT, "model": model, "version": __version__, "state": _split(state, arrays, "")}
    write_atomically(path, save(arrays, metadata={"skdpgen": json.dumps(header)}))


def load(path):
    """Read a released model: an estimator that samples, with the books it was fitted under, detached.

    Parameters
    ----------
    path : str or Path
        Written by ``save`` of a synthesizer. Nothing in it is executed: it holds arrays and JSON.

    Returns
    -------
    synthesizer
        Fitted; ``sample`` works, charging its accountant raises DetachedAccountantError. Its parameters are those of
        the fit, but for objects (networks, accountants), seeds and `noise`; a schema that was given is the whole one,
        ``schema_``. To fit it anew is to trust the file for them: bounds, and epsilon, among them.

    Raises
    ------
    ValueError
        The file is not a model of this package, is of a newer format, or its card was changed; its arrays do not fit
        one another, hold NaN or infinity, or give no sample; it is longer than 4 GiB.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as read

    header, content = read_safetensors(path, "a model file of skdpgen")
    try:
        arrays = read(content)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path}: not a model file of skdpgen") from None
    del content
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        found = header.get("format") if isinstance(header, dict) else None
        raise ValueError(f"{path}: format {found!r} is not {_FORMAT!r}; it may come from a newer skdpgen")
    synthesizers = importlib.import_module("skdpgen.synthesizers")
    if set(header) != {"format", "model", "version", "state"}:
        raise ValueError(f"{path}: not a model file of skdpgen: missing or unknown fields in its header")
    model = getattr(synthesizers, str(header.get("model")), None)
    if header.get("model") not in synthesizers.__all__ or not hasattr(model, "_from_state"):
        raise ValueError(f"{path}: unknown model {header.get('model')!r}")
    try:
        check_arrays(arrays)
        return model._from_state(_join(header["state"], arrays))
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError) as error:
        raise ValueError(f"{path}: not a model file of skdpgen ({type(error).__name__} in its state)") from None


def _split(value, arrays, name):
    """Move the arrays of nested dicts into `arrays`, leaving their names behind."""
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return {"__array__": name}
    if isinstance(value, dict):
        return {key: _split(item, arrays, f"{name}.{key}" if name else key) for key, item in value.items()}
    return value


def _join(value, arrays):
    if isinstance(value, dict):
        if set(value) == {"__array__"}:
            return arrays[value["__array__"]]
        return {key: _join(item, arrays) for key, item in value.items()}
    return value
