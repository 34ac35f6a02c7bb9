"""`classes_` holds the classes alone; messages name what was typed and what a model has, and no cell of a row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import skdpgen
from skdpgen import MomentSynthesizer, P3GMSynthesizer, PriVAESynthesizer, Schema
from skdpgen.exceptions import SchemaError
from skdpgen.tabular import Categorical, Datetime, Numeric

RNG = np.random.default_rng(0)
N = 3000
FRAME = pd.DataFrame(
    {
        "job": RNG.choice(["clerk", "smith", "rare"], N, p=[0.6, 0.395, 0.005]),
        "rich": RNG.choice(["no", "yes", None], N, p=[0.5, 0.3, 0.2]),
    }
)


@pytest.fixture(scope="module")
def synth():
    with pytest.warns(skdpgen.exceptions.UtilityWarning, match="the classes of the target 'rich' are learned"):
        return MomentSynthesizer(1.0, target="rich", random_state=0).fit(FRAME)


def test_classes_are_told_from_other_and_missing(synth):
    assert synth.classes_.tolist() == ["no", "yes"]
    assert synth.class_ratio_ == pytest.approx([0.5, 0.3], abs=0.05)
    assert set(synth.rest_ratio_) == {"other", None}
    assert synth.rest_ratio_[None] == pytest.approx(0.2, abs=0.05)
    assert synth.class_ratio_.sum() + sum(synth.rest_ratio_.values()) == pytest.approx(1.0)


def test_shares_are_given_in_the_order_of_classes(synth):
    assert set(synth.sample(200, class_ratio="balanced")["rich"]) == {"no", "yes"}
    assert (synth.sample(300, class_ratio=[0.9, 0.1])["rich"] == "no").mean() == pytest.approx(0.9, abs=0.02)
    rich = synth.sample(300, class_ratio={"no": 0.5, None: 0.5})["rich"]
    assert rich.isna().mean() == pytest.approx(0.5, abs=0.02)
    drawn = synth.sample(1000, class_ratio=dict(zip(synth.classes_, synth.class_ratio_)) | synth.rest_ratio_)["rich"]
    assert drawn.isna().mean() == pytest.approx(0.2, abs=0.05)


@pytest.mark.filterwarnings("ignore:many rows lie together")  # x is one value
def test_classes_of_several_targets_are_told_from_other_and_missing():
    fitted = MomentSynthesizer(5.0, target=["rich", "job"]).fit(FRAME.assign(x=1.0))
    assert [classes.tolist() for classes in fitted.classes_] == [["no", "yes"], ["clerk", "smith"]]
    assert fitted.class_ratio_.shape == (2, 2)
    assert all(None in key or "other" in key for key in fitted.rest_ratio_)
    assert fitted.class_ratio_.sum() + sum(fitted.rest_ratio_.values()) == pytest.approx(1.0)
    drawn = fitted.sample(100, class_ratio=np.array([[1, 0], [0, 1]]))
    assert set(zip(drawn["rich"], drawn["job"])) == {("no", "clerk"), ("yes", "smith")}


def test_where_noise_hides_every_class_other_is_the_class():
    with pytest.warns(skdpgen.exceptions.UtilityWarning):
        fitted = MomentSynthesizer(0.01, target="rich").fit(FRAME[:50])
    assert fitted.classes_.tolist() == ["other"]
    assert set(fitted.rest_ratio_) == {None}


def test_a_loaded_model_has_the_same_classes(synth, tmp_path):
    synth.save(tmp_path / "m.safetensors")
    loaded = skdpgen.load(tmp_path / "m.safetensors")
    assert loaded.classes_.tolist() == synth.classes_.tolist()
    assert loaded.rest_ratio_ == synth.rest_ratio_


def test_messages_name_the_value_that_was_typed_and_those_of_the_model(synth):
    with pytest.raises(ValueError, match=r"no level 'cook'; it has 'clerk', 'smith', 'other', missing"):
        synth.sample(5, given={"job": "cook"})
    with pytest.raises(ValueError, match=r"does not have: 'town'; it has 'job', 'rich'"):
        synth.sample(5, given={"town": "x"})
    with pytest.raises(ValueError, match=r"no class 'maybe'.* has 'no', 'yes', 'other', missing"):
        synth.sample(5, class_ratio={"maybe": 1.0})
    with pytest.raises(ValueError, match=r"'rich' has 'no', 'yes', 'other', missing") as raised:
        synth.sample(y=["no", "hunter2"])  # y may be labels of real rows
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ValueError, match="must hold 2 shares"):
        synth.sample(5, class_ratio=[1.0, 1.0, 1.0])


def test_one_class_in_place_of_a_list_is_refused_with_what_to_give(synth):
    with pytest.raises(ValueError, match=r"y must be a list of classes, one for each row; .*: y=\['yes'\] \* n"):
        synth.sample(y="yes")
    with pytest.raises(ValueError, match=r"y=\[3\] \* n"):
        synth.sample(y=3)


def test_classes_asked_of_a_model_without_them_lead_to_given_values():
    rows = pd.DataFrame({"x": np.arange(300) / 300, "size": np.arange(300) / 300})
    schema = Schema([Numeric("x", (0, 1)), Numeric("size", (0, 1))])
    synth = MomentSynthesizer(9.0, schema=schema, target="size").fit(rows)
    with pytest.raises(ValueError, match=r"needs a class-conditional model.*; sample\(n, given=\{\.\.\.\}\) draws"):
        synth.sample(y=[0.5])
    array = P3GMSynthesizer(9.0, bounds=(0, 1)).fit(rows.to_numpy())
    with pytest.raises(ValueError, match=r"with a categorical y or target$"):
        array.sample(y=[0.5])


@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer, PriVAESynthesizer])
def test_a_schema_that_is_a_path_is_refused_with_the_way_to_read_it(model, tmp_path):
    for schema in ("/home/hunter2/schema.json", tmp_path / "hunter2.json", {"columns": []}):
        with pytest.raises(ValueError, match=r"Schema\.load\(path\)") as raised:
            model(schema=schema).fit(FRAME)
        assert "hunter2" not in str(raised.value)


def test_missing_values_of_an_array_lead_to_a_data_frame():
    with pytest.raises(ValueError, match=r"contains NaN.* A DataFrame may hold missing values"):
        MomentSynthesizer().fit(np.array([[1.0, np.nan], [0.0, 1.0]]))


@pytest.mark.filterwarnings("ignore:(nearly all|many) rows:skdpgen.exceptions.UtilityWarning")  # all have one date
@pytest.mark.parametrize("text", ["01.02.2020", "1/2/2020", "02-01-2020", "today", "Jan 2020", "01.02.20"])
def test_dates_that_may_be_two_days_are_refused(text):
    with pytest.raises(SchemaError, match=f"write the date '{text}' as in 2020-12-31"):
        Datetime("x", (text, "2021-01-01"))
    schema = Schema([Datetime("x", ("2019-01-01", "2021-01-01"), resolution="D")])
    fitted = MomentSynthesizer(9.0, schema=schema).fit(pd.DataFrame({"x": pd.to_datetime(["2020-02-01"] * 50)}))
    with pytest.raises(ValueError, match="write the date"):
        fitted.sample(5, given={"x": text})


@pytest.mark.parametrize(
    "text", ["2020-02-01", "2020-02", "2020", "20200201", "2020-02-01T10:30", "2020-02-01 10:30:00.5"]
)
def test_iso_dates_are_read(text):
    assert Datetime("x", (text, "2021-01-01")).bounds[0].startswith("2020-0")


def test_declared_columns_know_their_classes():
    schema = Schema([Numeric("x", (0, 1)), Categorical("y", (0, 1))])
    fitted = MomentSynthesizer(9.0, schema=schema, target="y").fit(
        pd.DataFrame({"x": RNG.random(400), "y": [0, 1] * 200})
    )
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.rest_ratio_ == {}
