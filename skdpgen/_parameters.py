"""Parameter objects of constructors: settings that belong together, as one parameter; and the split of a budget.

They are scikit-learn estimators without `fit`: `clone` copies them, and ``unit__weighting`` names one of their
parameters in a grid.
"""

from __future__ import annotations

from numbers import Integral, Real

from sklearn.base import BaseEstimator, clone

from ._types import MISSING_UNITS, MOST_ROWS_PER_UNIT, WEIGHTINGS, BoundedUnit
from .utils.validation import MOST_MOVES, MOST_UNITS, Interval, InvalidParameterError, StrOptions, check_parameters

__all__ = [
    "SPLIT_CONSTRAINTS",
    "UNIT_CONSTRAINTS",
    "ImageFeatures",
    "LatentMixture",
    "ParameterObject",
    "PrivacyUnit",
    "check_nested",
    "check_split",
    "make_objects",
    "read_unit",
    "refuse_moved",
    "share_of",
    "unit_columns",
]

# Shares of the whole budget where `budget_split` does not say otherwise: of each kind of fact that is learned, and of
# the clusters of DP-GM.
_SHARES = {"bounds": 0.05, "clusters": 0.1}
_SHARE = Interval(Real, 1e-6, 1, closed="left")
# Parameters of earlier versions, and where they are now.
_MOVED = {
    "unit_weighting": "unit=PrivacyUnit(..., weighting=...)",
    "missing_unit": "unit=PrivacyUnit(..., missing=...)",
    "unit_columns": "unit=PrivacyUnit(..., columns=...)",
    "bounds_share": 'budget_split={"bounds": ...}',
    "clusters_share": 'budget_split={"clusters": ...}',
    "n_mixture": "prior=LatentMixture(n_components=...)",
    "covariance_type": "prior=LatentMixture(covariance_type=...)",
    "em_steps": "prior=LatentMixture(n_iter=...)",
}


class ParameterObject(BaseEstimator):
    """Base of the parameter objects: validated by the estimator that holds them, before anything is charged."""

    def _validate_params(self):
        check_parameters(type(self).__name__, self.get_params(deep=False))
        super()._validate_params()


class PrivacyUnit(ParameterObject):
    """Who is protected, where a person may have several rows, for the parameter `unit`.

    ``unit="patient_nbr"`` is short for ``unit=PrivacyUnit("patient_nbr")``.

    Parameters
    ----------
    name : column name or None, default=None
        All rows with one identifier in this column of a DataFrame are one unit. The column is neither modelled nor
        sampled. For arrays it is a name, and the identifiers are `groups` of `fit`. None: "unit", with `groups`.
    max_rows : int or None, default=None
        Rows of a unit that are used, at most; of a unit with more, they are drawn at random. Public. None:
        `max_rows_per_unit` of the estimator; where that is None too, it is learned from a part of the budget.
    weighting : {"rows", "units"}, default="rows"
        "rows" counts every row used, and the noise grows with `max_rows`. "units" counts every unit once, its rows in
        equal parts: the noise is that of one row, and the model is that of a random row of a random unit. Where a
        network is trained, the gradient of a unit is the sum, or the mean, over its rows, and is clipped once.
    missing : {"refuse", "own"}, default="refuse"
        Whether a row without an identifier is refused, or is a separate unit.
    columns : column name, sequence of them, or None, default=None
        DataFrames, `MomentSynthesizer` and `P3GMSynthesizer` without a mixture and a network: columns that are constant
        within a unit, such as a year of birth; public. They are constant in synthetic units too
        (``sample(units=1000)``). Where the rows of a real unit differ in them, the first row used counts for the unit.
    shared : column name, sequence of them, or None, default=None
        As `columns`: columns in which the rows of a unit are more alike than those of two units, such as the ward of a
        patient; public. The rows of a synthetic unit are as alike. Rows in memory, or in chunks sorted by unit.

    Examples
    --------
    >>> from skdpgen import MomentSynthesizer, PrivacyUnit
    >>> synth = MomentSynthesizer(1.0, unit=PrivacyUnit("patient_nbr", max_rows=5, weighting="units"))
    >>> synth.set_params(unit__weighting="rows").unit
    PrivacyUnit(max_rows=5, name='patient_nbr')
    """

    _parameter_constraints = {
        "name": [str, Integral, None],
        "max_rows": [Interval(Integral, 1, MOST_ROWS_PER_UNIT, closed="both"), None],
        "weighting": [StrOptions(set(WEIGHTINGS))],
        "missing": [StrOptions(set(MISSING_UNITS))],
        "columns": [str, Integral, list, tuple, None],
        "shared": [str, Integral, list, tuple, None],
    }

    def __init__(self, name=None, max_rows=None, *, weighting="rows", missing="refuse", columns=None, shared=None):
        self.name, self.max_rows = name, max_rows
        self.weighting, self.missing, self.columns, self.shared = weighting, missing, columns, shared

    @property
    def label(self):
        """Name of the unit in ledgers, plans and cards."""
        return "unit" if self.name is None else str(self.name)

    def bounded(self):
        """Return the unit as plans and releases have it; `max_rows` must be set."""
        return BoundedUnit(self.label, self.max_rows, self.weighting)

    def of_plan(self):
        """Return the unit of a plan of steps that is made by hand."""
        if self.missing != "refuse" or self.columns is not None or self.shared is not None:
            raise ValueError("a plan of steps takes no missing=, columns= and shared= of PrivacyUnit")
        return self.bounded()


def unit_columns(unit, which="columns"):
    """Return the `columns` of a PrivacyUnit, or those that are `shared`, as a tuple."""
    given = getattr(unit, which)
    return () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)


class LatentMixture(ParameterObject):
    """A mixture of Gaussians by DP-EM as the distribution of the latents, for the parameter `prior` of P3GM.

    ``prior="mixture"`` is short for ``prior=LatentMixture()``.

    Parameters
    ----------
    n_components : int, default=3
        Number of Gaussians.
    covariance_type : {"full", "diag"}, default="full"
        Type of the covariances.
    n_iter : int, default=8
        Number of steps of DP-EM; each is one release.

    Examples
    --------
    >>> from skdpgen import LatentMixture, P3GMSynthesizer
    >>> P3GMSynthesizer(prior=LatentMixture(5)).set_params(prior__n_iter=10).prior
    LatentMixture(n_components=5, n_iter=10)
    """

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "covariance_type": [StrOptions({"full", "diag"})],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, n_components=3, *, covariance_type="full", n_iter=8):
        self.n_components, self.covariance_type, self.n_iter = n_components, covariance_type, n_iter


class ImageFeatures(ParameterObject):
    """Wavelet features of images, to whose released moments sampled images move, for the parameter `decoder` of P3GM.

    ``decoder="features"`` is short for ``decoder=ImageFeatures()``. More of each makes better images and takes longer:
    ``ImageFeatures(200, n_scales=3, n_steps=48)`` takes ten to twenty times as long to sample.

    Parameters
    ----------
    n_features : int, default=100
        Principal components of the wavelet features of synthetic images, whose moments are released; at most.
    n_scales : {1, 2, 3}, default=2
        Scales of the wavelets: widths of .8, 1.6 and 3.2 pixels.
    n_steps : int, default=8
        Gradient steps of a sampled image; they cost time and no privacy.

    Examples
    --------
    >>> from skdpgen import ImageFeatures, P3GMSynthesizer
    >>> P3GMSynthesizer(decoder=ImageFeatures(n_steps=20)).set_params(decoder__n_features=50).decoder
    ImageFeatures(n_features=50, n_steps=20)
    """

    _parameter_constraints = {
        "n_features": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "n_scales": [Interval(Integral, 1, 3, closed="both")],
        "n_steps": [Interval(Integral, 1, MOST_MOVES, closed="both")],
    }

    def __init__(self, n_features=100, *, n_scales=2, n_steps=8):
        self.n_features, self.n_scales, self.n_steps = n_features, n_scales, n_steps


# Parameter objects by the parameter that may hold one.
_OBJECTS = {"unit": PrivacyUnit, "prior": LatentMixture, "decoder": ImageFeatures}

# Parameters of the estimators that protect persons with several rows.
UNIT_CONSTRAINTS = {
    "unit": [str, Integral, PrivacyUnit, None],
    "max_rows_per_unit": [Interval(Integral, 1, MOST_ROWS_PER_UNIT, closed="both"), None],
}
# Of all of them; `check_split` validates the entries.
SPLIT_CONSTRAINTS = {"budget_split": [dict, None]}


def read_unit(parameters):
    """Return who is protected, as `unit` and `max_rows_per_unit` say: one PrivacyUnit, without a name where none is.

    Parameters
    ----------
    parameters : mapping
        Of an estimator; it may have neither.
    """
    unit, most = parameters.get("unit"), parameters.get("max_rows_per_unit")
    unit = clone(unit) if isinstance(unit, PrivacyUnit) else PrivacyUnit(unit)
    if most is None:
        return unit
    if unit.max_rows is not None:
        raise ValueError(
            "max_rows_per_unit= and max_rows= of PrivacyUnit set the same thing: give one of them; nothing was charged"
        )
    return unit.set_params(max_rows=most)


def make_objects(parameters):
    """Return parameters as files and command lines hold them, with parameter objects where these are dicts."""
    made = dict(parameters)
    for name, kind in _OBJECTS.items():
        if isinstance(given := made.get(name), dict):
            known = kind._get_param_names()
            if unknown := sorted(set(given).difference(known)):
                raise ValueError(f"{name}__{unknown[0]}: {kind.__name__} takes {', '.join(known)}")
            made[name] = kind(**given)
    return made


def check_nested(estimator, params):
    """Raise ValueError for a nested parameter of a parameter object that the estimator does not hold."""
    for name in params:
        outer, _, inner = name.partition("__")
        if not inner or outer not in _OBJECTS:
            continue
        accepted = estimator._parameter_constraints.get(outer)
        if not isinstance(accepted, list) or _OBJECTS[outer] not in accepted:
            continue
        held = params.get(outer, getattr(estimator, outer, None))
        if not hasattr(held, "set_params"):
            raise ValueError(
                f"{name} is of an object that {outer}= holds: give {outer}={_OBJECTS[outer].__name__}() too"
            )


def refuse_moved(owner, names):
    """Raise TypeError for parameters of earlier versions that a class lacks, which says where they are now."""
    for name in names:
        if name in _MOVED and name not in owner._get_param_names():
            raise TypeError(f"{owner.__name__} has no parameter {name!r} any more: give {_MOVED[name]}")


# ---- the split of a budget -----------------------------------------------------------------------------------------
def check_split(split, names):
    """Refuse a `budget_split` with entries that an estimator does not have, or a share that is none.

    Parameters
    ----------
    split : dict or None
    names : sequence of str
        Entries that the estimator has. Those in `_SHARES` are shares of the whole budget; the others are relative to
        one another, and their estimator validates them together.
    """
    if split is None:
        return
    if unknown := [name for name in split if name not in names]:
        raise InvalidParameterError(
            f"budget_split has no entry {unknown[0]!r} here; it takes {', '.join(map(repr, names))}"
        )
    for name in _SHARES.keys() & split.keys():
        if not _SHARE.is_satisfied_by(split[name]):
            raise InvalidParameterError(
                f"budget_split[{name!r}] must be a share of the budget, from 1e-6 to below 1; got {split[name]!r}"
            )


def share_of(split, name):
    """Return the share of the budget of "bounds" or "clusters"."""
    return float((split or {}).get(name, _SHARES[name]))
