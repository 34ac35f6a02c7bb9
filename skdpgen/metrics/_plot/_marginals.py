"""The distribution of each column, real beside synthetic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from .._cells import declared_column
from .._samples import column_kind, paired_frames, to_numbers
from ._drawing import REAL, SYNTHETIC, SamplesDisplay, axes_grid, short

__all__ = ["Marginal", "MarginalsDisplay"]

_MOST_LEVELS = 8


class Marginal(NamedTuple):
    """Bars of one column: `labels` of categories or `edges` of bins, shares of both samples, shares of missing."""

    name: object
    kind: str
    labels: tuple | None
    edges: np.ndarray | None
    real: np.ndarray
    synthetic: np.ndarray
    missing: tuple


class MarginalsDisplay(SamplesDisplay):
    """Histograms of each column: real rows filled, synthetic ones outlined.

    Make one by `from_samples` or `from_estimator`.

    Parameters
    ----------
    marginals : list of Marginal

    Attributes
    ----------
    figure_, axes_
        After `plot`.

    Notes
    -----
    **Leak.** Shows shares of real rows exactly: a bar of one row is that row. For the data holder alone.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpgen.metrics import MarginalsDisplay
    >>> X = load_iris(as_frame=True).data
    >>> display = MarginalsDisplay.from_samples(X.iloc[::2], X.iloc[1::2])
    >>> display.axes_.size
    4
    """

    def __init__(self, marginals):
        self.marginals = marginals

    @classmethod
    def from_samples(
        cls, real, synthetic, *, schema=None, bounds=None, columns=None, max_columns=12, n_bins=20, ax=None
    ):
        """Count and draw.

        Parameters
        ----------
        real, synthetic : DataFrame, array of shape (n_rows, n_columns), or pair (X, y)
        schema, bounds
            As for ``marginal_tvd``; they say which columns are categories and the order of these. Bins reach over the
            middle 99 % of the real values.
        columns : list of names, default=None
            Which to draw; None is the first `max_columns`.
        max_columns : int, default=12
        n_bins : int, default=20
        ax : Axes, default=None

        Returns
        -------
        display
        """
        real, synthetic = paired_frames(real, synthetic)
        names = list(real.columns)
        chosen = names[:max_columns] if columns is None else list(columns)
        if absent := [name for name in chosen if name not in names]:
            raise ValueError(f"not columns: {absent}")
        marginals = [
            _marginal(real[name], synthetic[name], declared_column(name, names.index(name), schema, bounds), n_bins)
            for name in chosen
        ]
        return cls(marginals).plot(ax=ax)

    def plot(self, ax=None, *, n_columns=4):
        """Draw; one panel a column, in rows of `n_columns`."""
        across = min(n_columns, len(self.marginals))
        axes = axes_grid(self, ax, -(-len(self.marginals) // across), across, (2.9, 2.4))
        for panel, marginal in zip(axes.flat, self.marginals):
            _draw(panel, marginal)
        for panel in axes.flat[len(self.marginals) :]:
            panel.set_axis_off()
        axes.flat[0].legend(fontsize=8, frameon=False)
        return self


def _marginal(real, synthetic, declared, n_bins):
    kind = column_kind(real, declared)
    missing = tuple(float(column.isna().mean()) for column in (real, synthetic))
    if kind == "category":
        return _levels(real, synthetic, declared, missing)
    values = [to_numbers(column) for column in (real, synthetic)]
    values = [column[np.isfinite(column)] for column in values]
    low, high = np.quantile(values[0], (0.005, 0.995)) if len(values[0]) else (0.0, 1.0)
    if len(values[0]) and np.all(values[0] == np.rint(values[0])) and high - low < n_bins:
        edges = np.arange(np.floor(low), np.ceil(high) + 2) - 0.5  # a bar a whole number
    else:
        edges = np.linspace(low, high if high > low else low + 1.0, n_bins + 1)
    shares = [np.histogram(np.clip(column, edges[0], edges[-1]), edges)[0] / max(len(column), 1) for column in values]
    return Marginal(real.name, kind, None, edges, *shares, missing)


def _levels(real, synthetic, declared, missing):
    columns = [column.dropna().astype(str) for column in (real, synthetic)]
    counts = [column.value_counts(normalize=True) for column in columns]
    order = list(counts[0].index)
    if getattr(declared, "categories", None) is not None and len(declared.categories) <= _MOST_LEVELS:
        order = [str(level) for level in declared.categories]
    levels = order[:_MOST_LEVELS]
    shares = [count.reindex(levels, fill_value=0.0).to_numpy(dtype=float) for count in counts]
    drawn, real_only = set(levels), set(counts[0].index)
    # bars of their own for values that the real rows lack: a column of new values alone is no match
    for name, kept in (("others", real_only - drawn), ("not in real", set(counts[1].index) - real_only - drawn)):
        rest = [float(count.reindex(list(kept), fill_value=0.0).sum()) for count in counts]
        if max(rest) > 1e-9:
            levels, shares = [*levels, name], [np.append(share, left) for share, left in zip(shares, rest)]
    return Marginal(real.name, "category", tuple(levels), None, *shares, missing)


def _draw(ax, marginal):
    if marginal.labels is not None:
        at = np.arange(len(marginal.labels))
        ax.bar(at, marginal.real, 0.8, label="real", **REAL)
        ax.bar(at, marginal.synthetic, 0.8, fill=False, edgecolor=SYNTHETIC["color"], linewidth=1.6, label="synthetic")
        ax.set_xticks(at, [short(label, 14) for label in marginal.labels], rotation=35, ha="right")
    else:
        edges = marginal.edges
        ax.bar(edges[:-1], marginal.real, np.diff(edges), align="edge", label="real", **REAL)
        ax.stairs(marginal.synthetic, edges, linewidth=1.6, label="synthetic", **SYNTHETIC)
        ax.locator_params(axis="x", nbins=4)
        if marginal.kind == "date":
            ticks = np.linspace(edges[0], edges[-1], 3)
            ax.set_xticks(ticks, [f"{pd.Timestamp(int(tick)):%Y-%m-%d}" for tick in ticks])
    text = short(marginal.name, 26)
    if max(marginal.missing) > 0:
        text += "\nmissing {:.1%} real, {:.1%} synthetic".format(*marginal.missing)
    ax.set_title(text, fontsize=9)
    ax.set_yticks([])
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right", "left"]].set_visible(False)
