"""The benchmarks by name: what each one runs, its options, and the published figures printed beside its own."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field

__all__ = ["BENCHMARKS", "OPTIONS", "Benchmark"]

# Options of `skdpgen bench NAME`, by the keyword argument that they set; a benchmark names those that it takes.
OPTIONS = {
    "seeds": {"type": int, "nargs": "+", "metavar": "S", "help": "random seeds, a result each"},
    "epsilon": {"type": float, "metavar": "E", "help": "budget of each fit, at delta 1e-5 (default: 1)"},
    "data": {"metavar": "DIR", "help": "folder of the data (default: SKDPGEN_DATA)"},
    "learned_schema": {"action": "store_true", "help": "learn bounds and categories under DP; declare nothing"},
    "quick": {"action": "store_true", "help": "a small setting that shows that everything runs"},
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
    figures : tuple of str
        Fields that are averaged in the printed table, where a result has them.
    group_by : tuple of str
        Fields whose values name a row of the table; results that share them are averaged.
    references : dict of dict
        Published figures, printed below: {row name: {figure: value}}.
    arguments : dict
        Fixed keyword arguments.
    """

    name: str
    summary: str
    home: str
    options: tuple = ()
    figures: tuple = ()
    group_by: tuple = ("model",)
    references: dict = field(default_factory=dict)
    arguments: dict = field(default_factory=dict)

    def run(self, **options):
        module, function = self.home.split(":")
        yield from getattr(importlib.import_module(f"{__package__}.{module}"), function)(**self.arguments, **options)


# Printed beside our own: P3GM's own paper (ICDE 2021, Tables VI to VIII) and peers run in the same protocol
# (dpmm 0.1.9, one seed), all at (1, 1e-5).
_ADULT = {
    "P3GM, paper": {"auroc": 0.8214, "auprc": 0.5972, "two_way_tvd": 0.3867},
    "PrivBayes, paper": {"auroc": 0.8530, "auprc": 0.6374, "two_way_tvd": 0.0752},
    "AIM": {"auroc": 0.896, "auprc": 0.752, "two_way_tvd": 0.027, "fit_seconds": 576.0},
    "MST": {"auroc": 0.825, "auprc": 0.612, "two_way_tvd": 0.041, "fit_seconds": 77.0},
    "PrivBayes": {"auroc": 0.821, "auprc": 0.594, "two_way_tvd": 0.061, "fit_seconds": 47.0},
    "real data": {"auroc": 0.911, "auprc": 0.792},
}
_MNIST = {"P3GM, paper": {"accuracy": 0.7940}, "VAE without privacy, paper": {"accuracy": 0.8571}}
_FASHION_MNIST = {"P3GM, paper": {"accuracy": 0.7485}, "VAE without privacy, paper": {"accuracy": 0.7854}}


def _images(name, references):
    return Benchmark(
        name,
        f"a CNN trained on synthetic {name} images, tested on real ones",
        "images:image_benchmark",
        options=("seeds", "epsilon", "data"),
        figures=("accuracy", "fit_seconds"),
        references=references,
        arguments={"dataset": name},
    )


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "step",
            "cost of a DP-SGD step against an ordinary one",
            "step:step_benchmark",
            figures=("ratio",),
            group_by=("net", "method", "noise"),
        ),
        Benchmark(
            "adult",
            "four classifiers trained on synthetic rows of Adult, tested on real ones",
            "adult:adult_benchmark",
            options=("seeds", "epsilon", "data", "learned_schema"),
            figures=("auroc", "auprc", "two_way_tvd", "fit_seconds"),
            references=_ADULT,
        ),
        _images("mnist", _MNIST),
        _images("fashion_mnist", _FASHION_MNIST),
    )
}
