from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from _claims import RELATIONS, assert_sensitivity

from skdpgen.exceptions import SchemaError, UtilityWarning
from skdpgen.mechanisms import N_OCTAVE_CELLS, add_gaussian
from skdpgen.mechanisms._selection import with_hidden_signs
from skdpgen.tabular import (
    Categorical,
    Datetime,
    Numeric,
    Schema,
    TableEncoder,
    bins_from_histogram,
    bins_histogram,
    schema_from_histogram,
    schema_histogram,
)
from skdpgen.tabular import _learning as learning
from skdpgen.tabular import _schema_cells as schema_cells
from skdpgen.tabular._dtypes import fit_dtype


class Normals:
    """Repeatable noise for tests."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def standard_normal(self, size):
        return self.rng.standard_normal(size)

    def integers(self, high, size):
        return self.rng.integers(high, size=size)


KINDS = Schema(
    [
        Numeric("money", missing=True),
        Numeric("count", integer=True),
        Datetime("when", missing=True),
        Categorical("city", missing=True),
        Categorical("code"),
        Numeric("declared", (0, 1)),
    ]
)
VALUES = {
    "money": [0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, -1e307, np.nan, 3.5],
    "count": [0, 1, -1, 2**40, 7],
    "when": pd.to_datetime(["1700-01-01", "2200-01-01", "2020-02-29T12:30:00", None], format="ISO8601"),
    "city": ["a", "b", "", "other", None],
    "code": [1, 2, -1],
    "declared": [0.0, 9.0, -9.0],
}


def table(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {name: pd.Series(values)[rng.integers(len(values), size=n)].array for name, values in VALUES.items()}
    )


def aligned(frame, names):
    """The schema histogram with the categories of all tables in one order, absent ones counted as 0."""
    histogram = schema_histogram(frame, KINDS)
    parts = np.split(histogram.bounded_sum.value, np.cumsum(histogram.sizes)[:-1])
    aligned_parts = []
    for name, part in zip(KINDS.incomplete, parts):
        if name in histogram.keys:
            counts = dict(zip(histogram.keys[name], part))
            part = np.append([counts.get(key, 0.0) for key in names[name]], part[-1])
        aligned_parts.append(part)
    weights = schema_cells.cell_weights(KINDS, list(map(len, aligned_parts)), histogram.keys)
    return replace(histogram.bounded_sum, value=np.concatenate(aligned_parts), weights=weights)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("query", ["schema", "bins"])
def test_sensitivity_of_the_histograms_holds_and_is_attained(query, relation):
    names = {name: [v for v in VALUES[name] if v is not None] for name in ("city", "code")}
    declared = KINDS.replace(
        Numeric("money", (-5, 5), missing=True),
        Numeric("count", (0, 2000), integer=True),
        Datetime("when", ("2000-01-01", "2030-01-01"), missing=True),
        Categorical("city", ("a",), missing=True, other="other"),
        Categorical("code", (1,), other=-1),
    )

    def count(frame):
        return aligned(frame, names) if query == "schema" else bins_histogram(frame, declared)

    pairs = []
    for seed in range(30):
        frame = table(6, seed)
        if relation == "add_or_remove_one":
            pairs.append((frame, frame.iloc[1:]))
        else:
            pairs.append((frame, pd.concat([frame.iloc[1:], table(1, seed + 100)], ignore_index=True)))
    # numbers other than zero, the two of each column of different signs; values of different decimals and steps
    places = ({"count": 4, "when": 2, "money": 8}, {"count": 2, "money": 3, "city": 1, "code": 1, "declared": 1})
    one, other = (
        pd.DataFrame({name: pd.Series(values)[[place.get(name, 0)]].array for name, values in VALUES.items()})
        for place in places
    )
    rest = table(4, 0)
    attained = (
        [(pd.concat([rest, one]), rest)]
        if relation == "add_or_remove_one"
        else [(pd.concat([rest, one]), pd.concat([rest, other]))]
    )
    assert_sensitivity(count, pairs, attained=attained, relation=relation)


def learn(frame, schema, noise_sd, delta=1e-6, seed=0):
    histogram = schema_histogram(frame, schema)
    z = noise_sd / histogram.bounded_sum.sensitivity("add_or_remove_one")
    noisy = add_gaussian(histogram.bounded_sum, z, Normals(seed), "add_or_remove_one")
    return schema_from_histogram(noisy, histogram, noise_sd, delta)


def bills(share, seed, n=30_000):
    """Amounts of which a share is negative, spread over 20 octaves; a tenth of the others is zero."""
    rng = np.random.default_rng(seed)
    amounts = np.exp(rng.normal(10, 1.6, n)) * (rng.random(n) > 0.1)
    return np.where(rng.random(n) < share, -np.exp(rng.normal(6.5, 1.8, n)), amounts).round()


@pytest.mark.parametrize(("share", "sd"), [(0.02, 50.0), (0.05, 120.0)])
def test_a_thin_negative_tail_is_within_the_learned_bounds(share, sd):
    lost = []
    for seed in range(8):
        x = bills(share, seed)
        low, _ = _noisy(pd.DataFrame({"x": x}), sd, seed)["x"].bounds
        lost.append(((x < low) & (x < 0)).sum() / (x < 0).sum())
    assert np.mean(lost) < 0.05


def test_a_column_without_negative_values_gets_no_negative_bound():
    lows = [_noisy(pd.DataFrame({"x": bills(0.0, seed)}), 120.0, seed)["x"].bounds[0] for seed in range(40)]
    assert np.mean(np.array(lows) < 0) < 0.1


def test_counts_of_signs_widen_a_range_that_octaves_hide():
    noisy = np.zeros(N_OCTAVE_CELLS)
    zero = N_OCTAVE_CELLS // 2
    noisy[zero : zero + 11] = 1000.0
    many, few = np.array([900.0, 1e4]), np.array([300.0, 1e4])
    assert with_hidden_signs((zero, zero + 10), noisy, 100.0, many, 133.0) == (zero - 10, zero + 10)
    assert with_hidden_signs((zero, zero + 10), noisy, 100.0, few, 133.0) == (zero, zero + 10)
    assert with_hidden_signs((zero, zero + 10), noisy, 0.0, many, 0.0) == (zero, zero + 10)
    assert with_hidden_signs(None, noisy, 100.0, many, 133.0) is None
    # the octaves of the range account for the sign: it stays as it is
    noisy[zero - 3 : zero] = 300.0
    assert with_hidden_signs((zero - 3, zero + 10), noisy, 100.0, many, 133.0) == (zero - 3, zero + 10)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("rest", [0.0, np.nan])
def test_amounts_that_most_rows_do_not_have_get_a_range_from_the_count_of_their_sign(rest, sign):
    rng = np.random.default_rng(0)
    amounts = sign * np.where(rng.random(2000) < 0.8, rest, np.exp(rng.normal(6, 1, 2000)).round(2))
    most = np.nanmedian(np.abs(amounts[amounts != 0]))
    ends = []
    for seed in range(40):
        column = _noisy(pd.DataFrame({"x": amounts}), 37.5, seed)["x"]
        ends.append(np.abs(column.bounds).max())
        assert min(np.multiply(column.bounds, sign)) <= 0
    assert np.mean(np.array(ends) >= most) > 0.9


@pytest.mark.parametrize("n_columns", [2, 4])
def test_a_table_of_such_amounts_alone_has_no_range_of_next_to_nothing(n_columns):
    rng = np.random.default_rng(0)
    amounts = np.where(rng.random((2000, n_columns)) < 0.8, 0.0, np.exp(rng.normal(6, 1, (2000, n_columns))).round(2))
    frame = pd.DataFrame(amounts, columns=list("abcd")[:n_columns])
    ends = [_noisy(frame, 32.0, seed)[name].bounds[1] for seed in range(20) for name in frame]
    assert np.mean(np.array(ends) >= np.median(amounts[amounts > 0])) > 0.9


def test_the_end_of_a_hidden_sign_is_where_its_rows_are():
    noisy, zero = np.random.default_rng(0).normal(0, 30.0, N_OCTAVE_CELLS), N_OCTAVE_CELLS // 2
    noisy[zero] = 1500.0
    noisy[zero + 38 : zero + 43] += 90.0
    signs = np.array([0.0, 450.0])
    first, last = with_hidden_signs((zero, zero), noisy, 30.0, signs, 60.0)
    assert with_hidden_signs((zero, zero), noisy, 30.0, signs, 60.0, 1, (zero - 2, zero + 36)) == (zero, zero + 38)
    assert first == zero
    assert zero + 42 <= last <= zero + 50
    assert with_hidden_signs((zero, zero), noisy[::-1], 30.0, signs[::-1], 60.0) == (2 * zero - last, zero)
    assert with_hidden_signs((zero, zero), noisy, 30.0, np.array([0.0, 50.0]), 60.0) == (zero, zero)


def test_bounds_are_the_octaves_that_hold_values():
    frame = pd.DataFrame(
        {
            "ages": np.tile(np.arange(17, 91), 50),
            "losses": np.tile([-300.0, -2.5, -4.0, -300.0, -300.0], 740),
            "both": np.tile([-3, 0, 5, 6, 900], 740),
            "zero": np.zeros(3700),
            "one": np.ones(3700, dtype=int),
            "small": np.full(3700, 2.0**-10),
        }
    )
    schema = learn(frame, Schema.from_kinds(frame), 5.0)
    assert {c.name: c.bounds for c in schema.columns} == {
        "ages": (0, 127),
        "losses": (-512.0, 0.0),  # zero is near beside -512
        "both": (-3, 1023),
        "zero": (0.0, 1.0),
        "one": (0, 1),  # 0 is likelier than 2
        "small": (2.0**-10, 2.0**-9),
    }


def test_a_side_of_next_to_nothing_beside_a_wide_one_is_zero():
    zero, column = N_OCTAVE_CELLS // 2, Numeric("fee")
    assert learning._with_bounds(column, (zero - 1, zero + 37)).bounds == (0.0, 32.0)
    assert learning._with_bounds(column, (zero - 37, zero + 1)).bounds == (-32.0, 0.0)
    assert learning._with_bounds(column, (zero - 1, zero + 1)).bounds[0] < 0  # nothing is wide
    assert learning._with_bounds(column, (zero - 20, zero + 37)).bounds[0] < 0  # it may be of use


def test_learned_bounds_hold_every_octave():
    rng = np.random.default_rng(0)
    for integer in (False, True):
        for _ in range(40):
            value = float(rng.choice([-1, 1]) * 2.0 ** rng.uniform(0, 42))
            value = np.rint(value) if integer else value
            frame = pd.DataFrame({"x": np.full(100, value)})
            low, high = learn(frame, Schema([Numeric("x", integer=integer)]), 0.0)["x"].bounds
            assert low <= value <= high
            assert high <= 2 * abs(value) + 1 if value > 0 else low >= -2 * abs(value) - 1


def test_a_table_with_few_rows_has_no_column_of_absurd_bounds():
    """One cell that is far from all numbers passes for a likely one: bounds of 10^12 for numbers below 100."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{k}": np.round(rng.gamma(4.0, 8.0, 300), 1) for k in range(40)})
    frame["large"] = np.round(rng.lognormal(18, 0.5, 300), 1)  # of another unit
    histogram = schema_histogram(frame, Schema.from_kinds(frame))
    sd = 20.0
    noisy = histogram.bounded_sum.value.astype(float)
    size = histogram.sizes[0]
    weight = schema_cells.column_weights(histogram.schema["x0"])[0]
    noisy[:size] = 0.0  # the noise hides the first column,
    noisy[N_OCTAVE_CELLS // 2 + 45] = 4.25 * sd / weight  # and makes a number of it
    with pytest.warns(UtilityWarning, match="bounds or categories of 'x0'"):
        learned = schema_from_histogram(noisy, histogram, sd, 1e-6)
    assert learned["x0"].bounds == learning.DEFAULT_BOUNDS["numeric"]
    assert 40 < learned["x1"].bounds[1] < 300
    assert learned["large"].bounds[1] > frame["large"].quantile(0.9)
    noisy[size:] = 0.0  # where the noise hides all columns, no number is near the others
    with pytest.warns(UtilityWarning, match="bounds or categories of 'x0', 'x1'"):
        assert schema_from_histogram(noisy, histogram, sd, 1e-6)["x0"].bounds == learning.DEFAULT_BOUNDS["numeric"]


def test_a_warning_of_many_columns_names_the_first_ones():
    frame = pd.DataFrame(np.random.default_rng(0).random((50, 30)), columns=[f"x{k}" for k in range(30)])
    histogram = schema_histogram(frame, Schema.from_kinds(frame))
    noisy = np.zeros(len(histogram.bounded_sum.value))
    with pytest.warns(UtilityWarning, match=r"bounds or categories of 'x0', .*'x19' and 10 more: declare them"):
        schema_from_histogram(noisy, histogram, 20.0, 1e-6)


def test_learned_bounds_fit_the_dtype():
    frame = pd.DataFrame({"x": np.full(500, 200, dtype=np.uint8), "y": np.full(500, -128, dtype=np.int8)})
    schema = learn(frame, Schema.from_kinds(frame), 3.0)
    assert schema["x"].bounds == (128, 255)
    assert schema["y"].bounds[0] == -128


def test_datetimes_are_bounded_by_years():
    frame = pd.DataFrame({"x": pd.to_datetime(["2019-03-01T00:00:00", "2021-12-31T23:59:59"] * 300)})
    column = learn(frame, Schema.from_kinds(frame), 5.0)["x"]
    assert column.bounds == ("2019-01-01T00:00:00", "2021-12-31T23:59:59")


@pytest.mark.parametrize(("first", "last"), [(1930, 2005), (1812, 1899), (2021, 2023)])
def test_years_thin_of_rows_are_found_together(first, last):
    # 66 rows a year under a noise of 60: no year stands out, all of them do
    rng = np.random.default_rng(0)
    years = rng.integers(first, last + 1, 66 * (last - first + 1))
    frame = pd.DataFrame({"x": pd.to_datetime([f"{year}-07-01" for year in years])})
    clipped, ends = [], []
    for seed in range(20):
        low, high = (int(bound[:4]) for bound in _noisy(frame, 60.0 if last - first > 9 else 6.0, seed)["x"].bounds)
        clipped.append(np.mean((years < low) | (years > high)))
        ends.append((low, high))
    assert np.mean(clipped) < 0.05
    assert np.median(ends, axis=0) == pytest.approx((first, last), abs=15)


def _noisy(frame, sd, seed):
    histogram = schema_histogram(frame, Schema.from_kinds(frame))
    noise = sd * np.random.default_rng(seed).standard_normal(sum(histogram.sizes))
    noisy = histogram.bounded_sum.value + noise / histogram.bounded_sum.weights
    return schema_from_histogram(noisy, histogram, sd, 1e-5)


@pytest.mark.parametrize("resolution", ["D", "min", "us"])
@pytest.mark.parametrize("dtype", ["datetime64[ns]", "datetime64[us]", "datetime64[ns, UTC]"])
def test_every_range_of_years_is_one_of_its_dtype(dtype, resolution):
    column = Datetime("x", resolution=resolution, dtype=dtype)
    last = len(schema_cells.YEARS) - 2
    for outermost in ((0, 0), (0, last), (5, 30), (last, last), None):
        low, high = learning._year_bounds(column, outermost)
        assert replace(column, bounds=(low, high)).complete
        assert low < high
    assert learning._year_bounds(column, (0, last))[0] == ("1677-09-22" if "ns" in dtype else "1500-01-01")


def test_the_first_moment_of_a_dtype_is_no_reason_to_fail():
    frame = pd.DataFrame({"x": pd.Series([pd.Timestamp.min.ceil("D"), pd.Timestamp("2020-05-05")] * 500)})
    low, high = _noisy(frame.astype("datetime64[ns]"), 5.0, 0)["x"].bounds
    assert low.startswith("1677")
    assert high > "2020-05-05"


EXTREMES = [0, 1, -1, 5, 127, -128, 255, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 2**70 + 1]
EXTREMES += [0.5, -1e17, -1e300, 1e300, 2.0**53, 1e-300]


@pytest.mark.parametrize("missing", [False, True])
def test_any_numbers_that_are_learned_have_a_dtype_and_another_number(missing):
    rng = np.random.default_rng(0)
    for _ in range(300):
        kept = {EXTREMES[k] for k in rng.integers(0, len(EXTREMES), rng.integers(0, 6))}
        for dtype in (None, "object", "category", "float64", "int64", "uint64", "int8", "float32"):
            held = [value for value in kept if fit_dtype((value,), dtype)]
            if missing and dtype not in (None, "object", "category", "float64", "float32"):
                continue
            column = learning._with_categories(Categorical("x", dtype=dtype, missing=missing), held)
            assert column.other not in held
            if held:
                assert column.categories == tuple(sorted(held))


def test_dates_and_numbers_at_the_end_of_the_grid_are_said():
    frame = pd.DataFrame({"x": np.full(500, np.datetime64("1200-05-01", "us")), "y": [1.6e18] * 500, "z": [1.0] * 500})
    with pytest.warns(UtilityWarning, match="reach the end .* declare the bounds of 'x', 'y'$"):
        schema = _noisy(frame, 2.0, 0)
    assert schema["x"].bounds[0] == "1500-01-01T00:00:00"
    assert schema["y"].bounds[1] == 2.0**48 - 1  # the largest whole number of its octave


def test_frequent_categories_are_kept_sorted_and_the_rest_is_other():
    values = ["b"] * 900 + ["a"] * 500 + ["rare"] * 3 + [None] * 30
    schema = learn(pd.DataFrame({"x": values}), Schema([Categorical("x", missing=True)]), 20.0)
    assert schema["x"] == Categorical("x", ("a", "b"), missing=True, other="other")
    encoder = TableEncoder(schema).fit()
    codes = encoder.codes(pd.DataFrame({"x": ["rare", "never seen", "b", None]}))
    assert codes[:, 0].tolist() == [2, 2, 1, 3]


def test_a_threshold_tells_a_single_row_with_chance_delta_at_most():
    # two columns in which one row alone has a category: delta .05 is for both of them together
    frame = pd.DataFrame({"a": ["only", *["many"] * 99], "b": ["only", *["many"] * 99]})
    schema = Schema([Categorical("a"), Categorical("b")])
    n, told = 2000, 0
    histogram = schema_histogram(frame, schema)
    for seed in range(n):
        noisy = add_gaussian(histogram.bounded_sum, 5 / 2**0.5, Normals(seed), "add_or_remove_one")
        learned = schema_from_histogram(noisy, histogram, 5.0, 0.05)
        told += any("only" in column.categories for column in learned.columns)
    sd = (0.05 * 0.95 / n) ** 0.5
    assert told / n < 0.05 + 4 * sd
    assert told / n > 0.05 - 4 * sd


@pytest.mark.parametrize(
    ("values", "column", "categories", "other", "dtype"),
    [
        ([5, 7], Categorical("x", dtype="int64"), (5, 7), -1, "int64"),
        ([-1, 7], Categorical("x", dtype="int64"), (-1, 7), -2, "int64"),
        ([0, 255], Categorical("x", dtype="uint8"), (0, 255), 1, "uint8"),
        ([0.5, 1.0], Categorical("x"), (0.5, 1.0), -1, "float64"),
        (["other", "x"], Categorical("x"), ("other", "x"), "other_0", "str"),
        ([True, False], Categorical("x", dtype="object"), (False, True), None, "object"),
        ([True, True], Categorical("x"), (False, True), None, "bool"),
        # what a CSV reader made of the values does not matter where the schema has said the dtype
        ([5, 7], Categorical("x", dtype="str"), ("5", "7"), "other", "str"),
        ([5.0, 7.0], Categorical("x", dtype="string"), ("5", "7"), "other", "string"),
        (["5", "7"], Categorical("x", dtype="int64"), (5.0, 7.0), -1, "int64"),
        (["True", "0"], Categorical("x", dtype="bool"), (False, True), None, "bool"),
        (pd.Categorical(["z", "a"]), Categorical("x", dtype="category"), ("a", "z"), "other", "category"),
    ],
)
def test_other_is_a_value_that_fits_the_column(values, column, categories, other, dtype):
    frame = pd.DataFrame({"x": values})
    frame = frame.iloc[np.resize([0, 1], 400)]
    learned = learn(frame, Schema([column]), 5.0)["x"]
    assert learned.categories == categories
    assert learned.other == other
    assert learned.dtype == dtype
    encoder = TableEncoder(Schema([learned])).fit(frame)
    back = encoder.inverse_transform(np.eye(encoder.n_features_out_))
    assert (
        back["x"].dtype
        == TableEncoder(Schema([learned])).fit().inverse_transform(np.eye(len(learned.values))).dtypes.iloc[0]
    )
    assert back["x"].tolist() == list(learned.values)


def test_columns_of_which_nothing_is_seen_get_defaults_and_a_warning():
    frame = pd.DataFrame({"x": [5.0], "n": [5], "c": ["a"], "k": [3], "t": pd.to_datetime(["2020-01-01"])})
    schema = Schema.from_kinds(frame, categorical=["k"])
    with pytest.warns(UtilityWarning, match="'x', 'n', 'c', 'k', 't'"):
        learned = learn(frame, schema, 100.0)
    assert learned.complete
    assert learned["x"].bounds == (0.0, 1.0)
    assert learned["c"].values == ("other",)
    assert learned["k"].values == (-1,)
    encoder = TableEncoder(learned).fit(frame)
    back = encoder.inverse_transform(encoder.transform(frame))
    assert [str(t) for t in back.dtypes] == [str(t) for t in frame.dtypes]
    assert back["c"].tolist() == ["other"]


def test_unobserved_categories_of_a_dtype_are_not_counted():
    values = pd.Categorical(["a"] * 50, categories=["a", *map(str, range(1000))])
    histogram = schema_histogram(pd.DataFrame({"x": values}), Schema([Categorical("x")]))
    assert histogram.keys == {"x": ("a",)}


def test_without_noise_every_category_is_kept():
    frame = pd.DataFrame({"x": ["a", "b", "b"]})
    schema = schema_histogram(frame, Schema([Categorical("x")]))
    assert schema_from_histogram(schema.bounded_sum.value, schema, 0.0, 0.0)["x"].categories == ("a", "b")


def test_private_categories_are_not_printed():
    histogram = schema_histogram(pd.DataFrame({"x": ["Rumpelstiltskin"]}), Schema([Categorical("x")]))
    assert "Rumpel" not in repr(histogram)
    assert histogram.needs_delta
    numbers = schema_histogram(pd.DataFrame({"x": [1.0]}), Schema([Numeric("x")]))
    assert not numbers.needs_delta


def test_nothing_to_learn_is_an_error():
    frame = pd.DataFrame({"x": ["a"]})
    with pytest.raises(ValueError, match="nothing to learn"):
        schema_histogram(frame, Schema([Categorical("x", ("a",))]))
    with pytest.raises(ValueError, match="no numeric"):
        bins_histogram(frame, Schema([Categorical("x", ("a",))]))
    with pytest.raises(ValueError, match="bounds are missing: 'x'"):
        bins_histogram(frame, Schema([Numeric("x")]))
    with pytest.raises(SchemaError, match="'x'"):
        schema_histogram(pd.DataFrame({"x": [np.inf]}), Schema([Numeric("x")]))


def test_what_is_learned_depends_on_released_counts_alone():
    schema = Schema([Numeric("x", (0, 100), missing=True), Numeric("n", (0, 9), integer=True)])
    noisy = 100 * np.random.default_rng(0).random(
        len(bins_histogram(pd.DataFrame({"x": [1.0], "n": [1]}), schema).value)
    )
    assert bins_from_histogram(noisy, schema, 10.0) == bins_from_histogram(noisy.copy(), schema, 10.0)


def test_no_column_of_floats_is_learned_to_be_whole():
    """One row with a half would be told by it: beside bounds, what is learned is what its dtype says."""
    whole = pd.DataFrame({"x": np.arange(1, 1001, dtype=np.float64)})
    frames = whole, pd.concat([whole, pd.DataFrame({"x": [7.5]})], ignore_index=True)
    one, other = (learn(frame, Schema.from_kinds(frame), 1.0) for frame in frames)
    assert one == other
    assert not one["x"].integer


def test_nothing_learned_can_stop_a_fit_after_the_charge():
    # any noise, any table that passed validation: schema, bins, codes and decoded rows come out
    frame = table(40, 0)
    for seed in range(8):
        for noise_sd in (0.1, 3.0, 1e3, 1e9):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UtilityWarning)
                schema = learn(frame, KINDS, noise_sd, seed=seed)
            counts = bins_histogram(frame, schema)
            z = noise_sd / counts.sensitivity("replace_one")
            noisy = add_gaussian(counts, z, Normals(seed), "replace_one")
            binnings = bins_from_histogram(noisy, schema, noise_sd, 20)
            encoder = TableEncoder(schema, binnings=binnings).fit(frame)
            back = encoder.inverse_transform(encoder.transform(frame), rng=np.random.default_rng(seed))
            TableEncoder(schema, binnings=binnings, on_invalid="raise").fit(back)


def test_learned_bins_follow_a_spiky_column():
    rng = np.random.default_rng(0)
    n = 40_000
    gain = np.where(rng.random(n) < 0.92, 0, rng.choice([7298, 7688, 15024, 99999, 3000], size=n))
    frame = pd.DataFrame({"gain": gain})
    schema = Schema([Numeric("gain", (0, 99999), integer=True)])
    counts = bins_histogram(frame, schema)
    noisy = add_gaussian(counts, 40.0, Normals(), "add_or_remove_one")
    binning = bins_from_histogram(noisy, schema, 40.0)["gain"]
    back = binning.sample(rng.choice(binning.n_bins, p=binning.bin_mass, size=n), rng)
    assert (back == 0).mean() == pytest.approx(0.92, abs=0.01)
    assert (back == 99999).mean() == pytest.approx(0.016, abs=0.004)
    edges = np.linspace(0, 99999, 11)
    ours, theirs = (np.histogram(x, edges)[0] / n for x in (back, gain))
    assert 0.5 * np.abs(ours - theirs).sum() < 0.02


TYPES = {
    "int": [1, 2, 300, -5, 2**40],
    "float": [0.5, 1.0, -0.0, 1e300, np.nan],
    "bool": [True, False],
    "text": ["1", "0.5", "True", "x", "", None],
    "object": [True, None],
    "category": pd.Categorical(["1", None, "x"], categories=["x", "1", "unseen"]),
    "nullable": pd.array([1, None, 300], dtype="Int64"),
    "time": pd.to_datetime(["1700-01-01", "2200-01-01", None]),
}
DTYPES = [None, "str", "string", "object", "category", "int64", "Int64", "uint8", "float32", "bool", "boolean"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", sorted(TYPES))
def test_a_column_is_refused_before_the_charge_or_not_at_all(kind, dtype):
    frame = pd.DataFrame({"x": TYPES[kind]})
    for missing in (False, True):
        try:
            schema = Schema([Categorical("x", missing=missing, dtype=dtype)])
            histogram = schema_histogram(frame, schema)
        except SchemaError:
            continue
        for seed in range(5):  # any part of the categories may be kept
            noisy = np.random.default_rng(seed).choice([0.0, 100.0], size=len(histogram.bounded_sum.value))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UtilityWarning)
                learned = schema_from_histogram(noisy, histogram, 1.0, 1e-6)
            encoder = TableEncoder(learned).fit(frame)
            back = encoder.inverse_transform(encoder.transform(frame))
            encoder.fit(back)
            assert Schema.from_json(learned.to_json()) == learned


def test_the_largest_released_counts_are_the_categories_where_they_are_many():
    frame = pd.DataFrame({"x": np.repeat([f"v{k:03d}" for k in range(300)], np.arange(1, 301))})
    kept = learn(frame, Schema([Categorical("x")]), 0.0)["x"].categories
    assert kept == tuple(f"v{k:03d}" for k in range(100, 300))
    histogram = schema_histogram(pd.DataFrame({"x": list("abcd")}), Schema([Categorical("x")]))
    assert len(schema_from_histogram(histogram.bounded_sum.value, histogram, 0.0, 0.0, 3)["x"].categories) == 3


def test_text_that_is_all_different_is_said_to_be_better_dropped():
    frame = pd.DataFrame({"id": [f"i{k}" for k in range(2000)], "n": 5.0})
    with pytest.warns(UtilityWarning, match="In 'id' no value is shared.*drop a column"):
        learn(frame, Schema.from_kinds(frame), 5.0)


@pytest.mark.parametrize(("top", "decimals"), [(900.0, 2), (1e6, 2), (12.0, 2), (0.9, 3), (9e-4, 7)])
def test_decimals_of_floats_follow_from_learned_bounds(top, decimals):
    frame = pd.DataFrame({"x": np.linspace(top / 100, top, 4000), "n": 3})
    learned = learn(frame, Schema.from_kinds(frame), 1.0)
    assert learned["x"].decimals == decimals
    assert learned["n"].decimals is None
    declared = Schema([Numeric("x", decimals=0)])
    assert learn(frame[["x"]], declared, 1.0)["x"].decimals == 0
