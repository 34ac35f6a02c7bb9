from __future__ import annotations

import warnings

import numpy as np
import pytest

from skdpgen import MomentSynthesizer, P3GMSynthesizer
from skdpgen.data.scaling import RowScaling, check_bounds, learn_norm_bound, learn_scaling, scaling_phases
from skdpgen.exceptions import InvalidInputError, UtilityWarning
from skdpgen.mechanisms import N_OCTAVE_CELLS
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator
from skdpgen.utils.watching import watch_releases

RNG = np.random.default_rng(2)
AR = "add_or_remove_one"


def _learn(X, bounds=None, l2_bound=None, noise=5.0, relation=AR, **kwargs):
    noises = {"bounds": noise, "l2_bound": noise}
    pairs = check_bounds(bounds, X.shape[1])
    with seeded_noise(1, quiet=True):  # in one fit of twenty an empty cell stands above the noise
        return learn_scaling(X, pairs, l2_bound, noises, make_noise_generator(), relation, **kwargs)


def test_scaled_rows_lie_in_the_unit_box_and_come_back():
    scaling = RowScaling(np.array([-1.0, 0, 10, -8]), np.array([3.0, 5, 20, -4]), 1.0)
    X = RNG.uniform(scaling.lower, scaling.upper, (50, 4))
    scaled = scaling.transform(X)
    assert np.abs(scaled).max() <= 1
    assert scaled[:, 1].min() >= 0  # values of one sign stay of one sign
    np.testing.assert_allclose(scaling.inverse_transform(scaled), X)
    assert not scaling.transform([[0.0, 0, 10, -4]]).any()  # the bound nearest to zero is mapped to zero
    np.testing.assert_array_equal(scaling.transform([[99.0, -1, 0, 0]]), scaling.transform([[3.0, 0, 10, -4]]))


def test_the_box_of_scaled_rows_is_mapped_to_zero_and_one():
    scaling = RowScaling(np.array([-1.0, 0, 10, -8]), np.array([3.0, 5, 20, -4]), 1.0)
    box = scaling.box
    for bound, unit in ((scaling.lower, 0.0), (scaling.upper, 1.0)):
        np.testing.assert_array_equal(box.to_unit(scaling.transform(bound[None])), np.full((1, 4), unit))
    scaled = scaling.transform(RNG.uniform(scaling.lower, scaling.upper, (50, 4)))
    np.testing.assert_allclose(box.from_unit(box.to_unit(scaled)), scaled)


@pytest.mark.parametrize("bounds", [(0, 0), (1, 0), [(0, 1)], (0, np.nan), (-np.inf, 1), [1, 2, 3], "ab"])
def test_bounds_that_are_none_are_refused(bounds):
    with pytest.raises((InvalidInputError, ValueError)):
        check_bounds(bounds, 4)


def test_what_is_declared_is_not_released():
    assert scaling_phases(None, None, 0.1) != scaling_phases(None, 2.0, 0.1)
    assert [p.label for p in scaling_phases(check_bounds((0, 1), 2), None, 0.1)] == ["l2_bound"]
    assert scaling_phases(check_bounds((0, 1), 2), 1.0, 0.1) == []
    assert [p.label for p in scaling_phases(None, None, 0.1)] == ["bounds", "l2_bound"]
    assert all(0 < p.share <= 0.1 for p in scaling_phases(None, None, 0.1))
    scaling = _learn(RNG.normal(size=(30, 2)), bounds=(-3, 3), l2_bound=1.25)
    assert (scaling.lower.tolist(), scaling.upper.tolist(), scaling.l2_bound) == ([-3, -3], [3, 3], 1.25)


@pytest.mark.parametrize("relation", [AR, "replace_one"])
def test_learned_bounds_hold_the_rows_within_two_octaves(relation):
    X = RNG.normal(size=(4000, 3)) * [1e-3, 1.0, 1e5] + [0, 50, 0]
    scaling = _learn(X, relation=relation)
    inside = (X >= scaling.lower) & (X <= scaling.upper)
    assert inside.mean() > 0.97
    width = np.maximum(np.abs(X.min(axis=0)), np.abs(X.max(axis=0)))
    assert (np.maximum(scaling.upper, -scaling.lower) <= 4.01 * width).all()
    # a column of one sign, far from zero
    assert scaling.lower[1] >= 32 - 1e-9 or scaling.lower[1] >= 0


@pytest.mark.parametrize(("relation", "of_bounds", "of_norms"), [(AR, 2.0, 1.0), ("replace_one", 8**0.5, 2**0.5)])
def test_all_columns_are_learned_in_one_release_and_row_norms_in_another(relation, of_bounds, of_norms):
    """One row is in a cell of each of four columns: a release for each column would be four charges."""
    told = []
    with watch_releases(lambda released, sd, kind: told.append((released.size, *np.unique(sd)))):
        _learn(RNG.normal(size=(500, 4)), relation=relation)
    (size, sd), (_, sd_of_norms) = told
    assert size == 4 * N_OCTAVE_CELLS
    assert (sd, sd_of_norms) == pytest.approx((5.0 * of_bounds, 5.0 * of_norms))


def test_without_noise_no_row_is_clipped():
    X = RNG.normal(size=(500, 3))
    scaling = _learn(X, noise=0.0)
    assert (X >= scaling.lower).all()
    assert (X <= scaling.upper).all()
    assert np.linalg.norm(scaling.transform(X), axis=1).max() <= scaling.l2_bound


def test_a_learned_norm_leaves_about_nine_rows_in_ten_whole():
    norms = np.linalg.norm(RNG.normal(size=(20_000, 4)), axis=1)
    bound = learn_norm_bound(norms, 64.0, 5.0, make_noise_generator(), AR)
    assert 0.85 < np.mean(norms <= bound) < 0.99


@pytest.mark.parametrize(
    "X", [np.zeros((300, 2)), np.full((300, 2), 7.0), np.full((1, 2), -1e-20), np.full((9, 1), 1e14)]
)
def test_constant_tiny_and_huge_columns_have_bounds(X):
    with np.errstate(all="raise"):
        scaling = _learn(X, noise=0.0)
    assert (scaling.upper > scaling.lower).all()
    assert np.isfinite(scaling.transform(X)).all()
    assert scaling.l2_bound > 0


def test_rows_beyond_the_grid_of_bounds_are_clipped_to_it_and_that_is_said():
    with pytest.warns(UtilityWarning, match="reach the end of the range"), np.errstate(all="raise"):
        scaling = _learn(np.full((9, 1), 1e300), noise=0.0)
    assert scaling.upper.tolist() == [2.0**48]
    assert scaling.transform([[1e300]]).tolist() == [[1.0]]


def test_noise_that_hides_everything_is_said():
    with pytest.warns(UtilityWarning, match="hides the range"), pytest.warns(UtilityWarning, match="hides the norms"):
        scaling = _learn(RNG.normal(size=(20, 2)), noise=1e6)
    assert scaling.lower.tolist() == [-1, -1]
    assert scaling.upper.tolist() == [1, 1]
    assert 0 < scaling.l2_bound <= 2**0.5


def test_columns_that_are_nan_in_the_bounds_are_learned():
    pairs = (np.array([0.0, np.nan]), np.array([1.0, np.nan]))
    X = np.column_stack([RNG.random(3000), 100 * RNG.random(3000)])
    scaling = learn_scaling(X, pairs, 1.0, {"bounds": 3.0}, make_noise_generator(), AR)
    assert (scaling.lower[0], scaling.upper[0]) == (0, 1)
    assert scaling.upper[1] == 128


def test_norms_are_those_of_the_projected_rows():
    X = RNG.normal(size=(3000, 3))
    scaling = _learn(X, bounds=(-4, 4), noise=0.0, project=lambda rows: 0.1 * rows)
    whole = _learn(X, bounds=(-4, 4), noise=0.0)
    assert scaling.l2_bound == pytest.approx(0.1 * whole.l2_bound, rel=0.1)


def test_a_norm_bound_that_the_noise_hides_is_never_far_too_small():
    norms = np.full(400, 1.0)
    with seeded_noise(2, quiet=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        bounds = [learn_norm_bound(norms, 4.0, 38.0, make_noise_generator(), AR, count=400.0) for _ in range(200)]
    assert min(bounds) >= 1.0


@pytest.mark.parametrize("make", [P3GMSynthesizer, MomentSynthesizer])
def test_no_warning_asks_for_a_norm_that_is_declared(make):
    X = RNG.random((30, 16))
    for options in ({}, {"image_shape": (4, 4)}):
        with pytest.warns(UtilityWarning) as said:
            make(0.1, bounds=(0, 1), l2_bound=3.0, **options).fit(X)
        texts = [str(w.message) for w in said]
        assert any("norms of the rows about their mean" in text and "smaller l2_bound=" in text for text in texts)
        assert not any("norms of the rows, so" in text for text in texts)


def test_noise_in_one_of_many_columns_does_not_widen_its_learned_bounds():
    # the noise hides most of 100 columns: without the range of all columns together, most such fits have a column
    # whose bounds are a million times too wide
    wide = 0
    X = np.random.default_rng(0).normal(size=(2000, 100))
    for seed in range(5):
        with seeded_noise(seed, quiet=True):
            scaling = learn_scaling(X, None, 2.0, {"bounds": 20.0, "l2_bound": 20.0}, make_noise_generator(), AR)
        wide += max(abs(scaling.lower).max(), scaling.upper.max()) > 1000
    assert wide <= 1


def test_a_column_of_other_magnitude_keeps_its_learned_bounds():
    X = np.random.default_rng(0).normal(size=(4000, 20)) * np.where(np.arange(20) < 18, 1, 1e6)
    scaling = _learn(X, l2_bound=2.0, noise=20.0)
    assert (scaling.upper[18:] > 1e6).all()
    assert (scaling.upper[:18] < 100).all()
