"""Norms of the rows of each class: one histogram, clip bounds of the classes, and Gaussians of several sizes."""

from __future__ import annotations

import warnings
from unittest import mock

import numpy as np
import pytest
from _flat import make_flat
from scipy import stats

from skdpgen import MomentSynthesizer, P3GMSynthesizer, load
from skdpgen.data.arrays import ArrayRows
from skdpgen.exceptions import UtilityWarning
from skdpgen.generators.gaussians import ClassLatents, ClassNorms, scale_mixture
from skdpgen.mixture import GaussianMixtureParameters
from skdpgen.synthesizers import _array_model
from skdpgen.synthesizers._array_model import fit_array_model, release_class_norms
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

AR = "add_or_remove_one"


def _learn(norms, codes, n_classes, noise, seed=0, largest=64.0):
    with seeded_noise(seed, quiet=True):
        return release_class_norms(
            norms, codes, n_classes, largest, noise, make_noise_generator(), AR, count=len(norms)
        )


def test_without_noise_the_law_is_that_of_the_rows_and_none_is_clipped(rng):
    norms, codes = np.exp(rng.normal(size=3000)), rng.integers(0, 3, 3000)
    norms[codes == 1] *= 8
    sizes = _learn(norms, codes, 4, 0.0, largest=1e3)  # the last class has no row
    np.testing.assert_allclose(sizes.probabilities.sum(axis=1), 1)
    for k in range(3):
        assert norms[codes == k].max() <= sizes.bound[k]
        assert sizes.squares()[k] == pytest.approx(np.mean(norms[codes == k] ** 2), rel=0.1)
    np.testing.assert_array_equal(sizes.squares(clipped=True), sizes.squares())
    assert np.isfinite(sizes.bound).all()


def test_classes_of_many_rows_have_a_law_and_a_bound_of_their_own(rng):
    codes = np.repeat([0, 1], [2000, 8000])
    norms = np.where(codes == 0, 5.0, 1.0) * np.exp(0.5 * rng.normal(size=10_000))
    sizes = _learn(norms, codes, 2, 19.0)
    for k, scale in enumerate((5.0, 1.0)):
        own = norms[codes == k]
        assert 0.6 < np.mean(own <= sizes.bound[k]) < 0.85
        middle = sizes.norms[np.searchsorted(np.cumsum(sizes.probabilities[k]), 0.5)]
        assert middle == pytest.approx(scale, rel=0.1)
        clipped = np.mean(np.minimum(own, sizes.bound[k]) ** 2)
        assert sizes.squares(clipped=True)[k] == pytest.approx(clipped, rel=0.1)
        assert sizes.squares()[k] == pytest.approx(np.mean(own**2), rel=0.25)


def test_a_class_of_few_rows_is_found_where_it_is_and_never_far_from_all_others(rng):
    codes = np.repeat([0, 1], [150, 10_000])
    norms = np.where(codes == 0, 4.0, 1.0) * np.exp(0.3 * rng.normal(size=len(codes)))
    laws = [_learn(norms, codes, 2, 19.0, seed) for seed in range(20)]
    middles = [law.norms[np.searchsorted(np.cumsum(law.probabilities[0]), 0.5)] for law in laws]
    assert 2.0 < np.median(middles) < 6.0
    # with nothing to be seen, near what is seen of all rows
    empty = [_learn(norms[150:], codes[150:], 2, 19.0, seed) for seed in range(20)]
    middles = [law.norms[np.searchsorted(np.cumsum(law.probabilities[0]), 0.5)] for law in empty]
    assert 0.1 < min(middles) <= max(middles) < 10.0


def test_noise_that_hides_all_norms_is_said_and_gives_a_law_nonetheless(rng):
    with pytest.warns(UtilityWarning, match="hides the norms"):
        sizes = _learn(rng.random(30), rng.integers(0, 3, 30), 3, 1e4)
    assert np.isfinite(sizes.probabilities).all()
    np.testing.assert_allclose(sizes.probabilities.sum(axis=1), 1)
    assert (sizes.squares() > 0).all()


def test_bounds_and_laws_are_functions_of_the_noisy_counts_alone(rng):
    noisy = np.maximum(rng.normal(50, 30, 2 * 129), 0)
    with mock.patch.object(_array_model, "add_gaussian", return_value=noisy):
        one, other = (_learn(np.full(100, size), np.zeros(100, int), 2, 5.0) for size in (1.0, 30.0))
    np.testing.assert_array_equal(one.probabilities, other.probabilities)
    np.testing.assert_array_equal(one.bound, other.bound)


@pytest.mark.parametrize("joined", [1, 3, 17])
def test_a_joining_row_leaves_the_norms_of_the_others_bit_for_bit(joined, rng):
    X, y = rng.random((4100, 7)), rng.integers(0, 2, 4100)
    centers = rng.random((2, 7))

    def norms(X, y):
        public = {"bounds": (0, 1), "l2_bound": 3.0, "classes": [0, 1], "target_type": None, "image_shape": None}
        rows = ArrayRows(X, y, on_invalid="clip", **public)
        return rows.residual_norms(rows.learn({}, 0.0, make_noise_generator("fast"), AR), centers)

    more, their = rng.random((joined, 7)), rng.integers(0, 2, joined)
    whole = norms(np.concatenate([more, X]), np.concatenate([their, y]))
    np.testing.assert_array_equal(whole, np.concatenate([norms(more, their), norms(X, y)]))


def _latents(covariances):
    k, d = covariances.shape[:2]
    means = np.arange(k * d, dtype=float).reshape(k, d)
    mixture = GaussianMixtureParameters(np.full(k, 1 / k), means, covariances, "full")
    return ClassLatents(np.ones(k), mixture.means, np.zeros(d), np.eye(d), mixture, 0.0, 0.0)


def _sizes(norms):
    edges = 2.0 ** (np.arange(-60, 60) / 8)
    law = np.array([np.bincount(np.searchsorted(edges, row), minlength=len(edges)) / len(row) for row in norms])
    return ClassNorms(edges * 2 ** (-1 / 16), law, np.full(len(norms), np.inf))


@pytest.mark.parametrize("d", [1, 3, 40])
def test_rows_drawn_of_the_levels_are_as_long_as_the_rows_of_the_class(d, rng):
    # of the first class as a normal law has them; of the second one in ten is ten times as long
    shape = np.diag(np.linspace(0.5, 1.5, d))
    normal = np.linalg.norm(rng.standard_normal((20_000, d)) @ np.sqrt(shape), axis=1)
    heavy = 0.3 * normal * np.where(rng.random(20_000) < 0.1, 10.0, 1.0)
    sizes = _sizes([normal, heavy])
    mixture, scales, levels = scale_mixture(
        _latents(shape / np.trace(shape) * sizes.squares()[:, None, None]), sizes, 8
    )
    assert 1 < levels <= 8
    np.testing.assert_allclose(mixture.weights.reshape(2, -1).sum(axis=1), 0.5)
    np.testing.assert_allclose((mixture.weights * scales).reshape(2, -1).sum(axis=1) / 0.5, sizes.squares())
    np.testing.assert_array_equal(mixture.means[:levels], np.tile(mixture.means[0], (levels, 1)))
    X, components = mixture.sample(40_000, rng)
    drawn = np.linalg.norm(X - mixture.means[components], axis=1)
    for k, norms in enumerate((normal, heavy)):
        assert stats.ks_2samp(drawn[components // levels == k], norms).statistic < 0.1


def test_as_many_levels_as_there_is_room_for(rng):
    sizes = _sizes([np.exp(rng.normal(size=5000))])
    latents = _latents(np.eye(2)[None] * sizes.squares()[:, None, None] / 2)
    for most in (1, 3):
        mixture, scales, levels = scale_mixture(latents, sizes, most)
        assert levels == most
        assert mixture.weights @ scales == pytest.approx(sizes.squares()[0])
    assert scale_mixture(latents, sizes, 0)[2] == 1


def _seizures(rng, n=9000):
    """Short rows of many sizes, and one class in five whose rows are five times as long."""
    y = (rng.random(n) < 0.2).astype(int)
    size = np.exp(0.5 * rng.normal(size=n)) * np.where(y == 1, 5.0, 1.0)
    return 0.05 * size[:, None] * (rng.normal(size=(n, 12)) @ np.diag(np.linspace(0.3, 1.7, 12))), y


@pytest.mark.parametrize("synthesizer", [P3GMSynthesizer, MomentSynthesizer])
def test_rows_of_each_class_keep_their_sizes(synthesizer, rng, tmp_path):
    X, y = _seizures(rng)
    with seeded_noise(3, quiet=True):
        synth = synthesizer(1.0, bounds=(-4, 4), classes=[0, 1]).fit(X, y)
    synth.card_.verify()
    drawn, labels = synth.sample(20_000, random_state=0)
    for k in (0, 1):
        real, ours = (np.linalg.norm(rows, axis=1) for rows in (X[y == k], drawn[labels == k]))
        for q in (0.1, 0.5, 0.9):
            assert np.quantile(ours, q) == pytest.approx(np.quantile(real, q), rel=0.3)
    scores = synth.score_samples(X) if hasattr(synth, "score_samples") else np.array([synth.score(X)])
    assert np.isfinite(scores).all()
    synth.save(tmp_path / "rows.safetensors")
    again = load(tmp_path / "rows.safetensors")
    np.testing.assert_array_equal(again.sample(50, random_state=2)[0], synth.sample(50, random_state=2)[0])
    if synthesizer is MomentSynthesizer:
        # one long column makes a row of the class of long rows, and its other columns long
        given, kind = synth.sample(2000, given={11: 1.0}, random_state=3)
        assert (given[:, 11] == 1.0).all()
        assert kind.mean() > 0.9
        assert np.abs(given[:, :11]).mean() > 2 * np.abs(drawn[labels == 0][:, :11]).mean()


def test_a_mixture_of_sizes_is_the_better_law_of_such_rows(rng, monkeypatch):
    X, y = _seizures(rng)
    for most, scores in ((1, one := []), (8, several := [])):
        monkeypatch.setattr("skdpgen.generators.gaussians._MOST_SCALES", most)
        for seed in range(2):
            with seeded_noise(seed, quiet=True):
                scores.append(P3GMSynthesizer(1.0, bounds=(-4, 4), classes=[0, 1]).fit(X, y).score(X))
    assert np.mean(several) > np.mean(one) + 0.5


@pytest.mark.parametrize("epsilon", [0.01, 1.0, np.inf])
@pytest.mark.parametrize("rows", ["one", "equal", "far", "one class of three"])
def test_odd_rows_are_fitted_and_sampled(rows, epsilon, rng):
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    if rows == "one":
        X, y = X[:1], y[:1]
    elif rows == "equal":
        X[:] = X[0]
    elif rows == "far":
        X *= np.exp(20 * rng.normal(size=(60, 1)))
    else:
        y[:] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        synth = P3GMSynthesizer(epsilon, bounds=(-10, 10), classes=[0, 1, 2]).fit(X, y)
        assert np.isfinite(synth.sample(100)[0]).all()
        assert np.isfinite(synth.score(X))


@pytest.mark.parametrize("epsilon", [0.5, np.inf])
@pytest.mark.parametrize("l2_bound", [1e-99, 1e-60, 1e8, 1e99])
@pytest.mark.parametrize("synthesizer", [P3GMSynthesizer, MomentSynthesizer])
def test_a_norm_that_was_declared_far_off_is_fitted_all_the_same(synthesizer, l2_bound, epsilon, rng):
    X = rng.standard_normal((2000, 4))
    synth = synthesizer(epsilon, bounds=(-3, 3), l2_bound=l2_bound).fit(X)
    assert np.isfinite(synth.sample(100)).all()
    assert np.isfinite(synth.score(X)) or l2_bound < 1
    if l2_bound > 1:  # no row of the box is longer than its corner, whatever was declared
        right = synthesizer(epsilon, bounds=(-3, 3), l2_bound=2.0).fit(X)
        assert synth.score(X) == pytest.approx(right.score(X), abs=0.5)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize(
    "parameters", [{"prior": "mixture"}, {"decoder": "net", "steps": 2}, {"image_shape": (3, 4)}], ids=str
)
def test_other_models_have_one_bound_for_all(parameters, rng, monkeypatch):
    monkeypatch.setattr(f"{fit_array_model.__module__}.release_class_norms", None)
    X, y = _seizures(rng, 300)
    y = None if parameters.get("prior") == "mixture" else y
    synth = make_flat(P3GMSynthesizer, 3.0, bounds=(-4, 4), **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        synth.fit(X) if y is None else synth.fit(X, y)
    assert synth.model_.row_count > 0
