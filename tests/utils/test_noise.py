from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from _claims import assert_noise_at_scale
from _forks import in_a_fork
from scipy import stats

from skdpgen.audit._runs import noise_scaled
from skdpgen.exceptions import PrivacyLeakWarning
from skdpgen.testing import seeded_noise
from skdpgen.utils import noise as noise_module
from skdpgen.utils import watching
from skdpgen.utils.noise import NoiseGenerator, make_noise_generator, override_noise, public_noise
from skdpgen.utils.watching import Replay, replay_releases, tell_release, unwatched, watch_releases, watched

pytestmark = pytest.mark.system_noise

KINDS = ["secure", "fast"]


@pytest.mark.parametrize("kind", KINDS)
def test_normals_are_normal(kind):
    normals = make_noise_generator(kind).standard_normal((1000, 201))
    assert normals.shape == (1000, 201)
    assert normals.dtype == np.float64
    assert_noise_at_scale(normals, 1.0)
    assert stats.kstest(normals.ravel(), "norm").pvalue > 1e-5
    # both halves of each Box-Muller pair, and neighbours, are uncorrelated
    flat = normals.ravel()[:200_000]
    for lag in (1, 1 << 14):
        assert abs(np.corrcoef(flat[:-lag], flat[lag:])[0, 1]) < 0.012


def test_the_tail_is_that_of_64_bits():
    rng = make_noise_generator("fast")
    rng._words = lambda n: np.zeros(n, dtype=np.uint64)
    assert rng.standard_normal() == pytest.approx((2 * 64 * np.log(2)) ** 0.5)
    rng._words = lambda n: np.full(n, 2**64 - 1, dtype=np.uint64)
    assert np.isfinite(rng.standard_normal(4)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [None, 0, 1, 3, (2, 5), 2**15 + 1])
def test_draws_have_the_size_asked_for(kind, size):
    rng = make_noise_generator(kind)
    for draw in (rng.standard_normal, rng.random, lambda s: rng.integers(5, s)):
        drawn = draw(size)
        if size is None:
            assert isinstance(drawn, float | int)
        else:
            assert drawn.shape == np.empty(size).shape
    assert rng.random_bytes(13).shape == (13,)


@pytest.mark.parametrize("kind", KINDS)
def test_uniforms_and_integers_are_uniform(kind):
    rng = make_noise_generator(kind)
    uniforms = rng.random(100_000)
    assert uniforms.min() >= 0
    assert uniforms.max() < 1
    assert stats.kstest(uniforms, "uniform").pvalue > 1e-5
    counts = np.bincount(rng.integers(7, 70_000), minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-5
    assert np.unpackbits(rng.random_bytes(40_000)).mean() == pytest.approx(0.5, abs=0.005)


def test_integers_are_drawn_again_past_the_last_whole_multiple():
    rng = make_noise_generator("fast")
    words = iter([np.array([2**64 - 1, 5], dtype=np.uint64), np.array([4], dtype=np.uint64)])
    rng._words = lambda n: next(words)
    assert rng.integers(3, 2).tolist() == [1, 2]
    with pytest.raises(ValueError, match="high"):
        rng.integers(0)


@pytest.mark.parametrize("kind", KINDS)
def test_two_generators_differ_and_one_does_not_repeat(kind):
    one, other = make_noise_generator(kind), make_noise_generator(kind)
    draws = [one.standard_normal(4), other.standard_normal(4), one.standard_normal(4)]
    assert len({tuple(d) for d in draws}) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_generator_cannot_be_pickled_or_copied(kind, copier):
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copier(make_noise_generator(kind))


def test_a_generator_cannot_be_used_after_a_fork(monkeypatch):
    rng = make_noise_generator("fast")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="fork"):
        rng.standard_normal()


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.parametrize("same_number", [False, True])
def test_a_forked_child_draws_nothing(same_number):
    """Also in a separate container, where it may have the process number of its parent."""
    rng, number = make_noise_generator(), os.getpid()

    def draw():
        if same_number:
            os.getpid = lambda: number  # of the child alone, which ends with this call
        rng.random(1)

    assert "after a fork" in in_a_fork(draw)
    assert 0 <= rng.random() < 1


def test_the_kind_is_checked_and_described():
    with pytest.raises(ValueError, match="noise must be one of"):
        make_noise_generator("seeded")
    with pytest.raises(ValueError, match="seed"):
        NoiseGenerator("fast", seed=1)
    with pytest.raises(ValueError, match="seed"):
        NoiseGenerator("seeded")
    assert "AES" in make_noise_generator().description
    assert "64-bit" in make_noise_generator("fast").description
    assert make_noise_generator().private
    assert make_noise_generator("fast").private


def test_seeded_noise_repeats_and_says_it_is_not_private():
    def draws():
        return [make_noise_generator(kind).standard_normal(3).tolist() for kind in KINDS]

    with seeded_noise(3, quiet=True):
        first = draws()
        assert not make_noise_generator().private
        assert "NOT PRIVATE" in make_noise_generator().description
    with seeded_noise(3, quiet=True):
        assert draws() == first
    with seeded_noise(4, quiet=True):
        assert draws() != first
    assert first[0] != first[1]
    assert make_noise_generator().private
    with seeded_noise(), pytest.warns(PrivacyLeakWarning, match="NOT private"):
        make_noise_generator()


def _overlapping(blocks, inside):
    """Enter each block in a thread of its own, leave them in the order in which they were entered; ask in between."""
    entered, leave = [threading.Event() for _ in blocks], [threading.Event() for _ in blocks]
    left = [threading.Event() for _ in blocks]

    def hold(k):
        with blocks[k]:
            entered[k].set()
            leave[k].wait(30)
        left[k].set()

    threads = [threading.Thread(target=hold, args=(k,)) for k in range(len(blocks))]
    told = []
    for k, thread in enumerate(threads):
        thread.start()
        assert entered[k].wait(30)
    told.append(inside())
    for k, thread in enumerate(threads):
        leave[k].set()
        assert left[k].wait(30)
        thread.join()
        told.append(inside())
    return told


def _kinds_beside_seeded_noise():
    return _overlapping([seeded_noise(0, quiet=True) for _ in range(3)], lambda: make_noise_generator().kind)


def _watched_beside_watchers():
    seen = []

    def release():
        tell_release(np.ones(2), 1.0)
        return watched()

    blocks = [watch_releases(lambda *release: seen.append(release)) for _ in range(3)]
    return _overlapping(blocks, release), len(seen)


def test_seeded_noise_of_other_threads_is_not_ours():
    assert _kinds_beside_seeded_noise() == ["secure"] * 4


def test_releases_are_told_to_watchers_of_their_own_thread():
    assert _watched_beside_watchers() == ([False] * 4, 0)


class _OfTheProcess:
    """A context variable that all threads share."""

    def __init__(self):
        self._value = None

    def get(self):
        return self._value

    def set(self, value):
        before, self._value = self._value, value
        return before

    reset = set


def test_a_setting_that_threads_share_is_caught(monkeypatch):
    monkeypatch.setattr(noise_module, "_override", _OfTheProcess())
    # the last to leave puts back what it found: the noise of another thread, for good
    assert _kinds_beside_seeded_noise() == ["seeded", "secure", "seeded", "seeded"]
    monkeypatch.setattr(watching, "_observer", _OfTheProcess())
    told, seen = _watched_beside_watchers()
    assert told == [True, False, True, True]
    assert seen == 3


def test_a_block_inside_a_block_gives_the_outer_one_back():
    with override_noise(lambda kind: "outer"):
        with override_noise(lambda kind: "inner"):
            assert make_noise_generator() == "inner"
        assert make_noise_generator() == "outer"
    assert make_noise_generator().kind == "secure"


BLOCKS = {
    "public noise": public_noise,
    "noise in place of another": lambda: override_noise(lambda kind: NoiseGenerator("seeded", seed=0)),
    "seeded noise": lambda: seeded_noise(0, quiet=True),
    "scaled noise": lambda: noise_scaled(0.5),
    "an observer": lambda: watch_releases(lambda *release: None),
    "a replay": lambda: replay_releases(Replay()),
}


def fail_in(block):
    with block():
        assert watched() or not make_noise_generator().private, "the block does nothing"
        raise ZeroDivisionError


def a_block_ends_with_an_error_too(name):
    """A fit in it may fail, and the next fit of the thread must have its own noise, and be seen by nobody."""
    with pytest.raises(ZeroDivisionError):
        fail_in(BLOCKS[name])
    made = make_noise_generator()
    assert (made.kind, made.private, type(made), watched()) == ("secure", True, NoiseGenerator, False)
    with watch_releases(lambda *release: None):
        with pytest.raises(ZeroDivisionError), unwatched():
            raise ZeroDivisionError
        assert watched()


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_ends_with_an_error_too(name):
    in_another_thread(lambda: a_block_ends_with_an_error_too(name))


def test_sabotage_of_the_end_of_a_block_is_caught(monkeypatch):
    @contextmanager
    def without_end():
        noise_module._public.set(True)
        yield

    monkeypatch.setitem(BLOCKS, "public noise", without_end)
    with pytest.raises(AssertionError, match="seeded"):
        in_another_thread(lambda: a_block_ends_with_an_error_too("public noise"))


def in_another_thread(check):
    """A setting that stays is then one of that thread alone."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(check).result()


def test_an_observer_gets_copies_and_cannot_substitute_a_release():
    def observer(released, sd, kind):
        released[:] = 7.0
        return np.zeros(2)

    released = np.ones(2)
    with watch_releases(observer):
        assert tell_release(released, 1.0) is released
    assert released.tolist() == [1.0, 1.0]


def test_a_replay_substitutes_under_seeded_noise_alone_and_hooks_do_not_reach_into_an_unwatched_block():
    class Zeros(Replay):
        def release(self, released, sd, kind, query):
            return np.zeros_like(released)

    seen = []
    with watch_releases(lambda *release: seen.append(release[0].tolist())), replay_releases(Zeros()):
        assert tell_release(np.ones(2), 1.0, seeded=True).tolist() == [0.0, 0.0]
        with pytest.raises(RuntimeError, match="seeded noise alone"):
            tell_release(np.ones(2), 1.0)
        with unwatched():
            assert not watched()
            assert tell_release(np.ones(2), 1.0).tolist() == [1.0, 1.0]
    assert seen == [[0.0, 0.0]]
