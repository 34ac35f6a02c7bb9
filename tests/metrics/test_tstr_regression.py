from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, Ridge

from skdpgen.exceptions import InvalidInputError
from skdpgen.metrics import protocol_regressors, tstr_regression


@pytest.fixture(scope="module")
def frame():
    return load_diabetes(as_frame=True).frame.sample(frac=1, random_state=0, ignore_index=True)


def test_regressors_find_the_signal_of_real_rows_and_none_in_shuffled_targets(frame):
    train, test = frame.iloc[:300], frame.iloc[300:]
    report = tstr_regression(train, test, target="target")
    assert set(report) == set(protocol_regressors())
    assert all(scores["r2"] > 0.3 and 30 < scores["mae"] < 60 for scores in report.values())
    shuffled = train.assign(target=np.random.default_rng(0).permutation(train["target"]))
    assert all(scores["r2"] < 0.1 for scores in tstr_regression(shuffled, test, target="target").values())


def test_errors_are_in_units_of_the_target_and_relative_to_its_mean(frame):
    train, test = frame.iloc[:300], frame.iloc[300:]
    y = test["target"].to_numpy()
    constant = tstr_regression(train, test, target="target", regressors=DummyRegressor(strategy="constant", constant=0))
    assert constant["DummyRegressor"]["mae"] == pytest.approx(y.mean())
    assert constant["DummyRegressor"]["r2"] == pytest.approx(1 - np.mean(y**2) / y.var())
    linear = LinearRegression().fit(train.drop(columns="target"), train["target"])
    found = tstr_regression(train, test, target="target", regressors=[LinearRegression(), Ridge()])
    assert found["LinearRegression"]["r2"] == pytest.approx(linear.score(test.drop(columns="target"), y))
    pairs = [(rows.drop(columns="target"), rows["target"].to_numpy()) for rows in (train, test)]
    again = tstr_regression(*pairs, regressors={"a": LinearRegression()})["a"]
    assert again["r2"] == pytest.approx(found["LinearRegression"]["r2"])


def test_rows_without_the_target_are_left_out_and_several_tests_share_one_training(frame):
    train, test = frame.iloc[:200].copy(), frame.iloc[200:].copy()
    train["sex"] = np.where(train["sex"] > 0, "f", "m")
    test["sex"] = np.where(test["sex"] > 0, "f", "other")
    tests = {"whole": test, "half": test.iloc[:100]}
    expected = tstr_regression(train, tests, target="target", regressors={"ridge": Ridge()})
    more = train.iloc[:40].assign(target=np.inf)
    gaps = {name: pd.concat([rows, rows.iloc[:9].assign(target=np.nan)]) for name, rows in tests.items()}
    assert tstr_regression(pd.concat([train, more]), gaps, target="target", regressors={"ridge": Ridge()}) == expected
    with pytest.raises(ValueError, match="must be present"):
        tstr_regression(more, test, target="target")
    with pytest.raises(InvalidInputError, match="numbers"):
        tstr_regression(train, test.assign(target="high"), target="target")
