"""k-means of DP-GM: the sensitivity of an iteration, its noise, and what it is without noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from _claims import RELATIONS, assert_noise_at_scale, assert_sensitivity
from sklearn.cluster import KMeans

from skdpgen.mechanisms import CLUSTER_COUNT_WEIGHT, add_gaussian, cluster_sums, exact_value, nearest_centers
from skdpgen.synthesizers import _dpgm
from skdpgen.synthesizers._dp_merf import RandomFeatures
from skdpgen.utils.noise import make_noise_generator

AR, RO = RELATIONS
# One angle: a step of 1 along the first column turns the features round.
ANGLE = RandomFeatures([[np.pi], [0.3], [0.7]])
FAR = [9.0, 0.0]  # a centre that no row is nearest to
CENTERS = {
    "one cluster": None,
    "opposite rows in one cluster": np.array([FAR, [0.0, 0.1], FAR]),
    "opposite rows in two clusters": np.array([[1.0, 0.0], [-1.0, 0.0]]),
}


def cluster_sensitivity_is_attained_and_not_exceeded(relation, name):
    """Rows that join, and rows that change their cluster; rows that turn round in one cluster move it by 2."""
    rng = np.random.default_rng(5)
    base = rng.normal(size=(5, 3))
    rows = [np.zeros(3), np.eye(3)[0], 1e9 * np.ones(3), *rng.normal(size=(4, 3))]
    joined = [np.vstack([base[:3], row, base[3:]]) for row in rows]
    if relation == AR:
        pairs, attained = [(base, more) for more in joined], [(base, joined[0])]
    else:
        pairs, attained = [(one, other) for one in joined for other in joined], [(joined[0], joined[1])]
    query = lambda X: cluster_sums(X, ANGLE, CENTERS[name])  # noqa: E731
    if relation == RO and name == "opposite rows in two clusters":  # what counts say of a row that moves
        one, other = (query(X) for X in attained[0])
        change = np.linalg.norm(one.weights * (exact_value(one) - exact_value(other)))
        assert change == pytest.approx((2 * (1 + CLUSTER_COUNT_WEIGHT**2)) ** 0.5, rel=1e-4)
        attained = []
    if attained:
        assert_sensitivity(query, pairs, attained=attained, relation=relation)
    else:
        worst = max(
            np.linalg.norm(query(a).weights * (exact_value(query(a)) - exact_value(query(b)))) for a, b in pairs
        )
        assert worst <= query(base).sensitivity(relation) * (1 + 1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", CENTERS)
def test_cluster_sensitivity(relation, name):
    cluster_sensitivity_is_attained_and_not_exceeded(relation, name)


def test_a_row_that_joins_changes_the_cluster_of_no_other_one(rng):
    features = RandomFeatures.draw(4, 30, 1.0, rng)
    X, centers = rng.normal(size=(4099, 4)), features(rng.normal(size=(7, 4)))
    alone = nearest_centers(X, centers, features)
    more = nearest_centers(np.vstack([rng.normal(size=(1, 4)), X]), centers, features)
    np.testing.assert_array_equal(alone, more[1:])
    distances = np.linalg.norm(features(X)[:, None] - centers[None], axis=2)
    np.testing.assert_array_equal(alone, distances.argmin(axis=1))


def test_the_cluster_of_a_row_halfway_between_two_follows_from_no_order_of_additions(rng):
    """BLAS may add in an order that follows the place of a row: a row that joins would move others to the next one."""
    centers = np.rint(rng.normal(size=(2, 50)) * 2**8) / 2**8
    X, apart = rng.normal(size=(4300, 50)), centers[0] - centers[1]
    X -= ((X - centers.mean(axis=0)) @ apart)[:, None] * apart / (apart @ apart)
    codes, order = nearest_centers(X, centers, lambda rows: rows), rng.permutation(50)
    assert 0.4 < codes.mean() < 0.6
    np.testing.assert_array_equal(codes, nearest_centers(X[:, order], centers[:, order], lambda rows: rows))


def test_noise_of_an_iteration_is_at_its_scale(rng):
    features = RandomFeatures.draw(2, 1000, 1.0, rng)
    centers = features(rng.normal(size=(60, 2)))
    query = cluster_sums(rng.normal(size=(9, 2)), features, centers)
    noisy = add_gaussian(query, 3.0, make_noise_generator("secure"), AR)
    assert_noise_at_scale((noisy - exact_value(query))[:, 1:], 3.0 * (1 + CLUSTER_COUNT_WEIGHT**2) ** 0.5)


def test_without_noise_the_centres_are_those_of_scikit_learn(rng):
    blobs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    X = np.concatenate([blob + 0.1 * rng.normal(size=(100, 2)) for blob in blobs])
    features = RandomFeatures.draw(2, 15, 0.5, rng)
    settings, secure = _dpgm.ClusterSettings(4, 6, 0.1, 15, 0.5, seed=1), make_noise_generator("secure")
    found = _dpgm.find_centers(X, features, settings, 0.0, secure, AR)
    first = _dpgm.find_centers(X, features, replace(settings, steps=1), 0.0, secure, AR)
    assert np.linalg.norm(first - features(X).mean(axis=0), axis=1) == pytest.approx(
        np.full(4, (1 - np.square(features(X).mean(axis=0)).sum()) ** 0.5)
    )
    theirs = KMeans(4, init=first, n_init=1, max_iter=5, tol=0, algorithm="lloyd").fit(features(X))
    np.testing.assert_allclose(found, theirs.cluster_centers_, atol=1e-9)


def test_for_a_cluster_that_the_noise_hides_the_largest_is_cut_in_two():
    centers = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    sums = np.array([[50.0, 10.0], [3.0, 900.0], [-0.1, 0.2]])
    moved = _dpgm._next_centers(centers, np.array([60.0, 1000.0, -3.0]), sums, 0.5, np.random.default_rng(0))
    np.testing.assert_allclose(moved[0], sums[0] / 60)
    np.testing.assert_allclose((moved[1] + moved[2]) / 2, sums[1] / 1000)
    assert 0.05 < np.linalg.norm(moved[2] - moved[1]) < 0.2
    # where the noise hides every cluster, they stay
    hidden = _dpgm._next_centers(centers, np.full(3, 60.0), sums, 500.0, np.random.default_rng(0))
    np.testing.assert_array_equal(hidden, centers)
