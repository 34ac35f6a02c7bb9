"""`skdpgen budget`: what a fit would release, and with how much noise. Nothing is charged."""

from __future__ import annotations

import functools
import json
import math
import warnings

from ._arguments import (
    add_budget,
    add_constraint,
    add_constraints,
    add_dropping,
    add_only_schema_columns,
    add_reading,
    add_schema,
    add_settings,
    add_target,
    add_unit,
    add_unit_columns,
    check_budget,
    class_of,
    columns_left_out,
    columns_of,
    find_models,
    make_model,
    read_settings,
    refuse_mapping_files,
    set_unit_columns,
    unit_settings,
    with_unit,
)
from ._notations import reading

# Rows of a unit for which the noise is compared, where their number is not given.
_COMPARED = (1, 2, 3, 5, 8, 13)


def add(command):
    """Register the options."""
    command.add_argument(
        "input",
        metavar="INPUT",
        nargs="?",
        help="CSV or Parquet file, whose columns and kinds are read; or give --schema and --rows",
    )
    command.add_argument(
        "--model",
        type=class_of,
        default="P3GMSynthesizer",
        metavar="MODEL",
        help="estimator of this package; p3gm and moment stand for P3GMSynthesizer and MomentSynthesizer, as for "
        "synthesize (default: P3GMSynthesizer)",
    )
    add_budget(command, several=True)
    add_target(command)
    add_schema(command)
    add_only_schema_columns(command, "these columns are learned and charged")
    add_dropping(command)
    command.add_argument(
        "--rows",
        type=int,
        default=10_000,
        metavar="N",
        help="public estimate of the number of rows, or of units with --unit-weighting units (default: 10000)",
    )
    command.add_argument("--columns", type=int, metavar="K", help="plan for an array of K columns, not for a table")
    add_unit(command, several=True)
    add_unit_columns(command)
    add_constraint(command)
    add_settings(command)
    add_reading(command)
    command.add_argument("--plot", metavar="PLAN.png", help="picture to write, of the split and the epsilon curve")
    command.add_argument("--json", action="store_true", help="print one JSON line")


def run(arguments):
    from ..data.table_writing import check_apart, check_output

    if arguments.plot:
        check_output(arguments.plot)
        check_apart(arguments.input, arguments.schema, arguments.plot)
    check_budget(arguments)
    if arguments.rows < 1:
        raise ValueError(f"--rows must be positive; got {arguments.rows}")
    units, most = unit_settings(arguments)
    if len(arguments.epsilon) > 1 and (arguments.plot or len(most) > 1):
        other = "--plot shows one epsilon" if arguments.plot else "--max-rows-per-unit then takes one number"
        raise ValueError(f"several numbers of --epsilon are compared in a table: {other}")
    data, schema, known = _data(arguments)
    set_unit_columns(units, arguments, lambda: known)
    estimator = _estimator(arguments, units, schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit, plan = _plan(estimator, data, arguments.rows)  # --set may have changed its epsilon
        others = [
            _plan(estimator.set_params(epsilon=epsilon), data, arguments.rows)[1] for epsilon in arguments.epsilon[1:]
        ]
        compared = _compared(fit, most or _COMPARED) if units and not others else []
    _say_what_was_inferred(arguments, data[0])
    if arguments.plot:
        plan.plot(arguments.plot)
    if others:
        plans = [plan, *others]
        print(json.dumps({"plans": [one.to_dict() for one in plans]}) if arguments.json else _by_epsilon(plans))
        return
    if arguments.json:
        print(json.dumps(plan.to_dict() | ({"units": compared} if units else {})))
        return
    print(plan)
    if compared:
        print("\n" + "\n".join(_in_words(compared, arguments.unit)))


def _plan(estimator, data, n_rows):
    """The plan of a fit, and what it means for so many rows."""
    from ..accounting import BudgetPlan

    fit = estimator.plan(*data)
    return fit, BudgetPlan.of(fit, n_rows)


def _by_epsilon(plans):
    """What the noise of several epsilons hides, as text: errors of counts, or else the noise of each release."""
    from ..utils.printing import table_lines

    first = plans[0]
    if any(row.one_way_error is not None for row in first.counts):
        head = ("epsilon", "columns", "smallest kept", "error of a count", "of two columns")
        lines = [
            (
                f"{plan.epsilon:.4g}",
                f"{row.columns} x {row.kind}",
                "" if row.smallest_kept is None else f"{row.smallest_kept:.0f}" if row.smallest_kept else "all",
                *map(functools.partial(_error, plan), (row.one_way_error, row.two_way_error)),
            )
            for plan in plans
            for row in plan.counts
        ]
        words = [
            f"in {first.counted}, and in percent of the {first.n_rows} that were assumed (--rows); errors are standard "
            "errors",
            "smallest kept: the smallest category that is kept with probability .95",
        ]
        if any(row.one_way_error is not None and row.two_way_error is None for plan in plans for row in plan.counts):
            words.append('nothing under "of two columns": these counts are not released')
    else:
        head = ("epsilon", "phase", "noise", "signal/noise")
        lines = [
            (f"{plan.epsilon:.4g}", row.phase, f"{row.noise_multiplier:.4g}", f"{row.signal_to_noise:.4g}")
            for plan in plans
            for row in plan.phases
        ]
        words = []
    words.append("one --epsilon shows the phases of its fit, and all that is assumed; nothing was charged")
    return "\n".join([*table_lines(head, lines), *words])


def _error(plan, error):
    return "" if error is None else f"{error:.3g} ({100 * error / plan.n_rows:.2g} %)"


def _compared(plan, most):
    """Noise of a count, for several numbers of rows of a unit: of both weightings, and by group privacy."""
    from ..accounting import calibrate

    label = "moments" if "moments" in plan.noise_multipliers else list(plan.noise_multipliers)[-1]
    found = []
    for k in most:
        # k rows at (epsilon, delta) each: (k epsilon, k e^((k - 1) epsilon) delta) together
        epsilon = plan.epsilon / k
        delta = plan.delta / (k * math.exp((k - 1) * epsilon)) if math.isfinite(epsilon) else plan.delta
        extra = plan.extra_delta * delta / plan.delta
        by_group = calibrate(plan.phases, epsilon, delta, plan.neighboring, label=plan.label, extra_delta=extra)
        noise, of_group = plan.noise_multipliers[label], by_group.noise_multipliers[label]
        found.append({"max_rows_per_unit": k, "rows": k * noise, "units": noise, "group_privacy": of_group})
    return found


def _in_words(compared, unit):
    """The comparison as lines of text."""
    from ..utils.printing import table_lines

    head = ("rows of a unit", "weighting rows", "weighting units", "group privacy")
    lines = [
        (str(row["max_rows_per_unit"]), *(f"{row[name]:.4g}" for name in ("rows", "units", "group_privacy")))
        for row in compared
    ]
    return [
        f"noise of the largest release for one {unit}, in contributions of one row (of one unit, with "
        "weighting units):",
        *table_lines(head, lines),
        "group privacy: a fit that protects one row, at an epsilon so small that so many rows are protected too;",
        "for comparison alone: no fit does this",
    ]


def _estimator(arguments, units, schema):
    find_models("--model", [arguments.model])
    parameters = {"epsilon": arguments.epsilon[0], "delta": arguments.delta, "neighboring": arguments.neighboring}
    if schema is not None:
        if not arguments.model.endswith("Synthesizer"):
            raise ValueError(f"{arguments.model} is for arrays of numbers: leave --schema out, and give --columns K")
        parameters["schema"] = schema
    if arguments.target is not None:
        parameters["target"] = arguments.target
    settings = read_settings(arguments.set)
    add_constraints(settings, arguments)
    return make_model(arguments.model, parameters | units | settings)


def _say_what_was_inferred(arguments, rows):
    from ..data.sources import KINDS_FROM_VALUES
    from ..utils.printing import listed, say

    if names := getattr(rows, "attrs", {}).get(KINDS_FROM_VALUES):
        say(
            f"the kinds of {listed(names, 10)} were inferred from the values of {arguments.input}: one row can change "
            "them, and so this plan, which is for the data holder alone. With --schema it depends on declared columns"
        )


def _data(arguments):
    """Arguments of `plan` (the rows of the file, or dummy rows of the declared columns), schema and column names."""
    import numpy as np

    from .. import Schema
    from ..data.table_reading import read_table
    from ..model_selection import rows_like

    given = [name for name in ("input", "schema", "columns") if getattr(arguments, name) is not None]
    if arguments.columns is not None:
        if len(given) > 1 or arguments.columns < 1:
            raise ValueError("--columns must be a positive number, without INPUT and --schema: it is for arrays")
        X = np.random.default_rng(0).random((60, arguments.columns))
        if arguments.drop or arguments.only_schema_columns:
            raise ValueError("--drop and --only-schema-columns are for tables: leave them out with --columns")
        if arguments.unit_columns or arguments.unit_shared or arguments.constraint:
            raise ValueError(
                "--unit-columns, --unit-shared and --constraint are for tables: leave them out with --columns"
            )
        return ((X,) if arguments.unit is None else (X, None, np.arange(60))), None, ()
    schema = None if arguments.schema is None else Schema.load(arguments.schema)
    if arguments.input is not None:
        notation = reading(arguments, schema, arguments.input)
        left_out, schema = columns_left_out(arguments, schema, notation)
        unit = arguments.unit
        rows = read_table(arguments.input, notation, schema=with_unit(schema, unit), unit=unit, left_out=left_out)
        return (rows,), schema, columns_of(arguments.input, notation)
    if schema is None:
        raise ValueError("give INPUT, --schema or --columns: a plan depends on the columns")
    _, schema = columns_left_out(arguments, schema, None)
    if len({type(name) for name in schema}) > 1:
        raise ValueError(f"{arguments.schema} names columns by text and by numbers: write all names as text")
    refuse_mapping_files(arguments.constraint)
    rows = rows_like(schema.constrain(*arguments.constraint))
    if arguments.unit is not None and arguments.unit not in rows:
        rows[arguments.unit] = np.arange(len(rows))
    return (rows,), schema, list(schema)
