"""Scores by their definitions, which are those of SDMetrics; lost categories; combinations that no real row has."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp, pearsonr

from skdpgen.exceptions import InvalidInputError
from skdpgen.metrics import (
    column_distances,
    column_scores,
    correlation_difference,
    detection_auroc,
    lost_categories,
    pair_scores,
    pmse,
    quality_score,
    two_way_tvd,
    unseen_pairs,
)
from skdpgen.tabular import Categorical, Identifier, Numeric, Schema


@pytest.fixture(scope="module")
def tables():
    """Numbers, dates, categories, booleans, missing values, new and lost categories, and a constant."""
    rng = np.random.default_rng(0)

    def draw(n, shift, kinds):
        frame = pd.DataFrame(
            {
                "age": rng.integers(18, 70 + shift, n),
                "pay": np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(3, 1 + shift / 20, n)),
                "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(shift, 300, n), unit="D"),
                "kind": rng.choice(kinds, n).astype(object),
                "flag": rng.random(n) < 0.3 + shift / 50,
                "same": 1.0,
            }
        )
        frame.loc[rng.random(n) < 0.05, "kind"] = None
        return frame

    return draw(400, 0, list("abcd")), draw(300, 5, list("abce"))


def shares(column):
    return column.value_counts(normalize=True)


def test_identifiers_of_the_schema_are_compared_with_nothing(tables):
    real, synthetic = (rows[["age", "kind"]] for rows in tables)
    plain = Schema.from_kinds(real)
    keyed = [rows.assign(key=[f"{who}{i}" for i in range(len(rows))]) for rows, who in ((real, "R"), (synthetic, "S"))]
    schema = Schema([*plain.columns, Identifier("key")])
    for figure in (quality_score, two_way_tvd, correlation_difference):
        assert figure(*keyed, schema) == figure(real, synthetic, plain)
    for figure in (detection_auroc, pmse):
        assert figure(*keyed, schema=schema) == figure(real, synthetic, schema=plain)
    for table in (column_scores, column_distances):
        assert list(table(*keyed, schema).index) == ["age", "kind"]
    assert "key" not in set(lost_categories(*keyed, schema)["column"])
    assert quality_score(*keyed, schema).overall > quality_score(*keyed).overall + 0.2
    # the synthetic rows need no keys
    assert quality_score(keyed[0], synthetic, schema) == quality_score(real, synthetic, plain)
    with pytest.raises(ValueError, match="declares all columns as identifiers"):
        column_scores(keyed[0][["key"]], keyed[1][["key"]], schema)


def test_the_score_of_a_column_is_ks_complement_or_tv_complement(tables):
    real, synthetic = tables
    scores = column_scores(real, synthetic)
    assert dict(scores["measure"]) == {
        **dict.fromkeys(["age", "pay", "when", "same"], "KSComplement"),
        **dict.fromkeys(["kind", "flag"], "TVComplement"),
    }
    for name in ("age", "pay", "when"):
        pair = [frame[name].dropna() for frame in tables]
        pair = [column.astype("int64") if name == "when" else column for column in pair]
        assert scores.loc[name, "score"] == pytest.approx(1 - ks_2samp(*pair).statistic), name
    for name in ("kind", "flag"):
        one, other = shares(real[name]).align(shares(synthetic[name]), fill_value=0)
        assert scores.loc[name, "score"] == pytest.approx(1 - 0.5 * (one - other).abs().sum()), name
    assert scores.loc["same", "score"] == 1


def test_coverage_adherence_and_missing_values_are_as_sdmetrics_defines_them(tables):
    real, synthetic = tables
    scores = column_scores(real, synthetic)
    width = real["age"].max() - real["age"].min()
    lost = max(synthetic["age"].min() - real["age"].min(), 0) + max(real["age"].max() - synthetic["age"].max(), 0)
    assert scores.loc["age", "coverage"] == pytest.approx(1 - lost / width)  # RangeCoverage
    assert np.isnan(scores.loc["same", "coverage"])
    assert scores.loc["kind", "coverage"] == 0.75  # CategoryCoverage: d is lost
    inside = synthetic["age"].between(real["age"].min(), real["age"].max())
    assert inside.mean() < 1
    assert scores.loc["age", "adherence"] == inside.mean()  # BoundaryAdherence
    known = synthetic["pay"].dropna()
    assert scores.loc["pay", "adherence"] == known.between(real["pay"].min(), real["pay"].max()).mean()
    allowed = synthetic["kind"].isin(list("abcd")) | synthetic["kind"].isna()
    assert scores.loc["kind", "adherence"] == allowed.mean()  # CategoryAdherence
    missing = [frame["pay"].isna().mean() for frame in tables]
    assert scores.loc["pay", "missing"] == pytest.approx(1 - abs(missing[0] - missing[1]))  # MissingValueSimilarity
    # missing values where the real column has none are no values of it
    other = column_scores(real[["age", "flag"]], pd.DataFrame({"age": [30, None], "flag": [True, None]}))
    assert other["adherence"].tolist() == [0.5, 0.5]


def test_the_score_of_a_pair_is_correlation_similarity_or_contingency_similarity(tables):
    names = ["age", "pay", "when", "kind", "flag", "same"]
    scores = pair_scores(*tables)
    assert np.array_equal(scores, scores.T, equal_nan=True)
    kinds = column_scores(*tables)["kind"]
    for one, other in combinations(names, 2):
        score = scores.loc[one, other]
        if "category" not in (kinds[one], kinds[other]):
            if "same" in (one, other):
                assert np.isnan(score)
                continue
            pairs = [frame[[one, other]].dropna() for frame in tables]
            pairs = [
                [pair[name].astype("int64" if name == "when" else float) for name in (one, other)] for pair in pairs
            ]
            real, synthetic = (pearsonr(*pair).statistic for pair in pairs)
            assert score == pytest.approx(1 - abs(real - synthetic) / 2), (one, other)
            continue
        cut = [pd.DataFrame({name: _cut(frame[name], tables[0][name]) for name in (one, other)}) for frame in tables]
        real, synthetic = (pair.groupby([one, other], dropna=False).size() / len(pair) for pair in cut)
        real, synthetic = real.align(synthetic, fill_value=0)
        assert score == pytest.approx(1 - 0.5 * (real - synthetic).abs().sum()), (one, other)


def _cut(column, real):
    """Ten equal bins over the real range, as ContingencySimilarity cuts numbers; categories as they are."""
    if column.name in ("kind", "flag"):
        return column.astype(object).where(column.notna(), "nothing")
    if column.name == "when":
        column, real = column.astype("int64"), real.astype("int64")
    edges = np.histogram_bin_edges(real.dropna(), bins=10)
    edges[0], edges[-1] = -np.inf, np.inf
    return np.digitize(column, edges)


def test_the_overall_score_is_the_mean_of_columns_and_pairs(tables):
    found = quality_score(*tables)
    assert found.columns == pytest.approx(column_scores(*tables)["score"].mean())
    above = np.triu_indices(6, 1)
    assert found.pairs == pytest.approx(np.nanmean(pair_scores(*tables).to_numpy()[above]))
    assert found.overall == pytest.approx((found.columns + found.pairs) / 2)
    assert tuple(quality_score(tables[0], tables[0])) == pytest.approx((1, 1, 1))
    alone = quality_score(*(frame[["age"]] for frame in tables))
    assert np.isnan(alone.pairs)
    assert alone.overall == alone.columns


def test_a_schema_says_what_is_a_category():
    frame = pd.DataFrame({"code": [1, 2, 3, 4], "size": [1.0, 2.0, 3.0, 4.0]})
    other = frame.assign(code=[1, 2, 3, 3])
    schema = Schema([Categorical("code", (1, 2, 3, 4, 5)), Numeric("size", (0, 9))])
    assert column_scores(frame, other)["measure"].tolist() == ["KSComplement"] * 2
    assert column_scores(frame, other, schema)["measure"].tolist() == ["TVComplement", "KSComplement"]
    assert lost_categories(frame, other).empty
    assert lost_categories(frame, other, schema)["category"].tolist() == ["4"]


def test_lost_categories_are_counted_and_ordered(tables):
    real, synthetic = tables
    lost = lost_categories(real, synthetic)
    count = (real["kind"] == "d").sum()
    assert lost.to_numpy().tolist() == [["kind", "d", count, count * 300 / 400]]
    many = pd.DataFrame({"c": list("aabbbc"), "d": pd.Categorical(list("xxxxxy"), categories=list("xyz"))})
    lost = lost_categories(many, many.iloc[[5]].assign(d="y"))
    assert lost[["column", "category", "real"]].to_numpy().tolist() == [["d", "x", 5], ["c", "b", 3], ["c", "a", 2]]


def test_impossible_pairs_are_found_with_their_counts():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 1000)
    real = pd.DataFrame(
        {"sex": sex, "role": np.where(sex == "f", "wife", "husband"), "age": rng.integers(20, 80, 1000)}
    )
    assert unseen_pairs(real, real.sample(500, random_state=0)).share == 0
    synthetic = real.sample(400, random_state=0).reset_index(drop=True)
    synthetic.loc[:29, "role"] = np.where(synthetic.loc[:29, "sex"] == "f", "husband", "wife")
    found = unseen_pairs(real, synthetic)
    assert found.share == 30 / 400
    assert found.count == 2
    assert found.columns.to_numpy().tolist() == [["sex", "role", 2, 30]]
    women, husbands = (real["sex"] == "f").sum(), (real["role"] == "husband").sum()
    line = found.pairs.set_index("value").loc["f"]
    assert line["other"] == "husband"
    assert line["synthetic"] == (synthetic.loc[:29, "sex"] == "f").sum()
    assert (line["real_value"], line["real_other"]) == (women, husbands)
    assert line["expected"] == pytest.approx(women * husbands / 1000)


def test_bins_dates_and_missing_values_make_combinations_and_new_values_do_not():
    real = pd.DataFrame({"dead": ["no", "yes"] * 50, "visit": [1.0, np.nan] * 50, "x": np.arange(100.0)})
    real["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(100), unit="D")
    synthetic = real.assign(visit=real["visit"].iloc[::-1].to_numpy())
    found = unseen_pairs(real[["dead", "visit"]], synthetic[["dead", "visit"]])
    pairs = found.pairs[["value", "other", "synthetic"]].to_numpy().tolist()
    assert sorted(pairs) == [["no", "missing", 50], ["yes", "1", 50]]
    # the same order of numbers and of dates: swapped ends never occur
    swapped = real.assign(x=real["x"].to_numpy()[::-1])[["x", "day"]]
    found = unseen_pairs(real[["x", "day"]], swapped)
    assert found.share == 1
    assert found.count == 10
    assert found.pairs["value"].iloc[0] == "0 to 9"
    assert found.pairs["other"].iloc[0] == "2020-03-31 to 2020-04-09"
    new = real.assign(dead="maybe", visit=7.0)[["dead", "visit"]]
    assert unseen_pairs(real[["dead", "visit"]], new).share == 0
    names = pd.DataFrame({"name": [f"n{k}" for k in range(300)], "x": np.arange(300)})
    assert unseen_pairs(names, names.assign(x=names["x"].iloc[::-1].to_numpy())).count == 0


def test_extreme_and_empty_columns_have_scores_without_a_warning():
    rng = np.random.default_rng(0)
    columns = {
        "huge": [-1e308, 1e308, 0.0, 1.0], "tiny": [1e-310, 2e-310, 0.0, 0.0], "one": [1e17] * 4,
        "none": [np.nan] * 4, "far": [np.inf, 1.0, 2.0, -np.inf], "text": [None, None, None, None],
    }  # fmt: skip
    real = pd.DataFrame(columns)
    synthetic = real.sample(8, replace=True, random_state=rng.integers(9)).reset_index(drop=True)
    scores = column_scores(real, synthetic)
    assert scores["score"].drop(["none", "text"]).between(0, 1).all()
    assert scores.loc[["none", "text"], "score"].isna().all()
    assert 0 <= quality_score(real, synthetic).overall <= 1
    assert unseen_pairs(real, synthetic).share == 0
    kinds = [1, "a", "b", "b", None], ["b", 2.5, pd.Timestamp(0), None]  # no order sorts them
    mixed = [pd.DataFrame({"x": pd.Series(values, dtype=object)}) for values in kinds]
    assert column_scores(*mixed)["score"].tolist() == pytest.approx([1 / 3])
    assert lost_categories(*mixed)["category"].tolist() == ["1", "a"]
    with pytest.raises(InvalidInputError, match="'x': holds objects that are no categories") as caught:
        lost_categories(pd.DataFrame({"x": [["secret"], []]}), pd.DataFrame({"x": ["a"]}))
    assert "secret" not in str(caught.value)
