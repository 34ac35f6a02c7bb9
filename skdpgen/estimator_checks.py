"""Checks that any private estimator must pass, this package's and yours: who is charged, when, and what is kept.

They complete scikit-learn's own suite (`sklearn.utils.estimator_checks`), which knows nothing of a budget.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import warnings
from contextlib import contextmanager

import numpy as np
from sklearn.base import clone

from .accounting import PrivacyAccountant
from .exceptions import BudgetExceededError, DetachedAccountantError, UtilityWarning
from .testing import seeded_noise
from .utils.noise import NoiseGenerator, override_noise

__all__ = ["check_private_estimator", "default_data", "parametrize_with_checks", "private_estimator_checks"]

# A prime that no parameter or shape of a model would be by chance.
N_ROWS = 211
_CHECKS = []


def parametrize_with_checks(estimators, *, data=None, expected_failed_checks=None):
    """Pytest decorator that runs every check on every estimator.

    Parameters
    ----------
    estimators : list of estimator instances
        Cheap to fit; `accountant` left at None. `epsilon` is taken as given.
    data : callable or None, default=None
        Maps (estimator, n_rows, seed) to the arguments of ``fit``, a tuple (X,) or (X, y); None is `default_data`.
    expected_failed_checks : callable or None, default=None
        Maps an estimator to a dict of check name -> reason; those are marked as expected failures.

    Returns
    -------
    decorator
        For a test function of the arguments `estimator` and `check`, which calls ``check(estimator)``.
    """
    import pytest

    cases = []
    for estimator in estimators:
        expected = {} if expected_failed_checks is None else expected_failed_checks(estimator)
        for check in private_estimator_checks(data):
            name = check.__name__
            marks = [pytest.mark.xfail(reason=expected[name])] if name in expected else []
            cases.append(pytest.param(estimator, check, id=f"{type(estimator).__name__}-{name}", marks=marks))
    return pytest.mark.parametrize(("estimator", "check"), cases)


def check_private_estimator(estimator, *, data=None):
    """Run every check on one estimator; the first that fails raises AssertionError.

    Parameters
    ----------
    estimator : estimator instance
    data : callable or None, default=None
        As in `parametrize_with_checks`.
    """
    for check in private_estimator_checks(data):
        check(estimator)


def private_estimator_checks(data=None):
    """Return the checks, each a function of one estimator."""
    return [_bound(check, data or default_data) for check in _CHECKS]


def default_data(estimator, n_rows, seed):
    """Return the arguments of ``fit``: an array of three numeric columns in (-1, 1), and labels where y is required."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n_rows)
    X = np.tanh(rng.normal(size=(n_rows, 3)) * [0.5, 0.3, 0.1] + 0.2 * y[:, None])
    return (X, y) if estimator.__sklearn_tags__().target_tags.required else (X,)


def _bound(check, data):
    def run(estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UtilityWarning)  # few rows, so the noise may well be large
            check(estimator, lambda n_rows=N_ROWS, seed=0: data(estimator, n_rows, seed))

    run.__name__, run.__doc__ = check.__name__, check.__doc__
    return run


def _check(function):
    _CHECKS.append(function)
    return function


# ---- the books ----------------------------------------------------------------------------------
@_check
def check_clone_shares_accountant(estimator, data):
    """A clone charges the same books."""
    accountant = _books(estimator, 100.0)
    assert clone(_charging(estimator, accountant)).get_params()["accountant"] is accountant


@_check
def check_fit_charges_once(estimator, data):
    """A fit makes one charge, in the books it was given, and says so by `accountant_`."""
    accountant = _books(estimator, 100.0)
    fitted = _charging(estimator, accountant)
    assert fitted.fit(*data()) is fitted
    assert len(accountant.charges) == 1, f"{len(accountant.charges)} charges for one fit"
    assert fitted.accountant_ is accountant
    assert fitted.accountant is accountant


@_check
def check_a_plan_is_what_fit_charges(estimator, data):
    """`plan`, where there is one, charges nothing, keeps nothing, and tells what `fit` then charges."""
    if not hasattr(estimator, "plan"):
        return
    accountant = _books(estimator, 100.0)
    planned = _charging(estimator, accountant)
    before = dict(vars(planned))
    plan = planned.plan(*data())
    assert not accountant.charges
    assert vars(planned) == before
    planned.fit(*data())
    assert accountant.charges == (plan.charge,)


@_check
def check_charge_precedes_every_draw_of_noise(estimator, data):
    """Nothing is released before it is paid: the first draw of noise finds the charge in the books."""
    accountant = _books(estimator, 100.0)
    draws = []

    def seen():
        draws.append(len(accountant.charges))

    with override_noise(lambda kind: _Watched(seen)):
        _charging(estimator, accountant).fit(*data())
    assert draws, "no noise was drawn"
    assert min(draws) == 1, "noise was drawn before the charge"


@_check
def check_full_budget_refuses_and_releases_nothing(estimator, data):
    """Over budget, a fit raises BudgetExceededError, charges nothing, draws nothing, and is not fitted."""
    accountant = _books(estimator, 1e-3)
    draws = []
    refused = _charging(estimator, accountant)
    with override_noise(lambda kind: _Watched(lambda: draws.append(1))), _raises(BudgetExceededError):
        refused.fit(*data())
    assert not accountant.charges
    assert not draws
    assert not _fitted_attributes(refused), f"a refused fit left {sorted(_fitted_attributes(refused))}"


@_check
def check_refused_input_charges_nothing(estimator, data):
    """Bad parameters and rows of another length than y are refused before the charge."""
    X, *y = data()
    accountant = _books(estimator, 100.0)
    for parameters in ({"epsilon": -1.0}, {"epsilon": 0.0}, {"delta": 0.0}, {"delta": 1.0}, {"neighboring": "nobody"}):
        with _raises(ValueError):
            _charging(estimator, accountant).set_params(**parameters).fit(X, *y)
    with _raises(ValueError):
        _charging(estimator, accountant).fit(X[:0], *(part[:0] for part in y))
    if y:
        with _raises(ValueError):
            _charging(estimator, accountant).fit(X, y[0][:-1])
    if isinstance(X, np.ndarray) and X.dtype.kind == "f" and not estimator.__sklearn_tags__().input_tags.allow_nan:
        for wrong in (np.nan, np.inf):
            spoiled = X.copy()
            spoiled[3, 0] = wrong
            with _raises(ValueError):
                _charging(estimator, accountant).fit(spoiled, *y)
    assert not accountant.charges


@_check
def check_refused_refit_keeps_the_fit(estimator, data):
    """A fit that is refused leaves what the last one left."""
    fitted = _fresh(estimator).fit(*data())
    before = _fitted_attributes(fitted)
    with _raises(ValueError):
        fitted.fit(*(part[:0] for part in data()))
    after = _fitted_attributes(fitted)
    assert before.keys() == after.keys()
    assert after["accountant_"] is before["accountant_"]


@_check
def check_epsilon_agrees_with_the_books(estimator, data):
    """A fit of its own costs the epsilon asked for: not more, and hardly less; and its card recomputes."""
    fitted = _fresh(estimator).fit(*data())
    spent, asked = fitted.accountant_.epsilon_spent(), estimator.get_params()["epsilon"]
    assert spent <= asked * (1 + 1e-9), f"{spent} was spent of {asked}"
    assert spent >= 0.99 * asked, f"only {spent} was spent of {asked}"
    fitted.card_.verify()


@_check
def check_refit_charges_again(estimator, data):
    """A second fit is paid again; without an accountant it has books of its own."""
    accountant = _books(estimator, 1000.0)
    fitted = _charging(estimator, accountant).fit(*data()).fit(*data())
    assert len(fitted.accountant_.charges) == 2
    own = _fresh(estimator).fit(*data())
    first = own.accountant_
    assert own.fit(*data()).accountant_ is not first


@_check
def check_the_event_does_not_hang_on_the_rows(estimator, data):
    """Two data sets of different rows and numbers of rows are charged the same event."""
    fits = [_fresh(estimator).fit(*data(n_rows, seed)) for n_rows, seed in ((N_ROWS, 0), (N_ROWS + 46, 1))]
    one, other = (fitted.accountant_.charges for fitted in fits)
    if estimator.get_params()["neighboring"] != "replace_one":  # where the number of rows is public
        assert one == other, "the charge depends on the data"


@_check
def check_another_relation_is_refused(estimator, data):
    """One set of books has one neighbouring relation."""
    for relation, other in (("add_or_remove_one", "replace_one"), ("replace_one", "add_or_remove_one")):
        accountant = PrivacyAccountant(100.0, neighboring=relation)
        with _raises(ValueError):
            _charging(estimator, accountant).set_params(neighboring=other).fit(*data())
        assert not accountant.charges


@_check
def check_infinite_epsilon_needs_an_infinite_budget(estimator, data):
    """A fit without noise is refused by a finite budget."""
    accountant = _books(estimator, 100.0)
    with _raises(BudgetExceededError):
        _charging(estimator, accountant).set_params(epsilon=np.inf).fit(*data())
    assert not accountant.charges


# ---- what is kept -------------------------------------------------------------------------------
@_check
def check_pickle_detaches_without_a_ledger_file(estimator, data):
    """An unpickled estimator keeps what it released, and cannot be fitted again on books that are a copy."""
    fitted = _charging(estimator, _books(estimator, 1000.0)).fit(*data())
    again = pickle.loads(pickle.dumps(fitted))
    assert again.accountant_.detached
    assert not fitted.accountant_.detached
    assert len(again.accountant_.charges) == 1
    if hasattr(again, "sample"):
        again.sample(3)
    elif hasattr(again, "transform"):
        again.transform(data()[0])
    with _raises(DetachedAccountantError):
        again.fit(*data())


@_check
def check_nothing_of_the_length_of_the_data_is_kept(estimator, data):
    """No fitted attribute is, or holds, an array with one entry a row, or the exact number of rows."""
    fitted = _fresh(estimator).fit(*data())
    count_is_public = fitted.accountant_.neighboring == "replace_one"
    for name, value in _fitted_attributes(fitted).items():
        for path in _of_length(value, N_ROWS, name, numbers=not count_is_public):
            raise AssertionError(f"{path} keeps one entry a row, or the number of rows")


@_check
def check_an_interrupted_fit_is_charged_and_not_fitted(estimator, data):
    """Ctrl-C at the first draw of noise leaves the charge and no half-fitted estimator."""
    accountant = _books(estimator, 100.0)
    fitted = _charging(estimator, accountant)

    def interrupt():
        raise KeyboardInterrupt

    with override_noise(lambda kind: _Watched(interrupt)), _raises(KeyboardInterrupt):
        fitted.fit(*data())
    assert len(accountant.charges) == 1
    assert "card_" not in vars(fitted)
    left = _fitted_attributes(fitted).keys() - {"accountant_"}
    assert not left, f"an interrupted fit left {sorted(left)}"


# ---- noise --------------------------------------------------------------------------------------
@_check
def check_fits_under_one_random_state_differ(estimator, data):
    """`random_state` does not seed the noise, and neither does numpy's global generator."""
    outcomes = []
    for _ in range(2):
        state = np.random.get_state()  # noqa: NPY002
        np.random.seed(0)  # noqa: NPY002
        try:
            fitted = _fresh(estimator).set_params(random_state=0).fit(*data())
        finally:
            np.random.set_state(state)  # noqa: NPY002
        outcomes.append(_numbers(fitted))
    one, other = outcomes
    assert any(not np.array_equal(one[name], other.get(name)) for name in one), "two fits under one seed are equal"


@_check
def check_noise_is_on_the_card(estimator, data):
    """The card says which generator was used, and that seeded noise is not private."""
    cards = {}
    for kind in ("secure", "fast"):
        cards[kind] = json.loads(_fresh(estimator).set_params(noise=kind).fit(*data()).card_.to_json())
        assert cards[kind]["private"] is True
    assert cards["secure"]["noise"] != cards["fast"]["noise"]
    with seeded_noise(quiet=True):
        card = json.loads(_fresh(estimator).fit(*data()).card_.to_json())
    assert card["private"] is False


@_check
def check_sampling_advances_and_repeats(estimator, data):
    """Two calls of `sample` differ; `sample(random_state=0)` repeats; neither charges anything."""
    if not hasattr(estimator, "sample"):
        return
    fitted = _fresh(estimator).set_params(random_state=0).fit(*data())
    one, other = _sampled(fitted, None), _sampled(fitted, None)
    assert not np.array_equal(one, other), "two calls of sample are equal"
    assert np.array_equal(_sampled(fitted, 0), _sampled(fitted, 0)), "sample(random_state=0) does not repeat"
    assert len(fitted.accountant_.charges) == 1


# ---- helpers ------------------------------------------------------------------------------------
class _Watched(NoiseGenerator):
    """A generator that tells of each draw."""

    def __init__(self, on_draw):
        super().__init__("fast")
        self._on_draw = on_draw

    def _words(self, n):
        self._on_draw()
        return super()._words(n)


def _books(estimator, epsilon):
    return PrivacyAccountant(epsilon, neighboring=estimator.get_params()["neighboring"])


def _fresh(estimator):
    return clone(estimator).set_params(accountant=None)


def _charging(estimator, accountant):
    return clone(estimator).set_params(accountant=accountant)


def _fitted_attributes(estimator):
    return {name: value for name, value in vars(estimator).items() if name not in estimator.get_params(deep=False)}


def _numbers(fitted):
    """Numeric arrays among the fitted attributes."""
    arrays = {name: value for name, value in _fitted_attributes(fitted).items() if name.endswith("_")}
    if hasattr(fitted, "sample"):
        arrays["sample"] = _sampled(fitted, 0)
    return {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}


def _sampled(fitted, random_state):
    drawn = fitted.sample(20, random_state=random_state)
    return np.asarray(drawn[0] if isinstance(drawn, tuple) else drawn)


def _of_length(value, n, path, *, numbers, seen=None):
    """Yield the paths at which `value` holds anything with n entries along an axis, or (`numbers`) the number n."""
    seen = set() if seen is None else seen
    if id(value) in seen or value is None or isinstance(value, str | bytes | bool):
        return
    seen.add(id(value))
    if isinstance(value, int | float | np.number):
        if numbers and value == n:
            yield path
        return
    if hasattr(value, "shape"):
        if n in tuple(value.shape):
            yield path
        return
    if isinstance(value, list | tuple | set | frozenset) and len(value) == n:
        yield path
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list | tuple | set | frozenset):
        children = enumerate(value)
    elif dataclasses.is_dataclass(value):
        children = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    elif type(value).__module__.startswith(("numpy", "builtins")) or callable(value):
        return
    else:
        children = getattr(value, "__dict__", {}).items()
    for name, child in children:
        yield from _of_length(child, n, f"{path}.{name}", numbers=numbers, seen=seen)


@contextmanager
def _raises(error):
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")
