"""The rows of a synthetic unit come in the order of a declared column."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import MomentSynthesizer, PrivacyUnit, Schema
from skdpgen.__main__ import main
from skdpgen.tabular import Categorical, Datetime, Identifier, Numeric

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

GRADES = ("light", "medium", "grave")
SCHEMA = Schema(
    [
        Datetime("born", ("1930-01-01", "2010-01-01"), resolution="D"),
        Categorical("ward", ("ears", "eyes")),
        Numeric("day", (0, 29), integer=True),
        Datetime("came", ("2020-01-01", "2022-01-01"), resolution="D", missing=True),
        Categorical("grade", GRADES, ordered=True),
        Identifier("visit", within_unit=True),
    ]
)


@functools.cache
def _visits(n=400):
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(n), rng.integers(1, 5, n))
    size = len(person)
    came = pd.Series(np.datetime64("2020-01-01", "us") + rng.integers(0, 700, size) * np.timedelta64(1, "D"))
    return pd.DataFrame(
        {
            "person": person,
            "born": (np.datetime64("1930-01-01", "us") + rng.integers(0, 29000, n) * np.timedelta64(1, "D"))[person],
            "ward": rng.choice(["ears", "eyes"], size),
            "day": rng.integers(0, 30, size),
            "came": came.mask(rng.random(size) < 0.2),
            "grade": rng.choice(GRADES, size),
            "visit": np.arange(size),
        }
    )


@functools.cache
def _fitted(schema=SCHEMA, columns="born"):
    unit = PrivacyUnit("person", 4, columns=columns)
    return MomentSynthesizer(50.0, schema=schema, unit=unit, noise="fast").fit(_visits()[["person", *schema.names]])


def _places(series):
    """Ranks of values, the last for missing ones."""
    values = series.cat.codes.where(series.notna(), np.inf) if series.name == "grade" else series
    return values.rank(method="dense", na_option="bottom")


def _is_sorted(rows, name):
    return _places(rows[name]).groupby(rows["person"]).apply(lambda part: part.is_monotonic_increasing).all()


@pytest.mark.parametrize("order_by", [None, "came", "day", "grade"])
def test_rows_of_a_unit_come_in_the_order_of_a_column_with_missing_values_last(order_by):
    rows = _fitted().sample(units=500, order_by=order_by, random_state=0)
    assert _is_sorted(rows, order_by or "came")
    assert not _is_sorted(rows, "day" if order_by != "day" else "came")
    assert rows["came"].isna().any()
    assert rows["person"].is_monotonic_increasing
    assert (rows["visit"] == rows.groupby("person").cumcount() + 1).all()  # numbered in this order


def test_the_order_changes_no_row():
    one, other = (_fitted().sample(units=300, order_by=name, random_state=1) for name in ("came", "day"))
    names = [name for name in one.columns if name != "visit"]
    plain = [frame[names].sort_values(names, ignore_index=True) for frame in (one, other)]
    pd.testing.assert_frame_equal(*plain)
    assert one.dtypes.equals(other.dtypes)
    assert one.index.equals(other.index)


def test_rows_without_a_column_of_dates_stay_as_they_were_drawn():
    schema = SCHEMA.select(["ward", "day"])
    rows = _fitted(schema, columns=None).sample(units=300, random_state=0)
    assert not _is_sorted(rows, "day")


@pytest.mark.parametrize("container", [pd.Series, np.asarray])
def test_separate_labels_move_with_their_rows(container):
    frame = _visits()
    y, X = container(frame["ward"].astype(object)), frame[["person", "day"]].copy()
    X["day"] = np.where(np.asarray(y) == "ears", 5, 20)
    schema = Schema([Numeric("day", (0, 29), integer=True)])
    synth = MomentSynthesizer(
        200.0, schema=schema, unit=PrivacyUnit("person", 4), classes=("ears", "eyes"), noise="fast"
    )
    rows, labels = synth.fit(X, y).sample(units=500, order_by="day", random_state=0)
    assert _is_sorted(rows, "day")
    assert np.mean((rows["day"].to_numpy() < 12) == (np.asarray(labels) == "ears")) > 0.95


@pytest.mark.parametrize(
    ("order_by", "why"),
    [
        ("born", "the same in all rows of a unit"),
        ("ward", "have no order"),
        ("visit", "no column of the rows"),
        ("person", "no column of the rows"),
        (["day"], "no column of the rows"),
    ],
)
def test_columns_without_an_order_are_refused(order_by, why):
    with pytest.raises(ValueError, match=why):
        _fitted().sample(units=3, order_by=order_by)


def test_an_order_is_for_units_alone():
    with pytest.raises(ValueError, match="give units= with it"):
        _fitted().sample(3, order_by="day")


def test_commands_sort_rows_of_units_and_refuse_an_order_before_the_charge(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _visits().to_csv("visits.csv", index=False)
    SCHEMA.save("s.json")
    fit = ["synthesize", "visits.csv", "--schema", "s.json", "--unit", "person", "--max-rows-per-unit", "4"]
    fit += ["--unit-columns", "born", "--units", "50", "--output", "out.csv", "--ledger", "l.db", "--epsilon", "50"]
    for name, why in (("ward", "have no order"), ("born", "the same in all rows"), ("nothing", "no column")):
        assert why in refused(capsys, *fit, "--order-by", name)
    assert not (tmp_path / "l.db").exists()
    assert main([*fit, "--order-by", "day", "--save-model", "m.safetensors"]) == 0
    assert _is_sorted(pd.read_csv("out.csv"), "day")
    draw = ["sample", "m.safetensors", "--output", "more.csv", "--order-by"]
    assert main([*draw, "came", "--units", "50"]) == 0
    capsys.readouterr()
    assert _is_sorted(pd.read_csv("more.csv", parse_dates=["came"]), "came")
    assert "--units or --units-output" in refused(capsys, *draw, "day")
