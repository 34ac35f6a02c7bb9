"""Rows of units that lie anywhere in chunks, files or partitions: those used are those of the same table in memory."""

from __future__ import annotations

import itertools
import operator
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from _short_fits import short_postprocessing
from _visits import SCHEMA

from skdpgen import MomentSynthesizer, PrivacyAccountant, PrivacyUnit
from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedUnit, UnitRelation
from skdpgen.data import units
from skdpgen.data.rows_per_unit import OpenUnit
from skdpgen.data.sources import DaskSource, open_source
from skdpgen.data.units import ScatteredUnits, UnitSource
from skdpgen.exceptions import InvalidInputError
from skdpgen.mechanisms import histogram
from skdpgen.testing import check_noninterference, seeded_noise

N, K = 240, 3


def _visits(seed=0, n=N):
    """Visits in no order: about four of a person, who may have them in several chunks."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(np.array([f"p{i:03d}" for i in range(n // 4)], dtype=object), n)
    return pd.DataFrame({"id": ids, "row": np.arange(n), "c": rng.choice(list("xyz"), n)})


def _cut(frame, n_parts=5):
    cuts = np.linspace(0, len(frame), n_parts + 1).astype(int)
    return [frame.iloc[a:b] for a, b in itertools.pairwise(cuts)]


def _csv(frame, folder):
    path = folder / "visits.csv"
    frame.to_csv(path, index=False)
    return lambda: pd.read_csv(path, chunksize=37, dtype={"id": str})


def _file(frame, folder):
    pytest.importorskip("pyarrow")
    frame.to_parquet(folder / "visits.parquet", index=False)
    return str(folder / "visits.parquet")


def _files(frame, folder):
    return [_file(part, folder / str(i)) for i, part in enumerate(_cut(frame)) if not (folder / str(i)).mkdir()]


def _dask(frame, folder):
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=4, sort=False)


def _dask_of_files(frame, folder):
    """Of one column dask joins the partitions of several files."""
    dataframe = pytest.importorskip("dask.dataframe")
    return dataframe.read_parquet(_files(frame.assign(**{f"wide {k}": 1.0 for k in range(40)}), folder))


SOURCES = {
    "list": lambda f, _: _cut(f), "csv": _csv, "one file": _file, "files": _files, "dask": _dask,
    "dask of files": _dask_of_files,
}  # fmt: skip


def _source(X, k=K, weighting="rows", missing="refuse"):
    return UnitSource(open_source(X), BoundedUnit("id", k, weighting), missing, "id")


def _found(source, key=3):
    """Rows that are used, with the number of rows used of their units; the first of each unit; their count."""
    source.choose(key)
    rows = source.reduce(_rows_and_sizes, operator.add)
    first = source.reduce_units(_rows_and_sizes, operator.add)
    return sorted(rows), sorted(first), source.row_count().value.tolist()


def _rows_and_sizes(part, unit_sizes=None, sizes=None):
    given = sizes if unit_sizes is None else unit_sizes
    return list(zip(part["row"].tolist(), [0] * len(part) if given is None else given.tolist()))


@pytest.fixture(params=[24, N], ids=["ten slices", "one slice"])
def held(request, monkeypatch):
    """Rows whose identifiers are in memory at a time."""
    monkeypatch.setattr(units, "HELD_ROWS", request.param)
    return request.param


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("made", SOURCES.values(), ids=SOURCES)
@pytest.mark.filterwarnings("ignore:The inplace keyword")  # dask's own, of the newest pandas
def test_the_rows_used_are_those_of_the_same_table_in_memory(made, weighting, tmp_path, held):
    frame = _visits()
    wanted = _found(_source(frame, weighting=weighting))
    source = _source(made(frame, tmp_path), weighting=weighting)
    assert source.inspect(len, operator.add) == N
    assert _found(source) == wanted
    assert wanted[2][0] == len(wanted[0]) < N
    assert wanted[0] != _found(_source(frame, weighting=weighting), key=4)[0]


def test_rows_without_an_identifier_are_units_of_their_own_wherever_they_lie(held, tmp_path):
    frame = _visits()
    frame.loc[::7, "id"] = None
    wanted = _found(_source(frame, missing="own", weighting="units"))
    for made in (SOURCES["list"], SOURCES["files"], SOURCES["dask"]):
        assert _found(_source(made(frame, tmp_path), missing="own", weighting="units")) == wanted


@pytest.mark.parametrize("k", [1, 127, 128, 200])
def test_numbers_of_rows_of_any_size_are_kept(k):
    ids = np.r_[np.zeros(190), np.arange(50)][np.random.default_rng(0).permutation(N)].astype(int)
    frame = pd.DataFrame({"id": ids, "row": np.arange(N)})
    assert _found(_source(_cut(frame), k, "units")) == _found(_source(frame, k, "units"))


@pytest.mark.parametrize("ordered", [False, True])
def test_categories_of_several_dtypes_are_no_floats(ordered):
    """Of two large integers, floats would make one person; they were refused after the charge."""
    ids = [[2.5, 1.0, 5.0, 7.0] * 8, [2**60 + 1, 7, 2**60 + 2, 7] * 8]
    ids = [pd.Series(sorted(part) if ordered else part) for part in ids]
    parts = [pd.DataFrame({"id": part.astype("category"), "row": np.arange(32) + 32 * k}) for k, part in enumerate(ids)]
    source = _source(parts)
    assert source.inspect(len, operator.add) == 64
    whole = pd.concat([part.astype({"id": object}) for part in parts], ignore_index=True)
    assert _found(source) == _found(_source(whole))


def test_equal_identifiers_of_several_dtypes_are_one_unit(held):
    ids = [1, 2, 3, 2**60, 2**60 + 1]
    parts = [
        pd.Series([3, 1, 2, 1], dtype="int64"),
        pd.Series([1.0, 2, np.nan, 3]),
        pd.Series([Decimal("1.0"), 2, Decimal(3), None], dtype=object),
        pd.Series([3, 1, 2**60 + 1, 2**60, 2**60 + 1, 2**60], dtype="Int64"),
    ]
    number, chunks = 0, []
    for part in parts:
        chunks.append(pd.DataFrame({"id": part, "row": np.arange(number, number + len(part))}))
        number += len(part)
    used, first, _ = _found(_source(chunks, k=2, weighting="units", missing="own"))
    values = pd.concat([part.astype(object) for part in parts], ignore_index=True)
    used = values[[row for row, _ in used]]
    assert [int((used == value).sum()) for value in ids] == [2] * 5
    assert len(first) == 5 + int(values.isna().sum())


def test_sorted_chunks_take_the_way_of_one_pass_with_the_same_rows(monkeypatch):
    frame = _visits().sort_values("id", kind="stable")
    wanted = _found(_source(frame))
    monkeypatch.setattr(ScatteredUnits, "choose", None)
    assert _found(_source(_cut(frame))) == wanted


def test_few_identifiers_and_one_byte_a_row_are_in_memory(monkeypatch):
    frame, lengths, shipped = _visits(n=1600), [], units.read_ids
    monkeypatch.setattr(units, "HELD_ROWS", 200)
    monkeypatch.setattr(units, "read_ids", lambda values, *more: lengths.append(len(values)) or shipped(values, *more))
    source = _source(_cut(frame, 20))
    source.inspect(len, operator.add)
    source.choose(3)
    assert 80 < max(lengths) < 400
    assert source._scattered._marks.nbytes == 1600


def test_the_rows_of_a_unit_do_not_depend_on_other_units(held):
    frame = _visits()
    alone = frame[frame["id"] < "p030"]
    used = {row for row, _ in _found(_source(_cut(frame)))[0]}
    also = {row for row, _ in _found(_source(_cut(alone, 3)))[0]}
    assert also == used & set(alone["row"])
    assert len(also) < len(alone)


def test_a_learned_number_of_rows_counts_each_unit_once(held):
    frame = _visits()
    source = UnitSource(open_source(_cut(frame)), OpenUnit.of("id", "rows"), "refuse", "id")
    sizes = np.concatenate(list(source.rows_per_unit()))
    assert sorted(sizes) == sorted(frame["id"].value_counts())
    source.settle(BoundedUnit("id", K))
    assert _found(source) == _found(_source(frame))


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("relation", NEIGHBORING)
def test_a_unit_in_every_chunk_attains_the_sensitivity_and_never_exceeds_it(relation, weighting):
    frame = _visits()
    joining = [frame.iloc[::20].assign(id="new", c=c) for c in "xy"]
    sums = []
    for more in joining:
        parts = [pd.concat([part, more]) for part in _cut(frame)]  # a row of each chunk, and several
        source = _source(parts, weighting=weighting)
        source.choose(3)
        sums.append(source.reduce(_counted, units.add_sums))
    source = _source(_cut(frame), weighting=weighting)
    source.choose(3)
    sums.append(source.reduce(_counted, units.add_sums))
    other = sums[1] if relation == "replace_one" else sums[2]
    claim = sums[0].sensitivity(UnitRelation(relation, BoundedUnit("id", K, weighting)))
    moved = np.linalg.norm((sums[0].value - other.value) * sums[0].weights)
    assert 0.999 * claim <= moved <= claim * (1 + 1e-9)


def _counted(part, unit_sizes=None):
    return histogram(part["c"].map({"x": 0, "y": 1, "z": 2}).to_numpy(), 3, unit_sizes)


# ---- tables that change between two passes -------------------------------------------------------------------------
class _Changing:
    """Chunks that are others from a pass on."""

    def __init__(self, before, after, passes):
        self.chunks, self.left = (before, after), passes

    def __call__(self):
        self.left -= 1
        return list(self.chunks[self.left < 0])


_FRAME = _visits()
_OTHERS = {
    "another order": _FRAME.iloc[::-1],
    "two rows exchanged": _FRAME.iloc[[1, 0, *range(2, N)]],
    "a row more": pd.concat([_FRAME, _FRAME.iloc[:1]]),
    "a row less": _FRAME.iloc[1:],
    "a last row less": _FRAME.iloc[:-1],
    "another identifier": _FRAME.assign(id=_FRAME["id"].mask(_FRAME["row"] == 9, "p999")),
}


@pytest.mark.parametrize("other", _OTHERS)
def test_nothing_is_summed_over_rows_of_another_order_than_they_were_chosen_in(other):
    changing = _Changing(_cut(_FRAME), _cut(_OTHERS[other]), 10**9)
    source = _source(changing)
    source.inspect(len, operator.add)
    source.choose(3)
    source.reduce(len, operator.add)
    changing.left = 0
    with pytest.raises(InvalidInputError, match="in another order"):
        source.reduce(len, operator.add)


def test_rows_that_change_while_they_are_chosen_are_noticed(monkeypatch):
    monkeypatch.setattr(units, "HELD_ROWS", 60)
    changing = _Changing(_cut(_FRAME), _cut(_FRAME.iloc[::-1]), 10**9)
    source = _source(changing)
    source.inspect(len, operator.add)
    changing.left = 2  # of four passes
    with pytest.raises(InvalidInputError, match="in another order"):
        source.choose(3)


def test_without_that_check_a_unit_would_have_more_rows(monkeypatch):
    changing = _Changing(_cut(_FRAME), _cut(_FRAME.iloc[::-1]), 10**9)
    source = _source(changing, k=2)
    source.choose(3)
    changing.left = 0
    monkeypatch.setattr(ScatteredUnits, "_check", lambda self, seen: None)
    rows = source.reduce(lambda part: part["row"].tolist(), operator.add)
    assert _FRAME["id"].iloc[rows].value_counts().max() > 2


def test_chunks_that_are_sorted_at_the_first_pass_alone_are_refused():
    frame = _FRAME.sort_values("id", kind="stable")
    changing = _Changing(_cut(frame), _cut(_FRAME), 10**9)
    source = _source(changing)
    source.inspect(len, operator.add)
    source.choose(3)
    changing.left = 0
    with pytest.raises(InvalidInputError, match="sorted by 'id' in the first pass"):
        source.reduce(len, operator.add)


# ---- fits ----------------------------------------------------------------------------------------------------------
def _with_numbers(frame):
    return frame.drop(columns="row").assign(a=np.random.default_rng(1).normal(size=len(frame)))


def _state(X, **parameters):
    with seeded_noise(7, quiet=True), short_postprocessing():
        synth = MomentSynthesizer(4.0, schema=SCHEMA, **{"unit": "id", **parameters}, random_state=0).fit(X)
    return synth.sample(40, random_state=0), synth


@pytest.mark.parametrize("made", [SOURCES["csv"], SOURCES["dask"]], ids=["csv", "dask"])
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_rows_per_unit": 2},
        {"unit": PrivacyUnit("id", 2, weighting="units", columns=["c"])},
        {},
    ],
    ids=["rows", "units", "learned"],
)
@pytest.mark.filterwarnings(
    "ignore::skdpgen.exceptions.UtilityWarning", "ignore::skdpgen.exceptions.PrivacyLeakWarning"
)
def test_a_fit_is_that_of_the_same_table_in_memory(made, parameters, tmp_path, monkeypatch):
    monkeypatch.setattr(units, "HELD_ROWS", 100)
    frame = _with_numbers(_visits())
    wanted, one = _state(frame, **parameters)
    found, other = _state(made(frame, tmp_path), **parameters)
    pd.testing.assert_frame_equal(wanted, found)
    assert one.max_rows_per_unit_ == other.max_rows_per_unit_
    assert one.row_count_ == other.row_count_


@pytest.mark.parametrize("made", [SOURCES["list"], SOURCES["dask"]], ids=["list", "dask"])
@pytest.mark.parametrize(
    ("ids", "match"), [([1, "1"], "several kinds"), ([1, None], "lacks an identifier"), ([[1], [2]], "compared")]
)
def test_bad_identifiers_cost_nothing(made, ids, match):
    frame = _with_numbers(_visits())
    frame["id"] = pd.Series((ids * N)[:N], dtype=object)
    accountant = PrivacyAccountant(1.0, unit="id")
    if made is SOURCES["dask"]:
        pytest.importorskip("dask").config.set({"dataframe.convert-string": False})
    with pytest.raises(InvalidInputError, match=match):
        MomentSynthesizer(accountant=accountant, unit="id", max_rows_per_unit=2, schema=SCHEMA).fit(made(frame, None))
    assert not accountant.entries


def _dealt(frame):
    """Chunks with one row of each person: which of them is in which chunk follows from that person alone."""
    place = frame.groupby("id").cumcount()
    return [frame[place == i] for i in range(place.max() + 1)]


def _interference(**of_units):
    rng, sets = np.random.default_rng(0), []
    for seed, n in ((0, 40), (1, 28)):
        frame = _with_numbers(_visits(seed, n))
        ids = frame["id"] + f"-{seed}"  # no person is in both
        sets.append(frame.assign(id=ids, c=rng.choice(["x", "y", f"only {seed}"], n)))
    joining = pd.DataFrame({"id": ["q"] * 5, "c": ["x", "alone", "alone too", "x", "y"], "a": 1e6})
    made = MomentSynthesizer(60.0, random_state=0, unit=PrivacyUnit("id", 3, **of_units))
    with short_postprocessing():
        check_noninterference(made, *sets, rows=joining[sets[0].columns], source=_dealt)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_person_in_several_chunks_moves_no_release_by_more_than_it_claims(monkeypatch):
    monkeypatch.setattr(units, "HELD_ROWS", 40)
    _interference(weighting="units", columns=["c"])


def _rows_chosen_in_each_chunk(patch):
    def chunks(self):
        start = 0
        for values in self._source.column(self._column):
            yield start + np.arange(len(values)), values.reset_index(drop=True)
            start += len(values)
        self._lengths = []

    patch.setattr(ScatteredUnits, "_slices", chunks)
    patch.setattr(ScatteredUnits, "_check", lambda self, seen: None)


def _slices_by_place(patch):
    patch.setattr(units, "_slice_of", lambda values, start, n: (start + np.arange(len(values))) // 30 % np.uint64(n))


def _the_number_of_units_that_begin(patch):
    patch.setattr(ScatteredUnits, "row_count", lambda self: units.total(np.array([self._n_rows]), 1, of_units=True))


@pytest.mark.parametrize("sabotage", [_rows_chosen_in_each_chunk, _slices_by_place, _the_number_of_units_that_begin])
def test_what_changes_the_rows_used_of_scattered_units_is_caught(sabotage, monkeypatch, tmp_path):
    monkeypatch.setattr(units, "HELD_ROWS", 30)
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        test_the_rows_used_are_those_of_the_same_table_in_memory(SOURCES["list"], "units", tmp_path, 30)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_person_whose_rows_are_chosen_in_each_chunk_moves_a_release_too_far(monkeypatch):
    _rows_chosen_in_each_chunk(monkeypatch)
    with pytest.raises(AssertionError, match="moves it by"):
        _interference()


def test_the_values_of_a_dask_column_come_a_few_partitions_at_a_time():
    frame = _visits()
    source = DaskSource(_dask(frame, None))
    assert pd.concat(source.column("row")).tolist() == frame["row"].tolist()
