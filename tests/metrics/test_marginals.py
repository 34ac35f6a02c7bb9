from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen.metrics import one_way_tvd, two_way_tvd


class Column:
    def __init__(self, bounds=None, categories=None):
        self.bounds = bounds
        self.categories = categories


SCHEMA = {
    "size": Column(bounds=(0.0, 10.0)),
    "kind": Column(categories=("a", "b", "c")),
    "flag": Column(categories=(False, True)),
}


@pytest.fixture
def frame():
    return pd.DataFrame(
        {"size": [0.5, 1.5, 9.9, 10.0], "kind": ["a", "a", "b", "b"], "flag": [True, False, True, False]}
    )


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_equal_tables_are_at_distance_zero_whatever_their_order(frame, schema):
    shuffled = frame.iloc[[2, 0, 3, 1]]
    assert one_way_tvd(frame, shuffled, schema) == 0
    assert two_way_tvd(frame, shuffled, schema) == 0


def test_disjoint_tables_are_at_distance_one():
    real = pd.DataFrame({"size": [0.0, 1.0, 0.0], "kind": ["a", "a", "a"]})
    other = pd.DataFrame({"size": [9.0, 9.5, 10.0], "kind": ["c", "c", "z"]})
    assert one_way_tvd(real, other, SCHEMA) == pytest.approx(1)
    assert two_way_tvd(real, other, SCHEMA) == pytest.approx(1)


def test_distances_equal_a_count_by_hand(frame):
    other = frame.assign(kind=["a", "b", "b", "a"])
    # every column keeps its counts, and so does the pair (kind, flag); of (size, kind) two rows of four move
    assert one_way_tvd(frame, other, SCHEMA) == 0
    assert two_way_tvd(frame, other, SCHEMA) == pytest.approx((0.5 + 0 + 0) / 3)


def test_bins_follow_the_declared_bounds_not_the_values():
    real = pd.DataFrame({"size": [1.0, 1.2], "kind": ["a", "a"]})
    other = pd.DataFrame({"size": [1.8, 1.9], "kind": ["a", "a"]})
    assert one_way_tvd(real, other, SCHEMA) == 0
    assert one_way_tvd(real, other) == 0.25  # size at .5, kind at 0


def test_missing_values_are_a_cell_of_their_own():
    real = pd.DataFrame({"size": [1.0, np.nan], "kind": ["a", None]})
    other = pd.DataFrame({"size": [1.0, 1.0], "kind": ["a", "a"]})
    assert one_way_tvd(real, real, SCHEMA) == 0
    assert one_way_tvd(real, other, SCHEMA) == 0.5


def test_datetimes_are_binned():
    days = pd.date_range("2020-01-01", periods=100)
    real = pd.DataFrame({"day": days})
    assert one_way_tvd(real, real.iloc[:50]) == pytest.approx(0.5)


def test_different_columns_are_an_error_that_names_them(frame):
    with pytest.raises(ValueError, match=r"\['flag'\]"):
        two_way_tvd(frame, frame.drop(columns="flag"), SCHEMA)
    with pytest.raises(ValueError, match="order"):
        one_way_tvd(frame, frame[["kind", "size", "flag"]], SCHEMA)
    with pytest.raises(ValueError, match="two columns"):
        two_way_tvd(frame[["size"]], frame[["size"]], SCHEMA)
    with pytest.raises(ValueError, match="one row"):
        one_way_tvd(frame, frame.iloc[:0], SCHEMA)
