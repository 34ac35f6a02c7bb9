"""What a benchmark declares, and the options of the command line that benchmarks take."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field

__all__ = ["OPTIONS", "Benchmark"]

# Options of `skdpgen bench NAME`, by the keyword argument that they set; a benchmark names those that it takes.
OPTIONS = {
    "settings": {
        "nargs": "+",
        "metavar": "NAME",
        "help": "paper: the paper's; tuned: those that do what it is for under sound noise (default: both)",
    },
    "seeds": {"type": int, "nargs": "+", "metavar": "S", "help": "random seeds, a result each"},
    "epsilon": {
        "type": float,
        "nargs": "+",
        "metavar": "E",
        "help": "budgets of a fit, at delta 1e-5 (default: 1, or those of the figure)",
    },
    "data": {"metavar": "DIR", "help": "folder of the data (default: SKDPGEN_DATA)"},
    "models": {
        "nargs": "+",
        "metavar": "MODEL",
        "help": "by class name, or P3GM(net), P3GM(AE), P3GM(paper), PGM, VAE; 'real data' is the reference; on tables "
        "also the peers AIM, MST, PrivBayes, DP-CTGAN, PATE-CTGAN; `all` leaves out of a part "
        "what it cannot take",
    },
    "peer_python": {
        "nargs": "+",
        "metavar": "PYTHON",
        "help": "interpreters of the environments that hold peers (default: SKDPGEN_PEERS_PYTHON)",
    },
    "device": {"metavar": "D", "help": "where nets are trained, for example cuda (default: cpu)"},
    "learned_schema": {"action": "store_true", "help": "learn bounds and categories under DP; declare nothing"},
    "development": {
        "action": "store_true",
        "help": "test on a part of the training rows, and fit on the others: for choosing settings",
    },
    "quick": {"action": "store_true", "help": "a small setting that shows that everything runs"},
    "figure": {"metavar": "FILE.png", "help": "draw the paper's figure to this file (needs the extra plot)"},
    "figures": {"metavar": "DIR", "help": "draw every figure into this folder (needs the extra plot)"},
}


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: a generator of results, and how they are printed.

    Parameters
    ----------
    name, summary : str
    home : str
        ``"module:function"`` in this room; imported when it runs. The function takes `options` as keyword arguments,
        each only where the caller gave it, and yields one JSON-able dict a result.
    options : tuple of str
        Names in `OPTIONS`.
    figures : tuple of str or (str, str)
        Fields that are averaged in the printed table, where a result has them, and their headings; "a.b" is field b
        of field a.
    group_by : tuple of str
        Fields whose values name a row of the table; results that share them are averaged.
    references : dict of dict
        Published figures, printed below: {row name: {figure: value}}.
    published : dict of dict
        Published figures, printed beside ours: {values of `group_by`: {figure: value}}.
    published_at : float or None
        Epsilon of the published figures, which stand beside results at that budget alone; None: beside all.
    arguments : dict
        Fixed keyword arguments.
    quick : dict
        Arguments in place of these under ``--quick``; empty where the function itself takes `quick`.
    axes : tuple of str
        Parameters, beside those of `AXES`, that are taken one by one.
    draw : str
        ``"module:function"`` in this room, called as ``draw(results, path)``; empty where the function itself takes
        `figure`, or there is none.
    parts : tuple of str
        Names of benchmarks that this one runs one after another, in place of a function.
    takes : str
        ``"module:name"`` in this room of the names that the option `models` may hold, or of a function that tells them;
        empty where nothing is checked.
    """

    name: str
    summary: str
    home: str
    options: tuple = ()
    figures: tuple = ()
    group_by: tuple = ("model",)
    references: dict = field(default_factory=dict)
    published: dict = field(default_factory=dict)
    published_at: float | None = None
    arguments: dict = field(default_factory=dict)
    quick: dict = field(default_factory=dict)
    axes: tuple = ()
    draw: str = ""
    parts: tuple = ()
    takes: str = ""

    def function(self):
        """The function of `home`."""
        return _find(self.home)

    def models(self):
        """Names that the option `models` may hold; None where nothing is checked."""
        if not self.takes:
            return None
        known = _find(self.takes)
        return tuple(known() if callable(known) else known)

    def draw_figure(self, results, path):
        """Draw the results that were told to a file."""
        _find(self.draw)(results, path)

    def figure_labels(self):
        """{field: heading} of the printed table."""
        return dict(figure if isinstance(figure, tuple) else (figure, figure) for figure in self.figures)


def _find(home):
    module, name = home.split(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)
