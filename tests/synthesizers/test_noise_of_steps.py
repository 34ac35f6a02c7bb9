"""Noise of steps that is too large for the proof of rounding is refused before the charge, by all that train so."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from _flat import make_flat

from skdpgen import (
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPGMSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    GSWGANSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
)
from skdpgen.accounting import _calibration
from skdpgen.exceptions import UtilityWarning
from skdpgen.model_selection import PrivateSearchCV
from skdpgen.nn import DPNetClassifier

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.tile([0, 1], 30)
_STEPS = {"steps": 2000, "sampling_rate": 0.5}
TRAINED = {
    "P3GM": lambda: make_flat(P3GMSynthesizer, decoder="net", **_STEPS),
    "DP-VAE": lambda: make_flat(DPVAESynthesizer, warm_start_steps=0, **_STEPS),
    "PriVAE": lambda: make_flat(PriVAESynthesizer, warm_start_steps=0, n_groups=2, **_STEPS),
    "DP-GM": lambda: make_flat(DPGMSynthesizer, n_clusters=2, **_STEPS),
    "DP2-VAE, subsets drawn": lambda: make_flat(
        DP2VAESynthesizer, n_subsets=5, steps=2000, warm_start_steps=0, sampler="one_of_k"
    ),
    "DP2-VAE, subsets in turn": lambda: make_flat(
        DP2VAESynthesizer, n_subsets=5, steps=2000, warm_start_steps=0, sampler="balanced"
    ),
    "DP-CGAN": lambda: make_flat(DPCGANSynthesizer, **_STEPS),
    "DP-Sinkhorn": lambda: make_flat(DPSinkhornSynthesizer, **_STEPS),
    "GS-WGAN": lambda: GSWGANSynthesizer(n_critics=5, steps=2000),
    "classifier": lambda: DPNetClassifier(**_STEPS),
}


def noise_too_large_for_gradients_is_refused_before_the_charge(name):
    accountant = PrivacyAccountant(1e-6, 1e-12)
    estimator = TRAINED[name]().set_params(accountant=accountant, epsilon=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        with pytest.raises(ValueError, match="too large for gradients"):
            estimator.fit(X, Y)
    assert not accountant.entries


@pytest.mark.parametrize("name", TRAINED)
def test_noise_too_large_for_gradients_is_refused_before_the_charge(name):
    noise_too_large_for_gradients_is_refused_before_the_charge(name)


def noise_of_a_candidate_that_is_too_large_is_refused_before_the_charge():
    """The second candidate has more noise in a step. A search costs too much where noise is really too large."""
    accountant = PrivacyAccountant(1.0)
    search = PrivateSearchCV(
        DPNetClassifier(hidden_layer_sizes=(5,), classes=[0, 1], steps=10),
        {"sampling_rate": [0.01, 1.0]},
        scoring=lambda fitted, X, y: fitted.score(X, y),
        public_data=(X, Y),
        accountant=accountant,
        epsilon=None,
    )
    planned = search.set_params(epsilon=1.0).plan(X, Y).noise_multipliers
    noise = sorted(value for label, value in planned.items() if label.endswith("network"))
    assert len(noise) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_calibration, "_MOST_NOISE_OF_STEPS", 0.9 * noise[1])
        with pytest.raises((ValueError, RuntimeError), match="too large for gradients"):
            search.set_params(epsilon=None).fit(X, Y)
        assert not accountant.entries


def test_noise_of_a_candidate_that_is_too_large_is_refused_before_the_charge():
    noise_of_a_candidate_that_is_too_large_is_refused_before_the_charge()
