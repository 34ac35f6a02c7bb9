"""`skdpgen bench`: run a benchmark cell by cell, one JSON line a result, a table with published figures at the end."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import math
import os
import platform
import sys
import time
import traceback
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from tqdm import tqdm

from skdpgen.exceptions import BenchmarkError
from skdpgen.utils.progress import without_bars

from .drawing import new_figure
from .registry import BENCHMARKS
from .summary import summary

__all__ = ["AXES", "Cell", "Meter", "cells_of", "check_drawing", "plan", "run_benchmark"]

# XGBoost is distributed under two names.
_PACKAGES = ("skdpgen", "scikit-learn", "numpy", "pandas", "torch", "xgboost", "xgboost-cpu")


def run_benchmark(name, *, output=None, only_finished=False, **options):
    """Run a benchmark and print its results.

    A benchmark is run cell by cell: one set of data, one budget, one seed, one model. A cell that is in `output`
    already, with the same options, is read from there and not run again, whichever benchmark ran it and under whatever
    versions: its line says which. A run that was stopped continues there. A cell that fails is reported on stderr
    and does not count as finished; the others are run.

    Parameters
    ----------
    name : str
        A key of ``benchmarks.BENCHMARKS``.
    output : str or path, default=None
        The JSON lines are appended to this file too.
    only_finished : bool, default=False
        Run nothing: print the table of what `output` holds.
    **options
        Of the benchmark; those left out take its defaults.

    Returns
    -------
    list of dict
        Figures of the benchmark for each result, and ``benchmark``, ``cell`` (what was run), ``part`` and ``complete``
        (which of its results, and whether the last), ``seconds``, ``peak_mib`` (largest resident size in these
        seconds; where the system cannot tell it apart, of the process so far; the processes of a peer are apart, in
        ``peer.fit.peak_mib`` and ``peer.sample.peak_mib``) and ``versions``.

    Raises
    ------
    ValueError
        If there is no such benchmark, or it does not take such an option or model. Of several parts, one that cannot
        take a model leaves it out, and says so on stderr.
    ImportError
        If a package is missing that the first cell needs, or a figure is asked for and cannot be drawn; raised before
        anything is run, as `ValueError` is (which is raised for a figure of an unknown kind of file too).
    FileNotFoundError
        If the folder of the figure, or the data of the first cell, are not there.
    BenchmarkError
        At the end, if cells failed: how many, and in `results` those of the others.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark must be one of {', '.join(BENCHMARKS)}; got {name!r}")
    benchmark = BENCHMARKS[name]
    refused = sorted(set(options) - set(benchmark.options))
    if refused:
        raise ValueError(f"the benchmark {name} takes no {', '.join(refused)}")
    if only_finished and output is None:
        raise ValueError("only_finished reads the file `output`: name it")
    if any(options.get(asked) is not None for asked in ("figure", "figures")):
        check_drawing(options.get("figure"))
    # whatever can be refused is refused here, before the first cell
    planned = [(part, list(cells_of(part, own)), figure) for part, own, figure in plan(benchmark, options)]
    if output is not None and not only_finished:
        _end_line(output)
    run = _Run(
        _finished(output, [cell for _, cells, _ in planned for cell in cells]),
        None if only_finished else output,
        only_finished,
    )
    results = [result for part in planned for result in run.part(*part)]
    if run.first is not None:
        total = sum(len(cells) for _, cells, _ in planned)
        raise BenchmarkError(run.verdict(total), results) from run.first
    return results


class _Run:
    """What the parts of one run share: the cells that are finished, where results go, and what failed."""

    def __init__(self, finished, output, only_finished):
        self.finished, self.output, self.only_finished = finished, output, only_finished
        self.failed, self.cells_failed, self.not_drawn, self.first = set(), 0, 0, None
        self.begun = False

    def part(self, benchmark, cells, figure):
        """Results of the cells of a benchmark; its table is printed, its figure drawn."""
        results, ran = [], False
        # the bar is for a terminal; lines of results go to stdout
        with tqdm(total=len(cells), desc=benchmark.name, unit="cell", file=sys.stderr, disable=None) as bar:
            for cell in cells:
                key = _line(cell.key)
                bar.set_postfix_str(cell.label, refresh=True)
                if key not in self.finished and not self.only_finished:
                    ran = True
                    self._run(benchmark, cell, key)
                results += self.finished.get(key, [])
                bar.update()
        print(f"\n{benchmark.name}: {benchmark.summary}\n\n{summary(benchmark, results)}", flush=True)
        if figure is not None:
            self._draw(benchmark, results, figure, ran)
        return results

    def _run(self, benchmark, cell, key):
        name = f"{benchmark.name} {cell.label}".rstrip()
        if key in self.failed:  # in another part: after hours, where it was a time limit
            self.cells_failed += 1
            _say(f"{name} failed before, and is not tried again")
            return
        try:
            with without_bars():  # the bar is that of the cells
                self.finished[key] = list(_run_cell(benchmark, cell, self.output))
        except _CellError as error:
            if not self.begun and isinstance(error.__cause__, (FileNotFoundError, ImportError)):
                raise error.__cause__ from None  # bad input, as long as nothing was run
            self.failed.add(key)
            self.cells_failed += 1
            self._tell_failure(name, error.__cause__)
        self.begun = True

    def _draw(self, benchmark, results, figure, ran):
        if not benchmark.draw:
            if not ran:
                _say(f"{benchmark.name} draws what it has just fitted, and nothing was: {figure} is not written")
        elif not results:
            _say(f"{benchmark.name} has no result to draw: {figure} is not written")
        else:
            try:
                benchmark.draw_figure(results, figure)
            except Exception as error:  # the parts that follow may take hours: they do not depend on it
                self.not_drawn += 1
                self._tell_failure(f"{benchmark.name} {figure}", error)

    def _tell_failure(self, what, error):
        _say(f"{what} failed: {type(error).__name__}: {' '.join(str(error).split())}")
        # kept for where it was raised; the data in its frames would stay in memory, and in the peaks of what follows
        traceback.clear_frames(error.__traceback__)
        self.first = error if self.first is None else self.first

    def verdict(self, total):
        """How much failed, in words."""
        counts = [f"{self.cells_failed} of {total} cells failed"] if self.cells_failed else []
        return "; ".join(counts + ([f"figures not drawn: {self.not_drawn}"] if self.not_drawn else []))


class _CellError(Exception):
    """Caused by what a cell raised; what is raised where its results are kept is none, and ends the run."""


def _guarded(cell):
    try:
        yield from cell.run()
    except Exception as error:
        raise _CellError from error


def _say(text):
    # around the bar, where there is one
    tqdm.write(f"skdpgen: {text}", file=sys.stderr)


def _run_cell(benchmark, cell, output):
    """Results of a cell, each written as soon as the next one shows that it was not the last."""
    held, meter = None, Meter()
    try:
        for part, result in enumerate(_guarded(cell)):
            place = {"benchmark": benchmark.name, "cell": cell.key, "part": part, "complete": False}
            # what a benchmark measures itself goes before what its cell took
            record = _jsonable({**place, **meter.lap(), **result, "versions": _versions()})
            if held is not None:
                yield _tell(held, output)
            held = record
        if held is not None:
            held["complete"] = True
    finally:
        if held is not None:
            _tell(held, output)
    if held is not None:
        yield held


def _tell(record, output):
    line = _line(record)
    print(line, flush=True)
    if output is not None:
        with open(output, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    return record


def _end_line(output):
    """End the line that a killed process was writing; an unwritable file is an error before the first fit."""
    with open(output, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _finished(output, planned=()):
    """Results of the cells that a file holds complete, by key.

    A line that lacks a parameter was written before the function had it: the run was that of its default. The defaults
    are those of the functions of the `planned` cells.
    """
    cells, complete = {}, {}
    defaults = {cell.key["run"]: _single_defaults(cell.function) for cell in planned}
    if output is None or not os.path.exists(output):
        return complete
    with open(output, encoding="utf-8") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:  # the line that a killed process was writing
                continue
            if not isinstance(record, dict) or "cell" not in record:
                continue
            cell = dict(record["cell"])
            # results of earlier versions name the module of the function too
            cell["run"] = cell["run"].rpartition(":")[2]
            key = _line({**defaults.get(cell["run"], {}), **cell})
            if record["part"] == 0:  # what a stopped run had of it does not count
                cells[key] = []
            cells.setdefault(key, []).append(record)
            if record["complete"]:
                complete[key] = cells.pop(key)
    return complete


def _single_defaults(function):
    """Defaults of a function that are the same in all its cells; those of several cells say nothing of one."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        default = parameter.default
        several = name in AXES and isinstance(default, (tuple, list, range)) and len(default) != 1
        if default is not parameter.empty and name not in _SILENT and not several:
            found[name] = default
    return found


def _line(record):
    return json.dumps(_jsonable(record), sort_keys="run" in record)


def _versions():
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _jsonable(value):
    """Plain values; infinity as the text "inf", which JSON has no number for."""
    if isinstance(value, dict):
        return {str(key): _jsonable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_jsonable(one) for one in value]
    if isinstance(value, np.ndarray):
        return _jsonable(value.tolist())
    if isinstance(value, np.generic):
        return _jsonable(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    print(f"not a JSON value: {type(value).__name__}", file=sys.stderr)
    return str(value)


# ---- which parts are run, with which options -----------------------------------------------------------------------
def plan(benchmark, options):
    """Return what is to be run: benchmarks, their options, and where each draws its figure.

    Parameters
    ----------
    benchmark : Benchmark
    options : dict
        What the caller gave. Of several parts each gets what it takes; a model that it cannot take is left out, and a
        part that is left without any.

    Returns
    -------
    list of (Benchmark, dict, str or None)

    Raises
    ------
    ValueError
        A model is none that the benchmark, or any of its parts, can take.
    """
    if not benchmark.parts:
        _check_models(options, benchmark.name, benchmark.models())
        # a benchmark that draws its figure itself is given the name of the file
        own = {name: value for name, value in options.items() if not (name == "figure" and benchmark.draw)}
        return [(benchmark, own, options.get("figure"))]
    parts = [BENCHMARKS[name] for name in benchmark.parts]
    known = [part.models() for part in parts if "models" in part.options]
    if None not in known:
        _check_models(options, benchmark.name, tuple(dict.fromkeys(name for names in known for name in names)))
    chosen = [(part, _options_of(part, options)) for part in parts]
    return [planned for part, own in chosen if own is not None for planned in plan(part, own)]


def _check_models(options, name, known):
    if refused := _not_among(known, options):
        raise ValueError(
            f"the benchmark {name} cannot take the models {', '.join(refused)}: it takes {', '.join(known)}"
        )


def _not_among(known, options):
    named = [model for model in options.get("models", ()) if isinstance(model, str)]
    return [model for model in named if known is not None and model not in known]


def _options_of(part, options):
    """The options that one of several parts takes; its figure goes into the folder. None: no model is left to it."""
    own = {name: value for name, value in options.items() if name in part.options}
    if left_out := _not_among(part.models(), own):
        own["models"] = [model for model in own["models"] if model not in left_out]
        rest = "" if own["models"] else ", and is not run"
        print(f"skdpgen: {part.name} cannot take {', '.join(left_out)}{rest}", file=sys.stderr)
        if rest:
            return None
    folder = options.get("figures")
    if folder is not None and "figure" in part.options:
        os.makedirs(folder, exist_ok=True)
        own["figure"] = os.path.join(folder, f"{part.name}.png")
    return own


def check_drawing(path=None):
    """Raise where a figure cannot be drawn, or not to `path`: known before the first fit, not after the last."""
    figure = new_figure((1, 1))
    if path is None:
        return
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"there is no folder {folder} to draw {name} into")
    known = figure.canvas.get_supported_filetypes()
    if os.path.splitext(name)[1][1:].lower() not in known:
        raise ValueError(f"{name} does not say how to draw it: it must end in one of .{', .'.join(sorted(known))}")


# ---- cells ---------------------------------------------------------------------------------------------------------
# Parameters of benchmarks that are taken one by one, outermost first; a benchmark may name further axes.
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
        key = {"run": benchmark.home.partition(":")[2], **{k: v for k, v in arguments.items() if k not in _SILENT}}
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
