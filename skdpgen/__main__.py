"""The command line: `skdpgen` or `python -m skdpgen`. Progress goes to stderr, results to stdout."""

from __future__ import annotations

import argparse
import difflib
import errno
import re
import sys
import warnings

from . import __version__
from .commands import CHARGING, add_commands
from .exceptions import BenchmarkError
from .utils.closed_streams import quiet_when_closed
from .utils.printing import one_line, say


def main(argv=None):
    """Run one command and return the exit code.

    0 is success; 1, cells of a benchmark failed, or a verified card says that its fit is not private; 2, bad input,
    with one line on stderr; 130, interrupted; 141, the reader of an output file, a pipe, has gone. A closed stdout or
    stderr, as behind ``| head``, changes nothing else.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    with quiet_when_closed():
        return _main(argv)


def _main(argv):
    arguments = _parser(argv).parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _one_line_warning
            code = arguments.run(arguments)
    except BrokenPipeError:
        if arguments.traceback:
            raise
        return 141  # that of a program which SIGPIPE ends
    except (ValueError, OSError, RuntimeError, ImportError, Warning) as error:  # a warning where they are errors
        if arguments.traceback:
            raise
        say(one_line(_in_words(error)))
        return 1 if isinstance(error, BenchmarkError) else 2
    except KeyboardInterrupt as error:
        charges = arguments.run.__module__.rpartition(".")[2] in CHARGING
        say(str(error) or f"interrupted; {'what was charged stays charged' if charges else 'nothing was charged'}")
        return 130
    return code or 0


def _in_words(error):
    """An error as text; one of a file names the file first."""
    if not isinstance(error, OSError) or error.filename is None or error.strerror is None:
        return error
    words = {errno.ENOENT: "no such file", errno.EISDIR: "is a folder; give the name of a file"}
    return f"{error.filename}: {words.get(error.errno, error.strerror)}"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, in place of all options."""

    def parse_known_args(self, args=None, namespace=None):
        """Refuse what the command does not know here, where its options are known, and not in the parser above it."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            names = [text.partition("=")[0] for text in unknown if text.startswith("-")]
            near = [difflib.get_close_matches(name, self._option_string_actions, n=1) for name in names]
            meant = ", ".join(match for matches in near for match in matches)
            self.error(f"unrecognized arguments: {' '.join(unknown)}" + (f"; did you mean {meant}?" if meant else ""))
        return found, unknown

    def error(self, message):
        for kind, word in (("float", "a number"), ("int", "a whole number")):
            message = re.sub(rf"argument (\S+): invalid {kind} value: (.*)", rf"\1 must be {word}; got \2", message)
        self.exit(2, f"skdpgen: {message}; usage: {self.prog} --help\n")


def _one_line_warning(message, category, filename, lineno, file=None, line=None):
    say(f"{category.__name__}: {one_line(message)}")


def _parser(argv):
    parser = _Parser(prog="skdpgen", description="Differentially private synthetic data.")
    parser.add_argument("--version", action="version", version=f"skdpgen {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised")
    add_commands(parser.add_subparsers(required=True, metavar="COMMAND"), argv)
    return parser


if __name__ == "__main__":
    sys.exit(main())
