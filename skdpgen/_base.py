"""PrivateEstimator, the base of all private estimators: the order of a fit, its charge and its card."""

from __future__ import annotations

import math
import os
import warnings
from contextlib import contextmanager, suppress
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from ._parameters import ParameterObject, check_nested, check_split, read_unit, refuse_inner, share_of
from ._types import DELTAS, EPSILONS, NEIGHBORING
from .accounting import PrivacyAccountant, PrivacyCard
from .accounting._calibration import check_noise_of_steps
from .accounting._events import fit_label
from .accounting._facts import array_columns, declared_facts
from .accounting._reservation import CalibratedFit, PhaseRecorder
from .exceptions import PrivacyLeakWarning
from .utils.callers import warn_user
from .utils.foreign_tables import is_foreign_table, library_of, to_pandas
from .utils.forks import ForkSafeLock, process_identity
from .utils.noise import make_noise_generator
from .utils.numerics import usual_numerics
from .utils.printing import type_and_shape
from .utils.validation import (
    BEYOND_CARD,
    EXACT_SCORES,
    SEPARATE_LEDGERS,
    Interval,
    InvalidParameterError,
    Options,
    StrOptions,
    check_parameters,
    count_search_fits,
    inside_search,
    is_finite,
    meta_estimator,
    python_value,
)

# That of the tables of P3GM, PriVAE and DP2-VAE, and of our benchmarks.
DEFAULT_DELTA = 1e-5

PRIVACY_CONSTRAINTS = {
    "epsilon": [Interval(Real, *EPSILONS, closed="both"), Options(Real, {math.inf}), None],
    "delta": [Interval(Real, *DELTAS, closed="both"), None],
    "neighboring": [StrOptions(set(NEIGHBORING)), None],
    "accountant": [PrivacyAccountant, None],
    "noise": [StrOptions({"secure", "fast"})],
    "random_state": [Interval(Integral, 0, 2**32 - 1, closed="both"), np.random.RandomState, None],
}

# How the card states the number of rows of a unit.
MOST_ROWS = "most rows used of one unit"
# Share of delta for the thresholds of learned names: at epsilon 1 the noise is less than 1 % larger without a tenth.
_THRESHOLD_SHARE = 0.1
# What scikit-learn stores on an estimator for its caller, and copies to clones: set_output, routing, callbacks.
_SETTINGS = ("_sklearn_output_config", "_metadata_request", "_skl_callbacks", "_parent_callback_ctx")


class PrivateEstimator(BaseEstimator):
    """Base of the private estimators: validate, plan, charge, and only then release.

    A subclass has the constructor parameters `epsilon`, `delta`, `neighboring`, `accountant`, `noise` and
    `random_state`, and two methods: `_prepare`, before the charge, and `_complete`, after it. Its `fit` calls `_fit`,
    the one order of a fit. A private search calls the two methods itself (`_fit_reserved`).

    Attributes set here: ``accountant_`` (the one that the fit charged) and ``card_`` (the privacy card).
    """

    _parameter_constraints = PRIVACY_CONSTRAINTS
    _unit = None  # who is protected, while a fit lasts; None: one row
    _split_names = ("bounds",)  # entries of `budget_split`
    _takes_tables = False  # whether rows may be text, dates and the like
    _library = None  # of the table that was fitted, where samples are tables of it
    _has_unit_columns = False  # whether `columns` and `shared` of a PrivacyUnit have a meaning

    def __new__(cls, *args, **parameters):
        refuse_inner(cls, parameters)
        return super().__new__(cls)

    def set_params(self, **params):
        """Set parameters of this estimator and, by ``unit__weighting`` and the like, of the objects that it holds."""
        refuse_inner(type(self), params)
        check_nested(self, params)
        return super().set_params(**params)

    # ---- the order of a fit -------------------------------------------------------------------------------------
    def _fit(self, X, y=None, groups=None):
        """Validate the rows, plan, charge, release: each once, in this order."""
        with self._fitting_noted() as (said, charge):
            X, y, groups = self._in_pandas(X, y, groups)
            self._unit = self._resolve_unit(groups)
            planner = self._planner(self._resolve_accountant())
            rows, plan = self._prepare(X, y, planner, *self._groups(groups))
            self._check_rows(rows)
            self._check_prepared(rows, plan)
            said.issue()  # in time: whoever reads them may stop the fit, and where they are errors it costs nothing
            charge.begins(plan, self._how_to_go_on())
            rng = self._charge(planner, plan)  # before it nothing private is released, after it nothing is refunded
            charge.is_made()
            self._complete(rows, plan, rng)
            self._warn_of_callers()
        return self

    def _fit_reserved(self, X, y, plan, reservation, groups=None):
        """Make one of the fits that a search has charged: the releases of `plan`, which `reservation` covers."""
        with self._fitting():
            self._unit = self._resolve_unit(groups)
            rows, plan = self._prepare(X, y, CalibratedFit(plan), *self._groups(groups))
            rng = make_noise_generator(self.noise)
            rng.unit = plan.unit
            self._receipt, accountant = reservation.take(plan, private=rng.private)
            self._begin_release(accountant)
            self._complete(rows, plan, rng)
        return self

    def _in_pandas(self, X, y, groups):
        """Return tables of polars, pyarrow and the like as those of pandas, where the estimator takes tables."""
        if not self._takes_tables or not is_foreign_table(X):
            return X, y, groups
        if (library := library_of(X)) is not None:
            self._library = library
        return to_pandas(X), to_pandas(y), to_pandas(groups)

    def _prepare(self, X, y, accountant):
        """Validate rows and parameters; return ``rows, plan``, the plan from public facts alone.

        Of the accountant it uses `neighboring`, `fixed_phases` and, through `_calibrate`, `calibrate`. An estimator
        with a parameter `unit` takes one more argument, the identifiers that `fit` was given.
        """
        raise NotImplementedError

    def _complete(self, rows, plan, rng):
        """Make all releases of a charged plan, set the fitted attributes, and end with `_issue_card`."""
        raise NotImplementedError

    def _planner(self, accountant):
        """Return what plans and charges the fit: the accountant, or what replaces it in a fit that goes on."""
        return accountant

    def _how_to_go_on(self):
        """Return a function that says how to resume the charged fit where it ends early, or None."""
        return None

    def _check_rows(self, rows):
        """Refuse rows that a fit of all of them, and no run of a search, may refuse: runs come after the charge."""

    def _check_prepared(self, rows, plan):
        """Make the last checks before the charge."""

    def plan(self, X, y=None, groups=None):
        """Return what `fit` on these data would charge: nothing is charged, released or stored.

        **Privacy**: the rows are validated; the plan depends on public facts alone.

        Parameters
        ----------
        X, y, groups
            As in `fit`.

        Returns
        -------
        FitPlan
            With the noise of each release; for ``accountant.plan([a.plan(X), b.plan(X)])``, which charges fits that
            are declared together, without the extra cost of choosing one after the other.

        Raises
        ------
        ValueError
            With ``epsilon=None``: the epsilon that is left is known only when `fit` is called.
        """
        if self.epsilon is None:
            raise ValueError(
                "epsilon=None means the epsilon that is left when fit is called, and a planned charge would leave "
                "nothing: set epsilon to a number for plan()"
            )
        return self._planned(X, y, groups=groups, described=True, checked=True)

    def _requested(self, X, y, accountant, groups=None):
        """Return the phases that `fit` would release (a `FitRequest`), for a search, which calibrates them itself."""
        recorder = PhaseRecorder(accountant)
        self._planned(X, y, recorder, groups)
        return recorder.request

    def _planned(self, X, y, accountant=None, groups=None, described=False, checked=False):
        trial = clone(self)
        trial._validate_params()
        with trial._fitting():
            X, y, groups = trial._in_pandas(X, y, groups)
            trial._unit = trial._resolve_unit(groups)
            accountant = trial._resolve_accountant() if accountant is None else accountant
            prepared = trial._prepare(X, y, accountant, *trial._groups(groups))
            if checked:
                trial._check_rows(prepared[0])
            return trial._describe(*prepared) if described else prepared[1]

    def _describe(self, prepared, plan):
        """Return the plan with what is public of the prepared rows, from which a `BudgetPlan` tells errors in rows."""
        return plan

    @contextmanager
    def _fitting(self):
        """Make a fit all or nothing: refused before the charge, it changes nothing; failed after, it leaves the charge.

        Within the block the estimator has no fitted attributes but those set in it, and its numbers have the types of
        Python, whatever the caller gave: this is the one place where a fit's parameters are converted. Numpy and torch
        have their usual state, whatever the caller has set (`usual_numerics`). Warnings are delayed to its end, but for
        those that it issues before the charge: where warnings are errors, one would end a fit that is charged. Yields
        the `_DelayedWarnings`.
        """
        with _alone(self):
            yield from self._fitting_alone()

    @contextmanager
    def _fitting_noted(self):
        """`_fitting` of a fit that charges: its errors have a note that says whether it did.

        Yields the `_DelayedWarnings`, and the `_Charge`, which the fit keeps up to date.
        """
        charge = _Charge()
        try:
            with self._fitting() as said:
                yield said, charge
        except BaseException as error:
            charge.note(error, complete="card_" in vars(self))
            raise

    def _fitting_alone(self):
        """The block of `_fitting`, while no other fit of this object runs."""
        parameters = self.get_params(deep=False)
        before = dict(vars(self))
        vars(self).update({name: _converted(value) for name, value in parameters.items()})
        self._forget_fit(parameters)
        delayed = _DelayedWarnings()
        try:
            with delayed, usual_numerics():
                yield delayed
                if self.accountant is None and "card_" in before and not inside_search():
                    _warn_of_refit(before["card_"], self.card_)
            for name in ("_receipt", "_unit"):  # of this fit alone
                vars(self).pop(name, None)
        except BaseException:
            charged = vars(self).get("accountant_")
            self._forget_fit(parameters)
            if charged is None:
                vars(self).update(before)
            else:
                self.accountant_ = charged
            with suppress(Warning):  # a warning that is an error does not hide why the fit failed
                delayed.repeat()
            raise
        finally:
            vars(self).update(parameters)
        delayed.repeat()

    def _validate_params(self):
        parameters = self.get_params(deep=False)
        if isinstance(parameters.get("accountant"), str | os.PathLike):
            raise InvalidParameterError(
                "accountant= takes a PrivacyAccountant: for a ledger file, give PrivacyAccountant(epsilon, delta, "
                "ledger=path), which opens it or makes it"
            )
        check_parameters(type(self).__name__, parameters, self._parameter_constraints)
        for value in parameters.values():
            if isinstance(value, ParameterObject):
                value._validate_params()
        check_split(parameters.get("budget_split"), self._split_names)

    @property
    def _asked_unit(self):
        """PrivacyUnit of the parameters `unit` and `max_rows_per_unit`."""
        return read_unit(self.get_params(deep=False))

    def _share(self, name):
        """Share of the budget of an entry of `budget_split`, "bounds", "clusters" or "target"."""
        return share_of(self.budget_split, name)

    def _forget_fit(self, parameters):
        """Delete all that is neither a parameter nor a setting of the caller: the results of an earlier fit."""
        for name in set(vars(self)).difference(parameters, _SETTINGS):
            delattr(self, name)

    def _warn_of_callers(self):
        """Warn where GridSearchCV, cross_validate, BaggingClassifier or the like makes the fit."""
        own = SEPARATE_LEDGERS if self.accountant is None else ""
        if inside_search():
            warn_user(EXACT_SCORES + own + (own and _sum_of_search(self)), PrivacyLeakWarning)
        elif (name := meta_estimator()) is not None:
            warn_user(f"fitted by {name} of scikit-learn{BEYOND_CARD}{own}", PrivacyLeakWarning)

    def _resolve_unit(self, groups):
        """Return who the fit protects, by its parameters and by whether it has identifiers: a BoundedUnit, or None."""
        parameters = self.get_params(deep=False)
        asked = read_unit(parameters)
        if asked.name is None and groups is None:
            if parameters.get("max_rows_per_unit") is not None:
                raise ValueError("max_rows_per_unit= needs unit=, the column of identifiers, or groups= of fit")
            if parameters.get("unit") is not None:
                raise ValueError(
                    f"{asked!r} needs unit=PrivacyUnit(name), the column of identifiers, or groups= of fit; nothing "
                    "was charged"
                )
            return None
        if "unit" not in parameters:
            raise ValueError(f"groups= is not for {type(self).__name__}, which protects one row; nothing was charged")
        for name in ("columns", "shared"):
            if getattr(asked, name) is not None and not self._has_unit_columns:
                raise ValueError(
                    f"{name}= of PrivacyUnit is not for {type(self).__name__}, which has no synthetic units: leave it "
                    "out; nothing was charged"
                )
        return self._learned_unit(asked) if asked.max_rows is None else asked.bounded()

    def _learned_unit(self, asked):
        """Return a unit of which the fit learns how many rows it uses; refused where it cannot."""
        raise ValueError(
            f"max_rows_per_unit= is missing: how many rows of a unit {type(self).__name__} uses, which does not learn "
            "it. It is public, so choose it without these data; more rows need more noise, and of a unit with more "
            "rows some are left out. Nothing was charged"
        )

    def _groups(self, groups):
        """Further arguments of `_prepare`: the identifiers, where the estimator may have any."""
        return (groups,) if "unit" in self.get_params(deep=False) else ()

    def __sklearn_is_fitted__(self):
        return "card_" in vars(self)

    def _resolve_accountant(self) -> PrivacyAccountant:
        """Return the shared accountant, or a fresh one with this estimator's whole budget."""
        if self.accountant is None:
            if self.epsilon is None:
                raise ValueError(
                    "epsilon=None means the epsilon that is left of the accountant; give an accountant or an epsilon"
                )
            return PrivacyAccountant(
                self.epsilon,
                DEFAULT_DELTA if self.delta is None else self.delta,
                neighboring=self.neighboring or NEIGHBORING[0],
                unit=None if self._unit is None else self._unit.name,
            )
        if self.neighboring not in (None, self.accountant.neighboring):
            raise ValueError(
                f"neighboring={self.neighboring!r} must match accountant.neighboring={self.accountant.neighboring!r}"
            )
        return self.accountant

    def _calibrate(self, accountant, phases, *, learns_names=False):
        """Return the plan with the noise of all `phases` of this fit; it depends on public parameters alone.

        With `learns_names` a part of delta is for the threshold that learned classes and categories must pass.
        """
        phases = [phase for phase in phases if phase.share > 0]
        try:
            plan = accountant.calibrate(
                phases,
                # the ledger names each release, in this order
                label=fit_label(type(self).__name__, accountant, ", ".join(phase.label for phase in phases)),
                epsilon=self.epsilon,
                delta=self.delta,
                extra_delta_share=_THRESHOLD_SHARE if learns_names else 0.0,
                unit=self._unit,
            )
        except ArithmeticError as error:  # a combination beyond the range of floats
            steps = max(phase.steps for phase in phases)
            rates = [f"sampling_rate={phase.sampling_rate:g}" for phase in phases if phase.sampling_rate is not None]
            given = ", ".join([f"epsilon={self.epsilon}", f"delta={self.delta}", f"steps={steps}", *rates])
            raise ValueError(f"no noise can be computed for {given}; nothing was charged") from error
        for phase in plan.phases:
            if phase.sampling_rate is not None and phase.mechanism == "poisson_gaussian":  # steps of DP-SGD
                check_noise_of_steps(plan.noise_multipliers[phase.label])
        return plan

    def _charge(self, accountant, plan, reservation=None):
        """Charge the whole fit, then return the noise generator for its releases.

        Until the fit is over ``self._receipt`` covers its plans of steps (`DPSGDPlan`, `SubsetPlan`). A search charges
        its accountant through a `Reservation`, which then allows its fits.
        """
        rng = make_noise_generator(self.noise)
        charged = accountant if reservation is None else reservation
        rng.unit = plan.unit  # `add_gaussian` compares it with the relation that it is given
        unit = plan.charge.unit
        self._receipt = charged.charge(plan.event, plan.label, plan.extra_delta, private=rng.private, unit=unit)
        self._begin_release(accountant)
        return rng

    def _begin_release(self, accountant):
        self.accountant_ = accountant
        # The stream that `sample` advances: post-processing, so it may follow random_state. Noise never does.
        self._sampling_stream = np.random.default_rng(draw_seed(self.random_state))

    def _issue_card(self, plan, rng, public_assumptions, gradient_noise=None, columns=None, declared=None):
        """Write the privacy card: the last step of a fit, after which the estimator counts as fitted.

        `gradient_noise` is the (description, private) of the noise of DP-SGD, where there was any; `columns` and
        `declared` are the fields of the card, where they are not those of an array and of the parameters.
        """
        self._check_finite(plan)
        description, private = rng.description, rng.private
        if gradient_noise is not None:
            description, private = f"{description}; gradients: {gradient_noise[0]}", private and gradient_noise[1]
        public_assumptions = list(public_assumptions)
        if plan.neighboring == "replace_one":
            what = "rows" if plan.unit is None else "units"
            public_assumptions.append(f"number of {what}: public under replace_one")
        if plan.unit is not None:
            learned = ", learned by this fit" * (self._asked_unit.max_rows is None)
            of_units = [
                f"{MOST_ROWS}: {plan.unit.max_rows}{learned}; which rows belong to one unit is as "
                f"{plan.unit.name!r} says"
            ]
            if self._asked_unit.missing == "own":
                of_units.append(f"rows without {plan.unit.name!r}: each is taken for another unit")
            public_assumptions += [
                text for text in of_units if text not in public_assumptions
            ]  # a search has its run's
        parameters = self._card_parameters()
        declared = declared_facts(parameters) if declared is None else declared
        if columns is None:
            columns = array_columns(getattr(self, "n_features_in_", None), getattr(self, "feature_names_in_", None))
        self.card_ = PrivacyCard.build(
            plan,
            self.accountant_,
            model=type(self).__name__,
            parameters=_plain(parameters, declared),
            public_assumptions=public_assumptions,
            noise=description,
            private=private and math.isfinite(plan.epsilon),
            date=self._receipt.day,  # of the charge: a later day would tell how long the releases took
            columns=columns,
            declared=declared,
        )

    def _card_parameters(self):
        """Return the constructor parameters as the card states them."""
        return self.get_params(deep=False)

    def _check_finite(self, plan):
        """Refuse a model with a number that is not finite; it is released, so the error reveals nothing more."""
        if not is_finite(self._released()):
            raise FloatingPointError(
                f"the fit of {type(self).__name__} gave values that are not finite, and its model is discarded. The "
                f"charge stays: {plan.label!r}, epsilon={plan.epsilon:g} at delta={plan.delta:g}. Check the learning "
                "rate and the bounds: they may be far from the scale of the data"
            )

    def _released(self):
        """Released numbers of the fit: arrays that are attributes."""
        return [value for name, value in vars(self).items() if name.endswith("_") and isinstance(value, np.ndarray)]

    def _seed(self):
        """Seed of initialisations; follows `random_state`, and never draws from the generators of the process."""
        seed = draw_seed(self.random_state)
        return int(np.random.default_rng().integers(2**31)) if seed is None else seed

    def _sampler(self, random_state):
        """Return the generator for one `sample` call: the advancing stream, or a repeatable one if a seed is given."""
        if random_state is None:
            return self._sampling_stream
        if isinstance(random_state, np.random.Generator):
            return random_state
        return np.random.default_rng(draw_seed(random_state))


# objects that are being fitted, each by its process and its identity
_fits = set()
_fits_lock = ForkSafeLock()


@contextmanager
def _alone(estimator):
    """Refuse a fit of an estimator while another fit of it runs: the model would hold parts of both, at one cost."""
    own, begun = (process_identity(), id(estimator)), False
    try:
        with _fits_lock:
            if own in _fits:
                raise RuntimeError(
                    f"this {type(estimator).__name__} is being fitted, in another thread: an object holds one fit. Fit "
                    "a clone in each thread (sklearn.base.clone); nothing was charged"
                )
            begun = True
            _fits.add(own)
        yield
    finally:
        if begun:
            _fits.discard(own)


def draw_seed(random_state):
    """Return a seed that follows a `random_state`, or None for None."""
    return None if random_state is None else int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _converted(value):
    """A parameter with numbers of Python's types, those of a parameter object too."""
    return value.with_python_values() if isinstance(value, ParameterObject) else python_value(value)


def _sum_of_search(estimator):
    """What the fits of a search cost together, where scikit-learn tells how many there are; else nothing."""
    fits = count_search_fits()
    if fits is None or not math.isfinite(estimator.epsilon):
        return ""
    candidates, folds, refits = fits
    total = candidates * folds + refits
    delta = DEFAULT_DELTA if estimator.delta is None else estimator.delta
    return (
        f". This search makes {total} fits ({candidates} candidates in {folds} folds{', and a refit' * refits}): "
        f"together they cost up to epsilon {total * estimator.epsilon:.4g} at delta {total * delta:.2g}"
    )


def _warn_of_refit(first, second):
    """Warn that two fits of one object have separate ledgers: their cards do not show what they cost together."""
    if not (first["private"] and second["private"]):
        return
    one, other = first["fit"], second["fit"]
    if one["delta"] + other["delta"] >= 1:
        return
    warn_user(
        "this object was fitted before, and each of the two fits has a separate ledger. If both used the same rows, "
        f"they cost up to epsilon {one['epsilon'] + other['epsilon']:.4g} at delta "
        f"{one['delta'] + other['delta']:.2g} together, and neither card says so: give one accountant= to all fits "
        "of the same rows",
        PrivacyLeakWarning,
    )


class _Charge:
    """How far the charge of a fit is."""

    def __init__(self):
        self._state, self._plan, self._how_to_go_on = "not begun", None, None

    def begins(self, plan, how_to_go_on=None):
        """What is charged next, and a function that says how such a fit is resumed."""
        self._state, self._plan, self._how_to_go_on = "begun", plan, how_to_go_on

    def is_made(self):
        """The charge is in the ledger."""
        self._state = "made"

    def note(self, error, complete):
        """Add to an error of the fit whether it was charged: a note, which Python shows below it from 3.11 on."""
        if not hasattr(error, "add_note") or "othing was charged" in str(error):
            return
        if self._state == "not begun":
            error.add_note("skdpgen: this call charged nothing")
        elif self._state == "begun" and not isinstance(error, Exception):
            error.add_note("skdpgen: interrupted while the fit was charged: accountant.report() says whether it was")
        elif self._state == "made":
            rest = "the fit is complete, and can be used" if complete else "a charge is never refunded"
            if not complete and self._how_to_go_on is not None and not isinstance(error, Exception):
                rest += self._how_to_go_on()
            cost = f"epsilon {self._plan.epsilon:.4g} at delta {self._plan.delta:.3g}"
            error.add_note(f"skdpgen: this fit was charged {cost}; {rest}")


class _DelayedWarnings:
    """Context that keeps the warnings that are given in it, until they are issued through the filters of the caller."""

    def __init__(self):
        self._said = []

    def __enter__(self):
        self._context = warnings.catch_warnings(record=True)
        self._here = self._context.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *raised):
        self._context.__exit__(*raised)
        self._said += self._here

    def issue(self):
        """Issue within the context what was said so far."""
        self.__exit__(None, None, None)
        try:
            self.repeat()
        finally:
            self.__enter__()

    def repeat(self):
        """Issue the warnings, all of them before the first that is an error is raised."""
        said, self._said, first = self._said, [], None
        for warning in said:
            try:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
            except Warning as error:
                first = first or error
        if first is not None:
            raise first


# Arrays up to this size are written on the card: bounds, classes, weights.
_MOST_NUMBERS = 1024


def _shape_of(rows):
    """Type, shape and names of columns, never a cell."""
    if isinstance(rows, tuple):
        return [_shape_of(part) for part in rows]
    text, columns = type_and_shape(rows), getattr(rows, "columns", None)
    return f"<{text}>" if columns is None else f"<{text}: {', '.join(map(str, columns))}>"


def _is_plain(values, deep=True):
    """Whether a list holds only text and numbers, or, like bounds of columns, lists of them."""
    return all(
        isinstance(value, (str, bool, int, float))
        or (deep and isinstance(value, (list, tuple)) and _is_plain(value, False))
        for value in values
    )


def _plain(parameters, declared=()):
    """Constructor parameters as JSON can hold them; objects by their type, rows by their shape, never by contents.

    Of an object among the `declared` facts the card says that it is listed there.
    """
    out = {}
    for name, value in parameters.items():
        # a path of this machine and what a terminal shows are no facts about the model
        if name in ("accountant", "random_state", "checkpoint", "progress"):
            continue
        if isinstance(value, ParameterObject):
            out[name] = _plain(value.get_params(deep=False))
        elif isinstance(value, (str, bool, int, float, type(None))):
            out[name] = value
        elif isinstance(value, (np.integer, np.floating)):
            out[name] = value.item()
        elif name == "public_data" or (isinstance(value, np.ndarray) and value.size > _MOST_NUMBERS):
            out[name] = _shape_of(value)
        elif isinstance(value, (list, tuple)) and _is_plain(value):
            out[name] = [list(part) if isinstance(part, tuple) else part for part in value]
        elif isinstance(value, np.ndarray):
            out[name] = value.tolist()
        elif isinstance(value, dict) and name == "budget_split":
            out[name] = {entry: python_value(share) for entry, share in value.items()}
        elif (
            isinstance(value, dict) and all(isinstance(key, str) for key in value) and _is_plain(value.values(), False)
        ):
            out[name] = dict(value)
        else:
            out[name] = "<see declared>" if name in declared else f"<{type(value).__name__}>"
    return out
