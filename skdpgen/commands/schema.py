"""`skdpgen schema`: write a schema to edit."""

from __future__ import annotations

import shlex
import sys

from ._arguments import add_dropping, add_reading, names_of, reading

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
    command.add_argument(
        "--target",
        metavar="COLUMN",
        help="class label: a column of whole numbers is then categorical, as a fit without a schema takes it",
    )
    for option, what in (
        ("--id", "keys of rows or persons: their values are never read, and a sample has fresh keys"),
        ("--categorical", "categorical although their values are numbers, such as codes"),
    ):
        command.add_argument(
            option, metavar="A,B", action="append", default=[], help=f"columns that are {what}; repeatable"
        )
    add_dropping(command)
    command.add_argument("--output", metavar="S.json", help="schema to write (default: stdout)")


def run(arguments):
    from ..data.table_files import check_apart, check_output, column_names, declare_public, read_table

    if arguments.output:
        check_output(arguments.output)
        check_apart(arguments.input, arguments.output)
    options, left_out = reading(arguments), []
    if arguments.drop:
        left_out = names_of(arguments.drop, column_names(arguments.input, arguments.separator), "--drop")
    frame = read_table(arguments.input, **options, left_out=left_out)
    schema = _settled(arguments, frame)
    public = list(schema) if "*" in arguments.public else arguments.public
    schema = declare_public(schema, frame, public)
    print(
        "skdpgen: the schema declares the names and kinds of the columns as public. Check them. Replace null by bounds "
        'or categories that are public knowledge, such as [0, 120], ["2020-01-01", "2024-12-31"] or ["yes", "no"]; '
        'what stays null is learned, and charged. Set "missing" to false for a column that cannot have missing values',
        file=sys.stderr,
    )
    _point_out(arguments, schema)
    if arguments.output:
        schema.save(arguments.output)
        print(f"schema of {len(schema)} columns written to {arguments.output}")
    else:
        print(schema.to_json())


def _settled(arguments, frame):
    """Return the schema that the dtypes of a frame and the options give."""
    from pandas.api.types import is_float_dtype

    from .. import Schema
    from ..tabular._identifiers import identifier_of

    names = list(frame.columns)
    keys, codes = (names_of(getattr(arguments, option), names, f"--{option}") for option in ("id", "categorical"))
    if arguments.target is not None:
        if arguments.target not in names:
            raise ValueError(f"--target: no column {arguments.target!r}; the file has {', '.join(names)}")
        if not is_float_dtype(frame[arguments.target].dtype):  # as `is_numeric_target` has it
            codes.append(arguments.target)
    if twice := [name for name in keys if name in codes]:
        raise ValueError(f"{twice[0]!r} is named by --id and by --categorical or --target: give one of them")
    schema = Schema.from_kinds(frame.drop(columns=keys), categorical=codes)
    columns = [identifier_of(name, frame[name].dtype) if name in keys else schema[name] for name in names]
    return Schema(columns)


def _point_out(arguments, schema):
    """Say which columns may be identifiers or codes, by names and dtypes alone, and the command that settles it."""
    from ..tabular import Numeric
    from ..tabular._identifiers import likely_codes, likely_identifiers

    again = f"skdpgen schema {shlex.quote(arguments.input)}"
    if keys := likely_identifiers(schema):
        listed = shlex.quote(",".join(keys))
        print(
            f"skdpgen: identifiers, by their names: {', '.join(keys)}. For fresh keys: {again} --id {listed}; without "
            f"the columns: --drop {listed}",
            file=sys.stderr,
        )
    codes = [name for name in likely_codes(schema) if name not in keys]
    if codes:
        print(
            f"skdpgen: codes, by their names: {', '.join(codes)}. As categories: {again} --categorical "
            f"{shlex.quote(','.join(codes))}",
            file=sys.stderr,
        )
    whole = [column for column in schema.columns if isinstance(column, Numeric) and column.integer]
    whole = [column.name for column in whole if not column.complete and column.name not in (*keys, *codes)]
    if whole:
        print(
            f"skdpgen: whole numbers, which are taken for quantities: {', '.join(map(str, whole))}. If one of them is "
            "a code or a class, name it by --categorical, or --target",
            file=sys.stderr,
        )
