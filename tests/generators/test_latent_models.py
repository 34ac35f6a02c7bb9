"""Post-processing of released moments and tables: without noise it finds what is there, with noise it shrinks."""

from __future__ import annotations

import numpy as np
import pytest

from skdpgen.data.arrays import lowpass_basis
from skdpgen.data.table_plan import TableSize, plan_bins
from skdpgen.generators.gaussians import (
    LatentSpace,
    LinearGenerator,
    class_latents,
    image_contrast,
    match_clipped_normal,
)
from skdpgen.generators.product_mixture import (
    _TableLoss,
    block_of_level,
    block_softmax,
    consistent_marginals,
    fit_tables,
)
from skdpgen.mechanisms import (
    ClassContrasts,
    Moments,
    Residuals,
    exact_value,
    one_hot_moments,
    residual_plan,
    unpack_one_hot_moments,
)
from skdpgen.mechanisms._contrasts import Contrasts


def _class_moments(rng, n_classes=3, d=6, n=4000):
    rows = rng.normal(size=(n, d)) * np.linspace(1.0, 0.2, d)
    y = rng.integers(0, n_classes, n)
    rows[:, 0] += y
    parts = [rows[y == k] for k in range(n_classes)]
    counts = np.array([len(p) for p in parts], dtype=float)
    return rows, y, Moments(counts, np.array([p.sum(0) for p in parts]), np.array([p.T @ p for p in parts]))


def test_without_noise_class_latents_are_the_classes_own_means_and_covariances(rng):
    rows, y, moments = _class_moments(rng)
    counts, means, mean, vectors, mixture, *_ = class_latents(moments, np.zeros((3, 6)), 0.0, 0.0, 6)
    np.testing.assert_allclose(counts, np.bincount(y))
    for k in range(3):
        np.testing.assert_allclose(means[k], rows[y == k].mean(0))
        np.testing.assert_allclose(
            vectors @ mixture.covariances[k] @ vectors.T, np.cov(rows[y == k].T, ddof=0), atol=1e-6
        )
    np.testing.assert_allclose(mean, rows.mean(0))


def test_class_covariances_that_are_noise_become_the_pooled_one(rng):
    _, _, moments = _class_moments(rng)
    noise_sd = 50.0 * moments.count.mean()
    noisy = moments._replace(second=moments.second + noise_sd * np.diag(rng.normal(size=6)))
    mixture = class_latents(noisy, np.zeros((3, 6)), noise_sd, 0.0, 6).mixture
    spread = np.ptp(mixture.covariances, axis=0).max()
    assert spread < 0.2 * np.abs(mixture.covariances).max()


def test_class_means_that_are_noise_become_the_common_one(rng):
    counts = np.full(8, 100.0)
    sums = rng.normal(size=(8, 5)) * 30
    moments = Moments(counts, sums, np.broadcast_to(100.0 * np.eye(5), (8, 5, 5)).copy())
    shrunk = class_latents(moments, np.zeros((8, 5)), 1.0, 30.0, 5)[1]
    assert np.ptp(shrunk, axis=0).mean() < 0.7 * np.ptp(sums / 100, axis=0).mean()


@pytest.mark.parametrize(("mean", "variance"), [(0.5, 0.01), (0.1, 0.05), (0.9, 0.03), (0.02, 0.01)])
def test_a_matched_normal_has_the_moments_asked_for_after_clipping(mean, variance, rng):
    location, deviation = match_clipped_normal(np.array([mean]), np.array([variance]))
    drawn = np.clip(location + deviation * rng.normal(size=200_000), 0, 1)
    assert drawn.mean() == pytest.approx(mean, abs=3e-3)
    assert drawn.var() == pytest.approx(variance, rel=0.03)


def test_a_linear_generator_keeps_to_its_box_and_its_means(rng):
    _, _, moments = _class_moments(rng)
    _, means, mean, vectors, mixture, *_ = class_latents(moments, np.zeros((3, 6)), 0.0, 0.0, 6)
    low, high = np.full(6, -4.0), np.full(6, 5.0)
    generator = LinearGenerator(LatentSpace(mean, vectors), mixture, means, low, high)
    components = np.repeat([0, 1, 2], 4000)
    rows = generator.sample(components, rng)
    assert low.max() <= rows.min()
    assert rows.max() <= high.min()
    for k in range(3):
        np.testing.assert_allclose(rows[components == k].mean(0), means[k], atol=0.1)
        np.testing.assert_allclose(
            rows[components == k].var(0), np.diag(vectors @ mixture.covariances[k] @ vectors.T), rtol=0.15
        )
    again = LinearGenerator.from_state(generator.to_state())
    seeds = (np.random.default_rng(3) for _ in range(2))
    np.testing.assert_array_equal(*(g.sample(components, s) for g, s in zip((generator, again), seeds)))


def test_pen_strokes_get_contrast_and_photographs_none():
    assert image_contrast(0.09) > 2.5
    assert image_contrast(0.4) is image_contrast(0.9) is None
    assert image_contrast(-0.1) == 3.0


@pytest.mark.parametrize("shape", [(8, 8), (6, 9), (5, 5, 3)])
def test_the_lowpass_basis_is_orthonormal_and_keeps_flat_images(shape):
    basis = lowpass_basis(shape, 4)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    flat = np.ones(np.prod(shape))
    np.testing.assert_allclose(basis @ (basis.T @ flat), flat, atol=1e-12)


def _table(rng, n=6000):
    a = rng.integers(0, 3, n)
    b = np.where(rng.random(n) < 0.8, a, rng.integers(0, 3, n))
    c = rng.integers(0, 4, n)
    y = (rng.random(n) < np.where(a == 0, 0.9, 0.2)).astype(int)
    return np.column_stack([a, b, c]), y, np.array([3, 3, 4])


def _released(codes, y, levels, pairs=True):
    plan = residual_plan(levels, n_classes=2, pairs=pairs)
    return unpack_one_hot_moments(exact_value(one_hot_moments(codes, plan, y)), plan), plan.contrasts


def _zeros_like(moments):
    return Residuals(*(None if a is None else np.zeros_like(a) for a in moments))


def _noisy(released, sd, rng):
    """With noise of one standard deviation on all parts, and that."""
    drawn = [None if a is None else sd * rng.normal(size=a.shape) for a in released]
    if drawn[2] is not None:
        drawn[2] = np.triu(drawn[2], 1) + np.swapaxes(np.triu(drawn[2], 1), 1, 2)
        drawn[2][released.pairs == 0] = 0.0
    noisy = Residuals(*(None if a is None else a + b for a, b in zip(released, drawn)))
    return noisy, Residuals(*(None if a is None else np.full(a.shape, sd) for a in released))


def test_support_points_fitted_to_exact_tables_sample_tables_near_them(rng):
    codes, y, levels = _table(rng)
    released, contrasts = _released(codes, y, levels)
    model = fit_tables(released, _zeros_like(released), contrasts, rng)
    drawn = model.sample(y, rng)
    again, released = (contrasts.tables(part) for part in (_released(drawn, y, levels)[0], released))
    assert np.abs(again.pairs - released.pairs).max() < 0.02 * len(y)
    assert np.abs(again.one_way - released.one_way).max() < 0.02 * len(y)
    assert model.score_samples(codes, y).mean() > model.score_samples(rng.permuted(codes, axis=0), y).mean()


def test_without_pairs_support_points_are_the_marginals_of_each_class(rng):
    codes, y, levels = _table(rng)
    released, contrasts = _released(codes, y, levels, pairs=False)
    assert released.pairs is None
    model = fit_tables(released, _zeros_like(released), contrasts, rng)
    again = contrasts.tables(_released(model.sample(y, rng), y, levels, pairs=False)[0])
    released = contrasts.tables(released)
    assert np.abs(again.one_way - released.one_way).max() < 0.01 * len(y)


def test_marginals_are_consistent_whatever_the_noise(rng):
    codes, y, levels = _table(rng)
    released, contrasts = _released(codes, y, levels)
    counts, marginals, absent = consistent_marginals(*_noisy(released, 500.0, rng), contrasts)
    assert not absent.any()
    assert counts.min() >= 0
    assert marginals.min() >= 0
    np.testing.assert_allclose(np.add.reduceat(marginals, [0, 3, 6], axis=1), 1.0)


def test_few_rows_get_few_bins_and_no_pairs():
    assert plan_bins(TableSize(45_000, 14, 2, 6, noise=3.9))[0] == 16
    assert plan_bins(TableSize(45_000, 14, 2, 6, noise=3.9))[1] < 0.4
    assert plan_bins(TableSize(500, 30, 2, 6, noise=3.9)) == (4, np.inf)
    assert plan_bins(TableSize(40_000, 400, 2, 6, noise=3.9)) == (4, np.inf)


def test_fits_to_denoised_tables_are_nearer_to_the_rows_than_fits_to_noisy_ones(rng):
    codes, y, levels = _table(rng)
    codes[:, 2] = rng.integers(0, levels[2], len(codes))  # independent of all others
    released, contrasts = _released(codes, y, levels)
    noisy, noise_sd = _noisy(released, 60.0, rng)
    exact, error = contrasts.tables(released).pairs, []
    for n_restarts in (5, 1):  # one takes the tables as they are
        model = fit_tables(noisy, noise_sd, contrasts, np.random.default_rng(0), n_restarts=n_restarts)
        rows = [model.class_counts[k] * p.T @ p / len(p) for k, p in enumerate(map(model.mixture, range(2)))]
        error.append(np.abs(np.where(exact > 0, rows - exact, 0.0)).sum())
    assert error[0] < 0.8 * error[1]


def test_a_level_that_need_not_be_there_is_never_drawn_where_the_noise_hides_it(rng):
    codes, y, levels = _table(rng)
    levels = levels + 1  # one more level in each block, of which the data have none but for the second
    codes[:900, 1] = 3
    optional = np.isin(np.arange(levels.sum()), np.cumsum(levels) - 1)
    for pairs in (True, False):
        released, contrasts = _released(codes, y, levels, pairs)
        noisy, noise_sd = _noisy(released, 20.0, rng)
        empty = optional & (contrasts.tables(released).one_way < 1e-6)
        lost = noisy._replace(one_way=noisy.one_way + np.where(empty, 10.0, 0.0) @ contrasts.matrix)
        model = fit_tables(lost, noise_sd, contrasts, rng, optional=optional)
        assert model.present.tolist() == (~optional | (np.arange(levels.sum()) == 7)).tolist()
        assert (model.decode(rng.normal(size=(50, len(model.components))))[:, ~model.present] == 0).all()
        drawn = model.sample(y, rng)
        assert (drawn[:, 1] == 3).mean() == pytest.approx(900 / len(y), abs=0.03)
        assert (drawn[:, 0] < 3).all()
        assert (drawn[:, 2] < 4).all()
        assert np.isfinite(model.score_samples(codes, y)).all()


def test_without_noise_a_level_of_one_row_is_kept_and_one_of_none_is_not(rng):
    codes, y, levels = _table(rng)
    codes[0, 0] = 3
    released, contrasts = _released(codes, y, levels + 1)
    absent = consistent_marginals(released, _zeros_like(released), contrasts, np.ones((levels + 1).sum()))[2]
    assert absent.tolist() == [False] * 7 + [True] + [False] * 4 + [True]


def _absent_bins(rows, sd, optional, rng):
    """Absent levels of one block of 16 bins that hold `rows`, in 40 draws of the noise."""
    contrasts = Contrasts([16], [16])
    noise_sd = Residuals(np.array([sd]), np.full((1, 15), sd), None)
    exact = Residuals(np.array([rows.sum()]), (rows @ contrasts.matrix)[None], None)
    drawn = [_noisy_of(exact, noise_sd, rng) for _ in range(40)]
    return np.array([consistent_marginals(one, noise_sd, contrasts, optional)[2] for one in drawn])


def _noisy_of(exact, noise_sd, rng):
    parts = zip(exact[:2], noise_sd[:2])
    return Residuals(*(part + sd * rng.normal(size=part.shape) for part, sd in parts), None)


def test_bins_beside_a_spike_are_judged_with_their_neighbours(rng):
    rows = np.full(16, 40.0)  # two standard deviations of the noise each: judged one by one, nearly all are absent
    rows[6], rows[12:] = 600.0, 0.0
    optional = np.arange(16) != 6
    absent = _absent_bins(rows, 20.0, optional, rng)
    assert absent[:, :12].mean() < 0.15
    assert absent[:, 13:].mean() > 0.9  # the first empty bin beside the rows may pass


def test_bins_of_which_all_may_be_noise_are_drawn_where_the_rows_are(rng):
    rows = np.zeros(16)
    rows[:8] = 50.0
    absent = _absent_bins(rows, 20.0, np.ones(16, dtype=bool), rng)
    assert absent[:, :8].mean() < 0.05
    assert absent[:, 10:].mean() > 0.8
    assert _absent_bins(np.full(16, 50.0), 20.0, np.ones(16, dtype=bool), rng).mean() < 0.05


def test_a_block_keeps_one_level_at_least(rng):
    contrasts = Contrasts([2, 2], [0, 0])
    released = Residuals(np.array([5.0]), np.array([[1.0, 4.0, 3.0, 2.0]]) @ contrasts.matrix, None)
    noise_sd = Residuals(np.array([50.0]), np.full((1, 2), 50.0), None)
    _, marginals, absent = consistent_marginals(released, noise_sd, contrasts, np.ones(4, dtype=bool))
    assert absent.tolist() == [True, False, False, True]
    np.testing.assert_allclose(marginals, [[0, 1, 1, 0]])


def test_many_levels_take_fewer_steps(rng):
    codes, y, levels = _table(rng)
    released, contrasts = _released(codes, y, levels)
    steps = []
    fit_tables(released, _zeros_like(released), contrasts, rng, progress=lambda it: steps.append(len(it)) or it)
    wide = Residuals(np.array([9.0]), np.zeros((1, 898)), np.zeros((1, 898, 898)))

    def stop(it):
        steps.append(len(it))
        return it[:0]

    fit_tables(wide, _zeros_like(wide), Contrasts([450, 450], [0, 0]), rng, progress=stop)
    assert steps == [2000, 408]  # fewer fits first, then fewer steps


def _loss_of_tables(rng, counts, n_levels, ratio=1.0):
    """A loss of random tables, and its parameters in double precision."""
    contrasts, n_classes = Contrasts(n_levels, [0] * (len(n_levels) - 1) + n_levels[-1:]), len(counts)
    size, width = len(contrasts.norms), sum(n_levels)
    pairs = rng.normal(0, 20, (n_classes, size, size))
    released = Residuals(
        np.asarray(counts, dtype=float), rng.normal(0, 20, (n_classes, size)), pairs + pairs.transpose(0, 2, 1)
    )
    own = rng.uniform(3, 5, (1, size))
    noise_sd = Residuals(np.array([5.0]), own, own[:, :, None] * own[:, None, :] / 4)
    parameters = rng.normal(size=(n_classes, 8, 3)), rng.normal(size=(3, width)), rng.normal(size=width)
    classes = ClassContrasts(n_classes, ratio)
    return _TableLoss(released, noise_sd, contrasts, classes, np.asarray(counts, dtype=float)), parameters, contrasts


def _value(loss, contrasts, points, weight, bias):
    """Half the weighted squared error, from its definition, in double precision."""
    total, errors = 0.0, []
    for k in loss.classes:
        each = max(loss.counts[k], 1.0) / points.shape[1]
        p = block_softmax(points[k] @ weight + bias, loss.offsets, loss.block)
        centred = p @ contrasts.matrix
        one_way, pairs = each * centred.sum(axis=0), each * centred.T @ centred
        total += 0.5 * (loss.one_way_weight * np.square(one_way - loss.one_way[k])).sum()
        errors.append(pairs - loss.pairs[k])
    noise = loss.noise_of_classes.correlated(np.eye(len(errors)))  # of the classes, from independent draws
    of_classes = np.einsum("kl,kab,lab->ab", np.linalg.inv(noise @ noise.T), errors, errors)
    return total + 0.25 * (loss.pair_weight * of_classes).sum()


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_gradients_of_the_tables_are_the_derivatives_of_their_error(rng, ratio):
    loss, parameters, contrasts = _loss_of_tables(rng, [300.0, 120.0], [2, 3, 4], ratio)
    assert loss.block.tolist() == block_of_level([2, 3, 4]).tolist()
    found = loss.gradients([tuple(q.astype(np.float32) for q in parameters)])[0]
    for at, gradient in enumerate(found):
        way = rng.normal(size=gradient.shape)
        ends = []
        for step in (-1e-5, 1e-5):
            moved = list(parameters)
            moved[at] = moved[at] + step * way
            ends.append(_value(loss, contrasts, *moved))
        assert (gradient * way).sum() == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-3)


def test_gradients_of_several_restarts_are_those_of_their_mixture(rng):
    loss, parameters, _ = _loss_of_tables(rng, [300.0, 120.0], [2, 3, 4], 3.0)
    points, weight, bias = (q.astype(np.float32) for q in parameters)
    halves = [(points[:, part], weight, bias) for part in (slice(4), slice(4, 8))]
    whole, found = loss.gradients([(points, weight, bias)])[0], loss.gradients(halves)
    np.testing.assert_allclose(np.concatenate([one[0] for one in found], axis=1), whole[0], rtol=1e-4, atol=1e-2)
    for at in (1, 2):
        np.testing.assert_allclose(found[0][at] + found[1][at], whole[at], rtol=1e-4, atol=1e-2)
    mean = np.mean([loss.expected(*half) for half in halves], axis=0)
    np.testing.assert_allclose(mean, loss.expected(points, weight, bias), rtol=1e-4, atol=1e-3)


def test_a_class_that_the_noise_hides_costs_no_step_and_moves_no_decoder(rng):
    loss, parameters, _ = _loss_of_tables(rng, [300.0, 0.0], [2, 3])
    points, weight, bias = loss.gradients([tuple(q.astype(np.float32) for q in parameters)])[0]
    assert not points[1].any()
    assert points[0].any()
    alone, *_ = _loss_of_tables(rng, [300.0], [2, 3])
    alone.one_way, alone.pairs = loss.one_way[:1], loss.pairs[:1]
    alone.one_way_weight, alone.pair_weight = loss.one_way_weight, loss.pair_weight
    present = (parameters[0][:1], *parameters[1:])
    _, weight_alone, bias_alone = alone.gradients([tuple(q.astype(np.float32) for q in present)])[0]
    np.testing.assert_array_equal(weight, weight_alone)
    np.testing.assert_array_equal(bias, bias_alone)
    nobody, *_ = _loss_of_tables(rng, [0.0, 0.0], [2, 3])
    assert nobody.classes.tolist() == [0, 1]  # where all are hidden, all are drawn
