"""Decimals, dates, times of the day, spans, periods and intervals are fitted, and come back in kind."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, PrivacyAccountant, Schema
from skdpgen.data.table_reading import read_table
from skdpgen.exceptions import SchemaError, UtilityWarning
from skdpgen.tabular import Categorical, Datetime, Numeric, TableEncoder
from skdpgen.tabular._dtypes import output_dtype
from skdpgen.tabular._formats import from_form, parse_form, plain_forms, seconds, to_form

pa = pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
]

N = 1500
RNG = np.random.default_rng(0)
DAYS = RNG.integers(0, 400, N)
DATES = [datetime.date(2020, 1, 1) + datetime.timedelta(int(day)) for day in DAYS]
TIMES = [datetime.time(int(hour), 30) for hour in RNG.integers(7, 19, N)]
CENTS = [Decimal(int(value)) / 4 for value in RNG.integers(0, 400, N)]
SPANS = pd.Series(pd.to_timedelta(RNG.integers(1, 100, N), unit="h"))
MOMENTS = pd.Series(pd.to_datetime(RNG.integers(1.5e9, 1.6e9, N), unit="s", utc=True).tz_convert("Europe/Paris"))
FORMS = {
    "decimal": (pd.Series(CENTS, dtype=object), Decimal),
    "date": (pd.Series(DATES, dtype=object), datetime.date),
    "time": (pd.Series(TIMES, dtype=object), datetime.time),
    "span": (SPANS, pd.Timedelta),
    "month": (pd.Series(pd.PeriodIndex(pd.to_datetime(DATES), freq="M")), pd.Period),
    "hour": (pd.Series(pd.PeriodIndex(pd.to_datetime(DATES), freq="h")), pd.Period),
    "interval": (
        pd.Series(pd.arrays.IntervalArray.from_breaks([0.0, 1.5, 2.0, 3.0])[RNG.integers(0, 3, N)]),
        pd.Interval,
    ),
    "arrow decimal": (pd.Series(CENTS, dtype=pd.ArrowDtype(pa.decimal128(10, 2))), Decimal),
    "arrow whole decimal": (
        pd.Series([Decimal(d) for d in DAYS.tolist()], dtype=pd.ArrowDtype(pa.decimal128(9, 0))),
        Decimal,
    ),
    "arrow date": (pd.Series(DATES, dtype=pd.ArrowDtype(pa.date32())), datetime.date),
    "arrow time": (pd.Series(TIMES, dtype=pd.ArrowDtype(pa.time64("us"))), datetime.time),
    "arrow span": (SPANS.astype("timedelta64[us]").astype(pd.ArrowDtype(pa.duration("us"))), pd.Timedelta),
    "arrow zone": (
        MOMENTS.astype("datetime64[us, Europe/Paris]").astype(pd.ArrowDtype(pa.timestamp("us", "Europe/Paris"))),
        pd.Timestamp,
    ),
}


@pytest.mark.full_fits
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_fitted_and_comes_back_in_kind(form, absent):
    values, kind = FORMS[form]
    frame = pd.DataFrame({"x": values.copy()})
    if absent:
        frame.loc[::3, "x"] = None
    synth = MomentSynthesizer(20.0, random_state=0).fit(frame)
    drawn = synth.sample(2000, random_state=0)["x"]
    assert drawn.dtype == frame["x"].dtype
    assert all(isinstance(value, kind) for value in drawn.dropna())
    assert drawn.isna().mean() == pytest.approx(absent / 3, abs=0.05)
    assert (drawn.dropna() <= values.max()).mean() > 0.9 or form == "interval"
    assert Schema.from_json(synth.schema_.to_json()) == synth.schema_
    # what is drawn can be encoded again
    assert np.isfinite(synth.score(synth.sample(50)))


@pytest.mark.full_fits
def test_learned_numbers_have_the_mean_of_the_rows():
    frame = pd.DataFrame({"span": FORMS["span"][0], "date": pd.to_datetime(DATES).date, "cents": CENTS})
    drawn = MomentSynthesizer(50.0, random_state=0, n_components=1).fit(frame).sample(4000, random_state=0)
    assert drawn["span"].mean() / frame["span"].mean() == pytest.approx(1, abs=0.1)
    assert drawn["cents"].astype(float).mean() == pytest.approx(frame["cents"].astype(float).mean(), rel=0.1)
    error = pd.to_datetime(drawn["date"]).mean() - pd.to_datetime(frame["date"]).mean()
    assert abs(error) < pd.Timedelta(25, "D")


def test_cut_columns_come_back_as_intervals():
    frame = pd.DataFrame({"x": pd.cut(RNG.normal(size=N), [-np.inf, -1, 0, 2.5, np.inf])})
    drawn = MomentSynthesizer(20.0).fit(frame).sample(500)["x"]
    assert drawn.dtype == "interval[float64, right]"
    assert set(drawn.dropna()) == set(frame["x"])


@pytest.mark.parametrize("target", [None, "cut"])
def test_an_order_that_only_the_dtype_lists_is_pointed_out_before_the_charge(target):
    levels = ["Fair", "Good", "Ideal"]
    cut = pd.Series(pd.Categorical(RNG.choice(levels, N), levels, ordered=True))
    frame = pd.DataFrame({"cut": cut, "town": pd.Categorical(RNG.choice(["b", "a"], N)), "z": RNG.normal(size=N)})
    accountant = PrivacyAccountant(1.0, 1e-5)
    message = r"lose their order: 'cut'\. .*Categorical\('cut', \[\.\.\.\], ordered=True\)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UtilityWarning, match=message) as raised:
            MomentSynthesizer(accountant=accountant, target=target).fit(frame)
        assert not accountant.charges
        assert not any(level in str(raised.value) for level in levels)
        schema = Schema([Categorical("cut", levels, ordered=True)])
        drawn = MomentSynthesizer(20.0, schema=schema, target=target).fit(frame).sample(50)["cut"]
    assert drawn.dtype == cut.dtype


def test_bounds_and_conditions_of_times_of_the_day():
    opens = Numeric("at", (datetime.time(9), datetime.time(23, 59, 30)), dtype="time", integer=True)
    assert opens.bounds == (32_400, 86_370)
    with pytest.raises(SchemaError, match="two finite numbers"):
        Numeric("x", (datetime.time(9), datetime.time(23)))
    schema = Schema([opens, Numeric("x", (0, 1))])
    frame = pd.DataFrame({"at": [datetime.time(9 + k % 12, k % 60) for k in range(N)], "x": RNG.random(N)})
    with pytest.raises(ValueError, match=r"'at' is a time of the day, .*write 32400 for 09:00"):
        MomentSynthesizer(20.0, schema=schema, constraints="at >= '09:30'").fit(frame)
    fitted = MomentSynthesizer(20.0, schema=schema, constraints="at >= 34200").fit(frame)
    assert fitted.sample(50)["at"].ge(datetime.time(9, 30)).all()
    drawn = fitted.sample(30, given={"at": (datetime.time(12), datetime.time(13))})["at"]
    assert drawn.between(datetime.time(12), datetime.time(13)).all()
    with pytest.raises(ValueError, match=r"no time of the day, such as datetime\.time"):
        fitted.sample(3, given={"at": "12:00"})


@pytest.mark.parametrize("dtype", ["int64", "Int16", "int32[pyarrow]"])
def test_whole_numbers_that_the_schema_declares_with_fractions_are_pointed_out_before_the_charge(dtype):
    frame = pd.DataFrame({"age": pd.Series(RNG.integers(20, 60, N)).astype(dtype), "z": RNG.normal(size=N)})
    accountant = PrivacyAccountant(1.0, 1e-5)
    given = Schema([Numeric("age", (0, 99)), Numeric("z", (-5, 5))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UtilityWarning, match=r"with fractions: 'age'\. .*integer=True"):
            MomentSynthesizer(accountant=accountant, schema=given).fit(frame)
        assert not accountant.charges
        for schema, rows in (
            (Schema.from_kinds(frame).declare("age", bounds=(0, 99)), frame),
            (given.declare("age", integer=True, dtype=None), frame),
            (given.declare("age", step=0.5), frame),
            (given.declare("age", decimals=1), frame),
            (given, frame.astype({"age": "float64"})),
        ):
            assert len(MomentSynthesizer(20.0, schema=schema).fit(rows).sample(9)) == 9


def test_whole_numbers_of_a_csv_file_are_not_pointed_out(tmp_path):
    """Whether all numbers of a file are whole follows from its values, which no warning may show."""
    for name, last in (("whole.csv", "30"), ("one.csv", "30.5")):
        (tmp_path / name).write_text("age\n" + "30\n40\n" * 200 + f"{last}\n")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rows = read_table(tmp_path / name, schema=(schema := Schema([Numeric("age", (0, 99), missing=True)])))
            MomentSynthesizer(20.0, schema=schema).fit(rows)


@pytest.mark.parametrize(
    "made", [lambda x: x, lambda x: x.astype("category"), lambda x: x.astype("category").cat.as_unordered()]
)
def test_no_order_of_intervals_is_lost(made):
    frame = pd.DataFrame({"x": made(pd.Series(pd.cut(RNG.normal(size=N), 3))), "z": RNG.normal(size=N)})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "ordered categoricals")
        drawn = MomentSynthesizer(20.0).fit(frame).sample(50)["x"]
    assert isinstance(drawn.dtype, pd.IntervalDtype)


def test_declared_intervals_of_whole_numbers_stay_whole():
    frame = pd.DataFrame({"x": pd.arrays.IntervalArray.from_breaks([0, 1, 2])[RNG.integers(0, 2, N)]})
    column = Categorical("x", ("(0, 1]", "(1, 2]"), dtype="interval[int64, right]")
    drawn = MomentSynthesizer(20.0, schema=Schema([column])).fit(frame).sample(50)["x"]
    assert drawn.dtype == frame["x"].dtype
    for facts in ({"categories": None}, {"other": "else"}, {"missing": True}):
        with pytest.raises(SchemaError, match="never missing"):
            Categorical("x", **{"categories": ("(0, 1]",), "dtype": "interval[int64, right]", **facts})


def test_types_of_objects_are_an_assumption_on_the_card():
    frame = pd.DataFrame({"x": pd.Series(CENTS[:300], dtype=object)})
    card = MomentSynthesizer(1.0).fit(frame).card_
    assert "types of the objects in columns of objects: 'x' decimal" in card["public_assumptions"]
    known = Schema([Numeric("x", (0, 100), dtype="decimal", decimals=2)])
    card = MomentSynthesizer(1.0, schema=known).fit(frame).card_
    assert not any("objects" in text for text in card["public_assumptions"])


def test_chunks_of_objects_have_one_type():
    chunks = [pd.DataFrame({"x": pd.Series(part, dtype=object)}) for part in (CENTS[:300], [None] * 3, CENTS[300:600])]
    drawn = MomentSynthesizer(5.0).fit(chunks).sample(30)["x"]
    assert all(isinstance(value, Decimal) for value in drawn.dropna())
    chunks.append(pd.DataFrame({"x": pd.Series(DATES[:30], dtype=object)}))
    with pytest.raises(SchemaError, match="column 'x'"):
        MomentSynthesizer(5.0).fit(chunks)


@pytest.mark.parametrize("second", [0, 1, 86_399])
def test_times_of_the_day_need_no_learning(second):
    column = Numeric("x", integer=True, dtype="time")
    assert column.bounds == (0, 86_399)
    encoder = TableEncoder(Schema([column]), numeric="scale").fit()
    time = (datetime.datetime.min + datetime.timedelta(seconds=second)).time()
    frame = pd.DataFrame({"x": pd.Series([time], dtype=object)})
    assert encoder.inverse_transform(encoder.transform(frame))["x"].tolist() == [time]


ARROW_TIMES = ["time32[s]", "time32[ms]", "time64[us]", "time64[ns]"]


def parts_of(objects, name):
    """Objects as a column of Arrow in several parts, one of them empty."""
    array = pa.array(objects, type=parse_form(name).pyarrow_dtype)
    return pd.Series(pd.array(pa.chunked_array([array[:3], array[3:3], array[3:]]), dtype=parse_form(name)))


@pytest.mark.parametrize("name", [f"{kind}[pyarrow]" for kind in ARROW_TIMES])
def test_times_of_arrow_are_the_seconds_of_each_time(name):
    micro = np.append(RNG.integers(0, 86_400_000_000, 300), [0, 86_399_999_999])
    times = [*(moment.time() for moment in micro.astype("datetime64[us]").tolist()), None]
    column = parts_of(times, name)
    kept = [np.nan if time is None else seconds(time) for time in column.astype(object).where(column.notna(), None)]
    assert np.array_equal(from_form(column, name), kept, equal_nan=True)
    assert np.array_equal(from_form(column[2:7], name), kept[2:7])
    back = to_form(np.array(kept), np.isnan(kept), name)
    assert back.equals(column.astype(back.dtype))


@pytest.mark.parametrize(
    "name", ["decimal128(38, 3)[pyarrow]", "decimal128(38, 30)[pyarrow]", "decimal256(60, 3)[pyarrow]"]
)
def test_decimals_of_arrow_are_the_floats_nearest_to_them(name):
    places = -30 if "30)" in name else -3
    random = [*RNG.integers(-(2**60), 2**60, 300).tolist(), *RNG.integers(-(2**40), 2**40, 300).tolist()]
    counts = [0, 1, -1, 7, 2**53 - 1, -(2**53), 2**64 + 2**40, -(2**64), *random]
    decimals = [*(Decimal(count).scaleb(places) for count in counts), None]
    column = parts_of(decimals, name)
    kept = [np.nan if value is None else float(value) for value in decimals]
    assert np.array_equal(from_form(column, name), kept, equal_nan=True)
    assert np.array_equal(from_form(column[2:7], name), kept[2:7])


@pytest.mark.parametrize("name", ["decimal", "decimal128(20, 3)[pyarrow]", "decimal256(60, 3)[pyarrow]"])
def test_decimals_are_those_that_a_text_of_the_number_has(name):
    # 0.0015 and 2.0005 are near the middle of two, and 2**52 is large
    numbers = [0.0, -0.0, -0.0001, 0.0015, 2.0005, 1.25, -1.25, 2.0**52, *RNG.normal(0, 1e4, 300), 1.0]
    for rounded in (numbers, np.round(numbers, 3)):
        absent = np.arange(len(numbers)) % 5 == 4
        drawn = to_form(np.array(rounded), absent, name, decimals=3)
        texts = [None if gone else Decimal(f"{x:.3f}") for x, gone in zip(rounded, absent)]
        found = drawn.astype(object).where(drawn.notna(), None).tolist()
        assert found == texts
        assert {value.as_tuple().exponent for value in found if value is not None} == {-3}


def test_a_decimal_that_its_dtype_cannot_hold_is_an_error():
    with pytest.raises(pa.ArrowInvalid):
        to_form(np.array([1000.0]), np.array([False]), "decimal128(5, 3)[pyarrow]")


def test_parquet_types_come_back_as_they_were(tmp_path):
    types = {
        "small": pa.int16(),
        "single": pa.float32(),
        "amount": pa.decimal128(10, 2),
        "day": pa.date32(),
        "hour": pa.time32("ms"),
        "span": pa.duration("ms"),
        "zoned": pa.timestamp("us", "Europe/Paris"),
        "flag": pa.bool_(),
        "code": pa.dictionary(pa.int8(), pa.string()),
    }
    values = {
        "small": DAYS.tolist(),
        "single": RNG.normal(size=N).tolist(),
        "amount": CENTS,
        "day": DATES,
        "hour": TIMES,
        "span": [datetime.timedelta(hours=int(day)) for day in DAYS],
        "zoned": [moment.to_pydatetime() for moment in MOMENTS],
        "flag": (DAYS % 2 == 0).tolist(),
        "code": RNG.choice(["a", "b"], N).tolist(),
    }
    import pyarrow.parquet as pq

    from skdpgen.__main__ import main

    table = pa.table({name: pa.array(values[name], type=types[name]) for name in types})
    pq.write_table(table, tmp_path / "in.parquet")
    for model in ("moment", "p3gm"):  # in parts, and whole
        out = tmp_path / f"{model}.parquet"
        fit = ["synthesize", tmp_path / "in.parquet", "--model", model, "--epsilon", "0.5", "--output", out]
        assert main(list(map(str, fit))) == 0
        assert dict(zip(types, pq.read_schema(out).types)) == types
    assert read_table(tmp_path / "in.parquet")["span"].iloc[0] == values["span"][0]


@pytest.mark.parametrize("dtype", [pd.ArrowDtype(pa.string()), pd.ArrowDtype(pa.large_string()), "string"])
def test_text_comes_back_in_the_dtype_of_its_library(dtype):
    """Arrow's text and pandas' own have the same name, string[pyarrow]."""
    frame = pd.DataFrame({"x": pd.Series(RNG.choice(["a", "b"], N)).astype(dtype), "z": RNG.normal(size=N)})
    synth = MomentSynthesizer(20.0).fit(frame)
    assert synth.sample(20)["x"].dtype == frame["x"].dtype
    assert Schema.from_json(synth.schema_.to_json()) == synth.schema_
    for X in (frame[["z"]], frame[["z"]].to_numpy()):
        assert MomentSynthesizer(20.0).fit(X, frame["x"]).sample(20)[1].dtype == frame["x"].dtype


def test_the_name_that_pandas_gives_to_two_dtypes_is_read_as_pandas_reads_it():
    saved = {"format": "skdpgen-schema", "version": 1}
    saved["columns"] = [{"name": "x", "kind": "categorical", "categories": ["a"], "dtype": "string[pyarrow]"}]
    assert isinstance(output_dtype(Schema.from_dict(saved)["x"].dtype), pd.StringDtype)
    arrow = Categorical("x", ["a"], dtype="utf8[pyarrow]")
    assert output_dtype(arrow.dtype) == pd.ArrowDtype(pa.string())


@pytest.mark.parametrize(
    "name",
    [
        "decimal128(5, 9)[pyarrow]",
        "decimal128(99, 2)[pyarrow]",
        "period[XYZ]",
        "period[../x]",
        "interval[object, right]",
        "interval[datetime64[ns, dateutil/../../x], right]",
        "timedelta64[Y]",
        "time64[s][pyarrow]",
    ],
)
def test_other_names_of_dtypes_are_refused(name):
    for column in (Numeric, Datetime, Categorical):
        with pytest.raises(SchemaError, match="unknown dtype"):
            column("x", dtype=name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Numeric, "date"),
        (Numeric, "period[M]"),
        (Numeric, "interval[float64, right]"),
        (Datetime, "time"),
        (Datetime, "decimal"),
        (Datetime, "timedelta64[us]"),
        (Categorical, "decimal"),
        (Categorical, "period[M]"),
    ],
)
def test_a_form_belongs_to_one_kind(kind, name):
    output_dtype(name)
    with pytest.raises(SchemaError, match="does not fit a column of"):
        kind("x", dtype=name)


@pytest.mark.full_fits
@pytest.mark.parametrize("form", FORMS)
def test_real_and_synthetic_rows_of_a_form_are_compared(form):
    from skdpgen.metrics import marginal_tvd

    values, _ = FORMS[form]
    frame = pd.DataFrame({"x": values, "z": RNG.normal(size=N)})
    halves = frame.iloc[: N // 2], frame.iloc[N // 2 :]
    assert plain_forms(frame)["x"].isna().sum() == 0
    assert marginal_tvd(*halves) < 0.3
