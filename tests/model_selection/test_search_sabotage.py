"""Every sabotage of a search is caught: unpaid scores, known numbers of runs, folds that move, what the losers left."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import test_private_search
import test_search_draws
from _private_values import find_private
from _sabotage import Claim, assert_caught, before, mutant_ids, quietly

from skdpgen import DPPCA, PrivateSearchCV
from skdpgen.accounting import _card, describe_event
from skdpgen.accounting._reservation import Reservation
from skdpgen.model_selection._planning import SearchRows
from skdpgen.testing import seeded_noise
from skdpgen.utils.watching import watch_releases

X = np.random.default_rng(5).normal(size=(401, 3)) * [1.0, 0.5, 0.1]
PUBLIC = {"bounds": (-4, 4), "l2_bound": 1.0}


class _Watched(DPPCA):
    """Counts the rows that it is fitted to; the model of made-up rows, which has no noise, is no run."""

    sizes = []

    def _complete(self, rows, plan, rng):
        self.sizes += [len(rows[0])] * int(np.isfinite(self.epsilon))
        return super()._complete(rows, plan, rng)


@pytest.fixture(autouse=True)
def no_sizes():
    """A claim that fails leaves sizes: other claims look for exact counts in all that an estimator has."""
    _Watched.sizes.clear()


def _search(n=401, **changed):
    options = {"epsilon": 3.0, "score_bounds": (-20, 10), "mean_runs": 3.0, **changed}
    return quietly(lambda: PrivateSearchCV(_Watched(**PUBLIC), {"n_components": [1, 2]}, **options).fit(X[:n]))


def releases_of_a_search_are_what_was_charged():
    """Each run releases what the event says a run may be, at its noise, once the search is in the books."""
    for seed in range(4):
        seen = []
        with seeded_noise(seed, quiet=True), watch_releases(lambda value, sd, kind: seen.append((value, sd))):  # noqa: B023
            search = _search(runs="logarithmic")
        (charge,) = search.accountant_.charges
        (told,) = describe_event(charge.event)
        noises = [row["noise_multiplier"] for rows in told["one_of"] for row in rows]
        noise = noises[0]
        # one Gaussian release of the fit, and of the score, at one price
        assert max(noises) - min(noises) < 1e-8 * noise
        assert len(seen) % 2 == 0, "a run is a fit and a score"
        for fit, score in zip(seen[::2], seen[1::2]):
            assert fit[1][0] * 0.05 == pytest.approx(noise * (0.05**2 + 0.1 + 1) ** 0.5, rel=1e-6)
            assert score[1][0] == pytest.approx(noise * (0.25 + 0.25**2) ** 0.5, rel=2e-3)
        search.card_.verify()


def the_number_of_runs_is_drawn_by_the_noise():
    """It differs from search to search, `random_state` or not, and Poisson's mean is what was charged."""
    counts = []
    for seed in range(18):
        _Watched.sizes.clear()
        with seeded_noise(seed, quiet=True):
            search = _search(random_state=0)
        counts.append(len(_Watched.sizes))
        _Watched.sizes.clear()  # other tests look for exact counts in all that an estimator has
        (told,) = describe_event(search.accountant_.charges[0].event)
        assert told["mean"] == 3.0
    assert len(set(counts)) >= 4
    assert 1.5 < np.mean(counts) < 4.6


def each_row_is_held_out_by_a_coin_of_its_own():
    """The rows of a fit are not a fixed share of all, and never all of them."""
    sizes = set()
    for seed in range(8):
        _Watched.sizes.clear()
        with seeded_noise(seed, quiet=True):
            _search(runs="logarithmic")
        assert len(set(_Watched.sizes)) == 1  # the same rows in all runs
        sizes |= set(_Watched.sizes)
    assert max(sizes) < 401
    assert len(sizes) > 3


def nothing_of_the_losers_is_kept():
    """The candidates, the best run, the books and the card: no score of another run, no row, no count."""
    with seeded_noise(1, quiet=True):
        search = _search(runs="logarithmic", mean_runs=6.0)
    kept = set(vars(search)) - set(search.get_params(deep=False))
    best = {"best_estimator_", "best_index_", "best_params_", "best_score_", "cv_results_"}
    assert kept == best | {"accountant_", "card_", "_sampling_stream"}
    assert set(search.cv_results_) == {"params"}
    assert search.best_estimator_.accountant_ is search.accountant_
    search.best_estimator_.card_.verify()
    found = find_private(search, pd.DataFrame(X, columns=["a", "b", "c"]), derived=X / 4)
    assert not found, "\n".join(found)


PAID = Claim(releases_of_a_search_are_what_was_charged)
DRAWN = Claim(the_number_of_runs_is_drawn_by_the_noise)
COINS = Claim(each_row_is_held_out_by_a_coin_of_its_own)
CANDIDATES = Claim(test_search_draws.test_the_candidate_of_a_run_is_drawn_whatever_runs_there_are, 2)
TOLD = Claim(
    test_search_draws.test_the_score_told_follows_from_the_release_and_public_numbers_alone, "add_or_remove_one"
)
KEPT = Claim(nothing_of_the_losers_is_kept)
S = PrivateSearchCV
RUNS = "int(np.searchsorted($cumulative, $drawn, $rest))"
DRAW = Reservation.draw_runs
MUTANTS = [
    ("an exact score", [PAID], (S._score, ("$search.score_noise", "0.0"))),
    ("a score at half its noise", [PAID], (S._score, ("$search.score_noise", "$search.score_noise / 2"))),
    (
        "a second score, unpaid",
        [PAID],
        (S._run, before("$rank, $score = self._score($rest)", "self._score($rest)")),
    ),
    (
        "a fixed number of runs",
        [DRAWN],
        (DRAW, (RUNS, "3")),
    ),
    ("a number of runs by random_state", [DRAWN], (DRAW, ("$rng.random() * $cumulative[-1]", "0.5"))),
    (
        "twice the runs that were charged",
        [DRAWN],
        (
            DRAW,
            (
                RUNS,
                f"2 * {RUNS}",
            ),
        ),
    ),
    (
        "folds of a fixed size",
        [COINS],
        (SearchRows.split, ("$rng.random(self.n_units) < $share", "np.arange(self.n_units) % 5 == 0")),
    ),
    ("fits to all rows", [COINS], (SearchRows.split, ("~$held_out", "~$held_out | True"))),
    (
        "folds drawn anew in each run",
        [COINS],
        (
            S._run,
            before("$k = $rng.integers(len($search.candidates))", "$4 = $3.split(0.2, $rng)"),
        ),
    ),
    (
        "a candidate that follows from the runs left",
        [CANDIDATES],
        (S._run, ("$rng.integers(len($search.candidates))", "$2._left % len($search.candidates)")),
    ),
    (
        "a score divided by the exact number of rows held out",
        [TOLD],
        (S._score, ("$neighboring == 'replace_one'", "True")),
    ),
    (
        "scores kept",
        [KEPT],
        (S._keep, ("{'params': $search.candidates}", "{'params': $search.candidates, 'mean_test_score': $1.rank}")),
    ),
    (
        "the rows held out kept",
        [KEPT],
        (
            S._run,
            before(
                "$rank, $score = self._score($search, $estimator, $rows, $rest)", "$estimator.rows_ = $rows.score[0]"
            ),
        ),
    ),
    (
        "a list of candidates that a card may lack where the rows of a unit are learned",
        [Claim(test_private_search.test_the_card_lists_every_candidate_and_fails_where_one_is_missing, "learned")],
        (
            _card._check_candidates,
            (
                "r'PrivateSearchCV(?: \\([^:]*\\))?: .*, (\\d+) candidates( of .*)?'",
                "r'PrivateSearchCV(?: \\([^:]*\\))?: .*, (\\d+) candidates'",
            ),
            ("$named is None and not $repeated", "$named is None"),
        ),
    ),
    (
        "a search that is known by its label alone",
        [Claim(test_private_search.a_search_is_known_by_its_event_and_not_by_its_label, "a fit")],
        (_card._check_candidates, ("$named is None and not $repeated", "$named is None")),
    ),
    (
        "a renamed search with fewer candidates than its event has alternatives",
        [Claim(test_private_search.a_search_of_several_prices_has_as_many_candidates)],
        (_card._check_candidates, ("len($repetition.alternatives) - 1", "1")),
    ),
    (
        "the card of one run kept",
        [KEPT],
        (S._keep, ("$estimator.accountant_, $estimator.card_ = (self.accountant_, self.card_)", "pass")),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_a_search_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])


@pytest.mark.parametrize("claim", [PAID, DRAWN, COINS, KEPT], ids=str)
def test_a_search_is_what_it_claims(claim):
    claim.holds_unpatched()
