"""What all peers share: a fit and a sample, each one job of a worker in the peer's own environment."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from skdpgen.tabular import Categorical, Numeric, Schema

__all__ = ["PYTHON_VARIABLE", "Peer", "find_interpreter"]

# Interpreters of the peers' environments, separated as in PATH.
PYTHON_VARIABLE = "SKDPGEN_PEERS_PYTHON"
WORKER = Path(__file__).with_name("worker.py")
_TAIL = 2000
_PROBE_SECONDS = 60


def find_interpreter(package, python=None):
    """Return the first interpreter whose environment holds a package.

    Parameters
    ----------
    package : str
        Name of the distribution.
    python : str, path or list of them, default=None
        Interpreters to ask; None reads the environment variable SKDPGEN_PEERS_PYTHON.

    Returns
    -------
    str

    Raises
    ------
    FileNotFoundError
        No interpreter is named, or one that is named cannot be run.
    ModuleNotFoundError
        None of them has the package.
    """
    origin = "python"
    if python is None:
        named, origin = os.environ.get(PYTHON_VARIABLE, ""), PYTHON_VARIABLE
        candidates = [part for part in named.split(os.pathsep) if part]
    else:
        candidates = [python] if isinstance(python, str | os.PathLike) else list(python)
    if not candidates:
        raise FileNotFoundError(
            f"{package} runs in a separate environment: name its interpreter by --peer-python (python=) or by "
            f"{PYTHON_VARIABLE}"
        )
    probe = f"import importlib.metadata as m; m.version({package!r})"
    for candidate in map(os.fspath, candidates):
        try:
            asked = _run([candidate, "-I", "-c", probe], _PROBE_SECONDS)
        except OSError as error:
            raise FileNotFoundError(f"{origin} names {candidate!r}, which cannot be run: {error}") from None
        if asked.returncode == 0:
            return candidate
        if "PackageNotFoundError" not in asked.stderr:
            raise RuntimeError(f"{candidate!r} is not a Python interpreter that works:\n{asked.stderr[-_TAIL:]}")
    raise ModuleNotFoundError(
        f"{package} is installed for none of {', '.join(map(repr, map(os.fspath, candidates)))}", name=package
    )


class Peer:
    """A synthesizer of another project, by the interface of the tables.

    A fit and a sample are one run each of a worker script by the peer's interpreter. They exchange numbers, codes of
    categories and JSON through a temporary folder that only this user can read and that is removed whatever happens,
    short of a kill of this process. The peer is given the public schema, as our own synthesizers are.

    Parameters
    ----------
    epsilon, delta : float
        Budget that is given to the peer; `uncharged` lists what it reads beyond that budget.
    target : str, default=None
        Ignored: the peers treat the target as any other column.
    schema : Schema, default=None
        Public bounds and categories of every column.
    bounds : array-like of shape (n_features, 2), default=None
        For a table of numbers: their public bounds, instead of `schema`.
    classes : array-like, default=None
        With `bounds`: the public classes.
    python : str, path or list of them, default=None
        Interpreters to look for the peer in; None reads SKDPGEN_PEERS_PYTHON.
    timeout : float, default=14400
        Seconds that a fit, or a sample, may take.

    Attributes
    ----------
    details_ : dict
        ``peer``: versions, settings, seconds and peak memory (``peak_mib``) of the worker, and what the peer reports
        of its budget, for the results.
    """

    # of the subclasses
    name = package = model = ""
    settings = {}
    # what the peer computes from private rows without protection, by its source
    uncharged = ()

    def __init__(
        self,
        *,
        epsilon=1.0,
        delta=1e-5,
        target=None,
        schema=None,
        bounds=None,
        classes=None,
        python=None,
        timeout=14_400,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.target = target
        self.schema = schema
        self.bounds = bounds
        self.classes = classes
        self.python = python
        self.timeout = timeout

    def fit(self, X, y=None):
        """Fit the peer to a frame, or to numbers and their classes.

        Parameters
        ----------
        X : DataFrame with the columns of `schema`, or array of shape (n_rows, n_features)
        y : array-like of shape (n_rows,), default=None
            Classes, with `bounds` and `classes`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            The public facts are not declared in full, or a value is missing or not among them.
        FileNotFoundError, ModuleNotFoundError
            No interpreter, or none that has the peer.
        TimeoutError, RuntimeError
            The worker took too long, or failed: the end of what it wrote is in the message.
        """
        schema = self._public_schema()
        if y is not None:
            X = pd.DataFrame(np.asarray(X), columns=list(schema)[:-1]).assign(label=np.asarray(y))
        columns, arrays = _encode(X, schema)
        self._python = find_interpreter(self.package, self.python)
        job = {
            "task": "fit",
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "columns": columns,
            "settings": self.settings,
        }
        answer, files = self._work(job, {"table.npz": arrays}, "model.pkl")
        self._model, self._schema, self._as_array = files, schema, y is not None
        self.details_ = {
            "peer": {"package": self.package, "settings": self.settings, "unpaid": list(self.uncharged), "fit": answer}
        }
        return self

    def sample(self, n_rows):
        """Draw rows from the fitted peer.

        Returns
        -------
        DataFrame, or (X, y)
            As given to `fit`; values within the public bounds, integers rounded.
        """
        if not hasattr(self, "_model"):
            raise ValueError(f"{type(self).__name__} is not fitted: call fit first")
        job = {"task": "sample", "n_rows": int(n_rows)}
        answer, table = self._work(job, {"model.pkl": self._model}, "table.npz")
        self.details_["peer"]["sample"] = answer
        frame = _decode(table, self._schema)
        if len(frame) != n_rows:
            raise RuntimeError(f"{self.name} gave {len(frame)} rows where {n_rows} were asked for")
        if not self._as_array:
            return frame
        return frame.drop(columns="label").to_numpy(dtype=np.float64), frame["label"].to_numpy()

    def _public_schema(self):
        if self.schema is not None:
            return self.schema
        if self.bounds is None or self.classes is None:
            raise ValueError(
                f"{self.name} is given the public schema (schema=, or bounds= and classes=): otherwise it "
                "would take bounds and categories from the private rows without protection"
            )
        columns = [Numeric(f"x{i}", bounds=tuple(pair)) for i, pair in enumerate(np.asarray(self.bounds, dtype=float))]
        return Schema([*columns, Categorical("label", categories=tuple(np.asarray(self.classes).tolist()))])

    def _work(self, job, inputs, output):
        """Run the worker once; return its answer and the contents of the file that it wrote."""
        job = {**job, "package": self.package, "model": self.model}
        with tempfile.TemporaryDirectory(prefix="skdpgen-peer-") as folder:
            folder = Path(folder)
            (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
            for name, content in inputs.items():
                if isinstance(content, bytes):
                    (folder / name).write_bytes(content)
                else:
                    np.savez(folder / name, **content)
            try:
                done = _run([self._python, "-I", str(WORKER), str(folder)], self.timeout)
            except subprocess.TimeoutExpired:
                raise TimeoutError(
                    f"{self.name} ({self.package}) did not {job['task']} within {self.timeout} s"
                ) from None
            if done.returncode != 0:
                raise RuntimeError(
                    f"{self.name} ({self.package}, {self._python}) failed to {job['task']} with exit code "
                    f"{done.returncode}; the end of its stderr:\n{done.stderr[-_TAIL:]}"
                )
            try:
                answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
                if output.endswith(".npz"):
                    with np.load(folder / output, allow_pickle=False) as arrays:
                        return answer, dict(arrays)
                # opened by the peer's interpreter alone
                return answer, (folder / output).read_bytes()
            except FileNotFoundError as error:
                raise RuntimeError(f"{self.name} ({self.package}) ended without {Path(error.filename).name}") from None


def _run(command, timeout):
    # -I and this environment: nothing of skdpgen's own installation reaches the peer's
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        env=environment,
        check=False,
    )


def _encode(frame, schema):
    """Columns as the worker knows them, and one array of numbers each; names stay here."""
    columns, arrays = [], {}
    absent = [name for name in schema if name not in frame]
    if absent:
        raise ValueError(f"the rows lack the declared columns {', '.join(map(repr, absent))}")
    for index, name in enumerate(schema):
        column, values, key = schema[name], frame[name], f"column_{index}"
        if isinstance(column, Categorical) and column.categories is not None:
            known = pd.Index(column.categories, dtype=object)
            codes = known.get_indexer(pd.Index(values, dtype=object)).astype(np.int64)
            if (codes < 0).any():
                raise ValueError(f"column {name!r} has missing values, or others than its categories")
            columns.append({"name": key, "categories": len(column.categories)})
            arrays[key] = codes
        elif isinstance(column, Numeric) and column.bounds is not None:
            numbers = values.to_numpy(dtype=np.int64 if column.integer else np.float64)
            if not np.isfinite(numbers).all():
                raise ValueError(f"column {name!r} has missing or infinite values")
            lower, upper = column.bounds
            columns.append({"name": key, "lower": lower, "upper": upper})
            arrays[key] = numbers.clip(lower, upper)
        else:
            raise ValueError(f"column {name!r} needs public bounds, or public categories")
    return columns, arrays


def _decode(arrays, schema):
    frame = {}
    for index, name in enumerate(schema):
        column, values = schema[name], np.asarray(arrays[f"column_{index}"], dtype=np.float64)
        if isinstance(column, Categorical):
            frame[name] = np.asarray(column.categories, dtype=object)[values.astype(np.int64)]
        else:
            values = values.clip(*column.bounds)
            frame[name] = np.rint(values).astype(np.int64) if column.integer else values
    return pd.DataFrame(frame)
