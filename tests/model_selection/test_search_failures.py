"""What can go wrong in a search is found before its charge, or tells nothing of the rows after it."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from _sabotage import Claim, assert_caught, mutant_ids
from sklearn.base import clone

from skdpgen import (
    DPPCA,
    DPSGD,
    DPMERFSynthesizer,
    GroupDivergence,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
    PrivateSearchCV,
    Schema,
)
from skdpgen.accounting._reservation import Reservation
from skdpgen.exceptions import BudgetExceededError, InvalidInputError
from skdpgen.model_selection._planning import SearchRows, public_model
from skdpgen.model_selection._scoring import same_terms
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import NoiseGenerator, make_noise_generator, public_noise

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]

X = np.random.default_rng(3).normal(size=(300, 3)).clip(-4, 4)
SECRET = "SECRET-4711"
SCORED = {"score_bounds": (-30, 10), "runs": "logarithmic", "mean_runs": 2.0}


class _Relative(DPPCA):
    def score_samples(self, X):
        terms = super().score_samples(X)
        return terms - terms.mean()


class _Streamed(DPPCA):
    def score_samples(self, X):
        return super().score_samples(X) + np.random.default_rng(0).normal(size=len(X))


class _Cell(DPPCA):
    """Fails on private rows, and says why."""

    error = ValueError

    def _complete(self, rows, plan, rng):
        if np.isfinite(self.epsilon):
            raise self.error(f"could not convert {SECRET}")
        return super()._complete(rows, plan, rng)


class _OwnWords(_Cell):
    error = InvalidInputError


class _Warned(DPPCA):
    def score_samples(self, X):
        warnings.warn(f"{SECRET}: the largest is {X.max()}", RuntimeWarning, stacklevel=2)
        return super().score_samples(X)


def _search(estimator=None, **changed):
    estimator = DPPCA(bounds=(-4, 4)) if estimator is None else estimator
    return PrivateSearchCV(estimator, {"n_components": [1, 2]}, **{"epsilon": 2.0, **SCORED, **changed})


class _Picky(DPPCA):
    """Asks for sixteen rows, as other packages' estimators may."""

    def _prepare(self, X, y, accountant, groups=None):
        if len(X) < 16:
            raise ValueError("at least 16 rows are needed")
        return super()._prepare(X, y, accountant, groups)


def a_fold_that_would_be_too_small_is_refused_unpaid():
    """All rows are enough and those that are left may be too few: found before the charge, and not in a run."""
    groups = PriVAESynthesizer(divergence=GroupDivergence(n_groups=8), training=DPSGD(2, 0.1), bounds=(-4, 4))
    for estimator, n_rows, relation in ((_Picky(bounds=(-4, 4)), 25, None), (groups, 200, "replace_one")):
        accountant = PrivacyAccountant(3.0, neighboring=relation or "add_or_remove_one")
        clone(estimator).set_params(accountant=accountant).plan(X[:n_rows])  # all rows are enough
        search = _search(estimator, accountant=accountant, neighboring=relation)
        with pytest.raises(ValueError, match=r"rows are held out at random.*(are needed|groups of)"):
            search.fit(X[:n_rows])
        assert not accountant.charges
    public = _search(_Picky(bounds=(-4, 4)), public_data=X[:20], score_bounds=None, scoring=None)
    assert public.fit(X[:25]).card_["private"] is True  # nothing is held out


def a_score_that_depends_on_other_records_is_refused_unpaid():
    """The scores that the package, or an estimator, brings along too."""
    for estimator in (_Relative(bounds=(-4, 4)), _Streamed(bounds=(-4, 4))):
        for scoring in (None, "log_likelihood", lambda fitted, X, y: fitted.score_samples(X)):
            accountant = PrivacyAccountant(3.0)
            with pytest.raises(ValueError, match="depends on the other records"):
                _search(estimator, accountant=accountant, scoring=scoring).fit(X)
            assert not accountant.charges


def no_cell_is_in_the_words_of_a_failed_run():
    """A foreign error is told by its kind; one of the package's own input errors by its words."""
    for estimator, told in ((_Cell(bounds=(-4, 4)), False), (_OwnWords(bounds=(-4, 4)), True)):
        with seeded_noise(0, quiet=True), pytest.raises(RuntimeError, match="stays charged") as caught:
            _search(estimator).fit(X)
        assert (SECRET in str(caught.value)) is told
        assert estimator.error.__name__ in str(caught.value)
        assert caught.value.__context__ is None


def no_warning_of_a_score_of_private_rows_is_shown():
    """Whether a scorer warns, how often, and what it says may follow from one cell."""

    def warned_by(fitted, X, y):
        warnings.warn(f"{SECRET}: the largest is {X.max()}", RuntimeWarning, stacklevel=2)
        return np.tanh(X[:, 0])

    for scoring in (warned_by, None):  # the estimator's own score
        with warnings.catch_warnings(record=True) as said, seeded_noise(0, quiet=True):
            warnings.simplefilter("always")
            _search(_Warned(bounds=(-4, 4)), scoring=scoring).fit(X)
        assert not [text for text in (str(one.message) for one in said) if SECRET in text]


@pytest.mark.parametrize("progress", [True, "auto"])
def test_no_bar_shows_how_many_runs_a_search_makes(progress, capsys, monkeypatch):
    """Of a random number of runs nothing but the best may leave."""
    monkeypatch.setattr("skdpgen.utils.progress._DELAY", 0)
    estimator = DPMERFSynthesizer(steps=2, n_frequencies=10, bounds=(-4, 4), progress=progress)
    with seeded_noise(0, quiet=True):
        clone(estimator).fit(X)
        assert ("generator" in capsys.readouterr().err) is (progress is True)  # as a fit shows that is no run
        how = {"public_data": X[:20], "scoring": lambda fitted, X, y: 0.0, "runs": "logarithmic"}
        PrivateSearchCV(estimator, {"length_scale": [1.0, 2.0]}, **how).fit(X)
    assert capsys.readouterr().err == ""


def test_what_cannot_be_scored_is_refused_before_the_charge():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    accountant = PrivacyAccountant(3.0)
    for search, data in (
        (_search(accountant=accountant, public_data=X[:20, :2], score_bounds=None), X),
        (
            _search(
                P3GMSynthesizer(), accountant=accountant, public_data=frame.rename(columns={"c": "d"}),
                score_bounds=None, scoring="log_likelihood",
            ),
            frame,
        ),
        (_search(DPMERFSynthesizer(steps=2, n_frequencies=4, bounds=(-4, 4)), accountant=accountant), X),
    ):  # fmt: skip
        with pytest.raises((ValueError, KeyError, AttributeError)):
            search.set_params(param_grid={"budget_split": [{"bounds": 0.05}, {"bounds": 0.1}]}).fit(data)
    assert not accountant.charges


def test_a_scorer_that_raises_on_a_private_row_ends_no_search():
    def scoring(estimator, X, y=None):
        if (X[:, 0] == 4.0).any():
            raise ValueError(f"cannot score {SECRET}")
        return np.full(len(X), 0.5)

    rows = np.vstack([X.clip(-3, 3), [[4.0, 0.0, 0.0]]])
    for place in range(3):
        with seeded_noise(place, quiet=True):
            search = _search(scoring=scoring, score_bounds=(0, 1), epsilon=50.0).fit(rows)
        assert search.best_score_ == pytest.approx(0.5, abs=0.1)


def test_a_search_of_a_handful_of_rows_does_not_fail():
    """Where their number is public, it is public too whether all of them may be held out."""
    for seed in range(12):
        with seeded_noise(seed, quiet=True):
            _search(neighboring="replace_one", cv=2).fit(X[:1]).card_.verify()


def rows_that_may_all_be_held_out_are_refused_unpaid():
    """A run without rows has a public model, and with one more row a model of that row: no noise hides which."""
    for cv, delta, least in ((2, 1e-5, 37), (None, 1e-5, 16), (5, 1e-9, 22), (10_000, 1e-5, 3)):
        accountant = PrivacyAccountant(3.0, delta)
        search = _search(cv=cv, accountant=accountant)
        assert (cv or 5) ** -least <= 1e-6 * delta < (cv or 5) ** -(least - 1)
        few = rf"all of fewer than {least} \(here n_samples = {least - 1}\).*nothing was charged"
        with pytest.raises(InvalidInputError, match=few):
            search.fit(X[: least - 1])
        assert not accountant.charges
        with seeded_noise(0, quiet=True):
            search.fit(X[:least]).card_.verify()
    units = _search(DPPCA(bounds=(-4, 4), unit="pid", max_rows_per_unit=20))
    with pytest.raises(InvalidInputError, match=r"holds units out .* fewer than 16 \(here n_units = 15\)"):
        units.fit(X, groups=np.arange(300) // 20)  # 15 units of 20 rows
    nothing_held_out = _search(public_data=X[:20], score_bounds=None)
    for search in (nothing_held_out, _search(epsilon=np.inf)):
        search.fit(X[:3]).card_.verify()


def test_a_public_model_is_there_under_either_relation():
    """The number of made-up rows is public, so what hangs on it can be known."""
    net = P3GMSynthesizer(
        decoder="net",
        training=DPSGD(2, batch_size=20, warm_start_steps=1),
        bounds=(-4, 4),
        l2_bound=1.0,
        n_components=1,
    )
    assert np.isfinite(public_model(net, X, None, "replace_one").sample(5)).all()


def test_the_fixed_bits_of_public_fits_reach_no_other_thread():
    """A private fit that runs beside a search, or after it, keeps its noise."""
    with public_noise():
        assert make_noise_generator().kind == "seeded"
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(make_noise_generator).result().kind == "secure"
    assert (
        make_noise_generator().kind != "seeded"
        or make_noise_generator().random() != NoiseGenerator("seeded", seed=0).random()
    )


def test_fits_are_made_within_the_search_alone(monkeypatch):
    kept, take = [], Reservation.take
    monkeypatch.setattr(
        Reservation, "take", lambda self, plan, **how: kept.append((self, plan)) or take(self, plan, **how)
    )
    with seeded_noise(0, quiet=True):
        search = _search().fit(X)
    made = list(kept)
    assert made
    for reservation, plan in made:
        with pytest.raises(BudgetExceededError, match="is over"):
            DPPCA(bounds=(-4, 4))._fit_reserved(X, None, plan, reservation)
    assert len(search.accountant_.charges) == 1


class _Doubled(DPPCA):
    def fit(self, X, y=None):
        return super().fit(2 * X, y)


def test_a_fit_that_a_search_would_not_call_is_refused_unpaid():
    accountant = PrivacyAccountant(3.0)
    for estimator in (_Doubled(bounds=(-4, 4)), _search()):
        with pytest.raises(ValueError, match="not its fit"):
            PrivateSearchCV(estimator, {"epsilon_": [1, 2]}, accountant=accountant, score_bounds=(-30, 10))._request(
                estimator, SearchRows(estimator, X, None, None, None), accountant
            )
    assert not accountant.charges


CLAIMS = [
    Claim(a_score_that_depends_on_other_records_is_refused_unpaid),
    Claim(no_cell_is_in_the_words_of_a_failed_run),
    Claim(no_warning_of_a_score_of_private_rows_is_shown),
    Claim(a_fold_that_would_be_too_small_is_refused_unpaid),
    Claim(rows_that_may_all_be_held_out_are_refused_unpaid),
]
S = PrivateSearchCV
OWN = "type($error) in (InvalidInputError, SchemaError)"
MUTANTS = [
    ("any terms are the same", CLAIMS[:1], (same_terms, ("bool(($gap <= _ROUNDING).all())", "True"))),
    (
        "the built-in score is trusted",
        CLAIMS[:1],
        (S._try_out, ("not same_terms($rest)", "callable($4) and not same_terms($rest)")),
    ),
    (
        "the words of every error",
        CLAIMS[1:2],
        (S._search, (OWN, "True")),
    ),
    (
        "the words of every ValueError",
        CLAIMS[1:2],
        (S._search, (OWN, "isinstance($error, ValueError)")),
    ),
    (
        "warnings of a score of private rows",
        CLAIMS[2:3],
        (S._run, ("warnings.simplefilter('ignore')", "warnings.simplefilter('default')")),
    ),
    ("all rows are taken for a fold", CLAIMS[3:4], (S._smallest_fold, ("max(1, $rest)", "max($1, $rest)"))),
    ("however few rows are split", CLAIMS[4:], (S._check_folds, ("$n_units < $least", "False"))),
    ("rows are split by the default of cv", CLAIMS[4:], (S._check_folds, ("self.cv or FOLDS", "FOLDS"))),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_the_trial_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_a_search_refuses_and_fails_as_it_claims(claim):
    claim.holds_unpatched()


def test_the_type_of_objects_is_not_left_to_the_rows_of_a_run():
    """Of one decimal among 400 rows a run without its row sees text: its fit failed after the charge."""
    amount = pd.Series([None] * 400, dtype=object)
    amount[3] = Decimal("1.5")
    frame, grid = (
        pd.DataFrame({"x": np.arange(400.0), "amount": amount}),
        {"budget_split": [{"bounds": 0.1}, {"bounds": 0.2}]},
    )
    accountant, template = PrivacyAccountant(5.0), MomentSynthesizer()
    for X_, y, named in ((frame, None, "amount"), (frame[["x"]], amount, "y")):
        with pytest.raises(InvalidInputError, match=rf"'{named}' \(decimal\) is not declared"):
            PrivateSearchCV(template, grid, accountant=accountant, **SCORED).fit(X_, y)
    assert not accountant.entries
    template.set_params(schema=Schema([Numeric("amount", (0, 2), dtype="decimal", missing=True)]))
    PrivateSearchCV(template, grid, accountant=accountant, **SCORED).fit(frame)
    assert len(accountant.entries) == 1


def test_declared_dates_as_text_and_values_in_columns_of_objects_are_searched_over():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "day": pd.date_range("2001-01-01", periods=300).strftime("%Y-%m-%d"),
            "flag": np.array([True, False, None], dtype=object)[rng.integers(0, 3, 300)],
            "amount": rng.normal(size=300).astype(object),
            "kind": rng.choice(["u", "v"], 300),
        }
    )
    schema = Schema(
        [
            Datetime("day", ("2000-01-01", "2003-01-01")),
            Boolean("flag", missing=True),
            Numeric("amount", (-5, 5)),
            Categorical("kind", ["u", "v"]),
        ]
    )
    template = MomentSynthesizer(schema=schema, target="kind", random_state=0)
    grid = {"importance": [None, {"amount": 2.0}]}
    search = PrivateSearchCV(template, grid, epsilon=4.0, score_bounds=(-50, 10), random_state=0).fit(frame)
    assert list(search.sample(5).columns) == list(frame.columns)
