"""What a search fixes before its charge: candidates, what a run may release, and at which noise."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.base import clone

from .._base import PRIVACY_CONSTRAINTS
from ..accounting import Phase, gaussian_event, gaussian_mu, non_private_event, repeat_and_select_event
from ..accounting._calibration import FitPlan
from ..accounting._prepaid import PlanningAccountant, calibrate_by_rdp, plan_at
from ..utils.noise import public_noise
from ..utils.validation import is_extension, num_samples
from ..utils.watching import unwatched
from ._made_up import made_up_rows, with_missing
from ._scoring import check_score_bounds, held_terms, same_terms, score_function

__all__ = ["FOLDS", "PlansSearch", "Search", "public_model", "take"]

# A row is held out with probability 1/cv; cv=None is this.
FOLDS = 5


class Search(NamedTuple):
    """A search that was planned: everything that the charge fixes."""

    candidates: list
    estimators: list
    plans: list
    scoring: object
    score_bounds: tuple | None
    score_noise: float | None
    mean_runs: float
    trial: object


class PlansSearch:
    """The part of a search before its charge; nothing of the data is kept or released in it."""

    def _candidate(self, parameters):
        given = self.estimator.get_params(deep=False)
        missing = [name for name in PRIVACY_CONSTRAINTS if name not in given]
        if missing:
            raise ValueError(f"{type(self.estimator).__name__} is no private estimator: it lacks {', '.join(missing)}")
        if given["accountant"] is not None:
            raise ValueError("the estimator has an accountant: give it to PrivateSearchCV, which makes the one charge")
        if given["neighboring"] not in (None, self.neighboring):
            raise ValueError("give neighboring to PrivateSearchCV, not to its estimator")
        candidate = clone(self.estimator).set_params(**parameters)
        candidate.set_params(epsilon=1.0, delta=None, neighboring=None, noise=self.noise)
        if self.public_data is None and candidate.get_params(deep=False).get("id_column") is not None:
            raise ValueError(
                "id_column keeps the rows of an id in one subset, and rows are held out one by one: those of an id "
                "would be fitted and scored alike; give public_data, on which nothing is held out"
            )
        if "progress" in given:  # bars on a terminal would tell the number of runs
            candidate.set_params(progress=False)
        return candidate

    def _request(self, estimator, X, y, accountant):
        planner = PlanningAccountant(accountant)
        clone(estimator).set_params(accountant=planner).plan(X, y)
        request = planner.request
        if request is None:
            raise ValueError(
                f"{type(estimator).__name__}.plan does not ask its accountant to calibrate: see PrivateEstimator"
            )
        if self.public_data is None:
            rows = np.arange(self._smallest_fold(num_samples(X)))
            try:
                clone(estimator).set_params(accountant=planner).plan(take(X, rows), take(y, rows))
            except ValueError as error:
                raise ValueError(
                    f"rows are held out by coins, and a fit to as few of them as may be left is refused ({error}); "
                    "raise cv, or give public_data, on which nothing is held out"
                ) from error
            if accountant.neighboring == "replace_one" and planner.request != request:
                raise ValueError(
                    "the noise of a candidate hangs on the number of rows (batch_size, epochs), which is random where "
                    "rows are held out: give sampling_rate and steps, or public_data"
                )
        return request

    def _smallest_fold(self, n_rows):
        """Fewest rows that a run is fitted to, but for one search of a thousand million; at least 1."""
        return max(1, int(stats.binom.ppf(1e-9, n_rows, 1 - 1 / (self.cv or FOLDS))))

    def _check_scoring(self, candidates, y):
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
        """Fit a candidate to made-up rows, and score it, before the charge: what could not be scored is refused.

        The model stands in where no run is drawn; and it shows whether the term of a record is a function of that
        record alone, on which the price of the score rests. That is asked of every score, the package's own too.
        """
        trial = public_model(estimator, X, y, neighboring)
        if self.public_data is not None:
            quietly(lambda: self._public_score(scoring, trial))
            return trial
        rows, labels = made_up_rows(X, y, estimator)
        score = quietly(lambda: score_function(scoring, trial))
        whole = quietly(lambda: np.asarray(score(rows, labels)))
        if whole.ndim == 0:
            raise ValueError(
                "scoring gave one number: an exact score of private rows is not private, and is charged to nobody. "
                "Give one term a record (an array of shape (n_samples,)), or public_data"
            )
        if whole.shape != (num_samples(rows),) or whole.dtype.kind not in "fiub":
            raise ValueError(f"scoring must give one number a record: shape ({num_samples(rows)},); got {whole.shape}")
        if np.isnan(whole.astype(float)).all():
            raise ValueError("scoring gave NaN for every one of some made-up rows: nothing could be chosen by it")
        part = np.arange(num_samples(rows))[::-2]  # fewer records, elsewhere, in another order
        alone = quietly(lambda: np.asarray(score(take(rows, part), take(labels, part))))
        # a record without values changes what numpy and pandas make of the others
        more = with_missing(rows, labels)
        beside = quietly(lambda: held_terms(score, *more, take, num_samples(more[0]), bounds[0]))[: len(whole)]
        if alone.shape != part.shape or not same_terms(np.append(alone, beside), np.append(whole[part], whole), bounds):
            raise ValueError(
                "the term that scoring gives to a record depends on the other records (or on chance, or on rounding "
                "in single precision: compute in float64): one record could then move all terms, and no noise would "
                "be enough"
            )
        return trial

    def _calibrated(self, search, requests, accountant):
        delta = accountant.delta if self.delta is None else self.delta
        # each run may fail by the thresholds of its fit, and there are mean_runs of them on average
        extras = [request.extra_delta_share * delta / search.mean_runs for request in requests]
        extra, private_score = search.mean_runs * max(extras), self.public_data is None
        label = f"PrivateSearchCV: {type(self.estimator).__name__}, {len(requests)} candidates"
        asked = accountant.epsilon if self.epsilon is None else self.epsilon
        # where most of the price is decided; for Gaussian phases it does not matter
        alpha = 1 + math.sqrt(2 * math.log(1 / delta)) / gaussian_mu(min(asked, 1e3), delta)

        def plans(mu):
            terms = {"alpha": alpha, "epsilon": asked}
            return [plan_at(r, mu, accountant, extra_delta=e, **terms) for r, e in zip(requests, extras)]

        def event(mu):
            if math.isinf(mu):
                return non_private_event()
            score = [gaussian_event(1 / mu)] if private_score else []
            return repeat_and_select_event([*(plan.event for plan in plans(mu)), *score], self.runs, search.mean_runs)

        if math.isinf(asked):
            mu, plan = math.inf, FitPlan(label, (), {}, event(math.inf), extra, math.inf, delta, accountant.neighboring)
        else:
            advice = f": {search.mean_runs:g} runs on average are too many; lower mean_runs, or spend more epsilon"
            terms = {"label": label, "epsilon": self.epsilon, "delta": delta, "extra_delta": extra, "advice": advice}
            mu, plan = calibrate_by_rdp(accountant, event, **terms)
        noise = None if not private_score else (0.0 if math.isinf(mu) else 1 / mu)
        search = search._replace(plans=plans(mu), score_noise=noise)
        return search, self._with_phases(plan, search.plans, noise)

    def _with_phases(self, plan, candidates, score_noise):
        """The plan of the search with what a run may be, to be read in `BudgetPlan`: a share is that of its own run."""
        phases, multipliers = [], {}

        def tell(phase, label, noise):
            phases.append(replace(phase, label=label))
            multipliers[label] = noise

        alike = {}
        for k, candidate in enumerate(candidates):
            alike.setdefault(candidate.phases, []).append(k)
        for same in alike.values():
            whose = "candidate " + ", ".join(str(k + 1) for k in same) if len(alike) > 1 else "each candidate"
            candidate = candidates[same[0]]
            whole = math.fsum(phase.share for phase in candidate.phases)
            for phase in candidate.phases:
                shared = replace(phase, share=phase.share / whole)
                tell(shared, f"{whose}: {phase.label}", candidate.noise_multipliers[phase.label])
        if score_noise is not None:  # of the rows held out
            tell(Phase("score", 1.0, sampling_rate=1 / (self.cv or FOLDS)), "score", score_noise)
        return replace(plan, phases=tuple(phases), noise_multipliers=MappingProxyType(multipliers))


def public_model(estimator, X, y, neighboring):
    """Fit without noise, and without books, to rows made up from public facts."""
    rows, labels = made_up_rows(X, y, estimator)
    model = clone(estimator).set_params(epsilon=np.inf, neighboring=neighboring, random_state=0)
    with unwatched(), public_noise():  # nothing of the data: no release, and always the same model
        return quietly(lambda: model.fit(rows, labels))


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def take(X, rows):
    if hasattr(X, "iloc"):
        return X.iloc[rows].reset_index(drop=True)
    if is_extension(X):  # numpy would make floats of integers, where one of them is missing
        return X[rows]
    return None if X is None else np.asarray(X)[rows]
