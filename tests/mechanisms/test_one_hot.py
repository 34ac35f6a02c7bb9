from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS, assert_noise_at_scale, assert_sensitivity

from skdpgen.mechanisms import _one_hot as one_hot
from skdpgen.mechanisms import add_gaussian, exact_value
from skdpgen.mechanisms._one_hot import one_hot_moments, unpack_one_hot_moments
from skdpgen.utils.noise import make_noise_generator

N_LEVELS = [3, 2, 7, 1]
N_CLASSES = 3


def _rows(rng, n):
    return np.stack([rng.integers(0, k, n) for k in N_LEVELS], axis=1)


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_hot_sensitivity_is_attained_and_not_exceeded(rng, relation):
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
        lambda data: one_hot_moments(data[0], N_LEVELS, data[1], N_CLASSES),
        [(joined(one), joined(other)) for one, other in pairs],
        attained=[(joined(one), joined(other)) for one, other in attained],
        relation=relation,
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_hot_noise_is_at_its_scale(rng, relation):
    levels = [40, 60, 80]
    codes = np.stack([rng.integers(0, k, 30) for k in levels], axis=1)
    query = one_hot_moments(codes, levels, rng.integers(0, 12, 30), 12)
    released = add_gaussian(query, 2.2, make_noise_generator("fast"), relation)
    assert_noise_at_scale(released - exact_value(query), 2.2 * query.sensitivity(relation) / query.weights)


def test_tables_are_counts_and_nothing_is_paid_inside_a_block(rng):
    codes, y = _rows(rng, 200), rng.integers(0, N_CLASSES, 200)
    query = one_hot_moments(codes, N_LEVELS, y, N_CLASSES)
    count, one_way, pairs = unpack_one_hot_moments(exact_value(query), N_LEVELS)
    assert count.tolist() == np.bincount(y, minlength=N_CLASSES).tolist()
    mine = codes[y == 1]
    assert one_way[1, 3:5].tolist() == np.bincount(mine[:, 1], minlength=2).tolist()
    for i in range(3):
        for j in range(2):
            expected = np.sum((mine[:, 0] == i) & (mine[:, 1] == j))
            assert pairs[1, i, 3 + j] == pairs[1, 3 + j, i] == expected
    assert not pairs[:, :3, :3].any()
    width = sum(N_LEVELS)
    inside = sum(k * k for k in N_LEVELS)
    assert query.value.shape == (N_CLASSES, 1 + width + (width**2 - inside) // 2)


@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_holds_whatever_matters_more(rng, relation):
    levels, importance = N_LEVELS[:3], [1.0, 30.0, 0.2]
    base, y = _rows(rng, 20)[:, :3], rng.integers(0, N_CLASSES, 20)
    units = [(row, k) for row in ([0, 0, 0], [1, 1, 1], [2, 0, 6], [0, 1, 9]) for k in (0, 2)]
    joined = [(np.vstack([base, row]), np.append(y, k)) for row, k in units]
    pairs = [((base, y), more) for more in joined]
    if relation == "replace_one":
        pairs = [(one, other) for one in joined for other in joined]
    for share in (0.1, 0.6, 1.0):
        options = {"one_way_share": share, "importance": importance}
        assert_sensitivity(
            lambda data: one_hot_moments(data[0], levels, data[1], N_CLASSES, **options),  # noqa: B023
            pairs,
            attained=pairs,
            relation=relation,
        )


def test_what_matters_more_gets_less_noise(rng):
    codes, importance = _rows(rng, 9), [1.0, 8.0, 1.0, 1.0]
    plain, wanted = one_hot_moments(codes, N_LEVELS), one_hot_moments(codes, N_LEVELS, importance=importance)
    quieter = wanted.weights / wanted.add_or_remove_one > plain.weights / plain.add_or_remove_one
    assert quieter[4:6].all()  # levels of the second column
    assert not quieter[1:4].any()
    for wrong in ([1.0], [1.0, 0.0, 1.0, 1.0], [1.0, np.nan, 1.0, 1.0]):
        with pytest.raises(ValueError, match="importance"):
            one_hot_moments(codes, N_LEVELS, importance=wrong)


def test_dense_and_sparse_counts_are_equal(rng):
    codes, y = _rows(rng, 500), rng.integers(0, N_CLASSES, 500)
    counts = []
    for dense, entries in ((0, 1 << 24), (1000, 1 << 24), (1000, 1), (0, 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one_hot, "_DENSE", dense)
            patch.setattr(one_hot, "_MOST_ENTRIES", entries)
            counts.append(exact_value(one_hot_moments(codes, N_LEVELS, y, N_CLASSES)))
    for other in counts[1:]:
        np.testing.assert_array_equal(counts[0], other)
