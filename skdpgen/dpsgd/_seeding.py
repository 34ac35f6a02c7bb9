"""Torch's global generators in the hands of one fit at a time: seeded for a while, and given back as they were.

They belong to the whole process. Whoever of ours seeds or replaces them holds `torch_lock`, so that no thread draws
from the state that another one put there.
"""

from __future__ import annotations

import contextlib
import os
import threading

import numpy as np
import torch

__all__ = ["SecretGenerators", "check_generators", "generator_states", "torch_lock", "torch_seeded"]

# The generator of the CPU is a Mersenne twister; its state holds 624 words of 32 bits, each in 8 bytes, from this byte.
_WORDS, _OFFSET = 624, 24

# Held while torch's process-wide state is ours. Re-entrant: a network may be trained from within another one's pass.
torch_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A fork waits until the generators are given back: a child must not get a lock that nobody releases, nor the
    # secret state of a fit of its parent.
    os.register_at_fork(
        before=torch_lock.acquire, after_in_parent=torch_lock.release, after_in_child=torch_lock.release
    )


@contextlib.contextmanager
def torch_seeded(seed, devices=()):
    """Seed torch's generators of the CPU and of CUDA devices, and give them back afterwards.

    Those of other devices are left alone: ``torch.manual_seed`` would seed them all, and on a machine without them
    keep a note of every call for the day they come. Other threads of ours wait for their turn.

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
    devices, seed = _cuda_devices(devices), int(seed)
    with _installed([_seeded_state(device, seed) for device in ("cpu", *devices)], devices):
        yield


class SecretGenerators:
    """Torch's global generators as one fit has them: in place within its steps, and kept here between them.

    What dropout draws must not be guessed, nor depend on the rows of other steps. The whole state of the CPU's
    generator is drawn, as a seed of it has 32 bits, which can be tried one by one; a CUDA generator gets 62. Neither
    is a cryptographic generator.

    Parameters
    ----------
    rng : NoiseGenerator
        Gives the bits, once.
    devices : as in `torch_seeded`

    Notes
    -----
    Threads that train at the same time take turns, one pass at a time, and each goes on where its own last pass ended:
    a fit draws the same in whatever order they run. Callbacks and the caller see the generators of the process.
    Code of others that draws from the global generators in another thread, during a pass, shares its draws.
    """

    def __init__(self, rng, devices=()):
        self._devices = _cuda_devices(devices)
        seed = int(rng.integers(2**62))
        words = np.frombuffer(rng.random_bytes(4 * _WORDS), dtype=np.uint32)
        state = check_generators()
        state.numpy()[_OFFSET : _OFFSET + 8 * _WORDS].view(np.uint64)[:] = words
        self._states = [state, *(_seeded_state(device, seed) for device in self._devices)]
        self._in_place = False

    @contextlib.contextmanager
    def in_place(self):
        """Put the states of this fit in the place of the process's, and give those back at the end."""
        with torch_lock:
            if self._in_place:
                raise RuntimeError("the generators of this fit are in place already: it would repeat its draws")
            self._in_place = True
            try:
                with _installed(self._states, self._devices):
                    try:
                        yield
                    finally:
                        self._states = generator_states(self._devices)
            finally:
                self._in_place = False

    def __reduce_ex__(self, protocol):
        raise TypeError("generators cannot be pickled or copied: two trainings would share their draws")


def generator_states(devices=()):
    """Return the states of torch's generators, of the CPU first and then of the CUDA devices among `devices`."""
    cuda = [torch.cuda.get_rng_state(device) for device in _cuda_devices(devices)]
    return [torch.default_generator.get_state(), *cuda]


@contextlib.contextmanager
def _installed(states, devices):
    with torch_lock:
        before = generator_states(devices)
        try:
            _install(states, devices)
            yield
        finally:
            _install(before, devices)


def _install(states, devices):
    torch.default_generator.set_state(states[0])
    for state, device in zip(states[1:], devices):  # pragma: no cover
        torch.cuda.set_rng_state(state, device)


def _seeded_state(device, seed):
    return torch.Generator(device).manual_seed(seed).get_state()


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


def _cuda_devices(devices):
    devices = [devices] if isinstance(devices, str | torch.device) or devices is None else devices
    devices = [torch.device("cpu" if device is None else device) for device in devices]
    if other := sorted({device.type for device in devices} - {"cpu", "cuda"}):
        raise ValueError(f"networks train on a CPU or a CUDA device; got {', '.join(other)}")
    return [device for device in devices if device.type == "cuda"]
