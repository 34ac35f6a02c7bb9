from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

from skdpgen import DPPCA, DPGaussianMixture, PrivacyAccountant
from skdpgen.synthesizers._pipeline import sample_pipeline

pytestmark = [
    pytest.mark.filterwarnings("ignore:the last of:skdpgen.exceptions.UtilityWarning"),  # few iterations
    pytest.mark.filterwarnings("ignore:fitted inside a search:skdpgen.exceptions.PrivacyLeakWarning"),
]

X = np.random.default_rng(0).normal(size=(3000, 4)) * [1.0, 0.5, 0.1, 0.1]


def test_a_pipeline_charges_one_budget_and_samples_in_the_units_of_its_input():
    budget = PrivacyAccountant(4.0)
    pipe = make_pipeline(
        DPPCA(2, epsilon=1.0, bounds=(-4, 4), accountant=budget), DPGaussianMixture(epsilon=1.0, accountant=budget)
    ).fit(X)
    assert [charge.label.partition(":")[0] for charge in budget.charges] == ["DPPCA", "DPGaussianMixture"]
    rows = sample_pipeline(pipe, 2000, random_state=0)
    assert rows.shape == (2000, 4)
    assert rows[:, 0].std() == pytest.approx(1.0, abs=0.4)
    assert np.isfinite(pipe.score(X))


def test_what_a_pipeline_samples_is_within_the_bounds_of_its_input():
    skewed = np.random.default_rng(0).exponential(size=(3000, 4))
    for bounds in ((0, 3), None):
        pipe = make_pipeline(DPPCA(2, epsilon=4.0, bounds=bounds), DPGaussianMixture(epsilon=4.0)).fit(skewed)
        scaling = pipe[0].scaling_
        unclipped = pipe[0].inverse_transform(pipe[1].sample(2000, random_state=0)[0])
        assert (unclipped < scaling.lower).any()
        rows = sample_pipeline(pipe, 2000, random_state=0)
        assert (rows >= scaling.lower).all()
        assert (rows <= scaling.upper).all()


@pytest.mark.parametrize("n_jobs", [1])
def test_a_grid_search_charges_every_fit(n_jobs):
    budget = PrivacyAccountant(50.0)
    search = GridSearchCV(
        DPGaussianMixture(epsilon=1.0, bounds=(-4, 4), accountant=budget, n_iter=2),
        {"n_components": [1, 2]},
        cv=KFold(3),
        n_jobs=n_jobs,
        error_score="raise",
    )
    search.fit(X)
    assert len(budget.charges) == 2 * 3 + 1
    assert search.best_estimator_.accountant_ is budget


def test_processes_of_a_grid_search_charge_one_ledger_file(tmp_path):
    budget = PrivacyAccountant(50.0, ledger=tmp_path / "budget.db")
    search = GridSearchCV(
        DPGaussianMixture(epsilon=1.0, bounds=(-4, 4), accountant=budget, n_iter=2),
        {"n_components": [1, 2]},
        cv=KFold(3),
        n_jobs=2,
        error_score="raise",
    )
    search.fit(X)
    assert len(budget.charges) == 7


def test_a_cached_pipeline_step_is_paid_once_with_a_ledger_file(tmp_path):
    budget = PrivacyAccountant(50.0, ledger=tmp_path / "budget.db")
    pipe = make_pipeline(
        DPPCA(2, epsilon=1.0, bounds=(-4, 4), accountant=budget),
        DPGaussianMixture(epsilon=1.0, accountant=budget),
        memory=str(tmp_path / "cache"),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pipe.fit(X)
        first = pipe[0].components_
        pipe.fit(X)
    fits = [charge.label.partition(":")[0] for charge in budget.charges]
    assert fits == ["DPPCA", "DPGaussianMixture", "DPGaussianMixture"]
    assert np.array_equal(pipe[0].components_, first)
    assert not pipe[0].accountant_.detached
