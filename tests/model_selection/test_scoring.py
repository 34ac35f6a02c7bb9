"""The private score: its sensitivity is attained and not exceeded, and a sabotaged one is caught."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _claims import RELATIONS, assert_sensitivity
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen import P3GMSynthesizer
from skdpgen.model_selection import _scoring
from skdpgen.model_selection._scoring import _unit_terms, bounded_score, held_terms, score_terms
from skdpgen.tabular import Categorical, Numeric, Schema

BASE = np.linspace(-3.0, 2.0, 7)
ODD = [-np.inf, np.nan, -1e300, -2.0, -0.3, 0.0, 1.0, 1e300, np.inf]


def score_sensitivity_is_attained_and_not_exceeded(relation):
    """Whatever the term of a record is, NaN and infinities included, it moves the sum by no more than it says."""
    joined = [np.append(BASE, term) for term in ODD]
    if relation == "add_or_remove_one":
        pairs, attained = [(BASE, more) for more in joined], [(BASE, joined[-1])]
    else:
        pairs, attained = [(a, b) for a in joined for b in joined], [(joined[0], joined[-1])]
    assert_sensitivity(lambda terms: bounded_score(terms, (-2.0, 1.0)), pairs, attained=attained, relation=relation)


def test_the_lattice_sum_is_that_of_the_clipped_terms():
    terms = np.random.default_rng(0).normal(size=1000)
    sums = bounded_score(terms, (-1, 1))
    exact = (np.clip(terms, -1, 1) / 2).sum()
    assert sums.value[0] * sums.lattice == pytest.approx(exact, abs=1e-7)
    assert sums.value[1] * sums.lattice == 1000


def a_scorer_that_fails_on_a_record_loses_that_record_alone():
    """Raising, or giving too few or too many terms: every other record keeps its term, and this one counts as low."""
    rows = np.linspace(0.1, 0.9, 21)[:, None]

    def take(X, where):
        return None if X is None else X[where]

    def raises(X, y):
        if (X < 0).any():
            raise ValueError(f"cannot score {X.min()}")
        return X[:, 0]

    def raises_another(error):
        def score(X, y):
            if (X < 0).any():
                raise error("cannot score")
            return X[:, 0]

        return score

    def drops(X, y):
        return X[X[:, 0] >= 0, 0]

    def doubles(X, y):
        return np.repeat(X[:, 0], 1 + (X[:, 0] < 0))

    def one_number(X, y):
        return np.asarray(0.5) if (X < 0).any() else X[:, 0]

    # a scorer is the caller's: a search that ends by one kind of error, and not by another, shows a row
    errors = (TypeError, KeyError, FloatingPointError, RuntimeError, StopIteration, AssertionError, MemoryError)
    for score in (raises, drops, doubles, one_number, *map(raises_another, errors)):
        for place in (0, 7, 21):
            joined = np.insert(rows, place, -1.0, axis=0)
            try:
                terms = held_terms(score, joined, None, take, 22, 0.0)
            except Exception as error:
                raise AssertionError(f"the {type(error).__name__} of one record is seen") from error
            assert np.array_equal(np.delete(terms, place), rows[:, 0])
            assert terms[place] == 0.0
    assert held_terms(raises, rows[:0], None, take, 0, 0.0).shape == (0,)


CLAIMS = [Claim(score_sensitivity_is_attained_and_not_exceeded, relation) for relation in RELATIONS]
MUTANTS = [
    (
        "terms are not clipped",
        CLAIMS,
        (
            _unit_terms,
            (
                "np.clip(np.where(np.isnan($terms), $low, $terms), $low, $high)",
                "np.nan_to_num(np.clip($terms, -1e4, 1e4))",
            ),
        ),
    ),
    (
        "terms are not centred",
        CLAIMS[:1],
        (_unit_terms, ("$scaled / ($high - $low) - 0.5", "$scaled / ($high - $low)")),
    ),
    ("half the width", CLAIMS, (_unit_terms, ("$scaled / ($high - $low) - 0.5", "$scaled / ($high - $low) * 2 - 1"))),
    ("the count is not paid for", CLAIMS[:1], (bounded_score, ("(0.25 + SCORE_COUNT_WEIGHT**2) ** 0.5", "0.5"))),
]


FAILS = Claim(a_scorer_that_fails_on_a_record_loses_that_record_alone)
MUTANTS += [
    (
        "errors of one kind alone are held",
        [FAILS],
        (
            held_terms,
            ("try:\n    $body\nexcept Exception:\n    $rest", "try:\n    $body\nexcept ValueError:\n    $rest"),
        ),
    ),
    ("one bad record takes all terms with it", [FAILS], (held_terms, ("len($where) > 1", "False"))),
    (
        "terms that came are taken, however many",
        [FAILS],
        (
            held_terms,
            (
                "if $scored is not None and $scored.shape == $where.shape:\n"
                "    $terms[$begin:$end] = $scored\n"
                "elif $many:\n"
                "    $body",
                "if $scored is not None:\n    $terms = $scored\nelif $many:\n    $body",
            ),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_the_score_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])


def test_a_scorer_that_fails_on_a_record_loses_that_record_alone():
    a_scorer_that_fails_on_a_record_loses_that_record_alone()


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize("scoring", ["log_likelihood", "tstr_accuracy", "tstr_log_loss"])
def test_the_term_of_a_record_is_a_function_of_that_record(scoring):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=400), "b": rng.choice(["x", "y"], 400)})
    frame["c"] = np.where(frame["a"] > 0, "old", "new")
    schema = Schema([Numeric("a", (-4, 4)), Categorical("b", ("x", "y")), Categorical("c", ("old", "new"))])
    fitted = P3GMSynthesizer(epsilon=5.0, schema=schema, target="c").fit(frame)
    fitted._sampling_stream = np.random.default_rng(1)
    whole = score_terms(scoring, fitted, frame, None)
    fitted._sampling_stream = np.random.default_rng(1)
    part = score_terms(scoring, fitted, frame.iloc[::3].reset_index(drop=True), None)
    assert whole.shape == (400,)
    assert np.allclose(whole[::3], part)
    if scoring == "tstr_accuracy":
        assert set(whole) <= {0.0, 1.0}
        assert whole.mean() > 0.6


def test_a_label_that_was_never_drawn_counts_as_the_worst():
    class Drawn:
        model_ = None

        def get_params(self, deep=False):
            return {"target": "c"}

        def sample(self, n):
            return pd.DataFrame({"a": np.arange(n) % 2 * 1.0, "c": np.where(np.arange(n) % 2, "old", "new")})

    rows = pd.DataFrame({"a": [0.0, 1.0, np.nan], "c": ["new", "never", "old"]})
    terms = score_terms("tstr_log_loss", Drawn(), rows, None)
    assert terms[0] > -0.1
    assert terms[1] < -100
    assert np.isfinite(terms).all()
    assert list(_scoring.score_terms("tstr_accuracy", Drawn(), rows, None))[:2] == [1.0, 0.0]
