"""A date that a constraint computes from days has a time of the day unless its resolution is declared: it is said."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, P3GMSynthesizer, Schema
from skdpgen.exceptions import UtilityWarning

RNG, N = np.random.default_rng(0), 4000
CAME = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D"))
DAYS = pd.to_timedelta(RNG.integers(0, 10, N), unit="D")
SECONDS = pd.to_timedelta(RNG.integers(0, 86_400, N), unit="s")


def _visits(zone=None):
    frame = pd.DataFrame({"came": CAME, "left": CAME + DAYS, "x": RNG.normal(size=N)})
    if zone is not None:
        frame["came"], frame["left"] = frame["came"].dt.tz_localize(zone), frame["left"].dt.tz_localize(zone)
    return frame


@pytest.mark.parametrize("make", [MomentSynthesizer, P3GMSynthesizer])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_beside_released_days_are_said_and_the_advice_makes_days(make, zone):
    frame = _visits(zone)
    model = make(5.0, constraints="came <= left")
    with pytest.warns(UtilityWarning, match="'left' is computed from 'came', whose released dates are days") as said:
        model.fit(frame)
    assert model.schema_["came"].resolution == "D"
    advice = str(said[0].message).split("schema=")[1]
    schema = eval(advice, {"Schema": Schema, "X": frame})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        rows = make(5.0, schema=schema, constraints="came <= left").fit(frame).sample(500)
    assert (rows["came"] <= rows["left"]).all()
    assert (rows["left"].dt.tz_localize(None).dt.normalize() == rows["left"].dt.tz_localize(None)).all()


@pytest.mark.parametrize(
    ("frame", "declared"),
    [
        (_visits().assign(came=CAME + SECONDS, left=CAME + SECONDS + DAYS), {}),  # times
        (_visits(), {"came": {"resolution": "D"}}),  # then a time of the other date is meant
        (_visits(), {name: {"bounds": ("2020-01-01", "2022-12-31")} for name in ("came", "left")}),  # declared
    ],
)
def test_times_and_declared_resolutions_are_not_pointed_out(frame, declared):
    schema = Schema.from_kinds(frame)
    for name, facts in declared.items():
        schema = schema.declare(name, **facts)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        MomentSynthesizer(5.0, schema=schema, constraints="came <= left").fit(frame)
