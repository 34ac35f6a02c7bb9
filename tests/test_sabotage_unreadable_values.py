"""Every sabotage of how unreadable values are refused is caught by a named test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_unreadable_values as unreadable
import test_wide_values as wide
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.data import csv_values, labels, table_reading
from skdpgen.tabular import _frames
from skdpgen.utils import table_checks, validation

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.filterwarnings("ignore:values that cannot be read"),
]

TEXT = Claim(unreadable.test_no_library_shows_a_cell_that_it_cannot_read, "text")
DATE = Claim(unreadable.test_no_identifier_that_cannot_be_read_is_shown, "date")
IDENTIFIER = Claim(unreadable.test_no_identifier_that_cannot_be_read_is_shown, "text")
FILES = [
    Claim(unreadable.test_text_of_a_parquet_file_that_is_not_utf8_is_not_shown, listed) for listed in (False, True)
]
METRIC = Claim(unreadable.test_a_metric_shows_no_cell_that_it_cannot_read)
LABEL = Claim(unreadable.test_a_label_that_no_float_holds_is_refused_before_the_charge, 5000)
ZERO = Claim(unreadable.test_no_other_value_decides_the_sign_of_zero, "1.5")
CLOCK = Claim(unreadable.test_the_clock_of_the_reader_is_no_date_in_any_format, "datetime64[us]")
SUMS = [Claim(wide.test_the_size_of_values_gives_no_warning, dtype) for dtype in wide.DTYPES]
SEARCH = Claim(wide.test_a_search_keeps_no_warning_of_the_size_of_values)
DOUBLE = Claim(wide.test_numbers_that_no_double_holds_are_refused_before_the_charge, (-1, 1))

MUTANTS = [
    (
        "the message of a library is shown",
        [TEXT, DATE, IDENTIFIER, METRIC],
        (table_checks.reading, ("(SchemaError, InvalidInputError, MemoryError)", "Exception")),
    ),
    ("arrays alone show it", [TEXT], (validation.validate_rows, ("(TypeError, MemoryError)", "Exception"))),
    (
        "text of a file is read without a look at its bytes",
        FILES[:1],
        (table_reading._check_utf8, ("$held.validate(full=True)", "None")),
    ),
    (
        "the message on a file is that of Arrow",
        FILES[1:],
        (table_reading._refused_as_parquet, ("(ImportError, MemoryError)", "Exception")),
    ),
    (
        "numpy warns of the size of values",
        [*SUMS, SEARCH],
        (validation.validate_rows, ("np.errstate(over='ignore', invalid='ignore')", "np.errstate()")),
    ),
    (
        "long doubles may be infinite as doubles",
        [DOUBLE],
        (validation._in_double, ("$X.dtype.kind != 'f' or $X.dtype.itemsize <= 8", "True")),
    ),
    ("labels of any size are sorted", [LABEL], (labels.class_labels, ("not _are_finite($values)", "False"))),
    ("zero keeps its sign", [ZERO], (_frames.numeric_values, ("$values + 0.0", "$values"))),
    (
        "now is a date",
        [CLOCK],
        (csv_values._moments, ("$texts.where(~$texts.isin(['now', 'today']))", "$texts")),
    ),
]


@pytest.mark.parametrize(("claims", "changes"), [(m[1], m[2:]) for m in MUTANTS], ids=mutant_ids(MUTANTS))
def test_sabotage_is_caught(monkeypatch, claims, changes):
    assert_caught(monkeypatch, claims, *changes)
