"""G-PATE as an estimator: what is charged, what is released, and what is refused before."""

from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS
from _fits import (
    a_category_of_one_record_is_not_told,
    a_refused_fit_releases_nothing,
    ledger_is_what_ran,
    nothing_private_is_kept,
    the_row_count_is_hidden,
)
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import skdpgen
from skdpgen import GPATESynthesizer, PrivacyAccountant, PrivacyUnit
from skdpgen.accounting import Receipt, describe_event, epsilon_pld, gaussian_event
from skdpgen.dpsgd import GradientNoise
from skdpgen.nn import _dp2vae_training
from skdpgen.synthesizers import _generator_model

FITTED = ("arrays, histograms", "arrays, histograms, replace_one", "frame, histograms", "frame, histograms of units")
FAST = {
    "n_teachers": 9, "steps": 3, "generated_rows": 10, "n_projections": 3, "n_bins": 4, "warm_start_steps": 2,
    "batch_size": 3, "hidden_layer_sizes": (6,), "teacher_sizes": (5,),
}  # fmt: skip
X, Y = load_digits(return_X_y=True)


def made(epsilon=3.0, **parameters):
    given = {"bounds": (0, 16), "classes": range(10), "random_state": 0, **FAST, **parameters}
    return GPATESynthesizer(epsilon, **given)


@pytest.mark.parametrize("name", FITTED)
def test_the_ledger_is_what_ran_and_nothing_private_is_kept(name):
    ledger_is_what_ran(name)
    nothing_private_is_kept(name)


def test_the_row_count_and_rare_categories_are_hidden_and_a_refused_fit_releases_nothing():
    the_row_count_is_hidden(FITTED[0])
    a_category_of_one_record_is_not_told(FITTED[0])
    a_refused_fit_releases_nothing(FITTED[0])


def all_rows_of_a_step_are_one_release(relation):
    """The noise is for sqrt(2 p m), whatever the votes are, and is charged as a Gaussian one, without amplification."""
    plans, released, cover, shipped = [], [], Receipt.cover, GradientNoise.release

    def release(noise, bounded, *rest, **options):
        released.append(noise.noise_multiplier * bounded.add_or_remove_one)
        assert bounded.value[0].shape == (10, 3, 4)
        return shipped(noise, bounded, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Receipt, "cover", lambda receipt, plan: plans.append(plan) or cover(receipt, plan))
        patch.setattr(GradientNoise, "release", release)
        synth = made(neighboring=relation).fit(X, Y)
    (plan,), (charge,) = plans, synth.accountant_.charges
    counts, votes = describe_event(charge.event)
    assert (counts["mechanism"], counts["count"]) == ("gaussian", 1)
    assert (votes["mechanism"], votes["sampling_rate"], votes["count"]) == ("gaussian", None, 3)
    expected = np.sqrt(2 * 3 * 10) * votes["noise_multiplier"]
    assert plan.noise_std == pytest.approx(expected)
    assert released == pytest.approx([expected] * 3)
    alone = gaussian_event(votes["noise_multiplier"], 3)
    assert 0.9 * 3 < epsilon_pld(alone, 1e-5, relation) < synth.card_["fit"]["epsilon"] <= 3.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_all_rows_of_a_step_are_one_release(relation):
    all_rows_of_a_step_are_one_release(relation)


def a_unit_is_in_one_subset_as_a_whole(weighting):
    """Else a person would move as many critics as they have rows."""
    seen, shipped = [], _dp2vae_training.SubsetRows.__init__

    def recorded(self, x, codes, n_classes, subsets, n_subsets, *, units=None):
        seen.append((subsets, units))
        shipped(self, x, codes, n_classes, subsets, n_subsets, units=units)

    people = np.repeat(np.arange(len(X) // 3), 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_dp2vae_training.SubsetRows, "__init__", recorded)
        made(unit=PrivacyUnit("person", 3, weighting=weighting)).fit(X[: len(people)], Y[: len(people)], groups=people)
    ((subsets, units),) = seen
    assert (subsets.reshape(-1, 3) == subsets.reshape(-1, 3)[:, :1]).all()
    assert len(np.unique(subsets)) == FAST["n_teachers"]
    assert (units is None) == (weighting == "rows")


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_a_unit_is_in_one_subset_as_a_whole(weighting):
    a_unit_is_in_one_subset_as_a_whole(weighting)


def test_without_noise_the_samples_train_a_classifier_of_digits():
    synth = made(
        np.inf, n_teachers=10, steps=150, generated_rows=50, warm_start_steps=30, batch_size=16, n_components=4,
        hidden_layer_sizes=(64,), teacher_sizes=(16,), learning_rate=2e-3, average=0.9,
    ).fit(X[:1200], Y[:1200])  # fmt: skip
    drawn = synth.sample(800, random_state=0)
    assert LogisticRegression(max_iter=300).fit(*drawn).score(X[1200:], Y[1200:]) > 0.6


def test_images_are_compared_in_their_lowest_frequencies(monkeypatch):
    seen, basis = [], _generator_model.lowpass_basis
    monkeypatch.setattr(_generator_model, "lowpass_basis", lambda *given: seen.append(given) or basis(*given))
    rows, labels = made(image_shape=(8, 8), n_frequencies=3).fit(X, Y).sample(20, random_state=0)
    assert seen[0] == ((8, 8), 3)
    assert rows.shape == (20, 64)
    assert set(labels) <= set(range(10))
    assert ((rows >= 0) & (rows <= 16)).all()


def test_a_saved_model_draws_the_same_rows(tmp_path):
    synth = made(image_shape=(8, 8), noise="fast").fit(X, Y)
    assert "gradients: AES-256-CTR; Box-Muller in float32" in synth.card_["noise"]
    synth.save(tmp_path / "model.safetensors")
    loaded = skdpgen.load(tmp_path / "model.safetensors")
    assert loaded.get_params()["image_shape"] == (8, 8)
    for one, other in zip(synth.sample(5, random_state=1), loaded.sample(5, random_state=1)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_teachers": 0}, "n_teachers"),
        ({"n_projections": 0}, "n_projections"),
        ({"n_bins": 1}, "n_bins"),
        ({"gradient_range": 0.0}, "gradient_range"),
        ({"vote": "median"}, "vote"),
        ({"threshold": 0.2}, 'threshold= is used only with vote="largest"'),
        (
            {"n_projections": 1024, "n_bins": 1024},
            "generated_rows=10, n_projections=1024, n_bins=1024: the model would have",
        ),
        ({"threshold": -0.1}, "threshold"),
        ({"threshold": 1.1}, "threshold"),
        ({"steps": 0}, "steps"),
        ({"generated_rows": 0}, "generated_rows"),
        ({"gradient_penalty": -1.0}, "gradient_penalty"),
        ({"teacher_sizes": (0,)}, "teacher_sizes"),
        ({"hidden_layer_sizes": (65_536, 65_536)}, "at most"),
        ({"n_teachers": 65_536, "teacher_sizes": (4096,)}, "n_teachers=65536, teacher_sizes="),
        ({"n_frequencies": 3}, "n_frequencies= is used only with image_shape="),
        ({"image_shape": (7, 7)}, "does not fit rows of 64 values"),
        ({"image_shape": (8, 8), "n_frequencies": 9}, "n_frequencies=9 must be at most 8"),
        ({"image_shape": (8, 8), "target": "job"}, "image_shape is for arrays, target for DataFrames"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_charge(parameters, match):
    accountant = PrivacyAccountant(1.0)
    with pytest.raises(ValueError, match=match):
        made(None, accountant=accountant, **parameters).fit(X, Y)
    assert not accountant.entries


def noise_too_large_for_votes_is_refused_before_the_charge():
    """The lattice of the noise would be wider than a vote, and sums would move further than the votes that change."""
    accountant = PrivacyAccountant(1e-6, 1e-12)
    synth = made(None, accountant=accountant, generated_rows=200, n_projections=30)
    with pytest.raises(ValueError, match="too large for votes"):
        synth.fit(X, Y)
    assert not accountant.entries


def test_noise_too_large_for_votes_is_refused_before_the_charge():
    noise_too_large_for_votes_is_refused_before_the_charge()
