from __future__ import annotations

import json

import numpy as np
import pytest

from skdpgen.mechanisms._selection import denoise, occupied_cells, sure_range, widened
from skdpgen.tabular import Binning, Datetime, Numeric, Schema, bins_from_histogram, bins_histogram
from skdpgen.tabular._binning import fine_grid, learned_binning, merge

COLUMNS = [
    Numeric("x", (0, 1)),
    Numeric("x", (-1, 1)),
    Numeric("x", (-3, 0)),
    Numeric("x", (0.5, 1e9)),
    Numeric("x", (-1e9, -2.5)),
    Numeric("x", (1e-9, 2e-9)),
    Numeric("x", (1e9, 1e9 + 1)),
    Numeric("x", (-1e-300, 1e300)),
    Numeric("x", (0, 1), integer=True),
    Numeric("x", (17, 90), integer=True),
    Numeric("x", (0, 127), integer=True),
    Numeric("x", (0, 128), integer=True),
    Numeric("x", (0, 99999), integer=True),
    Numeric("x", (-500, 99999), integer=True),
    Numeric("x", (-(2**53), 2**53), integer=True),
    Datetime("x", ("2020-01-01", "2020-02-01"), resolution="D"),
    Datetime("x", ("1900-01-01", "2020-02-01"), resolution="us"),
]


@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_grid_covers_the_bounds_with_few_cells(column):
    edges = fine_grid(column)
    assert (np.diff(edges) > 0).all()
    assert np.isfinite(edges).all()
    assert 2 <= len(edges) <= 170
    if column.integer:
        assert (edges == np.rint(edges)).all()


@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_samples_of_a_bin_fall_into_it(column):
    edges = fine_grid(column)
    rng = np.random.default_rng(0)
    mass = rng.random(len(edges) - 1)
    mass[3:9] = 0
    starts = sorted({0, *rng.integers(len(mass), size=12).tolist()})
    binning = Binning(tuple(edges), tuple(starts), tuple(mass / mass.sum()), column.integer)
    codes = np.repeat(np.arange(binning.n_bins), 50)
    values = binning.sample(codes, rng)
    np.testing.assert_array_equal(binning.codes(values), codes)
    assert values.min() >= edges[0]
    assert values.max() <= (edges[-1] - 1 if column.integer else edges[-1])
    if column.integer:
        assert (values == np.rint(values)).all()
    again = Binning.from_dict(binning.to_dict())
    assert again == binning
    assert len(binning.labels) == binning.n_bins
    assert binning.bin_mass.sum() == pytest.approx(1)


def test_points_of_a_column_come_back_exactly():
    for low, high in [(0.0, 10.0), (-10.0, 0.0), (-1.0, 3.0), (0.1, 0.7)]:
        column = Numeric("x", (low, high))
        points = np.array(sorted({low, high, 0.0} if low <= 0 <= high else {low, high}))
        values = np.repeat(points, 500)
        histogram = bins_histogram(values[:, None], Schema([column]))
        binning = bins_from_histogram(histogram.value, Schema([column]), 0.0)["x"]
        decoded = binning.sample(binning.codes(values), np.random.default_rng(0))
        np.testing.assert_array_equal(decoded, values)


def test_extremes_of_a_generator_stay_inside():
    class Ends:
        def __init__(self, value):
            self.value = value

        def random(self, size):
            return np.full(size, self.value)

    for column in COLUMNS:
        binning = Binning.equal_width(column, 7)
        for value in (0.0, 1 - 2**-53):
            codes = np.arange(binning.n_bins)
            np.testing.assert_array_equal(binning.codes(binning.sample(codes, Ends(value))), codes)


def test_equal_width_bins_split_integers_evenly():
    binning = Binning.equal_width(Numeric("x", (1, 4), integer=True), 16)
    assert binning.labels == ((1, 1), (2, 2), (3, 3), (4, 4))
    assert Binning.equal_width(Numeric("x", (0, 1)), 4).labels == ((0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1))


def test_denoising_without_noise_returns_the_counts():
    counts = np.array([0.0, 5.0, 3.0, -1.0])
    np.testing.assert_array_equal(denoise(counts, np.ones(4), 0.0), [0, 5, 3, 0])


def test_denoising_keeps_spikes_and_empties_the_rest():
    rng = np.random.default_rng(0)
    truth = np.zeros(130)
    truth[[5, 60, 61, 129]] = [20_000, 800, 400, 900]
    truth[90:100] = 150
    errors = []
    for _ in range(20):
        noisy = truth + 40 * rng.standard_normal(130)
        found = denoise(noisy, np.ones(130), 40.0)
        assert (found >= 0).all()
        assert found[[5, 60, 129]] == pytest.approx(truth[[5, 60, 129]], abs=200)
        errors.append([np.abs(found - truth).sum(), np.abs(np.maximum(noisy, 0) - truth).sum()])
    ours, clipped = np.mean(errors, axis=0)
    assert ours < 0.35 * clipped


def test_denoising_equals_the_average_over_all_partitions():
    import itertools

    rng = np.random.default_rng(0)
    n, sd = 6, 2.0
    noisy, measure = np.array([-1.0, 1.5, 9.0, 8.0, -2.0, 1.0]), rng.random(n) + 0.1
    total, estimate, maybe, surely, full = 0.0, np.zeros(n), np.zeros(n), 0.0, np.zeros(n)
    for cuts in itertools.product([False, True], repeat=n - 1):
        parts = np.split(np.arange(n), np.flatnonzero(cuts) + 1)
        # each run is empty, or has its best density at a price
        fits, weights, chances, sure, sure_chances = [], [], [], [], []
        for part in parts:
            density = max(noisy[part] @ measure[part], 0) / (measure[part] @ measure[part])
            misfit = [((noisy[part] - d * measure[part]) ** 2).sum() for d in (0, density)]
            likelihood = np.exp(-0.5 * np.array(misfit) / sd**2) * [n**-0.5, n**-0.75]
            fits.append(density * measure[part] * likelihood[1] / likelihood.sum())
            weights.append(likelihood.sum())
            chances.append(np.full(len(part), likelihood[1] / likelihood.sum()))
            dear = likelihood * [1, np.exp(-3.0) / 7]  # of what is surely not empty, in one of seven columns
            sure.append(dear.sum())
            sure_chances.append(np.full(len(part), dear[1] / dear.sum()))
        weight = np.prod(weights)
        total += weight
        estimate += weight * np.concatenate(fits)
        maybe += weight * np.concatenate(chances)
        surely += np.prod(sure)
        full += np.prod(sure) * np.concatenate(sure_chances)
    np.testing.assert_allclose(occupied_cells(noisy, measure, sd, 7), full / surely, rtol=1e-9)
    assert sure_range(noisy, measure, sd, 7) == (2, 3)
    np.testing.assert_array_equal(maybe > 0.5 * total, [False, False, True, True, False, False])
    estimate[:2] = estimate[4:] = 0
    np.testing.assert_allclose(denoise(noisy, measure, sd), estimate / total, rtol=1e-9)


def test_a_range_is_widened_by_what_follows_it():
    full = np.array([True, False, True, True, True, True, False, True])
    assert widened(3, 3, full) == (2, 5)
    assert widened(7, 7, full) == (7, 7)
    assert widened(3, 4, np.ones(8, dtype=bool)) == (0, 7)
    # the gap that is bridged grows with the range: two cells beside eight, not beside two
    sparse = np.zeros(30, dtype=bool)
    sparse[[10, 13, 21]] = True
    assert widened(14, 21, sparse, 0.25) == (10, 21)
    assert widened(20, 21, sparse, 0.25) == (20, 21)


def test_noise_far_from_the_rows_is_doubted():
    noise, rng = np.random.default_rng(0), np.random.default_rng(1)
    column = Numeric("x", (0, 127), integer=True)
    truth = np.zeros(128)
    truth[80:84] = 1000
    n_doubtful, far = 0, []
    for _ in range(300):
        binning = learned_binning(truth + 40 * noise.standard_normal(128), column, 40.0, 16, 10)
        assert not {int(binning.codes([value])[0]) for value in range(80, 84)} & set(binning.doubtful)
        n_doubtful += len(binning.doubtful)
        assert Binning.from_dict(binning.to_dict()) == binning
        # what no doubtful bin draws is near the rows
        sure = [k for k in range(binning.n_bins) if k not in binning.doubtful and binning.bin_mass[k] > 0]
        drawn = binning.sample(np.repeat(sure, 50), rng)
        far.append(drawn.min() <= 60 or drawn.max() >= 104)
    assert np.mean(far) < 0.01
    assert n_doubtful > 50
    # rows far from the others, and more than the noise makes, are not doubted
    truth[20] = 500
    binning = learned_binning(truth + 40 * noise.standard_normal(128), column, 40.0, 16, 10)
    assert int(binning.codes([20])[0]) not in binning.doubtful
    assert not learned_binning(truth, column, 0.0, 16).doubtful


@pytest.mark.parametrize(("n_values", "n_beside"), [(5, 1), (8, 1), (9, 2), (16, 2), (17, 0)])
def test_of_few_declared_values_those_beside_the_rows_are_no_doubt(n_values, n_beside):
    noise = np.random.default_rng(0)
    column = Numeric("x", (1, n_values), integer=True)
    truth = np.zeros(n_values)
    truth[n_values // 2 - 1 : n_values // 2 + 1] = 3000
    for _ in range(20):
        noisy = truth + 40 * noise.standard_normal(n_values)
        binning = learned_binning(noisy, column, 40.0, n_values, 10)
        first, last = sure_range(noisy, np.ones(n_values), 40.0, 10)
        certain = range(max(first - n_beside, 0), min(last + n_beside + 1, n_values))
        assert binning.n_bins == n_values
        assert set(binning.doubtful) == set(range(n_values)) - set(certain)
    assert len(binning.doubtful) > 0


@pytest.mark.parametrize("max_bins", [16, 8])
def test_the_thin_ends_of_few_learned_values_have_bins_that_the_tables_judge(max_bins):
    """They were parts of the bins beside them: their rows were drawn as the last value that stands out."""
    column = Numeric("x", (0, 15), integer=True)
    counts = np.array([0.0, 0, 40, 60, 300, 400, 400, 300, 400, 300, 60, 50, 40, 30, 20, 0])
    noisy = counts + 45.0 * np.random.default_rng(3).standard_normal(16)
    found = learned_binning(noisy, column, 45.0, max_bins, learned_bounds=True)
    assert found.n_bins <= max_bins
    inside = np.flatnonzero(found.mass)
    first, last = inside[0], inside[-1]
    assert 2 < first <= 4
    assert 9 <= last < 13
    assert {0, first, last + 1} <= set(found.starts)
    ends = [k for k, start in enumerate(found.starts) if start < first or start > last]
    assert set(ends) == set(found.doubtful)
    if max_bins == 16:  # each of their values has one
        assert len(ends) == first + 15 - last
    assert Binning.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_numbers_of_few_decimals_have_a_cell_each():
    for bounds, decimals in [((0.0, 2.0), 2), ((-1.5, 3.0), 1), ((0.005, 0.25), 3), ((0.03, 0.71), 2)]:
        column = Numeric("x", bounds, decimals=decimals)
        edges = fine_grid(column)
        values = np.round(np.arange(*bounds, 10.0**-decimals), decimals)
        values = np.append(values[values < bounds[1] - 1e-9], bounds[1])
        assert np.array_equal(np.searchsorted(edges[1:-1], values, side="right"), np.arange(len(values)))
        assert len(edges) == len(values) + 1
        assert (edges[0], edges[-1]) == bounds
    assert len(fine_grid(Numeric("x", (0.0, 51.1), decimals=1))) == 513
    assert len(fine_grid(Numeric("x", (0.0, 51.2), decimals=1))) < 200  # too many


@pytest.mark.parametrize("bounds", [(4.13, 9.98), (-3.07, 2.02), (0.35, 3.25)])
def test_numbers_of_few_decimals_come_back_whatever_the_bounds_are(bounds):
    """Learned bounds end anywhere: a cell holds the numbers that are rounded to one number."""
    column, rng = Numeric("x", bounds, decimals=1), np.random.default_rng(0)
    values = rng.choice(np.round(np.arange(bounds[0] + 0.1, bounds[1] - 0.1, 0.7), 1), 3_000)
    counts = bins_histogram(values[:, None], Schema([column])).value
    binning = bins_from_histogram(counts.astype(float), Schema([column]), 0.0)["x"]
    drawn = np.round(binning.sample(binning.codes(values), rng), 1)
    assert set(drawn) == set(values)


def test_prices_at_few_values_stay_at_them():
    rng = np.random.default_rng(0)
    column = Numeric("price", (0.0, 1.0), decimals=2)
    values = rng.choice([0.49, 0.59, 0.69, 0.89], size=5_000, p=[0.1, 0.1, 0.5, 0.3])
    counts = bins_histogram(values[:, None], Schema([column])).value
    binning = bins_from_histogram(counts + 40 * rng.standard_normal(len(counts)), Schema([column]), 40.0)["price"]
    drawn = np.round(binning.sample(rng.choice(binning.n_bins, p=binning.bin_mass, size=5_000), rng), 2)
    assert np.isin(drawn, [0.49, 0.59, 0.69, 0.89]).mean() > 0.85


def test_the_end_of_learned_values_is_not_cut_off_where_it_may_hold_many_rows():
    noise = np.random.default_rng(0)
    column = Numeric("x", (16, 31), integer=True)
    truth = 2000 * np.append(0.6 * np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1]), np.full(10, 0.04))
    kept = []
    for _ in range(50):
        binning = learned_binning(truth + 87 * noise.standard_normal(16), column, 87.0, 16, 27, learned_bounds=True)
        drawn = binning.sample(noise.choice(binning.n_bins, p=binning.bin_mass, size=2_000), noise)
        kept.append((drawn > 24).mean())
    assert np.mean(np.array(kept) > 0.05) > 0.8


def test_an_empty_tail_gets_nothing():
    rng = np.random.default_rng(0)
    column = Numeric("x", (0, 1e6))
    values = np.exp(2 * rng.standard_normal(40_000) + 3)
    counts = bins_histogram(values[:, None], Schema([column])).value
    beyond = []
    for _ in range(20):
        binning = bins_from_histogram(counts + 40 * rng.standard_normal(len(counts)), Schema([column]), 40.0)["x"]
        drawn = binning.sample(rng.choice(binning.n_bins, p=binning.bin_mass, size=40_000), rng)
        beyond.append((drawn > 1e5).mean())
        assert np.quantile(drawn, [0.1, 0.5, 0.8]) == pytest.approx(np.quantile(values, [0.1, 0.5, 0.8]), rel=0.2)
    # a cell of pure noise now and then; 58 cells of clipped noise would hold .023
    assert np.mean(beyond) < 0.004


def test_merging_is_optimal_and_keeps_spikes_alone():
    import itertools

    rng = np.random.default_rng(0)
    mass = rng.integers(0, 50, size=9).astype(float)
    mass[4] = 500
    for noise_sd, max_bins in [(0.0, 4), (2.0, 9), (10.0, 5)]:
        starts = merge(mass, noise_sd, max_bins)

        def cost(starts, noise_sd=noise_sd):
            return (np.add.reduceat(mass, starts) ** 2).sum() + noise_sd**2 * len(starts)

        options = ([0, *cuts] for size in range(max_bins) for cuts in itertools.combinations(range(1, len(mass)), size))
        assert cost(starts) == pytest.approx(min(cost(list(option)) for option in options))
        assert 4 in starts
        assert 5 in starts
    assert merge(mass, 0.0, 1) == [0]
    assert len(merge(np.zeros(9), 1.0, 9)) == 1


def test_bins_hold_at_most_the_number_asked_for():
    rng = np.random.default_rng(0)
    column = Numeric("x", (0, 1000))
    noisy = 1000 * rng.random(len(fine_grid(column)))
    for max_bins in (1, 2, 7, 500):
        assert bins_from_histogram(noisy, Schema([column]), 1.0, max_bins)["x"].n_bins <= max_bins


@pytest.mark.parametrize("learned_bounds", [False, True])
@pytest.mark.parametrize("counts", [(2990.0, 5.0), (2990.0, -60.0), (-3.0, 2990.0), (-50.0, -60.0)])
def test_two_values_are_two_bins_like_two_categories(counts, learned_bounds):
    # the noise of this histogram is far larger than that of the tables, which measure both
    column = Numeric("flag", (0, 1), integer=True)
    found = learned_binning(np.array(counts), column, 40.0, 16, 8, learned_bounds=learned_bounds)
    assert (found.starts, found.doubtful) == ((0, 1), ())
    assert np.array_equal(found.sample(np.array([0, 1]), np.random.default_rng(0)), [0, 1])
