"""Constraints of columns in special formats: steps, spikes, decimals, time spans, dates of objects, keys."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import skdpgen
from skdpgen import MomentSynthesizer, PrivacyAccountant
from skdpgen.exceptions import SchemaError, UtilityWarning
from skdpgen.tabular import Boolean, Categorical, Datetime, Identifier, Numeric, Schema
from skdpgen.tabular._constraint_forms import read_constraint
from skdpgen.tabular._constraints import RowConstraint

RNG = np.random.default_rng(0)
N = 1500


def fitted(frame, schema, constraints=None, **options):
    return MomentSynthesizer(30.0, schema=schema, constraints=constraints, **options).fit(frame)


def test_differences_and_sums_of_numbers_with_a_step():
    low = RNG.integers(0, 40, N) * 0.25
    frame = pd.DataFrame({"low": low, "high": low + RNG.integers(0, 9, N) * 0.5})
    frame["both"] = frame["low"] + frame["high"]
    frame["pay"] = RNG.integers(1, 9, N) * 10_000
    frame["bonus"] = frame["pay"] + RNG.integers(0, 5, N) * 5000
    schema = Schema(
        [
            Numeric("low", (0, 10), step=0.25, spikes=(2.5,)),
            Numeric("high", step=0.5, spikes=(100,)),
            Numeric("both", step=0.25),
            Numeric("pay", integer=True, step=10_000),
            Numeric("bonus", (0, 200_000), integer=True, step=5000),
        ],
        ["low <= high", "both == low + high", "pay <= bonus"],
    )
    synth = fitted(frame, schema)
    rows = synth.sample(2000)
    assert synth.model_.codec.construction.left == ()
    assert (rows["low"] <= rows["high"]).all()
    assert (rows["pay"] <= rows["bonus"]).all()
    assert (np.abs(rows["both"] - rows["low"] - rows["high"]) <= 0.125).all()
    for name, step in [("low", 0.25), ("high", 0.5), ("both", 0.25), ("pay", 10_000), ("bonus", 5000)]:
        assert (rows[name] % step == 0).all()
    assert abs(rows["low"].mean() - frame["low"].mean()) < 1
    assert abs(rows["high"].mean() - frame["high"].mean()) < 1
    assert abs(rows["bonus"].mean() - frame["bonus"].mean()) < 6000


def test_consequences_mappings_and_combinations_of_numbers_with_a_step():
    kind = RNG.choice(["a", "b"], N)
    frame = pd.DataFrame({"kind": kind, "fee": np.where(kind == "a", 20.0, 50.0), "out": RNG.random(N) < 0.3})
    frame["rate"] = np.where(frame["out"], 10.0, RNG.integers(0, 9, N) * 2.5)
    frame["tax"] = frame["fee"] / 2
    columns = [
        Categorical("kind", ("a", "b")), Numeric("fee", step=10), Boolean("out"), Numeric("rate", (0, 20), step=2.5),
        Numeric("tax", step=5),
    ]  # fmt: skip
    schema = Schema(columns, ["fee == {'a': 20, 'b': 50}[kind]", "if out: rate == 10"])
    rows = fitted(frame, schema).sample(1000)
    assert (rows["fee"] == np.where(rows["kind"] == "a", 20, 50)).all()
    assert (rows.loc[rows["out"], "rate"] == 10).all()
    assert rows["rate"].nunique() > 5
    schema = Schema(columns, ["combinations(fee, tax)"])
    rows = fitted(frame, schema).sample(1000)
    assert set(zip(rows["fee"], rows["tax"])) == {(20.0, 10.0), (50.0, 25.0)}
    with pytest.raises(ValueError, match="no value that the number"):
        fitted(frame, Schema(columns, ["if out: rate == 11"]))


def test_decimals_time_spans_and_dates_of_objects():
    net = RNG.integers(100, 9000, N) / 100
    start = RNG.integers(0, 3000, N)
    stay, more = RNG.integers(0, 20, N), RNG.integers(0, 5, N)
    frame = pd.DataFrame(
        {
            "net": [Decimal(f"{value:.2f}") for value in net],
            "gross": [Decimal(f"{1.2 * value:.2f}") for value in net],
            "start": [datetime.date(2010, 1, 1) + datetime.timedelta(int(day)) for day in start],
            "end": [datetime.date(2010, 1, 1) + datetime.timedelta(int(day)) for day in start + stay],
            "planned": pd.to_timedelta(stay, unit="D"),
            "actual": pd.to_timedelta(stay + more, unit="D"),
        }
    )
    frame["late"] = frame["actual"] - frame["planned"]
    day = 86_400
    schema = Schema(
        [
            Numeric("net", (0, 100), dtype="decimal", decimals=2, missing=True),
            Numeric("gross", (0, 200), dtype="decimal", decimals=2),
            Datetime("start", ("2010-01-01", "2019-12-31"), dtype="date", resolution="D"),
            Datetime("end", ("2010-01-01", "2020-12-31"), dtype="date", resolution="D"),
            Numeric("planned", (0, 30 * day), integer=True, step=day, dtype="timedelta64[s]"),
            Numeric("actual", (0, 60 * day), integer=True, step=day, dtype="timedelta64[s]"),
            Numeric("late", (0, 30 * day), integer=True, step=day, dtype="timedelta64[s]"),
        ],
        ["net <= gross", "start <= end", "end >= '2010-01-05'", "planned <= actual", "actual - planned <= 10"],
    )
    synth = fitted(frame, schema, constraints="late == actual - planned")
    assert synth.model_.codec.construction.left == ("end >= '2010-01-05'",)
    rows = synth.sample(1000)
    known = rows.dropna()
    assert all(isinstance(value, Decimal) for value in known["gross"])
    assert (known["net"] <= known["gross"]).all()
    assert all(type(value) is datetime.date for value in rows["end"])
    assert (rows["start"] <= rows["end"]).all()
    assert (rows["end"] >= datetime.date(2010, 1, 5)).all()
    late = rows["actual"] - rows["planned"]
    assert late.between(pd.Timedelta(0), pd.Timedelta(10, "D")).all()
    assert (rows["late"] == late).all()
    assert abs(late.mean() - (frame["actual"] - frame["planned"]).mean()) < pd.Timedelta(1, "D")


MIXED = ["opens <= paid", "opens < stay", "closes - opens <= paid", "if opens < stay: paid == 0"]


@pytest.mark.parametrize("text", MIXED)
def test_a_time_of_the_day_is_compared_with_no_other_kind(text):
    schema = Schema(
        [
            Numeric("opens", dtype="time"),
            Numeric("closes", dtype="time"),
            Numeric("stay", (0, 10 * 86_400), dtype="timedelta64[us]"),
            Numeric("paid", (0, 100), dtype="decimal", decimals=2),
        ]
    )
    with pytest.raises(ValueError, match=r"is a time of the day, and '(paid|stay)' is not"):
        read_constraint(text, schema.names).check(schema)
    for allowed in ("opens <= closes", "opens < 43200", "if opens < closes: paid == 0", "stay <= paid"):
        assert read_constraint(allowed, schema.names).check(schema)


@pytest.mark.parametrize("constraints", [("stay == left - came",), ("came <= left", "stay == left - came")])
def test_a_difference_of_dates_whose_days_are_learned_is_in_days(constraints):
    came = pd.Timestamp("2022-01-01") + pd.to_timedelta(RNG.integers(0, 700, N), unit="D")
    stay = RNG.integers(0, 20, N)
    frame = pd.DataFrame({"came": came, "left": came + pd.to_timedelta(stay, unit="D"), "stay": stay})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        model = MomentSynthesizer(20.0, constraints=list(constraints), random_state=0).fit(frame)
    rows = model.sample(500, random_state=0)
    days = (rows["left"] - rows["came"]) / pd.Timedelta(1, "D")
    assert (np.abs(rows["stay"] - days) <= 0.5).all()
    assert model.schema_["came"].resolution == "D"


def test_numbers_beside_time_spans_are_days():
    rows = pd.DataFrame({"paid": [Decimal("1"), Decimal("0.4")], "stay": pd.to_timedelta([12, 12], unit="h")})
    assert RowConstraint("stay <= paid", rows.columns).holds(rows).tolist() == [True, False]
    assert RowConstraint("stay <= 1", rows.columns).holds(rows).all()


def keyed(*constraints):
    a = RNG.integers(0, 50, N)
    frame = pd.DataFrame(
        {"key": np.arange(N), "a": a, "b": a + RNG.integers(0, 9, N), "town": RNG.choice(["x", "y"], N)}
    )
    frame["state"] = frame["town"].str.upper()
    columns = [
        Identifier("key"), Numeric("a", (0, 60), integer=True), Numeric("b", (0, 80), integer=True),
        Categorical("town"), Categorical("state"),
    ]  # fmt: skip
    return frame, Schema(columns, constraints)


def test_keys_beside_constraints(tmp_path, monkeypatch):
    from skdpgen.synthesizers import _base

    frame, schema = keyed("a <= b", "combinations(town, state)", "a + b >= 5")
    frame = frame[["town", "state", "a", "b", "key"]]  # the place of the key is beyond the columns that the model sees
    synth = fitted(frame, schema.select(list(frame.columns)))
    synth.save(tmp_path / "m.safetensors")
    monkeypatch.setattr(_base, "_CHUNK_ROWS", 100)
    for model in (synth, skdpgen.load(tmp_path / "m.safetensors")):
        rows = model.sample(350)
        assert list(rows.columns) == list(frame.columns)
        assert rows["key"].is_unique
        assert ((rows["a"] <= rows["b"]) & (rows["a"] + rows["b"] >= 5)).all()
        assert (model.sample(50, given={"b": (20, 30), "town": "x"})["b"].between(20, 30)).all()
        assert model.schema_ == synth.schema_
        with pytest.raises(ValueError, match="does not have"):
            model.sample(5, given={"key": 3})


@pytest.mark.parametrize("text", ["key <= b", "combinations(key, town)", "if town == 'x': key is None"])
def test_a_constraint_that_names_a_key_is_refused_before_the_charge(text):
    frame, schema = keyed()
    accountant = PrivacyAccountant(1.0, 1e-6)
    with pytest.raises(SchemaError, match="an identifier"):
        schema.constrain(text)
    with pytest.raises(SchemaError, match="an identifier"):
        MomentSynthesizer(None, None, accountant=accountant, schema=schema, constraints=[text]).fit(frame)
    assert accountant.epsilon_spent() == 0
    synth = fitted(frame, schema).set_params(constraints="key <= b")
    with pytest.raises(ValueError, match="an identifier"):
        synth.sample(5)


def test_the_summary_tells_constructed_columns_as_the_rows_have_them():
    frame, schema = keyed("a <= b", "combinations(town, state)")
    synth = fitted(frame, schema)
    table = synth.summary_.to_frame()
    assert list(table.index) == ["a", "b", "town", "state"]
    assert table.loc["b", "bounds"] == synth.schema_["b"].bounds == (0, 80)
    assert table["count_error"].notna().tolist() == [True, False, False, False]
    assert table["learned"].tolist() == [False, False, True, True]
    assert table.loc["state", "categories"] == 2
    assert "b" in repr(synth.summary_)


def test_the_card_holds_what_is_declared_of_the_rows():
    frame, schema = keyed("a <= b", "combinations(town, state)")
    columns = {row["name"]: row for row in fitted(frame, schema).card_["columns"]}
    assert {name: row["kind"] == "id" for name, row in columns.items()} == {
        "key": True, "a": False, "b": False, "town": False, "state": False,
    }  # fmt: skip
    assert list(columns["b"]["bounds"]) == [0, 80]


def test_a_budget_plan_tells_the_errors_of_what_the_model_counts():
    frame, schema = keyed("a <= b", "combinations(town, state)")
    counts = (
        MomentSynthesizer(3.0, schema=schema)
        .plan(frame)
        .table.counts(MomentSynthesizer(3.0, schema=schema).plan(frame), 1500)
    )
    assert [(row.kind, row.columns) for row in counts] == [("learned category", 1), ("number", 2)]


DATES = pd.to_datetime(["2022-12-25", "2022-12-26", None])


@pytest.mark.parametrize(
    "dates",
    [
        pd.Series(DATES),
        pd.Series(DATES).dt.tz_localize("Europe/Paris"),
        pd.Series(DATES).dt.date,
        pd.Series(DATES.to_period("D")),
    ],
    ids=["times", "zoned", "dates", "periods"],
)
def test_dates_are_compared_with_lists_of_texts(dates):
    frame = pd.DataFrame({"day": dates})
    for text, kept in (
        ("day not in ['2022-12-25', '2022-12-31']", [False, True, True]),
        ("day in ['2022-12-25', '2022-12-26']", [True, True, True]),
        ("day != '2022-12-25'", [False, True, True]),
        ("day > '2022-12-25'", [False, True, True]),
    ):
        assert RowConstraint(text, ["day"]).holds(frame).tolist() == kept, text


def test_dates_of_arrow_are_compared_like_others():
    pytest.importorskip("pyarrow")
    of_days, zoned = "date32[day][pyarrow]", "timestamp[us, tz=Europe/Paris][pyarrow]"
    for dtype, dates in ((of_days, pd.Series(DATES).dt.date), (zoned, pd.Series(DATES).dt.tz_localize("Europe/Paris"))):
        frame = pd.DataFrame({"day": pd.Series(dates, dtype=dtype)})
        for text in ("day not in ['2022-12-25']", "day != '2022-12-25'", "weekday(day) == 'Monday'"):
            assert RowConstraint(text, ["day"]).holds(frame).tolist() == [False, True, True], (dtype, text)


def test_holidays_do_not_occur():
    days = pd.Series(RNG.choice(pd.date_range("2022-12-01", "2022-12-24", unit="us"), N))
    frame = pd.DataFrame({"day": days, "x": RNG.integers(0, 9, N)})
    schema = Schema([Datetime("day", ("2022-12-01", "2022-12-31"), resolution="D"), Numeric("x", (0, 8), integer=True)])
    rows = fitted(frame, schema, "day not in ['2022-12-01', '2022-12-08', '2022-12-25']").sample(5000)
    assert set(rows["day"].dt.day) & {1, 2, 8, 9, 25} == {2, 9}


def test_a_date_that_may_be_read_in_two_ways_is_refused():
    with pytest.raises(ValueError, match=r"write the date '01/02/2022' as in 2020-12-31"):
        RowConstraint("day != '01/02/2022'", ["day"]).check(Schema([Datetime("day")]))


def test_products_hold_in_fits_and_from_a_file_also_with_a_column_of_a_combination(tmp_path):
    frame = pd.DataFrame({"item": RNG.choice(["pen", "book", "lamp"], N)})
    frame["cost"] = frame["item"].map({"pen": 1.25, "book": 12.5, "lamp": 49.95})
    frame["count"] = RNG.integers(1, 5, N)
    frame["total"] = (frame["cost"] * frame["count"]).round(2)
    constraints = ["determines(item, cost)", "total == cost * count"]
    synth = MomentSynthesizer(30.0, constraints=constraints).fit(frame)
    synth.save(tmp_path / "m.safetensors")
    for model in (synth, skdpgen.load(tmp_path / "m.safetensors")):
        rows = model.sample(300)
        assert (rows["total"] == (rows["cost"] * rows["count"]).round(2)).all()
        assert rows["total"].max() > 150
    rows = synth.sample(20, given={"total": (40, 60)})
    assert rows["total"].between(40, 60).all()
    accountant = PrivacyAccountant(1.0)
    wrong = MomentSynthesizer(epsilon=None, accountant=accountant, constraints=constraints, on_invalid="raise")
    with pytest.raises(SchemaError, match="violate the constraint 'total == cost"):
        wrong.fit(frame.assign(total=frame["total"] + 1))
    assert not accountant.epsilon_spent()
