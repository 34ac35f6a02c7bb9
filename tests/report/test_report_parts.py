"""Parts of the report: scores at a glance, cards of columns, what was lost or invented, baselines; many columns."""

from __future__ import annotations

import re
from html import unescape
from types import SimpleNamespace
from xml.dom import minidom

import numpy as np
import pandas as pd
import pytest
from _pages import Page, chromium, needs_browser
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skdpgen.metrics import lost_categories, quality_score, three_way_tvd, unseen_pairs
from skdpgen.metrics._display_rows import count_marginal, log_ticks
from skdpgen.report import build_report
from skdpgen.report._columns import chart, verdict
from skdpgen.report._use import _regressors, of_classes, of_numbers
from skdpgen.report._values import combinations_section, lost_section

pytest.importorskip("matplotlib")
TREE_OF_NUMBERS = DecisionTreeRegressor(max_depth=3, random_state=0)
TREE = DecisionTreeClassifier(max_depth=3, random_state=0)
N_WIDE = 100


@pytest.fixture(scope="module", autouse=True)
def undetected():
    """No classifier is trained for the section that takes longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skdpgen.metrics.detection_auroc", lambda *rows, **options: 0.5)
        patch.setattr("skdpgen.metrics.pmse", lambda *rows, **options: SimpleNamespace(pmse=0.0, ratio=1.0))
        yield


def words(html):
    return " ".join(Page(html).text.split())


def rows_of(html, caption):
    """Cells of the table with a caption, a list of lists of text."""
    found = html[html.index(f"<caption>{caption}") :]
    body = found[found.index("<tbody>") : found.index("</tbody>")]
    return [
        [unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in body.split("</tr>")[:-1]
    ]


# ---- a wide table --------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(0)
    real = pd.DataFrame(rng.normal(size=(150, N_WIDE - 1)), columns=[f"x{k}" for k in range(N_WIDE - 1)])
    real.insert(80, "<i>class&", np.where(real["x3"] > 0, "up", "down"))
    synthetic = real.sample(120, replace=True, random_state=0).reset_index(drop=True)
    synthetic["x7"] += 3
    return build_report(real, synthetic, target="<i>class&", classifier=TREE, max_columns=6)


def test_each_of_many_columns_has_a_card_and_a_link_to_it(wide):
    page = Page(wide.html)
    cards = {card["id"]: card["data-name"] for card in page.all("article")}
    assert len(cards) == N_WIDE
    assert cards["column-80"] == "<i>class&"
    assert cards["column-7"] == "x7"
    links = [link["href"].removeprefix("#") for link in page.all("a")]
    assert set(cards) < set(links)
    assert set(links) <= {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    index = re.search(r'<ul class="index">(.*?)</ul>', wide.html, flags=re.DOTALL)[1]
    names = [unescape(name) for name in re.findall(r'column-\d+">(.*?)</a>', index)]
    assert names[:4] == ["<i>class&", "x0", "x1", "x2"]  # x2 before x10
    assert len(page.all("svg")) == N_WIDE
    assert len(wide.html) < 700_000


def test_many_columns_are_grouped_and_the_worst_group_is_open(wide):
    groups = re.findall(r"<details class=group( open)?><summary>(.*?)</summary>", wide.html)
    assert [opened != "" for opened, _ in groups] == [True] + [False] * (len(groups) - 1)
    assert groups[0][1].startswith("Far from the real rows: more than 0.10 below")
    first = wide.html[wide.html.index("<details class=group open") :]
    assert first[: first.index("</article>")].count('data-name="x7"') == 1  # the worst card is the first
    box = Page(wide.html).all("input")
    assert [field["type"] for field in box] == ["search"]
    assert '<p class="find" hidden>' in wide.html  # without the script there is no box that does nothing


def test_pairs_of_many_columns_are_of_the_target_and_others_at_random(wide):
    text = words(wide.html)
    assert f"Figures over pairs and triples are of 6 of {N_WIDE} columns: <i>class& and 5 drawn at random." in text
    pairs = rows_of(wide.html, "Pairs, the furthest above chance first")
    named = {name for row in pairs for name in row[0].split(" and ")}
    assert "<i>class&" in named
    assert len(named) <= 6


@needs_browser
def test_a_link_opens_the_group_of_its_card_and_the_box_is_shown(wide, tmp_path):
    path = tmp_path / "wide.html"
    wide.save(path)
    dom = chromium(tmp_path, "--dump-dom", f"{path.as_uri()}#column-90")
    card = dom.index('id="column-90"')
    assert re.findall(r"<details[^>]*>", dom[:card])[-1].endswith('open="">')
    assert '<p class="find">' in dom


# ---- a small table -------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def small():
    """Five columns of all kinds, of which the synthetic rows lost a category and broke a rule."""
    rng = np.random.default_rng(1)
    n = 400
    sex = rng.choice(["f", "m"], n)
    real = pd.DataFrame(
        {
            "sex": sex,
            "role": np.where(sex == "f", "wife", "husband"),
            "cost": np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(5, 3, n)),
            "ward": rng.choice(["a", "b", "c", "rare"], n, p=[0.5, 0.3, 0.15, 0.05]),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )
    synthetic = real.sample(300, random_state=0).reset_index(drop=True)
    synthetic["ward"] = synthetic["ward"].replace("rare", "a")
    synthetic["role"] = synthetic["role"].sample(frac=1, random_state=0).to_numpy()
    return real, synthetic


@pytest.fixture(scope="module")
def report(small):
    return build_report(*small, target="ward", classifier=TREE)


def test_the_headline_is_the_quality_score_beside_that_of_two_halves(report, small):
    overall = quality_score(*small)
    assert report.figures["quality_score"] == pytest.approx(overall.overall)
    assert report.figures["column_score"] == pytest.approx(overall.columns)
    assert report.figures["pair_score"] == pytest.approx(overall.pairs)
    tiles = re.search(r'<ul class="tiles">(.*?)</ul>', report.html, flags=re.DOTALL)[1]
    found = re.findall(r"<span>(.*?)</span><strong>(.*?)</strong><span>(.*?)</span>", tiles)
    assert [name for name, _, _ in found] == [
        *("overall score", "columns score", "pairs score"),
        *("three-way distance", "correlations kept", "detection AUROC", "accuracy for ward"),
    ]
    assert found[0][1] == f"{overall.overall:.3f}"
    assert all(re.fullmatch(r"real halves 0\.\d{3}", note) for _, _, note in found[:4])
    lines = {row[0]: row for row in rows_of(report.html, "Main figures")}
    assert lines["score of columns, mean"][4] == "Column Shapes: KSComplement, TVComplement"
    assert "CorrelationSimilarity, ContingencySimilarity" in lines["score of pairs, mean"][4]
    assert float(lines["three-way total variation distance, mean"][1]) == pytest.approx(
        three_way_tvd(*small, max_tables=300, random_state=0), abs=1e-3
    )
    assert all(lines[f"{n}-way total variation distance, mean"][3] for n in ("one", "two", "three"))


def test_lost_categories_and_broken_rules_are_listed_and_in_the_summary(report, small):
    real, synthetic = small
    text = words(report.html)
    count = int((real["ward"] == "rare").sum())
    assert rows_of(report.html, "Lost categories") == [["ward", "rare", str(count), f"{count * 0.75:.4g}"]]
    assert "Categories lost: 1, the commonest ward = rare." in text
    broken = ((synthetic["sex"] == "f") != (synthetic["role"] == "wife")).mean()
    assert report.figures["unseen_pairs"] >= broken
    listed = rows_of(report.html, "Combinations in synthetic rows, never in real ones")
    made = ((synthetic["sex"] == "f") & (synthetic["role"] == "husband")).sum()
    assert ["sex = f and role = husband", str(made)] in [row[:2] for row in listed]
    assert rows_of(report.html, "Columns in which they are")[0][0] == "sex and role"
    assert "most often sex = " in text
    card = report.html[report.html.index('id="column-3"') :]
    assert "lost: rare" in card[: card.index("</article>")]


def test_a_table_without_losses_says_so(small):
    real = small[0]
    lost = lost_section(lost_categories(real, real), 3, (len(real), len(real)))[2]
    assert "None: each category of the 3 columns" in words(lost)
    found = unseen_pairs(real, real)
    none = combinations_section(found, found, 5, (len(real), len(real)))[2]
    assert "Of 400 synthetic rows, none holds a pair of values that none of 400 real rows has." in words(none)
    assert "No column holds categories." in lost_section(lost_categories(real, real), 0, (1, 1))[2]
    assert "One column has no pairs." in combinations_section(None, None, 1, (1, 1))[2]


def test_what_was_lost_by_chance_is_said_to_be(small):
    frame = pd.DataFrame({"c": ["a"] * 50 + ["b"] * 45 + ["z"] * 5})
    few = lost_section(lost_categories(frame, frame[:95]), 1, (100, 95))[2]
    assert "Fewer than 10 synthetic rows of each were to be expected: chance alone may lose it." in few
    both = lost_section(lost_categories(frame, frame[:50]), 1, (100, 50))[2]
    assert "Of 1, 10 synthetic rows or more were to be expected: chance did not lose these." in both


def test_the_page_of_one_column_and_of_empty_ones(small):
    real, synthetic = (frame[["cost"]] for frame in small)
    alone = build_report(real, synthetic)
    assert alone.figures["quality_score"] == alone.figures["column_score"]
    empty = build_report(real.assign(none=np.nan, void=None), synthetic.assign(none=np.nan, void=None))
    assert "No values." in empty.html
    assert 'class="score none">none<' in empty.html


# ---- baselines -----------------------------------------------------------------------------------------------------
def test_accuracy_is_beside_the_share_of_the_commonest_class(report, small):
    lines = rows_of(report.html, "Accuracy")
    assert [line[0] for line in lines] == [
        *("real rows", "synthetic rows"),
        "no model: always the commonest class of the real rows, a",
    ]
    assert float(lines[2][1]) == pytest.approx(report.figures["tstr_baseline"], abs=1e-3)
    assert 0.4 < report.figures["tstr_baseline"] < 0.6
    recall = rows_of(report.html, "Classes")
    assert [row[0] for row in recall][:2] == ["a", "b"]
    assert recall[-1][0] == "rare"
    assert recall[-1][3] == "0"  # it is in no synthetic row


def test_classes_are_scored_by_hand(small):
    train, test = small[0].iloc[::2].assign(ward="a"), small[0].iloc[1::2]
    scored = of_classes(train, train, test, "ward", TREE)
    assert scored.real == scored.synthetic == scored.without == ((test["ward"] == "a").mean(),)


def test_a_number_is_predicted_with_r_squared_and_mean_absolute_error(small):
    frame = small[0][["sex", "ward", "cost"]].dropna().assign(other=lambda rows: np.log(rows["cost"]))
    train, test = frame.iloc[::2], frame.iloc[1::2]
    model = DecisionTreeRegressor(max_depth=4, random_state=0)
    scored = of_numbers(train, train.iloc[:20], test, "cost", model)
    alone = of_numbers(train[["other", "cost"]], train[["other", "cost"]], test[["other", "cost"]], "cost", model)
    guess = model.fit(train[["other"]], train["cost"]).predict(test[["other"]])
    assert alone.real == pytest.approx(
        (r2_score(test["cost"], guess), mean_absolute_error(test["cost"], guess)), abs=1e-4
    )
    assert scored.without[1] == pytest.approx((test["cost"] - train["cost"].mean()).abs().mean())
    assert scored.real != scored.synthetic
    report = build_report(*small, target="cost", classifier=model)
    (name, *scores), without = rows_of(report.html, "Regression")
    assert name == "DecisionTreeRegressor"
    made = report.figures["tstr_score"], report.figures["tstr_mae"]
    assert [float(score.replace(",", "")) for score in scores[1::2]] == pytest.approx(made, rel=1e-3)
    assert without[0] == "no model: always the mean of the real rows"
    assert float(without[3].replace(",", "")) == pytest.approx(report.figures["tstr_mae_baseline"], rel=1e-3)
    assert without[2] == without[4] == ""
    assert "mean absolute error, in units of cost" in report.html


def test_several_regressors_are_beside_one_another_and_their_means_at_a_glance(small):
    frame = small[0][["sex", "ward", "cost"]].dropna()
    frame["cost"] = frame["cost"].rank(pct=True)
    frame["other"] = frame["cost"] * 7
    real, made = frame.iloc[::2], frame.iloc[1::2]
    report = build_report(real, made.assign(cost=made["cost"].to_numpy()[::-1]), target="cost", test=made)
    lines = {name: list(map(float, scores)) for name, *scores in rows_of(report.html, "Regression")[:-1]}
    assert list(lines) == ["ridge", "random forest", "gradient boosting", "mean of the regressors"]
    mean = lines.pop("mean of the regressors")
    assert np.mean(list(lines.values()), axis=0) == pytest.approx(mean, rel=1e-3)
    assert all(of_real > 0.5 > of_synthetic for of_real, of_synthetic, *_ in lines.values())  # it says nothing of cost
    assert all(of_real < of_synthetic for _, _, of_real, of_synthetic in lines.values())
    assert report.figures["tstr_score"] == pytest.approx(mean[1], rel=1e-3)
    assert report.figures["tstr_mae_random_forest"] == pytest.approx(lines["random forest"][3], rel=1e-3)
    text = words(report.html)
    assert "R squared (mean of 3 regressors) of predicting cost" in text
    assert "R squared for cost" in text
    named = build_report(
        real, made, target="cost", test=made, classifier={"a line": Ridge(), "a tree": TREE_OF_NUMBERS}
    )
    assert {"tstr_score_a line", "tstr_mae_a tree"} <= set(named.figures)


def test_a_forest_of_many_rows_and_columns_has_a_bounded_cost():
    forest = _regressors(40_000, 900)["random_forest"]
    assert forest.max_samples * 40_000 == pytest.approx(5_000)
    assert forest.max_features * 900 == pytest.approx(100)
    small = _regressors(200, 0)["random_forest"]
    assert (small.max_samples, small.max_features) == (1.0, 1 / 3)


# ---- drawings ------------------------------------------------------------------------------------------------------
def drawn(real, synthetic=None):
    marginal = count_marginal(pd.Series(real, name="<x>&$"), pd.Series(real if synthetic is None else synthetic))
    svg = chart(marginal, "what it shows")
    minidom.parseString(svg.replace("<svg", "<svg xmlns='http://www.w3.org/2000/svg'", 1))
    return marginal, re.findall(r"<text[^>]*>([^<]*)", unescape(svg.replace("&lt;", "("))), svg


def test_both_axes_of_each_drawing_have_names():
    rng = np.random.default_rng(0)
    for column in (rng.normal(size=200), rng.choice(["a", "b"], 200), pd.date_range("2020-01-01", periods=200)):
        _, texts, svg = drawn(column)
        assert "share of rows" in texts
        assert any("x>&$" in text for text in texts)
        assert 'role="img" aria-label="what it shows"' in svg
        assert not re.search(r"nan|inf\b|-0%", svg)


def test_axes_are_logarithmic_where_tails_matter():
    rng = np.random.default_rng(0)
    tail = np.exp(rng.normal(0, 4, 2000))
    marginal, texts, _ = drawn(tail)
    assert marginal.scale > 0
    assert "(x>&$ (log scale)" in texts
    assert np.histogram(tail, marginal.edges)[0].max() < 0.3 * len(tail)  # equal bins have nearly all rows in one
    assert marginal.real.sum() == pytest.approx(1)
    both = count_marginal(pd.Series(np.r_[tail, -tail]), pd.Series(tail))
    assert both.edges[0] == -tail.max()
    assert both.edges[-1] == tail.max()
    ticks = log_ticks(-1e6, 1e6, 10.0)
    assert 0.0 in ticks
    assert ticks == [-tick for tick in ticks[::-1]]
    _, texts, _ = drawn(np.r_[np.zeros(5000), rng.uniform(1, 100, 100)])
    assert "share of rows (log scale)" in texts
    assert "0.1%" in texts
    for column in (rng.normal(size=2000), rng.integers(0, 80, 2000)):
        plain, _, _ = drawn(column)
        assert plain.scale is None
        assert not plain.log_shares


def test_bars_of_whole_numbers_hold_equally_many():
    marginal, _, _ = drawn(np.arange(17, 91))
    assert np.ptp(np.diff(marginal.edges)) == 0
    assert len({round(share, 9) for share in marginal.real[:-1]}) == 1


@pytest.mark.parametrize(
    "values",
    [[-1e308, 1e308, 5.0], [1e-310, 0.0], [1e17] * 4, [7.5], [np.inf, 1.0, np.nan], [2.0**62, -(2.0**62)], [0.0, 1e9]],
)
def test_extreme_numbers_are_drawn_without_a_warning(values):
    svg = drawn(values, [0.0, 1.0])[2]
    assert not re.search(r"nan|inf\b", svg)


def test_a_score_is_judged_by_its_lag_behind_two_real_halves():
    assert [verdict(score, 0.95) for score in (0.99, 0.94, 0.9, 0.5)] == ["close", "close", "fair", "far"]
    assert verdict(np.nan, 0.9) == "none"
    assert verdict(0.99, np.nan) == "close"


def test_a_number_that_is_predicted_is_no_column_to_predict_it_by_where_names_are_numbers():
    rng = np.random.default_rng(0)
    real, synthetic = (pd.DataFrame(rng.normal(size=(400, 3))) for _ in range(2))
    report = build_report(real, synthetic, target=2)
    assert report.figures["tstr_score"] < 0.3


@pytest.mark.parametrize(
    ("target", "models", "message"),
    [
        ("cost", {"baseline": Ridge()}, "name no regressor 'baseline'"),
        ("cost", {1: Ridge()}, "names of classifiers must be text"),
        ("ward", [TREE, TREE], "one classifier"),
    ],
)
def test_models_that_the_page_cannot_show_are_refused(small, target, models, message):
    with pytest.raises((TypeError, ValueError), match=message):
        build_report(*small, target=target, classifier=models)


def test_lost_correlations_are_among_the_figures_at_a_glance(rng):
    factor = rng.normal(size=2000)
    real = pd.DataFrame({name: factor + rng.normal(size=2000) for name in "abc"}).assign(d=rng.normal(size=2000))
    lost = pd.DataFrame({name: rng.permutation(real[name]) for name in real})
    weaker = real.assign(a=real["a"] + 2 * rng.normal(size=2000))
    found = [build_report(real, table).figures["correlation_strength"] for table in (lost, weaker, real)]
    assert abs(found[0]) < 0.1
    assert 0.6 < found[1] < 0.95
    assert found[2] == pytest.approx(1.0)
    # without correlations of the real rows there is nothing to be kept
    assert "correlation_strength" not in build_report(lost, real).figures
