"""A fit by an estimator of scikit-learn that learns from the rows itself, or gives a row several times, warns."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from _sabotage import Claim, assert_caught, mutant_ids
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpgen import DPPCA, PrivacyAccountant, _base
from skdpgen.exceptions import PrivacyLeakWarning
from skdpgen.nn import DPNetClassifier
from skdpgen.utils import validation

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

_RNG = np.random.default_rng(0)
X, Y = _RNG.random((60, 2)), _RNG.integers(0, 2, 60)
OTHERS = {
    "BaggingClassifier": lambda inner: BaggingClassifier(inner, n_estimators=2),
    "CalibratedClassifierCV": lambda inner: CalibratedClassifierCV(inner, cv=2),
    "OneVsRestClassifier": OneVsRestClassifier,
    "VotingClassifier": lambda inner: VotingClassifier([("one", inner)]),
}


def _inner(accountant=None):
    return DPNetClassifier(
        1.0 if accountant is None else 0.1, bounds=(0, 1), classes=[0, 1], steps=1, sampling_rate=1.0,
        hidden_layer_sizes=(), accountant=accountant,
    )  # fmt: skip


def _leaks(fit):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit()
    return [str(warning.message) for warning in said if issubclass(warning.category, PrivacyLeakWarning)]


@pytest.mark.parametrize("name", OTHERS)
def test_a_fit_by_an_estimator_that_learns_itself_warns(name):
    said = _leaks(lambda: OTHERS[name](_inner()).fit(X, Y))
    assert said, "no warning"
    assert all(f"fitted by {name} of scikit-learn" in text and "separate ledger" in text for text in said)


def test_ledgers_are_separate_only_without_an_accountant():
    inner = _inner(PrivacyAccountant(10.0))
    said = _leaks(lambda: VotingClassifier([("one", inner)]).fit(X, Y))
    assert said, "no warning"
    assert not any("separate ledger" in text for text in said)


def test_a_bootstrap_sample_gives_a_row_several_times():
    """What the warning says: then the card of the fit is that of one row, of which there are several."""
    seen = []

    class Recorded(DPNetClassifier):
        def fit(self, X, y, groups=None):
            seen.append(np.unique(X, axis=0, return_counts=True)[1].max())
            return super().fit(X, y, groups)

    inner = Recorded(bounds=(0, 1), classes=[0, 1], steps=1, sampling_rate=1.0, hidden_layer_sizes=())
    assert _leaks(lambda: BaggingClassifier(inner, n_estimators=1, random_state=0).fit(X, Y))
    assert max(seen) > 1


def test_pipelines_and_unions_of_private_steps_do_not_warn():
    pca = DPPCA(1, bounds=(0, 1), l2_bound=1.0)
    assert not _leaks(lambda: make_pipeline(FunctionTransformer(), pca).fit(X))
    assert not _leaks(lambda: FeatureUnion([("one", clone(pca))]).fit(X))
    assert not _leaks(lambda: _inner().fit(X, Y))


ALL = [Claim(test_a_fit_by_an_estimator_that_learns_itself_warns, name) for name in OTHERS]
UNWARNED = Claim(test_pipelines_and_unions_of_private_steps_do_not_warn)
MUTANTS = [
    ("searches alone warn", ALL, (validation.meta_estimator, ("return $found", "return None"))),
    ("every caller in scikit-learn is one", [UNWARNED], (validation.meta_estimator, ("_META", "'sklearn'"))),
    (
        "every ledger is separate",
        [Claim(test_ledgers_are_separate_only_without_an_accountant)],
        (_base.PrivateEstimator._warn_of_callers, ("self.accountant is None", "True")),
    ),
]


@pytest.mark.parametrize(("claims", "changes"), [(m[1], m[2:]) for m in MUTANTS], ids=mutant_ids(MUTANTS))
def test_sabotage_is_caught(monkeypatch, claims, changes):
    assert_caught(monkeypatch, claims, *changes)
