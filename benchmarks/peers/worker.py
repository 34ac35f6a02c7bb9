"""Run by a peer's interpreter, never imported by skdpgen: ``python -I worker.py FOLDER``.

Reads ``job.json`` in the folder, and ``table.npz`` (to fit) or ``model.pkl`` (to sample); writes ``model.pkl`` or
``table.npz``, and ``answer.json``. Tables hold one array of numbers a column: values, or codes into the declared
categories, so that no text has to survive a file format. Imports the peer, numpy and pandas alone.
"""

from __future__ import annotations

import json
import pickle
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd


def run(folder):
    """Do one job: fit or sample."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    package = PACKAGES[job["package"]]
    start, cpu = time.perf_counter(), time.process_time()
    if job["task"] == "fit":
        with np.load(folder / "table.npz", allow_pickle=False) as arrays:
            frame = pd.DataFrame({name: arrays[name] for name in arrays.files})
        model, reported = package["fit"](frame, job)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        (folder / "model.pkl").write_bytes(pickle.dumps(model))
    else:
        # written by this very script a moment ago, in a folder that only this user can open
        model, reported = pickle.loads((folder / "model.pkl").read_bytes()), {}
        frame = package["sample"](model, job)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        np.savez(folder / "table.npz", **{name: frame[name].to_numpy() for name in frame})
    names = (package["distribution"], "numpy", "pandas", *package["others"])
    answer = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_mib": peak_mib(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in names}},
        **reported,
    }
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def peak_mib():
    """Largest resident size of this process, in MiB; None where the system cannot tell it."""
    try:
        # ru_maxrss of Linux is no less than what the parent had when it started this process
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 2**10
    except (OSError, StopIteration):
        try:
            import resource
        except ImportError:  # Windows
            return None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def fit_dpmm(frame, job):
    """AIM, MST and PrivBayes of dpmm, given the public bounds and categories."""
    from dpmm import pipelines

    pipeline = getattr(pipelines, job["model"] + "Pipeline")
    settings = dict(job["settings"])
    # the pipeline spends `proc_epsilon` on its bins beside `epsilon`: together they are the budget
    share = settings.pop("processing_share")
    numeric = any("categories" not in column for column in job["columns"])
    processing = share * job["epsilon"] if numeric else 0.0
    model = pipeline(
        epsilon=job["epsilon"] - processing,
        delta=job["delta"],
        proc_epsilon=processing or None,
        n_jobs=1,
        **settings,
    )
    domain = {}
    for column in job["columns"]:
        name = column["name"]
        if "categories" in column:
            # text is what dpmm takes for a category
            frame[name] = frame[name].astype(str)
            domain[name] = {"categories": [str(code) for code in range(column["categories"])]}
        else:
            domain[name] = {"lower": column["lower"], "upper": column["upper"]}
    model.fit(frame, domain=domain)
    return model, {"told": {"epsilon_model": job["epsilon"] - processing, "epsilon_bins": processing}}


def sample_dpmm(model, job):
    frame = model.generate(n_records=job["n_rows"])
    return frame.apply(pd.to_numeric)


def fit_smartnoise(frame, job):
    """DP-CTGAN and PATE-CTGAN of smartnoise-synth, given a transformer of the public bounds and categories."""
    from snsynth.pytorch.nn import DPCTGAN, PATECTGAN
    from snsynth.transform import MinMaxTransformer, OneHotEncoder, TableTransformer

    transformers = []
    for column in job["columns"]:
        if "categories" in column:
            transformer, public = OneHotEncoder(), range(column["categories"])
        else:
            public = (column["lower"], column["upper"])
            transformer = MinMaxTransformer(lower=public[0], upper=public[1])
        transformer.fit(list(public))  # on public values alone: the peer then learns nothing before it trains
        transformers.append(transformer)
    kind = {"DPCTGAN": DPCTGAN, "PATECTGAN": PATECTGAN}[job["model"]]
    model = kind(epsilon=job["epsilon"], delta=job["delta"], verbose=False, cuda=False, **job["settings"])
    model.fit(frame, transformer=TableTransformer(transformers))
    spent = getattr(model, "epsilon_list", None)
    # by its own accounting, when it stopped
    return model, {"told": {"epsilon_spent": float(spent[-1])} if spent else {}}


def sample_smartnoise(model, job):
    return model.sample(job["n_rows"])


PACKAGES = {
    "dpmm": {"fit": fit_dpmm, "sample": sample_dpmm, "distribution": "dpmm", "others": ("scikit-learn", "opendp")},
    "smartnoise-synth": {
        "fit": fit_smartnoise,
        "sample": sample_smartnoise,
        "distribution": "smartnoise-synth",
        "others": ("torch", "opacus"),
    },
}

if __name__ == "__main__":
    run(Path(sys.argv[1]))
