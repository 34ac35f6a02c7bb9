"""Audits: honest estimators stand, sabotaged ones fall, and what cannot be said is not said."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat
from _sabotage import patch_source
from scipy import stats

from skdpgen import DPPCA, DPSGD, DPGaussianMixture, P3GMSynthesizer, PrivacyAccountant, Schema
from skdpgen.accounting import gaussian_epsilon, gaussian_mu
from skdpgen.audit import (
    audit,
    audit_neighbours,
    audit_one_run,
    epsilon_from_counts,
    epsilon_from_guesses,
    mu_from_counts,
    mu_from_scale,
    mu_from_shift,
    plan_audit,
)
from skdpgen.audit._bounds import expected_bound
from skdpgen.audit._runs import follow, with_public_seed
from skdpgen.estimator_checks import check_private_estimator
from skdpgen.mechanisms import _gaussian as clipping
from skdpgen.mechanisms import add_gaussian
from skdpgen.tabular import Categorical, Numeric
from skdpgen.testing import seeded_noise

X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.arange(40) % 2
FRAME = pd.DataFrame({"a": X[:, 0], "b": Y.astype(str)})
SCHEMA = Schema([Numeric("a", (-3, 3)), Categorical("b", ("0", "1"))])
PUBLIC = {"bounds": (-3, 3), "l2_bound": 1.0, "epsilon": 10.0}
HONEST = {
    "pca": (DPPCA(**PUBLIC), (X,)),
    "pca, replace_one": (DPPCA(neighboring="replace_one", **PUBLIC), (X,)),
    "pca, learned bounds": (DPPCA(epsilon=10.0), (X,)),
    "mixture": (DPGaussianMixture(**PUBLIC), (X,)),
    "mixture by EM": (DPGaussianMixture(2, n_iter=2, means_init=[[0.1] * 3, [-0.1] * 3], **PUBLIC), (X,)),
    "mixture by class": (DPGaussianMixture(classes=[0, 1], **PUBLIC), (X, Y)),
    "p3gm": (make_flat(P3GMSynthesizer, **PUBLIC), (X,)),
    "p3gm, frame": (P3GMSynthesizer(epsilon=10.0, schema=SCHEMA, target="b"), (FRAME,)),
}


def less_noise(factor):
    return "$noise * $query.sensitivity($relation)", f"{factor} * $noise * $query.sensitivity($relation)"


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_estimator_stands(name):
    estimator, data = HONEST[name]
    result = audit(estimator, *data, n_runs=8, confidence=0.999, method="scale")
    assert not result.broken, str(result)
    assert result.epsilon_claimed == 10.0
    if name in ("pca", "pca, replace_one", "mixture", "mixture by class", "p3gm, frame"):
        assert result.epsilon_lower > 2


@pytest.mark.parametrize("name", ["pca", "mixture"])
def test_the_bound_reaches_two_by_errors_alone(name):
    estimator, data = HONEST[name]
    result = audit(estimator, *data, n_runs=60)
    assert result.method == "counts"
    assert 2 < result.epsilon_lower < 10
    assert result.n_fits == 123
    assert result.seconds > 0
    assert "123 fits" in str(result)
    assert "the claim stands" in str(result)
    assert result.to_dict()["broken"] is False


@pytest.mark.parametrize("method", ["counts", "scale"])
@pytest.mark.parametrize("name", ["pca", "mixture", "mixture by class"])
def test_noise_at_half_its_scale_is_found(monkeypatch, name, method):
    patch_source(monkeypatch, add_gaussian, less_noise(0.5))
    estimator, data = HONEST[name]
    n_runs = 60 if method == "counts" else 8
    result = audit(estimator, *data, n_runs=n_runs, method=method)
    assert result.broken, str(result)
    assert "REFUTED" in str(result)


SEVERAL = {
    "pca, learned l2 bound": DPPCA(epsilon=10.0, bounds=(-4, 4)),
    "pca, two rounds": DPPCA(epsilon=10.0, bounds=(-4, 4), l2_bound=2.0, centering="two_round"),
    "pca, all learned, replace_one": DPPCA(epsilon=10.0, neighboring="replace_one"),
    "mixture by EM": DPGaussianMixture(2, n_iter=3, epsilon=10.0, bounds=(-4, 4), l2_bound=2.0),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_later_releases_are_compared_after_the_same_earlier_ones(name):
    """The movement of all records, which a moved earlier release brings, is no loss of the canary's."""
    rows = np.random.default_rng(1).normal(size=(100, 4))
    for seed in range(2):
        with seeded_noise(seed, quiet=True):
            result = audit(SEVERAL[name], rows, n_runs=6, confidence=0.999, method="scale")
        assert not result.broken, str(result)
        assert result.epsilon_lower > 0.5  # of use all the same


@pytest.mark.parametrize("name", SEVERAL)
def test_noise_at_half_its_scale_is_found_in_several_releases(monkeypatch, name):
    patch_source(monkeypatch, add_gaussian, less_noise(0.4))
    rows = np.random.default_rng(1).normal(size=(100, 4))
    assert audit(SEVERAL[name], rows, n_runs=8, method="scale").broken


def test_a_vector_of_statistics_is_not_judged_by_the_runs_that_chose_its_direction():
    """Of 200 numbers that tell nothing, some direction always looks telling in the runs that chose it."""
    rng = np.random.default_rng(5)
    found = [
        audit_neighbours(
            DPPCA(**{**PUBLIC, "epsilon": 1.0}),
            (X[:6],),
            (X[:7],),
            n_runs=8,
            method="shift",
            statistic=lambda fitted, seen: rng.normal(size=200),
        )
        for _ in range(8)
    ]
    assert sum(result.broken for result in found) <= 3  # each with chance .05 at most
    assert found[0].details["runs"] == 4
    _Foreign.honesty = 1.0
    with pytest.raises(ValueError, match="at least 4 runs"):
        audit(_Foreign(**PUBLIC), X, n_runs=3, method="shift")


@pytest.mark.parametrize("name", ["pca, learned l2 bound", "mixture by EM"])
def test_the_shift_of_several_releases_is_refused(name):
    with pytest.raises(ValueError, match="single Gaussian release"):
        audit(SEVERAL[name], X, n_runs=4, method="shift")


def test_one_run_is_refused_under_replace_one():
    with pytest.raises(ValueError, match="replace_one"):
        audit_one_run(DPPCA(neighboring="replace_one", **PUBLIC), X)


class _Featured(DPPCA):
    """Public random directions, of `random_state` or of nobody's."""

    def fit(self, X, y=None):
        turn = np.random.default_rng(self.random_state).normal(size=(np.shape(X)[1], 3))
        return super().fit(np.tanh(np.asarray(X) @ turn), y)


def test_fits_that_are_compared_have_one_public_randomness():
    result = audit(_Featured(**PUBLIC), X, n_runs=6, confidence=0.999, method="scale")
    assert not result.broken, str(result)
    assert result.epsilon_lower > 1  # other directions would drown it, or stand for it
    assert not audit(_Featured(**PUBLIC), X, n_runs=30, method="shift").broken


@pytest.mark.parametrize("name", ["pca", "mixture by class"])
def test_clipping_that_was_dropped_is_found(monkeypatch, name):
    patch_source(monkeypatch, clipping._clip_in_place, ("$long.size", "False"))
    estimator, data = HONEST[name]
    result = audit(estimator, *data, n_runs=8, method="scale")
    assert result.broken, str(result)


def test_third_parties_find_it_by_the_checks(monkeypatch):
    patch_source(monkeypatch, add_gaussian, less_noise(0.5))
    with pytest.raises(AssertionError, match="the claim is REFUTED"):
        check_private_estimator(DPPCA(2, bounds=(-1, 1), l2_bound=1.0))


class _Foreign(DPPCA):
    """Its mechanism is its own: nothing of it is seen but the fitted attributes."""

    def fit(self, X, y=None):
        with self._fitting():
            accountant = self._resolve_accountant()
            (X, *_), plan = self._prepare(X, y, accountant)
            rng = self._charge(accountant, plan)
            rows = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
            scale = plan.noise_multipliers["moments"] * self.honesty
            self.mean_ = rows.sum(axis=0) + scale * rng.standard_normal(X.shape[1])
            self._issue_card(plan, rng, [])
        return self


@pytest.mark.parametrize(("honesty", "broken"), [(1.0, False), (0.25, True)])
def test_an_estimator_with_mechanisms_of_its_own_is_judged_by_what_it_keeps(honesty, broken):
    _Foreign.honesty = honesty
    result = audit(_Foreign(**PUBLIC), X, n_runs=100)
    assert result.broken is broken, str(result)
    assert result.details["runs"] == 50  # the other half has found the direction


def test_your_own_neighbours_and_statistic_are_taken():
    """The hook for any sensitivity in question: a pair of data sets, and what to look at."""
    seen = []

    def statistic(fitted, releases):
        seen.append([kind for _, _, kind in releases])
        return float(releases[0][0][0])  # the noisy count

    one, other = (X,), (np.vstack([X, np.zeros((1, 3))]),)
    result = audit_neighbours(DPPCA(**PUBLIC), one, other, n_runs=30, statistic=statistic)
    assert not result.broken
    assert seen[0] == ["plain"]


def test_steps_of_dp_sgd_are_seen_as_they_are_released():
    norms = []

    def statistic(fitted, releases):
        norms.append(
            [np.linalg.norm(value) / sd[0] / value.size**0.5 for value, sd, kind in releases if kind == "gradient"]
        )
        return norms[-1][0]

    net = P3GMSynthesizer(epsilon=10.0, decoder="net", training=DPSGD(3, 0.1, warm_start_steps=1), bounds=(-3, 3))
    result = audit_neighbours(net, (X,), (X[:-1],), n_runs=2, statistic=statistic)
    assert result.method == "distribution_free"
    assert len(norms[0]) == 3
    assert all(0.8 < ratio < 1.3 for run in norms for ratio in run)  # mostly noise, at the scale that is stated
    with pytest.raises(ValueError, match="sampled steps"):
        audit_neighbours(net, (X,), (X[:-1],), n_runs=4, method="counts", statistic=statistic)


def test_one_run_with_many_canaries(monkeypatch):
    rows, far = np.zeros((5, 30)), 50 * np.eye(30)
    result = audit_one_run(DPPCA(**PUBLIC), rows, canaries=far, guesses=20, rng=np.random.default_rng(1))
    assert not result.broken
    assert result.epsilon_lower > 0.2
    assert result.details["canaries"] == 30
    assert result.n_fits == 61
    with pytest.raises(ValueError, match="one plain release"):
        audit_one_run(DPPCA(epsilon=10.0), rows, canaries=far[:3])
    patch_source(monkeypatch, add_gaussian, less_noise(0.02))
    cheap = DPPCA(**{**PUBLIC, "epsilon": 1.0})
    found = audit_one_run(cheap, rows, canaries=far, guesses=30, rng=np.random.default_rng(1))
    assert found.broken, str(found)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("method", ["one_run", "counts", "distribution_free"])
def test_a_bound_is_that_of_the_counts_that_stand_beside_it(method, confidence):
    """At a delta that matters: a mechanism may give away each canary with it, also those that were not guessed."""
    estimator, delta = DPPCA(**{**PUBLIC, "delta": 1e-3}), 1e-3
    if method == "one_run":
        rng, far = np.random.default_rng(1), 50 * np.eye(16)
        options = {"canaries": far, "guesses": 8, "rng": rng}
        result = audit_one_run(estimator, np.zeros((5, 16)), confidence=confidence, **options)
        told = [result.details[name] for name in ("correct", "guesses", "canaries")]
        assert told[1:] == [8, 16]
        found = epsilon_from_guesses(*told, delta, confidence)
        assert found < epsilon_from_guesses(told[0], 8, 8, delta, confidence) < epsilon_from_guesses(*told, 0, 0.5)
    else:
        result = audit(estimator, X, n_runs=40, confidence=confidence, method=method)
        told = [result.details[name] for name in ("false_positives", "false_negatives", "runs")]
        if method == "counts":
            found = gaussian_epsilon(mu_from_counts(*told, confidence), delta)
        else:
            found = epsilon_from_counts(*told, delta, confidence)
    assert (result.delta, result.confidence) == (delta, confidence)
    assert result.epsilon_lower == pytest.approx(found)
    assert found > 0


# ---- what it takes, and what it cannot say ---------------------------------------------------------------
def test_a_plan_tells_the_cost_and_what_can_be_said():
    plan = plan_audit(DPPCA(**PUBLIC), X, n_runs=200)
    assert plan.n_fits == 402
    assert plan.seconds > 0
    assert 5 < plan.epsilon_expected < 10
    assert 1 < plan.epsilon_least < 3
    assert "402 fits" in str(plan)
    assert plan_audit(DPPCA(**{**PUBLIC, "epsilon": 1.0}), X, n_runs=20).epsilon_expected == 0


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        (DPPCA(**{**PUBLIC, "epsilon": 1.0}), {"n_runs": 30}, "the audit cannot test a claim of epsilon 1"),
        (DPPCA(**{**PUBLIC, "epsilon": np.inf}), {}, "a fit without noise"),
        (DPPCA(**PUBLIC), {"n_runs": 1}, "n_runs"),
        (DPPCA(**PUBLIC), {"confidence": 1.0}, "confidence"),
        (DPPCA(**PUBLIC), {"method": "guess"}, "method"),
        (DPPCA(accountant=PrivacyAccountant(10.0)), {}, "accountant=None"),
        (_Foreign(**PUBLIC), {"method": "scale"}, "releases that can be observed"),
    ],
)
def test_an_audit_that_cannot_answer_says_so(estimator, options, message):
    _Foreign.honesty = 1.0
    with pytest.raises(ValueError, match=message):
        audit(estimator, X, **options)


# ---- the bounds -----------------------------------------------------------------------------------------
def test_bounds_hold_at_their_confidence_and_are_of_use():
    rng = np.random.default_rng(2)
    mu, n, over, close = 2.0, 120, 0, []
    for _ in range(300):
        without, within = rng.normal(size=n), rng.normal(mu, 1, size=n)
        counts = mu_from_counts(int((without > 1).sum()), int((within <= 1).sum()), n)
        shift = mu_from_shift(without, within)
        over += (shift > mu) + 1000 * (counts > mu)
        close.append((counts, shift))
    assert over % 1000 <= 30  # one-sided 95 %: 15 expected
    assert over // 1000 <= 15
    assert np.mean(close, axis=0) == pytest.approx([1.5, 1.75], abs=0.1)


def test_the_scale_bound_holds_at_its_confidence():
    rng = np.random.default_rng(3)
    directions = [(np.zeros(4), np.array([1.0, 0, 0, 0]), np.full(4, 0.5))]
    found = [mu_from_scale(directions, rng.normal(size=40), 0.95) for _ in range(400)]
    assert np.mean(np.array(found) > 2.0) < 0.09
    assert np.mean(found) > 1.5
    assert mu_from_scale(directions, np.zeros(4)) == math.inf


def test_errors_alone_bound_any_mechanism():
    assert epsilon_from_counts(0, 0, 1000, 1e-5) == pytest.approx(
        math.log(1 / stats.beta.ppf(0.975, 1, 1000)), rel=0.01
    )
    assert epsilon_from_counts(500, 500, 1000, 1e-5) == 0
    assert mu_from_counts(60, 60, 100) == 0
    assert gaussian_epsilon(mu_from_counts(10, 10, 100), 1e-5) > epsilon_from_counts(10, 10, 100, 1e-5)


def test_one_run_bounds_agree_with_the_binomial_without_delta():
    found = epsilon_from_guesses(90, 100, 500, 0.0)
    assert stats.binom.sf(89, 100, 1 / (1 + math.exp(-found))) == pytest.approx(0.05, abs=1e-4)
    assert epsilon_from_guesses(90, 100, 500, 1e-5) < found
    assert epsilon_from_guesses(50, 100, 500, 1e-5) == 0
    assert epsilon_from_guesses(0, 0, 5, 1e-5) == 0
    with pytest.raises(ValueError, match="correct <= guesses"):
        epsilon_from_guesses(3, 2, 5, 1e-5)


def test_what_to_expect_is_what_comes():
    rng = np.random.default_rng(4)
    mu = gaussian_mu(10.0, 1e-5)
    found = []
    for _ in range(100):
        a, b = (int((rng.normal(size=150) > mu / 2).sum()) for _ in range(2))
        found.append(gaussian_epsilon(mu_from_counts(a, b, 150), 1e-5))
    assert np.mean(found) == pytest.approx(expected_bound(10.0, 1e-5, 150), rel=0.1)


@pytest.mark.parametrize("name", ["mixture by EM", "pca, all learned, replace_one", "public directions"])
def test_what_is_measured_on_a_followed_fit_is_noise_alone(name):
    """Neither the wandering of later releases after earlier ones, nor public randomness, is taken for noise."""
    rows = np.random.default_rng(6).normal(size=(2000, 4))
    estimator = with_public_seed(_Featured(**PUBLIC) if name == "public directions" else SEVERAL[name])
    found = np.concatenate([follow(estimator, (rows,), (rows,))[1] for _ in range(10)])
    assert len(found) >= 100
    assert found.std() == pytest.approx(1, abs=0.4)  # five standard deviations of so few
