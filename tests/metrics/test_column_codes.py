"""Trees get categories as codes, other judges one-hot; and the text of a value is made once for each distinct value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression

from skdpgen.metrics import _samples as samples
from skdpgen.metrics import detection_auroc, tstr_report, tstr_score
from skdpgen.metrics._column_codes import ColumnCodes, takes_codes, with_codes
from skdpgen.metrics._samples import each_distinct, text_of
from skdpgen.report._inputs import align
from skdpgen.tabular import Categorical, Schema


@pytest.mark.parametrize(
    "values",
    [
        [1, 1.0, True, "1", None, False, 0],  # equal, and not the same text
        ["a", None, "b", "a"],
        [np.nan, "x", np.nan],
        pd.array([1, None, 2, 1], dtype="Int64"),
        pd.array([True, None, False], dtype="boolean"),
        pd.array(["a", None, "a"], dtype="string"),
        [1.5, np.nan, 2.0, 1.5],
        pd.Categorical([3, 1, None, 3]),
        pd.to_datetime(["2020-01-02", None, "2020-01-02"]),
        [None, None],
        [],
    ],
    ids=str,
)
@pytest.mark.parametrize("function", [str, text_of])
def test_each_distinct_value_gives_what_each_value_gives(values, function):
    column = pd.Series(values, dtype=object if isinstance(values, list) and not all(
        isinstance(value, float) for value in values) else None)  # fmt: skip
    wanted = [None if pd.isna(value) else function(value) for value in column.astype(object)]
    assert each_distinct(column, function).tolist() == wanted
    assert each_distinct(column, function, missing="-").tolist() == ["-" if v is None else v for v in wanted]


def test_a_text_is_made_once_for_each_distinct_value():
    made = []
    each_distinct(pd.Series(["x", "y"] * 500, dtype="string"), lambda value: made.append(value) or value)
    assert sorted(made) == ["x", "y"]


def test_a_report_aligns_numbers_truth_values_and_text_as_before():
    real = pd.DataFrame({"a": ["1", "2", None], "b": pd.array([True, None, False], dtype="boolean")})
    synthetic = pd.DataFrame({"a": [1.0, np.nan, 2.0], "b": ["True", "False", None]})
    real, synthetic = align(real, synthetic)
    assert real["a"].tolist() == ["1", "2", None]
    assert synthetic["a"].tolist() == ["1", None, "2"]
    assert real["b"].tolist() == ["True", None, "False"]
    assert real["b"].dtype == object


def test_codes_are_those_of_the_commonest_and_others_share_one(monkeypatch):
    monkeypatch.setattr("skdpgen.metrics._column_codes.MOST_LEVELS", 2)
    frame = pd.DataFrame({"job": list("aaabbcd") + [None], "age": [1, 2, 3, 4, 5, 6, np.inf, np.nan]})
    codes = ColumnCodes(frame)
    assert codes.categorical.tolist() == [True, False]
    job, age = codes(frame).T
    assert job[:-1].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert np.isnan(job[-1])
    assert age[:6].tolist() == [1, 2, 3, 4, 5, 6]
    assert np.isnan(age[6:]).all()
    assert codes(pd.DataFrame({"age": [1.0], "job": ["new"]})).tolist() == [[3, 1]]


def test_a_schema_says_which_numbers_are_categories():
    frame = pd.DataFrame({"code": [7, 9, 7]})
    assert not ColumnCodes(frame).categorical.any()
    schema = Schema([Categorical("code", categories=(7, 9))])
    assert ColumnCodes(frame, schema)(frame).tolist() == [[0], [1], [0]]


def test_boosting_takes_codes_unless_it_was_told_its_categories():
    assert takes_codes(HistGradientBoostingClassifier())
    assert takes_codes(HistGradientBoostingRegressor())
    assert not takes_codes(HistGradientBoostingClassifier(categorical_features=[0]))
    assert not takes_codes(HistGradientBoostingClassifier(categorical_features=None))
    assert not takes_codes(LogisticRegression())
    given = HistGradientBoostingClassifier()
    assert with_codes(given, ColumnCodes(pd.DataFrame({"a": ["x"]}))).categorical_features.tolist() == [True]
    assert given.categorical_features == "from_dtype"


@pytest.fixture
def frames(rng):
    """Real, alike and shifted rows, whose target follows a category of many levels."""

    def draw(n, shift=0):
        town = rng.integers(0, 60, n)
        ill = (town % 2 == 0) ^ (rng.random(n) < 0.1)
        town = np.array([f"town {k + shift}" for k in town], dtype=object)
        return pd.DataFrame({"town": town, "age": rng.integers(20, 80, n), "ill": np.where(ill, "yes", "no")})

    return draw(900), draw(900), draw(900, shift=30)


def test_detection_sees_categories_that_the_real_rows_lack(frames):
    real, alike, shifted = frames
    assert abs(detection_auroc(real, alike) - 0.5) < 0.08
    assert detection_auroc(real, shifted) > 0.7
    assert detection_auroc(real, shifted, classifier=LogisticRegression(max_iter=500)) > 0.7


def test_boosting_predicts_from_categories_as_well_as_from_one_hot_columns(frames):
    train, test, _ = frames
    judges = {"trees": HistGradientBoostingClassifier(random_state=0), "linear": LogisticRegression(max_iter=500)}
    report = tstr_report(train, test, target="ill", classifiers=judges)
    assert report["trees"]["score"] > 0.8
    assert report["linear"]["score"] > 0.8
    assert tstr_score(train, test, target="ill") == report["trees"]["score"]


def test_rows_are_encoded_once_for_all_judges_that_take_them_alike(frames, monkeypatch):
    train, test, _ = frames
    encoded = []
    original = samples.to_numbers
    monkeypatch.setattr("skdpgen.metrics._tstr.to_numbers", lambda *a, **k: encoded.append(1) or original(*a, **k))
    judges = {name: LogisticRegression(C=c, max_iter=300) for name, c in (("weak", 0.1), ("strong", 1.0))}
    tstr_report(train, {"one": test, "two": test}, target="ill", classifiers=judges)
    assert len(encoded) == 4  # learned, then train, and each test
