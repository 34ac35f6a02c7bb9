from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.utils import Bunch

from benchmarks import BENCHMARKS, development, regression
from benchmarks.models import REAL
from benchmarks.regression import regression_benchmark
from skdpgen.tabular import Boolean, Numeric, Schema

REGRESSORS = {"ridge": Ridge(), "weak": Ridge(1e6)}


class Memoriser:
    """Stands in for a synthesizer: gives back the rows it saw."""

    def fit(self, frame):
        self.rows_ = frame
        return self

    def sample(self, n_rows):
        return self.rows_.iloc[:n_rows]


@pytest.fixture
def small_table(monkeypatch):
    frame = load_diabetes(as_frame=True).frame.assign(sex=lambda rows: rows["sex"] > 0)
    bounds = {name: (float(frame[name].min()), float(frame[name].max())) for name in frame if name != "sex"}
    schema = Schema([Boolean("sex"), *(Numeric(name, pair) for name, pair in bounds.items())])

    def loaded(name, as_number):
        assert as_number
        return Bunch(frame=frame, schema=schema.select(list(frame)), target="target", positive=None)

    monkeypatch.setattr(regression, "development_table", loaded)


@pytest.mark.parametrize("learned", [False, True])
def test_regressors_are_trained_on_samples_and_tested_on_real_rows(small_table, learned):
    asked = []

    def model(**parameters):
        asked.append(parameters)
        return Memoriser()

    options = {"seeds": (0, 1), "regressors": REGRESSORS, "learned_schema": learned, "rows": 300}
    results = list(regression_benchmark("diamonds", [model, REAL], **options))
    assert [(result["seed"], result["model"]) for result in results] == [
        (seed, name) for seed in (0, 1) for name in ("Memoriser", REAL)
    ]
    assert (asked[0]["schema"] is None) == learned
    for mine, real in zip(results[::2], results[1::2]):
        assert mine["two_way_tvd"] == 0
        assert mine["rows"] == 300
        assert mine["regressors"] == real["regressors"]
        assert mine["regressors"]["ridge"]["r2"] > 0.25 > mine["regressors"]["weak"]["r2"]
        assert mine["r2"] == np.mean([of["r2"] for of in mine["regressors"].values()])
        assert 30 < mine["mae"] < 80


def test_development_reads_no_test_rows(small_table):
    (result,) = regression_benchmark(models=[REAL], seeds=(0,), regressors=REGRESSORS, development=True)
    assert result["rows"] == 358  # nine tenths of nine tenths of 442


def test_it_can_be_asked_for_by_its_name():
    benchmark = BENCHMARKS["regression"]
    assert benchmark.function() is regression_benchmark
    assert {"r2", "mae"} <= set(benchmark.figures)
    assert REAL in benchmark.models()


def test_a_table_of_classes_has_no_numeric_target():
    with pytest.raises(ValueError, match="hotels and diamonds"):
        development.development_table("churn", as_number=True)
