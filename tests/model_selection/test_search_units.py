"""A search protects persons with several rows: a person is in the fits or in the scores, with all rows."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from _short_fits import short_postprocessing
from _visits import SCHEMA, in_the_second_half, visits
from sklearn.model_selection import GroupKFold, cross_validate

from skdpgen import DPPCA, MomentSynthesizer, PrivacyAccountant, PrivacyUnit, PrivateSearchCV
from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedUnit, UnitRelation
from skdpgen.data import units
from skdpgen.exceptions import InvalidInputError, PrivacyLeakWarning
from skdpgen.model_selection import _planning, _private_search, _scoring
from skdpgen.model_selection._planning import SearchRows
from skdpgen.model_selection._scoring import bounded_score
from skdpgen.testing import check_noninterference
from skdpgen.utils.noise import NoiseGenerator
from skdpgen.utils.watching import watch_releases

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
UNIT = {"unit": "pid", "max_rows_per_unit": 2}
GRID = {"n_components": [1, 2]}


MANY = [*[5, 1] * 12, 9]  # rows of the units: 96 % have no more than 5


def _visits(n_units=300, sizes=(5, 1)):
    return visits(n_units, sizes).sample(frac=1, random_state=0, ignore_index=True)


def _search(estimator=None, **parameters):
    estimator = MomentSynthesizer(schema=SCHEMA, target="c", **UNIT) if estimator is None else estimator
    options = {"epsilon": 5.0, "score_bounds": (-10, 0), "runs": "logarithmic", "mean_runs": 1.5, **parameters}
    return PrivateSearchCV(estimator, **{"param_grid": GRID, **options})


def _seen(monkeypatch):
    """What the fits and the scores of a search were given."""
    fits, scores = [], []
    fit, score = MomentSynthesizer._fit_reserved, _private_search.held_terms

    def _fit_reserved(self, X, y, plan, reservation, groups=None):
        fits.append((X, groups))
        return fit(self, X, y, plan, reservation, groups)

    def held_terms(function, X, y, *rest):
        scores.append(X)
        return score(function, X, y, *rest)

    monkeypatch.setattr(MomentSynthesizer, "_fit_reserved", _fit_reserved)
    monkeypatch.setattr(_private_search, "held_terms", held_terms)
    return fits, scores


@pytest.mark.parametrize(("weighting", "relation"), list(itertools.product(WEIGHTINGS, NEIGHBORING)))
def test_a_unit_is_in_the_fits_or_in_the_scores(monkeypatch, weighting, relation):
    fits, scores = _seen(monkeypatch)
    frame = _visits()
    frame["a"] = frame["pid"] / 100 - 1.5  # tells whose row it is
    estimator = MomentSynthesizer(schema=SCHEMA, target="c", unit=PrivacyUnit("pid", 2, weighting=weighting))
    search = _search(estimator, neighboring=relation).fit(frame)
    whole = frame.groupby("pid").size()
    for (X, groups), scored in zip(fits, scores):
        pd.testing.assert_series_equal(groups.value_counts().sort_index(), whole[np.unique(groups)], check_names=False)
        assert list(X.columns) == list(scored.columns) == ["a", "c"]
        held = np.round(100 * (scored["a"] + 1.5)).astype(int)
        assert not set(held) & set(groups)
        assert set(held) | set(groups) == set(whole.index)
        assert held.value_counts().max() == 2
        assert 0.1 < held.nunique() / len(whole) < 0.32
    assert all(one[1].equals(other[1]) for one, other in itertools.pairwise(fits))  # one split for all runs
    assert search.card_["unit"].startswith("all rows of one pid, at most 2 of them used")
    assert search.best_estimator_.card_ == search.card_
    assert [charge.unit for charge in search.accountant_.charges] == ["pid"]
    assert search.plan(frame).unit == BoundedUnit("pid", 2, weighting)


@pytest.mark.parametrize(("weighting", "relation"), list(itertools.product(WEIGHTINGS, NEIGHBORING)))
def test_a_search_learns_once_how_many_rows_of_a_unit_all_runs_use(monkeypatch, weighting, relation):
    frame = _visits(3000, MANY)
    frame["a"] = frame["pid"] / 1000 - 1.5
    _fits, scores = _seen(monkeypatch)
    used, scaled, released = [], [], []
    shipped = _private_search.add_gaussian
    monkeypatch.setattr(
        _private_search,
        "add_gaussian",
        lambda query, noise, rng, relation: (
            scaled.append(noise * query.sensitivity(relation)) or shipped(query, noise, rng, relation)
        ),
    )
    complete = MomentSynthesizer._complete

    def _complete(self, rows, plan, rng):
        used.append((self.max_rows_per_unit, plan.unit))
        complete(self, rows, plan, rng)

    monkeypatch.setattr(MomentSynthesizer, "_complete", _complete)
    estimator = MomentSynthesizer(schema=SCHEMA, target="c", unit=PrivacyUnit("pid", weighting=weighting))
    search = _search(estimator, neighboring=relation)
    plan = search.plan(frame)
    trials = len(used)
    with watch_releases(lambda value, sd, kind: released.append(np.ravel(sd))):
        search.fit(frame)
    unit, sensitivity = BoundedUnit("pid", 5, weighting), {"add_or_remove_one": 1.0, "replace_one": 2**0.5}[relation]
    # the first release is the histogram of units, and no run has another one
    assert released[0] == pytest.approx(plan.noise_multipliers["unit_rows"] * sensitivity)
    assert sum(len(sd) == len(released[0]) and (sd == released[0]).all() for sd in released) == 1
    assert search.max_rows_per_unit_ == search.best_estimator_.max_rows_per_unit_ == 5
    # the candidates were planned with the largest number; all runs have that which was released
    assert used[: trials + 1] == [(89, BoundedUnit("pid", 89, weighting))] * (trials + 1)
    assert set(used[trials + 1 :]) == {(5, unit)}
    for scored in scores:
        assert np.round(1000 * (scored["a"] + 1.5)).value_counts().max() == 5
    score_noise = plan.noise_multipliers["score"] * (0.25 + 1 / 16) ** 0.5 * (5 if weighting == "rows" else 1)
    if relation == "add_or_remove_one":
        assert scaled == pytest.approx([score_noise] * len(scores), rel=2e-3)
    # both are in the one charge
    (charge,) = search.accountant_.charges
    assert [row.mechanism for row in charge.releases] == ["gaussian", "repeat_and_select"]
    assert charge.releases[0].noise_multiplier == plan.noise_multipliers["unit_rows"]
    assert search.accountant_.epsilon_spent() == pytest.approx(5.0, rel=1e-3)
    (stated,) = (text for text in search.card_["public_assumptions"] if "most rows used of one unit" in text)
    assert stated.startswith("most rows used of one unit: 5, learned by this fit")
    search.card_.verify()


def _first_release_not_charged(patch):
    shipped = _planning.event_of
    patch.setattr(_planning, "event_of", lambda rows: shipped(rows[-1:]))


def _first_release_twice(patch):
    shipped = _planning.settle_ids
    patch.setattr(_planning, "settle_ids", lambda *given: (shipped(*given), shipped(*given))[1])


def _runs_with_other_numbers(patch):
    shipped = MomentSynthesizer.set_params
    patch.setattr(
        MomentSynthesizer,
        "set_params",
        lambda self, **p: shipped(self, **{k: 89 if k == "max_rows_per_unit" else v for k, v in p.items()}),
    )


def _more_rows_scored_than_learned(patch):
    shipped = _planning.settle_ids
    patch.setattr(_planning, "settle_ids", lambda ids, *rest: (ids, shipped(ids, *rest)[1]))


@pytest.mark.parametrize(
    "sabotage",
    [_first_release_not_charged, _first_release_twice, _runs_with_other_numbers, _more_rows_scored_than_learned],
)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_learned_number_that_weakens_the_protection_is_caught(monkeypatch, sabotage, weighting):
    sabotage(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, ValueError)):  # some are refused by the fit itself
        test_a_search_learns_once_how_many_rows_of_a_unit_all_runs_use(monkeypatch, weighting, NEIGHBORING[0])


@pytest.mark.parametrize("relation", NEIGHBORING)
def test_a_search_without_a_run_has_the_learned_number_too(relation):
    frame = _visits(3000)
    search = _search(
        MomentSynthesizer(schema=SCHEMA, target="c", unit="pid"), epsilon=np.inf, neighboring=relation
    ).fit(frame)
    assert search.max_rows_per_unit_ == 5
    for _ in range(20):
        search = _search(MomentSynthesizer(schema=SCHEMA, target="c", unit="pid"), runs="poisson", mean_runs=1.0)
        search.fit(frame)
        if not np.isfinite(search.best_score_):
            break
    assert not np.isfinite(search.best_score_)
    assert search.best_estimator_.max_rows_per_unit_ == search.max_rows_per_unit_ == 5


def test_units_are_held_out_independently_of_all_others_and_as_often_as_rows_are():
    frame = _visits(4000)
    estimator = MomentSynthesizer(schema=SCHEMA, **UNIT)
    rows = SearchRows(estimator, frame, None, None, BoundedUnit("pid", 2))
    held = rows.split(0.2, NoiseGenerator("seeded", seed=0))
    assert rows.n_units == 4000
    share = 1 - held.fit[2].nunique() / 4000
    assert abs(share - 0.2) < 5 * (0.16 / 4000) ** 0.5
    more = pd.concat([frame, pd.DataFrame({"pid": [10**6] * 9, "a": 0.0, "c": "x"})], ignore_index=True)
    again = SearchRows(estimator, more, None, None, BoundedUnit("pid", 2)).split(0.2, NoiseGenerator("seeded", seed=0))
    others = again.fit[2][again.fit[2] < 10**6].reset_index(drop=True)
    pd.testing.assert_series_equal(others, held.fit[2])  # the draw of the unit that joins comes after all others


def test_rows_without_an_identifier_are_units_of_their_own():
    frame = _visits(20).astype({"pid": "Int64"})
    frame.loc[:4, "pid"] = pd.NA
    own = MomentSynthesizer(schema=SCHEMA, unit=PrivacyUnit("pid", 2, missing="own"))
    rows = SearchRows(own, frame, None, None, BoundedUnit("pid", 2))
    assert rows.n_units == frame["pid"].nunique() + 5
    _search(own).plan(frame)
    with pytest.raises(InvalidInputError, match="lacks an identifier"):
        _search().plan(frame)


@pytest.mark.parametrize("array", [False, True])
def test_identifiers_may_be_groups_or_a_column(array):
    frame = _visits()
    pca = DPPCA(bounds=(-4, 4), max_rows_per_unit=2)
    if array:
        search = _search(pca).fit(np.column_stack([frame["a"], frame["a"] ** 2]), groups=frame["pid"].to_numpy())
        assert search.card_["unit"].startswith("all rows of one unit")
    else:
        search = _search(pca.set_params(unit="pid")).fit(frame[["a", "pid"]].assign(b=1.0))
        assert search.n_features_in_ == 2
    (stated,) = (text for text in search.card_["public_assumptions"] if "most rows used of one unit" in text)
    assert "learned" not in stated


def test_public_scores_hold_out_nobody():
    frame = _visits()
    public = frame.drop(columns="pid")[:50]
    search = _search(score_bounds=None, public_data=public).fit(frame)
    assert search.card_["unit"].startswith("all rows of one pid")


@pytest.mark.parametrize(
    ("search", "match"),
    [
        (lambda a: _search(param_grid={"max_rows_per_unit": [1, 2]}, accountant=a), "all candidates protect one unit"),
        (lambda a: _search(param_grid={"unit__weighting": [*WEIGHTINGS]}, accountant=a), "all candidates protect one"),
        (lambda a: _search(MomentSynthesizer(unit="nobody", max_rows_per_unit=2), accountant=a), "nobody"),
        (lambda a: _search(MomentSynthesizer(), accountant=a), "protects one row"),
    ],
)
def test_what_would_not_protect_the_unit_is_refused_before_the_charge(search, match):
    accountant = PrivacyAccountant(9.0, unit="pid")
    with pytest.raises(ValueError, match=match):
        search(accountant).fit(_visits())
    assert not accountant.entries


def test_folds_of_groups_keep_a_unit_together_in_cross_validation():
    frame = _visits(60)
    with pytest.warns(PrivacyLeakWarning):
        scores = cross_validate(
            MomentSynthesizer(50.0, schema=SCHEMA, **UNIT), frame, groups=frame["pid"], cv=GroupKFold(3)
        )
    assert np.isfinite(scores["test_score"]).all()


# ---- the sum of the terms ----------------------------------------------------------------------------------------
def _moved(kept, terms, weighting, others=((0.3, 1), (-0.2, 2), (0.1, 2))):
    """Change of the weighted sum by a unit whose rows have these terms, and the sensitivity that is claimed."""
    rest, sizes = (np.array(part) for part in zip(*others))
    both = np.append(rest, terms), np.append(sizes, np.full(len(terms), kept))
    one, other = (bounded_score(t, (-0.5, 0.5), s if weighting == "units" else None) for t, s in ((rest, sizes), both))
    return (other.value - one.value) * other.lattice * other.weights, other


@pytest.mark.parametrize("k", [1, 2, 3, 7])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_unit_moves_the_score_by_what_is_claimed_and_never_by_more(k, weighting):
    unit, rng = BoundedUnit("pid", k, weighting), np.random.default_rng(k)
    high, query = _moved(k, [0.5] * k, weighting)
    low, _ = _moved(k, [-0.5] * k, weighting)
    added, replaced = (query.sensitivity(UnitRelation(name, unit)) for name in NEIGHBORING)
    assert 0.998 * added <= np.linalg.norm(high) <= added
    assert 0.998 * replaced <= np.linalg.norm(high - low) <= replaced
    pairs = []
    for _ in range(50):
        m = int(rng.integers(1, k + 1))
        pairs.append(_moved(m, rng.uniform(-0.7, 0.7, m).round(rng.integers(0, 9)), weighting)[0])
    assert max(np.linalg.norm(pairs, axis=1)) <= added
    assert max(np.linalg.norm(one - other) for one, other in itertools.combinations(pairs, 2)) <= replaced


def test_weights_of_a_unit_sum_to_at_most_one_whatever_their_number():
    m = np.arange(1, 2000)
    for term in (0.5, -0.5, 0.123456789):
        for n in m[::37]:
            value = bounded_score(np.full(n, term), (-0.5, 0.5), np.full(n, n)).value
            assert 2 * abs(value[0]) <= value[1] <= 2**36


# ---- neighbours that differ in a person ------------------------------------------------------------------------
def _people():
    """Two sets of visits, and those of another person; all units appear in the first half (see `_check`).

    The sets have enough persons for two folds, in about the same number: the draw of the person who joins follows from
    it, and puts the person into one fold of both.
    """
    rng, sets = np.random.default_rng(0), []
    many, few = np.append(rng.permutation(40), rng.integers(0, 40, 50)), 100 + np.tile(np.arange(39), 2)
    for ids, shift in ((many, 0.0), (few, -40.0), (np.full(5, 999), 1e3)):
        a = rng.normal(size=len(ids)) + shift
        sets.append(pd.DataFrame({"pid": ids, "a": a, "b": a**2, "d": 1.0 - a}))
    return sets


def _check(monkeypatch, weighting, relation, most=3):
    monkeypatch.setattr("skdpgen.testing._noninterference._among", in_the_second_half)
    many, few, joining = _people()
    with short_postprocessing():
        pca = DPPCA(2, bounds=(-5, 60), unit=PrivacyUnit("pid", most, weighting=weighting))
        made = PrivateSearchCV(
            pca, {"budget_split": [{"bounds": 0.05}, {"bounds": 0.1}]}, runs="logarithmic", mean_runs=1.5,
            score_bounds=(-30, 10), random_state=0, cv=2, neighboring=relation,
        )  # fmt: skip
        check_noninterference(made, many, few, rows=joining)


@pytest.mark.parametrize(("weighting", "relation"), list(itertools.product(WEIGHTINGS, NEIGHBORING)))
def test_a_person_moves_no_release_by_more_than_it_claims(monkeypatch, weighting, relation):
    _check(monkeypatch, weighting, relation)


@pytest.mark.parametrize(("weighting", "relation"), list(zip(WEIGHTINGS, NEIGHBORING)))
def test_a_person_moves_no_release_of_a_search_that_learns_their_number(monkeypatch, weighting, relation):
    _check(monkeypatch, weighting, relation, most=None)


def _single_rows_are_held_out(patch):
    """The rows of a person are in the fit and in the score."""

    def split(self, share, rng):
        held_out = rng.random(len(self._codes)) < share
        kept = units.keep_rows(self._ids, units.draw_key(rng))
        scored = held_out[kept.rows]
        sizes = None if kept.unit_sizes is None else kept.unit_sizes[scored]
        return _planning.HeldOut(self._taken(~held_out), self._taken(kept.rows[scored])[:2], sizes)

    patch.setattr(SearchRows, "split", split)


def _all_rows_are_scored(patch):
    """A person's score counts as often as there are rows."""
    shipped = units.keep_rows

    def all_of_them(ids, key):
        return shipped(units.UnitIds(BoundedUnit("pid", 1000, ids.unit.weighting), ids.codes, ids.values), key)

    patch.setattr(_planning, "keep_rows", all_of_them)


def _terms_without_weights(patch):
    shipped = _scoring.bounded_score

    def plain(terms, score_bounds, unit_sizes=None):
        query = shipped(terms, score_bounds)
        object.__setattr__(query, "weighted", unit_sizes is not None)
        return query

    patch.setattr(_private_search, "bounded_score", plain)


@pytest.mark.parametrize(
    ("sabotage", "weighting"),
    [(_all_rows_are_scored, "rows"), (_terms_without_weights, "units")],
)
def test_a_score_that_weakens_the_protection_is_caught(monkeypatch, sabotage, weighting):
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        _check(monkeypatch, weighting, NEIGHBORING[0])


def test_a_split_of_rows_is_caught(monkeypatch):
    _single_rows_are_held_out(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_unit_is_in_the_fits_or_in_the_scores(monkeypatch, "rows", NEIGHBORING[0])
