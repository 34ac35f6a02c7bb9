"""`skdpgen synthesize`: fit a private model to a file of rows, and write synthetic rows."""

from __future__ import annotations

import functools
import math
import shlex
import sys
import warnings
from dataclasses import replace
from pathlib import Path

from ..utils.callers import warn_user
from ..utils.printing import listed, say, show
from ._arguments import (
    MODELS,
    add_budget,
    add_constraint,
    add_constraints,
    add_dropping,
    add_escaping,
    add_only_schema_columns,
    add_quiet,
    add_reading,
    add_schema,
    add_seed,
    add_settings,
    add_synthetic_units,
    add_target,
    add_unit,
    add_unit_columns,
    check_budget,
    check_synthetic_units,
    class_of,
    columns_left_out,
    columns_of,
    objects_of,
    options,
    print_ledger,
    print_written,
    read_settings,
    set_unit_columns,
    short_name_of,
    unit_settings,
    with_unit,
)
from ._notations import declared_notation, reading, refuse_notations, say_differences

# Parameters that have a separate option.
_OPTIONS = (
    *("epsilon", "delta", "neighboring", "accountant", "target", "schema", "random_state", "progress"),
    *("checkpoint", "unit", "max_rows_per_unit"),
)
# Largest number of columns that a question names.
_LISTED = 40
# What is said of an interrupt before the charge; the ledger may have earlier fits.
_BEFORE_THE_CHARGE = "interrupted; this command charged nothing, and what was charged before it stays charged"


def add(command):
    """Register the options."""
    _add_budget(command)
    _add_columns(command)
    add_settings(command)
    add_reading(command)
    _add_results(command)


def _add_budget(command):
    """The rows, the model, and what the fit may cost."""
    command.add_argument("input", metavar="INPUT", help="CSV or Parquet file of sensitive rows")
    command.add_argument(
        "--model",
        choices=sorted(MODELS),
        type=short_name_of,
        default="p3gm",
        help="model: p3gm (default), or moment, which makes the same releases and reads a Parquet file in parts; or "
        "the name of the class, P3GMSynthesizer or MomentSynthesizer",
    )
    add_budget(command, ledger=True)
    command.add_argument(
        "--ledger",
        metavar="BUDGET.db",
        help="ledger file to charge, shared by all fits on these rows; created if it does not exist",
    )
    command.add_argument(
        "--budget",
        type=float,
        metavar="E",
        help="epsilon of a new ledger (default: the epsilon of this fit); for an existing ledger it must equal the "
        "epsilon of that ledger",
    )
    command.add_argument(
        "--label",
        metavar="TEXT",
        help="with --ledger: text beside the name of the model in the ledger, such as 'visits of 2023', by which "
        "the fits can be distinguished; public",
    )
    command.add_argument(
        "--checkpoint",
        metavar="C.safetensors",
        help="with --ledger, for a model that trains a network (--set decoder=net): file of an incomplete fit. If the "
        "command is killed, the same command resumes the fit from this file without another charge. When the fit is "
        "complete, the file is the released model",
    )


def _add_columns(command):
    """What is public of the columns, and which of them are left out."""
    add_target(command)
    add_unit(command)
    add_unit_columns(command)
    add_schema(command)
    command.add_argument(
        "--kinds-from-values",
        action="store_true",
        help="infer the kinds of columns (numbers, dates, text) from the values of a CSV file, and declare these kinds "
        "public (default: the schema declares the kinds; on a terminal the command asks about other columns)",
    )
    add_only_schema_columns(command, "these columns are learned and charged")
    add_dropping(command)
    add_constraint(command)


def _add_results(command):
    """The rows to draw, and the files to write."""
    command.add_argument("--rows", type=int, metavar="N", help="rows to write (default: the released row count)")
    add_synthetic_units(command)
    add_seed(command)
    add_escaping(command)
    add_quiet(command)
    command.add_argument("--output", required=True, metavar="OUT.csv", help="CSV or Parquet file to write")
    command.add_argument("--card", metavar="CARD.json", help="privacy card to write")
    command.add_argument(
        "--dataset",
        metavar="TEXT",
        help="with --card or --save-model: name of the data set and what one row is, for the card, such as 'Visits to "
        "the emergency department, 2023; one row is one visit'; public",
    )
    command.add_argument("--save-model", metavar="M.safetensors", help="released model to write")


def _check_kinds(rows, schema, declared_public):
    """Ask whether kinds inferred from the values are public: one row can change them, and they are released."""
    from .. import Schema
    from ..data.table_reading import KINDS_FROM_VALUES
    from ..tabular import Numeric

    names = getattr(rows, "attrs", {}).get(KINDS_FROM_VALUES, [])
    if declared_public and not names:
        raise ValueError(
            "--kinds-from-values has no effect here: the schema, or the Parquet file, declares all kinds; leave it out"
        )
    if declared_public or not names:
        return
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        kinds = Schema.from_kinds(rows, schema)
        for column in (kinds[name] for name in names[:_LISTED]):
            whole = " (whole numbers)" if isinstance(column, Numeric) and column.integer else ""
            print(f"  {column.name}: {type(column).__name__.lower()}{whole}", file=sys.stderr)
        if len(names) > _LISTED:
            print(f"  and {len(names) - _LISTED} more", file=sys.stderr)
        print(
            "These kinds were inferred from the values. One row can change them, and they will be published.",
            "Are they right, and public? [y/N] ",
            sep="\n",
            end="",
            file=sys.stderr,
            flush=True,
        )
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
        raise ValueError("nothing was charged: declare the kinds in a schema (skdpgen schema INPUT --output S.json)")
    raise ValueError(
        f"the kinds of these columns are not declared: {listed(names, 5)}; inferred from the private values, they "
        "would be published. Write a schema by skdpgen schema INPUT --output S.json, check it and give it as --schema "
        "S.json; or declare the kinds public by --kinds-from-values"
        + ("" if schema is None else "; or leave them out by --only-schema-columns")
        + "; nothing was charged"
    )


def _name_undeclared(arguments, schema, left_out, notation):
    """Say which columns a schema does not list, so that deleting one from its file is no way to drop it."""
    names = columns_of(arguments.input, notation)
    known = (*left_out, arguments.target, arguments.unit)
    undeclared = [name for name in names if name not in schema and name not in known]
    if undeclared and set(schema) <= set(names):  # else the fit refuses the schema
        say(
            f"not in the schema, and therefore learned and charged: {', '.join(undeclared)}; "
            "--only-schema-columns leaves them out"
        )


def _check_ledger(arguments):
    """Refuse a budget that is not that of the ledger: the same command may then run twice."""
    from .. import PrivacyAccountant

    if arguments.label is not None and arguments.ledger is None:
        raise ValueError("--label is written to a ledger file: give --ledger BUDGET.db too")
    if arguments.budget is None:
        return
    if arguments.ledger is None:
        raise ValueError("--budget is the epsilon of a ledger: give --ledger BUDGET.db too")
    if not Path(arguments.ledger).exists():
        return
    known = PrivacyAccountant(ledger=arguments.ledger).epsilon
    if arguments.budget != known:
        raise ValueError(
            f"--budget {arguments.budget:g} is not the budget of {arguments.ledger}, which is {known:g} and cannot be "
            "changed: leave --budget out, or name another ledger file, for other rows; nothing was charged"
        )


def _check_checkpoint(arguments, settings):
    """Refuse --checkpoint where there is no ledger file, or no training."""
    if arguments.ledger is None:
        raise ValueError("--checkpoint needs --ledger, the file that counts the steps that were taken")
    if arguments.model != "p3gm" or not ({"decoder", "preset"} & settings.keys()):
        raise ValueError("--checkpoint is for a model that trains a network: --model p3gm --set decoder=net")


def _goes_on(arguments):
    """What to say of the checkpoint of a fit that was interrupted; nothing where there is none."""
    if arguments.checkpoint is None or not Path(arguments.checkpoint).exists():
        return ""
    return f"; the same command goes on from {arguments.checkpoint}, if it can"


def run(arguments):
    try:
        from ._results import Results

        checked = _checked(arguments)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_BEFORE_THE_CHARGE) from None
    with Results(arguments.output, arguments.card, arguments.save_model, arguments.units_output) as results:
        _run(arguments, *checked, results)


def _checked(arguments):
    """The class of the model, its parameters, schema and notation: the options are checked."""
    import skdpgen

    from .. import Schema
    from ..data.table_reading import check_input
    from ..data.table_writing import check_writing

    schema = None if arguments.schema is None else Schema.load(arguments.schema)
    _check_results(arguments)
    check_budget(arguments)
    _check_ledger(arguments)
    model = getattr(skdpgen, class_of(arguments.model))
    notation = reading(arguments, schema, arguments.input)
    say_differences(arguments, schema)
    check_input(arguments.input, notation)
    settings = _settings(arguments, model, notation)
    if schema is not None:  # the released model has the notation of the schema
        schema = replace(schema, notation=declared_notation(notation))
    check_writing(arguments.output, escape_formulas=arguments.escape_formulas)
    return model, settings, schema, notation


def _check_results(arguments):
    """Refuse rows that cannot be drawn, and files that cannot be written or are named twice."""
    from ..accounting._card import check_dataset
    from ..data.table_writing import check_apart, check_output

    if arguments.rows is not None and not 1 <= arguments.rows < 10**9:
        raise ValueError(f"--rows must be positive, and below 1,000,000,000; got {arguments.rows}")
    if arguments.dataset is not None:
        if arguments.card is None and arguments.save_model is None:
            raise ValueError("--dataset is for the privacy card: give --card or --save-model too")
        check_dataset(arguments.dataset)
    check_synthetic_units(arguments)
    check_output(arguments.output, table=True)
    if arguments.units_output is not None:
        check_output(arguments.units_output, table=True)
    files = ("input", "output", "units_output", "card", "save_model", "schema", "ledger", "checkpoint")
    check_apart(*(getattr(arguments, name) for name in files))
    for path in filter(None, (arguments.card, arguments.save_model, arguments.checkpoint)):
        check_output(path)
    if arguments.save_model and Path(arguments.save_model).suffix != ".safetensors":
        raise ValueError(f"--save-model must end in .safetensors; got {arguments.save_model}")


def _settings(arguments, model, notation):
    """Return the parameters of the model that have no separate option, and those of the unit."""
    settings = objects_of(model, read_settings(arguments.set))
    if arguments.checkpoint is not None:
        _check_checkpoint(arguments, settings)
    accepted = set(model().get_params(deep=False)) - set(_OPTIONS)
    if refused := sorted(set(settings) - accepted):
        raise ValueError(
            f"--set: {model.__name__} takes no {', '.join(refused)} here; it takes {', '.join(sorted(accepted))}; "
            "for epsilon, target and the like use their own options"
        )
    add_constraints(settings, arguments)
    units, most = unit_settings(arguments)
    if len(most) > 1:
        raise ValueError("--max-rows-per-unit takes one number here; skdpgen budget compares several")
    # `columns` are there where synthetic units are asked for, because some models have none, and then refuse them
    asked = (arguments.units, arguments.units_output) != (None, None)
    set_unit_columns(units, arguments, lambda: columns_of(arguments.input, notation), asked)
    if arguments.units_output is not None and not arguments.unit_columns:
        raise ValueError("--units-output needs --unit-columns: a unit would have nothing but a number")
    return settings | units


def _run(arguments, model, settings, schema, notation, results):
    try:
        synthesizer, rows = _prepared(arguments, model, settings, schema, notation)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_BEFORE_THE_CHARGE) from None
    warned = _fit(synthesizer, rows, arguments)
    if arguments.dataset is not None:
        synthesizer.card_ = synthesizer.card_.with_dataset(arguments.dataset)
    show(synthesizer.summary_)
    # as the real rows are written, so that whatever reads one file reads the other
    written = {"notation": notation, "date_formats": getattr(rows, "attrs", {}).get("date_formats")}
    written["asked"] = {"units": arguments.units, "order_by": arguments.order_by}
    n_rows = results.write(synthesizer, arguments.rows, **written, escape_formulas=arguments.escape_formulas)
    print_ledger(synthesizer.accountant_)
    for remark in synthesizer.card_.remarks:
        print(remark)
    print_written(n_rows, arguments)
    _say_how_to_sample(arguments)
    if warned is not None:
        raise RuntimeError(
            f"{warned} (a {type(warned).__name__}, and warnings are errors here; the fit is complete, and its results "
            "are written)"
        )


def _prepared(arguments, model, settings, schema, notation):
    """The estimator with its ledger, and the rows: nothing is charged here."""
    left_out, schema = columns_left_out(arguments, schema, notation)
    rows = _read_rows(arguments, schema, left_out, notation)
    if arguments.order_by is not None:
        _check_order(arguments, settings["unit"], rows, schema, left_out)
    if arguments.unit is None:
        _point_out_units(rows)
    synthesizer = model(
        arguments.epsilon,
        arguments.delta,
        neighboring=arguments.neighboring,
        target=arguments.target,
        schema=schema,
        random_state=arguments.seed,
        progress=False if arguments.quiet else "auto",
        **settings,
        **({} if arguments.checkpoint is None else {"checkpoint": arguments.checkpoint}),
    )
    return synthesizer.set_params(accountant=_open_ledger(arguments, synthesizer, rows)), rows


def _check_order(arguments, unit, rows, schema, left_out):
    """Refuse a column that does not order the rows of a unit before the fit is charged."""
    from .. import Schema
    from .._parameters import unit_columns
    from ..data.sources import parquet_chunks
    from ..generators.units import column_of_order

    first = next(parquet_chunks([arguments.input], left_out)) if callable(rows) or isinstance(rows, Path) else rows
    kinds = Schema.from_kinds(first, schema)
    kinds = kinds.select([name for name in kinds.names if name != unit.name])
    column_of_order(kinds, unit_columns(unit), arguments.order_by)


def _point_out_units(rows):
    """Warn, for the data holder alone, that persons may have several rows although one row is protected."""
    import pandas as pd

    from ..exceptions import PrivacyLeakWarning
    from ._hints import likely_units

    if isinstance(rows, pd.DataFrame) and (units := likely_units(rows)):
        warn_user(
            f"persons (or households, or devices) may have several rows, by the names and repeated values of "
            f"{', '.join(units)}: without --unit {units[0]} the guarantee is for one row, and weaker for a person with "
            "several rows. Nothing was charged before this warning",
            PrivacyLeakWarning,
        )


def _say_how_to_sample(arguments):
    """The command that draws more rows in the same notation, which a model has from a schema alone."""
    missing = next(iter(arguments.missing), None)
    given = options(separator=arguments.separator, missing=missing, decimal=arguments.decimal)
    if arguments.save_model and given and arguments.schema is None:
        model = shlex.quote(str(arguments.save_model))
        say(f"more rows in this notation: skdpgen sample {model}{given} --output MORE.csv")


def _read_rows(arguments, schema, left_out, notation):
    """Rows of the file, or what gives them a part at a time; their kinds and their fit to the schema are checked."""
    from ..data.sources import is_parquet, parquet_chunks
    from ..data.table_reading import read_table

    rows = Path(arguments.input)
    # the kinds of the columns of a CSV file are inferred from all its values; a Parquet file declares them
    if arguments.model != "moment" or not is_parquet(rows):
        rows = read_table(
            rows,
            notation,
            schema=with_unit(schema, arguments.unit),
            unit=arguments.unit,
            left_out=left_out,
            refuse=functools.partial(refuse_notations, ()),
        )
    elif left_out:
        rows = functools.partial(parquet_chunks, [rows], left_out)
    _check_kinds(rows, schema, arguments.kinds_from_values)
    if schema is not None:
        _name_undeclared(arguments, schema, left_out, notation)
    return rows


def _open_ledger(arguments, synthesizer, rows):
    """Accountant of the ledger file, which is created where it is missing; None without one.

    A fit that is refused leaves no new file: it is tried on a ledger in memory first. The file is never removed again,
    because another process may have begun to charge it.
    """
    from .. import PrivacyAccountant

    if arguments.ledger is None:
        return None
    if Path(arguments.ledger).exists():
        return PrivacyAccountant(ledger=arguments.ledger, label=arguments.label)
    whole = arguments.epsilon if arguments.budget is None else arguments.budget
    budget = (whole, arguments.delta, arguments.neighboring)
    terms = {"unit": arguments.unit, "label": arguments.label}
    trial = PrivacyAccountant(*budget, **terms)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit says them
        plan = synthesizer.set_params(accountant=trial).plan(rows)
    trial.charge(plan.event, plan.label, plan.extra_delta, unit=arguments.unit)
    return PrivacyAccountant(*budget, ledger=arguments.ledger, **terms)


def _fit(synthesizer, rows, arguments):
    """Fit, and say what stays charged where that fails; return the warning of a complete fit that was an error."""
    from ..exceptions import BudgetExceededError, SchemaError

    shared = synthesizer.accountant
    charged = 0 if shared is None else len(shared.charges)
    try:
        synthesizer.fit(rows)
    except BudgetExceededError as error:
        left = 0.0 if shared is None else math.floor(shared.remaining() * 1e4) / 1e4
        if not 0 < left < arguments.epsilon or "is left for a charge" not in str(error):
            raise
        raise BudgetExceededError(
            f"--epsilon {arguments.epsilon:g} is more than the ledger has left: of {shared.epsilon:g}, "
            f"--epsilon {left:g} or less is left for one more fit; nothing was charged"
        ) from error
    except SchemaError as error:
        said, undeclared, _ = str(error).partition("; the rows are ")
        if undeclared:
            said += ': add them to its categories, give it an "other", or name a text that means a missing value by '
            said += "--missing TEXT"
        if hasattr(synthesizer, "accountant_") or "othing was charged" in said:
            raise
        raise SchemaError(f"{said}; nothing was charged") from error
    except Warning as warning:  # with python -W error
        if not hasattr(synthesizer, "card_"):
            raise RuntimeError(
                f"{warning} (a {type(warning).__name__}, and warnings are errors here); nothing was charged"
            ) from warning
        return warning
    except Exception as error:
        if not hasattr(synthesizer, "accountant_"):
            raise
        spent = synthesizer.accountant_
        raise RuntimeError(
            f"{str(error) or type(error).__name__}; the fit failed after its charge, and the charge stays: spent "
            f"epsilon {spent.epsilon_spent():.6g} of {spent.epsilon:g} at delta {spent.delta:.3g}{_goes_on(arguments)}"
        ) from error
    except KeyboardInterrupt:
        if not hasattr(synthesizer, "accountant_"):
            if shared is None or len(shared.charges) == charged:
                raise KeyboardInterrupt(_BEFORE_THE_CHARGE) from None
            raise  # by this fit or by another process: the message of all commands holds
        spent = synthesizer.accountant_
        raise KeyboardInterrupt(
            f"interrupted after the charge, and what was charged stays charged: spent epsilon "
            f"{spent.epsilon_spent():.6g} of {spent.epsilon:g} at delta {spent.delta:.3g}{_goes_on(arguments)}"
        ) from None
    return None
