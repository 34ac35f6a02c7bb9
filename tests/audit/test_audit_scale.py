"""Audits at small epsilon: by the likelihood of all releases, and by one training among many canaries."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from _charged import charged
from _flat import make_flat
from _sabotage import patch_source

from skdpgen import DPPCA, MomentSynthesizer, P3GMSynthesizer
from skdpgen.accounting import PrivacyAccountant, gaussian_event, gaussian_mu, noise_multiplier_for
from skdpgen.audit import _audit, _runs, audit, audit_training, plan_audit
from skdpgen.dpsgd import DPSGDPlan, TermwisePlan
from skdpgen.dpsgd._clipping import clip_factors
from skdpgen.mechanisms import add_gaussian
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import override_noise

X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
TABLE = pd.DataFrame({"a": X[:, 0], "b": np.resize(["x", "y"], 2000)})
DECLARED = {"bounds": (-1, 1), "l2_bound": 1.0, "epsilon": 1.0}
CASES = {
    "one release": (DPPCA(**DECLARED), X, 100),
    "bounds learned": (DPPCA(epsilon=1.0), X, 5),
    "three releases": (make_flat(P3GMSynthesizer, **DECLARED), X, 5),
    "table, all learned": (MomentSynthesizer(epsilon=1.0), TABLE, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_canary_adds_is_all_that_was_charged_and_no_more(name):
    """Tight at epsilon 1: of every release together, with the thresholds of categories at a delta of their own."""
    estimator, rows, n_runs = CASES[name]
    with seeded_noise(4, quiet=True):
        result = audit(estimator, rows, n_runs=n_runs, method="likelihood")
    details = result.details
    # the norm of a row of a table with missing values is bounded to within two hundredths
    assert details["mu_added"] >= details["mu_claimed"] * (0.98 if name.startswith("table") else 0.999)
    assert details["mu_added"] <= details["mu_claimed"] * (1 + 1e-6)
    assert details["noise_measured"] == pytest.approx(1, abs=3.5 / math.sqrt(4 * n_runs))
    assert not result.broken, str(result)
    assert 0 < details["mu_lower"] < details["mu_added"] / details["noise_measured"]
    assert result.n_fits == 2 * n_runs * (1 if name == "one release" else 3) + 4


@pytest.mark.parametrize("name", ["one release", "three releases"])
def test_pairs_of_the_same_noise_show_most_of_the_claim_by_the_shift_alone(name):
    """Nothing that was computed or stated is used: what a canary adds is seen in fits with noise."""
    estimator, rows, _ = CASES[name]
    with seeded_noise(6, quiet=True):
        details = audit(estimator, rows, n_runs=30, method="likelihood").details
    assert 0.6 < details["mu_by_shift"] / details["mu_claimed"] < 1


@pytest.mark.parametrize("name", ["one release", "three releases"])
def test_noise_at_half_its_scale_is_found_at_epsilon_one(name):
    estimator, rows, _ = CASES[name]
    result = audit(estimator, rows, n_runs=15, method="likelihood", noise_scale=0.5)
    assert result.broken, str(result)
    assert result.details["noise_measured"] < 0.8


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")  # the noise here is not that of the suite
def test_fits_whose_noise_is_not_that_stated_say_that_they_are_not_private():
    """Card and ledger: whoever fits within such a block, for an audit or by mistake, publishes no private model."""
    blocks = {
        "half its scale": lambda: _runs.noise_scaled(0.5),
        "none": lambda: override_noise(lambda kind: _runs._Silent()),
        "that of another fit": lambda: override_noise(lambda kind: _runs._Followed([], [])),
        "drawn once more": lambda: override_noise(lambda kind: _runs._Repeated(kind, [[]] * 4)),
    }
    for name, block in blocks.items():
        accountant = PrivacyAccountant(1.0)
        with block():
            fitted = DPPCA(**DECLARED, accountant=accountant).fit(X[:500])
        assert fitted.card_["private"] is False, name
        assert accountant.report().attrs["private"] is False, name


def test_noise_that_is_halved_for_one_number_alone_is_found(monkeypatch):
    """The noise is measured along the canary: that of other numbers does not make up for it."""
    halved = "_lattice_noise($sd / $lattice * np.where(np.arange(3) == 2, 0.5, 1.0), $rest)"
    patch_source(monkeypatch, add_gaussian, ("_lattice_noise($sd / $lattice, $rest)", halved))
    found = audit(DPPCA(**DECLARED), X, n_runs=60, method="likelihood")
    assert found.broken, str(found)


def test_a_statistic_or_a_scale_that_the_method_does_not_take_is_refused():
    with pytest.raises(ValueError, match="finds its statistic itself"):
        audit(DPPCA(**DECLARED), X, n_runs=4, method="likelihood", statistic=lambda fitted, seen: 0.0)
    with pytest.raises(ValueError, match="noise_scale"):
        audit(DPPCA(**DECLARED), X, n_runs=4, noise_scale=0.5)
    with pytest.raises(ValueError, match="noise_scale"):
        audit(DPPCA(**DECLARED), X, n_runs=4, method="likelihood", noise_scale=0.0)


def test_a_plan_by_likelihood_tells_fits_and_what_to_expect():
    plan = plan_audit(DPPCA(**DECLARED), X, n_runs=200, method="likelihood")
    assert plan.n_fits == 404
    assert plan.n_runs == 200
    assert 0.85 < plan.epsilon_expected < 1
    assert plan_audit(DPPCA(epsilon=1.0), X, n_runs=10, method="likelihood").n_fits == 64


# ---- one training among many canaries ----------------------------------------------------------------------
CANARIES = 4000


def _plan(epsilon=4.0, kind=DPSGDPlan, **options):
    noise = noise_multiplier_for(gaussian_event, epsilon, 1e-5, "add_or_remove_one")
    given = {"sampling_rate": 1.0, "steps": 1, "noise_multiplier": noise, "expected_batch_size": CANARIES / 2}
    return kind(**given, **({"l2_bound": 1.0} if kind is DPSGDPlan else {}), **options)


TRAININGS = {
    "DP-SGD": _plan(),
    # as many groups as records: what a canary adds by its group is as near to 2 C2 as it comes among others
    "term-wise": _plan(kind=TermwisePlan, n_groups=CANARIES // 2, group_bound=0.01),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_one_training_shows_most_of_its_claim(name):
    with seeded_noise(1, quiet=True):
        result = audit_training(TRAININGS[name], canaries=CANARIES, rng=np.random.default_rng(1))
    assert not result.broken, str(result)
    assert result.details["mu_claimed"] == pytest.approx(gaussian_mu(4.0, 1e-5), rel=1e-3)
    assert result.details["mu_lower"] > 0.85 * result.details["mu_claimed"]
    assert 0.5 < result.details["epsilon_by_guesses"] < result.epsilon_lower


@pytest.mark.parametrize("name", TRAININGS)
def test_one_training_with_half_its_noise_is_refuted(name):
    found = audit_training(TRAININGS[name], canaries=CANARIES, noise_scale=0.5)
    assert found.broken, str(found)


def test_one_training_that_does_not_clip_is_refuted(monkeypatch):
    unclipped = ("($bound / $norms.clamp(min=1e-30)).clamp(max=1.0)", "torch.ones_like($norms)")
    patch_source(monkeypatch, clip_factors, unclipped)
    assert audit_training(_plan(), canaries=200, guesses=10).broken


def test_canaries_are_judged_by_errors_where_steps_are_not_sampled_as_claimed(monkeypatch):
    # each takes privacy loss distributions; fewer show less
    monkeypatch.setattr(_audit, "_BISECTIONS", 3)
    monkeypatch.setattr(_audit, "_SLOPES", (0.0,))
    monkeypatch.setattr(_audit.SampledScores, "bound", lambda *arguments: {"fits": False})
    plan = DPSGDPlan(0.5, 4, 1.0, 1.0, 500)
    with seeded_noise(2, quiet=True):
        result = audit_training(plan, canaries=2000, guesses=40, rng=np.random.default_rng(2))
    assert not result.broken, str(result)
    assert result.epsilon_lower > 0.4 * result.epsilon_claimed
    assert 0 < result.details["mu_lower"] < result.details["mu_claimed"]


def test_a_canary_that_was_left_out_leaves_noise_alone():
    chosen = np.zeros(400, dtype=bool)
    chosen[:200] = True
    plan = charged(DPSGDPlan(1.0, 1, 1.0, 0.5, 200))
    with seeded_noise(3, quiet=True):
        scores = _audit._train(plan, plan, chosen)
    mu = 1 / 0.5
    assert scores[chosen].mean() == pytest.approx(mu**2 / 2, abs=0.6)
    assert scores[~chosen].mean() == pytest.approx(-(mu**2) / 2, abs=0.6)


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        (DPSGDPlan(1.0, 1, 1.0, 1.0, 10, neighboring="replace_one"), {}, "replace_one"),
        (DPSGDPlan(1.0, 1, 1.0, 0.0, 10), {}, "without noise"),
        (_plan(), {"canaries": 3}, "canaries"),
        (_plan(), {"confidence": 1.0}, "confidence"),
        (_plan(), {"noise_scale": 0.0}, "noise_scale"),
    ],
)
def test_a_training_of_which_nothing_could_be_said_is_refused(plan, options, message):
    with pytest.raises(ValueError, match=message):
        audit_training(plan, **options)


def test_one_training_shows_a_bar_of_its_steps_where_somebody_watches(monkeypatch):
    seen = []

    class Bar:
        def __init__(self, **options):
            seen.append(options)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self):
            seen.append("step")

    monkeypatch.setattr("skdpgen.audit._audit.progress_bar", Bar)
    monkeypatch.setattr("skdpgen.audit._audit.shows_bars", lambda progress: progress == "auto")
    plan = DPSGDPlan(0.5, 3, 1.0, noise_multiplier=1.0, expected_batch_size=20)
    audit_training(plan, canaries=40, guesses=4, progress=True)
    assert seen[0]["total"] == 3
    assert seen[0]["shown"] is True
    assert seen[1:] == ["step"] * 3
    audit_training(plan, canaries=40, guesses=4)
    assert seen[4]["shown"] is False
