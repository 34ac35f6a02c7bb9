from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen.exceptions import SchemaError
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric, Schema, TableEncoder, validate_frame
from skdpgen.tabular._frames import numeric_values

SECRET = 987654.25  # a value that no message may hold
SECRET_TEXT = "Rumpelstiltskin"


def one(values, column, **options):
    frame = values if isinstance(values, pd.DataFrame) else pd.DataFrame({column.name: values})
    return validate_frame(frame, Schema([column]), **options)


def test_frame_that_fits_is_returned_unchanged():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}, index=[5, 5])
    schema = Schema([Numeric("a", (0, 1)), Categorical("b", ("x", "y"))])
    assert validate_frame(frame, schema) is frame


def test_array_is_read_by_position():
    schema = Schema([Numeric("a"), Numeric("b", missing=True)])
    frame = validate_frame(np.array([[1.0, np.nan]]), schema)
    assert list(frame.columns) == ["a", "b"]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"a": [1.0]}), "missing: 'b'$"),
        (pd.DataFrame({"a": [1.0], "c": [1.0], "b": [1.0]}), "unexpected: 'c'$"),
        (pd.DataFrame({"a": [1.0], "c": [1.0]}), "missing: 'b'; unexpected: 'c'$"),
        (pd.DataFrame({"b": [1.0], "a": [1.0]}), "another order: column 0 is 'b', not 'a'"),
        (pd.DataFrame([[1.0, 1.0, 2.0]], columns=["a", "b", "a"]), "duplicate column names: 'a'"),
        (pd.DataFrame({"a": [], "b": []}), "Found array with 0 sample"),
        (np.zeros((2, 3)), "3 columns, the schema 2"),
        (np.zeros(3), "two dimensions"),
        (np.array([["x", "y"]], dtype=object), "got ndarray of object"),
        ([["x", "y"]], "array of numbers"),
    ],
)
def test_wrong_columns_are_shown_as_a_difference(frame, message):
    with pytest.raises(SchemaError, match=message):
        validate_frame(frame, Schema([Numeric("a"), Numeric("b")]))


@pytest.mark.parametrize(
    ("values", "column", "message"),
    [
        ([SECRET, np.inf], Numeric("x"), "infinite values .* replace them by missing values, or by a bound"),
        ([SECRET, np.nan], Numeric("x"), "declare missing=True"),
        (pd.array([1, None], dtype="Int64"), Numeric("x"), "declare missing=True"),
        ([SECRET_TEXT], Numeric("x"), "text that is no number"),
        ([SECRET, SECRET_TEXT], Numeric("x"), "mixed types"),
        (pd.to_datetime(["2020-01-01"]), Numeric("x"), "of dtype"),
        (pd.to_timedelta([5]), Numeric("x"), "of dtype"),
        ([1j], Numeric("x"), "Complex data not supported"),
        ([SECRET_TEXT, "a"], Categorical("x", ("a", "b")), "isin"),
        ([SECRET, 1], Categorical("x", (1, 2)), "isin"),
        ([SECRET_TEXT, "1"], Categorical("x", (1, 2)), "isin"),
        (["a", None], Categorical("x", ("a", "b")), "declare missing=True"),
        (pd.Categorical(["a", None]), Categorical("x", ("a", "b")), "declare missing=True"),
        (["a", SECRET], Categorical("x"), "mixed"),
        ([True, "a"], Categorical("x"), "mixed types"),
        ([("a", 1)], Categorical("x"), "several values in a cell"),
        ([1.0, np.inf], Categorical("x"), "infinite values .* replace them by missing values, or by a bound"),
        (pd.to_datetime(["2020-01-01"]), Categorical("x"), "of dtype"),
        ([pd.Timestamp(0).date()], Categorical("x"), "dates"),
        ([SECRET_TEXT], Boolean("x"), "isin"),
        ([2, 0], Boolean("x"), "isin"),
        ([1, 2], Datetime("x"), "of dtype"),
        ([SECRET_TEXT], Datetime("x"), "no ISO 8601"),
        (["2020-01-01", "now"], Datetime("x"), "no ISO 8601"),  # nor is the moment at which it is read
        (["2020-01-01Z", "today"], Datetime("x", dtype="datetime64[us, UTC]"), "no ISO 8601"),
        (pd.Categorical([pd.NaT]), Numeric("x", missing=True), "of dtype"),
        (["31.12.2023"], Datetime("x", format="%d.%m.%Y"), r"pandas.to_datetime\(..., format='%d.%m.%Y'\)"),
        (["2020-01-01T00:00+01:00", "2020-01-01T00:00+02:00"], Datetime("x"), "no ISO 8601"),
        ([SECRET_TEXT, "1"], Categorical("x", dtype="int64"), "'int64' in the schema cannot hold"),
        ([2, 1], Categorical("x", dtype="bool"), "'bool' in the schema cannot hold"),
        ([SECRET_TEXT, 3], Datetime("x"), "other things"),
        (pd.to_datetime(["2020-01-01T00:00Z"]), Datetime("x"), "time zone"),
        (pd.to_datetime(["2020-01-01", None]), Datetime("x"), "declare missing=True"),
    ],
)
def test_bad_values_are_refused_by_column_name_without_the_value(values, column, message):
    with pytest.raises(SchemaError, match=message) as caught:
        one(values, column)
    assert "'x'" in str(caught.value)
    assert "98765" not in str(caught.value)
    assert SECRET_TEXT not in str(caught.value)
    # nor in the errors behind it, which a traceback prints
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([SECRET], Numeric("x", (0, 1))),
        ([0.5], Numeric("x", (0, 1), integer=True)),
        (pd.to_datetime(["2019-12-31"]), Datetime("x", ("2020-01-01", "2021-01-01"))),
    ],
)
def test_values_outside_bounds_are_refused_only_when_asked(values, column):
    one(values, column)
    with pytest.raises(SchemaError, match="'x' holds") as caught:
        one(values, column, on_invalid="raise")
    assert "98765" not in str(caught.value)
    with pytest.raises(ValueError, match="on_invalid"):
        one(values, column, on_invalid="ignore")


def levels(values, column):
    encoder = TableEncoder(Schema([column])).fit()
    frame = pd.DataFrame({column.name: values})
    return encoder.codes(frame)[:, 0].tolist()


@pytest.mark.parametrize(
    ("values", "column", "codes"),
    [
        # what a CSV reader makes of a column depends on its values: the schema reads them all the same
        ([1, 2], Categorical("x", ("1", "2")), [0, 1]),
        ([1.0, np.nan], Categorical("x", ("1", "2"), missing=True), [0, 2]),
        ([0.5, 2.0], Categorical("x", ("0.5", "2")), [0, 1]),
        ([1.0, 2.0], Categorical("x", ("1.0", "2")), [0, 1]),
        ([None, None], Categorical("x", ("1", "2"), missing=True), [2, 2]),
        ([np.nan, np.nan], Categorical("x", ("1", "2"), missing=True), [2, 2]),
        (["1", "2"], Categorical("x", (1, 2)), [0, 1]),
        # a sample has `other` as it is declared, which may be of another kind than the categories
        ([1, "other", None], Categorical("x", (1, 2), other="other", missing=True), [0, 2, 3]),
        (["1", "other"], Categorical("x", (1, 2), other="other"), [0, 2]),
        (["other", "other"], Categorical("x", (1, 2), other="other"), [2, 2]),
        (pd.Categorical([2, "other"]), Categorical("x", (1, 2), other="other"), [1, 2]),
        ([True, "unknown", False], Categorical("x", (True, False), other="unknown"), [0, 2, 1]),
        (["7", "1"], Categorical("x", (1, 2), other="7"), [2, 0]),
        ([1.0, 2.0], Categorical("x", (1, 2)), [0, 1]),
        (pd.array([2, None], dtype="Int64"), Categorical("x", (1, 2), missing=True), [1, 2]),
        (pd.Categorical(["b", None], categories=["z", "b"]), Categorical("x", ("a", "b"), missing=True), [1, 2]),
        (pd.Series(["b", None], dtype=object), Categorical("x", ("a", "b"), missing=True), [1, 2]),
        (pd.array(["b", None], dtype="string"), Categorical("x", ("a", "b"), missing=True), [1, 2]),
        (["b", "q"], Categorical("x", ("a", "b"), other="other"), [1, 2]),
        ([None, None], Categorical("x", ("a", "b"), missing=True, dtype="object"), [2, 2]),
        ([True, False], Boolean("x"), [1, 0]),
        (pd.array([True, None], dtype="boolean"), Boolean("x", missing=True), [1, 2]),
        (pd.Series([True, None], dtype=object), Boolean("x", missing=True), [1, 2]),
        ([0, 1], Boolean("x"), [0, 1]),
        ([0.0, np.nan], Boolean("x", missing=True), [0, 2]),
        (["True", "false"], Boolean("x"), [1, 0]),
        ([True, False], Categorical("x", ("True", "False")), [0, 1]),
    ],
)
def test_levels_do_not_depend_on_the_readers_dtype(values, column, codes):
    assert levels(values, column) == codes


@pytest.mark.parametrize(
    "values",
    [
        [1, 3],
        [1.0, 3.0],
        ["1", "3"],
        pd.array([1, 3], dtype="Int64"),
        pd.array(["1", "3"], dtype="string"),
        pd.Categorical([1, 3]),
        pd.Categorical(["1", "3"]),
        pd.Series([1, 3], dtype=object),
        np.array([1, 3], dtype=np.float32),
    ],
)
def test_numbers_are_read_from_every_dtype(values):
    encoder = TableEncoder(Schema([Numeric("x", (1, 3))]), numeric="scale").fit()
    assert encoder.transform(pd.DataFrame({"x": values}))[:, 0].tolist() == [-1.0, 1.0]


@pytest.mark.parametrize(
    "values",
    [
        pd.to_datetime(["2020-01-01 10:00:00", "2020-01-03 09:59:59"]),
        pd.to_datetime(["2020-01-01", "2020-01-03"]).as_unit("s"),
        ["2020-01-01", "2020-01-03"],
        ["2020-01-01T07:00", "2020-01-03 08:00:00.500"],
        [pd.Timestamp("2020-01-01").date(), pd.Timestamp("2020-01-03").date()],
    ],
)
def test_datetimes_are_read_from_every_dtype(values):
    column = Datetime("x", ("2020-01-01", "2020-01-03"), resolution="D")
    encoder = TableEncoder(Schema([column]), numeric="scale").fit()
    assert encoder.transform(pd.DataFrame({"x": values}))[:, 0].tolist() == [-1.0, 1.0]


def test_zoned_datetimes_are_read_on_the_wall_clock_of_the_schema():
    column = Datetime("x", ("2020-01-01", "2020-01-03"), resolution="D", dtype="datetime64[us, Europe/Paris]")
    encoder = TableEncoder(Schema([column]), numeric="scale").fit()
    for values in (["2019-12-31T23:30Z", "2020-01-02T22:30Z"],):
        for frame in (pd.DataFrame({"x": values}), pd.DataFrame({"x": pd.to_datetime(values)})):
            assert encoder.transform(frame)[:, 0].tolist() == [-1.0, 0.0]


@pytest.mark.parametrize(
    ("values", "categories", "numbers"),
    [
        ([2, None, 1, 2], [1, 2], [2, np.nan, 1, 2]),
        ([True, None], [False, True], [1, np.nan]),
        (["2", None], ["-0", "2"], [2, np.nan]),
        ([None, None], [], [np.nan, np.nan]),
        ([2**53 + 1, None], [2**53 + 1], [2.0**53, np.nan]),
    ],
)
def test_missing_values_of_a_categorical_column_of_numbers_are_missing(values, categories, numbers):
    series = pd.Series(pd.Categorical(values, categories=categories), index=[7] * len(values))
    assert np.array_equal(numeric_values(series, Numeric("x", missing=True)), numbers, equal_nan=True)


@pytest.mark.parametrize("bounds", [None, (-5, 9)])
def test_a_number_of_more_steps_than_a_float_holds_is_the_largest_and_no_warning_says_so(bounds):
    found = numeric_values(pd.Series([1e308, -1e308, 3.0]), Numeric("x", bounds, step=0.1))
    assert found.tolist() == ([90, -50, 30] if bounds else [np.finfo(float).max, np.finfo(float).min, 30])


def test_a_duplicate_index_is_fine():
    frame = pd.DataFrame({"x": ["1", "2"]}, index=[0, 0])
    assert one(frame, Numeric("x")) is frame
    frame = pd.DataFrame({"x": ["2020-01-01", None]}, index=[0, 0])
    assert one(frame, Datetime("x", missing=True)) is frame


@pytest.mark.parametrize("dtype", ["datetime64[s]", "datetime64[ms]", "timestamp[s][pyarrow]"])
def test_moments_beyond_what_microseconds_hold_count_as_the_farthest(dtype):
    """Otherwise they would become moments of other centuries."""
    unit = dtype.partition("[")[2].partition("]")[0]
    largest = np.iinfo(np.int64).max
    moments = np.array([0, largest, -largest], dtype=np.int64).astype(f"datetime64[{unit}]")
    series = pd.Series(np.append(moments, np.datetime64("NaT"))).astype(dtype)
    found = numeric_values(series, Datetime("when", missing=True, dtype="datetime64[us]"))
    assert found[0] == 0
    assert found[1] > 9.2e18 / 86_400e6 > -9.2e18 / 86_400e6 > found[2]
    assert np.isnan(found[3])
