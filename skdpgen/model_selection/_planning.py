"""The part of a search before its charge: candidates, the releases of a run, their noise, and a trial on dummy rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler

from .._base import PRIVACY_CONSTRAINTS, PrivateEstimator
from .._parameters import read_unit, share_of
from ..accounting import FitPlan, Phase, gaussian_event, gaussian_mu, non_private_event, repeat_and_select_event
from ..accounting._events import event_of, fit_label, releases
from ..accounting._reservation import calibrate_by_rdp, plan_at
from ..data.labels import with_dtype
from ..data.rows_per_unit import OpenUnit, max_rows_phases, settle_ids
from ..data.units import draw_key, keep_rows, read_groups, take_groups
from ..exceptions import InvalidInputError
from ..tabular._formats import type_of_objects
from ..utils.foreign_tables import only_column
from ..utils.noise import public_noise
from ..utils.validation import is_extension, num_samples
from ..utils.watching import unwatched
from ._dummy import dummy_rows, with_missing
from ._scoring import check_score_bounds, held_terms, same_terms, score_function

# A row is held out with probability 1/cv; the default of cv.
FOLDS = 5
# Probability that all rows are held out, in parts of delta, above which a search is refused.
_ALL_HELD_OUT = 1e-6
# Parameters that a grid may not hold: the search is charged for its candidates, all at one cost.
_REFUSED = ("epsilon", "delta", "neighboring", "accountant", "checkpoint")
# Nor these: all runs protect one unit, and the card says how many of its rows are used.
_OF_UNITS = ("unit", "max_rows_per_unit")


def list_candidates(param_grid, n_candidates, random_state):
    """Return the candidates as a list of dicts.

    `param_grid`: lists of values, or with `n_candidates` also distributions with ``rvs``.
    `n_candidates`: number of candidates to draw; None: every combination.
    `random_state`: seed of the draw.
    Raises ValueError for an empty grid, fewer than two candidates, a refused parameter, or a distribution without
        `n_candidates`.
    """
    grids = [param_grid] if isinstance(param_grid, Mapping) else param_grid
    if not isinstance(grids, Sequence) or isinstance(grids, str) or not all(isinstance(g, Mapping) for g in grids):
        raise ValueError("param_grid must be a dict of lists (or distributions), or a list of such dicts")
    for grid in grids:
        refused = [name for name in grid if str(name).split("__")[-1] in _REFUSED or name == "noise"]
        if refused:
            raise ValueError(
                f"the grid holds {', '.join(map(repr, refused))}: the search is charged for its candidates, all at one "
                "cost; give epsilon, delta, neighboring, accountant and noise to PrivateSearchCV itself"
            )
        refused = [name for name in grid if name.partition("__")[0] in _OF_UNITS]
        if refused:
            raise ValueError(
                f"the grid holds {', '.join(map(repr, refused))}: all candidates protect one unit, of which the same "
                "number of rows is used; give them to the estimator"
            )
    if n_candidates is None:
        drawn = [name for grid in grids for name, values in grid.items() if hasattr(values, "rvs")]
        if drawn:
            raise ValueError(f"{', '.join(map(repr, drawn))}: a distribution needs n_candidates")
        candidates = list(ParameterGrid(list(grids))) if grids else []
    else:
        candidates = list(ParameterSampler(list(grids), n_candidates, random_state=random_state)) if grids else []
    if len(candidates) < 2:
        raise ValueError(
            f"the grid holds {'no candidate' if not candidates or candidates == [{}] else 'one candidate'}: "
            "there is nothing to choose, and a search costs more than a fit; fit the estimator itself"
        )
    return candidates


class Search(NamedTuple):
    """A planned search: everything that is fixed before the charge."""

    candidates: list
    estimators: list
    plans: list
    scoring: object
    score_bounds: tuple | None
    score_noise: float | None
    mean_runs: float
    trial: object


class PlansSearch:
    """The part of a search before its charge; nothing of the data is stored or released in it."""

    def _candidate(self, parameters):
        given = self.estimator.get_params(deep=False)
        missing = [name for name in PRIVACY_CONSTRAINTS if name not in given]
        if missing:
            raise ValueError(f"{type(self.estimator).__name__} is no private estimator: it lacks {', '.join(missing)}")
        if given["accountant"] is not None:
            raise ValueError("the estimator has an accountant: give it to PrivateSearchCV, which makes the one charge")
        if given.get("checkpoint") is not None:
            raise ValueError("checkpoint= is for one fit, and a search makes several: set checkpoint=None")
        if given["neighboring"] not in (None, self.neighboring):
            raise ValueError("give neighboring to PrivateSearchCV, not to its estimator")
        # copies: an object of the grid, such as a prior, is that of several candidates
        own = {name: clone(value, safe=False) for name, value in parameters.items()}
        candidate = clone(self.estimator).set_params(**own)
        candidate.set_params(epsilon=1.0, delta=None, neighboring=None, noise=self.noise)
        if self.public_data is None and candidate.get_params(deep=False).get("id_column") is not None:
            raise ValueError(
                "id_column puts the rows of an id into one subset, and rows are held out one by one: those of an id "
                "would be in the fit and in the score; give public_data, with which nothing is held out"
            )
        known = candidate.get_params(deep=False)
        schema, column = known.get("schema"), read_unit(known).name
        if self._unit is not None and schema is not None and column in schema:  # a run has the identifiers apart
            candidate.set_params(schema=schema.select([name for name in schema if name != column]))
        if isinstance(self._unit, OpenUnit):  # until it is learned, the largest number that may be
            candidate.set_params(max_rows_per_unit=self._unit.max_rows)
        if "progress" in given:  # bars on a terminal would show the number of runs
            candidate.set_params(progress=False)
        return candidate

    def _request(self, estimator, rows, accountant):
        name = type(estimator).__name__
        if not isinstance(estimator, PrivateEstimator):
            raise ValueError(f"{name} is no private estimator: derive it from PrivateEstimator")
        if _has_separate_fit(type(estimator)):
            raise ValueError(
                f"a search calls _prepare and _complete of an estimator and not its fit: {name} must have both, and "
                "must not change fit"
            )
        _check_objects(estimator, rows.X, rows.y)
        request = estimator._requested(rows.X, rows.y, accountant, rows.groups)
        if request is None:
            raise ValueError(f"{name}.plan does not ask its accountant to calibrate: see PrivateEstimator")
        if self.public_data is None:
            X, y, groups = rows.first(self._smallest_fold(rows.n_units))
            try:
                fewest = estimator._requested(X, y, accountant, groups)
            except ValueError as error:
                raise ValueError(
                    f"rows are held out at random, and a fit to the fewest that may be left is refused ({error}); "
                    "raise cv, or give public_data, with which nothing is held out"
                ) from error
            if accountant.neighboring == "replace_one" and fewest != request:
                raise ValueError(
                    "the noise of a candidate depends on the number of rows (batch_size, epochs), which is random "
                    "where rows are held out: give sampling_rate and steps, or public_data"
                )
        return request

    def _check_folds(self, n_units, accountant):
        """Refuse so few rows, or units, that all of them may be held out, where their number is private.

        A run then has a model of public facts alone. With one more row it would be fitted to that row, which no noise
        hides: the probability of it would be a part of delta that is not charged. Where a row is replaced, the new one
        has its draw, and all are held out in both data sets.
        """
        private = math.isfinite(accountant.epsilon if self.epsilon is None else self.epsilon)
        if self.public_data is not None or accountant.neighboring == "replace_one" or not private:
            return
        delta, cv = accountant.delta if self.delta is None else self.delta, self.cv or FOLDS
        least = math.ceil(-math.log(_ALL_HELD_OUT * delta) / math.log(cv))
        if n_units < least:
            what, given = ("rows", "n_samples") if self._unit is None else ("units", "n_units")
            raise InvalidInputError(
                f"a search holds {what} out at random, and at delta={delta:g} might hold out all of fewer than {least} "
                f"(here {given} = {n_units}): no noise hides whether one more is there. Raise cv, or give public_data, "
                "with which nothing is held out; nothing was charged"
            )

    def _smallest_fold(self, n_units):
        """Fewest units that a run is fitted to, except in one search of a thousand million; at least 1."""
        return max(1, int(stats.binom.ppf(1e-9, n_units, 1 - 1 / (self.cv or FOLDS))))

    def _check_scoring(self, y):
        if self.public_data is not None:
            if self.cv is not None:
                raise ValueError("cv holds rows out for a private score: with public_data there is none")
            if self.score_bounds is not None:
                raise ValueError("score_bounds clips the terms of a private score: with public_data there is none")
            return self.scoring, None
        scoring = "log_likelihood" if self.scoring is None else self.scoring
        bounds = check_score_bounds(scoring, self.score_bounds)
        if isinstance(scoring, str) and scoring.startswith("tstr"):
            given = self.estimator.get_params(deep=False)
            if not hasattr(self.estimator, "sample"):
                raise ValueError(f"scoring={scoring!r} needs an estimator that samples")
            if y is None and given.get("target") is None:
                raise ValueError(f"scoring={scoring!r} predicts labels: give y, or a target to the estimator")
        if scoring == "log_likelihood" and not (
            hasattr(self.estimator, "score_samples") or hasattr(self.estimator, "sample")
        ):
            raise ValueError("the estimator has no score_samples: give scoring")
        return scoring, bounds

    def _try_out(self, estimator, X, y, scoring, bounds, neighboring):
        """Fit a candidate to dummy rows, and score it, before the charge: a scorer that fails is refused.

        The model is the result where no run is drawn. The trial also shows whether the term of a record is a function
        of that record alone: the cost of the score assumes it. It is tested for the scores of the package too.
        """
        trial = public_model(estimator, X, y, neighboring, self._unit is not None)
        if self.public_data is not None:
            quietly(lambda: self._public_score(scoring, trial))
            return trial
        rows, labels = dummy_rows(X, y, estimator)
        score = quietly(lambda: score_function(scoring, trial))
        whole = quietly(lambda: np.asarray(score(rows, labels)))
        if whole.ndim == 0:
            raise ValueError(
                "scoring gave one number: an exact score of private rows is computed without protection, and not "
                "charged. Give one term for each record (an array of shape (n_samples,)), or public_data"
            )
        if whole.shape != (num_samples(rows),) or whole.dtype.kind not in "fiub":
            raise ValueError(
                f"scoring must give one number for each record: shape ({num_samples(rows)},); got {whole.shape}"
            )
        if np.isnan(whole.astype(float)).all():
            raise ValueError("scoring gave NaN for every dummy row: nothing could be chosen by it")
        part = np.arange(num_samples(rows))[::-2]  # fewer records, elsewhere, in another order
        alone = quietly(lambda: np.asarray(score(take(rows, part), take(labels, part))))
        # a record without values changes the dtype that numpy and pandas give to the others
        more = with_missing(rows, labels)
        beside = quietly(lambda: held_terms(score, *more, take, num_samples(more[0]), bounds[0]))[: len(whole)]
        if alone.shape != part.shape or not same_terms(np.append(alone, beside), np.append(whole[part], whole), bounds):
            raise ValueError(
                "the term that scoring gives to a record depends on the other records (or on chance, or on rounding "
                "in single precision: compute in float64): one record could then change all terms, and no noise would "
                "be enough"
            )
        return trial

    def _calibrated(self, search, requests, accountant):
        delta = accountant.delta if self.delta is None else self.delta
        # each run may fail by the thresholds of its fit, and there are mean_runs of them on average
        extras = [request.extra_delta_share * delta / search.mean_runs for request in requests]
        extra, private_score = search.mean_runs * max(extras), self.public_data is None
        asked = accountant.epsilon if self.epsilon is None else self.epsilon
        # once, before the runs, all of which use as many rows of a unit; its share is relative to that of a run
        before = max_rows_phases(self._unit, share_of(None, "bounds"))
        name = type(self.estimator).__name__
        tried = f"{name}, {len(requests)} candidates"
        if before:  # the ledger names each of several releases, in this order
            of_units = ", ".join(phase.label for phase in before)
            tried = f"{of_units}, {len(requests)} candidates of {name}"
        label = fit_label("PrivateSearchCV", accountant, tried)
        # the order that decides most of the cost; for Gaussian phases it does not matter
        alpha = 1 + math.sqrt(2 * math.log(1 / delta)) / gaussian_mu(min(asked, 1e3), delta)

        def plans(mu):
            terms = {"alpha": alpha, "epsilon": asked}
            return [plan_at(r, mu, accountant, extra_delta=e, **terms) for r, e in zip(requests, extras)]

        def event(mu):
            if math.isinf(mu):
                return non_private_event()
            score = [gaussian_event(1 / mu)] if private_score else []
            runs = repeat_and_select_event([*(plan.event for plan in plans(mu)), *score], self.runs, search.mean_runs)
            return event_of((*releases_before(mu), *releases(runs)))

        def releases_before(mu):
            return [row for phase in before for row in releases(phase.event(phase.noise_multiplier(mu)))]

        if math.isinf(asked):
            mu, plan = (
                math.inf,
                FitPlan(
                    label, (), {}, releases(event(math.inf)), extra, math.inf, delta, accountant.neighboring,
                    unit=self._unit,
                ),
            )  # fmt: skip
        else:
            advice = f": {search.mean_runs:g} runs on average are too many; lower mean_runs, or spend more epsilon"
            terms = {"label": label, "epsilon": self.epsilon, "delta": delta, "extra_delta": extra, "advice": advice}
            mu, plan = calibrate_by_rdp(accountant, event, unit=self._unit, **terms)
        noise = None if not private_score else (0.0 if math.isinf(mu) else 1 / mu)
        search = search._replace(plans=plans(mu), score_noise=noise)
        first = [(phase, 0.0 if math.isinf(mu) else phase.noise_multiplier(mu)) for phase in before]
        return search, self._with_phases(plan, first, search.plans, noise)

    def _with_phases(self, plan, before, candidates, score_noise):
        """Return the plan with the phases of each run, for `BudgetPlan`; a share is that of the run alone."""
        phases, multipliers = [], {}

        def add(phase, label, noise):
            phases.append(replace(phase, label=label))
            multipliers[label] = noise

        for phase, noise in before:
            add(phase, phase.label, noise)
        alike = {}
        for k, candidate in enumerate(candidates):
            alike.setdefault(candidate.phases, []).append(k)
        for same in alike.values():
            whose = "candidate " + ", ".join(str(k + 1) for k in same) if len(alike) > 1 else "each candidate"
            candidate = candidates[same[0]]
            whole = math.fsum(phase.share for phase in candidate.phases)
            for phase in candidate.phases:
                shared = replace(phase, share=phase.share / whole)
                add(shared, f"{whose}: {phase.label}", candidate.noise_multipliers[phase.label])
        if score_noise is not None:  # of the rows held out
            add(Phase("score", 1.0, sampling_rate=1 / (self.cv or FOLDS)), "score", score_noise)
        return replace(plan, phases=tuple(phases), noise_multipliers=MappingProxyType(multipliers))


def _has_separate_fit(kind):
    """Whether `fit` of a class may do more than its `_prepare` and `_complete`."""
    fit, complete = (next(c for c in kind.__mro__ if name in vars(c)) for name in ("fit", "_complete"))
    known = fit.__module__.startswith("skdpgen.") or issubclass(complete, fit)
    return complete is PrivateEstimator or not known


def _check_objects(estimator, X, y):
    """Refuse columns of objects whose type the rows decide: it is settled once, and not by the rows of each run."""
    parameters = estimator.get_params(deep=False)
    if not isinstance(X, pd.DataFrame) or "schema" not in parameters:
        return
    declared = () if parameters["schema"] is None else parameters["schema"].names
    columns = {name: X[name] for name in X.columns if name not in declared}
    if y is not None and getattr(y, "name", None) not in declared:
        columns["y"] = y if isinstance(y, pd.Series) else pd.Series(np.asarray(with_dtype(y)).ravel())
    found = {name: type_of_objects(c) for name, c in columns.items() if c.dtype == np.dtype(object)}
    if listed := ", ".join(f"{name!r} ({kind})" for name, kind in found.items() if kind):
        raise InvalidInputError(
            f"the type of the objects in {listed} is not declared: a run whose rows have none of them would find "
            'another type, and end the search after its charge. Declare it in the schema, as by Numeric(name, dtype="'
            'decimal", missing=True); nothing was charged'
        )


def public_model(estimator, X, y, neighboring, of_units=False):
    """Fit without noise, and without a charge, to dummy rows."""
    rows, labels = dummy_rows(X, y, estimator)
    model = clone(estimator).set_params(epsilon=np.inf, neighboring=neighboring, random_state=0)
    groups = {"groups": np.arange(len(rows))} if of_units else {}  # each dummy row is another unit
    with unwatched(), public_noise():  # no private row: no release is observed, and the model is always the same
        return quietly(lambda: model.fit(rows, labels, **groups))


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


# ---- the private rows of a search -----------------------------------------------------------------------------------
class HeldOut(NamedTuple):
    """The rows of one search, split: the same in all of its runs; private."""

    fit: tuple  # (X, y, identifiers or None)
    score: tuple  # (X, y)
    unit_sizes: np.ndarray | None  # where units count 1, the number of rows scored of the unit of each


class SearchRows:
    """The rows of a search, without the column of identifiers.

    `estimator`: whose parameters name the column. `X`, `y`, `groups`: arguments of `fit`. `unit`: None where a row is
    the unit. `groups`: identifiers, where a row is not the unit.
    """

    def __init__(self, estimator, X, y, groups, unit):
        self.X, self.y, self.groups, self._ids = X, y, None, None
        self.n_units = num_samples(X)
        if unit is None:
            return
        self.X, groups = take_groups(estimator, X, groups)
        # numpy would make text of the numbers of a list in which one entry is text
        self.groups = np.asarray(groups, dtype=object) if isinstance(groups, list | tuple) else only_column(groups)
        self._ids = read_groups(self.groups, num_samples(self.X), unit, estimator._asked_unit.missing)
        absent = self._ids.codes < 0
        named = len(self._ids.values)
        self._codes = np.where(absent, named + np.cumsum(absent) - 1, self._ids.codes)
        self.n_units = named + int(absent.sum())

    def settle(self, plan, rng):
        """Learn how many rows of a unit are used, where that is not declared; return the plan with the number."""
        self._ids, plan = settle_ids(self._ids, plan, rng)
        return plan

    def first(self, n):
        """Return the first rows, as arguments of `fit`."""
        return self._taken(np.arange(n))

    def split(self, share, rng):
        """Hold out each unit with probability `share`, independently of all others, with all its rows.

        The rows that are scored are chosen as those of a fit are: of each unit at most `max_rows`, at random.
        """
        held_out = rng.random(self.n_units) < share
        scored, sizes = held_out, None
        if self._ids is not None:
            held_out = held_out[self._codes]
            kept = keep_rows(self._ids, draw_key(rng))
            chosen = held_out[kept.rows]
            scored = kept.rows[chosen]
            sizes = None if kept.unit_sizes is None else kept.unit_sizes[chosen]
        return HeldOut(self._taken(~held_out), self._taken(scored)[:2], sizes)

    def _taken(self, rows):
        return tuple(take(part, rows) for part in (self.X, self.y, self.groups))


def take(X, rows):
    """Return some of the rows of X, which may be None."""
    if hasattr(X, "iloc"):
        return X.iloc[rows].reset_index(drop=True)
    if is_extension(X):  # numpy would turn integers into floats where one is missing
        return X[rows]
    return None if X is None else np.asarray(X)[rows]
