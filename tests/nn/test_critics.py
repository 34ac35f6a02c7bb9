"""Critics of disjoint subsets: how far a record moves the sum of their gradients, and what they know of the draws."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from _charged import charged
from _claims import RELATIONS

from skdpgen.data.arrays import lowpass_basis
from skdpgen.dpsgd import GradientNoise
from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.nn import _critics
from skdpgen.nn._critics import Critics, CriticTraining, classes_of_partners, clipped_gradient_sum, train_by_critics
from skdpgen.nn._dp2vae_training import SubsetRows
from skdpgen.nn._generated_rows import GeneratedRows
from skdpgen.nn._generators import ConditionalGenerator
from skdpgen.utils.blocks import exact_product
from skdpgen.utils.noise import make_noise_generator

KEY, K, M, C, WIDTH = bytes(range(16)), 4, 6, 0.25, 2
GENERATED = torch.stack([torch.linspace(-0.1, 0.1, M), torch.linspace(0.1, -0.1, M)], dim=1)


def plan_of(per_step=K, steps=3, **changes):
    sampler = "balanced" if per_step == K else "poisson"
    given = {"per_step": per_step, "sampler": sampler, "encoder_update": "round_robin", **changes}
    return SubsetPlan(K, steps, 1.0, gradient_bound=C * M**0.5, **given)


def critics_of(records, *, sizes=(), n_classes=0, labels=None, units=None, **changes):
    """Critics of (subset, row) pairs, before they have learned anything."""
    x = np.array([row for _, row in records], dtype=np.float32).reshape(-1, WIDTH)
    subsets = np.array([subset for subset, _ in records], dtype=np.int64)
    labels = np.zeros(len(x), dtype=np.int64) if labels is None else labels
    given = {"learning_rate": 0.05, "penalty": 10.0, "batch_size": 64, "steps": 1, "warm_start_steps": 0, **changes}
    rows = SubsetRows(x, labels, n_classes, subsets, K, units=units)
    return Critics(rows, WIDTH, 3.0, CriticTraining(sizes, **given), KEY, seed=0)


def taught(records, steps=20, partners=GENERATED, **changes):
    critics = critics_of(records, **changes)
    for _ in range(steps):
        critics.learn(partners)
    return critics


def moved(one, other, plan):
    """How far the sums of two sets of critics are apart."""
    sums = [clipped_gradient_sum(critics, np.arange(K), GENERATED, plan).value[0].double() for critics in (one, other)]
    return float(torch.linalg.vector_norm(sums[0] - sums[1]))


# ---- what a record moves ---------------------------------------------------------------------------------------------
BASE = [(1, (0.5, 0.2)), (1, (-0.3, 0.4)), (2, (0.1, -0.9))]
LEFT, RIGHT = (0, (-1.0, 0.0)), (0, (90.0, 0.0))


def a_record_turns_the_gradients_of_one_critic_at_all_rows(relation):
    """2 C at each of the m rows together: 2 C sqrt(m) is attained, and never exceeded."""
    plan = plan_of()
    pairs = {
        "add_or_remove_one": ([LEFT, *BASE], [LEFT, RIGHT, *BASE]),
        "replace_one": ([LEFT, *BASE], [RIGHT, *BASE]),
    }
    worst = moved(*(taught(records, 60, penalty=0.0, learning_rate=1.0) for records in pairs[relation]), plan)
    bounded = clipped_gradient_sum(taught(BASE), np.arange(K), GENERATED, plan)
    assert bounded.sensitivity(relation) == plan.l2_bound == pytest.approx(2 * C * M**0.5)
    assert 0.98 * plan.l2_bound < worst <= plan.l2_bound
    rng = np.random.default_rng(0)
    for scale in (0.1, 3.0, 1e6):
        rows = [(int(j), tuple(row)) for j, row in zip(rng.integers(0, K, 12), scale * rng.normal(size=(12, WIDTH)))]
        other = rows[1:] if relation == "add_or_remove_one" else [(rows[0][0], (5.0, -scale)), *rows[1:]]
        assert moved(taught(rows, sizes=(5,)), taught(other, sizes=(5,)), plan) <= plan.l2_bound


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_record_turns_the_gradients_of_one_critic_at_all_rows(relation):
    a_record_turns_the_gradients_of_one_critic_at_all_rows(relation)


def test_a_sampled_critic_is_bounded_by_c_from_what_the_step_is_without_it():
    """The pair that is charged for sampled subsets holds both ends of the move of 2 C."""
    plan = plan_of(per_step=2)
    assert plan.mechanism == "poisson_subsets"
    assert plan.l2_bound == pytest.approx(C * M**0.5)
    critics = taught([RIGHT, *BASE], penalty=0.0)
    for units in (np.array([0]), np.array([1]), np.array([], dtype=np.int64)):
        (total,) = clipped_gradient_sum(critics, units, GENERATED, plan).value
        assert float(torch.linalg.vector_norm(total)) <= plan.l2_bound
    assert not total.any()


def each_row_has_its_own_clip():
    """No generated row takes the part of the bound that another has."""
    critics = taught([RIGHT, *BASE], penalty=0.0)
    plan = plan_of()
    (total,) = clipped_gradient_sum(critics, np.array([0]), GENERATED, plan).value
    norms = torch.linalg.vector_norm(total.double(), dim=1)
    assert (norms <= plan.clip_norm / M**0.5 * (1 + 1e-6)).all()
    torch.testing.assert_close(norms, torch.full((M,), plan.clip_norm / M**0.5, dtype=torch.float64))


def test_each_row_has_its_own_clip():
    each_row_has_its_own_clip()


def the_other_critics_stay_as_they_are_to_the_last_bit(loss="wasserstein"):
    """Records of subset 0 join, and leave, wherever they stand."""
    rng = np.random.default_rng(0)
    base = [(int(subset), row) for subset, row in zip(rng.integers(1, K, 12), rng.normal(size=(12, WIDTH)))]
    found = []
    for n in (0, 1, 4, 30):
        records = list(base)
        for row in rng.normal(size=(n, WIDTH)):
            records.insert(int(rng.integers(len(records) + 1)), (0, row))
        critics = taught(records, 5, sizes=(5,), loss=loss)
        units = np.arange(1, K)
        found.append([p[1:] for p in (*critics.weights_, *critics.offsets_)] + [critics.gradients(units, GENERATED)])
    for one in found[1:]:
        assert all(map(torch.equal, one, found[0]))


@pytest.mark.parametrize("loss", ["wasserstein", "logistic"])
def test_the_other_critics_stay_as_they_are_to_the_last_bit(monkeypatch, loss):
    the_other_critics_stay_as_they_are_to_the_last_bit(loss)
    monkeypatch.setattr(_critics, "_AT_ONCE", 2)
    the_other_critics_stay_as_they_are_to_the_last_bit(loss)


def no_gradient_depends_on_which_other_critics_are_drawn():
    rng, k = np.random.default_rng(0), 30
    rows = SubsetRows(rng.normal(size=(3 * k, WIDTH)).astype(np.float32), np.zeros(3 * k, dtype=np.int64), 0,
                      np.repeat(np.arange(k), 3), k)  # fmt: skip
    critics = Critics(rows, WIDTH, 1.0, CriticTraining((101, 5), 1e-3, 10.0, 2, 1, 1), bytes(range(16)), 0)
    critics.weights_ = [w + 0.1 * torch.randn_like(w) for w in critics.weights_]
    points, seen = torch.randn(5, WIDTH), {}
    for _ in range(12):
        units = np.flatnonzero(rng.random(k) < 0.4)
        counted = []
        for part, drawn in critics.with_all(units):
            gradients = critics.gradients(part, points)
            for i in np.flatnonzero(drawn):
                counted.append(part[i])
                assert torch.equal(seen.setdefault(part[i], gradients[i]), gradients[i]), "rounded by the other critics"
        assert counted == units.tolist()


@pytest.mark.parametrize("at_once", [256, 7])
def test_no_gradient_depends_on_which_other_critics_are_drawn(monkeypatch, at_once):
    monkeypatch.setattr(_critics, "_AT_ONCE", at_once)
    no_gradient_depends_on_which_other_critics_are_drawn()


def the_points_of_a_row_do_not_depend_on_the_other_rows():
    """BLAS may round the rows of a last, short block otherwise: one row more would then move the critics of many."""
    basis = lowpass_basis((8, 8), 4)
    generator = ConditionalGenerator(2, 2, basis.shape[1], n_hidden=4)
    points = GeneratedRows(generator, np.ones(2), torch.Generator(), basis=basis, label_scale=3.0)
    rows, codes = torch.rand(9, 64, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 2
    whole = points.encoded(rows, codes)
    exact = exact_product(2 * rows.numpy() - 1, points.basis_.numpy())
    assert torch.equal(whole[:, : basis.shape[1]], torch.from_numpy(exact.astype(np.float32)))
    for n in range(1, 9):
        assert torch.equal(points.encoded(rows[:n], codes[:n]), whole[:n])
        assert torch.equal(points.encoded(rows[n:], codes[n:]), whole[n:])


def test_the_points_of_a_row_do_not_depend_on_the_other_rows():
    the_points_of_a_row_do_not_depend_on_the_other_rows()


def an_empty_subset_and_a_gradient_that_is_not_finite_add_nothing():
    plan = plan_of()
    critics = taught(BASE)
    (total,) = clipped_gradient_sum(critics, np.arange(K), GENERATED, plan).value
    (alone,) = clipped_gradient_sum(critics, np.array([1, 2]), GENERATED, plan).value
    assert torch.equal(total, alone)  # subsets 0 and 3 are empty
    broken = taught([(3, (np.nan, 1.0)), *BASE])
    (total,) = clipped_gradient_sum(broken, np.arange(K), GENERATED, plan).value
    assert torch.equal(total, alone)


def test_an_empty_subset_and_a_gradient_that_is_not_finite_add_nothing():
    an_empty_subset_and_a_gradient_that_is_not_finite_add_nothing()


# ---- what is hidden --------------------------------------------------------------------------------------------------
def _trained(records, plan, *, draws=None, released=None, monkeypatch, n_classes=0, labels=None):
    """Generator and critics of a training; `draws` are the critics of each step, `released` what it gives out."""
    seen = []

    def release(noise, bounded, divisor=1.0, out=None):
        out[0].copy_(released[len(seen)])
        seen.append(bounded.value[0])

    with monkeypatch.context() as patch:
        if draws is not None:
            patch.setattr(_critics, "subset_draws", lambda plan, rng: iter(draws))
        if released is not None:
            patch.setattr(GradientNoise, "release", release)
        torch.manual_seed(0)
        generator, kept = ConditionalGenerator(3, n_classes, WIDTH, n_hidden=8), []

        def make(points):
            kept.append(critics_of(records, sizes=(5,), batch_size=4, n_classes=n_classes, labels=labels))
            return kept[0]

        rng = make_noise_generator("secure")
        train_by_critics(generator, make, charged(plan), rng, np.ones(max(n_classes, 1)), n_rows=M)
    return [p.detach() for p in generator.parameters()], kept[0], seen


def _some(steps, seed=0):
    return torch.randn(steps, M, WIDTH, generator=torch.Generator().manual_seed(seed))


def what_a_critic_has_learned_does_not_depend_on_the_draws(monkeypatch):
    """Two sequences of draws with equal releases give equal critics: else later steps would tell earlier draws."""
    plan, found = plan_of(per_step=2), []
    for draws in ([[0], [0, 1], [3]], [[1, 2, 3], [], [0]]):
        draws = [np.array(units, dtype=np.int64) for units in draws]
        _, critics, _ = _trained(BASE, plan_of(per_step=2), draws=draws, released=_some(3), monkeypatch=monkeypatch)
        found.append([*critics.weights_, *critics.offsets_])
    assert plan.mechanism == "poisson_subsets"
    assert all(map(torch.equal, *found))


def test_what_a_critic_has_learned_does_not_depend_on_the_draws(monkeypatch):
    what_a_critic_has_learned_does_not_depend_on_the_draws(monkeypatch)


def the_private_rows_enter_by_the_release_alone(monkeypatch):
    """Generators of two data sets with equal releases are equal, whatever the critics are."""
    found = []
    for records in (BASE, [LEFT, RIGHT, *BASE[1:]], []):
        parameters, _, seen = _trained(records, plan_of(), released=_some(3), monkeypatch=monkeypatch)
        found.append((parameters, seen))
    for parameters, seen in found[1:]:
        assert all(map(torch.equal, parameters, found[0][0]))
        assert not torch.equal(seen[-1], found[0][1][-1])


def test_the_private_rows_enter_by_the_release_alone(monkeypatch):
    the_private_rows_enter_by_the_release_alone(monkeypatch)


def test_critics_are_neither_pickled_nor_copied():
    with pytest.raises(TypeError, match="private"):
        pickle.dumps(critics_of(BASE))


def as_many_steps_are_taken_as_were_charged(monkeypatch):
    plan, sums = charged(plan_of(per_step=2, steps=4)), []
    shipped = GradientNoise.release

    def release(noise, bounded, *rest, **options):
        sums.append(bounded)
        return shipped(noise, bounded, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(GradientNoise, "release", release)
        generator = ConditionalGenerator(3, 0, WIDTH, n_hidden=8)

        def train():
            rng = make_noise_generator("secure")
            return train_by_critics(generator, lambda points: critics_of(BASE), plan, rng, np.ones(1), n_rows=M)

        _, private = train()
        assert private
        assert len(sums) == plan.steps_taken == plan.steps == 4
        with pytest.raises(RuntimeError, match="used by another training"):
            train()


def test_as_many_steps_are_taken_as_were_charged(monkeypatch):
    as_many_steps_are_taken_as_were_charged(monkeypatch)


# ---- what critics and generator learn --------------------------------------------------------------------------------
@pytest.mark.parametrize("sizes", [(), (5,), (6, 4)])
def test_gradients_are_those_of_autograd(sizes):
    critics = taught(BASE, 3, sizes=sizes)
    parameters = [p.detach() for p in (*critics.weights_, *critics.offsets_)]
    points = GENERATED.expand(K, M, WIDTH).clone().requires_grad_()
    scores, _ = critics._scores(parameters, points)
    (expected,) = torch.autograd.grad(scores.sum(), points)
    found = critics.gradients(np.arange(K), GENERATED)
    torch.testing.assert_close(found[1:3], expected[1:3])


@pytest.mark.parametrize("name", ["wasserstein", "logistic"])
def test_a_step_is_that_of_a_critic_with_a_gradient_penalty(name):
    rng = np.random.default_rng(0)
    labels = np.array([0, 1, 1])
    records = [(2, rng.normal(size=WIDTH)) for _ in labels]
    critics = critics_of(records, sizes=(5,), n_classes=2, labels=labels, batch_size=7, penalty=4.0, loss=name)
    classes = classes_of_partners(2)
    partners = torch.cat([torch.randn(len(classes), WIDTH), 3.0 * torch.eye(2)[classes]], dim=1)
    units, parameters, _ = critics.parts_[0]
    x, codes = critics.rows.batch(units, critics.stream.uniform(_critics._ROWS, units, 0, 7), "cpu")
    uniforms = critics.stream.uniform(_critics._PARTNERS, units, 0, 14)
    weights = [p[2].detach().clone().requires_grad_() for p in parameters]

    def score(points):
        return torch.nn.functional.leaky_relu(points @ weights[0] + weights[2], 0.2) @ weights[1] + weights[3]

    real, code = x[2], codes[2].argmax(1)
    chosen = partners[code + 2 * (torch.from_numpy(uniforms[2, :7] * (len(classes) // 2)).long())]
    assert torch.equal(chosen[:, WIDTH:], 3.0 * codes[2])  # a partner is of the same class
    share = torch.from_numpy(uniforms[2, 7:].astype(np.float32))[:, None]
    between = (share * real + (1 - share) * chosen[:, :WIDTH]).requires_grad_()
    (slope,) = torch.autograd.grad(score(torch.cat([between, 3.0 * codes[2]], dim=1)).sum(), between, create_graph=True)
    made, true = score(chosen), score(torch.cat([real, 3.0 * codes[2]], dim=1))
    if name == "wasserstein":
        loss = made.mean() - true.mean() + 4.0 * (slope.norm(dim=1) - 1).square().mean()
    else:
        entropy = torch.nn.functional.binary_cross_entropy_with_logits
        loss = entropy(made, torch.zeros_like(made)) + entropy(true, torch.ones_like(true))
        loss = loss + 4.0 * slope.square().sum(1).mean()
    found = critics._losses(parameters, units, partners)[2]
    torch.testing.assert_close(found, loss)
    expected = torch.autograd.grad(loss, weights, allow_unused=True)
    for one, other in zip(torch.autograd.grad(found, parameters, allow_unused=True), expected):
        torch.testing.assert_close(one[2], torch.zeros_like(one[2]) if other is None else other.view_as(one[2]))


def test_labels_that_are_rarer_than_generated_ones_do_not_make_critics_grow():
    """A critic that saw other shares of the classes on both sides would tell them apart by the class, without bound."""
    rng = np.random.default_rng(0)
    records = [(j % K, row) for j, row in enumerate(0.1 * rng.normal(size=(40, WIDTH)))]
    classes = classes_of_partners(2)
    partners = torch.cat([0.1 * torch.randn(len(classes), WIDTH), 3.0 * torch.eye(2)[classes]], dim=1)
    critics = taught(records, 100, partners, sizes=(8,), n_classes=2, labels=np.zeros(40, dtype=np.int64))
    assert max(float(p.abs().max()) for p in critics.weights_) < 5.0


def test_without_noise_the_rows_move_to_the_private_ones_of_their_class():
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    x = np.array([[0.6, -0.6], [-0.6, 0.6]])[labels] + 0.05 * rng.normal(size=(200, 2))
    records = [(int(j), row) for j, row in zip(rng.integers(0, K, 200), x)]
    torch.manual_seed(0)
    generator = ConditionalGenerator(2, 2, WIDTH, n_hidden=16)
    plan = SubsetPlan(K, 150, 0.0, per_step=K, sampler="balanced", encoder_update="round_robin")

    def make(points):
        given = {"steps": 3, "warm_start_steps": 20, "batch_size": 8, "learning_rate": 0.02}
        return critics_of(records, sizes=(16,), n_classes=2, labels=labels, **given)

    rng = make_noise_generator("secure")
    train_by_critics(generator, make, plan, rng, np.ones(2), n_rows=20, label_scale=3.0, learning_rate=5e-3)
    with torch.no_grad():
        for k, expected in enumerate(([0.6, -0.6], [-0.6, 0.6])):
            rows = 2 * generator(torch.randn(200, 2), torch.eye(2)[k].expand(200, 2)) - 1
            np.testing.assert_allclose(rows.mean(0), expected, atol=0.25)
