from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from _flat import make_flat
from sklearn.linear_model import LogisticRegression

from skdpgen import DPPCA, DPVAESynthesizer, P3GMSynthesizer
from skdpgen.metrics import detection_auroc, elbo_terms, frechet_distance, pmse, prdc, reconstruction_error
from skdpgen.mixture import GaussianMixtureParameters


@pytest.fixture
def table(rng):
    frame = pd.DataFrame({"size": rng.normal(size=800), "kind": rng.choice(["a", "b", None], 800).astype(object)})
    frame.loc[::9, "size"] = np.nan
    return frame


def test_rows_of_one_law_are_not_told_apart_and_shifted_ones_are(table, rng):
    one, other = table.iloc[:400], table.iloc[400:]
    assert abs(detection_auroc(one, other) - 0.5) < 0.12
    assert detection_auroc(one, other.assign(size=other["size"] + 3)) > 0.9
    linear = LogisticRegression()
    assert detection_auroc(one, other.assign(kind="c"), classifier=linear) == pytest.approx(1.0)


def test_pmse_of_one_law_is_its_expectation_and_of_others_larger(rng):
    ratios = [pmse(rng.normal(size=(300, 4)), rng.normal(size=(500, 4))).ratio for _ in range(12)]
    assert 0.6 < np.mean(ratios) < 1.5
    told = pmse(rng.normal(size=(300, 4)), rng.normal(size=(300, 4)) + 1)
    assert told.ratio > 20
    assert 0.1 < told.pmse < 0.25
    # another spread alone, which the squares see
    assert pmse(rng.normal(size=(300, 4)), 2 * rng.normal(size=(300, 4))).ratio > 10


def test_pmse_takes_mixed_and_constant_columns(table):
    one, other = table.iloc[:400], table.iloc[400:]
    assert pmse(one, other).ratio < 4
    constant = pd.DataFrame({"c": [1.0] * 10})
    assert pmse(constant, constant) == (0.0, 0.0)


def test_prdc_equals_a_count_by_hand(rng):
    real, fake, k = rng.normal(size=(60, 3)), rng.normal(size=(50, 3)) + 0.7, 3
    between = np.linalg.norm(real[:, None] - fake[None], axis=2)
    radii = [np.sort(np.linalg.norm(rows[:, None] - rows[None], axis=2), axis=1)[:, k] for rows in (real, fake)]
    inside = between <= radii[0][:, None]
    expected = (
        inside.any(axis=0).mean(),
        (between <= radii[1][None]).any(axis=1).mean(),
        inside.sum() / (k * len(fake)),
        inside.any(axis=1).mean(),
    )
    assert prdc(real, fake, n_neighbors=k) == pytest.approx(expected)


def test_prdc_tells_dropped_modes_from_noise(rng):
    centers = np.array([[0.0, 0.0], [20.0, 0.0]])
    real = centers[rng.integers(0, 2, 400)] + rng.normal(size=(400, 2))
    one_mode = rng.normal(size=(400, 2))
    spread = real + 40 * rng.normal(size=real.shape)
    dropped, noisy = prdc(real, one_mode), prdc(real, spread)
    assert dropped.precision > 0.8
    assert 0.3 < dropped.coverage < 0.6
    assert noisy.precision < 0.3
    with pytest.raises(ValueError, match="n_neighbors"):
        prdc(real[:5], real)


def test_features_are_those_of_the_extractor(rng):
    images = rng.random((80, 4, 4))
    sums = []

    def extractor(rows):
        sums.append(len(rows))
        return rows.sum(axis=(1, 2))

    assert frechet_distance(images, images + 1, extractor=extractor) == pytest.approx(16.0**2)
    assert sums == [80, 80]
    assert prdc(images, images, extractor=extractor).coverage == 1


def test_frechet_distance_of_gaussians_is_the_formula(rng):
    mean, root = np.array([1.0, -2.0, 0.5]), np.diag([1.0, 2.0, 3.0])
    real, fake = rng.normal(size=(20_000, 3)), rng.normal(size=(20_000, 3)) @ root + mean
    expected = (mean**2).sum() + ((np.diag(root) - 1) ** 2).sum()
    assert frechet_distance(real, fake) == pytest.approx(expected, rel=0.05)
    assert frechet_distance(real, real) == pytest.approx(0, abs=1e-8)


def test_frechet_distance_needs_no_full_rank(rng):
    real, fake = rng.normal(size=(20, 50)), rng.normal(size=(30, 50))
    from scipy.linalg import sqrtm

    a, b = np.cov(real.T), np.cov(fake.T)
    expected = ((real.mean(0) - fake.mean(0)) ** 2).sum() + np.trace(a) + np.trace(b) - 2 * np.trace(sqrtm(a @ b)).real
    assert frechet_distance(real, fake) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="two rows"):
        frechet_distance(real[:1], fake)


def test_frames_are_encoded_by_the_real_rows(table):
    assert frechet_distance(table, table) == pytest.approx(0, abs=1e-8)
    assert prdc(table, table.assign(size=table["size"] + 50)).precision < 0.3


def test_reconstruction_error_is_the_rms_of_what_pca_leaves(rng):
    X = rng.normal(size=(300, 4)) * [3, 2, 1, 0.5]
    pca = DPPCA(2, epsilon=np.inf, bounds=(-20, 20)).fit(X)
    expected = np.sqrt(np.mean((X - pca.inverse_transform(pca.transform(X))) ** 2))
    assert reconstruction_error(pca, X) == pytest.approx(expected)


class _Shuffle:
    """Comes back with constant guesses."""

    def transform(self, X):
        return X

    def inverse_transform(self, X):
        return X.assign(size=X["size"].mean(), kind="a")


def test_reconstruction_error_of_constant_guesses_of_a_frame(table):
    expected = (1 + (table["kind"] != "a").mean()) / 2
    assert reconstruction_error(_Shuffle(), table) == pytest.approx(expected)


def _linear(X, weight, noise):
    """Posterior and likelihood of x = w z + noise, z standard normal."""
    variance = 1 / (1 + weight**2 / noise**2)
    mean = variance * weight / noise**2 * X
    return (
        lambda rows: (mean, np.full_like(mean, np.log(variance))),
        lambda rows, Z: -0.5 * (((rows - weight * Z) / noise) ** 2 + np.log(2 * np.pi * noise**2))[:, 0],
    )


def test_elbo_at_the_exact_posterior_is_the_log_likelihood(rng):
    X, weight, noise = rng.normal(size=(400, 1)), 2.0, 0.7
    encode, likelihood = _linear(X, weight, noise)
    variance = weight**2 + noise**2
    evidence = float(np.mean(-0.5 * (X**2 / variance + np.log(2 * np.pi * variance))))
    terms = elbo_terms(X, encode, likelihood, n_monte_carlo=200, random_state=0)
    assert terms.elbo == pytest.approx(evidence, abs=0.02)
    assert terms.elbo == pytest.approx(terms.reconstruction - terms.divergence)
    normal = GaussianMixtureParameters(np.ones(1), np.zeros((1, 1)), np.ones((1, 1)))
    drawn = elbo_terms(X, encode, likelihood, normal, n_monte_carlo=200, random_state=0)
    # posterior and prior cancel in every draw
    assert drawn.elbo == pytest.approx(evidence, abs=1e-6)
    worse = elbo_terms(X, lambda rows: (0 * rows, 0 * rows), likelihood, n_monte_carlo=50, random_state=0)
    assert worse.divergence == 0
    assert worse.elbo < evidence - 0.5


@pytest.mark.parametrize("kind", ["vae", "p3gm"])
def test_elbo_terms_of_a_fitted_network_add_up_to_its_score(kind, rng):
    """As the docstring says how to call it."""
    X = np.tanh(rng.normal(size=(300, 3)))
    common = {"bounds": (-1, 1), "n_components": 2, "steps": 20, "random_state": 0}
    if kind == "vae":
        fitted = make_flat(DPVAESynthesizer, 20.0, **common).fit(X)
        net, prior = fitted.model_.module.requires_grad_(False), None
        decode = net.decode
    else:
        fitted = make_flat(P3GMSynthesizer, 20.0, decoder="net", **common).fit(X)
        net, prior = fitted.model_.generator.module.requires_grad_(False), fitted.model_.generator.mixture
        decode = net.decoder

    def tensor(values):
        return torch.tensor(values, dtype=torch.float32)

    terms = elbo_terms(
        fitted.model_.codec.scale(X),
        lambda rows: [part.numpy() for part in net.encode(tensor(rows))],
        lambda rows, Z: net.likelihood.log_prob(decode(tensor(Z)), tensor(rows)).numpy(),
        prior,
        n_monte_carlo=64,
        random_state=0,
    )
    assert terms.divergence > 0
    assert terms.elbo == pytest.approx(fitted.score(X), rel=0.15)


def test_elbo_refuses_an_encoder_of_another_shape(rng):
    X = rng.normal(size=(5, 2))
    with pytest.raises(ValueError, match="encode"):
        elbo_terms(X, lambda rows: (rows[:3], rows[:3]), None)
    with pytest.raises(ValueError, match="n_monte_carlo"):
        elbo_terms(X, lambda rows: (rows, rows), None, n_monte_carlo=0)
