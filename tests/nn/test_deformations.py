"""Smooth random deformations of sampled images."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skdpgen.nn import _deformations
from skdpgen.nn._deformations import deform


def _displaced(rng, shape, axis, displacement, n=400):
    """By how many pixels the pixels of images moved along an axis, far from the border."""
    side = shape[axis]
    ramp = np.linspace(0.0, 1.0, side)
    image = np.broadcast_to(ramp[:, None] if axis == 0 else ramp, shape)
    moved = deform(np.tile(image.ravel(), (n, 1)), shape, displacement, rng).reshape(n, *shape)
    return ((moved - image) * (side - 1))[:, side // 3 : -side // 3, side // 3 : -side // 3]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("displacement", [0.03, 0.05])
def test_pixels_move_as_far_as_stated_together_with_their_neighbours(rng, monkeypatch, axis, displacement):
    monkeypatch.setattr(_deformations, "_TURN", 0.0)
    moved = _displaced(rng, (28, 28), axis, displacement)
    assert moved.std() == pytest.approx(displacement * 27, rel=0.05)
    assert abs(moved.mean()) < 0.2 * moved.std()
    assert np.corrcoef(moved[:, 4, 4], moved[:, 4, 5])[0, 1] > 0.9
    far = _displaced(rng, (60, 60), axis, displacement)
    assert abs(np.corrcoef(far[:, 0, 0], far[:, -1, -1])[0, 1]) < 0.6


def test_images_turn_about_their_middle(rng, monkeypatch):
    monkeypatch.setattr(_deformations, "_smoothing", lambda side: np.zeros((side, side), dtype=np.float32))
    moved = _displaced(rng, (29, 29), 0, 0.03)
    assert np.abs(moved[:, 5, 5]).max() < 0.01
    right, left = moved[:, 5, 9], moved[:, 5, 1]
    np.testing.assert_allclose(right, -left, atol=0.05)
    assert right.std() == pytest.approx(4 * 3.4 * 0.03, rel=0.1)


def test_images_of_one_value_stay_and_others_stay_in_the_box(rng):
    np.testing.assert_allclose(deform(np.full((3, 54), 0.3), (9, 6), 0.1, rng), 0.3, atol=1e-6)
    found = deform(rng.integers(2, size=(50, 54)), (9, 6), 0.1, rng)
    assert found.shape == (50, 54)
    assert found.min() >= 0
    assert found.max() <= 1
    assert deform(np.empty((0, 54)), (9, 6), 0.1, rng).shape == (0, 54)


def test_channels_move_together_and_batches_change_only_the_draws(rng, monkeypatch):
    grey = rng.random((7, 9, 6))
    colour = np.repeat(grey[..., None], 3, axis=3).reshape(7, -1)
    one = deform(grey.reshape(7, -1), (9, 6), 0.03, np.random.default_rng(0))
    three = deform(colour, (9, 6, 3), 0.03, np.random.default_rng(0)).reshape(7, -1, 3)
    for channel in range(3):
        np.testing.assert_allclose(three[..., channel], one, atol=1e-6)
    assert_array_equal(one, deform(grey.reshape(7, -1), (9, 6), 0.03, np.random.default_rng(0)))
    monkeypatch.setattr(_deformations, "_BATCH", 1)
    single = deform(grey.reshape(7, -1), (9, 6), 0.03, np.random.default_rng(0))
    assert single.shape == one.shape
    assert np.ptp(single - one) > 0
