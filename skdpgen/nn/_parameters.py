"""Checks of what a user gives: the parameters of a module, and those of a net that an estimator clones.

All of them come before a charge. An error names the parameter and says what it may be.
"""

from __future__ import annotations

import inspect
import math
from numbers import Integral, Real

import torch
from skorch.callbacks import Callback
from torch import nn

from ..utils.validation import MOST_UNITS

# Parameters of a net that an estimator sets itself, and the parameter to give in their place. Not `random_state`:
# scikit-learn's tools seed whatever has one.
_SET_BY_ESTIMATOR = {
    "plan": "leave it out: the fit makes its own plan, and charges it",
    "noise": "give noise= to the estimator",
    "device": "give the device to the estimator, as device= of its training",
    "progress_text": "leave it out",
    "checkpoint": "give checkpoint= to the synthesizer",
}
# Parameters of a data set that follow from the rows.
_OF_ROWS = ("X", "y", "length")
# Parameters of modules that follow from those of a synthesizer.
_OF_ESTIMATOR = {
    "n_latent": "n_components=",
    "n_parts": "n_clusters=",
    "alpha": "divergence=GroupDivergence(alpha=...)",
    **{name: f"{name}=" for name in ("prior", "likelihood", "divergence", "beta", "image_shape")},
}


# ---- parameters of a module ---------------------------------------------------------------------------------------
def check_size(name, value, least=1):
    """Return a whole number from `least` to `MOST_UNITS`, as Python's int; ValueError for anything else."""
    if not _is_whole(value) or not least <= value <= MOST_UNITS:
        raise ValueError(f"{name} must be a whole number from {least} to {MOST_UNITS}; got {value!r:.60}")
    return int(value)


def check_sizes(name, value):
    """Return widths of layers, as a whole number or a list of them; ValueError for anything else."""
    if _is_whole(value):
        return check_size(name, value)
    sizes = None if isinstance(value, str | dict) or not hasattr(value, "__iter__") else list(value)
    if sizes is None or not all(_is_whole(size) and 1 <= size <= MOST_UNITS for size in sizes):
        raise ValueError(
            f"{name} must be a whole number from 1 to {MOST_UNITS}, or a sequence of them; got {value!r:.60}"
        )
    return [int(size) for size in sizes]


def check_number(name, value, *, above=False):
    """Return a finite number from 0 (with `above`: larger than 0), as Python's float; ValueError else."""
    kind = f"a finite number {'above' if above else 'of at least'} 0"
    if not isinstance(value, Real) or isinstance(value, bool) or not _is_finite(value):
        raise ValueError(f"{name} must be {kind}; got {value!r:.60}")
    if value < 0 or (above and value == 0):
        raise ValueError(f"{name} must be {kind}; got {value!r:.60}")
    return float(value)


def check_network(name, value):
    """Raise ValueError for what is neither a torch module nor None; a class is no module."""
    if not (value is None or isinstance(value, nn.Module)):
        got = f"the class {value.__name__}: make an instance of it" if isinstance(value, type) else f"{value!r:.60}"
        raise ValueError(f"{name} must be a module or None; got {got}")


def _is_whole(value):
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_finite(value):
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


# ---- a net that an estimator clones -------------------------------------------------------------------------------
def check_net(net, known_criteria, known_loader):
    """Raise ValueError for a template whose parts are no parts of a net, or have parameters that they do not know.

    `known_criteria`: a criterion of another class has no meaning: modules give their losses. `known_loader`: of
    `iterator_train`.
    """
    for name, instead in _SET_BY_ESTIMATOR.items():
        given, default = getattr(net, name), _default_of(net, name)
        if given is not default and given != default:
            raise ValueError(f"{name}= of net= must stay {default!r}: {instead}")
    _check_class("module", net.module, nn.Module)
    _check_class("optimizer", net.optimizer, torch.optim.Optimizer)
    if not _is_class(net.criterion, known_criteria):
        known = " or ".join(kind.__name__ for kind in known_criteria)
        raise ValueError(f"criterion= of net= must be {known}; got {_name(net.criterion)}")
    _check_class("dataset", net.dataset, torch.utils.data.Dataset)
    check_number("lr= of net=", net.lr)
    for name, value in net.get_params_for("optimizer").items():
        if isinstance(value, Real) and not _is_finite(value):
            raise ValueError(f"optimizer__{name}= of net= must be a finite number; got {value!r:.60}")
    _check_callbacks(net.callbacks)
    _check_routed(net, known_loader)
    own = {"iterator_train": known_loader, "criterion": net.criterion, "optimizer": net.optimizer, "module": net.module}
    for part, kind in own.items():
        check_names(net, part, kind)


def check_made(net, parameters, usual):
    """Raise ValueError for a template whose module the fit cannot make with its own parameters, by their names.

    The module must take each of them, and the template must not have it; `usual` is the class of the default.
    """
    taken, given = _parameters_of(net.module), net.get_params_for("module")
    for name in parameters:
        if name in given:
            instead = f", or give {_OF_ESTIMATOR[name]} to the synthesizer" if name in _OF_ESTIMATOR else ""
            raise ValueError(f"module__{name}= of net= is set by the fit: leave it out{instead}")
        if taken is not None and name not in taken:
            raise ValueError(
                f"net=DPNet({net.module.__name__}) has a module that does not take {name}=, with which the fit makes "
                f"it: give {usual.__name__}, or a module that takes what it takes"
            )


def check_widths(least, *, rows=(), outputs=()):
    """Refuse networks of a user's own that take or give fewer numbers a row than there are at least.

    `least`: of a table: the levels of all columns that are declared, and two for each column whose levels are learned.
    `rows`, `outputs`: networks with their parameters: those that take rows, and those that give them.
    """
    of_rows = [(name, "take", _linear(module, 0), "in_features") for name, module in rows]
    of_outputs = [(name, "give", _linear(module, -1), "out_features") for name, module in outputs]
    for name, verb, layer, side in of_rows + of_outputs:
        if layer is not None and (width := getattr(layer, side)) < least:
            raise ValueError(
                f"{name}= of net= must {verb} at least {least} numbers a row, one for each column, or of a table for "
                f"each level and bin; its layer has {width}: leave it out, and the fit makes a network of that size"
            )


def check_unknown_width(check, least, parameter, instead):
    """Refuse networks of a user's own with a fixed number of columns, for a table whose number the fit releases.

    `check`: of a number of columns: raises RuntimeError for a network that does not take or give so many.
    `least`: least number of columns of the table; the check is made for it, and for one more.
    `parameter`, `instead`: that names the networks, and what to give in place of them.
    """
    for width in (least, least + 1):
        try:
            check(width)
        except RuntimeError:
            raise ValueError(
                f"{parameter} has a network with a fixed number of columns. The number of levels and bins of this "
                "table is known only after the releases of the fit, so no fixed number is sure to fit: leave the "
                f"network out, and the fit makes one of the right size, {instead}"
            ) from None


def _linear(module, place):
    """The first or last layer of a network, where it is a linear one: of others the width is not known."""
    parts = list(module) if isinstance(module, nn.Sequential) else [module]
    return parts[place] if parts and isinstance(parts[place], nn.Linear) else None


def check_names(net, part, kind):
    """Raise ValueError for ``part__name=`` of a net whose class does not take `name`."""
    parameters = _parameters_of(kind)
    if parameters is None:
        return
    for name in net.get_params_for(part):
        if name not in parameters and not name.startswith("param_groups"):
            raise ValueError(
                f"{part}__{name}= of net= is not a parameter of {kind.__name__}, which takes "
                f"{', '.join(parameters) or 'none'}"
            )


def _parameters_of(kind):
    """Names of the parameters of a class, in a list; None for any."""
    if kind.__init__ is nn.Module.__init__:  # whose signature has any, for a message of its own
        return []
    parameters = inspect.signature(kind).parameters
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else list(parameters)


def _check_class(name, value, kind):
    if isinstance(value, kind):
        raise ValueError(
            f"{name}= of net= must be a class, which the fit makes an instance of; got one of {type(value).__name__}: "
            f"give the class, and its parameters as {name}__..."
        )
    if not (isinstance(value, type) and issubclass(value, kind)):
        raise ValueError(f"{name}= of net= must be a subclass of {kind.__module__}.{kind.__name__}; got {_name(value)}")


def _check_callbacks(callbacks):
    """Refuse what skorch cannot call: it takes None, "disable", or a list of callbacks or (name, callback)."""
    if callbacks is None or (isinstance(callbacks, str) and callbacks == "disable"):
        return
    if not isinstance(callbacks, list):
        raise ValueError(f"callbacks= of net= must be a list of callbacks of skorch; got {callbacks!r:.60}")
    for item in callbacks:
        named = isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], str)
        one = item[1] if named else item
        if not (one is None and named) and not isinstance(one, Callback) and not _is_class(one, Callback):
            raise ValueError(
                "callbacks= of net= must be a list of callbacks of skorch, or of pairs (name, callback); it has "
                f"{item!r:.60}"
            )


def _check_routed(net, known_loader):
    """Refuse parameters that skorch passes on to parts of a net, where a fit sets them or no part takes them."""
    for name in net.get_params_for("iterator_train"):
        if name in _parameters_of(known_loader):
            instead = _SET_BY_ESTIMATOR["device"] if name == "device" else "leave it out"
            raise ValueError(f"iterator_train__{name}= of net= is set by the fit: {instead}")
    for name in net.get_params_for("dataset"):
        if name in _OF_ROWS:
            raise ValueError(f"dataset__{name}= of net= is set by the fit, which makes the data set of its rows")
    check_names(net, "dataset", net.dataset)
    if isinstance(net.iterator_valid, type):
        check_names(net, "iterator_valid", net.iterator_valid)
    callbacks = _named_callbacks(net.callbacks)
    for name, value in net.get_params_for("callbacks").items():
        callback, _, parameter = name.partition("__")
        if callback not in callbacks:
            raise ValueError(
                f"callbacks__{name}= of net= names no callback of callbacks=, which has "
                f"{', '.join(callbacks) or 'none'}: give the callback in callbacks=[(name, callback)]"
            )
        if not parameter and not (value is None or isinstance(value, Callback)):
            raise ValueError(f"callbacks__{name}= of net= must be a callback of skorch or None; got {value!r:.60}")
        held = callbacks[callback]
        taken = None if held is None else _parameters_of(held if isinstance(held, type) else type(held))
        if parameter and taken is not None and parameter.partition("__")[0] not in taken:
            raise ValueError(
                f"callbacks__{name}= of net= is not a parameter of the callback {callback!r}, which takes "
                f"{', '.join(taken) or 'none'}"
            )


def _named_callbacks(callbacks):
    """Callbacks by the names that skorch gives them: of several with one name, with a number after it."""
    listed = callbacks if isinstance(callbacks, list) else []
    pairs = [
        item if isinstance(item, tuple | list) else ((item if _is_class(item, Callback) else type(item)).__name__, item)
        for item in listed
    ]
    names = [name for name, _ in pairs]
    found = {}
    for at, (name, callback) in enumerate(pairs):
        found[name if names.count(name) == 1 else f"{name}_{names[: at + 1].count(name)}"] = callback
    return found


def _is_class(value, kind):
    return isinstance(value, type) and issubclass(value, kind)


def _default_of(net, name):
    """Default of a parameter of the constructor of a net, wherever in its bases it is."""
    for kind in type(net).__mro__:
        found = inspect.signature(kind.__init__).parameters.get(name)
        if found is not None and found.default is not found.empty:
            return found.default
    return None


def _name(value):
    return value.__name__ if isinstance(value, type) else f"{value!r:.60}"
