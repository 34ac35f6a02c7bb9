"""P3GM of images with a network that shifts the means of the released Gaussians."""

from __future__ import annotations

import numpy as np
import pytest
from _flat import make_flat
from sklearn.datasets import load_digits

from skdpgen import LatentMixture, P3GMSynthesizer, PrivacyAccountant, load
from skdpgen.exceptions import InvalidInputError
from skdpgen.generators.leading import LeadingDirections
from skdpgen.generators.refined_images import RefinedImages
from skdpgen.generators.shifted_images import ShiftedImages
from skdpgen.nn import DPNet, ImageRefinementModule, P3GMModule, TableRefinementModule
from skdpgen.synthesizers import _p3gm_decoder
from skdpgen.synthesizers._released import NetGenerator

X, Y = load_digits(return_X_y=True)
QUICK = {
    "epsilon": 20.0, "decoder": "net", "bounds": (0, 16), "image_shape": (8, 8), "steps": 3, "sampling_rate": 0.5,
    "random_state": 0,
}  # fmt: skip
CLASSES = {**QUICK, "classes": range(10)}


def _net(**parameters):
    return DPNet(ImageRefinementModule, **parameters)


@pytest.fixture(scope="module")
def synth():
    return make_flat(P3GMSynthesizer, **CLASSES).fit(X, Y)


def test_a_network_of_images_shifts_released_gaussians_by_default(synth):
    assert isinstance(synth.model_.generator, ShiftedImages)
    synth.card_.verify()
    assert synth.card_["fit"]["epsilon"] == pytest.approx(20.0, rel=1e-3)
    assert "gradients" in synth.card_["noise"]
    assert synth.accountant_.report()["release"].tolist()[-1] == "decoder"
    rows, labels = synth.sample(200)
    assert rows.shape == (200, 64)
    assert set(labels) <= set(range(10))
    assert rows.min() >= 0
    assert rows.max() <= 16


@pytest.mark.parametrize("classes", [True, False])
def test_a_step_size_of_zero_gives_exactly_the_released_model(classes):
    y = (Y,) if classes else ()
    generator = make_flat(P3GMSynthesizer, **(CLASSES if classes else QUICK), net=_net(lr=0.0)).fit(X, *y)
    generator = generator.model_.generator
    assert generator.n_labels == (generator.leading.n_components if classes else 0)
    drawn = np.repeat(np.arange(10 if classes else 1), 5)
    released = generator.leading.sample(drawn, np.random.default_rng(1))[0]
    np.testing.assert_array_equal(generator.sample(drawn, np.random.default_rng(1)), released)


def test_the_network_adds_to_the_means(synth):
    generator, rng = synth.model_.generator, np.random.default_rng
    layers = [(weight, bias + 0.1) for weight, bias in generator.layers]
    other, classes = ShiftedImages(generator.leading, layers, generator.n_labels), np.repeat(np.arange(10), 200)
    gap = other.sample(classes, rng(0)).mean() - generator.sample(classes, rng(0)).mean()
    assert 0.02 < gap < 0.1 * generator.leading.generator.box.width.max()


def test_latents_of_rows_are_those_that_made_them():
    generator = make_flat(P3GMSynthesizer, 20.0, bounds=(0, 16), image_shape=(8, 8), classes=range(10)).fit(X, Y)
    generator = generator.model_.generator
    leading = LeadingDirections.of(generator, 5)
    components = np.repeat(np.arange(leading.n_components), 3)
    latents = np.random.default_rng(0).normal(size=(len(components), 5))
    along = np.einsum("nk,npk->np", latents, leading.directions[components])
    scaled = generator.space.decode(generator.mixture.means[components] + along)
    unit = generator.box.to_unit(scaled)
    # rows of a product are rounded to 2**-18, and narrow directions divide by little
    np.testing.assert_allclose(leading.encode(unit, components), latents, atol=1e-2)
    assert not leading.encode(unit, np.full(len(unit), -1)).any()
    whole = leading.encode(unit, components)
    for part in (slice(0, 1), slice(3, 11)):
        assert np.array_equal(leading.encode(unit[part], components[part]), whole[part])


@pytest.mark.usefixtures("short_fits")
def test_the_budget_of_a_network_beside_features():
    images = np.random.default_rng(0).integers(0, 256, (300, 256)).astype(float)
    y = np.arange(300) % 2
    settings = {"bounds": (0, 255), "l2_bound": 16.0, "image_shape": (16, 16), "classes": (0, 1)}
    settings |= {"decoder": "net", "steps": 3}
    for epsilon, cells in ((1.0, 0.0), (50.0, 0.225)):
        plan = make_flat(P3GMSynthesizer, epsilon, **settings).plan(images, y)
        shares = {phase.label: phase.share for phase in plan.phases}
        assert shares["features"] == pytest.approx(0.45)
        assert shares["decoder"] == pytest.approx(0.1)
        assert shares.get("cells", 0.0) == pytest.approx(cells)
        assert [phase.label for phase in plan.phases][-1] == "decoder"
    generator = make_flat(P3GMSynthesizer, 50.0, **settings, sampling_rate=0.2).fit(images, y).model_.generator
    assert isinstance(generator.leading.generator, RefinedImages)


def test_a_file_holds_the_whole_model(synth, tmp_path):
    synth.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    for one, other in zip(synth.sample(30, random_state=0), loaded.sample(30, random_state=0)):
        np.testing.assert_array_equal(one, other)
    assert loaded.score(X[:50]) == pytest.approx(synth.score(X[:50]))


def test_a_file_whose_network_does_not_fit_is_refused(synth):
    state = synth.model_.generator.to_state()
    for change in (
        {"n_labels": 0},
        {"n_labels": 3},
        {"layers": {"0": {"weight": np.ones((64, 3)), "bias": np.ones(64)}}},
    ):
        with pytest.raises(ValueError, match="does not fit"):
            ShiftedImages.from_state({**state, **change})
    with pytest.raises(ValueError, match="do not fit"):
        ShiftedImages.from_state({**state, "directions": np.ones((2, 3, 4))})
    with pytest.raises(ValueError, match="too large"):
        ShiftedImages.from_state({**state, "directions": 1e9 * state["directions"]})


def test_scores_are_bounds_that_training_raises():
    settings = {**CLASSES, "epsilon": np.inf, "sampling_rate": 1.0}
    start = make_flat(P3GMSynthesizer, **{**settings, "steps": 1}, net=_net(lr=0.0)).fit(X, Y)
    trained = make_flat(P3GMSynthesizer, **{**settings, "steps": 60}, net=_net(lr=3e-3)).fit(X, Y)
    assert trained.score(X, Y) > start.score(X, Y) + 0.3
    rows = trained.model_.score_samples(X[:20])
    np.testing.assert_allclose(trained.model_.score_samples(X[3:9]), rows[3:9])


def test_other_settings_train_a_network_in_the_place_of_the_decoder():
    few = {"warm_start_steps": 2}
    for given in (
        few,
        {"net": DPNet(P3GMModule, module__n_hidden=4)},
        {"likelihood": "gaussian", **few},
        {"prior": LatentMixture(2, n_iter=1), **few},
        {"image_shape": None, **few},
    ):
        model = make_flat(P3GMSynthesizer, **{**CLASSES, **given}).fit(X[:300], Y[:300]).model_
        assert isinstance(model.generator, NetGenerator), given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"net": DPNet(TableRefinementModule)}, "TableRefinementModule.* is for DataFrames"),
        ({"net": _net(), "image_shape": None}, "ImageRefinementModule.* is for images"),
        ({"net": _net(), "likelihood": "gaussian"}, "ImageRefinementModule.* is for images"),
        ({"net": _net(), "prior": "gaussian"}, "ImageRefinementModule.* is for images"),
        ({"net": _net(), "warm_start_steps": 2}, "warm_start_steps would do nothing"),
    ],
)
def test_what_cannot_refine_images_is_refused_before_the_charge(given, message):
    accountant = PrivacyAccountant(20.0, 1e-5)
    with pytest.raises((InvalidInputError, ValueError), match=message):
        make_flat(P3GMSynthesizer, **{**CLASSES, **given, "accountant": accountant}).fit(X, Y)
    assert not len(accountant.report())


def test_slopes_that_take_much_memory_are_refused_before_the_charge(monkeypatch):
    monkeypatch.setattr(_p3gm_decoder, "MOST_SLOPES", 1000)
    accountant = PrivacyAccountant(20.0, 1e-5)
    with pytest.raises(InvalidInputError, match="lower n_components"):
        make_flat(P3GMSynthesizer, **CLASSES, accountant=accountant).fit(X, Y)
    assert not len(accountant.report())


def test_many_learned_classes_have_fewer_latents(monkeypatch, tmp_path):
    monkeypatch.setattr(_p3gm_decoder, "MOST_SLOPES", 3 * 64 * 10)
    synth = make_flat(P3GMSynthesizer, **{**QUICK, "epsilon": 2.0}, delta=1e-5, n_components=6).fit(X, Y)
    leading = synth.model_.generator.leading
    assert leading.n_latent == min(3 * 10 // leading.n_components, 6)
    assert leading.n_components > 5
    synth.save(tmp_path / "m.safetensors")
    assert len(load(tmp_path / "m.safetensors").sample(5)[0]) == 5


def test_conditions_are_refused(synth):
    with pytest.raises(ValueError, match='needs decoder="released"'):
        synth.sample(5, given={0: 1.0})


def test_rows_of_no_released_class_do_not_stop_a_fit():
    y = Y.copy()
    y[0] = 77
    synth = make_flat(P3GMSynthesizer, **{**QUICK, "delta": 1e-5}).fit(X, y)
    assert 77 not in synth.classes_
    assert isinstance(synth.model_.generator, ShiftedImages)
