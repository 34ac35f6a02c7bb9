"""`skdpgen synthesize`: fit a private model to a file of rows, and write synthetic ones."""

from __future__ import annotations

from pathlib import Path

from ._arguments import add_budget, add_command, add_reading, add_settings, print_ledger, read_settings, reading

__all__ = ["add", "run"]

# Parameters that have an option of their own.
_OPTIONS = ("epsilon", "delta", "neighboring", "accountant", "target", "schema", "random_state", "progress")
_MODELS = {"moment": "MomentSynthesizer", "p3gm": "P3GMSynthesizer"}


def add(commands):
    """Register the command."""
    command = add_command(commands, "synthesize", run, "fit a private model to a table and write synthetic rows")
    command.add_argument("input", metavar="INPUT", help="CSV or Parquet file of sensitive rows")
    command.add_argument(
        "--model",
        choices=sorted(_MODELS),
        default="p3gm",
        help="p3gm (default); or moment: tables of two columns alone, in seconds, from Parquet a part at a time",
    )
    add_budget(command)
    command.add_argument("--ledger", metavar="BUDGET.db", help="charge a ledger file, made if it is not there")
    command.add_argument(
        "--budget", type=float, metavar="E", help="epsilon of a ledger that is made (default: that of this fit)"
    )
    command.add_argument("--target", metavar="COLUMN", help="column to model the others by")
    command.add_argument("--schema", metavar="S.json", help="public facts; what it leaves open is learned and charged")
    add_settings(command)
    add_reading(command)
    command.add_argument("--rows", type=int, metavar="N", help="rows to write (default: the released row count)")
    command.add_argument("--seed", type=int, metavar="S", help="of initialisation and sampling; never of the noise")
    command.add_argument("--output", required=True, metavar="OUT.csv")
    command.add_argument("--card", metavar="CARD.json", help="write the privacy card")
    command.add_argument("--save-model", metavar="M.safetensors", help="write the released model")


def run(arguments):
    import skdpgen

    from .. import PrivacyAccountant, Schema
    from .._table_files import check_apart, check_input, check_output, is_parquet, read_table, write_table
    from ..exceptions import SchemaError

    schema = None if arguments.schema is None else Schema.load(arguments.schema)
    if arguments.rows is not None and arguments.rows < 1:
        raise ValueError(f"--rows must be positive; got {arguments.rows}")
    check_output(arguments.output, table=True)
    files = ("input", "output", "card", "save_model", "schema", "ledger")
    check_apart(*(getattr(arguments, name) for name in files))
    for path in filter(None, (arguments.card, arguments.save_model)):
        check_output(path)
    if arguments.save_model and Path(arguments.save_model).suffix != ".safetensors":
        raise ValueError(f"--save-model must end in .safetensors; got {arguments.save_model}")
    if arguments.budget is not None and (arguments.ledger is None or Path(arguments.ledger).exists()):
        raise ValueError("--budget is for a --ledger that is not there yet; another has its own")
    model, settings = getattr(skdpgen, _MODELS[arguments.model]), read_settings(arguments.set)
    if refused := sorted(set(settings) - (set(model().get_params(deep=False)) - set(_OPTIONS))):
        raise ValueError(f"--set: {model.__name__} takes no {', '.join(refused)} here; see its parameters")
    options = reading(arguments)
    check_input(arguments.input, **options)
    rows = Path(arguments.input)
    # the kinds of the columns of a CSV file are told from all its values; those of a Parquet file stand in it
    if arguments.model != "moment" or not is_parquet(rows):
        rows = read_table(rows, **options, schema=schema)
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
            f'{said}{undeclared}: add them to its categories, give it an "other", or name a text that stands for a '
            "missing value by --missing TEXT"
        ) from error
    # what was paid for first: a table can be sampled again
    if arguments.save_model:
        synthesizer.save(arguments.save_model)
    if arguments.card:
        synthesizer.card_.save(arguments.card)
    synthetic = synthesizer.sample(arguments.rows)
    # as the real rows are written, so that whatever reads one file reads the other
    written = {name: options[name] for name in ("separator", "decimal")}
    write_table(synthetic, arguments.output, **written, date_formats=getattr(rows, "attrs", {}).get("date_formats"))
    print_ledger(synthesizer.accountant_)
    print(f"{len(synthetic)} synthetic rows written to {arguments.output}")
