"""The image protocol: the judge learns, its result depends on its seed alone, one row comes per seed."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from benchmarks import images as image_room
from benchmarks import strict_judge
from benchmarks.images import fit_cnn, judge_accuracy, predict_cnn
from benchmarks.strict_judge import feature_figures, fit_resnet, resnet_features
from skdpgen import nn

DIGITS = {"image_shape": (8, 8), "batch_size": 64, "progress": False}


def _digits():
    X, y = load_digits(return_X_y=True)
    return X * 255 / 16, y


def test_cnn_learns_digits_and_names_their_own_labels():
    X, y = _digits()
    labels = y + 3  # compared by value, not by code
    assert judge_accuracy(X[:1200], labels[:1200], X[1200:], labels[1200:], epochs=6, **DIGITS) > 0.8


def test_the_strict_judge_learns_digits():
    X, y = _digits()
    accuracy = judge_accuracy(X[:1200], y[:1200], X[1200:], y[1200:], judge="strict", epochs=6, **DIGITS)
    assert accuracy > 0.9


def test_the_strict_judge_has_a_third_of_a_million_parameters_and_takes_a_last_part_of_one_image():
    X, y = _digits()
    net = fit_resnet(X[:65], y[:65], epochs=1, **DIGITS)
    assert 2.5e5 < sum(p.numel() for p in net.parameters()) < 3.5e5
    assert not net.training


def test_feature_figures_tell_copies_from_other_images_and_noise():
    X, y = _digits()
    net = fit_resnet(X[:600], y[:600], epochs=2, **DIGITS)
    features = resnet_features(net, image_shape=(8, 8))
    training, test, fresh = X[:600], X[600:1200], X[1200:1790]
    zeros = fresh[y[1200:1790] == 0]
    honest, copied, one_class, noise = (
        feature_figures(features, images, training, test)
        for images in (fresh, training, zeros, np.random.default_rng(0).uniform(0, 255, fresh.shape))
    )
    assert features(X[:3]).shape == (3, 64)
    assert 0.35 < honest["nearer_to_training"] < 0.65
    assert copied["nearer_to_training"] > 0.95
    assert honest["frechet"] < 0.2 * noise["frechet"]
    assert honest["precision"] > 0.5 > noise["precision"]
    assert honest["recall"] >= 0.5 > 0.3 > one_class["recall"]


@pytest.mark.parametrize("fit", [fit_cnn, fit_resnet])
def test_a_judge_depends_on_its_seed_alone(fit):
    import torch

    X, y = _digits()
    before = torch.get_rng_state()
    first, second = (predict_cnn(fit(X[:200], y[:200], epochs=1, **DIGITS), X, image_shape=(8, 8)) for _ in "ab")
    np.testing.assert_array_equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_cnn_refuses_images_of_another_shape():
    with pytest.raises(ValueError, match="28 x 28 pixels expected"):
        judge_accuracy(np.zeros((4, 64)), [0, 1, 0, 1], np.zeros((4, 64)), [0, 1, 0, 1], progress=False)


class _Resampler:
    """Stands in for a synthesizer: gives back what it saw."""

    def fit(self, X, y):
        self.seen_ = X, y
        return self

    def sample(self, n):
        X, y = self.seen_
        return X[:n], y[:n]


def test_image_benchmark_yields_one_row_per_seed(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, size=(60, 784), dtype=np.uint8), np.arange(60) % 10
    bunch = Bunch(data=X, target=y, data_test=X, target_test=y)
    monkeypatch.setattr(image_room, "_load", lambda dataset, data: bunch)
    asked = []

    def make(epsilon, delta, seed):
        asked.append((epsilon, delta, seed))
        return _Resampler()

    rows = list(image_room.image_benchmark("mnist", make, (3, 4), epsilon=2.0, n_samples=50, epochs=1, progress=False))
    assert asked == [(2.0, 1e-5, 3), (2.0, 1e-5, 4)]
    assert [row["seed"] for row in rows] == [3, 4]
    assert [row["epsilon_asked"] for row in rows] == [2.0, 2.0]
    assert all(0 <= row["accuracy"] <= 1 and row["epsilon"] is None and row["n_samples"] == 50 for row in rows)


def test_development_sees_training_images_alone_each_once(monkeypatch):
    X = np.zeros((60, 784), dtype=np.uint8)
    X[:, 0] = np.arange(60)
    bunch = Bunch(data=X, target=np.arange(60) % 10, data_test=None, target_test=None)
    monkeypatch.setattr(image_room, "_load", lambda dataset, data: bunch)
    tested = []
    monkeypatch.setattr(image_room, "judge_accuracy", lambda X, y, *test, **options: tested.append(test) or 0.5)
    made = []
    splits = []
    for seed in (3, 3, 4):
        (row,) = image_room.image_benchmark(
            "mnist", lambda *budget: made.append(_Resampler()) or made[-1], (seed,), development=True
        )
        assert row["development"]
        assert row["rows"] == 50
        fitted, held_out = made[-1].seen_[0][:, 0], tested[-1][0][:, 0]
        np.testing.assert_array_equal(np.sort([*fitted, *held_out]), np.arange(60))
        np.testing.assert_array_equal(tested[-1][1], held_out % 10)
        splits.append(tuple(held_out))
    assert splits[0] == splits[1] != splits[2]


def test_image_benchmark_judges_a_classifier_trained_by_dp_sgd(monkeypatch):
    monkeypatch.setattr(nn, "DPNetClassifier", functools.partial(nn.DPNetClassifier, steps=60))
    X, y = _digits()
    bunch = Bunch(data=X[:1200], target=y[:1200], data_test=X[1200:], target_test=y[1200:])
    monkeypatch.setattr(image_room, "_load", lambda dataset, data: bunch)
    (row,) = image_room.image_benchmark("mnist", ["DPNetClassifier"], (3,), epsilon=20.0)
    assert row["accuracy"] > 0.6
    assert 19.9 < row["epsilon"] <= 20.0 == row["epsilon_asked"]
    assert (row["model"], row["seed"], row["rows"]) == ("DPNetClassifier", 3, 1200)


@pytest.mark.parametrize("judge", ["paper", "strict"])
def test_image_benchmark_asks_the_judge_for_its_own_epochs(monkeypatch, judge):
    X, y = np.zeros((60, 784), dtype=np.uint8), np.arange(60) % 10
    bunch = Bunch(data=X, target=y, data_test=X, target_test=y)
    monkeypatch.setattr(image_room, "_load", lambda dataset, data: bunch)
    asked = []
    monkeypatch.setattr(image_room, "judge_accuracy", lambda *images, **options: asked.append(options) or 0.5)
    monkeypatch.setattr(strict_judge, "fit_resnet", lambda *images, **options: trained.append(options))
    monkeypatch.setattr(
        strict_judge, "resnet_features", lambda net: lambda images: images + np.arange(len(images))[:, None]
    )
    trained = []
    (row,) = image_room.image_benchmark("mnist", ["real data"], (3,), judge=judge)
    assert row["judge"] == asked[0]["judge"] == judge
    assert ("recall" in row) == (judge == "strict") == bool(trained)
    assert all(options["random_state"] == 0 for options in trained)
    assert "epochs" not in asked[0]
    with pytest.raises(ValueError, match="judge must be one of paper, strict"):
        next(image_room.image_benchmark("mnist", judge="lenient"))


def test_image_benchmark_refuses_an_unknown_dataset():
    with pytest.raises(ValueError, match="dataset must be one of"):
        next(image_room.image_benchmark("cifar"))
