"""Constraints by construction and `given`, in fits: every model of tables, files, the command line, charges."""

from __future__ import annotations

import contextlib
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat

import skdpgen
from skdpgen import (
    DataLensSynthesizer,
    DP2VAESynthesizer,
    DPGMSynthesizer,
    DPMERFSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    GPATESynthesizer,
    GSWGANSynthesizer,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PATEGANSynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
    SubsetSGD,
)
from skdpgen.__main__ import main
from skdpgen.exceptions import InvalidInputError, SchemaError, UtilityWarning
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric, Schema

DAY = pd.Timedelta(1, "D")
TOWNS = {"Dallas": "TX", "Austin": "TX", "Albany": "NY"}


def hospital(n, seed=0):
    """Admissions over ten years; stays are exponential with a mean of 5 days."""
    rng = np.random.default_rng(seed)
    admitted = pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3650, n), "D")
    stay = rng.exponential(5, n).round()
    ward = rng.choice(["heart", "lung", "hand"], n, p=[0.5, 0.3, 0.2])
    town = rng.choice(list(TOWNS), n, p=[0.5, 0.2, 0.3])
    dead = rng.random(n) < 0.1
    frame = pd.DataFrame(
        {
            "admitted": admitted,
            "discharged": admitted + pd.to_timedelta(stay, "D"),
            "age": rng.integers(0, 100, n),
            "ward": ward,
            "state": pd.Series(town).map(TOWNS),
            "town": town,
            "drugs": (20 * stay + rng.gamma(2, 50, n)).round(2).clip(0, 1000),
            "care": (90 * stay + rng.gamma(2, 80, n)).round(2).clip(0, 5000),
            "dead": dead,
            "back": np.where(dead, "NO", rng.choice(["NO", "<30", ">30"], n, p=[0.6, 0.1, 0.3])),
        }
    )
    days = {name: frame[name].astype("datetime64[us]") for name in ("admitted", "discharged")}  # of any pandas
    return frame.assign(**days, cost=(frame["drugs"] + frame["care"]).round(2))


SCHEMA = Schema(
    [
        Datetime("admitted", ("2015-01-01", "2024-12-31"), resolution="D"),
        Datetime("discharged", resolution="D"),
        Numeric("age", (0, 110), integer=True),
        Categorical("ward", ("hand", "heart", "lung")),
        Categorical("state", dtype="str"),
        Categorical("town", dtype="str"),
        Numeric("drugs", (0, 1000), decimals=2),
        Numeric("care", (0, 5000), decimals=2),
        Boolean("dead"),
        Categorical("back", ("NO", "<30", ">30")),
        Numeric("cost", decimals=2),
    ]
)
TEXTS = [
    "admitted <= discharged", "determines(town, state)", "cost == drugs + care", "if dead: back == 'NO'",
    "age >= 18 or ward != 'hand'",
]  # fmt: skip
FRAME = hospital(1_500)


@contextlib.contextmanager
def few_steps():
    """The fit to what was released is post-processing: a few of its steps tell as much as all."""
    steps, fit_tables.__kwdefaults__["n_iter"] = fit_tables.__kwdefaults__["n_iter"], 20
    try:
        yield steps
    finally:
        fit_tables.__kwdefaults__["n_iter"] = steps


@pytest.fixture(autouse=True, scope="module")
def short():
    with few_steps() as steps:
        yield steps


def keeps(rows):
    """Whether all rows keep `TEXTS`."""
    assert (rows["admitted"] <= rows["discharged"]).all()
    assert (rows["town"].map(TOWNS) == rows["state"]).all()
    assert ((rows["cost"] - rows["drugs"] - rows["care"]).abs() < 0.005).all()
    assert (~rows["dead"] | (rows["back"] == "NO")).all()
    assert ((rows["age"] >= 18) | (rows["ward"] != "hand")).all()
    assert rows.dtypes.astype(str).to_dict() == FRAME.dtypes.astype(str).to_dict()


@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
def test_the_mean_stay_of_a_hospital_is_within_a_tenth(model, short, monkeypatch):
    monkeypatch.setitem(fit_tables.__kwdefaults__, "n_iter", short)
    frame = hospital(40_000)[["admitted", "age", "ward", "discharged"]]
    schema = Schema([Datetime("admitted", resolution="D"), Datetime("discharged", resolution="D")])
    rows = model(1.0, schema=schema, constraints="admitted <= discharged", random_state=0).fit(frame).sample()
    real, stay = ((d["discharged"] - d["admitted"]) / DAY for d in (frame, rows))
    assert abs(stay.mean() / real.mean() - 1) < 0.1
    assert stay.min() == 0
    assert abs(stay.median() - real.median()) <= 1


_NET = {"sampling_rate": 0.2, "steps": 3, "n_components": 2}
MODELS = {
    "moments": lambda **p: MomentSynthesizer(20.0, constraints=TEXTS, **p),
    "p3gm": lambda **p: P3GMSynthesizer(20.0, constraints=TEXTS, **p),
    "p3gm, target": lambda **p: P3GMSynthesizer(20.0, constraints=TEXTS, target="ward", **p),
    "p3gm, mixture": lambda **p: P3GMSynthesizer(20.0, prior=LatentMixture(n_iter=2), constraints=TEXTS, **p),
    "dp-vae": lambda schema: make_flat(DPVAESynthesizer,
        20.0, schema=schema.constrain(*TEXTS), warm_start_steps=5, **_NET
    ),
    "privae": lambda schema: make_flat(PriVAESynthesizer,
        20.0, schema=schema.constrain(*TEXTS), divergence="mmd", n_groups=2, warm_start_steps=0, **_NET
    ),
    "dp2-vae": lambda schema: DP2VAESynthesizer(
        20.0, schema=schema.constrain(*TEXTS),
        training=SubsetSGD(5, 2, pretrain_steps=1, batch_size=4, warm_start_steps=1), n_components=2,
    ),
    "dp-gm": lambda schema: make_flat(DPGMSynthesizer,
        20.0, schema=schema.constrain(*TEXTS), n_clusters=2, cluster_steps=2, **_NET
    ),
    "dp-sinkhorn": lambda schema: make_flat(DPSinkhornSynthesizer,
        20.0, schema=schema.constrain(*TEXTS), generated_rows=6, hidden_layer_sizes=(4,), **_NET
    ),
    "pate-gan": lambda schema: PATEGANSynthesizer(
        20.0, schema=schema.constrain(*TEXTS), n_teachers=3, steps=2, labelled_rows=6, generator_sizes=(4,)
    ),
    "gs-wgan": lambda schema: GSWGANSynthesizer(
        20.0, schema=schema.constrain(*TEXTS), n_critics=3, steps=2, generated_rows=6, warm_start_steps=1,
        hidden_layer_sizes=(4,), critic_sizes=(4,),
    ),
    "datalens": lambda schema: DataLensSynthesizer(
        20.0, schema=schema.constrain(*TEXTS), n_teachers=3, steps=2, generated_rows=6, n_largest=4, warm_start_steps=1,
        hidden_layer_sizes=(4,), teacher_sizes=(4,),
    ),
    "g-pate": lambda schema: GPATESynthesizer(
        20.0, schema=schema.constrain(*TEXTS), n_teachers=3, steps=2, generated_rows=6, n_projections=2,
        warm_start_steps=1, hidden_layer_sizes=(4,), teacher_sizes=(4,),
    ),
    "dp-merf": lambda schema: DPMERFSynthesizer(
        20.0, schema=schema.constrain(*TEXTS), steps=2, n_frequencies=8, hidden_layer_sizes=(4,)
    ),
}  # fmt: skip


# with few rows, models without tables keep few of the learned combinations, and say so
@pytest.mark.filterwarnings("ignore:learned combinations were not kept:skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize("name", MODELS)
def test_rows_of_every_model_keep_the_constraints_also_from_a_file(name, tmp_path):
    synth = MODELS[name](schema=SCHEMA).fit(FRAME)
    keeps(synth.sample(400))
    synth.save(tmp_path / "m.safetensors")
    again = skdpgen.load(tmp_path / "m.safetensors")
    keeps(again.sample(400, random_state=1))
    pd.testing.assert_frame_equal(again.sample(9, random_state=1), synth.sample(9, random_state=1))
    assert again.schema_ == synth.schema_
    assert again.schema_["discharged"].complete
    assert set(TEXTS[:4]) <= set(again.schema_.constraints)
    said = " ".join(synth.card_["public_assumptions"])
    for text in TEXTS[:4]:
        assert f"constraint, satisfied by construction: {text}" in said


def test_the_card_lists_the_constraints_of_the_parameter_and_how_they_are_satisfied(fitted):
    said = {text.partition(": ")[2]: text for text in fitted.card_["public_assumptions"] if "satisfied by" in text}
    assert set(said) == set(TEXTS)
    constructed = set(fitted.model_.codec.construction.texts)
    assert constructed
    assert constructed < set(TEXTS)
    for text in TEXTS:
        assert ("by construction" if text in constructed else "by drawing again") in said[text]


@pytest.fixture(scope="module")
def fitted():
    return P3GMSynthesizer(20.0, schema=SCHEMA, constraints=TEXTS, target="ward", random_state=0).fit(FRAME)


def test_the_model_may_be_given_values_of_columns_that_are_constructed(fitted):
    rows = fitted.sample(200, given={"town": "Austin", "discharged": ("2018-01-01", "2019-12-31"), "back": "<30"})
    keeps(rows)
    assert (rows["town"] == "Austin").all()
    assert rows["discharged"].between("2018-01-01", "2019-12-31").all()
    assert (rows["back"] == "<30").all()
    assert not rows["dead"].any()
    rows = fitted.sample(50, given={"state": ["NY"], "admitted": "2017-05-05", "cost": (None, 900)})
    keeps(rows)
    assert (rows["state"] == "NY").all()
    assert (rows["admitted"] == "2017-05-05").all()
    assert rows["cost"].max() <= 900
    rows = fitted.sample(y=["heart", "lung"] * 20, given={"cost": (500, None)})
    assert rows["ward"].tolist() == ["heart", "lung"] * 20
    for given, message in (
        ({"town": "Troy"}, "does not have"),
        ({"cost": (-5, 3)}, "within its bounds"),
        ({"discharged": None}, "missing"),
        ({"nothing": 3}, "columns that the model does not have"),
        ({"town": "Austin", "state": "NY"}, "no rows"),
        ({"cost": 12.34}, "200 draws"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted.sample(20, given=given)


def test_given_is_drawn_again_of_a_mixture_and_refused_of_what_has_no_distribution():
    mixture = MODELS["p3gm, mixture"](schema=SCHEMA).fit(FRAME)
    rows = mixture.sample(50, given={"ward": "lung", "age": (30, 60), "town": ["Dallas", "Albany"]})
    assert set(rows["ward"]) == {"lung"}
    assert rows["age"].between(30, 60).all()
    keeps(rows)
    X = np.random.default_rng(0).random((300, 3))
    arrays = P3GMSynthesizer(20.0, bounds=(0, 1)).fit(X)
    assert (arrays.sample(9, given={1: 0.5})[:, 1] == 0.5).all()
    with pytest.raises(ValueError, match="for DataFrames"):
        arrays.set_params(constraints="x > 3").sample(3)


def test_after_the_fit_only_what_is_drawn_again_changes(fitted):
    from sklearn.base import clone

    synth = fitted
    try:
        rows = synth.set_params(constraints=None).sample(2_000)
        assert (rows["admitted"] <= rows["discharged"]).all()
        assert ((rows["age"] < 18) & (rows["ward"] == "hand")).any()
        rows = synth.set_params(constraints=["drugs <= care", "if ward == 'hand': back == 'NO'"]).sample(300)
        assert (rows["drugs"] <= rows["care"]).all()
        assert (rows["back"] == "NO")[rows["ward"] == "hand"].all()
        with pytest.raises(ValueError, match="fit again"):
            synth.set_params(constraints="combinations(ward, town)").sample(3)
    finally:
        synth.set_params(constraints=TEXTS)
    assert clone(synth).constraints == TEXTS


def test_a_constraint_costs_nothing_and_computed_columns_make_room():
    reports = {}
    for name, texts in {"without": None, "gap": TEXTS[0], "sum": TEXTS[2], "pair": "combinations(state, town)"}.items():
        synth = P3GMSynthesizer(2.0, schema=SCHEMA, constraints=texts).fit(FRAME)
        reports[name] = synth.accountant_.report()
        assert abs(synth.accountant_.epsilon_spent() - 2.0) < 1e-3
        assert len(synth.model_.codec.blocks) == len(SCHEMA) - (name in ("sum", "pair"))
    for name, report in reports.items():
        expected = reports["without"]["release"].tolist()
        if name == "sum":  # the one number of unknown bounds is computed: no range is looked for
            expected.remove("ranges")
        assert report["release"].tolist() == expected, name


def test_a_combination_of_one_row_is_not_told():
    frame = FRAME[["state", "town", "age"]].copy()
    frame.loc[3, ["state", "town"]] = "TX", "Albany"
    for _ in range(5):
        with few_steps():
            synth = MomentSynthesizer(5.0, constraints="combinations(state, town)").fit(frame)
        rows = synth.sample(300)
        assert set(zip(rows["state"], rows["town"])) == {(state, town) for town, state in TOWNS.items()}
        assert not any("TX" in text and "Albany" in text for text in synth.model_.codec.blocks[0].levels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"constraints": "determines(town, nobody)"}, "no column"),
        ({"constraints": "combinations(ward, town)", "target": "ward"}, "target"),
        ({"constraints": "discharged <= admitted - 99999"}, None),
        ({"constraints": "cost == drugs + care", "importance": {"cost": 4.0}}, "importance"),
        ({"constraints": "age <= drugs - 2000"}, "no range"),
        ({"constraints": 3}, "constraints"),
        ({"constraints": [3]}, "must be a text"),
        ({"constraints": ["age > 3"] * 201}, "200"),
    ],
)
def test_a_refused_constraint_costs_nothing(change, message):
    books = PrivacyAccountant(5.0)
    synth = MomentSynthesizer(1.0, schema=SCHEMA, accountant=books, **change)
    if message is None:
        return
    with pytest.raises(ValueError, match=message):
        synth.fit(FRAME)
    assert not books.charges


def test_a_value_of_another_kind_than_the_learned_categories_is_refused_before_the_charge():
    frame = pd.DataFrame({"a": np.arange(400.0) % 7, "b": pd.Series([1, 2] * 200, dtype=object)})
    books = PrivacyAccountant(9.0)
    for source in (frame, [frame.iloc[:200], frame.iloc[200:]]):
        synth = MomentSynthesizer(1.0, constraints="if a > 99: b == 'none'", accountant=books)
        with pytest.raises(SchemaError, match="sets a value of another kind"):
            synth.fit(source)
    assert not books.charges


def test_rows_that_violate_a_constraint_are_clipped_or_refused_before_the_charge():
    frame = FRAME.assign(discharged=FRAME["discharged"].mask(FRAME.index < 99, FRAME["admitted"] - 5 * DAY))
    books = PrivacyAccountant(9.0)
    synth = P3GMSynthesizer(1.0, schema=SCHEMA, constraints=TEXTS, on_invalid="raise", accountant=books)
    with pytest.raises(SchemaError, match="rows violate the constraint 'admitted <= discharged'") as raised:
        synth.fit(frame)
    assert "20" not in str(raised.value)
    assert not books.charges
    keeps(synth.set_params(on_invalid="clip").fit(frame).sample(200))


def test_constraints_are_for_tables():
    with pytest.raises(InvalidInputError, match="constraints=, which is for DataFrames"):
        P3GMSynthesizer(constraints="a <= b").fit(np.random.default_rng(0).random((50, 2)))


def test_a_table_in_chunks_has_the_model_of_the_whole():
    schema = SCHEMA.constrain(*TEXTS)
    chunks = [FRAME.iloc[:700], FRAME.iloc[700:]]
    keeps(MomentSynthesizer(20.0, schema=schema).fit(chunks).sample(100))


def test_y_may_have_a_constraint():
    schema = Schema([Datetime("admitted", resolution="D"), Datetime("discharged", resolution="D")])
    synth = P3GMSynthesizer(20.0, constraints="admitted <= discharged", target_type="numeric")
    columns = FRAME[["age", "ward", "admitted"]]
    rows, y = synth.set_params(schema=schema).fit(columns, FRAME["discharged"]).sample(100)
    assert list(rows) == list(columns)
    assert y.name == "discharged"
    assert (rows["admitted"] <= y).all()
    assert np.isfinite(synth.score(columns, FRAME["discharged"]))
    assert np.isfinite(synth.score(columns))


def test_a_model_file_whose_constraints_do_not_fit_its_columns_is_refused(fitted, tmp_path):
    from safetensors.numpy import load, save

    path = tmp_path / "m.safetensors"
    fitted.save(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]["skdpgen"]
    for change in (
        lambda codec: codec["table"]["constraints"].append("combinations(back, dead)"),
        lambda codec: codec["table"]["constraints"].remove("cost == drugs + care"),
        lambda codec: codec["table"]["columns"].pop(),
        lambda codec: codec["table"].update(constraints=["(" * 50_000]),
        lambda codec: codec.update(table=[]),
        lambda codec: codec["schema"]["columns"][4].update(categories=["[3", "null"]),
        lambda codec: codec["schema"]["columns"][4].update(categories=['[["a"], {"b": 1}]']),
        lambda codec: codec["schema"]["columns"][4].update(categories=['["TX"]']),
    ):
        state = json.loads(header)
        codec = state["state"]["model"]["codec"]
        before = json.dumps(codec)
        change(codec)
        assert json.dumps(codec) != before
        path.write_bytes(save(load(content), metadata={"skdpgen": json.dumps(state)}))
        with pytest.raises(ValueError, match=r"."):  # and no other error
            skdpgen.load(path)


def test_the_command_line_takes_constraints_and_conditions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("in.csv", index=False)
    SCHEMA.constrain(*TEXTS[1:]).save("s.json")
    assert json.loads((tmp_path / "s.json").read_text())["constraints"] == TEXTS[1:]
    command = ["synthesize", "in.csv", "--epsilon", "20", "--schema", "s.json", "--target", "ward", "--output", "o.csv"]
    command += ["--constraint", TEXTS[0], "--constraint", "care <= cost", "--save-model", "m.safetensors"]
    assert main(command) == 0
    dates = {"parse_dates": ["admitted", "discharged"]}
    rows = pd.read_csv("o.csv", **dates).astype({"state": "object", "town": "object"})
    assert (rows["admitted"] <= rows["discharged"]).all()
    assert (rows["care"] <= rows["cost"]).all()
    draw = ["sample", "m.safetensors", "--rows", "90", "--output", "r.csv"]
    given = ["--given", "town=Austin", "--given", "town=Albany", "--given", "admitted=2016-01-01..2016-12-31"]
    assert main([*draw, *given, "--given", "age=40..", "--class-ratio", "balanced"]) == 0
    rows = pd.read_csv("r.csv", **dates)
    assert set(rows["town"]) == {"Austin", "Albany"}
    assert rows["admitted"].dt.year.unique().tolist() == [2016]
    assert rows["age"].min() >= 40
    assert rows["ward"].value_counts().between(20, 40).all()
    shares = ["--class-ratio", "heart=0.5", "--class-ratio", "lung=0.5", "--class-ratio", "hand=0"]
    assert main([*draw, *shares]) == 0
    assert set(pd.read_csv("r.csv")["ward"]) == {"heart", "lung"}
    capsys.readouterr()
    for wrong, message in (
        (["--given", "town"], "COLUMN=VALUE"),
        (["--given", "city=x"], "no column 'city'; it has"),
        (["--given", "town=Troy"], "no category 'Troy'; it has"),
        (["--given", "age=x"], "no number"),
        (["--given", "age=3", "--given", "age=4"], "twice"),
        (["--class-ratio", "foot=1"], "no class 'foot'; it has"),
        (["--class-ratio", "heart"], "balanced, or CLASS=SHARE"),
    ):
        assert main([*draw, *wrong]) == 2
        assert message in capsys.readouterr().err
    assert main([*command, "--set", "constraints=['age > 3']"]) == 2
    assert "same thing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        (["a > 0.6 or b == 'u'", "b == 'v'", "a < 0.5"], True),
        (["b == 'u' or b == 'v'", "b == 'w'"], True),
        (["a + c > 3"], True),
        (["a > 0.999 or c > 0.999", "b != 'w'"], False),
        (["a == 0.25 or c == 0.75"], False),
        (["a > 0.6 or b == 'u'", "open > 5 or open < 2"], False),
    ],
)
def test_conditions_that_contradict_what_is_declared_are_told_before_the_charge(constraints, said):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.random(60) for name in ("a", "c", "open")} | {"b": np.tile(["u", "v", "w"], 20)})
    schema = Schema([Numeric("a", (0, 1)), Numeric("c", (0, 1)), Categorical("b", ["u", "v", "w"])])
    synth = MomentSynthesizer(1.0, schema=schema, constraints=constraints, accountant=PrivacyAccountant(2.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        synth.plan(frame)
    assert any("sample will find no row" in str(warning.message) for warning in caught) == said
    if said:  # where warnings are errors, nothing is charged
        with pytest.raises(UtilityWarning, match="sample will find no row"):
            synth.fit(frame)
        assert not synth.accountant.entries


@pytest.mark.parametrize(
    "constraint",
    [
        "combinations(size, code)",
        "price == {1: 10, 2: 20, 'other': 5}[code]",
        "if late: code == 'other'",
        "if late: code is None",
        "if code == 1: size == 3",
    ],
)
def test_other_may_be_text_beside_codes_that_are_numbers(constraint):
    rng, n = np.random.default_rng(0), 400
    columns = {"code": rng.choice([1, 2, 7], n), "size": rng.choice([1, 2, 3], n), "price": rng.choice([5, 10, 20], n)}
    frame = pd.DataFrame({**columns, "late": rng.random(n) < 0.5})
    schema = Schema([Categorical("code", (1, 2), other="other", missing=True), Categorical("size", (1, 2, 3))])
    synth = MomentSynthesizer(50.0, schema=schema, constraints=[constraint]).fit(frame)
    sample = synth.sample(300)
    assert {1, 2, "other"} <= set(sample["code"].dropna())
    assert len(MomentSynthesizer(50.0, schema=schema).fit(sample).sample(5)) == 5
