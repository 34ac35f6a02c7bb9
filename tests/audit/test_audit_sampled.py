"""Audits of DP-SGD on samples, and of few groups: tight for the right code, and its mistakes are found."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from _sabotage import Claim, assert_caught, mutant_ids, patch_source

from skdpgen.accounting import gaussian_mu
from skdpgen.audit import _audit as audits
from skdpgen.audit import audit_training, audit_trainings
from skdpgen.audit._sampled import SampledScores, _distance, scores_of_steps
from skdpgen.dpsgd import DPSGDPlan, PoissonLoader, TermwisePlan
from skdpgen.testing import seeded_noise

SAMPLED = DPSGDPlan(0.1, 20, 1.0, noise_multiplier=0.7, expected_batch_size=200)
GROUPS = TermwisePlan(1.0, 1, noise_multiplier=1.0, expected_batch_size=1000, n_groups=16, group_bound=0.1)


def _scores(plan, n, rng, scale=1.0, drawn=None):
    """Scores of `n` canaries left out, and of `n` that were among the records, by definition."""
    shape, q = (n, plan.steps), plan.sampling_rate
    takes_part = rng.random(shape) < q if drawn is None else drawn
    sums = [scale * plan.noise * rng.normal(size=shape) + added for added in (0.0, takes_part)]
    return [scores_of_steps(side, plan.noise, q).sum(axis=1) for side in sums]


MODEL = type("Steps", (), {"sampling_rate": 0.1, "steps": 10, "noise": 0.6})


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_scores_have_the_moments_that_are_computed(scale):
    without, within = _scores(MODEL, 100_000, np.random.default_rng(0), scale)
    found = SampledScores(MODEL.sampling_rate, MODEL.steps, MODEL.noise).moments(scale)
    for side, mean, variance in ((without, *found[:2]), (within, *found[2:])):
        assert side.mean() == pytest.approx(mean, abs=4 * side.std() / len(side) ** 0.5)
        assert side.var() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0])
def test_the_distance_falls_as_noise_grows(rate):
    """So the largest noise that is not excluded is the bound; of all records it is the distance of Gaussians."""
    model, scales = SampledScores(rate, 9, 0.8), np.geomspace(1 / 16, 16, 40)
    distances = [model.distance(scale) for scale in scales]
    assert (np.diff(distances) < 0).all()
    if rate == 1:
        assert np.allclose(distances, 3 / (0.8 * scales))


def the_bound_of_sampled_scores_holds_at_its_confidence():
    rng, model = np.random.default_rng(1), SampledScores(MODEL.sampling_rate, MODEL.steps, MODEL.noise)
    found = [model.bound(*_scores(MODEL, 200, rng))["noise_upper"] for _ in range(300)]
    failures = sum(upper is not None and upper < 1 for upper in found)
    assert failures <= 0.05 * 300 + 3 * math.sqrt(0.05 * 0.95 * 300), f"{failures} of 300"
    assert failures > 0.02 * 300


def test_the_bound_of_sampled_scores_holds_at_its_confidence():
    the_bound_of_sampled_scores_holds_at_its_confidence()


def records_drawn_again_and_again_do_not_pass_for_samples():
    """The mean of the scores is that of samples, and some records are in every step."""
    rng, model = np.random.default_rng(2), SampledScores(MODEL.sampling_rate, MODEL.steps, MODEL.noise)
    again = np.repeat(rng.random((2000, 1)) < MODEL.sampling_rate, MODEL.steps, axis=1)
    assert not model.bound(*_scores(MODEL, 2000, rng, drawn=again))["fits"]
    assert model.bound(*_scores(MODEL, 2000, rng))["fits"]


def test_records_drawn_again_and_again_do_not_pass_for_samples():
    records_drawn_again_and_again_do_not_pass_for_samples()


def test_a_training_on_samples_shows_most_of_its_claim():
    with seeded_noise(3, quiet=True):
        result = audit_training(SAMPLED, canaries=4000, guesses=40, rng=np.random.default_rng(3))
    assert not result.broken, str(result)
    assert result.details["fits"]
    assert result.details["mu_lower"] > 0.8 * result.details["mu_claimed"]
    assert result.details["mu_claimed"] == pytest.approx(gaussian_mu(result.epsilon_claimed, 1e-5))


def test_half_the_noise_of_a_training_on_samples_is_found():
    result = audit_training(SAMPLED, canaries=500, guesses=20, noise_scale=0.5, rng=np.random.default_rng(4))
    assert result.broken, str(result)
    assert result.details["fits"]


def test_scores_that_show_nothing_bound_nothing():
    model, scores = SampledScores(0.1, 20, 0.7), np.random.default_rng(5).normal(size=(2, 40))
    assert model.bound(scores[0], scores[0])["noise_upper"] is None
    assert model.epsilon(None, SAMPLED, 1e-5) == 0
    alike = model.bound(np.zeros(40), np.zeros(40))
    assert (alike["noise_upper"], alike["distance"]) == (None, 0)
    without_noise = model.bound(np.zeros(40), np.ones(40))
    assert without_noise["noise_upper"] < 0.1


def test_a_training_that_draws_the_same_records_again_is_found(monkeypatch):
    patch_source(
        monkeypatch,
        PoissonLoader.__iter__,
        (
            "for $indices in poisson_batches($self._n_sampled, $plan.sampling_rate, $plan.steps, $self._rng):\n"
            "    $body",
            "for $indices in [next(poisson_batches($self._n_sampled, $plan.sampling_rate, 1, $self._rng))] * "
            "$plan.steps:\n    $body",
        ),
    )
    monkeypatch.setattr(audits, "_epsilon_of_errors", lambda *arguments: 1.0)
    result = audit_training(SAMPLED, canaries=2000, guesses=40, rng=np.random.default_rng(6))
    assert not result.details["fits"]
    assert result.epsilon_lower == 1.0


# ---- many trainings with one canary --------------------------------------------------------------------------------
def a_canary_in_one_of_few_groups_adds_all_that_is_charged():
    """C1 + 2 C2 B/b, less the distance at which gradients are clipped: measured, and not computed alone."""
    details = audit_trainings(dataclasses.replace(GROUPS, noise_multiplier=0.05), trainings=20).details
    assert details["mu_added"] == pytest.approx(details["mu_claimed"], rel=0.02)
    assert details["mu_added"] <= details["mu_claimed"]
    assert details["normality"] > 0  # 0 where the measured shift is another
    assert details["mu_by_shift"] == pytest.approx(details["mu_claimed"], rel=0.5)


def test_a_canary_in_one_of_few_groups_adds_all_that_is_charged():
    a_canary_in_one_of_few_groups_adds_all_that_is_charged()


@pytest.mark.parametrize(
    ("scale", "plan"),
    [(1.0, GROUPS), (1.0, DPSGDPlan(1.0, 2, 1.0, 2.0, 100)), (0.5, GROUPS)],
    ids=["16 groups", "no group, two steps", "half the noise"],
)
def test_many_trainings_with_one_canary_find_half_the_noise_alone(scale, plan):
    with seeded_noise(7, quiet=True):
        result = audit_trainings(plan, trainings=40, confidence=0.999, noise_scale=scale)
    assert result.broken == (scale < 1), str(result)
    assert result.details["noise_measured"] == pytest.approx(scale, rel=0.5)
    assert result.n_fits == 40


def test_c2_mistaken_for_2_c2_is_found_in_sixteen_groups(monkeypatch):
    patch_source(monkeypatch, TermwisePlan.__post_init__, ("2 * self.group_bound", "self.group_bound"))
    mistaken = TermwisePlan(1.0, 1, noise_multiplier=1.0, expected_batch_size=1000, n_groups=16, group_bound=0.1)
    assert audit_trainings(mistaken, trainings=60, confidence=0.999).broken


def test_trainings_on_samples_are_scored_as_samples():
    plan = TermwisePlan(0.5, 4, noise_multiplier=0.5, expected_batch_size=100, n_groups=2, group_bound=1.0)
    with seeded_noise(8, quiet=True):
        result = audit_trainings(plan, trainings=40)
    assert result.details["fits"]
    assert 0 < result.epsilon_lower < 1.5 * result.epsilon_claimed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainings": 19}, "trainings must be a whole number"),
        ({"confidence": 1.0}, "confidence must lie in"),
        ({"noise_scale": 0.0}, "noise_scale must be positive"),
        ({"plan": dataclasses.replace(GROUPS, noise_multiplier=0.0)}, "claims no epsilon"),
        ({"plan": dataclasses.replace(GROUPS, neighboring="replace_one")}, "replace_one makes no promise"),
    ],
)
def test_trainings_that_show_nothing_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        audit_trainings(**{"plan": GROUPS, **changes})


HOLDS = Claim(the_bound_of_sampled_scores_holds_at_its_confidence)
MUTANTS = [
    ("a point estimate for a bound", [HOLDS], (SampledScores.bound, ("$measured - $far * $error", "$measured"))),
    (
        "the deviation for known",
        [HOLDS],
        (_distance, ("-$own - $distance / 2 * ($own**2 - 1)", "-0.1 * $own")),
    ),
    (
        "whatever the spread",
        [Claim(records_drawn_again_and_again_do_not_pass_for_samples)],
        (SampledScores.bound, ("abs($off) <= _TOO_FAR", "True")),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])


def test_the_claimed_reach_of_a_canary_is_its_clipped_gradient():
    assert audits._reach(SAMPLED) == SAMPLED.clip_norm
    assert audits._reach(GROUPS) == GROUPS.sample_bound / (1 + GROUPS.slack)
