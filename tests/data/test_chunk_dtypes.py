"""The type of a learned category depends on its value and on the schema: not on the chunk that it came in.

A missing label makes floats of the integers of its chunk. If the type followed the chunk, one row would decide whether
a released category is 2 or 2.0, with certainty and at any epsilon.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pandas as pd
import pytest

from skdpgen import DPMERFSynthesizer, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, Schema, load
from skdpgen.data.frames import _merge_histograms
from skdpgen.exceptions import SchemaError
from skdpgen.tabular import Categorical, Datetime, Numeric, schema_from_histogram, schema_histogram
from skdpgen.tabular._frames import numeric_values

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.PrivacyLeakWarning"),
]

NUMBERS = ["int64", "int8", "uint64", "Int64", "UInt8", "float64", "float32", "Float64", "object", "category"]
COMMON, RARE = [0, 1] * 40, [0, 1, 2] * 40


def _chunk(labels, dtype):
    text = str(dtype).lower().startswith(("str", "text"))
    column = pd.Series([str(label) for label in labels] if text else labels).astype(dtype)
    return pd.DataFrame({"x": np.linspace(0, 1, len(labels)), "y": column})


@functools.cache
def _counted(labels, chunk_dtype, dtype):
    """Histogram of a chunk of such labels, under a schema of a dtype."""
    schema = Schema([Categorical("y", dtype=dtype, missing=dtype not in ("int64", "int8", "uint64"))])
    return schema_histogram(_chunk(list(labels), chunk_dtype)[["y"]], schema)


def _learned(chunks, dtype):
    """Categories that two chunks, labels and their dtype, release without noise, with their types."""
    histogram = functools.reduce(_merge_histograms, (_counted(tuple(labels), of, dtype) for labels, of in chunks))
    column = schema_from_histogram(histogram.bounded_sum.value.astype(float), histogram, 0.0, 1e-6)["y"]
    return [(type(value), value) for value in column.categories], type(column.other), column.dtype


@pytest.mark.parametrize("declared", [*NUMBERS, "string", None])
@pytest.mark.parametrize("first", [*NUMBERS, "string"])
def test_the_type_of_a_category_depends_on_the_schema_alone(declared, first):
    def outcome(*chunks):
        try:
            return _learned(chunks, declared)
        except SchemaError:
            return "refused"

    whole = outcome((RARE, declared or "object"))
    if declared in ("object", "category", None) and first == "string":
        return  # text where numbers are: refused by the fit, which compares the kinds of all chunks
    for second in NUMBERS:
        rows, more, rest = (COMMON, first), ([*COMMON, 2], first), (RARE, second)
        assert outcome(rows, rest) == outcome(more, rest) == outcome(rest, more) == whole


def _write_parquet(chunks, folder):
    pytest.importorskip("pyarrow")
    paths = [folder / f"{k}.parquet" for k in range(len(chunks))]
    for path, chunk in zip(paths, chunks):
        chunk.to_parquet(path)
    return paths


def _csv_chunks(chunks, folder):
    path = folder / "rows.csv"
    pd.concat([chunk.astype({"y": "Int64"}) for chunk in chunks]).to_csv(path, index=False)
    return lambda: pd.read_csv(path, chunksize=len(chunks[0]))


def _dask(chunks, folder):
    frame = pytest.importorskip("dask.dataframe")
    return frame.from_map(lambda k: chunks[k], range(len(chunks)), meta=chunks[0].iloc[:0])


SOURCES = {"list": lambda chunks, folder: chunks, "csv": _csv_chunks, "parquet": _write_parquet, "dask": _dask}
MODELS = {
    "moment": lambda: MomentSynthesizer(np.inf, target="y", target_type="categorical"),
    "p3gm": lambda: P3GMSynthesizer(np.inf, target="y", target_type="categorical"),
    "merf": lambda: DPMERFSynthesizer(np.inf, target="y", target_type="categorical", steps=2),
}


@pytest.mark.parametrize(
    ("model", "source"), [*itertools.product(["moment"], SOURCES), ("p3gm", "list"), ("merf", "list")]
)
@pytest.mark.parametrize("kinds", [("float64", "int64"), ("int64", "float64")], ids="-".join)
def test_one_row_of_a_chunk_does_not_change_the_type_of_a_released_category(model, source, kinds, tmp_path):
    released = []
    for labels in (COMMON, [*COMMON, 2]):
        chunks = [_chunk(labels, kinds[0]), _chunk(RARE, kinds[1])]
        if source == "csv" and kinds[0] == "float64":
            chunks[0].loc[0, "y"] = np.nan  # makes floats of the integers of its chunk
        made = MODELS[model]().fit(SOURCES[source](chunks, tmp_path))
        made.save(tmp_path / "model.safetensors")
        categories = load(tmp_path / "model.safetensors").schema_["y"].categories
        assert repr(categories) == repr(made.schema_["y"].categories)
        released.append(repr(categories))
    assert released[0] == released[1] == ("(0.0, 1.0, 2.0)" if kinds[0] == "float64" else "(0, 1, 2)")


@pytest.mark.parametrize("declared", ["str", None])
def test_a_chunk_of_digits_is_refused_where_the_column_is_text(declared, tmp_path):
    """With a letter in its chunk the category is 007, without it was 7: one row decided what is released."""
    schema = None if declared is None else Schema([Categorical("y", dtype=declared, missing=True)])
    for last, message in (("x", None), ("007", "something else in a chunk|different kinds in different chunks")):
        rows = ["y,x", *(f"a,{k}" for k in range(80)), *(f"007,{k}" for k in range(79)), f"{last},1"]
        (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
        books = PrivacyAccountant(np.inf)
        synth = MomentSynthesizer(np.inf, schema=schema, accountant=books)
        chunks = functools.partial(pd.read_csv, tmp_path / "rows.csv", chunksize=80)
        if message is None:
            assert "007" in synth.fit(chunks).schema_["y"].categories
            continue
        with pytest.raises(SchemaError, match=message):
            synth.fit(chunks)
        assert not books.entries


def test_truth_values_are_no_numbers_in_a_chunk():
    schema = Schema([Categorical("y", categories=(0, 1), other="other", missing=True)])
    chunks = [_chunk(COMMON, "int64"), _chunk([True, False] * 40, "bool")]
    with pytest.raises(SchemaError, match="holds numbers in the schema and something else"):
        MomentSynthesizer(1.0, schema=schema).fit(chunks)


def test_an_empty_column_of_a_chunk_is_text_too():
    chunks = [_chunk(COMMON, "string"), _chunk([np.nan] * 40, "float64")]
    chunks[0]["y"] = chunks[0]["y"].astype(object)
    assert MomentSynthesizer(np.inf).fit(chunks).schema_["y"].categories == ("0", "1")


def test_a_category_that_no_dtype_of_its_schema_holds_is_refused_before_the_charge():
    chunks = [_chunk(COMMON, "int64"), _chunk([0, 1.5], "float64")]
    synth = MomentSynthesizer(1.0, target="y", target_type="categorical")
    with pytest.raises(SchemaError, match="cannot hold"):
        synth.fit(chunks)
    assert not hasattr(synth, "accountant_")


def test_the_card_says_whose_dtypes_were_taken():
    fitted = MODELS["moment"]().fit([_chunk(COMMON, "int64"), _chunk(RARE, "int64")])
    assert any("those of the first chunk" in text for text in fitted.card_["public_assumptions"])


@pytest.mark.parametrize("dtype", ["string", "object", "int64", "category"])
def test_ties_at_the_largest_number_of_categories_do_not_depend_on_the_order_of_rows(dtype):
    labels = [str(k) for k in range(10)] if dtype == "string" else list(range(10))
    schema = Schema([Categorical("y", dtype=dtype, missing=dtype != "int64")])

    def kept(values):
        histogram = schema_histogram(pd.DataFrame({"y": pd.Series(values).astype(dtype)}), schema)
        counts = histogram.bounded_sum.value.astype(float)
        return schema_from_histogram(counts, histogram, 0.0, 1e-6, max_categories=4)["y"].categories

    assert kept(labels * 3) == kept(labels[::-1] * 3) == tuple(sorted(labels)[:4])


def test_counts_of_sorted_categories_are_those_of_their_rows():
    schema = Schema([Categorical("y", dtype="string", missing=True)])
    histogram = schema_histogram(
        pd.DataFrame({"y": pd.Series(["c", "a", None, "c", "b", "c"], dtype="string")}), schema
    )
    assert dict(zip(histogram.keys["y"], histogram.bounded_sum.value)) == {"a": 1, "b": 1, "c": 3}
    assert histogram.bounded_sum.value[-1] == 1


@pytest.mark.parametrize("declared", [None, "Int64"])
def test_large_codes_that_a_missing_one_makes_floats_are_refused_before_the_charge(declared, tmp_path):
    """One missing value would turn every second code of its chunk into its neighbour."""
    schema = Schema([Categorical("y", dtype=declared, missing=True)])
    first = 2**53
    for last, dtype, message in ((first, None, None), ("", None, r"floats of 2\*\*53 or more"), ("", "Int64", None)):
        rows = ["y,x", *(f"{first + k % 4},{k}" for k in range(119)), f"{last},1"]
        (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
        books, options = PrivacyAccountant(np.inf), {"chunksize": 40, "dtype": None if dtype is None else {"y": dtype}}
        synth = MomentSynthesizer(np.inf, schema=schema, accountant=books)
        chunks = functools.partial(pd.read_csv, tmp_path / "rows.csv", **options)
        if message is None:
            assert synth.fit(chunks).schema_["y"].categories == tuple(range(first, first + 4))
            continue
        with pytest.raises(SchemaError, match=message):
            synth.fit(chunks)
        assert not books.entries


@pytest.mark.parametrize("dtype", ["float64", "Float64", "object", "category"])
def test_large_floats_are_no_categories_of_a_chunk(dtype):
    schema = Schema([Categorical("y", categories=(0, 1), other=-1, missing=True)])
    chunks = [_chunk(COMMON, "int64"), _chunk([0.5, 2.0**60] * 40, dtype)]
    with pytest.raises(SchemaError, match="for several integers"):
        MomentSynthesizer(1.0, schema=schema).fit(chunks)
    assert MomentSynthesizer(1.0, schema=schema).fit(chunks[:1]).row_count_ > 0


@pytest.mark.parametrize("declared", [None, "Int64", "UInt64"])
@pytest.mark.parametrize("last", ["a word", "18446744073709551616 ", "-1"])
def test_a_text_that_makes_texts_of_the_large_codes_of_its_chunk_is_refused(declared, last):
    """They would be read as floats, and every second code would turn into its neighbour."""
    first = 2**53
    schema = Schema([Categorical("y", tuple(range(first, first + 4)), other=0, missing=True, dtype=declared)])
    codes = [first + k % 4 for k in range(40)]
    chunks, books = [_chunk(codes, "int64"), _chunk([*map(str, codes), last], "str")], PrivacyAccountant(np.inf)
    assert MomentSynthesizer(np.inf, schema=schema).fit(chunks[:1]).schema_["y"].categories == tuple(sorted(set(codes)))
    with pytest.raises(SchemaError, match="or texts of such numbers"):
        MomentSynthesizer(np.inf, schema=schema, accountant=books).fit(chunks)
    assert not books.entries
    small = [_chunk([*map(str, COMMON), "2"], "str")]
    assert MomentSynthesizer(np.inf, schema=Schema([Categorical("y", (0, 1), other=-1)])).fit(small).row_count_ == 81


def refused(chunks, schema, message):
    """Whether a fit refuses these chunks before the charge, for the reason that is told."""
    books = PrivacyAccountant(np.inf)
    with pytest.raises(SchemaError, match=message):
        MomentSynthesizer(np.inf, schema=schema, accountant=books).fit(chunks)
    return not books.entries


@pytest.mark.parametrize(("head", "source"), [("object", "list"), ("category", "list"), ("category", "dask")])
def test_one_text_does_not_decide_the_kind_of_categories_that_the_first_chunk_lacks(head, source):
    """One text makes texts of all numbers of the only chunk that has values, and no other chunk shows it."""
    schema = Schema([Categorical("y", missing=True)])
    empty, numbers, texts = _chunk([None] * 80, head), _chunk(COMMON, "int64"), _chunk([*COMMON, "a text"], "str")
    for second in (numbers, texts):
        chunks = SOURCES[source]([empty, second], None)
        assert refused(chunks, schema, r"no value in the first chunk.*Categorical\('y', dtype='str'\)")
    for second, dtype, categories in ((numbers, "Int64", (0, 1)), (texts, "str", ("0", "1", "a text"))):
        declared = Schema([Categorical("y", missing=True, dtype=dtype)])
        made = MomentSynthesizer(np.inf, schema=declared).fit(SOURCES[source]([empty, second], None))
        assert made.schema_["y"].categories == categories
        made = MomentSynthesizer(np.inf, schema=schema).fit([second, empty])
        assert made.schema_["y"].categories == categories


def test_categories_of_a_first_chunk_without_values_have_the_kind_of_its_dtype():
    schema, words = Schema([Categorical("y", missing=True)]), ["a", "b"] * 40
    for head, labels in (("float64", COMMON), ("Int64", COMMON), ("string", words)):
        chunks = [_chunk([None] * 80, "object").astype({"y": head}), _chunk(labels, "object")]
        assert MomentSynthesizer(np.inf, schema=schema).fit(chunks).schema_["y"].categories == tuple(labels[:2])
        chunks[1] = _chunk(words if labels is COMMON else COMMON, "object")
        assert refused(chunks, schema, "different kinds in different chunks")


def test_a_date_that_a_reader_cannot_parse_moves_no_other_date_by_its_offset_from_utc():
    """Datetimes are on the clock of the column, and texts without an offset in UTC: a reader makes these of those."""
    column = Datetime("y", ("2020-01-01", "2020-01-03"), dtype="datetime64[us, Europe/Paris]", missing=True)
    schema = Schema([Numeric("x", (0, 1)), column])
    texts = [f"2020-01-01 {k % 24:02}:30:00" for k in range(80)]
    wanted = pd.to_datetime(pd.Series(texts)).dt.tz_localize("UTC").dt.tz_convert("Europe/Paris")
    local = _chunk(wanted, wanted.dtype)
    for rows in (texts, [*texts, None]):
        for made in (pd.to_datetime(rows), pd.PeriodIndex(rows, freq="s")):
            chunk = _chunk(made, made.dtype)
            assert refused([local, chunk], schema, r"none in a chunk.*tz_localize\('Europe/Paris'\)")
            assert MomentSynthesizer(np.inf, schema=schema).fit(chunk)  # of one frame the dtype is public
    read = [numeric_values(chunk["y"], column).tolist() for chunk in (local, _chunk([*texts, "2020-01-01T10Z"], "str"))]
    assert read[1] == [*read[0], read[1][-1]]
    nothing = _chunk([pd.NaT] * 9, "datetime64[us]")
    assert MomentSynthesizer(np.inf, schema=schema).fit([local, _chunk(texts, "object"), nothing]).row_count_ == 169
