"""The network that refines a released mixture of products: where it starts, its gradient, its draws, its anchor."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import ndtri

from skdpgen.dpsgd import DPSGDPlan
from skdpgen.nn import DPNet, TableAnchor, TableRefinementModule

WIDTHS, N_CLASSES, N_POINTS = (2, 3, 2), 2, 5
RNG = np.random.default_rng(3)
RELEASED = {
    "features": RNG.normal(size=(N_CLASSES, N_POINTS, 4)),
    "logits": RNG.normal(size=(N_CLASSES, N_POINTS, sum(WIDTHS))),
    "widths": WIDTHS,
    "shares": np.array([0.3, 0.7]),
    "n_labels": N_CLASSES,
}


def _rows(n=6):
    blocks = [np.eye(width)[RNG.integers(0, width, n)] for width in (*WIDTHS, N_CLASSES)]
    return torch.tensor(np.concatenate(blocks, axis=1), dtype=torch.float32)


def _module(moved=0.0, **parameters):
    torch.manual_seed(0)
    module = TableRefinementModule(**{**RELEASED, "n_hidden": 6, **parameters})
    with torch.no_grad():
        for p in module.network[-1].parameters():
            p.add_(moved * torch.randn(p.shape))
    return module


def _log_likelihood(module, x):
    """Exact, of each row given its class, with gradients."""
    logs = module._log_softmax(module.logits + module.network(module.features)).view(N_CLASSES, N_POINTS, -1)
    given = torch.einsum("bd,kpd->bkp", x[:, : sum(WIDTHS)], logs)
    return ((torch.logsumexp(given, -1) - np.log(N_POINTS)) * x[:, sum(WIDTHS) :]).sum(-1)


def test_before_the_first_step_the_model_is_the_released_one():
    module = _module()
    blocks = torch.tensor(RELEASED["logits"]).flatten(0, 1).split(WIDTHS, -1)
    released = torch.cat([torch.log_softmax(block, -1) for block in blocks], -1)
    torch.testing.assert_close(module.log_probabilities(), released.float())
    assert module.anchor_loss().item() == pytest.approx(0, abs=1e-6)


def test_the_expected_gradient_is_that_of_the_exact_log_likelihood():
    n_draws = 20_000
    module, x = _module(0.5, n_monte_carlo=n_draws), _rows()
    quantiles = torch.tensor(ndtri((np.arange(n_draws) + 0.5) / n_draws), dtype=torch.float32)
    parameters = list(module.network.parameters())
    found = torch.autograd.grad(module(x, quantiles.expand(len(x), -1)).sum(), parameters)
    exact = torch.autograd.grad(-_log_likelihood(module, x).sum(), parameters)
    for one, other in zip(found, exact):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=5e-3)


def test_the_points_of_a_row_do_not_depend_on_the_rows_beside_it():
    module, x, noise = _module(0.5), _rows(200), torch.randn(200, 2)
    codes = torch.stack([block.argmax(-1) for block in x[:, :7].split(WIDTHS, -1)], -1) + module.starts
    whole = module._draw_points(codes, x[:, 7:], noise)
    for part in (slice(0, 1), slice(3, 40), slice(17, 200)):
        assert torch.equal(module._draw_points(codes[part], x[part, 7:], noise[part]), whole[part])


def test_draws_follow_the_parameters_of_every_step():
    module = _module()
    before = module._table()
    assert module._table() is before
    with torch.no_grad():
        module.network[-1].weight.add_(0.1)
    assert not torch.equal(module._table(), before)
    torch.testing.assert_close(module._table().transpose(1, 2).flatten(0, 1), module.log_probabilities())


@pytest.mark.parametrize("n_labels", [0, N_CLASSES])
def test_records_are_kept_apart_on_the_fast_path(n_labels):
    released = {**RELEASED, "n_labels": n_labels}
    if not n_labels:
        released.update({name: RELEASED[name][:1] for name in ("features", "logits")}, shares=None)
    net = DPNet(TableRefinementModule, **{f"module__{name}": value for name, value in released.items()})
    net.check(np.zeros((4, sum(WIDTHS) + n_labels), dtype=np.float32))
    assert net.path_ == "fast"


@pytest.mark.parametrize("n_points", [N_POINTS, 9], ids=["few points", "more points than levels"])
def test_the_anchor_adds_the_gradient_of_the_distance_between_tables(n_points):
    released = {**RELEASED, **{name: RNG.normal(size=(2, n_points, 7)) for name in ("features", "logits")}}
    module = _module(0.5, **released)
    block = torch.tensor(np.repeat(np.arange(3), WIDTHS))
    p, q = (
        module._probabilities(logits) for logits in (module.logits + module.network(module.features), module.logits)
    )
    distance = 0.0
    for k, share in enumerate((0.3, 0.7)):
        pairs, one_way = (p[k].T @ p[k] - q[k].T @ q[k]) / n_points, p[k].mean(0) - q[k].mean(0)
        distance += share**2 * ((pairs * (block[:, None] != block)).square().sum() / 2 + one_way.square().sum())
    torch.testing.assert_close(module.anchor_loss(), distance)

    class Net:
        module_ = module

    parameters = list(module.network.parameters())
    for p in parameters:
        p.grad = torch.ones_like(p)
    expected = torch.autograd.grad(3.0 * distance, parameters)
    TableAnchor(3.0).on_grad_computed(Net)
    for p, gradient in zip(parameters, expected):
        torch.testing.assert_close(p.grad, 1 + gradient)


def test_training_without_noise_raises_the_likelihood_of_rows():
    x = _rows(300)
    x[:, :2] = torch.eye(2)[x[:, 2:5].argmax(-1).clamp_max(1)]  # a dependence that the released model lacks
    plan = DPSGDPlan(sampling_rate=1.0, steps=40, l2_bound=1.0, noise_multiplier=0.0, expected_batch_size=300)
    net = DPNet(TableRefinementModule, plan=plan, lr=0.05, random_state=0, verbose=0)
    net.set_params(**{f"module__{name}": value for name, value in RELEASED.items()}).initialize()
    before = float(_log_likelihood(net.module_, x).detach().mean())
    net.partial_fit(x.numpy())
    assert float(_log_likelihood(net.module_, x).detach().mean()) > before + 0.5
