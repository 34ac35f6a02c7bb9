"""Errors quote a long constraint by its ends: a mapping may have thousands of pairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, PrivacyAccountant, Schema
from skdpgen.tabular import Categorical, Numeric
from skdpgen.utils.printing import listed, quoted

AREAS = tuple(f"A{k:04d}" for k in range(2000))
PAIRS = ", ".join(f"'{area}': {k % 7}" for k, area in enumerate(AREAS))
SCHEMA = Schema([Categorical("area", AREAS), Numeric("density", (0, 6), integer=True), Numeric("x", (0, 1))])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"density == {{{PAIRS}}}[place]", "which is no column"),
        (f"density == {{{PAIRS}, 'A0000': 3}}[area]", "maps a value twice"),
        (f"density == {{{PAIRS}, 'B': 3}}[area]", "no category of"),
        (f"density == {{{PAIRS}, 'A9': 77}}[area]", "no category of"),
        (f"density == {{{PAIRS}}}", "no comparison"),
        ("area in ['" + "', '".join(AREAS[:900]) + "', 'nothing']", "no category"),
        ("x + " * 2000 + "x", "no condition"),
        ("if x > 0: " + " and ".join(["x == 1"] * 900), "must name each column on one side"),
        ("if x > 0: " + " or ".join(["density == 1"] * 500), "after the colon stands"),
    ],
)
def test_an_error_names_a_long_constraint_by_its_ends(text, why):
    frame = pd.DataFrame({"area": AREAS[:50], "density": np.arange(50) % 7, "x": 0.5})
    budget = PrivacyAccountant(1.0)
    with pytest.raises(ValueError, match=why) as error:
        MomentSynthesizer(1.0, schema=SCHEMA.constrain(text), accountant=budget).fit(frame)
    said = str(error.value)
    assert len(said) < 800
    assert "more characters]" in said
    assert text[:20] in said
    assert budget.epsilon_spent() == 0


def test_a_mapping_with_gaps_is_named_by_its_ends():
    short = ", ".join(PAIRS.split(", ")[:-1])
    with pytest.raises(ValueError, match="maps no value 'A1999'") as error:
        MomentSynthesizer(1.0, schema=SCHEMA.constrain(f"density == {{{short}}}[area]")).fit(
            pd.DataFrame({"area": AREAS[:50], "density": np.arange(50) % 7, "x": 0.5})
        )
    assert len(str(error.value)) < 800


def test_short_constraints_are_quoted_whole():
    assert quoted("start <= end") == "'start <= end'"
    assert listed(["a" * 500, None]).endswith("', missing")
    assert len(listed(["a" * 500])) < 260
