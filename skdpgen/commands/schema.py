"""`skdpgen schema`: write a schema to edit."""

from __future__ import annotations

import sys

from ._arguments import add_command, add_reading, reading

__all__ = ["add", "run"]


def add(commands):
    """Register the command."""
    command = add_command(commands, "schema", run, "write a schema to edit, from a table's columns")
    command.add_argument("input", metavar="INPUT")
    add_reading(command)
    command.add_argument(
        "--public",
        metavar="COLUMN",
        action="append",
        default=[],
        help="declare this column's bounds or categories, as seen in the file, public ('*' for all); repeatable",
    )
    command.add_argument("--output", metavar="S.json", help="default: stdout")


def run(arguments):
    from .. import Schema
    from ..data.table_files import check_apart, check_output, declare_public, read_table

    if arguments.output:
        check_output(arguments.output)
        check_apart(arguments.input, arguments.output)
    frame = read_table(arguments.input, **reading(arguments))
    schema = Schema.from_kinds(frame)
    schema = declare_public(schema, frame, list(schema) if "*" in arguments.public else arguments.public)
    print(
        "skdpgen: names and kinds of the columns are taken as public; edit what is not, write in the bounds and "
        'categories that are public knowledge (null is learned, and paid for), and set "missing" to false where no '
        "value can be missing",
        file=sys.stderr,
    )
    if arguments.output:
        schema.save(arguments.output)
        print(f"schema of {len(schema)} columns written to {arguments.output}")
    else:
        print(schema.to_json())
