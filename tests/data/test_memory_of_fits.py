"""Fits that would not fit into memory are refused, or announced, before their charge: by declared levels alone."""

from __future__ import annotations

import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, PrivacyAccountant, Schema
from skdpgen.data import frames
from skdpgen.exceptions import InvalidInputError, UtilityWarning
from skdpgen.tabular import Boolean, Categorical
from skdpgen.utils.memory import physical_memory

SCHEMA = Schema([Categorical("street", tuple(f"s{i}" for i in range(10_000))), Boolean("sick")])
FRAME = pd.DataFrame({"street": ["s1", "s2"] * 10, "sick": [True, False] * 10})


def test_a_fit_beyond_the_memory_is_refused_before_its_charge(monkeypatch):
    monkeypatch.setattr(frames, "physical_memory", lambda: 4 << 30)
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(InvalidInputError, match=r"about 8 GiB of memory, and this machine has 4 GiB: merge categories"):
        MomentSynthesizer(schema=SCHEMA, accountant=accountant).fit(FRAME)
    assert not accountant.charges


@pytest.mark.parametrize("memory", [16 << 30, None])
def test_a_fit_that_takes_much_memory_says_so_before_its_charge(monkeypatch, memory):
    monkeypatch.setattr(frames, "physical_memory", lambda: memory)
    with pytest.warns(UtilityWarning, match=r"'street' \(10000\). The fit is slow, takes about 7.8 GiB of memory"):
        MomentSynthesizer(schema=SCHEMA).plan(FRAME)


def test_the_memory_of_this_machine_is_a_number_of_bytes_or_unknown():
    assert physical_memory() is None or physical_memory() > 1 << 28
