from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
from html import unescape

import numpy as np
import pandas as pd
import pytest
from _pages import Page, chromium, needs_browser, pixels
from sklearn.tree import DecisionTreeClassifier

from skdpgen import P3GMSynthesizer
from skdpgen.__main__ import main
from skdpgen.exceptions import InvalidInputError
from skdpgen.metrics import (
    CorrelationDisplay,
    LedgerDisplay,
    MarginalsDisplay,
    PairwiseErrorDisplay,
    TSTRCurveDisplay,
    column_distances,
    detection_auroc,
    leak_note,
    one_way_tvd,
    pairwise_tvd,
    pmse,
    tstr_score,
    two_way_tvd,
)
from skdpgen.report import Report, build_report
from skdpgen.report._inputs import align
from skdpgen.report._page import SEARCH
from skdpgen.tabular import Categorical, Datetime, Numeric, Schema

pytest.importorskip("matplotlib")
NASTY = '<script>alert("&")</script>'


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    size = rng.normal(5.0, 2.0, 200).clip(0, 10)
    real = pd.DataFrame(
        {
            "size": size,
            "count": pd.array(rng.integers(0, 9, 200), dtype="Int64"),
            NASTY: np.where(size > 5, "big", "small").astype(object),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 365, 200), unit="D"),
            "flag": pd.array(rng.random(200) < 0.3, dtype="boolean"),
            "empty": pd.Series([None] * 200, dtype=object),
        }
    )
    real.loc[::7, "count"] = pd.NA
    real.loc[::11, NASTY] = None
    synthetic = real.sample(170, random_state=0, replace=True).reset_index(drop=True)
    synthetic["size"] = (synthetic["size"] + rng.normal(0, 1, 170)).clip(0, 10)
    return real, synthetic


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(1)
    X = np.tanh(rng.normal(size=(200, 2)))
    return P3GMSynthesizer(30.0, bounds=(-1, 1), l2_bound=1.5).fit(X)


@pytest.fixture(autouse=True)
def undetected(monkeypatch):
    """No classifier is trained for the section that takes longest, but on the page that `report` makes for all."""
    monkeypatch.setattr("skdpgen.metrics.detection_auroc", lambda *rows, **options: 0.5)


@pytest.fixture(scope="module")
def report(tables, fitted):
    return build_report(*tables, card=fitted.card_, target=NASTY, positive="big", title="A <title>")


def test_the_page_opens_with_the_warning_that_it_reads_real_data(report):
    page = Page(report.html)
    words = " ".join(page.text.split())
    start = words.index("This page is computed from real rows. Do not publish it")
    assert start < words.index("Summary")
    assert start < 120
    assert "they have no noise" in words


def test_the_page_needs_nothing_from_outside_and_runs_the_search_alone(report):
    page = Page(report.html)
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    # one script, the same on each page, and no other may run
    (script,) = re.findall("<script>(.*?)</script>", report.html, flags=re.DOTALL)
    assert script == SEARCH
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.split("; script-src ")[1] == f"'sha256-{digest}'"
    assert not re.search(r"fetch|XMLHttp|import|eval|Function|innerHTML|cookie|localStorage|open\(|src", script)
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    for tag, attrs in page.tags:
        for name in ("src", "href", "action", "data"):
            value = attrs.get(name, "#")
            assert value.startswith(("#", "data:")), (tag, value)
    assert "http://" not in re.sub(r"base64,[^\"]*", "", report.html)
    assert "https://" not in re.sub(r"base64,[^\"]*", "", report.html)


def test_the_page_can_be_read_without_seeing_it(report):
    page = Page(report.html)
    assert page.all("html")[0]["lang"] == "en"
    assert [tag for tag, _ in page.tags if tag in ("h1", "main")] == ["h1", "main"]
    pictures = page.all("img")
    assert len(pictures) >= 4
    assert all(len(picture["alt"]) > 30 for picture in pictures)
    assert len(page.all("caption")) == len(page.all("table")) >= 4
    assert all("scope" in cell for cell in page.all("th"))
    headings = {attrs.get("id") for attrs in page.all("h2")}
    linked = {attrs["href"].removeprefix("#") for attrs in page.all("a")}
    assert linked == {"content", *headings}
    assert headings == {"summary", "privacy", "columns", "lost", "combinations", "pairs", "detection", "use", "notes"}
    assert all(len(drawing["aria-label"]) > 30 for drawing in page.all("svg"))


def test_text_from_the_files_is_escaped(report):
    assert NASTY not in report.html
    assert "&lt;script&gt;" in report.html
    assert "<title>A &lt;title&gt;</title>" in report.html


def test_figures_are_those_of_the_metrics(report, tables):
    real, synthetic = tables
    assert report.figures["one_way_tvd"] == pytest.approx(one_way_tvd(real, synthetic))
    assert report.figures["two_way_tvd"] == pytest.approx(two_way_tvd(real, synthetic))
    assert report.figures["wasserstein"] == pytest.approx(column_distances(real, synthetic)["wasserstein"].mean())
    assert 0 < report.figures["three_way_tvd"] < 1
    assert report.figures["tstr_auroc"] > 0.8
    assert 0.4 < report.figures["detection_auroc"] <= 1
    words = Page(report.html).text
    for name in ("one_way_tvd", "two_way_tvd", "detection_auroc", "tstr_auroc"):
        assert format(report.figures[name], ".4g") in words, name


def test_moments_and_ends_of_numbers_are_listed(tables):
    real, synthetic = (frame.assign(far=1.0) for frame in tables)
    synthetic.loc[synthetic.index[0], "far"] = 1056.0
    page = build_report(real, synthetic).html
    assert "each somebody's own" in unescape(page)
    row = page[page.index('<th scope="row">far</th>', page.index("Columns of numbers")) :]
    assert re.findall(r'"number">([^<]*)<', row)[6:8] == ["1", "1056"]


def test_every_section_repeats_what_showing_it_would_tell(report):
    words = " ".join(Page(report.html).text.split())
    shown = (column_distances, pairwise_tvd, detection_auroc, pmse, tstr_score)
    displays = (MarginalsDisplay, PairwiseErrorDisplay, CorrelationDisplay, TSTRCurveDisplay, LedgerDisplay)
    for metric in (*shown, *displays):
        assert leak_note(metric) in words, metric.__name__
    assert "a bar of one row is that row" in words
    assert "each step is a row" in words
    assert words.count("Publication.") >= 6


def test_the_card_is_recomputed_and_shown(report, tables, fitted):
    words = " ".join(Page(report.html).text.split())
    assert f"epsilon {fitted.card_['fit']['epsilon']:.6g} at delta 1e-05" in words
    assert "P3GMSynthesizer" in words
    content = json.loads(fitted.card_.to_json())
    content["fit"]["epsilon"] = 0.5
    with pytest.raises(ValueError, match="card was changed"):
        build_report(*tables, card=type(fitted.card_).from_json(json.dumps(content)))


def test_without_a_card_the_page_says_that_it_knows_nothing_of_privacy(tables):
    words = " ".join(Page(build_report(*tables).html).text.split())
    assert "No privacy card was given" in words
    assert "No schema was given" in words


def test_large_tables_are_read_in_part_and_the_page_says_so(tables):
    report = build_report(*tables, max_rows=100, max_columns=3)
    words = " ".join(Page(report.html).text.split())
    assert "100 of 200 real and 100 of 170 synthetic" in words
    assert "Figures over pairs and triples are of 3 of 6 columns: drawn at random." in words


def test_a_schema_bins_the_figures(tables):
    real, synthetic = tables
    schema = Schema(
        [
            Numeric("size", (0, 100)),
            Numeric("count", (0, 9), integer=True, missing=True),
            Categorical(NASTY, ("big", "small"), missing=True),
            Datetime("when", ("2020-01-01", "2020-12-31")),
            Categorical("flag", (False, True)),
            Categorical("empty", ("a",), missing=True),
        ]
    )
    report = build_report(real, synthetic, schema=schema, target="size")
    assert report.figures["one_way_tvd"] == pytest.approx(one_way_tvd(real, synthetic, schema), abs=1e-9)
    assert "No schema" not in report.html
    assert "R squared" in report.html
    assert report.figures["tstr_score"] < 1


def test_arrays_pairs_and_few_rows_are_reported(rng):
    X, y = rng.random((12, 2)), rng.integers(0, 3, 12)
    report = build_report((X, y), (X, y))
    assert report.figures["one_way_tvd"] == 0
    assert "too few to train a classifier" in report.html
    single = build_report(X[:, :1], X[:, :1])
    assert "One column has no pairs" in single.html


def test_two_classes_name_the_rarer_one_and_more_are_scored_by_accuracy(tables, rng):
    real, synthetic = (frame[[NASTY, "size", "empty"]] for frame in tables)
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    report = build_report(real, synthetic, target=NASTY, classifier=tree)
    assert "the rarer one" in report.html
    assert report.figures["tstr_auroc"] > 0.8
    real = real.assign(empty=rng.choice(list("abc"), len(real)))
    report = build_report(real, synthetic.assign(empty="a"), target="empty", test=real, classifier=tree)
    assert report.figures["tstr_score"] == pytest.approx((real["empty"] == "a").mean())


def test_tables_that_do_not_fit_together_are_refused_without_a_cell(tables):
    real, synthetic = tables
    with pytest.raises(InvalidInputError, match="only in the real one"):
        build_report(real, synthetic.drop(columns="size"))
    with pytest.raises(InvalidInputError, match="'size'") as caught:
        build_report(real, synthetic.assign(size="secret"))
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="at least one row"):
        build_report(real, synthetic.iloc[:0])
    with pytest.raises(ValueError, match="not a column"):
        build_report(real, synthetic, target="nothing")
    with pytest.raises(ValueError, match="max_rows"):
        build_report(real, synthetic, max_rows=1)


def test_columns_in_another_order_and_of_other_dtypes_are_the_same_table(tables):
    real, _ = tables
    one, other = align(real, real[list(real.columns[::-1])].assign(count=real["count"].astype("Float64")))
    assert two_way_tvd(one, other) == 0
    codes, digits = pd.DataFrame({"zip": ["1", "2", None] * 10}), pd.DataFrame({"zip": [1.0, 2.0, np.nan] * 10})
    assert one_way_tvd(*align(codes, digits)) == 0


def test_columns_that_numbers_name_are_aligned_in_place():
    real, synthetic = (pd.DataFrame({0: values, 1: [0.5, 1.5]}) for values in (["a", "b"], ["b", "b"]))
    for frame in align(real, synthetic):
        assert list(frame.columns) == [0, 1]
    assert list(real[0]) == ["a", "b"]  # the frame that came in is as it was


def test_the_command_writes_the_page_and_says_not_to_publish(tables, fitted, tmp_path, capsys):
    real, synthetic = (frame.drop(columns="empty") for frame in tables)
    paths = {name: str(tmp_path / name) for name in ("real.csv", "synthetic.csv", "card.json", "report.html")}
    real.to_csv(paths["real.csv"], index=False)
    synthetic.to_csv(paths["synthetic.csv"], index=False)
    fitted.card_.save(paths["card.json"])
    command = ["report", paths["real.csv"], paths["synthetic.csv"], "--card", paths["card.json"]]
    assert main([*command, "--target", "flag", "--output", paths["report.html"]]) == 0
    out = capsys.readouterr().out
    assert "two_way_tvd" in out
    assert "do not publish" in out
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "synthetic.csv beside real.csv" in page.text
    assert main([*command, "--positive", "big"]) == 2
    assert "--target" in capsys.readouterr().err
    assert main(["report", paths["real.csv"], str(tmp_path / "none.csv")]) == 2
    assert "no such file" in capsys.readouterr().err


# ---- in a browser ----------------------------------------------------------------------------------------
@needs_browser
def test_a_browser_shows_the_warning_the_pictures_and_the_text(report, tmp_path):
    path = tmp_path / "report.html"
    report.save(path)
    dom = chromium(tmp_path, "--dump-dom", path.as_uri())
    words = " ".join(Page(dom).text.split())
    assert "This page is computed from real rows. Do not publish it" in words
    assert format(report.figures["two_way_tvd"], ".4g") in words
    shown = pixels(path, tmp_path, 7000)

    def share(colour, rows, tolerance=6):
        return (np.abs(shown[rows] - colour).max(axis=2) <= tolerance).mean()

    assert share((139, 26, 26), slice(0, 40)) > 0.7, "the warning is not on top"
    assert share((255, 255, 255), slice(200, None)) > 0.5
    assert share((28, 28, 28), slice(200, 1500), 30) > 0.002, "no text"
    # bars of real rows, the colours of the ends of both maps: the pictures were drawn, not only linked
    assert share((160, 182, 208), slice(None), 12) > 0.001, "no bars of real rows"
    assert share((196, 78, 0), slice(None), 12) > 0.0001, "no lines of synthetic rows"
    assert share((68, 1, 84), slice(None), 12) > 0.0002, "no heat map"
    assert share((103, 0, 31), slice(None), 12) > 0.0005, "no correlations"


@needs_browser
def test_the_browser_test_sees_a_page_without_pictures(report, tmp_path):
    path = tmp_path / "broken.html"
    path.write_text(re.sub(r"base64,[^\"]*", "base64,AAAA", report.html), encoding="utf-8")
    shown = pixels(path, tmp_path, 7000)
    for colour in ((68, 1, 84), (103, 0, 31)):  # bars of columns are part of the page
        assert (np.abs(shown - colour).max(axis=2) <= 12).mean() < 0.0001


def test_the_page_may_be_read_by_its_owner_alone(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("an older one")
    Report("<html></html>", {}).save(path)
    assert path.read_text() == "<html></html>"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_column_of_one_file_alone_is_named_before_rows_are_read_and_may_be_dropped(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"a": np.arange(60) % 7, "b": ["x", "y", "z"] * 20, "c": 1})
    frame.drop(columns="c").assign(d=2).to_csv("real.csv", index=False)
    frame.to_csv("synthetic.csv", index=False)
    assert main(["report", "real.csv", "synthetic.csv", "--drop", "b"]) == 2
    said = capsys.readouterr().err
    assert "only real.csv has the columns d; only synthetic.csv has the columns c; " in said
    assert "to compare the others, give --drop b,d,c" in said
    assert main(["report", "real.csv", "synthetic.csv", "--drop", "c,d"]) == 0
    frame.assign(c="").to_csv("test.csv", index=False)
    compared = ["report", "real.csv", "synthetic.csv", "--drop", "d,c", "--target", "b", "--quiet"]
    assert main([*compared, "--test", "test.csv"]) == 0


def test_a_bar_names_the_section_that_is_computed(monkeypatch, capsys):
    from skdpgen.report import _report

    shown, now = _report.progress_bar, {"delay": 0, "mininterval": 0}
    monkeypatch.setattr(_report, "progress_bar", lambda *given, **options: shown(*given, **{**options, **now}))
    frame = pd.DataFrame({"a": np.arange(60) % 7, "b": ["x", "y", "z"] * 20})
    build_report(frame, frame, progress=True)
    assert "report: pairs of columns" in capsys.readouterr().err
    build_report(frame, frame)  # stderr is no terminal
    assert capsys.readouterr().err == ""
