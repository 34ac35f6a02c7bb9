"""The schema stores how a file is written: the commands that take it need no options of notation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import Schema, load
from skdpgen.__main__ import main
from skdpgen.exceptions import SchemaError
from skdpgen.tabular import Datetime, Identifier, Numeric

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]
RNG = np.random.default_rng(0)
DECLARED = {"separator": ";", "decimal": ",", "missing": ["NA"]}
FIT = ["synthesize", "semi.csv", "--schema", "s.json", "--epsilon", "8", "--output", "out.csv"]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(
        {
            "crp": np.where(RNG.random(600) < 0.3, np.nan, RNG.gamma(2, 5, 600).round(1)),
            "sex": RNG.choice(["f", "m"], 600),
        }
    )
    frame.to_csv("semi.csv", sep=";", decimal=",", na_rep="NA", index=False)
    how = ["--separator", ";", "--decimal", ",", "--missing", "NA"]
    assert main(["schema", "semi.csv", *how, "--output", "s.json"]) == 0


def test_no_options_are_needed_and_synthetic_rows_are_written_in_the_same_way(capsys):
    assert Schema.load("s.json").notation == DECLARED
    assert main([*FIT, "--save-model", "m.safetensors"]) == 0
    assert "more rows in this notation" not in capsys.readouterr().err
    assert main(["report", "semi.csv", "out.csv", "--schema", "s.json", "--output", "r.html"]) == 0
    assert main(["budget", "semi.csv", "--schema", "s.json"]) == 0
    assert main(["sample", "m.safetensors", "--rows", "300", "--output", "more.csv"]) == 0
    for name in ("out.csv", "more.csv"):
        text = Path(name).read_text()
        assert text.startswith("crp;sex\n")
        assert "NA;" in text
        assert "." not in text
    assert main(["sample", "m.safetensors", "--rows", "3", "--output", "more.parquet"]) == 0
    assert load("m.safetensors").schema_.notation == DECLARED


def test_options_decide(capsys):
    pd.read_csv("semi.csv", sep=";", decimal=",").to_csv("plain.csv", index=False, na_rep="?")
    how = ["--separator", ",", "--decimal", ".", "--missing", "?"]
    fit = ["synthesize", "plain.csv", *FIT[2:]]
    assert main([*fit, *how, "--save-model", "m.safetensors"]) == 0
    said = capsys.readouterr().err
    assert (
        "the schema declares another notation; used is that of the options: --separator, --decimal, --missing" in said
    )
    assert Path("out.csv").read_text().startswith("crp,sex\n")
    assert load("m.safetensors").schema_.notation == {"separator": ",", "missing": ["?"]}
    assert main(["report", "plain.csv", "out.csv", *how, "--schema", "s.json", "--output", "r.html"]) == 0
    assert main(["sample", "m.safetensors", "--separator", ";", "--missing", "", "--output", "more.csv"]) == 0
    text = Path("more.csv").read_text()
    assert text.startswith("crp;sex\n")
    assert "?" not in text


def test_contradictions_are_refused_with_what_the_schema_declares(capsys):
    said = refused(capsys, *FIT, "--thousands", ",")
    assert "not the decimal mark; got ','; the schema declares separator ';', decimal ',', missing ['NA']" in said
    said = refused(capsys, "synthesize", "plain.csv", *FIT[2:])
    assert "no such file" in said
    pd.read_csv("semi.csv", sep=";", decimal=",").to_csv("plain.csv", index=False)
    assert "give --separator ','" in refused(capsys, "synthesize", "plain.csv", *FIT[2:])


def test_parquet_and_tabs_do_not_have_it(capsys):
    frame = pd.read_csv("semi.csv", sep=";", decimal=",")
    frame.to_parquet("rows.parquet", index=False)
    assert main(["synthesize", "rows.parquet", *FIT[2:-1], "out.tsv"]) == 0
    assert Path("out.tsv").read_text().startswith("crp\tsex\n")
    assert main(["report", "rows.parquet", "out.tsv", "--schema", "s.json", "--output", "r.html"]) == 0


def test_schemas_of_earlier_versions_load_and_others_are_refused():
    content = json.loads(Path("s.json").read_text())
    del content["notation"]
    old = Schema.from_dict(content)
    assert old.notation is None
    assert "notation" not in old.to_dict()
    for notation, said in [
        ({"decimals": ","}, "unknown entries 'decimals'; it takes separator, decimal"),
        ({"decimal": 5}, "'decimal' must be a text"),
        ({"missing": "NA"}, "'missing' must be a list of texts"),
        ({"skip_lines": True}, "'skip_lines' must be a whole number"),
        ([], "notation is a dict"),
    ]:
        with pytest.raises(SchemaError, match=said):
            Schema.from_dict(content | {"notation": notation})
    assert Schema.from_dict(content | {"notation": {}}) == old


def test_a_schema_keeps_it():
    columns = [Identifier("id"), Numeric("a", (0, 9), missing=True), Datetime("b", missing=True)]
    schema = Schema(columns, ["a >= 1"], notation=DECLARED)
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert hash(again) == hash(schema)
    frame = pd.DataFrame({"id": [1], "a": [1.0], "b": [pd.NaT], "c": ["x"]})
    changed = [
        schema.select(["a"]),
        schema.constrain("a <= 8"),
        schema.replace(Numeric("a")),
        schema.declare("a", bounds=(0, 5)),
        Schema.from_kinds(frame, schema),
        replace(schema, constraints=()),
    ]
    assert all(one.notation == DECLARED for one in changed)
