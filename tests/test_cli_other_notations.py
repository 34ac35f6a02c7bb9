"""A file that is read in the wrong notation is refused before the charge, in the words of the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import Schema
from skdpgen.__main__ import main
from skdpgen.data.notation import Notation
from skdpgen.data.table_reading import read_table
from skdpgen.tabular import Categorical, Numeric
from skdpgen.tabular._formats import dates_as_text, form_of_strptime, is_date_format

pytestmark = pytest.mark.usefixtures("short_fits")

RNG = np.random.default_rng(0)
FIT = ["synthesize", "semi.csv", "--separator", ";", "--output", "out.csv"]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(
        {
            "crp": np.where(RNG.random(400) < 0.2, np.nan, RNG.gamma(2, 5, 400).round(1)),
            "weight": RNG.normal(75, 12, 400).round(1),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 300, 400), unit="D"),
            "pair": RNG.choice(["01,02", "03,04"], 400),
        }
    )
    frame.to_csv("semi.csv", sep=";", decimal=",", na_rep="n.b.", date_format="%d.%m.%Y", index=False)


@pytest.mark.filterwarnings("ignore:read as text")
def test_a_fit_of_a_file_in_another_notation_is_refused_and_charges_nothing(capsys):
    said = refused(capsys, *FIT, "--kinds-from-values", "--ledger", "budget.db")
    assert "give --decimal , and --missing TEXT, for each text of a missing value, for 'crp';" in said
    assert "give --decimal , for 'weight';" in said
    assert "give --dates %d.%m.%Y for 'seen'" in said
    assert "first TEXT of --missing" in said
    assert "'pair'" not in said  # codes
    assert "n.b." not in said
    assert "--categorical crp,weight,seen" in said
    assert "--drop crp,weight,seen" in said
    assert said.endswith("nothing was charged")
    assert not Path("budget.db").exists()
    assert not Path("out.csv").exists()


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.filterwarnings("ignore:read as text")  # the codes
def test_each_way_out_is_one(capsys):
    read = ["--decimal", ",", "--missing", "n.b.", "--dates", "%d.%m.%Y"]
    assert main([*FIT, "--kinds-from-values", *read, "--epsilon", "8"]) == 0
    assert main([*FIT, "--kinds-from-values", "--drop", "crp,weight,seen"]) == 0
    capsys.readouterr()
    schema = ["schema", "semi.csv", "--separator", ";", "--output", "s.json"]
    assert "give --decimal , for 'weight';" in refused(capsys, *schema)
    assert main([*schema, "--categorical", "crp,weight,seen"]) == 0
    capsys.readouterr()
    assert isinstance(Schema.load("s.json")["weight"], Categorical)
    assert main([*FIT, "--schema", "s.json"]) == 0


def test_declared_numbers_most_of_which_would_become_missing_are_refused(capsys):
    frame = pd.read_csv("semi.csv", sep=";", dtype=str)
    frame.loc[::3, "weight"] = "70"
    frame.to_csv("semi.csv", sep=";", index=False)
    Schema([Numeric("weight", missing=True)]).save("s.json")
    said = refused(capsys, *FIT, "--schema", "s.json", "--only-schema-columns")
    assert "many of its values are in another notation: give --decimal ," in said
    frame["weight"] = ["70", "7,5", *(str(k) for k in range(398))]
    frame.to_csv("semi.csv", sep=";", index=False)  # of one value among others it cannot be said
    left_out = ["crp", "seen", "pair"]
    with pytest.warns(UserWarning, match="taken for missing: 'weight'"):
        read_table("semi.csv", Notation(separator=";"), schema=Schema.load("s.json"), left_out=left_out)


@pytest.mark.parametrize(
    ("form", "option"),
    [(form, f"'{form}'" if " " in form else form) for form in ("%d%b%Y", "%d-%b-%y", "%d %B %Y", "%d%b%Y:%H:%M:%S")],
)
def test_dates_with_names_of_months_are_named(capsys, form, option):
    days = pd.date_range("2023-01-01", "2023-12-31", freq="11h").strftime(form).str.upper()
    pd.DataFrame({"day": days, "code": "12MAR"}).to_csv("named.csv", index=False)
    capitals = option.replace("%b", "%^b").replace("%B", "%^B")
    capitals = capitals if capitals.startswith("'") else f"'{capitals}'"
    assert f"give --dates {capitals} for 'day'" in refused(capsys, "schema", "named.csv")
    pd.DataFrame({"day": days.str.title(), "code": "12MAR"}).to_csv("named.csv", index=False)
    assert f"give --dates {option} for 'day'" in refused(capsys, "schema", "named.csv")
    assert main(["schema", "named.csv", "--dates", form, "--output", "s.json"]) == 0
    assert Schema.load("s.json")["day"].format == form


@pytest.mark.parametrize("form", ["%d%^b%Y", "%^A, %d %^B %Y", "%d-%^b-%y %I:%M %^p"])
def test_names_of_months_in_capitals_are_written_in_capitals(form):
    days = pd.Series(pd.date_range("2023-01-01", "2023-12-31", freq="11h"))
    days = days.dt.strftime(form.replace("%^", "%")).str.upper()
    frame = pd.DataFrame({"day": days.mask(days.index == 3), "x": range(len(days))})
    frame.to_csv("sas.csv", index=False)
    assert main(["schema", "sas.csv", "--dates", form, "--output", "s.json"]) == 0
    fit = ["synthesize", "sas.csv", "--schema", "s.json", "--epsilon", "8", "--output", "out.csv"]
    assert main([*fit, "--save-model", "m.safetensors"]) == 0
    assert main(["sample", "m.safetensors", "--rows", "50", "--output", "more.csv"]) == 0
    for name in ("out.csv", "more.csv"):
        written = pd.read_csv(name, dtype=str)["day"].dropna()
        read = pd.to_datetime(written, format=form_of_strptime(form))
        assert (read.dt.year == 2023).mean() > 0.9
        assert written.equals(dates_as_text(read, form))
        assert (written == written.str.upper()).all()


def test_marks_of_capitals_are_those_of_names_alone():
    assert not is_date_format("%^d%b%Y")
    assert not is_date_format("%d%^m%^Y")
    assert is_date_format("%d%^b%Y")
    assert dates_as_text(pd.Series(pd.to_datetime(["2023-06-24"])), "%%^b %^b %b%%").tolist() == ["%^b JUN Jun%"]
    assert dates_as_text(pd.Series(pd.to_datetime([None, None])), "%d%^b%Y").isna().all()
    days = pd.Series(pd.PeriodIndex(["2023-06-24"], freq="D"))
    assert dates_as_text(days, "%d%^b%Y").tolist() == ["24JUN2023"]


@pytest.mark.full_fits
def test_results_beyond_a_limit_and_units_are_numbers(capsys):
    crp = np.round(RNG.gamma(1, 12, 600), 1)
    texts = pd.Series(crp).astype(str).where(crp >= 5, "<5")
    frame = pd.DataFrame({"crp": texts, "hb": [f"{value:.1f} g/dL" for value in RNG.normal(13, 1.5, 600)]})
    frame.to_csv("lab.csv", index=False)
    said = refused(capsys, "schema", "lab.csv")
    assert "give --sign '<' for 'crp'; give --sign g/dL for 'hb'" in said
    assert main(["schema", "lab.csv", "--sign", "<", "--sign", "g/dL", "--output", "s.json"]) == 0
    Schema.load("s.json").declare("crp", bounds=(5, 200)).declare("hb", bounds=(0, 25)).save("s.json")
    fit = ["synthesize", "lab.csv", "--schema", "s.json", "--epsilon", "8", "--output", "out.csv"]
    assert main(fit) == 0
    rows = pd.read_csv("out.csv")
    assert (rows["crp"] == 5).mean() == pytest.approx((crp < 5).mean(), abs=0.05)
    assert rows["hb"].mean() == pytest.approx(13, abs=0.5)


def test_codes_with_letters_before_a_hyphen_are_not_said_to_be_numbers(recwarn):
    codes = [f"SKU-{number}" for number in RNG.choice(np.arange(1000, 1300), 400)]
    pd.DataFrame({"product": codes, "x": range(400)}).to_csv("codes.csv", index=False)
    read_table("codes.csv", Notation())
    assert not [warning for warning in recwarn if "product" in str(warning.message)]


def test_numbers_and_dates_beside_a_usual_mark_of_missing_values_are_refused(capsys):
    pay = [*map(str, range(200)), "NA"] * 2
    day = [*pd.date_range("2024-01-01", periods=200).strftime("%Y-%m-%d"), "NA"] * 2
    frame = pd.DataFrame(
        {"pay": pay, "day": day, "share": [*["0.5"] * 200, "."] * 2, "town": ["NA", "York", "Bath"] * 134}
    )
    frame.to_csv("marked.csv", index=False)
    said = refused(capsys, "schema", "marked.csv")
    assert "give --missing NA for 'pay', 'day'; give --missing . for 'share'" in said
    assert "town" not in said  # categories
    assert "first TEXT of --missing in all columns, and with --missing '' first empty fields" in said
    fit = ["synthesize", "marked.csv", "--kinds-from-values", "--output", "out.csv"]
    assert "give --missing NA" in refused(capsys, *fit)
    assert main(["schema", "marked.csv", "--missing", "NA", "--missing", ".", "--output", "s.json"]) == 0
    kinds = {column.name: type(column).__name__ for column in Schema.load("s.json").columns}
    assert kinds == {"pay": "Numeric", "day": "Datetime", "share": "Numeric", "town": "Categorical"}
    assert main(["schema", "marked.csv", "--categorical", "pay,day,share", "--output", "s.json"]) == 0


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_the_first_mark_is_written_in_all_columns():
    pay, bill = (
        pd.Series([str(k % 150) for k in range(400)]).mask(RNG.random(400) < 0.3, mark) for mark in ("k.A.", "")
    )
    frame = pd.DataFrame({"pay": pay, "bill": bill})
    frame.to_csv("marked.csv", index=False)
    fit = ["synthesize", "marked.csv", "--kinds-from-values", "--epsilon", "8", "--output", "out.csv"]
    for marks, written in ((["k.A."], "k.A."), (["", "k.A."], ""), (["k.A.", ""], "k.A.")):
        assert main([*fit, *(text for mark in marks for text in ("--missing", mark))]) == 0
        rows = pd.read_csv("out.csv", dtype=str, keep_default_na=False)
        assert all({text for text in rows[name] if not text[:1].isdigit()} == {written} for name in rows)
