"""PrivateSearchCV: one charge, one model, and nothing of the other runs."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV

from skdpgen import (
    DPPCA,
    DPSGD,
    DP2VAESynthesizer,
    DPGaussianMixture,
    LatentMixture,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivacyCard,
    PrivacyUnit,
    PrivatePipeline,
    PrivateSearchCV,
    SubsetSGD,
    load,
)
from skdpgen.accounting import _reservation as reservation
from skdpgen.accounting import epsilon_pld
from skdpgen.accounting._card import digest
from skdpgen.accounting._reservation import Reservation
from skdpgen.exceptions import BudgetExceededError, PrivacyLeakWarning, UtilityWarning
from skdpgen.model_selection._planning import list_candidates
from skdpgen.testing import seeded_noise

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

RNG = np.random.default_rng(3)
X = np.clip(RNG.normal(size=(1500, 4)) * [1.0, 0.6, 0.2, 0.05], -4, 4)
Y = np.where(X[:, 0] + 0.3 * RNG.normal(size=1500) > 0, "high", "low")
PCA = {"estimator": DPPCA(bounds=(-4, 4)), "param_grid": {"n_components": [1, 2, 3]}, "score_bounds": (-30, 10)}


def _search(**changed):
    return PrivateSearchCV(**{**PCA, "epsilon": 2.0, **changed})


def test_one_charge_of_the_epsilon_asked_for_and_a_card_that_verifies():
    accountant = PrivacyAccountant(3.0)
    search = _search(accountant=accountant).fit(X)
    assert len(accountant.charges) == 1
    assert 1.99 < epsilon_pld(accountant.charges[0], 1e-5, "add_or_remove_one") <= 2.0
    assert search.card_.verify()["fit"]["epsilon"] <= 2.0
    assert search.card_["private"] is True
    assert PrivacyCard.from_json(search.card_.to_json()) == search.card_
    assert list(accountant.report()["mechanism"]) == ["repeat_and_select"]


def test_a_plan_is_what_a_search_then_charges():
    search = _search(accountant=PrivacyAccountant(3.0))
    plan = search.plan(X)
    assert not search.accountant.charges
    search.accountant.plan([plan])
    search.fit(X)
    assert search.accountant.charges == (plan.charge,)
    assert list(search.accountant.report()["status"]) == ["charged"]


@pytest.mark.parametrize("most", [None, 2, "learned"])
def test_the_card_lists_every_candidate_and_fails_where_one_is_missing(most):
    """The price rests on a list that was fixed in advance: it is public, and the card without it does not verify.

    So it is where units are protected, and where the search learns how many of their rows it uses, before its runs.
    """
    unit = None if most is None else PrivacyUnit("person", None if most == "learned" else most)
    groups = None if most is None else np.arange(len(X)) // 2
    search = _search(estimator=DPPCA(bounds=(-4, 4), unit=unit)).fit(X, groups=groups)
    listed = [text for text in search.card_["public_assumptions"] if text.startswith("candidate ")]
    found = [json.loads(text.partition(": ")[2]) for text in listed]
    assert found == search.cv_results_["params"]
    assert listed[0].startswith(f"candidate 1 of {len(found)}: ")
    content = json.loads(search.card_.to_json())
    content["public_assumptions"] = [text for text in content["public_assumptions"] if text != listed[-1]]
    content["digest"] = digest({name: value for name, value in content.items() if name != "digest"})
    with pytest.raises(ValueError, match="does not list each of them"):
        PrivacyCard(content).verify()


def a_search_is_known_by_its_event_and_not_by_its_label(label):
    """Somebody who drops candidates may rename the search in the fit and in the ledger."""
    search = _search(estimator=DPPCA(bounds=(-4, 4))).fit(X)
    content = json.loads(search.card_.to_json())
    for entry in (content["fit"], *content["fit"]["charges"], *content["ledger"]["charges"]):
        if "label" in entry:
            entry["label"] = label
    content["digest"] = digest({name: value for name, value in content.items() if name != "digest"})
    PrivacyCard(content).verify()
    assumptions = content["public_assumptions"]
    listed = [text for text in assumptions if text.startswith("candidate ")]
    others = [text for text in assumptions if text not in listed]
    n = len(listed)
    renumbered = [f"candidate {k} of {n - 1}: {{}}" for k in range(1, n)]
    for kept in ([], listed[1:], listed[:-1], listed[::-1], [*listed, listed[0]], renumbered[:1]):
        content["public_assumptions"] = [*others, *kept]
        content["digest"] = digest({name: value for name, value in content.items() if name != "digest"})
        with pytest.raises(ValueError, match="does not list each of them"):
            PrivacyCard(content).verify()


@pytest.mark.parametrize("label", ["PrivateSearchCV: unit_rows, 2 candidates for DPPCA", "a fit"])
def test_a_search_is_known_by_its_event_and_not_by_its_label(label):
    a_search_is_known_by_its_event_and_not_by_its_label(label)


def test_a_search_is_charged_under_the_label_of_its_accountant():
    search = _search(estimator=DPPCA(bounds=(-4, 4)), accountant=PrivacyAccountant(3.0, label="visits, 2023")).fit(X)
    label = search.card_["fit"]["label"]
    assert label.startswith("PrivateSearchCV (visits, 2023): DPPCA, ")
    search.card_.verify()
    content = dict(search.card_)
    content["public_assumptions"] = [text for text in content["public_assumptions"] if "candidate 1 of" not in text]
    content["digest"] = digest({name: value for name, value in content.items() if name != "digest"})
    with pytest.raises(ValueError, match=r"had \d candidates, and the card does not list each"):
        PrivacyCard(content).verify()


def a_search_of_several_prices_has_as_many_candidates():
    """Where the fits of candidates differ in their releases, the event tells how many there are."""
    search = _search(estimator=DPGaussianMixture(2, bounds=(-4, 4)), param_grid={"n_iter": [2, 3, 4]}).fit(X)
    content = json.loads(search.card_.to_json())
    for entry in (content["fit"], *content["fit"]["charges"], *content["ledger"]["charges"]):
        if "label" in entry:
            entry["label"] = "a fit"
    others = [text for text in content["public_assumptions"] if not text.startswith("candidate ")]
    content["public_assumptions"] = [*others, "candidate 1 of 2: {}", "candidate 2 of 2: {}"]
    content["digest"] = digest({name: value for name, value in content.items() if name != "digest"})
    with pytest.raises(ValueError, match="at least 3 candidates"):
        PrivacyCard(content).verify()


def test_a_search_of_several_prices_has_as_many_candidates():
    a_search_of_several_prices_has_as_many_candidates()


def test_the_best_estimator_leaves_with_the_books_and_the_card_of_the_search(tmp_path):
    search = PrivateSearchCV(
        P3GMSynthesizer(bounds=(-4, 4), classes=["low", "high"]),
        {"n_components": [1, 2]},
        epsilon=3.0,
        scoring="tstr_accuracy",
    ).fit(X, Y)
    best = search.best_estimator_
    assert best.accountant_ is search.accountant_
    assert best.card_ == search.card_
    assert best.accountant is None
    assert best.epsilon == 3.0
    assert 0.4 < search.best_score_ <= 1.0
    rows, labels = search.sample(50, random_state=0)
    assert rows.shape == (50, 4)
    assert set(labels) <= {"low", "high"}
    search.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").sample(5)[0].shape == (5, 4)
    with pytest.warns(PrivacyLeakWarning, match="each of the two fits has a separate ledger"):
        best.fit(X, Y)
    assert len(best.accountant_.charges) == 1


def test_the_card_of_a_search_has_the_day_of_its_charge(monkeypatch):
    """A day read after the runs would tell, about midnight, how many there were."""
    day, draw_runs = ["2001-01-01"], Reservation.draw_runs

    def drawn_past_midnight(*arguments, **options):
        day[0] = "2001-01-02"
        return draw_runs(*arguments, **options)

    monkeypatch.setattr(Reservation, "draw_runs", drawn_past_midnight)
    for module in ("_receipt", "_card"):
        monkeypatch.setattr(f"skdpgen.accounting.{module}.today", lambda: day[0])
    assert _search().fit(X).card_["date"] == "2001-01-01"


def test_only_the_best_run_leaves():
    search = _search().fit(X)
    kept = set(vars(search)) - set(search.get_params(deep=False))
    public = {"best_estimator_", "best_index_", "best_params_", "best_score_", "cv_results_", "accountant_", "card_"}
    assert kept == public | {"_sampling_stream"}
    assert search.cv_results_ == {"params": [{"n_components": k} for k in (1, 2, 3)]}
    assert search.best_params_ == search.cv_results_["params"][search.best_index_]
    again = pickle.loads(pickle.dumps(search))
    assert again.accountant_.detached
    assert b"Reservation" not in pickle.dumps(search)


def test_the_number_of_runs_is_random_and_shown_by_nothing(monkeypatch):
    runs, run = [], PrivateSearchCV._run
    monkeypatch.setattr(PrivateSearchCV, "_run", lambda self, *a: (runs.append(1), run(self, *a))[1])
    counts, states = [], []
    for k in range(40):
        runs.clear()
        with seeded_noise(k, quiet=True):
            search = _search(mean_runs=3.0).fit(X[:200])
        counts.append(len(runs))
        states.append(sorted(set(vars(search)) | set(vars(search.best_estimator_))))
    assert 2.0 < np.mean(counts) < 4.1
    assert min(counts) <= 1
    assert max(counts) >= 5
    assert np.var(counts) == pytest.approx(3, rel=0.8)
    assert all(state == states[0] for state in states)


def test_no_run_gives_a_public_model(monkeypatch):
    def never(*_):
        return np.array([1.0])

    monkeypatch.setattr(reservation, "run_probabilities", never)
    with pytest.warns(UtilityWarning, match="no run was drawn"):
        one = _search().fit(X)
    with pytest.warns(UtilityWarning, match="no run was drawn"):
        other = _search().fit(X[::-1] * 0.1 + 2)
    assert np.allclose(one.best_estimator_.components_, other.best_estimator_.components_, rtol=0, atol=1e-12)
    assert np.isnan(one.best_score_)
    assert one.best_params_ == {"n_components": 1}
    assert len(one.accountant_.charges) == 1
    one.card_.verify()


def test_no_run_of_a_frame_gives_a_public_model(monkeypatch):
    frame = pd.DataFrame({"a": X[:, 0], "b": Y, "c": X[:, 1] > 0, "d": (X[:, 2] * 10).astype(int)})
    frame["e"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(frame["d"], unit="D")
    frame["f"] = pd.Categorical(Y)
    monkeypatch.setattr(reservation, "run_probabilities", lambda *_: np.array([1.0]))
    search = PrivateSearchCV(
        P3GMSynthesizer(target="b"), {"n_components": [1, 2]}, epsilon=3.0, scoring="tstr_log_loss"
    ).fit(frame)
    drawn = search.sample(20)
    assert list(drawn.columns) == list(frame.columns)
    assert not set(drawn["b"]) & {"high", "low"}


def test_rows_are_held_out_one_by_one(monkeypatch):
    seen, run = [], PrivateSearchCV._run
    first = X[:, 0]  # no two rows have one value
    monkeypatch.setattr(
        PrivateSearchCV,
        "_run",
        lambda self, *a: (seen.append(np.isin(first, a[3].score[0][:, 0])), run(self, *a))[1],
    )
    monkeypatch.setattr(reservation, "run_probabilities", lambda *_: np.array([0.0, 0.0, 1.0]))
    for k in range(15):
        with seeded_noise(k, quiet=True):
            _search(cv=4).fit(X)
    assert all(np.array_equal(a, b) for a, b in zip(seen[::2], seen[1::2]))  # the same rows in all runs of a search
    sizes = np.array([mask.sum() for mask in seen[::2]])
    assert stats.kstest(sizes, stats.binom(1500, 0.25).cdf).pvalue > 1e-4
    assert len(set(sizes)) > 7  # never a fixed share
    # a record more changes nothing for the others
    with seeded_noise(0, quiet=True):
        _search(cv=4).fit(X[:-1])
    assert np.array_equal(seen[-1][:-1], seen[0][:-1])


def test_a_better_candidate_is_found():
    picked = [
        _search(epsilon=8.0, param_grid={"n_components": [1, 4]}, mean_runs=6, cv=3, score_bounds=(-8, 6)).fit(X)
        for _ in range(6)
    ]
    assert np.mean([search.best_params_["n_components"] == 4 for search in picked]) >= 0.5


def test_public_data_are_scored_exactly_and_nothing_is_held_out(monkeypatch):
    public = np.random.default_rng(9).normal(size=(200, 4)) * [1.0, 0.6, 0.2, 0.05]
    held, run = [], PrivateSearchCV._run
    monkeypatch.setattr(PrivateSearchCV, "_run", lambda self, *a: (held.append(a[3]), run(self, *a))[1])
    search = _search(public_data=public, score_bounds=None, runs="logarithmic").fit(X)
    assert search.best_score_ == search.best_estimator_.score(public)
    assert all(split is None for split in held)
    assert "public_data: declared public by the caller" in search.card_["public_assumptions"]
    for refused in ({"cv": 3}, {"score_bounds": (0, 1)}):
        with pytest.raises(ValueError, match="with public_data there is none"):
            _search(**{"public_data": public, "score_bounds": None, **refused}).fit(X)


def test_a_scorer_of_public_data_that_gives_nan_never_wins():
    def scoring(estimator, X, y=None):
        return float("nan") if estimator.n_components == 1 else 1.0

    public = X[:5]
    search = _search(public_data=public, score_bounds=None, scoring=scoring, runs="logarithmic", mean_runs=20).fit(X)
    assert search.best_params_["n_components"] != 1 or np.isnan(search.best_score_)


def test_nan_terms_count_as_the_lower_bound():
    def scoring(estimator, X, y=None):
        return np.where(X[:, 0] > -10, np.nan, 0.0) if len(X) not in (60, 30) else X[:, 0]

    search = _search(scoring=scoring, score_bounds=(0, 1), runs="logarithmic").fit(X)
    assert search.best_score_ == pytest.approx(0.0, abs=0.1)


def _exact(estimator, X, y=None):
    return float(estimator.score(X))


def _standardised(estimator, X, y=None):
    return (X[:, 0] - X[:, 0].mean()) / X[:, 0].std()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"param_grid": {}}, "no candidate"),
        ({"param_grid": []}, "no candidate"),
        ({"param_grid": {"n_components": [2]}}, "one candidate"),
        ({"param_grid": {"n_components": []}}, "n_components"),
        ({"param_grid": {"n_components": [1, 2], "epsilon": [1.0]}}, "'epsilon'"),
        ({"param_grid": [{"n_components": [1, 2]}, {"accountant": [None]}]}, "'accountant'"),
        ({"param_grid": {"delta": [1e-5, 1e-6]}}, "'delta'"),
        ({"param_grid": {"neighboring": [None]}}, "'neighboring'"),
        ({"param_grid": {"n_components": stats.randint(1, 3)}}, "needs n_candidates"),
        ({"param_grid": {"nothing": [1, 2]}}, "Invalid parameter"),
        ({"param_grid": {"n_components": [1, 99]}}, "n_components=99"),
        ({"score_bounds": None}, "score_bounds"),
        ({"score_bounds": (1, 0)}, "low below high"),
        ({"score_bounds": (-1000, -999)}, "too narrow for their size"),
        ({"scoring": "tstr_accuracy"}, "needs an estimator that samples"),
        ({"scoring": "accuracy"}, "scoring"),
        ({"scoring": _exact}, "one number"),
        ({"scoring": _standardised}, "depends on the other records"),
        ({"scoring": lambda estimator, X, y=None: X}, "one number for each record"),
        ({"scoring": lambda estimator, X, y=None: np.full(len(X), np.nan)}, "NaN for every dummy row"),
        ({"scoring": make_scorer(lambda y, p: 0.0)}, None),
        ({"cv": 1}, "cv"),
        ({"mean_runs": 0.5}, "mean_runs"),
        ({"runs": "fixed"}, "runs"),
        ({"estimator": DPPCA(accountant=PrivacyAccountant(1.0))}, "has an accountant"),
        ({"estimator": DPPCA(neighboring="replace_one")}, "give neighboring to PrivateSearchCV"),
    ],
)
def test_bad_input_is_refused_before_any_charge(changed, message):
    accountant = PrivacyAccountant(3.0)
    search = _search(accountant=accountant, **changed)
    with pytest.raises((ValueError, TypeError, AttributeError), match=message):
        search.fit(X)
    assert not accountant.charges
    assert not hasattr(search, "card_")


def test_a_budget_too_small_says_what_would_do():
    accountant = PrivacyAccountant(1.0)
    accountant.charge(_search(epsilon=0.95).plan(X).event, "before")
    with pytest.raises(BudgetExceededError, match="lower mean_runs, or spend more epsilon"):
        _search(accountant=accountant, epsilon=None).fit(X)
    assert len(accountant.charges) == 1


def test_rows_that_a_run_could_count_are_refused_under_replace_one():
    search = PrivateSearchCV(
        P3GMSynthesizer(decoder="net", training=DPSGD(2, batch_size=50), bounds=(-4, 4), l2_bound=1.0),
        {"n_components": [1, 2]},
        neighboring="replace_one",
        score_bounds=(-30, 10),
    )
    with pytest.raises(ValueError, match="depends on the number of rows"):
        search.fit(X)


def test_a_unit_of_many_rows_is_refused_where_rows_are_held_out():
    frame = pd.DataFrame({"a": X[:, 0], "who": np.arange(len(X)) // 3})
    people = DP2VAESynthesizer(training=SubsetSGD(10), id_column="who")
    search = PrivateSearchCV(people, {"n_components": [1, 2]}, scoring="tstr_accuracy")
    with pytest.raises(ValueError, match="give public_data"):
        search.fit(frame, Y)


def test_a_failed_run_keeps_the_charge_and_nothing_else(monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("inside")

    accountant = PrivacyAccountant(3.0)
    search = _search(accountant=accountant, runs="logarithmic")
    monkeypatch.setattr(PrivateSearchCV, "_score", broken)
    with pytest.raises(RuntimeError, match="stays charged") as caught:
        search.fit(X)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None  # whose traceback would hold models and rows
    assert len(accountant.charges) == 1
    assert set(vars(search)) - set(search.get_params(deep=False)) == {"accountant_"}


def test_replace_one_and_a_shared_filter_are_charged_as_they_are():
    accountant = PrivacyAccountant(4.0, neighboring="replace_one")
    DPGaussianMixture(epsilon=1.0, bounds=(-4, 4), accountant=accountant).fit(X)
    search = PrivateSearchCV(
        DPGaussianMixture(bounds=(-4, 4)), {"n_components": [1, 2], "n_iter": [2]}, epsilon=2.0,
        accountant=accountant, score_bounds=(-30, 10),
    ).fit(X)  # fmt: skip
    assert len(accountant.charges) == 2
    assert accountant.epsilon_spent() <= 4.0
    search.card_.verify()


def test_an_object_of_the_grid_is_copied_for_each_candidate():
    grid = {"prior": [LatentMixture(3)], "prior__n_iter": [5, 10]}
    search = PrivateSearchCV(P3GMSynthesizer(), grid, epsilon=3.0)
    made = [search._candidate(parameters) for parameters in list_candidates(grid, None, 0)]
    assert [candidate.prior.n_iter for candidate in made] == [5, 10]
    assert grid["prior"][0].n_iter == 8


def test_candidates_may_be_drawn_and_are_fixed_by_random_state():
    grid = {"n_components": stats.randint(1, 4), "residual_bound": stats.uniform(0.1, 0.5)}
    made = DPPCA(bounds=(-4, 4), centering="two_round")
    fits = [_search(estimator=made, param_grid=grid, n_candidates=4, random_state=0).fit(X) for _ in range(2)]
    assert fits[0].cv_results_ == fits[1].cv_results_
    assert len(fits[0].cv_results_["params"]) == 4


def test_thresholds_pay_delta_for_every_run():
    search = PrivateSearchCV(
        DPGaussianMixture(bounds=(-4, 4)), {"shrinkage": [0.1, 0.3]}, epsilon=3.0, scoring="tstr_accuracy", mean_runs=4
    )
    plan = search.plan(X, Y)
    with pytest.MonkeyPatch.context() as patch:
        inner = []
        run = PrivateSearchCV._run
        patch.setattr(PrivateSearchCV, "_run", lambda self, s, *a: (inner.extend(s.plans), run(self, s, *a))[1])
        patch.setattr(reservation, "run_probabilities", lambda *_: np.array([0.0, 1.0]))
        search.fit(X, Y)
    assert plan.extra_delta > 0
    assert all(part.extra_delta * 4 == pytest.approx(plan.extra_delta) for part in inner)


def test_infinite_epsilon_is_not_private_and_says_so():
    search = _search(epsilon=np.inf).fit(X)
    assert search.card_["private"] is False
    assert search.accountant_.report().attrs["private"] is False


def test_seeded_noise_is_on_the_card():
    with seeded_noise(quiet=True):
        assert _search().fit(X).card_["private"] is False


def test_a_search_clones_and_takes_part_in_other_searches():
    search = _search(accountant=PrivacyAccountant(3.0))
    assert clone(search).accountant is search.accountant
    assert clone(search).get_params()["estimator__n_components"] is None


def test_a_plain_grid_search_warns_that_its_scores_are_exact():
    budget = PrivacyAccountant(50.0)
    plain = GridSearchCV(DPPCA(bounds=(-4, 4), epsilon=1.0, accountant=budget), {"n_components": [1, 2]}, cv=2)
    with pytest.warns(PrivacyLeakWarning, match="PrivateSearchCV"):
        plain.fit(X)
    assert len(budget.charges) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        DPPCA(bounds=(-4, 4), epsilon=1.0).fit(X)


def test_a_pipeline_is_refused_with_what_can_be_searched():
    pipeline = PrivatePipeline([("pca", DPPCA(2)), ("model", DPGaussianMixture())])
    with pytest.raises(ValueError, match=r"cannot search a pipeline.*give one private estimator.*pipeline\[-1\]"):
        PrivateSearchCV(pipeline, {"pca__n_components": [1, 2]}).fit(X)
