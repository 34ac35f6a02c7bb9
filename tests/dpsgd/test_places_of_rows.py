"""A record that joins a batch leaves the gradients of the others as they are, wherever they stand in it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import ClippedSum, DPSGDPlan, LossModule, PartedPlan, PartedSum, PoissonLoader
from skdpgen.utils.noise import make_noise_generator


class Everyone:
    """A generator that includes every record and draws as another one does."""

    takes_all = True

    def __init__(self):
        self._rng = make_noise_generator("fast")

    def __getattr__(self, name):
        return getattr(self._rng, name)


def make_plan(n, **changes):
    return DPSGDPlan(1.0, 1, 1.0, 1.0, float(n), **changes)


def sum_of(loss, X, y, plan, *, path="fast", units=None):
    """The clipped sum of one step in which every record takes part."""
    total = ClippedSum(loss, plan.l2_bound, clip_norm=plan.clip_norm, path=path, weighting=plan.weighting)
    (batch,) = PoissonLoader((X, y), plan=plan, rng=Everyone(), units=units)
    total.reset()
    for chunk in batch:
        total.add(chunk.X, chunk.y, mask=chunk.mask, units=chunk.units)
    return torch.cat([part.flatten().double() for part in total.result().value])


def absolute_loss(width):
    """A linear model with one output, and a loss whose gradient turns around at its kink."""
    torch.manual_seed(0)
    return LossModule(nn.Linear(width, 1, bias=False), lambda m, X, y: (m(X)[:, 0] - y).abs())


def rows_at_the_kink(loss, n):
    """Rows whose labels are their outputs, where kernels round the last rows of an odd batch to another float."""
    generator = torch.Generator().manual_seed(1)
    width = loss.module.in_features
    for _ in range(2000):
        x = torch.randn(width, generator=generator)
        with torch.no_grad():
            outputs = loss.module(x.expand(335, width).contiguous())[:, 0]
        if len(outputs.unique()) > 1:
            return x.expand(n, width).contiguous(), outputs[:1].expand(n).contiguous()
    return x.expand(n, width).contiguous(), outputs[:1].expand(n).contiguous()  # this machine has no such row


@pytest.mark.parametrize("expected", [0.5, 1, 5, 20, 300, 1000, 5000])
@pytest.mark.parametrize("unit", [None, BoundedUnit("person", 7), BoundedUnit("person", 1100)], ids=str)
def test_default_batches_are_multiples_of_32(expected, unit):
    plan = make_plan(expected, unit=unit)
    assert plan.physical_batch % 32 == 0
    assert plan.physical_batch >= min(expected, 1024)
    assert plan.physical_batch >= (0 if unit is None else unit.max_rows)


def test_batches_of_parts_are_multiples_of_32():
    plan = PartedPlan(0.5, 1, 1.0, 1.0, 500.0, part_batch_sizes=(3.0, 100.0, 397.0, 5000.0))
    assert [rows % 32 for rows in PartedSum(nn.Linear(2, 1), plan)._rows] == [0, 0, 0, 0]


@pytest.mark.parametrize("size", [32, 64, 352, 1024])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(300, 1), (300,)),
        (nn.Linear(20, 1), (20,)),
        (nn.Linear(784, 50), (784,)),
        (nn.Conv2d(1, 4, 5), (1, 12, 12)),
        (nn.Softplus(), (37,)),
        (nn.Softplus(), (1,)),
        (nn.Sigmoid(), (1,)),
        (nn.GELU(), (3,)),
        (nn.LayerNorm(37), (37,)),
        (nn.LogSoftmax(1), (10,)),
    ],
    ids=str,
)
def test_rows_of_such_batches_are_computed_alike_at_every_place(layer, shape, size):
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        rows = torch.randn(1, *shape, generator=generator).expand(size, *shape).contiguous().requires_grad_()
        outputs = layer(rows)
        (slopes,) = torch.autograd.grad(outputs.square().sum(), rows)
        for found in (outputs.detach(), slopes):
            assert bool((found == found[:1]).all())


@pytest.mark.parametrize("weighting", [None, "rows", "units"])
@pytest.mark.parametrize(
    ("path", "n"), [("fast", 100), ("fast", 300), ("fast", 1500), ("vmap", 100), ("vmap", 300), ("loop", 100)]
)
def test_a_record_without_a_gradient_that_joins_leaves_the_sum_as_it_is(path, weighting, n):
    loss = absolute_loss(300)
    X, y = rows_at_the_kink(loss, n)
    unit = None if weighting is None else BoundedUnit("person", 3, weighting)
    plan = make_plan(n, unit=unit)
    units = None if unit is None else np.arange(n) // 2
    before = sum_of(loss, X, y, plan, path=path, units=units)
    X, y = torch.cat([torch.zeros(1, 300), X]), torch.cat([torch.zeros(1), y])
    units = None if unit is None else np.append(len(X), units)
    for _ in range(4):  # other orders
        after = sum_of(loss, X, y, plan, path=path, units=units)
        assert float((after - before).norm()) < 1e-3 * plan.l2_bound


def test_the_records_of_a_step_stand_in_a_random_order():
    plan = DPSGDPlan(1.0, 3000, 1.0, 1.0, 4.0)
    orders = [tuple(chunk.X[chunk.mask].flatten().int().tolist()) for batch in _batches(plan) for chunk in batch]
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for order in orders:
        counts[order] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-5
    # from one step to the next, too
    again = sum(one == other for one, other in itertools.pairwise(orders))
    assert stats.binomtest(again, len(orders) - 1, 1 / 24).pvalue > 1e-5


def test_units_stand_in_a_random_order():
    plan = DPSGDPlan(1.0, 3000, 1.0, 1.0, 4.0, unit=BoundedUnit("person", 1))
    orders = [tuple(chunk.X[chunk.mask].flatten().int().tolist()) for batch in _batches(plan) for chunk in batch]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-5


def _batches(plan):
    units = None if plan.unit is None else np.arange(4)
    return PoissonLoader(np.arange(4.0)[:, None], plan=plan, rng=make_noise_generator("fast"), units=units)
