from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from skdpgen import DPPCA, PrivacyAccountant
from skdpgen.decomposition import PrincipalComponents
from skdpgen.exceptions import BudgetExceededError, InvalidInputError, UtilityWarning
from skdpgen.testing import seeded_noise

DIGITS = load_digits().data
CANCER = load_breast_cancer().data[:, :10]


def _wide(n=20_000, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 5)) * [3.0, 2.0, 1.0, 0.1, 0.1] + 1.0


def _same_pca(one, other, k, atol):
    np.testing.assert_allclose(one.mean_, other.mean_, atol=atol)
    np.testing.assert_allclose(one.explained_variance_, other.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(one.explained_variance_ratio_, other.explained_variance_ratio_, rtol=1e-6)
    np.testing.assert_allclose(np.abs(np.sum(one.components_ * other.components_, axis=1)), 1.0, atol=1e-6)
    np.testing.assert_allclose(one.components_, other.components_, atol=1e-5)


@pytest.mark.parametrize(("X", "k"), [(DIGITS, 8), (CANCER, 4)])
@pytest.mark.parametrize("centering", ["joint", "two_round"])
@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_without_noise_it_is_scikit_learns_pca(X, k, centering, neighboring):
    reference = PCA(k, svd_solver="covariance_eigh").fit(X)
    options = {"residual_bound": 2.0} if centering == "two_round" else {}
    pca = DPPCA(k, epsilon=np.inf, centering=centering, neighboring=neighboring, **options).fit(X)
    _same_pca(pca, reference, k, 1e-8)
    np.testing.assert_allclose(pca.transform(X), reference.transform(X), atol=1e-4)
    np.testing.assert_allclose(pca.noise_variance_, reference.noise_variance_, rtol=1e-6)
    np.testing.assert_allclose(pca.get_covariance(), reference.get_covariance(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        pca.inverse_transform(pca.transform(X)), reference.inverse_transform(reference.transform(X)), atol=1e-4
    )
    if X is CANCER:
        np.testing.assert_allclose(pca.score(X), reference.score(X), rtol=1e-4)


def test_a_share_of_variance_keeps_as_many_components_as_scikit_learn():
    few = DIGITS[:, 8:24]
    for share in (0.3, 0.9):
        expected = PCA(share, svd_solver="covariance_eigh").fit(few).n_components_
        assert DPPCA(share, epsilon=np.inf).fit(few).n_components_ == expected
    assert DPPCA(epsilon=np.inf).fit(few).n_components_ == 16


@pytest.mark.parametrize("centering", ["joint", "two_round"])
@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_a_noisy_fit_is_near_the_exact_one(centering, neighboring):
    X = _wide()
    with seeded_noise(1, quiet=True):
        pca = DPPCA(2, epsilon=1.0, bounds=(-12, 14), l2_bound=0.9, centering=centering, neighboring=neighboring).fit(X)
    reference = PCA(2).fit(X)
    assert np.abs(np.sum(pca.components_ * reference.components_, axis=1)).min() > 0.99
    np.testing.assert_allclose(pca.mean_, 1.0, atol=0.25)
    np.testing.assert_allclose(pca.explained_variance_, reference.explained_variance_, rtol=0.15)


def test_everything_learned_still_finds_the_components():
    with seeded_noise(1, quiet=True):
        pca = DPPCA(1, epsilon=1.0).fit(_wide())
    assert abs(pca.components_[0, 0]) > 0.95
    assert pca.accountant_.charges[0].label == "DPPCA: bounds, l2_bound, moments"


@pytest.mark.parametrize("centering", ["joint", "two_round"])
def test_a_fit_costs_what_was_asked_and_is_charged_once(centering):
    pca = DPPCA(2, epsilon=0.7, centering=centering).fit(_wide(2000))
    assert len(pca.accountant_.charges) == 1
    assert 0.699 < pca.accountant_.epsilon_spent() <= 0.7 * (1 + 1e-9)
    pca.card_.verify()


def test_two_fits_under_one_seed_differ_and_no_noise_is_seeded():
    X = _wide(2000)
    one, other = (DPPCA(2, bounds=(-9, 9), random_state=0).fit(X) for _ in range(2))
    assert not np.array_equal(one.mean_, other.mean_)


def test_the_clip_of_fit_is_that_of_transform():
    pca = DPPCA(2, bounds=(-4, 4), l2_bound=0.5).fit(_wide(2000))
    far = np.array([[1e6, 0, 0, 0, 0], [-1e6, 1e6, 0, 0, 0]])
    np.testing.assert_allclose(np.linalg.norm(pca.inverse_transform(pca.transform(far)), axis=1) < 10, True)
    assert np.isfinite(pca.score_samples(far)).all()


def test_frames_keep_their_names_and_set_output_works():
    frame = pd.DataFrame(_wide(500), columns=list("abcde"))
    pca = DPPCA(2, epsilon=10.0, bounds=(-9, 9)).set_output(transform="pandas").fit(frame)
    assert list(pca.feature_names_in_) == list("abcde")
    assert list(pca.transform(frame).columns) == ["dppca0", "dppca1"]
    assert list(pca.get_feature_names_out()) == ["dppca0", "dppca1"]
    with pytest.raises(ValueError, match="feature names"):
        pca.transform(frame[list("bacde")])


@pytest.mark.parametrize("X", [np.ones((50, 3)), np.zeros((50, 3)), np.ones((1, 3)), _wide(4)])
@pytest.mark.parametrize("epsilon", [1.0, np.inf])
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_constant_columns_and_few_rows_are_fitted(X, epsilon):
    pca = DPPCA(2, epsilon=epsilon).fit(X)
    assert np.isfinite(pca.components_).all()
    assert np.isfinite(pca.mean_).all()
    assert np.isfinite(pca.transform(X)).all()


def test_components_that_noise_hides_are_said_to_be_noise():
    with pytest.warns(UtilityWarning, match="noise"), seeded_noise(quiet=True):
        DPPCA(2, epsilon=0.1, bounds=(-9, 9)).fit(_wide(100))


def test_all_components_are_said_to_be_noise_where_the_noise_hides_the_first_one():
    with pytest.warns(UtilityWarning, match="hides the components: the largest variance is"), seeded_noise(quiet=True):
        DPPCA(epsilon=0.1, bounds=(-9, 9), l2_bound=1.0).fit(_wide(100))
    DPPCA(epsilon=3.0, bounds=(-9, 9), l2_bound=1.0).fit(_wide(5000))  # without a warning


@pytest.mark.parametrize(
    ("parameters", "X", "message"),
    [
        ({"n_components": 6}, _wide(50), "n_components=6"),
        ({"bounds": (1, 0)}, _wide(50), "bounds"),
        ({"bounds": [(0, 1)] * 4}, _wide(50), "bounds"),
        ({"bounds": (-1, 1), "on_invalid": "raise"}, _wide(50), "outside the declared bounds"),
        ({}, np.full((5, 2), np.nan), "NaN"),
        ({}, np.full((5, 2), np.inf), "infinity"),
        ({}, np.zeros((0, 2)), "0 sample"),
        ({}, np.array([["a", "b"]] * 5, dtype=object), "not numbers"),
        ({"centering": "none"}, _wide(50), "centering"),
        ({"epsilon": -1.0}, _wide(50), "epsilon"),
        ({"delta": 1.0}, _wide(50), "delta"),
        ({"l2_bound": 0.0}, _wide(50), "l2_bound"),
        ({"l2_bound": 1e-200, "bounds": (-9, 9)}, _wide(50), "l2_bound"),
        ({"l2_bound": 1e150, "bounds": (-9, 9)}, _wide(50), "l2_bound"),
        ({"residual_bound": 1e-150, "centering": "two_round"}, _wide(50), "residual_bound"),
        ({"l2_bound": 1e-99, "residual_bound": 1e-3, "centering": "two_round"}, _wide(50), "residual_bound"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_charged(parameters, X, message):
    accountant = PrivacyAccountant(1.0)
    pca = DPPCA(accountant=accountant, **{"epsilon": 0.5, **parameters})
    with pytest.raises(ValueError, match=message):
        pca.fit(X)
    assert not accountant.charges
    with pytest.raises(NotFittedError):
        pca.transform(_wide(3))


def test_a_refused_refit_keeps_the_fit_before_it():
    pca = DPPCA(2, bounds=(-9, 9)).fit(_wide(2000))
    before = pca.components_
    with pytest.raises(ValueError, match="NaN"):
        pca.fit(np.full((5, 5), np.nan))
    assert pca.components_ is before


def test_a_shared_budget_is_charged_and_kept():
    accountant = PrivacyAccountant(1.0)
    X = _wide(2000)
    pca = DPPCA(2, epsilon=0.9, bounds=(-9, 9), l2_bound=1.0, accountant=accountant).fit(X)
    assert clone(pca).accountant is accountant
    assert pca.accountant_ is accountant
    with pytest.raises(BudgetExceededError):
        pca.fit(X)
    assert len(accountant.charges) == 1


def test_a_pickle_transforms_as_before():
    X = _wide(500)
    pca = DPPCA(2, epsilon=5.0, bounds=(-9, 9)).fit(X)
    again = pickle.loads(pickle.dumps(pca))
    assert np.array_equal(again.transform(X), pca.transform(X))


def test_inverse_transform_refuses_another_width():
    pca = DPPCA(2, epsilon=5.0, bounds=(-9, 9)).fit(_wide(500))
    with pytest.raises(ValueError, match="shape"):
        pca.inverse_transform(np.zeros((3, 5)))


@pytest.mark.parametrize(("d", "k"), [(40, 7), (300, 300), (784, 2)])
def test_a_projected_row_does_not_depend_on_the_other_rows(d, k):
    draws = np.random.default_rng(0)
    X, components = draws.normal(size=(2000, d)), np.linalg.qr(draws.normal(size=(d, k)))[0].T
    basis = PrincipalComponents(components, draws.normal(size=d) / 9, np.ones(k), 1.0, 0.0, 1.0)
    whole = basis.project(X, 0.0, 5.0)
    np.testing.assert_allclose(whole, basis.project(X), atol=1e-9)
    for first in (1, 5, 1999):
        assert np.array_equal(whole[first:], basis.project(X[first:], 0.0, 5.0))


def projected_rows_follow_no_order_of_addition():
    draws = np.random.default_rng(0)
    X, components = draws.normal(size=(200, 30)), np.linalg.qr(draws.normal(size=(30, 4)))[0].T
    first, second = (
        PrincipalComponents(part, np.zeros(30), np.ones(4), 1.0, 0.0, 1.0) for part in (components, components[:, ::-1])
    )
    assert np.array_equal(first.project(X, 0.0, 5.0), second.project(X[:, ::-1], 0.0, 5.0))


def test_projected_rows_follow_no_order_of_addition():
    projected_rows_follow_no_order_of_addition()


def test_too_many_components_name_the_limit():
    with pytest.raises(InvalidInputError, match="at most n_features=5"):
        DPPCA(9).fit(_wide(10))


def test_a_residual_bound_without_residuals_is_refused():
    with pytest.raises(ValueError, match="two_round"):
        DPPCA(residual_bound=0.5).fit(CANCER)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({}, 0.075),
        ({"bounds": (0, 4000)}, 0.025),
        ({"l2_bound": 1.0}, 0.05),
        ({"bounds": (0, 4000), "l2_bound": 1.0}, 0),
    ],
)
def test_what_is_learned_takes_its_share_of_the_whole_budget(declared, expected):
    report = DPPCA(2, epsilon=1.0, **declared).plan(CANCER)
    squares = {name: z**-2.0 for name, z in report.noise_multipliers.items()}
    learned = sum(value for name, value in squares.items() if name != "moments")
    assert learned / sum(squares.values()) == pytest.approx(expected, abs=1e-3)
