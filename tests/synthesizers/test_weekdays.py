"""Days of the week in constraints: declared closing days, and a column of days that a model learns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import skdpgen
from skdpgen import MomentSynthesizer, PrivacyAccountant
from skdpgen.exceptions import SchemaError
from skdpgen.tabular import Categorical, Datetime, Numeric, Schema
from skdpgen.tabular._constraints import RowConstraint

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
SCHEMA = Schema(
    [
        Datetime("date", ("2022-01-01", "2023-12-31"), resolution="D"),
        Numeric("amount", (0, 400)),
        Categorical("till", ("a", "b")),
    ]
)


def shop(n=3_000):
    """Sales of a shop that is closed on Sundays; a Saturday has twice the sales and the amounts of another day."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2022-01-01", "2023-12-31", unit="us")
    days = days[days.day_of_week < 6]
    share = np.where(days.day_of_week == 5, 2.0, 1.0)
    date = pd.Series(rng.choice(days, n, p=share / share.sum()))
    amount = (rng.gamma(2, 20, n) * np.where(date.dt.day_of_week == 5, 2, 1)).clip(0, 400).round(2)
    return pd.DataFrame({"date": date, "amount": amount, "till": rng.choice(["a", "b"], n)})


FRAME = shop()


def test_no_row_has_a_day_on_which_a_shop_is_closed(tmp_path):
    plain = MomentSynthesizer(10.0, schema=SCHEMA).fit(FRAME)
    assert (plain.sample(2_000)["date"].dt.day_of_week == 6).mean() > 0.1
    synth = MomentSynthesizer(10.0, schema=SCHEMA.constrain("weekday(date) != 'Sunday'")).fit(FRAME)
    assert synth.accountant_.epsilon_spent() == pytest.approx(plain.accountant_.epsilon_spent())
    synth.save(tmp_path / "model.safetensors")
    for model in (synth, skdpgen.load(tmp_path / "model.safetensors")):
        shares = model.sample(2_000)["date"].dt.day_of_week.value_counts(normalize=True).reindex(range(7), fill_value=0)
        assert shares[6] == 0
        assert shares[:6].between(0.1, 0.24).all()


def test_a_column_of_days_carries_what_depends_on_the_day():
    frame = FRAME.assign(day=FRAME["date"].dt.day_name())
    schema = Schema([*SCHEMA.columns, Categorical("day", DAYS)]).constrain("weekday(date) == day")
    rows = MomentSynthesizer(10.0, schema=schema, random_state=0).fit(frame).sample(4_000)
    assert (rows["date"].dt.day_name() == rows["day"]).all()
    saturday = rows["date"].dt.day_of_week == 5
    assert saturday.mean() == pytest.approx(2 / 7, abs=0.04)
    assert rows["amount"][saturday].mean() / rows["amount"][~saturday].mean() == pytest.approx(2, rel=0.2)


def test_rows_on_a_closing_day_are_used_or_refused_before_the_charge():
    schema = SCHEMA.constrain("weekday(date) != 'Saturday'")
    rows = MomentSynthesizer(10.0, schema=schema).fit(FRAME).sample(500)
    assert not (rows["date"].dt.day_of_week == 5).any()
    accountant = PrivacyAccountant(1.0)
    synth = MomentSynthesizer(schema=schema, epsilon=None, accountant=accountant, on_invalid="raise")
    with pytest.raises(SchemaError, match=r"violate the constraint \"weekday\(date\) != 'Saturday'\""):
        synth.fit(FRAME)
    assert not accountant.epsilon_spent()


def test_a_day_may_be_a_condition_with_a_consequence():
    frame = FRAME.assign(till=np.where(FRAME["date"].dt.day_of_week == 5, "b", FRAME["till"]))
    rows = MomentSynthesizer(10.0, schema=SCHEMA.constrain("if weekday(date) == 'Saturday': till == 'b'")).fit(frame)
    rows = rows.sample(1_000)
    assert set(rows["till"][rows["date"].dt.day_of_week == 5]) == {"b"}


def test_hours_of_opening_hold_for_times_to_the_second_and_a_day_of_the_week_is_learned():
    rng = np.random.default_rng(0)
    time = FRAME["date"] + pd.to_timedelta(rng.integers(9 * 3600, 18 * 3600, len(FRAME)), unit="s")
    frame = pd.DataFrame({"sold": time, "day": FRAME["date"].dt.day_name()})
    sold = Datetime("sold", ("2022-01-01", "2023-12-31T23:59:59"))
    schema = Schema([sold, Categorical("day", DAYS)]).constrain("9 <= hour(sold) < 18", "weekday(sold) == day")
    rows = MomentSynthesizer(10.0, schema=schema).fit(frame).sample(1_000)
    assert set(rows["sold"].dt.hour) == set(range(9, 18))
    assert (rows["sold"].dt.day_name() == rows["day"]).all()
    assert (rows["day"] == "Saturday").mean() == pytest.approx(2 / 7, abs=0.07)


@pytest.mark.parametrize(
    "dates",
    [
        pd.Series(pd.to_datetime(["2024-02-03 23:30", None])),
        pd.Series(pd.to_datetime(["2024-02-03 23:30", None])).dt.tz_localize("Pacific/Auckland"),
        pd.Series(pd.to_datetime(["2024-02-03", None])).dt.date,
        pd.Series(pd.PeriodIndex(["2024-02-03", None], freq="D")),
        pd.Series([pd.Timestamp("2024-02-03").date(), None], dtype=object),
    ],
    ids=["times", "zoned", "dates", "periods", "objects"],
)
def test_days_of_the_week_are_those_of_the_wall_clock_and_missing_dates_leave_them_open(dates):
    frame = pd.DataFrame({"date": dates})
    assert RowConstraint("weekday(date) == 'Saturday'", ["date"]).holds(frame).all()
    assert RowConstraint("weekday(date) in ['Monday', 'Sunday']", ["date"]).holds(frame).tolist() == [False, True]
    assert RowConstraint("weekday(date) != 'Sunday'", ["date"]).holds(frame.iloc[1:]).all()
    late = [str(dates[0])[11:13] == "23", True]
    assert RowConstraint("hour(date) in [22, 23]", ["date"]).holds(frame).tolist() == late
    assert RowConstraint("hour(date) > 3", ["date"]).holds(frame.iloc[1:]).all()


def test_the_first_day_of_a_month_says_the_day_of_a_period():
    months = pd.DataFrame({"month": pd.Series(pd.PeriodIndex(["2024-02"], freq="M"))})
    assert RowConstraint("weekday(month) == 'Thursday'", ["month"]).holds(months).all()


def test_a_column_may_be_named_weekday():
    frame = pd.DataFrame({"weekday": pd.to_datetime(["2024-02-03"])})
    constraint = RowConstraint("weekday(weekday) == 'Saturday'", ["weekday"])
    assert constraint.columns == ("weekday",)
    assert constraint.holds(frame).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weekday(date) != 'Sonntag'", "'Sonntag' is no day of the week: write Monday, Tuesday"),
        ("weekday(date) in ['Monday', 'sunday']", "'sunday' is no day of the week"),
        ("weekday(date) != 6", "6 is no day of the week"),
        ("weekday(date) < 'Saturday'", "compare days of the week by ==, != or `in`"),
        ("weekday(date) + 1 == 2", "take no part in sums"),
        ("weekday(amount) == 'Sunday'", "'amount' is no column of dates"),
        ("weekday('2024-01-01') == 'Sunday'", "the only functions are weekday"),
        ("weekday(date, till) == 'Sunday'", "the only functions are weekday"),
        ("month(date) == 'May'", "the only functions are weekday"),
        ("amount == year(date)", "such as the year of a date, out of the fit, and compute it from a sample"),
        ("amount == date.dt.year", "such as the year of a date, out of the fit, and compute it from a sample"),
        ("isna(amount)", "cannot ask whether a value is missing.*sample\\(given=\\)"),
        ("till == 'a' or amount.notnull()", "cannot ask whether a value is missing.*sample\\(given=\\)"),
        ("weekday(day) == 'Sunday'", "names 'day', which is no column"),
        ("weekday(date)", "is no condition"),
        ("weekday(date) == 'Monday' and weekday(date) == 'Friday'", "holds for no day of the week and hour"),
        ("hour(time) == 24", "holds for no day of the week and hour"),
        ("hour(time) == 7.5 or 20 < hour(time) < 9", "holds for no day of the week and hour"),
        ("amount > 3 and hour(time)", "write a comparison where it has numbers or dates alone"),
        ("amount > 3 or not hour(time)", "write a comparison where it has numbers or dates alone"),
        ("till == 'a' or weekday(date)", "write a comparison where it has numbers or dates alone"),
        ("till == 'a' or amount", "write a comparison where it has numbers or dates alone"),
        ("till == 'a' or date", "write a comparison where it has numbers or dates alone"),
        ("hour(date) > 3", "'date' is a column of days, without hours"),
        ("hour(date) == amount", "compare hour\\(\\) with whole numbers from 0 to 23"),
        ("hour(date) == amount", "compute it from the dates of a sample. Or, .* beside days alone"),
        ("hour(date) == 'noon'", "compare hour\\(\\) with whole numbers"),
        ("hour(date) == hour(date)", "compare hour\\(\\) with whole numbers"),
        ("hour(date) + 1 == 2", "take no part in sums"),
        ("weekday(date) == till", "'till' must be a column of categories Monday, Tuesday"),
        ("weekday(date) == amount", "'amount' must be a column of categories"),
    ],
)
def test_a_day_that_cannot_be_read_is_refused_before_the_charge(text, message):
    accountant, frame = PrivacyAccountant(1.0), FRAME.assign(time=FRAME["date"])
    with pytest.raises(ValueError, match=message):
        MomentSynthesizer(schema=SCHEMA, epsilon=None, accountant=accountant, constraints=text).fit(frame)
    assert not accountant.epsilon_spent()


def test_hours_beside_days_keep_how_often_each_occurs_as_the_refusal_advises():
    rng = np.random.default_rng(0)
    hours = rng.choice([8, 9, 18], 6000, p=[0.6, 0.1, 0.3])
    at = pd.Series(pd.Timestamp("2022-01-01") + pd.to_timedelta(24 * rng.integers(0, 300, 6000) + hours, unit="h"))
    at = at.dt.tz_localize("Europe/Berlin")
    frame = pd.DataFrame({"at": at, "hour": at.dt.hour})
    with pytest.raises(ValueError, match=r"\.dt\.normalize\(\)"):
        MomentSynthesizer(5.0, constraints="hour == hour(at)").fit(frame)
    drawn = MomentSynthesizer(5.0).fit(frame.assign(at=at.dt.normalize())).sample(2000)
    joined = drawn["at"] + pd.to_timedelta(drawn["hour"], unit="h")
    shares = joined.dt.hour.value_counts(normalize=True)
    assert abs(shares[8] - 0.6) < 0.05
    assert abs(shares[18] - 0.3) < 0.05


def test_days_and_hours_that_do_not_occur_within_the_bounds_are_refused():
    schema = Schema([Datetime("sold", ("2024-02-02T22:30", "2024-02-04T03:10"), resolution="min")])
    for text in ("weekday(sold) == 'Sunday'", "hour(sold) == 3 and weekday(sold) == 'Sunday'", "hour(sold) == 12"):
        RowConstraint(text, ["sold"]).check(schema)
    for text in ("weekday(sold) == 'Monday'", "hour(sold) == 4 and weekday(sold) == 'Sunday'"):
        with pytest.raises(ValueError, match="holds for no day of the week and hour"):
            RowConstraint(text, ["sold"]).check(schema)


def test_a_flag_of_zero_and_one_may_be_a_condition_and_learned_numbers_are_one_unless_zero():
    flags, names = pd.DataFrame({"flag": [0, 1, 2, None], "x": [0.0, 0.0, 0.0, 9.0]}), ["flag", "x"]
    columns = [Numeric("flag", integer=True), Numeric("x", (0, 9))]
    constraint = RowConstraint("flag or x > 3", names).check(Schema(columns))
    assert constraint.holds(flags).tolist() == [False, True, True, True]
    RowConstraint("flag or x > 3", names).check(Schema([Numeric("flag", (0, 1), integer=True), columns[1]]))
    with pytest.raises(ValueError, match="write a comparison"):
        RowConstraint("flag or x > 3", names).check(Schema([Numeric("flag", (0, 2), integer=True), columns[1]]))


@pytest.mark.parametrize("text", ["date + stay > '2020-01-01'", "if date + stay > '2020-01-01': till == 'a'"])
def test_a_number_of_days_beyond_all_dates_is_refused_without_its_value(text):
    frame = FRAME.assign(stay=np.where(FRAME.index == 7, 123_450_000_000_000.0, 3.0))
    accountant = PrivacyAccountant(1.0)
    synth = MomentSynthesizer(constraints=text, epsilon=None, accountant=accountant, on_invalid="raise")
    with pytest.raises(ValueError, match="its dates leave the range of dates") as caught:
        synth.fit(frame)
    shown, error = "", caught.value
    while error is not None:
        shown, error = (
            shown + str(error),
            error.__cause__ or (None if error.__suppress_context__ else error.__context__),
        )
    assert "12345" not in shown
    assert not accountant.epsilon_spent()
