"""Constraints by construction: the table that a model sees follows row by row, and gives back rows that keep them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from skdpgen.exceptions import SchemaError, UtilityWarning
from skdpgen.tabular import (
    Boolean,
    Categorical,
    Datetime,
    Numeric,
    Schema,
    TableEncoder,
    schema_from_histogram,
    schema_histogram,
)
from skdpgen.tabular._constraint_forms import read_constraint
from skdpgen.tabular._construction import Construction, check_equalities
from skdpgen.tabular._construction_columns import without_rounding_errors

N = 400
RNG = np.random.default_rng(7)
DAY = pd.Timedelta(1, "D")
TOWNS = {"Dallas": "TX", "Austin": "TX", "Albany": "NY", "Troy": "NY"}


def table():
    """Rows that keep all the constraints below."""
    came = pd.Series(pd.Timestamp("2019-03-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"))
    town = pd.Series(RNG.choice(list(TOWNS), N))
    low = RNG.integers(-20, 20, N)
    x, y = RNG.random(N).round(2), RNG.random(N).round(2)
    dead = RNG.random(N) < 0.2
    stay = RNG.integers(0, 30, N)
    return pd.DataFrame(
        {
            "left": came + pd.to_timedelta(stay, "D"),
            "came": came,
            "stay": stay,
            "low": low,
            "mid": low + RNG.integers(0, 5, N),
            "high": (low + 4 + RNG.random(N) * 9).round(1),
            "total": (x + y).round(2),
            "x": x,
            "y": y,
            "state": town.map(TOWNS),
            "town": town,
            "density": town.map({"Dallas": 1.5, "Austin": 1.25, "Albany": 3.0, "Troy": 0.5}),
            "code": town.map({"Dallas": 1, "Austin": 2, "Albany": 3, "Troy": 4}),
            "code2": (town.map({"Dallas": 1, "Austin": 2, "Albany": 3, "Troy": 4}) + 3) / 2,
            "dead": dead,
            "back": np.where(dead, "NO", RNG.choice(["NO", "<30", ">30"], N)),
            "weeks": np.where(dead, np.nan, RNG.integers(0, 60, N).astype(float)),
        }
    )


FRAME = table()
SCHEMA = Schema(
    [
        Datetime("left", resolution="D"),
        Datetime("came", resolution="D"),
        Numeric("stay", (0, 30), integer=True),
        Numeric("low", integer=True),
        Numeric("mid", integer=True),
        Numeric("high"),
        Numeric("total"),
        Numeric("x", (0, 1), decimals=2),
        Numeric("y", (0, 1), decimals=2),
        Categorical("state", dtype="str"),
        Categorical("town", dtype="str"),
        Numeric("density"),
        Numeric("code", integer=True),
        Numeric("code2", (2, 4), decimals=1),
        Boolean("dead"),
        Categorical("back", ("NO", "<30", ">30")),
        Numeric("weeks", (0, 60), missing=True),
    ]
)
TEXTS = [
    ("came <= left",),
    ("0 <= left - came <= 30",),
    ("left >= came", "left - came <= 45"),
    ("left == came + stay",),
    ("low <= mid <= high",),
    ("low <= high", "mid <= high", "low <= mid"),
    ("total == x + y",),
    ("code == 2 * code2 - 3",),
    ("stay == left - came",),
    ("came == left - stay",),
    ("came - 2 == left - stay - 2", "came == left - stay"),
    ("x + y - total == 0", "total == y + x"),
    ("combinations(state, town)",),
    ("(town, state) in [('Dallas', 'TX'), ('Austin', 'TX'), ('Albany', 'NY'), ('Troy', 'NY')]",),
    ("determines(town, density)",),
    ("combinations(state, town, code)",),
    ("density == {'Dallas': 1.5, 'Austin': 1.25, 'Albany': 3, 'Troy': 0.5}[town]",),
    ("state == {1: 'TX', 2: 'TX', 3: 'NY', 4: 'NY'}[code]",),
    ("if dead: back == 'NO' and weeks is None",),
    ("came <= left", "total == x + y", "determines(town, state)", "if dead: back == 'NO'", "low < 2 * mid + 90"),
]


def constructed(*texts, frame=FRAME, schema=SCHEMA, fixed=()):
    """Construction, the table that the model sees, its complete schema (without noise), and that of the rows."""
    construction = Construction.of(schema.constrain(*texts), fixed)
    seen = construction.encode(frame)
    complete = construction.seen
    if not complete.complete:
        counts = schema_histogram(seen, complete)
        complete = schema_from_histogram(counts.bounded_sum.value, counts, 0.0, 0.1)
    complete = construction.settled(complete)
    return construction, seen, complete, construction.released(complete)


def kept(rows, *texts):
    """Whether rows keep what the texts of this file say, told by pandas alone."""
    said = {
        "came <= left": lambda d: d["came"] <= d["left"],
        "0 <= left - came <= 30": lambda d: (d["left"] - d["came"]).between(0 * DAY, 30 * DAY),
        "left >= came": lambda d: d["came"] <= d["left"],
        "left - came <= 45": lambda d: d["left"] - d["came"] <= 45 * DAY,
        "left == came + stay": lambda d: d["left"] == d["came"] + pd.to_timedelta(d["stay"], "D"),
        "stay == left - came": lambda d: d["left"] == d["came"] + pd.to_timedelta(d["stay"], "D"),
        "came == left - stay": lambda d: d["left"] == d["came"] + pd.to_timedelta(d["stay"], "D"),
        "low <= mid <= high": lambda d: (d["low"] <= d["mid"]) & (d["mid"] <= d["high"]),
        "low <= high": lambda d: d["low"] <= d["high"],
        "mid <= high": lambda d: d["mid"] <= d["high"],
        "low <= mid": lambda d: d["low"] <= d["mid"],
        "total == x + y": lambda d: (d["total"] - d["x"] - d["y"]).abs() < 1e-9,
        "code == 2 * code2 - 3": lambda d: d["code"] == (2 * d["code2"] - 3).round(),
        "total == y + x": lambda d: (d["total"] - d["x"] - d["y"]).abs() < 1e-9,
        "combinations(state, town)": lambda d: d["town"].map(TOWNS) == d["state"],
        "combinations(state, town, code)": lambda d: (
            (d["town"].map(TOWNS) == d["state"])
            & (d["code"] == d["town"].map({"Dallas": 1, "Austin": 2, "Albany": 3, "Troy": 4}))
        ),
        "determines(town, density)": lambda d: (
            d["density"] == d["town"].map({"Dallas": 1.5, "Austin": 1.25, "Albany": 3.0, "Troy": 0.5})
        ),
        "determines(town, state)": lambda d: d["town"].map(TOWNS) == d["state"],
        "if dead: back == 'NO'": lambda d: ~d["dead"] | (d["back"] == "NO"),
        "if dead: back == 'NO' and weeks is None": lambda d: ~d["dead"] | ((d["back"] == "NO") & d["weeks"].isna()),
    }
    for text in texts:
        if text.startswith("(town"):
            assert (rows["town"].map(TOWNS) == rows["state"]).all()
        elif text.startswith("density =="):
            assert said["determines(town, density)"](rows).all()
        elif text.startswith("state =="):
            assert (rows["code"].map({1: "TX", 2: "TX", 3: "NY", 4: "NY"}) == rows["state"]).all()
        elif text in said:
            assert said[text](rows).all(), text


@pytest.mark.parametrize("texts", TEXTS, ids=lambda texts: texts[0])
def test_rows_that_keep_a_constraint_come_back_as_they_were(texts):
    construction, seen, complete, released = constructed(*texts)
    assert len(seen) == N
    assert construction.texts
    back = construction.decode(seen, complete, released, np.random.default_rng(0))
    assert list(back.columns) == list(FRAME.columns)
    for name in FRAME:
        one, other = back[name], FRAME[name]
        if pd.api.types.is_float_dtype(other.dtype):
            np.testing.assert_allclose(one.to_numpy(dtype=float), other, atol=1e-9)
        else:
            assert (one.astype(other.dtype) == other).all(), name


@pytest.mark.parametrize("texts", TEXTS, ids=lambda texts: texts[0])
def test_rows_drawn_at_random_keep_the_constraints(texts):
    construction, _, complete, released = constructed(*texts)
    encoder = TableEncoder(complete).fit()
    rng = np.random.default_rng(3)
    codes = np.stack([rng.integers(block.size, size=2_000) for block in encoder.blocks_], axis=1)
    rows = construction.decode(encoder.decode(codes, rng=rng), complete, released, rng)
    exact = np.all([np.ones(len(rows), dtype=bool), *(c.holds(rows) for c in construction.checks(released))], axis=0)
    assert exact.all() or texts[0] in ("stay == left - came", "code == 2 * code2 - 3")  # beyond declared bounds
    kept(rows[exact], *(text for text in texts if text not in construction.left))
    for name in FRAME:
        column = released[name]
        assert column.complete
        assert column.missing or rows[name].notna().all()
        if isinstance(column, Numeric):
            assert rows[name].dropna().between(*column.bounds).all()


@pytest.mark.parametrize("texts", TEXTS, ids=lambda texts: texts[0])
def test_one_row_of_the_table_makes_one_row_of_what_the_model_sees(texts):
    schema = SCHEMA.declare("left", bounds=("2019-02-01", "2020-12-31")).declare("high", bounds=(-15, 20))
    construction = Construction.of(schema.constrain(*texts))
    seen = construction.encode(FRAME)
    for at in ([5], [17, 3, 200], range(100, 140)):
        alone = construction.encode(FRAME.iloc[list(at)])
        pd.testing.assert_frame_equal(alone, seen.iloc[list(at)], check_dtype=False)


@pytest.mark.parametrize("texts", TEXTS, ids=lambda texts: texts[0])
def test_what_stands_for_a_missing_value_follows_from_its_row_alone(texts):
    """A gap that the other rows fill, by their mean or by the row above, would let one row move all of them."""
    dtypes = {"int64": "Int64", "bool": "boolean"}
    columns = [replace(c, missing=True, dtype=dtypes.get(c.dtype, c.dtype)) for c in SCHEMA.columns]
    schema = Schema(columns).declare("high", bounds=(-15, 20))
    frame = FRAME[:60].convert_dtypes().mask(np.random.default_rng(1).random((60, FRAME.shape[1])) < 0.4)
    construction = Construction.of(schema.constrain(*texts))
    seen = construction.encode(frame)
    for at in ([7], [41, 3], range(20, 45)):
        alone = construction.encode(frame.iloc[list(at)])
        pd.testing.assert_frame_equal(alone, seen.iloc[list(at)], check_dtype=False)


def test_the_dtype_of_a_chunk_changes_none_of_its_rows():
    """One more row makes text, floats or objects of all values of its chunk; the other rows stay what they are."""
    columns = [
        Categorical("a", (1, 2), other=9, missing=True),
        Numeric("b", (0, 9), missing=True),
        Datetime("s", ("2000-01-01", "2000-12-31"), resolution="D"),
        Categorical("c", ("u", "v"), other="w", missing=True),
    ]
    texts = ("if a == 1: b is None", "if b >= 5 and s == '2000-03-01': c == 'v'", "if c == 'u': a == 2")
    construction = Construction.of(Schema(columns, texts))
    days = pd.to_datetime(["2000-01-01", "2000-03-01", "2000-03-01", "2000-02-01"])
    rows = pd.DataFrame({"a": [1, 2, 2, 1], "b": [3, 5, 4, 9], "s": days, "c": ["v", "u", "v", "u"]})
    expected = construction.encode(rows)
    assert expected["b"].isna().tolist() == [True, False, False, True]
    assert expected["c"].tolist() == ["v", "v", "v", "u"]
    more = pd.DataFrame({"a": [np.nan], "b": [np.nan], "s": [pd.Timestamp("2000-04-04")], "c": [None]})
    floats = pd.concat([rows, more], ignore_index=True)
    text = rows.astype(str)
    texts = [pd.concat([text, more.astype(object)], ignore_index=True) for more in (text.head(1).assign(a="x"), more)]
    for chunk in (floats, floats.astype(object), texts[0], texts[1].assign(s=[*text["s"], "2000-04-04 00:00:00"])):
        seen = construction.encode(chunk).iloc[:4]
        for name in expected:
            wanted, found = expected[name], seen[name]
            assert found.isna().tolist() == wanted.isna().tolist(), name
            if name in ("a", "b"):
                wanted, found = pd.to_numeric(wanted), pd.to_numeric(found)
            elif name == "s":
                wanted, found = pd.to_datetime(wanted), pd.to_datetime(found)
            assert found.dropna().tolist() == wanted.dropna().tolist(), name


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_the_histogram_of_learned_combinations_attains_its_sensitivity_and_never_exceeds_it(relation):
    rows = pd.DataFrame(
        {"state": ["TX", "NY", "TX", None], "town": ["Dallas", "Albany", "Troy", "Troy"], "n": [1, 40, -9, 7]}
    )
    schema = Schema([Categorical("state", missing=True), Categorical("town"), Numeric("n", integer=True)])
    construction = Construction.of(schema.constrain("combinations(state, town)"))

    def counted(frame):
        seen = construction.encode(frame)
        histogram = schema_histogram(seen, construction.seen)
        keys = [*histogram.keys["state"], "missing", *range(histogram.sizes[1])]
        total = histogram.bounded_sum
        return pd.Series(total.weights * total.value, index=keys), total.sensitivity(relation)

    base, worst = rows.iloc[[0, 1, 1]], 0.0
    others = [pd.concat([base, rows.iloc[[k]]]) for k in range(len(rows))]
    if relation == "add_or_remove_one":
        pairs = [(base, other) for other in others]
    else:
        pairs = [(one, other) for one in others for other in others]
    for one, other in pairs:
        (a, bound), (b, _) = counted(one), counted(other)
        change = np.linalg.norm(a.sub(b, fill_value=0.0))
        assert change <= bound * (1 + 1e-9)
        worst = max(worst, change / bound)
    assert worst >= 0.999


def test_what_can_be_constructed_is_and_the_rest_is_drawn_again():
    def left(*texts, fixed=()):
        construction = Construction.of(SCHEMA.constrain(*texts), fixed)
        return len(construction.steps), construction.left

    assert left("came <= left") == (1, ())
    assert left("low <= mid <= high") == (2, ())
    assert left("low < mid") == (1, ())
    assert left("mid < high") == (1, ("mid < high",))  # equal floats are drawn again
    assert left("low <= high", "mid <= high") == (2, ())
    assert left("left - came <= 30", "left - came >= 2") == (1, ())
    assert left("0 <= low <= mid") == (1, ("0 <= low <= mid",))
    assert left("low <= mid or dead") == (0, ("low <= mid or dead",))
    assert left("low <= mid and x > 0") == (1, ("low <= mid and x > 0",))
    assert left("low * mid == code") == (1, ())
    assert left("low * low == code") == (1, ())
    assert left("code == low / mid") == (1, ())
    assert left("code == low / (mid ** 2)") == (1, ())
    assert left("code == low / (mid + 1)") == (0, ("code == low / (mid + 1)",))
    assert left("code == low / mid * code") == (0, ("code == low / mid * code",))
    assert left("code == 0 * low / mid") == (0, ("code == 0 * low / mid",))
    assert left("code == low / mid ** 2 / 0") == (0, ("code == low / mid ** 2 / 0",))
    assert left("low * mid == code", fixed=("code",)) == (0, ("low * mid == code",))
    assert left("total == x * y", "x == total * mid") == (1, ("x == total * mid",))  # no circles
    assert left("came <= left", fixed=("left",)) == (1, ())  # the other end is constructed
    assert left("came <= left", fixed=("left", "came")) == (0, ("came <= left",))
    assert left("total == x + y", "x == total - y") == (1, ("x == total - y",))  # no circles
    assert left("(town, state) in [('Troy', 'NY')]", fixed=("town",)) == (0, ("(town, state) in [('Troy', 'NY')]",))
    with pytest.raises(SchemaError, match="names 'town', a target, of which no combinations are learned: leave"):
        left("combinations(state, town)", fixed=("town",))
    with pytest.raises(SchemaError, match=r"names 'town', which 'combinations\(state, town\)' constructs, too"):
        left("combinations(state, town)", "determines(town, back)")
    with pytest.raises(SchemaError, match="some columns that are constant within a unit beside others"):
        Construction.of(SCHEMA.constrain("combinations(state, town)"), constant=("town",))


def test_a_difference_keeps_the_bounds_that_are_declared():
    schema = SCHEMA.declare("came", bounds=("2019-01-01", "2022-01-01")).declare(
        "left", bounds=("2019-02-01", "2021-01-01")
    )
    construction = Construction.of(schema.constrain("left - came >= 1", "left - came <= 10"))
    assert construction.table["came"].bounds == ("2019-01-22T00:00:00", "2020-12-31T00:00:00")
    assert construction.table["left"].bounds == ("2019-02-01T00:00:00", "2021-01-01T00:00:00")
    assert construction.seen["left"] == Numeric("left", (1, 10), integer=True)
    open_ = SCHEMA.declare("left", bounds=("2019-02-01", "2019-12-31"))
    construction, seen, complete, released = constructed("came <= left", schema=open_)
    assert numeric(released["came"].bounds[1]) <= numeric("2019-12-31")
    back = construction.decode(seen, complete, released, np.random.default_rng(0))
    assert (back["came"] <= back["left"]).all()
    assert back["left"].max() <= pd.Timestamp("2019-12-31")


def numeric(text):
    return pd.Timestamp(text).value


@pytest.mark.parametrize("which", ["left", "came", "both"])
def test_missing_dates_keep_their_rates(which):
    rng = np.random.default_rng(1)
    frame = FRAME.copy()
    for name in ("left", "came") if which == "both" else (which,):
        frame.loc[rng.random(N) < 0.3, name] = pd.NaT
    missing = {name: name == which or which == "both" for name in ("left", "came")}
    schema = SCHEMA.replace(*(Datetime(name, resolution="D", missing=missing[name]) for name in missing))
    construction, seen, complete, released = constructed("came <= left", frame=frame, schema=schema)
    back = construction.decode(seen, complete, released, rng)
    for name in missing:
        assert (back[name].isna() == frame[name].isna()).all()
    whole = frame[["came", "left"]].notna().all(axis=1)
    assert (back["left"] == frame["left"])[whole].all()
    assert (back["came"] <= back["left"])[whole].all()


@pytest.mark.parametrize(
    ("text", "names"),
    [("total == x + y", ("total", "x")), ("density == {'Dallas': 1.5, 'Austin': 1.25, 'Albany': 3, 'Troy': 0.5}[town]",
     ("density", "town")), ("determines(town, density)", ("density", "town"))],
)  # fmt: skip
def test_missing_values_of_what_is_computed_keep_their_rates(text, names):
    rng, frame, schema = np.random.default_rng(2), FRAME.copy(), SCHEMA
    for name in names:
        frame[name] = frame[name].mask(rng.random(N) < 0.25)
        schema = schema.declare(name, missing=True)
    construction, seen, complete, released = constructed(text, frame=frame, schema=schema)
    back = construction.decode(seen, complete, released, rng)
    for name in names:
        assert (back[name].isna() == frame[name].isna()).all()
    whole = frame[list(names)].notna().all(axis=1)
    kept(back[whole], text)


def test_rows_that_violate_a_constraint_are_clipped_to_it_or_refused():
    frame = FRAME.copy()
    frame.loc[:49, "left"] = frame["came"] - 9 * DAY
    frame.loc[50:99, "total"] = 9.0
    frame.loc[:49, "back"], frame.loc[:49, "dead"] = ">30", True
    texts = ("came <= left", "total == x + y", "if dead: back == 'NO'")
    construction, seen, complete, released = constructed(*texts, frame=frame)
    back = construction.decode(seen, complete, released, np.random.default_rng(0))
    kept(back, *texts)
    assert (back["left"] == frame["came"])[:50].all()
    assert (back["came"] == frame["came"]).all()
    assert (back["total"] == (frame["x"] + frame["y"]).round(2)).all()
    for text in texts:
        alone = Construction.of(SCHEMA.constrain(text))
        alone.encode(FRAME, "raise")
        with pytest.raises(SchemaError, match="rows violate the constraint") as raised:
            alone.encode(frame, "raise")
        assert "9" not in str(raised.value)


def test_combinations_that_are_not_listed_are_refused_and_not_shown():
    text = "(town, state) in [('Dallas', 'TX'), ('Austin', 'TX'), ('Albany', 'NY')]"
    for on_invalid in ("clip", "raise"):
        with pytest.raises(SchemaError, match="does not list") as raised:
            Construction.of(SCHEMA.constrain(text)).encode(FRAME.assign(state="TX"), on_invalid)
        assert "Troy" not in str(raised.value)


def test_other_is_no_combination():
    construction, seen, complete, released = constructed("combinations(state, town)")
    few = complete.replace(Categorical("state", complete["state"].categories[:2], other="other"))
    released = construction.released(few)
    seen = seen.assign(state=seen["state"].where(seen["state"].isin(few["state"].categories), "other"))
    back = construction.decode(seen, few, released, np.random.default_rng(0))
    assert set(zip(back["state"], back["town"])) == {("NY", "Albany"), ("NY", "Troy")}
    none = complete.replace(Categorical("state", (), other="other"))
    back = construction.decode(seen.assign(state="other"), none, construction.released(none), np.random.default_rng(0))
    assert set(back["state"]) == set(back["town"]) == {"other"}


def test_a_dependency_that_the_released_combinations_contradict_is_told_and_kept():
    construction, _, complete, _ = constructed("determines(town, density)")
    texts = (*complete["town"].categories, '["Troy", 7.0]')
    wrong = complete.replace(Categorical("town", texts, other="other"))
    with pytest.warns(UtilityWarning, match="several values for one 'town'"):
        wrong = construction.settled(wrong)
    rows = pd.DataFrame({name: FRAME[name] for name in wrong.names if name != "town"}).assign(town=texts[-1])
    back = construction.decode(rows[list(wrong.names)], wrong, construction.released(wrong), np.random.default_rng(0))
    assert set(back["density"]) == {0.5}


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "datetime64[us, Europe/Paris]", "datetime64[s]"])
@pytest.mark.parametrize("resolution", ["D", "min"])
def test_dates_of_any_dtype_and_resolution_keep_their_order(dtype, resolution):
    rng = np.random.default_rng(0)
    zone = "Europe/Paris" if "Paris" in dtype else None
    came = pd.Series(pd.Timestamp("2021-03-20", tz=zone) + pd.to_timedelta(rng.integers(0, 20_000, N), "min"))
    left = came.dt.ceil("D") if resolution == "D" else came + pd.to_timedelta(rng.integers(0, 500, N), "min")
    frame = pd.DataFrame({"came": came, "left": left}).astype(dtype)
    schema = Schema(
        [Datetime("came", resolution="min", dtype=dtype), Datetime("left", resolution=resolution, dtype=dtype)]
    )
    construction, seen, complete, released = constructed("came <= left", frame=frame, schema=schema)
    encoder = TableEncoder(complete).fit()
    rows = construction.decode(encoder.decode(encoder.codes(seen), rng=rng), complete, released, rng)
    assert (rows["came"] <= rows["left"]).all()
    assert rows.dtypes.equals(frame.dtypes)


def test_narrow_dtypes_and_coarse_decimals_keep_their_order():
    rng = np.random.default_rng(0)
    for start, end in (
        (Numeric("a", (-100, 100), integer=True, dtype="int8"), Numeric("b", integer=True, dtype="int8")),
        (Numeric("a", (0, 9), decimals=3), Numeric("b", decimals=1)),
        (Numeric("a", (0, 9), dtype="float32"), Numeric("b", dtype="float32")),
        (Numeric("a", (0, 9), decimals=2), Numeric("b", integer=True)),
        (Numeric("a", (0, 1e300)), Numeric("b")),
    ):
        low, high = start.bounds
        a = (low + rng.random(N) * (high - low)).astype(start.dtype)
        frame = pd.DataFrame({"a": a, "b": np.minimum(a + 3, 120 if start.integer else np.inf)})
        frame = frame.astype({"b": end.dtype})
        construction, _, complete, released = constructed("a <= b", frame=frame, schema=Schema([start, end]))
        encoder = TableEncoder(complete).fit()
        codes = np.stack([rng.integers(block.size, size=2_000) for block in encoder.blocks_], axis=1)
        rows = construction.decode(encoder.decode(codes, rng=rng), complete, released, rng)
        assert (rows["a"] <= rows["b"]).all(), end


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("combinations(state)", "two columns or more"),
        ("combinations(state, state)", "two columns or more"),
        ("combinations(state, 3)", "where a column must stand"),
        ("combinations(state, nobody)", "no column"),
        ("combinations(*state, town)", "where a column must stand"),
        ("combinations(state, town, key=1)", "columns alone"),
        ("determines(came, left)", "date"),
        ("(state, town) in [('TX',)]", "2 values"),
        ("(state, town) in ['TX']", "must be a tuple"),
        ("(state, town) in []", "2 values"),
        ("(state, code) in [('TX', 'x')]", "no value that the number"),
        ("(state, back) in [('TX', 'perhaps')]", "no category"),
        ("(state, town) == 3", "a list goes with"),
        ("density == {}[town]", "at least one"),
        ("density == {'a': 1, 'a': 2}[town]", "twice"),
        ("density == {**town}[town]", "at least one"),
        ("density == {'a': 1}[density]", "another column"),
        ("density == {'a': __import__}[town]", "values must be"),
        ("stay == {'a': 31}[town]", "no value that the number"),
        ("x == {'NO': 1}[back]", "maps no value '<30'"),
        ("if dead: back", "after the colon"),
        ("if dead: back != 'NO'", r"after the colon .* without a colon: not dead or back != 'NO'"),
        ("if back == 'NO': left < '2020-01-01'", "without a colon: back != 'NO' or left < '2020-01-01'"),
        ("if dead: back == 'perhaps'", "no category"),
        ("if dead: dead == True", "on one side"),
        ("if dead: stay is None", "may not be missing"),
        ("if dead: came == 'yesterday'", "no date"),
        ("if dead: back == 'NO'\nelse: back == '<30'", "if CONDITION"),
        ("if back: weeks is None", "different kinds"),
        ("if dead:\n  back == 'NO'\n  weeks is None", "if CONDITION"),
        ("low <= mid <= low - 1", "no range"),
        ("stay >= 40 + stay", None),
        ("import os", "cannot be read: write a comparison, such as"),
        ("total = a + b", "with == for equal"),
        ("(low > 1) & (mid < 2)", "write `and` in place of &.* or give two constraints"),
        ("low > 1 & mid < 2", "write `and` in place of &"),
        ("(low > 1) | (mid < 2)", "write `or` in place of |"),
        ("~(low > 1)", "write `not` in place of ~"),
        ("if (low > 1) & dead: back == 'NO'", "write `and` in place of &"),
        ("gone home <= back", "stands in `backticks`"),
        ("if dead then back == 'NO'", "write a condition as in \"if age < 16: status == 'child'\""),
        ("if dead: import os", "if CONDITION"),
        ("if (" + "(" * 4000 + "dead" + ")" * 4000 + "): back == 'NO'", "cannot be read"),
        ("combinations(" + "state, " * 3000 + ")", "at most 10,000"),
        ("low <= mid + 1e300", "beyond 2"),
    ],
)
def test_texts_that_are_no_constraint_are_refused(text, message):
    if message is None:
        assert Construction.of(SCHEMA.constrain(text)).left == (text,)
        return
    with pytest.raises(ValueError, match=message):
        Construction.of(SCHEMA.constrain(text))


def test_a_schema_keeps_its_constraints_in_its_file(tmp_path):
    schema = SCHEMA.constrain("came <= left", "combinations(state, town)", "came <= left")
    assert schema.constraints == ("came <= left", "combinations(state, town)")
    schema.save(tmp_path / "s.json")
    assert Schema.load(tmp_path / "s.json") == schema
    assert "constraints" not in SCHEMA.to_dict()
    assert schema.declare("x", bounds=(0, 2)).constraints == schema.constraints
    assert schema.select(["came", "left", "town"]).constraints == ("came <= left",)
    assert Schema.from_kinds(FRAME, schema).constraints == schema.constraints
    for wrong in ("nobody > 3", 3, None, {"a": 1}, ["x > 3"] * 300):
        with pytest.raises(SchemaError):
            Schema.from_dict(SCHEMA.to_dict() | {"constraints": wrong})


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_nothing_learned_can_stop_a_construction_after_the_charge():
    rng = np.random.default_rng(5)
    schema = SCHEMA.replace(
        Datetime("left", resolution="D", dtype="datetime64[ns]"),
        Datetime("came", resolution="us", dtype="datetime64[us]"),
        Numeric("low", integer=True, dtype="int8"),
        Numeric("mid", integer=True, dtype="UInt16", missing=True),
        Numeric("high", dtype="float32"),
        Numeric("x"),
        Numeric("stay", integer=True),
        Categorical("back", dtype="object", missing=True),
    )
    texts = (
        "came <= left", "low <= mid <= high + 3", "total == 1e30 * x - 5 * y", "determines(town, code)",
        "if dead: back == 'NO' and x == -7", "stay == left - came",
    )  # fmt: skip
    construction = Construction.of(schema.constrain(*texts))
    seen = construction.encode(FRAME.assign(low=FRAME["low"].astype("int8"), mid=FRAME["mid"].abs()))
    counts = schema_histogram(seen, construction.seen)
    for scale in (0.1, 30.0, 1e5):
        for _ in range(3):
            noisy = counts.bounded_sum.value + rng.normal(0, scale, len(counts.bounded_sum.value))
            complete = construction.settled(schema_from_histogram(noisy, counts, scale, 0.1))
            released = construction.released(complete)
            assert released.complete
            encoder = TableEncoder(complete).fit()
            codes = np.stack([rng.integers(block.size, size=200) for block in encoder.blocks_], axis=1)
            rows = construction.decode(encoder.decode(codes, rng=rng), complete, released, rng)
            assert list(rows) == list(FRAME)
            assert (rows["came"] <= rows["left"]).all()
            assert (rows["back"][rows["dead"]] == "NO").all()
            encoder.codes(seen)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("c == a * b", False),
        ("c == a / b", False),
        ("c == a / (b + 1)", True),
        ("c == a ** 2 + 1", True),
        ("c == a * b + 1", True),
        ("a + b == 10", True),
        ("a == 3", True),
        ("a * a == b + c and k == 'x'", True),
        ("a * a == b and k == 'x'", False),
        ("a == b + c", False),
        ("a == b and c < 5", False),
        ("i * i == i", False),
        ("s == 3", False),
        ("a == b or k == 'x'", False),
    ],
)
def test_an_equality_of_numbers_that_is_not_constructed_is_refused(text, refused):
    schema = Schema(
        [Numeric("a", (0, 10)), Numeric("b", (0, 10)), Numeric("c", (0, 100)), Numeric("i", (0, 10), integer=True)]
        + [Numeric("s", (0, 10), spikes=(3,)), Categorical("k", ("x", "y"))]
    )
    construction = Construction.of(schema.constrain(text))
    if not refused:
        check_equalities(construction)
        return
    with pytest.raises(SchemaError, match=r"cannot be constructed.*nothing was charged"):
        check_equalities(construction)


@pytest.mark.parametrize(
    ("texts", "refused"),
    [
        (("t == a * b", "t == a + b"), True),
        (("t == a + b", "t == a + 2 * b"), True),
        (("t == a + b", "t == a + b + 1"), True),
        (("t == a * b", "t == b * a"), False),
        (("t == a + b", "a == t - b"), False),
        (("t == a + b", "t - b == a and k == 'x'"), False),
        (("t == a + b", "2 * t == a * 2 + b * 2"), False),
        (("m == i * j", "m == i + j"), False),  # rows drawn again have 0 and 0, or 2 and 2
        (("n == i + j", "n == i + j + 0.4"), True),
        (("u == v + w", "u == v * w"), True),
        (("u == v + w", "v == u - w"), False),
        (("d == e + 3", "e == d - 3"), False),
    ],
)
def test_an_equality_that_contradicts_a_constructed_one_is_refused_before_the_charge(texts, refused):
    schema = Schema(
        [Numeric("a", (0, 10)), Numeric("b", (0, 10), decimals=2), Numeric("t", (0, 30)), Categorical("k", ("x", "y"))]
        + [Numeric("i", (0, 2), integer=True), Numeric("j", (0, 2), integer=True), Numeric("m", (0, 4), integer=True)]
        + [Numeric("n", (0, 4), integer=True), Numeric("u"), Numeric("v"), Numeric("w")]
        + [Datetime("d", ("2020-01-01", "2021-01-01"), resolution="D")]
        + [Datetime("e", ("2020-01-01", "2021-01-01"), resolution="D")]
    )
    construction = Construction.of(schema.constrain(*texts))
    if not refused:
        check_equalities(construction)
        return
    with pytest.raises(SchemaError, match=r"hardly any row.*constructs satisfies.*nothing was charged"):
        check_equalities(construction)


@pytest.mark.parametrize(
    ("text", "missing", "declared"),
    [
        ("total == price * count", False, False),
        ("count * price == total", True, True),
        ("total == -2 * price * count * rate / 4", False, False),
        ("total == price * count * rate", True, False),
    ],
)
def test_products_of_columns_come_back_and_are_kept_by_rows_drawn_at_random(text, missing, declared):
    frame = pd.DataFrame(
        {
            "price": RNG.integers(-500, 5000, N) / 100,
            "count": RNG.integers(0, 9, N),
            "rate": RNG.integers(0, 99, N) / 100,
        }
    )

    def product(rows):
        whole = rows["price"] * rows["count"]
        return whole if "rate" not in text else rows["rate"] * whole * (-0.5 if "-2" in text else 1)

    frame["total"] = product(frame).round(6)
    frame["total"] = frame["total"].mask(frame.index % 7 == 0) if missing else frame["total"]
    schema = Schema(
        [
            Numeric("price", (-5, 50), decimals=2),
            Numeric("count", (0, 8), integer=True),
            Numeric("rate", (0, 1), step=0.01),
            Numeric("total", (-100, 100) if declared else None, missing=missing, decimals=4 if declared else None),
        ]
    )
    construction, seen, complete, released = constructed(text, frame=frame, schema=schema)
    assert construction.left == ()
    assert ("total" in seen) == missing
    low, high = released["total"].bounds
    inside = frame["total"].between(low, high) | frame["total"].isna()
    back = construction.decode(seen, complete, released, np.random.default_rng(0))
    np.testing.assert_allclose(back["total"][inside], frame["total"][inside], atol=5e-3)
    assert declared or inside.all()
    violated = construction.steps[0].violated(frame.assign(total=frame["total"] + 0.1), construction.table)
    assert violated.all() if not missing else (violated == frame["total"].notna()).all()
    assert not construction.steps[0].violated(frame, construction.table)[inside].any()
    rng = np.random.default_rng(1)
    encoder = TableEncoder(complete).fit()
    codes = np.stack([rng.integers(block.size, size=2_000) for block in encoder.blocks_], axis=1)
    rows = construction.decode(encoder.decode(codes, rng=rng), complete, released, rng)
    exact = np.all([np.ones(len(rows), dtype=bool), *(c.holds(rows) for c in construction.checks(released))], axis=0)
    assert exact.mean() > 0.5
    assert exact.all() or declared
    rows = rows[exact & rows["total"].notna()]
    assert (rows["total"] - product(rows)).abs().max() <= (0.005 if "rate" in text else 1e-9)
    assert rows["total"].between(low, high).all()


@pytest.mark.parametrize(
    ("text", "missing", "declared"),
    [
        ("bmi == weight / (height / 100) ** 2", False, True),
        ("bmi == 10000 * weight / height / height", True, False),
        ("10_000 * weight / (height * height) == bmi", False, False),
        ("bmi == -weight / -(height / 100 * height / 100)", True, True),
    ],
)
def test_ratios_of_columns_come_back_and_are_kept_by_rows_drawn_at_random(text, missing, declared):
    frame = pd.DataFrame({"weight": RNG.integers(40, 120, N) / 1.0, "height": RNG.integers(150, 200, N)})
    frame["bmi"] = (frame["weight"] / (frame["height"] / 100) ** 2).round(1)
    frame["bmi"] = frame["bmi"].mask(frame.index % 7 == 0) if missing else frame["bmi"]
    bounds = (10, 60) if declared else None
    schema = Schema(
        [
            Numeric("weight", (30, 150)),
            Numeric("height", (0, 200) if declared else (140, 200), integer=True),
            Numeric("bmi", bounds, missing=missing, decimals=1),
        ]
    )
    construction, seen, complete, released = constructed(text, frame=frame, schema=schema)
    assert construction.left == ()
    assert ("bmi" in seen) == missing
    assert released["bmi"].bounds == (pytest.approx(bounds or (30 / 4, 150 / 1.4**2)))
    back = construction.decode(seen, complete, released, np.random.default_rng(0))
    np.testing.assert_allclose(back["bmi"], frame["bmi"], atol=1e-9)
    assert not construction.steps[0].violated(frame, construction.table).any()
    wrong = construction.steps[0].violated(frame.assign(bmi=frame["bmi"] + 1), construction.table)
    assert (wrong == frame["bmi"].notna()).all()
    drawn = pd.DataFrame({"weight": RNG.uniform(30, 150, N), "height": RNG.integers(0 if declared else 140, 201, N)})
    drawn = drawn.assign(**({"bmi": RNG.random(N) < 0.8} if missing else {}))
    rows = construction.decode(drawn, complete, released, np.random.default_rng(1))
    checks = construction.checks(released)
    assert len(checks) == declared
    kept = np.all([np.ones(N, dtype=bool), *(check.holds(rows) for check in checks)], axis=0)
    assert kept.mean() > 0.2
    rows = rows[kept & rows["bmi"].notna()]
    ratio = rows["weight"] / (rows["height"] / 100) ** 2
    assert (rows["bmi"] - ratio).abs().max() <= 0.0500001


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_a_ratio_of_a_denominator_of_zero_is_missing_or_drawn_again(missing, dtype):
    text = "rate == cases / people"
    dtype = "Int64" if missing and dtype == "int64" else dtype
    schema = Schema(
        [Numeric("cases", (0, 3), integer=True), Numeric("people", (0, 3), integer=True)]
        + [Numeric("rate", (0, 100), missing=missing, dtype=dtype, integer=dtype != "float64")]
    )
    frame = pd.DataFrame({"cases": [0, 2, 3], "people": [1, 2, 3], "rate": pd.array([0, 1, 1], dtype=dtype)})
    construction, _, complete, released = constructed(text, frame=frame, schema=schema)
    pairs = pd.DataFrame([(c, p) for c in range(4) for p in range(4)], columns=["cases", "people"])
    seen = pairs.assign(rate=True) if missing else pairs
    rows = construction.decode(seen, complete, released, np.random.default_rng(0))
    (check,) = construction.checks(released)
    undefined = (rows["people"] == 0).to_numpy()
    if missing:
        assert rows["rate"].isna().to_numpy().tolist() == undefined.tolist()
        assert check.holds(rows).all()
    else:
        assert check.holds(rows).tolist() == (~undefined).tolist()
    assert check.advice(rows) is None
    nothing_else = rows[undefined] if not missing else rows
    if not missing:  # what keeps the constraint from ever holding, where no other rows are drawn
        assert "'rate' has no value where its denominator is 0" in check.advice(nothing_else)
        assert "missing=True of 'rate', or bounds of 'people' that leave out 0" in check.advice(nothing_else)
    # rows of the table whose ratio is not defined violate the constraint, unless it is missing
    private = pd.DataFrame({"cases": [0, 1], "people": [0, 0], "rate": pd.array([0, 1], dtype=dtype)})
    assert construction.steps[0].violated(private, construction.table).all()
    if missing:
        nothing = private.assign(rate=pd.array([None, None], dtype=dtype))
        assert not construction.steps[0].violated(nothing, construction.table).any()


def test_the_model_sees_no_missing_ratios_that_follow_from_a_denominator_of_zero():
    """Else noise on their share would make other ratios missing."""
    schema = Schema(
        [Numeric("cases", (0, 9), missing=True), Numeric("people", (0, 9)), Numeric("rate", (0, 9), missing=True)]
    )
    frame = pd.DataFrame(
        {"cases": [1, 2, 3, None, 4], "people": [2, 0, 3, 0, 8], "rate": [0.5, None, None, None, None]}
    )
    construction, _, complete, released = constructed("rate == cases / people", frame=frame, schema=schema)
    seen = construction.encode(frame)
    assert seen["rate"].tolist() == [True, True, False, False, False]
    rows = construction.decode(seen, complete, released, np.random.default_rng(0))
    assert rows["rate"].isna().tolist() == frame["rate"].isna().tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "Int64"])
def test_a_ratio_without_bounds_has_those_of_its_dtype(dtype):
    total = Numeric("total", dtype=dtype, integer="nt" in dtype)
    schema = Schema([Numeric("low", (-9, 9)), Numeric("high", (-9, 9)), total])
    frame = pd.DataFrame({"low": [1.0, 4.0], "high": [1.0, 2.0], "total": pd.array([1, 2], dtype=dtype)})
    construction, seen, complete, released = constructed("total == low / high", frame=frame, schema=schema)
    low, high = released["total"].bounds
    most = {"int8": 128, "Int64": 2**53}.get(dtype, 8e307 if dtype == "float64" else np.finfo(np.float32).max)
    assert (low, high) == pytest.approx((-most, most), rel=0.01)
    assert construction.decode(seen, complete, released, np.random.default_rng(0))["total"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("total == width ** 5", "exponent must be 2, 3 or 4"),
        ("total == width ** height", "exponent must be 2, 3 or 4"),
        ("total == width ** 2.0", "exponent must be 2, 3 or 4"),
        ("total == 2 ** -1 * width", "exponent must be 2, 3 or 4"),
        ("total > 'a' ** 2", "different kinds"),
        ("born ** 2 > 3", "different kinds"),
    ],
)
def test_powers_are_small_whole_ones_of_numbers(text, message):
    schema = Schema(
        [Numeric("total", (0, 9)), Numeric("width", (0, 3)), Numeric("height", (0, 3))]
        + [Datetime("born", ("2000-01-01", "2020-01-01"))]
    )
    with pytest.raises(ValueError, match=message):
        Construction.of(schema.constrain(text))


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("total == width ** 2", (0, 9)),
        ("total == width ** 3", (-8, 27)),
        ("total == -(width ** 2) * height", (-18, 0)),
        ("total == height ** 4 / 2", (0.5, 8)),
        ("total == width / height ** 2", (-2, 3)),
        ("total == 1 / height", (0.5, 1)),
    ],
)
def test_powers_and_ratios_have_the_bounds_of_their_values(text, bounds):
    schema = Schema([Numeric("total"), Numeric("width", (-2, 3)), Numeric("height", (1, 2))])
    frame = pd.DataFrame({"width": RNG.uniform(-2, 3, N), "height": RNG.uniform(1, 2, N)})
    frame.insert(0, "total", frame.eval(text.split(" == ")[1]))
    _, _, _, released = constructed(text, frame=frame, schema=schema)
    assert released["total"].bounds == pytest.approx(bounds)
    assert frame["total"].between(*released["total"].bounds).all()


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("int32", "total == width * height"),
        ("int64", "total == 1e9 * width * height"),
        ("int8", "total == width + 100"),
    ],
)
def test_rows_whose_computed_number_has_no_place_in_its_dtype_are_drawn_again(dtype, text):
    sides = [Numeric(name, (0, 100_000), integer=True) for name in ("width", "height")]
    schema = Schema([*sides, Numeric("total", integer=True, dtype=dtype)])
    frame = pd.DataFrame({"width": [1, 9], "height": [2, 9], "total": [101, 109]})
    construction, _, complete, released = constructed(text, frame=frame, schema=schema)
    sizes = (10 ** RNG.uniform(0, 5, (N, 2))).astype(int)
    drawn = pd.DataFrame(sizes, columns=["width", "height"])
    rows = construction.decode(drawn, complete, released, np.random.default_rng(0))
    (check,) = construction.checks(released)
    assert check.text == text
    good = check.holds(rows)
    assert 0 < good.mean() < 1
    left, right = (rows.eval(side) for side in text.split(" == "))
    assert ((left == right) == good).all()


@pytest.mark.parametrize(
    ("text", "bounds", "refused"),
    [
        ("total == low + high", (50, 99), True),
        ("total == low + high", (18, 99), False),
        ("total == low - high", (-50, -10), True),
        ("total == low * high", (82, 99), True),
        ("total == low / high ** 2", (10, 99), False),  # the denominator may be next to 0
        ("total == -(low ** 2)", (1, 99), True),
        ("tenths == low", (9, 20), False),
        ("tenths == low + .96", (10, 20), False),  # 9.96 rounds to 10.0
        ("tenths == low + .9", (10, 20), True),
        ("total == low ** 2 / 81", (1, 2), False),
    ],
)
def test_bounds_that_no_computed_value_meets_are_refused_before_the_charge(text, bounds, refused):
    schema = Schema(
        [Numeric("low", (0, 9)), Numeric("high", (0, 9)), Numeric("total", bounds), Numeric("open")]
        + [Numeric("tenths", bounds, decimals=1)]
    )
    construction = Construction.of(schema.constrain(text))
    if refused:
        with pytest.raises(SchemaError, match=rf"the declared bounds of '{text.split()[0]}'.*nothing was charged"):
            check_equalities(construction)
    else:
        check_equalities(construction)
    check_equalities(Construction.of(schema.constrain("open == low + high")))


def test_products_of_many_columns_have_bounds_at_once():
    names = [f"c{k}" for k in range(40)]
    schema = Schema([*(Numeric(name, (-2, 2)) for name in names), Numeric("total")])
    frame = pd.DataFrame(RNG.uniform(-2, 2, (20, 40)), columns=names)
    frame["total"] = frame.prod(axis=1)
    *_, released = constructed(f"total == {' * '.join(names)}", frame=frame, schema=schema)
    assert released["total"].bounds == pytest.approx((-(2.0**40), 2.0**40))


def test_sums_and_products_within_the_bounds_of_their_column_need_no_check():
    for text in ("total == low + high", "total == low * high"):
        construction, *_, released = constructed(text)
        assert not construction.checks(released)


def test_products_of_huge_numbers_end_at_the_largest_float():
    sides = [Numeric("a", (0, 1e200)), Numeric("b", (0, 1e200)), Numeric("c", (0, 5), integer=True)]
    frame = pd.DataFrame({"a": [1e200, 2.0], "b": [1e200, 0.5], "c": [0, 3], "total": [0.0, 3.0]})
    schema = Schema([*sides, Numeric("total")])
    construction, seen, complete, released = constructed("total == a * b * c", frame=frame, schema=schema)
    assert construction.decode(seen, complete, released, np.random.default_rng(0))["total"].tolist() == [0.0, 3.0]
    assert np.isfinite(released["total"].bounds).all()
    for text in ("total == a * b * 1e300 * 1e300", "total == 1e300 * 1e300 * a"):
        with pytest.raises(SchemaError, match="cannot be constructed"):
            check_equalities(Construction.of(schema.constrain(text)))


def test_computed_numbers_have_no_more_digits_than_they_need():
    values = np.array([3 * 49.95, -3 * 49.95, 0.1 + 0.2, 0.0, np.nan, 1e300, 1e-300, 5e-324, 123456789.12345])
    wanted = [149.85, -149.85, 0.3, 0.0, np.nan, 1e300, 1e-300, 5e-324, 123456789.12345]
    np.testing.assert_array_equal(without_rounding_errors(values), wanted)


@pytest.mark.parametrize("text", ["total == width * height / height", "total == " + "(" * 14 + "width" + " ** 4)" * 14,
                                  "total == width * (1e300 * 1e300) / (1e300 * 1e300)"])  # fmt: skip
def test_a_ratio_to_itself_a_huge_power_and_no_number_are_refused(text):
    schema = Schema([Numeric("total", (0, 9)), Numeric("width", (0, 3)), Numeric("height", (0, 3))])
    with pytest.raises(SchemaError, match="cannot be constructed"):
        check_equalities(Construction.of(schema.constrain(text)))


@pytest.mark.parametrize("dtype", ["int8", "Int8", "int64"])
def test_arithmetic_of_whole_numbers_does_not_wrap_around(dtype):
    frame = pd.DataFrame({"width": pd.Series([100, 3], dtype=dtype)})
    for text in ("width * width == 10_000", "width + width == 200", "((width ** 4) ** 4) ** 4 > 9e127"):
        assert read_constraint(text, ["width"]).holds(frame).tolist() == [True, False]
    assert read_constraint("width < " + "(" * 40 + "9" + " ** 4)" * 40, ["width"]).holds(frame).all()


def test_dates_with_and_without_a_time_zone_are_not_compared_and_the_refusal_says_what_to_do():
    schema = Schema([Datetime("opened"), Datetime("paid", dtype="datetime64[us, Europe/Berlin]")])
    with pytest.raises(ValueError, match=r"'paid' has a time zone, and 'opened' has none: .*\['paid'\].dt.tz_local"):
        read_constraint("opened <= paid or opened >= paid", schema.names).check(schema)


def _mapping(n_codes, prefix=""):
    table = {f"M{code:06d}": f"group {code % 7}" for code in range(n_codes)}
    return f"{prefix}group == {table}[merchant]"


def test_a_mapping_may_be_a_long_list():
    codes, groups = tuple(f"M{code:06d}" for code in range(5000)), tuple(f"group {k}" for k in range(7))
    schema = Schema([Categorical("merchant", codes), Categorical("group", groups)]).constrain(_mapping(5000))
    (lookup,) = (read_constraint(text, schema.names).check(schema) for text in schema.constraints)
    assert lookup.table["M004999"] == "group 1"
    assert lookup.holds(pd.DataFrame({"merchant": [codes[8], codes[8]], "group": ["group 1", "group 2"]})).tolist() == [
        True,
        False,
    ]
    numbers = {code: code // 100 for code in range(15_000)}
    assert read_constraint(f"region == {numbers}[town]", ("region", "town")).table[14_999] == 149


@pytest.mark.parametrize(
    "text",
    [
        _mapping(20_000),
        _mapping(2000, "merchant != 'x' and " * 60),
        f"group == {{'a': {'-' * 20_000}1}}[merchant]",
        f"group == {{'a': {'(' * 10_000}1{')' * 10_000}}}[merchant]",
        "group == {" + "'a': {'b': 1}, " * 2000 + "}[merchant]",
        " " * 20_000 + "group == {'a': 'b'}[merchant]",
    ],
)
def test_other_long_texts_are_refused_before_they_are_parsed(text, monkeypatch):
    monkeypatch.setattr("ast.parse", None)
    with pytest.raises(ValueError, match=r"at most 10,000 characters, and a mapping of single values 200,000; got"):
        read_constraint(text, ("group", "merchant"))


@pytest.mark.parametrize(
    "text",
    [
        "group == {1:" + "111:" * 40_000 + "1}[merchant]]]",
        "group == {" + "1:1  " * 40_000 + "}[merchant]",
        "group == {1: 1" + " " * 190_000 + "[merchant]",
        "group == {1: 1," + "1" * 190_000 + "[merchant]",
        "group == {" + "'a': \"b\", " * 19_000 + "}}[merchant]",
    ],
    ids=["digits", "spaces between", "spaces at the end", "one number", "without a value"],
)
def test_a_long_text_is_searched_for_a_mapping_in_time_in_proportion_to_its_length(text):
    # a search that goes back through all ways of reading these texts would never end
    with pytest.raises(ValueError, match="at most 10,000 characters"):
        read_constraint(text, ("group", "merchant"))


def test_all_constraints_of_a_schema_together_have_a_length():
    columns = [Categorical("merchant"), Categorical("group")]
    texts = [_mapping(6000) + " " * k for k in range(20)]
    with pytest.raises(SchemaError, match="all constraints may have at most 2,000,000 characters"):
        Schema(columns, texts)
