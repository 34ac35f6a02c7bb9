"""Two-way tables from the products of sides: what they say, and that noise says nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from scipy.stats import multivariate_normal

from skdpgen import MomentSynthesizer
from skdpgen.exceptions import UtilityWarning
from skdpgen.generators import sides as module
from skdpgen.generators.sides import pairs_from_sides
from skdpgen.mechanisms import exact_value, one_hot_moments, residual_plan, unpack_one_hot_moments
from skdpgen.synthesizers._count_errors import count_errors
from skdpgen.tabular import Boolean, Categorical, Numeric, Schema
from skdpgen.testing import seeded_noise

SHARES = np.array([0.1, 0.3, 0.2, 0.25, 0.15])


def _normal_table(correlation):
    """Probabilities of the levels of two normal columns, by the distribution function."""
    edges = np.concatenate([[-8.0], ndtri(np.cumsum(SHARES)[:-1]), [8.0]])
    law = multivariate_normal(cov=[[1, correlation], [correlation, 1]])
    grid = law.cdf(np.stack(np.meshgrid(edges, edges, indexing="ij"), axis=-1))
    return np.diff(np.diff(grid, axis=0), axis=1)


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.1, 0.6, 0.9])
def test_the_series_is_the_table_of_two_normal_columns(correlation):
    integrals = module._hermite_integrals(SHARES)
    powers = correlation ** np.arange(1, len(integrals) + 1)
    table = np.outer(SHARES, SHARES) + np.einsum("n,na,nb->ab", powers, integrals, integrals)
    np.testing.assert_allclose(table, _normal_table(correlation), atol=0.003)


def _normal_rows(rng, n_rows, correlation, n_columns=5, classes=1):
    common = rng.normal(size=(n_rows, 1))
    x = correlation**0.5 * common + (1 - correlation) ** 0.5 * rng.normal(size=(n_rows, n_columns))
    return np.searchsorted(np.linspace(-2, 2, 7), x), rng.integers(0, classes, n_rows)


def _released(codes, y, n_classes=1, noise=0.0, rng=None, middle=4):
    """Released values and their noise, as of a fit."""
    n_columns = codes.shape[1]
    sides = np.tile(np.where(np.arange(8) < middle, -1, 1), n_columns)
    plan = residual_plan([8] * n_columns, [8] * n_columns, n_classes, pairs=False, sides=sides)
    query = one_hot_moments(codes, plan, y)
    value, scale = exact_value(query), noise * plan.add_or_remove_one
    if noise:
        value = value + rng.normal(size=value.shape) * scale / query.weights
    released, sd = unpack_one_hot_moments(value, plan), plan.noise_sd(scale)
    tables = plan.contrasts.tables(released._replace(pairs=None)).one_way
    counts = tables[:, :8].sum(axis=1)
    return released, sd, plan.contrasts, sides, counts, np.maximum(tables, 0) / counts[:, None]


def test_without_noise_tables_of_normal_columns_are_found(rng):
    arguments = _released(*_normal_rows(rng, 40_000, 0.5))
    found, sd = pairs_from_sides(*arguments)
    contrasts = arguments[2]
    table = contrasts.tables(found).pairs[0]
    exact = _one_hot_tables(_normal_rows(np.random.default_rng(1), 40_000, 0.5)[0])
    across = table != 0
    assert np.abs(table - exact)[across].sum() / across.sum() < 0.0015 * 40_000
    assert np.abs(exact - np.outer(exact.sum(0), exact.sum(0)) / exact.sum())[across].mean() > 0.002 * 40_000
    assert np.isfinite(sd.pairs[0][contrasts.block[:, None] != contrasts.block]).all()


def _one_hot_tables(codes):
    encoded = np.concatenate([np.eye(8)[column] for column in codes.T], axis=1)
    block = np.repeat(np.arange(codes.shape[1]), 8)
    return np.where(block[:, None] == block, 0.0, encoded.T @ encoded)


@pytest.mark.parametrize("n_classes", [1, 2])
def test_noise_alone_shows_next_to_nothing(rng, n_classes):
    """Independent columns: nearly always no table at all, and never one that is far from independence."""
    none = 0
    for _ in range(20):
        codes = rng.integers(0, 8, (1000, 12))
        arguments = _released(codes, rng.integers(0, n_classes, 1000), n_classes, noise=6.0, rng=rng)
        found, _ = pairs_from_sides(*arguments)
        none += found.pairs is None
        if found.pairs is not None:
            plain = arguments[2].tables(found._replace(pairs=None))
            counts = plain.one_way[:, :8].sum(axis=1)
            marginals = np.maximum(plain.one_way, 0) / counts[:, None]
            for k, table in enumerate(arguments[2].tables(found).pairs):
                independent = counts[k] * np.outer(marginals[k], marginals[k])
                assert np.abs(table - independent)[table != 0].mean() < 0.01 * counts[k]
    assert none >= (12 if n_classes == 1 else 6)  # of two classes, there are three estimates


def test_many_weak_correlations_are_seen_together(rng):
    """Each one is below the standard deviation of its noise; the common factor is not."""
    codes, y = _normal_rows(rng, 1000, 0.3, n_columns=30)
    arguments = _released(codes, y, noise=7.0, rng=rng)
    z = arguments[0].sides[0] / np.maximum(arguments[1].sides[0], 1e-9)
    assert 0 < np.median(z[z != 0]) < 1.5
    estimate = module._above_noise(z, ~np.eye(30, dtype=bool))
    true = _released(codes, y)[0].sides[0] / np.maximum(arguments[1].sides[0], 1e-9)
    across = ~np.eye(30, dtype=bool)
    assert np.mean((estimate - true)[across] ** 2) < 0.3 * np.mean((z - true)[across] ** 2)


def test_a_single_strong_pair_stays(rng):
    across = ~np.eye(20, dtype=bool)
    noise = np.triu(rng.normal(size=(20, 20)), 1)
    z = noise + noise.T
    z[2, 7] = z[7, 2] = 8.0
    estimate = module._above_noise(z, across)
    assert estimate[2, 7] > 7
    z[2, 7] = z[7, 2] = 0.0
    assert np.abs(module._above_noise(z, across)).max() < 1


def test_a_column_with_all_rows_on_one_side_says_nothing(rng):
    codes, y = _normal_rows(rng, 2000, 0.5)
    codes[:, 0] = rng.integers(0, 2, 2000)
    found, sd = pairs_from_sides(*_released(codes, y, noise=3.0, rng=rng))
    assert np.isinf(sd.pairs[0][:7, 7:]).all()
    assert np.isfinite(found.pairs).all()
    assert np.abs(found.pairs).max() < 2000


def test_few_rows_keep_their_correlations():
    """1,000 rows of 16 columns: two-way tables are lost in the noise, and correlations are not."""
    rng = np.random.default_rng(5)
    common = rng.normal(size=(1000, 1))
    x = 0.75 * common + (1 - 0.75**2) ** 0.5 * rng.normal(size=(1000, 16))
    frame = pd.DataFrame(np.clip(50 + 18 * x, 0, 100), columns=[f"x{i}" for i in range(16)])
    frame["high"], frame["place"] = x[:, 0] > 0, pd.Categorical(rng.choice(list("abc"), 1000))
    schema = Schema(
        [*(Numeric(f"x{i}", (0, 100)) for i in range(16)), Boolean("high"), Categorical("place", list("abc"))]
    )
    with seeded_noise(3, quiet=True), pytest.warns(UtilityWarning, match="as normal variables do"):
        synthesizer = MomentSynthesizer(1.0, delta=1e-5, schema=schema, neighboring="add_or_remove_one").fit(frame)
    drawn = synthesizer.sample(4000, random_state=0)
    real, found = (f.drop(columns="place").astype(float).corr().to_numpy() for f in (frame, drawn))
    above = np.triu_indices(17, 1)
    assert found[above].mean() > 0.5 * real[above].mean()
    assert np.abs((found - real)[above]).mean() < 0.5 * real[above].mean()
    # the summary is one of the plan with sides, also where the released row count would suggest two-way tables
    summary, model = synthesizer.summary_, synthesizer.model_
    assert model.seen is None
    assert 0 < summary.smallest_correlation < 0.3
    importance = np.ones(len(model.codec.n_levels))
    charged = synthesizer.plan(frame).noise_multipliers
    whole = sum(charged[label] ** -2.0 for label in ("moments", *model.respent)) ** -0.5
    errors = count_errors(model.codec, {"moments": whole}, "add_or_remove_one", importance, seen=np.inf)
    np.testing.assert_allclose([column.count_error for column in summary.columns], errors.one_way)
