"""The sections of a report, each computed and written as HTML, in the order of the questions of a data holder."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .. import metrics
from ..metrics._samples import column_kind, to_numbers
from ._page import details, figure, leak, paragraph, section, table
from ._rows import halves, some_rows

__all__ = ["Sections"]

_PANELS = 24
_LONG = 25
_WHOSE = ("real", "synthetic")
_MANY_VALUES = 100
# Rows of each table that classifiers are to tell apart: more change little and take long.
_TOLD_APART = 5_000
_IMAGES_TOLD_APART = 1_000


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
        """Keep a figure for the summary."""
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
                "books",
                f"epsilon {ledger['epsilon']:.6g} of {ledger['budget_epsilon']:g} at delta {ledger['delta']:.3g}",
            ),
            ("unit and relation", f"{card['unit']}, {card['neighboring']}"),
            ("noise", card["noise"]),
            *[("taken for public", line) for line in card["public_assumptions"]],
        ]
        books = card.accountant().report()
        columns = ["label", "release", "mechanism", "noise_multiplier", "sampling_rate", "count", "share"]
        lines = [tuple(_plain(value) for value in line) for line in books[columns].itertuples(index=False)]
        picture = figure(
            lambda ax: metrics.LedgerDisplay.from_card(card, ax=ax),
            (7.6, 2.2 + 0.11 * len(books)),
            "One bar: the share of the privacy budget that each release took. The numbers are in the table below.",
            "The books as shares of the budget.",
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
        listed = details(f"All {len(rows)} columns", listed) if len(rows) > _LONG else listed
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
                told = [float(of(values)) for of in (np.mean, np.std, np.min, np.max) for values in pair]
                rows.append((str(name), *told))
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
        """Return how well a classifier tells the two apart."""
        n = min(len(self.real), len(self.synthetic), _IMAGES_TOLD_APART if of_images else _TOLD_APART)
        if n < 20:
            return section("detection", "Detection", paragraph("Fewer than 20 rows: too few to tell apart."))
        # at random: a file may be sorted
        sizes = [some_rows(frame, n, self.rng) for frame in (self.real, self.synthetic)]
        auroc = metrics.detection_auroc(*sizes, schema=self.schema, random_state=random_state)
        halves_ = [some_rows(frame, n, self.rng) for frame in self.halves]
        half = metrics.detection_auroc(*halves_, schema=self.schema, random_state=random_state)
        self.add("detection_auroc", "AUROC of telling synthetic rows from real ones", auroc, "0.5", half)
        words = [
            f"Of {n:,} rows each, a classifier told synthetic ones from real ones it had not seen with an AUROC of "
            f"{auroc:.3f} (0.5 is a guess, 1 is certainty)."
        ]
        shown = [metrics.detection_auroc]
        if not of_images:
            limited = [frame[self.paired] for frame in sizes]
            schema = None if self.schema is None else self.schema.select(self.paired)
            error = metrics.pmse(*limited, schema=schema)
            half = metrics.pmse(*(frame[self.paired] for frame in halves_), schema=schema)
            self.add("pmse_ratio", "pMSE over its expectation for draws of one law", error.ratio, "1", half.ratio)
            words.append(
                f"pMSE of a logistic regression: {error.pmse:.4f}, {error.ratio:.3g} times what two samples of one law "
                "give."
            )
            shown.append(metrics.pmse)
        words.append("Being told apart says nothing about privacy: noise is told, too.")
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
        """Return what the page cannot tell."""
        words = (
            "Likeness is not privacy: a copy of the real rows has the best figures on this page. What protects the "
            "people behind the rows is the noise that the card accounts for. If anything is chosen by these figures "
            "(a model, an epsilon, whether to publish), that choice has seen the real rows, unpaid.",
        )
        return section("notes", "What this page cannot tell", *map(paragraph, words))

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
