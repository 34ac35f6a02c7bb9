"""What must not move while modules do: fits, their plans and their bits, files, names. Records them, and finds them.

``python tests/_unmoved.py --record`` writes what is compared again, ``--files`` the files of an earlier version,
``--machine`` adds the bits of this machine beside those of others.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import importlib
import inspect
import json
import math
import os
import platform
import re
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import threadpoolctl
from _unmoved_cases import CASES, FITTED, PRESETS, RELATIONS, make
from _unmoved_facts import MODELS, books_facts, fit_facts, model_facts, plan_facts, shared_books, write_files

import skdpgen

__all__ = [
    "CASES",
    "DATA",
    "FITTED",
    "MODELS",
    "PRESETS",
    "RELATIONS",
    "books_facts",
    "differences",
    "estimators",
    "fit_facts",
    "make",
    "model_facts",
    "mutant_names",
    "plain",
    "plan_facts",
    "public_names",
    "read",
    "recorded_bits",
    "recorded_mutants",
    "shared_books",
]

TESTS = Path(__file__).parent
DATA = TESTS / "data" / "unmoved"
# Of floats, on a machine like that of the record. Elsewhere integrals of other versions of scipy move a calibrated
# noise multiplier by a few parts in 1e9 (3.3e-9 with 1.13.1).
RTOL, RTOL_ELSEWHERE = 1e-9, 1e-6


# ---- machines --------------------------------------------------------------------------------------------------------
def machine():
    """Return what the bits of a fit depend on."""
    cpu = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            cpu.setdefault(key.strip(), value.strip())
    flags = " ".join(sorted(cpu.get("flags", "").split()))
    libraries = {
        f"{pool.get('internal_api')} {pool.get('version')} {pool.get('architecture')}"
        for pool in threadpoolctl.threadpool_info()
    }
    return {
        "processor": f"{platform.machine()} {cpu.get('model name')} {cpu.get('cpu family')}/{cpu.get('model')}",
        "flags": hashlib.sha256(flags.encode()).hexdigest(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn", "pandas", "torch", "skorch")},
        "libraries": sorted(libraries),
        "threads": 1,
    }


@functools.cache
def recorded_bits():
    """Return the bits recorded on a machine like this one, or None."""
    return next((entry["bits"] for entry in read("bits.json") if entry["machine"] == machine()), None)


@functools.cache
def tolerance():
    """Relative difference of floats that are taken for equal on this machine."""
    return RTOL if recorded_bits() is not None else RTOL_ELSEWHERE


# ---- names -----------------------------------------------------------------------------------------------------------
ROOMS = (
    *("accounting", "synthesizers", "mechanisms", "tabular", "dpsgd", "nn", "metrics", "mixture", "decomposition"),
    *("model_selection", "audit", "datasets", "testing", "estimator_checks", "report", "exceptions"),
)


def public_names():
    """Names, parameters and defaults of everything public, one line each."""
    found = {"skdpgen": {name: _describe(getattr(skdpgen, name)) for name in skdpgen.__all__ if name != "__version__"}}
    for room in ROOMS:
        module = importlib.import_module(f"skdpgen.{room}")
        names = getattr(module, "__all__", None)
        if names is None:
            names = [name for name in vars(module) if not name.startswith("_") and name[0].isupper()]
        found[f"skdpgen.{room}"] = {name: _describe(getattr(module, name)) for name in sorted(names)}
    return {
        f"{place}.{name}{inner}": text
        for place, members in found.items()
        for name, described in members.items()
        for inner, text in described.items()
    }


def _describe(value):
    """Map "" to the parameters of a function or class, ".name" to those of its public methods."""
    if not callable(value):
        return {"": type(value).__name__}
    found = {"": _parameters(value)}
    if isinstance(value, type):
        members = {name for name in dir(value) if not name.startswith("_")}
        for name in sorted(members):
            member = inspect.getattr_static(value, name)
            home = getattr(getattr(member, "fget", None) or getattr(member, "__func__", member), "__module__", None)
            if not str(home).startswith("skdpgen"):
                continue
            member = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            found[f".{name}"] = _parameters(member) if callable(member) else type(member).__name__
    return found


def _parameters(function):
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return type(function).__name__
    parts, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts, starred = [*parts, "*"], True
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={_default(parameter.default)}"
        parts.append(f"{stars}{parameter.name}{default}")
    return f"({', '.join(parts)})"


def _default(value):
    if isinstance(value, enum.Enum):
        return value.name
    named = isinstance(value, type) or inspect.isroutine(value)
    return value.__name__ if named else re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def estimators():
    """Return everything public that is fitted under a budget, by its whole name."""
    found = {}
    for room in ROOMS:
        module = importlib.import_module(f"skdpgen.{room}")
        for name in getattr(module, "__all__", vars(module)):  # some are loaded at their first use
            value = getattr(module, name)
            if (
                isinstance(value, type)
                and not name.startswith("_")
                and hasattr(value, "plan")
                and hasattr(value, "fit")
            ):
                found[value.__name__] = value
    return found


# ---- sabotage --------------------------------------------------------------------------------------------------------
def mutant_names():
    """Count the names of all sabotage in the suite, wherever its tables are; nothing is run."""
    for folder in (TESTS, *sorted(path for path in TESTS.iterdir() if path.is_dir())):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    found = Counter()
    for path in sorted(TESTS.rglob("test_*.py")):
        if re.search(r"^MUTANTS\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            for first, *_ in importlib.import_module(path.stem).MUTANTS:
                found[str(getattr(first, "__name__", first))] += 1
    return found


def recorded_mutants():
    """Count the recorded names."""
    return Counter((DATA / "mutants.txt").read_text(encoding="utf-8").splitlines())


# ---- comparison ------------------------------------------------------------------------------------------------------
def differences(recorded, found, place=""):
    """List where two values differ (floats: beyond `tolerance()` of their size), by their paths."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        rows = [f"{place}: {key!r} is gone" for key in recorded if key not in found]
        rows += [f"{place}: {key!r} is new" for key in found if key not in recorded]
        for key in recorded:
            if key in found:
                rows += differences(recorded[key], found[key], f"{place}/{key}")
        return rows
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        return [row for k, pair in enumerate(zip(recorded, found)) for row in differences(*pair, f"{place}/{k}")]
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (recorded, found))
    same = math.isclose(recorded, found, rel_tol=tolerance()) if numbers else recorded == found
    return [] if same and type(recorded) is type(found) else [f"{place}: was {recorded!r}, is {found!r}"]


def plain(value):
    """As it comes back from a file."""
    return json.loads(json.dumps(value))


@functools.cache
def read(name):
    """Return what a file of records holds."""
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def _write(name, value):
    """One line an entry, so that a difference of two versions can be read."""
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {json.dumps(value[key], separators=(',', ':'))}" for key in value]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
    else:
        text = json.dumps(value, indent=0, separators=(",", ":")) + "\n"
    (DATA / name).write_text(text, encoding="utf-8")


def _fits():
    fits, bits = {}, {}
    for case in FITTED:
        fits[case], bits[case] = fit_facts(case)
    for relation in RELATIONS:
        fits[f"books-{relation}"], bits[f"books-{relation}"] = shared_books(relation)
    for name in MODELS:
        fits[name], bits[name] = model_facts(DATA / name)
    return fits, bits


def main(arguments):
    """Record, by the options of the head of this file."""
    if not set(arguments) & {"--record", "--files", "--machine"}:
        raise SystemExit(__doc__)
    DATA.mkdir(exist_ok=True)
    if "--files" in arguments or not (DATA / "ledger.sqlite").exists():
        _write("ledger.json", write_files(DATA))
    plans = {case: plan_facts(case) for case in (*CASES, *PRESETS)}
    fits, bits = _fits()
    mine = {"machine": machine(), "bits": bits}
    if "--record" in arguments or "--files" in arguments:
        _write("plans.json", plans)
        _write("fits.json", fits)
        _write("names.json", public_names())
        (DATA / "mutants.txt").write_text("\n".join(sorted(mutant_names().elements())) + "\n", encoding="utf-8")
        _write("bits.json", [mine])
        return
    if moved := differences([read("plans.json"), read("fits.json")], plain([plans, fits])):
        raise SystemExit("these differ from what is recorded, so the bits would too:\n" + "\n".join(moved))
    others = [entry for entry in read("bits.json") if entry["machine"] != mine["machine"]]
    _write("bits.json", [*others, mine])


if __name__ == "__main__":
    main(sys.argv[1:])
