"""GS-WGAN as an estimator: what is charged, what is released, and what is refused before."""

from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS, assert_refused_before_the_charge
from _fits import networks_of_many_levels_are_refused
from sklearn.datasets import load_digits

from skdpgen import GSWGANSynthesizer
from skdpgen.accounting import Receipt, describe_event, epsilon_pld, gaussian_event, subset_gaussian_event

FITTED = (
    "arrays, critics", "arrays, sampled critics", "arrays, critics, replace_one", "frame, critics",
    "frame, critics of units",
)  # fmt: skip
FAST = {
    "n_critics": 9, "steps": 3, "generated_rows": 10, "warm_start_steps": 2, "batch_size": 3,
    "hidden_layer_sizes": (6,), "critic_sizes": (5,),
}  # fmt: skip
X, Y = load_digits(return_X_y=True)


def made(epsilon=3.0, **parameters):
    given = {"bounds": (0, 16), "classes": range(10), "random_state": 0, **FAST, **parameters}
    return GSWGANSynthesizer(epsilon, **given)


def _fitted(**parameters):
    """A fit, its plan and the two rows of its charge: counts and gradients."""
    plans, cover = [], Receipt.cover
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Receipt, "cover", lambda receipt, plan: plans.append(plan) or cover(receipt, plan))
        synth = made(gradient_bound=0.7, **parameters).fit(X, Y)
    (plan,), (charge,) = plans, synth.accountant_.charges
    counts, gradients = describe_event(charge.event)
    assert (counts["mechanism"], counts["count"]) == ("gaussian", 1)
    return synth, plan, gradients


def all_images_of_a_step_are_one_release(relation):
    """Its noise is for 2 C sqrt(m), and it is charged as a Gaussian one, without amplification."""
    synth, plan, gradients = _fitted(neighboring=relation)
    assert (gradients["mechanism"], gradients["sampling_rate"], gradients["count"]) == ("gaussian", None, 3)
    assert plan.noise_std == pytest.approx(2 * 0.7 * np.sqrt(10) * gradients["noise_multiplier"])
    alone = gaussian_event(gradients["noise_multiplier"], 3)
    assert 0.9 * 3 < epsilon_pld(alone, 1e-5, relation) < synth.card_["fit"]["epsilon"] <= 3.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_all_images_of_a_step_are_one_release(relation):
    all_images_of_a_step_are_one_release(relation)


def sampled_critics_are_charged_as_subsets(relation):
    """Once a step, and not once for every image of it; the pair holds a move from one end to the other."""
    synth, plan, gradients = _fitted(neighboring=relation, critics_per_step=3)
    assert plan.mechanism == "poisson_subsets"
    assert (gradients["count"], gradients["sampling_rate"]) == (3, pytest.approx(1 / 3))
    assert plan.noise_std == pytest.approx(0.7 * np.sqrt(10) * gradients["noise_multiplier"])
    alone = subset_gaussian_event("poisson_subsets", 1 / 3, gradients["noise_multiplier"], 3)
    assert 0.9 * 3 < epsilon_pld(alone, 1e-5, relation) < synth.card_["fit"]["epsilon"] <= 3.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_sampled_critics_are_charged_as_subsets(relation):
    sampled_critics_are_charged_as_subsets(relation)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"critics_per_step": 10}, "critics_per_step=10 must be at most n_critics=9"),
        ({"gradient_bound": 0.0}, "gradient_bound"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_charge(parameters, match):
    assert_refused_before_the_charge(made(None, **parameters), match, X, Y)


@pytest.mark.parametrize("target", [None, "code"])
def test_critics_of_many_declared_levels_are_refused_before_the_charge(target):
    networks_of_many_levels_are_refused(
        GSWGANSynthesizer, target, n_critics=1000, steps=1, warm_start_steps=0, critic_steps=1, generated_rows=2,
        batch_size=1,
    )  # fmt: skip
