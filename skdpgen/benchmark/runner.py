"""`skdpgen bench`: run a benchmark cell by cell, one JSON line a result, a table with published figures at the end."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from tqdm import tqdm

from .cells import Meter, cells_of
from .registry import BENCHMARKS
from .summary import summary

__all__ = ["run_benchmark"]

# XGBoost is distributed under two names.
_PACKAGES = ("skdpgen", "scikit-learn", "numpy", "pandas", "torch", "xgboost", "xgboost-cpu")


def run_benchmark(name, *, output=None, only_finished=False, **options):
    """Run a benchmark and print its results.

    A benchmark is run cell by cell: one set of data, one budget, one seed, one model. A cell that is in `output`
    already, with the same options, is read from there and not run again, whichever benchmark ran it and under whatever
    versions: its line says which. A run that was stopped goes on where it was.

    Parameters
    ----------
    name : str
        A key of ``skdpgen.benchmark.BENCHMARKS``.
    output : str or path, default=None
        The JSON lines are appended to this file too.
    only_finished : bool, default=False
        Run nothing: print the table of what `output` holds.
    **options
        Of the benchmark; those left out take its defaults.

    Returns
    -------
    list of dict
        What the benchmark tells of each result, and ``benchmark``, ``cell`` (what was run), ``part`` and ``complete``
        (which of its results, and whether the last), ``seconds``, ``peak_mib`` (largest resident size in these
        seconds; where the system cannot tell it apart, of the process so far) and ``versions``.

    Raises
    ------
    ValueError
        If there is no such benchmark, or it does not take such an option.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark must be one of {', '.join(BENCHMARKS)}; got {name!r}")
    benchmark = BENCHMARKS[name]
    refused = sorted(set(options) - set(benchmark.options))
    if refused:
        raise ValueError(f"the benchmark {name} takes no {', '.join(refused)}")
    if only_finished and output is None:
        raise ValueError("only_finished reads the file `output`: name it")
    if output is not None and not only_finished:
        _end_line(output)
    return _run(benchmark, _finished(output), None if only_finished else output, options, only_finished)


def _run(benchmark, finished, output, options, only_finished):
    if benchmark.parts:
        return [
            result
            for part in map(BENCHMARKS.get, benchmark.parts)
            for result in _run(part, finished, output, _options_of(part, options), only_finished)
        ]
    options = dict(options)
    figure = options.pop("figure", None) if benchmark.draw else None
    results = []
    cells = list(cells_of(benchmark, options))
    # the bar is for a terminal; lines of results go to stdout
    with tqdm(total=len(cells), desc=benchmark.name, unit="cell", file=sys.stderr, disable=None) as bar:
        for cell in cells:
            key = _line(cell.key)
            bar.set_postfix_str(cell.label, refresh=True)
            if key not in finished and not only_finished:
                finished[key] = list(_run_cell(benchmark, cell, output))
            results += finished.get(key, [])
            bar.update()
    print(f"\n{benchmark.name}: {benchmark.summary}\n\n{summary(benchmark, results)}", flush=True)
    if figure is not None:
        benchmark.draw_figure(results, figure)
    return results


def _options_of(part, options):
    """The options of `all` that one of its parts takes; its figure goes into the folder."""
    taken = {name: value for name, value in options.items() if name in part.options}
    folder = options.get("figures")
    if folder is not None and "figure" in part.options:
        os.makedirs(folder, exist_ok=True)
        taken["figure"] = os.path.join(folder, f"{part.name}.png")
    return taken


def _run_cell(benchmark, cell, output):
    """Results of a cell, each told as soon as the next one shows that it was not the last."""
    held, meter = None, Meter()
    try:
        for part, result in enumerate(cell.run()):
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
    """End the line that a killed process was writing; a file that cannot be written is told before the first fit."""
    with open(output, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _finished(output):
    """Results of the cells that a file holds complete, by key."""
    cells, complete = {}, {}
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
            key = _line(record["cell"])
            if record["part"] == 0:  # what a stopped run had of it does not count
                cells[key] = []
            cells.setdefault(key, []).append(record)
            if record["complete"]:
                complete[key] = cells.pop(key)
    return complete


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
