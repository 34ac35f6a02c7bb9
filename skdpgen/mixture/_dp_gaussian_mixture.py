"""A Gaussian mixture fitted by differentially private EM, or one Gaussian for each class."""

from __future__ import annotations

from functools import partial
from inspect import signature
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
import pandas as pd
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._base import PRIVACY_CONSTRAINTS, PrivateEstimator
from .._parameters import SPLIT_CONSTRAINTS, UNIT_CONSTRAINTS
from ..accounting import Phase
from ..data.labels import (
    check_list_of_classes,
    class_labels,
    declared_codes,
    label_codes,
    learn_classes,
    sorted_classes,
    with_dtype,
)
from ..data.rows_per_unit import LearnedRowsMixin, max_rows_phases, row_count_phases
from ..data.scaling import check_bounds, check_inside, learn_scaling, scaling_phases
from ..data.units import read_groups, take_groups
from ..exceptions import InvalidInputError
from ..mechanisms import add_gaussian, check_bound, class_moments, clip_rows, moments, total, unpack_moments
from ..utils.callers import warn_user
from ..utils.printing import shown
from ..utils.validation import (
    MOST_UNITS,
    Interval,
    StrOptions,
    as_numbers,
    check_model_size,
    fit_context,
    validate_rows,
)
from ._em import GaussianMixtureParameters, TransformedRows, class_gaussians, dp_em, initial_mixture

# Shares of the budget left after the bounds: for the classes of y, and for the moments that initialise EM.
_CLASSES_SHARE = 0.05
_INITIAL_SHARE = 0.15
# Floor of a class's variances, in deviations of the noise of one entry of its covariance.
_NOISE_FLOOR = 2.0
# A component has so many deviations of the noise of its count, or the noise hides it.
_HIDDEN = 3.0
# EM has not settled when its last step moved a mean by more than this share of the norm bound, noise aside.
_SETTLED = 0.01


class DPGaussianMixture(DensityMixin, LearnedRowsMixin, PrivateEstimator):
    """Gaussian mixture that releases the noisy sums of each EM iteration, or with y the noisy moments of each class.

    Parameters
    ----------
    n_components : int, default=1
        Number of components; not used with y, which gives one for each class. Several need many rows without y: a
        warning says how many the noise hides.
    covariance_type : {"full", "diag"}, default="full"
    epsilon : float or None, default=1.0
        Budget of a fit. ``numpy.inf`` is the non-private reference; None is all that is left of `accountant`.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee; None: that of `accountant`, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        Neighbouring relation; None: that of `accountant`, else "add_or_remove_one".
    accountant : PrivacyAccountant or None, default=None
        Accountant to charge; None: a separate accountant with this budget.
    n_iter : int, default=8
        Number of EM iterations with several components. It is fixed, because stopping by the likelihood would depend
        on the rows. The noise of each iteration grows with it. With y, or one component, there is none.
    bounds : pair (low, high), one pair a column, or None, default=None
        Public bounds of the values, which are clipped to them. None: learned under differential privacy.
    l2_bound : float or None, default=None
        Public bound of the norm of a row after its columns are scaled to the unit box. None: learned under
        differential privacy.
    budget_split : dict or None, default=None
        Shares of the budget: {"bounds": .05} is that of learned `bounds`, and the default; half of it is for a learned
        `l2_bound`. Declared bounds cost nothing.
    classes : array-like or None, default=None
        Public classes of y; refused without y. None: learned under differential privacy when y is given.
    shrinkage : float, default=0.1
        With y, and refused without it: weight of the pooled within-class covariance in the covariance of each class.
    min_variance : float, default=1e-4
        Floor of the variances, as a share of the squared norm bound of scaled rows. The noise of a released covariance
        is a floor too.
    means_init : array-like of shape (n_components, n_features) or None, default=None
        Public initial means, in the units of X; refused where there is no EM (with y, or one component). None: drawn
        around released moments, which are part of the budget.
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
        Seed of the initialisation and of `sample`, never of the noise: two fits with one seed differ.

    Attributes
    ----------
    weights_ : array of shape (n_components_,)
    means_ : array of shape (n_components_, n_features_in_)
    covariances_ : array of shape (n_components_, n_features_in_[, n_features_in_])
    n_components_ : int
    count_ : float
        Released number of rows.
    classes_ : array of shape (n_components_,)
        With y only: declared or released, sorted; component k is class k.
    scaling_ : RowScaling
        Bounds of columns and rows, declared or released.
    accountant_ : PrivacyAccountant
        Accountant that the fit charged.
    card_ : PrivacyCard
    n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    .. [1] M. Park, J. Foulds, K. Chaudhuri and M. Welling, DP-EM: differentially private expectation maximization,
       AISTATS 2017 (here with one joint release in each iteration instead of 2K + 1).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen import DPGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-2, 0.3, (20_000, 1)), rng.normal(2, 0.3, (20_000, 1))])
    >>> mixture = DPGaussianMixture(2, epsilon=1.0, bounds=(-4, 4), means_init=[[-1.0], [1.0]]).fit(X)
    >>> np.abs(mixture.means_).round(1).ravel()
    array([2., 2.])
    """

    _parameter_constraints: ClassVar[dict] = {
        **PRIVACY_CONSTRAINTS,
        **UNIT_CONSTRAINTS,
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "covariance_type": [StrOptions({"full", "diag"})],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "bounds": ["array-like", None],
        "l2_bound": [Interval(Real, 0, None, closed="neither"), None],
        **SPLIT_CONSTRAINTS,
        "classes": ["array-like", None],
        "shrinkage": [Interval(Real, 0, 1, closed="both")],
        "min_variance": [Interval(Real, 1e-12, 1, closed="left")],
        "means_init": ["array-like", None],
        "on_invalid": [StrOptions({"clip", "raise"})],
    }

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        epsilon=1.0,
        delta=None,
        neighboring=None,
        accountant=None,
        n_iter=8,
        bounds=None,
        l2_bound=None,
        budget_split=None,
        classes=None,
        shrinkage=0.1,
        min_variance=1e-4,
        means_init=None,
        on_invalid="clip",
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
    ):
        self.n_components, self.covariance_type, self.n_iter = n_components, covariance_type, n_iter
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.bounds, self.l2_bound, self.budget_split, self.classes = bounds, l2_bound, budget_split, classes
        self.shrinkage, self.min_variance = shrinkage, min_variance
        self.means_init, self.on_invalid = means_init, on_invalid
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state = noise, random_state

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, groups=None):
        """Release the sums of each EM step, or with y the moments of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers, one row a person, or with `groups` several.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels.
        groups : array-like of shape (n_samples,), default=None
            Identifiers of the units of the rows, of any dtype.

        Returns
        -------
        self

        Notes
        -----
        **Privacy.** The unit is one row with its label, or with `groups` all rows of one unit, under `neighboring`.
        Charged before anything is released, and together (`epsilon`, `delta`): without y, one Gaussian event for each
        iteration and one for the initialisation; with y, one for the moments of all classes, and one with a share of
        delta for `classes` not declared; and one for each of `bounds` and `l2_bound` not declared.
        """
        return self._fit(X, y, groups)

    def _prepare(self, X, y, accountant, groups=None):
        X, groups = take_groups(self, X, groups)
        containers = _frame_maker(X), _series_maker(y)
        X = validate_rows(self, X)
        ids = read_groups(groups, len(X), self._unit, self._asked_unit.missing)
        entries = X.shape[1] ** (2 if self.covariance_type == "full" else 1)
        check_model_size(self.n_components * entries, n_components=self.n_components)
        bounds = check_bounds(self.bounds, X.shape[1])
        if self.l2_bound is not None:
            check_bound(self.l2_bound)
        if self.on_invalid == "raise":
            check_inside(X, bounds)
        if self.classes is not None and y is None:
            raise ValueError("classes is used only with y: give y, or leave classes out")
        if self.means_init is not None and (y is not None or self.n_components == 1):
            raise ValueError("means_init is used only without y and with n_components above 1: leave it out")
        if y is None and self.shrinkage != signature(DPGaussianMixture).parameters["shrinkage"].default:
            raise ValueError("shrinkage is used only with y: leave it out")
        means_init = self._check_means_init(X.shape[1])
        labels = None if y is None else _check_y(y, len(X))
        classes = None if labels is None or self.classes is None else sorted_classes(self.classes)
        codes = None if classes is None else declared_codes(labels, classes)
        learns_names = labels is not None and classes is None
        plan = self._calibrate(accountant, self._phases(labels is not None), learns_names=learns_names)
        return (X, bounds, means_init, labels, classes, codes, containers, ids), plan

    def _complete(self, rows, plan, rng):
        X, bounds, means_init, labels, classes, codes, (frame, series), ids = rows
        sizes, n_rows = None, None
        if ids is not None:
            used, plan = self._keep_rows(ids, plan, rng)
            labels, codes = (None if part is None else part[used.rows] for part in (labels, codes))
            X, sizes = X[used.rows], used.unit_sizes
            if "row_count" in plan.noise_multipliers:
                counted = total(used.n_per_unit, plan.unit.max_rows, of_units=True)
                n_rows = float(add_gaussian(counted, plan.noise_multipliers["row_count"], rng, plan.relation)[0])
        neighboring, options = plan.relation, {"unit_sizes": sizes}
        self.scaling_ = learn_scaling(X, bounds, self.l2_bound, plan.noise_multipliers, rng, neighboring, **options)
        if labels is not None and classes is None:
            noise = plan.noise_multipliers["classes"]
            kept = learn_classes(labels, noise, plan.extra_delta, rng, neighboring, unit_sizes=sizes)
            # made of the released classes alone: the dtype of all labels depends on the longest one
            classes = np.array(kept)
            # where the noise hides every class, one Gaussian stands for all rows
            codes = label_codes(labels, kept) if kept else np.zeros(len(X), dtype=np.int64)
        if labels is None:
            fitted = self._fit_em(X, means_init, plan, rng, neighboring, sizes)
        else:
            fitted = self._fit_classes(X, codes, max(len(classes), 1), plan, rng, neighboring, sizes)
            self.classes_ = classes
            self._series = series
        self._frame = frame
        self._keep(fitted.affine(self.scaling_.offset, self.scaling_.scale))
        if n_rows is not None:
            self.count_ = max(n_rows, 1.0)
        self._issue_card(plan, rng, self._public_assumptions(labels is not None))

    def _phases(self, with_labels):
        share = self._share("bounds")
        of_units = [*max_rows_phases(self._unit, share), *row_count_phases(self._unit, share)]
        phases = [*of_units, *scaling_phases(self.bounds, self.l2_bound, share)]
        rest = 1.0 - sum(phase.share for phase in phases)
        if rest <= 0:
            raise ValueError(f'"bounds": {self._share("bounds"):g} of budget_split leaves nothing for the model')
        if with_labels and self.classes is None:
            phases.append(Phase("classes", rest * _CLASSES_SHARE))
            rest *= 1 - _CLASSES_SHARE
        if with_labels or self.n_components == 1:
            return [*phases, Phase("moments", rest)]
        if self.means_init is None:
            phases.append(Phase("start", rest * _INITIAL_SHARE))
            rest *= 1 - _INITIAL_SHARE
        return [*phases, Phase("em", rest, steps=self.n_iter)]

    def _fit_classes(self, X, codes, n_classes, plan, rng, neighboring, unit_sizes=None):
        """Fit one Gaussian for each class from label-conditional moments: one release for any number of classes."""
        noise_multiplier, radius = plan.noise_multipliers["moments"], self.scaling_.l2_bound
        sums = class_moments(
            X,
            codes,
            n_classes,
            l2_bound=radius,
            transform=self.scaling_.transform,
            exact=noise_multiplier > 0,
            unit_sizes=unit_sizes,
        )
        released = unpack_moments(add_gaussian(sums, noise_multiplier, rng, neighboring), X.shape[1], radius)
        noise = noise_multiplier * sums.sensitivity(neighboring)
        min_count = max(1.0, noise / sums.weights[0])
        # An eigenvalue below the noise of the covariance is arbitrary and may be zero: a nearly singular class gives
        # rows beside its plane a density of almost zero.
        blur = _NOISE_FLOOR * noise / np.maximum(released.count, min_count)
        _warn_of_noise(released, noise, min_count, radius)
        return class_gaussians(
            released,
            shrinkage=self.shrinkage,
            covariance_type=self.covariance_type,
            min_variance=np.clip(blur, self.min_variance, 1 / X.shape[1]) * radius**2,
            max_variance=radius**2,
            min_count=min_count,
        )

    def _fit_em(self, X, means_init, plan, rng, neighboring, unit_sizes=None):
        radius, d = self.scaling_.l2_bound, X.shape[1]
        if self.n_components == 1:
            return self._fit_classes(X, np.zeros(len(X), dtype=np.int64), 1, plan, rng, neighboring, unit_sizes)
        public = {"covariance_type": self.covariance_type, "min_variance": self.min_variance * radius**2}
        if means_init is None:
            initial = self._initial_parameters(X, plan, rng, neighboring, radius, public, unit_sizes)
        else:
            wide = np.full((self.n_components, d), radius**2 / (4 * d))
            if self.covariance_type == "full":
                wide = wide[:, :, None] * np.eye(d)
            means = self.scaling_.transform(means_init)
            weights = np.full(self.n_components, 1 / self.n_components)
            initial = GaussianMixtureParameters(weights, clip_rows(means, radius), wide, self.covariance_type)
        steps, noise_multiplier = [], plan.noise_multipliers["em"]
        fitted = dp_em(
            TransformedRows(X, self.scaling_.transform),
            initial,
            n_iter=self.n_iter,
            noise_multiplier=noise_multiplier,
            rng=rng,
            neighboring=neighboring,
            radius=radius,
            min_variance=public["min_variance"],
            noise_floor=True,
            steps=steps,
            unit_sizes=unit_sizes,
        )
        if noise_multiplier > 0:
            _warn_of_hidden_components(steps, radius)
        _warn_if_unsettled(steps, radius)
        return fitted

    def _initial_parameters(self, X, plan, rng, neighboring, radius, public, unit_sizes=None):
        noise_multiplier = plan.noise_multipliers["start"]
        options = {"transform": self.scaling_.transform, "exact": noise_multiplier > 0, "unit_sizes": unit_sizes}
        sums = moments(X, l2_bound=radius, **options)
        released = unpack_moments(add_gaussian(sums, noise_multiplier, rng, neighboring), X.shape[1], radius)
        count = max(float(released.count), 1.0, noise_multiplier * sums.sensitivity(neighboring) / sums.weights[0])
        mean = released.sum / count
        covariance = released.second / count - np.outer(mean, mean)
        seed = None if self.random_state is None else check_random_state(self.random_state).randint(2**31 - 1)
        return initial_mixture(
            mean, covariance, self.n_components, np.random.default_rng(seed), radius=radius, **public
        )

    def _keep(self, parameters):
        self._parameters = parameters
        self.weights_, self.means_ = parameters.weights, parameters.means
        self.covariances_ = parameters.covariances
        self.n_components_ = parameters.n_components
        self.count_ = parameters.count

    def fit_predict(self, X, y=None, groups=None):
        """Fit to the rows, which is charged, and return `predict` of them: private, not a release."""
        return self.fit(X, y, groups).predict(X)

    def predict(self, X):
        """Return the most probable component, or class when fitted with y, of each row: private, not a release."""
        best = self._responsibilities(X).argmax(axis=1)
        return self.classes_[best] if self._has_classes() else best

    def predict_proba(self, X):
        """Return the probability of each component given each row, shape (n_samples, n_components_): private."""
        return self._responsibilities(X)

    def score_samples(self, X):
        """Return the log density at each row, in the units of X.

        The rows are clipped as in `fit`. Computed from private rows without protection; do not publish.
        """
        rows = self._rows(X)
        return self._parameters.log_prob(rows)

    def score(self, X, y=None):
        """Return the mean log-likelihood of the rows; computed without protection, do not publish."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples=None, *, y=None, class_ratio=None, random_state=None):
        """Draw rows from the released mixture: post-processing, which costs nothing.

        Parameters
        ----------
        n_samples : int or None, default=None
            Number of rows; None is the released one.
        y : array-like or None, default=None
            Classes of the rows to draw, when fitted with y; `n_samples` is then their number.
        class_ratio : array-like of shape (n_components_,) or None, default=None
            Weights of the components (classes) instead of the released ones.
        random_state : int, RandomState instance or None, default=None
            Seed. None advances the stream that `random_state` of the estimator seeded, so that two calls differ.

        Returns
        -------
        X : array or DataFrame of shape (n_samples, n_features_in_)
            In the container given to `fit`.
        labels : array or Series of shape (n_samples,)
            Components, or classes when fitted with y.
        """
        check_is_fitted(self)
        rng = self._sampler(random_state)
        if y is not None:
            if not self._has_classes():
                raise ValueError("y is given, but the mixture was fitted without y: leave it out")
            check_list_of_classes(y)
            codes = declared_codes(y, self.classes_)
            if n_samples is not None and n_samples != len(codes):
                raise ValueError(f"n_samples={n_samples} and {len(codes)} labels were given")
        else:
            n = max(1, round(self.count_)) if n_samples is None else n_samples
            if not isinstance(n, Integral) or n < 1:
                raise ValueError(f"n_samples must be a whole number of at least 1; got {shown(n_samples)}")
            codes = rng.choice(self.n_components_, size=n, p=self._ratio(class_ratio))
        order = np.argsort(codes, kind="stable")
        drawn, _ = self._parameters.sample(len(codes), rng, counts=np.bincount(codes, minlength=self.n_components_))
        X = np.empty_like(drawn)
        X[order] = drawn
        labels = self.classes_[codes] if self._has_classes() else codes
        if self._has_classes() and self._series is not None:
            labels = self._series(labels)
        return (X if self._frame is None else self._frame(X)), labels

    def _ratio(self, class_ratio):
        if class_ratio is None:
            return self.weights_
        ratio = np.asarray(class_ratio, dtype=np.float64)
        if ratio.shape != self.weights_.shape or not (ratio >= 0).all() or not 0 < ratio.sum() < np.inf:
            raise ValueError(f"class_ratio must be {self.n_components_} numbers of at least 0, not all 0")
        return ratio / ratio.sum()

    def _has_classes(self):
        return len(getattr(self, "classes_", ())) > 0

    def _responsibilities(self, X):
        rows = self._rows(X)
        return self._parameters.responsibilities(rows)

    def _rows(self, X):
        check_is_fitted(self)
        return self.scaling_.clip(validate_rows(self, X, reset=False))

    def _check_means_init(self, n_features):
        if self.means_init is None:
            return None
        means = as_numbers(self.means_init, "means_init")
        if means.shape != (self.n_components, n_features) or not np.isfinite(means).all():
            raise InvalidInputError(
                f"means_init must be finite and of shape (n_components, n_features) = ({self.n_components}, "
                f"{n_features}); got shape {means.shape}"
            )
        return means

    def _public_assumptions(self, with_labels):
        declared = [name for name in ("bounds", "l2_bound", "classes", "means_init") if getattr(self, name) is not None]
        columns = "number and order of columns" + (", kind (dtype) of y" if with_labels else "")
        return [*(f"{name}: declared public by the caller" for name in declared), columns]


def _check_y(y, n_rows):
    labels = class_labels(y, n_rows)
    if labels.dtype.kind == "f":  # the dtype decides, never the values
        raise InvalidInputError(
            f"y must hold class labels, but its dtype {labels.dtype} is that of numbers. Give y as integers or text "
            "to fit one Gaussian for each class, or leave it out"
        )
    return labels


def _frame_maker(X):
    """Return a function that makes frames with the columns of `X`; None if `X` is no DataFrame."""
    return partial(pd.DataFrame, columns=X.columns) if isinstance(X, pd.DataFrame) else None


def _series_maker(y):
    """Return a function that makes Series with the name and dtype of `y`; None if `y` is no Series."""
    if not isinstance(y, pd.Series):
        return None
    # the categories of a categorical are private, and so is its dtype: that of the released classes is taken
    dtype = None if isinstance(y.dtype, pd.CategoricalDtype) else with_dtype(y).dtype
    return partial(pd.Series, name=y.name, dtype=dtype)


def _warn_of_noise(released, noise, min_count, radius):
    """Warn, from released values alone, where the noise on most covariances is as large as they are."""
    count = np.maximum(released.count, min_count)
    mean = released.sum / count[:, None]
    variance = np.trace(released.second, axis1=1, axis2=2) / count - np.einsum("ki,ki->k", mean, mean)
    # norm of the symmetric noise on a matrix of moments
    hidden = variance < noise / count * radius**2 * (2 * mean.shape[1]) ** 0.5
    if 2 * hidden.sum() > len(hidden):
        warn_user(
            f"the noise on the covariances is as large as they are in {hidden.sum()} of {len(hidden)} Gaussians: "
            "raise epsilon, fit more rows, reduce the columns (by DPPCA before it), or declare tighter bounds="
        )


def _warn_of_hidden_components(steps, radius):
    """Warn, from released values alone, where components have about as few rows as noise alone gives them."""
    fitted, noise = steps[-1]
    d = fitted.means.shape[1]
    # below three deviations of the noise of a count, or where the noise of the mean exceeds the norm of a row
    hidden = int((noise > radius * min(1.0, d**0.5 / _HIDDEN)).sum())
    if hidden:
        n = fitted.n_components
        warn_user(
            f"{hidden} of {n} components {'have' if hidden > 1 else 'has'} fewer rows than the noise hides: use fewer "
            "components or columns (DPPCA before it), raise epsilon, or give y, which fits one Gaussian for each class"
        )


def _warn_if_unsettled(steps, radius):
    """Warn, from released values alone, where EM has not converged at its last step."""
    if len(steps) < 2:
        return
    (before, _), (after, noise) = steps[-2:]
    moved = np.linalg.norm(after.means - before.means, axis=1)
    # both means carry noise; the mean of a component with fewer rows than that is noise alone
    if (moved > 3 * 2**0.5 * np.minimum(noise, radius) + _SETTLED * radius).any():
        warn_user(
            f"the last of {len(steps)} iterations of EM still moved a mean by {moved.max() / radius:.2g} of the norm "
            "bound: raise n_iter or epsilon, or declare means_init"
        )
