"""PriVAE's benchmarks: the theory's figures, the measures, and small runs of the experiments that draw figures."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils import Bunch

from benchmarks import BENCHMARKS
from benchmarks.privae import (
    METHODS,
    draw_sparsity,
    hoyer,
    judge_pinwheel,
    privae_pinwheel_benchmark,
    privae_sparsity_benchmark,
    privae_tstr_benchmark,
)
from benchmarks.step import privae_step_benchmark
from benchmarks.theory import noise_ratio, privae_theory_benchmark, table_1

FIRST = {"batch": 256, "groups": 16, "c1": 0.05, "c2": 0.005}
SECOND = {"batch": 20, "groups": 1, "c1": 0.05, "c2": 0.0005}


def test_table_1_has_the_true_sensitivities():
    """Three sensitivities: C1/B + 2 C2/b, 2 C1/B + 2 C2/b, and 2 C for what hangs on the whole batch."""
    for setting, paper, add, replace in ((FIRST, 5.08e-4, 8.20e-4, 1.016e-3), (SECOND, 3.0e-3, 3.5e-3, 6.0e-3)):
        rows = {row["method"]: row for row in table_1(**setting)}
        row = rows["term-wise"]
        found = (row["paper"], row["add_or_remove_one"], row["replace_one"])
        assert found == pytest.approx((paper, add, replace), rel=1e-3)
        for method in ("micro aggregation", "batch aggregation"):
            assert rows[method]["replace_one"] == rows[method]["add_or_remove_one"] == 2 * rows[method]["paper"]


def test_one_draw_of_noise_is_the_least_and_the_papers_is_too_small_at_its_first_setting():
    for setting, equal, kappa, paper in ((FIRST, 1.129, 1.596, 0.898), (SECOND, 1.088, 1.539, 1.457)):
        noise = noise_ratio(**setting)
        found = [noise[key] / noise["one"] for key in ("two", "two_kappa", "paper")]
        assert found == pytest.approx([equal, kappa, paper], abs=2e-3)
    # no split of two draws that costs what one costs has less noise in their sum
    d1, d2 = FIRST["c1"] / 256, 2 * FIRST["c2"] / 16
    share = np.linspace(0.01, 0.99, 99)
    sums = np.sqrt(d1**2 / share + d2**2 / (1 - share))
    assert (sums >= d1 + d2 - 1e-12).all()
    assert sums.min() == pytest.approx(d1 + d2, rel=1e-3)


def test_the_papers_noise_costs_more_than_was_asked_at_its_first_setting():
    rows = [row for row in privae_theory_benchmark(asked=(1.0,)) if "epsilon_true" in row]
    assert [row["epsilon_true"] for row in rows] == pytest.approx([1.24, 0.64], rel=0.02)


def test_hoyer_is_one_for_one_coordinate_and_zero_for_equal_ones():
    one = np.zeros((50, 4))
    one[np.arange(50), np.arange(50) % 4] = 1.0
    assert hoyer(one) == pytest.approx(1.0)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (500, 4))
    assert hoyer(signs) == pytest.approx(0.0, abs=0.01)
    normal = np.random.default_rng(0).normal(size=(500, 50))
    assert 0.1 < hoyer(normal) < 0.3


def test_purity_is_that_of_arms_in_modes():
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    arms = np.repeat(np.arange(4), 5)
    assert judge_pinwheel(corners[arms] + 0.1, arms)["purity"] == 1.0
    mixed = judge_pinwheel(corners[np.minimum(arms, 2)], arms)
    assert (mixed["purity"], mixed["modes"], mixed["distance"]) == (0.75, 3, 0.0)


def test_pinwheel_runs_and_draws(tmp_path):
    path = tmp_path / "figure.png"
    results = list(privae_pinwheel_benchmark((0,), budgets=((100, 5.0),), quick=True, figure=path))
    assert [r["model"] for r in results] == ["PriVAE + KL(p||q)", "PriVAE"]
    assert all(4.9 < r["epsilon_card"] <= 5.0 and 0 <= r["purity"] <= 1 and r["error"] > 0 for r in results)
    assert path.stat().st_size > 1000


def test_sparsity_runs_every_method_and_draws(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = Bunch(data=rng.integers(0, 256, (300, 784)), data_test=rng.integers(0, 256, (40, 784)))
    monkeypatch.setattr("skdpgen.datasets.load_fashion_mnist", lambda data: images)
    options = {"epsilon": (4.0, np.inf), "n_train": 300, "n_test": 40, "steps": 2}
    results = list(privae_sparsity_benchmark(**options, settings=("tuned",)))
    assert [r["model"] for r in results] == list(METHODS)
    assert [r["epsilon"] for r in results] == [4.0] * 4 + [None] * 2
    assert all(3.9 < r["epsilon_card"] <= 4.0 for r in results if r["epsilon"] == 4.0)
    assert all(np.isfinite([r["sparsity"], r["log_likelihood"], r["mmd"]]).all() for r in results)
    draw_sparsity(results, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    paper = list(privae_sparsity_benchmark(**options, settings=("paper",), models=["PriVAE"]))
    assert [r["setting"] for r in paper] == ["paper"]
    for wrong in ({"settings": ("best",)}, {"models": ["VAE", "AE"]}):
        with pytest.raises(ValueError, match="must be of"):
            next(privae_sparsity_benchmark(**options, **wrong))


def test_steps_are_timed_beside_an_ordinary_one():
    rows = list(privae_step_benchmark(1, batch=20, n_groups=4, steps=1))
    assert [(r["method"], r["noise"]) for r in rows][::2] == [
        ("ordinary", None), ("term-wise", "fast"), ("term-wise", "secure"),
    ]  # fmt: skip
    assert all(r["seconds"] > 0 for r in rows)


def test_tstr_makes_each_model_at_its_budget(monkeypatch):
    made = []

    def told(models, budget, **public):
        made.extend(model.make("data", **budget, **public) for model in models)
        return [{"model": type(synthesizer).__name__} for synthesizer in made[-3:]]

    def table_benchmark(table, models, *, epsilon, delta, device, **options):
        return told(models, {"epsilon": epsilon, "delta": delta, "device": device}, target="income")

    def image_benchmark(dataset, models, *, epsilon, delta, device, **options):
        return told(models, {"epsilon": epsilon, "delta": delta, "device": device}, image_shape=(28, 28))

    monkeypatch.setattr("benchmarks.tables.table_benchmark", table_benchmark)
    monkeypatch.setattr("benchmarks.images.image_benchmark", image_benchmark)
    names = ["PriVAESynthesizer", "DPVAESynthesizer", "P3GMSynthesizer"]
    for dataset in ("adult", "fashion_mnist"):
        results = privae_tstr_benchmark(dataset, epsilon=2.0, device="meta", quick=True)
        assert [r["model"] for r in results] == names
    assert [s.epsilon for s in made] == [2.0] * 6
    assert [s.training.device for s in made[:2]] == ["meta", "meta"]
    assert made[2].training is None
    assert [s.training.steps for s in made[3:5]] == [20, 20]
    assert [s.image_shape for s in made[3:]] == [(28, 28)] * 3
    assert (made[0].divergence, made[0].target) == ("mmd", "income")
    with pytest.raises(ValueError, match="models must be of"):
        list(privae_tstr_benchmark(models=["VAE"]))


def test_the_benchmarks_are_registered():
    names = [name for name in BENCHMARKS if name.startswith("privae-")]
    assert names == [
        "privae-theory",
        "privae-step",
        "privae-sparsity",
        "privae-pinwheel",
        "privae-adult",
        "privae-fashion",
    ]
