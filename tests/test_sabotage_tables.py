"""Every sabotage of the tables of MomentSynthesizer is caught by a named test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_categories_by_value as by_value
import test_chunk_dtypes as chunk_dtypes
import test_hidden_categories as hidden
import test_hierarchy as declared
import test_learned_levels as many
import test_level_groups as grouped
import test_moment as moments
import test_numbers_again as again
import test_one_hot
import test_ranges as ranges
import test_second_look as looks
import test_sources as sources
import test_sum_of_rows as clipped
import test_target_model as target_model
import test_triples
from _fits import ledger_is_what_ran, nothing_private_is_kept
from _sabotage import Claim, assert_caught, before, mutant_ids

from skdpgen.data import frame_checks
from skdpgen.data import frames as _frames
from skdpgen.data.level_groups import LevelProfiles, noise_with_levels
from skdpgen.data.sources import ChunkSource, add_sums
from skdpgen.generators.target_step import TargetStep
from skdpgen.mechanisms import _moments, sum_of_rows
from skdpgen.mechanisms._one_hot import _products, one_hot_moments, triple_bounds, triple_interactions
from skdpgen.mechanisms._one_hot import _tables as one_hot_tables
from skdpgen.synthesizers import _frame_model
from skdpgen.synthesizers._frame_model import release_target_model, release_triples
from skdpgen.tabular import _frames as _frames_of_values
from skdpgen.tabular import _learning as learning
from skdpgen.tabular import _schema_cells as schema_cells

AR, RO = "add_or_remove_one", "replace_one"
CHUNKS = {r: Claim(sources.test_tables_of_chunks_attain_their_sensitivity_and_never_exceed_it, r) for r in (AR, RO)}
ONCE = Claim(sources.test_every_row_is_counted_once)
DENSE = Claim(test_one_hot.test_dense_and_sparse_counts_are_equal)
LEDGER = Claim(ledger_is_what_ran, "frame, moments")
TRIPLES = {
    r: Claim(test_triples.test_triple_sensitivity_is_attained_and_not_exceeded, r, (True, False, True, False, False))
    for r in (AR, RO)
}
PROFILES = {r: Claim(grouped.test_sensitivity_of_profiles_is_attained_and_not_exceeded, r, ("sick",)) for r in (AR, RO)}
PROFILES_LEDGER = Claim(ledger_is_what_ran, "frame, grouped levels")
LEARNED_LEDGER = Claim(ledger_is_what_ran, "frame, learned levels")
DIVIDED = Claim(many.test_both_parts_cost_what_is_charged_and_never_more, 17.3)
MANY_FOLLOW = Claim(many.test_nothing_but_the_releases_decides_which_columns_have_groups, "add_or_remove_one")
TRIPLES_LEDGER = Claim(ledger_is_what_ran, "frame, triples")
TARGET_LEDGER = Claim(ledger_is_what_ran, "frame, target")
GRADIENTS = {r: Claim(clipped.test_sensitivity_is_attained_and_not_exceeded, r, 1.0) for r in (AR, RO)}
GRADIENT_OF_A_ROW = Claim(target_model.test_the_gradient_of_a_row_is_a_function_of_the_row_alone_to_the_last_bit)
LOOKS = Claim(looks.test_rare_categories_are_found_and_every_column_keeps_those_of_the_first_look)
NUMBERS_LEFT = Claim(again.test_the_ledger_and_the_queries_agree)
NUMBERS_SCALED = Claim(again.test_the_release_is_of_numbers_and_dates_alone_and_scaled_to_them, "add_or_remove_one")
NUMBERS_FOLLOW = Claim(again.test_nothing_but_the_releases_decides_whether_and_what_is_learned, "add_or_remove_one")
RANGES_LEFT = Claim(ranges.test_the_ledger_and_the_queries_agree)
RANGES_SCALED = Claim(ranges.test_the_release_is_of_the_far_columns_alone_and_scaled_to_them, "add_or_remove_one")
RANGES_FOLLOW = Claim(ranges.test_nothing_but_the_releases_decides_a_range, "add_or_remove_one")
LOOK_FOLLOWS = Claim(looks.test_nothing_but_the_releases_decides_whether_there_is_a_third_count)
THIRD_CHARGED = Claim(
    looks.test_columns_that_still_lack_many_rows_are_counted_at_the_charge_of_the_numbers, "add_or_remove_one"
)
THRESHOLDS = Claim(looks.test_the_thresholds_share_the_delta)
LOOK_SCALED = Claim(looks.test_second_look_is_of_the_hidden_columns_alone_and_scaled_to_them, "add_or_remove_one")
FIRST_KIND = Claim(
    chunk_dtypes.test_one_text_does_not_decide_the_kind_of_categories_that_the_first_chunk_lacks, "object", "list"
)
DTYPE_KIND = Claim(chunk_dtypes.test_categories_of_a_first_chunk_without_values_have_the_kind_of_its_dtype)
ZONES = Claim(chunk_dtypes.test_a_date_that_a_reader_cannot_parse_moves_no_other_date_by_its_offset_from_utc)
ZERO = Claim(by_value.test_a_row_changes_no_type_of_what_is_released, "learned text of numbers, a fraction")
KEPT = Claim(nothing_private_is_kept, "frame, moments")

_UNSPENT = "$unspent if $triples is not None else (*$unspent, 'triples')"

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    ("a chunk counted twice", [ONCE], (add_sums, ("$one.value + $other.value", "$one.value + 2 * $other.value"))),
    (
        "a name of the rest that no category of the rows has",
        [
            Claim(
                hidden.test_no_name_that_is_released_follows_from_a_hidden_category,
                ("x", "y"),
                ("other", "other_0"),
                ("odd", "strange"),
            )
        ],
        (
            learning._complete,
            (
                "_with_categories($column, $kept, $declared)",
                "replace(_with_categories($column, $kept, $declared), other=next(free for free in "
                "('other', 'other_0', 'other_1') if free not in $2.keys[$column.name]))",
            ),
        ),
    ),
    (
        "rows of a chunk skipped",
        [ONCE],
        (ChunkSource.reduce, ("$chunk.iloc[$at:$at + CHUNK_ROWS]", "$chunk.iloc[$at + 1:$at + CHUNK_ROWS]")),
    ),
    ("rows counted twice in a class", [ONCE], (one_hot_moments, ("$steps * len($mine)", "2 * $steps * len($mine)"))),
    (
        "a row counted twice in its levels",
        [CHUNKS[AR], CHUNKS[RO]],
        (
            one_hot_tables,
            before("$one_way += np.asarray($encoded.sum(axis=0)).ravel()", "$encoded = $encoded + $encoded"),
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
        "rows counted twice in triples",
        [TRIPLES[AR], TRIPLES[RO]],
        (_products, ("$table[np.where($rest)]", "1.3 * $table[np.where($rest)]")),
    ),
    (
        "quarters weigh as halves",
        [TRIPLES[AR], TRIPLES[RO]],
        (triple_interactions, ("np.where($fine[:, None], _SQUARES, 1.0)", "np.ones(($fine.size, 3))")),
    ),
    (
        "quarters of columns with halves alone",
        [TRIPLES[AR], TRIPLES[RO]],
        (_products, ("$rows[:, ~$fine, 1:] = 0.0", "$rows[:, ~$fine, 2:] = 0.0")),
    ),
    (
        "replaced rows taken for rows of other classes",
        [TRIPLES[RO]],
        (triple_bounds, ("min(0.0, _least_inner_product($one, $other))", "0.0")),
    ),
    (
        "noise of the triples below the charge",
        [TRIPLES_LEDGER],
        (
            release_triples,
            ("add_gaussian($query, $noise_multiplier, $rest)", "add_gaussian($query, 0.9 * $noise_multiplier, $rest)"),
        ),
    ),
    ("sums of rows twice as far apart as they say", [GRADIENTS[RO]], (sum_of_rows, ("2.0", "2**0.5"))),
    (
        "rows counted twice in a sum",
        [GRADIENTS[AR], GRADIENTS[RO]],
        (_moments._RowSums.__call__, ("$roots @ $rows", "2 * $roots @ $rows")),
    ),
    (
        "noise of the gradient below the charge",
        [TARGET_LEDGER],
        (release_target_model, ("add_gaussian($query, $noise, $rest)", "add_gaussian($query, 0.9 * $noise, $rest)")),
    ),
    (
        "a gradient by the other rows",
        [GRADIENT_OF_A_ROW],
        (TargetStep.gradients, ("softmax($logits, axis=1)", "softmax($logits - $logits.mean(axis=0), axis=1)")),
    ),
    (
        "noise of the moments released again below the charge",
        [LEDGER],
        (
            _frame_model.fit_frame_model,
            ("add_gaussian($tables, $both[1], $rest)", "add_gaussian($tables, 0.9 * $both[1], $rest)"),
        ),
    ),
    (
        "triples that are found to be hidden once they were released",
        [Claim(moments.test_the_share_of_triples_is_spent_once_whether_the_noise_hides_them_or_not, "_VISIBLE", 1e9)],
        (
            release_triples,
            (
                "if not 0 < $n <= _MOST_TRIPLES or $c.max() < _VISIBLE * $s:\n    return None\n"
                "$query = $one\n$noisy = $two",
                "if not 0 < $n <= _MOST_TRIPLES:\n    return None\n"
                "$query = $one\n$noisy = $two\nif $c.max() < _VISIBLE * $s:\n    return None",
            ),
        ),
    ),
    (
        "triples and the moments again on one charge",
        [TRIPLES_LEDGER],
        (_frame_model.fit_frame_model, (_UNSPENT, "(*$unspent, 'triples')")),
    ),
    (
        "the second look at categories and the moments again on one charge",
        [LOOKS],
        (
            _frames.FrameRows._learn_schema,
            ("$learned, tuple($unspent)", "$learned, (*$unspent, 'categories')"),
        ),
    ),
    (
        "a third count of categories and the moments again on one charge",
        [THIRD_CHARGED],
        (_frames.FrameRows._learn_schema, ("$unspent.remove($third)", "pass")),
    ),
    (
        "a third count of categories without noise",
        [THIRD_CHARGED],
        (_frames._averaged, ("_release($query, $noise, $rest)", "_release($query, 0.0, $rest)")),
    ),
    (
        "categories counted a third time by the rows themselves",
        [LOOK_FOLLOWS],
        (
            _frames.FrameRows._learn_schema,
            (
                "lacks_many($second, $shown, $n)",
                "lacks_many($second, $shown, len(self))",
            ),
        ),
    ),
    (
        "a third threshold beside half of the delta for the second one",
        [THRESHOLDS],
        (_frames.FrameRows._learn_schema, ("$extra_delta / 4", "$extra_delta / 2")),
    ),
    (
        "ranges and the moments again on one charge",
        [RANGES_LEFT],
        (_frames.FrameRows._learn_schema, ("$learned, tuple($unspent)", "$learned, (*$unspent, 'ranges')")),
    ),
    (
        "numbers again and the moments again on one charge",
        [NUMBERS_LEFT],
        (_frames.FrameRows._learn_schema, ("$learned, tuple($unspent)", "$learned, (*$unspent, 'numbers')")),
    ),
    (
        "numbers again without noise",
        [NUMBERS_SCALED],
        (_frames.FrameRows._learn_schema, ("$noise_multipliers['numbers']", "0.0")),
    ),
    (
        "numbers again scaled to one of their columns",
        [NUMBERS_SCALED],
        (
            _frames.FrameRows._learn_schema,
            (
                "_release($query, $noise['numbers'], $rest)",
                "_release(replace($query, add_or_remove_one=1.0), $noise['numbers'], $rest)",
            ),
        ),
    ),
    (
        "numbers counted again by the rows themselves",
        [NUMBERS_FOLLOW],
        (
            _frames.FrameRows._learn_schema,
            ("hides_ranges($noisy, $counts, $sd)", "hides_ranges($counts.query.value, $counts, $sd)"),
        ),
    ),
    (
        "ranges without noise",
        [RANGES_SCALED],
        (_frames.FrameRows._learn_schema, ("$noise_multipliers['ranges']", "0.0")),
    ),
    (
        "ranges scaled to one of their columns",
        [RANGES_SCALED],
        (
            _frames.FrameRows._learn_schema,
            (
                "_release($counts, $noise['ranges'], $rest)",
                "_release(replace($counts, add_or_remove_one=1.0), $noise['ranges'], $rest)",
            ),
        ),
    ),
    (
        "ranges of the rows themselves",
        [RANGES_FOLLOW],
        (
            _frames.FrameRows._learn_schema,
            (
                "$noisy, $sd = _release($counts, $noise['ranges'], $rest)",
                "$noisy, $sd = _release($counts, $noise['ranges'], $rest)\n$noisy = $counts.value",
            ),
        ),
    ),
    (
        "a second look without noise",
        [LOOK_SCALED],
        (_frames.FrameRows._learn_schema, ("$noise_multipliers['categories']", "0.0")),
    ),
    (
        "a second look scaled to one of its columns",
        [LOOK_SCALED],
        (
            _frames.FrameRows._learn_schema,
            (
                "_release($counts.query, $noise['categories'], $rest)",
                "_release(replace($counts.query, add_or_remove_one=1.0), $noise['categories'], $rest)",
            ),
        ),
    ),
    (
        "the whole delta for either threshold",
        [Claim(looks.test_the_thresholds_share_the_delta)],
        (_frames.FrameRows._learn_schema, ("$extra_delta / 2 if $twice else $extra_delta", "$extra_delta")),
    ),
    (
        "columns of the second look by exact counts",
        [Claim(looks.test_nothing_but_the_releases_decides_where_to_look)],
        (learning._complete, ("math.fsum($kept.values())", "float($2.bounded_sum.value[0])")),
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
        "profiles of one column paid, of others not",
        [PROFILES[AR], PROFILES[RO]],
        (
            LevelProfiles.query,
            (
                "joint_histogram($rest)",
                "__import__('dataclasses').replace(joint_histogram($rest), add_or_remove_one=1.0, replace_one=2**0.5)",
            ),
        ),
    ),
    (
        "counts of declared groups that are in no sensitivity",
        [Claim(declared.test_sensitivity_is_attained_not_exceeded_and_lower_than_with_profiles, r) for r in (AR, RO)],
        (
            LevelProfiles.query,
            (
                "joint_histogram($rest)",
                "__import__('dataclasses').replace(joint_histogram($rest), add_or_remove_one=1.0, replace_one=2**0.5)",
            ),
        ),
    ),
    (
        "counts of first characters that are in no sensitivity",
        [Claim(declared.test_first_characters_do_not_raise_the_sensitivity_of_counts_of_codes, r) for r in (AR, RO)],
        (
            schema_cells.schema_histogram,
            (
                "joint_histogram($rest)",
                "__import__('dataclasses').replace(joint_histogram($rest), add_or_remove_one=1.64**0.5,"
                " replace_one=3.28**0.5)",
            ),
        ),
    ),
    (
        "the whole delta for the names of first characters",
        [Claim(declared.test_names_of_one_row_pass_any_of_the_thresholds_with_probability_delta, 0.4)],
        (learning._complete, ("$selected = SelectedCounts.of($rest).n", "$selected = 1")),
    ),
    (
        "thresholds of first characters for the noise of weight 1",
        [Claim(declared.test_names_of_one_row_pass_any_of_the_thresholds_with_probability_delta, 0.4)],
        (
            learning._kept_categories,
            (
                "_mask_of_categories($counts, $all, $sd / $weight, $rest)",
                "_mask_of_categories($counts, $all, $sd, $rest)",
            ),
        ),
    ),
    (
        "noise of the profiles below the charge",
        [PROFILES_LEDGER],
        (_frames.FrameRows._grouped, ("$noise['levels']", "0.9 * $noise['levels']")),
    ),
    (
        "profiles released twice on one charge",
        [PROFILES_LEDGER],
        (
            _frames.FrameRows._grouped,
            ("$noisy, $sd = _release($rest)", "_release($rest)\n$noisy, $sd = _release($rest)"),
        ),
    ),
    (
        "profiles of learned columns beside the whole charge of the moments",
        [LEARNED_LEDGER],
        (_frame_model.fit_frame_model, ("noise_with_levels($noise, $codec.encoder.groups_)", "$noise")),
    ),
    (
        "profiles of learned columns at the noise of the whole charge",
        [LEARNED_LEDGER, DIVIDED],
        (noise_with_levels, ("$whole / _SHARE_OF_MOMENTS**0.5", "$whole")),
    ),
    (
        "parts of a charge that are rounded down",
        [DIVIDED],
        (noise_with_levels, ("1 + _ROUNDING", "1 - _ROUNDING")),
    ),
    (
        "groups where the rows have many categories",
        [MANY_FOLLOW],
        (
            _frames.FrameRows.learn,
            (
                "len($schema[$n].categories) > $self.most_categories",
                "$self.frame[$n].nunique() > $self.most_categories",
            ),
        ),
    ),
    (
        "categories whose kind a chunk decides that is not the first",
        [FIRST_KIND],
        (frame_checks.check_first_chunk, ("not $found", "True")),
    ),
    (
        "a kind that the dtype of the first chunk does not decide",
        [DTYPE_KIND],
        (frame_checks.check_first_chunk, ("$found.add($kind)", "$kind")),
    ),
    (
        "dates of a chunk on another clock than their texts",
        [ZONES],
        (frame_checks._check_zones, ("time_zone(output_dtype($column.dtype)) is None", "True")),
    ),
    (
        "a zero whose sign follows from the other texts",
        [ZERO],
        (_frames_of_values._numbers_of, ("$values + 0.0", "$values")),
    ),
    (
        "the source of the rows kept",
        [KEPT],
        (
            _frame_model.fit_frame_model,
            before("$fitted = FrameModel($codec, $rest)", "$codec.__dict__['source'] = $1.source"),
        ),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_tables_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
