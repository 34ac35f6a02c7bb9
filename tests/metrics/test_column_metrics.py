from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wasserstein_distance

from skdpgen import metrics
from skdpgen.exceptions import InvalidInputError
from skdpgen.metrics import (
    column_distances,
    correlation_difference,
    correlation_matrix,
    leak_note,
    marginal_tvd,
    one_way_tvd,
    pairwise_tvd,
    three_way_tvd,
    two_way_tvd,
)
from skdpgen.tabular import Categorical, Datetime, Numeric, Schema


@pytest.fixture
def mixed(rng):
    size = rng.normal(5.0, 2.0, 600).clip(0, 10)
    frame = pd.DataFrame(
        {
            "size": size,
            "count": pd.array(rng.integers(0, 9, 600), dtype="Int64"),
            "kind": np.where(size > 5, "big", "small").astype(object),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 365, 600), unit="D"),
            "flag": pd.array(rng.random(600) < 0.3, dtype="boolean"),
        }
    )
    frame.loc[::7, "count"] = pd.NA
    frame.loc[::11, "kind"] = None
    return frame


SCHEMA = Schema(
    [
        Numeric("size", (0, 10)),
        Numeric("count", (0, 9), integer=True, missing=True),
        Categorical("kind", ("big", "small"), missing=True),
        Datetime("when", ("2020-01-01", "2020-12-31")),
        Categorical("flag", (False, True)),
    ]
)


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_every_metric_is_at_its_best_for_the_same_rows_of_any_kinds(mixed, schema):
    shuffled = mixed.sample(frac=1.0, random_state=0)
    assert one_way_tvd(mixed, shuffled, schema) == 0
    assert two_way_tvd(mixed, shuffled, schema) == 0
    assert three_way_tvd(mixed, shuffled, schema) == 0
    assert correlation_difference(mixed, shuffled, schema) == pytest.approx(0, abs=1e-9)
    table = column_distances(mixed, shuffled, schema)
    assert list(table["kind"]) == ["number", "number", "category", "date", "category"]
    assert (table["tvd"] == 0).all()
    assert table["wasserstein"].dropna().eq(0).all()
    assert table["wasserstein"].isna().sum() == 2


def test_higher_tables_see_what_lower_ones_miss():
    cube = np.array([[a, b, a ^ b] for a in (0, 1) for b in (0, 1)])
    full = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
    distances = [marginal_tvd(cube, full, n_way=n, n_bins=2) for n in (1, 2, 3)]
    assert distances == pytest.approx([0, 0, 0.5])
    assert three_way_tvd(cube, full, n_bins=2) == distances[2]


def test_pairwise_distances_have_the_two_way_mean_above_and_the_columns_on_the_diagonal(mixed, rng):
    other = mixed.assign(kind=rng.permutation(mixed["kind"].to_numpy()))
    matrix = pairwise_tvd(mixed, other, SCHEMA).to_numpy()
    assert np.array_equal(matrix, matrix.T)
    assert matrix[np.triu_indices(5, 1)].mean() == pytest.approx(two_way_tvd(mixed, other, SCHEMA))
    assert np.diag(matrix).mean() == pytest.approx(one_way_tvd(mixed, other, SCHEMA))


def test_tables_of_too_many_cells_are_counted_by_the_cells_that_occur(mixed, monkeypatch):
    other = mixed.iloc[::2]
    exact = three_way_tvd(mixed, other, SCHEMA)
    monkeypatch.setattr("skdpgen.metrics._distances._MOST_CELLS", 20)
    assert three_way_tvd(mixed, other, SCHEMA) == pytest.approx(exact)


def test_some_tables_estimate_the_mean_of_all(rng):
    real, other = rng.random((400, 12)), rng.random((400, 12)) ** 1.5
    every = three_way_tvd(real, other, bounds=(0, 1), n_bins=3)
    some = three_way_tvd(real, other, bounds=(0, 1), n_bins=3, max_tables=60, random_state=0)
    assert some == pytest.approx(every, rel=0.05)
    assert some == three_way_tvd(real, other, bounds=(0, 1), n_bins=3, max_tables=60, random_state=0)


def test_arrays_pairs_and_frames_of_the_same_rows_agree(rng):
    X, y = rng.random((200, 3)), rng.integers(0, 2, 200)
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"]).assign(y=y)
    other, labels = rng.random((100, 3)), rng.integers(0, 2, 100)
    expected = two_way_tvd(frame, pd.DataFrame(other, columns=["x0", "x1", "x2"]).assign(y=labels))
    assert two_way_tvd((X, y), (other, labels)) == expected
    assert two_way_tvd(frame, (other, labels)) == expected
    images = X.reshape(200, 1, 3)
    assert one_way_tvd(images, images, bounds=(0, 1)) == 0


def test_wasserstein_is_scipys_in_units_of_the_range(rng):
    real, other = rng.random(300) * 10, rng.random(200) * 5
    schema = Schema([Numeric("x", (0, 20))])
    frames = pd.DataFrame({"x": real}), pd.DataFrame({"x": other})
    expected = wasserstein_distance(real, other)
    assert column_distances(*frames, schema).loc["x", "wasserstein"] == pytest.approx(expected / 20)
    assert column_distances(*frames).loc["x", "wasserstein"] == pytest.approx(expected / np.ptp(real))


def test_shares_of_missing_values_are_those_of_each_table(mixed):
    table = column_distances(mixed, mixed.dropna(), SCHEMA)
    assert table.loc["count", "missing_real"] == pytest.approx(86 / 600)
    assert (table["missing_synthetic"] == 0).all()


def test_correlations_of_numbers_are_numpys_and_of_functions_are_one(rng):
    X = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3))
    np.testing.assert_allclose(correlation_matrix(X).to_numpy(), np.corrcoef(X.T))
    levels = rng.integers(0, 4, 500)
    frame = pd.DataFrame({"a": levels.astype(str), "b": (levels + 7).astype(str), "n": levels * 2.0})
    np.testing.assert_allclose(correlation_matrix(frame).to_numpy(), np.ones((3, 3)), atol=1e-9)


def test_independent_columns_of_any_kind_correlate_little(rng):
    frame = pd.DataFrame(
        {"a": rng.choice(list("abcd"), 4000), "b": rng.choice(list("xyz"), 4000), "n": rng.normal(size=4000)}
    )
    off = correlation_matrix(frame).to_numpy()[np.triu_indices(3, 1)]
    assert (off < 0.08).all()


def test_constant_and_missing_columns_have_correlation_zero():
    frame = pd.DataFrame({"a": [1.0, 1.0, 1.0], "b": [1.0, 2.0, np.nan], "c": ["u", "u", "u"], "d": [np.nan] * 3})
    matrix = correlation_matrix(frame).to_numpy()
    assert np.array_equal(np.diag(matrix), np.ones(4))
    assert np.isfinite(matrix).all()
    assert matrix[0, 1] == matrix[0, 2] == matrix[1, 3] == 0


def test_text_where_numbers_are_expected_is_refused_without_a_cell():
    real, other = pd.DataFrame({"age": [1.0, 2.0]}), pd.DataFrame({"age": ["secret", "3"]})
    with pytest.raises(InvalidInputError, match="'age'") as caught:
        one_way_tvd(real, other)
    assert "secret" not in str(caught.value)


def test_parameters_out_of_range_are_refused(mixed):
    with pytest.raises(ValueError, match="not both"):
        one_way_tvd(mixed, mixed, SCHEMA, bounds=(0, 1))
    with pytest.raises(ValueError, match="three columns"):
        three_way_tvd(mixed[["size"]], mixed[["size"]])
    with pytest.raises(ValueError, match="n_way"):
        marginal_tvd(mixed, mixed, n_way=6)
    with pytest.raises(ValueError, match="max_tables"):
        marginal_tvd(mixed, mixed, max_tables=0)
    with pytest.raises(ValueError, match="n_bins"):
        one_way_tvd(mixed, mixed, n_bins=0)
    with pytest.raises(ValueError, match="bounds"):
        one_way_tvd(np.zeros((2, 2)), np.zeros((2, 2)), bounds=(0, 1, 2))


def test_every_metric_and_picture_says_what_showing_it_would_tell():
    for name in metrics.__all__:
        public = getattr(metrics, name)
        if name in ("PMSE", "PRDC", "ELBOTerms"):  # results of functions that say it
            continue
        assert "**Leak.**" in inspect.getdoc(public), name
        assert len(leak_note(public)) > 20, name
        assert "\n" not in leak_note(public)
    assert "do not publish" in leak_note(two_way_tvd)
    assert leak_note(lambda: None).startswith("Assume that it is computed from private rows")


def test_association_of_categories_is_that_of_the_full_table(rng):
    one = rng.integers(0, 4, 500)
    other = np.where(rng.random(500) < 0.4, one, rng.integers(0, 3, 500))
    table = np.zeros((4, 4))
    np.add.at(table, (one, other), 1)
    expected = table.sum(1, keepdims=True) * table.sum(0) / 500
    phi2 = (((table - expected) ** 2) / expected).sum() / 500 - 9 / 499
    v = (phi2 / (4 - 9 / 499 - 1)) ** 0.5
    frame = pd.DataFrame({"a": one.astype(str), "b": other.astype(str)})
    assert correlation_matrix(frame).loc["a", "b"] == pytest.approx(v)


def test_identifiers_are_compared_without_a_table_of_all_their_pairs(rng):
    names = pd.DataFrame({"id": np.arange(30_000).astype(str), "mail": rng.permutation(30_000).astype(str)})
    assert correlation_matrix(names).loc["id", "mail"] < 0.2
    assert two_way_tvd(names, names.iloc[::-1]) == 0
