"""Every sabotage of how tables of polars and pyarrow, and the decimals in them, are read is caught by a named test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_formats as formats
import test_polars_and_pyarrow as others
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.data.units import _factorized
from skdpgen.tabular._formats import _counts_of_decimals, _numbers_of_decimals
from skdpgen.utils.foreign_tables import _arrow_frame, _without_nan

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "identifiers that are NaN, which are values to Arrow, taken for one unit",
        [Claim(others.test_nan_is_no_identifier, frame) for frame in (others.pl.DataFrame, others.pandas_of_arrow)],
        (_without_nan, ("$a.if_else($a.is_nan($x), $y, $x)", "$x")),
        (_factorized, ("np.isnan($x)", "np.zeros(len($x), dtype=bool)")),
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
