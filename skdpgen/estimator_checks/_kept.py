"""What a fit leaves behind, and whose noise it was."""

from __future__ import annotations

import json
import pickle

import numpy as np

from ..exceptions import DetachedAccountantError
from ..testing import seeded_noise
from ..utils.noise import override_noise
from ._helpers import (
    N_ROWS,
    Watched,
    books,
    charging,
    check,
    fitted_attributes,
    fresh,
    numbers,
    of_length,
    raises,
    sampled,
)


@check
def check_pickle_detaches_without_a_ledger_file(estimator, data):
    """An unpickled estimator keeps what it released, and cannot be fitted again on books that are a copy."""
    fitted = charging(estimator, books(estimator, 1000.0)).fit(*data())
    again = pickle.loads(pickle.dumps(fitted))
    assert again.accountant_.detached
    assert not fitted.accountant_.detached
    assert len(again.accountant_.charges) == 1
    if hasattr(again, "sample"):
        again.sample(3)
    elif hasattr(again, "transform"):
        again.transform(data()[0])
    with raises(DetachedAccountantError):
        again.fit(*data())


@check
def check_nothing_of_the_length_of_the_data_is_kept(estimator, data):
    """No fitted attribute is, or holds, an array with one entry a row, or the exact number of rows."""
    fitted = fresh(estimator).fit(*data())
    count_is_public = fitted.accountant_.neighboring == "replace_one"
    for name, value in fitted_attributes(fitted).items():
        for path in of_length(value, N_ROWS, name, numbers=not count_is_public):
            raise AssertionError(f"{path} keeps one entry a row, or the number of rows")


@check
def check_an_interrupted_fit_is_charged_and_not_fitted(estimator, data):
    """Ctrl-C at the first draw of noise leaves the charge and no half-fitted estimator."""
    accountant = books(estimator, 100.0)
    fitted = charging(estimator, accountant)

    def interrupt():
        raise KeyboardInterrupt

    with override_noise(lambda kind: Watched(interrupt)), raises(KeyboardInterrupt):
        fitted.fit(*data())
    assert len(accountant.charges) == 1
    assert "card_" not in vars(fitted)
    left = fitted_attributes(fitted).keys() - {"accountant_"}
    assert not left, f"an interrupted fit left {sorted(left)}"


@check
def check_fits_under_one_random_state_differ(estimator, data):
    """`random_state` does not seed the noise, and neither does numpy's global generator."""
    outcomes = []
    for _ in range(2):
        state = np.random.get_state()  # noqa: NPY002
        np.random.seed(0)  # noqa: NPY002
        try:
            fitted = fresh(estimator).set_params(random_state=0).fit(*data())
        finally:
            np.random.set_state(state)  # noqa: NPY002
        outcomes.append(numbers(fitted))
    one, other = outcomes
    assert any(not np.array_equal(one[name], other.get(name)) for name in one), "two fits under one seed are equal"


@check
def check_noise_is_on_the_card(estimator, data):
    """The card says which generator was used; seeded noise marks it, and the ledger, as not private."""
    cards = {}
    for kind in ("secure", "fast"):
        cards[kind] = json.loads(fresh(estimator).set_params(noise=kind).fit(*data()).card_.to_json())
        assert cards[kind]["private"] is True
    assert cards["secure"]["noise"] != cards["fast"]["noise"]
    with seeded_noise(quiet=True):
        seeded = fresh(estimator).fit(*data())
    assert json.loads(seeded.card_.to_json())["private"] is False
    assert seeded.accountant_.report().attrs["private"] is False


@check
def check_sampling_advances_and_repeats(estimator, data):
    """Two calls of `sample` differ; `sample(random_state=0)` repeats; neither charges anything."""
    if not hasattr(estimator, "sample"):
        return
    fitted = fresh(estimator).set_params(random_state=0).fit(*data())
    one, other = sampled(fitted, None), sampled(fitted, None)
    assert not np.array_equal(one, other), "two calls of sample are equal"
    assert np.array_equal(sampled(fitted, 0), sampled(fitted, 0)), "sample(random_state=0) does not repeat"
    assert len(fitted.accountant_.charges) == 1
