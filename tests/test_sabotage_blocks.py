"""Every sabotage of an inner block is caught: counters, buffers, threads, widths of numbers, last partial blocks.

Rows are as in ``test_sabotage``, but that a change is a function of `monkeypatch`: most replace one named function.
"""

from __future__ import annotations

import contextlib
import importlib

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import numpy as np
import pytest
import test_checks
import test_clipped_sum
import test_codes_and_blocks as codes
import test_noise_blocks as blocks
import test_training_in_threads as threads
import test_whole_batch
from _sabotage import Claim, after, assert_caught, everywhere, mutant_ids, patch_source

from skdpgen.dpsgd import (
    ClippedSum,
    DPSGDPlan,
    GradientNoise,
    PoissonLoader,
)
from skdpgen.dpsgd import (
    _checks as checks,
)
from skdpgen.dpsgd import (
    _layers as layers,
)
from skdpgen.dpsgd import (
    _loader as loader,
)
from skdpgen.dpsgd import (
    _noise as noise,
)
from skdpgen.dpsgd import (
    _seeding as seeding,
)
from skdpgen.dpsgd import (
    _termwise as termwise,
)
from skdpgen.dpsgd._noise import NormalStream, fill_fast, fill_secure
from skdpgen.dpsgd._seeding import SecretGenerators
from skdpgen.dpsgd._subsets import SubsetPlan, hash_subsets
from skdpgen.mechanisms._moments import _by_class
from skdpgen.utils.noise import NoiseGenerator

one_hot = importlib.import_module("skdpgen.mechanisms._one_hot")
histograms = importlib.import_module("skdpgen.mechanisms._histogram")


# ---- changes ------------------------------------------------------------------------------------------------------
def edited(function, *edits):
    """Edit the source of a function."""
    return lambda monkeypatch: patch_source(monkeypatch, function, *edits)


def replaced(owner, name, make):
    """Replace an attribute by what `make` makes of it."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, make(getattr(owner, name)))


def remembered(function):
    """The result of the first call, for all later ones of equal numbers."""
    kept = {}

    def again(*args):
        key = tuple(arg for arg in args if isinstance(arg, int | float))
        if key not in kept:
            kept[key] = function(*args)
        return kept[key]

    return again


def key_of_the_generator(random_bytes):
    """A key is drawn once, for all that one generator gives keys to."""
    kept = {}

    def of_each(self, n):
        return kept.setdefault(id(self), random_bytes(self, n)) if n == 32 else random_bytes(self, n)

    return of_each


def first_block_again(standard_normal):
    def repeated(self, size=None):
        n = int(np.prod(size)) if size is not None else 1
        drawn = standard_normal(self, min(n, 2 * self._chunk))
        return np.resize(drawn, size) if size is not None else drawn[0].item()

    return repeated


def without_a_lock(monkeypatch):
    everywhere(monkeypatch, seeding.torch_lock, contextlib.nullcontext())


# ---- claims -------------------------------------------------------------------------------------------------------
ONCE = [Claim(blocks.test_no_block_of_the_cipher_is_used_twice_however_many_steps, kind) for kind in ("secure", "fast")]
DISTINCT = {
    kind: Claim(blocks.test_draws_of_a_generator_do_not_repeat_over_its_blocks, kind)
    for kind in ("secure", "fast", "seeded")
}
JOINT = Claim(blocks.test_normals_of_tiny_blocks_are_jointly_normal, "secure")
JOINT_STEPS = {
    kind: Claim(blocks.test_gradient_noise_of_tiny_pieces_is_jointly_normal_over_steps_and_pieces, kind)
    for kind in ("secure", "fast")
}
SECURE_BITS = Claim(blocks.test_secure_normals_follow_from_63_bits_of_radius_and_64_of_angle)
FAST_BITS = Claim(blocks.test_fast_normals_follow_from_32_bits_of_radius_and_8_more_in_the_tail)
GENERATOR_BITS = Claim(blocks.test_normals_of_a_generator_follow_from_64_bits_of_radius_and_53_of_angle)
UNIFORM_BITS = Claim(blocks.test_uniforms_are_multiples_of_the_smallest_step)
KEY = Claim(blocks.test_a_key_has_256_bits_all_of_which_matter)
SYSTEM_KEY = Claim(blocks.test_the_operating_system_gives_the_whole_key)
SHARED = Claim(blocks.test_two_noises_of_one_generator_share_nothing)
ROUNDED = {
    what: Claim(blocks.test_a_contribution_stays_within_its_bound_after_it_is_rounded_to_the_lattice, what, 1e3)
    for what in ("records", "subsets")
}
AHEAD = Claim(blocks.test_noise_drawn_ahead_is_used_before_its_memory_is, True)
BLOCKS_OF_EXAMPLES = [
    Claim(test_clipped_sum.test_norms_and_sums_do_not_depend_on_the_blocks_of_examples, block, kept)
    for block, kept in ((1, 2**25), (2**12, 0))
]
BLOCKS_OF_GRADIENTS = Claim(blocks.test_reference_gradients_are_summed_block_by_block)
INCLUSIONS = Claim(blocks.test_inclusions_of_steps_in_different_blocks_are_independent, 10)
GAPS = Claim(blocks.test_gaps_that_did_not_suffice_are_drawn_on_where_they_ended, -1000)
LATENTS = Claim(blocks.test_latent_noise_of_the_chunks_of_a_step_is_drawn_for_each)
GROUPS = Claim(blocks.test_groups_of_the_chunks_of_a_step_are_drawn_for_each_record)
IDS = Claim(blocks.test_ids_reach_every_subset)
CODE = Claim(codes.test_a_code_beyond_its_column_counts_in_no_other_column)
ANY_CODES = Claim(codes.test_rows_of_any_codes_stay_within_the_sensitivity, "add_or_remove_one")
WIDTH = Claim(codes.test_codes_of_any_width_count_in_their_own_cells, np.uint8)
NO_CLASS = Claim(codes.test_rows_of_a_class_that_is_not_there_move_nothing, -1)
TABLES = Claim(codes.test_tables_do_not_depend_on_the_blocks_of_rows, (3, 2, 4), 20)
MASKS = Claim(threads.test_no_pass_of_a_training_starts_from_a_public_or_a_shared_state)
IN_THREADS = Claim(threads.test_trainings_in_threads_give_what_they_give_one_after_another)
RARE = Claim(test_checks.test_rare_dropout_is_never_taken_for_mixing)
VERDICT = Claim(test_checks.test_the_verdict_does_not_depend_on_the_state_of_the_generators)


def _own(kind, piece, n_threads):
    return Claim(blocks.test_each_entry_of_each_step_has_noise_of_its_own, kind, True, piece, n_threads)


# (sabotage, claims that catch it, change)
MUTANTS = [
    # bits
    ("counters of pieces overlap after 32 steps", ONCE, edited(NormalStream.__init__, ("$k << 64", "$k << 20"))),
    (
        "one counter for all pieces",
        [*ONCE, *JOINT_STEPS.values()],
        edited(NormalStream.__init__, ("$k << 64", "$k * 0")),
    ),
    (
        "the last partial block of words is left empty",
        [DISTINCT["secure"], JOINT],
        edited(
            NoiseGenerator._words,
            ("np.empty($n, $rest)", "np.zeros($n, $rest)"),
            ("range(0, 8 * $n, $rest)", "range(0, 8 * $n - len(self._zeros) + 1, $rest)"),
        ),
    ),
    (
        "the first block of normals again",
        [*DISTINCT.values(), JOINT],
        replaced(NoiseGenerator, "standard_normal", first_block_again),
    ),
    ("a key of 64 bits", [KEY], replaced(NoiseGenerator, "random_bytes", lambda f: lambda s, n: np.resize(f(s, 8), n))),
    ("32 bits of the system", [SYSTEM_KEY], edited(NoiseGenerator.__init__, ("os.urandom(32)", "os.urandom(4) * 8"))),
    (
        "32 bits for the noise of gradients",
        [KEY],
        edited(GradientNoise.__init__, ("bytes($rng.random_bytes(32))", "bytes($rng.random_bytes(4)) * 8")),
    ),
    ("one key for two noises", [SHARED], replaced(NoiseGenerator, "random_bytes", key_of_the_generator)),
    # from bits to numbers
    (
        "secure radius from 31 bits",
        [SECURE_BITS],
        edited(fill_secure, ("2**63 - 1", "2**31 - 1"), ("$radius *= 2.0**-63", "$radius *= 2.0**-31")),
    ),
    ("fast radius without its tail", [FAST_BITS], edited(fill_fast, ("$height < 2**8", "$height < 0"))),
    (
        "fast angle from 16 bits",
        [FAST_BITS],
        edited(
            fill_fast,
            (
                "np.copyto($angle, $turn, $rest)\n$angle *= $turns",
                "np.copyto($angle, $turn >> 16 << 16, $rest)\n$angle *= $turns",
            ),
        ),
    ),
    (
        "radius from 53 bits",
        [GENERATOR_BITS],
        edited(
            NoiseGenerator._fill_normals,
            ("$words[:$pairs].astype", "($words[:$pairs] >> np.uint64(11) << np.uint64(11)).astype"),
        ),
    ),
    (
        "angle from the bits of the radius",
        [JOINT],
        edited(NoiseGenerator._fill_normals, ("$words[$pairs:] >> np.uint64(11)", "$words[:$pairs] >> np.uint64(11)")),
    ),
    (
        "uniforms of 31 bits",
        [UNIFORM_BITS],
        edited(NoiseGenerator.random, ("np.uint64(11)", "np.uint64(33)"), ("2.0**-53", "2.0**-31")),
    ),
    # buffers, pieces and threads of the noise
    (
        "a buffer handed back before it is used",
        [AHEAD],
        edited(
            GradientNoise._add_drawn,
            ("self._spare.put($drawn)", "None"),
            after("$drawn = self._take_drawn($rest)", "self._spare.put($drawn)"),
        ),
    ),
    (
        "buffers that are filled once",
        [AHEAD],
        edited(noise._work, ("not _fill_all($rest)", "$3 > 3 and not _fill_all($rest)")),
    ),
    (
        "tensors that share their noise",
        [_own("secure", 10, 1)],
        edited(GradientNoise._add_drawn, ("$drawn[$starts:$end]", "$drawn[:$end - $starts].clone()")),
    ),
    (
        "the last partial piece of a sum without noise",
        [_own("secure", 10, 1)],
        edited(
            noise._add_on_lattice, ("range(0, $value.numel(), $piece)", "range(0, $value.numel() - $piece + 1, $piece)")
        ),
    ),
    (
        "the noise of a piece begins anew in each tensor",
        [_own("fast", 10, 1), _own("fast", 64, 3)],
        edited(GradientNoise._overlaps, ("slice($low - $3, $high - $3)", "slice(0, $high - $low)")),
    ),
    (
        "pieces that no thread draws",
        [_own("fast", 4, 1), _own("fast", 4, 3)],
        edited(
            GradientNoise._add_in_turn,
            (
                "range($worker, len(self._stream), len(self._scratch))",
                "range($worker, len(self._stream), len(self._scratch) + 1)",
            ),
        ),
    ),
    (
        "threads that share their memory",
        [Claim(blocks.test_threads_do_not_write_over_each_other_s_noise)],
        edited(GradientNoise._add_in_turn, ("self._scratch[$worker]", "self._scratch[0]")),
    ),
    # clips and sums
    ("no slack in a plan of subsets", [ROUNDED["subsets"]], replaced(SubsetPlan, "slack", lambda shipped: 0.0)),
    ("no slack in a plan of records", [ROUNDED["records"]], replaced(DPSGDPlan, "slack", lambda shipped: 0.0)),
    (
        "norms of every block of examples by the places of the first",
        BLOCKS_OF_EXAMPLES,
        edited(
            layers._products_of_places,
            ("$left[$i:$j, 0].transpose(1, 2)", "$left[:$j - $i, 0].transpose(1, 2)"),
        ),
    ),
    (
        "products of every block of examples with the places of the first",
        BLOCKS_OF_EXAMPLES,
        edited(layers._outer_product, ("_multiply($left[$i:$j], $rest)", "_multiply($left[:$j - $i], $rest)")),
    ),
    (
        "the last partial block of gradients left out",
        [BLOCKS_OF_GRADIENTS],
        edited(ClippedSum._add_reference, ("range(0, $batch, $step)", "range(0, $batch - $step + 1, $step)")),
    ),
    # draws
    ("the first block of batches again", [INCLUSIONS], replaced(loader, "_successes", remembered)),
    (
        "more batches than steps",
        [INCLUSIONS],
        edited(loader.poisson_batches, ("min($block, $steps - $first)", "$block")),
    ),
    (
        "a record passed over where the gaps end",
        [GAPS],
        edited(loader._successes, ("$positions[-1]", "$positions[-1] + 1")),
    ),
    (
        "latent noise of the first chunk again",
        [LATENTS],
        edited(
            PoissonLoader._chunk,
            ("self._rng.standard_normal($shape)", "vars(self).setdefault('kept', self._rng.standard_normal($shape))"),
        ),
    ),
    ("groups of the first chunk again", [GROUPS], replaced(termwise, "draw_groups", remembered)),
    (
        "records of an interrupted step in the next",
        [Claim(test_whole_batch.test_a_step_that_was_interrupted_leaves_nothing_to_the_next, "term-wise")],
        edited(termwise._GroupAggregate.reset, ("self._parts = []", "pass")),
    ),
    (
        "ids by 8 bits of their hash",
        [IDS],
        edited(hash_subsets, ("hashlib.blake2b($rest, digest_size=8)", "hashlib.blake2b($rest, digest_size=1)")),
    ),
    # codes
    (
        "a code beyond its column counted in the next",
        [CODE, ANY_CODES],
        edited(one_hot._encode, ("$codes < $n_levels", "$codes + np.cumsum($n_levels) - $n_levels < $n_levels.sum()")),
    ),
    (
        "the last partial block of codes left out",
        [TABLES],
        edited(one_hot._tables, ("range(0, len($codes), $size)", "range(0, len($codes) - $size + 1, $size)")),
    ),
    (
        "cells numbered in narrow integers",
        [WIDTH],
        edited(
            histograms.class_norm_histogram,
            ("np.int64", "np.asarray($1).dtype.type and $2.dtype"),
        ),
    ),
    (
        "rows of no class counted in the first",
        [NO_CLASS],
        edited(_by_class, ("$order[$edges[$k]:$edges[$k + 1]]", "$order[$edges[$k] * ($k > 0):$edges[$k + 1]]")),
    ),
    # torch's generators
    (
        "the same masks in every pass",
        [MASKS],
        edited(SecretGenerators.in_place, ("generator_states(self._devices)", "self._states")),
    ),
    (
        "masks of a public seed",
        [MASKS],
        edited(SecretGenerators.__init__, ("[$state, *$states]", "[_seeded_state('cpu', 0), *$states]")),
    ),
    ("no lock on the generators", [IN_THREADS], without_a_lock),
    (
        "a check that draws as the process does",
        [RARE],
        replaced(checks, "torch_seeded", lambda shipped: lambda *args: contextlib.nullcontext()),
    ),
    (
        "dropout taken for mixing where it left all in place",
        [VERDICT],
        edited(checks._losses, ("not all(map($rest))", "False and not all(map($rest))")),
    ),
]


@pytest.mark.parametrize(("claims", "change"), [mutant[1:] for mutant in MUTANTS], ids=mutant_ids(MUTANTS))
def test_sabotage_of_an_inner_block_is_caught(monkeypatch, claims, change):
    for claim in claims:
        claim.holds_unpatched()
    change(monkeypatch)
    assert_caught(monkeypatch, claims)
