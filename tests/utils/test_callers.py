"""Warnings name the line of the code that asked for a fit, and not one of this package or of scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpgen import DPPCA, DPGaussianMixture, MomentSynthesizer, P3GMSynthesizer

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"x": RNG.normal(size=300), "town": RNG.choice([f"t{k}" for k in range(80)], 300)})
TARGET = pd.Series(RNG.integers(0, 2, 300), name="ill")


def said_by(fit):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit()
    return said


def test_warnings_of_a_fit_name_the_line_that_called_it():
    for model in (P3GMSynthesizer, MomentSynthesizer):
        said = said_by(lambda model=model: model(epsilon=0.5).fit(FRAME, TARGET))
        assert len(said) > 2
        assert {warning.filename for warning in said} == {__file__}
    said = said_by(lambda: DPPCA(1, epsilon=0.01).fit(FRAME[["x"]].assign(y=1.0)))
    assert said
    assert {warning.filename for warning in said} == {__file__}


def test_also_inside_of_pipelines_and_cross_validations():
    pipeline = make_pipeline(FunctionTransformer(), MomentSynthesizer(epsilon=0.5))
    learned = [w for w in said_by(lambda: pipeline.fit(FRAME, TARGET)) if "too few rows" in str(w.message)]
    assert [warning.filename for warning in learned] == [__file__]
    search = said_by(lambda: cross_val_score(MomentSynthesizer(epsilon=0.5), FRAME, TARGET, cv=2))
    learned = [warning for warning in search if "too few rows" in str(warning.message)]
    assert [warning.filename for warning in learned] == [__file__] * 2


def test_also_warnings_that_come_after_the_charge_and_those_of_searches():
    # fit_transform, set_output and pipelines add frames of scikit-learn of another number
    rows = RNG.normal(size=(60, 3))
    said = said_by(lambda: DPPCA(2, epsilon=0.01, bounds=(-3, 3)).set_output(transform="pandas").fit_transform(rows))
    mixture = DPGaussianMixture(2, epsilon=0.5, bounds=(-3, 3))
    said += said_by(lambda: make_pipeline(FunctionTransformer(), mixture).fit(rows))
    said += said_by(lambda: cross_val_score(DPPCA(2, epsilon=1.0, bounds=(-3, 3)), rows, cv=2))
    again = MomentSynthesizer(epsilon=9.0, delta=0.1, bounds=(-3, 3))
    said += said_by(lambda: again.fit(rows)) + said_by(lambda: again.fit(rows))
    texts = " ".join(str(warning.message) for warning in said)
    after = ("noise of the released covariance", "was fitted before", "is not below one row")
    for expected in ("inside a search", *after):
        assert expected in texts
    assert {warning.filename for warning in said} == {__file__}
