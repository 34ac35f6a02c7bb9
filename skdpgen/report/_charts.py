"""The two distributions of one column, as a small drawing that is part of the page and takes no library."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..metrics._display_rows import REAL, SYNTHETIC, log_ticks
from ._page import text

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
