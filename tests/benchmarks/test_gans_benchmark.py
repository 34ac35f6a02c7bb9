"""The table of GANs: a small run, published figures beside ours, one row a model."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils import Bunch

from benchmarks import BENCHMARKS, gans
from benchmarks.published import GANS
from benchmarks.summary import summary


@pytest.fixture
def images(monkeypatch):
    """Images of ten patterns, in the place of the data set."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2, (10, 784)) * 255
    y = np.arange(800) % 10
    X = np.clip(patterns[y] + rng.normal(0, 20, (800, 784)), 0, 255).astype(np.uint8)
    bunch = Bunch(data=X[:700], target=y[:700], data_test=X[700:], target_test=y[700:])
    monkeypatch.setattr(gans, "_load", lambda dataset, data, development: bunch)
    monkeypatch.setattr(gans, "_QUICK_ROWS", 700)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_the_table_has_a_row_a_budget_and_model(images):
    rows = list(gans.gans_benchmark(models=("DPCGANSynthesizer", "real data"), epsilon=(10.0,), quick=True))
    assert [row["model"] for row in rows] == ["DPCGANSynthesizer", "real data"]
    assert all(0 <= row[name] <= 1 for row in rows for name in ("lr", "mlp", "cnn"))
    assert rows[-1]["lr"] > 0.9
    assert rows[0]["epsilon_card"] == pytest.approx(10.0, rel=5e-3)
    printed = summary(BENCHMARKS["gans-mnist"], rows)
    for name in ("10.0 DPCGANSynthesizer", "10.0 DP-CGAN, published", "10.0 DP-CGAN, independent"):
        assert f"| {name}" in printed


def test_every_figure_names_its_budget_and_its_source():
    for dataset, rows in GANS.items():
        for name, figures in rows.items():
            epsilon, source = name.split(" ")[0], name.split(", ")[1]
            assert float(epsilon) in (1.0, 10.0), dataset
            assert source.startswith(("published", "independent"))
            assert figures
            assert all(0 < value < 1 for value in figures.values())


def test_all_are_registered():
    assert BENCHMARKS["gans"].parts == ("gans-mnist", "gans-fashion", "gans-adult")
    assert set(BENCHMARKS["gans-mnist"].models()) == {*gans.MODELS, "real data"}
