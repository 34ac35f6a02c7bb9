"""Colour images: patches of the two photographs that scikit-learn ships, class by photograph."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch
from _claims import RELATIONS, assert_sensitivity
from _flat import make_flat
from _short_fits import short_postprocessing
from sklearn.datasets import load_digits, load_sample_images
from sklearn.ensemble import RandomForestClassifier
from test_subclusters import image_rows

from skdpgen import (
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPMERFSynthesizer,
    MomentSynthesizer,
    P3GMSynthesizer,
    PriVAESynthesizer,
    load,
)
from skdpgen.data.arrays import ArrayCodec, ArrayRows, lowpass_basis
from skdpgen.data.scaling import Box
from skdpgen.generators import refined_images
from skdpgen.generators.refined_images import FeatureSpace
from skdpgen.mechanisms import exact_value
from skdpgen.nn._dp2vae import _PatchGrid
from skdpgen.nn._networks import FromImage, ToImage
from skdpgen.nn._wavelets import WaveletFeatures, wavelet_features
from skdpgen.synthesizers._array_model import basis_sizes, feature_moments
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

SIDE = 16
SHAPE, D = (SIDE, SIDE, 3), SIDE * SIDE * 3
PUBLIC = {"bounds": (0, 255), "classes": range(2), "image_shape": SHAPE, "random_state": 0}
SYNTHESIZERS = {
    "p3gm": (P3GMSynthesizer, {}),
    "p3gm without features": (P3GMSynthesizer, {"decoder": "released"}),
    "p3gm with a network": (P3GMSynthesizer, {"decoder": "net", "steps": 3}),
    "moment": (MomentSynthesizer, {}),
    "dp2vae": (DP2VAESynthesizer, {"n_subsets": 4, "pretrain_steps": 2, "steps": 2, "warm_start_steps": 2}),
    "privae": (PriVAESynthesizer, {"steps": 2, "warm_start_steps": 2}),
    "dp-merf": (DPMERFSynthesizer, {"steps": 20, "n_frequencies": 200}),
    "dp-cgan": (DPCGANSynthesizer, {"steps": 2}),
}


def _patches(columns, stride):
    """Patches of SIDE pixels of some columns of each photograph, and the number of their photograph."""
    found = []
    for photo in load_sample_images().images:
        parts = [
            np.lib.stride_tricks.sliding_window_view(photo[:, part], (SIDE, SIDE), axis=(0, 1)) for part in columns
        ]
        found.append([part[::stride, ::stride].transpose(0, 1, 3, 4, 2).reshape(-1, D) for part in parts])
    found = [np.concatenate(parts) for parts in found]
    return np.concatenate(found), np.repeat([0, 1], [len(rows) for rows in found])


@pytest.fixture(scope="module")
def patches():
    """2,340 patches of strips of 128 columns, beside which strips of 32 are left out."""
    X, y = _patches([slice(start, start + 128) for start in (96, 256, 416)], 8)
    return X[::2], y[::2]


@pytest.fixture(scope="module")
def held_out():
    return _patches([slice(start, start + 32) for start in (64, 224, 384, 544)], 16)


@pytest.fixture(scope="module")
def fitted(patches):
    """Name of a synthesizer to the synthesizer, fitted once; features are chosen on fewer synthetic images."""

    @functools.cache
    def fit(name):
        made, options = SYNTHESIZERS[name]
        with seeded_noise(1, quiet=True), short_postprocessing():
            return make_flat(made, 10.0, **PUBLIC, **options).fit(*patches)

    return fit


def _channel_correlations(rows):
    """Correlations of the channels, of pixels and of the differences between one pixel and the pixel below it."""
    images = np.asarray(rows, dtype=float).reshape(-1, *SHAPE)
    return [np.corrcoef(a.reshape(-1, 3).T)[np.triu_indices(3, 1)] for a in (images, np.diff(images, axis=1))]


# ---- every synthesizer of images -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_colour_images_are_fitted_sampled_and_saved(name, fitted, tmp_path):
    synth = fitted(name)
    assert synth.accountant_.epsilon_spent() == pytest.approx(10.0, rel=1e-3)
    rows, labels = expected = synth.sample(20, random_state=3)
    assert rows.shape == (20, D)
    assert rows.min() >= 0
    assert rows.max() <= 255
    assert set(labels) == {0, 1}
    synth.save(tmp_path / "model.safetensors")
    for found, one in zip(load(tmp_path / "model.safetensors").sample(20, random_state=3), expected):
        np.testing.assert_array_equal(found, one)


@pytest.mark.parametrize("name", ["p3gm", "p3gm without features", "p3gm with a network", "moment", "dp2vae"])
def test_patches_have_the_colours_of_their_photograph(name, fitted, patches):
    """The sky of one photograph is bright in every channel; the leaves of the other are dark, above all in red."""
    rows, labels = fitted(name).sample(y=np.repeat([0, 1], 150), random_state=0)
    real, found = (
        np.array([X[y == c].reshape(-1, 3).mean(axis=0) for c in (0, 1)]) for X, y in (patches, (rows, labels))
    )
    np.testing.assert_allclose(found, real, atol=25)


@pytest.mark.parametrize("name", ["p3gm", "p3gm with a network", "moment", "dp2vae"])
def test_a_classifier_of_synthetic_patches_knows_those_of_the_photographs(name, fitted, held_out):
    """Of as many real patches it knows .96."""
    rows, labels = fitted(name).sample(600, random_state=0)
    assert RandomForestClassifier(50, random_state=0).fit(rows, labels).score(*held_out) > 0.78


@pytest.mark.parametrize("name", ["p3gm", "p3gm with a network", "moment", "dp2vae"])
def test_channels_go_together_in_detail_as_in_the_photographs(name, fitted, patches):
    """If noise were in each channel by itself, there would be speckles of all colours."""
    rows, _ = fitted(name).sample(300, random_state=0)
    (real, real_detail), (found, detail) = map(_channel_correlations, (patches[0], rows))
    assert (real_detail > 0.85).all()
    assert (detail > 0.55).all()
    np.testing.assert_allclose(found, real, atol=0.15)


def test_channels_by_themselves_do_not(patches):
    """The bound above finds a basis of each channel by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skdpgen.synthesizers._array_model.in_colour", lambda shape: False)
        rows, _ = MomentSynthesizer(10.0, **PUBLIC).fit(*patches).sample(300)
    assert (_channel_correlations(rows)[1] < 0.3).all()


# ---- one channel ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("made", [P3GMSynthesizer, MomentSynthesizer])
@pytest.mark.filterwarnings("ignore:the noise hides the images::")  # there are few of them
@pytest.mark.usefixtures("short_fits")
def test_one_channel_is_the_same_with_and_without_its_size(made):
    X, y = load_digits(return_X_y=True)
    X = np.kron(X.reshape(-1, 8, 8)[:150], np.ones((2, 2))).reshape(-1, SIDE * SIDE)
    public = {"bounds": (0, 16), "classes": range(10), "random_state": 0}
    samples = []
    for shape in ((SIDE, SIDE), (SIDE, SIDE, 1)):
        with seeded_noise(1, quiet=True):
            samples.append(made(5.0, image_shape=shape, **public).fit(X, y[:150]).sample(20, random_state=0))
    for one, other in zip(*samples):
        np.testing.assert_array_equal(one, other)


# ---- the stages ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_colour", [2, 3, 5])
@pytest.mark.parametrize("shape", [(5, 6, 3), (8, 5, 3)])
def test_the_basis_of_colour_images_is_orthonormal_and_keeps_flat_colours(shape, n_colour):
    basis = lowpass_basis(shape, 5, n_colour)
    assert basis.shape == (np.prod(shape), 25 + 2 * n_colour**2)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    for colour in ((1.0, 0, 0), (0, 1.0, 0), (0.2, 0.3, 0.9)):
        flat = np.tile(colour, shape[0] * shape[1])
        np.testing.assert_allclose(basis @ (basis.T @ flat), flat, atol=1e-12)


def test_all_cosines_of_colour_are_those_of_each_channel():
    """Up to a rotation: both have the same span."""
    whole, channels = lowpass_basis((6, 7, 3), 4, 4), lowpass_basis((6, 7, 3), 4)
    np.testing.assert_allclose(whole @ whole.T, channels @ channels.T, atol=1e-12)


@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 1), (16, 16, 2), (16, 16, 4)])
def test_only_three_channels_are_colours(shape):
    assert basis_sizes(shape, 2.0)["n_colour"] is None
    assert basis_sizes((16, 16, 3), 2.0)["n_colour"] == -(-basis_sizes(shape, 2.0)["n_frequencies"] // 2)
    assert basis_sizes((16, 16, 3), 0.0) == {"n_frequencies": 16, "n_colour": None}  # no noise: all detail


def test_features_of_colour_are_those_of_the_mean_and_of_differences(rng):
    shape, rows = (8, 12, 3), rng.random((4, 8 * 12 * 3))
    red, green, blue = (rows.reshape(4, 96, 3)[..., c] for c in range(3))
    parts = (red + 2 * green + blue) / 4, (red - blue) / 2, (2 * green - red - blue) / 4
    found = wavelet_features(rows, shape, exact=True, colour=True)
    wanted = np.hstack([wavelet_features(part, shape[:2], exact=True) for part in parts])
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    alone = np.concatenate([wavelet_features(row[None], shape, exact=True, colour=True) for row in rows])
    np.testing.assert_array_equal(found, alone)
    steps = WaveletFeatures(shape, colour=True)(torch.from_numpy(rows), exact=True).numpy() * 2.0**40
    np.testing.assert_array_equal(steps, np.rint(steps))  # none of their sums is rounded


def _space(shape, radius):
    d, wavelets = int(np.prod(shape)), {"n_scales": 2, "width": 1.4, "colour": True}
    module = WaveletFeatures(shape, **wavelets)
    matrix = np.random.default_rng(5).normal(size=(module.n_features, 3))
    centers = module(torch.full((1, d), 0.5, dtype=torch.float64)).numpy() @ matrix + [[0.0], [0.05]]
    return FeatureSpace(shape, wavelets, Box(np.zeros(d), np.ones(d)), matrix, np.arange(2), centers, centers, radius)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_sensitivity_of_features_of_colour_is_attained_and_not_exceeded(rng, relation, apart):
    shape, d = (4, 5, 3), 60
    space, base, labels = _space(shape, 0.02), rng.random((4, d)), [0, 1, 0, 1]
    far = [np.zeros(d), np.tile([0.0, 0.0, 1.0], 20), *rng.integers(0, 2, (2 if apart else 7, d)).astype(float)]
    joined = [(np.vstack([base, x]), np.array([*labels, k])) for x in far for k in (0, 1, 2)[: 2 + apart]]
    if relation == "add_or_remove_one":
        pairs = [((base, np.array(labels)), data) for data in joined]
    else:
        pairs = [(one, other) for one in joined for other in joined]

    def query(data):
        return feature_moments(*image_rows(*data, shape), space, n_groups=2 if apart else 1)

    assert_sensitivity(query, pairs, attained=pairs, relation=relation)


def test_a_row_of_colour_adds_its_own_moments_alone(rng):
    space, shape = _space((4, 5, 3), 0.2), (4, 5, 3)
    X, more, y, their = rng.random((100, 60)), rng.random((3, 60)), rng.integers(0, 3, 100), rng.integers(0, 3, 3)
    whole, *parts = (
        exact_value(feature_moments(*image_rows(*data, shape), space))
        for data in ((np.concatenate([more, X]), np.concatenate([their, y])), (X, y), (more, their))
    )
    np.testing.assert_array_equal(whole, sum(parts))


def test_encoded_rows_of_colour_do_not_depend_on_their_place_and_are_no_longer(rng):
    X = rng.integers(0, 256, (50, D))
    public = {"bounds": (0, 255), "l2_bound": 8.0, "classes": None, "target_type": None, "image_shape": SHAPE}
    rows = ArrayRows(X.astype(float), None, on_invalid="clip", **public)
    codec = rows.learn({}, 0.0, make_noise_generator("fast"), "add_or_remove_one", n_frequencies=9, n_colour=5)
    encoded = codec.encode(X)
    assert encoded.shape == (50, 81 + 50)
    np.testing.assert_array_equal(encoded[::-1], codec.encode(X[::-1]))
    assert (np.linalg.norm(encoded, axis=1) <= np.linalg.norm(codec.scale(X), axis=1) + 1e-3).all()


@pytest.mark.parametrize("shape", [(6, 10, 3), (16, 16, 3)])
def test_networks_have_the_channels_of_a_pixel_where_rows_have_them(rng, shape):
    rows = torch.from_numpy(rng.random((2, int(np.prod(shape)))))
    images = ToImage(shape)(rows)
    torch.testing.assert_close(FromImage(shape)(images), rows)
    (top, left), (height, width, _) = ToImage(shape).low, shape
    whole = images[:, :, top : top + height, left : left + width]
    for c, row in itertools.product(range(3), range(2)):
        torch.testing.assert_close(whole[row, c], rows[row].reshape(shape)[..., c])
    grid = _PatchGrid(shape)
    patches = grid.split(rows)
    torch.testing.assert_close(patches[0, 0].reshape(4, 4, 3), rows[0].reshape(shape)[:4, :4])
    torch.testing.assert_close(grid.join(patches), rows)


# ---- files ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_colour": 0}, "n_colour"),
        ({"n_colour": 10}, "n_colour"),
        ({"n_colour": 4, "image_shape": [SIDE, SIDE * 3]}, "three channels"),
        ({"n_colour": 4, "image_shape": None}, "three channels"),
    ],
)
def test_a_file_with_impossible_colours_is_refused(wrong, message):
    scaling = {"lower": np.zeros(D), "upper": np.ones(D), "l2_bound": 3.0, "labels": None, "conditional": True}
    state = {**scaling, "image_shape": list(SHAPE), "n_frequencies": 9, "n_colour": 5}
    assert ArrayCodec.from_state(state).n_colour == 5
    with pytest.raises(ValueError, match=message):
        ArrayCodec.from_state({**state, **wrong})
    del state["n_colour"]  # as of a file of an earlier version
    assert ArrayCodec.from_state(state).lowpass.shape == (D, 3 * 81)


def test_a_file_with_features_of_colour_needs_three_channels():
    state = {"n_scales": 2, "width": 1.4, "n_steps": 8, "rate": 0.1}
    assert refined_images._read_wavelets(state, SHAPE)[0]["colour"] is False
    assert refined_images._read_wavelets({**state, "colour": True}, SHAPE)[0]["colour"] is True
    for wrong in ("yes", 1):
        with pytest.raises(ValueError, match="three channels"):
            refined_images._read_wavelets({**state, "colour": wrong}, SHAPE)
    with pytest.raises(ValueError, match="three channels"):
        refined_images._read_wavelets({**state, "colour": True}, (SIDE, SIDE))
