"""`skdpgen demo`: the main job on data that ship with scikit-learn."""

from __future__ import annotations

from ._arguments import add_budget, add_command

__all__ = ["add", "run"]


def add(commands):
    """Register the command."""
    command = add_command(commands, "demo", run, "synthesize real data that ship with scikit-learn; no file needed")
    command.add_argument("--dataset", default="all", choices=["all", "digits", "breast_cancer", "adult"])
    add_budget(command, None, "3 for the small tables, 1 for Adult")
    command.add_argument("--data", metavar="DIR", help="folder of adult.csv.gz (default: SKDPGEN_DATA)")
    command.add_argument("--seed", type=int, metavar="S")
    command.add_argument("--output", default="skdpgen-demo", metavar="DIR")


def run(arguments):
    from ._demo import run_demo

    run_demo(
        arguments.dataset,
        arguments.output,
        epsilon=arguments.epsilon,
        delta=1e-5 if arguments.delta is None else arguments.delta,
        neighboring=arguments.neighboring,
        data_dir=arguments.data,
        random_state=arguments.seed,
    )
