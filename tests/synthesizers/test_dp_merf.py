from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import test_scaling_blocks
from _claims import RELATIONS, assert_noise_at_scale, assert_sensitivity
from _fits import (
    a_category_of_one_record_is_not_told,
    a_refused_fit_releases_nothing,
    ledger_is_what_ran,
    nothing_private_is_kept,
    the_row_count_is_hidden,
)
from _sabotage import Claim, assert_caught, before, mutant_ids, quietly
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import skdpgen
from skdpgen import DPMERFSynthesizer
from skdpgen.exceptions import InvalidInputError
from skdpgen.mechanisms import add_gaussian, class_first_moments
from skdpgen.mechanisms._moments import CLASS_COUNT_WEIGHT
from skdpgen.metrics import tstr_score
from skdpgen.synthesizers import _dp_merf
from skdpgen.synthesizers._dp_merf import RandomFeatures, _discrepancy, _embedder, embedding_sum
from skdpgen.tabular import Categorical, Schema
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

FAST = {"steps": 3, "n_frequencies": 8, "hidden_layer_sizes": (6,)}


def _features(n_features=3, n_frequencies=5):
    return RandomFeatures.draw(n_features, n_frequencies, 0.5, np.random.default_rng(0))


def embedding_sensitivity_is_attained_and_not_exceeded(relation):
    """Every row has features of norm 1; opposite features of one class attain the bound of a replaced row."""
    rng = np.random.default_rng(3)
    base = rng.normal(size=(5, 3)), rng.integers(0, 3, 5)
    joined = [
        (np.vstack([base[0], x]), np.append(base[1], k))
        for x in (*rng.normal(size=(6, 3)), np.zeros(3), 1e9 * np.ones(3), np.eye(3)[0])
        for k in (0, 1, 2, -1)
    ]
    if relation == "add_or_remove_one":
        features, pairs = _features(), [(base, more) for more in joined]
        attained = pairs[:2]
    else:
        features = RandomFeatures([[np.pi], [0.3], [0.7]])  # one angle: a step of 1 turns it round
        pairs = [(one, other) for one in joined for other in joined]
        attained = [(joined[4 * 6], joined[4 * 8])]  # the zero row and the first unit vector, both of class 0
    assert_sensitivity(lambda data: embedding_sum(*data, 3, features), pairs, attained=attained, relation=relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_embedding_sensitivity(relation):
    embedding_sensitivity_is_attained_and_not_exceeded(relation)


def test_a_replaced_row_of_many_angles_moves_less_than_the_bound(rng):
    features, rows = _features(), rng.normal(size=(30, 3))
    bound = embedding_sum(rows[:1], np.zeros(1, dtype=int), 2, features).sensitivity("replace_one")
    assert bound == 2.0
    embedded = features(rows)
    assert np.linalg.norm(embedded[:, None] - embedded[None], axis=2).max() < bound


def test_features_have_norm_one_and_their_products_are_the_kernels(rng):
    features = RandomFeatures.draw(2, 60_000, 0.7, rng)
    X = rng.normal(size=(4, 2))
    embedded = features(X)
    np.testing.assert_allclose(np.linalg.norm(embedded, axis=1), 1.0, atol=1e-12)
    squares = np.square(X[:, None] - X[None]).sum(axis=2)
    kernel = np.mean([np.exp(-squares / (2 * (0.7 * s) ** 2)) for s in (0.5, 1, 2)], axis=0)
    np.testing.assert_allclose(embedded @ embedded.T, kernel, atol=0.02)


def test_noise_of_the_embedding_is_at_its_scale(rng):
    features = RandomFeatures.draw(2, 26_000, 0.7, rng)
    bounded = embedding_sum(rng.normal(size=(10, 2)), np.zeros(10, dtype=int), 2, features)
    exact = add_gaussian(bounded, 0.0, make_noise_generator("secure"), "add_or_remove_one")
    noisy = add_gaussian(bounded, 3.0, make_noise_generator("secure"), "add_or_remove_one")
    assert_noise_at_scale((noisy - exact)[:, 1:], 3.0 * (1 + CLASS_COUNT_WEIGHT**2) ** 0.5)


def test_the_embedding_of_levels_is_the_expectation_of_what_is_drawn(rng):
    import torch

    features, levels = _features(7), [3, 4]
    logits = torch.tensor(rng.normal(size=(1, 7)), dtype=torch.float32)
    exact = _embedder(features, levels, None)(logits).numpy()[0]
    p, q = (np.exp(part) / np.exp(part).sum() for part in np.split(logits.numpy()[0].astype(float), [3]))
    expected = 0.0
    for i in range(3):
        for j in range(4):
            row = np.zeros((1, 7))
            row[0, [i, 3 + j]] = 1
            expected = expected + p[i] * q[j] * features(row)[0]
    np.testing.assert_allclose(exact, expected, atol=1e-6)


def test_the_discrepancy_is_unbiased_for_few_rows(rng):
    import torch

    features, wanted = _features(2, 4), torch.tensor(rng.normal(size=(1, 8)), dtype=torch.float32)
    X = rng.normal(size=(4000, 3, 2))
    losses = [float(_discrepancy(torch.tensor(features(rows), dtype=torch.float32), wanted, 3)) for rows in X]
    mean = features(X.reshape(-1, 2)).mean(axis=0)
    expected = float(mean @ mean - 2 * mean @ wanted.numpy()[0])
    assert np.mean(losses) == pytest.approx(expected, abs=5 * np.std(losses) / 4000**0.5)


def test_without_noise_the_samples_train_a_classifier_of_digits():
    X, y = load_digits(return_X_y=True)
    synth = DPMERFSynthesizer(
        np.inf, bounds=(0, 16), l2_bound=4.5, classes=range(10), steps=150, n_frequencies=150, random_state=0
    ).fit(X[:1200], y[:1200])
    model = {"linear": LogisticRegression(max_iter=3000)}
    assert tstr_score(synth.sample(1000, random_state=0), (X[1200:], y[1200:]), classifiers=model) > 0.5


def test_tables_keep_their_dependence_on_the_class(rng):
    kind = rng.choice(["a", "b", "c"], 3000)
    frame = pd.DataFrame({"kind": kind, "label": np.where((kind == "a") ^ (rng.random(3000) < 0.05), "yes", "no")})
    schema = Schema([Categorical("kind", ("a", "b", "c")), Categorical("label", ("no", "yes"))])
    synth = quietly(
        lambda: DPMERFSynthesizer(5.0, schema=schema, target="label", steps=150, n_frequencies=50).fit(frame)
    )
    drawn = synth.sample(3000)
    assert list(drawn.columns) == ["kind", "label"]
    real, made = (pd.crosstab(rows["label"], rows["kind"], normalize=True).to_numpy() for rows in (frame, drawn))
    assert np.abs(real - made).sum() / 2 < 0.12


def test_the_shape_of_images_changes_no_release(monkeypatch):
    X, y = load_digits(return_X_y=True)
    common = {"bounds": (0, 16), "classes": range(10), "steps": 3, "n_frequencies": 8, "random_state": 0}
    seen, released = [], []

    def spied(*arguments):
        released.append(add_gaussian(*arguments))
        return released[-1]

    monkeypatch.setattr(_dp_merf, "add_gaussian", spied)
    for shape in ({}, {"image_shape": (8, 8)}):
        with seeded_noise(5, quiet=True):
            synth = DPMERFSynthesizer(3.0, **common, **shape).fit(X, y)
        events = synth.accountant_.report()[["release", "mechanism", "noise_multiplier", "count"]].to_dict("records")
        seen.append((events, synth.row_count_, synth.class_ratio_.tolist()))
    assert seen[0] == seen[1]
    np.testing.assert_array_equal(*released)


@pytest.mark.parametrize("image_shape", [(8, 8), (8, 8, 1)])
def test_images_of_a_convolutional_generator_train_a_classifier(image_shape, tmp_path):
    X, y = load_digits(return_X_y=True)
    common = {"bounds": (0, 16), "l2_bound": 4.5, "classes": range(10), "image_shape": image_shape, "random_state": 0}
    synth = DPMERFSynthesizer(np.inf, steps=150, n_frequencies=150, **common).fit(X[:1200], y[:1200])
    model = {"linear": LogisticRegression(max_iter=3000)}
    drawn = synth.sample(1000, random_state=0)
    assert tstr_score(drawn, (X[1200:], y[1200:]), classifiers=model) > 0.6
    assert (drawn[0].min() >= 0) & (drawn[0].max() <= 16)
    synth.save(tmp_path / "model.safetensors")
    again = skdpgen.load(tmp_path / "model.safetensors").sample(1000, random_state=0)
    for one, other in zip(drawn, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("shape", "steps"), [({}, 1000), ({"image_shape": (1, 2)}, 4000)])
def test_generators_of_images_are_trained_for_longer(monkeypatch, rng, shape, steps):
    seen = []
    monkeypatch.setattr(_dp_merf, "_descend", lambda *arguments: seen.append(arguments[4].steps))
    quietly(lambda: DPMERFSynthesizer(5.0, bounds=(0, 1), **shape).fit(rng.random((50, 2))))
    assert seen == [steps]


@pytest.mark.parametrize("side", [10, 32])
def test_dark_images_are_found(rng, side):
    """Images in the middle of their range are many length scales from those with few bright pixels."""
    X = np.zeros((3000, side * side))
    X[np.arange(3000)[:, None], rng.integers(0, side * side, (3000, 4))] = rng.uniform(0.3, 0.8, (3000, 4))
    options = {"bounds": (0, 1), "l2_bound": 2.0, "image_shape": (side, side), "steps": 200, "n_frequencies": 100}
    with seeded_noise(0, quiet=True):
        synth = DPMERFSynthesizer(10.0, random_state=0, **options).fit(X)
    drawn = synth.sample(500, random_state=0)
    assert np.linalg.norm(drawn, axis=1).mean() < 3 * np.linalg.norm(X, axis=1).mean()


def test_images_without_classes_are_made():
    X = load_digits().data
    synth = quietly(lambda: DPMERFSynthesizer(5.0, bounds=(0, 16), image_shape=(8, 8), steps=3, n_frequencies=8).fit(X))
    assert synth.sample(7).shape == (7, 64)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"image_shape": (1, 8_192), "n_components": 60_000}, "n_components"),
        ({"hidden_layer_sizes": (65_536,)}, "hidden_layer_sizes"),
        ({"n_frequencies": 65_536}, "n_frequencies"),
        ({"n_frequencies": 65_536, "image_shape": (1, 8_192)}, "n_frequencies"),
    ],
)
def test_features_and_generators_beyond_memory_are_refused_before_the_charge(parameters, match):
    books = skdpgen.PrivacyAccountant(10.0)
    with pytest.raises(ValueError, match=match):
        DPMERFSynthesizer(accountant=books, bounds=(0, 1), **parameters).fit(np.zeros((5, 8_192)))
    assert not books.charges


FITTED = ["images, embedding", "arrays, embedding", "arrays, embedding, replace_one", "frame, embedding"]


@pytest.mark.parametrize("name", FITTED)
def test_every_release_was_charged_and_nothing_private_is_kept(name):
    ledger_is_what_ran(name)
    nothing_private_is_kept(name)


def test_the_row_count_and_rare_categories_are_hidden_and_a_refused_fit_releases_nothing():
    the_row_count_is_hidden("arrays, embedding")
    a_category_of_one_record_is_not_told("frame, embedding")
    a_refused_fit_releases_nothing("arrays, embedding")


def test_a_model_file_samples_as_the_fit_does(rng, tmp_path):
    X, y = np.tanh(rng.normal(size=(300, 3))), rng.integers(0, 2, 300)
    for data in ((X, y), (X,), (pd.DataFrame({"n": X[:, 0], "c": y.astype(str)}),)):
        synth = quietly(lambda data=data: DPMERFSynthesizer(30.0, **FAST).fit(*data))
        synth.save(tmp_path / "model.safetensors")
        again = skdpgen.load(tmp_path / "model.safetensors")
        one, other = (model.sample(50, random_state=1) for model in (synth, again))
        for a, b in zip(one, other) if isinstance(one, tuple) else [(one, other)]:
            if isinstance(a, pd.DataFrame):
                pd.testing.assert_frame_equal(a, b)
            else:
                np.testing.assert_array_equal(a, b)


def test_classes_asked_for_are_drawn_and_numbers_of_y_come_back(rng):
    X = np.tanh(rng.normal(size=(300, 3)))
    synth = quietly(lambda: DPMERFSynthesizer(30.0, classes=[0, 1], **FAST).fit(X, rng.integers(0, 2, 300)))
    _, y = synth.sample(y=[0, 1, 1])
    assert y.tolist() == [0, 1, 1]
    assert synth.sample(200, class_ratio=[1, 0])[1].max() == 0
    number = quietly(lambda: DPMERFSynthesizer(30.0, **FAST).fit(X, X[:, 0])).sample(20)[1]
    assert number.dtype == np.float64
    assert len(np.unique(number)) > 2


@pytest.mark.parametrize(
    ("parameters", "error", "match"),
    [
        ({"hidden_layer_sizes": (0,)}, ValueError, "whole numbers from 1"),
        ({"budget_split": {"bounds": 0.999}}, ValueError, "leaves nothing"),
        ({"schema": Schema([Categorical("a", ("b",))])}, InvalidInputError, "for DataFrames"),
        ({"n_frequencies": 0}, ValueError, "n_frequencies"),
        ({"image_shape": (2, 2)}, InvalidInputError, "does not fit rows of 2 values"),
        ({"image_shape": (1, 2), "hidden_layer_sizes": (5,)}, ValueError, "used only with image_shape=None"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_the_charge(rng, parameters, error, match):
    books = skdpgen.PrivacyAccountant(10.0)
    with pytest.raises(error, match=match):
        DPMERFSynthesizer(accountant=books, **parameters).fit(rng.random((50, 2)))
    assert not books.charges


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_frequencies", 9),
        ("length_scale", 2.0),
        ("n_components", 3),
        ("hidden_layer_sizes", ()),
        ("steps", 1),
        ("learning_rate", 0.1),
    ],
)
def test_no_parameter_of_the_generator_is_inert(rng, name, value):
    X = np.tanh(rng.normal(size=(100, 2)))
    common = {"epsilon": np.inf, "bounds": (-1, 1), "l2_bound": 1.4, "random_state": 0, **FAST}
    one, other = (
        DPMERFSynthesizer(**{**common, **changed}).fit(X).sample(20, random_state=0) for changed in ({}, {name: value})
    )
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("sizes", [(200, 200), [200, 200], np.array([200, 200])])
def test_the_default_sizes_are_no_contradiction_to_images_however_they_are_written(rng, sizes):
    X = rng.random((50, 64))
    plan = DPMERFSynthesizer(bounds=(0, 1), image_shape=(8, 8), hidden_layer_sizes=sizes).plan(X)
    assert plan.noise_multipliers["embedding"] > 0
    with pytest.raises(ValueError, match="used only with image_shape=None"):
        DPMERFSynthesizer(bounds=(0, 1), image_shape=(8, 8), hidden_layer_sizes=[*sizes, 200]).plan(X)


def test_numbers_of_y_are_refused_beside_images(rng):
    books = skdpgen.PrivacyAccountant(10.0)
    with pytest.raises(InvalidInputError, match="y must be classes"):
        DPMERFSynthesizer(accountant=books, image_shape=(1, 2)).fit(rng.random((50, 2)), rng.random(50))
    assert not books.charges


SENSITIVITY = [Claim(embedding_sensitivity_is_attained_and_not_exceeded, relation) for relation in RELATIONS]
LEDGER = [Claim(ledger_is_what_ran, name) for name in FITTED]
KEPT = [Claim(nothing_private_is_kept, "arrays, embedding")]
HIDDEN = [Claim(the_row_count_is_hidden, "arrays, embedding")]
FIT = _dp_merf.fit_merf_model
# (sabotage, claims that catch it, (function, (old, new)))
MUTANTS = [
    (
        "a sensitivity without the count",
        SENSITIVITY,
        (embedding_sum, ("class_first_moments($rest)", "_cheaper($rest)")),
    ),
    (
        "features that are too short",
        SENSITIVITY,
        (
            RandomFeatures.__call__,
            (
                "np.concatenate([np.cos($angles), np.sin($angles)], axis=1) / $angles.shape[1] ** 0.5",
                "np.concatenate([np.cos($angles), np.sin($angles)], axis=1) / $angles.shape[1] ** 0.5 / 2",
            ),
        ),
    ),
    (
        "angles that hang on the order of additions",
        [Claim(test_scaling_blocks.test_angles_of_an_embedding_do_not_depend_on_the_order_of_additions)],
        (RandomFeatures.__call__, ("exact_product($1, self.frequencies)", "$1 @ self.frequencies")),
    ),
    (
        "an embedding that was not paid",
        LEDGER,
        (
            FIT,
            before(
                "$released = add_gaussian($query, $noise, $rng, $neighboring)",
                "add_gaussian($query, 9.0, $rng, $neighboring)",
            ),
        ),
    ),
    (
        "less noise than charged",
        LEDGER,
        (
            FIT,
            (
                "add_gaussian($bounded, $noise['embedding'], $rest)",
                "add_gaussian($bounded, $noise['embedding'] / 2, $rest)",
            ),
        ),
    ),
    ("the exact number of rows", HIDDEN, (FIT, ("$fit.sample_size($rows, $counts.sum())", "float(len($rows))"))),
    (
        "rows are kept",
        KEPT,
        (
            FIT,
            before(
                "$layers = _fit_generator($shares, $features, $codec, $rest)", "$codec.scaling.__dict__['rows'] = $1.X"
            ),
        ),
    ),
]


def _cheaper(*arguments, **options):
    return replace(class_first_moments(*arguments, **options), add_or_remove_one=1.0, replace_one=2**0.5)


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_dp_merf_is_caught(monkeypatch, mutant):
    monkeypatch.setattr(_dp_merf, "_cheaper", _cheaper, raising=False)
    assert_caught(monkeypatch, *mutant[1:])


@pytest.mark.parametrize("bounds", [(-10, 1), (-1, 10), (-10, 10), (0, 30)])
def test_rows_in_a_corner_of_wide_bounds_are_found_from_every_start(bounds, rng):
    X = np.clip(0.2 * rng.normal(size=(3000, 12)), *bounds)
    for seed in range(3):
        with seeded_noise(seed, quiet=True):
            synth = DPMERFSynthesizer(50.0, bounds=bounds, steps=100, random_state=seed).fit(X)
        assert np.abs(synth.sample(500)).mean() == pytest.approx(np.abs(X).mean(), rel=0.5)
