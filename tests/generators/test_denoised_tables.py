"""Denoised tables: the thinning of their noise, and the factors."""

import numpy as np
import pytest

from skdpgen.generators.product_mixture import ThinnedTables
from skdpgen.mechanisms._contrasts import ClassContrasts, Contrasts

ALONE = ClassContrasts()
CONTRASTS = Contrasts([4, 3, 5], [4, 0, 0])
N = len(CONTRASTS.norms)
ACROSS = CONTRASTS.block[:, None] != CONTRASTS.block


def _symmetric(rng, n_classes=1):
    drawn = np.triu(rng.standard_normal((n_classes, N, N)), 1)
    return np.where(ACROSS, drawn + np.swapaxes(drawn, 1, 2), 0.0)


def test_what_is_compared_has_noise_independent_of_what_is_fitted(rng):
    sd = rng.uniform(1.0, 5.0, (N, N))
    sd = (sd + sd.T)[None]
    fitted, compared = [], []
    for _ in range(3_000):
        thinned = ThinnedTables(_symmetric(rng) * sd, sd, CONTRASTS, ALONE, 2, rng)
        fitted.append(thinned.to_fit(1))
        compared.append(thinned.to_compare(1))
    fitted, compared = np.array(fitted)[:, 0][:, ACROSS], np.array(compared)[:, 0][:, ACROSS]
    both = (fitted * compared).mean(axis=0) / (fitted.std(axis=0) * compared.std(axis=0))
    assert np.abs(both).max() < 5 / len(fitted) ** 0.5
    np.testing.assert_allclose(fitted.std(axis=0), 1.25**0.5 * sd[0][ACROSS], rtol=0.08)
    np.testing.assert_allclose(compared.std(axis=0), 5**0.5 * sd[0][ACROSS], rtol=0.08)


@pytest.mark.parametrize("n_restarts", [2, 5])
def test_the_mean_of_all_restarts_has_the_noise_of_the_release_alone(rng, n_restarts):
    pairs = _symmetric(rng, 2)
    thinned = ThinnedTables(pairs, np.full((1, N, N), 3.0), CONTRASTS, ALONE, n_restarts, rng)
    for tables in (thinned.to_fit, thinned.to_compare):
        parts = [tables(r) for r in range(n_restarts)]
        np.testing.assert_allclose(np.mean(parts, axis=0), pairs, atol=1e-12)
        assert all(not part[:, ~ACROSS].any() for part in parts)
        np.testing.assert_array_equal(parts[0], parts[0].transpose(0, 2, 1))


def test_without_noise_the_tables_are_those_of_the_release(rng):
    pairs = _symmetric(rng)
    thinned = ThinnedTables(pairs, np.zeros((1, N, N)), CONTRASTS, ALONE, 3, rng)
    np.testing.assert_array_equal(thinned.to_fit(2), pairs)
    np.testing.assert_array_equal(thinned.to_compare(0), pairs)


def test_columns_that_depend_on_each_other_stay_and_noise_is_drawn_to_independence(rng):
    n_classes, counts = 2, np.array([1_000.0, 400.0])
    marginals = np.tile(np.repeat(1 / CONTRASTS.n_levels, CONTRASTS.n_levels), (n_classes, 1))  # all contrasts are 0
    real = np.where(np.outer(CONTRASTS.block == 0, CONTRASTS.block == 1), 200.0, 0.0)
    real = np.tile(real + real.T, (n_classes, 1, 1))
    sd = np.full((1, N, N), 10.0)
    thinned = ThinnedTables(real + 10.0 * _symmetric(rng, n_classes), sd, CONTRASTS, ClassContrasts(n_classes), 5, rng)
    # a model that describes all noise of its tables
    expected = [thinned.to_fit(r) for r in range(5)]
    found = thinned.denoised(expected, counts, marginals, np.where(ACROSS, 1 / sd[0] ** 2, 0.0), np.arange(n_classes))
    mean = np.mean(expected, axis=0)
    clear, noise = np.broadcast_to(real > 0, found.shape), np.broadcast_to((real == 0) & ACROSS, found.shape)
    assert np.linalg.norm((found - real)[clear]) < 1.1 * np.linalg.norm((mean - real)[clear])
    assert np.linalg.norm(found[noise]) < 0.6 * np.linalg.norm(mean[noise])
    np.testing.assert_allclose(found, found.transpose(0, 2, 1))


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_what_is_compared_has_independent_noise_also_between_classes(rng, ratio):
    classes, sd = ClassContrasts(2, ratio), np.full((1, N, N), 2.0)
    fitted, compared = [], []
    for _ in range(3_000):
        thinned = ThinnedTables(2.0 * classes.correlated(_symmetric(rng, 2)), sd, CONTRASTS, classes, 2, rng)
        fitted.append(thinned.to_fit(1)[:, ACROSS])
        compared.append(thinned.to_compare(1)[:, ACROSS])
    fitted, compared = np.array(fitted), np.array(compared)
    scale = fitted.std(axis=0)[:, None] * compared.std(axis=0)
    assert np.abs(np.einsum("nka,nla->kla", fitted, compared) / 3_000 / scale).max() < 5 / 3_000**0.5
    between = (fitted[:, 0] * fitted[:, 1]).mean() / (1.25 * 4.0)
    assert between == pytest.approx((1 / ratio - 1) / (1 / ratio + 1), abs=0.02)


def test_a_hidden_class_has_no_part_in_the_factors(rng):
    counts = np.array([1_000.0, 0.0])
    marginals = np.tile(np.repeat(1 / CONTRASTS.n_levels, CONTRASTS.n_levels), (2, 1))
    pairs, sd = 50.0 * _symmetric(rng, 2), np.full((1, N, N), 1.0)
    found = []
    for hidden in (0.0, 1e6):
        pairs[1] = hidden * ACROSS
        thinned = ThinnedTables(pairs, sd, CONTRASTS, ClassContrasts(2), 2, np.random.default_rng(0))
        expected = [thinned.to_fit(r) for r in range(2)]
        found.append(thinned.denoised(expected, counts, marginals, np.where(ACROSS, 1.0, 0.0), np.array([0])))
    np.testing.assert_array_equal(found[0][0], found[1][0])


def test_what_the_restarts_miss_is_added_where_noise_does_not_explain_it(rng):
    counts, marginals = np.array([1_000.0]), np.repeat(1 / CONTRASTS.n_levels, CONTRASTS.n_levels)[None]
    real, error = 50.0 * _symmetric(rng), []
    missing = [0.8 * real] * 2  # a model that stops early
    for sd in (0.1, 100.0):
        thinned = ThinnedTables(real + sd * _symmetric(rng), np.full((1, N, N), sd), CONTRASTS, ALONE, 2, rng)
        weight = np.where(ACROSS, 1 / sd**2, 0.0)
        found = thinned.denoised(missing, counts, marginals, weight, np.array([0]))
        error.append(np.linalg.norm(found - real) / np.linalg.norm(real))
    assert error[0] < 0.01
    assert 0.1 < error[1] <= 1.0  # as far as noise can explain the rest, nothing is added


def test_pairs_that_are_known_to_be_independent_do_not_draw_the_others(rng):
    contrasts = Contrasts([3, 3, 8, 8, 8], [0] * 5)
    block, n = contrasts.block, len(contrasts.norms)
    across = block[:, None] != block
    kept = np.add.outer(block, block) == 1  # of the first two columns; the other pairs are exact
    counts, marginals = np.array([1_000.0]), np.repeat(1 / contrasts.n_levels, contrasts.n_levels)[None]
    real = 20.0 * (kept & across)[None]
    thinned = ThinnedTables(real, np.full((1, n, n), 10.0), contrasts, ALONE, 5, rng)
    expected = [thinned.to_fit(r) for r in range(5)]
    found = thinned.denoised(expected, counts, marginals, np.where(across, 0.01, 0.0), np.array([0]))
    assert found[:, kept].mean() > 0.6 * 20.0
