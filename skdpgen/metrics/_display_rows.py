"""Pictures of synthetic rows beside real ones: marginals, correlations, pairs. matplotlib is imported when drawing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from ._distances import associations, column_kinds, pairwise_tvd
from ._quality import tame_numbers
from ._samples import column_kind, declared_column, paired_frames

# Different in shape as well as in colour: real rows are filled, synthetic ones are lines.
REAL = {"color": "#4c78a8", "alpha": 0.55}
SYNTHETIC = {"color": "#c44e00"}


def _pyplot(display):
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{type(display).__name__} needs matplotlib: pip install matplotlib") from error
    return plt


def one_axes(display, ax, size=(6.4, 4.8)):
    """Set `figure_` and `ax_` of a display: the axes given, or those of a new figure."""
    if ax is None:
        _, ax = _pyplot(display).subplots(figsize=size, layout="constrained")
    display.ax_, display.figure_ = ax, ax.figure
    return ax


def axes_grid(display, ax, n_rows, n_columns, panel=(3.0, 2.6)):
    """Set `figure_` and `axes_` of a display: a grid of axes in a new figure, or in the place of the axes given.

    Returns an array of shape (n_rows, n_columns).
    """
    if ax is None:
        figure, axes = _pyplot(display).subplots(
            n_rows,
            n_columns,
            figsize=(panel[0] * n_columns, panel[1] * n_rows),
            layout="constrained",
            squeeze=False,
        )
        display.figure_, display.axes_ = figure, axes
        return axes
    given = np.asarray(ax, dtype=object)
    if given.ndim:
        if given.size < n_rows * n_columns:
            raise ValueError(f"the display needs {n_rows * n_columns} axes; got {given.size}")
        axes = given.ravel()[: n_rows * n_columns].reshape(n_rows, n_columns)
        display.figure_, display.axes_ = axes[0, 0].figure, axes
        return axes
    ax.set_axis_off()
    grid = ax.get_subplotspec().subgridspec(n_rows, n_columns)
    axes = np.array([[ax.figure.add_subplot(grid[i, j]) for j in range(n_columns)] for i in range(n_rows)])
    display.figure_, display.axes_ = ax.figure, axes
    return axes


def short(text, most=16):
    """Text of a label, cut to `most` characters; a dollar sign is no formula."""
    text = " ".join(str(text).split())
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


def draw_samples(estimator, X, y=None, *, n_samples=None, random_state=None):
    """Return real rows and rows sampled from a fitted estimator, in containers of one kind.

    `n_samples`: None is the estimator's own number. `random_state`: None advances the estimator's stream.
    """
    options = {} if random_state is None else {"random_state": random_state}
    synthetic = estimator.sample(n_samples, **options) if n_samples is not None else estimator.sample(**options)
    if y is not None:
        if not isinstance(synthetic, tuple):
            raise ValueError("the estimator samples no labels: leave out y")
        return (X, y), synthetic
    return X, synthetic[0] if isinstance(synthetic, tuple) else synthetic


class SamplesDisplay:
    """Base of the displays of two samples: a subclass has `from_samples` and `plot`."""

    @classmethod
    def from_estimator(cls, estimator, X, y=None, *, n_samples=None, random_state=None, ax=None, **options):
        """Sample a fitted estimator and draw its rows beside real ones.

        Parameters
        ----------
        estimator : fitted estimator with `sample`
        X, y
            Real rows, as in `fit`.
        n_samples : int, default=None
            None is the released row count.
        random_state : int, default=None
            Of the draw; None advances the estimator's stream.
        ax : Axes, default=None
        **options
            Of `from_samples`.

        Returns
        -------
        display
        """
        real, synthetic = draw_samples(estimator, X, y, n_samples=n_samples, random_state=random_state)
        return cls.from_samples(real, synthetic, ax=ax, **options)


# ---- marginals -----------------------------------------------------------------------------------------------------
_MOST_BARS = 8


class Marginal(NamedTuple):
    """Bars of one column: `labels` of categories or `edges` of bins, shares of both samples, shares of missing.

    Where tails matter, axes are logarithmic: that of the values from `scale` on, to both sides of zero, and that of the
    shares if `log_shares`. A bar of a column of whole numbers is centred on its number.
    """

    name: object
    kind: str
    labels: tuple | None
    edges: np.ndarray | None
    real: np.ndarray
    synthetic: np.ndarray
    missing: tuple
    scale: float | None = None
    log_shares: bool = False


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
            real values: equal ones, or, where nearly all values would be in one bin, equal ones of the logarithm. The
            outer bins hold what is beyond.
        columns : list of names, default=None
            Which to draw; None is the first `max_columns`.
        max_columns : int, default=12
        n_bins : int, default=20
        ax : Axes, default=None

        Returns
        -------
        display
        """
        real, synthetic = paired_frames(real, synthetic, schema)
        names = list(real.columns)
        chosen = names[:max_columns] if columns is None else list(columns)
        if absent := [name for name in chosen if name not in names]:
            raise ValueError(f"columns= contains names that are not columns: {absent}")
        marginals = [
            count_marginal(
                real[name], synthetic[name], declared_column(name, names.index(name), schema, bounds), n_bins
            )
            for name in chosen
        ]
        return cls(marginals).plot(ax=ax)

    def plot(self, ax=None, *, n_columns=4):
        """Draw; one panel a column, in rows of `n_columns`."""
        across = min(n_columns, len(self.marginals))
        axes = axes_grid(self, ax, -(-len(self.marginals) // across), across, (2.9, 2.4))
        for panel, marginal in zip(axes.flat, self.marginals):
            _draw_marginal(panel, marginal)
        for panel in axes.flat[len(self.marginals) :]:
            panel.set_axis_off()
        axes.flat[0].legend(fontsize=8, frameon=False)
        return self


def count_marginal(real, synthetic, declared=None, n_bins=20, *, known=()):
    """Count the bars of one column.

    `declared`: entry of a schema: says whether the column holds categories, and their order. `known`: categories of
    real rows that were not given here.
    """
    kind = column_kind(real, declared)
    missing = tuple(float(column.isna().mean()) for column in (real, synthetic))
    if kind == "category":
        return _levels(real, synthetic, declared, missing, known)
    values = [tame_numbers(column) for column in (real, synthetic)]
    values = [column[~np.isnan(column)] for column in values]
    edges, scale = _edges(values[0], kind, n_bins)
    shares = [np.histogram(np.clip(column, edges[0], edges[-1]), edges)[0] / max(len(column), 1) for column in values]
    return Marginal(real.name, kind, None, edges, *shares, missing, scale, _is_uneven(*shares))


# Share of the real values that may be in one of equal bins; of more, the bins follow the logarithm.
_CROWDED = 0.8
# The largest bar over the middle one, from which on the middle one cannot be seen.
_UNEVEN = 40


def _edges(values, kind, n_bins):
    """Edges of the bins, and the scale of a logarithmic axis or None."""
    if not len(values):
        return np.linspace(0.0, 1.0, n_bins + 1), None
    low, high = values.min(), values.max()
    equal = _equal(low, high, n_bins)
    if kind != "date" and high - low < 1e6 and max(-low, high) < 2**50 and np.all(values == np.rint(values)):
        width = np.ceil((high - low + 1) / n_bins)  # each bar as many whole numbers
        equal = np.arange(low, high + width + 1, width) - 0.5
        if width == 1:
            return equal, None
    if kind == "date" or not _is_crowded(values, equal):
        return equal, None
    sizes = np.abs(values[values != 0])
    scale = max(float(np.quantile(sizes, 0.05)), float(sizes.max()) * 1e-9)
    spread = np.arcsinh(np.array([low, high]) / scale)
    edges = np.sinh(np.linspace(*spread, n_bins + 1)) * scale
    edges[0], edges[-1] = low, high  # rounding must not leave a value out
    if np.all(np.diff(edges) > 0) and not _is_crowded(values, edges):
        return edges, scale
    # values far from zero and near each other, but a few: the outer bins hold these
    return _equal(*np.quantile(values, (0.005, 0.995)), n_bins), None


def _equal(low, high, n_bins):
    least = max(1.0, abs(low) * 1e-3) if high == low else max(abs(low), abs(high)) * n_bins * 1e-15
    return np.linspace(low, max(high, low + least), n_bins + 1)


def _is_crowded(values, edges):
    """Whether nearly all values, but one value that is frequent by itself, are in one bin."""
    kept, counts = np.unique(values, return_counts=True)
    if counts.max() > 0.2 * len(values):
        counts[np.argmax(counts)] = 0
    total = counts.sum()
    if not total:
        return False
    return bool(np.histogram(kept, edges, weights=counts)[0].max() > _CROWDED * total)


def _is_uneven(*shares):
    """Whether one bar is so much higher than most that these cannot be seen."""
    return any(np.any(share > 0) and share.max() > _UNEVEN * np.median(share[share > 0]) for share in shares)


def _levels(real, synthetic, declared, missing, known=()):
    columns = [column.dropna().astype(str) for column in (real, synthetic)]
    counts = [column.value_counts(normalize=True) for column in columns]
    order = list(counts[0].index)
    if getattr(declared, "categories", None) is not None and len(declared.categories) <= _MOST_BARS:
        order = [str(level) for level in declared.categories]
    levels = order[:_MOST_BARS]
    shares = [count.reindex(levels, fill_value=0.0).to_numpy(dtype=float) for count in counts]
    drawn, real_only = set(levels), set(counts[0].index) | set(map(str, known))
    # separate bars for values that the real rows lack: a column of new values only is no match
    for name, kept in (("others", real_only - drawn), ("not in real", set(counts[1].index) - real_only - drawn)):
        rest = [float(count.reindex(list(kept), fill_value=0.0).sum()) for count in counts]
        if max(rest) > 1e-9:
            levels, shares = [*levels, name], [np.append(share, left) for share, left in zip(shares, rest)]
    return Marginal(real.name, "category", tuple(levels), None, *shares, missing, None, _is_uneven(*shares))


def _draw_marginal(ax, marginal):
    if marginal.labels is not None:
        at = np.arange(len(marginal.labels))
        ax.bar(at, marginal.real, 0.8, label="real", **REAL)
        ax.bar(at, marginal.synthetic, 0.8, fill=False, edgecolor=SYNTHETIC["color"], linewidth=1.6, label="synthetic")
        ax.set_xticks(at, [short(label, 14) for label in marginal.labels], rotation=35, ha="right")
    else:
        edges = marginal.edges
        ax.bar(edges[:-1], marginal.real, np.diff(edges), align="edge", label="real", **REAL)
        ax.stairs(marginal.synthetic, edges, linewidth=1.6, label="synthetic", **SYNTHETIC)
        if marginal.scale is not None:
            ax.set_xscale("asinh", linear_width=marginal.scale)
            ticks = log_ticks(edges[0], edges[-1], marginal.scale)
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
        elif marginal.kind == "date":
            ticks = np.linspace(edges[0], edges[-1], 3)
            ax.set_xticks(ticks, [f"{pd.Timestamp(int(tick)):%Y-%m-%d}" for tick in ticks])
        else:
            ax.locator_params(axis="x", nbins=4)
    text = short(marginal.name, 26)
    if max(marginal.missing) > 0:
        text += "\nmissing {:.1%} real, {:.1%} synthetic".format(*marginal.missing)
    ax.set_title(text, fontsize=9)
    if marginal.scale is not None:
        ax.set_xlabel("value (log scale)", fontsize=8)
    if marginal.log_shares:
        ax.set_yscale("log")
        ax.set_ylabel("share of rows (log scale)", fontsize=8)
        ax.minorticks_off()
    else:
        ax.set_ylabel("share of rows", fontsize=8)
        ax.locator_params(axis="y", nbins=3)
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g}%")
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def log_ticks(low, high, scale, most=5):
    """Return a few powers of ten, of both signs, and zero, between two ends of a logarithmic axis from `scale` on."""
    ticks = [0.0] if low <= 0 <= high else []
    for sign, end in ((1.0, high), (-1.0, -low)):
        start = max(scale, sign * (low if sign > 0 else high))
        if end >= start:
            powers = np.arange(np.ceil(np.log10(start) - 1e-9), np.floor(np.log10(end) + 1e-9) + 1)
            ticks += [sign * 10.0**power for power in powers]
    if not ticks:
        return [low, high]
    ticks.sort()
    step = -(-len(ticks) // most)
    if step > 1 and 0.0 in ticks:
        zero = ticks.index(0.0)
        return [tick for k, tick in enumerate(ticks) if (k - zero) % step == 0]
    return ticks[::step]


# ---- matrices ------------------------------------------------------------------------------------------------------
_MOST_NAMES = 60
_ORDINALS = {2: "second", 3: "third"}


class CorrelationDisplay(SamplesDisplay):
    """Association of every two columns: real, synthetic, and their difference.

    Parameters
    ----------
    real, synthetic : DataFrame of shape (n_columns, n_columns)
        As ``correlation_matrix`` gives them.

    Attributes
    ----------
    figure_, axes_
        After `plot`.

    Notes
    -----
    **Leak.** Shows correlations of real rows without noise. For the data holder alone.
    """

    def __init__(self, real, synthetic):
        self.real, self.synthetic = real, synthetic

    @classmethod
    def from_samples(cls, real, synthetic, *, schema=None, ax=None):
        """Compute and draw; `real`, `synthetic` and `schema` as for ``correlation_difference``."""
        real, synthetic = paired_frames(real, synthetic, schema)
        kinds = column_kinds(real, schema)
        return cls(associations(real, kinds), associations(synthetic, kinds)).plot(ax=ax)

    def plot(self, ax=None, *, cmap="RdBu_r"):
        """Draw three maps on one scale from -1 to 1."""
        axes = axes_grid(self, ax, 1, 3, (4.2, 3.9))
        matrices = {
            "real": self.real.to_numpy(),
            "synthetic": self.synthetic.to_numpy(),
            "synthetic less real": self.synthetic.to_numpy() - self.real.to_numpy(),
        }
        for k, (panel, (title, matrix)) in enumerate(zip(axes[0], matrices.items())):
            image = panel.imshow(matrix, vmin=-1, vmax=1, cmap=cmap, interpolation="nearest")
            panel.set_title(title, fontsize=10)
            _name(panel, self.real.columns, rows=k == 0)
        self.figure_.colorbar(image, ax=list(axes[0]), shrink=0.8, label="association")
        return self


class PairwiseErrorDisplay(SamplesDisplay):
    """Heat map of the total variation distance of each two-way table, and of each column on the diagonal.

    Parameters
    ----------
    distances : DataFrame of shape (n_columns, n_columns)
        As ``pairwise_tvd`` gives it.

    Attributes
    ----------
    figure_, ax_
        After `plot`.

    Notes
    -----
    **Leak.** Shows distances from real rows without noise. For the data holder alone.
    """

    def __init__(self, distances):
        self.distances = distances

    @classmethod
    def from_samples(cls, real, synthetic, *, schema=None, bounds=None, n_bins=10, ax=None):
        """Compute and draw; parameters as for ``pairwise_tvd``."""
        return cls(pairwise_tvd(real, synthetic, schema, n_bins=n_bins, bounds=bounds)).plot(ax=ax)

    def plot(self, ax=None, *, cmap="viridis", vmax=None):
        """Draw; `vmax` is the distance of the last colour, None the largest."""
        ax = one_axes(self, ax, (6.4, 5.4))
        matrix = self.distances.to_numpy()
        vmax = max(float(matrix.max()), 1e-3) if vmax is None else vmax
        image = ax.imshow(matrix, vmin=0, vmax=vmax, cmap=cmap, interpolation="nearest")
        _name(ax, self.distances.columns)
        if len(matrix) <= 16:
            for (i, j), value in np.ndenumerate(matrix):
                color = "white" if value < 0.6 * vmax else "black"
                ax.text(j, i, f"{value:.2f}".lstrip("0"), ha="center", va="center", fontsize=6, color=color)
        self.figure_.colorbar(image, ax=ax, label="total variation distance")
        ax.set_title("error of two-way tables (diagonal: of columns)", fontsize=10)
        return self


def _name(ax, names, rows=True):
    step = -(-len(names) // _MOST_NAMES)  # of very many columns every second, third ... has its name
    at = range(0, len(names), step)
    labels, size = [short(names[k], 18) for k in at], 8 if len(at) <= 16 else 7 if len(at) <= 30 else 5.5
    ax.set_xticks(at, labels, rotation=90, fontsize=size)
    ax.set_yticks(at, labels if rows else [""] * len(labels), fontsize=size)
    ax.set_xlabel(
        "column" if step == 1 else f"column: every {_ORDINALS.get(step, f'{step}th')} of {len(names)} is named"
    )
    if rows:
        ax.set_ylabel("column")
