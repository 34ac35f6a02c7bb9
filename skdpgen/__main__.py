"""The command line: `skdpgen` or `python -m skdpgen`. Progress goes to stderr, results to stdout."""

from __future__ import annotations

import argparse
import sys
import warnings

from . import __version__
from .commands import add_commands
from .exceptions import BenchmarkError
from .utils.printing import one_line

__all__ = ["main"]


def main(argv=None):
    """Run one command and return the exit code.

    0 is success; 1, cells of a benchmark failed, or a verified card says that its fit is not private; 2, bad input,
    with one line on stderr; 130, interrupted.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    arguments = _parser(argv).parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _one_line_warning
            code = arguments.run(arguments)
    except (ValueError, OSError, RuntimeError, ImportError, Warning) as error:  # a warning where they are errors
        if arguments.traceback:
            raise
        print(f"skdpgen: {one_line(error)}", file=sys.stderr)
        return 1 if isinstance(error, BenchmarkError) else 2
    except KeyboardInterrupt as error:
        print(f"skdpgen: {str(error) or 'interrupted; what was charged stays charged'}", file=sys.stderr)
        return 130
    return code or 0


def _one_line_warning(message, category, filename, lineno, file=None, line=None):
    print(f"skdpgen: {category.__name__}: {one_line(message)}", file=sys.stderr)


def _parser(argv):
    parser = argparse.ArgumentParser(prog="skdpgen", description="Differentially private synthetic data.")
    parser.add_argument("--version", action="version", version=f"skdpgen {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised")
    add_commands(parser.add_subparsers(required=True, metavar="COMMAND"), argv)
    return parser


if __name__ == "__main__":
    sys.exit(main())
