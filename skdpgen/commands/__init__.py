"""The commands of the command line: one module each, with its options (`add`) and its work (`run`)."""

from __future__ import annotations

import importlib

__all__ = ["CHARGING", "COMMANDS", "add_commands"]

# Commands that fit: an interrupt may come after a charge.
CHARGING = ("synthesize", "demo", "audit", "bench")

# Name -> summary, in the order of the help text.
COMMANDS = {
    "synthesize": "fit a private model to a table and write synthetic rows",
    "sample": "draw rows from a released model",
    "demo": "fit models to real data that ship with scikit-learn, and write synthetic rows; needs no file",
    "schema": "write a schema to edit, from the columns of a table",
    "budget": "show the noise and the cost of each phase of a fit in advance; nothing is charged",
    "verify": "recompute the epsilon of a privacy card or of a ledger from its events alone; exit code 1 if the fit is "
    "not private",
    "card": "print the content of a privacy card in plain sentences; --html writes a page for privacy officers",
    "ledger": "show the spent epsilon of a ledger, fit by fit, and the remaining budget",
    "audit": "test the claimed epsilon of a model: measure a lower bound by many fits of dummy rows",
    "report": "compare synthetic with real rows on one HTML page, which must not be published",
    "bench": "run a benchmark and print one JSON line for each result (needs a checkout of the repository)",
}


def add_commands(commands, words):
    """Register every command with an argparse sub-parsers action.

    Parameters
    ----------
    commands : argparse action
        What ``ArgumentParser.add_subparsers`` returns.
    words : list of str
        Arguments of the command line. Only commands among them are loaded: the help text needs none.
    """
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name in words:
            module = importlib.import_module(f"{__name__}.{name}")
            module.add(command)
            command.set_defaults(run=module.run)
