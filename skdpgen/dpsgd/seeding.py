"""Torch's global generators at a seed of ours for a while: the caller's are neither read nor moved."""

from __future__ import annotations

import contextlib

import torch

__all__ = ["torch_seeded"]


@contextlib.contextmanager
def torch_seeded(seed, device=None):
    """Seed torch's generators of the CPU, and of `device` where that is a CUDA device; give them back afterwards.

    Those of other devices are left alone: ``torch.manual_seed`` would seed them all, and on a machine without them
    keep a note of every call for the day they come.

    Parameters
    ----------
    seed : int
    device : str or torch.device, default=None
    """
    device = torch.device("cpu" if device is None else device)
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(int(seed))
        if cuda:  # pragma: no cover
            with torch.cuda.device(device):
                torch.cuda.manual_seed(int(seed))
        yield
