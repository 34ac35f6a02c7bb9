"""DP2-VAE by units of several rows: a unit lies in one subset as a whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from test_dp2vae_training import _BiasDecoder, _data, _flat, _pretrained, _stack, _sum

from skdpgen.dpsgd._subsets import SubsetPlan, assign_subsets
from skdpgen.nn._dp2vae_training import SubsetRows
from skdpgen.utils.noise import NoiseGenerator, make_noise_generator

UNITS = np.random.default_rng(0).permutation(np.repeat(np.arange(400), np.resize([1, 1, 2, 5], 400)))


def test_a_unit_lies_in_one_subset_as_a_whole_drawn_uniformly():
    subsets = assign_subsets(len(UNITS), 8, make_noise_generator("fast"), units=UNITS)
    of_unit = np.zeros(400, dtype=int)
    of_unit[UNITS] = subsets
    assert (of_unit[UNITS] == subsets).all()
    counts = np.bincount(of_unit, minlength=8)
    assert stats.chisquare(counts).pvalue > 1e-5


def test_rows_that_a_unit_brings_move_no_other_unit_to_another_subset():
    """Units draw in the order of their numbers; how many rows they have changes no draw."""
    one = assign_subsets(len(UNITS), 8, NoiseGenerator("seeded", seed=3), units=UNITS)
    more = np.append(UNITS, [7, 7, 7])
    other = assign_subsets(len(more), 8, NoiseGenerator("seeded", seed=3), units=more)
    assert (other[: len(UNITS)] == one).all()
    joined = np.append(UNITS, [400] * 5)  # the last number: the draws of all others come first
    other = assign_subsets(len(joined), 8, NoiseGenerator("seeded", seed=3), units=joined)
    assert (other[: len(UNITS)] == one).all()
    with pytest.raises(ValueError, match="one entry for each of 3 rows"):
        assign_subsets(3, 8, make_noise_generator("fast"), units=UNITS)


def test_a_unit_moves_the_sum_by_twice_the_bound_and_never_by_more():
    """The subset of one unit of four rows turns its mean gradient round when the unit is replaced by one of two."""
    plan = SubsetPlan(5, 10, 1.0, gradient_bound=0.25)
    x, codes, _ = _data(8)
    x[:], subsets = 1.0, np.array([0, 1, 2, 2, 2, 2, 3, 4])
    totals = []
    for rows in (np.arange(8), np.array([0, 1, 2, 3, 6, 7])):
        changed = x[rows].copy()
        changed[subsets[rows] == 2] = float(len(rows) == 8)
        stack = _stack(data=(changed, codes[rows], subsets[rows]))
        totals.append(_flat(_sum(stack, np.arange(5), plan, decoder=_BiasDecoder())))
    change = float((totals[0] - totals[1]).norm())
    assert 0.999 * 2 * plan.clip_norm <= change <= 2 * plan.gradient_bound


def test_units_count_one_each_in_the_batches_of_a_subset():
    """A row is drawn with probability one over the rows of its unit: the unit of nine rows as often as that of one."""
    units = np.array([5] * 9 + [2] + [7] * 2 + [1] * 3)
    subsets = np.array([1] * 10 + [0] * 2 + [3] * 3)
    x = np.arange(15, dtype=np.float32)[:, None]
    rows = SubsetRows(x, np.zeros(15, dtype=int), 0, subsets, 4, units=units)
    uniforms = (np.arange(2000) + 0.5)[None] / 2000
    for subset, expected in ((1, [1 / 18] * 9 + [1 / 2]), (0, [1 / 2] * 2), (3, [1 / 3] * 3)):
        found, _ = rows.batch(np.array([subset]), uniforms, "cpu")
        numbers = found[0, :, 0].numpy().astype(int)
        assert set(subsets[numbers]) == {subset}
        share = np.bincount(numbers, minlength=15)[subsets == subset] / 2000
        np.testing.assert_allclose(share, expected, atol=2e-3)
    empty, _ = rows.batch(np.array([2]), uniforms, "cpu")
    assert not empty.any()
    part = rows.part(1, 3)
    assert torch.equal(part.batch(np.array([0]), uniforms, "cpu")[0], rows.batch(np.array([1]), uniforms, "cpu")[0])


def test_a_unit_that_joins_another_subset_changes_no_batch_of_this_one():
    rng = np.random.default_rng(0)
    units = np.repeat(np.arange(40), rng.integers(1, 7, 40))
    subsets = rng.integers(0, 3, 40)[units]
    x, uniforms = rng.uniform(size=(len(units), 2)).astype(np.float32), rng.uniform(size=(1, 500))
    more = np.append(units, [99] * 7), np.append(subsets, [0] * 7), np.vstack([x, np.ones((7, 2), dtype=np.float32)])
    one = SubsetRows(x, np.zeros(len(x), dtype=int), 0, subsets, 3, units=units)
    other = SubsetRows(more[2], np.zeros(len(x) + 7, dtype=int), 0, more[1], 3, units=more[0])
    for subset in (1, 2):
        assert torch.equal(*(rows.batch(np.array([subset]), uniforms, "cpu")[0] for rows in (one, other)))


def test_equal_weights_of_units_of_one_row_are_those_of_rows():
    x, codes, subsets = _data()
    rows = _pretrained()[1]
    by_unit = SubsetRows(x, codes, 2, subsets, 5, units=np.arange(len(x)))
    uniforms = np.random.default_rng(1).uniform(size=(5, 40))
    for one, other in zip(*(r.batch(np.arange(5), uniforms, "cpu") for r in (rows, by_unit))):
        assert torch.equal(one, other)
