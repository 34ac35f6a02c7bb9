"""Noise that somebody can make again marks the books that paid for it, and every card of them, for good."""

import json

import numpy as np
import pytest
from sklearn.base import clone

from skdpgen import DPPCA, PrivacyAccountant, PrivateSearchCV
from skdpgen.accounting import PrivacyCard
from skdpgen.accounting._card import digest
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

GRID = {"n_components": [1, 2]}
X = np.random.default_rng(0).normal(size=(4000, 4))


@pytest.fixture(params=["memory", "file"])
def budget(request, tmp_path):
    return PrivacyAccountant(4.0, ledger=None if request.param == "memory" else tmp_path / "budget.db")


def pca(budget, n_components=2):
    return DPPCA(n_components, epsilon=1.0, bounds=(-6, 6), accountant=budget)


def test_a_seeded_fit_marks_the_ledger_and_all_later_cards(budget):
    before = pca(budget).fit(X)
    assert budget.report().attrs["private"]
    with seeded_noise(quiet=True):
        pca(budget).fit(X)
    later = pca(budget).fit(X)
    frame = budget.report()
    assert [entry.status for entry in budget.entries] == ["charged", "seeded", "charged"]
    assert "seeded" in set(frame["status"])
    assert not frame.attrs["private"]
    assert "noise that is known" in budget._repr_html_()
    assert before.card_["private"]
    assert not later.card_["private"]
    assert later.card_.verify()["private"] is False
    # what is spent is spent, known noise or not
    assert budget.epsilon_spent() == later.card_.accountant().epsilon_spent()


def test_a_planned_charge_is_used_up_as_seeded(budget):
    model = pca(budget)
    budget.plan([model.plan(X), pca(budget, 3).plan(X)])
    with seeded_noise(quiet=True):
        model.fit(X)
    assert sorted(entry.status for entry in budget.entries) == ["planned", "seeded"]
    assert not model.card_["private"]
    assert model.card_.verify()["private"] is False


def test_a_search_under_seeded_noise_marks_the_ledger(budget):
    search = PrivateSearchCV(pca(None), GRID, epsilon=2.0, score_bounds=(-20, 0), accountant=budget)
    with seeded_noise(quiet=True):
        clone(search).fit(X)
    assert [entry.status for entry in budget.entries] == ["seeded"]


def test_a_card_is_not_private_where_the_noise_of_gradients_alone_was_known(budget):
    model = pca(budget).fit(X)
    plan = pca(PrivacyAccountant(4.0)).plan(X)
    model._receipt = budget.charge(plan.event, plan.label, plan.extra_delta)  # what a fit holds until it is over
    for known in (False, True):
        model._issue_card(plan, make_noise_generator(), [], ("from a seed" if known else "secure", not known))
        assert model.card_["private"] is not known
        assert model.card_.verify()["private"] is not known


def test_a_card_that_hides_the_mark_is_refused(budget):
    with seeded_noise(quiet=True):
        card = json.loads(pca(budget).fit(X).card_.to_json())
    card["private"] = True
    card["digest"] = digest({name: value for name, value in card.items() if name != "digest"})
    with pytest.raises(ValueError, match="its ledger says that it is not"):
        PrivacyCard(card).verify()
