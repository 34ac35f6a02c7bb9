"""The sections of a report, each computed and written as HTML."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .. import metrics
from ..exceptions import InvalidInputError
from ..metrics._display_models import released_mixture
from ..metrics._display_rows import REAL, SYNTHETIC
from ..metrics._distances import associations, column_kinds
from ..metrics._quality import score_of
from ..metrics._samples import column_kind, to_numbers
from ..metrics._unseen import split_cells, unseen, value_cells
from ._card_words import filtered, shortened
from ._columns import columns_section, scored, verdict
from ._inputs import SCORES, halves, some_places, some_rows
from ._page import bullets, details, figure, leak, paragraph, section, table, tiles
from ._units import units_section
from ._use import of_classes, of_numbers
from ._values import combinations_section, lost_section

# Real rows that are searched for a combination of values; more take long, and change little.
_SEARCHED_ROWS = 200_000
# Rows of each table for the detection classifiers: more rows change little and take long.
_DETECTION_ROWS = 5_000
# Most values of a target of whole numbers that are classes.
_MOST_CLASSES = 10
_DETECTION_IMAGES = 1_000
# Largest correlation of the real rows, and agreement of two halves of them, from which the strength of correlations is
# shown: below, there is no correlation to be lost.
_CORRELATED, _STEADY = 0.1, 0.5


class Sections:
    """Computes section by section; the summary, written last, stands first."""

    def __init__(
        self, real, synthetic, schema, max_rows, max_columns, rng, *, of_images=False, target=None, units=None
    ):
        self.whole, self.sizes = (real, synthetic), (len(real), len(synthetic))
        places = some_places(len(real), max_rows, rng)
        self.real = real if places is None else real.iloc[places].reset_index(drop=True)
        self.synthetic, self.units = some_rows(synthetic, max_rows, rng), units
        # rows of one unit are in one half, because they may be similar
        self.ids = None if units is None else units.real if places is None else units.real.iloc[places]
        self.schema, self.rng = schema, rng
        self.figures, self.lines, self.said = {}, [], []
        self.tiles, self.notable, self.scores = [], [], None
        self.halves = halves(self.real, 0.5, rng, self.ids)
        names = list(real.columns)
        self.paired = names if of_images else _some_names(names, target, max_columns)
        if max(self.sizes) > max_rows:
            self.said.append(
                f"Figures are of random rows: {len(self.real):,} of {self.sizes[0]:,} real and "
                f"{len(self.synthetic):,} of {self.sizes[1]:,} synthetic ones."
            )
        if len(names) > max_columns and not of_images:
            chosen = "drawn at random" if target is None else f"{target} and {max_columns - 1} drawn at random"
            self.said.append(f"Figures over pairs and triples are of {max_columns} of {len(names)} columns: {chosen}.")
        if schema is None and not of_images:
            self.said.append("No schema was given: bins reach over the range of the real rows, which is not public.")

    def add(self, key, name, value, best, of_halves=None, sdmetrics=""):
        """Add a figure to the summary; `sdmetrics` names the same measure there."""
        self.figures[key] = float(value)
        half = np.nan if of_halves is None else float(of_halves)
        self.lines.append((name, float(value), best, half, sdmetrics))

    def summary(self):
        """Return the main figures: at a glance, in sentences, in a table."""
        words = (
            f"{self.sizes[0]:,} real and {self.sizes[1]:,} synthetic rows of {self.real.shape[1]} columns. Beside each "
            "figure is the same figure for two random halves of the real rows: what chance alone gives (a little more "
            "of it, where they have fewer rows). Read all of the figures: a score of pairs near that of the halves can "
            "hide correlations that are lost, because most pairs have none."
        )
        header = ("figure", "value", "at best", "real halves", "in SDMetrics")
        said = [paragraph(line) for line in self.said]
        notable = bullets(self.notable) if self.notable else ""
        listed = table("Main figures", header, self.lines)
        parts = [paragraph(words), tiles(self.tiles), notable, listed, *said, leak(metrics.marginal_tvd)]
        return section("summary", "Summary", *parts)

    def quality(self):
        """Measure columns and pairs: the headline scores, which the sections on them show in detail."""
        self.scores = scored(self.real, self.synthetic, self.whole, self.halves, self.schema)
        frames, half = self._paired()
        schema = self._paired_schema()
        pairs = [metrics.pair_scores(*both, schema) for both in (frames, half)]
        columns = [self.scores, self.scores.drop(columns="score").rename(columns={"half": "score"})]
        made, real = (score_of(*parts) for parts in zip(columns, pairs))
        self.pair_scores = pairs[0]
        named = {
            "overall": ("overall score: mean of the next two", "QualityReport, over all pairs"),
            "columns": ("score of columns, mean", "Column Shapes: KSComplement, TVComplement"),
            "pairs": (
                "score of pairs, mean",
                "Column Pair Trends, over all pairs: CorrelationSimilarity, ContingencySimilarity",
            ),
        }
        for key, (name, same) in named.items():
            value, other = getattr(made, key), getattr(real, key)
            if np.isnan(value):
                continue
            self.add("quality_score" if key == "overall" else f"{key[:-1]}_score", name, value, "1", other, same)
            self.tile(f"{key} score", value, other, verdict(value, other))
        worst = self.scores[[verdict(*pair) == "far" for pair in zip(self.scores["score"], self.scores["half"])]]
        worst = worst["score"].sort_values(kind="stable")
        if len(worst):
            named = [f"{name} ({score:.3f})" for name, score in worst.head(5).items()]
            more = f" and {len(worst) - 5:,} more" if len(worst) > 5 else ""
            self.notable.append(f"Columns far from the real rows, the worst first: {', '.join(named)}{more}.")

    def tile(self, name, value, half, css="", *, guess=None):
        """Put a figure among those at a glance."""
        note = f"real halves {_three(half)}" if guess is None else guess
        self.tiles.append((name, _three(value), note, css))

    def _paired(self):
        """Return (real, synthetic) and the real halves, of the columns whose pairs are measured."""
        return [[frame[self.paired] for frame in frames] for frames in ((self.real, self.synthetic), self.halves)]

    def _paired_schema(self):
        return None if self.schema is None else self.schema.select(self.paired)

    def privacy(self, card, verified):
        """Return what the card says, recomputed."""
        if card is None:
            words = (
                "No privacy card was given, so nothing on this page says whether the synthetic rows are private, or "
                "at which epsilon. Figures of likeness are no evidence of privacy."
            )
            return section("privacy", "Privacy", paragraph(words))
        fit, ledger = verified["fit"], verified["ledger"]
        fixed = ledger["epsilon_if_fixed_in_advance"]
        private = "yes" if card["private"] else "NO: without noise, or with noise that can be repeated"
        rows = [
            ("private", private),
            ("model", card["model"]["name"]),
            ("this fit", f"epsilon {fit['epsilon']:.6g} at delta {fit['delta']:.3g}"),
            (
                "ledger",
                f"epsilon {ledger['epsilon']:.6g}{' (the value of the privacy filter)' if filtered(card) else ''} of "
                f"{ledger['budget_epsilon']:g} at delta {ledger['delta']:.3g}",
            ),
            *([("rule of the ledger", ledger["rule"])] if len(card["ledger"]["charges"]) > 1 else []),
            *([("the same charges, fixed in advance", f"epsilon {fixed:.6g}")] if filtered(card) else []),
            ("unit and relation", f"{card['unit']}, {card['neighboring']}"),
            ("noise", card["noise"]),
            *[("taken for public", shortened(line)) for line in card["public_assumptions"]],
        ]
        entries = card.accountant().report()
        columns = ["label", "release", "mechanism", "noise_multiplier", "sampling_rate", "count", "share"]
        lines = [tuple(_plain(value) for value in line) for line in entries[columns].itertuples(index=False)]
        picture = figure(
            lambda ax: metrics.LedgerDisplay.from_card(card, ax=ax),
            (7.6, 2.2 + 0.11 * len(entries)),
            "One bar: the epsilon spent, divided by the share of each release of what was spent. The numbers are in "
            "the table below.",
            "The epsilon spent, divided by the share of each release of what was spent.",
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
        """Return scores, distances and pictures of single columns."""
        half = metrics.one_way_tvd(*self.halves, self.schema)
        self.add("one_way_tvd", "one-way total variation distance, mean", self.scores["tvd"].mean(), "0", half)
        if self.scores["wasserstein"].notna().any():
            mean = self.scores["wasserstein"].mean()
            self.add("wasserstein", "Wasserstein distance of numbers, in ranges, mean", mean, "0")
        return columns_section(self.real, self.synthetic, self.schema, self.scores, self.lost, self.whole[0])

    def lost_categories(self):
        """Return the categories of the real rows that no synthetic row has."""
        self.lost = metrics.lost_categories(*self.whole, self.schema)
        kinds = self.scores["kind"]
        if (kinds == "category").any():
            covered = self.scores.loc[kinds == "category", "coverage"].mean()
            name = "share of the categories that are kept, mean over columns"
            self.add("category_coverage", name, covered, "1", sdmetrics="CategoryCoverage")
        if len(self.lost):
            first = ", ".join(
                f"{name} = {value[:40]}" for name, value in self.lost.iloc[:3, :2].itertuples(index=False)
            )
            self.notable.append(f"Categories lost: {len(self.lost):,}, the commonest {first}.")
        return lost_section(self.lost, int((kinds == "category").sum()), self.sizes)

    def combinations(self):
        """Return the pairs of values that synthetic rows have and no real row."""
        if len(self.paired) < 2:
            return combinations_section(None, None, 1, self.sizes)
        schema = self._paired_schema()
        rng = np.random.default_rng(0)  # a generator for this section: the draws of others stay as they are
        searched = some_rows(self.whole[0][self.paired], _SEARCHED_ROWS, rng)
        cells = value_cells(searched, self.synthetic[self.paired], schema)
        found, half = unseen(cells), unseen(split_cells(cells, rng.random(len(searched)) < 0.5))
        name = "share of rows with a pair of values that no real row has"
        self.add("unseen_pairs", name, found.share, "0", half.share)
        often = found.pairs[found.pairs["expected"] >= 10]
        if len(often):
            first = often.iloc[0]
            self.notable.append(
                f"Combinations that no real row has: {found.share:.1%} of the synthetic rows hold one (real halves "
                f"{half.share:.1%}), most often {first['first']} = {first['value']} with {first['second']} = "
                f"{first['other']}."
            )
        return combinations_section(found, half, len(self.paired), (len(searched), len(self.synthetic)))

    def units_of_rows(self):
        """Return how many rows units have, and how similar they are."""
        return units_section(self, self.units, {name: self._kind(name) for name in self.paired})

    def pairs(self):
        """Return distances over pairs and triples of columns, and correlations."""
        title = "Pairs and triples of columns"
        if len(self.paired) < 2:
            return section("pairs", title, paragraph("One column has no pairs."))
        (parts, half), schema = self._paired(), self._paired_schema()
        distances, chance = (metrics.pairwise_tvd(*frames, schema) for frames in (parts, half))
        bars = self._ways(parts, half, schema, distances, chance)
        kinds = column_kinds(parts[0], schema)
        maps = self._correlations(parts, half, kinds)
        rows = self._furthest(distances, chance, kinds)
        side = 5.0 if len(self.paired) <= 8 else min(6.5 + max(0, len(self.paired) - 30) * 0.1, 9.5)
        heat = figure(
            lambda ax: metrics.PairwiseErrorDisplay(distances).plot(ax=ax),
            (side * 1.2, side),
            f"Heat map of the distance of each two-way table; the worst is {rows[0][0]}, {rows[0][1]:.3f}.",
            "Total variation distance of each two-way table; on the diagonal, of each column.",
        )
        header = ("pair", "total variation", "real halves", "score", "measure")
        listed = table("Pairs, the furthest above chance first", header, rows)
        leaks = (
            metrics.pairwise_tvd, metrics.PairwiseErrorDisplay, metrics.CorrelationDisplay, metrics.pair_scores,
        )  # fmt: skip
        return section("pairs", title, bars, heat, listed, maps, leak(*leaks))

    def _ways(self, parts, half, schema, distances, chance):
        """Add the distances of tables of two and of three columns; return a picture of them beside those of one."""
        means = [_mean_of_pairs(frame) for frame in (distances, chance)]
        self.add("two_way_tvd", "two-way total variation distance, mean", means[0], "0", means[1])
        ways = [(self.figures["one_way_tvd"], self.lines[list(self.figures).index("one_way_tvd")][3]), tuple(means)]
        sampled = ""
        if len(self.paired) > 2:
            options = {"max_tables": 300, "random_state": 0}
            three = [metrics.three_way_tvd(*frames, schema, **options) for frames in (parts, half)]
            name = "three-way total variation distance, mean"
            self.add("three_way_tvd", name, three[0], "0", three[1])
            self.tile("three-way distance", three[0], three[1], _distance_verdict(*three))
            ways.append(tuple(three))
            if len(self.paired) > 13:
                sampled = " The three-way distance is the mean over 300 triples drawn at random."
                self.said.append(sampled.strip())
        return figure(
            lambda ax: _draw_ways(ax, ways),
            (6.5, 0.9 + 0.5 * len(ways)),
            "Bars of the mean total variation distance of tables of one, two and three columns: "
            + "; ".join(f"{value:.3f}, real halves {half_:.3f}" for value, half_ in ways),
            f"Mean total variation distance of tables of one, two and three columns.{sampled}",
        )

    def _correlations(self, parts, half, kinds):
        """Add the difference of correlations; return a picture of them."""
        matrix = [associations(frame, kinds) for frame in (*parts, *half)]
        differences = [_mean_of_pairs(np.abs(one - other)) for one, other in (matrix[:2], matrix[2:])]
        name = "difference of correlations, mean"
        self.add("correlation_difference", name, differences[0], "0", differences[1])
        strength, of_halves = _strength_kept(*matrix[:2]), _strength_kept(*matrix[2:])
        largest = np.nanmax(np.abs(_of_pairs(matrix[0])), initial=0.0)
        if largest > _CORRELATED and of_halves > _STEADY:
            self.add("correlation_strength", "strength of correlations kept", strength, "1", of_halves)
            self.tile("correlations kept", strength, of_halves, verdict(min(strength, 1.0), of_halves))
        return figure(
            lambda ax: metrics.CorrelationDisplay(*matrix[:2]).plot(ax=ax),
            (11.5, 4.4),
            f"Three maps of correlations: real, synthetic, and their difference, {differences[0]:.3f} in the mean.",
            "Association of every two columns: Pearson's correlation of numbers, the correlation ratio of a number and "
            "a category, Cramer's V of categories.",
        )

    def _furthest(self, distances, chance, kinds):
        """Return lines on the pairs of columns whose distance is the furthest above chance."""
        matrices = [frame.to_numpy() for frame in (distances, chance)]
        above, rows = np.triu_indices(len(distances), 1), []
        for k in np.argsort(-(matrices[0] - matrices[1])[above], kind="stable")[:15]:
            i, j = (int(at[k]) for at in above)
            numbers = "category" not in (kinds[self.paired[i]], kinds[self.paired[j]])
            measure = "CorrelationSimilarity" if numbers else "ContingencySimilarity"
            found = [float(matrix[i, j]) for matrix in (*matrices, self.pair_scores.to_numpy())]
            rows.append((f"{self.paired[i]} and {self.paired[j]}", *found, measure))
        return rows

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
        self.tile("detection AUROC", auroc, half)
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
            train, test = halves(self.real, 2 / 3, self.rng, self.ids)
            words.append(
                f"Tested on {len(test):,} of the real rows, drawn at random, which the synthesizer may have been "
                "fitted to; give rows that it has not seen for a test beyond doubt."
            )
        else:
            test = some_rows(test, 20_000, self.rng)
        train, test, synthetic = (frame[frame[target].notna()] for frame in (train, test, self.synthetic))
        if not min(map(len, (train, test, synthetic))):
            return section("use", "Use", paragraph("No rows with a known target in one of the tables."))
        kind = self._kind_of_target(target, train)
        classes = test[target].value_counts()
        if kind == "category" and positive is None and len(classes) == 2:
            positive = classes.index[-1]
            words.append(f"The positive class is {positive!r}, the rarer one.")
        if positive is not None:
            positive = str(positive) if train[target].dtype == object else _number(positive, target)
        tables = train, synthetic, test
        if positive is not None:
            picture, listed = self._curves(*tables, target, positive, classifier)
            shown.append(metrics.TSTRCurveDisplay)
        else:
            picture, (named, listed) = "", self._score(kind, *tables, target, classifier)
            words.append(f"{named.capitalize()} of predicting {target}, beside what needs no model.")
        parts = [paragraph(" ".join(words)) if words else "", picture, *listed]
        return section("use", f"Use: predicting {target}", *parts, leak(*shown))

    def _curves(self, train, synthetic, test, target, positive, classifier):
        """Add the areas under the curves of one class; return a picture of the curves, and a table."""
        display = None

        def draw(ax):
            nonlocal display
            display = metrics.TSTRCurveDisplay.from_samples(
                train, synthetic, test, target=target, positive=positive, classifier=classifier, ax=ax
            )

        alt = f"ROC and precision-recall curves of predicting {target}, trained on real and on synthetic rows."
        picture = figure(draw, (9.5, 4.3), alt, "Curves on real test rows; areas in the legends and the table.")
        rows = [(name, curve.auroc, curve.auprc) for name, curve in display.curves.items()]
        real, made = rows
        rows.append(("no model: a guess", 0.5, display.base_rate))
        self.add("tstr_auroc", f"AUROC for {target}, trained on synthetic rows (real: {real[1]:.3f})", made[1], "1")
        self.add("tstr_auprc", f"AUPRC for {target}, trained on synthetic rows (real: {real[2]:.3f})", made[2], "1")
        self.tile(f"AUROC for {target}", made[1], None, guess=f"trained on real {_three(real[1])}, a guess 0.500")
        return picture, [table("Scores", ("trained on", "AUROC", "AUPRC"), rows)]

    def _score(self, kind, train, synthetic, test, target, classifier):
        """Add the score of all classes, or of numbers; return its name, and tables."""
        tables = train, synthetic, test
        if kind == "category":
            named, guess, found = "accuracy", "commonest class", of_classes(*tables, target, classifier)
        else:
            guess = "mean"
            found = of_numbers(*map(self._float(target), tables), target, classifier)
            of = f" (mean of {len(found.each)} regressors)" if len(found.each) > 1 else ""
            named = f"R squared{of}"
            self.add("tstr_mae", _trained_on(f"mean absolute error{of}", target, found, 1), found.synthetic[1], "0")
            self.figures["tstr_mae_baseline"] = found.without[1]
        self.add("tstr_score", _trained_on(named, target, found, 0), found.synthetic[0], "1")
        self.figures["tstr_baseline"] = found.without[0]
        for name, (score, error) in found.each.items():
            self.figures |= {f"tstr_score_{name}": score, f"tstr_mae_{name}": error}
        note = f"trained on real {_three(found.real[0])}, {guess} {_three(found.without[0])}"
        self.tile(f"{named.partition(' (')[0]} for {target}", found.synthetic[0], None, guess=note)
        return named, found.tables

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

    def _kind_of_target(self, name, rows):
        """Whole numbers of few values are classes, as in a fit, unless bounds declare a quantity."""
        kind, declared = self._kind(name), None if self.schema is None else self.schema[name]
        if kind == "number" and getattr(declared, "bounds", None) is None:
            values = pd.unique(rows[name])
            if len(values) <= _MOST_CLASSES and all(float(value).is_integer() for value in values):
                return "category"
        return kind

    @staticmethod
    def _float(target):
        def as_numbers(frame):
            frame = frame.copy(deep=False)
            frame[target] = to_numbers(frame[target])  # `assign` takes text alone for a name
            return frame

        return as_numbers


def _some_names(names, target, most):
    """Return at most so many names in order: the target, and others drawn at random, the same ones each time."""
    if len(names) <= most:
        return names
    others = [k for k, name in enumerate(names) if name != target]
    n_drawn = most - (len(names) - len(others))
    drawn = set(np.random.default_rng(0).choice(others, n_drawn, replace=False).tolist())
    return [name for k, name in enumerate(names) if name == target or k in drawn]


def _three(value):
    return f"{round(value, 3) + 0.0:.3f}"  # no minus before zero


def _strength_kept(real, synthetic):
    """Slope of the associations of synthetic rows over those of real ones: 1 where they are as strong, 0 if lost.

    Strong ones count most, by their squares. NaN where the real rows have none.
    """
    one, other = (np.nan_to_num(_of_pairs(matrix)) for matrix in (real, synthetic))
    total = one @ one
    return float(one @ other / total) if total > 0 else np.nan


def _mean_of_pairs(matrix):
    """Mean over the pairs of different columns of a symmetric frame."""
    return float(_of_pairs(matrix).mean())


def _of_pairs(matrix):
    """The values of a symmetric frame for the pairs of different columns, each pair once."""
    return matrix.to_numpy(dtype=float)[np.triu_indices(len(matrix), 1)]


def _distance_verdict(value, half):
    """A distance as a score: the same words for the same lag behind two real halves."""
    return verdict(1.0 - value, 1.0 - half)


def _trained_on(named, target, found, at):
    return (
        f"{named} for {target}, trained on synthetic rows (real: {found.real[at]:.4g}, without a model: "
        f"{found.without[at]:.4g})"
    )


def _draw_ways(ax, ways):
    """Bars of mean distances of one-way, two-way and three-way tables, of synthetic rows and of two real halves."""
    at = np.arange(len(ways))[::-1]
    ax.barh(at + 0.19, [value for value, _ in ways], 0.36, label="synthetic", color=SYNTHETIC["color"])
    ax.barh(at - 0.19, [half for _, half in ways], 0.36, label="two real halves", **REAL)
    for y, pair in zip(at, ways):
        for shift, value in zip((0.19, -0.19), pair):
            ax.text(value, y + shift, f" {value:.3f}", va="center", fontsize=8)
    ax.set_yticks(at, ["one-way", "two-way", "three-way"][: len(ways)])
    ax.set(xlabel="mean total variation distance", xlim=(0, 1.15 * max(map(max, ways)) or 1.0))
    ax.legend(fontsize=8, frameon=False, loc="upper right" if ways[0][0] < ways[-1][0] else "best")
    ax.spines[["top", "right"]].set_visible(False)


def _number(value, name):
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"the target {name!r} holds numbers: positive= must be a number") from None


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
        raise InvalidInputError(
            "image_shape= needs finite pixels, and a pixel is missing or infinite in one of the tables: leave out "
            "image_shape= (--image-shape), or correct the tables"
        )
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

    Raises InvalidInputError: the model was fitted on other columns.
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
