"""G-PATE as an estimator: what is charged, what is released, and what is refused before."""

from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS, assert_refused_before_the_charge
from _fits import votes_are_one_release_a_step
from sklearn.datasets import load_digits

from skdpgen import GPATESynthesizer, PrivacyAccountant

FITTED = ("arrays, histograms", "arrays, histograms, replace_one", "frame, histograms", "frame, histograms of units")
FAST = {
    "n_teachers": 9, "steps": 3, "generated_rows": 10, "n_projections": 3, "n_bins": 4, "warm_start_steps": 2,
    "batch_size": 3, "hidden_layer_sizes": (6,), "teacher_sizes": (5,),
}  # fmt: skip
X, Y = load_digits(return_X_y=True)


def made(epsilon=3.0, **parameters):
    given = {"bounds": (0, 16), "classes": range(10), "random_state": 0, **FAST, **parameters}
    return GPATESynthesizer(epsilon, **given)


def all_rows_of_a_step_are_one_release(relation):
    """The noise is for sqrt(2 p m)."""
    votes_are_one_release_a_step(made(neighboring=relation), (X, Y), (10, 3, 4), np.sqrt(2 * 3 * 10))


@pytest.mark.parametrize("relation", RELATIONS)
def test_all_rows_of_a_step_are_one_release(relation):
    all_rows_of_a_step_are_one_release(relation)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_projections": 0}, "n_projections"),
        ({"n_bins": 1}, "n_bins"),
        ({"gradient_range": 0.0}, "gradient_range"),
        ({"vote": "median"}, "vote"),
        ({"threshold": 0.2}, 'threshold= is used only with vote="largest"'),
        (
            {"n_projections": 1024, "n_bins": 1024},
            "generated_rows=10, n_projections=1024, n_bins=1024: the model would have",
        ),
        ({"threshold": -0.1}, "threshold"),
        ({"threshold": 1.1}, "threshold"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_charge(parameters, match):
    assert_refused_before_the_charge(made(None, **parameters), match, X, Y)


def noise_too_large_for_votes_is_refused_before_the_charge():
    """The lattice of the noise would be wider than a vote, and sums would move further than the votes that change."""
    accountant = PrivacyAccountant(1e-6, 1e-12)
    synth = made(None, accountant=accountant, generated_rows=200, n_projections=30)
    with pytest.raises(ValueError, match="too large for votes"):
        synth.fit(X, Y)
    assert not accountant.entries


def test_noise_too_large_for_votes_is_refused_before_the_charge():
    noise_too_large_for_votes_is_refused_before_the_charge()
