"""An error of a fit has a note that says whether the fit was charged."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from skdpgen import DPPCA, MomentSynthesizer, PrivacyAccountant, PrivateSearchCV
from skdpgen.exceptions import BudgetExceededError, InvalidInputError, UtilityWarning

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
X = np.random.default_rng(0).random((600, 3))


def _notes(error):
    return getattr(error.value, "__notes__", [])


def test_an_error_before_the_charge_says_that_nothing_was_charged():
    budget = PrivacyAccountant(epsilon=1.0)
    with pytest.raises(InvalidInputError) as error:
        DPPCA(2, epsilon=1.0, bounds=(0, 1), accountant=budget).fit(X[:, 0])
    assert _notes(error) == ["skdpgen: this call charged nothing"]
    assert budget.epsilon_spent() == 0


def test_what_says_it_in_its_message_has_no_note():
    budget = PrivacyAccountant(epsilon=1.0)
    pca = DPPCA(2, epsilon=1.0, bounds=(0, 1), accountant=budget).fit(X)
    with pytest.raises(BudgetExceededError, match="nothing was charged") as error:
        pca.fit(X)
    assert _notes(error) == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_an_error_after_the_charge_says_what_was_charged(kind, monkeypatch):
    def stop(*_):
        raise kind

    monkeypatch.setattr(DPPCA, "_complete", stop)
    budget = PrivacyAccountant(epsilon=2.0, delta=1e-6)
    with pytest.raises(kind) as error:
        DPPCA(2, epsilon=1.0, bounds=(0, 1), accountant=budget).fit(X)
    assert _notes(error) == ["skdpgen: this fit was charged epsilon 1 at delta 1e-06; a charge is never refunded"]
    assert budget.epsilon_spent() == pytest.approx(1.0, rel=1e-3)


def test_an_interruption_of_the_charge_points_to_the_ledger(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    budget = PrivacyAccountant(epsilon=2.0)
    monkeypatch.setattr(PrivacyAccountant, "charge", stop)
    with pytest.raises(KeyboardInterrupt) as error:
        DPPCA(2, epsilon=1.0, bounds=(0, 1), accountant=budget).fit(X)
    assert "accountant.report() says whether it was" in _notes(error)[0]


def test_a_warning_that_is_an_error_after_the_fit_says_that_it_is_complete():
    synth = MomentSynthesizer(0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UtilityWarning) as error:
            synth.fit(X[:50])
    assert _notes(error)[0].endswith("the fit is complete, and can be used")
    assert synth.sample(3).shape == (3, 3)


def test_a_fit_that_is_stopped_before_it_is_left_is_not_called_complete(monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(DPPCA, "_warn_of_callers", stop)  # the last step, after the card
    pca = DPPCA(2, epsilon=1.0, bounds=(0, 1))
    with pytest.raises(KeyboardInterrupt) as error:
        pca.fit(X)
    assert _notes(error)[0].endswith("a charge is never refunded")
    assert not hasattr(pca, "card_")


# ---- searches --------------------------------------------------------------------------------------------------------
def _search(budget=None, estimator=None, **parameters):
    given = {"score_bounds": (-30, 10), "runs": "logarithmic", "mean_runs": 2.0, "epsilon": 2.0, **parameters}
    return PrivateSearchCV(estimator or DPPCA(bounds=(0, 1)), {"n_components": [1, 2]}, accountant=budget, **given)


def test_a_search_that_is_refused_says_that_nothing_was_charged():
    budget = PrivacyAccountant(epsilon=2.0)
    with pytest.raises(InvalidInputError) as error:
        _search(budget).fit(X[:, 0])
    assert _notes(error) == ["skdpgen: this call charged nothing"]
    assert budget.epsilon_spent() == 0


def test_a_search_of_which_a_run_fails_says_what_was_charged(monkeypatch):
    def stop(self, *_):
        raise MemoryError

    monkeypatch.setattr(PrivateSearchCV, "_run", stop)
    budget = PrivacyAccountant(epsilon=2.0, delta=1e-6)
    with pytest.raises(RuntimeError, match="a run failed") as error:
        _search(budget).fit(X)
    assert _notes(error) == ["skdpgen: this fit was charged epsilon 2 at delta 1e-06; a charge is never refunded"]
    assert budget.epsilon_spent() == pytest.approx(2.0, rel=1e-2)


def test_an_interruption_of_the_charge_of_a_search_points_to_the_ledger(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    budget = PrivacyAccountant(epsilon=2.0)
    monkeypatch.setattr(PrivacyAccountant, "charge", stop)
    with pytest.raises(KeyboardInterrupt) as error:
        _search(budget).fit(X)
    assert "accountant.report() says whether it was" in _notes(error)[0]


def test_a_warning_that_is_an_error_after_a_search_says_that_it_is_complete(monkeypatch):
    def warned(self):
        warnings.warn("late", UtilityWarning, stacklevel=2)

    monkeypatch.setattr(PrivateSearchCV, "_warn_of_callers", warned)
    search = _search()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        with pytest.raises(UtilityWarning) as error:
            search.fit(X)
    assert _notes(error)[0].endswith("the fit is complete, and can be used")
    assert search.transform(X).shape[0] == len(X)


def test_a_warning_before_the_charge_of_a_search_costs_nothing_where_it_is_an_error(monkeypatch):
    prepare = PrivateSearchCV._prepare

    def warned(self, *given):
        warnings.warn("early", UtilityWarning, stacklevel=2)
        return prepare(self, *given)

    monkeypatch.setattr(PrivateSearchCV, "_prepare", warned)
    budget = PrivacyAccountant(epsilon=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        with pytest.raises(UtilityWarning, match="early") as error:
            _search(budget).fit(X)
    assert _notes(error) == ["skdpgen: this call charged nothing"]
    assert budget.epsilon_spent() == 0
