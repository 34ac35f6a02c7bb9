"""What a refused or warned fit leaves behind on the command line: no ledger, no lost results."""

from __future__ import annotations

import warnings
from pathlib import Path

import _command_line
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import PrivacyAccountant, Schema
from skdpgen.__main__ import main
from skdpgen.exceptions import UtilityWarning

pytestmark = pytest.mark.usefixtures("short_fits")

table = _command_line.table
FIT = "synthesize table.csv --model moment --kinds-from-values --output out.csv --epsilon 1 --ledger budget.db"


@pytest.mark.parametrize(
    "options",
    ["--target nobody", "--constraint pay==age*age+1", "--budget .5", "--set importance={'nobody':2}"],
)
def test_a_refused_fit_leaves_no_new_ledger(table, capsys, options):
    refused(capsys, *FIT.split(), *options.split())
    assert not Path("budget.db").exists()


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_fit_with_a_new_ledger_is_charged_once(table):
    assert main(FIT.split()) == 0
    assert len(PrivacyAccountant(ledger="budget.db").charges) == 1


def test_a_warning_that_is_an_error_loses_no_result_of_a_complete_fit(table, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        assert main([*FIT.replace("1 --ledger", ".1 --ledger").split(), "--card", "card.json"]) == 2
    said = capsys.readouterr().err
    assert "failed" not in said
    assert "UtilityWarning, and warnings are errors here; the fit is complete, and its results are written" in said
    assert len(pd.read_csv("out.csv"))
    assert Path("card.json").exists()


def test_a_warning_before_the_charge_that_is_an_error_charges_nothing(table, capsys):
    frame = pd.read_csv("table.csv").assign(visit_id=range(300))
    frame.to_csv("table.csv", index=False)
    PrivacyAccountant(1.0, ledger="budget.db")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        assert "nothing was charged" in refused(capsys, *FIT.split())
    assert not PrivacyAccountant(ledger="budget.db").charges
    assert not Path("out.csv").exists()


def test_a_schema_with_an_equality_that_no_row_would_satisfy_is_refused(table, capsys):
    assert main(["schema", "table.csv", "--output", "s.json"]) == 0
    Schema.load("s.json").constrain("pay == age * age + 1").save("s.json")
    capsys.readouterr()
    said = refused(capsys, *FIT.replace(" --kinds-from-values", "").split(), "--schema", "s.json")
    assert "cannot be constructed" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("synthesize a.csv --epsilom 1 --output b.csv", "--epsilom 1; did you mean --epsilon?; usage: skdpgen synth"),
        (
            "sample m.safetensors --output b.csv --sede 3",
            "--sede 3; did you mean --seed?; usage: skdpgen sample --help",
        ),
        ("card c.json other", "unrecognized arguments: other; usage: skdpgen card --help"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_one_of_its_command(capsys, options, said):
    with pytest.raises(SystemExit) as ended:
        main(options.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
