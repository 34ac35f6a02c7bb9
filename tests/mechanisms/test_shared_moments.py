from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS, assert_sensitivity

from skdpgen.mechanisms import (
    add_gaussian,
    class_moments,
    exact_value,
    shared_moments,
    unpack_moments,
    unpack_shared_moments,
)
from skdpgen.utils.noise import make_noise_generator

D, K = 4, 3
E = np.eye(D)
BOUNDS, CENTERS = np.array([0.1, 1.0, 7.0]), 0.2 * np.eye(K, D)


def _rows(rng, n=20):
    return rng.normal(size=(n, D)), rng.integers(0, K, n)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("a", "b"), [(0.15, 1.0), (0.05, 0.5**0.5), (0.3, 2.0), (1.0, 1.0)])
def test_the_sensitivity_of_shared_moments_is_attained_and_not_exceeded(rng, relation, a, b):
    base, y = _rows(rng)

    def with_row(x, k):
        return np.vstack([base, x]), np.append(y, k)

    cosine = max(-(b**2) / 2, -1.0)
    x, z = E[0], cosine * E[0] + (1 - cosine**2) ** 0.5 * E[1]
    rows = [*rng.normal(size=(2, D)), 9 * E[0], -E[0], np.full(D, 1e200), np.zeros(D)]
    if relation == "add_or_remove_one":
        attained = [((base, y), with_row(x, 1))]
        neighbours = [((base, y), with_row(row, k)) for row in rows for k in (-1, 0, 2)]
    else:
        # rows of one class at the worst angle, or orthogonal rows of two classes
        attained = [(with_row(x, 1), with_row(z, 1)), (with_row(E[0], 0), with_row(E[1], 2))]
        neighbours = [(with_row(row, 0), with_row(other, k)) for row in rows for other in rows for k in (-1, 0, 2)]
    assert_sensitivity(
        lambda data: shared_moments(*data, K, count_weight=a, mean_weight=b),
        neighbours,
        attained=attained,
        relation=relation,
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_shared_moments_about_centers_with_bounds_of_each_class_are_no_more_sensitive(rng, relation):
    base, y = _rows(rng)
    far = (9 * E[0], 4.5 * (3**0.5 * E[2] - E[0]))  # at the worst angle about the center of class 1
    joined = [
        (np.vstack([base, row]), np.append(y, k))
        for row in (*(CENTERS[1] + far), *rng.normal(size=(2, D)))
        for k in (1, -1, 0, 2)
    ]
    pairs = [((base, y), data) for data in joined]
    if relation == "replace_one":
        pairs = [(one, other) for one in joined for other in joined]
    assert_sensitivity(
        lambda data: shared_moments(*data, K, l2_bound=BOUNDS, centers=CENTERS),
        pairs,
        attained=[(joined[0], joined[4])] if relation == "replace_one" else pairs[:1],
        relation=relation,
    )


def test_shared_moments_are_class_moments_whose_second_moments_are_added(rng):
    X, y = _rows(rng, 60)
    query = {"l2_bound": BOUNDS, "centers": CENTERS, "transform": lambda rows: rows[:, :3] / 3}
    query["centers"] = CENTERS[:, :3]
    shared = exact_value(shared_moments(X, y, K, **query))
    found = unpack_shared_moments(shared, K, 3, BOUNDS)
    by_class = unpack_moments(exact_value(class_moments(X, y, K, **query)), 3, BOUNDS)
    np.testing.assert_array_equal(found.count, by_class.count)
    np.testing.assert_array_equal(found.sum, by_class.sum)
    np.testing.assert_allclose(
        found.second, (by_class.second / BOUNDS[:, None, None] ** 2).sum(axis=0, keepdims=True), atol=1e-9
    )


def test_second_moments_of_groups_are_those_of_their_classes(rng):
    X, y = rng.normal(size=(60, D)), rng.integers(-1, 6, 60)
    found = unpack_shared_moments(exact_value(shared_moments(X, y, 6, n_groups=3)), 6, D, n_groups=3)
    by_class = unpack_moments(exact_value(class_moments(X, y, 6)), D)
    np.testing.assert_array_equal(found.count, by_class.count)
    np.testing.assert_array_equal(found.sum, by_class.sum)
    np.testing.assert_array_equal(found.second, by_class.second.reshape(3, 2, D, D).sum(axis=1))
    for wrong in (0, 4, 7):
        with pytest.raises(ValueError, match="n_groups must divide"):
            shared_moments(X, y, 6, n_groups=wrong)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("n_groups", [1, 2, 4])
def test_the_sensitivity_of_groups_is_attained_and_not_exceeded(rng, relation, n_groups):
    """By orthogonal rows of two classes of one group, and of two groups: there each matrix changes by one row."""
    base, y = rng.normal(size=(20, D)), rng.integers(0, 4, 20)
    rows = [E[0], E[1], -E[0], *rng.normal(size=(2, D))]
    joined = [(np.vstack([base, row]), np.append(y, k)) for row in rows for k in (0, 1, 2, -1)]
    if relation == "add_or_remove_one":
        pairs = [((base, y), data) for data in joined]
        attained = pairs[:3]
    else:
        pairs = [(one, other) for one in joined for other in joined]
        attained = [(joined[0], joined[5]), (joined[0], joined[6])]
    assert_sensitivity(
        lambda data: shared_moments(*data, 4, mean_weight=0.3**0.5, n_groups=n_groups),
        pairs,
        attained=attained,
        relation=relation,
    )


def test_the_noise_of_shared_moments_does_not_grow_with_the_number_of_classes():
    d, n_classes = 30, 40
    query = shared_moments(np.zeros((1, d)), np.zeros(1, dtype=int), n_classes)
    noisy = add_gaussian(query, 5.0, make_noise_generator(), "add_or_remove_one")
    second = unpack_shared_moments(noisy, n_classes, d).second[0]
    sd = 5.0 * query.sensitivity("add_or_remove_one")
    assert abs(np.std(np.diag(second)) / sd - 1) < 0.6
    assert abs(np.std(second[np.triu_indices(d, 1)]) / (sd / 2**0.5) - 1) < 0.25
