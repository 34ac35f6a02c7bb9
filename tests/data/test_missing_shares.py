"""Shares of missing values: drawn as they were released where the column is declared, and only where sure elsewhere."""

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer
from skdpgen.tabular import Numeric, Schema


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_declared_missing_values_that_noise_hides_are_drawn_at_their_share(rng):
    frame = pd.DataFrame({"a": rng.random(800), "b": rng.random(800)})
    frame["lab"] = np.where(np.arange(800) % 16 == 0, np.nan, rng.random(800))
    schema = Schema([Numeric(name, (0, 1), missing=name == "lab") for name in frame])
    shares = []
    for seed in range(20):
        model = MomentSynthesizer(0.3, schema=schema, random_state=seed).fit(frame)
        shares.append(model.sample(2000, random_state=0)["lab"].isna().mean())
    # most fits would have none, were a share below three standard deviations of the noise taken for noise
    assert 0.04 < np.mean(shares) < 0.1
    assert np.mean(np.array(shares) > 0) > 0.9


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_column_that_is_not_declared_need_not_have_missing_values(rng):
    frame = pd.DataFrame({"a": rng.random(800), "b": rng.random(800)})
    schema = Schema([Numeric("a", (0, 1), missing=True)])
    codec = MomentSynthesizer(3.0, schema=schema).fit(frame).model_.codec
    optional = [codec.optional(block)[-1] for block in codec.blocks]
    assert [block.levels[-1] for block in codec.blocks] == [None, None]
    assert optional == [False, True]
