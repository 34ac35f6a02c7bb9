"""The step benchmark runs, and its nets take the fast path."""

from __future__ import annotations

import pytest
import torch

from benchmarks.step import NETS, step_benchmark
from skdpgen.dpsgd import LossModule, choose_path


@pytest.mark.parametrize("name", NETS)
def test_nets_of_the_benchmark_take_the_fast_path(name):
    module = NETS[name]()
    assert choose_path(LossModule(module), (torch.zeros(2, 784), torch.zeros(2, 10))) == ("fast", "")


def test_step_benchmark_reports_ratios_of_all_methods():
    rows = step_benchmark(2, nets=["mlp"], batch=4, steps=1, reference=True)
    assert [(row["method"], row["noise"]) for row in rows] == [
        ("ordinary", None), ("step", "fast"), ("step", "secure"), ("vmap", None), ("fit", "fast"), ("fit", "secure"),
    ]  # fmt: skip
    assert rows[0]["ratio"] == 1
    assert all(row["seconds"] > 0 and row["ratio_low"] <= row["ratio"] <= row["ratio_high"] for row in rows)
