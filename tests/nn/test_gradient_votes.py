"""Votes of critics on their gradients: how far a record moves their sum, and what they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from _claims import RELATIONS
from test_critics import BASE, GENERATED, K, M, plan_of, taught

from skdpgen.nn import _critics
from skdpgen.nn._gradient_votes import LargestSigns, ProjectedVotes, bound_of_votes

# On one side of the generated rows, and far on the other: in both columns, and more so in the first.
LOW, HIGH = (0, (-0.3, -0.1)), (0, (9.0, 4.5))
PAIRS = {
    "add_or_remove_one": ([LOW, *BASE], [LOW, HIGH, *BASE]),
    "replace_one": ([LOW, *BASE], [HIGH, *BASE]),
}


class _Given:
    """Critics of given gradients."""

    n_columns = 2

    def __init__(self, gradients):
        self.given_ = gradients

    def with_all(self, units):
        yield units, torch.ones(len(units), dtype=bool)

    def gradients(self, units, points):
        return self.given_[units]


def moved(make, one, other, plan):
    """How far the sums of two sets of critics are apart, and the claim."""
    sums = [make().total(critics, np.arange(K), GENERATED, plan) for critics in (one, other)]
    return float((sums[0].value[0] - sums[1].value[0]).double().square().sum().sqrt()), sums[0]


def a_record_turns_the_signs_of_one_teacher_at_all_rows(relation):
    """2 sqrt(n) at each of the m rows together: attained where all signs turn, and never exceeded."""
    plan, learned = plan_of(), {"loss": "logistic", "penalty": 0.0, "learning_rate": 10.0}
    for n in (1, 2, 5):
        worst, bounded = moved(
            lambda n=n: LargestSigns(n), *(taught(records, 20, **learned) for records in PAIRS[relation]), plan
        )
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
            distance, bounded = moved(lambda n=n: LargestSigns(n), *made, plan)
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
    sums = np.arange(-5000, 5001)
    for n, m in ((1, 1), (3, 50), (16, 400)):
        square = 4 * n * m
        widest = 0.49 * 2**29 / math.sqrt(square)
        for multiplier in (0.5, 1e3, widest):
            bound = bound_of_votes(square, multiplier)
            lattice = multiplier * bound * 2.0**-30
            rounded = [np.rint((sums + sign) / lattice) * lattice for sign in (1, -1)]
            worst = np.abs(rounded[0] - rounded[1]).max() * math.sqrt(n * m)  # all entries where rounding moves most
            assert worst <= bound
            assert multiplier < widest or worst > 1.05 * math.sqrt(square)
        # the lattice of still larger noise is too wide for any bound
        assert_refuses(square, 2**28.01 / math.sqrt(square))
        assert_refuses(square, math.inf)
    assert bound_of_votes(24, 0.0) == math.sqrt(24)


def assert_refuses(square, multiplier):
    with pytest.raises(ValueError, match="too large for votes"):
        bound_of_votes(square, multiplier)


def test_the_bound_holds_of_sums_that_are_rounded():
    the_bound_holds_of_sums_that_are_rounded()


def test_rows_move_by_the_noisy_sum_or_by_the_signs_of_its_large_entries():
    released = torch.tensor([[0.5, -0.2, 0.1], [-0.3, 0.0, 1.4]])
    assert LargestSigns(2).direction(released) is released
    expected = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 1.0]])
    assert torch.equal(LargestSigns(2, threshold=0.3).direction(released), expected)


# ---- votes on projections --------------------------------------------------------------------------------------------
def a_record_moves_one_vote_in_each_histogram(relation):
    """sqrt(2) in each of the p histograms of the m rows: attained where the gradient turns, and never exceeded."""
    plan, turned = plan_of(), torch.randn(K, M, 2, generator=torch.Generator().manual_seed(0))
    turned = [turned, torch.cat([-turned[:1], turned[1:]])]
    rng = np.random.default_rng(0)
    for p, bins in ((1, 2), (3, 10)):

        def make(p=p, bins=bins):
            return ProjectedVotes(p, bins, 2.0)

        worst, bounded = moved(make, *map(_Given, turned), plan)
        sensitivity = bounded.sensitivity(relation)
        assert sensitivity == pytest.approx(math.sqrt(2 * p * M), rel=1e-6)
        assert worst <= sensitivity
        assert worst == pytest.approx(sensitivity, rel=1e-6)
        trained = [taught(records, 20, loss="logistic", learning_rate=10.0) for records in PAIRS[relation]]
        assert 0.5 * sensitivity < moved(make, *trained, plan)[0] <= sensitivity
        assert moved(make, trained[0], taught(BASE, 20, loss="logistic", learning_rate=10.0), plan)[0] <= sensitivity
        for scale in (0.1, 3.0, 1e6):
            rows = [(int(j), tuple(row)) for j, row in zip(rng.integers(0, K, 12), scale * rng.normal(size=(12, 2)))]
            other = rows[1:] if relation == "add_or_remove_one" else [(rows[0][0], (5.0, -scale)), *rows[1:]]
            made = (taught(records, sizes=(5,), loss="logistic") for records in (rows, other))
            assert moved(make, *made, plan)[0] <= sensitivity


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_record_moves_one_vote_in_each_histogram(relation):
    a_record_moves_one_vote_in_each_histogram(relation)


def a_teacher_has_one_vote_in_each_histogram():
    """Whatever its gradients are; none where they are zero, and the length of a gradient says nothing."""
    draws = torch.Generator().manual_seed(0)
    votes = ProjectedVotes(4, 3, 1.0)
    votes.prepare(M, 7)
    torch.testing.assert_close(torch.linalg.vector_norm(votes.directions_, dim=1), torch.ones(M, 4))
    for scale in (1e-20, 1.0, 1e15):
        gradients = scale * torch.randn(5, M, 7, generator=draws)
        sent = votes.votes(gradients)
        assert sent.shape == (5, M, 4, 3)
        assert torch.equal(sent.sum(3), torch.ones(5, M, 4, dtype=torch.int64))
        length = torch.linalg.vector_norm(gradients, dim=2, keepdim=True)
        along = 7**0.5 * torch.einsum("kmd,mdp->kmp", gradients / length, votes.directions_)
        assert torch.equal(sent.argmax(3), (along > -1 / 3).long() + (along > 1 / 3).long())
    assert not votes.votes(torch.zeros(5, M, 7)).any()
    assert (votes.votes(torch.full((5, M, 7), 1e30)).sum(3) <= 1).all()


def test_a_teacher_has_one_vote_in_each_histogram():
    a_teacher_has_one_vote_in_each_histogram()


def test_directions_are_public_and_new_in_each_step():
    found = []
    for records in ([LOW, *BASE], [HIGH]):
        votes, seen = ProjectedVotes(3, 4, 1.0, seed=5), []
        for _ in range(2):
            votes.total(taught(records, loss="logistic"), np.arange(K), GENERATED, plan_of())
            seen.append(votes.directions_)
        found.append(seen)
    assert all(map(torch.equal, *found))
    assert not torch.equal(*found[0])


def test_rows_move_along_the_directions_by_the_bins():
    counts = torch.tensor([[0.1, 0.5, 0.4], [0.6, 0.2, -0.1]]).expand(M, 2, 3)
    for votes, values in (
        (ProjectedVotes(2, 3, 1.5), [0.3, -0.7]),
        (ProjectedVotes(2, 3, 1.5, "largest"), [0.0, -1.0]),
        (ProjectedVotes(2, 3, 3.0, "largest", threshold=0.55), [0.0, -2.0]),
        (ProjectedVotes(2, 3, 3.0, "largest", threshold=0.7), [0.0, 0.0]),
    ):
        votes.prepare(M, 7)
        expected = (votes.directions_ * torch.tensor(values)).sum(2)
        torch.testing.assert_close(votes.direction(counts), expected)
