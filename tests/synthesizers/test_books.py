"""One calibration, one charge, before any release; and the books across clone, pickle, cache, search and interrupts."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpgen import DPPCA, DPSGD, DPGaussianMixture, LatentMixture, P3GMSynthesizer, PrivacyAccountant, sample_pipeline
from skdpgen.data import frames as _frames
from skdpgen.exceptions import BudgetExceededError, DetachedAccountantError, UtilityWarning
from skdpgen.nn import DPNet, P3GMModule
from skdpgen.synthesizers import _array_model, _frame_model, _p3gm, _p3gm_decoder
from skdpgen.testing import seeded_noise

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.filterwarnings("ignore:fitted inside a search:skdpgen.exceptions.PrivacyLeakWarning"),
]

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (400, 3))
Y = RNG.integers(0, 2, 400)
FRAME = pd.DataFrame({"a": X[:, 0], "b": np.where(Y, "yes", "no")})
NET = {
    "decoder": "net",
    "steps": 3,
    "warm_start_steps": 2,
    "sampling_rate": 0.05,
    "net": DPNet(P3GMModule, module__n_hidden=4),
}
EVERYTHING = {"prior": LatentMixture(n_iter=2), **NET}
PUBLIC = {"bounds": (-1, 1), "l2_bound": 1.8}


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.3, 4.0])
@pytest.mark.parametrize(
    ("data", "parameters", "releases"),
    [
        ((X,), PUBLIC, ["mean", "norm", "moments"]),
        ((X,), {}, ["bounds", "l2_bound", "mean", "norm", "moments"]),
        ((X, Y), {}, ["bounds", "l2_bound", "classes", "mean", "norm", "moments"]),
        ((X,), {**PUBLIC, **EVERYTHING}, ["mean", "norm", "moments", "mixture", "decoder"]),
        ((FRAME,), {}, ["schema", "numbers", "categories", "ranges", "bins", "moments"]),
        ((FRAME[["b"]],), {}, ["schema", "categories", "rows", "moments"]),
    ],
    ids=["declared", "learned", "learned classes", "mixture and net", "frame", "categories"],
)
def test_a_fit_costs_what_was_asked_in_one_charge_that_names_its_releases(
    data, parameters, releases, epsilon, neighboring
):
    synth = make_flat(P3GMSynthesizer, epsilon=epsilon, neighboring=neighboring, **parameters).fit(*data)
    (charge,) = synth.accountant_.charges
    assert charge.label == f"P3GMSynthesizer: {', '.join(releases)}"
    assert synth.accountant_.epsilon_spent() == pytest.approx(epsilon, rel=1e-3)
    card = synth.card_.verify()["fit"]
    assert card["epsilon"] <= epsilon
    assert card["epsilon"] == pytest.approx(epsilon, rel=1e-3)
    assert card["delta"] == 1e-5
    assert synth.card_["neighboring"] == neighboring
    assert synth.card_["private"] is True
    assert (charge.extra_delta > 0) == bool({"classes", "schema"} & set(releases))


def test_a_fit_is_calibrated_once_and_by_public_parameters_alone(monkeypatch):
    calls = []
    real = PrivacyAccountant.calibrate
    monkeypatch.setattr(
        PrivacyAccountant, "calibrate", lambda self, *a, **k: calls.append((a, k)) or real(self, *a, **k)
    )
    make_flat(P3GMSynthesizer, **EVERYTHING).fit(X, Y)
    make_flat(P3GMSynthesizer, **EVERYTHING).fit(100 * X[:50], Y[:50])
    assert len(calls) == 2
    assert calls[0] == calls[1]


@pytest.mark.parametrize(
    ("where", "name", "data"),
    [
        (_array_model, "add_gaussian", (X, Y)),
        (_array_model, "learn_norm_bound", (X,)),
        (_p3gm, "dp_em", (X,)),
        (_p3gm_decoder, "train_decoder", (X,)),
        (_frames, "add_gaussian", (FRAME,)),
        (_frame_model, "add_gaussian", (FRAME,)),
        (_frame_model, "fit_tables", (FRAME,)),
        (_p3gm_decoder, "train_decoder", (FRAME,)),
    ],
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_fit_leaves_its_charge_and_no_half_fitted_estimator(monkeypatch, where, name, data, error):
    accountant = PrivacyAccountant(50.0)
    synth = make_flat(P3GMSynthesizer, epsilon=1.0, accountant=accountant, **EVERYTHING)
    found = []

    def stop(*args, **kwargs):
        found.append(len(accountant.charges))
        raise error

    monkeypatch.setattr(where, name, stop)
    with pytest.raises(error):
        synth.fit(*data)
    assert found == [1]  # paid before the first release
    assert len(accountant.charges) == 1
    assert synth.accountant_ is accountant
    assert set(vars(synth)) - set(synth.get_params(deep=False)) == {"accountant_"}
    with pytest.raises(ValueError, match="not fitted"):
        synth.sample(3)
    monkeypatch.undo()
    assert len(synth.fit(*data).accountant_.charges) == 2


def test_an_interrupted_refit_does_not_keep_the_old_model(monkeypatch):
    synth = make_flat(P3GMSynthesizer, **PUBLIC).fit(X)

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(_array_model, "class_latents", stop)
    with pytest.raises(KeyboardInterrupt):
        synth.fit(X)
    assert not hasattr(synth, "card_")
    assert not hasattr(synth, "model_")


def test_a_fit_over_budget_is_refused_and_keeps_the_fit_before_it():
    budget = PrivacyAccountant(1.5)
    synth = P3GMSynthesizer(epsilon=1.0, accountant=budget).fit(X)
    model = synth.model_
    with pytest.raises(BudgetExceededError):
        synth.fit(X)
    assert synth.model_ is model
    assert len(budget.charges) == 1
    synth.set_params(epsilon=None).fit(X)
    assert len(budget.charges) == 2
    assert budget.epsilon_spent() <= 1.5 * (1 + 1e-9)


def test_infinite_epsilon_needs_an_unlimited_budget():
    with pytest.raises(BudgetExceededError):
        P3GMSynthesizer(epsilon=np.inf, accountant=PrivacyAccountant(10.0)).fit(X)
    books = PrivacyAccountant(np.inf)
    P3GMSynthesizer(epsilon=np.inf, accountant=books).fit(X)
    assert books.report().attrs["private"] is False


def test_a_clone_and_a_copy_charge_the_same_books():
    budget = PrivacyAccountant(20.0)
    synth = P3GMSynthesizer(accountant=budget, training=DPSGD(net=None)).fit(X)
    for other in (clone(synth), copy.deepcopy(synth), copy.copy(synth)):
        assert other.accountant is budget
    clone(synth).fit(X)
    copy.deepcopy(synth).fit(X)
    assert len(budget.charges) == 3


@pytest.mark.parametrize("parameters", [PUBLIC, {**PUBLIC, **NET}], ids=["released", "net"])
def test_a_pickle_samples_and_is_detached(parameters):
    synth = make_flat(P3GMSynthesizer, accountant=PrivacyAccountant(20.0), **parameters).fit(X, Y)
    again = pickle.loads(pickle.dumps(synth))
    one, other = synth.sample(20, random_state=0), again.sample(20, random_state=0)
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(synth.transform(X[:3]), again.transform(X[:3]))
    assert again.accountant_.detached
    assert again.score(X, Y) == pytest.approx(synth.score(X, Y), rel=1e-6)
    with pytest.raises(DetachedAccountantError):
        again.fit(X, Y)
    again.sample(2)  # a refused fit loses nothing
    assert len(synth.accountant_.charges) == 1


def test_a_pickle_with_a_ledger_file_goes_on_charging_it(tmp_path):
    budget = PrivacyAccountant(20.0, ledger=tmp_path / "budget.db")
    synth = P3GMSynthesizer(accountant=budget).fit(X)
    again = pickle.loads(pickle.dumps(synth))
    again.fit(X)
    assert len(budget.charges) == 2
    assert not again.accountant_.detached


@pytest.mark.parametrize(("ledger", "charges"), [(True, 3), (False, 4)])
def test_a_cached_step_is_paid_once_with_a_ledger_file_and_each_time_without(tmp_path, ledger, charges):
    budget = PrivacyAccountant(50.0, ledger=tmp_path / "budget.db" if ledger else None)
    pipe = make_pipeline(
        DPPCA(2, epsilon=1.0, accountant=budget, **PUBLIC),
        P3GMSynthesizer(epsilon=1.0, accountant=budget),
        memory=str(tmp_path / "cache"),
    )
    for _ in range(2):
        rows = sample_pipeline(clone(pipe).fit(X), 30)
        assert rows.shape == (30, 3)
    assert len(budget.charges) == charges


def test_a_grid_search_in_two_processes_charges_seven_of_seven(tmp_path):
    budget = PrivacyAccountant(50.0, ledger=tmp_path / "budget.db")
    search = GridSearchCV(
        make_flat(P3GMSynthesizer, epsilon=1.0, accountant=budget, **PUBLIC),
        {"n_components": [1, 3]},
        cv=3,
        n_jobs=2,
        error_score="raise",
    )
    search.fit(X)
    assert len(budget.charges) == 7
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.sample(5).shape == (5, 3)
    # an eighth fit of the best estimator goes to the same books
    search.best_estimator_.fit(X)
    assert len(budget.charges) == 8


def test_parameters_of_the_net_can_be_searched():
    budget = PrivacyAccountant(50.0)
    search = GridSearchCV(
        make_flat(P3GMSynthesizer, epsilon=1.0, accountant=budget, **PUBLIC, **NET),
        {"training__net__module__n_hidden": [2, 3]},
        cv=2,
        error_score="raise",
    ).fit(X)
    assert len(budget.charges) == 5
    assert search.best_params_["training__net__module__n_hidden"] in (2, 3)


def test_sample_pipeline_inverts_the_steps_before_the_last():
    pipe = make_pipeline(
        FunctionTransformer(lambda X: X / 10, inverse_func=lambda X: X * 10, check_inverse=False),
        "passthrough",
        make_flat(P3GMSynthesizer, **PUBLIC),
    )
    with seeded_noise(0, quiet=True):
        pipe.fit(10 * X, Y)
    rows, labels = sample_pipeline(pipe, 400, random_state=0)
    assert 8 < np.abs(rows).max() <= 10
    assert set(labels) <= {0, 1}
    again, _ = sample_pipeline(pipe, 400, random_state=0)
    np.testing.assert_array_equal(rows, again)
    assert len(sample_pipeline(pipe)[0]) == round(pipe[-1].row_count_)
    mixture = make_pipeline(DPPCA(2, **PUBLIC), DPGaussianMixture()).fit(X)
    assert sample_pipeline(mixture, 7).shape == (7, 3)


def test_sample_pipeline_says_which_step_cannot_be_undone():
    with pytest.raises(TypeError, match="'dppca' has no sample"):
        sample_pipeline(make_pipeline(DPPCA(2, **PUBLIC)).fit(X))
    half = make_pipeline(_NoInverse(), make_flat(P3GMSynthesizer, **PUBLIC)).fit(X)
    with pytest.raises(TypeError, match="_noinverse"):
        sample_pipeline(half, 3)
    with pytest.raises(ValueError, match="not fitted"):
        sample_pipeline(make_pipeline(DPPCA(2), P3GMSynthesizer()), 3)


class _NoInverse:
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


def test_all_that_is_left_cannot_be_planned():
    accountant = PrivacyAccountant(1.0)
    with pytest.raises(ValueError, match="set epsilon to a number"):
        P3GMSynthesizer(epsilon=None, accountant=accountant).plan(np.zeros((9, 2)))
    assert accountant.charges == ()


def test_the_card_names_each_public_fact_once():
    rows, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    synth = P3GMSynthesizer(neighboring="replace_one", bounds=(-3, 3)).fit(rows, y)
    facts = synth.card_["public_assumptions"]
    assert len(set(facts)) == len(facts)
    assert "kind (dtype) of y" in facts


def test_a_warning_taken_for_an_error_does_not_lose_a_paid_fit():
    synth = P3GMSynthesizer(0.5, bounds=(-1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UtilityWarning):
            synth.fit(X[:20])
    assert len(synth.accountant_.charges) == 1
    assert synth.sample(3).shape == (3, X.shape[1])
