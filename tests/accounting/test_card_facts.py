"""What a card says beside the figures: the day, the columns, the declared facts, the files it was written with."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from datetime import date, datetime, timezone

import numpy as np
import pandas as pd
import pytest

from skdpgen import DPPCA, MomentSynthesizer, PrivacyAccountant, PrivacyCard, Schema, load
from skdpgen.accounting import gaussian_event
from skdpgen.accounting._card import digest
from skdpgen.accounting._facts import declared_facts, table_columns
from skdpgen.tabular import Categorical, Datetime, Numeric
from skdpgen.utils import clock

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

RNG = np.random.default_rng(5)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, 300),
        "job": RNG.choice(["clerk", "cook", "smith"], 300),
        "income": RNG.exponential(1e4, 300),
        "born": pd.Timestamp("1990-05-05"),
    }
)
SCHEMA = Schema(
    [
        Numeric("age", (17, 90), integer=True),
        Categorical("job", ("clerk", "cook"), other="other"),
        Datetime("born", ("1900-01-01", "2020-01-01"), resolution="D"),
    ]
)


@pytest.fixture(scope="module")
def fitted():
    return MomentSynthesizer(8.0, schema=SCHEMA, constraints="age >= 17").fit(FRAME)


def signed(card, **fields):
    content = {**copy.deepcopy(json.loads(card.to_json())), **fields}
    body = {name: value for name, value in content.items() if name != "digest"}
    return PrivacyCard({**body, "digest": digest(body)})


def test_a_card_names_the_columns_and_lists_what_was_declared_of_each(fitted):
    columns = {column["name"]: column for column in fitted.card_["columns"]}
    assert list(columns) == list(FRAME.columns)
    assert columns["age"]["bounds"] == [17, 90]
    assert columns["job"]["categories"] == ["clerk", "cook"]
    assert columns["job"]["other"] == "other"
    assert columns["born"]["bounds"] == ["1900-01-01T00:00:00", "2020-01-01T00:00:00"]
    assert columns["income"] == {
        **{"name": "income", "kind": "numeric", "bounds": None, "from": "dtype", "integer": False, "missing": True},
        "dtype": "float64",
    }
    assert {name: column["from"] for name, column in columns.items() if name != "income"} == dict.fromkeys(
        ("age", "job", "born"), "schema"
    )
    assert fitted.card_["declared"] == {"schema": {"columns": 3}, "constraints": "age >= 17"}
    assert "<Schema>" not in fitted.card_.to_json()
    assert fitted.card_.verify()["private"]


def test_a_card_of_an_array_lists_bounds_and_classes_and_the_number_of_columns():
    X = RNG.random((200, 3))
    model = MomentSynthesizer(8.0, bounds=(0, 1), classes=range(2)).fit(X, RNG.integers(0, 2, 200))
    assert model.card_["columns"] == {"count": 3}
    assert model.card_["declared"] == {"bounds": [0, 1], "classes": [0, 1]}
    named = DPPCA(2, epsilon=8.0, bounds=(0, 1)).fit(pd.DataFrame(X, columns=["x", "y", "z"]))
    assert named.card_["columns"] == ["x", "y", "z"]


def test_a_long_list_is_stated_by_its_count_and_a_digest_that_anyone_can_compute():
    codes = tuple(f"code {k}" for k in range(10_000))
    columns = table_columns(Schema([Categorical("icd", codes), Numeric("age", (0, 120))]).to_dict()["columns"], ["icd"])
    stated = hashlib.sha256(json.dumps(list(codes), sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    assert columns[0]["categories"] == {"count": 10_000, "sha256": f"sha256:{stated}"}
    assert columns[1]["bounds"] == [0, 120]
    many = [{"name": f"column {k}", "kind": "numeric", "bounds": [0, 1]} for k in range(15_000)]
    assert table_columns(many, [])[14_999] == "column 14999"  # the names alone
    assert table_columns([{"name": "x" * 2**20, "kind": "boolean"}], [])["count"] == 1
    assert declared_facts({"bounds": np.tile([0.0, 1.0], (5000, 1)), "classes": range(10**12)}) == {
        "bounds": {"count": 5000, "sha256": declared_facts({"bounds": [[0.0, 1.0]] * 5000})["bounds"]["sha256"]},
        "classes": {"count": 10**12, "first": 0, "step": 1},
    }


def test_a_card_holds_the_day_of_the_charge_and_no_time_of_day(fitted):
    day = fitted.card_["date"]
    assert 0 <= (datetime.now(timezone.utc).date() - date.fromisoformat(day)).days <= 1
    assert not re.search(r"\d\d:\d\d", json.dumps([day, fitted.card_["noise"], fitted.card_["versions"]]))
    with clock.one_day():
        assert clock.today() == clock.today()
        assert PrivacyAccountant(1.0).charge(gaussian_event(9.0), "x").day == clock.today()


def test_a_card_lists_the_parameters_of_the_model_and_not_those_of_the_terminal(fitted):
    listed = fitted.card_["model"]["parameters"]
    assert "target" in listed
    assert not {"progress", "random_state", "accountant"} & set(listed)


@pytest.mark.parametrize(
    "fields",
    [
        {"date": "2024-13-01"},
        {"date": 20240101},
        {"date": "2024-01-01\n"},
        {"columns": "age"},
        {"columns": [{"kind": "numeric"}]},
        {"columns": [True]},
        {"declared": []},
        {"files": {"rows": "sha256:" + "0" * 64}},
        {"files": {"model": "sha256:" + "0" * 63}},
        {"files": {"model": None}},
        {"later": 1},
        {"format": "skdpgen-privacy-card-1"},
    ],
)
def test_fields_of_another_kind_are_refused(fitted, fields):
    with pytest.raises(ValueError, match=r"date|columns|declared|files|unknown fields"):
        signed(fitted.card_, **fields)


def test_a_card_states_its_files_and_finds_another(fitted, tmp_path):
    rows, model = tmp_path / "rows.csv", tmp_path / "m.safetensors"
    rows.write_text("age\n3\n")
    fitted.save(model)
    card = fitted.card_.with_files(synthetic=rows).with_files(model=model)
    assert card["files"] == {
        "synthetic": "sha256:" + hashlib.sha256(b"age\n3\n").hexdigest(),
        "model": "sha256:" + hashlib.sha256(model.read_bytes()).hexdigest(),
    }
    card.verify()
    card.check_files(synthetic=rows, model=model)
    assert card.same_fit(load(model).card_)  # the card inside a model cannot state the digest of the model
    assert card != fitted.card_
    rows.write_text("age\n4\n")
    with pytest.raises(ValueError, match="not the synthetic rows that the card was written with"):
        card.check_files(synthetic=rows)
    with pytest.raises(ValueError, match="states no SHA-256 of the model"):
        fitted.card_.check_files(model=model)
    with pytest.raises(TypeError, match="synthetic, model, units"):
        card.check_files(rows=rows)
    assert not card.same_fit(signed(card, date="2001-01-01"))


def test_a_card_names_the_data_set_in_the_words_of_the_publisher(fitted, tmp_path):
    text = "Visits to the emergency department, 2023; one row is one visit"
    card = fitted.card_.with_dataset(text)
    assert card["dataset"] == text
    assert PrivacyCard.from_json(card.to_json()) == card
    assert card.verify() == fitted.card_.verify()
    assert "dataset" not in fitted.card_
    assert card.with_dataset("Visits, 2023")["dataset"] == "Visits, 2023"
    fitted.save(tmp_path / "m.safetensors")
    assert card.same_fit(load(tmp_path / "m.safetensors").card_)
    changed = json.loads(card.to_json()) | {"dataset": "Other rows"}
    with pytest.raises(ValueError, match="its digest does not match"):
        PrivacyCard(changed).verify()


@pytest.mark.parametrize("text", ["", " ", "a\nb", "a\x1b[1mb", "x" * 1_001, 7, None])
def test_a_description_of_the_data_is_one_line_of_text(fitted, text):
    with pytest.raises(ValueError, match="the description of a data set must be"):
        fitted.card_.with_dataset(text)
    with pytest.raises(ValueError, match="the description of a data set must be"):
        signed(fitted.card_, dataset=text)
