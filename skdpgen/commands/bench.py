"""`skdpgen bench NAME`: run a benchmark."""

from __future__ import annotations

import argparse

from ._arguments import add_command

__all__ = ["add", "run"]


def add(commands):
    """Register the command, and each benchmark with the options that it takes."""
    from ..benchmark.registry import BENCHMARKS, OPTIONS

    command = add_command(commands, "bench", run, "run a benchmark; one JSON line a result")
    names = command.add_subparsers(required=True, metavar="NAME", dest="name")
    for benchmark in BENCHMARKS.values():
        parser = add_command(names, benchmark.name, run, benchmark.summary)
        for option in benchmark.options:
            # absent where it is not given: the benchmark has its own default
            parser.add_argument(f"--{option.replace('_', '-')}", **OPTIONS[option], default=argparse.SUPPRESS)
        parser.add_argument(
            "--output",
            metavar="results.jsonl",
            help="append the JSON lines to a file as well; what it holds already is not run again",
        )
        parser.add_argument("--only-finished", action="store_true", help="print what the output holds; run nothing")


def run(arguments):
    from ..benchmark import BENCHMARKS, run_benchmark

    given = vars(arguments)
    options = {name: given[name] for name in BENCHMARKS[arguments.name].options if name in given}
    run_benchmark(arguments.name, output=arguments.output, only_finished=arguments.only_finished, **options)
