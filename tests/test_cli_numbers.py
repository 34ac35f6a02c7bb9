"""What the command line says of noise, of a large epsilon and of none, and of what a fit lost."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from skdpgen import Schema, load
from skdpgen.__main__ import main
from skdpgen.data.table_writing import write_table
from skdpgen.tabular import Numeric

pytestmark = pytest.mark.usefixtures("short_fits")


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    towns = ["home", *(f"town {i}" for i in range(80))]
    frame = pd.DataFrame({"town": rng.choice(towns, 3000, p=[0.4, *[0.0075] * 80]), "age": rng.integers(0, 90, 3000)})
    frame.to_csv("table.csv", index=False)


def _synthesize(capsys, *options):
    command = ["synthesize", "table.csv", "--kinds-from-values", "--output", "out.csv", "--rows", "10", *options]
    assert main(command) == 0
    return capsys.readouterr()


@pytest.mark.full_fits
@pytest.mark.filterwarnings("default::skdpgen.exceptions.UtilityWarning")
def test_a_fit_prints_what_it_lost_on_stderr_and_that_its_ledger_saw_it_alone(table, capsys):
    out, err = _synthesize(capsys, "--epsilon", "1", "--card", "card.json", "--save-model", "m.safetensors")
    assert re.search(r"^skdpgen: UtilityWarning: .* \"other\" in much of 'town' \([56]\d%\)", err, re.MULTILINE)
    lines = [line.split() for line in err.splitlines()]
    header = next(at for at, words in enumerate(lines) if words[:2] == ["column", "kind"])
    assert " ".join(lines[header]).startswith("column kind bounds or categories drawn other missing error of a count")
    town = next(words for words in lines[header + 1 :] if words[0] == "town")
    assert town[1] == "category"
    assert int(town[2]) < 10  # of 81: the others are lost in the noise
    assert "town " not in out
    assert "this ledger saw this fit alone" in out
    assert "NOT PRIVATE" not in out
    assert main(["verify", "card.json"]) == 0
    assert "note     this ledger saw this fit alone" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_shared_ledger_says_nothing_of_fits_that_it_did_not_see(table, capsys):
    shared = ("--epsilon", "1", "--ledger", "budget.db")
    assert "saw this fit alone" in _synthesize(capsys, *shared, "--budget", "3").out
    assert "saw this fit alone" not in _synthesize(capsys, *shared).out


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_no_noise_and_a_large_epsilon_are_said_where_they_happen(table, capsys):
    out, _ = _synthesize(capsys, "--epsilon", "inf", "--card", "card.json")
    assert "NOT PRIVATE" in out
    assert main(["verify", "card.json"]) == 1
    assert "NOT PRIVATE" in capsys.readouterr().out
    out, _ = _synthesize(capsys, "--epsilon", "14")
    assert out.count("epsilon 14 is above 10") == 1
    for epsilon, said in (("inf", "NOT PRIVATE"), ("14", "epsilon 14 is above 10")):
        assert main(["budget", "table.csv", "--epsilon", epsilon]) == 0
        assert capsys.readouterr().out.count(said) == 1


def test_a_plan_in_json_has_the_figures_in_rows(table, capsys):
    assert main(["budget", "table.csv", "--rows", "3000", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    town = next(row for row in plan["counts"] if row["kind"] == "learned category")
    assert 150 < town["smallest_kept"] < 250
    assert plan["assumptions"][0] == "3000 rows"
    assert "rows_in_the_noise" not in plan["phases"][0]


@pytest.mark.parametrize(("step", "pattern"), [(1000, r"\d+000"), (0.5, r"\d+\.[05]")])
def test_numbers_with_a_whole_step_are_written_without_decimals(tmp_path, monkeypatch, step, pattern):
    monkeypatch.chdir(tmp_path)
    pay = np.random.default_rng(0).integers(20, 200, 800) * 1000
    pd.DataFrame({"pay": np.where(np.arange(800) % 5, pay, np.nan)}).to_csv("a.csv", index=False)
    Schema([Numeric("pay", (1000, 200_000), step=step, missing=True)]).save("s.json")
    fit = "synthesize a.csv --schema s.json --epsilon 8 --output out.csv --save-model m.safetensors"
    assert main(fit.split()) == 0
    assert main(["sample", "m.safetensors", "--output", "more.csv"]) == 0
    for name in ("out.csv", "more.csv"):
        texts = pd.read_csv(name, dtype=str)["pay"].dropna()
        assert texts.str.fullmatch(pattern).all()
    assert load("m.safetensors").sample(5)["pay"].dtype == "float64"  # in Python the schema gives the dtype


def test_chunks_of_whole_numbers_that_are_too_large_or_not_whole_are_written_as_they_are(tmp_path):
    frames = [pd.DataFrame({"x": [1.0, np.nan]}), pd.DataFrame({"x": [0.5, 2.0]}), pd.DataFrame({"x": [1e300]})]
    write_table(frames, tmp_path / "a.csv", whole=["x"])
    assert (tmp_path / "a.csv").read_text().split() == ["x", "1", '""', "0.5", "2.0", "1e+300"]
