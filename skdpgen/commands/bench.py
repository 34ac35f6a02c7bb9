"""`skdpgen bench NAME`: run a benchmark from a checkout of the repository."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]
_ABSENT = (
    "the benchmarks are not part of the installed package: clone the repository, install it with "
    "`pip install -e .`, and run `skdpgen bench` there"
)


def add(command):
    """Register each benchmark with the options that it takes."""
    if not _is_checkout():
        command.description = f"Nothing to run: {_ABSENT}."
        command.add_argument("name", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        return
    registry = _load("benchmarks.registry")
    names = command.add_subparsers(required=True, metavar="NAME", dest="name")
    for benchmark in registry.BENCHMARKS.values():
        summary = benchmark.summary
        parser = names.add_parser(benchmark.name, help=summary.replace("%", "%%"), description=summary)
        for option in benchmark.options:
            # absent if it is not given: the benchmark has its own default
            parser.add_argument(f"--{option.replace('_', '-')}", **registry.OPTIONS[option], default=argparse.SUPPRESS)
        parser.add_argument(
            "--output",
            metavar="results.jsonl",
            help="append the JSON lines to a file as well; results that it holds already are not computed again",
        )
        parser.add_argument("--only-finished", action="store_true", help="print the results of the output; run nothing")


def run(arguments):
    if not _is_checkout():
        raise FileNotFoundError(_ABSENT)
    benchmarks = _load("benchmarks")
    given = vars(arguments)
    options = {name: given[name] for name in benchmarks.BENCHMARKS[arguments.name].options if name in given}
    benchmarks.run_benchmark(arguments.name, output=arguments.output, only_finished=arguments.only_finished, **options)


def _is_checkout():
    return (_CHECKOUT / "benchmarks" / "registry.py").is_file() and (_CHECKOUT / "setup.cfg").is_file()


def _load(module):
    """Import a module of the benchmarks, which stand beside the package in a checkout."""
    if str(_CHECKOUT) not in sys.path:
        sys.path.insert(0, str(_CHECKOUT))
    return importlib.import_module(module)
