"""Every record takes part in every step by a draw of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import DPSGDPlan, PoissonLoader, poisson_batches
from skdpgen.utils.noise import make_noise_generator


def make_plan(rate=0.1, steps=50, n=400, **changes):
    return DPSGDPlan(rate, steps, 1.0, 1.0, rate * n, **changes)


def variance_is_poisson(sizes, n, rate):
    """Batch sizes are binomial: a two-sided test of their variance, at 1 in 10,000."""
    expected = n * rate * (1 - rate)
    statistic = ((np.asarray(sizes) - n * rate) ** 2).sum() / expected
    return stats.chi2.ppf(5e-5, len(sizes)) < statistic < stats.chi2.ppf(1 - 5e-5, len(sizes))


def test_batch_sizes_vary_as_poisson_sampling_says():
    loader = PoissonLoader(np.zeros((400, 1)), plan=make_plan(), rng=make_noise_generator())
    sizes = [sum(int(chunk.mask.sum()) for chunk in batch) for batch in loader]
    assert len(sizes) == 50
    assert variance_is_poisson(sizes, 400, 0.1)


def test_a_shuffling_loader_fails_that_test():
    shuffling = torch.utils.data.DataLoader(torch.zeros(400, 1), batch_size=40, shuffle=True)
    sizes = [len(batch) for _ in range(5) for batch in shuffling]
    assert len(sizes) == 50
    assert not variance_is_poisson(sizes, 400, 0.1)


def test_inclusion_is_independent_of_record_and_step():
    n, steps, rate = 50, 4000, 0.2
    taken = np.zeros((steps, n))
    for step, indices in enumerate(poisson_batches(n, rate, steps, make_noise_generator("fast"))):
        taken[step, indices] = 1
    assert len(set(indices)) == len(indices)
    # every record at its rate, no pair correlated, no record correlated with its next step
    se = (rate * (1 - rate) / steps) ** 0.5
    assert np.abs(taken.mean(0) - rate).max() < 5 * se
    correlation = np.corrcoef(taken.T) - np.eye(n)
    assert np.abs(correlation).max() < 5.5 / steps**0.5
    centred = taken - rate
    assert abs((centred[1:] * centred[:-1]).mean()) < 5 * rate * (1 - rate) / (n * steps) ** 0.5
    assert abs((centred[:, 1:] * centred[:, :-1]).mean()) < 5 * rate * (1 - rate) / (n * steps) ** 0.5
    assert abs(taken.mean() - rate) < 5 * se / n**0.5


@pytest.mark.parametrize("unit", [None, BoundedUnit("person", 1)], ids=["rows", "units"])
@pytest.mark.parametrize("rate", [300 / 63_000, 0.0012345, 0.98765])
def test_a_plan_is_sampled_at_its_rate_to_the_last_digit(rate, unit):
    n = 100_000
    plan = make_plan(rate, steps := math.ceil(400 / (n * rate)) * 100, n, unit=unit, max_physical_batch=8192)
    units = None if unit is None else np.arange(n)
    loader = PoissonLoader(np.zeros((n, 1), np.float32), plan=plan, rng=make_noise_generator("fast"), units=units)
    taken = sum(int(chunk.mask.sum()) for batch in loader for chunk in batch)
    expected = steps * n * rate
    assert abs(taken - expected) < 5 * (expected * (1 - rate)) ** 0.5
    assert abs(round(rate, 3) - rate) * steps * n > 10 * (expected * (1 - rate)) ** 0.5  # a rounded rate would show


@pytest.mark.parametrize(("n", "rate"), [(0, 0.5), (1, 0.3), (3, 0.999), (5, 1.0), (100_000, 1e-6), (7, 1e-300)])
def test_extreme_rates_and_sizes(n, rate):
    batches = list(poisson_batches(n, rate, 40, make_noise_generator("fast")))
    assert len(batches) == 40
    for indices in batches:
        assert ((indices >= 0) & (indices < n)).all()
        assert (np.diff(indices) > 0).all()
    if rate == 1:
        assert all(len(indices) == n for indices in batches)


def test_empty_batches_are_steps():
    loader = PoissonLoader(np.zeros((3, 2)), plan=make_plan(0.01, 30, 3), rng=make_noise_generator())
    sizes = [len(list(batch)) for batch in loader]
    assert len(sizes) == 30
    assert 0 in sizes


def test_large_batches_come_whole_in_chunks_of_one_shape():
    X = np.arange(1, 61, dtype=np.float64)[:, None]
    plan = make_plan(0.999999, 2, 60, max_physical_batch=16)
    for batch in PoissonLoader((X, np.arange(60)), plan=plan, rng=make_noise_generator()):
        chunks = list(batch)
        assert 4 <= len(chunks) <= plan.places // 16
        assert {tuple(c.X.shape) for c in chunks} == {(16, 1)}
        assert chunks[0].X.dtype == torch.float32
        assert sum(int(c.mask.sum()) for c in chunks) == 60
        rows = torch.cat([c.X[c.mask] for c in chunks]).flatten()
        assert sorted(rows.tolist()) == list(range(1, 61))
        assert torch.cat([c.y[c.mask] for c in chunks]).tolist() == (rows - 1).tolist()
        assert not any(c.X[~c.mask].any() for c in chunks)


def test_noise_for_samples_has_its_shape_and_is_drawn_for_every_place():
    loader = PoissonLoader(
        np.zeros((20, 2)), plan=make_plan(1.0, 3, 20, max_physical_batch=32), rng=make_noise_generator(),
        noise_shape=(5, 4),
    )  # fmt: skip
    drawn = [chunk.noise for batch in loader for chunk in batch]
    assert all(z.shape == (32, 5, 4) and z.dtype == torch.float32 for z in drawn)
    assert not torch.equal(drawn[0], drawn[1])
    assert bool((drawn[0][20:] != 0).all())


@pytest.mark.parametrize(
    "data",
    [
        np.zeros((8, 3), dtype=np.float32),
        torch.zeros(8, 3),
        (np.zeros((8, 3)), np.zeros(8)),
        torch.utils.data.TensorDataset(torch.zeros(8, 3)),
        torch.utils.data.TensorDataset(torch.zeros(8, 3), torch.zeros(8)),
        torch.utils.data.Subset(torch.utils.data.TensorDataset(torch.zeros(9, 3), torch.zeros(9)), range(8)),
        ({"x": np.zeros((8, 3))}, None),
    ],
)
def test_data_sets_of_all_kinds(data):
    plan = make_plan(1.0, 1, 8)
    loader = PoissonLoader(data, plan=plan, rng=make_noise_generator())
    (chunk,) = next(iter(loader))
    X = chunk.X["x"] if isinstance(chunk.X, dict) else chunk.X
    assert X.shape == (plan.places, 3)
    assert int(chunk.mask.sum()) == 8
    example = loader.example()
    assert not example.mask.any()


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="one number of records"):
        PoissonLoader((np.zeros((3, 1)), np.zeros(4)), plan=make_plan(), rng=make_noise_generator())
    with pytest.raises(ValueError, match="dtype object"):
        PoissonLoader(np.array([["a"], ["b"]], dtype=object), plan=make_plan(), rng=make_noise_generator())
