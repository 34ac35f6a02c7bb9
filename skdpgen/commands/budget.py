"""`skdpgen budget`: what a fit would release, and with how much noise. Nothing is charged."""

from __future__ import annotations

import json
import warnings

from ._arguments import add_budget, add_reading, add_settings, find_models, make_model, read_settings, reading

__all__ = ["add", "run"]


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
        default="P3GMSynthesizer",
        metavar="MODEL",
        help="estimator of this package (default: P3GMSynthesizer)",
    )
    add_budget(command)
    command.add_argument(
        "--target",
        metavar="COLUMN",
        help="column on which the model of the others is conditional, such as a class label",
    )
    command.add_argument(
        "--schema",
        metavar="S.json",
        help="public facts about the columns; a fact that it does not declare is learned and charged",
    )
    command.add_argument(
        "--rows", type=int, default=10_000, metavar="N", help="public estimate of the number of rows (default: 10000)"
    )
    command.add_argument("--columns", type=int, metavar="K", help="plan for an array of K columns, not for a table")
    add_settings(command)
    add_reading(command)
    command.add_argument("--plot", metavar="PLAN.png", help="picture to write, of the split and the epsilon curve")
    command.add_argument("--json", action="store_true", help="print one JSON line")


def run(arguments):
    from ..accounting import BudgetPlan
    from ..data.table_files import check_apart, check_output

    if arguments.plot:
        check_output(arguments.plot)
        check_apart(arguments.input, arguments.schema, arguments.plot)
    estimator, data = _estimator(arguments), _data(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = BudgetPlan.of(estimator.plan(*data), arguments.rows)
    if arguments.plot:
        plan.plot(arguments.plot)
    print(json.dumps(plan.to_dict()) if arguments.json else plan)


def _estimator(arguments):
    from .. import Schema

    find_models("--model", [arguments.model])
    parameters = {"epsilon": arguments.epsilon, "delta": arguments.delta, "neighboring": arguments.neighboring}
    if arguments.schema is not None:
        parameters["schema"] = Schema.load(arguments.schema)
    if arguments.target is not None:
        parameters["target"] = arguments.target
    return make_model(arguments.model, parameters | read_settings(arguments.set))


def _data(arguments):
    """Arguments of `plan`: the rows of the file, or dummy rows of the declared columns."""
    import numpy as np

    from .. import Schema
    from ..data.table_files import read_table
    from ..model_selection import rows_like

    given = [name for name in ("input", "schema", "columns") if getattr(arguments, name) is not None]
    if arguments.columns is not None:
        if len(given) > 1 or arguments.columns < 1:
            raise ValueError("--columns must be a positive number, without INPUT and --schema: it is for arrays")
        return (np.random.default_rng(0).random((60, arguments.columns)),)
    schema = None if arguments.schema is None else Schema.load(arguments.schema)
    if arguments.input is not None:
        return (read_table(arguments.input, **reading(arguments), schema=schema),)
    if schema is None:
        raise ValueError("give INPUT, --schema or --columns: a plan depends on the columns")
    return (rows_like(schema),)
