from __future__ import annotations

import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from skdpgen import datasets
from skdpgen.benchmark import adult
from skdpgen.benchmark.adult import adult_benchmark, split_rows

CLASSIFIERS = {"logistic": LogisticRegression(max_iter=1000)}


class Memoriser:
    """Stands in for a synthesizer: gives back the rows it saw."""

    def fit(self, frame):
        self.frame_ = frame
        return self

    def sample(self, n_rows):
        return self.frame_.iloc[:n_rows]


@pytest.fixture
def small_table(monkeypatch):
    # breast cancer in Adult's place: the benchmark asks only for frame, schema, target and positive class
    bunch = datasets.load_breast_cancer_table()
    monkeypatch.setattr(adult, "load_adult", lambda data_dir=None: Bunch(**bunch))
    return bunch


def test_rows_are_split_once_and_completely():
    frame = pd.DataFrame({"row": range(100)})
    train, test = split_rows(frame, 0)
    assert len(test) == 10
    assert sorted([*train["row"], *test["row"]]) == list(range(100))
    assert not split_rows(frame, 1)[1].equals(test)


def test_each_seed_gives_one_result_and_the_training_rows_are_the_reference(small_table):
    arguments = {"seeds": (0, 1), "classifiers": CLASSIFIERS}
    results = list(adult_benchmark(lambda **parameters: Memoriser(), **arguments))
    reference = list(adult_benchmark("real", **arguments))
    assert [result["seed"] for result in results] == [0, 1]
    for result, real in zip(results, reference):
        assert result["two_way_tvd"] == 0
        assert result["auroc"] == real["auroc"] > 0.9


def test_development_never_shows_the_test_rows(small_table):
    seen = []

    class Watcher(Memoriser):
        def fit(self, frame):
            seen.append(frame)
            return super().fit(frame)

    _, test = split_rows(small_table.frame, 100)
    next(adult_benchmark(lambda **p: Watcher(), seeds=(100,), development=True, classifiers=CLASSIFIERS))
    train, _ = split_rows(small_table.frame, 100)
    assert len(seen[0]) == len(train) - round(0.1 * len(train))
    merged = seen[0].merge(test, how="inner")
    assert merged.empty


def test_synthesizer_gets_the_budget_and_the_schema_or_none(small_table):
    seen = []

    def make(**parameters):
        seen.append(parameters)
        return Memoriser()

    for declared in (True, False):
        next(adult_benchmark(make, seeds=(0,), epsilon=2.0, learned_schema=not declared, classifiers=CLASSIFIERS))
    assert seen[0]["schema"] is not None
    assert seen[1]["schema"] is None
    assert seen[0]["epsilon"] == 2.0
    assert seen[0]["target"] == "diagnosis"
