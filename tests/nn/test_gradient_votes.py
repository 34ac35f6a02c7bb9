"""Votes of critics on their gradients: how far a record moves their sum, and what they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from _claims import RELATIONS
from test_critics import BASE, GENERATED, K, M, plan_of, taught

from skdpgen.nn import _critics
from skdpgen.nn._gradient_votes import LargestSigns, bound_of_votes

# On one side of the generated rows, and far on the other: in both columns, and more so in the first.
LOW, HIGH = (0, (-0.3, -0.1)), (0, (9.0, 4.5))
PAIRS = {
    "add_or_remove_one": ([LOW, *BASE], [LOW, HIGH, *BASE]),
    "replace_one": ([LOW, *BASE], [HIGH, *BASE]),
}


def moved(votes, one, other, plan):
    """How far the sums of two sets of critics are apart, and the claim."""
    sums = [votes.total(critics, np.arange(K), GENERATED, plan) for critics in (one, other)]
    return float((sums[0].value[0] - sums[1].value[0]).double().square().sum().sqrt()), sums[0]


def a_record_turns_the_signs_of_one_teacher_at_all_rows(relation):
    """2 sqrt(n) at each of the m rows together: attained where all signs turn, and never exceeded."""
    plan, learned = plan_of(), {"loss": "logistic", "penalty": 0.0, "learning_rate": 10.0}
    for n in (1, 2, 5):
        votes = LargestSigns(n)
        worst, bounded = moved(votes, *(taught(records, 20, **learned) for records in PAIRS[relation]), plan)
        sensitivity = bounded.sensitivity(relation)
        assert sensitivity == pytest.approx(2 * math.sqrt(n * M), rel=1e-6)
        assert worst <= sensitivity
        if n <= 2:  # a row has two columns
            assert worst == pytest.approx(sensitivity, rel=1e-6)
    rng = np.random.default_rng(0)
    for scale in (0.1, 3.0, 1e6):
        rows = [(int(j), tuple(row)) for j, row in zip(rng.integers(0, K, 12), scale * rng.normal(size=(12, 2)))]
        other = rows[1:] if relation == "add_or_remove_one" else [(rows[0][0], (5.0, -scale)), *rows[1:]]
        for n in (1, 2):
            made = (taught(records, sizes=(5,), loss="logistic") for records in (rows, other))
            distance, bounded = moved(LargestSigns(n), *made, plan)
            assert distance <= bounded.sensitivity(relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_record_turns_the_signs_of_one_teacher_at_all_rows(relation):
    a_record_turns_the_signs_of_one_teacher_at_all_rows(relation)


def a_teacher_sends_as_many_signs_as_are_paid_for():
    """Whatever its gradients are: equal entries, zeros, entries that are no numbers."""
    draws = torch.Generator().manual_seed(0)
    for n in (1, 3, 7):
        for gradients in (torch.randn(5, M, 7, generator=draws), torch.ones(5, M, 7), torch.full((5, M, 7), -2e30)):
            sent = LargestSigns(n).votes(gradients)
            assert set(sent.unique().tolist()) <= {-1.0, 0.0, 1.0}
            assert ((sent != 0).sum(-1) == n).all()
            assert torch.equal(sent[sent != 0], gradients[sent != 0].sign())
            least = gradients.abs().where(sent != 0, math.inf).amin(-1)
            assert (least >= gradients.abs().where(sent == 0, -1.0).amax(-1)).all()
        assert not LargestSigns(n).votes(torch.zeros(5, M, 7)).any()


def test_a_teacher_sends_as_many_signs_as_are_paid_for():
    a_teacher_sends_as_many_signs_as_are_paid_for()


class _Given:
    """Critics of given gradients."""

    n_columns = 2

    def __init__(self, gradients):
        self.given_ = gradients

    def gradients(self, units, points):
        return self.given_[units]


def what_is_no_number_is_no_vote():
    """Also where it is larger than every number."""
    given = torch.ones(K, M, 2)
    given[1, 0, 0], given[2, 0, 0], given[3, 0, 0] = math.nan, math.inf, -math.inf
    for n in (1, 2):
        (total,) = LargestSigns(n).total(_Given(given), np.arange(K), GENERATED, plan_of()).value
        assert total[0].tolist() == ([1.0, 3.0] if n == 1 else [1.0, 4.0])
        assert (total[1:].sum(1) == K * n).all()


def test_what_is_no_number_is_no_vote():
    what_is_no_number_is_no_vote()


def test_an_empty_subset_does_not_vote(monkeypatch):
    critics, votes, plan = taught(BASE, loss="logistic"), LargestSigns(1), plan_of()
    (total,) = votes.total(critics, np.arange(K), GENERATED, plan).value
    (alone,) = votes.total(critics, np.array([1, 2]), GENERATED, plan).value
    assert torch.equal(total, alone)  # subsets 0 and 3 are empty
    assert total.abs().sum(1).max() <= 2
    monkeypatch.setattr(_critics, "_AT_ONCE", 1)
    assert torch.equal(votes.total(critics, np.arange(K), GENERATED, plan).value[0], total)


def the_bound_holds_of_sums_that_are_rounded():
    """Whole numbers are rounded to the lattice of the noise, which is wide where the noise is."""
    rng = np.random.default_rng(0)
    for multiplier in (0.5, 1e3, 1e7):
        for n, m in ((1, 1), (3, 50), (16, 400)):
            square, signs = 4 * n * m, rng.choice([-1.0, 1.0], size=(m, n))
            bound = bound_of_votes(square, multiplier)
            lattice = multiplier * bound * 2.0**-30
            worst = 0.0
            for _ in range(20):
                others = rng.integers(-5000, 5000, size=(m, n))
                rounded = [np.rint((others + sign * signs) / lattice) * lattice for sign in (1, -1)]
                worst = max(worst, np.linalg.norm(rounded[0] - rounded[1]))
            assert worst <= bound
            assert multiplier < 1e7 or worst > math.sqrt(square)
    assert bound_of_votes(24, 0.0) == math.sqrt(24)


def test_the_bound_holds_of_sums_that_are_rounded():
    the_bound_holds_of_sums_that_are_rounded()


def test_rows_move_by_the_noisy_sum_or_by_the_signs_of_its_large_entries():
    released = torch.tensor([[0.5, -0.2, 0.1], [-0.3, 0.0, 1.4]])
    assert LargestSigns(2).direction(released) is released
    expected = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 1.0]])
    assert torch.equal(LargestSigns(2, threshold=0.3).direction(released), expected)
