"""Judges of other projects: what they are given, what is told of their answer, and how a failure is said."""

from __future__ import annotations

import json
import sys
import tempfile
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from benchmarks import judges
from benchmarks.judges import judge, judge_benchmark, worker
from benchmarks.registry import BENCHMARKS
from skdpgen import datasets
from skdpgen.tabular import Categorical, Numeric, Schema

SCHEMA = Schema(
    [Numeric("age", (17, 90), integer=True), Categorical("town", ("São Paulo", "Ulm")), Numeric("w", (0, 1))]
)
ANSWER = {
    "quality": 0.9,
    "singling_out": 0.1,
    "linkability": 0.2,
    "inference": 0.3,
    "attacks": {"inference": {"column_0": {"risk": 0.1}, "column_1": {"risk": 0.2}, "column_2": {"risk": 0.3}}},
}
# In the worker's place: leaves a trace of what it was given.
SCRIPT = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
(pathlib.Path(__file__).parent / "job.json").write_bytes((folder / "job.json").read_bytes())
(folder / "answer.json").write_text(ANSWER)
"""


def _frame(n_rows=60, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"age": rng.integers(17, 91, n_rows), "town": rng.choice(["São Paulo", "Ulm"], n_rows), "w": rng.random(n_rows)}
    )


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Put a script in the worker's place, run by this interpreter as if the judges were installed for it."""
    (tmp_path / "folders").mkdir()
    monkeypatch.setattr(judges, "WORKER", tmp_path / "worker.py")
    monkeypatch.setattr(judges, "find_interpreter", lambda package, python: python or sys.executable)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "folders"))

    def write(text):
        (tmp_path / "worker.py").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def test_the_judges_get_codes_and_their_answer_names_the_columns(script):
    home = script(SCRIPT.replace("ANSWER", repr(json.dumps(ANSWER))))
    judged = judge(_frame(), _frame(50, 1), _frame(40, 2), SCHEMA, seed=3)
    job = json.loads((home / "job.json").read_text())
    assert (job["seed"], job["attacks"]) == (3, 40)  # no more attacks than rows
    assert [column.get("categories") for column in job["columns"]] == [None, 2, None]
    assert "Ulm" not in json.dumps(job)
    assert list(judged["attacks"]["inference"]) == ["age", "town", "w"]
    assert not list((home / "folders").iterdir())


def test_a_judge_that_fails_is_told_with_the_end_of_what_it_wrote(script):
    script("import sys; sys.exit('no column to judge')")
    with pytest.raises(RuntimeError, match=r"the judges .* failed[^$]*no column to judge"):
        judge(_frame(), _frame(), _frame(), SCHEMA)


def test_halves_are_fitted_and_kept_as_control(script, monkeypatch):
    home = script(SCRIPT.replace("ANSWER", repr(json.dumps(ANSWER))))
    seen = []

    def judged(real, synthetic, control, schema, **options):
        seen.append((real, synthetic, control))
        return dict(ANSWER)

    monkeypatch.setattr(judges, "judge", judged)
    bunch = Bunch(frame=_frame(80), schema=SCHEMA, target="town")
    monkeypatch.setattr(datasets, "load_adult", lambda data: bunch)
    results = list(judge_benchmark(models=("real data", "MomentSynthesizer"), seeds=(0,), epsilon=50.0))
    assert [result["model"] for result in results] == ["real data", "MomentSynthesizer"]
    assert results[0]["epsilon"] is None
    assert results[1]["epsilon"] == pytest.approx(50.0)
    (real, synthetic, control), (again, drawn, _) = seen
    assert len(real) == len(control) == 40
    assert not set(map(tuple, real.to_numpy())) & set(map(tuple, control.to_numpy()))
    assert synthetic.equals(real)  # what a release of the rows themselves would risk
    assert again is real
    assert list(drawn) == list(SCHEMA)
    assert home.exists()


def _risks_by(attack, control):
    """Stand-ins of Anonymeter whose attacks succeed at these rates; they keep what they are given."""
    given = []

    class Evaluator:
        def __init__(self, **options):
            given.append((type(self).__name__, options))

        def evaluate(self, **options):
            return self

        def risk(self, confidence_level):
            return SimpleNamespace(value=(attack - control) / (1 - control), ci=(0.0, 0.4))

        def results(self, confidence_level):
            rates = {"attack_rate": attack, "control_rate": control, "baseline_rate": 0.1}
            return SimpleNamespace(**{name: SimpleNamespace(value=rate) for name, rate in rates.items()})

    names = ("InferenceEvaluator", "LinkabilityEvaluator", "SinglingOutEvaluator")
    module = ModuleType("anonymeter.evaluators")
    for name in names:
        setattr(module, name, type(name, (Evaluator,), {}))
    return module, given


def test_each_column_is_inferred_from_all_others_and_risks_are_beyond_the_control(monkeypatch):
    module, given = _risks_by(0.6, 0.5)
    monkeypatch.setitem(sys.modules, "anonymeter", ModuleType("anonymeter"))
    monkeypatch.setitem(sys.modules, "anonymeter.evaluators", module)
    columns = [{"name": "column_0"}, {"name": "column_1", "categories": 2}, {"name": "column_2"}]
    frame = pd.DataFrame({column["name"]: [0, 1] for column in columns})
    found = worker.risks(frame, frame, frame, {"columns": columns, "attacks": 2, "seed": 0})
    found = [found[name] for name in ("singling_out", "linkability", "inference", "inference_worst")]
    assert found == pytest.approx([0.2] * 4)
    secrets = {options["secret"]: options for name, options in given if name == "InferenceEvaluator"}
    assert sorted(secrets["column_1"]["aux_cols"]) == ["column_0", "column_2"]
    assert (secrets["column_0"]["regression"], secrets["column_1"]["regression"]) == (True, False)
    (linked,) = (options["aux_cols"] for name, options in given if name == "LinkabilityEvaluator")
    assert not set(linked[0]) & set(linked[1])


def test_the_benchmark_is_known():
    benchmark = BENCHMARKS["judges"]
    assert benchmark.function() is judge_benchmark
    assert {"quality", "singling_out", "linkability", "inference"} <= set(benchmark.figures)
