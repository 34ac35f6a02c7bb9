"""An end without a start is distributed as other ends are, for dates of days and with times, and for numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, Schema
from skdpgen.tabular import Datetime, Numeric

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
YEAR = 365 * 24 * 3600


def _accounts(step, n=6000):
    """Born 1950 to 2000, and opened 18 to 33 years later; a tenth of each is missing."""
    rng = np.random.default_rng(0)
    born = np.datetime64("1950-01-01", "s") + rng.integers(0, 50 * YEAR, n)
    opened = born + rng.integers(18 * YEAR, 33 * YEAR, n)
    frame = pd.DataFrame({"born": born, "opened": opened}).astype("datetime64[us]")
    frame = frame.apply(lambda dates: dates.dt.floor(step))
    return frame.mask(rng.random(frame.shape) < 0.1)


@pytest.mark.parametrize("bounds", [None, ("1950-01-01", "2035-01-01")])
@pytest.mark.parametrize("step", ["D", "s"])
def test_dates(step, bounds):
    frame = _accounts(step)
    schema = Schema([Datetime(name, bounds, resolution=step, missing=True) for name in frame.columns])
    rows = MomentSynthesizer(3.0, schema=schema, constraints="born <= opened").fit(frame).sample(6000, random_state=0)
    assert not (rows["born"] > rows["opened"]).any()
    for table in (rows, frame):
        assert table["born"].isna().mean() == pytest.approx(0.1, abs=0.02)
        assert (table["born"].isna() & table["opened"].isna()).mean() == pytest.approx(0.01, abs=0.01)
    alone, whole = (table.loc[table["born"].isna(), "opened"].dropna() for table in (rows, frame))
    for share in (0.1, 0.5, 0.9):
        assert abs(alone.quantile(share) - whole.quantile(share)) < pd.Timedelta(4 * 365, unit="D")


def test_numbers():
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 10, 4000)
    frame = pd.DataFrame({"low": low, "high": low + rng.uniform(20, 30, 4000)})
    frame["low"] = frame["low"].mask(rng.random(4000) < 0.2)
    schema = Schema([Numeric("low", (0, 40), missing=True), Numeric("high", (0, 40))])
    rows = MomentSynthesizer(5.0, schema=schema, constraints="low <= high").fit(frame).sample(4000, random_state=0)
    assert rows.loc[rows["low"].isna(), "high"].mean() == pytest.approx(30, abs=2)


def test_a_sample_without_a_whole_row_has_ends_within_their_bounds():
    frame = pd.DataFrame({"low": np.full(3000, np.nan), "high": np.linspace(0, 40, 3000)})
    schema = Schema([Numeric("low", (0, 40), missing=True), Numeric("high", (0, 40))])
    rows = MomentSynthesizer(5.0, schema=schema, constraints="low <= high").fit(frame).sample(50, random_state=0)
    assert rows["high"].between(0, 40).all()
