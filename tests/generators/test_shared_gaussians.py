from __future__ import annotations

import numpy as np
import pytest

from skdpgen.generators.gaussians import hides_shapes, shared_latents, shrink_centers
from skdpgen.mechanisms import Moments


def test_shapes_are_shared_where_noise_hides_them_in_wide_rows_of_several_classes_alone():
    assert hides_shapes(7000, 2, 617, 4.0)
    assert not hides_shapes(10_000, 5, 99, 4.0)  # not wide
    assert not hides_shapes(7000, 1, 617, 4.0)  # nothing to share
    assert not hides_shapes(10_000, 2, 178, 4.0)  # visible
    assert not hides_shapes(7000, 2, 617, 0.0)
    assert hides_shapes(-5.0, 2, 617, 4.0)  # a noisy number of rows


def test_centers_are_shrunk_by_their_noise(rng):
    truth = np.array([[0.0] * 200, [1.0] * 200])
    counts = np.array([5000.0, 100.0])
    noisy = truth + 150 * rng.standard_normal((2, 200)) / counts[:, None]
    found = shrink_centers(noisy, counts, 150.0)
    assert np.linalg.norm(found[1] - truth[1]) < 0.95 * np.linalg.norm(noisy[1] - truth[1])
    np.testing.assert_allclose(counts @ found, counts @ noisy, atol=0.05 * 5000)
    np.testing.assert_allclose(shrink_centers(noisy, counts, 0.0), noisy)
    assert np.isfinite(shrink_centers(np.ones((3, 4)), np.ones(3), 2.0)).all()


@pytest.mark.parametrize("noise_sd", [0.0, 0.002])
def test_classes_of_one_shape_keep_their_means_and_mean_squares(rng, noise_sd):
    d, counts, squares = 40, np.array([3000.0, 1000.0]), np.array([4.0, 1.0])
    spread = np.append(np.linspace(0.2, 0.06, 6), np.full(d - 6, 0.2 / (d - 6)))
    spread /= spread.sum()
    shift = np.array([np.zeros(d), np.full(d, 0.05)])
    noise = noise_sd * rng.standard_normal((d, d)) / 2**0.5
    within = np.diag(spread) + np.triu(noise, 1) + np.triu(noise, 1).T
    share = counts / counts.sum()
    second = within + np.einsum("k,ki,kj->ij", share / squares, shift, shift)
    centers = rng.normal(size=(2, d))
    moments = Moments(counts, shift * counts[:, None], second)
    found = shared_latents(moments, share, centers, noise_sd, np.zeros(2), 6, squares)
    np.testing.assert_allclose(found.means, centers + shift)
    variances = [np.trace(cov) for cov in found.mixture.covariances] + d * found.dither**2 * squares
    np.testing.assert_allclose(variances, squares - np.square(shift).sum(axis=1), rtol=0.05)
    assert found.mixture.covariances[0][0, 0] == pytest.approx(4 * found.mixture.covariances[1][0, 0], rel=0.15)
