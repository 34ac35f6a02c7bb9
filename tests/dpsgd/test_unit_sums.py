"""Units of several rows: sampled whole, their gradients summed and clipped once, and no unit moves the sum further."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from test_clipped_sum import LAYERS, Layer, assert_equal, data
from torch import nn

from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import ClippedSum, DPSGDPlan, LossModule, PartedPlan, PartedSum, PoissonLoader
from skdpgen.dpsgd import _layers as layers
from skdpgen.dpsgd import _units as units_module
from skdpgen.dpsgd._units import Arrangement, RowUnits, unit_codes
from skdpgen.exceptions import PrivacyLeakWarning
from skdpgen.nn import PartitionedVAEModule
from skdpgen.nn._likelihoods import GaussianLikelihood
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

# units of one to four rows in any order, and padding
UNITS = np.array([3, 7, 3, -1, 2, 7, 3, 9, 11, 11, 3, -1])
WEIGHTINGS = ["rows", "units"]


def naive(root, inputs, units, clip, weighting):
    """The sum by one backward pass for each unit and row, and the norms before the clip, with their allowance."""
    parameters = [p for p in root.parameters() if p.requires_grad]
    total, norms = [torch.zeros_like(p) for p in parameters], []
    for unit in np.unique(units[units >= 0]):
        rows = np.flatnonzero(units == unit)
        of_rows = []
        for row in rows:
            loss = root(*(x[row : row + 1] for x in inputs)).sum()
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            of_rows.append([torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters)])
        scale = len(rows) if weighting == "units" else 1
        found = [sum(gradients) / scale for gradients in zip(*of_rows)]
        sizes = [sum(float(g.double().norm()) for g in gradients) / scale for gradients in zip(*of_rows)]
        allowance = 2**-10 * sum(size**2 for size in sizes) * (len(rows) > 1)
        norms.append(float((sum(g.double().square().sum() for g in found) + allowance) ** 0.5))
        if np.isfinite(norms[-1]):
            for out, g in zip(total, found):
                out += g * min(1.0, clip / norms[-1])
    return total, norms


def assert_near(found, expected, clip):
    """Equal but for rounding, and for what the norms of places within a row have for cancellation."""
    gap = sum((a - b).double().square().sum() for a, b in zip(found, expected)) ** 0.5
    assert len(found) == len(expected)
    assert float(gap) < 2e-3 * clip


# ---- the fast path equals a loop over units -----------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch copies its input: no harm
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("name", LAYERS)
def test_units_equal_one_backward_pass_for_each(name, weighting):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    root, x = LossModule(Layer(make())), data(12, *shape)
    clip = float(np.median(naive(root, (x,), UNITS, np.inf, weighting)[1]))  # half of the units are clipped
    expected, _ = naive(root, (x,), UNITS, clip, weighting)
    for path in ("fast", "vmap"):
        found = ClippedSum(root, clip, path=path, weighting=weighting)(x, units=UNITS)
        assert found.add_or_remove_one == clip
        assert_near(found.value, expected, clip)


@pytest.mark.parametrize(("block", "kept"), [(1, 2**25), (2**12, 0)])
def test_units_do_not_depend_on_the_blocks_that_rules_compute_at_once(block, kept):
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using padding='same' with even kernel")
        patch.setattr(layers, "_BLOCK", block)
        patch.setattr(layers, "_KEEP", kept)
        for make, shape in LAYERS.values():
            root, x = LossModule(Layer(make())), data(12, *shape)
            expected, _ = naive(root, (x,), UNITS, 0.5, "rows")
            # formed gradients of few places get no allowance for cancellation; without storage all do
            found = ClippedSum(root, 0.5, weighting="rows")(x, units=UNITS).value
            gap = sum((a - b).double().square().sum() for a, b in zip(found, expected)) ** 0.5
            assert float(gap) < 0.05


@pytest.mark.parametrize("shape", [(), (5,), (3, 2)])
def test_embeddings_of_units_equal_a_loop(shape):
    torch.manual_seed(0)
    root, x = LossModule(Layer(nn.Embedding(4, 3, padding_idx=1))), data(12, *shape, integers=4)
    for path in ("fast", "loop"):
        found = ClippedSum(root, 0.5, path=path, weighting="rows")(x, units=UNITS).value
        assert_near(found, naive(root, (x,), UNITS, 0.5, "rows")[0], 0.5)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize("widest", [32, 16, 2, 1])
def test_linear_layers_of_all_sizes_of_units(frozen, widest, monkeypatch):
    """Windows for units of few rows, blocks for those of many; weight or bias alone."""
    monkeypatch.setattr(units_module, "_WIDEST", widest)
    torch.manual_seed(0)
    units = np.repeat(np.arange(7), [1, 9, 4, 4, 2, 17, 3])[np.random.default_rng(0).permutation(40)]
    module, x = Layer(nn.Linear(30, 40)), data(40, 30)
    module.layer.get_parameter(frozen).requires_grad_(False)
    root = LossModule(module)
    assert_near(
        ClippedSum(root, 0.5, weighting="rows")(x, units=units).value, naive(root, (x,), units, 0.5, "rows")[0], 0.5
    )


def test_units_of_one_row_are_records():
    torch.manual_seed(0)
    for make, shape in (LAYERS["linear"], LAYERS["conv"], LAYERS["group norm"]):
        root, x = LossModule(Layer(make())), data(12, *shape)
        rows = ClippedSum(root, 0.5)(x).value
        for weighting in WEIGHTINGS:
            assert_equal(ClippedSum(root, 0.5, weighting=weighting)(x, units=np.arange(12)[::-1].copy()).value, rows)


def test_an_empty_batch_and_one_of_padding_alone_are_zero():
    engine = ClippedSum(LossModule(Layer(nn.Linear(3, 2))), 0.5, weighting="rows")
    for x, units in ((data(0, 3), np.empty(0, dtype=int)), (data(4, 3), np.full(4, -1))):
        assert not any(bool(part.any()) for part in engine(x, units=units).value)


def test_a_network_whose_path_depends_on_its_input_is_summed_slowly():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return torch.tanh(self.layer(torch.tanh(self.layer(x)))).sum(1)

    torch.manual_seed(0)
    root, x = LossModule(Twice()), data(12, 3)
    found = ClippedSum(root, 0.5, weighting="units", reference_scalars=12)(x, units=UNITS).value
    assert_near(found, naive(root, (x,), UNITS, 0.5, "units")[0], 0.5)


def test_units_come_with_a_weighting_and_fit_the_rows():
    root, x = LossModule(Layer(nn.Linear(3, 2))), data(4, 3)
    with pytest.raises(ValueError, match="weighting="):
        ClippedSum(root, 1.0)(x, units=np.zeros(4, dtype=int))
    with pytest.raises(ValueError, match="weighting="):
        ClippedSum(root, 1.0, weighting="rows")(x)
    with pytest.raises(ValueError, match="one number for each row"):
        ClippedSum(root, 1.0, weighting="rows")(x, units=np.zeros(3, dtype=int))
    with pytest.raises(ValueError, match="'rows', 'units' or None"):
        ClippedSum(root, 1.0, weighting="row")


# ---- sensitivity --------------------------------------------------------------------------------------------------
def flat(value):
    return torch.cat([part.reshape(-1).double() for part in value])


def engine_of(path="fast", weighting="rows", clip=0.5):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 6))
    return ClippedSum(
        LossModule(module, lambda m, x: 50 * (m(x) - x).square().sum(1)), clip, path=path, weighting=weighting
    )


@pytest.mark.parametrize("path", ["fast", "vmap"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("rows", ["equal", "different", "one row"])
def test_a_unit_moves_the_sum_by_its_bound_and_no_further(rows, weighting, path):
    engine = engine_of(path, weighting)
    others, k = data(9, 6), 1 if rows == "one row" else 5
    own = data(1, 6, seed=4).expand(k, 6) if rows == "equal" else data(k, 6, seed=5)
    with_unit = flat(engine(torch.cat([others, own]), units=np.array([0, 0, 0, 1, 1, 2, 3, 4, 4] + [9] * k)).value)
    without = flat(engine(others, units=np.array([0, 0, 0, 1, 1, 2, 3, 4, 4])).value)
    moved = float((with_unit - without).norm())
    assert 0.5 * 0.99 < moved < 0.5 * (1 + 1e-4)


def test_replacing_a_unit_moves_the_sum_by_twice_the_bound_at_most_and_attains_it():
    layer = nn.Linear(1, 1, bias=False)
    engine = ClippedSum(LossModule(layer, lambda m, x: 9 * m(x)[:, 0]), 1.0, weighting="rows")
    up = flat(engine(torch.ones(3, 1), units=np.zeros(3, dtype=int)).value)
    down = flat(engine(-torch.ones(2, 1), units=np.zeros(2, dtype=int)).value)
    assert float((up - down).norm()) == pytest.approx(2, rel=1e-3)
    bounded = engine(torch.ones(1, 1), units=np.zeros(1, dtype=int))
    assert (bounded.unit, bounded.add_or_remove_one, bounded.replace_one) == ("unit", 1.0, None)  # twice, by None


def test_rows_of_a_unit_that_cancel_add_no_rounding_error_of_their_size():
    """Two rows with opposite gradients of norm 1e6 sum to about nothing: rounding must not become a contribution."""
    layer = nn.Linear(500, 300, bias=False)
    direction = data(300, seed=3)
    engine = ClippedSum(LossModule(layer, lambda m, x: m(x[:, :-1]) @ direction * x[:, -1]), 1.0, weighting="rows")
    row = torch.cat([data(1, 500), torch.tensor([[1e4]])], dim=1)
    opposite = row.clone()
    opposite[0, -1] = -1e4
    total = flat(engine(torch.cat([row, opposite]), units=np.zeros(2, dtype=int)).value)
    assert float(total.norm()) < 2**-15


# ---- sabotaged twins ----------------------------------------------------------------------------------------------
class ClipsRows(ClippedSum):
    """Sabotage: each row is clipped, and the rows of a unit add up to as many bounds."""

    def _add_units(self, inputs, units):
        super()._add_units(inputs, RowUnits(np.where(units.codes >= 0, np.arange(len(units.codes)), -1)))


class SplitsUnits(PoissonLoader):
    """Sabotage: chunks of a fixed number of rows, which split a unit into two contributions."""

    def __iter__(self):
        for batch in super().__iter__():
            chunks = list(batch)
            yield [self._half(chunk, place) for chunk in chunks for place in (0, 1)]

    def _half(self, chunk, place):
        rows = np.arange(len(chunk.units)) % 2 == place
        return chunk._replace(units=np.where(rows, chunk.units, -1), mask=chunk.mask & torch.from_numpy(rows))


class SamplesRows(PoissonLoader):
    """Sabotage: rows are sampled, so a unit takes part nearly always."""

    def __init__(self, dataset, *, units, **options):
        super().__init__(dataset, units=np.arange(len(units)), **options)
        self._unit = units

    def _chunk(self, *rows, **options):
        chunk = super()._chunk(*rows, **options)
        rows = np.where(
            chunk.units >= 0, self._unit[np.minimum(chunk.X[:, 0].numpy().astype(int), len(self._unit) - 1)], -1
        )
        return chunk._replace(units=rows)


def test_clipping_rows_in_place_of_units_exceeds_the_bound():
    right, wrong = engine_of(), ClipsRows(engine_of().root, 0.5, weighting="rows")
    x, units = data(1, 6, seed=4).expand(5, 6), np.zeros(5, dtype=int)
    assert float(flat(right(x, units=units).value).norm()) < 0.5001
    assert float(flat(wrong(x, units=units).value).norm()) == pytest.approx(2.5, rel=1e-3)


# ---- a unit that joins does not change others ---------------------------------------------------------------------
@pytest.mark.parametrize("path", ["fast", "vmap"])
def test_inserting_a_unit_leaves_the_clipped_gradients_of_others_equal(path):
    """Blocks of units, windows and the order of rows change around them."""
    engine = engine_of(path)
    x, units = data(14, 6), np.array([0, 1, 1, 2, 2, 2, 3, 0, 4, 4, 4, 4, 5, 3])

    def contributions(rows, codes):
        return {u: flat(engine(rows[codes == u], units=codes[codes == u]).value) for u in np.unique(codes)}

    alone = contributions(x, units)
    before = flat(engine(x, units=units).value)
    torch.testing.assert_close(before, sum(alone.values()), rtol=1e-4, atol=1e-5)
    for joining in (1, 2, 3, 5):
        place = np.random.default_rng(joining).permutation(14 + joining)
        rows = torch.cat([x, data(joining, 6, seed=9)])[place]
        codes = np.append(units, [8] * joining)[place]
        own = flat(engine(rows[codes == 8], units=codes[codes == 8]).value)
        after = flat(engine(rows, units=codes).value)
        torch.testing.assert_close(after - own, before, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("path", ["fast", "vmap", "loop"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_without_finite_gradient_takes_out_its_unit_and_no_other(path, value):
    engine = engine_of(path)
    x, units = data(9, 6), np.array([0, 0, 1, 1, 1, 2, 3, 3, -1])
    others = flat(engine(x[units != 1], units=units[units != 1]).value)
    x[3, 0] = value
    torch.testing.assert_close(flat(engine(x, units=units).value), others, rtol=1e-4, atol=1e-5)
    x[8] = value  # padding too
    torch.testing.assert_close(flat(engine(x, units=units).value), others, rtol=1e-4, atol=1e-5)


def test_an_arrangement_keeps_units_whole_and_sorts_them_by_size():
    arranged = Arrangement(np.array([4, 0, 4, -1, 2, 0, 4, 1]))
    assert arranged.order.tolist() == [0, 2, 6, 1, 5, 7, 4, 3]
    assert arranged.codes.tolist() == [4, 0, 1, 2, -1]
    assert [(b.rows.start, b.rows.stop, b.size) for b in arranged.blocks] == [(0, 3, 3), (3, 5, 2), (5, 8, 1)]
    assert Arrangement(np.array([2, 2, 0, 1])).order is None


# ---- several models -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_rows_of_a_unit_in_several_parts_are_clipped_together(weighting):
    torch.manual_seed(0)
    network = PartitionedVAEModule(3, 5, 2, GaussianLikelihood(), n_hidden=7)
    root = LossModule(network)
    unit = BoundedUnit("person", 4, weighting)
    plan = PartedPlan(0.1, 5, 0.5, 1.0, 12, part_batch_sizes=(4, 4, 4), unit=unit)
    x = torch.cat([data(12, 5), data(12, 1, integers=3).float()], dim=1)
    noise = data(12, *network.noise_shape, seed=2)
    whole = ClippedSum(root, 0.5, clip_norm=plan.clip_norm, weighting=weighting)
    found = PartedSum(root, plan)(x, noise, units=UNITS)
    assert_near(found.value, naive(root, (x, noise), UNITS, plan.clip_norm, weighting)[0], 0.5)
    assert_near(found.value, whole(x, noise, units=UNITS).value, 0.5)
    x[0, 0] = torch.nan  # a row of unit 3 whose other rows are in other parts
    rest = np.where(UNITS == 3, -1, UNITS)
    expected = PartedSum(root, plan)(torch.nan_to_num(x), noise, units=rest).value
    assert_near(PartedSum(root, plan)(x, noise, units=UNITS).value, expected, 1e-3)


# ---- sampling -----------------------------------------------------------------------------------------------------
def make_plan(rate=0.1, steps=50, n=400, k=5, weighting="rows", **changes):
    return DPSGDPlan(rate, steps, 1.0, 1.0, rate * n, unit=BoundedUnit("person", k, weighting), **changes)


def numbered(units, plan, loader=PoissonLoader, **options):
    """A loader of rows that hold their numbers."""
    X = np.arange(len(units), dtype=np.float64)[:, None]
    return loader(X, plan=plan, rng=make_noise_generator("fast"), units=units, **options)


def taken(loader, units, steps):
    """Which units take part in each step, and whether each comes with all its rows, in one chunk."""
    sizes = np.bincount(units)
    out, whole = np.zeros((steps, len(sizes)), dtype=bool), True
    for step, batch in enumerate(loader):
        for chunk in batch:
            rows = chunk.X[chunk.mask][:, 0].numpy().astype(int)
            found = np.bincount(units[rows], minlength=len(sizes))
            whole &= bool(((found == 0) | (found == sizes)).all()) and not (found > 0)[out[step]].any()
            out[step] |= found > 0
            codes = chunk.units[chunk.mask.numpy()]
            whole &= len(np.unique(codes * 10**6 + units[rows])) == len(np.unique(codes)) == len(np.unique(units[rows]))
    return out, whole


GROUPS = np.repeat(np.arange(120), np.resize([1, 1, 2, 5, 1, 3], 120))[np.random.default_rng(1).permutation(260)]


def test_units_are_sampled_whole_and_independently_at_the_rate():
    steps, rate = 1500, 0.1
    found, whole = taken(numbered(GROUPS, make_plan(rate, steps, 260)), GROUPS, steps)
    assert whole
    se = (rate * (1 - rate) / steps) ** 0.5
    assert np.abs(found.mean(0) - rate).max() < 5 * se  # units of five rows as those of one
    assert np.abs(np.corrcoef(found.T) - np.eye(120)).max() < 5.5 / steps**0.5
    counts = found.sum(1)
    statistic = ((counts - 12) ** 2).sum() / (120 * rate * (1 - rate))
    assert stats.chi2.ppf(5e-5, steps) < statistic < stats.chi2.ppf(1 - 5e-5, steps)


def test_sampling_rows_in_place_of_units_fails_that_test():
    steps, rate = 300, 0.1
    found, whole = taken(numbered(GROUPS, make_plan(rate, steps, 260), SamplesRows), GROUPS, steps)
    assert not whole
    assert found[:, np.bincount(GROUPS) == 5].mean() == pytest.approx(1 - 0.9**5, abs=0.05)


@pytest.mark.parametrize("size", [15, 150])
def test_a_large_batch_comes_in_chunks_that_never_split_a_unit(size):
    """All units share batches where 150 rows are computed at once; where 15 are, each unit is alone."""
    plan = make_plan(0.999999, 3, 260, max_physical_batch=size)
    for batch in numbered(GROUPS, plan):
        chunks = list(batch)
        assert all(len(chunk.X) <= size for chunk in chunks)
        assert all((chunk.units[~chunk.mask.numpy()] == -1).all() for chunk in chunks)
        assert sum(int(chunk.mask.sum()) for chunk in chunks) == 260
        alone = [len(chunk.X) for chunk in chunks if (chunk.units == chunk.units[0]).all()]
        assert sorted(alone) == sorted(size for size in np.bincount(GROUPS) if size > plan.physical_batches.shared)
        assert all(len(chunk.X) == plan.physical_batch for chunk in chunks if len(set(chunk.units)) > 1)
        assert len(chunks) <= len(alone) + plan.physical_batches.number
    assert taken(numbered(GROUPS, plan), GROUPS, 3)[1]
    assert not taken(numbered(GROUPS, plan, SplitsUnits), GROUPS, 3)[1]


def test_the_sum_does_not_depend_on_the_chunks():
    engine, sums = engine_of(), []
    X = data(260, 6).numpy()
    for size in (16, 200, 1024):
        plan = make_plan(1.0, 1, 260, max_physical_batch=size)
        engine.reset()
        for chunk in next(iter(PoissonLoader(X, plan=plan, rng=make_noise_generator("fast"), units=GROUPS))):
            engine.add(chunk.X, mask=chunk.mask, units=chunk.units)
        sums.append(flat(engine.result().value))
    torch.testing.assert_close(sums[0], sums[1], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(sums[0], sums[2], rtol=1e-3, atol=1e-4)


def test_a_unit_split_between_chunks_exceeds_the_bound():
    engine, norms = engine_of(), []
    X = data(1, 6, seed=4).expand(8, 6).numpy()
    for loader in (PoissonLoader, SplitsUnits):
        plan = make_plan(1.0, 1, 8, k=8, max_physical_batch=8)
        engine.reset()
        for chunk in next(iter(loader(X, plan=plan, rng=make_noise_generator("fast"), units=np.zeros(8, dtype=int)))):
            engine.add(chunk.X, mask=chunk.mask, units=chunk.units)
        norms.append(float(flat(engine.result().value).norm()))
    assert norms[0] < 0.5001
    assert norms[1] == pytest.approx(1.0, rel=1e-3)


def test_of_a_unit_with_more_rows_than_the_plan_says_so_many_are_used():
    """Else the largest unit, which is private, would set the size of a batch. Each of its rows is as likely."""
    units = np.repeat([0, 1, 2], [3, 40, 2])
    plan, found = make_plan(1.0, 2, 45, max_physical_batch=16), np.zeros(45)
    for _ in range(400):
        steps = [
            np.sort(np.concatenate([chunk.X[chunk.mask, 0].numpy() for chunk in batch])).astype(int)
            for batch in numbered(units, plan)
        ]
        np.testing.assert_array_equal(*steps)  # one choice for all steps
        assert np.bincount(units[steps[0]]).tolist() == [3, 5, 2]
        found[steps[0]] += 1 / 400
    np.testing.assert_allclose(found[units != 1], 1)
    assert np.abs(found[units == 1] - 5 / 40).max() < 5 * (0.125 * 0.875 / 400) ** 0.5


def test_draws_for_latents_do_not_depend_on_which_units_are_sampled():
    """Every place of a chunk gets its draws, so that those of other units are the same in distribution."""
    plan, drawn = make_plan(1.0, 2, 260), []
    for units in (GROUPS, GROUPS[:200]):
        with pytest.warns(PrivacyLeakWarning), seeded_noise(3):
            loader = numbered(units, plan, noise_shape=(2, 3))
        drawn.append(torch.stack([chunk.noise for batch in loader for chunk in batch]))
    assert drawn[0].shape == (2, plan.physical_batch, 2, 3)
    assert torch.equal(*drawn)


def test_loaders_refuse_units_that_do_not_fit_the_plan():
    rng, X = make_noise_generator("fast"), np.zeros((4, 1))
    with pytest.raises(ValueError, match="if the plan has a unit"):
        PoissonLoader(X, plan=make_plan(), rng=rng)
    with pytest.raises(ValueError, match="if the plan has a unit"):
        PoissonLoader(X, plan=DPSGDPlan(0.1, 1, 1.0, 1.0, 4), rng=rng, units=np.zeros(4, dtype=int))
    for units in (np.zeros(3, dtype=int), np.zeros(4), np.zeros((4, 1), dtype=int)):
        with pytest.raises(ValueError, match="whole numbers, one for each row"):
            PoissonLoader(X, plan=make_plan(), rng=rng, units=units)


# ---- plans and codes ----------------------------------------------------------------------------------------------
def test_a_plan_of_units_costs_what_one_of_records_costs():
    plan = DPSGDPlan(0.01, 100, 1.0, 1.0, 300)
    of_units = DPSGDPlan(0.01, 100, 1.0, 1.0, 300, unit=BoundedUnit("person", 20))
    assert plan.event == of_units.event
    assert "unit" not in plan.numbers
    assert of_units.numbers["unit"] == {"name": "person", "max_rows": 20, "weighting": "rows"}
    assert of_units.slack > plan.slack
    assert plan.physical_batch < of_units.physical_batch == of_units.places <= 4096
    assert copy.copy(of_units) is of_units


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"unit": "person"}, "PrivacyUnit or None"), ({"max_physical_batch": 4}, "are computed together")],
)
def test_plans_refuse_units_that_cannot_be_followed(changes, message):
    with pytest.raises(ValueError, match=message):
        DPSGDPlan(0.1, 1, 1.0, 1.0, 4, **{"unit": BoundedUnit("person", 5), **changes})


@pytest.mark.parametrize(
    "groups",
    [["b", "a", "b"], np.array(["b", "a", "b"], dtype=object), [7, -2, 7], [2**63 + 5, 1, 2**63 + 5], [0.5, 0.1, 0.5],
     np.array(["2020-01-02", "2020-01-01", "2020-01-02"], dtype="M8[D]"), [b"x", b"", b"x"], [True, False, True],
     pd.DataFrame({"id": ["b", "a", "b"]}), np.array([[7], [-2], [7]])],
)  # fmt: skip
def test_groups_of_any_kind_become_codes(groups):
    codes = unit_codes(groups)
    assert codes.dtype == np.int64
    assert codes[0] == codes[2] != codes[1]
    assert set(codes.tolist()) == {0, 1}


def test_equal_entries_of_different_types_are_one_unit():
    """A column of objects may hold one identifier as several types: the rows of a person must not become several."""
    one = [1, 1.0, np.int64(1), np.float32(1)]
    for first in range(len(one)):
        entries = [*one[first:], *one[:first], 2]
        codes = unit_codes(np.array(entries, dtype=object))
        assert [code == codes[0] for code in codes] == [entry == 1 for entry in entries]
        assert len(set(codes.tolist())) == 2


@pytest.mark.parametrize(
    "groups",
    [[1.0, np.nan], np.array(["a", None], dtype=object), [[1, 2]], 3, [1, "1"], pd.Series([1, None], dtype="Int64"),
     [2.0**53, 1.0], [2.0**53, 1], np.array([-(2.0**53), 1]), np.array([2.0**24, 1], dtype="f4"),
     np.array([np.float32(2.0**24), 1], dtype=object)],
)  # fmt: skip
def test_groups_that_name_no_unit_are_refused(groups):
    with pytest.raises(ValueError, match="groups must"):
        unit_codes(groups)


CANCELLING = {
    **{name: LAYERS[name] for name in ("linear", "linear on a sequence, product", "layer norm", "group norm")},
    "linear on a sequence, Gram": (lambda: nn.Linear(64, 48, bias=False), (3, 64)),
    "conv": (lambda: nn.Conv2d(2, 3, 3, bias=False), (2, 8, 7)),
    "conv, Gram": (lambda: nn.Conv2d(32, 64, 3, stride=2, bias=False), (32, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 2, 3, bias=False), (3, 5, 4)),
    "embedding": (lambda: nn.Embedding(4, 3), (5,)),
}


@pytest.mark.parametrize("path", ["fast", "vmap"])
@pytest.mark.parametrize("name", CANCELLING)
def test_a_unit_whose_rows_cancel_does_not_depend_on_the_place_of_its_rows(name, path):
    """The gradient of such a unit is a rounding error, which another unit would change: it must stay small."""
    make, shape = CANCELLING[name]
    torch.manual_seed(0)
    root = LossModule(Layer(make()), lambda m, x, sign: 1e6 * m(x) * sign)
    x = data(1, *shape, integers=4 if name == "embedding" else None).expand(2, *[-1] * len(shape))
    sign = torch.tensor([1.0, -(1 - 2**-22)])
    found = ClippedSum(root, 1.0, path=path, weighting="rows")(x, sign, units=np.zeros(2, dtype=int)).value
    assert 0 < float(flat(found).norm()) < 2**-13


@pytest.mark.parametrize("width", [(6, 5), (600, 500)], ids=["product", "Gram"])
@pytest.mark.parametrize("n", [20, 40])
def test_a_unit_of_many_rows_of_a_linear_layer(width, n):
    """As many as windows hold, and more. The norm is that of one backward pass, and rows that cancel add no error."""
    torch.manual_seed(0)
    layer = nn.Linear(*width)
    root = LossModule(Layer(layer), lambda m, x, sign: 1e6 * m(x) * sign)
    units = np.zeros(n, dtype=int)
    x, sign = data(n, width[0]), torch.linspace(0.5, 1, n)
    found = flat(ClippedSum(root, 1.0, weighting="rows")(x, sign, units=units).value).double()
    root(x, sign).sum().backward()
    whole = torch.cat([p.grad.flatten() for p in layer.parameters()]).double()
    # clipped to 1, but for the allowance for rows that may cancel, which is the square of the sum of their norms
    alone = [flat(ClippedSum(root, 1e30, weighting="rows")(x[i : i + 1], sign[i : i + 1], units=units[:1]).value)
             for i in range(n)]  # fmt: skip
    norm = (whole.square().sum() + 2**-10 * sum(g.double().norm() for g in alone) ** 2).sqrt()
    torch.testing.assert_close(found, whole / norm, rtol=1e-3, atol=1e-5)
    x = data(1, width[0]).expand(n, -1)
    sign = torch.tensor([1.0, -(1 - 2**-22)]).repeat(n // 2)
    found = ClippedSum(root, 1.0, weighting="rows")(x, sign, units=units).value
    assert 0 < float(flat(found).norm()) < 2**-13
