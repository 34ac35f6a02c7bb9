from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from _claims import RELATIONS, assert_noise_at_scale, assert_sensitivity

from skdpgen.mechanisms import (
    add_gaussian,
    class_moments,
    exact_value,
    first_moments,
    moments,
    second_moments,
    unpack_moments,
)
from skdpgen.mechanisms._moments import LATTICE
from skdpgen.utils.noise import make_noise_generator

WEIGHTS = [(0.05, 0.1**0.5), (0.05, 0.5**0.5), (0.3, 2.0), (1.0, 1.0)]
D = 6
E = np.eye(D)


def _sphere(rng, n=1, radius=1.0):
    x = rng.normal(size=(n, D))
    return radius * x / np.linalg.norm(x, axis=1, keepdims=True)


def _rows_at(cosine):
    return E[:1], cosine * E[:1] + (1 - cosine**2) ** 0.5 * E[1:2]


def _pairs(rng, relation, base):
    """Neighbours of `base` whose extra or replaced rows are random, spread, axis, opposite, and far too long."""
    candidates = [
        *_sphere(rng, 8),
        *_sphere(rng, 4, radius=50.0),
        *_sphere(rng, 2, radius=0.3),
        np.full(D, D**-0.5),
        E[0],
        -E[0],
        E[1],
        np.full(D, 1e200),
        np.zeros(D),
    ]
    if relation == "add_or_remove_one":
        return [(base, np.vstack([base, x])) for x in candidates]
    return [(np.vstack([base, x]), np.vstack([base, z])) for x in candidates for z in candidates]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("a", "b"), WEIGHTS)
def test_moments_sensitivity_is_attained_and_not_exceeded(rng, relation, a, b):
    base = _sphere(rng, 20) * rng.random((20, 1))
    if relation == "add_or_remove_one":
        attained = [(base, np.vstack([base, E[0]]))]
    else:
        # the cosine that maximises 2 b^2 (1 - c) + 2 (1 - c^2)
        x, z = _rows_at(max(-(b**2) / 2, -1.0))
        attained = [(np.vstack([base, x]), np.vstack([base, z]))]
    assert_sensitivity(
        lambda X: moments(X, count_weight=a, mean_weight=b),
        _pairs(rng, relation, base),
        attained=attained,
        relation=relation,
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("a", "b"), WEIGHTS)
def test_class_moments_sensitivity_is_attained_and_not_exceeded(rng, relation, a, b):
    base, y = _sphere(rng, 20), rng.integers(0, 3, 20)

    def query(data):
        return class_moments(*data, 3, count_weight=a, mean_weight=b)

    def with_row(x, k):
        return np.vstack([base, x]), np.append(y, k)

    rows = [*_sphere(rng, 4), *_sphere(rng, 2, radius=9.0), E[0], -E[0], np.zeros(D)]
    if relation == "add_or_remove_one":
        attained = [((base, y), with_row(E[0], 1))]
        neighbours = [((base, y), with_row(x, k)) for x in rows for k in range(3)]
    else:
        x, z = _rows_at(max(-(b**2) / 2, -1.0))
        attained = [(with_row(x, 1), with_row(z, 1)), (with_row(x, 0), with_row(x, 2))]
        neighbours = [(with_row(x, 0), with_row(z, k)) for x in rows for z in rows for k in (0, 2)]
        neighbours += [(with_row(x, 0), with_row(x, -1)) for x in rows]
    assert_sensitivity(query, neighbours, attained=attained, relation=relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_class_moments_of_classes_with_bounds_of_their_own_are_no_more_sensitive(rng, relation):
    base, y, bounds = 3 * _sphere(rng, 20), rng.integers(0, 3, 20), np.array([0.1, 1.0, 7.0])

    def query(data):
        return class_moments(*data, 3, l2_bound=bounds, centers=0.2 * np.eye(3, D))

    def with_row(x, k):
        return np.vstack([base, x]), np.append(y, k)

    joined = [with_row(x, k) for x in (*_sphere(rng, 3), 9 * E[0], 9 * E[1], -9 * E[0]) for k in (-1, 0, 1, 2)]
    pairs = [((base, y), data) for data in joined]
    if relation == "replace_one":
        pairs = [(one, other) for one in joined for other in joined]
    assert_sensitivity(query, pairs, attained=pairs, relation=relation)
    for k, bound in enumerate(bounds):
        alone = class_moments(base, np.where(y == k, 0, -1), 1, l2_bound=bound, centers=0.2 * np.eye(3, D)[k : k + 1])
        np.testing.assert_array_equal(query((base, y)).value[k], alone.value[0])


def test_moments_of_classes_with_bounds_of_their_own_come_back_in_the_units_of_the_rows(rng):
    X, y, bounds = rng.normal(size=(50, 4)) / 9, rng.integers(0, 2, 50), np.array([3.0, 5.0])
    found = unpack_moments(exact_value(class_moments(X, y, 2, l2_bound=bounds, exact=False)), 4, bounds)
    for k in (0, 1):
        rows = X[y == k]
        np.testing.assert_allclose(found.sum[k], rows.sum(axis=0))
        np.testing.assert_allclose(found.second[k], rows.T @ rows)
    with pytest.raises(ValueError, match="l2_bound"):
        class_moments(X, y, 2, l2_bound=np.array([3.0, 0.0]))


def test_label_conditional_difference_needs_both_terms():
    """At (a, b^2) = (.05, .5) two rows of one class are further apart than two of different classes."""
    query = class_moments(np.zeros((1, 2)), np.zeros(1, int), 2, count_weight=0.05, mean_weight=0.5**0.5)
    assert query.sensitivity("replace_one") == pytest.approx((2.5**2 / 2) ** 0.5)
    assert query.sensitivity("replace_one") > (2 * (0.05**2 + 0.5 + 1)) ** 0.5


@pytest.mark.parametrize("relation", RELATIONS)
def test_second_moments_sensitivity_is_attained_and_not_exceeded(rng, relation):
    base = _sphere(rng, 10)
    attained = (
        [(base, np.vstack([base, E[0]]))]
        if relation == "add_or_remove_one"
        else [(np.vstack([base, E[0]]), np.vstack([base, E[1]]))]
    )
    assert_sensitivity(second_moments, _pairs(rng, relation, base), attained=attained, relation=relation)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("labels", [False, True])
def test_moments_noise_is_at_its_scale(rng, relation, labels):
    X = rng.normal(size=(5, 320)) / 100
    query = class_moments(X, rng.integers(0, 2, 5), 2) if labels else moments(np.tile(X, (1, 2)))
    released = add_gaussian(query, 1.7, make_noise_generator("fast"), relation)
    sd = 1.7 * query.sensitivity(relation) / query.weights
    assert_noise_at_scale(released - exact_value(query), sd)


def test_noise_off_the_diagonal_is_smaller_by_sqrt_2(rng):
    d = 320
    query = moments(np.zeros((1, d)))
    second = unpack_moments(add_gaussian(query, 1.0, make_noise_generator("fast"), "add_or_remove_one"), d).second
    sd = query.sensitivity("add_or_remove_one")
    assert np.std(second[np.triu_indices(d, 1)]) == pytest.approx(sd / 2**0.5, rel=0.02)
    assert np.std(np.diag(second)) == pytest.approx(sd, rel=0.2)


def test_sums_are_exact_whatever_the_order_and_the_chunks(rng):
    X, y = rng.normal(size=(3000, 17)) / 4, rng.integers(0, 4, 3000)
    order = rng.permutation(3000)
    for query in (
        lambda X, y, **k: moments(X, **k),
        lambda X, y, **k: class_moments(X, y, 4, **k),
        lambda X, y, **k: second_moments(X, **k),
    ):
        whole = query(X, y).value
        assert whole.dtype == np.int64
        assert np.array_equal(whole, query(X[order], y[order]).value)
        assert np.array_equal(whole, query(X, y, chunk_rows=7).value)


def test_adding_a_row_changes_the_sums_by_its_contribution_alone(rng):
    X, y = rng.normal(size=(1000, 9)), rng.integers(0, 3, 1000)
    row = rng.normal(size=(1, 9))
    assert np.array_equal(moments(np.vstack([X, row])).value - moments(X).value, moments(row).value)
    one = class_moments(np.vstack([X, row]), np.append(y, 2), 3).value - class_moments(X, y, 3).value
    assert np.array_equal(one, class_moments(row, np.array([2]), 3).value)
    assert not one[:2].any()


def test_released_moments_stay_on_the_lattice(rng):
    released = add_gaussian(moments(rng.normal(size=(50, 5))), 2.0, make_noise_generator("fast"), "replace_one")
    steps = released / LATTICE
    assert np.array_equal(steps, np.rint(steps))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64])
def test_moments_are_those_of_numpy(rng, dtype):
    X, y = rng.integers(0, 200, (400, 5)).astype(dtype), rng.integers(0, 3, 400)
    for exact, tolerance in ((True, 5e-5), (False, 1e-12)):
        m = unpack_moments(exact_value(moments(X, l2_bound=500.0, exact=exact)), 5, 500.0)
        rows = X.astype(float)
        assert m.count == 400
        np.testing.assert_allclose(m.sum, rows.sum(axis=0), rtol=tolerance)
        np.testing.assert_allclose(m.second, rows.T @ rows, rtol=tolerance)
        by_class = unpack_moments(exact_value(class_moments(X, y, 3, l2_bound=500.0, exact=exact)), 5, 500.0)
        np.testing.assert_allclose(by_class.second[1], rows[y == 1].T @ rows[y == 1], rtol=tolerance)
        np.testing.assert_allclose(by_class.sum.sum(axis=0), m.sum, rtol=tolerance)
        assert by_class.count.tolist() == np.bincount(y).tolist()


def test_a_public_transform_is_applied_before_clipping(rng):
    X = rng.integers(0, 255, (300, 4)).astype(np.uint8)
    scaled = moments(X, transform=lambda chunk: chunk / 255.0 - 0.5)
    assert np.array_equal(scaled.value, moments(X / 255.0 - 0.5).value)


def test_no_rows_one_row_and_an_absent_class_are_sums_like_others():
    assert not moments(np.zeros((0, 3))).value.any()
    by_class = class_moments(np.ones((1, 3)), np.array([1]), 3).value
    assert by_class.shape == (3, 10)
    assert by_class[:, 0].tolist() == [0, 2**36, 0]


def test_wrong_arguments_are_refused():
    X = np.zeros((2, 2))
    with pytest.raises(ValueError, match="l2_bound"):
        moments(X, l2_bound=0.0)
    with pytest.raises(ValueError, match="count_weight"):
        moments(X, count_weight=0.0)
    with pytest.raises(ValueError, match="y_codes"):
        class_moments(X, np.zeros(3, int), 2)
    with pytest.raises(ValueError, match="n_classes"):
        class_moments(X, np.zeros(2, int), 0)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("a", [0.05, 1.0])
def test_first_moments_sensitivity_is_attained_and_not_exceeded(rng, relation, a):
    base = _sphere(rng, 10)
    attained = (
        [(base, np.vstack([base, E[0]]))]
        if relation == "add_or_remove_one"
        else [(np.vstack([base, E[0]]), np.vstack([base, -E[0]]))]
    )
    assert_sensitivity(
        lambda X: first_moments(X, count_weight=a), _pairs(rng, relation, base), attained=attained, relation=relation
    )
    assert np.array_equal(first_moments(base).value, moments(base).value[: 1 + D])


@pytest.mark.parametrize(("a", "b"), WEIGHTS)
def test_one_class_pays_for_no_second_class(rng, a, b):
    x, z = _rows_at(max(-(b**2) / 2, -1.0))
    both = [(x, np.zeros(1, int)), (z, np.zeros(1, int)), (x, np.array([-1])), (z, np.array([5]))]
    assert_sensitivity(
        lambda data: class_moments(*data, 1, count_weight=a, mean_weight=b),
        [(one, other) for one in both for other in both],
        attained=[(both[0], both[1]), (both[0], both[2])],
        relation="replace_one",
    )


def test_rows_are_converted_chunk_by_chunk_and_never_copied_whole():
    X = np.zeros((40_000, 100), dtype=np.uint8)  # 32 MB as float64
    tracemalloc.start()
    try:
        moments(X, transform=lambda chunk: chunk / 255.0, chunk_rows=1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8e6
