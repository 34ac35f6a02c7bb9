"""Balanced rows: counts nearer to the expected ones than those of independent draws, and the same on average."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from skdpgen.generators import balanced_rows
from skdpgen.generators.balanced_rows import _pairs, balanced_classes, balanced_levels, draw_levels
from skdpgen.generators.product_mixture import block_of_level
from skdpgen.tabular import sample_levels
from skdpgen.tabular._binning import stratified_uniforms

N_LEVELS = np.array([6, 3, 10, 2])
STARTS = np.concatenate([[0], np.cumsum(N_LEVELS)])
COLUMNS = [slice(*ends) for ends in itertools.pairwise(STARTS)]


def _mixture(rng, n_points=30, rare=()):
    """Distributions of the levels at each point; the last level of the third column has probability 0."""
    p = np.concatenate([rng.dirichlet(np.full(m, 0.3), n_points) for m in N_LEVELS], axis=1)
    p[:, list(rare)] *= 0.01
    p[:, STARTS[3] - 1] = 0.0
    block = block_of_level(N_LEVELS)
    return p / np.add.reduceat(p, STARTS[:-1], axis=1)[:, block]


def _independent(p, points, rng):
    return np.stack([draw_levels(p[:, of], points, stratified_uniforms(points, rng)) for of in COLUMNS], axis=1)


def _tables(codes):
    """Two-way counts, and one-way counts on the diagonal."""
    hot = np.zeros((len(codes), STARTS[-1]))
    hot[np.arange(len(codes))[:, None], codes + STARTS[:-1]] = 1
    return hot.T @ hot


def _expected(p, points):
    tables = p[points].T @ p[points]
    block = block_of_level(N_LEVELS)
    tables[block[:, None] == block] = 0.0
    np.fill_diagonal(tables, p[points].sum(axis=0))
    return tables


def test_tables_of_balanced_levels_are_near_the_expected_ones(rng):
    p, points = _mixture(rng), np.sort(rng.integers(0, 30, 4000))
    codes, expected = _independent(p, points, rng), _expected(p, points)
    found = balanced_levels(codes.copy(), points, p, N_LEVELS, rng)
    before, after = (np.square(_tables(part) - expected).sum() for part in (codes, found))
    assert after < 0.1 * before
    assert 0 < (found != codes).mean() < 0.4


def test_balanced_levels_have_their_expected_counts_on_average():
    p, points = _mixture(np.random.default_rng(1), rare=(0, 9, 12)), np.repeat(np.arange(30), 20)
    expected, rng, n_draws = _expected(p, points), np.random.default_rng(2), 200
    total, of_point, square = np.zeros_like(expected), np.zeros_like(p), np.zeros_like(expected)
    for _ in range(n_draws):
        codes = balanced_levels(_independent(p, points, rng), points, p, N_LEVELS, rng)
        total += _tables(codes) / n_draws
        square += _tables(codes) ** 2 / n_draws
        np.add.at(of_point, (points[:, None], codes + STARTS[:-1]), 1 / n_draws / 20)
    assert (total[expected == 0] == 0).all()
    assert ((expected > 0) & (expected < 1)).sum() > 20
    for low, high in ((1e-4, 1), (1, 4), (4, 10), (10, 30), (30, 600)):
        inside = (expected >= low) & (expected < high)
        assert total[inside].sum() == pytest.approx(expected[inside].sum(), rel=0.1 if high == 1 else 0.03)
        error = np.sqrt(np.maximum(square - total**2, 1e-2) / n_draws)
        assert (np.abs(total - expected) / error)[inside].mean() < 1.2  # .8 of draws without bias
    # so has each point: likely levels do not become more likely
    for low, high in ((1e-4, 0.05), (0.05, 0.3), (0.3, 0.7), (0.7, 1)):
        inside = (p >= low) & (p < high)
        assert of_point[inside].sum() == pytest.approx(p[inside].sum(), rel=0.02)


def test_rare_levels_lose_no_rows():
    """One column of many levels of very different frequency: only frequent ones may be drawn again."""
    rng, n_draws = np.random.default_rng(5), 1000
    p = 1 / np.arange(1, 101.0) ** 1.3 * rng.gamma(2.0, 1.0, (60, 100))
    p /= p.sum(axis=1, keepdims=True)
    points = np.repeat(np.arange(60), 10)
    expected, total = p.sum(axis=0) * 10, np.zeros(100)
    for _ in range(n_draws):
        codes = balanced_levels(
            draw_levels(p, points, stratified_uniforms(points, rng))[:, None], points, p, np.array([100]), rng
        )
        total += np.bincount(codes[:, 0], minlength=100) / n_draws
    for low, high in ((0, 1), (1, 4), (4, 1000)):
        inside = (expected >= low) & (expected < high)
        assert total[inside].sum() == pytest.approx(expected[inside].sum(), rel=0.012)
    before, after, often = 0.0, 0.0, expected >= 4
    for _ in range(30):
        codes = draw_levels(p, points, stratified_uniforms(points, rng))[:, None]
        found = balanced_levels(codes, points, p, np.array([100]), rng)
        before += np.square(np.bincount(codes[:, 0], minlength=100) - expected)[often].sum()
        after += np.square(np.bincount(found[:, 0], minlength=100) - expected)[often].sum()
    assert after < 0.4 * before


def test_joint_levels_of_a_point_keep_their_probabilities():
    p, points = _mixture(np.random.default_rng(1)), np.repeat(np.arange(30), 40)
    rng, n_draws = np.random.default_rng(6), 120
    joint = np.zeros((30, 6, 3))
    for _ in range(n_draws):
        codes = balanced_levels(_independent(p, points, rng), points, p, N_LEVELS, rng)
        np.add.at(joint, (points, codes[:, 0], codes[:, 1]), 1 / n_draws / 40)
    expected = p[:, COLUMNS[0]][:, :, None] * p[:, COLUMNS[1]][:, None, :]
    for low, high in ((1e-4, 0.02), (0.02, 0.1), (0.1, 0.5), (0.5, 1)):
        inside = (expected >= low) & (expected < high)
        assert joint[inside].sum() == pytest.approx(expected[inside].sum(), rel=0.03 if high == 0.02 else 0.01)


def test_weights_of_points_need_no_sum_of_one(rng):
    p, points = _mixture(rng), np.sort(rng.integers(0, 30, 1000))
    codes = _independent(p, points, rng)
    found = [balanced_levels(codes.copy(), points, f * p, N_LEVELS, np.random.default_rng(0)) for f in (1.0, 0.25)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("n_points", [1, 600])
def test_one_point_and_a_point_for_each_row(n_points, rng):
    p, points = np.tile(_mixture(rng, 1), (n_points, 1)), np.arange(600) % n_points
    found = balanced_levels(_independent(p, np.sort(points), rng), np.sort(points), p, N_LEVELS, rng)
    for i, own in enumerate(COLUMNS):
        counts = np.bincount(found[:, i], minlength=N_LEVELS[i])
        assert np.abs(counts - 600 * p[0, own]).max() < 4.0


def test_levels_of_probability_0_are_never_drawn(rng):
    p, points = _mixture(rng), np.sort(rng.integers(0, 30, 600))
    codes = balanced_levels(_independent(p, points, rng), points, p, N_LEVELS, rng)
    cells = codes + STARTS[:-1]
    assert (p[points[:, None], cells] > 0).all()


@pytest.mark.parametrize("limit", ["_FEWEST_ROWS", "_MOST_ENTRIES", "_MOST_PRODUCTS", "_MOST_COUNTED"])
def test_levels_of_few_rows_and_of_tables_that_would_take_long_stay_as_they_are(limit, rng, monkeypatch):
    p, points = _mixture(rng), np.sort(rng.integers(0, 30, 600))
    codes = _independent(p, points, rng)
    monkeypatch.setattr(balanced_rows, "_DRAWN_AGAIN", 0)
    assert (balanced_levels(codes.copy(), points, p, N_LEVELS, rng) != codes).any()
    monkeypatch.setattr(balanced_rows, limit, 601 if limit == "_FEWEST_ROWS" else 100)
    np.testing.assert_array_equal(balanced_levels(codes.copy(), points, p, N_LEVELS, rng), codes)


def test_in_wide_tables_a_part_of_the_rows_exchanges_levels(rng, monkeypatch):
    p, points = _mixture(rng), np.sort(rng.integers(0, 30, 1000))
    codes = _independent(p, points, rng)
    monkeypatch.setattr(balanced_rows, "_MOST_EXCHANGED", 50 * len(N_LEVELS) ** 2)
    monkeypatch.setattr(balanced_rows, "_DRAWN_AGAIN", 0)
    found = balanced_levels(codes.copy(), points, p, N_LEVELS, rng)
    assert 0 < (found != codes).sum(axis=0).max() <= 50 * balanced_rows._ROUNDS_OF_LEVELS


def _chances(rng, n=3000, n_classes=3):
    """Cells of rows, and probabilities of classes that depend on them."""
    cells = np.column_stack([np.zeros(n, dtype=int), 1 + rng.integers(0, 8, n), 9 + rng.integers(0, 5, n)])
    logits = rng.normal(size=(14, n_classes))[cells].sum(axis=1)
    chances = np.exp(logits)
    return cells, chances / chances.sum(axis=1, keepdims=True)


def test_counts_of_balanced_classes_are_near_the_expected_ones(rng):
    cells, chances = _chances(rng)

    def excess(drawn):
        left = np.eye(3)[drawn] - chances
        return sum(
            np.square(left[cells[:, j] == c].sum(axis=0)).sum() for j in range(3) for c in np.unique(cells[:, j])
        )

    before = np.mean([excess(sample_levels(chances, rng)) for _ in range(5)])
    assert excess(balanced_classes(cells, chances, rng)) < 0.2 * before


@pytest.mark.parametrize(
    ("n", "n_classes", "rare", "tolerance"), [(600, 3, 1.0, 0.02), (600, 2, 0.06, 0.02), (1200, 5, 1.0, 0.012)]
)
def test_each_row_has_its_probabilities_of_classes_on_average(n, n_classes, rare, tolerance):
    cells, chances = _chances(np.random.default_rng(3), n, n_classes)
    chances[:, 0] *= rare
    chances /= chances.sum(axis=1, keepdims=True)
    rng, n_draws = np.random.default_rng(4), 300
    share = sum(np.eye(n_classes)[balanced_classes(cells, chances, rng)] for _ in range(n_draws)) / n_draws
    gap = (share - chances) / np.sqrt(np.maximum(chances * (1 - chances), 1e-3) / n_draws)
    assert np.square(gap).mean() < 1.3
    for low, high in ((0, 0.05), (0.05, 0.3), (0.3, 0.7), (0.7, 1)):
        inside = (chances >= low) & (chances < high)
        if inside.sum() > 20:
            wanted = max(tolerance, 4 / np.sqrt(n_draws * chances[inside].sum()))
            assert share[inside].mean() == pytest.approx(chances[inside].mean(), rel=wanted)


@pytest.mark.parametrize(("n", "n_classes"), [(0, 2), (1, 2), (50, 3), (65, 2), (600, 1)])
def test_classes_of_few_rows_and_of_one_class_are_drawn(n, n_classes, rng):
    cells, chances = _chances(rng, n, n_classes)
    drawn = balanced_classes(cells, chances, rng)
    assert drawn.shape == (n,)
    assert set(drawn) <= set(range(n_classes))


def test_classes_of_probability_0_are_never_drawn(rng):
    cells, chances = _chances(rng, 3000)
    chances[:1000, 0] = 0.0
    chances[1000:, 2] = 0.0
    drawn = balanced_classes(cells, chances, rng)
    assert (chances[np.arange(3000), drawn] > 0).all()


@pytest.mark.parametrize("most", [10, 100, 10**6])
def test_pairs_are_of_one_group_and_share_no_row(rng, most):
    group = rng.integers(5, size=2000)
    pairs = _pairs(group, rng, most)
    assert len(np.unique(pairs)) == pairs.size
    assert (group[pairs[:, 0]] == group[pairs[:, 1]]).all()
    assert len(pairs) == most or most > 990 <= len(pairs)
    # any row may be in a pair, also where few are wanted
    taken = np.bincount(np.concatenate([_pairs(group, rng, most).ravel() for _ in range(300)]), minlength=2000)
    assert stats.chisquare(np.bincount(np.arange(2000) % 10, taken)).pvalue > 1e-5
