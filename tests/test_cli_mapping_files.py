"""`skdpgen schema --constraint` reads the mapping of a constraint from a public file."""

from __future__ import annotations

import pandas as pd
import pytest
from _command_line import refused

from skdpgen import Schema
from skdpgen.__main__ import main

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

REGIONS = "postcode;town;region\n01067;Dresden;Saxony\n01067;Dresden;Saxony\n\n20095;Hamburg;North\n80331;München;\n"
CONSTRAINT = "region == {regions.csv}[postcode]"


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"postcode": ["01067", "20095", "80331"] * 400, "age": [20, 40, 60] * 400})
    frame["region"] = frame["postcode"].map({"01067": "Saxony", "20095": "North"})
    frame["tax"] = frame["postcode"].map({"01067": 1, "20095": 2, "80331": 2})
    frame["rate"] = frame["tax"] / 2
    frame.to_csv("rows.csv", index=False, sep=";")
    (tmp_path / "regions.csv").write_text(REGIONS, encoding="utf-8")
    return tmp_path


def _schema(*options):
    return ["schema", "rows.csv", "--separator", ";", "--no-questions", "--output", "s.json", *options]


def test_the_schema_has_the_mapping_and_synthetic_rows_follow_it(capsys):
    assert main(_schema("--constraint", CONSTRAINT)) == 0
    pairs = "{'01067': 'Saxony', '20095': 'North', '80331': None}"
    assert Schema.load("s.json").constraints == (f"region == {pairs}[postcode]",)
    fit = ["synthesize", "rows.csv", "--schema", "s.json", "--epsilon", "8", "--output", "out.csv"]
    assert main(fit) == 0
    rows = pd.read_csv("out.csv", sep=";", dtype=str)
    known = rows[rows["region"].notna()]  # the noise makes a region missing in a few rows, which satisfies it too
    assert len(known) > 700
    assert (known["region"] == known["postcode"].map({"01067": "Saxony", "20095": "North"})).all()
    capsys.readouterr()


def test_values_have_the_kinds_of_their_columns(table, capsys):
    (table / "taxes.csv").write_text("tax;postcode;rate\n1;01067;0.5\n2;20095;1\n2;80331;1\n")
    options = ["--constraint", "tax == {taxes.csv}[postcode]", "--constraint", "rate == { taxes.csv }[tax]"]
    assert main(_schema(*options)) == 0
    assert Schema.load("s.json").constraints == (
        "tax == {'01067': 1, '20095': 2, '80331': 2}[postcode]",
        "rate == {1: 0.5, 2: 1}[tax]",
    )
    capsys.readouterr()


def test_codes_that_a_column_does_not_declare_are_left_out(capsys):
    assert main(_schema("--categories", "postcode=01067,20095", "--constraint", CONSTRAINT)) == 0
    assert Schema.load("s.json").constraints == ("region == {'01067': 'Saxony', '20095': 'North'}[postcode]",)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("content", "constraint", "said"),
    [
        (None, CONSTRAINT, "No such file"),
        ("postcode;town\n01067;Dresden\n", CONSTRAINT, "it lacks region"),
        ("postcode,region\n01067,Saxony\n", CONSTRAINT, "with the separator ';'"),
        ("postcode;region\n", CONSTRAINT, "maps no value"),
        ("postcode;region\n;Saxony\n", CONSTRAINT, "line 2 has no postcode"),
        ("postcode;region\n01067\n", CONSTRAINT, "line 2 has 1 fields"),
        ("postcode;region\n1;a\n1;b\n", CONSTRAINT, "lines 2 and 3 map '1' to two values"),
        ("postcode;tax\n1;many\n", "tax == {regions.csv}[postcode]", "'many', which is no number"),
        ("postcode;region\n1;a\n", "region == {regions.csv}[place]", "'place', which is no column"),
        ("postcode;region\n1;a\n", "region in {regions.csv}", "a file stands for a mapping"),
    ],
)
def test_files_that_are_no_mapping_are_refused(table, capsys, content, constraint, said):
    (table / "regions.csv").unlink()
    if content is not None:
        (table / "regions.csv").write_text(content)
    assert said in refused(capsys, *_schema("--constraint", constraint))
    assert not (table / "s.json").exists()


def test_a_fit_points_to_the_schema(capsys):
    for command in (["synthesize", "rows.csv", "--output", "out.csv"], ["budget", "rows.csv"]):
        said = refused(capsys, *command, "--separator", ";", "--constraint", CONSTRAINT)
        assert "the schema has the mapping of a file: skdpgen schema" in said


def test_a_constraint_without_a_file_goes_into_the_schema_and_is_checked(capsys):
    assert main(_schema("--constraint", "tax <= age")) == 0
    assert Schema.load("s.json").constraints == ("tax <= age",)
    capsys.readouterr()
    assert main(_schema("--constraint", "tax <= rate", "--id", "age", "--drop", "region")) == 0
    capsys.readouterr()
    assert "'age', an identifier" in refused(capsys, *_schema("--constraint", "tax <= age", "--id", "age"))
    assert "names 'size'" in refused(capsys, *_schema("--constraint", "size <= age"))
    assert "compares values of different kinds" in refused(capsys, *_schema("--constraint", "region <= age"))
