"""Rows in which a column is missing, or is not: their other columns have their distribution in such rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skdpgen import MomentSynthesizer, P3GMSynthesizer

N = 8000
RNG = np.random.default_rng(0)
ABSENT = RNG.random(N) < 0.3
FRAME = pd.DataFrame(
    {
        "income": np.where(ABSENT, np.nan, RNG.normal(30, 5, N)),
        "job": np.where(RNG.random(N) < np.where(ABSENT, 0.8, 0.1), "none", "some"),
        "left": pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D")).mask(ABSENT),
        "state": pd.Series(RNG.choice(["a", "b"], N)).mask(RNG.random(N) < np.where(ABSENT, 0.5, 0.1), None),
        "age": np.where(ABSENT, RNG.integers(16, 30, N), RNG.integers(30, 70, N)),
    }
)
MODELS = {
    "moments": MomentSynthesizer(6.0, random_state=0),
    "constructed": MomentSynthesizer(6.0, random_state=0, constraints="income <= age + 100"),
    "mixture": P3GMSynthesizer(6.0, prior="mixture", random_state=0),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    return request.param, clone(MODELS[request.param]).fit(FRAME)  # the fixture may be made again


def _shares(rows):
    return np.array([(rows["job"] == "none").mean(), (rows["age"] < 30).mean()])


@pytest.mark.parametrize("column", ["income", "left", "state"])
@pytest.mark.parametrize("absent", [True, False])
def test_rows_with_and_without_a_value_have_the_other_columns_of_such_rows(fitted, column, absent):
    name, model = fitted
    charged = model.accountant_.epsilon_spent()
    wanted = None if absent else ["a", "b"] if column == "state" else (None, None)
    drawn = model.sample(2000, given={column: wanted}, random_state=1)
    assert (drawn[column].isna() == absent).all()
    rows = model.sample(20_000, random_state=2)
    assert np.abs(_shares(drawn) - _shares(rows[rows[column].isna() == absent])).max() < 0.06
    if name != "mixture":  # whose Gaussian latents know less of how columns depend on missing values
        assert np.abs(_shares(drawn) - _shares(FRAME[FRAME[column].isna() == absent])).max() < 0.12
    assert model.accountant_.epsilon_spent() == charged
