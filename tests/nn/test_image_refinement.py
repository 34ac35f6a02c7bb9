"""The network that shifts the means of released Gaussians of images: where it starts, its loss, its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from skdpgen.dpsgd import DPSGDPlan
from skdpgen.nn import DPNet, ImageRefinementModule

N_GAUSSIANS, N_LATENT, N_PIXELS = 3, 2, 5
RNG = np.random.default_rng(4)
RELEASED = {
    "location": RNG.random((N_GAUSSIANS, N_PIXELS)),
    "slopes": 0.2 * RNG.normal(size=(N_GAUSSIANS, N_LATENT, N_PIXELS)),
    "deviation": RNG.uniform(0.05, 0.3, (N_GAUSSIANS, N_PIXELS)),
}


def _rows(n=6):
    labels = np.eye(N_GAUSSIANS)[RNG.integers(0, N_GAUSSIANS, n)]
    parts = [RNG.random((n, N_PIXELS)), RNG.normal(size=(n, N_LATENT)), labels]
    return torch.tensor(np.concatenate(parts, axis=1), dtype=torch.float32)


def _module(moved=0.0, **parameters):
    torch.manual_seed(0)
    module = ImageRefinementModule(**{**RELEASED, "n_labels": N_GAUSSIANS, **parameters})
    with torch.no_grad():
        for p in module.network[-1].parameters():
            p.add_(moved * torch.randn(p.shape))
    return module


@pytest.mark.parametrize("n_hidden", [(), 4])
def test_before_the_first_step_the_network_adds_nothing(n_hidden):
    module, rows = _module(n_hidden=n_hidden), _rows()
    latent, label = rows[:, N_PIXELS : N_PIXELS + N_LATENT], rows[:, N_PIXELS + N_LATENT :]
    assert not module.network(torch.cat([latent, label], 1)).any()
    # the mean of a clipped normal number, by its definition
    k, draws = label.argmax(1).numpy(), RNG.normal(size=(200_000, 1, 1))
    mean = RELEASED["location"][k] + np.einsum("bl,blp->bp", latent.numpy(), RELEASED["slopes"][k])
    clipped = np.clip(mean + RELEASED["deviation"][k] * draws, 0, 1).mean(axis=0)
    found = torch.sigmoid(module.decoder(latent, label)).numpy(force=True)
    np.testing.assert_allclose(found, 0.01 + 0.98 * clipped, atol=3e-3)


def test_the_loss_is_minus_the_elbo():
    module, rows, noise = _module(0.3, n_monte_carlo=3), _rows(), torch.randn(6, 3, N_LATENT)
    variance, expected = 0.01, []
    for row, draws in zip(rows, noise):
        pixels, mean, label = row.split((N_PIXELS, N_LATENT, N_GAUSSIANS))
        logs = []
        for draw in draws:
            chance = torch.sigmoid(module.decoder((mean + math.sqrt(variance) * draw)[None], label[None]))[0]
            logs.append((pixels * chance.log() + (1 - pixels) * (1 - chance).log()).sum())
        encoder = torch.distributions.Normal(mean, math.sqrt(variance))
        divergence = torch.distributions.kl_divergence(encoder, torch.distributions.Normal(0.0, 1.0)).sum()
        expected.append(divergence - torch.stack(logs).mean())
    torch.testing.assert_close(module(rows, noise), torch.stack(expected))


def test_a_record_without_a_gaussian_counts_nothing():
    module, rows, noise = _module(0.3), _rows(), torch.randn(6, 1, N_LATENT)
    rows[2, N_PIXELS + N_LATENT :] = 0.0
    losses = module(rows, noise)
    assert losses[2] == 0
    for p, gradient in zip(module.network.parameters(), torch.autograd.grad(losses[2], [*module.network.parameters()])):
        assert not gradient.any(), p.shape


@pytest.mark.parametrize("n_hidden", [(), 4])
@pytest.mark.parametrize("n_labels", [0, N_GAUSSIANS])
def test_records_are_kept_apart_on_the_fast_path(n_hidden, n_labels):
    released = RELEASED if n_labels else {name: value[:1] for name, value in RELEASED.items()}
    settings = {**released, "n_labels": n_labels, "n_hidden": n_hidden}
    net = DPNet(ImageRefinementModule, **{f"module__{name}": value for name, value in settings.items()})
    net.check(np.zeros((4, N_PIXELS + N_LATENT + n_labels), dtype=np.float32))
    assert net.path_ == "fast"


def test_training_without_noise_lowers_the_loss():
    rows = _rows(300)
    plan = DPSGDPlan(sampling_rate=1.0, steps=40, l2_bound=1.0, noise_multiplier=0.0, expected_batch_size=300)
    net = DPNet(ImageRefinementModule, plan=plan, lr=0.02, random_state=0, verbose=0)
    settings = {**RELEASED, "n_labels": N_GAUSSIANS}
    net.set_params(**{f"module__{name}": value for name, value in settings.items()}).initialize()
    noise = torch.randn(300, 1, N_LATENT)
    before = float(net.module_(rows, noise).detach().mean())
    net.partial_fit(rows.numpy())
    assert float(net.module_(rows, noise).detach().mean()) < before - 0.1
