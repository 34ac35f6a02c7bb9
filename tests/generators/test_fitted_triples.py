from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, P3GMSynthesizer
from skdpgen.exceptions import UtilityWarning
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.generators.triples import quarters_of_levels, released_triples
from skdpgen.mechanisms import mean_of_releases, noise_of_mean, triple_interactions
from skdpgen.synthesizers import _frame_model
from skdpgen.tabular import Boolean, Categorical, Schema
from skdpgen.utils.watching import watch_releases

N_LEVELS = np.array([4, 2, 3, 1, 3])


@pytest.fixture
def one_restart(monkeypatch):
    monkeypatch.setattr(_frame_model, "fit_tables", functools.partial(fit_tables, n_restarts=1, n_iter=150))


def _planted(n, seed=0):
    """Three columns whose parity is the class, with label noise; no two of them tell anything of it."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 5)) < 0.5
    y = X[:, 0] ^ X[:, 1] ^ X[:, 2] ^ (rng.random(n) < 0.1)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(y=y)
    return frame, Schema([Boolean(name) for name in frame.columns])


def _parity(frame):
    """Mean of the class, as +1 and -1, times the signs of a, b and c."""
    return float(np.prod([2.0 * frame[name].to_numpy(dtype=float) - 1 for name in "abcy"], axis=0).mean())


@pytest.mark.parametrize(
    ("make", "epsilon"), [(MomentSynthesizer, 1.0), (P3GMSynthesizer, 1.0), (MomentSynthesizer, np.inf)]
)
def test_a_structure_of_three_columns_is_found_and_sampled(make, epsilon, one_restart):
    frame, schema = _planted(20_000)
    assert _parity(frame) > 0.75
    rows = make(epsilon, schema=schema, target="y", random_state=0).fit(frame).sample(20_000, random_state=0)
    assert _parity(rows) > 0.6
    assert all(abs(rows[name].mean() - 0.5) < 0.05 for name in "abcde")


def _releases(n, epsilon=1.0, **parameters):
    frame, schema = _planted(n)
    seen = []
    with watch_releases(lambda released, sd, kind: seen.append(np.shape(released))):
        tables = {"budget_split": {"target": 0}}
        synth = MomentSynthesizer(epsilon, schema=schema, target="y", **tables, **parameters).fit(frame)
    return synth, seen


def test_the_share_of_triples_buys_the_tables_again_where_the_noise_would_hide_them(one_restart):
    synth, (_, tables, triples) = _releases(20_000)
    assert triples == (2, 10, 3, 3, 3)
    with pytest.warns(UtilityWarning, match="too few rows"):
        few, (_, tables, again) = _releases(400)
    assert again == tables
    for fit in (synth, few):
        assert fit.accountant_.epsilon_spent() == pytest.approx(1.0, rel=1e-3)
        assert fit.accountant_.charges[0].label == "MomentSynthesizer: rows, moments, triples"


def test_two_releases_of_one_query_are_joined_by_their_known_noise(rng):
    exact, noises = rng.normal(size=100_000), (2.0, 5.0)
    first, again = (exact + z * rng.standard_normal(exact.size) for z in noises)
    joint = mean_of_releases(first, again, noises)
    assert np.std(joint - exact) == pytest.approx(noise_of_mean(noises), rel=0.02)
    assert noise_of_mean(noises) == pytest.approx(29**-0.5 * 10)
    assert mean_of_releases(exact, exact, (0.0, 0.0)) is exact
    assert noise_of_mean((0.0, 0.0)) == 0.0


def test_models_without_tables_alone_and_tables_of_too_many_columns_have_no_such_release():
    frame, _ = _planted(60)
    many = pd.DataFrame({f"x{i}": frame["a"] for i in range(25)}).assign(y=frame["y"])
    labels = [
        [phase.label for phase in synth.plan(rows).phases]
        for synth, rows in (
            (MomentSynthesizer(target="y"), frame),
            (MomentSynthesizer(target="y"), many),
            (MomentSynthesizer(target="y"), frame[["a", "b", "y"]]),
            (P3GMSynthesizer(target="y"), frame),
            (P3GMSynthesizer(target="y", prior="mixture"), frame),
        )
    ]
    assert ["triples" in names for names in labels] == [True, False, False, True, False]


def test_levels_are_divided_into_quarters_by_their_released_shares():
    shares = [0.3, 0.2, 0.26, 0.24, 0.9, 0.1, 0.7, 0.0, 0.3, 1.0, 0.9996, 0.0004, 0.0]
    quarters = quarters_of_levels(shares, N_LEVELS)
    assert quarters.columns.tolist() == [0, 1, 2]  # one level, or one and a trace, are no two halves
    assert quarters.fine.tolist() == [True, False, False]
    assert quarters.of_level[0].tolist() == [0, 1, 2, 3]
    assert quarters.of_level[1].tolist() == [1, 3]
    codes = np.array([[0, 1, 2, 0, 1], [3, 0, 0, 0, 0]])
    assert quarters.of_codes(codes).tolist() == [[0, 3, 3], [3, 1, 1]]
    assert quarters_of_levels(np.zeros(13), N_LEVELS).columns.size == 0


def _triples(rng, sd=1.0):
    p = rng.dirichlet(np.ones(4), size=50)
    points = np.concatenate([p, *(rng.dirichlet(np.ones(k), size=50) for k in (2, 3, 1, 3))], axis=1)
    quarters = quarters_of_levels(points.mean(axis=0), N_LEVELS)
    query = triple_interactions(quarters.of_codes(np.zeros((0, 5), int)), quarters.fine)
    return points, quarters, released_triples(query.value, np.full(query.weights.shape, sd), quarters, N_LEVELS)


def test_expected_sums_are_those_of_sampled_rows(rng):
    points, quarters, triples = _triples(rng)
    starts = np.concatenate([[0], np.cumsum(N_LEVELS)])
    n = 40_000
    at = np.arange(n) % len(points)
    uniform = rng.random((n, len(N_LEVELS)))
    codes = np.stack(
        [
            (uniform[:, [i]] > np.cumsum(points[at, starts[i] : starts[i + 1]], axis=1)).sum(axis=1).clip(0, k - 1)
            for i, k in enumerate(N_LEVELS)
        ],
        axis=1,
    )
    counted = triple_interactions(quarters.of_codes(codes), quarters.fine).value[0]
    assert np.abs(triples.expected(points, n) - counted).max() < 5 * n**0.5


def test_the_gradient_is_that_of_half_the_weighted_squared_error(rng):
    points, _, triples = _triples(rng, sd=3.0)
    rows, step = 700.0, 1e-6

    def loss(p):
        return 0.5 * np.sum((triples.expected(p, rows) - triples.value[0]) ** 2 * triples.precision)

    found = triples.gradient(points, 0, rows)
    for i, j in ((0, 0), (7, 3), (20, 5), (49, 8), (30, 11)):
        moved = [points.copy(), points.copy()]
        moved[0][i, j] += step
        moved[1][i, j] -= step
        assert (loss(moved[0]) - loss(moved[1])) / (2 * step) == pytest.approx(found[i, j], rel=1e-4, abs=1e-6)


def test_noise_alone_makes_no_triple_stand_out_and_at_most_ten_are_fitted(rng):
    quarters = quarters_of_levels(np.full(14, 0.5), np.full(7, 2))
    query = triple_interactions(np.zeros((0, 7), int), quarters.fine)
    points, sd = np.full((1, 14), 0.5), np.full(query.weights.shape, 20.0)
    noise = 20.0 * rng.standard_normal((2, *query.weights.shape))
    quiet = released_triples(noise, sd, quarters, np.full(7, 2))
    assert len(quiet.missed_by([points, points], [5e3, 5e3]).triples) == 0
    noise[0, 3] += 300.0
    chosen = released_triples(noise, sd, quarters, np.full(7, 2)).missed_by([points, points], [5e3, 5e3])
    assert len(chosen.triples) == 1
    np.testing.assert_array_equal(chosen.value[:, 0], noise[:, 3])
    loud = released_triples(noise + 300.0, sd, quarters, np.full(7, 2))
    assert len(loud.missed_by([points, points], [5e3, 5e3]).triples) == 10


def test_columns_with_fewer_than_two_halves_have_no_triples(one_restart):
    frame, _ = _planted(3000)
    frame["b"], frame["c"], frame["d"], frame["e"] = "only", "only", "only", "only"
    schema = Schema([Boolean("a"), *(Categorical(n, categories=("only",)) for n in "bcde"), Boolean("y")])
    synth = MomentSynthesizer(2.0, schema=schema, target="y").fit(frame)
    assert synth.accountant_.epsilon_spent() == pytest.approx(2.0, rel=1e-3)
    assert set(synth.sample(10)["b"]) == {"only"}
