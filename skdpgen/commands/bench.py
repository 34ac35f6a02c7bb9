"""`skdpgen bench NAME`: run a benchmark from a checkout of the repository."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from ._arguments import add_command

__all__ = ["add", "run"]

_CHECKOUT = Path(__file__).resolve().parents[2]
_ABSENT = (
    "the benchmarks are not part of the installed package: clone the repository, install it with "
    "`pip install -e .`, and run `skdpgen bench` there"
)


def add(commands):
    """Register the command, and each benchmark with the options that it takes."""
    command = add_command(commands, "bench", run, "run a benchmark; one JSON line a result (needs a checkout)")
    if not _there():
        command.add_argument("name", nargs="*", help=argparse.SUPPRESS)
        return
    names = command.add_subparsers(required=True, metavar="NAME", dest="name")
    registry = _load("benchmarks.registry")
    for benchmark in registry.BENCHMARKS.values():
        parser = add_command(names, benchmark.name, run, benchmark.summary)
        for option in benchmark.options:
            # absent where it is not given: the benchmark has its own default
            parser.add_argument(f"--{option.replace('_', '-')}", **registry.OPTIONS[option], default=argparse.SUPPRESS)
        parser.add_argument(
            "--output",
            metavar="results.jsonl",
            help="append the JSON lines to a file as well; what it holds already is not run again",
        )
        parser.add_argument("--only-finished", action="store_true", help="print what the output holds; run nothing")


def run(arguments):
    if not _there():
        raise FileNotFoundError(_ABSENT)
    benchmarks = _load("benchmarks")
    given = vars(arguments)
    options = {name: given[name] for name in benchmarks.BENCHMARKS[arguments.name].options if name in given}
    benchmarks.run_benchmark(arguments.name, output=arguments.output, only_finished=arguments.only_finished, **options)


def _there():
    return (_CHECKOUT / "benchmarks" / "registry.py").is_file()


def _load(module):
    """A module of the benchmarks, which stand beside the package in a checkout."""
    if str(_CHECKOUT) not in sys.path:
        sys.path.append(str(_CHECKOUT))
    return importlib.import_module(module)
