"""`skdpgen bench`: run one benchmark by name, one JSON line a result, a summary with the papers' numbers at the end."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version

import numpy as np

__all__ = ["run_benchmark"]

_TABLE_FIGURES = ("auroc", "auprc", "two_way_tvd", "fit_seconds")
# What is printed beside a result: P3GM's own paper (ICDE 2021, Tables VI to VIII) and peers run in the same protocol
# (dpmm 0.1.9, one seed), all at (1, 1e-5).
_REFERENCES = {
    "adult": {
        "P3GM, paper": {"auroc": 0.8214, "auprc": 0.5972, "two_way_tvd": 0.3867},
        "PrivBayes, paper": {"auroc": 0.8530, "auprc": 0.6374, "two_way_tvd": 0.0752},
        "AIM": {"auroc": 0.896, "auprc": 0.752, "two_way_tvd": 0.027, "fit_seconds": 576},
        "MST": {"auroc": 0.825, "auprc": 0.612, "two_way_tvd": 0.041, "fit_seconds": 77},
        "PrivBayes": {"auroc": 0.821, "auprc": 0.594, "two_way_tvd": 0.061, "fit_seconds": 47},
        "real data": {"auroc": 0.911, "auprc": 0.792},
    },
    "mnist": {"P3GM, paper": {"accuracy": 0.7940}, "VAE without privacy, paper": {"accuracy": 0.8571}},
    "fashion_mnist": {"P3GM, paper": {"accuracy": 0.7485}, "VAE without privacy, paper": {"accuracy": 0.7854}},
}


def run_benchmark(name, *, seeds=None, epsilon=1.0, data_dir=None, learned_schema=False, output=None):
    """Run a benchmark and print its results.

    Parameters
    ----------
    name : {"adult", "mnist", "fashion_mnist", "step"}
    seeds : iterable of int, default=None
        None is 0 to 4 for tables, 0 for images.
    epsilon : float, default=1.0
        Budget of each fit, at delta 1e-5.
    data_dir : str or path, default=None
        None is the folder named by the environment variable SKDPGEN_DATA.
    learned_schema : bool, default=False
        Adult alone: declare nothing, learn bounds and categories under the same budget.
    output : str or path, default=None
        The JSON lines are appended to this file too.

    Returns
    -------
    list of dict
    """
    results = []
    for result in _results(name, seeds, epsilon, data_dir, learned_schema):
        record = {"benchmark": name, **result, "versions": _versions()}
        line = json.dumps(record, default=_plain)
        print(line, flush=True)
        if output is not None:
            with open(output, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        results.append(record)
    print(_summary(name, results), flush=True)
    return results


def _results(name, seeds, epsilon, data_dir, learned_schema):
    if name == "adult":
        from .adult import TABLE_SEEDS, adult_benchmark

        yield from adult_benchmark(
            seeds=TABLE_SEEDS if seeds is None else seeds,
            epsilon=epsilon,
            declared_schema=not learned_schema,
            data_dir=data_dir,
        )
    elif name == "step":
        from .step import step_benchmark

        yield from step_benchmark()
    else:
        from .images import image_benchmark

        yield from image_benchmark(name, seeds=(0,) if seeds is None else seeds, epsilon=epsilon, data=data_dir)


def _summary(name, results):
    """Markdown table of mean and standard deviation, the references below it."""
    figures = [
        figure
        for figure in (*_TABLE_FIGURES, "accuracy", "ratio")
        if any(isinstance(result.get(figure), float) for result in results)
    ]
    if name == "step":
        rows = [
            [
                " ".join(str(result[key]) for key in ("net", "method", "noise") if result.get(key)),
                *(_cell([result[f]]) for f in figures),
            ]
            for result in results
        ]
    else:
        rows = [[f"P3GMSynthesizer ({len(results)} seeds)", *(_cell([r[f] for r in results]) for f in figures)]]
        rows += [
            [model, *(_cell([known[f]]) if f in known else "" for f in figures)]
            for model, known in _REFERENCES.get(name, {}).items()
        ]
    lines = [["", *figures], ["---"] * (len(figures) + 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(values):
    mean = f"{np.mean(values):.4g}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.2g}"


def _versions():
    names = ("skdpgen", "scikit-learn", "numpy", "torch")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def _plain(value):
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    print(f"not a JSON value: {type(value).__name__}", file=sys.stderr)
    return str(value)
