"""Judges of other projects: SDMetrics' quality report and Anonymeter's three risks, run by a separate interpreter.

The package never imports a judge. Install ``sdmetrics==0.32.0 anonymeter==1.1.0`` in a separate environment and name
its interpreter, beside those of the peers, by ``--peer-python`` or by the variable SKDPGEN_PEERS_PYTHON.

The rows are halved: one half is fitted, the other is Anonymeter's control. Halves of one size need no correction for
the number of rows, which singling out depends on. The risks are exact functions of real rows: these rows are public.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from skdpgen import datasets

from ..models import REAL, find_model
from ..peers import find_peer
from ..peers.adapter import _TAIL, _encode, _run, find_interpreter
from ..tables import TABLES, _synthesize, split_rows

__all__ = ["judge", "judge_benchmark"]

WORKER = Path(__file__).with_name("worker.py")
# Attacks of each kind, as Anonymeter has it: their rates have a standard error of at most two hundredths.
_ATTACKS = 500
_SECONDS = 14_400


def judge(real, synthetic, control, schema, *, seed=0, attacks=_ATTACKS, python=None):
    """Return what the judges say of a synthetic table.

    Parameters
    ----------
    real, synthetic, control : DataFrame
        Rows that were fitted, rows that were drawn, and rows that were not fitted: columns of `schema`.
    schema : Schema
        Complete.
    seed : int, default=0
        Of the rows that Anonymeter attacks.
    attacks : int, default=500
        Attacks of each kind.
    python : str or list of str, default=None
        Interpreters to look for the judges in.

    Returns
    -------
    dict
        ``quality``, ``column_shapes``, ``column_pair_trends``; ``singling_out``, ``linkability``, ``inference`` (mean
        over the columns, each inferred from all others), ``inference_worst`` (largest of them); ``attacks`` (each with
        its interval at .95 and its rates of success), seconds and versions.
    """
    python = find_interpreter("anonymeter", python)
    columns, arrays = _encode(real, schema)
    tables = {"real": arrays, "synthetic": _encode(synthetic, schema)[1], "control": _encode(control, schema)[1]}
    job = {"columns": columns, "seed": int(seed), "attacks": min(attacks, len(real), len(control), len(synthetic))}
    with tempfile.TemporaryDirectory(prefix="skdpgen-judges-") as folder:
        folder = Path(folder)
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        for name, content in tables.items():
            np.savez(folder / f"{name}.npz", **content)
        try:
            done = _run([python, "-I", str(WORKER), str(folder)], _SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the judges did not end within {_SECONDS} s") from None
        if done.returncode != 0:
            raise RuntimeError(f"the judges ({python}) failed; the end of their stderr:\n{done.stderr[-_TAIL:]}")
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    answer["attacks"]["inference"] = dict(zip(schema, answer["attacks"]["inference"].values()))
    return answer


def judge_benchmark(
    table="adult",
    models=(REAL, "P3GMSynthesizer", "MomentSynthesizer", "MST"),
    *,
    seeds=(0, 1, 2),
    epsilon=1.0,
    delta=1e-5,
    rows=None,
    attacks=_ATTACKS,
    device="cpu",
    data=None,
    peer_python=None,
):
    """Fit synthesizers on half of a table, sample, and have the judges compare; one result a seed and model.

    Parameters
    ----------
    table : str, default="adult"
        Of `benchmarks.tables`.
    models : sequence of str
        As for the benchmarks of tables. "real data" is what a release of the fitted rows themselves would risk.
    seeds : iterable of int, default=(0, 1, 2)
        One split of the rows each.
    epsilon, delta : float
        Budget of one fit.
    rows : int, default=None
        Rows of each half at most.
    attacks : int, default=500
        Attacks of each kind.
    device : str, default="cpu"
    data : str or path, default=None
        Folder of the data.
    peer_python : str or list of str, default=None
        Interpreters of the environments that hold the judges, and peers.

    Yields
    ------
    result : dict
        ``data``, ``seed``, ``model``, what `judge` returns, what the fit cost, and ``rows``.
    """
    find_interpreter("anonymeter", peer_python)  # before a fit of an hour
    bunch = getattr(datasets, TABLES[table])(data)
    for seed in seeds:
        train, control = split_rows(bunch.frame, seed, test_fraction=0.5)
        train, control = (part if rows is None else part.head(rows) for part in (train, control))
        for model in models:
            name, synthetic, cost = model, train, {"epsilon": None, "delta": None}
            if model != REAL:
                found = find_peer(model, peer_python) or find_model(model)
                budget = {"epsilon": epsilon, "delta": delta}
                name, synthetic, cost = _synthesize(found, table, train, bunch, False, budget, device, len(train))
            judged = judge(
                train, synthetic[list(train)], control, bunch.schema, seed=seed, attacks=attacks, python=peer_python
            )
            yield {
                "data": table,
                "seed": int(seed),
                "model": name,
                **judged,
                **cost,
                "epsilon_asked": None if model == REAL else float(epsilon),
                "rows": len(train),
            }
