from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from skdpgen.metrics import protocol_classifiers, tstr_report, tstr_score

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
