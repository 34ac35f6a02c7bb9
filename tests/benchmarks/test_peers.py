from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from benchmarks.peers import AIM, DPCTGAN, PATECTGAN, PEERS, PYTHON_VARIABLE, adapter, find_peer, worker
from benchmarks.tables import table_benchmark
from skdpgen import datasets
from skdpgen.tabular import Categorical, Numeric, Schema

SCHEMA = Schema(
    [
        Numeric("age", (17, 90), integer=True),
        Numeric("weight", (0.0, 1.0)),
        Categorical("city, or none", categories=("São Paulo", '"Ulm"', "nan")),
        Categorical("label", categories=(1, 2)),
    ]
)
# In the worker's place: gives the rows back that it saw, and leaves a trace of what it was given.
ECHO = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
job = json.loads((folder / "job.json").read_text())
here = pathlib.Path(__file__).parent
(here / (job["task"] + ".json")).write_text(json.dumps({"folder": str(folder), "path": sys.path, **job}))
source, made = {"fit": ("table.npz", "model.pkl"), "sample": ("model.pkl", "table.npz")}[job["task"]]
(folder / made).write_bytes((folder / source).read_bytes())
(folder / "answer.json").write_text(json.dumps({"seconds": 0.5, "versions": {"peer": "1.2"}}))
"""


def _frame(n_rows=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(17, 91, n_rows),
            "weight": rng.random(n_rows),
            "city, or none": rng.choice(["São Paulo", '"Ulm"', "nan"], n_rows),
            "label": rng.choice([1, 2], n_rows),
        }
    )


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Put a script in the worker's place, run by this interpreter as if the peers were installed for it."""
    home, folders = tmp_path / "home", tmp_path / "folders"
    home.mkdir()
    folders.mkdir()
    monkeypatch.setattr(adapter, "WORKER", home / "worker.py")
    monkeypatch.setattr(adapter, "find_interpreter", lambda package, python: python or sys.executable)
    monkeypatch.setattr(tempfile, "tempdir", str(folders))

    def write(text):
        (home / "worker.py").write_text(text, encoding="utf-8")
        return home

    write.folders = folders
    return write


def test_rows_come_back_as_they_were_given_to_a_worker_that_echoes_them(script):
    script(ECHO)
    frame = _frame()
    drawn = AIM(schema=SCHEMA).fit(frame).sample(len(frame))
    pd.testing.assert_frame_equal(drawn, frame, check_dtype=False)
    assert drawn["age"].dtype == np.int64
    assert drawn["label"].tolist() == frame["label"].tolist()


def test_a_table_of_numbers_comes_back_as_arrays(script):
    script(ECHO)
    rng = np.random.default_rng(0)
    X, y = rng.random((30, 3)), rng.choice(["yes", "no"], 30)
    drawn_X, drawn_y = AIM(bounds=[(0, 1)] * 3, classes=["yes", "no"]).fit(X, y).sample(30)
    assert np.array_equal(drawn_X, X)
    assert drawn_y.tolist() == y.tolist()


def test_worker_is_told_the_budget_and_the_public_facts_and_no_name_or_category(script):
    home = script(ECHO)
    AIM(epsilon=2, delta=1e-6, schema=SCHEMA).fit(_frame())
    job = json.loads((home / "fit.json").read_text())
    assert (job["package"], job["model"], job["epsilon"], job["delta"]) == ("dpmm", "AIM", 2.0, 1e-6)
    assert [column.get("categories") for column in job["columns"]] == [None, None, 3, 2]
    assert (job["columns"][0]["lower"], job["columns"][0]["upper"]) == (17, 90)
    assert "Ulm" not in json.dumps(job)
    assert not any("skdpgen" in path for path in job["path"])


def test_no_data_are_left_behind_whether_a_peer_works_or_fails(script):
    home = script(ECHO)
    AIM(schema=SCHEMA).fit(_frame()).sample(40)
    folder = Path(json.loads((home / "fit.json").read_text())["folder"])
    assert folder.parent == script.folders
    script("raise SystemExit(3)")
    with pytest.raises(RuntimeError):
        AIM(schema=SCHEMA).fit(_frame())
    script("import time; time.sleep(30)")
    with pytest.raises(TimeoutError):
        AIM(schema=SCHEMA, timeout=0.5).fit(_frame())
    assert list(script.folders.iterdir()) == []


def test_a_failing_peer_shows_its_exit_code_and_the_end_of_its_stderr(script):
    script("import sys; sys.stderr.write('x' * 9000 + ' no such model'); sys.exit(7)")
    with pytest.raises(RuntimeError, match=r"exit code 7[\s\S]*no such model$") as caught:
        AIM(schema=SCHEMA).fit(_frame())
    assert len(str(caught.value)) < 2500


def test_a_peer_that_ends_without_an_answer_or_with_too_few_rows_is_an_error(script):
    script("")
    with pytest.raises(RuntimeError, match="ended without answer"):
        AIM(schema=SCHEMA).fit(_frame())
    script(ECHO)
    with pytest.raises(RuntimeError, match="gave 40 rows where 50"):
        AIM(schema=SCHEMA).fit(_frame()).sample(50)


def test_a_time_out_names_the_peer_and_the_seconds(script):
    script("import time; time.sleep(30)")
    with pytest.raises(TimeoutError, match=r"AIM \(dpmm\) did not fit within 0.2 s"):
        AIM(schema=SCHEMA, timeout=0.2).fit(_frame())


def test_sampling_before_fitting_is_refused():
    with pytest.raises(ValueError, match="call fit first"):
        AIM(schema=SCHEMA).sample(1)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("weight", np.nan, "missing or infinite"), ("city, or none", "Rome", "its categories")],
)
def test_a_missing_or_an_unknown_value_is_refused(script, column, value, message):
    script("raise SystemExit(1)")
    frame = _frame()
    frame.loc[3, column] = value
    with pytest.raises(ValueError, match=message):
        AIM(schema=SCHEMA).fit(frame)


def test_rows_without_a_declared_column_are_refused():
    with pytest.raises(ValueError, match="lack the declared columns 'age', 'label'"):
        AIM(schema=SCHEMA).fit(_frame().drop(columns=["age", "label"]))


def test_a_peer_without_the_public_schema_is_refused():
    with pytest.raises(ValueError, match="without protection"):
        AIM().fit(_frame())
    with pytest.raises(ValueError, match="'age' needs public bounds"):
        AIM(schema=Schema([Numeric("age"), Categorical("label", categories=(1, 2))])).fit(_frame())


def test_interpreter_that_is_not_named_or_not_there_or_without_the_package_is_an_error(monkeypatch, tmp_path):
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match=f"--peer-python.*{PYTHON_VARIABLE}"):
        AIM(schema=SCHEMA).fit(_frame())
    missing = str(tmp_path / "python")
    with pytest.raises(FileNotFoundError, match="cannot be run"):
        AIM(schema=SCHEMA, python=missing).fit(_frame())
    with pytest.raises(ModuleNotFoundError, match="no-such-peer is installed for none of"):
        adapter.find_interpreter("no-such-peer", sys.executable)
    monkeypatch.setenv(PYTHON_VARIABLE, os.pathsep.join([sys.executable, missing]))
    assert adapter.find_interpreter("numpy") == sys.executable
    with pytest.raises(FileNotFoundError, match=f"{PYTHON_VARIABLE} names"):
        adapter.find_interpreter("no-such-peer")


def test_a_program_that_is_no_interpreter_is_an_error(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    program.chmod(0o700)
    with pytest.raises(RuntimeError, match=r"not a Python interpreter that works:\nbroken"):
        adapter.find_interpreter("numpy", program)


def test_the_package_and_the_adapters_import_no_peer():
    code = (
        "import sys, skdpgen, benchmarks.registry, benchmarks.tables, benchmarks.peers as peers;"
        "bad = {'dpmm', 'snsynth', 'opacus', 'mbi', 'benchmarks.peers.worker'} & set(sys.modules);"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_peer_says_what_it_takes_uncharged():
    assert list(PEERS) == ["AIM", "MST", "PrivBayes", "DP-CTGAN", "PATE-CTGAN"]
    for name, peer in PEERS.items():
        assert peer.name == name
        assert peer.uncharged
        assert all(isinstance(text, str) and len(text) > 20 for text in peer.uncharged)
    assert find_peer("P3GMSynthesizer") is None


def test_a_peer_stands_in_the_table_with_versions_and_what_it_takes_uncharged(script, monkeypatch):
    script(ECHO)
    bunch = datasets.load_breast_cancer_table()
    size = np.where(bunch.frame["mean radius"] > 15, "large", "small").astype(object)
    bunch.frame.insert(0, "size", size)
    bunch.schema = Schema([Categorical("size", ("large", "small")), *bunch.schema.columns])
    monkeypatch.setattr(datasets, "load_adult", lambda data_dir=None: Bunch(**bunch))
    (result,) = table_benchmark(
        "adult",
        ["DP-CTGAN"],
        seeds=(0,),
        classifiers={"logistic": LogisticRegression(max_iter=1000)},
        peer_python=sys.executable,
    )
    assert result["model"] == "DP-CTGAN"
    assert result["two_way_tvd"] == 0
    assert result["auroc"] > 0.9
    assert result["epsilon"] is None
    assert result["peer"]["unpaid"] == list(DPCTGAN.uncharged)
    assert result["peer"]["fit"]["versions"] == {"peer": "1.2"}
    json.dumps(result["peer"])


def test_the_peak_memory_of_a_peer_is_not_that_of_the_process_that_started_it():
    if not Path("/proc/self/status").exists():
        pytest.skip("apart from the parent's on Linux alone")
    code = "import importlib.util as u, sys; s = u.spec_from_file_location('worker', sys.argv[1]);"
    code += "m = u.module_from_spec(s); s.loader.exec_module(m); print(m.peak_mib())"
    block = bytearray(400 << 20)
    done = subprocess.run([sys.executable, "-c", code, str(adapter.WORKER)], capture_output=True, text=True, check=True)
    del block
    assert 10 < float(done.stdout) < 300


class Pipeline:
    """Stands in for a peer: keeps what it is given, and gives the rows back."""

    def __init__(self, **parameters):
        self.parameters = parameters

    def fit(self, frame, **public):
        self.frame, self.public = frame, public
        self.epsilon_list = [0.9, 1.04]

    def generate(self, n_records):
        return self.frame.head(n_records)

    sample = generate


class Transformer:
    def __init__(self, **parameters):
        self.parameters, self.seen = parameters, None

    def fit(self, values):
        self.seen = values


@pytest.fixture
def peers(monkeypatch):
    """Modules of the peers' names, in which every synthesizer is a `Pipeline`."""
    nn, transform = ModuleType("snsynth.pytorch.nn"), ModuleType("snsynth.transform")
    nn.DPCTGAN = nn.PATECTGAN = Pipeline
    transform.MinMaxTransformer = transform.OneHotEncoder = Transformer
    transform.TableTransformer = list
    dpmm = ModuleType("dpmm")
    dpmm.pipelines = SimpleNamespace(AIMPipeline=Pipeline)
    for module in (nn, transform, dpmm, ModuleType("snsynth"), ModuleType("snsynth.pytorch")):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(worker, "version", lambda name: f"{name} 1.0")


def _work(tmp_path, peer, n_rows=10):
    """Run both jobs of the real worker in this process; return the fitted peer, the answer and the rows."""
    columns, arrays = adapter._encode(_frame(), SCHEMA)
    job = {"package": peer.package, "model": peer.model, "settings": peer.settings, "columns": columns}
    np.savez(tmp_path / "table.npz", **arrays)
    (tmp_path / "job.json").write_text(json.dumps({"task": "fit", "epsilon": 2.0, "delta": 1e-5, **job}))
    worker.run(tmp_path)
    model = pickle.loads((tmp_path / "model.pkl").read_bytes())
    answer = json.loads((tmp_path / "answer.json").read_text())
    (tmp_path / "job.json").write_text(json.dumps({"task": "sample", "n_rows": n_rows, **job}))
    worker.run(tmp_path)
    with np.load(tmp_path / "table.npz") as arrays:
        return model, answer, adapter._decode(dict(arrays), SCHEMA)


def test_dpmm_gets_the_public_domain_and_bins_and_model_together_cost_the_budget(tmp_path, peers):
    model, answer, rows = _work(tmp_path, AIM)
    assert answer["peak_mib"] > 10
    assert model.parameters["epsilon"] + model.parameters["proc_epsilon"] == pytest.approx(2.0)
    assert model.parameters["proc_epsilon"] == pytest.approx(0.2)
    assert model.parameters["delta"] == 1e-5
    assert model.parameters["max_model_size"] == 80
    assert list(model.public["domain"].values()) == [
        {"lower": 17, "upper": 90},
        {"lower": 0.0, "upper": 1.0},
        {"categories": ["0", "1", "2"]},
        {"categories": ["0", "1"]},
    ]
    assert all(isinstance(code, str) for code in model.frame["column_2"])
    assert answer["versions"]["dpmm"] == "dpmm 1.0"
    assert answer["told"] == {"epsilon_model": 1.8, "epsilon_bins": 0.2}
    pd.testing.assert_frame_equal(rows, _frame().head(10), check_dtype=False)


@pytest.mark.parametrize("peer", [DPCTGAN, PATECTGAN])
def test_smartnoise_gets_a_transformer_that_saw_public_values_alone(tmp_path, peers, peer):
    model, answer, rows = _work(tmp_path, peer)
    assert (model.parameters["epsilon"], model.parameters["delta"]) == (2.0, 1e-5)
    transformers = model.public["transformer"]
    assert [transformer.seen for transformer in transformers] == [[17, 90], [0.0, 1.0], [0, 1, 2], [0, 1]]
    assert transformers[0].parameters == {"lower": 17, "upper": 90}
    assert answer["told"] == {"epsilon_spent": 1.04}
    pd.testing.assert_frame_equal(rows, _frame().head(10), check_dtype=False)
