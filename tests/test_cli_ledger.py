"""`skdpgen verify --ledger`: exit code, what it prints, and the one line on stderr."""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import DPPCA, PrivacyAccountant, PrivacyCard, Schema
from skdpgen.__main__ import main
from skdpgen.accounting import Charge, gaussian_event
from skdpgen.accounting._card import digest
from skdpgen.tabular import Categorical, Numeric

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]


def test_verify_checks_a_ledger_with_or_without_a_card(capsys, tmp_path):
    path, card = tmp_path / "budget.db", tmp_path / "card.json"
    model = DPPCA(1, epsilon=1.0, bounds=(-4, 4), accountant=PrivacyAccountant(3.0, ledger=path))
    model.fit(np.random.default_rng(0).normal(size=(50, 2)))
    model.card_.save(card)
    assert main(["verify", "--ledger", str(path)]) == 0
    told = capsys.readouterr().out
    head = told.split("head")[1].split()[0]
    for text in ("consistent", "of 3 at delta 1e-05", "charges  1, add_or_remove_one", "private  yes"):
        assert text in told
    assert "no hash chain" not in told
    assert main(["verify", str(card), "--ledger", str(path), "--head", head]) == 0
    out = capsys.readouterr().out
    assert "fit      epsilon" in out
    assert "this ledger saw this fit alone" in out
    assert "never had the head" in refused(capsys, "verify", "--ledger", str(path), "--head", "1:" + "0" * 64)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE records SET record = replace(record, 'DPPCA', 'other')")
    assert "entry 1 was changed" in refused(capsys, "verify", "--ledger", str(path))
    assert "give CARD.json" in refused(capsys, "verify")
    assert "--head is of a ledger" in refused(capsys, "verify", str(card), "--head", head)
    assert "does not exist" in refused(capsys, "verify", "--ledger", str(tmp_path / "nowhere.db"))


def verify_succeeds_only_if_card_and_ledger_are_both_private(which):
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as told:
        path, card = os.path.join(folder, "budget.db"), os.path.join(folder, "card.json")
        accountant = PrivacyAccountant(3.0, ledger=path)
        model = DPPCA(1, epsilon=1.0, bounds=(-4, 4), l2_bound=1.0, accountant=accountant)
        content = dict(model.fit(np.random.default_rng(0).normal(size=(50, 2))).card_)
        content["private"] = which != "card"
        body = {name: value for name, value in content.items() if name != "digest"}
        PrivacyCard({**body, "digest": digest(body)}).save(card)
        accountant.charge(gaussian_event(30.0), "by hand", private=which != "ledger")
        codes = [main(["verify", *given]) for given in ([card], ["--ledger", path], [card, "--ledger", path])]
    assert codes == [int(which == "card"), int(which == "ledger"), 1]
    assert told.getvalue().count("private  NO") == told.getvalue().count("private  yes") == 2


@pytest.mark.parametrize("which", ["card", "ledger"])
def test_verify_succeeds_only_if_card_and_ledger_are_both_private(which):
    verify_succeeds_only_if_card_and_ledger_are_both_private(which)


def fitted_card(epsilon=1.0, **ledger):
    model = DPPCA(1, epsilon=epsilon, bounds=(-4, 4), l2_bound=1.0, accountant=PrivacyAccountant(3.0, **ledger))
    return model.fit(np.random.default_rng(0).normal(size=(50, 2))).card_


def test_verify_says_how_many_later_fits_the_ledger_of_a_card_has(capsys, tmp_path):
    path, card = tmp_path / "budget.db", tmp_path / "card.json"
    books = PrivacyAccountant(3.0, ledger=path)
    for number in range(3):
        fitted = DPPCA(1, epsilon=0.5, bounds=(-4, 4), accountant=books).fit(
            np.random.default_rng(0).normal(size=(50, 2))
        )
        if number == 0:
            fitted.card_.save(card)
    assert main(["verify", str(card), "--ledger", str(path)]) == 0
    out = capsys.readouterr().out
    assert "this ledger saw this fit alone" not in out
    assert "note     later fits, which the card does not know, were charged to this ledger (2 charges): " in out


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"unit": "visit"}, "unit is one row on the card, and all rows of one visit in this ledger"),
        ({"neighboring": "replace_one"}, "neighboring is add_or_remove_one on the card, and replace_one in this"),
        ({"delta": 1e-6}, "delta is 1e-05 on the card, and 1e-06 in this ledger"),
        ({"epsilon": 4.0}, "epsilon is 3.0 on the card, and 4.0 in this ledger"),
        ({}, "the card lists 1 charges, and this ledger holds 0"),
    ],
)
def test_verify_refuses_the_ledger_of_another_budget(other, named, capsys, tmp_path):
    card, path = tmp_path / "card.json", tmp_path / "other.db"
    fitted_card().save(card)
    PrivacyAccountant(**{"epsilon": 3.0, **other}, ledger=path)
    said = refused(capsys, "verify", str(card), "--ledger", str(path))
    assert said.startswith(f"skdpgen: {path}: not the ledger that the fit of the card was charged to: ")
    assert named in said


def test_verify_refuses_a_ledger_with_other_charges_than_the_card(capsys, tmp_path):
    card, path = tmp_path / "card.json", tmp_path / "other.db"
    fitted_card().save(card)
    fitted_card(0.5, ledger=path)
    said = refused(capsys, "verify", str(card), "--ledger", str(path))
    assert "charge 1, 'DPPCA: moments', is of other releases on the card than in this ledger" in said
    path = tmp_path / "third.db"
    PrivacyAccountant(3.0, ledger=path).charge(gaussian_event(30.0), "a count")
    said = refused(capsys, "verify", str(card), "--ledger", str(path))
    assert "charge 1 is 'DPPCA: moments' on the card, and 'a count' in this ledger" in said
    path = tmp_path / "seeded.db"
    known = PrivacyCard.load(card).charges[0]
    PrivacyAccountant(3.0, ledger=path).charge(known.event, known.label, private=False)
    said = refused(capsys, "verify", str(card), "--ledger", str(path))
    assert "is 'charged' in batch 1 on the card, and 'seeded' in batch 1 in this ledger" in said


def test_verify_accepts_the_ledger_of_a_card_that_was_charged_since(capsys, tmp_path):
    card, path = tmp_path / "card.json", tmp_path / "budget.db"
    accountant, later = PrivacyAccountant(3.0, ledger=path), Charge("later", gaussian_event(9.0))
    model = DPPCA(1, epsilon=1.0, bounds=(-4, 4), l2_bound=1.0, accountant=accountant)
    rows = np.random.default_rng(0).normal(size=(50, 2))
    accountant.plan([model.plan(rows), later])
    model.fit(rows).card_.save(card)
    accountant.charge(later.event, later.label)
    accountant.charge(gaussian_event(30.0), "chosen after both")
    assert main(["verify", str(card), "--ledger", str(path)]) == 0
    told = capsys.readouterr().out
    assert f"file     {path}: the ledger of this card; its charges begin with the 2 of the card" in told


def test_a_fit_beyond_the_budget_says_which_epsilon_is_left_for_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pd.DataFrame({"pay": rng.random(500), "job": rng.choice(["a", "b"], 500)}).to_csv("a.csv", index=False)
    Schema([Numeric("pay", (0, 1)), Categorical("job", ("a", "b"))]).save("s.json")
    command = ["synthesize", "a.csv", "--schema", "s.json", "--output", "b.csv"]
    command += ["--ledger", "a.db", "--budget", "1.5", "--epsilon"]
    assert main([*command, "1"]) == 0
    capsys.readouterr()
    said = refused(capsys, *command, "1")
    left = said.partition("of 1.5, --epsilon ")[2].split()[0]
    assert said.endswith(f"--epsilon {left} or less is left for one more fit; nothing was charged")
    assert "epsilon=None" not in said
    assert main([*command, left]) == 0


def test_every_command_states_the_rule_of_several_charges(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"pay": np.random.default_rng(0).random(500)}).to_csv("a.csv", index=False)
    Schema([Numeric("pay", (0, 1))]).save("s.json")
    fit = "synthesize a.csv --schema s.json --model moment --output b.csv --card c.json --ledger a.db --budget 5"
    commands = [fit.split(), ["verify", "c.json"], ["verify", "--ledger", "a.db"], ["ledger", "a.db"]]
    said = []
    for _ in range(2):
        for command in commands:
            assert main(command) == 0
            said.append(" ".join(capsys.readouterr().out.split()))
    rule = PrivacyCard.load("c.json")["ledger"]["rule"]
    assert rule == "Renyi privacy filter: the guarantee is the budget, the epsilon spent is the value of the filter"
    assert not any("rule" in text for text in said[:4])
    assert [text.count(rule) for text in said[4:]] == [1, 1, 1, 1]
    fixed = PrivacyAccountant(ledger="a.db").report().attrs["epsilon_if_fixed_in_advance"]
    assert f"fixed in advance, these fits would cost epsilon {fixed:.4f}; the privacy filter counts more" in said[4]
    assert "fixed in advance" not in said[0]


def test_a_card_with_the_earlier_text_of_the_rule_is_verified(capsys):
    card = Path(__file__).parent / "data" / "several-replace_one.card.json"
    assert "epsilon_spent is the " in PrivacyCard.load(card)["ledger"]["rule"]
    assert main(["verify", str(card)]) == 0
    assert "rule     Renyi privacy filter: the guarantee is the budget, the epsilon spent" in capsys.readouterr().out


def test_a_small_part_of_a_large_budget_is_explained(capsys, tmp_path):
    accountant = PrivacyAccountant(5.0, ledger=tmp_path / "a.db")
    accountant.charge(gaussian_event(12.0), "one")
    assert main(["ledger", str(tmp_path / "a.db")]) == 0
    assert "more than the sum" not in capsys.readouterr().out
    accountant.charge(gaussian_event(12.0), "another")
    assert main(["ledger", str(tmp_path / "a.db")]) == 0
    said = capsys.readouterr().out
    assert said.count("50.0%") == 2
    assert "share is the share of what was spent: it adds up to 100 %" in said
    assert "The epsilon spent is more than the sum of the fits, " in said
    fixed = accountant.report().attrs["epsilon_if_fixed_in_advance"]
    assert f"Fixed in advance, these fits would cost {fixed:.4g}." in said
    assert fixed < 0.6 < accountant.epsilon_spent()
    assert f"by the privacy filter; {fixed:.4g} if all fits had been fixed in advance; left for one more" in said
    assert "a later fit may have been chosen by earlier results" in accountant._repr_html_()
