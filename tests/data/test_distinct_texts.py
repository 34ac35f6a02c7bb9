"""Each distinct text of a column is read once, and every row gets what reading the whole column would give it."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest

from skdpgen.data import csv_values
from skdpgen.data.csv_values import as_kind
from skdpgen.data.notation import Notation
from skdpgen.data.table_reading import read_table
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric

# What makes readers stumble: each line is the distinct texts of a column.
NASTY = {
    "whole": ("1", "-3", "+4", "0", " 8"),
    "zeros": ("007", "010", "999"),
    "uneven_zeros": ("007", "10"),
    "huge": ("9223372036854775807", "-1"),
    "unsigned": ("9223372036854775808", "18446744073709551615"),
    "unsigned_and_negative": ("9223372036854775808", "-1"),
    "beyond": ("18446744073709551616", "1"),
    "endless": ("123456789012345678901234567890", "2"),
    "decimals": ("0.1", "0.10000000000000001", "1.50", "2.", "-.5", "-0.0"),
    "powers": ("1e5", "1E-3", "1e999"),
    "marks": ("1", "NaN", "nan", "inf", "-inf"),
    "one_mark": ("1", "2.5", "?"),
    "mixed": ("1", "two", "3.0"),
    "points": ("1.234", "12.345", "1.234.567"),
    "commas": ("1,5", "2,25"),
    "swiss": ("1'234", "12'345.6"),
    "spaced": ("1 234", "56"),
    "flags": ("true", "FALSE", "True"),
    "flags_and_numbers": ("true", "1", "0"),
    "days": ("2020-01-02", "9999-12-31", "1900-01-01"),
    "no_days": ("2020-02-30", "2020-01-02"),
    "minutes": ("2020-01-02T10:00", "2020-01-02T23:59"),
    "instants": ("2020-01-02T10:00:01.5", "2020-01-02T10:00:01.123456"),
    "nanoseconds": ("2020-01-02T10:00:01.123456789", "9999-12-31T00:00:00"),
    "zones": ("2020-01-02T10:00:00Z", "2020-01-02T10:00:00+02:00"),
    "other_days": ("01.02.2020", "31.12.1999"),
    "wrong_days": ("01.02.2020", "13.13.2020"),
    "money": ("€5", "€12.50"),
    "text": ("a", "é", "x,y", 'q"q', "=1+1", "None"),
}
OPTIONS = [
    {},
    {"missing_marks": ("?", "nan", "1")},
    {"decimal": ",", "thousands": "."},
    {"thousands": "'", "dates": ("%d.%m.%Y",)},
    {"thousands": "space"},
]
KINDS = {
    "number": Numeric("c", missing=True),
    "zoned": Datetime("c", missing=True, dtype="datetime64[us, UTC]"),
    "moment": Datetime("c", missing=True),
    "flag": Boolean("c", missing=True),
    "codes": Categorical("c", categories=(1, 2, 10), missing=True),
    "texts": Categorical("c", categories=("1", "2.0", "true"), missing=True),
    "any_text": Categorical("c", missing=True, dtype="string"),
    "whole": Categorical("c", missing=True, dtype="Int64"),
}


class _WholeColumn:
    """A column as it stands: every text is read wherever it occurs."""

    def __init__(self, written):
        self.distinct = written

    @staticmethod
    def rows(values):
        return values


def _column(texts, with_missing):
    drawn = np.random.default_rng(0).integers(0, len(texts), 60)
    values = [texts[k] for k in drawn]
    return [None if with_missing and k % 7 == 3 else value for k, value in enumerate(values)]


def _caught(read):
    """What was read, or the refusal, and the warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = read()
        except ValueError as error:
            found = f"{type(error).__name__}: {error}"
    return found, [str(warning.message) for warning in said]


def _both(read, monkeypatch):
    distinct = _caught(read)
    with monkeypatch.context() as patch:
        patch.setattr(csv_values, "_Texts", _WholeColumn)
        return distinct, _caught(read)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_a_file_is_read_as_its_whole_columns_would_be(tmp_path, monkeypatch, options):
    columns = {f"{name}_{gaps}": _column(NASTY[name], gaps) for name in NASTY for gaps in (False, True)}
    path = tmp_path / "rows.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    (frame, said), (whole, said_of_whole) = _both(lambda: read_table(path, Notation(**options)), monkeypatch)
    pd.testing.assert_frame_equal(frame, whole, check_exact=True)
    assert frame.attrs == whole.attrs
    assert said == said_of_whole
    assert len(set(map(str, frame.dtypes))) > 2  # there is something to be told apart


@pytest.mark.parametrize("kind", KINDS)
def test_a_declared_column_is_read_as_a_whole_one_would_be(monkeypatch, kind):
    notations = Notation(), Notation(",", "."), Notation(dates=("%d.%m.%Y",))
    for name, gaps, notation in itertools.product(NASTY, (False, True), notations):
        written = pd.Series(_column(NASTY[name], gaps), dtype="string")
        (found, said), (whole, said_of_whole) = _both(
            lambda w=written, n=notation: as_kind(w, KINDS[kind], n), monkeypatch
        )
        if isinstance(whole, str):
            assert found == whole
            continue
        for one, other in zip(found, whole):
            pd.testing.assert_series_equal(one, other, check_exact=True, check_names=False)
        assert said == said_of_whole


def test_values_keep_the_index_and_the_name_of_their_texts():
    written = pd.Series(["5", None, "x"], dtype="string", name="c", index=[7, 3, 9])
    for column in KINDS.values():
        values, unread = as_kind(written, column)
        for part in (values, unread):
            assert part.name == "c"
            assert part.index.equals(written.index)


def test_a_text_is_read_once_however_often_it_occurs(monkeypatch):
    seen = []
    monkeypatch.setattr(csv_values, "_number", lambda text: seen.append(text) or int(text))
    written = pd.Series(["5", "6", None, "5"] * 100, dtype="string")
    values, _ = as_kind(written, KINDS["codes"])
    assert sorted(seen) == ["5", "6"]
    assert values.tolist()[:2] == [5, 6]
