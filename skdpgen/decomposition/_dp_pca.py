"""Differentially private principal component analysis: components of released moments, and the releases."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.extmath import svd_flip
from sklearn.utils.validation import check_is_fitted

from .._base import PRIVACY_CONSTRAINTS, PrivateEstimator
from .._parameters import SPLIT_CONSTRAINTS, UNIT_CONSTRAINTS
from ..accounting import Phase
from ..data.rows_per_unit import LearnedRowsMixin, max_rows_phases
from ..data.scaling import check_bounds, check_inside, learn_scaling, scaling_phases
from ..data.units import read_groups, take_groups
from ..exceptions import InvalidInputError
from ..mechanisms import add_gaussian, check_bound, clip_rows, first_moments, moments, second_moments, unpack_moments
from ..utils.blocks import finer_product, mapped_rows
from ..utils.callers import warn_user
from ..utils.validation import (
    MOST_UNITS,
    ClassNamePrefixFeaturesOutMixin,
    Interval,
    StrOptions,
    fit_context,
    validate_coordinates,
    validate_rows,
)

# Share of the budget for the mean in two-round centring.
_MEAN_SHARE = 0.1
# Default: the distance to the mean is smaller than the norm.
_RESIDUAL_BOUND = 0.85
# The first of all components is hidden if its released variance is below so many times the norm of the noise.
_CLEAR = 1.5


# ---- of released moments: post-processing, which costs nothing ------------------------------------------------------
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

    def project(self, X, offset=0.0, scale=None):
        """Return the coordinates of rows, shape (n_samples, n_components).

        `offset`, `scale`: public; entries of ``(X - offset) / scale`` are at most 4. No row then changes the bits of
            another. None: their product in float64, whose last bits may depend on the place of a row.
        """
        if scale is None:
            return (X - self.mean) @ self.components.T
        matrix = self.components.T * np.reshape(scale, (-1, 1))
        shift = (self.mean - offset) @ self.components.T
        return mapped_rows(lambda rows: finer_product((rows - offset) / scale, matrix) - shift, X, matrix.shape[1])

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
    """Return count, mean and covariance of released moments of one set of rows.

    `center` (n_features,): a released mean about which ``moments.second`` was taken (two-round centring); None: taken
        about zero, and the mean is ``moments.sum / count``.
    `count`: number of rows where it is public (replace_one); None uses the released one.
    Returns the count, which is at least 1, the mean, and the covariance, which is symmetric (its eigenvalues may be
        negative).
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


# ---- the releases ---------------------------------------------------------------------------------------------------
class DPPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LearnedRowsMixin, PrivateEstimator):
    """Principal component analysis that releases noisy moments of the rows, and nothing else.

    One Gaussian release of count, sum and second moments of the clipped rows gives the mean and the covariance, and
    its eigenvectors are post-processing. A drop-in for :class:`sklearn.decomposition.PCA`.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None, default=None
        Number of components. A float is the share of the *released* variance to keep; None keeps all.
    epsilon : float or None, default=1.0
        Budget of a fit. ``numpy.inf`` is the non-private reference; None is all that is left of `accountant`.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee; None: that of `accountant`, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        Neighbouring relation; None: that of `accountant`, else "add_or_remove_one".
    accountant : PrivacyAccountant or None, default=None
        Accountant to charge; None: a separate accountant with this budget.
    bounds : pair (low, high), one pair a column, or None, default=None
        Public bounds of the values, which are clipped to them. None: learned under differential privacy.
    l2_bound : float or None, default=None
        Public bound of the norm of a row after its columns are scaled to the unit box. None: learned under
        differential privacy.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of learned `bounds`, and the default; half of it is for a learned
        `l2_bound`. Declared bounds cost nothing.
    centering : {"joint", "two_round"}, default="joint"
        Number of releases. "two_round" releases the mean first and then the second moments about it, clipped to
        `residual_bound`: better when the mean is a large part of the norm and the budget is small.
    residual_bound : float, default=0.85
        Bound of the distance to the released mean, as a share of `l2_bound`; refused with "joint".
    on_invalid : {"clip", "raise"}, default="clip"
        Whether values outside declared `bounds` are clipped or refused.
    unit : column name, PrivacyUnit or None, default=None
        Who is protected, where a person may have several rows: all rows with one identifier, in this column of a
        DataFrame or in `groups` of `fit`. The column is not modelled. A `PrivacyUnit` also says how the rows of a unit
        count. None: one row.
    max_rows_per_unit : int or None, default=None
        With units: rows of a unit that are used, at most; of a unit with more, they are drawn at random. Public. None:
        learned from a part of the budget, and released as `max_rows_per_unit_`.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise.
    random_state : int, RandomState instance or None, default=None
        Not used: only the noise is random, and it never follows a seed.

    Attributes
    ----------
    components_ : array of shape (n_components_, n_features_in_)
        Principal axes, orthonormal, by decreasing variance.
    mean_ : array of shape (n_features_in_,)
    explained_variance_, explained_variance_ratio_ : arrays of shape (n_components_,)
    noise_variance_ : float
        Mean variance of the directions left out.
    n_components_ : int
    scaling_ : RowScaling
        Bounds of columns and rows, declared or released; `transform` clips by them.
    accountant_ : PrivacyAccountant
        Accountant that the fit charged.
    card_ : PrivacyCard
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    There are no singular values: they would need the exact number of rows, which is private.

    References
    ----------
    .. [1] C. Dwork, K. Talwar, A. Thakurta and L. Zhang, Analyze Gauss: optimal bounds for privacy-preserving
       principal component analysis, STOC 2014 (without their count, mean, and isometric weights).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen import DPPCA
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3)) * [3.0, 1.0, 0.1]
    >>> pca = DPPCA(1, epsilon=1.0, bounds=(-12, 12)).fit(X)
    >>> np.abs(pca.components_).round(1)
    array([[1., 0., 0.]])
    """

    _parameter_constraints: ClassVar[dict] = {
        **PRIVACY_CONSTRAINTS,
        **UNIT_CONSTRAINTS,
        "n_components": [
            Interval(Integral, 1, MOST_UNITS, closed="both"),
            Interval(Real, 0, 1, closed="neither"),
            None,
        ],
        "bounds": ["array-like", None],
        "l2_bound": [Interval(Real, 0, None, closed="neither"), None],
        **SPLIT_CONSTRAINTS,
        "centering": [StrOptions({"joint", "two_round"})],
        "residual_bound": [Interval(Real, 1e-6, 2, closed="both")],
        "on_invalid": [StrOptions({"clip", "raise"})],
    }

    def __init__(
        self,
        n_components=None,
        *,
        epsilon=1.0,
        delta=None,
        neighboring=None,
        accountant=None,
        bounds=None,
        l2_bound=None,
        budget_split=None,
        centering="joint",
        residual_bound=_RESIDUAL_BOUND,
        on_invalid="clip",
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
    ):
        self.n_components = n_components
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.bounds, self.l2_bound, self.budget_split = bounds, l2_bound, budget_split
        self.centering, self.residual_bound, self.on_invalid = centering, residual_bound, on_invalid
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state = noise, random_state

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, groups=None):
        """Release the moments of the rows and find their principal components.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers, one row a person, or with `groups` several.
        y : ignored
        groups : array-like of shape (n_samples,), default=None
            Identifiers of the units of the rows, of any dtype.

        Returns
        -------
        self

        Notes
        -----
        **Privacy.** The unit is one row, or with `groups` all rows of one unit, under `neighboring`. Charged before
        anything is released: one Gaussian event for the moments (two with "two_round"), and one for each of `bounds`
        and `l2_bound` that is not declared, together (`epsilon`, `delta`).
        """
        return self._fit(X, y, groups)

    def _prepare(self, X, y, accountant, groups=None):
        X, groups = take_groups(self, X, groups)
        X = validate_rows(self, X, order=None)
        ids = read_groups(groups, len(X), self._unit, self._asked_unit.missing)
        if self.n_components is not None and self.n_components > X.shape[1]:
            raise InvalidInputError(
                f"n_components={self.n_components} must be at most n_features={X.shape[1]}; nothing was charged"
            )
        bounds = check_bounds(self.bounds, X.shape[1])
        if self.centering == "joint" and self.residual_bound != _RESIDUAL_BOUND:
            raise ValueError('residual_bound is used only with centering="two_round": leave it out')
        if self.l2_bound is not None:
            check_bound(check_bound(self.l2_bound) * self.residual_bound, "l2_bound * residual_bound")
        if self.on_invalid == "raise":
            check_inside(X, bounds)
        return (X, bounds, ids), self._calibrate(accountant, self._phases())

    def _complete(self, rows, plan, rng):
        X, bounds, ids = rows
        sizes = None
        if ids is not None:
            kept, plan = self._keep_rows(ids, plan, rng)
            X, sizes = X[kept.rows], kept.unit_sizes
        relation, options = plan.relation, {"unit_sizes": sizes}
        self.scaling_ = learn_scaling(X, bounds, self.l2_bound, plan.noise_multipliers, rng, relation, **options)
        noise_norm = self._release(X, plan, rng, relation, sizes)
        self._issue_card(plan, rng, self._public_assumptions())
        self._warn_of_noise(noise_norm)

    def _phases(self):
        learned = scaling_phases(self.bounds, self.l2_bound, self._share("bounds"))
        learned = [*max_rows_phases(self._unit, self._share("bounds")), *learned]
        rest = 1.0 - sum(phase.share for phase in learned)
        if rest <= 0:
            raise ValueError(f'"bounds": {self._share("bounds"):g} of budget_split leaves nothing for the moments')
        if self.centering == "joint":
            return [*learned, Phase("moments", rest)]
        return [*learned, Phase("mean", rest * _MEAN_SHARE), Phase("moments", rest * (1 - _MEAN_SHARE))]

    def _release(self, X, plan, rng, neighboring, unit_sizes=None):
        noise_multiplier = plan.noise_multipliers["moments"]
        query = {"transform": self.scaling_.transform, "exact": noise_multiplier > 0, "unit_sizes": unit_sizes}
        d, l2_bound = X.shape[1], self.scaling_.l2_bound
        # Under replace_one the number of rows is public, and exact; that of the rows of units is not.
        count = float(len(X)) if neighboring == "replace_one" else None
        center = None
        if self.centering == "joint":
            sums = moments(X, l2_bound=l2_bound, **query)
            released = unpack_moments(add_gaussian(sums, noise_multiplier, rng, neighboring), d, l2_bound)
            if count is None:
                count = _above_noise(released.count, noise_multiplier, sums, neighboring)
        else:
            sums, noise_of_mean = first_moments(X, l2_bound=l2_bound, **query), plan.noise_multipliers["mean"]
            first = add_gaussian(sums, noise_of_mean, rng, neighboring)
            if count is None:
                count = _above_noise(first[0], noise_of_mean, sums, neighboring)
            center = clip_rows(first[None, 1:] * l2_bound / count, l2_bound)[0]
            query["transform"] = _Residual(self.scaling_, center)
            l2_bound *= self.residual_bound
            sums = second_moments(X, l2_bound=l2_bound, **query)
            released = unpack_moments(add_gaussian(sums, noise_multiplier, rng, neighboring), d, l2_bound)
        scaling = self.scaling_
        fitted = principal_components(
            released, self.n_components, offset=scaling.offset, scale=scaling.scale, center=center, count=count
        )
        self.components_ = fitted.components
        self.mean_ = fitted.mean
        self.explained_variance_ = fitted.explained_variance
        self.explained_variance_ratio_ = fitted.explained_variance / max(fitted.total_variance, 1e-300)
        self.noise_variance_ = fitted.noise_variance
        self.n_components_ = len(fitted.components)
        self._principal = fitted
        # Norm of a symmetric noise matrix with deviation sd / sqrt(2) off the diagonal, in the units of the user:
        # sd sqrt(2 d) when all scales are equal.
        sd = noise_multiplier * sums.sensitivity(neighboring) * l2_bound**2 / fitted.count
        return sd * 2**0.5 * scaling.scale.max() * np.linalg.norm(scaling.scale)

    def _warn_of_noise(self, noise_norm):
        """Warn, from released values alone, where the last component is noise; where all are kept, the first one."""
        least, most = self.explained_variance_[-1], self.explained_variance_[0]
        if self.n_components is None and _CLEAR * noise_norm > most:
            warn_user(
                f"the noise of the released covariance ({noise_norm:.3g}) hides the components: the largest variance "
                f"is {most:.3g}. Spend more epsilon, or declare bounds= (tight ones) and l2_bound=, if they are public"
            )
        if self.n_components is not None and noise_norm > least:
            warn_user(
                f"the noise of the released covariance ({noise_norm:.3g}) is above the variance of the last of the "
                f"{self.n_components_} components ({least:.3g}): spend more epsilon, keep fewer components, or "
                "declare tighter bounds"
            )

    def transform(self, X):
        """Project rows, clipped as in `fit`, on the components.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_components_)
            One row for each record given: private, not a release.
        """
        check_is_fitted(self)
        X = validate_rows(self, X, reset=False)
        return self._principal.project(self.scaling_.clip(X), self.scaling_.offset, self.scaling_.scale)

    def inverse_transform(self, X):
        """Return rows of shape (n_samples, n_features_in_) from coordinates of shape (n_samples, n_components_)."""
        check_is_fitted(self)
        return self._principal.reconstruct(validate_coordinates(X, self.n_components_))

    def get_covariance(self):
        """Return the released covariance, without the directions left out: shape (n_features_in_, n_features_in_)."""
        check_is_fitted(self)
        return self._principal.covariance

    def score_samples(self, X):
        """Return the log-likelihood of each row under the probabilistic model of the components.

        Computed from private rows without protection; do not publish.
        """
        check_is_fitted(self)
        X = validate_rows(self, X, reset=False)
        rows = self.scaling_.clip(X) - self.mean_
        values, vectors = np.linalg.eigh(self.get_covariance())
        values = np.maximum(values, 1e-12 * max(values[-1], 1e-300))
        whitened = rows @ vectors
        quadratic = np.einsum("ij,ij,j->i", whitened, whitened, 1 / values)
        return -0.5 * (quadratic + np.log(values).sum() + len(values) * np.log(2 * np.pi))

    def score(self, X, y=None):
        """Return the mean log-likelihood of the rows; computed without protection, do not publish."""
        return float(self.score_samples(X).mean())

    def _public_assumptions(self):
        declared = [name for name in ("bounds", "l2_bound") if getattr(self, name) is not None]
        return [*(f"{name}: declared public by the caller" for name in declared), "number and order of columns"]

    @property
    def _n_features_out(self):
        return self.n_components_


class _Residual:
    """Scaled rows, clipped to the ball of the first round, minus the released mean."""

    def __init__(self, scaling, center):
        self.scaling, self.center = scaling, center

    def __call__(self, X):
        return clip_rows(self.scaling.transform(X), self.scaling.l2_bound) - self.center


def _above_noise(count, noise_multiplier, sums, neighboring):
    """Released number of rows, floored at the deviation of its noise: it is a denominator."""
    return max(float(count), noise_multiplier * sums.sensitivity(neighboring) / float(sums.weights[0]), 1.0)
