from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from _fits import a_category_of_one_record_is_not_told, ledger_is_what_ran, nothing_private_is_kept
from _sabotage import Claim, after, assert_caught, before, mutant_ids, quietly
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import nn

from skdpgen import PrivacyAccountant, TableEncoder
from skdpgen.dpsgd._plan import plan_of_fit
from skdpgen.exceptions import BudgetExceededError, InvalidInputError
from skdpgen.nn import DPNet, DPNetClassifier, _classifier
from skdpgen.tabular import Categorical, Numeric, Schema

SMALL = {"steps": 3, "sampling_rate": 0.1, "hidden_layer_sizes": (4,), "bounds": (0, 1), "classes": [0, 1]}


@pytest.fixture
def blobs(rng):
    y = rng.integers(0, 2, 600)
    X = np.clip(0.5 + 0.3 * (2 * y[:, None] - 1) * [1, 0] + 0.1 * rng.normal(size=(600, 2)), 0, 1)
    return X, y


def test_without_noise_it_classifies_as_ordinary_training_does():
    X, y = load_digits(return_X_y=True)
    model = DPNetClassifier(np.inf, bounds=(0, 16), classes=range(10), sampling_rate=0.1, steps=150).fit(
        X[:1200], y[:1200]
    )
    linear = LogisticRegression(max_iter=2000).fit(X[:1200] / 16, y[:1200]).score(X[1200:] / 16, y[1200:])
    assert model.score(X[1200:], y[1200:]) > linear - 0.05
    assert model.card_["private"] is False


def test_with_noise_it_learns_what_is_easy(blobs):
    X, y = blobs
    model = DPNetClassifier(20.0, bounds=(0, 1), classes=[0, 1], sampling_rate=0.1, steps=100).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.accountant_.epsilon_spent() <= 20.0
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize("name", ["classifier, net", "classifier, net, replace_one"])
def test_every_release_was_charged_and_nothing_private_is_kept(name):
    ledger_is_what_ran(name)
    nothing_private_is_kept(name)


def test_a_class_of_one_record_is_not_told():
    a_category_of_one_record_is_not_told("classifier, net")


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_what_is_declared_is_not_paid_for(blobs, relation):
    X, y = blobs
    model = quietly(lambda: DPNetClassifier(5.0, neighboring=relation, **SMALL).fit(X, y))
    releases = list(model.accountant_.report()["release"])
    assert releases == (["rows", "network"] if relation == "add_or_remove_one" else ["network"])
    learned = quietly(
        lambda: DPNetClassifier(5.0, neighboring=relation, **{**SMALL, "bounds": None, "classes": None}).fit(X, y)
    )
    assert list(learned.accountant_.report()["release"])[:2] == ["bounds", "classes"]
    assert learned.accountant_.charges[0].extra_delta == pytest.approx(1e-6)


def a_card_names_all_that_the_fit_took_for_public_and_nothing_else(seed):
    y = np.arange(60) % 2
    X = np.stack([y, y], axis=1) / 2
    public = {"bounds": SMALL["bounds"], "classes": SMALL["classes"], "net": DPNet(_classifier.ClassifierModule)}
    words = {name: f"{name}: declared public by the caller" for name in ("bounds", "classes")}
    words["net"] = "net: an object of the caller's, taken for public"
    for n in range(len(public) + 1):
        for names in itertools.combinations(public, n):
            given = {**SMALL, **dict.fromkeys(public), "steps": 2, "random_state": seed}
            if "net" in names:
                del given["hidden_layer_sizes"]
            model = DPNetClassifier(5.0, **{**given, **{name: public[name] for name in names}})
            stated = quietly(lambda model=model: model.fit(X, y)).card_["public_assumptions"]
            assert stated == [*(words[name] for name in names), "number and order of columns, kind (dtype) of y"]


@pytest.mark.parametrize("seed", [None, 3])
def test_a_card_names_all_that_the_fit_took_for_public_and_nothing_else(seed):
    Claim(a_card_names_all_that_the_fit_took_for_public_and_nothing_else, seed).holds_unpatched()


def test_classes_keep_their_kind_and_frames_their_names(blobs):
    X, y = blobs
    frame = pd.DataFrame(X, columns=["a", "b"])
    for labels in (np.array(["no", "yes"])[y], y.astype(float), y.astype(bool), pd.Series(np.array(["u", "v"])[y])):
        model = quietly(lambda labels=labels: DPNetClassifier(30.0, **{**SMALL, "classes": None}).fit(frame, labels))
        assert list(model.classes_) == list(np.unique(np.asarray(labels)))
        assert model.predict(frame).dtype.kind == np.asarray(labels.tolist()).dtype.kind
        assert list(model.feature_names_in_) == ["a", "b"]


def test_a_noise_that_hides_every_class_leaves_one(blobs):
    X, y = blobs
    model = quietly(lambda: DPNetClassifier(0.05, **{**SMALL, "classes": None}).fit(X[:20], y[:20]))
    assert list(model.classes_) == [0]
    assert (model.predict(X) == 0).all()


def test_tables_of_mixed_kinds_go_through_a_pipeline(rng):
    kind = rng.choice(["a", "b"], 500)
    frame = pd.DataFrame({"kind": kind, "size": rng.random(500)})
    schema = Schema([Categorical("kind", ("a", "b")), Numeric("size", (0, 1))])
    y = (kind == "b").astype(int)
    model = make_pipeline(
        TableEncoder(schema),
        DPNetClassifier(20.0, bounds=(-1, 1), classes=[0, 1], sampling_rate=0.1, steps=80, hidden_layer_sizes=()),
    ).fit(frame, y)
    assert model.score(frame, y) > 0.9


class _Conv(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.conv, self.dense = nn.Conv2d(1, 3, 3, stride=2), nn.Linear(27, n_classes)

    def forward(self, X):
        return self.dense(torch.relu(self.conv(X.view(-1, 1, 8, 8))).flatten(1))


class _Normed(_Conv):
    def __init__(self, n_features, n_classes):
        super().__init__(n_features, n_classes)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, X):
        return self.dense(torch.relu(self.norm(self.conv(X.view(-1, 1, 8, 8)))).flatten(1))


def test_a_network_of_your_own_is_a_template():
    X, y = load_digits(return_X_y=True)
    parameters = {"bounds": (0, 16), "classes": range(10), "steps": 3, "sampling_rate": 0.05}
    model = DPNetClassifier(5.0, net=DPNet(_Conv, lr=0.01), **parameters)
    assert model.set_params(net__lr=0.02).get_params()["net__lr"] == 0.02
    fitted = quietly(lambda: model.fit(X, y))
    assert isinstance(fitted.module_, _Conv)
    assert fitted.predict(X).shape == y.shape
    books = PrivacyAccountant(100.0)
    for wrong, match in (
        (DPNetClassifier(5.0, net=DPNet(_Normed), accountant=books, **parameters), "BatchNorm"),
        (
            DPNetClassifier(5.0, net=DPNet(_Conv), hidden_layer_sizes=(3,), accountant=books, **parameters),
            "leave it out",
        ),
        (DPNetClassifier(5.0, hidden_layer_sizes=(0,), accountant=books, **parameters), "whole numbers from 1"),
    ):
        with pytest.raises(ValueError, match=match):
            wrong.fit(X, y)
    assert not books.charges


class _Narrow(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.dense = nn.Linear(n_features, 1)

    def forward(self, X):
        return self.dense(X)


def test_what_cannot_be_fitted_is_refused_before_the_charge(blobs, rng):
    X, y = blobs
    books = PrivacyAccountant(100.0)
    cases = [
        ({}, rng.normal(size=600), ValueError, "continuous"),
        ({}, y + 1, InvalidInputError, "declared classes"),
        ({}, y[:-1], InvalidInputError, "599"),
        ({}, np.where(y, np.nan, 1.0), InvalidInputError, "NaN"),
        ({}, None, ValueError, "requires y"),
        ({"classes": None, "bounds": None, "budget_split": {"bounds": 0.99}}, y, ValueError, "leaves nothing"),
        ({"net": DPNet(_Narrow), "hidden_layer_sizes": (100,)}, y, ValueError, "logits|shape"),
    ]
    for parameters, labels, error, match in cases:
        model = DPNetClassifier(1.0, accountant=books, **{**SMALL, **parameters})
        with pytest.raises(error, match=match):
            model.fit(X, labels)
        with pytest.raises(NotFittedError):
            model.predict(X)
    with pytest.raises(BudgetExceededError):
        DPNetClassifier(1.0, accountant=PrivacyAccountant(0.5), **SMALL).fit(X, y)
    assert not books.charges


def test_a_plan_is_what_a_fit_charges(blobs):
    X, y = blobs
    model = DPNetClassifier(5.0, **SMALL)
    plan = model.plan(X, y)
    assert quietly(lambda: model.fit(X, y)).accountant_.charges == (plan.charge,)


LEDGER = [Claim(ledger_is_what_ran, "classifier, net")]
KEPT = [Claim(nothing_private_is_kept, "classifier, net")]
# (sabotage, claims that catch it, (function, (old, new)))
MUTANTS = [
    (
        "the exact number of rows divides",
        LEDGER,
        (DPNetClassifier._train, ("$start", "$4 = Count(float(len($1)), float(len($1)))")),
    ),
    (
        "less noise than charged",
        LEDGER,
        (DPNetClassifier._train, ("$plan.noise_multipliers['network']", "$plan.noise_multipliers['network'] / 2")),
    ),
    ("more steps than charged", LEDGER, (plan_of_fit, ("$training.steps", "$training.steps + 1"))),
    (
        "records drawn more often than charged",
        LEDGER,
        (
            plan_of_fit,
            (
                "$plan($rest, sampling_rate=$training.sampling_rate)",
                "$plan($rest, sampling_rate=2 * $training.sampling_rate)",
            ),
        ),
    ),
    ("the exact number of rows", LEDGER, (_classifier._row_count, ("$start", "$2 = 0.0"))),
    (
        "a training that was not paid",
        LEDGER,
        (
            DPNetClassifier._train,
            after(
                "$net = self._make_net($width, $n_classes, self._receipt.cover($plan))",
                "unpaid = self._make_net($width, $n_classes, replace($plan, steps=1))",
            ),
            before("return $net.fit($rest)", "unpaid.fit($rest)"),
        ),
    ),
    (
        "a network of the caller's that the card does not name",
        [Claim(a_card_names_all_that_the_fit_took_for_public_and_nothing_else, 3)],
        (DPNetClassifier._complete, ("if self.net is not None:\n    $assumptions.append($text)", "pass")),
    ),
    (
        "rows are kept",
        KEPT,
        (
            DPNetClassifier._train,
            before("return $net.fit($rows, $rest)", "self._rows = $rows"),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_a_classifier_is_caught(monkeypatch, mutant):
    from dataclasses import replace

    monkeypatch.setattr(_classifier, "replace", replace, raising=False)
    assert_caught(monkeypatch, *mutant[1:])


CODES = np.tile([0, 1], 30)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(CODES, dtype="Int64"),
        pd.Series(CODES, dtype="UInt8"),
        pd.Series(CODES == 1, dtype="boolean"),
        pd.Series(np.where(CODES, "b", "a"), dtype="string"),
        pd.Series(CODES).astype("category"),
        pd.array(CODES, dtype="Int64"),
        CODES.astype(object),
        (CODES == 1).astype(object),
        np.where(CODES, "b", "a").astype(object),
    ],
    ids=lambda labels: f"{type(labels).__name__} of {labels.dtype}",
)
def test_labels_of_nullable_dtypes_and_objects_are_classes(labels):
    rows = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    plain = np.array(pd.Series(labels).astype(object).tolist())
    for classes in (None, np.unique(plain)):
        fitted = DPNetClassifier(50.0, bounds=(-1, 1), classes=classes, steps=2).fit(rows, labels)
        assert set(fitted.classes_) <= set(plain)
        assert fitted.predict(rows).dtype == plain.dtype


def test_missing_labels_of_a_nullable_dtype_are_refused_before_the_charge():
    model = DPNetClassifier(1.0, bounds=(-1, 1), steps=2)
    with pytest.raises(InvalidInputError, match="NaN"):
        model.fit(np.zeros((60, 2)), pd.Series([None, *CODES[1:]], dtype="Int64"))
    assert not hasattr(model, "accountant_")
