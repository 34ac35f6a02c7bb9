"""What the commands cost: processor seconds of each, beside those of a process in which pandas reads the same file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["command_benchmark", "messy_table"]

# Rows and columns of the table of each command; each has a target of two classes.
SIZES = {"schema": (100_000, 50), "synthesize": (40_000, 17), "report": (100_000, 50)}
_QUICK = {"schema": (4_000, 20), "synthesize": (2_000, 8), "report": (1_000, 8)}
_READ = "import sys, pandas; pandas.read_csv(sys.argv[1])"


def messy_table(n_rows, n_columns, seed=0):
    """Make a table as offices keep them: amounts, counts, measurements, names of few levels, days, and two classes.

    Parameters
    ----------
    n_rows, n_columns, seed : int

    Returns
    -------
    DataFrame
        The last column, "target", is "yes" or "no".
    """
    rng = np.random.default_rng(seed)
    columns = {}
    for j in range(n_columns - 1):
        kind = ("amount", "count", "level", "measure", "day", "level")[j % 6]
        if kind == "amount":
            values = np.round(np.exp(rng.normal(5, 2, n_rows)), 2)
        elif kind == "count":
            values = rng.poisson(3 + j, n_rows)
        elif kind == "measure":
            values = rng.normal(size=n_rows)
        elif kind == "day":
            days = rng.integers(0, 3_000, n_rows).astype("timedelta64[D]")
            values = np.datetime_as_string(np.datetime64("2015-01-01") + days)
        else:
            values = np.array([f"level {k}" for k in range(3 + j)])[rng.integers(0, 3 + j, n_rows)]
        columns[f"{kind}_{j}"] = values
    columns["target"] = np.where(rng.random(n_rows) < 0.3, "yes", "no")
    return pd.DataFrame(columns)


def command_benchmark(*, epsilon=1.0, quick=False):
    """Yield the cost of `skdpgen schema`, `synthesize` and `report` on files of their own sizes.

    Parameters
    ----------
    epsilon : float, default=1.0
        Of the fit, with a learned schema.
    quick : bool, default=False
        Small files.

    Yields
    ------
    dict
        command, rows, columns; ``cpu_seconds`` of the command, ``read_seconds`` of a process in which pandas reads the
        file, and ``ratio`` of the two, which does not depend much on the machine.
    """
    for command, (n_rows, n_columns) in (_QUICK if quick else SIZES).items():
        with tempfile.TemporaryDirectory() as folder:
            real, other = Path(folder, "real.csv"), Path(folder, "other.csv")
            messy_table(n_rows, n_columns).to_csv(real, index=False)
            read = _cpu_seconds("-c", _READ, real)
            options = {
                "schema": ["--output", Path(folder, "schema.json")],
                "synthesize": [
                    *("--target", "target", "--epsilon", epsilon, "--kinds-from-values"),
                    *("--output", Path(folder, "synthetic.csv")),
                ],
                "report": [other, "--target", "target", "--output", Path(folder, "report.html")],
            }
            if command == "report":
                messy_table(n_rows, n_columns, seed=1).to_csv(other, index=False)
            spent = _cpu_seconds("-m", "skdpgen", command, real, *options[command])
        figures = {"cpu_seconds": spent, "read_seconds": read, "ratio": spent / read}
        yield {"command": command, "rows": n_rows, "columns": n_columns, **figures}


def _cpu_seconds(*arguments):
    """Processor seconds of a Python process on one thread."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    before = os.times()
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments[:3]))} ended with {done.returncode}: {done.stderr[-500:]}")
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
