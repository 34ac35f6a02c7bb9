"""PrivateSearchCV: the best of a random number of runs, charged as one search and not as its runs."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._base import MOST_ROWS, PRIVACY_CONSTRAINTS, PrivateEstimator
from .._parameters import read_unit
from .._types import UnitRelation
from ..accounting._facts import plain
from ..accounting._reservation import CalibratedFit, Reservation
from ..data.rows_per_unit import OpenUnit
from ..exceptions import InvalidInputError, SchemaError, UtilityWarning
from ..mechanisms import add_gaussian
from ..utils.foreign_tables import to_pandas
from ..utils.validation import HasMethods, Interval, InvalidParameterError, StrOptions, fit_context, num_samples
from ._planning import FOLDS, PlansSearch, Search, SearchRows, list_candidates, public_model, take
from ._scoring import SCORES, bounded_score, held_terms, score_function, score_terms

# Least mean number of runs by default: a Poisson number of mean 2 is zero in one search of seven.
_LEAST_RUNS = 5


class _Run(NamedTuple):
    """Result of a run, of which the best is released."""

    index: int
    estimator: object
    rank: float
    score: float
    warned: list


def _best_has(name):
    def check(self):
        getattr(self.best_estimator_ if hasattr(self, "best_estimator_") else self.estimator, name)
        return True

    return check


class _ForwardsToBest:
    """Methods and attributes of ``best_estimator_``, as far as the estimator has them."""

    @available_if(_best_has("sample"))
    def sample(self, n_samples=None, **options):
        """Draw synthetic rows from the best estimator; charges nothing."""
        check_is_fitted(self)
        return self.best_estimator_.sample(n_samples, **options)

    @available_if(_best_has("sample_chunks"))
    def sample_chunks(self, n_samples=None, **options):
        """Draw synthetic rows from the best estimator a part at a time; charges nothing."""
        check_is_fitted(self)
        return self.best_estimator_.sample_chunks(n_samples, **options)

    @available_if(_best_has("transform"))
    def transform(self, X):
        """Transform rows by the best estimator: a value for each record, not a release."""
        check_is_fitted(self)
        return self.best_estimator_.transform(X)

    @available_if(_best_has("transform"))
    def fit_transform(self, X, y=None):
        """Search, and transform the rows by the best estimator: a value for each record, not a release."""
        return self.fit(X, y).transform(X)

    @available_if(_best_has("inverse_transform"))
    def inverse_transform(self, X):
        """Map latents back to rows by the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.inverse_transform(X)

    @available_if(_best_has("predict"))
    def predict(self, X):
        """Predict by the best estimator: a value for each record, not a release."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_best_has("score"))
    def score(self, X, y=None):
        """Return the best estimator's score: computed from the rows without protection; do not publish it."""
        check_is_fitted(self)
        return self.best_estimator_.score(X, y)

    @available_if(_best_has("save"))
    def save(self, path):
        """Write the best estimator to a file, with the card of the search."""
        check_is_fitted(self)
        self.best_estimator_.save(path)

    @property
    def classes_(self):
        """Classes of the best estimator."""
        return self.best_estimator_.classes_

    @property
    def n_features_in_(self):
        """Number of columns."""
        return self.best_estimator_.n_features_in_

    @property
    def feature_names_in_(self):
        """Names of the columns."""
        return self.best_estimator_.feature_names_in_

    def __sklearn_tags__(self):
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        for name in ("input_tags", "target_tags", "estimator_type", "transformer_tags", "classifier_tags"):
            setattr(tags, name, getattr(inner, name))
        return tags


class PrivateSearchCV(_ForwardsToBest, PlansSearch, MetaEstimatorMixin, PrivateEstimator):
    """Private hyper-parameter search: it releases the best fitted model, and charges the whole search once.

    Releases the best of a random number of runs: its model, its parameters and its noisy score. A run draws a candidate
    at random from a list fixed in advance, fits it to the rows that are not held out, and scores it on the held-out
    rows, or on rows that the caller declares public. The number of runs, their other scores and their other models are
    deleted. The noise of all runs is calibrated so that the search as a whole costs (`epsilon`, `delta`).

    Parameters
    ----------
    estimator : private estimator
        Template that is cloned, without an accountant: the search sets its epsilon, delta, accountant and noise.
    param_grid : dict or list of dict
        As in ``GridSearchCV``; with `n_candidates` also distributions. At least two candidates.
    epsilon : float or None, default=1.0
        Cost of the whole search; None: all that is left of `accountant`.
    delta, neighboring, accountant
        As in every estimator.
    n_candidates : int or None, default=None
        Number of candidates drawn from `param_grid`, by `random_state`; None: every combination.
    scoring : {"log_likelihood", "tstr_accuracy", "tstr_log_loss"}, callable or None, default=None
        Score, a sum of one term for each record, clipped to `score_bounds`, with Gaussian noise; None:
        "log_likelihood" (the ELBO of a network). With the other names a logistic regression trained on synthetic rows
        predicts the labels of real ones. A callable maps (estimator, X, y) to an array of one number for each record,
        each a function of that record alone, in double precision; a record on which it fails counts as the lower
        bound, without a message. With `public_data` also a scorer that gives one number; None is then the estimator's
        `score`.
    score_bounds : (float, float) or None, default=None
        Public range of the term of a record. None: the range of "tstr_accuracy" or "tstr_log_loss".
    public_data : X or (X, y) or None, default=None
        Rows declared public: scores on them are exact and cost nothing, and no row is held out.
    cv : int or None, default=None
        Inverse of the probability with which each row, or each unit with all its rows, is held out, independently of
        all others; None: 5. (Means over all folds would cost as much as cv - 1 fits in each run.)
    runs : {"poisson", "logarithmic"}, default="poisson"
        Distribution of the number of runs. Poisson draws zero with probability exp(-mean): the model is then fitted to
        dummy rows. "logarithmic" draws at least one, has a larger variance, and costs less above a mean of about ten.
    mean_runs : float or None, default=None
        Mean number of runs; None: the number of candidates, and at least 5.
    noise : {"secure", "fast"}, default="secure"
    random_state : int, RandomState instance or None, default=None
        Seed of the draw of candidates, and not of runs, folds or noise.

    Attributes
    ----------
    best_estimator_ : estimator
        Fitted to all rows that were not held out. `sample`, `transform`, `save` and so on are forwarded to it.
    best_params_ : dict
    best_index_ : int
        Index of the best candidate in ``cv_results_["params"]``.
    best_score_ : float
        Noisy mean term of a record of the best run; exact on public data.
    cv_results_ : dict
        Only "params", the candidates: their scores are not released.
    max_rows_per_unit_ : int
        Rows of a unit that all runs use, declared or released; with units.
    accountant_, card_
        As in every estimator: one charge, one card.

    Notes
    -----
    Do not publish the *time* that a search takes, nor the number of its runs: the number is not released, and the time
    depends on it. Warnings are those of the best run. An error in the fit of a run ends the search without a model; the
    charge stays. The list of candidates and its order must not depend on the data.

    A record is in the fit or in the score, not in both: a run costs the larger of the two, so the score adds nothing.

    With `unit` of the estimator this holds for units: a unit is held out with all its rows. Where the estimator has no
    `max_rows_per_unit`, the search learns it before the first run, by one more release in the same charge, and all runs
    use it. Of a unit held out at most as many rows are scored; each counts 1, or with ``weighting="units"`` all of them
    together. A scorer sees rows without the column of identifiers.

    References
    ----------
    N. Papernot, T. Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen import DPPCA, PrivateSearchCV
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) * [1.0, 0.5, 0.1]
    >>> search = PrivateSearchCV(
    ...     DPPCA(bounds=(-4, 4)), {"n_components": [1, 2]}, epsilon=2.0, score_bounds=(-20, 10), runs="logarithmic"
    ... ).fit(X)
    >>> search.accountant_.report()[["mechanism", "count"]].values.tolist()
    [['repeat_and_select', 1]]
    """

    _parameter_constraints = {
        **PRIVACY_CONSTRAINTS,
        "estimator": [HasMethods(["fit", "plan", "get_params", "set_params"])],
        "param_grid": "no_validation",
        "n_candidates": [Interval(Integral, 2, 100_000, closed="both"), None],
        "scoring": [StrOptions(set(SCORES)), callable, None],
        "score_bounds": ["array-like", None],
        "public_data": "no_validation",
        "cv": [Interval(Integral, 2, 10_000, closed="both"), None],
        "runs": [StrOptions({"poisson", "logarithmic"})],
        "mean_runs": [Interval(Real, 1, 10_000, closed="both"), None],
    }

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        epsilon=1.0,
        delta=None,
        neighboring=None,
        accountant=None,
        n_candidates=None,
        scoring=None,
        score_bounds=None,
        public_data=None,
        cv=None,
        runs="poisson",
        mean_runs=None,
        noise="secure",
        random_state=None,
    ):
        self.estimator, self.param_grid = estimator, param_grid
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.n_candidates, self.scoring = n_candidates, scoring
        self.score_bounds, self.public_data = score_bounds, public_data
        self.cv, self.runs, self.mean_runs = cv, runs, mean_runs
        self.noise, self.random_state = noise, random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, groups=None):
        """Search, and release the best run.

        Parameters
        ----------
        X, y, groups
            As in the estimator's `fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, InvalidInputError
            The parameters contradict each other, a candidate refuses the data, or there are so few rows that all of
            them might be held out; nothing was charged.
        BudgetExceededError
            The accountant does not allow it, or no noise is enough for the budget; nothing was charged.
        RuntimeError
            A run failed; the charge stays, and nothing else of the search remains.

        Notes
        -----
        **Privacy.** The unit is one row, or all rows of one `unit` of the estimator, under `neighboring`. Charged
        before anything is released: one repeat-and-select event, which costs (`epsilon`, `delta`) by Renyi differential
        privacy, together with one Gaussian release of how many rows of a unit are used, where that is not declared. A
        run is one of: the fit of a candidate, or the Gaussian release of the score, each record, or each
        unit with all its rows, taking part in one of them.
        """
        with self._fitting_noted() as (said, charge):
            X, y, groups = self._in_pandas(X, y, groups)
            self._unit = self._resolve_unit(groups)
            accountant = self._resolve_accountant()
            search, plan = self._prepare(X, y, accountant, groups)
            rows = SearchRows(self.estimator, X, y, groups, self._unit)
            said.issue()  # in time: where warnings are errors, they cost nothing
            with Reservation(accountant) as reservation:
                charge.begins(plan)
                rng = self._charge(accountant, plan, reservation)
                charge.is_made()
                search, plan = self._settled(search, plan, rows, rng)
                best, failure = self._search(search, reservation, rows, rng)
            if failure is not None:
                raise failure
            self._keep(best, search, plan, rng)
            self._warn_of_callers()
        return self

    def _validate_params(self):
        if isinstance(self.estimator, Pipeline):
            raise InvalidParameterError(
                "PrivateSearchCV cannot search a pipeline, whose steps are charged one by one: give one private "
                "estimator, such as P3GMSynthesizer or DPGaussianMixture (estimator=pipeline[-1])"
            )
        super()._validate_params()

    # ---- before the charge -----------------------------------------------------------------------
    @property
    def _takes_tables(self):
        return getattr(self.estimator, "_takes_tables", False)

    def _resolve_unit(self, groups):
        """Return the unit of the estimator, which is that of all runs and of the search."""
        resolve = getattr(self.estimator, "_resolve_unit", None)
        return None if resolve is None else resolve(groups)

    @property
    def _asked_unit(self):
        """That of the estimator."""
        return read_unit(self.estimator.get_params(deep=False))

    def _groups(self, groups):
        return (groups,)

    def _prepare(self, X, y, accountant, groups=None):
        candidates = list_candidates(self.param_grid, self.n_candidates, self.random_state)
        scoring, bounds = self._check_scoring(y)
        estimators = [self._candidate(parameters) for parameters in candidates]
        rows = SearchRows(self.estimator, X, y, groups, self._unit)
        self._check_folds(rows.n_units, accountant)
        requests = [self._request(estimator, rows, accountant) for estimator in estimators]
        mean_runs = float(max(len(candidates), _LEAST_RUNS) if self.mean_runs is None else self.mean_runs)
        trial = self._try_out(estimators[0], rows.X, rows.y, scoring, bounds, accountant.neighboring)
        search = Search(candidates, estimators, [], scoring, bounds, None, mean_runs, trial)
        search, plan = self._calibrated(search, requests, accountant)
        for estimator, fit in zip(estimators, search.plans):  # what its noise makes a run refuse is refused now
            estimator._planned(rows.X, rows.y, CalibratedFit(fit), rows.groups, checked=True)
        return search, plan

    # ---- after the charge ------------------------------------------------------------------------
    def _settled(self, search, plan, rows, rng):
        """Learn how many rows of a unit all runs use, where that is not declared; return search and plan with it."""
        if isinstance(plan.unit, OpenUnit):
            plan = rows.settle(plan, rng)
            self._unit = unit = plan.unit
            for estimator in search.estimators:
                estimator.set_params(max_rows_per_unit=unit.max_rows)
            trial = public_model(search.estimators[0], rows.X, rows.y, plan.neighboring, True)
            search = search._replace(plans=[replace(fit, unit=unit) for fit in search.plans], trial=trial)
        if plan.unit is not None:
            self.max_rows_per_unit_ = plan.unit.max_rows
        return search, plan

    def _search(self, search, reservation, rows, rng):
        """Return (best run, None), or (None, the error to raise): nothing else of the runs remains."""
        try:
            held_out = None
            if search.score_noise is not None:
                held_out = rows.split(1 / (self.cv or FOLDS), rng)
            best = None
            for _ in range(reservation.draw_runs(self.runs, search.mean_runs, rng)):
                run = self._run(search, reservation, rows, held_out, rng)
                if best is None or run.rank > best.rank:
                    best = run
            return best or self._no_run(search), None
        except KeyboardInterrupt:
            return None, KeyboardInterrupt("the search was interrupted; its charge stays")
        except Exception as error:
            # a new error: the traceback of this one holds models and rows, and other messages may hold a cell
            words = f": {error}" if type(error) in (InvalidInputError, SchemaError) else ""
            failed = f"a run failed ({type(error).__name__}{words})"
            return None, RuntimeError(f"{failed}; the search stays charged, and nothing else of it remains")

    def _run(self, search, reservation, rows, held_out, rng):
        k = rng.integers(len(search.candidates))
        estimator = clone(search.estimators[k])
        X, y, groups = (rows.X, rows.y, rows.groups) if held_out is None else held_out.fit
        warned = []
        if num_samples(X):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                estimator._fit_reserved(X, y, search.plans[k], reservation, groups)
        else:  # all of very few rows were held out: see `_check_folds`
            k, estimator = 0, search.trial
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the scorer: they may depend on the exact values of its rows
            rank, score = self._score(search, estimator, held_out, rng)
        return _Run(k, estimator, rank, score, warned)

    def _score(self, search, estimator, held_out, rng):
        if held_out is None:
            score = self._public_score(search.scoring, estimator)
            return (-math.inf if math.isnan(score) else score), score
        low, high = search.score_bounds
        n_rows, score = num_samples(held_out.score[0]), score_function(search.scoring, estimator)
        terms = held_terms(score, *held_out.score, take, n_rows, low)
        neighboring = self.accountant_.neighboring
        if self._unit is not None:
            neighboring = UnitRelation(neighboring, self._unit)
        query = bounded_score(terms, (low, high), held_out.unit_sizes)
        total, count = add_gaussian(query, search.score_noise, rng, neighboring)
        if neighboring == "replace_one":
            count = float(n_rows)  # drawn independently of the values: public
        # the rows are the same in all runs, so their sums are compared: the noise of the count decides nothing
        return total, low + (high - low) * float(np.clip(total / max(count, 1.0) + 0.5, 0.0, 1.0))

    def _public_score(self, scoring, estimator):
        public = self.public_data if isinstance(self.public_data, tuple) else (self.public_data, None)
        X, y = map(to_pandas, public) if self._takes_tables else public
        if scoring is None:
            return float(estimator.score(X, y))
        if isinstance(scoring, str):
            return float(np.mean(score_terms(scoring, estimator, X, y)))
        return float(np.mean(scoring(estimator, X, y)))

    def _no_run(self, search):
        """Return the result where no run was drawn: a model of public facts alone."""
        text = "no run was drawn (a Poisson number may be zero): the model holds public facts alone, fit again or use "
        warned = [warnings.WarningMessage(UtilityWarning(text + 'runs="logarithmic"'), UtilityWarning, __file__, 0)]
        return _Run(0, search.trial, -math.inf, math.nan, warned)

    def _keep(self, best, search, plan, rng):
        estimator = best.estimator
        self.best_estimator_, self.best_index_ = estimator, int(best.index)
        self.best_params_, self.best_score_ = search.candidates[best.index], best.score
        self.cv_results_ = {"params": search.candidates}
        inner, own_noise = estimator.card_, None
        if math.isfinite(plan.epsilon) and best.estimator is not search.trial and inner["noise"] != rng.description:
            own_noise = (inner["noise"], bool(inner["private"]))
        # to a run the number of rows of a unit is declared, even where the search has learned it
        stated = [text for text in inner["public_assumptions"] if not text.startswith(MOST_ROWS)]
        assumptions = [*stated, *self._public_assumptions(search.candidates)]
        self._issue_card(plan, rng, assumptions, own_noise, inner["columns"], inner["declared"])
        # the model gets the accountant and the card of the search in place of those of one run
        estimator.set_params(epsilon=self.epsilon, delta=self.delta, neighboring=self.neighboring)
        estimator.accountant_, estimator.card_ = self.accountant_, self.card_
        estimator._library = self._library
        for warning in best.warned:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

    def _public_assumptions(self, candidates):
        yield "the candidates: fixed without a look at the data"
        for k, candidate in enumerate(candidates):
            yield f"candidate {k + 1} of {len(candidates)}: {json.dumps(plain(candidate), sort_keys=True)}"
        if self.public_data is not None:
            yield "public_data: declared public by the caller"
