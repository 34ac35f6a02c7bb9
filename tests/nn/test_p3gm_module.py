"""P3GM's module: the mixture's KL divergence, the likelihoods, and losses that keep records apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skdpgen.nn import BernoulliLikelihood, MixturePrior, P3GMModule, TableLikelihood
from skdpgen.nn import GaussianLikelihood as Gaussian


@pytest.fixture
def prior():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 4, 4))
    return MixturePrior([0.2, 0.3, 0.5], rng.normal(size=(3, 4)), a @ np.swapaxes(a, 1, 2) + np.eye(4))


def test_kl_to_one_component_is_torchs(prior):
    mean, log_variance = torch.randn(5, 4), torch.randn(5, 4)
    ours = prior.component_kl(mean, log_variance)
    q = torch.distributions.MultivariateNormal(mean, torch.diag_embed(torch.exp(log_variance)))
    for k in range(3):
        precision = prior.factors[k].double() @ prior.factors[k].double().T
        p = torch.distributions.MultivariateNormal(prior.means[k], precision_matrix=precision.float())
        torch.testing.assert_close(ours[:, k], torch.distributions.kl_divergence(q, p), rtol=1e-3, atol=1e-3)


def test_kl_to_the_mixture_is_hershey_and_olsens(prior):
    mean, log_variance = torch.randn(5, 4), torch.randn(5, 4)
    component = prior.component_kl(mean, log_variance)
    expected = -torch.log((torch.tensor([0.2, 0.3, 0.5]) * torch.exp(-component)).sum(1))
    torch.testing.assert_close(prior.kl(mean, log_variance), expected, rtol=1e-4, atol=1e-4)
    label = torch.eye(3)[torch.tensor([0, 1, 2, 0, 1])]
    torch.testing.assert_close(prior.kl(mean, log_variance, label), component[torch.arange(5), [0, 1, 2, 0, 1]])


def test_log_prob_is_that_of_the_mixture(prior):
    x = torch.randn(7, 4)
    parts = [
        torch.distributions.MultivariateNormal(
            prior.means[k], precision_matrix=(prior.factors[k].double() @ prior.factors[k].double().T).float()
        ).log_prob(x)
        + prior.log_weights[k]
        for k in range(3)
    ]
    torch.testing.assert_close(prior.log_prob(x), torch.logsumexp(torch.stack(parts), 0), rtol=1e-3, atol=1e-3)


def test_a_narrow_covariance_does_not_stop_a_fit():
    prior = MixturePrior([1.0], np.zeros((1, 3)), np.diag([1.0, 1e-9, 1e-9])[None])
    assert torch.isfinite(prior.kl(torch.zeros(2, 3), torch.zeros(2, 3))).all()


def test_table_likelihood_is_one_categorical_a_block():
    output, x = torch.randn(4, 5), torch.tensor([[1, 0, 0, 0, 1.0]]).expand(4, 5)
    law = TableLikelihood([2, 3])
    expected = torch.log_softmax(output[:, :2], 1)[:, 0] + torch.log_softmax(output[:, 2:], 1)[:, 2]
    torch.testing.assert_close(law.log_prob(output, x), expected)
    torch.testing.assert_close(law.mean(output)[:, 2:].sum(1), torch.ones(4))


@pytest.mark.parametrize("latent_variance", ["learned", "zero"])
@pytest.mark.parametrize("law", [BernoulliLikelihood, Gaussian])
def test_a_records_loss_does_not_depend_on_the_others(prior, latent_variance, law):
    torch.manual_seed(0)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 4)))[0]
    module = P3GMModule(
        basis, np.full(6, 0.5), prior, law(), n_labels=3, n_hidden=8, latent_variance=latent_variance, n_monte_carlo=2
    )
    x = torch.cat([torch.rand(5, 6), torch.eye(3)[torch.tensor([0, 1, 2, 1, 0])]], 1)
    noise = torch.randn(5, 2, 4)
    losses = module(x, noise)
    assert losses.shape == (5,)
    assert torch.isfinite(losses).all()
    for i in range(5):
        torch.testing.assert_close(module(x[i : i + 1], noise[i : i + 1])[0], losses[i], rtol=1e-4, atol=1e-4)
