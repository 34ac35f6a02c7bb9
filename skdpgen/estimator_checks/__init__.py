"""Checks that every private estimator must pass, those of this package and yours: its charge, its releases, its state.

They complete scikit-learn's suite (`sklearn.utils.estimator_checks`), which does not check a privacy budget.
"""

from __future__ import annotations

import warnings

import numpy as np

from ..exceptions import UtilityWarning
from . import _charges, _released  # noqa: F401  each adds its checks to the list, in this order
from ._helpers import CHECKS, N_ROWS

__all__ = ["check_private_estimator", "default_data", "parametrize_with_checks", "private_estimator_checks"]


def parametrize_with_checks(estimators, *, data=None, expected_failed_checks=None):
    """Pytest decorator that runs every check on every estimator.

    Parameters
    ----------
    estimators : list of estimator instances
        Cheap to fit, with ``accountant=None``. Their `epsilon` is used as it is.
    data : callable or None, default=None
        Maps (estimator, n_rows, seed) to the arguments of ``fit``, a tuple (X,) or (X, y); None is `default_data`.
    expected_failed_checks : callable or None, default=None
        Maps an estimator to a dict of check name -> reason; those are marked as expected failures.

    Returns
    -------
    decorator
        For a test function of the arguments `estimator` and `check`, which calls ``check(estimator)``.
    """
    import pytest

    cases = []
    for estimator in estimators:
        expected = {} if expected_failed_checks is None else expected_failed_checks(estimator)
        for check in private_estimator_checks(data):
            name = check.__name__
            marks = [pytest.mark.xfail(reason=expected[name])] if name in expected else []
            cases.append(pytest.param(estimator, check, id=f"{type(estimator).__name__}-{name}", marks=marks))
    return pytest.mark.parametrize(("estimator", "check"), cases)


def check_private_estimator(estimator, *, data=None):
    """Run every check on one estimator; the first that fails raises AssertionError.

    Parameters
    ----------
    estimator : estimator instance
    data : callable or None, default=None
        As in `parametrize_with_checks`.
    """
    for check in private_estimator_checks(data):
        check(estimator)


def private_estimator_checks(data=None):
    """Return the checks, each a function of one estimator."""
    return [_bound(check, data or default_data) for check in CHECKS]


def default_data(estimator, n_rows, seed):
    """Return the arguments of ``fit``: an array of three numeric columns in (-1, 1), and labels where y is required."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n_rows)
    X = np.tanh(rng.normal(size=(n_rows, 3)) * [0.5, 0.3, 0.1] + 0.2 * y[:, None])
    return (X, y) if estimator.__sklearn_tags__().target_tags.required else (X,)


def _bound(check, data):
    def run(estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UtilityWarning)  # with few rows the noise is large
            check(estimator, lambda n_rows=N_ROWS, seed=0: data(estimator, n_rows, seed))

    run.__name__, run.__doc__ = check.__name__, check.__doc__
    return run
