"""Clipped gradient sums from the example gradients themselves: slow, memory-hungry, and right for any module."""

from __future__ import annotations

import torch
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_map

__all__ = ["example_gradients_loop", "example_gradients_vmap"]


def _one(tree, i):
    return tree_map(lambda x: x[i : i + 1], tree)


def example_gradients_vmap(root, names, inputs):
    """Gradients of every example's loss by ``torch.func``.

    Parameters
    ----------
    root : Module
        ``root(*inputs)`` gives the losses, shape (batch,).
    names : list of str
        The parameters to differentiate by.
    inputs : tuple of tensors (or trees of tensors) with the batch leading

    Returns
    -------
    list of tensor, each (batch, *parameter shape)
    """
    parameters = dict(root.named_parameters())
    fixed = {name: p.detach() for name, p in parameters.items()}
    fixed.update(root.named_buffers())
    moving = {name: fixed.pop(name) for name in names}

    def loss_of_one(moving, example):
        single = tree_map(lambda x: x.unsqueeze(0), example)
        return functional_call(root, {**fixed, **moving}, single).sum()

    gradients = vmap(grad(loss_of_one), in_dims=(None, 0), randomness="different")(moving, inputs)
    return [gradients[name] for name in names]


def example_gradients_loop(root, names, inputs, batch):
    """As `example_gradients_vmap`, one backward pass an example: for modules that vmap cannot take."""
    named = dict(root.named_parameters())
    parameters = [named[name] for name in names]
    rows = []
    for i in range(batch):
        loss = root(*_one(inputs, i)).sum()
        row = torch.autograd.grad(loss, parameters, allow_unused=True)
        rows.append([torch.zeros_like(p) if r is None else r for p, r in zip(parameters, row)])
    return [torch.stack(column) for column in zip(*rows)]
