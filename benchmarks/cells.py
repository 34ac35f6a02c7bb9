"""A benchmark taken apart: one call for each set of data, budget, seed and model, and what a call costs."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import time
from dataclasses import dataclass
from typing import Any

__all__ = ["AXES", "Cell", "Meter", "cells_of"]

# Parameters of benchmarks that are taken one by one, outermost first; a benchmark may name more of its own.
AXES = ("table", "dataset", "epsilon", "dimensions", "seeds", "models")
# Parameters that no result depends on.
_SILENT = ("data", "device", "figure", "peer_python", "progress")


@dataclass(frozen=True)
class Cell:
    """One call of a benchmark's function.

    Parameters
    ----------
    key : dict
        What is run: the function, and every argument that its results depend on.
    label : str
        For the progress bar.
    function : callable
    arguments : dict
    """

    key: dict
    label: str
    function: Any
    arguments: dict

    def run(self):
        yield from self.function(**self.arguments)


def cells_of(benchmark, options):
    """Yield the cells of a benchmark.

    An argument that is a list where the function takes one value, or the lists of `AXES` and of the benchmark's own
    axes, are taken one by one. A benchmark that draws its figure itself needs all its rows at once: where a figure is
    asked for, its lists are left together.

    Parameters
    ----------
    benchmark : Benchmark
    options : dict
        What the caller gave.
    """
    function = benchmark.function()
    signature = inspect.signature(function)
    given = {**benchmark.arguments, **options}
    if given.pop("quick", False):
        quick = benchmark.quick or {"quick": True}
        given = {**benchmark.arguments, **quick, **{k: v for k, v in options.items() if k != "quick"}}
    bound = signature.bind(**given)
    bound.apply_defaults()
    axes = []
    for name in (*benchmark.axes, *AXES):
        if name not in bound.arguments or name in dict(axes):
            continue
        values = bound.arguments[name]
        takes_list = isinstance(signature.parameters[name].default, (tuple, list, range))
        if not isinstance(values, (tuple, list, range)) or (takes_list and given.get("figure") is not None):
            continue
        axes.append((name, [((value,) if takes_list else value) for value in values]))
    for combination in itertools.product(*(values for _, values in axes)):
        chosen = dict(zip((name for name, _ in axes), combination))
        arguments = {**bound.arguments, **chosen}
        key = {"run": benchmark.home, **{k: v for k, v in arguments.items() if k not in _SILENT}}
        label = " ".join(str(value[0] if isinstance(value, tuple) else value) for value in chosen.values())
        yield Cell(key, label, function, arguments)


class Meter:
    """Seconds and peak memory between laps."""

    def __init__(self):
        self._begin()

    def _begin(self):
        self._start = time.perf_counter()
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # Linux: the peak begins anew

    def lap(self):
        """Return ``seconds`` and ``peak_mib`` since the last lap, and begin the next."""
        lap = {"seconds": round(time.perf_counter() - self._start, 2), "peak_mib": round(_peak_mib(), 1)}
        self._begin()
        return lap


def _peak_mib():
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 2**10
    except (OSError, StopIteration):  # not Linux
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
