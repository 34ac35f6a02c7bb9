from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from benchmarks.figures import accounting_benchmark, dimension_benchmark, two_gaussians


def test_two_gaussians_have_the_means_and_covariances_of_the_paper():
    X, y = two_gaussians(3, n_samples=20_000)
    for label, mean in ((0, -1.0), (1, 1.0)):
        rows = X[y == label]
        np.testing.assert_allclose(rows.mean(axis=0), mean, atol=0.05)
        np.testing.assert_allclose(np.cov(rows.T), np.eye(3), atol=0.06)


def test_a_line_over_the_columns_names_its_data(monkeypatch):
    one = {"logistic_regression": LogisticRegression(max_iter=1000)}
    monkeypatch.setattr("skdpgen.metrics._tstr.protocol_classifiers", lambda: one)
    (result,) = dimension_benchmark(dimensions=(3,))
    assert (result["data"], result["model"], result["dimension"]) == ("two_gaussians", "P3GMSynthesizer", 3)


def test_every_other_accounting_costs_more_than_privacy_loss_distributions():
    results = list(accounting_benchmark())
    assert [result["data"] for result in results] == ["credit", "adult", "isolet", "esr", "mnist", "fashion_mnist"]
    for result in results:
        assert result["model"] == "P3GM(paper)"
        assert result["epsilon_pld"] == pytest.approx(1.0, rel=2e-3)
        assert result["epsilon_pld"] < result["epsilon_rdp"] < result["epsilon_paper"] < result["epsilon_baseline"]
