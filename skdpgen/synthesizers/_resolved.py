"""Parameters of synthesizers: those of a preset in their places, and none that would do nothing."""

from __future__ import annotations

from numbers import Real

import numpy as np

from .._parameters import DPSGD


def resolve_parameters(parameters, defaults, *, named=(), presets=None, acts=None):
    """Return the parameters of a synthesizer, a preset's in the place of those it concerns.

    `parameters`, `defaults`: what was asked for, and the defaults, as `flat_parameters` gives them.
    `named`: parameters that were given, even where the value is the default.
    `presets`: name of a preset -> its parameters; ValueError for an unknown one.
    `acts`: name of a parameter -> (name of another, its values under which the first has an effect).
    Raises ValueError: parameters that contradict one another, or that would do nothing in this combination.
    """
    settings = {name: value for name, value in parameters.items() if name != "accountant"}
    given = {name for name in settings if name in defaults and not _same(settings[name], defaults[name])}
    given |= set(named)
    if settings.get("preset") is not None:
        preset = dict(presets(settings["preset"]))
        split = settings["budget_split"]
        if split is not None and not split.keys() & preset.get("budget_split", {}).keys():
            preset["budget_split"] = {**split, **preset.get("budget_split", {})}  # such as the share of "bounds"
            given -= {"budget_split"}
        if both := sorted(name for name in given & preset.keys() if not _same(settings[name], preset[name])):
            raise ValueError(f"preset={settings['preset']!r} sets {', '.join(both)}: leave out the one or the other")
        settings.update(preset)
    for name, (switch, values) in (acts or {}).items():
        if name in given and settings[switch] not in values:
            of = " of training=" if name in DPSGD._get_param_names() else ""
            raise ValueError(f"{name}={of} is used only with {switch}={' or '.join(map(repr, values))}")
    for name, other in (("sampling_rate", "batch_size"), ("steps", "epochs")):
        if "epochs" in settings and settings[other] is not None and name in given:
            raise ValueError(f"{name} and {other} set the same thing: give one of them")
    if settings["image_shape"] is not None and settings["target"] is not None:
        raise ValueError("image_shape is for arrays, target for DataFrames")
    return settings


def _same(one, other):
    plain = (str, Real, tuple)  # other arrays and objects are never a default
    one, other = _as_tuple(one), _as_tuple(other)
    return one is other or (isinstance(one, plain) and isinstance(other, plain) and one == other)


def _as_tuple(value):
    """Sizes as a tuple, where they are a list or an array; anything else as it is."""
    listed = isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return tuple(value) if listed and all(isinstance(size, Real) for size in value) else value
