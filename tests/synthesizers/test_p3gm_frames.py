from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat

from skdpgen import LatentMixture, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, Schema
from skdpgen.data.frames import FrameRows
from skdpgen.exceptions import InvalidInputError, UtilityWarning
from skdpgen.nn import DPNet, P3GMModule
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric
from skdpgen.testing import seeded_noise

RNG = np.random.default_rng(11)
N = 1200
SICK = RNG.random(N) < 0.4


def _frame():
    frame = pd.DataFrame(
        {
            "age": RNG.integers(18, 90, N),
            "weight": RNG.normal(70, 12, N) + 15 * SICK,
            "town": RNG.choice(["north", "south", "west"], N),
            "sick": SICK,
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 1000, N), "D"),
            "kind": pd.Categorical(np.where(SICK, "a", "b")),
            "visits": pd.array(RNG.poisson(2, N), dtype="Int64"),
            "smokes": pd.array(RNG.random(N) < 0.3, dtype="boolean"),
        }
    )
    frame.loc[::9, "weight"] = np.nan
    frame.loc[::11, "visits"] = pd.NA
    frame.loc[::13, "kind"] = None
    frame.loc[::17, "seen"] = pd.NaT
    return frame


FRAME = _frame()
SCHEMA = Schema(
    [
        Numeric("age", (18, 90), integer=True, dtype="int64"),
        Numeric("weight", (20, 150), missing=True, dtype="float64"),
        Categorical("town", ("north", "south", "west"), dtype=str(FRAME["town"].dtype)),
        Boolean("sick", dtype="bool"),
        Datetime("seen", ("2020-01-01", "2023-01-01"), missing=True, dtype=str(FRAME["seen"].dtype)),
        Categorical("kind", ("a", "b"), missing=True, dtype="category"),
        Numeric("visits", (0, 20), integer=True, missing=True, dtype="Int64"),
        Boolean("smokes", missing=True, dtype="boolean"),
    ]
)
NET = {
    "decoder": "net",
    "steps": 3,
    "warm_start_steps": 5,
    "sampling_rate": 0.05,
    "net": DPNet(P3GMModule, module__n_hidden=8),
}
FAST = {"epsilon": 5.0, "random_state": 0, "n_components": 5}


def _fit(frame=FRAME, y=None, **parameters):
    synth = make_flat(P3GMSynthesizer, **{**FAST, **parameters}).fit(frame, y)
    synth.card_.verify()
    asked = parameters.get("epsilon", FAST["epsilon"])
    if np.isfinite(asked):
        assert synth.card_["fit"]["epsilon"] == pytest.approx(asked, rel=1e-3)
    assert len(synth.accountant_.charges) == 1
    return synth


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("schema", [SCHEMA, SCHEMA.select(["weight", "kind"]), None], ids=["all", "part", "none"])
@pytest.mark.parametrize("target", [None, "sick", "kind", "weight", "seen"])
def test_columns_come_back_in_order_with_their_dtypes(schema, target):
    synth = _fit(schema=schema, target=target)
    drawn = synth.sample(300)
    assert list(drawn.columns) == list(FRAME.columns)
    assert drawn.dtypes.astype(str).to_dict() == FRAME.dtypes.astype(str).to_dict()
    assert len(drawn) == 300
    assert drawn[["age", "sick"]].notna().all(axis=None)
    assert drawn["town"].isna().mean() < (1e-9 if schema is SCHEMA else 0.1)  # undeclared text may be missing
    for name in ("weight", "visits", "kind"):
        assert 0 < drawn[name].isna().mean() < 0.4
    assert set(drawn["town"].dropna()) <= {"north", "south", "west", "other"}
    if schema is SCHEMA:
        assert drawn["age"].between(18, 90).all()
        assert drawn["weight"].dropna().between(20, 150).all()
        assert drawn["seen"].dropna().between("2020-01-01", "2023-01-01").all()
        assert set(drawn["kind"].dropna()) <= {"a", "b"}
    assert hasattr(synth, "classes_") == (target in ("sick", "kind"))


@pytest.mark.parametrize(
    "parameters",
    [
        {"prior": LatentMixture(2, n_iter=2)},
        {"prior": LatentMixture(covariance_type="diag", n_iter=2), "target": "town"},
        {**NET, "target": "sick"},
        {**NET, "prior": LatentMixture(n_iter=2), "net": DPNet(P3GMModule, module__latent_variance="zero")},
        {"neighboring": "replace_one", "target": "sick"},
        {"epsilon": np.inf},
    ],
    ids=lambda parameters: "-".join(parameters),
)
@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_priors_and_decoders_of_frames(parameters):
    synth = _fit(schema=SCHEMA, **parameters)
    assert list(synth.sample(20).columns) == list(FRAME.columns)
    latent = synth.transform(FRAME[:30])
    assert latent.shape == (30, synth.model_.n_latent)
    back = synth.inverse_transform(latent)
    assert back.dtypes.astype(str).to_dict() == FRAME.dtypes.astype(str).to_dict()
    assert np.isfinite(synth.score(FRAME[:200]))
    if parameters.get("neighboring") == "replace_one":
        assert synth.row_count_ == N


def test_synthetic_rows_tell_what_the_columns_have_to_do_with_one_another():
    drawn = _fit(epsilon=10.0, n_components=10, schema=SCHEMA, target="sick").sample(6000, random_state=0)
    assert drawn["sick"].mean() == pytest.approx(SICK.mean(), abs=0.05)
    assert drawn.groupby("sick")["weight"].mean().diff().iloc[-1] == pytest.approx(15, abs=5)
    assert (drawn["kind"] == "a")[drawn["sick"]].mean() > 0.7
    assert drawn["weight"].isna().mean() == pytest.approx(1 / 9, abs=0.04)
    assert drawn["visits"].mean() == pytest.approx(FRAME["visits"].mean(), abs=0.5)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize(
    "y",
    [
        pd.Series(SICK, name="answer"),
        pd.Series(np.where(SICK, "yes", "no"), name="answer", index=np.arange(N)[::-1] + 5),
        pd.Series(np.where(SICK, "yes", "no"), name=7, index=np.arange(N)[::-1] + 5),
        pd.Series(SICK.astype(float), name="answer"),
        np.where(SICK, "yes", "no"),
        np.where(SICK, 1, 0),
    ],
    ids=["bool", "text", "numbered", "float", "array of text", "array of ints"],
)
def test_y_comes_back_apart_in_its_container(y):
    columns = ["age", "town"]
    synth = _fit(FRAME[columns], y, epsilon=20.0)
    rows, drawn = synth.sample(800)
    assert list(rows.columns) == columns
    assert isinstance(drawn, type(y))
    if isinstance(y, pd.Series):
        assert (drawn.name, str(drawn.dtype)) == (y.name, str(y.dtype))
    values = drawn == ("yes" if "yes" in set(y) else 1)
    # in the place of its row, whatever its index is
    assert np.mean(values) == pytest.approx(SICK.mean(), abs=0.1)
    assert synth.transform(FRAME[columns][:4]).shape[0] == 4
    assert np.isfinite(synth.score(FRAME[columns][:50], y[:50]))
    assert np.isfinite(synth.score(FRAME[columns][:50]))


@pytest.mark.parametrize(
    ("y", "kind", "name"),
    [(SICK[:, None], np.ndarray, None), (pd.DataFrame({"answer": SICK}), pd.Series, "answer")],
    ids=["array", "frame"],
)
@pytest.mark.usefixtures("short_fits")
def test_y_of_one_column_is_taken_as_for_arrays(y, kind, name):
    columns = ["age", "town"]
    synth = _fit(FRAME[columns], y, epsilon=20.0)
    drawn = synth.sample(800)[1]
    assert isinstance(drawn, kind)
    assert (drawn.shape, drawn.dtype, getattr(drawn, "name", None)) == ((800,), np.dtype(bool), name)
    assert np.mean(drawn) == pytest.approx(SICK.mean(), abs=0.1)
    assert np.isfinite(synth.score(FRAME[columns][:50], y[:50]))
    assert _fit(FRAME[["age"]].to_numpy(), y, n_components=1).sample(8)[1].shape == (8,)


def test_y_keeps_the_place_of_its_row():
    frame = pd.DataFrame({"kind": np.where(SICK, "a", "b")})
    for name in ("answer", 3, None):
        y = pd.Series(np.where(SICK, "yes", "no"), name=name, index=np.arange(N)[::-1])
        rows, drawn = _fit(frame.rename(columns={"kind": 0}) if name != 3 else frame, y).sample(500)
        assert drawn.name == name
        assert np.mean((rows.iloc[:, 0] == "a").to_numpy() == (drawn == "yes").to_numpy()) > 0.9


@pytest.mark.parametrize("kind", ["categorical", "numeric"])
@pytest.mark.usefixtures("short_fits")
def test_target_type_overrides_the_dtype(kind):
    synth = _fit(FRAME[["age", "visits"]], target="visits", target_type=kind, epsilon=20.0)
    assert hasattr(synth, "classes_") == (kind == "categorical")
    assert synth.sample(10)["visits"].dtype == "Int64"


@pytest.mark.usefixtures("short_fits")
def test_a_column_of_integers_is_a_categorical_target_and_a_column_of_floats_is_not():
    assert hasattr(_fit(FRAME[["age", "visits"]], target="visits", epsilon=20.0), "classes_")
    assert not hasattr(_fit(FRAME[["age", "weight"]], target="weight"), "classes_")


def test_classes_are_declared_apart_from_the_schema():
    with pytest.warns(UtilityWarning, match="classes 'east'"):
        synth = _fit(FRAME[["age", "town"]], target="town", classes=["north", "south", "west", "east"])
    assert synth.classes_.tolist()[:4] == ["north", "south", "west", "east"]
    with pytest.warns(UtilityWarning, match="rows of the classes 'east' are mostly noise"):
        assert (synth.sample(y=["east"] * 3)["town"] == "east").all()
    assert any("classes" in text for text in synth.card_["public_assumptions"])


def test_class_ratio_names_classes_of_the_target():
    synth = _fit(FRAME[["age", "sick"]], target="sick")
    assert synth.sample(40, class_ratio={True: 1.0})["sick"].all()
    assert synth.sample(40, class_ratio={True: 1, False: 3})["sick"].sum() == pytest.approx(10, abs=1)


def test_what_a_reader_of_files_took_for_public_is_on_the_card():
    frame = FRAME[["age", "town"]].copy()
    frame.attrs["public_assumptions"] = ["dtypes: told from the values of a CSV file"]
    assert "dtypes: told from the values of a CSV file" in _fit(frame).card_["public_assumptions"]


def test_column_names_need_not_be_strings():
    frame = pd.DataFrame({0: RNG.integers(0, 3, 200), 1: RNG.normal(size=200)})
    assert list(_fit(frame, target=0).sample(5).columns) == [0, 1]


@pytest.mark.parametrize(
    "frame",
    [
        FRAME[:1],
        FRAME[:4],
        pd.DataFrame({"one": np.ones(50)}),
        pd.DataFrame({"one": ["same"] * 50, "two": [True] * 50}),
        pd.DataFrame({"none": pd.array([None] * 20, dtype="Int64"), "text": pd.Series([None] * 20, dtype="string")}),
    ],
    ids=["one row", "four rows", "constant", "constant levels", "missing alone"],
)
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.usefixtures("short_fits")
def test_few_rows_and_constant_columns_fit(frame):
    for target in (None, frame.columns[-1]):
        drawn = _fit(frame, target=target, epsilon=1.0).sample(20)
        assert list(drawn.columns) == list(frame.columns)
        assert drawn.dtypes.astype(str).to_dict() == frame.dtypes.astype(str).to_dict()


def test_one_class_and_an_absent_class_fit():
    schema = Schema([Numeric("age", (18, 90), integer=True), Categorical("town", ("north", "south", "east"))])
    frame = FRAME.loc[FRAME["town"] == "north", ["age", "town"]]
    with pytest.warns(UtilityWarning, match="classes 'south', 'east'"):
        synth = _fit(frame, schema=schema, target="town")
    with pytest.warns(UtilityWarning, match="rows of the classes 'south', 'east' are mostly noise"):
        assert (synth.sample(y=["south", "east"])["town"] == ["south", "east"]).all()
    with pytest.warns(UtilityWarning, match="'south', 'east' are mostly noise"):
        synth.sample(20, class_ratio="balanced")
    assert (synth.sample(20, class_ratio={"north": 1.0})["town"] == "north").all()  # without a warning
    with pytest.raises(
        ValueError, match="no rows with 'town': 'south': there are none in the data, or the noise hides"
    ):
        synth.sample(20, given={"town": "south"})


@pytest.mark.parametrize(
    "parameters", [{}, {"prior": LatentMixture(n_iter=2)}, NET], ids=["released", "mixture", "net"]
)
@pytest.mark.usefixtures("short_fits")
def test_what_no_row_has_is_not_drawn(parameters):
    schema = SCHEMA.replace(
        Numeric("age", (18, 90), integer=True, missing=True, dtype="Int64"),
        Categorical("town", ("north", "south", "west"), missing=True, other="other", dtype=str(FRAME["town"].dtype)),
        Boolean("sick", missing=True, dtype="boolean"),
    )
    frame = pd.concat([FRAME] * 3, ignore_index=True)
    synth = _fit(frame, schema=schema, target="sick", **{**parameters, "epsilon": 20.0})
    drawn = [synth.sample(3000)]
    drawn.append(synth.inverse_transform(synth.transform(frame[:500])))
    for rows in drawn:
        assert rows["age"].notna().all()
        assert set(rows["town"]) <= {"north", "south", "west"}
        assert rows["weight"].isna().mean() == pytest.approx(1 / 9, abs=0.09)
    assert drawn[0]["sick"].notna().all()


def test_a_fit_says_that_columns_are_independent_and_that_a_class_is_lost():
    schema = SCHEMA.replace(Categorical("town", ("north", "east")))
    frame = FRAME[:800].assign(town=["east"] + ["north"] * 799)
    with pytest.warns(UtilityWarning) as told:
        synth = _fit(frame, schema=schema, target="town", epsilon=1.0)
    said = [str(warning.message) for warning in told]
    assert any("independent within a class" in text for text in said)
    assert any("classes 'east' of 'town'" in text for text in said)
    assert (synth.sample(500)["town"] == "north").all()


def test_tables_that_would_not_fit_into_memory_are_refused_before_the_charge():
    schema = Schema([Categorical(name, tuple(f"{k}" for k in range(20_000))) for name in ("id", "code")])
    frame = pd.DataFrame({"id": ["1"] * 9, "code": ["2"] * 9})
    books = PrivacyAccountant(5.0)
    with pytest.raises(
        InvalidInputError, match=r"of 20000 classes and 130 levels would take more than 2 GiB.*'id' \(20"
    ):
        P3GMSynthesizer(1.0, schema=schema, target="id", accountant=books).fit(frame)
    assert not books.charges


@pytest.mark.usefixtures("short_fits")
def test_p3gm_and_moment_make_one_model_of_one_release():
    """Their figures on a table differ by the noise of their fits alone."""
    samples = []
    for model in (P3GMSynthesizer, MomentSynthesizer):
        with seeded_noise(3, quiet=True, repeat=True):
            samples.append(model(4.0, target="town", random_state=0).fit(FRAME).sample(100, random_state=1))
    pd.testing.assert_frame_equal(*samples)


def test_learned_categories_are_as_many_as_fit_into_memory():
    few = FrameRows(FRAME, None, target="town", schema=None, classes=None, target_type=None, on_invalid="clip")
    assert (few.most_bins, few.most_categories) == (16, 200)
    wide = pd.DataFrame({f"c{k}": ["x", "y"] for k in range(60)})
    many = FrameRows(wide, None, target="c0", schema=None, classes=None, target_type=None, on_invalid="clip")
    assert 8 * (many.most_categories + 2) * (59 * (many.most_categories + 2)) ** 2 <= 2**31


def test_rare_values_of_two_are_kept_where_nothing_is_declared(rng):
    shares = {"seldom": 0.02, "rare": 0.05, "usual": 0.97}
    frame = pd.DataFrame({name: (rng.random(4_000) < share).astype(int) for name, share in shares.items()})
    frame["age"] = rng.integers(18, 90, len(frame))
    with seeded_noise(1, quiet=True):
        synth = P3GMSynthesizer(2.0, 1e-5, random_state=0).fit(frame)
    rows = synth.sample(40_000)
    for name in shares:
        assert rows[name].isin([0, 1]).all()
        assert abs(rows[name].mean() - frame[name].mean()) < 0.01
