"""Tables of polars and pyarrow: read as frames of pandas by their dtypes alone, and samples that are such tables."""

import datetime
import sys

import numpy as np
import pandas as pd
import pytest

from skdpgen import (
    DPPCA,
    DPSGD,
    DP2VAESynthesizer,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
    PrivateSearchCV,
    Schema,
    SubsetSGD,
    TableEncoder,
    load,
)
from skdpgen.exceptions import InvalidInputError, SchemaError
from skdpgen.metrics import reconstruction_error, rows_per_unit, tstr_score, two_way_tvd
from skdpgen.tabular import Categorical, Datetime, Numeric
from skdpgen.testing import seeded_noise
from skdpgen.utils.foreign_tables import to_pandas

pa = pytest.importorskip("pyarrow")
pads = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")
pl = pytest.importorskip("polars")

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]

N = 400
_draws = np.random.default_rng(0)
_days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(k)) for k in _draws.integers(0, 700, N)]
TABLE = pl.DataFrame(
    {
        "age": pl.Series(_draws.integers(18, 90, N), dtype=pl.Int16),
        "town": _draws.choice(["Ulm", "Bonn"], N),
        "income": np.exp(_draws.normal(10, 1, N)).round(2),
        "born": _days,
        "seen": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=int(k)) for k in _draws.integers(0, 999, N)],
        "stay": [datetime.timedelta(hours=int(k)) for k in _draws.integers(0, 99, N)],
        "hour": [datetime.time(int(k)) for k in _draws.integers(0, 24, N)],
        "cost": pl.Series(_draws.integers(0, 9999, N)).cast(pl.Decimal(10, 2)),
        "smokes": _draws.random(N) < 0.3,
        "group": pl.Series(_draws.choice(["a", "b"], N)).cast(pl.Categorical),
        "stage": pl.Series(_draws.choice(["low", "high"], N)).cast(pl.Enum(["low", "medium", "high"])),
        "visits": pl.Series([None if k < 20 else int(k) for k in _draws.integers(0, 100, N)]),
    }
)
_AS_TEXT = {"group": pl.String, "stage": pl.String}
LIBRARIES = {
    "polars": lambda table: table,
    "polars, lazy": lambda table: table.lazy(),
    "pyarrow": lambda table: table.to_arrow(),
    "pyarrow, of views": pa.table,
}


def _model(epsilon=5.0, **parameters):
    return MomentSynthesizer(epsilon, random_state=0, **parameters)


def _fit(model, *data):
    with seeded_noise(0, quiet=True):
        return model.fit(*data)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_fit_is_that_of_a_frame_of_pandas_and_a_sample_is_of_the_library(library):
    X = LIBRARIES[library](TABLE)
    frame = TABLE.to_pandas(use_pyarrow_extension_array=True).astype({"group": str, "stage": str})
    frame = frame.astype(dict.fromkeys(["group", "stage"], to_pandas(TABLE).dtypes["group"]))
    models = [_fit(_model(), data) for data in (X, frame)]
    assert models[0].card_.charges == models[1].card_.charges
    of_library, of_pandas = (model.sample(50, random_state=1) for model in models)
    if library.startswith("polars"):
        assert isinstance(of_library, pl.DataFrame)
        assert of_library.schema == {**TABLE.schema, **_AS_TEXT}
    else:
        assert isinstance(of_library, pa.Table)
        assert of_library.schema.metadata is None
    pd.testing.assert_frame_equal(to_pandas(of_library).astype(object), of_pandas.astype(object), check_dtype=False)


def test_the_dtypes_of_a_frame_depend_on_those_of_the_table_alone():
    whole = to_pandas(TABLE)
    for rows in (TABLE[:0], TABLE[:1], TABLE.filter(pl.col("visits").is_not_null())):
        part = to_pandas(rows)
        assert list(part.dtypes) == list(whole.dtypes)
    pd.testing.assert_frame_equal(to_pandas(TABLE[100:]), whole[100:].reset_index(drop=True))
    complete = TABLE.filter(pl.col("visits").is_not_null())
    assert _model().plan(complete) == _model().plan(TABLE[: len(complete)])


def test_a_category_that_no_row_has_is_in_no_sample():
    stages = pl.Enum(["low", "high", *(f"patient {k}" for k in range(20))])
    X = pl.DataFrame({"stage": pl.Series(["low", "high"] * 200).cast(stages), "age": [30, 40] * 200})
    model = _fit(_model(), X)
    assert list(model.schema_["stage"].categories) == ["high", "low"]
    drawn = model.sample(100)
    assert drawn.schema["stage"] == pl.String
    assert set(drawn["stage"]) <= {"high", "low", "other"}


def test_labels_and_identifiers_of_units_are_columns_of_the_library():
    X, y = TABLE.select("age", "income"), TABLE["town"]
    units = pl.Series("person", np.arange(N) // 4)
    drawn, labels = _fit(_model(max_rows_per_unit=4), X, y, units).sample(20)
    assert isinstance(drawn, pl.DataFrame)
    assert isinstance(labels, pl.Series)
    assert labels.name == "town"
    assert set(labels) <= {"Ulm", "Bonn"}
    of_column = _fit(_model(unit="person", max_rows_per_unit=4), X.with_columns(units))
    synthetic = of_column.sample(units=10)
    assert isinstance(synthetic, pl.DataFrame)
    assert synthetic["person"].n_unique() == 10
    assert rows_per_unit(X.with_columns(units), synthetic, "person").loc[4, "real"] == 1


@pytest.mark.parametrize("name", [None, "", 0, 5, ("a", "b")])
def test_labels_may_have_any_name_and_none(name):
    X = TABLE.select("age", "income")
    y = pd.Series(TABLE["town"].to_list(), name=name)
    labels = _fit(_model(), X, y).sample(20)[1]
    assert labels.name == ("" if name is None else str(name))
    assert isinstance(_fit(_model(), X.to_arrow(), y).sample(20)[1], pa.ChunkedArray)
    unnamed = _fit(_model(), X, TABLE["smokes"].alias(""))
    assert unnamed.sample(20)[1].dtype == pl.Boolean
    assert unnamed.classes_.tolist() == [False, True]


def test_a_plan_leaves_the_library_of_samples_as_it_was():
    table = TABLE.select("age", "town")
    model = _fit(_model(), to_pandas(table))
    model.plan(table)
    assert isinstance(model.sample(5), pd.DataFrame)


def test_nan_is_missing_whatever_the_column_holds():
    levels = [float("nan") if k < 40 else float(k % 3) for k in range(N)]
    for kind in (pl.Float64, pl.Float32):
        assert to_pandas(TABLE.select(c=pl.Series(levels, dtype=kind)))["c"].isna().sum() == 40
    assert to_pandas(pa.table({"c": pa.array(levels).dictionary_encode()}))["c"].isna().sum() == 40
    schema = Schema((Numeric("age", (18, 90)), Categorical("c", missing=True, dtype="float64")))
    table = TABLE.select("age", c=pl.Series(levels))
    assert _fit(_model(schema=schema), table).schema_["c"].categories == (0.0, 1.0, 2.0)
    assert two_way_tvd(table, table.fill_nan(None)) == 0


def pandas_of_arrow(table):
    return table.to_pandas(use_pyarrow_extension_array=True)


@pytest.mark.parametrize("frame", [pl.DataFrame, pandas_of_arrow])
def test_nan_is_no_identifier(frame):
    persons = pl.Series("person", [float("nan") if k < 2 else float(k // 4) for k in range(N)])
    table = frame(TABLE.select("age", "town", persons))
    with pytest.raises(InvalidInputError, match="lacks an identifier"):
        _model(unit="person", max_rows_per_unit=4).fit(table)
    with pytest.raises(InvalidInputError, match="lacks an identifier"):
        _model(max_rows_per_unit=4).fit(table[["age", "town"]], None, table["person"])


def test_rows_that_the_model_is_given_may_be_of_the_library():
    table = TABLE.select("age", "town", "stage")
    model = _fit(_model(target="town"), table)
    assert model.score_samples(table).shape == (N,)
    assert model.sample(5, given={"town": "Ulm"})["town"].to_list() == ["Ulm"] * 5
    chunks = list(model.sample_chunks(5))
    assert [type(chunk) for chunk in chunks] == [pl.DataFrame]
    assert isinstance(model.as_frame(chunks[0]), pd.DataFrame)
    vae = _fit(PriVAESynthesizer(5.0, training=DPSGD(5, warm_start_steps=0), random_state=0), table)
    latents = vae.transform(table)
    assert isinstance(vae.inverse_transform(latents[:3]), pl.DataFrame)
    assert isinstance(vae.reconstruct(table), pl.DataFrame)
    assert reconstruction_error(vae, table) > 0


def test_a_score_leaves_out_the_ids_of_a_table_of_the_library():
    table = TABLE.select("age", "town", code=pl.Series([f"k{7919 * k % 100_003}" for k in range(N)]))
    model = _fit(
        DP2VAESynthesizer(5.0, id_column="code", training=SubsetSGD(steps=5, warm_start_steps=0), random_state=0), table
    )
    assert model.score(table) == model.score(to_pandas(table))


def test_chunks_may_be_tables_of_the_library():
    table = TABLE.select("age", "town", "visits")
    parts = [table[:150], table[150:]]
    whole = _fit(_model(), to_pandas(table)).sample(20, random_state=0)
    tables = [lambda: table, table.lazy, table.to_arrow, lambda: table.to_arrow().to_reader()]
    for chunks in (parts, lambda: iter(parts), lambda: [part.to_arrow() for part in parts], *tables):
        drawn = _fit(_model(), chunks).sample(20, random_state=0)
        pd.testing.assert_frame_equal(drawn, whole)


def test_the_best_model_of_a_search_draws_tables_of_the_library():
    search = PrivateSearchCV(
        P3GMSynthesizer(target="town"), {"n_components": [2, 3]}, epsilon=50.0, scoring="tstr_accuracy", random_state=0
    )
    table = TABLE.select("age", "income", "town")
    assert isinstance(_fit(search, table).sample(5), pl.DataFrame)


def test_a_loaded_model_draws_frames_of_pandas(tmp_path):
    model = _fit(_model(), TABLE.select("age", "stage", "visits"))
    model.save(tmp_path / "model.safetensors")
    drawn = load(tmp_path / "model.safetensors").sample(10, random_state=0)
    assert isinstance(drawn, pd.DataFrame)
    pd.testing.assert_frame_equal(drawn, to_pandas(model.sample(10, random_state=0)))


def test_schemas_encoders_and_metrics_take_tables_of_the_library():
    assert list(Schema.from_kinds(TABLE).names) == TABLE.columns
    encoded = TableEncoder(Schema.from_kinds(TABLE.select("smokes"))).fit(TABLE.select("smokes"))
    assert encoded.transform(TABLE.select("smokes")).shape == (N, 3)
    other = TABLE.sample(fraction=1.0, with_replacement=True, seed=0)
    frames = to_pandas(TABLE), to_pandas(other)
    assert two_way_tvd(TABLE, other) == two_way_tvd(*frames)
    assert two_way_tvd(TABLE.to_arrow(), other) == two_way_tvd(*frames)
    columns = ["age", "income", "town"]
    scores = [tstr_score(a[columns], b[columns], target="town") for a, b in ((TABLE, other), frames)]
    assert scores[0] == scores[1]


def test_an_encoder_keeps_the_names_of_a_table_of_numbers():
    table = TABLE.select("age", "income")
    schema = Schema((Numeric("income", (0, 1e6)), Numeric("age", (18, 90))))
    for rows in (table, to_pandas(table)):
        with pytest.raises(SchemaError, match="in another order"):
            TableEncoder(schema).fit(rows)
    known = Schema((Numeric("age", (18, 90)), Numeric("income", (0, 1e6))))
    assert list(TableEncoder(known).fit(table).feature_names_in_) == ["age", "income"]


class _Query:
    """Rows of a query, as duckdb and ibis have them: they can be given to Arrow, and to nothing else."""

    columns = ("age", "town")

    def __arrow_c_stream__(self, requested_schema=None):
        return TABLE.select(self.columns).__arrow_c_stream__(requested_schema)


def test_rows_of_a_query_that_arrow_can_read_are_a_table():
    drawn = _fit(_model(), _Query()).sample(20, random_state=0)
    assert isinstance(drawn, pd.DataFrame)
    of_polars = _fit(_model(), TABLE.select("age", "town")).sample(20, random_state=0)
    pd.testing.assert_frame_equal(drawn, to_pandas(of_polars))


def test_a_dataset_is_the_table_of_its_files_and_its_batches_are_chunks(tmp_path):
    table = TABLE.select("age", "town").to_arrow()
    for part in range(2):
        pq.write_table(table[part * 200 : (part + 1) * 200], tmp_path / f"{part}.parquet")
    dataset = pads.dataset(tmp_path)
    drawn, of_table, of_chunks = (
        _fit(_model(), X).sample(20, random_state=0) for X in (dataset, table, dataset.to_batches)
    )
    assert drawn.equals(of_table)
    assert of_chunks.astype(object).equals(to_pandas(of_table).astype(object))


@pytest.mark.parametrize("kind", ["lazy", "dataset", "reader", "truth values"])
def test_estimators_of_numbers_take_tables_of_numbers(kind):
    numbers = TABLE.select(pl.col("income"), pl.col("age"), pl.col("smokes"))
    X = {
        "lazy": lambda: numbers.lazy(),
        "dataset": lambda: pads.dataset(numbers.to_arrow()),
        "reader": lambda: numbers.to_arrow().to_reader(),
        "truth values": lambda: numbers.to_arrow(),
    }[kind]
    columns = {"bounds": [(0, 10**6), (18, 90), (0, 1)], "l2_bound": 1.0}
    model = _fit(DPPCA(2, epsilon=5.0, random_state=0, **columns), X())
    of_pandas = _fit(DPPCA(2, epsilon=5.0, random_state=0, **columns), numbers.to_pandas().astype(float))
    assert np.array_equal(model.components_, of_pandas.components_)
    assert np.array_equal(model.transform(X()), of_pandas.transform(numbers.to_pandas().astype(float)))
    assert model.feature_names_in_.tolist() == numbers.columns


def test_labels_of_a_sample_and_of_a_score_may_be_a_table_with_one_column():
    X, y = TABLE.select("age", "income"), TABLE["town"]
    apart, target = _fit(_model(), X, y), _fit(_model(target="town"), TABLE.select("age", "town"))
    of_array = _fit(MomentSynthesizer(5.0, bounds=(0, 100)), np.ones((N, 2)), y.to_list())
    rows, wanted = X.to_pandas()[:5], y[:5].to_list()
    labels = [wanted, np.array(wanted)[:, None], pd.DataFrame({"y": wanted}), pl.DataFrame({"y": wanted})]
    for given in [*labels, pl.DataFrame({"y": wanted}).to_arrow()]:
        assert list(apart.sample(y=given)[1]) == wanted
        assert list(target.sample(y=given)["town"]) == wanted
        assert list(of_array.sample(y=given)[1]) == wanted
        assert apart.score(rows, given) == apart.score(rows, wanted)
    with pytest.raises(InvalidInputError, match="one dimension"):
        apart.sample(y=pd.DataFrame({"y": wanted, "z": wanted}))


def test_classes_of_several_targets_may_be_a_table_of_polars():
    model = _fit(_model(target=["town", "smokes"]), TABLE.select("age", "town", "smokes"))
    wanted = TABLE.select("town", "smokes")[:2]
    assert model.sample(y=wanted).select("town", "smokes").equals(wanted)


@pytest.mark.parametrize(
    ("dtype", "kind", "texts"),
    [
        ("period[M]", pl.Date, None),
        ("period[h]", pl.Datetime("us"), None),
        ("interval[float64, right]", pl.String, ["(0, 1]", "(1, 2.5]"]),
    ],
)
def test_periods_and_intervals_come_back_as_types_that_the_library_knows(dtype, kind, texts):
    if texts is None:
        column, X = Datetime("x", ("2020-01-01", "2022-01-01"), dtype=dtype), TABLE.select(x="born")
    else:
        column, X = Categorical("x", texts, dtype=dtype), pl.DataFrame({"x": texts * 50})
    drawn = _fit(_model(schema=Schema((column,))), X).sample(20)
    assert drawn.schema["x"] == kind
    if texts is not None:
        assert set(drawn["x"]) == set(texts)
    elif kind == pl.Date:
        assert set(drawn["x"].dt.day()) == {1}


# ---- refusals -----------------------------------------------------------------------------------------------------
def test_columns_of_lists_and_structs_are_refused_by_name():
    X = TABLE.select("age", visits=pl.Series([["secret"]] * N))
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(InvalidInputError, match="visits") as error:
        MomentSynthesizer(accountant=accountant).fit(X)
    assert "secret" not in str(error.value)
    assert not accountant.charges


def test_a_type_that_pandas_does_not_know_is_refused_by_name():
    spans = pa.array([(1, 2, 3)] * N, pa.month_day_nano_interval())
    with pytest.raises(InvalidInputError, match="column 'stay': no kind for the type month_day_nano_interval of Arrow"):
        _model().fit(pa.table({"age": TABLE["age"].to_arrow(), "stay": spans}))


def test_an_error_of_a_lazy_table_shows_no_cell():
    X = TABLE.lazy().with_columns(pl.col("town").cast(pl.Int64))
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(InvalidInputError, match=r"the LazyFrame of polars failed") as error:
        MomentSynthesizer(accountant=accountant).fit(X)
    assert "Ulm" not in str(error.value)
    assert not accountant.charges


def test_a_reader_is_no_chunk_because_a_fit_reads_chunks_several_times():
    parts = [TABLE.select("age", "town").to_arrow(), TABLE.select("age", "town").to_arrow().to_reader()]
    with pytest.raises(InvalidInputError, match="read only once"):
        _model().fit(parts)


@pytest.mark.parametrize("kind", [pl.Int128, pl.UInt128])
def test_a_type_of_polars_that_arrow_lacks_is_refused_by_name(kind):
    X = TABLE.select("town", visits=pl.col("age").cast(kind))
    with pytest.raises(SchemaError, match=f"column 'visits': Arrow has no type for {kind} of polars"):
        _model().fit(X)
    with pytest.raises(SchemaError, match=f"column 'visits': Arrow has no type for {kind} of polars"):
        _model().fit(TABLE.select("town"), X["visits"])


def test_columns_that_are_no_numbers_are_named_to_estimators_of_numbers():
    for X in (TABLE.select("age", "town").lazy(), TABLE.select("age", "town").to_arrow()):
        with pytest.raises(InvalidInputError, match=r"columns that are not numbers, .*: leave out 'town', or"):
            DPPCA(epsilon=1.0).fit(X)


class _Cluster:
    """A table of a cluster, which must not be collected."""

    columns = property(lambda self: ["age"])

    def collect(self):
        raise AssertionError

    def toPandas(self):  # noqa: N802
        raise AssertionError


def test_a_table_of_a_cluster_is_refused_with_how_to_fetch_it():
    with pytest.raises(InvalidInputError, match=r"give a DataFrame of pandas, X.toPandas\(\)"):
        _model().fit(_Cluster())


COLUMNS = {
    "polars": (TABLE["age"], r"X is a Series, which is one column: give X.to_frame\(\)"),
    "pyarrow": (TABLE.to_arrow()["age"], r"X is a ChunkedArray, which is one column: give pyarrow.table"),
    "pandas": (pd.Series([1.0, 2.0]), r"X is a Series, which is one column: give X.to_frame\(\)"),
}


@pytest.mark.parametrize("library", COLUMNS)
@pytest.mark.parametrize("estimator", [MomentSynthesizer, PriVAESynthesizer, DPPCA])
def test_one_column_is_refused_with_the_table_to_give(estimator, library):
    X, said = COLUMNS[library]
    with pytest.raises(InvalidInputError, match=said):
        estimator(epsilon=1.0).fit(X)


class _Rows:
    """A table of a library that collects rows as a list."""

    columns = property(lambda self: ["age"])

    def collect(self):
        return [(1,)]


def test_the_error_of_a_table_that_arrow_cannot_read_names_the_table():
    with pytest.raises(InvalidInputError, match=r"X is a _Rows of .*, which cannot give its rows to Arrow"):
        _model().fit(_Rows())


def test_without_pyarrow_the_fit_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInputError, match=r"DataFrame of polars, and reading it needs pyarrow"):
        _model().plan(TABLE)
