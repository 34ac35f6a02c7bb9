"""What several commands share: options of a budget, of models and of files, and how models are found."""

from __future__ import annotations

import argparse
import ast
import contextlib
import math
import shlex
from dataclasses import replace

from .._types import DELTAS, EPSILONS, MISSING_UNITS, NEIGHBORING, WEIGHTINGS, in_words
from ..utils.printing import printable


def add_repeated(parser, option, what):
    """Add an option that may be given several times: its name and metavar, as in "--drop A,B", and its help."""
    name, metavar = option.split()
    parser.add_argument(name, metavar=metavar, action="append", default=[], help=f"{what}; repeatable")


def add_reading(parser):
    """Options of the CSV files that a command reads."""
    add_repeated(
        parser,
        "--missing TEXT",
        "text of a missing value, as an empty field always is; synthetic rows have the first TEXT in all columns: "
        "--missing '' --missing k.A. reads k.A. and writes empty fields",
    )
    parser.add_argument(
        "--separator", metavar="C", help="separator of the fields of a CSV file: a character, or tab (default: comma)"
    )
    parser.add_argument("--decimal", metavar="C", help="decimal mark of numbers: . or , (default: .)")
    parser.add_argument("--thousands", metavar="C", help="mark between thousands: . or , or ' or space (default: none)")
    add_repeated(
        parser,
        "--dates FORMAT",
        "format of dates that are not in ISO 8601, such as %%d.%%m.%%Y; a column of a schema that has no "
        "format is written in the first one that shows days, or times, as the column has them",
    )
    add_repeated(
        parser,
        "--sign TEXT",
        "text before or after numbers that is left out, such as $, %%, EUR or mg/L, or the < of <5; "
        "synthetic numbers are written without it",
    )
    parser.add_argument(
        "--header",
        action="store_true",
        help="the first line contains column names, even if they look like numbers or dates",
    )
    parser.add_argument(
        "--skip-lines",
        type=int,
        metavar="N",
        help="number of lines above the column names, such as a title (default: 0)",
    )
    parser.add_argument(
        "--encoding",
        metavar="NAME",
        help="encoding of a CSV file, such as cp1252 or latin-1 (default: utf-8); synthetic rows are written in UTF-8",
    )


def add_dropping(parser):
    """Option of columns that a command leaves out."""
    add_repeated(
        parser,
        "--drop A,B",
        "columns to leave out, separated by commas",
    )


def add_only_schema_columns(parser, otherwise):
    """Option that leaves out the columns that a schema does not list; `otherwise` says what is done with them."""
    parser.add_argument(
        "--only-schema-columns",
        action="store_true",
        help=f"leave out columns that the schema does not list (default: {otherwise})",
    )


def names_of(texts, known, option, where="the file"):
    """Return the column names in options such as ``--drop a,b``, each of which must be among `known`.

    A text that is itself a column name is one name, even if it contains commas. `where`: what has the columns.
    """
    names = [name for text in texts for name in ([text] if text in known else text.split(","))]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{option}: no column {unknown[0]!r}; {where} has {', '.join(known)}")
    return list(dict.fromkeys(names))


def columns_of(path, notation):
    """Return the names of the columns of a file."""
    from ..data.table_reading import check_input, column_names

    check_input(path, notation)
    return column_names(path, notation)


def columns_left_out(arguments, schema, notation):
    """Return the columns that are not read, and the schema of the others.

    Without a file, the columns are those of the schema.
    """
    if arguments.only_schema_columns and schema is None:
        raise ValueError("--only-schema-columns needs --schema")
    if schema is None and not arguments.drop and arguments.unit is None:
        return [], None
    names = list(schema) if arguments.input is None else columns_of(arguments.input, notation)
    left_out = names_of(arguments.drop, names, "--drop", "the schema" if arguments.input is None else "the file")
    if arguments.unit is not None:
        if arguments.unit not in names and arguments.input is not None:
            raise ValueError(f"--unit: no column {arguments.unit!r}; the file has {', '.join(names)}")
        if arguments.unit in left_out or arguments.unit == arguments.target:
            raise ValueError(f"--unit {arguments.unit!r} is dropped, or the target, too")
    if arguments.target in left_out:
        raise ValueError(f"--drop names the target {arguments.target!r}")
    if schema is not None:
        undeclared = [name for name in names if name not in schema and name not in left_out]
        if arguments.only_schema_columns:
            left_out += [name for name in undeclared if name not in (arguments.target, arguments.unit)]
        schema = schema.select([name for name in schema if name not in left_out])
    if set(names) <= set(left_out):
        raise ValueError("--drop leaves no column")
    return left_out, schema


def options(**values):
    """Options of a command as text: None is no option, and a list one for each of its values."""
    given = [(name, one) for name, value in values.items() for one in (value if isinstance(value, list) else [value])]
    return "".join(
        f" --{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in given if value is not None
    )


def add_budget(parser, epsilon=1.0, default="1", ledger=False, several=False):
    """Options of the budget; `ledger`: whether the command may charge a ledger file; `several`: whether it compares."""
    of_ledger = "that of the ledger, else " if ledger else ""
    compared = "; several, separated by commas, are compared" if several else ""
    parser.add_argument(
        "--epsilon",
        type=_numbers if several else float,
        default=[epsilon] if several else epsilon,
        metavar="E",
        help=f"privacy budget epsilon{compared} (default: {default})",
    )
    parser.add_argument("--delta", type=float, metavar="D", help=f"privacy budget delta (default: {of_ledger}1e-5)")
    parser.add_argument(
        "--neighboring",
        choices=NEIGHBORING,
        metavar="R",
        help=f"neighbouring relation, {' or '.join(NEIGHBORING)} (default: {of_ledger}{NEIGHBORING[0]})",
    )


def _numbers(text):
    """Numbers that are separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, or numbers separated by commas; got {text!r}") from None


def check_budget(arguments):
    """Refuse an epsilon or delta that no fit has, in the words of the command line."""
    epsilons = arguments.epsilon if isinstance(arguments.epsilon, list) else [arguments.epsilon]
    given = [("epsilon", epsilon, EPSILONS) for epsilon in epsilons]
    for name, value, (low, high) in (*given, ("delta", arguments.delta, DELTAS)):
        if value is not None and not (low <= value <= high or (name == "epsilon" and value == math.inf)):
            raise ValueError(f"--{name} must be from {low:g} to {high:g}; got {value:g}")


def add_target(parser):
    """Option of the class label."""
    parser.add_argument(
        "--target",
        metavar="COLUMN",
        help="column on which the model of the others is conditional, such as a class label",
    )


def add_schema(parser):
    """Option of the schema."""
    parser.add_argument(
        "--schema",
        metavar="S.json",
        help="file of public facts about the columns; facts that it does not declare are learned and charged",
    )


def add_constraint(parser, also=", in addition to the constraints of the schema", more=""):
    """Option of conditions on rows."""
    add_repeated(
        parser,
        "--constraint TEXT",
        f"condition that every row satisfies{also}, such as 'admitted <= discharged', 'total == a + b', "
        "'combinations(state, city)' or \"if dead == 'yes': left is None\"; "
        f"public{more}",
    )


def add_constraints(settings, arguments):
    """Add the texts of ``--constraint`` to the parameters of a model."""
    if arguments.constraint:
        if "constraints" in settings:
            raise ValueError("--constraint and --set constraints= set the same thing: give one of them")
        refuse_mapping_files(arguments.constraint)
        settings["constraints"] = arguments.constraint


def refuse_mapping_files(texts):
    """Refuse the name of a file in the place of a mapping, which a schema states in full."""
    from ._mapping_files import names_file

    if found := [text for text in texts if names_file(text)]:
        raise ValueError(
            f"--constraint {found[0]}: the schema has the mapping of a file: skdpgen schema INPUT --constraint "
            f"{shlex.quote(found[0])} --output S.json"
        )


def add_unit(parser, several=False):
    """Options of who is protected, where a person has several rows."""
    parser.add_argument(
        "--unit",
        metavar="COLUMN",
        help="column of identifiers, such as a patient number: the guarantee protects all rows with one identifier "
        "together; the column is neither modelled nor written (default: the guarantee protects one row)",
    )
    counts = "; several, separated by commas, are compared" if several else ""
    parser.add_argument(
        "--max-rows-per-unit",
        metavar="K",
        help=f"with --unit: largest number of rows of a unit that are used; public{counts} (default: learned, from the "
        "budget)",
    )
    parser.add_argument(
        "--unit-weighting",
        choices=WEIGHTINGS,
        default=WEIGHTINGS[0],
        metavar="W",
        help="with --unit: weighting, rows (every used row counts 1) or units (every unit counts 1: rows of large "
        "units are too rare in a sample of rows; a column with the number of rows of the unit, among --unit-columns, "
        "repairs most of this for samples of units) (default: rows)",
    )
    parser.add_argument(
        "--missing-unit",
        choices=MISSING_UNITS,
        default=MISSING_UNITS[0],
        metavar="M",
        help="with --unit: rows without an identifier, refuse (an error) or own (each such row is a separate unit) "
        "(default: refuse)",
    )


def unit_settings(arguments):
    """Return the parameter `unit` that `add_unit` took, and the numbers of rows of a unit; none: learned."""
    from .._parameters import PrivacyUnit

    given = arguments.max_rows_per_unit
    if arguments.unit is None:
        if given is not None or (arguments.unit_weighting, arguments.missing_unit) != (WEIGHTINGS[0], MISSING_UNITS[0]):
            raise ValueError(
                "--max-rows-per-unit, --unit-weighting and --missing-unit need --unit, the column of identifiers"
            )
        return {}, []
    how = {"weighting": arguments.unit_weighting, "missing": arguments.missing_unit}
    if given is None:
        return {"unit": PrivacyUnit(arguments.unit, **how)}, []
    texts = given.split(",")
    if not all(text.strip().isdecimal() and int(text) > 0 for text in texts):
        raise ValueError(f"--max-rows-per-unit must be a whole number of at least 1; got {given}")
    most = [int(text) for text in texts]
    return {"unit": PrivacyUnit(arguments.unit, most[0], **how)}, most


def add_escaping(parser):
    """Option of the CSV files that a command writes."""
    parser.add_argument(
        "--escape-formulas",
        action="store_true",
        help="put a ' before text in OUT.csv that a spreadsheet would run as a formula",
    )


def add_seed(parser):
    """Option of the seed of a fit."""
    parser.add_argument("--seed", type=int, metavar="S", help="seed of initialisation and sampling, never of the noise")


def add_quiet(parser):
    """Option of the progress bar, which is shown where stderr is a terminal."""
    parser.add_argument("--quiet", action="store_true", help="show no progress bar; in pipes and files there is none")


def add_settings(parser):
    add_repeated(
        parser,
        "--set NAME=VALUE",
        "parameter of the model and its value, a Python literal or text, such as n_components=20; parameters "
        "of an object, such as DPSGD or LatentMixture, are set by training__steps=200 or prior__n_iter=10",
    )


def read_settings(texts):
    """Return the parameters that ``--set`` gave, a dict: Python literals, else texts; those of an object as a dict.

    `objects_of` makes the objects.
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE; got {text}")
        with contextlib.suppress(ValueError, SyntaxError):
            value = ast.literal_eval(value)
        name, nested, inner = name.partition("__")
        if not nested:
            settings[name] = value
        elif isinstance(settings.setdefault(name, {}), dict):
            settings[name][inner] = value
        else:
            raise ValueError(f"--set {name}= and --set {name}__{inner}= set the same thing: give one of them")
    return settings


def objects_of(model, settings):
    """Return what `read_settings` gave with parameter objects, for a class; ValueError for a parameter of an object."""
    from .._parameters import make_objects, refuse_inner

    try:
        refuse_inner(model, settings)
    except TypeError as error:
        raise ValueError(f"--set: {error}. A parameter of an object is set by --set training__steps=200") from None
    return make_objects(model, settings)


def print_ledger(accountant):
    """Print the charges of an accountant, what is spent, and by which rule several charges are added up."""
    from ..accounting._card import rule_of

    report = accountant.report()
    print(report.to_string(index=False))
    print(
        f"spent epsilon {accountant.epsilon_spent():.4f} of {accountant.epsilon:g} at delta {accountant.delta:g} "
        f"({accountant.neighboring}{'' if accountant.unit is None else f', {printable(in_words(accountant.unit))}'})"
    )
    if len(accountant.charges) > 1:
        print(f"rule: {rule_of(accountant)}")
    if len({entry.batch for entry in accountant.entries}) > 1:
        print(
            f"fixed in advance, these fits would cost epsilon {report.attrs['epsilon_if_fixed_in_advance']:.4f}; the "
            "privacy filter counts more, because a later fit may have been chosen by earlier results"
        )


def print_written(n_rows, arguments):
    """Say where synthetic rows are, and their units."""
    print(f"{n_rows} synthetic rows written to {arguments.output}")
    if arguments.units_output is not None:
        print(f"their synthetic units written to {arguments.units_output}")


def load_card(path):
    """Read a privacy card; what is wrong with it is said with the name of the file."""
    from .. import PrivacyCard

    try:
        return PrivacyCard.load(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


# Short names of models, which `synthesize` fits, and their classes.
MODELS = {"moment": "MomentSynthesizer", "p3gm": "P3GMSynthesizer"}


def class_of(name):
    """Return the class name of a model that may be given by its short name, such as p3gm."""
    return MODELS.get(name, name)


def short_name_of(name):
    """Return the short name of a model that may be given by its class name."""
    name = {long: short for short, long in MODELS.items()}.get(name, name)
    if name not in MODELS:
        raise argparse.ArgumentTypeError(
            f"this command fits {' and '.join(sorted(MODELS))}; other models are fitted in Python; got {name!r}"
        )
    return name


def find_models(option, given=None):
    """Return the names of the package's private estimators, or those of them that were given.

    `option`: option of the command line, for the error message. `given`: names. None, or "all" alone, gives all of
    them.
    """
    import skdpgen

    from .._base import PrivateEstimator

    def is_model(found):  # a search only runs the fits of others
        is_estimator = isinstance(found, type) and issubclass(found, PrivateEstimator)
        return is_estimator and "estimator" not in found._get_param_names()

    names = [name for name in skdpgen.__all__ if is_model(getattr(skdpgen, name))]
    if given is None or given == ["all"]:
        return names
    for name in given:
        if name not in names:
            others = ", all, or DPNet alone" if option == "MODEL" else ""
            raise ValueError(f"{option} must be one of {', '.join(names)}{others}; got {name}")
    return given


def make_model(name, parameters):
    """Return an unfitted estimator; ValueError for parameters that it does not have."""
    import skdpgen

    estimator = getattr(skdpgen, name)()
    parameters = objects_of(type(estimator), parameters)
    if unknown := sorted(set(parameters) - set(estimator.get_params(deep=False))):
        raise ValueError(
            f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(estimator.get_params(deep=False))}"
        )
    return estimator.set_params(**parameters)


# ---- units of several rows -------------------------------------------------------------------------------------------
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
    parser.add_argument(
        "--order-by",
        metavar="COLUMN",
        help="column of dates, numbers or ordered categories by which the rows of each synthetic unit are sorted "
        "(default: the first column of dates that is not among the --unit-columns)",
    )


def check_synthetic_units(arguments):
    """Refuse options of synthetic units that contradict one another, before anything is charged."""
    if arguments.units is None and arguments.units_output is None:
        if arguments.order_by is not None:
            raise ValueError("--order-by sorts the rows of synthetic units: give --units or --units-output with it")
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
