"""Rows drawn a chunk at a time: the same rows as all at once, the same shares of components, one form of file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, P3GMSynthesizer, Schema
from skdpgen.commands._results import write_rows
from skdpgen.generators.components import component_chunks, spread_components
from skdpgen.synthesizers import _base
from skdpgen.tabular import Categorical, Datetime, Numeric

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

SCHEMA = Schema(
    [
        Numeric("n", (0, 9), integer=True, missing=True, dtype="Int64"),
        Categorical("rare", ("a", "b"), missing=True, dtype="object"),
        Categorical("kind", ("x", "y", "z"), dtype="category"),
        Datetime("day", ("2020-01-01", "2024-01-01"), resolution="D"),
        Datetime("at", ("2020-01-01", "2024-01-01"), resolution="s", missing=True),
        Categorical("c", (0, 1, 2), dtype="int64"),
    ]
)


def rows_of_schema(n=400):
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1400, n), unit="D")
    return pd.DataFrame(
        {
            "n": pd.Series(rng.integers(0, 10, n), dtype="Int64"),
            "rare": pd.Series(np.where(rng.random(n) < 0.02, "a", None), dtype=object),
            "kind": pd.Categorical(rng.choice(["x", "y", "z"], n)),
            "day": days,
            "at": days,
            "c": rng.integers(0, 3, n),
        }
    )


@pytest.fixture(scope="module")
def tables():
    return MomentSynthesizer(5.0, schema=SCHEMA, target="c").fit(rows_of_schema())


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return P3GMSynthesizer(5.0, bounds=(0, 1), classes=range(3)).fit(rng.random((300, 4)), rng.integers(0, 3, 300))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(_base, "_CHUNK_ROWS", 37)


def joined(chunks):
    chunks = list(chunks)
    if isinstance(chunks[0], tuple):
        return tuple(np.concatenate(parts) for parts in zip(*chunks))
    return pd.concat(chunks, ignore_index=True)


OPTIONS = [{}, {"class_ratio": "balanced"}, {"y": [0, 1, 2, 2] * 25}]


@pytest.mark.parametrize("options", [*OPTIONS, {"given": {"kind": "x"}}])
def test_chunks_of_tables_are_what_sample_returns_row_for_row(tables, small, options):
    n = None if "y" in options else 100
    chunks = list(tables.sample_chunks(n, random_state=3, **options))
    assert [len(chunk) for chunk in chunks] == [37, 37, 26]
    at_once = tables.sample(n, random_state=3, **options)
    pd.testing.assert_frame_equal(joined(chunks), at_once)
    assert at_once.dtypes.equals(tables.sample(5).dtypes)
    for column in SCHEMA.columns:  # every row is one of the schema
        assert at_once[column.name].isna().any() <= column.missing
    if "y" in options:
        assert at_once["c"].tolist() == options["y"]
    if "given" in options:
        assert set(at_once["kind"]) == {"x"}


@pytest.mark.parametrize("options", OPTIONS)
def test_chunks_of_arrays_are_what_sample_returns_row_for_row(arrays, small, options):
    n = None if "y" in options else 100
    parts = joined(arrays.sample_chunks(n, random_state=3, **options))
    at_once = arrays.sample(n, random_state=3, **options)
    for part, whole in zip(parts, at_once):
        np.testing.assert_array_equal(part, whole)
    assert at_once[0].min() >= 0
    assert at_once[0].max() <= 1


def test_few_rows_are_drawn_as_they_always_were(tables):
    rng = np.random.default_rng(np.random.RandomState(3).randint(np.iinfo(np.int32).max))
    before = tables.model_.sample(spread_components(100, tables.model_.component_weights, rng), rng)
    pd.testing.assert_frame_equal(tables.sample(100, random_state=3), before)


def test_constraints_are_kept_in_every_chunk(tables, small):
    rows = tables.set_params(constraints="n <= 5 or kind == 'x'").sample(100, random_state=0)
    tables.set_params(constraints=None)
    assert ((rows["n"] <= 5) | (rows["kind"] == "x") | rows["n"].isna()).all()
    assert len(rows) == 100


def test_components_of_all_chunks_are_within_a_row_of_their_shares():
    weights = np.array([0.5, 0.0, 1 / 3, 1e-9, 1 / 6, 0.0])
    parts = list(component_chunks(1001, weights, 100, np.random.default_rng(0)))
    assert [len(part) for part in parts] == [*[100] * 10, 1]
    counts = np.bincount(np.concatenate(parts), minlength=6)
    assert np.abs(counts - 1001 * weights / weights.sum()).max() < 1 + 1e-9
    assert counts[1] == counts[5] == 0
    # a chunk is a draw without replacement from them all, in random order
    of_first = [next(component_chunks(100, [1, 1], 10, np.random.default_rng(seed))) for seed in range(600)]
    counts = np.array([part.sum() for part in of_first])
    assert counts.mean() == pytest.approx(5, abs=0.25)
    assert counts.var() == pytest.approx(2.5 * 90 / 99, rel=0.25)
    assert np.mean([part[0] for part in of_first]) == pytest.approx(0.5, abs=0.1)


def test_arguments_are_refused_before_the_first_chunk_is_taken(tables, arrays):
    for n in (0, 2.5, True, 10**9):
        with pytest.raises(ValueError, match="n_samples must be"):
            tables.sample_chunks(n)
    with pytest.raises(ValueError, match="given"):
        tables.sample_chunks(3, given={"absent": 1})


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.tsv", "out.parquet"])
def test_a_file_has_one_form_however_many_chunks_it_is_made_of(tables, tmp_path, monkeypatch, name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    columns = tables.sample(300, random_state=0)
    columns["at"] = columns["at"].dt.normalize()  # the first chunks hold midnights alone, and no "rare" value
    columns.loc[200:, "at"] += pd.Timedelta("61s")
    columns.loc[:250, "rare"] = None
    columns.loc[251:, "rare"] = "b"
    for size, path in ((300, tmp_path / f"one-{name}"), (100, tmp_path / f"three-{name}")):
        chunks = [columns.iloc[start : start + size] for start in range(0, 300, size)]
        monkeypatch.setattr(
            MomentSynthesizer, "sample_chunks", lambda self, *args, chunks=chunks, **options: iter(chunks)
        )
        assert write_rows(tables, 300, path) == 300
    one, three = (tmp_path / f"{kind}-{name}" for kind in ("one", "three"))
    if name.endswith(".parquet"):
        pd.testing.assert_frame_equal(pd.read_parquet(one), pd.read_parquet(three))
        columns.to_parquet(tmp_path / "pandas.parquet", index=False)
        pd.testing.assert_frame_equal(pd.read_parquet(three), pd.read_parquet(tmp_path / "pandas.parquet"))
    else:
        assert one.read_bytes() == three.read_bytes()
        read = pd.read_csv(three, sep="\t" if ".tsv" in name else ",", dtype=str)
        assert read["day"].dropna().str.fullmatch(r"\d{4}-\d\d-\d\d").all()
        assert read["at"].dropna().str.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d").all()
        assert len(read) == 300
