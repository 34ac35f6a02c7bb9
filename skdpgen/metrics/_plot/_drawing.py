"""What the displays share: axes, colours, and the rows of an estimator beside real ones."""

from __future__ import annotations

import numpy as np

__all__ = ["REAL", "SYNTHETIC", "SamplesDisplay", "axes_grid", "draw_samples", "one_axes", "short"]

# Told apart by shape as well as by colour: real rows are filled, synthetic ones are lines.
REAL = {"color": "#4c78a8", "alpha": 0.55}
SYNTHETIC = {"color": "#c44e00"}


def _pyplot(display):
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{type(display).__name__} needs matplotlib: pip install skdpgen[plot]") from error
    return plt


def one_axes(display, ax, size=(6.4, 4.8)):
    """Set `figure_` and `ax_` of a display: the axes given, or those of a new figure."""
    if ax is None:
        _, ax = _pyplot(display).subplots(figsize=size, layout="constrained")
    display.ax_, display.figure_ = ax, ax.figure
    return ax


def axes_grid(display, ax, n_rows, n_columns, panel=(3.0, 2.6)):
    """Set `figure_` and `axes_` of a display: a grid of axes in a new figure, or in the place of the axes given.

    Returns
    -------
    array of Axes of shape (n_rows, n_columns)
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

    Parameters
    ----------
    estimator : fitted estimator with `sample`
    X, y : real rows, as in `fit`
    n_samples : int, default=None
        None is the estimator's own number.
    random_state : int, default=None
        None advances the estimator's stream.
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
