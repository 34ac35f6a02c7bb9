"""Every sabotage of a mechanism is caught: the shipped function is patched, and the named test then fails."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import test_gaussian_histogram_selection as gaussian_tests
import test_mixture_sums as mixture_tests
import test_moments as moments_tests
import test_one_hot as one_hot_tests
import test_shared_moments as shared_tests

import skdpgen.mechanisms
from skdpgen._types import BoundedSum
from skdpgen.utils.noise import NoiseGenerator

AR, RO = "add_or_remove_one", "replace_one"
A, B = 0.05, 0.1**0.5

MOMENTS = moments_tests.test_moments_sensitivity_is_attained_and_not_exceeded
CLASS_MOMENTS = moments_tests.test_class_moments_sensitivity_is_attained_and_not_exceeded
FIRST = moments_tests.test_first_moments_sensitivity_is_attained_and_not_exceeded
SECOND = moments_tests.test_second_moments_sensitivity_is_attained_and_not_exceeded
MIXTURE = mixture_tests.test_mixture_sums_sensitivity_is_attained_and_not_exceeded
OWN_BOUNDS = moments_tests.test_class_moments_of_classes_with_bounds_of_their_own_are_no_more_sensitive
SHARED = shared_tests.test_the_sensitivity_of_shared_moments_is_attained_and_not_exceeded
CLASS_NORMS = gaussian_tests.test_class_norm_histogram_sensitivity_is_attained_and_not_exceeded
HISTOGRAM = gaussian_tests.test_joint_histogram_sensitivity_is_attained_and_not_exceeded
ONE_HOT = one_hot_tests.test_one_hot_sensitivity_is_attained_and_not_exceeded


def _module(name):
    # the package offers functions of the same names as their modules
    return sys.modules[f"{skdpgen.mechanisms.__name__}.{name}"]


def _run(test, *arguments):
    test(np.random.default_rng(0), *arguments)


def _fails(test, *arguments):
    with pytest.raises(AssertionError):
        _run(test, *arguments)


@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize(
    ("test", "rest"),
    [
        (MOMENTS, (A, B)),
        (CLASS_MOMENTS, (A, B)),
        (SHARED, (A, B)),
        (FIRST, (A,)),
        (SECOND, ()),
        (MIXTURE, ("diag", (1, 1, 1), 1.0)),
    ],
)
def test_clipping_dropped_is_caught(monkeypatch, test, rest, relation):
    _run(test, relation, *rest)
    monkeypatch.setattr(_module("_gaussian"), "_clip_in_place", lambda rows, bound: np.clip(rows, -1e3, 1e3))
    _fails(test, relation, *rest)


@pytest.mark.parametrize("relation", [AR, RO])
def test_rows_clipped_at_another_class_s_bound_are_caught(monkeypatch, relation):
    """Clipped at the largest bound of all, divided by that of their own class."""
    module = _module("_moments")
    shipped = module.lattice_rows

    def at_the_largest(rows, bound, step):
        return shipped(rows, 7.0, step) * (7.0 / bound)

    _run(OWN_BOUNDS, relation)
    monkeypatch.setattr(module, "lattice_rows", at_the_largest)
    _fails(OWN_BOUNDS, relation)


@pytest.mark.parametrize("relation", [AR, RO])
def test_norms_counted_in_two_cells_are_caught(monkeypatch, relation):
    module = _module("_histogram")
    shipped = module.histogram

    def twice(codes, n_bins, unit_sizes=None):
        query = shipped(codes, n_bins, unit_sizes)
        return BoundedSum(query.value + np.roll(query.value, 1), 1.0, 2**0.5, lattice=query.lattice)

    _run(CLASS_NORMS, relation)
    monkeypatch.setattr(module, "histogram", twice)
    _fails(CLASS_NORMS, relation)


def test_responsibilities_that_sum_to_more_than_1_are_caught(monkeypatch):
    monkeypatch.setattr(
        _module("_mixture_sums"), "_simplex_rows", lambda r, exact: np.floor(np.nan_to_num(r) * 4096) / 4096
    )
    _fails(MIXTURE, AR, "full", (1, 1, 1), 1.0)


def test_weights_computed_for_as_many_rows_as_there_are_are_caught(monkeypatch):
    shipped = _module("_mixture_sums")
    monkeypatch.setattr(shipped, "_called", lambda responsibilities, rows, exact: responsibilities(rows))
    with pytest.raises(AssertionError):
        mixture_tests.test_a_function_of_rows_sees_one_number_of_them_whatever_their_number()


@pytest.mark.parametrize(
    ("test", "rest"),
    [
        (MOMENTS, (A, B)),
        (CLASS_MOMENTS, (A, B)),
        (SECOND, ()),
        (MIXTURE, ("full", (1, 1, 1), 1.0)),
        (OWN_BOUNDS, ()),
        (SHARED, (0.15, 1.0)),
        (CLASS_NORMS, ()),
        (HISTOGRAM, ()),
        (ONE_HOT, ()),
    ],
)
def test_sqrt_2_left_out_under_replace_one_is_caught(monkeypatch, test, rest):
    monkeypatch.setattr(BoundedSum, "sensitivity", lambda self, neighboring: self.add_or_remove_one)
    _run(test, AR, *rest)
    _fails(test, RO, *rest)


@pytest.mark.parametrize("difference", [lambda b2: 2 + b2, lambda b2: 4.0 + 4 * b2])
@pytest.mark.parametrize("test", [MOMENTS, CLASS_MOMENTS, SHARED])
def test_a_wrong_difference_of_two_rows_is_caught(monkeypatch, test, difference):
    """Too small fails at (a, b^2) = (.05, .5), where two rows of one class are the worst; too large wastes budget."""
    monkeypatch.setattr(_module("_moments"), "_same_class_difference", difference)
    _fails(test, RO, 0.05, 0.5**0.5)


@pytest.mark.parametrize("relation", [AR, RO])
def test_class_sums_that_are_not_paid_are_caught(monkeypatch, relation):
    """The shared second moments are paid for alone."""
    module = _module("_moments")
    shipped = module.class_moments

    def cheap(*arguments, **options):
        query = shipped(*arguments, **options)
        return BoundedSum(query.value, 1.0, 2**0.5, weights=query.weights, lattice=query.lattice)

    monkeypatch.setattr(module, "class_moments", cheap)
    _fails(SHARED, relation, 0.15, 1.0)


def test_sqrt_2_left_off_the_half_vector_is_caught(monkeypatch):
    shipped = _module("_moments")._weights
    monkeypatch.setattr(_module("_moments"), "_weights", lambda d, a, b: np.minimum(shipped(d, a, b), 1.0))
    _fails(moments_tests.test_noise_off_the_diagonal_is_smaller_by_sqrt_2)
    _fails(MOMENTS, RO, 0.05, 0.5**0.5)


@pytest.mark.parametrize("factor", [0.5, 0.5**0.5, 2 / 3, 1.5])
def test_noise_at_another_scale_is_caught(monkeypatch, factor):
    shipped = NoiseGenerator.standard_normal
    monkeypatch.setattr(NoiseGenerator, "standard_normal", lambda self, size=None: factor * shipped(self, size))
    _fails(moments_tests.test_moments_noise_is_at_its_scale, AR, False)
    _fails(mixture_tests.test_mixture_sums_noise_is_at_its_scale, AR, "diag")
    _fails(one_hot_tests.test_one_hot_noise_is_at_its_scale, AR)


def test_weights_left_out_of_the_noise_are_caught(monkeypatch):
    gaussian = _module("_gaussian")

    def unweighted(query, noise_multiplier, rng, neighboring):
        plain = BoundedSum(query.value, query.add_or_remove_one, query.replace_one, lattice=query.lattice)
        return gaussian.add_gaussian(plain, noise_multiplier, rng, neighboring)

    monkeypatch.setattr(moments_tests, "add_gaussian", unweighted)
    _fails(moments_tests.test_moments_noise_is_at_its_scale, AR, False)


def test_sums_in_plain_floating_point_are_caught(monkeypatch):
    shipped = _module("_moments").lattice_rows
    monkeypatch.setattr(_module("_moments"), "lattice_rows", lambda X, bound, step: shipped(X, bound, None))
    _fails(moments_tests.test_sums_are_exact_whatever_the_order_and_the_chunks)


def test_a_selection_threshold_without_its_margin_is_caught(monkeypatch):
    monkeypatch.setattr(gaussian_tests, "selection_threshold", lambda sd, delta, n_columns=1: sd)
    with pytest.raises(AssertionError):
        gaussian_tests.test_a_category_of_one_record_passes_with_probability_delta_at_most(1)
