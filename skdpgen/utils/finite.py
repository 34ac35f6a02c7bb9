"""Whether what a fit trained and released is finite."""

from __future__ import annotations

import numpy as np

__all__ = ["is_finite"]

# Attributes of models that hold trained or released numbers. Others may mark what is not known by NaN or an infinity.
_RELEASED = ("layers", "row_count", "component_weights")


def is_finite(released):
    """Tell whether the numbers of arrays, and of the networks in the package's own models, are finite.

    Parameters
    ----------
    released : array, number, torch module, model of the package, or dict, list or tuple of them
        Released values alone, so that the answer may be published. Other things are passed over.

    Returns
    -------
    bool
    """
    if isinstance(released, float | np.floating):
        return bool(np.isfinite(released))
    if isinstance(released, np.ndarray):
        return released.dtype.kind != "f" or bool(np.isfinite(released).all())
    if hasattr(released, "state_dict"):
        return all(bool(tensor.isfinite().all()) for tensor in released.state_dict().values())
    if isinstance(released, dict):
        return all(map(is_finite, released.values()))
    if isinstance(released, list | tuple):
        return all(map(is_finite, released))
    if type(released).__module__.startswith("skdpgen.synthesizers."):
        return all(is_finite(part) for name, part in vars(released).items() if name in _RELEASED or _may_hold(part))
    return True


def _may_hold(part):
    """Whether a part of a model may hold networks: no arrays, and no lists but of models."""
    parts = part if isinstance(part, list | tuple) else [part]
    return all(hasattr(one, "state_dict") or type(one).__module__.startswith("skdpgen.synthesizers.") for one in parts)
