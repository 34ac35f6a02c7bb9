"""`skdpgen synthesize`: fit a private model to a file of rows, and write synthetic rows."""

from __future__ import annotations

from pathlib import Path

from ._arguments import (
    add_budget,
    add_escaping,
    add_reading,
    add_settings,
    print_ledger,
    read_settings,
    reading,
)

__all__ = ["add", "run"]

# Parameters that have a separate option.
_OPTIONS = ("epsilon", "delta", "neighboring", "accountant", "target", "schema", "random_state", "progress")
# Largest number of columns that a question names.
_LISTED = 40
_MODELS = {"moment": "MomentSynthesizer", "p3gm": "P3GMSynthesizer"}


def add(command):
    """Register the options."""
    command.add_argument("input", metavar="INPUT", help="CSV or Parquet file of sensitive rows")
    command.add_argument(
        "--model",
        choices=sorted(_MODELS),
        default="p3gm",
        help="p3gm (default), or moment: from one-way and two-way tables alone; it reads Parquet a part at a time",
    )
    add_budget(command, ledger=True)
    command.add_argument(
        "--ledger",
        metavar="BUDGET.db",
        help="ledger file to charge, shared by all fits on these rows; created if it does not exist",
    )
    command.add_argument(
        "--budget", type=float, metavar="E", help="epsilon of a new ledger (default: the epsilon of this fit)"
    )
    command.add_argument(
        "--target",
        metavar="COLUMN",
        help="column on which the model of the others is conditional, such as a class label",
    )
    command.add_argument(
        "--schema", metavar="S.json", help="public facts; a fact that it does not declare is learned and charged"
    )
    command.add_argument(
        "--kinds-from-values",
        action="store_true",
        help="declare that the kinds of columns (numbers, dates, text) inferred from the values of a CSV file are "
        "public; without it, the schema declares them, or you are asked",
    )
    command.add_argument(
        "--constraint",
        metavar="TEXT",
        action="append",
        default=[],
        help="what every row satisfies, beside the constraints of the schema, such as 'admitted <= discharged', 'total "
        "== a + b', 'combinations(state, city)' or \"if dead == 'yes': left is None\"; public; repeatable",
    )
    add_settings(command)
    add_reading(command)
    command.add_argument("--rows", type=int, metavar="N", help="rows to write (default: the released row count)")
    command.add_argument(
        "--seed", type=int, metavar="S", help="seed of initialisation and sampling, never of the noise"
    )
    add_escaping(command)
    command.add_argument("--output", required=True, metavar="OUT.csv", help="CSV or Parquet file to write")
    command.add_argument("--card", metavar="CARD.json", help="privacy card to write")
    command.add_argument("--save-model", metavar="M.safetensors", help="released model to write")


def _check_kinds(rows, schema, declared_public):
    """Ask whether kinds inferred from the values are public: one row can change them, and they are released."""
    import sys

    from .. import Schema
    from ..data.table_files import KINDS_FROM_VALUES
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
    listed = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    raise ValueError(
        f"the kinds of {len(names)} columns ({listed}) are not declared; inferred from the private values, they "
        "would be published. Write a schema by skdpgen schema INPUT --output S.json, check it and give it as --schema "
        "S.json; or declare the kinds public by --kinds-from-values; nothing was charged"
    )


def run(arguments):
    import skdpgen

    from .. import Schema
    from ..data.table_files import check_apart, check_input, check_output, check_writing
    from ._results import Results

    schema = None if arguments.schema is None else Schema.load(arguments.schema)
    if arguments.rows is not None and not 1 <= arguments.rows < 10**9:
        raise ValueError(f"--rows must be positive, and below 1,000,000,000; got {arguments.rows}")
    check_output(arguments.output, table=True)
    files = ("input", "output", "card", "save_model", "schema", "ledger")
    check_apart(*(getattr(arguments, name) for name in files))
    for path in filter(None, (arguments.card, arguments.save_model)):
        check_output(path)
    if arguments.save_model and Path(arguments.save_model).suffix != ".safetensors":
        raise ValueError(f"--save-model must end in .safetensors; got {arguments.save_model}")
    if arguments.budget is not None and (arguments.ledger is None or Path(arguments.ledger).exists()):
        raise ValueError(
            "--budget is for a --ledger that does not exist yet; an existing ledger has its own budget: leave "
            "--budget out"
        )
    model, settings = getattr(skdpgen, _MODELS[arguments.model]), read_settings(arguments.set)
    accepted = set(model().get_params(deep=False)) - set(_OPTIONS)
    if refused := sorted(set(settings) - accepted):
        raise ValueError(
            f"--set: {model.__name__} takes no {', '.join(refused)} here; it takes {', '.join(sorted(accepted))}; "
            "for epsilon, target and the like use their own options"
        )
    if arguments.constraint:
        if "constraints" in settings:
            raise ValueError("--constraint and --set constraints= set the same thing: give one of them")
        settings["constraints"] = arguments.constraint
    options = reading(arguments)
    check_input(arguments.input, **options)
    check_writing(arguments.output, escape_formulas=arguments.escape_formulas)
    with Results(arguments.output, arguments.card, arguments.save_model) as results:
        _run(arguments, model, settings, schema, options, results)


def _run(arguments, model, settings, schema, options, results):
    from .. import PrivacyAccountant
    from ..data.table_files import is_parquet, read_table
    from ..exceptions import SchemaError

    rows = Path(arguments.input)
    # the kinds of the columns of a CSV file are inferred from all its values; a Parquet file declares them
    if arguments.model != "moment" or not is_parquet(rows):
        rows = read_table(rows, **options, schema=schema)
    _check_kinds(rows, schema, arguments.kinds_from_values)
    accountant = None
    if arguments.ledger is not None:
        known = Path(arguments.ledger).exists()
        whole = arguments.epsilon if arguments.budget is None else arguments.budget
        accountant = (
            PrivacyAccountant(ledger=arguments.ledger)
            if known
            else PrivacyAccountant(whole, arguments.delta, arguments.neighboring, ledger=arguments.ledger)
        )
    synthesizer = model(
        arguments.epsilon,
        arguments.delta,
        neighboring=arguments.neighboring,
        target=arguments.target,
        schema=schema,
        accountant=accountant,
        random_state=arguments.seed,
        progress=True,
        **settings,
    )
    try:
        synthesizer.fit(rows)
    except SchemaError as error:
        said, undeclared, _ = str(error).partition("among its declared categories")
        if not undeclared:
            raise
        raise SchemaError(
            f'{said}{undeclared}: add them to its categories, give it an "other", or name a text that means a '
            "missing value by --missing TEXT"
        ) from error
    except Exception as error:
        if not hasattr(synthesizer, "accountant_"):
            raise
        spent = synthesizer.accountant_
        raise RuntimeError(
            f"{str(error) or type(error).__name__}; the fit failed after its charge, and the charge stays: spent "
            "epsilon "
            f"{spent.epsilon_spent():.6g} of {spent.epsilon:g} at delta {spent.delta:.3g}"
        ) from error
    # as the real rows are written, so that whatever reads one file reads the other
    written = {name: options[name] for name in ("separator", "decimal")}
    written["date_formats"] = getattr(rows, "attrs", {}).get("date_formats")
    n_rows = results.write(synthesizer, arguments.rows, **written, escape_formulas=arguments.escape_formulas)
    print_ledger(synthesizer.accountant_)
    print(f"{n_rows} synthetic rows written to {arguments.output}")
