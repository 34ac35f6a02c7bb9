"""The command line: `skdpgen` or `python -m skdpgen`. Progress goes to stderr, results to stdout."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from skdpgen import __version__
from skdpgen._types import NEIGHBORING

__all__ = ["main"]


def main(argv=None):
    """Run one command; return the exit code: 0, or 2 with one line on stderr for bad input."""
    arguments = _parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _one_line_warning
            arguments.run(arguments)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        if arguments.traceback:
            raise
        print(f"skdpgen: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("skdpgen: interrupted; what was charged stays charged", file=sys.stderr)
        return 130
    return 0


def _one_line_warning(message, category, filename, lineno, file=None, line=None):
    print(f"skdpgen: {category.__name__}: {message}", file=sys.stderr)


def _parser():
    parser = argparse.ArgumentParser(prog="skdpgen", description="Differentially private synthetic data.")
    parser.add_argument("--version", action="version", version=f"skdpgen {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    synthesize = _command(
        commands, "synthesize", _synthesize, "fit a private model to a table and write synthetic rows"
    )
    synthesize.add_argument("input", metavar="INPUT", help="CSV or Parquet file of sensitive rows")
    _add_budget(synthesize)
    synthesize.add_argument("--ledger", metavar="BUDGET.db", help="charge a ledger file, made if it is not there")
    synthesize.add_argument(
        "--budget", type=float, metavar="E", help="epsilon of a ledger that is made (default: that of this fit)"
    )
    synthesize.add_argument("--target", metavar="COLUMN", help="column to model the others by")
    synthesize.add_argument(
        "--schema", metavar="S.json", help="public facts; what it leaves open is learned and charged"
    )
    synthesize.add_argument(
        "--missing", metavar="TEXT", action="append", default=[], help="text that stands for a missing value"
    )
    _add_separator(synthesize)
    synthesize.add_argument("--rows", type=int, metavar="N", help="rows to write (default: the released row count)")
    synthesize.add_argument("--seed", type=int, metavar="S", help="of initialisation and sampling; never of the noise")
    synthesize.add_argument("--output", required=True, metavar="OUT.csv")
    synthesize.add_argument("--card", metavar="CARD.json", help="write the privacy card")
    synthesize.add_argument("--save-model", metavar="M.safetensors", help="write the released model")

    sample = _command(commands, "sample", _sample, "draw rows from a released model")
    sample.add_argument("model", metavar="M.safetensors")
    sample.add_argument("--rows", type=int, metavar="N", help="default: the released row count")
    sample.add_argument("--seed", type=int, metavar="S")
    sample.add_argument("--output", required=True, metavar="OUT.csv")

    demo = _command(commands, "demo", _demo, "synthesize real data that ship with scikit-learn; no file needed")
    demo.add_argument("--dataset", default="all", choices=["all", "digits", "breast_cancer", "adult"])
    _add_budget(demo, None, "3 for the small tables, 1 for Adult")
    demo.add_argument("--data", metavar="DIR", help="folder of adult.csv.gz (default: SKDPGEN_DATA)")
    demo.add_argument("--seed", type=int, metavar="S")
    demo.add_argument("--output", default="skdpgen-demo", metavar="DIR")

    schema = _command(commands, "schema", _schema, "write a schema to edit, from a table's columns")
    schema.add_argument("input", metavar="INPUT")
    schema.add_argument("--missing", metavar="TEXT", action="append", default=[])
    _add_separator(schema)
    schema.add_argument(
        "--public",
        metavar="COLUMN",
        action="append",
        default=[],
        help="declare this column's bounds or categories, as seen in the file, public ('*' for all); repeatable",
    )
    schema.add_argument("--output", metavar="S.json", help="default: stdout")

    verify = _command(commands, "verify", _verify, "recompute a privacy card's epsilon from its events alone")
    verify.add_argument("card", metavar="CARD.json")

    bench = _command(commands, "bench", _bench, "run a benchmark; one JSON line a result")
    bench.add_argument("name", choices=["step", "adult", "mnist", "fashion_mnist"])
    bench.add_argument("--seeds", type=int, nargs="+", default=None, metavar="S", help="default: 0 1 2 3 4; images: 0")
    bench.add_argument("--epsilon", type=float, default=1.0, metavar="E")
    bench.add_argument("--data", metavar="DIR", help="default: SKDPGEN_DATA")
    bench.add_argument("--learned-schema", action="store_true", help="adult: learn bounds and categories under DP")
    bench.add_argument("--output", metavar="results.jsonl", help="append the JSON lines to a file as well")
    return parser


def _command(commands, name, run, summary):
    command = commands.add_parser(name, help=summary, description=summary)
    command.set_defaults(run=run)
    return command


def _add_separator(parser):
    parser.add_argument(
        "--separator", metavar="C", help="between the fields of a CSV file: a character, or tab (default: comma)"
    )


def _add_budget(parser, epsilon=1.0, default="1"):
    parser.add_argument("--epsilon", type=float, default=epsilon, metavar="E", help=f"default: {default}")
    parser.add_argument("--delta", type=float, metavar="D", help="default: that of the ledger, else 1e-5")
    parser.add_argument(
        "--neighboring",
        choices=NEIGHBORING,
        metavar="R",
        help=f"{' or '.join(NEIGHBORING)}; default: that of the ledger, else {NEIGHBORING[0]}",
    )


def _synthesize(arguments):
    from skdpgen import P3GMSynthesizer, PrivacyAccountant, Schema
    from skdpgen._table_files import check_output, read_table, write_table
    from skdpgen.exceptions import SchemaError

    schema = None if arguments.schema is None else Schema.from_json(Path(arguments.schema).read_text(encoding="utf-8"))
    if arguments.rows is not None and arguments.rows < 1:
        raise ValueError(f"--rows must be positive; got {arguments.rows}")
    check_output(arguments.output, table=True)
    for path in filter(None, (arguments.card, arguments.save_model)):
        check_output(path)
    if arguments.save_model and Path(arguments.save_model).suffix != ".safetensors":
        raise ValueError(f"--save-model must end in .safetensors; got {arguments.save_model}")
    if arguments.budget is not None and (arguments.ledger is None or Path(arguments.ledger).exists()):
        raise ValueError("--budget is for a --ledger that is not there yet; another has its own")
    frame = read_table(arguments.input, missing_values=arguments.missing, separator=arguments.separator, schema=schema)
    accountant = None
    if arguments.ledger is not None:
        known = Path(arguments.ledger).exists()
        whole = arguments.epsilon if arguments.budget is None else arguments.budget
        accountant = (
            PrivacyAccountant(ledger=arguments.ledger)
            if known
            else PrivacyAccountant(whole, arguments.delta, arguments.neighboring, ledger=arguments.ledger)
        )
    synthesizer = P3GMSynthesizer(
        arguments.epsilon,
        arguments.delta,
        neighboring=arguments.neighboring,
        target=arguments.target,
        schema=schema,
        accountant=accountant,
        random_state=arguments.seed,
        progress=True,
    )
    try:
        synthesizer.fit(frame)
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
    write_table(synthetic, arguments.output)
    _print_ledger(synthesizer)
    print(f"{len(synthetic)} synthetic rows written to {arguments.output}")


def _print_ledger(synthesizer):
    accountant = synthesizer.accountant_
    print(accountant.report().to_string(index=False))
    print(
        f"spent epsilon {accountant.epsilon_spent():.4f} of {accountant.epsilon:g} at delta {accountant.delta:g} "
        f"({accountant.neighboring})"
    )


def _sample(arguments):
    import skdpgen
    from skdpgen._table_files import check_output, write_table

    check_output(arguments.output, table=True)
    synthesizer = skdpgen.load(arguments.model)
    frame = synthesizer.as_frame(synthesizer.sample(arguments.rows, random_state=arguments.seed))
    write_table(frame, arguments.output)
    print(f"{len(frame)} synthetic rows written to {arguments.output}")


def _demo(arguments):
    from skdpgen.benchmark.demo import run_demo

    run_demo(
        arguments.dataset,
        arguments.output,
        epsilon=arguments.epsilon,
        delta=1e-5 if arguments.delta is None else arguments.delta,
        neighboring=arguments.neighboring,
        data_dir=arguments.data,
        random_state=arguments.seed,
    )


def _schema(arguments):
    from skdpgen import Schema
    from skdpgen._table_files import check_output, declare_public, read_table

    if arguments.output:
        check_output(arguments.output)
    frame = read_table(arguments.input, missing_values=arguments.missing, separator=arguments.separator)
    schema = Schema.from_kinds(frame)
    schema = declare_public(schema, frame, list(schema) if "*" in arguments.public else arguments.public)
    print(
        "skdpgen: names and kinds of the columns are taken as public; edit what is not, write in the bounds and "
        'categories that are public knowledge (null is learned, and paid for), and set "missing" to false where no '
        "value can be missing",
        file=sys.stderr,
    )
    if arguments.output:
        schema.save(arguments.output)
        print(f"schema of {len(schema)} columns written to {arguments.output}")
    else:
        print(schema.to_json())


def _verify(arguments):
    from skdpgen import PrivacyCard

    card = PrivacyCard.load(arguments.card)
    computed = card.verify()
    fit, ledger = computed["fit"], computed["ledger"]
    print(f"{arguments.card}: holds together; recomputed from its events alone:")
    print(f"  model    {card['model']['name']}")
    print(f"  private  {'yes' if card['private'] else 'NO: without noise, or with noise that can be repeated'}")
    print(f"  fit      epsilon {fit['epsilon']:.6g} at delta {fit['delta']:.3g}")
    print(f"  ledger   epsilon {ledger['epsilon']:.6g} of {ledger['budget_epsilon']:g} at delta {ledger['delta']:.3g}")
    print(f"  unit     {card['unit']}, {card['neighboring']}")
    print(f"  noise    {card['noise']}")
    for text in card["public_assumptions"] or ["none"]:
        print(f"  public   {text}")


def _bench(arguments):
    from skdpgen.benchmark import run_benchmark

    run_benchmark(
        arguments.name,
        seeds=arguments.seeds,
        epsilon=arguments.epsilon,
        data_dir=arguments.data,
        learned_schema=arguments.learned_schema,
        output=arguments.output,
    )


if __name__ == "__main__":
    sys.exit(main())
