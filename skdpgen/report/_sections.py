"""The sections of a report, each computed and written as HTML."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .. import metrics
from ..exceptions import InvalidInputError
from ..metrics._display_models import released_mixture
from ..metrics._samples import column_kind, to_numbers
from ._inputs import SCORES, halves, some_rows
from ._page import details, figure, leak, paragraph, section, table

__all__ = ["Sections", "check_images", "images", "latent_space", "mixture_of", "rows_of_model", "utility"]

_WHOSE = ("real", "synthetic")
# Histograms on a page, six rows of four; the table of columns is folded where it is longer.
_PANELS = 24
# Categories of a column beyond which the page says that names and identifiers are expected to differ.
_MANY_VALUES = 100
# Rows of each table for the detection classifiers: more rows change little and take long.
_DETECTION_ROWS = 5_000
_DETECTION_IMAGES = 1_000


class Sections:
    """Computes section by section; the summary, written last, stands first."""

    def __init__(self, real, synthetic, schema, max_rows, max_columns, rng, *, of_images=False):
        self.sizes = len(real), len(synthetic)
        self.real, self.synthetic = (some_rows(frame, max_rows, rng) for frame in (real, synthetic))
        self.schema, self.rng = schema, rng
        self.figures, self.lines, self.said = {}, [], []
        self.halves = halves(self.real, 0.5, rng)
        names = list(real.columns)
        self.paired = names[:max_columns]
        if max(self.sizes) > max_rows:
            self.said.append(
                f"Figures are of random rows: {len(self.real):,} of {self.sizes[0]:,} real and "
                f"{len(self.synthetic):,} of {self.sizes[1]:,} synthetic ones."
            )
        if len(names) > max_columns and not of_images:
            self.said.append(f"Figures over pairs and triples are of the first {max_columns} of {len(names)} columns.")
        if schema is None and not of_images:
            self.said.append("No schema was given: bins reach over the range of the real rows, which is not public.")

    def add(self, key, name, value, best, of_halves=None):
        """Add a figure to the summary."""
        self.figures[key] = float(value)
        self.lines.append((name, float(value), best, np.nan if of_halves is None else float(of_halves)))

    def summary(self):
        """Return the table of the main figures."""
        words = (
            f"{self.sizes[0]:,} real and {self.sizes[1]:,} synthetic rows of {self.real.shape[1]} columns. The last "
            "column holds the same figure for two random halves of the real rows: what chance alone gives (a little "
            "more of it, where they have fewer rows)."
        )
        header = ("figure", "value", "at best", "real halves")
        rows = [(name, value, best, half) for name, value, best, half in self.lines]
        said = [paragraph(line) for line in self.said]
        parts = [paragraph(words), table("Main figures", header, rows), *said, leak(metrics.marginal_tvd)]
        return section("summary", "Summary", *parts)

    def privacy(self, card, verified):
        """Return what the card says, recomputed."""
        if card is None:
            words = (
                "No privacy card was given, so nothing on this page says whether the synthetic rows are private, or "
                "at which epsilon. Figures of likeness are no evidence of privacy."
            )
            return section("privacy", "Privacy", paragraph(words))
        fit, ledger = verified["fit"], verified["ledger"]
        private = "yes" if card["private"] else "NO: without noise, or with noise that can be repeated"
        rows = [
            ("private", private),
            ("model", card["model"]["name"]),
            ("this fit", f"epsilon {fit['epsilon']:.6g} at delta {fit['delta']:.3g}"),
            (
                "ledger",
                f"epsilon {ledger['epsilon']:.6g} of {ledger['budget_epsilon']:g} at delta {ledger['delta']:.3g}",
            ),
            ("unit and relation", f"{card['unit']}, {card['neighboring']}"),
            ("noise", card["noise"]),
            *[("taken for public", line) for line in card["public_assumptions"]],
        ]
        entries = card.accountant().report()
        columns = ["label", "release", "mechanism", "noise_multiplier", "sampling_rate", "count", "share"]
        lines = [tuple(_plain(value) for value in line) for line in entries[columns].itertuples(index=False)]
        picture = figure(
            lambda ax: metrics.LedgerDisplay.from_card(card, ax=ax),
            (7.6, 2.2 + 0.11 * len(entries)),
            "One bar: the share of the privacy budget that each release took. The numbers are in the table below.",
            "The ledger as shares of the budget.",
        )
        return section(
            "privacy",
            "Privacy",
            paragraph("The card is consistent: epsilon was recomputed from its events alone."),
            table("What the card says", ("", "recomputed or stated"), rows),
            picture,
            details("Every release", table("Releases", columns, lines)),
            leak(metrics.LedgerDisplay),
        )

    def columns(self):
        """Return distances and pictures of single columns."""
        distances = metrics.column_distances(self.real, self.synthetic, self.schema)
        half = metrics.one_way_tvd(*self.halves, self.schema)
        self.add("one_way_tvd", "one-way total variation distance, mean", distances["tvd"].mean(), "0", half)
        if distances["wasserstein"].notna().any():
            mean = distances["wasserstein"].mean()
            self.add("wasserstein", "Wasserstein distance of numbers, in ranges, mean", mean, "0")
        order = distances.sort_values("tvd", ascending=False, kind="stable")
        rows = [(str(name), *(_plain(value) for value in line)) for name, line in zip(order.index, order.to_numpy())]
        header = ("column", "kind", "total variation", "Wasserstein", "missing, real", "missing, synthetic")
        listed = table("Columns, the worst first", header, rows)
        chosen = list(order.index[:_PANELS])
        n_rows = -(-len(chosen) // 4)
        worst = f"largest distance: {chosen[0]}, {order['tvd'].iloc[0]:.3f}"
        picture = figure(
            lambda ax: metrics.MarginalsDisplay.from_samples(
                self.real, self.synthetic, schema=self.schema, columns=chosen, ax=ax
            ),
            (11.0, 2.5 * n_rows),
            f"Histograms of {len(chosen)} columns, real rows filled and synthetic ones outlined; {worst}.",
            f"{len(chosen)} columns of {len(order)}, the worst first; real rows filled, synthetic ones outlined.",
        )
        many = [
            str(name)
            for name in self.real.columns
            if self._kind(name) == "category" and self.real[name].nunique() > _MANY_VALUES
        ]
        note = ""
        if many:
            note = paragraph(
                f"With more than {_MANY_VALUES} values: {', '.join(many)}. Values that one table lacks count as "
                "distance, so names and identifiers are near 1, as they should be."
            )
        listed = details(f"All {len(rows)} columns", listed) if len(rows) > _PANELS else listed
        parts = [picture, listed, self._numbers(), note, leak(metrics.column_distances, metrics.MarginalsDisplay)]
        return section("columns", "Columns", *parts)

    def _numbers(self):
        """Moments and ends of each column of numbers: a few rows far out are seen in no histogram."""
        header = ["column"]
        header += [f"{what}, {whose}" for what in ("mean", "deviation", "lowest", "highest") for whose in _WHOSE]
        rows = []
        for name in self.real.columns:
            if self._kind(name) != "number":
                continue
            pair = [to_numbers(frame[name]) for frame in (self.real, self.synthetic)]
            pair = [values[np.isfinite(values)] for values in pair]
            if all(len(values) for values in pair):
                moments = [float(of(values)) for of in (np.mean, np.std, np.min, np.max) for values in pair]
                rows.append((str(name), *moments))
        if not rows:
            return ""
        words = paragraph("The lowest and the highest real value are each somebody's own.")
        listed = table("Columns of numbers", header, rows)
        return details(f"Moments and ends of {len(rows)} columns of numbers", words + listed)

    def pairs(self):
        """Return distances over pairs and triples of columns, and correlations."""
        if len(self.paired) < 2:
            return section("pairs", "Pairs of columns", paragraph("One column has no pairs."))
        parts = [frame[self.paired] for frame in (self.real, self.synthetic)]
        half = [frame[self.paired] for frame in self.halves]
        schema = None if self.schema is None else self.schema.select(self.paired)
        distances = metrics.pairwise_tvd(*parts, schema)
        matrix, above = distances.to_numpy(), np.triu_indices(len(distances), 1)
        means = matrix[above].mean(), metrics.two_way_tvd(*half, schema)
        self.add("two_way_tvd", "two-way total variation distance, mean", means[0], "0", means[1])
        if len(self.paired) > 2:
            options = {"max_tables": 300, "random_state": 0}
            three = [metrics.three_way_tvd(*frames, schema, **options) for frames in (parts, half)]
            name = "three-way total variation distance, mean"
            self.add("three_way_tvd", name, three[0], "0", three[1])
            if len(self.paired) > 13:
                self.said.append("The three-way distance is the mean over 300 triples drawn at random.")
        correlations = [metrics.correlation_difference(*frames, schema) for frames in (parts, half)]
        name = "difference of correlations, mean"
        self.add("correlation_difference", name, correlations[0], "0", correlations[1])
        worst = sorted(zip(matrix[above], *above), reverse=True)[:10]
        rows = [(f"{self.paired[i]} and {self.paired[j]}", float(value)) for value, i, j in worst]
        side = 6.5 if len(self.paired) > 8 else 5.0
        heat = figure(
            lambda ax: metrics.PairwiseErrorDisplay(distances).plot(ax=ax),
            (side * 1.2, side),
            f"Heat map of the distance of each two-way table; the worst is {rows[0][0]}, {rows[0][1]:.3f}.",
            "Total variation distance of each two-way table; on the diagonal, of each column.",
        )
        maps = figure(
            lambda ax: metrics.CorrelationDisplay.from_samples(*parts, schema=schema, ax=ax),
            (11.5, 4.2),
            f"Three maps of correlations: real, synthetic, and their difference, {correlations[0]:.3f} in the mean.",
            "Association of every two columns: Pearson's correlation of numbers, the correlation ratio of a number and "
            "a category, Cramer's V of categories.",
        )
        return section(
            "pairs",
            "Pairs of columns",
            heat,
            table("Worst pairs", ("pair", "total variation"), rows),
            maps,
            leak(metrics.pairwise_tvd, metrics.PairwiseErrorDisplay, metrics.CorrelationDisplay),
        )

    def detection(self, random_state, *, of_images=False):
        """Return how well a classifier distinguishes the two tables."""
        n = min(len(self.real), len(self.synthetic), _DETECTION_IMAGES if of_images else _DETECTION_ROWS)
        if n < 20:
            return section("detection", "Detection", paragraph("Fewer than 20 rows: too few to train a classifier."))
        # at random: a file may be sorted
        sizes = [some_rows(frame, n, self.rng) for frame in (self.real, self.synthetic)]
        auroc = metrics.detection_auroc(*sizes, schema=self.schema, random_state=random_state)
        halves_ = [some_rows(frame, n, self.rng) for frame in self.halves]
        half = metrics.detection_auroc(*halves_, schema=self.schema, random_state=random_state)
        self.add("detection_auroc", "AUROC of detecting synthetic rows", auroc, "0.5", half)
        words = [
            f"On {n:,} rows of each table, a classifier distinguishes synthetic from real rows with a cross-validated "
            "AUROC of "
            f"{auroc:.3f} (0.5 is a guess, 1 is certainty)."
        ]
        shown = [metrics.detection_auroc]
        if not of_images:
            limited = [frame[self.paired] for frame in sizes]
            schema = None if self.schema is None else self.schema.select(self.paired)
            error = metrics.pmse(*limited, schema=schema)
            half = metrics.pmse(*(frame[self.paired] for frame in halves_), schema=schema)
            self.add(
                "pmse_ratio", "pMSE over its expectation for samples of one distribution", error.ratio, "1", half.ratio
            )
            words.append(
                f"pMSE of a logistic regression: {error.pmse:.4f}, {error.ratio:.3g} times its "
                "expectation for two samples of one distribution."
            )
            shown.append(metrics.pmse)
        words.append("Detection says nothing about privacy: noise is detected, too.")
        return section("detection", "Detection", paragraph(" ".join(words)), leak(*shown))

    def use(self, target, positive, test, classifier):
        """Return scores of a model trained on synthetic rows and tested on real ones."""
        words, shown = [], [metrics.tstr_score]
        train = self.real
        if test is None:
            train, test = halves(self.real, 2 / 3, self.rng)
            words.append(
                f"Tested on {len(test):,} of the real rows, drawn at random, which the synthesizer may have been "
                "fitted to; give rows that it has not seen for a test beyond doubt."
            )
        else:
            test = some_rows(test, 20_000, self.rng)
        train, test, synthetic = (frame[frame[target].notna()] for frame in (train, test, self.synthetic))
        if not min(map(len, (train, test, synthetic))):
            return section("use", "Use", paragraph("No rows with a known target in one of the tables."))
        kind = self._kind(target)
        classes = test[target].value_counts()
        if kind == "category" and positive is None and len(classes) == 2:
            positive = classes.index[-1]
            words.append(f"The positive class is {positive!r}, the rarer one.")
        if positive is not None:
            positive = str(positive) if train[target].dtype == object else _number(positive, target)
        if positive is not None:
            display = None

            def draw(ax):
                nonlocal display
                display = metrics.TSTRCurveDisplay.from_samples(
                    train, synthetic, test, target=target, positive=positive, classifier=classifier, ax=ax
                )

            alt = f"ROC and precision-recall curves of predicting {target}, trained on real and on synthetic rows."
            picture = figure(draw, (9.5, 4.3), alt, "Curves on real test rows; areas in the legends and the table.")
            shown.append(metrics.TSTRCurveDisplay)
            rows = [(name, curve.auroc, curve.auprc) for name, curve in display.curves.items()]
            real, made = rows
            self.add("tstr_auroc", f"AUROC for {target}, trained on synthetic rows (real: {real[1]:.3f})", made[1], "1")
            self.add("tstr_auprc", f"AUPRC for {target}, trained on synthetic rows (real: {real[2]:.3f})", made[2], "1")
            header = ("trained on", "AUROC", "AUPRC")
        else:
            models = None if classifier is None else {"model": classifier}
            named = "accuracy"
            if kind != "category":
                named, train, test, synthetic = "R squared", *map(self._float(target), (train, test, synthetic))
            scores = [metrics.tstr_score(rows, test, target=target, classifiers=models) for rows in (train, synthetic)]
            picture, header = "", ("trained on", named)
            rows = list(zip(("real rows", "synthetic rows"), scores))
            words.append(f"{named.capitalize()} of predicting {target}.")
            text = f"{named} for {target}, trained on synthetic rows (real: {scores[0]:.3f})"
            self.add("tstr_score", text, scores[1], "1")
        parts = [paragraph(" ".join(words)) if words else "", picture, table("Scores", header, rows)]
        return section("use", f"Use: predicting {target}", *parts, leak(*shown))

    def notes(self):
        """Return what the page does not show."""
        words = (
            "Likeness is not privacy: a copy of the real rows has the best figures on this page. The "
            "people behind the rows are protected by the noise that the card accounts for. If anything is chosen by "
            "these figures "
            "(a model, an epsilon, whether to publish), that choice depends on the real rows without protection.",
        )
        return section("notes", "What this page does not show", *map(paragraph, words))

    def _kind(self, name):
        return column_kind(self.real[name], None if self.schema is None else self.schema[name])

    @staticmethod
    def _float(target):
        return lambda frame: frame.assign(**{str(target): to_numbers(frame[target])})


def _number(value, name):
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"the target {name!r} holds numbers: its positive class must be one") from None


def _plain(value):
    if isinstance(value, (np.floating, float)):
        return float(value)
    if isinstance(value, (np.integer, int)) and not isinstance(value, bool):
        return int(value)
    return "" if value is None or value is pd.NA else str(value)


# ---- images, latent space, results ---------------------------------------------------------------------------------
_CLASSES = 10
_DRAWN = 5_000
_NEIGHBOURS = 1_000
_PRDC = {
    "precision": "share of synthetic images near real ones",
    "recall": "share of real images near synthetic ones",
    "density": "real neighbourhoods about a synthetic image, over their expectation",
    "coverage": "share of real images with a synthetic one in their neighbourhood",
}


# ---- images ----------------------------------------------------------------------------------------------
def check_images(real, image_shape, target):
    """Return the names of the pixels, in order; the columns of a table must be those of an image, and its label."""
    sides = tuple(image_shape)
    if len(sides) not in (2, 3) or any(side != int(side) or side < 1 for side in sides):
        raise ValueError(f"the shape of an image is height and width, positive; got {' '.join(map(str, sides))}")
    pixels = [name for name in real.columns if name != target]
    n_pixels = int(np.prod(sides))
    if len(pixels) != n_pixels:
        shape = " x ".join(map(str, sides))
        hint = ": name the column of the label as the target" if len(pixels) == n_pixels + 1 else ""
        raise InvalidInputError(
            f"images of {shape} have {n_pixels} pixels, and the table {len(pixels)} columns"
            f"{'' if target is None else ' beside the target'}{hint}"
        )
    return pixels


def images(writer, pixels, image_shape, target):
    """Return real beside synthetic images, and how near the ones are to the others."""
    frames = writer.real, writer.synthetic
    stacks = [_pixels(frame, pixels) for frame in frames]
    declared = None if writer.schema is None else [getattr(writer.schema[name], "bounds", None) for name in pixels]
    bounds = None
    if declared is not None and None not in declared:
        bounds = min(float(low) for low, _ in declared), max(float(high) for _, high in declared)
    labels = [None, None] if target is None else [frame[target].fillna("missing").astype(str) for frame in frames]
    n_classes = 10 if target is None else min(_CLASSES, labels[0].nunique())
    pairs = [stack if label is None else (stack, label.to_numpy()) for stack, label in zip(stacks, labels)]
    which = "The first images" if target is None else f"The first images of each {target}"
    if target is not None and labels[0].nunique() > _CLASSES:
        which += f", of the first {_CLASSES} of {labels[0].nunique()}"

    def draw(ax):
        shape = tuple(image_shape)
        metrics.ImageGridDisplay.from_samples(*pairs, image_shape=shape, n_rows=n_classes, bounds=bounds, ax=ax)
        ax.figure.get_layout_engine().set(wspace=0.06)  # or both grids look like one

    picture = figure(
        draw,
        (11.0, 0.6 + 0.53 * n_classes * image_shape[0] / image_shape[1]),
        f"Two grids of images: real ones on the left, synthetic ones on the right, {n_classes} rows of 10.",
        f"{which}: real on the left, synthetic on the right.",
    )
    words = [
        "The rows are images. Left out are the figures and pictures of single columns, of their pairs and triples, "
        "and pMSE: of pixels they say little."
    ]
    shown = [metrics.ImageGridDisplay]
    first, second = (_pixels(half, pixels) for half in writer.halves)
    n = min(len(first), len(second), len(stacks[1]), _NEIGHBOURS)
    if n > 10:
        parts = [writer.rng.permutation(part)[:n] for part in (stacks[0], stacks[1], first, second)]
        near, half = metrics.prdc(*parts[:2]), metrics.prdc(*parts[2:])
        for key, what in _PRDC.items():
            writer.add(key, f"{key}: {what}", getattr(near, key), "1", getattr(half, key))
        words.append(
            f"Precision, recall, density and coverage, in the summary, are of the pixels of {n:,} images each."
        )
        shown.append(metrics.prdc)
    return section("images", "Images", *map(paragraph, words), picture, leak(*shown))


def _pixels(frame, names):
    values = np.column_stack([to_numbers(frame[name]) for name in names])
    if not np.isfinite(values).all():
        raise InvalidInputError("the rows are to be images, and a pixel is missing or infinite in one of the tables")
    return values


# ---- the latent space ------------------------------------------------------------------------------------
def mixture_of(model):
    """Return the released mixture of a model, or None where there is none of two dimensions to draw."""
    try:
        mixture = released_mixture(model)
    except ValueError:
        return None
    return mixture if mixture.means.shape[1] >= 2 and hasattr(model, "transform") else None


def rows_of_model(model, real, target):
    """Return the columns of a frame of real rows that a model was fitted on, in its order and container.

    Raises
    ------
    InvalidInputError
        The model was fitted on other columns.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        if missing := [str(name) for name in names if name not in real.columns]:
            raise InvalidInputError(f"the model is of another table: the real one has no {missing}")
        return real[list(names)]
    # rows of an array are written with their label last, as y
    columns = [name for name in real.columns if name != ("y" if target is None else target)]
    columns = columns if len(columns) == model.n_features_in_ else list(real.columns)
    if len(columns) != model.n_features_in_:
        raise InvalidInputError(
            f"the model is of another table: it was fitted on arrays of {model.n_features_in_} columns"
        )
    return np.column_stack([to_numbers(real[name]) for name in columns])


def latent_space(model, rows, labels, rng):
    """Return the latents of real rows with the released mixture; the mixture alone where the rows do not fit."""
    name, mixture = type(model).__name__, mixture_of(model)
    if mixture is None:
        words = f"{name} has released no mixture of two latent dimensions, so there is nothing to draw."
        return section("latent", "Latent space", paragraph(words))
    n_rows = len(rows)
    chosen = np.sort(rng.permutation(n_rows)[:_DRAWN])
    rows = rows.iloc[chosen] if hasattr(rows, "iloc") else rows[chosen]
    labels = None if labels is None else labels[chosen]
    try:
        latent = np.asarray(model.transform(rows), dtype=float)
        which = f"All {n_rows:,} real rows" if len(latent) == n_rows else f"{len(latent):,} of {n_rows:,} real rows"
        words = f"{which}, where the model's encoder puts them: each point is one."
    except (ValueError, TypeError):  # the message may hold a cell
        latent, labels = None, None
        words = "The real rows cannot be encoded (a missing value, or one that was not declared): the release alone."
    n = np.count_nonzero(np.asarray(mixture.weights) > 0)
    picture = figure(
        lambda ax: metrics.LatentSpaceDisplay.from_samples(latent, mixture, labels, ax=ax),
        (7.5, 5.5),
        f"Latent space in two dimensions: {'no' if latent is None else len(latent)} points of real rows, and ellipses "
        f"of the {n} Gaussians that were released.",
        f"The first two of {mixture.means.shape[1]} latent dimensions; ellipses at one and two standard deviations of "
        f"the {n} released Gaussians, the heavier the wider the line.",
    )
    return section("latent", "Latent space", paragraph(words), picture, leak(metrics.LatentSpaceDisplay))


# ---- utility against epsilon -----------------------------------------------------------------------------
def utility(results):
    """Return a picture and a table of each set of data in results of benchmarks."""
    parts = [
        paragraph(
            "Results of skdpgen bench, which are not of the tables above: means and standard deviations over the fits "
            "of a model at an epsilon; broken lines are without privacy."
        )
    ]
    for data, rows in results.groupby("data", sort=False):
        scores = [score for score in SCORES if score in rows and rows[score].notna().any()]
        score, drawn = scores[0], rows[rows[scores[0]].notna()]
        n_lines = drawn["model"].nunique()
        values = drawn.loc[np.isfinite(drawn["epsilon"]), "epsilon"]
        span = f"epsilon {values.min():g} to {values.max():g}" if len(values) else "no epsilon"

        def draw(ax, drawn=drawn, score=score):
            display = metrics.UtilityCurveDisplay.from_results(drawn, score=score, model="model", ax=ax)
            display.ax_.set_ylabel(SCORES[score])
            # beside the lines: there may be many
            display.ax_.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)

        caption = f"{data}: {SCORES[score]} against epsilon."
        alt = f"{SCORES[score]} against epsilon on {data}, {n_lines} lines, {span}; the table below has the numbers."
        parts.append(figure(draw, (9.5, max(3.6, 0.8 + 0.19 * n_lines)), alt, caption))
        lines = [
            (model, float(epsilon), len(fits), *(float(fits[name].mean()) for name in scores), float(fits[score].std()))
            for model, line in rows.groupby("model", sort=False)
            for epsilon, fits in line.groupby("epsilon")
        ]
        header = ("model", "epsilon", "fits", *(SCORES[name] for name in scores), f"deviation of {SCORES[score]}")
        parts.append(table(f"Means on {data}", header, lines))
    return section("utility", "Utility against epsilon", *parts, leak(metrics.UtilityCurveDisplay))
