"""What a record adds to a sum depends on no other: neither the rule of its layer, nor the rounding of the sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import ClippedSum, DPSGDPlan, LossModule, PartedPlan, PoissonLoader, _layers
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


@pytest.mark.parametrize("n", [1, 64, 65, 1000, 4096])
@pytest.mark.parametrize("widths", [(1, 1), (3, 2), (40, 30), (5, 0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_errs_by_the_additions_of_a_term(n, widths, dtype):
    terms = terms_near_a_power_of_two(n) if n > 900 else torch.rand(n)
    left = terms[:, None].expand(-1, widths[0]).contiguous()
    right = torch.ones(n, widths[1]) if widths[1] else torch.ones(n)
    out = torch.full(widths if widths[1] else widths[:1], 7.0, dtype=dtype)
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
        plan = DPSGDPlan(0.1, 1, 1.0, 1.0, expected)
        size, number, _ = plan.physical_batches
        additions = 64 + size / 64 + number  # of rows in one product, of products, of passes
        most = expected + 8 * expected**0.5
        assert plan.clip_norm * (1 + most * additions * 2.0**-23) + 2.0**-15 <= 1
        parted = PartedPlan(0.1, 1, 1.0, 1.0, expected, part_batch_sizes=(expected, 1.0))
        more = number * np.ceil(expected / 1024)
        assert parted.clip_norm * (1 + most * (additions + more) * 2.0**-23) + 2.0**-15 <= 1
        # sums of subsets are sequential
        plan = SubsetPlan(10**6, 10, 1.0, per_step=int(expected))
        assert plan.clip_norm * (1 + most**2 * 2.0**-23) + 2.0**-15 <= 1


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
