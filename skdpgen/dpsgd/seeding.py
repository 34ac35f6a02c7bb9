"""Torch's global generators at a seed of ours for a while: the caller's are neither read nor moved."""

from __future__ import annotations

import contextlib

import numpy as np
import torch

__all__ = ["check_generators", "torch_seeded", "torch_seeded_secretly"]

# The generator of the CPU is a Mersenne twister; its state holds 624 words of 32 bits, each in 8 bytes, from this byte.
_WORDS, _OFFSET = 624, 24


@contextlib.contextmanager
def torch_seeded(seed, devices=()):
    """Seed torch's generators of the CPU and of CUDA devices, and give them back afterwards.

    Those of other devices are left alone: ``torch.manual_seed`` would seed them all, and on a machine without them
    keep a note of every call for the day they come.

    Parameters
    ----------
    seed : int
        Of which the CPU takes the lowest 32 bits.
    devices : str, torch.device, None, or iterable of them, default=()

    Raises
    ------
    ValueError
        For a device that is neither a CPU nor a CUDA device.
    """
    with torch.random.fork_rng(devices=_cuda_devices(devices)):
        _seed(int(seed), devices)
        yield


@contextlib.contextmanager
def torch_seeded_secretly(rng, devices=()):
    """As `torch_seeded`, by bits of the noise generator: what dropout draws must not be guessed, nor hang on the rows.

    The whole state of the CPU's generator is drawn, as a seed of it has 32 bits, which can be tried one by one; a CUDA
    generator gets 62. Neither is a cryptographic generator.

    Parameters
    ----------
    rng : NoiseGenerator
    devices : as in `torch_seeded`
    """
    with torch.random.fork_rng(devices=_cuda_devices(devices)):
        _seed(int(rng.integers(2**62)), devices)
        words = np.frombuffer(rng.random_bytes(4 * _WORDS), dtype=np.uint32)
        state = check_generators()
        state.numpy()[_OFFSET : _OFFSET + 8 * _WORDS].view(np.uint64)[:] = words
        torch.default_generator.set_state(state)
        yield


def check_generators():
    """Return the state of a generator of the CPU at seed 0, whose words are where we look for them.

    Raises
    ------
    RuntimeError
        This release of torch keeps them elsewhere.
    """
    state = torch.Generator().manual_seed(0).get_state()
    found = state.numpy()[_OFFSET : _OFFSET + 8 * _WORDS].view(np.uint64) if state.numel() > _OFFSET else ()
    if not np.array_equal(found, np.random.RandomState(0).get_state()[1]):
        raise RuntimeError(
            f"torch {torch.__version__} keeps its random generator in a form that skdpgen does not know, so that "
            "dropout cannot be seeded secretly: use another release of torch"
        )
    return state


def _seed(seed, devices):
    torch.default_generator.manual_seed(seed)
    for device in _cuda_devices(devices):  # pragma: no cover
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _cuda_devices(devices):
    devices = [devices] if isinstance(devices, str | torch.device) or devices is None else devices
    devices = [torch.device("cpu" if device is None else device) for device in devices]
    if other := sorted({device.type for device in devices} - {"cpu", "cuda"}):
        raise ValueError(f"networks train on a CPU or a CUDA device; got {', '.join(other)}")
    return [device for device in devices if device.type == "cuda"]
