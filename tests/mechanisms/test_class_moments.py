"""Moments of each class about released centers, and class means: what P3GM on arrays releases."""

from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS, assert_noise_at_scale, assert_sensitivity

from skdpgen.mechanisms import add_gaussian, class_first_moments, class_moments, exact_value
from skdpgen.utils.noise import make_noise_generator

D, K, BOUND = 4, 3, 2.0
E = np.eye(D)
# one center at the edge of the ball, one inside, one at 0: subtracting it must not let a row out of the ball
CENTERS = np.array([BOUND * E[0], -0.7 * E[1], 0 * E[0]])


def _units(rng):
    directions = rng.normal(size=(6, D))
    rows = [*directions, *(50 * directions[:2]), BOUND * E[0], -BOUND * E[0], np.full(D, 1e9), np.zeros(D)]
    return [(row, k) for row in rows for k in (0, 1, 2, -1)]


def _joined(base, y, unit):
    return (base, y) if unit is None else (np.vstack([base, unit[0]]), np.append(y, unit[1]))


def _claim(rng, relation, query, apart):
    """`apart`: two rows of one class whose contributions are as far from one another as any."""
    base, y = rng.normal(size=(15, D)), rng.integers(0, K, 15)
    units = _units(rng)
    if relation == "add_or_remove_one":
        attained, pairs = [(None, apart[0])], [(None, unit) for unit in units]
    else:
        other_class = (apart[0][0], 1 if apart[0][1] != 1 else 0)
        attained = [apart, (apart[0], other_class)]
        pairs = [(one, other) for one in units[::2] for other in units]
    assert_sensitivity(
        query,
        [(_joined(base, y, one), _joined(base, y, other)) for one, other in pairs],
        attained=[(_joined(base, y, one), _joined(base, y, other)) for one, other in attained],
        relation=relation,
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("a", "b"), [(0.05, 0.1**0.5), (0.15, 0.3**0.5), (0.05, 0.5**0.5), (0.3, 2.0)])
def test_moments_about_centers_attain_their_sensitivity_and_never_exceed_it(rng, relation, a, b):
    cosine = max(-(b**2) / 2, -1.0)  # maximises 2 b^2 (1 - c) + 2 (1 - c^2)
    other = cosine * E[0] + (1 - cosine**2) ** 0.5 * E[2]
    # of class 2, whose center is 0, and about center 0 the far side of the ball is 2 bounds away: clipped
    apart = ((BOUND * E[0], 2), (BOUND * other, 2))
    _claim(
        rng,
        relation,
        lambda data: class_moments(*data, K, l2_bound=BOUND, count_weight=a, mean_weight=b, centers=CENTERS),
        apart,
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("a", [0.05, 0.15, 2.0])
def test_class_means_attain_their_sensitivity_and_never_exceed_it(rng, relation, a):
    _claim(
        rng,
        relation,
        lambda data: class_first_moments(*data, K, l2_bound=BOUND, count_weight=a),
        ((BOUND * E[0], 0), (-BOUND * E[0], 0)),
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_class_means_noise_is_at_its_scale(rng, relation):
    query = class_first_moments(rng.normal(size=(9, 2000)), rng.integers(0, 60, 9), 60, count_weight=0.15)
    released = add_gaussian(query, 1.7, make_noise_generator("fast"), relation)
    assert_noise_at_scale(released - exact_value(query), 1.7 * query.sensitivity(relation) / query.weights)


def test_moments_about_centers_are_those_of_numpy(rng):
    X, y = 0.2 * rng.normal(size=(300, D)), rng.integers(-1, K, 300)
    value = exact_value(class_moments(X, y, K, l2_bound=10.0, centers=CENTERS))
    first = exact_value(class_first_moments(X, y, K, l2_bound=10.0))
    for k in range(K):
        rows = X[y == k] - CENTERS[k]
        assert value[k, 0] == first[k, 0] == len(rows)
        np.testing.assert_allclose(10 * value[k, 1 : 1 + D], rows.sum(axis=0), atol=0.02)
        np.testing.assert_allclose(100 * value[k, 1 + D :], (rows.T @ rows)[np.triu_indices(D)], atol=0.02)
        np.testing.assert_allclose(10 * first[k, 1:], X[y == k].sum(axis=0), atol=0.02)
