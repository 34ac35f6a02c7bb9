"""One fit, made along the releases of another: what it asked of its rows, and every fact that it leaves behind."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import logging
import random
import re
import sys
import tempfile
import types
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..utils.noise import NoiseGenerator, override_noise
from ..utils.watching import Replay, replay_releases

# A bar of tqdm's: percentage and times depend on the clock, which is no release.
_BAR = re.compile(r"^(.*?):?\s+\d+%\|.*\|\s*(\d+)/(\d+).*$")


class _AlikeNoise(NoiseGenerator):
    """A known generator whose draws are alike in two fits, whatever the numbers of rows.

    Each call has a separate stream, by its place among the calls of its kind, and a longer draw begins as a shorter
    one does: that of a row does not follow from how many rows there are. With `aligned`, a step of DP-SGD takes all
    records, each has the same normals, wherever it stands, and its group follows from its place in a physical batch
    alone, of which there may be one more: what a record adds to a sum can then be compared. With `level`, the random
    choices of all records are equal, so that rows may change places.
    """

    keeps_order = True

    def __init__(self, place, aligned, level):
        super().__init__("seeded", seed=place)
        self._place, self._calls, self.takes_all, self._level = place, {}, aligned, level

    def _stream(self, kind, rows=False):
        call = self._calls[kind] = self._calls.get(kind, -1) + 1
        call = 0 if rows and self.takes_all else call
        return np.random.Generator(np.random.PCG64([self._place, len(kind), call]))

    def random(self, size=None):
        if self._level and size is not None and np.prod(size) > 1:
            return np.full(size, 0.5)
        return self._stream("uniform").random(size)

    def integers(self, high, size=None):
        # one uniform each, so that the draws of rows stay theirs
        drawn = self._stream("whole", rows=size is not None).random(size) * high
        return int(drawn) if size is None else np.minimum(drawn.astype(np.int64), int(high) - 1)

    def standard_normal(self, size=None):
        shape = (size,) if isinstance(size, int | np.integer) else size
        if not self.takes_all or shape is None or len(shape) < 2:
            return self._stream("normals").standard_normal(size)
        one = self._stream("normals", rows=True).standard_normal(shape[1:])
        return np.broadcast_to(one, shape).copy()

    def random_bytes(self, n):
        return np.frombuffer(self._stream("raw").bytes(int(n)), dtype=np.uint8).copy()


class _EnoughError(BaseException):
    """All queries of the past were asked: what follows is post-processing. No fit catches it."""


@dataclass(frozen=True, eq=False)
class Release:
    """One release of a fit, or one list of names that passed a threshold."""

    about: dict  # what is public of the query: kind, shape, bounds, weights, lattice, noise
    released: object  # array or dict; what the fit went on with; of names, their noisy counts
    exact: np.ndarray | None = None  # the weighted sum, flattened: of the cells that no row names
    named: tuple = ()  # of each run of cells that rows name, a dict: the weighted counts by name
    query: object = None  # BoundedSum or None


def _weights(weights, spread, public):
    """Weights of the cells that no row names, and those other than 1 of the cells that rows name.

    How many cells rows name is private, and one weight for each of them has that shape.
    """
    if not weights.ndim:
        return weights.shape, weights.tobytes()
    return spread[public].tobytes(), sorted({*spread[~public].tolist()} - {1.0})


class _Follower(Replay):
    """Records the releases of a fit; with a `past`, puts those of another fit in their place.

    `ties`: make the noisy counts of names coarse, so that many are equal.
    `pass_names`: the rows are the same in another order: names pass by their own counts.
    `until`: end the fit with the last query of the past; with "plain", with the last that is no step of DP-SGD.
    """

    def __init__(self, past=None, *, ties=False, pass_names=False, until=None):
        self.releases, self.broken = [], None
        self._past, self._ties, self._pass_names = past, ties, pass_names
        self._runs, self._end = [], None
        if until is not None:
            kinds = ("plain",) if until == "plain" else ("plain", "gradient")
            self._end = 1 + max(k for k, one in enumerate(past) if one.about["kind"] in kinds)

    def release(self, released, sd, kind, query):
        total = query.bounded_sum
        values = total.value if isinstance(total.value, list) else [total.value]
        exact = np.concatenate([_flat(value) for value in values])
        scale = float(total.lattice) if exact.dtype.kind in "iu" and total.lattice is not None else 1.0
        weights = np.asarray(total.weights, dtype=np.float64)
        spread = np.broadcast_to(weights, np.shape(total.value)).ravel() if weights.ndim else weights
        weighted = exact.astype(np.float64) * scale * spread
        runs = total.keys or {}
        public = np.ones(exact.size, dtype=bool)
        for start, names in runs.items():
            public[start : start + len(names)] = False
        about = {
            "kind": kind,
            "type": str(exact.dtype),
            "shape": None if runs else tuple(tuple(np.shape(value)) for value in values),
            "public cells": int(public.sum()),
            "runs of names": len(runs),
            "add_or_remove_one": float(total.add_or_remove_one),
            "replace_one": None if total.replace_one is None else float(total.replace_one),
            "weights": _weights(weights, spread, public) if runs else (weights.shape, weights.tobytes()),
            "lattice": None if total.lattice is None else float(total.lattice),
            "unit": total.unit,
            "weighted": total.weighted,
            "noise_multiplier": float(query.noise_multiplier),
            "neighboring": query.neighboring,
            "divisor": float(query.divisor),
        }
        named = tuple(
            dict(zip(names, weighted[start : start + len(names)].tolist())) for start, names in sorted(runs.items())
        )
        past = self._next(about)
        self._runs = list(named) or self._runs
        if self._ties and runs and past is None:
            coarse = 0.5 * max(float(np.max(released[~public], initial=0.0)), 0.0) or 1.0
            released = np.where(public, released, np.ceil(released / coarse) * coarse)
        if past is not None:
            self._same_forms(past, named)
            released = self._replayed(past, released, public, runs)
        self.releases.append(Release(about, released, weighted[public], named, total))
        if len(self.releases) == self._end:
            raise _EnoughError
        return released

    def kept(self, names):
        past = self._next({"kind": "names"})
        seen = self._runs.pop(0) if self._runs else {}
        if past is not None:
            if self._pass_names and _forms(names) != _forms(past.released):
                self._break("other names pass when the same rows come in another order")
            # the noisy counts of names are those of the past, so what passed there passes where it is seen
            if not names.keys() >= {name for name in past.released if name in seen} or not names.keys() <= set(seen):
                self._break("whether a name passes follows from more than its noisy count")
            if not self._pass_names:  # else in the order of these rows, which must not matter
                names = dict(past.released)
        self.releases.append(Release({"kind": "names"}, dict(names)))
        return names

    def finish(self):
        """Complain where fewer releases were made than in the past."""
        if self._past is not None and len(self.releases) < len(self._past):
            self._break(f"{len(self.releases)} releases, where there were {len(self._past)}")

    def _next(self, about):
        if self._past is None:
            return None
        at = len(self.releases)
        if at >= len(self._past):
            self._break(f"more releases than the {len(self._past)} that there were")
        other = self._past[at].about
        for name in {**other, **about}:
            if other.get(name) != about.get(name):
                self._break(f"query {at + 1} has another {name}")
        return self._past[at]

    def _replayed(self, past, released, public, runs):
        out = np.array(released)
        if not runs:
            return past.released.reshape(out.shape).copy()
        theirs = np.ones(past.released.size, dtype=bool)
        for start, names in past.query.keys.items():
            theirs[start : start + len(names)] = False
        out[public] = past.released[theirs]
        for (start, names), (their_start, their_names) in zip(sorted(runs.items()), sorted(past.query.keys.items())):
            counts = dict(zip(their_names, past.released[their_start : their_start + len(their_names)].tolist()))
            out[start : start + len(names)] = [counts.get(name, 0.0) for name in names]
        return out

    def _same_forms(self, past, named):
        """A name has one form, which its value alone decides: 1 and 1.0 are equal, and look different when released."""
        for ours, theirs in zip(named, past.named):
            forms = {name: _form(name) for name in theirs}
            if any(forms.get(name, _form(name)) != _form(name) for name in ours):
                self._break("the form (type) of a name follows from other rows")

    def _break(self, message):
        self.broken = self.broken or message
        raise AssertionError(message)


def _flat(value):
    value = value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    return np.array(value).ravel()


def _form(name):
    return type(name), repr(name)


def _forms(names):
    return sorted(map(_form, names), key=repr)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a fit left behind: its releases, and lists of facts by the kind of thing; None where it was cut short."""

    releases: list
    left: dict


def fit_along(estimator, data, past=None, *, aligned=False, level=False, **how):
    """Fit an estimator, along the releases of another fit if they are given.

    `estimator`: fitted in place. `data`: arguments of ``fit``. `aligned`, `level`: see `_AlikeNoise`. **how: as of
    `_Follower`. Raises AssertionError: the fit asked for other things than that of the past.
    """
    follower, made = _Follower(past, **how), itertools.count()
    torch_loaded = "torch" in sys.modules
    out, err, notes = io.StringIO(), io.StringIO(), _Notes()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_public_seeds())
        said = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(notes.listening())
        stack.enter_context(override_noise(lambda _: _AlikeNoise(next(made), aligned, level)))
        stack.enter_context(replay_releases(follower))
        try:
            estimator.fit(*data)
        except _EnoughError:
            return Outcome(follower.releases, None)
        except Exception as error:
            if follower.broken is not None:
                raise AssertionError(follower.broken) from None
            if past is not None:
                raise AssertionError(
                    f"{type(error).__name__} where another data set gave none: what stops a fit is seen by others"
                ) from error
            raise
        follower.finish()
        moved = _states()
        of_torch = moved.pop("torch", None)
    left = {
        "state of torch's generator": of_torch if torch_loaded else None,
        "attributes": facts(vars(estimator), "estimator"),
        "warnings": [(f"warning {k}", (w.category.__name__, str(w.message))) for k, w in enumerate(said)],
        "stdout": _lines("stdout", out.getvalue()),
        "stderr": _lines("stderr", err.getvalue()),
        "log": list(enumerate(notes.lines)),
        "states of the process's generators": facts(moved, "state"),
        "text": [("repr", repr(estimator)), *_of_accountant(estimator)],
        "model file": _file(estimator),
        "sample": _drawn(estimator),
    }
    return Outcome(follower.releases, left)


def _of_accountant(estimator):
    card, accountant = getattr(estimator, "card_", None), getattr(estimator, "accountant_", None)
    out = [("card", None if card is None else card.to_json())]
    if accountant is not None:
        html = accountant._repr_html_() if hasattr(accountant, "_repr_html_") else None
        out += [("accountant", repr(accountant)), ("ledger", html)]
    return out


def _file(estimator):
    """Bytes of the released model, where there is a file of it."""
    if not hasattr(estimator, "save"):
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        try:
            estimator.save(path)
        except ValueError as error:  # a module that the user gave
            return [("refused", str(error))]
        return [("bytes", path.read_bytes())]


def _drawn(estimator):
    if not hasattr(estimator, "sample"):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return facts(estimator.sample(7), "sample")


def _lines(name, text):
    """Printed lines; of a bar, what it says beside the time."""
    lines = []
    for line in re.split(r"[\r\n]+", text):
        bar = _BAR.match(line)
        lines.append(f"{bar[1]} of {bar[3]}" if bar else line.rstrip())
    return [(f"{name} {k}", line) for k, (line, _) in enumerate(itertools.groupby(lines))]


class _Notes(logging.Handler):
    """Log records."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append((record.name, record.levelname, record.getMessage()))

    @contextlib.contextmanager
    def listening(self):
        root = logging.getLogger()
        root.addHandler(self)
        try:
            yield
        finally:
            root.removeHandler(self)


@contextlib.contextmanager
def _public_seeds():
    """Start the process's own generators alike, and give the caller's states back."""
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    own = None if torch is None else torch.default_generator.get_state()
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if torch is not None:
        torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch is not None:
            torch.default_generator.set_state(own)


def _states():
    """States of the process's generators: a generator that private draws have advanced reveals their number."""
    torch = sys.modules.get("torch")
    states = {"random": random.getstate(), "numpy": np.random.get_state()}  # noqa: NPY002
    if torch is not None:
        states["torch"] = [("torch", torch.default_generator.get_state().numpy().tobytes())]
    return states


# ---- facts ---------------------------------------------------------------------------------------------------------
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
# Neither is data; two fits have their own.
_OPAQUE = (types.ModuleType, types.CodeType, types.BuiltinFunctionType)


def facts(root, name):
    """Return a list of (path, fact) of all that an object holds: attributes, items, entries, dtypes, closures.

    `name`: first part of the paths.
    """
    found = []
    _walk(root, name, found, {})
    return found


def difference(one, other):
    """Return the first path at which two lists of `facts` differ, or None if they are equal. It names no value."""
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
    elif hasattr(value, "charges") and hasattr(
        value, "entries"
    ):  # an accountant: its locks and files are no facts of a fit
        yield "accountant", (value.epsilon, value.delta, value.neighboring, value.charges, value.report())
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
