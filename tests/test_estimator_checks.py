from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils import check_random_state

from skdpgen import (
    DPPCA,
    DPSGD,
    DataLensSynthesizer,
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPGaussianMixture,
    DPGMSynthesizer,
    DPMERFSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    GPATESynthesizer,
    GroupDivergence,
    GSWGANSynthesizer,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PATEGANSynthesizer,
    PriVAESynthesizer,
    PrivateSearchCV,
    SubsetSGD,
)
from skdpgen._base import PrivateEstimator
from skdpgen._types import NEIGHBORING
from skdpgen.accounting import Phase, PrivacyAccountant
from skdpgen.estimator_checks import check_private_estimator, parametrize_with_checks, private_estimator_checks
from skdpgen.exceptions import BudgetExceededError
from skdpgen.mechanisms import add_gaussian, moments
from skdpgen.nn import DPNet, DPNetClassifier, P3GMModule
from skdpgen.utils.noise import NoiseGenerator, make_noise_generator

ESTIMATORS = [
    DPPCA(2, epsilon=2.0),
    DPPCA(2, centering="two_round", neighboring="replace_one", bounds=(-1, 1), l2_bound=1.0),
    DPGaussianMixture(2, epsilon=2.0, n_iter=2),
    DPGaussianMixture(1, neighboring="replace_one", covariance_type="diag"),
    PrivateSearchCV(
        DPPCA(2, bounds=(-1, 1)),
        {"budget_split": [{"bounds": 0.05}, {"bounds": 0.1}]},
        runs="logarithmic",
        mean_runs=1.5,
        score_bounds=(-30, 10),
    ),
    MomentSynthesizer(epsilon=2.0),
    MomentSynthesizer(epsilon=2.0, neighboring="replace_one", bounds=(-1, 1), l2_bound=1.5),
    P3GMSynthesizer(epsilon=2.0),
    P3GMSynthesizer(epsilon=2.0, neighboring="replace_one", prior="mixture", bounds=(-1, 1), l2_bound=1.5),
    P3GMSynthesizer(epsilon=2.0, decoder="net", training=DPSGD(2, 0.1, warm_start_steps=2)),
    P3GMSynthesizer(
        epsilon=2.0, decoder="net", prior=LatentMixture(n_iter=2),
        training=DPSGD(2, 0.1, net=DPNet(P3GMModule, module__latent_variance="zero"), warm_start_steps=2),
    ),
    PriVAESynthesizer(epsilon=2.0, divergence=GroupDivergence(n_groups=2), n_components=2, training=DPSGD(2, 0.1)),
    PriVAESynthesizer(
        epsilon=2.0, neighboring="replace_one", prior="sparse", divergence=GroupDivergence("kl_prior", n_groups=2),
        n_components=2,
        training=DPSGD(2, batch_size=20), bounds=(-1, 1),
    ),
    DPVAESynthesizer(epsilon=2.0, n_components=2, training=DPSGD(2, 0.1)),
    DP2VAESynthesizer(epsilon=2.0, training=SubsetSGD(10, 2, pretrain_steps=2, warm_start_steps=2), n_components=2),
    DP2VAESynthesizer(
        epsilon=2.0, neighboring="replace_one",
        training=SubsetSGD(10, 2, sampler="one_of_k", encoder_update="on_query", pretrain_steps=2,
            warm_start_steps=0), n_components=2, bounds=(-1, 1),
    ),
    DPGMSynthesizer(epsilon=2.0, n_clusters=2, cluster_steps=2, n_components=2, training=DPSGD(2, 0.1)),
    DPGMSynthesizer(
        epsilon=2.0, neighboring="replace_one", n_clusters=3, cluster_steps=1, n_components=2, training=DPSGD(2, 1.0),
        bounds=(-1, 1),
    ),
    DPMERFSynthesizer(epsilon=2.0, steps=2, n_frequencies=8),
    DPMERFSynthesizer(epsilon=2.0, neighboring="replace_one", bounds=(-1, 1), l2_bound=1.5, steps=2, n_frequencies=8),
    DPCGANSynthesizer(epsilon=2.0, n_components=2, training=DPSGD(2, 0.1), n_critic=1),
    DPCGANSynthesizer(
        epsilon=2.0, neighboring="replace_one", n_components=2, training=DPSGD(2, batch_size=20), n_critic=2,
        bounds=(-1, 1)
    ),
    DPNetClassifier(2.0, steps=2, sampling_rate=0.1, hidden_layer_sizes=(3,)),
    DPSinkhornSynthesizer(epsilon=2.0, generated_rows=5, training=DPSGD(2, 0.1)),
    DPSinkhornSynthesizer(
        epsilon=2.0, neighboring="replace_one", bounds=(-1, 1), training=DPSGD(2, batch_size=20), generated_rows=5
    ),
    GSWGANSynthesizer(epsilon=2.0, n_critics=5, steps=2, generated_rows=5, warm_start_steps=2),
    GSWGANSynthesizer(
        epsilon=2.0, neighboring="replace_one", bounds=(-1, 1), n_critics=5, critics_per_step=2, steps=2,
        generated_rows=5, warm_start_steps=2,
    ),
    DataLensSynthesizer(epsilon=2.0, n_teachers=5, steps=2, generated_rows=5, warm_start_steps=2),
    DataLensSynthesizer(
        epsilon=2.0, neighboring="replace_one", bounds=(-1, 1), n_teachers=5, n_largest=1, threshold=0.2, steps=2,
        generated_rows=5, warm_start_steps=2,
    ),
    GPATESynthesizer(epsilon=2.0, n_teachers=5, steps=2, generated_rows=5, warm_start_steps=2),
    GPATESynthesizer(
        epsilon=2.0, neighboring="replace_one", bounds=(-1, 1), n_teachers=5, n_projections=3, n_bins=4, vote="largest",
        threshold=0.2, steps=2, generated_rows=5, warm_start_steps=2,
    ),
    PATEGANSynthesizer(epsilon=2.0, n_teachers=5, steps=2, labelled_rows=10),
    PATEGANSynthesizer(
        epsilon=2.0, neighboring="replace_one", bounds=(-1, 1), n_teachers=5, steps=2, labelled_rows=10
    ),
    DPNetClassifier(2.0, classes=[0, 1], bounds=(-1, 1), steps=2, sampling_rate=0.1, neighboring="replace_one"),
]  # fmt: skip


@parametrize_with_checks(ESTIMATORS)
def test_private_estimator(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [
        DPGaussianMixture(epsilon=2.0, classes=[0, 1]),
        DPGaussianMixture(epsilon=2.0),
        MomentSynthesizer(epsilon=2.0),
        P3GMSynthesizer(epsilon=2.0, classes=[0, 1]),
        P3GMSynthesizer(epsilon=2.0),
        PriVAESynthesizer(epsilon=2.0, divergence=GroupDivergence(n_groups=2), n_components=2, training=DPSGD(2, 0.1)),
        DPVAESynthesizer(epsilon=2.0, n_components=2, training=DPSGD(2, 0.1)),
        DPGMSynthesizer(epsilon=2.0, n_clusters=2, cluster_steps=2, n_components=2, training=DPSGD(2, 0.1)),
        DPMERFSynthesizer(epsilon=2.0, steps=2, n_frequencies=8),
        DPSinkhornSynthesizer(epsilon=2.0, generated_rows=5, training=DPSGD(2, 0.1)),
        DPCGANSynthesizer(epsilon=2.0, n_components=2, training=DPSGD(2, 0.1), n_critic=1),
        GSWGANSynthesizer(epsilon=2.0, n_critics=5, steps=2, generated_rows=5, warm_start_steps=2),
        DataLensSynthesizer(epsilon=2.0, n_teachers=5, steps=2, generated_rows=5, warm_start_steps=2),
        GPATESynthesizer(epsilon=2.0, n_teachers=5, steps=2, generated_rows=5, warm_start_steps=2),
        PATEGANSynthesizer(epsilon=2.0, n_teachers=5, steps=2, labelled_rows=10),
        DPNetClassifier(2.0, steps=2, sampling_rate=0.1, hidden_layer_sizes=(3,)),
    ],
    data=lambda estimator, n_rows, seed: (
        np.random.default_rng(seed).normal(size=(n_rows, 2)),
        np.random.default_rng(seed).integers(0, 2, n_rows),
    ),
)
def test_private_estimator_with_labels(estimator, check):
    check(estimator)


# The exact number of rows as an attribute, of any type that numbers have.
_NUMBERS = {
    "count": int,
    "count as a float": float,
    "numpy's count": np.int64,
    "numpy's float": np.float32,
    "an array": np.array,
}


class _Means(PrivateEstimator):
    """Releases a mean; `fault` breaks one promise."""

    def __init__(
        self,
        fault=None,
        *,
        epsilon=1.0,
        delta=None,
        neighboring=None,
        accountant=None,
        noise="secure",
        random_state=None,
    ):
        self.fault = fault
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring = neighboring
        self.accountant = accountant
        self.noise = noise
        self.random_state = random_state

    def _resolve_accountant(self):
        if self.fault == "dear" and self.accountant is None:
            return PrivacyAccountant(2 * self.epsilon)
        if self.fault == "any relation" and self.accountant is not None and self.neighboring in NEIGHBORING:
            return self.accountant
        return super()._resolve_accountant()

    def _prepare(self, X, y, accountant):
        if self.fault == "dear":
            self.epsilon = 2 * self.epsilon
        phases = [Phase("moments", 1.0, steps=len(X) if self.fault == "event" else 1)]
        return X, self._calibrate(accountant, phases)

    def fit(self, X, y=None):
        if self.epsilon is None or self.epsilon <= 0 or (self.delta is not None and not 0 < self.delta < 1):
            raise ValueError("epsilon or delta")
        if not len(X) or not np.isfinite(X).all():
            raise ValueError("rows")
        with self._fitting():
            accountant = self._resolve_accountant()
            X, plan = self._prepare(X, y, accountant)
            if self.fault == "early":
                self.early_ = add_gaussian(moments(X), 1.0, make_noise_generator(), "add_or_remove_one")
            if self.fault == "twice":
                accountant.charge(plan.event, plan.label)
            if self.fault == "late":
                make_noise_generator(self.noise).random()
            try:
                rng = self._charge(accountant, plan)
            except BudgetExceededError:
                if self.fault == "refused":
                    make_noise_generator(self.noise).random()
                raise
            if self.fault == "seeded":
                rng = NoiseGenerator("seeded", seed=check_random_state(self.random_state).randint(100))
            if self.fault == "rows":
                self.rows_ = {"kept": [X[:, 0]]}
            if self.fault in _NUMBERS:
                self.n_samples_ = _NUMBERS[self.fault](len(X))
            noise = plan.noise_multipliers["moments"]
            self.released_ = add_gaussian(moments(X), noise, rng, accountant.neighboring)
            if self.fault == "card":  # of a ledger that was charged for other noise
                self.accountant_, rng = PrivacyAccountant(accountant.epsilon), NoiseGenerator(self.noise)
                self.accountant_.charge(plan.event, plan.label, plan.extra_delta)
            self._issue_card(plan, rng, [])
            self.accountant_ = accountant
        return self

    def transform(self, X):
        return X


def test_an_honest_estimator_passes():
    check_private_estimator(_Means())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("event", "depends on the data"),
        ("early", "before the charge"),
        ("twice", "2 charges"),
        ("seeded", "no noise was drawn"),
        ("rows", "one entry for each row"),
        *((fault, "number of rows") for fault in _NUMBERS),
    ],
)
def test_each_broken_promise_is_caught(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_private_estimator(_Means(fault))


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("late", "check_charge_precedes_every_draw_of_noise"),
        ("late", "check_an_interrupted_fit_is_charged_and_not_fitted"),
        ("refused", "check_full_budget_refuses_and_releases_nothing"),
        ("dear", "check_epsilon_agrees_with_the_ledger"),
        ("any relation", "check_another_relation_is_refused"),
        ("card", "check_noise_is_on_the_card"),
    ],
)
def test_each_check_finds_what_it_is_for(fault, name):
    """By itself: another check that finds the same fault does not make up for it."""
    check = next(check for check in private_estimator_checks() if check.__name__ == name)
    check(_Means())
    with pytest.raises(AssertionError):
        check(_Means(fault))
