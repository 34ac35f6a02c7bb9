"""Reports of rows of which several belong to one person."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen.__main__ import main
from skdpgen.report import build_report
from skdpgen.report._inputs import halves
from skdpgen.report._units import _similarities


def _visits(seed, shared=True, per_person=(2, 3)):
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(200), rng.integers(*per_person, 200, endpoint=True))
    age = rng.integers(20, 90, 200)[person] if shared else rng.integers(20, 90, len(person))
    return pd.DataFrame(
        {
            "patient": [f"P{k:04d}" for k in person],
            "age": age,
            "ward": rng.choice(["a", "b"], 200)[person] if shared else rng.choice(["a", "b"], len(person)),
            "x": rng.normal(size=len(person)),
        }
    )


def test_identifiers_are_compared_with_nothing_and_units_are_compared():
    real, synthetic = _visits(1), _visits(2, shared=False, per_person=(1, 2))
    report = build_report(real, synthetic, unit="patient")
    assert 'id="column-0" data-name="age"' in report.html
    assert 'data-name="patient"' not in report.html
    assert report.figures["rows_per_unit_tvd"] == pytest.approx(0.5, abs=0.1)
    assert report.figures["unit_similarity_difference"] > 0.5
    assert "The rows of a unit are similar in age, ward: they are no independent draws" in report.html
    same = build_report(real, real, unit="patient").figures
    assert same["rows_per_unit_tvd"] == same["unit_similarity_difference"] == 0


def test_synthetic_rows_may_have_no_identifiers():
    real, synthetic = _visits(1), _visits(2).drop(columns="patient")
    report = build_report(real, synthetic, unit="patient")
    assert "rows_per_unit_tvd" not in report.figures
    assert "The synthetic rows have no column patient" in report.html
    assert "similar in age, ward" in report.html
    with pytest.raises(ValueError, match="not a column of the real rows"):
        build_report(synthetic, real, unit="patient")
    with pytest.raises(ValueError, match="is the target too"):
        build_report(real, synthetic, unit="patient", target="patient")


def test_the_similarity_of_rows_is_that_of_their_units():
    rng = np.random.default_rng(0)
    ids = pd.Series(np.repeat(np.arange(2000), 3))
    own, shared = rng.normal(size=6000), np.repeat(rng.normal(size=2000), 3)
    frame = pd.DataFrame({"half": own + shared, "none": own, "all": shared, "level": np.repeat([0, 1], 3000)})
    frame["single"] = 1.0
    kinds = dict.fromkeys(frame, "number") | {"level": "category"}
    found = _similarities(frame, ids, kinds)
    assert found["half"] == pytest.approx(0.5, abs=0.05)
    assert found["none"] == pytest.approx(0, abs=0.05)
    assert found["all"] == found["level"] == pytest.approx(1)
    assert np.isnan(found["single"])
    alone = _similarities(frame, pd.Series(np.arange(6000)), kinds)
    assert all(np.isnan(value) for value in alone.values())


def test_rows_of_a_unit_are_in_one_half():
    frame = _visits(3)
    one, other = halves(frame, 0.5, np.random.default_rng(0), frame["patient"])
    assert not set(one["patient"]) & set(other["patient"])
    assert len(one) + len(other) == len(frame)


def test_the_command_takes_the_unit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _visits(1).to_csv("real.csv", index=False)
    _visits(2).to_csv("units.csv", index=False)
    _visits(2).drop(columns="patient").to_csv("rows.csv", index=False)
    how = ["--unit", "patient", "--output", "r.html"]
    assert main(["report", "real.csv", "units.csv", *how]) == 0
    assert "rows_per_unit_tvd" in capsys.readouterr().out
    assert main(["report", "real.csv", "rows.csv", *how]) == 0
    assert main(["schema", "real.csv", "--id", "patient", "--output", "s.json"]) == 0
    assert (
        main(["report", "real.csv", "rows.csv", "--schema", "s.json", "--output", "r.html"]) == 0
    )  # keys are not compared
    assert main(["report", "rows.csv", "real.csv", *how]) == 2
    assert "--unit: no column 'patient' in rows.csv" in capsys.readouterr().err
