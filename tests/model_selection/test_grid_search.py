"""GridSearchCV over every public estimator: charges = fits, whoever keeps the books and whoever does the work."""

from __future__ import annotations

import numpy as np
import pytest
from _flat import make_flat
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV, PredefinedSplit

import skdpgen
from skdpgen import (
    DPPCA,
    DataLensSynthesizer,
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPGaussianMixture,
    DPGMSynthesizer,
    DPMERFSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    GPATESynthesizer,
    GSWGANSynthesizer,
    MomentSynthesizer,
    P3GMSynthesizer,
    PATEGANSynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
    SubsetSGD,
)
from skdpgen.nn import DPNetClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.filterwarnings("ignore:fitted inside a search:skdpgen.exceptions.PrivacyLeakWarning"),
]

X = np.random.default_rng(0).normal(size=(400, 3)) * [1.0, 0.5, 0.1]
# each row draws its own fold
FOLDS = PredefinedSplit(np.random.default_rng(1).integers(2, size=len(X)))
NET = {"steps": 2, "sampling_rate": 0.1}
ESTIMATORS = {
    "DPPCA": (DPPCA(bounds=(-4, 4), l2_bound=1.0), {"n_components": [1, 2]}),
    "DPGaussianMixture": (DPGaussianMixture(bounds=(-4, 4), n_iter=2), {"n_components": [1, 2]}),
    "P3GMSynthesizer": (P3GMSynthesizer(bounds=(-4, 4), l2_bound=1.0), {"n_components": [1, 2]}),
    "MomentSynthesizer": (MomentSynthesizer(bounds=(-4, 4)), {"budget_split": [{"bounds": 0.05}, {"bounds": 0.1}]}),
    "PriVAESynthesizer": (
        make_flat(PriVAESynthesizer, divergence="mmd", n_groups=2, bounds=(-4, 4), **NET),
        {"n_components": [1, 2]},
    ),
    "DPVAESynthesizer": (make_flat(DPVAESynthesizer, bounds=(-4, 4), **NET), {"n_components": [1, 2]}),
    "DPMERFSynthesizer": (DPMERFSynthesizer(steps=2, bounds=(-4, 4)), {"n_frequencies": [4, 8]}),
    "DPSinkhornSynthesizer": (
        make_flat(DPSinkhornSynthesizer, generated_rows=5, bounds=(-4, 4), **NET),
        {"n_components": [4, 8]},
    ),
    "DP2VAESynthesizer": (
        DP2VAESynthesizer(training=SubsetSGD(10, 2, pretrain_steps=2, warm_start_steps=2), bounds=(-4, 4)),
        {"n_components": [1, 2]},
    ),
    "DPGMSynthesizer": (
        make_flat(DPGMSynthesizer, bounds=(-4, 4), n_clusters=2, cluster_steps=1, n_frequencies=2, **NET),
        {"n_components": [1, 2]},
    ),
    "DPCGANSynthesizer": (make_flat(DPCGANSynthesizer, bounds=(-4, 4), n_critic=1, **NET), {"n_components": [1, 2]}),
    "PATEGANSynthesizer": (
        PATEGANSynthesizer(bounds=(-4, 4), n_teachers=5, steps=2, labelled_rows=10),
        {"n_components": [1, 2]},
    ),
    "GSWGANSynthesizer": (
        GSWGANSynthesizer(bounds=(-4, 4), n_critics=5, steps=2, generated_rows=5, warm_start_steps=2),
        {"n_components": [1, 2]},
    ),
    "DataLensSynthesizer": (
        DataLensSynthesizer(bounds=(-4, 4), n_teachers=5, steps=2, generated_rows=5, warm_start_steps=2),
        {"n_largest": [1, 2]},
    ),
    "GPATESynthesizer": (
        GPATESynthesizer(bounds=(-4, 4), n_teachers=5, steps=2, generated_rows=5, warm_start_steps=2),
        {"n_projections": [1, 2]},
    ),
    "DPNetClassifier": (
        DPNetClassifier(bounds=(-4, 4), classes=[0, 1], hidden_layer_sizes=(3,), **NET),
        {"gradient_bound": [0.5, 1.0]},
    ),
}


def test_every_public_estimator_is_here():
    public = [name for name in skdpgen.__all__ if hasattr(getattr(skdpgen, name), "fit")]
    assert set(public) - set(ESTIMATORS) <= {"PrivatePipeline", "PrivateSearchCV", "TableEncoder"}


def _spread(estimator, X, y=None):
    return float(estimator.sample(20).std())


@pytest.mark.parametrize("books", ["memory", "file"])
@pytest.mark.parametrize(("n_jobs", "backend"), [(1, "loky"), (2, "threading")])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_charges_are_fits(name, n_jobs, backend, books, tmp_path):
    estimator, grid = ESTIMATORS[name]
    budget = PrivacyAccountant(200.0, ledger=tmp_path / "budget.db" if books == "file" else None)
    estimator = estimator.set_params(accountant=budget)
    with parallel_config(backend):
        options = {} if hasattr(estimator, "score") else {"scoring": _spread}
        search = GridSearchCV(estimator, grid, cv=FOLDS, n_jobs=n_jobs, error_score="raise", **options)
        search.fit(X, X[:, 0] > 0 if name == "DPNetClassifier" else None)
    assert len(budget.charges) == 2 * 2 + 1
    assert search.best_estimator_.accountant_ is budget
    assert budget.epsilon_spent() <= 200.0


def test_processes_charge_one_file(tmp_path):
    budget = PrivacyAccountant(200.0, ledger=tmp_path / "budget.db")
    with parallel_config("loky", n_jobs=2):  # the same two workers for all: they start once
        for k, name in enumerate(("DPPCA", "DPGaussianMixture", "P3GMSynthesizer")):
            estimator, grid = ESTIMATORS[name]
            estimator = estimator.set_params(accountant=budget)
            GridSearchCV(estimator, grid, cv=FOLDS, error_score="raise").fit(X)
            assert len(budget.charges) == 5 * (k + 1)


def test_books_in_memory_refuse_the_work_of_other_processes():
    budget = PrivacyAccountant(80.0)
    estimator, grid = ESTIMATORS["DPPCA"]
    search = GridSearchCV(estimator.set_params(accountant=budget), grid, cv=FOLDS, n_jobs=2, error_score="raise")
    with parallel_config("loky"), pytest.raises(RuntimeError, match="without a ledger file"):
        search.fit(X)
    assert not budget.charges
