"""Subsets: a record is in one alone, draws have the law that is accounted, and the plan couples the two."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from _charged import charged

from skdpgen.accounting import describe_event
from skdpgen.dpsgd._subsets import KeyedStream, SubsetPlan, assign_subsets, hash_subsets, subset_draws
from skdpgen.utils.noise import make_noise_generator


class _FixedKey:
    """A generator whose bytes are always the same: the key of one fit."""

    def random_bytes(self, n):
        return bytes(range(n))


def test_records_draw_their_subsets_independently_and_uniformly():
    subsets = assign_subsets(100_000, 50, make_noise_generator())
    counts = np.bincount(subsets, minlength=50)
    # binomial, not equal: an equal split would move another record when one joins
    assert 0.5 < counts.var() / (100_000 / 50 * (1 - 1 / 50)) < 1.8
    pairs = np.bincount(subsets[:-1] * 50 + subsets[1:], minlength=2500)
    assert pairs.var() / pairs.mean() < 1.25


def test_a_record_that_leaves_moves_no_other_record_to_another_subset():
    ids = [f"id-{i * 7919 % 10007}" for i in range(300)]
    whole = hash_subsets(ids, 40, _FixedKey())
    for gone in (0, 17, 299):
        rest = hash_subsets(ids[:gone] + ids[gone + 1 :], 40, _FixedKey())
        np.testing.assert_array_equal(rest, np.delete(whole, gone))


def test_the_key_of_the_hash_is_secret():
    ids = np.array([5, 700, 31])
    one = hash_subsets(ids, 1000, make_noise_generator())
    assert any((hash_subsets(ids, 1000, make_noise_generator()) != one).any() for _ in range(3))


@pytest.mark.parametrize(
    "ids", [range(50), range(1, 51), [1.5, 2.0], ["a", None], [True, False], [7, 9, 7.0], ["a", "b", "a"]]
)
def test_ids_that_would_not_do_are_refused(ids):
    with pytest.raises(ValueError, match="ids"):
        hash_subsets(list(ids), 10, make_noise_generator())


def test_poisson_draws_have_the_variance_of_independent_ones():
    plan = SubsetPlan(200, 4000, 1.0, per_step=10)
    sizes = np.array([len(drawn) for drawn in subset_draws(plan, make_noise_generator())])
    assert len(sizes) == 4000
    assert abs(sizes.mean() - 10) < 5 * (9.5 / 4000) ** 0.5
    assert 0.85 < sizes.var() / 9.5 < 1.15


def test_one_of_k_draws_exactly_one_uniformly():
    drawn = list(subset_draws(SubsetPlan(20, 4000, 1.0, sampler="one_of_k"), make_noise_generator()))
    assert {len(d) for d in drawn} == {1}
    counts = np.bincount(np.concatenate(drawn), minlength=20)
    assert abs(counts - 200).max() < 5 * 14


@pytest.mark.parametrize("sampler", ["poisson", "one_of_k"])
def test_hidden_draws_of_two_steps_are_independent(sampler):
    """Subsets that are taken in turn, in a hidden order, are drawn uniformly and have no amplification."""
    k, steps = 8, 6000
    drawn = np.zeros((steps, k))
    for row, units in zip(drawn, subset_draws(SubsetPlan(k, steps, 1.0, sampler=sampler), make_noise_generator())):
        row[units] = 1.0
    rate = 1 / k
    for lag in range(1, 2 * k + 1):
        agreeing = float((drawn[lag:] * drawn[:-lag]).sum(1).mean())  # subsets that are drawn at both steps
        assert abs(agreeing - k * rate**2) < 6 * rate**0.5 / (steps - lag) ** 0.5, lag
    # drawn with replacement: as often as a binomial number, neither more evenly nor less
    counts = drawn.reshape(-1, 2 * k, k).sum(1)
    assert 0.8 < counts.var() / (2 * k * rate * (1 - rate)) < 1.2


@pytest.mark.parametrize(("n_subsets", "per_step", "steps"), [(7, 3, 20), (2500, 1, 10_000), (5, 5, 3), (12, 4, 3)])
def test_the_balanced_schedule_is_public_and_visits_as_often_as_it_is_charged_for(n_subsets, per_step, steps):
    plan = SubsetPlan(n_subsets, steps, 1.0, per_step=per_step, sampler="balanced")
    one, other = (list(subset_draws(plan, make_noise_generator())) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, other))
    assert all(len(set(d.tolist())) == per_step for d in one)
    counts = np.bincount(np.concatenate(one), minlength=n_subsets)
    assert counts.max() == plan.visits
    assert describe_event(plan.event)[0]["count"] == plan.visits


@pytest.mark.parametrize(
    ("sampler", "update", "mechanism", "reach"),
    [
        ("poisson", "stateless", "poisson_subsets", 0.5),
        ("poisson", "frozen", "poisson_subsets", 0.5),
        ("poisson", "round_robin", "poisson_subsets", 0.5),
        ("poisson", "on_query", "index_revealed", 1.0),
        ("one_of_k", "stateless", "one_of_k", 1.0),
        ("one_of_k", "round_robin", "one_of_k", 1.0),
        ("one_of_k", "on_query", "index_revealed", 1.0),
        ("balanced", "on_query", "gaussian", 1.0),
        ("balanced", "frozen", "gaussian", 1.0),
    ],
)
def test_each_combination_has_its_own_sound_event(sampler, update, mechanism, reach):
    plan = SubsetPlan(10, 40, 1.5, gradient_bound=0.5, sampler=sampler, encoder_update=update)
    assert plan.mechanism == mechanism
    assert plan.l2_bound == reach
    assert plan.noise_std == 1.5 * reach
    row = describe_event(plan.event)[0]
    assert row["mechanism"] == mechanism
    assert row["noise_multiplier"] == 1.5
    assert row["sampling_rate"] == (None if mechanism == "gaussian" else 0.1)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"per_step": 11}, "more than"),
        ({"per_step": 2, "sampler": "one_of_k"}, "no sound cost"),
        ({"sampler": "shuffle"}, "sampler must be"),
        ({"encoder_update": "shared"}, "encoder_update must be"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"n_subsets": 2.5}, "whole number"),
        ({"gradient_bound": 0.0}, "gradient_bound"),
    ],
)
def test_plans_without_a_sound_price_are_refused(parameters, told):
    with pytest.raises(ValueError, match=told):
        SubsetPlan(**{"n_subsets": 10, "steps": 5, "noise_multiplier": 1.0, **parameters})


def test_a_plan_without_noise_is_not_private():
    plan = SubsetPlan(10, 5, 0.0)
    assert not plan.private
    assert describe_event(plan.event)[0]["mechanism"] == "non_private"
    assert plan.clip_norm == np.inf


# ---- the keyed stream ---------------------------------------------------------------------------------------------
def test_draws_are_a_function_of_purpose_unit_and_step_alone():
    stream = KeyedStream(bytes(range(16)))
    whole = stream.uniform(1, np.arange(10), 3, 6)
    np.testing.assert_array_equal(stream.uniform(1, np.array([7, 2]), 3, 6), whole[[7, 2]])
    np.testing.assert_array_equal(stream.uniform(1, np.arange(10), 3, 4), whole[:, :4])
    for other in (stream.uniform(2, np.arange(10), 3, 6), stream.uniform(1, np.arange(10), 4, 6)):
        assert not np.isin(other, whole).any()
    assert not np.isin(KeyedStream(bytes(16)).uniform(1, np.arange(10), 3, 6), whole).any()


def test_keyed_draws_are_uniform_normal_and_uncorrelated():
    stream = KeyedStream(make_noise_generator().random_bytes(16))
    uniforms, normals = stream.uniform(0, np.arange(500), 0, 200), stream.normal(1, np.arange(500), 0, 200)
    counts = np.histogram(uniforms, 20, (0, 1))[0]
    assert ((counts - 5000) ** 2 / 5000).sum() < 60
    assert abs(normals.mean()) < 0.02
    assert abs(normals.std() - 1) < 0.02
    for draws in (uniforms - 0.5, normals):
        correlation = np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]
        assert abs(correlation) < 0.02
        assert abs(np.corrcoef(draws[:, :-1].ravel(), draws[:, 1:].ravel())[0, 1]) < 0.02


def test_a_plan_that_was_charged_once_is_followed_once():
    plan = charged(SubsetPlan(5, 7, 1.0))
    plan.claim(object())
    for again in (plan, copy.copy(plan), copy.deepcopy(plan)):
        with pytest.raises(RuntimeError, match="used by another training"):
            again.claim(object())
    for other in (SubsetPlan(5, 7, 1.0), dataclasses.replace(plan), pickle.loads(pickle.dumps(plan))):
        assert other == plan
        with pytest.raises(RuntimeError, match="was not charged"):
            other.claim(object())
    free = SubsetPlan(5, 7, 0.0)
    for _ in range(2):
        free.claim(object())
