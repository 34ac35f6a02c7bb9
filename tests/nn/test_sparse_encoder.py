"""An encoder that a divergence of each dimension alone can make sparse, where others meet it without being sparse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.privae import hoyer
from skdpgen.dpsgd import choose_path
from skdpgen.nn import LaplaceLikelihood, PriVAEModule, SparseEncoder, SparsePrior

N_LATENT = 20


def rows(n=300, seed=0):
    """Noisy images of 8 x 8 of some blobs, each with a brightness of its own."""
    rng = np.random.default_rng(seed)
    blobs = np.random.default_rng(7).random((6, 64)) ** 4
    weights = rng.dirichlet(np.full(6, 0.3), n) * rng.gamma(2.0, 0.5, (n, 1))
    return torch.from_numpy(weights @ blobs + 0.05 * rng.random((n, 64))).float()


def trained(encoder, steps=60):
    """Train the encoder by the MMD to the sparse prior alone; sparsity of its latents and the MMD that is left."""
    module = PriVAEModule(
        64, N_LATENT, LaplaceLikelihood(), prior=SparsePrior(), divergence="mmd", encoder=encoder, n_prior_samples=64
    )
    optimizer = torch.optim.Adam([p for p in module.encoder.parameters() if p.requires_grad], lr=0.01)
    generator = torch.Generator().manual_seed(0)
    x, members = rows()[None, :64], torch.ones(1, 64)
    for step in range(steps):
        x = rows(64, seed=step)[None]
        noise = torch.randn((1, 64, 1, N_LATENT), generator=generator)
        loss = module.group_losses(x, members, noise, torch.randn((1, 64, 2, N_LATENT), generator=generator)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        mean, log_variance = module.encode(rows(1000, seed=1000))
        drawn = mean + torch.exp(0.5 * log_variance) * torch.randn(mean.shape, generator=generator)
    return hoyer(drawn.numpy()), loss.item()


def test_the_divergence_makes_this_encoder_sparse_and_an_ordinary_one_not():
    torch.manual_seed(0)
    sparse, left = trained(SparseEncoder(64, N_LATENT, image_shape=(8, 8)))
    ordinary, left_too = trained(nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 2 * N_LATENT)))
    print(sparse, ordinary, left, left_too)
    assert max(left, left_too) < 0.1
    assert sparse > ordinary + 0.05


@pytest.mark.parametrize("image_shape", [None, (8, 8)])
def test_means_have_one_length_and_the_features_are_fixed(image_shape):
    encoder = SparseEncoder(64, N_LATENT, image_shape=image_shape, scale=0.5, log_variance=-2.0)
    mean, log_variance = encoder(rows()).chunk(2, dim=-1)
    np.testing.assert_allclose(mean.square().mean(1).sqrt().detach(), 0.5, rtol=1e-2)
    assert (log_variance == -2.0).all()
    assert [name for name, p in encoder.named_parameters() if p.requires_grad] == ["means.weight", "means.bias"]


def test_gradients_of_single_records_are_found_the_fast_way():
    module = PriVAEModule(64, 4, LaplaceLikelihood(), prior=SparsePrior(), encoder=SparseEncoder(64, 4))
    path, _ = choose_path(module, (torch.zeros(3, 64), torch.zeros(3, 1, 4)))
    assert path == "fast"
