"""`skdpgen budget`: what a fit would release, at which noise, before anything is charged."""

from __future__ import annotations

from ._arguments import add_budget, add_command, add_reading, add_settings, read_settings, reading

__all__ = ["add", "run"]


def add(commands):
    """Register the command."""
    command = add_command(commands, "budget", run, "plan a fit: noise of each phase, signal to noise, epsilon curve")
    command.add_argument(
        "input",
        metavar="INPUT",
        nargs="?",
        help="CSV or Parquet file, of which columns and kinds are read; or --schema and --rows",
    )
    command.add_argument("--model", default="P3GMSynthesizer", metavar="MODEL", help="default: P3GMSynthesizer")
    add_budget(command)
    command.add_argument("--target", metavar="COLUMN")
    command.add_argument("--schema", metavar="S.json", help="public facts; what it leaves open is learned")
    command.add_argument("--rows", type=int, default=10_000, metavar="N", help="rows you expect: a public guess")
    command.add_argument("--columns", type=int, metavar="K", help="an array of so many columns, in place of a table")
    add_settings(command)
    add_reading(command)
    command.add_argument("--plot", metavar="PLAN.png", help="draw the split and the epsilon curve")
    command.add_argument("--json", action="store_true")


def run(arguments):
    import json
    import warnings

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
    import skdpgen

    from .. import Schema
    from .._base import PrivateEstimator

    names = [name for name in skdpgen.__all__ if _is_model(getattr(skdpgen, name), PrivateEstimator)]
    if arguments.model not in names:
        raise ValueError(f"--model must be one of {', '.join(names)}; got {arguments.model}")
    parameters = {"epsilon": arguments.epsilon, "delta": arguments.delta, "neighboring": arguments.neighboring}
    if arguments.schema is not None:
        parameters["schema"] = Schema.load(arguments.schema)
    if arguments.target is not None:
        parameters["target"] = arguments.target
    parameters |= read_settings(arguments.set)
    estimator = getattr(skdpgen, arguments.model)()
    if refused := sorted(set(parameters) - set(estimator.get_params(deep=False))):
        raise ValueError(f"{arguments.model} has no parameter {', '.join(refused)}")
    return estimator.set_params(**parameters)


def _data(arguments):
    """Arguments of `plan`: the file's rows, or rows made up from what is declared."""
    import numpy as np
    import pandas as pd

    from .. import Schema
    from ..data.table_files import read_table
    from ..model_selection import rows_like

    given = [name for name in ("input", "schema", "columns") if getattr(arguments, name) is not None]
    if arguments.columns is not None:
        if len(given) > 1 or arguments.columns < 1:
            raise ValueError("--columns is for arrays: a positive number, without INPUT and --schema")
        return (np.random.default_rng(0).random((60, arguments.columns)),)
    schema = None if arguments.schema is None else Schema.load(arguments.schema)
    if arguments.input is not None:
        return (read_table(arguments.input, **reading(arguments), schema=schema),)
    if schema is None:
        raise ValueError("give INPUT, --schema or --columns: a plan hangs on the columns")
    frame: pd.DataFrame = rows_like(schema)
    return (frame,)


def _is_model(found, base):
    return isinstance(found, type) and issubclass(found, base) and "estimator" not in found._get_param_names()
