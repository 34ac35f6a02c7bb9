"""Synthetic units on the command line: their options, and the two files of units and of their rows."""

from __future__ import annotations

from dataclasses import replace

from ._arguments import add_repeated, names_of


def add_unit_columns(parser):
    """Options of the columns of units and of those that their rows share."""
    add_repeated(
        parser,
        "--unit-columns A,B",
        "with --unit: columns that are constant within a unit, such as a year of birth, separated by commas; "
        "public. They are constant in synthetic units too (--units)",
    )
    add_repeated(
        parser,
        "--unit-shared A,B",
        "with --unit: columns in which the rows of a unit are similar, such as a ward, separated by commas; "
        "public. The rows of synthetic units have the same similarity (--units)",
    )


def set_unit_columns(units, arguments, known, asked=False):
    """Set `columns` and `shared` of the unit in `units`, as far as they are given.

    `known`: returns the names of the columns of the table. `asked`: whether synthetic units are asked for.
    """
    named, shared = arguments.unit_columns, arguments.unit_shared
    if not (named or shared or asked):
        return
    if arguments.unit is None:
        options = "--unit-columns and --unit-shared need"
        if asked:
            options = "--unit-columns, --unit-shared, --units and --units-output need"
        raise ValueError(f"{options} --unit, the column of identifiers")
    names = known() if named or shared else []
    if named or asked:
        units["unit"].set_params(columns=names_of(named, names, "--unit-columns"))
    if shared:
        units["unit"].set_params(shared=names_of(shared, names, "--unit-shared"))


def add_synthetic_units(parser):
    """Options of samples that consist of units of several rows."""
    parser.add_argument(
        "--units",
        type=int,
        metavar="N",
        help="write the rows of N synthetic units; the column of identifiers contains the number of the unit, and the "
        "numbers of rows follow the released distribution",
    )
    parser.add_argument(
        "--units-output",
        metavar="UNITS.csv",
        help="CSV or Parquet file of synthetic units: one row for each unit, with its number and its --unit-columns; "
        "OUT.csv then lacks the --unit-columns (default number of units: the released one)",
    )


def check_synthetic_units(arguments):
    """Refuse options of synthetic units that contradict one another, before anything is charged."""
    if arguments.units is None and arguments.units_output is None:
        return
    if arguments.rows is not None:
        raise ValueError("--rows is for samples of rows: leave it out with --units and --units-output")
    if arguments.units is not None and not 1 <= arguments.units < 10**9:
        raise ValueError(f"--units must be positive, and below 1,000,000,000; got {arguments.units}")


def with_unit(schema, unit):
    """The schema by which a file is read: identifiers are text, so that 007 and 7 are two persons."""
    from .. import Schema
    from ..tabular import Identifier

    if unit is None or (schema is not None and unit in schema):
        return schema
    return (
        Schema([Identifier(unit)]) if schema is None else replace(schema, columns=(*schema.columns, Identifier(unit)))
    )


class UnitTables:
    """Splits rows of synthetic units into two tables that refer to each other by the numbers of the units.

    `units`: of the released model.
    """

    def __init__(self, units):
        if not units.columns:
            raise ValueError("--units-output needs --unit-columns of the fit: a unit would have nothing but a number")
        self._name, self._columns, self._found = units.name, list(units.columns), []

    def rows(self, frames):
        """Yield the chunks without the columns of units, which are kept for `units`."""
        for frame in frames:
            yield self.rows_of(frame)
            self._found.append(self.units_of(frame))

    def rows_of(self, frame):
        """Return the table of rows."""
        return frame.drop(columns=self._columns)

    def units_of(self, frame):
        """Return the table of units."""
        return frame[[self._name, *self._columns]].drop_duplicates(self._name, ignore_index=True)

    def units(self):
        """Return the table of all units whose rows have been taken."""
        import pandas as pd

        return pd.concat(self._found, ignore_index=True)
