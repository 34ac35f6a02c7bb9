"""`skdpgen bench`: run one benchmark by name, one JSON line a result, a summary with published numbers at the end."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version

import numpy as np

from .registry import BENCHMARKS

__all__ = ["run_benchmark"]


def run_benchmark(name, *, output=None, **options):
    """Run a benchmark and print its results.

    Parameters
    ----------
    name : str
        A key of ``skdpgen.benchmark.BENCHMARKS``.
    output : str or path, default=None
        The JSON lines are appended to this file too.
    **options
        Of the benchmark; those left out take its defaults.

    Returns
    -------
    list of dict

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
    results = []
    for result in benchmark.run(**options):
        record = {"benchmark": name, **result, "versions": _versions()}
        line = json.dumps(record, default=_plain)
        print(line, flush=True)
        if output is not None:
            with open(output, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        results.append(record)
    print(_summary(benchmark, results), flush=True)
    return results


def _summary(benchmark, results):
    """Markdown table of mean and standard deviation over the results of one row name, the references below it."""
    figures = [f for f in benchmark.figures if any(_is_number(result.get(f)) for result in results)]
    groups = {}
    for result in results:
        name = " ".join(str(result[key]) for key in benchmark.group_by if result.get(key) not in (None, ""))
        groups.setdefault(name, []).append(result)
    rows = []
    for name, members in groups.items():
        seeds = f" ({len(members)} seeds)" if len(members) > 1 else ""
        rows.append([name + seeds, *(_cell([m[f] for m in members if _is_number(m.get(f))]) for f in figures)])
    for name, known in benchmark.references.items():
        rows.append([name, *(_cell([known[f]] if f in known else []) for f in figures)])
    lines = [["", *figures], ["---"] * (len(figures) + 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _is_number(value):
    return isinstance(value, float | int | np.number) and not isinstance(value, bool)


def _cell(values):
    if not values:
        return ""
    mean = f"{np.mean(values):.4g}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.2g}"


def _versions():
    names = ("skdpgen", "scikit-learn", "numpy", "torch")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def _plain(value):
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    print(f"not a JSON value: {type(value).__name__}", file=sys.stderr)
    return str(value)
