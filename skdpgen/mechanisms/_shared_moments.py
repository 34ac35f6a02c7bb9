"""Sums of wide rows of several classes in one query: counts and sums of each class, second moments of all together."""

from __future__ import annotations

import numpy as np

from .._types import BoundedSum
from ._moments import CLASS_COUNT_WEIGHT, Moments, class_moments, unpack_moments

__all__ = ["SHARED_MEAN_WEIGHT", "shared_moments", "unpack_shared_moments"]

# Where second moments are shared, class means alone distinguish classes: their sum weighs as much as the rest.
SHARED_MEAN_WEIGHT = 1.0


def shared_moments(
    X,
    y_codes,
    n_classes,
    *,
    l2_bound=1.0,
    count_weight=CLASS_COUNT_WEIGHT,
    mean_weight=SHARED_MEAN_WEIGHT,
    transform=None,
    centers=None,
    exact=True,
    chunk_rows=None,
    unit_sizes=None,
):
    """Sum (1, x) over the rows of each class, and x x^T over the rows of all classes: one query.

    Its sensitivity is that of `class_moments`, and noise is added to the second moments once, not once for each class.

    Parameters
    ----------
    X, y_codes, n_classes, l2_bound, count_weight, mean_weight, transform, centers, exact, chunk_rows, unit_sizes
        As in `class_moments`. Rows are divided by the bound of their class before they are summed.

    Returns
    -------
    BoundedSum
        `value` of shape (n_classes * (1 + d) + d (d + 1) / 2,): count and sum of each class, then the shared upper
        triangle by rows. Adding a row moves it as in `class_moments`: a row has one class. Replacing one also: between
        rows x and z of different classes counts and sums are orthogonal, and ``|x x^T - z z^T|^2`` is at most 2.
    """
    query = class_moments(
        X,
        y_codes,
        n_classes,
        l2_bound=l2_bound,
        count_weight=count_weight,
        mean_weight=mean_weight,
        transform=transform,
        centers=centers,
        exact=exact,
        chunk_rows=chunk_rows,
        unit_sizes=unit_sizes,
    )
    own = 1 + X.shape[1] if transform is None else 1 + transform(np.zeros((1, X.shape[1]))).shape[1]
    total, weights = query.value, query.weights
    return BoundedSum(
        np.concatenate([total[:, :own].ravel(), total[:, own:].sum(axis=0)]),
        add_or_remove_one=query.add_or_remove_one,
        replace_one=query.replace_one,
        weights=np.concatenate([np.tile(weights[:own], n_classes), weights[own:]]),
        lattice=query.lattice,
        weighted=query.weighted,
    )


def unpack_shared_moments(released, n_classes, n_features, l2_bound=1.0):
    """Return what was released of `shared_moments`.

    Parameters
    ----------
    released : array of shape (n_classes * (1 + d) + d (d + 1) / 2,)
    n_classes, n_features : int
    l2_bound : float or array of shape (n_classes,), default=1.0
        As given to the query.

    Returns
    -------
    Moments
        `count` and `sum` of each class, the sum in the units of the rows; `second`, of shape (d, d), of rows divided by
        the bound of their class.
    """
    released = np.asarray(released, dtype=np.float64)
    own = n_classes * (1 + n_features)
    firsts = released[:own].reshape(n_classes, -1)
    bound = np.broadcast_to(np.asarray(l2_bound, dtype=np.float64), n_classes)
    second = unpack_moments(released[own:], n_features).second
    return Moments(firsts[:, 0], firsts[:, 1:] * bound[:, None], second)
