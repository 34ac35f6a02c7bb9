"""Fits that would not fit into memory are refused before their charge: by declared levels alone."""

from __future__ import annotations

import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, PrivacyAccountant, Schema
from skdpgen.data import frames
from skdpgen.exceptions import InvalidInputError
from skdpgen.tabular import Boolean, Categorical
from skdpgen.utils.validation import physical_memory

# sixty columns, each of as many categories as are modelled without groups
NAMES = [f"c{i}" for i in range(60)]
SCHEMA = Schema([*(Categorical(name, tuple(f"s{i}" for i in range(128))) for name in NAMES), Boolean("sick")])
FRAME = pd.DataFrame({**{name: ["s1", "s2"] * 10 for name in NAMES}, "sick": [True, False] * 10})


def test_a_fit_beyond_the_memory_is_refused_before_its_charge(monkeypatch):
    monkeypatch.setattr(frames, "physical_memory", lambda: 4 << 30)
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(InvalidInputError, match=r"about 5 GiB of memory, and this machine has 4 GiB: merge categories"):
        MomentSynthesizer(schema=SCHEMA, accountant=accountant).fit(FRAME)
    assert not accountant.charges


@pytest.mark.parametrize("memory", [16 << 30, None])
def test_a_fit_within_the_memory_is_not_refused(monkeypatch, memory):
    monkeypatch.setattr(frames, "physical_memory", lambda: memory)
    MomentSynthesizer(schema=SCHEMA).plan(FRAME)


def test_the_memory_of_this_machine_is_a_number_of_bytes_or_unknown():
    assert physical_memory() is None or physical_memory() > 1 << 28
