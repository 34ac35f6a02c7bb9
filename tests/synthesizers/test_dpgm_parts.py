"""Models of disjoint parts trained as one: the sum, its sensitivity, its noise, the price of a record that moves."""

from __future__ import annotations

import contextlib
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _charged import charged
from _claims import RELATIONS, noise_is_at_scale
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from torch import nn

from skdpgen.accounting import epsilon_pld, poisson_gaussian_event
from skdpgen.dpsgd import ClippedSum, GradientNoise, LossModule, PartedPlan, PartedSum
from skdpgen.nn import GaussianLikelihood, PartitionedVAEModule, ScaledParts
from skdpgen.utils.noise import make_noise_generator

AR, RO = RELATIONS


class Lines(nn.Module):
    """Three lines through 0; a record (x, part) of line m has the loss -50 m x: a gradient of +-50, always clipped."""

    def __init__(self, n_parts=3):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(n_parts))
        self.active = None

    def part_of(self, X):
        return X[:, -1].long()

    @contextlib.contextmanager
    def only(self, part):
        self.active = part
        yield
        self.active = None

    def forward(self, X):
        if self.active is not None:
            return -50 * self.parts[self.active](X[:, :1])[:, 0]
        of_part = self.part_of(X)
        return sum(torch.where(of_part == k, -50 * p(X[:, :1])[:, 0], 0.0) for k, p in enumerate(self.parts))


def make_plan(sizes=(2.0, 2.0, 2.0), **changes):
    settings = {"sampling_rate": 0.1, "steps": 10, "l2_bound": 0.3, "noise_multiplier": 1.0, "expected_batch_size": 6.0}
    return PartedPlan(**{**settings, **changes}, part_batch_sizes=tuple(sizes))


def parted_sum(rows, plan):
    """The sum over rows (x, part), a vector, and the bounds that come with it."""
    rows = torch.tensor(rows, dtype=torch.float32).reshape(-1, 2)
    bounded = PartedSum(LossModule(Lines()), plan)(rows)
    return torch.cat([v.flatten() for v in bounded.value]).double().numpy(), bounded


def parts_sensitivity_is_attained_and_not_exceeded(relation):
    """A record that joins moves one block by the bound; one that turns round by twice it; one that moves by sqrt(2)."""
    plan = make_plan(neighboring=relation)
    rest = [[0.5, 0], [-0.2, 1], [3.0, 1]]
    others = [[[x, part]] for x in (-1.0, 1.0, 0.001, 1e6) for part in (0, 2)]
    changes = []
    for one in [[], *others] if relation == AR else others:
        for other in others if relation == RO or not one else []:
            (a, bounded), (b, _) = (parted_sum([*rest, *row], plan) for row in (one, other))
            changes.append(np.linalg.norm(a - b) * (1 + plan.slack) / bounded.sensitivity(relation))
    assert max(changes) <= 1 + 1e-6
    assert max(changes) >= 0.999
    if relation == RO:
        (a, bounded), (b, _) = (parted_sum([*rest, row], plan) for row in ([1.0, 0], [1.0, 2]))
        moved = np.linalg.norm(a - b) * (1 + plan.slack) / bounded.add_or_remove_one
        assert moved == pytest.approx(2**0.5, abs=1e-3)


@pytest.mark.parametrize("relation", RELATIONS)
def test_parts_sensitivity(relation):
    parts_sensitivity_is_attained_and_not_exceeded(relation)


def test_a_record_moves_the_block_of_its_own_part_alone():
    plan = make_plan()
    before, _ = parted_sum([[0.5, 0], [-0.2, 1], [0.3, 2]], plan)
    after, _ = parted_sum([[0.7, 1], [0.5, 0], [-0.2, 1], [0.3, 2]], plan)
    assert before[[0, 2]].tolist() == after[[0, 2]].tolist()
    assert before[1] != after[1]
    gone, _ = parted_sum([[0.5, 0], [9.0, 7], [-0.2, 1], [0.3, 2]], plan)  # of a part that there is not
    assert gone.tolist() == before.tolist()


def test_a_record_that_is_not_finite_masks_itself_alone():
    plan, rows = make_plan(), [[0.5, 0], [-0.2, 0], [0.3, 2]]
    whole, _ = parted_sum(rows, plan)
    masked, _ = parted_sum([*rows, [math.nan, 0]], plan)
    assert masked.tolist() == whole.tolist()


def _vae(n_parts=3, **options):
    torch.manual_seed(0)
    return PartitionedVAEModule(n_parts, 4, 2, GaussianLikelihood(), n_hidden=6, n_labels=2, **options)


def _rows(n, rng):
    x = rng.random((n, 4)), np.eye(2)[rng.integers(0, 2, n)], rng.choice([0, 2], n)[:, None]
    rows = torch.tensor(np.hstack(x), dtype=torch.float32)
    return rows, torch.tensor(rng.normal(size=(n, 1, 2)), dtype=torch.float32)


@pytest.mark.parametrize("path", ["fast", "vmap", "loop"])
def test_the_sum_is_that_of_all_models_on_all_records(rng, path):
    """Batches of each part, padded, against every model run on every record; the second part is empty."""
    root = LossModule(_vae())
    plan = make_plan((0.5, 1.0, 2.0))  # batches of 18, 20 and 23 rows
    rows, mask = _rows(150, rng), torch.tensor(rng.random(150) < 0.8)
    whole = ClippedSum(root, plan.l2_bound, clip_norm=plan.clip_norm, path="loop")(*rows, mask=mask)
    parted = plan.make_aggregate(root, None, path=path)
    parted.reset()
    for part in (slice(0, 100), slice(100, 150)):
        parted.add(*(x[part] for x in rows), mask=mask[part])
    for a, b in zip(parted.result().value, whole.value):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    parted.reset()
    assert all(not v.any() for v in parted.result().value)


def test_noise_is_drawn_for_every_block_at_one_scale():
    """A part without records gets the noise of one with many: half of it, or none, would tell that it is empty."""
    plan = make_plan((2.0, 50.0))
    root = LossModule(nn.Module())
    root.module.parts = nn.ModuleList(nn.Linear(200, 300) for _ in range(2))
    parted = plan.make_aggregate(root, None)
    parted.reset()
    noise = GradientNoise([p.shape for p in parted.parameters], 1.0, make_noise_generator("secure"), steps=2)
    with noise:
        drawn = [noise.release(parted.result()) for _ in range(2)]
    for k in (0, 2):  # weights and biases of a part
        block = torch.cat([v.flatten() for d in drawn for v in d[k : k + 2]]).numpy()
        assert block.size > 100_000
        assert noise_is_at_scale(block, plan.noise_std)
        assert not noise_is_at_scale(block, 2 / 3 * plan.noise_std)
        assert not noise_is_at_scale(block, 3 / 2 * plan.noise_std)


def _moving(q, z, steps, delta):
    """Epsilon of a record that leaves one model and joins another: the two losses, of independent noise, add up."""
    step = pld.from_gaussian_mechanism(
        z,
        sampling_prob=q,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        value_discretization_interval=1e-3,
    )
    leaves, joins = step._pmf_remove, step._pmf_add
    both = pld.PrivacyLossDistribution(leaves.self_compose(steps).compose(joins.self_compose(steps)))
    return both.get_epsilon_for_delta(delta)


@pytest.mark.parametrize(("q", "z", "steps"), [(0.02, 0.7, 60), (0.1, 2.0, 300), (0.5, 3.0, 20)])
def test_a_record_that_moves_to_another_model_costs_less_than_what_is_charged(q, z, steps):
    event, delta = poisson_gaussian_event(q, z, steps), 1e-5
    moving, charged = _moving(q, z, steps, delta), epsilon_pld(event, delta, RO)
    assert moving <= charged * 1.001
    assert moving >= epsilon_pld(event, delta, AR) * 0.99  # and more than one that joins a model


def test_sizes_of_parts_are_checked_and_a_pickled_plan_is_not_charged():
    for sizes in ((), (0.0, 1.0), (math.inf,)):
        with pytest.raises(ValueError, match="part_batch_sizes"):
            make_plan(sizes)
    again = pickle.loads(pickle.dumps(charged(make_plan((1.0, 2.0)))))
    assert again.part_batch_sizes == (1.0, 2.0)
    with pytest.raises(RuntimeError, match="was not charged"):
        again.claim(object())


def test_released_gradients_are_scaled_part_by_part():
    module = _vae(2)
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    module.parts[0].encoder[0].weight.requires_grad_(False)
    ScaledParts((10.0, 0.5)).on_grad_computed(SimpleNamespace(module_=module), named_parameters=[])
    assert {float(p.grad.mean()) for p in module.parts[0].parameters() if p.requires_grad} == {10.0}
    assert {float(p.grad.mean()) for p in module.parts[1].parameters()} == {0.5}
