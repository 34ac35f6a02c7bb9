"""Rules on columns of learned categories: what they set, and what others leave, is settled before the charge."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import skdpgen
from skdpgen import PrivacyAccountant
from skdpgen.exceptions import SchemaError, UtilityWarning
from skdpgen.synthesizers import MomentSynthesizer
from skdpgen.tabular import Boolean, Categorical, Numeric, Schema

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
_RNG = np.random.default_rng(0)
_FEW = pd.DataFrame({"code": _RNG.integers(0, 3, 60), "flag": _RNG.random(60) < 0.3, "a": _RNG.normal(size=60)})
_OPEN = Schema([Categorical("code"), Categorical("flag")])


@pytest.mark.parametrize("rule", ["if a > 0: code == 7", "if a > 0: flag == True", "if a > 0: code == 1.5"])
def test_a_rule_gives_the_kind_of_a_column_none_of_whose_categories_is_released(rule):
    fitted = MomentSynthesizer(1.0, random_state=0, schema=_OPEN, constraints=[rule]).fit(_FEW)
    rows = fitted.sample(300, random_state=1)
    name, value = rule.split(": ")[1].split(" == ")
    assert (rows.loc[rows["a"] > 0, name].astype(float) == float(value == "True" or value)).all()


def test_a_rule_may_set_a_fraction_where_whole_numbers_are_released():
    rows = pd.DataFrame({"code": _RNG.integers(0, 3, 3000), "a": _RNG.normal(size=3000)})
    schema, rule = Schema([Categorical("code")]), ["if a > 3.2: code == 1.5"]
    fitted = MomentSynthesizer(5.0, random_state=0, schema=schema, constraints=rule).fit(rows)
    assert set(fitted.sample(500, random_state=1)["code"].unique()) >= {0, 1, 2}


def test_a_column_of_eight_bits_may_have_all_their_values():
    rows = pd.DataFrame({"u": (np.arange(60_000) % 256).astype("uint8"), "q": _RNG.choice(["a", "b"], 60_000)})
    schema = Schema([Categorical("u", dtype="uint8")])
    fitted = MomentSynthesizer(20.0, random_state=0, target="q", schema=schema).fit(rows)
    column = fitted.schema_["u"]
    assert len(column.categories) == 255
    assert column.other not in column.categories
    assert fitted.sample(50)["u"].dtype == np.uint8


@pytest.mark.parametrize("rule", ["if flag: a == 80", "if a > 70: flag == True"])
def test_a_rule_beyond_what_the_others_leave_is_refused_before_the_charge(rule):
    a = _RNG.uniform(0, 40, 3000).round(1)
    rows = pd.DataFrame({"a": a, "flag": _RNG.random(3000) < 0.3, "b": (a + 5).clip(max=50)})
    schema = Schema([Numeric("a", (0, 100), decimals=1), Boolean("flag"), Numeric("b", (0, 50), decimals=1)])
    accountant = PrivacyAccountant(1.0)
    synthesizer = MomentSynthesizer(1.0, accountant=accountant, schema=schema)
    with pytest.raises(SchemaError, match="contradicts the other constraints"):
        synthesizer.set_params(constraints=["a <= b", rule]).fit(rows)
    assert not len(accountant.report())


def test_constraints_that_agree_can_be_loaded_again(tmp_path):
    a = _RNG.uniform(0, 40, 3000).round(1)
    rows = pd.DataFrame({"a": a, "flag": _RNG.random(3000) < 0.3, "b": (a + 5).clip(max=50)})
    schema = Schema([Numeric("a", (0, 100), decimals=1), Boolean("flag"), Numeric("b", (0, 50), decimals=1)])
    fitted = MomentSynthesizer(1.0, random_state=0, schema=schema, constraints=["a <= b", "if flag: a == 40"]).fit(rows)
    fitted.save(tmp_path / "model.safetensors")
    loaded = skdpgen.load(tmp_path / "model.safetensors")
    pd.testing.assert_frame_equal(loaded.sample(20, random_state=0), fitted.sample(20, random_state=0))


@pytest.mark.parametrize(
    "condition",
    ["code < 2", "code + a < 1000", "-code < a", "code in [0, 1, 2]", "flag == True", "not flag or a > -9", "a < code"],
)
def test_a_condition_leaves_open_a_column_none_of_whose_categories_is_released(condition, tmp_path):
    fitted = MomentSynthesizer(1.0, random_state=0, schema=_OPEN, constraints=[condition]).fit(_FEW)
    assert not fitted.schema_["code"].categories
    assert len(fitted.sample(40, random_state=1)) == 40
    assert len(fitted.sample(10, given={"a": (0, None)}, random_state=1)) == 10
    fitted.save(tmp_path / "model.safetensors")
    assert len(skdpgen.load(tmp_path / "model.safetensors").sample(40, random_state=1)) == 40


def test_a_rule_does_not_hold_where_its_condition_is_open():
    rows = _FEW.assign(q=np.where(_FEW["flag"], np.nan, 1.0))
    schema = Schema([*_OPEN.columns, Numeric("q", (0, 2), missing=True)])
    fitted = MomentSynthesizer(1.0, random_state=0, schema=schema, constraints=["if flag: q is None"]).fit(rows)
    assert not fitted.schema_["flag"].categories
    assert fitted.sample(200, random_state=1)["q"].notna().any()


def test_conditions_still_refuse_rows_where_categories_are_released():
    rows = pd.DataFrame({"code": _RNG.integers(0, 3, 3000), "a": _RNG.normal(size=3000)})
    fitted = MomentSynthesizer(5.0, random_state=0, schema=Schema([Categorical("code")]), constraints=["code < 2"])
    assert (fitted.fit(rows[rows["code"] < 2]).sample(200, random_state=1)["code"] < 2).all()


@pytest.mark.parametrize("schema", [None, Schema([Categorical("k", ("x", "y")), Numeric("a", (0, 8), integer=True)])])
def test_a_difference_may_start_from_a_column_of_combinations(schema, tmp_path):
    a = _RNG.integers(0, 9, 3000)
    rows = pd.DataFrame({"k": np.where(a < 5, "x", "y"), "a": a, "b": a + 1 + _RNG.integers(0, 5, 3000)})
    rules = ["combinations(k, a)", "b >= a + 1"]
    fitted = MomentSynthesizer(5.0, random_state=0, schema=schema, constraints=rules).fit(rows)
    fitted.save(tmp_path / "model.safetensors")
    drawn = skdpgen.load(tmp_path / "model.safetensors").sample(300, random_state=1)
    assert (drawn["b"] >= drawn["a"] + 1).all()
    assert ((drawn["a"] < 5) == (drawn["k"] == "x")).all()


def test_learned_combinations_say_before_the_charge_how_many_rows_they_need():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": rng.integers(0, 60, 600)})
    frame = frame.assign(region=(frame["town"] // 10).map(str), town=frame["town"].map(str))
    schema = Schema([Categorical("town"), Categorical("region")], ["combinations(region, town)"])
    ledger = PrivacyAccountant(0.02)
    said = "combinations of 'region', 'town' are learned: those of fewer than [0-9]+ rows are usually lost"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        with pytest.raises(UtilityWarning, match=said):
            MomentSynthesizer(0.02, schema=schema, accountant=ledger).fit(frame)
    assert not ledger.charges
    towns = ", ".join(f"('{k // 10}', '{k}')" for k in range(60))
    declared = replace(schema, constraints=[f"(region, town) in [{towns}]"])
    with warnings.catch_warnings(record=True) as warned:
        MomentSynthesizer(0.02, schema=declared, accountant=ledger).fit(frame)
    assert not any("combinations" in str(one.message) for one in warned)
    assert ledger.charges
