"""Every sabotage of the tables of MomentSynthesizer is caught by a named test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_one_hot
import test_sources as sources
from _fits import ledger_is_what_ran, nothing_private_is_kept
from _sabotage import Claim, assert_caught, before, mutant_ids

from skdpgen.data import frames as _frames
from skdpgen.data.sources import ChunkSource, add_sums
from skdpgen.mechanisms._one_hot import _tables as one_hot_tables
from skdpgen.mechanisms._one_hot import one_hot_moments, table_weights
from skdpgen.synthesizers import _frame_model

AR, RO = "add_or_remove_one", "replace_one"
CHUNKS = {r: Claim(sources.test_tables_of_chunks_attain_their_sensitivity_and_never_exceed_it, r) for r in (AR, RO)}
ONCE = Claim(sources.test_every_row_is_counted_once)
IMPORTANCE = {r: Claim(test_one_hot.test_sensitivity_holds_whatever_matters_more, r) for r in (AR, RO)}
DENSE = Claim(test_one_hot.test_dense_and_sparse_counts_are_equal)
LEDGER = Claim(ledger_is_what_ran, "frame, moments")
KEPT = Claim(nothing_private_is_kept, "frame, moments")

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    ("a chunk counted twice", [ONCE], (add_sums, ("$one.value + $other.value", "$one.value + 2 * $other.value"))),
    (
        "rows of a chunk skipped",
        [ONCE],
        (ChunkSource.reduce, ("$chunk.iloc[$at:$at + CHUNK_ROWS]", "$chunk.iloc[$at + 1:$at + CHUNK_ROWS]")),
    ),
    ("rows counted twice in a class", [ONCE], (one_hot_moments, ("len($mine)", "2 * len($mine)"))),
    (
        "a row counted twice in its levels",
        [CHUNKS[AR], CHUNKS[RO]],
        (
            one_hot_tables,
            before("$one_way += np.asarray($encoded.sum(axis=0)).ravel()", "$encoded = $encoded + $encoded"),
        ),
    ),
    (
        "importance of two-way tables not paid",
        [IMPORTANCE[AR], IMPORTANCE[RO]],
        (
            table_weights,
            ("$pair[$upper].mean", "($pair / np.cbrt(np.outer($3, $3)) ** 2)[$upper].mean"),
        ),
    ),
    (
        "importance of one-way tables not paid",
        [IMPORTANCE[AR], IMPORTANCE[RO]],
        (
            table_weights,
            ("$one_way_square / $one_way.sum()", "1.2 * $one_way_square / $one_way.sum()"),
        ),
    ),
    (
        "dense counts of half the rows",
        [DENSE],
        (
            one_hot_tables,
            ("$part = $dense\n$both += $part.T @ $part", "$part = $dense\n$both += $part[::2].T @ $part[::2]"),
        ),
    ),
    (
        "noise of the moments below the charge",
        [LEDGER],
        (
            _frame_model.fit_frame_model,
            ("$noise['moments']", "0.9 * $noise['moments']"),
        ),
    ),
    (
        "bins without noise",
        [LEDGER],
        (
            _frames._release,
            ("add_gaussian($bounded_sum, $noise_multiplier, $rest)", "add_gaussian($bounded_sum, 0.0, $rest)"),
        ),
    ),
    (
        "the source of the rows kept",
        [KEPT],
        (
            _frame_model.fit_frame_model,
            before("return FrameModel($codec, $rest)", "$codec.__dict__['source'] = $1.source"),
        ),
    ),
]


@pytest.mark.parametrize(
    ("claims", "changes"), [(claims, changes) for _, claims, *changes in MUTANTS], ids=mutant_ids(MUTANTS)
)
def test_sabotage_of_tables_is_caught(monkeypatch, claims, changes):
    assert_caught(monkeypatch, claims, *changes)
