from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS, assert_noise_at_scale, assert_sensitivity
from scipy import stats

from skdpgen._types import BoundedSum
from skdpgen.mechanisms import (
    add_gaussian,
    class_norm_histogram,
    clip_rows,
    histogram,
    joint_histogram,
    lattice_rows,
    norm_histogram,
    outermost_bins,
    release_kept,
    select_above,
    selection_threshold,
    split_histogram,
    total,
)
from skdpgen.mechanisms._gaussian import _lattice_noise
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

RNG = make_noise_generator("fast")


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("lattice", [None, 2.0**-20])
def test_gaussian_noise_is_at_its_scale(relation, lattice):
    query = BoundedSum(np.ones(100_000), add_or_remove_one=3.0, replace_one=5.0, weights=0.5, lattice=lattice)
    sd = 1.3 * (3.0 if relation == "add_or_remove_one" else 5.0) / 0.5
    assert_noise_at_scale(add_gaussian(query, 1.3, RNG, relation) - 1.0, sd)


def test_a_row_moves_a_count_by_one_however_many_rows_there_are():
    """Beyond 2^24 rows, the whole numbers that single precision holds: there a row would move a count by 2, or by 0."""
    codes = np.zeros(2**24 + 2, dtype=np.uint8)
    counts = [histogram(codes[: 2**24 + more], 1).value for more in range(3)]
    assert np.diff(counts, axis=0).ravel().tolist() == [1, 1]


def test_noise_multiplier_0_returns_the_value():
    query = BoundedSum(np.arange(4.0), add_or_remove_one=1.0)
    released = add_gaussian(query, 0.0, RNG, "replace_one")
    assert released.tolist() == [0, 1, 2, 3]
    assert released is not query.value
    steps = BoundedSum(np.arange(4), add_or_remove_one=1.0, lattice=0.25)
    assert add_gaussian(steps, 0.0, RNG, "replace_one").tolist() == [0, 0.25, 0.5, 0.75]


def test_noise_is_rounded_to_the_lattice_and_added_exactly():
    big = BoundedSum(np.full(1000, 2**40 + 1), add_or_remove_one=1.0, lattice=2.0**-10)
    released = add_gaussian(big, 2.0, RNG, "add_or_remove_one")
    steps = released * 2.0**10
    assert np.array_equal(steps, np.rint(steps))


@pytest.mark.parametrize("sd", [2.0**20, 2.0**44, 2.0**53, 2.0**57, 2.0**80])
def test_noise_of_very_many_steps_covers_the_low_bits_of_the_sum(sd):
    """A double alone would be a multiple of 2^k, and the sum's low bits could be read off the release."""
    noise = _lattice_noise(sd, 100_000, RNG)
    assert_noise_at_scale(noise.astype(float), sd)
    for bit in range(3):
        assert np.mean((noise >> bit) & 1) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("widest", [1.0, 1e10, 1e20, 1e30])
def test_noise_is_gaussian_at_its_own_scale_beside_noise_of_any_other(widest):
    """With as many uniform low bits as the widest noise needs, narrow noise would be theirs: one-sided, and huge."""
    scales = np.array([2.0, 1.0, widest])
    query = BoundedSum(np.zeros((50_000, 3)), add_or_remove_one=1.0, weights=1 / scales, lattice=2.0**-20)
    noise = add_gaussian(query, 1.0, RNG, "add_or_remove_one")
    assert_noise_at_scale(noise, scales)
    for k, scale in enumerate(scales):
        scaled = noise[:, k] / scale
        assert stats.kstest(scaled, "norm").pvalue > 1e-4
        for wrong in (2 / 3, 3 / 2):
            assert stats.kstest(wrong * scaled, "norm").pvalue < 1e-4
        assert 3.0 < -scaled.min() < 7.0, "noise is on one side, or of another range"
        assert 3.0 < scaled.max() < 7.0


def test_huge_noise_stays_finite():
    query = BoundedSum(np.zeros(1000, dtype=np.int64), add_or_remove_one=1.0, lattice=2.0**-38)
    released = add_gaussian(query, 1e12, RNG, "add_or_remove_one")
    assert np.isfinite(released.astype(float)).all()
    assert released.dtype == np.float64


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_a_wrong_noise_multiplier_is_refused(wrong):
    with pytest.raises(ValueError, match="noise_multiplier"):
        add_gaussian(BoundedSum(np.zeros(2), add_or_remove_one=1.0), wrong, RNG, "replace_one")


def test_noise_is_added_to_bounded_sums_alone():
    with pytest.raises(TypeError, match="BoundedSum"):
        add_gaussian(np.zeros(3), 1.0, RNG, "replace_one")
    with pytest.raises(ValueError, match="neighboring"):
        add_gaussian(BoundedSum(np.zeros(2), add_or_remove_one=1.0), 1.0, RNG, "add_remove")


@pytest.mark.parametrize("relation", RELATIONS)
def test_joint_histogram_sensitivity_is_attained_and_not_exceeded(rng, relation):
    n_bins = [3, 5, 2, 4]
    base = np.stack([rng.integers(0, n, 30) for n in n_bins], axis=1)

    def joined(row):
        return base if row is None else np.vstack([base, row])

    rows = [rng.integers(-1, np.array(n_bins) + 1) for _ in range(10)]
    if relation == "add_or_remove_one":
        attained, pairs = [(None, [0, 0, 0, 0])], [(None, row) for row in rows]
    else:
        attained, pairs = [([0, 0, 0, 0], [1, 1, 1, 1])], [(one, other) for one in rows for other in rows]
    assert_sensitivity(
        lambda data: joint_histogram(list(data.T), n_bins),
        [(joined(one), joined(other)) for one, other in pairs],
        attained=[(joined(one), joined(other)) for one, other in attained],
        relation=relation,
    )
    query = joint_histogram(list(base.T), n_bins)
    assert query.sensitivity(relation) == pytest.approx(2.0 if relation == "add_or_remove_one" else 8**0.5)
    parts = split_histogram(query.value, n_bins)
    assert [part.tolist() for part in parts] == [
        np.bincount(column, minlength=n).tolist() for column, n in zip(base.T, n_bins)
    ]


@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_of_a_weighted_joint_histogram_is_attained_and_not_exceeded(rng, relation):
    n_bins, weights = [3, 2, 4], [0.8, 0.6, 2.0]
    base = np.stack([rng.integers(0, n, 30) for n in n_bins], axis=1)
    rows = [None, [0, 0, 0], [1, 1, 1], [0, -1, 3], [2, 1, -1]]
    pairs = [(base if row is None else np.vstack([base, row])) for row in rows]
    if relation == "add_or_remove_one":
        attained, others = [(pairs[0], pairs[1])], [(pairs[0], other) for other in pairs[1:]]
    else:
        attained, others = [(pairs[1], pairs[2])], [(one, other) for one in pairs[1:] for other in pairs[1:]]
    assert_sensitivity(
        lambda data: joint_histogram(list(data.T), n_bins, weights), others, attained=attained, relation=relation
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_column_of_one_cell_counts_in_the_sensitivity(relation):
    """All rows are in the same cell, and yet a row that joins is one more there."""
    n_bins = [3, 1, 1]
    pair = (None, [0, 0, 0]) if relation == "add_or_remove_one" else ([0, 0, 0], [1, -1, -1])
    base = np.array([[2, 0, 0]])
    one, other = (joint_histogram(list((base if row is None else np.vstack([base, row])).T), n_bins) for row in pair)
    change = np.linalg.norm(one.value - other.value)
    assert change == pytest.approx(2.0 if relation == "replace_one" else 3**0.5)
    assert change <= one.sensitivity(relation) * (1 + 1e-9)


def test_histogram_counts_known_cells_alone():
    query = histogram(np.array([0, 2, 2, -1, 7]), 3)
    assert query.value.tolist() == [1, 0, 2]
    assert query.sensitivity("add_or_remove_one") == 1
    assert query.sensitivity("replace_one") == pytest.approx(2**0.5)


def test_wrong_histograms_are_refused():
    with pytest.raises(ValueError, match="one entry for each column"):
        joint_histogram([np.zeros(2, int)], [1, 2])
    with pytest.raises(ValueError, match="have one length"):
        joint_histogram([np.zeros(2, int), np.zeros(3, int)], [1, 2])


@pytest.mark.parametrize("n_columns", [1, 8])
def test_a_category_of_one_record_passes_with_probability_delta_at_most(n_columns):
    sd, delta = 2.5, 1e-6
    threshold = selection_threshold(sd, delta, n_columns)
    one = stats.norm.sf(threshold, loc=1.0, scale=sd)
    assert -np.expm1(n_columns * np.log1p(-one)) == pytest.approx(delta, rel=1e-6)
    assert select_above([threshold - 1e-6, threshold + 1e-6], sd, delta, n_columns).tolist() == [False, True]
    with pytest.raises(ValueError, match="delta"):
        selection_threshold(1.0, 0.0)


@pytest.mark.parametrize("relation", RELATIONS)
def test_categories_of_one_record_are_kept_at_the_rate_that_was_charged(relation):
    """The threshold follows the noise that was added: of a record that is replaced, it is sqrt(2) as wide."""
    delta, n = 0.01, 200_000
    kept = release_kept(histogram(np.arange(n), n), 3.0, delta, RNG, relation)
    assert kept.mean() == pytest.approx(delta, abs=5 * (delta / n) ** 0.5)


def test_outermost_bins_are_those_above_the_noise(rng):
    counts = np.zeros(130)
    counts[40:60] = 500.0
    assert outermost_bins(counts, 0.0) == (40, 59)
    failures = 0
    for _ in range(300):
        first, last = outermost_bins(counts + 20 * rng.normal(size=130), 20.0)
        assert first <= 40
        assert last >= 59
        failures += (first, last) != (40, 59)
    assert failures <= 30
    assert outermost_bins(np.zeros(5), 1.0) is None


def test_norm_histogram_covers_every_size():
    edges = 2.0 ** np.arange(-2, 3)
    counts = norm_histogram(np.array([0.0, 0.25, 0.26, 4.0, 4.1, 1e300]), edges).value
    assert counts.sum() == 6
    assert counts[0] == 2
    assert counts[-1] == 2
    assert counts[-2] == 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_class_norm_histogram_sensitivity_is_attained_and_not_exceeded(rng, relation):
    edges = 2.0 ** np.arange(-2, 3)
    norms, codes = list(rng.exponential(size=30)), list(rng.integers(0, 3, 30))

    def query(data):
        return class_norm_histogram(*map(np.array, data), 3, edges)

    joined = [((*norms, size), (*codes, k)) for size in (0.0, 0.25, 1.0, 1e300, np.inf) for k in (-1, 0, 2, 3)]
    pairs = [((norms, codes), data) for data in joined]
    if relation == "replace_one":
        pairs = [(one, other) for one in joined for other in joined]
    assert_sensitivity(query, pairs, attained=pairs, relation=relation)


def test_class_norm_histogram_is_one_norm_histogram_a_class(rng):
    edges, norms, codes = 2.0 ** np.arange(-2, 3), rng.exponential(size=300), rng.integers(-1, 4, 300)
    tables = class_norm_histogram(norms, codes, 3, edges).value.reshape(3, -1)
    for k, table in enumerate(tables):
        np.testing.assert_array_equal(table, norm_histogram(norms[codes == k], edges).value)


@pytest.mark.parametrize("bound", [1.0, 0.37, 900.0])
def test_clipped_rows_are_inside_exactly(rng, bound):
    X = rng.normal(size=(400, 50)) * rng.choice([1e-5, 1.0, 1e5, 1e180], size=(400, 1))
    rows = clip_rows(X, bound)
    exact = [sum((int(v) ** 2 for v in np.ldexp(row / bound, 40).astype(object)), 0) for row in rows]
    assert max(exact) <= 2**80
    inside = np.linalg.norm(np.clip(X, -1e100, 1e100), axis=1) < bound / 2
    assert np.array_equal(rows[inside], X[inside])
    np.testing.assert_allclose(np.linalg.norm(rows[~inside & (np.abs(X).max(axis=1) > 1e4)], axis=1), bound, rtol=1e-11)


def test_lattice_rows_are_inside_exactly_and_never_longer(rng):
    X = rng.normal(size=(300, 784))
    X[0, 0], X[1, :3] = np.nan, np.inf
    rows = lattice_rows(X, 2.0, 2.0**-18)
    steps = rows * 2.0**18
    assert np.array_equal(steps, np.rint(steps))
    assert (steps**2).sum(axis=1).max() <= 2.0**36
    assert not rows[:2].any()
    assert (np.abs(rows) <= np.abs(clip_rows(X, 2.0)) / 2.0).all()


@pytest.mark.parametrize("wrong", [0, -1, np.nan, np.inf])
def test_a_wrong_bound_is_refused(wrong):
    with pytest.raises(ValueError, match="l2_bound"):
        clip_rows(np.zeros((1, 1)), wrong)


def test_a_total_is_moved_by_at_most_one_unit(rng):
    counts = rng.integers(0, 785, 50)
    for row in (0, 784, 10_000, -3):
        whole, without = (total(c, 784) for c in (np.append(counts, row), counts))
        change = abs(float((whole.value - without.value)[0])) * whole.weights
        assert change <= whole.sensitivity("add_or_remove_one") == 1.0
        assert change == pytest.approx(0.0 if row <= 0 else 1.0)
    replaced = [float(total(np.append(counts, row), 784).value[0]) for row in (0, 784)]
    assert (replaced[1] - replaced[0]) / 784 == total(counts, 784).sensitivity("replace_one") == 1.0


def test_the_noise_of_a_total_is_at_its_scale():
    with seeded_noise(quiet=True):
        generator = make_noise_generator()
        noisy = [float(add_gaussian(total([3, 5], 10), 2.0, generator, "replace_one")[0]) for _ in range(4000)]
    assert np.mean(noisy) == pytest.approx(8.0, abs=2.0)
    assert np.std(noisy) == pytest.approx(20.0, rel=0.06)
