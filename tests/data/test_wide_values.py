"""Numbers whose sum, or whose double, is infinite: no warning depends on them, and none stops a fit that is charged."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from skdpgen import DPPCA, MomentSynthesizer, PrivacyAccountant, PrivateSearchCV
from skdpgen.exceptions import InvalidInputError
from skdpgen.testing import seeded_noise

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

DTYPES = ["float32", "float64"]
_BOUNDED = {"bounds": (-1, 1), "l2_bound": 1.0}


def _wide(dtype):
    """Finite numbers; the sum of the first column overflows to one side, that of the second to the other."""
    X = np.zeros((64, 8), dtype=dtype)
    X[:, 0], X[:, 1] = np.finfo(dtype).max, np.finfo(dtype).min
    return X


def _warned(use):
    """The warnings of numpy during a call."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        use()
    return [str(warning.message) for warning in said if issubclass(warning.category, RuntimeWarning)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_size_of_values_gives_no_warning(dtype):
    X = _wide(dtype)
    assert not _warned(lambda: DPPCA(1, **_BOUNDED).fit(X))
    assert not _warned(lambda: MomentSynthesizer(**_BOUNDED).fit(X))
    fitted = DPPCA(1, **_BOUNDED).fit(np.zeros_like(X))
    assert not _warned(lambda: fitted.transform(X))


def test_a_search_keeps_no_warning_of_the_size_of_values():
    """A search releases the warnings of its best run, which is fitted after the charge."""
    grid = {"centering": ["joint", "two_round"]}
    search = PrivateSearchCV(DPPCA(1, **_BOUNDED), grid, runs="logarithmic", mean_runs=1.5, score_bounds=(-30, 10))
    assert not _warned(lambda: search.fit(_wide("float64")))


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="no wider type than double")
@pytest.mark.parametrize("bounds", [(-1, 1), None])
def test_numbers_that_no_double_holds_are_refused_before_the_charge(bounds):
    X, accountant = np.ones((64, 2), dtype=np.longdouble), PrivacyAccountant(1.0)
    X[0, 0] = np.longdouble(2) ** 2000

    def fit():
        with pytest.raises(InvalidInputError, match="double precision"):
            DPPCA(1, bounds=bounds, accountant=accountant).fit(X)

    assert not _warned(fit)
    assert not accountant.charges


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="no wider type than double")
def test_long_doubles_are_fitted_as_doubles():
    X = np.random.default_rng(0).normal(size=(64, 2))
    found = []
    for dtype in (np.float64, np.longdouble):
        with seeded_noise(0, quiet=True):
            found.append(DPPCA(1, **_BOUNDED).fit(X.astype(dtype)).mean_)
    np.testing.assert_array_equal(*found)
