"""What is released of a category or a label is decided by its value: never by the row it came first in, nor by others.

Any of these differences, one row's doing, would be told for certain and paid for by nobody.
"""

from __future__ import annotations

import decimal
import enum

import numpy as np
import pandas as pd
import pytest
from _sabotage import patch_source

from skdpgen import DPGaussianMixture, DPMERFSynthesizer, MomentSynthesizer
from skdpgen._types import BoundedUnit
from skdpgen.data.labels import class_labels
from skdpgen.data.units import read_ids
from skdpgen.exceptions import InvalidInputError, SchemaError
from skdpgen.model_selection._dummy import dummy_rows
from skdpgen.nn import DPNetClassifier
from skdpgen.tabular import Categorical, Numeric, Schema, schema_from_histogram, schema_histogram
from skdpgen.tabular._frames import level_codes, numeric_values
from skdpgen.utils.categories import canonical, canonical_rows, number_text

N = 600


class Text(str):
    """A subclass of str."""


class Color(enum.IntEnum):
    RED = 1


def rows_of(values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, np.int8(1), np.float32(1), Color.RED],
        [0, -0.0, 0.0],
        [10**17, 1e17],
        [2**70, 2.0**70],
        [-(2**63), -(2.0**63)],
        ["a", Text("a"), np.str_("a")],
        [True, np.True_],
        [1.5, np.float64(1.5)],
    ],
)
def test_equal_values_are_one_value_of_one_type(equal):
    found = canonical(rows_of(equal))
    assert {(type(value), repr(value)) for value in found} == {(type(found[0]), repr(found[0]))}
    assert found[0] == equal[0]
    assert type(found[0]) in (int, float, str, bool)


def test_missing_values_and_large_integers_stay_as_they_are():
    values = rows_of([None, 2**70 + 1, float("nan"), 10**400, "x"])
    found = canonical(values)
    assert found[0] is None
    assert found[1] == 2**70 + 1
    assert np.isnan(found[2])
    assert found[3] == 10**400
    assert canonical_rows(rows_of([1.0, "x", 1, 1.0])).tolist() == [1, "x", 1, 1]


@pytest.mark.parametrize(
    ("value", "categories", "text"),
    [
        (1.0, (), "1"),
        (1.0, ("1.0",), "1.0"),
        (1, ("1.0",), "1.0"),
        (1.0, ("1", "1.0"), "1"),
        (1.5, (), "1.5"),
        (1e17, (), "100000000000000000"),
        (1e300, (), "1e+300"),
        (-0.0, (), "0"),
        (2**53 + 1, ("9007199254740992.0",), "9007199254740993"),
        (2**53, ("9007199254740992.0",), "9007199254740992.0"),
    ],
)
def test_the_text_of_a_number_is_that_of_its_value(value, categories, text):
    assert number_text(value, categories) == text


def _learned(values):
    schema = Schema([Categorical("a", dtype="object")])
    histogram = schema_histogram(pd.DataFrame({"a": values}), schema)
    return schema_from_histogram(histogram.bounded_sum.value.astype(float), histogram, 1.0, 1e-5)["a"].categories


def _learned_floats(texts):
    schema = Schema([Categorical("a", dtype="float64")])
    histogram = schema_histogram(pd.DataFrame({"a": pd.Series(texts, dtype=object)}), schema)
    return schema_from_histogram(histogram.bounded_sum.value.astype(float), histogram, 1.0, 1e-5)["a"].categories


def _codes(values):
    column = Categorical("a", ("100000000000000000", "x"), other="other")
    return level_codes(pd.Series(values), column)[1:].tolist()


def _mixture(labels):
    rows = np.random.default_rng(0).uniform(-1, 1, (len(labels), 2))
    return DPGaussianMixture(2, epsilon=50.0, bounds=(-1, 1)).fit(rows, labels)


def _mixture_classes(labels):
    fitted = _mixture(labels)
    return repr(fitted.classes_), str(np.asarray(fitted.sample(3)[1]).dtype)


def _merf_classes(labels):
    rows = np.random.default_rng(0).uniform(-1, 1, (len(labels), 2))
    return repr(DPMERFSynthesizer(50.0, bounds=(-1, 1), steps=2).fit(rows, labels).classes_)


def _net_classes(labels):
    rows = np.random.default_rng(0).uniform(-1, 1, (len(labels), 2))
    return repr(DPNetClassifier(50.0, bounds=(-1, 1), steps=2).fit(rows, labels).classes_)


def _label_facts(labels):
    rows = np.random.default_rng(0).uniform(-1, 1, (len(labels), 2))
    fitted = MomentSynthesizer(50.0, bounds=(-1, 1)).fit(rows, labels)
    return repr(fitted.model_.codec.labels), str(np.asarray(fitted.sample(3)[1]).dtype)


def _moment_levels(labels):
    frame = pd.DataFrame({"a": labels, "b": ["u", "v"] * (len(labels) // 2)})
    return repr(MomentSynthesizer(50.0).fit(frame).model_.codec.encoder.schema_["a"].categories)


def _object(first, rest=(1, 7)):
    return rows_of([first, *rest * (N // 2 - 1), rest[1]])


def _category(last, categories=None):
    return pd.Series(pd.Categorical([1, 2] * (N // 2 - 1) + [2, last], categories=categories))


def _texts(last):
    """An array of numpy, whose dtype holds the length of the longest text."""
    return np.array(["a", "b"] * (N // 2 - 1) + ["a", last])


def _floats(first):
    return np.array([first] + [0.0, 1.0] * (N // 2 - 1) + [1.0])


# (what is released, two data sets that differ in one row or in the private list of categories)
PAIRS = {
    "learned categories, the first row": (lambda y: repr(_learned(y)), _object(1), _object(1.0)),
    "learned categories, another row": (lambda y: repr(_learned(y)), _category(2), _category(1.5)),
    "learned text of numbers, zero in the first row": (
        lambda y: repr(_learned_floats(y)),
        _object("0", ("-0", "1.5")),
        _object("-0", ("0", "1.5")),
    ),
    "learned text of numbers, a fraction": (
        lambda y: repr(_learned_floats(y)),
        ["-0", "1"] * N,
        [*["-0", "1"] * N, "0.5"],
    ),
    "declared text of numbers, the first row": (
        _codes,
        _object(10**17, (10**17, "x")[:1] * 2),
        _object(1e17, (10**17,) * 2),
    ),
    "a table, a rare category": (_moment_levels, _category(2), _category(1.5)),
    "a table, an unused category": (_moment_levels, _category(2, [1, 2]), _category(2, [1, 2, 1.5])),
    "a mixture, a rare class": (_mixture_classes, _category(2), _category(1.5)),
    "a mixture, an unused category": (_mixture_classes, _category(2, [1, 2]), _category(2, [1, 2, "c"])),
    "a mixture, a large integer": (_mixture_classes, _object(-1, (-1, 3)), _object(2**63, (-1, 3))),
    "labels, the length of a rare text": (_label_facts, _texts("b"), _texts("the text of one row alone")),
    "a mixture, the length of a rare text": (_mixture_classes, _texts("b"), _texts("the text of one row alone")),
    "DP-MERF, a rare class": (_merf_classes, _category(2), _category(1.5)),
    "a classifier, the sign of zero": (_net_classes, _floats(0.0), _floats(-0.0)),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_row_changes_no_type_of_what_is_released(pair):
    release, one, other = PAIRS[pair]
    assert release(one) == release(other)


CAUGHT = [
    "learned categories, the first row",
    "learned categories, another row",
    "a table, a rare category",
    "a mixture, a rare class",
    "DP-MERF, a rare class",
]


@pytest.mark.parametrize("pair", CAUGHT)
def test_values_taken_as_they_come_are_caught(pair, monkeypatch):
    patch_source(monkeypatch, canonical, ("[_canonical($value) for $value in $values]", "list($values)"))
    release, one, other = PAIRS[pair]
    assert release(one) != release(other)


@pytest.mark.parametrize("estimator", [DPGaussianMixture(2, bounds=(-1, 1)), DPNetClassifier(bounds=(-1, 1), steps=2)])
@pytest.mark.parametrize(
    "label", [("s", "t"), decimal.Decimal("1.0"), enum.Enum("Kind", "A").A, frozenset(), pd.Timestamp("2020-01-01")]
)
def test_labels_that_are_no_text_numbers_or_truth_values_cost_nothing(estimator, label):
    rows = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    with pytest.raises(InvalidInputError, match="y must hold numbers, text or booleans"):
        estimator.fit(rows, rows_of([label] * 100))
    assert not hasattr(estimator, "accountant_")


def test_dates_are_no_labels():
    rows = np.random.default_rng(0).uniform(-1, 1, (4, 2))
    with pytest.raises(InvalidInputError, match="dates as text"):
        DPGaussianMixture(2, bounds=(-1, 1)).fit(rows, np.array(["2020-01-01"] * 4, dtype="datetime64[ns]"))


def test_made_up_rows_do_not_show_the_length_of_the_longest_label():
    rows = np.zeros((4, 2))
    estimator = DPMERFSynthesizer(classes=["a", "ab", "abcdef"])
    one, other = (dummy_rows(rows, np.array(labels), estimator)[1] for labels in (["a"] * 4, ["a", "a", "a", "ab"]))
    assert one.tolist() == other.tolist()
    assert set(one) == {"a", "ab", "abcdef"}


def test_a_level_for_all_others_is_left_however_few_numbers_there_are():
    levels = [-128, *range(-71, 128)]
    frame = pd.DataFrame({"a": np.array(levels * 50, dtype=np.int8)})
    schema = Schema([Categorical("a", dtype="int8")])
    histogram = schema_histogram(frame, schema)
    column = schema_from_histogram(histogram.bounded_sum.value.astype(float), histogram, 1.0, 1e-5)["a"]
    assert len(column.categories) == 200
    assert -128 < column.other < -71
    level_codes(pd.Series(np.array([-100], dtype=np.int8)), column)


@pytest.mark.parametrize("more", ["0.5", "1e3", None])
@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_a_row_with_a_fraction_does_not_change_the_numbers_of_long_texts(dtype, more):
    texts = ["1152921504606846975", "3562268002305705933", "18446744073709551617", "-9007199254740993"]
    column = Numeric("a", missing=True)
    alone = numeric_values(pd.Series(texts, dtype=dtype), column)
    beside = numeric_values(pd.Series([*texts, more], dtype="object").astype(dtype), column)
    assert alone.tolist() == beside[:-1].tolist() == [float(text) for text in texts]


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_text_with_nul_is_refused_because_another_row_may_end_at_it(dtype):
    rows = pd.Series(["a\0b", "a", "a"], dtype=object)
    if dtype == "category":
        rows = pd.Series(pd.Categorical.from_codes([1, 0, 0], ["a", "a\0b"]))
    for order in (slice(None), slice(None, None, -1)):
        with pytest.raises(SchemaError, match="NUL") as said:
            level_codes(rows.astype(dtype)[order], Categorical("c", categories=("a", "b"), other="o"))
        assert "\0" not in str(said.value)
        with pytest.raises(InvalidInputError, match="NUL"):
            class_labels(rows.astype(dtype)[order], 3)
        with pytest.raises(InvalidInputError, match="NUL"):
            read_ids(rows.astype(dtype)[order], 3, BoundedUnit("c", 2, "rows"), "refuse")


@pytest.mark.parametrize("more", ["0.5", "no number"])
def test_a_row_with_another_text_does_not_change_the_declared_numbers_of_long_texts(more):
    texts = ["1152921504606846975", "3562268002305705933"]
    column = Categorical("a", categories=tuple(int(float(text)) for text in texts), other=0, missing=True)
    alone, beside = (level_codes(pd.Series(rows, dtype="object"), column) for rows in (texts, [*texts, more]))
    assert alone.tolist() == beside[:-1].tolist() == [0, 1]
