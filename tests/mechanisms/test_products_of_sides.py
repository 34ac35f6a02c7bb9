"""Products of the sides of two columns in place of their two-way tables: bounds, noise, exact sums."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from _claims import assert_noise_at_scale

from skdpgen.mechanisms import _residual_plan as plans
from skdpgen.mechanisms import add_gaussian, exact_value, one_hot_moments, residual_plan, unpack_one_hot_moments
from skdpgen.utils.noise import make_noise_generator

# Levels of each column, those of them that are ordered, and their sides: a level without one is missing, and the last
# column of three has none.
TABLES = [
    ([2] * 6, [0] * 6, [[-1, 1]] * 6),
    ([4, 2, 3], [4, 0, 0], [[-1, -1, 1, 1], [-1, 1], [0, 0, 0]]),
    ([6, 2, 5, 2], [5, 0, 4, 0], [[-1, 1, 1, 1, 1, 0], [-1, 1], [-1, -1, -1, 1, 0], [-1, 1]]),
    ([4, 4, 4], [4, 4, 4], [[-1, 1, 1, 1], [-1, -1, 1, 1], [-1, -1, -1, 1]]),
]


def _plan(table, n_classes=1, **options):
    n_levels, bins, sides = table
    return residual_plan(n_levels, bins, n_classes, pairs=False, sides=np.concatenate(sides), **options)


def _vectors(rows, plan):
    queries = (one_hot_moments(row[None], plan, np.zeros(1, dtype=int)) for row in rows)
    return np.stack([exact_value(query)[0] * query.weights for query in queries])


def _all_rows(n_levels, first=-1):
    return np.array(list(itertools.product(*(range(first, k) for k in n_levels))))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("n_classes", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bounds_are_attained_and_not_exceeded(rng, table, n_classes, weighted):
    """Every row, with codes outside their column too, and every two rows of one class."""
    importance = 1 + np.arange(len(table[0])) if weighted else None
    plan = _plan(table, n_classes, importance=importance)
    rows = _all_rows(table[0])
    rows = rows[rng.permutation(len(rows))[:900]]
    vectors = _vectors(np.vstack([rows, _all_rows(table[0], 0)[:300]]), plan)
    norms = np.linalg.norm(vectors, axis=1)
    assert 0.99 * plan.add_or_remove_one < norms.max() <= plan.add_or_remove_one * (1 + 1e-9)
    square = norms[:, None] ** 2 + norms**2 - 2 * vectors @ vectors.T
    furthest = np.sqrt(square.max())
    assert furthest <= plan.replace_one * (1 + 1e-9)
    if n_classes == 1:
        assert furthest > 0.9 * plan.replace_one
    else:  # rows of two classes are orthogonal
        assert plan.replace_one == pytest.approx(2**0.5 * plan.add_or_remove_one)


def test_the_products_are_a_part_of_the_bound():
    """The sabotaged twin: the bound of the one-way tables alone, at the same weights, is exceeded."""
    plan = _plan(TABLES[0])
    row = _vectors(np.zeros((1, 6), dtype=int), plan)[0]
    of_tables = np.linalg.norm(row[: 1 + len(plan.contrasts.norms)])
    assert of_tables < 0.96 * np.linalg.norm(row)
    assert np.linalg.norm(row) == pytest.approx(plan.add_or_remove_one)


@pytest.mark.parametrize(
    ("n_levels", "sides"),
    [((2, 2, 3), (-1, 1, 1, -1, -1, 1, 0)), ((1, 1, 2), (1, 1, -1, 1)), ((2, 3, 2), (1, 1, 1, 1, 1, -1, 1))],
)
def test_the_bounds_hold_at_any_weights(rng, n_levels, sides):
    """The weights of a plan make all rows cost nearly the same, which would hide a mistake; codes outside, too."""
    plan = residual_plan(n_levels, None, 1, pairs=False, sides=sides)
    blocks = plans._Blocks(plan.contrasts, np.array(sides))
    n, n_parts = blocks.present.shape
    of_block = np.split(np.array(sides), np.cumsum(n_levels)[:-1])
    for _ in range(40):
        count, one_way = float(np.exp(3 * rng.normal())), np.exp(3 * rng.normal(size=(n, n_parts))) * blocks.present
        weights = np.triu(np.exp(3 * rng.normal(size=(n, n))), 1)
        both = np.zeros((n, n_parts, n, n_parts))
        both[:, -1, :, -1] = weights + weights.T
        vectors = []
        for row in _all_rows(n_levels):
            own = [m[x] if x >= 0 else 0 * m[0] for m, x in zip(plan.contrasts.matrices, row)]
            side = np.array([s[x] if x >= 0 else 0 for s, x in zip(of_block, row)])
            parts = [plan.contrasts.part[plan.contrasts.block == i] for i in range(n)]
            entries = [u * np.sqrt(v[part]) for u, v, part in zip(own, one_way, parts)]
            products = (np.outer(side, side) * np.sqrt(weights))[np.triu_indices(n, 1)]
            vectors.append(np.concatenate([[count**0.5], *entries, products]))
        products = np.array(vectors) @ np.array(vectors).T
        most = plans._largest_norm(blocks, (count, one_way, both))
        assert products.diagonal().max() <= most * (1 + 1e-9)
        assert products.min() >= plans._least_product(blocks, (count, one_way, both)) - 1e-9 * most


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("n_classes", [1, 3])
def test_without_noise_the_sums_are_those_of_the_products(rng, table, n_classes):
    n_levels, _, sides = table
    plan = _plan(table, n_classes)
    rows = np.stack([rng.integers(-1, k, 50) for k in n_levels], axis=1)
    y = rng.integers(0, n_classes, 50)
    released = unpack_one_hot_moments(exact_value(one_hot_moments(rows, plan, y)), plan)
    assert released.pairs is None
    each = np.stack([np.append(side, 0)[column] for side, column in zip(sides, rows.T)], axis=1)
    for k in range(n_classes):
        expected = each[y == k].T @ each[y == k]
        expected[np.diag_indices(len(n_levels))] = 0
        np.testing.assert_allclose(released.sides[k], expected)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_the_noise_is_at_its_scale(rng, relation):
    n = 200
    plan = residual_plan([2] * n, None, 12, pairs=False, sides=np.tile([-1, 1], n), importance=rng.uniform(1, 3, n))
    query = one_hot_moments(rng.integers(0, 2, (30, n)), plan, rng.integers(0, 12, 30))
    released = add_gaussian(query, 2.2, make_noise_generator("fast"), relation)
    noise = unpack_one_hot_moments(released - exact_value(query), plan)
    rows, columns = plan.across
    scale = plan.noise_sd(2.2 * query.sensitivity(relation))
    assert_noise_at_scale(noise.sides[:, rows, columns], scale.sides[:, rows, columns])


def test_one_way_tables_get_five_percent_more_noise():
    plain, plan = residual_plan(*TABLES[0][:2], pairs=False), _plan(TABLES[0])
    for one, other in zip(plan.noise_sd(1.0)[:2], plain.noise_sd(1.0)[:2]):
        np.testing.assert_allclose(one / plan.add_or_remove_one, other / plain.add_or_remove_one / 0.9**0.5, rtol=1e-6)


@pytest.mark.parametrize("options", [{"pairs": True}, {"sides": [-1, 1, 2]}, {"sides": [-1, 1]}])
def test_sides_take_the_place_of_pairs(options):
    with pytest.raises(ValueError, match="sides take the place"):
        residual_plan([2, 1], **{"pairs": False, "sides": [-1, 1, 0], **options})
