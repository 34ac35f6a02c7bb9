"""Noise and draws across the blocks that they are made in: no bits twice, none left out, all tails there."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from skdpgen._types import BoundedSum
from skdpgen.dpsgd import ClippedSum, DPSGDPlan, GradientNoise, PoissonLoader, poisson_batches
from skdpgen.dpsgd import _loader as loader_module
from skdpgen.dpsgd import _noise as noise
from skdpgen.dpsgd._noise import NormalStream, fill_fast, fill_secure
from skdpgen.dpsgd._subsets import SubsetPlan, hash_subsets
from skdpgen.dpsgd._termwise import TermwiseAggregate, TermwisePlan
from skdpgen.utils import noise as generators
from skdpgen.utils.noise import NoiseGenerator, make_noise_generator

KEY = bytes(range(32))
# One tensor within a piece, one over many of them, tensors that share a piece, and a last piece that is not full.
SHAPES = [(3,), (37,), (5, 2), (1,), (2,)]
SIZE = 53


class Bits:
    """Bytes that are known, in the place of a generator's; remembers how many were asked for."""

    private = True

    def __init__(self, kind="secure", key=KEY):
        self.kind, self.key, self.asked = kind, key, []

    def random_bytes(self, n):
        self.asked.append(n)
        return np.resize(np.frombuffer(self.key, dtype=np.uint8), n)


def flat(tensors):
    return torch.cat([t.flatten() for t in tensors]).double().numpy()


def bounded(value=0.0, dtype=torch.float32):
    return BoundedSum([torch.full(shape, value, dtype=dtype) for shape in SHAPES], add_or_remove_one=2.0)


def expected_noise(kind, steps, piece, std):
    """The noise of each step, drawn piece after piece from a stream of the same key."""
    stream = NormalStream(KEY, SIZE, kind, piece=piece)
    scratch, drawn = stream.scratch(), []
    for _ in range(steps):
        normals = np.empty(SIZE, dtype=np.float32 if kind == "fast" else np.float64)
        for k in range(len(stream)):
            start, stop = stream.span(k)
            if kind == "fast":
                fill_fast(stream.words(k, scratch), scratch, normals[start:stop], std)
            else:
                fill_secure(stream.words(k, scratch), scratch, normals[start:stop])
        drawn.append(normals.astype(np.float64) * (1.0 if kind == "fast" else 2.0**-30 * std))
    return np.array(drawn)


# ---- bits ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["secure", "fast"])
def test_no_block_of_the_cipher_is_used_twice_however_many_steps(kind):
    """Each block that was drawn is decrypted: its counter tells where in the stream of the key it is from."""
    decrypt = Cipher(algorithms.AES(KEY), modes.ECB()).decryptor()
    stream = NormalStream(KEY, 44, kind, piece=8)
    scratch, counters = stream.scratch(), [[] for _ in range(len(stream))]
    for _ in range(9):
        for k in range(len(stream)):
            whole = stream.words(k, scratch).tobytes()
            blocks = decrypt.update(whole[: len(whole) // 16 * 16])
            counters[k] += [int.from_bytes(blocks[i : i + 16], "big") for i in range(0, len(blocks), 16)]
    used = [counter for piece in counters for counter in piece]
    assert len(set(used)) == len(used)
    # room for more steps than will ever be taken, at the real size of a piece: 2**16 blocks
    for one, other in itertools.combinations(counters, 2):
        assert abs(one[0] - other[0]) >= 2**40 * 2**16


@pytest.mark.parametrize("kind", ["secure", "fast"])
def test_words_of_all_pieces_and_steps_are_distinct(kind):
    stream = NormalStream(KEY, 1000, kind, piece=16)
    scratch = stream.scratch()
    words = np.concatenate([stream.words(k, scratch).copy() for _ in range(40) for k in range(len(stream))])
    assert len(np.unique(words)) == len(words)
    assert abs(np.unpackbits(words.view(np.uint8)).mean() - 0.5) < 5 * 0.5 / (64 * len(words)) ** 0.5


def test_a_key_has_256_bits_all_of_which_matter():
    bits = Bits()
    with GradientNoise(SHAPES, 1.0, bits) as source:
        source.release(bounded())
    assert bits.asked == [32]
    firsts = set()
    for bit in range(256):
        key = bytearray(KEY)
        key[bit // 8] ^= 1 << bit % 8
        stream = NormalStream(bytes(key), 2, "secure")
        firsts.add(int(stream.words(0, stream.scratch())[0]))
    assert len(firsts) == 256
    words = make_noise_generator().random_bytes(32).view(np.uint64)
    assert len(set(words.tolist())) == 4


def test_the_operating_system_gives_the_whole_key():
    asked, urandom = [], generators.os.urandom
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generators.os, "urandom", lambda n: asked.append(n) or urandom(n))
        NoiseGenerator("secure")
    assert asked == [32]


@pytest.mark.parametrize("kind", ["secure", "fast", "seeded"])
def test_draws_of_a_generator_do_not_repeat_over_its_blocks(kind):
    rng = NoiseGenerator(kind, chunk=4, **({"seed": 3} if kind == "seeded" else {}))
    words = np.concatenate([rng.random_bytes(8 * n).view(np.uint64) for n in (1, 7, 8, 9, 64, 201)])
    assert len(np.unique(words)) == len(words)
    normals = np.concatenate([rng.standard_normal(n) for n in (1, 7, 8, 9, 16, 17, 201)])
    assert len(np.unique(normals)) == len(normals)


@pytest.mark.parametrize("kind", ["secure", "seeded"])
def test_normals_of_tiny_blocks_are_jointly_normal(kind):
    rng = NoiseGenerator(kind, chunk=4, **({"seed": 3} if kind == "seeded" else {}))
    draws = np.array([rng.standard_normal(37) for _ in range(800)])  # five blocks, the last one odd
    assert_jointly_normal(draws)


def assert_jointly_normal(draws):
    """Rows are steps: entries of a step, and the same entry at later steps, are independent standard normals."""
    steps, n = draws.shape
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-6
    assert np.abs((draws**2).mean(axis=0) - 1).max() < 6 * (2 / steps) ** 0.5
    correlation = draws.T @ draws / steps - np.diag((draws**2).mean(axis=0))
    assert np.abs(correlation).max() < 6 / steps**0.5
    squares = (draws**2 - 1) / 2**0.5
    assert np.abs(np.triu(squares.T @ squares / steps, 1)).max() < 12 / steps**0.5
    for lag in (1, 2, 3, 7, 32):
        assert abs((draws[lag:] * draws[:-lag]).mean()) < 6 / (steps * n) ** 0.5
        assert abs((squares[lag:] * squares[:-lag]).mean()) < 9 / (steps * n) ** 0.5


@pytest.mark.parametrize("kind", ["secure", "fast"])
def test_gradient_noise_of_tiny_pieces_is_jointly_normal_over_steps_and_pieces(kind):
    shapes = [(20,), (3,), (14,)]
    sums = BoundedSum([torch.zeros(shape) for shape in shapes], add_or_remove_one=1.0)
    with GradientNoise(shapes, 1.0, make_noise_generator(kind), piece=8) as source:
        draws = np.array([flat(source.release(sums)) for _ in range(800)])
    assert_jointly_normal(draws)
    assert len(np.unique(draws)) > 0.999 * draws.size


# ---- from bits to normals -----------------------------------------------------------------------------------------
def exact_radius(k, bits):
    """Radius of the k-th of 2**bits equally likely ones: half a step away from zero."""
    return np.sqrt(2 * (bits * np.log(2) - np.log(k + 0.5)))


def test_secure_normals_follow_from_63_bits_of_radius_and_64_of_angle():
    powers = [0, *(2**j for j in range(63)), 2**63 - 1]
    words = np.array([*powers, *([0] * len(powers))], dtype=np.int64)  # the angle 0: the normal is the radius
    stream = NormalStream(KEY, 2 * len(powers), "secure")
    out = np.empty(2 * len(powers))
    fill_secure(words, stream.scratch(), out)
    expected = exact_radius(np.array(powers, dtype=np.float64), 63)
    np.testing.assert_allclose(out[: len(powers)] * 2.0**-30, expected, rtol=1e-12, atol=1e-8)
    assert out.max() * 2.0**-30 > 9.3
    # sign of the radius' word counts for nothing, every part of the angle's does
    angles = np.array([0, 2**62, -(2**62), -(2**63), 2**50, 2**40], dtype=np.int64)
    words = np.concatenate([np.full(6, 1 - 2**63, dtype=np.int64), angles])
    out = np.empty(12)
    fill_secure(words, stream.scratch(), out)
    turned, radius = out * 2.0**-30, exact_radius(1.0, 63)
    np.testing.assert_allclose(turned[:6], radius * np.cos(np.pi * angles * 2.0**-63), atol=1e-8)
    np.testing.assert_allclose(turned[6:], radius * np.sin(np.pi * angles * 2.0**-63), atol=1e-8)
    assert len(set(turned[6:])) == 5  # of a half turn and of none, the sine is 0


def test_fast_normals_follow_from_32_bits_of_radius_and_8_more_in_the_tail():
    heights = np.array([0, 0, 0, 0, 1, 2, 255, 256, 2**16, 2**31, 2**32 - 1], dtype=np.uint32)
    low = np.array([0, 1, 128, 255, 0, 7, 9, 0, 0, 0, 0], dtype=np.int32)  # the angle is next to 0
    words = np.concatenate([heights, low.view(np.uint32)]).view(np.int64)
    stream, pairs = NormalStream(KEY, 2 * len(heights), "fast"), len(heights)
    out = np.empty(2 * pairs, dtype=np.float32)
    fill_fast(words, stream.scratch(), out, 1.0)
    tail = heights < 256
    uniform = np.where(tail, heights + (low + 0.5) / 256, heights + 0.5) * 2.0**-32
    np.testing.assert_allclose(out[:pairs], np.sqrt(-2 * np.log(uniform)), rtol=2e-6, atol=2e-5)
    assert out.max() > 7.4
    turns = np.array([2**30, -(2**30), 2**29, 2**20, 2**12], dtype=np.int32)
    words = np.concatenate(
        [np.full(6, 2**20, dtype=np.uint32), np.array([*turns, 0], dtype=np.int32).view(np.uint32)]
    ).view(np.int64)
    out = np.empty(12, dtype=np.float32)
    fill_fast(words, stream.scratch(), out, 1.0)
    radius = np.sqrt(-2 * np.log((2**20 + 0.5) * 2.0**-32))
    np.testing.assert_allclose(out[6:11], radius * np.sin(np.pi * turns * 2.0**-31), rtol=1e-5, atol=1e-6)


def test_normals_of_a_generator_follow_from_64_bits_of_radius_and_53_of_angle():
    rng = make_noise_generator()
    powers = np.array([0, *(2**j for j in range(63)), 2**64 - 1], dtype=np.uint64)
    angles = np.zeros(len(powers), dtype=np.uint64)
    angles[-1] = 1 << 11
    rng._words = lambda n: np.concatenate([powers, angles])
    drawn = rng.standard_normal(2 * len(powers))
    expected = np.sqrt(2 * (64 * np.log(2) - np.log(powers[:-1].astype(np.float64) + 1.0)))
    np.testing.assert_allclose(drawn[: len(powers) - 1], expected, rtol=1e-12)
    # 53 bits of angle
    rng._words = lambda n: np.array([0, 1 << 11], dtype=np.uint64)
    assert rng.standard_normal(2)[1] == pytest.approx(2 * np.pi * 2.0**-53 * (128 * np.log(2)) ** 0.5)


def test_uniforms_are_multiples_of_the_smallest_step():
    rng = make_noise_generator()
    words = np.array([0, 1 << 11, 2**63, 2**64 - 1], dtype=np.uint64)
    rng._words = lambda n: words
    assert rng.random(4).tolist() == [0.0, 2.0**-53, 0.5, 1 - 2.0**-53]


# ---- noise on sums ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("piece", [4, 10, 64])
@pytest.mark.parametrize(("kind", "ahead"), [("secure", True), ("secure", False), ("fast", True)])
def test_each_entry_of_each_step_has_noise_of_its_own(kind, ahead, piece, n_threads):
    """Whatever the pieces, the threads, and the tensors that a piece is cut into."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        with GradientNoise(SHAPES, 0.75, Bits(kind), piece=piece, ahead=ahead) as source:
            released = np.array([flat(source.release(bounded(3.0), divisor=4.0)) for _ in range(7)])
    finally:
        torch.set_num_threads(before)
    noise_alone = released - 0.75
    np.testing.assert_allclose(noise_alone, expected_noise(kind, 7, piece, 0.75 * 2.0 / 4.0), rtol=0, atol=3e-7)
    assert len(np.unique(noise_alone)) > 0.98 * noise_alone.size


def test_threads_do_not_write_over_each_other_s_noise():
    """Each piece waits between its draw and its use, so that all threads are at work on theirs."""
    fill, before = noise.fill_fast, torch.get_num_threads()

    def slow(*args):
        fill(*args)
        time.sleep(0.002)

    torch.set_num_threads(3)
    try:
        with pytest.MonkeyPatch.context() as patch, GradientNoise(SHAPES, 0.75, Bits("fast"), piece=10) as source:
            patch.setattr(noise, "fill_fast", slow)
            released = np.array([flat(source.release(bounded(3.0), divisor=4.0)) for _ in range(4)])
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(released - 0.75, expected_noise("fast", 4, 10, 0.375), rtol=0, atol=3e-7)


@pytest.mark.parametrize("early", [True, False])
def test_noise_drawn_ahead_is_used_before_its_memory_is(early):
    """The drawing thread has time to write wherever it may, before and after each addition."""
    add = noise._add_on_lattice

    def slow(*args, **kwargs):
        time.sleep(0.01 if early else 0)
        add(*args, **kwargs)
        time.sleep(0 if early else 0.01)

    with pytest.MonkeyPatch.context() as patch, GradientNoise(SHAPES, 0.75, Bits(), steps=6, piece=10) as source:
        patch.setattr(noise, "_add_on_lattice", slow)
        released = np.array([flat(source.release(bounded(3.0), divisor=4.0)) for _ in range(6)])
    np.testing.assert_allclose(released - 0.75, expected_noise("secure", 6, 10, 0.375), rtol=0, atol=3e-7)


def test_two_noises_of_one_generator_share_nothing():
    rng = make_noise_generator()
    with GradientNoise(SHAPES, 1.0, rng) as one, GradientNoise(SHAPES, 1.0, rng) as other:
        draws = [flat(source.release(bounded())) for _ in range(3) for source in (one, other)]
    assert len(np.unique(draws)) > 0.99 * np.size(draws)


class Sum(torch.nn.Module):
    """Loss <w, x>: the gradient of a record is the record."""

    def __init__(self, n):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return x @ self.w


@pytest.mark.parametrize("z", [1.0, 1e3, 1e4])
@pytest.mark.parametrize("make_plan", ["records", "subsets"])
def test_a_contribution_stays_within_its_bound_after_it_is_rounded_to_the_lattice(make_plan, z):
    """The worst gradient: clipped to the norm of the plan, every entry just above the middle between two steps."""
    if make_plan == "records":
        plan = DPSGDPlan(0.1, 10, 1.0, z, 20.0)
    else:
        plan = SubsetPlan(100, 10, z)
    n = 100_000
    lattice = plan.noise_std * 2.0**-30
    each = plan.clip_norm / n**0.5
    each = (np.floor(each / lattice - 0.5) + 0.5) * lattice * (1 + 1e-12)
    assert each * n**0.5 <= plan.clip_norm
    value, out = torch.full((n,), each, dtype=torch.float64), torch.empty(n, dtype=torch.float64)
    noise._add_on_lattice(value, torch.zeros(n, dtype=torch.float64), plan.noise_std, 1.0, out)
    assert float(out.norm()) <= plan.l2_bound
    # and room for sums in single precision of as many terms as a step is likely to have
    terms = plan.expected_batch_size if make_plan == "records" else plan.per_step
    assert plan.clip_norm * (1 + terms * 2.0**-20) < plan.l2_bound


def test_reference_gradients_are_summed_block_by_block():
    x = torch.randn(11, 4, generator=torch.Generator().manual_seed(0))
    whole = ClippedSum(Sum(4), 0.5, path="loop")(x).value[0].clone()
    expected = (x * (0.5 / x.norm(dim=1)).clamp(max=1.0)[:, None]).sum(0)
    torch.testing.assert_close(whole, expected)
    for scalars in (1, 4, 12, 20, 44):
        sums = ClippedSum(Sum(4), 0.5, path="loop", reference_scalars=scalars)
        torch.testing.assert_close(sums(x).value[0], whole)
        torch.testing.assert_close(sums(x[:3]).value[0], ClippedSum(Sum(4), 0.5, path="loop")(x[:3]).value[0])


# ---- draws of records, groups and subsets -------------------------------------------------------------------------
def inclusions(n, rate, steps, **options):
    taken = np.zeros((steps, n))
    batches = list(poisson_batches(n, rate, steps, make_noise_generator("fast"), **options))
    assert len(batches) == steps
    for step, indices in enumerate(batches):
        assert len(set(indices.tolist())) == len(indices)
        taken[step, indices] = 1
    return taken


@pytest.mark.parametrize("drawn_at_once", [1, 10, 25])
def test_inclusions_of_steps_in_different_blocks_are_independent(drawn_at_once):
    """Blocks of one, two and five steps, the last one not full: no step repeats one of an earlier block."""
    n, rate, steps = 25, 0.2, 3003
    centred = inclusions(n, rate, steps, drawn_at_once=drawn_at_once) - rate
    sd = (rate * (1 - rate)) ** 0.5
    assert np.abs(centred.mean(axis=0)).max() < 5 * sd / steps**0.5
    for lag in range(1, 12):
        assert abs((centred[lag:] * centred[:-lag]).mean()) < 5 * sd**2 / (n * (steps - lag)) ** 0.5


@pytest.mark.parametrize("spare", [-1000, 0])
def test_gaps_that_did_not_suffice_are_drawn_on_where_they_ended(spare):
    """As many gaps as are likely to be needed are drawn at once; here, one or a few at a time."""
    successes = loader_module._successes
    n, rate, steps = 25, 0.2, 800
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader_module, "_successes", lambda *args: successes(*args, spare=spare))
        centred = inclusions(n, rate, steps, drawn_at_once=200) - rate
    sd = (rate * (1 - rate)) ** 0.5
    assert np.abs(centred.mean(axis=0)).max() < 5 * sd / steps**0.5
    assert abs(centred.mean()) < 5 * sd / (n * steps) ** 0.5
    for lag in (1, 2, 3):
        assert abs((centred[lag:] * centred[:-lag]).mean()) < 5 * sd**2 / (n * (steps - lag)) ** 0.5


def test_latent_noise_of_the_chunks_of_a_step_is_drawn_for_each():
    plan = DPSGDPlan(0.999999, 3, 1.0, 1.0, 60.0, max_physical_batch=16)
    loader = PoissonLoader(np.zeros((60, 2)), plan=plan, rng=make_noise_generator(), noise_shape=(5,))
    drawn = [chunk.noise for batch in loader for chunk in batch]
    assert len(drawn) == 3 * plan.places // 16
    values = torch.cat([z.flatten() for z in drawn]).numpy()
    assert len(np.unique(values)) > 0.99 * values.size


def test_groups_of_the_chunks_of_a_step_are_drawn_for_each_record():
    """The group of a record says nothing of that of another: neither in its chunk nor at its place in the next."""
    plan = TermwisePlan(
        sampling_rate=0.5, steps=2, noise_multiplier=1.0, expected_batch_size=40.0, n_groups=4, max_physical_batch=10
    )

    class Groups(torch.nn.Module):
        def __init__(self, body):
            super().__init__()
            self.body = body

        def forward(self, x, groups):
            return (self.body(x) * groups["members"]).sum(1)

    body = Sum(2)
    sums = TermwiseAggregate(body, Groups(body), plan, make_noise_generator(), path="loop", group_path="loop")
    labels = []
    for _ in range(25):
        sums.reset()
        for _ in range(4):
            sums.add(torch.randn(10, 2))
        labels.append(np.stack([part[2] for part in sums._parts]))
        sums.result()
    labels = np.stack(labels)  # steps, chunks, places
    assert stats.chisquare(np.bincount(labels.ravel(), minlength=4)).pvalue > 1e-6
    for one, other in ((labels[:, 1:], labels[:, :-1]), (labels[1:], labels[:-1]), (labels[..., 1:], labels[..., :-1])):
        equal = (one == other).mean()
        assert abs(equal - 0.25) < 5.5 * (0.1875 / one.size) ** 0.5


def test_ids_reach_every_subset():
    subsets = hash_subsets([f"id {k}" for k in range(20_000)], 1000, make_noise_generator())
    counts = np.bincount(subsets, minlength=1000)
    assert len(counts) == 1000
    assert stats.chisquare(counts).pvalue > 1e-6
