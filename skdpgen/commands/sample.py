"""`skdpgen sample`: draw rows from a released model."""

from __future__ import annotations

from pathlib import Path

from ._arguments import add_escaping, add_repeated, print_written
from ._conditions import add_conditions, read_class_ratio, read_given
from ._notations import writing
from ._units import add_synthetic_units, check_synthetic_units


def add(command):
    """Register the options."""
    command.add_argument("model", metavar="M.safetensors", help="released model, as written by synthesize --save-model")
    command.add_argument("--rows", type=int, metavar="N", help="number of rows (default: the released row count)")
    add_synthetic_units(command)
    command.add_argument("--seed", type=int, metavar="S", help="seed of the draw (default: a new one in each run)")
    add_conditions(command)
    command.add_argument(
        "--separator",
        metavar="C",
        help="separator of the fields of OUT.csv (default: that of the schema of the fit, else a comma)",
    )
    command.add_argument(
        "--decimal", metavar="C", help="decimal mark: . or , (default: that of the schema of the fit, else .)"
    )
    command.add_argument(
        "--missing",
        metavar="TEXT",
        help="text of a missing value in OUT.csv (default: that of the schema of the fit, else the empty field)",
    )
    add_repeated(
        command,
        "--relax TEXT",
        "constraint that rows may violate: the text in the schema, or of --constraint, for which rows are drawn again",
    )
    add_escaping(command)
    command.add_argument(
        "--card", metavar="CARD.json", help="privacy card to write: that of the model, with the digests of these files"
    )
    command.add_argument("--output", required=True, metavar="OUT.csv", help="CSV or Parquet file to write")


def run(arguments):
    from ..data.table_writing import check_apart, check_output, check_writing
    from ..generators.constraints import UnsatisfiedError
    from ._results import write_rows

    check_synthetic_units(arguments)
    for path in filter(None, (arguments.output, arguments.units_output)):
        check_output(path, table=True)
    if arguments.card is not None:
        check_output(arguments.card)
    given = {"notation": writing(arguments, None), "escape_formulas": arguments.escape_formulas}
    check_writing(arguments.output, **given)  # what the options say, before the model is read
    check_apart(arguments.model, arguments.output, arguments.units_output, arguments.card)
    synthesizer = _loaded(arguments.model)
    if arguments.relax:
        synthesizer.relax(*arguments.relax)
    written = given | {"notation": writing(arguments, getattr(synthesizer, "schema_", None))}
    asks = arguments.units is not None or arguments.units_output is not None
    if asks and getattr(synthesizer.model_, "units", None) is None:
        raise ValueError("--units and --units-output need a model that was fitted to a table with --unit")
    asked = {
        "units": arguments.units,
        "given": read_given(arguments.given, synthesizer),
        "class_ratio": read_class_ratio(arguments.class_ratio, synthesizer),
    }
    written |= {"random_state": arguments.seed, "units_path": arguments.units_output}
    try:
        n_rows = write_rows(synthesizer, arguments.rows, arguments.output, asked=asked, **written)
    except UnsatisfiedError as error:
        ask = "ask for other classes, relax --given, or leave out a constraint by --relax TEXT"
        raise ValueError(error.of_command(ask)) from error
    print_written(n_rows, arguments)
    if arguments.card is not None:
        files = {"model": arguments.model, "synthetic": arguments.output, "units": arguments.units_output}
        # a pipe or a terminal cannot be read again
        files = {name: path for name, path in files.items() if path is not None and Path(path).is_file()}
        synthesizer.card_.with_files(**files).save(arguments.card)
        print(f"privacy card written to {arguments.card}")


def _loaded(path):
    import skdpgen

    try:
        return skdpgen.load(path)
    except ValueError as error:
        if not str(error).endswith("not a model file of skdpgen"):
            raise
        raise ValueError(f"{error}; skdpgen synthesize --save-model writes one") from None
