"""Every sabotage of how tables of polars and pyarrow, and the decimals in them, are read is caught by a named test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_formats as formats
import test_identifiers_of_arrow as ids
import test_polars_and_pyarrow as others
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.data.units import _decoded, _factorized, _slice_of
from skdpgen.tabular._formats import _counts_of_decimals, _numbers_of_decimals
from skdpgen.utils.foreign_tables import _arrow_frame, _without_nan

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "identifiers that are NaN, which are values to Arrow, taken for one unit",
        [Claim(others.test_nan_is_no_identifier, frame) for frame in (others.pl.DataFrame, others.pandas_of_arrow)],
        (_without_nan, ("$a.if_else($a.is_nan($x), $y, $x)", "$x")),
        (
            _factorized,
            (
                "pd.factorize(np.asarray($x, dtype=np.float64))",
                "pd.factorize(np.asarray($x, dtype=np.float64), use_na_sentinel=False)",
            ),
        ),
    ),
    (
        "places in a dictionary of Arrow taken for identifiers",
        [
            Claim(ids.test_identifiers_of_arrow_are_the_values_that_they_stand_for, "text, listed twice"),
            Claim(ids.test_identifiers_of_arrow_are_the_values_that_they_stand_for, "NaN, listed once"),
            Claim(ids.test_a_fit_by_units_uses_no_more_rows_of_a_person_that_a_dictionary_lists_often),
        ],
        (_decoded, ("hasattr($arrow, 'index_type')", "False")),
    ),
    (
        "zeros of both signs, which are two values to Arrow, taken for two units",
        [Claim(ids.test_identifiers_of_arrow_are_the_values_that_they_stand_for, "zeros of both signs")],
        (_factorized, ("pd.factorize(np.asarray($x, dtype=np.float64))", "pd.factorize($x)")),
    ),
    (
        "rows whose identifier is NaN, in a slice by its hash, which is another one at each pass",
        [Claim(ids.test_the_part_of_a_row_without_an_identifier_follows_from_its_place, "floats")],
        (_slice_of, ("_factorized(_decoded($values))", "pd.factorize($values)")),
    ),
    (
        "a table of polars whose missing values make floats of its integers",
        [Claim(others.test_the_dtypes_of_a_frame_depend_on_those_of_the_table_alone)],
        (_arrow_frame, ("$table.to_pandas(types_mapper=pd.ArrowDtype)", "$table.to_pandas()")),
    ),
    (
        "decimals of Arrow by two roundings",
        [Claim(formats.test_decimals_of_arrow_are_the_floats_nearest_to_them, "decimal128(38, 3)[pyarrow]")],
        (_numbers_of_decimals, ("$counts / 10.0 ** $scale", "$counts * 10.0 ** -$scale")),
    ),
    (
        "decimals of Arrow that are too large for a float, taken for counts",
        [Claim(formats.test_decimals_of_arrow_are_the_floats_nearest_to_them, "decimal128(38, 3)[pyarrow]")],
        (_counts_of_decimals, ("$small & ($counts > -_EXACT) & ($counts < _EXACT)", "$small")),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_tables_of_other_libraries_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
