"""What a fit says of counts is in units where each of them counts 1, and in rows elsewhere."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat
from _visits import SCHEMA

import skdpgen
from skdpgen import MomentSynthesizer, P3GMSynthesizer, PrivacyUnit
from skdpgen.accounting import BudgetPlan
from skdpgen.exceptions import PrivacyLeakWarning

UNIT = {"unit": PrivacyUnit("pid", 4, weighting="units")}


def _visits(n_units=1000):
    """Every unit has four rows, of which one in ten has a rare category."""
    rng = np.random.default_rng(0)
    pid = np.repeat(np.arange(n_units), 4)
    words = np.where(rng.random(len(pid)) < 0.1, "z", rng.choice(["x", "y"], len(pid)))
    return pd.DataFrame({"pid": pid, "a": rng.normal(size=len(pid)), "c": words})


@pytest.mark.parametrize("estimator", [MomentSynthesizer, P3GMSynthesizer])
def test_a_summary_counts_units_where_they_are_counted(estimator, tmp_path):
    synth = make_flat(estimator, 20.0, random_state=0, **UNIT).fit(_visits())
    summary = synth.summary_
    assert summary.counted == "units"
    assert summary.n_counted == pytest.approx(1000, abs=20)
    assert summary.n_rows == pytest.approx(4000, abs=80)
    for column in summary.columns:
        assert column.count_error_percent == pytest.approx(100 * column.count_error / summary.n_counted)
    text = repr(summary)
    assert "units, which have" in text
    assert "in units and in percent of them" in text
    assert "weighting of rows: units; a sample of rows has fewer rows of large units than the rows used" in text
    assert f"units are usually lost, those of {summary.smallest_kept:.0f} or more almost never" in text
    synth.save(tmp_path / "m.safetensors")
    assert repr(skdpgen.load(tmp_path / "m.safetensors").summary_) == text


def test_a_summary_counts_rows_where_they_are_counted():
    summary = MomentSynthesizer(20.0, random_state=0, unit=PrivacyUnit("pid", 4)).fit(_visits()).summary_
    assert (summary.counted, summary.n_counted) == ("rows", None)
    assert "rows by the released count; errors are standard errors, in rows" in repr(summary)
    assert "a unit may have 4 of them, so errors are about 4 times those of a fit for one row" in repr(summary)
    summary = MomentSynthesizer(20.0, random_state=0, unit=PrivacyUnit("pid", 1)).fit(_visits()).summary_
    assert "weighting of rows" not in repr(summary)
    assert f"rows are usually lost, those of {summary.smallest_kept:.0f} or more almost never" in repr(summary)


def test_a_warning_of_lost_categories_counts_units():
    frame = _visits().assign(c=lambda f: np.where(f["c"] == "z", [f"v{i % 80}" for i in range(len(f))], f["c"]))
    with pytest.warns(skdpgen.exceptions.UtilityWarning, match="fewer than 5 units are usually lost"):
        MomentSynthesizer(10.0, random_state=0, **UNIT).fit(frame)


def test_the_stated_error_of_units_is_that_of_the_counts_that_a_model_has():
    """Over twenty fits, the share of "z" varies as much as its error in percent of the units says."""
    frame, shares, stated = _visits(), [], []
    for seed in range(20):
        synth = MomentSynthesizer(3.0, schema=SCHEMA, target="c", random_state=seed, **UNIT)
        synth.fit(frame)
        shares.append(synth.class_ratio_[2])
        stated.append(next(c for c in synth.summary_.columns if c.name == "c").count_error_percent / 100)
    ratio = np.std(shares, ddof=1) / np.mean(stated)
    assert 0.5 < ratio < 1.7  # of rows instead of units it would be 4; chance alone moves it by a sixth


def test_a_plan_counts_units_and_says_so():
    frame = _visits()
    plans = {w: MomentSynthesizer(1.0, unit=PrivacyUnit("pid", 4, weighting=w)).plan(frame) for w in ("rows", "units")}
    of_rows, of_units = BudgetPlan.of(plans["rows"], 5000), BudgetPlan.of(plans["units"], 5000)
    assert (of_rows.counted, of_units.counted) == ("rows", "units")
    assert of_rows.assumptions[0] == "5000 rows"
    assert of_units.assumptions[0] == "5000 units"
    text = str(of_units)
    assert "in units: each counts 1, shared by its rows" in text
    assert all("units" in line for line in text.splitlines() if line.startswith(("learned", "number")))
    assert of_units.to_dict()["counted"] == "units"
    with pytest.raises(ValueError, match="some of these plans count rows"):
        BudgetPlan.of(list(plans.values()), 5000)


def test_a_delta_that_is_too_large_names_units():
    with pytest.warns(PrivacyLeakWarning, match="all rows of one or two units"):
        MomentSynthesizer(1.0, 1e-3, schema=SCHEMA, **UNIT).fit(_visits(500))
