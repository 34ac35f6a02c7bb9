"""DP2-VAE's benchmarks: the counterexample, the accounting table, small runs of the experiments."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from benchmarks import BENCHMARKS, dp2vae
from benchmarks.theory import dp2vae_accounting, dp2vae_hidden_state, hidden_state_delta


def test_encoders_that_remember_their_visits_lose_more_than_the_composed_claim(tmp_path):
    pytest.importorskip("matplotlib")
    found = {row["model"]: row["epsilon"] for row in dp2vae_hidden_state(quick=True, figure=tmp_path / "a.png")}
    claim = found["claim: per-step amplification, composed"]
    assert claim == pytest.approx(18.09, abs=0.02)
    assert found["hidden state (true, at least)"] >= 18.98 > claim
    assert found["state that no draw moves (true, at least)"] < claim
    assert found["index revealed (epsilon)"] > found["hidden state (true, at least)"]
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_the_exact_profile_of_the_example_is_a_normal_pair_without_phase_b():
    """Without anything in phase B there is the sum of phase A: two normals, mixed over the visits to one encoder."""
    sigma, steps = 10.0, 400
    draws = np.random.default_rng(0).binomial(steps, 0.5, 200_000)
    total = draws + np.random.default_rng(1).normal(size=200_000) * sigma * steps**0.5
    likelier = total > 0  # the best test at epsilon 0
    expected = likelier.mean() - (-total > 0).mean()
    found = hidden_state_delta(0.0, sigma, steps, 1, threshold=0.0, informed=False)[0]
    assert found == pytest.approx(expected, abs=0.01)


def test_the_accounting_table_orders_the_samplers():
    rows = list(dp2vae_accounting(quick=True))
    noise = {row["model"]: row["noise"] for row in rows}
    assert noise["poisson"] < noise["one_of_k"] < noise["balanced"] < noise["one_of_k, index revealed"]
    assert noise["poisson"] == pytest.approx(noise["one_of_k"] / 2, rel=0.1)


@pytest.fixture
def images(monkeypatch, short_fits):
    """Images of ten patterns, in the place of the data set."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2, (10, 784)) * 255
    y = np.arange(1600) % 10
    X = np.clip(patterns[y] + rng.normal(0, 20, (1600, 784)), 0, 255).astype(np.uint8)
    bunch = Bunch(data=X[:1500], target=y[:1500], data_test=X[1500:], target_test=y[1500:])
    monkeypatch.setattr(dp2vae, "_load", lambda dataset, data: bunch)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_table_1_has_a_row_a_model_and_a_picture(images, tmp_path):
    pytest.importorskip("matplotlib")
    models = ("random start", "real data")
    rows = list(dp2vae.dp2vae_benchmark(models=models, quick=True, figure=tmp_path / "grid.png"))
    assert [row["model"] for row in rows] == list(models)
    assert all(0 <= row[name] <= 1 for row in rows for name in ("lr", "mlp", "cnn"))
    assert rows[-1]["lr"] > 0.9
    assert rows[1]["frechet"] < rows[0]["frechet"]
    assert rows[0]["epsilon_card"] == pytest.approx(10.0, rel=5e-3)
    assert (tmp_path / "grid.png").stat().st_size > 1000


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_policy_is_judged_at_the_noise_that_its_price_asks_for(images):
    (row,) = dp2vae.dp2vae_policies(("poisson, on_query",), quick=True)
    assert all(0 <= row[name] <= 1 for name in ("lr", "mlp", "cnn"))
    X, y = np.zeros((1500, 784)), np.arange(1500) % 10  # a plan reads no values
    noise = {policy: dp2vae.noise_of(dp2vae.make_policy(policy, quick=True), X, y) for policy in dp2vae.POLICIES}
    assert row["noise"] == noise["poisson, on_query"] > 2 * noise["poisson, frozen"]
    assert noise["poisson, frozen"] == noise["poisson, stateless"] == noise["poisson, round_robin"]
    assert noise["balanced, on_query"] > noise["poisson, frozen"]


def test_the_speed_and_the_memory_of_stage_1_are_measured(monkeypatch):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (24 * 20, 784), dtype=np.uint8), np.arange(24 * 20) % 10
    monkeypatch.setattr(dp2vae, "_speed_rows", lambda data, n_rows: (pixels[:n_rows], labels[:n_rows]))
    together, alone = dp2vae.dp2vae_speed(quick=True, steps=2)
    assert (together["encoders"], alone["encoders"]) == (20, 10)
    assert together["milliseconds"] > 0
    assert alone["ratio"] == alone["milliseconds"] / together["milliseconds"]
    assert 0.05 < together["peak_gib"] < 8


def test_the_judges_logistic_regression_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    codes = np.arange(600) % 3
    x = (rng.normal(size=(600, 8)) + np.eye(3, 8)[codes]).astype(np.float32)
    expected = LogisticRegression().fit(x, codes).predict(x)
    assert np.mean(dp2vae.logistic(x, codes, x, 3) == expected) > 0.99


def test_all_are_registered():
    names = {"dp2vae", "dp2vae-fashion", "dp2vae-policies", "dp2vae-accounting", "dp2vae-hidden-state", "dp2vae-speed"}
    assert names <= set(BENCHMARKS)
