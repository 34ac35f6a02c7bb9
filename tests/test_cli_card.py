"""The card on the command line: `verify --data --model`, `card`, `card --html`, and `ledger`."""

from __future__ import annotations

import json
from pathlib import Path

import _command_line
import pytest
from _command_line import refused

from skdpgen import PrivacyCard
from skdpgen.__main__ import main

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
table = _command_line.table
COMMAND = "synthesize table.csv --kinds-from-values --model moment --epsilon 4 --target ill --rows 30 --output out.csv"
COMMAND = [*COMMAND.split(), "--card", "card.json", "--save-model", "model.safetensors"]


# ---- files ---------------------------------------------------------------------------------------------------------
def test_verify_finds_rows_or_a_model_that_are_not_those_of_the_card(table, capsys):
    assert main([*COMMAND]) == 0
    capsys.readouterr()
    files = ("--data", "out.csv", "--model", "model.safetensors")
    assert main(["verify", "card.json", *files]) == 0
    out = capsys.readouterr().out
    assert "file     out.csv: the synthetic rows that the card was written with" in out
    assert "file     model.safetensors: the model that the card was written with" in out
    for option, name, kind in (("--data", "out.csv", "synthetic rows"), ("--model", "model.safetensors", "model")):
        Path(name).write_bytes(Path(name).read_bytes() + b"\n")
        line = refused(capsys, "verify", "card.json", option, name)
        assert f"{name}: not the {kind} that the card was written with" in line
    assert "give CARD.json too" in refused(capsys, "verify", "--data", "out.csv", "--ledger", "none.db")
    PrivacyCard.load("card.json").with_files().save("again.json")
    content = json.loads(Path("card.json").read_text())
    assert set(content["files"]) == {"synthetic", "model"}


def test_a_card_of_rows_that_went_to_a_device_states_no_digest_of_them(table, capsys):
    assert main([*COMMAND, "--output", "/dev/null"]) == 0
    capsys.readouterr()
    assert set(PrivacyCard.load("card.json")["files"]) == {"model"}
    assert "cannot be checked" in refused(capsys, "verify", "card.json", "--data", "table.csv")
