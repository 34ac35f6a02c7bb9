"""DP-CGAN: what a row can do to a step, what the generator may learn from, parameters, and what a file holds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from _claims import RELATIONS
from _flat import make_flat
from sklearn.datasets import load_digits

from skdpgen import (
    DPCGANSynthesizer,
    DPVAESynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
    Schema,
    load,
)
from skdpgen.dpsgd import DPSGDPlan, GradientNoise, LossModule
from skdpgen.nn import DPNet
from skdpgen.nn._gan import DiscriminatorModule, GeneratorTraining
from skdpgen.nn._generators import ConditionalGenerator
from skdpgen.nn._networks import coarse_pixels
from skdpgen.tabular import Boolean, Categorical
from skdpgen.utils import validation

AR, RO = RELATIONS
FITTED = ("arrays, adversarial net", "arrays, adversarial net, replace_one", "frame, adversarial net")
X, Y = load_digits(return_X_y=True)
FAST = {"bounds": (0, 16), "classes": range(10), "sampling_rate": 0.1, "steps": 4, "n_critic": 2}
SMALL = {"generator_sizes": (6,), "discriminator_sizes": (5,), "n_components": 3}
NETWORKS = {
    "dense": {"n_hidden": (7, 5)},
    "linear": {"n_hidden": ()},
    "images": {"image_shape": (6, 6), "n_hidden": 7},
    "averaged images": {"image_shape": (17, 16), "n_hidden": 7},
    "averaged images in colour": {"image_shape": (17, 21, 3), "n_hidden": 7},
    "lines": {"image_shape": (1, 64), "n_hidden": 7},
}


def _plan(**changes):
    given = {"sampling_rate": 0.5, "steps": 4, "l2_bound": 0.01, "noise_multiplier": 1.0, "expected_batch_size": 4.0}
    return DPSGDPlan(**{**given, **changes})


def the_whole_gradient_of_a_row_is_clipped(kind, relation):
    """A row that joins moves the sum of all parameters by the bound, and none by more; one that replaces, by twice."""
    torch.manual_seed(0)
    plan, n_features = _plan(neighboring=relation), math.prod(NETWORKS[kind].get("image_shape", (36,)))
    root = LossModule(DiscriminatorModule(n_features, 2, **NETWORKS[kind]))
    rows = torch.rand(6, n_features + 2) * 4 - 1
    rows[:, n_features:] = torch.eye(2)[[0, 1, 0, 1, 1, 0]]

    def total(*chosen):
        value = plan.make_aggregate(root, None)(rows[list(chosen)]).value
        return torch.cat([part.flatten() for part in value]).double()

    moved = [torch.linalg.norm(total(0, 1, 2, k) - total(0, 1, 2)) for k in (3, 4, 5)]
    if relation == RO:
        moved = [torch.linalg.norm(total(0, 1, 2, j) - total(0, 1, 2, k)) / 2 for j, k in ((3, 4), (3, 5), (4, 5))]
    reached = np.array(moved) * (1 + plan.slack) / plan.l2_bound
    assert reached.max() <= 1 + 1e-5
    if relation == AR:
        assert reached.min() >= 0.999


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", NETWORKS)
def test_the_whole_gradient_of_a_row_is_clipped(kind, relation):
    the_whole_gradient_of_a_row_is_clipped(kind, relation)


def _train(monkeypatch, rows, **changes):
    """Train on rows without noise; return what was released, the gradients with generated rows, and the generator."""
    torch.manual_seed(1)
    released, completed, release = [], [], GeneratorTraining.on_grad_computed

    def recorded(self, net, **kwargs):
        released.append([p.grad.clone() for p in net.module_.parameters()])
        release(self, net, **kwargs)
        completed.append([p.grad.clone() for p in net.module_.parameters()])

    monkeypatch.setattr(GeneratorTraining, "on_grad_computed", recorded)
    generator = ConditionalGenerator(3, 2, 4, n_hidden=5)
    options = {"n_critic": 2, "learning_rate": 0.1, "n_rows": 8, "seed": 0, "average": 0.0, **changes}
    adversary = GeneratorTraining(generator, np.array([1.0, 3.0]), **options)
    plan = _plan(noise_multiplier=0.0, sampling_rate=1.0)
    sizes = {"module__n_features": 4, "module__n_labels": 2, "module__n_hidden": 3}
    net = DPNet(DiscriminatorModule, plan=plan, callbacks=[("gan", adversary)], random_state=0, verbose=0, **sizes)
    net.fit(rows)
    return released, completed, generator


def test_the_gradient_of_generated_rows_is_added_after_the_release(monkeypatch):
    rows = np.random.default_rng(0).random((4, 6), dtype=np.float32)
    released, completed, _ = _train(monkeypatch, rows)
    assert len(released) == 4
    torch.manual_seed(1)
    fresh = ConditionalGenerator(3, 2, 4, n_hidden=5)
    draws = torch.Generator().manual_seed(0)
    latent = torch.randn(8, 3, generator=draws)
    codes = torch.multinomial(torch.tensor([1.0, 3.0], dtype=torch.float64), 8, replacement=True, generator=draws)
    x = torch.cat([fresh(latent, torch.eye(2)[codes]), torch.eye(2)[codes]], dim=1).detach()
    start = DPNet(
        DiscriminatorModule, random_state=0, module__n_features=4, module__n_labels=2, module__n_hidden=3
    ).initialize()
    loss = start.module_.losses_of_generated(x).mean()
    expected = torch.autograd.grad(loss, list(start.module_.parameters()))
    for before, with_generated, one in zip(released[0], completed[0], expected):
        torch.testing.assert_close(with_generated - before, one, rtol=1e-4, atol=1e-6)


def test_generated_rows_are_clipped_as_private_ones_are(monkeypatch):
    monkeypatch.setattr(DPSGDPlan, "clip_norm", 1e-3)
    rows = np.random.default_rng(0).random((4, 6), dtype=np.float32)
    released, completed, _ = _train(monkeypatch, rows)
    added = [torch.cat([(b - a).flatten() for a, b in zip(*step)]) for step in zip(released, completed)]
    assert all(float(part.norm()) <= 1e-3 * (1 + 1e-4) for part in added)


def test_the_generator_steps_once_in_n_critic_steps(monkeypatch):
    rows, steps = np.ones((4, 6), dtype=np.float32), []
    step = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self, *a, **k: steps.append(self) or step(self, *a, **k))
    _train(monkeypatch, rows, n_critic=3)
    assert sorted(steps.count(optimizer) for optimizer in set(steps)) == [1, 4]


def the_noise_is_that_of_the_whole_gradient(monkeypatch):
    """The standard deviation is the multiplier that was charged times the bound of the whole gradient."""
    seen, release = [], GradientNoise.release

    def recorded(self, bounded, *args, **kwargs):
        seen.append(self.noise_multiplier * bounded.add_or_remove_one)
        return release(self, bounded, *args, **kwargs)

    monkeypatch.setattr(GradientNoise, "release", recorded)
    fitted = make_flat(DPCGANSynthesizer, 2.0, gradient_bound=3.0, **SMALL, **FAST).fit(X, Y)
    (charge,) = fitted.accountant_.charges
    planned = make_flat(DPCGANSynthesizer, 2.0, gradient_bound=3.0, **SMALL, **FAST).plan(X, Y)
    assert charge.event == planned.event
    assert seen == [pytest.approx(3.0 * planned.noise_multipliers["training"])] * 4


def test_the_noise_is_that_of_the_whole_gradient(monkeypatch):
    the_noise_is_that_of_the_whole_gradient(monkeypatch)


def test_labels_of_generated_rows_follow_the_released_shares():
    given = np.array([1.0, 0.0, 3.0])
    adversary = GeneratorTraining(
        ConditionalGenerator(2, 3, 4), given, n_critic=1, learning_rate=0.1, n_rows=4000, seed=0
    )
    net = type("Net", (), {"device": "cpu"})()
    adversary.on_train_begin(net)
    labels = adversary._generated()[:, 4:].mean(0)
    assert labels.tolist() == pytest.approx([0.25, 0.0, 0.75], abs=0.03)


@pytest.mark.parametrize("kind", ["dense", "images"])
def test_a_model_file_gives_the_same_rows(tmp_path, kind):
    shape = {"image_shape": (8, 8)} if kind == "images" else SMALL
    fitted = make_flat(DPCGANSynthesizer, 2.0, random_state=0, **FAST, **shape).fit(X, Y)
    fitted.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    for one, other in zip(fitted.sample(20, random_state=3), loaded.sample(20, random_state=3)):
        np.testing.assert_array_equal(one, other)
    assert loaded.get_params()["n_critic"] == 2


@pytest.mark.parametrize("shape", [(8, 8), (7, 9, 3), (28, 28), (17, 21, 3)])
def test_images_are_made_and_seen_at_half_their_sides(shape):
    """Of 16 pixels and more on each side; the discriminator then sees averages over 2 x 2 pixels."""
    n = math.prod(shape)
    rows = ConditionalGenerator(3, 2, n, image_shape=shape, coarse=True)(
        torch.randn(5, 3), torch.eye(2)[[0, 1, 0, 1, 1]]
    )
    assert rows.shape == (5, n)
    averages, n_seen = coarse_pixels(shape)
    seen = averages(rows)
    assert seen.shape == (5, n_seen)
    if shape == (28, 28):
        whole = rows.reshape(5, 14, 2, 14, 2).mean((2, 4))
        torch.testing.assert_close(seen, whole.flatten(1))
    elif min(shape[:2]) < 16:
        assert n_seen >= n
    else:
        assert n_seen < n / 2


def test_images_of_files_of_earlier_versions_keep_their_network():
    """Their architecture has no "coarse": the network is three transposed convolutions."""
    torch.manual_seed(0)
    made = ConditionalGenerator(3, 0, 64, image_shape=(8, 8), n_channels=8)
    before = {name: value for name, value in made.architecture.items() if name != "coarse"}
    latent = torch.randn(4, 3)
    loaded = ConditionalGenerator.restored(before, made.arrays())
    torch.testing.assert_close(loaded(latent), made(latent))


def test_the_generator_of_images_counts_for_the_size_of_networks_before_the_charge(monkeypatch):
    monkeypatch.setattr(validation, "MOST_NUMBERS", 2**22)
    accountant = PrivacyAccountant(2.0)
    given = {"image_shape": (8, 8), "bounds": (0, 16), "classes": range(10), "accountant": accountant}
    make_flat(DPCGANSynthesizer, n_components=32, **given).plan(X, Y)
    with pytest.raises(ValueError, match="at most"):
        make_flat(DPCGANSynthesizer, n_components=4_096, **given).fit(X, Y)
    assert not accountant.entries


@pytest.mark.parametrize("shape", [[64, 64, 400], [4, 8], [8, 8, -1], [8.0, 8.0]])
def test_a_file_whose_images_do_not_fit_its_columns_is_refused_before_networks_are_made(monkeypatch, shape):
    fitted = make_flat(DPCGANSynthesizer, 2.0, image_shape=(8, 8), **FAST).fit(X, Y).model_
    state = fitted.to_state()
    state["architecture"] = {**state["architecture"], "image_shape": shape}
    monkeypatch.setattr(ConditionalGenerator, "restored", lambda *args: pytest.fail("a network was made"))
    with pytest.raises(ValueError, match="image_shape"):
        type(fitted).from_state(state)


@pytest.mark.parametrize("coarse", ["yes", 1, [1], {"a": 1}])
def test_a_file_with_another_type_of_coarse_is_refused(coarse):
    made = ConditionalGenerator(3, 0, 64, image_shape=(8, 8), coarse=True)
    with pytest.raises(ValueError, match="coarse must be"):
        ConditionalGenerator.restored({**made.architecture, "coarse": coarse}, made.arrays())


def test_levels_are_drawn_one_in_each_column():
    torch.manual_seed(0)
    generator = ConditionalGenerator(2, 0, 7, n_levels=[3, 4])
    rows = generator(torch.randn(50, 2), uniforms=torch.rand(50, 7)).detach()
    np.testing.assert_allclose(rows.numpy().round(6) % 1, 0, atol=1e-5)
    np.testing.assert_allclose(rows[:, :3].sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(rows[:, 3:].sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"image_shape": (8, 8), "generator_sizes": (3,)}, "generator_sizes= is used only with"),
        ({"image_shape": (8, 8), "discriminator_sizes": (65_536, 65_536)}, "at most"),
        ({"preset": "paper/mnist", "image_shape": (8, 8)}, "leave out image_shape="),
        ({"preset": "paper"}, "preset must be one of"),
        ({"preset": "paper/mnist", "n_critic": 3}, "sets n_critic"),
        ({"n_critic": 0}, "n_critic"),
        ({"generator_sizes": (0,)}, "generator_sizes"),
        ({"discriminator_sizes": (65_536, 65_536)}, "at most"),
        ({"batch_size": 10}, "private under add_or_remove_one"),
        ({"image_shape": (7, 8)}, "does not fit"),
    ],
)
def test_what_contradicts_is_refused_before_the_charge(parameters, match):
    accountant = PrivacyAccountant(2.0)
    model = make_flat(DPCGANSynthesizer, accountant=accountant, bounds=(0, 16), **parameters)
    with pytest.raises(ValueError, match=match):
        model.fit(X, Y)
    assert not accountant.entries


@pytest.mark.parametrize("model", [DPCGANSynthesizer, DPVAESynthesizer, PriVAESynthesizer])
def test_declared_levels_count_for_the_size_of_networks_before_the_charge(monkeypatch, model):
    monkeypatch.setattr(validation, "MOST_NUMBERS", 2**18)
    frame = pd.DataFrame({"code": [0, 1] * 10, "flag": [True, False] * 10})

    def made(n_levels):
        schema = Schema([Categorical("code", range(n_levels)), Boolean("flag")])
        accountant = PrivacyAccountant(1.0)
        return model(accountant=accountant, schema=schema), accountant

    made(10)[0].plan(frame)
    many, accountant = made(2_000)
    with pytest.raises(ValueError, match="at most"):
        many.fit(frame)
    assert not accountant.entries


def test_the_published_settings_are_charged_at_their_true_cost():
    plan = DPCGANSynthesizer(9.6, preset="paper/mnist", bounds=(0, 16), classes=range(10)).plan(X, Y)
    phase = next(phase for phase in plan.phases if phase.label == "training")
    assert (phase.steps, phase.sampling_rate) == (10_000, 0.01)
    assert plan.epsilon == pytest.approx(9.6, rel=1e-3)
    assert math.isfinite(plan.noise_multipliers["training"])


def test_the_released_model_stays_in_its_box():
    fitted = make_flat(DPCGANSynthesizer, 2.0, **SMALL, **FAST).fit(X, Y)
    drawn, labels = fitted.sample(200)
    assert drawn.min() >= 0
    assert drawn.max() <= 16
    assert set(labels) <= set(range(10))


def test_a_split_beside_a_preset_is_that_of_its_own_estimator_alone(rng):
    X, y = rng.random((30, 784)), rng.integers(0, 2, 30)
    for share in (0.3, 0.2):
        made = DPCGANSynthesizer(preset="paper/mnist", budget_split={"bounds": share}, classes=range(10))
        assert made.plan(X, y).phases[0].share == pytest.approx(share)
