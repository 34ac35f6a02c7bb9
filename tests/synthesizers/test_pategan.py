"""PATE-GAN: how far a record moves the counts of votes, what is charged for them, and what learns from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from _claims import RELATIONS, assert_refused_before_the_charge
from _fits import (
    FRAME,
    a_category_of_one_record_is_not_told,
    a_refused_fit_releases_nothing,
    ledger_is_what_ran,
    networks_of_many_levels_are_refused,
    nothing_private_is_kept,
    the_row_count_is_hidden,
)
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from skdpgen import PATEGANSynthesizer, PrivacyUnit, load
from skdpgen._types import BoundedUnit, UnitRelation
from skdpgen.accounting import describe_event, epsilon_pld, gaussian_event
from skdpgen.mechanisms import add_gaussian, count_votes
from skdpgen.nn import _gan
from skdpgen.nn._gan import DiscriminatorModule, Teachers, rows_by_subset, train_by_votes
from skdpgen.nn._generators import ConditionalGenerator
from skdpgen.synthesizers import _pategan
from skdpgen.tabular import Categorical, Numeric, Schema

FITTED = ("arrays, votes", "arrays, votes, replace_one", "frame, votes", "frame, votes of units")
X, Y = load_digits(return_X_y=True)
FAST = {"bounds": (0, 16), "classes": range(10), "n_teachers": 9, "steps": 3, "labelled_rows": 10}
SMALL = {"generator_sizes": (6,), "student_sizes": (5,), "n_components": 3}


def made(epsilon=3.0, **parameters):
    return PATEGANSynthesizer(epsilon, **{"random_state": 0, **FAST, **SMALL, **parameters})


@pytest.mark.parametrize("name", FITTED)
def test_the_ledger_is_what_ran_and_nothing_private_is_kept(name):
    ledger_is_what_ran(name)
    nothing_private_is_kept(name)


def test_the_row_count_and_rare_categories_are_hidden_and_a_refused_fit_releases_nothing():
    the_row_count_is_hidden(FITTED[0])
    a_category_of_one_record_is_not_told(FITTED[0])
    a_refused_fit_releases_nothing(FITTED[0])


# ---- what a record moves ---------------------------------------------------------------------------------------------
M, K, MOST = 8, 4, 5
GENERATED = torch.cat([torch.linspace(0.1, 0.9, M)[:, None], torch.full((M, 1), 0.5)], dim=1)


def _taught(records):
    """Teachers that were trained on (subset, row) pairs."""
    x = np.array([row for _, row in records], dtype=np.float32).reshape(-1, 2)
    subsets = np.array([subset for subset, _ in records], dtype=np.int64)
    teachers = Teachers(x, np.zeros(len(x), dtype=np.int64), 0, rows_by_subset(subsets, K, MOST))
    for _ in range(3):
        teachers.learn(GENERATED)
    return teachers


def a_record_moves_the_counts_by_the_root_of_the_labelled_rows(relation):
    """One record may turn the votes of its teacher on all labelled rows, and no record does more."""
    low, high = (0, (0.0, 0.5)), (0, (1.0, 0.5))
    base = [(1, (0.2, 0.1)), (1, (0.9, 0.8)), (2, (0.4, 0.7))]
    if relation == "add_or_remove_one":
        pairs = [([low, *base], base), ([high, *base], base), ([low, low, high, high, *base], [low, low, high, *base])]
        ballots = np.zeros((K, M), dtype=bool), np.zeros((K, M), dtype=bool)
        ballots[1][2] = True
        reached = [tuple(map(count_votes, ballots))]
    else:
        pairs = [
            ([low, *base], [high, *base]),
            ([*base, low], [*base, (0, (0.5, 9.0))]),
            (base, [*base[:2], (2, low[1])]),
        ]
        reached = [tuple(count_votes(_taught(records).vote(GENERATED)) for records in pairs[0])]
    found = [tuple(count_votes(_taught(records).vote(GENERATED)) for records in pair) for pair in pairs]
    for one, other in found + reached:
        assert one.sensitivity(relation) == math.sqrt(M)
        assert np.linalg.norm(one.value - other.value) <= math.sqrt(M) * (1 + 1e-12)
    assert any(np.linalg.norm(one.value - other.value) > 0 for one, other in found)
    for one, other in reached:
        assert np.linalg.norm(one.value - other.value) >= one.sensitivity(relation) * (1 - 1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_record_moves_the_counts_by_the_root_of_the_labelled_rows(relation):
    a_record_moves_the_counts_by_the_root_of_the_labelled_rows(relation)


def the_other_teachers_stay_as_they_are_to_the_last_bit():
    """Records of subset 0 join, and leave, wherever they stand: also one that fills it, and more than it holds."""
    rng = np.random.default_rng(0)
    base = [(int(subset), row) for subset, row in zip(rng.integers(1, K, 12), rng.random((12, 2)))]
    others = []
    for n in (0, 1, 4, 5, 9):
        records = list(base)
        for row in rng.random((n, 2)):
            records.insert(int(rng.integers(len(records) + 1)), (0, row))
        teachers = _taught(records)
        others.append((teachers.weights_[1:], teachers.offsets_[1:], torch.from_numpy(teachers.vote(GENERATED)[1:])))
    for found in others[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found, others[0]))


def test_the_other_teachers_stay_as_they_are_to_the_last_bit():
    the_other_teachers_stay_as_they_are_to_the_last_bit()


def every_row_is_in_one_line_of_the_table():
    """But for those of no subset, and for the last ones of a subset that is too large."""
    subsets = np.array([2, 0, -1, 2, 2, 0, 2, -1])
    expected = [[1, 5, -1], [-1, -1, -1], [0, 3, 4]]
    np.testing.assert_array_equal(rows_by_subset(subsets, 3, 3), expected)
    np.testing.assert_array_equal(rows_by_subset(subsets[:0], 3, 2), np.full((3, 2), -1))


def test_every_row_is_in_one_line_of_the_table():
    every_row_is_in_one_line_of_the_table()


def _tables(monkeypatch, estimator, *data, **groups):
    """The subsets and the table of a fit."""
    seen, make = [], rows_by_subset

    def recorded(subsets, k, most):
        seen.append((subsets, make(subsets, k, most)))
        return seen[-1][1]

    monkeypatch.setattr(_gan, "rows_by_subset", recorded)
    fitted = estimator.fit(*data, **groups)
    (found,) = seen
    return fitted, *found


def a_unit_is_in_one_subset_as_a_whole(weighting):
    """Else a person would have as many votes as rows."""
    codes = []
    with pytest.MonkeyPatch.context() as patch:
        teachers = Teachers.__init__

        def recorded(self, x, labels, n_labels, table, weights=None):
            codes.append(weights)
            teachers(self, x, labels, n_labels, table, weights)

        patch.setattr(Teachers, "__init__", recorded)
        people = np.repeat(np.arange(len(X) // 3), 3)
        synth = made(unit=PrivacyUnit("person", 3, weighting=weighting))
        _, subsets, _ = _tables(patch, synth, X[: len(people)], Y[: len(people)], groups=people)
    assert (subsets.reshape(-1, 3) == subsets.reshape(-1, 3)[:, :1]).all()
    assert len(np.unique(subsets)) == FAST["n_teachers"]
    (weights,) = codes
    if weighting == "rows":
        assert weights is None
    else:
        np.testing.assert_allclose(weights, 1 / 3)


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_a_unit_is_in_one_subset_as_a_whole(weighting):
    a_unit_is_in_one_subset_as_a_whole(weighting)


def the_shape_of_the_table_follows_the_released_number_of_rows():
    """The sizes of subsets are private: what is computed for one teacher must not depend on those of the others."""
    with pytest.MonkeyPatch.context() as patch:
        fitted, subsets, table = _tables(patch, made(), X, Y)
    most = _pategan.most_rows(fitted.row_count_, 9, X.shape[1] + 10)
    assert table.shape == (9, most)
    assert most > np.bincount(subsets).max()  # so large that no row is left out, almost surely


def test_the_shape_of_the_table_follows_the_released_number_of_rows():
    the_shape_of_the_table_follows_the_released_number_of_rows()


def test_a_table_of_rows_has_a_largest_size():
    assert _pategan.most_rows(1e12, 1000, 100) * 1000 * 100 <= 2**28
    assert _pategan.most_rows(1e12, 2**16, 2**16) == 1
    assert _pategan.most_rows(1.0, 1000, 10) >= 1
    assert _pategan.most_rows(2000.0, 100, 10, max_rows=5) > _pategan.most_rows(2000.0, 100, 10) > 20


# ---- what is charged -------------------------------------------------------------------------------------------------
def every_label_is_charged(relation):
    """A round is one Gaussian release of sensitivity sqrt(m); all rounds are charged, without amplification."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:

        def recorded(query, noise_multiplier, rng, neighboring):
            seen.append(noise_multiplier * query.sensitivity(neighboring))
            return add_gaussian(query, noise_multiplier, rng, neighboring)

        patch.setattr(_pategan, "add_gaussian", recorded)
        fitted = made(neighboring=relation).fit(X, Y)
    (charge,) = fitted.accountant_.charges
    counted, votes = describe_event(charge.event)
    assert (counted["count"], votes["count"], votes["sampling_rate"]) == (1, 3, None)
    assert votes["mechanism"] == "gaussian"
    assert seen == [pytest.approx(math.sqrt(10) * votes["noise_multiplier"])] * 3
    alone = gaussian_event(votes["noise_multiplier"] / math.sqrt(3))
    assert 0.9 * 3 < epsilon_pld(alone, 1e-5, relation) < fitted.card_["fit"]["epsilon"] <= 3.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_every_label_is_charged(relation):
    every_label_is_charged(relation)


def test_votes_of_units_are_released_for_units_alone():
    people = np.arange(len(X)) // 3
    fitted = made(unit="person", max_rows_per_unit=3).fit(X, Y, groups=people)
    assert fitted.accountant_.unit == "person"
    with pytest.raises(ValueError, match="follows the relation between units"):
        count_votes(np.zeros((2, 2)), of_units=True).sensitivity("add_or_remove_one")
    relation = UnitRelation("add_or_remove_one", BoundedUnit("person", 3))
    assert count_votes(np.zeros((2, 2)), of_units=True).sensitivity(relation) == math.sqrt(2)
    with pytest.raises(ValueError, match="no bound for"):  # rows of a unit may lie in several subsets
        count_votes(np.zeros((2, 2))).sensitivity(relation)


# ---- what learns from it ---------------------------------------------------------------------------------------------
class _Stub:
    """Teachers whose votes are given."""

    def __init__(self, votes):
        self.votes = votes

    def learn(self, generated):
        pass

    def vote(self, rows):
        return self.votes[:, : len(rows)]


def _trained(votes, release, rounds=3):
    torch.manual_seed(0)
    generator, student = ConditionalGenerator(2, 2, 3, n_hidden=4), DiscriminatorModule(3, 2, n_hidden=4)
    train_by_votes(
        generator, student, _Stub(votes), release, np.array([1.0, 2.0]), n_rows=6, rounds=range(rounds), seed=0
    )
    return [p.detach() for net in (generator, student) for p in net.parameters()]


def the_votes_are_seen_through_the_release_alone():
    """Student and generator are a function of released counts and public seeds, whatever the votes are."""
    draws = np.random.default_rng(0)
    found = []
    for votes in (np.zeros((5, 6), dtype=bool), draws.random((5, 6)) < 0.5):
        released = iter(np.linspace(0, 1, 18).reshape(3, 6))
        found.append(_trained(votes, lambda _, released=released: next(released)))
    for one, other in zip(*found):
        assert torch.equal(one, other)


def test_the_votes_are_seen_through_the_release_alone():
    the_votes_are_seen_through_the_release_alone()


def test_shares_that_noise_made_huge_are_cut_and_do_no_harm():
    votes = np.ones((5, 6), dtype=bool)
    for value in (1e9, -1e9):
        assert all(torch.isfinite(p).all() for p in _trained(votes, lambda _, value=value: np.full(6, value)))


def test_teachers_learn_what_tells_private_rows_from_generated_ones():
    """Of a class each, with weights of their own: private rows of class 0 lie low, and those of class 1 high."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60)
    x = np.clip(np.where(labels, 0.8, 0.2)[:, None] + 0.1 * rng.normal(size=(60, 1)), 0, 1).astype(np.float32)
    teachers = Teachers(x, labels, 2, rows_by_subset(np.arange(60) % 3, 3, 20))
    codes = np.resize([0, 1], 40)
    rows = torch.from_numpy(np.column_stack([np.linspace(0, 1, 40), codes == 0, codes == 1]).astype(np.float32))
    for _ in range(60):
        teachers.learn(rows)
    votes = teachers.vote(rows)
    assert (votes.sum(axis=1) == 20).all()
    for k, high in enumerate((False, True)):
        found = rows[:, 0].numpy()[votes[0] & (codes == k)]
        assert (found.mean() > 0.5) == high


def test_weights_of_rows_are_those_of_the_loss():
    """A row of weight 2 counts as two."""
    x = np.array([[0.1], [0.7], [0.7]], dtype=np.float32)
    one = Teachers(x, np.zeros(3, dtype=int), 0, rows_by_subset(np.zeros(3, dtype=int), 1, 3))
    other = Teachers(x[:2], np.zeros(2, dtype=int), 0, rows_by_subset(np.zeros(2, dtype=int), 1, 3), np.array([1, 2]))
    for teachers in (one, other):
        teachers.learn(GENERATED[:, :1])
    torch.testing.assert_close(one.weights_.grad, other.weights_.grad)


def test_a_step_of_the_teachers_is_that_of_a_logistic_regression():
    draws = torch.Generator().manual_seed(0)
    x, labels = torch.rand(12, 3, generator=draws), torch.arange(12) % 2
    subsets = np.array([0, 0, 1, 1, 1, 0, 2, 2, 0, 1, 2, 0])
    fake = torch.cat([torch.rand(7, 3, generator=draws), torch.eye(2)[torch.arange(7) % 2]], dim=1)
    teachers = Teachers(x.numpy(), labels.numpy(), 2, rows_by_subset(subsets, 3, 6))
    teachers.weights_.normal_(generator=draws)
    teachers.offsets_.normal_(generator=draws)
    weights, offsets = (p.clone().requires_grad_() for p in (teachers.weights_, teachers.offsets_))
    teachers.learn(fake)
    for k in range(3):

        def score(rows, parts, k=k):
            return ((rows @ weights[k].T + offsets[k]) * torch.cat([torch.ones(len(rows), 1), parts], 1)).sum(1)

        own = torch.from_numpy(np.flatnonzero(subsets == k))
        loss = torch.nn.functional.softplus(-score(x[own], torch.eye(2)[labels[own]])).mean()
        loss = loss + torch.nn.functional.softplus(score(fake[:, :3], fake[:, 3:])).mean()
        expected = torch.autograd.grad(loss, [weights, offsets])
        torch.testing.assert_close(teachers.weights_.grad[k], expected[0][k])
        torch.testing.assert_close(teachers.offsets_.grad[k], expected[1][k])


def test_without_noise_classes_lie_where_the_private_ones_do():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 600)
    rows = np.clip(np.array([[0.2, 0.8], [0.7, 0.3]])[y] + 0.05 * rng.normal(size=(600, 2)), 0, 1)
    shape = {"generator_sizes": (20,), "student_sizes": (20,), "n_components": 4, "steps": 15, "labelled_rows": 60}
    fitted = made(np.inf, bounds=(0, 1), classes=[0, 1], **shape).fit(rows, y)
    drawn, labels = fitted.sample(400, random_state=0)
    assert LogisticRegression().fit(drawn, labels).score(rows, y) > 0.95


@pytest.mark.parametrize("kind", ["arrays", "table"])
def test_a_model_file_gives_the_same_rows(tmp_path, kind):
    fitted = made().fit(X, Y)
    if kind == "table":
        schema = Schema([Categorical("work", ("BAKER", "NURSE", "PILOT")), Numeric("dose", (-5, 5))])
        fitted = made(bounds=None, classes=None, schema=schema, target="work").fit(FRAME[["work", "dose"]])
    fitted.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    one, other = (synth.sample(20, random_state=3) for synth in (fitted, loaded))
    if kind == "table":
        assert one.equals(other)
    else:
        for first, second in zip(one, other):
            np.testing.assert_array_equal(first, second)
    assert loaded.get_params()["labelled_rows"] == fitted.labelled_rows


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_teachers": 0}, "n_teachers"),
        ({"labelled_rows": 1}, "labelled_rows"),
        ({"steps": 0}, "steps"),
        ({"generator_sizes": (0,)}, "generator_sizes"),
        ({"student_sizes": (65_536, 65_536)}, "at most"),
        ({"n_teachers": 65_536, "labelled_rows": 16_384}, "n_teachers=65536, labelled_rows=16384"),
        ({"target": "job"}, "for DataFrames"),
    ],
)
def test_what_cannot_be_is_refused_before_the_charge(parameters, match):
    assert_refused_before_the_charge(made(None, **parameters), match, X, Y)


@pytest.mark.parametrize("target", [None, "code"])
@pytest.mark.parametrize("wide", ["generator_sizes", "student_sizes"])
def test_networks_of_many_declared_levels_are_refused_before_the_charge(target, wide):
    sizes = {"generator_sizes": (4,), "student_sizes": (4,), wide: (20_000,)}
    networks_of_many_levels_are_refused(
        PATEGANSynthesizer, target, n_teachers=2, steps=1, labelled_rows=2, n_components=2, **sizes
    )
