"""Torch's generators are seeded for a while, given back, and by more secret bits than can be tried."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skdpgen.dpsgd import seeding
from skdpgen.dpsgd.seeding import check_generators, torch_seeded, torch_seeded_secretly
from skdpgen.utils.noise import make_noise_generator


def test_generators_are_given_back_also_after_an_error():
    before = torch.get_rng_state()
    with torch_seeded(3):
        first = torch.rand(4)
        with torch_seeded(3):
            assert torch.equal(torch.rand(4), first)
    with pytest.raises(KeyError), torch_seeded_secretly(make_noise_generator()):
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
        with torch_seeded_secretly(Known(last)):
            draws.append(torch.randint(2**31, (2000,)))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": Known(1).words, "pos": 624}}
    with torch_seeded_secretly(Known(1)):
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
