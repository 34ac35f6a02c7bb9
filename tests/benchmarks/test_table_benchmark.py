from __future__ import annotations

import functools
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from benchmarks.models import CLASSIFIER, REAL
from benchmarks.tables import split_rows, table_benchmark
from skdpgen import datasets, nn
from skdpgen.tabular import Categorical, Schema

CLASSIFIERS = {"logistic": LogisticRegression(max_iter=1000)}


class Memoriser:
    """Stands in for a synthesizer: gives back the rows it saw."""

    def fit(self, X, y=None):
        self.rows_ = X, y
        return self

    def sample(self, n_rows):
        X, y = self.rows_
        return X.iloc[:n_rows] if y is None else (X[:n_rows], y[:n_rows])


@pytest.fixture(params=["numbers", "mixed"])
def small_table(monkeypatch, request):
    # breast cancer in Adult's place: the benchmark asks only for frame, schema, target and positive class
    bunch = datasets.load_breast_cancer_table()
    if request.param == "mixed":
        size = np.where(bunch.frame["mean radius"] > 15, "large", "small").astype(object)
        bunch.frame.insert(0, "size", size)
        bunch.schema = Schema([Categorical("size", ("large", "small")), *bunch.schema.columns])
    bunch.extra = bunch.frame.head(100)
    monkeypatch.setattr(datasets, "load_adult", lambda data_dir=None: Bunch(**bunch))
    return bunch


def test_rows_are_split_once_and_completely():
    frame = pd.DataFrame({"row": range(100)})
    train, test = split_rows(frame, 0)
    assert len(test) == 10
    assert sorted([*train["row"], *test["row"]]) == list(range(100))
    assert not split_rows(frame, 1)[1].equals(test)


def test_each_seed_and_model_gives_one_result_and_the_training_rows_are_the_reference(small_table):
    models = [lambda **parameters: Memoriser(), REAL]
    results = list(table_benchmark("adult", models, seeds=(0, 1), classifiers=CLASSIFIERS))
    assert [(result["seed"], result["model"]) for result in results] == [
        (seed, model) for seed in (0, 1) for model in ("Memoriser", REAL)
    ]
    for result, real in zip(results[::2], results[1::2]):
        assert result["two_way_tvd"] == 0
        assert result["auroc"] == real["auroc"] > 0.9
        assert result["auroc_extra"] == real["auroc_extra"] > 0.9


@pytest.fixture
def few_steps(monkeypatch):
    """The classifier of DP-SGD at its defaults, but for the number of its steps."""
    monkeypatch.setattr(nn, "DPNetClassifier", functools.partial(nn.DPNetClassifier, steps=60))


def test_a_classifier_trained_by_dp_sgd_is_judged_itself(small_table, few_steps):
    (result,) = table_benchmark("adult", [CLASSIFIER], seeds=(0,), epsilon=50.0, classifiers=CLASSIFIERS)
    assert (result["model"], result["epsilon_asked"]) == (CLASSIFIER, 50.0)
    assert 49 < result["epsilon"] <= 50
    assert result["auroc"] == result["classifiers"]["dp_sgd"]["auroc"] > 0.8
    assert result["auroc_extra"] > 0.8
    assert "two_way_tvd" not in result
    if "size" in small_table.frame:
        with pytest.raises(ValueError, match="needs the schema"):
            next(table_benchmark("adult", [CLASSIFIER], seeds=(0,), learned_schema=True))
    else:
        (learned,) = table_benchmark("adult", [CLASSIFIER], seeds=(0,), epsilon=50.0, learned_schema=True)
        assert learned["auroc"] > 0.6


def test_development_never_shows_the_test_rows(small_table):
    seen = []

    class Watcher(Memoriser):
        def fit(self, X, y=None):
            seen.append(np.asarray(X))
            return super().fit(X, y)

    _, test = split_rows(small_table.frame, 100)
    (result,) = table_benchmark(
        "adult", [lambda **p: Watcher()], seeds=(100,), development=True, classifiers=CLASSIFIERS
    )
    train, _ = split_rows(small_table.frame, 100)
    assert len(seen[0]) == len(train) - round(0.1 * len(train))
    columns = small_table.frame.columns.get_indexer(["mean area", "worst area"]) - small_table.frame.shape[1]
    hidden = set(map(tuple, test[["mean area", "worst area"]].to_numpy()))
    ends = columns if seen[0].shape[1] == small_table.frame.shape[1] else columns + 1
    assert not hidden & set(map(tuple, seen[0][:, ends].astype(float)))
    assert "auroc_extra" not in result


def test_synthesizer_gets_the_budget_and_what_is_public_or_nothing(small_table):
    seen = []

    def make(**parameters):
        seen.append(parameters)
        return Memoriser()

    for declared in (True, False):
        options = {"learned_schema": not declared, "classifiers": CLASSIFIERS}
        next(table_benchmark("adult", [make], seeds=(0,), epsilon=2.0, **options))
    declared, learned = seen
    assert declared["epsilon"] == 2.0
    if "target" in declared:
        assert declared["target"] == "diagnosis"
        assert declared["schema"] is not None
        assert learned["schema"] is None
    else:
        assert declared["bounds"].shape == (30, 2)
        assert declared["classes"] == ["malignant", "benign"]
        assert set(learned) == {"epsilon", "delta"}


def test_an_unknown_table_is_refused():
    with pytest.raises(ValueError, match="adult, esr, isolet, credit"):
        next(table_benchmark("census"))


def test_a_missing_package_is_said_before_the_fit(small_table, few_steps, monkeypatch):
    fitted = []
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match="pip install xgboost-cpu"):
        next(table_benchmark("adult", [lambda **parameters: fitted.append(parameters)], seeds=(0,)))
    assert not fitted
    # which needs none of them
    assert list(table_benchmark("adult", [CLASSIFIER], seeds=(0,), epsilon=50.0))
