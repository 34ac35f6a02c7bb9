"""Every sabotage of PATE-GAN is caught by a claim of an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_pategan
from _fits import ledger_is_what_ran, nothing_private_is_kept, the_row_count_is_hidden
from _noninterference import noninterference
from _sabotage import LEARNED, Claim, after, assert_caught, mutant_ids

from skdpgen.mechanisms import count_votes
from skdpgen.nn._gan import Teachers, rows_by_subset, train_by_votes
from skdpgen.synthesizers import _pategan
from skdpgen.synthesizers._training import sizes_by_counts

AR, RO = "add_or_remove_one", "replace_one"
BOUNDED = {relation: Claim(test_pategan.a_record_moves_the_counts_by_the_root_of_the_labelled_rows, relation)
           for relation in (AR, RO)}  # fmt: skip
OTHERS = Claim(test_pategan.the_other_teachers_stay_as_they_are_to_the_last_bit)
TABLE = Claim(test_pategan.every_row_is_in_one_line_of_the_table)
SHAPE = Claim(test_pategan.the_shape_of_the_table_follows_the_released_number_of_rows)
UNITS = Claim(test_pategan.a_unit_is_in_one_subset_as_a_whole, "rows")
CHARGED = Claim(test_pategan.every_label_is_charged, AR)
ALONE = Claim(test_pategan.the_votes_are_seen_through_the_release_alone)
ARRAYS, REPLACED, FRAME, OF_UNITS = test_pategan.FITTED
LEDGER = {name: Claim(ledger_is_what_ran, name) for name in test_pategan.FITTED}
KEPT = [Claim(nothing_private_is_kept, ARRAYS)]
HIDDEN = Claim(the_row_count_is_hidden, ARRAYS)
RELEASES_ALONE = Claim(noninterference, "votes")

FIT, VOTE, START = _pategan.fit_pategan_model, Teachers.vote, Teachers.__init__
SEEN = after(LEARNED, "seen = $x")

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "the sensitivity of one label for all labels of a round",
        [BOUNDED[AR], BOUNDED[RO], CHARGED],
        (count_votes, ("$votes.shape[1] ** 0.5", "1.0")),
    ),
    (
        "one partition for all teachers, as in the public code",
        [OTHERS, TABLE],
        (rows_by_subset, ("return $table", "return np.broadcast_to($table[:1], $table.shape).copy()")),
    ),
    (
        "a median over the scores of all teachers",
        [OTHERS],
        (VOTE, ("$scores.median(dim=1, keepdim=True).values", "$scores.median()")),
    ),
    (
        "rows weighted over all subsets",
        [OTHERS],
        (START, ("$weight / $weight.sum(1, keepdim=True).clamp(min=1e-12)", "$weight / $weight.sum()")),
    ),
    (
        "a table as wide as the largest subset",
        [SHAPE],
        (
            FIT,
            (
                "$T($x, $c, $n, $by($subsets, $k, $most), $own)",
                "$T($x, $c, $n, $by($subsets, $k, max(np.bincount($subsets))), $own)",
            ),
        ),
    ),
    (
        "rows of a unit in several subsets",
        [UNITS],
        (FIT, ("$assign($n, $k, $rng, units=$rows.unit_codes)", "$assign($n, $k, $rng)")),
    ),
    (
        "noise below the charge",
        [LEDGER[ARRAYS], LEDGER[OF_UNITS]],
        (FIT, ("$fit.noise['votes']", "0.9 * $fit.noise['votes']")),
    ),
    (
        "a round more than was charged",
        [LEDGER[ARRAYS], LEDGER[REPLACED]],
        (FIT, ("range($rounds.steps)", "range($rounds.steps + 1)")),
    ),
    (
        "votes without noise",
        [LEDGER[ARRAYS], LEDGER[FRAME]],
        (FIT, ("add_gaussian($counted, $noise, $fit.rng, $fit.neighboring) / $k", "$counted.value / $k")),
    ),
    (
        "a student that sees the exact votes",
        [ALONE],
        (train_by_votes, ("np.clip($release($teachers.vote($asked)), *_RANGE)",
                          "$release($teachers.vote($asked)) * 0 + $teachers.vote($asked).mean(0)")),
    ),
    (
        "the majority of a round decided by exact votes",
        [ALONE],
        (train_by_votes, ("np.clip($release($teachers.vote($asked)), *_RANGE)",
                          "np.where($teachers.vote($asked).mean(0) > 0.5, $release(None), 0.0)")),
    ),
    (
        "the exact number of rows",
        [HIDDEN],
        (sizes_by_counts, ("$fit.sample_size($rows, $counted)", "float(len($rows))")),
    ),
    (
        "labels of generated rows by the exact shares of the classes",
        [RELEASES_ALONE],
        (FIT, after(LEARNED, "$weights = np.bincount($classes + 1)[1:] + 1.0")),
    ),
    (
        "a student that starts from private rows",
        [RELEASES_ALONE],
        (FIT, SEEN, after("$student = $make($width, $n_classes, n_hidden=$sizes)",
                          "list($student.parameters())[-1].data.add_(float(seen.mean()))")),
    ),
    (
        "teachers that leave the fit",
        KEPT,
        (FIT, SEEN, ("return GeneratorModel($codec, $generator.eval(), $row_count, $weights)",
                     "$codec.__dict__['teachers'] = seen[:5]\n"
                     "return GeneratorModel($codec, $generator.eval(), $row_count, $weights)")),
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_pate_gan_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
