from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from _watchdog import ends
from sklearn.base import clone

from skdpgen.exceptions import SchemaError
from skdpgen.tabular import Binning, Boolean, Categorical, Datetime, Numeric, Schema, TableEncoder, sample_levels
from skdpgen.tabular._frames import restore

MESSY = Schema(
    [
        Numeric("age", (17, 90), integer=True, dtype="int32"),
        Numeric("weight", (0.5, 250.0), missing=True, dtype="float32"),
        Numeric("price", (-5, 5), decimals=2),
        Numeric("children", (0, 20), integer=True, missing=True),
        Numeric("rooms", (0, 9), integer=True, missing=True, dtype="float64"),
        Categorical("sex", ("Male", "Female")),
        Categorical("city", ("Bonn", "Rome"), missing=True, other="other", dtype="category"),
        Categorical("note", ("a", "b"), missing=True, dtype="string"),
        Categorical("object", ("a", "b"), missing=True, dtype="object"),
        Categorical("grade", (3, 1, 2), missing=True, other=-1),
        Categorical("code", (1.5, 2.5), missing=True),
        Categorical("stage", ("low", "mid", "high"), missing=True, ordered=True),
        Boolean("smoker", missing=True),
        Boolean("member"),
        Datetime("visit", ("2020-01-01", "2023-12-31"), resolution="D", missing=True, dtype="datetime64[ns]"),
        Datetime("seen", ("2020-01-01", "2023-12-31"), dtype="datetime64[us, Europe/Paris]"),
    ]
)


def messy(n=300, seed=0):
    """Rows of every kind, drawn through the encoder itself."""
    encoder = TableEncoder(MESSY).fit()
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(block.size, size=n) for block in encoder.blocks_], axis=1)
    return encoder.decode(codes, rng=rng)


@pytest.mark.parametrize("numeric", ["bins", "scale"])
def test_round_trip_keeps_columns_dtypes_and_facts(numeric):
    frame = messy()
    encoder = TableEncoder(MESSY, numeric=numeric, on_invalid="raise").fit(frame)
    back = encoder.inverse_transform(encoder.transform(frame), rng=np.random.default_rng(0))
    assert list(back.columns) == list(MESSY.names)
    pd.testing.assert_series_equal(back.dtypes, frame.dtypes)
    expected = ["int32", "float32", "float64", "Int64", "float64"]
    expected += ["category", "string", "object", "Int64", "float64", "category", "boolean", "bool"]
    found = [str(t) for t in back.dtypes]
    assert found[:5] + found[6:14] == expected
    assert found[14:] == ["datetime64[ns]", "datetime64[us, Europe/Paris]"]
    for column in MESSY.columns:
        assert frame[column.name].isna().equals(back[column.name].isna())
        assert frame[column.name].isna().any() == column.missing
        if isinstance(column, Categorical | Boolean):
            pd.testing.assert_series_equal(frame[column.name], back[column.name])
    assert list(back["city"].cat.categories) == ["Bonn", "Rome", "other"]
    assert not back["city"].cat.ordered
    assert back["stage"].dtype == pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    assert (back["stage"].dropna() >= "mid").any()
    assert back["age"].between(17, 90).all()
    assert back["price"].between(-5, 5).all()
    rooms = back["rooms"].dropna()
    assert (rooms == rooms.round()).all()
    assert (back["price"] == back["price"].round(2)).all()
    visits = back["visit"].dropna()
    assert (visits == visits.dt.floor("D")).all()
    assert visits.between("2020-01-01", "2023-12-31").all()
    seen = back["seen"]
    assert (seen == seen.dt.floor("s")).all()
    # the table that comes out is one that goes in
    encoder.fit(back)


def test_narrow_dtypes_stay_inside_their_bounds():
    # 0.1 is rounded up in float32 and float16: values at the bound must not leave it
    for dtype in ("float32", "float16", "Float32"):
        encoder = TableEncoder(Schema([Numeric("x", (-0.1, 0.1), dtype=dtype)]), numeric="scale", on_invalid="raise")
        frame = encoder.fit().inverse_transform(np.array([[1.0], [-1.0], [0.5]]))
        assert str(frame["x"].dtype) == dtype
        assert frame["x"].astype(float).between(-0.1, 0.1).all()
        encoder.fit(frame)


def test_scaled_numbers_come_back():
    frame = messy()
    encoder = TableEncoder(MESSY, numeric="scale").fit(frame)
    back = encoder.inverse_transform(encoder.transform(frame))
    for column in MESSY.columns:
        if isinstance(column, Numeric):
            ours, theirs = (t[column.name].to_numpy(dtype=float, na_value=np.nan) for t in (frame, back))
            np.testing.assert_allclose(theirs, ours, rtol=1e-6, atol=1e-6)
    pd.testing.assert_series_equal(frame["visit"], back["visit"])


def test_row_norm_holds_for_every_table_and_is_attained():
    extreme = np.array([1e308, -1e308, 1e-320, -0.0, np.nan, 89.99999999999999, 90.0, 250.00000000000003])
    rows = {}
    for column in MESSY.columns:
        if isinstance(column, Categorical | Boolean):
            values = [*column.values, *([None] if column.missing else [])]
            rows[column.name] = pd.Series(np.resize(np.array(values, dtype=object), 800), dtype=object)
        elif isinstance(column, Datetime):
            times = pd.to_datetime(["1700-01-01", "2200-01-01", None if column.missing else "2020-01-01"])
            zone = "Europe/Paris" if "Paris" in column.dtype else None
            rows[column.name] = pd.Series(np.resize(times.to_numpy(), 800)).dt.tz_localize(zone)
        else:
            values = np.resize(extreme, 800)
            rows[column.name] = values if column.missing else np.where(np.isnan(values), 1.0, values)
    frame = pd.DataFrame(rows)
    for numeric in ("bins", "scale"):
        encoder = TableEncoder(MESSY, numeric=numeric).fit(frame)
        matrix = encoder.transform(frame)
        norms = np.sqrt((matrix**2).sum(axis=1))
        assert norms.max() <= encoder.row_norm
        assert norms.max() >= 0.999 * encoder.row_norm
        for block in encoder.blocks_:
            part = matrix[:, block.start : block.stop]
            assert (part**2).sum(axis=1).max() <= 1.0
            if block.kind == "levels":
                assert (part.sum(axis=1) == 1).all()
            elif block.size == 2:
                assert (part[:, 0] * part[:, 1] == 0).all()
                assert set(np.unique(part[:, 1])) == {0.0, 1.0}
        if numeric == "bins":
            assert encoder.row_norm == pytest.approx(np.sqrt(len(MESSY)))


def test_one_hot_of_codes_equals_transform():
    frame = messy()
    encoder = TableEncoder(MESSY).fit(frame)
    codes = encoder.codes(frame)
    assert codes.dtype == np.int16
    np.testing.assert_array_equal(encoder.one_hot(codes), encoder.transform(frame))
    assert encoder.one_hot(codes[:0]).shape == (0, encoder.n_features_out_)
    with pytest.raises(ValueError, match="columns of codes"):
        encoder.decode(codes[:, :3])


def test_codes_and_values_of_scaled_tables_decode():
    frame = messy()
    encoder = TableEncoder(MESSY, numeric="scale").fit(frame)
    matrix = encoder.transform(frame)
    values = np.stack([matrix[:, block.start] for block in encoder.value_blocks_], axis=1)
    decoded = encoder.decode(encoder.codes(frame), values)
    pd.testing.assert_series_equal(decoded["sex"], frame["sex"])
    pd.testing.assert_series_equal(decoded["age"], frame["age"])


def test_levels_are_sampled_from_their_distribution_not_the_likeliest():
    schema = Schema([Categorical("x", ("a", "b", "c"))])
    encoder = TableEncoder(schema).fit()
    back = encoder.inverse_transform(np.tile([0.6, 0.3, -0.5], (30_000, 1)), rng=np.random.default_rng(0))
    shares = back["x"].value_counts(normalize=True)
    assert shares["a"] == pytest.approx(2 / 3, abs=0.015)
    assert shares["b"] == pytest.approx(1 / 3, abs=0.015)
    assert "c" not in shares


def test_blocks_without_weight_are_uniform():
    nothing = np.array([[0.0, 0.0], [-1.0, -2.0], [np.nan, -np.inf]])
    drawn = sample_levels(np.repeat(nothing, 4000, axis=0), np.random.default_rng(0)).reshape(3, -1)
    assert drawn.mean(axis=1) == pytest.approx([0.5] * 3, abs=0.04)


def test_levels_of_no_weight_are_never_drawn():
    class Ends:
        def random(self, size):
            return np.resize([0.0, 1 - 2**-53], size)

    weights = np.array([[0.0, 1e-300, 0.0], [0.0, 1e308, 0.0], [0.0, 0.1, 0.0], [0.0, 5e-324, 0.0]])
    assert (sample_levels(np.repeat(weights, 2, axis=0), Ends()) == 1).all()


def test_matrices_that_came_from_no_table_decode():
    rng = np.random.default_rng(0)
    for numeric in ("bins", "scale"):
        encoder = TableEncoder(MESSY, numeric=numeric, on_invalid="raise").fit()
        for scale in (0.0, 1e-3, 1.0, 1e6):
            encoder.fit(encoder.inverse_transform(scale * rng.standard_normal((50, encoder.n_features_out_)), rng=rng))
        wild = np.full((4, encoder.n_features_out_), np.nan)
        wild[1], wild[2] = np.inf, -np.inf
        encoder.fit(encoder.inverse_transform(wild, rng=rng))
        assert len(encoder.inverse_transform(wild[:0])) == 0
        with pytest.raises(ValueError, match="expected a matrix"):
            encoder.inverse_transform(wild[:, 1:])


def test_sampling_repeats_with_a_seed_and_differs_without():
    encoder = TableEncoder(MESSY).fit()
    zeros = np.zeros((200, encoder.n_features_out_))
    first, second = (encoder.inverse_transform(zeros, rng=np.random.default_rng(3)) for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    assert not encoder.inverse_transform(zeros).equals(encoder.inverse_transform(zeros))


def test_columns_and_values_that_do_not_fit_are_refused():
    frame = messy()
    encoder = TableEncoder(MESSY).fit(frame)
    with pytest.raises(ValueError, match=r"[Ff]eature names"):
        encoder.transform(frame[list(MESSY.names)[::-1]])
    with pytest.raises(SchemaError, match="another order"):
        TableEncoder(MESSY).fit(frame[list(MESSY.names)[::-1]])
    with pytest.raises(SchemaError, match="'age'"):
        TableEncoder(MESSY, on_invalid="raise").fit(frame.assign(age=200))
    with pytest.raises(SchemaError, match="'sex'"):
        encoder.transform(frame.assign(sex="unknown"))
    with pytest.raises(SchemaError, match="lacks bounds or categories of 'income'"):
        TableEncoder(Schema([Numeric("income")])).fit()
    with pytest.raises(SchemaError, match="not numeric in the schema: 'sex'"):
        TableEncoder(MESSY, binnings={"sex": None}).fit()


@pytest.mark.parametrize(
    "parameters",
    [{"numeric": "log"}, {"on_invalid": "ignore"}, {"n_bins": 0}, {"n_bins": 2.5}, {"schema": "age"}],
)
def test_bad_parameters_are_refused_in_fit(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        TableEncoder(**{"schema": MESSY, **parameters}).fit()


def test_arrays_are_read_by_position():
    schema = Schema([Numeric("a", (0, 1)), Categorical("b", (1, 2))])
    encoder = TableEncoder(schema, numeric="scale").fit(np.array([[0.5, 2.0]]))
    assert encoder.transform(np.array([[1.0, 1.0]])).tolist() == [[1.0, 1.0, 0.0]]
    with pytest.raises(SchemaError, match="the array has 3 columns"):
        encoder.fit(np.zeros((2, 3)))


def test_names_of_the_matrix_say_column_and_level():
    schema = Schema([Numeric("a", (0, 1)), Categorical("b", ("x", "y"), missing=True, other="other"), Boolean("c")])
    frame = pd.DataFrame({"a": [0.1], "b": ["x"], "c": [True]})
    encoder = TableEncoder(schema, n_bins=2).fit(frame)
    names = ["a=[0.0, 0.5]", "a=[0.5, 1.0]", "b=x", "b=y", "b=other", "b=missing", "c=False", "c=True"]
    assert list(encoder.get_feature_names_out()) == names
    assert list(TableEncoder(schema, numeric="scale").fit(frame).get_feature_names_out())[:2] == ["a", "b=x"]
    output = clone(encoder).set_output(transform="pandas").fit_transform(frame)
    assert list(output.columns) == list(encoder.get_feature_names_out())


def test_clone_and_pickle_keep_the_encoder():
    frame = messy()
    binnings = {"age": Binning.equal_width(MESSY["age"], 5)}
    encoder = TableEncoder(MESSY, binnings=binnings).fit(frame)
    again = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(again.transform(frame), encoder.transform(frame))
    np.testing.assert_array_equal(clone(encoder).fit().transform(frame), encoder.transform(frame))
    assert encoder.blocks_[0].size == 5


def test_fitted_state_does_not_depend_on_the_rows():
    one, other = (TableEncoder(MESSY).fit(messy(seed=seed)) for seed in (0, 1))
    assert pickle.dumps(vars(one)) == pickle.dumps(vars(other))
    without = TableEncoder(MESSY).fit()
    assert without.blocks_ == one.blocks_
    assert list(without.feature_names_in_) == list(one.feature_names_in_)


def test_a_large_table_is_encoded_without_a_loop_over_rows():
    frame = messy(2000).sample(200_000, replace=True, random_state=0, ignore_index=True)
    encoder = TableEncoder(MESSY).fit()
    with ends(20):  # .4 s
        codes = encoder.codes(frame)
    assert codes.shape == (200_000, 16)


@pytest.mark.parametrize("dtype", ["float16", "float32", "Float32"])
def test_values_at_the_end_of_a_narrow_dtype_are_restored_without_a_warning(dtype):
    most = float(np.finfo(dtype.lower()).max)
    values = np.array([-2 * most, -most, 0.5, most, 2 * most, 0.999999 * most])
    restored = restore(values, Numeric("a", (-most, most), dtype=dtype)).astype("float64").to_numpy()
    assert restored.min() == -most
    assert restored.max() == most
    np.testing.assert_allclose(restored, np.clip(values, -most, most), rtol=1e-3)
