"""Of a difference the column with much wider declared bounds is made, so that none lies at the ends of its bounds."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, PrivacyUnit, Schema, load
from skdpgen.data.frame_codec import FrameCodec
from skdpgen.tabular import Datetime, Numeric
from skdpgen.tabular._construction import Construction, as_recorded, by_presence

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

LIFE, STUDY = ("1920-01-01", "2023-12-31"), ("2019-01-01", "2023-12-31")
SCHEMA = Schema(
    [
        Datetime("born", LIFE, resolution="D", missing=True),
        Datetime("came", STUDY, resolution="D"),
        Datetime("left", STUDY, resolution="D"),
    ]
).constrain("born <= came", "came <= left")


@functools.cache
def _visits(n=2500):
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(n), rng.integers(1, 4, n))
    size, day = len(person), np.timedelta64(1, "D")
    born = (np.datetime64("1930-01-01", "us") + rng.integers(0, 30_000, n) * day)[person]
    came = np.datetime64("2019-01-01", "us") + rng.integers(0, 1500, size) * day
    frame = pd.DataFrame({"person": person, "born": born, "came": came, "left": came + rng.geometric(0.2, size) * day})
    return frame


def _assert_as_the_rows(rows, frame):
    assert not (rows["born"] > rows["came"]).any()
    assert not (rows["came"] > rows["left"]).any()
    for name in ("born", "came", "left"):
        for share in (0.1, 0.5, 0.9):
            near = pd.Timedelta(200 if name != "born" else 1500, unit="D")
            assert abs(rows[name].quantile(share) - frame[name].quantile(share)) < near, name
        assert (rows[name] <= pd.Timestamp(STUDY[0])).mean() < (0.05 if name != "born" else 1.1)
        assert (rows[name] >= pd.Timestamp(STUDY[1])).mean() < 0.05
    ages = [((table["came"] - table["born"]).dt.days / 365).median() for table in (rows, frame)]
    assert abs(ages[0] - ages[1]) < 4


@pytest.mark.parametrize("unit", [None, PrivacyUnit("person", 3), PrivacyUnit("person", 3, columns="born")])
def test_a_day_in_a_study_keeps_its_distribution_beside_a_date_of_birth(unit, tmp_path):
    frame = _visits() if unit is not None else _visits().drop(columns="person")
    synth = MomentSynthesizer(5.0, schema=SCHEMA, unit=unit, random_state=0).fit(frame)
    _assert_as_the_rows(synth.sample(3000, random_state=0), frame)
    if unit is not None:
        _assert_as_the_rows(synth.sample(units=2000, random_state=0), frame)
    synth.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(again.sample(500, random_state=1), synth.sample(500, random_state=1))


def _made(bounds, texts=("born <= came",), **options):
    columns = [Datetime(name, ends, resolution="D") for name, ends in bounds.items()]
    construction = Construction.of(Schema(columns, texts), **options)
    return construction.differences, construction.left


def test_which_column_is_made_follows_from_declared_bounds():
    assert _made({"born": LIFE, "came": STUDY}) == ((("born", "came"),), ())
    assert _made({"born": LIFE, "came": STUDY}, choose=by_presence) == ((("came", "born"),), ())
    assert _made({"born": STUDY, "came": LIFE}) == ((("came", "born"),), ())
    assert _made({"born": LIFE, "came": None}) == ((("came", "born"),), ())
    assert _made({"born": STUDY, "came": STUDY}) == ((("came", "born"),), ())
    assert _made({"born": LIFE, "came": ("1960-01-01", "2023-12-31")}) == ((("came", "born"),), ())


def test_a_wide_column_that_cannot_be_made_leaves_few_rows_to_be_drawn_again():
    assert _made({"born": LIFE, "came": STUDY}, fixed=("born",)) == ((), ("born <= came",))
    early = ("1920-01-01", "1924-12-31")  # nearly all rows at random violate the order
    assert _made({"born": LIFE, "came": early}, fixed=("born",)) == ((("came", "born"),), ())


def test_numbers_follow_the_same_rule():
    columns = [Numeric("low", (0, 1000)), Numeric("high", (900, 1000))]
    assert Construction.of(Schema(columns, ["low <= high"])).differences == (("low", "high"),)
    assert Construction.of(Schema(columns, ["high - low >= 3", "high - low <= 800"])).differences == (("low", "high"),)


def test_a_file_says_what_was_made_and_one_without_it_is_of_an_earlier_version():
    frame = _visits().drop(columns="person")
    codec = MomentSynthesizer(5.0, schema=SCHEMA).fit(frame).model_.codec
    state = codec.to_state()
    assert state["differences"] == [["born", "came"], ["left", "came"]]
    assert FrameCodec.from_state(state).construction.differences == codec.construction.differences
    for wrong in ("born", ["born"], [["born", "nothing"]], [["born"]]):
        with pytest.raises(ValueError, match="differences must be"):
            FrameCodec.from_state(state | {"differences": wrong})
    table = codec.construction.table
    both = Construction.of(table, choose=by_presence).differences
    assert Construction.of(table, choose=as_recorded(both)).differences == both
