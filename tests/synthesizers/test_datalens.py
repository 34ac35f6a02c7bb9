"""DataLens as an estimator: what is charged, what is released, and what is refused before."""

from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS
from sklearn.datasets import load_digits

from skdpgen import DataLensSynthesizer, PrivacyAccountant
from skdpgen.accounting import Receipt, describe_event, epsilon_pld, gaussian_event
from skdpgen.dpsgd import GradientNoise

FITTED = ("arrays, signs", "arrays, signs, replace_one", "frame, signs", "frame, signs of units")
FAST = {
    "n_teachers": 9, "steps": 3, "generated_rows": 10, "n_largest": 7, "warm_start_steps": 2, "batch_size": 3,
    "hidden_layer_sizes": (6,), "teacher_sizes": (5,),
}  # fmt: skip
X, Y = load_digits(return_X_y=True)


def made(epsilon=3.0, **parameters):
    given = {"bounds": (0, 16), "classes": range(10), "random_state": 0, **FAST, **parameters}
    return DataLensSynthesizer(epsilon, **given)


def all_rows_of_a_step_are_one_release(relation, n_largest=7):
    """The noise is for 2 sqrt(n m), whatever the votes are, and is charged as a Gaussian one, without amplification."""
    plans, released, cover, shipped = [], [], Receipt.cover, GradientNoise.release

    def release(noise, bounded, *rest, **options):
        released.append(noise.noise_multiplier * bounded.add_or_remove_one)
        assert bounded.value[0].shape == (10, 64)
        return shipped(noise, bounded, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Receipt, "cover", lambda receipt, plan: plans.append(plan) or cover(receipt, plan))
        patch.setattr(GradientNoise, "release", release)
        synth = made(neighboring=relation, n_largest=n_largest).fit(X, Y)
    (plan,), (charge,) = plans, synth.accountant_.charges
    counts, signs = describe_event(charge.event)
    assert (counts["mechanism"], counts["count"]) == ("gaussian", 1)
    assert (signs["mechanism"], signs["sampling_rate"], signs["count"]) == ("gaussian", None, 3)
    expected = 2 * np.sqrt(min(n_largest, 64) * 10) * signs["noise_multiplier"]
    assert plan.noise_std == pytest.approx(expected)
    assert released == pytest.approx([expected] * 3)
    alone = gaussian_event(signs["noise_multiplier"], 3)
    assert 0.9 * 3 < epsilon_pld(alone, 1e-5, relation) < synth.card_["fit"]["epsilon"] <= 3.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_all_rows_of_a_step_are_one_release(relation):
    all_rows_of_a_step_are_one_release(relation)


def test_no_more_signs_are_charged_than_a_row_has_columns():
    all_rows_of_a_step_are_one_release("add_or_remove_one", n_largest=100)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_largest": 0}, "n_largest"),
        ({"threshold": -0.1}, "threshold"),
        ({"threshold": 1.1}, "threshold"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_charge(parameters, match):
    accountant = PrivacyAccountant(1.0)
    with pytest.raises(ValueError, match=match):
        made(None, accountant=accountant, **parameters).fit(X, Y)
    assert not accountant.entries
