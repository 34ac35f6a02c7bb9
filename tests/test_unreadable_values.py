"""A value that pandas, numpy or Arrow cannot read is refused before the charge, by the name of its column alone."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpgen import DPPCA, DPGaussianMixture, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, PrivacyUnit
from skdpgen.data.csv_values import as_kind
from skdpgen.data.notation import Notation
from skdpgen.data.table_reading import read_table
from skdpgen.exceptions import InvalidInputError
from skdpgen.metrics import quality_score
from skdpgen.tabular import Categorical, Datetime, Numeric, Schema
from skdpgen.tabular._frames import numeric_values

pa = pytest.importorskip("pyarrow")

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.filterwarnings("ignore:values that cannot be read"),
]

N = 40
OTHER = np.arange(float(N))
# What the messages of pandas and Arrow would show of the cells below.
SHOWN = ("ZQXCANARY", "148108", "148107", "5000111222")


def _not_utf8():
    """Text of Arrow of which one cell is in another encoding: files of some programs have such text."""
    cells = pa.array(["ZQXCANARY Müller".encode("latin-1")] + [b"a"] * (N - 1))
    return pa.Array.from_buffers(pa.string(), N, cells.buffers())


def _numbers(first, kind, width=64):
    plain = pa.array([first] + [0] * (N - 1), type=pa.int64() if width == 64 else pa.int32())
    return plain.cast(kind)


def _columns():
    moment = pa.timestamp("us", tz="Europe/Paris")
    arrow = {
        "text": _not_utf8(),
        "moment": _numbers(2**62, moment),
        "end of time": _numbers(253402300799 * 10**6, moment),  # 9999-12-31 in UTC, and year 10000 in Paris
        "date": _numbers(2**31 - 1, pa.date32(), 32),
        "span": _numbers(5000111222 * 10**6, pa.duration("s")),
    }
    columns = {name: pd.Series(pd.array(values, dtype=pd.ArrowDtype(values.type))) for name, values in arrow.items()}
    return {**columns, "moment of pandas": arrow["moment"].to_pandas()}


def _uses(column, accountant):
    """Fits that read a column in each place where it may stand."""
    frame, numbers, shared = pd.DataFrame({"a": OTHER, "c": column}), OTHER[:, None], {"accountant": accountant}
    return {
        "table": lambda: MomentSynthesizer(1.0, **shared).fit(frame),
        "chunks": lambda: MomentSynthesizer(1.0, **shared).fit([frame[5:], frame[:5]]),
        "y of a table": lambda: MomentSynthesizer(1.0, **shared).fit(frame[["a"]], column),
        "y of an array": lambda: P3GMSynthesizer(1.0, **shared).fit(numbers, column),
        "classes": lambda: DPGaussianMixture(1, **shared).fit(numbers, column),
        "array": lambda: DPPCA(1, **shared).fit(frame),
    }


def _check_refused(accountant, types, fit, *data):
    """Check that a fit is refused, with nothing charged and no cell in what it shows; nothing if it is not refused."""
    error = _error_of(fit, *data)
    if error is not None:
        assert isinstance(error, types), type(error).__name__
        assert not any(text in "".join(traceback.format_exception(error)) for text in SHOWN)
        assert not accountant.charges, "refused after the charge"
    return error is not None


def _error_of(fit, *data):
    try:
        fit(*data)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("name", ["text", "moment", "moment of pandas", "end of time", "date", "span"])
def test_no_library_shows_a_cell_that_it_cannot_read(name):
    column, refused = _columns()[name], 0
    for use in _uses(column, None):
        accountant = PrivacyAccountant(5.0)
        # scikit-learn's TypeError names types alone
        types = (InvalidInputError, TypeError) if use == "array" else InvalidInputError
        refused += _check_refused(accountant, types, _uses(column, accountant)[use])
    assert refused >= 3


@pytest.mark.parametrize("name", ["text", "end of time", "date"])
def test_no_identifier_that_cannot_be_read_is_shown(name):
    column = _columns()[name]
    accountant = PrivacyAccountant(5.0, unit="c")
    frame = pd.DataFrame({"a": OTHER, "b": OTHER, "c": column})
    model = MomentSynthesizer(1.0, accountant=accountant, unit=PrivacyUnit("c", 2))
    assert _check_refused(accountant, InvalidInputError, model.fit, frame)


def _parquet(listed, folder):
    """A file with text that is not UTF-8, in a column of text or of categories."""
    from pyarrow import parquet

    column = _not_utf8()
    if listed:
        column = pa.DictionaryArray.from_arrays(pa.array([0] + [1] * (N - 1)), column[:2])
    path = Path(folder) / "rows.parquet"
    parquet.write_table(pa.table({"a": OTHER, "c": column}), path)
    return path


@pytest.mark.parametrize("listed", [False, True], ids=["text", "categories"])
def test_text_of_a_parquet_file_that_is_not_utf8_is_not_shown(listed):
    with tempfile.TemporaryDirectory() as folder:
        path = _parquet(listed, folder)
        for schema in (None, Schema([Numeric("a"), Categorical("c", ("a",), other="b", missing=True)])):
            accountant = PrivacyAccountant(5.0)
            model = MomentSynthesizer(1.0, schema=schema, accountant=accountant)
            assert _check_refused(accountant, InvalidInputError, model.fit, path)
        # the command line reads all rows at once, and looks at them before a fit does
        assert _check_refused(PrivacyAccountant(1.0), InvalidInputError, read_table, path), "the file was read"


def test_a_metric_shows_no_cell_that_it_cannot_read():
    rows = pd.DataFrame({"a": OTHER, "c": _columns()["span"]})
    for real, synthetic in ((rows, rows[1:]), (rows[1:], rows)):
        assert _check_refused(PrivacyAccountant(1.0), InvalidInputError, quality_score, real, synthetic)


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_label_that_no_float_holds_is_refused_before_the_charge(digits):
    y = pd.Series([10**digits] + [1, 2] * ((N - 1) // 2) + [1], dtype=object)
    for make in (P3GMSynthesizer, MomentSynthesizer, DPGaussianMixture):
        accountant = PrivacyAccountant(100.0)
        model = make(epsilon=50.0, accountant=accountant)
        assert _check_refused(accountant, InvalidInputError, model.fit, OTHER[:, None], y), "a fit was charged"


def _without_name():
    """Labels of a dtype of which no sample can be, and the dtype of those that they stand for."""
    kind = pa.dictionary(pa.int32(), pa.string())
    listed = pd.array(pa.array(["u", "v"] * N).cast(kind), dtype=pd.ArrowDtype(kind))
    return {
        "sparse": (pd.Series(pd.arrays.SparseArray([1, 0] * N)), "int64"),
        "categories of Arrow": (pd.Series(listed), "string[pyarrow]"),
    }


@pytest.mark.parametrize("make", [P3GMSynthesizer, MomentSynthesizer, DPGaussianMixture])
@pytest.mark.parametrize("form", ["sparse", "categories of Arrow"])
def test_labels_of_a_dtype_without_name_are_sampled_as_what_they_stand_for(make, form):
    y, dtype = _without_name()[form]
    model = make(epsilon=50.0, random_state=0).fit(np.random.default_rng(0).random((2 * N, 2)), y)
    assert str(model.sample(5)[1].dtype) == dtype


# ---- one value, whatever the others are ------------------------------------------------------------------------------
@pytest.mark.parametrize("beside", ["3", "1.5", "no number"])
def test_no_other_value_decides_the_sign_of_zero(beside):
    column = Numeric("a", missing=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_text(f"a,b\n-0,1\n2,1\n{beside},1\n")
        read = read_table(path, schema=Schema([column, Numeric("b")]))["a"]
    values = numeric_values(read, column)
    assert values[0] == 0.0
    assert not np.signbit(values[0])


@pytest.mark.parametrize("dtype", ["datetime64[us]", "datetime64[us, Europe/Paris]"])
def test_the_clock_of_the_reader_is_no_date_in_any_format(dtype):
    written = pd.Series(["31.12.2020", "now", "today", "2021-01-01"], dtype="string")
    column = Datetime("a", missing=True, dtype=dtype)
    values, unread = as_kind(written, column, Notation(dates=("%d.%m.%Y",)))
    assert values.isna().tolist() == unread.tolist() == [False, True, True, False]
