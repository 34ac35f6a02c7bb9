"""The sums of one step of EM for a Gaussian mixture, in one query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._types import BoundedSum
from ..utils.validation import MAX_ROWS
from ._gaussian import check_bound, lattice_rows

# Products r x_i x_j are multiples of 2^-38; 2^13 rows sum to at most 2^51 steps, exact in double precision.
ROW_STEP = 2.0**-13
RESPONSIBILITY_STEP = 2.0**-12
LATTICE = ROW_STEP**2 * RESPONSIBILITY_STEP
_CHUNK = 1 << 13


class MixtureSums(NamedTuple):
    """Released sums of an EM step, in the units of the rows.

    Attributes
    ----------
    counts : array of shape (n_components,)
    sums : array of shape (n_components, n_features)
    seconds : array of shape (n_components, n_features) for "diag", (n_components, n_features, n_features) for "full"
    """

    counts: np.ndarray
    sums: np.ndarray
    seconds: np.ndarray


def mixture_sums(X, responsibilities, *, radius=1.0, covariance_type="diag", weights=None, exact=True, unit_sizes=None):
    """Sum (r, r x, r x^2) over the rows, for all components at once.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Rows; longer ones than `radius` are clipped.
    responsibilities : array of shape (n_samples, n_components) or callable
        Nonnegative entries that sum to at most 1 in each row; other rows are scaled down to that. A callable maps a
        chunk of rows (clipped, in the units of `X`) to such an array, so that they are never all in memory.
    radius : float, default=1.0
        Public bound of the norm of a row.
    covariance_type : {"diag", "full"}, default="diag"
        With "full" the isometric half of x x^T takes the place of x^2; the sensitivity is the same.
    weights : tuple (w0, w1, w2) or None, default=None
        Weights of r, r x and r x^2 for rows in the units of `X`; None is (1, 1 / radius, 1 / radius^2), with
        sensitivities sqrt(3) and sqrt(6).
    exact : bool, default=True
        Truncate rows and responsibilities to a lattice on which the sums are exact. False only for fits without noise.
    unit_sizes : array of int of shape (n_samples,), default=None
        Number of rows m of the unit of each row: its responsibilities then sum to at most 1/m, rounded down to the
        lattice of 2^-12. None: to at most 1.

    Returns
    -------
    BoundedSum
        `value` of shape (n_components, 1 + 2 d) or (n_components, 1 + d + d (d + 1) / 2), for rows divided by
        `radius`. Bounds hold for any number of components and features.
    """
    radius = check_bound(radius, "radius")
    if covariance_type not in ("diag", "full"):
        raise ValueError(f"covariance_type must be 'diag' or 'full'; got {covariance_type!r}")
    n, d = X.shape
    if n > MAX_ROWS:
        raise ValueError(f"at most {MAX_ROWS} rows can be summed exactly; got {n}")
    if not callable(responsibilities) and len(responsibilities) != n:
        raise ValueError(f"responsibilities has {len(responsibilities)} rows for {n} rows of X")
    upper = np.triu_indices(d)
    total = None
    for start in range(0, max(n, 1), _CHUNK):
        rows = lattice_rows(X[start : start + _CHUNK], radius, ROW_STEP if exact else None)
        if callable(responsibilities):
            r = _called(responsibilities, rows * radius, exact)
        else:
            r = responsibilities[start : start + _CHUNK]
        r = _simplex_rows(r, exact)
        if unit_sizes is not None:
            r = _of_units(r, unit_sizes[start : start + _CHUNK], exact)
        sums = np.concatenate([r.sum(axis=0)[:, None], r.T @ rows, _seconds(r, rows, covariance_type, upper)], axis=1)
        if exact:
            sums = (sums * (1 / LATTICE)).astype(np.int64)
        total = sums if total is None else total + sums
    w0, w1, w2 = (1.0, 1.0, 1.0) if weights is None else np.asarray(weights) * radius ** np.arange(3.0)
    if not min(w0, w1, w2) > 0:
        raise ValueError("the three weights must be positive")
    second_weights = np.full(d, w2)
    if covariance_type == "full":
        second_weights = np.where(upper[0] == upper[1], w2, w2 * 2**0.5)
    return BoundedSum(
        total,
        add_or_remove_one=(w0**2 + w1**2 + w2**2) ** 0.5,
        replace_one=_difference(w0**2, w1**2, w2**2, total.shape[0]) ** 0.5,
        weights=np.concatenate([[w0], np.full(d, w1), second_weights]),
        lattice=LATTICE if exact else None,
        weighted=unit_sizes is not None,
    )


def unpack_mixture_sums(released, n_features, *, radius=1.0, covariance_type="diag"):
    """Return released mixture sums in their shapes and in the units of the rows.

    Parameters
    ----------
    released : array of shape (n_components, p)
    n_features : int
    radius, covariance_type
        As given to the query.

    Returns
    -------
    MixtureSums
    """
    released = np.asarray(released, dtype=np.float64)
    counts, sums, packed = np.split(released, [1, 1 + n_features], axis=1)
    if covariance_type == "full":
        rows, columns = np.triu_indices(n_features)
        seconds = np.empty((len(released), n_features, n_features))
        seconds[:, rows, columns] = packed
        seconds[:, columns, rows] = packed
    else:
        seconds = packed.copy()
    return MixtureSums(counts[:, 0], sums * radius, seconds * radius**2)


def _difference(w0, a, b, n_components):
    """Return the square of the difference bound, from the squared weights of unit rows, under replace_one."""
    same_vertex = (a + 2 * b) ** 2 / (2 * b) if a <= 2 * b else 4 * a
    if n_components == 1:
        # responsibilities may sum to less than 1, so one of the two rows may contribute nothing
        return max(w0 + a + b, same_vertex)
    return max(2 * (w0 + a + b), same_vertex)


def _simplex_rows(r, exact):
    """Return rows of nonnegative entries that sum to at most 1, on the lattice when `exact`."""
    r = np.array(r, dtype=np.float64)
    np.nan_to_num(r, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    np.maximum(r, 0.0, out=r)
    sums = r.sum(axis=1)
    r /= np.maximum(sums, 1.0)[:, None]
    if not exact:
        return r
    r /= RESPONSIBILITY_STEP
    largest = r.argmax(axis=1)
    np.trunc(r, out=r)
    # The largest entry gets what truncation removes, so that no row loses weight: whole steps, at most 1 in all.
    whole = np.rint(np.minimum(sums, 1.0) / RESPONSIBILITY_STEP)
    rest = np.minimum(whole, 1 / RESPONSIBILITY_STEP) - r.sum(axis=1)
    r[np.arange(len(r)), largest] += np.maximum(rest, 0.0)
    r *= RESPONSIBILITY_STEP
    return r


def _of_units(r, sizes, exact):
    """Responsibilities times 1/m: those of the rows of a unit then sum to at most 1.

    Of a row they sum to floor(4096 / m) steps at most: a row of the sum is that weight times one of responsibilities
    that sum to at most 1, for which the bounds were proved.
    """
    if not exact:
        return r / sizes[:, None]
    steps = np.rint(r / RESPONSIBILITY_STEP).astype(np.int64)
    shared = steps // sizes[:, None]
    rest = steps.sum(axis=1) // sizes - shared.sum(axis=1)  # what rounding each entry down took away
    shared[np.arange(len(r)), steps.argmax(axis=1)] += rest
    return shared * RESPONSIBILITY_STEP


def _called(responsibilities, rows, exact):
    """Return responsibilities of a chunk, padded to one shape: those of a row do not depend on the number of rows."""
    if not exact or len(rows) == _CHUNK:
        return responsibilities(rows)
    padded = np.zeros((_CHUNK, rows.shape[1]))
    padded[: len(rows)] = rows
    return responsibilities(padded)[: len(rows)]


def _seconds(r, rows, covariance_type, upper):
    if covariance_type == "diag":
        return r.T @ rows**2
    return np.stack([((rows * column[:, None]).T @ rows)[upper] for column in r.T])
