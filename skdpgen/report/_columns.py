"""The section on single columns: a score and a drawing of each, to be found by a name, a letter or a group."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from .. import metrics
from ..metrics._display_rows import REAL, SYNTHETIC, count_marginal, log_ticks
from ..metrics._quality import category_counts, kept
from ..metrics._samples import to_numbers
from ._page import box, details, leak, paragraph, section, table, text

# How far a score is below that of two halves of the real rows, and what is said of it.
VERDICTS = (("close", 0.02), ("fair", 0.10), ("far", np.inf))
_SAYS = {
    "far": "Far from the real rows: more than 0.10 below the score of two real halves",
    "fair": "At some distance: 0.02 to 0.10 below the score of two real halves",
    "close": "Close: at most 0.02 below the score of two real halves",
    "none": "Without a score: no values in one of the tables",
}
# Cards that are shown at once; of more columns they are grouped, and all but the first group is folded.
_AT_ONCE = 24
# Columns from which on there is an index and a search box.
_MANY = 13
# Categories of a column beyond which the page says that names and identifiers are expected to differ.
_MANY_VALUES = 100
_NAMED = {"number": "RangeCoverage", "date": "RangeCoverage", "category": "CategoryCoverage"}
_INSIDE = {"number": "BoundaryAdherence", "date": "BoundaryAdherence", "category": "CategoryAdherence"}
_WHOSE = ("real", "synthetic")


def verdict(score, half):
    """Return what is said of a score beside that of two real halves: a key of `VERDICTS`, or "none"."""
    if np.isnan(score):
        return "none"
    lag = (1.0 if np.isnan(half) else half) - score
    return next(name for name, most in VERDICTS if lag <= most)


def scored(real, synthetic, whole, halves, schema):
    """Return the distances and scores of each column, one frame.

    `real`, `synthetic`: rows that are measured. `whole`: all rows: what was lost is counted in these. `halves`: of the
    real rows.
    """
    frame = metrics.column_scores(real, synthetic, schema)
    of_all = [kept(*(rows[name] for rows in whole), kind) for name, kind in zip(real.columns, frame["kind"])]
    frame["coverage"], frame["adherence"] = np.array(of_all, dtype=float).reshape(-1, 2).T
    frame["half"] = metrics.column_scores(*halves, schema)["score"]
    distances = metrics.column_distances(real, synthetic, schema)
    return frame.join(distances.drop(columns="kind"))


def columns_section(real, synthetic, schema, scores, lost, whole):
    """Return the section.

    `scores`: as `scored` gives it. `lost`: as `lost_categories` gives it. `whole`: all real rows.
    """
    order = scores.sort_values("score", kind="stable", na_position="last")
    place = {name: k for k, name in enumerate(real.columns)}
    by_column = {name: list(rows["category"]) for name, rows in lost.groupby("column", sort=False)}
    cards = {}
    for name, line in order.iterrows():
        declared = None if schema is None else schema[name]
        known = category_counts(whole[name]).index if line["kind"] == "category" else ()
        drawing = count_marginal(real[name], synthetic[name], declared, known=known)
        cards[name] = _card(name, place[name], line, drawing, by_column.get(name, []))
    groups = {}
    for name, line in order.iterrows():
        groups.setdefault(verdict(line["score"], line["half"]), []).append(name)
    if len(cards) <= _AT_ONCE:
        shown = [_grid(cards.values())]
    else:
        ordered = [(key, groups[key]) for key in _SAYS if key in groups]
        shown = [
            details(
                f"{_SAYS[key]} ({len(names):,} columns)", _grid(cards[n] for n in names), opened=not at, css="group"
            )
            for at, (key, names) in enumerate(ordered)
        ]
    counted = ", ".join(f"{len(groups.get(key, []))} {key}" for key, _ in VERDICTS)
    words = (
        f"{len(cards):,} columns, the worst first: {counted}. A score of 1 means equal distributions. The score of a "
        "number or a date is KSComplement, that of a category TVComplement, as SDMetrics defines them. Beside it is "
        "the score of two random halves of the real rows: more cannot be expected."
    )
    parts = [paragraph(words), _LEGEND]
    if len(cards) >= _MANY:
        parts += [box("Find a column"), _index(real.columns)]
    parts += [*shown, _all_columns(order), _numbers(real, synthetic, scores["kind"])]
    many = [str(n) for n in real.columns if scores["kind"][n] == "category" and real[n].nunique() > _MANY_VALUES]
    if many:
        parts.append(
            paragraph(
                f"With more than {_MANY_VALUES} values: {', '.join(many)}. Values that one table lacks count as "
                "distance, so names and identifiers are near a score of 0, as they should be."
            )
        )
    shown_by = (metrics.column_scores, metrics.column_distances, metrics.MarginalsDisplay)
    return section("columns", "Columns", *parts, leak(*shown_by))


_LEGEND = (
    '<p class="legend"><span class="key real"></span> real rows, filled '
    '<span class="key synthetic"></span> synthetic rows, outlined</p>'
)


def _card(name, place, line, marginal, lost):
    score, half = line["score"], line["half"]
    key = verdict(score, half)
    facts = [f"{line['measure']}; real halves {_score(half)}", f"{_NAMED[line['kind']]} {_score(line['coverage'])}"]
    facts[-1] += f", {_INSIDE[line['kind']]} {_score(line['adherence'])}"
    if max(line["missing_real"], line["missing_synthetic"]) > 0:
        facts.append(f"missing: {line['missing_real']:.1%} real, {line['missing_synthetic']:.1%} synthetic")
    if lost:
        more = f" and {len(lost) - 5:,} more" if len(lost) > 5 else ""
        facts.append(f"lost: {', '.join(value[:40] for value in lost[:5])}{more}")
    said = (
        f"Bars of {name}: real rows filled, synthetic ones outlined; score {_score(score)}, real halves {_score(half)}."
    )
    listed = "".join(f"<li>{text(fact)}</li>" for fact in facts)
    found = text(str(name).lower())
    return (
        f'<article class="card" id="column-{place}" data-name="{found}"><h3><span>{text(name)}</span> '
        f'<span class="score {key}">{_score(score)}</span></h3>\n{chart(marginal, said)}\n'
        f"<ul>{listed}</ul></article>"
    )


def _score(value):
    return "none" if np.isnan(value) else f"{value:.3f}"


def _grid(cards):
    return '<div class="cards">\n' + "\n".join(cards) + "\n</div>"


def _index(names):
    """Links to all cards, by the first letter."""
    ordered = sorted(enumerate(map(str, names)), key=lambda pair: (_natural(pair[1]), pair[0]))
    links = "".join(
        f'<li data-name="{text(name.lower())}"><a href="#column-{k}">{text(name)}</a></li>' for k, name in ordered
    )
    return details(f"Index of all {len(ordered):,} columns", f'<ul class="index">{links}</ul>')


def _natural(name):
    """Key of an order in which x2 is before x10."""
    return [part.rjust(12, "0") if part.isdecimal() else part for part in re.split(r"(\d+)", name.lower())]


def _all_columns(order):
    header = ("column", "kind", "score", "real halves", "coverage", "adherence")
    header += ("total variation", "Wasserstein", "missing, real", "missing, synthetic")
    fields = (
        "kind",
        "score",
        "half",
        "coverage",
        "adherence",
        "tvd",
        "wasserstein",
        "missing_real",
        "missing_synthetic",
    )
    rows = [
        (str(name), *(value if isinstance(value, str) else float(value) for value in (line[field] for field in fields)))
        for name, line in order.iterrows()
    ]
    words = paragraph(
        "Total variation is over ten equal bins with missing values as a bin; the Wasserstein distance is in units of "
        "the range. Coverage and adherence are of all rows."
    )
    return details("All columns in one table", words + table("Columns, the worst first", header, rows))


def _numbers(real, synthetic, kinds):
    """Moments and ends of each column of numbers: a few rows far out are seen in no histogram."""
    header = ["column"]
    header += [f"{what}, {whose}" for what in ("mean", "deviation", "lowest", "highest") for whose in _WHOSE]
    rows = []
    for name in real.columns:
        if kinds[name] != "number":
            continue
        pair = [to_numbers(frame[name], finite=True) for frame in (real, synthetic)]
        pair = [values[np.isfinite(values)] for values in pair]
        if all(len(values) for values in pair):
            moments = [float(of(values)) for of in (np.mean, np.std, np.min, np.max) for values in pair]
            rows.append((str(name), *moments))
    if not rows:
        return ""
    words = paragraph("The lowest and the highest real value are each somebody's own.")
    listed = table("Columns of numbers", header, rows)
    return details(f"Moments and ends of {len(rows)} columns of numbers", words + listed)


# ---- charts of one column -------------------------------------------------------------------------------------------
_WIDTH, _HEIGHT = 330, 176
# Histogram: the plot's edges. Bars of categories: where they begin, and the height of each.
_LEFT, _TOP, _RIGHT, _BOTTOM = 60, 6, 322, 134
_BARS_LEFT, _BAR = 130, 17
_FILLED = f'fill="{REAL["color"]}" fill-opacity="{REAL["alpha"]}"'
_OUTLINED = f'fill="none" stroke="{SYNTHETIC["color"]}" stroke-width="1.6"'


def chart(marginal, said):
    """Return a bar chart of a `Marginal` as SVG: real rows filled, synthetic ones outlined, axes named.

    `marginal`: as `count_marginal` gives it. `said`: what the chart shows, for who does not see it.
    """
    if not (marginal.real.any() or marginal.synthetic.any()):
        return "<p>No values.</p>"
    shares = _Shares(marginal)
    height, parts = (_bars if marginal.labels is not None else _histogram)(marginal, shares)
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" aria-label="{text(said)}" '
        f'font-size="11" fill="#333">\n{body}\n</svg>'
    )


class _Shares:
    """The axis of shares: from 0, or logarithmic from below the smallest."""

    def __init__(self, marginal):
        both = np.concatenate([marginal.real, marginal.synthetic])
        self.top = float(both.max()) * 1.04
        self.log, self.name = marginal.log_shares, "share of rows"
        if self.log:
            self.low = max(float(np.floor(np.log10(both[both > 0].min()) - 1e-9)), -7.0)
            self.high = float(np.log10(self.top))
            self.ticks = [10.0**power for power in np.arange(self.low, np.floor(self.high) + 1)]
            self.ticks, self.name = self.ticks[:: -(-len(self.ticks) // 5)], "share of rows (log scale)"
        else:
            self.ticks = _nice(0.0, self.top, 4)

    def at(self, share):
        """Place of shares on the axis, between 0 and 1."""
        share = np.asarray(share, dtype=float)
        if not self.log:
            return share / self.top
        with np.errstate(divide="ignore"):
            return np.clip((np.log10(share) - self.low) / (self.high - self.low), 0.0, 1.0)


def _histogram(marginal, shares):
    edges, scale = marginal.edges, marginal.scale
    ticks, labels = _value_ticks(edges, marginal)
    ends = _along(edges[[0, -1]], scale)

    def across(values):
        return _LEFT + (_along(values, scale) - ends[0]) / (ends[1] - ends[0]) * (_RIGHT - _LEFT)

    def up(share):
        return _BOTTOM - (_BOTTOM - _TOP) * shares.at(share)

    parts = []
    for tick in shares.ticks:
        y = float(up(tick))
        parts += [_line(f"M{_LEFT} {y:.1f}H{_RIGHT}", _GRID), _words(_LEFT - 4, y + 4, _percent(tick), "end")]
    parts.append(f'<path d="{_steps(across(edges), up(marginal.real))}Z" {_FILLED}/>')
    parts.append(f'<path d="{_steps(across(edges), up(marginal.synthetic))}" {_OUTLINED}/>')
    parts.append(_line(f"M{_LEFT} {_BOTTOM}H{_RIGHT}", _AXIS))
    for x, label in zip(across(ticks), labels):
        anchor = "start" if x < _LEFT + 12 else "end" if x > _RIGHT - 16 else "middle"
        parts += [_line(f"M{x:.1f} {_BOTTOM}v4", _AXIS), _words(x, _BOTTOM + 15, label, anchor)]
    name = _cut(marginal.name, 34) + ("" if scale is None else " (log scale)")
    parts.append(_words((_LEFT + _RIGHT) / 2, _BOTTOM + 33, name, "middle"))
    return _HEIGHT, [*parts, _upright(shares.name, _TOP, _BOTTOM)]


def _along(values, scale):
    values = np.asarray(values, dtype=float)
    return values if scale is None else np.arcsinh(values / scale)


def _steps(across, ups):
    """A path over the tops of the bars, from the axis to the axis."""
    path = [f"M{across[0]:.1f} {_BOTTOM}"]
    path += [f"V{up:.1f}H{right:.1f}" for up, right in zip(ups, across[1:])]
    return "".join([*path, f"V{_BOTTOM}"])


def _bars(marginal, shares):
    bottom = _TOP + _BAR * len(marginal.labels)
    widths = [(_RIGHT - _BARS_LEFT) * shares.at(part) for part in (marginal.real, marginal.synthetic)]
    parts = []
    for tick in shares.ticks:
        x = _BARS_LEFT + (_RIGHT - _BARS_LEFT) * float(shares.at(tick))
        anchor = "end" if x > _RIGHT - 12 else "middle"
        parts += [_line(f"M{x:.1f} {_TOP}V{bottom}", _GRID), _words(x, bottom + 14, _percent(tick), anchor)]
    for k, label in enumerate(marginal.labels):
        y = _TOP + _BAR * k
        parts.append(_words(_BARS_LEFT - 5, y + 12, _cut(label, 16), "end", whole=label))
        for width, style in zip(widths, (_FILLED, _OUTLINED)):
            parts.append(f'<path d="M{_BARS_LEFT} {y + 2}h{width[k]:.1f}v{_BAR - 4}h-{width[k]:.1f}z" {style}/>')
    parts.append(_line(f"M{_BARS_LEFT} {_TOP}V{bottom}", _AXIS))
    parts.append(_words((_BARS_LEFT + _RIGHT) / 2, bottom + 30, shares.name, "middle"))
    return bottom + 36, [*parts, _upright(_cut(marginal.name, max(4, 3 * len(marginal.labels))), _TOP, bottom)]


_GRID, _AXIS = "#e4e4e4", "#555"


def _line(path, colour):
    return f'<path d="{path}" stroke="{colour}"/>'


def _words(x, y, words, anchor, *, whole=None):
    title = "" if whole is None else f"<title>{text(whole)}</title>"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(words)}{title}</text>'


def _upright(words, top, bottom):
    return f'<text transform="translate(10 {(top + bottom) / 2}) rotate(-90)" text-anchor="middle">{text(words)}</text>'


def _value_ticks(edges, marginal):
    low, high = float(edges[0]), float(edges[-1])
    if marginal.kind == "date":
        ticks = np.linspace(low, high, 3)
        return ticks, [f"{pd.Timestamp(int(tick)):%Y-%m-%d}" for tick in ticks]
    ticks = _nice(low, high, 5) if marginal.scale is None else log_ticks(low, high, marginal.scale)
    return ticks, [_number(tick) for tick in ticks]


def _nice(low, high, most):
    """Round numbers between two ends, about `most`."""
    width = (high - low) / most
    power = 10.0 ** np.floor(np.log10(width))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= width * (1 - 1e-9))
    ticks = np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) * step
    return [float(tick) + 0.0 for tick in ticks]  # no minus before zero


def _number(value):
    for start, size, unit in ((1e12, 1e12, "tn"), (1e9, 1e9, "bn"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if start <= abs(value) < 1e15:
            return f"{value / size:.6g}{unit}"
    return f"{value:.6g}"


def _percent(share):
    return f"{100 * abs(share):.3g}%"


def _cut(value, most):
    words = " ".join(str(value).split())
    return words if len(words) <= most else words[: most - 1] + "…"
