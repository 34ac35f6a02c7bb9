"""Identifiers: never read, never encoded, fresh in every sample, and recognised by names and dtypes alone."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import skdpgen
from skdpgen import MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, Schema
from skdpgen.datasets import load_breast_cancer_table
from skdpgen.exceptions import InvalidInputError, SchemaError, UtilityWarning
from skdpgen.tabular import Categorical, Identifier, Numeric, TableEncoder
from skdpgen.tabular._identifiers import identifies_persons, likely_codes, likely_identifiers
from skdpgen.testing import seeded_noise

pytestmark = pytest.mark.filterwarnings("ignore:too few rows:skdpgen.exceptions.UtilityWarning")

TABLE = load_breast_cancer_table()
NAMES = ["mean radius", "diagnosis"]


def with_ids(values=None):
    """Rows with an identifier between the columns, and the schema of all of them."""
    frame = TABLE.frame[NAMES].copy()
    frame.insert(1, "patient_id", np.arange(len(frame)) if values is None else values)
    columns = [TABLE.schema[name] for name in NAMES]
    columns.insert(1, Identifier("patient_id", pattern="P-####"))
    return frame, Schema(columns)


@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
def test_sample_has_fresh_keys_at_their_place(model):
    frame, schema = with_ids()
    synth = model(8.0, schema=schema, target="diagnosis").fit(frame)
    rows = synth.sample(1200)
    assert list(rows.columns) == list(frame.columns)
    assert synth.schema_ == schema
    assert rows["patient_id"].tolist() == [f"P-{i:04}" for i in range(1, 1201)]


def test_no_value_of_an_identifier_changes_a_release():
    odd = [object(), None, *map(str, range(567))]  # values that no other kind of column accepts
    released = []
    for values in (None, odd):
        frame, schema = with_ids(values)
        with seeded_noise(3, quiet=True):
            synth = MomentSynthesizer(4.0, schema=schema, target="diagnosis", random_state=0).fit(frame)
        released.append(synth.sample(200, random_state=1))
    pd.testing.assert_frame_equal(*released)


def test_an_identifier_costs_nothing():
    frame, schema = with_ids()
    plain = MomentSynthesizer(4.0, schema=schema.select(NAMES), target="diagnosis").fit(frame[NAMES])
    synth = MomentSynthesizer(4.0, schema=schema, target="diagnosis").fit(frame)
    columns = ["release", "noise_multiplier", "extra_delta"]
    pd.testing.assert_frame_equal(synth.accountant_.report()[columns], plain.accountant_.report()[columns])


def test_keys_are_unique_across_chunks(monkeypatch):
    from skdpgen.synthesizers import _base

    frame, schema = with_ids()
    synth = MomentSynthesizer(8.0, schema=schema, target="diagnosis", constraints=["`mean radius` >= 8"]).fit(frame)
    monkeypatch.setattr(_base, "_CHUNK_ROWS", 100)
    assert len(list(synth.sample_chunks(350))) == 4
    assert synth.sample(350)["patient_id"].is_unique


def test_keys_survive_the_model_file(tmp_path):
    frame, schema = with_ids()
    y = frame.pop("diagnosis")
    schema = schema.select([*frame.columns]).columns
    synth = P3GMSynthesizer(8.0, schema=Schema(schema), classes=["benign", "malignant"]).fit(frame, y)
    synth.save(tmp_path / "m.safetensors")
    loaded = skdpgen.load(tmp_path / "m.safetensors")
    X, labels = loaded.sample(30)
    assert list(X.columns) == list(frame.columns)
    assert X["patient_id"].is_unique
    assert len(labels) == 30
    assert loaded.schema_ == synth.schema_
    assert len(synth.transform(frame)) == len(frame)
    assert list(synth.inverse_transform(synth.transform(frame)).columns) == list(frame.columns)


def test_chunks_leave_identifiers_out():
    frame, schema = with_ids()
    synth = MomentSynthesizer(8.0, schema=schema, target="diagnosis").fit([frame[:300], frame[300:]])
    assert synth.sample(20)["patient_id"].tolist()[-1] == "P-0020"


@pytest.mark.parametrize(
    ("column", "first", "kind"),
    [
        (Identifier("a"), [1, 2], "i"),
        (Identifier("a", dtype="Int32"), [1, 2], "i"),
        (Identifier("a", dtype="string"), ["1", "2"], "O"),
        (Identifier("a", pattern="##/x"), ["01/x", "02/x"], "O"),
    ],
)
def test_keys_have_the_declared_pattern_and_dtype(column, first, kind):
    assert column.keys(np.arange(1, 3)).tolist() == first
    assert Schema.from_json(Schema([column, Numeric("b", (0, 1))]).to_json())["a"] == column


def test_a_counter_longer_than_its_pattern_repeats_no_key():
    assert Identifier("a", pattern="K#").keys(np.arange(9, 12)).tolist() == ["K9", "K10", "K11"]


@pytest.mark.parametrize(
    "facts", [{"pattern": "no counter"}, {"pattern": "#-#"}, {"dtype": "float64"}, {"pattern": 3}, {"within_unit": 1}]
)
def test_wrong_identifiers_are_refused(facts):
    with pytest.raises(SchemaError, match="column 'a'"):
        Identifier("a", **facts)


def test_an_identifier_is_no_target_and_not_encoded():
    frame, schema = with_ids()
    with pytest.raises(InvalidInputError, match="is an identifier"):
        MomentSynthesizer(schema=schema, target="patient_id").fit(frame)
    with pytest.raises(SchemaError, match="identifiers are not encoded"):
        TableEncoder(schema).fit()
    with pytest.raises(SchemaError, match="none to model"):
        MomentSynthesizer(schema=Schema([Identifier("patient_id")])).fit(frame[["patient_id"]])


def test_likely_identifiers_and_codes_are_named_before_the_charge_by_names_and_dtypes_alone():
    frame, _ = with_ids()
    frame["status_code"] = 1  # one value, as private as any other
    with pytest.warns(UtilityWarning) as caught:
        MomentSynthesizer(0.05, target="diagnosis").fit(frame)
    texts = [str(w.message) for w in caught]
    assert any("identifiers, by their names: 'patient_id'" in text for text in texts)
    assert any("give the column of their identifiers as unit='patient_id' (--unit)" in text for text in texts)
    assert any("whole numbers: 'status_code'" in text for text in texts)


def test_row_numbers_that_pandas_wrote_into_a_file_are_no_identifiers_of_persons():
    frame = with_ids()[0].rename(columns={"patient_id": "Unnamed: 0"})
    with pytest.warns(UtilityWarning) as caught:
        MomentSynthesizer(0.05, target="diagnosis").fit(frame)
    texts = [str(w.message) for w in caught]
    assert any("row numbers, by their names: 'Unnamed: 0'" in text and "index_col=0" in text for text in texts)
    assert not any("identifiers, by their names" in text for text in texts)


def test_declared_columns_are_settled():
    frame, schema = with_ids()
    schema = schema.replace(Numeric("patient_id", (0, 1000), integer=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        MomentSynthesizer(0.05, schema=schema, target="diagnosis").fit(frame)
    assert not [w for w in caught if "by their names" in str(w.message)]


def test_names_are_read_by_their_last_word():
    dtypes = {
        **dict.fromkeys(["customerID", "patient_id", "Id", "row key", "humid", "bid", "class_of_1990"], "int64"),
        **dict.fromkeys(["Unnamed: 0", "Unnamed"], "int64"),
        **dict.fromkeys(["zip_code", "ZIPCode", "status", "statistics"], "int64"),
        "weight_id": "float64",
        "EMail": "str",
    }
    schema = Schema.from_kinds(pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in dtypes.items()}))
    assert likely_identifiers(schema) == ["customerID", "patient_id", "Id", "row key", "Unnamed: 0", "EMail"]
    assert likely_codes(schema) == ["zip_code", "ZIPCode", "status"]


@pytest.mark.parametrize(
    ("names", "are_keys"),
    [
        (["PatNr", "Fallnummer", "Versichertennummer", "Pseudonym", "uid"], True),
        (["patient_nr", "Patient No", "customerNumber", "customerid", "case-nbr", "USERID"], True),
        (["visit_nr", "fall_number", "number", "room_no", "patients", "customer_type", "covid"], False),
    ],
)
def test_a_number_of_a_person_is_a_key(names, are_keys):
    schema = Schema([Numeric(name, integer=True) for name in names])
    assert likely_identifiers(schema) == (names if are_keys else [])


def test_names_and_addresses_of_persons_are_known_by_their_names():
    names = ["name", "LastName", "home_address", "E-Mail", "phone", "username"]
    schema = Schema([Categorical(name) for name in [*names, "namely", "town", "type"]])
    assert [column.name for column in schema.columns if identifies_persons(column)] == names
    assert not identifies_persons(Numeric("phone"))


def test_keys_of_a_narrow_dtype_never_repeat():
    frame = pd.DataFrame({"key": np.arange(300, dtype="int16"), "x": np.arange(300.0)})
    schema = Schema([Identifier("key", dtype="int8"), Numeric("x", bounds=(0, 300))])
    books = PrivacyAccountant(20.0)
    with (
        pytest.warns(UtilityWarning, match="'key' have dtype int8, which has 127 different ones") as said,
        seeded_noise(0, quiet=True),
    ):
        synth = MomentSynthesizer(epsilon=9.0, schema=schema, accountant=books).fit(frame)
    assert said[0].filename == __file__
    assert synth.sample(127)["key"].tolist() == list(range(1, 128))
    for rows in (128, None):
        with pytest.raises(SchemaError, match=r"'key': dtype='int8' has 127 different keys.*fit with a wider dtype"):
            synth.sample(rows)
    charged = len(books.charges)
    wide = schema.replace(Identifier("key", dtype="uint8"))
    with pytest.raises(UtilityWarning, match="255 different"):  # warnings are errors
        MomentSynthesizer(epsilon=1.0, schema=wide, accountant=books).fit(frame)
    assert len(books.charges) == charged  # the warning comes before the charge
    assert (Identifier("a").most_keys, Identifier("a", pattern="P-#").most_keys) == (2**63 - 1, None)
    within = Identifier("visit", dtype="int8", within_unit=True)
    assert within.keys(np.arange(1, 128)).tolist() == list(range(1, 128))
