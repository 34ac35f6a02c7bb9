"""Transport between batches, and the one vector of a step, which any change of its rows moves by at most 2 C."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from _charged import charged

from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import GradientNoise, PoissonLoader, WholeBatchPlan
from skdpgen.nn._generated_rows import GeneratedRows, emphasize_classes, to_rows
from skdpgen.nn._generators import ConditionalGenerator
from skdpgen.nn._sinkhorn import (
    PrivateRows,
    SinkhornGradients,
    train_by_transport,
    transport_cost,
    transport_gradient,
    transport_plan,
)
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

C = 0.4


def plan_of(**changes):
    settings = {"sampling_rate": 0.1, "steps": 10, "noise_multiplier": 1.0, "expected_batch_size": 8.0}
    return WholeBatchPlan(**{**settings, "gradient_bound": C, **changes})


def released(private, generated, fresh, plan, **options):
    """The mean that noise is added to, for some private rows in one step."""
    gradients_of = SinkhornGradients(plan, 100.0, blur=0.05, **options)
    private = torch.as_tensor(private, dtype=torch.float32)
    places, weights = torch.zeros(1, len(private) + 2, generated.shape[1]), torch.full((1, len(private) + 2), -math.inf)
    places[0, : len(private)], weights[0, : len(private)] = private, -math.log(max(1, len(private)))
    (bounded,) = gradients_of(generated[None], fresh[None], places, weights)
    assert bounded.sensitivity("add_or_remove_one") == bounded.sensitivity("replace_one") == plan.l2_bound
    return bounded.value[0].double() / plan.expected_batch_size


def the_step_is_bounded_by_2_c_and_attains_it():
    """A row that joins an empty step, or a step of one row, may turn the whole gradient round; no change does more."""
    plan = plan_of()
    assert plan.l2_bound == 2 * C * 8
    rows = torch.zeros(5, 3)
    far = {side: released([[side, 0.0, 0.0]], rows, rows, plan) for side in (-9.0, 9.0)}
    change = float((far[-9.0] - far[9.0]).norm()) * (1 + plan.slack)
    assert 0.999 * 2 * C <= change <= 2 * C * (1 + 1e-6)
    joined = released([[-9.0, 0.0, 0.0], [27.0, 0.0, 0.0]], rows, rows, plan)  # their mean lies on the other side
    assert float((far[-9.0] - joined).norm()) * (1 + plan.slack) >= 0.999 * 2 * C
    draws = torch.Generator().manual_seed(0)
    for scale in (1e-3, 1.0, 1e3):
        generated, fresh = (torch.randn(6, 3, generator=draws) * scale for _ in range(2))
        for size in (1, 2, 9, 40):
            x = torch.randn(size, 3, generator=draws) * scale
            found = [released(part, generated, fresh, plan) for part in (x, x[:-1], torch.cat([x[:-1], -50 * x[-1:]]))]
            gaps = [float((a - b).norm()) for a in found for b in found]
            assert max(gaps) * (1 + plan.slack) <= 2 * C * (1 + 1e-6)
            norms = [float(a.norm()) for a in found]
            assert max(norms) * (1 + plan.slack) <= C * (1 + 1e-6)


def test_the_step_is_bounded_by_2_c_and_attains_it():
    the_step_is_bounded_by_2_c_and_attains_it()


def the_shape_of_a_step_does_not_tell_how_many_rows_took_part():
    """Of an empty step too, the release has the public number of generated rows."""
    plan, rows = plan_of(), torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    for size in (0, 1, 20):
        assert released(torch.ones(size, 3), rows, rows + 1, plan).shape == (7, 3)
    assert not released(torch.zeros(0, 3), rows, rows + 1, plan).any()


def test_the_shape_of_a_step_does_not_tell_how_many_rows_took_part():
    the_shape_of_a_step_does_not_tell_how_many_rows_took_part()


def a_release_is_a_function_of_the_rows_of_its_step_alone():
    """Steps that are computed at once do not meet, to the last bit: what others drew could tell of a row otherwise."""
    draws = torch.Generator().manual_seed(0)
    plan, shape = plan_of(), (5, 6, 3)
    own, fresh = torch.rand(shape, generator=draws), torch.rand(shape, generator=draws)
    for scale in (1e-3, 1.0, 1e3, math.inf):
        found = []
        for rows in (0, 1, 7):
            private, weights = torch.zeros(5, 9, 3), torch.full((5, 9), -math.inf)
            private[:, :rows] = scale * torch.rand(5, rows, 3, generator=draws)
            weights[:, :rows] = -math.log(max(rows, 1))
            private[2], weights[2] = 0.0, -math.inf
            private[2, :4], weights[2, :4] = torch.linspace(-2, 2, 12).view(4, 3), -math.log(4)
            found.append(SinkhornGradients(plan, 10.0, blur=0.05)(own, fresh, private, weights)[2].value[0])
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])
        assert found[0].any()


def test_a_release_is_a_function_of_the_rows_of_its_step_alone():
    a_release_is_a_function_of_the_rows_of_its_step_alone()


@pytest.mark.parametrize("shape", [*((k, 10, 14, 64) for k in (1, 2, 39, 40)), (3, 10, 512, 40)], ids=str)
def test_steps_of_the_sizes_of_fits_do_not_meet(shape):
    """A product of many matrices could be rounded otherwise where another of them has other entries."""
    k, n, m, d = shape
    draws = torch.Generator().manual_seed(0)
    own, fresh = (2 * torch.rand(k, n, d, generator=draws) - 1 for _ in range(2))
    private, weights = 2 * torch.rand(k, m, d, generator=draws) - 1, torch.full((k, m), -math.log(m))
    for l1_weight in (0.0, 0.3):
        gradients = SinkhornGradients(plan_of(), 4.0 * d, blur=0.05, l1_weight=l1_weight)
        together = [one.value[0] for one in gradients(own, fresh, private, weights)]
        for step in {0, k // 2, k - 1}:
            others, absent = 1e3 * torch.rand(k, m, d, generator=draws), torch.full((k, m), -math.inf)
            others[step], absent[step] = private[step], weights[step]
            assert torch.equal(gradients(own, fresh, others, absent)[step].value[0], together[step])


def test_a_gradient_that_is_not_finite_is_masked():
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    for bad in (math.inf, math.nan, 3e38):
        found = released([[bad, 0.0, 0.0], [0.0, 1.0, 0.0]], rows, rows + 1, plan_of())
        assert torch.isfinite(found).all()


def test_the_plan_is_that_of_sinkhorn_in_double_precision():
    """Against Sinkhorn's plain iterations, and with both marginals kept."""
    draws = torch.Generator().manual_seed(0)
    x, y = torch.rand(6, 2, generator=draws).double(), torch.rand(9, 2, generator=draws).double()
    weights = torch.rand(9, generator=draws).double()
    weights = (weights / weights.sum()).log()
    cost = transport_cost(x, y, l1_weight=0.5)
    expected = (x[:, None] - y[None]).square().sum(2) + 0.5 * (x[:, None] - y[None]).abs().sum(2)
    torch.testing.assert_close(cost, expected)
    found = transport_plan(cost, 0.3, weights, 3.0)
    kernel, u, v = (-cost / 0.3).exp(), torch.ones(6).double(), torch.ones(9).double()
    for _ in range(200):
        u = 1 / 6 / (kernel @ v)
        v = weights.exp() / (kernel.T @ u)
    exact = u[:, None] * kernel * v
    torch.testing.assert_close(found / 6, exact, atol=2e-3, rtol=0)
    assert torch.equal(found.sum(1).round(decimals=9), torch.ones(6).double())


def test_places_without_a_row_change_nothing():
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 3, generator=draws), torch.randn(5, 3, generator=draws)
    padded, weights = torch.cat([y, torch.zeros(3, 3)]), torch.full((8,), -math.inf)
    weights[:5] = -math.log(5)
    options = {"blur": 0.05, "l1_weight": 0.2}
    one = transport_gradient(x, y, weights[:5], 50.0, **options)
    torch.testing.assert_close(transport_gradient(x, padded, weights, 50.0, **options), one)
    together = transport_gradient(x, torch.stack([padded, padded]), torch.stack([weights, weights]), 50.0, **options)
    torch.testing.assert_close(together[1], one)


def test_the_gradient_is_that_of_the_cost():
    """With little entropy it points from each row to the one that it is moved to."""
    x = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    y = torch.tensor([[1.0, 0.0], [10.0, 3.0]])
    equal = torch.full((2,), -math.log(2))
    torch.testing.assert_close(
        transport_gradient(x, y, equal, 200.0, blur=0.01), torch.tensor([[-1.0, 0.0], [0.0, -3.0]])
    )
    moved = transport_gradient(x, y, equal, 200.0, blur=0.01, l1_weight=1.0)
    torch.testing.assert_close(moved, torch.tensor([[-1.5, 0.0], [0.0, -3.5]]))


def _trained(plan, X, labels=None, *, n_classes=0, basis=None, units=None, seed=0, **options):
    torch.manual_seed(0)
    generator = ConditionalGenerator(2, n_classes, X.shape[1] if basis is None else basis.shape[1], n_hidden=16)
    labels = np.zeros(len(X), dtype=np.int64) if labels is None else labels
    noise = train_by_transport(
        generator, X.astype(np.float32), labels, np.ones(max(n_classes, 1)), charged(plan),
        make_noise_generator("secure"), basis=basis, units=units, seed=seed, **{"n_rows": 8, "at_once": 4, **options},
    )  # fmt: skip
    assert all(p.grad is None for p in generator.parameters())
    return generator if basis is None else to_rows(generator, basis), noise


def test_without_noise_the_rows_move_to_the_private_ones_of_their_class():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    X = np.clip(np.array([[0.2, 0.8], [0.7, 0.3]])[labels] + 0.05 * rng.normal(size=(400, 2)), 0, 1)
    plan = plan_of(noise_multiplier=0.0, steps=1200, expected_batch_size=40.0)
    generator, (text, private) = _trained(plan, X, labels, n_classes=2, at_once=8, learning_rate=0.02)
    assert private
    assert "AES" in text
    latent = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    for k, middle in enumerate([[0.2, 0.8], [0.7, 0.3]]):
        rows = generator(latent, torch.eye(2)[k].expand(500, 2)).detach().numpy()
        np.testing.assert_allclose(rows.mean(axis=0), middle, atol=0.05)
        assert (rows.std(axis=0) > 0.01).all()


def test_coordinates_in_a_basis_become_rows():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 2)))[0]
    X = np.random.default_rng(1).random((50, 6))
    generator, _ = _trained(plan_of(noise_multiplier=0.0, steps=3), X, basis=basis)
    assert generator.n_outputs == 6
    torch.manual_seed(0)
    small, latent = ConditionalGenerator(2, 0, 2, n_hidden=16), torch.randn(5, 2)
    coordinates = torch.tensor([3.0, 0.5]) * small.logits(latent)
    expected = torch.sigmoid(coordinates @ torch.as_tensor(basis).float().T)
    torch.testing.assert_close(to_rows(small, basis, [3.0, 0.5])(latent), expected)
    torch.testing.assert_close(to_rows(small, gains=[3.0, 0.5])(latent), torch.sigmoid(coordinates))


def test_a_new_generator_depends_on_the_class():
    torch.manual_seed(0)
    generator, latent = ConditionalGenerator(8, 3, 5, n_hidden=64), torch.randn(50, 8)
    spread = []
    for _ in range(2):
        rows = torch.stack([generator.logits(latent, torch.eye(3)[k].expand(50, 3)) for k in range(3)])
        spread.append(float(rows.detach().mean(1).std(0).mean()))
        emphasize_classes(generator)
    assert spread[1] > 2 * spread[0]


def test_as_many_steps_are_taken_as_were_charged_and_the_plan_is_followed_once():
    plan, X = plan_of(sampling_rate=0.01), np.random.default_rng(0).random((20, 3))  # most steps are empty
    _trained(plan, X)
    assert plan.steps_taken == plan.steps
    with pytest.raises(RuntimeError, match=r"charged before|used by another training"):
        _trained(plan, X)


def the_private_rows_enter_by_the_release_alone():
    """Where no row takes part, training is a function of the noise and of public seeds, whatever the rows are."""
    found = []
    for rows in (np.zeros((0, 3)), np.random.default_rng(0).random((30, 3))):
        with seeded_noise(quiet=True):
            rng = make_noise_generator("secure")
            plan = plan_of(sampling_rate=1e-12, steps=3, noise_multiplier=0.7)
            torch.manual_seed(0)
            generator = ConditionalGenerator(2, 0, 3, n_hidden=8)
            labels = np.zeros(len(rows), dtype=np.int64)
            train_by_transport(
                generator, rows.astype(np.float32), labels, np.ones(1), charged(plan), rng, n_rows=8, at_once=1
            )
        found.append([p.detach() for p in generator.parameters()])
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_the_private_rows_enter_by_the_release_alone():
    the_private_rows_enter_by_the_release_alone()


def a_step_without_rows_is_a_step_of_noise(n_rows):
    """Whoever sees the generator sees which steps changed nothing: none may, whether there are rows or not."""
    sums, shipped = [], GradientNoise.release

    def release(noise, bounded, *rest, **options):
        sums.append([float(value.abs().sum()) for value in bounded.value])
        return shipped(noise, bounded, *rest, **options)

    plan, generator = plan_of(sampling_rate=1e-12, steps=4), ConditionalGenerator(2, 0, 3, n_hidden=8)
    moved, step = [], torch.optim.Adam.step

    def followed(optimizer):
        before = [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]
        step(optimizer)
        after = [p for group in optimizer.param_groups for p in group["params"]]
        moved.append(not all(map(torch.equal, before, after)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GradientNoise, "release", release)
        patch.setattr(torch.optim.Adam, "step", followed)
        labels, rng = np.zeros(n_rows, dtype=np.int64), make_noise_generator("secure")
        x = np.zeros((n_rows, 3), dtype=np.float32)
        train_by_transport(generator, x, labels, np.ones(1), charged(plan), rng, n_rows=8, at_once=1)
    assert sums == [[0.0]] * plan.steps
    assert moved == [True] * plan.steps


@pytest.mark.parametrize("n_rows", [0, 30])
def test_a_step_without_rows_is_a_step_of_noise(n_rows):
    a_step_without_rows_is_a_step_of_noise(n_rows)


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_units_are_sampled_whole_and_weigh_as_they_are_told(weighting):
    units = np.repeat(np.arange(40), 3)
    units[-2:] = 7  # of five rows, of which three are used
    plan = plan_of(unit=BoundedUnit("pid", 3, weighting), sampling_rate=0.3, expected_batch_size=36.0, steps=5)
    rows = torch.from_numpy(units[:, None]).float()
    private = PrivateRows(_generated(), rows.numpy(), np.zeros(len(rows), dtype=np.int64), plan, 8)
    loader = PoissonLoader(private.places, plan=plan, rng=make_noise_generator("secure"), units=units)
    assert private.n_places >= 36
    for batch in loader:
        points, log_weights = private.of_steps([batch], torch.zeros(1, dtype=torch.int64))
        used = np.isfinite(log_weights[0].numpy())
        drawn = np.rint((points[0, :, 0].numpy()[used] + 1) / 2).astype(int)
        found, counts = np.unique(drawn, return_counts=True)
        weights = np.exp(log_weights[0].numpy()[used])
        assert weights.sum() == pytest.approx(1)
        if len(drawn) == private.n_places:
            continue  # more rows than places
        assert (counts == [1 if unit == 39 else 3 for unit in found]).all()
        if weighting == "rows":
            np.testing.assert_allclose(weights, 1 / len(drawn), rtol=1e-5)
            continue
        shares = [weights[drawn == unit].sum() for unit in found]
        np.testing.assert_allclose(shares, 1 / len(found), rtol=1e-5)


def _generated(n_classes=0, class_ratio=(1.0,)):
    generator = ConditionalGenerator(2, n_classes, 1, n_hidden=4)
    return GeneratedRows(generator, np.asarray(class_ratio), torch.Generator().manual_seed(0))


def a_step_has_rows_of_its_class_alone():
    """Rows of no class are in no step; a step of more rows than places uses some of them, in all their order."""
    labels = np.arange(300) % 3 - 1
    rows = np.linspace(0, 1, 300, dtype=np.float32)[:, None]
    for rate, size in ((0.05, 15.0), (0.9, 270.0), (0.9, 20.0)):
        plan = plan_of(sampling_rate=rate, expected_batch_size=size, steps=4)
        private = PrivateRows(_generated(2, (1.0, 1.0)), rows, labels, plan, 8)
        loader = PoissonLoader(private.places, plan=plan, rng=make_noise_generator("secure"))
        codes = torch.tensor([0, 0, 1, 1])
        points, log_weights = private.of_steps(iter(loader), codes)
        assert points.shape == (4, private.n_places, 1)
        for code, some, logs in zip(codes, points[:, :, 0], log_weights):
            used = np.isfinite(logs.numpy())
            found = np.rint((some.numpy()[used] + 1) / 2 * 299).astype(int)
            assert (labels[found] == int(code)).all()
            assert len(set(found)) == len(found) <= private.n_places
            if len(found):
                np.testing.assert_allclose(np.exp(logs.numpy()[used]), 1 / len(found), rtol=1e-5)
            if (rate, size) == (0.9, 20.0):  # about 90 rows
                assert len(found) == private.n_places
                assert found.max() > 200


def test_a_step_has_rows_of_its_class_alone():
    a_step_has_rows_of_its_class_alone()


def test_steps_at_once_may_be_more_or_fewer_than_a_multiple_of_the_steps():
    X, labels = np.random.default_rng(0).random((50, 3)), np.arange(50) % 3
    for at_once in (1, 3, 4, 20):
        plan = plan_of(steps=10)
        _trained(plan, X, labels, n_classes=3, at_once=at_once)
        assert plan.steps_taken == 10
