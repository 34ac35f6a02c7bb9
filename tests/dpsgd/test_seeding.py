"""Torch's generators are seeded for a while, given back, and by more secret bits than can be tried."""

from __future__ import annotations

import copy
import os
import pickle
import threading

import numpy as np
import pytest
import torch

from skdpgen.dpsgd import _seeding as seeding
from skdpgen.dpsgd._seeding import SecretGenerators, check_generators, generator_states, torch_lock, torch_seeded
from skdpgen.utils.noise import make_noise_generator


def test_generators_are_given_back_also_after_an_error():
    before = torch.get_rng_state()
    with torch_seeded(3):
        first = torch.rand(4)
        with torch_seeded(3):
            assert torch.equal(torch.rand(4), first)
    draws = SecretGenerators(make_noise_generator())
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(KeyError), draws.in_place():
        raise KeyError(float(torch.rand(())))
    assert torch.equal(torch.get_rng_state(), before)


class Known:
    """Bytes of our own in the place of the noise generator's; the seed of CUDA is always the same."""

    def __init__(self, last):
        self.words = np.arange(624, dtype=np.uint32)
        self.words[-1] = last

    def integers(self, high):
        return 5

    def random_bytes(self, n):
        return self.words.tobytes()[:n]


def test_every_bit_of_the_state_is_drawn():
    draws = []
    for last in (1, 1, 2):  # one seed, another last word
        with SecretGenerators(Known(last)).in_place():
            draws.append(torch.randint(2**31, (2000,)))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": Known(1).words, "pos": 624}}
    with SecretGenerators(Known(1)).in_place():
        drawn = torch.randint(2**31, (3,)).tolist()
    assert set(drawn) <= {int(word) % 2**31 for word in twister.random_raw(6)}  # a draw may take two words


def test_a_torch_whose_generator_looks_otherwise_is_refused(monkeypatch):
    check_generators()
    monkeypatch.setattr(seeding, "_OFFSET", 32)
    with pytest.raises(RuntimeError, match="in a form that skdpgen does not know"):
        check_generators()


def test_devices_that_nobody_would_seed_are_refused():
    with pytest.raises(ValueError, match="CPU or a CUDA device; got xpu"), torch_seeded(0, "xpu"):
        pass
    with torch_seeded(0, None), torch_seeded(0, {torch.device("cpu")}):
        pass


def test_a_fit_goes_on_with_its_own_draws_whatever_is_drawn_in_between():
    draws = SecretGenerators(Known(1))
    with draws.in_place():
        alone = torch.rand(6)
    draws, other = SecretGenerators(Known(1)), SecretGenerators(Known(2))
    parts = []
    for _ in range(3):
        with draws.in_place():
            parts.append(torch.rand(2))
        with other.in_place():
            torch.rand(5)
        torch.rand(7)
    assert torch.equal(torch.cat(parts), alone)


def test_draws_are_never_repeated_by_a_copy_or_from_within():
    draws = SecretGenerators(make_noise_generator())
    for make_copy in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="share their draws"):
            make_copy(draws)
    with draws.in_place(), pytest.raises(RuntimeError, match="repeat its draws"), draws.in_place():
        pass
    with draws.in_place():  # and the refusal left it in order
        torch.rand(1)


def test_other_threads_wait_and_the_same_thread_does_not():
    order = []

    def other():
        with torch_seeded(1):
            order.append("other")

    thread = threading.Thread(target=other)
    with SecretGenerators(make_noise_generator()).in_place():
        thread.start()
        thread.join(0.05)
        with torch_seeded(0), torch_lock:
            order.append("own")
    thread.join()
    assert order == ["own", "other"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_the_generators_and_leaves_the_child_a_free_lock():
    before, inside = generator_states()[0], threading.Event()
    draws = SecretGenerators(make_noise_generator())

    def hold():
        with draws.in_place():
            inside.set()
            threading.Event().wait(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:  # no secret state, and nothing that hangs
        free = torch.equal(generator_states()[0], before)
        with torch_seeded(0):
            os._exit(0 if free else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with torch_lock:
        child = os.fork()  # by the thread that has the lock
        if child == 0:
            with torch_seeded(0):
                os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_generators_of_a_cuda_device_are_secret_and_given_back():
    before = torch.cuda.get_rng_state()
    draws, other = SecretGenerators(make_noise_generator(), "cuda"), SecretGenerators(make_noise_generator(), "cuda")
    with draws.in_place():
        first = torch.rand(8, device="cuda")
    with other.in_place():
        assert not torch.equal(torch.rand(8, device="cuda"), first)
    with draws.in_place():
        assert not torch.equal(torch.rand(8, device="cuda"), first)
    with torch_seeded(3, "cuda"):
        seeded = torch.rand(8, device="cuda")
    with torch_seeded(3, "cuda"):
        assert torch.equal(torch.rand(8, device="cuda"), seeded)
    assert torch.equal(torch.cuda.get_rng_state(), before)
