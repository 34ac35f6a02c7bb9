"""A command whose output is closed, as behind `| head`, ends quietly."""

from __future__ import annotations

import os
import subprocess
import sys

import pandas as pd
import pytest

from skdpgen.__main__ import main

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes of this test are those of POSIX")


def _closed(*arguments, closed=("stdout",), cwd=None):
    """Run a command whose streams lead to a pipe that nobody reads; return its exit code, and the open streams."""
    reading, writing = os.pipe()
    os.close(reading)
    streams = {name: writing if name in closed else subprocess.PIPE for name in ("stdout", "stderr")}
    command = [sys.executable, "-m", "skdpgen", *arguments]
    try:
        done = subprocess.run(command, **streams, text=True, cwd=cwd, timeout=120, check=False)
    finally:
        os.close(writing)
    return done.returncode, (done.stdout or "") + (done.stderr or "")


@pytest.fixture
def table(tmp_path):
    frame = pd.DataFrame({"age": [20, 30, 40, 50] * 300, "sex": ["f", "m"] * 600})
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("--help",), 0), (("budget", "--help"), 0), (("budget", "t.csv", "--rows", "1000"), 0), (("demo", "nothing"), 2)],
)
@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_a_command_whose_output_is_closed_ends_quietly_with_its_exit_code(arguments, code, closed, table):
    found, said = _closed(*arguments, closed=closed, cwd=table)
    assert found == code
    assert "Broken pipe" not in said
    assert "Exception ignored" not in said


def test_a_charged_fit_is_written_though_its_output_is_closed(table):
    fit = ("synthesize", "t.csv", "--kinds-from-values", "--epsilon", "5", "--output", "out.csv", "--card", "c.json")
    code, _ = _closed(*fit, closed=("stdout", "stderr"), cwd=table)
    assert code == 0
    assert len(pd.read_csv(table / "out.csv")) > 1000
    assert (table / "c.json").exists()


def test_rows_into_a_pipe_that_is_closed_end_the_command(table, monkeypatch, capsys):
    monkeypatch.chdir(table)
    fit = ["synthesize", "t.csv", "--kinds-from-values", "--epsilon", "5", "--output", "out.csv"]
    assert main([*fit, "--save-model", "m.safetensors"]) == 0
    code, said = _closed("sample", "m.safetensors", "--rows", "50000", "--output", "/dev/stdout", cwd=table)
    assert code == 141
    assert not said
