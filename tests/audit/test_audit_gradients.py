"""Audits of DP-SGD where every record takes part in a step: tight, and a sensitivity that is half as large is found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from _flat import make_flat
from _sabotage import patch_source

from skdpgen import DPVAESynthesizer, P3GMSynthesizer, PriVAESynthesizer
from skdpgen.accounting import gaussian_mu
from skdpgen.audit import audit, audit_neighbours
from skdpgen.audit._audit import _threshold
from skdpgen.audit._runs import canary_rows, follow_path, with_public_seed
from skdpgen.dpsgd import TermwisePlan
from skdpgen.dpsgd._clipping import clip_factors
from skdpgen.estimator_checks import _released as loss_checks
from skdpgen.estimator_checks import private_estimator_checks
from skdpgen.nn import DPNet
from skdpgen.testing import seeded_noise

X = np.random.default_rng(0).uniform(-1, 1, (50, 2))
STEP = {"epsilon": 10.0, "sampling_rate": 1.0, "steps": 1, "n_components": 1, "bounds": (-1, 1)}


def turning(latents, prior_samples):
    """A divergence whose gradient turns round with every record that joins: what a group's size may do to it."""
    value = latents.mean()
    return value if len(latents) % 2 else -value


def _turned(**parameters):
    # a group's gradient is all that counts: C2 B/b is 50,000 times C1
    bounds = {"n_groups": 1, "gradient_bound": 1e-3, "group_gradient_bound": 1.0}
    return make_flat(PriVAESynthesizer, divergence=turning, **{**STEP, **bounds, **parameters})


def _check_of_loss():
    data = lambda estimator, n_rows, seed: (X,)  # noqa: E731
    return next(check for check in private_estimator_checks(data) if "audit" in check.__name__)


HONEST = {
    "term-wise": _turned(),
    "records alone": make_flat(DPVAESynthesizer, **STEP),
    "decoder": make_flat(P3GMSynthesizer, decoder="net", warm_start_steps=1, l2_bound=1.0, **STEP),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_step_stands_and_the_bound_is_near_the_claim(name):
    result = audit(HONEST[name], X, n_runs=3, confidence=0.999, method="scale")
    assert not result.broken, str(result)
    assert result.epsilon_lower > 8.5
    assert "3 runs judged" in str(result)


def test_c2_mistaken_for_2_c2_is_found_end_to_end(monkeypatch):
    """PriVAE's paper has C2: noise for it, and a group's gradient that turns round, lose more than twice the claim."""
    patch_source(monkeypatch, TermwisePlan.__post_init__, ("2 * self.group_bound", "self.group_bound"))
    result = audit(_turned(), X, n_runs=3, confidence=0.999, method="scale")
    assert result.broken, str(result)
    assert result.epsilon_lower > 15
    with pytest.raises(AssertionError, match="the claim is REFUTED"):
        _check_of_loss()(_turned())


@pytest.mark.parametrize(("bound", "times"), [("2 * self.group_bound", 1), ("self.group_bound", 2)])
def test_a_canary_in_one_of_sixteen_groups_adds_all_that_is_charged_end_to_end(monkeypatch, bound, times):
    """And the noise measured is noise: the fits without it draw the rows into the groups of the noisy fit."""
    patch_source(monkeypatch, TermwisePlan.__post_init__, ("2 * self.group_bound", bound))
    rows = np.random.default_rng(0).uniform(-1, 1, (320, 1))
    estimator = with_public_seed(_turned(n_groups=16, epsilon=100.0))  # where groups drawn anew are far from the noise
    pair = canary_rows(rows, None, estimator, "add_or_remove_one")
    with seeded_noise(1, quiet=True):
        steps = follow_path(estimator, pair[0], *pair, gradient=True).steps
    rows_added, added = (np.linalg.norm((moved - base) / sd) for _, base, moved, sd, _ in steps)
    charged = math.sqrt(gaussian_mu(100.0, 1e-5) ** 2 - rows_added**2)  # to the step: the number of rows has the rest
    assert added == pytest.approx(times * charged, rel=0.03)
    released, base, moved, sd, _ = steps[-1]
    direction = (moved - base) / np.linalg.norm(moved - base)
    assert abs(np.sum((released - base) / sd * direction)) < 5


def test_half_the_noise_of_dp_sgd_is_found(monkeypatch):
    patch_source(monkeypatch, DPNet._run_steps, ("$plan.noise_multiplier", "0.5 * $plan.noise_multiplier"))
    for name in ("records alone", "decoder"):
        assert audit(HONEST[name], X, n_runs=2, confidence=0.999, method="scale").broken


def test_gradients_that_are_not_clipped_are_found(monkeypatch):
    unclipped = ("($bound / $norms.clamp(min=1e-30)).clamp(max=1.0)", "torch.ones_like($norms)")
    patch_source(monkeypatch, clip_factors, unclipped)
    long = make_flat(DPVAESynthesizer, gradient_bound=1e-3, **STEP)
    assert audit(long, X, n_runs=2, confidence=0.999, method="scale").broken


def test_the_checks_pass_an_honest_step():
    _check_of_loss()(_turned())


def test_errors_alone_are_counted_along_the_gradient():
    """Far below the claim with so few runs, and never above it; a fifth of the runs find the threshold."""
    result = audit_neighbours(_turned(), (X,), (np.vstack([X, [[9.0, 9.0]]]),), n_runs=10, confidence=0.6)
    assert result.method == "counts"
    assert result.details["runs"] == 8
    # some 3 of 16 are to be expected, and 8 of an audit that looks elsewhere
    assert result.details["false_positives"] + result.details["false_negatives"] <= 10
    assert result.epsilon_lower < 40


@pytest.mark.parametrize("n_runs", [2, 3, 4])
def test_the_fewest_runs_still_have_a_threshold(n_runs):
    """Two equal data sets cannot be told apart: with no threshold no error would be counted, and a bound be claimed."""
    without = within = np.zeros(n_runs)
    middle, left, right = _threshold([], True, without, within)
    assert np.isfinite(middle)
    assert len(left) == len(right) == n_runs - 1


# ---- a claim is refuted by two audits alone --------------------------------------------------------------
@pytest.mark.parametrize("broken", [(False,), (True, False), (True, True)])
def test_the_checks_refute_by_a_second_audit_alone(monkeypatch, broken):
    asked = []

    def answers(*arguments, n_runs, **options):
        asked.append(n_runs)
        result = audit(*arguments, n_runs=3, **options)
        return type(result)(**{**vars(result), "epsilon_lower": 11.0 if broken[len(asked) - 1] else 9.0})

    monkeypatch.setattr(loss_checks, "audit", answers)
    check = _check_of_loss()
    if broken == (True, True):
        with pytest.raises(AssertionError, match="REFUTED"):
            check(HONEST["records alone"])
    else:
        check(HONEST["records alone"])
    assert asked == [3, 12][: len(broken)]
