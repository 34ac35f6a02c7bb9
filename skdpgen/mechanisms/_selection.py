"""What may be kept of a noisy histogram: bounds, categories, the range of row norms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from ..utils.watching import tell_kept
from ._gaussian import add_gaussian
from ._histogram import histogram

__all__ = [
    "class_norm_histogram",
    "norm_histogram",
    "outermost_bins",
    "release_kept",
    "release_names",
    "select_above",
    "selection_threshold",
]

# Chances, over all columns, that an empty bin passes for a full one (see `outermost_bins`).
_FALSE_ALARMS = (0.001, 0.05)


def selection_threshold(sd, delta, n_columns=1):
    """Noisy count above which a category of unknown name may be told.

    A category that one record alone carries has count 1; it passes in any of `n_columns` columns with probability at
    most `delta`: 1 + sd * Phi^-1((1 - delta)^(1 / n_columns)).

    Parameters
    ----------
    sd : float
        Standard deviation of the noise on one count.
    delta : float
        What is charged beside the Gaussian event; 0 < delta < 1.
    n_columns : int, default=1
        Columns whose categories are selected in the same query (one record has one category in each).
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1); got {delta!r}")
    # -Phi^-1(p) with the upper tail p = 1 - (1 - delta)^(1/n), which 1 - x would round away
    tail = -np.expm1(np.log1p(-delta) / n_columns)
    return 1.0 + float(sd) * -ndtri(tail)


def select_above(noisy_counts, sd, delta, n_columns=1):
    """Return the boolean mask of the categories whose noisy count passes `selection_threshold`.

    Parameters
    ----------
    noisy_counts : array of shape (n_categories,)
    sd, delta, n_columns
        As in `selection_threshold`.
    """
    return np.asarray(noisy_counts) > selection_threshold(sd, delta, n_columns)


def release_kept(counts, noise_multiplier, delta, rng, neighboring):
    """Release which of the observed categories of one column many rows share.

    Parameters
    ----------
    counts : BoundedSum
        `histogram` of the categories observed, each of which is private.
    noise_multiplier : float
        0 (no privacy) keeps all.
    delta : float
        Chance that a category of one record is told; charged beside the Gaussian event.
    rng : NoiseGenerator
    neighboring : str

    Returns
    -------
    mask : bool array of shape (n_categories,)
        Its true entries are the release; where they stand among the others is private.
    """
    noisy = add_gaussian(counts, noise_multiplier, rng, neighboring)
    if noise_multiplier == 0:
        return np.ones(noisy.shape, dtype=bool)
    return above_threshold(noisy, counts, noise_multiplier * counts.sensitivity(neighboring), delta)


def release_names(names, counts, noise_multiplier, delta, rng, neighboring):
    """Release which of the observed categories of one column many rows share, by name.

    Parameters
    ----------
    names : sequence
        The categories observed, private, in an order that they themselves decide.
    counts, noise_multiplier, delta, rng, neighboring
        As in `release_kept`; one count a name.

    Returns
    -------
    list
        Of the names that passed.
    """
    named = replace(counts, keys={0: tuple(names)})
    kept = release_kept(named, noise_multiplier, delta, rng, neighboring)
    return tell_kept([name for name, keep in zip(names, kept) if keep])


def above_threshold(noisy, counts, sd, delta, n_columns=1):
    """Return the mask of what passes `select_above`, by a step of the lattice to which the noise was rounded.

    Rounding adds no chance to the threshold then. Arguments as in `select_above`; `counts` is the BoundedSum.
    """
    return select_above(noisy - counts.lattice, sd, delta, n_columns)


def outermost_bins(noisy_counts, sd, n_columns=1):
    """Return the first and last bin that stand above the noise, or None if none does.

    Parameters
    ----------
    noisy_counts : array of shape (n_bins,)
    sd : float
        Standard deviation of the noise on one count; with 0 any count above 0 stands.
    n_columns : int, default=1
        Columns that share the chance that an empty bin is taken for a full one: a thousandth of all fits, for it
        stretches a range by many octaves; a twentieth in a column where nothing stands so high.

    Returns
    -------
    (int, int) or None
        Post-processing of a release: costs nothing.
    """
    noisy_counts = np.asarray(noisy_counts)
    for failure in _FALSE_ALARMS:
        above = np.flatnonzero(noisy_counts > sd * -ndtri(failure / n_columns / noisy_counts.size))
        if above.size:
            return int(above[0]), int(above[-1])
    return None


def norm_histogram(norms, edges):
    """Count the rows by size on public edges: one cell below the first edge, one above the last.

    Parameters
    ----------
    norms : array of shape (n_samples,)
    edges : array of shape (n_edges,)
        Increasing, public. Cell j holds sizes in (edges[j-1], edges[j]].

    Returns
    -------
    BoundedSum
        `value` of shape (n_edges + 1,); sensitivity 1, or sqrt(2) when a row is replaced.
    """
    return histogram(_cells(norms, edges), len(edges) + 1)


def class_norm_histogram(norms, codes, n_classes, edges):
    """Count the rows of each class by size on public edges, as `norm_histogram` does.

    Parameters
    ----------
    norms : array of shape (n_samples,)
    codes : array of int of shape (n_samples,)
        Class of each row, 0 to ``n_classes - 1``; rows with another code are left out.
    n_classes : int
        Public.
    edges : array of shape (n_edges,)

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes * (n_edges + 1),), the classes one after another. A row is in one cell of one class:
        sensitivity 1, or sqrt(2) when a row is replaced.
    """
    codes, n_cells = np.asarray(codes), len(edges) + 1
    known = (codes >= 0) & (codes < n_classes)
    codes = np.where(known, codes, 0).astype(np.int64)  # a product of narrow integers would wrap around
    return histogram(np.where(known, codes * n_cells + _cells(norms, edges), -1), n_classes * n_cells)


def _cells(norms, edges):
    return np.searchsorted(edges, np.asarray(norms, dtype=np.float64), side="left")
