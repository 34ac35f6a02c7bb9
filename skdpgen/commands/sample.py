"""`skdpgen sample`: draw rows from a released model."""

from __future__ import annotations

from ._arguments import add_command

__all__ = ["add", "run"]


def add(commands):
    """Register the command."""
    command = add_command(commands, "sample", run, "draw rows from a released model")
    command.add_argument("model", metavar="M.safetensors")
    command.add_argument("--rows", type=int, metavar="N", help="default: the released row count")
    command.add_argument("--seed", type=int, metavar="S")
    command.add_argument("--separator", metavar="C", help="between the fields of OUT.csv (default: comma)")
    command.add_argument("--decimal", metavar="C", default=".", help="mark before decimals: . or , (default: .)")
    command.add_argument("--output", required=True, metavar="OUT.csv")


def run(arguments):
    import skdpgen

    from .._table_files import check_apart, check_output, check_writing, write_table

    check_output(arguments.output, table=True)
    written = {"separator": arguments.separator, "decimal": arguments.decimal}
    check_writing(arguments.output, **written)
    check_apart(arguments.model, arguments.output)
    synthesizer = skdpgen.load(arguments.model)
    frame = synthesizer.as_frame(synthesizer.sample(arguments.rows, random_state=arguments.seed))
    write_table(frame, arguments.output, **written)
    print(f"{len(frame)} synthetic rows written to {arguments.output}")
