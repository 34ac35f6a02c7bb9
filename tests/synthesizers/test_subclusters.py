"""Cells of classes of images: one function of a row and of what was released, each row in one of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from _claims import RELATIONS, assert_sensitivity
from _flat import make_flat

from skdpgen import MomentSynthesizer, P3GMSynthesizer, PrivateSearchCV, load
from skdpgen.data.arrays import ArrayRows
from skdpgen.generators.gaussians import LatentSpace, LinearGenerator, class_weights, cut_directions
from skdpgen.generators.refined_images import ClassCuts
from skdpgen.mechanisms import exact_value
from skdpgen.mixture import GaussianMixtureParameters
from skdpgen.synthesizers._array_model import subcluster_moments
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

SHAPE, D = (3, 4), 12
CENTER = np.full(D, 0.5)
IMAGES = {"bounds": (0, 1), "image_shape": SHAPE, "classes": [0, 1], "random_state": 0}
SPACE = LatentSpace(CENTER, np.eye(D)[:, :3])
# two classes about (0, 0, 0) and (.1, 0, 0), whose leading directions are the third and the second axis
MIXTURE = GaussianMixtureParameters(
    np.array([0.5, 0.5]),
    np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0]]),
    np.array([np.diag([0.001, 0.002, 0.01]), np.diag([0.001, 0.01, 0.002])]),
    "full",
)


def image_rows(X, y, shape=SHAPE):
    """Rows of images of two classes, of which others are in none, and their codec; nothing of them is learned."""
    y = np.asarray(y)
    public = {"bounds": (0, 1), "l2_bound": 4.0, "classes": [0, 1], "target_type": None, "image_shape": shape}
    rows = ArrayRows(np.asarray(X, dtype=np.float64), np.minimum(y, 1), on_invalid="clip", **public)
    codec = rows.learn({}, 0.0, make_noise_generator("fast"), "add_or_remove_one", n_frequencies=3)
    rows.codes = np.where(y > 1, -1, y)  # as of a class that was not learned
    return rows, codec


def _query(X, y, n_signs=2):
    rows, codec = image_rows(X, y)
    return subcluster_moments(rows, codec, SPACE, MIXTURE, n_signs)


def _codes(rows, codec, space, means, leading):
    """Sub-clusters of classes that are cut at their means, along directions of the latent space."""
    middles = np.einsum("kd,kds->ks", means, leading)
    return ClassCuts(space.center, 1.0, space.basis @ leading, middles).codes(rows.X, rows.codes, codec.scale)


def _image(latent):
    return np.clip(CENTER + SPACE.basis @ np.asarray(latent, dtype=float), 0, 1)


def test_cells_are_the_sides_of_the_leading_directions_of_the_class_and_none_for_other_rows():
    latents = [(0, 0, 0.2), (0, 0, -0.2), (0.2, 0.2, 0), (0.2, -0.2, 0), (0, 0, 0)]
    rows, codec = image_rows([_image(z) for z in latents], [0, 0, 1, 1, 2])
    leading = np.linalg.eigh(MIXTURE.covariances)[1][:, :, 2:]
    codes = _codes(rows, codec, SPACE, MIXTURE.means, leading)
    sides = (np.sign(leading[[0, 0, 1, 1], [2, 2, 1, 1], 0]) * [1, -1, 1, -1] > 0).astype(int)
    np.testing.assert_array_equal(codes, [*(np.array([0, 0, 2, 2]) + sides), -1])
    # along no direction a cell is a class
    np.testing.assert_array_equal(_codes(rows, codec, SPACE, MIXTURE.means, leading[:, :, :0]), [0, 0, 1, 1, -1])


def test_the_cell_of_a_row_at_the_cut_follows_from_no_order_of_additions(rng):
    """BLAS may add in an order that follows the place of a row: a joining row would move others over the cut."""
    basis = np.rint(rng.normal(size=(50, 3)) * 2**8) / 2**8
    X, across = rng.normal(size=(4300, 50)), basis[:, 0]
    X -= (X @ across)[:, None] * across / (across @ across)

    def codes(order):
        rows = SimpleNamespace(X=X[:, order], codes=np.zeros(len(X), dtype=np.int64))
        space = LatentSpace(np.zeros(50), basis[order])
        codec = SimpleNamespace(scale=lambda chunk: chunk)
        return _codes(rows, codec, space, np.zeros((1, 3)), np.eye(3)[None, :, :1])

    found = codes(np.arange(50))
    assert 0.4 < found.mean() < 0.6
    np.testing.assert_array_equal(found, codes(rng.permutation(50)))


@pytest.mark.parametrize("joined", [1, 3, 17])
def test_a_joining_row_leaves_the_cells_of_the_others_and_adds_its_own_moments_alone(rng, joined):
    # most rows are on the very edge between two cells
    X = np.clip(CENTER + 0.01 * rng.integers(-1, 2, (4100, D)), 0, 1)
    y = rng.integers(0, 2, 4100)
    more, their = rng.random((joined, D)), rng.integers(0, 2, joined)
    whole = _query(np.concatenate([more, X]), np.concatenate([their, y]), 3)[0]
    apart = exact_value(_query(X, y, 3)[0]) + exact_value(_query(more, their, 3)[0])
    np.testing.assert_array_equal(exact_value(whole), apart)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("n_signs", [0, 1, 3])
def test_the_sensitivity_of_cells_is_attained_and_not_exceeded(relation, n_signs):
    base = [_image(z) for z in ((0.1, 0, 0), (0, 0.1, 0), (0, 0, -0.1), (0, 0, 0.3))]
    labels = [0, 1, 0, 1]
    far = [np.zeros(D), np.ones(D), *(_image(s * 0.5 * e) for e in np.eye(3) for s in (-1, 1))]
    joined = [([*base, x], [*labels, k]) for x in (*far, CENTER) for k in (0, 1, 2)]
    if relation == "add_or_remove_one":
        pairs = [((base, labels), data) for data in joined]
    else:
        pairs = [(one, other) for one in joined for other in joined]
    assert_sensitivity(lambda data: _query(*data, n_signs)[0], pairs, attained=pairs, relation=relation)


def test_classes_are_cut_where_they_have_rows_for_it():
    assert cut_directions([6000.0] * 10, 0.7, 361) == 3
    assert cut_directions([2000.0] * 10, 2.0, 361) == cut_directions([180.0] * 10, 0.5, 361) == 0
    assert cut_directions([6000.0] * 10, 2.0, 361) == 2
    assert cut_directions([600.0] * 10, 0.0, 361) == 3
    assert cut_directions([6000.0] * 100, 0.1, 361) == 0  # a model of more than 100 MB


def test_a_wide_class_among_narrow_ones_keeps_its_spread(rng):
    y = np.where(rng.random(8000) < 0.3, 0, rng.integers(1, 5, 8000))
    X = np.clip(0.5 + np.where(y == 0, 0.15, 0.02)[:, None] * rng.standard_normal((8000, D)), 0, 1)
    for epsilon in (30.0, np.inf):
        with seeded_noise(3, quiet=True):
            synth = P3GMSynthesizer(epsilon, **{**IMAGES, "classes": range(5)}).fit(X, y)
        drawn = synth.sample(y=np.repeat([0, 1], 3000), random_state=1)[0]
        for k in (0, 1):
            assert drawn[3000 * k : 3000 * (k + 1)].std() == pytest.approx(X[y == k].std(), rel=0.15)


@pytest.mark.parametrize("epsilon", [30.0, np.inf])
def test_a_search_whose_noise_is_low_runs_its_fits_without_cells(epsilon, rng):
    X, y = _crosses(1500, rng)
    search = PrivateSearchCV(
        MomentSynthesizer(**IMAGES), {"n_components": [4, 8]}, epsilon=epsilon, score_bounds=(-50, 50), mean_runs=5.0
    ).fit(X, y)
    assert "cells" not in search.best_estimator_.card_["fit"]["label"]
    search.card_.verify()


def _crosses(n, rng):
    """Images of two classes; those of a class are bright on the left or on the right, never half and half."""
    y = rng.integers(0, 2, n)
    right = rng.integers(0, 2, n).astype(bool)
    X = rng.normal(0.3, 0.05, (n, *SHAPE))
    X[~right, :, :2] += 0.4
    X[right, :, 2:] += 0.4
    X[y == 1, 0] += 0.2
    return np.clip(X, 0, 1).reshape(n, D), y


@pytest.mark.parametrize("synthesizer", [P3GMSynthesizer, MomentSynthesizer])
def test_images_of_two_kinds_are_not_half_one_and_half_the_other(synthesizer, rng, tmp_path):
    X, y = _crosses(6000, rng)
    between = {}
    for epsilon in (1.0, 30.0):
        with seeded_noise(3, quiet=True):
            synth = make_flat(synthesizer, epsilon, **IMAGES).fit(X, y)
        synth.card_.verify()
        assert ("cells" in synth.card_["fit"]["label"]) == (epsilon > 1)
        drawn, labels = synth.sample(4000, random_state=1)
        halves = drawn.reshape(-1, *SHAPE)
        gap = halves[:, :, 2:].mean(axis=(1, 2)) - halves[:, :, :2].mean(axis=(1, 2))
        between[epsilon] = np.mean(np.abs(gap) < 0.15)
        assert abs(labels.mean() - 0.5) < 0.05
        for k in (0, 1):
            np.testing.assert_allclose(drawn[labels == k].mean(axis=0), X[y == k].mean(axis=0), atol=0.05)
        assert np.isfinite(synth.score(X, y))
        synth.save(tmp_path / "images.safetensors")
        again = load(tmp_path / "images.safetensors")
        np.testing.assert_array_equal(again.sample(50, random_state=2)[0], synth.sample(50, random_state=2)[0])
        if synthesizer is MomentSynthesizer:
            given, _ = synth.sample(500, given={0: 0.95}, random_state=3)
            assert (given[:, 0] == 0.95).all()
            assert given[:, [4, 8]].mean() > given[:, [3, 7, 11]].mean() + 0.2  # bright on the left goes together
    assert between[1.0] > 0.2
    assert between[30.0] < 0.05


@pytest.mark.parametrize(
    ("parameters", "labelled"),
    [({"prior": "gaussian", "classes": None}, False), ({"prior": "gaussian"}, True), ({"image_shape": None}, True)],
)
def test_cells_are_of_images_of_classes_alone(parameters, labelled, rng):
    X, y = _crosses(1500, rng)
    synth = P3GMSynthesizer(50.0, **{**IMAGES, **parameters}).fit(X, y if labelled else None)
    assert "cells" not in synth.card_["fit"]["label"]


def test_a_class_that_hardly_fits_what_is_given_is_drawn_by_its_nearest_cells(rng):
    X, y = _crosses(6000, rng)
    with seeded_noise(3, quiet=True):
        synth = MomentSynthesizer(30.0, **IMAGES).fit(X, y)
    left = {i: 0.75 if i % 4 < 2 else 0.25 for i in range(8)}
    for given in (left, {i: 1.0 - value for i, value in left.items()}):
        drawn, labels = synth.sample(y=np.repeat([0, 1], 300), given=given, random_state=0)
        bright_left = drawn[:, 8:10].mean(axis=1) > drawn[:, 10:].mean(axis=1)
        for k in (0, 1):
            assert np.mean(bright_left[labels == k] == (given is left)) > 0.9


def test_a_class_without_rows_under_what_is_given_is_drawn_all_the_same(rng):
    generator = LinearGenerator(
        SPACE,
        GaussianMixtureParameters(
            np.array([0.1, 0.3, 0.0, 0.6]), np.zeros((4, 3)), np.tile(1e-4 * np.eye(3), (4, 1, 1)), "full"
        ),
        np.tile(CENTER, (4, 1)), np.zeros(D), np.ones(D), None, 0.0, 2,
    )  # fmt: skip
    np.testing.assert_allclose(class_weights(generator.mixture.weights, 2), [0.4, 0.6])
    cells = generator.draw_components(np.repeat([0, 1], 5000), rng)
    np.testing.assert_allclose(np.bincount(cells, minlength=4) / 5000, [0.25, 0.75, 0.0, 1.0], atol=0.03)
    assert set(generator.draw_components(np.zeros(9, dtype=int), rng, np.array([0.0, 0.0, 1.0, 1.0]))) <= {0, 1}
    assert generator.sample(np.repeat([0, 1], 50), rng).shape == (100, D)


@pytest.mark.parametrize("epsilon", [3.0, 30.0])
def test_images_of_few_components_keep_their_class_means(epsilon, rng):
    # the classes differ in one pixel; the images of both along a direction without it
    y = rng.integers(0, 2, 6000)
    X = 0.4 + 0.25 * rng.normal(size=(6000, 1)) * np.repeat([1.0, 0.0], [4, 8]) + 0.02 * rng.normal(size=(6000, D))
    X[:, 11] += 0.3 * y
    with seeded_noise(3, quiet=True):
        synth = P3GMSynthesizer(epsilon, n_components=1, **IMAGES).fit(np.clip(X, 0, 1), y)
    drawn, labels = synth.sample(4000, random_state=1)
    gap = drawn[labels == 1].mean(axis=0) - drawn[labels == 0].mean(axis=0)
    assert gap[11] == pytest.approx(0.3, abs=0.1)
    assert np.abs(gap[:11]).max() < 0.1
    assert drawn[labels == 0].std(axis=0)[8:].min() > 0  # no direction is without any variance
