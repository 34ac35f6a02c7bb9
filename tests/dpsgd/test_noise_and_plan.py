"""Gradient noise has the scale of the plan, comes from where it says, and is refused beyond the plan."""

from __future__ import annotations

import copy
import pickle
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _claims import assert_noise_at_scale

from skdpgen._types import BoundedSum
from skdpgen.accounting import epsilon_pld, poisson_gaussian_event
from skdpgen.dpsgd import DPSGDPlan, GradientNoise
from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator

SHAPES = [(317, 301), (5001,), (1,)]


def plan(**changes):
    settings = {
        "sampling_rate": 0.1, "steps": 10, "l2_bound": 1.0, "noise_multiplier": 1.4, "expected_batch_size": 20.0,
    }  # fmt: skip
    return DPSGDPlan(**{**settings, **changes})


def zeros(l2_bound=2.0):
    return BoundedSum([torch.zeros(shape) for shape in SHAPES], add_or_remove_one=l2_bound)


def flat(tensors):
    return torch.cat([t.flatten() for t in tensors]).double().numpy()


@pytest.mark.parametrize("kind", ["secure", "fast"])
def test_noise_is_at_its_scale_and_fails_at_two_thirds_and_three_halves(kind):
    with GradientNoise(SHAPES, 0.75, make_noise_generator(kind), steps=3) as noise:
        first, second = (flat(noise.release(zeros(), divisor=10.0)) for _ in range(2))
    assert_noise_at_scale(first, 0.15)
    assert_noise_at_scale(second, 0.15)
    assert abs((first * second).mean()) < 5 * 0.15**2 / len(first) ** 0.5


@pytest.mark.parametrize("kind", ["secure", "fast"])
def test_neighbouring_coordinates_and_halves_are_uncorrelated(kind):
    with GradientNoise([(2**17,)], 1.0, make_noise_generator(kind)) as noise:
        z = noise.release(BoundedSum([torch.zeros(2**17)], add_or_remove_one=1.0))[0].double()
    for lag in (1, 2**13, 2**14, 2**15, 2**16):
        correlation = float((z[lag:] * z[:-lag]).mean())
        assert abs(correlation) < 5 / (2**17 - lag) ** 0.5
        squares = float(((z[lag:] ** 2 - 1) * (z[:-lag] ** 2 - 1)).mean() / 2)
        assert abs(squares) < 6 / (2**17 - lag) ** 0.5
    # kurtosis and tails of a normal
    assert abs(float((z**4).mean()) - 3) < 5 * (96 / 2**17) ** 0.5
    assert 4.0 < float(z.abs().max()) < 7.5


def test_secure_releases_lie_on_the_lattice():
    value = [torch.rand(1000) * 7 - 3]
    with GradientNoise([(1000,)], 0.5, make_noise_generator("secure"), dtype=torch.float64) as noise:
        out = noise.release(BoundedSum(value, add_or_remove_one=3.0), out=[torch.empty(1000, dtype=torch.float64)])[0]
    whole = out / (1.5 * 2.0**-30)
    torch.testing.assert_close(whole, whole.round(), rtol=2.0**-52, atol=0)


def test_no_bit_of_a_float64_sum_shows_under_fast_noise():
    sums = torch.rand(4000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with GradientNoise([(4000,)], 1.0, make_noise_generator("fast"), dtype=torch.float64) as noise:
        assert "lattice 2^-30" in noise.description
        released = noise.release(BoundedSum([sums], add_or_remove_one=1.0))[0]
    # float32 normals that are not tiny are whole multiples of 2**-27
    assert (torch.remainder(released, 2.0**-27) == torch.remainder(sums, 2.0**-27)).double().mean() < 0.01
    with GradientNoise([(4000,)], 1.0, make_noise_generator("fast")) as noise, pytest.raises(TypeError, match="dtype"):
        noise.release(BoundedSum([sums], add_or_remove_one=1.0))


def test_an_interrupt_leaves_no_sum_without_noise(monkeypatch):
    from skdpgen.dpsgd import _noise as room

    out = [torch.zeros(2**18)]
    sums = BoundedSum([torch.ones(2**18)], add_or_remove_one=1.0)
    calls = []

    def add(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return np.add(*args, **kwargs)

    numbers = SimpleNamespace(**{**vars(np), "add": add})  # stands for numpy: the second addition is interrupted
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with GradientNoise([(2**18,)], 1.0, make_noise_generator("fast")) as noise:
            monkeypatch.setattr(room, "np", numbers)
            with pytest.raises(KeyboardInterrupt):
                noise.release(sums, out=out)
    finally:
        torch.set_num_threads(torch_threads)
    assert (out[0][: 2**17] != 1).double().mean() > 0.999
    assert not out[0][2**17 :].any()


@pytest.mark.parametrize("bound", [1.0, 1e-22, 1e-30])
def test_fast_noise_is_at_the_scale_of_tiny_bounds(bound):
    sums = BoundedSum([torch.zeros(120_000)], add_or_remove_one=bound)
    with GradientNoise([(120_000,)], 1.0, make_noise_generator("fast")) as noise:
        assert_noise_at_scale(noise.release(sums)[0].double().numpy() / bound, 1.0)


def test_noise_is_added_to_a_bounded_sum_alone():
    with GradientNoise(SHAPES, 1.0, make_noise_generator()) as noise, pytest.raises(TypeError, match="BoundedSum"):
        noise.release([torch.zeros(shape) for shape in SHAPES])


def test_no_noise_at_multiplier_zero():
    values = BoundedSum([torch.ones(3)], add_or_remove_one=1.0)
    with GradientNoise([(3,)], 0.0, make_noise_generator()) as noise:
        assert torch.equal(noise.release(values, divisor=4.0)[0], torch.full((3,), 0.25))


def test_more_draws_than_planned_are_refused():
    with GradientNoise([(3,)], 1.0, make_noise_generator(), steps=3) as noise:
        for _ in range(3):
            noise.release(BoundedSum([torch.zeros(3)], add_or_remove_one=1.0))
        with pytest.raises(RuntimeError, match="more noise"):
            noise.release(BoundedSum([torch.zeros(3)], add_or_remove_one=1.0))


def test_thread_ends_with_the_block():
    with GradientNoise([(100_000,)], 1.0, make_noise_generator()) as noise:
        noise.release(BoundedSum([torch.zeros(100_000)], add_or_remove_one=1.0))
        assert any(t.name == "skdpgen-noise" for t in threading.enumerate())
    assert not any(t.name == "skdpgen-noise" for t in threading.enumerate())


@pytest.mark.parametrize("make_copy", [pickle.dumps, copy.copy, copy.deepcopy])
def test_noise_cannot_be_copied(make_copy):
    with GradientNoise([(3,)], 1.0, make_noise_generator()) as noise, pytest.raises(TypeError, match="copied"):
        make_copy(noise)


def test_noise_differs_between_fits_and_repeats_under_a_test_seed():
    def draw():
        with GradientNoise([(50,)], 1.0, make_noise_generator()) as noise:
            return noise.release(BoundedSum([torch.zeros(50)], add_or_remove_one=1.0))[0]

    assert not torch.equal(draw(), draw())
    with seeded_noise(3, quiet=True):
        first = draw()
    with seeded_noise(3, quiet=True):
        assert torch.equal(draw(), first)


def test_plan_keeps_the_clip_below_the_bound_by_its_slack():
    small = plan(l2_bound=2.0)
    assert small.slack == 0.01
    assert small.clip_norm == pytest.approx(2.0 / 1.01)
    assert small.noise_std == pytest.approx(2.8)
    assert plan(expected_batch_size=60_000.0).slack > 0.05
    assert plan(noise_multiplier=0.0).clip_norm == float("inf")


def the_clip_leaves_room_for_the_lattice_of_large_noise():
    """A gradient with equal entries in 2**30 parameters, where rounding to the lattice moves each as far as it can."""
    most = 2.0**14
    for multiplier in np.geomspace(100, most, 300):
        one = plan(noise_multiplier=multiplier, expected_batch_size=1.0)
        lattice = one.noise_std * 2.0**-30
        entry = one.clip_norm * 2.0**-15
        starts = np.concatenate([np.linspace(-0.5, 0.5, 101), [np.nextafter(0.5, 0), 0.5 - entry / lattice % 1 + 1e-9]])
        moved = np.rint(starts + entry / lattice) - np.rint(starts)
        assert moved.max() * lattice * 2.0**15 <= one.l2_bound
    assert plan(noise_multiplier=most).clip_norm == pytest.approx(0.5, rel=1e-3)
    for multiplier in (1.001 * most, 1e9):
        with pytest.raises(ValueError, match="too large for gradients"):
            plan(noise_multiplier=multiplier)
    with pytest.raises(ValueError, match="too large for gradients"):
        _ = SubsetPlan(10, 10, 1.001 * most).clip_norm


def test_the_clip_leaves_room_for_the_lattice_of_large_noise():
    the_clip_leaves_room_for_the_lattice_of_large_noise()


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_noise_std_is_the_same_under_both_relations(relation):
    assert plan(neighboring=relation).noise_std == pytest.approx(1.4)


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling_rate": 0.0}, {"sampling_rate": 1.1}, {"steps": 0}, {"steps": 1.5}, {"l2_bound": 0.0},
        {"l2_bound": float("inf")}, {"noise_multiplier": -1.0}, {"noise_multiplier": float("nan")},
        {"expected_batch_size": 0.0}, {"max_physical_batch": 0}, {"neighboring": "replace"},
    ],
)  # fmt: skip
def test_plan_refuses_numbers_out_of_range(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        plan(**changes)


def test_plan_is_frozen():
    with pytest.raises(AttributeError):
        plan().steps = 11


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_a_plan_tells_what_it_costs_under_its_relation(relation):
    ours = plan(neighboring=relation)
    event = poisson_gaussian_event(ours.sampling_rate, ours.noise_multiplier, ours.steps)
    assert ours.epsilon(1e-5) == epsilon_pld(event, 1e-5, relation)
    assert plan(noise_multiplier=0.0).epsilon(1e-5) == float("inf")
