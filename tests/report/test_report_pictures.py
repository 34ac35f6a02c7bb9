"""What the report draws beyond two tables: images, the latent space of a model, utility against epsilon."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from _pages import Page, chromium, needs_browser, pixels
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

from skdpgen import MomentSynthesizer, P3GMSynthesizer, load
from skdpgen.__main__ import main
from skdpgen.exceptions import InvalidInputError
from skdpgen.metrics import ImageGridDisplay, LatentSpaceDisplay, UtilityCurveDisplay, leak_note, prdc
from skdpgen.report import build_report, read_results
from skdpgen.report._inputs import results_table
from skdpgen.report._sections import released_mixture
from skdpgen.tabular import Categorical, Numeric, Schema

pytest.importorskip("matplotlib")
TREE = DecisionTreeClassifier(random_state=0)
N_IMAGES = 300
SECTIONS = (ImageGridDisplay, LatentSpaceDisplay, UtilityCurveDisplay)


def _result(model, epsilon, seed, auroc, learned_schema=False):
    cell = {"run": "tables:table_benchmark", "models": [model], "seeds": [seed], "epsilon": epsilon}
    cell |= {"learned_schema": True} if learned_schema else {"rows": None}
    own = None if epsilon is None else 0.9997 * epsilon + 1e-5 * seed
    facts = {"data": "adult", "model": model, "epsilon": own, "epsilon_asked": epsilon, "auroc": auroc}
    return {"benchmark": "adult", "cell": cell, "part": 0, **facts}


RESULTS = [
    *(_result("P3GMSynthesizer", epsilon, s, 0.8 + 0.02 * s) for epsilon in (0.1, 1.0, 10.0) for s in (0, 1)),
    _result("P3GMSynthesizer", 1.0, 0, 0.7, learned_schema=True),
    _result("real data", None, 0, 0.92),
]


@pytest.fixture(scope="module")
def digits():
    """Real and synthetic images with labels as two frames, and the model that made them."""
    X, y = (part[:N_IMAGES] for part in load_digits(return_X_y=True))
    model = P3GMSynthesizer(30.0, bounds=(0, 16), classes=range(10), image_shape=(8, 8), random_state=0).fit(X, y)
    return model.as_frame((X, y)), model.as_frame(model.sample(random_state=0)), model


@pytest.fixture(scope="module")
def files(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    real, synthetic, model = digits
    real.to_csv(folder / "real.csv", index=False)
    synthetic.to_csv(folder / "synthetic.csv", index=False)
    model.save(folder / "model.safetensors")
    model.card_.save(folder / "card.json")
    lines = [json.dumps(result) for result in RESULTS]
    (folder / "results.jsonl").write_text("\n".join([*lines, '{"half": ']), encoding="utf-8")
    return folder


@pytest.fixture
def undetected(monkeypatch):
    """Without the section that takes longest."""
    monkeypatch.setattr("skdpgen.metrics.detection_auroc", lambda *rows, **options: 0.5)


@pytest.fixture(scope="module")
def report(digits):
    real, synthetic, model = digits
    options = {"model": model, "image_shape": (8, 8), "results": RESULTS, "target": "y", "classifier": TREE}
    return build_report(real, synthetic, **options)


@pytest.fixture(scope="module")
def page(report):
    return Page(report.html)


def test_the_page_has_a_section_of_each_with_what_showing_it_would_tell(page):
    words = " ".join(page.text.split())
    headings = [attrs["id"] for attrs in page.all("h2")]
    assert headings == ["summary", "privacy", "images", "detection", "use", "latent", "utility", "notes"]
    for display in SECTIONS:
        assert leak_note(display).replace("``", "") in words, display.__name__
    assert words.count("Publication.") == 7
    assert len(page.all("img")) == 4
    assert all(picture["src"].startswith("data:") and len(picture["alt"]) > 30 for picture in page.all("img"))
    assert "P3GMSynthesizer" in words  # the card is that of the model


def test_images_take_the_place_of_columns_and_the_page_says_so(report, page, digits):
    words = " ".join(page.text.split())
    assert "Left out are the figures and pictures of single columns, of their pairs and triples, and pMSE" in words
    assert not {"one_way_tvd", "two_way_tvd", "pmse_ratio"} & set(report.figures)
    assert "The first images of each y" in words
    real, synthetic, _ = digits
    near = prdc(real.drop(columns="y").to_numpy(), synthetic.drop(columns="y").to_numpy())
    assert report.figures["recall"] == pytest.approx(near.recall, abs=0.2)
    # a label of numbers is a class all the same
    assert 0.3 < report.figures["tstr_score"] <= 1
    assert "accuracy" in words
    assert "R squared" not in words


def test_images_without_labels_and_with_a_schema(digits, monkeypatch, undetected):
    drawn = []
    plot = ImageGridDisplay.plot
    monkeypatch.setattr(ImageGridDisplay, "plot", lambda self, ax=None: drawn.append(self) or plot(self, ax))
    real, synthetic = (frame.drop(columns="y").iloc[:, ::-1] for frame in digits[:2])
    schema = Schema([Numeric(name, (-4, 20)) for name in real.columns])
    report = build_report(real.astype("Float64"), synthetic.iloc[:, ::-1], image_shape=[4, 16], schema=schema)
    assert drawn[0].value_range == (-4, 20)
    assert drawn[0].real.shape == (10, 10, 4, 16)
    np.testing.assert_array_equal(drawn[0].real[0, 3].ravel(), real.iloc[3])
    # columns of the other table in another order
    np.testing.assert_array_equal(drawn[0].synthetic[0, 3].ravel(), synthetic.iloc[3])
    assert "No schema" not in report.html
    few = build_report(real[:12], synthetic[:12], image_shape=(8, 8))
    assert "recall" not in few.figures


def test_the_latent_space_is_that_of_the_model_and_the_rows(digits, monkeypatch, undetected):
    drawn = []
    monkeypatch.setattr(LatentSpaceDisplay, "from_samples", lambda *args, ax=None: drawn.append(args))
    real, synthetic, model = digits
    report = build_report(real.iloc[:, ::-1], synthetic, model=model, image_shape=(8, 8), target="y", classifier=TREE)
    latent, mixture, labels = drawn[0]
    expected = model.transform(real.drop(columns="y").to_numpy()[:, ::-1])
    np.testing.assert_allclose(latent, expected)
    assert list(labels) == [str(label) for label in real["y"]]
    assert mixture is model.model_.generator.mixture
    assert f"All {N_IMAGES} real rows" in report.html


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    size = rng.normal(5.0, 2.0, 400).clip(0, 10)
    frame = pd.DataFrame({"size": size, "code": rng.integers(0, 3, 400), "kind": np.where(size > 5, "big", "small")})
    schema = Schema([Numeric("size", (0, 10)), Categorical("code", (0, 1, 2)), Categorical("kind", ("big", "small"))])
    model = P3GMSynthesizer(30.0, schema=schema, target="kind", random_state=0).fit(frame)
    return frame, model.sample(random_state=0), model, schema


def test_a_table_is_drawn_with_the_gaussians_of_its_classes(table, tmp_path, monkeypatch):
    drawn = []
    plot = LatentSpaceDisplay.plot
    monkeypatch.setattr(LatentSpaceDisplay, "plot", lambda self, ax=None: drawn.append(self) or plot(self, ax))
    frame, synthetic, model, schema = table
    model.save(tmp_path / "model.safetensors")
    options = {"schema": schema, "target": "kind", "classifier": TREE}
    loaded = load(tmp_path / "model.safetensors")
    report = build_report(frame, synthetic, model=loaded, card=model.card_, **options)
    assert len(drawn[0].mixture.weights) == 2
    assert drawn[0].mixture.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(drawn[0].latent, model.transform(frame), atol=1e-6)
    # the Gaussians are where the rows of their classes are
    for k, kind in enumerate(model.classes_):
        rows = drawn[0].latent[frame["kind"] == kind]
        np.testing.assert_allclose(drawn[0].mixture.means[k], rows.mean(0), atol=0.5)
    assert "two_way_tvd" in report.figures


def test_rows_that_cannot_be_encoded_leave_the_release_alone(table, undetected):
    frame, synthetic, model, _ = table
    report = build_report(frame.assign(kind="secret"), synthetic, model=model)
    words = " ".join(Page(report.html).text.split())
    assert "The real rows cannot be encoded" in words
    assert "0 points" not in words
    assert leak_note(LatentSpaceDisplay).replace("``", "") in words


def test_a_model_without_a_mixture_gives_its_card_alone(table):
    frame, synthetic, _, schema = table
    model = MomentSynthesizer(30.0, schema=schema, random_state=0).fit(frame)
    with pytest.raises(ValueError, match="no released mixture"):
        released_mixture(model)
    words = " ".join(Page(build_report(frame, synthetic, model=model).html).text.split())
    assert "has released no mixture" in words
    assert "MomentSynthesizer" in words
    with pytest.raises(ValueError, match="leave it out"):
        build_report(frame, synthetic, model=model, card=model.card_)


def test_what_does_not_fit_together_is_refused_before_anything_is_computed(digits, table, monkeypatch):
    monkeypatch.setattr("skdpgen.report._report.Sections", None)
    real, synthetic, model = digits
    frame, rows, other, _ = table
    with pytest.raises(InvalidInputError, match="64 pixels, and the table 65 columns: name the column of the label"):
        build_report(real, synthetic, image_shape=(8, 8))
    with pytest.raises(InvalidInputError, match="63 pixels, and the table 64 columns beside the target"):
        build_report(real, synthetic, image_shape=(7, 9), target="y")
    for shape in ((0, 8), (64,), (-8, -8)):
        with pytest.raises(ValueError, match="height and width, positive"):
            build_report(real, synthetic, image_shape=shape, target="y")
    with pytest.raises(ValueError, match="card is not that"):
        build_report(real, synthetic, model=model, card=other.card_)
    with pytest.raises(InvalidInputError, match="of another table: the real one has no"):
        build_report(real, synthetic, model=other)
    with pytest.raises(InvalidInputError, match="of another table: it was fitted on arrays of 64 columns"):
        build_report(frame, rows, model=model)
    with pytest.raises(InvalidInputError, match="no model with one of the scores"):
        build_report(frame, rows, results=[{"benchmark": "step", "seconds": 1.0}])


def test_a_missing_pixel_is_refused(digits):
    real, synthetic, _ = digits
    real = real.copy()
    real.iloc[3, 5] = np.nan
    with pytest.raises(InvalidInputError, match="a pixel is missing"):
        build_report(real, synthetic, image_shape=(8, 8), target="y")


def test_results_are_lines_of_models_by_the_epsilon_asked_for():
    table = results_table([*RESULTS, RESULTS[0], {"model": "no score"}, "no dict"])
    assert len(table) == len(RESULTS)
    assert list(table.columns) == ["data", "model", "epsilon", "auroc"]
    assert set(table["model"]) == {"P3GMSynthesizer", "P3GMSynthesizer, learned schema", "real data"}
    # repeats are at one place, though their cards differ by a little
    lines = table.groupby(["model", "epsilon"])["auroc"].agg(["mean", "size"])
    assert lines.loc[("P3GMSynthesizer", 0.1)].tolist() == pytest.approx([0.81, 2])
    assert lines.loc[("real data", np.inf)].tolist() == [0.92, 1]
    not_private = {"model": "VAE", "epsilon": "inf", "epsilon_asked": 1.0, "accuracy": 0.5, "dataset": "mnist"}
    assert results_table([not_private]).iloc[0].tolist() == ["mnist", "VAE", np.inf, 0.5]


def test_results_are_drawn_with_their_numbers_beside(page):
    words = " ".join(page.text.split())
    assert "Means on adult" in words
    assert "P3GMSynthesizer 0.1 2 0.81 0.01414" in words
    assert "adult: AUROC against epsilon" in words


def test_the_command_takes_the_files(files, tmp_path, capsys):
    command = ["report", str(files / "real.csv"), str(files / "synthetic.csv"), "--output", str(tmp_path / "r.html")]
    images = [*command, "--image-shape", "8", "8"]
    added = ["--model", str(files / "model.safetensors"), "--results", str(files / "results.jsonl")]
    assert main([*images, "--target", "y", *added, "--max-rows", "150"]) == 0
    out = capsys.readouterr().out
    assert "recall" in out
    assert "do not publish" in out
    words = " ".join(Page((tmp_path / "r.html").read_text(encoding="utf-8")).text.split())
    for heading in ("Images", "Latent space", "Utility against epsilon", "AUROC against epsilon"):
        assert heading in words
    assert "this fit epsilon" in words
    assert main(images) == 2
    assert "name the column of the label" in capsys.readouterr().err
    assert main([*command, "--model", str(files / "card.json")]) == 2
    assert "not a model file" in capsys.readouterr().err
    assert main([*command, "--results", str(files / "real.csv")]) == 2
    assert "no JSON lines" in capsys.readouterr().err
    assert main([*command, "--results", str(files / "nothing.jsonl")]) == 2
    assert "nothing.jsonl" in capsys.readouterr().err
    assert len(read_results(files / "results.jsonl")) == len(RESULTS)


# ---- in a browser ----------------------------------------------------------------------------------------
def _share(shown, colour, tolerance=12):
    return (np.abs(shown - colour).max(axis=2) <= tolerance).mean()


_BORDER = 0x77  # above the figures of the summary


def _tiles(shown):
    """Share of pixels that begin a square of one grey, 4 x 4, neither black nor white: no text has them.

    Squares of the grey of the page's borders do not count.
    """
    grey = np.where(np.ptp(shown, axis=2) == 0, shown[..., 0], 0)
    grey[grey == _BORDER] = 0
    squares = np.lib.stride_tricks.sliding_window_view(grey, (4, 4))
    return ((np.ptp(squares, axis=(2, 3)) == 0) & (squares[..., 0, 0] > 20) & (squares[..., 0, 0] < 200)).mean()


@needs_browser
def test_a_browser_shows_images_latents_and_lines(report, tmp_path):
    path = tmp_path / "report.html"
    report.save(path)
    words = " ".join(Page(chromium(tmp_path, "--dump-dom", path.as_uri())).text.split())
    assert "This page is computed from real rows. Do not publish it" in words
    for display in SECTIONS:
        assert leak_note(display).replace("``", "") in words
    shown = pixels(path, tmp_path)
    path.write_text(re.sub(r"base64,[^\"]*", "base64,AAAA", report.html), encoding="utf-8")
    broken = pixels(path, tmp_path)
    assert _tiles(shown) > 0.001 > 10 * _tiles(broken), "no images"
    for colour, what in (((31, 119, 180), "line of a model"), ((255, 204, 159), "points of rows")):
        assert _share(shown, colour) > 0.000005 > 10 * _share(broken, colour), f"no {what}"
