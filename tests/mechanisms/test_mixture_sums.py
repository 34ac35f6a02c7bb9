from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS, assert_noise_at_scale, assert_sensitivity

from skdpgen.mechanisms import add_gaussian, exact_value, mixture_sums, unpack_mixture_sums
from skdpgen.mechanisms._mixture_sums import LATTICE
from skdpgen.utils.noise import make_noise_generator

K, D = 3, 4
E, V = np.eye(D), np.eye(K)
WEIGHTS = [(1, 1, 1), (0.3, 1, 1), (0.3, 2, 1), (2, 0.5, 1)]


def _worst_pairs(w, relation, radius):
    """Rows and responsibilities that attain the stated bounds."""
    a, b = w[1] ** 2, w[2] ** 2
    if relation == "add_or_remove_one":
        return [(None, (radius * E[0], V[0]))]
    # same vertex: x = R (sqrt p, sqrt(1-p)), x' = -R (sqrt(1-p), sqrt p), with 2 sqrt(p (1-p)) = a / (2 b)
    half = np.arcsin(min(a / (2 * b), 1.0)) / 2
    p = np.cos(half) ** 2
    x = radius * np.array([p**0.5, (1 - p) ** 0.5, 0, 0])
    z = -radius * np.array([(1 - p) ** 0.5, p**0.5, 0, 0])
    return [((radius * E[0], V[0]), (radius * E[0], V[1])), ((x, V[0]), (z, V[0]))]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("w", WEIGHTS)
@pytest.mark.parametrize("radius", [1.0, 3.0])
def test_mixture_sums_sensitivity_is_attained_and_not_exceeded(rng, relation, covariance_type, w, radius):
    base = rng.normal(size=(12, D)), rng.dirichlet(np.ones(K), 12)
    weights = tuple(np.array(w) / radius ** np.arange(3))

    def query(data):
        return mixture_sums(*data, radius=radius, covariance_type=covariance_type, weights=weights)

    def joined(unit):
        return base if unit is None else (np.vstack([base[0], unit[0]]), np.vstack([base[1], unit[1]]))

    units = [(radius * x, r) for x in (E[0], -E[0], E[1], np.full(D, 0.5)) for r in (V[0], V[1], np.full(K, 1 / K))]
    units += [(rng.normal(size=D) * 4, rng.dirichlet(np.ones(K))) for _ in range(6)]
    units += [(radius * E[0], np.full(K, 5.0)), (radius * E[0], np.array([-1.0, 2.0, np.nan]))]  # not responsibilities
    if relation == "add_or_remove_one":
        neighbours = [(None, unit) for unit in units]
    else:
        neighbours = [(one, other) for one in units for other in units]
    assert_sensitivity(
        query,
        [(joined(one), joined(other)) for one, other in neighbours],
        attained=[(joined(one), joined(other)) for one, other in _worst_pairs(w, relation, radius)],
        relation=relation,
    )


def test_default_weights_give_sqrt_3_and_sqrt_6():
    query = mixture_sums(np.zeros((1, 2)), np.full((1, 2), 0.5), radius=7.0)
    assert query.sensitivity("add_or_remove_one") == pytest.approx(3**0.5)
    assert query.sensitivity("replace_one") == pytest.approx(6**0.5)


def test_one_component_pays_for_two_rows_of_one_vertex_only():
    query = mixture_sums(np.zeros((1, 2)), np.ones((1, 1)), weights=(0.1, 1, 1))
    assert query.sensitivity("replace_one") == pytest.approx((9 / 2) ** 0.5)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_mixture_sums_noise_is_at_its_scale(rng, relation, covariance_type):
    d, k = (500, 110) if covariance_type == "diag" else (100, 24)
    query = mixture_sums(
        rng.normal(size=(9, d)), rng.dirichlet(np.ones(k), 9), covariance_type=covariance_type, radius=2.0
    )
    released = add_gaussian(query, 0.8, make_noise_generator("fast"), relation)
    assert_noise_at_scale(released - exact_value(query), 0.8 * query.sensitivity(relation) / query.weights)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_sums_are_exact_and_rows_do_not_touch_each_other(rng, covariance_type):
    X, r = rng.normal(size=(9000, 5)) / 5, rng.dirichlet(np.ones(K), 9000)
    order = rng.permutation(9000)

    def query(X, r):
        return mixture_sums(X, r, covariance_type=covariance_type).value

    assert np.array_equal(query(X, r), query(X[order], r[order]))
    assert np.array_equal(query(X, r) - query(X[1:], r[1:]), query(X[:1], r[:1]))


def test_responsibilities_given_as_a_function_of_rows_do_not_depend_on_the_other_rows(rng):
    X, centres = rng.normal(size=(8300, 20)) / 5, rng.normal(size=(20, K))

    def responsibilities(rows):
        assert np.linalg.norm(rows, axis=1).max() <= 1
        e = np.exp(rows @ centres)
        return e / e.sum(axis=1, keepdims=True)

    def query(X):
        return mixture_sums(X, responsibilities, covariance_type="full").value

    assert np.array_equal(query(X) - query(X[1:]), query(X[:1]))


def test_a_function_of_rows_sees_one_number_of_them_whatever_their_number():
    """BLAS takes another kernel for a few rows, which rounds otherwise: a row that joins would change other weights."""
    shapes = set()

    def responsibilities(rows):
        shapes.add(rows.shape)
        return np.full((len(rows), K), 1 / K)

    for n_rows in (1, 2, 8191, 8192, 8193, 8300):
        mixture_sums(np.ones((n_rows, 3)) / 2, responsibilities)
    assert len(shapes) == 1


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_sums_are_those_of_numpy_and_no_weight_is_lost(rng, covariance_type):
    X, r = rng.normal(size=(500, 4)), rng.dirichlet(np.full(K, 0.2), 500)
    X *= (2 * rng.random((500, 1))) / np.linalg.norm(X, axis=1, keepdims=True)
    for exact, tolerance in ((True, 2e-3), (False, 1e-10)):
        query = mixture_sums(X, r, radius=2.0, covariance_type=covariance_type, exact=exact)
        counts, sums, seconds = unpack_mixture_sums(exact_value(query), 4, radius=2.0, covariance_type=covariance_type)
        np.testing.assert_allclose(counts, r.sum(axis=0), rtol=tolerance)
        np.testing.assert_allclose(sums, r.T @ X, atol=tolerance * 500)
        spec = "nk,ni->ki" if covariance_type == "diag" else "nk,ni,nj->kij"
        operands = (r, X**2) if covariance_type == "diag" else (r, X, X)
        np.testing.assert_allclose(seconds, np.einsum(spec, *operands), atol=tolerance * 500)
        assert counts.sum() == pytest.approx(500, abs=1e-9)


def test_values_are_whole_steps_and_no_rows_are_no_sum():
    query = mixture_sums(np.zeros((0, 2)), np.zeros((0, K)))
    assert query.value.shape == (K, 5)
    assert not query.value.any()
    assert query.lattice == LATTICE


def test_wrong_arguments_are_refused():
    X, r = np.zeros((2, 2)), np.full((2, 2), 0.5)
    with pytest.raises(ValueError, match="covariance_type"):
        mixture_sums(X, r, covariance_type="tied")
    with pytest.raises(ValueError, match="3 rows for 2"):
        mixture_sums(X, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="radius"):
        mixture_sums(X, r, radius=-1)
    with pytest.raises(ValueError, match="weights"):
        mixture_sums(X, r, weights=(1, 0, 1))
