"""What a record adds to a sum depends on no other: neither the rule of its layer, nor the rounding of the sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import ClippedSum, DPSGDPlan, LossModule, PartedPlan, PoissonLoader, TermwisePlan, _layers
from skdpgen.dpsgd._layers import SUMMED_TOGETHER, Pool, add_product
from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.utils.noise import make_noise_generator


# ---- the additions -------------------------------------------------------------------------------------------------
def terms_near_a_power_of_two(n, largest=0.875):
    """Terms whose sum comes near a power of two, and then those that float32 rounds one way below it and not above."""
    top = 2.0 ** np.floor(np.log2(n / 4))
    n_large = int((top - largest / 2) / largest)
    large = [largest] * n_large + [top - largest / 2 - n_large * largest]
    small = np.resize(np.array([3.0, -1.0, 3.0, -5.0]) * top * 2.0**-24, n - len(large))
    return torch.tensor([*large, *small], dtype=torch.float32)


def terms_below_the_last_place(n):
    """One, and terms that float32 loses where they are added to it one by one."""
    terms = torch.full((n,), 0.9 * 2.0**-24)
    terms[0] = 1.0
    return terms


@pytest.mark.parametrize("n", [1, 64, 65, 1000, 4096])
@pytest.mark.parametrize("widths", [(1, 1), (3, 2), (40, 30), (5, 0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_errs_by_the_additions_of_a_term(n, widths, dtype):
    terms = terms_below_the_last_place(n)
    left = terms[:, None].expand(-1, widths[0]).contiguous()
    right = torch.ones(n, widths[1]) if widths[1] else torch.ones(n)
    out = torch.full(widths if widths[1] else widths[:1], torch.nan, dtype=dtype)
    add_product(out, left, right, 0, Pool())
    exact, size = terms.double().sum(), terms.double().abs().sum()
    additions = SUMMED_TOGETHER + -(-n // SUMMED_TOGETHER)
    assert (out - exact).abs().max() <= size * (additions * 2.0**-24 if dtype == torch.float32 else 1e-12)
    add_product(out, left, right, 1, Pool())
    assert (out - 2 * exact).abs().max() <= size * (additions * 2.0**-21 if dtype == torch.float32 else 1e-12)


class One(nn.Module):
    """A loss whose gradient is the record."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)

    def forward(self, X):
        return self.layer(X)[:, 0]


@pytest.mark.parametrize("path", ["fast", "vmap"])
@pytest.mark.parametrize("rows", [1, 8])
def test_a_unit_moves_a_sum_of_many_by_its_gradient(path, rows):
    """Units are computed in their order. In float32, those after a power of two would be rounded otherwise."""
    n = 3000 if rows == 1 else 400
    terms = terms_near_a_power_of_two(n)
    unit = BoundedUnit("person", 20 if rows > 1 else 1, "units")
    plan = DPSGDPlan(1.0, 1, 1.0, 1.0, float(n), unit=unit)
    found = []
    for values in (terms, torch.cat([terms[:1], terms])):
        X, units = values.repeat_interleave(rows)[:, None], np.repeat(np.arange(len(values)), rows)
        (batch,) = PoissonLoader(X, plan=plan, rng=make_noise_generator("fast"), units=units)
        total = ClippedSum(LossModule(One()), 1.0, weighting="units", path=path)
        total.reset()
        for chunk in batch:
            total.add(chunk.X, mask=chunk.mask, units=chunk.units)
        found.append(float(total.result().value[0]))
    # rows of a unit that may cancel are clipped a little more
    assert found[1] - found[0] == pytest.approx(0.875, abs=1e-3)


def test_the_slack_covers_the_additions():
    for expected in (10.0, 300.0, 4096.0, 1e5):
        parts = {"part_batch_sizes": (expected, 1.0)}
        for plan in (DPSGDPlan(0.1, 1, 1.0, 1.0, expected), PartedPlan(0.1, 1, 1.0, 1.0, expected, **parts)):
            # rows in one product, and products in one pass, of all records or of a part
            additions = 64 + np.ceil(max(plan.physical_batch, 1024) / 64)
            most = expected + 8 * expected**0.5
            assert plan.clip_norm * (1 + most * additions * 2.0**-23) + 2.0**-15 <= 1
        # all groups in one pass, and then their sum
        plan = TermwisePlan(0.1, 1, 1.0, expected, n_groups=int(expected), sample_bound=1e-3, group_bound=1.0)
        additions = 64 + np.ceil(max(plan.physical_batch, 1024, expected) / 64) + 2
        assert plan.group_bound / (1 + plan.slack) * (1 + most * additions * 2.0**-23) + 2.0**-15 <= 1
        # sums of subsets are sequential
        plan = SubsetPlan(10**6, 10, 1.0, per_step=int(expected))
        assert plan.clip_norm * (1 + most**2 * 2.0**-23) + 2.0**-15 <= 1


@pytest.mark.parametrize("rows", [1, 64])
def test_a_pass_does_not_begin_with_the_sum_of_earlier_ones(rows):
    """Each term is below the last place of the first one: added one by one, they would be lost."""
    total = ClippedSum(LossModule(One()), 2.0**25)
    total.reset()
    total.add(torch.tensor([[2.0**24]]))
    for _ in range(64):
        total.add(torch.full((rows, 1), 0.9))
    assert float(total.result().value[0]) == pytest.approx(2**24 + 64 * rows * 0.9, abs=2)
    total.reset()
    total.add(torch.tensor([[1.0]]))
    assert float(total.result().value[0]) == 1.0


def test_gradients_that_are_formed_in_blocks_are_added_exactly():
    terms = terms_below_the_last_place(3000)
    total = ClippedSum(LossModule(One()), 2.0, path="vmap", reference_scalars=1)
    assert float(total(terms[:, None]).value[0]) == pytest.approx(float(terms.double().sum()), abs=2e-7)


@pytest.mark.parametrize("path", ["fast", "vmap"])
def test_gradients_of_units_are_added_exactly(path):
    terms = terms_below_the_last_place(3000)
    total = ClippedSum(LossModule(One()), 2.0, weighting="rows", path=path)
    found = float(total(terms[:, None], units=np.arange(3000)).value[0])
    assert found == pytest.approx(float(terms.double().sum()), abs=2e-7)


# ---- the rules of the layers ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("layer", ["linear", "sequence", "conv"])
def test_no_unit_changes_the_rule_of_a_layer_for_others(layer):
    """How much is stored decides the rule of a layer. It must not depend on how many units share a physical batch."""
    torch.manual_seed(0)
    make, shape = {
        "linear": (lambda: nn.Linear(6, 5), (6,)),
        "sequence": (lambda: nn.Linear(6, 5), (3, 6)),
        "conv": (lambda: nn.Conv2d(2, 3, 3), (2, 5, 5)),
    }[layer]
    root = LossModule(make(), lambda m, x: m(x).flatten(1).square().sum(1))
    x, units = 1e3 * torch.randn(120, *shape), np.repeat([0, 1, -1], 40)
    x[80:] = 0.0  # the gradient by the weights is zero
    for most in range(100, 40 * 160, 37):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_layers, "_KEEP", most)
            sums = []
            for of_rows in (units, np.repeat([0, 1, 2], 40)):
                mask = torch.from_numpy(of_rows >= 0)
                sums.append(ClippedSum(root, 1.0, weighting="rows")(x, mask=mask, units=of_rows).value[0].double())
        torch.testing.assert_close(*sums, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("joining", [2, 9, 32, 33])
def test_the_size_of_a_unit_does_not_change_the_norms_of_others(joining):
    """Units of few rows share windows as wide as the largest of them. Pairs that nearly cancel show any rounding."""
    torch.manual_seed(1)
    layer, n = nn.Linear(300, 100, bias=False), 200
    root = LossModule(layer, lambda m, x, sign: (m(x) * 1e3).sum(1) * sign)
    x, sign, units = torch.zeros(2 * n + joining, 300), torch.zeros(2 * n + joining), np.full(2 * n + joining, -1)
    x[: 2 * n], sign[: 2 * n : 2], sign[1 : 2 * n : 2] = torch.rand(1, 300), 1, -(1 - 2**-4)
    units[: 2 * n] = np.arange(2 * n) // 2
    sums = []
    for k in (0, joining):
        units[2 * n : 2 * n + k] = 10**6
        mask = torch.from_numpy(units >= 0)
        sums.append(ClippedSum(root, 1.0, weighting="rows")(x, sign, mask=mask, units=units).value[0].double())
    assert float((sums[0] - sums[1]).norm()) < n * 2.0**-24


def test_rows_of_a_unit_that_is_alone_stand_in_a_random_order():
    """The table has the rows of all units in another order if one unit has more of them than are used."""
    plan = DPSGDPlan(1.0, 2000, 1.0, 1.0, 6.0, unit=BoundedUnit("person", 3), max_physical_batch=10)
    loader = PoissonLoader(
        np.arange(3.0)[:, None], plan=plan, rng=make_noise_generator("fast"), units=np.zeros(3, dtype=int)
    )
    orders = [tuple(chunk.X.flatten().int().tolist()) for batch in loader for chunk in batch]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert counts.min() > 2000 / 6 - 5 * (2000 / 6) ** 0.5


class SumOfPlaces(nn.Module):
    """A layer of each place of a record, whose outputs are summed: the gradient by the outputs is one number."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 40, bias=False)

    def forward(self, X):
        return self.layer(X.unsqueeze(-1)).sum((1, 2))


def cancelling_places(n, n_places=100):
    """Whole numbers of a record whose sum is zero, and of which float32 sums in another order differ."""
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(-(2**24), 2**24, (n, n_places // 2), generator=generator).float()
    both = torch.cat([half, -half], 1)
    return torch.stack([row[torch.randperm(n_places, generator=generator)] for row in both])


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e34])
def test_an_unusable_record_changes_no_other_gradient(value):
    """Its rows are set to zero in a copy, which may lie otherwise in memory, and then kernels round otherwise."""
    X, root = cancelling_places(2000), LossModule(SumOfPlaces())
    alone, beside = (
        ClippedSum(root, 1.0)(torch.cat([X, torch.full((1, 100), last)])).value[0] for last in (0.0, value)
    )
    assert torch.equal(alone, beside)


class Weighted(nn.Module):
    """Sum over places of weights of outputs: where weights are opposite for equal inputs, the gradient is zero."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3, bias=False)

    def forward(self, X):
        return (self.layer(X[..., :5].contiguous()) * X[..., 5:]).sum((1, 2))


@pytest.mark.parametrize("rows", [1, 2])
def test_a_unit_that_joins_does_not_move_products_of_the_places_of_others(rows):
    """Units are computed in the order of their numbers; float32 products are rounded by their index in a batch."""
    generator, n = torch.Generator().manual_seed(1), 300
    half = 2000 * torch.randn((n * rows, 50, 8), generator=generator)
    opposite = half.clone()
    opposite[..., 5:] *= -1
    X = torch.cat([torch.full((rows, 100, 8), 1e-3), torch.cat([half, opposite], 1)])
    for i in range(rows, len(X)):
        X[i] = X[i][torch.randperm(100, generator=generator)]
    units = np.repeat(np.arange(n + 1), rows)
    sums = []
    for first in (0, 1):
        of_rows = np.where(units < first, -1, units - first)
        total = ClippedSum(LossModule(Weighted()), 1.0, weighting="rows")
        sums.append(total(X, mask=torch.from_numpy(of_rows >= 0), units=of_rows).value[0].double())
    assert float((sums[0] - sums[1]).norm()) < 2e-3  # the gradient of the unit that joined
