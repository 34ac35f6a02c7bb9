"""MomentSynthesizer: tables and arrays in and out, several targets, rows given some columns, constraints."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import skdpgen
from skdpgen import MomentSynthesizer, PrivacyAccountant, Schema
from skdpgen.exceptions import InvalidInputError
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.synthesizers import _frame_model
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric
from skdpgen.utils.watching import watch_releases

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

RNG = np.random.default_rng(5)
N = 2000
SICK = RNG.random(N) < 0.4
TOWN = RNG.choice(["north", "south", "west"], N, p=[0.5, 0.3, 0.2])
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, N),
        "weight": RNG.normal(70, 8, N) + 20 * SICK,
        "town": TOWN,
        "sick": SICK,
        "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 1000, N), "D"),
        "drug": np.where(SICK & (TOWN == "north"), "a", np.where(SICK, "b", "none")),
    }
)
FRAME.loc[::9, "weight"] = np.nan
SCHEMA = Schema(
    [
        Numeric("age", (18, 90), integer=True, dtype="int64"),
        Numeric("weight", (20, 150), missing=True, dtype="float64"),
        Categorical("town", ("north", "south", "west"), dtype=str(FRAME["town"].dtype)),
        Boolean("sick", dtype="bool"),
        Datetime("seen", ("2020-01-01", "2022-12-31"), resolution="D", dtype=str(FRAME["seen"].dtype)),
        Categorical("drug", ("a", "b", "none"), dtype=str(FRAME["drug"].dtype)),
    ]
)


@pytest.fixture(autouse=True, scope="module")
def _few_steps():
    """Two restarts of sixty steps: these are claims about the interface."""
    defaults = fit_tables.__kwdefaults__
    before = dict(defaults)
    defaults.update(n_iter=60, n_restarts=2)
    yield
    defaults.update(before)


@pytest.fixture(scope="module")
def fitted():
    return MomentSynthesizer(20.0, schema=SCHEMA, target="sick", random_state=0).fit(FRAME)


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["declared", "learned"])
@pytest.mark.parametrize("target", [None, "sick", "weight", ["sick", "town"], ("town", "weight")], ids=str)
@pytest.mark.usefixtures("short_fits")
def test_tables_come_back_as_they_went_in(schema, target):
    synth = MomentSynthesizer(10.0, schema=schema, target=target).fit(FRAME)
    drawn = synth.sample(300)
    assert list(drawn.columns) == list(FRAME.columns)
    assert drawn.dtypes.astype(str).to_dict() == FRAME.dtypes.astype(str).to_dict()
    assert len(drawn) == 300
    assert abs(len(synth.sample()) - N) < 200
    synth.card_.verify()
    assert synth.accountant_.epsilon_spent() == pytest.approx(10.0, rel=1e-3)
    assert np.isfinite(synth.score(FRAME))


def test_several_targets_are_modelled_by_all_their_combinations():
    synth = MomentSynthesizer(30.0, schema=SCHEMA, target=["sick", "town"]).fit(FRAME)
    assert [classes.tolist() for classes in synth.classes_] == [[False, True], ["north", "south", "west"]]
    share = pd.crosstab(FRAME["sick"], FRAME["town"], normalize=True).to_numpy()
    np.testing.assert_allclose(synth.class_ratio_, share, atol=0.02)
    drawn = synth.sample(600, y=[(True, "north"), (False, "west")] * 300)
    assert (drawn["town"] == np.where(np.arange(600) % 2, "west", "north")).all()
    assert (drawn.loc[drawn["sick"], "drug"] == "a").mean() > 0.7  # a law of three columns
    pd.testing.assert_frame_equal(
        synth.sample(y=FRAME[["sick", "town"]][:40], random_state=1)[["sick", "town"]], FRAME[["sick", "town"]][:40]
    )
    assert (synth.sample(50, class_ratio={(True, "west"): 2.0})["town"] == "west").all()
    ratio = np.zeros((2, 3))
    ratio[0, 1] = 1
    assert (synth.sample(50, class_ratio=ratio)["town"] == "south").all()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (["sick", "nobody"], "not a column"),
        (["sick", "sick"], "twice"),
        ("nobody", "not a column"),
    ],
)
def test_targets_that_are_not_there_are_refused_before_the_charge(target, message):
    books = PrivacyAccountant(5.0)
    with pytest.raises(InvalidInputError, match=message):
        MomentSynthesizer(1.0, target=target, accountant=books).fit(FRAME)
    with pytest.raises(InvalidInputError, match="several in the schema"):
        MomentSynthesizer(1.0, target=["sick", "town"], classes=["a"], accountant=books).fit(FRAME)
    assert not books.charges


# ---- rows given some of their columns ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "holds"),
    [
        ({"town": "west"}, lambda d: d["town"] == "west"),
        ({"town": ["west", "north"]}, lambda d: d["town"].isin(["west", "north"])),
        ({"age": 33}, lambda d: d["age"] == 33),
        ({"age": (30, 40)}, lambda d: d["age"].between(30, 40)),
        ({"age": (None, 25), "sick": True}, lambda d: (d["age"] <= 25) & d["sick"]),
        ({"weight": 71.5}, lambda d: d["weight"] == 71.5),
        ({"weight": (80, None)}, lambda d: d["weight"] >= 80),
        ({"weight": None}, lambda d: d["weight"].isna()),
        ({"seen": ("2021-01-01", "2021-03-01")}, lambda d: d["seen"].between("2021-01-01", "2021-03-01")),
        ({"seen": "2021-05-05", "drug": "b"}, lambda d: (d["seen"] == "2021-05-05") & (d["drug"] == "b")),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_rows_have_what_is_given(fitted, given, holds):
    drawn = fitted.sample(400, given=given)
    assert len(drawn) == 400
    assert holds(drawn).all()
    assert drawn.dtypes.astype(str).to_dict() == FRAME.dtypes.astype(str).to_dict()


@pytest.mark.parametrize(
    ("given", "mask"),
    [
        ({"town": "north", "drug": "a"}, lambda d: (d["town"] == "north") & (d["drug"] == "a")),
        ({"weight": (85, 150)}, lambda d: d["weight"].between(85, 150)),
        ({"age": (40, 43)}, lambda d: d["age"].between(40, 43)),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_rows_given_columns_follow_the_law_of_such_rows_in_a_plain_sample(fitted, given, mask):
    plain, drawn = fitted.sample(60_000, random_state=0), fitted.sample(20_000, given=given, random_state=1)
    plain = plain[mask(plain)]
    for name in ("sick", "town", "drug"):
        one, other = (d[name].value_counts(normalize=True) for d in (plain, drawn))
        assert one.sub(other, fill_value=0).abs().max() < 0.04
    for name in ("age", "weight"):
        spread = plain[name].std() + 0.3
        assert abs(plain[name].mean() - drawn[name].mean()) < 0.12 * spread
        assert drawn[name].std() == pytest.approx(plain[name].std(), rel=0.15, abs=0.2)


def test_given_and_classes_go_together(fitted):
    drawn = fitted.sample(y=[True, False] * 100, given={"town": "south"})
    assert (drawn["sick"] == ([True, False] * 100)).all()
    assert (drawn["town"] == "south").all()
    with pytest.raises(ValueError, match="given excludes"):
        fitted.sample(y=[True], given={"sick": False})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nobody": 1}, "columns that the model does not have"),
        ({"town": "east"}, "does not have"),
        ({"age": 200}, "within its bounds"),
        ({"age": (50, 40)}, "within its bounds"),
        ({"age": "old"}, "is no number"),
        ({"age": None}, "does not allow"),
        ({}, "at least one"),
        ("town", "dict"),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_what_the_model_does_not_have_cannot_be_given(fitted, given, message):
    with pytest.raises(ValueError, match=message):
        fitted.sample(5, given=given)


def test_y_that_came_apart_can_be_given_as_a_column():
    synth = MomentSynthesizer(20.0).fit(FRAME[["age", "weight"]], pd.Series(SICK, name="sick"))
    rows, y = synth.sample(200, given={"sick": True, "weight": (60, 70)})
    assert y.all()
    assert rows["weight"].between(60, 70).all()


# ---- constraints ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("constraint", "holds"),
    [
        ("age >= 30 or drug != 'a'", lambda d: (d["age"] >= 30) | (d["drug"] != "a")),
        ("not (sick and town == 'west')", lambda d: ~(d["sick"] & (d["town"] == "west"))),
        ("40 <= weight <= 100", lambda d: d["weight"].isna() | d["weight"].between(40, 100)),
        ("weight / 2 < age + 10", lambda d: d["weight"].isna() | (d["weight"] / 2 < d["age"] + 10)),
        ("town in ['north', 'south']", lambda d: d["town"].isin(["north", "south"])),
        ("town not in ('west',)", lambda d: d["town"] != "west"),
        ("`seen` >= '2020-06-01'", lambda d: d["seen"] >= "2020-06-01"),
        ("(drug == 'none') == (not sick)", lambda d: (d["drug"] == "none") == ~d["sick"]),
    ],
)
@pytest.mark.usefixtures("short_fits")
def test_every_row_drawn_keeps_the_constraints(constraint, holds, tmp_path):
    synth = MomentSynthesizer(20.0, schema=SCHEMA, target="sick", constraints=[constraint]).fit(FRAME)
    synth.save(tmp_path / "m.safetensors")
    again = skdpgen.load(tmp_path / "m.safetensors")
    for drawn in (
        synth.sample(500),
        synth.sample(y=[True, False] * 50),
        again.sample(300, random_state=3),
        synth.sample(100, given={"age": (40, 60), "town": "north"}),
    ):
        assert holds(drawn).all()
        assert drawn.dtypes.astype(str).to_dict() == FRAME.dtypes.astype(str).to_dict()
    assert any("constraints" in text for text in synth.card_["public_assumptions"])


def test_rows_that_keep_a_constraint_keep_the_class_asked_for_and_y_its_place():
    synth = MomentSynthesizer(20.0, constraints="age > 50 or answer == 'no'").fit(
        FRAME[["age", "town"]], pd.Series(np.where(SICK, "yes", "no"), name="answer")
    )
    rows, y = synth.sample(y=["yes", "no", "yes"] * 40)
    assert y.tolist() == ["yes", "no", "yes"] * 40
    assert rows["age"][y == "yes"].min() > 50
    assert rows["age"][y == "no"].min() < 30


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("age >", "cannot be read"),
        ("nobody > 3", "no column"),
        ("__import__('os').system('x')", "no comparison"),
        ("age.max() > 3", "no comparison"),
        ("sick", None),
        ("seen - '2020-01-01' <= 30", "different kinds"),
        ("age", "different kinds"),
        ("age == '30'", None),
        ("town > 3", "different kinds"),
        ("seen > 3", "different kinds"),
        ("seen > 'yesterday or so'", "different kinds"),
        ("town == 'North'", "'North', which is no category of 'town'"),
        ("age < 30 or drug in ['a', 'c']", "'c', which is no category of 'drug'"),
        ("town > 'z'", "holds for no category of 'town'"),
        ("town == drug", "holds for no category of 'town' and 'drug'"),
        ("drug is None or age > 30", "cannot ask whether a value is missing"),
        ("if drug is not None: age == 30", "cannot ask whether a value is missing"),
        ("if age > 30: drug != None", "after the colon stands"),
        ("age > 100", "no value within the bounds of 'age'"),
        ("'2019-06-01' >= seen", "no value within the bounds of 'seen'"),
        ("age + 1", "no condition"),
        ("town in 'north'", "goes with a list"),
        ("age // 2 > 3", "no comparison"),
        ("age ** 7 > 3", "exponent must be 2, 3 or 4"),
        (3, "a text"),
    ],
)
def test_constraints_are_comparisons_and_nothing_else(constraint, message):
    books = PrivacyAccountant(5.0)
    synth = MomentSynthesizer(1.0, schema=SCHEMA, constraints=[constraint], accountant=books)
    if message is None:
        synth.fit(FRAME)
        return
    with pytest.raises(ValueError, match=message):
        synth.fit(FRAME)
    assert not books.charges


def test_constraints_that_no_row_keeps_end_in_an_error():
    synth = MomentSynthesizer(5.0, schema=SCHEMA, constraints="age < 30 and age > 80").fit(FRAME)
    with pytest.raises(ValueError, match="20 of 20 rows still violate a constraint"):
        synth.sample(20)
    # what is paid for is not lost
    assert synth.set_params(constraints="age < 30").sample(20)["age"].max() < 30
    assert len(synth.set_params(constraints=None).sample(20)) == 20
    for wrong, message in (("nobody < 30", "no column"), ("town < 30", "different kinds")):
        with pytest.raises(ValueError, match=message):
            synth.set_params(constraints=wrong).sample(20)


@pytest.mark.parametrize("dtype", ["datetime64[us]", "datetime64[ns]", "datetime64[us, Europe/Paris]"])
def test_numbers_beside_dates_are_days(dtype):
    start = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 300, N), "D"))
    stay = RNG.integers(0, 9, N)
    frame = pd.DataFrame({"came": start, "left": start + pd.to_timedelta(stay, "D"), "stay": stay})
    if "Paris" in dtype:
        frame = frame.assign(
            came=frame["came"].dt.tz_localize("Europe/Paris"), left=frame["left"].dt.tz_localize("Europe/Paris")
        )
    frame = frame.astype({"came": dtype, "left": dtype})
    texts = ["0 <= left - came", "left - came <= 30", "left <= came + 20", "came + stay <= left + 5"]
    drawn = MomentSynthesizer(20.0, constraints=texts).fit(frame).sample(300)
    days = (drawn["left"] - drawn["came"]) / pd.Timedelta(1, "D")
    assert days.between(0, 20).all()
    assert (drawn["stay"] <= days + 5).all()


@pytest.mark.parametrize("name", ["town", "drug", "code"])
def test_of_an_open_column_whatever_may_be_learned_is_thought_of(name):
    frame = FRAME.assign(code=pd.Series(RNG.choice([1, 2, 3], N)).astype("category"))[["age", name]]
    text = "code in [1, 2]" if name == "code" else f"{name} != 'west'"
    drawn = MomentSynthesizer(20.0, constraints=text).fit(frame).sample(50)
    assert (drawn[name].isin([1, 2]) if name == "code" else drawn[name] != "west").all()


# ---- importance ----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("short_fits")
def test_importance_lowers_the_noise_of_a_columns_tables_and_raises_that_of_others(monkeypatch):
    seen = {}
    from skdpgen.synthesizers import _frame_model

    def watched(released, noise_sd, *args, **kwargs):
        seen[len(seen)] = noise_sd
        return fit_tables(released, noise_sd, *args, **kwargs)

    monkeypatch.setattr(_frame_model, "fit_tables", watched)
    for importance in (None, {"age": 8.0}):
        MomentSynthesizer(5.0, schema=SCHEMA, target="sick", importance=importance).fit(FRAME)
    plain, wanted = seen[0], seen[1]
    assert wanted.one_way[0, 0] < 0.8 * plain.one_way[0, 0]
    assert wanted.one_way[0, -1] > 1.05 * plain.one_way[0, -1]
    assert wanted.pairs[0, 0, -1] < 0.9 * plain.pairs[0, 0, -1]


@pytest.mark.parametrize(
    "importance",
    [
        {"nobody": 2.0}, {"age": 0.0}, {"age": np.inf}, {"age": "much"}, {"age": True}, {"age": 1e-46}, {"age": 1e7},
        {"age": 10**400},
    ],
)  # fmt: skip
def test_importance_is_a_positive_number_a_column(importance):
    books = PrivacyAccountant(5.0)
    with pytest.raises(ValueError, match="importance="):
        MomentSynthesizer(1.0, importance=importance, accountant=books).fit(FRAME)
    assert not books.charges


# ---- arrays --------------------------------------------------------------------------------------------------------
def _array():
    y = RNG.integers(0, 3, 3000)
    X = RNG.normal(size=(3000, 4)) * 0.15 + y[:, None] * [0.5, 0.2, 0.0, 0.0]
    X[:, 3] = X[:, 2] + 0.05 * RNG.normal(size=3000)
    return np.clip(X, -1, 2), y


X, Y = _array()


@pytest.mark.parametrize("y", [None, Y, X[:, 0], pd.Series(Y, name="kind")], ids=["none", "ints", "floats", "series"])
def test_arrays_come_back_with_y_where_there_was_one(y):
    synth = MomentSynthesizer(5.0, bounds=(-1, 2)).fit(X, y)
    drawn = synth.sample(200)
    rows = drawn if y is None else drawn[0]
    assert rows.shape == (200, 4)
    assert rows.min() >= -1
    assert rows.max() <= 2
    if y is not None:
        assert isinstance(drawn[1], type(y))
    assert np.isfinite(synth.score(X[:50], None if y is None else y[:50]))


def test_rows_of_arrays_given_columns_follow_them():
    synth = MomentSynthesizer(50.0, bounds=(-1, 2)).fit(X, Y)
    rows, y = synth.sample(4000, given={0: 1.0, 2: 0.2})
    assert (rows[:, 0] == 1.0).all()
    assert (rows[:, 2] == 0.2).all()
    assert (y == 2).mean() > 0.9  # the class that has such values
    assert rows[:, 3].mean() == pytest.approx(0.2, abs=0.05)
    for given in ({9: 1.0}, {"a": 1.0}, {0: 5.0}, {0: (0, 1)}, {}, {True: 1.0}):
        with pytest.raises(ValueError, match="given"):
            synth.sample(3, given=given)


def test_images_are_modelled_by_their_class():
    images = RNG.integers(0, 256, (400, 36)).astype(np.uint8)
    labels = RNG.integers(0, 2, 400)
    images[labels == 1, :18] //= 8
    synth = MomentSynthesizer(30.0, bounds=(0, 255), image_shape=(6, 6)).fit(images, labels)
    rows, y = synth.sample(300)
    assert rows[y == 1, :18].mean() < 0.6 * rows[y == 0, :18].mean()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"schema": SCHEMA}, "for DataFrames"),
        ({"target": "age"}, "for DataFrames"),
        ({"constraints": "age > 1"}, "for DataFrames"),
        ({"importance": {"age": 2.0}}, "for DataFrames"),
        ({"n_components": 9}, "at most 4"),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_parameters_of_tables_are_refused_for_arrays(parameters, message):
    books = PrivacyAccountant(5.0)
    with pytest.raises(InvalidInputError, match=message):
        MomentSynthesizer(1.0, accountant=books, **parameters).fit(X)
    assert not books.charges


@pytest.mark.parametrize(("limit", "value"), [("_VISIBLE", 0.0), ("_VISIBLE", 1e9), ("_MOST_TRIPLES", 0)])
def test_the_share_of_triples_is_spent_once_whether_the_noise_hides_them_or_not(limit, value):
    """On them, or on the moments again: what decides is known before either is released."""
    released = []
    with pytest.MonkeyPatch.context() as patch, watch_releases(lambda *release: released.append(release[0].shape)):
        patch.setattr(_frame_model, limit, value)
        patch.setitem(fit_tables.__kwdefaults__, "n_iter", 2)
        fitted = MomentSynthesizer(20.0, schema=SCHEMA).fit(FRAME)
    charged = [row.count for charge in fitted.accountant_.charges for row in charge.releases]
    assert len(released) == sum(charged) == 3
    assert (released[-1] == released[-2]) == (value != 0.0 or limit != "_VISIBLE")


def test_a_model_of_a_y_that_has_a_number_for_its_name_is_saved(tmp_path):
    """pandas gives the last column of such a frame an integer of numpy as its name, which JSON does not know."""
    frame = FRAME[["age", "sick"]].set_axis([0, 1], axis=1)
    made = MomentSynthesizer(np.inf, random_state=0).fit(frame[[0]], frame[1].rename(np.int64(1)))
    made.save(tmp_path / "m.safetensors")
    again = skdpgen.load(tmp_path / "m.safetensors")
    for one, other in zip(made.sample(5, random_state=1), again.sample(5, random_state=1)):
        assert one.equals(other)
    assert other.name == 1
