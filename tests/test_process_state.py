"""What a process keeps from one fit to the next is listed here: a cache of private or released values is on no list.

A cache with too coarse a key gives a second fit what the first one released, at no charge to the second one's ledger.
The harness of noninterference does not see what the first fit of a process leaves for all others.
"""

from __future__ import annotations

import ast
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from _fits import FITS
from _sabotage import quietly
from _short_fits import short_postprocessing

import skdpgen

ROOT = Path(skdpgen.__file__).parent
_CACHES = {"lru_cache", "cache", "memoize"}
_CONTAINERS = {
    "dict", "list", "set", "defaultdict", "OrderedDict", "Counter", "deque", "WeakKeyDictionary", "WeakValueDictionary",
    "local", "ContextVar",
}  # fmt: skip
_CHANGES = {
    "append", "add", "update", "setdefault", "extend", "insert", "pop", "popitem", "remove", "clear", "appendleft",
    "discard", "__setitem__",
}  # fmt: skip

# states of a process -> why no fit finds in them anything of the rows, or of the releases, of another one
_REASONS = {
    "functions of events and of numbers that everybody may know": [
        "accounting/_calibration.py: cache _scale",
        "accounting/_events.py: cache _releases_from_text",
        "accounting/_pricing.py: cache _delta_of",
        "accounting/_pricing.py: cache _distribution",
        "accounting/_pricing.py: cache epsilon_of",
        "accounting/_pricing.py: cache gaussian_epsilon",
        "accounting/_pricing.py: cache gaussian_mu",
        "accounting/_renyi.py: cache _curve",
        "accounting/_renyi.py: cache _log_moment",
        "accounting/_renyi.py: cache epsilon_by_rdp",
        "accounting/_renyi.py: cache epsilon_of_rows",
        "accounting/_renyi.py: cache poisson_rdp",
        "accounting/_renyi.py: cache repetition_rdp",
        "accounting/_renyi.py: cache stopping_probability",
        "accounting/_subset_sampling.py: cache subset_rdp",
    ],
    "indices, by the number of cells of a histogram that is released": [
        "mechanisms/_selection.py: cache _upper",
    ],
    "parameters of a class that takes none": [
        "synthesizers/_base.py: container _training_defaults",
    ],
    "versions of software, its libraries, and names of time zones": [
        "accounting/_card.py: cache _installed",
        "tabular/_dtypes.py: cache of available_timezones",
        "utils/numerics.py: cache _thread_pools",
    ],
    "locks, the number of forks, and which objects are being fitted": [
        "_base.py: change of _fits",
        "_base.py: container _fits",
        "accounting/_ledger.py: change of _turns",
        "utils/forks.py: change of _locks",
        "utils/forks.py: global _forks",
    ],
    "hooks that a block sets, in its thread, and takes back": [
        "utils/clock.py: container _held",
        "utils/noise.py: container _override",
        "utils/progress.py: container _HIDDEN",
        "utils/noise.py: container _public",
        "utils/watching.py: container _observer",
        "utils/watching.py: container _replay",
    ],
    "the list of checks, made when the module is imported": [
        "estimator_checks/_helpers.py: change of CHECKS",
        "estimator_checks/_helpers.py: container CHECKS",
    ],
}
KNOWN = {state for states in _REASONS.values() for state in states}


def _states_of_generators():
    numpy = np.random.get_state()  # noqa: NPY002
    return random.getstate(), (numpy[1].tolist(), *numpy[2:]), torch.default_generator.get_state().tolist()


@pytest.mark.parametrize("name", FITS)
def test_a_fit_leaves_the_generators_of_the_process_alone(name):
    """A search makes a random number of fits, which is not released: a generator that each of them moves shows it."""
    estimator, *data = FITS[name]()
    estimator.set_params(random_state=None)
    before = _states_of_generators()
    with short_postprocessing():
        quietly(lambda: estimator.fit(*data))
    assert _states_of_generators() == before


def _name(node):
    return getattr(node, "id", getattr(node, "attr", None))


def _is_container(value):
    empty = isinstance(value, ast.Dict) and not value.keys
    empty |= isinstance(value, ast.List | ast.Set) and not value.elts
    return empty or (isinstance(value, ast.Call) and _name(value.func) in _CONTAINERS)


def _targets(node):
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {_name(target) for target in targets if isinstance(target, ast.Name)}


def _assigned(body):
    return [node for node in body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None]


def _own_names(nodes):
    """Parameters and names that a function of these nodes binds."""
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return bound | {node.arg for node in nodes if isinstance(node, ast.arg)}


def states_in(source):
    """Yield what a module may carry from one call to another: caches, containers, globals, attributes of functions."""
    tree = ast.parse(source)
    module = {name for node in _assigned(tree.body) for name in _targets(node)}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    named = module | {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for body in (tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))):
        for node in _assigned(body):
            if _is_container(node.value):
                yield from (f"container {name}" for name in _targets(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in _CACHES and node.args:
            yield f"cache of {ast.unparse(node.args[0])}"
    for function in functions:
        for decorator in function.decorator_list:
            if _name(decorator.func if isinstance(decorator, ast.Call) else decorator) in _CACHES:
                yield f"cache {function.name}"
        for default in (*function.args.defaults, *function.args.kw_defaults):
            if default is not None and _is_container(default):
                yield f"default of {function.name}"
        nodes = list(ast.walk(function))
        theirs = named - _own_names(nodes)
        for node in nodes:
            if isinstance(node, ast.Global):
                yield from (f"global {name}" for name in node.names)
            changed = None
            if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                changed = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
                changed = node.func.value
            if isinstance(changed, ast.Name) and changed.id in theirs:
                yield f"change of {changed.id}"


def test_what_a_process_keeps_between_fits_is_known():
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {state}"
        for path in sorted(ROOT.rglob("*.py"))
        for state in states_in(path.read_text(encoding="utf-8"))
    }
    assert found == KNOWN, f"new: {sorted(found - KNOWN)}; gone: {sorted(KNOWN - found)}"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("_SEEN = {}", "container _SEEN"),
        ("class A:\n    seen = []", "container seen"),
        ("_TABLE = {'a': 1}\ndef f(x):\n    _TABLE[x.shape] = x", "change of _TABLE"),
        ("_TABLE = {'a': 1}\ndef f(x):\n    return _TABLE.setdefault(x.shape, x)", "change of _TABLE"),
        ("@lru_cache(maxsize=1)\ndef f(x):\n    return x", "cache f"),
        ("@functools.cache\ndef f(x):\n    return x", "cache f"),
        ("f = functools.lru_cache(g)", "cache of g"),
        ("def f(x, seen=[]):\n    return x", "default of f"),
        ("def f(x, *, seen={}):\n    return x", "default of f"),
        ("_LAST = None\ndef f(x):\n    global _LAST\n    _LAST = x", "global _LAST"),
        ("def f(x):\n    f.last = x", "change of f"),
    ],
)
def test_state_of_a_process_is_found(source, told):
    assert told in set(states_in(source))


def test_names_of_a_function_are_no_state():
    assert not set(states_in("_A = (1,)\ndef f(x):\n    seen = {}\n    seen[x] = 1\n    x.a = _A\n    return seen"))
