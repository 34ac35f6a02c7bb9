"""A search of a fitted object, and of all that hangs on it, for exact private values."""

from __future__ import annotations

import pickle
import types
import weakref

import numpy as np
import pandas as pd
import torch

from skdpgen.utils.noise import NoiseGenerator

__all__ = ["find_private"]


def find_private(root, frame, y=None, *, derived=None, count_is_public=False):
    """Search everything that hangs on a fitted object for exact private values.

    Parameters
    ----------
    root : object
        Its attributes, items, closures, modules and pickles are searched.
    frame : DataFrame
        What was fitted: continuous numbers, and strings of which one that a single record has contains "rare".
    y : array, default=None
    derived : array of shape (n_rows, at least 2), default=None
        The same records as the fit scales them; its first two columns are continuous.
    count_is_public : bool, default=False
        Under replace_one.

    Returns
    -------
    list of str
        What was found and where; empty if nothing was.
    """
    found = []
    private = _Private(frame, y, derived, count_is_public)
    _walk(root, "fit", private, found, {})
    try:
        raw = pickle.dumps(root)
    except (TypeError, AttributeError, pickle.PicklingError):  # a net with a local class, a closure
        raw = b""
    found += [f"pickle: {what}" for what in private.in_bytes(raw)]
    return found


class _Private:
    def __init__(self, frame, y, derived, count_is_public):
        frame = frame if y is None else frame.assign(label=np.asarray(y))
        numbers = frame.select_dtypes("number")
        self.n = len(frame)
        self.cells = np.unique(numbers.to_numpy(float))
        # two cells side by side tell a record, in single precision too
        records = [part[:, :2] for part in (numbers.to_numpy(float), derived) if part is not None and part.shape[1] > 1]
        self.rows = np.concatenate([np.zeros((0, 2)), *records])
        of_rows = [_pairs(self.rows.astype(dtype).ravel())[::2] for dtype in (np.float64, np.float32)]
        self.pairs = np.unique(np.concatenate(of_rows))
        names = ("mean", "std", "var", "min", "max", "median", "sum", "skew")
        self.vectors = [np.atleast_1d(getattr(numbers, name)().to_numpy(float)) for name in names]
        self.vectors += [numbers.std(ddof=0).to_numpy(float), numbers.var(ddof=0).to_numpy(float)]
        scalars = np.concatenate(self.vectors)
        if not count_is_public:
            counts = [self.n, self.n - 1]
            for name in frame.columns.difference(numbers.columns):
                levels = frame[name].value_counts().to_numpy()
                counts += [c for c in levels if c > 30]  # small whole numbers are found everywhere
                scalars = np.append(scalars, levels[levels > 1] / self.n)
            scalars = np.concatenate([scalars, counts, [1 / self.n, self.n**0.5]])
        self.count_is_public = count_is_public
        self.scalars = np.unique(scalars[np.abs(scalars) > 1e-12])

    def in_array(self, array):
        """What of the private data an array holds."""
        if not self.count_is_public and self.n in array.shape:
            yield f"an array of shape {array.shape}: one entry a row"
        if array.dtype.kind in "US" and array.size:
            longest = max(1, *(len(text) for text in array.ravel().tolist()))
            if array.dtype.itemsize > longest * (4 if array.dtype.kind == "U" else 1):
                yield "a dtype that tells the length of a string that is not there"
        if array.dtype.kind in "OUS":
            for value in array.ravel().tolist():
                yield from self.in_scalar(value)
            return
        if array.dtype.kind not in "fiu" or not array.size:
            return
        flat = array.ravel()
        if array.dtype == np.float64 and _any_among(flat, self.cells):
            yield "a cell of the data"
        if array.dtype.kind == "f" and _any_among(_pairs(flat), self.pairs):
            yield "rows of the data"
        for vector in self.vectors if array.dtype.kind == "f" and flat.size >= len(self.vectors[0]) > 1 else ():
            windows = np.lib.stride_tricks.sliding_window_view(flat, len(vector))
            if np.isclose(windows, vector, rtol=1e-5, atol=0).all(axis=1).any():
                yield "exact statistics of the columns"
        if array.dtype != np.float32:
            values = flat.astype(float)
            at = np.clip(np.searchsorted(self.scalars, values), 1, len(self.scalars) - 1)
            near = np.minimum(np.abs(values - self.scalars[at]), np.abs(values - self.scalars[at - 1]))
            if (near <= 1e-12 * np.abs(values)).any():
                yield "an exact count or statistic"

    def in_scalar(self, value):
        """What of the private data a number or a text holds."""
        if isinstance(value, str):
            if "rare" in value:
                yield "a category of one record"
        elif isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.bool_)):
            yield from self.in_array(np.array([float(value)]))

    def in_bytes(self, raw):
        """What of the private data bytes hold: pairs of cells that are neighbours in a row, in either precision."""
        if b"rare" in raw:
            yield "a category of one record"
        for dtype in (np.float64, np.float32):
            if any(row.tobytes() in raw for row in self.rows[::25].astype(dtype)):
                yield "rows of the data"


def _pairs(flat):
    """Neighbouring entries as complex numbers, to be looked up together."""
    flat = flat.astype(np.float64)
    return flat[:-1] + 1j * flat[1:]


def _any_among(values, among):
    """Whether any value is among those of a sorted array: `np.isin` would sort them again for each number."""
    at = np.searchsorted(among, values)
    return bool(len(among) and np.any(among[np.minimum(at, len(among) - 1)] == values))


_SKIPPED = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    weakref.ref,
    np.random.Generator,
    NoiseGenerator,
    torch.dtype,
)


def _walk(thing, where, private, found, seen):
    if thing is None or isinstance(thing, (bool, *_SKIPPED)) or id(thing) in seen:
        return
    seen[id(thing)] = thing  # kept, so that no id is used twice
    if isinstance(thing, (int, float, np.number, str)):
        found += [f"{where}: {what}" for what in private.in_scalar(thing)]
        return
    if isinstance(thing, (bytes, bytearray)):
        found += [f"{where}: {what}" for what in private.in_bytes(bytes(thing))]
        return
    if isinstance(thing, torch.Tensor):
        tensor = thing.detach().cpu()
        whole = tensor.new_empty(0).set_(tensor.untyped_storage())  # a view holds on to all of it
        found += [f"{where}: {what}" for part in (tensor, whole) for what in private.in_array(part.numpy())]
        return
    if isinstance(thing, np.ndarray):
        found += [f"{where}: {what}" for what in private.in_array(thing)]
        if isinstance(thing.base, np.ndarray):
            _walk(thing.base, f"{where}.base", private, found, seen)
        return
    for name, part in _parts(thing):
        _walk(part, f"{where}{name}", private, found, seen)


def _parts(thing):
    """Yield (name, part) of everything that a container, an object or a function holds on to."""
    if isinstance(thing, pd.DataFrame):
        yield from ((f"[{name!r}]", thing[name]) for name in thing.columns)
    elif isinstance(thing, (pd.Series, pd.Index)):
        yield ".values", np.asarray(thing)
        if isinstance(thing.dtype, pd.CategoricalDtype):
            yield ".categories", np.asarray(thing.dtype.categories)
    elif isinstance(thing, pd.CategoricalDtype):
        yield ".categories", np.asarray(thing.categories) if thing.categories is not None else None
    elif isinstance(thing, (dict, types.MappingProxyType)):
        yield from ((f"[key {i}]", key) for i, key in enumerate(thing))
        yield from ((f"[{key!r}]", value) for key, value in thing.items())
    elif isinstance(thing, (list, tuple, set, frozenset)):
        yield from ((f"[{i}]", part) for i, part in enumerate(thing))
    elif isinstance(thing, types.FunctionType):
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or ())
        yield from ((f".{name}", cell.cell_contents) for name, cell in cells)
        yield ".defaults", (thing.__defaults__, thing.__kwdefaults__)
    elif isinstance(thing, types.MethodType):
        yield ".self", thing.__self__
        yield ".function", thing.__func__
    else:
        if hasattr(thing, "func") and hasattr(thing, "keywords"):  # functools.partial
            yield ".partial", (thing.func, thing.args, thing.keywords)
        yield from ((f".{name}", part) for name, part in getattr(thing, "__dict__", {}).items())
        for cls in type(thing).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__"):
                    yield f".{name}", getattr(thing, name, None)
