"""The commands of the command line: one module each, which registers its options and runs."""

from __future__ import annotations

import importlib

__all__ = ["add_commands"]

# In the order of the help text.
_MODULES = ("synthesize", "sample", "demo", "schema", "budget", "verify", "audit", "report", "bench")


def add_commands(commands):
    """Register every command with an argparse sub-parsers action."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}").add(commands)
