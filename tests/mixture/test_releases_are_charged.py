"""Steps run are steps charged: every noise that was added is in the event, at its multiplier, and nothing else is."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from _sabotage import everywhere, patch_source
from sklearn.base import clone

from skdpgen import DPPCA, DPGaussianMixture, PrivacyUnit
from skdpgen.accounting import describe_event
from skdpgen.mechanisms import add_gaussian

X = np.random.default_rng(0).normal(size=(3000, 3))
Y = np.random.default_rng(1).integers(0, 2, 3000)
PERSONS = np.arange(3000) // 2
PUBLIC = {"bounds": (-5, 5), "l2_bound": 1.0}
BY_ROWS, BY_UNITS = ({"unit": PrivacyUnit(max_rows=2, weighting=weighting)} for weighting in ("rows", "units"))


def _releases(monkeypatch, fit):
    """Noise multipliers of the releases of a fit, in order, with the event it was charged."""
    released = []

    def counted(query, noise_multiplier, rng, neighboring):
        released.append(noise_multiplier)
        return add_gaussian(query, noise_multiplier, rng, neighboring)

    everywhere(monkeypatch, add_gaussian, counted)
    (charge,) = fit().accountant_.charges
    charged = [row["noise_multiplier"] for row in describe_event(charge.event) for _ in range(row["count"])]
    return sorted(released), sorted(charged)


@pytest.mark.parametrize(
    ("estimator", "data", "n_releases"),
    [
        (DPPCA(2, **PUBLIC), (X,), 1),
        (DPPCA(2, centering="two_round", **PUBLIC), (X,), 2),
        (DPPCA(2), (X,), 3),
        (DPGaussianMixture(**PUBLIC), (X,), 1),
        (DPGaussianMixture(3, n_iter=4, **PUBLIC), (X,), 5),
        (DPGaussianMixture(2, n_iter=4, means_init=np.eye(2, 3), **PUBLIC), (X,), 4),
        (DPGaussianMixture(2, bounds=(-5, 5), n_iter=1), (X,), 3),
        (DPGaussianMixture(classes=[0, 1], **PUBLIC), (X, Y), 1),
        (DPGaussianMixture(**PUBLIC), (X, Y), 2),
        (DPPCA(2, **BY_ROWS), (X, None, PERSONS), 3),
        (DPPCA(2, centering="two_round", **PUBLIC, **BY_UNITS), (X, None, PERSONS), 2),
        (DPGaussianMixture(2, n_iter=4, **PUBLIC, **BY_ROWS), (X, None, PERSONS), 5),
        (DPGaussianMixture(2, n_iter=4, **PUBLIC, **BY_UNITS), (X, None, PERSONS), 6),  # and the number of rows
        (DPGaussianMixture(**BY_UNITS), (X, Y, PERSONS), 5),
    ],
)
@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_every_release_is_charged_at_its_noise(monkeypatch, estimator, data, n_releases, neighboring):
    estimator = clone(estimator).set_params(neighboring=neighboring)
    released, charged = _releases(monkeypatch, lambda: estimator.fit(*data))
    assert len(released) == n_releases
    assert released == pytest.approx(charged)


def test_a_step_more_than_charged_is_caught(monkeypatch):
    em = sys.modules["skdpgen.mixture._em"]
    shipped = em.dp_em
    monkeypatch.setattr(
        sys.modules["skdpgen.mixture._dp_gaussian_mixture"],
        "dp_em",
        lambda *args, n_iter, **kwargs: shipped(*args, n_iter=n_iter + 1, **kwargs),
    )
    released, charged = _releases(monkeypatch, lambda: DPGaussianMixture(2, n_iter=3, **PUBLIC).fit(X))
    assert len(released) == len(charged) + 1


def test_a_number_of_rows_with_the_noise_of_another_release_is_caught(monkeypatch):
    patch_source(
        monkeypatch,
        DPGaussianMixture._complete,
        ("$plan.noise_multipliers['row_count']", "$plan.noise_multipliers[$plan.phases[-1].label]"),
    )
    mixture = DPGaussianMixture(2, n_iter=4, **PUBLIC, **BY_UNITS)
    released, charged = _releases(monkeypatch, lambda: mixture.fit(X, None, PERSONS))
    assert released != pytest.approx(charged)


@pytest.mark.parametrize("centering", ["joint", "two_round"])
def test_a_phase_left_out_of_the_plan_cannot_run(monkeypatch, centering):
    shipped = DPPCA._phases
    monkeypatch.setattr(DPPCA, "_phases", lambda self: shipped(self)[1:])
    with pytest.raises((KeyError, ValueError)):
        DPPCA(2, centering=centering, bounds=(-5, 5)).fit(X)
