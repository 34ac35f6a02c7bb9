"""DP2-VAE as an estimator: what comes out, what is charged, what is refused, and that encoders are gone."""

from __future__ import annotations

import gc
import logging
import pickle
import tempfile

import numpy as np
import pandas as pd
import pytest
import torch
from _flat import make_flat
from _short_fits import short_postprocessing
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

from skdpgen import DP2VAESynthesizer, P3GMSynthesizer, PrivacyAccountant, SubsetSGD, load
from skdpgen.accounting import describe_event, epsilon_pld
from skdpgen.exceptions import BudgetExceededError, InvalidInputError, UtilityWarning
from skdpgen.generators import leading as leading_module
from skdpgen.generators.leading import LeadingDirections
from skdpgen.nn import _dp2vae
from skdpgen.nn._dp2vae_training import EncoderStack, SubsetRows
from skdpgen.synthesizers import _dp2vae as _dp2vae_estimator
from skdpgen.synthesizers import _dp2vae_model

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

X, Y = load_digits(return_X_y=True)
SMALL = {"n_subsets": 20, "pretrain_steps": 2, "steps": 3, "n_components": 2, "random_state": 0}
IMAGES = {
    **SMALL,
    "bounds": (0, 16),
    "classes": range(10),
    "image_shape": (8, 8),
    "l2_bound": 8.0,
    "warm_start_steps": 5,
}


def _frame(n=300):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"size": rng.normal(size=n), "kind": rng.choice(["a", "b", "c"], n), "old": rng.random(n) < 0.5}
    )
    return frame.assign(person=rng.permutation(10**6)[:n])


class _Own(nn.Module):
    """A network of one's own."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, n_out))

    def forward(self, x, label):
        return self.body(torch.cat([x, label], dim=-1))


def test_images_and_their_classes_come_back():
    fitted = make_flat(DP2VAESynthesizer, 3.0, **IMAGES).fit(X, Y)
    images, labels = fitted.sample(30, random_state=0)
    assert images.shape == (30, 64)
    assert images.min() >= 0
    assert images.max() <= 16
    assert labels.dtype == Y.dtype
    again = fitted.sample(30, random_state=0)
    np.testing.assert_array_equal(images, again[0])
    assert not np.array_equal(fitted.sample(30)[0], fitted.sample(30)[0])
    np.testing.assert_array_equal(fitted.sample(y=[3, 3, 8])[1], [3, 3, 8])
    assert set(fitted.sample(20, class_ratio={2: 1.0})[1]) == {2}
    assert len(fitted.sample()[0]) == round(fitted.row_count_)
    assert fitted.score(X, Y) > fitted.score(X[:, ::-1].copy(), Y) - 1e3
    assert not hasattr(fitted, "transform")


def test_tables_come_back_with_their_columns():
    frame = _frame()
    for parameters, target in (({"warm_start_steps": 0}, "kind"), ({"warm_start_steps": 5}, None)):
        fitted = make_flat(DP2VAESynthesizer, 3.0, **SMALL, target=target, id_column="person", **parameters).fit(frame)
        drawn = fitted.sample(40)
        assert list(drawn.columns) == ["size", "kind", "old"]
        assert set(drawn["kind"].dropna()) <= {"a", "b", "c", "other"}
        assert drawn["old"].dtype == bool
        assert np.isfinite(fitted.score(frame))
    images, labels = (
        make_flat(DP2VAESynthesizer, 3.0, **SMALL, warm_start_steps=5)
        .fit(frame.drop(columns="person"), Y[:300])
        .sample(5)
    )
    assert len(images) == len(labels) == 5


def test_a_numeric_y_is_a_column_of_the_model_and_rows_without_y_are_rows():
    x = X[:, 10:20]
    rows, numbers = make_flat(DP2VAESynthesizer, 3.0, **SMALL, warm_start_steps=5).fit(x, Y.astype(float)).sample(20)
    assert rows.shape == (20, 10)
    assert numbers.dtype == float
    assert (
        make_flat(DP2VAESynthesizer, 3.0, **SMALL, warm_start_steps=0, neighboring="replace_one").fit(x).sample().shape
        == x.shape
    )


@pytest.mark.parametrize(
    ("sampler", "update", "mechanism"),
    [
        ("poisson", "stateless", "poisson_subsets"),
        ("poisson", "on_query", "index_revealed"),
        ("one_of_k", "round_robin", "one_of_k"),
        ("balanced", "on_query", "gaussian"),
        ("one_of_k", "on_query", "index_revealed"),
        ("poisson", "frozen", "poisson_subsets"),
    ],
)
def test_every_policy_costs_exactly_what_was_asked_by_its_own_event(sampler, update, mechanism):
    model = make_flat(
        DP2VAESynthesizer, 2.0, **SMALL, sampler=sampler, encoder_update=update, warm_start_steps=0, bounds=(0, 16)
    )
    planned = model.plan(X)
    fitted = model.fit(X)
    rows = describe_event(fitted.accountant_.charges[0].event)
    assert [row["mechanism"] for row in rows] == ["gaussian", mechanism]
    assert fitted.card_["fit"]["epsilon"] == pytest.approx(epsilon_pld(planned, 1e-5, "add_or_remove_one"))
    assert 0.995 * 2.0 <= fitted.card_.verify()["fit"]["epsilon"] <= 2.0
    assert len(fitted.card_["sampler"]) == len({row["mechanism"] for row in rows})


def test_fewer_releases_where_more_is_declared():
    parameters = {**SMALL, "warm_start_steps": 0, "bounds": (0, 16)}
    labels = make_flat(DP2VAESynthesizer, **parameters).plan(X).label
    assert labels.endswith(": counts, decoder")
    public = make_flat(DP2VAESynthesizer, **parameters, neighboring="replace_one").plan(X).label
    assert public.endswith(": decoder")
    started = make_flat(DP2VAESynthesizer, **{**IMAGES, "image_shape": None}).plan(X, Y).label
    assert started.endswith(": mean, norm, moments, decoder")


def test_latents_are_the_widest_directions_of_the_rows_drawn_from_them():
    released = P3GMSynthesizer(20.0, bounds=(0, 16), classes=range(10)).fit(X, Y).model_
    components = np.arange(4000) % 10
    leading = LeadingDirections.of(released.generator, 6)
    x, latents, drawn = leading.sample(components, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn // released.generator.per_class, components)
    assert x.shape == (4000, 64)
    assert latents.shape == (4000, 6)
    np.testing.assert_allclose(latents.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(np.cov(latents.T), np.eye(6), atol=0.12)
    rows = np.concatenate([x[components == k] - x[components == k].mean(axis=0) for k in range(10)])
    z = np.concatenate([latents[components == k] for k in range(10)])
    told = [np.square((rows * z[:, [j]]).mean(axis=0)).sum() for j in range(6)]
    assert told[0] > told[2] > told[5]
    drawn = released.generator.sample(components, np.random.default_rng(1))
    np.testing.assert_allclose(x.mean(axis=0), drawn.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(x.var(axis=0), drawn.var(axis=0), atol=0.03)
    more = LeadingDirections.of(released.generator, 99).sample(components[:20], np.random.default_rng(0))
    assert more[1].shape == (20, 99)
    np.testing.assert_allclose(more[0], np.clip(more[0], *released.codec.box))


def test_a_start_from_moments_draws_digits_that_a_random_start_cannot():
    model = make_flat(
        DP2VAESynthesizer,
        30.0,
        **{**IMAGES, "n_components": 8, "warm_start_steps": 400, "steps": 1, "learning_rate": 1e-6},
    )
    images, labels = model.fit(X, Y).sample(1000)
    score = LogisticRegression(max_iter=300).fit(images / 16, labels).score(X / 16, Y)
    random = make_flat(
        DP2VAESynthesizer, 30.0, **SMALL, bounds=(0, 16), classes=range(10), image_shape=(8, 8), warm_start_steps=0
    )
    images, labels = random.fit(X, Y).sample(1000)
    assert score > 0.75 > LogisticRegression(max_iter=300).fit(images / 16, labels).score(X / 16, Y)


# ---- images: a network shifts the means of released Gaussians -----------------------------------------------------
LARGE = np.kron(X.reshape(-1, 8, 8), np.ones((1, 2, 2))).reshape(len(X), -1)
PUBLIC_LARGE = {"bounds": (0, 16), "classes": range(10), "image_shape": (16, 16), "l2_bound": 16.0}


def _large(epsilon=10.0, **parameters):
    return make_flat(DP2VAESynthesizer, epsilon, **{**SMALL, **PUBLIC_LARGE, "warm_start_steps": 5, **parameters})


def _quick(epsilon=10.0, **parameters):
    """Such a fit, with little post-processing."""
    with short_postprocessing():
        return _large(epsilon, **parameters).fit(LARGE, Y)


def _shift_of_nothing(model):
    """The model as it was before stage 2: its network adds nothing."""
    with torch.no_grad():
        for p in model.decoder.network.parameters():
            p.zero_()
    return model


@pytest.mark.parametrize(
    ("parameters", "labels"),
    [
        ({}, "mean, norm, moments, greys, cells, features, decoder"),
        ({"epsilon": 0.3}, "mean, norm, moments, greys, features, decoder"),
        ({"budget_split": {"moments": 1, "decoder": 1}}, "mean, norm, moments, greys, cells, decoder"),
        ({"architecture": (_Own(256 + 10, 4), "auto")}, "mean, norm, moments, greys, features, decoder"),
        ({"architecture": ("auto", _Own(2 + 10, 256))}, "mean, norm, moments, greys, decoder"),
        ({"warm_start_steps": 0, "l2_bound": None}, "counts, decoder"),
    ],
)
@pytest.mark.usefixtures("short_fits")
def test_images_release_what_their_decoder_needs(parameters, labels):
    model = _large(**parameters)
    planned = model.plan(LARGE, Y)
    assert planned.label.endswith(f": {labels}")
    fitted = model.fit(LARGE, Y)
    assert fitted.accountant_.charges[0].label == planned.label
    assert fitted.card_.verify()["fit"]["epsilon"] <= model.epsilon
    assert (fitted.model_.leading is None) == ("features" not in labels and "cells" not in labels)
    images, digits = fitted.sample(30)
    assert images.shape == (30, 256)
    assert np.isfinite(fitted.score(LARGE[:40], Y[:40]))
    assert np.isfinite(fitted.score(LARGE[:40]))
    assert set(digits) <= set(range(10))


def test_stage_2_begins_with_the_released_gaussians():
    fitted = _large(budget_split={"moments": 1, "decoder": 1}).fit(LARGE, Y)
    model = _shift_of_nothing(fitted.model_)
    drawn = model.draw(np.arange(3000) % 10, np.random.default_rng(0))
    released = model.leading.generator.sample(np.arange(3000) % 10, np.random.default_rng(1))
    width = np.maximum(np.ptp(released, axis=0), 1e-9)
    assert np.abs(drawn.mean(axis=0) - released.mean(axis=0)).max() < 0.15 * width.max()
    np.testing.assert_allclose(drawn.var(axis=0).sum(), released.var(axis=0).sum(), rtol=0.1)


def test_the_output_of_the_decoder_is_the_mean_of_what_is_drawn_given_the_latents():
    model = _large(epsilon=1000.0, budget_split={"moments": 1, "decoder": 1}).fit(LARGE, Y).model_
    generator = model.leading.generator
    generator.cleaned, generator.dither = None, np.zeros_like(generator.dither)
    (model.decoder,) = _dp2vae_model.released_decoders(model.leading, model.decoder.network)
    with torch.no_grad():
        for p in model.decoder.network.parameters():
            p.uniform_(-0.2, 0.2)
    (low, high), k = model.codec.box, 7
    latent = np.array([[0.5, -1.0]], dtype=np.float32)
    many = LeadingDirections(generator, model.leading.directions)
    fixed = np.repeat(latent, 20_000, axis=0)

    class Same:
        """Latents that are all the same, and chance for the rest."""

        rng, first = np.random.default_rng(0), True

        def standard_normal(self, shape):
            found = self.rng.standard_normal(shape)
            if self.first:
                found, self.first = fixed.astype(np.float64), False
            return found

        def random(self, n):
            return np.full(n, 0.0)  # the first component of the class

    drawn, _, components = many.sample(np.full(len(fixed), k), Same(), model._shift)
    assert set(components) == {k * generator.per_class}
    mean = ((drawn - low) / (high - low)).mean(axis=0)
    output = 1 / (1 + np.exp(-model._decode(latent, components[:1])[0].astype(np.float64)))
    np.testing.assert_allclose(output, 0.01 + 0.98 * mean, atol=0.02)


def test_rows_get_the_component_whose_mean_is_nearest_whoever_else_is_there():
    fitted = _quick(epsilon=1000.0)
    leading, codec = fitted.model_.leading, fitted.model_.codec
    low, high = codec.box
    x = ((codec.scale(LARGE) - low) / (high - low)).astype(np.float32)
    classes = np.where(np.arange(len(Y)) % 50, Y, -1)
    found = leading.nearest(x, classes)
    each = leading.generator.per_class
    assert each > 1
    assert len(set(found)) > 10
    np.testing.assert_array_equal(np.where(found < 0, -1, found // each), classes)
    means = (leading.generator.component_means - low) / (high - low)
    gaps = np.square(x[:, None, :] - np.clip(means, 0, 1)[None]).sum(axis=2)
    known = classes >= 0
    own = gaps[np.arange(len(x))[:, None], np.maximum(classes, 0)[:, None] * each + np.arange(each)]
    np.testing.assert_allclose(gaps[np.arange(len(x)), found][known], own.min(axis=1)[known], atol=1e-3)
    order = np.random.default_rng(0).permutation(len(x))[:501]
    np.testing.assert_array_equal(leading.nearest(x[order], classes[order]), found[order])


def test_images_of_several_gaussians_a_class_come_back_from_a_file(tmp_path):
    fitted = _quick(epsilon=1000.0)
    assert fitted.model_.leading.generator.per_class > 1
    fitted.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    for one, other in zip(fitted.sample(20, random_state=0), again.sample(20, random_state=0)):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(again.score(LARGE[:30], Y[:30]), fitted.score(LARGE[:30], Y[:30]))
    state = fitted.model_.to_state()
    for name, value in (
        ("directions", state["directions"][:, :, :1]),
        ("directions", np.full_like(state["directions"], np.nan)),
        ("directions", state["directions"] * 1e12),
        ("generator_kind", "net"),
        ("n_latent", 3),
        ("n_latent", 2.0),
        ("likelihood", "gaussian"),
        ("description", {**state["description"], "n_classes": 10}),
    ):
        with pytest.raises(ValueError):  # noqa: PT011  whatever it says
            _dp2vae_model.DP2VAEModel.from_state({**state, name: value})


def test_a_small_file_cannot_ask_for_large_gaussians(monkeypatch):
    state = _quick().model_.to_state()
    monkeypatch.setattr(leading_module, "MOST_SLOPES", 1000)
    with pytest.raises(ValueError, match="too large"):
        _dp2vae_model.DP2VAEModel.from_state(state)


def test_what_the_gaussians_need_of_memory_is_checked_before_the_charge():
    accountant = PrivacyAccountant(5.0)
    model = _large(epsilon=1.0, accountant=accountant, n_components=2000, n_subsets=2, max_memory=0.1)
    with pytest.raises(ValueError, match="lower n_components"):
        model.fit(LARGE, Y)
    assert not accountant.charges


def test_sub_clusters_count_for_memory_where_they_are_released_alone():
    few, many = (_large(epsilon=epsilon)._prepare(LARGE, Y, PrivacyAccountant(epsilon)) for epsilon in (0.3, 100.0))
    assert few[0][1].chunks[0] > many[0][1].chunks[0]
    assert "cells" in many[1].noise_multipliers
    assert "cells" not in few[1].noise_multipliers


# ---- encoders are gone --------------------------------------------------------------------------------------------
def nothing_of_an_encoder_is_left(monkeypatch, tmp_path, caplog, **parameters):
    """No object, attribute, pickle, release file, log or temporary file holds one encoder's parameters."""
    seen, pretrain = [], _dp2vae_model_pretrain()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def spy(*args, **options):
        trained = pretrain(*args, **options)
        seen.extend(t.numpy().copy() for t in trained)
        return trained

    monkeypatch.setattr("skdpgen.nn._dp2vae_training.pretrain_encoders", spy)
    with caplog.at_level(logging.DEBUG):
        fitted = make_flat(DP2VAESynthesizer, 3.0, **{**IMAGES, **parameters}).fit(X, Y)
    gc.collect()
    assert not [type(o) for o in gc.get_objects() if type(o) in (EncoderStack, SubsetRows)]
    own = {id(s) for s in seen}
    shapes = {s.shape for s in seen}
    kept = [o for o in gc.get_objects() if type(o) is torch.Tensor and tuple(o.shape) in shapes]
    kept += [o for o in gc.get_objects() if type(o) is np.ndarray and o.shape in shapes and id(o) not in own]
    assert not kept
    fitted.save(tmp_path / "model.safetensors")
    content = [pickle.dumps(fitted), caplog.text.encode()]
    content += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    needles = [s[k].tobytes()[:64] for s in seen for k in (0, len(s) - 1)]
    assert not [needle for needle in needles for held in content if len(needle) >= 16 and needle in held]


def _dp2vae_model_pretrain():
    from skdpgen.nn import _dp2vae_training

    return _dp2vae_training.pretrain_encoders


@pytest.mark.parametrize("update", ["stateless", "round_robin"])
def test_nothing_of_an_encoder_is_left(monkeypatch, tmp_path, caplog, update):
    nothing_of_an_encoder_is_left(monkeypatch, tmp_path, caplog, encoder_update=update)


def test_a_search_for_encoders_finds_one_that_was_kept(monkeypatch, tmp_path, caplog):
    """The sabotaged twin: the encoders outlive the training."""
    kept, init = [], EncoderStack.__init__

    def keeps(self, encoder, parameters, *rest, **options):
        kept.extend(parameters)
        init(self, encoder, parameters, *rest, **options)

    monkeypatch.setattr(EncoderStack, "__init__", keeps)
    with pytest.raises(AssertionError):
        nothing_of_an_encoder_is_left(monkeypatch, tmp_path, caplog)


def test_a_saved_model_samples_the_same(tmp_path):
    for fitted in (
        make_flat(DP2VAESynthesizer, 3.0, **IMAGES).fit(X, Y),
        make_flat(DP2VAESynthesizer, 3.0, **SMALL, warm_start_steps=0).fit(X[:, 10:20]),
    ):
        fitted.save(tmp_path / "m.safetensors")
        for one, other in zip(
            np.atleast_2d(load(tmp_path / "m.safetensors").sample(9, random_state=1)[0]),
            np.atleast_2d(fitted.sample(9, random_state=1)[0]),
        ):
            np.testing.assert_array_equal(one, other)
    frame = _frame().drop(columns="person")
    fitted = make_flat(DP2VAESynthesizer, 3.0, **SMALL, warm_start_steps=0, target="kind").fit(frame)
    fitted.save(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(
        load(tmp_path / "m.safetensors").sample(9, random_state=1), fitted.sample(9, random_state=1)
    )


# ---- networks of one's own ----------------------------------------------------------------------------------------
def test_networks_of_ones_own_are_copied_and_cannot_be_saved(tmp_path):
    encoder, decoder = _Own(64 + 10, 4), _Own(2 + 10, 64)
    before = [p.detach().clone() for net in (encoder, decoder) for p in net.parameters()]
    fitted = make_flat(DP2VAESynthesizer, 3.0, **IMAGES, architecture=(encoder, decoder)).fit(X, Y)
    after = [p for net in (encoder, decoder) for p in net.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after))
    assert fitted.sample(5)[0].shape == (5, 64)
    with pytest.raises(ValueError, match="files hold no code"):
        fitted.save(tmp_path / "m.safetensors")


# ---- refused before the charge ------------------------------------------------------------------------------------
SHARED = _Own(3, 3)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"subsets_per_step": 21}, "more than"),
        ({"sampler": "one_of_k", "subsets_per_step": 2}, "no sound cost"),
        ({"budget_split": {"moments": 1, "decoder": 0}}, "positive shares"),
        ({"budget_split": {"moments": 1, "features": 1e-9, "decoder": 1}}, "a millionth"),
        ({"budget_split": {"features": 1}, "warm_start_steps": 0}, "used only with warm_start_steps"),
        ({"budget_split": {"moments": 1, "features": 1, "decoder": 1}, "image_shape": None}, "give image_shape="),
        (
            {
                "budget_split": {"moments": 1, "features": 1, "decoder": 1},
                "architecture": ("auto", _Own(2 + 10, 64)),
            },
            "not your own decoder",
        ),
        ({"architecture": ("auto", nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64)))}, "GroupNorm"),
        ({"architecture": (SHARED, SHARED)}, "common to all encoders"),
        ({"architecture": ("auto", _Own(2 + 10, 7))}, "must give 64 numbers"),
        ({"architecture": (_Own(5, 4), "auto")}, "does not take rows"),
        ({"architecture": (_Own(74, 4), "dense")}, "must be one of"),
        ({"architecture": ("mlp", "patches")}, "two names"),
        ({"architecture": (_Own(74, 4),)}, "a pair"),
        ({"architecture": (None, np.ones(2))}, "a pair"),
        ({"l2_bound": 8.0, "warm_start_steps": 0}, "l2_bound= is used only with"),
        ({"n_subsets": 10**9}, "'n_subsets' parameter"),
        ({"max_memory": 1e-9}, "max_memory"),
        ({"device": "nowhere"}, "cannot be used"),
        ({"preset": "paper/letters"}, "preset must be"),
        ({"preset": "paper/mnist"}, "leave out"),
        ({"architecture": "conv_28", "image_shape": None}, "give image_shape"),
        ({"likelihood": "gaussian"}, "one number a pixel"),
        ({"id_column": 99}, "not a column"),
        ({"bounds": (0, 1), "on_invalid": "raise"}, "outside"),
    ],
)
def test_bad_combinations_are_refused_before_anything_is_charged(parameters, told):
    accountant = PrivacyAccountant(5.0)
    model = make_flat(DP2VAESynthesizer, 1.0, **{**IMAGES, **parameters}, accountant=accountant)
    with pytest.raises(ValueError, match=told):
        model.fit(X, Y)
    assert not accountant.charges
    assert not hasattr(model, "accountant_")


def test_stage_2_takes_fewer_subsets_at_once_where_its_decoder_is_the_larger_one():
    model = make_flat(DP2VAESynthesizer, 3.0, **IMAGES)
    chunks = model.set_params(training__max_memory=0.01)._prepare(X, Y, PrivacyAccountant(3.0))[0][1].chunks
    assert chunks[0] > chunks[1] >= 1


def test_ids_that_are_row_numbers_are_refused():
    frame = _frame().assign(person=np.arange(300))
    with pytest.raises(InvalidInputError, match="row numbers"):
        make_flat(DP2VAESynthesizer, **SMALL, warm_start_steps=0, id_column="person").fit(frame)


def test_a_fit_over_budget_trains_nothing(monkeypatch):
    monkeypatch.setattr(_dp2vae_model, "_train", None)
    accountant = PrivacyAccountant(0.5)
    with pytest.raises(BudgetExceededError):
        make_flat(DP2VAESynthesizer, 1.0, **IMAGES, accountant=accountant).fit(X, Y)


def test_empty_subsets_and_classes_that_most_lack_are_told_from_released_counts():
    with pytest.warns(UtilityWarning, match="are empty"):
        make_flat(DP2VAESynthesizer, 3.0, **{**IMAGES, "n_subsets": 3000}).fit(X[:300], Y[:300])
    rare = np.where(np.arange(len(Y)) < 6, 1, 0)
    with pytest.warns(UtilityWarning, match="no row of the classes 1"):
        make_flat(DP2VAESynthesizer, 50.0, **SMALL, warm_start_steps=0, bounds=(0, 16), classes=range(2)).fit(X, rare)


def test_the_papers_presets_are_priced_as_what_they_are():
    model = DP2VAESynthesizer(
        10.0, preset="paper/mnist", bounds=(0, 255), image_shape=(28, 28), training=SubsetSGD(max_memory=50.0)
    )
    plan = model.plan(np.zeros((50, 784)), np.arange(50) % 10)
    rows = {row["mechanism"]: row for row in describe_event(plan.event)}
    assert rows["index_revealed"]["count"] == 20_000
    assert rows["index_revealed"]["sampling_rate"] == 1 / 2500
    # noise over 2 C: that of the table, 3.44 C at 20,000 steps, a little more for the counts of the classes
    assert 1.72 <= rows["index_revealed"]["noise_multiplier"] <= 1.78


@pytest.mark.parametrize("preset", ["paper/fashion_mnist", "paper/celeba"])
def test_the_papers_presets_fit_images_of_their_kind(preset, monkeypatch):
    """All but their sizes: few subsets and steps, narrow layers."""
    small = {**_dp2vae_estimator.PRESETS[preset], "n_subsets": 5, "steps": 2}
    monkeypatch.setitem(_dp2vae_estimator.PRESETS, preset, small)
    monkeypatch.setattr(_dp2vae, "_CHANNELS", {"conv_28": (6, 4), "conv_faces": (6, 4, 4)})
    shape = (12, 12, 3) if preset == "paper/celeba" else (12, 12)
    x = np.random.default_rng(0).integers(0, 256, (60, int(np.prod(shape))))
    y = np.arange(60) % 2
    model = DP2VAESynthesizer(
        10.0, preset=preset, bounds=(0, 255), image_shape=shape, classes=range(2), training=SubsetSGD(pretrain_steps=2)
    )
    images, labels = model.fit(x, y).sample(7)
    assert images.shape == (7, x.shape[1])
    assert model.model_.n_latent == (16 if preset == "paper/celeba" else 8)
    assert set(labels) <= {0, 1}
