from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skdpgen.metrics import make_tstr_scorer, protocol_classifiers, tstr_report, tstr_score

CLASSIFIERS = {"logistic": LogisticRegression(), "tree": DecisionTreeClassifier(max_depth=3, random_state=0)}


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    size = rng.normal(size=400)
    kind = rng.choice(["a", "b"], size=400)
    label = np.where(size + (kind == "b") + rng.normal(size=400) > 0, "yes", "no")
    return pd.DataFrame({"size": size, "kind": kind, "label": label})


def test_rows_with_the_signal_score_high_and_shuffled_labels_score_at_chance(frame):
    train, test = frame.iloc[:200], frame.iloc[200:]
    auroc, auprc = tstr_score(train, test, target="label", positive="yes", classifiers=CLASSIFIERS)
    assert auroc > 0.8
    assert auprc > 0.8
    labels = np.random.default_rng(1).permutation(train["label"])
    auroc, _ = tstr_score(train.assign(label=labels), test, target="label", positive="yes", classifiers=CLASSIFIERS)
    assert abs(auroc - 0.5) < 0.15


def test_report_has_every_classifier_and_its_mean_is_the_score(frame):
    arguments = {"target": "label", "positive": "yes", "classifiers": CLASSIFIERS}
    report = tstr_report(frame, frame, **arguments)
    assert set(report) == {"logistic", "tree"}
    auroc, auprc = tstr_score(frame, frame, **arguments)
    assert auroc == np.mean([scores["auroc"] for scores in report.values()])
    assert auprc == np.mean([scores["auprc"] for scores in report.values()])


def test_one_estimator_or_a_list_needs_no_names(frame):
    arguments = {"target": "label", "positive": "yes"}
    tree = CLASSIFIERS["tree"]
    alone = tstr_score(frame, frame, classifiers=tree, **arguments)
    assert alone == tstr_score(frame, frame, classifiers={"tree": tree}, **arguments)
    listed = tstr_report(frame, frame, classifiers=[tree, LogisticRegression(), DecisionTreeClassifier()], **arguments)
    assert list(listed) == ["DecisionTreeClassifier_1", "LogisticRegression", "DecisionTreeClassifier_3"]
    assert listed["DecisionTreeClassifier_1"]["auroc"] == alone[0]


class _Counted(LogisticRegression):
    fits = 0

    def fit(self, X, y):
        type(self).fits += 1
        return super().fit(X, y)


def test_several_tests_share_one_training_and_score_as_each_alone(frame):
    train, tests = frame.iloc[:200], {"early": frame.iloc[200:300], "late": frame.iloc[300:]}
    arguments = {"target": "label", "positive": "yes", "classifiers": {"counted": _Counted()}}
    together = tstr_report(train, tests, **arguments)
    assert _Counted.fits == 1
    assert together == {name: tstr_report(train, rows, **arguments) for name, rows in tests.items()}
    assert together["early"] != together["late"]
    lone = tstr_report(train.assign(label="no"), tests, **arguments)
    assert lone == {
        name: {"counted": {"auroc": 0.5, "auprc": (r["label"] == "yes").mean()}} for name, r in tests.items()
    }
    with pytest.raises(ValueError, match="both classes"):
        tstr_report(train, {**tests, "none": frame.assign(label="no")}, **arguments)
    with pytest.raises(TypeError, match="one test"):
        tstr_score(train, tests, **arguments)


def test_one_class_alone_is_chance_not_an_error(frame):
    auroc, auprc = tstr_score(frame.assign(label="no"), frame, target="label", positive="yes", classifiers=CLASSIFIERS)
    assert auroc == 0.5
    assert auprc == np.mean(frame["label"] == "yes")


def test_unseen_categories_in_the_test_rows_are_ignored(frame):
    synthetic = frame[frame["kind"] == "a"]
    tstr_score(synthetic, frame, target="label", positive="yes", classifiers=CLASSIFIERS)


def test_protocol_has_the_four_classifiers_of_the_paper():
    pytest.importorskip("xgboost")
    assert set(protocol_classifiers()) == {"logistic_regression", "adaboost", "gradient_boosting", "xgboost"}


def test_regressors_are_scored_by_r_squared_or_any_scorer(rng):
    X = rng.normal(size=(300, 2))
    y = X @ [1.0, -2.0] + 0.1 * rng.normal(size=300)
    train, test = (X[:200], y[:200]), (X[200:], y[200:])
    models = {"linear": LinearRegression()}
    expected = LinearRegression().fit(*train).predict(X[200:])
    assert tstr_score(train, test, classifiers=models) == pytest.approx(r2_score(y[200:], expected))
    error = tstr_score(train, test, classifiers=models, scoring="neg_mean_squared_error")
    assert error == pytest.approx(-np.mean((expected - y[200:]) ** 2))
    assert tstr_score(train, test) > 0.8  # gradient boosting, for a target of floats


def test_any_number_of_classes_without_a_positive_one(frame):
    three = frame.assign(label=np.where(frame["size"] > 1, "high", frame["label"]))
    report = tstr_report(three, three, target="label", classifiers={"tree": DecisionTreeClassifier(random_state=0)})
    assert report["tree"]["score"] > 0.9
    assert tstr_score(three, three, target="label", scoring="balanced_accuracy") > 0.8
    one_class = three.assign(label="no")
    expected = (three["label"] == "no").mean()
    assert tstr_score(one_class, three, target="label", classifiers=CLASSIFIERS) == pytest.approx(expected)


def test_whole_numbers_of_very_many_values_lead_to_regressors(rng):
    rows = pd.DataFrame({"size": rng.random(300), "price": rng.integers(0, 10_000, 300)})
    with pytest.raises(ValueError, match="for a quantity use tstr_regression"):
        tstr_score(rows, rows, target="price")
    assert tstr_score(rows, rows, target="price", classifiers=LinearRegression()) <= 1
    grades = rows.assign(price=rows["price"] % 5)
    assert 0 <= tstr_score(grades, grades, target="price") <= 1
    assert tstr_score(rows, rows, target="price", positive=rows["price"][0], classifiers=CLASSIFIERS)


def test_accuracy_where_a_class_is_rare_warns(frame):
    rare = frame.assign(label=np.where(frame["size"] > 1.3, "yes", "no"))
    with pytest.warns(UserWarning, match="always predicts this class"):
        score = tstr_score(rare.assign(label="no"), rare, target="label", classifiers=CLASSIFIERS)
    assert score > 0.8
    given = {"target": "label", "classifiers": CLASSIFIERS}
    for how in ({"positive": "yes"}, {"scoring": "balanced_accuracy"}):  # without a warning
        tstr_score(rare, rare, **given, **how)
    tstr_score(rare, frame, **given)
    numbers = rare.assign(label=(rare["label"] == "yes").astype(float))
    tstr_score(numbers, numbers, target="label", classifiers=LinearRegression())
    with pytest.warns(UserWarning, match="always predicts this class"):
        tstr_report(rare, {"one": frame, "other": rare}, **given)


def test_classifiers_without_probabilities_are_scored_by_their_decisions(frame):
    auroc, _ = tstr_score(frame, frame, target="label", positive="yes", classifiers={"svc": LinearSVC()})
    assert auroc > 0.8


def test_missing_values_dates_and_nullable_dtypes_are_features(frame):
    frame = frame.assign(
        size=pd.array(frame["size"], dtype="Float64"),
        when=pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(400), unit="D"),
        kind=frame["kind"].astype("string"),
        flag=pd.array(frame["size"] > 0, dtype="boolean"),
    )
    frame.loc[::5, ["size", "kind", "flag", "when"]] = pd.NA
    auroc, _ = tstr_score(frame, frame, target="label", positive="yes", classifiers=CLASSIFIERS)
    assert auroc > 0.7


def test_what_to_predict_must_be_said(frame):
    with pytest.raises(ValueError, match="target="):
        tstr_score(frame, frame)
    with pytest.raises(ValueError, match="not a column"):
        tstr_score(frame, frame, target="nothing")
    with pytest.raises(ValueError, match="pair"):
        tstr_score((frame[["size"]], frame["label"]), (frame[["size"]], frame["label"]), target="label")
    for wrong in (LogisticRegression, "logistic", {"logistic": None}):
        with pytest.raises(TypeError, match="must be estimators"):
            tstr_report(frame, frame, target="label", classifiers=wrong)
    with pytest.raises(ValueError, match="no estimator"):
        tstr_report(frame, frame, target="label", classifiers=[])
    with pytest.raises(ValueError, match="both classes"):
        tstr_score(frame, frame.assign(label="no"), target="label", positive="yes", classifiers=CLASSIFIERS)


class _Copy(BaseEstimator):
    """Samples the rows that it was fitted on, with labels that are right with probability `quality`."""

    def __init__(self, quality=1.0, target=None):
        self.quality, self.target = quality, target

    def fit(self, X, y=None):
        self.X_, self.y_ = X, y
        return self

    def sample(self, n_samples=None, *, random_state=None):
        rng = np.random.default_rng(random_state)
        rows = rng.integers(0, len(self.X_), n_samples or len(self.X_))
        if self.y_ is None:
            return self.X_.iloc[rows]
        right = rng.random(len(rows)) < self.quality
        return self.X_[rows], np.where(right, self.y_[rows], 1 - self.y_[rows])


def test_a_scorer_chooses_the_better_synthesizer_in_a_grid_search(rng):
    X = rng.normal(size=(240, 2))
    y = (X[:, 0] > 0).astype(int)
    scorer = make_tstr_scorer(LogisticRegression(), scoring="roc_auc")
    search = GridSearchCV(_Copy(), {"quality": [0.0, 0.5, 1.0]}, scoring=scorer, cv=3).fit(X, y)
    assert search.best_params_ == {"quality": 1.0}
    assert search.best_score_ > 0.95
    assert "LogisticRegression" in repr(scorer)


def test_a_scorer_takes_the_target_of_a_synthesizer_of_frames(frame):
    fitted = _Copy(target="label").fit(frame)
    assert make_tstr_scorer(DecisionTreeClassifier(max_depth=3), n_samples=300)(fitted, frame) > 0.7
    assert make_tstr_scorer(target="kind")(fitted, frame) > 0.5


@pytest.mark.parametrize("scoring", ["f1", "average_precision", "roc_auc", None])
def test_a_scorer_of_text_labels_takes_the_positive_class(frame, scoring):
    fitted = _Copy(target="label").fit(frame)
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    scorer = make_tstr_scorer(tree, positive="yes", scoring=scoring, n_samples=300)
    synthetic = fitted.sample(300, random_state=0)
    expected = tstr_score(
        synthetic, frame, target="label", positive="yes", classifiers=tree, scoring=scoring or "roc_auc"
    )
    assert scorer(fitted, frame) == expected > 0.7
    assert "positive='yes'" in repr(scorer)
    other = make_tstr_scorer(tree, positive="no", scoring=scoring, n_samples=300)(fitted, frame)
    assert other > 0.5
    if scoring == "f1":
        assert other != expected
        with pytest.raises(ValueError, match="pos_label"):
            make_tstr_scorer(tree, scoring=scoring, n_samples=300)(fitted, frame)
    # one class alone is told nothing, as without a scorer: .5, the rate of positives, nothing found
    guess = {"f1": 0.0, "average_precision": (frame["label"] == "yes").mean()}.get(scoring, 0.5)
    alone = _Copy(target="label").fit(frame[frame["label"] == "no"])
    assert scorer(alone, frame) == pytest.approx(guess)


def test_a_scorer_of_a_positive_class_boosts_without_an_estimator(frame):
    assert make_tstr_scorer(positive="yes")(_Copy(target="label").fit(frame), frame) > 0.7
