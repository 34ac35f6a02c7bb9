"""Principal components of released moments: post-processing, which costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import svd_flip

from ..utils.blocks import map_blocks

__all__ = ["PrincipalComponents", "covariance_of", "principal_components"]


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """Leading eigenvectors of a released covariance, in the units of the user.

    Parameters
    ----------
    components : array of shape (n_components, n_features)
        Orthonormal rows, by decreasing variance.
    mean : array of shape (n_features,)
    explained_variance : array of shape (n_components,)
    total_variance : float
        Sum over all `n_features` directions.
    noise_variance : float
        Mean variance of the directions left out; 0 when none is.
    count : float
        Released number of rows.
    """

    components: np.ndarray
    mean: np.ndarray
    explained_variance: np.ndarray
    total_variance: float
    noise_variance: float
    count: float

    def project(self, X):
        """Return the coordinates of rows, shape (n_samples, n_components); no row changes the bits of another."""
        projected = np.empty((len(X), len(self.components)))
        for part, rows in map_blocks(lambda rows: (rows - self.mean) @ self.components.T, X):
            projected[part] = rows
        return projected

    def reconstruct(self, Z):
        """Return rows of shape (n_samples, n_features) from coordinates."""
        return np.asarray(Z, dtype=np.float64) @ self.components + self.mean

    @property
    def covariance(self):
        """Released covariance of the components, with an equal variance in every other direction."""
        excess = np.maximum(self.explained_variance - self.noise_variance, 0.0)
        kept = (self.components.T * excess) @ self.components
        kept.flat[:: len(kept) + 1] += self.noise_variance
        return kept


def covariance_of(moments, *, center=None, count=None):
    """Return count, mean and covariance of released moments.

    Parameters
    ----------
    moments : Moments
        Of one set of rows (use `Moments.pooled` for classes).
    center : array of shape (n_features,) or None, default=None
        A released mean about which ``moments.second`` was taken (two-round centring); None: taken about zero, and
        the mean is ``moments.sum / count``.
    count : float or None, default=None
        Number of rows where it is public (replace_one); None uses the released one.

    Returns
    -------
    (float, array of shape (n_features,), array of shape (n_features, n_features))
        The count is at least 1, the covariance symmetric (its eigenvalues may be negative).
    """
    count = max(float(moments.count if count is None else count), 1.0)
    degrees = max(count - 1.0, 1.0)
    if center is not None:
        covariance = moments.second / degrees
        mean = np.asarray(center, dtype=np.float64)
    else:
        mean = moments.sum / count
        covariance = (moments.second - count * np.outer(mean, mean)) / degrees
    return count, mean, (covariance + covariance.T) / 2


def principal_components(moments, n_components=None, *, offset=0.0, scale=1.0, center=None, count=None):
    """Find the leading eigenvectors of the covariance of released moments.

    Parameters
    ----------
    moments : Moments
        Released; of scaled rows ``z = (x - offset) / scale``.
    n_components : int, float in (0, 1) or None, default=None
        A float is the share of the released variance to keep; None keeps every direction.
    offset, scale : float or array of shape (n_features,)
        Public; the result is in the units of x.
    center, count
        As in `covariance_of`; `center` in the units of z.

    Returns
    -------
    PrincipalComponents
        Eigenvalues are floored at 0; signs as in scikit-learn (the largest entry of a component is positive).
    """
    count, mean, covariance = covariance_of(moments, center=center, count=count)
    scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), mean.shape)
    values, vectors = np.linalg.eigh(covariance * scale * scale[:, None])
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    _, components = svd_flip(vectors, np.ascontiguousarray(vectors.T), u_based_decision=False)
    total = float(values.sum())
    k = _how_many(n_components, values)
    return PrincipalComponents(
        components=components[:k].copy(),
        mean=mean * scale + offset,
        explained_variance=values[:k].copy(),
        total_variance=total,
        noise_variance=float(values[k:].mean()) if k < len(values) else 0.0,
        count=count,
    )


def _how_many(n_components, values):
    if n_components is None:
        return len(values)
    if 0 < n_components < 1:
        shares = np.cumsum(values) / max(values.sum(), 1e-300)
        return int(min(np.searchsorted(shares, n_components, side="right") + 1, len(values)))
    return int(n_components)
