"""An error of a fit has a note that says whether the fit was charged."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from skdpgen import DPPCA, MomentSynthesizer, PrivacyAccountant
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

    monkeypatch.setattr(DPPCA, "_warn_inside_search", stop)  # the last step, after the card
    pca = DPPCA(2, epsilon=1.0, bounds=(0, 1))
    with pytest.raises(KeyboardInterrupt) as error:
        pca.fit(X)
    assert _notes(error)[0].endswith("a charge is never refunded")
    assert not hasattr(pca, "card_")
