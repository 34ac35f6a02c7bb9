"""DP2-VAE's networks: gradients of likelihoods, shapes, the order of patches, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skdpgen.nn._dp2vae import (
    ARCHITECTURES,
    LIKELIHOODS,
    check_modules,
    in_patch_order,
    make_decoder,
    make_encoder,
    spread_latents,
)

BERNOULLI = LIKELIHOODS["bernoulli"]()


def test_gradients_of_likelihoods_are_those_of_their_logarithms():
    torch.manual_seed(0)
    x = torch.rand(3, 4, 5)
    output = torch.randn(3, 4, 5, requires_grad=True)
    loss = nn.functional.binary_cross_entropy_with_logits(output, x, reduction="sum")
    torch.testing.assert_close(torch.autograd.grad(loss, output)[0], BERNOULLI.gradient(output.detach(), x))
    output = torch.randn(3, 4, 10, requires_grad=True)
    mean, log_scale = output.chunk(2, dim=-1)
    loss = -torch.distributions.Normal(mean, log_scale.clamp(-5, 1).exp()).log_prob(x).sum()
    found, expected = LIKELIHOODS["gaussian"]().gradient(output.detach(), x), torch.autograd.grad(loss, output)[0]
    inside = torch.cat([torch.ones_like(mean), (log_scale < 1).float()], -1).bool()
    torch.testing.assert_close(found[inside], expected[inside], rtol=1e-4, atol=1e-5)
    one_hot = torch.cat([torch.eye(2)[torch.randint(2, (3, 4))], torch.eye(3)[torch.randint(3, (3, 4))]], -1)
    one_hot[0, 0] = 0  # a row that holds no level
    output = torch.randn(3, 4, 5, requires_grad=True)
    parts = [block.log_softmax(-1) for block in output.split([2, 3], -1)]
    loss = -(torch.cat(parts, -1) * one_hot).sum()
    torch.testing.assert_close(
        LIKELIHOODS["table"]([2, 3]).gradient(output.detach(), one_hot), torch.autograd.grad(loss, output)[0]
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("shape", [(10, 7), (9, 12, 3)])
def test_architectures_give_rows_of_their_images(architecture, shape):
    n = int(np.prod(shape))
    encoder = make_encoder(architecture, n, 3, 4, image_shape=shape)
    decoder = make_decoder(architecture, n, 3, 4, image_shape=shape)
    check_modules(encoder, decoder)
    with torch.no_grad():
        assert encoder(torch.rand(2, n), torch.eye(3)[:2]).shape == (2, 8)
        assert decoder(torch.rand(2, 4), torch.eye(3)[:2]).shape == (2, n)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_latents_of_random_encoders_differ_from_row_to_row(architecture):
    torch.manual_seed(0)
    encoder = make_encoder(architecture, 784, 3, 4, image_shape=(28, 28))
    rows, label = torch.rand(200, 784), torch.zeros(200, 3)
    before = encoder(rows, label).detach().std(0)[:4].mean()
    spread_latents(encoder, 784, 3, seed=0)
    means, log_variances = encoder(rows, label).detach().chunk(2, dim=-1)
    assert before < 0.1  # far below the deviation of the latents, 1 at first
    assert means.std(0).mean().item() == pytest.approx(0.5, rel=0.15)
    assert means.mean(0).abs().max() < 0.15
    assert (log_variances == -3).all()
    again = make_encoder(architecture, 784, 3, 4, image_shape=(28, 28))
    again.load_state_dict(encoder.state_dict())
    spread_latents(again, 784, 3, seed=0)  # the scale has been reached
    torch.testing.assert_close(again(rows, label), encoder(rows, label), rtol=1e-3, atol=1e-4)


def test_patches_are_cut_and_joined_without_loss():
    encoder, decoder = (make("patches", 77, 0, 2, image_shape=(11, 7)) for make in (make_encoder, make_decoder))
    x = torch.rand(3, 77)
    torch.testing.assert_close(decoder.grid.join(encoder.grid.split(x)), x)
    assert in_patch_order(encoder, decoder, BERNOULLI)[2] is None  # sides that are no multiples of 4 are padded


@pytest.mark.parametrize("shape", [(8, 12), (8, 4, 3)])
def test_networks_in_the_order_of_patches_are_the_same_networks(shape):
    n = int(np.prod(shape))
    encoder, decoder = (make("patches", n, 2, 3, image_shape=shape) for make in (make_encoder, make_decoder))
    inner, outer, order = in_patch_order(encoder, decoder, BERNOULLI)
    x, z, label = torch.rand(5, n), torch.randn(5, 3), torch.eye(2)[[0, 1, 0, 0, 1]]
    assert sorted(order.tolist()) == list(range(n))
    torch.testing.assert_close(inner(x[:, order], label), encoder(x, label))
    torch.testing.assert_close(outer(z, label), decoder(z, label)[:, order])
    assert not encoder.grid.ordered
    assert in_patch_order(encoder, decoder, LIKELIHOODS["gaussian"]())[2] is None


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "GroupNorm"),
        (nn.Sequential(nn.Linear(3, 3), nn.Dropout()), "keyed"),
        (nn.ReLU(), "nothing to train"),
        ("net", "torch module"),
    ],
)
def test_modules_that_mix_records_or_draw_unkeyed_are_refused(module, told):
    for pair in ((module, nn.Linear(1, 1)), (nn.Linear(1, 1), module)):
        with pytest.raises(ValueError, match=told):
            check_modules(*pair)


def test_a_module_shared_between_encoder_and_decoder_is_refused():
    shared = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="common to all encoders"):
        check_modules(nn.Sequential(shared), nn.Sequential(shared, nn.Linear(3, 1)))
