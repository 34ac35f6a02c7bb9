from __future__ import annotations

import copy
import inspect
import json
import pickle

import numpy as np
import pandas as pd
import pytest

from skdpgen.exceptions import SchemaError
from skdpgen.tabular import Boolean, Categorical, Datetime, Identifier, Numeric, Schema, TableEncoder
from skdpgen.tabular._schema import check_unique

FULL = Schema(
    [
        Numeric("age", (17, 90), integer=True),
        Numeric("weight", (0.5, 250.0), missing=True, dtype="float32", decimals=1),
        Numeric("children", (0, 20), integer=True, missing=True),
        Categorical("sex", ("Male", "Female")),
        Categorical("grade", (3, 1, 2), missing=True, other=-1),
        Boolean("smoker", missing=True),
        Datetime("visit", ("2020-01-01", "2023-12-31"), resolution="D", dtype="datetime64[ns, Europe/Paris]"),
        Numeric("income"),
        Categorical("city", missing=True, dtype="category"),
        Categorical("stage", ("low", "mid", "high"), ordered=True),
        Numeric(7, (0, 1)),
    ]
)


def test_json_round_trip_is_exact(tmp_path):
    assert Schema.from_json(FULL.to_json()) == FULL
    FULL.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == FULL
    assert json.loads(FULL.to_json())["columns"][3]["categories"] == ["Male", "Female"]


def test_json_says_what_is_to_be_learned():
    columns = {c["name"]: c for c in FULL.to_dict()["columns"]}
    assert columns["income"]["bounds"] is None
    assert columns["city"]["categories"] is None


def test_schema_is_frozen_hashable_and_survives_pickle():
    assert hash(FULL) == hash(pickle.loads(pickle.dumps(FULL)))
    assert copy.deepcopy(FULL) == FULL
    with pytest.raises(AttributeError):
        FULL.columns = ()
    with pytest.raises(AttributeError):
        FULL["age"].bounds = (0, 1)


def test_schema_is_mapping_like():
    assert len(FULL) == 11
    assert "age" in FULL
    assert "Age" not in FULL
    assert list(FULL)[:2] == ["age", "weight"]
    assert FULL.incomplete == ("income", "city")
    assert not FULL.complete
    assert FULL.select(["sex", "age"]).names == ("sex", "age")
    assert FULL.replace(Numeric("income", (0, 1))).incomplete == ("city",)
    with pytest.raises(KeyError):
        FULL["nothing"]
    with pytest.raises(SchemaError, match="'nothing'"):
        FULL.select(["nothing"])


def test_numpy_values_become_python_values():
    column = Numeric("x", np.array([0, 9]), integer=np.bool_(True))
    assert column.bounds == (0, 9)
    assert type(column.bounds[0]) is int
    assert type(Categorical("c", np.array([1, 2])).categories[0]) is int
    assert type(Categorical("c", np.array(["a", "b"])).categories[0]) is str


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schema([]), "at least one column"),
        (lambda: Schema(["age"]), "got str"),
        (lambda: Schema([Boolean("a"), Boolean("a")]), "duplicate column names: 'a'"),
        (lambda: Numeric(1.5), "string or an integer"),
        (lambda: Numeric("x", (1, 1)), "lowest < highest"),
        (lambda: Numeric("x", (2, 1)), "lowest < highest"),
        (lambda: Numeric("x", (0, np.inf)), "finite"),
        (lambda: Numeric("x", (np.nan, 1)), "finite"),
        (lambda: Numeric("x", (-1e308, 1e308)), "too far apart"),
        (lambda: Numeric("x", ("a", "b")), "finite numbers"),
        (lambda: Numeric("x", (True, 2)), "finite numbers"),
        (lambda: Numeric("x", 3), "pair"),
        (lambda: Numeric("x", (1, 2, 3)), "pair"),
        (lambda: Numeric("x", (0.5, 3), integer=True), "not integers"),
        (lambda: Numeric("x", (0, 2**60), integer=True), "2\\*\\*53"),
        (lambda: Numeric("x", (0, 300), integer=True, dtype="uint8"), "do not fit dtype 'uint8'"),
        (lambda: Numeric("x", (0, 1), dtype="int64"), "declare integer=True"),
        (lambda: Numeric("x", integer=True, missing=True, dtype="int64"), "declare 'Int64' or 'float64'"),
        (lambda: Numeric("x", dtype="str"), "does not fit"),
        (lambda: Numeric("x", dtype="bool"), "does not fit"),
        (lambda: Numeric("x", dtype="complex128"), "does not fit"),
        (lambda: Numeric("x", dtype="nonsense"), "unknown dtype"),
        (lambda: Numeric("x", integer="yes"), "integer must be"),
        (lambda: Numeric("x", missing=3), "missing must be"),
        (lambda: Numeric("x", integer=True, decimals=2), "decimals"),
        (lambda: Categorical("x", ()), "must not be empty"),
        (lambda: Categorical("x", "abc"), "sequence"),
        (lambda: Categorical("x", ordered=True), "declared categories"),
        (lambda: Categorical("x", ("a", "b"), other="c", ordered=True), "no other"),
        (lambda: Categorical("x", ("a", "b"), dtype="string", ordered=True), "contradicts dtype .*Leave out dtype"),
        (lambda: Categorical("x", ("a", "b"), ordered="yes"), "True or False"),
        (lambda: Categorical("x", 3), "sequence"),
        (lambda: Categorical("x", ("a", "a")), "repeat"),
        (lambda: Categorical("x", (1, 1.0)), "repeat"),
        (lambda: Categorical("x", ("a", 1)), "mixed types"),
        (lambda: Categorical("x", (True, 0)), "mixed types"),
        (lambda: Categorical("x", ("a", None)), "missing=True"),
        (lambda: Categorical("x", (1.0, np.nan)), "missing=True"),
        (lambda: Categorical("x", (1.0, np.inf)), "finite"),
        (lambda: Categorical("x", (pd.Timestamp(0), pd.Timestamp(1))), "got Timestamp"),
        (lambda: Categorical("x", (("a",), ("b",))), "got tuple"),
        (lambda: Categorical("x", ("a", "b"), other="a"), "other"),
        (lambda: Categorical("x", ("a", "b"), dtype="int64"), "does not fit"),
        (lambda: Categorical("x", (1, 2), dtype="str"), "does not fit"),
        (lambda: Categorical("x", (1, 300), dtype="uint8"), "do not fit dtype"),
        (lambda: Categorical("x", (1.5, 2.5), dtype="int64"), "do not fit dtype"),
        (lambda: Categorical("x", (0.1, 0.5), dtype="float32"), "do not fit dtype"),
        (lambda: Categorical("x", (1, 2), missing=True, dtype="int64"), "'Int64'"),
        (lambda: Boolean("x", missing=True, dtype="bool"), "'boolean'"),
        (lambda: Boolean("x", dtype="float64"), "does not fit"),
        (lambda: Datetime("x", ("2020", "2019")), "earliest, latest"),
        (lambda: Datetime("x", ("2020-01-01T01", "2020-01-01T02"), resolution="D"), "one step"),
        (lambda: Datetime("x", ("2020", "soon")), "write the date 'soon' as in"),
        (lambda: Datetime("x", ("2020", None)), "not missing"),
        (lambda: Datetime("x", ("2020", "2021-01-01T00:00Z")), "without a time zone"),
        (lambda: Datetime("x", resolution="ns"), "resolution must be one of"),
        (lambda: Datetime("x", dtype="int64"), "does not fit"),
        (lambda: Datetime("x", ("1500-01-01", "2020-01-01"), dtype="datetime64[ns]"), "1677 to 2262"),
    ],
)
def test_every_contradiction_is_refused_with_its_reason(make, message):
    with pytest.raises(SchemaError, match=message):
        make()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", 'list "columns"'),
        ('{"columns": 3}', 'list "columns"'),
        ('{"columns": [3]}', '"name"'),
        ('{"columns": [{"name": "x", "kind": "colour"}]}', "kind must be one of"),
        ('{"columns": [{"name": "x", "kind": "numeric", "bound": [0, 1]}]}', "'bound' unknown"),
        ('{"columns": [{"name": "x", "kind": "numeric", "bounds": [1, 0]}]}', "lowest < highest"),
        ('{"columns": [{"name": "x", "kind": "datetime", "resolution": {"a": 1}}]}', "'x'"),
        ('{"columns": [{"name": {"a": 1}, "kind": "numeric"}]}', "column name"),
        ('{"columns": [{"name": "x", "kind": "categorical", "categories": [["a"]]}]}', "a category must be"),
        ('{"columns": [{"name": "x", "kind": "numeric", "dtype": 5}]}', "unknown dtype"),
        ('{"format": "other", "columns": []}', "format"),
        ('{"version": 2, "columns": []}', "version 1"),
    ],
)
def test_bad_json_is_refused_with_its_reason(text, message):
    with pytest.raises(SchemaError, match=message):
        Schema.from_json(text)


def messy_frame():
    return pd.DataFrame(
        {
            "int": np.array([1, 2], dtype=np.int32),
            "Int": pd.array([1, None], dtype="Int64"),
            "float": np.array([0.5, np.nan], dtype=np.float32),
            "bool": [True, False],
            "boolean": pd.array([True, None], dtype="boolean"),
            "text": ["a", None],
            "object": pd.Series(["a", None], dtype=object),
            "string": pd.array(["a", None], dtype="string"),
            "category": pd.Categorical(["b", None]),
            "when": pd.to_datetime(["2020-01-01", None]),
            "zoned": pd.to_datetime(["2020-01-01", None]).tz_localize("UTC"),
        }
    )


def test_kinds_follow_dtypes():
    schema = Schema.from_kinds(messy_frame())
    kinds = [type(column).__name__ for column in schema.columns]
    assert kinds == ["Numeric"] * 3 + ["Boolean"] * 2 + ["Categorical"] * 4 + ["Datetime"] * 2
    assert [c.name for c in schema.columns if not c.missing] == ["int", "bool"]
    assert schema["int"].integer
    assert schema["Int"].integer
    assert not schema["float"].integer
    assert [c.dtype for c in schema.columns] == [str(t) for t in messy_frame().dtypes]


def test_kinds_do_not_depend_on_values():
    frame = messy_frame()
    other = frame.iloc[[0, 0, 0]].reset_index(drop=True)
    other["category"] = pd.Categorical(["x", "y", "z"])
    assert Schema.from_kinds(frame) == Schema.from_kinds(other) == Schema.from_kinds(frame.iloc[:0])


def test_known_columns_are_taken_as_declared():
    frame = messy_frame()
    schema = Schema.from_kinds(frame, Schema([Numeric("float", (0, 1))]), categorical=["int"])
    assert schema["float"].bounds == (0, 1)
    assert schema["int"] == Categorical("int", dtype="int32")
    with pytest.raises(SchemaError, match="not in the frame: 'nothing'"):
        Schema.from_kinds(frame, Schema([Numeric("nothing")]))
    with pytest.raises(SchemaError, match="duplicate"):
        Schema.from_kinds(frame[["int", "int"]])
    with pytest.raises(SchemaError, match="no kind for dtype"):
        Schema.from_kinds(pd.DataFrame({"wave": [1j]}))


def test_arrays_get_numbered_columns():
    schema = Schema.from_kinds(np.zeros((3, 2)))
    assert schema.names == ("x0", "x1")
    assert Schema.from_kinds(np.zeros((3, 1), dtype=int))["x0"].integer
    with pytest.raises(SchemaError, match="numbers"):
        Schema.from_kinds(np.array([["a"]]))


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda: Numeric((1, 5)), 'Numeric("name", (0, 100))'),
        (lambda: Numeric([1, 5], "age"), 'Numeric("name", (0, 100))'),
        (lambda: Numeric(np.array([1, 5])), 'Numeric("name", (0, 100))'),
        (lambda: Categorical(["a", "b"]), 'Categorical("name", ["yes", "no"])'),
        (lambda: Categorical(("a", "b")), 'Categorical("name", ["yes", "no"])'),
        (lambda: Categorical(pd.Series(["a"])), 'Categorical("name", ["yes", "no"])'),
        (lambda: Datetime(("2020-01-01", "2021-01-01")), 'Datetime("name", ("2020-01-01", "2020-12-31"))'),
        (lambda: Boolean((False, True)), 'Boolean("name")'),
        (lambda: Identifier(range(5)), 'Identifier("name", pattern="P-####")'),
    ],
)
def test_what_stands_in_the_place_of_a_name_is_refused_with_the_right_call(make, call):
    with pytest.raises(SchemaError, match=r"must be a string or an integer; got \w+[:;].*the name comes first") as said:
        make()
    assert str(said.value).endswith(call)
    made = eval(call, {kind.__name__: kind for kind in (Numeric, Categorical, Datetime, Boolean, Identifier)})
    assert made.name == "name"


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda: Numeric("age", 0, 100), 'Numeric("name", (0, 100))'),
        (lambda: Numeric("age", min=0, max=100), 'Numeric("name", (0, 100))'),
        (lambda: Numeric(bounds=(0, 100)), 'Numeric("name", (0, 100))'),
        (lambda: Datetime("came", "2020-01-01", "2020-12-31"), 'Datetime("name", ("2020-01-01", "2020-12-31"))'),
        (lambda: Categorical("ill", "yes", "no"), 'Categorical("name", ["yes", "no"])'),
        (lambda: Boolean("ill", True), 'Boolean("name")'),
        (lambda: Identifier("key", "P-####"), 'Identifier("name", pattern="P-####")'),
    ],
)
def test_arguments_that_a_column_does_not_take_are_refused_with_the_right_call(make, call):
    with pytest.raises(TypeError, match="argument") as said:
        make()
    assert str(said.value).endswith(f"; write a column as in {call}")


def test_a_column_shows_its_parameters():
    assert list(inspect.signature(Numeric).parameters)[:3] == ["name", "bounds", "integer"]
    assert pickle.loads(pickle.dumps(Numeric("age", (0, 1)))) == Numeric("age", (0, 1))


def test_other_names_and_columns_are_refused_in_their_own_words():
    for name in (1.5, None, True):
        with pytest.raises(SchemaError, match=r"integer; got \w+$"):
            Numeric(name)
    with pytest.raises(SchemaError, match="give each column one name"):
        Numeric(("a", "b"))
    with pytest.raises(SchemaError, match="give a list, not a dict"):
        Schema({"age": Numeric("age")})


def test_facts_are_declared_and_the_rest_is_kept():
    frame = pd.DataFrame(
        {
            "age": pd.Series([30, None], dtype="Int16"),
            "town": pd.Categorical(["a", None]),
            "seen": pd.Series(["2020-01-01", None], dtype="datetime64[ns, Europe/Paris]"),
        }
    )
    schema = Schema.from_kinds(frame)
    declared = schema.declare("age", bounds=(0, 110)).declare("town", categories=("a", "b"), ordered=True)
    assert declared["age"] == Numeric("age", (0, 110), integer=True, missing=True, dtype="Int16")
    assert declared["town"] == Categorical("town", ("a", "b"), missing=True, ordered=True)
    declared = declared.declare("seen", bounds=("2019-01-01", "2021-01-01"), resolution="h")
    assert declared["seen"].dtype == "datetime64[ns, Europe/Paris]"
    assert declared.complete
    for wrong, message in (
        (("nobody", {}), "not in the schema"),
        (("age", {"categories": "ab"}), "no categories; it has"),
    ):
        with pytest.raises(SchemaError, match=message):
            schema.declare(wrong[0], **wrong[1])


@pytest.mark.parametrize(
    ("facts", "instead"),
    [
        ({"categories": (0, 1)}, "of another kind, replace it: schema.replace(Categorical('fraud', ...))"),
        ({"pattern": "F-#"}, "of another kind, replace it: schema.replace(Identifier('fraud', ...))"),
        ({"colour": "red"}, None),
    ],
)
def test_facts_of_another_kind_are_refused_with_that_kind(facts, instead):
    schema = Schema([Numeric("fraud", integer=True)])
    with pytest.raises(SchemaError) as refused:
        schema.declare("fraud", **facts)
    assert ("of another kind" in str(refused.value)) is (instead is not None)
    assert instead is None or instead in str(refused.value)


def test_days_of_arrow_come_back_as_they_were():
    arrow = pytest.importorskip("pyarrow")
    days = pd.Series(pd.date_range("2020-01-01", periods=40)).dt.date.astype(pd.ArrowDtype(arrow.date32()))
    frame = pd.DataFrame({"day": days.mask(days.index % 9 == 0)})
    schema = Schema.from_kinds(frame)
    assert (type(schema["day"]), schema["day"].resolution) == (Datetime, "D")
    encoder = TableEncoder(schema.declare("day", bounds=("2020-01-01", "2020-03-01")), numeric="scale").fit(frame)
    pd.testing.assert_frame_equal(encoder.inverse_transform(encoder.transform(frame)), frame)


class Counted(str):
    """A name that counts how often one is compared."""

    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_names_of_wide_tables_are_compared_in_linear_time():
    names = [Counted(f"column {i}") for i in range(2000)]
    check_unique(names)
    with pytest.raises(SchemaError, match=r"duplicate column names: 'column 7'$"):
        check_unique([*names, Counted("column 7")])
    schema = Schema([Numeric(str(name), (0, 1)) for name in names])
    assert [schema[name].name for name in names] == list(schema.select(names)) == list(schema)
    assert all(name in schema for name in names)
    assert Counted.compared < 20 * len(names)


def test_what_has_no_hash_is_no_name_of_a_column():
    assert ["age"] not in FULL
    with pytest.raises(KeyError):
        FULL[["age"]]


_LISTED = {
    "text": lambda ordered: pd.Categorical(["b"], ["a", "b", "c"], ordered=ordered),
    "whole numbers": lambda ordered: pd.Categorical([2], [1, 2, 3], ordered=ordered),
    "truth values": lambda ordered: pd.Categorical([True], [False, True], ordered=ordered),
    "intervals of the rows": lambda ordered: pd.Categorical(pd.cut([1.0, 3.0, 9.0], 2), ordered=ordered),
    "quantiles of the rows": lambda ordered: pd.Categorical(pd.qcut(range(9), 3, labels=list("lmh")), ordered=ordered),
}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("values", _LISTED)
def test_what_the_dtype_of_a_column_lists_is_private_in_every_order(values, ordered):
    """The categories of a dtype are read off the rows, as pandas.cut does: nobody declared them."""
    frame = pd.DataFrame({"x": _LISTED[values](ordered)})
    for given in (frame, frame.iloc[:0]):
        column = Schema.from_kinds(given)["x"]
        assert not column.complete
        assert {getattr(column, name, None) for name in ("categories", "bounds", "spikes")} == {None}
        assert not getattr(column, "ordered", False)


def test_a_notebook_shows_the_declared_facts_and_what_is_to_be_learned():
    schema = Schema([Numeric("<b>age", bounds=(0, 110)), Categorical("town", missing=True)], ["`<b>age` >= 18"])
    page = schema._repr_html_()
    assert "&lt;b&gt;age" in page
    assert "<b>" not in page
    assert "bounds=0.0, 110.0" in page
    assert "categories" in page.split("town")[-1]  # in the column of what is to be learned
    assert page.startswith("<p>&lt;Schema: 2 columns")
    many = Schema([Categorical(f"c{k}", [f"level {j}" for j in range(500)]) for k in range(300)])
    assert "and 490 more" in many._repr_html_()
    assert len(many._repr_html_()) < 50_000
