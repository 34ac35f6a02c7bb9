"""PrivateSearchCV: the best of a random number of runs, at the price of the search and not of its runs."""

from __future__ import annotations

import json
import math
import warnings
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone

from .._base import PRIVACY_CONSTRAINTS, PrivateEstimator
from ..accounting._card_json import plain
from ..accounting._prepaid import PaidFits, Voucher
from ..exceptions import InvalidInputError, SchemaError, UtilityWarning
from ..mechanisms import add_gaussian
from ..utils.validation import HasMethods, Interval, StrOptions, fit_context, num_samples
from ._candidates import list_candidates
from ._forwarding import ForwardsToBest
from ._planning import FOLDS, PlansSearch, Search, take
from ._scoring import SCORES, bounded_score, held_terms, score_function, score_terms

__all__ = ["PrivateSearchCV"]

# Of the default: a Poisson number of mean 2 would be zero in one search of seven.
_LEAST_RUNS = 5


class _Run(NamedTuple):
    """What a run would let out, were it the best."""

    index: int
    estimator: object
    rank: float
    score: float
    warned: list


class PrivateSearchCV(ForwardsToBest, PlansSearch, MetaEstimatorMixin, PrivateEstimator):
    """Search of hyper-parameters that releases one fitted model, and charges one search.

    Releases the best of a random number of runs: its model, its parameters and its noisy score. A run tries a
    candidate drawn at random from a list fixed in advance: it fits it to the rows of all folds but one, and scores it
    on that one, or on rows that the caller declares public. How many runs there were, their scores and their models
    are destroyed. The noise of all runs is calibrated so that the search as a whole costs (`epsilon`, `delta`).

    Parameters
    ----------
    estimator : private estimator
        A template, cloned, without an accountant: the search sets its epsilon, delta, accountant and noise.
    param_grid : dict or list of dict
        As in ``GridSearchCV``; with `n_candidates` also distributions. At least two candidates.
    epsilon : float or None, default=1.0
        What the whole search costs; None is all that is left of `accountant`.
    delta, neighboring, accountant
        As in every estimator.
    n_candidates : int or None, default=None
        So many candidates are drawn from `param_grid`, by `random_state`; None takes every combination.
    scoring : {"log_likelihood", "tstr_accuracy", "tstr_log_loss"}, callable or None, default=None
        One term a record, clipped to `score_bounds` and summed with Gaussian noise; None is "log_likelihood" (the ELBO
        of a network). The others: a logistic regression trained on synthetic rows predicts the labels of real ones.
        A callable maps (estimator, X, y) to an array of one number a record, each a function of that record alone,
        in double precision; a record that it raises on, or gives nothing for, counts as the lower bound, unsaid.
        With `public_data` also a scorer that gives one number; None is then the estimator's `score`.
    score_bounds : (float, float) or None, default=None
        Public range of the term of a record. None: that of the scores that have one.
    public_data : X or (X, y) or None, default=None
        Rows declared public: scores on them are exact and free, and no row is held out.
    cv : int or None, default=None
        Each row is held out with probability 1/cv, independently of all others; None is 5. (Means over all folds
        would cost as much as cv - 1 fits a run.)
    runs : {"poisson", "logarithmic"}, default="poisson"
        Law of the number of runs. Poisson may draw none, with probability exp(-mean): the model is then a public one,
        fitted to made-up rows. "logarithmic" draws one at least, spreads wider, and costs less above about ten.
    mean_runs : float or None, default=None
        Mean number of runs; None is the number of candidates, and 5 at least.
    noise : {"secure", "fast"}, default="secure"
    random_state : int, RandomState instance or None, default=None
        Draws candidates. Never runs, folds or noise.

    Attributes
    ----------
    best_estimator_ : estimator
        Fitted to all rows that were not held out. `sample`, `transform`, `save` and so on are forwarded to it.
    best_params_ : dict
    best_index_ : int
        In ``cv_results_["params"]``.
    best_score_ : float
        Noisy mean term of a record of the best run; exact on public data.
    cv_results_ : dict
        "params" alone, the candidates: their scores do not leave the search.
    accountant_, card_
        As in every estimator: one charge, one card.

    Notes
    -----
    What is not released must not be told otherwise: the *time* that a search takes follows the number of runs, so
    neither is published; warnings are those of the best run; an error in the fit of a run ends the search, paid for,
    without a model. The candidates' order, and the list itself, must not come from a look at the data.

    A record is in the fit or in the score, and is told once: a run costs the larger of the two, so the score is free.

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
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring = neighboring
        self.accountant = accountant
        self.n_candidates = n_candidates
        self.scoring = scoring
        self.score_bounds = score_bounds
        self.public_data = public_data
        self.cv = cv
        self.runs = runs
        self.mean_runs = mean_runs
        self.noise = noise
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None):
        """Search, and release the best run.

        Parameters
        ----------
        X, y
            As in the estimator's `fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, InvalidInputError
            What was asked for contradicts itself, or a candidate refuses the data; nothing was charged.
        BudgetExceededError
            The accountant does not allow it, or no noise is enough for the budget; nothing was charged.
        RuntimeError
            A run failed; the charge stays, and nothing of the search is kept.

        Notes
        -----
        **Privacy.** The unit is one row, under `neighboring`. Charged before anything is released: one
        repeat-and-select event, which costs (`epsilon`, `delta`) by Renyi differential privacy. A run is one of: the
        fit of a candidate, or the Gaussian release of the score, each record taking part in one of them.
        """
        with self._fitting():
            accountant = self._resolve_accountant()
            search, plan = self._prepare(X, y, accountant)
            with PaidFits(accountant) as paid:
                rng = self._charge_runs(paid, plan)
                best, failure = self._search(search, paid, X, y, rng)
            if failure is not None:
                raise failure
            self._keep(best, search, plan, rng)
        return self

    # ---- before the charge -----------------------------------------------------------------------
    def _prepare(self, X, y, accountant):
        candidates = list_candidates(self.param_grid, self.n_candidates, self.random_state)
        scoring, bounds = self._check_scoring(candidates, y)
        estimators = [self._candidate(parameters) for parameters in candidates]
        requests = [self._request(estimator, X, y, accountant) for estimator in estimators]
        mean_runs = float(max(len(candidates), _LEAST_RUNS) if self.mean_runs is None else self.mean_runs)
        trial = self._try_out(estimators[0], X, y, scoring, bounds, accountant.neighboring)
        search = Search(candidates, estimators, [], scoring, bounds, None, mean_runs, trial)
        return self._calibrated(search, requests, accountant)

    # ---- after the charge ------------------------------------------------------------------------
    def _charge_runs(self, paid, plan):
        """Charge through `paid`, which lets fits be made until its block ends; the books are the accountant's."""
        try:
            return self._charge(paid, plan)
        finally:
            if vars(self).get("accountant_") is paid:
                self.accountant_ = paid.accountant

    def _search(self, search, paid, X, y, rng):
        """Return (best run, None), or (None, the error to raise): nothing else of the runs outlives this call."""
        try:
            held_out = None
            if search.score_noise is not None:
                held_out = rng.random(num_samples(X)) < 1 / (self.cv or FOLDS)
            best = None
            for _ in range(paid.draw_runs(self.runs, search.mean_runs, rng)):
                run = self._run(search, paid, X, y, held_out, rng)
                if best is None or run.rank > best.rank:
                    best = run
            return best or self._no_run(search), None
        except KeyboardInterrupt:
            return None, KeyboardInterrupt("the search was interrupted; its charge stays")
        except Exception as error:
            # a new error: the traceback of this one holds models and rows, and the words of others may hold a cell
            words = f": {error}" if type(error) in (InvalidInputError, SchemaError) else ""
            told = f"a run failed ({type(error).__name__}{words}); the search stays charged, and nothing of it is kept"
            return None, RuntimeError(told)

    def _run(self, search, paid, X, y, held_out, rng):
        k = rng.integers(len(search.candidates))
        estimator = clone(search.estimators[k]).set_params(accountant=Voucher(paid, search.plans[k]))
        fit_rows, score_rows = (X, y), None
        if held_out is not None:
            fit_rows, score_rows = ((take(X, side), take(y, side)) for side in (~held_out, held_out))
        warned = []
        if num_samples(fit_rows[0]):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                estimator.fit(*fit_rows)
        else:  # all rows were held out, of a handful
            k, estimator = 0, search.trial
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the scorer: they may follow the exact values of its rows
            rank, score = self._score(search, estimator, score_rows, rng)
        return _Run(k, estimator, rank, score, warned)

    def _score(self, search, estimator, rows, rng):
        if rows is None:
            score = self._public_score(search.scoring, estimator)
            return (-math.inf if math.isnan(score) else score), score
        low, high = search.score_bounds
        n_rows, score = num_samples(rows[0]), score_function(search.scoring, estimator)
        terms = held_terms(score, *rows, take, n_rows, low)
        neighboring = self.accountant_.neighboring
        total, count = add_gaussian(bounded_score(terms, (low, high)), search.score_noise, rng, neighboring)
        if neighboring == "replace_one":
            count = float(n_rows)  # held out by coins alone: public
        # the rows are the same in all runs, so their sums are compared: the noise of the count decides nothing
        return total, low + (high - low) * float(np.clip(total / max(count, 1.0) + 0.5, 0.0, 1.0))

    def _public_score(self, scoring, estimator):
        X, y = self.public_data if isinstance(self.public_data, tuple) else (self.public_data, None)
        if scoring is None:
            return float(estimator.score(X, y))
        if isinstance(scoring, str):
            return float(np.mean(score_terms(scoring, estimator, X, y)))
        return float(np.mean(scoring(estimator, X, y)))

    def _no_run(self, search):
        """Stand-in for the best of no runs: a model of public facts alone."""
        told = "no run was drawn (the Poisson law allows it): the model holds public facts alone, fit again or use "
        said = [warnings.WarningMessage(UtilityWarning(told + 'runs="logarithmic"'), UtilityWarning, __file__, 0)]
        return _Run(0, search.trial, -math.inf, math.nan, said)

    def _keep(self, best, search, plan, rng):
        estimator = best.estimator
        self.best_estimator_, self.best_index_ = estimator, int(best.index)
        self.best_params_, self.best_score_ = search.candidates[best.index], best.score
        self.cv_results_ = {"params": search.candidates}
        inner, own_noise = estimator.card_, None
        if math.isfinite(plan.epsilon) and best.estimator is not search.trial and inner["noise"] != rng.description:
            own_noise = (inner["noise"], bool(inner["private"]))
        told = self._public_assumptions(search.candidates)
        self._issue_card(plan, rng, [*inner["public_assumptions"], *told], own_noise)
        # the model leaves with the books and the card of the search: its own were those of one run of it
        estimator.set_params(epsilon=self.epsilon, delta=self.delta, neighboring=self.neighboring)
        estimator.accountant = None
        estimator.accountant_, estimator.card_ = self.accountant_, self.card_
        for warning in best.warned:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

    def _public_assumptions(self, candidates):
        yield "the candidates: fixed without a look at the data"
        for k, candidate in enumerate(candidates):
            yield f"candidate {k + 1} of {len(candidates)}: {json.dumps(plain(candidate), sort_keys=True)}"
        if self.public_data is not None:
            yield "public_data: declared public by the caller"
