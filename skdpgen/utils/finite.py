"""Whether a released model holds finite numbers alone."""

from __future__ import annotations

import numpy as np

__all__ = ["is_finite"]

# Objects of the package that hold numbers of a model; schemas, plans and ledgers have infinities of their own.
_MODELS = ("_scaling", "decomposition", "mechanisms", "mixture", "nn", "synthesizers")


def is_finite(released):
    """Tell whether all floating-point numbers are finite in arrays, tensors, modules and the package's own objects.

    Parameters
    ----------
    released : object
        Released values alone: the answer may be told.

    Returns
    -------
    bool
    """
    return all(np.isfinite(array).all() for array in _arrays(released, {}))


def _arrays(value, seen):
    if isinstance(value, float | np.floating):
        yield value
    if id(value) in seen or value is None or isinstance(value, str | bytes | int | float | type):
        return
    seen[id(value)] = value  # kept alive: the id of an array that is gone would be that of the next
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            yield value
    elif hasattr(value, "state_dict"):
        yield from _arrays(dict(value.state_dict()), seen)
    elif hasattr(value, "detach"):
        yield from _arrays(value.detach().cpu().numpy(), seen)
    elif isinstance(value, dict | list | tuple):
        for part in list(value.values()) if isinstance(value, dict) else value:
            yield from _arrays(part, seen)
    elif type(value).__module__.removeprefix("skdpgen.").split(".")[0] in _MODELS:
        yield from _arrays(dict(getattr(value, "__dict__", {})), seen)
