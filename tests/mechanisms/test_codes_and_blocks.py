"""Codes beyond their column count nowhere else, and tables do not depend on the blocks that rows are counted in."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from _claims import RELATIONS, weighted_change

from skdpgen.mechanisms import (
    add_gaussian,
    class_moments,
    exact_value,
    joint_histogram,
    lattice_rows,
    one_hot_moments,
    residual_plan,
    unpack_one_hot_moments,
)
from skdpgen.mechanisms._histogram import class_norm_histogram, norm_histogram
from skdpgen.mechanisms._one_hot import _tables
from skdpgen.utils.noise import make_noise_generator

LEVELS = [3, 2, 4]
# every code that could be taken for one of another column, and some that are far away
CODES = [-10, *range(-4, sum(LEVELS) + 3), 2**31]


def counted_by_hand(codes, levels):
    """One-way and two-way tables of rows, entry by entry."""
    offsets = np.cumsum([0, *levels])[:-1]
    one_way, both = np.zeros(sum(levels)), np.zeros((sum(levels), sum(levels)))
    for row in codes:
        at = [o + code for o, code, k in zip(offsets, row, levels) if 0 <= code < k]
        one_way[at] += 1
        for i, j in itertools.permutations(at, 2):
            both[i, j] += 1
    return one_way, both


def test_a_code_beyond_its_column_counts_in_no_other_column():
    for column, code in itertools.product(range(3), CODES):
        row = np.array([[1, 1, 1]])
        row[0, column] = code
        plan = residual_plan(LEVELS)
        _, one_way, pairs, _ = unpack_one_hot_moments(exact_value(one_hot_moments(row, plan)), plan)
        expected = counted_by_hand(row, LEVELS)
        matrix = plan.contrasts.matrix.toarray()
        across = plan.contrasts.block[:, None] != plan.contrasts.block
        np.testing.assert_allclose(one_way[0], expected[0] @ matrix, atol=1e-12)
        np.testing.assert_allclose(pairs[0], np.where(across, matrix.T @ expected[1] @ matrix, 0.0), atol=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_rows_of_any_codes_stay_within_the_sensitivity(rng, relation):
    """The tables of the last two columns weigh most: a code of the first that counted there would show."""
    levels = [2, 40, 60]
    base = np.stack([rng.integers(0, k, 8) for k in levels], axis=1)
    rows = np.stack([rng.integers(-3, 110, 60), rng.integers(-3, 50, 60), rng.integers(-3, 70, 60)], axis=1)
    rows[:3] = [[7, 3, 5], [1, 41, 5], [-1, -1, -1]]

    plan = residual_plan(levels, n_classes=2)

    def query(rows):
        return one_hot_moments(rows, plan, np.zeros(len(rows), dtype=int))

    start = query(base)
    joined = [query(np.vstack([base, row])) for row in rows]
    pairs = [(start, one) for one in joined] if relation == RELATIONS[0] else itertools.combinations(joined, 2)
    for one, other in pairs:
        assert weighted_change(one, other) <= start.sensitivity(relation) * (1 + 1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_histograms_of_any_codes_stay_within_the_sensitivity(rng, relation):
    base = [rng.integers(0, k, 8) for k in LEVELS]
    rows = rng.choice(CODES, (40, 3))
    rows[:2] = [[3, 2, 4], [-1, 5, 3]]
    start = joint_histogram(base, LEVELS)
    joined = [joint_histogram([np.append(c, code) for c, code in zip(base, row)], LEVELS) for row in rows]
    for row, one in zip(rows, joined):
        expected = counted_by_hand([row], LEVELS)[0]
        np.testing.assert_array_equal(exact_value(one) - exact_value(start), expected)
    pairs = [(start, one) for one in joined] if relation == RELATIONS[0] else itertools.combinations(joined, 2)
    for one, other in pairs:
        assert weighted_change(one, other) <= start.sensitivity(relation) * (1 + 1e-9)


@pytest.mark.parametrize("code", [-7, -1, 3, 4, 10**6])
def test_rows_of_a_class_that_is_not_there_move_nothing(rng, code):
    X, y = rng.normal(size=(6, 2)), rng.integers(0, 3, 6)
    centers = rng.normal(size=(3, 2))
    without = class_moments(X, y, 3, centers=centers)
    more = class_moments(np.vstack([X, [[0.5, 0.5]]]), np.append(y, code), 3, centers=centers)
    np.testing.assert_array_equal(exact_value(without), exact_value(more))
    codes = np.stack([y, y % 2, y], axis=1)
    plan = residual_plan(LEVELS, n_classes=3)
    without, more = one_hot_moments(codes, plan, y), one_hot_moments(codes[[*range(6), 0]], plan, [*y, code])
    np.testing.assert_array_equal(exact_value(without), exact_value(more))
    edges = np.array([0.5, 1.0, 2.0])
    norms = np.linalg.norm(X, axis=1)
    without = class_norm_histogram(norms, y, 3, edges)
    more = class_norm_histogram(np.append(norms, 0.7), np.append(y, code), 3, edges)
    np.testing.assert_array_equal(exact_value(without), exact_value(more))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
def test_codes_of_any_width_count_in_their_own_cells(dtype):
    """Products of narrow integers wrap around: cells of class 100 by 60 sizes are beyond 8 bits."""
    codes, norms, edges = np.array([0, 1, 100, 119]), np.array([0.1, 5.0, 2.2, 5.0]), np.linspace(0, 4, 59)
    expected = exact_value(class_norm_histogram(norms, codes, 120, edges))
    assert np.flatnonzero(expected).tolist() == (codes * 60 + np.searchsorted(edges, norms)).tolist()
    narrow = codes.astype(dtype)
    np.testing.assert_array_equal(exact_value(class_norm_histogram(norms, narrow, 120, edges)), expected)
    plan, columns = residual_plan([120, 120, 120], n_classes=2), np.stack([narrow] * 3, axis=1)
    np.testing.assert_array_equal(
        exact_value(one_hot_moments(columns, plan, narrow % 2)),
        exact_value(one_hot_moments(columns.astype(np.int64), plan, codes % 2)),
    )
    np.testing.assert_array_equal(
        exact_value(joint_histogram([narrow], [300])), exact_value(joint_histogram([codes], [300]))
    )


def test_sizes_on_and_beyond_the_edges_have_cells():
    edges = np.array([1.0, 2.0])
    for size, cell in ((0.0, 0), (1.0, 0), (1.1, 1), (2.0, 1), (1e300, 2), (np.inf, 2), (np.nan, 2)):
        assert np.flatnonzero(exact_value(norm_histogram(np.array([size]), edges))).tolist() == [cell]


@pytest.mark.parametrize("levels", [LEVELS, [40, 30, 35]])  # dense and sparse products
@pytest.mark.parametrize("chunk_rows", [1, 3, 7, 20, 21, 64])
def test_tables_do_not_depend_on_the_blocks_of_rows(rng, levels, chunk_rows):
    codes = np.stack([rng.integers(-1, k + 2, 21) for k in levels], axis=1)
    one_way, both = _tables(codes, np.array(levels), pairs=True, chunk_rows=chunk_rows)
    expected = counted_by_hand(codes, levels)
    np.testing.assert_array_equal(one_way, expected[0])
    across = np.repeat(np.arange(3), levels)
    across = across[:, None] != across[None, :]
    np.testing.assert_array_equal(np.where(across, both, 0), expected[1])


@pytest.mark.parametrize("chunk_rows", [1, 3, 7, 20, 21, 64])
def test_moments_of_classes_do_not_depend_on_the_blocks_of_rows(rng, chunk_rows):
    X, y = 0.5 * rng.normal(size=(21, 3)), rng.integers(-1, 3, 21)
    for options in ({}, {"centers": rng.normal(size=(2, 3))}, {"transform": lambda rows: 2 * rows}):
        found = exact_value(class_moments(X, y, 2, chunk_rows=chunk_rows, **options))
        expected = np.zeros_like(found)
        for row, k in zip(X, y):
            if 0 <= k < 2:
                row = options.get("transform", lambda rows: rows)(row) - options.get("centers", np.zeros((2, 3)))[k]
                row = lattice_rows(row[None], 1.0, 2.0**-18)[0]
                expected[k] += np.concatenate([[1.0], row, np.outer(row, row)[np.triu_indices(3)]])
        np.testing.assert_array_equal(found, expected)


def test_noise_of_many_steps_of_the_lattice_has_low_bits_of_its_own_in_each_entry():
    """Where the noise is wider than the bits of a double, bits below are drawn: they are not shared, nor left out."""
    query = one_hot_moments(np.array([[0, 0, 0]]), residual_plan([20, 20, 20]))
    released = np.stack([add_gaussian(query, 2.0**z, make_noise_generator(), RELATIONS[0]).ravel() for z in (30, 33)])
    steps = (released / query.lattice).astype(object)
    for row in steps:
        assert len({int(step) % 2**8 for step in row}) > 200
