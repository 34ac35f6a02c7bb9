"""The cost of the commands is a ratio: their processor seconds over those of reading the same file."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import command_cost


def test_the_ratio_is_of_the_command_and_of_reading_its_file(monkeypatch):
    ran = []

    def cpu_seconds(*arguments):
        ran.append([str(argument) for argument in arguments])
        return 6.0 if arguments[0] == "-m" else 2.0

    monkeypatch.setattr(command_cost, "_cpu_seconds", cpu_seconds)
    results = list(command_cost.command_benchmark(quick=True))
    assert [result["command"] for result in results] == ["schema", "synthesize", "report"]
    assert {result["ratio"] for result in results} == {3.0}
    for read, command in zip(ran[::2], ran[1::2]):
        assert read[-1] == command[3]


def test_a_command_that_fails_has_no_cost():
    with pytest.raises(RuntimeError, match="ended with 2"):
        command_cost._cpu_seconds("-m", "skdpgen", "schema", "no such file.csv")


def test_the_table_has_every_kind_of_column(tmp_path):
    frame = command_cost.messy_table(50, 8)
    assert frame.shape == (50, 8)
    assert frame.equals(command_cost.messy_table(50, 8))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    read = pd.read_csv(tmp_path / "rows.csv")
    assert {"i", "f"} < {dtype.kind for dtype in read.dtypes}
    assert pd.to_datetime(read["day_4"], format="%Y-%m-%d").notna().all()
