"""What leaves through the inverse of a pipeline's steps was charged, declared public, or never learned."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    StandardScaler,
)

from skdpgen import DPPCA, DPGaussianMixture, MomentSynthesizer, TableEncoder, sample_pipeline
from skdpgen.tabular import Numeric, Schema

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

X = np.random.default_rng(3).uniform(-1, 1, (400, 3))
CODES = (X > 0).astype(np.int64)


@pytest.mark.parametrize(
    "step", [StandardScaler(), MinMaxScaler(), QuantileTransformer(n_quantiles=10), PCA(3), make_pipeline(PCA(3))]
)
def test_a_step_that_learned_from_the_rows_without_a_charge_is_not_undone(step):
    pipe = Pipeline([("other", step), ("model", MomentSynthesizer(bounds=(-5, 5)))]).fit(X)
    with pytest.raises(ValueError, match=r"'other'.*nothing was charged"):
        sample_pipeline(pipe, 5)
    for public in (("other",), "other"):
        assert sample_pipeline(pipe, 5, public_steps=public).shape == (5, 3)
    with pytest.raises(ValueError, match="no step before the last: 'model'"):
        sample_pipeline(pipe, 5, public_steps=("other", "model"))


def test_an_encoder_is_undone_where_its_categories_were_declared():
    declared = {"categories": [[0, 1]] * 3}
    for encoder in (OrdinalEncoder, OneHotEncoder):
        pipe = make_pipeline(encoder(**declared), FunctionTransformer(), DPPCA(3, bounds=(0, 1)), DPGaussianMixture())
        if encoder is OneHotEncoder:
            pipe[0].set_params(sparse_output=False)
        assert sample_pipeline(pipe.fit(CODES), 5).shape == (5, 3)
        with pytest.raises(ValueError, match="nothing was charged"):
            sample_pipeline(pipe.set_params(**{f"{pipe.steps[0][0]}__categories": "auto"}).fit(CODES), 5)
    counted = make_pipeline(OneHotEncoder(min_frequency=5, sparse_output=False, **declared), DPGaussianMixture())
    with pytest.raises(ValueError, match="nothing was charged"):
        sample_pipeline(counted.fit(CODES), 5)


def test_steps_with_a_schema_or_without_state_are_undone():
    schema = Schema([Numeric(name, (-1, 1)) for name in "abc"])
    inner = make_pipeline(TableEncoder(schema, numeric="scale"), FunctionTransformer())
    pipe = make_pipeline(inner, "passthrough", MomentSynthesizer(bounds=(-1, 1)))
    rows = sample_pipeline(pipe.fit(pd.DataFrame(X, columns=list("abc"))), 6)
    assert list(rows.columns) == list("abc")


def test_a_step_of_which_nothing_is_known_is_not_undone():
    class Unknown:
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X

        inverse_transform = transform

    pipe = Pipeline([("unknown", Unknown()), ("model", MomentSynthesizer(bounds=(-1, 1)))])
    pipe[-1].fit(X)
    with pytest.raises(ValueError, match="'unknown'"):
        sample_pipeline(pipe, 5)
