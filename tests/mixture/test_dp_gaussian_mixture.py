from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture

from skdpgen import DPGaussianMixture, PrivacyAccountant
from skdpgen.exceptions import UtilityWarning
from skdpgen.mechanisms import class_moments, exact_value, unpack_moments
from skdpgen.mixture import GaussianMixtureParameters, class_gaussians, dp_em
from skdpgen.testing import seeded_noise

pytestmark = pytest.mark.filterwarnings("ignore:the last of:skdpgen.exceptions.UtilityWarning")  # few iterations

CENTRES = np.array([[-2.0, 0.0], [2.0, 1.0], [0.0, -2.5]])


def _blobs(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    return CENTRES[y] + rng.normal(size=(n, 2)) * [0.4, 0.6], y


X, Y = _blobs()
MEANS_INIT = CENTRES + 0.5


def _mixture(covariance_type):
    covariances = np.array([[0.5, 1.0], [2.0, 0.3]])
    if covariance_type == "full":
        covariances = np.array([[[1.0, 0.3], [0.3, 0.5]], [[0.4, -0.1], [-0.1, 2.0]]])
    means = np.array([[0.0, 1.0], [3.0, -1.0]])
    return GaussianMixtureParameters(np.array([0.3, 0.7]), means, covariances, covariance_type)


# ---- the interface of scikit-learn's GaussianMixture ----
def test_fit_predict_is_a_charged_fit_and_its_predictions():
    books = PrivacyAccountant(8.0)
    mixture = DPGaussianMixture(bounds=(-6, 6), classes=[0, 1, 2], accountant=books)
    found = mixture.fit_predict(X, Y)
    assert len(books.charges) == 1
    np.testing.assert_array_equal(found, mixture.predict(X))
    assert (found == Y).mean() > 0.9
    units = np.repeat(np.arange(3000), 2)
    mixture = DPGaussianMixture(bounds=(-6, 6), unit="person", max_rows_per_unit=2)
    assert set(mixture.fit_predict(X, groups=units)) == {0}
    assert mixture.card_["unit"].startswith("all rows of one person")


def test_missing_values_of_a_frame_are_refused_with_where_they_are_modelled():
    frame = pd.DataFrame(X[:9].copy(), columns=["a", "b"])
    frame.loc[3, "a"] = np.nan
    with pytest.raises(ValueError, match="DPGaussianMixture takes complete numbers alone: the synthesizers model"):
        DPGaussianMixture(bounds=(-6, 6)).fit(frame)
    with pytest.raises(ValueError, match=r"give pandas\.DataFrame"):
        DPGaussianMixture(bounds=(-6, 6)).fit(frame.to_numpy())


# ---- parameters ----
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_log_prob_is_scipys(covariance_type):
    mixture, rows = _mixture(covariance_type), np.random.default_rng(0).normal(size=(20, 2)) * 3
    full = [np.diag(c) if covariance_type == "diag" else c for c in mixture.covariances]
    densities = np.stack([stats.multivariate_normal(m, c).pdf(rows) for m, c in zip(mixture.means, full)], axis=1)
    np.testing.assert_allclose(mixture.log_prob(rows), np.log(densities @ mixture.weights))
    expected = densities * mixture.weights
    np.testing.assert_allclose(mixture.responsibilities(rows), expected / expected.sum(axis=1, keepdims=True))
    assert np.isfinite(mixture.responsibilities(np.full((1, 2), 1e8))).all()


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_samples_follow_the_law_and_its_affine_image(covariance_type):
    mixture = _mixture(covariance_type)
    rows, labels = mixture.sample(40_000, np.random.default_rng(0))
    assert np.bincount(labels) / 40_000 == pytest.approx([0.3, 0.7], abs=0.01)
    for k in range(2):
        np.testing.assert_allclose(rows[labels == k].mean(axis=0), mixture.means[k], atol=0.05)
        expected = np.diag(mixture.covariances[k]) if covariance_type == "diag" else mixture.covariances[k]
        np.testing.assert_allclose(np.cov(rows[labels == k].T), expected, atol=0.08)
    scale, offset = np.array([2.0, 0.5]), np.array([1.0, -1.0])
    moved = mixture.affine(offset, scale)
    np.testing.assert_allclose(moved.log_prob(rows * scale + offset), mixture.log_prob(rows) - np.log(scale).sum())


def test_parameters_of_shapes_that_do_not_agree_are_refused():
    with pytest.raises(ValueError, match="shapes"):
        GaussianMixtureParameters(np.ones(2) / 2, np.zeros((2, 3)), np.ones((2, 3, 3)), "diag")
    with pytest.raises(ValueError, match="covariance_type"):
        GaussianMixtureParameters(np.ones(1), np.zeros((1, 3)), np.ones((1, 3)), "tied")


# ---- no noise is EM ----
def _reference(covariance_type, start, n_iter):
    precisions = 1 / start.covariances if covariance_type == "diag" else np.linalg.inv(start.covariances)
    reference = GaussianMixture(
        3, covariance_type=covariance_type, weights_init=start.weights, means_init=start.means,
        precisions_init=precisions, max_iter=n_iter, tol=0.0, reg_covar=0.0,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="converge"):
        return reference.fit(X)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_without_noise_it_is_em_from_the_same_start(covariance_type):
    wide = np.full((3, 2), 1.5) if covariance_type == "diag" else np.array([np.eye(2) * 1.5] * 3)
    start = GaussianMixtureParameters(np.full(3, 1 / 3), MEANS_INIT, wide, covariance_type)
    fitted = dp_em(
        X, start, n_iter=4, noise_multiplier=0.0, rng=None, neighboring="replace_one", radius=20.0, min_variance=1e-9
    )
    reference = _reference(covariance_type, start, 4)
    np.testing.assert_allclose(fitted.weights, reference.weights_, rtol=1e-8)
    np.testing.assert_allclose(fitted.means, reference.means_, rtol=1e-7)
    np.testing.assert_allclose(fitted.covariances, reference.covariances_, rtol=1e-6)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_the_estimator_without_noise_is_em_from_the_same_start(covariance_type):
    mixture = DPGaussianMixture(
        3, epsilon=np.inf, bounds=(-8, 8), l2_bound=1.5, means_init=MEANS_INIT, n_iter=4,
        covariance_type=covariance_type, min_variance=1e-9,
    ).fit(X)  # fmt: skip
    variance = (8 * 1.5) ** 2 / 8  # the public start: radius^2 / (4 n_features), in the units of the rows
    wide = np.full((3, 2), variance) if covariance_type == "diag" else np.array([np.eye(2) * variance] * 3)
    reference = _reference(
        covariance_type, GaussianMixtureParameters(np.full(3, 1 / 3), MEANS_INIT, wide, covariance_type), 4
    )
    np.testing.assert_allclose(mixture.means_, reference.means_, rtol=1e-6)
    np.testing.assert_allclose(mixture.covariances_, reference.covariances_, rtol=1e-6)
    np.testing.assert_allclose(mixture.score_samples(X), reference.score_samples(X), rtol=1e-6)
    np.testing.assert_allclose(mixture.predict_proba(X), reference.predict_proba(X), atol=1e-6)
    assert mixture.count_ == pytest.approx(len(X))


def test_one_component_without_noise_is_the_empirical_gaussian():
    mixture = DPGaussianMixture(epsilon=np.inf).fit(X)
    np.testing.assert_allclose(mixture.means_[0], X.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(mixture.covariances_[0], np.cov(X.T, bias=True), rtol=1e-8)


# ---- with noise ----
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_a_noisy_fit_is_near_the_blobs(covariance_type, neighboring):
    with seeded_noise(0, quiet=True):
        mixture = DPGaussianMixture(
            3, epsilon=8.0, bounds=(-5, 5), l2_bound=1.0, means_init=MEANS_INIT, covariance_type=covariance_type,
            neighboring=neighboring, random_state=0, n_iter=5,
        ).fit(X)  # fmt: skip
    np.testing.assert_allclose(mixture.means_, CENTRES, atol=0.3)
    np.testing.assert_allclose(mixture.weights_, [0.5, 0.3, 0.2], atol=0.05)
    assert np.mean(mixture.predict(X) == Y) > 0.95
    assert mixture.count_ == pytest.approx(len(X), rel=0.05)


def test_a_start_from_released_moments_finds_most_of_the_likelihood():
    best = GaussianMixture(3, random_state=0).fit(X).score(X)
    with seeded_noise(0, quiet=True):
        mixture = DPGaussianMixture(3, epsilon=2.0, random_state=0).fit(X)
    assert mixture.score(X) > best - 1.0


@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_with_y_there_is_one_gaussian_a_class_in_one_release(epsilon):
    names = np.array(["low", "mid", "top"])[Y]
    with seeded_noise(0, quiet=True):
        mixture = DPGaussianMixture(
            epsilon=epsilon, bounds=(-5, 5), l2_bound=1.0, classes=["top", "low", "mid"], shrinkage=0.0
        ).fit(X, names)
    assert mixture.classes_.tolist() == ["low", "mid", "top"]
    np.testing.assert_allclose(mixture.means_, CENTRES, atol=0.25 if epsilon == 1.0 else 0.05)
    assert np.mean(mixture.predict(X) == names) > (0.85 if epsilon == 1.0 else 0.97)
    assert len(mixture.accountant_.charges) == 1
    if epsilon == np.inf:
        np.testing.assert_allclose(mixture.covariances_[0], np.cov(X[Y == 0].T, bias=True), rtol=1e-6)


def test_classes_not_declared_are_learned_and_a_rare_one_stays_untold():
    labels = np.where(np.arange(len(X)) == 0, "a very long and rare label", np.array(["a", "b", "c"])[Y])
    with seeded_noise(0, quiet=True):
        mixture = DPGaussianMixture(epsilon=1.0, bounds=(-5, 5)).fit(X, labels)
    assert mixture.classes_.tolist() == ["a", "b", "c"]
    assert mixture.classes_.dtype == np.dtype("<U1")  # not even the length of the rare one
    assert mixture.accountant_.charges[0].extra_delta > 0
    assert mixture.accountant_.epsilon_spent() <= 1.0 + 1e-9


@pytest.mark.filterwarnings("ignore:the noise on the covariances")
def test_classes_that_drown_become_one_and_an_absent_class_is_fitted():
    with pytest.warns(UtilityWarning, match="hides every class"), seeded_noise(0, quiet=True):
        mixture = DPGaussianMixture(epsilon=0.5, bounds=(-5, 5), l2_bound=1.0).fit(X[:30], Y[:30])
    assert mixture.n_components_ == 1
    assert mixture.sample(5)[1].tolist() == [0] * 5
    absent = DPGaussianMixture(epsilon=1.0, bounds=(-5, 5), l2_bound=1.0, classes=[0, 1, 2, 3]).fit(X, Y)
    assert absent.n_components_ == 4
    assert np.isfinite(absent.score(X))


@pytest.mark.parametrize("rows", [np.ones((40, 2)), np.zeros((40, 2)), np.ones((1, 2)), X[:3]])
@pytest.mark.parametrize("n_components", [1, 4])
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_constant_columns_and_few_rows_are_fitted(rows, n_components, covariance_type):
    for epsilon in (1.0, np.inf):
        mixture = DPGaussianMixture(n_components, epsilon=epsilon, covariance_type=covariance_type).fit(rows)
        assert np.isfinite(mixture.score(rows))
        assert np.isfinite(mixture.sample(10)[0]).all()


# ---- sample ----
def _fitted(**parameters):
    return DPGaussianMixture(epsilon=5.0, bounds=(-5, 5), l2_bound=1.0, classes=[0, 1, 2], **parameters).fit(X, Y)


def test_sample_advances_repeats_and_defaults_to_the_released_count():
    mixture = _fitted(random_state=0)
    rows, labels = mixture.sample(100)
    assert not np.array_equal(rows, mixture.sample(100)[0])
    assert np.array_equal(mixture.sample(100, random_state=0)[0], mixture.sample(100, random_state=0)[0])
    assert rows.shape == (100, 2)
    assert set(labels) <= {0, 1, 2}
    assert len(mixture.sample()[0]) == round(mixture.count_)


def test_sample_takes_classes_and_ratios():
    mixture = _fitted()
    asked = np.array([2, 0, 0, 1, 2] * 40)
    rows, labels = mixture.sample(y=asked)
    assert np.array_equal(labels, asked)
    assert np.mean(mixture.predict(rows) == asked) > 0.9
    assert set(mixture.sample(50, class_ratio=[0, 1, 0])[1]) == {1}
    with pytest.raises(ValueError, match="not among"):
        mixture.sample(y=[7])
    with pytest.raises(ValueError, match=r"y must be a list of classes.*: y=\[1\] \* n"):
        mixture.sample(y=1)
    with pytest.raises(ValueError, match="class_ratio"):
        mixture.sample(5, class_ratio=[1, -1, 1])
    with pytest.raises(ValueError, match="labels were given"):
        mixture.sample(5, y=[1])
    with pytest.raises(ValueError, match="n_samples"):
        mixture.sample(0)
    with pytest.raises(ValueError, match="fitted without y"):
        DPGaussianMixture(bounds=(-5, 5)).fit(X).sample(y=[0])


def test_frames_and_series_come_back_as_they_went_in():
    frame = pd.DataFrame(X, columns=["u", "v"])
    y = pd.Series(np.array(["a", "b", "c"])[Y], name="kind", dtype="category")
    mixture = DPGaussianMixture(epsilon=5.0, bounds=(-5, 5), classes=["a", "b", "c"]).fit(frame, y)
    rows, labels = mixture.sample(20)
    assert list(rows.columns) == ["u", "v"]
    assert labels.name == "kind"
    assert isinstance(labels, pd.Series)
    again = pickle.loads(pickle.dumps(mixture))
    assert list(again.sample(3)[0].columns) == ["u", "v"]


# ---- the books, and bad input ----
def test_one_release_an_iteration_is_charged():
    mixture = DPGaussianMixture(3, epsilon=1.0, n_iter=7).fit(X)
    (charge,) = mixture.accountant_.charges
    from skdpgen.accounting import describe_event

    assert sum(row["count"] for row in describe_event(charge.event)) == 7 + 1 + 2  # EM, its start, bounds and norm
    assert 0.999 < mixture.accountant_.epsilon_spent() <= 1.0 + 1e-9
    mixture.card_.verify()


def test_two_fits_under_one_seed_differ():
    one, other = (DPGaussianMixture(2, bounds=(-5, 5), random_state=0).fit(X) for _ in range(2))
    assert not np.array_equal(one.means_, other.means_)


@pytest.mark.parametrize(
    ("parameters", "data", "message"),
    [
        ({}, (np.full((4, 2), np.nan),), "NaN"),
        ({}, (X, Y[:-1]), "y must have shape"),
        ({}, (X, Y.astype(float)), "class labels"),
        ({"classes": [0, 1]}, (X, Y), "not among the declared classes"),
        ({"classes": [0, 1, 1]}, (X, Y), "twice"),
        ({"means_init": [[0.0]]}, (X,), "means_init"),
        ({"bounds": (-1, 1), "on_invalid": "raise"}, (X,), "outside the declared bounds"),
        ({"n_iter": 0}, (X,), "n_iter"),
        ({"l2_bound": 1e-200}, (X,), "l2_bound"),
        ({"l2_bound": 1e120}, (X,), "l2_bound"),
        ({}, (X, np.array(["a", None] * 3000, dtype=object)), "NaN"),
        ({}, (X, np.array(["a", 3] * 3000, dtype=object)), "of one kind"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_charged(parameters, data, message):
    accountant = PrivacyAccountant(1.0)
    mixture = DPGaussianMixture(accountant=accountant, epsilon=0.5, **parameters)
    with pytest.raises(ValueError, match=message):
        mixture.fit(*data)
    assert not accountant.charges
    with pytest.raises(NotFittedError):
        mixture.sample(3)


@pytest.mark.filterwarnings("default:the last of:skdpgen.exceptions.UtilityWarning")
def test_em_that_has_not_settled_is_said_and_one_that_has_is_not(recwarn):
    options = {"epsilon": np.inf, "bounds": (-5, 5), "means_init": MEANS_INIT}
    with pytest.warns(UtilityWarning, match="of EM still moved a mean"):
        DPGaussianMixture(3, n_iter=2, **{**options, "means_init": np.array(MEANS_INIT) / 4}).fit(X)
    recwarn.clear()
    DPGaussianMixture(3, n_iter=30, **options).fit(X)
    assert not [w for w in recwarn if "of EM still" in str(w.message)]


@pytest.mark.filterwarnings("ignore:the noise on the covariances")
def test_no_class_is_thinner_than_the_noise_of_its_covariance():
    flat = np.column_stack([X[:, 0], 0.01 * X[:, 1]])
    for seed in range(5):
        with seeded_noise(seed, quiet=True):
            mixture = DPGaussianMixture(epsilon=1.0, bounds=(-5, 5), l2_bound=1.5, classes=[0, 1, 2]).fit(flat, Y)
        multiplier = mixture.accountant_.report()["noise_multiplier"].iloc[-1]
        counts = mixture.weights_ * mixture.count_
        least = np.array([np.linalg.eigvalsh(c)[0] for c in mixture.covariances_])
        assert (least > (multiplier / counts) * (5 * 1.5) ** 2).all()


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.filterwarnings("ignore:. of 3 components")
def test_no_component_of_em_is_thinner_than_the_noise_of_its_covariance(covariance_type):
    flat = np.column_stack([X[:, 0], 0.01 * X[:, 1]])
    for seed in range(5):
        with seeded_noise(seed, quiet=True):
            mixture = DPGaussianMixture(
                3, epsilon=1.0, bounds=(-5, 5), l2_bound=1.5, covariance_type=covariance_type, random_state=0
            ).fit(flat)
        multiplier = mixture.accountant_.report()["noise_multiplier"].iloc[-1]
        counts = mixture.weights_ * mixture.count_
        full = [np.diag(c) if covariance_type == "diag" else c for c in mixture.covariances_]
        least = np.array([np.linalg.eigvalsh(c)[0] for c in full])
        assert (least > (np.minimum(multiplier / counts, 0.49) * (5 * 1.5) ** 2)).all()


def test_components_that_the_noise_hides_are_said_and_others_are_not(recwarn):
    options = {"bounds": (-5, 5), "l2_bound": 1.0, "means_init": MEANS_INIT, "n_iter": 5}
    with pytest.warns(UtilityWarning, match="3 components have fewer rows than the noise hides: use fewer components"):
        DPGaussianMixture(3, epsilon=0.5, **options).fit(X[:60])
    recwarn.clear()
    DPGaussianMixture(3, epsilon=8.0, **options).fit(X)
    DPGaussianMixture(3, epsilon=np.inf, **options).fit(X[:60])
    assert not [w for w in recwarn if "the noise hides" in str(w.message)]


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({"classes": [0, 1, 2]}, None, "classes is used only with y"),
        ({"means_init": [[0.0, 0.0]]}, None, "means_init is used only without y"),
        ({"means_init": [[0.0, 0.0]] * 2, "n_components": 2}, Y, "means_init is used only without y"),
        ({"budget_split": {"bounds": 0.7}}, None, "leaves nothing for the model"),
    ],
)
def test_parameters_that_would_do_nothing_are_refused_uncharged(parameters, y, message):
    accountant = PrivacyAccountant(1.0)
    with pytest.raises(ValueError, match=message):
        DPGaussianMixture(accountant=accountant, **parameters).fit(X, y)
    assert accountant.charges == ()


# ---- class_gaussians ----
def test_class_gaussians_in_a_basis_are_those_of_the_projected_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 5)) @ rng.normal(size=(5, 5)) / 9 + Y[:900, None] / 5
    y = Y[:900]
    released = unpack_moments(exact_value(class_moments(rows, y, 3, l2_bound=9.0, exact=False)), 5, 9.0)
    components, mean = np.linalg.qr(rng.normal(size=(5, 2)))[0].T, rows.mean(axis=0)
    projected = (rows - mean) @ components.T
    fitted = class_gaussians(released, (mean, components), shrinkage=0.0, max_variance=9.0, min_variance=1e-9)
    within = sum(np.cov(projected[y == k].T, bias=True) * np.sum(y == k) for k in range(3)) / 900
    shrunk = class_gaussians(released, (mean, components), shrinkage=0.3, max_variance=9.0, min_variance=1e-9)
    for k in range(3):
        own = np.cov(projected[y == k].T, bias=True)
        np.testing.assert_allclose(fitted.means[k], projected[y == k].mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(fitted.covariances[k], own, atol=1e-9)
        np.testing.assert_allclose(shrunk.covariances[k], 0.7 * own + 0.3 * within, atol=1e-9)
    np.testing.assert_allclose(fitted.weights, np.bincount(y) / 900)


def test_covariances_that_drown_are_said_to_and_others_are_not():
    rng = np.random.default_rng(0)
    y = np.arange(3000) % 3
    X = rng.normal(size=(3000, 30)) + y[:, None]
    declared = {"bounds": (-5, 7), "l2_bound": 3.0, "classes": range(3)}
    with pytest.warns(UtilityWarning, match="noise on the covariances is as large as they are in . of 3 Gaussians"):
        DPGaussianMixture(epsilon=0.2, **declared).fit(X, y)
    DPGaussianMixture(epsilon=5.0, **declared).fit(X, y)


@pytest.mark.parametrize(
    ("declared", "y"),
    [
        ({}, None),
        ({"bounds": (-5, 5), "l2_bound": 1.0, "means_init": MEANS_INIT}, None),
        ({"bounds": (-5, 5), "classes": [0, 1, 2]}, Y),
    ],
)
def test_the_card_names_all_that_was_declared_public_and_nothing_else(declared, y):
    """What is declared is not charged: a card that left it out would claim that it was learned under privacy."""
    fitted = DPGaussianMixture(3, epsilon=50.0, **declared).fit(X, y)
    told = fitted.card_["public_assumptions"]
    assert {text.split(":")[0] for text in told if "declared public by the caller" in text} == set(declared)


def test_the_card_says_that_the_kind_of_the_labels_was_taken_for_public():
    with_labels = DPGaussianMixture(epsilon=50.0, bounds=(-5, 5)).fit(X, Y).card_["public_assumptions"]
    without = DPGaussianMixture(2, epsilon=50.0, bounds=(-5, 5)).fit(X).card_["public_assumptions"]
    assert any("kind (dtype) of y" in text for text in with_labels)
    assert not any("of y" in text for text in without)
