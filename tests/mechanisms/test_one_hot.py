from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from _claims import RELATIONS, assert_noise_at_scale, assert_sensitivity, weighted_change

from skdpgen.mechanisms import (
    ClassContrasts,
    add_gaussian,
    exact_value,
    one_hot_moments,
    residual_plan,
    unpack_one_hot_moments,
)
from skdpgen.mechanisms import _one_hot as one_hot
from skdpgen.mechanisms import _residual_plan as plans
from skdpgen.mechanisms._contrasts import Contrasts
from skdpgen.utils.noise import make_noise_generator

# All levels of such columns cost the same: categories, and as many bins as a power of two.
N_LEVELS, BINS = [3, 2, 8, 1], [0, 0, 8, 0]
N_CLASSES = 3
# Columns of other numbers of bins, and of bins with a level for missing values.
UNEVEN = [((6, 9, 2, 5), (6, 8, 0, 4)), ((17, 4, 15), (16, 0, 15)), ((33, 2), (32, 2))]


def _rows(rng, n, n_levels=N_LEVELS):
    return np.stack([rng.integers(0, k, n) for k in n_levels], axis=1)


def _plan(**options):
    return residual_plan(N_LEVELS, BINS, N_CLASSES, **options)


def _vectors(rows, plan, k=0):
    """Weighted contributions of single rows of a class."""
    queries = (one_hot_moments(row[None], plan, np.full(1, k)) for row in rows)
    return np.stack([(exact_value(query) * query.weights).ravel() for query in queries])


def counted(rows, n_levels):
    """One-way and two-way tables, from their definition."""
    encoded = np.concatenate([np.eye(k)[column] for k, column in zip(n_levels, np.transpose(rows))], axis=1)
    block = np.repeat(np.arange(len(n_levels)), n_levels)
    return encoded.sum(axis=0), np.where(block[:, None] == block, 0.0, encoded.T @ encoded)


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_hot_sensitivity_is_attained_and_not_exceeded(rng, relation):
    plan = _plan()
    base, y = _rows(rng, 25), rng.integers(0, N_CLASSES, 25)

    def joined(unit):
        return (base, y) if unit is None else (np.vstack([base, unit[0]]), np.append(y, unit[1]))

    units = [(row, k) for row in _rows(rng, 5) for k in (-1, 0, 2)]
    units += [(np.array([0, 1, 9, -1]), 1), (np.full(4, -1), 0)]  # unknown levels count nowhere
    # nor in the block before, beside the level that is known there
    units += [(np.array([2, -1, 6, -1]), 0), (np.array([0, 1, -1, 0]), 2), (np.array([2, 2, 0, 1]), 1)]
    if relation == "add_or_remove_one":
        attained, pairs = [(None, (np.array([0, 1, 2, 0]), 1))], [(None, unit) for unit in units]
    else:
        attained = [((np.zeros(4, int), 0), (np.array([1, 1, 1, 0]), 1))]
        pairs = [(one, other) for one in units for other in units]
    assert_sensitivity(
        lambda data: one_hot_moments(data[0], plan, data[1]),
        [(joined(one), joined(other)) for one, other in pairs],
        attained=[(joined(one), joined(other)) for one, other in attained],
        relation=relation,
    )


@pytest.mark.parametrize(("n_levels", "bins"), UNEVEN)
@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("n_classes", [1, 2])
def test_no_row_exceeds_the_bounds_where_levels_cost_differently(rng, n_levels, bins, pairs, n_classes):
    """Every row, and every two rows of one class; the bound is near the largest."""
    plan = residual_plan(n_levels, bins, n_classes, pairs=pairs, importance=1 + np.arange(len(n_levels)))
    rows = np.array(list(itertools.product(*(range(k) for k in n_levels))))
    vectors = _vectors(rows[rng.permutation(len(rows))[:900]], plan)
    norms = np.linalg.norm(vectors, axis=1)
    assert 0.97 * plan.add_or_remove_one < norms.max() <= plan.add_or_remove_one * (1 + 1e-9)
    assert norms.min() > 0.9 * plan.add_or_remove_one
    square = norms[:, None] ** 2 + norms**2 - 2 * vectors @ vectors.T
    assert np.sqrt(square.max()) <= plan.replace_one * (1 + 1e-9)


@pytest.mark.parametrize("n_levels", [(2,) * 6, (2,) * 3, (2, 3, 2, 4), (4, 4, 4)])
@pytest.mark.parametrize("pairs", [True, False])
def test_two_rows_of_the_only_class_attain_the_bound_of_a_replaced_one(n_levels, pairs):
    """All pairs of rows: some of few levels are further apart than two orthogonal ones."""
    plan = residual_plan(n_levels, None, 1, pairs=pairs)
    vectors = _vectors(np.array(list(itertools.product(*(range(k) for k in n_levels)))), plan)
    furthest = max(np.linalg.norm(vectors - one, axis=1).max() for one in vectors)
    assert 0.95 * plan.replace_one < furthest <= plan.replace_one * (1 + 1e-9)
    assert furthest > 0.999 * plan.replace_one or len(set(n_levels)) > 1


def test_what_is_added_to_products_of_weights_makes_them_positive(rng):
    """V + D - w w' has no negative eigenvalue, however far V is from a product of numbers of its parts."""
    for n, n_parts in ((7, 1), (5, 3)):
        weights = rng.exponential(size=(n, n_parts, n, n_parts)) ** 3
        weights[np.arange(n), :, np.arange(n)] = 0.0
        both = weights.reshape(n * n_parts, -1)
        both = both + both.T
        v, added = plans._rank_one(both, n_parts)
        assert np.linalg.eigvalsh(both + added - np.outer(v, v))[0] > -1e-9 * both.max()
        outside = np.kron(1 - np.eye(n), np.ones((n_parts, n_parts)))
        assert not (added * outside).any()


def test_rows_of_one_class_may_be_further_apart_than_rows_of_two():
    """The sabotaged twin: the bound of two classes, sqrt(2) times that of one row, where there is one."""
    plan = residual_plan([2] * 6, None, 1)
    one, other = _vectors(np.array([[0] * 6, [0, 0, 0, 1, 1, 1]]), plan), _vectors(np.ones((1, 6), dtype=int), plan)
    furthest = np.linalg.norm(one - other, axis=1).max()
    assert 2**0.5 * plan.add_or_remove_one < furthest <= plan.replace_one * (1 + 1e-9)


@pytest.mark.parametrize(("n_levels", "bins"), [(N_LEVELS, BINS), *UNEVEN, ((2,) * 6, None)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_row_exceeds_the_bounds_where_the_sum_of_the_classes_weighs_more(rng, n_levels, bins, n_classes):
    """Norms are those of a plan of equal weights; the bound of two rows of different classes is near the largest."""
    plan = residual_plan(n_levels, bins, n_classes, ratio=3.0)
    plain = residual_plan(n_levels, bins, n_classes)
    assert plan.add_or_remove_one == plain.add_or_remove_one
    assert plan.replace_one > plain.replace_one
    rows = np.array(list(itertools.product(*(range(k) for k in n_levels))))
    rows = rows[rng.permutation(len(rows))[:300]]
    first, other = (_vectors(rows, plan, k) for k in (0, n_classes - 1))
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), np.linalg.norm(_vectors(rows, plain), axis=1))
    furthest = [np.linalg.norm(one - second, axis=1).max() for second in (first, other) for one in first[:, None]]
    assert 0.97 * plan.replace_one < max(furthest) <= plan.replace_one * (1 + 1e-9)
    assert max(furthest) > (1 - 1e-6) * plan.replace_one or len(set(n_levels)) > 1
    # the sabotaged twin: rows of different classes taken for orthogonal
    assert max(furthest) > 2**0.5 * np.linalg.norm(first, axis=1).max()


@pytest.mark.parametrize(("n_classes", "ratio"), [(1, 3.0), (2, 1.0), (2, 3.0), (5, 2.0), (7, 40.0)])
def test_noise_of_classes_is_what_their_contrasts_say(rng, n_classes, ratio):
    classes = ClassContrasts(n_classes, ratio)
    assert classes.equal == (n_classes == 1 or ratio == 1)
    tables = rng.integers(0, 1000, (n_classes, 3, 2))
    measured = classes.measure(tables)
    assert measured.dtype.kind == "i"
    assert np.abs(measured).max() <= classes.largest * tables.sum(axis=0).max()
    np.testing.assert_allclose(classes.tables(measured), tables, atol=1e-9)
    weighted = classes.measure(np.eye(n_classes, dtype=int)) * classes.weights[:, None]
    np.testing.assert_allclose(
        weighted.T @ weighted, np.where(np.eye(n_classes) == 1, 1.0, classes.product), atol=1e-12
    )
    # noise of unit variance on every weighted entry
    noise = classes.tables(np.eye(n_classes) / classes.weights[:, None])
    covariance = noise @ noise.T
    np.testing.assert_allclose(np.diag(covariance), classes.variance, rtol=1e-12)
    assert covariance.sum() == pytest.approx(n_classes / classes.of_sum)
    drawn = classes.correlated(np.eye(n_classes))
    np.testing.assert_allclose(drawn @ drawn.T, covariance / classes.variance, atol=1e-12)
    inverse = classes.weighted(np.eye(n_classes))
    np.testing.assert_allclose(inverse @ covariance / classes.variance, np.eye(n_classes), atol=1e-12)


@pytest.mark.parametrize("ratio", [0.5, np.nan, np.inf])
def test_the_sum_of_the_classes_weighs_at_least_as_much_as_their_differences(ratio):
    with pytest.raises(ValueError, match="ratio"):
        residual_plan(N_LEVELS, BINS, N_CLASSES, ratio=ratio)
    with pytest.raises(ValueError, match="class"):
        ClassContrasts(0)


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_very_many_classes_need_little_memory(ratio):
    """A matrix of all classes and their contrasts has 800 megabytes."""
    tracemalloc.start()
    try:
        plan = residual_plan([3, 3], None, 10_000, ratio=ratio)
        query = one_hot_moments(np.array([[0, 1], [2, 2]]), plan, np.array([3, 9_999]))
        released = unpack_one_hot_moments(exact_value(query), plan)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20
    tables = plan.contrasts.tables(released)
    assert tables.pairs.sum(axis=(1, 2)).nonzero()[0].tolist() == [3, 9_999] or ratio > 1
    np.testing.assert_allclose(tables.pairs[[3, 9_999], [0, 2], [4, 5]], 1, atol=1e-9)


def test_two_rows_are_never_further_apart_than_a_row_that_leaves_and_one_that_joins():
    levels, importance = [5, 17, 17, 2, 2, 17, 2], [0.012, 4.5, 487, 2.6, 0.03, 1e-4, 1e-4]
    for ratio in (1.0, 3.0):
        plan = residual_plan(levels, None, 2, importance=importance, ratio=ratio)
        assert plan.replace_one <= 2 * plan.add_or_remove_one * (1 + 1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_hot_noise_is_at_its_scale(rng, relation):
    _assert_noise_of(residual_plan([40, 60, 80], [40, 0, 0], 12), rng, relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_is_at_its_scale_where_the_sum_of_the_classes_weighs_more(rng, relation):
    _assert_noise_of(residual_plan([40, 60, 80], [40, 0, 0], 12, ratio=3.0), rng, relation)


def _assert_noise_of(plan, rng, relation):
    levels = plan.contrasts.n_levels
    query = one_hot_moments(_rows(rng, 30, levels), plan, rng.integers(0, 12, 30))
    released = add_gaussian(query, 2.2, make_noise_generator("fast"), relation)
    scale = 2.2 * query.sensitivity(relation)
    assert_noise_at_scale(released - exact_value(query), scale / query.weights)
    # and in orthonormal contrasts, by the plan
    noise = unpack_one_hot_moments(released - exact_value(query), plan)
    rows, columns = plan.contrasts.across
    assert_noise_at_scale(noise.pairs[:, rows, columns], plan.noise_sd(scale).pairs[:, rows, columns])
    # of all classes together
    of_all = noise.pairs.sum(axis=0)[rows, columns] / plan.noise_sd_of_sum(scale).pairs[0, rows, columns]
    assert np.mean(of_all**2) == pytest.approx(1, abs=5 * (2 / len(rows)) ** 0.5)


@pytest.mark.parametrize(("n_classes", "ratio"), [(1, 1.0), (N_CLASSES, 1.0), (N_CLASSES, 3.0)])
@pytest.mark.parametrize(("n_levels", "bins"), [(N_LEVELS, BINS), *UNEVEN])
def test_without_noise_the_tables_are_counts(rng, n_levels, bins, n_classes, ratio):
    codes, y = _rows(rng, 200, n_levels), rng.integers(0, n_classes, 200)
    plan = residual_plan(n_levels, bins, n_classes, ratio=ratio)
    query = one_hot_moments(codes, plan, y)
    count, one_way, pairs = plan.contrasts.tables(unpack_one_hot_moments(exact_value(query), plan))
    assert count.tolist() == np.bincount(y, minlength=n_classes).tolist()
    for k in range(n_classes):
        of_levels, of_pairs = counted(codes[y == k], n_levels)
        np.testing.assert_allclose(one_way[k], of_levels, atol=1e-9)
        np.testing.assert_allclose(pairs[k], of_pairs, atol=1e-9)


def test_nothing_is_paid_inside_a_block(rng):
    plan = _plan()
    query = one_hot_moments(_rows(rng, 9), plan, np.zeros(9, dtype=int))
    width = sum(k - 1 for k in N_LEVELS)
    inside = sum((k - 1) ** 2 for k in N_LEVELS)
    assert query.value.shape == (N_CLASSES, 1 + width + (width**2 - inside) // 2)
    assert query.value.dtype.kind == "i"


def test_noise_of_the_tables_is_that_of_their_parts(rng):
    """Empirical variance of every entry, and of sums of two-way tables, which are the one-way tables."""
    plan = residual_plan([3, 5, 2], [0, 5, 0], 1)
    noise, n = plan.noise_sd(3.0), 4000
    across = np.triu(np.ones_like(noise.pairs[0]), 1)
    drawn = noise._replace(
        count=noise.count * rng.normal(size=n),
        one_way=noise.one_way * rng.normal(size=(n, noise.one_way.shape[1])),
        pairs=noise.pairs * across * rng.normal(size=(n, *across.shape)),
    )
    drawn = drawn._replace(pairs=drawn.pairs + drawn.pairs.transpose(0, 2, 1))
    tables, stated = plan.contrasts.tables(drawn), plan.contrasts.table_variances(noise)
    for found, variance in zip(tables, stated):
        variance = variance[0]
        np.testing.assert_allclose(found.var(axis=0), variance, rtol=0.12)
    np.testing.assert_allclose(tables.pairs[:, :3, 3:8].sum(axis=2), tables.one_way[:, :3], atol=1e-9)
    np.testing.assert_allclose(tables.pairs[:, 8:, :3].sum(axis=1), tables.one_way[:, :3], atol=1e-9)
    np.testing.assert_allclose(tables.one_way[:, 3:8].sum(axis=1), tables.count, atol=1e-9)


@pytest.mark.parametrize(("n_levels", "bins"), [(N_LEVELS, BINS), *UNEVEN, ([1], [0]), ([7, 1, 12], [0, 1, 3])])
def test_contrasts_are_orthonormal_and_those_of_bins_have_depths(n_levels, bins):
    contrasts = Contrasts(n_levels, bins)
    matrix = contrasts.matrix.toarray() if len(contrasts.norms) else np.zeros((sum(n_levels), 0))
    assert matrix.shape == (sum(n_levels), sum(n_levels) - len(n_levels))
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(matrix.shape[1]), atol=1e-12)
    np.testing.assert_allclose(matrix.sum(axis=0), 0, atol=1e-12)
    depths = [int(np.ceil(np.log2(k))) + (m > k) if k >= 4 else int(m > 1) for m, k in zip(n_levels, bins)]
    assert contrasts.n_parts.tolist() == depths
    whole = matrix * contrasts.norms
    np.testing.assert_allclose(whole, np.rint(whole), atol=1e-9)
    assert np.abs(whole).max(initial=1) == pytest.approx(contrasts.largest)
    with pytest.raises(ValueError, match="bins"):
        Contrasts([3], [4])


@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_holds_whatever_matters_more(rng, relation):
    levels, importance = [4, 3, 8], [1.0, 4.0, 0.5]
    base, y = _rows(rng, 20, levels), rng.integers(0, N_CLASSES, 20)
    units = [(row, k) for row in ([0, 0, 0], [1, 1, 1], [2, 0, 6], [0, 1, 9]) for k in (0, 2)]
    joined = [(np.vstack([base, row]), np.append(y, k)) for row, k in units]
    pairs = [((base, y), more) for more in joined]
    if relation == "replace_one":
        pairs = [(one, other) for one in joined for other in joined]
    for options in ({}, {"kept": 0.03}, {"pairs": False}):
        plan = residual_plan(levels, [0, 0, 8], N_CLASSES, importance=importance, **options)
        assert_sensitivity(
            lambda data: one_hot_moments(data[0], plan, data[1]),  # noqa: B023
            pairs,
            attained=pairs,
            relation=relation,
        )


def test_what_matters_more_gets_less_noise():
    plain, wanted = (_plan(importance=importance).noise_sd(1.0) for importance in (None, [1.0, 8.0, 1.0, 1.0]))
    plain, wanted = (np.sqrt(_plan().contrasts.table_variances(noise).one_way[0]) for noise in (plain, wanted))
    assert (wanted < plain)[3:5].all()  # levels of the second column
    assert (wanted > plain)[[0, 1, 2, *range(5, 13)]].all()
    alike, scaled = (_plan(importance=np.full(4, size)) for size in (1.0, 1e6))
    np.testing.assert_allclose(alike.weights, scaled.weights, rtol=1e-9)  # only ratios count
    for wrong in ([1.0], [1.0, 0.0, 1.0, 1.0], [1.0, np.nan, 1.0, 1.0]):
        with pytest.raises(ValueError, match="importance"):
            _plan(importance=wrong)
    for wrong in (0.0, 1.5, np.nan):
        with pytest.raises(ValueError, match="kept"):
            _plan(kept=wrong)


def test_no_other_weights_give_less_error_at_the_same_cost(rng):
    """The weights are a minimum: moved at random, at the same sensitivity, the error of the tables rises."""
    levels = [5, 3, 7, 2]
    plan = residual_plan(levels, None, 2, kept=1.0)

    def error(inverse):
        moved = plans.ResidualPlan(plan.contrasts, True, plan.classes, inverse, 0.0, 0.0)
        squares = 1 - 1 / np.array(levels)
        cost = inverse[0] + inverse[1] @ squares + squares @ inverse[2] @ squares / 2
        noise = moved.noise_sd(cost**0.5)
        tables = plan.contrasts.table_variances(noise)
        return len(levels) ** 2 * noise.count[0] + np.sqrt(tables.one_way).sum() + np.sqrt(tables.pairs).sum() / 2

    least = error(plan.inverse)
    for size in (0.02, 0.3):
        for _ in range(30):
            count, one_way, both = (part * np.exp(size * rng.normal(size=np.shape(part))) for part in plan.inverse)
            both = np.triu(both)
            assert error((count, one_way, both + both.T)) > least * (1 - 1e-6)


def test_measuring_every_part_once_takes_less_noise_than_whole_tables():
    """At the same sensitivity, against tables of weight (k_i k_j)^(1/3) and one-way tables of a tenth of the budget."""
    levels = np.array([16, 9, 15, 16, 7, 15, 6, 5, 2, 8, 8])
    plan = residual_plan(levels, None, 2, kept=1.0)
    noise = plan.noise_sd(plan.add_or_remove_one)
    variances = plan.contrasts.table_variances(noise)
    size = np.outer(np.cbrt(levels), np.cbrt(levels)) ** 2
    pairs = np.triu_indices(len(levels), 1)
    before = np.sqrt(size[pairs].sum() / 0.9 / size)
    starts = plan.contrasts.level_starts[:-1]
    after = np.sqrt(variances.pairs[0][np.ix_(starts, starts)])
    assert (np.outer(levels, levels) * (before - 1.1 * after))[pairs].sum() > 0


def test_dense_and_sparse_counts_are_equal(rng):
    codes, y = _rows(rng, 500), rng.integers(0, N_CLASSES, 500)
    counts = []
    for dense, entries in ((0, 1 << 24), (1000, 1 << 24), (1000, 1), (0, 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one_hot, "_DENSE", dense)
            patch.setattr(one_hot, "_MOST_ENTRIES", entries)
            counts.append(exact_value(one_hot_moments(codes, _plan(), y)))
    for other in counts[1:]:
        np.testing.assert_array_equal(counts[0], other)


def test_sums_of_parts_are_those_of_all_rows_to_the_last_bit(rng):
    codes, y = _rows(rng, 300), rng.integers(0, N_CLASSES, 300)
    sizes = rng.integers(1, 9, 300)
    for of, plan in itertools.product((None, sizes), (_plan(), _plan(ratio=3.0))):
        parts = [
            one_hot_moments(codes[at], plan, y[at], unit_sizes=None if of is None else of[at]).value
            for at in np.array_split(np.arange(300), 7)
        ]
        np.testing.assert_array_equal(sum(parts), one_hot_moments(codes, plan, y, unit_sizes=of).value)


def test_rows_have_the_columns_and_classes_of_the_plan(rng):
    plan, codes = residual_plan(N_LEVELS, BINS, 1), _rows(rng, 3)
    of_class = one_hot_moments(codes[:1], plan).value
    np.testing.assert_array_equal(one_hot_moments(codes, plan, np.arange(3)).value, of_class)
    with pytest.raises(ValueError, match="columns"):
        one_hot_moments(_rows(rng, 3)[:, :2], plan)
    assert weighted_change(*(one_hot_moments(_rows(rng, 0), plan) for _ in range(2))) == 0


@pytest.mark.parametrize(("levels", "bins"), [([3, 5], [0, 5]), ([2, 2, 4], [0, 0, 3]), ([6, 3, 2], [5, 0, 0])])
def test_the_bounds_hold_at_any_weights(rng, levels, bins):
    """The weights of a plan make all levels cost nearly the same, which would hide a mistake in the bounds."""
    plan = residual_plan(levels, bins, 1)
    rows = np.array(list(itertools.product(*map(range, levels))))
    matrices, blocks = plan.contrasts.matrices, plans._Blocks(plan.contrasts)
    attained = 0
    for _ in range(40):
        n, n_parts = blocks.present.shape
        one_way = np.where(blocks.present, np.exp(4 * rng.normal(size=(n, n_parts))), 0.0)
        both = np.exp(4 * rng.normal(size=(n, n_parts, n, n_parts)))
        both = both + both.transpose(2, 3, 0, 1)
        both *= blocks.present[:, :, None, None] * blocks.present * ~np.eye(n, dtype=bool)[:, None, :, None]
        inverse = (float(np.exp(4 * rng.normal())), one_way, both)
        vectors = []
        for row in rows:
            own = [m[x] for m, x in zip(matrices, row)]
            parts = [plan.contrasts.part[plan.contrasts.block == i] for i in range(n)]
            entries = [np.array([inverse[0] ** 0.5])]
            entries += [own[i] * np.sqrt(one_way[i][parts[i]]) for i in range(n)]
            for i, j in itertools.combinations(range(n), 2):
                weight = np.sqrt(both[i][parts[i]][:, j][:, parts[j]])
                entries.append((np.outer(own[i], own[j]) * weight).ravel())
            vectors.append(np.concatenate(entries))
        products = np.array(vectors) @ np.array(vectors).T
        most = plans._largest_norm(blocks, inverse)
        assert products.diagonal().max() <= most * (1 + 1e-9)
        attained += products.diagonal().max() > 0.999 * most
        assert products.min() >= plans._least_product(blocks, inverse) - 1e-9 * most
    assert attained


@pytest.mark.parametrize("levels", [[], [1], [2]])
def test_a_row_of_no_class_may_replace_another_one(levels):
    plan = residual_plan(levels)
    assert plan.replace_one >= plan.add_or_remove_one > 0


def test_a_unit_of_many_rows_weighs_at_most_one():
    codes, plan = np.zeros((600, len(N_LEVELS)), dtype=int), _plan()
    made = one_hot_moments(codes, plan, np.zeros(600, dtype=int), unit_sizes=np.full(600, 600))
    assert 0.99 < exact_value(made)[0, 0] <= 1.0


def test_many_parts_are_taken_together():
    few = residual_plan([16] * 5, [16] * 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "_MOST_PARTS", 10)
        assert residual_plan([16] * 5, [16] * 5).contrasts.n_parts.tolist() == [1] * 5
    assert few.contrasts.n_parts.tolist() == [4] * 5
