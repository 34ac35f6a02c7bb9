"""Every sabotage of which rows of a unit are used, and of what a row is seen as, is caught by an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_categories_by_value as labels_by_value
import test_construction as constructed
import test_rows_per_unit as learned
import test_schema as schemas
import test_units as bounded
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.data import labels, units
from skdpgen.tabular import _construction_steps, _schema

CHUNKS = [
    Claim(learned.test_chunks_count_and_use_the_rows_of_each_unit_as_memory_does, *case)
    for case in (("rows", "own"), ("units", "refuse"))
]
STEPS = [
    Claim(bounded.test_the_units_that_steps_sample_are_those_whose_rows_are_bounded, weighting)
    for weighting in ("rows", "units")
]
SHOWN = Claim(
    bounded.test_no_error_of_a_table_that_changes_shows_an_identifier,
    (("Ada-7731",), ("Zoe-7731",)),
    (("Zoe-7731",), ("Ada-7731",)),
    "sorted by 'id' in the first pass",
)
EXACT = Claim(bounded.test_no_refusal_of_identifiers_shows_one_of_them, "large floats that equal an integer")
GAPS = Claim(constructed.test_what_stands_for_a_missing_value_follows_from_its_row_alone, ("came <= left",))
LONGEST = Claim(labels_by_value.test_a_row_changes_no_type_of_what_is_released, "labels, the length of a rare text")
LISTED = Claim(schemas.test_what_the_dtype_of_a_column_lists_is_private_in_every_order, "text", True)

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "a learned number of rows that chunks do not use",
        CHUNKS,
        (units.UnitSource.settle, ("self._unit = $1", "self._unit = $1 if self.in_memory else self._unit")),
    ),
    (
        "a unit counted once in each chunk",
        CHUNKS,
        (
            units.UnitSource.rows_per_unit,
            (
                "for $pieces in self._whole_units():\n    yield n_rows_of_units(self._ids_of($pieces).codes)",
                "for $pieces in self._all.checked_chunks():\n    yield n_rows_of_units(self._ids_of([$pieces]).codes)",
            ),
        ),
    ),
    (
        "rows without an identifier as one unit of the steps",
        STEPS,
        (
            units.keep_rows,
            ("KeptRows($rows, $sizes, $used, $codes[$rows])", "KeptRows($rows, $sizes, $used, $1.codes[$rows])"),
        ),
    ),
    (
        "an identifier in a message",
        [SHOWN],
        (
            units._Order.must_ascend,
            ("raise InvalidInputError($text)", "raise InvalidInputError($text + str(self.last))"),
        ),
    ),
    (
        "floats among objects looked for in the distinct identifiers alone",
        [EXACT],
        (units._canonical, ("$values if pd.api.types.is_object_dtype($given) else $found", "$found")),
    ),
    (
        "a difference that is missing filled from other rows",
        [GAPS],
        (
            _construction_steps.Gap.encode,
            ("np.where($missing, $nearest, $gap)", "np.where($missing, np.nansum($gap), $gap)"),
        ),
    ),
    (
        "the length of the longest label",
        [LONGEST],
        (labels.check_labels, ("$dtype.kind in 'biuf'", "$dtype.kind in 'biufU'")),
    ),
    (
        "the categories of an ordered dtype as declared",
        [LISTED],
        (
            _schema._column_of_dtype,
            (
                "Categorical($1, missing=True, dtype='category')",
                "Categorical($1, tuple($2.categories) if $2.ordered else None, missing=True, dtype='category')",
            ),
        ),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_sabotage_of_rows_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
