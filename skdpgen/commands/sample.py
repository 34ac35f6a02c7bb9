"""`skdpgen sample`: draw rows from a released model."""

from __future__ import annotations

import functools
from pathlib import Path

from ..utils.printing import listed
from ._arguments import add_escaping, add_repeated, add_synthetic_units, check_synthetic_units, print_written
from ._notations import date_in, number_in, writing


def add(command):
    """Register the options."""
    command.add_argument("model", metavar="M.safetensors", help="released model, as written by synthesize --save-model")
    command.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="number of rows; with --refits and a model of units, of units (default: the released row count)",
    )
    add_synthetic_units(command)
    command.add_argument("--seed", type=int, metavar="S", help="seed of the draw (default: a new one in each run)")
    add_repeated(
        command,
        "--given COLUMN=VALUE",
        "rows with this value: of a category (repeated: one of several), of a number or date (LOW..HIGH: "
        "between them, an end may be left out, and .. is any that is not missing), or nothing after = for a missing "
        "value; numbers have a decimal point, and dates are in ISO 8601, or both are as the schema of the fit stores",
    )
    command.add_argument(
        "--class-ratio",
        metavar="CLASS=SHARE",
        action="append",
        default=[],
        help="share of a class, for every class: repeated, or separated by commas; or balanced, for equal shares",
    )
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
    command.add_argument(
        "--refits",
        type=int,
        metavar="N",
        help="for standard errors: write a sample of the model, and of each of N models that are fitted, with the same "
        "noise, to rows that this one draws; the first column, refit, is 0, 1, ..., N. Nothing is charged; a fit "
        "takes as long as the first one",
    )
    add_escaping(command)
    command.add_argument(
        "--card", metavar="CARD.json", help="privacy card to write: that of the model, with the digests of these files"
    )
    command.add_argument("--output", required=True, metavar="OUT.csv", help="CSV or Parquet file to write")


def run(arguments):
    from ..data.table_writing import check_apart, check_output, check_writing
    from ..generators.constraints import UnsatisfiedError
    from ._results import write_refits, write_rows

    check_synthetic_units(arguments)
    if arguments.rows is not None and arguments.rows < 1:
        raise ValueError(f"--rows must be positive; got {arguments.rows}")
    _check_refits(arguments)
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
    if arguments.refits is not None:
        size = arguments.rows if arguments.units is None else arguments.units
        n_rows = write_refits(synthesizer, arguments.refits, size, arguments.output, arguments.seed, **written)
        print(f"{n_rows} synthetic rows of {arguments.refits + 1} models written to {arguments.output}")
        return
    asked = {
        "units": arguments.units,
        "order_by": arguments.order_by,
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


def _check_refits(arguments):
    """Refuse options of a sample that samples of refits do not have."""
    from ..data.sources import is_parquet

    if arguments.refits is None:
        return
    if arguments.refits < 2:
        raise ValueError(f"--refits must be at least 2; got {arguments.refits}")
    given = ("units_output", "order_by", "given", "class_ratio", "relax", "card")
    if wrong := [name for name in given if getattr(arguments, name)]:
        raise ValueError(f"--{wrong[0].replace('_', '-')} has no effect on --refits: leave it out")
    if is_parquet(arguments.output):
        raise ValueError("--refits writes a CSV file")


def _loaded(path):
    import skdpgen

    try:
        return skdpgen.load(path)
    except ValueError as error:
        if not str(error).endswith("not a model file of skdpgen"):
            raise
        raise ValueError(f"{error}; skdpgen synthesize --save-model writes one") from None


def read_given(texts, synthesizer):
    """Return `given` of ``sample`` from the texts of ``--given``, or None without any."""
    from ..synthesizers._moment_base import BaseMomentSynthesizer

    if not texts:
        return None
    if not isinstance(synthesizer, BaseMomentSynthesizer):
        raise ValueError(
            f"--given is for MomentSynthesizer and P3GMSynthesizer; this is a {type(synthesizer).__name__}"
        )
    given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--given must be COLUMN=VALUE; got {text}")
        if synthesizer.model_.kind == "array":
            given[int(_number(name, text))] = _number(value, text)
        else:
            column = _column(name, synthesizer.schema_)
            condition = _condition(value, column, text, synthesizer.schema_.notation)
            if column.name in given and not isinstance(condition, list):
                raise ValueError(f"--given names {name} twice: give a range, LOW..HIGH")
            given[column.name] = given.get(column.name, []) + condition if isinstance(condition, list) else condition
    return given


def read_class_ratio(texts, synthesizer):
    """Return `class_ratio` of ``sample`` from the texts of ``--class-ratio``, or None without any."""
    if not texts:
        return None
    if texts == ["balanced"]:
        return "balanced"
    codec = synthesizer.model_.codec
    if not codec.n_classes:
        raise ValueError("--class-ratio: the model was fitted without a target of classes, and has no classes")
    classes = {str(value): value for value in codec.classes}
    # commas part the classes of one option, unless the name of a class has them
    parts = (part for text in texts for part in ([text] if text.rpartition("=")[0] in classes else text.split(",")))
    ratio = {}
    for text in parts:
        name, equals, share = text.rpartition("=")
        if not equals:
            raise ValueError(f"--class-ratio must be balanced, or CLASS=SHARE; got {text}")
        if name not in classes:
            raise ValueError(f"--class-ratio: the model has no class {name!r}; it has {listed(classes)}")
        ratio[classes[name]] = _number(share, text)
    return ratio


def _column(name, schema):
    by_text = {str(column.name): column for column in schema.columns}
    if name not in by_text:
        raise ValueError(f"--given: the model has no column {name!r}; it has {listed(by_text)}")
    return by_text[name]


def _condition(value, column, text, notation=None):
    from ..tabular import Boolean, Categorical, Datetime, Numeric

    if isinstance(column, Categorical | Boolean):
        values = {str(option): option for option in column.values}
        if value not in values and not (value == "" and column.missing):
            raise ValueError(f"--given: {column.name!r} has no category {value!r}; it has {listed(values)}")
        return [values.get(value)]
    if value == "":
        return None
    numbers = "numbers" if column.dtype != "time" else "seconds since midnight,"
    bounds = f"; {column.name!r} takes {numbers} from {column.bounds[0]} to {column.bounds[1]}"
    if isinstance(column, Numeric):
        read = functools.partial(_number, text=text, allowed=bounds, notation=notation)
    else:
        read = functools.partial(date_in, form=column.format if isinstance(column, Datetime) else None)
    low, dots, high = value.partition("..")
    return (read(low) if low else None, read(high) if high else None) if dots else read(value)


def _number(value, text, allowed="", notation=None):
    """A number with a decimal point, or in the notation of the file, as a schema declares it."""
    number = number_in(value, notation)
    if number is None:
        raise ValueError(f"{value!r} of {text} is no number{allowed}{_plain(value)}")
    return number


def _plain(value):
    """What to write for a number that has other marks than a decimal point; "" for other texts."""
    other = any(mark in value for mark in ",' ") and any(character.isdigit() for character in value)
    return "; options take numbers with a decimal point alone, such as 1000.5" if other else ""
