"""Synthetic units on the command line: two files that refer to each other, and what is refused before the charge."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import PrivacyCard, Schema
from skdpgen.__main__ import main
from skdpgen.commands._hints import copies, likely_units
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.tabular import Categorical, Numeric

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]
FIT = "synthesize visits.csv --model moment --epsilon 8 --kinds-from-values --unit patient --max-rows-per-unit 3"


@pytest.fixture
def visits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(fit_tables.__kwdefaults__, "n_iter", 2)
    rng, n = np.random.default_rng(0), 400
    sex, patient = rng.choice(["f", "m"], n), np.repeat(np.arange(n), rng.integers(1, 5, n))
    frame = {"patient": [f"p{i}" for i in patient], "day": rng.integers(0, 300, len(patient)), "sex": sex[patient]}
    pd.DataFrame(frame).assign(ward=rng.choice(["ears", "eyes"], len(patient))).to_csv("visits.csv", index=False)


def _run(text):
    assert main(text.split()) == 0


def test_rows_that_cannot_be_drawn_leave_a_model_and_the_command_that_draws_them_and_writes_their_card(visits, capsys):
    text = "sex == 'm' and ward == 'eyes' and day > 298"
    units = "--units 40 --units-output persons.csv"
    fit = [*f"{FIT} --unit-columns sex,day {units} --output rows.csv --card c.json".split(), "--constraint", text]
    assert main(fit) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f'still violate a constraint ("{text}")' in said
    assert "skdpgen sample --relax TEXT draws rows that may violate a constraint; charged epsilon 8" in said
    assert "relax(" not in said
    assert "set_params" not in said
    again = shlex.split(said.partition("for skdpgen ")[2])
    assert again[2:] == [*units.split(), "--output", "rows.csv", "--card", "c.json"]
    assert PrivacyCard.load("c.json")["files"] == {}
    assert main(again) == 2
    said = capsys.readouterr().err
    assert "ask for other classes, relax --given, or leave out a constraint by --relax TEXT" in said
    assert main([*again, "--relax", text]) == 0
    assert len(pd.read_csv("persons.csv")) == 40
    assert main(["verify", "c.json", "--data", "rows.csv", "--model", again[1]]) == 0
    assert set(PrivacyCard.load("c.json")["files"]) == {"model", "synthetic", "units"}


@pytest.mark.filterwarnings("default::skdpgen.exceptions.PrivacyLeakWarning")
def test_a_fit_that_protects_one_row_warns_of_columns_of_persons(visits, capsys):
    fit = FIT.partition(" --unit")[0].split() + ["--output", "rows.csv"]
    assert main(fit) == 0
    said = capsys.readouterr().err
    assert "PrivacyLeakWarning: persons (or households, or devices) may have several rows" in said
    assert "repeated values of patient: without --unit patient the guarantee is for one row" in said
    assert main([*fit, "--drop", "patient"]) == 0
    assert "PrivacyLeakWarning" not in capsys.readouterr().err


def test_columns_of_persons_are_known_as_texts_whole_numbers_and_such_that_may_be_missing():
    numbers, texts = np.repeat(np.arange(300), 2), [f"p{i}" for i in np.repeat(np.arange(300), 2)]
    frame = pd.DataFrame({"pid": numbers, "patient": texts, "person_id": np.where(numbers == 7, np.nan, numbers)})
    frame["customer_id"] = numbers + 0.5  # no identifiers
    assert likely_units(frame) == ["pid", "patient", "person_id"]


def test_copies_of_columns_are_known_and_columns_of_lists_are_none():
    frame = pd.DataFrame({"a": [*"xyz"], "b": [[1], [2], [3]]})
    assert copies(frame) == []
    assert copies(frame.assign(again=frame["a"])) == [("a", "again")]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_two_files_refer_to_each_other_and_are_on_the_card(visits, suffix, capsys):
    files = f"--units-output u.{suffix} --output rows.{suffix} --card card.json --save-model m.safetensors"
    _run(f"{FIT} --unit-columns sex --units 50 {files}")
    assert "their synthetic units written to" in capsys.readouterr().out
    read = pd.read_csv if suffix == "csv" else pd.read_parquet
    units, rows = read(f"u.{suffix}"), read(f"rows.{suffix}")
    assert list(units) == ["patient", "sex"]
    assert list(rows) == ["patient", "day", "ward"]
    assert units["patient"].tolist() == list(range(50))
    assert set(rows["patient"]) == set(range(50))
    assert rows.groupby("patient").size().max() <= 3
    assert set(PrivacyCard.load("card.json")["files"]) == {"synthetic", "units", "model"}
    _run(f"verify card.json --data rows.{suffix} --units u.{suffix} --model m.safetensors")
    assert "the table of synthetic units" in capsys.readouterr().out
    said = refused(capsys, "verify", "card.json", "--data", f"u.{suffix}")
    assert "the card was written with; it is the table of synthetic units: check it by --units: its digest is" in said
    _run("card card.json --html card.html")
    page = Path("card.html").read_text(encoding="utf-8")
    assert "skdpgen verify card.json --data ROWS --units UNITS --model MODEL" in page
    assert "the table of synthetic units" in page
    _run(f"sample m.safetensors --units 7 --seed 1 --output one.{suffix}")
    one = read(f"one.{suffix}")
    assert list(one) == ["patient", "day", "sex", "ward"]
    assert one["patient"].nunique() == 7
    _run(f"sample m.safetensors --units 7 --seed 1 --units-output p.{suffix} --output two.{suffix}")
    joined = read(f"two.{suffix}").merge(read(f"p.{suffix}"), on="patient")[list(one)]
    pd.testing.assert_frame_equal(joined, one)
    # without a number, as many units as were released
    _run(f"sample m.safetensors --units-output p.{suffix} --output two.{suffix}")
    assert len(read(f"p.{suffix}")) == pytest.approx(400, abs=40)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_report_joins_the_columns_of_units_to_their_rows(visits, suffix, capsys):
    _run(f"{FIT} --unit-columns sex --output whole.{suffix} --save-model m.safetensors")
    _run(f"sample m.safetensors --units 300 --seed 1 --units-output u.{suffix} --output rows.{suffix}")
    _run(f"sample m.safetensors --units 300 --seed 1 --output whole.{suffix}")
    capsys.readouterr()
    compared, figures = "--unit patient --quiet", []
    for files in (f"whole.{suffix}", f"rows.{suffix} --units u.{suffix}"):
        _run(f"report visits.csv {files} {compared}")
        figures.append(capsys.readouterr().out)
    assert figures[0] == figures[1]
    assert "unit_similarity_difference" in figures[0]
    said = refused(capsys, *f"report visits.csv rows.{suffix} {compared}".split())
    assert "only visits.csv has the columns sex; to compare the others, give --drop sex" in said
    assert "that synthesize --units-output wrote apart: give that file as --units" in said
    assert "needs --unit" in refused(capsys, *f"report visits.csv rows.{suffix} --units u.{suffix}".split())
    assert "has the columns sex of" in refused(
        capsys, *f"report visits.csv whole.{suffix} {compared} --units u.{suffix}".split()
    )
    said = refused(capsys, *f"report visits.csv rows.{suffix} {compared} --units rows.{suffix}".split())
    assert "has the columns day, ward of" in said


@pytest.mark.parametrize(
    "options",
    ["", "--unit-columns sex", "--unit-columns sex,day --unit-shared ward", "--constraint combinations(sex,ward)"],
)
def test_the_plan_of_budget_is_what_the_fit_with_the_same_options_charges(visits, capsys, options):
    columns = [Numeric("day", (0, 300), integer=True), Categorical("sex"), Categorical("ward", ("ears", "eyes"))]
    Schema(columns).save("s.json")
    given = f"--model moment --epsilon 8 --schema s.json --unit patient --max-rows-per-unit 3 {options}".split()
    plans = []
    for data in (["visits.csv"], []):  # of a file, and of the schema alone
        assert main(["budget", *data, *given, "--rows", "400", "--json"]) == 0
        phases = json.loads(capsys.readouterr().out)["phases"]
        plans.append({phase["phase"]: (phase["noise_multiplier"], phase["share"]) for phase in phases})
    assert main(["synthesize", "visits.csv", *given, "--output", "o.csv", "--card", "c.json"]) == 0
    ledger = PrivacyCard.load("c.json").accountant().report()
    ledger = ledger[ledger["noise_multiplier"].notna()]  # learned categories have a threshold too
    charged = {row.release: (row.noise_multiplier, row.share) for row in ledger.itertuples()}
    assert list(plans[0]) == list(plans[1]) == list(charged)
    for name in charged:
        assert plans[0][name] == plans[1][name] == pytest.approx(charged[name], rel=1e-3), name
    assert ("unit_pairs" in charged) == ("shared" in options)
    assert (plans[0]["units"][1] > 0.05) == ("columns" in options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ("visits.csv --unit-shared ward", "need --unit, the column of identifiers"),
        ("visits.csv --unit patient --unit-columns town", "--unit-columns: no column 'town'"),
        ("--columns 3 --constraint a<=b", "leave them out with --columns"),
    ],
)
def test_budget_refuses_columns_that_are_not_there(visits, capsys, options, match):
    assert match in refused(capsys, "budget", *options.split())


def test_units_without_columns_have_their_numbers_of_rows(visits):
    _run(f"{FIT} --units 30 --output rows.csv")
    rows = pd.read_csv("rows.csv")
    assert list(rows) == ["patient", "day", "sex", "ward"]
    assert rows["patient"].nunique() == 30
    _run(f"{FIT} --output rows.csv")
    assert "patient" not in pd.read_csv("rows.csv")


def test_rows_of_synthetic_units_are_alike_in_shared_columns(visits):
    frame = pd.read_csv("visits.csv")
    frame["ward"] = np.random.default_rng(1).choice(["ears", "eyes"], 400)[frame["patient"].str[1:].astype(int)]
    frame.to_csv("visits.csv", index=False)
    alike = {}
    for name, options in (("shared", "--unit-shared ward"), ("independent", "")):
        _run(f"{FIT} --units 300 --output rows.csv {options}")
        rows = pd.read_csv("rows.csv").groupby("patient")["ward"]
        alike[name] = (rows.nunique()[rows.size() > 1] == 1).mean()
    assert alike["shared"] > 0.8 > 0.6 > alike["independent"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ("--units 3 --rows 5", "--rows is for samples of rows"),
        ("--units 0", "--units must be positive"),
        ("--units-output u.csv", "--units-output needs --unit-columns"),
        ("--unit-columns nowhere", "--unit-columns: no column 'nowhere'"),
        ("--unit-shared nowhere", "--unit-shared: no column 'nowhere'"),
        ("--unit-columns ward --unit-shared ward", "'ward', which columns= names too"),
        ("--unit-columns sex --units-output rows.csv", "is named by two options"),
        ("--unit-columns sex --units-output u.xlsx", "written as CSV or Parquet"),
        ("--units 3 --model p3gm --set prior=mixture", "without prior"),
        ("--set unit__columns=['sex']", "takes no unit here"),
    ],
)
def test_contradictions_are_refused_before_the_charge(visits, options, match, capsys):
    said = refused(capsys, *f"{FIT} --ledger b.db --output rows.csv {options}".split())
    assert match in said
    assert not Path("b.db").exists()


@pytest.mark.parametrize("options", ["--unit-columns sex", "--unit-shared ward", "--units 3", "--units-output u.csv"])
def test_units_need_the_column_of_identifiers(visits, options, capsys):
    fit = FIT.partition(" --unit ")[0]
    assert "need --unit" in refused(capsys, *f"{fit} --output rows.csv {options}".split())


def test_a_model_of_rows_has_no_units(visits, capsys):
    _run(f"{FIT.partition(' --unit ')[0]} --drop patient --output rows.csv --save-model m.safetensors")
    capsys.readouterr()
    assert "need a model that was fitted" in refused(
        capsys, *["sample", "m.safetensors", "--units", "3", "--output", "x.csv"]
    )


def test_rows_without_an_identifier_are_separate_units_if_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"pid": ["a", "b", None, "a"] * 30, "x": range(120)}).to_csv("visits.csv", index=False)
    command = "synthesize visits.csv --unit pid --max-rows-per-unit 2 --epsilon 5 --kinds-from-values --rows 5"
    fit = command.split()
    assert main([*fit, "--missing-unit", "own", "--output", "out.csv", "--card", "card.json"]) == 0
    assert "each is taken for another unit" in Path("card.json").read_text(encoding="utf-8")
    assert main([*fit, "--output", "other.csv"]) == 2
    assert "--missing-unit own" in capsys.readouterr().err
    assert main(["synthesize", "visits.csv", "--missing-unit", "own", "--output", "other.csv"]) == 2


@pytest.mark.parametrize(
    "column",
    [
        Numeric("pid", missing=True),
        Categorical("pid", missing=True, dtype="Int64"),
        Categorical("pid", categories=(1, 2), other=0),
    ],
    ids=["number", "code", "declared"],
)
def test_an_identifier_that_cannot_be_read_does_not_become_a_unit_for_each_row(tmp_path, monkeypatch, capsys, column):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"pid": ["1", "2", "", "A7"] * 30, "x": range(120)}).to_csv("visits.csv", index=False)
    Schema([column, Numeric("x", bounds=(0, 200))]).save("schema.json")
    command = "synthesize visits.csv --schema schema.json --unit pid --max-rows-per-unit 2 --missing-unit own"
    said = refused(capsys, *command.split(), *["--epsilon", "5", "--ledger", "b.db", "--output", "out.csv"])
    assert "not all identifiers can be read as such" in said
    assert "A7" not in said
    assert not Path("b.db").exists()
