"""Every sabotage of constraints by construction is caught by a named test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_constraints as fits
import test_constraints_of_formats as formats
import test_construction as construction
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.tabular import _construction_steps as steps
from skdpgen.tabular import _learning as learning

ROW = construction.test_one_row_of_the_table_makes_one_row_of_what_the_model_sees
GAP, PAIR = Claim(ROW, ("came <= left",)), Claim(ROW, ("combinations(state, town)",))
LISTED = Claim(construction.test_combinations_that_are_not_listed_are_refused_and_not_shown)
DTYPE = Claim(construction.test_the_dtype_of_a_chunk_changes_none_of_its_rows)
TOLD = Claim(fits.test_a_combination_of_one_row_is_not_told)

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "differences of dates in the unit of a schema without resolutions",
        [Claim(formats.test_a_difference_of_dates_whose_days_are_learned_is_in_days, ("stay == left - came",))],
        (steps.Computed._unit, ("unit_of($column) if isinstance($column, Datetime) else 1", "1")),
    ),
    (
        "a combination kept without its threshold",
        [TOLD],
        (learning._mask_of_categories, ("if $noise_sd > 0:\n    $above\nelse:\n    $all", "$all")),
    ),
    (
        "differences clipped to what the rows have",
        [GAP],
        (
            steps.Gap.encode,
            ("np.clip($gap, self.low, self.high)", "np.clip($gap, np.nanmedian($gap), self.high)"),
        ),
    ),
    (
        "differences from the earliest of all dates",
        [GAP],
        (steps.Gap.encode, ("($made - $base) * self._sign", "($made - np.nanmin($base)) * self._sign")),
    ),
    (
        "combinations numbered in the order of the rows",
        [PAIR],
        (
            steps.Merged.encode,
            (
                "$2[self.name] = pd.Series($texts[$combined], $rest)",
                "$2[self.name] = pd.Series($combined.astype(str), $rest)",
            ),
        ),
    ),
    (
        "a condition on values in the dtype of their chunk",
        [DTYPE],
        (
            steps.Overwritten.overwrite,
            (
                "self._where($outer, $table)",
                "self.conditional.where(pd.DataFrame($outer)[list(self.inputs)])",
            ),
        ),
    ),
    (
        "the combination of a row in a message",
        [LISTED],
        (
            steps.Merged.encode,
            ("raise SchemaError($said)", "raise SchemaError('does not list ' + str($1[self.name].tolist()))"),
        ),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_constraints_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
