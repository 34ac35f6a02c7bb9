"""Columns on the command line: identifiers and codes are named, dropped, or settled by an option; missing marks."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import _command_line
import numpy as np
import pandas as pd
import pytest
from _command_line import FRAME, refused

import skdpgen
from skdpgen import Schema
from skdpgen.__main__ import main
from skdpgen.commands._hints import (
    alike_texts,
    code_systems,
    codes_of_missing_values,
    codes_of_one_length,
    distinct_numbers,
    free_texts,
    lacking_times,
    likely_keys,
    short_codes,
    two_numbers,
)
from skdpgen.tabular import Categorical, Identifier, Numeric

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]
table = _command_line.table
FIT = "synthesize keyed.csv --model moment --epsilon 8 --output out.csv"


@pytest.fixture
def keyed(table):
    """A table of two columns with keys, and its schema."""
    frame = FRAME[["age", "ill"]].assign(ill=FRAME["ill"].astype(int), visit_id=np.arange(len(FRAME)))
    frame.to_csv("keyed.csv", index=False)
    Schema([Numeric("age", (18, 80), integer=True), Categorical("ill", (0, 1))]).save("two.json")
    return frame


def test_schema_names_likely_identifiers_with_the_command_that_settles_it(keyed, capsys):
    assert main(["schema", "keyed.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "skdpgen schema keyed.csv --id visit_id; without the columns: --drop visit_id" in said
    assert "whole numbers, which are taken for quantities: age, ill." in said
    assert main(["schema", "keyed.csv", "--id", "visit_id", "--target", "ill", "--output", "s.json"]) == 0
    assert "visit_id" not in capsys.readouterr().err
    schema = Schema.load("s.json")
    assert schema["visit_id"] == Identifier("visit_id", dtype="Int64")
    assert isinstance(schema["ill"], Categorical)
    assert isinstance(schema["age"], Numeric)
    assert main(["schema", "keyed.csv", "--drop", "visit_id", "--categorical", "ill,age", "--output", "s.json"]) == 0
    assert list(Schema.load("s.json")) == ["age", "ill"]
    assert isinstance(Schema.load("s.json")["age"], Categorical)


def test_schema_points_to_persons_with_several_rows_and_codes_of_missing_values(keyed, capsys):
    assert main(["schema", "keyed.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "one person (or household, or device) may have several rows" in said
    assert "skdpgen synthesize --unit COLUMN" in said
    assert "Likely columns" not in said
    assert "apart from all others" not in said
    frame = keyed.assign(visit_id=keyed["visit_id"] // 3, age=keyed["age"].mask(keyed.index % 9 == 0, 999))
    frame.assign(**{"E-Mail": "x@y.org", "product_name": "z"}).to_csv("keyed.csv", index=False)
    assert main(["schema", "keyed.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "synthesize --unit visit_id" in said
    assert "Likely columns, by their names and repeated values: visit_id" in said
    assert "by the names of the columns: E-Mail, product_name." in said
    assert "apart from all others: age. If they stand for a missing value, give each as --missing" in said
    assert "x@y" not in said
    marks = ["--missing", "", "--missing", "999"]
    assert main(["schema", "keyed.csv", *marks, "--drop", "E-Mail,product_name,visit_id", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "apart from all others" not in said
    assert "how the file is written (--missing '' --missing 999): synthesize and report need no" in said
    assert main([*FIT.split(), *marks, "--schema", "s.json", "--only-schema-columns"]) == 0
    assert pd.read_csv("out.csv", dtype=str)["age"].isna().any()


def test_schema_points_to_columns_that_tell_nothing_or_follow_from_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    place = pd.Series(["DE11", "DE12", "DE21", "DE22", "FR10"] * 40)
    frame = pd.DataFrame({"place": place, "pay": range(200), "country code": place.str[:2], "wave": 3})
    frame["part"], frame["pay2"] = place.str[:3], frame["pay"]
    frame["remark"] = [f"text {k} of row" for k in range(200)]
    frame["sex"] = ["m", "f"] * 100
    frame.to_csv("survey.csv", index=False)
    assert main(["schema", "survey.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "one value in all rows: wave. They take budget and tell nothing: --drop wave" in said
    assert "text that few rows share: remark. " in said
    assert "equal to another column in all rows: pay2 to pay. " in said
    assert "--constraint 'determines(place, `country code`, part)'" in said
    assert "text 7" not in said
    assert "DE11" not in said
    assert main(["schema", "survey.csv", "--drop", "wave,remark,pay2,country code,part", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert not any(text in said for text in ("in all rows", "few rows share", "follow from"))
    frame.assign(HHID=np.repeat(range(100), 2)).to_csv("survey.csv", index=False)
    assert main(["schema", "survey.csv", "--output", "s.json"]) == 0
    assert "synthesize --unit HHID" in capsys.readouterr().err


def test_schema_prints_its_suggestions_as_one_command_and_the_commands_that_follow(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"case": [f"F{2_000_000 + k}" for k in range(300)], "pay": rng.permutation(300), "wave": 3})
    frame["iban"] = rng.integers(10**17, 10**18, 300)
    frame["remark"], frame["zip"] = [f"text {k} of row" for k in range(300)], rng.integers(10_000, 10_020, 300)
    frame["sick"], frame["person"] = rng.choice(["ja", "nein"], 300), np.arange(300) // 2
    frame.to_csv("rows.csv", index=False, sep=";")
    given = ["--separator", ";", "--target", "sick", "--output", "s.json"]
    assert main(["schema", "rows.csv", *given]) == 0
    said = capsys.readouterr().err
    assert "hardly any two rows share a value: case,iban. If these are keys" in said
    command = re.search("all of these suggestions in one command, .*: skdpgen (schema .*)", said)[1]
    options = "--target sick --id case,iban --categorical zip --drop wave,remark --output s.json"
    assert command == f"schema rows.csv --separator ';' {options}"
    assert main(shlex.split(command)) == 0
    said = capsys.readouterr().err
    assert "in one command" not in said
    fit = re.search(r"skdpgen (synthesize rows\.csv .*)", said)[1]
    shared = "--schema s.json --target sick --unit person --drop wave,remark"
    assert fit == f"synthesize rows.csv {shared} --epsilon 1 --output synthetic.csv --card card.json"
    assert f"skdpgen report rows.csv synthetic.csv {shared} --card card.json" in said
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(shlex.split(fit)) == 0
    made = pd.read_csv("synthetic.csv", sep=";")
    assert list(made) == ["case", "pay", "iban", "zip", "sick"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_printed_commands_have_what_the_messages_above_them_recommend(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 2000
    codes = [f"{letter}{k:02d}.{j}" for letter in "ABEI" for k in range(12) for j in range(4)]
    person = np.sort(rng.integers(0, 900, n))
    frame = pd.DataFrame({"Patient_ID": [f"P{k:04d}" for k in person], "ICD": rng.choice(codes, n)})
    frame["visit"] = frame.groupby("Patient_ID").cumcount() + 1
    frame["pay"], frame["empty"] = rng.random(n).round(3), "x"
    frame.to_csv("visits.csv", index=False)
    assert main(["schema", "visits.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "--hierarchy ICD=1,3: groups of codes" in said
    assert "For fresh keys" not in said  # of Patient_ID: it would tear the rows of a person apart
    command = re.search("all of these suggestions in one command, .*: skdpgen (schema .*)", said)[1]
    options = "--number-in-unit visit --drop empty --hierarchy ICD=1,3 --output s.json"
    assert command == f"schema visits.csv {options}"
    for _ in range(2):  # the command that is suggested suggests nothing further
        assert "--unit Patient_ID in the next commands is for a person who may have several rows" in said
        fit, report = (shlex.split(line)[1:] for line in said.splitlines()[-2:])
        assert fit[fit.index("--unit") + 1] == report[report.index("--unit") + 1] == "Patient_ID"
        assert main(shlex.split(command)) == 0
        said = capsys.readouterr().err
        assert "in one command" not in said
    schema = Schema.load("s.json")
    assert schema["ICD"].hierarchy == (1, 3)
    assert schema["visit"].within_unit
    assert main([*fit, "--card", "card.json"]) == 0
    assert list(pd.read_csv("synthetic.csv")) == ["ICD", "visit", "pay"]
    assert "all rows of one Patient_ID" in capsys.readouterr().out
    assert main(report) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ICD", "must be COLUMN=N"),
        ("ICD=a", "got ICD=a"),
        ("age=1", "'age' is no column of text"),
        ("ill=0", "least 1"),
    ],
)
def test_a_hierarchy_that_is_none_is_refused(keyed, capsys, given, said):
    assert said in refused(capsys, "schema", "keyed.csv", "--categorical", "ill", "--hierarchy", given)


def test_all_codes_of_a_column_are_declared_by_a_public_list(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": rng.choice([11, 25, 301], 200), "code": rng.choice(["I10", "K29"], 200)})
    frame["age"] = rng.integers(18, 80, 200)
    frame.assign(empty=1).to_csv("in.csv", index=False)
    Path("towns.csv").write_text('\ufefftown,name\n11,North\n25,"South, lower"\n\n301,East\n999,none yet\n', "utf-8")
    Path("a=b.csv").write_text("K29\nI10\nI21\n")
    given = ["--categories", "town=towns.csv", "--categories", "code=a=b.csv", "--hierarchy", "code=1"]
    assert main(["schema", "in.csv", *given, "--output", "s.json"]) == 0
    schema = Schema.load("s.json")
    assert schema["town"].categories == (11, 25, 301, 999)
    assert (schema["code"].categories, schema["code"].hierarchy) == (("K29", "I10", "I21"), 1)
    said = capsys.readouterr().err
    assert "town: 4 categories, from 11 to 999, as towns.csv lists them" in said
    again = next(line for line in said.splitlines() if "all of these suggestions" in line).partition("command")[2]
    options = shlex.split(again.partition("wrong: skdpgen ")[2])
    assert options[:2] == ["schema", "in.csv"]
    assert main(options) == 0
    assert Schema.load("s.json")["town"] == schema["town"]
    command = "synthesize in.csv --schema s.json --model moment --epsilon 8 --drop empty --output out.csv"
    assert main(command.split()) == 0
    assert set(pd.read_csv("out.csv")["town"]) <= {11, 25, 301, 999}


def test_a_short_list_of_codes_needs_no_file(keyed, capsys):
    pd.read_csv("keyed.csv").assign(sex="f").to_csv("keyed.csv", index=False)
    given = ["--categories", "ill=0,1,2", "--categories", 'sex=f, m,"x, y"']
    assert main(["schema", "keyed.csv", *given, "--output", "s.json"]) == 0
    assert Schema.load("s.json")["ill"].categories == (0, 1, 2)
    assert Schema.load("s.json")["sex"].categories == ("f", "m", "x, y")
    assert "sex: 3 categories: f, m, x, y" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "text", "said"),
    [
        ("ill=list.csv", "0\n1\n0\n", "0 is in line 1 and in line 3: list each code once"),
        ("ill=list.csv", "ill,what\n", "the file has no code"),
        (
            "ill=list.csv",
            "code\n0\n1\n",
            "line 1 has 'code', and the column has whole numbers; a header must be the name",
        ),
        ("ill=list.csv", "0\n1.5\n", "line 2 has '1.5', and the column has whole numbers"),
        ("ill=list.csv", None, "No such file"),
        ("sick=list.csv", "0\n1\n", "with a column of the file (age, ill, visit_id)"),
        ("ill", "0\n1\n", "--categories must be COLUMN=LIST.csv"),
        ("ill=none", None, "A list without a file has a comma: --categories sex=f,m"),
        ("ill=0,1,0", None, "0 is in entry 1 and in entry 3: list each code once"),
        ("ill=no,yes", None, "entry 1 has 'no', and the column has whole numbers"),
        ("ill=,", None, "the list has no code"),
    ],
)
def test_a_list_that_declares_no_codes_is_refused(keyed, capsys, given, text, said):
    if text is not None:
        Path("list.csv").write_text(text)
    assert said in refused(capsys, "schema", "keyed.csv", "--categories", given)


def test_schema_points_to_codes_whose_first_characters_may_be_groups(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 5000
    diagnoses = [f"{letter}{k:02d}.{j}" for letter in "ABEI" for k in range(12) for j in range(4)]
    towns = [f"{k:05d}" for k in range(10_000, 100_000, 400)]
    dates = [f"{day:02d}.{month:02d}.2024" for day in range(1, 29) for month in range(1, 13)]
    frame = pd.DataFrame(
        {name: rng.choice(values, n) for name, values in {"diagnosis": diagnoses, "zip": towns}.items()}
    )
    frame["day"] = rng.choice(dates, n)
    frame["time"] = rng.choice([f"{k // 60:02d}:{k % 60:02d}" for k in range(1440)], n)
    frame["street"] = rng.choice([f"street {k}" for k in range(90)], n)
    frame["ward"] = rng.choice(["A1", "B2"], n)
    frame["note"] = [f"n{k}" for k in range(n)]
    assert code_systems(frame) == {"diagnosis": [1, 3], "zip": [1]}
    assert code_systems(frame.head(0)) == {}
    assert code_systems(frame.assign(diagnosis=frame["diagnosis"].mask(frame.index % 3 == 0)))["diagnosis"] == [1, 3]
    frame[["diagnosis", "ward"]].to_csv("visits.csv", index=False)
    assert main(["schema", "visits.csv", "--output", "s.json", "--no-questions"]) == 0
    said = capsys.readouterr().err
    assert "many codes, by their form: diagnosis. " in said
    assert 'add "hierarchy": [1, 3] to this column' in said
    text = Path("s.json").read_text().replace('"name": "diagnosis",', '"name": "diagnosis", "hierarchy": [1, 3],')
    Path("s.json").write_text(text)
    assert Schema.load("s.json")["diagnosis"].hierarchy == (1, 3)
    assert main(["synthesize", "visits.csv", "--schema", "s.json", "--epsilon", "8", "--output", "out.csv"]) == 0
    drawn = set(pd.read_csv("out.csv", keep_default_na=False)["diagnosis"])
    assert drawn <= {*diagnoses, *(code[:n] for code in diagnoses for n in (1, 3)), "other", ""}
    assert len(drawn) > 20


def test_days_of_arrow_calendars_may_lack_days_of_the_week():
    pa = pytest.importorskip("pyarrow")
    days = pd.Series(pd.date_range("2024-01-01", periods=800))
    days = days[days.dt.day_of_week < 5].reset_index(drop=True)
    for dtype in (pa.date32(), pa.date64()):
        frame = pd.DataFrame({"sold": days.dt.date.astype(pd.ArrowDtype(dtype))})
        assert lacking_times(frame) == (["sold"], [])


def test_schema_points_to_days_and_hours_without_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    times = pd.Series(pd.date_range("2024-01-01", periods=5000, freq="h"))
    times = times[(times.dt.day_of_week < 6) & times.dt.hour.between(8, 19)].reset_index(drop=True)
    days = pd.Series(pd.date_range("2020-01-01", periods=len(times)))
    frame = pd.DataFrame(
        {"sold": times, "made on": days, "week": days - pd.to_timedelta(days.dt.day_of_week, unit="D")}
    )
    frame.to_csv("shop.csv", index=False)
    assert main(["schema", "shop.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "no row on some day of the week: sold. " in said
    assert """--constraint "weekday(sold) != 'Sunday'\"""" in said
    assert "no row at some hours: sold. " in said
    assert "--constraint '8 <= hour(sold) < 20'" in said
    fit = ["synthesize", "shop.csv", "--schema", "s.json", "--epsilon", "8", "--output", "out.csv"]
    closed = ["--constraint", "weekday(sold) != 'Sunday'", "--constraint", "8 <= hour(sold) < 20"]
    assert main([*fit, *closed]) == 0
    rows = pd.read_csv("out.csv", parse_dates=["sold"])
    assert set(rows["sold"].dt.day_of_week) == set(range(6))
    assert set(rows["sold"].dt.hour) == set(range(8, 20))
    pd.DataFrame({"sold at": frame["sold"]}).to_csv("shop.csv", index=False)
    assert main(["schema", "shop.csv", "--output", "s.json"]) == 0
    assert "--constraint '8 <= hour(`sold at`) < 20'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([0, 3, -9, -99], [-9, -99]),
        ([-1, 3, -99], []),
        ([*range(9), -8], [-8]),
        ([0, 40, 60, -8, -9, -1], [-1, -8, -9]),
        ([1, 5, -66, -77], [-66, -77]),
        ([-2, -1, 0, 1, 2], []),  # a scale
        ([-20, -8, 3, 40], []),
        ([18, 90, 999, 9999], [999, 9999]),
        ([18, 97, 99], []),
        ([1.5, 2.5, 99.0], [99]),
        ([999, 999], []),
        ([99, 99, 1], []),
        ([True, False], []),
        (["a", "99"], []),
        ([], []),
    ],
)
def test_a_code_of_missing_values_is_apart_from_all_other_numbers(values, codes):
    assert codes_of_missing_values(pd.Series(values)) == codes


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("age", "must be COLUMN=LOW..HIGH; got age"),
        ("age=5", "must be COLUMN=LOW..HIGH"),
        ("age=old..5", "two numbers"),
        ("ill=0..1", "'ill' is no column of numbers or dates; these are age"),
        ("age=9..3", "bounds"),
    ],
)
def test_bounds_that_are_none_are_refused(keyed, capsys, given, said):
    assert said in refused(capsys, "schema", "keyed.csv", "--categorical", "ill", "--bounds", given)


def test_bounds_of_dates_are_in_iso_8601_or_as_the_column_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    days = pd.date_range("2020-01-01", periods=60)
    pd.DataFrame({"seen": days.strftime("%d.%m.%Y"), "day": days.strftime("%Y-%m-%d")}).to_csv("a.csv", index=False)
    bounds = ["--bounds", "seen=01.01.2020..31.12.2020", "--bounds", "day=2020-01-01..2020-12-31"]
    assert main(["schema", "a.csv", "--dates", "%d.%m.%Y", *bounds, "--output", "s.json"]) == 0
    schema = Schema.load("s.json")
    assert schema["seen"].bounds == schema["day"].bounds == ("2020-01-01T00:00:00", "2020-12-31T00:00:00")


def test_schema_says_where_a_number_would_be_written_in_place_of_empty_fields(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    note = "the file has empty fields, and synthetic rows are written with the first TEXT of --missing"
    for lines, marks, said in (
        (["-999,x", "4,", "5,y"], ["-999", ""], True),
        (["-999,x", ",y", "5,y"], ["-999"], True),
        (["-999,x", "4,z", "5,y"], ["-999"], False),
        (["-999,x", "4,", "5,y"], ["", "-999"], False),
        (["NA,x", "4,", "5,y"], ["NA"], False),
        (["4,x", "4,", "5,y"], [], False),
    ):
        Path("a.csv").write_text("\n".join(["a,b", *lines]) + "\n")
        options = [text for mark in marks for text in ("--missing", mark)]
        assert main(["schema", "a.csv", *options, "--output", "s.json"]) == 0
        err = capsys.readouterr().err
        assert (note in err) == said
        assert ("With --missing '' before --missing -999, with empty fields" in err) == said
        assert ("schema a.csv --missing '' --missing -999" in err) == said
        assert err.count("--missing '' --missing -999 --missing ''") == 0


def test_texts_that_differ_in_spaces_or_case_alone_are_pointed_out(tmp_path, monkeypatch, capsys):
    frame = pd.DataFrame({"paid": ["Yes", "yes ", "no"] * 50, "town": [" Bonn", "Ulm", "Trier"] * 50})
    assert alike_texts(frame) == ["paid"]
    monkeypatch.chdir(tmp_path)
    frame.to_csv("a.csv", index=False)
    assert main(["schema", "a.csv", "--output", "s.json"]) == 0
    assert "or in upper and lower case alone: paid. They are separate categories" in capsys.readouterr().err


@pytest.mark.filterwarnings("default:read as text")
def test_numbers_beside_some_texts_are_no_free_text(tmp_path, monkeypatch, capsys):
    numbers = [f"{value:.1f}" for value in np.linspace(1, 99, 981)]
    texts = ["NA", "n/a", "unknown", "-", "?"]
    frame = pd.DataFrame({"a": numbers + texts, "note": [f"note {k}" for k in range(len(numbers) + 5)], "c": "x"})
    assert free_texts(frame) == ["note"]
    assert free_texts(frame.assign(a=[f"{k:05d}" for k in range(len(frame))])) == ["a", "note"]
    monkeypatch.chdir(tmp_path)
    frame.to_csv("a.csv", index=False)
    assert main(["schema", "a.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "all values but one text, or a few, are numbers: 'a'" in said
    assert "few rows share: note." in said


def test_schema_points_to_whole_numbers_that_are_keys_or_codes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 4000
    frame = pd.DataFrame({"claim": 100_000 + np.arange(n), "cpt": rng.choice(np.arange(90_000, 90_300), n)})
    frame["line"], frame["shuffled"] = np.arange(n) + 1, rng.permutation(n) + 5000
    frame["grams"] = rng.choice(10**6, n, replace=False)
    frame["wage"], frame["year"] = rng.integers(10, 99, n) * 1000, rng.integers(1950, 2020, n)
    frame["count"] = rng.permutation(n)
    frame.to_csv("claims.csv", index=False)
    assert main(["schema", "claims.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "hardly any two rows share a value: claim,line,shuffled. If these are keys" in said
    assert "whole numbers no two of which are equal: grams,count. Only if these are keys, and no quantities" in said
    assert "and few different ones: cpt. If these are codes, whose order means nothing: --categorical cpt" in said
    command = re.search("all of these suggestions in one command, .*: skdpgen (schema .*)", said)[1]
    assert command == "schema claims.csv --id claim,line,shuffled --categorical cpt --output s.json"
    assert main(shlex.split(command)) == 0
    said = capsys.readouterr().err
    assert "in one command" not in said
    assert "cpt" not in said
    years = pd.DataFrame({"year": np.arange(1900, 2020)})
    assert likely_keys(years) == codes_of_one_length(years) == []
    missing = pd.DataFrame({"claim": frame["claim"].astype("Int64").mask(frame.index % 3 == 0)})
    assert likely_keys(missing) == ["claim"]
    assert distinct_numbers(missing) == []
    assert (
        likely_keys(missing.head(0)) == codes_of_one_length(missing.head(0)) == distinct_numbers(missing.head(0)) == []
    )


def test_schema_points_to_short_codes_and_not_to_years_measurements_or_amounts():
    rng, n = np.random.default_rng(0), 8000
    occupations = [1112, 1120, 1211, 2110, 2120, 2211, 2310, 2330, 2511, 3112, 3221, 3313, 4110, 4311, 5111, 5120, 5223]
    occupations += [7111, 7115, 7231, 8322, 9111, 9112, 9211, 9329, 9412]
    frame = pd.DataFrame({"occupation": rng.choice(occupations, n), "year": rng.choice(np.arange(1921, 2024), n)})
    frame["height"], frame["pressure"] = (
        rng.integers(140, 200, n),
        np.clip(rng.normal(125, 15, n), 100, 220).astype(int),
    )
    frame["rent"], frame["price"] = rng.integers(10, 99, n) * 100, rng.integers(10, 99, n) * 100 + 99
    frame["wage"], frame["fee"] = rng.integers(1000, 9999, n), rng.choice([105, 250, 395, 405, 520, 830] * 9, n)
    frame["wave"], frame["ward"] = rng.choice([101, 203, 305], n), rng.choice(np.arange(100, 140), n)
    codes = frame.astype("Int64").mask(rng.random((n, frame.shape[1])) < 0.2)
    assert short_codes(frame) == short_codes(codes) == ["occupation"]
    assert short_codes(frame.head(100)) == []


def test_schema_points_to_nested_numbers_short_codes_and_columns_of_persons(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 3000
    home = rng.integers(0, 60, n)
    frame = pd.DataFrame(
        {"hh_id": np.arange(n), "town": 1_000 + 37 * home, "district": home // 6, "region": home // 30}
    )
    frame = frame.loc[np.repeat(np.arange(n), 2)].reset_index(drop=True)
    frame["occupation"], frame["age"] = rng.choice(np.arange(1011, 9900, 237), 2 * n), rng.integers(18, 80, 2 * n)
    frame.to_csv("survey.csv", index=False)
    given = ["--categorical", "town,district,region"]
    assert main(["schema", "survey.csv", *given, "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "as a region from a district: district,region from town. " in said
    assert "--constraint 'determines(town, district, region)'" in said
    alike = "one value in all rows of each hh_id: town,district,region. If it is public"
    assert alike in said
    assert "--unit hh_id --unit-columns town,district,region" in said
    assert "with many gaps, and few different ones: occupation. If these are codes" in said
    command = re.search("all of these suggestions in one command, .*: skdpgen (schema .*)", said)[1]
    assert "--categorical town,district,region --categorical occupation --hierarchy occupation=1" in command
    assert main(shlex.split(command)) == 0
    assert Schema.load("s.json")["occupation"].hierarchy == 1


def test_schema_says_to_split_two_numbers_in_one_text(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 600
    low, high = rng.integers(60, 110, n), rng.integers(100, 180, n)
    frame = pd.DataFrame({"bp": [f"{a}/{b}" for a, b in zip(high, low)], "age": low})
    frame["note"] = [f"text {k} of row" for k in range(n)]
    frame["size"] = [f"{a} x {b}.5" for a, b in zip(high, low)]
    frame["month"] = [f"{k % 12 + 1}/{2000 + k % 20}" for k in range(n)]
    frame["score"] = [f"{k % 11}/10" for k in range(n)]
    assert two_numbers(frame) == ["bp", "size"]
    assert two_numbers(frame.head(0)) == []
    frame.loc[::7, "bp"] = ""
    frame.to_csv("a.csv", index=False)
    assert main(["schema", "a.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "two numbers in one text, as 120/80: bp,size. Split each into two columns" in said
    assert "text that few rows share: note. " in said
    assert " --drop bp,size,note " in said


def test_the_form_of_keys_is_an_option(keyed, capsys):
    assert main(["schema", "keyed.csv", "--id", "visit_id=V-####", "--output", "s.json"]) == 0
    assert Schema.load("s.json")["visit_id"] == Identifier("visit_id", pattern="V-####")
    assert main(f"{FIT} --schema s.json --target ill".split()) == 0
    assert pd.read_csv("out.csv")["visit_id"][0] == "V-0001"
    capsys.readouterr()
    for option, message in (("visit_id=", "one run of #"), ("visit=V-#", "--id: no column 'visit'")):
        assert message in refused(capsys, "schema", "keyed.csv", "--id", option)


def test_schema_stores_how_the_file_is_written(keyed, capsys):
    keyed.assign(born="03.04.1950").to_csv("keyed.csv", index=False, sep=";")
    notation = ["--separator", ";", "--dates", "%d.%m.%Y"]
    assert main(["schema", "keyed.csv", *notation, "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "the schema stores how the file is written (--separator ';')" in said
    assert "skdpgen schema keyed.csv --separator ';' --dates %d.%m.%Y --id visit_id" in said
    assert main(["schema", "keyed.csv", *notation, "--id", "visit_id", "--output", "s.json"]) == 0
    assert skdpgen.Schema.load("s.json")["born"].format == "%d.%m.%Y"
    assert skdpgen.Schema.load("s.json").notation == {"separator": ";"}
    assert main([*FIT.split(), "--schema", "s.json"]) == 0


def test_a_schema_does_not_change_the_kind_of_a_target(keyed):
    main(["schema", "keyed.csv", "--id", "visit_id", "--output", "s.json"])  # without --target
    assert main(f"{FIT} --schema s.json --target ill --save-model m.safetensors".split()) == 0
    assert sorted(skdpgen.load("m.safetensors").classes_[:2]) == [0, 1]
    rows = pd.read_csv("out.csv")
    assert list(rows.columns) == list(keyed.columns)
    assert rows["visit_id"].tolist() == list(range(1, len(rows) + 1))


def test_a_budget_is_planned_for_identifiers_and_codes(keyed, capsys):
    assert main(["schema", "keyed.csv", "--id", "visit_id", "--target", "ill", "--output", "s.json"]) == 0
    assert main(["budget", "--schema", "s.json", "--rows", "300", "--target", "ill"]) == 0
    assert "moments" in capsys.readouterr().out


def test_dropped_columns_are_not_read(keyed):
    keyed.assign(visit_id=["x", *range(1, len(keyed))]).to_csv("keyed.csv", index=False)
    assert main(f"{FIT} --drop visit_id --kinds-from-values".split()) == 0
    assert list(pd.read_csv("out.csv")) == ["age", "ill"]


def test_dropped_columns_of_a_schema_are_not_read(keyed):
    assert main(f"{FIT} --schema two.json --drop visit_id,age".split()) == 0
    assert list(pd.read_csv("out.csv")) == ["ill"]


@pytest.mark.parametrize("model", ["moment", "p3gm"])
def test_parquet_files_are_read_without_dropped_columns(keyed, model):
    pytest.importorskip("pyarrow")
    keyed.to_parquet("keyed.parquet")
    fit = f"synthesize keyed.parquet --model {model} --epsilon 8 --output out.csv --drop visit_id"
    assert main(fit.split()) == 0
    assert list(pd.read_csv("out.csv")) == ["age", "ill"]


def test_a_column_deleted_from_the_schema_is_learned_and_said_so_or_left_out(keyed, capsys):
    assert "--only-schema-columns" in refused(capsys, *f"{FIT} --schema two.json".split())
    assert main(f"{FIT} --epsilon .05 --schema two.json --kinds-from-values".split()) == 0
    said = capsys.readouterr().err
    assert "not in the schema, and therefore learned and charged: visit_id; --only-schema-columns" in said
    assert list(pd.read_csv("out.csv")) == list(keyed)
    assert main(f"{FIT} --schema two.json --only-schema-columns".split()) == 0
    assert list(pd.read_csv("out.csv")) == ["age", "ill"]


def test_a_report_takes_the_options_of_the_fit_about_kinds(keyed):
    assert main(f"{FIT} --drop visit_id --kinds-from-values".split()) == 0
    pages = []
    for option in ([], ["--kinds-from-values"]):
        assert main(["report", "keyed.csv", "out.csv", "--drop", "visit_id", "--output", "r.html", *option]) == 0
        pages.append(Path("r.html").read_text())
    assert pages[0] == pages[1]


def test_a_report_of_tables_without_a_common_column_names_no_column_to_drop(keyed, capsys):
    pd.DataFrame({"other": [1, 2]}).to_csv("other.csv", index=False)
    said = refused(capsys, "report", "keyed.csv", "other.csv", "--output", "r.html")
    assert "keyed.csv and other.csv have no column in common" in said
    assert "--drop" not in said


def test_a_report_leaves_out_what_the_schema_does_not_list_as_the_fit_did(keyed, capsys):
    assert main(f"{FIT} --schema two.json --only-schema-columns --rows 200".split()) == 0
    capsys.readouterr()
    plain = "report keyed.csv out.csv --output r.html"
    report = f"{plain} --schema two.json"
    said = refused(capsys, *report.split())
    assert "only keyed.csv has the columns visit_id" in said
    assert "give --drop visit_id, or --only-schema-columns" in said
    assert main(f"{report} --only-schema-columns".split()) == 0
    assert "visit_id" not in Path("r.html").read_text()
    assert main(f"{report} --drop visit_id".split()) == 0
    assert main(f"{report} --only-schema-columns --unit visit_id".split()) == 0
    with_target = pd.read_csv("out.csv").assign(died=keyed["ill"].iloc[:200])
    with_target.to_csv("out.csv", index=False)
    keyed.assign(died=keyed["ill"]).to_csv("keyed.csv", index=False)
    assert main(f"{report} --only-schema-columns --target died".split()) == 0
    assert "Not in the schema: &#x27;died&#x27;. Their bins reach over the range" in Path("r.html").read_text()
    assert main(f"{report} --drop visit_id".split()) == 0
    assert "Not in the schema: &#x27;died&#x27;." in Path("r.html").read_text()
    capsys.readouterr()
    assert "--only-schema-columns needs --schema" in refused(capsys, *f"{plain} --only-schema-columns".split())
    keyed.drop(columns="age").to_csv("keyed.csv", index=False)
    assert "or --only-schema-columns" not in refused(capsys, *report.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--drop age,visit", "--drop: no column 'visit'; the file has age, ill, visit_id"),
        ("--drop age --target age", "--drop names the target 'age'"),
        ("--drop age,ill,visit_id", "--drop leaves no column"),
        ("--only-schema-columns", "--only-schema-columns needs --schema"),
    ],
)
def test_wrong_columns_are_refused_before_the_charge(keyed, capsys, options, message):
    assert message in refused(capsys, *f"{FIT} --ledger budget.db {options}".split())


def test_a_wrong_separator_is_said_before_names_that_are_no_columns(keyed, capsys):
    keyed.to_csv("semicolons.csv", index=False, sep=";")
    said = "one column, whose header contains ';': if that separates the fields, give --separator ';'"
    for options in ("--id visit_id", "--categorical ill", "--drop age", "--number-in-unit visit_id"):
        assert said in refused(capsys, "schema", "semicolons.csv", *options.split())
    for options in ("--unit visit_id", "--drop age", "--unit-columns age --unit visit_id"):
        assert said in refused(capsys, *FIT.replace("keyed", "semicolons").split(), *options.split())
    assert "no column 'x'" in refused(capsys, "schema", "semicolons.csv", "--separator", ";", "--id", "x")
    Path("titled.csv").write_text("Visits of 2024\n" + Path("keyed.csv").read_text())
    assert "give --skip-lines 1" in refused(capsys, "schema", "titled.csv", "--id", "visit_id", "--separator", ",")


def test_a_name_with_a_comma_can_be_dropped(keyed):
    keyed.rename(columns={"visit_id": "a,b"}).to_csv("keyed.csv", index=False)
    assert main([*FIT.split(), "--drop", "a,b", "--kinds-from-values"]) == 0
    assert list(pd.read_csv("out.csv")) == ["age", "ill"]


@pytest.mark.parametrize("mark", ["?", "N"])
def test_a_missing_value_is_written_as_it_was(keyed, mark, capsys):
    frame = keyed[["ill"]].assign(town=np.where(np.arange(len(keyed)) % 3, "north", mark))
    frame.to_csv("keyed.csv", index=False)
    fit = f"{FIT} --missing {mark} --missing NA --kinds-from-values --save-model m.safetensors"
    assert main(fit.split()) == 0
    given = f"--missing {shlex.quote(mark)}"
    assert f"skdpgen sample m.safetensors {given} --output MORE.csv" in capsys.readouterr().err
    assert main(f"sample m.safetensors --rows 300 --missing {mark} --output again.csv".split()) == 0
    for path in ("out.csv", "again.csv"):
        towns = pd.read_csv(path, keep_default_na=False)["town"]
        assert set(towns) <= {"north", mark, "other"}
        assert (towns == mark).mean() == pytest.approx(1 / 3, abs=0.1)
    assert main(["sample", "m.safetensors", "--rows", "3", "--missing", "x", "--output", "again.parquet"]) == 2


# ---- persons with several rows -------------------------------------------------------------------------------------
PERSONS = f"{FIT} --unit visit_id --max-rows-per-unit 2"


def test_a_fit_for_persons_writes_no_identifier_and_a_card_that_names_them(keyed, capsys):
    keyed.assign(visit_id=[f"{k // 2:04d}" for k in range(len(keyed))]).to_csv("keyed.csv", index=False)
    ledger = "--ledger b.db --card c.json"
    assert main(f"{PERSONS} --schema two.json --only-schema-columns --unit-weighting units {ledger}".split()) == 0
    assert list(pd.read_csv("out.csv").columns) == ["age", "ill"]
    said = capsys.readouterr()
    assert "all rows of one visit_id" in said.out
    assert "not in the schema" not in said.err
    assert main(["verify", "c.json", "--ledger", "b.db"]) == 0
    assert "all rows of one visit_id, at most 2 of them used, which together count 1" in capsys.readouterr().out
    assert main(["ledger", "b.db"]) == 0
    assert "all rows of one visit_id" in capsys.readouterr().out
    # the ledger of persons refuses a fit for rows
    assert main(f"{FIT} --schema two.json --only-schema-columns --ledger b.db --epsilon 0.1".split()) != 0
    assert "guarantee the weaker of the two" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "match"),
    [
        (f"{FIT} --max-rows-per-unit 2", "need --unit"),
        (f"{FIT} --unit nobody --max-rows-per-unit 2", "no column 'nobody'"),
        (f"{FIT} --unit visit_id --max-rows-per-unit 2,3", "skdpgen budget compares"),
        (f"{FIT} --unit visit_id --max-rows-per-unit few", "whole number"),
        (f"{PERSONS} --target visit_id", "is dropped, or the target"),
        (f"{PERSONS} --drop visit_id", "is dropped, or the target"),
    ],
)
def test_options_of_persons_that_do_not_fit_are_refused(keyed, capsys, command, match):
    assert main(f"{command} --schema two.json --only-schema-columns".split()) == 2
    assert match in capsys.readouterr().err


def test_the_command_of_all_suggestions_has_no_bounds_of_columns_that_it_drops(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"number": 100_000 + np.arange(300), "same": 3, "age": np.arange(300) % 80}).to_csv(
        "a.csv", index=False
    )
    bounds = ["--bounds", "same=0..5", "--bounds", "number=0..200000", "--bounds", "age=0..80"]
    assert main(["schema", "a.csv", *bounds, "--output", "s.json"]) == 0
    (command,) = re.findall("take out what is wrong: skdpgen (schema .*)", capsys.readouterr().err)
    assert "--drop same" in command
    assert "--id number" in command
    assert main(shlex.split(command)) == 0
    assert Schema.load("s.json")["age"].bounds == (0, 80)


def test_the_plan_that_schema_suggests_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"person": np.repeat(np.arange(300), 2), "age": rng.integers(18, 80, 600), "note": "a"})
    frame["ill"] = rng.choice(["no", "yes"], 600)
    frame.to_csv("in.csv", index=False)
    assert main(["schema", "in.csv", "--drop", "note", "--target", "ill", "--output", "s.json"]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("  skdpgen budget"))
    assert main(shlex.split(line)[1:]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if "number" in line.split()] == ["1", "3", "10"]


def test_scales_of_answers_are_to_have_public_ends(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"q1": [1, 2, 3, 4, 5] * 20, "ill": [0, 1] * 50, "age": range(100), "x": [0.5, 1.5] * 50})
    frame.to_csv("t.csv", index=False)
    assert main(["schema", "t.csv", "--output", "s.json"]) == 0
    said = capsys.readouterr().err
    assert "as of answers on a scale: q1. If the ends of the scale are public" in said
    assert "--bounds q1=LOW..HIGH" in said
    assert main(["schema", "t.csv", "--bounds", "q1=1..5", "--output", "s.json"]) == 0
    assert "answers on a scale" not in capsys.readouterr().err
