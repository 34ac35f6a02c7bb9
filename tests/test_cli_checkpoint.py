"""`skdpgen synthesize --checkpoint`: a command that is killed is given again, and goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pandas as pd
import pytest
from _command_line import FRAME, refused
from _forks import in_a_fork

import skdpgen
from skdpgen import PrivacyAccountant
from skdpgen.__main__ import main
from skdpgen.utils.watching import watch_releases

pytestmark = pytest.mark.usefixtures("short_fits")

SETTINGS = {
    **{"decoder": "net", "training__steps": "6", "training__sampling_rate": "1.0", "training__warm_start_steps": "2"},
    "n_components": "2",
}


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME[["age", "ill"]][:60].to_csv("table.csv", index=False)


def command(*more):
    options = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    files = ["--ledger=budget.db", "--budget=30", "--checkpoint=fit.safetensors", "--output=out.csv"]
    return ["synthesize", "table.csv", "--kinds-from-values", "--epsilon=20", *files, *options, *more]


def test_a_fit_goes_on_under_its_label_alone(table, capsys):
    assert in_a_fork(lambda: _kill_at_a_step(command("--label=visits")), 60) == ""
    assert "another label" in refused(capsys, *command("--label=others"))
    assert main(command("--label=visits")) == 0
    assert "P3GMSynthesizer (visits)" in capsys.readouterr().out


def _kill_at_a_step(arguments):
    seen = []

    def note(released, sd, kind):
        seen.append(kind)
        if seen.count("gradient") == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    with watch_releases(note):
        main(arguments)


def test_the_same_command_goes_on_after_a_kill(table, capsys):
    seen = []
    assert in_a_fork(lambda: _kill_at_a_step(command()), 60) == ""
    assert not Path("out.csv").exists()
    assert Path("fit.safetensors").exists()
    with watch_releases(lambda released, sd, kind: seen.append(kind)):
        assert main(command()) == 0
    assert seen == ["gradient"] * 3
    assert "synthetic rows written to out.csv" in capsys.readouterr().out
    accountant = PrivacyAccountant(ledger="budget.db")
    assert (accountant.verify()["charges"], accountant.epsilon) == (1, 30)
    assert list(pd.read_csv("out.csv")) == ["age", "ill"]
    skdpgen.load("fit.safetensors").card_.verify()
    assert "holds a released model: its fit is complete" in refused(capsys, *command())
    assert main(["sample", "fit.safetensors", "--rows", "5", "--output", "more.csv"]) == 0
    assert accountant.verify()["charges"] == 1


def test_other_budgets_and_settings_do_not_go_on(table, capsys):
    def stop(released, sd, kind):
        if kind == "gradient":
            raise OSError(5, "stopped")

    with watch_releases(stop):
        assert main(command()) == 2
    said = capsys.readouterr().err
    assert "the charge stays" in said
    assert "the same command goes on from fit.safetensors, if it can" in said
    assert "--budget 31 is not the budget of budget.db, which is 30" in refused(capsys, *command("--budget=31"))
    assert "other parameters: steps" in refused(capsys, *command("--set=training__steps=7"))
    assert "other parameters: epsilon" in refused(capsys, *command("--epsilon=19"))
    assert PrivacyAccountant(ledger="budget.db").verify()["charges"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--checkpoint=table.csv"], "is named by two options"),
        (["--checkpoint=fit.pt"], "must end in .safetensors"),
        (["--model=moment"], "is for a model that trains a network"),
    ],
)
def test_checkpoints_that_make_no_sense_are_refused(table, capsys, changes, message):
    assert message in refused(capsys, *command(*changes))


def test_a_checkpoint_needs_a_ledger(table, capsys):
    without = [part for part in command() if not part.startswith(("--ledger", "--budget"))]
    assert "--checkpoint needs --ledger" in refused(capsys, *without)
    without = [part for part in command() if not part.startswith("--set=decoder")]
    assert "is for a model that trains a network" in refused(capsys, *without)
