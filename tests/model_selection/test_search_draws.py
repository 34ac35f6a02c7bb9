"""What a search draws and tells: candidates that follow from nothing, a score that follows from its release alone."""

from __future__ import annotations

import itertools
import threading
import warnings

import numpy as np
import pytest
from _sabotage import quietly
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.model_selection import ParameterGrid

from skdpgen import DPPCA, PrivateSearchCV
from skdpgen.model_selection._planning import Search, SearchRows
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator
from skdpgen.utils.watching import watch_releases


class Candidate(BaseEstimator):
    """Notes which of the candidates was fitted, and nothing else."""

    fitted = threading.local()

    def __init__(self, k=0, accountant=None):
        self.k, self.accountant = k, accountant

    def _fit_reserved(self, X, y, plan, reservation, groups=None):
        reservation.take(plan)
        self.fitted.candidates.append(self.k)
        return self

    def score(self, X, y=None):
        return float(self.k)


class Runs:
    """Pays for a number of runs that is drawn as the search draws it."""

    def draw_runs(self, runs, mean, rng):
        self._left = rng.integers(2 * int(mean) + 1)
        return self._left

    def take(self, plan):
        self._left -= 1


class Telling(Candidate):
    """Warns in each fit."""

    def _fit_reserved(self, X, y, plan, reservation, groups=None):
        warnings.warn(f"candidate {self.k}", UserWarning, stacklevel=2)
        return super()._fit_reserved(X, y, plan, reservation)


def best_of_searches(kind, n_candidates, n_searches):
    """Best run of each of some searches, and the numbers of the candidates that it fitted, in order."""
    found, rng = [], make_noise_generator()
    estimators = [kind(k) for k in range(n_candidates)]
    search = PrivateSearchCV(kind(), {"k": list(range(n_candidates))}, public_data=np.zeros((2, 1)))
    plan = Search(list(ParameterGrid({})), estimators, [None] * n_candidates, None, None, None, 6.0, estimators[0])
    plan = plan._replace(candidates=list(range(n_candidates)))
    for _ in range(n_searches):
        Candidate.fitted.candidates = []
        best, failure = search._search(plan, Runs(), SearchRows(kind(), np.zeros((4, 1)), None, None, None), rng)
        assert failure is None
        found.append((best, list(Candidate.fitted.candidates)))
    return found


def candidates_of_searches(n_candidates, n_searches):
    """Numbers of the candidates fitted by each of some searches, in order; fits are nothing but a note."""
    return [fitted for _, fitted in best_of_searches(Candidate, n_candidates, n_searches)]


def test_warnings_of_the_best_run_alone_are_told():
    """One for each run would tell how many there were, and of which candidates."""
    found = [(best, fitted) for best, fitted in best_of_searches(Telling, 2, 20) if fitted]
    assert max(len(fitted) for _, fitted in found) > 1
    for best, _ in found:
        assert [str(warning.message) for warning in best.warned] == [f"candidate {best.index}"]


@pytest.mark.parametrize("n_candidates", [2, 3])
def test_the_candidate_of_a_run_is_drawn_whatever_runs_there_are(n_candidates):
    """Its place among the runs, from the first or the last, their number, and the run before say nothing of it."""
    found = [runs for runs in candidates_of_searches(n_candidates, 300) if runs]
    flat = np.array([(k, i, len(runs) - i, len(runs)) for runs in found for i, k in enumerate(runs)])
    assert stats.chisquare(np.bincount(flat[:, 0], minlength=n_candidates)).pvalue > 1e-6
    pairs = np.array([pair for runs in found for pair in itertools.pairwise(runs)])
    told = [(flat[:, 0], flat[:, j] % n) for j in (1, 2, 3) for n in (2, 3)] + [(pairs[:, 0], pairs[:, 1])]
    for one, other in told:
        table = np.zeros((n_candidates, other.max() + 1))
        np.add.at(table, (one, other), 1)
        assert stats.chi2_contingency(table).pvalue > 1e-6


def released_scores(neighboring, seed):
    """The score that a search tells, and the releases that it may follow from."""
    X = np.random.default_rng(5).normal(size=(60, 3)) * [1.0, 0.5, 0.1]
    seen, low, high = [], -20.0, 10.0
    with seeded_noise(seed, quiet=True), watch_releases(lambda value, sd, kind: seen.append(np.asarray(value))):
        search = PrivateSearchCV(
            DPPCA(bounds=(-4, 4), l2_bound=1.0), {"n_components": [1, 2]}, epsilon=3.0, score_bounds=(low, high),
            mean_runs=2.0, runs="logarithmic", neighboring=neighboring,
        )  # fmt: skip
        quietly(lambda: search.fit(X))
    scores = [value for value in seen if value.shape == (2,)]
    return search.best_score_, scores, (low, high)


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_the_score_told_follows_from_the_release_and_public_numbers_alone(neighboring):
    for seed in range(2):
        told, scores, (low, high) = released_scores(neighboring, seed)
        best = max(scores, key=lambda score: score[0])
        if neighboring == "add_or_remove_one":
            mean = best[0] / max(best[1], 1.0) + 0.5
            assert told == low + (high - low) * min(max(mean, 0.0), 1.0)
        assert low <= told <= high
