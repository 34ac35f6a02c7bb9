"""Term-wise aggregation: its sensitivity is attained and not exceeded, groups are independent, noise covers both."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from _charged import charged
from torch import nn

from skdpgen.accounting import epsilon_pld
from skdpgen.dpsgd import DPSGDPlan, LossModule, TermwiseAggregate, TermwisePlan
from skdpgen.dpsgd._termwise import draw_groups, gather_groups
from skdpgen.nn import DPNet
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import NoiseGenerator, make_noise_generator

RELATIONS = ["add_or_remove_one", "replace_one"]


class Scripted:
    """Groups as written down, in the place of draws."""

    def __init__(self, labels):
        self.labels = np.asarray(labels)

    def integers(self, high, size):
        assert (self.labels < high).all()
        return self.labels[:size]

    def standard_normal(self, shape):
        return np.zeros(shape)


class Line(nn.Module):
    """KL(p||q) itself: q(z|x) = N(m x, 1), p = N(2, 1), m = 1; a record's own loss is -50 m x."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.line.weight)
        self.register_buffer("z", 2 + torch.erfinv(torch.linspace(-0.99, 0.99, 41)) * 2**0.5)

    def forward(self, x):
        return -50 * self.line(x)[:, 0]

    def group_losses(self, x, members):
        mean = self.line(x)[..., 0]
        log_q = -0.5 * (self.z[:, None] - mean[:, None, :]).square()
        log_q = torch.where(members[:, None, :] > 0, log_q, -torch.inf)
        full = members.sum(1) > 0
        return -torch.logsumexp(torch.where(full[:, None, None], log_q, 0.0), dim=2).mean(1) * full


class Groups(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x, groups):
        return self.module.group_losses(x, groups["members"])


class Wide(nn.Module):
    """Two layers; the groups' loss is a ratio of sums, which one record can turn round."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return (self.head(self.layers(x)) - x).square().sum(1)

    def group_losses(self, x, members):
        h = self.layers(x) * members[..., None]
        s = h.sum(1) / (0.01 + members.sum(1, keepdim=True))
        return torch.sin(9 * s).sum(1) * (members.sum(1) > 0)


def make_plan(n_groups=1, **changes):
    settings = {
        "sampling_rate": 0.1, "steps": 10, "noise_multiplier": 1.0, "expected_batch_size": 8.0, "sample_bound": 0.3,
        "group_bound": 0.07, "n_groups": n_groups,
    }  # fmt: skip
    return TermwisePlan(**{**settings, **changes})


def aggregate(module, x, labels, plan, path="fast"):
    x = torch.as_tensor(x, dtype=torch.float32)
    make = TermwiseAggregate(LossModule(module), Groups(module), plan, Scripted(labels), path=path, group_path=path)
    return make(x)


def pair(module, one, other, plan):
    """How far two neighbours, each (rows, groups), are apart, in units of the sensitivity that the clips allow."""
    first = aggregate(module, *one, plan)
    value = [v.clone() for v in first.value]
    second = aggregate(module, *other, plan)
    moved = sum((a.double() - b.double()).square().sum() for a, b in zip(value, second.value)) ** 0.5
    return float(moved) * (1 + plan.slack) / second.sensitivity(plan.neighboring)


def test_a_groups_gradient_turns_round_when_a_record_joins():
    module = Line()
    plan = make_plan()
    alone, both = ([[-1.0]], [0]), ([[-1.0], [1.0]], [0, 0])
    gradients = []
    for rows, _ in (alone, both):
        loss = module.group_losses(torch.tensor([rows]), torch.ones(1, len(rows))).sum()
        gradients.append(float(torch.autograd.grad(loss, module.line.weight)[0]))
    assert gradients[0] == pytest.approx(3.0, abs=0.01)
    assert gradients[1] == pytest.approx(-0.93, abs=0.02)
    assert pair(module, alone, both, plan) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("n_groups", [1, 4])
def test_termwise_sensitivity_is_attained_and_not_exceeded(relation, n_groups):
    plan = make_plan(n_groups, neighboring=relation)
    assert plan.l2_bound == pytest.approx(0.3 + 2 * 0.07 * 8 / n_groups)
    rest = [[0.5], [-0.2], [3.0], [0.1]][: n_groups - 1]  # one record in each of the other groups
    labels = list(range(1, n_groups))
    if relation == "add_or_remove_one":
        best = ([*rest, [-1.0]], [*labels, 0]), ([*rest, [-1.0], [1.0]], [*labels, 0, 0])
    else:
        best = ([*rest, [-1.0]], [*labels, 0]), ([*rest, [1.0]], [*labels, 0])
    assert 0.999 <= pair(Line(), *best, plan) <= 1 + 1e-6
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    for scale in (1e-3, 1.0, 1e3):
        module = Wide()
        for size in (0, 1, 2, 9):
            x, labels = rng.normal(size=(size + 1, 3)) * scale, rng.integers(0, n_groups, size + 1)
            other = (x[:-1], labels[:-1]) if relation == "add_or_remove_one" else (np.vstack([x[:-1], -x[-1:]]), labels)
            assert pair(module, (x, labels), other, plan) <= 1 + 1e-5
            x = np.repeat(x[:1], size + 1, axis=0)  # equal records push one way
            other = (x[:-1], labels[:-1]) if relation == "add_or_remove_one" else (np.vstack([x[:-1], -x[-1:]]), labels)
            assert pair(module, (x, labels), other, plan) <= 1 + 1e-5


def test_one_record_changes_its_own_group_alone_and_denominators_are_constant():
    torch.manual_seed(0)
    module, plan = Wide(), make_plan(4)
    x, labels = torch.randn(9, 3), [0, 1, 2, 3, 1, 2, 0, 3, 1]
    without = [v.clone() for v in aggregate(module, x[:8], labels[:8], plan).value]
    whole = [v.clone() for v in aggregate(module, x, labels, plan).value]
    alone = [v.clone() for v in aggregate(module, x[[1, 4]], [1, 1], plan).value]
    joined = [v.clone() for v in aggregate(module, x[[1, 4, 8]], [1, 1, 1], plan).value]
    for a, b, c, d in zip(whole, without, joined, alone):
        torch.testing.assert_close(a - b, c - d, rtol=0, atol=2e-6)


@pytest.mark.parametrize("path", ["vmap", "loop"])
def test_groups_in_one_pass_equal_reference(path):
    torch.manual_seed(0)
    module, plan = Wide(), make_plan(4, group_bound=0.02)
    x, labels = torch.randn(30, 3), np.random.default_rng(0).integers(0, 3, 30)  # the fourth is empty
    fast = [v.clone() for v in aggregate(module, x, labels, plan).value]
    for a, b in zip(fast, aggregate(module, x, labels, plan, path=path).value):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert any(a.abs().max() > 0 for a in fast)


def sum_by_hand(module, terms, plan):
    """Sum of the gradients of terms (loss, bound, weight), each clipped to its bound."""
    expected = [torch.zeros_like(p) for p in module.parameters()]
    for loss, bound, weight in terms:
        gradient = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
        gradient = [torch.zeros_like(p) if g is None else g for p, g in zip(module.parameters(), gradient)]
        norm = float(torch.cat([g.flatten() for g in gradient]).norm())
        for out, g in zip(expected, gradient):
            out += g * weight * min(1.0, bound / (1 + plan.slack) / norm)
    return expected


def test_the_sum_is_that_of_clipped_terms_by_hand():
    torch.manual_seed(0)
    module, plan = Wide(), make_plan(2)
    x, labels = torch.randn(7, 3), [0, 1, 1, 0, 1, 1, 0]
    terms = [(module(row[None])[0], 0.3, 1.0) for row in x]
    for j in range(2):
        rows = x[np.array(labels) == j]
        terms.append((module.group_losses(rows[None], torch.ones(1, len(rows)))[0], 0.07, 4.0))
    for a, b in zip(aggregate(module, x, labels, plan).value, sum_by_hand(module, terms, plan)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_record_that_is_not_finite_masks_itself_and_its_group_alone():
    torch.manual_seed(0)
    module, plan = Wide(), make_plan(2)
    x, labels = torch.randn(6, 3), [0, 1, 0, 1, 0, 1]
    bad = x.clone()
    bad[0] = torch.nan
    keep = torch.tensor([1, 3, 5])  # records of the other group
    with_bad = [v.clone() for v in aggregate(module, bad, labels, plan).value]
    samples = TermwiseAggregate(LossModule(module), Groups(module), plan, Scripted([0, 0]))(x[[2, 4]])
    alone = [v.clone() for v in samples.value]
    joint = [v.clone() for v in aggregate(module, x[[2, 4]], [0, 0], make_plan(2, group_bound=1e-12)).value]
    others = aggregate(module, x[keep], [1, 1, 1], plan).value
    assert all(torch.isfinite(v).all() for v in [*with_bad, *alone])
    for a, b, c in zip(with_bad, joint, others):
        torch.testing.assert_close(a, b + c, rtol=1e-4, atol=1e-6)


def test_chunks_with_padding_add_up_to_the_batch_and_an_empty_batch_is_zero():
    torch.manual_seed(0)
    module, plan = Wide(), make_plan(2)
    x, labels = torch.randn(5, 3), np.array([0, 1, 1, 0, 1])
    whole = [v.clone() for v in aggregate(module, x, labels, plan).value]
    parts = TermwiseAggregate(LossModule(module), Groups(module), plan, Scripted([0]))
    parts.reset()
    for rows, groups in ((slice(0, 4), [0, 1, 1, 0]), (slice(4, 5), [1, 0, 1, 0])):
        chunk, mask = torch.full((4, 3), 7.0), torch.zeros(4, dtype=torch.bool)
        chunk[: len(x[rows])], mask[: len(x[rows])] = x[rows], True
        parts._rng = Scripted(groups)
        parts.add(chunk, mask=mask)
    for a, b in zip(parts.result().value, whole):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    parts.reset()
    assert not any(v.any() for v in parts.result().value)
    parts.add(torch.ones(4, 3), mask=torch.zeros(4, dtype=torch.bool))
    assert not any(v.any() for v in parts.result().value)


def test_groups_are_draws_of_their_own():
    """One record more moves no other one, and group sizes vary as independent draws do."""
    more, fewer = (draw_groups(n, 16, NoiseGenerator("seeded", seed=3)) for n in (257, 256))
    assert (more[:256] == fewer).all()
    rng = make_noise_generator()
    sizes = np.array([np.bincount(draw_groups(256, 16, rng), minlength=16) for _ in range(200)])
    # variance B (1/b) (1 - 1/b) = 15 against 0 of equal sizes; 3200 sizes
    assert 12 < sizes.var() < 18
    together = np.mean([(lambda u: u[0] == u[1])(draw_groups(2, 4, rng)) for _ in range(2000)])
    assert 0.2 < together < 0.3


def test_gathered_groups_hold_every_record_once_and_zeros_beside():
    x = torch.arange(1.0, 12.0)[:, None]
    mask = torch.arange(11) < 9
    labels = np.array([0, 2, 2, 0, 2, 2, 2, 2, 0, 1, 1])
    (rows,), members = gather_groups((x,), mask, labels, 3)
    assert rows.shape == (3, 8, 1)
    assert members.sum(1).tolist() == [3, 0, 6]
    assert [sorted(rows[j, :, 0][members[j] > 0].tolist()) for j in range(3)] == [[1, 4, 9], [], [2, 3, 5, 6, 7, 8]]
    assert float(rows.sum()) == 45.0


class Trained(Wide):
    def group_losses(self, x, members):
        return super().group_losses(x, members)


def releases_of(X, plan, steps):
    from skorch.callbacks import Callback

    seen = []

    class Spy(Callback):
        def on_grad_computed(self, net, named_parameters, **kwargs):
            seen.append(torch.cat([p.grad.flatten().double() for _, p in named_parameters]))

    DPNet(Trained, plan=charged(plan), verbose=0, random_state=0, callbacks=[Spy()]).fit(X)
    return torch.stack(seen)


def test_noise_of_a_release_covers_both_terms():
    """One draw of ``z (C1/B + 2 C2/b)``, and a wrong scale is seen."""
    plan = make_plan(4, sampling_rate=1e-9, steps=400, noise_multiplier=1.5)
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    scaled = releases_of(X, plan, 400) / (1.5 * (0.3 / 8 + 2 * 0.07 / 4))
    ratio, tolerance = float(scaled.square().mean()), 5 * (2 / scaled.numel()) ** 0.5
    assert abs(ratio - 1) < tolerance
    for wrong in (2 / 3, 3 / 2):
        assert abs(ratio / wrong**2 - 1) > tolerance


def test_a_net_trains_by_groups_and_says_how():
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    net = DPNet(Trained, plan=charged(make_plan(4, sampling_rate=0.2)), verbose=0, random_state=0).check(X, groups=True)
    net.fit(X)
    assert (net.path_, net.group_path_, net.steps_taken_) == ("fast", "fast", 10)
    with pytest.raises(ValueError, match="group_losses"):
        DPNet(nn.Linear, module__in_features=3, module__out_features=1, plan=charged(make_plan(4)), verbose=0).fit(X)


def test_losses_of_groups_that_mix_groups_are_refused():
    class Mixing(Wide):
        def group_losses(self, x, members):
            return super().group_losses(x, members) * x.mean()

    X = np.zeros((40, 3), dtype=np.float32)
    with pytest.raises(ValueError, match="depends on the others"):
        DPNet(Mixing, verbose=0).check(X, groups=True)


def test_without_noise_the_release_is_the_mean_of_the_terms():
    plan = make_plan(1, sampling_rate=1.0, steps=1, noise_multiplier=0.0, expected_batch_size=20.0)
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    with seeded_noise(quiet=True):
        (release,) = releases_of(X, plan, 1)
    module = DPNet(Trained, verbose=0, random_state=0).initialize().module_
    x = torch.from_numpy(X)
    (module(x).mean() + module.group_losses(x[None], torch.ones(1, 20)).sum()).backward()
    torch.testing.assert_close(release.float(), torch.cat([p.grad.flatten() for p in module.parameters()]))


def test_plan_derives_its_bound_and_refuses_what_cannot_be():
    plan = make_plan(16, expected_batch_size=256, sample_bound=0.05, group_bound=0.005)
    assert plan.l2_bound / 256 == pytest.approx(8.203e-4, rel=1e-3)
    assert plan.difference_bound / 256 == pytest.approx(1.0156e-3, rel=1e-3)
    assert make_plan(1, expected_batch_size=20, sample_bound=0.05, group_bound=0.0005).l2_bound / 20 == pytest.approx(
        3.5e-3
    )
    for name in ("sample_bound", "group_bound"):
        for value in (0.0, -1.0, np.inf, np.nan):
            with pytest.raises(ValueError, match=name):
                make_plan(**{name: value})
    for value in (0, 1.5, -2):
        with pytest.raises(ValueError, match="n_groups"):
            make_plan(value)
    with pytest.raises(ValueError, match="expected batch size"):
        make_plan(9)
    with pytest.raises(TypeError):
        make_plan(l2_bound=1.0)
    assert copy.copy(plan) is plan
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    with pytest.raises(RuntimeError, match="was not charged"):
        again.claim(object())


@pytest.mark.parametrize(("relation", "expected"), [("add_or_remove_one", 0.4128), ("replace_one", 0.732)])
def test_a_termwise_plan_costs_what_a_plan_of_its_noise_costs(relation, expected):
    shared = {"sampling_rate": 300 / 63000, "steps": 840, "noise_multiplier": 1.4, "expected_batch_size": 300.0}
    plan = TermwisePlan(**shared, neighboring=relation)
    assert plan.event == DPSGDPlan(**shared, l2_bound=1.0).event
    assert plan.epsilon(1e-5) == pytest.approx(expected, abs=1e-3)
    assert epsilon_pld(plan.event, 1e-5, relation) == plan.epsilon(1e-5)
