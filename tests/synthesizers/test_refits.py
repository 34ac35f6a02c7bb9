"""A second fit is not free: who keeps no common ledger is told what the fits cost together."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_validate

from skdpgen import DPPCA, MomentSynthesizer, PrivacyAccountant
from skdpgen.exceptions import PrivacyLeakWarning
from skdpgen.testing import seeded_noise

X = np.random.default_rng(0).normal(size=(5000, 3))


def _pca(**options):
    return DPPCA(2, bounds=(-4, 4), l2_bound=1.0, **options)


def test_a_second_fit_without_a_shared_accountant_says_what_both_cost():
    pca = _pca(epsilon=0.5).fit(X)
    with pytest.warns(PrivacyLeakWarning, match=r"fitted before.*epsilon 1 at delta 2e-05 together"):
        pca.fit(X)
    with pytest.warns(PrivacyLeakWarning, match="fitted before"):  # said of each refit
        pca.fit(X)


@pytest.mark.filterwarnings("error")
def test_a_clone_a_shared_accountant_and_fits_without_privacy_are_no_refits_that_look_free():
    pca = _pca(epsilon=0.5).fit(X)
    clone(pca).fit(X)
    shared = _pca(epsilon=0.5, accountant=PrivacyAccountant(2.0))
    shared.fit(X).fit(X)
    _pca(epsilon=np.inf).fit(X).fit(X)
    with seeded_noise(quiet=True):  # what scikit-learn's suite is run under: its cards say that nothing is private
        _pca().fit(X).fit(X)


@pytest.mark.filterwarnings("error")
def test_a_refused_refit_says_nothing_of_a_cost():
    pca = _pca().fit(X)
    with pytest.raises(ValueError, match="minimum of 1"):
        pca.fit(X[:0])


def _said(search):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search()
    return [str(one.message) for one in caught if "inside a search" in str(one.message)]


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        (
            lambda model: GridSearchCV(model, {"n_components": [1, 2]}, cv=3),
            r"7 fits (2 candidates in 3 folds, and a refit): together they cost up to epsilon 3.5 at delta 7e-05",
        ),
        (
            lambda model: GridSearchCV(
                model, [{"n_components": [1]}, {"budget_split": [{"bounds": 0.1}, {"bounds": 0.2}]}], cv=2, refit=False
            ),
            r"6 fits (3 candidates in 2 folds): together they cost up to epsilon 3 at delta 6e-05",
        ),
        (
            lambda model: RandomizedSearchCV(model, {"n_components": [1, 2]}, n_iter=1, cv=2),
            r"3 fits (1 candidates in 2 folds, and a refit): together they cost up to epsilon 1.5 at delta 3e-05",
        ),
    ],
)
def test_a_search_with_separate_ledgers_says_the_sum_of_its_fits(search, sentence):
    said = _said(lambda: search(_pca(epsilon=0.5)).fit(X))
    assert said
    assert all(sentence in text for text in said)


@pytest.mark.parametrize(
    "search",
    [
        lambda: GridSearchCV(_pca(), {"epsilon": [0.5, 1.0]}, cv=2).fit(X),
        lambda: GridSearchCV(_pca(epsilon=np.inf), {"n_components": [1, 2]}, cv=2).fit(X),
        lambda: cross_validate(GridSearchCV(_pca(), {"n_components": [1, 2]}, cv=2), X, cv=2),
        lambda: cross_validate(_pca(), X, cv=2),
    ],
)
def test_a_sum_that_is_not_known_is_not_said(search):
    said = _said(search)
    assert said
    assert not any("together they cost" in text for text in said)


def test_a_shared_accountant_shows_the_sum_itself():
    accountant = PrivacyAccountant(100.0)
    said = _said(lambda: GridSearchCV(_pca(epsilon=0.5, accountant=accountant), {"n_components": [1, 2]}, cv=2).fit(X))
    assert said
    assert not any("ledger" in text for text in said)


def test_the_card_says_that_its_ledger_saw_one_fit_alone():
    alone = _pca().fit(X).card_
    assert any("this ledger saw this fit alone" in text for text in alone.remarks)
    shared = PrivacyAccountant(3.0)
    _pca(epsilon=0.5, accountant=shared).fit(X)
    both = _pca(epsilon=0.5, accountant=shared).fit(X).card_
    assert both.remarks == ()


def test_a_card_without_privacy_and_one_of_a_large_epsilon_say_so():
    free = MomentSynthesizer(np.inf, bounds=(-4, 4)).fit(X).card_
    assert "NOT PRIVATE" in repr(free)
    assert [text.partition(":")[0] for text in free.remarks] == ["NOT PRIVATE"]
    ten, above = (_pca(epsilon=epsilon).fit(X).card_ for epsilon in (10.0, 12.0))
    assert "NOT PRIVATE" not in repr(above)
    assert not any("above 10" in text for text in ten.remarks)
    assert "epsilon 12 is above 10" in above.remarks[0]
    assert "about 2e+05" in above.remarks[0]


def test_an_object_is_fitted_by_one_thread_at_a_time(monkeypatch):
    """The model would else hold releases of two fits, and its card the cost of one."""
    accountant = PrivacyAccountant(9.0)
    pca, begun, refused, errors = _pca(epsilon=1.0, accountant=accountant), threading.Event(), threading.Event(), []
    complete = DPPCA._complete

    def waiting(self, *arguments):
        begun.set()
        refused.wait(30)
        return complete(self, *arguments)

    monkeypatch.setattr(DPPCA, "_complete", waiting)
    first = threading.Thread(target=lambda: errors.extend(_errors(pca)))
    first.start()
    assert begun.wait(30)
    with pytest.raises(RuntimeError, match=r"being fitted, in another thread.*nothing was charged"):
        pca.fit(X)
    assert clone(pca).plan(X).epsilon == 1.0  # a plan of another object
    refused.set()
    first.join()
    assert (errors, len(accountant.charges)) == ([], 1)
    assert pca.card_.verify()["fit"]["epsilon"] <= 1.0
    pca.fit(X)  # one after the other, as before


def _errors(pca):
    try:
        pca.fit(X)
    except Exception as error:
        yield error
