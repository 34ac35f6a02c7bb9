"""`skdpgen schema`: write a schema to edit."""

from __future__ import annotations

import sys

from ._arguments import add_reading, reading

__all__ = ["add", "run"]


def add(command):
    """Register the options."""
    command.add_argument("input", metavar="INPUT", help="CSV or Parquet file")
    add_reading(command)
    command.add_argument(
        "--public",
        metavar="COLUMN",
        action="append",
        default=[],
        help="declare that the bounds or categories of this column in the file are public ('*' for all columns); "
        "repeatable",
    )
    command.add_argument("--output", metavar="S.json", help="schema to write (default: stdout)")


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
        "skdpgen: the schema declares the names and kinds of the columns as public. Check them. Replace null by bounds "
        'or categories that are public knowledge, such as [0, 120], ["2020-01-01", "2024-12-31"] or ["yes", "no"]; '
        'what stays null is learned, and charged. Set "missing" to false for a column that cannot have missing values',
        file=sys.stderr,
    )
    if arguments.output:
        schema.save(arguments.output)
        print(f"schema of {len(schema)} columns written to {arguments.output}")
    else:
        print(schema.to_json())
