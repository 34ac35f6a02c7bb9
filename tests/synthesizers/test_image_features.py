"""decoder="features": one release of the moments of wavelet features, which sampled images are moved to."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from _claims import RELATIONS, assert_sensitivity
from _flat import make_flat
from sklearn.datasets import load_digits
from test_subclusters import image_rows

from skdpgen import ImageFeatures, LatentMixture, P3GMSynthesizer, PrivacyAccountant, load
from skdpgen.data.scaling import Box
from skdpgen.exceptions import InvalidInputError
from skdpgen.generators import refined_images
from skdpgen.generators.refined_images import ClassCuts, FeatureSpace, RefinedImages, feature_space, released_targets
from skdpgen.mechanisms import Moments, exact_value
from skdpgen.nn import _wavelets
from skdpgen.nn._wavelets import WaveletFeatures, move_to_features, wavelet_features
from skdpgen.synthesizers import _array_model
from skdpgen.synthesizers._array_model import feature_moments
from skdpgen.testing import seeded_noise

SHAPE, D = (4, 5), 20
FACTS = {"bounds": (0, 16), "l2_bound": 8.0, "classes": range(10), "image_shape": (8, 8)}
DIGITS = {**FACTS, "random_state": 0, "progress": False}
WAVELETS = {"n_scales": 2, "width": 1.4}
MATRIX = np.random.default_rng(5).normal(size=(WaveletFeatures(SHAPE).n_features, 3))


@pytest.fixture
def few(monkeypatch):
    """Fewer synthetic images."""
    monkeypatch.setattr(refined_images, "_IMAGES", 1000)
    monkeypatch.setattr(refined_images, "_TRIED", 1000)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def _space(radius=0.2):
    """Features of images of two classes, chosen without any image."""
    middle = WaveletFeatures(SHAPE)(torch.full((1, D), 0.5, dtype=torch.float64)).numpy() @ MATRIX
    centers = np.concatenate([middle, middle + 0.05])
    return FeatureSpace(SHAPE, WAVELETS, Box(np.zeros(D), np.ones(D)), MATRIX, np.arange(2), centers, centers, radius)


def _cut_space(radius=0.2):
    """The same, and each class is cut at its center along two directions."""
    space = _space(radius)
    directions = np.linalg.qr(np.random.default_rng(6).normal(size=(2, 3, 2)))[0]
    middle = space.centers.mean(axis=0)
    middles = np.einsum("ck,cks->cs", (space.centers - middle) / radius, directions)
    return replace(space, cuts=ClassCuts(middle, radius, directions, middles), centers=np.repeat(space.centers, 4, 0))


def _query(X, y, radius=0.2, apart=True, space=None):
    space = _space(radius) if space is None else space
    return feature_moments(*image_rows(X, y, SHAPE), space, n_groups=2 if apart else 1)


# ---- the features --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("shape", "n_scales", "width"), [((9, 6, 2), 2, 1.4), ((6, 9, 2), 3, 1.4), ((8, 7, 2), 1, 2)])
def test_wavelet_features_are_averages_of_an_image_and_of_its_moduli(rng, shape, n_scales, width):
    rows = rng.random((3, math.prod(shape)))
    module = WaveletFeatures(shape, n_scales=n_scales, width=width, n_angles=4)
    found = module(torch.from_numpy(rows)).numpy()
    assert found.shape == (3, module.n_features)
    angles = math.pi * np.arange(4) / 4
    wavelets = [
        np.stack([_wavelets._wavelet(side, reach, frequency, angle) for angle in angles])
        for reach, frequency, side in _wavelets._SCALES[:n_scales]
    ]
    for kernels in wavelets:  # waves, of mean zero
        assert np.abs(kernels.sum(axis=(1, 2))).max() < 1e-3 < np.abs(kernels).max()

    def average(image, distance, n_down, n_across):
        places = [
            np.exp(-((np.arange(side) - (np.arange(n)[:, None] * distance + (distance - 1) / 2)) ** 2) / (2 * width**2))
            for side, n in zip(image.shape, (n_down, n_across))
        ]
        return (places[0] @ image @ places[1].T) / (2 * np.pi * width**2)

    images, n_averages = rows.reshape(3, *shape), [-(-side // 4) for side in shape[:2]]
    for image, features in zip(images, found):
        for channel, own in zip(image.transpose(2, 0, 1), features.reshape(2, 1 + 4 * n_scales, *n_averages)):
            np.testing.assert_allclose(own[0], average(channel, 4, *n_averages), atol=1e-3)
            for i, kernel in enumerate(itertools.chain(*wavelets)):
                reach = len(kernel) // 2
                wide = np.pad(channel, reach)
                windows = np.lib.stride_tricks.sliding_window_view(wide, kernel.shape)[::2, ::2]
                moduli = np.abs((windows * kernel).sum(axis=(2, 3)))
                np.testing.assert_allclose(own[1 + i], average(moduli, 2, *n_averages), atol=2e-3)


@pytest.mark.parametrize("shape", [(5, 6), (9, 13), (8, 7, 2), (6, 10, 3)])
def test_the_gradient_of_wavelet_features_is_that_of_their_values(shape):
    module = WaveletFeatures(shape, n_scales=3, n_angles=3, colour=shape[2:] == (3,))
    rows = torch.rand((2, math.prod(shape)), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, rows)


@pytest.mark.parametrize("sides", [(1, 1), (4, 7), (3, 8), (6, 9), (5, 40)])
@pytest.mark.parametrize("side", [1, 5, 13])
def test_a_convolution_in_double_precision_is_that_of_torch(rng, sides, side):
    maps, kernels = (torch.from_numpy(rng.normal(size=shape)) for shape in ((2, 3, *sides), (4, 3, side, side)))
    wanted = torch.nn.functional.conv2d(maps, kernels, padding=side // 2)
    torch.testing.assert_close(_wavelets._convolved_in_double(maps, kernels), wanted)


@pytest.mark.parametrize("shape", [(4, 5), (28, 28), (9, 6, 2)])
def test_no_sum_of_exact_features_is_rounded(rng, shape):
    """All are whole numbers of one step, as pixels, moduli and averages are: below 2**53, the order changes none."""
    rows = torch.from_numpy(rng.random((5, int(np.prod(shape)))))
    module = WaveletFeatures(shape)
    steps = module(rows, exact=True).numpy() * 2.0**40
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert np.abs(steps).max() < 2.0**53
    assert (module(rows).numpy() * 2.0**40 % 1).any()  # others are not
    # of the largest values that there are, in one direction and the other
    largest = module(torch.ones_like(rows), exact=True).numpy() * 2.0**40
    np.testing.assert_array_equal(largest, np.rint(largest))


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("joined", [1, 3, 17])
@pytest.mark.parametrize("make", [_space, _cut_space])
def test_a_joining_image_leaves_the_features_of_the_others_and_adds_its_own_moments_alone(rng, joined, apart, make):
    X, more = rng.random((300, D)), rng.random((joined, D))
    y, their = rng.integers(0, 3, 300), rng.integers(0, 3, joined)
    np.testing.assert_array_equal(_space().encode(np.concatenate([more, X]))[joined:], _space().encode(X))
    whole, *parts = (
        exact_value(_query(*data, apart=apart, space=make()))
        for data in ((np.concatenate([more, X]), np.concatenate([their, y])), (X, y), (more, their))
    )
    np.testing.assert_array_equal(whole, sum(parts))


def test_exact_features_have_no_rounding_at_any_scale(rng):
    """Sums of fewer bits than a double has are exact in any order; the largest are those of white images."""
    module = WaveletFeatures((28, 28), n_scales=3)
    kernels = [getattr(module, f"wavelets{i}") for i in range(3)]
    steps = 2.0**_wavelets._WAVELET_BITS
    assert all(torch.equal(kernel * steps, torch.round(kernel * steps)) for kernel in kernels)
    largest = max(float(kernel.abs().sum((1, 2, 3)).max()) for kernel in kernels)
    assert math.log2(largest) + _wavelets._PIXEL_BITS + _wavelets._WAVELET_BITS < 53
    rows = rng.random((40, 784))
    whole = wavelet_features(rows, (28, 28), n_scales=3, exact=True)
    alone = np.concatenate([wavelet_features(row[None], (28, 28), n_scales=3, exact=True) for row in rows])
    np.testing.assert_array_equal(whole, alone)


@pytest.mark.parametrize("shape", [(4, 5), (28, 28)])
def test_the_order_of_sums_changes_no_feature_of_a_private_image(rng, shape):
    """Nor do the batch, the number of threads and the processor, which choose the order: nothing is rounded."""
    d, convolved = math.prod(shape), _wavelets._convolved_in_double
    matrix, zero = rng.normal(size=(WaveletFeatures(shape).n_features, 3)), np.zeros((1, 3))
    space = FeatureSpace(shape, WAVELETS, Box(np.zeros(d), np.ones(d)), matrix, np.arange(1), zero, zero, 1.0)
    rows = rng.random((30, d))

    def features():
        # reduced features are rounded once more, which hides most of what rounding changes in the features themselves
        return space.encode(rows), wavelet_features(rows, shape, exact=True, **WAVELETS)

    found = features()

    def from_the_other_end(images, kernels):
        return convolved(images.flip(2, 3), kernels.flip(2, 3)).flip(2, 3)

    def columns_first(module, maps, distance):
        down, across = (getattr(module, f"average{side}{distance}") for side in (0, 1))
        return down @ (maps @ across.T)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_wavelets, "_convolved_in_double", from_the_other_end)
        patch.setattr(WaveletFeatures, "_averages", columns_first)
        for one, other in zip(features(), found):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("make", [_space, _cut_space])
def test_the_sensitivity_of_features_is_attained_and_not_exceeded(rng, relation, apart, make):
    base, labels = rng.random((4, D)), [0, 1, 0, 1]
    far = [np.zeros(D), np.ones(D), *rng.integers(0, 2, (3, D)).astype(float)]
    if not apart:  # two images of two classes whose features are orthogonal differ most
        far += list(rng.integers(0, 2, (4, D)).astype(float))
    joined = [(np.vstack([base, x]), np.array([*labels, k])) for x in far for k in (0, 1, 2)[: 2 + apart]]
    if relation == "add_or_remove_one":
        pairs = [((base, np.array(labels)), data) for data in joined]
    else:
        pairs = [(one, other) for one in joined for other in joined]
    assert_sensitivity(
        lambda data: _query(*data, apart=apart, space=make(0.02)), pairs, attained=pairs, relation=relation
    )


# ---- the images ----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def generator(digits):
    with seeded_noise(1, quiet=True):
        return make_flat(P3GMSynthesizer, 4.0, **DIGITS).fit(*digits).model_.generator


def test_images_whose_features_have_the_released_moments_stay_as_they_are(generator, few, rng):
    space = feature_space(generator, (8, 8), rng, n_features=100, n_scales=2)
    maps = np.tile(np.eye(space.matrix.shape[1]), (10, 1, 1))
    refined = RefinedImages.of(generator, space, space.centers, maps, n_steps=8)
    classes = np.arange(50) % 10
    drawn = (each.sample(classes, np.random.default_rng(0)) for each in (refined, generator))
    np.testing.assert_allclose(*drawn, atol=0.02)


def _targets(space, shift, covariances, noise_sd=0.0, mean_noise_sd=0.0):
    """What `released_targets` makes of moments of 1,000 images of each sub-cluster, with covariances of each class."""
    count, (n_parts, k) = np.full(len(space.centers), 1000.0), space.centers.shape
    of = shift.reshape(len(covariances), -1, k)
    second = 1000 * (n_parts // len(covariances) * covariances + np.swapaxes(of, 1, 2) @ of)
    moments, apart = Moments(count, 1e3 * shift, second), len(covariances) > 1
    return released_targets(space, space.centers, moments, noise_sd, mean_noise_sd, apart=apart)


def _roots(rng, n):
    roots = rng.normal(size=(n, 20, 20))
    return roots @ roots.transpose(0, 2, 1)


@pytest.mark.parametrize("n_directions", [0, 2])
def test_the_maps_of_features_give_classes_their_released_covariance(generator, few, rng, monkeypatch, n_directions):
    monkeypatch.setattr(refined_images, "_SHARED", 0)
    space = feature_space(generator, (8, 8), rng, n_features=20, n_scales=2)
    space, wanted = space.cut(n_directions), _roots(rng, 10)
    shift = rng.normal(size=space.centers.shape)
    means, maps = _targets(space, shift, wanted)
    np.testing.assert_allclose(means, space.centers + shift)
    for c in range(10):
        own = space.codes // space.per_class == c
        moved = (space.features[own] - space.centers[space.codes[own]]) @ maps[c]
        np.testing.assert_allclose(moved.T @ moved / len(moved), wanted[c], atol=0.1 * np.abs(wanted[c]).max())


@pytest.mark.parametrize("n_directions", [0, 2])
def test_the_common_map_gives_all_classes_the_released_covariance_and_keeps_what_each_has_of_its_own(
    generator, few, rng, n_directions
):
    space = feature_space(generator, (8, 8), rng, n_features=20, n_scales=2)
    space, wanted = space.cut(n_directions), _roots(rng, 1)
    shift = rng.normal(size=space.centers.shape)
    means, maps = _targets(space, shift, wanted)
    np.testing.assert_allclose(means, space.centers + shift)
    moved = (space.features - space.centers[space.codes]) @ maps[0]
    np.testing.assert_allclose(moved.T @ moved / len(moved), wanted[0], atol=0.05 * np.abs(wanted).max())
    assert maps.shape == (10, 20, 20)
    assert (maps == maps[0]).all()


def test_moments_of_features_that_are_noise_alone_leave_the_synthetic_ones(generator, few, rng):
    space = feature_space(generator, (8, 8), rng, n_features=20, n_scales=2)
    shift = rng.normal(size=(10, 20))  # noise alone
    means, maps = _targets(space, shift, np.eye(20)[None], 1e7 * 20**-0.5, 1000.0)
    assert np.linalg.norm(means - space.centers) < 0.5 * np.linalg.norm(shift)
    np.testing.assert_allclose(maps, np.tile(np.eye(20), (10, 1, 1)), atol=0.02)


def test_noise_alone_leaves_images_without_classes_as_they_are(generator, few, rng):
    """One class has the common map: with few rows, the noise is larger than what the covariances differ by."""
    space = feature_space(generator, (8, 8), rng, n_features=20, n_scales=2)
    whole = replace(space, codes=0 * space.codes, centers=space.features.mean(axis=0)[None])
    _, maps = _targets(whole, np.zeros((1, 20)), np.eye(20)[None], 1e7 * 20**-0.5, 1000.0)
    np.testing.assert_allclose(maps, np.eye(20)[None], atol=0.02)


def test_classes_are_cut_in_halves_and_then_at_the_released_shares(generator, few, rng):
    whole = feature_space(generator, (8, 8), rng, n_features=20, n_scales=2)
    assert whole.cut(0) is whole
    assert whole.at_shares(np.ones(10)) is whole
    space = whole.cut(1)
    assert space.centers.shape == (20, 20)
    assert space.radius < whole.radius
    np.testing.assert_array_equal(space.codes // 2, whole.codes)
    np.testing.assert_array_equal(space.codes_of(space.features, whole.codes), space.codes)
    np.testing.assert_array_equal(space.codes_of(space.features[:3], np.array([-1, 0, -1])) < 0, [True, False, True])
    for code in range(20):
        mean = space.features[space.codes == code].mean(axis=0)
        np.testing.assert_allclose(space.centers[code], mean, atol=0.2 * whole.radius)
    # of each class a share of .1, .2, ..., and of the last nearly all
    counts = 100 * np.stack([np.arange(9.5, 0, -1), np.arange(0.5, 10)], axis=1).ravel()
    found = np.bincount(space.at_shares(counts).codes, minlength=20).reshape(10, 2)
    np.testing.assert_allclose(found[:, 1] / found.sum(axis=1), np.arange(0.5, 10) / 10, atol=0.03)
    # two directions, along each of which the share is right
    counts = rng.uniform(1, 2, 40)
    codes = whole.cut(2).at_shares(counts).codes
    for bit in (1, 2):
        upper = (np.arange(4) & bit) > 0
        share = counts.reshape(10, 4)[:, upper].sum(axis=1) / counts.reshape(10, 4).sum(axis=1)
        ours = [((codes[codes // 4 == c] & bit) > 0).mean() for c in range(10)]
        np.testing.assert_allclose(ours, share, atol=0.03)


def test_images_of_a_sub_cluster_move_to_its_features(generator, few, rng):
    """Two halves of a class that are further apart than those of the Gaussian, as where its images are of two kinds."""
    space = feature_space(generator, (8, 8), rng, n_features=20, n_scales=2).cut(1)
    apart = space.centers[1::2] - space.centers[::2]
    means = space.centers + 0.3 * np.repeat(apart, 2, axis=0) * np.tile([[-1.0], [1.0]], (10, 1))
    maps = np.tile(np.eye(20), (10, 1, 1))
    refined = RefinedImages.of(generator, space, means, maps, n_steps=8)
    classes = np.repeat(np.arange(10), 60)
    unit = generator.box.to_unit(refined.unmoved().sample(classes, rng))
    _, codes = refined._targets(unit.astype(np.float32), classes)
    np.testing.assert_array_equal(codes // 2, classes)
    found = refined._features(refined._moved(unit.astype(np.float32), classes))
    before = refined._features(unit.astype(np.float32))
    for c in range(10):
        halves = [[each[codes == 2 * c + side].mean(axis=0) for side in (0, 1)] for each in (before, found)]
        distances = [np.linalg.norm(upper - lower) for lower, upper in halves]
        assert distances[1] > 1.2 * distances[0]


@pytest.mark.parametrize("apart", [True, False])
def test_targets_make_up_for_what_moves_miss(generator, few, rng, apart):
    """Of means and of variances; where the classes have one map, they still have one after that."""
    space = feature_space(generator, (8, 8), rng, n_features=20, n_scales=2)
    maps = np.tile(1.2 * np.eye(20), (10, 1, 1))
    first = RefinedImages.of(generator, space, space.centers + 0.02, maps, n_steps=8)
    second = first.aimed(first.unmoved(), np.random.default_rng(1), apart=apart)
    again = first.aimed(first.unmoved(), np.random.default_rng(1), apart=apart)
    np.testing.assert_array_equal(again.maps, second.maps)
    assert (second.maps != second.maps[0]).any() == apart
    classes = np.repeat(np.arange(10), 60)
    rows = generator.sample(classes, rng)
    unit = generator.box.to_unit(rows).astype(np.float32)
    (wanted, _), gaps = first._targets(unit, classes), []
    for each in (first, second):
        found = refined_images._features(each._moved(unit, classes), (8, 8), each.wavelets) @ each.matrix
        spreads = [np.square(f - f.mean(axis=0)).sum() for f in (found, wanted)]
        gaps.append((np.linalg.norm((found - wanted).mean(axis=0)), abs(np.log(spreads[0] / spreads[1]))))
    assert gaps[1][0] < 0.8 * gaps[0][0]
    assert gaps[1][1] < 0.8 * gaps[0][1]


@pytest.mark.parametrize(
    ("epsilon", "rows_apart", "apart"), [(3.0, 3000, False), (3.0, 10, True), (np.inf, 3000, True)]
)
def test_second_moments_of_each_class_are_released_where_the_noise_does_not_hide_them(
    digits, few, monkeypatch, epsilon, rows_apart, apart
):
    kept = {}
    monkeypatch.setattr(_array_model, "_ROWS_APART", rows_apart)
    monkeypatch.setattr(_array_model, "feature_moments", lambda *a, **k: kept.update(k) or feature_moments(*a, **k))
    with seeded_noise(1, quiet=True):
        synth = make_flat(P3GMSynthesizer, epsilon, decoder="features", **DIGITS).fit(*digits)
    assert kept["n_groups"] == (10 if apart else 1)
    assert (synth.model_.generator.maps != synth.model_.generator.maps[0]).any() == apart


def test_images_with_features_are_nearer_to_the_real_ones(digits, few):
    X, y = digits
    module, gaps = WaveletFeatures((8, 8)), {}
    with seeded_noise(1, quiet=True):
        for decoder in ("released", "features"):
            synth = make_flat(P3GMSynthesizer, 20.0, decoder=decoder, **DIGITS).fit(X, y)
            drawn, labels = synth.sample(600, random_state=1)
            ours, real = (module(torch.from_numpy(each / 16)).numpy() for each in (drawn, X))
            means = [np.stack([f[at == c].mean(axis=0) for c in range(10)]) for f, at in ((ours, labels), (real, y))]
            gaps[decoder] = np.linalg.norm(means[0] - means[1])
    assert gaps["features"] < 0.6 * gaps["released"]


# ---- the fit -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("neighboring", RELATIONS)
def test_the_moments_of_features_are_one_release_of_half_the_budget(digits, few, neighboring):
    with seeded_noise(1, quiet=True):
        synth = make_flat(P3GMSynthesizer, 3.0, decoder="features", neighboring=neighboring, **DIGITS).fit(*digits)
    synth.card_.verify()
    report = synth.accountant_.report()
    assert report["release"].tolist() == ["mean", "norm", "moments", "greys", "features"]
    squares = 1 / np.square(report["noise_multiplier"].to_numpy(dtype=float))
    share = squares[-1] / squares.sum()
    assert share == pytest.approx(0.5, abs=0.03)


def test_a_model_with_features_is_saved_pickled_and_conditioned(digits, few, tmp_path):
    with seeded_noise(1, quiet=True):
        synth = make_flat(P3GMSynthesizer, 5.0, decoder="features", **DIGITS).fit(*digits)
    expected = synth.sample(40, random_state=3)
    synth.save(tmp_path / "model.safetensors")
    for again in (load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(synth))):
        for found, one in zip(again.sample(40, random_state=3), expected):
            np.testing.assert_array_equal(found, one)
    assert expected[0].min() >= 0
    assert expected[0].max() <= 16
    drawn, _ = synth.sample(20, given={28: 12.0}, random_state=0)
    np.testing.assert_array_equal(drawn[:, 28], 12.0)
    assert np.isfinite(synth.score(*digits))


def test_deformations_change_samples_alone_and_are_saved(digits, few, tmp_path):
    fits = {}
    for deformation in (0.0, 0.05):
        with seeded_noise(1, quiet=True):
            decoder = ImageFeatures(deformation=deformation)
            fits[deformation] = make_flat(P3GMSynthesizer, 5.0, decoder=decoder, **DIGITS).fit(*digits)
    reports = [fit.accountant_.report().drop(columns="time", errors="ignore") for fit in fits.values()]
    pd.testing.assert_frame_equal(*reports)
    one, other = (fit.model_.generator for fit in fits.values())
    for name in ("matrix", "centers", "means", "maps", "component_means"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert "deformation" not in one.to_state()
    drawn, _ = fits[0.05].sample(40, random_state=3)
    assert (drawn != fits[0.0].sample(40, random_state=3)[0]).any()
    fits[0.05].save(tmp_path / "model.safetensors")
    for again in (load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(fits[0.05]))):
        np.testing.assert_array_equal(again.sample(40, random_state=3)[0], drawn)
    fixed, _ = fits[0.05].sample(20, given={28: 12.0}, random_state=0)
    np.testing.assert_array_equal(fixed[:, 28], 12.0)


@pytest.mark.parametrize("wrong", [-0.1, 0.3, float("nan"), float("inf")])
def test_a_file_of_images_with_an_impossible_deformation_is_refused(generator, few, rng, wrong):
    space = feature_space(generator, (8, 8), rng, n_features=9, n_scales=2)
    maps = np.tile(np.eye(9), (10, 1, 1))
    state = RefinedImages.of(generator, space, space.centers, maps, n_steps=8, deformation=0.1).to_state()
    assert RefinedImages.from_state(state).deformation == 0.1
    with pytest.raises(ValueError, match="deformation of images"):
        RefinedImages.from_state({**state, "deformation": wrong})


@pytest.mark.parametrize("shape", [[10**5, 10**5], [64], [8, 8, 1, 1], [16, 16], []])
def test_a_file_of_images_of_another_shape_is_refused_before_it_takes_memory(generator, few, rng, shape):
    space = feature_space(generator, (8, 8), rng, n_features=100, n_scales=2)
    k = space.matrix.shape[1]
    maps = np.tile(np.eye(k), (len(space.centers), 1, 1))
    state = RefinedImages.of(generator, space, space.centers, maps, n_steps=8).to_state()
    assert RefinedImages.from_state(state).image_shape == (8, 8)
    with pytest.raises(ValueError, match="shape of the images"):
        RefinedImages.from_state({**state, "image_shape": shape})


def test_a_file_of_an_earlier_version_has_its_own_averages_and_steps(generator, few, rng):
    space = feature_space(generator, (8, 8), rng, n_features=100, n_scales=2)
    maps = np.tile(np.eye(space.matrix.shape[1]), (10, 1, 1))
    state = RefinedImages.of(generator, space, space.centers, maps, n_steps=3).to_state()
    assert RefinedImages.from_state(state).moves == {"n_steps": 3, "rate": 0.1}
    assert RefinedImages.from_state(state).wavelets == space.wavelets
    del state["wavelets"]
    earlier = RefinedImages.from_state(state)
    assert earlier.wavelets == {"n_scales": 2, "width": 2.0, "colour": False}
    assert earlier.moves == {"n_steps": 12, "rate": 0.08}


@pytest.mark.parametrize(
    "wrong",
    [{"n_steps": 10**9}, {"n_scales": 4}, {"n_scales": 0}, {"width": 1e9}, {"width": float("nan")}, {"rate": 0}],
)
def test_a_file_of_images_with_impossible_wavelets_is_refused(generator, few, rng, wrong):
    space = feature_space(generator, (8, 8), rng, n_features=100, n_scales=2)
    maps = np.tile(np.eye(space.matrix.shape[1]), (10, 1, 1))
    state = RefinedImages.of(generator, space, space.centers, maps, n_steps=8).to_state()
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RefinedImages.from_state({**state, "wavelets": {**state["wavelets"], **wrong}})


def test_a_file_whose_features_are_not_those_of_its_wavelets_is_refused(generator, few, rng):
    space = feature_space(generator, (8, 8), rng, n_features=9, n_scales=2)
    maps = np.tile(np.eye(9), (10, 1, 1))
    state = RefinedImages.of(generator, space, space.centers, maps, n_steps=8).to_state()
    with pytest.raises(ValueError, match="not those of their wavelets"):
        RefinedImages.from_state({**state, "wavelets": {**state["wavelets"], "n_scales": 3}})


@pytest.mark.parametrize("wrong", ["directions", "middles", "center", "reach", "too many"])
def test_a_file_of_images_with_impossible_sub_clusters_is_refused(generator, few, rng, wrong):
    space = feature_space(generator, (8, 8), rng, n_features=9, n_scales=2).cut(2)
    maps = np.tile(np.eye(9), (10, 1, 1))
    state = RefinedImages.of(generator, space, space.centers, maps, n_steps=8).to_state()
    assert RefinedImages.from_state(state).cuts.n_parts == 4
    cuts = state["features"]["cuts"]
    changed = {
        "directions": {"directions": cuts["directions"][:9]},
        "middles": {"middles": cuts["middles"][:, :1]},
        "center": {"center": cuts["center"][:4]},
        "reach": {"reach": 0.0},
        "too many": {"directions": np.zeros((10, 9, 60)), "middles": np.zeros((10, 60))},
    }[wrong]
    with pytest.raises(ValueError, match="sub-clusters"):
        RefinedImages.from_state({**state, "features": {**state["features"], "cuts": {**cuts, **changed}}})
    without = {name: value for name, value in state["features"].items() if name != "cuts"}
    with pytest.raises(ValueError, match="do not fit their classes"):
        RefinedImages.from_state({**state, "features": without})


def test_images_are_taken_in_batches_of_so_many_pixels(generator, few, rng, monkeypatch):
    spaces = [feature_space(generator, (8, 8), np.random.default_rng(0), n_features=9, n_scales=2)]
    monkeypatch.setattr(refined_images, "_BATCH", 150)  # two images, and less than one
    spaces.append(feature_space(generator, (8, 8), np.random.default_rng(0), n_features=9, n_scales=2))
    np.testing.assert_allclose(spaces[0].features, spaces[1].features, atol=1e-4)
    whole = spaces[0].encode(rng.random((7, 64)))
    for pixels in (150, 1):
        monkeypatch.setattr(refined_images, "_EXACT_BATCH", pixels)
        assert spaces[0].encode(rng.random((7, 64))).shape == whole.shape
    assert [part.stop - part.start for part in refined_images._batches(np.zeros((3, 64)), 1)] == [1, 1, 1]


def test_an_object_sets_features_scales_and_steps(digits, few):
    wanted = ImageFeatures(12, n_scales=3, n_steps=2)
    with seeded_noise(1, quiet=True):
        synth = make_flat(P3GMSynthesizer, 5.0, decoder=wanted, **DIGITS).fit(*digits)
        synth.set_params(decoder__n_features=7).fit(*digits)
    generator = synth.model_.generator
    assert generator.matrix.shape == (WaveletFeatures((8, 8), n_scales=3).n_features, 7)
    assert (generator.wavelets["n_scales"], generator.moves["n_steps"]) == (3, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_features": 0},
        {"n_features": "most"},
        {"n_scales": 4},
        {"n_steps": 0},
        {"n_steps": 10**6},
        {"deformation": 1},
    ],
)
def test_an_object_that_is_wrong_is_refused_before_the_charge(digits, wrong):
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        make_flat(P3GMSynthesizer, None, accountant=accountant, decoder=ImageFeatures(**wrong), **DIGITS).fit(*digits)
    assert not accountant.charges


def test_every_gradient_step_brings_images_nearer_to_their_features(rng):
    rows, others = rng.random((2, 40, 64)).astype(np.float32)
    matrix = np.linalg.qr(rng.normal(size=(WaveletFeatures((8, 8)).n_features, 20)))[0]
    targets = wavelet_features(others, (8, 8)) @ matrix
    gaps = [
        np.linalg.norm(wavelet_features(moved, (8, 8)) @ matrix - targets)
        for moved in (rows, *(move_to_features(rows, targets, matrix, (8, 8), n_steps=n, rate=0.1) for n in (2, 8, 48)))
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[2] < 0.5 * gaps[0]
    assert gaps[3] < 0.2 * gaps[0]


def test_images_move_by_steps_of_adam_inside_the_box(rng):
    rows, targets = rng.random((5, 64)).astype(np.float32), rng.normal(size=(5, 3)).astype(np.float32)
    module = WaveletFeatures((8, 8)).float()
    matrix = rng.normal(size=(module.n_features, 3)).astype(np.float32)
    wanted = torch.from_numpy(rows.copy()).requires_grad_(True)
    optimizer = torch.optim.Adam([wanted], betas=(0.8, 0.99), eps=1e-3)
    for step in range(4):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 4)
        optimizer.zero_grad()
        (module(wanted) @ torch.from_numpy(matrix) - torch.from_numpy(targets)).square().sum().backward()
        optimizer.step()
        wanted.data.clamp_(0.0, 1.0)
    found = move_to_features(rows, targets, matrix, (8, 8), n_steps=4, rate=0.1)
    np.testing.assert_allclose(found, wanted.detach().numpy(), atol=1e-5)
    assert np.abs(found - rows).max() > 0.1


@pytest.mark.parametrize(("progress", "rows", "shown"), [(True, 1000, True), (True, 900, False), (False, 1000, False)])
def test_sampling_many_images_shows_a_bar_where_bars_are_wanted(
    digits, few, capsys, monkeypatch, progress, rows, shown
):
    monkeypatch.setattr("skdpgen.utils.progress._DELAY", 0)
    with seeded_noise(1, quiet=True):
        synth = make_flat(P3GMSynthesizer, 5.0, decoder="features", **{**DIGITS, "progress": progress}).fit(*digits)
    capsys.readouterr()
    synth.sample(rows)
    assert ("moving images" in capsys.readouterr().err) == shown


def test_images_without_labels_and_in_colour_have_features(few, rng):
    X = rng.random((300, 6 * 5 * 3))
    with seeded_noise(1, quiet=True):
        facts = {"bounds": (0, 1), "l2_bound": 9.0, "image_shape": (6, 5, 3), "random_state": 0}
        synth = make_flat(P3GMSynthesizer, 8.0, decoder="features", **facts).fit(X)
    assert synth.sample(10).shape == (10, 90)


@pytest.mark.parametrize(
    ("parameters", "data", "message"),
    [
        ({"image_shape": None}, "array", '"features" needs image_shape='),
        (
            {"image_shape": None, "decoder": ImageFeatures(upright=True)},
            "array",
            r"ImageFeatures\(\) needs image_shape=",
        ),
        ({"prior": "mixture"}, "array", 'takes no mixture: leave out prior="mixture"'),
        ({"prior": "gaussian"}, "array", 'leave out prior="gaussian", or y'),
        ({"image_shape": None, "bounds": None, "l2_bound": None, "classes": None}, "frame", "give X.to_numpy"),
    ],
)
def test_features_of_what_is_no_image_are_refused_before_the_charge_with_what_to_give(
    digits, parameters, data, message
):
    X, y = digits if data == "array" else (pd.DataFrame({"a": np.arange(9.0)}), None)
    accountant = PrivacyAccountant(1.0, 1e-5)
    parameters = {"decoder": "features", **DIGITS, **parameters}
    synth = make_flat(P3GMSynthesizer, None, accountant=accountant, **parameters)
    with pytest.raises(InvalidInputError, match=message) as raised:
        synth.fit(X, y)
    assert str(raised.value).count("image_shape") <= 1
    assert not accountant.charges


@pytest.mark.parametrize("name", ["steps", "sampling_rate", "gradient_bound", "device"])
def test_parameters_of_dp_sgd_are_refused_with_features(digits, name):
    value = {"steps": 3, "sampling_rate": 0.1, "gradient_bound": 0.5, "device": "cuda"}[name]
    for decoder in ("features", "auto"):
        with pytest.raises(ValueError, match=f"{name}= of training= is used only with decoder='net'"):
            make_flat(P3GMSynthesizer, 1.0, decoder=decoder, **{name: value}, **DIGITS).fit(*digits)


@pytest.mark.usefixtures("short_fits")
def test_auto_decides_by_public_facts(digits, few):
    X, y = digits
    frame = pd.DataFrame({"a": [*"xyz"] * 20, "b": [*"pq"] * 30})
    with seeded_noise(1, quiet=True):
        large = {**DIGITS, "bounds": (0, 1), "image_shape": (16, 16)}
        rng = np.random.default_rng(0)
        images = make_flat(P3GMSynthesizer, 1000.0, **large).fit(rng.random((60, 256)), y[:60])
        one = make_flat(P3GMSynthesizer, 1000.0, prior="gaussian", **{**large, "classes": None}).fit(
            rng.random((60, 256))
        )
        assert one.accountant_.report()["release"].iloc[-1] == "features"
        others = [
            make_flat(P3GMSynthesizer, 1.0, **DIGITS).fit(X, y),  # small images
            make_flat(P3GMSynthesizer, 1.0, decoder="auto", **{**DIGITS, "image_shape": None}).fit(X, y),
            make_flat(P3GMSynthesizer, 1.0, decoder="auto", prior=LatentMixture(n_iter=1), **DIGITS).fit(X, y),
            P3GMSynthesizer(np.inf, decoder="auto", random_state=0, progress=False).fit(frame),
            # long ones
            make_flat(P3GMSynthesizer, 1000.0, **{**large, "image_shape": (16, 1040)}).fit(
                rng.random((20, 16_640)), y[:20]
            ),
        ]
    assert isinstance(images.model_.generator, RefinedImages)
    for synth in others:
        released = synth.accountant_.report()["release"].tolist()
        assert not {"features", "decoder"} & set(released)


def test_without_noise_nothing_hides_the_moments_of_features(digits, few, monkeypatch):
    kept, real = [], refined_images.class_latents
    monkeypatch.setattr(refined_images, "class_latents", lambda *a: kept.append(real(*a)) or kept[-1])
    with seeded_noise(1, quiet=True):
        make_flat(P3GMSynthesizer, np.inf, decoder="features", **DIGITS).fit(*digits)
    np.testing.assert_allclose(kept[-1].counts.reshape(10, -1).sum(axis=1), np.bincount(digits[1]))
