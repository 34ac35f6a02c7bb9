"""Checks of the results of a fit: what it releases and stores, whose noise it used, and whether an audit refutes it."""

from __future__ import annotations

import json
import pickle

import numpy as np
from sklearn.base import clone

from ..accounting import describe_event
from ..audit import audit
from ..audit._audit import is_gaussian
from ..exceptions import DetachedAccountantError
from ..testing import check_noninterference, seeded_noise
from ..utils.noise import override_noise
from ._helpers import (
    N_ROWS,
    Watched,
    accountant_of,
    charging,
    check,
    fitted_attributes,
    fresh,
    numbers,
    of_length,
    raises,
    sampled,
)

# Fits of one audit, by the kind of releases, and rows of each.
_RUNS = {"plain": 8, "gradient": 3}
_ROWS = 50
# The second data set of a check: far from the first, and beyond bounds, where values may be.
_SCALE, _SHIFT = 30.0, -7.0


@check
def check_pickle_detaches_without_a_ledger_file(estimator, data):
    """An unpickled estimator has what it released, and cannot be fitted again with a copied accountant."""
    fitted = charging(estimator, accountant_of(estimator, 1000.0)).fit(*data())
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
    """No fitted attribute is or contains an array with one entry for each row, or the exact number of rows."""
    fitted = fresh(estimator).fit(*data())
    count_is_public = fitted.accountant_.neighboring == "replace_one"
    for name, value in fitted_attributes(fitted).items():
        for path in of_length(value, N_ROWS, name, numbers=not count_is_public):
            raise AssertionError(f"{path} has one entry for each row, or the number of rows")


@check
def check_an_interrupted_fit_is_charged_and_not_fitted(estimator, data):
    """An interrupt at the first draw of noise leaves the charge and no half-fitted estimator."""
    accountant = accountant_of(estimator, 100.0)
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
    """The card names the generator of the noise; seeded noise marks card and ledger as not private."""
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


@check
def check_an_audit_does_not_refute_the_claim(estimator, data):
    """A canary changes the releases of a fit, relative to the measured noise, by no more than epsilon 10 allows.

    The check finds noise at half its scale, missing clipping, and a sensitivity stated at half its value where the rows
    attain it. It applies to fits of Gaussian releases alone, among them steps of DP-SGD at ``sampling_rate=1``: so few
    runs show nothing about sampled steps and thresholds (see `skdpgen.audit.audit_neighbours`).

    A correct estimator exceeds its claim in one short audit of a thousand. The claim is therefore refuted only if a
    second audit, of four times as many new runs, finds the same: once in a million times.
    """
    if not hasattr(estimator, "plan"):
        return
    claimed = clone(estimator).set_params(epsilon=10.0, accountant=None)
    rows = data(n_rows=_ROWS)
    plan = claimed.plan(*rows)
    if not is_gaussian(plan.event, plan.extra_delta):
        return
    sampled = any(row["sampling_rate"] for row in describe_event(plan.event))
    n_runs = _RUNS["gradient" if sampled else "plain"]
    for more in (1, 4):
        found = audit(claimed, *rows, n_runs=n_runs * more, confidence=0.999, method="scale")
        if not found.broken:
            return
    raise AssertionError(str(found))


@check
def check_all_that_a_fit_leaves_follows_from_its_releases(estimator, data):
    """Two unrelated data sets with equal releases give the same model, card, warnings and printed lines, bit for bit.

    Each query of neighbouring data sets differs at most by its sensitivity (see
    `skdpgen.testing.check_noninterference`, which can be given data that reach more branches than those of this check).
    Everything learned must leave a fit through `skdpgen.mechanisms.add_gaussian`, `skdpgen.mechanisms.release_names` or
    a step of `skdpgen.nn.DPNet`.
    """
    if not hasattr(estimator, "plan"):
        return
    estimator = fresh(estimator)
    parameters = estimator.get_params(deep=False)
    n_other = N_ROWS // 3 if parameters["neighboring"] == "replace_one" else N_ROWS // 7
    one, other = data(N_ROWS // 3, 0), data(n_other, 1)
    joining = tuple(part[:1] for part in data(N_ROWS // 7, 2))
    if isinstance(other[0], np.ndarray) and other[0].dtype.kind == "f" and parameters.get("on_invalid") != "raise":
        other = (_SCALE * other[0] + _SHIFT, *other[1:])
        joining = (-_SCALE * joining[0], *joining[1:])
    check_noninterference(estimator, one, other, rows=joining)
