"""Torch's global random generators: seeded or replaced for a block of code by one thread at a time, then restored.

They belong to the whole process. Code of this package holds `torch_lock` while it seeds or replaces them, so that no
thread draws from the state of another one.
"""

from __future__ import annotations

import contextlib
import os
import threading

import numpy as np
import torch

# The generator of the CPU is a Mersenne twister; its state holds 624 words of 32 bits, each in 8 bytes, from this byte.
_WORDS, _OFFSET = 624, 24

# Held while torch's process-wide state is changed. Re-entrant: a pass of one network may train another one.
torch_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A fork waits until the generators are restored: a child must get neither a lock that nobody releases, nor the
    # secret state of a fit of its parent.
    os.register_at_fork(
        before=torch_lock.acquire, after_in_parent=torch_lock.release, after_in_child=torch_lock.release
    )


@contextlib.contextmanager
def torch_seeded(seed, devices=()):
    """Seed torch's generators of the CPU and of CUDA devices, and restore them at the end of the block.

    Generators of other devices do not change: ``torch.manual_seed`` would seed them all, and on a machine without such
    devices store every call for later. Other threads of this package wait.

    Of `seed`, the CPU's generator uses the lowest 32 bits. Raises ValueError for a device that is neither a CPU nor
    a CUDA device.
    """
    devices, seed = _cuda_devices(devices), int(seed)
    with _installed([_seeded_state(device, seed) for device in ("cpu", *devices)], devices):
        yield


class SecretGenerators:
    """Secret states of torch's global generators for one fit: installed during its steps, stored here between them.

    The draws of dropout must be secret and must not depend on the rows of other steps. The whole state of the CPU's
    generator is drawn, because its seeds have 32 bits, which can be tried one by one; a CUDA generator gets a seed of
    62 bits. Neither is a cryptographic generator.

    `rng`: source of the states, used once.

    Threads that train at the same time take turns, one pass at a time, and each continues where its last pass ended, so
    the draws of a fit do not depend on the order of the threads. Callbacks and the caller see the generators of the
    process. Other code that draws from the global generators in another thread during a pass shares its draws.
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
        """Install the states of this fit, and restore those of the process at the end of the block."""
        with torch_lock:
            if self._in_place:
                raise RuntimeError("the generators of this fit are installed already: it would repeat its draws")
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
    """Return the state of a generator of the CPU at seed 0, after checking where its words are.

    Raises RuntimeError: this release of torch stores them elsewhere.
    """
    state = torch.Generator().manual_seed(0).get_state()
    found = state.numpy()[_OFFSET : _OFFSET + 8 * _WORDS].view(np.uint64) if state.numel() > _OFFSET else ()
    if not np.array_equal(found, np.random.RandomState(0).get_state()[1]):
        raise RuntimeError(
            f"torch {torch.__version__} stores the state of its random generator in a form that skdpgen does not "
            "know, so dropout cannot be seeded secretly: use another release of torch"
        )
    return state


def _cuda_devices(devices):
    devices = [devices] if isinstance(devices, str | torch.device) or devices is None else devices
    devices = [torch.device("cpu" if device is None else device) for device in devices]
    if other := sorted({device.type for device in devices} - {"cpu", "cuda"}):
        raise ValueError(f"device must be a CPU or a CUDA device; got {', '.join(other)}")
    return [device for device in devices if device.type == "cuda"]
