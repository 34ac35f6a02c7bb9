"""Figures that stand upright: a public map of each image by itself, and models of such images."""

import numpy as np
import pytest
from _claims import RELATIONS, assert_sensitivity
from sklearn.datasets import load_digits

from skdpgen import ImageFeatures, P3GMSynthesizer, PrivacyAccountant, load
from skdpgen.data.arrays import ArrayCodec, ArrayRows
from skdpgen.data.image_poses import HIGHEST, LOWEST, N_POSE, posed, poses_of, stand_upright
from skdpgen.exceptions import InvalidInputError
from skdpgen.generators import refined_images
from skdpgen.mechanisms import class_moments
from skdpgen.mechanisms._moments import CLASS_COUNT_WEIGHT, CLASS_MEAN_WEIGHT
from skdpgen.synthesizers._array_model import ArrayModel
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

SHAPE = (28, 28)
FACTS = {"bounds": (0, 16), "classes": range(10), "image_shape": (8, 8), "random_state": 0, "progress": False}


def _figure(x=0.0, y=0.0, slant=0.0, wide=1.0, high=1.0, shape=SHAPE):
    """A smooth figure without symmetry, in a given pose."""
    down, across = (np.linspace(-1, 1, side) for side in shape)
    down, across = np.meshgrid(down, across, indexing="ij")
    v = (down - y) / high
    u = (across - x - slant * (down - y)) / wide
    parts = [(0.0, -0.3, 0.22, 0.16), (0.15, 0.3, 0.12, 0.25), (-0.2, 0.25, 0.15, 0.12)]
    figure = sum(np.exp(-(((u - a) / s) ** 2) - ((v - b) / t) ** 2) for a, b, s, t in parts)
    return np.clip(figure, 0, 1).ravel()


def _drawn(rng, n):
    """Figures in random poses."""
    return np.array([_figure(*rng.uniform([-0.2, -0.2, -0.4, 0.8, 0.8], [0.2, 0.2, 0.4, 1.3, 1.2])) for _ in range(n)])


# ---- the map ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 37])
def test_no_bit_of_an_upright_image_depends_on_other_images(rng, n):
    images = np.concatenate([_drawn(rng, 20), rng.random((17, 784))])
    poses = poses_of(images, SHAPE)
    whole, back = stand_upright(images, poses, SHAPE), posed(images, poses, SHAPE)
    for start in range(0, len(images), n):
        part = slice(start, start + n)
        np.testing.assert_array_equal(poses_of(images[part], SHAPE), poses[part])
        np.testing.assert_array_equal(stand_upright(images[part], poses[part], SHAPE), whole[part])
        np.testing.assert_array_equal(posed(images[part], poses[part], SHAPE), back[part])


def test_figures_of_all_poses_are_alike_once_they_stand_upright(rng):
    images = _drawn(rng, 30)
    found = stand_upright(images, poses_of(images, SHAPE), SHAPE)
    assert found.std(axis=0).max() < 0.1 < 0.3 < images.std(axis=0).max()


def test_a_pose_is_measured(rng):
    upright, other = poses_of(np.array([_figure(), _figure(0.15, -0.1, 0.3, 1.2, 0.8)]), SHAPE)
    np.testing.assert_allclose(other[2] - upright[2], 0.3, atol=0.03)
    np.testing.assert_allclose(other[3:] / upright[3:], [1.2, 0.8], atol=0.05)
    assert other[0] > upright[0] + 0.1
    assert other[1] < upright[1] - 0.05


def test_posed_undoes_stand_upright(rng):
    images = _drawn(rng, 30)
    poses = poses_of(images, SHAPE)
    np.testing.assert_allclose(posed(stand_upright(images, poses, SHAPE), poses, SHAPE), images, atol=0.08)


@pytest.mark.parametrize("background", [0.0, 0.9])
def test_beyond_the_frame_is_background_and_no_figure_that_the_frame_cuts(background):
    images = np.full((1, *SHAPE), background)
    images[0, 0, 10:14] = 0.5  # ink at the top edge
    small = np.array([[0.0, 0.0, 0.0, 0.5, 0.5]])  # drawn in half its size, so that the frame is far inside
    found = posed(images.reshape(1, -1), small, SHAPE).reshape(SHAPE)
    np.testing.assert_allclose(found[: SHAPE[0] // 5], background, atol=1e-12)
    np.testing.assert_allclose(found[:, : SHAPE[1] // 5], background, atol=1e-12)


def test_the_background_may_be_bright_and_colours_move_together(rng):
    images = _drawn(rng, 10)
    np.testing.assert_allclose(poses_of(1 - images, SHAPE), poses_of(images, SHAPE), atol=1e-6)
    colour = np.repeat(images, 3, axis=1) * np.tile([0.8, 0.4, 0.2], 784)
    poses = poses_of(colour, (28, 28, 3))
    np.testing.assert_allclose(poses, poses_of(images, SHAPE), atol=1e-3)
    found = stand_upright(colour, poses, (28, 28, 3)).reshape(-1, 784, 3)
    np.testing.assert_allclose(found[:, :, 1], found[:, :, 0] / 2, atol=1e-9)


def test_hostile_images_have_a_pose_within_the_limits(rng):
    corner = np.zeros((1, 784))
    corner[0, 0] = 1.0
    images = np.concatenate([np.zeros((1, 784)), np.ones((1, 784)), corner, rng.random((4, 784)).round()])
    poses = poses_of(images, SHAPE)
    assert ((poses >= LOWEST) & (poses <= HIGHEST)).all()
    np.testing.assert_array_equal(poses[:2], [[0, 0, 0, 1, 1]] * 2)
    for found in (stand_upright(images, poses, SHAPE), posed(images, poses, SHAPE)):
        assert ((found >= 0) & (found <= 1)).all()


def _moments(X, y):
    """The release `moments` of upright images of two classes, about two centers; without noise."""
    public = {"bounds": (0, 1), "l2_bound": 1.0, "classes": [0, 1], "target_type": None, "image_shape": SHAPE}
    rows = ArrayRows(X, y, on_invalid="clip", **public)
    noise = make_noise_generator("fast")
    codec = rows.learn({}, 0.0, noise, "add_or_remove_one", n_frequencies=8, upright=True)
    centers = np.zeros((2, codec.lowpass.shape[1]))
    return class_moments(
        rows.X, rows.codes, 2, l2_bound=codec.row_norm, centers=centers, transform=codec.encode, exact=True,
        count_weight=CLASS_COUNT_WEIGHT, mean_weight=CLASS_MEAN_WEIGHT,
    )  # fmt: skip


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_sensitivity_of_moments_of_upright_images_is_attained_and_not_exceeded(rng, relation):
    base, labels = _drawn(rng, 4), [0, 1, 0, 1]
    far = [np.zeros(784), np.ones(784), *rng.integers(0, 2, (2, 784)).astype(float), *_drawn(rng, 2)]
    joined = [(np.vstack([base, x]), np.array([*labels, k])) for x in far for k in (0, 1)]
    if relation == "add_or_remove_one":
        pairs = [((base, np.array(labels)), data) for data in joined]
    else:
        pairs = [(one, other) for one in joined for other in joined]
    assert_sensitivity(lambda data: _moments(*data), pairs, attained=pairs, relation=relation)


# ---- models of upright images --------------------------------------------------------------------------------------
@pytest.fixture
def few(monkeypatch):
    """Fewer synthetic images."""
    monkeypatch.setattr(refined_images, "_IMAGES", 1000)
    monkeypatch.setattr(refined_images, "_TRIED", 1000)


def _synthesizer(upright=True, **parameters):
    decoder = ImageFeatures(20, n_steps=2, upright=upright)
    return P3GMSynthesizer(50.0, decoder=decoder, **{**FACTS, **parameters})


def test_upright_images_are_fitted_sampled_scored_and_saved(few, tmp_path):
    X, y = load_digits(return_X_y=True)
    synth = _synthesizer().fit(X, y)
    assert synth.bounds_.shape == (64, 2)
    rows, labels = synth.sample(200, random_state=0)
    assert rows.shape == (200, 64)
    assert rows.min() >= 0
    assert rows.max() <= 16
    assert set(labels) <= set(range(10))
    assert synth.inverse_transform(synth.transform(X[:5])).shape == (5, 64)
    assert np.isfinite(synth.score(X[:5]))
    synth.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors").sample(200, random_state=0)
    np.testing.assert_array_equal(again[0], rows)
    with pytest.raises(ValueError, match="upright"):
        synth.sample(5, given={3: 4.0})


def test_samples_have_the_poses_of_the_rows(few, rng):
    images = np.array([_figure(0, 0, slant, shape=(16, 16)) for slant in rng.choice([-0.4, 0.4], 3000)])
    facts = {"bounds": (0, 1), "image_shape": (16, 16), "classes": None}
    synth = _synthesizer(**facts).fit(images)
    slants = poses_of(synth.sample(500, random_state=0), (16, 16))[:, 2]
    of_rows = poses_of(images, (16, 16))[:, 2]
    assert abs(slants.mean() - of_rows.mean()) < 0.1
    assert 0.6 < slants.std() / of_rows.std() < 1.5


def test_upright_changes_the_samples_and_no_charge(few):
    X, y = load_digits(return_X_y=True)
    fits = []
    for upright in (False, True):
        with seeded_noise(0, quiet=True):
            fits.append(_synthesizer(upright).fit(X, y))
    releases = [fit.accountant_.report()[["release", "noise_multiplier", "share"]] for fit in fits]
    assert releases[0].equals(releases[1])
    samples = [fit.sample(50, random_state=0)[0] for fit in fits]
    assert not np.array_equal(*samples)


def test_upright_images_need_declared_bounds_before_the_charge():
    X, y = load_digits(return_X_y=True)
    accountant = PrivacyAccountant(100.0, 1e-3)
    with pytest.raises(InvalidInputError, match=r"upright=True\) needs bounds="):
        _synthesizer(bounds=None, accountant=accountant).fit(X, y)
    assert not accountant.charges


def test_a_generator_of_other_columns_than_the_rows_is_refused(few):
    X, y = load_digits(return_X_y=True)
    upright, plain = (_synthesizer(upright).fit(X, y).model_.to_state() for upright in (True, False))
    for state in ({**upright, "generator": plain["generator"]}, {**upright, "codec": plain["codec"]}):
        with pytest.raises(ValueError, match="columns of the generator"):
            ArrayModel.from_state(state)


@pytest.mark.parametrize("broken", [{"upright": 1}, {"image_shape": [8, 9]}, {"image_shape": None}])
def test_a_file_whose_columns_are_not_those_of_upright_images_is_refused(broken):
    n = 64 + N_POSE
    state = {
        "lower": np.zeros(n), "upper": np.ones(n), "l2_bound": 3.0, "labels": None, "image_shape": [8, 8],
        "n_frequencies": 8, "conditional": True, "upright": True,
    }  # fmt: skip
    assert ArrayCodec.from_state(state).n_features == 64
    with pytest.raises(ValueError, match="upright"):
        ArrayCodec.from_state({**state, **broken})
