"""Gaussian mixtures: their parameters, differentially private EM, and one Gaussian for each class."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from ..decomposition._dp_pca import covariance_of
from ..mechanisms import add_gaussian, mixture_sums, unpack_mixture_sums
from ..mechanisms._moments import Moments
from ..utils.blocks import exact_product
from ..utils.numerics import one_blas_thread

# Rows of a block of which responsibilities under full covariances are computed at once; a block is a multiple of it.
_PART = 1 << 10


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

    def component_log_prob(self, X, product=np.matmul):
        """Return log(weight of k) + log density of k at each row, shape (n_samples, n_components).

        `product`: (rows less a mean, matrix) to their product.
        """
        X = np.asarray(X, dtype=np.float64)
        columns = [self._log_density(X, k, product) for k in range(self.n_components)]
        with np.errstate(divide="ignore"):
            return np.stack(columns, axis=1) + np.log(self.weights)

    def log_prob(self, X):
        """Return the log density of the mixture at each row, shape (n_samples,)."""
        return logsumexp(self.component_log_prob(X), axis=1)

    def responsibilities(self, X, product=np.matmul):
        """Return the probability of each component given each row, shape (n_samples, n_components).

        `product`: as in `component_log_prob`.
        """
        logs = self.component_log_prob(X, product)
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

    def _log_density(self, X, k, product):
        centered = X - self.means[k]
        if self.covariance_type == "diag":
            variances = self.covariances[k]
            quadratic = (centered**2 / variances).sum(axis=1)
            log_det = np.log(variances).sum()
        else:
            inverse, log_det = self._whitening[k]
            whitened = product(centered, inverse.T)
            quadratic = np.einsum("ij,ij->i", whitened, whitened)
        return -0.5 * (quadratic + log_det + X.shape[1] * np.log(2 * np.pi))


def dp_em(
    X,
    start,
    *,
    n_iter,
    noise_multiplier,
    rng,
    neighboring,
    radius=1.0,
    min_variance=1e-4,
    noise_floor=False,
    steps=None,
    unit_sizes=None,
):
    """Run `n_iter` steps of EM, each one Gaussian release of the sums of that step.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Rows; those longer than `radius` are clipped.
    start : GaussianMixtureParameters
        Data independent or released.
    n_iter : int
        Fixed in advance: no likelihood stops the loop.
    noise_multiplier : float
        Noise multiplier of each step. The caller charged the event, ``Gaussian(noise_multiplier)``, `n_iter` times.
    rng : NoiseGenerator
    neighboring : {"add_or_remove_one", "replace_one"}
    radius : float, default=1.0
    min_variance : float, default=1e-4
        As in `em_step`. Counts are floored at the standard deviation of their noise.
    noise_floor : bool, default=False
        Whether the standard deviation of the noise of one entry of the covariance of a component is a floor of its
        variances too, at most the variance of rows of norm `radius` in all directions.
    steps : list or None, default=None
        List that gets the parameters after each step and the norm of the noise of each mean, both released.
    unit_sizes : array of int of shape (n_samples,), default=None
        As in `mixture_sums`.

    Returns
    -------
    GaussianMixtureParameters
        Released, with the released number of rows.
    """
    parameters = start
    kind = start.covariance_type

    def product(rows, matrix):  # of rows within 2 `radius` of a mean; no place of a row shows in its last bits
        return exact_product(rows / radius, matrix * radius)

    for _ in range(n_iter):
        responsibilities = parameters.responsibilities
        if noise_multiplier > 0 and kind == "full":
            responsibilities = functools.partial(_in_parts, functools.partial(responsibilities, product=product))
        with one_blas_thread():
            sums = mixture_sums(
                X,
                responsibilities,
                radius=radius,
                covariance_type=kind,
                exact=noise_multiplier > 0,
                unit_sizes=unit_sizes,
            )
        noisy = add_gaussian(sums, noise_multiplier, rng, neighboring)
        released = unpack_mixture_sums(noisy, X.shape[1], radius=radius, covariance_type=kind)
        floor = max(1.0, noise_multiplier * sums.sensitivity(neighboring))  # the weight of counts is 1
        counts, least = np.maximum(released.counts, floor), min_variance
        if noise_floor and noise_multiplier > 0:
            least = np.maximum(np.minimum(floor / counts, 1 / X.shape[1]) * radius**2, min_variance)
        parameters = em_step(released, radius=radius, covariance_type=kind, min_variance=least, min_count=floor)
        if steps is not None:
            steps.append((parameters, floor * radius * X.shape[1] ** 0.5 / counts))
    return parameters


def _in_parts(responsibilities, rows):
    """Responsibilities of the rows of a block, few rows at once: their products then stay in the cache."""
    return np.concatenate([responsibilities(part) for part in np.split(rows, range(_PART, len(rows), _PART))])


def em_step(released, *, radius=1.0, covariance_type="diag", min_variance=1e-4, min_count=1.0):
    """Turn released sums of an EM step into mixture parameters (the M step).

    Parameters
    ----------
    released : MixtureSums
    radius : float, default=1.0
        Means are projected to this ball, and no variance exceeds its square.
    covariance_type : {"diag", "full"}, default="diag"
    min_variance : float or array of shape (n_components,), default=1e-4
        Floor of variances (of eigenvalues with "full"), in the units of the rows squared.
    min_count : float, default=1.0
        Floor of the counts.

    Returns
    -------
    GaussianMixtureParameters
    """
    counts = np.maximum(released.counts, min_count)
    means = _into_ball(released.sums / counts[:, None], radius)
    if covariance_type == "diag":
        covariances = released.seconds / counts[:, None] - means**2
    else:
        covariances = released.seconds / counts[:, None, None] - means[:, :, None] * means[:, None, :]
    covariances = clip_covariances(covariances, min_variance, radius**2, covariance_type)
    count = max(float(released.counts.sum()), 1.0)
    return GaussianMixtureParameters(counts / counts.sum(), means, covariances, covariance_type, count)


def initial_mixture(mean, covariance, n_components, rng, *, radius=1.0, covariance_type="diag", min_variance=1e-4):
    """Draw the initial mixture of EM: means from one Gaussian, all covariances equal.

    Parameters
    ----------
    mean : array of shape (n_features,)
    covariance : array of shape (n_features, n_features)
        Released or data independent.
    n_components : int
    rng : numpy.random.Generator
        For the initial means, not for noise: it may follow a seed.
    radius, covariance_type, min_variance
        As in `em_step`.

    Returns
    -------
    GaussianMixtureParameters
        Weights equal. The means carry half of the variance, and the components the other half.
    """
    covariance = clip_covariances(covariance[None], min_variance, radius**2, "full")[0]
    if n_components == 1:
        means, within = mean[None], covariance
    else:
        draws = rng.standard_normal((n_components, len(mean)))
        means, within = mean + draws @ np.linalg.cholesky(covariance / 2).T, covariance / 2
    if covariance_type == "diag":
        within = np.diag(within)
    covariances = np.repeat(within[None], n_components, axis=0)
    return GaussianMixtureParameters(
        np.full(n_components, 1 / n_components),
        _into_ball(means, radius),
        clip_covariances(covariances, min_variance, radius**2, covariance_type),
        covariance_type,
    )


def class_gaussians(
    moments, basis=None, *, shrinkage=0.1, covariance_type="full", min_variance=1e-4, max_variance=1.0, min_count=1.0
):
    """Return one Gaussian for each class from released class moments, in the space of a released basis.

    Parameters
    ----------
    moments : Moments
        With a leading axis of classes.
    basis : PrincipalComponents or (mean, components) or None, default=None
        A row x has coordinates ``components @ (x - mean)``; None: the coordinates of the rows.
    shrinkage : float in [0, 1], default=0.1
        Weight of the pooled within-class covariance in the covariance of each class; classes with few rows against
        the noise need more.
    covariance_type : {"diag", "full"}, default="full"
    min_variance, max_variance : float or array of shape (n_classes,)
        Bounds of variances (of eigenvalues with "full"), of each class if they are arrays.
    min_count : float, default=1.0
        Floor of the counts; a class below it gets the pooled mean and covariance.

    Returns
    -------
    GaussianMixtureParameters
        Component k is class k; weights are the released class ratio.
    """
    counts = np.maximum(moments.count, min_count)
    means = moments.sum / counts[:, None]
    pooled = Moments(counts.sum(), moments.sum.sum(axis=0), moments.second.sum(axis=0))
    # The mean of an absent class is noise alone; it takes the pooled one.
    absent = moments.count < min_count
    means[absent] = pooled.sum / pooled.count
    scatter = moments.second - counts[:, None, None] * means[:, :, None] * means[:, None, :]
    scatter = np.where(absent[:, None, None], 0.0, scatter)
    present = max(float(counts[~absent].sum()), 1.0)
    within = scatter.sum(axis=0) / present if not absent.all() else covariance_of(pooled)[2]
    share = np.where(absent, 1.0, shrinkage)[:, None, None]
    covariances = (1 - share) * scatter / counts[:, None, None] + share * within
    if basis is not None:
        mean, components = (basis.mean, basis.components) if hasattr(basis, "components") else basis
        means = (means - mean) @ components.T
        covariances = components @ covariances @ components.T
    if covariance_type == "diag":
        covariances = np.diagonal(covariances, axis1=1, axis2=2)
    covariances = clip_covariances(covariances, min_variance, max_variance, covariance_type)
    count = max(float(moments.count.sum()), 1.0)
    return GaussianMixtureParameters(counts / counts.sum(), means, covariances, covariance_type, count)


def clip_covariances(covariances, low, high, covariance_type):
    """Return covariances whose variances ("diag") or eigenvalues ("full") lie in [low, high]: numbers, or one each."""
    low, high = (np.broadcast_to(np.asarray(b, dtype=np.float64), len(covariances))[:, None] for b in (low, high))
    if covariance_type == "diag":
        return np.clip(covariances, low, high)
    values, vectors = np.linalg.eigh((covariances + np.swapaxes(covariances, 1, 2)) / 2)
    if values.size and (low <= values).all() and (values <= high).all():
        return (covariances + np.swapaxes(covariances, 1, 2)) / 2
    values = np.clip(values, low, high)
    return (vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2)


class TransformedRows:
    """Rows of an array, scaled slice by slice, without a scaled copy of the whole."""

    def __init__(self, X, transform):
        self._X, self._transform, self.shape = X, transform, X.shape

    def __getitem__(self, rows):
        return self._transform(self._X[rows])


def _into_ball(means, radius):
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    return means * np.minimum(1.0, radius / np.maximum(norms, 1e-300))
