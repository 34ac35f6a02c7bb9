"""What the sabotage suite is made of: patched sources, an audit of releases, and a search for private values."""

from __future__ import annotations

import __future__
import ast
import inspect
import pickle
import sys
import textwrap
import types
import warnings
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import skdpgen.nn
import skdpgen.synthesizers  # noqa: F401  every module is loaded, so that none is missed below
from skdpgen.accounting import PrivacyAccountant, describe_event
from skdpgen.dpsgd import GradientNoise, PoissonLoader, poisson_batches
from skdpgen.mechanisms import add_gaussian, select_above
from skdpgen.utils.noise import NoiseGenerator

__all__ = ["Audit", "find_private", "load_claims", "patch_source"]

_TESTS = Path(__file__).parent


def load_claims(*rooms):
    """Put the tests of other rooms on the path: their test functions are the claims that sabotage must break."""
    for room in rooms:
        if (folder := str(_TESTS / room)) not in sys.path:
            sys.path.append(folder)


# ---- sabotage --------------------------------------------------------------------------------------------
def patch_source(monkeypatch, function, *edits):
    """Change the source of a shipped function in place, wherever it was imported by name.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
    function : function, method or property
    *edits : (old, new)
        Each `old` must occur once: sabotage that no longer applies fails instead of passing for caught.
    """
    function = inspect.unwrap(getattr(function, "fget", None) or function)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in edits:
        assert source.count(old) == 1, f"{function.__qualname__} has {source.count(old)} times {old!r}"
        source = source.replace(old, new)
    tree = ast.parse(source)
    tree.body[0].decorator_list = []
    if "__class__" in function.__code__.co_freevars:  # super() needs a class around it
        tree.body = ast.parse("class Around: pass").body + []
        tree.body[0].body = ast.parse(source).body
        tree.body[0].body[0].decorator_list = []
    ast.fix_missing_locations(tree)
    code = compile(tree, "<sabotage>", "exec", __future__.annotations.compiler_flag, dont_inherit=True)
    monkeypatch.setattr(function, "__code__", _find(code, function.__name__))


def _find(code, name):
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_name == name:
                return constant
            if constant.co_name == "Around":
                return _find(constant, name)
    raise AssertionError(f"no code of {name}")


# ---- audit of releases -----------------------------------------------------------------------------------
class Audit:
    """Watch a fit: what was charged, what was released, in which order; a context manager.

    Attributes
    ----------
    log : list of (kind, ...)
        ("charge", event, extra_delta), ("release", noise_multiplier), ("step", noise_multiplier, sampling_rate),
        ("threshold", delta).
    plans : list of DPSGDPlan
    relations : set of str
        Under which noise was scaled.
    """

    def __init__(self):
        self.log, self.plans, self.relations = [], [], set()
        self._rate = None

    def __enter__(self):
        self._patch = pytest.MonkeyPatch()
        everywhere(self._patch, add_gaussian, self._add_gaussian)
        everywhere(self._patch, select_above, self._select_above)
        everywhere(self._patch, poisson_batches, self._poisson_batches)
        audit, charge, release, start = self, PrivacyAccountant.charge, GradientNoise.release, PoissonLoader.__init__

        def charged(accountant, event, label, extra_delta=0.0):
            charge(accountant, event, label, extra_delta)
            audit.log.append(("charge", event, extra_delta))

        def released(noise, bounded, divisor=1.0, out=None):
            plan = audit.plans[-1]
            assert divisor == plan.expected_batch_size, "the denominator is not the expected batch size of the plan"
            assert bounded.l2_bound == plan.l2_bound
            audit.log.append(("step", noise.noise_multiplier, audit._rate))
            return release(noise, bounded, divisor, out)

        def started(loader, dataset, *, plan, **options):
            audit.plans.append(plan)
            start(loader, dataset, plan=plan, **options)

        self._patch.setattr(PrivacyAccountant, "charge", charged)
        self._patch.setattr(GradientNoise, "release", released)
        self._patch.setattr(PoissonLoader, "__init__", started)
        return self

    def __exit__(self, *_):
        self._patch.undo()

    def _add_gaussian(self, query, noise_multiplier, rng, neighboring):
        self.log.append(("release", noise_multiplier))
        self.relations.add(neighboring)
        return add_gaussian(query, noise_multiplier, rng, neighboring)

    def _select_above(self, noisy_counts, sd, delta, n_columns=1):
        self.log.append(("threshold", delta))
        return select_above(noisy_counts, sd, delta, n_columns)

    def _poisson_batches(self, n_records, sampling_rate, steps, rng):
        self._rate = sampling_rate
        return poisson_batches(n_records, sampling_rate, steps, rng)

    def check(self, accountant):
        """Assert that all that ran was charged before it ran, and that all that was charged ran: to the last bit."""
        kinds = [entry[0] for entry in self.log]
        assert kinds.count("charge") == 1, "not exactly one charge"
        assert kinds[0] == "charge", "a release came before the charge"
        _, event, extra_delta = self.log[0]
        ran = [(entry[1], None if entry[0] == "release" else entry[2]) for entry in self.log if entry[0] in ("release", "step")]
        paid = [(row["noise_multiplier"], row["sampling_rate"]) for row in describe_event(event) for _ in range(row["count"])]
        assert _sorted(ran) == _sorted(paid), "what was released is not what was charged"
        assert {entry[1] for entry in self.log if entry[0] == "threshold"} == ({extra_delta} if extra_delta else set())
        assert self.relations <= {accountant.neighboring}, "noise was scaled for another relation"
        assert all(plan.neighboring == accountant.neighboring for plan in self.plans)
        books = [(charge.event, charge.extra_delta) for charge in accountant.charges]
        assert books == [(event, extra_delta)], "the books do not hold what was charged"


def _sorted(pairs):
    return sorted(pairs, key=lambda pair: (pair[1] is not None, pair))


def everywhere(monkeypatch, function, replacement):
    """Replace a function in every module of the package that has it by any name."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "skdpgen"]
    for module in modules:
        for name, value in list(vars(module).items()):
            if value is function:
                monkeypatch.setattr(module, name, replacement)


def quietly(fit):
    """Run a fit without its warnings about utility; a fit that its own guards refuse fails the claim too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fit()
        except (ValueError, KeyError, RuntimeError) as error:
            raise AssertionError(f"refused by a guard of the fit itself: {error}") from error


# ---- search for private values ---------------------------------------------------------------------------
def find_private(root, frame, y=None, *, count_is_public=False):
    """Search everything that hangs on a fitted object for exact private values.

    Parameters
    ----------
    root : object
        Its attributes, items, closures, modules and pickles are searched.
    frame : DataFrame
        What was fitted: continuous numbers, and strings of which one that a single record has contains "rare".
    y : array, default=None
    count_is_public : bool, default=False
        Under replace_one.

    Returns
    -------
    list of str
        What was found and where; empty if nothing was.
    """
    found = []
    private = _Private(frame, y, count_is_public)
    _walk(root, "fit", private, found, {})
    try:
        raw = pickle.dumps(root)
    except (TypeError, AttributeError, pickle.PicklingError):  # a net with a local class, a closure
        raw = b""
    found += [f"pickle: {what}" for what in private.in_bytes(raw)]
    return found


class _Private:
    def __init__(self, frame, y, count_is_public):
        frame = frame if y is None else frame.assign(label=np.asarray(y))
        numbers = frame.select_dtypes("number")
        self.n = len(frame)
        self.cells = np.unique(numbers.to_numpy(float))
        self.rows = numbers.to_numpy(float)[::25, :2]
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
        if array.dtype == np.float64 and np.isin(flat, self.cells).any():
            yield "a cell of the data"
        if array.dtype.kind == "f" and array.dtype != np.float64:
            yield from self.in_bytes(flat.tobytes())
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
            if self.rows.shape[1] == 2 and any(row.tobytes() in raw for row in self.rows.astype(dtype)):
                yield "rows of the data"


_SKIPPED = (type, types.ModuleType, types.BuiltinFunctionType, weakref.ref, np.random.Generator, NoiseGenerator, torch.dtype)


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
