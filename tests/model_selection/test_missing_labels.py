"""A missing label, or cell, moves the term of its own record and no other's: not by what numpy makes of the rest."""

import numpy as np
import pandas as pd
import pytest
from _sabotage import patch_source

from skdpgen import P3GMSynthesizer, PrivacyAccountant, PrivateSearchCV
from skdpgen.model_selection import _scoring
from skdpgen.model_selection._planning import take
from skdpgen.model_selection._scoring import bounded_score, held_terms, score_function
from skdpgen.tabular import Categorical, Schema

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

RNG = np.random.default_rng(0)
N = 300
T = RNG.integers(0, 2, N)
A = np.where(RNG.random(N) < 0.9, T, 1 - T)
SCHEMA = Schema([Categorical(name, (0, 1), missing=True) for name in ("a", "t")])
BOUNDS = {"tstr_accuracy": (0.0, 1.0), "tstr_log_loss": (np.log(0.01), 0.0)}
DTYPES = ["Int64", "Int8", "Float64", "float64", "object", "category"]


def frame(dtype, *, without=None):
    """The rows, and one more without a value in the column `without`."""
    more = [] if without is None else [{"a": 1, "t": 1} | {without: None}]
    values = {
        name: pd.array([*column.tolist(), *(row[name] for row in more)], dtype=object)
        for name, column in {"a": A, "t": T}.items()
    }
    if dtype == "category":
        return pd.DataFrame({name: pd.Categorical(list(column), categories=[0, 1]) for name, column in values.items()})
    return pd.DataFrame(values).astype(dtype)


@pytest.fixture(scope="module")
def fitted():
    return P3GMSynthesizer(10.0, schema=SCHEMA, target="t", random_state=0).fit(frame("Int64"))


def moved(fitted, scoring, dtype, without):
    """How far one record more moves the weighted sum of the terms, as a share of what is paid for."""
    score, sums = score_function(scoring, fitted), []
    for rows in (frame(dtype), frame(dtype, without=without)):
        terms = held_terms(score, rows, None, take, len(rows), BOUNDS[scoring][0])
        sums.append(bounded_score(terms, BOUNDS[scoring]))
    one, other = sums
    distance = np.linalg.norm((other.value - one.value) * one.lattice * one.weights)
    return distance / one.sensitivity("add_or_remove_one")


@pytest.mark.parametrize("scoring", BOUNDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("without", ["a", "t"])
def test_a_record_without_a_value_moves_the_score_by_what_is_paid_for(fitted, scoring, dtype, without):
    assert moved(fitted, scoring, dtype, without) <= 1


def test_labels_by_way_of_numpy_would_move_them_all(fitted, monkeypatch):
    text = "$values = pd.Series($values).astype(object).to_numpy()"
    broken = "return np.array([str(v) for v in np.asarray($values)], dtype=object)"
    patch_source(monkeypatch, _scoring._texts, (text, broken))
    assert moved(fitted, "tstr_accuracy", "category", "t") > 100


def test_a_scorer_that_numpy_misleads_is_refused_before_the_charge():
    def scoring(estimator, X, y):
        # float64, and so no "1", as soon as one value is missing
        return np.array([str(value) == "1.0" for value in X["a"].to_numpy(dtype=np.float64, na_value=np.nan)]) + (
            1.0 * X["a"].isna().any()
        )

    accountant = PrivacyAccountant(3.0)
    search = PrivateSearchCV(
        P3GMSynthesizer(schema=SCHEMA, target="t"), {"n_components": [1, 2]}, scoring=scoring, score_bounds=(0, 1),
        accountant=accountant, epsilon=1.0,
    )  # fmt: skip
    with pytest.raises(ValueError, match="depends on the other records"):
        search.fit(frame("Int64"))
    assert not accountant.charges


@pytest.mark.parametrize(
    "make",
    [
        lambda values: pd.Categorical(values, categories=[0, 1]),
        lambda values: pd.array(values, dtype="Int64"),
        lambda values: pd.array([None if v is None else bool(v) for v in values], dtype="boolean"),
        lambda values: pd.Index(pd.array(values, dtype="Int64")),
        lambda values: pd.Series(values, dtype="Int64"),
        lambda values: pd.Series(pd.Categorical(values, categories=[0, 1])),
    ],
    ids=["Categorical", "Int64", "boolean", "Index", "Series", "Series of categories"],
)
def test_the_kind_of_y_is_that_of_its_dtype_missing_labels_or_not(make):
    labels, kinds, dtypes = T.tolist(), [], []
    for more in ([], [None]):
        y = make(labels + more)
        X = pd.DataFrame({"x": np.append(RNG.normal(size=N), [0.0] * len(more))})
        fitted = P3GMSynthesizer(5.0).fit(X, y)
        kinds.append([type(column).__name__ for column in fitted.schema_.columns])
        dtypes.append(np.asarray(fitted.sample(y=[1] * 5)[1]).dtype)
        assert take(y, np.array([1, 3])).dtype == y.dtype
    assert kinds == [["Numeric", "Categorical"]] * 2
    assert dtypes[0] == dtypes[1]
