from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from skdpgen import DPGaussianMixture, P3GMSynthesizer, PrivacyAccountant
from skdpgen.accounting import gaussian_event
from skdpgen.metrics import (
    CorrelationDisplay,
    ImageGridDisplay,
    LatentSpaceDisplay,
    LedgerDisplay,
    MarginalsDisplay,
    PairwiseErrorDisplay,
    TSTRCurveDisplay,
    UtilityCurveDisplay,
    make_tstr_scorer,
    pairwise_tvd,
)
from skdpgen.tabular import Categorical, Numeric, Schema
from skdpgen.testing import seeded_noise

Figure = pytest.importorskip("matplotlib.figure").Figure


@pytest.fixture
def ax():
    """Axes of a figure of their own: no window system, nothing left open."""
    return Figure(figsize=(9, 6)).subplots()


@pytest.fixture
def table(rng):
    size = rng.normal(5.0, 2.0, 300).clip(0, 10)
    frame = pd.DataFrame(
        {
            "size": size,
            "cost $": rng.integers(0, 5, 300),
            "kind": np.where(size > 5, "big", "small").astype(object),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 365, 300), unit="D"),
        }
    )
    frame.loc[::10, "kind"] = None
    return frame


def _drawn(display):
    """The figure is drawn in full: what is broken shows only then."""
    display.figure_.canvas.draw()
    return display


def test_marginals_draw_every_column_with_shares_of_both_samples(table, ax):
    other = table.assign(kind="small")
    display = _drawn(MarginalsDisplay.from_samples(table, other, ax=ax))
    assert display.axes_.shape == (1, 4)
    titles = [panel.get_title() for panel in display.axes_.flat]
    assert [title.splitlines()[0] for title in titles] == ["size", r"cost \$", "kind", "when"]
    assert "missing 10.0% real, 0.0% synthetic" in titles[2]
    kind = display.marginals[2]
    shares = table["kind"].value_counts(normalize=True)
    assert dict(zip(kind.labels, kind.real)) == pytest.approx(shares.to_dict())
    assert kind.synthetic[list(kind.labels).index("small")] == 1
    for marginal in display.marginals:
        assert marginal.real.sum() == pytest.approx(1)
        assert marginal.synthetic.sum() == pytest.approx(1)
    heights = [bar.get_height() for bar in display.axes_[0, 2].patches[: len(kind.labels)]]
    assert heights == pytest.approx(list(kind.real))


def test_values_that_real_rows_lack_have_a_bar_of_their_own(rng, ax):
    real = pd.DataFrame({"letter": rng.choice(list("abcdefghijkl"), 400)})
    marginal = MarginalsDisplay.from_samples(real, real.assign(letter="z"), ax=ax).marginals[0]
    assert marginal.labels[-1] == "not in real"
    assert (marginal.real[-1], marginal.synthetic[-1]) == (0, 1)
    unique = pd.DataFrame({"id": [f"p{k}" for k in range(400)]})
    marginal = MarginalsDisplay.from_samples(unique, unique.assign(id="other"), ax=ax).marginals[0]
    assert marginal.labels[-2:] == ("others", "not in real")
    assert marginal.real[-2:] == pytest.approx([1 - (len(marginal.labels) - 2) / 400, 0])
    assert marginal.synthetic[-2:].tolist() == [0, 1]


def test_marginals_follow_a_schema_and_a_choice_of_columns(ax):
    frame = pd.DataFrame({"digit": [0, 1, 1, 2], "x": [0.0, 1.0, 2.0, 3.0]})
    schema = Schema([Categorical("digit", (2, 1, 0)), Numeric("x", (0, 3))])
    display = MarginalsDisplay.from_samples(frame, frame, schema=schema, columns=["digit"], ax=ax)
    assert display.marginals[0].labels == ("2", "1", "0")
    assert len(display.marginals) == 1
    with pytest.raises(ValueError, match="are not columns"):
        MarginalsDisplay.from_samples(frame, frame, columns=["nothing"])


def test_empty_and_constant_columns_are_drawn(ax):
    frame = pd.DataFrame({"none": [np.nan, np.nan], "one": [3.0, 3.0], "void": pd.Series([None, None], dtype=object)})
    _drawn(MarginalsDisplay.from_samples(frame, frame, ax=ax))


def test_correlations_and_their_difference_are_three_maps(table, rng, ax):
    other = table.assign(kind=rng.permutation(table["kind"].to_numpy()))
    display = _drawn(CorrelationDisplay.from_samples(table, other, ax=ax))
    shown = [panel.images[0].get_array() for panel in display.axes_.flat]
    np.testing.assert_allclose(shown[2], shown[1] - shown[0])
    assert shown[0][0, 2] > 0.5 > abs(shown[1][0, 2])


def test_the_heat_map_is_the_matrix_of_distances(table, ax):
    other = table.sample(frac=0.5, random_state=0)
    display = _drawn(PairwiseErrorDisplay.from_samples(table, other, ax=ax))
    np.testing.assert_array_equal(display.ax_.images[0].get_array(), pairwise_tvd(table, other))
    assert display.figure_ is ax.figure


def test_curves_have_the_areas_of_their_points(table, rng, ax):
    other = table.assign(kind=rng.permutation(table["kind"].to_numpy()))
    display = _drawn(TSTRCurveDisplay.from_samples(table, other, table, target="kind", positive="big", ax=ax))
    real, synthetic = display.curves.values()
    assert real.auroc > 0.95
    assert abs(synthetic.auroc - 0.5) < 0.2
    assert np.trapezoid(real.true_positive_rate, real.false_positive_rate) == pytest.approx(real.auroc)
    assert display.base_rate == pytest.approx((table["kind"] == "big").mean())
    labels = [text.get_text() for text in display.axes_[0, 0].get_legend().get_texts()]
    assert f"real rows: {real.auroc:.3f}" in labels


def test_curves_of_one_class_are_those_of_a_guess(table, ax):
    display = TSTRCurveDisplay.from_samples(
        table, table.assign(kind="big"), table, target="kind", positive="big", ax=ax
    )
    assert display.curves["synthetic rows"].auroc == 0.5


def test_displays_take_a_fitted_estimator(rng, ax):
    X = np.tanh(rng.normal(size=(300, 3)))
    y = (X[:, 0] > 0).astype(int)
    synth = P3GMSynthesizer(50.0, bounds=(-1, 1), l2_bound=1.8, classes=[0, 1]).fit(X, y)
    marginals = MarginalsDisplay.from_estimator(synth, X, y, n_samples=200, random_state=0, bounds=(-1, 1), ax=ax)
    assert [marginal.name for marginal in marginals.marginals] == ["x0", "x1", "x2", "y"]
    curves = TSTRCurveDisplay.from_estimator(
        synth, X[:200], y[:200], test=(X[200:], y[200:]), positive=1, classifier=LogisticRegression(),
        ax=Figure().subplots(),
    )  # fmt: skip
    assert curves.curves["synthetic rows"].auroc > 0.8
    latents = _drawn(LatentSpaceDisplay.from_estimator(synth, X, y, ax=Figure().subplots()))
    assert len(latents.ax_.patches) == 2 * len(latents.mixture.weights)
    ledger = _drawn(LedgerDisplay.from_estimator(synth, ax=Figure().subplots()))
    assert sum(bar.get_width() for bar in ledger.ax_.patches) == pytest.approx(1, abs=1e-3)
    unlabelled = P3GMSynthesizer(50.0, bounds=(-1, 1), l2_bound=1.8).fit(X)
    with pytest.raises(ValueError, match="no labels"):
        MarginalsDisplay.from_estimator(unlabelled, X, y)


def test_synthetic_images_are_drawn_alone_where_there_are_no_real_ones():
    images, labels = np.random.default_rng(0).random((40, 16)), np.repeat([0, 1], 20)
    display = _drawn(ImageGridDisplay.from_samples(None, (images, labels), n_across=5, ax=Figure().subplots()))
    assert display.real is None
    assert [panel.get_title() for panel in display.axes_.ravel()] == ["synthetic"]
    assert display.value_range == (images.min(), images.max())
    both = ImageGridDisplay.from_samples((images, labels), (images, labels), n_across=5, ax=Figure().subplots())
    assert np.array_equal(display.synthetic, both.synthetic)


def test_image_sheets_hold_the_first_images_of_each_class(rng, ax):
    images, labels = rng.random((40, 16)), np.repeat([0, 1], 20)
    display = _drawn(ImageGridDisplay.from_samples((images, labels), (images, labels), n_across=5, ax=ax))
    assert display.real.shape == (2, 5, 4, 4)
    np.testing.assert_array_equal(display.real[1, 2], images[22].reshape(4, 4))
    sheet = display.axes_[0, 0].images[0].get_array()
    assert sheet.shape == (2 * 5 - 1, 5 * 5 - 1)
    np.testing.assert_array_equal(sheet[5:9, 10:14], images[22].reshape(4, 4))
    colour = rng.random((12, 4, 3, 3))
    shown = _drawn(ImageGridDisplay.from_samples(colour, colour, n_rows=2, n_across=6, ax=Figure().subplots()))
    assert shown.real.shape == (2, 6, 4, 3, 3)
    with pytest.raises(ValueError, match="image_shape="):
        ImageGridDisplay.from_samples(images[:, :15], images[:, :15])


def test_ellipses_are_those_of_the_mixture(rng, ax):
    X = rng.normal(size=(400, 2)) @ [[0.3, 0.1], [0.0, 0.05]]
    mixture = DPGaussianMixture(1, epsilon=np.inf, bounds=(-2, 2)).fit(X)
    display = _drawn(LatentSpaceDisplay.from_estimator(mixture, X, ax=ax))
    ellipse = display.ax_.patches[0]
    values = np.linalg.eigvalsh(np.cov(X.T))
    assert ellipse.get_width() == pytest.approx(2 * values[1] ** 0.5, rel=0.05)
    assert ellipse.get_height() == pytest.approx(2 * values[0] ** 0.5, rel=0.05)
    assert np.tan(np.radians(ellipse.get_angle())) == pytest.approx(
        np.tan(0.5 * np.arctan2(2 * np.cov(X.T)[0, 1], np.cov(X.T)[0, 0] - np.cov(X.T)[1, 1])), abs=0.1
    )
    alone = LatentSpaceDisplay.from_estimator(mixture, ax=Figure().subplots())
    assert alone.latent is None
    with pytest.raises(ValueError, match="no released mixture"):
        LatentSpaceDisplay.from_estimator(LogisticRegression())
    with pytest.raises(ValueError, match="dimensions"):
        LatentSpaceDisplay.from_estimator(mixture, dimensions=(0, 5), ax=Figure().subplots())


def test_the_ledger_is_stacked_shares_with_what_is_left(ax):
    books = PrivacyAccountant(2.0)
    books.charge(gaussian_event(10.0), "first")
    books.charge(gaussian_event(10.0, 3), "second")
    display = _drawn(LedgerDisplay.from_accountant(books, ax=ax))
    names, shares = display.shares()
    assert names == ["first", "second"]
    assert shares[1] == pytest.approx(3 * shares[0], rel=0.01)
    assert shares.sum() == pytest.approx(books.epsilon_spent() / 2.0)
    widths = [bar.get_width() for bar in display.ax_.patches]
    assert sum(widths) == pytest.approx(1)
    said = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert [text.rpartition(": ")[2] for text in said[:2]] == ["25.0%", "75.0%"]
    assert display.ax_.get_legend().get_title().get_text() == "share of what was spent"
    assert said[2].endswith("of the budget")
    assert display.ax_.get_xlabel() == "epsilon spent, as part of the budget"
    assert "left" in display.ax_.get_legend().get_texts()[-1].get_text()


def test_books_without_privacy_say_so(rng, ax):
    fitted = DPGaussianMixture(1, epsilon=np.inf, bounds=(-9, 9)).fit(rng.normal(size=(50, 2)))
    assert "not private" in LedgerDisplay.from_estimator(fitted, ax=ax).ax_.get_title()


def test_a_ledger_whose_noise_can_be_repeated_shows_no_shares_of_a_budget(rng):
    ax = Figure().subplots()
    with seeded_noise(quiet=True):
        fitted = DPGaussianMixture(1, epsilon=30.0, bounds=(-9, 9), l2_bound=1.0).fit(rng.normal(size=(50, 2)))
    by_hand = PrivacyAccountant(2.0)
    by_hand.charge(gaussian_event(10.0), "by hand", private=False)
    for report in (fitted.accountant_.report(), fitted.card_.accountant().report(), by_hand.report()):
        ax.clear()
        assert "not private" in LedgerDisplay(report).plot(ax).ax_.get_title()
        assert ax.get_legend() is None


def test_a_card_shows_the_books_of_its_fit(rng, ax):
    fitted = DPGaussianMixture(1, epsilon=30.0, bounds=(-9, 9), l2_bound=1.0).fit(rng.normal(size=(300, 2)))
    one, other = LedgerDisplay.from_estimator(fitted, ax=ax), LedgerDisplay.from_card(fitted.card_, ax=ax)
    assert one.shares()[0] == other.shares()[0]


def test_utility_curves_are_means_over_seeds(ax):
    results = [
        {"model": m, "epsilon": e, "auroc": 0.6 + 0.1 * np.log10(e) + 0.01 * s if np.isfinite(e) else 0.95, "seed": s}
        for m in ("one", "two")
        for e in (0.1, 1.0, 10.0, np.inf)
        for s in (-1, 1)
    ]
    display = _drawn(UtilityCurveDisplay.from_results(results, score="auroc", model="model", ax=ax))
    line = display.ax_.containers[0][0]
    np.testing.assert_allclose(line.get_ydata(), [0.5, 0.6, 0.7])
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert {"one", "two", "one, no privacy"} <= set(labels)
    with pytest.raises(ValueError, match="nothing"):
        UtilityCurveDisplay.from_results(results, score="nothing")


def test_utility_curves_charge_every_fit(rng, ax):
    X = np.tanh(rng.normal(size=(200, 2)))
    y = (X[:, 0] > 0).astype(int)
    books = PrivacyAccountant(1000.0)
    synth = P3GMSynthesizer(bounds=(-1, 1), l2_bound=1.5, classes=[0, 1], accountant=books)
    scoring = make_tstr_scorer(LogisticRegression(), n_samples=200)
    display = UtilityCurveDisplay.from_estimator(
        synth, X, y, epsilons=[30.0, 60.0], scoring=scoring, n_repeats=2, ax=ax
    )
    assert len(books.charges) == 4
    assert list(display.results["epsilon"]) == [30.0, 30.0, 60.0, 60.0]
    assert display.results["score"].between(0, 1).all()
    with pytest.raises(ValueError, match="positive"):
        UtilityCurveDisplay.from_estimator(synth, X, y, epsilons=[0], scoring=scoring)


def test_without_axes_a_figure_of_pyplot_is_made(table):
    import matplotlib.pyplot as plt

    display = PairwiseErrorDisplay(pairwise_tvd(table, table)).plot()
    assert display.ax_.figure is display.figure_
    grid = MarginalsDisplay.from_samples(table, table)
    assert grid.axes_.shape == (1, 4)
    given = Figure().subplots(2, 2)
    assert MarginalsDisplay(grid.marginals).plot(ax=given).axes_.shape == (1, 4)
    with pytest.raises(ValueError, match="needs 4 axes"):
        MarginalsDisplay(grid.marginals).plot(ax=given[0])
    plt.close("all")


def test_matplotlib_is_imported_when_something_is_drawn(table):
    import subprocess
    import sys

    code = "import sys, skdpgen.metrics, skdpgen.report; assert 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
