"""Run by the judges' interpreter, never imported by skdpgen: ``python -I worker.py FOLDER``.

Reads ``job.json``, and the tables ``real.npz``, ``synthetic.npz`` and ``control.npz``, which hold one array of numbers
a column: values, or codes of categories. Writes ``answer.json``. Imports the judges, numpy and pandas alone.
"""

from __future__ import annotations

import json
import logging
import platform
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd


def run(folder):
    """Judge one synthetic table."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    # Anonymeter draws the rows that it attacks from numpy's global generator
    np.random.seed(job["seed"])  # noqa: NPY002
    real, synthetic, control = (read(folder / f"{name}.npz", job) for name in ("real", "synthetic", "control"))
    answer, start = {}, time.perf_counter()
    for name, judge in (("sdmetrics", quality), ("anonymeter", risks)):
        answer |= judge(real, synthetic, control, job)
        answer[f"{name}_seconds"] = time.perf_counter() - start
        start = time.perf_counter()
    names = ("sdmetrics", "anonymeter", "numpy", "pandas", "polars", "scikit-learn")
    answer["versions"] = {"python": platform.python_version(), **{name: version(name) for name in names}}
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def read(path, job):
    """One table; codes of categories are texts."""
    with np.load(path, allow_pickle=False) as arrays:
        frame = pd.DataFrame({column["name"]: arrays[column["name"]] for column in job["columns"]})
    of_categories = {column["name"]: str for column in job["columns"] if "categories" in column}
    return frame.astype(of_categories)


def quality(real, synthetic, control, job):
    """Quality report of SDMetrics: shapes of the columns, and trends of their pairs, in [0, 1]."""
    from sdmetrics.reports.single_table import QualityReport

    kinds = {c["name"]: {"sdtype": "categorical" if "categories" in c else "numerical"} for c in job["columns"]}
    report = QualityReport()
    report.generate(real, synthetic, {"columns": kinds}, verbose=False)
    scores = report.get_properties().set_index("Property")["Score"]
    return {
        "quality": float(report.get_score()),
        "column_shapes": float(scores["Column Shapes"]),
        "column_pair_trends": float(scores["Column Pair Trends"]),
    }


def risks(real, synthetic, control, job):
    """Three risks of Anonymeter: what an attack gains on rows of the fit beyond its success on control rows."""
    from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator

    tables = {"ori": real, "syn": synthetic, "control": control, "n_attacks": job["attacks"]}
    names = list(real.columns)
    alone = SinglingOutEvaluator(**tables, n_cols=3, seed=job["seed"], max_attempts=200_000)
    linked = LinkabilityEvaluator(**tables, aux_cols=(names[::2], names[1::2]), n_neighbors=10)
    found = {
        "singling_out": rates_of(alone.evaluate(mode="multivariate")),
        "linkability": rates_of(linked.evaluate(n_jobs=1)),
    }
    inference = {}
    for column in job["columns"]:
        secret = column["name"]
        known = [name for name in names if name != secret]
        attack = InferenceEvaluator(
            **tables, aux_cols=known, secret=secret, regression="categories" not in column
        )  # a number is inferred if it is within 5 %
        inference[secret] = rates_of(attack.evaluate(n_jobs=1))
    values = [one["risk"] for one in inference.values()]
    return {
        "singling_out": found["singling_out"]["risk"],
        "linkability": found["linkability"]["risk"],
        "inference": float(np.mean(values)),
        "inference_worst": float(np.max(values)),
        "attacks": {**found, "inference": inference},
    }


def rates_of(evaluator):
    """Risk of an evaluator, with the rates of success that it is made of."""
    risk, results = evaluator.risk(confidence_level=0.95), evaluator.results(confidence_level=0.95)
    return {
        "risk": float(risk.value),
        "interval": [float(end) for end in risk.ci],
        "rate": float(results.attack_rate.value),
        "control_rate": float(results.control_rate.value),
        "baseline_rate": float(results.baseline_rate.value),
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]))
