"""scikit-learn's own suite on encoders of arrays: one numeric column stands for all."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from skdpgen.tabular import Numeric, TableEncoder

BOUNDS = (-1e4, 1e4)
ESTIMATORS = {
    "scale": TableEncoder(Numeric("*", BOUNDS), numeric="scale"),
    "bins": TableEncoder(Numeric("*", BOUNDS), n_bins=4),
    "missing": TableEncoder(Numeric("*", BOUNDS, missing=True), numeric="scale"),
    "integers": TableEncoder(Numeric("*", BOUNDS, integer=True), numeric="scale"),
}


def checks():
    for name, encoder in ESTIMATORS.items():
        for estimator, check in estimator_checks_generator(encoder):
            label = getattr(check, "func", check).__name__
            yield pytest.param(estimator, check, id=f"{name}-{label}")


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_table_encoder_passes_scikit_learns_suite(estimator, check):
    # no expected failures
    check(estimator)
