"""`skdpgen sample --refits`: samples of a model and of its refits, for standard errors in any software."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import MomentSynthesizer, PrivacyUnit, Schema
from skdpgen.__main__ import main
from skdpgen.tabular import Categorical, Numeric


def _words(command):
    return command.split()


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 80, 1500), "sex": rng.choice(["f", "m"], 1500)})
    schema = Schema([Numeric("age", (18, 80), integer=True), Categorical("sex", ("f", "m"))])
    MomentSynthesizer(2.0, schema=schema).fit(frame).save("m.safetensors")


def test_samples_of_refits_are_written_with_the_number_of_the_refit(model, capsys):
    assert main(_words("sample m.safetensors --refits 3 --rows 4000 --seed 1 --output refits.csv")) == 0
    assert "16000 synthetic rows of 4 models written to refits.csv" in capsys.readouterr().out
    rows = pd.read_csv("refits.csv")
    assert list(rows.columns) == ["refit", "age", "sex"]
    assert rows["refit"].value_counts().to_dict() == {0: 4000, 1: 4000, 2: 4000, 3: 4000}
    means = rows.groupby("refit")["age"].mean()
    assert abs(means - 48.5).max() < 4
    assert means.nunique() == 4


def test_samples_of_refits_have_the_notation_of_a_sample(model):
    assert main(_words("sample m.safetensors --refits 2 --rows 20 --separator ; --output refits.csv")) == 0
    with open("refits.csv") as file:
        assert file.readline() == "refit;age;sex\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--refits 1", "--refits must be at least 2; got 1"),
        ("--refits 2 --given sex=f", "--given has no effect on --refits"),
        ("--refits 2 --rows 0", "--rows must be positive; got 0"),
        ("--rows -3", "--rows must be positive; got -3"),
        ("--refits 2 --units 5", "need a model that was fitted to a table with --unit"),
        ("--refits 2 --order-by age --units 5", "--order-by has no effect on --refits"),
        ("--refits 2 --card c.json", "--card has no effect on --refits"),
    ],
)
def test_options_without_effect_on_refits_are_refused(model, capsys, options, said):
    assert said in refused(capsys, "sample", "m.safetensors", *options.split(), "--output", "out.csv")


def test_refits_of_units_have_their_identifiers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(900), rng.integers(1, 4, 900))
    frame = pd.DataFrame({"person": person, "x": rng.random(len(person))})
    synth = MomentSynthesizer(4.0, schema=Schema([Numeric("x", (0, 1))]), unit=PrivacyUnit("person", 3)).fit(frame)
    synth.save("m.safetensors")
    for option in ("--rows", "--units"):
        assert main(_words(f"sample m.safetensors --refits 2 {option} 500 --output refits.csv")) == 0
        rows = pd.read_csv("refits.csv")
        assert list(rows.columns) == ["refit", "person", "x"]
        assert rows.groupby("refit")["person"].nunique().to_dict() == {0: 500, 1: 500, 2: 500}


def test_a_table_with_such_a_column_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"refit": np.random.default_rng(0).random(800)})
    MomentSynthesizer(4.0, schema=Schema([Numeric("refit", (0, 1))])).fit(frame).save("m.safetensors")
    said = refused(capsys, "sample", "m.safetensors", "--refits", "2", "--output", "out.csv")
    assert "--refits writes a column 'refit', and the table has one" in said
