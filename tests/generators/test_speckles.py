"""Images of pen strokes have no pixel that stands out from all its neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from _flat import make_flat

from skdpgen import MomentSynthesizer, P3GMSynthesizer, load
from skdpgen.generators.gaussians import LinearGenerator, without_speckles
from skdpgen.testing import seeded_noise

SHAPE = (16, 17)


@pytest.fixture(scope="module")
def strokes():
    """Vertical or horizontal bars, two pixels wide, in black and white."""
    rng = np.random.default_rng(3)
    images, y = np.zeros((400, *SHAPE)), np.arange(400) % 2
    for image, k, at in zip(images, y, rng.integers(3, 12, 400)):
        image[(slice(2, 14), slice(at, at + 2)) if k else (slice(at, at + 2), slice(2, 14))] = 1.0
    return images.reshape(400, -1), y


def _fit(kind, X, y, shape=SHAPE, **more):
    facts = {"bounds": (0, 1), "l2_bound": 9.0, "classes": [0, 1], "image_shape": shape, "random_state": 0}
    with seeded_noise(1, quiet=True):
        return make_flat(kind, 4.0, **facts, **more).fit(X, y)


@pytest.fixture(scope="module")
def fitted(strokes):
    released = {MomentSynthesizer: {}, P3GMSynthesizer: {"decoder": "released"}}
    return {kind: _fit(kind, *strokes, **more) for kind, more in released.items()}


@pytest.mark.parametrize("shape", [(5, 4), (3, 7, 2), (1, 6), (2, 1)])
def test_each_pixel_is_clipped_to_the_range_of_its_neighbours(rng, shape):
    images = rng.random((6, int(np.prod(shape))))
    found = without_speckles(images, shape).reshape(-1, *(*shape, 1)[:3])
    for image, own in zip(images.reshape(found.shape), found):
        for i, j, channel in np.ndindex(image.shape):
            part = image[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2, channel]
            others = np.delete(part.ravel(), min(i, 1) * part.shape[1] + min(j, 1))
            assert own[i, j, channel] == np.clip(image[i, j, channel], others.min(), others.max())


def test_strokes_stay_and_single_pixels_go(strokes):
    X, _ = strokes
    np.testing.assert_array_equal(without_speckles(X, SHAPE), X)
    dirty = X.copy()
    dirty[:, 0] = 1.0  # a corner
    np.testing.assert_array_equal(without_speckles(dirty, SHAPE), X)


@pytest.mark.parametrize("kind", [MomentSynthesizer, P3GMSynthesizer])
def test_sampled_strokes_have_no_speckle_also_from_a_file(fitted, kind, tmp_path):
    synth = fitted[kind]
    synth.save(tmp_path / "model.safetensors")
    drawn, _ = synth.sample(60, random_state=1)
    np.testing.assert_allclose(without_speckles(drawn, SHAPE), drawn, atol=1e-6)
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.sample(60, random_state=1)[0], drawn)
    again.model_.generator.cleaned = None
    speckled, _ = again.sample(60, random_state=1)
    assert np.abs(without_speckles(speckled, SHAPE) - speckled).max() > 0.1


def test_grey_and_tiny_images_keep_all_their_pixels(strokes, rng):
    X, y = strokes
    grey = _fit(MomentSynthesizer, rng.uniform(0.2, 0.8, X.shape), y)
    tiny = _fit(MomentSynthesizer, X[:, : 15 * 17], y, shape=(15, 17))
    assert grey.model_.generator.cleaned is None
    assert tiny.model_.generator.cleaned is None


@pytest.mark.parametrize("shape", [[10**5, 10**5], [272], [16, 17, 1, 1], [16, 16], []])
def test_a_file_whose_images_have_another_shape_is_refused(fitted, shape):
    state = fitted[MomentSynthesizer].model_.generator.to_state()
    assert LinearGenerator.from_state(state).cleaned == SHAPE
    with pytest.raises(ValueError, match="shape of the images"):
        LinearGenerator.from_state({**state, "cleaned": shape})
