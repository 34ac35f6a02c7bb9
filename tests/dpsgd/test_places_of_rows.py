"""A record that joins a batch takes a free place, and leaves what the others contribute as it is, to the bit."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import ClippedSum, DPSGDPlan, LossModule, PartedPlan, PoissonLoader, TermwiseAggregate, TermwisePlan
from skdpgen.dpsgd._clipping import PartedSum
from skdpgen.dpsgd._places import batches_of_units, room_for
from skdpgen.utils.noise import NoiseGenerator, make_noise_generator

# Widths of a linear layer whose rows kernels round in two ways, by their place.
WIDTHS = [(300, 1), (37, 8), (37, 10), (50, 8), (7, 5)]
PLACES = 352


class AtTheKink(nn.Module):
    """Linear outputs, and the sum of their distances from a label, whose gradient turns around at zero."""

    def __init__(self, width, n_outputs):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(width, n_outputs, bias=False)

    def forward(self, X, y):
        return (self.linear(X) - y).abs().sum(1)

    def part_of(self, X):
        return (X[:, 0] > 0).long()

    def only(self, part):
        return contextlib.nullcontext()


def rows_at_the_kink(module, n):
    """Rows whose labels are their outputs at the first place of a batch, and how often another place gives others."""
    generator = torch.Generator().manual_seed(1)
    best, most = None, -1
    for _ in range(200):
        x = torch.randn(module.linear.in_features, generator=generator)
        with torch.no_grad():
            outputs = module.linear(x.expand(PLACES, -1).contiguous())
        turned = int((outputs != outputs[:1]).any(1).sum())
        if turned > most:
            best, most = (x, outputs[0]), turned
    return best[0].expand(n, -1).contiguous(), best[1].expand(n, -1).contiguous(), most


def summed(aggregate, X, y, mask, units=None):
    aggregate.reset()
    aggregate.add(X, y, mask=mask, **({} if units is None else {"units": units}))
    return torch.cat([part.flatten().double() for part in aggregate.result().value])


def at_places(places, X, y, size=PLACES):
    rows, labels = torch.zeros(size, X.shape[1]), torch.zeros(size, y.shape[1])
    rows[places], labels[places] = X, y
    mask = torch.zeros(size, dtype=torch.bool)
    mask[places] = True
    return rows, labels, mask


def test_rows_of_the_tests_below_are_rounded_by_their_place():
    """Otherwise, on this machine, they show little."""
    if torch.backends.mkl.is_available():
        assert sum(rows_at_the_kink(AtTheKink(*width), 1)[2] > 0 for width in WIDTHS) > 0


@pytest.mark.parametrize("width", WIDTHS, ids=str)
@pytest.mark.parametrize("path", ["fast", "vmap", "loop"])
@pytest.mark.parametrize("weighting", [None, "rows", "units"])
def test_what_joins_moves_a_sum_by_its_own_contribution_alone(width, path, weighting):
    module = AtTheKink(*width)
    X, y, _ = rows_at_the_kink(module, 200)
    places = np.random.default_rng(0).permutation(PLACES)
    at, free = places[:200], places[200:]
    aggregate = ClippedSum(LossModule(module), 1.0, clip_norm=0.99, path=path, weighting=weighting)
    X1, y1, mask = at_places(at, X, y)
    units = None if weighting is None else np.full(PLACES, -1)
    if units is not None:
        units[at] = np.arange(200) // 2
    before = summed(aggregate, X1, y1, mask, units)
    for k in (1, 3, 7):  # of a joining unit, other numbers of rows than the others have
        if weighting is None and k > 1:
            break
        joined = free[:k]
        X2, y2, mask2 = X1.clone(), y1.clone(), mask.clone()
        X2[joined], y2[joined], mask2[joined] = torch.randn(k, width[0]), -100.0, True
        more = None if units is None else units.copy()
        if more is not None:
            more[joined] = 1000
        after = summed(aggregate, X2, y2, mask2, more)
        assert 0.5 < float((after - before).norm()) < 1.0


@pytest.mark.parametrize("path", ["fast", "vmap", "loop", "vmap in blocks"])
def test_a_unit_of_the_lowest_number_moves_no_other(path):
    """Units are computed in the order of their numbers, and a row of the slow path begins where the others end."""
    moved = []
    for width in [*WIDTHS, (13, 50), (33, 5)]:
        module = AtTheKink(*width)
        # labels are the outputs of a row where it begins in memory, if no row joins
        x = torch.randn(width[0], generator=torch.Generator().manual_seed(1)).expand(64, -1).contiguous()
        with torch.no_grad():
            y = torch.cat([module.linear(x[i : i + 1]) for i in range(64)])
        X, labels, mask = at_places(np.arange(1, 65), x, y)
        X[0], labels[0], sums = x[0], y[0], []
        blocks = {"reference_scalars": 2**10} if path == "vmap in blocks" else {}
        aggregate = ClippedSum(
            LossModule(module), 1.0, clip_norm=0.99, path=path.split()[0], weighting="rows", **blocks
        )
        for joins in (False, True):
            mask[0] = joins
            units = np.full(PLACES, -1)
            units[1:65] = np.arange(1, 65)
            units[0] = 0 if joins else -1
            sums.append(summed(aggregate, X, labels, mask, units))
        moved.append(float((sums[1] - sums[0]).norm()))
    assert max(moved) <= 1.0


@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_steps_of_one_seed_differ_by_what_joins(width):
    """The whole step: with the same key, the rows of the table keep their places where one more follows them."""
    module, n = AtTheKink(*width), 300
    X, y, _ = rows_at_the_kink(module, n)
    plan = DPSGDPlan(1.0, 1, 1.0, 1.0, float(n))
    for seed in range(8):
        one, other = (_sum_of_a_step(module, X, y, plan, more, seed) for more in (0, 1))
        assert torch.equal(one, other)  # the row that joins has no gradient


def _sum_of_a_step(module, X, y, plan, more, seed):
    rows, labels = (torch.cat([x, torch.zeros(more, x.shape[1])]) for x in (X, y))
    (batch,) = PoissonLoader((rows, labels), plan=plan, rng=_everyone(seed))
    total = ClippedSum(LossModule(module), 1.0, clip_norm=plan.clip_norm)
    total.reset()
    for chunk in batch:
        total.add(chunk.X, chunk.y, mask=chunk.mask)
    return torch.cat([part.flatten().double() for part in total.result().value])


def test_what_joins_a_part_moves_no_row_of_it():
    module = AtTheKink(37, 8)
    X, y, _ = rows_at_the_kink(module, 300)
    plan = PartedPlan(1.0, 1, 1.0, 1.0, 300.0, part_batch_sizes=(150.0, 150.0))
    found = []
    for more in (0, 1):
        rows = torch.cat([X, torch.ones(more, 37)])
        labels = torch.cat([y, torch.full((more, 8), -100.0)])
        mask = torch.ones(len(rows), dtype=torch.bool)
        rng = NoiseGenerator("seeded", seed=5)
        found.append(summed(PartedSum(LossModule(module), plan, rng=rng), rows, labels, mask))
    assert float((found[1] - found[0]).norm()) <= 1.0


class TwoParts(nn.Module):
    """One linear layer for each of two parts."""

    def __init__(self):
        super().__init__()
        self.layers, self.part = nn.ModuleList(nn.Linear(3, 2) for _ in range(2)), 0

    def part_of(self, X):
        return (X[:, 0] > 0).long()

    @contextlib.contextmanager
    def only(self, part):
        self.part = part
        yield

    def forward(self, X):
        return self.layers[self.part](X).square().sum(1)


def test_the_shape_of_a_part_of_units_that_count_1_is_public():
    unit, shapes = BoundedUnit("person", 5, "units"), set()
    module = TwoParts()
    for layer in module.layers:
        layer.register_forward_hook(lambda layer, inputs, output: shapes.add(tuple(output.shape)))
    plan = PartedPlan(1.0, 1, 1.0, 1.0, 100.0, part_batch_sizes=(50.0, 50.0), unit=unit)
    X = torch.randn(600, 3, generator=torch.Generator().manual_seed(0))
    for n in (90, 100, 115):
        units = np.where(np.arange(600) < 5 * n, np.arange(600) // 5, -1)
        PartedSum(LossModule(module), plan, rng=NoiseGenerator("seeded", seed=5))(
            X, mask=torch.from_numpy(units >= 0), units=units
        )
    assert len(shapes - {(1, 2)}) == 1  # a row of zeros of each part is computed first


class Groups(nn.Module):
    """A loss of each group with a kink at the sum of its members."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, X, y, groups):
        sums = (self.module.linear(X) * groups["members"][..., None]).sum(1)
        return (sums - sums.detach()).abs().sum(1) + (sums * 0).sum(1)


def test_the_shape_of_groups_is_public():
    plan = TermwisePlan(0.5, 1, 1.0, 320.0, n_groups=16)
    assert plan.group_places >= 20 + 5 * 20**0.5
    module = AtTheKink(7, 5)
    root, groups = LossModule(module), Groups(module)
    shapes = []
    groups.register_forward_hook(lambda m, inputs, output: shapes.append(tuple(inputs[0].shape)))
    for n in (200, 320, 380):
        total = TermwiseAggregate(root, groups, plan, make_noise_generator("fast"), group_path="vmap")
        rows, labels, mask = at_places(np.arange(n), torch.randn(n, 7), torch.randn(n, 5), 512)
        summed(total, rows, labels, mask)
    assert len({shape[0] * shape[1] if len(shape) == 3 else shape for shape in shapes}) == 1


@pytest.mark.parametrize("expected", [0.01, 0.5, 3, 60, 300, 5000, 1e6])
@pytest.mark.parametrize("most", [1, 7])
def test_more_records_than_places_are_as_rare_as_stated(expected, most):
    room = room_for(expected, most)
    # of units of `most` rows, their number is Poisson-distributed
    assert stats.poisson.logsf(room // most, expected / most) < -35
    assert room < expected + most * (27 + 9 * (expected / most) ** 0.5)


@pytest.mark.parametrize("expected", [0.5, 1, 20, 300, 1000, 5000])
@pytest.mark.parametrize("size", [None, 1200])
def test_physical_batches_have_room_for_a_step(expected, size):
    plan = DPSGDPlan(1.0, 1, 1.0, 1.0, float(expected), max_physical_batch=size)
    assert plan.places >= room_for(expected)
    assert plan.places % plan.physical_batch == 0
    assert plan.physical_batch == size or plan.physical_batch <= 1024


@pytest.mark.parametrize("expected", [0.5, 1, 20, 300, 1000, 5000, 1e6])
@pytest.mark.parametrize(
    "unit",
    [BoundedUnit("person", 1), BoundedUnit("person", 7), BoundedUnit("person", 1100), BoundedUnit("person", 7, "units"),
     BoundedUnit("person", 900, "units")],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("limit", [None, 1200])
def test_each_physical_batch_of_units_has_room(expected, unit, limit):
    """Units that share batches come to more rows than one of them has as rarely as stated, whatever their sizes."""
    plan = DPSGDPlan(1.0, 1, 1.0, 1.0, expected, unit=unit, max_physical_batch=limit)
    size, batches, shared = plan.physical_batches
    assert shared <= size <= (limit or 4096)
    assert (shared == 0) == (batches == 0)
    if not shared:
        return  # each unit is computed alone
    # the worst case: units of as many rows as may share a batch
    units = expected if unit.weighting == "units" else expected / shared
    assert stats.poisson.logsf(size // shared, units / batches) + np.log(batches) < -35
    if batches > 1:  # of the places, a fifth is used, or more
        assert batches * size < 5 * (units * shared + size)


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_large_units_take_no_places_from_small_ones(weighting):
    """Places for the largest units in all batches would be mostly free: 40 times those of rows that there are."""
    few, many = (batches_of_units(600.0, BoundedUnit("person", k, weighting)) for k in (3, 2000))
    assert few.shared == 3
    assert few.number == 1
    assert 1 < many.shared < 100
    assert many.size * many.number < 5000


def test_where_memory_is_short_each_unit_is_computed_alone():
    unit = BoundedUnit("person", 7)
    assert batches_of_units(20.0, unit, 15) == (15, 0, 0)
    plan = DPSGDPlan(1.0, 1, 1.0, 1.0, 20.0, unit=unit, max_physical_batch=15)
    units = np.repeat(np.arange(6), [7, 1, 3, 3, 5, 1])
    (batch,) = PoissonLoader(np.zeros((20, 1)), plan=plan, rng=make_noise_generator("fast"), units=units)
    assert [(len(chunk.X), len(set(chunk.units))) for chunk in batch] == [(n, 1) for n in (7, 1, 3, 3, 5, 1)]


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_units_of_the_largest_size_have_room_in_one_physical_batch(weighting):
    """Where each unit counts 1, the expected batch size is that of units, each of which has several rows."""
    expected = 50.0 if weighting == "units" else 250.0
    plan = DPSGDPlan(0.5, 20, 1.0, 1.0, expected, unit=BoundedUnit("person", 5, weighting))
    units, rng = np.repeat(np.arange(100), 5), make_noise_generator("fast")
    loader = PoissonLoader(np.zeros((500, 1)), plan=plan, rng=rng, units=units)
    assert [[len(chunk.X) for chunk in batch] for batch in loader] == [[plan.physical_batch]] * 20


def test_all_places_of_a_step_are_equally_likely():
    plan = DPSGDPlan(1.0, 2000, 1.0, 1.0, 2.0, max_physical_batch=15)
    places = []
    for batch in PoissonLoader(np.arange(1.0, 3)[:, None], plan=plan, rng=make_noise_generator("fast")):
        at = {}
        for chunk in batch:
            for place in torch.nonzero(chunk.mask).flatten().tolist():
                at[int(chunk.X[place])] = place
        places.append((at[1], at[2]))
    first, second = np.array(places).T
    for one in (first, second):
        assert stats.chisquare(np.bincount(one, minlength=15)).pvalue > 1e-5
    # from one step to the next, too
    again = int((first[1:] == first[:-1]).sum())
    assert stats.binomtest(again, len(first) - 1, 1 / 15).pvalue > 1e-5


def test_units_draw_their_batches_and_places_whatever_the_others_do():
    plan = DPSGDPlan(1.0, 3000, 1.0, 1.0, 60.0, unit=BoundedUnit("person", 1), max_physical_batch=100)
    size, batches, _ = plan.physical_batches
    assert (size, batches) == (88, 2)
    found = np.zeros((3000, 2, 4), dtype=int)  # batch and place of the first four units in each step
    loader = PoissonLoader(np.arange(60.0)[:, None], plan=plan, rng=make_noise_generator("fast"), units=np.arange(60))
    for step, batch in enumerate(loader):
        for number, chunk in enumerate(batch):
            at = torch.nonzero(chunk.mask).flatten().numpy()
            units = chunk.X[at].flatten().numpy().astype(int)
            found[step][:, units[units < 4]] = np.array([np.full(len(at), number), at])[:, units < 4]
    # all 16 ways of four units to draw one of two batches, and all places
    assert stats.chisquare(np.bincount(found[:, 0] @ [8, 4, 2, 1], minlength=16)).pvalue > 1e-5
    for places in found[:, 1].T:
        assert stats.chisquare(np.bincount(places // 8, minlength=11)).pvalue > 1e-5
    together = found[:, 1][found[:, 0, 0] == found[:, 0, 1]][:, :2]
    assert abs(stats.spearmanr(*together.T)[0]) < 5 / len(together) ** 0.5


class _Everyone(NoiseGenerator):
    takes_all = True


def _everyone(seed):
    return _Everyone("seeded", seed=seed)


# ---- steps of units in several physical batches ---------------------------------------------------------------------
class _Coupled(_Everyone):
    """Draws of two neighbours that are compared: the units that both have draw the same, and then the one that joins.

    What a unit draws first is read from one stream, and the places of a batch are a permutation of this number.
    """

    def __init__(self, seed):
        super().__init__("seeded", seed=seed)
        self._draws, self._seed = np.random.default_rng(seed), seed

    def integers(self, high, size=None):
        return self._draws.integers(high, size=size)

    def permutation(self, n):
        return np.random.default_rng((self._seed, n)).permutation(n)


class PacksUnits(PoissonLoader):
    """Sabotage: units in a random order fill one batch after the other, so that one that joins may move many."""

    def _chunks_of_units(self, units):
        size = self.physical_batch
        units = units[self._rng.permutation(10**4)[: len(units)].argsort()]
        ends, start, done = np.cumsum(self._sizes[units]), 0, 0
        while start < len(units):
            stop = max(start + 1, int(np.searchsorted(ends, done + size, side="right")))
            rows, codes = self._rows_of(units[start:stop])
            yield self._chunk(rows, self._rng.permutation(size)[: len(rows)], codes, size)
            start, done = stop, ends[stop - 1]


def steps_of_neighbours(width, loader, joining, seed, weighting="rows"):
    """Sums of a step in several batches whose rows lie at a kink, without and with a unit of `joining` rows."""
    module, n = AtTheKink(*width), 400
    X, y, _ = rows_at_the_kink(module, n)
    unit = BoundedUnit("person", 40, weighting)
    plan = DPSGDPlan(1.0, 1, 1.0, 1.0, float(n if weighting == "rows" else n // 2), unit=unit, max_physical_batch=300)
    found = []
    for k in (0, joining):
        rows, labels = (torch.cat([x, torch.zeros(k, x.shape[1])]) for x in (X, y))
        units = np.concatenate([np.arange(n) // 2, np.full(k, n)])
        (batch,) = loader((rows, labels), plan=plan, rng=_Coupled(seed), units=units)
        total = ClippedSum(LossModule(module), 1.0, clip_norm=plan.clip_norm, weighting=weighting)
        total.reset()
        lengths = [len(chunk.X) for chunk in batch if [total.add(chunk.X, chunk.y, mask=chunk.mask, units=chunk.units)]]
        found.append(torch.cat([part.flatten().double() for part in total.result().value]))
    return found, lengths


@pytest.mark.parametrize("width", WIDTHS, ids=str)
@pytest.mark.parametrize("joining", [1, 40])
@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_a_unit_that_joins_moves_no_unit_of_another_batch(width, joining, weighting):
    """One row joins a shared batch; 40 rows are computed alone. Their gradients are zero: the sums are equal."""
    for seed in range(4):
        (one, other), lengths = steps_of_neighbours(width, PoissonLoader, joining, seed, weighting)
        assert len(lengths) > 2
        assert torch.equal(one, other)


def test_units_that_fill_one_batch_after_the_other_fail_that_test():
    if torch.backends.mkl.is_available():
        moved = [steps_of_neighbours(width, PacksUnits, 1, seed)[0] for width in WIDTHS for seed in range(4)]
        assert max(float((one - other).norm()) for one, other in moved) > 1.0  # its gradient is zero


class SharedLayer(TwoParts):
    """Two parts that have one layer in common."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([self.layers[0], self.layers[0]])


def test_parts_that_share_a_layer_take_the_slow_path_whatever_parts_have_rows():
    unit = BoundedUnit("person", 5)
    plan = PartedPlan(1.0, 1, 1.0, 1.0, 10.0, part_batch_sizes=(5.0, 5.0), unit=unit)
    for module, path in ((TwoParts(), "fast"), (SharedLayer(), "loop")):
        total = PartedSum(LossModule(module), plan, rng=NoiseGenerator("seeded", seed=5))
        total(torch.ones(10, 3), units=np.arange(10))  # all rows are in one part
        assert total.path == path
