"""Callbacks for DPNet that work on released parameters alone, and so cost nothing."""

from __future__ import annotations

import torch
from skorch.callbacks import Callback

__all__ = ["ParameterAverage", "StepCheckpoint"]


def _parameters(net):
    return [p for _, p in net.get_all_learnable_params() if p.requires_grad]


class ParameterAverage(Callback):
    """Exponential moving average of the parameters, which replaces them when training ends.

    Each step's parameters are a release, so their average is post-processing; it takes away much of the noise.

    Parameters
    ----------
    decay : float in [0, 1), default=0.999
        Weight of the past; less in the first steps, ``(1 + t) / (10 + t)``.
    """

    def __init__(self, decay=0.999):
        self.decay = decay

    def on_train_begin(self, net, **kwargs):
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1); got {self.decay!r}")
        self.average_ = [p.detach().clone() for p in _parameters(net)]
        self.step_ = 0

    @torch.no_grad()
    def on_batch_end(self, net, training=True, **kwargs):
        self.step_ += 1
        decay = min(self.decay, (1 + self.step_) / (10 + self.step_))
        for average, p in zip(self.average_, _parameters(net)):
            average.lerp_(p, 1 - decay)

    @torch.no_grad()
    def on_train_end(self, net, **kwargs):
        for p, average in zip(_parameters(net), self.average_):
            p.copy_(average)


class StepCheckpoint(Callback):
    """Keep the parameters of every `every`-th step: fixed in advance, so choosing nothing by private values.

    Parameters
    ----------
    every : int, default=100

    Attributes
    ----------
    checkpoints_ : dict of int to state dict
        Step -> parameters of the module, on the CPU.
    """

    def __init__(self, every=100):
        self.every = every

    def on_train_begin(self, net, **kwargs):
        self.checkpoints_ = {}

    def on_batch_end(self, net, step=None, training=True, **kwargs):
        if step is not None and step % self.every == 0:
            state = net.module_.state_dict()
            self.checkpoints_[step] = {name: value.detach().cpu().clone() for name, value in state.items()}
