"""The parameters of a Gaussian mixture, with its densities and samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

__all__ = ["GaussianMixtureParameters"]


@dataclass(frozen=True, eq=False)
class GaussianMixtureParameters:
    """Weights, means and covariances of a Gaussian mixture: released, so that all methods are post-processing.

    Parameters
    ----------
    weights : array of shape (n_components,)
        Nonnegative, of sum 1.
    means : array of shape (n_components, n_features)
    covariances : array of shape (n_components, n_features) or (n_components, n_features, n_features)
        Positive for "diag", positive definite for "full".
    covariance_type : {"diag", "full"}
    count : float or None, default=None
        Released number of rows behind it, where one was released.
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    covariance_type: str = "diag"
    count: float | None = None

    def __post_init__(self):
        shape = self.means.shape if self.covariance_type == "diag" else (*self.means.shape, self.means.shape[1])
        if self.covariance_type not in ("diag", "full"):
            raise ValueError(f"covariance_type must be 'diag' or 'full'; got {self.covariance_type!r}")
        if self.weights.shape != self.means.shape[:1] or self.covariances.shape != shape:
            raise ValueError(
                f"shapes do not agree: weights {self.weights.shape}, means {self.means.shape}, "
                f"covariances {self.covariances.shape} ({self.covariance_type})"
            )

    @property
    def n_components(self):
        return len(self.weights)

    def component_log_prob(self, X):
        """Return log(weight of k) + log density of k at each row, shape (n_samples, n_components)."""
        X = np.asarray(X, dtype=np.float64)
        columns = [self._log_density(X, k) for k in range(self.n_components)]
        with np.errstate(divide="ignore"):
            return np.stack(columns, axis=1) + np.log(self.weights)

    def log_prob(self, X):
        """Return the log density of the mixture at each row, shape (n_samples,)."""
        return logsumexp(self.component_log_prob(X), axis=1)

    def responsibilities(self, X):
        """Return the probability of each component given each row, shape (n_samples, n_components)."""
        logs = self.component_log_prob(X)
        # before the exponential, so that a row far from every component still gets weights that sum to 1
        logs -= logs.max(axis=1, keepdims=True)
        np.exp(logs, out=logs)
        logs /= logs.sum(axis=1, keepdims=True)
        return logs

    def sample(self, n, rng, *, counts=None):
        """Draw rows.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator
        counts : array of int of shape (n_components,) or None, default=None
            Rows of each component (their order is then that of the components); None draws the components.

        Returns
        -------
        X : array of shape (n, n_features)
        labels : array of int of shape (n,)
        """
        if counts is None:
            labels = rng.choice(self.n_components, size=n, p=self.weights)
        else:
            labels = np.repeat(np.arange(self.n_components), counts)
        X = rng.standard_normal((len(labels), self.means.shape[1]))
        for k in np.unique(labels):
            rows = labels == k
            if self.covariance_type == "diag":
                X[rows] *= np.sqrt(self.covariances[k])
            else:
                X[rows] = X[rows] @ np.linalg.cholesky(self.covariances[k]).T
            X[rows] += self.means[k]
        return X, labels

    def affine(self, offset, scale):
        """Return the distribution of ``offset + scale * x``, column by column."""
        scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), self.means.shape[1:])
        squares = scale**2 if self.covariance_type == "diag" else scale * scale[:, None]
        return GaussianMixtureParameters(
            self.weights, self.means * scale + offset, self.covariances * squares, self.covariance_type, self.count
        )

    @cached_property
    def _whitening(self):
        """Inverse Cholesky factor and log determinant of each full covariance."""
        factors = np.linalg.cholesky(self.covariances)
        identity = np.eye(factors.shape[1])
        return [
            (solve_triangular(factor, identity, lower=True), 2 * np.log(np.diag(factor)).sum()) for factor in factors
        ]

    def _log_density(self, X, k):
        centered = X - self.means[k]
        if self.covariance_type == "diag":
            variances = self.covariances[k]
            quadratic = (centered**2 / variances).sum(axis=1)
            log_det = np.log(variances).sum()
        else:
            inverse, log_det = self._whitening[k]
            whitened = centered @ inverse.T
            quadratic = np.einsum("ij,ij->i", whitened, whitened)
        return -0.5 * (quadratic + log_det + X.shape[1] * np.log(2 * np.pi))
