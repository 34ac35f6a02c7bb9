"""DP-Sinkhorn as an estimator: what is charged, what is released, and what is refused before."""

from __future__ import annotations

import numpy as np
import pytest
from _fits import (
    a_category_of_one_record_is_not_told,
    a_refused_fit_releases_nothing,
    ledger_is_what_ran,
    networks_of_many_levels_are_refused,
    nothing_private_is_kept,
    the_row_count_is_hidden,
)
from _flat import make_flat
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import skdpgen
from skdpgen import DPSGD, DPSinkhornSynthesizer, PrivacyAccountant
from skdpgen.accounting import Receipt, describe_event, epsilon_pld, poisson_gaussian_event
from skdpgen.nn import _sinkhorn
from skdpgen.synthesizers import _generator_model

FITTED = ("arrays, transport net", "arrays, transport net, replace_one", "frame, transport net")
FAST = {"steps": 3, "sampling_rate": 0.2, "generated_rows": 6, "hidden_layer_sizes": (6,)}
X, Y = load_digits(return_X_y=True)


def made(epsilon=3.0, **parameters):
    return make_flat(DPSinkhornSynthesizer, epsilon, **{"bounds": (0, 16), "random_state": 0, **FAST, **parameters})


@pytest.mark.parametrize("name", FITTED)
def test_the_ledger_is_what_ran_and_nothing_private_is_kept(name):
    ledger_is_what_ran(name)
    nothing_private_is_kept(name)


def test_the_row_count_and_rare_categories_are_hidden_and_a_refused_fit_releases_nothing():
    the_row_count_is_hidden(FITTED[0])
    a_category_of_one_record_is_not_told(FITTED[0])
    a_refused_fit_releases_nothing(FITTED[0])


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_a_step_is_charged_at_its_standard_deviation_over_2_c(monkeypatch, relation):
    plans, cover = [], Receipt.cover
    monkeypatch.setattr(Receipt, "cover", lambda receipt, plan: plans.append(plan) or cover(receipt, plan))
    synth = made(classes=range(10), neighboring=relation, gradient_bound=0.7).fit(X, Y)
    (plan,), (charge,) = plans, synth.accountant_.charges
    counts, steps = describe_event(charge.event)
    assert counts["mechanism"] == "gaussian"
    assert plan.gradient_bound == 0.7
    assert plan.noise_std / plan.expected_batch_size == pytest.approx(2 * 0.7 * steps["noise_multiplier"])
    alone = poisson_gaussian_event(steps["sampling_rate"], steps["noise_multiplier"], steps["count"])
    assert epsilon_pld(alone, 1e-5, relation) < synth.card_["fit"]["epsilon"] <= 3.0
    assert (steps["sampling_rate"], steps["count"]) == (0.2, 3)


def test_without_noise_the_samples_train_a_classifier_of_digits():
    synth = made(
        np.inf, classes=range(10), steps=3000, sampling_rate=0.06, generated_rows=10, hidden_layer_sizes=(100,),
        learning_rate=0.01, average=0.9,
    ).fit(X[:1200], Y[:1200])  # fmt: skip
    drawn = synth.sample(800, random_state=0)
    accuracy = LogisticRegression(max_iter=300).fit(*drawn).score(X[1200:], Y[1200:])
    assert accuracy > 0.75


@pytest.mark.parametrize(
    ("shape", "latents", "blur", "width"), [({}, 8, 0.05, 64), ({"image_shape": (4, 16)}, 4, 64 / 40, 40)]
)
def test_latents_regularisation_and_frequencies_follow_the_kind_of_the_rows(monkeypatch, shape, latents, blur, width):
    """Images have at most ten frequencies along a side: four and ten here."""
    seen, train = [], _sinkhorn.train_by_transport

    def spied(generator, x, *rest, **options):
        seen.append((generator.n_latent, options["blur"], generator.n_outputs))
        return train(generator, x, *rest, **options)

    monkeypatch.setattr(_sinkhorn, "train_by_transport", spied)
    synth = made(**shape).fit(X, Y)
    assert seen == [(latents, blur, width)]
    assert synth.model_.n_latent == latents
    made(n_components=3, blur=2.0, **shape).fit(X, Y)
    assert seen[1] == (3, 2.0, width)


def test_images_are_compared_in_their_lowest_frequencies(monkeypatch):
    seen, gradient = [], _generator_model.lowpass_basis
    monkeypatch.setattr(_generator_model, "lowpass_basis", lambda *given: seen.append(given) or gradient(*given))
    synth = made(classes=range(10), image_shape=(8, 8), n_frequencies=3).fit(X, Y)
    assert seen[0] == ((8, 8), 3)
    rows, labels = synth.sample(20, random_state=0)
    assert rows.shape == (20, 64)
    assert set(labels) <= set(range(10))
    assert ((rows >= 0) & (rows <= 16)).all()


@pytest.mark.parametrize("target", [None, "code"])
def test_networks_of_many_declared_levels_are_refused_before_the_charge(target):
    few = DPSGD(1, sampling_rate=0.5)
    networks_of_many_levels_are_refused(
        DPSinkhornSynthesizer, target, hidden_layer_sizes=(20_000,), training=few, generated_rows=2, steps_at_once=1
    )


def test_a_saved_model_draws_the_same_rows(tmp_path):
    synth = made(classes=range(10), image_shape=(8, 8)).fit(X, Y)
    synth.save(tmp_path / "model.safetensors")
    loaded = skdpgen.load(tmp_path / "model.safetensors")
    assert loaded.get_params()["image_shape"] == (8, 8)
    for one, other in zip(synth.sample(5, random_state=1), loaded.sample(5, random_state=1)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_frequencies": 3}, "n_frequencies= is used only with image_shape="),
        ({"image_shape": (7, 7)}, "does not fit rows of 64 values"),
        ({"image_shape": (8, 8), "n_frequencies": 9}, "n_frequencies=9 must be at most 8"),
        ({"generated_rows": 1}, "generated_rows"),
        ({"blur": 0.0}, "blur"),
        ({"average": 1.0}, "average"),
        ({"steps_at_once": 0}, "steps_at_once"),
        ({"steps_at_once": 4096, "generated_rows": 4096, "image_shape": (8, 8)}, "the model would have"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"batch_size": 9, "sampling_rate": 0.001}, "private under add_or_remove_one"),
        ({"unit": "pid", "max_rows_per_unit": 0}, "max_rows_per_unit"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_charge(parameters, match):
    accountant = PrivacyAccountant(1.0)
    synth = made(None, accountant=accountant, **parameters)
    with pytest.raises(ValueError, match=match):
        synth.fit(X, Y, **({"groups": np.arange(len(X))} if "unit" in parameters else {}))
    assert not accountant.entries
