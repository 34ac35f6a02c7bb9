"""What GS-WGAN, DataLens and G-PATE have in common: critics, or teachers, of disjoint subsets of the rows."""

from __future__ import annotations

import numpy as np
import pytest
import test_datalens
import test_gpate
import test_gs_wgan
from _claims import assert_refused_before_the_charge
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
from skdpgen import PrivacyUnit
from skdpgen.nn import _dp2vae_training
from skdpgen.synthesizers import _generator_model

# Tests of each, and what its parameters call the networks of the subsets.
MODELS = {
    "GS-WGAN": (test_gs_wgan, "critic"),
    "DataLens": (test_datalens, "teacher"),
    "G-PATE": (test_gpate, "teacher"),
}
X, Y = load_digits(return_X_y=True)


@pytest.mark.parametrize("name", [name for module, _ in MODELS.values() for name in module.FITTED])
def test_the_ledger_is_what_ran_and_nothing_private_is_kept(name):
    ledger_is_what_ran(name)
    nothing_private_is_kept(name)


@pytest.mark.parametrize("model", MODELS)
def test_the_row_count_and_rare_categories_are_hidden_and_a_refused_fit_releases_nothing(model):
    name = MODELS[model][0].FITTED[0]
    the_row_count_is_hidden(name)
    a_category_of_one_record_is_not_told(name)
    a_refused_fit_releases_nothing(name)


def a_unit_is_in_one_subset_as_a_whole(model, weighting):
    """Else a person would move as many critics as they have rows."""
    (module, kind), seen, shipped = MODELS[model], [], _dp2vae_training.SubsetRows.__init__

    def recorded(self, x, codes, n_classes, subsets, n_subsets, *, units=None):
        seen.append((subsets, units))
        shipped(self, x, codes, n_classes, subsets, n_subsets, units=units)

    people = np.repeat(np.arange(len(X) // 3), 3)
    unit = PrivacyUnit("person", 3, weighting=weighting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_dp2vae_training.SubsetRows, "__init__", recorded)
        module.made(unit=unit).fit(X[: len(people)], Y[: len(people)], groups=people)
    ((subsets, units),) = seen
    assert (subsets.reshape(-1, 3) == subsets.reshape(-1, 3)[:, :1]).all()
    assert len(np.unique(subsets)) == module.FAST[f"n_{kind}s"]
    assert (units is None) == (weighting == "rows")


@pytest.mark.parametrize("weighting", ["rows", "units"])
@pytest.mark.parametrize("model", MODELS)
def test_a_unit_is_in_one_subset_as_a_whole(model, weighting):
    a_unit_is_in_one_subset_as_a_whole(model, weighting)


@pytest.mark.parametrize("model", MODELS)
def test_without_noise_the_samples_train_a_classifier_of_digits(model):
    module, kind = MODELS[model]
    synth = module.made(
        np.inf, steps=150, generated_rows=50, warm_start_steps=30, batch_size=16, n_components=4,
        hidden_layer_sizes=(64,), learning_rate=2e-3, average=0.9, **{f"n_{kind}s": 10, f"{kind}_sizes": (16,)},
    ).fit(X[:1200], Y[:1200])  # fmt: skip
    drawn = synth.sample(800, random_state=0)
    assert LogisticRegression(max_iter=300).fit(*drawn).score(X[1200:], Y[1200:]) > 0.6


@pytest.mark.parametrize("model", MODELS)
def test_images_are_compared_in_their_lowest_frequencies(model, monkeypatch):
    seen, basis = [], _generator_model.lowpass_basis
    monkeypatch.setattr(_generator_model, "lowpass_basis", lambda *given: seen.append(given) or basis(*given))
    synth = MODELS[model][0].made(image_shape=(8, 8), n_frequencies=3).fit(X, Y)
    rows, labels = synth.sample(20, random_state=0)
    assert seen[0] == ((8, 8), 3)
    assert rows.shape == (20, 64)
    assert set(labels) <= set(range(10))
    assert ((rows >= 0) & (rows <= 16)).all()


@pytest.mark.parametrize("model", MODELS)
def test_a_saved_model_draws_the_same_rows(model, tmp_path):
    synth = MODELS[model][0].made(image_shape=(8, 8), noise="fast").fit(X, Y)
    assert "gradients: AES-256-CTR; Box-Muller in float32" in synth.card_["noise"]
    synth.save(tmp_path / "model.safetensors")
    loaded = skdpgen.load(tmp_path / "model.safetensors")
    assert loaded.get_params()["image_shape"] == (8, 8)
    for one, other in zip(synth.sample(5, random_state=1), loaded.sample(5, random_state=1)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_{}s": 0}, "n_{}s"),
        ({"steps": 0}, "steps"),
        ({"generated_rows": 0}, "generated_rows"),
        ({"gradient_penalty": -1.0}, "gradient_penalty"),
        ({"{}_sizes": (0,)}, "{}_sizes"),
        ({"hidden_layer_sizes": (65_536, 65_536)}, "at most"),
        ({"n_{}s": 65_536, "{}_sizes": (4096,)}, "n_{0}s=65536, {0}_sizes="),
        ({"n_frequencies": 3}, "n_frequencies= is used only with image_shape="),
        ({"image_shape": (7, 7)}, "does not fit rows of 64 values"),
        ({"image_shape": (8, 8), "n_frequencies": 9}, "n_frequencies=9 must be at most 8"),
        ({"image_shape": (8, 8), "target": "job"}, "image_shape is for arrays, target for DataFrames"),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_what_cannot_be_trained_is_refused_before_the_charge(model, parameters, match):
    module, kind = MODELS[model]
    given = {name.format(kind): value for name, value in parameters.items()}
    assert_refused_before_the_charge(module.made(None, **given), match.format(kind), X, Y)
