"""Heat maps over pairs of columns: correlations of both samples, and the error of each two-way table."""

from __future__ import annotations

import numpy as np

from .._columns import _Kinds, correlation_matrix
from .._marginals import pairwise_tvd
from .._samples import paired_frames
from ._drawing import SamplesDisplay, axes_grid, one_axes, short

__all__ = ["CorrelationDisplay", "PairwiseErrorDisplay"]

_MOST_NAMES = 30


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
        real, synthetic = paired_frames(real, synthetic)
        kinds = _Kinds(real) if schema is None else schema
        return cls(correlation_matrix(real, kinds), correlation_matrix(synthetic, kinds)).plot(ax=ax)

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
    if len(names) > _MOST_NAMES:
        ax.set_xlabel(f"{len(names)} columns, in order")
        return
    labels = [short(name, 18) for name in names]
    ax.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    ax.set_yticks(range(len(labels)), labels if rows else [""] * len(labels), fontsize=7)
