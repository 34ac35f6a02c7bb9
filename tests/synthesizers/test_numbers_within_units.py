"""Columns that number the rows of a unit, such as the visits of a patient: never read, and made anew in each unit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import DPMERFSynthesizer, MomentSynthesizer, PrivacyAccountant, PrivacyUnit, Schema, load
from skdpgen.__main__ import main
from skdpgen.commands._hints import row_numbers
from skdpgen.exceptions import InvalidInputError
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.tabular import Categorical, Identifier

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")


@pytest.fixture(autouse=True)
def _short(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(fit_tables.__kwdefaults__, "n_iter", 2)


def visits(n=400):
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(n) + 70_000, rng.integers(1, 5, n))
    number = pd.Series(patient).groupby(patient).cumcount() + 1
    frame = pd.DataFrame({"patient": patient, "ward": rng.choice(["ears", "eyes"], len(patient)), "visit": number})
    return frame.sample(frac=1, random_state=0, ignore_index=True)


FRAME = visits()
SCHEMA = Schema([Categorical("ward", ("ears", "eyes")), Identifier("visit", within_unit=True)])
UNIT = PrivacyUnit("patient", 4)


def are_numbered(rows, unit="patient", name="visit"):
    return (rows[name] == rows.groupby(unit).cumcount() + 1).all()


def test_the_rows_of_each_synthetic_unit_are_numbered_from_one(monkeypatch):
    synth = MomentSynthesizer(8.0, schema=SCHEMA, unit=UNIT).fit(FRAME)
    monkeypatch.setattr(MomentSynthesizer, "_rows_at_once", 50)  # several chunks
    synth.save("m.safetensors")
    for model in (synth, load("m.safetensors")):
        rows = model.sample(units=200)
        assert list(rows.columns) == ["patient", "ward", "visit"]
        assert are_numbered(rows)
        assert rows["visit"].dtype == "int64"
        assert rows["visit"].max() in (3, 4)
        assert model.sample(30)["visit"].tolist() == list(range(1, 31))  # single rows have no unit


def test_no_number_changes_a_release_and_constraints_keep_the_numbers():
    schema = SCHEMA.replace(Identifier("visit", pattern="V-##", within_unit=True)).constrain("ward != 'ears'")
    synth = MomentSynthesizer(8.0, schema=schema, unit=UNIT).fit(FRAME.assign(visit="no number"))
    rows = synth.sample(units=100)
    assert set(rows["ward"]) == {"eyes"}
    assert (rows["visit"] == [f"V-{k:02d}" for k in rows.groupby("patient").cumcount() + 1]).all()


@pytest.mark.parametrize("dtype", ["int8", "Int8", "uint8"])
def test_a_narrow_dtype_has_room_for_the_numbers_within_units(dtype):
    schema = SCHEMA.replace(Identifier("visit", dtype=dtype, within_unit=True))
    rows = MomentSynthesizer(8.0, schema=schema, unit=UNIT).fit(FRAME).sample(units=300)
    assert len(rows) > 300
    assert are_numbered(rows)
    assert rows["visit"].dtype == dtype


def test_other_keys_count_all_rows_of_all_chunks_of_units(monkeypatch):
    monkeypatch.setattr(MomentSynthesizer, "_rows_at_once", 50)
    schema = Schema([*SCHEMA.columns, Identifier("row")])
    rows = MomentSynthesizer(8.0, schema=schema, unit=UNIT).fit(FRAME.assign(row=7)).sample(units=200)
    assert rows["row"].tolist() == list(range(1, len(rows) + 1))
    assert are_numbered(rows)


def test_a_schema_says_it_in_json_where_it_is_so():
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA
    assert '"within_unit": true' in SCHEMA.to_json()
    assert "within_unit" not in Schema([Identifier("visit")]).to_json()


def test_without_a_unit_it_is_refused_before_the_charge():
    accountant = PrivacyAccountant(1.0)
    for model in (MomentSynthesizer, DPMERFSynthesizer):
        with pytest.raises(InvalidInputError, match=r"'visit' numbers the rows of a unit .* this fit has no unit"):
            model(epsilon=None, schema=SCHEMA, accountant=accountant).fit(FRAME[["ward", "visit"]])
    assert not accountant.epsilon_spent()


def test_the_command_finds_and_declares_such_columns(capsys):
    FRAME.to_csv("visits.csv", index=False)
    assert main(["schema", "visits.csv", "--output", "s.json"]) == 0
    assert "numbers of the rows of one patient, from 1: visit." in (said := capsys.readouterr().err)
    assert "--number-in-unit visit" in said
    declared = ["--number-in-unit", "visit", "--drop", "patient", "--output", "s.json"]
    assert main(["schema", "visits.csv", *declared]) == 0
    assert "number-in-unit" not in capsys.readouterr().err
    assert Schema.load("s.json")["visit"] == Identifier("visit", dtype="Int64", within_unit=True)
    fit = ["synthesize", "visits.csv", "--schema", "s.json", "--model", "moment", "--output", "out.csv"]
    assert "this fit has no unit" in refused(capsys, *fit, "--drop", "patient")
    assert main([*fit, "--unit", "patient", "--max-rows-per-unit", "4", "--units", "100", "--epsilon", "8"]) == 0
    assert are_numbered(pd.read_csv("out.csv"))
    assert main(["report", "visits.csv", "out.csv", "--schema", "s.json", "--unit", "patient"]) == 0
    capsys.readouterr()
    twice = ["--number-in-unit", "visit", "--id", "visit"]
    assert "is named by --id and by --number-in-unit" in refused(capsys, "schema", "visits.csv", *twice)


def test_numbers_of_rows_are_told_from_other_numbers():
    frame = FRAME.assign(
        zero=FRAME["visit"] - 1,
        order=range(len(FRAME)),
        same=1,
        part=FRAME["visit"].astype(float),
        nullable=FRAME["visit"].astype("Int64"),
    )
    assert row_numbers(frame, "patient") == ["visit", "nullable"]
