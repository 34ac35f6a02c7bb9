"""Numbers and dates as the world writes them: read, modelled as what they are, and written in the same way."""

import re
import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import Schema
from skdpgen.__main__ import main
from skdpgen.data.notation import Notation
from skdpgen.data.table_reading import read_table
from skdpgen.exceptions import InvalidInputError, SchemaError
from skdpgen.tabular import Categorical, Datetime, Numeric

pytestmark = pytest.mark.usefixtures("short_fits")

RNG = np.random.default_rng(0)
DAYS = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 700, 1500), unit="D")
PAY = RNG.gamma(4, 900, 1500).round(2)
GERMAN = ["--separator", ";", "--decimal", ",", "--thousands", ".", "--dates", "%d.%m.%Y"]
DASHES = ["(", ")", "()", *"\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d"]  # "-" is a mark of numbers
GERMAN_NOTATION = Notation(",", ".", ["%d.%m.%Y"], separator=";")


def german(number):
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(
        {
            "pay": [german(pay) for pay in PAY],
            "born": DAYS.strftime("%d.%m.%Y"),
            "seen": DAYS.strftime("%Y-%m-%d"),
            "code": [f"{k % 40:05d}" for k in range(1500)],
            "ill": np.where(PAY > 3000, "TRUE", "false"),
            "town": np.where(PAY > 2000, "north; west", "south"),
            "version": np.where(PAY > 2000, "v1.2.3", "v10.20.30"),
        }
    )
    frame.loc[::7, ["pay", "born"]] = ""
    frame.to_csv("german.csv", index=False, sep=";")
    return frame


def test_a_german_table_is_read_for_what_it_is(table):
    frame = read_table("german.csv", GERMAN_NOTATION)
    pay = frame["pay"].dropna()
    assert pay.to_numpy() == pytest.approx(PAY[np.arange(1500) % 7 > 0])
    assert (
        frame["born"].dropna().equals(pd.Series(DAYS, name="born").loc[frame["born"].notna()].astype("datetime64[us]"))
    )
    assert frame["seen"].dtype == "datetime64[us]"
    assert frame["ill"].dtype == "boolean"
    assert list(frame["code"][:2]) == ["00000", "00001"]
    assert set(frame["version"]) == {"v1.2.3", "v10.20.30"}
    schema = Schema.from_kinds(frame)
    kinds = [Numeric, Datetime, Datetime, Categorical]
    assert [type(schema[name]) for name in ("pay", "born", "seen", "code")] == kinds
    assert schema["born"].resolution == "D"


@pytest.mark.filterwarnings("ignore:read as text, although")  # "other" among codes
@pytest.mark.filterwarnings('ignore:the synthetic rows have "other" in much of')
def test_synthetic_rows_are_written_as_the_real_ones_are(table, capsys):
    arguments = [
        "synthesize",
        "german.csv",
        "--kinds-from-values",
        *GERMAN,
        "--epsilon",
        "8",
        "--target",
        "ill",
        "--output",
        "out.csv",
    ]
    assert main([*arguments, "--save-model", "m.safetensors"]) == 0
    drawn = pd.read_csv("out.csv", sep=";", dtype=str, keep_default_na=False)
    assert list(drawn.columns) == list(table.columns)
    assert drawn["pay"].str.fullmatch(r"-?\d+,\d{1,2}|").all()
    assert drawn["born"].str.fullmatch(r"\d{2}\.\d{2}\.\d{4}|").all()
    assert (drawn["born"] == "").any()
    assert drawn["seen"].str.fullmatch(r"\d{4}-\d{2}-\d{2}").all()
    # one set of options reads both
    assert main(["report", "german.csv", "out.csv", *GERMAN, "--target", "ill", "--output", "report.html"]) == 0
    assert (
        main(["sample", "m.safetensors", "--rows", "9", "--separator", ";", "--decimal", ",", "--output", "more.csv"])
        == 0
    )
    more = read_table("more.csv", GERMAN_NOTATION)
    assert more["pay"].dtype == "Float64"
    assert more["born"].dtype == "datetime64[us]"


def test_a_declared_date_is_read_in_its_format(table, capsys):
    schema = Schema([Datetime("born", ("2019-01-01", "2022-12-31"), resolution="D", missing=True)])
    table[["born"]].to_csv("born.csv", index=False)
    schema.save("s.json")
    arguments = ["synthesize", "born.csv", "--schema", "s.json", "--output", "out.csv"]
    assert "no ISO 8601 date" in refused(capsys, *arguments)
    assert main([*arguments, "--dates", "%d.%m.%Y"]) == 0
    assert pd.read_csv("out.csv", dtype=str, keep_default_na=False)["born"].str.fullmatch(r"\d{2}\.\d{2}\.\d{4}|").all()


@pytest.mark.parametrize(
    ("texts", "notation", "values"),
    [
        (["1,234,567.5", "12"], {"thousands": ","}, [1234567.5, 12.0]),
        (["1,5", "-,25", "+3,"], {"decimal": ","}, [1.5, -0.25, 3.0]),
        (["1'000", "12\u2019000"], {"thousands": "'"}, [1000, 12000]),
        (["1 000,5", "2\u00a0000\u202f000"], {"thousands": "space", "decimal": ","}, [1000.5, 2000000.0]),
        (["1,5e3", "2,0E-1"], {"decimal": ","}, [1500.0, 0.2]),
        (["1,234", "5,678"], {"thousands": ","}, [1234, 5678]),
        (["$1,234.50", "-$3", "$-4", "5"], {"thousands": ",", "signs": ["$"]}, [1234.5, -3.0, -4.0, 5.0]),
        (["12%", "7 %"], {"signs": ["%"]}, [12, 7]),
        (
            ["1.250,5 EUR", "EUR 3", "€ 7"],
            {"decimal": ",", "thousands": ".", "signs": ["EUR", "€"]},
            [1250.5, 3.0, 7.0],
        ),
    ],
)
def test_numbers(tmp_path, texts, notation, values):
    pd.DataFrame({"x": texts, "town": "a"}).to_csv(tmp_path / "a.csv", index=False)
    column = read_table(tmp_path / "a.csv", Notation(**notation))["x"]
    assert column.tolist() == values
    assert pd.api.types.is_integer_dtype(column.dtype) == all(isinstance(value, int) for value in values)


@pytest.mark.filterwarnings("ignore:read as text")
@pytest.mark.parametrize(
    "texts",
    [["1.23", "4.56"], ["12.34.567", "1"], ["1.2345", "1"], ["1..000", "1"], ["x1.000", "1.000"], ["9" * 30, "1"]],
)
def test_what_is_no_number_in_this_notation_stays_text(tmp_path, texts):
    pd.DataFrame({"x": texts, "town": "a"}).to_csv(tmp_path / "a.csv", index=False)
    column = read_table(tmp_path / "a.csv", Notation(",", "."))["x"]
    assert column.tolist() == texts


def test_one_text_among_formatted_numbers_is_hinted_at(tmp_path):
    pd.DataFrame({"x": ["1.234,5"] * 9 + ["k.A."], "town": "a"}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.warns(UserWarning, match="all values but one text, or a few, are numbers: 'x'"):
        read_table(tmp_path / "a.csv", Notation(",", "."))
    frame = read_table(tmp_path / "a.csv", Notation(",", ".", missing_marks=["k.A."]))
    assert frame["x"].dropna().tolist() == [1234.5] * 9


@pytest.mark.parametrize(
    ("form", "text", "resolution"),
    [
        ("%m/%d/%Y", "12/31/2021", "D"),
        ("%d/%m/%y %H:%M", "31/12/21 23:59", "min"),
        ("%Y-%m", "2021-12", "D"),
        ("%d %b %Y %H:%M:%S", "31 Dec 2021 23:59:58", "s"),
        ("%Y%m%d", "20211231", "D"),
    ],
)
def test_formats_of_dates(tmp_path, form, text, resolution):
    pd.DataFrame({"x": [text] * 5, "town": "a"}).to_csv(tmp_path / "a.csv", index=False)
    frame = read_table(tmp_path / "a.csv", Notation(dates=["%H:%M %Y", form]))
    assert frame["x"].dt.strftime(form).tolist() == [text] * 5
    assert frame.attrs["resolutions"] == {"x": resolution}
    assert frame.attrs["date_formats"] == {"x": form}


@pytest.mark.parametrize(
    ("notation", "message"),
    [
        ({"decimal": ";"}, "decimal mark"),
        ({"thousands": "_"}, "mark of thousands"),
        ({"thousands": ".", "decimal": "."}, "not the decimal mark"),
        ({"dates": ["%H:%M"]}, "with a year"),
        ({"signs": [""]}, "a sign must be text"),
        ({"signs": ["-"]}, "a sign must be text"),
        *(({"signs": ["$", mark]}, "mark negative numbers, .* with a leading - first") for mark in DASHES),
        ({"dates": ["%Y-%m-%d %z"]}, "format of dates"),
        ({"dates": ["31.12.2024"]}, "format of dates"),
        ({"dates": ["%Y %Q"]}, "format of dates"),
    ],
)
def test_bad_notations_are_refused(notation, message):
    with pytest.raises(InvalidInputError, match=message):
        Notation(**notation)


@pytest.mark.parametrize(
    "texts",
    [
        ["(26.42)", "3.10", "4.00"],
        ["($26.42)", "$3", "$4.50"],
        ["$(26.42)", "3", "4"],
        ["(1,234.50)", "7.00", "$3"],
        ["\u22125.5", "3.1"],
        ["\u201312,5", "3,5"],
        ["26.42-", "3.10"],
    ],
)
def test_negative_numbers_in_other_forms_are_not_taken_for_numbers_with_signs(texts, tmp_path):
    pd.DataFrame({"paid": np.resize(texts, 1500), "n": range(1500)}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.warns(UserWarning, match="read as text") as said:
        frame = read_table(tmp_path / "a.csv")
    message = " ".join(str(warning.message) for warning in said)
    assert "'paid'" in message
    assert "write negative numbers with a leading - first" in message
    assert "--sign" not in message
    assert "give each as --missing" not in message
    assert set(frame["paid"]) == set(texts)


def test_a_range_is_no_negative_number(tmp_path):
    texts = np.resize(["10\u201320", "20\u201330", "30"], 1500)
    pd.DataFrame({"age": texts, "n": range(1500)}).to_csv(tmp_path / "a.csv", index=False)
    assert set(read_table(tmp_path / "a.csv")["age"]) == set(texts)


@pytest.mark.parametrize("option", ["--decimal ,", "--thousands '", "--dates %d.%m.%Y"])
def test_parquet_has_a_notation_of_its_own(table, capsys, option):
    table.to_parquet("a.parquet")
    assert "are of CSV files" in refused(capsys, "schema", "a.parquet", *option.split())
    assert "decimal mark" in refused(
        capsys, "synthesize", "german.csv", "--kinds-from-values", "--decimal", "x", "--output", "out.csv"
    )


def _dates(**more):
    times = DAYS + pd.to_timedelta(RNG.integers(0, 24 * 60, len(DAYS)), unit="min")
    columns = {"admitted": times.strftime("%m/%d/%Y %H:%M"), "due": DAYS.strftime("%d.%m.%Y")}
    columns |= {"visit": DAYS.strftime("%Y-%m-%d"), "stamp": times.strftime("%Y-%m-%d %H:%M:%S")}
    pd.DataFrame({**columns, **more}).to_csv("dates.csv", index=False)


_WRITTEN = {
    "admitted": r"\d\d/\d\d/\d{4} \d\d:\d\d",
    "due": r"\d\d\.\d\d\.\d{4}",
    "visit": r"\d{4}-\d\d-\d\d",
    "stamp": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
}


def _are_written_alike(path):
    rows = pd.read_csv(path, dtype=str)
    return all(rows[name].dropna().str.fullmatch(pattern).all() for name, pattern in _WRITTEN.items())


@pytest.mark.parametrize("order", [1, -1])
def test_each_column_of_dates_keeps_its_format_in_the_schema_the_rows_and_the_model(tmp_path, monkeypatch, order):
    monkeypatch.chdir(tmp_path)
    _dates()
    formats = ["--dates", "%m/%d/%Y %H:%M", "--dates", "%d.%m.%Y"]
    formats = formats if order > 0 else [*formats[2:], *formats[:2]]
    assert main(["schema", "dates.csv", *formats, "--no-questions", "--output", "s.json"]) == 0
    schema = Schema.load("s.json")
    assert [column.format for column in schema.columns] == ["%m/%d/%Y %H:%M", "%d.%m.%Y", None, None]
    assert Schema.from_dict(schema.to_dict()) == schema
    fit = ["synthesize", "dates.csv", "--epsilon", "8", "--quiet", "--save-model", "m.safetensors"]
    assert main([*fit, "--schema", "s.json", "--output", "declared.csv"]) == 0
    assert main(["sample", "m.safetensors", "--rows", "100", "--output", "more.csv"]) == 0
    assert main([*fit, *formats, "--kinds-from-values", "--output", "read.csv"]) == 0
    assert all(map(_are_written_alike, ("declared.csv", "more.csv", "read.csv")))


def test_a_schema_without_formats_takes_those_of_the_command_by_what_its_columns_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _dates()
    resolutions = {"admitted": "min", "due": "D", "visit": "D", "stamp": "s"}
    Schema([Datetime(name, resolution=step, missing=True) for name, step in resolutions.items()]).save("s.json")
    for forms in (["%m/%d/%Y %H:%M", "%d.%m.%Y"], ["%d.%m.%Y", "%m/%d/%Y %H:%M"]):
        given = [text for form in forms for text in ("--dates", form)]
        command = ["synthesize", "dates.csv", "--epsilon", "8", "--quiet", "--schema", "s.json", *given]
        assert main([*command, "--output", "out.csv"]) == 0
        rows = pd.read_csv("out.csv", dtype=str)
        for name in ("admitted", "stamp"):
            assert rows[name].dropna().str.fullmatch(_WRITTEN["admitted"]).all()
        for name in ("due", "visit"):
            assert rows[name].dropna().str.fullmatch(_WRITTEN["due"]).all()


@pytest.mark.parametrize("form", ["%H:%M", "%Y-%m-%dT%H:%M%z", "no date", 5, ""])
def test_what_reads_no_day_is_no_format_of_dates(form):
    with pytest.raises(SchemaError, match="format must be one of strptime"):
        Datetime("seen", format=form)


def test_two_marks_of_missing_values_are_named_and_the_options_of_signs_and_times(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    marks = np.resize(["1.5", "2.25", "N/A", "-"], 1500)
    _dates(bmi=marks, paid=[f"${pay:,.2f}" for pay in PAY], at=np.resize(["08:30", "12:05"], 1500))
    with pytest.warns(UserWarning, match="read as text") as said:
        read_table("dates.csv", Notation(dates=["%m/%d/%Y %H:%M", "%d.%m.%Y"]))
    texts = " ".join(str(warning.message) for warning in said)
    assert "all values but one text, or a few, are numbers: 'bmi'" in texts
    assert "almost nothing can be learned: 'paid', 'at'" in texts
    assert "--decimal, --thousands and --sign say how numbers are written" in texts
    assert "declare times of the day in the schema file" in texts
    assert "--dates says" not in texts
    assert "N/A" not in texts


@pytest.mark.parametrize(
    ("texts", "way_out"),
    [
        (["2021-08-04T01:50:00+02:00", "2021-12-04T01:50:00+01:00"], "differ between rows.*convert the column to UTC"),
        (["2021-08-04 01:50+02:00", "2021-12-04 01:50Z"], "differ between rows.*convert the column to UTC"),
        (["2021-08-04T01:50:00+02:00", "2021-12-04T01:50:00+02:00"], r"all rows share .*such as %Y-%m-%dT%H:%M:%S\+01"),
        (["31/12/2021", "2021-12-31"], "several formats in one column .*rewrite the column in one format"),
        (["31/12/2021", "31/12/2021 10:00"], "several formats in one column"),
        (["31.12.2021", "1.2.2021 soon"], "several formats in one column"),
    ],
)
def test_dates_that_no_format_reads_are_named_with_what_to_do(tmp_path, texts, way_out):
    pd.DataFrame({"at": texts * 9, "time": ["13:45", "07:30"] * 9}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.warns(
        UserWarning, match=f"All values of 'at' look like .*{way_out}.*; those of 'time' look like times"
    ):
        read_table(tmp_path / "a.csv")


def test_the_zone_of_each_row_is_no_part_of_a_format():
    for make in (lambda form: Notation(dates=[form]), lambda form: Datetime("at", format=form)):
        with pytest.raises((InvalidInputError, SchemaError), match=r"%z and %Z .*: convert .* to UTC"):
            make("%Y-%m-%dT%H:%M:%S%z")
        with pytest.raises((InvalidInputError, SchemaError), match=r"got '%H:%M'$"):
            make("%H:%M")


@pytest.mark.parametrize(
    ("dtype", "resolution", "form", "pattern"),
    [
        ("period[M]", "D", "%m/%Y", r"\d\d/\d{4}"),
        ("date", "D", "%d.%m.%Y", r"\d\d\.\d\d\.\d{4}"),
        ("datetime64[us, Europe/Paris]", "min", "%d.%m.%Y %H:%M", r"\d\d\.\d\d\.\d{4} \d\d:\d\d"),
    ],
)
def test_months_days_and_times_of_a_zone_have_their_format(tmp_path, monkeypatch, dtype, resolution, form, pattern):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"at": DAYS.strftime(form), "pay": PAY}).to_csv("rows.csv", index=False)
    at = Datetime("at", ("2019-01-01", "2022-12-31"), resolution=resolution, missing=True, dtype=dtype, format=form)
    Schema([at, Numeric("pay", (0, 20_000))]).save("s.json")
    command = ["synthesize", "rows.csv", "--schema", "s.json", "--epsilon", "8", "--quiet", "--output", "out.csv"]
    assert main(command) == 0
    assert pd.read_csv("out.csv", dtype=str)["at"].dropna().str.fullmatch(pattern).all()


@pytest.mark.parametrize(
    "form", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S+00:00", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"]
)
def test_times_of_iso_8601_are_written_as_they_were_read(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    times = DAYS + pd.to_timedelta(RNG.integers(0, 24 * 60, len(DAYS)), unit="min")
    frame = pd.DataFrame(
        {"at": times.strftime(form), "due": DAYS.strftime("%d.%m.%Y"), "paid": [f"${k % 40}" for k in range(len(DAYS))]}
    )
    frame.to_csv("rows.csv", index=False)
    how = ["--dates", "%d.%m.%Y", "--sign", "$"]
    assert main(["schema", "rows.csv", *how, "--output", "s.json"]) == 0
    schema = Schema.load("s.json")
    assert [schema[name].format for name in ("at", "due")] == [form, "%d.%m.%Y"]
    fit = ["synthesize", "rows.csv", "--epsilon", "8", "--quiet", "--save-model", "m.safetensors", *how]
    # formats of ISO 8601 in the schema leave the other columns to --dates
    Schema([replace(schema["due"], format=None), *schema.select(["at", "paid"]).columns]).save("s.json")
    assert main([*fit, "--schema", "s.json", "--output", "a.csv"]) == 0
    assert main([*fit, "--kinds-from-values", "--output", "b.csv"]) == 0
    assert main(["sample", "m.safetensors", "--rows", "50", "--output", "c.csv"]) == 0
    for path in ("a.csv", "b.csv", "c.csv"):
        rows = pd.read_csv(path, dtype=str).dropna()
        assert (pd.to_datetime(rows["at"], format=form).dt.strftime(form) == rows["at"]).all()
        assert rows["due"].str.fullmatch(_WRITTEN["due"]).all()
        assert rows["paid"].str.fullmatch(r"\d+").all()


@pytest.mark.full_fits
@pytest.mark.parametrize("sign", ["<", ">"])
def test_a_limit_of_measurement_is_to_be_declared_as_a_bound_where_its_rows_keep_their_share(
    tmp_path, monkeypatch, capsys, sign
):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 4000
    crp, limit = np.exp(rng.normal(2, 1, n)).round(1), 5.0
    beyond = crp < limit if sign == "<" else crp > limit
    crp = pd.Series(crp).map("{:.1f}".format).str.replace(".", ",")
    pd.DataFrame({"crp": crp.mask(beyond, f"{sign}5"), "age": rng.integers(0, 90, n)}).to_csv("a.csv", index=False)
    given = ["schema", "a.csv", "--decimal", ",", "--sign", sign, "--output", "s.json"]
    assert main(given) == 0
    said = re.search("(results beyond .*): skdpgen (schema .*)", capsys.readouterr().err)
    assert "which is read as 5: crp. Declare the limit as a bound of the column" in said[1]
    assert said[2] == f"schema a.csv --decimal , --sign '{sign}' --bounds crp=LOW..HIGH"
    assert "with two numbers; got crp=LOW..HIGH" in refused(capsys, *shlex.split(said[2]))
    bounds = "crp=5,0..500" if sign == "<" else "crp=0..5,0"
    assert main([*given, "--bounds", bounds]) == 0
    assert "beyond a limit" not in capsys.readouterr().err
    assert Schema.load("s.json")["crp"].bounds == ((5, 500) if sign == "<" else (0, 5))
    assert main(["synthesize", "a.csv", "--schema", "s.json", "--epsilon", "8", "--output", "out.csv"]) == 0
    drawn = pd.read_csv("out.csv", decimal=",")["crp"]
    assert (drawn == limit).mean() == pytest.approx(beyond.mean(), abs=0.05)
