"""A net's modules and criteria as functions from rows to losses: what the aggregators of DP-SGD differentiate."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils._pytree import tree_map

__all__ = ["NetGroupLoss", "NetLoss", "chunk_inputs", "made_up_groups"]


class NetLoss(nn.Module):
    """A net's modules and criteria as one module from (X, extras) to losses of shape (batch,)."""

    def __init__(self, net):
        super().__init__()
        for name in net._modules + net._criteria:
            part = getattr(net, name + "_")
            if isinstance(part, nn.Module):
                self.add_module(name, part)
        self._net = [net]  # in a list, so that torch does not look into it

    def forward(self, X, extras):
        net = self._net[0]
        noise = {} if "noise" not in extras else {"noise": extras["noise"]}
        return net.get_loss(net.infer(X, **noise), extras.get("y"), X=X, training=True)


class NetGroupLoss(NetLoss):
    """The same modules, from the rows of groups to the losses of the groups, shape (n_groups,)."""

    def forward(self, X, extras, groups):
        known = {"noise": extras.get("noise"), "y": extras.get("y"), "group_noise": groups.get("noise")}
        given = {name: value for name, value in known.items() if value is not None}
        return self._net[0].module_.group_losses(X, groups["members"], **given)


def chunk_inputs(chunk):
    """What `NetLoss` takes, without entries that are absent."""
    return chunk.X, {key: x for key, x in (("y", chunk.y), ("noise", chunk.noise)) if x is not None}


def made_up_groups(chunk, group_noise_shape, least=2):
    """Three made-up groups of `least` records and of one and two more, as `NetGroupLoss` takes them.

    Of `chunk`, shapes alone are read.
    """
    generator, length = torch.Generator().manual_seed(0), least + 2

    def some(x):
        values = torch.rand((3, length, *x.shape[1:]), generator=generator)
        return values.to(x.device, x.dtype) if x.is_floating_point() else x.new_zeros((3, length, *x.shape[1:]))

    inputs = tree_map(some, chunk_inputs(chunk))
    rows = inputs[0] if isinstance(inputs[0], torch.Tensor) else chunk.mask.float()
    like = rows if rows.is_floating_point() else rows.float()
    groups = {
        "members": (torch.arange(length) < torch.tensor([[length], [least], [least + 1]])).to(like.device, like.dtype)
    }
    if group_noise_shape is not None:
        groups["noise"] = torch.randn((3, *group_noise_shape), generator=generator).to(like.device, like.dtype)
    return (*inputs, groups)
