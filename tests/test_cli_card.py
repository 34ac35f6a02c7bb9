"""The card on the command line: `verify --data --model`, `card`, `card --html`, and `ledger`."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sqlite3
from pathlib import Path

import _command_line
import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import MomentSynthesizer, PrivacyAccountant, PrivacyCard, Schema, load
from skdpgen.__main__ import main
from skdpgen.accounting import (
    Charge,
    _accountant,
    epsilon_pld,
    gaussian_event,
    non_private_event,
    poisson_gaussian_event,
)
from skdpgen.accounting._filter import Totals
from skdpgen.accounting._ledger_records import charge_record, parse
from skdpgen.tabular import Categorical
from skdpgen.utils import clock

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]
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


def test_the_card_and_its_page_name_the_data_set(table, capsys):
    text = "Patients <of> ward 3; one row is one patient"
    assert main([*COMMAND, "--dataset", text]) == 0
    assert PrivacyCard.load("card.json")["dataset"] == text == load("model.safetensors").card_["dataset"]
    capsys.readouterr()
    assert main(["card", "card.json"]) == 0
    assert f"The data, in the words of the publisher: {text}." in " ".join(capsys.readouterr().out.split())
    assert main(["card", "card.json", "--html", "card.html"]) == 0
    assert "Patients &lt;of&gt; ward 3; one row is one patient." in Path("card.html").read_text()
    assert main(["verify", "card.json"]) == 0


def test_a_description_without_a_card_or_of_several_lines_is_refused_before_the_charge(table, capsys):
    line = refused(capsys, *COMMAND, "--dataset", "a\nb", "--ledger", "b.db")
    assert "the description of a data set must be one line of 1 to 1,000 printable characters" in line
    line = refused(capsys, *COMMAND[:-4], "--dataset", "patients", "--ledger", "b.db")
    assert "--dataset is for the privacy card: give --card or --save-model too" in line
    assert not Path("b.db").exists()


def test_a_card_of_rows_that_went_to_a_device_states_no_digest_of_them(table, capsys):
    assert main([*COMMAND, "--output", "/dev/null"]) == 0
    capsys.readouterr()
    assert set(PrivacyCard.load("card.json")["files"]) == {"model"}
    assert "cannot be checked" in refused(capsys, "verify", "card.json", "--data", "table.csv")


# ---- ledgers -------------------------------------------------------------------------------------------------------
def charged(path, *labels, budget=3.0):
    books = PrivacyAccountant(budget, ledger=path)
    books.plan([Charge(label, gaussian_event(40.0 + k)) for k, label in enumerate(labels)])
    return books


def test_a_ledger_is_shown_fit_by_fit(capsys, tmp_path):
    path = tmp_path / "budget.db"
    books = PrivacyAccountant(3.0, ledger=path)
    books.charge(gaussian_event(8.0), "DPPCA: moments")
    books.charge(poisson_gaussian_event(0.01, 4.0, 50), "my training\x1b[2J")
    assert main(["ledger", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"spent epsilon {books.epsilon_spent():.4g} of 3 at delta 1e-05" in out
    assert f"left for one more fit: {books.remaining():.4g}" in out
    first, second = (line for line in out.splitlines() if line.endswith("charged"))
    alone = epsilon_pld(gaussian_event(8.0), 1e-5, "add_or_remove_one")
    assert first.split()[0] == "1"
    for text in (clock.today(), "DPPCA", "moments", f"{alone:.4g}"):
        assert text in first
    assert "my training\\u001b[2J" in second
    assert main(["ledger", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [fit["model"] for fit in found["fits"]] == ["DPPCA", "my training\\u001b[2J"]
    assert found["fits"][0]["epsilon_alone"] == pytest.approx(alone)
    assert sum(fit["share"] for fit in found["fits"]) == pytest.approx(1)
    assert (found["charges"], found["remaining"]) == (2, books.remaining())


def test_a_label_distinguishes_the_fits_of_one_ledger(table, capsys):
    one = [*COMMAND, "--ledger", "budget.db", "--budget", "9"]
    assert main([*one, "--label", "visits of 2023"]) == 0
    assert main([*one, "--label", "visits of 2024"]) == 0
    assert main(["verify", "card.json", "--ledger", "budget.db"]) == 0
    PrivacyCard.load("card.json").verify()
    capsys.readouterr()
    assert main(["ledger", "budget.db"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith("charged")]
    assert [line.split("(")[1].split(")")[0] for line in lines] == ["visits of 2023", "visits of 2024"]
    model = load("model.safetensors")
    assert model.accountant_.report()["label"].iloc[-1] == "MomentSynthesizer (visits of 2024)"
    assert model.card_["model"]["name"] == "MomentSynthesizer"
    for text in ("", "two\nlines", "a: b", "x" * 101):
        said = refused(capsys, *one, "--label", text)
        assert "label of an accountant must be one line of 1 to 100 printable characters without a colon" in said
    assert "give --ledger" in refused(capsys, *COMMAND, "--label", "visits")


def test_an_empty_ledger_and_one_without_a_limit_are_shown(capsys, tmp_path):
    for budget, left in ((3.0, 3.0), (math.inf, "inf")):
        path = str(tmp_path / f"{budget}.db")
        books = PrivacyAccountant(budget, ledger=path)
        assert main(["ledger", path]) == 0
        assert "no fit was charged yet" in capsys.readouterr().out
        assert main(["ledger", path, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["fits"], found["remaining"]) == ([], left)
    books.charge(non_private_event(), "look")
    assert main(["ledger", path]) == 0
    assert "NOT PRIVATE" in capsys.readouterr().out


def test_a_long_ledger_shows_its_last_fits(capsys, tmp_path):
    path = str(tmp_path / "long.db")
    PrivacyAccountant(5.0, ledger=path).plan([Charge(f"fit {k}", gaussian_event(500.0 + k)) for k in range(400)])
    assert main(["ledger", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "the last 50 of 400 fits" in lines[1]
    assert len(lines) == 54
    assert "fit 399" in lines[-2]
    assert main(["ledger", path, "--all"]) == 0
    assert capsys.readouterr().out.count("planned") == 400


def test_what_takes_too_long_is_not_computed(monkeypatch, capsys, tmp_path):
    path = str(tmp_path / "slow.db")
    books = PrivacyAccountant(5.0, ledger=path)
    books.charge(poisson_gaussian_event(0.01, 4.0, 50), "first")
    books.charge(gaussian_event(30.0), "second")
    monkeypatch.setattr(_accountant, "MOST_WORK", 1.0)
    assert main(["ledger", path]) == 0
    assert "not computed" in capsys.readouterr().out


def test_a_changed_ledger_is_not_shown(capsys, tmp_path):
    path = tmp_path / "budget.db"
    charged(path, "one", "two")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE records SET record = replace(record, 'one', 'ten')")
    assert "entry 1 was changed" in refused(capsys, "ledger", str(path))
    assert "does not exist" in refused(capsys, "ledger", str(tmp_path / "nowhere.db"))


def test_a_file_of_the_earlier_format_is_charged_on_without_days(tmp_path):
    path = tmp_path / "ledger.sqlite"
    shutil.copy(Path(__file__).parent / "data" / "unmoved" / "ledger.sqlite", path)
    books = PrivacyAccountant(ledger=path)
    books.charge(gaussian_event(30.0), "one more")
    assert set(books.fits()["day"]) == {None}
    assert PrivacyAccountant(ledger=path).verify()["charges"] == len(books.fits())


def test_a_day_that_is_none_is_refused(tmp_path):
    record = json.loads(charge_record(Charge("x", gaussian_event(9.0)), 1, "charged", Totals(batches=1), "2024-12-31"))
    assert parse(json.dumps(record)).entry.day == "2024-12-31"
    for day in ("2024-12-32", 20241231, "", "2024-12-31\n"):
        with pytest.raises(ValueError, match="its day is"):
            parse(json.dumps({**record, "day": day}))


def test_the_same_command_runs_again_and_another_budget_is_refused(table, capsys):
    again = [*COMMAND, "--epsilon", "1", "--ledger", "books.db", "--budget", "4"]
    assert main(again) == 0
    assert main(again) == 0
    assert len(PrivacyAccountant(ledger="books.db").charges) == 2
    capsys.readouterr()
    line = refused(capsys, *again, "--budget", "5")
    assert "--budget 5 is not the budget of books.db, which is 4" in line
    assert "nothing was charged" in line
    assert "give --ledger BUDGET.db too" in refused(capsys, *COMMAND, "--budget", "4")


def test_verify_shows_the_beginning_of_a_long_constraint(tmp_path, capsys):
    rng = np.random.default_rng(0)
    codes = tuple(range(1000))
    frame = pd.DataFrame({"town": rng.integers(0, 1000, 2000)})
    frame["region"] = frame["town"] // 100
    columns = [Categorical("town", codes), Categorical("region", tuple(range(10)))]
    mapping = f"region == { {code: code // 100 for code in codes} }[town]"
    MomentSynthesizer(4.0, schema=Schema(columns, (mapping,))).fit(frame).card_.save(tmp_path / "c.json")
    assert main(["verify", str(tmp_path / "c.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 400
    assert any(line.endswith("more characters, on the card]") and "region == {0: 0" in line for line in lines)
