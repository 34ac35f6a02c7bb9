"""A table in a folder of its own, and what a refused command says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen.__main__ import main

RNG = np.random.default_rng(1)
N = 300
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, N),
        "pay": RNG.normal(2000, 500, N).round(2),
        "town": RNG.choice(["north", "south", "?"], N),
        "ill": RNG.random(N) < 0.3,
    }
)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("table.csv", index=False)
    return "table.csv"


def refused(capsys, *arguments):
    """Exit code 2 and one line on stderr, which is returned; a note on undeclared columns may stand before it."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line and "and therefore learned and charged" not in line]
    assert len(lines) == 1, err
    assert lines[0].startswith("skdpgen: ")
    assert not out
    return lines[0]
