"""Fits that would not fit into memory are refused before their charge: by declared levels alone."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from skdpgen import DPSGD, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, Schema
from skdpgen.data import table_plan
from skdpgen.exceptions import InvalidInputError
from skdpgen.tabular import Boolean, Categorical
from skdpgen.utils.validation import physical_memory

# sixty columns, each of as many categories as are modelled without groups
NAMES = [f"c{i}" for i in range(60)]
SCHEMA = Schema([*(Categorical(name, tuple(f"s{i}" for i in range(128))) for name in NAMES), Boolean("sick")])
FRAME = pd.DataFrame({**{name: ["s1", "s2"] * 10 for name in NAMES}, "sick": [True, False] * 10})


def test_a_fit_beyond_the_memory_is_refused_before_its_charge(monkeypatch):
    monkeypatch.setattr(table_plan, "physical_memory", lambda: 4 << 30)
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(InvalidInputError, match=r"about 6 GiB of memory, and this machine has 4 GiB: merge categories"):
        MomentSynthesizer(schema=SCHEMA, accountant=accountant).fit(FRAME)
    assert not accountant.charges


@pytest.mark.parametrize("memory", [16 << 30, None])
def test_a_fit_within_the_memory_is_not_refused(monkeypatch, memory):
    monkeypatch.setattr(table_plan, "physical_memory", lambda: memory)
    MomentSynthesizer(schema=SCHEMA).plan(FRAME)


def test_the_memory_of_this_machine_is_a_number_of_bytes_or_unknown():
    assert physical_memory() is None or physical_memory() > 1 << 28


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of a large delta, which keeps more categories
@pytest.mark.parametrize("given", [{}, {"decoder": "net", "training": DPSGD(2, 0.01)}], ids=["moments", "net"])
def test_columns_of_the_most_learned_categories_fit_into_four_gibibytes(given):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: (rng.permutation(200_000) % 10_000).astype(str) for name in "abc"})
    tracemalloc.start()
    try:
        synth = P3GMSynthesizer(100.0, 1e-3, **given).fit(frame)
        synth.sample(200_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(column.categories) for column in synth.schema_.columns] == [10_000] * 3
    assert peak < 4 << 30
