"""Every plain fact about an object, by its path: what two fits must have in common, to the last bit."""

from __future__ import annotations

import functools
import re
import sys
import types

import numpy as np

__all__ = ["difference", "facts"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
# Neither is data; two fits have their own.
_OPAQUE = (types.ModuleType, types.CodeType, types.BuiltinFunctionType)


def facts(root, name):
    """Return a list of (path, fact) of all that an object holds: attributes, items, entries, dtypes, closures.

    Parameters
    ----------
    root : object
    name : str
        First part of the paths.
    """
    found = []
    _walk(root, name, found, {})
    return found


def difference(one, other):
    """Return the first path at which two lists of `facts` differ, and None where they are equal. No value is told."""
    for (path, fact), (their_path, their_fact) in zip(one, other):
        if path != their_path:
            return path
        if fact != their_fact:
            return path
    longer = max(one, other, key=len)
    return None if len(one) == len(other) else longer[min(len(one), len(other))][0]


def _walk(value, path, found, seen):
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes, complex):
        found.append((path, (kind.__name__, value)))
        return
    if kind is float:
        found.append((path, ("float", value.hex())))
        return
    if id(value) in seen:
        found.append((path, ("again", seen[id(value)][0])))
        return
    seen[id(value)] = (path, value)  # the object is kept, or another could get its address
    found.append((path, f"{kind.__module__}.{kind.__qualname__}"))
    for part, child in _parts(value, path, found):
        _walk(child, f"{path}.{part}", found, seen)


def _parts(value, path, found):
    """Yield (name, part) of an object; what has no parts is noted in `found`."""
    torch, pandas = sys.modules.get("torch"), sys.modules.get("pandas")
    if isinstance(value, np.ndarray):
        found.append((path, (value.dtype.str, value.shape)))
        if value.dtype.hasobject:
            yield from enumerate(value.ravel().tolist())
        else:
            found.append((path, np.ascontiguousarray(value).tobytes()))
    elif isinstance(value, np.generic):
        found.append((path, (value.dtype.str, value.tobytes())))
    elif isinstance(value, np.random.Generator):
        yield "state", value.bit_generator.state
    elif isinstance(value, np.random.RandomState):
        yield "state", value.get_state(legacy=False)
    elif torch is not None and isinstance(value, torch.Tensor):
        found.append((path, (str(value.dtype), str(value.device), tuple(value.shape), value.requires_grad)))
        yield "values", value.detach().cpu().numpy()
        yield "grad", value.grad if value.is_leaf else None
    elif torch is not None and isinstance(value, torch.Generator):
        yield "state", value.get_state().numpy()
    elif pandas is not None and isinstance(value, pandas.DataFrame | pandas.Series | pandas.Index):
        yield from _parts_of_table(value)
    elif isinstance(value, dict | types.MappingProxyType):
        for i, (key, child) in enumerate(list(value.items())):
            yield f"key {i}", key
            yield (repr(key) if isinstance(key, str) else i), child
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    elif isinstance(value, set | frozenset):
        yield from enumerate(sorted(value, key=repr))
    elif isinstance(value, type):
        found.append((path, f"{value.__module__}.{value.__qualname__}"))
    elif isinstance(value, functools.partial):
        yield "partial", (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        yield "method", (value.__func__, value.__self__)
    elif isinstance(value, types.FunctionType):
        found.append((path, f"{value.__module__}.{value.__qualname__}"))
        yield "defaults", (value.__defaults__, value.__kwdefaults__, vars(value))
        yield "closure", [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
    elif hasattr(value, "charges") and hasattr(value, "entries"):  # books: their locks and files are no facts of a fit
        yield "books", (value.epsilon, value.delta, value.neighboring, value.charges, value.report())
    elif isinstance(value, _OPAQUE):
        found.append((path, _plainly(value)))
    else:
        yield from _attributes(value, path, found)


def _parts_of_table(table):
    """Labels, dtypes and cells of a table, whatever holds them."""
    columns = getattr(table, "columns", None)
    yield "attrs", dict(getattr(table, "attrs", {}))
    yield "names", list(table.names) if columns is None and hasattr(table, "names") else getattr(table, "name", None)
    if columns is None:
        yield "dtype", str(table.dtype)
        yield "cells", table.astype(object).tolist()
        return
    yield "columns", list(columns)
    yield "index", table.index
    for i in range(len(columns)):
        yield i, table.iloc[:, i]


def _attributes(value, path, found):
    own = dict(vars(value)) if hasattr(value, "__dict__") else {}
    for cls in type(value).__mro__:
        slots = getattr(cls, "__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
                own[name] = getattr(value, name)
    if isinstance(value, int | float | str | bytes) or not own:  # of subclasses of plain types, and the rest
        found.append((path, _plainly(value)))
    yield from own.items()


def _filled(cell):
    try:
        return cell.cell_contents is not cell
    except ValueError:  # of a function that is not defined yet
        return False


def _plainly(value):
    return _ADDRESS.sub("0x", repr(value))
