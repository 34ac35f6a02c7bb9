"""Rows in chunks, in Parquet files or on dask: the same release as from memory, exactly when the noise is off."""

from __future__ import annotations

import functools
import itertools
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from _claims import RELATIONS, assert_sensitivity
from _flat import make_flat
from _short_fits import short_postprocessing

from skdpgen import DPMERFSynthesizer, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, PrivacyUnit, Schema
from skdpgen.data.frames import FrameRows
from skdpgen.data.sources import ChunkSource, MemorySource, open_source
from skdpgen.data.table_plan import plan_tables
from skdpgen.exceptions import InvalidInputError, SchemaError, UtilityWarning
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.mechanisms import exact_value
from skdpgen.tabular import Categorical, Numeric
from skdpgen.testing import seeded_noise

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
]

RNG = np.random.default_rng(8)
N = 900
FRAME = pd.DataFrame(
    {
        "pay": pd.array(RNG.normal(50, 9, N).round(2), dtype="Float64"),
        "town": pd.array(RNG.choice(["north", "south", "west"], N), dtype="string"),
        "age": pd.array(RNG.integers(18, 90, N), dtype="Int64"),
        "ill": pd.array(RNG.random(N) < 0.3, dtype="boolean"),
    }
)
FRAME.loc[::7, "pay"] = pd.NA
FRAME.loc[600:, "town"] = "east"  # seen in the last chunk alone
CUTS = [FRAME[:5], FRAME[5:400], FRAME[400:400], FRAME[400:]]
READER = iter(CUTS)
SCHEMA = Schema(
    [
        Numeric("pay", (0, 120), missing=True, dtype="Float64"),
        Categorical("town", ("north", "south"), missing=True, other="elsewhere", dtype="string"),
        Numeric("age", (18, 80), integer=True, missing=True, dtype="Int64"),
        Categorical("ill", (False, True), missing=True, dtype="boolean"),
    ]
)


@pytest.fixture(autouse=True, scope="module")
def _few_steps():
    defaults = fit_tables.__kwdefaults__
    before = dict(defaults)
    defaults.update(n_iter=20, n_restarts=2)
    yield
    defaults.update(before)


def _state(X, **parameters):
    with seeded_noise(7, quiet=True), short_postprocessing():
        return MomentSynthesizer(random_state=0, **parameters).fit(X).model_.to_state()


def _equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


def _parquet(path, cuts):
    pytest.importorskip("pyarrow")
    paths = [path / f"part{i}.parquet" for i in range(len(cuts))]
    for part, target in zip(cuts, paths):
        part.to_parquet(target, index=False)
    return paths


SOURCES = {
    "list": lambda path: CUTS,
    "function": lambda path: lambda: iter(CUTS),
    "one file": lambda path: str(_parquet(path, [FRAME])[0]),
    "files": lambda path: _parquet(path, CUTS),
    "dask": lambda path: pytest.importorskip("dask.dataframe").from_pandas(FRAME, npartitions=5),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": np.inf},
        {"epsilon": np.inf, "target": "town", "schema": SCHEMA},
        {"epsilon": 5.0, "target": ["town", "ill"], "schema": SCHEMA},
    ],
    ids=["learned, no noise", "declared, no noise", "declared, same noise"],
)
def test_wherever_rows_lie_the_release_is_that_of_one_frame(source, parameters, tmp_path):
    # categories are matched by value, and noise goes by position: with a learned schema it must be off
    assert _equal(_state(FRAME, **parameters), _state(source(tmp_path), **parameters))


@pytest.mark.parametrize("synthesizer", [MomentSynthesizer, P3GMSynthesizer, DPMERFSynthesizer])
@pytest.mark.parametrize("source", ["list", "function"])
def test_the_card_of_chunks_takes_no_fewer_facts_for_public_than_that_of_one_frame(synthesizer, source):
    """What a fit reads of the values without a charge, the caller vouches for, wherever the rows lie."""
    frame = FRAME.assign(person=np.arange(N) // 3, price=pd.Series([Decimal(k) / 4 for k in range(N)], dtype=object))
    chunks = [frame[:300], frame[300:]]
    parameters = {"target": "ill", "unit": PrivacyUnit("person", max_rows=2)}
    parameters |= (
        {"steps": 1}
        if synthesizer is DPMERFSynthesizer
        else {"constraints": ["age > 17", "if town == 'east': pay is None"]}
    )
    for one in (frame, *chunks):
        one.attrs["public_assumptions"] = ["dtypes: told from the values of a file"]
    stated = []
    for X in (frame, chunks if source == "list" else lambda: iter(chunks)):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the learned bounds cut off", UtilityWarning)
            stated.append(synthesizer(20.0, random_state=0, **parameters).fit(X).card_["public_assumptions"])
    whole, parts = stated
    assert "types of the objects in columns of objects: 'price' decimal" in whole
    assert [text for text in parts if not text.startswith("kinds (dtypes) of the columns")] == whole


def test_a_dask_cluster_gives_the_release_of_one_frame():
    distributed = pytest.importorskip("distributed")
    frame = pytest.importorskip("dask.dataframe").from_pandas(FRAME, npartitions=3)
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"):
        there = _state(frame, epsilon=np.inf, target="ill")
    assert _equal(there, _state(FRAME, epsilon=np.inf, target="ill"))


def test_workers_of_dask_compute_in_the_usual_state_of_numpy():
    from skdpgen.data.sources import DaskSource

    dask = pytest.importorskip("dask")
    source = DaskSource(pytest.importorskip("dask.dataframe").from_pandas(FRAME, npartitions=3))
    tiny = np.array([1e-200])
    with dask.config.set(scheduler="synchronous"), np.errstate(all="raise"):  # the workers are this thread
        assert source.reduce(lambda part: tiny * tiny, lambda one, other: one * other + tiny * tiny) == 0


def test_slices_of_a_frame_in_memory_add_up(monkeypatch):
    from skdpgen.data import sources as _sources

    whole = _state(FRAME, epsilon=np.inf)
    monkeypatch.setattr(_sources, "CHUNK_ROWS", 128)
    assert _equal(whole, _state(FRAME, epsilon=np.inf))


def test_kinds_of_categories_that_differ_between_slices_are_refused_before_the_charge(monkeypatch):
    from skdpgen.data import sources as _sources

    monkeypatch.setattr(_sources, "CHUNK_ROWS", 128)
    town = FRAME["town"].astype(object)
    town[:256] = 1  # whole slices of numbers, whole slices of text
    books = PrivacyAccountant(5.0)
    with pytest.raises(SchemaError, match="different kinds"):
        MomentSynthesizer(1.0, accountant=books).fit(FRAME.assign(town=town))
    assert not books.charges


@pytest.mark.parametrize("synthesizer", [MomentSynthesizer, P3GMSynthesizer, DPMERFSynthesizer])
def test_a_frame_of_the_target_alone_is_refused_before_the_charge(synthesizer):
    books = PrivacyAccountant(5.0)
    with pytest.raises(InvalidInputError, match="no column except the target"):
        synthesizer(1.0, accountant=books, target="ill").fit(FRAME[["ill"]])
    assert not books.charges


def _tables(rows):
    """The bounded sums of a fit to rows in two chunks."""
    source = ChunkSource(lambda: [rows[:3], rows[3:]])
    options = {"target": "ill", "schema": SCHEMA, "classes": None, "target_type": None, "on_invalid": "clip"}
    frame_rows = FrameRows(source, None, **options, importance={"age": 2.0})
    codec, *_ = frame_rows.learn({"bins": 0.0, "moments": 0.0}, 0.0, None, "add_or_remove_one")
    return frame_rows.moments(codec, plan_tables(codec, 0.3, frame_rows.importance_of(codec)))


@pytest.mark.parametrize("relation", RELATIONS)
def test_tables_of_chunks_attain_their_sensitivity_and_never_exceed_it(relation):
    units = [
        {"pay": 10.0, "town": "north", "age": 20, "ill": False},
        {"pay": 110.0, "town": "south", "age": 79, "ill": False},
        {"pay": None, "town": None, "age": None, "ill": None},
        {"pay": 1e9, "town": "nowhere", "age": 3, "ill": True},
    ]
    base = FRAME[:6].astype({"ill": "boolean"})
    joined = [pd.concat([base, pd.DataFrame([unit]).astype(base.dtypes)], ignore_index=True) for unit in units]
    # bins that no row can move: equal width over the bounds, whatever is counted
    if relation == "add_or_remove_one":
        pairs = [(base, more) for more in joined]
    else:
        pairs = [(a, b) for a in joined for b in joined]
    assert_sensitivity(_with_fixed_bins, pairs, attained=pairs, relation=relation, least=0.98)


def _with_fixed_bins(rows):
    from skdpgen.data import frames as _frames

    learned = _frames.bins_from_histogram
    _frames.bins_from_histogram = lambda noisy, schema, sd, n_bins, **options: learned(
        noisy, schema, 1e9, n_bins, **options
    )
    try:
        return _tables(rows)
    finally:
        _frames.bins_from_histogram = learned


def test_every_row_is_counted_once():
    count = exact_value(_with_fixed_bins(FRAME))[:, 0]
    ill = int(FRAME["ill"].sum())
    assert count.tolist() == [N - ill, ill, 0]


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (iter(CUTS), InvalidInputError, "can be read only once"),
        (lambda: READER, InvalidInputError, "a new iterable at each call"),
        ([FRAME, FRAME[["pay", "town"]]], SchemaError, r"chunk 1 has other columns.*missing: 'age', 'ill'"),
        ([FRAME, FRAME[["town", "pay", "age", "ill"]]], SchemaError, "another order"),
        ([FRAME, FRAME.assign(more=1)], SchemaError, "unexpected: 'more'"),
        (lambda: [FRAME, "row"], InvalidInputError, "every chunk must be a DataFrame; got str"),
        (lambda: 3, InvalidInputError, "iterable of DataFrames"),
        (lambda: [], InvalidInputError, "0 sample"),
        ([FRAME[:0], FRAME[:0]], InvalidInputError, "0 sample"),
        (
            [FRAME.assign(town=pd.Series([1] * N, dtype=object)), FRAME],
            SchemaError,
            "of different kinds in different chunks",
        ),
        ("nowhere.parquet", InvalidInputError, "no such file"),
    ],
    ids=[
        "iterator",
        "one reader",
        "columns",
        "order",
        "more",
        "no frame",
        "no iterable",
        "none",
        "empty",
        "kinds",
        "path",
    ],
)
def test_bad_chunks_are_refused_before_the_charge(X, error, message):
    books = PrivacyAccountant(5.0)
    with pytest.raises(error, match=message):
        MomentSynthesizer(1.0, accountant=books).fit(X)
    with pytest.raises(InvalidInputError, match=r"in memory|read only once|0 sample|no such|iterable|every chunk"):
        MomentSynthesizer(1.0, accountant=books).fit(X, np.zeros(N))
    assert not books.charges


def _behind(reader):
    """A new generator over one reader."""
    return (chunk for chunk in reader)


@pytest.mark.parametrize("n_chunks", [1, 2, 5, 40])
@pytest.mark.parametrize("unit", [None, "id"])
@pytest.mark.parametrize("counted", [True, False], ids=["rows counted by their index", "each chunk with a new index"])
def test_one_reader_behind_a_new_iterable_is_refused_before_the_charge(n_chunks, unit, counted):
    frame = FRAME.assign(id=range(N))
    cuts = [frame.iloc[at : at + 10] for at in range(0, 10 * n_chunks, 10)]
    cuts = cuts if counted else [cut.reset_index(drop=True) for cut in cuts]
    books = PrivacyAccountant(5.0)
    synth = MomentSynthesizer(1.0, accountant=books, unit=unit, max_rows_per_unit=1 if unit else None)
    for wrap in (_behind, lambda reader: reader):
        reader = iter(cuts)
        with pytest.raises(InvalidInputError, match=r"new iterable|0 sample"):
            synth.fit(functools.partial(wrap, reader))
    assert not books.charges


def test_a_reader_that_goes_on_at_each_pass_is_refused_before_the_charge():
    reader, books = iter([FRAME.iloc[at : at + 10] for at in range(0, N, 10)] * 9), PrivacyAccountant(5.0)
    with pytest.raises(InvalidInputError, match="new iterable"):
        MomentSynthesizer(1.0, accountant=books).fit(lambda: itertools.islice(reader, 5))
    assert not books.charges


def test_passes_may_give_the_rows_in_another_order():
    rng = np.random.default_rng(0)

    def chunks():
        rows = FRAME.sample(frac=1, random_state=rng)
        return [rows[: N // 2], rows[N // 2 :]]

    assert MomentSynthesizer(1.0).fit(chunks).row_count_ > 0


def test_what_needs_the_rows_themselves_refuses_chunks():
    books = PrivacyAccountant(5.0)
    for parameters in ({"prior": "mixture"}, {"decoder": "net"}):
        with pytest.raises(InvalidInputError, match="in memory"):
            make_flat(P3GMSynthesizer, 1.0, accountant=books, **parameters).fit(CUTS)
    assert not books.charges
    assert len(P3GMSynthesizer(1.0, target="ill").fit(CUTS).sample(9)) == 9


def test_arrays_and_lists_of_numbers_are_no_tables():
    assert open_source(np.zeros((3, 2))) is None
    assert open_source([[1.0, 2.0], [3.0, 4.0]]) is None
    assert isinstance(open_source(FRAME), MemorySource)


def test_a_column_of_dask_is_no_table():
    dataframe = pytest.importorskip("dask.dataframe")
    with pytest.raises(InvalidInputError, match="expected a dask DataFrame; got dask's Series"):
        MomentSynthesizer(1.0).fit(dataframe.from_pandas(FRAME, npartitions=2)[FRAME.columns[0]])
