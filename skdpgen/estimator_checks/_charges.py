"""Checks of the charge of a fit: whose accountant, when, and how much."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import clone

from ..accounting import PrivacyAccountant
from ..exceptions import BudgetExceededError, PrivacyLeakWarning
from ..utils.noise import override_noise
from ._helpers import N_ROWS, Watched, accountant_of, charging, check, fitted_attributes, fresh, raises


@check
def check_clone_shares_accountant(estimator, data):
    """A clone charges the same accountant."""
    accountant = accountant_of(estimator, 100.0)
    assert clone(charging(estimator, accountant)).get_params()["accountant"] is accountant


@check
def check_fit_charges_once(estimator, data):
    """A fit makes one charge, to the accountant that it was given, and stores it as `accountant_`."""
    accountant = accountant_of(estimator, 100.0)
    fitted = charging(estimator, accountant)
    assert fitted.fit(*data()) is fitted
    assert len(accountant.charges) == 1, f"{len(accountant.charges)} charges for one fit"
    assert fitted.accountant_ is accountant
    assert fitted.accountant is accountant


@check
def check_a_plan_is_what_fit_charges(estimator, data):
    """`plan`, where there is one, charges and stores nothing, and returns what `fit` then charges."""
    if not hasattr(estimator, "plan"):
        return
    accountant = accountant_of(estimator, 100.0)
    planned = charging(estimator, accountant)
    before = dict(vars(planned))
    plan = planned.plan(*data())
    assert not accountant.charges
    assert vars(planned) == before
    planned.fit(*data())
    assert accountant.charges == (plan.charge,)


@check
def check_charge_precedes_every_draw_of_noise(estimator, data):
    """Nothing is released before it is charged: at the first draw of noise the charge is in the ledger."""
    accountant = accountant_of(estimator, 100.0)
    draws = []

    def seen():
        draws.append(len(accountant.charges))

    with override_noise(lambda kind: Watched(seen)):
        charging(estimator, accountant).fit(*data())
    assert draws, "no noise was drawn"
    assert min(draws) == 1, "noise was drawn before the charge"


@check
def check_full_budget_refuses_and_releases_nothing(estimator, data):
    """Over budget, a fit raises BudgetExceededError, charges nothing, draws nothing, and is not fitted."""
    accountant = accountant_of(estimator, 1e-3)
    draws = []
    refused = charging(estimator, accountant)
    with override_noise(lambda kind: Watched(lambda: draws.append(1))), raises(BudgetExceededError):
        refused.fit(*data())
    assert not accountant.charges
    assert not draws
    assert not fitted_attributes(refused), f"a refused fit left {sorted(fitted_attributes(refused))}"


@check
def check_refused_input_charges_nothing(estimator, data):
    """Bad parameters and rows of another length than y are refused before the charge."""
    X, *y = data()
    accountant = accountant_of(estimator, 100.0)
    for parameters in ({"epsilon": -1.0}, {"epsilon": 0.0}, {"delta": 0.0}, {"delta": 1.0}, {"neighboring": "nobody"}):
        with raises(ValueError):
            charging(estimator, accountant).set_params(**parameters).fit(X, *y)
    with raises(ValueError):
        charging(estimator, accountant).fit(X[:0], *(part[:0] for part in y))
    if y:
        with raises(ValueError):
            charging(estimator, accountant).fit(X, y[0][:-1])
    if isinstance(X, np.ndarray) and X.dtype.kind == "f" and not estimator.__sklearn_tags__().input_tags.allow_nan:
        for wrong in (np.nan, np.inf):
            spoiled = X.copy()
            spoiled[3, 0] = wrong
            with raises(ValueError):
                charging(estimator, accountant).fit(spoiled, *y)
    assert not accountant.charges


@check
def check_refused_refit_keeps_the_fit(estimator, data):
    """A fit that is refused leaves the fitted attributes of the last one."""
    fitted = fresh(estimator).fit(*data())
    before = fitted_attributes(fitted)
    with raises(ValueError):
        fitted.fit(*(part[:0] for part in data()))
    after = fitted_attributes(fitted)
    assert before.keys() == after.keys()
    assert after["accountant_"] is before["accountant_"]


@check
def check_epsilon_agrees_with_the_ledger(estimator, data):
    """A fit with a new accountant costs its `epsilon`: not more, and hardly less; and its card verifies."""
    fitted = fresh(estimator).fit(*data())
    spent, asked = fitted.accountant_.epsilon_spent(), estimator.get_params()["epsilon"]
    assert spent <= asked * (1 + 1e-9), f"{spent} was spent of {asked}"
    assert spent >= 0.99 * asked, f"only {spent} was spent of {asked}"
    fitted.card_.verify()


@check
def check_refit_charges_again(estimator, data):
    """A second fit is charged again; without an accountant each fit makes a new one, and the second fit warns."""
    accountant = accountant_of(estimator, 1000.0)
    fitted = charging(estimator, accountant).fit(*data()).fit(*data())
    assert len(fitted.accountant_.charges) == 2
    own = fresh(estimator).fit(*data())
    first, private = own.accountant_, own.card_["private"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert own.fit(*data()).accountant_ is not first
    warned = any(issubclass(one.category, PrivacyLeakWarning) and "fitted before" in str(one.message) for one in said)
    assert warned or not private, "a second fit with a separate ledger gave no PrivacyLeakWarning"


@check
def check_the_event_does_not_depend_on_the_rows(estimator, data):
    """Fits on data sets of different rows and numbers of rows charge the same event."""
    fits = [fresh(estimator).fit(*data(n_rows, seed)) for n_rows, seed in ((N_ROWS, 0), (N_ROWS + 46, 1))]
    one, other = (fitted.accountant_.charges for fitted in fits)
    if estimator.get_params()["neighboring"] != "replace_one":  # where the number of rows is public
        assert one == other, "the charge depends on the data"


@check
def check_another_relation_is_refused(estimator, data):
    """`neighboring` must match that of the accountant."""
    for relation, other in (("add_or_remove_one", "replace_one"), ("replace_one", "add_or_remove_one")):
        accountant = PrivacyAccountant(100.0, neighboring=relation)
        with raises(ValueError):
            charging(estimator, accountant).set_params(neighboring=other).fit(*data())
        assert not accountant.charges


@check
def check_infinite_epsilon_needs_an_infinite_budget(estimator, data):
    """A finite budget refuses a fit without noise."""
    accountant = accountant_of(estimator, 100.0)
    with raises(BudgetExceededError):
        charging(estimator, accountant).set_params(epsilon=np.inf).fit(*data())
    assert not accountant.charges
