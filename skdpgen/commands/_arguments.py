"""What several commands share: how a command is registered, and the options of a budget and of a file."""

from __future__ import annotations

from .._types import NEIGHBORING

__all__ = [
    "add_budget",
    "add_command",
    "add_escaping",
    "add_reading",
    "add_settings",
    "print_ledger",
    "read_settings",
    "reading",
]


def add_command(commands, name, run, summary):
    """Register a command and return its parser; ``run(arguments)`` does the work."""
    command = commands.add_parser(name, help=summary.replace("%", "%%"), description=summary)
    command.set_defaults(run=run)
    return command


def add_reading(parser):
    """Options of the CSV files that a command reads."""
    parser.add_argument(
        "--missing",
        metavar="TEXT",
        action="append",
        default=[],
        help="text that stands for a missing value; repeatable",
    )
    parser.add_argument(
        "--separator", metavar="C", help="between the fields of a CSV file: a character, or tab (default: comma)"
    )
    parser.add_argument(
        "--decimal", metavar="C", default=".", help="mark before the decimals of numbers: . or , (default: .)"
    )
    parser.add_argument(
        "--thousands", metavar="C", help="mark between thousands: . or , or ' or space (default: there are none)"
    )
    parser.add_argument(
        "--dates",
        metavar="FORMAT",
        action="append",
        default=[],
        help="how dates are written that are not in ISO 8601, such as %%d.%%m.%%Y; repeatable; dates of a schema are "
        "written in the first",
    )
    parser.add_argument(
        "--header", action="store_true", help="the first line does hold names, though some are numbers or dates"
    )


def reading(arguments):
    """Options of `skdpgen.data.table_files.read_table` that `add_reading` took."""
    return {
        "missing_values": arguments.missing,
        "separator": arguments.separator,
        "decimal": arguments.decimal,
        "thousands": arguments.thousands,
        "date_formats": arguments.dates,
        "numeric_names": arguments.header,
    }


def add_budget(parser, epsilon=1.0, default="1"):
    parser.add_argument("--epsilon", type=float, default=epsilon, metavar="E", help=f"default: {default}")
    parser.add_argument("--delta", type=float, metavar="D", help="default: that of the ledger, else 1e-5")
    parser.add_argument(
        "--neighboring",
        choices=NEIGHBORING,
        metavar="R",
        help=f"{' or '.join(NEIGHBORING)}; default: that of the ledger, else {NEIGHBORING[0]}",
    )


def add_escaping(parser):
    """Option of the CSV files that a command writes."""
    parser.add_argument(
        "--escape-formulas",
        action="store_true",
        help="put a ' before text in OUT.csv that a spreadsheet would take for a formula",
    )


def add_settings(parser):
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a parameter of the model, a Python literal or text; repeatable",
    )


def read_settings(texts):
    """Return the parameters that ``--set`` gave, a dict: Python literals, else texts."""
    import ast

    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE; got {text}")
        try:
            settings[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name] = value
    return settings


def print_ledger(accountant):
    """Print the charges of an accountant, and what is spent."""
    print(accountant.report().to_string(index=False))
    print(
        f"spent epsilon {accountant.epsilon_spent():.4f} of {accountant.epsilon:g} at delta {accountant.delta:g} "
        f"({accountant.neighboring})"
    )
