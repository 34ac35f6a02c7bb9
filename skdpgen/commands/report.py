"""`skdpgen report`: one HTML page on synthetic rows beside real ones, for the data holder."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from ._arguments import (
    add_dropping,
    add_only_schema_columns,
    add_quiet,
    add_reading,
    columns_of,
    load_card,
    names_of,
    with_unit,
)
from ._notations import reading, say_differences


def add(command):
    """Register the options."""
    command.add_argument("real", metavar="REAL.csv", help="real rows: CSV or Parquet")
    command.add_argument("synthetic", metavar="SYNTHETIC.csv", help="synthetic rows with the same columns")
    command.add_argument("--card", metavar="CARD.json", help="privacy card of the fit, which is verified")
    command.add_argument(
        "--model",
        metavar="M.safetensors",
        help="released model, whose latent space is drawn; without --card its card is used",
    )
    shape = {"type": int, "nargs": 2, "metavar": ("H", "W")}
    command.add_argument("--image-shape", **shape, help="height and width, if the rows are images: they are drawn")
    command.add_argument(
        "--results", metavar="RESULTS.jsonl", help="output of skdpgen bench: utility is drawn against epsilon"
    )
    command.add_argument("--schema", metavar="SCHEMA.json", help="public bounds and categories, for the bins")
    command.add_argument(
        "--target",
        metavar="COLUMN",
        help="column to predict: a model is trained on synthetic rows and tested on real ones",
    )
    command.add_argument("--positive", metavar="VALUE", help="positive class of the target (default: the rarer of two)")
    command.add_argument("--test", metavar="TEST.csv", help="real rows that were not fitted (default: a third of REAL)")
    command.add_argument(
        "--max-rows",
        type=int,
        default=20_000,
        metavar="N",
        help="largest number of rows used of each table (default: 20000)",
    )
    command.add_argument(
        "--unit",
        metavar="COLUMN",
        help="column of identifiers, such as a patient number, as for synthesize: it is compared with nothing; the "
        "page shows how many rows units have, and how similar they are",
    )
    command.add_argument(
        "--units",
        metavar="UNITS.csv",
        help="with --unit: synthetic units, as --units-output wrote them; their columns are joined to SYNTHETIC.csv",
    )
    add_only_schema_columns(command, "they are compared too")
    command.add_argument(
        "--kinds-from-values",
        action="store_true",
        help="accepted as for synthesize, and not needed: without it too, kinds that the schema does not declare are "
        "inferred from the values",
    )
    add_dropping(command)
    add_reading(command)
    command.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the choice of rows (default: 0)")
    add_quiet(command)
    command.add_argument(
        "--output",
        default="skdpgen-report.html",
        metavar="REPORT.html",
        help="page to write (default: skdpgen-report.html)",
    )


def run(arguments):
    from .. import Schema, load
    from ..data.table_writing import check_apart, check_output
    from ..report import build_report, read_results

    check_output(arguments.output)
    if arguments.units is not None and arguments.unit is None:
        raise ValueError("--units, the file of synthetic units, needs --unit, the column of identifiers")
    read = (arguments.real, arguments.synthetic, arguments.units, arguments.test, arguments.card, arguments.model)
    for path in (*read, arguments.schema, arguments.results):  # a table may be compared with itself
        check_apart(arguments.output, path)
    if arguments.positive is not None and arguments.target is None:
        raise ValueError("--positive needs --target")
    if arguments.test is not None and arguments.target is None:
        raise ValueError("--test needs --target")
    card = None if arguments.card is None else load_card(arguments.card)
    model = None if arguments.model is None else load(arguments.model)
    results = None if arguments.results is None else read_results(arguments.results)
    schema = None if arguments.schema is None else Schema.load(arguments.schema)
    paths = [arguments.real, arguments.synthetic, *([] if arguments.test is None else [arguments.test])]
    tables = _tables(arguments, paths, schema)
    report = build_report(
        tables[0],
        tables[1],
        schema=schema,
        card=card,
        model=model,
        image_shape=arguments.image_shape,
        results=results,
        target=arguments.target,
        positive=arguments.positive,
        test=tables[2] if len(tables) > 2 else None,
        title=f"{Path(arguments.synthetic).name} beside {Path(arguments.real).name}",
        max_rows=arguments.max_rows,
        random_state=arguments.seed,
        progress=False if arguments.quiet else "auto",
        unit=arguments.unit,
    )
    report.save(arguments.output)
    for name, value in report.figures.items():
        print(f"{name:24} {value:.4f}")
    print(
        f"written to {arguments.output}: it is computed from real rows without protection; do not publish it, nor the "
        "figures above"
    )


def _tables(arguments, paths, schema):
    """Tables of the files; one of them may lack columns that are left out."""
    from ..data.sources import is_parquet
    from ..data.table_reading import read_table

    say_differences(arguments, schema)
    declares = None if is_parquet(Path(paths[0])) else schema  # rows of a Parquet file are written as usual
    notations = [reading(arguments, declares, path) for path in paths]
    notations[1] = _of_synthetic(paths[1], notations[1])
    columns = [columns_of(path, notation) for path, notation in zip(paths, notations)]
    units = None if arguments.units is None else _units_of(arguments, schema, declares, columns[1])
    if units is not None:
        columns[1] = [*columns[1], *(name for name in units.columns if name != arguments.unit)]
    left_out = names_of(arguments.drop, list(dict.fromkeys([*columns[0], *columns[1]])), "--drop")
    if arguments.unit is not None and (arguments.unit not in columns[0] or arguments.unit in left_out):
        raise ValueError(f"--unit: no column {arguments.unit!r} in {paths[0]}, which has {', '.join(columns[0])}")
    keys = () if arguments.unit is None else (arguments.unit,)
    if arguments.only_schema_columns:
        if schema is None:
            raise ValueError("--only-schema-columns needs --schema")
        kept = {*schema, *keys, arguments.target}
        left_out += [name for names in columns for name in names if name not in kept and name not in left_out]
    _check_columns(paths, columns, left_out, schema, keys, units_apart=bool(keys) and units is None)
    tables, read_as = [], with_unit(schema, arguments.unit)
    for path, notation in zip(paths, notations):
        dropped = [name for name in columns_of(path, notation) if name in left_out]
        tables.append(read_table(path, notation, schema=read_as, left_out=dropped))
    if units is not None:
        units = units.drop(columns=[name for name in left_out if name in units])
        tables[1] = tables[1].merge(units, on=arguments.unit, how="left")
    return tables


def _units_of(arguments, schema, declares, columns):
    """The table of synthetic units, of which the table of their rows has the identifiers and no other column.

    `declares`: schema of their notation. `columns`: of the rows.
    """
    from ..data.table_reading import read_table

    path, unit = arguments.units, arguments.unit
    notation = _of_synthetic(path, reading(arguments, declares, path))
    found = columns_of(path, notation)
    for file, names in ((path, found), (arguments.synthetic, columns)):
        if unit not in names:
            raise ValueError(f"--units: no column {unit!r} in {file}, which has {', '.join(names)}")
    if twice := [name for name in found if name in columns and name != unit]:
        raise ValueError(f"--units: {arguments.synthetic} has the columns {', '.join(twice)} of {path} too")
    units = read_table(path, notation, schema=with_unit(schema, unit))
    if units[unit].isna().any() or not units[unit].is_unique:
        raise ValueError(f"--units: {path} must have one row for each {unit}")
    return units


def _of_synthetic(path, notation):
    """The notation of synthetic rows: they are written in UTF-8, with nothing above the names of their columns."""
    from ..data.csv_layout import is_utf8

    path, notation = Path(path), replace(notation, skip_lines=0)
    other = notation.encoding is not None and path.is_file() and is_utf8(path)
    return replace(notation, encoding=None) if other else notation


def _check_columns(paths, columns, left_out, schema, keys, *, units_apart):
    """Refuse tables of different columns but for `keys` and those of the schema, before any of their rows is read.

    `units_apart`: whether columns that synthetic rows lack may be in a file of units.
    """
    from ..tabular import Identifier

    declared = () if schema is None else schema.columns
    keys = [*keys, *(column.name for column in declared if isinstance(column, Identifier))]
    real, *others = ([name for name in names if name not in (*left_out, *keys)] for names in columns)
    for path, names in zip(paths[1:], others):
        alone = [(paths[0], [name for name in real if name not in names])]
        alone += [(path, [name for name in names if name not in real])]
        if not set(real) & set(names):
            raise ValueError(f"{paths[0]} and {path} have no column in common: they are not of one table")
        if alone := [(file, names) for file, names in alone if names]:
            said = "; ".join(f"only {file} has the columns {', '.join(names)}" for file, names in alone)
            lacking = [name for _, names in alone for name in names]
            option = f"--drop {shlex.quote(','.join(dict.fromkeys([*left_out, *lacking])))}"
            if schema is not None and not set(lacking) & set(schema):
                option += ", or --only-schema-columns"
            if units_apart and set(names) <= set(real) and path == paths[1]:
                option += "; columns of units that synthesize --units-output wrote apart: give that file as --units"
            raise ValueError(f"{said}; to compare the others, give {option}")
