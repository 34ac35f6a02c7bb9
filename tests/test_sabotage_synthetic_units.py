"""Every sabotage of the tables of units, and of synthetic units made from them, is caught by a named test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_shared_columns_of_units as shared
import test_synthetic_units as synthetic
from _fits import ledger_is_what_ran
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.data import frames, units
from skdpgen.generators import units as generated
from skdpgen.mechanisms import residual_plan, unit_pairs, unit_tables
from skdpgen.synthesizers._synthetic_units import release_pairs, release_units
from skdpgen.tabular import _construction as construction

AR, RO = "add_or_remove_one", "replace_one"
BOUND = {
    relation: Claim(
        synthetic.test_a_unit_attains_the_sensitivity_of_the_tables_of_units_and_never_exceeds_it, relation, "rows"
    )
    for relation in (AR, RO)
}
LEDGER = Claim(ledger_is_what_ran, "frame, units")
OTHERS = Claim(synthetic.test_a_unit_that_joins_changes_no_other_unit_s_row_or_size)
USED = Claim(synthetic.test_a_unit_stands_for_its_first_row_used_and_the_number_of_these)
CHUNKS = Claim(synthetic.test_units_of_chunks_are_those_of_the_same_rows_in_memory)
GIVEN = Claim(synthetic.test_rows_given_levels_follow_the_joint_distribution_of_the_model)
CONSTANT = Claim(synthetic.test_missing_values_are_constant_too)
PAIRS = {
    relation: Claim(shared.test_a_unit_attains_the_sensitivity_of_pairs_of_rows_and_never_exceeds_it, relation, "rows")
    for relation in (AR, RO)
}
LEDGER_OF_PAIRS = Claim(ledger_is_what_ran, "frame, pairs of rows of units")
COMPARED = Claim(shared.test_two_rows_of_each_unit_that_has_two_are_compared)
ALONE = Claim(shared.test_each_row_alone_has_the_distribution_of_the_model_however_much_is_copied, (0.9, 0.5))
CONSTRUCTED = Claim(synthetic.test_columns_that_constraints_construct_from_one_another_are_constant_too, "ward")
MADE = Claim(synthetic.test_a_column_of_units_is_not_constructed_from_one_of_the_rows)

_FIRST = "return ($first[$order], $sizes[$order])"
_MADE = "replace($tables, unit='unit')"

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "units counted twice",
        [BOUND[AR], BOUND[RO]],
        (unit_tables, (_MADE, "replace($tables, unit='unit', value=$tables.value * 2)")),
    ),
    (
        "a replaced unit at the bound of one that joins",
        [BOUND[RO]],
        (residual_plan, ("$replaced = max($alone, $added, $two)", "$replaced = $added")),
    ),
    ("tables of units as those of rows", [BOUND[AR], BOUND[RO]], (unit_tables, (_MADE, "$tables"))),
    (
        "noise of the tables of units below the charge",
        [LEDGER],
        (
            release_units,
            (
                "add_gaussian($tables, $noise_multiplier, $rest)",
                "add_gaussian($tables, 0.9 * $noise_multiplier, $rest)",
            ),
        ),
    ),
    (
        "tables of units released twice",
        [LEDGER],
        (
            release_units,
            (
                "$packed = add_gaussian($tables, $noise_multiplier, $rest)",
                "$packed = add_gaussian($tables, $noise_multiplier, $rest)\n"
                "$packed = ($packed + add_gaussian($tables, $noise_multiplier, $rest)) / 2",
            ),
        ),
    ),
    (
        "the numbers of rows of other units",
        [OTHERS, USED],
        (units._first_of_each, (_FIRST, "return ($first[$order], np.flip($sizes[$order]))")),
    ),
    (
        "another row than the first for a unit",
        [USED],
        (units._first_of_each, (_FIRST, "return ($first[$order] + ($sizes[$order] > 1), $sizes[$order])")),
    ),
    (
        "a unit of several chunks by its row of the last one",
        [CHUNKS],
        (
            units.UnitSource._first_rows,
            (
                "self._rows_of($pieces, $kept.rows[$first])",
                "self._rows_of($pieces, $kept.rows[$first] - ($kept.rows[$first] >= len($pieces[0])))",
            ),
        ),
    ),
    (
        "rows that do not follow from the columns of their unit",
        [GIVEN],
        (generated._Points.given, ("$log[:, $part[:, $j]].T", "0 * $log[:, $part[:, $j]].T")),
    ),
    (
        "columns of units drawn anew in each row",
        [CONSTANT],
        (generated.RowsOfUnits._decoded, ("self.codec.decode($rest, exact=$exact)", "self.codec.decode($rest)")),
    ),
    (
        "columns that constraints construct",
        [MADE],
        (construction._Kept.allows, ("$own or not any($made)", "True")),
    ),
    (
        "columns of units constructed anew in each row",
        [CONSTRUCTED],
        (construction.Construction.decode, ("not set($step.outputs) & set($known)", "True")),
    ),
    (
        "pairs of rows at the bound of one column",
        [PAIRS[AR], PAIRS[RO]],
        (unit_pairs, ("float(1 + $alike.shape[1])", "2.0")),
    ),
    (
        "pairs of rows without their number in the bound",
        [PAIRS[AR], PAIRS[RO]],
        (unit_pairs, ("float(1 + $alike.shape[1])", "float($alike.shape[1])")),
    ),
    (
        "noise of pairs of rows below the charge",
        [LEDGER_OF_PAIRS],
        (
            release_pairs,
            (
                "add_gaussian($counts, $noise_multiplier, $rest)",
                "add_gaussian($counts, 0.9 * $noise_multiplier, $rest)",
            ),
        ),
    ),
    (
        "pairs of rows released twice",
        [LEDGER_OF_PAIRS],
        (
            release_pairs,
            (
                "$n_units, *$alike = add_gaussian($rest)",
                "add_gaussian($rest)\n$n_units, *$alike = add_gaussian($rest)",
            ),
        ),
    ),
    (
        "rows compared with those of the next unit",
        [COMPARED],
        (units.UnitSource.reduce_pairs, ("$begins[:-1] & ~$begins[1:]", "$begins[1:]")),
    ),
    (
        "all rows of a unit compared",
        [COMPARED],
        (units.UnitSource.reduce_pairs, ("$begins[:-1] & ~$begins[1:]", "~$begins[1:]")),
    ),
    (
        "rows that do not follow from what they copy",
        [ALONE],
        (generated.RowsOfUnits.draw, ("np.where($copies, $hidden, -1)", "np.where($copies, -1, -1)")),
    ),
    (
        "copies that depend on the level",
        [ALONE],
        (
            generated.RowsOfUnits.draw,
            ("$rng.random($shape) < self._copied", "($rng.random($shape) < self._copied) & (self._hidden[$1] < 1)"),
        ),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_sabotage_of_synthetic_units_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])


def test_the_query_of_frames_is_the_one_that_is_bounded():
    assert frames.unit_tables is unit_tables
